"""Kinds of nodes under one sku, found from what nodes measure alone.

A fleet of one kind has one peak in every metric. Two kinds have two peaks in some metrics, and no
defect makes the smaller one better. If the peaks are certain, each node is judged among the nodes
of its kind, as if the kind had a sku of its own. Many nodes that are alike and *worse* may share a
cause, so they stay with the rest, unless they are better in another metric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_lowercase

import numpy as np
import numpy.typing as npt

from anubis.core.arrays import Ints
from anubis.core.fabric import natural_key
from anubis.core.judge.criteria import similarities
from anubis.core.judge.ecdf import goodness
from anubis.core.judge.peaks import SMALLEST, Valley, deepest_valley, resolution
from anubis.core.judge.units import Units
from anubis.core.records import CriteriaSet, Criterion, CriterionKey, NodeKind, Policy, Samples

FEWEST = 20  # nodes; with fewer, two peaks cannot be told from chance
SURE = 0.99  # confidence that it is no chance, over all metrics
SAME = 0.8  # share of two sets of nodes that is in both
TAIL = 6.0  # standard deviations: no node is that much better than its kind
SPREAD = 1.4826  # the standard deviation of a normal distribution over its median deviation

_Mask = npt.NDArray[np.bool_]
_Labels = dict[tuple[str, tuple[str, ...]], str]  # by sku and participants


def kinds_of(criteria: Iterable[CriteriaSet]) -> list[NodeKind]:
    """The kinds that were found when these criteria were learned."""
    return [of_sku.node_kind for of_sku in criteria if of_sku.node_kind]


def split_by_kind(measured: Iterable[Units], kinds: Iterable[NodeKind]) -> list[Units]:
    """Split the units that nodes measured alone by kind, as if the kind were the sku."""
    label_of: _Labels = {(kind.sku, (node,)): kind.label for kind in kinds for node in kind.nodes}
    if not label_of:
        return list(measured)
    return [part for alike in measured for part in _parts(alike, label_of)]


def _parts(alike: Units, label_of: _Labels) -> Iterator[Units]:
    sku = alike.key.sku
    labels = np.array([label_of.get((sku, names), sku) for names in alike.participants])
    for label in dict.fromkeys(labels.tolist()):
        chosen = np.flatnonzero(labels == label)
        part = alike if chosen.size == len(alike) else alike.subset(chosen)
        yield replace(part, key=replace(alike.key, sku=label))


def undecided_remark(alike: Units, criterion: Criterion) -> str:
    """The remark on better nodes that are too few, or too scattered, to be called another kind; ""
    if there is none."""
    if criterion.refusal or not _is_wide(alike, criterion.alpha) or not _are_alone(alike):
        return ""
    names = _names([alike])
    position = {name: place for place, name in enumerate(names)}
    levels = _Levels(measured=alike, position=position, alpha=criterion.alpha).node_levels
    typical = float(np.log(np.median(criterion.reference)))
    typical = -typical if alike.metric.direction == "lower" else typical
    better = int(np.sum(levels > typical - np.log(criterion.alpha)))
    if better < max(2, SMALLEST * len(names)):
        return ""
    where = f"below {FEWEST} nodes" if len(names) < FEWEST else "in so few or so wide a spread"
    return (
        f"{better} of {len(names)} nodes are better than normal by more than the limit: whether "
        f"they are another kind cannot be seen {where}; if so, give them a sku of their own"
    )


def assign_by_likeness(
    measured: Iterable[Units],
    kinds: Sequence[NodeKind],
    criterion_of: Mapping[CriterionKey, Criterion],
) -> Iterator[Units]:
    """Yield the units with a kind for nodes that no kind lists, if their kind makes no difference.
    A node that falls short of the worst kind falls short of all kinds; a node as good as the best
    kind is good in all. The other nodes get no kind."""
    labels: defaultdict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        labels[kind.sku].append(kind.label)
    for alike in measured:
        keys = [replace(alike.key, sku=label) for label in labels[alike.key.sku]]
        criteria = [criterion_of[key] for key in keys if key in criterion_of]
        if criteria and is_of_no_kind(alike, kinds) and not any(c.refusal for c in criteria):
            yield from _split_by_criteria(alike, sorted(criteria, key=_goodness_of))
        else:
            yield alike


def _split_by_criteria(alike: Units, criteria: Sequence[Criterion]) -> Iterator[Units]:
    worst, best = criteria[0], criteria[-1]
    falls_short = similarities(alike.samples, worst) <= worst.alpha
    is_well = (similarities(alike.samples, best) > best.alpha) & ~falls_short
    skus = (worst.key.sku, best.key.sku, alike.key.sku)
    for sku, side in zip(skus, (falls_short, is_well, ~falls_short & ~is_well), strict=True):
        if np.any(side):
            chosen = alike.subset(np.flatnonzero(side))
            yield replace(chosen, key=replace(alike.key, sku=sku))


def _goodness_of(criterion: Criterion) -> float:
    return float(np.median(goodness(criterion.reference, criterion.direction)))


def is_of_no_kind(alike: Units, kinds: Iterable[NodeKind]) -> bool:
    """True if the sku has several kinds and these nodes, measured alone, belong to none of them."""
    return alike.key.sku in {kind.sku for kind in kinds} and _are_alone(alike)


def _are_alone(alike: Units) -> bool:
    return max(map(len, alike.participants)) == 1


def find_kinds(
    measured: Iterable[Units], policy: Policy, parted: Collection[str] = ()
) -> list[NodeKind]:
    """The kinds of every sku that has several, the largest first; skus that were `parted` before
    are left out."""
    measured = tuple(measured)
    columns = {id(alike.participants): alike for alike in measured}  # many metrics share them
    are_alone = {column: _are_alone(alike) for column, alike in columns.items()}
    by_sku: defaultdict[str, list[Units]] = defaultdict(list)
    for alike in measured:
        if alike.metric.judged_by == "fleet" and are_alone[id(alike.participants)]:
            by_sku[alike.key.sku].append(alike)
    for sku in parted:
        by_sku.pop(sku, None)
    return [kind for sku, metrics in by_sku.items() for kind in _kinds_of(sku, metrics, policy)]


def _kinds_of(sku: str, metrics: Sequence[Units], policy: Policy) -> Iterator[NodeKind]:
    names = _names(metrics)
    if len(names) < FEWEST:
        return
    position = {name: place for place, name in enumerate(names)}
    every = [_levels(alike, position, policy) for alike in metrics]
    levels = [levels for levels in every if _is_wide(levels.measured, levels.alpha)]
    fleet = _Fleet(levels=levels, most=(1 - SURE) / max(1, len(levels)))
    parts = list(fleet.divide(np.arange(len(names))))
    parts.sort(key=lambda part: -part.nodes.size)
    for letter, part in zip(ascii_lowercase, parts, strict=False):
        alike = part.shown_by.measured
        level = float(np.nanmedian(part.shown_by.node_levels[part.nodes]))
        yield NodeKind(
            sku=sku,
            label=f"{sku}-kind-{letter}",
            nodes=tuple(names[node] for node in part.nodes.tolist()),
            confidence=1 - part.chance * len(levels),
            metric=f"{alike.key.workload.benchmark} {alike.key.metric}",
            typical=float(np.exp(-level if alike.metric.direction == "lower" else level)),
            unit=alike.metric.unit,
        )


def _levels(alike: Units, position: dict[str, int], policy: Policy) -> _Levels:
    return _Levels(
        measured=alike,
        position=position,
        alpha=policy.alpha_of(alike.key.workload.benchmark, alike.key.metric),
    )


def _names(metrics: Iterable[Units]) -> list[str]:
    columns = {id(alike.participants): alike.participants for alike in metrics}  # many are shared
    return sorted({name for column in columns.values() for (name,) in column}, key=natural_key)


def _is_wide(alike: Units, alpha: float) -> bool:
    """True if a tenth of the units could be better by as much as the policy tells apart."""
    if alike.metric.direction == "either":
        return False
    ends = alike.edges[alike.firsts]
    means = np.add.reduceat(alike.values, ends[:-1]) / np.diff(ends)
    low, high = np.quantile(means, [SMALLEST / 2, 1 - SMALLEST / 2])
    return bool(low < alpha * high)


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """The level of each node in one metric, as a logarithm: the mean of the middle half of its
    values. NaN if it measured nothing."""

    measured: Units
    position: dict[str, int]
    alpha: float

    @cached_property
    def node_levels(self) -> Samples:
        return self._middle_means(np.ones(self._goodness.size, dtype=np.bool_))

    @property
    def are_repeated(self) -> bool:
        return bool(np.max(self._sizes) > 1)

    @cached_property
    def half_levels(self) -> tuple[Samples, Samples]:
        """The levels by the even and by the odd values of each node: both halves show a difference
        between kinds."""
        order = np.argsort(self._node, kind="stable")
        starts = np.cumsum(self._sizes) - self._sizes
        number = np.empty(order.size, dtype=np.int64)
        number[order] = np.arange(order.size) - starts[self._node[order]]
        odd = number % 2 == 1
        return self._middle_means(~odd), self._middle_means(odd)

    @cached_property
    def _node(self) -> Ints:
        owners = [self.position[name] for (name,) in self.measured.participants]
        return np.repeat(owners, np.diff(self.measured.edges[self.measured.firsts]))

    @cached_property
    def _sizes(self) -> Ints:
        return np.bincount(self._node, minlength=len(self.position))

    @cached_property
    def _goodness(self) -> Samples:
        logarithms: Samples = np.log(self.measured.values)
        return -logarithms if self.measured.metric.direction == "lower" else logarithms

    def _middle_means(self, chosen: _Mask) -> Samples:
        node, goodness = self._node[chosen], self._goodness[chosen]
        sums = np.concatenate(([0.0], np.cumsum(goodness[np.lexsort((goodness, node))])))
        sizes = np.bincount(node, minlength=len(self.position))
        ends, trimmed = np.cumsum(sizes), sizes // 4
        total = sums[ends - trimmed] - sums[ends - sizes + trimmed]
        means = np.full(sizes.size, np.nan)
        np.divide(total, sizes - 2 * trimmed, out=means, where=sizes > 0)
        return means


@dataclass(frozen=True)
class _Split:
    """Two peaks of one metric among some nodes."""

    levels: _Levels
    better: _Mask  # for each of these nodes
    measured: _Mask
    chance: float

    @property
    def fewer_are_better(self) -> bool:
        return bool(2 * np.sum(self.better) < np.sum(self.measured))

    def vote(self, first: _Split) -> Samples:
        """1 for each node on the better side of the first split, -1 for each on the other, as this
        split sees them; 0 throughout if it is about other nodes."""
        shared = self.measured & first.measured
        votes = np.where(self.better, 1.0, -1.0) * self.measured
        if _are_same(self.better & shared, first.better & shared):
            return votes
        return -votes if _are_same(~self.better & shared, first.better & shared) else 0 * votes


@dataclass(frozen=True)
class _Part:
    nodes: Ints
    chance: float  # the probability that chance set it apart
    shown_by: _Levels


@dataclass(frozen=True, kw_only=True)
class _Fleet:
    levels: Sequence[_Levels]
    most: float  # the largest chance at which a split is accepted

    def divide(
        self, nodes: Ints, chance: float = 0.0, shown_by: _Levels | None = None
    ) -> Iterator[_Part]:
        """Yield the nodes in as many parts as there are kinds among them; nothing if there is one
        kind."""
        splits = [split for levels in self.levels if (split := self._split(levels, nodes))]
        telling = [split for split in splits if split.fewer_are_better]
        if telling:
            first = min(telling, key=lambda split: split.chance)
            votes = np.sum([split.vote(first) for split in splits], axis=0)
            votes = np.where(votes == 0, first.vote(first), votes)
            for side in (votes < 0, votes > 0):
                shown = shown_by or first.levels
                yield from self.divide(nodes[side], max(chance, first.chance), shown)
        elif shown_by:
            yield _Part(nodes, chance, shown_by)

    def _split(self, levels: _Levels, nodes: Ints) -> _Split | None:
        level = levels.node_levels[nodes]
        measured = ~np.isnan(level)
        if np.sum(measured) < FEWEST:
            return None
        valley = deepest_valley(_spread_out(level[measured], resolution(levels.measured.values)))
        if valley.chance > self.most:
            return None
        boundary = _boundary(level[measured], valley, -float(np.log(levels.alpha)))
        if boundary is None:
            return None
        better, *halves = (
            side[nodes] > boundary for side in (levels.node_levels, *levels.half_levels)
        )
        if levels.are_repeated and not _are_same(*halves):
            return None
        return _Split(levels, better, measured, valley.chance)


def _boundary(level: Samples, valley: Valley, limit: float) -> float | None:
    """The level above which nodes are of the better kind: nothing makes a node better than its
    kind.

    It is in the middle of the valley, or nearer to the worse kind if that ends before.
    """
    middle = (valley.low + valley.high) / 2
    is_worse = level <= middle
    worse, better = float(np.median(level[is_worse])), float(np.median(level[~is_worse]))
    if better - worse < limit:
        return None
    deviation = SPREAD * float(np.median(np.abs(level[is_worse] - worse)))
    boundary = min(middle, worse + max(limit, TAIL * deviation))
    share = float(np.mean(level > boundary))
    return boundary if SMALLEST <= share <= 1 - SMALLEST else None


def _spread_out(values: Samples, step: float) -> Samples:
    """Spread equal values evenly over a step of the metric. Two values that nearly all
    units have do not come from its resolution."""
    points, kind, counts = np.unique(values, return_inverse=True, return_counts=True)
    if np.sum(counts > values.size / 20) < 3:
        return values
    order = np.argsort(kind, kind="stable")
    number = np.empty(values.size)
    number[order] = np.arange(values.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return points[kind] + step * ((number + 0.5) / counts[kind] - 0.5)


def _are_same(a: _Mask, b: _Mask) -> bool:
    together = np.sum(a | b)
    return bool(together and np.sum(a & b) >= SAME * together)
