"""Other programs on a node never condemn it, and never hide a loss that they cannot have caused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from fleets import entry, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.campaign.follow_ups import following_steps
from anubis.core.campaign.planning import steps
from anubis.core.judge.foreign_load import CODE, TAKEN, mean_shares
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import Ended, Execution, Judgement, Policy, Readings, Result, Series
from anubis.report.campaign_remarks import remarks_on

H, D, U = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
NODES, SAMPLES = 12, 16
PLAN = small_plan(NODES, [entry("compute")])


def run(step, seed, loss=0.0, taken=None, told=None):
    """A run on a host that lost `loss` by itself and a share of each sample to others."""
    rng = np.random.default_rng([seed, int(step.participants[0][1:])])
    taken = np.zeros(SAMPLES) if taken is None else taken
    rates = 100 * (1 - loss) * (1 - taken) * rng.normal(1, 0.003, SAMPLES)
    shares = told if told is not None else taken.tolist()
    notes = {TAKEN: {"rate": {"cpu": shares}}} if np.any(taken) or told is not None else {}
    series = Readings.pack([Series(metric="rate", device="cpu", samples=rates)])
    result = Result(series=series, environment=notes)
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def fleet(seed, **of_n0):
    planned = list(steps(PLAN, 0, {node.name for node in PLAN.nodes}))
    return [run(s, seed, **(of_n0 if s.participants == ("n0",) else {})) for s in planned]


def assessed(done, taught):
    done = latest_executions(done)
    learned = learn_criteria(units(taught, PLAN), Policy(), suite="s", anubis="0", created_at="now")
    return assess(units(done, PLAN), done, PLAN, learned, {})


def judged(first, again=None):
    """The verdict on n0, by criteria of a fleet without load; `again`: what its second run is."""
    quiet, done = fleet(1), fleet(2, **first)
    assessment = assessed(done, quiet)
    if again is not None:
        second = following_steps(PLAN, 0, 0, assessment)
        assert ("n0",) in {step.participants for step in second}, "it is measured again"
        done += [run(s, 3, **(again if s.participants == ("n0",) else {})) for s in second]
        assessment = assessed(done, quiet)
    others = {node.judgement for node in assessment.nodes if node.node != "n0"}
    assert others == {H}
    return next(node for node in assessment.nodes if node.node == "n0")


BUSY = np.full(SAMPLES, 0.5)
STALLS = np.where(np.arange(SAMPLES) % 4 == 0, 0.5, 0.0)


@pytest.mark.parametrize(
    "free", [STALLS, BUSY - STALLS, 0 * BUSY], ids=["mostly", "at times", "always"]
)
def test_a_host_that_is_free_at_times_is_no_worse_than_a_fleet_that_never_is(free):
    done = list(steps(PLAN, 0, {node.name for node in PLAN.nodes}))
    taught = [run(s, 1, taken=BUSY) for s in done]
    now = [run(s, 2, taken=free if s.participants == ("n0",) else BUSY) for s in done]
    assert {node.judgement for node in assessed(now, taught).nodes} == {H}


@pytest.mark.parametrize(
    ("taken", "learns", "is_told"), [(0.5, True, True), (0.5, False, False), (0.05, True, False)]
)
def test_criteria_learned_beside_other_programs_are_reported_as_lax(taken, learns, is_told):
    taught = [
        run(s, 1, taken=taken * np.ones(SAMPLES))
        for s in steps(PLAN, 0, {node.name for node in PLAN.nodes})
    ]
    assert mean_shares(taught) == {"compute": pytest.approx(taken)}
    assessment = assessed(taught, taught)
    campaign = SimpleNamespace(policy=SimpleNamespace(stop_early=False), plan=PLAN)
    view = SimpleNamespace(
        campaign=campaign, executions=taught, assessment=assessment, is_by_itself=learns
    )
    said = [*remarks_on(view)]
    assert [("compute up to 50% of the time" in sentence) for sentence in said] == [True] * is_told


@pytest.mark.parametrize("taken", [BUSY, STALLS], ids=["always", "at times"])
def test_a_sound_host_that_others_used_is_unknown_until_it_is_good_without_them(taken):
    once = judged({"taken": taken})
    assert (once.judgement, once.code) == (U, CODE)
    assert f"other programs may have cost it {taken.mean():.0%} of the time" in once.reason
    assert once.owes == ("compute",)
    assert judged({"taken": taken}, {"taken": taken}).code == CODE
    good = judged({"taken": taken}, {})
    assert good.judgement is H
    assert "the fleet" in good.reason


def test_a_host_that_is_slow_with_all_its_processors_is_found_beside_a_little_load():
    """Others had a twentieth, and half of the rate is lost: they cannot have caused that."""
    little = np.full(SAMPLES, 0.05)
    for loss, taken in ((0.5, little), (0.5, None), (0.2, STALLS / 10)):
        slow = {"loss": loss, "taken": taken}
        assert judged(slow, slow).judgement is D


def test_a_host_that_was_bad_once_and_once_had_no_processor_is_unknown():
    assert judged({"taken": BUSY}, {"loss": 0.5}).judgement is U
    assert judged({"loss": 0.5}, {"taken": BUSY}).judgement is U


def test_a_loss_that_came_and_went_without_foreign_load_stays_unstable():
    assert judged({"loss": 0.5}, {}).code == "UNSTABLE"
    assert judged({"loss": 0.5, "taken": np.full(SAMPLES, 0.05)}, {}).code == "UNSTABLE"


@pytest.mark.parametrize(
    "told",
    [[0.9] * 3, [float("nan")] * SAMPLES, [2.0] * SAMPLES, ["1"] * SAMPLES, 0.9, None, {"0": 1}],
    ids=str,
)
def test_a_load_that_is_no_valid_share_excuses_no_loss(told):
    slow = {"loss": 0.5, "told": [told] if told is None else told}
    assert judged(slow, slow).judgement is D


@given(
    seed=st.integers(10, 10**6),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
    share=st.floats(0, 0.9),
    part=st.floats(0, 1),
    more=st.floats(1, 1.5),
    twice=st.booleans(),
)
@settings(max_examples=25)
def test_load_condemns_no_sound_host_and_makes_no_slow_one_healthy(
    seed, loss, share, part, more, twice
):
    """`more`: programs say what others may have cost at most, which is never less than it was."""
    rng = np.random.default_rng(seed)
    quiet, trace = fleet(1), np.where(rng.random(SAMPLES) < part, share, 0.0)
    first = {"loss": loss, "taken": trace, "told": np.minimum(1, trace * more).tolist()}
    done = fleet(seed, **first)
    if twice:
        again = following_steps(PLAN, 0, 0, assessed(done, quiet))
        done += [run(s, seed, **(first if s.participants == ("n0",) else {})) for s in again]
    (verdict,) = [node for node in assessed(done, quiet).nodes if node.node == "n0"]
    assert verdict.judgement is not (D if loss == 0 else H), verdict.reason
    if loss and not trace.any():
        assert verdict.judgement is D
