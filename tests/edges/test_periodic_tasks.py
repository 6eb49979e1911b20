"""Periodic work of the keeper on a real history: done once for each time, resumed, proposed if a
person decides."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anubis.config import catalog, criteria_files
from anubis.core.errors import UsageError
from anubis.core.history.events import JobAllocated
from anubis.core.history.status import Incident, Watch
from anubis.core.keep.commands import Mode, Stage
from anubis.core.keep.keeping_policy import CriteriaTask, RiskTask, SweepTask
from anubis.core.keep.periodic_tasks import (
    MOST_TRIES,
    PeriodicTask,
    PeriodicTaskEnd,
    PeriodicTaskRecord,
)
from anubis.models.risk import risk_files, risk_learning
from anubis.operations import sweep, verb_processes
from anubis.operations.judge import compare_criteria
from anubis.operations.keep import actions, approve
from anubis.operations.periodic_tasks import do_periodic_tasks
from anubis.report.keep import periodic_task_sentences
from anubis.store.history import History
from anubis.text import places
from tests.edges.test_keeping import Site

TRAIN = risk_learning.train
DAY_S = 86_400.0
QUARTER_S = 90 * DAY_S  # after which a pass says little
SWEEP = SweepTask(every="1d", budget="8nh", mode=Mode.ACT)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, told):
    with Site.accepted(tmp_path_factory.mktemp("periodic_tasks"), told, is_sound=True) as site:
        site.keep(owner=False)
        return site


@pytest.fixture
def site(accepted, tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    return accepted.copied(tmp_path / "home", monkeypatch)


def work(site, **policy):
    """Outcomes of periodic tasks, by task."""
    site.later(10)
    keeping = keeping_of(site, **policy)
    return {s.task: s for s in do_periodic_tasks(keeping, site.caller)}


def keeping_of(site, **policy):
    """A risk of one in a hundred is worth a test."""
    strict = site.desk.write("strict.yaml", {"selection": {"p0": 0.01}})
    return site.keeping(owner=False, **{"selection": str(strict), **policy})


def campaigns(site):
    with History.open(site.history) as history:
        return [row.id for row in history.campaigns.newest(limit=100)]


def cluster(site):
    with History.open(site.history) as history:
        return history.only().cluster


# --- sweeps --------------------------------------------------------------------------------


def test_a_sweep_is_run_once_for_each_time_and_kept_with_its_campaign(site):
    site.later(QUARTER_S)
    before = campaigns(site)
    swept = work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last
    assert swept.end is PeriodicTaskEnd.DONE
    assert swept.sentence == "8 of 8 nodes tested: all healthy"
    assert [swept.campaign, *before] == campaigns(site)
    assert work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last == swept
    site.later(QUARTER_S)
    again = work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last
    assert again.due - swept.due == QUARTER_S
    assert len(campaigns(site)) == len(before) + 2


def test_a_sweep_that_was_done_by_a_clock_far_ahead_is_no_reason_to_leave_out_the_next(site):
    site.later(QUARTER_S)
    with History.open(site.history) as history:
        part, ahead = history.only(), site.now + 30 * DAY_S
        part.periodic_tasks.write(
            PeriodicTaskRecord(
                task=PeriodicTask.SWEEP,
                due=ahead,
                began=ahead,
                ended=ahead,
                end=PeriodicTaskEnd.UNCHANGED,
            )
        )
    before = campaigns(site)
    work(site, sweep=SWEEP)
    assert len(campaigns(site)) == len(before) + 1


def test_the_next_turn_acts_on_a_defect_that_a_sweep_found(site):
    site.later(QUARTER_S)
    site.describe(slow_share=0.125)
    swept = work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last
    assert swept.sentence == f"8 of 8 nodes tested: 1 defective ({site.bad})"
    fleet = site.keep(owner=False)
    assert "cordon" in [action.command.kind for action in fleet.actions]


def test_a_sweep_tests_no_more_nodes_at_once_than_allowed_and_no_busy_one(site):
    site.later(QUARTER_S)
    site.tell(JobAllocated(nodes=("n1", "n2"), duration_s=3600, job="7"))
    site.keep(owner=False)
    swept = work(site, sweep=SWEEP, tested_at_once=0.5)[PeriodicTask.SWEEP].last
    assert swept.sentence.startswith("4 of 8 nodes tested")
    with History.open(site.history) as history:
        tested = {verdict.node for verdict in history.assessments.node_verdicts(swept.campaign)}
    assert not tested & {"n1", "n2"}
    site.later(DAY_S)
    others = work(site, sweep=SWEEP, tested_at_once=0.25)[PeriodicTask.SWEEP].last
    with History.open(site.history) as history:
        later = {verdict.node for verdict in history.assessments.node_verdicts(others.campaign)}
    assert later == {f"n{i}" for i in range(3, 9)} - tested


def test_a_sweep_is_proposed_and_run_once_when_a_person_agrees(site):
    site.later(QUARTER_S)
    asking = {"sweep": SweepTask(every="1d", budget="8nh")}
    before = campaigns(site)
    assert work(site, **asking)[PeriodicTask.SWEEP].last.end is PeriodicTaskEnd.PROPOSED
    assert work(site, **asking)[PeriodicTask.SWEEP].last.end is PeriodicTaskEnd.PROPOSED
    (proposal,) = actions(cluster=site.cluster, caller=site.caller)
    assert (proposal.command.kind, proposal.stage) == ("periodic-task", Stage.PROPOSED)
    assert campaigns(site) == before
    keeping = keeping_of(site, **asking)
    approve(keeping, [proposal.id], site.caller)
    swept = work(site, **asking)[PeriodicTask.SWEEP].last
    assert swept.end is PeriodicTaskEnd.DONE
    assert len(campaigns(site)) == len(before) + 1
    with pytest.raises(UsageError, match=f"action {proposal.id} is done"):
        approve(keeping, [proposal.id], site.caller)
    work(site, **asking)
    assert len(campaigns(site)) == len(before) + 1


def test_a_newer_proposal_takes_the_place_of_the_older(site):
    asking = {"sweep": SweepTask(every="1d", budget="8nh")}
    for _ in range(3):
        site.later(DAY_S)
        work(site, **asking)
    stages = [a.stage for a in actions(only_open=False, cluster=site.cluster, caller=site.caller)]
    assert stages == [Stage.PROPOSED, Stage.WITHDRAWN, Stage.WITHDRAWN]


def test_a_sweep_whose_process_died_is_resumed_under_its_name(site, monkeypatch):
    site.later(QUARTER_S)
    before = campaigns(site)

    def dies(*words, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(sweep, "sweep", dies)
        with pytest.raises(KeyboardInterrupt):
            work(site, sweep=SWEEP)
    with History.open(site.history) as history:
        begun = history.only().periodic_tasks.last(PeriodicTask.SWEEP)
    assert begun.ended is None
    swept = work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last
    assert (swept.campaign, swept.due, swept.tries) == (begun.campaign, begun.due, 2)
    assert swept.end is PeriodicTaskEnd.DONE
    assert len(campaigns(site)) == len(before) + 1


def test_work_at_which_every_process_dies_is_given_up(site, monkeypatch):
    def dies(*words, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(sweep, "sweep", dies)
        for _ in range(MOST_TRIES):
            with pytest.raises(KeyboardInterrupt):
                work(site, sweep=SWEEP)
        last = work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last
    assert last.end is PeriodicTaskEnd.FAILED
    assert last.sentence == "given up: its process ended 3 times before it was done"


def test_a_task_that_cannot_be_done_fails_with_the_reason_and_waits_for_its_next_time(site):
    site.later(QUARTER_S)
    broken = {"sweep": SWEEP, "selection": "none"}
    last = work(site, **broken)[PeriodicTask.SWEEP].last
    assert last.end is PeriodicTaskEnd.FAILED
    assert "none.yaml" in last.sentence
    assert work(site, **broken)[PeriodicTask.SWEEP].last == last
    assert work(site, sweep=SWEEP)[PeriodicTask.SWEEP].succeeded_at is None
    site.later(DAY_S)
    assert work(site, sweep=SWEEP)[PeriodicTask.SWEEP].last.end is PeriodicTaskEnd.DONE


def test_one_of_two_processes_does_a_task_and_it_starts_only_while_no_other_runs(site):
    site.later(QUARTER_S)
    begun = []
    keeping = keeping_of(site, sweep=SWEEP)
    with History.open(site.history) as history, history.only().periodic_tasks.alone():
        assert not do_periodic_tasks(keeping, site.caller, lambda: begun.append(1))[0].last
    assert not begun
    do_periodic_tasks(keeping, site.caller, lambda: begun.append(1))
    assert begun == [1]
    work(site, sweep=SWEEP)
    do_periodic_tasks(keeping, site.caller, lambda: begun.append(1))
    assert begun == [1]


def test_a_person_reads_the_result_of_a_task_and_its_next_time(site):
    site.now = 1.7e9 // DAY_S * DAY_S + QUARTER_S + 1
    standing = work(site, sweep=SWEEP)[PeriodicTask.SWEEP]
    (line,) = periodic_task_sentences([standing], standing.last.ended + 3 * 3600)
    assert line == "sweep: last 3 h ago: 8 of 8 nodes tested: all healthy; next in 21 h"


def test_keep_reports_tasks_and_the_service_has_them_done_apart(site, entry, monkeypatch):
    policy = site.desk.write(
        "keeping.yaml",
        {"suite": site.suite, "sweep": {"every": "1d", "budget": "8nh"}, "tested_at_once": 1.0},
    )
    words = ["keep", "--cluster", site.cluster, "--keeping", str(policy)]
    words += ["--benchmarks", str(site.desk.programs)]
    begun = []
    monkeypatch.setattr(
        verb_processes, "begin", lambda words, url, name: begun.append((words, name))
    )
    apart = entry(*words, "--apart", "--json").lines
    assert [line["ended"] for line in apart if line["type"] == "periodic-task"] == [None]
    ((further, name),) = begun
    assert (further[-1], name) == ("--periodic-tasks", "periodic-tasks-fleet")
    (line,) = entry(*further, "--benchmarks", str(site.desk.programs)).lines
    assert (line["type"], line["task"], line["end"]) == ("periodic-task", "sweep", "proposed")
    told = entry(*words).out
    proposed = "test the idle nodes most at risk, for 8nh at most; "
    assert re.search(rf"sweep: proposed \d+ \w+ ago: {proposed}", told)  # by the bed's own clock


# --- criteria ------------------------------------------------------------------------------

LEARN = {"criteria": CriteriaTask(every="7d", look_back="30d")}


def in_use():
    return criteria_files.load(places.criteria())


def text_in_use():
    return {file: file.read_text() for file in places.criteria().rglob("*.json")}


def age(share):
    """Age the fleet as if it had been so much slower when the criteria in use were learned."""
    for of_sku in in_use():
        older = [replace(c, reference=c.reference * share) for c in of_sku.criteria]
        path = places.criteria() / criteria_files.place(of_sku)
        criteria_files.write(replace(of_sku, criteria=tuple(older)), path)


def the_proposal(site):
    (action,) = actions(cluster=site.cluster, caller=site.caller)
    return action


def test_criteria_that_are_still_right_are_left_alone(site):
    before = text_in_use()
    last = work(site, **LEARN)[PeriodicTask.CRITERIA].last
    assert (last.end, last.sentence) == (
        PeriodicTaskEnd.UNCHANGED,
        "none of 1 criterion of suite tiny moved",
    )
    assert text_in_use() == before
    assert not actions(cluster=site.cluster, caller=site.caller)


def test_criteria_that_moved_are_proposed_with_their_difference_and_change_when_a_person_agrees(
    site,
):
    learned = in_use()
    age(0.96)
    before = text_in_use()
    last = work(site, **LEARN)[PeriodicTask.CRITERIA].last
    assert last.end is PeriodicTaskEnd.PROPOSED
    assert text_in_use() == before
    action = the_proposal(site)
    _, shown = action.command.reason.split("anubis criteria diff ")
    old, new, *_ = shown.split()
    (change,) = compare_criteria(Path(old), Path(new), caller=site.caller).criteria
    assert change.alike == pytest.approx(0.96, abs=0.005)
    approve(keeping_of(site, **LEARN), [action.id], site.caller)
    assert work(site, **LEARN)[PeriodicTask.CRITERIA].last.end is PeriodicTaskEnd.DONE
    (taken,), (first,) = in_use(), learned
    np.testing.assert_allclose(taken.criteria[0].reference, first.criteria[0].reference, rtol=0.005)
    assert Path(old).is_dir()


def test_criteria_that_changed_since_are_not_overwritten_by_an_older_proposal(site):
    age(0.96)
    work(site, **LEARN)
    age(0.97)
    before = text_in_use()
    action = the_proposal(site)
    approve(keeping_of(site, **LEARN), [action.id], site.caller)
    last = work(site, **LEARN)[PeriodicTask.CRITERIA].last
    assert last.end is PeriodicTaskEnd.FAILED
    assert last.sentence.startswith("the criteria in use changed after this proposal")
    assert text_in_use() == before
    (failed,) = actions(only_open=False, cluster=site.cluster, caller=site.caller)
    assert failed.stage is Stage.FAILED


def test_without_recent_measurements_no_criteria_are_learned(site):
    site.later(31 * DAY_S)
    last = work(site, **LEARN)[PeriodicTask.CRITERIA].last
    assert last.end is PeriodicTaskEnd.UNCHANGED
    assert last.sentence.startswith("suite tiny has measured nothing since 2023-11-")


# --- the model of risk ---------------------------------------------------------------------

RISK = {"risk": RiskTask(every="7d", mode=Mode.ACT)}


def by_cox(uptimes, seed, tell):
    """The comparison of all models takes minutes."""
    return TRAIN(uptimes, seed, "cox")


def suffer(site, days):
    """Give one node an incident every ten days, the others one in half a year."""
    now, rng = site.now, np.random.default_rng(0)
    begun = now - days * DAY_S
    incidents = [
        Incident(node="n3", category="gpu", start=at, end=at + 3600)
        for at in np.arange(begun + DAY_S, now, 10 * DAY_S).tolist()
    ]
    incidents += [
        Incident(node=node, category="gpu", start=at, end=at + 3600)
        for node in ("n1", "n2", "n4", "n5", "n6", "n7", "n8")
        for at in (begun + rng.uniform(0, days, int(days / 180) + 1) * DAY_S).tolist()
    ]
    with History.open(site.history) as history:
        part = history.only()
        part.incidents.add(incidents)
        part.watches.add([Watch(node=f"n{i}", since=begun) for i in range(1, 9)])


def test_a_first_model_is_put_in_use_and_stays_while_nothing_says_that_a_new_one_is_better(
    site, monkeypatch
):
    monkeypatch.setattr(risk_learning, "train", by_cox)
    suffer(site, 200)
    last = work(site, **RISK)[PeriodicTask.RISK].last
    assert (last.end, last.sentence) == (PeriodicTaskEnd.DONE, "cox is in use: no model was in use")
    _, origin = risk_files.load(places.risk_file(cluster(site)))
    assert origin.trained_at == last.began
    site.later(7 * DAY_S)
    kept = places.risk_file(cluster(site)).read_bytes()
    last = work(site, **RISK)[PeriodicTask.RISK].last
    assert last.end is PeriodicTaskEnd.UNCHANGED
    assert "stays: too little happened since the model in use was trained" in last.sentence
    assert places.risk_file(cluster(site)).read_bytes() == kept


def test_a_model_that_did_better_is_proposed_and_used_when_a_person_agrees(site, monkeypatch):
    monkeypatch.setattr(risk_learning, "train", by_cox)
    suffer(site, 400)
    with History.open(site.history) as history:
        logbook = history.only().experience.logbook()
    used_at = site.now - 300 * DAY_S
    uptimes = risk_learning.uptimes_of(logbook, used_at)
    model, origin = TRAIN(uptimes, 0, "exponential")
    file = places.risk_file(cluster(site))
    risk_files.save(model, replace(origin, trained_at=used_at), file)
    asking = {"risk": RiskTask(every="7d")}
    last = work(site, **asking)[PeriodicTask.RISK].last
    assert last.end is PeriodicTaskEnd.PROPOSED
    assert last.sentence.startswith("use cox: better than exponential of 20")
    assert risk_files.load(file)[0].name == "exponential"
    action = the_proposal(site)
    approve(keeping_of(site, **asking), [action.id], site.caller)
    assert work(site, **asking)[PeriodicTask.RISK].last.end is PeriodicTaskEnd.DONE
    assert risk_files.load(file)[0].name == "cox"


def test_without_incidents_no_risk_model_is_trained_and_the_record_states_why(site):
    last = work(site, **RISK)[PeriodicTask.RISK].last
    assert last.end is PeriodicTaskEnd.UNCHANGED
    assert last.sentence.startswith("too little is known to train a model: 0 of ")
    assert not places.risk_file(cluster(site)).exists()
