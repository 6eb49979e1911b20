"""GPUs of several models in one fleet: each is compared with those of its model, and one that has
none like it is unknown, never defective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fleets import entry, small_plan

from anubis.core.campaign.planning import steps
from anubis.core.judge.comparison import criterion_changes, renewal
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import latest_executions, split_model, units
from anubis.core.records import (
    MODELS,
    Assessment,
    Ended,
    Execution,
    Judgement,
    Plan,
    Policy,
    Readings,
    Result,
    Series,
)
from anubis.report.campaign_remarks import remarks_on

H, D, U = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
NEW, OLD = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
RATES = {NEW: 100.0, OLD: 20.0, f"{NEW} MIG 1g.10gb": 12.0, "": 100.0}
GPUS = 8
Fleet = list[list[str]]  # the model of each GPU of each node


def even(number: int, model: str = NEW) -> Fleet:
    return [[model] * GPUS for _ in range(number)]


def exchange(fleet: Fleet, node: int, gpu: int, model: str = OLD) -> Fleet:
    exchanged = [list(models) for models in fleet]
    exchanged[node][gpu] = model
    return exchanged


def campaign(
    fleet: Fleet, losses: Mapping[tuple[int, int], float] | None = None, seed: int = 0
) -> tuple[Plan, list[Execution]]:
    """A campaign on such nodes; `losses` by node and GPU."""
    plan, rng = small_plan(len(fleet), [entry("compute")]), np.random.default_rng(seed)
    done = []
    for step in steps(plan, 0, {node.name for node in plan.nodes}):
        number = int(step.participants[0][1:])
        series = Readings.pack(
            Series(
                metric="rate",
                device=f"cuda:{gpu}",
                samples=RATES[model]
                * (1 - (losses or {}).get((number, gpu), 0.0))
                * rng.normal(1, 0.003)
                * rng.normal(1, 0.002, 8),
            )
            for gpu, model in enumerate(fleet[number])
        )
        named = {f"cuda:{gpu}": model for gpu, model in enumerate(fleet[number]) if model}
        result = Result(series=series, environment={MODELS: named} if named else {})
        done.append(
            Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)
        )
    return plan, latest_executions(done)


def learn(plan, done, **more):
    return learn_criteria(
        units(done, plan), Policy(), suite="s", anubis="0", created_at="now", **more
    )


def judge(plan, done, criteria=None) -> Assessment:
    return assess(units(done, plan), done, plan, criteria or learn(plan, done), {})


def judgements(assessment: Assessment) -> list[Judgement]:
    return [node.judgement for node in assessment.nodes]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("gpu", [0, 5])
def test_a_gpu_without_another_of_its_model_is_unknown_and_its_siblings_are_well(number, gpu):
    assessment = judge(*campaign(exchange(even(number), 0, gpu)))
    assert judgements(assessment) == [U] + [H] * (number - 1)
    of_units = {(v.participants, v.device): v for v in assessment.verdicts()}
    odd = of_units.pop((("n0",), f"cuda:{gpu}"))
    assert (odd.judgement, odd.code) == (U, "CRITERION-REFUSED")
    assert {v.judgement for v in of_units.values()} == {H}
    assert "on cuda of model A100-SXM4-40GB: learned from 1 of the 3" in assessment.nodes[0].reason


@pytest.mark.parametrize("number", [2, 3, 4, 8])
def test_nodes_of_two_models_under_one_sku_are_compared_with_those_of_their_model(number):
    fleet = even(number) + even(number, OLD)
    assert set(judgements(judge(*campaign(fleet)))) == {H}
    slow = judge(*campaign(fleet, {(number, 2): 0.2}))
    assert judgements(slow) == [H] * number + [D] + [H] * (number - 1)
    worst = next(slow.verdicts())
    assert (worst.participants, worst.device) == ((f"n{number}",), "cuda:2")
    assert "20% slower than" in worst.reason
    assert worst.reason.endswith(" instead of 20 GB/s")


def test_a_campaign_remarks_nodes_of_one_sku_whose_gpus_are_of_several_models():
    plan, done = campaign(exchange(even(3) + even(2, OLD), 0, 1))
    policy = SimpleNamespace(stop_early=False)
    view = SimpleNamespace(
        campaign=SimpleNamespace(policy=policy, plan=plan),
        executions=done,
        assessment=judge(plan, done),
        is_by_itself=False,
    )
    remarks = [sentence.partition(":")[0] for sentence in remarks_on(view)]
    h100, a100 = "H100 80GB HBM3", "A100-SXM4-40GB"
    assert remarks == [
        f"GPUs of n[3-4] are {a100}, and of other nodes of sku h100 {h100}",
        f"GPUs of n0 are {a100} and {h100}, and of other nodes of sku h100 {h100}",
    ]
    view.executions = campaign(even(3))[1]
    assert not [*remarks_on(view)]


def test_an_odd_gpu_at_another_place_of_each_node_hides_no_slow_one():
    fleet = even(8)
    for node in range(8):
        fleet = exchange(fleet, node, node)
    assert set(judgements(judge(*campaign(fleet)))) == {H}
    slow = judge(*campaign(fleet, {(3, 3): 0.1, (5, 0): 0.1}))
    assert judgements(slow) == [H, H, H, D, H, D, H, H]


def test_all_gpus_of_a_node_and_pairs_of_them_are_of_the_models_that_they_have():
    plan, done = campaign(exchange(even(2), 0, 1))
    names = ("cuda", "cuda:0-cuda:1", "cuda:2-cuda:3", "cpu:0-cuda:1", "node", "nvme0n1")
    series = Readings.pack(Series(metric="rate", device=n, samples=np.ones(8)) for n in names)
    runs = [replace(run, result=replace(run.result, series=series)) for run in done]
    kinds = {
        (unit.participants[0], unit.device): split_model(unit.key.device_kind)[1]
        for alike in units(runs, plan)
        for unit in alike
    }
    h100, a100 = "H100 80GB HBM3", "A100-SXM4-40GB"
    both = f"{a100} and {h100}"
    assert [kinds["n0", name] for name in names] == [both, both, h100, a100, "", ""]
    assert [kinds["n1", name] for name in names] == [h100] * 4 + ["", ""]


def test_a_slice_of_a_gpu_is_no_slow_gpu():
    assessment = judge(*campaign(exchange(even(8), 2, 1, f"{NEW} MIG 1g.10gb")))
    assert judgements(assessment) == [H, H, U, H, H, H, H, H]


def test_criteria_judge_no_gpu_of_another_model_and_name_both():
    criteria = learn(*campaign(even(8)))
    again = judge(*campaign(exchange(even(3), 1, 4), seed=1), criteria)
    assert judgements(again) == [H, U, H]
    node = again.nodes[1]
    assert node.code == "NO-CRITERION"
    assert 'for device "cuda of model H100 80GB HBM3"' in node.reason
    assert 'this is "cuda of model A100-SXM4-40GB"' in node.reason


def test_criteria_without_a_model_are_of_the_model_that_most_gpus_have():
    old = learn(*campaign(even(8, "")))
    assert {c.key.device_kind for of_sku in old for c in of_sku.criteria} == {"cuda"}
    assert judgements(judge(*campaign(exchange(even(2), 1, 4), seed=1), old)) == [H, U]
    slow = judge(*campaign(exchange(even(2), 1, 4), {(0, 0): 0.2}, seed=1), old)
    assert judgements(slow) == [D, U]
    kept = learn(*campaign(exchange(even(2), 1, 4), seed=1), learned=old)
    assert "cuda" in {c.key.device_kind for of_sku in kept for c in of_sku.criteria}


def test_criteria_become_those_of_a_model_without_having_moved():
    plain, named = (learn(*campaign(even(8, model))) for model in ("", NEW))
    assert criterion_changes(plain, named) == ()
    renewed = renewal(plain, named)
    assert (renewed.unmeasured, renewed.changes) == (0, ())
    mixed = learn(*campaign(even(8) + even(8, OLD)))
    assert {change.kind for change in criterion_changes(plain, mixed)} == {
        "appeared",
        "disappeared",
    }


def test_a_node_that_names_no_model_has_the_one_of_its_fleet():
    fleet = even(7) + even(1, "")
    assert judgements(judge(*campaign(fleet))) == [H] * 8
    assert judgements(judge(*campaign(fleet, {(7, 1): 0.2}))) == [H] * 7 + [D]
    criteria = learn(*campaign(even(8)))
    assert judgements(judge(*campaign(even(2, ""), {(0, 1): 0.2}, seed=1), criteria)) == [D, H]


def test_a_driver_that_leaves_the_maker_out_makes_no_other_model():
    plan, done = campaign(even(4))
    names = {f"cuda:{gpu}": NEW.removeprefix("NVIDIA ") for gpu in range(GPUS)}
    older = replace(done[0], result=replace(done[0].result, environment={MODELS: names}))
    (alike,) = units([older, *done[1:]], plan)
    assert len(alike) == 4 * GPUS


def test_models_that_a_stranger_writes_break_nothing():
    plan, done = campaign(even(3, ""))
    for foreign in ([1, 2], "H100", {"cuda:0": None}, {"cuda:0": "x" * 10_000, 3: {}}):
        result = replace(done[0].result, environment={MODELS: foreign})
        units([replace(done[0], result=result), *done[1:]], plan)
