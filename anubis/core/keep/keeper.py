"""The keeper of a fleet as a state machine: events in, commands out.

Invariants, for any order of events, tested with saboteurs:
- No node is in service or a spare if its last conclusive verdict is defective, if its repair is not
  proven, if it has an open incident or one without a later proof, or if it left a test unanswered.
- No node in use by others is tested, and nodes under maintenance are left alone.
- Only a cordon of Anubis is released.
- No more than the policy's share is out at once, until a person allows it.
- Every suspicion ends.
Commands are sent again until the fleet shows their effect. The keeper's state is its lives and
breakers: rebuilt from them, it continues alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec

from anubis.core.amounts import DAY_S
from anubis.core.history.events import (
    Debt,
    EventRecord,
    JobAllocated,
    JobEnded,
    JobUnexplained,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.keep.breaker import OF_JOB, Allowance, Breaker, room, scopes
from anubis.core.keep.commands import (
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
    Requeue,
    Swap,
    TryRepair,
)
from anubis.core.keep.keeper_events import (
    ANY_TIME,
    Concluded,
    Dating,
    FleetSeen,
    LifeEvent,
    RepairRan,
    SeenNode,
    TestRefused,
    VerdictReached,
    Waited,
)
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import AFTER_JOBS, DefectFound, Life, Owed, Proof
from anubis.core.keep.lives import Lives, next_in_line, reserve_of
from anubis.core.keep.proofs import Proofs, outcome_of_search
from anubis.core.keep.reasons import LOST, SPARE, SUSPECTED, UNPROVEN, code_of
from anubis.core.keep.repairs import Repairs
from anubis.core.keep.suspicions import owed_for
from anubis.core.records import Judgement, Remedy

NOT_PROVEN = "new, not yet proven"
NO_ANSWER = "it does not answer, and has to prove itself when it is back"
UNANSWERED = Concluded(judgement=Judgement.UNKNOWN, reason="the test gave no answer")


Learnt = tuple[Life, list[LifeCommand]]
P = ParamSpec("P")


class Keeper:
    """State machine: give it every event, and carry out the commands that it returns, in order.

    All events of one call are recorded before anything is decided. So no node enters service on a
    state that the next event of the call takes back.
    """

    def __init__(
        self,
        policy: KeepingPolicy,
        lives: Iterable[Life] = (),
        breakers: Mapping[str, Breaker] | None = None,
        seen_at: float = float("-inf"),
        waited_at: float = float("-inf"),
        dating: Dating = ANY_TIME,
        remedy_of: Callable[[str], Remedy | None] = lambda code: None,
    ) -> None:
        """`remedy_of` a code: for repairs by commands."""
        self._policy = policy
        self._dating = dating
        self.lives = Lives(map(dating.heal, lives))
        vacated = (life.vacated_at for life in self.lives.values())
        self._vacated_at = max(vacated, default=-math.inf)  # the last of them
        self.breakers = dict(breakers or {})
        self.repairs = Repairs(self.lives, policy, remedy_of)
        self.proofs = Proofs(self.lives, policy, self.repairs.is_due_before_test)
        self.seen_at = dating.stamp(seen_at)  # when the orchestrator last showed the fleet
        self.waited_at = dating.stamp(waited_at)  # the last check of which nodes are measured

    def handle(self, *events: LifeEvent) -> list[LifeCommand]:
        """Commands that follow from new events. `events`: sorted by time."""
        commands, touched, turn = self._record(events)
        for scope, breaker in self.breakers.items():
            self.breakers[scope] = breaker.cap_accepted(self.lives.count(scope).out)
        commands += self._settle(touched)
        if touched:
            commands += self._swaps(max(touched.values()))
        if turn is not None:
            commands += self._turn(turn)
        return _last_orders(commands)

    def hear(self, *events: LifeEvent) -> None:
        """Record events, and decide nothing."""
        self._record(events)

    def _record(
        self, events: Iterable[LifeEvent]
    ) -> tuple[list[LifeCommand], dict[str, float], Waited | None]:
        """Record events. Return the commands that report them, the nodes concerned with the time
        of their last event, and the last passage of time."""
        commands: list[LifeCommand] = []
        touched: dict[str, float] = {}
        turn: Waited | None = None
        for event in map(self._dating.date_event, events):
            if isinstance(event, Waited) and event.at > self.waited_at:
                turn = event
            for node, more in self._hear(event):
                commands += more
                touched[node] = max(event.at, touched.get(node, event.at))
        return commands, touched, turn

    # --- events ------------------------------------------------------------------

    def _hear(self, event: LifeEvent) -> Iterator[tuple[str, list[LifeCommand]]]:
        """Record an event. Yield the nodes concerned, with the commands that report it."""
        match event:
            case EventRecord(event=OperatorSaid(order=Order.CLOSE, scope=scope)):
                self.breakers[scope] = Breaker(accepted=self.lives.count(scope).out)
                yield from self._all(list(self.lives))
            case EventRecord():
                for node in event.event.nodes:
                    yield node, self._learn(node, self._note, event)
            case VerdictReached():
                tested = self.lives.nodes_under_test(event.test)
                silent = dict.fromkeys(tested - event.verdicts.keys(), UNANSWERED)
                verdicts = {**event.verdicts, **silent}
                if job := next((t.job for n in tested if (t := self.lives[n].trial)), ""):
                    yield min(tested), [outcome_of_search(job, event.campaign, verdicts)]
                for node, verdict in verdicts.items():
                    yield node, self._learn(node, self._judge, verdict, event)
            case TestRefused():
                for node in sorted(self.lives.nodes_under_test(event.test)):
                    yield node, self._learn(node, self._refuse, event)
            case RepairRan(node=node) if node in self.lives:
                yield node, self._learn(node, self.repairs.end, event)
            case FleetSeen() if event.at >= self.seen_at:
                yield from self._all(self._show(event))
            case Waited() if event.at > self.waited_at:
                self.waited_at = event.at
                self.lives.unreachable, self.lives.held = event.unreachable, event.held
                for node in [*self.lives, *(event.watched - self.lives.keys())]:
                    yield node, self._learn(node, self._age, event)

    def _learn(
        self, node: str, fact: Callable[Concatenate[Life, P], Learnt], *of: P.args, **by: P.kwargs
    ) -> list[LifeCommand]:
        commands: list[LifeCommand] = []

        def learnt(life: Life) -> Life:
            life, more = fact(life, *of, **by)
            commands.extend(more)
            return life

        self.lives.change(node, learnt)
        return commands

    @staticmethod
    def _all(nodes: Iterable[str]) -> Iterator[tuple[str, list[LifeCommand]]]:
        for node in nodes:
            yield node, []

    def _note(self, life: Life, event_record: EventRecord) -> Learnt:
        event, at, life = event_record.event, event_record.at, life.confirm_at(self.seen_at)
        match event:
            case NodeAdded():  # a late one: the orchestrator may have shown it absent since
                life = _mark_arrived(life, at) if life.present or at > self.seen_at else life
            case NodeRemoved():
                life = replace(_mark_absent(life, at), is_down=False)
            case JobAllocated(job=job):
                life = life.begin_job(job, at)
            case JobEnded(job=job, failed=failed):
                life = life.end_job(job, at)
                if self._policy.checks_after_jobs:
                    life = life.add_debt(Debt.FAILURE if failed else Debt.WORK, at)
            case JobUnexplained(job=job):
                if self._policy.locate and at > life.searched_at:
                    life = life.add_debt(Debt.UNEXPLAINED, at, job)
            case SuspicionRaised() as suspicion:
                return _suspect(life, event_record.id, at, suspicion, self._policy.unsettled_s)
            case RepairBegun():
                life = replace(life, repair_begun_at=max(at, life.repair_begun_at))
            case RepairDone():
                done_at = max(at, life.repair_done_at)
                life = replace(life, repair_done_at=done_at, tried=0, refused=0)
            case OperatorSaid(order=order):
                return _obey_order(life, order, at)
        if event.debt:
            life = life.add_debt(event.debt, at, getattr(event, "category", ""))
        return life, []

    def _show(self, event: FleetSeen) -> list[str]:
        """Record what the orchestrator shows, and return the nodes concerned. A late report shows
        an earlier state."""
        before, self.seen_at = self.seen_at, event.at
        is_first = before == float("-inf")
        up = {node: seen for node, seen in event.nodes.items() if seen.is_up}
        gone = self.lives.keys() - up.keys()
        for node in gone:
            self.lives.change(node, _mark_gone, before, event.at, node in event.nodes)
            if node in event.nodes:  # down, and shown all the same
                self.lives.change(node, _show_down, event.nodes[node])
        for node, seen in up.items():
            life = self.lives.get(node)
            if life is not None and self.shows_nothing_new(life, seen):
                continue
            if life is None:
                self.lives.change(node, _begin_serving if is_first else _mark_arrived, event.at)
            self.lives.change(node, self._as_shown, seen, event.at)
        return [*gone, *up]

    def _as_shown(self, life: Life, seen: SeenNode, at: float) -> Life:
        return replace(
            (life if life.present else self._bring_back(life, at)).show_jobs(seen.jobs, at),
            **_facts_shown(life, seen),
        )

    @staticmethod
    def shows_nothing_new(life: Life, seen: SeenNode) -> bool:
        """Return whether the orchestrator shows what the life already has. That is so for most
        nodes at most looks: then the life need not be written."""
        return (
            life.is_shown
            and life.present
            and life.jobs.keys() == {*seen.jobs}
            and all(shown == life.shown_at for shown in life.jobs.values())
            and all(getattr(life, name) == fact for name, fact in _facts_shown(life, seen).items())
        )

    def _bring_back(self, life: Life, at: float) -> Life:
        """Life of a node that is present again. After a short absence it is as it was; after a
        longer one, or one during maintenance, it may have other parts and counts as new."""
        if life.maintained or at - life.present_at > self._policy.away_s:
            return _mark_arrived(life, at)
        return replace(life, present=True, present_at=at) if at >= life.present_at else life

    def _age(self, life: Life, event: Waited) -> Learnt:
        """Life after time has passed since the turn before, with the commands that follow."""
        commands: list[LifeCommand] = []
        life = _update_answers(_update_incidents(life, event), event)
        if life.maintained != (window := event.maintained.get(life.node)):
            life = replace(life, maintained=window)
        if life.node in event.unproven:
            life = _add_doubt(life, event.at)
        elif life.node in event.proven:
            life = _drop_doubt(life)
        if life.trial and event.at - life.trial.at > self._policy.answered_s:
            if job := life.trial.job:
                life = life.end_search(job, event.at)
            life = replace(life, trial=None)
            life, commands = self._count_failed_try(life, event.at, UNANSWERED.reason)
        if life.repair and event.at - life.repair.at > self._policy.answered_s:
            life = replace(life, repair=None)
        too_old = {
            owed
            for owed in life.owed
            if owed.debt is Debt.SUSPICION and event.at - owed.at > self._policy.unsettled_s
        }
        if too_old:
            days = self._policy.unsettled_s / DAY_S
            why = f"the node could not be tested within {days:g} days"
            life, ended = _give_up(life, too_old, why)
            commands += ended
        return life, commands

    # --- results of tests ---------------------------------------------------------------

    def _judge(self, life: Life, verdict: Concluded, event: VerdictReached) -> Learnt:
        before = life.tried
        life, commands = self._conclude(life, verdict, event)
        if not verdict.owes:
            return life, commands
        if event.test and verdict.judgement is Judgement.HEALTHY:  # of the rest
            life = replace(life, tried=before)
            life, more = self._count_failed_try(life, event.at, "not every test gave an answer")
            commands = [*commands, *more]
        owing = life.add_debt(Debt.ANSWER, event.at)
        if event.test:
            owing = replace(owing, tried=life.tried, tried_at=life.tried_at)
        return owing, commands

    def _conclude(self, life: Life, verdict: Concluded, event: VerdictReached) -> Learnt:
        if life.trial and life.trial.id == event.test:
            if job := life.trial.job:
                life = life.end_search(job, event.at)
            life = replace(life, trial=None, refused=0)
        match verdict.judgement:
            case Judgement.DEFECTIVE if event.at >= life.judged_at:
                return self._condemn(life, verdict, event)
            case Judgement.HEALTHY if event.at >= life.condemned_at and verdict.counts:
                return self._clear(life, verdict, event)
            case _ if not event.test:
                return life, []
        return self._count_failed_try(life, event.at, verdict.reason)

    def _condemn(self, life: Life, verdict: Concluded, event: VerdictReached) -> Learnt:
        ticket = life.ticket or f"{life.node}/{event.campaign}"
        commands: list[LifeCommand] = [
            _end_suspicion(owed.id, life.node, Outcome.CONFIRMED, verdict.reason)
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
            code=verdict.code,
            reason=verdict.reason,
            campaign=event.campaign,
            at=event.at,
            measured_at=event.began,
        )
        owed = tuple(o for o in life.owed if o.debt is not Debt.SUSPICION)
        life = replace(life, defect=defect, ticket=ticket, owed=owed, judged_at=event.at, tried=0)
        return life, [*commands, *self.repairs.report_vain(life, event.at)]

    def _clear(self, life: Life, verdict: Concluded, event: VerdictReached) -> Learnt:
        before = life.owed
        if verdict.proof:
            life = life.pay_debts(verdict.proof, verdict.about, event.began)
        if verdict.whole_since is not None:
            life = life.pay_debts(Proof.FULL, "", min(event.began, verdict.whole_since))
        if verdict.is_fit:
            life = replace(life, judged_at=max(event.at, life.judged_at))
        outcome, reason = Outcome.REFUTED, f"the node passed campaign {event.campaign}"
        if not event.campaign:  # nothing was measured, so the suspicion was neither right nor wrong
            outcome, reason = Outcome.GIVEN_UP, verdict.reason
        paid = [o for o in before if o.debt is Debt.SUSPICION and o not in life.owed]
        commands: list[LifeCommand] = [
            _end_suspicion(owed.id, life.node, outcome, reason) for owed in paid
        ]
        if paid and outcome is Outcome.REFUTED:
            is_whole = all(owed.at < life.proven_at for owed in paid)
            life = replace(life, refuted_at=-math.inf if is_whole else event.at)
        if verdict.is_fit and life.defect and life.defect.at <= event.began:
            life = replace(life, defect=None)
        if (
            life.defect
            and not life.owes(Debt.REPAIR)
            and any(o.debt is Debt.REPAIR for o in before)
        ):
            commands.append(
                Notify(subject=life.node, sentence=_sentence_of_open_defect(life, event))
            )
        if life.ticket and not life.is_broken:
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

    def _count_failed_try(self, life: Life, at: float, reason: str) -> Learnt:
        life = replace(life, tried=life.tried + 1, tried_at=at)
        if life.tried < self._policy.tries:
            return life, []
        why = f"{life.tried} tests in a row gave no result: {reason}"
        life, ended = _give_up(life, life.owed, why)
        return life, [Notify(subject=life.node, sentence=why), *ended]

    def _refuse(self, life: Life, event: TestRefused) -> Learnt:
        job = life.trial.job if life.trial else ""
        life = replace(life, trial=None, tried_at=event.at)
        if event.are_nodes_busy:  # it begins once they are free, without a person
            return life, []
        if job:
            return life.end_search(job, event.at), []
        life = replace(life, refused=life.refused + 1)
        return life, [Notify(subject=life.node, sentence=event.reason)]

    # --- approvals by a person -----------------------------------------------------------

    def approve(self, command: ModedCommand, at: float) -> tuple[ModedCommand, list[LifeCommand]]:
        """Carry out a proposal that a person approved. Return the command, and those that follow
        from it."""
        approved = replace(command, mode=Mode.ACT)
        match approved:
            case Prove():
                self.proofs.begin(approved, at)
            case TryRepair():
                self.repairs.begin(approved, at)
            case Cordon(node=node, code=code):
                self.lives.set(node, out_code=code, sent_at=at)
            case Swap():
                return approved, self._carry_out(approved, at)
        return approved, []

    def was_obeyed(self, cordon: Cordon) -> None:
        """Record that the owner of the nodes carried out this cordon, so that Anubis may release
        it."""
        if cordon.node in self.lives:
            self.lives.set(cordon.node, has_been_cordoned=True)

    # --- a turn ----------------------------------------------------------------------------

    def _turn(self, event: Waited) -> list[LifeCommand]:
        """Commands for work that waited for time to pass."""
        gone = [scope for scope in self.breakers if self._is_over(scope)]
        for scope in gone:
            del self.breakers[scope]
        commands = [*self._fill_reserve(event), *self._keep_new_out(event.at)]
        commands += self._hold_lost(event.at)
        commands += [*self.repairs.begin_due(event.at), *self.proofs.end_late_searches(event.at)]
        commands += self.proofs.begin_search(event.at)
        return [*commands, *self.proofs.begin_due(event.at)]

    def _is_over(self, scope: str) -> bool:
        """Return whether the scope is gone: the breaker of a job ends with the job."""
        return scope.startswith(f"{OF_JOB} ") and not self.lives.count(scope).among

    def _fill_reserve(self, event: Waited) -> Iterator[LifeCommand]:
        for sku, count in sorted(self._policy.spares.items()):
            reserve = reserve_of(sku, self.lives.values())
            for life in reserve[count:]:
                yield from self._enter_service(life.node, event.at)
            lacking = count - len(reserve)
            free = next_in_line(sku, self.lives.values(), event.risk) if lacking > 0 else []
            for life in free[: max(0, lacking)]:
                self.lives.change(life.node, _join_reserve, event.at)
                yield from self._settle({life.node: event.at})

    # --- in and out of service -------------------------------------------------------------

    def _settle(self, nodes: Mapping[str, float]) -> list[LifeCommand]:
        """Commands that follow from the present state of nodes (`nodes`: time by node). Nodes that
        must be out come first: new and suspected ones are kept out within what these leave."""
        in_order = sorted(nodes, key=lambda node: not self.lives[node].must_be_out)
        return [command for node in in_order for command in self._settle_node(node, nodes[node])]

    def _settle_node(self, node: str, at: float) -> list[LifeCommand]:
        life = self.lives[node]
        if life.is_reserve and (life.must_be_out or life.retired):
            life = self.lives.change(node, _leave_reserve)
        if not life.is_there or life.is_cordoned_by_others:
            return []
        if life.must_be_out:
            return self._take_out(life, at)
        if life.is_reserve:
            return self._send_cordon(life, SPARE, "kept ready as a spare", at)
        if life.is_new and self._may_stay_out(life):
            return self._send_cordon(life, UNPROVEN, NOT_PROVEN, at)
        if category := self._held_for(life):
            return self._send_cordon(life, SUSPECTED, f'suspected of "{category}", not tested', at)
        return self._let_in(life, at)

    def _held_for(self, life: Life) -> str:
        """Category of a strong suspicion for which the node is kept from new jobs, if the policy
        wants that and each scope has room; else nothing. No breaker opens for it."""
        least = self._policy.hold_from
        category = "" if least is None else life.suspicion_from(least)
        has_room = life.out_code == SUSPECTED or all(map(self._has_room_for_new, scopes(life)))
        return category if category and has_room else ""

    def _keep_new_out(self, at: float) -> Iterator[LifeCommand]:
        """Cordon new nodes until they are proven, as far as the share of each scope has room. The
        others serve meanwhile, and no breaker opens for them."""
        new = [life for life in self.lives.values() if _is_let_in_unproven(life)]
        for life in sorted(new, key=attrgetter("node")):
            if all(self._has_room_for_new(scope) for scope in scopes(life)):
                yield from self._send_cordon(life, UNPROVEN, NOT_PROVEN, at)

    def _hold_lost(self, at: float) -> Iterator[LifeCommand]:
        """Cordon nodes that have been lost for so long that they return unproven, so that no job
        begins on one before it is tested; as many as new nodes."""
        lost = [life for life in self.lives.values() if life.is_lost]
        for life in sorted(lost, key=attrgetter("node")):
            is_held = life.out_code == LOST
            may_begin = not life.cordon and all(map(self._has_room_for_new, scopes(life)))
            if (is_held or may_begin) and self.repairs.is_long_lost(life, at):
                yield from self._send_cordon(life, LOST, NO_ANSWER, at)

    def _may_stay_out(self, life: Life) -> bool:
        """Return whether a new node that is already kept from jobs, for any reason, may stay so."""
        if life.out_code not in ("", SPARE):
            return True
        is_out = life.out_code == SPARE or (bool(life.cordon) and life.cordoned_by_anubis)
        return is_out and all(self._has_room_for_new(scope) for scope in scopes(life))

    def _has_room_for_new(self, scope: str) -> bool:
        return not self._breaker(scope).is_open and self._room(scope).left_for_new > 0

    def _take_out(self, life: Life, at: float) -> list[LifeCommand]:
        code, reason = life.out_reason
        is_first = not life.is_taken_out
        if is_first and (blocked := self._block(life)) is not None:
            return blocked
        is_held = SUSPECTED in (life.out_code, code_of(life.cordon))
        if is_first and (is_held or not life.cordon):  # it was in service, or held for a test
            self.lives.set(life.node, vacated_at=self._next_vacancy(at))
        return [*self._send_cordon(life, code, reason, at), *self._requeue(life, reason)]

    def _next_vacancy(self, at: float) -> float:
        """Time of a new vacancy, later than each before. The longest vacant place gets the next
        spare, and a report by a wrong clock may be dated long ago."""
        self._vacated_at = max(at, self.waited_at, math.nextafter(self._vacated_at, math.inf))
        return self._vacated_at

    def _requeue(self, life: Life, reason: str) -> list[LifeCommand]:
        """Commands for the jobs of a node that is taken out, one for each as long as it runs
        there."""
        mode = self._policy.requeue
        jobs = [job for job in life.jobs if job not in life.requeued]
        if mode is None or not jobs:
            return []
        self.lives.set(life.node, requeued=(*life.requeued, *jobs))
        return [Requeue(mode=mode, node=life.node, job=job, reason=reason) for job in sorted(jobs)]

    def _block(self, life: Life) -> list[LifeCommand] | None:
        """Commands if a breaker forbids taking the node out; None: it may go out. A full scope
        opens its breaker, which stays open."""
        commands: list[LifeCommand] = []
        is_blocked = False
        for scope in scopes(life):
            if self._breaker(scope).is_open:
                is_blocked = True
                continue
            space = self._room(scope)
            if space.is_full:
                is_blocked = True
                self.breakers[scope] = replace(self._breaker(scope), is_open=True)
                sentence = (
                    f"{space.count.out} of {space.count.among} nodes are out, the limit: no more"
                    f" are taken out until an operator closes the breaker; {life.node} would be"
                    " next"
                )
                commands.append(Notify(subject=scope, sentence=sentence))
        return commands if is_blocked else None

    def _breaker(self, scope: str) -> Breaker:
        return self.breakers.get(scope, Breaker())

    def _room(self, scope: str) -> Allowance:
        return room(scope, self.lives.count(scope), self._policy, self._breaker(scope))

    def _send_cordon(self, life: Life, code: str, reason: str, at: float) -> list[LifeCommand]:
        mode = self._policy.cordon
        is_same = life.out_code == code
        is_shown = life.is_out_as(code) and (life.has_been_cordoned or life.is_cordoned_by_others)
        if is_same and (is_shown or mode is Mode.PROPOSE or not self._is_overdue(life, at)):
            return []
        self.lives.set(life.node, out_code=code, sent_at=at)
        return [Cordon(mode=mode, node=life.node, code=code, reason=reason)]

    def _let_in(self, life: Life, at: float) -> list[LifeCommand]:
        if not life.cordon:
            if life.out_code and at - life.sent_at >= self._policy.resent_s:
                self.lives.set(life.node, out_code="")
            return []
        is_ours = life.has_been_cordoned and life.cordoned_by_anubis
        is_sent = life.out_code == ""
        mode = self._policy.release
        if not is_ours or (is_sent and (mode is Mode.PROPOSE or not self._is_overdue(life, at))):
            return []
        self.lives.set(life.node, out_code="", sent_at=at)
        return [Release(mode=mode, node=life.node, reason="nothing is held against it any more")]

    def _is_overdue(self, life: Life, at: float) -> bool:
        return at - life.sent_at >= self._policy.resent_s

    def _swaps(self, at: float) -> Iterator[LifeCommand]:
        """Swaps for nodes that were taken out, now or when no spare was ready."""
        for node, spare in self.lives.next_swaps():
            swap = Swap(mode=self._policy.swap, node=node, spare=spare)
            yield swap
            if swap.mode is Mode.ACT:
                yield from self._carry_out(swap, at)

    def _carry_out(self, swap: Swap, at: float) -> list[LifeCommand]:
        self.lives.set(swap.node, vacated_at=-math.inf)
        return self._enter_service(swap.spare, at)

    def _enter_service(self, spare: str, at: float) -> list[LifeCommand]:
        self.lives.change(spare, _leave_reserve)
        return self._settle_node(spare, at)


def _facts_shown(life: Life, seen: SeenNode) -> dict[str, Any]:
    """Fields of the life by what the orchestrator shows, without jobs."""
    return {
        "sku": seen.sku or life.sku,
        "cordon": seen.cordon,
        "cordoned_by_anubis": seen.is_cordoned_by_anubis,
        "is_down": False,
        "kept_for": "" if seen.is_free else seen.meaning or "others",
    }


def _mark_gone(life: Life, before: float, at: float, is_listed: bool) -> Life:
    """Life of a node that a look does not show, or as down (`is_listed`). The look before may have
    shown it."""
    life = life.confirm_at(before)
    is_down = is_listed and (life.present or life.is_down)
    if life.is_shown or life.is_down != is_down:
        life = replace(life, is_shown=False, is_down=is_down)
    return _mark_absent(life, at)


def _last_orders(commands: Sequence[LifeCommand]) -> list[LifeCommand]:
    """Commands with only the last order for each node, which follows from all that is known."""
    last = {c.node: place for place, c in enumerate(commands) if isinstance(c, Cordon | Release)}
    return [
        command
        for place, command in enumerate(commands)
        if not isinstance(command, Cordon | Release) or last[command.node] == place
    ]


def _show_down(life: Life, seen: SeenNode) -> Life:
    """Life of a node that is down and still shown: its cordon stays while it is down and
    afterwards. If its owner powered it down or reboots it, it is not free."""
    facts = _facts_shown(life, seen)
    shown = ("cordon", "cordoned_by_anubis", "kept_for")
    return replace(life, **{name: facts[name] for name in shown})


def _mark_absent(life: Life, at: float) -> Life:
    if at < life.present_at:
        return life
    since = at if life.present else life.present_at
    return replace(life, present=False, present_at=since, jobs={}, trial=None)


def _mark_arrived(life: Life, at: float) -> Life:
    if at < life.present_at:
        return life
    return replace(life, present=True, present_at=at).add_debt(Debt.NEW, at)


def _begin_serving(life: Life, at: float) -> Life:
    """Life of a node from before the first look: it serves, proven or not."""
    return replace(life, present=True, present_at=at).add_debt(Debt.DOUBT, at)


def _update_incidents(life: Life, event: Waited) -> Life:
    """Life with the reported incidents. An incident that ended leaves a debt as of now, unless its
    report was taken back: its end is dated by a clock that may not agree with that of tests."""
    now = event.incidents.get(life.node, ())
    still = {incident.category for incident in now}
    over = {incident.category for incident in life.incidents} - still
    if now != life.incidents:
        life = replace(life, incidents=now)
    for category in sorted(over & event.ended.get(life.node, frozenset())):
        life = life.add_debt(Debt.INCIDENT, event.at, category)
    return life


def _update_answers(life: Life, event: Waited) -> Life:
    """Life with a debt for a test without an answer, or without that debt if there is an answer."""
    owes = life.owes(Debt.ANSWER)
    if event.owes is None or owes == (life.node in event.owes):
        return life
    if not owes:
        return life.add_debt(Debt.ANSWER, event.at)
    return replace(life, owed=tuple(o for o in life.owed if o.debt is not Debt.ANSWER))


def _add_doubt(life: Life, at: float) -> Life:
    """Life with a doubt, because the history proves nothing about the node."""
    if life.must_be_out or any(owed.debt not in AFTER_JOBS for owed in life.owed):
        return life
    return life.add_debt(Debt.DOUBT, at)


def _drop_doubt(life: Life) -> Life:
    """Life without doubt, because the history proves something about the node."""
    owed = tuple(o for o in life.owed if o.debt is not Debt.DOUBT or o.about)
    return life if owed == life.owed else replace(life, owed=owed)


def _suspect(
    life: Life, id: str, at: float, suspicion: SuspicionRaised, repeated_s: float
) -> Learnt:
    """Life under one more suspicion. If one was refuted less than `repeated_s` before, by a test of
    its category alone, that test may miss what is wrong."""
    if life.retired:
        return life, [_end_suspicion(id, life.node, Outcome.GIVEN_UP, "the node is retired")]
    is_repeated = 0 < at - life.refuted_at < repeated_s
    doubted = life.add_owed(replace(owed_for(suspicion, id, at), is_repeated=is_repeated))
    if doubted is life:
        return life, [_end_suspicion(id, life.node, Outcome.REFUTED, "a later test has passed")]
    return doubted, []


def _obey_order(life: Life, order: Order, at: float) -> Learnt:
    if at < life.retired_at:
        return life, []
    life = replace(life, retired=order is Order.RETIRE, retired_at=at)
    if not life.retired:
        return life.add_debt(Debt.NEW, at), []
    return _give_up(replace(life, trial=None), life.owed, "the node is retired")


def _give_up(life: Life, suspected: Collection[Owed], why: str) -> Learnt:
    """Life without the suspicions among these debts, and commands that end them as given up."""
    gone = [owed for owed in suspected if owed.debt is Debt.SUSPICION]
    left = tuple(owed for owed in life.owed if owed not in gone)
    ended = [_end_suspicion(owed.id, life.node, Outcome.GIVEN_UP, why) for owed in gone]
    return replace(life, owed=left), [*ended]


def _sentence_of_open_defect(life: Life, event: VerdictReached) -> str:
    """Sentence about a node that passed the tests after its repair, which do not disprove its
    defect."""
    assert life.defect
    return (
        f"passed campaign {event.campaign} after its repair, which does not disprove what campaign"
        f" {life.defect.campaign} found ({life.defect.code}): the node stays out until it passes"
        f" that test; run it by anubis validate {life.node} --suite ..."
    )


def _is_let_in_unproven(life: Life) -> bool:
    is_out = life.must_be_out or life.is_reserve or life.out_code == UNPROVEN
    return life.is_new and life.is_there and not is_out and not life.is_cordoned_by_others


def _join_reserve(life: Life, at: float) -> Life:
    return replace(life, is_reserve=True, vacated_at=-math.inf).add_debt(Debt.RESERVE, at)


def _leave_reserve(life: Life) -> Life:
    owed = tuple(o for o in life.owed if o.debt is not Debt.RESERVE)
    return replace(life, is_reserve=False, owed=owed)


def _end_suspicion(id: str, node: str, outcome: Outcome, reason: str) -> EndSuspicion:
    return EndSuspicion(id=id, node=node, outcome=outcome, reason=reason)
