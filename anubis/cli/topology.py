"""`anubis topology`: show the fabric that Anubis reads, before anything is scheduled on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.page_files import write_page
from anubis.cli.terminal import Terminal

if TYPE_CHECKING:
    from anubis.operations.topology import InspectedFabric

app = typer.Typer(
    name="topology",
    help="The switches, and which node hangs on which.",
    no_args_is_help=True,
)


@app.callback()
def group() -> None:
    """Keeps `show` a word of its own."""


@app.command(help="Draw the fabric; list its anomalies and the nodes that are missing.")
def show(
    topology: options.Topology = None,
    hcas: options.Hcas = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="The nodes to find in it: node[01-16], a comma list, or @file.",
        ),
    ] = None,
    counters: options.Counters = None,
    over: options.Over = None,
    nagios: options.Nagios = False,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    from anubis.report.topology import json_lines, text

    inspected = anubis.inspect_fabric(
        topology,
        hcas=hcas,
        nodes=amounts.nodes(nodes or None) or (),
        counter_files=counters or (),
        over_s=over,
        caller=Terminal(),
    )
    shown = json_lines if json else text
    if not nagios:
        answer.write_lines(
            shown(
                inspected.inspection,
                inspected.remarks,
                inspected.placement,
                routes=inspected.routes,
            )
        )
    if html:
        _write_page(inspected, html)
    if nagios:
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
