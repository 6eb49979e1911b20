"""From a history on disk to decisions; each expectation follows from the few rows written here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anubis.core.campaign import planning
from anubis.core.history.events import EventRecord, IncidentReported, JobAllocated, Tick
from anubis.core.history.status import Incident, Instants, Repair, Watch
from anubis.core.judge.faulty_paths import faulty_paths
from anubis.core.records import (
    Assessment,
    BenchmarkSpec,
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    Needs,
    Node,
    NodeVerdict,
    Plan,
    Policy,
    SelectionPolicy,
    Suite,
    SuiteEntry,
    Verdict,
)
from anubis.core.select.decision import Action
from anubis.core.select.selection import Budget
from anubis.models.risk import risk_files
from anubis.models.risk.cox import Cox
from anubis.models.risk.risk_learning import uptimes_of
from anubis.operations.caller import Caller
from anubis.operations.requests import RiskRequest
from anubis.operations.risk import foresee, risk_at_a_glance
from anubis.operations.selector import Offer, Selector, base_rate, offers, read_past, risks
from anubis.store.history import History
from anubis.text import places

DAY_S = 86_400.0
NOW = 400 * DAY_S
NODES = ("n1", "n2", "n3")
RATE = MetricSpec(name="rate", unit="1/s", direction="higher")


def spec(name, duration_s, scope="node"):
    return BenchmarkSpec(
        name=name,
        version="1",
        summary="",
        stresses="",
        reveals="",
        level="micro",
        scope=scope,
        duration_s=duration_s,
        metrics=(RATE,),
        needs=Needs(min_nodes=1 if scope == "node" else 2),
    )


SPECS = {name: spec(name, seconds) for name, seconds in {"gemm": 10.0, "disk": 40.0}.items()}
SPECS["ring"] = spec("ring", 5.0, "pair")
MENU = (
    Offer(benchmark="gemm", duration_s=10, alone=True),
    Offer(benchmark="disk", duration_s=40, alone=True),
)


def plan(*entries, nodes=NODES):
    suite = Suite(name="quick", summary="", benchmarks=entries)
    return planning.plan(suite, [Node(name=name, sku="x") for name in nodes], SPECS)


BOTH = plan(SuiteEntry(benchmark="gemm"), SuiteEntry(benchmark="disk"))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History.open(str(tmp_path / "history.sqlite")) as opened:
        yield opened


def carry_out(
    history: History,
    name: str,
    day: float,
    bad=(),
    run: Plan = BOTH,
    took_s=1.0,
    slow_together=(),
):
    """A campaign that ended on that day; `bad` are pairs of node and benchmark."""
    history.campaigns.begin(
        Campaign(
            id=name,
            kind=CampaignKind.VALIDATE,
            plan=run,
            policy=Policy(),
            executor="local",
            created_at=day * DAY_S,
        )
    )
    every = [step for phase in range(len(run.phases)) for step in planning.steps(run, phase, NODES)]
    history.executions.record(
        name,
        [
            Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, duration_s=took_s)
            for step in every
        ],
    )
    verdict = Verdict(
        participants=(), benchmark="", judgement=Judgement.DEFECTIVE, code="", reason="slow"
    )
    single = [replace(verdict, participants=(node,), benchmark=what) for node, what in bad]
    pairs = [replace(verdict, participants=pair, benchmark="gemm") for pair in slow_together]
    found = [*single, *pairs]
    worst = dict(bad)
    nodes = tuple(
        NodeVerdict(
            node=node,
            judgement=Judgement.DEFECTIVE if node in worst else Judgement.HEALTHY,
            code=f"{worst[node].upper()}.RATE" if node in worst else "OK",
            reason="",
        )
        for node in NODES
    )
    assessment = Assessment(alone=tuple(found), nodes=nodes, parts=faulty_paths(found, nodes))
    history.assessments.conclude(name, assessment, (), finished_at=day * DAY_S)


def incident(node, day, category, hours=1.0):
    start = day * DAY_S
    return Incident(node=node, category=category, start=start, end=start + hours * 3600)


def taught(history: History) -> None:
    """Six defects each of the GPU and of the disk were found, each by the right benchmark."""
    for day in range(100, 160, 10):
        carry_out(history, f"c{day}", day, bad=[("n1", "gemm"), ("n2", "disk")])
        carry_out(history, f"mended{day}", day + 5)
        history.only().incidents.add([incident("n1", day, "gpu"), incident("n2", day, "storage")])


def selector(history: History, **policy) -> Selector:
    return Selector(read_past(history.only(), NOW), SelectionPolicy(**policy))


def job(*nodes, hours=24.0):
    return JobAllocated(nodes=nodes or NODES, duration_s=hours * 3600)


def run(decision):
    return {test.benchmark: test.nodes for test in decision.tests}


def test_a_fleet_that_was_validated_an_hour_ago_may_start_at_once(history):
    taught(history)
    carry_out(history, "lately", (NOW - 3600) / DAY_S)
    decision = selector(history).weigh(job(), MENU, at=NOW)
    assert decision.action is Action.SKIP
    assert decision.covered_before == pytest.approx(2 ** (-1 / 168), abs=1e-3)


def test_after_incidents_a_node_gets_the_tests_that_found_their_category(history):
    taught(history)
    carry_out(history, "lately", (NOW - 3600) / DAY_S)
    day = NOW / DAY_S
    history.only().incidents.add(
        incident("n3", day - hours / 24, "gpu", 0.1) for hours in (0.5, 0.4, 0.3)
    )
    decision = selector(history, p0=0.3).weigh(job(), MENU, at=NOW)
    assert run(decision) == {"gemm": ("n3",)}
    assert "a defect is presumed on n3: no benchmark was passed there since" in decision.assumed[-1]
    reported = IncidentReported(nodes=("n3",), category="storage")
    assert next(iter(run(selector(history).weigh(reported, MENU, at=NOW)))) == "disk"


def test_a_sweep_goes_to_the_node_that_was_not_measured_since_its_incident(history):
    taught(history)
    carry_out(history, "lately", NOW / DAY_S - 1)
    history.only().incidents.add([incident("n2", NOW / DAY_S - 0.5, "power")])
    idle, budget = Tick(nodes=NODES), Budget(node_seconds=50)
    sweep = selector(history, p0=0.01).weigh(idle, MENU, at=NOW, budget=budget)
    assert run(sweep) == {"gemm": ("n2",), "disk": ("n2",)}


def test_measurements_before_an_incident_or_a_defect_no_longer_count(history):
    carry_out(history, "c1", 390)
    carry_out(history, "c2", 391, bad=[("n2", "gemm")])
    history.only().incidents.add([incident("n3", 392, "gpu")])
    standing = read_past(history.only(), NOW).standing
    assert standing.passed == {"n1": dict.fromkeys(["gemm", "disk"], 391 * DAY_S)}
    assert standing.unfit == {
        "n2": "it was defective in campaign c2 (GEMM.RATE) and has not passed gemm since"
    }
    carry_out(history, "disk only", 392.5, run=plan(SuiteEntry(benchmark="disk")))
    assert list(read_past(history.only(), NOW).standing.unfit) == ["n2"]
    carry_out(history, "c3", 393)
    after = read_past(history.only(), NOW).standing
    assert set(after.passed) == set(NODES)
    assert not after.unfit


def test_a_node_in_an_incident_or_a_repair_is_neither_tested_nor_counted(history):
    carry_out(history, "c1", 390)
    history.only().incidents.add([Incident(node="n1", category="gpu", start=391 * DAY_S)])
    history.only().repairs.add([Repair(node="n2", start=391 * DAY_S, end=NOW + DAY_S)])
    decision = selector(history).weigh(job(hours=2000), MENU, at=NOW)
    assert (decision.nodes, set(run(decision).values())) == (("n3",), {("n3",)})
    assert "not tested, because they are in an incident or a repair: n[1-2]" in decision.assumed
    nobody = selector(history).weigh(Tick(nodes=("n1", "n2")), MENU, at=NOW)
    assert (nobody.action, nobody.p) == (Action.SKIP, 0)


def test_results_dated_in_the_future_do_not_count_and_are_reported(history):
    carry_out(history, "c1", NOW / DAY_S + 1, slow_together=[("n1", "n2")])
    decision = selector(history).weigh(job(), MENU, at=NOW)
    assert (decision.p, decision.covered_before) == (1, pytest.approx(0))
    (told,) = [each for each in decision.assumed if "dated in the future" in each]
    assert told.startswith("a defect is presumed on n[1-3]: passes dated in the future")
    assert not read_past(history.only(), NOW).links


def test_a_reported_event_is_known_to_the_next_decision(history):
    taught(history)
    carry_out(history, "lately", (NOW - 7200) / DAY_S)
    assert selector(history).weigh(job(), MENU, at=NOW).action is Action.SKIP
    hour_ago = IncidentReported(nodes=("n3",), category="storage")
    for _ in range(2):
        history.only().event_records.add(EventRecord(id="once", at=NOW - 3600, event=hour_ago))
    decision = selector(history).weigh(job(), MENU, at=NOW)
    assert set(run(decision).values()) == {("n3",)}
    assert read_past(history.only(), NOW).categories["n3"] == {"storage": 1}
    status = history.only().experience.logbook().statuses(Instants.now(["n3"], NOW), ["incidents"])
    assert status.values.tolist() == [[1.0]]
    carry_out(history, "since", (NOW - 60) / DAY_S)
    assert selector(history).weigh(job(), MENU, at=NOW).action is Action.SKIP


def test_a_pass_in_another_suite_counts_in_this_one(history):
    """Six of twelve defects are found by disk alone, which this menu does not have."""
    taught(history)
    carry_out(history, "lately", (NOW - 3600) / DAY_S)
    light = MENU[:1]
    decision = selector(history).weigh(job(), light, at=NOW)
    assert decision.covered_before == pytest.approx(2 ** (-1 / 168), abs=1e-3)
    carry_out(history, "disk is bad", (NOW - 1800) / DAY_S, bad=[("n3", "disk")])
    carry_out(history, "no disk", (NOW - 60) / DAY_S, run=plan(SuiteEntry(benchmark="gemm")))
    history.only().event_records.add(
        EventRecord(id="1", at=NOW - 30, event=IncidentReported(nodes=("n3",), category="gpu"))
    )
    again = selector(history, p0=0).weigh(job("n3", hours=2000), light, at=NOW)
    assert set(run(again)) == {"gemm"}
    assert {gap.finders for gap in again.gaps} >= {("disk",)}


def test_silence_is_stated_and_is_no_proof_of_health(history):
    """The model takes a node for the safer the longer its last incident is ago."""

    class Forgetful:
        covariates, assumed = ("since_incident_h",), ""

        def chances_within(self, statuses, hours):
            return 1 / (1 + statuses.values[:, 0])

    def at(day, **policy):
        past = read_past(history.only(), day * DAY_S, Forgetful())
        decider = Selector(past, SelectionPolicy(**policy))
        return decider.weigh(job("n1"), MENU, at=day * DAY_S)

    carry_out(history, "c1", 301)
    assert "no incident was ever reported, and silence is not taken for health" in at(302).assumed
    history.only().incidents.add([incident("n1", 300, "gpu")])
    assert at(330).p == pytest.approx(1 / (1 + 30 * 24))
    assert not any("silence" in each for each in at(330).assumed)
    assert at(400).p == pytest.approx(at(330).p)
    assert (
        "no incident was reported for 100 days, and silence beyond 30 days is not taken for health"
        in at(400).assumed
    )
    assert at(400, silence_d=365).p == pytest.approx(1 / (1 + 100 * 24))


def test_a_chance_is_the_same_for_all_that_ask(history, tmp_path, monkeypatch):
    """A gate, a keeper, the page and `risk show`, soon after the last incident and long after."""
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    part, rng = history.only(), np.random.default_rng(5)
    days = {node: rng.uniform(0, 300, 6 * place) for place, node in enumerate(NODES, 1)}
    part.incidents.add([incident(node, day, "gpu") for node in NODES for day in days[node]])
    part.watches.add([Watch(node=node, since=0.0) for node in NODES])
    learned = uptimes_of(part.experience.logbook(), 301 * DAY_S)
    file = places.risk_file(part.cluster)
    risk_files.save(Cox.fit(learned, 0), risk_files.provenance(learned, 0), file)
    for day in (310, 390):
        carry_out(history, f"all well on day {day}", day - 0.01)
        at = day * DAY_S
        caller = Caller(history_url=str(tmp_path / "history.sqlite"), clock=lambda at=at: at)
        past = read_past(part, at, risk_files.load_trained(file))
        gate = Selector(past, SelectionPolicy()).weigh(Tick(nodes=NODES), MENU, at=at)
        (glance,) = risk_at_a_glance(caller=caller)
        shown = foresee(RiskRequest(NODES), caller)
        expected = pytest.approx({driver.node: driver.p for driver in gate.drivers}, rel=1e-9)
        assert len({driver.p for driver in gate.drivers}) == len(NODES)
        assert risks(past, NODES, at, SelectionPolicy()) == expected
        assert {risky.node: risky.chance for risky in glance.nodes} == expected
        day_ahead = shown.forecast.chances_within(np.array([24.0]))[:, 0]
        assert dict(zip(shown.nodes, day_ahead.tolist(), strict=True)) == expected


def test_a_link_between_good_nodes_is_bad_until_they_pass_together(history):
    carry_out(history, "before", 389)
    blamed = [("n1", "n3"), ("n2", "n3")]
    carry_out(history, "c1", 390, bad=[("n3", "gemm")], slow_together=[("n1", "n2"), *blamed])
    past = read_past(history.only(), NOW)
    bad = {("n1", "n2"): "gemm was defective in campaign c1"}
    among = [past.links_among(nodes) for nodes in (NODES, ("n2", "n1"), ("n1", "n3"))]
    assert among == [bad, bad, {}]
    carry_out(history, "disk only", 391, run=plan(SuiteEntry(benchmark="disk")))
    assert read_past(history.only(), NOW).links == bad
    carry_out(history, "still", 392, slow_together=[("n2", "n1")])
    still = {("n1", "n2"): "gemm was defective in campaign still"}
    assert read_past(history.only(), NOW).links == still
    carry_out(history, "mended", 393)
    assert not read_past(history.only(), NOW).links


def test_findings_older_than_a_year_teach_nothing(history):
    carry_out(history, "long ago", 34, bad=[("n1", "gemm")])
    assert not read_past(history.only(), NOW).defects
    carry_out(history, "a year ago", 36, bad=[("n1", "gemm")])
    assert len(read_past(history.only(), NOW).defects) == 1


@pytest.mark.long
def test_incidents_after_the_asked_time_are_unknown(history):
    carry_out(history, "c1", 390)
    history.only().incidents.add([incident("n1", 395, "gpu"), incident("n1", 401, "gpu")])
    assert read_past(history.only(), NOW).categories == {"n1": {"gpu": 1}}
    assert read_past(history.only(), 394 * DAY_S).categories == {}


def test_the_base_rate_is_incidents_per_hour_in_service_beside_one_in_90_days(history):
    assert base_rate(history.only().experience.logbook(), NOW).per_h == pytest.approx(1 / (90 * 24))
    history.only().watches.add(Watch(node=node, since=0.0) for node in NODES)
    assert base_rate(history.only().experience.logbook(), NOW).per_h == pytest.approx(
        1 / ((3 * 400 + 90) * 24)
    )
    history.only().incidents.add(incident("n1", day, "gpu", 24) for day in (100, 200))
    rate = base_rate(history.only().experience.logbook(), NOW)
    assert rate.per_h == pytest.approx((2 + 1) / ((3 * 400 - 2 + 90) * 24))
    assert "one incident in 429 days" in rate.assumed
    carry_out(history, "c1", 300)
    known = base_rate(
        history.only().experience.logbook(), (200 + 30) * DAY_S
    )  # then it fell silent
    decision = selector(history).weigh(job("n1"), MENU, at=NOW)
    assert decision.p == pytest.approx(1 - np.exp(-24 * known.per_h))
    assert decision.assumed[0] == known.assumed


def test_a_benchmark_takes_its_measured_time_or_else_its_declared_one(history):
    entries = (
        SuiteEntry(benchmark="gemm", repeats=3),
        SuiteEntry(benchmark="disk", duration_s=7.0),
        SuiteEntry(benchmark="ring", groups="pairs", rounds=2),
    )
    carry_out(history, "c1", 390, run=plan(SuiteEntry(benchmark="gemm")), took_s=20.0)
    offered = offers(plan(*entries), read_past(history.only(), NOW).measured_s)
    assert {each.benchmark: (each.duration_s, each.alone) for each in offered} == {
        "gemm": (60.0, True),
        "disk": (7.0, True),
        "ring": (10.0, False),
    }


def test_benchmarks_of_several_nodes_are_left_out_for_single_nodes(history):
    ring = (*MENU, Offer(benchmark="ring", duration_s=1, alone=False))
    risky = job(hours=2000)
    apart = selector(history).weigh(risky, ring, at=NOW)
    assert set(run(apart)) == {"gemm", "disk"}
    (why,) = [sentence for sentence in apart.assumed if sentence.startswith("left out")]
    assert "because fewer than 2 proven nodes could be their partners: ring;" in why
    proven = selector(history).weigh(risky, ring, at=NOW, partners=("n8", "n9"))
    assert set(run(proven)) == {"gemm", "disk", "ring"}
    assert (proven.partners, apart.partners) == (("n8", "n9"), ())
    (met,) = [test for test in proven.tests if test.benchmark == "ring"]
    assert proven.node_seconds == 3 * (10 + 40 + 2 * met.duration_s)  # a partner is busy as well
    together = selector(history).weigh(risky, ring, at=NOW, together=True)
    assert set(run(together)) == {"gemm", "disk", "ring"}


def test_a_trained_model_is_asked_instead_of_the_base_rate(history):
    class Even:
        covariates, assumed = ("incidents",), ""

        def chances_within(self, statuses, hours):
            return statuses.values[:, 0] * hours / 1000

    carry_out(history, "c1", 390)
    history.only().incidents.add([incident("n1", 300, "gpu"), incident("n1", 310, "gpu")])
    past = read_past(history.only(), NOW, Even())
    decision = Selector(past, SelectionPolicy()).weigh(job("n1"), MENU, at=NOW)
    assert decision.p == pytest.approx(2 * 24 / 1000)
    assert not any("base rate" in each for each in decision.assumed)


def test_an_unknown_node_gets_every_test(history):
    decision = selector(history).weigh(job("stranger"), MENU, at=NOW)
    assert set(run(decision)) == {"gemm", "disk"}
    assert decision.p == 1
    assert len(decision.assumed) == 4
