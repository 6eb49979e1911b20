"""`anubis scan --draw`: show the fabric that Anubis reads, before anything is scheduled on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anubis
from anubis.cli import answer
from anubis.cli.options import AnswerForms
from anubis.cli.page_files import write_page
from anubis.cli.terminal import Terminal
from anubis.core.errors import UsageError
from anubis.operations.requests import FabricRequest, ScanRequest

if TYPE_CHECKING:
    from anubis.operations.topology import InspectedFabric


def draw(request: ScanRequest, forms: AnswerForms) -> None:
    """Draw the fabric, and exit with the code of what its anomalies come to."""
    from anubis.report.topology import json_lines, text

    forms.check()
    if forms.junit:
        raise UsageError("--draw measures nothing: leave --junit out")
    wish = FabricRequest(
        topology=request.topology,
        hcas=request.hcas,
        nodes=request.nodes or (),
        counters=request.counters,
        over_s=request.over_s,
    )
    inspected = anubis.inspect_fabric(wish, Terminal())
    shown = json_lines if forms.json else text
    if not forms.nagios:
        answer.write_lines(
            shown(
                inspected.inspection,
                inspected.remarks,
                inspected.placement,
                routes=inspected.routes,
            )
        )
    if forms.html:
        _write_page(inspected, forms.html)
    if forms.nagios:
        sys.exit(_tell_monitoring(inspected))
    answer.leave(inspected.judgement)


def _tell_monitoring(inspected: InspectedFabric) -> int:
    from anubis.cli import nagios
    from anubis.report.topology import answer as verdict

    inspection, placement = inspected.inspection, inspected.placement
    missing = sum(shortage.lacks for shortage in inspection.shortages)
    degraded = sum(shortage.is_degraded for shortage in inspection.shortages)
    figures = {
        "switches": f"{len(inspection.fabric.switches)};;;0;",
        "degraded": f"{degraded};;0;0;",
        "missing_uplinks": f"{missing};;;0;",
    }
    return nagios.tell("topology", inspected.judgement, verdict(inspection, placement), figures)


def _write_page(inspected: InspectedFabric, path: Path) -> None:
    from anubis.report.network_page import network_page
    from anubis.report.topology import answer as verdict
    from anubis.report.view import NetworkView

    view = NetworkView(
        fabric=inspected.inspection.fabric,
        counters=inspected.inspection.counters,
        shortfall={},
        nodes=inspected.placement.nodes if inspected.placement else (),
        unplaced=inspected.placement.unplaced if inspected.placement else (),
    )
    title = verdict(inspected.inspection, inspected.placement)
    write_page(network_page(view, title=title, findings=inspected.remarks), path)
