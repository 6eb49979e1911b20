"""Values that a run lacks: a metric that its program did not write, a device that it no longer
sees although nodes of its kind have it, or samples that were ordered.

A program that ends well may have measured less than it should: a GPU fell off the bus, half of the
metrics were not written, or a pair measured one direction. The rest looks healthy, so the node is
unknown. What nodes of a kind have is known from the campaign, if most of them have it, and from
criteria; what pairs and groups have, from most of them. A metric in one direction needs the other.
Metrics that only limits judge are facts that need not exist everywhere. How many samples a series
has is known if a parameter of its program declares it (`counts`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anubis.core.judge.combined import is_combined
from anubis.core.judge.units import kind_of_device, plain_kind, split_model
from anubis.core.network.traffic import ONE_WAY, direction_of
from anubis.core.records import (
    BenchmarkSpec,
    CriteriaSet,
    Ended,
    Execution,
    Judgement,
    Layout,
    Plan,
    Verdict,
    Workload,
)

NAMED = 3  # values in a sentence

MetricOn = tuple[str, str]  # a metric, and a device or a kind of devices
OfSku = tuple[Workload, str]  # a program, and the sku of its nodes
ComparedTogether = tuple[Workload, frozenset[str], int]  # of pairs and groups: skus, shift of rails
ByLayout = defaultdict[Layout, list[Execution]]  # runs of one layout lack the same


def judge_missing(
    executions: Iterable[Execution], plan: Plan, criteria: Iterable[CriteriaSet]
) -> Iterator[Verdict]:
    """Yield a verdict for each run that lacks values which most nodes, pairs or groups have, and
    for each run that has fewer samples than ordered."""
    runs: defaultdict[OfSku, ByLayout] = defaultdict(lambda: defaultdict(list))
    together: defaultdict[ComparedTogether, ByLayout] = defaultdict(lambda: defaultdict(list))
    for run in executions:
        if run.final and run.result.cut_short:
            yield _verdict_on_cut_short(run)
        if not run.final or run.ended is not Ended.MEASURED:
            continue
        step, layout = run.step, run.result.series.layout
        if len(step.participants) == 1:
            runs[step.workload, plan.sku(step.participants[0])][layout].append(run)
        else:
            skus = frozenset(map(plan.sku, step.participants))
            together[step.workload, skus, step.shift][layout].append(run)
    learned = _learned_places(criteria)
    for (workload, sku), by_layout in runs.items():
        spec = plan.spec(workload)
        usual = _usual_places(by_layout, spec)
        for layout, alike in by_layout.items():
            lacking = list(_lacking(layout, usual, learned.get((workload, sku), {}), spec))
            if lacking:
                yield from (_verdict_on_lacking(run, lacking) for run in alike)
    for (workload, _, _), by_layout in together.items():
        usual = _usual_places(by_layout, plan.spec(workload))
        on_fabric = plan.fabric is not None and workload in plan.crossing
        for layout, alike in by_layout.items():
            for device, metrics in _lacking_together(layout, usual, on_fabric).items():
                yield from (_verdict_on_lacking_together(run, device, metrics) for run in alike)


def _lacking_together(
    layout: Layout, usual: Sequence[MetricOn], on_fabric: bool
) -> dict[str, list[str]]:
    """The metrics that a pair or group lacks, by device. On a fabric, `judge_silent_rails` knows
    which devices have no result at all."""
    present = {(metric, device) for metric, device, _ in layout.series}
    devices = {device for _, device in present}
    due = [place for place in usual if not on_fabric or place[1] in devices]
    due += [
        (metric.replace(f":{way}", f":{back}"), device)
        for metric, device in sorted(present)
        for way, back in (ONE_WAY, ONE_WAY[::-1])
        if direction_of(metric) == way
    ]
    lacking: dict[str, list[str]] = {}
    for metric, device in dict.fromkeys(due):
        if (metric, device) not in present:
            lacking.setdefault(device, []).append(metric)
    return lacking


def surplus_devices(executions: Iterable[Execution], plan: Plan) -> dict[str, str]:
    """Nodes with more devices of a kind than most nodes of their sku → how many, in words. They are
    not worse, but another kind of node."""
    nodes: defaultdict[OfSku, defaultdict[Layout, set[str]]] = defaultdict(lambda: defaultdict(set))
    for run in executions:
        if run.final and run.ended is Ended.MEASURED and len(run.step.participants) == 1:
            (node,) = run.step.participants
            nodes[run.step.workload, plan.sku(node)][run.result.series.layout].add(node)
    surplus: dict[str, str] = {}
    for (_, sku), by_layout in nodes.items():
        having: defaultdict[str, Counter[int]] = defaultdict(Counter)  # nodes by kind and number
        numbers = {layout: _devices_by_kind(layout) for layout in by_layout}
        for layout, alike in by_layout.items():
            for kind, number in numbers[layout].items():
                having[kind][number] += len(alike)
        every = len(set[str]().union(*by_layout.values()))
        for kind, counted in having.items():
            usual, share = counted.most_common(1)[0]
            for layout, alike in by_layout.items() if 2 * share > every else ():
                if (number := numbers[layout].get(kind, 0)) > usual:
                    words = f"{number} {kind} devices, and most nodes of sku {sku} have {usual}"
                    surplus.update(dict.fromkeys(sorted(alike), words))
    return surplus


def _devices_by_kind(layout: Layout) -> Counter[str]:
    return Counter(kind_of_device(device) for device in {device for _, device, _ in layout.series})


def _usual_places(
    by_layout: Mapping[Layout, Sequence[Execution]], spec: BenchmarkSpec
) -> list[MetricOn]:
    """The metrics and devices that most of the nodes, pairs or groups have."""
    having: defaultdict[MetricOn, set[tuple[str, ...]]] = defaultdict(set)
    all_nodes: set[tuple[str, ...]] = set()
    for layout, alike in by_layout.items():
        nodes = {run.step.participants for run in alike}
        all_nodes |= nodes
        for metric, device, _ in layout.series:
            having[metric, device] |= nodes
    return sorted(
        (metric, device)
        for (metric, device), nodes in having.items()
        if 2 * len(nodes) > len(all_nodes) and _is_compared(metric, spec)
    )


def _learned_places(criteria: Iterable[CriteriaSet]) -> dict[OfSku, dict[MetricOn, int]]:
    """Metrics that criteria compare, with the number of devices on which most nodes had them when
    criteria were learned: nodes of a sku, or of all kinds under it. 0: most nodes had none."""
    learned: dict[OfSku, dict[MetricOn, int]] = {}
    for of_kind in criteria:
        taught: Counter[Workload] = Counter()  # nodes
        for criterion in of_kind.criteria:
            workload = criterion.key.workload
            taught[workload] = max(taught[workload], criterion.nodes)
        places: defaultdict[tuple[Workload, str], Counter[MetricOn]] = defaultdict(Counter)
        for criterion in of_kind.criteria:
            key = criterion.key
            if key.sku == of_kind.sku and not is_combined(key):
                devices = 1 if criterion.from_repeats else criterion.units / criterion.nodes
                usual = 2 * criterion.nodes > taught[key.workload]
                kind, model = plain_kind(key.device_kind), split_model(key.device_kind)[1]
                of_model = places[key.workload, model]  # of all its places
                of_model[key.metric, kind] += round(devices) if usual else 0
        by_workload: defaultdict[Workload, Counter[MetricOn]] = defaultdict(Counter)
        for (workload, _), of_model in places.items():  # other nodes may have another model
            for place, number in of_model.items():
                by_workload[workload][place] = max(number, by_workload[workload][place])
        for workload, own in by_workload.items():
            of_sku = workload, of_kind.nodes_sku
            before = learned.get(of_sku, own)
            learned[of_sku] = {
                place: min(own.get(place, 0), before.get(place, 0)) for place in own | before
            }
    return learned


def _lacking(
    layout: Layout, usual: Sequence[MetricOn], learned: Mapping[MetricOn, int], spec: BenchmarkSpec
) -> Iterator[str]:
    """Yield what is missing. If it has values without a criterion, they are not what criteria were
    learned from: that is another verdict, and says how they differ."""
    present = {
        (metric, device) for metric, device, _ in layout.series if _is_compared(metric, spec)
    }
    absent = [place for place in usual if place not in present]
    yield from (f"{metric} on {device}" for metric, device in absent)
    counts = Counter((metric, kind_of_device(device)) for metric, device in present)
    if any(place not in learned for place in counts):
        return
    listed = {(metric, kind_of_device(device)) for metric, device in absent}
    for (metric, kind), devices in sorted(learned.items()):
        missing = devices - counts[metric, kind]
        if missing > 0 and (metric, kind) not in listed:
            of_several = f"{missing} of {devices} " if devices > 1 else ""
            yield f"{metric} on {of_several}{kind}"


def _is_compared(metric: str, spec: BenchmarkSpec) -> bool:
    declared = spec.metric(metric)
    return declared is not None and declared.judged_by == "fleet"


def _verdict_on_cut_short(run: Execution) -> Verdict:
    ordered = run.result.cut_short
    numbers = {
        (metric, device): number for metric, device, number in run.result.series.layout.series
    }
    (metric, device), *rest = ordered
    more = f", and too few of {len(rest)} more" if rest else ""
    return _verdict(
        run,
        f"measured {numbers[metric, device]} of {ordered[metric, device]} samples of {metric} on"
        f" {device}{more}",
        "measured fewer samples than ordered",
    )


def _verdict_on_lacking(run: Execution, lacking: Sequence[str]) -> Verdict:
    values = "1 value" if len(lacking) == 1 else f"{len(lacking)} values"
    be = "is" if len(lacking) == 1 else "are"
    return _verdict(
        run,
        f"{values} that most nodes have {be} missing: {_list_some(lacking)}",
        "did not measure all that most nodes have",
    )


def _verdict_on_lacking_together(run: Execution, device: str, metrics: Sequence[str]) -> Verdict:
    shown = _list_some(metrics)
    on_device = f" on {device}" if device else ""
    verdict = _verdict(run, f"brought no {shown}{on_device}", "did not measure all that it should")
    return replace(verdict, device=device, metric=metrics[0])


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _verdict(run: Execution, reason: str, effect: str) -> Verdict:
    benchmark = run.step.workload.benchmark
    return Verdict(
        participants=run.step.participants,
        benchmark=benchmark,
        parameters=run.step.workload.parameters,
        judgement=Judgement.UNKNOWN,
        code="NOT-MEASURED",
        reason=reason,
        cause=f"{benchmark} {effect}",
    )
