"""Renewal of criteria in use by those learned from recent measurements.

A criterion is renewed if it moved by more than a tenth of the loss that it lets pass, if it
appeared, or if it can be trusted now and could not before. A criterion stays as it is if few nodes
measured it recently, or if the new one cannot be trusted. The kinds of a sku stay as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anubis.core.judge.comparison import CriterionChange, criterion_changes
from anubis.core.judge.learning import sort_key
from anubis.core.records import CriteriaSet, Criterion

LEAST_MOVE = 0.1  # of the loss that passes
LEAST_NODES = 0.5  # share of the nodes from which the one in use was learned


@dataclass(frozen=True, kw_only=True)
class Renewal:
    before: tuple[CriteriaSet, ...]  # the criteria in use of the skus that were learned again
    after: tuple[CriteriaSet, ...]  # the criteria that would replace them
    changes: tuple[CriterionChange, ...]  # from `before` to `after`
    untold: int  # criteria in use with too few recent measurements


def renewal(in_use: Sequence[CriteriaSet], learned: Sequence[CriteriaSet]) -> Renewal:
    old, new = _sets_by_sku(in_use), _sets_by_sku(learned)
    before = tuple(of_kind for sku in new for of_kind in old.get(sku, ()))
    after = tuple(of_kind for sku in new for of_kind in _renew(old.get(sku, ()), new[sku]))
    fresh = {criterion.key: criterion for of_sku in learned for criterion in of_sku.criteria}
    untold = sum(
        not _is_measured(criterion, fresh.get(criterion.key))
        for of_sku in before
        for criterion in of_sku.criteria
    )
    changes = criterion_changes(before, after)
    return Renewal(before=before, after=after, changes=changes, untold=untold)


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
