"""What the history vouches for: which passes of a node still count, and who is out of service.

A pass counts as long as nothing happened to its node since: no incident, no repair, no defect, no
event that presumes one. It proves nothing while an incident or a repair goes on, and a result that
is dated in the future proves nothing before that time has come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import Self

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.past.events import Notice
from anubis.core.past.status import Incident, Repair, Times, Validation
from anubis.core.past.strength import Strength
from anubis.core.past.tracks import IncidentColumns, Track, ends, extreme, numbered
from anubis.core.records import Judgement

ANY = Strength()  # each pass counts by its name
MOST_OWED = 3  # benchmarks that a reason names

PASSED, FAILED = range(2)  # at one instant a pass comes first: in doubt, it is void
_Result = tuple[float, int, Validation]  # at, which of these, and what it is


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Of all nodes, at one instant."""

    passed: Mapping[str, Mapping[str, float]]  # by node: when it last passed each benchmark
    counted: Mapping[str, Mapping[str, float]]  # and when with all that is required of it
    unfit: Mapping[str, str]  # nodes that are out of service, and why
    down: frozenset[str]  # of these, the ones in an incident or a repair: nothing is measured there
    early: frozenset[str]  # nodes with a pass that is dated in the future

    def judgement(self, node: str) -> Judgement:
        """Without any further test."""
        if node in self.unfit:
            return Judgement.DEFECTIVE
        return Judgement.HEALTHY if self.passed.get(node) else Judgement.UNKNOWN


def standing(
    validations: Iterable[Validation],
    findings: Mapping[tuple[str, str], Collection[str]],
    incidents: Iterable[Incident],
    repairs: Iterable[Repair],
    notices: Iterable[Notice],
    now: float,
    strength: Strength = ANY,
) -> Standing:
    """`findings`: the benchmarks in which a node was defective, by campaign and node. It stays out
    of service until it has passed each of them, with parameters that ask for no less."""
    validations = list(validations)
    outs = _Outs.of(IncidentColumns.of(incidents), list(repairs), now)
    results = sorted(_results(validations, now), key=itemgetter(0, 1))
    trails: defaultdict[str, _Trail] = defaultdict(lambda: _Trail(strength))
    cleared = outs.last_change()
    for at, node in _shaken(results, notices, now):
        cleared[node] = max(at, cleared.get(node, at))
    during = outs.going_on([result.node for *_, result in results], [at for at, *_ in results])
    for (at, _, result), is_out in zip(results, during.tolist(), strict=True):
        if result.judgement is Judgement.DEFECTIVE:
            trails[result.node].fail(result, findings)
        elif not is_out:
            trails[result.node].succeed(result, counts=at > cleared.get(result.node, -math.inf))
    still = outs.still
    return Standing(
        passed={node: trail.passed for node, trail in trails.items() if trail.passed},
        counted={node: trail.counted for node, trail in trails.items() if trail.counted},
        unfit={node: f"its {out} is not over" for node, out in still.items()}
        | {
            node: why
            for node, trail in trails.items()
            if node not in still and (why := trail.why_unfit())
        },
        down=frozenset(still),
        early=frozenset(result.node for result in validations if _is_early(result, now)),
    )


def _is_early(result: Validation, now: float) -> bool:
    return result.at > now and result.judgement is Judgement.HEALTHY


def _results(validations: Iterable[Validation], now: float) -> Iterator[_Result]:
    """A defect that is dated in the future was found all the same: a clock was wrong."""
    for result in validations:
        if result.judgement is Judgement.DEFECTIVE:
            yield min(result.at, now), FAILED, result
        elif result.judgement is Judgement.HEALTHY and result.at <= now:
            yield result.at, PASSED, result


def _shaken(
    results: Iterable[_Result], notices: Iterable[Notice], now: float
) -> Iterator[tuple[float, str]]:
    """When a defect was found on a node, or an event presumed one."""
    for at, kind, result in results:
        if kind == FAILED:
            yield at, result.node
    for notice in notices:
        if notice.presumes_defect:
            for node in notice.event.nodes:
                yield min(notice.at, now), node


@dataclass(frozen=True, kw_only=True)
class _Outs:
    """Incidents and repairs that have begun, in columns."""

    nodes: Sequence[str]
    categories: Sequence[str]  # of incidents; empty for a repair
    start: Times
    end: Times  # infinite where it has not come yet

    @classmethod
    def of(cls, incidents: IncidentColumns, repairs: Sequence[Repair], now: float) -> Self:
        start = np.concatenate([incidents.start, [repair.start for repair in repairs]])
        end = np.concatenate([incidents.end, ends(repairs)])
        begun = start <= now
        nodes = chain(incidents.node, (repair.node for repair in repairs))
        categories = chain(incidents.category, repeat(""))
        return cls(
            nodes=list(compress(nodes, begun)),
            categories=list(compress(categories, begun)),
            start=start[begun],
            end=np.where(end <= now, end, np.inf)[begun],
        )

    def last_change(self) -> dict[str, float]:
        """By node: when its last one began or was over."""
        changed = np.where(np.isinf(self.end), self.start, self.end)
        return extreme(np.maximum, self.nodes, changed)

    @property
    def still(self) -> dict[str, str]:
        """The nodes that are out now, and why: by what began first."""
        still: dict[str, str] = {}
        rows = np.flatnonzero(np.isinf(self.end))
        for row in rows[np.argsort(self.start[rows], kind="stable")].tolist():
            category = self.categories[row]
            still.setdefault(self.nodes[row], f'incident "{category}"' if category else "repair")
        return still

    def going_on(self, nodes: Sequence[str], at: Sequence[float]) -> Flags:
        """Whether a node was out at an instant: begun before it, and not over before it."""
        instants = np.array(at, dtype=np.float64)
        later = self.end >= instants.min(initial=np.inf)  # most of a long history was over before
        out = list(compress(self.nodes, later))
        number = {node: place for place, node in enumerate(dict.fromkeys([*out, *nodes]))}
        of_out, of_result = numbered(out, number), numbered(nodes, number)
        begun, over = (
            Track.of(of_out, edge, edge, len(number)).begun(of_result, instants)
            for edge in (self.start[later], self.end[later])
        )
        going_on: Flags = begun > over
        return going_on


@dataclass
class _Trail:
    """The results of one node, by time."""

    strength: Strength
    passed: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    defect: Validation | None = None  # the last that is not disproved
    owed: dict[str, str] = field(default_factory=dict)  # benchmarks that found it, in campaigns

    def fail(self, result: Validation, findings: Mapping[tuple[str, str], Collection[str]]) -> None:
        self.defect = result
        found_by = findings.get((result.campaign, result.node)) or result.benchmarks
        self.owed.update(dict.fromkeys(found_by, result.campaign))

    def succeed(self, result: Validation, *, counts: bool) -> None:
        """A pass that something has shaken since disproves an older defect all the same."""
        for name in [name for name in self.owed if name in result.benchmarks]:
            if self.strength.is_enough(result.campaign, self.owed[name], name):
                del self.owed[name]
        if not self.owed:
            self.defect = None
        if counts:
            self.passed.update(dict.fromkeys(result.benchmarks, result.at))
            self.counted.update(dict.fromkeys(self.strength.counting(result), result.at))

    def why_unfit(self) -> str:
        """Empty where it is not."""
        if self.defect is None:
            return ""
        why = f"it was defective in campaign {self.defect.campaign} ({self.defect.code})"
        if 0 < len(self.owed) <= MOST_OWED:
            why += f" and has not passed {', '.join(sorted(self.owed))} since"
        return why
