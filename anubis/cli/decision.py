"""Write a decision to stdout: at a glance, or with all its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anubis.cli import answer
from anubis.core.select.decision import Decision
from anubis.report import decision as reports
from anubis.text.wording import short_node_list

if TYPE_CHECKING:
    from anubis.report.view import CampaignView


def show(decision: Decision, *, as_json: bool, why: bool) -> None:
    if as_json:
        print(reports.line(decision))
    elif why:
        print(next(reports.brief(decision)))
        show_reasons(decision)
    else:
        answer.write_brief(reports.brief(decision))


def show_owing(owing: Mapping[str, str]) -> None:
    """Write which nodes no test of this suite and budget can answer for."""
    node, why = next(iter(owing.items()))
    more = f"; also {short_node_list([*owing][1:])}" if len(owing) > 1 else ""
    answer.write_paragraph(f"unknown still: {node}: {why}{more}")


def show_reasons(decision: Decision, view: CampaignView | None = None) -> None:
    """Write a decision's reasons, and what its campaign measured if there was one."""
    print()
    answer.write_paragraph(reports.paragraph(decision))
    if view:
        from anubis.cli import showing

        print()
        showing.campaign(view, as_json=False)
