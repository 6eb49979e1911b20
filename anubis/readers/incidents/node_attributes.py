"""Attributes of nodes from a table, with what was left out and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from anubis.core.errors import UsageError
from anubis.core.history.attributes import NodeAttributes
from anubis.readers.incidents.incident_intake import Note
from anubis.readers.incidents.incident_mapping import Clock
from anubis.readers.incidents.named_cells import SourceRecords
from anubis.text import hostlist
from anubis.text.tables import Cells, check_keys, choose_columns, fill, parse_columns

TEXTS = ("rack", "cage", "sku")
KEYS = ("node", *TEXTS, "installed")


@dataclass(frozen=True, kw_only=True)
class NodeMapping:
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each key: a heading, or a text with headings in braces. A key that is not
    mapped is the column of its own name, if there is one."""
    clock: Clock = Clock(formats=("iso",), zone="UTC", origin="1970-01-01")

    def __post_init__(self) -> None:
        check_keys(self.columns, KEYS)

    @classmethod
    def parse(cls, columns: Iterable[str], times: Iterable[str] = (), zone: str = "UTC") -> Self:
        """Parse a mapping as the command line writes it: `rack=Rack`."""
        clock = Clock(formats=tuple(times) or ("iso",), zone=zone, origin="1970-01-01")
        return cls(columns=parse_columns(columns), clock=clock)


@dataclass(frozen=True, kw_only=True)
class NodeIntake:
    records: int
    attributes: tuple[NodeAttributes, ...]  # by name
    left_out: tuple[Note, ...]
    remarks: tuple[Note, ...]  # on what was taken nevertheless


def take_in_nodes(
    records: SourceRecords, mapping: NodeMapping, where: str, now: float
) -> NodeIntake:
    """Read attributes of nodes; if a node is listed twice, the last line counts."""
    columns = _bind(mapping, records.columns, where)
    left_out, remarks = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    of_node: dict[str, NodeAttributes] = {}
    for record in records.rows:
        node = fill(columns["node"], record.cells)
        if not hostlist.is_name(node):
            left_out[_unusable(node)].append(record.where)
            continue
        installed, because = _install_date(columns, record.cells, mapping.clock, now)
        if because:
            remarks[because].append(record.where)
        texts = {key: fill(columns[key], record.cells) for key in TEXTS if key in columns}
        attributes = NodeAttributes(node=node, installed=installed, **texts)
        if of_node.setdefault(node, attributes) != attributes:
            remarks["the node is listed twice and otherwise: the last line counts"].append(
                record.where
            )
        of_node[node] = attributes
    for place in records.unreadable:
        left_out["no JSON"].append(place)
    return NodeIntake(
        records=len(records.rows) + len(records.unreadable),
        attributes=tuple(of_node[node] for node in sorted(of_node)),
        left_out=tuple(_notes(left_out)),
        remarks=tuple(_notes(remarks)),
    )


def _bind(mapping: NodeMapping, heading: tuple[str, ...], where: str) -> dict[str, str]:
    """Map each key to its column, as far as the table has them."""
    chosen = choose_columns(mapping.columns, KEYS, heading, where)
    bound = {key: text for key, text in chosen.items() if text}
    if "node" not in bound:
        raise UsageError(f"{where} has no column node: say which one it is, --map node=COLUMN")
    if len(bound) == 1:
        raise UsageError(
            f"{where} has no attributes of nodes: expected a column rack, cage, sku or installed;"
            " say which one it is, such as --map rack=COLUMN"
        )
    return bound


def _unusable(node: str) -> str:
    return f'the name is not a node name: "{node[:40]}"' if node else "no node is named"


def _install_date(
    columns: Mapping[str, str], cells: Cells, clock: Clock, now: float
) -> tuple[float | None, str]:
    """Return the date of installation, or None, and the reason if the cell has no usable date."""
    text = fill(columns.get("installed", ""), cells)
    if not text:
        return None, ""
    moment = clock.read(text)
    if moment is None:
        return None, "the time of installation cannot be read and is left out"
    if moment.at > now:
        return None, "the time of installation is in the future and is left out"
    return moment.at, ""


def _notes(notes: Mapping[str, list[str]]) -> Iterator[Note]:
    for text, where in notes.items():
        yield Note(text=text, where=tuple(where))
