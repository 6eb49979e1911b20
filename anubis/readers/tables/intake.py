"""A table of measurements, read: the mapping, which says what each column means, the samples in
columns from the rows, and which lines are wrong and why.

Text is dropped line by line: of a sample only its number and its place are kept.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Self, get_args

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.errors import UsageError
from anubis.core.records import Direction, MetricSpec, Samples
from anubis.readers.incidents.incident_mapping import Clock
from anubis.text import hostlist
from anubis.text.tables import (
    Table,
    check_keys,
    choose_columns,
    columns_in,
    fill,
    open_table,
    parse_columns,
    parse_number,
    refuse_absent,
)
from anubis.text.wording import names

KEYS = ("node", "device", "gpu_model", "metric", "value", "unit", "direction", "sku", "time")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
# what a sample belongs to
IDENTITY = ("node", "device", "gpu_model", "metric", "unit", "direction", "sku")

TableRow = Sequence[str]
ReadCell = Callable[[TableRow], str]


@dataclass(frozen=True, kw_only=True)
class TableMapping:
    """The columns of a table. A long table has a sample on each line, and names its metric; a wide
    one has a column for each metric."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each key: a heading, or a text with headings in braces. A key that is not
    mapped is the column of its own name, if there is one."""
    metrics: tuple[MetricSpec, ...] = ()
    """Those to take, of all that the table has; without any, the table says what they are."""
    sku: str = ""
    """The kind of all nodes, if no column has it."""

    @classmethod
    def parse(cls, columns: Iterable[str], metrics: Iterable[str] = (), *, sku: str = "") -> Self:
        """Parse a mapping as the command line writes it: `node=host`, `step_ms=lower,ms`."""
        return cls(columns=parse_columns(columns), metrics=tuple(map(_metric, metrics)), sku=sku)

    def __post_init__(self) -> None:
        check_keys(self.columns, KEYS)


class BoundMapping(NamedTuple):
    """A mapping with the places of its columns in the heading of a table."""

    identity: Mapping[str, ReadCell]
    cells: tuple[int, ...]  # the columns that the identity is made of
    values: tuple[tuple[int, str], ...]  # where values stand, and of which metric: "" if told
    time: ReadCell | None


def bind(mapping: TableMapping, heading: Sequence[str], where: str) -> BoundMapping:
    chosen = choose_columns(mapping.columns, KEYS, heading, where)
    _refuse_insufficient(mapping, chosen, where)
    identity = {key: chosen[key] for key in IDENTITY if chosen[key]}
    names = dict.fromkeys(name for text in identity.values() for name in columns_in(text))
    return BoundMapping(
        identity={key: _picker(text, heading) for key, text in identity.items()},
        cells=tuple(map(heading.index, names)),
        values=tuple(_values(mapping, chosen, heading, where)),
        time=_picker(chosen["time"], heading) if chosen["time"] else None,
    )


def _metric(text: str) -> MetricSpec:
    name, _, meaning = (part.strip() for part in text.rpartition("="))
    word, _, unit = (part.strip() for part in meaning.partition(","))
    direction = next((direction for direction in DIRECTIONS if direction == word), None)
    if not name or not direction:
        raise UsageError(
            f'--metric is "{text}", expected NAME=DIRECTION[,UNIT] such as step_ms=lower,ms; '
            f"directions: {', '.join(DIRECTIONS)}"
        )
    return MetricSpec(name=name, unit=unit, direction=direction)


def _values(
    mapping: TableMapping, chosen: Mapping[str, str], heading: Sequence[str], where: str
) -> list[tuple[int, str]]:
    """Return the one column of values of a long table, or a column for each metric of a wide
    one."""
    if chosen["metric"]:
        return [(heading.index(chosen["value"]), "")]
    names = [metric.name for metric in mapping.metrics] or [chosen["value"]]
    for name in names:
        refuse_absent("metric", name, heading, where)
    return [(heading.index(name), name) for name in names]


def _refuse_insufficient(mapping: TableMapping, chosen: Mapping[str, str], where: str) -> None:
    if not chosen["node"]:
        raise UsageError(f"{where} has no column node: say which one it is, --map node=COLUMN")
    if not chosen["value"] and (chosen["metric"] or not mapping.metrics):
        raise UsageError(
            f"{where} has no column value: say which one it is, --map value=COLUMN; or name the "
            "columns that are metrics, such as --metric step_ms=lower,ms"
        )
    if chosen["value"] and len(columns_in(chosen["value"])) > 1:
        raise UsageError(f'--map: value is "{chosen["value"]}", expected one column')
    if not chosen["sku"] and not mapping.sku:
        raise UsageError(
            f"{where} does not say the kind of its nodes, and only nodes of one kind are"
            f" compared: name it, such as --sku a100-sxm-8x, or map a column, --map sku=COLUMN"
        )


def _picker(text: str, heading: Sequence[str]) -> ReadCell:
    """Return a reader of the cell that a column, or a text with columns in it, gives for a row."""
    names = columns_in(text)
    places = [heading.index(name) for name in names]
    if names == [text]:
        (place,) = places
        return lambda row: row[place].strip()
    return lambda row: fill(
        text, {name: row[place].strip() for name, place in zip(names, places, strict=True)}
    )


WHOLE = "node"  # the device of a measurement that names none
PART = "device"  # the kind of a device that is only numbered
NO_UNIT = "units"
TIMES = Clock(formats=("seconds", "iso"), zone="UTC", origin="1970-01-01")
ENOUGH_WRONG = 1000  # lines: a person needs no more of them
OTHERWISE = "wrong for other reasons"
LINES_NAMED = 20  # of each kind of mistake
SUPERBENCH = "; SuperBench's results are read by anubis history import superbench"
LONGEST = 60  # characters of a foreign cell in a sentence
UNKNOWN = -1  # the place of samples of a metric that was not asked for


class SeriesName(NamedTuple):
    node: str
    metric: str
    device: str


@dataclass
class WrongLines:
    """Lines that are wrong for one reason."""

    reason: str
    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first of them

    def __str__(self) -> str:
        word = "line" if self.count == 1 else "lines"
        shown = names([str(line) for line in self.lines], LINES_NAMED)
        more = self.count - len(self.lines)
        return f"{word} {shown}{f' and {more:,} more' if more else ''}: {self.reason}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ForeignTable:
    skus: Mapping[str, str]  # by node, in the order of the table
    metrics: Mapping[str, MetricSpec]
    series: Sequence[SeriesName]
    places: Ints  # of each sample, its series
    samples: Samples
    models: Mapping[str, Mapping[str, str]]  # by node and device
    spans: Mapping[str, tuple[float, float]]  # by node: from when until when it was measured
    wrong: Sequence[WrongLines]
    unread: Mapping[str, str]  # by node: why something that it measured could not be read
    passed_over: Sequence[str]  # metrics that were not asked for


def read(
    path: Path, mapping: TableMapping, now: float, *, skip_wrong: bool = False
) -> ForeignTable:
    """Read all of the table. Unless wrong lines are skipped, look at them before anything is
    kept."""
    with open_table(path, UsageError, otherwise=SUPERBENCH) as stream:
        desk = _Desk(stream, mapping, now)
        desk.read(math.inf if skip_wrong else ENOUGH_WRONG)
    if not desk.samples and not desk.wrong:
        raise UsageError(f"{stream.where} has no measurement{desk.asked_in_vain()}")
    return ForeignTable(
        skus=desk.skus,
        metrics=desk.metrics,
        series=tuple(desk.series),
        places=np.frombuffer(desk.places, dtype=np.int32),
        samples=np.frombuffer(desk.samples, dtype=np.float64),
        models=desk.models,
        spans=desk.spans,
        wrong=tuple(desk.wrong.values()),
        unread=desk.unread,
        passed_over=tuple(desk.passed_over),
    )


class _WrongLineError(Exception):
    """A line that says nothing; `node`: the node that it names."""

    def __init__(self, reason: str, node: str = "") -> None:
        super().__init__(reason)
        self.node = node


class _Origin(NamedTuple):
    """What lines with the same identity have in common."""

    node: str
    places: tuple[int, ...]
    wrong: str


class _Desk:
    """The place where the rows of a table are sorted."""

    def __init__(self, stream: Table, mapping: TableMapping, now: float) -> None:
        self._stream, self._mapping, self._now = stream, mapping, now
        self._bound: BoundMapping = bind(mapping, stream.heading, stream.where)
        self._asked = {metric.name: metric for metric in mapping.metrics}
        self._columns = [column for column, _ in self._bound.values]
        self._identify = itemgetter(*self._bound.cells)
        self._origins: dict[object, _Origin] = {}
        self._instant = lru_cache(1 << 16)(TIMES.read)
        self.skus: dict[str, str] = {}
        self.models: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.metrics: dict[str, MetricSpec] = {}
        self.series: list[SeriesName] = []
        self._places: dict[SeriesName, int] = {}
        self.places, self.samples = array("i"), array("d")
        self.spans: dict[str, tuple[float, float]] = {}
        self.wrong: dict[str, WrongLines] = {}
        self._count_wrong = 0
        self.unread: dict[str, str] = {}
        self.passed_over: dict[str, None] = {}

    def read(self, enough_wrong: float) -> None:
        for row in self._stream:
            try:
                self._take(row)
            except _WrongLineError as wrong:
                self._leave_out(str(wrong), wrong.node)
            except IndexError:
                self._leave_out(self._stream.misfit(row))
            if self._count_wrong >= enough_wrong:
                return

    def asked_in_vain(self) -> str:
        if not self.passed_over:
            return ""
        return f" of {names(list(self._asked))}: its metrics are {names(list(self.passed_over))}"

    def _leave_out(self, reason: str, node: str = "") -> None:
        line = self._stream.line
        listed = reason if reason in self.wrong or len(self.wrong) < ENOUGH_WRONG else OTHERWISE
        wrong = self.wrong.setdefault(listed, WrongLines(listed))
        wrong.count += 1
        self._count_wrong += 1
        if len(wrong.lines) < LINES_NAMED:
            wrong.lines.append(line)
        if node:
            self.unread.setdefault(node, f"line {line}: {reason}")

    def _take(self, row: TableRow) -> None:
        cells = self._identify(row)
        origin = self._origins.get(cells)
        if origin is None:
            origin = self._origins[cells] = self._meet(row)
        if origin.wrong:
            raise _WrongLineError(origin.wrong, origin.node)
        if self._bound.time:
            self._note_time(self._bound.time(row), origin.node)
        for column, place in zip(self._columns, origin.places, strict=True):
            if place == UNKNOWN:
                continue
            value = parse_number(row[column])
            if value > 0:
                self.places.append(place)
                self.samples.append(value)
            else:
                self._leave_out_value(row[column].strip(), place)

    def _leave_out_value(self, cell: str, place: int) -> None:
        """Leave a value out; a wide table has an empty cell for what was not measured, too."""
        if not cell and self._bound.values[0][1]:
            return
        node, metric, device = self.series[place]
        self._leave_out(
            f'{metric} on {device} of {node} is "{cell[:LONGEST]}", expected a positive finite '
            "number",
            node,
        )

    def _note_time(self, text: str, node: str) -> None:
        moment = self._instant(text)
        if moment is None:
            raise _WrongLineError(
                f'time "{text[:LONGEST]}" cannot be read, expected one like 2026-11-01T08:00 or '
                "seconds since 1970",
                node,
            )
        if moment.at > self._now:
            raise _WrongLineError(f'time "{text[:LONGEST]}" is in the future', node)
        first, last = self.spans.get(node, (moment.at, moment.at))
        self.spans[node] = min(first, moment.at), max(last, moment.at)

    # --- what is met for the first time ----------------------------------------------------

    def _meet(self, row: TableRow) -> _Origin:
        cells = {key: pick(row) for key, pick in self._bound.identity.items()}
        node = cells["node"]
        try:
            self._meet_node(node, cells.get("sku") or self._mapping.sku)
            self._meet_model(node, _device(cells.get("device", "")), cells.get("gpu_model", ""))
            places = tuple(
                self._place(node, metric or cells["metric"], cells)
                for _, metric in self._bound.values
            )
        except _WrongLineError as wrong:
            return _Origin(wrong.node, (), str(wrong))
        return _Origin(node, places, "")

    def _meet_node(self, node: str, sku: str) -> None:
        if not hostlist.is_name(node):
            raise _WrongLineError(
                f'node "{node[:LONGEST]}" is no name: letters, digits, dots, dashes, underscores'
                if node
                else "it names no node"
            )
        if not sku:
            raise _WrongLineError(f"it names no sku of {node}", node)
        before = self.skus.setdefault(node, sku)
        if before != sku:
            raise _WrongLineError(f'{node} is of sku "{sku}" here and "{before}" elsewhere', node)

    def _meet_model(self, node: str, device: str, model: str) -> None:
        before = self.models[node].setdefault(device, model) if model else ""
        if before != model:
            raise _WrongLineError(
                f'{device} of {node} is a "{model[:LONGEST]}" here and a "{before}" elsewhere', node
            )

    def _place(self, node: str, metric: str, cells: Mapping[str, str]) -> int:
        """Return the place of the samples of a metric on this node and device."""
        if not metric:
            raise _WrongLineError("it names no metric", node)
        family = metric.partition(":")[0]
        declared = self._asked.get(metric) or self._asked.get(family)
        if self._asked and not declared:
            self.passed_over[metric] = None
            return UNKNOWN
        spec = _spec(family, declared, cells, node)
        before = self.metrics.setdefault(family, spec)
        if before != spec:
            raise _WrongLineError(
                f'metric "{metric}" is {spec.meaning} here and {before.meaning} elsewhere', node
            )
        name = SeriesName(node, metric, _device(cells.get("device", "")))
        if name not in self._places:  # lines may spell one thing in several ways
            self._places[name] = len(self.series)
            self.series.append(name)
        return self._places[name]


def _spec(
    family: str, declared: MetricSpec | None, cells: Mapping[str, str], node: str
) -> MetricSpec:
    word = declared.direction if declared else cells.get("direction", "")
    direction = next((direction for direction in DIRECTIONS if direction == word), None)
    if not direction:
        problem = f'has the direction "{word[:LONGEST]}"' if word else "has no direction"
        raise _WrongLineError(
            f'metric "{family[:LONGEST]}" {problem}: expected higher, lower or either, in a column '
            f"or as --metric {family[:LONGEST]}=lower",
            node,
        )
    unit = (declared.unit if declared else "") or cells.get("unit", "") or NO_UNIT
    return MetricSpec(name=family, unit=unit, direction=direction)


def _device(cell: str) -> str:
    """Return `gpu:3` as it is; `3` and `GPU-8b39353e` are devices of one unnamed kind."""
    if not cell:
        return WHOLE
    return cell if ":" in cell else f"{PART}:{cell}"
