"""The time left of a campaign, on machines where steps take as long as planned, or longer."""

from __future__ import annotations

import heapq
from itertools import pairwise

import pytest
from fleets import SPECS, entry, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.campaign.planning import estimate
from anubis.core.campaign.state_machine import (
    CampaignMachine,
    Finish,
    Judge,
    Judged,
    Launch,
    Measured,
    Started,
    TimePassed,
)
from anubis.core.campaign.time_left import TimeLeft

ENTRIES = st.builds(
    entry,
    st.sampled_from(sorted(SPECS)),
    repeats=st.integers(1, 3),
    duration_s=st.floats(0.5, 100.0),
)


def times_left(plan, parallel_nodes=None, slowness=1.0, *, ask=TimeLeft.seconds, slow="/"):
    """Play a campaign whose steps with a word in their names take so many times as long as planned;
    return pairs of the time and what was left then, whenever anything ended and midway."""
    machine = CampaignMachine(plan, retries=0, parallel_nodes=parallel_nodes, silence_s=1e9)
    left, seen, ends = TimeLeft(plan, parallel_nodes), [], []
    commands = machine.start(0.0)
    while commands := list(commands):
        command = commands.pop(0)
        match command:
            case Launch(step=step, attempt=attempt):
                numbers = [*map(int, step.id.split(".")[:2])]
                duration_s = plan.phases[numbers[0]].entries[numbers[1]].duration_s
                started = Started(step_id=step.id, attempt=attempt, at=machine.now)
                commands += machine.handle(started)
                left.hear([started])
                duration_s *= slowness if slow in step.id else 1.0
                heapq.heappush(ends, (machine.now + duration_s, step.id, attempt))
            case Judge(phase=phase):
                commands += machine.handle(Judged(phase=phase, defective=frozenset()))
            case Finish():
                return [*seen, (machine.now, 0.0)]
        if not commands and ends:
            at, step_id, attempt = heapq.heappop(ends)
            seen.append((machine.now, ask(left, machine)))
            machine.handle(TimePassed(at=(machine.now + at) / 2))
            seen.append((machine.now, ask(left, machine)))
            ended = Measured(step_id=step_id, attempt=attempt, at=at)
            commands = machine.handle(ended)
            left.hear([ended])
    raise AssertionError("the campaign has no end")


@settings(max_examples=50)
@given(st.lists(ENTRIES, min_size=1, max_size=5), st.integers(2, 5), st.sampled_from([None, 2]))
def test_while_steps_take_as_long_as_planned_the_time_left_never_rises(entries, count, bound):
    plan = small_plan(count, entries)
    seen = times_left(plan, bound)
    assert all(after <= before + 1e-6 for (_, before), (_, after) in pairwise(seen))
    planned_s = sum(estimate(plan, phase, bound).duration_s for phase in range(len(plan.phases)))
    assert seen[0][1] >= planned_s - 1e-6


@pytest.mark.parametrize("slowness", [0.25, 1.0, 4.0])
def test_on_one_machine_the_time_left_is_right_once_each_program_has_run(slowness):
    plan = small_plan(1, [entry("compute", repeats=2, duration_s=1.0), entry("train", repeats=2)])
    seen = dict(times_left(plan, slowness=slowness))
    assert seen[0.0] == 22.0, "as planned"
    assert seen[slowness] == pytest.approx(slowness + 20 * max(1.0, slowness)), "the other unseen"
    for at in (12.0, 17.0, 22.0):
        assert seen[at * slowness] == pytest.approx((22.0 - at) * slowness)


def test_the_announced_time_left_stays_or_falls_or_rises_by_half_with_the_reason():
    entries = [entry("probe", repeats=3), entry("train", repeats=9), entry("count", repeats=3)]
    plan = small_plan(1, entries)
    announced = [
        said for _, said in times_left(plan, ask=TimeLeft.announce, slowness=8.0, slow="/train/")
    ][:-1]
    rises = [
        (before, after, why) for (before, _), (after, why) in pairwise(announced) if after > before
    ]
    assert rises, "a program that takes eight times as long was announced as if it did not"
    for before, after, why in rises:
        assert after >= 1.5 * before
        assert why.startswith("train takes ")
    assert not any(why for (before, _), (after, why) in pairwise(announced) if after <= before)
    assert max(left for left, _ in announced) <= 60 + 8 * 90
