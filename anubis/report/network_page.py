"""The result of a scan, or a fabric alone: pictures and words, as a page or a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anubis.core.fabric import Remark
from anubis.core.records import Judgement
from anubis.report import coverage, fabric_picture, heat_map
from anubis.report.page import page
from anubis.report.topology import headline, origin
from anubis.report.view import GLYPH, NetworkView

LISTED = 200  # findings that are listed one by one


def network_section(view: NetworkView, anchor: str = "network") -> str:
    """Render a section for a page that has the styles of report.css."""
    return page("network_section", anchor=anchor, **_facts(view, ()))


def network_page(view: NetworkView, *, title: str, findings: Sequence[Remark] = ()) -> str:
    """Render a page that needs nothing else; `findings` are the remarks on the fabric's source."""
    return page("network", title=title, anchor="network", **_facts(view, findings))


def _facts(view: NetworkView, findings: Sequence[Remark]) -> dict[str, Any]:
    wanted_nodes = set(view.nodes or view.fabric.nodes)
    matrices = heat_map.matrices(view)
    budget = heat_map.TITLES
    drawn = []
    for matrix in sorted(matrices, key=lambda matrix: matrix.short == 0):
        drawing = heat_map.drawing(view, matrix, budget)
        budget -= drawing.count("<rect")
        drawn.append((matrix, drawing))
    return {
        "view": view,
        "headline": headline(view.fabric),
        "origin": origin(view.fabric),
        "untouched": any(
            view.judgement_of(nic) is not view.verdicts.get(nic.node) for nic in view.fabric.nics
        ),
        "crossed": coverage.sentence(view.coverage) if view.coverage else "",
        "missing": coverage.missing(view.uncrossed),
        "verdicts": [judgement for judgement in Judgement if judgement in view.verdicts.values()],
        "glyph": GLYPH,
        "picture": fabric_picture.drawing(view),
        "matrices": drawn,
        "steps": list(enumerate(heat_map.WORDS)),
        "idle_rails": [r for r in view.fabric.rails if r not in {m.rail for m in matrices}],
        "odd": list(view.inspection.findings),
        "strangers": [nic for nic in view.fabric.nics if nic.node not in wanted_nodes],
        "findings": list(findings),
        "listed": LISTED,
    }
