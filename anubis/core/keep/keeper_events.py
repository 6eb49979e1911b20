"""Events for the keeper of a fleet: facts with the time at which they became true, none of them
dated later than now.

Events may arrive late, twice, in any order, or not at all. Stored events arrive as event records.

Bad news with a later date counts as of now; a pass with a later date counts for nothing. Facts
stored with a clock that turned out to be wrong get corrected dates; dates that are still later than
now become the latest possible time of storing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_type_hints

from anubis.core.clock import TOLERANCE_S, Correction
from anubis.core.history.events import EventRecord
from anubis.core.history.maintenance import Window
from anubis.core.keep.life import OpenIncident, Proof
from anubis.core.keep.reasons import is_ours
from anubis.core.records import Judgement


@dataclass(frozen=True, kw_only=True)
class _Timed:
    at: float


@dataclass(frozen=True, kw_only=True)
class Concluded:
    """Verdict of a test on a node."""

    judgement: Judgement
    code: str = ""
    reason: str = ""
    proof: Proof | None = None  # what the verdict healthy proves; None: nothing
    about: str = ""  # the category that it is proof for
    whole_since: float | None = None  # begin of the first of the tests by which it has now passed
    # all that a new node has to pass; None: it has not
    is_fit: bool = False  # the history has no open defect of the node any more
    owes: bool = False  # according to the history a test has no answer

    @property
    def counts(self) -> bool:
        return self.is_fit or self.proof is not None or self.whole_since is not None


@dataclass(frozen=True, kw_only=True)
class VerdictReached(_Timed):
    campaign: str
    began: float
    verdicts: Mapping[str, Concluded]
    test: str = ""  # id of the `Prove` that it answers; empty: requested by others


@dataclass(frozen=True, kw_only=True)
class TestRefused(_Timed):
    """A requested test could not begin: the nodes are in use, or nothing could measure."""

    __test__ = False

    test: str
    reason: str
    are_nodes_busy: bool = False  # it begins once they are free


@dataclass(frozen=True, kw_only=True)
class RepairRan(_Timed):
    """The command of a repair ended. `RepairDone` reports that it did its work."""

    node: str
    words: tuple[str, ...]
    trouble: str = ""  # why it did not
    has_begun: bool = True  # False: it was refused just before, and is no attempt


@dataclass(frozen=True, kw_only=True)
class SeenNode:
    """A node as its orchestrator shows it."""

    sku: str = ""
    state: str = ""  # in the orchestrator's words
    meaning: str = ""  # of that state, for a person; empty: an ordinary state
    is_up: bool = True  # it answers its orchestrator
    is_free: bool = True  # False: reserved for others, although it shows no job
    jobs: tuple[str, ...] = ()  # ids of its running jobs
    cordon: str = ""  # the reason shown; empty: jobs may begin
    cordoned_by: str = ""  # author of that reason, if known
    cordoned_at: float | None = None

    @property
    def is_cordoned_by_anubis(self) -> bool:
        return is_ours(self.cordon)


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job as its orchestrator shows it."""

    owner: str  # empty: not shown
    nodes: tuple[str, ...]
    started_at: float | None = None
    ends_by: float = math.inf  # its limit of time
    has_begun: bool = True  # no: it holds its nodes while its gate runs, which may put it back


@dataclass(frozen=True, kw_only=True)
class SeenWindow:
    """A maintenance as its orchestrator shows it: under way, or planned."""

    nodes: tuple[str, ...]
    begin: float
    end: float = math.inf  # infinite: until its owner ends it
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FleetSeen(_Timed):
    """Everything that the orchestrator shows. A node that is missing or does not answer is lost. A
    node that returns after a while may have other parts, and has to prove itself."""

    nodes: Mapping[str, SeenNode]
    jobs: Mapping[str, SeenJob] = field(default_factory=dict)  # by id
    windows: Mapping[str, SeenWindow] = field(default_factory=dict)  # by name
    why_empty: str = ""  # what to look at if it shows no node; empty: it shows some


@dataclass(frozen=True, kw_only=True)
class Waited(_Timed):
    """Passage of time: what waits for time may begin."""

    risk: Mapping[str, float] = field(default_factory=dict)  # chance of an incident by node
    watched: frozenset[str] = frozenset()  # nodes that the history knows
    unproven: frozenset[str] = frozenset()  # those of them without a pass that counts
    proven: frozenset[str] = frozenset()  # those of them with one
    owes: frozenset[str] | None = None  # nodes with an unanswered test; None: not checked
    unreachable: frozenset[str] = frozenset()  # others measure on them, or they are down
    held: frozenset[str] = frozenset()  # those of them on which others measure
    incidents: Mapping[str, tuple[OpenIncident, ...]] = field(default_factory=dict)  # by node
    ended: Mapping[str, frozenset[str]] = field(default_factory=dict)  # categories, by node
    maintained: Mapping[str, Window] = field(default_factory=dict)  # nodes under maintenance


LifeEvent = EventRecord | VerdictReached | TestRefused | RepairRan | FleetSeen | Waited


R = TypeVar("R")

STAMPED = ("jobs", "ended")  # fields with times by name
EARLY = "its test is dated later than now: a clock was wrong"


@dataclass(frozen=True, kw_only=True)
class Dating:
    """The instants between which a turn may date anything."""

    now: float = math.inf
    before: float = math.inf  # the latest time of storing of what earlier turns left
    correction: Correction | None = None  # of the dates of earlier turns

    def stamp(self, at: float) -> float:
        """Corrected date of a stored fact, no later than now."""
        if self.correction:
            at = self.correction.date(at)
        return at if at <= self.now else min(self.before, self.now)

    def heal(self, record: R) -> R:
        """Record with no stamp later than now. Most records stay as they are."""
        sound_until = min(self.now, self.correction.begins_after) if self.correction else self.now
        is_sound = all(at <= sound_until for at in _stamps(record))
        return record if is_sound else cast(R, self._heal(record))

    def _heal(self, record: Any) -> Any:
        shape = _shape_of(record.__class__)
        changes: dict[str, Any] = {name: self.stamp(getattr(record, name)) for name in shape.stamps}
        for name in shape.maps:
            changes[name] = {k: self.stamp(at) for k, at in getattr(record, name).items()}
        for name in shape.records:
            changes[name] = self._heal_cell(getattr(record, name))
        return replace(record, **changes)

    def _heal_cell(self, cell: Any) -> Any:
        match cell:
            case None:
                return None
            case tuple():
                return tuple(map(self._heal, cell))
            case Mapping():
                return {key: self._heal(value) for key, value in cell.items()}
        return self._heal(cell)

    def date_event(self, event: LifeEvent) -> LifeEvent:
        """Event, dated now if its date is later."""
        if event.at <= self.now:
            return event
        if isinstance(event, VerdictReached):
            began = min(event.began, self.now)
            verdicts = event.verdicts
            if event.at > self.now + TOLERANCE_S:
                verdicts = {node: _void(verdict) for node, verdict in verdicts.items()}
            return replace(event, at=self.now, began=began, verdicts=verdicts)
        return replace(event, at=self.now)


ANY_TIME = Dating()


def _void(verdict: Concluded) -> Concluded:
    """Verdict without effect for a pass that cannot have happened yet."""
    if verdict.judgement is not Judgement.HEALTHY:
        return verdict
    return Concluded(judgement=Judgement.UNKNOWN, reason=EARLY)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """Fields of a record that contain times."""

    stamps: tuple[str, ...]
    maps: tuple[str, ...]  # mappings of names to times
    records: tuple[str, ...]  # records, or tuples or mappings of records
    read: attrgetter[Any]  # all stamps, after two more fields so that it always returns a tuple


@cache
def _shape_of(kind: Any) -> _Shape:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    stamps = tuple(name for name in names if name == "at" or name.endswith("_at"))
    first = names[0]
    return _Shape(
        stamps=stamps,
        maps=tuple(name for name in names if name in STAMPED),
        records=tuple(name for name in names if _holds_records(hints[name])),
        read=attrgetter(first, first, *stamps),
    )


def _holds_records(hint: Any) -> bool:
    return is_dataclass(hint) or any(map(_holds_records, get_args(hint)))


def _stamps(record: Any) -> Iterator[float]:
    shape = _shape_of(record.__class__)
    yield from shape.read(record)[2:]
    for name in shape.maps:
        yield from getattr(record, name).values()
    for name in shape.records:
        if cell := getattr(record, name):
            cells = cell.values() if isinstance(cell, Mapping) else cell
            for entry in cells if not is_dataclass(cell) else (cell,):
                yield from _stamps(entry)
