"""Keep a fleet: take turns, carry out what they order, approve proposals, close breakers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from anubis.core.amounts import HOUR_S
from anubis.core.clock import Time
from anubis.core.errors import AnubisError, Stopped, StoreError, UsageError
from anubis.core.history.events import OperatorSaid, Order
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import (
    LifeAction,
    ModedCommand,
    OwnerOrder,
    Prove,
    Stage,
    TryRepair,
    is_moot,
    subjects,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.life import Life, Proof
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import find, look_up, resolve, running_time, time_in
from anubis.operations.keep_actions import ActionRunner
from anubis.operations.keep_turns import KeeperTurns
from anubis.operations.keeping import Keeping, enter_if_answered
from anubis.operations.notify import deliver, message_of_stop
from anubis.operations.tell import Telling, tell_all
from anubis.operations.tokens import order_entry
from anubis.report.keep import sentence
from anubis.store.history import ClusterHistory
from anubis.store.keeping import LastTurn, News, Turn
from anubis.text.hostlist import shorten
from anubis.text.wording import moment

LONG_S = HOUR_S  # without a turn; turns are minutes apart
FAILING_S = 600.0  # without a turn that succeeds; one slow answer of an orchestrator is no outage
MOST_TURNS = 4  # enough to see the effect of what was done, and never an endless loop


@dataclass(frozen=True, kw_only=True)
class KeptFleet:
    """State of each node after a turn, and the actions that are open or were done."""

    cluster: str
    at: float
    doubt: str = ""  # why nothing is concluded from age; empty: the clock is trusted
    lives: Mapping[str, Life]
    breakers: Mapping[str, Breaker]
    last_turn: LastTurn | None  # None: none was taken so far
    actions: tuple[LifeAction, ...]  # since the first of these turns began, or still open


def keep(
    keeping: Keeping, caller: Caller = NO_CALLER, drive: Callable[[int], bool] | None = None
) -> KeptFleet:
    """Take turns until nothing more is to be sent.

    `drive` carries out the test or repair of an action elsewhere, by `carry_out`, and returns
    whether it is over. Without it they run here, one after another, and the turn waits for them.
    """
    with caller.history() as history:
        part = enter_if_answered(history, keeping, caller)
        began = time_in(part, caller, is_turn=True)
        if began.doubt:
            caller.remark(began.doubt)
        with _telling_people(keeping, part, began.now, caller):
            turns = KeeperTurns(keeping, history, part, caller)
            runner = ActionRunner(turns)
            for _ in range(MOST_TURNS):
                turns.take()
                if not runner.run_all(drive or runner.run):
                    break
        return look(part, began.now, time_in(part, caller))


@contextmanager
def _telling_people(
    keeping: Keeping, part: ClusterHistory, now: float, caller: Caller
) -> Iterator[None]:
    """Tell people that no turn was taken for long, or that turns go on failing, and what this one
    did. A turn that was left to another process did not fail."""
    notifier, last = keeping.notifier, part.keeping.last_turn()
    if notifier is None:
        yield
        return
    if last and now - last.at > LONG_S:
        why = f"no turn was taken from {moment(last.at)} to {moment(now)}"
        part.messages.post([message_of_stop(part.cluster, now, why)])
    try:
        yield
    except Stopped:
        raise
    except AnubisError as error:
        at = caller.clock()  # wall clock: it concludes nothing
        if last is None or at - last.at > FAILING_S:
            why = f"a turn failed: {error}"
            with suppress(StoreError):
                part.messages.post([message_of_stop(part.cluster, at, why)])
                deliver(part, notifier, caller)
        raise
    deliver(part, notifier, caller)


def carry_out(keeping: Keeping, id: int, caller: Caller = NO_CALLER) -> bool:
    """Carry out the test or the repair of this action, or go on with the test if its driver died.
    Return False if nothing is to be done, or another process does it."""
    with caller.history() as history:
        part, _ = find(history, keeping.cluster, caller)
        return ActionRunner(KeeperTurns(keeping, history, part, caller)).run(id)


def look(part: ClusterHistory, since: float, time: Time) -> KeptFleet:
    """The fleet as the last turn left it."""
    recent = [action for action in part.keeping.newest_actions() if action.changed_at >= since]
    actions = {action.id: action for action in [*part.keeping.open_actions(), *recent]}
    last = part.keeping.last_turn()
    return KeptFleet(
        cluster=part.cluster,
        at=time.now,
        doubt=time.doubt,
        lives={life.node: life for life in part.keeping.lives()},
        breakers=last.breakers if last else {},
        last_turn=last,
        actions=tuple(actions[id] for id in sorted(actions)),
    )


def approve(
    keeping: Keeping,
    ids: Collection[int],
    caller: Caller = NO_CALLER,
    drive: Callable[[int], bool] | None = None,
) -> KeptFleet:
    """Approve proposals: all of them, or none. `drive`: as in `keep`."""
    with caller.history() as history, history.together():
        part = resolve(history, keeping.cluster, caller)
        with part.keeping.turn(caller.name(), running_time(part, caller)) as turn:
            KeeperTurns(keeping, history, part, caller).abide(turn, turn.now)
            keeper = turn.keeper(keeping.policy, keeping.remedy_of)
            is_left_to_others = bool(keeping.acting) and keeping.policy.acts_on_nodes
            has_no_owner = keeping.orchestrator is None and not is_left_to_others
            for id in dict.fromkeys(ids):
                action = turn.action(id)
                if has_no_owner and isinstance(action.command, OwnerOrder):
                    raise UsageError(
                        f"action {id} cannot be done: the cluster has no orchestrator; name one"
                        f" in its file"
                    )
                _approve(action, keeper, turn, turn.now, caller.name())
                order = f"keep --do {id}: {sentence(action.command)}"
                history.audit.add([order_entry(order, part.cluster, caller.name(), turn.now)])
            turn.end(keeper, News(event_records=(), conclusions=()), turn.now)
            keeping.post(turn)
    return keep(keeping, caller, drive)


def close_breakers(keeping: Keeping, scopes: Collection[str], caller: Caller = NO_CALLER) -> None:
    """Order all of these breakers closed, or none; the next turn carries it out."""
    with caller.history() as history:
        part, _ = find(history, keeping.cluster, caller)
        breakers = part.keeping.breakers()
        for scope in scopes:
            if scope in breakers and not breakers[scope].is_open:
                raise UsageError(
                    f'the breaker "{scope}" of cluster "{part.cluster}" is not open: nothing waits'
                    " for it to be closed"
                )
        orders = (OperatorSaid(order=Order.CLOSE, scope=scope) for scope in dict.fromkeys(scopes))
        tellings = [Telling(event=order, cluster=part.cluster) for order in orders]
        with history.together():
            for answer in tell_all(tellings, history, caller):
                if isinstance(answer, AnubisError):
                    raise answer


def _approve(action: LifeAction, keeper: Keeper, turn: Turn, at: float, by: str) -> None:
    command, lives = action.command, keeper.lives
    if action.stage is not Stage.PROPOSED or not isinstance(command, ModedCommand):
        raise UsageError(f"action {action.id} is {action.stage}: only proposals can be approved")
    if maintained := [n for n in subjects(command) if n in lives and lives[n].maintained]:
        raise UsageError(
            f"action {action.id} is about {shorten(maintained)}, which is under maintenance:"
            " anubis leaves it alone until that ends"
        )
    if is_moot(command, keeper.lives):
        raise UsageError(f"action {action.id} is no longer needed: see anubis history actions")
    why = ""
    if isinstance(command, TryRepair):
        why = keeper.repairs.reason_against(command, at)
    elif isinstance(command, Prove) and command.proof is Proof.TOGETHER:
        why = keeper.proofs.reason_against_search(command, at)
    if why:
        raise UsageError(f"action {action.id} cannot be done now: {why}")
    approved, further = keeper.approve(command, at)
    turn.approve(action, approved, at, by)
    turn.keep(further, at)


def actions(
    last: int = 100,
    *,
    only_open: bool = True,
    cluster: str | None = None,
    caller: Caller = NO_CALLER,
) -> list[LifeAction]:
    """Actions, the newest first; those that are open, or all."""
    with caller.history() as history:
        part = look_up(history, cluster)
        if only_open:
            return part.keeping.open_actions()[::-1][:last]
        return part.keeping.newest_actions(last)
