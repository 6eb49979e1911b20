"""Differences between two sets of criteria, and between the verdicts that they give.

The comparison is exact, because a criteria file is byte-stable. When and by which version criteria
were learned is not compared, since it changes no verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np

from anubis.core.judge.ecdf import distance, goodness
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    CriteriaSet,
    Criterion,
    CriterionKey,
    NodeVerdict,
    Verdict,
    criteria_by_key,
)

# fields of a Criterion; the reference is compared separately
ASPECTS = [field.name for field in fields(Criterion) if field.name not in ("key", "reference")]
Value = str | float | None


@dataclass(frozen=True, kw_only=True)
class Move:
    aspect: str
    before: Value
    after: Value


@dataclass(frozen=True, kw_only=True)
class CriterionChange:
    """A key whose criterion moved, appeared (no `before`) or disappeared (no `after`)."""

    key: CriterionKey
    before: Criterion | None
    after: Criterion | None
    moves: tuple[Move, ...] = ()
    alike: float | None = None  # similarity of the two references; None: they are the same

    @property
    def kind(self) -> str:
        if self.before is None:
            return "appeared"
        return "disappeared" if self.after is None else "moved"


@dataclass(frozen=True)
class NodeChange:
    before: NodeVerdict
    after: NodeVerdict


@dataclass(frozen=True)
class VerdictChange:
    before: Verdict
    after: Verdict


def criterion_changes(
    before: Iterable[CriteriaSet], after: Iterable[CriteriaSet]
) -> tuple[CriterionChange, ...]:
    """All keys whose criterion changed: removed and new ones first, then those that moved most."""
    old = criteria_by_key(before)
    new = criteria_by_key(after)
    gone = [CriterionChange(key=key, before=old[key], after=None) for key in old if key not in new]
    come = [CriterionChange(key=key, before=None, after=new[key]) for key in new if key not in old]
    both = [_criterion_change(old[key], new[key]) for key in old if key in new]
    moved = [change for change in both if change.moves or change.alike is not None]
    moved.sort(key=lambda change: 1.0 if change.alike is None else change.alike)
    return (*gone, *come, *moved)


def _criterion_change(before: Criterion, after: Criterion) -> CriterionChange:
    moves = [
        Move(aspect=aspect, before=getattr(before, aspect), after=getattr(after, aspect))
        for aspect in ASPECTS
        if getattr(before, aspect) != getattr(after, aspect)
    ]
    alike = None
    if not np.array_equal(before.reference, after.reference):
        medians = float(np.median(before.reference)), float(np.median(after.reference))
        if medians[0] != medians[1]:
            moves.insert(0, Move(aspect="median", before=medians[0], after=medians[1]))
        alike = 1 - distance(
            goodness(before.reference, after.direction),
            goodness(after.reference, after.direction),
            after.tail,
        )
    return CriterionChange(
        key=after.key, before=before, after=after, moves=tuple(moves), alike=alike
    )


def node_changes(before: Assessment, after: Assessment) -> tuple[NodeChange, ...]:
    """The nodes whose judgement changed, in the order of the later assessment."""
    old = {verdict.node: verdict for verdict in before.nodes}
    return tuple(
        NodeChange(old[verdict.node], verdict)
        for verdict in after.nodes
        if verdict.node in old and old[verdict.node].judgement is not verdict.judgement
    )


def verdict_changes(before: Assessment, after: Assessment) -> tuple[VerdictChange, ...]:
    """The units whose judgement changed, the worst first. A node may stay defective for a new
    reason."""
    earlier = _verdicts_by_metric(before)
    changes = []
    for metric, verdicts in _verdicts_by_metric(after).items():  # by metric: there may be millions
        old = {(v.participants, v.device): v for v in chain.from_iterable(earlier.get(metric, ()))}
        for verdict in chain.from_iterable(verdicts):
            was = old.get((verdict.participants, verdict.device))
            if was is not None and was.judgement is not verdict.judgement:
                changes.append(VerdictChange(was, verdict))
    changes.sort(key=lambda change: WORST_FIRST.index(change.after.judgement))
    return tuple(changes)


def _verdicts_by_metric(
    assessment: Assessment,
) -> dict[tuple[str, str, str], list[Collection[Verdict]]]:
    by_metric: dict[tuple[str, str, str], list[Collection[Verdict]]] = {}
    for verdict in assessment.alone:
        place = (verdict.benchmark, verdict.parameters, verdict.metric)
        by_metric.setdefault(place, []).append((verdict,))
    for batch_verdict in assessment.batch_verdicts:
        place = (batch_verdict.benchmark, batch_verdict.parameters, batch_verdict.metric)
        by_metric.setdefault(place, []).append(batch_verdict)
    return by_metric
