"""A table of measurements as a campaign: an execution on each node, and a plan of steps that were
run elsewhere, as every import has.

Nothing is judged here. If a node lacks what most nodes of its kind have, or a value could not be
read, that becomes a step that could not be run, so that the node is left unknown, and never
healthy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from anubis.core.records import (
    MODELS,
    BenchmarkSpec,
    Ended,
    Execution,
    Layout,
    Node,
    Phase,
    Plan,
    PlannedEntry,
    Readings,
    Result,
    Step,
    Workload,
)
from anubis.readers.tables.intake import ForeignTable, SeriesName
from anubis.text.wording import names, quantity

ASSUMED_S = 1.0  # how long a step took: files do not say, and a specification must
NOTHING = Result()


def phase(workloads: Iterable[Workload]) -> Phase:
    return Phase(name="imported", entries=tuple(map(_entry, workloads)))


def step(workload: Workload, node: str, *, position: int = 0, repeat: int = 0) -> Step:
    """Return a step; `position`: of the workload in its phase."""
    return Step(
        id=f"0.{position}.{repeat}/{workload.benchmark}/{node}",
        workload=workload,
        participants=(node,),
        phase=0,
        repeat=repeat,
        timeout_s=ASSUMED_S,
        exclusive=True,
    )


def execution(
    step: Step,
    ended: Ended,
    *,
    reason: str = "",
    result: Result = NOTHING,
    started_at: float | None = None,
    duration_s: float = 0.0,
) -> Execution:
    return Execution(
        step=step,
        attempt=1,
        ended=ended,
        final=True,
        reason=reason,
        result=result,
        started_at=started_at,
        duration_s=duration_s,
    )


def _entry(workload: Workload) -> PlannedEntry:
    return PlannedEntry(
        workload=workload,
        scope="node",
        exclusive=True,
        repeats=1,
        timeout_s=ASSUMED_S,
        duration_s=ASSUMED_S,
        groups="all",
        rounds=None,
        min_nodes=1,
    )


VERSION = "csv"  # the program that measured, and its version, are unknown
NAMED = 3  # metrics in a sentence


def adopt(table: ForeignTable, suite: str) -> tuple[Plan, list[Execution]]:
    """Return a plan of one workload, named after the suite, with all metrics, and its
    executions."""
    workload = Workload.make(suite, VERSION, {})
    spec = BenchmarkSpec(
        name=suite,
        version=VERSION,
        summary="Measured by another tool.",
        stresses="what that tool stresses",
        reveals="what that tool reveals",
        level="micro",
        scope="node",
        duration_s=ASSUMED_S,
        metrics=tuple(table.metrics.values()),
    )
    plan = Plan(
        suite=suite,
        nodes=tuple(Node(name=node, sku=sku) for node, sku in table.skus.items()),
        phases=(phase([workload]),),
        specs=(spec,),
    )
    readings = _readings(table)
    unread = dict(_unread(table))
    return plan, [
        outcome
        for node in table.skus
        for outcome in _executions(workload, node, readings.get(node), unread.get(node, ""), table)
    ]


def _readings(table: ForeignTable) -> dict[str, Readings]:
    """Return for each node its series in the order of their names, with the samples in the order of
    lines."""
    order = sorted(range(len(table.series)), key=table.series.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    of_samples = rank[table.places]
    samples = table.samples[np.argsort(of_samples, kind="stable")]
    sizes = np.bincount(of_samples, minlength=len(order)).tolist()
    layouts: defaultdict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for place, size in zip(order, sizes, strict=True):
        node, metric, device = table.series[place]
        if size:
            layouts[node].append((metric, device, size))
    readings, first = {}, 0
    for node, layout in layouts.items():
        last = first + sum(size for _, _, size in layout)
        readings[node] = Readings(Layout(tuple(layout)), samples[first:last])
        first = last
    return readings


def _executions(
    workload: Workload, node: str, readings: Readings | None, unread: str, table: ForeignTable
) -> Iterator[Execution]:
    since, until = table.spans.get(node, (None, None))
    if readings:
        yield execution(
            step(workload, node),
            Ended.MEASURED,
            result=Result(series=readings, environment=_name_models(table, node)),
            started_at=since,
            duration_s=until - since if until and since else 0.0,
        )
    if unread:
        yield execution(step(workload, node, repeat=1), Ended.NOT_RUN, reason=unread)


def _name_models(table: ForeignTable, node: str) -> dict[str, object]:
    return {MODELS: dict(table.models[node])} if node in table.models else {}


def _unread(table: ForeignTable) -> Iterator[tuple[str, str]]:
    """Yield for each node what could not be read, or what most nodes of its kind have and it
    lacks."""
    measured = [table.series[place] for place in np.unique(table.places)]
    for node, lacking in _lacking(measured, table.skus).items():
        shown = names([f"{metric} on {device}" for metric, device in lacking], NAMED)
        be = "is" if len(lacking) == 1 else "are"
        yield node, f"{quantity(len(lacking), 'value')} that most nodes have {be} missing: {shown}"
    yield from table.unread.items()


def _lacking(
    series: Sequence[SeriesName], skus: Mapping[str, str]
) -> dict[str, list[tuple[str, str]]]:
    present = set(series)
    nodes = Counter(skus.values())
    count = Counter((skus[name.node], name.metric, name.device) for name in series)
    expected: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for (sku, metric, device), having in sorted(count.items()):
        if 2 * having > nodes[sku]:
            expected[sku].append((metric, device))
    lacking = {
        node: [place for place in expected[sku] if SeriesName(node, *place) not in present]
        for node, sku in skus.items()
    }
    return {node: absent for node, absent in lacking.items() if absent}
