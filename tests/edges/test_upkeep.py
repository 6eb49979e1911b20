"""Overdue work of a keeper, by its history."""

from __future__ import annotations

import pytest

from anubis.core.history.events import EventRecord, JobStalled
from anubis.core.history.status import Job
from anubis.core.keep.commands import Cordon, Mode, Stage
from anubis.core.keep.keeping_policy import KeepingPolicy, RiskTask, SweepTask
from anubis.core.keep.periodic_tasks import PeriodicTask, PeriodicTaskEnd, PeriodicTaskRecord
from anubis.operations.fleet import Upkeep, upkeep_of
from anubis.store.history import History
from anubis.store.keeping import KeptBy

DAY_S = 86_400.0
NOW = 20_000 * DAY_S + 7200.0  # two in the morning, UTC
POLICY = KeepingPolicy(
    spares={"h100": 2},
    diagnose="default",
    sweep=SweepTask(every="1d", at="01:00", budget="8nh"),
    risk=RiskTask(every="1d", at="03:00"),
)


@pytest.fixture
def part(tmp_path):
    with History.open(str(tmp_path / "history.db")) as history:
        yield history.cluster("prod")


def keep_by(part, policy, since):
    with part.keeping.turn("somebody") as turn:
        turn.keep_by(KeptBy(name="own", policy=policy, said_by="somebody", since=since))


def test_a_cluster_without_a_keeper_has_nothing_overdue(part):
    part.jobs.add([Job(id="7", nodes=("n1",), start=NOW - 900, end=NOW - 600)])
    assert upkeep_of(part, NOW) == Upkeep()


def test_periodic_work_is_late_from_when_it_was_due_until_it_succeeds(part):
    keep_by(part, POLICY, since=NOW - 2 * DAY_S)
    assert upkeep_of(part, NOW).overdue == {
        PeriodicTask.SWEEP: NOW - 3600.0 - DAY_S,  # it was switched on after the time of that day
        PeriodicTask.RISK: NOW + 3600.0 - 2 * DAY_S,
    }
    ended = {"began": NOW - DAY_S, "ended": NOW - DAY_S + 60.0}
    for task, end in (
        (PeriodicTask.SWEEP, PeriodicTaskEnd.DONE),
        (PeriodicTask.RISK, PeriodicTaskEnd.FAILED),
    ):
        part.periodic_tasks.write(
            PeriodicTaskRecord(task=task, due=NOW - DAY_S - 3600.0, end=end, **ended)
        )
    assert upkeep_of(part, NOW).overdue == {
        PeriodicTask.SWEEP: NOW - 3600.0,
        PeriodicTask.RISK: NOW + 3600.0 - 2 * DAY_S,
    }
    part.periodic_tasks.write(
        PeriodicTaskRecord(
            task=PeriodicTask.SWEEP,
            due=NOW - 3600.0,
            began=NOW - 60,
            ended=NOW,
            end=PeriodicTaskEnd.UNCHANGED,
        )
    )
    assert PeriodicTask.SWEEP not in upkeep_of(part, NOW).overdue


def test_jobs_that_ended_lately_or_stand_still_wait_for_a_diagnosis(part):
    keep_by(part, POLICY, since=NOW)
    part.jobs.add(
        [
            Job(id="old", nodes=("n1",), start=NOW - 9000, end=NOW - 8000),
            Job(id="ended", nodes=("n1",), start=NOW - 9000, end=NOW - 600),
            Job(id="runs", nodes=("n2",), start=NOW - 9000),
            Job(id="stalls", nodes=("n3",), start=NOW - 9000),
        ]
    )
    stalled = JobStalled(nodes=("n3",), job="stalls")
    part.event_records.add_all([EventRecord(id="s", at=NOW - 700, event=stalled)])
    assert sorted(upkeep_of(part, NOW).undiagnosed) == [NOW - 700, NOW - 600]
    keep_by(part, KeepingPolicy(), since=NOW)
    assert upkeep_of(part, NOW).undiagnosed == ()


def test_a_failed_action_counts_for_an_hour_or_until_its_retry(part):
    cordon = Cordon(mode=Mode.ACT, node="n1", code="GEMM", reason="slow")
    with part.keeping.turn("somebody") as turn:
        turn.keep([cordon], NOW - 5000)
        (action,) = turn.open_actions()
        turn.follow(action, Stage.FAILED, NOW - 3000, "refused")
    (failed,) = upkeep_of(part, NOW).failed
    assert (failed.command, failed.note) == (cordon, "refused")
    assert upkeep_of(part, NOW + 3000).failed == ()
    with part.keeping.turn("somebody") as turn:
        turn.keep([cordon], NOW)
    assert upkeep_of(part, NOW).failed == ()
