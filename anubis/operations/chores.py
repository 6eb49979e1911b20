"""Periodic tasks of the keeper: what is due is done once, by one process, and kept.

If a process dies at a task, the next one that looks takes it over. Changes to the fleet, or to what
it is judged by, are proposed unless the policy says otherwise, and done when a person agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from anubis.core.errors import AnubisError, Stopped, StoreUnreachableError
from anubis.core.keep.actions import LifeAction, Stage
from anubis.core.keep.chores import (
    MOST_TRIES,
    Chore,
    ChoreEnd,
    ChoreRecord,
    ChoreStanding,
    due_now,
    next_due,
)
from anubis.core.keep.commands import DoChore, Mode
from anubis.core.keep.policy import KeepingPolicy
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.chore_criteria import renew_criteria
from anubis.operations.chore_risk import renew_risk
from anubis.operations.chore_sweep import sweep_idle_nodes
from anubis.operations.chore_task import ChoreTask
from anubis.operations.clusters import resolve, time_in
from anubis.operations.keep import Keeping
from anubis.store.history import ClusterHistory, History

WORK: Mapping[Chore, Callable[[ChoreTask], ChoreRecord | None]] = {
    Chore.SWEEP: sweep_idle_nodes,
    Chore.CRITERIA: renew_criteria,
    Chore.RISK: renew_risk,
}


def do_chores(
    keeping: Keeping, caller: Caller = NOBODY, drive: Callable[[], object] | None = None
) -> list[ChoreStanding]:
    """Do what is due now, and what a person agreed to, unless another process is doing it.

    `drive` starts this function elsewhere, without `drive`. Return the state of each periodic task
    and when it is due next.
    """
    with caller.history() as history:
        part = resolve(history, keeping.cluster, caller)
        with part.chores.alone() as is_alone:
            is_waiting = _is_waiting(keeping.policy, part, time_in(part, caller).now)
            if is_waiting and is_alone and drive is None:
                for chore in Chore:
                    _do(chore, keeping, history, part, caller)
        if is_waiting and is_alone and drive is not None:
            drive()
        if is_waiting and not is_alone:
            caller.remark(f"another process does the periodic work of cluster {part.cluster}")
        return _standings(keeping.policy, part, time_in(part, caller).now)


def _is_waiting(policy: KeepingPolicy, part: ClusterHistory, now: float) -> bool:
    return any(_next(chore, policy, part, now) for chore in Chore)


def _standings(policy: KeepingPolicy, part: ClusterHistory, now: float) -> list[ChoreStanding]:
    """States of the tasks that the policy schedules, or that were done before."""
    succeeded = part.chores.successes()
    standings = (
        ChoreStanding(
            cluster=part.cluster,
            chore=chore,
            last=part.chores.last(chore),
            succeeded_at=succeeded.get(chore),
            next_at=next_due(rhythm, now) if (rhythm := policy.rhythms.get(chore)) else None,
        )
        for chore in Chore
    )
    return [standing for standing in standings if standing.last or standing.next_at]


def _next(
    chore: Chore, policy: KeepingPolicy, part: ClusterHistory, now: float
) -> ChoreRecord | None:
    """The next run of a task: one that began and did not end, else one that a person agreed to,
    else one that is due."""
    last = part.chores.last(chore)
    if last and last.ended is None:
        return replace(last, began=now, tries=last.tries + 1)
    for action in _agreed_actions(chore, part):
        due = action.command.due if isinstance(action.command, DoChore) else now
        before = part.chores.find(chore, due) or ChoreRecord(chore=chore, due=due, began=now)
        again = before.tries + 1 if before.ended is None else 1
        return replace(before, began=now, ended=None, end=None, tries=again)
    rhythm = policy.rhythms.get(chore)
    last = part.chores.last(chore, now)  # under a wrong clock it may have run too early
    due_at = due_now(rhythm, last, now) if rhythm else None
    return None if due_at is None else ChoreRecord(chore=chore, due=due_at, began=now)


def _agreed_actions(chore: Chore, part: ClusterHistory) -> Iterator[LifeAction]:
    for action in part.keeping.open_actions():
        is_meant = isinstance(action.command, DoChore) and action.command.chore is chore
        if is_meant and action.stage is not Stage.PROPOSED:
            yield action


def _do(
    chore: Chore, keeping: Keeping, history: History, part: ClusterHistory, caller: Caller
) -> None:
    record = _next(chore, keeping.policy, part, time_in(part, caller).now)
    if record is None:
        return
    agreed = [action for action in _agreed_actions(chore, part) if _is_about(action, record)]
    command = agreed[0].command if agreed else None
    task = ChoreTask(
        keeping=keeping,
        history=history,
        part=part,
        caller=caller,
        record=record,
        agreed=command if isinstance(command, DoChore) else None,
    )
    ended = _carry_out(task)
    if ended is not None:
        _end(ended, agreed, task)


def _carry_out(task: ChoreTask) -> ChoreRecord | None:
    """Carry out a task. None: it goes on later. An error that may pass, or an interruption, ends
    nothing."""
    if task.record.tries > MOST_TRIES:
        return task.end_failed(f"given up: its process ended {MOST_TRIES} times before it was done")
    before = task.part.chores.find(task.record.chore, task.record.due)
    task.note()
    try:
        ended = WORK[task.record.chore](task)
    except (Stopped, StoreUnreachableError):
        raise
    except AnubisError as error:
        return task.end_failed(str(error))
    except Exception:
        task.part.chores.write(task.end_failed("a bug in Anubis: see what this process printed"))
        raise
    if ended is None and before:
        task.part.chores.write(before)  # to have waited is no try
    return ended


def _is_about(action: LifeAction, record: ChoreRecord) -> bool:
    command = action.command
    return isinstance(command, DoChore) and command.due == record.due


def _end(record: ChoreRecord, agreed: list[LifeAction], task: ChoreTask) -> None:
    part, by = task.part, task.keeping.service or task.caller.name()
    at = record.ended or record.began
    with task.history.together():
        part.chores.write(record)
        with part.keeping.turn(by) as turn:
            if record.end is ChoreEnd.PROPOSED:
                turn.keep([_proposal(record)], at)
            for action in agreed:
                stage = Stage.FAILED if record.end is ChoreEnd.FAILED else Stage.DONE
                turn.follow(action, stage, at, record.sentence)


def _proposal(record: ChoreRecord) -> DoChore:
    return DoChore(
        mode=Mode.PROPOSE,
        chore=record.chore,
        due=record.due,
        reason=record.sentence,
        proposal=record.proposal,
    )
