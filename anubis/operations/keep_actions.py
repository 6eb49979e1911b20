"""Carry out the actions of a fleet's keeper: orders to the owner of the nodes, tests, and repairs
by the site's commands."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from anubis.core.errors import (
    AnubisError,
    BusyNodesError,
    CampaignTakenError,
    OrchestratorError,
    Stopped,
    StoreError,
    StoreUnreachableError,
)
from anubis.core.history.events import (
    Debt,
    EventRecord,
    FleetEvent,
    IncidentReported,
    NodeAdded,
    RepairDone,
    Tick,
)
from anubis.core.keep.commands import (
    Cordon,
    LifeAction,
    LongWork,
    Prove,
    Release,
    Requeue,
    Stage,
    TryRepair,
)
from anubis.core.keep.keeper_events import Concluded, RepairRan, TestRefused, VerdictReached
from anubis.core.keep.keeping_policy import LocatePolicy
from anubis.core.keep.life import Proof
from anubis.core.keep.reasons import reason
from anubis.core.keep.suspicions import nodes_suspected
from anubis.core.records import Judgement
from anubis.operations.clusters import THIS_MACHINE
from anubis.operations.decide import Weighing, past_of, read_repertoire
from anubis.operations.keep_turns import KeeperTurns
from anubis.operations.names import new_name
from anubis.operations.notify import messages_of
from anubis.operations.requests import LocateRequest
from anubis.operations.selector import Past
from anubis.operations.tell import note
from anubis.reach.orchestrators.orchestrator import Refusals
from anubis.reach.orchestrators.site_commands import MARK, end_marked, run_command
from anubis.store.database_errors import insist
from anubis.store.holds import HeldNodes, holder_of
from anubis.text.wording import short_node_list

MOST_ORDERS = 200  # sent at once: few enough for one command, and to send again after a crash

Nodes = TypeVar("Nodes", bound=Collection[str])


class ActionRunner:
    """Carries out actions, and takes a turn for what each brings."""

    def __init__(self, turns: KeeperTurns) -> None:
        self._turns = turns
        self._keeping = turns.keeping
        self._history = turns.history
        self._part = turns.part
        self._caller = turns.caller

    def run_all(self, drive: Callable[[int], bool]) -> bool:
        """Send orders, then start tests and repairs; return True if anything was sent, so that its
        effect may be seen. Orders come first: a bad node must be out before tests take time."""
        self._turns.refuse_superseded()
        to_do = self._part.keeping.open_actions()
        sent = [self._send(orders) for orders in _batches_of_orders(to_do)]
        sent.append(self._put_back(to_do))
        sent += [drive(action.id) for action in to_do if self._waits_for_a_driver(action)]
        return any(sent)

    def _waits_for_a_driver(self, action: LifeAction) -> bool:
        if not isinstance(action.command, LongWork) or action.stage is Stage.PROPOSED:
            return False
        if action.stage is Stage.SENT and isinstance(action.command, Prove):
            campaign = self._history.campaigns.find(action.campaign)
            if campaign and (campaign.finished_at or self._is_held(campaign.id)):
                return False
        if action.may_still_run(self._turns.time().now):
            return False
        return not self._part.keeping.is_driven(action.id)

    def run(self, id: int) -> bool:
        """Carry out the test or repair of an action, or resume the test; return True if anything
        was tried."""
        self._turns.refuse_superseded()
        with self._part.keeping.driving(id) as action:
            match action:
                case LifeAction(command=Prove() as test, stage=Stage.KEPT):
                    return self._test(action, test)
                case LifeAction(command=Prove() as test, stage=Stage.SENT):
                    return self._resume(action, test)
                case LifeAction(command=TryRepair() as repair, stage=Stage.KEPT):
                    return self._repair(action, repair)
                case LifeAction(command=TryRepair() as repair, stage=Stage.SENT):
                    return self._give_up(action, repair)
        return False

    def _send(self, orders: Mapping[str, LifeAction]) -> bool:
        """Send orders, one for each node, but those that another process took."""
        if self._keeping.orchestrator is None:
            return False
        at = self._turns.time().now
        with self._history.together():
            taken = {n: order for n, order in orders.items() if self._part.keeping.take(order, at)}
        reasons, released = dict[str, str](), list[str]()
        for node, action in taken.items():
            if isinstance(action.command, Cordon):
                reasons[node] = reason(action.command.code, action.command.reason)
            else:
                released.append(node)
        refused = {
            **_refusals(self._keeping.orchestrator.cordon, reasons),
            **_refusals(self._keeping.orchestrator.release, released),
        }
        for node, why in refused.items():
            self._fail(taken[node], why)
        return bool(taken)

    def _put_back(self, to_do: Iterable[LifeAction]) -> bool:
        """Put jobs back into the queue, each once without all of the nodes that are taken out."""
        waiting = [a for a in to_do if a.stage is Stage.KEPT and isinstance(a.command, Requeue)]
        if self._keeping.orchestrator is None or not waiting:
            return False
        at = self._turns.time().now
        with self._history.together():
            taken = [action for action in waiting if self._part.keeping.take(action, at)]
        nodes = defaultdict[str, list[str]](list)
        for action in taken:
            assert isinstance(action.command, Requeue)
            nodes[action.command.job].append(action.command.node)
        refused = _refusals(self._keeping.orchestrator.requeue, nodes)
        for action in taken:
            assert isinstance(action.command, Requeue)
            if why := refused.get(action.command.job):
                self._fail(action, why)
        return bool(taken)

    def _test(self, action: LifeAction, test: Prove) -> bool:
        from anubis.operations.campaigns import carried_out
        from anubis.operations.decided_tests import carried_out_tests

        time = self._turns.time()
        at = time.now
        is_taken_up = action.stage is Stage.SENT  # a suspended driver begins no second campaign
        verb = "locate" if test.proof is Proof.TOGETHER else "validate"
        name = action.campaign if is_taken_up else new_name(verb, at)
        if not self._part.keeping.take(action, at, campaign=name):
            return False
        if test.proof is Proof.TOGETHER:
            self._carry_out(action, test, name, carried_out(self._search(test, name), self._caller))
            return True
        terms = replace(self._turns.terms(test.proof), repaired=test.follows_repair)
        repertoire = read_repertoire(terms)
        event, past = _event(test), past_of(self._part, at, repertoire).doubting(time.doubt)
        weighing = Weighing(repertoire=repertoire, past=past, history=self._part, at=at)
        is_proof = test.proof in (Proof.FULL, Proof.OF_CATEGORY)
        if is_proof and (held := weighing.partners_in_tests(event)):
            why = f"its partners {short_node_list(held)} are being tested; wait until that ends"
            self._refuse(action, test, why, are_nodes_busy=True)
            return True
        decision = self._part.decisions.add(weighing.decide(event))
        self._caller.decided(decision)
        if not decision.tests:
            self._answer_untested(action, test, past, at)
            return True
        tests = carried_out_tests(decision, terms, self._caller, name, leaves_out_busy=True)
        self._carry_out(action, test, name, tests)
        return True

    def _search(self, test: Prove, name: str) -> LocateRequest:
        """Request for the search among the nodes of a job, all of them or none."""
        terms, policy = self._turns.terms(test.proof), self._keeping.policy.locate
        return LocateRequest(
            nodes=list(test.owed),
            name=name,
            cluster=terms.cluster or THIS_MACHINE,
            suite=(policy or LocatePolicy()).suite,
            policy=terms.policy,
            benchmarks=terms.benchmarks,
        )

    def _carry_out(
        self, action: LifeAction, test: Prove, name: str, campaign: AbstractContextManager[object]
    ) -> None:
        try:
            with campaign:
                pass
        except Stopped:
            raise
        except AnubisError as error:
            if self._history.campaigns.find(name) is None:
                self._refuse(action, test, str(error), isinstance(error, BusyNodesError))
            else:  # it is resumed later, here or by its driver
                self._caller.remark(f"action {action.id}: {error}")

    def _resume(self, action: LifeAction, test: Prove) -> bool:
        """Resume a test whose driver died: its campaign goes on, or begins if it never did."""
        from anubis.operations.campaigns import resume_campaign

        campaign = self._history.campaigns.find(action.campaign)
        if campaign is None:
            return self._test(action, test)
        if campaign.finished_at is not None or self._is_held(campaign.id):
            return False
        try:
            resume_campaign(campaign.kind, campaign.id, self._caller)
        except (Stopped, StoreUnreachableError):
            raise
        except CampaignTakenError as error:
            self._caller.remark(f"action {action.id}: {error}")
            return False
        except AnubisError as error:
            self._refuse(action, test, str(error), isinstance(error, BusyNodesError))
        return True

    def _is_held(self, campaign: str) -> bool:
        """True if nodes are held by the campaign's driver, or by one that died and whose programs
        may still run."""
        held = self._part.holds.current(self._turns.time().now)
        return any(hold.holder == holder_of(campaign) for hold in held)

    def _answer_untested(self, action: LifeAction, test: Prove, past: Past, at: float) -> None:
        """Answer a test for which no benchmark is worth its time. That proves nothing about nodes
        that need a whole suite, or that had an incident."""
        has_debt = any(o.debt is Debt.INCIDENT for owed in test.owed.values() for o in owed)
        if has_debt or test.proof in (Proof.FULL, Proof.CHECK):
            suite = self._turns.terms(test.proof).suite
            self._refuse(action, test, f'no benchmark of suite "{suite}" can run on these nodes')
            return
        verdict = Concluded(
            judgement=Judgement.HEALTHY,
            reason="no test is worth its time",
            proof=test.proof,
            about=test.about,
        )
        answer = VerdictReached(
            at=at, campaign="", began=at, verdicts=dict.fromkeys(test.owed, verdict), test=test.id
        )
        self._turns.follow([answer], action, Stage.DONE, verdict.reason)

    def _refuse(
        self, action: LifeAction, test: Prove, why: str, are_nodes_busy: bool = False
    ) -> None:
        at = self._turns.time().now
        refused = TestRefused(at=at, test=test.id, reason=why, are_nodes_busy=are_nodes_busy)
        self._turns.follow([refused], action, Stage.FAILED, why)

    def _repair(self, action: LifeAction, repair: TryRepair) -> bool:
        """Run the command once, if it is still wanted after everything that was told since it was
        kept. It is never run again, as nobody knows how far it went. Nobody else measures the node
        meanwhile."""
        from anubis.operations.campaigns import hold_clock

        why = self._turns.take().repairs.reason_against(repair, self._turns.time().now)
        if why:
            self._end_repair(action, repair, why, has_begun=False)
            return True
        clock = hold_clock(self._part, self._caller)
        try:
            with self._part.holds.hold([repair.node], f"repair {action.id}", clock) as held:
                if not self._part.keeping.take(action, self._turns.time().now):
                    return False
                self._run_repair(action, repair, held)
        except BusyNodesError as error:
            self._end_repair(action, repair, str(error), has_begun=False)
        return True

    def _run_repair(self, action: LifeAction, repair: TryRepair, held: HeldNodes) -> None:
        def renew() -> None:
            with suppress(StoreError):  # a history that is away ends no repair
                held.renew()

        env = {"ANUBIS_NODE": repair.node, "ANUBIS_CODE": repair.code, MARK: self._mark(action)}
        trouble = ""
        try:
            run_command(repair.words, repair.limit_s, env, meanwhile=renew)
        except OrchestratorError as error:
            trouble = str(error)
        except BaseException:
            self._end_repair(action, repair, "it was stopped with the process that ran it")
            raise
        insist(lambda: self._end_repair(action, repair, trouble), self._caller.remark)

    def _give_up(self, action: LifeAction, repair: TryRepair) -> bool:
        """End and report a command whose keeper died. Until its time is over it may still run:
        then nothing else is done with the node."""
        if action.may_still_run(self._turns.time().now):
            return False
        died = "the process that ran it died: it may have been carried out"
        if end_marked(self._mark(action)):
            died = f"the process that ran it died; it was ended after {repair.limit_s:g} s"
        self._end_repair(action, repair, died)
        return True

    def _mark(self, action: LifeAction) -> str:
        """Text by which later processes know the command of this action, and no other."""
        return f"{self._part.cluster}/{action.id}/{action.at}"

    def _end_repair(
        self, action: LifeAction, repair: TryRepair, trouble: str, *, has_begun: bool = True
    ) -> None:
        at = self._turns.time().now
        ran = RepairRan(
            at=at, node=repair.node, words=repair.words, trouble=trouble, has_begun=has_begun
        )
        if trouble:
            self._turns.follow([ran], action, Stage.FAILED, trouble)
            return
        repaired = RepairDone(nodes=(repair.node,), action=shlex.join(repair.words))
        report = EventRecord(id=f"action {action.id}", at=at, event=repaired)
        with self._history.together():
            note([report], self._part)
            self._turns.follow([report, ran], action, Stage.DONE, "")

    def _fail(self, action: LifeAction, why: str) -> None:
        self._caller.remark(f"action {action.id}: {why}")
        at = self._turns.time().now
        failed = replace(action, stage=Stage.FAILED, changed_at=at, note=why)
        with self._history.together():
            self._part.keeping.follow(action, Stage.FAILED, at, why)
            if self._keeping.notifier:
                self._part.messages.post(list(messages_of([failed], ())))


def _batches_of_orders(actions: Iterable[LifeAction]) -> Iterator[dict[str, LifeAction]]:
    """Orders to send, by node, many at once. If a node has two, the last one is in a later batch,
    so that it has the last word. An old one that is given again counts from then."""
    batch = dict[str, LifeAction]()
    for action in sorted(actions, key=attrgetter("changed_at", "id")):
        command = action.command
        if action.stage is not Stage.KEPT or not isinstance(command, Cordon | Release):
            continue
        if command.node in batch or len(batch) == MOST_ORDERS:
            yield batch
            batch = {}
        batch[command.node] = action
    if batch:
        yield batch


def _refusals(order: Callable[[Nodes], Refusals], nodes: Nodes) -> Refusals:
    """Give an order; return the refused nodes with the reasons: all of them if nothing answered."""
    try:
        return order(nodes) if nodes else {}
    except AnubisError as error:
        return dict.fromkeys(nodes, str(error))


def _event(test: Prove) -> FleetEvent:
    """Event for which the Selector chooses the tests that are proof."""
    nodes = tuple(test.owed)
    match test.proof:
        case Proof.FULL | Proof.CHECK:
            return NodeAdded(nodes=nodes)
        case Proof.OF_CATEGORY:
            return nodes_suspected(test) or IncidentReported(nodes=nodes, category=test.about)
    return Tick(nodes=nodes)
