"""What is known of a node, and the state that follows from it. States are derived, never set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Self

from anubis.core.history.maintenance import Window
from anubis.core.keep.reasons import INCIDENT, NO_DEFECT, REPAIR, code_of

ENDED_KEPT = 16  # jobs: a beginning that is told after the end comes soon after it


class State(StrEnum):
    NEW = "new"  # it came, or came back, and has not been proven since
    IN_SERVICE = "in-service"
    SUSPECT = "suspect"  # it has something to prove, and may serve until it is tested
    DRAINING = "draining"  # to be taken out, and not out yet
    TESTING = "testing"
    OUT = "out"
    REPAIRING = "repairing"
    SPARE = "spare"
    MAINTENANCE = "maintenance"  # left alone, whatever is known of it
    LOST = "lost"
    RETIRED = "retired"


class Debt(StrEnum):
    """Why a node has something to prove."""

    NEW = "new"
    UPGRADE = "upgrade"
    DOUBT = "doubt"  # it serves, and nothing that it passed counts
    INCIDENT = "incident"  # it stays out until it has passed what finds such defects
    ANSWER = "answer"  # a test ended there without one
    SUSPICION = "suspicion"
    REPAIR = "repair"
    RESERVE = "reserve"  # a spare is proven before it is one
    WORK = "work"  # a job ended there; the node serves on until it falls idle
    FAILURE = "failure"  # a job failed there, which may be its own fault: likewise


AFTER_JOBS = (Debt.WORK, Debt.FAILURE)  # these say nothing against a node


class Proof(StrEnum):
    """What a test that was passed is worth."""

    FULL = "full"  # all that a new node has to prove
    OF_CATEGORY = "of-category"  # that there is no defect behind incidents of one category
    LIGHT = "light"  # a check between two jobs, as far as it is worth its time
    CHECK = "check"  # all of that check, whatever the history says


@dataclass(frozen=True, kw_only=True)
class Owed:
    debt: Debt
    at: float  # a test that began earlier does not pay it
    about: str = ""  # the category of an incident or of a suspicion; why else there is a doubt
    id: str = ""  # of the suspicion
    mix: Mapping[str, float] = field(default_factory=dict, hash=False)  # none: `about` alone
    confidence: float = 1.0  # how likely it is that there is anything to be found

    @property
    def needs(self) -> tuple[Proof, str]:
        match self.debt:
            case Debt.WORK:
                return Proof.LIGHT, ""
            case Debt.FAILURE:
                return Proof.CHECK, ""
            case Debt.INCIDENT | Debt.SUSPICION:
                return Proof.OF_CATEGORY, self.about
        return Proof.FULL, ""

    def is_paid(self, proof: Proof, about: str, began: float) -> bool:
        is_enough = proof is Proof.FULL or self.needs in ((proof, about), (Proof.LIGHT, ""))
        return is_enough and self.at < began


@dataclass(frozen=True, kw_only=True)
class DefectFound:
    code: str
    reason: str
    campaign: str
    at: float


@dataclass(frozen=True, kw_only=True)
class OpenIncident:
    """One that is not over, as the history has it: imported, or a monitor's alert."""

    category: str
    at: float  # when it began


@dataclass(frozen=True, kw_only=True)
class OpenTest:
    """A test that was asked for and has not been answered."""

    id: str
    at: float


@dataclass(frozen=True, kw_only=True)
class Life:
    """Of one node. Of each kind of fact the latest counts, whenever it was told."""

    node: str
    sku: str = ""
    present: bool = True
    present_at: float = -math.inf
    retired: bool = False
    retired_at: float = -math.inf
    jobs: Mapping[str, float] = field(default_factory=dict)  # what runs there, and as of when
    ended: Mapping[str, float] = field(default_factory=dict)  # the last that ended
    shown_at: float = -math.inf  # by the orchestrator: when it last showed anything new
    is_shown: bool = False  # by its last look, too
    cordon: str = ""  # as the orchestrator shows it
    cordoned_by_anubis: bool = False
    out_code: str = ""  # why Anubis wants it out, as it sent or proposed last; empty: it does not
    sent_at: float = -math.inf  # a cordon or a release
    has_been_cordoned: bool = False  # its owner did it for Anubis, which may release it then
    is_reserve: bool = False  # it belongs to the hot buffer
    judged_at: float = -math.inf  # the last conclusive verdict
    proven_at: float = -math.inf  # when the last test began that was full proof
    defect: DefectFound | None = None
    incidents: tuple[OpenIncident, ...] = ()
    ticket: str = ""
    repair_begun_at: float = -math.inf
    repair_done_at: float = -math.inf
    owed: tuple[Owed, ...] = field(default=())
    trial: OpenTest | None = None
    tried: int = 0  # tests in a row that came to nothing
    tried_at: float = -math.inf
    maintained: Window | None = None  # the maintenance that it is in
    kept_for: str = ""  # for what others keep it, though no job of theirs is there

    @property
    def is_in_repair(self) -> bool:
        return self.repair_begun_at > self.repair_done_at

    @property
    def is_there(self) -> bool:
        """For us: under maintenance it is not, whether or not it answers."""
        return self.present and not self.retired and self.maintained is None

    @property
    def condemned_at(self) -> float:
        """A pass that is told late says nothing of what was found after it."""
        return self.defect.at if self.defect else -math.inf

    @property
    def is_broken(self) -> bool:
        """A defect, or a repair that nothing has proven."""
        return self.is_in_repair or self.defect is not None or self.owes(Debt.REPAIR)

    @property
    def must_be_out(self) -> bool:
        """It is broken, in an incident, or nothing was proven since the incident."""
        return self.is_broken or bool(self.incidents) or self.owes(Debt.INCIDENT)

    @property
    def why_out(self) -> tuple[str, str]:
        """The code and the reason, of a node that must be out."""
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
        """Because it has to be: not as a spare, nor as a new node."""
        return self.must_be_out and self.out_code not in ("", *NO_DEFECT)

    @property
    def is_new(self) -> bool:
        return self.owes(Debt.NEW)

    @property
    def is_kept_out(self) -> bool:
        """Whatever for: jobs are not to begin there."""
        return self.must_be_out or self.is_reserve or self.is_new

    @property
    def is_out_of_service(self) -> bool:
        """Or is to be taken out: it waits for something that a person or a test has to do."""
        return not self.retired and (self.must_be_out or bool(self.ticket))

    @property
    def is_idle(self) -> bool:
        return not self.jobs and self.trial is None and not self.kept_for

    @property
    def is_cordoned_by_others(self) -> bool:
        return bool(self.cordon) and not self.cordoned_by_anubis

    def is_out_as(self, code: str) -> bool:
        """Whether it shows that it is kept from jobs for this. A person's cordon stays as it is."""
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
        if self.is_in_repair:
            return State.REPAIRING
        if self.must_be_out:
            return State.OUT if self.cordon and not self.jobs else State.DRAINING
        if self.is_new:
            return State.NEW
        if any(owed.debt not in AFTER_JOBS for owed in self.owed):
            return State.SUSPECT
        return State.SPARE if self.is_reserve else State.IN_SERVICE

    def beginning(self, job: str, at: float) -> Self:
        """An orchestrator that looked later knows better, and so does an end that came first."""
        if at <= max(self.shown_at, self.ended.get(job, -math.inf)):
            return self
        return replace(self, jobs={**self.jobs, job: at})

    def ending(self, job: str, at: float) -> Self:
        if at < self.jobs.get(job, -math.inf):
            return self
        ended = dict(sorted({**self.ended, job: at}.items(), key=itemgetter(1))[-ENDED_KEPT:])
        return replace(
            self,
            jobs={name: began for name, began in self.jobs.items() if name != job},
            ended=ended,
        )

    def showing(self, jobs: Iterable[str], at: float) -> Self:
        """What began or ended after the orchestrator looked stays."""
        now = dict.fromkeys((job for job in jobs if self.ended.get(job, -math.inf) < at), at)
        later = {job: began for job, began in self.jobs.items() if began > at}
        return replace(self, jobs=now | later, shown_at=at, is_shown=True)

    def shown_since(self, at: float) -> Self:
        """As it is known by a last look at that time, which showed nothing new of it."""
        if not self.is_shown or at <= self.shown_at:
            return self
        began = {job: at if shown == self.shown_at else shown for job, shown in self.jobs.items()}
        return replace(self, jobs=began, shown_at=at)

    def owes(self, debt: Debt) -> bool:
        return bool(self.owed) and any(owed.debt is debt for owed in self.owed)

    @property
    def needs(self) -> tuple[Proof, str]:
        """One test for all that it owes: whoever owes several things proves everything."""
        needs = {owed.needs for owed in self.owed} - {(Proof.LIGHT, "")}
        if len(needs) > 1:
            return Proof.FULL, ""
        return min(needs, default=(Proof.LIGHT, ""))

    def owing(self, debt: Debt, at: float, about: str = "") -> Self:
        """With one more thing to prove, unless a test that began later has proven it already."""
        return self.owing_what(Owed(debt=debt, at=at, about=about))

    def owing_what(self, owed: Owed) -> Self:
        same = [o for o in self.owed if (o.debt, o.about, o.id) == (owed.debt, owed.about, owed.id)]
        owed = replace(owed, at=max([owed.at, *(earlier.at for earlier in same)]))
        if owed.at < self.proven_at:
            return self
        if owed in same:
            return self
        kept = tuple(entry for entry in self.owed if entry not in same)
        return replace(self, owed=(*kept, owed), tried=0, tried_at=-math.inf)

    def having_proven(self, proof: Proof, about: str, began: float) -> Self:
        """What a test that began then has paid, when it was passed."""
        still = tuple(owed for owed in self.owed if not owed.is_paid(proof, about, began))
        full = began if proof is Proof.FULL else -math.inf
        return replace(self, owed=still, proven_at=max(full, self.proven_at), tried=0)


def suspect_since(life: Life) -> float:
    """When the oldest debt began of a node that serves and has something to prove; inf: none."""
    if life.state is not State.SUSPECT:
        return math.inf
    return min(owed.at for owed in life.owed if owed.debt not in AFTER_JOBS)
