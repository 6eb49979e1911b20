"""Suspicions, from where they were raised to how they ended; and what that says of whoever raised
them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.history.events import NodesSuspected, SuspicionRaised
from anubis.core.keep.commands import EndSuspicion, Outcome, Prove
from anubis.core.keep.life import Debt, Owed

UNHEARD = 0.5  # the confidence of a source that nothing is known of, and that says none itself
PRIOR = 2.0  # suspicions that what a source says of itself counts for


@dataclass(frozen=True, kw_only=True)
class KeptSuspicion:
    """Of one node."""

    id: str
    node: str
    at: float
    source: str
    category: str
    ended_at: float | None = None
    outcome: Outcome | None = None  # None: it is open


@dataclass(frozen=True, kw_only=True)
class HitRate:
    """Of a source, with suspicions of one category, at this site. What was given up is neither."""

    hits: int = 0
    misses: int = 0

    def confidence(self, own: float | None = None) -> float:
        """(1 + hits) / (2 + hits + misses), the mean of Beta(1, 1) after these. `own`: what the
        source says of itself, which counts as much as two suspicions."""
        prior = UNHEARD if own is None else own
        return (PRIOR * prior + self.hits) / (PRIOR + self.hits + self.misses)


def hit_rates(suspicions: Iterable[KeptSuspicion]) -> dict[tuple[str, str], HitRate]:
    """By source and category; of each that raised any."""
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


def answering(
    suspicions: Iterable[KeptSuspicion], source: str, node: str, at: float
) -> KeptSuspicion | None:
    """What became of it when this source suspected a node: it is not suspected anew while an
    earlier suspicion is open."""
    for suspicion in suspicions:
        is_its = (suspicion.source, suspicion.node) == (source, node)
        ended_at = math.inf if suspicion.ended_at is None else suspicion.ended_at
        if is_its and suspicion.at <= at <= ended_at:
            return suspicion
    return None


def kept_suspicions(
    raised: Iterable[tuple[str, float, SuspicionRaised]],
    ends: Iterable[tuple[float, EndSuspicion]],
) -> list[KeptSuspicion]:
    """`raised`: with id and time. Of several ends of one the last counts."""
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
        )
        for id, at, event in raised
        for node in event.nodes
    ]


def _time(end: tuple[float, EndSuspicion]) -> float:
    return end[0]


def owed_for(suspicion: SuspicionRaised, id: str, at: float) -> Owed:
    """What a node has to prove. Of a suspicion that was kept without a confidence, as they once
    were, a defect is presumed."""
    return Owed(
        debt=Debt.SUSPICION,
        at=at,
        about=suspicion.category,
        id=id,
        mix=suspicion.mix and suspicion.shares,
        confidence=1.0 if suspicion.confidence is None else suspicion.confidence,
    )


def nodes_suspected(test: Prove) -> NodesSuspected | None:
    """What the Selector is to be asked where a test is about suspicions; None: it is not."""
    if not any(owed.debt is Debt.SUSPICION for of_node in test.owed.values() for owed in of_node):
        return None
    reasons = {
        node: [owed for owed in of_node if owed.needs == (test.proof, test.about)]
        for node, of_node in test.owed.items()
    }
    return NodesSuspected(
        nodes=tuple(reasons),
        mixes={node: _mixed(owed, test.about) for node, owed in reasons.items()},
        confidences={node: _any_is_right(owed) for node, owed in reasons.items()},
    )


def _mixed(reasons: Sequence[Owed], about: str) -> Mapping[str, float]:
    """Each weighs as much as it is likely to be right."""
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
