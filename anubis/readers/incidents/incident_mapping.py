"""The mapping of a file: what each column means, and how it writes times: formats, units since an
origin, zones and their changes of clocks. It is read from configs/incidents/."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import ClassVar, Literal, NamedTuple
from zoneinfo import ZoneInfo

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.text import hostlist
from anubis.text.tables import Cells, columns_in, fill

UNITS_S = {
    "nanoseconds": 1e-9,
    "microseconds": 1e-6,
    "milliseconds": 1e-3,
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": HOUR_S,
    "days": DAY_S,
}
EPOCH = "1970-01-01"  # of Unix, which is the same instant in every zone
DATE_DIGITS = 8  # of a date such as 20261120; more are a number of seconds or less


class Moment(NamedTuple):
    """Seconds since the epoch. In the hour that a change of clocks repeats, a local time has two
    readings, the first of them in `at`; so it has in the hour that is left out."""

    at: float
    otherwise: float

    @property
    def doubtful(self) -> bool:
        return self.at != self.otherwise


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A reader of times that uses the first fitting format: `iso`, a pattern of strptime, or a unit
    of time, for numbers of these since the origin. A time without a zone is in the clock's."""

    formats: tuple[str, ...]
    zone: str
    origin: str

    def __post_init__(self) -> None:
        if not self.formats:
            raise ValueError('"times" is empty: give "iso", a unit, or a pattern like "%Y-%m-%d"')
        for pattern in self.formats:
            if pattern not in ("iso", *UNITS_S) and "%" not in pattern:
                words = ", ".join(["iso", *UNITS_S])
                raise ValueError(f'"times" has "{pattern}", expected a pattern with % or {words}')
        _zone(self.zone)
        _start(self.origin, self.zone)

    def read(self, text: str) -> Moment | None:
        """Return the moment of a text; None if it fits no format."""
        for pattern in self.formats:
            with suppress(ValueError, OverflowError):
                if pattern in UNITS_S:
                    return self._number(text, UNITS_S[pattern])
                return self._date(text, pattern)
        return None

    def _number(self, text: str, unit_s: float) -> Moment:
        at = _start(self.origin, self.zone) + float(text) * unit_s
        if not math.isfinite(at):
            raise ValueError(text)
        return Moment(at, at)

    def _date(self, text: str, pattern: str) -> Moment:
        if pattern == "iso":
            if text.isdigit() and len(text) > DATE_DIGITS:
                raise ValueError(text)  # Python reads 1711111111000 as 10:00 in the year 1711
            return _moment(datetime.fromisoformat(text), self.zone)
        # spreadsheets write the year 2002 as 2, and strptime wants two digits
        padded = f"0{text}" if text[:1].isdigit() and not text[1:2].isdigit() else text
        return _moment(datetime.strptime(padded, pattern), self.zone)


def _moment(read: datetime, zone: str) -> Moment:
    if read.tzinfo:
        return Moment(read.timestamp(), read.timestamp())
    local = read.replace(tzinfo=_zone(zone))
    return Moment(local.timestamp(), local.replace(fold=1).timestamp())


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f'"zone" is "{name}", expected a name like "Europe/Berlin" or "UTC"'
        ) from None


@cache
def _start(origin: str, zone: str) -> float:
    if origin == EPOCH:
        return 0.0
    try:
        read = datetime.fromisoformat(origin)
    except ValueError:
        raise ValueError(f'"origin" is "{origin}", expected a date like "2024-03-30"') from None
    return _moment(read, zone).at


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

    def node_of(self, cells: Cells) -> str:
        """Return the name of the node; monitors write the port of an exporter behind it."""
        return hostlist.drop_port(fill(self.node, cells))

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
    """Other values of `end` if the incident is not over, and of `start` if there was none."""
    status: str = ""
    """A column that states if the incident is over, whatever the value of `end`."""
    still_open: tuple[str, ...] = ()
    """Values of `status` if the incident is not over."""

    KEYS: ClassVar = (*_Columns.KEYS, "start", "end")


@dataclass(frozen=True, kw_only=True)
class EventMapping(_Columns):
    """A record for the start of an incident and another one for its end."""

    records: Literal["events"]
    event: str
    """The column that says whether an incident begins or ends."""
    starts: tuple[str, ...]
    """Its value at the start of an incident."""
    ends: tuple[str, ...]
    """Its value at the end of an incident."""
    time: str
    """When it happened."""

    KEYS: ClassVar = (*_Columns.KEYS, "event", "time")


IncidentMapping = IntervalMapping | EventMapping
KINDS: dict[str, type[IncidentMapping]] = {"intervals": IntervalMapping, "events": EventMapping}
