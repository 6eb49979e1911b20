"""Differences between two sets of criteria, and between the verdicts that they give; and the
renewal of criteria in use by those learned from recent measurements.

The comparison is exact, because a criteria file is byte-stable. When and by which version criteria
were learned is not compared, since it changes no verdict.

A criterion is renewed if it moved by more than a tenth of the loss that it lets pass, if it
appeared, or if it can be trusted now and could not before. A criterion stays as it is if few nodes
measured it recently, or if the new one cannot be trusted. The kinds of a sku stay as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from anubis.core.judge.device_models import adopt_models
from anubis.core.judge.ecdf import distance, goodness
from anubis.core.judge.learning import sort_key
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
    after = tuple(after)
    old = criteria_by_key(adopt_models(before, after))
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


LEAST_MOVE = 0.1  # of the loss that passes
LEAST_NODES = 0.5  # share of the nodes from which the one in use was learned


@dataclass(frozen=True, kw_only=True)
class Renewal:
    before: tuple[CriteriaSet, ...]  # the criteria in use of the skus that were learned again
    after: tuple[CriteriaSet, ...]  # the criteria that would replace them
    changes: tuple[CriterionChange, ...]  # from `before` to `after`
    unmeasured: int  # criteria in use with too few recent measurements


def renewal(in_use: Sequence[CriteriaSet], learned: Sequence[CriteriaSet]) -> Renewal:
    old, new = _sets_by_sku(adopt_models(in_use, learned)), _sets_by_sku(learned)
    before = tuple(of_kind for sku in new for of_kind in old.get(sku, ()))
    after = tuple(of_kind for sku in new for of_kind in _renew(old.get(sku, ()), new[sku]))
    fresh = {criterion.key: criterion for of_sku in learned for criterion in of_sku.criteria}
    unmeasured = sum(
        not _is_measured(criterion, fresh.get(criterion.key))
        for of_sku in before
        for criterion in of_sku.criteria
    )
    changes = criterion_changes(before, after)
    return Renewal(before=before, after=after, changes=changes, unmeasured=unmeasured)


def _sets_by_sku(sets: Iterable[CriteriaSet]) -> dict[str, list[CriteriaSet]]:
    by_sku = defaultdict[str, list[CriteriaSet]](list)
    for of_kind in sets:
        by_sku[of_kind.nodes_sku].append(of_kind)
    return dict(by_sku)


def _renew(old: Sequence[CriteriaSet], new: Sequence[CriteriaSet]) -> Sequence[CriteriaSet]:
    """The sets of one sku after the renewal; the old ones if the kinds of the sku changed."""
    if not old:
        return new
    by_label = {of_kind.sku: of_kind for of_kind in new}
    if by_label.keys() != {of_kind.sku for of_kind in old}:
        return old
    return [_merge(of_kind, by_label[of_kind.sku]) for of_kind in old]


def _merge(old: CriteriaSet, new: CriteriaSet) -> CriteriaSet:
    before = {criterion.key: criterion for criterion in old.criteria}
    moved = {
        change.key: change.after
        for change in criterion_changes([old], [new])
        if change.after and _is_worth_it(change)
    }
    if not moved:
        return old
    merged = {**before, **moved}
    criteria = tuple(sorted(merged.values(), key=sort_key))
    return replace(new, criteria=criteria, node_kind=old.node_kind)


def _is_worth_it(change: CriterionChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return after is not None and not after.refusal
    if not _is_measured(before, after):
        return False
    if before.refusal:
        return True
    passes = 1 - before.alpha
    apart = 0.0 if change.alike is None else 1 - change.alike
    return max(apart, abs(after.alpha - before.alpha)) > LEAST_MOVE * passes


def _is_measured(before: Criterion, after: Criterion | None) -> bool:
    """True if enough was measured recently to compare the criterion."""
    if after is None or (after.refusal and not before.refusal):
        return False
    return after.nodes >= LEAST_NODES * before.nodes
