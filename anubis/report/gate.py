"""The answer of a gate: go, no-go or unknown, as one sentence and as the document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from anubis.core.records import Criterion, Judgement
from anubis.core.select.decision import ChosenTest, Decision
from anubis.text.hostlist import compress
from anubis.text.wording import chance, names, short_node_list, time_span

if TYPE_CHECKING:
    from anubis.report.view import CampaignResult

OWING_NAMED = 1  # nodes whose debts a sentence explains
BUSY_NAMED = 1  # nodes at work that a sentence names the job of
UNFIT_NAMED = 2  # nodes out of service whose reason a sentence gives
LINKS_NAMED = 3  # bad links, or defective parts, that a sentence names
TESTS_NAMED = 3  # tests that a sentence names
# tests: they would have to run, and may not; owed: no test that can be chosen answers what is owed;
# busy: another job runs on some of the nodes
Doubt = Literal["budget", "policy", "tests", "owed", "busy", ""]
BadLinks = Mapping[tuple[str, ...], str]  # nodes that do badly together, and why


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The verdict on each node and on parts between them, with the reasons."""

    decision: Decision
    judged: Mapping[str, Judgement]
    links: BadLinks
    parts: Mapping[str, str]  # defective parts between the nodes, as a scan found them, and why
    may_cross_parts: bool  # by the policy
    unfit: Mapping[str, str]  # nodes that are out of service or under maintenance, and why
    owing: Mapping[str, str]  # nodes that still owe an answer: what, and since when
    busy: Mapping[str, str]  # nodes on which another job runs, and which one
    campaign: CampaignResult | None  # that carried the decision out
    is_tested: bool  # the decided tests were run; else the answer was known before
    doubt: Doubt  # what lets no node pass while too much risk is left
    unknown_passes: bool
    clock: str = ""  # why nothing is known by its age; empty: the clock is trusted

    def named(self, judgement: Judgement) -> list[str]:
        return [node for node, judged in self.judged.items() if judged is judgement]

    @property
    def unknown(self) -> list[str]:
        settled = (Judgement.HEALTHY, Judgement.DEFECTIVE)
        unsettled = [node for node, judged in self.judged.items() if judged not in settled]
        return [node for node in unsettled if node not in self.unfit]

    @property
    def missing_tests(self) -> tuple[ChosenTest, ...]:
        """Tests that would have to run before the answer can be go."""
        return self.decision.tests if self.doubt == "tests" else ()

    @property
    def doubts(self) -> dict[str, str]:
        """The nodes that a test could not judge, and why."""
        verdicts = self.campaign.view.assessment.nodes if self.campaign else ()
        return {
            verdict.node: verdict.reason
            for verdict in verdicts
            if verdict.judgement is Judgement.UNKNOWN and verdict.node in self.judged
        }

    @property
    def criteria(self) -> list[Criterion]:
        """Criteria with which nodes were compared."""
        sets = self.campaign.view.criteria if self.campaign else ()
        return [criterion for criteria in sets for criterion in criteria.criteria]

    @property
    def is_by_itself(self) -> bool:
        """True if a node was compared only with its own measurements."""
        return any(criterion.from_repeats for criterion in self.criteria)

    @property
    def barring_parts(self) -> Mapping[str, str]:
        return {} if self.may_cross_parts else self.parts

    @property
    def judgement(self) -> Judgement:
        if self.links or self.barring_parts or self.unfit or self.named(Judgement.DEFECTIVE):
            return Judgement.DEFECTIVE
        may_pass = self.unknown_passes and self.doubt != "tests"  # a test could still judge them
        passes = may_pass or not self.unknown
        return Judgement.HEALTHY if passes else Judgement.UNKNOWN

    @property
    def answer(self) -> Literal["go", "no-go", "unknown"]:
        match self.judgement:
            case Judgement.HEALTHY:
                return "go"
            case Judgement.DEFECTIVE:
                return "no-go"
            case _:
                return "unknown"


@dataclass(frozen=True, kw_only=True)
class BadLink:
    nodes: Sequence[str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class GateLine:
    answer: Literal["go", "no-go", "unknown"]
    cluster: str
    why: str
    """The sentence of the terminal."""
    defective: Sequence[str]
    links: Sequence[BadLink]
    """Nodes that do badly together."""
    parts: Mapping[str, str]
    """Defective parts between the nodes, such as a link, as a scan found them, and why."""
    unknown: Sequence[str]
    unfit: Mapping[str, str]
    """Nodes that are out of service, and why."""
    owing: Mapping[str, str]
    """Nodes that owe an answer: to which benchmarks, and since when."""
    busy: Mapping[str, str]
    """Nodes with another job, as it was reported, and its id."""
    needs: Sequence[str]
    """Tests that would have to run first, if nothing may run."""
    budget_short: bool
    """Whether the budget left too much untested."""
    remaining: float
    """The risk that is left."""
    p0: float
    """The risk that is accepted."""


def gate_fields(result: GateResult) -> GateLine:
    return GateLine(
        answer=result.answer,
        cluster=result.decision.cluster,
        why=sentence(result),
        defective=result.named(Judgement.DEFECTIVE),
        links=[BadLink(nodes=nodes, reason=why) for nodes, why in result.links.items()],
        parts=result.parts,
        unknown=result.unknown,
        unfit=result.unfit,
        owing=result.owing,
        busy=result.busy,
        needs=list(dict.fromkeys(test.benchmark for test in result.missing_tests)),
        budget_short=result.doubt == "budget",
        remaining=result.decision.remaining,
        p0=result.decision.p0,
    )


def sentence(result: GateResult) -> str:
    word: str = result.answer
    if word == "no-go" and not result.is_tested:
        word = "no-go, and nothing was run"
    if word == "go" and not result.decision.is_bearable:
        word = f"go, at {_risk_left(result)}"
    sentence = f"{word}: {'; '.join(_reasons(result)) or _passing_nodes(result)}"
    if word.startswith("go") and result.parts:
        sentence += f"; the job may cross {'; '.join(_parts(result))}"
    return sentence


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
    if result.barring_parts:
        yield (
            f"defective between these nodes: {'; '.join(_parts(result))}; scan them again once "
            "that is repaired or taken out"
        )
    if result.unknown:
        if result.doubt or {*result.unknown} - {*result.owing}:
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


def _parts(result: GateResult) -> Iterator[str]:
    yield from (f"{part}: {why}" for part, why in islice(result.parts.items(), LINKS_NAMED))
    if len(result.parts) > LINKS_NAMED:
        yield f"{len(result.parts) - LINKS_NAMED:,} more parts"


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
