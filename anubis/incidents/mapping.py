"""Which column of a file says what, and how it writes times; read from configs/incidents/."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from anubis.incidents.clock import Clock

NOT_SAID = "unspecified"  # the category of an incident where the file gives none
_PLACE = re.compile(r"\{([^{}]+)\}")

Cells = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """What both kinds of files have. A column is named by its heading, or is a text with
    headings in braces; in JSON a dot goes into a table: `fault.class`."""

    summary: str = ""
    node: str
    category: str | tuple[str, ...] = ""
    times: tuple[str, ...] = ("iso",)
    zone: str = "UTC"
    origin: str = "1970-01-01"
    since: str = ""
    until: str = ""
    size: str | int = ""

    def __post_init__(self) -> None:
        self.clock()

    def clock(self) -> Clock:
        return Clock(formats=self.times, zone=self.zone, origin=self.origin)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Every column that must be there, and which key wants it."""
        several = (self.category,) if isinstance(self.category, str) else self.category
        wanted = [("node", self.node), *(("category", name) for name in several)]
        wanted += [("since", self.since), ("until", self.until), ("size", str(self.size))]
        for key, text in wanted:
            if not text.isdecimal():
                yield from ((name, key) for name in _names(text))

    def node_of(self, cells: Cells) -> str:
        return _filled(self.node, cells)

    def category_of(self, cells: Cells) -> str:
        """What the column says, or the heading of the first of several that says something."""
        if isinstance(self.category, str):
            return _filled(self.category, cells) if self.category else ""
        return next((name for name in self.category if cells.get(name)), "")

    def group_of(self, cells: Cells) -> tuple[str, int]:
        """What the names of a cluster's nodes begin with, and how many nodes it has; 0: not said.

        The last column in the name numbers them.
        """
        size = str(self.size) if str(self.size).isdecimal() else _filled(str(self.size), cells)
        before, brace, _ = self.node.rpartition("{")
        return _filled(before, cells) if brace and before else "", int(
            size
        ) if size.isdecimal() else 0


@dataclass(frozen=True, kw_only=True)
class IntervalMapping(_Columns):
    """A record for each incident, with its start and its end."""

    records: Literal["intervals"]
    start: str
    end: str

    def columns(self) -> Iterator[tuple[str, str]]:
        yield from super().columns()
        yield from ((name, "start") for name in _names(self.start))
        yield from ((name, "end") for name in _names(self.end))


@dataclass(frozen=True, kw_only=True)
class EventMapping(_Columns):
    """A record for the start of an incident and another one for its end."""

    records: Literal["events"]
    event: str
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    time: str

    def columns(self) -> Iterator[tuple[str, str]]:
        yield from super().columns()
        yield from ((name, "event") for name in _names(self.event))
        yield from ((name, "time") for name in _names(self.time))


IncidentMapping = IntervalMapping | EventMapping
KINDS: dict[str, type[IncidentMapping]] = {"intervals": IntervalMapping, "events": EventMapping}


def _names(text: str) -> list[str]:
    return _PLACE.findall(text) or ([text] if text else [])


def _filled(text: str, cells: Cells) -> str:
    """Empty where one of its columns is."""
    if not _PLACE.search(text):
        return cells.get(text, "")
    if not all(cells.get(name) for name in _names(text)):
        return ""
    return _PLACE.sub(lambda place: cells[place[1]], text)
