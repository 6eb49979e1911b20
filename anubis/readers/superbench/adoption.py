"""Results of SuperBench, adopted: rows of results-summary.jsonl as a campaign, and baseline.json as
criteria.

Nothing is judged here. A value that most nodes have and one lacks becomes a failed execution,
because a value that is missing, NaN or 0 must leave the node unknown, and never healthy.

A baseline is one mean per metric. A mean has no spread, so the repeatability of such a criterion is
unknown, and it says so. How many units the mean covers is not in the file, so it has to be given.
Single ranks have no baseline.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from anubis.core.errors import CriteriaError, UsageError
from anubis.core.records import (
    BenchmarkSpec,
    CriteriaSet,
    Criterion,
    CriterionKey,
    Ended,
    Execution,
    Layout,
    MetricSpec,
    Node,
    Plan,
    Policy,
    Provenance,
    Readings,
    Result,
    canonical,
)
from anubis.readers.superbench.results import (
    NODE,
    RANK,
    RETURN_CODE,
    VERSION,
    MetricPlace,
    NodeResults,
    comparable,
    cut,
    describe_value,
    number,
    place,
    spec,
    workload,
)
from anubis.readers.tables.adoption import ASSUMED_S, execution, phase, step
from anubis.text.wording import names as few
from anubis.text.wording import quantity

NAMED = 3  # names in a sentence

Failures = Mapping[str, tuple[str, object]]  # benchmark -> its first bad return code, and the name


@dataclass(frozen=True)
class _Metric:
    place: MetricPlace
    spec: MetricSpec


def adopt(rows: Sequence[NodeResults], sku: str) -> tuple[Plan, list[Execution]]:
    """Return a plan of one workload for each benchmark, and its executions on each node."""
    metrics, left_out = _metrics(rows)
    failures = [_failures(row) for row in rows]
    usable = [_usable(row, metrics) for row in rows]
    counts = Counter(name for node_values in usable for name in node_values)
    expected = dict.fromkeys(name for name in metrics if 2 * counts[name] > len(rows))
    left_out["without a number above 0 on any node"] = [
        metric.place.name for name, metric in metrics.items() if not counts[name]
    ]
    left_out["that are 0 or not a number on some nodes and missing on most"] = [
        metrics[name].place.name
        for row, node_values in zip(rows, usable, strict=True)
        for name in row.values
        if counts[name] and name not in node_values and name not in expected
    ]

    measured = [metric for name, metric in metrics.items() if counts[name]]
    failed_somewhere = [benchmark for failed in failures for benchmark in failed]
    specs = _specs(measured, failed_somewhere)
    remarks = tuple(
        f"{quantity(len(names), 'metric')} {why}: {few(names, NAMED)}"
        for why, names in ((why, list(dict.fromkeys(names))) for why, names in left_out.items())
        if names
    )
    if not specs:
        raise UsageError("no metric that can be judged: " + ("; ".join(remarks) or "there is none"))
    plan = Plan(
        suite=VERSION,
        nodes=tuple(Node(name=row.node, sku=sku) for row in rows),
        phases=(phase(map(workload, specs)),),
        specs=tuple(specs.values()),
        left_out=remarks,
    )
    return plan, [
        execution
        for row, failed, node_values in zip(rows, failures, usable, strict=True)
        for execution in _executions(row, list(specs), failed, node_values, metrics, expected)
    ]


# --- what the names say --------------------------------------------------------------------


def _metrics(rows: Iterable[NodeResults]) -> tuple[dict[str, _Metric], dict[str, list[str]]]:
    """Return every metric that can be compared, in the order of the file, and why others cannot."""
    comparable_metrics: dict[str, _Metric] = {}
    nameless: list[str] = []
    directionless: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row.values):
        where = place(name)
        if where is None:
            nameless.append(name)
        elif where.metric != RETURN_CODE:
            declared = spec(where)
            if declared:
                comparable_metrics[name] = _Metric(where, declared)
            else:
                directionless.append(where.name)
    torn = _torn(comparable_metrics.values())
    return {
        name: metric for name, metric in comparable_metrics.items() if _family(metric) not in torn
    }, {
        "whose name has no benchmark": nameless,
        "without a known direction (higher or lower is better)": directionless,
        "of one name before the colon, but with two directions": torn,
    }


def _family(metric: _Metric) -> str:
    return f"{metric.place.benchmark}/{metric.place.family}"


def _torn(metrics: Iterable[_Metric]) -> list[str]:
    """Return families with `x:8_time` beside `x:8_bw`: a family of metrics has one direction, or
    cannot be declared."""
    directions: defaultdict[str, set[str]] = defaultdict(set)
    for metric in metrics:
        directions[_family(metric)].add(metric.spec.direction)
    return [family for family, opposed in directions.items() if len(opposed) > 1]


def _specs(measured: Iterable[_Metric], failed: Iterable[str]) -> dict[str, BenchmarkSpec]:
    families: defaultdict[str, dict[str, MetricSpec]] = defaultdict(dict)
    for metric in measured:
        families[metric.place.benchmark].setdefault(metric.spec.name, metric.spec)
    for benchmark in failed:  # if it failed everywhere, it has no metric but its return code
        code = MetricSpec(name=RETURN_CODE, unit="units", direction="lower")
        families[benchmark] = families[benchmark] or {RETURN_CODE: code}
    return {
        benchmark: BenchmarkSpec(
            name=benchmark,
            version=VERSION,
            summary="Measured by SuperBench.",
            stresses="see SuperBench's documentation",
            reveals="see SuperBench's documentation",
            level="end-to-end" if "model" in benchmark else "micro",
            scope="node",
            duration_s=ASSUMED_S,
            metrics=tuple(declared.values()),
        )
        for benchmark, declared in families.items()
    }


# --- what the nodes did --------------------------------------------------------------------


def _failures(row: NodeResults) -> Failures:
    failed: dict[str, tuple[str, object]] = {}
    for name, code in row.values.items():
        where = place(name)
        if where and where.metric == RETURN_CODE and number(code) != 0:
            failed.setdefault(where.benchmark, (name, code))
    return failed


def _usable(row: NodeResults, metrics: Mapping[str, _Metric]) -> dict[str, float]:
    return {
        name: value
        for name, raw in row.values.items()
        if name in metrics and (value := comparable(raw)) is not None
    }


def _lacking(
    row: NodeResults,
    expected: Iterable[str],
    usable: Mapping[str, float],
    metrics: Mapping[str, _Metric],
) -> dict[str, list[str]]:
    """List by benchmark what most nodes have and this one lacks: `H2D_Mem_BW:3 is missing`."""
    lacking: defaultdict[str, list[str]] = defaultdict(list)
    for name in expected:
        if name not in usable:
            benchmark = metrics[name].place.benchmark
            state = f"is {describe_value(row.values[name])}" if name in row.values else "is missing"
            lacking[benchmark].append(f"{cut(name.removeprefix(f'{benchmark}/'))} {state}")
    return lacking


def _executions(
    row: NodeResults,
    benchmarks: Sequence[str],
    failed: Failures,
    usable: Mapping[str, float],
    metrics: Mapping[str, _Metric],
    expected: Iterable[str],
) -> Iterator[Execution]:
    node, lacking = row.node, _lacking(row, expected, usable, metrics)
    measured: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, value in usable.items():
        measured[metrics[name].place.benchmark][name] = value
    for position, benchmark in enumerate(benchmarks):
        planned = partial(step, workload(benchmark), node, position=position)
        if benchmark in failed:  # its numbers, if any, cannot be trusted
            name, code = failed[benchmark]
            reason = f"its {name.removeprefix(f'{benchmark}/')} is {describe_value(code)}"
            environment = {} if number(code) is None else {RETURN_CODE: code}
            result = Result(environment=environment)
            yield execution(planned(), Ended.FAILED, reason=reason, result=result)
            continue
        if benchmark in measured:
            result = Result(series=_series(measured[benchmark], metrics))
            yield execution(planned(), Ended.MEASURED, result=result)
        if benchmark in lacking:  # in addition, so that the node does not pass for a complete one
            values = lacking[benchmark]
            reason = f"{quantity(len(values), 'value')} that most nodes have: {few(values, NAMED)}"
            yield execution(planned(repeat=1), Ended.NOT_RUN, reason=reason)


def _series(values: Mapping[str, float], metrics: Mapping[str, _Metric]) -> Readings:
    places = [metrics[name].place for name in values]
    return Readings(
        Layout(tuple((where.metric, where.device, 1) for where in places)),
        np.array(list(values.values())),
    )


SUITE = f"{VERSION}-baseline"


def means_as_criteria(
    baseline: Mapping[str, object],
    *,
    sku: str,
    units: int,
    policy: Policy,
    anubis: str,
    created_at: str,
) -> tuple[CriteriaSet, list[str]]:
    """Return criteria for the node and for each rank, as SuperBench applies them, and names left
    out."""
    if units < policy.min_units:
        raise CriteriaError(
            f"a mean of {units} units is too few: the policy asks for {policy.min_units}"
        )
    criteria_read = []
    left_out = []
    for name, mean in baseline.items():
        where, value = place(name), comparable(mean)
        if where and where.metric == RETURN_CODE:
            continue
        declared = spec(where) if where else None
        if where is None or declared is None or value is None or where.device != NODE:
            left_out.append(name)
            continue
        criteria_read += [
            Criterion(
                key=CriterionKey(
                    sku=sku,
                    workload=workload(where.benchmark),
                    metric=where.metric,
                    device_kind=kind,
                ),
                unit=declared.unit,
                direction=declared.direction,
                reference=np.array([value]),
                alpha=policy.alpha_of(where.benchmark, where.metric),
                tail=policy.tail,
                units=units,
                healthy=units,
                nodes=units,
                repeatability=None,
            )
            for kind in (NODE, RANK)
        ]
    if not criteria_read:
        raise CriteriaError("the baseline has no metric that can be judged")
    digest = hashlib.sha256(canonical(dict(baseline)).encode()).hexdigest()[:16]
    provenance = Provenance(suite=SUITE, anubis=anubis, digest=digest, created_at=created_at)
    return CriteriaSet(sku=sku, criteria=tuple(criteria_read), provenance=provenance), left_out
