"""The keeper of a fleet between two turns: the lives of its nodes, its breakers, the events it has
received, and what it proposed or had done. Only one process takes a turn at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from anubis.core.amounts import DAY_S
from anubis.core.clock import (
    TOLERANCE_S,
    ClockReading,
    Correction,
    KeptClock,
    Time,
    has_to_be_kept,
    tell_time,
)
from anubis.core.errors import UnknownRecordError
from anubis.core.history.events import Debt, EventRecord, SuspicionRaised
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import (
    COMMANDS,
    OPEN,
    CloseTicket,
    Cordon,
    Docket,
    EndSuspicion,
    LifeAction,
    LifeCommand,
    Notify,
    OpenTicket,
    Stage,
    first_stage,
    nodes_of,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import ANY_TIME, Dating
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import Life, State
from anubis.core.keep.messages import KeeperMessage
from anubis.core.keep.suspicions import KeptSuspicion, kept_suspicions
from anubis.core.records import Remedy
from anubis.store import codec, messages
from anubis.store.campaigns import CAMPAIGNS
from anubis.store.checksums import Damage
from anubis.store.claims import ProcessLock, driving_lock, keeping_lock
from anubis.store.conclusions import VALIDATED
from anubis.store.database import PER_QUESTION, Database, upsert, write_alone
from anubis.store.event_records import EVENT_RECORDS, OF_JOBS
from anubis.store.holds import HOLDS
from anubis.store.node_events import JOBS, REPAIRS, WATCHES
from anubis.store.row_counts import change_row_count, wait_for_row_count
from anubis.store.row_mapping import Form, RecordTable, Row, converted_form, metadata

LISTED = 100  # actions
NAMED_AT_ONCE = 16  # nodes of which the database picks the actions
FEW = 500  # nodes that are asked for by name
NOT_THERE = [state.value for state in (State.RETIRED, State.MAINTENANCE, State.LOST)]
FORGOTTEN = (
    "what was known of its life is damaged in the history, so it has to prove itself again: look at"
    " anubis history check"
)


def _said_of(life: Life) -> str:
    """Return the fields of a life that differ from those of an unknown node, as JSON: for most
    nodes a fourth of them all."""
    cells = ((field.name, getattr(life, field.name), field) for field in fields(life))
    return codec.dump(
        {name: value for name, value, field in cells if not _is_default(field, value)}
    )


def _is_default(field: Field[Any], value: object) -> bool:
    return value == (field.default if field.default_factory is MISSING else field.default_factory())


LIVES = RecordTable(
    "lives",
    Life,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    form=Form(
        columns=(sa.Column("document", sa.Text, nullable=False),),
        write=lambda life, _: (_said_of(life),),
        reader=lambda place: lambda row: codec.load(Life, row[place]),
    ),
    checked=True,
)
ACTIONS = RecordTable(
    "actions",
    LifeAction,
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Index("actions_by_cluster", "cluster", "stage"),
    keys=("id",),
    checked=True,
    unchecked=("ordered_by",),  # rows that are older have a checksum without it
    command=Form(
        columns=(
            sa.Column("kind", sa.Text, nullable=False),
            sa.Column("document", sa.Text, nullable=False),
        ),
        write=lambda command, _: (command.kind, codec.dump(command)),
        reader=lambda place: lambda row: codec.load(COMMANDS[row[place]], row[place + 1]),
    ),
)


@dataclass(frozen=True, kw_only=True)
class KeeperRow:
    """The keeper's own facts about a cluster, beside its lives."""

    seen_at: float | None  # when an orchestrator last showed the fleet
    turned_at: float
    turned_by: str
    breakers: Mapping[str, Breaker]


KEEPERS = RecordTable(
    "keepers",
    KeeperRow,
    sa.Column("cluster", sa.Text, primary_key=True),
    checked=True,
    breakers=converted_form(
        sa.Column("breakers", sa.Text, nullable=False),
        lambda breakers: codec.dump(_Breakers(by_scope=breakers)),
        lambda text: codec.load(_Breakers, text).by_scope,
    ),
)


@dataclass(frozen=True, kw_only=True)
class KeptBy:
    """The policy by which a cluster is kept."""

    name: str  # of the policy
    policy: KeepingPolicy
    said_by: str  # the service or the process that acts by it, or a person
    since: float


def _policy_in(text: str) -> KeepingPolicy:
    try:
        return codec.load(KeepingPolicy, text)
    except (ValueError, TypeError) as error:
        raise Damage(
            "the policy by which a cluster is kept is damaged, or of another version of Anubis:"
            " name it with --keeping"
        ) from error


KEPT_BY = RecordTable(
    "kept_by",
    KeptBy,
    sa.Column("cluster", sa.Text, primary_key=True),
    checked=True,
    policy=converted_form(sa.Column("policy", sa.Text, nullable=False), codec.dump, _policy_in),
)


@dataclass(frozen=True, kw_only=True)
class ClockRow:
    """The clock by which the turns of a cluster tell ages."""

    kept: KeptClock


CLOCKS = RecordTable(
    "clocks",
    ClockRow,
    sa.Column("cluster", sa.Text, primary_key=True),
    checked=True,
    kept=converted_form(
        sa.Column("kept", sa.Text, nullable=False),
        codec.dump,
        lambda text: codec.load(KeptClock, text),
    ),
)
HEARD = sa.Table(
    "heard",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),  # event record or campaign
    sa.Column("id", sa.Text, primary_key=True),
)


OF_SPAN = ("started_at", "ended_at")  # columns of what began and ended
REPORT_DATES: tuple[tuple[RecordTable[Any], tuple[str, ...]], ...] = (
    (JOBS, OF_SPAN),
    (EVENT_RECORDS, ("at",)),
    (REPAIRS, OF_SPAN),
    (WATCHES, ("since", "until")),
)
DATED: tuple[tuple[RecordTable[Any], tuple[str, ...]], ...] = (
    (CAMPAIGNS, ("created_at", "finished_at")),
    (ACTIONS, ("at", "changed_at")),
    (KEEPERS, ("turned_at", "seen_at")),
)
ChosenDates = Callable[["sa.Column[Any]"], "sa.ColumnElement[bool]"]


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """A campaign that is over."""

    campaign: str
    began: float
    at: float


@dataclass(frozen=True, kw_only=True)
class LastTurn:
    at: float
    by: str
    seen_at: float | None = None  # when an orchestrator last showed the fleet
    breakers: Mapping[str, Breaker] = field(default_factory=dict)  # as it left them


@dataclass(frozen=True, kw_only=True)
class News:
    """Event records and conclusions that the keeper has not received yet, by time."""

    event_records: Sequence[EventRecord]
    conclusions: Sequence[Conclusion]


class Turn:
    """A turn of the keeper of one cluster: what it receives and wants is on disk at the end, or
    nothing."""

    def __init__(
        self, connection: sa.Connection, cluster: str, by: str, time: Time | None = None
    ) -> None:
        self._connection = connection
        self._time = time
        self.now = time.now if time else math.inf
        self._cluster = cluster
        self._before: dict[str, Life] = {}  # as they stand on disk
        self._damaged: list[str] = []
        self._by = by
        self.changed: list[LifeAction] = []  # that were added, approved or failed in this turn
        self.left: tuple[tuple[float | None, ...], list[Life]] | None = None  # when it has ended

    def keeper(
        self, policy: KeepingPolicy, remedy_of: Callable[[str], Remedy | None] = lambda code: None
    ) -> Keeper:
        """Return the keeper as the last turn left it."""
        time = self._time
        dating = Dating(now=time.now, before=time.before) if time else ANY_TIME
        lives, self._damaged = _lives(self._connection, self._cluster)
        self._before = {node: life for node, life in lives.items() if node not in self._damaged}
        row = _keeper_row(self._connection, self._cluster)
        if row is None:
            return Keeper(policy, dating=dating, remedy_of=remedy_of)
        seen_at = float("-inf") if row.seen_at is None else row.seen_at
        return Keeper(
            policy, lives.values(), row.breakers, seen_at, row.turned_at, dating, remedy_of
        )

    def news(self) -> News:
        """Return the news. An event record dated later than now, and what followed from it, are
        redated to now, so that news of a later turn comes after them."""
        news, now = news_of(self._connection, self._cluster), self.now
        early = sorted(
            {
                event_record.at
                for event_record in news.event_records
                if event_record.at > now + TOLERANCE_S
            }
        )
        if not early:
            return news
        by_now = [now - place * math.ulp(now) for place in range(len(early))][::-1]  # in order
        dates = dict(zip(early, by_now, strict=True))
        for start in range(0, len(early), PER_QUESTION):
            is_meant = partial(_is_among, early[start : start + PER_QUESTION])
            _redate_reports(self._connection, self._cluster, is_meant, lambda at: dates.get(at, at))
        return news_of(self._connection, self._cluster)

    def kept_by(self, *, or_none: bool = False) -> KeptBy | None:
        """Return the policy of the cluster; `or_none`: None if it is damaged."""
        return _kept_by(self._connection, self._cluster, or_none)

    def keep_by(self, policy: KeptBy) -> None:
        """Make this the policy of the cluster for requests that name none."""
        row = KEPT_BY.row(policy, cluster=self._cluster)
        upsert(self._connection, KEPT_BY.table, [row], replace=True)

    def end(self, keeper: Keeper, news: News, at: float) -> None:
        if self._time:
            _keep_clock(self._connection, self._cluster, self._time.kept)
        seen_at = None if keeper.seen_at == float("-inf") else keeper.seen_at
        row = KeeperRow(seen_at=seen_at, turned_at=at, turned_by=self._by, breakers=keeper.breakers)
        stamped = KEEPERS.row(row, cluster=self._cluster)
        upsert(self._connection, KEEPERS.table, [stamped], replace=True)
        by_node = sorted(keeper.lives.values(), key=attrgetter("node"))
        self.left = (stamped["turned_at"], stamped["checksum"]), by_node
        self.keep([Notify(subject=node, sentence=FORGOTTEN) for node in self._damaged], at)
        lives = [
            LIVES.row(life, cluster=self._cluster, node=node, state=life.state.value)
            for node, life in keeper.lives.items()
            if life is not (before := self._before.get(node)) and life != before
        ]
        upsert(self._connection, LIVES.table, lives, replace=True)
        ids = [("event_record", event_record.id) for event_record in news.event_records]
        ids += [("campaign", conclusion.campaign) for conclusion in news.conclusions]
        rows = [{"cluster": self._cluster, "kind": kind, "id": id} for kind, id in ids]
        upsert(self._connection, HEARD, rows)

    def keep(self, commands: Sequence[LifeCommand], at: float) -> None:
        """Keep commands. A repeated one is no second action; a newer proposal replaces an older
        one."""
        if not commands:
            return
        still_open = _actions(self._connection, self._cluster, OPEN)
        failed = _actions(self._connection, self._cluster, (Stage.FAILED,), since=at - DAY_S)
        docket = Docket([*still_open, *failed])
        for command in commands:
            if isinstance(command, Notify) and self._has_notified(command, at):
                continue
            for action in docket.outdated_proposals(command):
                self.follow(action, Stage.WITHDRAWN, at)
            before = docket.earlier_action(command)
            if before is None:
                self._add(command, at)
            else:
                self._ask_again(before, command, at)

    def _has_notified(self, notify: Notify, at: float) -> bool:
        """True if a person was notified of the same thing less than a day ago."""
        same = (
            ACTIONS.c.cluster == self._cluster,
            ACTIONS.c.kind == notify.kind,
            ACTIONS.c.document == codec.dump(notify),
            ACTIONS.c.at > at - DAY_S,
            ACTIONS.c.at <= at,  # not by a wrong clock
        )
        return self._connection.execute(sa.select(ACTIONS.c.id).where(*same)).first() is not None

    def _ask_again(self, action: LifeAction, command: LifeCommand, at: float) -> None:
        """Send a command again, or propose it again, if it had no effect or failed."""
        stage = first_stage(command)
        if stage is not Stage.PROPOSED or action.stage is Stage.FAILED:
            by = "" if stage is Stage.PROPOSED else action.ordered_by or self._policy_name
            self.approve(action, command, at, by)

    def _add(self, command: LifeCommand, at: float) -> None:
        stage = first_stage(command)
        by = "" if stage is Stage.PROPOSED else self._policy_name
        action = LifeAction(id=0, at=at, command=command, stage=stage, changed_at=at, ordered_by=by)
        row = ACTIONS.row(action, cluster=self._cluster)
        del row["id"]
        inserted = self._connection.execute(sa.insert(ACTIONS.table), row)
        (id,) = inserted.inserted_primary_key or (0,)
        self.changed.append(replace(action, id=id))

    def follow(self, action: LifeAction, stage: Stage, at: float, note: str = "") -> None:
        noted = replace(action, note=note or action.note)
        _follow(self._connection, self._cluster, noted, stage, at)
        if stage is Stage.FAILED:
            self.changed.append(replace(noted, stage=stage, changed_at=at))

    def post(self, news: Sequence[KeeperMessage]) -> None:
        """Keep messages to people together with what they are about."""
        messages.post(self._connection, self._cluster, news)

    @property
    def _policy_name(self) -> str:
        return f"the policy, in a turn of {self._by}" if self._by else "the policy"

    def approve(self, action: LifeAction, command: LifeCommand, at: float, by: str) -> None:
        approved = replace(
            action, command=command, stage=first_stage(command), changed_at=at, ordered_by=by
        )
        upsert(
            self._connection,
            ACTIONS.table,
            [ACTIONS.row(approved, cluster=self._cluster)],
            replace=True,
        )
        self.changed.append(approved)

    def open_actions(self) -> list[LifeAction]:
        return _actions(self._connection, self._cluster, OPEN)

    def sent_cordons(self) -> list[LifeAction]:
        """Return cordons that have shown no effect yet, or failed."""
        query = ACTIONS.select().where(
            ACTIONS.c.cluster == self._cluster,
            ACTIONS.c.stage.in_([Stage.SENT.value, Stage.FAILED.value]),
            ACTIONS.c.kind == Cordon.kind,
        )
        return _sound(self._connection, query)

    def action(self, id: int) -> LifeAction:
        return action_of(self._connection, self._cluster, id)


class KeeperState:
    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster
        self._lives: tuple[tuple[float | None, ...], list[Life]] | None = None

    @contextmanager
    def turn(self, by: str, time: Callable[[], Time] | None = None) -> Iterator[Turn]:
        """Take a turn. `by`: the process that takes it, for the record. `time`: the clock that
        tells ages, asked once the turn is alone; None: no age is told."""
        with self._database.writing() as connection, write_alone(connection, KEEPERS.table):
            turn = Turn(connection, self._cluster, by, time() if time else None)
            yield turn
        self._lives = turn.left

    def last_turn(self) -> LastTurn | None:
        with self._database.reading() as connection:
            row = _keeper_row(connection, self._cluster)
        if row is None:
            return None
        return LastTurn(
            at=row.turned_at, by=row.turned_by, seen_at=row.seen_at, breakers=row.breakers
        )

    def time(self, reading: ClockReading, *, is_turn: bool = False) -> Time:
        """Return the time by which ages are told, going by earlier readings."""
        with self._database.reading() as connection:
            kept = _kept_clock(connection, self._cluster)
            is_first = is_turn and kept is None
            latest = _latest(connection, self._cluster, reading.at) if is_first else -math.inf
            is_next = is_turn and _keeper_row(connection, self._cluster) is not None
        return tell_time(kept, reading, is_turn=is_next, latest=latest)

    def keep_reading(self, reading: ClockReading) -> None:
        """Keep the reading by which records are dated, unless a keeper's turns keep theirs, or
        there is no record yet."""
        with self._database.reading() as connection:
            kept = _kept_clock(connection, self._cluster)
            is_of_turns = _keeper_row(connection, self._cluster) is not None
        if is_of_turns or not reading.boot:
            return
        if kept and not has_to_be_kept(tell_time(kept, reading, is_turn=False), kept, reading):
            return
        with self._database.writing() as connection, write_alone(connection, KEEPERS.table):
            latest = _latest(connection, self._cluster, reading.at)
            if kept == _kept_clock(connection, self._cluster) and latest > -math.inf:
                time = tell_time(kept, reading, is_turn=False, latest=latest)
                _keep_clock(connection, self._cluster, time.kept)

    def set_right(self, reading: ClockReading) -> None:
        """Redate what was kept during a doubt of the clock when it ends: once, by the process that
        is first. What others dated, such as imported incidents and planned maintenance, keeps its
        dates."""
        with self._database.writing() as connection, write_alone(connection, KEEPERS.table):
            time = tell_time(_kept_clock(connection, self._cluster), reading)
            if time.correction is None:
                return
            _redate(connection, self._cluster, time.correction)
            _redate_lives(connection, self._cluster, time)
            _keep_clock(connection, self._cluster, time.kept)

    def news(self) -> News:
        with self._database.reading() as connection:
            return news_of(connection, self._cluster)

    def news_of_nodes(self) -> News:
        """Return the news without those of jobs."""
        with self._database.reading() as connection:
            return news_of(connection, self._cluster, EVENT_RECORDS.c.event.not_in(OF_JOBS))

    def kept_by(self, *, or_none: bool = False) -> KeptBy | None:
        """Return the policy of the cluster; `or_none`: None if it is damaged."""
        with self._database.reading() as connection:
            return _kept_by(connection, self._cluster, or_none)

    def lasting_lock(self) -> ProcessLock:
        """Return the lock of the process that goes on taking turns; a service has the acting lock
        instead."""
        return keeping_lock(self._database, self._cluster)

    def lives(self) -> list[Life]:
        """Return lives by node. They are the same until the next turn ends."""
        ended = sa.select(KEEPERS.c.turned_at, KEEPERS.c.checksum)
        with self._database.reading() as connection:
            turn = connection.execute(ended.where(KEEPERS.c.cluster == self._cluster)).first()
            if turn is None or self._lives is None or self._lives[0] != tuple(turn):
                lives = list(_lives(connection, self._cluster)[0].values())
                self._lives = tuple(turn or ()), lives
            return self._lives[1]

    def lives_of(self, nodes: Collection[str]) -> list[Life]:
        """Return the lives of these nodes, as far as the keeper knows them."""
        if len(nodes) > FEW:
            return [life for life in self.lives() if life.node in nodes]
        with self._database.reading() as connection:
            return list(_lives(connection, self._cluster, nodes)[0].values())

    def left_alone(self) -> set[str]:
        """Return nodes that a person keeps from jobs, as the keeper saw them last, and nodes that
        are gone, without reading all lives."""
        may_be = LIVES.c.state.in_(NOT_THERE) | LIVES.c.document.contains('"cordon":')
        query = LIVES.select().where(LIVES.c.cluster == self._cluster, may_be)
        with self._database.reading() as connection:
            lives = _read_lives(connection, query)[0].values()
        return {life.node for life in lives if life.is_cordoned_by_others or not life.is_there}

    def breakers(self) -> Mapping[str, Breaker]:
        last = self.last_turn()
        return last.breakers if last else {}

    def open_actions(self) -> list[LifeAction]:
        """Return open actions, oldest first."""
        with self._database.reading() as connection:
            return _actions(connection, self._cluster, OPEN)

    def newest_actions(self, limit: int = LISTED) -> list[LifeAction]:
        query = ACTIONS.select().where(ACTIONS.c.cluster == self._cluster)
        query = query.order_by(ACTIONS.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return _sound(connection, query)

    def actions_about(self, nodes: Collection[str] | None, limit: int) -> list[LifeAction]:
        """Return actions on these nodes, or all, newest first."""
        query = ACTIONS.select().where(ACTIONS.c.cluster == self._cluster)
        if nodes is not None and len(nodes) <= NAMED_AT_ONCE:
            named = (ACTIONS.c.document.contains(codec.dump(n), autoescape=True) for n in nodes)
            query = query.where(sa.or_(sa.false(), *named))
        with self._database.reading() as connection:
            newest = _sound(connection, query.order_by(ACTIONS.c.id.desc()).limit(limit))
        return [a for a in newest if nodes is None or not {*nodes}.isdisjoint(nodes_of(a.command))]

    def failed_actions(self, since: float) -> list[LifeAction]:
        """Return actions that failed since then, oldest first."""
        query = ACTIONS.select().where(
            ACTIONS.c.cluster == self._cluster,
            ACTIONS.c.stage == Stage.FAILED.value,
            ACTIONS.c.changed_at >= since,
        )
        with self._database.reading() as connection:
            return _sound(connection, query.order_by(ACTIONS.c.id))

    def ticket_actions(self, limit: int) -> list[LifeAction]:
        """Return tickets that were opened or closed, newest first."""
        of_tickets = ACTIONS.c.kind.in_([OpenTicket.kind, CloseTicket.kind])
        query = ACTIONS.select().where(ACTIONS.c.cluster == self._cluster, of_tickets)
        with self._database.reading() as connection:
            return _sound(connection, query.order_by(ACTIONS.c.id.desc()).limit(limit))

    def suspicions(self) -> list[KeptSuspicion]:
        """Return all suspicions and how they ended, in order of time. Damaged ones are left out."""
        of_raised = EVENT_RECORDS.c.event == SuspicionRaised.kind
        raised = EVENT_RECORDS.select().where(EVENT_RECORDS.c.cluster == self._cluster, of_raised)
        of_ends = ACTIONS.c.kind == EndSuspicion.kind
        ends = ACTIONS.select().where(ACTIONS.c.cluster == self._cluster, of_ends)
        with self._database.reading() as connection:
            return kept_suspicions(
                _read_raised(connection, raised.order_by(EVENT_RECORDS.c.at, EVENT_RECORDS.c.id)),
                (
                    (action.at, action.command)
                    for action in _sound(connection, ends)
                    if isinstance(action.command, EndSuspicion)
                ),
            )

    @contextmanager
    def driving(self, id: int) -> Iterator[LifeAction | None]:
        """Yield the action to the one process that carries it out; None if another process does."""
        with driving_lock(self._database, id).alone() as is_alone:
            yield self._action(id) if is_alone else None

    def is_driven(self, id: int) -> bool:
        """Return true if a process carries the action out at this moment."""
        with self.driving(id) as action:
            return action is None

    def _action(self, id: int) -> LifeAction:
        with self._database.reading() as connection:
            return action_of(connection, self._cluster, id)

    def take(self, action: LifeAction, at: float, campaign: str = "") -> bool:
        """Mark an action as sent if it was not changed since it was read; false if another process
        was faster."""
        with self._database.writing() as connection:
            taken = replace(action, campaign=campaign)
            return _follow(connection, self._cluster, taken, Stage.SENT, at, before=action)

    def follow(self, action: LifeAction, stage: Stage, at: float, note: str = "") -> None:
        with self._database.writing() as connection:
            _follow(connection, self._cluster, replace(action, note=note or action.note), stage, at)


@dataclass(frozen=True, kw_only=True)
class _Breakers:
    by_scope: Mapping[str, Breaker]


def _keeper_row(connection: sa.Connection, cluster: str) -> KeeperRow | None:
    """Return the keeper's row. If its breakers are damaged, one is open: no node is taken out until
    a person says so."""
    query = KEEPERS.select().where(KEEPERS.c.cluster == cluster)
    try:
        return next(KEEPERS.records(connection, query), None)
    except Damage:
        breakers = {"fleet": Breaker(is_open=True)}
        return KeeperRow(seen_at=None, turned_at=0.0, turned_by="", breakers=breakers)


def _kept_by(connection: sa.Connection, cluster: str, or_none: bool) -> KeptBy | None:
    query = KEPT_BY.select().where(KEPT_BY.c.cluster == cluster)
    try:
        return next(KEPT_BY.records(connection, query), None)
    except Damage:
        if or_none:
            return None
        raise


def _kept_clock(connection: sa.Connection, cluster: str) -> KeptClock | None:
    """Return the clock of earlier turns; a damaged one is no reason to doubt the next."""
    query = CLOCKS.select().where(CLOCKS.c.cluster == cluster)
    with suppress(Damage):
        for row in CLOCKS.records(connection, query):
            return row.kept
    return None


def _keep_clock(connection: sa.Connection, cluster: str, kept: KeptClock) -> None:
    upsert(
        connection, CLOCKS.table, [CLOCKS.row(ClockRow(kept=kept), cluster=cluster)], replace=True
    )


def _latest(connection: sa.Connection, cluster: str, now: float) -> float:
    """Return the latest date that is not later than now, among what is kept."""
    of_campaigns = (CAMPAIGNS.c.created_at, CAMPAIGNS.c.finished_at)
    of_spans = (REPAIRS.c.started_at, REPAIRS.c.ended_at, JOBS.c.started_at, JOBS.c.ended_at)
    latest = -math.inf
    for date in (EVENT_RECORDS.c.at, *of_campaigns, *of_spans):
        query = sa.select(sa.func.max(date)).where(date.table.c.cluster == cluster, date <= now)
        latest = max(latest, connection.execute(query).scalar() or -math.inf)
    return latest


def _redate(connection: sa.Connection, cluster: str, correction: Correction) -> None:
    def is_late(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
        # no database compares with infinity alike
        return (
            sa.true() if correction.begins_after == -math.inf else column > correction.begins_after
        )

    _redate_reports(connection, cluster, is_late, correction.date)
    _redate_rows(connection, cluster, is_late, correction.carry, HOLDS, ("since", "until"))
    for kind, names in DATED:
        _redate_rows(connection, cluster, is_late, correction.date, kind, names)


def _is_among(dates: Sequence[float], column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    return column.in_(dates)


def _redate_reports(
    connection: sa.Connection, cluster: str, is_meant: ChosenDates, date: Callable[[float], float]
) -> None:
    """Events, and what followed from them."""
    for kind, names in REPORT_DATES:
        wait_for_row_count(connection, cluster, kind)
        gone, come = _redate_rows(connection, cluster, is_meant, date, kind, names)
        change_row_count(connection, cluster, kind, come=come, gone=gone)


def _redate_rows(
    connection: sa.Connection,
    cluster: str,
    is_meant: ChosenDates,
    date: Callable[[float], float],
    kind: RecordTable[Any],
    names: Sequence[str],
) -> tuple[list[Row], list[Row]]:
    some = sa.or_(*(is_meant(kind.c[name]) for name in names))
    return kind.redate(connection, (kind.c.cluster == cluster) & some, date, *names)


def _redate_lives(connection: sa.Connection, cluster: str, time: Time) -> None:
    """Redate lives; damaged ones stay damaged."""
    dating = Dating(now=time.now, before=time.before, correction=time.correction)
    lives, damaged = _lives(connection, cluster)
    healed = ((life, dating.heal(life)) for life in lives.values() if life.node not in damaged)
    rows = [
        LIVES.row(life, cluster=cluster, node=life.node, state=life.state.value)
        for before, life in healed
        if life is not before
    ]
    upsert(connection, LIVES.table, rows, replace=True)


def news_of(connection: sa.Connection, cluster: str, *chosen: sa.ColumnElement[bool]) -> News:
    """Return the news, or those of some event records."""
    event_records = EVENT_RECORDS.select().where(
        EVENT_RECORDS.c.cluster == cluster,
        *chosen,
        ~_heard_clause(cluster, "event_record", EVENT_RECORDS.c.id),
    )
    columns = (CAMPAIGNS.c.id, CAMPAIGNS.c.created_at, CAMPAIGNS.c.finished_at)
    campaigns = sa.select(*columns).where(*_unheard_campaigns(cluster))
    rows = connection.execute(campaigns.order_by(CAMPAIGNS.c.finished_at, CAMPAIGNS.c.id))
    return News(
        event_records=list(
            EVENT_RECORDS.records(
                connection, event_records.order_by(EVENT_RECORDS.c.at, EVENT_RECORDS.c.id)
            )
        ),
        conclusions=[
            Conclusion(campaign=id, began=began, at=at) for id, began, at in rows if at is not None
        ],
    )


def _unheard_campaigns(cluster: str) -> tuple[sa.ColumnElement[bool], ...]:
    is_heard = _heard_clause(cluster, "campaign", CAMPAIGNS.c.id)
    return CAMPAIGNS.c.cluster == cluster, *VALIDATED, ~is_heard


def _heard_clause(cluster: str, kind: str, id: sa.Column[str]) -> sa.Exists:
    return sa.exists().where(HEARD.c.cluster == cluster, HEARD.c.kind == kind, HEARD.c.id == id)


def _lives(
    connection: sa.Connection, cluster: str, nodes: Collection[str] | None = None
) -> tuple[dict[str, Life], list[str]]:
    """Return lives by node, these or all, and the nodes whose rows are damaged: these have to prove
    themselves."""
    query = LIVES.select().where(LIVES.c.cluster == cluster).order_by(LIVES.c.node)
    if nodes is not None:
        query = query.where(LIVES.c.node.in_(sorted(nodes)))
    return _read_lives(connection, query)


def _read_lives(
    connection: sa.Connection, query: sa.Select[Any]
) -> tuple[dict[str, Life], list[str]]:
    read = LIVES.reader()
    lives, damaged = {}, []
    for row in connection.execute(query):
        try:
            lives[row.node] = read(row)
        except Damage:
            if not isinstance(row.node, str):
                raise  # of which node it was cannot be said
            lives[row.node] = Life(node=row.node).add_debt(Debt.DOUBT, float("-inf"), "damaged")
            damaged.append(row.node)
    return lives, damaged


def _actions(
    connection: sa.Connection, cluster: str, stage: Collection[Stage], since: float = -math.inf
) -> list[LifeAction]:
    """Return actions at these stages; `since`: without those that reached the stage earlier.
    What failed more than a day ago is asked for anew, so that a turn does not read all that ever
    failed."""
    query = ACTIONS.select().where(
        ACTIONS.c.cluster == cluster, ACTIONS.c.stage.in_([entry.value for entry in stage])
    )
    if since > -math.inf:
        query = query.where(ACTIONS.c.changed_at > since)
    return _sound(connection, query.order_by(ACTIONS.c.id))


def _sound(connection: sa.Connection, query: sa.Select[Any]) -> list[LifeAction]:
    """Return intact actions. Damaged ones are not done: the keeper asks again for what it still
    wants."""
    read, sound = ACTIONS.reader(), []
    for row in connection.execute(query):
        with suppress(Damage):
            sound.append(read(row))
    return sound


def _read_raised(
    connection: sa.Connection, query: sa.Select[Any]
) -> Iterator[tuple[str, float, SuspicionRaised]]:
    read = EVENT_RECORDS.reader()
    for row in connection.execute(query):
        with suppress(Damage):
            event_record = read(row)
            if isinstance(event_record.event, SuspicionRaised):
                yield event_record.id, event_record.at, event_record.event


def action_of(connection: sa.Connection, cluster: str, id: int) -> LifeAction:
    query = ACTIONS.select().where(ACTIONS.c.cluster == cluster, ACTIONS.c.id == id)
    action = next(ACTIONS.records(connection, query), None)
    if action is None:
        raise UnknownRecordError(
            f'cluster "{cluster}" has no action {id}: anubis history actions lists them'
        )
    return action


def _follow(
    connection: sa.Connection,
    cluster: str,
    action: LifeAction,
    stage: Stage,
    at: float,
    before: LifeAction | None = None,
) -> bool:
    followed = ACTIONS.row(replace(action, stage=stage, changed_at=at), cluster=cluster)
    statement = sa.update(ACTIONS.table).where(ACTIONS.c.id == action.id)
    if before is not None:
        statement = statement.where(
            ACTIONS.c.stage == before.stage.value, ACTIONS.c.changed_at == before.changed_at
        )
    return connection.execute(statement.values(**followed)).rowcount == 1
