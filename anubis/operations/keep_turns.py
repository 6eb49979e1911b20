"""Take the turns of a fleet's keeper: read what is new, ask who owns the nodes, and keep what the
policy orders or proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter

from anubis.core.amounts import DAY_S
from anubis.core.clock import Time
from anubis.core.errors import Stopped
from anubis.core.history.events import EventRecord, JobAllocated, JobEnded
from anubis.core.history.status import LONGEST_JOB_S, Job
from anubis.core.keep.commands import (
    Cordon,
    LifeAction,
    OwnerOrder,
    Prove,
    Stage,
    has_shown,
    is_moot,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import FleetSeen, LifeEvent, SeenJob, VerdictReached
from anubis.core.keep.life import Life, Proof
from anubis.core.keep.reasons import reason
from anubis.operations.caller import Caller
from anubis.operations.clusters import running_time, time_in
from anubis.operations.decide import past_of, read_repertoire
from anubis.operations.keeper_news import proven_nodes, terms_of, time_passed, verdicts_of
from anubis.operations.keeping import Keeping, acting_process, refuse_another
from anubis.operations.owners import news_of_windows, windows_known
from anubis.operations.requests import Terms
from anubis.operations.selector import risks
from anubis.operations.standings import present_of
from anubis.operations.tell import note
from anubis.store.database import own_name
from anubis.store.history import ClusterHistory, History
from anubis.store.keeping import KeptBy, News, Turn


@dataclass(frozen=True)
class KeeperTurns:
    """Takes the turns of one cluster's keeper."""

    keeping: Keeping
    history: History
    part: ClusterHistory
    caller: Caller

    def take(self) -> Keeper:
        """Take a turn: read what is new, and keep what follows from it. Return the keeper as it
        is then."""
        seen = self._observe()
        clock = running_time(self.part, self.caller)
        time = clock()
        at = time.now
        self.part.holds.settle(at)
        repertoire = read_repertoire(self.terms(Proof.FULL))
        conclusions = self.part.keeping.news().conclusions
        present = present_of(self.part, at, repertoire)
        history = cache(partial(past_of, self.part, at, repertoire, standing=present.standing))
        prove = partial(proven_nodes, self.part, at, repertoire, history)
        verdicts = verdicts_of(self.part, conclusions, present.standing, prove)
        with self.part.keeping.turn(self._own_name, clock) as turn:
            # it may have waited for other turns, which received later reports
            at, time = turn.now, replace(time, now=turn.now)
            self.refuse_superseded()
            self.abide(turn, at)
            keeper, news = turn.keeper(self.keeping.policy, self.keeping.remedy_of), turn.news()
            for cordon in _obeyed_cordons(turn.sent_cordons(), seen):
                keeper.was_obeyed(cordon)
            events: list[LifeEvent] = [
                *news.event_records,
                *(v for v in verdicts if _is_news(v, news)),
            ]
            events.sort(key=attrgetter("at"))
            selection = repertoire.policy
            watched = self.part.watches.watched_nodes(at)
            # a node that was removed is watched no more, and has a life if its owner still shows it
            passed = time_passed(self.part, present, keeper.lives, time, watched)
            risk = _WhenAsked(lambda: risks(history(), sorted(watched), at, selection))
            waited = replace(passed, risk=risk, watched=frozenset(watched))
            turn.keep(keeper.handle(*events, *([seen] if seen else []), waited), at)
            _confirm(turn, keeper, at)
            turn.end(keeper, _drop_later_news(news, verdicts), at)
            self.keeping.post(turn, news.event_records)
        return keeper

    def time(self) -> Time:
        return time_in(self.part, self.caller, is_turn=True)

    @property
    def _own_name(self) -> str:
        return self.keeping.service or self.caller.name()

    def refuse_superseded(self) -> None:
        """Stop if another service acts now: a service that was suspended or has ended must not act
        on old orders."""
        if not self.keeping.service:
            return
        acting = self.history.acting_lock().holder()
        if acting not in ("", self.keeping.service):
            raise Stopped(
                f"{acting} acts now, and takes the turns that {self.keeping.service} took before"
            )

    def abide(self, turn: Turn, at: float) -> None:
        """Refuse a policy other than the cluster's, and keep the policy that the acting process
        states."""
        keeping = self.keeping
        kept = turn.kept_by(or_none=keeping.chosen.is_stated)
        own_names = {own_name(), keeping.service} - {""}
        acting = acting_process(self.history, self.part, kept, own_names)
        refuse_another(keeping.chosen, kept, acting, cluster=self.part.cluster)
        lasting = self.part.keeping.lasting_lock().holder()
        actor = keeping.service or (lasting if lasting in own_names else "")
        if kept and kept.policy == keeping.policy and actor in ("", kept.said_by):
            return
        if actor or keeping.chosen.is_stated:
            said_by = actor or self._own_name
            chosen = keeping.chosen
            stated = KeptBy(name=chosen.name, policy=chosen.policy, said_by=said_by, since=at)
            turn.keep_by(stated)

    def follow(
        self, events: Sequence[LifeEvent], action: LifeAction, stage: Stage, note: str
    ) -> None:
        """Take a turn for what an action brought, and note the action's progress."""
        at = events[-1].at
        event_records = tuple(event for event in events if isinstance(event, EventRecord))
        with self.part.keeping.turn(self._own_name, running_time(self.part, self.caller)) as turn:
            self.abide(turn, at)
            keeper = turn.keeper(self.keeping.policy, self.keeping.remedy_of)
            turn.keep(keeper.handle(*events), at)
            turn.follow(action, stage, at, note)
            turn.end(keeper, News(event_records=event_records, conclusions=()), turn.now)
            self.keeping.post(turn)

    def _observe(self) -> FleetSeen | None:
        """Ask the orchestrator, and write to the history which jobs began, grew or ended. A job
        that a gate may still put back has not begun: nothing of it is diagnosed or checked."""
        if self.keeping.orchestrator is None:
            self._end_overdue_jobs()
            return None
        at = self.time().now
        seen = replace(self.keeping.orchestrator.observe(), at=at)
        if seen.why_empty:
            self.caller.remark(f"the orchestrator shows no node: {seen.why_empty}")
        running = {job.id: job for job in self.part.jobs.open_jobs()}
        over = {job.id: job for job in self.part.jobs.read_about(seen.jobs.keys() - running.keys())}
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
        event_records += news_of_windows(seen, windows_known(self.part))
        note(event_records, self.part)
        return seen

    def _end_overdue_jobs(self) -> None:
        """End jobs whose time is over: their end was not reported, and no orchestrator shows if
        they run."""
        at = self.time().now
        over = [job for job in self.part.jobs.open_jobs() if not job.is_running(at)]
        if over:
            note([_end_of(job, at) for job in over], self.part)

    def terms(self, proof: Proof) -> Terms:
        keeping = self.keeping
        return terms_of(keeping.policy, proof, keeping.benchmarks, keeping.cluster)


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
