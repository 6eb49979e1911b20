"""The answer of `anubis gate`, in one sentence or as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.cli import answer, deciding, nagios
from anubis.cli.pages import write_junit
from anubis.cli.terminal import Answerer
from anubis.core.records import Judgement
from anubis.hostlist import compress
from anubis.report.decision import brief
from anubis.report.wording import called, chance, names

if TYPE_CHECKING:
    from anubis.operations.results import GateResult
    from anubis.report.documents import GateLine
    from anubis.report.junit import JUnitSuite

UNFIT_NAMED = 2  # nodes out of service that a sentence gives the reason of
LINKS_NAMED = 3  # bad links that a sentence names


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
            self.answered(tell_monitoring(result))
        else:
            show(result, as_json=self.as_json, why=self._why)
            self.answered(answer.EXIT_CODES[result.judgement])


def show(result: GateResult, *, as_json: bool, why: bool) -> None:
    view = result.campaign.view if result.campaign else None
    if as_json:
        if view:
            from anubis.cli import showing

            showing.campaign(view, as_json=True)
        answer.write_json("gate", _fields(result))
        return
    _, *reasons = brief(result.decision)
    todo = [f"do: {i.action} ({called(i.subjects)})" for i in view.instructions] if view else []
    answer.write_brief([_sentence(result), *todo, *([] if why else reasons)])
    if why:
        deciding.show_reasons(result.decision, view)


def suites(result: GateResult) -> list[JUnitSuite]:
    """What the tests found, behind what the gate makes of each node and of what lies between."""
    from anubis.report import junit

    nodes = [
        junit.JUnitCase(
            name=node,
            judgement=_let_pass(judged, passes=result.unknown_passes),
            code="GATE",
            details=[result.unfit.get(node) or result.doubts.get(node) or _sentence(result)],
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
    """A go at more risk than is accepted, or with nodes that nobody vouches for, is a warning."""
    decision, nodes = result.decision, len(result.judged)
    figures = {
        "risk": f"{decision.remaining:.4g};{decision.p0:.4g};;0;1",
        "defective": f"{len(result.named(Judgement.DEFECTIVE))};;0;0;{nodes}",
        "unknown": f"{len(result.unknown)};;;0;{nodes}",
        "bad_links": f"{len(result.links)};;0;0;",
    }
    warns = bool(result.unknown) or not decision.is_bearable
    return nagios.tell("gate", result.judgement, _sentence(result), figures, warns=warns)


def _fields(result: GateResult) -> GateLine:
    return {
        "answer": result.answer,
        "cluster": result.decision.cluster,
        "defective": result.named(Judgement.DEFECTIVE),
        "links": [{"nodes": nodes, "reason": why} for nodes, why in result.links.items()],
        "unknown": result.unknown,
        "unfit": result.unfit,
        "budget_short": result.doubt == "budget",
        "remaining": result.decision.remaining,
        "p0": result.decision.p0,
        "why": _sentence(result),
    }


def _sentence(result: GateResult) -> str:
    word: str = result.answer
    if word == "no-go" and not result.is_tested:
        word = "no-go, and nothing was run"
    if word == "go" and not result.decision.is_bearable:
        word = f"go, at {_risk_left(result)}"
    return f"{word}: {'; '.join(_reasons(result)) or _who_may_go(result)}"


def _who_may_go(result: GateResult) -> str:
    alone = ", compared with its own repeats only" if result.is_by_itself else ""
    return f"{compress(list(result.judged))} (cluster {result.decision.cluster}){alone}"


def _reasons(result: GateResult) -> Iterator[str]:
    yield from (f"{node}: {why}" for node, why in islice(result.unfit.items(), UNFIT_NAMED))
    if unnamed := list(result.unfit)[UNFIT_NAMED:]:
        yield f"also out of service: {called(unnamed)}"
    defective = [node for node in result.named(Judgement.DEFECTIVE) if node not in result.unfit]
    if defective:
        yield f"defective: {compress(defective)}"
    for nodes, why in islice(result.links.items(), LINKS_NAMED):
        yield f"bad between {names(sorted(nodes))}: {why}"
    if len(result.links) > LINKS_NAMED:
        yield f"bad between {len(result.links) - LINKS_NAMED:,} more groups"
    if result.unknown:
        yield f"{_why_unknown(result)}: {compress(result.unknown)}"
        yield from (
            f"{node}: {' '.join(why.split())}" for node, why in islice(result.doubts.items(), 1)
        )


def _why_unknown(result: GateResult) -> str:
    match result.doubt:
        case "budget":
            return "the budget leaves too much untested"
        case "policy":
            return f"no test is worth its time at {_risk_left(result)}"
    return "not known to be healthy"


def _risk_left(result: GateResult) -> str:
    remaining, p0 = chance(result.decision.remaining), chance(result.decision.p0)
    return f"a risk of {remaining}, above the accepted {p0}"
