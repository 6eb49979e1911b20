"""The mapping of a table of measurements: what each column means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, get_args

from anubis.core.errors import UsageError
from anubis.core.records import Direction, MetricSpec
from anubis.text.tables import (
    check_keys,
    choose_columns,
    columns_in,
    fill,
    parse_columns,
    refuse_absent,
)

KEYS = ("node", "device", "metric", "value", "unit", "direction", "sku", "time")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
IDENTITY = ("node", "device", "metric", "unit", "direction", "sku")  # what a sample belongs to

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
    def of(cls, columns: Iterable[str], metrics: Iterable[str] = (), *, sku: str = "") -> Self:
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
