"""The standing of nodes by going through everything that happened, one entry after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from anubis.core.past.events import Notice
from anubis.core.past.standing import ANY, MOST_OWED, Standing
from anubis.core.past.status import Incident, Repair, Validation
from anubis.core.past.strength import Strength
from anubis.core.records import Judgement

# What a trail is made of. At one instant the first of these comes first: in doubt, a pass is void.
PASSED, BEGUN, FAILED, TOLD, OVER = range(5)
_Entry = tuple[float, int, str, Validation | Incident | Repair | Notice]  # at, what, node, record


def naive_standing(
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
    trails: defaultdict[str, _Trail] = defaultdict(lambda: _Trail(strength))
    entries = [*_results(validations, now), *_stretches([*incidents, *repairs], now)]
    entries += [
        (min(notice.at, now), TOLD, node, notice)
        for notice in notices
        for node in notice.event.nodes
    ]
    for _, kind, node, record in sorted(entries, key=itemgetter(0, 1)):
        trails[node].take(kind, record, findings)
    return Standing(
        passed={node: trail.passed for node, trail in trails.items() if trail.passed},
        counted={node: trail.counted for node, trail in trails.items() if trail.counted},
        unfit={node: why for node, trail in trails.items() if (why := trail.why_unfit())},
        down=frozenset(node for node, trail in trails.items() if trail.going_on),
        early=frozenset(result.node for result in validations if _is_early(result, now)),
    )


def _is_early(result: Validation, now: float) -> bool:
    return result.at > now and result.judgement is Judgement.HEALTHY


def _results(validations: Iterable[Validation], now: float) -> Iterator[_Entry]:
    """A defect that is dated in the future was found all the same: a clock was wrong."""
    for result in validations:
        if result.judgement is Judgement.DEFECTIVE:
            yield min(result.at, now), FAILED, result.node, result
        elif result.judgement is Judgement.HEALTHY and result.at <= now:
            yield result.at, PASSED, result.node, result


def _stretches(records: Iterable[Incident | Repair], now: float) -> Iterator[_Entry]:
    for record in records:
        if record.start <= now:
            yield record.start, BEGUN, record.node, record
            if record.end is not None and record.end <= now:
                yield record.end, OVER, record.node, record


@dataclass
class _Trail:
    """One node, entry by entry."""

    strength: Strength
    passed: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    going_on: list[Incident | Repair] = field(default_factory=list)
    defect: Validation | None = None  # the last that is not disproved
    owed: dict[str, str] = field(default_factory=dict)  # benchmarks that found it, in campaigns

    def take(
        self,
        kind: int,
        record: Validation | Incident | Repair | Notice,
        findings: Mapping[tuple[str, str], Collection[str]],
    ) -> None:
        match record:
            case Validation(judgement=Judgement.HEALTHY):
                if not self.going_on:
                    self._pass(record)
                return
            case Validation():
                self.defect = record
                found_by = findings.get((record.campaign, record.node))
                self.owed.update(dict.fromkeys(found_by or record.benchmarks, record.campaign))
            case Incident() | Repair() if kind == OVER:
                self.going_on.remove(record)
            case Incident() | Repair():
                self.going_on.append(record)
        self.passed.clear()
        self.counted.clear()

    def _pass(self, result: Validation) -> None:
        self.passed.update(dict.fromkeys(result.benchmarks, result.at))
        self.counted.update(dict.fromkeys(self.strength.counting(result), result.at))
        for name in self.owed.keys() & set(result.benchmarks):
            if self.strength.is_enough(result.campaign, self.owed[name], name):
                del self.owed[name]
        if not self.owed:
            self.defect = None

    def why_unfit(self) -> str:
        """Empty where it is not."""
        match self.going_on:
            case [Incident() as incident, *_]:
                return f'its incident "{incident.category}" is not over'
            case [Repair(), *_]:
                return "its repair is not over"
        if self.defect is None:
            return ""
        why = f"it was defective in campaign {self.defect.campaign} ({self.defect.code})"
        if 0 < len(self.owed) <= MOST_OWED:
            why += f" and has not passed {', '.join(sorted(self.owed))} since"
        return why
