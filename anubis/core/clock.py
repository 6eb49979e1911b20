"""Whether the time of day can be right, told from how it moved since it was right last.

A wall clock can be set; one that counts the seconds since a machine was started cannot. While the
two disagree nothing is concluded from age: time goes on from the last instant that was trusted, by
the clock that nobody sets. The doubt ends at once when the wall clock is right again, and after an
hour in which it went evenly: then it was wrong before, and somebody has set it right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
TOLERANCE_S = 60.0  # by which clocks of one site may differ
DRIFT = 1e-3  # of the time between; a time service moves a clock by half of it at most
FAR_S = 7 * DAY_S  # beyond it another start of a machine is not believed at once
SETTLED_S = HOUR_S  # in which a clock went evenly that is believed again


@dataclass(frozen=True, kw_only=True)
class ClockReading:
    """Of the clocks of a machine, at one instant."""

    at: float  # by the wall clock, seconds since the epoch
    boot: str = ""  # which start of which machine; empty: unknown
    steady_s: float = 0.0  # since that start, suspends included


@dataclass(frozen=True, kw_only=True)
class KeptClock:
    """What the readings of earlier turns came to."""

    trusted: ClockReading
    doubted: ClockReading | None = (
        None  # the first of those that disagree with it and not with another
    )


@dataclass(frozen=True, kw_only=True)
class Time:
    """By which ages are told."""

    now: float
    before: float  # everything was kept by then: what is dated later than now happened by then
    kept: KeptClock
    doubt: str = ""  # why nothing can be concluded from age, in one sentence; empty: it can


def tell_time(kept: KeptClock | None, reading: ClockReading, *, is_kept: bool = True) -> Time:
    """`kept`: by earlier turns; None: there was none, so the clock is trusted. `is_kept`: what it
    comes to is kept, by a turn. Whoever only asks believes a clock that is far ahead of the last
    turn, which may be long ago, until a turn doubts it: older passes are trusted less anyway."""
    if kept is None:
        return _trusted(reading, before=reading.at)
    if agrees(kept.trusted, reading):
        return _trusted(reading, before=kept.trusted.at)
    doubted = kept.doubted
    if not (is_kept or doubted) and _is_long_after(kept.trusted, reading):
        return replace(_trusted(reading, before=kept.trusted.at), kept=kept)
    if doubted is None or not agrees(doubted, reading):
        doubted = reading
    elif elapsed_s(doubted, reading) >= SETTLED_S:
        return _trusted(reading, before=doubted.at)
    return Time(
        now=kept.trusted.at + _counted_s(kept.trusted, reading),
        before=kept.trusted.at,
        kept=replace(kept, doubted=doubted),
        doubt=_sentence(kept.trusted, reading),
    )


def agrees(earlier: ClockReading, later: ClockReading) -> bool:
    """Whether both can be right."""
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


def _trusted(reading: ClockReading, before: float) -> Time:
    return Time(now=reading.at, before=min(before, reading.at), kept=KeptClock(trusted=reading))


def _counted_s(trusted: ClockReading, reading: ClockReading) -> float:
    """Nothing, if nobody counted."""
    if not is_same_boot(trusted, reading):
        return 0.0
    return max(0.0, reading.steady_s - trusted.steady_s)


def _sentence(trusted: ClockReading, reading: ClockReading) -> str:
    moved_s = reading.at - trusted.at - _counted_s(trusted, reading)
    way = "ahead" if moved_s > 0 else "back"
    if is_same_boot(trusted, reading):
        moved = (
            f"the wall clock moved {_long(moved_s)} {way} against the seconds since this machine"
            f" was started, since it said {_moment(trusted.at)}"
        )
    else:
        side = "after" if moved_s > 0 else "before"
        moved = (
            f"the wall clock says {_moment(reading.at)}, {_long(moved_s)} {side} the keeper's last"
            " turn, which another machine took or this one before it was started again"
        )
    return f"{moved}: nothing is concluded from age until it is right, or has gone evenly for 1 h"


def _long(seconds: float) -> str:
    size = abs(seconds)
    if size >= 2 * DAY_S:
        return f"{size / DAY_S:.0f} days"
    if size >= 2 * HOUR_S:
        return f"{size / HOUR_S:.0f} h"
    return f"{size / 60:.0f} min"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
