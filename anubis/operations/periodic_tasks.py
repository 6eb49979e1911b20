"""Periodic tasks of the keeper: what is due is done once, by one process, and kept.

If a process dies at a task, the next one that looks takes it over. Changes to the fleet, or to what
it is judged by, are proposed unless the policy says otherwise, and done when a person agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from anubis.core.errors import AnubisError, Stopped, StoreUnreachableError
from anubis.core.keep.commands import DoPeriodicTask, LifeAction, Mode, Stage
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.periodic_tasks import (
    MOST_TRIES,
    PeriodicTask,
    PeriodicTaskEnd,
    PeriodicTaskRecord,
    PeriodicTaskState,
    due_now,
    next_due,
)
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import time_in
from anubis.operations.keeping import Keeping, enter_if_answered
from anubis.operations.learn import renew_criteria
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.pings import judge_mesh
from anubis.operations.risk import renew_risk
from anubis.operations.sweep import sweep_idle_nodes
from anubis.store.history import ClusterHistory, History

WORK: Mapping[PeriodicTask, Callable[[PeriodicTaskRun], PeriodicTaskRecord | None]] = {
    PeriodicTask.SWEEP: sweep_idle_nodes,
    PeriodicTask.CRITERIA: renew_criteria,
    PeriodicTask.RISK: renew_risk,
    PeriodicTask.PINGS: judge_mesh,
}


def do_periodic_tasks(
    keeping: Keeping, caller: Caller = NO_CALLER, drive: Callable[[], object] | None = None
) -> list[PeriodicTaskState]:
    """Do what is due now, and what a person agreed to, unless another process is doing it.

    `drive` starts this function elsewhere, without `drive`. Return the state of each periodic task
    and when it is due next.
    """
    with caller.history() as history:
        part = enter_if_answered(history, keeping, caller)
        with part.periodic_tasks.alone() as is_alone:
            is_waiting = _is_waiting(keeping.policy, part, time_in(part, caller).now)
            if is_waiting and is_alone and drive is None:
                for task in PeriodicTask:
                    _do(task, keeping, history, part, caller)
        if is_waiting and is_alone and drive is not None:
            drive()
        if is_waiting and not is_alone:
            caller.remark(f"another process does the periodic work of cluster {part.cluster}")
        return _standings(keeping.policy, part, time_in(part, caller).now)


def _is_waiting(policy: KeepingPolicy, part: ClusterHistory, now: float) -> bool:
    return any(_next(task, policy, part, now) for task in PeriodicTask)


def _standings(policy: KeepingPolicy, part: ClusterHistory, now: float) -> list[PeriodicTaskState]:
    """States of the tasks that the policy schedules, or that were done before."""
    succeeded = part.periodic_tasks.successes()
    standings = (
        PeriodicTaskState(
            cluster=part.cluster,
            task=task,
            last=part.periodic_tasks.last(task),
            succeeded_at=succeeded.get(task),
            next_at=next_due(rhythm, now) if (rhythm := policy.rhythms.get(task)) else None,
        )
        for task in PeriodicTask
    )
    return [standing for standing in standings if standing.last or standing.next_at]


def _next(
    task: PeriodicTask, policy: KeepingPolicy, part: ClusterHistory, now: float
) -> PeriodicTaskRecord | None:
    """The next run of a task: one that began and did not end, else one that a person agreed to,
    else one that is due."""
    last = part.periodic_tasks.last(task)
    if last and last.ended is None:
        return replace(last, began=now, tries=last.tries + 1)
    for action in _agreed_actions(task, part):
        due = action.command.due if isinstance(action.command, DoPeriodicTask) else now
        before = part.periodic_tasks.find(task, due) or PeriodicTaskRecord(
            task=task, due=due, began=now
        )
        again = before.tries + 1 if before.ended is None else 1
        return replace(before, began=now, ended=None, end=None, tries=again)
    rhythm = policy.rhythms.get(task)
    last = part.periodic_tasks.last(task, now)  # under a wrong clock it may have run too early
    due_at = due_now(rhythm, last, now) if rhythm else None
    return None if due_at is None else PeriodicTaskRecord(task=task, due=due_at, began=now)


def _agreed_actions(task: PeriodicTask, part: ClusterHistory) -> Iterator[LifeAction]:
    for action in part.keeping.open_actions():
        is_meant = isinstance(action.command, DoPeriodicTask) and action.command.task is task
        if is_meant and action.stage is not Stage.PROPOSED:
            yield action


def _do(
    task: PeriodicTask, keeping: Keeping, history: History, part: ClusterHistory, caller: Caller
) -> None:
    record = _next(task, keeping.policy, part, time_in(part, caller).now)
    if record is None:
        return
    agreed = [action for action in _agreed_actions(task, part) if _is_about(action, record)]
    command = agreed[0].command if agreed else None
    run = PeriodicTaskRun(
        keeping=keeping,
        history=history,
        part=part,
        caller=caller,
        record=record,
        agreed=command if isinstance(command, DoPeriodicTask) else None,
    )
    ended = _carry_out(run)
    if ended is not None:
        _end(ended, agreed, run)


def _carry_out(run: PeriodicTaskRun) -> PeriodicTaskRecord | None:
    """Carry out a run. None: it goes on later. An error that may pass, or an interruption, ends
    nothing."""
    if run.record.tries > MOST_TRIES:
        return run.end_failed(f"given up: its process ended {MOST_TRIES} times before it was done")
    before = run.part.periodic_tasks.find(run.record.task, run.record.due)
    run.note()
    try:
        ended = WORK[run.record.task](run)
    except (Stopped, StoreUnreachableError):
        raise
    except AnubisError as error:
        return run.end_failed(str(error))
    except Exception:
        run.part.periodic_tasks.write(
            run.end_failed("a bug in Anubis: see what this process printed")
        )
        raise
    if ended is None and before:
        run.part.periodic_tasks.write(before)  # waiting is no try
    return ended


def _is_about(action: LifeAction, record: PeriodicTaskRecord) -> bool:
    command = action.command
    return isinstance(command, DoPeriodicTask) and command.due == record.due


def _end(record: PeriodicTaskRecord, agreed: list[LifeAction], run: PeriodicTaskRun) -> None:
    part, by = run.part, run.keeping.service or run.caller.name()
    at = record.ended or record.began
    with run.history.together():
        part.periodic_tasks.write(record)
        with part.keeping.turn(by) as turn:
            if record.end is PeriodicTaskEnd.PROPOSED:
                turn.keep([_proposal(record)], at)
            for action in agreed:
                stage = Stage.FAILED if record.end is PeriodicTaskEnd.FAILED else Stage.DONE
                turn.follow(action, stage, at, record.sentence)


def _proposal(record: PeriodicTaskRecord) -> DoPeriodicTask:
    return DoPeriodicTask(
        mode=Mode.PROPOSE,
        task=record.task,
        due=record.due,
        reason=record.sentence,
        proposal=record.proposal,
    )
