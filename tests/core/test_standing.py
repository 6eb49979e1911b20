"""The track record of a node, against a naive reading of the same few records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_standing import naive_standing

from anubis.core.history.events import (
    EventRecord,
    FleetUpgraded,
    IncidentReported,
    NodeAdded,
    reported_incidents,
)
from anubis.core.history.standing import ANY, bad_links, standing
from anubis.core.history.status import Incident, Repair, Validation, defects_as_incidents
from anubis.core.history.strength import Strength
from anubis.core.records import Demand, Judgement, PartVerdict, Workload
from anubis.report.gate import GateResult

NOW = 8.0
HEALTHY, DEFECTIVE, UNKNOWN = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
ABSENT = Judgement.NOT_APPLICABLE
BOTH = ("disk", "gemm")


def verdict_of(
    at, judgement=HEALTHY, *, node="n1", ran=BOTH, campaign="c", owes=(), absent=(), began=None
):
    return Validation(
        node=node,
        at=at,
        began=began,
        judgement=judgement,
        code="X",
        benchmarks=ran,
        campaign=campaign,
        owes=owes,
        inapplicable=absent,
    )


def incident(start, end=None, node="n1"):
    return Incident(node=node, category="gpu", start=start, end=end)


def upgraded(at, *nodes):
    return EventRecord(
        id=f"{at}", at=at, event=FleetUpgraded(nodes=nodes or ("n1",), criteria="learned")
    )


def stand(*records, findings=None, strength=ANY):
    def of(kind):
        return [record for record in records if isinstance(record, kind)]

    kinds = (of(Incident), of(Repair), of(EventRecord))
    return standing(of(Validation), findings or {}, *kinds, NOW, strength)


# --- one rule at a time --------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, 9.0])
@pytest.mark.parametrize(("kind", "why"), [(Incident, 'incident "gpu"'), (Repair, "repair")])
def test_a_node_in_an_incident_or_a_repair_is_out_of_service_despite_any_pass(kind, why, end):
    more = {"category": "gpu"} if kind is Incident else {}
    known = stand(verdict_of(1), kind(node="n1", start=3.0, end=end, **more), verdict_of(5))
    assert (known.judgement("n1"), known.down) == (DEFECTIVE, {"n1"})
    assert known.unfit == {"n1": f"its {why} is not over"}


@pytest.mark.parametrize("stretch", [incident(3.0, 5.0), Repair(node="n1", start=3.0, end=5.0)])
@pytest.mark.parametrize(("at", "counts"), [(2, False), (4, False), (5, False), (6, True)])
def test_only_a_pass_after_the_end_proves_a_node(stretch, at, counts):
    known = stand(stretch, verdict_of(at))
    assert known.judgement("n1") is (HEALTHY if counts else Judgement.UNKNOWN)
    assert not known.unfit


@pytest.mark.parametrize(
    "event",
    [
        NodeAdded(nodes=("n1",)),
        FleetUpgraded(nodes=("n1",), criteria="learned"),
        IncidentReported(nodes=("n1",), category="gpu"),
    ],
)
def test_a_node_is_not_proven_from_an_event_on_until_it_passes(event):
    told = EventRecord(id="1", at=4.0, event=event)
    assert stand(verdict_of(3), told).judgement("n1") is Judgement.UNKNOWN
    assert stand(verdict_of(3), told, verdict_of(5)).passed == {"n1": dict.fromkeys(BOTH, 5)}


@pytest.mark.parametrize("began", [2.0, 4.0])
@pytest.mark.parametrize("node", ["in an incident", "upgraded", "defective", "unanswered"])
def test_a_campaign_proves_nothing_against_events_after_it_began(node, began):
    """It may have measured the node before: it took hours, or was resumed after days."""
    happened = {
        "in an incident": incident(3.0, 3.0),
        "upgraded": upgraded(3.0),
        "defective": verdict_of(3, DEFECTIVE, campaign="bad"),
        "unanswered": verdict_of(3, UNKNOWN, ran=(), owes=("gemm",), campaign="lost"),
    }[node]
    known = stand(verdict_of(1), happened, verdict_of(5, began=began))
    assert (known.judgement("n1") is HEALTHY) is (began > 3.0)


def test_a_pass_from_the_future_counts_for_nothing_and_a_defect_from_there_does():
    assert stand(verdict_of(3), verdict_of(9)).passed == {"n1": dict.fromkeys(BOTH, 3)}
    assert stand(verdict_of(9)).judgement("n1") is Judgement.UNKNOWN
    assert stand(verdict_of(9)).early == {"n1"}
    assert "dated in the future" in stand(verdict_of(9)).reason("n1")
    assert stand(verdict_of(3), verdict_of(9)).reason("n1") == ""
    assert stand(verdict_of(3), verdict_of(9, DEFECTIVE)).judgement("n1") is DEFECTIVE


@pytest.mark.parametrize("goes_on", [incident(9.0), Repair(node="n1", start=9.0)])
def test_an_open_incident_or_repair_counts_even_if_dated_later(goes_on):
    assert stand(verdict_of(3), goes_on).judgement("n1") is DEFECTIVE
    over = replace(goes_on, end=10.0)
    assert stand(verdict_of(3), over).judgement("n1") is HEALTHY


def test_a_defective_node_has_to_pass_the_benchmark_that_found_its_defect():
    findings = {("bad", "n1"): {"gemm"}}
    bad = verdict_of(3, DEFECTIVE, campaign="bad")
    known = stand(verdict_of(2), bad, verdict_of(5, ran=("disk",)), findings=findings)
    assert known.unfit == {
        "n1": "it was defective in campaign bad (X) and has not passed gemm since"
    }
    again = stand(
        bad, verdict_of(5, ran=("disk",)), verdict_of(6, ran=("gemm",)), findings=findings
    )
    assert (again.unfit, again.passed) == ({}, {"n1": {"disk": 5, "gemm": 6}})


def test_a_pass_during_an_incident_disproves_no_defect():
    bad, findings = verdict_of(1, DEFECTIVE, campaign="bad"), {("bad", "n1"): {"gemm"}}
    during, after = verdict_of(3), verdict_of(6, ran=("disk",))
    known = stand(bad, incident(2.0, 5.0), during, after, findings=findings)
    assert known.judgement("n1") is DEFECTIVE


def test_an_incident_does_not_bring_back_a_disproved_defect():
    """The incident makes the node unproven; the old defect does not come back."""
    bad, findings = verdict_of(1, DEFECTIVE, campaign="bad"), {("bad", "n1"): {"gemm"}}
    known = stand(bad, verdict_of(2), incident(3.0, 4.0), findings=findings)
    assert (known.unfit, known.judgement("n1")) == ({}, Judgement.UNKNOWN)


def test_a_node_owes_an_unanswered_benchmark_until_it_passes_that_one():
    lost = verdict_of(3, UNKNOWN, ran=(), campaign="lost", owes=BOTH)
    known = stand(verdict_of(2), lost, verdict_of(4, ran=("pair",)), verdict_of(5, ran=("disk",)))
    assert known.judgement("n1") is UNKNOWN
    assert known.passed == {"n1": {"pair": 4, "disk": 5}}  # what was passed before says nothing now
    assert known.unknown_reason("n1") == (
        "it owes an answer: gemm since 1970-01-01 00:00 UTC (campaign lost: X)"
    )
    assert stand(lost, verdict_of(5, ran=("disk",)), verdict_of(6, ran=("gemm",))).owes == {}


def test_a_benchmark_that_turned_out_not_applicable_is_no_longer_owed():
    lost = verdict_of(3, UNKNOWN, campaign="lost", owes=BOTH)
    assert stand(lost, verdict_of(4, ran=("disk",), absent=("gemm",))).judgement("n1") is HEALTHY


def test_a_node_whose_results_had_no_criterion_owes_nothing_and_proves_nothing():
    in_vain = verdict_of(3, UNKNOWN)
    assert stand(in_vain).judgement("n1") is UNKNOWN
    assert stand(verdict_of(2), in_vain).judgement("n1") is HEALTHY


def test_an_answer_that_is_owed_from_the_future_is_owed_now():
    assert stand(verdict_of(3), verdict_of(9, UNKNOWN, owes=("disk",))).judgement("n1") is UNKNOWN


def test_a_disproved_defect_leaves_other_unanswered_benchmarks_owed():
    bad = verdict_of(3, DEFECTIVE, campaign="bad", owes=("disk",))
    known = stand(bad, verdict_of(4, ran=("gemm",)), findings={("bad", "n1"): {"gemm"}})
    assert (known.unfit, known.judgement("n1")) == ({}, UNKNOWN)


def test_a_report_of_an_incident_that_is_known_is_not_another_one():
    told = EventRecord(id="1", at=4.0, event=IncidentReported(nodes=("n1", "n2"), category="net"))
    imported = [incident(3.0, 5.0), incident(5.0, 6.0, "n2")]
    only = Incident(node="n2", category="net", start=4.0)
    assert reported_incidents([told, upgraded(2.0)], imported) == [only]


def test_a_reported_incident_lasts_until_the_node_is_healthy_or_repaired():
    told = [Incident(node="n1", category="net", start=4.0)]
    defect = verdict_of(5, DEFECTIVE)
    (only,) = defects_as_incidents([defect, verdict_of(6)], reported=told)
    assert (only.category, only.start, only.end) == ("net", 4.0, 6)
    assert defects_as_incidents([], [Repair(node="n1", start=5.0, end=7.0)], told)[0].end == 7.0


# --- against a naive judge -----------------------------------------------------------------

NODES = ("n1", "n2")
instants = st.integers(0, 10).map(float)
a_node = st.sampled_from(NODES)
ends = st.one_of(st.none(), st.integers(0, 4))
ran = st.sampled_from([(), ("disk",), ("gemm",), BOTH])


@st.composite
def histories(draw):
    """Up to eight records of every kind, around now; findings are a part of what was run. And how
    much each campaign asked for."""
    records, findings = [], {}
    levels = {f"c{number}": draw(st.integers(1, 3)) for number in range(8)}
    for number in range(draw(st.integers(0, 8))):
        at, node = draw(instants), draw(a_node)
        match draw(
            st.sampled_from(
                ["pass", "pass", "fail", "unknown", "unknown", "incident", "repair", "told"]
            )
        ):
            case "pass":
                judged = draw(st.sampled_from([HEALTHY, HEALTHY, HEALTHY, ABSENT]))
                more = {"ran": draw(ran), "absent": draw(ran), "campaign": f"c{number}"}
                more["began"] = draw(st.sampled_from([None, at, at - 1.0, at - 4.0]))
                records.append(verdict_of(at, judged, node=node, **more))
            case "unknown":
                owes, what = draw(ran), draw(ran)
                more = {"ran": what, "owes": owes, "campaign": f"c{number}"}
                judged = draw(st.sampled_from([UNKNOWN, UNKNOWN, DEFECTIVE]))
                records.append(verdict_of(at, judged, node=node, **more))
            case "fail":
                what = draw(ran)
                records.append(
                    verdict_of(at, DEFECTIVE, node=node, ran=what, campaign=f"c{number}")
                )
                if what and draw(st.booleans()):
                    findings[f"c{number}", node] = {what[0]}
            case "told":
                records.append(upgraded(at, *draw(st.sampled_from([("n1",), ("n2",), NODES]))))
            case stretch:
                lasted = draw(ends)
                end = None if lasted is None else at + lasted
                kind = {"incident": Incident, "repair": Repair}[stretch]
                more = {"category": "gpu"} if kind is Incident else {}
                records.append(kind(node=node, start=at, end=end, **more))
    return records, findings, levels


def strength_of(levels):
    return Strength(
        demands={
            campaign: {
                name: (
                    Demand(workload=Workload.make(name, "1", {"n": level}), stronger_with=("n",)),
                )
                for name in BOTH
            }
            for campaign, level in levels.items()
        }
    )


def may_go(node, records, findings, levels):
    """Check by the rules, one after the other and without any order."""
    mine = [record for record in records if is_about(record, node)]
    stretches = [
        (min(record.start, NOW), math.inf if record.end is None else record.end)
        for record in mine  # what goes on has begun, whatever its date
        if isinstance(record, Incident | Repair) and (record.start <= NOW or record.end is None)
    ]
    if any(end > NOW for _, end in stretches):
        return False
    results = [record for record in mine if isinstance(record, Validation)]
    fails = [result for result in results if result.judgement is DEFECTIVE]
    answers = [
        result
        for result in results
        if result.judgement in (HEALTHY, ABSENT)
        and result.at <= NOW
        and not any(start < result.at <= end for start, end in stretches)
    ]
    passes = [result for result in answers if result.judgement is HEALTHY]
    if any(is_owed(result, answers, levels) for result in results):
        return False
    shaken = [min(record.at, NOW) for record in mine if isinstance(record, EventRecord)]
    shaken += [min(fail.at, NOW) for fail in fails] + [end for _, end in stretches]
    proven = any(
        result.benchmarks and result.since > max(shaken, default=-math.inf) for result in passes
    )
    return proven and all(is_disproved(fail, passes, findings, levels) for fail in fails)


def is_owed(result, answers, levels):
    """Check whether anything that it left unanswered was neither passed later nor did not apply."""
    later = [answer for answer in answers if answer.since > min(result.at, NOW)]
    answered = {name for answer in later for name in answer.inapplicable}
    passes = [answer for answer in later if answer.judgement is HEALTHY]
    answered |= passed_by(passes, levels, result)
    return not answered >= set(result.owes)


def is_about(record, node):
    return node in (record.event.nodes if isinstance(record, EventRecord) else (record.node,))


def is_disproved(fail, passes, findings, levels):
    owed = findings.get((fail.campaign, fail.node)) or fail.benchmarks
    later = [result for result in passes if result.since > min(fail.at, NOW)]
    return passed_by(later, levels, fail) >= set(owed)


def passed_by(passes, levels, earlier):
    """Passes by workloads that asked for no less."""
    least = levels[earlier.campaign]
    return {
        name for result in passes if levels[result.campaign] >= least for name in result.benchmarks
    }


@pytest.mark.long
@settings(max_examples=100)
@given(histories())
def test_track_records_in_columns_agree_with_a_pass_over_all_entries(history):
    records, findings, levels = history

    def of(kind):
        return [record for record in records if isinstance(record, kind)]

    kinds = (of(Validation), findings, of(Incident), of(Repair), of(EventRecord))
    strength = strength_of(levels)
    found, naive = standing(*kinds, NOW, strength), naive_standing(*kinds, NOW, strength)
    assert (found, found.happened) == (naive, naive.happened)


@pytest.mark.long
@settings(max_examples=100)
@given(histories())
def test_a_gate_without_a_test_says_go_exactly_if_every_rule_allows_it(history):
    """Never with an open incident, an unproven repair, a pass that does not count, or a result
    from the future."""
    records, findings, levels = history
    known = stand(*records, findings=findings, strength=strength_of(levels))
    answer = GateResult(
        parts={},
        may_cross_parts=False,
        decision=None,
        judged={node: known.judgement(node) for node in NODES},
        links={},
        unfit=known.unfit,
        owing={},
        busy={},
        campaign=None,
        is_tested=False,
        doubt="",
        unknown_passes=False,
    ).answer
    assert (answer == "go") is all(may_go(node, records, findings, levels) for node in NODES)
    assert all(answer == "no-go" for node in NODES if node in known.unfit)


levels_of_campaigns = st.integers(1, 3)
some = st.sampled_from([("disk",), ("gemm",), BOTH])
tests_run = st.tuples(st.sampled_from([HEALTHY, DEFECTIVE]), some, levels_of_campaigns)


@settings(max_examples=100)
@given(st.lists(tests_run, max_size=6))
def test_a_node_is_out_until_each_defect_is_passed_at_least_as_strongly(tests):
    """The name of a defect is that of any benchmark that found one since."""
    levels = {f"c{number}": level for number, (*_, level) in enumerate(tests)}
    results = [
        verdict_of(float(number), judged, ran=what, campaign=f"c{number}")
        for number, (judged, what, _) in enumerate(tests)
    ]
    fails = [result for result in results if result.judgement is DEFECTIVE]
    passes = [result for result in results if result.judgement is HEALTHY]
    known = stand(*results, strength=strength_of(levels))
    wrong = [fail for fail in fails if not is_disproved(fail, passes, {}, levels)]
    if wrong:
        assert f"in campaign {wrong[-1].campaign} (X)" in known.unfit["n1"]
    else:
        assert not known.unfit


def test_a_path_is_bad_until_its_nodes_pass_together_in_a_campaign_that_began_since():
    pair = ("n1", "n2")
    path = PartVerdict(
        nodes=pair, benchmarks=BOTH[:1], subject="path", judgement=DEFECTIVE, code="X", reason=""
    )
    found = [verdict_of(10.0, node=node, campaign="c1") for node in pair]
    resumed = [verdict_of(30.0, node=node, campaign="c2", began=5.0) for node in pair]
    later = [verdict_of(30.0, node=node, campaign="c3", began=20.0) for node in pair]
    assert list(bad_links({"c1": [path]}, [*found, *resumed])) == [pair]
    assert bad_links({"c1": [path]}, [*found, *later]) == {}
