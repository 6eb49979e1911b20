"""Take the turns of a fleet's keeper: read what is new, ask who owns the nodes, do what the policy
allows, and propose the rest."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from anubis.config import configs
from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.clock import Time
from anubis.core.errors import (
    AnubisError,
    BusyNodesError,
    CampaignTakenError,
    ConfigError,
    OrchestratorError,
    Stopped,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from anubis.core.history.events import (
    Debt,
    EventRecord,
    FleetEvent,
    IncidentReported,
    JobAllocated,
    JobEnded,
    NodeAdded,
    OperatorSaid,
    Order,
    RepairDone,
    Tick,
)
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import Standing
from anubis.core.history.status import LONGEST_JOB_S, Job
from anubis.core.judge.limits import remedy_of
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import (
    Cordon,
    LifeAction,
    LongWork,
    ModedCommand,
    OwnerOrder,
    Prove,
    Release,
    Requeue,
    Stage,
    TryRepair,
    has_shown,
    is_moot,
    subjects,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import (
    Concluded,
    FleetSeen,
    LifeEvent,
    RepairRan,
    SeenJob,
    TestRefused,
    VerdictReached,
    Waited,
)
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import Life, Proof, last_ends, open_incidents
from anubis.core.keep.reasons import reason
from anubis.core.keep.suspicions import nodes_suspected
from anubis.core.records import Judgement, NodeVerdict, Policy, Remedy
from anubis.core.select.selection import Budget
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import enter, find, look_up, resolve, time_in
from anubis.operations.decide import Repertoire, decide, past_of, read_repertoire, weigh
from anubis.operations.keeping_policy import (
    ChosenPolicy,
    acting_process,
    file_of,
    policy_of,
    refuse_another,
)
from anubis.operations.names import new_name
from anubis.operations.notify import deliver, message_of_stop, messages_of, notifier_of
from anubis.operations.owners import news_of_windows, orchestrator_of, windows_known
from anubis.operations.requests import KeepRequest, Terms
from anubis.operations.selector import Past, Present, risks
from anubis.operations.standings import present_of
from anubis.operations.tell import Telling, note, tell_all
from anubis.operations.tokens import order_entry
from anubis.reach.notifiers.notifier import NotifierSettings
from anubis.reach.orchestrators.orchestrator import Orchestrator, Refusals
from anubis.reach.orchestrators.site_commands import run_command
from anubis.report.keep import sentence
from anubis.store.database import own_name
from anubis.store.history import ClusterHistory, History
from anubis.store.holds import holder_of
from anubis.store.keeping import Conclusion, KeptBy, LastTurn, News, Turn
from anubis.text.hostlist import shorten
from anubis.text.wording import moment

LONG_S = HOUR_S  # without a turn; turns are minutes apart
FAILING_S = 600.0  # without a turn that succeeds; one slow answer of an orchestrator is no outage
MOST_ORDERS = 200  # sent at once: few enough for one command, and to send again after a crash
MOST_TURNS = 4  # enough to see the effect of what was done, and never an endless loop

Nodes = TypeVar("Nodes", bound=Collection[str])


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


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """The cluster to keep, the policy, and the owner of the nodes."""

    policy: KeepingPolicy
    name: str = "without a name"  # of the policy
    is_stated: bool = True  # the policy: by the request or by the cluster's file
    cluster: str | None = None
    benchmarks: Sequence[Path] = ()  # folders with programs beside the shipped ones
    orchestrator: Orchestrator | None = None
    service: str = ""  # which starts the turns; once another one acts, no turn is taken
    acting: str = ""  # another process, which acts by this policy
    notifier: NotifierSettings | None = None  # of people; None: no messages are sent

    def post(self, turn: Turn, event_records: Iterable[EventRecord] = ()) -> None:
        """Keep messages about what the turn changed and learned, if people get messages."""
        if self.notifier:
            turn.post(list(messages_of(turn.changed, event_records)))

    def __post_init__(self) -> None:
        if self.orchestrator is None and self.policy.acts_on_nodes and not self.acting:
            raise ConfigError(
                "the keeping policy acts on nodes, but the cluster has no orchestrator: name one"
                " in the cluster's file, or let the policy propose cordons and releases"
            )


def keep(
    keeping: Keeping, caller: Caller = NO_CALLER, drive: Callable[[int], bool] | None = None
) -> KeptFleet:
    """Take turns until nothing more is to be sent.

    `drive` carries out the test or repair of an action elsewhere, by `carry_out_test`, and returns
    whether it is over. Without it they run here, one after another, and the turn waits for them.
    """
    with caller.history() as history:
        part = enter_if_answered(history, keeping, caller)
        began = time_in(part, caller, is_turn=True)
        if began.doubt:
            caller.remark(began.doubt)
        with _telling_people(keeping, part, began.now, caller):
            keeper = _Hand(keeping, history, part, caller)
            for _ in range(MOST_TURNS):
                keeper.take_turn()
                if not keeper.carry_out(drive or keeper.work):
                    break
        return look(part, began.now, time_in(part, caller))


def enter_if_answered(history: History, keeping: Keeping, caller: Caller) -> ClusterHistory:
    """Find the cluster, and enter it if it is new, but only after the owner of its nodes answered:
    a turn that is refused leaves no trace."""
    part, cluster = find(history, keeping.cluster, caller)
    if cluster is None:
        return part
    if keeping.orchestrator and cluster.name not in history.clusters.names():
        keeping.orchestrator.observe()
    return enter(history, cluster, caller)


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


def carry_out_test(keeping: Keeping, id: int, caller: Caller = NO_CALLER) -> bool:
    """Carry out the test or the repair of this action, or go on with the test if its driver died.
    Return False if nothing is to be done, or another process does it."""
    with caller.history() as history:
        part, _ = find(history, keeping.cluster, caller)
        return _Hand(keeping, history, part, caller).work(id)


def look(part: ClusterHistory, since: float, time: Time) -> KeptFleet:
    """The fleet as the last turn left it."""
    recent = [action for action in part.keeping.newest_actions() if action.changed_at >= since]
    actions = {action.id: action for action in [*part.keeping.open_actions(), *recent]}
    return KeptFleet(
        cluster=part.cluster,
        at=time.now,
        doubt=time.doubt,
        lives={life.node: life for life in part.keeping.lives()},
        breakers=part.keeping.breakers(),
        last_turn=part.keeping.last_turn(),
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
        time = time_in(part, caller, is_turn=True)
        with part.keeping.turn(caller.name(), time) as turn:
            _Hand(keeping, history, part, caller).abide(turn, time.now)
            keeper = turn.keeper(keeping.policy)
            is_left_to_others = bool(keeping.acting) and keeping.policy.acts_on_nodes
            has_no_owner = keeping.orchestrator is None and not is_left_to_others
            for id in dict.fromkeys(ids):
                action = turn.action(id)
                if has_no_owner and isinstance(action.command, OwnerOrder):
                    raise UsageError(
                        f"action {id} cannot be done: the cluster has no orchestrator; name one"
                        f" in its file"
                    )
                _approve(action, keeper, turn, time.now, caller.name())
                order = f"keep --do {id}: {sentence(action.command)}"
                history.audit.add([order_entry(order, part.cluster, caller.name(), time.now)])
            turn.end(keeper, News(event_records=(), conclusions=()), time.now)
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
    approved, further = keeper.approve(command, at)
    turn.approve(action, approved, at, by)
    turn.keep(further, at)


def keeping_of(request: KeepRequest, caller: Caller = NO_CALLER) -> Keeping:
    """Read a cluster's keeping from the named files. Without a policy the cluster is kept by its
    own: that of its file, or else the last one."""
    described = file_of(request.cluster)
    own_names = (own_name(), request.service)
    chosen, acting = policy_of(request.cluster, request.keeping, own_names, caller)
    return Keeping(
        policy=chosen.policy,
        name=chosen.name,
        is_stated=chosen.is_stated,
        cluster=request.cluster,
        benchmarks=request.benchmarks,
        # a cluster that only the history names has no orchestrator to ask
        orchestrator=orchestrator_of(described) if described else None,
        service=request.service,
        acting=acting,
        notifier=notifier_of(chosen.policy),
    )


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


class _Hand:
    """Takes the keeper's turns, and carries out its commands."""

    def __init__(
        self, keeping: Keeping, history: History, part: ClusterHistory, caller: Caller
    ) -> None:
        self._history = history
        self._keeping = keeping
        self._policy = keeping.policy
        self._chosen = ChosenPolicy(
            name=keeping.name, policy=keeping.policy, is_stated=keeping.is_stated
        )
        self._cluster = keeping.cluster
        self._benchmarks = keeping.benchmarks
        self._orchestrator = keeping.orchestrator
        self._service = keeping.service
        self._part = part
        self._caller = caller

    # --- reading what is new -----------------------------------------------------------------

    def take_turn(self) -> None:
        seen = self._observe()
        time = self._time()
        at = time.now
        self._part.holds.settle(at)
        terms = self._terms(Proof.FULL)
        repertoire = read_repertoire(terms)
        conclusions = self._part.keeping.news().conclusions
        present = present_of(self._part, at, repertoire)
        history = cache(partial(past_of, self._part, at, repertoire, standing=present.standing))
        verdicts = self._verdicts(conclusions, present.standing, repertoire, history, at)
        with self._part.keeping.turn(self._own_name, time) as turn:
            self._refuse_superseded()
            self.abide(turn, at)
            keeper, news = turn.keeper(self._policy, self._remedy_of), turn.news()
            for cordon in _obeyed_cordons(turn.sent_cordons(), seen):
                keeper.was_obeyed(cordon)
            events: list[LifeEvent] = [
                *news.event_records,
                *(v for v in verdicts if _is_news(v, news)),
            ]
            events.sort(key=attrgetter("at"))
            open_before = {life.node for life in keeper.lives.values() if life.incidents}
            selection = repertoire.policy
            waited = self._time_passed(
                present, open_before, time, lambda nodes: risks(history(), nodes, at, selection)
            )
            turn.keep(keeper.handle(*events, *([seen] if seen else []), waited), at)
            _confirm(turn, keeper, at)
            turn.end(keeper, _drop_later_news(news, verdicts), at)
            self._keeping.post(turn, news.event_records)

    def _time(self) -> Time:
        return time_in(self._part, self._caller, is_turn=True)

    @property
    def _own_name(self) -> str:
        return self._service or self._caller.name()

    def _refuse_superseded(self) -> None:
        """Stop if another service acts now: a service that was suspended or has ended must not act
        on old orders."""
        if not self._service:
            return
        acting = self._history.acting_lock().holder()
        if acting not in ("", self._service):
            raise Stopped(
                f"{acting} acts now, and takes the turns that {self._service} took before"
            )

    def abide(self, turn: Turn, at: float) -> None:
        """Refuse a policy other than the cluster's, and keep the policy that the acting process
        states."""
        kept = turn.kept_by(or_none=self._chosen.is_stated)
        own_names = {own_name(), self._service} - {""}
        acting = acting_process(self._history, self._part, kept, own_names)
        refuse_another(self._chosen, kept, acting, cluster=self._part.cluster)
        lasting = self._part.keeping.lasting_lock().holder()
        actor = self._service or (lasting if lasting in own_names else "")
        if kept and kept.policy == self._policy and actor in ("", kept.said_by):
            return
        if actor or self._chosen.is_stated:
            said_by = actor or self._own_name
            name, policy = self._chosen.name, self._policy
            turn.keep_by(KeptBy(name=name, policy=policy, said_by=said_by, since=at))

    def _observe(self) -> FleetSeen | None:
        """Ask the orchestrator, and write to the history which jobs began, grew or ended. A job
        that a gate may still put back has not begun: nothing of it is diagnosed or checked."""
        if self._orchestrator is None:
            self._end_overdue_jobs()
            return None
        at = self._time().now
        seen = replace(self._orchestrator.observe(), at=at)
        if seen.why_empty:
            self._caller.remark(f"the orchestrator shows no node: {seen.why_empty}")
        running = {job.id: job for job in self._part.jobs.open_jobs()}
        over = {
            job.id: job for job in self._part.jobs.read_about(seen.jobs.keys() - running.keys())
        }
        before = {**running, **over}
        now = {
            _name_of(id, job, before.get(id)): job for id, job in seen.jobs.items() if job.has_begun
        }
        event_records = []
        for id in now.keys() - running.keys():
            job = now[id]
            began = at if job.started_at is None else min(job.started_at, at)
            planned_s = max(1.0, min(job.ends_by, at + 30 * DAY_S) - began)
            begun = JobAllocated(nodes=job.nodes, duration_s=planned_s, job=id)
            event_records.append(EventRecord(id=f"job {id} began", at=began, event=begun))
        event_records += [
            _growth_of(running[id], now[id].nodes, at)
            for id in running.keys() & now.keys()
            if not {*now[id].nodes} <= {*running[id].nodes}
        ]
        event_records += [_end_of(running[id], at) for id in running.keys() - now.keys()]
        event_records += news_of_windows(seen, windows_known(self._part))
        note(event_records, self._part)
        return seen

    def _end_overdue_jobs(self) -> None:
        """End jobs whose time is over: their end was not reported, and no orchestrator shows if
        they run."""
        time = self._time()
        unended = [] if time.doubt else self._part.jobs.open_jobs()
        over = [job for job in unended if not job.is_running(time.now)]
        if over:
            note([_end_of(job, time.now) for job in over], self._part)

    def _time_passed(
        self,
        past: Present,
        in_incidents: Collection[str],
        time: Time,
        risk: Callable[[Sequence[str]], Mapping[str, float]],
    ) -> Waited:
        """Changes that come with time alone. While the clock is in doubt, no pass counts as too old
        or as not yet valid."""
        at = time.now
        watched = self._part.watches.watched_nodes(at)
        held = {hold.node for hold in self._part.holds.current(at)}
        stand = past.standing
        unproven = (node for node in watched if stand.judgement(node) is Judgement.UNKNOWN)
        return Waited(
            at=at,
            risk=_WhenAsked(lambda: risk(sorted(watched))),
            watched=frozenset(watched),
            unproven=frozenset() if time.doubt else frozenset(unproven),
            proven=frozenset() if time.doubt else frozenset(stand.passed),
            owes=frozenset(stand.owes),
            unreachable=frozenset(held | past.standing.down),
            incidents=open_incidents(past.incidents, at),
            ended=last_ends(past.incidents, in_incidents, at),
            maintained=open_windows(past.windows, at),
        )

    def _verdicts(
        self,
        conclusions: Sequence[Conclusion],
        standing: Standing,
        repertoire: Repertoire,
        past: Callable[[], Past],
        at: float,
    ) -> list[VerdictReached]:
        """Verdicts of campaigns that are new to the keeper. `past`: reads the whole past on
        demand."""
        if not conclusions:
            return []
        tests = {
            action.campaign: action.command
            for action in self._part.keeping.open_actions()
            if isinstance(action.command, Prove)
        }
        of_nodes = {
            c.campaign: self._history.assessments.node_verdicts(c.campaign) for c in conclusions
        }
        latest = {v.node: c.campaign for c in conclusions for v in of_nodes[c.campaign]}
        fit = tuple(node for node in latest if standing.counted.get(node))
        proven = self._proven(fit, repertoire, past(), at) if fit else set[str]()
        return [
            VerdictReached(
                at=conclusion.at,
                campaign=conclusion.campaign,
                began=conclusion.began,
                verdicts={
                    verdict.node: _conclusion_for(
                        verdict,
                        tests.get(conclusion.campaign),
                        is_fit=verdict.node not in standing.unfit,
                        owes=verdict.node in standing.owes,
                        is_full=verdict.node in proven
                        and latest[verdict.node] == conclusion.campaign,
                    )
                    for verdict in of_nodes[conclusion.campaign]
                },
                test=test.id if (test := tests.get(conclusion.campaign)) else "",
            )
            for conclusion in conclusions
        ]

    def _proven(
        self, nodes: tuple[str, ...], repertoire: Repertoire, past: Past, at: float
    ) -> set[str]:
        """Those of the nodes that passed everything that would be chosen for new ones."""
        terms, counted = self._terms(Proof.FULL), past.standing.counted
        decision = weigh(NodeAdded(nodes=nodes), terms, repertoire, past, self._part, at)
        missing = {
            node
            for test in decision.tests
            for node in test.nodes
            if test.benchmark not in counted[node]
        }
        return {*nodes} - missing

    # --- carrying it out ---------------------------------------------------------------------

    def carry_out(self, drive: Callable[[int], bool]) -> bool:
        """Send orders, then start tests; return True if anything was sent, so that its effect may
        be seen. Orders come first: a bad node must be out before tests take time."""
        self._refuse_superseded()
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
        return not self._part.keeping.is_driven(action.id)

    def work(self, id: int) -> bool:
        """Carry out the test or repair of an action, or resume the test; return True if anything
        was tried."""
        self._refuse_superseded()
        with self._part.keeping.driving(id) as action:
            match action:
                case LifeAction(command=Prove() as test, stage=Stage.KEPT):
                    return self._test(action, test)
                case LifeAction(command=Prove() as test, stage=Stage.SENT):
                    return self._resume(action, test)
                case LifeAction(command=TryRepair() as repair, stage=Stage.KEPT):
                    return self._repair(action, repair)
                case LifeAction(command=TryRepair() as repair, stage=Stage.SENT):
                    died = "the process that ran it died: it may have been carried out"
                    self._end_repair(action, repair, died)
        return False

    @cached_property
    def _remedies(self) -> Policy:
        """The policy with the remedies, as the files of this machine have it: no command comes from
        the history."""
        return configs.policy(self._policy.selection)

    def _remedy_of(self, code: str) -> Remedy | None:
        return remedy_of(code, self._remedies)

    def _repair(self, action: LifeAction, repair: TryRepair) -> bool:
        """Run the command once. It is never run again, as nobody knows how far it went."""
        if not self._part.keeping.take(action, self._time().now):
            return False
        remedy = self._remedy_of(repair.code)
        trouble = self._reason_against(repair, remedy)
        if remedy and not trouble:
            env = {"ANUBIS_NODE": repair.node, "ANUBIS_CODE": repair.code}
            try:
                run_command(repair.words, remedy.limit_s, env)
            except OrchestratorError as error:
                trouble = str(error)
        self._end_repair(action, repair, trouble)
        return True

    def _reason_against(self, repair: TryRepair, remedy: Remedy | None) -> str:
        """Return why the command must not run now; empty: it may."""
        is_listed = remedy is not None and repair.step < len(remedy.commands)
        if remedy is None or not is_listed:
            return f"no remedy of this machine has a command for {repair.code} any more"
        if remedy.command_line(repair.step, repair.node) != repair.words:
            return f"the remedy for {repair.code} has another command now"
        sent = [
            action
            for action in self._part.keeping.open_actions()
            if action.stage is Stage.SENT and action.command != repair
        ]
        if any(
            self._part.keeping.is_driven(action.id)
            for action in sent
            if isinstance(action.command, TryRepair) and action.command.node == repair.node
        ):
            return "another command still runs for the node"
        for hold in self._part.holds.current(self._time().now):
            if hold.node == repair.node:
                return f"{hold.holder} measures there"
        if self._orchestrator is None:
            return "the cluster has no orchestrator that keeps jobs from the node"
        try:
            seen = self._orchestrator.observe().nodes.get(repair.node)
        except AnubisError as error:
            return str(error)
        if seen is None or not seen.is_cordoned_by_anubis:
            return "Anubis does not keep the node from jobs any more"
        return f"job {seen.jobs[0]} runs there" if seen.jobs else ""

    def _end_repair(self, action: LifeAction, repair: TryRepair, trouble: str) -> None:
        at = self._time().now
        events: list[LifeEvent] = [RepairRan(at=at, node=repair.node, trouble=trouble)]
        if not trouble:
            repaired = RepairDone(nodes=(repair.node,), action=shlex.join(repair.words))
            events.insert(0, EventRecord(id=f"action {action.id}", at=at, event=repaired))
            note([event for event in events if isinstance(event, EventRecord)], self._part)
        stage = Stage.FAILED if trouble else Stage.DONE
        self._hear(events, action, stage, trouble)

    def _send(self, orders: Mapping[str, LifeAction]) -> bool:
        """Send orders, one for each node, but those that another process took."""
        if self._orchestrator is None:
            return False
        at = self._time().now
        with self._history.together():
            taken = {n: order for n, order in orders.items() if self._part.keeping.take(order, at)}
        reasons, released = dict[str, str](), list[str]()
        for node, action in taken.items():
            if isinstance(action.command, Cordon):
                reasons[node] = reason(action.command.code, action.command.reason)
            else:
                released.append(node)
        refused = {
            **_refusals(self._orchestrator.cordon, reasons),
            **_refusals(self._orchestrator.release, released),
        }
        for node, why in refused.items():
            self._fail(taken[node], why)
        return bool(taken)

    def _put_back(self, to_do: Iterable[LifeAction]) -> bool:
        """Put jobs back into the queue, each once without all of the nodes that are taken out."""
        waiting = [a for a in to_do if a.stage is Stage.KEPT and isinstance(a.command, Requeue)]
        if self._orchestrator is None or not waiting:
            return False
        at = self._time().now
        with self._history.together():
            taken = [action for action in waiting if self._part.keeping.take(action, at)]
        nodes = defaultdict[str, list[str]](list)
        for action in taken:
            assert isinstance(action.command, Requeue)
            nodes[action.command.job].append(action.command.node)
        refused = _refusals(self._orchestrator.requeue, nodes)
        for action in taken:
            assert isinstance(action.command, Requeue)
            if why := refused.get(action.command.job):
                self._fail(action, why)
        return bool(taken)

    def _test(self, action: LifeAction, test: Prove) -> bool:
        from anubis.operations.decided_tests import carried_out_tests

        time = self._time()
        at = time.now
        is_taken_up = action.stage is Stage.SENT  # a suspended driver begins no second campaign
        name = action.campaign if is_taken_up else new_name("validate", at)
        if not self._part.keeping.take(action, at, campaign=name):
            return False
        terms = self._terms(test.proof)
        repertoire = read_repertoire(terms)
        event, past = _event(test), past_of(self._part, at, repertoire).doubting(time.doubt)
        decision = decide(event, terms, repertoire, past, self._part, at)
        self._caller.decided(decision)
        if not decision.tests:
            self._answer_untested(action, test, past, at)
            return True
        try:
            with carried_out_tests(decision, terms, self._caller, name, leaves_out_busy=True):
                pass
        except Stopped:
            raise
        except AnubisError as error:
            if self._history.campaigns.find(name) is None:
                self._refuse(action, test, str(error), isinstance(error, BusyNodesError))
            else:  # it is resumed later, here or by its driver
                self._caller.remark(f"action {action.id}: {error}")
        return True

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
        holder = holder_of(campaign)
        return any(hold.holder == holder for hold in self._part.holds.current(self._time().now))

    def _answer_untested(self, action: LifeAction, test: Prove, past: Past, at: float) -> None:
        """Answer a test for which no benchmark is worth its time. That proves nothing about nodes
        that need a whole suite, or that had an incident."""
        has_debt = any(o.debt is Debt.INCIDENT for owed in test.owed.values() for o in owed)
        if has_debt or test.proof in (Proof.FULL, Proof.CHECK):
            suite = self._terms(test.proof).suite
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
        self._hear([answer], action, Stage.DONE, verdict.reason)

    def _refuse(
        self, action: LifeAction, test: Prove, why: str, are_nodes_busy: bool = False
    ) -> None:
        at = self._time().now
        refused = TestRefused(at=at, test=test.id, reason=why, are_nodes_busy=are_nodes_busy)
        self._hear([refused], action, Stage.FAILED, why)

    def _fail(self, action: LifeAction, why: str) -> None:
        self._caller.remark(f"action {action.id}: {why}")
        at = self._time().now
        failed = replace(action, stage=Stage.FAILED, changed_at=at, note=why)
        with self._history.together():
            self._part.keeping.follow(action, Stage.FAILED, at, why)
            if self._keeping.notifier:
                self._part.messages.post(list(messages_of([failed], ())))

    def _hear(
        self, events: Sequence[LifeEvent], action: LifeAction, stage: Stage, note: str
    ) -> None:
        time, at = self._time(), events[-1].at
        event_records = tuple(event for event in events if isinstance(event, EventRecord))
        with self._part.keeping.turn(self._own_name, time) as turn:
            self.abide(turn, at)
            keeper = turn.keeper(self._policy, self._remedy_of)
            turn.keep(keeper.handle(*events), at)
            turn.follow(action, stage, at, note)
            turn.end(keeper, News(event_records=event_records, conclusions=()), time.now)
            self._keeping.post(turn)

    def _terms(self, proof: Proof) -> Terms:
        policy = self._policy
        is_light = proof in (Proof.LIGHT, Proof.CHECK)
        return Terms(
            suite=policy.check if is_light else policy.suite,
            policy=policy.selection,
            benchmarks=self._benchmarks,
            budget=Budget(seconds=policy.check_limit_s) if is_light else None,
            cluster=self._cluster,
        )


def _batches_of_orders(actions: Iterable[LifeAction]) -> Iterator[dict[str, LifeAction]]:
    """Orders to send, by node, many at once. If a node has two, the later one is in a later batch,
    so that it has the last word."""
    batch = dict[str, LifeAction]()
    for action in actions:
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
    """Give an order; return why, by node, it was refused: for all of them if nothing answered."""
    try:
        return order(nodes) if nodes else {}
    except AnubisError as error:
        return dict.fromkeys(nodes, str(error))


class _WhenAsked(Mapping[str, float]):
    """Risks by node, computed on demand: most turns choose no spare and need none."""

    def __init__(self, ask: Callable[[], Mapping[str, float]]) -> None:
        self._answer = cache(ask)

    def __getitem__(self, node: str) -> float:
        return self._answer()[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answer())

    def __len__(self) -> int:
        return len(self._answer())


def _end_of(job: Job, at: float) -> EventRecord:
    return EventRecord(id=f"job {job.id} ended", at=at, event=JobEnded(nodes=job.nodes, job=job.id))


def _growth_of(job: Job, nodes: tuple[str, ...], at: float) -> EventRecord:
    grown = JobAllocated(nodes=nodes, duration_s=job.planned_s or LONGEST_JOB_S, job=job.id)
    return EventRecord(id=f"job {job.id} has further nodes at {at:.3f}", at=at, event=grown)


def _name_of(id: str, job: SeenJob, before: Job | None) -> str:
    """Name of a job; one that is requeued and begins again under its id gets a new name."""
    if before is None or before.end is None:
        return id
    is_another = job.started_at is not None and job.started_at > before.start
    return f"{id}@{job.started_at:.0f}" if is_another else id


def _event(test: Prove) -> FleetEvent:
    """Event for which the Selector chooses the tests that are proof."""
    nodes = tuple(test.owed)
    match test.proof:
        case Proof.FULL | Proof.CHECK:
            return NodeAdded(nodes=nodes)
        case Proof.OF_CATEGORY:
            return nodes_suspected(test) or IncidentReported(nodes=nodes, category=test.about)
    return Tick(nodes=nodes)


def _conclusion_for(
    verdict: NodeVerdict, test: Prove | None, *, is_fit: bool, owes: bool, is_full: bool
) -> Concluded:
    """Conclusion for a node. Tests chosen as proof are proof; other tests only if they are all that
    a new node has to pass."""
    asked_for = test if test and verdict.node in test.owed else None
    return Concluded(
        judgement=verdict.judgement,
        code=verdict.code,
        reason=verdict.reason,
        proof=asked_for.proof if asked_for else Proof.FULL if is_full else None,
        about=asked_for.about if asked_for else "",
        is_fit=is_fit,
        owes=owes,
    )


def _is_news(verdict: VerdictReached, news: News) -> bool:
    """True if no other turn has handled this verdict meanwhile."""
    return verdict.campaign in {conclusion.campaign for conclusion in news.conclusions}


def _drop_later_news(news: News, verdicts: Iterable[VerdictReached]) -> News:
    """The news without conclusions that arrived after the past was read: the next turn handles
    those."""
    campaigns = {verdict.campaign for verdict in verdicts}
    conclusions = [c for c in news.conclusions if c.campaign in campaigns]
    return replace(news, conclusions=conclusions)


def _obeyed_cordons(sent: Iterable[LifeAction], seen: FleetSeen | None) -> Iterator[Cordon]:
    """Cordons that the owner of the nodes carried out, even if it could not confirm them."""
    for action in sent:
        order = action.command
        if isinstance(order, Cordon):
            node = seen.nodes.get(order.node) if seen else None
            is_shown = node is not None and node.cordon == reason(order.code, order.reason)
            if action.stage is Stage.SENT or is_shown:
                yield order


def _confirm(turn: Turn, keeper: Keeper, at: float) -> None:
    """Mark actions as done whose effect is visible, and withdraw proposals that have nothing left
    to do."""
    running = {life.trial.id for life in keeper.lives.values() if life.trial}
    for action in turn.open_actions():
        command = action.command
        if action.stage is Stage.PROPOSED:
            if is_moot(command, keeper.lives):
                turn.follow(action, Stage.WITHDRAWN, at)
        elif (
            isinstance(command, OwnerOrder)
            and has_shown(command, keeper.lives[command.node])
            and not _has_to_be_sent(action, keeper.lives[command.node])
        ) or (isinstance(command, Prove) and command.id not in running):
            turn.follow(replace(action, note=""), Stage.DONE, at)  # drop the note of a failure


def _has_to_be_sent(action: LifeAction, life: Life) -> bool:
    """Return true for a cordon that an older one of Anubis seems to have fulfilled: until it is
    sent and obeyed, nothing says that Anubis may release the node."""
    is_kept = isinstance(action.command, Cordon) and action.stage is Stage.KEPT
    return is_kept and life.cordoned_by_anubis and not life.has_been_cordoned
