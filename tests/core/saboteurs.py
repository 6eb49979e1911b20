"""Saboteurs of a keeper: random lives of a small fleet, in which events come late, twice, in any
order or not at all, orders are not obeyed, incidents open and close, people meddle, clocks jump.

`Book` has the rules that must hold after each event. It knows all events and orders, and reads only
the parts of the keeper that people see.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from anubis.core.amounts import DAY_S
from anubis.core.clock import SETTLED_S, TOLERANCE_S, ClockReading, KeptClock, tell_time
from anubis.core.history.events import (
    EventRecord,
    FleetUpgraded,
    IncidentReported,
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
from anubis.core.history.maintenance import Window
from anubis.core.history.status import Incident
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.breaker import ScopeCount, scopes
from anubis.core.keep.commands import (
    Cordon,
    Docket,
    EndSuspicion,
    LifeAction,
    Mode,
    ModedCommand,
    Notify,
    Prove,
    Release,
    Requeue,
    Stage,
    Swap,
    TryRepair,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import (
    ANY_TIME,
    Concluded,
    Dating,
    FleetSeen,
    RepairRan,
    SeenNode,
    TestRefused,
    VerdictReached,
    Waited,
)
from anubis.core.keep.keeping_policy import KeepingPolicy, LocatePolicy
from anubis.core.keep.life import Life, Proof, State, ended_incidents, open_incidents
from anubis.core.keep.reasons import (
    HELD,
    LOST,
    NO_DEFECT,
    SPARE,
    SUSPECTED,
    code_of,
    is_ours,
    reason,
)
from anubis.core.records import Judgement, Remedy

NODES = {**{f"n{i}": "h100" for i in range(8)}, **{f"m{i}": "a100" for i in range(4)}}
JOBS = ("7", "8")
SCOPES = ("fleet", "sku h100", "sku a100", *(f"job {job}" for job in JOBS))
CATEGORIES = ("xid", "link")
SOON_QUIET = 6  # turns: what one orders, the next one sees
WINDOW = Window(name="w", begin=0.0, end=math.inf)
SHORT_S = 3000.0  # a clock that goes evenly for an hour is believed
BEGIN = 1e6
LATEST_S = 5000.0  # an event is told so much later than it happened, at most

HEALTHY = Concluded(judgement=Judgement.HEALTHY, proof=Proof.FULL, is_fit=True)
DEFECTIVE = Concluded(judgement=Judgement.DEFECTIVE, code="GEMM.TFLOPS", reason="it is slow")
UNKNOWN = Concluded(judgement=Judgement.UNKNOWN, reason="no partner")
UNPROVEN = Concluded(judgement=Judgement.HEALTHY)
CHECKED = Concluded(judgement=Judgement.HEALTHY, proof=Proof.LIGHT)
IN_PART = Concluded(judgement=Judgement.HEALTHY, proof=Proof.FULL)  # a defect is not disproved
VERDICTS = {
    "healthy": HEALTHY,
    "defective": DEFECTIVE,
    "unknown": UNKNOWN,
    "unproven": UNPROVEN,
    "checked": CHECKED,
    "in part": IN_PART,
}

ACTING = KeepingPolicy(
    cordon=Mode.ACT, release=Mode.ACT, test=Mode.ACT, swap=Mode.ACT, ticket=Mode.ACT,
    requeue=Mode.ACT, repair=Mode.ACT, locate=LocatePolicy(mode=Mode.ACT, nodes=5),
    out_of_fleet=0.5, out_of_sku=0.5, out_of_job=1.0, tested_at_once=1.0,
)  # fmt: skip
SPARING = replace(ACTING, spares={"h100": 2, "a100": 1}, hold_from=0.5)
TIGHT = replace(SPARING, out_of_fleet=0.1, out_of_sku=0.2)
PROPOSING = KeepingPolicy(
    out_of_job=1.0,
    spares={"h100": 1},
    requeue=Mode.PROPOSE,
    repair=Mode.PROPOSE,
    locate=LocatePolicy(nodes=5),
)
REMEDY = Remedy(codes=("*",), action="", commands=(("reset", "{node}"), ("cycle", "{node}")))
REFUSED = "job 7 runs there"  # before the command began
OF_JOBS = replace(SPARING, out_of_fleet=1.0, out_of_sku=1.0, out_of_job=0.25)
POLICIES = (ACTING, SPARING, TIGHT, PROPOSING, OF_JOBS)


def keeper_of(policy, *kept):
    return Keeper(policy, *kept, remedy_of=lambda code: REMEDY)


class Book:
    """The events reported about each node, and the orders given."""

    def __init__(self, policy):
        self.policy = policy
        self.judged = defaultdict(list)  # conclusive verdicts: at, began, which
        self.proven = defaultdict(list)  # passes: began, of which category; empty: of all
        self.unanswered = defaultdict(list)
        self.repair_begun = defaultdict(lambda: -math.inf)
        self.repair_done = defaultdict(lambda: -math.inf)
        self.incidents = {}  # that are open, as the last turn heard: categories, by node
        self.after = defaultdict(set)  # incidents that are over or have no end: category, at
        self.present = defaultdict(lambda: (True, -math.inf))
        self.retired = defaultdict(lambda: (False, -math.inf))
        self.shown = {}
        self.cordons = dict.fromkeys(NODES, "")  # as they were shown last
        self.seen_at = self.waited_at = -math.inf
        self.work = {}  # what was said last of its jobs: at, which run; None: hard to say
        self.begun = defaultdict(lambda: -math.inf)  # when a job of it did last, as it was told
        self.ended = defaultdict(lambda: -math.inf)  # when a job of it did last, as it was told
        self.held = self.maintained = frozenset()
        self.ordered = {}  # the last order to each node that was not taken back: code, at
        self.surely_out = set()  # bad ever since they were ordered out
        self.vacant = {}  # nodes that were ordered out of service, and not replaced yet: since when
        self.recovered = set()  # nodes that were well again since their order, as far as is known
        self.may_be_vacant = (
            set()
        )  # and were ordered out once more: the keeper may have let them in
        self.cordoned = set()  # by their owner in our name, ever
        self.suspected = set()  # nodes that were, ever
        self.put_back = defaultdict(set)  # jobs that were, by the node for which, while they go on
        self.repairing = {}  # nodes on which a command runs: since when
        self.repairs = defaultdict(list)  # commands that were run: at, which
        self.troubled = defaultdict(set)  # nodes of jobs with unexplained trouble
        self.searching = {}  # searches that run: since when, on which nodes that are there
        self.searched = defaultdict(lambda: -math.inf)  # when a search of it ended last
        self.accepted = dict.fromkeys(SCOPES, 0)
        self.out_at_close = {}  # before what was told later: at, scope
        self.waiting = set()  # scopes of which a person was asked
        self.may_wait = set()  # the same, and jobs whose end is unknown

    # --- what is told ---

    def hear(self, event, now):
        event = _dated(event, now)
        match event:
            case EventRecord():
                self._note(event)
            case VerdictReached():
                for node, verdict in event.verdicts.items():
                    self._judge(node, verdict, event)
                self._end_search(event)
            case TestRefused():
                self._end_search(event)
            case FleetSeen() if event.at >= self.seen_at:
                self._see(event)
            case RepairRan(node=node, words=words):
                last = self.repairs[node][-1:]
                if last and last[0][1] == words and event.at >= last[0][0]:
                    self.repairing.pop(node, None)
                    if not event.has_begun:
                        self.repairs[node].pop()
            case Waited() if event.at > self.waited_at:
                self._turn(event)
        self.surely_out = {node for node in self.surely_out if self.is_bad(node)}
        self.recovered |= {node for node in self.ordered if not self.may_be_out(node)}
        for _, nodes in self.searching.values():
            nodes.difference_update(
                [n for n in nodes if not self.present[n][0] or self.retired[n][0]]
            )

    def _end_search(self, event):
        _, nodes = self.searching.pop(event.test, (0.0, set()))
        if not getattr(event, "are_nodes_busy", False):
            self.searched.update(dict.fromkeys(nodes, event.at))

    def lower(self, *, is_turn):
        """Lower what was accepted with the nodes that are out. A job that seemed over between two
        turns, by a look that lied, may still have its breaker."""
        for scope in SCOPES:
            self.accepted[scope] = min(self.accepted[scope], len(self.out(scope)))
            if scope.startswith("job "):  # its breaker ends with it
                if not self.inside(scope, surely=True):
                    self.waiting.discard(scope)
                if is_turn and not self.inside(scope):
                    self.may_wait.discard(scope)

    def _note(self, event_record):
        at, event = event_record.at, event_record.event
        if isinstance(event, JobUnexplained):
            self.troubled[event.job] |= {*event.nodes}
        if isinstance(event, OperatorSaid) and event.order is Order.CLOSE:
            out = len(self.out(event.scope))
            self.accepted[event.scope] = max(out, self.out_at_close.get((at, event.scope), 0))
            self.waiting.discard(event.scope)
            self.may_wait.discard(event.scope)
        for node in event.nodes:
            present, since = self.present[node]
            match event:
                case NodeAdded() if (present or at > self.seen_at) and at >= since:
                    self.present[node] = True, at
                case NodeRemoved() if at >= since:
                    self.present[node] = False, at if present else since
                    self.work[node] = None
                case OperatorSaid(order=order) if at >= self.retired[node][1]:
                    self.retired[node] = order is Order.RETIRE, at
                case RepairBegun():
                    self.repair_begun[node] = max(at, self.repair_begun[node])
                case RepairDone():
                    self.repair_done[node] = max(at, self.repair_done[node])
                case SuspicionRaised():
                    self.suspected.add(node)
                case IncidentReported(category=category):
                    self.after[node].add((category, at))
                case JobAllocated(job=job):
                    known = self.work.get(node)
                    is_latest = known is not None and at > known[0]
                    self.begun[node] = max(at, self.begun[node])
                    self.work[node] = (at, known[1] | {job}) if is_latest else None
                case JobEnded():
                    self.work[node] = None
                    self.ended[node] = max(at, self.ended[node])

    def _judge(self, node, verdict, event):
        match verdict.judgement:
            case Judgement.UNKNOWN:
                self.unanswered[node].append(event.at)
            case Judgement.DEFECTIVE:
                self.judged[node].append((event.at, event.began, "defective"))
            case Judgement.HEALTHY if verdict.proof in (Proof.FULL, Proof.OF_CATEGORY):
                self.proven[node].append((event.began, verdict.about))
                if verdict.is_fit:
                    self.judged[node].append((event.at, event.began, "healthy"))

    def _see(self, event):
        self.seen_at, self.shown = event.at, event.nodes
        self.cordons |= {node: seen.cordon for node, seen in event.nodes.items()}
        for node in NODES:
            present, since = self.present[node]
            seen = event.nodes.get(node)
            if seen is None or not seen.is_up:
                if event.at >= since:
                    self.present[node] = False, event.at if present else since
                self.work[node] = None
            else:
                if not present and event.at >= since:
                    self.present[node] = True, event.at
                self.put_back[node] &= {*seen.jobs}
                is_known = self.ended[node] < event.at or not seen.jobs
                is_known = is_known and self.begun[node] <= event.at  # else an old look, again
                self.work[node] = (event.at, frozenset(seen.jobs)) if is_known else None

    def _turn(self, event):
        """Take a turn. What was open in the turn before, and is over, ended now: whatever clock."""
        self.waited_at = event.at
        limit_s = self.policy.answered_s
        self.searching = {k: s for k, s in self.searching.items() if event.at - s[0] <= limit_s}
        self.maintained = event.maintained.keys()
        self.held = event.unreachable
        now = {
            node: {incident.category for incident in of_node}
            for node, of_node in event.incidents.items()
        }
        for node, before in self.incidents.items():
            for category in before - now.get(node, set()):
                if category in event.ended.get(node, ()):
                    self.after[node].add((category, event.at))
        self.incidents = now

    def redate(self, date):
        """Date everything anew, as another clock is believed."""
        for name, known in vars(self).items():
            if name not in ("policy", "shown", "maintained", "held", "accepted", "waiting"):
                setattr(self, name, redated(known, date))

    # --- what follows from it ---

    def has_passed_since(self, node, at, about=""):
        return any(began > at and kind in ("", about) for began, kind in self.proven[node])

    def is_broken(self, node):
        """Check by the last conclusive verdict and the last repair."""
        done = self.repair_done[node]
        if self.repair_begun[node] > done:
            return True
        if done > -math.inf and not self.has_passed_since(node, done):
            return True
        last = max((at for at, *_ in self.judged[node]), default=None)
        return last is not None and not any(
            which == "healthy" for at, _, which in self.judged[node] if at == last
        )

    def may_be_broken(self, node):
        """A pass that began before a defect was found need not disprove it."""
        found = max(
            (at for at, _, which in self.judged[node] if which == "defective"), default=-math.inf
        )
        passed = (began for _, began, which in self.judged[node] if which == "healthy")
        return self.is_broken(node) or found > max(passed, default=-math.inf)

    def is_in_incident(self, node):
        return bool(self.incidents.get(node)) or any(
            not self.has_passed_since(node, at, category) for category, at in self.after[node]
        )

    def is_bad(self, node):
        return self.is_broken(node) or self.is_in_incident(node)

    def may_be_out(self, node):
        """A pass of one category says nothing about a later event."""
        had = any(not self.has_passed_since(node, at) for _, at in self.after[node])
        return self.may_be_broken(node) or self.is_in_incident(node) or had

    def owes(self, node):
        return any(not self.has_passed_since(node, at) for at in self.unanswered[node])

    def may_serve(self, node):
        return not self.is_bad(node) and not self.owes(node)

    def is_there(self, node):
        """Check that a node is there for us."""
        present, retired = self.present[node][0], self.retired[node][0]
        return present and not retired and node not in self.maintained

    def is_a_person_s(self, node):
        seen = self.shown.get(node)
        return seen is not None and bool(seen.cordon) and not is_ours(seen.cordon)

    def inside(self, scope, *, surely=False):
        """Nodes of a job: all that may run it, or that surely do."""
        return [
            node
            for node in NODES
            if self.is_there(node) and scope in self.scopes(node, surely=surely)
        ]

    def scopes(self, node, *, surely=False):
        work = self.work.get(node)
        jobs = work[1] if work else () if surely else JOBS
        return ["fleet", f"sku {NODES[node]}", *(f"job {job}" for job in jobs)]

    def out(self, scope):
        """All that may be, by the orders that were given."""
        codes = {node: code for node, (code, _) in self.ordered.items() if code not in NO_DEFECT}
        return [node for node in self.inside(scope) if node in codes and self.may_be_out(node)]

    def share(self, scope, *, surely=False):
        share = {
            "fleet": self.policy.out_of_fleet,
            "sku": self.policy.out_of_sku,
            "job": self.policy.out_of_job,
        }[scope.partition(" ")[0]]
        return max(1, math.floor(share * len(self.inside(scope, surely=surely))))

    # --- what must hold ---

    def check(self, commands, waiting_before, now):
        orders = [c for c in commands if isinstance(c, Cordon | Release)]
        assert len({order.node for order in orders}) == len(orders), "it is out and in at once"
        for command in commands:
            self._check_command(command, waiting_before, now)
        self._check_swaps([c for c in commands if isinstance(c, Swap)])

    def _check_command(self, command, waiting_before, now):
        if self.policy is PROPOSING:
            assert getattr(command, "mode", Mode.PROPOSE) is Mode.PROPOSE
        match command:
            case Cordon(node=node, code=code):
                assert not self.is_a_person_s(node)
                assert node not in self.maintained
                before = self.ordered.get(node, ("", now))[0]
                assert code != SUSPECTED or node in self.suspected
                assert code != SUSPECTED or self.policy.hold_from is not None
                if code == SPARE and before != SPARE:
                    assert self.may_serve(node), f"{node} is next in line"
                    self.vacant.pop(node, None)
                self.ordered[node] = code, now
                if code not in NO_DEFECT:
                    assert self.may_be_out(node), f"{node} is out for nothing"
                    if self.is_bad(node):
                        self.surely_out.add(node)
                    if before in ("", *NO_DEFECT):
                        self._check_share(node, waiting_before)
                        is_held = SUSPECTED in (before, code_of(self.cordons[node]))
                        if is_held or not self.cordons[node]:  # it was in service
                            self.vacant[node] = now
                    elif node in self.recovered and not self.cordons[node]:
                        self.may_be_vacant.add(node)
                    self.recovered.discard(node)
            case Release(node=node):
                assert not self.is_bad(node), f"{node} is released"
                assert node in self.cordoned
                assert node not in self.maintained
                assert not self.is_a_person_s(node)
                self.ordered.pop(node, None)
                self.surely_out.discard(node)
            case Requeue(node=node, job=job):
                work = self.work.get(node)
                assert work is None or job in work[1], f"job {job} is not on {node}"
                assert self.may_be_out(node), f"job {job} is put back for nothing"
                assert self.ordered.get(node, ("",))[0] not in ("", *NO_DEFECT), "it is not out"
                assert node not in self.maintained
                assert not self.is_a_person_s(node)
                assert job not in self.put_back[node], f"job {job} is put back twice"
                self.put_back[node].add(job)
            case TryRepair(node=node, words=words, mode=mode, code=code):
                self._check_free(node, now)
                if code == LOST:
                    self._check_lost(node, now)
                else:
                    assert self.may_be_out(node), f"{node} is repaired for nothing"
                    assert self.ordered.get(node, ("",))[0] not in ("", *NO_DEFECT), "it is not out"
                    assert node in self.cordoned
                before = [one for one in self.repairs[node] if now - one[0] < 7 * DAY_S]
                assert words not in [one[1] for one in before], "it was tried"
                assert len(before) < self.policy.repairs
                if mode is Mode.ACT:
                    self.repairs[node].append((now, words))
                    self.repairing[node] = now
                    at_once = [n for n in self.repairing if self._is_repaired(n, now)]
                    assert len(at_once) <= self.policy.repaired_at_once
            case Swap(node=node, spare=spare):
                assert NODES[node] == NODES[spare]
                assert self.may_be_out(node), f"{node} is replaced for nothing"
                assert self.ordered.get(node, ("",))[0] not in ("", *NO_DEFECT), "it is not out"
                assert node not in self.maintained
                assert not self.retired[node][0]
                assert self.may_serve(spare), f"{spare} takes a place"
                assert not self.is_a_person_s(spare)
                assert spare not in self.maintained
            case Prove(owed=owed):
                for node in owed:
                    self._check_free(node, now)
                    assert not self.incidents.get(node)
                if command.proof is Proof.TOGETHER:
                    self._check_search(command, now)
            case Notify(subject=subject, sentence=sentence) if "closes the breaker" in sentence:
                self.waiting.add(subject)
                self.may_wait.add(subject)

    def _check_lost(self, node, now):
        present, since = self.present[node]
        assert not present, f"{node} is not lost"
        assert now - since > self.policy.away_s, f"{node} may only be slow"
        assert not self.retired[node][0], f"{node} is retired"
        assert not self.shown[node].is_up, f"{node} was removed, or answers"
        down = [n for n, seen in self.shown.items() if not seen.is_up and not self.present[n][0]]
        assert len([n for n in down if not self.retired[n][0]]) <= max(1, self.share("fleet"))

    def _is_repaired(self, node, now):
        return now - self.repairing.get(node, -math.inf) <= self.policy.answered_s

    def _check_free(self, node, now):
        work = self.work.get(node)
        assert not (work and work[1]), f"{node} is at work"
        assert node not in self.held
        assert node not in self.maintained
        assert not self._is_repaired(node, now)
        assert not self.is_a_person_s(node)

    def _check_search(self, search, now):
        nodes, policy = set(search.owed), self.policy.locate
        assert nodes <= self.troubled[search.about], "it is searched for nothing"
        assert 2 <= len(nodes) <= policy.nodes
        assert not any(map(self.is_bad, nodes)), "its fault is known"
        assert not any(there for _, there in self.searching.values()), "two searches at a time"
        assert any(now - self.searched[node] >= policy.again_s for node in nodes), "once more"
        if search.mode is Mode.ACT:
            self.searching[search.id] = now, nodes

    def _check_share(self, node, waiting_before):
        for scope in self.scopes(node, surely=True):
            assert scope not in waiting_before, f"the breaker of {scope} is open"
            out = [one for one in self.inside(scope, surely=True) if one in self.surely_out]
            assert len(out) <= self.accepted[scope] + self.share(scope), (scope, out)

    def _check_swaps(self, swaps):
        """Check that each spare takes one place, and each place one spare, the longest vacant one
        first. How late an order was heard of is unknown."""
        assert len({swap.spare for swap in swaps}) == len(swaps), "a spare takes two places"
        nodes = {swap.node for swap in swaps}
        assert len(nodes) == len(swaps), "two spares take one place"
        assert nodes <= self.vacant.keys() | self.may_be_vacant, "nothing is vacant there"
        since = {node: self.vacant[node] for node in nodes & self.vacant.keys()}
        for node in nodes if self.policy.swap is Mode.ACT else ():
            self.vacant.pop(node, None)
            self.may_be_vacant.discard(node)
        for node in since:
            for left in self._surely_vacant(NODES[node]) - nodes:
                assert self.vacant[left] > since[node] - LATEST_S, f"{left} waits longer"

    def _surely_vacant(self, sku):
        return {
            node
            for node in self.vacant.keys() & self.surely_out
            if NODES[node] == sku and node not in self.maintained and not self.retired[node][0]
        }

    def check_spares(self, lives):
        """Check that no spare is kept ready while the place of another node is vacant."""
        for node, life in lives.items():
            seen = self.shown.get(node)
            is_kept = seen is not None and seen.is_cordoned_by_anubis and node in self.cordoned
            if life.state is State.SPARE and is_kept and self.policy.swap is Mode.ACT:
                vacant = self._surely_vacant(NODES[node])
                assert not vacant, f"{node} is ready, and nobody takes the place of {vacant}"

    def check_shown(self, lives):
        """Check that what people see of a node is what may be said of it."""
        for node, life in lives.items():
            if life.state in (State.IN_SERVICE, State.SPARE):
                assert self.may_serve(node), f"{node} is {life.state}"
            elif life.state in (State.SUSPECT, State.NEW):
                assert not self.is_bad(node), f"{node} is {life.state}"

    def check_turn(self, now):
        """Each bad node is ordered out, or the share is used up. What is well again is let in."""
        for node in NODES:
            code, at = self.ordered.get(node, ("", 0.0))
            seen = self.shown.get(node)
            if seen is None or not self.is_there(node) or self.is_a_person_s(node):
                continue
            if self.is_bad(node):
                if code in ("", *NO_DEFECT):
                    may_be_full = any(map(self._may_be_full, self.scopes(node)))
                    assert may_be_full, f"{node} is not out"
                continue
            is_let_in = not seen.cordon and now - at >= self.policy.resent_s
            if is_let_in and code not in NO_DEFECT and not self.may_be_out(node):
                self.ordered.pop(node, None)

    def _may_be_full(self, scope):
        return scope in self.may_wait or len(self.out(scope)) >= self.share(scope, surely=True)


def redated(known, date):
    """The same, with each time in it dated anew."""
    match known:
        case float():
            return date(known) if math.isfinite(known) else known
        case defaultdict():
            of_nodes = {key: redated(cell, date) for key, cell in known.items()}
            return defaultdict(known.default_factory, of_nodes)
        case dict():
            return {key: redated(cell, date) for key, cell in known.items()}
        case list() | tuple() | set() | frozenset():
            return type(known)(redated(cell, date) for cell in known)
        case VerdictReached(at=at, began=began):
            return replace(known, at=date(at), began=date(began))
        case EventRecord(at=at) | FleetSeen(at=at) | Waited(at=at) | TestRefused(at=at):
            return replace(known, at=date(at))
        case RepairRan(at=at):
            return replace(known, at=date(at))
    return known


def _dated(event, now):
    """Date of a result. What cannot have happened yet is bad news as of now; a pass is none."""
    if event.at <= now:
        return event
    if isinstance(event, VerdictReached):
        kept = {
            node: verdict
            for node, verdict in event.verdicts.items()
            if event.at <= now + TOLERANCE_S or verdict.judgement is not Judgement.HEALTHY
        }
        return replace(event, at=now, began=min(event.began, now), verdicts=kept)
    return replace(event, at=now)


@dataclass
class World:
    """A fleet, its orchestrator, its history, and the keeper beside them."""

    policy: KeepingPolicy
    steady: float = 0.0  # seconds since the machine was started
    base: float = BEGIN  # as the machine was started, by the clock that was believed last
    obeys: bool = True
    held: frozenset = frozenset()
    maintained: frozenset = frozenset()
    ahead: float = 0.0  # of the clock that was believed last
    jumped_at: float = 0.0
    is_long: bool = False  # the wall clock goes on so
    clock: KeptClock | None = None
    is_dated: bool = False
    suspicions: int = 0
    told: list = field(default_factory=list)
    unheard: list = field(default_factory=list)  # until the next turn
    tests: dict = field(default_factory=dict)
    repairs: list = field(default_factory=list)  # whose commands run
    ended: set = field(default_factory=set)
    actions: list = field(default_factory=list)
    incidents: dict = field(default_factory=dict)  # by node and category: its start and end, by a
    # monitor's clock, which is right

    def __post_init__(self):
        self.shown = {node: SeenNode(sku=sku) for node, sku in NODES.items()}
        self.keeper = keeper_of(self.policy, [Life(node=n, sku=sku) for n, sku in NODES.items()])
        self.book = Book(self.policy)
        self.do_restart()

    def later(self, seconds):
        self.steady += seconds
        if self.steady - self.jumped_at > SHORT_S and not self.is_long:
            self.ahead = 0.0
        return self.now

    @property
    def now(self):
        """The time as the keeper has it."""
        return self.base + self.steady

    @property
    def wall(self):
        """The time that a reporter believes: another machine by the wall clock, or this one by the
        time that goes on without it."""
        return self.now if self.is_long else self.now + self.ahead

    @property
    def true(self):
        return BEGIN + self.steady

    # --- hearing and obeying ---

    def hear(self, *events):
        self.told += events
        for event in events:
            self.book.hear(event, self.now)
        self.book.lower(is_turn=any(isinstance(event, Waited) for event in events))
        waiting = set(self.book.waiting)
        if self.is_dated or self.ahead or any(event.at > self.now for event in events):
            self.do_restart(max(event.at for event in events))
            events = self.told[len(self.told) - len(events) :]  # dated anew, perhaps
        commands = self.keeper.handle(*events)
        self.book.check(commands, waiting, self.now)
        self.book.check_shown(self.keeper.lives)
        check_counts(self.keeper.lives)
        for command in commands:
            self._follow(command)
        self.has_new = self._file(commands)
        if any(isinstance(event, Waited) and event.at == self.book.waited_at for event in events):
            self.book.check_turn(self.now)
            self.book.check_spares(self.keeper.lives)
        return commands

    def _follow(self, command):
        if isinstance(command, EndSuspicion):
            self.ended.add(command.id)
        if getattr(command, "mode", None) is not Mode.ACT:
            return
        if isinstance(command, Prove):
            self.tests[command.id] = command
        if isinstance(command, TryRepair):
            self.repairs.append(command)
        if isinstance(command, Cordon | Release) and self.obeys:
            seen = self.shown.get(command.node)
            if seen and not (seen.cordon and not seen.is_cordoned_by_anubis):
                is_out = isinstance(command, Cordon)
                cordon = reason(command.code, command.reason) if is_out else ""
                self.shown[command.node] = replace(seen, cordon=cordon)
                if is_out:
                    self.book.cordoned.add(command.node)
                    self.keeper.was_obeyed(command)

    def _file(self, commands):
        """The actions that are proposed, as the history keeps them. True: there is a new one."""
        is_new = False
        for command in commands:
            if not isinstance(command, ModedCommand) or command.mode is not Mode.PROPOSE:
                continue
            docket = Docket(self.actions)
            gone = docket.outdated_proposals(command)
            self.actions = [action for action in self.actions if action not in gone]
            if docket.earlier_action(command) is None:
                is_new = True
                action = {"at": self.now, "changed_at": self.now, "stage": Stage.PROPOSED}
                id = max((action.id for action in self.actions), default=0) + 1
                self.actions.append(LifeAction(id=id, command=command, **action))
        return is_new

    def look(self):
        return FleetSeen(at=self.now, nodes=dict(self.shown))

    def waited(self):
        known = {life.node for life in self.keeper.lives.values() if life.incidents}
        columns = IncidentColumns.from_incidents(
            Incident(node=node, category=category, start=start, end=end)
            for (node, category), (start, end) in self.incidents.items()
        )
        return Waited(
            at=self.now,
            unreachable=self.held,
            held=self.held,
            maintained=dict.fromkeys(self.maintained, WINDOW),
            owes=frozenset(node for node in NODES if self.book.owes(node)),
            incidents=open_incidents(columns, self.now),
            ended=ended_incidents(columns, known, self.now),
        )

    def turn(self, *, looks=True):
        if self.ahead:  # a clock is believed before anything is dated by it
            self.do_restart()
        events = sorted(self.unheard, key=lambda event: event.at)
        self.unheard = []
        for event in events:  # the history knows them before the keeper does
            if isinstance(event, VerdictReached):
                self.book.hear(event, self.now)
            elif isinstance(event.event, OperatorSaid) and event.event.order is Order.CLOSE:
                scope = event.event.scope
                self.book.out_at_close[event.at, scope] = len(self.book.out(scope))
        return self.hear(*events, *([self.look()] if looks else []), self.waited())

    def tell(self, event, soon=True):
        if soon:
            self.hear(event)
        else:
            self.unheard.append(event)

    def conclude(self, verdicts, at, began, test="", soon=True):
        unknown = {node for node, verdict in verdicts.items() if verdict is UNKNOWN}
        verdicts = {
            node: replace(verdict, owes=node in unknown or self.book.owes(node))
            for node, verdict in verdicts.items()
        }
        reached = VerdictReached(at=at, began=began, campaign="c", verdicts=verdicts, test=test)
        self.tell(reached, soon or bool(test))

    def answer(self, test, which):
        self.later(20)
        began, at = self.wall - 10, self.wall
        passed = HEALTHY
        if test.proof in (Proof.OF_CATEGORY, Proof.TOGETHER):
            passed = Concluded(judgement=Judgement.HEALTHY, proof=test.proof, about=test.about)
        verdict = {"healthy": passed}.get(which, VERDICTS[which])
        self.conclude(dict.fromkeys(test.owed, verdict), at, began, test=test.id)

    # --- what saboteurs do ---

    def play(self, move):
        kind, *of = move
        self.later(100)
        getattr(self, f"do_{kind}")(*of)

    def do_turn(self):
        self.turn()

    def do_blind_turn(self):
        self.turn(looks=False)

    def do_quiet(self):
        """Nothing new: nothing is asked for that was not asked for before."""
        for _ in range(SOON_QUIET):
            commands = self.turn()
            self.later(0.001)
            if not self.has_new and not any(getattr(c, "mode", None) is Mode.ACT for c in commands):
                break  # a look may yet contradict an event that was dated later than now
        else:
            raise AssertionError(f"never quiet: {commands}")
        commands = self.turn()
        assert not any(getattr(c, "mode", None) is Mode.ACT for c in commands), commands
        assert not self.has_new, commands

    def do_look(self):
        self.hear(self.look())

    def do_lie(self, node, cordon, jobs, is_up):
        lie = replace(self.shown[node], cordon=cordon, jobs=jobs, is_up=is_up)
        self.hear(FleetSeen(at=self.now, nodes={**self.shown, node: lie}))

    def do_deaf(self, is_deaf):
        self.obeys = not is_deaf

    def do_restart(self, latest=-math.inf):
        """Restart: every turn builds the keeper again, from what the last one kept. If no clock is
        wrong and no event is dated later than now, the guard has nothing to do."""
        at = self.now + self.ahead
        time = tell_time(self.clock, ClockReading(at=at, boot="b", steady_s=self.steady))
        self.clock = time.kept
        keeper = self.keeper
        if time.correction or (self.ahead and not time.doubt):
            keeper = self._believe(keeper, time)
        assert time.now == pytest.approx(self.now), "the time is known, whatever the clock says"
        times = keeper.seen_at, keeper.waited_at
        self.is_dated = bool(self.ahead) or latest > self.now
        dated = Dating(now=self.now, before=min(time.before, self.now))
        dating = dated if self.is_dated else ANY_TIME
        kept = keeper.lives.values(), keeper.breakers
        self.keeper = keeper_of(self.policy, *kept, *times, dating)

    def _believe(self, keeper, time):
        """It went evenly for long enough, and becomes the clock that was right all the time."""
        assert self.ahead, "the clock was believed already"
        assert self.steady - self.jumped_at >= SETTLED_S
        assert self.is_long
        dating = Dating(now=time.now, before=time.before, correction=time.correction)
        until = time.correction.until

        def date(at):  # what is told just now may be rounded to an instant later
            return time.now if abs(at - until) < 1e-6 else dating.stamp(at)

        self.book.redate(date)
        self.told, self.unheard = redated(self.told, date), redated(self.unheard, date)
        self.base, self.ahead, self.is_long = self.base + self.ahead, 0.0, False
        kept = keeper.lives.values(), keeper.breakers, keeper.seen_at, keeper.waited_at
        return keeper_of(self.policy, *kept, dating)

    def do_jump(self, seconds, is_long):
        """Let the clock jump, and jump back the next time. In between it is read once."""
        self.do_restart()
        self.ahead, self.jumped_at = 0.0 if self.ahead else seconds, self.steady
        self.is_long = bool(self.ahead) and is_long
        self.do_restart()

    def do_wait(self, seconds):
        self.later(seconds)
        self.do_restart()

    def do_maintain(self, nodes):
        self.maintained = frozenset(nodes)

    def do_again(self, number):
        again = [e for e in self.told if not isinstance(e, VerdictReached | Waited)]
        if again:
            self.hear(again[number % len(again)])

    def do_answer(self, which):
        if self.tests:
            self.answer(self.tests.popitem()[1], which)

    def do_repaired(self, trouble):
        if self.repairs:
            repair = self.repairs.pop()
            done = EventRecord(id="", at=self.wall, event=RepairDone(nodes=(repair.node,)))
            ended = RepairRan(
                at=self.wall,
                node=repair.node,
                words=repair.words,
                trouble=trouble,
                has_begun=trouble != REFUSED,
            )
            self.hear(*([] if trouble else [done]), ended)

    def do_refuse(self):
        if self.tests:
            self.hear(TestRefused(at=self.now, test=self.tests.popitem()[0], reason="held"))

    def do_verdict(self, nodes, which, ago, took, soon):
        at = self.wall - ago
        self.conclude(dict.fromkeys(nodes, VERDICTS[which]), at, at - took, soon=soon)

    def do_suspect(self, node, ago):
        self.suspicions += 1
        raised = SuspicionRaised(nodes=(node,), category="gpu", source="watch")
        self.tell(EventRecord(id=f"s{self.suspicions}", at=self.wall - ago, event=raised))

    def do_event(self, event, ago, soon):
        self.tell(EventRecord(id="", at=self.wall - ago, event=event), soon)

    def do_alert(self, nodes, category, ago):
        for node in nodes:
            start, end = self.incidents.get((node, category), (self.true - ago, None))
            if end is not None:  # it opens again
                start = max(end, self.true - ago)
            self.incidents[node, category] = start, None

    def do_resolve(self, node, category):
        if (node, category) in self.incidents:
            start, end = self.incidents[node, category]
            self.incidents[node, category] = start, self.true if end is None else end

    def do_forget(self, node, category):
        self.incidents.pop((node, category), None)

    def do_work(self, nodes):
        """Run one job, on these nodes only."""
        self.shown = {
            node: replace(seen, jobs=(JOBS[0],) if node in nodes else ())
            for node, seen in self.shown.items()
        }

    def do_person(self, node, cordon):
        self.shown[node] = replace(self.shown[node], cordon=cordon)

    def do_hold(self, nodes):
        self.held = frozenset(nodes)

    # --- how it ends ---

    def settle(self):
        """No saboteur acts any more: every suspicion ends, and healthy nodes are in service."""
        self.obeys, self.held, self.maintained = True, frozenset(), frozenset()
        self.ahead = 0.0
        for node, category in self.incidents:
            self.do_resolve(node, category)
        self.shown = {
            node: replace(seen, jobs=(), cordon=seen.cordon if seen.is_cordoned_by_anubis else "")
            for node, seen in self.shown.items()
        }
        for _ in range(14):
            self.later(100_000)
            for command in self.turn():
                if isinstance(command, Prove) and self.tests.pop(command.id, None):
                    self.answer(command, "healthy")
                while self.repairs:
                    self.do_repaired("")
        assert self.ended == {f"s{i + 1}" for i in range(self.suspicions)}
        if self.policy is ACTING:
            for node, seen in self.shown.items():
                if self.book.is_there(node) and not self.book.may_be_out(node):
                    assert not seen.cordon, f"{node} is well, and out"


def check_counts(lives):
    """Check that what is kept current is what counting anew comes to."""
    there = [life for life in lives.values() if life.is_there]
    for scope in SCOPES:
        inside = [life for life in there if scope in scopes(life)]
        out = [
            life for life in inside if life.must_be_out and life.out_code not in ("", *NO_DEFECT)
        ]
        lost = [life for life in lives.values() if life.is_lost and scope in scopes(life)]
        new = [life for life in (*inside, *lost) if life.out_code in HELD]
        assert lives.count(scope) == ScopeCount(among=len(inside), out=len(out), new=len(new))


def moves_of(seed, length=70):
    """All events that may come, in any order."""
    chance = random.Random(seed)
    story = OF_ONE_JOB if POLICIES[seed % len(POLICIES)] is OF_JOBS and seed % 2 else WEIGHTS
    kinds, weights = zip(*story.items(), strict=True)
    kinds = chance.choices(kinds, weights, k=chance.randint(1, length))
    begin = [("work", tuple(NODES)), ("turn",)] if story is OF_ONE_JOB else []
    return [*begin, *(_move(kind, chance) for kind in kinds)]


WEIGHTS = {
    "turn": 14, "blind_turn": 3, "quiet": 3, "look": 6, "lie": 3, "deaf": 2, "restart": 3,
    "again": 6, "answer": 10, "refuse": 2, "repaired": 5, "verdict": 10, "suspect": 3, "event": 22,
    "alert": 6, "resolve": 6, "forget": 1, "person": 3, "hold": 2, "maintain": 1, "jump": 1,
    "close": 5, "work": 4, "break": 1, "mend": 1, "wait": 1,
}  # fmt: skip
# many nodes of a job go bad and are well again, and a person accepts it each time
OF_ONE_JOB = {"turn": 8, "job": 1, "break": 6, "mend": 4, "closed": 6, "verdict": 0.2}


def _move(kind, chance):
    node = chance.choice([*NODES])
    nodes = tuple(chance.sample([*NODES], chance.choice([1, 1, 1, 2, 6])))
    ago, soon = chance.choice([0.0, chance.uniform(0, LATEST_S)]), chance.random() < 0.5
    which = chance.choice([*VERDICTS])
    cordon = chance.choice(["", "", reason("X", "so it says"), "Jo: firmware"])
    category = chance.choice(CATEGORIES)
    match kind:
        case "lie":
            return kind, node, cordon, chance.choice([(), ("7",)]), chance.random() < 0.7
        case "deaf":
            return kind, chance.random() < 0.5
        case "again":
            return kind, chance.randrange(10**6)
        case "answer":
            return kind, chance.choice(["healthy", "healthy", which])
        case "repaired":
            return kind, chance.choice(["", "", "no answer within 600 s", REFUSED])
        case "verdict":
            return kind, nodes, which, ago, chance.uniform(0, LATEST_S), soon
        case "suspect":
            return kind, node, ago
        case "event":
            return kind, _event(node, category, chance), ago, soon
        case "alert":
            return kind, nodes, category, ago
        case "resolve" | "forget":
            return kind, node, category
        case "person":
            return kind, node, chance.choice(["", "Jo: firmware"])
        case "work":
            return kind, tuple(chance.sample([*NODES], chance.choice([0, 2, 6, 10])))
        case "hold" | "maintain":
            return kind, nodes if chance.random() < 0.7 else ()
        case "jump":
            jumps = [365 * DAY_S, -30 * DAY_S, DAY_S, -3600.0, 600.0]
            return kind, chance.choice(jumps), chance.random() < 0.5
        case "wait":
            return kind, chance.choice([600.0, 4000.0, 4000.0, DAY_S])
        case "job":
            return "work", tuple(NODES)
        case "break":
            return "verdict", tuple(chance.sample([*NODES], 6)), "defective", 0.0, 0.0, soon
        case "mend":
            return "verdict", tuple(NODES), "healthy", 0.0, 0.0, soon
        case "closed":
            return "event", OperatorSaid(order=Order.CLOSE, scope="job 7"), 0.0, True
        case "close":
            order = OperatorSaid(order=Order.CLOSE, scope=chance.choice(SCOPES))
            return "event", order, 0.0, soon
    return (kind,)


def _event(node, category, chance):
    job = chance.choice(JOBS)
    nodes = (node,)
    events = [
        IncidentReported(nodes=nodes, category=category),
        FleetUpgraded(nodes=nodes),
        *2 * [JobAllocated(nodes=nodes, job=job, duration_s=60)],
        *2 * [JobEnded(nodes=nodes, job=job, failed=chance.random() < 0.3)],
        *2 * [RepairBegun(nodes=nodes)],
        *3 * [RepairDone(nodes=nodes)],
        *3 * [JobUnexplained(nodes=tuple(chance.sample([*NODES], 4)), job=job)],
        NodeRemoved(nodes=nodes),
        *2 * [NodeAdded(nodes=nodes)],
        OperatorSaid(order=Order.RETIRE, nodes=nodes),
        OperatorSaid(order=Order.RETURN, nodes=nodes),
    ]
    return chance.choice(events)


def live(moves, policy, *, settles=True):
    """Live one life; an AssertionError says what did not hold."""
    world = World(policy)
    for move in moves:
        world.play(move)
    if settles:
        world.settle()


def live_by(seed):
    live(moves_of(seed), **_ways_of(seed))


def _ways_of(seed):
    return {"policy": POLICIES[seed % len(POLICIES)], "settles": seed % 3 == 0}


@contextmanager
def blaming(seed):
    """Add to the error of a life its seed, and the fewest moves with which it fails."""
    try:
        yield
    except AssertionError as error:
        moves = shortened(moves_of(seed), **_ways_of(seed))
        error.add_note(f"seed {seed}:\n" + "\n".join(map(repr, moves)))
        raise


def shortened(moves, policy, settles=True):
    """The same failure by fewer moves, to be read."""
    place = 0
    while place < len(moves):
        fewer = moves[:place] + moves[place + 1 :]
        if _fails(fewer, policy, settles):
            moves = fewer
        else:
            place += 1
    return moves


def _fails(moves, policy, settles):
    try:
        live(moves, policy, settles=settles)
    except AssertionError:
        return True
    return False
