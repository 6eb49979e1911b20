"""The state of nodes according to the history: which passes still count, which nodes are out of
service, and which owe an answer; and which paths between them are bad.

A pass counts as long as nothing happened to its node since its campaign began: no incident, no
repair, no defect, no event that presumes one. A campaign of hours, or one that was resumed after
days, may have measured the node before that. A pass proves nothing while an incident or a repair is
under way, and a result dated in the future proves nothing before that time. A scan measures what is
between nodes: it proves none of them, but answers what they owe and disproves their defects.

A benchmark that a node left unanswered in a campaign (`core.judge.unanswered` defines this) is owed
until the node passes it in a later campaign that demands no less, or the program reports that it
does not apply. Until then the node is unknown, whatever else it passes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum
from itertools import compress
from operator import itemgetter
from typing import Self, TypeVar

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.history.events import EventRecord
from anubis.core.history.status import Incident, Repair, Times, Validation
from anubis.core.history.strength import Strength
from anubis.core.history.tracks import IncidentColumns, Track, ends, extreme, row_numbers
from anubis.core.records import Judgement, PartVerdict

T = TypeVar("T")
K = TypeVar("K")

ANY = Strength()  # each pass counts by the name of its benchmark
ANSWERS = (Judgement.HEALTHY, Judgement.NOT_APPLICABLE)
MOST_OWED = 3  # benchmarks that a reason names
# after one error a rate that has not changed brings none in 19 times as long in 5 % of all cases
# (docs/design/mathematics.md)
CLEAN_AFTER_ONCE = 19.0


class _Kind(IntEnum):
    """Kind of a result. At one instant a pass sorts first: in doubt it is void."""

    PASSED = 0
    OWED = 1
    FAILED = 2


_Result = tuple[float, _Kind, Validation]


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Benchmarks that a node did not answer in one campaign and has not passed since."""

    benchmarks: tuple[str, ...]  # by name
    campaign: str
    code: str  # of the verdict on the node there
    since: float

    def naming(self, benchmarks: Sequence[str]) -> str:
        """Sentence with these of its benchmarks."""
        day = datetime.fromtimestamp(self.since, UTC)
        return (
            f"{_list_names(benchmarks)} since {day:%Y-%m-%d %H:%M} UTC (campaign {self.campaign}:"
            f" {self.code})"
        )


EARLY = "passes dated in the future do not count yet: a clock was wrong"

Debts = Mapping[str, tuple[Unanswered, ...]]  # by node, the oldest first


@dataclass(frozen=True, kw_only=True)
class Standing:
    """State of all nodes at one instant."""

    passed: Mapping[str, Mapping[str, float]]  # by node: time of the last pass of each benchmark
    counted: Mapping[str, Mapping[str, float]]  # the same for passes with all that is required
    unfit: Mapping[str, str]  # node out of service → why
    owes: Debts
    down: frozenset[str]  # those in an incident or a repair, which cannot be measured
    early: frozenset[str]  # nodes with a pass that is dated in the future
    happened: Mapping[str, float] = field(default_factory=dict, compare=False)  # by node: time of
    # its last incident, repair or event that presumed a defect; now, if it is under way
    presumed: Mapping[str, str] = field(default_factory=dict, compare=False)  # node on which a
    # defect is presumed → why
    doubted: Mapping[str, str] = field(default_factory=dict)  # node whose passes do not count
    # because their age is unknown → why

    def replace_nodes(self, nodes: AbstractSet[str], fresh: Standing) -> Standing:
        """Standing with these nodes replaced by their entries in `fresh`."""

        def merge(before: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
            return {node: kept for node, kept in before.items() if node not in nodes} | {**now}

        return Standing(
            passed=merge(self.passed, fresh.passed),
            counted=merge(self.counted, fresh.counted),
            unfit=merge(self.unfit, fresh.unfit),
            owes=merge(self.owes, fresh.owes),
            down=self.down - nodes | fresh.down,
            early=self.early - nodes | fresh.early,
            happened=merge(self.happened, fresh.happened),
            presumed=merge(self.presumed, fresh.presumed),
            doubted=merge(self.doubted, fresh.doubted),
        )

    def apply_doubt(self, why: str, tested: Collection[str] = ()) -> Standing:
        """Standing in which no pass counts, because the age of passes is unknown; but for nodes
        that were `tested` just now. Unchanged if there is no reason."""
        if not why:
            return self
        return replace(
            self,
            passed={node: at for node, at in self.passed.items() if node in tested},
            counted={node: at for node, at in self.counted.items() if node in tested},
            doubted={node: why for node in self.passed if node not in tested},
        )

    def apply_objections(self, out: Mapping[str, str], unproven: Mapping[str, str]) -> Standing:
        """Standing with the objections of a keeper: nodes that must be out, and nodes with
        something to prove, with reasons. None of their passes counts."""
        denied = {*out, *unproven}
        if not denied:
            return self
        return replace(
            self,
            unfit={**out, **self.unfit},
            passed={node: at for node, at in self.passed.items() if node not in denied},
            counted={node: at for node, at in self.counted.items() if node not in denied},
            doubted={node: why for node, why in self.doubted.items() if node not in denied},
            presumed={**self.presumed, **unproven},
        )

    def judgement(self, node: str) -> Judgement:
        """Judgement of the node without any further test."""
        if node in self.unfit:
            return Judgement.DEFECTIVE
        return Judgement.HEALTHY if self.is_proven(node) else Judgement.UNKNOWN

    def is_proven(self, node: str) -> bool:
        """Return whether it passed something that counts, and owes nothing."""
        return bool(self.passed.get(node)) and node not in self.owes

    def owed_benchmarks(self, node: str) -> tuple[str, ...]:
        """Benchmarks that it owes, by name."""
        return tuple(sorted({name for owed in self.owes.get(node, ()) for name in owed.benchmarks}))

    def owing_reason(self, node: str) -> str:
        """Sentence on what it owes and since when; empty if it owes nothing."""
        return _debt_sentence(self.owes.get(node, ()))

    def unproven_reason(self, node: str) -> str:
        """Sentence on what it has to disprove; empty if it is proven, out of service, or has only
        never been proven."""
        if self.judgement(node) is not Judgement.UNKNOWN:
            return ""
        return self.presumed.get(node, "")

    def doubt_reason(self, node: str) -> str:
        """Sentence on why none of its passes counts, if a clock is or was wrong; empty: another
        reason, or they count."""
        is_early = node in self.early and not self.passed.get(node)
        return self.doubted.get(node, EARLY if is_early else "")

    def unknown_reason(self, node: str) -> str:
        """Sentence on what it owes, or on why its passes do not count; empty: it passed nothing."""
        return self.owing_reason(node) or self.doubt_reason(node)

    def reason(self, node: str) -> str:
        """Reason why it is not healthy; empty: no known reason."""
        return self.unfit.get(node) or self.unknown_reason(node) or self.unproven_reason(node)


def tell_debts(nodes: Iterable[str], owes: Debts) -> dict[str, str]:
    """Nodes that owe an answer → what they owe and since when."""
    return {node: _debt_sentence(owes[node]) for node in nodes if node in owes}


def _debt_sentence(debts: Iterable[Unanswered]) -> str:
    """Sentence with each benchmark once, by when it was first left unanswered."""
    named, parts = set[str](), []
    for debt in debts:
        if new := [name for name in debt.benchmarks if name not in named]:
            parts.append(debt.naming(new))
            named.update(new)
    return f"it owes an answer: {'; '.join(parts)}" if parts else ""


def passes_asked(code: str, benchmark: str) -> float:
    """Return how long a benchmark must be passed, in times of the run that found a fault, by the
    code of its verdict. An error that came once passes most tests of the same length."""
    program, _, rest = code.replace("-", "_").partition(".")
    was_seen_once = "SEEN_ONCE" in (program, rest.partition(".")[0])
    is_own = program in ("SEEN_ONCE", benchmark.upper())
    return CLEAN_AFTER_ONCE if was_seen_once and is_own else 1.0


def standing(
    validations: Iterable[Validation],
    findings: Mapping[tuple[str, str], Collection[str]],
    incidents: Iterable[Incident],
    repairs: Iterable[Repair],
    event_records: Iterable[EventRecord],
    now: float,
    strength: Strength = ANY,
) -> Standing:
    """State of all nodes at `now`. `findings`: benchmarks that found a node defective, by campaign
    and node. The node stays out of service until it has passed each of them, with parameters that
    demand no less."""
    validations = list(validations)
    outs = _Outs.from_records(IncidentColumns.from_incidents(incidents), list(repairs), now)
    results = sorted(_results(validations, now), key=itemgetter(0, 1))
    trails: defaultdict[str, _Trail] = defaultdict(lambda: _Trail(strength))
    happened, presumed = outs.last_change(), dict[str, str]()
    for at, node, sentence in _presumptions(event_records, now):
        if at >= happened.get(node, at):
            happened[node] = at
            presumed[node] = f"{sentence}, and no test has cleared it since"
    cleared = dict(happened)
    for at, kind, result in results:
        if kind == _Kind.FAILED:
            cleared[result.node] = max(at, cleared.get(result.node, at))
    during = outs.going_on([result.node for *_, result in results], [at for at, *_ in results])
    for (at, kind, result), is_out in zip(results, during.tolist(), strict=True):
        trail = trails[result.node]
        match kind:
            case _Kind.FAILED:
                trail.fail(replace(result, at=at), findings)
            case _Kind.OWED:
                trail.owe(at, result)
            case _Kind.PASSED if not is_out:
                is_later = result.since > cleared.get(result.node, -math.inf)
                trail.succeed(result, counts=result.proves and is_later)
    still = outs.still
    return Standing(
        passed={node: trail.passed for node, trail in trails.items() if trail.passed},
        counted={node: trail.counted for node, trail in trails.items() if trail.counted},
        unfit={node: f"its {out} is not over" for node, out in still.items()}
        | {
            node: why
            for node, trail in trails.items()
            if node not in still and (why := trail.unfit_reason())
        },
        owes={node: owed for node, trail in trails.items() if (owed := trail.still_owed)},
        down=frozenset(still),
        early=frozenset(result.node for result in validations if _is_early(result, now)),
        happened=happened,
        presumed=presumed,
    )


def _words_of(left: tuple[str, float]) -> str:
    name, more = left
    return f"{name} {math.ceil(more)} times as long" if more > 1 else name


def _list_names(benchmarks: Sequence[str]) -> str:
    more = len(benchmarks) - MOST_OWED
    return ", ".join(benchmarks[:MOST_OWED]) + (f" and {more} more" if more > 0 else "")


def _is_early(result: Validation, now: float) -> bool:
    return result.at > now and result.judgement is Judgement.HEALTHY


def _results(validations: Iterable[Validation], now: float) -> Iterator[_Result]:
    """Results with their times and kinds. A defect or an unanswered test with a date in the future
    counts as of now, because a clock was wrong; such a pass does not count."""
    for result in validations:
        if result.judgement is Judgement.DEFECTIVE:
            yield min(result.at, now), _Kind.FAILED, result
        if result.owes:
            yield min(result.at, now), _Kind.OWED, result
        elif result.judgement in ANSWERS and result.at <= now:
            yield result.at, _Kind.PASSED, result


def _presumptions(
    event_records: Iterable[EventRecord], now: float
) -> Iterator[tuple[float, str, str]]:
    """Time, node and sentence of each event that presumes a defect."""
    for event_record in event_records:
        if sentence := event_record.event.presumption:
            for node in event_record.event.nodes:
                yield min(event_record.at, now), node, sentence


@dataclass(frozen=True, kw_only=True)
class _Outs:
    """Incidents and repairs that have begun, in columns."""

    nodes: Sequence[str]
    categories: Sequence[str]  # of incidents; empty for a repair
    start: Times
    end: Times  # infinite if it is not over

    @classmethod
    def from_records(
        cls, incidents: IncidentColumns, repairs: Sequence[Repair], now: float
    ) -> Self:
        of_repairs = IncidentColumns(
            node=[repair.node for repair in repairs],
            category=[""] * len(repairs),
            start=np.array([repair.start for repair in repairs], dtype=np.float64),
            end=ends(repairs),
        )
        begun = (incidents + of_repairs).select_begun(now)
        return cls(
            nodes=begun.node,
            categories=begun.category,
            start=begun.start,
            end=np.where(begun.end <= now, begun.end, np.inf),
        )

    def last_change(self) -> dict[str, float]:
        """Time of the last begin or end, by node."""
        changed = np.where(np.isinf(self.end), self.start, self.end)
        return extreme(np.maximum, self.nodes, changed)

    @property
    def still(self) -> dict[str, str]:
        """Nodes that are out now → what began first."""
        still: dict[str, str] = {}
        rows = np.flatnonzero(np.isinf(self.end))
        for row in rows[np.argsort(self.start[rows], kind="stable")].tolist():
            category = self.categories[row]
            still.setdefault(self.nodes[row], f'incident "{category}"' if category else "repair")
        return still

    def going_on(self, nodes: Sequence[str], at: Sequence[float]) -> Flags:
        """Flags of the instants at which the node was out: begun before, and not over before."""
        instants = np.array(at, dtype=np.float64)
        later = self.end >= instants.min(initial=np.inf)  # most of a long history was over before
        out = list(compress(self.nodes, later))
        number = {node: place for place, node in enumerate(dict.fromkeys([*out, *nodes]))}
        of_out, of_result = row_numbers(out, number), row_numbers(nodes, number)
        begun, over = (
            Track.from_rows(of_out, edge, edge, len(number)).count_begun(of_result, instants)
            for edge in (self.start[later], self.end[later])
        )
        going_on: Flags = begun > over
        return going_on


@dataclass
class _Trail:
    """Results of one node, by time."""

    strength: Strength
    passed: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    # defects that are not disproved, with the benchmarks to pass and how long, in times of that run
    defects: list[tuple[Validation, dict[str, float]]] = field(default_factory=list)
    owed: dict[tuple[str, str], Validation] = field(default_factory=dict)  # campaign, benchmark
    owed_passes: dict[tuple[str, str], float] = field(default_factory=dict)
    owed_since: dict[str, float] = field(default_factory=dict)  # by campaign

    def fail(self, result: Validation, findings: Mapping[tuple[str, str], Collection[str]]) -> None:
        """Add a defect. Earlier defects stay, even if this one demands less."""
        found_by = findings.get((result.campaign, result.node)) or result.benchmarks
        self.defects.append((result, {name: passes_asked(result.code, name) for name in found_by}))

    def owe(self, at: float, result: Validation) -> None:
        """Add debts, and drop earlier passes of the same benchmarks: they do not answer them."""
        self.owed_since[result.campaign] = at
        for name in result.owes:
            self.owed[result.campaign, name] = result
            self.owed_passes[result.campaign, name] = passes_asked(result.code, name)
            self.passed.pop(name, None)
            self.counted.pop(name, None)

    def succeed(self, result: Validation, *, counts: bool) -> None:
        """Add a pass. Even if it does not count (`counts`), it disproves defects and answers debts
        from before its campaign."""
        passed = result.benchmarks if result.judgement is Judgement.HEALTHY else ()
        if self.defects and result.judgement is Judgement.HEALTHY:
            for defect, found_by in self.defects:
                for name in found_by.keys() & set(passed) if defect.at < result.since else ():
                    self._shorten(found_by, name, result.campaign, defect.campaign, name)
            self.defects = [(defect, left) for defect, left in self.defects if left]
        for campaign, name in list(self.owed):
            if self.owed_since[campaign] >= result.since:
                continue
            if name in passed:
                self._shorten(self.owed_passes, (campaign, name), result.campaign, campaign, name)
            if name in result.inapplicable or (campaign, name) not in self.owed_passes:
                del self.owed[campaign, name]
        if counts:
            self.passed.update(dict.fromkeys(passed, result.at))
            counting = self.strength.counted_benchmarks(result) if passed else ()
            self.counted.update(dict.fromkeys(counting, result.at))

    def _shorten(
        self, left: dict[K, float], place: K, later: str, earlier: str, benchmark: str
    ) -> None:
        """Take off how long a benchmark was passed, and drop what is paid."""
        left[place] -= self.strength.times_as_long(later, earlier, benchmark)
        if left[place] <= 0:
            del left[place]

    @property
    def still_owed(self) -> tuple[Unanswered, ...]:
        """Debts by campaign, the oldest first."""
        if not self.owed:
            return ()
        names = defaultdict[str, list[str]](list)
        for campaign, name in sorted(self.owed):
            names[campaign].append(name)
        return tuple(
            Unanswered(
                benchmarks=tuple(names[campaign]),
                campaign=campaign,
                code=self.owed[campaign, names[campaign][0]].code,
                since=since,
            )
            for campaign, since in self.owed_since.items()
            if campaign in names
        )

    def unfit_reason(self) -> str:
        """Sentence on its open defects; empty if there are none."""
        if not self.defects:
            return ""
        last, _ = self.defects[-1]
        why = f"it was defective in campaign {last.campaign} ({last.code})"
        left: dict[str, float] = {}
        for _, found_by in self.defects:
            left |= {name: max(more, left.get(name, 0.0)) for name, more in found_by.items()}
        if 0 < len(left) <= MOST_OWED:
            why += f" and has not passed {', '.join(map(_words_of, sorted(left.items())))} since"
        return why


def bad_links(
    parts: Mapping[str, Sequence[PartVerdict]],
    validations: Iterable[Validation],
    strength: Strength = ANY,
) -> dict[tuple[str, ...], str]:
    """Nodes that were healthy and did badly together → the reason. `parts`: verdicts by campaign.

    A link is bad until its nodes pass that benchmark together in a later campaign.
    """
    well: defaultdict[str, dict[str, Validation]] = defaultdict(dict)
    for validation in validations:
        if validation.judgement is Judgement.HEALTHY:
            well[validation.campaign][validation.node] = validation

    def have_passed(nodes: tuple[str, ...], benchmark: str, since: float, earlier: str) -> bool:
        """Return whether the nodes passed in one later campaign. A bad path in it is a fault of its
        own."""
        return any(
            strength.is_enough(later, earlier, benchmark)
            and all(
                (validation := verdicts.get(node))
                and validation.since > since
                and benchmark in validation.benchmarks
                for node in nodes
            )
            for later, verdicts in well.items()
        )

    links = {}
    for campaign, verdicts in parts.items():
        healthy = well.get(campaign, {})
        paths = [v for v in verdicts if v.nodes and v.judgement is Judgement.DEFECTIVE]
        for path in paths:
            for benchmark in path.benchmarks if healthy.keys() >= set(path.nodes) else ():
                since = healthy[path.nodes[0]].at
                if not have_passed(path.nodes, benchmark, since, earlier=campaign):
                    links[path.nodes] = f"{benchmark} was defective in campaign {campaign}"
    return links
