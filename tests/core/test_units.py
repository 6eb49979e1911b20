"""Units in columns, against a dictionary of lists that gathers them one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.errors import CriteriaError
from anubis.core.judge.units import Units, relevant_units, units
from anubis.core.records import (
    BenchmarkSpec,
    CriterionKey,
    Ended,
    Execution,
    MetricSpec,
    Node,
    Plan,
    Readings,
    Result,
    Series,
    Step,
    Workload,
)

RATE = MetricSpec(name="rate", unit="GB/s", direction="higher")
LATENCY = MetricSpec(name="latency", unit="us", direction="lower")
SPECS = tuple(
    BenchmarkSpec(
        name=name, version="1", summary="", stresses="", reveals="", level="micro", scope="node",
        duration_s=1.0, metrics=(RATE, LATENCY),
    )
    for name in ("disk", "gemm")
)  # fmt: skip
PLAN = Plan(
    suite="s",
    nodes=(Node(name="a", sku="x"), Node(name="b", sku="x"), Node(name="c", sku="y")),
    phases=(),
    specs=SPECS,
)

numbers = st.lists(st.floats(0.1, 10), min_size=1, max_size=3).map(np.array)
places = st.sampled_from(
    [(m, d) for m in ("rate", "rate:read", "latency") for d in ("cuda:0", "cuda:1", "cpu")]
)
measured = st.dictionaries(places, numbers, min_size=1, max_size=5)
groups = st.sampled_from([("a",), ("b",), ("c",), ("a", "b"), ("b", "a"), ("a", "c")])
runs = st.lists(st.tuples(groups, st.sampled_from(["disk", "gemm"]), measured), max_size=12)


def executed(run, number):
    participants, benchmark, found = run
    step = Step(
        id=str(number), workload=Workload.make(benchmark, "1", {}), participants=participants,
        phase=0, repeat=0, timeout_s=1.0, exclusive=True,
    )  # fmt: skip
    series = Readings.pack(
        Series(metric=metric, device=device, samples=samples)
        for (metric, device), samples in found.items()
    )
    result = Result(series=series)
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def one_by_one(campaign):
    """The units that `units` must come to, one by one."""
    found = defaultdict(list)
    for participants, benchmark, series in campaign:
        sku = "+".join(sorted({PLAN.sku(name) for name in participants}))
        for (metric, device), samples in series.items():
            kind = device.partition(":")[0]
            found[sku, benchmark, metric, kind, participants, device].append(tuple(samples))
    return dict(found)


def spelled(gathered):
    found = {}
    for alike in gathered:
        key = alike.key
        assert len({(u.participants, u.device) for u in alike}) == len(alike)
        for i, unit in enumerate(alike):
            place = (key.sku, key.workload.benchmark, key.metric, key.device_kind)
            place += (unit.participants, unit.device)
            assert place not in found
            found[place] = [tuple(run) for run in unit.repeats]
            assert list(alike.samples[i]) == list(unit.samples)
            assert alike.medians[i] == np.median(unit.samples)
        assert [tuple(run) for run in alike.repeats] == [
            tuple(run) for unit in alike for run in unit.repeats
        ]
    return found


@given(runs)
def test_columns_of_units_agree_with_a_dictionary_of_lists(campaign):
    executions = [executed(run, i) for i, run in enumerate(campaign)]
    assert spelled(units(executions, PLAN)) == one_by_one(campaign)


def test_parts_that_are_measured_alike_become_a_matrix():
    series = {("rate", f"cuda:{i}"): np.array([i + 1.0, i + 2.0]) for i in range(2)}
    executions = [executed(((name,), "gemm", series), i) for i, name in enumerate("abab")]
    (alike,) = units(executions, PLAN)
    assert alike.samples.tolist() == [[1, 2, 1, 2], [2, 3, 2, 3]] * 2
    assert alike.devices == ("cuda:0", "cuda:1") * 2


def test_only_measured_executions_become_units():
    lost = replace(executed((("a",), "gemm", {("rate", "cpu"): np.ones(1)}), 0), ended=Ended.LOST)
    assert units([lost], PLAN) == []


def test_an_undeclared_metric_is_refused():
    run = executed((("a",), "gemm", {("speed", "cpu"): np.ones(1)}), 0)
    with pytest.raises(CriteriaError, match="does not declare speed"):
        units([run], PLAN)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_a_unit_with_a_number_that_is_no_measurement_is_left_out_and_no_other(bad):
    good = executed((("a",), "gemm", {("rate", "cuda:0"): np.array([1.0, 2.0])}), 0)
    series = {("rate", "cuda:0"): np.ones(3), ("rate", "cuda:1"): np.array([1.0, bad])}
    sick = executed((("b",), "gemm", series), 1)
    (alike,) = units([good, sick], PLAN)
    assert [(unit.participants, unit.device) for unit in alike] == [
        (("a",), "cuda:0"),
        (("b",), "cuda:0"),
    ]
    assert (
        units([replace(sick, result=Result(series=Readings.pack([*sick.result.series][1:])))], PLAN)
        == []
    )


def test_a_count_of_errors_may_be_0_and_is_still_a_number():
    errors = MetricSpec(name="errors", unit="1", direction="lower", judged_by="limit")
    counted = replace(some("a", "b", metric=errors), values=np.array([0.0, 3.0]))
    assert counted.medians.tolist() == [0, 3]
    with pytest.raises(CriteriaError, match='errors on cuda:0 of b as "nan"'):
        replace(counted, values=np.array([0.0, np.nan]))


# --- by hand -------------------------------------------------------------------------------


def some(*names: str, benchmark: str = "gemm", metric: MetricSpec = RATE) -> Units:
    """Executions of a node or a group, each with one sample."""
    workload = Workload.make(benchmark, "1", {})
    key = CriterionKey(sku="x", workload=workload, metric=metric.name, device_kind="cuda")
    count = len(names)
    return Units(
        key=key,
        metric=metric,
        participants=tuple(map(tuple, names)),
        devices=("cuda:0",) * count,
        values=np.ones(count),
        edges=np.arange(count + 1),
        firsts=np.arange(count + 1),
    )


def test_groups_with_an_excluded_node_and_other_workloads_are_irrelevant():
    workload = some("a").key.workload
    found = relevant_units(
        [some("a", "ab", "b", "cd"), some("a", benchmark="disk")], {workload}, {"b"}
    )
    assert [alike.participants for alike in found] == [(("a",), ("c", "d"))]
    assert relevant_units([some("a")], {workload}, {"a"}) == []


@pytest.mark.long
@given(runs, st.data())
def test_a_subset_of_units_has_the_requested_ones_in_that_order(campaign, data):
    for alike in units([executed(run, i) for i, run in enumerate(campaign)], PLAN):
        positions = data.draw(st.lists(st.sampled_from(range(len(alike))), min_size=1, unique=True))
        chosen = alike.subset(np.array(positions))
        assert [(u.participants, u.device, list(map(list, u.repeats))) for u in chosen] == [
            (u.participants, u.device, list(map(list, u.repeats)))
            for u in (alike[i] for i in positions)
        ]
