"""The answer of `anubis gate`, in one sentence or as one JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anubis.cli import answer, nagios
from anubis.cli import decision as deciding
from anubis.cli.page_files import write_junit
from anubis.cli.terminal import Answerer
from anubis.core.records import Judgement
from anubis.report.decision import brief
from anubis.report.gate import gate_fields, sentence
from anubis.text.wording import short_node_list

if TYPE_CHECKING:
    from anubis.report.gate import GateResult
    from anubis.report.junit import JUnitSuite


class GateAnswerer(Answerer):
    def __init__(self, *, as_json: bool, nagios: bool, junit: Path | None, why: bool) -> None:
        super().__init__(as_json=as_json)
        self._nagios = nagios
        self._junit = junit
        self._why = why

    def gated(self, result: GateResult) -> None:
        if self._junit:
            write_junit("gate", suites(result), self._junit)
        if self._nagios:
            self.set_exit_code(tell_monitoring(result))
        else:
            show(result, as_json=self.as_json, why=self._why)
            self.set_exit_code(answer.EXIT_CODES[result.judgement])


def show(result: GateResult, *, as_json: bool, why: bool) -> None:
    view = result.campaign.view if result.campaign else None
    if as_json:
        if view:
            from anubis.cli import showing

            showing.campaign(view, as_json=True)
        answer.write_json("gate", gate_fields(result))
        return
    _, *reasons = brief(result.decision)
    todo = (
        [f"do: {i.action} ({short_node_list(i.subjects)})" for i in view.instructions]
        if view
        else []
    )
    answer.write_brief([sentence(result), *todo, *([] if why else reasons)])
    if why:
        deciding.show_reasons(result.decision, view)


def suites(result: GateResult) -> list[JUnitSuite]:
    """JUnit suites: the gate's answer for each node and link, then what the tests found."""
    from anubis.report import junit

    nodes = [
        junit.JUnitCase(
            name=node,
            judgement=_let_pass(judged, passes=result.unknown_passes),
            code="GATE",
            details=[result.unfit.get(node) or result.doubts.get(node) or sentence(result)],
        )
        for node, judged in result.judged.items()
    ]
    links = [
        junit.JUnitCase(
            name=",".join(together), judgement=Judgement.DEFECTIVE, code="GATE", details=[why]
        )
        for together, why in result.links.items()
    ]
    gate = junit.JUnitSuite(name="gate", cases=[*nodes, *links])
    return [gate, *(junit.suites_of(result.campaign.view) if result.campaign else ())]


def _let_pass(judged: Judgement, *, passes: bool) -> Judgement:
    return Judgement.HEALTHY if passes and judged is Judgement.UNKNOWN else judged


def tell_monitoring(result: GateResult) -> int:
    """Write one line for monitoring. A go at more risk than is accepted, or with unproven nodes, is
    a warning."""
    decision, nodes = result.decision, len(result.judged)
    figures = {
        "risk": f"{decision.remaining:.4g};{decision.p0:.4g};;0;1",
        "defective": f"{len(result.named(Judgement.DEFECTIVE))};;0;0;{nodes}",
        "unknown": f"{len(result.unknown)};;;0;{nodes}",
        "bad_links": f"{len(result.links)};;0;0;",
    }
    warns = bool(result.unknown) or not decision.is_bearable
    return nagios.tell("gate", result.judgement, sentence(result), figures, warns=warns)
