"""The keeper of a fleet, as a state machine: what became true in, what is to be done out.

What holds at all times, whatever order events come in, and is tested with saboteurs:
no node is in service or a spare whose last conclusive verdict is defective, or whose repair was not
proven since; nothing is tested that somebody holds; only a cordon of ours is released; no more than
the policy's share is out at once, until a person says so; every suspicion ends.
Commands are sent again until the fleet shows their effect. The keeper is its lives and breakers:
built again from them, it goes on alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from anubis.core.lifecycle.breaker import Breaker, room, scopes
from anubis.core.lifecycle.commands import (
    CloseTicket,
    Cordon,
    EndSuspicion,
    LifeCommand,
    Mode,
    ModedCommand,
    Notify,
    OpenTicket,
    Outcome,
    Prove,
    Release,
    Swap,
)
from anubis.core.lifecycle.events import (
    Concluded,
    FleetSeen,
    LifeEvent,
    SeenNode,
    TestRefused,
    VerdictReached,
    Waited,
)
from anubis.core.lifecycle.life import AFTER_JOBS, Debt, DefectFound, Life, OpenTest, Proof, State
from anubis.core.lifecycle.policy import DAY_S, KeepingPolicy, allowed
from anubis.core.lifecycle.reasons import NO_DEFECT, SPARE, UNPROVEN
from anubis.core.lifecycle.reserve import next_in_line, reserve_of
from anubis.core.lifecycle.suspicions import owed_for
from anubis.core.past.events import (
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    JobEnded,
    NodeAdded,
    NodeRemoved,
    Notice,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.records import Judgement

NOT_PROVEN = "new, not yet proven"
UNANSWERED = Concluded(judgement=Judgement.UNKNOWN, reason="the test gave no answer")
URGENCY = (
    *(Debt.REPAIR, Debt.RESERVE, Debt.SUSPICION, Debt.INCIDENT, Debt.UPGRADE, Debt.NEW),
    *(Debt.FAILURE, Debt.DOUBT, Debt.WORK),
)


class Keeper:
    """Feed it every event; carry out what it returns, in order."""

    def __init__(
        self,
        policy: KeepingPolicy,
        lives: Iterable[Life] = (),
        breakers: Mapping[str, Breaker] | None = None,
        seen_at: float = float("-inf"),
        waited_at: float = float("-inf"),
    ) -> None:
        self._policy = policy
        self.lives = {life.node: life for life in lives}
        self.breakers = dict(breakers or {})
        self._unreachable: frozenset[str] = frozenset()  # where somebody measures
        self.seen_at = seen_at  # when the orchestrator last showed the fleet
        self.waited_at = waited_at  # when it was last looked who measures where

    def handle(self, event: LifeEvent) -> list[LifeCommand]:
        match event:
            case Notice():
                return self._noticed(event)
            case VerdictReached():
                return self._judged(event)
            case TestRefused():
                return self._refused(event)
            case FleetSeen():
                return self._shown(event)
            case Waited():
                return self._waited(event)

    def _noticed(self, notice: Notice) -> list[LifeCommand]:
        event = notice.event
        if isinstance(event, OperatorSaid) and event.order is Order.CLOSE:
            return self._close(event.scope, notice.at)
        commands: list[LifeCommand] = []
        for node in event.nodes:
            commands += self._noted(self._life(node), notice)
        return commands

    def _noted(self, life: Life, notice: Notice) -> list[LifeCommand]:
        at = notice.at
        match notice.event:
            case NodeAdded():  # told late, its orchestrator may have shown since that it is away
                life = _arrived(life, at) if life.present or at > self.seen_at else life
            case NodeRemoved():
                life = _left(life, at)
            case JobAllocated(job=job):
                life = life.beginning(job, at)
            case JobEnded(job=job, failed=failed):
                life = life.ending(job, at)
                if self._policy.checks_after_jobs:
                    life = life.owing(Debt.FAILURE if failed else Debt.WORK, at)
            case FleetUpgraded():
                life = life.owing(Debt.UPGRADE, at)
            case IncidentReported(category=category):
                life = life.owing(Debt.INCIDENT, at, category)
            case SuspicionRaised():
                return self._suspected(life, notice.id, at, notice.event)
            case RepairBegun():
                life = replace(life, repair_begun_at=max(at, life.repair_begun_at))
            case RepairDone():
                life = replace(life, repair_done_at=max(at, life.repair_done_at), tried=0)
                life = life.owing(Debt.REPAIR, at)
            case OperatorSaid(order=order):
                return self._ordered(life, order, at)
        return self._keep(life, at)

    def _shown(self, event: FleetSeen) -> list[LifeCommand]:
        """An orchestrator shows what is; one that shows it late shows what was."""
        if event.at < self.seen_at:
            return []
        is_first = self.seen_at == float("-inf")
        self.seen_at = event.at
        commands = []
        up = {node: seen for node, seen in event.nodes.items() if seen.is_up}
        for node in self.lives.keys() - up.keys():
            commands += self._keep(_left(self.lives[node], event.at), event.at)
        for node, seen in up.items():
            life = self._life(node)
            if node not in self.lives:
                life = (_serving if is_first else _arrived)(life, event.at)
            elif not life.present:
                life = self._back(life, event.at)
            self.lives[node] = _as_shown(life, seen, event.at)
        for node in up:  # all are there before it is counted how many are out
            commands += self._keep(self.lives[node], event.at)
        return commands

    def _back(self, life: Life, at: float) -> Life:
        """Who was away for a moment only is what it was before."""
        if at - life.present_at > self._policy.away_s:
            return _arrived(life, at)
        return replace(life, present=True, present_at=at) if at >= life.present_at else life

    def _suspected(
        self, life: Life, id: str, at: float, suspicion: SuspicionRaised
    ) -> list[LifeCommand]:
        if life.retired:
            return [_ended(id, life.node, Outcome.GIVEN_UP, "the node is retired")]
        doubted = life.owing_what(owed_for(suspicion, id, at))
        if doubted is life:
            return [_ended(id, life.node, Outcome.REFUTED, "a later test has passed")]
        return self._keep(doubted, at)

    # --- what a test came to ---------------------------------------------------------------

    def _judged(self, event: VerdictReached) -> list[LifeCommand]:
        commands = []
        silent = self._tried_by(event.test) - event.verdicts.keys()
        verdicts = {**event.verdicts, **dict.fromkeys(silent, UNANSWERED)}
        for node, verdict in verdicts.items():
            life = self._life(node)
            if life.trial and life.trial.id == event.test:
                life = replace(life, trial=None)
            match verdict.judgement:
                case Judgement.DEFECTIVE if event.at >= max(life.judged_at, life.repair_done_at):
                    life, more = self._condemned(life, verdict, event)
                case Judgement.HEALTHY if event.at >= life.judged_at and verdict.counts:
                    life, more = self._cleared(life, verdict, event)
                case Judgement.DEFECTIVE | Judgement.HEALTHY if not event.test:
                    more = []
                case _:
                    life, more = self._came_to_nothing(life, event.at, verdict.reason)
            commands += [*more, *self._keep(life, event.at)]
        return commands

    def _condemned(
        self, life: Life, verdict: Concluded, event: VerdictReached
    ) -> tuple[Life, list[LifeCommand]]:
        ticket = life.ticket or f"{life.node}/{event.campaign}"
        commands: list[LifeCommand] = [
            _ended(owed.id, life.node, Outcome.CONFIRMED, verdict.reason)
            for owed in life.owed
            if owed.debt is Debt.SUSPICION
        ]
        if not life.ticket:
            commands.append(
                OpenTicket(
                    mode=self._policy.ticket,
                    ticket=ticket,
                    node=life.node,
                    code=verdict.code,
                    reason=verdict.reason,
                    campaign=event.campaign,
                )
            )
        defect = DefectFound(
            code=verdict.code, reason=verdict.reason, campaign=event.campaign, at=event.at
        )
        owed = tuple(o for o in life.owed if o.debt not in (Debt.SUSPICION, Debt.RESERVE))
        life = replace(
            life,
            defect=defect,
            ticket=ticket,
            owed=owed,
            judged_at=event.at,
            is_reserve=False,
            tried=0,
        )
        return life, commands

    def _cleared(
        self, life: Life, verdict: Concluded, event: VerdictReached
    ) -> tuple[Life, list[LifeCommand]]:
        before = life.owed
        if verdict.proof:
            life = life.having_proven(verdict.proof, verdict.about, event.began)
        if verdict.is_fit:
            life = replace(life, judged_at=event.at)
        outcome, reason = Outcome.REFUTED, f"the node passed campaign {event.campaign}"
        if not event.campaign:  # nothing was measured, so nobody was right or wrong
            outcome, reason = Outcome.GIVEN_UP, verdict.reason
        commands: list[LifeCommand] = [
            _ended(owed.id, life.node, outcome, reason)
            for owed in before
            if owed.debt is Debt.SUSPICION and owed not in life.owed
        ]
        if verdict.is_fit and life.defect and life.defect.at <= event.began:
            life = replace(life, defect=None)
        if life.ticket and not life.must_be_out:
            commands.append(
                CloseTicket(
                    mode=self._policy.ticket,
                    ticket=life.ticket,
                    node=life.node,
                    campaign=event.campaign,
                )
            )
            life = replace(life, ticket="")
        return life, commands

    def _came_to_nothing(
        self, life: Life, at: float, reason: str
    ) -> tuple[Life, list[LifeCommand]]:
        life = replace(life, tried=life.tried + 1, tried_at=at)
        if life.tried < self._policy.tries:
            return life, []
        why = f"{life.tried} tests in a row came to nothing: {reason}"
        commands: list[LifeCommand] = [Notify(subject=life.node, sentence=why)]
        return self._without_suspicions(life, commands, why), commands

    def _without_suspicions(self, life: Life, commands: list[LifeCommand], why: str) -> Life:
        for owed in life.owed:
            if owed.debt is Debt.SUSPICION:
                commands.append(_ended(owed.id, life.node, Outcome.GIVEN_UP, why))
        return replace(life, owed=tuple(o for o in life.owed if o.debt is not Debt.SUSPICION))

    def _refused(self, event: TestRefused) -> list[LifeCommand]:
        commands: list[LifeCommand] = []
        for node in sorted(self._tried_by(event.test)):
            life = self.lives[node]
            life = replace(life, trial=None, tried=life.tried + 1, tried_at=event.at)
            commands += [Notify(subject=node, sentence=event.reason), *self._keep(life, event.at)]
        return commands

    # --- what people say -------------------------------------------------------------------

    def _close(self, scope: str, at: float) -> list[LifeCommand]:
        out = room(scope, self.lives.values(), self._policy, {}).out
        self.breakers[scope] = Breaker(accepted=out)
        return [command for life in list(self.lives.values()) for command in self._keep(life, at)]

    def _ordered(self, life: Life, order: Order, at: float) -> list[LifeCommand]:
        if at < life.retired_at:
            return []
        life = replace(life, retired=order is Order.RETIRE, retired_at=at)
        if not life.retired:
            return self._keep(life.owing(Debt.NEW, at), at)
        commands: list[LifeCommand] = []
        life = self._without_suspicions(replace(life, trial=None), commands, "the node is retired")
        return [*commands, *self._keep(replace(life, is_reserve=False), at)]

    def approve(self, command: ModedCommand, at: float) -> tuple[ModedCommand, list[LifeCommand]]:
        """What was proposed is to be done, and what follows from it."""
        approved = replace(command, mode=Mode.ACT)
        match approved:
            case Prove():
                self.begin(approved, at)
            case Cordon(node=node, code=code):
                life = self._life(node)
                self.lives[node] = replace(life, out_code=code, sent_at=at, has_been_cordoned=True)
            case Swap(spare=spare):
                return approved, self._keep(_not_reserve(self._life(spare)), at)
        return approved, []

    # --- time ------------------------------------------------------------------------------

    def _waited(self, event: Waited) -> list[LifeCommand]:
        if event.at <= self.waited_at:
            return []
        commands: list[LifeCommand] = []
        self.waited_at, self._unreachable = event.at, event.unreachable
        for node in event.watched - self.lives.keys():
            self.lives[node] = Life(node=node)
        for node in sorted(event.unproven & self.lives.keys()):
            commands += self._doubt(self.lives[node], event.at)
        for life in list(self.lives.values()):
            if life.trial and event.at - life.trial.at > self._policy.answered_s:
                life = replace(life, trial=None)
                life, more = self._came_to_nothing(life, event.at, UNANSWERED.reason)
                commands += more
            commands += self._too_old(life, event.at)
        commands += self._fill_reserve(event)
        commands += self._keep_new_out(event.at)
        return [*commands, *self._tests(event.at)]

    def _doubt(self, life: Life, at: float) -> list[LifeCommand]:
        """The history vouches for nothing there, whatever the reason."""
        if life.must_be_out or any(owed.debt not in AFTER_JOBS for owed in life.owed):
            return []
        return self._keep(life.owing(Debt.DOUBT, at), at)

    def _too_old(self, life: Life, at: float) -> list[LifeCommand]:
        """Suspicions that nobody could settle, whatever stood in the way."""
        too_old = {
            owed
            for owed in life.owed
            if owed.debt is Debt.SUSPICION and at - owed.at > self._policy.unsettled_s
        }
        days = self._policy.unsettled_s / DAY_S
        reason = f"the node could not be tested within {days:g} days"
        ended = [
            _ended(o.id, life.node, Outcome.GIVEN_UP, reason) for o in life.owed if o in too_old
        ]
        life = replace(life, owed=tuple(o for o in life.owed if o not in too_old))
        return [*ended, *self._keep(life, at)]

    def _fill_reserve(self, event: Waited) -> Iterator[LifeCommand]:
        for sku, count in sorted(self._policy.spares.items()):
            reserve = reserve_of(sku, self.lives.values())
            for life in reserve[count:]:
                yield from self._keep(_not_reserve(life), event.at)
            free = next_in_line(sku, self.lives.values(), event.risk)
            for life in free[: max(0, count - len(reserve))]:
                life = replace(life, is_reserve=True).owing(Debt.RESERVE, event.at)
                yield from self._keep(life, event.at)

    def _tests(self, at: float) -> list[LifeCommand]:
        """All that may be tested now, the most urgent first: a test for each kind of proof."""
        waiting = [life for life in self.lives.values() if self._may_be_tested(life, at)]
        waiting.sort(key=lambda life: (_urgency(life), life.node))
        there = sum(life.is_there for life in self.lives.values())
        under_test = sum(life.trial is not None for life in self.lives.values())
        places = allowed(self._policy.tested_at_once, there) - under_test
        chosen = waiting[: max(0, places)]
        if not chosen:
            return []
        groups = {
            life.needs: [same for same in chosen if same.needs == life.needs] for life in chosen
        }
        return [self._test(needs, lives, at) for needs, lives in groups.items()]

    def _test(self, needs: tuple[Proof, str], lives: Sequence[Life], at: float) -> Prove:
        proof, about = needs
        id = f"{proof.value} {about} {lives[0].node}@{at:.0f}"
        owed = {life.node: life.owed for life in lives}
        test = Prove(mode=self._policy.test, id=id, proof=proof, about=about, owed=owed)
        if test.mode is Mode.ACT:
            self.begin(test, at)
        return test

    def begin(self, test: Prove, at: float) -> None:
        """Its nodes are under test, until it is answered."""
        for node in test.owed:
            trial = OpenTest(id=test.id, at=at)
            self.lives[node] = replace(self.lives[node], trial=trial, tried_at=at)

    def _may_be_tested(self, life: Life, at: float) -> bool:
        rested = at - life.tried_at >= self._policy.pause_after(life.tried)
        is_out_of_reach = life.node in self._unreachable
        is_free = (
            life.is_there
            and life.is_idle
            and not is_out_of_reach
            and not life.is_cordoned_by_others
        )
        is_asked_for = bool(life.owed) and not life.is_in_repair
        awaits_repair = life.defect is not None and not life.owes(Debt.REPAIR)
        return is_free and is_asked_for and rested and not awaits_repair

    # --- in and out of service -------------------------------------------------------------

    def _keep(self, life: Life, at: float) -> list[LifeCommand]:
        """Take note of what is known now, and say what follows for its service."""
        self.lives[life.node] = life
        if not life.is_there or life.is_cordoned_by_others:
            return []
        if life.must_be_out:
            return self._take_out(life, at)
        if life.is_reserve:
            return self._send_cordon(life, SPARE, "kept ready as a spare", at)
        if life.is_new and life.out_code == UNPROVEN:
            return self._send_cordon(life, UNPROVEN, NOT_PROVEN, at)
        return self._let_in(life, at)

    def _keep_new_out(self, at: float) -> Iterator[LifeCommand]:
        """Until they are proven, as far as the share of each scope leaves room: the others serve
        meanwhile, and no breaker opens for them."""
        new = [life for life in self.lives.values() if _is_let_in_unproven(life)]
        left: dict[str, int] = {}
        for life in sorted(new, key=attrgetter("node")):
            if all(self._left_for_new(scope, left) > 0 for scope in scopes(life)):
                left |= {scope: left[scope] - 1 for scope in scopes(life)}
                yield from self._send_cordon(life, UNPROVEN, NOT_PROVEN, at)

    def _left_for_new(self, scope: str, left: dict[str, int]) -> int:
        if scope not in left:
            space = room(scope, self.lives.values(), self._policy, self.breakers)
            is_open = self.breakers.get(scope, Breaker()).is_open
            left[scope] = 0 if is_open else space.left_for_new
        return left[scope]

    def _take_out(self, life: Life, at: float) -> list[LifeCommand]:
        code, reason = _why_out(life)
        is_first = life.out_code in ("", *NO_DEFECT)
        if is_first and (blocked := self._blocked(life)) is not None:
            return blocked
        commands = self._send_cordon(life, code, reason, at)
        return [*commands, *(self._swap(life, at) if is_first and not life.cordon else [])]

    def _blocked(self, life: Life) -> list[LifeCommand] | None:
        """Where as many are out as may be, the breaker opens and stays open."""
        commands: list[LifeCommand] = []
        is_blocked = False
        for scope in scopes(life):
            breaker = self.breakers.get(scope, Breaker())
            if breaker.is_open:
                is_blocked = True
                continue
            space = room(scope, self.lives.values(), self._policy, self.breakers)
            if space.is_full:
                is_blocked = True
                self.breakers[scope] = replace(breaker, is_open=True)
                sentence = (
                    f"{space.out} of {space.among} nodes are out, as many as may be: no more are"
                    f" taken out until somebody closes the breaker; {life.node} would be next"
                )
                commands.append(Notify(subject=scope, sentence=sentence))
        return commands if is_blocked else None

    def _send_cordon(self, life: Life, code: str, reason: str, at: float) -> list[LifeCommand]:
        mode = self._policy.cordon
        is_same = life.out_code == code
        if is_same and (
            life.is_out_as(code) or mode is Mode.PROPOSE or not self._is_overdue(life, at)
        ):
            return []
        self.lives[life.node] = replace(
            life,
            out_code=code,
            sent_at=at,
            has_been_cordoned=life.has_been_cordoned or mode is Mode.ACT,
        )
        return [Cordon(mode=mode, node=life.node, code=code, reason=reason)]

    def _let_in(self, life: Life, at: float) -> list[LifeCommand]:
        if not life.cordon:
            if life.out_code and at - life.sent_at >= self._policy.resent_s:
                self.lives[life.node] = replace(life, out_code="")
            return []
        is_ours = life.has_been_cordoned and life.cordoned_by_anubis
        is_sent = life.out_code == ""
        mode = self._policy.release
        if not is_ours or (is_sent and (mode is Mode.PROPOSE or not self._is_overdue(life, at))):
            return []
        self.lives[life.node] = replace(life, out_code="", sent_at=at)
        return [Release(mode=mode, node=life.node, reason="nothing is held against it any more")]

    def _is_overdue(self, life: Life, at: float) -> bool:
        return at - life.sent_at >= self._policy.resent_s

    def _swap(self, life: Life, at: float) -> list[LifeCommand]:
        ready = [
            spare
            for spare in self.lives.values()
            if spare.sku == life.sku and spare.state is State.SPARE and spare.cordon
        ]
        if not ready:
            return []
        spare = min(ready, key=attrgetter("node"))
        swap = Swap(mode=self._policy.swap, node=life.node, spare=spare.node)
        if swap.mode is Mode.PROPOSE:
            return [swap]
        return [swap, *self._keep(_not_reserve(spare), at)]

    # --- small things ----------------------------------------------------------------------

    def _life(self, node: str) -> Life:
        return self.lives.get(node) or Life(node=node)

    def _tried_by(self, test: str) -> set[str]:
        return {
            life.node
            for life in self.lives.values()
            if test and life.trial is not None and life.trial.id == test
        }


def _left(life: Life, at: float) -> Life:
    if at < life.present_at:
        return life
    since = at if life.present else life.present_at
    return replace(life, present=False, present_at=since, jobs={}, trial=None)


def _arrived(life: Life, at: float) -> Life:
    if at < life.present_at:
        return life
    return replace(life, present=True, present_at=at).owing(Debt.NEW, at)


def _serving(life: Life, at: float) -> Life:
    """It was there before anybody looked, so it serves, proven or not."""
    return replace(life, present=True, present_at=at).owing(Debt.DOUBT, at)


def _is_let_in_unproven(life: Life) -> bool:
    is_out = life.must_be_out or life.is_reserve or life.out_code == UNPROVEN
    return life.is_new and life.is_there and not is_out and not life.is_cordoned_by_others


def _as_shown(life: Life, seen: SeenNode, at: float) -> Life:
    return replace(
        life.showing(seen.jobs, at),
        sku=seen.sku or life.sku,
        cordon=seen.cordon,
        cordoned_by_anubis=seen.by_anubis,
    )


def _not_reserve(life: Life) -> Life:
    owed = tuple(o for o in life.owed if o.debt is not Debt.RESERVE)
    return replace(life, is_reserve=False, owed=owed)


def _urgency(life: Life) -> int:
    return min(URGENCY.index(owed.debt) for owed in life.owed)


def _why_out(life: Life) -> tuple[str, str]:
    if life.defect is not None:
        return life.defect.code, life.defect.reason
    return "REPAIR", "in repair" if life.is_in_repair else "its repair is not proven"


def _ended(id: str, node: str, outcome: Outcome, reason: str) -> EndSuspicion:
    return EndSuspicion(id=id, node=node, outcome=outcome, reason=reason)
