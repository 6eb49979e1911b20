"""Write the answer of a gate: in one sentence, and as the document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from anubis.core.records import Judgement
from anubis.operations.results import GateResult
from anubis.text.hostlist import compress
from anubis.text.wording import chance, names, short_node_list, time_span

if TYPE_CHECKING:
    from anubis.report.documents import GateLine

OWING_NAMED = 1  # nodes whose debts a sentence explains
BUSY_NAMED = 1  # nodes at work that a sentence names the job of
UNFIT_NAMED = 2  # nodes out of service whose reason a sentence gives
LINKS_NAMED = 3  # bad links that a sentence names
TESTS_NAMED = 3


def fields(result: GateResult) -> GateLine:
    return {
        "answer": result.answer,
        "cluster": result.decision.cluster,
        "defective": result.named(Judgement.DEFECTIVE),
        "links": [{"nodes": nodes, "reason": why} for nodes, why in result.links.items()],
        "unknown": result.unknown,
        "unfit": result.unfit,
        "owing": result.owing,
        "busy": result.busy,
        "needs": list(dict.fromkeys(test.benchmark for test in result.missing_tests)),
        "budget_short": result.doubt == "budget",
        "remaining": result.decision.remaining,
        "p0": result.decision.p0,
        "why": sentence(result),
    }


def sentence(result: GateResult) -> str:
    word: str = result.answer
    if word == "no-go" and not result.is_tested:
        word = "no-go, and nothing was run"
    if word == "go" and not result.decision.is_bearable:
        word = f"go, at {_risk_left(result)}"
    return f"{word}: {'; '.join(_reasons(result)) or _passing_nodes(result)}"


def _passing_nodes(result: GateResult) -> str:
    alone = ", compared with its own repeats only" if result.is_by_itself else ""
    return f"{compress(list(result.judged))} (cluster {result.decision.cluster}){alone}"


def _reasons(result: GateResult) -> Iterator[str]:
    yield from (f"{node}: {why}" for node, why in islice(result.unfit.items(), UNFIT_NAMED))
    if unnamed := list(result.unfit)[UNFIT_NAMED:]:
        yield f"also out of service: {short_node_list(unnamed)}"
    defective = [node for node in result.named(Judgement.DEFECTIVE) if node not in result.unfit]
    if defective:
        yield f"defective: {compress(defective)}"
    for nodes, why in islice(result.links.items(), LINKS_NAMED):
        yield f"bad between {names(sorted(nodes))}: {why}"
    if len(result.links) > LINKS_NAMED:
        yield f"bad between {len(result.links) - LINKS_NAMED:,} more groups"
    if result.unknown:
        yield f"{_unknown_reason(result)}: {compress(result.unknown)}"
        if result.clock:
            yield result.clock
        yield from (
            f"{node}: {' '.join(why.split())}" for node, why in islice(result.doubts.items(), 1)
        )
        if result.doubt == "busy":
            yield from (f"{node}: {why}" for node, why in islice(result.busy.items(), BUSY_NAMED))
            if unnamed := list(result.busy)[BUSY_NAMED:]:
                yield f"also at work: {short_node_list(unnamed)}"
        owing = [node for node in result.owing if node in result.unknown]
        yield from (f"{node}: {result.owing[node]}" for node in owing[:OWING_NAMED])
        if owing[OWING_NAMED:]:
            yield f"also owing an answer: {short_node_list(owing[OWING_NAMED:])}"


def _unknown_reason(result: GateResult) -> str:
    match result.doubt:
        case "budget":
            return "the budget leaves too much untested"
        case "tests":
            tests = names([test.benchmark for test in result.missing_tests], TESTS_NAMED)
            longest = time_span(result.decision.longest_s)
            return f"tests would have to run first ({tests}; {longest} a node)"
        case "busy":
            return "these nodes are not all free"
        case "owed":
            return "no test of this gate answers what is owed (--partners or anubis validate may)"
        case "policy":
            tests = "the tests leave" if result.decision.tests else "no test is worth its time at"
            return f"{tests} {_risk_left(result)}"
    return "not known to be healthy"


def _risk_left(result: GateResult) -> str:
    remaining, p0 = chance(result.decision.remaining), chance(result.decision.p0)
    return f"a risk of {remaining}, above the accepted {p0}"
