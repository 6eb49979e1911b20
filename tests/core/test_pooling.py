"""Several campaigns as one, against one campaign that ran all of their steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.errors import CriteriaError
from anubis.core.judge.pooling import CampaignEvidence, join
from anubis.core.judge.units import units
from anubis.core.records import (
    BenchmarkSpec,
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    Node,
    Phase,
    Plan,
    PlannedEntry,
    Policy,
    Readings,
    Result,
    Series,
    Step,
    Workload,
)
from anubis.operations.validator import judge

RATE = MetricSpec(name="rate", unit="GB/s", direction="higher")
NAMES = [f"n{i}" for i in range(5)]
Runs = list[tuple[str, str, float | Ended]]  # node, program, what came of it


def spec(name: str, *metrics: MetricSpec) -> BenchmarkSpec:
    return BenchmarkSpec(
        name=name, version="1", summary="", stresses="", reveals="", level="micro", scope="node",
        duration_s=1.0, metrics=metrics or (RATE,),
    )  # fmt: skip


def workload(name: str) -> Workload:
    return Workload.make(name, "1", {})


def entry(name: str) -> PlannedEntry:
    return PlannedEntry(
        workload=workload(name), scope="node", exclusive=True, repeats=1, timeout_s=1.0,
        duration_s=1.0, groups="all", rounds=None, min_nodes=1,
    )  # fmt: skip


def evidence(runs: Runs, number: int = 0, **changes: object) -> CampaignEvidence:
    programs = dict.fromkeys(program for _, program, _ in runs)
    nodes = dict.fromkeys(node for node, _, _ in runs)
    plan = Plan(
        suite="s",
        nodes=tuple(Node(name=name, sku="x") for name in nodes),
        phases=(Phase(name="alone", entries=tuple(map(entry, programs))),),
        specs=tuple(map(spec, programs)),
    )
    campaign = Campaign(
        id=f"c{number}", kind=CampaignKind.ACCEPT, plan=replace(plan, **changes), policy=Policy(),
        executor="", created_at=100.0 + number,
    )  # fmt: skip
    repeats = [[earlier[:2] for earlier in runs[:i]].count(run[:2]) for i, run in enumerate(runs)]
    executions = [executed(run, repeat) for run, repeat in zip(runs, repeats, strict=True)]
    lost = {node: "gone" for node, _, outcome in runs if outcome is Ended.LOST}
    return CampaignEvidence(campaign=campaign, executions=executions, lost=lost)


def executed(run: tuple[str, str, float | Ended], number: int) -> Execution:
    node, program, outcome = run
    step = Step(
        id=f"0.0.{number:03}/{program}/{node}", workload=workload(program), participants=(node,),
        phase=0, repeat=number, timeout_s=1.0, exclusive=True,
    )  # fmt: skip
    if isinstance(outcome, Ended):
        return Execution(step=step, attempt=1, ended=outcome, final=True, reason="it is said")
    series = Series(metric="rate", device="cuda:0", samples=np.array([outcome]))
    result = Result(series=Readings.pack([series]))
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def judged(parts: list[CampaignEvidence]) -> dict[str, tuple[Judgement, str]]:
    joined = join(parts)
    assessment, _ = judge(joined.campaign, joined.executions, joined.lost, 0.0)
    return {node.node: (node.judgement, node.code) for node in assessment.nodes}


def judgements(parts: list[CampaignEvidence]) -> dict[str, Judgement]:
    return {node: judgement for node, (judgement, _) in judged(parts).items()}


outcomes = st.one_of(
    st.sampled_from([100.0, 101.0, 60.0]), st.sampled_from([Ended.FAILED, Ended.TIMED_OUT])
)
some_runs = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["disk", "gemm"]), outcomes),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15)
@given(st.lists(some_runs, min_size=2, max_size=4))
def test_several_campaigns_are_judged_as_one_with_all_their_steps(campaigns):
    parts = [evidence(runs, i) for i, runs in enumerate(campaigns)]
    whole = evidence([run for runs in campaigns for run in runs])
    plan = join(parts).campaign.plan
    whole = replace(whole, campaign=replace(whole.campaign, plan=plan))
    assert judgements(parts) == judgements([whole])


@settings(max_examples=15)
@given(st.lists(some_runs, min_size=1, max_size=3))
def test_a_device_is_one_unit_in_all_campaigns_with_the_runs_of_each_in_turn(campaigns):
    joined = join([evidence(runs, i) for i, runs in enumerate(campaigns)])
    expected: dict[tuple[str, str], list[float]] = {}
    for runs in campaigns:
        for node, program, outcome in runs:
            if isinstance(outcome, float):
                expected.setdefault((node, program), []).append(outcome)
    found = {
        (*unit.participants, unit.key.workload.benchmark): unit.samples.tolist()
        for alike in units(joined.executions, joined.campaign.plan)
        for unit in alike
    }
    assert found == expected


def well(*programs: str) -> Runs:
    return [(node, program, 100.0) for program in programs or ("gemm",) for node in NAMES]


@pytest.mark.parametrize("untried", [Ended.LOST, Ended.NOT_RUN, Ended.SKIPPED])
def test_a_step_that_could_not_run_once_and_was_measured_later_counts_as_measured(untried):
    first = [("n0", "gemm", untried), *well()[1:]]
    assert judged([evidence(first)])["n0"][0] is Judgement.UNKNOWN
    assert set(judged([evidence(first, 0), evidence(well(), 1)]).values()) == {
        (Judgement.HEALTHY, "OK")
    }
    if untried is not Ended.SKIPPED:  # which says nothing at all
        later = judged([evidence(well(), 0), evidence(first, 1)])
        assert later["n0"][0] is Judgement.UNKNOWN


def test_a_crash_counts_even_if_the_node_does_well_later():
    crashed = [("n0", "gemm", Ended.FAILED), *well()[1:]]
    joined = judged([evidence(crashed, 0), evidence(well(), 1)])
    assert joined["n0"] == (Judgement.UNKNOWN, "FAILED-ONCE")
    twice = judged([evidence(crashed, 0), evidence(crashed, 1)])
    assert twice["n0"] == (Judgement.DEFECTIVE, "GEMM.CRASH")


def test_steps_that_only_an_earlier_campaign_ran_are_judged_too():
    slow = [("n0", "disk", 50.0), *well("disk")[1:]]
    joined = judged([evidence(slow, 0), evidence(well(), 1)])
    assert joined["n0"] == (Judgement.DEFECTIVE, "DISK.RATE")


def test_measurements_of_a_node_from_another_sku_are_left_out():
    other = tuple(Node(name=name, sku="y" if name < "n2" else "x") for name in NAMES)
    joined = join([evidence(well(), 0, nodes=other), evidence(well(), 1)])
    (alike,) = units(joined.executions, joined.campaign.plan)
    assert alike.key.sku == "x"
    assert [len(unit.repeats) for unit in alike] == [2, 2, 2, 1, 1]
    assert joined.changed == ("n0", "n1")


def test_a_metric_that_changed_its_unit_in_secret_is_not_pooled():
    changed = (spec("gemm", replace(RATE, unit="MB/s")),)
    with pytest.raises(CriteriaError, match="without a new version"):
        join([evidence(well(), 0), evidence(well(), 1, specs=changed)])
