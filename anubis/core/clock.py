"""Decide if the wall clock can be right, from its movement since it was last trusted.

A wall clock can be set; a steady clock, which counts the seconds since a machine was started,
cannot. While the two disagree, nothing is concluded from age: time goes on from the last trusted
instant, by the steady clock. The doubt ends at once when the wall clock is right again. It also
ends after an hour in which the wall clock ran evenly: then it was wrong before, and somebody has
set it right. Records of the time in doubt are then dated anew, so that nothing is lost and their
order stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anubis.core.amounts import DAY_S, HOUR_S

TOLERANCE_S = 60.0  # clocks of one site may differ by this
DRIFT = 1e-3  # share of the elapsed time; a time service moves a clock by at most half of it
FAR_S = 7 * DAY_S  # after a longer gap, a restarted machine is not trusted at once
SETTLED_S = HOUR_S  # a clock that ran evenly for so long is trusted again


@dataclass(frozen=True, kw_only=True)
class ClockReading:
    """The clocks of a machine at one instant."""

    at: float  # by the wall clock, seconds since the epoch
    boot: str = ""  # the machine and its start; empty: unknown
    steady_s: float = 0.0  # since that start, including suspended time


@dataclass(frozen=True, kw_only=True)
class KeptClock:
    """The state that follows from earlier readings: those of a keeper's turns, or of records while
    no keeper takes turns."""

    trusted: ClockReading
    doubted: ClockReading | None = (
        None  # the first reading that disagrees with it; later ones agree with this
    )
    guarded: ClockReading | None = None  # the last in doubt, with the time that was given then
    since: float = -math.inf  # later dates are by this clock
    older: float = -math.inf  # the last date before that, by any clock
    ahead_s: float = 0.0  # error of the clock of older dates


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A shift of the dates in a stretch of time."""

    after: float  # exclusive
    until: float  # inclusive
    by_s: float
    floor: float = -math.inf  # none comes before it


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A correction of dates given by another clock than the one trusted now. It keeps their order.
    If the other clock is trusted again, another correction reverts it."""

    shifts: tuple[Shift, ...]

    @property
    def begins_after(self) -> float:
        """The date up to which all dates stay."""
        return min(shift.after for shift in self.shifts)

    @property
    def until(self) -> float:
        """The time at which the correction is made."""
        return max(shift.until for shift in self.shifts)

    def carry(self, at: float) -> float:
        """Return the corrected end of something that lasts beyond the correction: the rest stays as
        long."""
        return self.date(min(at, self.until)) + max(0.0, at - self.until)

    def date(self, at: float) -> float:
        meant = (shift for shift in self.shifts if shift.after < at <= shift.until)
        return next((max(at + shift.by_s, shift.floor) for shift in meant), at)


@dataclass(frozen=True, kw_only=True)
class Time:
    """The time by which ages are computed."""

    now: float
    before: float  # events with a date later than now happened before this
    kept: KeptClock
    doubt: str = ""  # why ages are unknown, in one sentence; empty: they are known
    correction: Correction | None = None  # of earlier dates, when a doubt ends


def tell_time(
    kept: KeptClock | None,
    reading: ClockReading,
    *,
    is_turn: bool = True,
    latest: float = -math.inf,
) -> Time:
    """The time by a reading. `kept` is the state of earlier readings; if it is None, there are
    none, and the clock is trusted. `latest` is the last date of the records kept before any
    reading. `is_turn` is true in a turn after the first, which stores the result. Any other request
    trusts a clock that is far ahead of the last reading, which may be long ago, until a turn doubts
    it: older passes count less anyway."""
    if kept is None:
        first = _trust(reading, before=reading.at)
        since = math.nextafter(reading.at, -math.inf)
        return replace(first, kept=replace(first.kept, since=since, older=min(latest, since)))
    now, doubted = _guarded_time(kept, reading), kept.doubted
    is_trusted = not (is_turn or doubted) and _is_long_after(kept.trusted, reading)
    if is_trusted or agrees(kept.trusted, reading):
        return _believe(kept, reading, now, before=kept.trusted.at)
    if doubted is None or not agrees(doubted, reading):
        doubted = reading
    elif elapsed_s(doubted, reading) >= SETTLED_S:
        return _believe(kept, reading, now, before=doubted.at)
    return Time(
        now=now,
        before=kept.trusted.at,
        kept=replace(kept, doubted=doubted, guarded=replace(reading, at=now)),
        doubt=_sentence(kept.trusted, reading),
    )


def has_to_be_kept(time: Time, kept: KeptClock | None, reading: ClockReading) -> bool:
    """Return whether a record keeps the reading by which it is dated, if no keeper takes turns: the
    first one, the begin and the end of a doubt, and otherwise one an hour. One machine goes on as
    the reference until it has kept nothing for a day."""
    if kept is None or (kept.doubted and not time.doubt):
        return True
    if time.doubt:
        is_own = kept.doubted is None or is_same_boot(kept.doubted, reading)
        return is_own and time.kept.doubted != kept.doubted
    patience_s = SETTLED_S if is_same_boot(kept.trusted, reading) else DAY_S
    return reading.at - kept.trusted.at >= patience_s


def agrees(earlier: ClockReading, later: ClockReading) -> bool:
    """True if both readings can be right."""
    moved = later.at - earlier.at
    if not is_same_boot(earlier, later):  # the machine may have been off
        return -TOLERANCE_S <= moved <= FAR_S
    counted = later.steady_s - earlier.steady_s
    return abs(moved - counted) <= TOLERANCE_S + DRIFT * abs(counted)


def _is_long_after(earlier: ClockReading, later: ClockReading) -> bool:
    return not is_same_boot(earlier, later) and later.at - earlier.at > FAR_S


def is_same_boot(earlier: ClockReading, later: ClockReading) -> bool:
    return bool(earlier.boot) and earlier.boot == later.boot


def elapsed_s(earlier: ClockReading, later: ClockReading) -> float:
    if is_same_boot(earlier, later):
        return later.steady_s - earlier.steady_s
    return later.at - earlier.at


def _trust(reading: ClockReading, before: float) -> Time:
    return Time(now=reading.at, before=min(before, reading.at), kept=KeptClock(trusted=reading))


def _guarded_time(kept: KeptClock, reading: ClockReading) -> float:
    """The time if the wall clock is not trusted: it stops while no clock counts."""
    last = kept.guarded or kept.trusted
    return last.at + _steady_elapsed_s(last, reading)


def _believe(kept: KeptClock, reading: ClockReading, guarded: float, before: float) -> Time:
    """The time when the wall clock is trusted, from now on or still. `guarded`: the time without
    the wall clock."""
    time = _trust(reading, before)
    clock, shifts = _shifts(kept, reading, guarded)
    shifts = [shift for shift in shifts if shift.after < shift.until]
    return replace(
        time,
        kept=replace(clock, trusted=reading, doubted=None, guarded=None),
        correction=Correction(shifts=tuple(shifts)) if shifts else None,
    )


def _shifts(
    kept: KeptClock, reading: ClockReading, guarded: float
) -> tuple[KeptClock, list[Shift]]:
    """The state of the trusted clock, and the shifts of earlier dates."""
    by_s, last = reading.at - guarded, kept.trusted.at
    in_doubt = Shift(after=last, until=guarded, by_s=by_s)
    is_same = is_same_boot(kept.trusted, reading)
    if agrees(kept.trusted, reading):
        return kept, [in_doubt] if not is_same and abs(by_s) > TOLERANCE_S else []
    if by_s > 0 and not is_same:  # the machine was off: older dates stay
        return replace(kept, since=last + by_s, older=last, ahead_s=0.0), [in_doubt]
    if by_s > 0 and abs(kept.ahead_s) <= TOLERANCE_S:  # older dates may be right
        return replace(kept, since=last + by_s, older=last, ahead_s=by_s), [in_doubt]
    since, ahead_s = kept.since + by_s, kept.ahead_s + by_s
    if since >= kept.older - TOLERANCE_S:  # also what was told late, as of before that
        by_this_clock = replace(in_doubt, after=kept.older, floor=kept.older)
        return replace(kept, since=since, ahead_s=ahead_s), [by_this_clock]
    by_this_clock = replace(in_doubt, after=kept.since)
    before = Shift(after=-math.inf, until=kept.older, by_s=ahead_s)  # or the order would be lost
    return replace(kept, since=-math.inf, older=-math.inf, ahead_s=ahead_s), [by_this_clock, before]


def _steady_elapsed_s(earlier: ClockReading, reading: ClockReading) -> float:
    """The seconds that the steady clock counted; 0 if it did not run throughout."""
    if not is_same_boot(earlier, reading):
        return 0.0
    return max(0.0, reading.steady_s - earlier.steady_s)


def _sentence(trusted: ClockReading, reading: ClockReading) -> str:
    moved_s = reading.at - trusted.at - _steady_elapsed_s(trusted, reading)
    way = "ahead" if moved_s > 0 else "back"
    if is_same_boot(trusted, reading):
        moved = (
            f"the wall clock moved {_length(moved_s)} {way} against the seconds since this machine"
            f" was started, since it said {_moment(trusted.at)}"
        )
    else:
        side = "after" if moved_s > 0 else "before"
        moved = (
            f"the wall clock says {_moment(reading.at)}, {_length(moved_s)} {side} the time that"
            " was last kept, by another machine or by this one before it was started again"
        )
    return (
        f"{moved}; correct it: until it is right, or has run evenly for 1 h, nothing is concluded"
        " from age"
    )


def _length(seconds: float) -> str:
    size = abs(seconds)
    if size >= 2 * DAY_S:
        return f"{size / DAY_S:.0f} days"
    if size >= 2 * HOUR_S:
        return f"{size / HOUR_S:.0f} h"
    return f"{size / 60:.0f} min"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
