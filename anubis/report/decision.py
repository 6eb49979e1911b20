"""A decision as one paragraph for people, and as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anubis.core.amounts import HOUR_S
from anubis.core.select.decision import Action, ChosenTest, Decision, Driver, Gap
from anubis.report.json import json_line
from anubis.text.wording import chance, names, quantity, short_node_list, time_span

NAMED = 3  # nodes, tests and gaps that a sentence names
NOT_WORTH = "test fits and is worth its time"
STANDS_OUT = 1.5  # times the share of a node that is like all others
NOTABLE = 0.005  # a share that shows in whole per cent


def paragraph(decision: Decision) -> str:
    """Return the reasons, in the order in which the decision was made."""
    return " ".join(_sentences(decision))


def brief(decision: Decision) -> Iterator[str]:
    """Yield the answer and its main reasons in a few lines; `paragraph` has all of them."""
    yield _answer(decision)
    yield _fall(decision)
    if len(decision.nodes) > 1 and decision.drivers and _stands_out(decision):
        riskiest = [f"{driver.node} (p = {chance(driver.p)})" for driver in decision.drivers]
        yield f"riskiest: {', '.join(riskiest[:NAMED])}"
    if decision.gaps and 1 - decision.coverage >= NOTABLE:
        yield f"{1 - decision.coverage:.0%} of the incidents to expect stay uncovered"
    if decision.assumed:
        yield f"{quantity(len(decision.assumed), 'assumption')}: see --why"


def sentence(decision: Decision) -> str:
    """Return the answer and the risk in words, for a page that has the tests in a table."""
    answer = _answer(decision)
    return f"{answer[0].upper()}{answer[1:]}. {_risk_in_words(decision)}"


def test_rows(decision: Decision) -> list[tuple[str, ...]]:
    """Return a row for each test: what, where, how long on a node, and what it takes off the
    risk."""
    return [
        (
            test.benchmark,
            short_node_list(test.nodes),
            time_span(test.duration_s),
            _percent(test.drop),
        )
        for test in decision.tests
        if not decision.refused
    ]


TEST_COLUMNS = ("test", "on", "on a node", "takes off the risk")


def _risk_in_words(decision: Decision) -> str:
    if decision.down and not decision.nodes:
        return "None of these nodes could take a job, so no risk is weighed."
    left, accepted = map(_percent, (decision.remaining, decision.p0))
    after = f"{left} if the tests pass" if decision.tests else f"{left} after what was measured"
    limit = f"{accepted} is accepted, {decision.because}"
    ahead = time_span(decision.horizon_s)
    if _presumes_defect(decision):
        if decision.event != "job-allocated":
            return f"A defect is presumed; its chance is {after}. {limit}."
        after = f"the chance of an incident within {ahead} is {after}"
        return f"A defect is presumed on one node or more; {after}. {limit}."
    return (
        f"The chance of an incident within {ahead} is {_percent(decision.p)}, and {after}. {limit}."
    )


def _presumes_defect(decision: Decision) -> bool:
    """True if a node of it is taken to be defective until a test clears it: no model of risk says
    so of one node. That p rounds to 1 says nothing: it does for enough nodes."""
    return decision.p == 1 and any(driver.p == 1 for driver in decision.drivers)


def _percent(share: float) -> str:
    digits = 0 if share >= 0.1 or share == 0 else 1 if share >= 0.001 else 2
    return f"{share:.{digits}%}" if share == 0 or share >= 0.0001 else "under 0.01%"


def _no_go(decision: Decision) -> str:
    return f"no-go, whatever the risk: {names(decision.refused, NAMED)}"


def _answer(decision: Decision) -> str:
    if decision.refused:
        return _no_go(decision)
    event_nodes = decision.nodes or decision.down
    nodes = f"{short_node_list(event_nodes) or 'no node'} ({decision.cluster})"
    if decision.down and not decision.nodes:
        return f"run nothing on {nodes}: in an incident or a repair"
    if not decision.tests:
        why = "" if decision.is_bearable else f"; no {NOT_WORTH}"
        return f"run nothing on {nodes}{why}"
    verb = "accept again" if decision.action is Action.ACCEPT else "run"
    tests = names([test.benchmark for test in decision.tests], NAMED)
    tested = {node for test in decision.tests for node in test.nodes}
    if len(tested) < len(event_nodes):
        some = short_node_list([node for node in event_nodes if node in tested])
        nodes = f"{some}, {len(tested):,} of {len(event_nodes):,} nodes ({decision.cluster})"
    longest, hours = time_span(decision.longest_s), decision.node_seconds / HOUR_S
    return f"{verb} {tests} on {nodes}: {longest} a node, {hours:.2g} node-hours"


def _fall(decision: Decision) -> str:
    """State the risk before the tests, the risk that is left if they pass, and the accepted
    risk."""
    if decision.down and not decision.nodes:
        return "no risk is weighed: none of these nodes could take a job"
    p, left, accepted = map(chance, (decision.p, decision.remaining, decision.p0))
    risk = f"risk within {time_span(decision.horizon_s)}"
    if _presumes_defect(decision):
        risk = "risk, as a defect is presumed"
    return f"{risk}: {p}, after tests {left}; accepted {accepted}, {decision.because}"


def _stands_out(decision: Decision) -> bool:
    return decision.drivers[0].share >= STANDS_OUT / len(decision.nodes)


@dataclass(frozen=True, kw_only=True)
class DecisionLine:
    why: str
    """The reasons, as a paragraph."""


def line(decision: Decision) -> str:
    return json_line("decision", *parts(decision))


def parts(decision: Decision) -> tuple[Decision, DecisionLine]:
    """Return what a line has: the decision, and why."""
    return decision, DecisionLine(why=paragraph(decision))


def _sentences(decision: Decision) -> Iterator[str]:
    yield f"On cluster {decision.cluster}, {event_of(decision)}: {_risk(decision)}."
    if decision.covered_before >= NOTABLE:
        left = decision.p * (1 - decision.covered_before)
        yield (
            f"Recent measurements cover {decision.covered_before:.0%} of that, which leaves"
            f" {chance(left)}."
        )
    if len(decision.nodes) > 1 and decision.drivers:
        yield _drivers(decision.drivers, len(decision.nodes))
    yield from _tests(decision)
    if decision.gaps and 1 - decision.coverage >= NOTABLE:
        gaps = "; ".join(_gap(gap) for gap in decision.gaps[:NAMED])
        yield f"{1 - decision.coverage:.0%} of the expected incidents stay uncovered: {gaps}."
    if decision.missed > 1.2 * decision.remaining and decision.missed > decision.p0:
        yield (
            f"With this many nodes, the chance that one has an incident no test would find is"
            f" {chance(decision.missed)}."
        )
    if decision.assumed:
        yield f"Assumed: {'; '.join(decision.assumed)}."


def event_of(decision: Decision) -> str:
    every = (*decision.nodes, *decision.down)
    nodes = names(every, NAMED) if len(every) <= NAMED else f"{len(every):,} nodes"
    nodes = nodes or "no node"
    match decision.event:
        case "node-added":
            return f"{nodes} added"
        case "fleet-upgraded":
            return f"{nodes} upgraded"
        case "job-allocated":
            return f"a job of {time_span(decision.horizon_s)} on {nodes}"
        case "incident-reported":
            return f'incident "{decision.category}" on {nodes}'
        case "suspicion-raised":
            return f'{nodes} suspected, of "{decision.category}" before all'
    return f"{nodes} idle"


def _risk(decision: Decision) -> str:
    bound = f"p0 is {chance(decision.p0)}, {decision.because}"
    if _presumes_defect(decision):
        where = " on one of them or more" if decision.event == "job-allocated" else ""
        return f"a defect is presumed{where}, and {bound}"
    subject = "at least one of them has" if len(decision.nodes) > 1 else "it has"
    ahead = time_span(decision.horizon_s)
    return f"p = {chance(decision.p)} that {subject} an incident within {ahead}; {bound}"


def _drivers(drivers: tuple[Driver, ...], nodes: int) -> str:
    first = drivers[0]
    if first.share < STANDS_OUT / nodes:
        return (
            f"No node is at much higher risk than the others: the riskiest, {first.node}, has"
            f" p = {chance(first.p)}."
        )
    riskiest = ", ".join(map(_driver, drivers[:NAMED]))
    return f"Most of the expected incidents come from {riskiest}."


def _driver(driver: Driver) -> str:
    because = f"; {driver.because}" if driver.because else ""
    return f"{driver.node} ({driver.share:.0%}, p = {chance(driver.p)}{because})"


def _tests(decision: Decision) -> Iterator[str]:
    if decision.refused:
        yield f"The gate says {_no_go(decision)}."
        return
    if not decision.tests:
        yield (
            "So no test needs to run."
            if decision.is_bearable
            else f"Still, nothing runs: no {NOT_WORTH}."
        )
        return
    listed = "; ".join(_test(test, len(decision.nodes)) for test in decision.tests[:NAMED])
    more = len(decision.tests) - NAMED
    unlisted = f"; and {more} more" if more > 0 else ""
    verb = "Accept again" if decision.action is Action.ACCEPT else "Run"
    yield f"{verb}: {listed}{unlisted}."
    if decision.partners:
        yield (
            "If a test needs several nodes, each is measured with two that are proven, of"
            f" {names(decision.partners, NAMED)}, and these are measured with each other."
        )
    if decision.greedy_node_seconds is not None:
        greedy = decision.greedy_node_seconds / HOUR_S
        yield (
            "This is the cheapest choice that was found; the most useful test per second first"
            f" would take {greedy:.2g} node-hours."
        )
    yield (
        f"That takes at most {time_span(decision.longest_s)} on a node,"
        f" {decision.node_seconds / HOUR_S:.2g} node-hours in all, and leaves a risk of"
        f" {chance(decision.remaining)}{'' if decision.is_bearable else f': no other {NOT_WORTH}'}."
    )


def _test(test: ChosenTest, nodes: int) -> str:
    where = "" if len(test.nodes) == nodes else f" on {names(test.nodes, NAMED)}"
    return (
        f"{test.benchmark}{where} ({time_span(test.duration_s)},"
        f" lowers the risk by {chance(test.drop)}, {test.drop_per_s:.1e} per node-second)"
    )


def _gap(gap: Gap) -> str:
    if not gap.finders:
        return f"{gap.share:.0%} that no known test finds"
    only = "only " if len(gap.finders) == 1 else ""
    return f"{gap.share:.0%} that {only}{_either(gap.finders)} would find"


def _either(finders: tuple[str, ...]) -> str:
    listed = names(finders, NAMED).split(", ")
    return " or ".join(listed) if len(finders) <= NAMED else ", ".join(listed)
