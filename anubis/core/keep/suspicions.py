"""Suspicions from begin to end, and the track records of their sources."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.history.events import Debt, NodesSuspected, SuspicionRaised
from anubis.core.keep.commands import EndSuspicion, Outcome, Prove
from anubis.core.keep.life import Owed

UNHEARD = 0.5  # confidence of an unknown source that gives none itself
PRIOR = 2.0  # a source's own confidence counts like so many suspicions


@dataclass(frozen=True, kw_only=True)
class KeptSuspicion:
    """A suspicion of one node."""

    id: str
    node: str
    at: float
    source: str
    category: str
    ended_at: float | None = None
    outcome: Outcome | None = None  # None: it is open
    windows: str = ""  # of telemetry, packed

    def is_open(self, at: float) -> bool:
        return self.at <= at <= (math.inf if self.ended_at is None else self.ended_at)


@dataclass(frozen=True, kw_only=True)
class HitRate:
    """Outcomes of a source's suspicions of one category at this site. Those given up do not
    count."""

    hits: int = 0
    misses: int = 0

    def confidence(self, own: float | None = None) -> float:
        """(1 + hits) / (2 + hits + misses), the mean of Beta(1, 1) after these. `own`: the source's
        own confidence, which counts as much as two suspicions."""
        prior = UNHEARD if own is None else own
        return (PRIOR * prior + self.hits) / (PRIOR + self.hits + self.misses)


def hit_rates(suspicions: Iterable[KeptSuspicion]) -> dict[tuple[str, str], HitRate]:
    """Hit rates of all sources with suspicions, by source and category."""
    counts: Counter[tuple[str, str, Outcome | None]] = Counter(
        (suspicion.source, suspicion.category, suspicion.outcome) for suspicion in suspicions
    )
    return {
        (source, category): HitRate(
            hits=counts[source, category, Outcome.CONFIRMED],
            misses=counts[source, category, Outcome.REFUTED],
        )
        for source, category in sorted({(source, category) for source, category, _ in counts})
    }


def open_suspicion(
    suspicions: Iterable[KeptSuspicion], source: str, node: str, at: float
) -> KeptSuspicion | None:
    """Suspicion of this node by this source that was open at that time, or None. A node is not
    suspected again while an earlier suspicion of the same source is open."""
    for suspicion in suspicions:
        is_its = (suspicion.source, suspicion.node) == (source, node)
        if is_its and suspicion.is_open(at):
            return suspicion
    return None


def kept_suspicions(
    raised: Iterable[tuple[str, float, SuspicionRaised]], ends: Iterable[tuple[float, EndSuspicion]]
) -> list[KeptSuspicion]:
    """Suspicions with their ends. `raised`: id, time and event. If a suspicion has several ends,
    the last counts."""
    last = {(end.id, end.node): (at, end.outcome) for at, end in sorted(ends, key=_time)}
    return [
        KeptSuspicion(
            id=id,
            node=node,
            at=at,
            source=event.source,
            category=event.category,
            ended_at=last[id, node][0] if (id, node) in last else None,
            outcome=last[id, node][1] if (id, node) in last else None,
            windows=event.windows,
        )
        for id, at, event in raised
        for node in event.nodes
    ]


def _time(end: tuple[float, EndSuspicion]) -> float:
    return end[0]


def owed_for(suspicion: SuspicionRaised, id: str, at: float) -> Owed:
    """Debt of a suspected node. A suspicion stored without a confidence, as in earlier versions,
    counts as certain."""
    return Owed(
        debt=Debt.SUSPICION,
        at=at,
        about=suspicion.category,
        id=id,
        mix=suspicion.mix and suspicion.shares,
        confidence=1.0 if suspicion.confidence is None else suspicion.confidence,
    )


def nodes_suspected(test: Prove) -> NodesSuspected | None:
    """Question to the Selector for a test about suspicions; None: the test is about something
    else."""
    if not any(owed.debt is Debt.SUSPICION for of_node in test.owed.values() for owed in of_node):
        return None
    reasons = {
        node: [owed for owed in of_node if owed.needs == (test.proof, test.about)]
        for node, of_node in test.owed.items()
    }
    return NodesSuspected(
        nodes=tuple(reasons),
        mixes={node: _mix(owed, test.about) for node, owed in reasons.items()},
        confidences={node: _any_is_right(owed) for node, owed in reasons.items()},
    )


def _mix(reasons: Sequence[Owed], about: str) -> Mapping[str, float]:
    """Mix of categories, with each suspicion weighed by its confidence."""
    total = sum(owed.confidence for owed in reasons)
    if not total > 0:
        return {about: 1.0}
    mix: defaultdict[str, float] = defaultdict(float)
    for owed in reasons:
        for category, share in (owed.mix or {about: 1.0}).items():
            mix[category] += share * owed.confidence / total
    return dict(mix)


def _any_is_right(reasons: Sequence[Owed]) -> float:
    return 1 - math.prod(1 - owed.confidence for owed in reasons)
