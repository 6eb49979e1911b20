"""Times as files write them: formats, units since an origin, zones and their changes of clocks."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from anubis.core.amounts import DAY_S, HOUR_S

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
