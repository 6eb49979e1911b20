"""Units, which are judged: all samples of one metric on one device of a node, or on one group.

A fleet has millions of units, so those of one key are kept together in columns. A single unit is
made only on request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Flags, Ints
from anubis.core.errors import CriteriaError
from anubis.core.fabric import Fabric
from anubis.core.network.rails import Rails
from anubis.core.records import (
    CriterionKey,
    Ended,
    Execution,
    Layout,
    MetricSpec,
    Models,
    Plan,
    Result,
    Samples,
    Series,
    Workload,
)

Names = tuple[str, ...]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, eq=False, slots=True)
class Unit:
    key: CriterionKey
    metric: MetricSpec
    participants: Names
    device: str
    repeats: tuple[Samples, ...]

    @property
    def samples(self) -> Samples:
        return self.repeats[0] if len(self.repeats) == 1 else np.concatenate(self.repeats)

    @property
    def series(self) -> Series:
        """The samples of all its runs."""
        return Series(metric=self.key.metric, device=self.device, samples=self.samples)


@dataclass(frozen=True, eq=False, slots=True)
class Units(Iterable[Unit]):
    """All units of one key: their values end to end, and in each unit its runs end to end."""

    key: CriterionKey
    metric: MetricSpec
    participants: tuple[Names, ...]
    devices: tuple[str, ...]
    values: Samples
    edges: Ints  # the begin of each run in `values`, and the end of the last one
    firsts: Ints  # the first run of each unit, and the number of all runs

    def __post_init__(self) -> None:
        """Refuse unusable samples, because no later step checks them: NaN is above no limit, and
        would pass as healthy."""
        may_be_0 = self.metric.judged_by == "limit"
        unusable = np.flatnonzero(~are_usable(self.values, may_be_0=may_be_0))
        if unusable.size:
            ends = self.edges[self.firsts]
            unit = self[int(np.searchsorted(ends, unusable[0], side="right")) - 1]
            expected = "0 or a positive" if may_be_0 else "a positive"
            raise CriteriaError(
                f"{self.key.workload} measured {self.key.metric} on {unit.device} of "
                f'{", ".join(unit.participants)} as "{self.values[unusable[0]]}": '
                f"expected {expected} finite number; leave this result out, or measure again"
            )

    def __len__(self) -> int:
        return len(self.devices)

    def __iter__(self) -> Iterator[Unit]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Unit:
        i = range(len(self))[i]
        runs = range(int(self.firsts[i]), int(self.firsts[i + 1]))
        repeats = tuple(self.values[self.edges[run] : self.edges[run + 1]] for run in runs)
        return Unit(self.key, self.metric, self.participants[i], self.devices[i], repeats)

    @property
    def samples(self) -> Samples | list[Samples]:
        """All samples of each unit; the rows of a matrix if all have equally many."""
        ends = self.edges[self.firsts]
        sizes = np.diff(ends)
        if np.all(sizes == sizes[0]):
            return self.values.reshape(len(self), -1)
        return np.split(self.values, ends[1:-1])

    @property
    def repeats(self) -> list[Samples]:
        return np.split(self.values, self.edges[1:-1])

    @property
    def medians(self) -> Samples:
        samples = self.samples
        if isinstance(samples, np.ndarray):
            middle: Samples = np.median(samples, axis=1)
            return middle
        return np.array([np.median(unit_samples) for unit_samples in samples])

    def subset(self, chosen: Ints) -> Self:
        """The units at these positions."""
        runs = np.diff(self.firsts)[chosen]
        run_sizes = _gather(np.diff(self.edges), self.firsts[chosen], runs)
        ends = self.edges[self.firsts]
        return replace(
            self,
            participants=tuple(self.participants[i] for i in chosen),
            devices=tuple(self.devices[i] for i in chosen),
            values=_gather(self.values, ends[chosen], np.diff(ends)[chosen]),
            edges=_edges(run_sizes),
            firsts=_edges(runs),
        )


# If one of several devices fails or hangs, the samples of the others still count
SAMPLED = {Ended.MEASURED, Ended.FAILED, Ended.TIMED_OUT}


def are_usable(values: Samples, *, may_be_0: bool) -> Flags:
    """A flag for each sample: is it a measurement, a finite number above 0? It may be 0 if only a
    limit judges it."""
    usable: Flags = (values >= 0 if may_be_0 else values > 0) & (values < np.inf)
    return usable


OF_MODEL = " of model "


def kind_of_device(device: str) -> str:
    return device.partition(":")[0]


def name_kind(kind: str, model: str) -> str:
    """The kind of devices of one model: `cuda of model H100 PCIe`."""
    return f"{kind}{OF_MODEL}{model}" if model else kind


def split_model(device_kind: str) -> tuple[str, str]:
    """A kind of device without its model, and the model; "" if it is not known."""
    kind, _, model = device_kind.partition(OF_MODEL)
    return kind, model


def plain_kind(device_kind: str) -> str:
    """A kind of device without its model and its places on a node."""
    return kind_of_device(split_model(device_kind)[0])


def latest_executions(executions: Iterable[Execution]) -> list[Execution]:
    """The last execution of each step, by turn and in the order of steps, not of arrival.

    A step that was lost once and measured later is measured. The same results give the same
    criteria, byte for byte, whichever node finished first.
    """
    last = {execution.step.id: execution for execution in executions}
    return sorted(last.values(), key=lambda execution: (execution.step.turn, execution.step.id))


def units(executions: Iterable[Execution], plan: Plan) -> list[Units]:
    """All measured units, those of a key in the order of their first measurement."""
    rows: defaultdict[tuple[str, Workload], _Rows] = defaultdict(_Rows)
    for execution in executions:
        if execution.ended in SAMPLED:
            step = execution.step
            size = _size(step.participants, plan.fabric) * (step.workload in plan.reproducing)
            workload_rows = rows[_sku(step.participants, plan) + size, step.workload]
            workload_rows.add(step.participants, execution.result)
    every = [
        alike
        for (sku, workload), measured in rows.items()
        for alike in _units_by_key(measured, sku, workload, plan)
    ]
    if plan.fabric is None:
        return every
    crossing, elsewhere = partition(every, plan.crossing)
    return [*elsewhere, *_split_by_distance(crossing, plan.fabric)]


def _size(participants: Names, fabric: Fabric | None) -> str:
    """The size of a group, and if it is in several NVLink domains: then it goes by the network, and
    is slower than one within a domain."""
    domains = fabric.domain_of if fabric else {}
    met = {domains[name].name if name in domains else name for name in participants}
    across = " across NVLink domains" if domains and len(met) > 1 else ""
    return f" in groups of {len(participants)}{across}"


def partition(
    measured: Iterable[Units], workloads: Collection[Workload]
) -> tuple[list[Units], list[Units]]:
    """The units of these workloads, and the others."""
    parts: tuple[list[Units], list[Units]] = ([], [])
    for alike in measured:
        parts[alike.key.workload not in workloads].append(alike)
    return parts


def relevant_units(
    measured: Iterable[Units], workloads: Collection[Workload], excluded: Collection[str]
) -> list[Units]:
    """The units of these workloads, without groups that have an excluded node."""
    of_workloads = [alike for alike in measured if alike.key.workload in workloads]
    if not excluded:
        return of_workloads
    kept = [
        alike.subset(
            np.flatnonzero([not any(n in excluded for n in names) for names in alike.participants])
        )
        for alike in of_workloads
    ]
    return [alike for alike in kept if len(alike)]


def _split_by_distance(measured: Sequence[Units], fabric: Fabric) -> list[Units]:
    """Split pairs by distance, so that each distance is a kind of its own; other units stay as they
    are.

    Rails of one speed are compared with each other. Otherwise, if a leaf carries a whole rail, a
    slow leaf would define what is normal there.
    """
    mixed = len({nic.gbit_s for nic in fabric.nics if nic.node}) > 1
    rails = Rails.from_devices(fabric, chain.from_iterable(alike.devices for alike in measured))
    by_key: defaultdict[CriterionKey, list[Units]] = defaultdict(list)
    for alike in measured:
        kinds: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, names in enumerate(alike.participants):
            kinds[_kind(rails, names, alike.devices[place], mixed)].append(place)
        for (distance, device), places in kinds.items():
            key = alike.key
            kind = device or key.device_kind
            key = replace(key, sku=key.sku + distance, device_kind=kind)
            by_key[key].append(replace(alike.subset(np.array(places)), key=key))
    return [parts[0] if len(parts) == 1 else join_units(parts) for parts in by_key.values()]


def _kind(rails: Rails, names: Names, device: str, mixed: bool) -> tuple[str, str]:
    """The distance of a pair, with the speed if NICs differ; "nic" if the device names NICs."""
    ends = rails.rail_nics_between(names, device)
    if ends is None:
        return "", ""
    a, b = (rails.fabric.nic(*rail_nic) for rail_nic in ends)
    hops = rails.fabric.hops(a, b) if a and b else None
    if a is None or b is None or hops is None:
        return "", ""
    speed = f", {min(a.gbit_s or 0.0, b.gbit_s or 0.0):g} Gbit/s" if mixed else ""
    return f" at {hops} hops{speed}", "nic" if rails.names_nics(device) else ""


# --- columns -------------------------------------------------------------------------------


# By the series of a row, the models of its devices, and whether it is of one node. A group has no
# devices of one model.
_Layouts = defaultdict[tuple[Layout, Models, bool], list[int]]


@dataclass
class _Rows:
    """The samples of all executions of one workload, a row for each."""

    participants_of: list[int] = field(
        default_factory=list
    )  # the position of the participants in `names`
    names: dict[Names, int] = field(default_factory=dict)
    values: list[Samples] = field(default_factory=list)
    layouts: _Layouts = field(default_factory=lambda: defaultdict(list))

    def add(self, participants: Names, result: Result) -> None:
        series, alone = result.whole_series, len(participants) == 1
        layout = series.layout, result.models if alone else (), alone
        self.layouts[layout].append(len(self.participants_of))
        self.participants_of.append(self.names.setdefault(participants, len(self.names)))
        self.values.append(series.values)


@dataclass(frozen=True)
class _Place:
    """The same series of many rows with the same layout."""

    rows: Ints
    device: str
    offset: int
    length: int


def _units_by_key(measured: _Rows, sku: str, workload: Workload, plan: Plan) -> Iterable[Units]:
    values = np.concatenate(measured.values)
    starts = _edges(np.array([row.size for row in measured.values]))
    unusable = [
        np.flatnonzero(~are_usable(values, may_be_0=may_be_0)) for may_be_0 in (False, True)
    ]
    participants_of, names = np.array(measured.participants_of), list(measured.names)
    called: dict[tuple[bytes, Names], tuple[tuple[Names, ...], Names]] = {}
    for (metric, kind), places in _places(measured.layouts).items():
        spec = plan.spec(workload).metric(metric)
        if spec is None:
            raise CriteriaError(f"{workload} does not declare {metric}")
        devices = tuple(dict.fromkeys(place.device for place in places))
        rows = np.concatenate([place.rows for place in places])
        device = np.repeat(
            [devices.index(place.device) for place in places], [place.rows.size for place in places]
        )
        unit = participants_of[rows] * len(devices) + device
        begin = np.concatenate([starts[place.rows] + place.offset for place in places])
        size = np.repeat([p.length for p in places], [p.rows.size for p in places])
        usable = ~_contain_any(unusable[spec.judged_by == "limit"], begin, size)
        if not usable.all():  # `unanswered.judge_unusable` reports each of them
            rows, unit, begin, size = rows[usable], unit[usable], begin[usable], size[usable]
        if not unit.size:
            continue
        if not np.all(unit[1:] > unit[:-1]):
            order = np.lexsort((rows, unit))
            unit, begin, size = unit[order], begin[order], size[order]
        present, firsts = np.unique(unit, return_index=True)
        shared = (present.tobytes(), devices)  # the columns of names are the same for many metrics
        if shared not in called:
            called[shared] = (
                tuple(names[i] for i in present // len(devices)),
                tuple(devices[i] for i in present % len(devices)),
            )
        yield Units(
            CriterionKey(sku=sku, workload=workload, metric=metric, device_kind=kind),
            spec,
            *called[shared],
            values=_gather(values, begin, size),
            edges=_edges(size),
            firsts=np.append(firsts, unit.size),
        )


def _only_model(layouts: _Layouts) -> dict[str, str]:
    """The model of each kind of device that all runs have which name one."""
    by_kind: defaultdict[str, set[str]] = defaultdict(set)
    for device, model in chain.from_iterable(models for _, models, _ in layouts):
        by_kind[kind_of_device(device)].add(model)
    return {kind: min(models) for kind, models in by_kind.items() if len(models) == 1}


def _find_model(device: str, model_of: Mapping[str, str], only: Mapping[str, str]) -> str:
    """The model of a device, or those at both ends of `cuda:0-cuda:1`, or of all GPUs of a node
    that are called `cuda`. One that is not known is taken for the `only` model of its kind."""
    if model := model_of.get(device):
        return model
    models = {model for name, model in model_of.items() if kind_of_device(name) == device}
    for end in () if models else device.split("-"):
        models.add(model_of.get(end) or only.get(kind_of_device(end), ""))
    return " and ".join(sorted(models - {""}))


def _places(layouts: _Layouts) -> dict[tuple[str, str], list[_Place]]:
    """The places of the samples of each metric and kind of device."""
    only = _only_model(layouts)
    places: defaultdict[tuple[str, str], list[_Place]] = defaultdict(list)
    for (layout, models, alone), indices in layouts.items():
        rows, offset, model_of = np.array(indices), 0, dict(models)
        for metric, device, length in layout.series:
            model = _find_model(device, model_of, only) if alone else ""
            kind = name_kind(kind_of_device(device), model)
            places[metric, kind].append(_Place(rows, device, offset, length))
            offset += length
    return places


def join_units(days: Sequence[Units]) -> Units:
    """Units of one key, those of a device one after the other."""
    position: dict[tuple[Names, str], int] = {}
    unit = np.concatenate(
        [
            np.repeat(
                [
                    position.setdefault(name, len(position))
                    for name in zip(day.participants, day.devices, strict=True)
                ],
                np.diff(day.firsts),
            )
            for day in days
        ]
    )
    size = np.concatenate([np.diff(day.edges) for day in days])
    order = np.argsort(unit, kind="stable")
    return replace(
        days[0],
        participants=tuple(participants for participants, _ in position),
        devices=tuple(device for _, device in position),
        values=_gather(
            np.concatenate([day.values for day in days]), _edges(size)[order], size[order]
        ),
        edges=_edges(size[order]),
        firsts=_edges(np.bincount(unit)),
    )


def _contain_any(places: Ints, begin: Ints, size: Ints) -> Flags:
    """A flag for each piece: does it contain any of these places, which are in ascending order?"""
    held: Flags = np.searchsorted(places, begin + size) > np.searchsorted(places, begin)
    return held


def _edges(sizes: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes)))


def _gather(values: npt.NDArray[T], begin: Ints, size: Ints) -> npt.NDArray[T]:
    """The pieces with these begins and sizes, end to end."""
    before = _edges(size)[:-1]  # the begin of each piece in the result
    gathered: npt.NDArray[T] = values[np.repeat(begin - before, size) + np.arange(size.sum())]
    return gathered


def _sku(participants: Names, plan: Plan) -> str:
    if len(participants) == 1:
        return plan.sku(participants[0])
    return "+".join(sorted({plan.sku(name) for name in participants}))
