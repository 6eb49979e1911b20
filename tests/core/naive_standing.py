"""The standing of nodes by going through everything that happened, one entry after the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from anubis.core.history.events import EventRecord
from anubis.core.history.standing import ANY, MOST_OWED, Standing, Unanswered
from anubis.core.history.status import Incident, Repair, Validation
from anubis.core.history.strength import Strength
from anubis.core.records import Judgement

# What a trail is made of. At one instant the first of these comes first: in doubt, a pass is void.
PASSED, BEGUN, OWED, FAILED, TOLD, OVER = range(6)
_Entry = tuple[
    float, int, str, Validation | Incident | Repair | EventRecord
]  # at, what, node, record


def naive_standing(
    validations: Iterable[Validation],
    findings: Mapping[tuple[str, str], Collection[str]],
    incidents: Iterable[Incident],
    repairs: Iterable[Repair],
    event_records: Iterable[EventRecord],
    now: float,
    strength: Strength = ANY,
) -> Standing:
    """`findings`: the benchmarks in which a node was defective, by campaign and node. It stays out
    of service until it has passed each of them, with parameters that ask for no less."""
    validations = list(validations)
    trails: defaultdict[str, _Trail] = defaultdict(lambda: _Trail(strength))
    entries = [*_results(validations, now), *_stretches([*incidents, *repairs], now)]
    entries += [
        (min(event_record.at, now), TOLD, node, event_record)
        for event_record in event_records
        for node in event_record.event.nodes
    ]
    for at, kind, node, record in sorted(entries, key=itemgetter(0, 1)):
        trails[node].take(at, kind, record, findings)
    return Standing(
        passed={node: trail.passed for node, trail in trails.items() if trail.passed},
        counted={node: trail.counted for node, trail in trails.items() if trail.counted},
        unfit={node: why for node, trail in trails.items() if (why := trail.why_unfit())},
        owes={node: debts for node, trail in trails.items() if (debts := tuple(trail.debts))},
        down=frozenset(node for node, trail in trails.items() if trail.going_on),
        early=frozenset(result.node for result in validations if _is_early(result, now)),
        happened={
            node: trail.happened for node, trail in trails.items() if trail.happened is not None
        },
    )


def _is_early(result: Validation, now: float) -> bool:
    return result.at > now and result.judgement is Judgement.HEALTHY


def _results(validations: Iterable[Validation], now: float) -> Iterator[_Entry]:
    """Results of a node. What is dated in the future was found all the same: a clock was wrong."""
    for result in validations:
        if result.owes:
            yield min(result.at, now), OWED, result.node, result
        if result.judgement is Judgement.DEFECTIVE:
            yield min(result.at, now), FAILED, result.node, result
        elif not result.owes and result.at <= now and result.judgement is not Judgement.UNKNOWN:
            yield result.at, PASSED, result.node, result


def _stretches(records: Iterable[Incident | Repair], now: float) -> Iterator[_Entry]:
    for record in records:
        if record.end is None:  # what goes on has begun, whatever its date
            yield min(record.start, now), BEGUN, record.node, record
        elif record.start <= now:
            yield record.start, BEGUN, record.node, record
            if record.end <= now:
                yield record.end, OVER, record.node, record


@dataclass
class _Trail:
    """One node, entry by entry."""

    strength: Strength
    passed: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    going_on: list[Incident | Repair] = field(default_factory=list)
    defects: list[Validation] = field(default_factory=list)  # that are not disproved
    found_by: list[tuple[Validation, str]] = field(default_factory=list)  # defects, benchmarks
    debts: list[Unanswered] = field(default_factory=list)
    happened: float | None = None  # the last that was no result
    bad_at: dict[int, float] = field(default_factory=dict)  # by defect, when it counted
    void: float = -math.inf  # what began by then is no proof

    def take(
        self,
        at: float,
        kind: int,
        record: Validation | Incident | Repair | EventRecord,
        findings: Mapping[tuple[str, str], Collection[str]],
    ) -> None:
        match record:
            case Validation() if kind == PASSED:
                if not self.going_on:
                    self._pass(record)
                return
            case Validation() if kind == OWED:
                self._owe(record, at)
                return
            case Validation():
                self.defects.append(record)
                self.bad_at[id(record)] = at
                found_by = findings.get((record.campaign, record.node)) or record.benchmarks
                self.found_by += [(record, name) for name in found_by]
            case Incident() | Repair() if kind == OVER:
                self.going_on.remove(record)
            case Incident() | Repair():
                self.going_on.append(record)
        if not isinstance(record, Validation):
            self.happened = at if self.happened is None else max(at, self.happened)
        self.void = max(at, self.void)
        self.passed.clear()
        self.counted.clear()

    def _owe(self, record: Validation, at: float) -> None:
        owed = tuple(sorted(record.owes))
        self.debts.append(
            Unanswered(benchmarks=owed, campaign=record.campaign, code=record.code, since=at)
        )
        for name in owed:
            self.passed.pop(name, None)
            self.counted.pop(name, None)

    def _pass(self, result: Validation) -> None:
        if result.judgement is Judgement.HEALTHY:
            if result.proves and result.since > self.void:
                counted = self.strength.counted_benchmarks(result)
                self.passed.update(dict.fromkeys(result.benchmarks, result.at))
                self.counted.update(dict.fromkeys(counted, result.at))
            self.found_by = [
                (defect, name)
                for defect, name in self.found_by
                if name not in result.benchmarks
                or self.bad_at[id(defect)] >= result.since
                or not self.strength.is_enough(result.campaign, defect.campaign, name)
            ]
            kept = [id(defect) for defect, _ in self.found_by]
            self.defects = [defect for defect in self.defects if id(defect) in kept]
        left = []
        for debt in self.debts:
            names = [name for name in debt.benchmarks if not self._answers(result, debt, name)]
            left += [replace(debt, benchmarks=tuple(names))] if names else []
        self.debts = left

    def _answers(self, result: Validation, debt: Unanswered, name: str) -> bool:
        if debt.since >= result.since:
            return False
        if name in result.inapplicable:
            return True
        is_passed = result.judgement is Judgement.HEALTHY and name in result.benchmarks
        return is_passed and self.strength.is_enough(result.campaign, debt.campaign, name)

    def why_unfit(self) -> str:
        """Empty if it is not."""
        match self.going_on:
            case [Incident() as incident, *_]:
                return f'its incident "{incident.category}" is not over'
            case [Repair(), *_]:
                return "its repair is not over"
        if not self.defects:
            return ""
        why = f"it was defective in campaign {self.defects[-1].campaign} ({self.defects[-1].code})"
        names = {name for _, name in self.found_by}
        if 0 < len(names) <= MOST_OWED:
            why += f" and has not passed {', '.join(sorted(names))} since"
        return why
