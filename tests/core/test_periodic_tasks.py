"""Times at which periodic work is due: on a grid of UTC, and once for each time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.keep.keeping_policy import KeepingPolicy, SweepTask
from anubis.core.keep.periodic_tasks import (
    PeriodicTask,
    PeriodicTaskRecord,
    Rhythm,
    due_now,
    latest_due,
    next_due,
)

DAILY = Rhythm(every="1d", at="02:30")
RHYTHMS = st.builds(
    Rhythm,
    every=st.sampled_from(["10m", "90m", "7h", "1d", "7d"]),
    at=st.sampled_from(["00:00", "02:30", "23:59"]),
)
INSTANTS = st.floats(1.6e9, 1.9e9)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def record(due):
    return PeriodicTaskRecord(task=PeriodicTask.SWEEP, due=due, began=due)


def test_daily_work_is_due_at_the_stated_time_of_each_day():
    assert latest_due(DAILY, at("2026-11-22T02:29")) == at("2026-11-21T02:30")
    assert latest_due(DAILY, at("2026-11-22T02:30")) == at("2026-11-22T02:30")
    assert next_due(DAILY, at("2026-11-22T18:00")) == at("2026-11-23T02:30")


def test_weekly_work_is_due_on_mondays():
    due = latest_due(Rhythm(every="7d", at="05:00"), at("2026-11-22T18:00"))
    assert datetime.fromtimestamp(due, UTC) == datetime(2026, 11, 16, 5, tzinfo=UTC)
    assert datetime.fromtimestamp(due, UTC).strftime("%A") == "Monday"


def test_a_task_never_done_is_due_and_a_task_done_is_not():
    now = at("2026-11-22T18:00")
    assert due_now(DAILY, None, now) == at("2026-11-22T02:30")
    assert due_now(DAILY, record(at("2026-11-22T02:30")), now) is None


def test_five_missed_times_are_made_up_for_once():
    now = at("2026-11-22T18:00")
    due = due_now(DAILY, record(at("2026-11-17T02:30")), now)
    assert due == at("2026-11-22T02:30")
    assert due_now(DAILY, record(due), now) is None


def test_a_clock_that_goes_back_repeats_nothing():
    assert due_now(DAILY, record(at("2026-11-22T02:30")), at("2026-11-20T12:00")) is None


@given(RHYTHMS, INSTANTS, st.lists(st.floats(0, 5e5), max_size=40))
def test_a_task_is_done_at_most_once_for_each_of_its_times(rhythm, begin, pauses):
    done, now = [], begin
    for pause in [0.0, *pauses]:
        now += pause
        due = due_now(rhythm, record(done[-1]) if done else None, now)
        if due is not None:
            done.append(due)
    assert done == sorted(set(done))
    assert done[-1] == latest_due(rhythm, now)
    assert 0 <= now - done[-1] < rhythm.every_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"every": "daily"}, 'every is "daily"'),
        ({"every": "5m"}, 'every is "5m", expected a time from 10m on'),
        ({"every": "1d", "at": "25:00"}, 'at is "25:00"'),
        ({"every": "1d", "budget": "much"}, 'budget is "much"'),
    ],
)
def test_a_schedule_that_says_nothing_is_refused(words, reason):
    with pytest.raises(ValueError, match=reason):
        SweepTask(**{"budget": "8nh", **words})


def test_as_shipped_no_periodic_work_is_switched_on():
    assert KeepingPolicy().rhythms == {}
