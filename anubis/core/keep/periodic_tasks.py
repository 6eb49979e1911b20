"""Periodic work of the keeper: its due times and its records.

Due times are on a grid of UTC that does not depend on when a service began: `every: 1d` is due each
day at the stated time, `every: 7d` on Mondays. Missed times are made up for once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import time
from enum import StrEnum

from anubis.core.amounts import DAY_S, HOUR_S, seconds_of

MONDAY_S = 4 * DAY_S  # the first one of the epoch
SHORTEST_S = 600.0  # a sweep or learning takes minutes, and must end before it is due again
MOST_TRIES = 3  # for work whose process died


class PeriodicTask(StrEnum):
    SWEEP = "sweep"  # the idle nodes most at risk, tested within a budget
    CRITERIA = "criteria"  # learned again from what was measured lately
    RISK = "risk"  # the risk model, trained again and judged
    PINGS = "pings"  # of the agents' standing mesh, judged and planned again


class PeriodicTaskEnd(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"  # nothing was worth doing
    PROPOSED = "proposed"  # a person decides
    FAILED = "failed"  # it is tried again at the next time


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskRecord:
    task: PeriodicTask
    due: float
    began: float
    ended: float | None = None  # None: it runs, or its process died
    end: PeriodicTaskEnd | None = None
    tries: int = 1  # starts, more than one if its process died
    sentence: str = ""
    campaign: str = ""  # of a sweep
    proposal: str = ""  # the folder of criteria, or the file of a model


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """When periodic work is due."""

    every: str
    """How often: 12h, 1d, 7d."""
    at: str = "00:00"
    """The time of day at which it is due, in quotes, UTC."""

    @property
    def every_s(self) -> float:
        return seconds_of(self.every)

    @property
    def begins_s(self) -> float:
        """A time at which it was due."""
        of_day = time.fromisoformat(self.at)
        return MONDAY_S + of_day.hour * HOUR_S + of_day.minute * 60

    def __post_init__(self) -> None:
        if self.every_s < SHORTEST_S:
            raise ValueError(f'every is "{self.every}", expected a time from 10m on, such as 12h')
        try:
            self.begins_s  # noqa: B018 # is read to be refused
        except ValueError:
            raise ValueError(f'at is "{self.at}", expected a time such as "02:30"') from None


def latest_due(rhythm: Rhythm, now: float) -> float:
    """The last due time up to now."""
    passed = math.floor((now - rhythm.begins_s) / rhythm.every_s)
    return rhythm.begins_s + passed * rhythm.every_s


def next_due(rhythm: Rhythm, now: float) -> float:
    return latest_due(rhythm, now) + rhythm.every_s


def due_now(rhythm: Rhythm, last: PeriodicTaskRecord | None, now: float) -> float | None:
    """Due time of the work that must be done now; None: it was done already, with any result."""
    due = latest_due(rhythm, now)
    return due if last is None or last.due < due else None


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskState:
    """State of a kind of periodic work."""

    cluster: str
    task: PeriodicTask
    last: PeriodicTaskRecord | None
    succeeded_at: float | None  # when it last ended without failing
    next_at: float | None  # None: the policy states no times
