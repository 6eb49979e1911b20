"""The mapping of a file: what each column means, and how it writes times; read from
configs/incidents/."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from anubis.readers.incidents.time_formats import Clock
from anubis.text.tables import Cells, columns_in, fill

NOT_SAID = "unspecified"  # the category of an incident where the file gives none


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """The fields that both kinds of files have. A column is named by its heading, or is a text with
    headings in braces; in JSON a dot goes into a table: `fault.class`."""

    summary: str = ""
    """What the file is, in one line."""
    node: str
    """The node's name."""
    category: str | tuple[str, ...] = ""
    """What went wrong; or several columns, of which the first that is not empty gives its
    heading."""
    times: tuple[str, ...] = ("iso",)
    """How times are written, tried in turn: `iso`, a pattern of strptime, or a number of
    nanoseconds, microseconds, milliseconds, seconds, minutes, hours or days since `origin`."""
    zone: str = "UTC"
    """The time zone of times that name none."""
    origin: str = "1970-01-01"
    """When numbers of seconds or days begin. 1970-01-01 begins in UTC, any other day in `zone`."""
    since: str = ""
    """The time since which a node was watched. Default: the first time in the file."""
    until: str = ""
    """The time until which a node was watched. Default: the last time in the file."""
    size: str | int = ""
    """How many nodes there are: a number, or a column. Nodes without a record were well all the
    time."""

    KEYS: ClassVar[tuple[str, ...]] = ("node", "category", "since", "until")  # that name columns

    def __post_init__(self) -> None:
        self.clock()

    def clock(self) -> Clock:
        return Clock(formats=self.times, zone=self.zone, origin=self.origin)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield every column that must be there, and the key that needs it."""
        for key in self.KEYS:
            value = getattr(self, key)
            for text in (value,) if isinstance(value, str) else value:
                yield from ((name, key) for name in columns_in(text))
        if not str(self.size).isdecimal():
            yield from ((name, "size") for name in columns_in(str(self.size)))

    def category_of(self, cells: Cells) -> str:
        """Return the text of the column or, if there are several columns, the heading of the first
        that is not empty."""
        if isinstance(self.category, str):
            return fill(self.category, cells)
        return next((name for name in self.category if cells.get(name)), "")

    def cluster_of(self, cells: Cells) -> str:
        """Return the common begin of the names of a cluster's nodes: the last column in them
        numbers them."""
        return fill(self.node.rpartition("{")[0], cells)

    def size_of(self, cells: Cells) -> int:
        """Return the number of nodes of the cluster; 0 if it is not known."""
        size = str(self.size)
        size = size if size.isdecimal() else fill(size, cells)
        return int(size) if size.isdecimal() else 0


@dataclass(frozen=True, kw_only=True)
class IntervalMapping(_Columns):
    """A record for each incident, with its start and its end."""

    records: Literal["intervals"]
    start: str
    """When the incident began; an empty cell beside a time in `since` means that the node had
    none."""
    end: str
    """When it was over; an empty cell means not yet."""
    not_over: tuple[str, ...] = ()
    """What else `end` says where the incident is not over, and `start` where there was none."""

    KEYS: ClassVar = (*_Columns.KEYS, "start", "end")


@dataclass(frozen=True, kw_only=True)
class EventMapping(_Columns):
    """A record for the start of an incident and another one for its end."""

    records: Literal["events"]
    event: str
    """The column that says whether an incident begins or ends."""
    starts: tuple[str, ...]
    """What it says where an incident begins."""
    ends: tuple[str, ...]
    """What it says where an incident is over."""
    time: str
    """When it happened."""

    KEYS: ClassVar = (*_Columns.KEYS, "event", "time")


IncidentMapping = IntervalMapping | EventMapping
KINDS: dict[str, type[IncidentMapping]] = {"intervals": IntervalMapping, "events": EventMapping}
