"""Facts known about a node, and its state (new, in service, suspect, out …), which follows from
them and is never set."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Self

import numpy as np

from anubis.core.history.events import Debt
from anubis.core.history.maintenance import Window
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.reasons import INCIDENT, LOST, NO_DEFECT, REPAIR, code_of

ENDED_KEPT = 16  # jobs: a begin that is reported after the end arrives soon after it


class State(StrEnum):
    NEW = "new"  # it arrived, or returned, and is not proven since
    IN_SERVICE = "in-service"
    SUSPECT = "suspect"  # it has something to prove, and serves until it is tested
    DRAINING = "draining"  # to be taken out, and not out yet
    TESTING = "testing"
    OUT = "out"
    REPAIRING = "repairing"
    SPARE = "spare"
    MAINTENANCE = "maintenance"  # left alone, in any state
    LOST = "lost"
    RETIRED = "retired"


AFTER_JOBS = (Debt.WORK, Debt.FAILURE, Debt.UNEXPLAINED)  # these are no sign of a defect


class Proof(StrEnum):
    """What a passed test proves."""

    FULL = "full"  # all that a new node has to prove
    OF_CATEGORY = "of-category"  # no defect behind incidents of one category
    LIGHT = "light"  # the part of a check between two jobs that is worth its time
    CHECK = "check"  # all of that check
    TOGETHER = "together"  # no fault at the nodes of one job, or between them


@dataclass(frozen=True, kw_only=True)
class Owed:
    debt: Debt
    at: float  # a test that began earlier does not pay it
    about: str = ""  # category of the incident or suspicion, the job, or a reason for the doubt
    id: str = ""  # of the suspicion
    mix: Mapping[str, float] = field(default_factory=dict, hash=False)  # empty: `about` alone
    confidence: float = 1.0  # the chance that there is a defect
    is_repeated: bool = False  # a suspicion again, after a test of its category found nothing

    @property
    def needs(self) -> tuple[Proof, str]:
        match self.debt:
            case Debt.WORK:
                return Proof.LIGHT, ""
            case Debt.FAILURE:
                return Proof.CHECK, ""
            case Debt.UNEXPLAINED:
                return Proof.TOGETHER, self.about
            case Debt.INCIDENT | Debt.SUSPICION if not self.is_repeated:
                return Proof.OF_CATEGORY, self.about
        return Proof.FULL, ""

    def is_paid(self, proof: Proof, about: str, began: float) -> bool:
        is_alone = self.debt is not Debt.UNEXPLAINED
        is_enough = (is_alone and proof is Proof.FULL) or self.needs in (
            (proof, about),
            (Proof.LIGHT, ""),
        )
        return is_enough and self.at < began


@dataclass(frozen=True, kw_only=True)
class DefectFound:
    code: str
    reason: str
    campaign: str
    at: float
    measured_at: float = -math.inf  # when its test began


@dataclass(frozen=True, kw_only=True)
class OpenIncident:
    """An incident that is not over, according to the history: imported, or a monitor's alert."""

    category: str
    at: float  # when it began


@dataclass(frozen=True, kw_only=True)
class OpenTest:
    """A requested test that is not answered yet."""

    id: str
    at: float
    job: str = ""  # whose nodes are measured together


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A command of the site that was to repair the node."""

    words: tuple[str, ...]
    at: float


@dataclass(frozen=True, kw_only=True)
class Life:
    """Facts about one node. The latest fact of each kind counts, in whatever order they arrived."""

    node: str
    sku: str = ""
    present: bool = True
    present_at: float = -math.inf
    is_down: bool = False  # its orchestrator shows it all the time, and that it does not answer
    retired: bool = False
    retired_at: float = -math.inf
    jobs: Mapping[str, float] = field(default_factory=dict)  # running job → since when it is known
    ended: Mapping[str, float] = field(default_factory=dict)  # the last jobs that ended → when
    requeued: tuple[str, ...] = ()  # running jobs that were to be put back into the queue
    shown_at: float = -math.inf  # when the orchestrator last showed anything new
    is_shown: bool = False  # in the last look as well
    cordon: str = ""  # as the orchestrator shows it
    cordoned_by_anubis: bool = False
    out_code: str = ""  # code of the last cordon sent or proposed; empty: none
    sent_at: float = -math.inf  # a cordon or a release
    vacated_at: float = -math.inf  # it was taken out of service, and no spare took its place yet
    has_been_cordoned: bool = False  # its owner obeyed a cordon of Anubis, so Anubis may release it
    is_reserve: bool = False  # it belongs to the hot buffer
    judged_at: float = -math.inf  # the last conclusive verdict
    refuted_at: float = -math.inf  # the last suspicion that a test of its category refuted
    proven_at: float = -math.inf  # the begin of the last test that was full proof
    defect: DefectFound | None = None
    incidents: tuple[OpenIncident, ...] = ()
    ticket: str = ""
    repair_begun_at: float = -math.inf
    repair_done_at: float = -math.inf
    repair: Attempt | None = None  # whose command runs
    attempts: tuple[Attempt, ...] = ()  # of the last while
    owed: tuple[Owed, ...] = field(default=())
    trial: OpenTest | None = None
    tried: int = 0  # tests in a row without a result
    refused: int = 0  # tests in a row that could not begin, though the node was free
    tried_at: float = -math.inf
    searched_at: float = -math.inf  # with other nodes of a job, for a fault of some of them
    maintained: Window | None = None  # the maintenance that it is in
    kept_for: str = ""  # use that others reserve it for without a job

    @property
    def is_in_repair(self) -> bool:
        return self.repair_begun_at > self.repair_done_at

    @property
    def is_there(self) -> bool:
        """Return whether the node is present and ours to act on. Under maintenance it is not, even
        if it answers."""
        return self.present and not self.retired and self.maintained is None

    @property
    def is_lost(self) -> bool:
        """Return whether the node belongs to the fleet and does not answer its orchestrator. A node
        that was removed, or that is not shown, is no concern of ours."""
        is_ours = not self.retired and self.maintained is None
        return is_ours and not self.present and self.is_down

    @property
    def is_missed(self) -> bool:
        """Return whether the node is lost, or must be out, also if it is not shown; and is ours to
        act on."""
        is_left_alone = self.retired or self.maintained is not None
        return self.is_lost or (self.must_be_out and not is_left_alone)

    @property
    def is_repair_in_vain(self) -> bool:
        """Return whether a test that began after the last repair found a defect."""
        return self.defect is not None and self.defect.measured_at > self.repair_done_at

    @property
    def awaits_repair(self) -> bool:
        """Return whether the node has a defect and no repair after which it was not tested yet."""
        return self.defect is not None and (self.is_repair_in_vain or not self.owes(Debt.REPAIR))

    @property
    def cause(self) -> str:
        """Code of the defect, or category of the incident, for which the node has to be repaired;
        empty: there is none, or its last repair is not tested yet. If the node is lost, that comes
        first."""
        if self.is_in_repair:
            return ""
        if self.is_lost:
            return LOST
        if self.defect is not None:
            return self.defect.code if self.awaits_repair else ""
        had = [(o.at, o.about) for o in self.owed if o.debt is Debt.INCIDENT]
        had += [(incident.at, incident.category) for incident in self.incidents]
        return next((about for at, about in sorted(had) if at > self.repair_done_at), "")

    def attempts_since(self, begin: float) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.at > begin)

    def undo_attempt(self, words: tuple[str, ...]) -> Self:
        """Life as before this command, if it is the one that is to run or runs."""
        if self.repair is None or self.repair.words != words:
            return self
        earlier = tuple(attempt for attempt in self.attempts if attempt != self.repair)
        return replace(self, repair=None, attempts=earlier)

    @property
    def condemned_at(self) -> float:
        """Time of the defect. A pass from before it proves nothing, even if it arrives later."""
        return self.defect.at if self.defect else -math.inf

    @property
    def is_broken(self) -> bool:
        """Return whether the node has a defect or an unproven repair."""
        return self.is_in_repair or self.defect is not None or self.owes(Debt.REPAIR)

    @property
    def must_be_out(self) -> bool:
        """Return whether the node is broken, in an incident, or unproven since an incident."""
        return self.is_broken or bool(self.incidents) or self.owes(Debt.INCIDENT)

    @property
    def out_reason(self) -> tuple[str, str]:
        """Code and reason of a node that must be out."""
        if self.defect is not None:
            return self.defect.code, self.defect.reason
        if self.is_broken:
            return REPAIR, "in repair" if self.is_in_repair else "its repair is not proven"
        if self.incidents:
            first = min(self.incidents, key=attrgetter("at"))
            return INCIDENT, f'its incident "{first.category}" is not over'
        after = next((owed.about for owed in self.owed if owed.debt is Debt.INCIDENT), "")
        return INCIDENT, f'it has not passed a test since its incident "{after}"'

    @property
    def is_taken_out(self) -> bool:
        """Return whether the node was taken out because it must be, not as a spare or a new
        node."""
        return self.must_be_out and self.out_code not in ("", *NO_DEFECT)

    @property
    def awaits_spare(self) -> bool:
        """Return whether the node is out, and its place in service is vacant."""
        is_left_alone = self.retired or self.maintained is not None
        return self.vacated_at > -math.inf and self.is_taken_out and not is_left_alone

    @property
    def is_ready(self) -> bool:
        """Return whether the node is a spare that is proven, and that Anubis keeps from jobs."""
        is_ours = self.has_been_cordoned and self.cordoned_by_anubis
        return self.state is State.SPARE and bool(self.cordon) and is_ours

    @property
    def is_new(self) -> bool:
        return self.owes(Debt.NEW)

    def suspicion_from(self, least: float) -> str:
        """Category of a suspicion with at least this confidence; empty: there is none."""
        strong = (o for o in self.owed if o.debt is Debt.SUSPICION and o.confidence >= least)
        return next((owed.about for owed in strong), "")

    @property
    def is_kept_out(self) -> bool:
        """Return whether jobs must not begin on the node, for any reason."""
        return self.must_be_out or self.is_reserve or self.is_new

    @property
    def is_out_of_service(self) -> bool:
        """Return whether the node is out or is to be taken out: it waits for a person or a test."""
        return not self.retired and (self.must_be_out or bool(self.ticket))

    @property
    def is_idle(self) -> bool:
        is_in_work = self.trial is not None or self.repair is not None
        return not self.jobs and not is_in_work and not self.kept_for

    @property
    def is_cordoned_by_others(self) -> bool:
        return bool(self.cordon) and not self.cordoned_by_anubis

    def is_out_as(self, code: str) -> bool:
        """Return whether the node shows that it is kept from jobs for this code. A person's cordon
        stays as it is."""
        return bool(self.cordon) and (self.is_cordoned_by_others or code_of(self.cordon) == code)

    @property
    def state(self) -> State:
        if self.retired:
            return State.RETIRED
        if self.maintained is not None:
            return State.MAINTENANCE
        if not self.present:
            return State.LOST
        if self.trial is not None:
            return State.TESTING
        if self.is_in_repair or self.repair is not None:
            return State.REPAIRING
        if self.must_be_out:
            return State.OUT if self.cordon and not self.jobs else State.DRAINING
        if self.is_new:
            return State.NEW
        if any(owed.debt not in AFTER_JOBS for owed in self.owed):
            return State.SUSPECT
        return State.SPARE if self.is_reserve else State.IN_SERVICE

    def begin_job(self, job: str, at: float) -> Self:
        """Life with a job begun, unless a later look or an earlier message says that it ended."""
        if at <= max(self.shown_at, self.ended.get(job, -math.inf)):
            return self
        return replace(self, jobs={**self.jobs, job: at})

    def end_job(self, job: str, at: float) -> Self:
        if at < self.jobs.get(job, -math.inf):
            return self
        ended = dict(sorted({**self.ended, job: at}.items(), key=itemgetter(1))[-ENDED_KEPT:])
        return replace(
            self,
            jobs={name: began for name, began in self.jobs.items() if name != job},
            ended=ended,
        )

    def show_jobs(self, jobs: Collection[str], at: float) -> Self:
        """Life with the jobs that the orchestrator shows. Later begins and ends stay. A job that is
        shown although it is said to have ended is put back no second time."""
        now = dict.fromkeys((job for job in jobs if self.ended.get(job, -math.inf) < at), at)
        later = {job: began for job, began in self.jobs.items() if began > at}
        running = now | later
        requeued = tuple(job for job in self.requeued if job in running or job in jobs)
        return replace(self, jobs=running, requeued=requeued, shown_at=at, is_shown=True)

    def confirm_at(self, at: float) -> Self:
        """Life as of a last look at that time, which showed nothing new of it."""
        if not self.is_shown or at <= self.shown_at:
            return self
        began = {job: at if shown == self.shown_at else shown for job, shown in self.jobs.items()}
        return replace(self, jobs=began, shown_at=at)

    def owes(self, debt: Debt) -> bool:
        return bool(self.owed) and any(owed.debt is debt for owed in self.owed)

    @property
    def owed_alone(self) -> tuple[Owed, ...]:
        """Debts that the node pays without the other nodes of a job."""
        return tuple(owed for owed in self.owed if owed.debt is not Debt.UNEXPLAINED)

    def end_search(self, job: str, at: float) -> Self:
        """Life after a search among the nodes of a job. What it did not find, it finds no better
        if it is repeated."""
        return replace(self.drop_search(job), searched_at=at)

    def drop_search(self, job: str) -> Self:
        owed = tuple(o for o in self.owed if o.debt is not Debt.UNEXPLAINED or o.about != job)
        return replace(self, owed=owed)

    @property
    def needs(self) -> tuple[Proof, str]:
        """Proof and category of a single test for all debts that a node pays alone. Several
        different debts need a full proof."""
        needs = {owed.needs for owed in self.owed_alone} - {(Proof.LIGHT, "")}
        if len(needs) > 1:
            return Proof.FULL, ""
        return min(needs, default=(Proof.LIGHT, ""))

    @property
    def follows_repair(self) -> bool:
        """Return whether its next test is to prove a repair."""
        return any(owed.debt is Debt.REPAIR for owed in self.owed_alone)

    def add_debt(self, debt: Debt, at: float, about: str = "") -> Self:
        """Life with one more debt, unless a later test has already paid it."""
        return self.add_owed(Owed(debt=debt, at=at, about=about))

    def add_owed(self, owed: Owed) -> Self:
        same = [o for o in self.owed if (o.debt, o.about, o.id) == (owed.debt, owed.about, owed.id)]
        owed = replace(owed, at=max([owed.at, *(earlier.at for earlier in same)]))
        if owed.at < self.proven_at:
            return self
        if owed in same:
            return self
        kept = tuple(entry for entry in self.owed if entry not in same)
        return replace(self, owed=(*kept, owed), tried=0, refused=0, tried_at=-math.inf)

    def pay_debts(self, proof: Proof, about: str, began: float) -> Self:
        """Life without the debts that a passed test pays. `began`: the begin of the test."""
        still = tuple(owed for owed in self.owed if not owed.is_paid(proof, about, began))
        full = began if proof is Proof.FULL else -math.inf
        return replace(self, owed=still, proven_at=max(full, self.proven_at), tried=0)


def suspect_since(life: Life) -> float:
    """Time of the oldest debt of a node that serves and has something to prove; inf: none."""
    if life.state is not State.SUSPECT:
        return math.inf
    return min(owed.at for owed in life.owed if owed.debt not in AFTER_JOBS)


# --- nodes of a job that no longer answer ------------------------------------------------------

NOTICED_S = 600.0  # an orchestrator shows minutes later that a node is gone
UNREACHABLE_S = 60.0  # a node that answers again sooner was only slow to answer


def unreachable(
    lives: Iterable[Life], seen_at: float | None, nodes: Sequence[str], at: float, now: float
) -> dict[str, float] | None:
    """Unreachable nodes of a job, with the time since when; None: the orchestrator was not asked
    (`seen_at`) since the job was in trouble (`at`)."""
    of_job = [life for life in lives if life.node in set(nodes)]
    if not of_job or seen_at is None or seen_at < at:
        return None
    latest = min(at + NOTICED_S, now - UNREACHABLE_S)
    return {
        life.node: life.present_at
        for life in of_job
        if not life.present and not life.retired and life.present_at <= latest
    }


# --- incidents of the history ------------------------------------------------------------------


def open_incidents(incidents: IncidentColumns, at: float) -> dict[str, tuple[OpenIncident, ...]]:
    """Open incidents of each node, the earliest first."""
    incidents = incidents.select_begun(at)
    rows = np.flatnonzero(incidents.end > at)
    by_node: defaultdict[str, list[OpenIncident]] = defaultdict(list)
    for row in rows[np.argsort(incidents.start[rows], kind="stable")].tolist():
        incident = OpenIncident(category=incidents.category[row], at=float(incidents.start[row]))
        by_node[incidents.node[row]].append(incident)
    return {node: tuple(of_node) for node, of_node in by_node.items()}


def ended_incidents(
    incidents: IncidentColumns, nodes: Collection[str], at: float
) -> dict[str, frozenset[str]]:
    """Categories of the incidents that are over, by node. An incident dated later than now counts
    as over: a clock was wrong."""
    by_node: defaultdict[str, set[str]] = defaultdict(set)
    for incident in incidents.select_nodes(nodes) if nodes else ():
        if incident.end is not None and (incident.end <= at or incident.start > at):
            by_node[incident.node].add(incident.category)
    return {node: frozenset(categories) for node, categories in by_node.items()}
