"""The doubt about a clock that may be wrong, and the dates given while it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.clock import (
    DRIFT,
    FAR_S,
    SETTLED_S,
    TOLERANCE_S,
    ClockReading,
    KeptClock,
    has_to_be_kept,
    tell_time,
)
from anubis.core.history.status import Incident
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.keeper_events import Concluded, Dating, FleetSeen, VerdictReached, Waited
from anubis.core.keep.life import Life, OpenIncident, Proof, ended_incidents, open_incidents
from anubis.core.records import Judgement

NOW = 1.7e9
DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


class Machine:
    """Its wall clock may be wrong; what it counts since it was started is not."""

    def __init__(self):
        self.true, self.off_s, self.boot, self.started = NOW, 0.0, "boot 1", NOW - 1000
        self.kept = None

    def later(self, seconds):
        self.true += seconds
        return self

    def restart(self, away_s=0.0):
        self.true += away_s
        self.started, self.boot = self.true, f"boot at {self.true}"

    def reading(self):
        return ClockReading(
            at=self.true + self.off_s, boot=self.boot, steady_s=self.true - self.started
        )

    def turn(self):
        time = tell_time(self.kept, self.reading())
        self.kept = time.kept
        return time


@pytest.fixture
def machine():
    machine = Machine()
    assert not machine.turn().doubt
    return machine


def test_the_first_reading_of_all_is_trusted():
    assert tell_time(None, ClockReading(at=NOW)).now == NOW


@pytest.mark.parametrize("off_s", [YEAR_S, -YEAR_S, 2 * TOLERANCE_S, -2 * TOLERANCE_S])
def test_a_clock_that_moved_alone_is_in_doubt_and_time_goes_on_by_the_other(machine, off_s):
    machine.off_s = off_s
    time = machine.later(30).turn()
    assert time.now == pytest.approx(NOW + 30)
    assert ("ahead" if off_s > 0 else "back") in time.doubt
    machine.off_s = 0.0
    healed = machine.later(30).turn()
    assert (healed.now, healed.doubt) == (NOW + 60, "")


def test_a_clock_that_goes_evenly_for_an_hour_is_believed_again(machine):
    machine.off_s = YEAR_S
    doubts = [bool(machine.later(60).turn().doubt) for _ in range(62)]
    assert doubts == [True] * 60 + [False] * 2
    assert machine.turn().now == machine.true + YEAR_S


def test_one_that_jumps_on_is_never_believed(machine):
    for jump in range(1, 200):
        machine.off_s = jump * 1000.0
        assert machine.later(60).turn().doubt


def test_a_time_service_that_slews_and_a_suspend_raise_no_doubt(machine):
    machine.off_s = 10 * DAY_S * DRIFT / 2
    assert not machine.later(10 * DAY_S).turn().doubt


@pytest.mark.parametrize(
    ("away_s", "off_s", "is_doubted"),
    [
        (300.0, 0.0, False),
        (3 * DAY_S, 0.0, False),
        (300.0, -TOLERANCE_S, False),  # machines of one site differ by so much
        (300.0, -YEAR_S, True),
        (300.0, YEAR_S, True),
        (FAR_S + DAY_S, 0.0, True),  # nothing tells this from the one before
    ],
)
def test_after_a_restart_an_implausible_wall_clock_is_doubted_until_it_settles(
    machine, away_s, off_s, is_doubted
):
    machine.restart(away_s)
    machine.off_s = off_s
    time = machine.turn()
    assert bool(time.doubt) is is_doubted
    if is_doubted:
        assert time.now == NOW  # it stands still
        assert not machine.later(SETTLED_S).turn().doubt


def test_a_mere_reader_believes_the_clock_after_a_long_absence_until_a_turn_doubts_it(
    machine,
):
    machine.restart(30 * DAY_S)
    asked = tell_time(machine.kept, machine.reading(), is_turn=False)
    assert (asked.now, asked.doubt) == (machine.true, "")
    assert machine.turn().doubt
    assert tell_time(machine.kept, machine.reading(), is_turn=False).doubt


class Site(Machine):
    """No keeper takes turns: records keep their readings if they have to."""

    def record(self):
        reading = self.reading()
        time = tell_time(self.kept, reading, is_turn=False)
        is_kept = has_to_be_kept(time, self.kept, reading)
        self.kept = time.kept if is_kept else self.kept
        return time, is_kept


def test_while_no_keeper_takes_turns_records_keep_the_readings_that_the_guard_needs():
    site = Site()
    kept = [site.later(600).record()[1] for _ in range(14)]
    assert kept == [True, *[False] * 5, True, *[False] * 5, True, False], "one an hour"
    site.off_s = -YEAR_S
    assert [bool(site.later(600).record()[0].doubt) for _ in range(7)] == [True] * 6 + [False]
    site.off_s = 0.0
    time, is_kept = site.later(600).record()
    assert "ahead" in time.doubt
    assert is_kept
    site.later(SETTLED_S).record()
    site.restart(30 * DAY_S)
    time, is_kept = site.record()
    assert (time.now, time.doubt, is_kept) == (site.true, "", True), "nothing was asked meanwhile"


def test_another_machine_becomes_the_reference_after_a_day_of_silence():
    site = Site()
    site.record()
    reference, first = site.boot, site.started
    for _ in range(24):
        site.restart()
        site.off_s = 300.0
        assert site.record()[1] is False, "nor does its clock decide"
        site.boot, site.started, site.off_s = reference, first, 0.0
        assert not site.later(SETTLED_S).record()[0].doubt
    site.restart(DAY_S)
    assert site.record()[1]


def test_records_of_a_wrong_clock_are_redated_to_the_last_turn_before_it_healed(machine):
    machine.off_s = YEAR_S
    for _ in range(62):
        machine.later(60).turn()
    wrong_until, machine.off_s = machine.true, 0.0
    first = machine.later(60).turn()
    assert first.doubt
    healed = machine.later(SETTLED_S).turn()
    assert not healed.doubt
    assert wrong_until <= healed.before <= healed.now == machine.true


readings = st.builds(
    ClockReading,
    at=st.floats(0, 1e10),
    boot=st.sampled_from(["", "a", "b"]),
    steady_s=st.floats(0, 1e9),
)


@given(readings, st.none() | readings, readings)
def test_nothing_is_ever_later_than_now(trusted, doubted, reading):
    time = tell_time(KeptClock(trusted=trusted, doubted=doubted), reading)
    assert time.before <= time.now
    assert math.isfinite(time.now)
    assert tell_time(time.kept, reading).now == time.now


JUMPS_S = [-40 * DAY_S, -20 * DAY_S, -3 * DAY_S, -600.0, 0.0, 900.0, 20 * DAY_S, YEAR_S]
waits = st.sampled_from([30.0, 300.0, 2000.0])
moments = st.tuples(waits, st.none() | st.sampled_from(JUMPS_S))


@given(st.lists(moments, max_size=40))
def test_after_any_steps_of_a_clock_dates_keep_their_order_and_are_right_once_it_is(moments):
    machine = Machine()
    dates = {NOW: machine.turn().now}  # by when it was in truth
    later = [*moments, (300.0, 0.0), *[(900.0, None)] * 6]
    for seconds, off_s in later:
        machine.off_s = machine.off_s if off_s is None else off_s
        time = machine.later(seconds).turn()
        if time.correction:
            dates = {true: time.correction.date(at) for true, at in dates.items()}
        dates[machine.true] = time.now
        assert [*dates.values()] == sorted(dates.values())
        assert max(dates.values()) <= time.now
    assert not time.doubt
    for true, at in dates.items():
        assert at == pytest.approx(true, abs=TOLERANCE_S)


def test_records_made_in_doubt_after_a_restart_are_redated_by_the_clock_that_settles():
    machine = Machine()
    machine.turn()
    machine.restart(30 * DAY_S)
    assert machine.turn().now == NOW
    told = machine.later(600).turn().now
    assert told == NOW + 600, "it stands still only while nobody counts"
    settled = machine.later(SETTLED_S).turn()
    assert settled.now == machine.true
    assert settled.correction.date(told) == pytest.approx(machine.true - SETTLED_S)
    assert settled.correction.date(NOW) == NOW, "what is older keeps its date"


# --- what is dated by it -------------------------------------------------------------------

NO_TIMES = {"confidence", "mix", "begin", "end"}  # floats that say something else, or plans


def made(hint, at):
    """A value of this kind in which every time is `at`."""
    if hint is float:
        return at
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{field.name: made(hints[field.name], at) for field in fields(hint)})
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return made(next(kind for kind in args if kind is not type(None)), at)
    if origin is tuple:
        return (made(args[0], at),)
    if origin is Mapping:
        return {"x": made(args[1], at)}
    return next(iter(hint)) if hasattr(hint, "__members__") else hint()


def times(value, name=""):
    if is_dataclass(value):
        for field in fields(value):
            yield from times(getattr(value, field.name), field.name)
    elif isinstance(value, Mapping):
        for cell in value.values():
            yield from times(cell, name)
    elif isinstance(value, tuple):
        for cell in value:
            yield from times(cell, name)
    elif isinstance(value, float) and name not in NO_TIMES:
        yield value


def test_healing_leaves_no_time_of_a_life_in_the_future():
    life = made(Life, NOW + YEAR_S)
    assert len(list(times(life))) >= 14
    healed = Dating(now=NOW, before=NOW - 60).heal(life)
    assert set(times(healed)) == {NOW - 60}
    assert healed.owed[0].confidence == NOW + YEAR_S


def test_a_life_without_such_a_time_is_the_same_object():
    life = made(Life, NOW)
    assert Dating(now=NOW, before=NOW - 60).heal(life) is life


def test_an_event_dated_in_the_future_counts_now_if_bad_and_proves_nothing_if_good():
    dating = Dating(now=NOW, before=NOW - 60)
    healthy = Concluded(judgement=Judgement.HEALTHY, proof=Proof.FULL, is_fit=True)
    defective = Concluded(judgement=Judgement.DEFECTIVE, code="X")
    verdicts = {"n1": healthy, "n2": defective}
    late = VerdictReached(at=NOW + DAY_S, began=NOW + 1, campaign="c", verdicts=verdicts)
    heard = dating.date_event(late)
    assert (heard.at, heard.began) == (NOW, NOW)
    assert heard.verdicts["n2"] is defective
    assert heard.verdicts["n1"].judgement is Judgement.UNKNOWN
    nearly = replace(late, at=NOW + 5)  # two clocks of one site
    assert dating.date_event(nearly).verdicts == verdicts
    for event in (FleetSeen(at=NOW + DAY_S, nodes={}), Waited(at=NOW + DAY_S)):
        assert dating.date_event(event).at == NOW
        assert dating.date_event(replace(event, at=NOW - 5)).at == NOW - 5


def test_an_incident_without_an_end_is_open_now_even_if_it_begins_later():
    goes_on = Incident(node="n1", category="gpu", start=NOW + DAY_S)
    columns = IncidentColumns.from_incidents(
        [goes_on, replace(goes_on, node="n2", end=NOW + YEAR_S)]
    )
    assert open_incidents(columns, NOW) == {"n1": (OpenIncident(category="gpu", at=NOW),)}
    assert ended_incidents(columns, {"n1", "n2"}, NOW) == {"n2": {"gpu"}}, (
        "it was open, and is over"
    )
