"""Find groups of nodes that are on two levels, although the criteria that they taught pass both.

Nothing makes a group much faster than its kind. So if some groups are much faster, the others may
all be slow, although they are the majority. The groups themselves cannot tell which level is
normal.

The level of a group is its mean over the metrics of one program, as a logarithm. A gap between two
levels counts if it is so wide, relative to the scatter within both, that groups of one kind have
such a gap once in a thousand draws, however they are parted. The draws were from normal, uniform,
Laplace's and Student's distributions (three degrees of freedom).

If one half of single nodes is on each level, no majority shows which is normal, and their criterion
is refused already. Then the levels are named as well: they may be two kinds of nodes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.fabric import natural_key
from anubis.core.judge.criteria import similarities
from anubis.core.judge.faulty_paths import list_names
from anubis.core.judge.peaks import SMALLEST, deepest_valley, resolution
from anubis.core.judge.units import Units
from anubis.core.records import Criterion, CriterionKey, Policy, Samples

FEWEST = 6  # groups: fewer are always parted so by chance
FEWEST_SHARE = 0.01  # of all groups, on each level: with heavy tails, a few of many are far off
# by 40,000 to 200,000 draws each of 6 to 66 groups: standard deviations within the levels, between
# which a gap lies; one fast group may have been measured wrongly
APART, OF_FEW, OF_ONE = 5.0, 400.0, 25.0
MANY = 20  # groups: so many have peaks, between which a few lie
BY_CHANCE = 1e-3  # that so many groups with one peak have such a valley
ROUNDED = math.sqrt(12)  # a step of rounding, in standard deviations

TWO_KINDS = "if they are two kinds of nodes, give each a sku of its own"

Learned = tuple[Units, Criterion]


def find_two_levels(
    learned: Sequence[Learned], policy: Policy
) -> Iterator[tuple[CriterionKey, str]]:
    """Yield the key of each criterion that passes groups on two levels, and why it cannot say which
    is normal."""
    by_groups: defaultdict[tuple[object, ...], list[_Metric]] = defaultdict(list)
    for groups, criterion in learned:
        are_groups = max(map(len, groups.participants)) > 1 and not criterion.from_repeats
        if has_no_majority(criterion) and not are_groups:
            yield from _name_halves(groups, criterion)
        if are_groups and not criterion.refusal and groups.metric.direction != "either":
            key = groups.key.sku, groups.key.workload, groups.participants, groups.devices
            by_groups[key].append(_Metric(groups, criterion))
    for metrics in by_groups.values():
        yield from _Program(metrics).refusals(policy)


def has_no_majority(criterion: Criterion) -> bool:
    return bool(criterion.refusal) and 2 * criterion.healthy <= criterion.units


def _name_halves(nodes: Units, criterion: Criterion) -> Iterator[tuple[CriterionKey, str]]:
    """Yield the key and the refusal with both levels of these nodes, if they are on two."""
    levels = np.log(nodes.medians)
    boundary = find_boundary(levels, resolution(nodes.values) / ROUNDED)
    if boundary is None or criterion.refusal.endswith(TWO_KINDS):
        return
    low, high = np.flatnonzero(levels < boundary), np.flatnonzero(levels >= boundary)
    both = f"{_describe(nodes, low.tolist())} and {_describe(nodes, high.tolist())}"
    yield nodes.key, f"{criterion.refusal}: {both}; {TWO_KINDS}"


@dataclass(frozen=True)
class _Metric:
    groups: Units
    criterion: Criterion

    @property
    def passes(self) -> Flags:
        return similarities(self.groups.samples, self.criterion) > self.criterion.alpha

    @cached_property
    def logarithms(self) -> Samples:
        logarithms: Samples = np.log(self.groups.medians)
        return -logarithms if self.groups.metric.direction == "lower" else logarithms


@dataclass(frozen=True)
class _Program:
    """The metrics of one program on the same groups."""

    metrics: Sequence[_Metric]

    def refusals(self, policy: Policy) -> Iterator[tuple[CriterionKey, str]]:
        passes = np.flatnonzero(np.all([metric.passes for metric in self.metrics], axis=0))
        levels = np.mean([metric.logarithms[passes] for metric in self.metrics], axis=0)
        boundary = find_boundary(levels, self._rounding)
        if boundary is None:
            return
        low, high = passes[levels < boundary], passes[levels >= boundary]
        for metric in self.metrics:
            key = metric.groups.key
            typical = [float(np.median(metric.logarithms[level])) for level in (low, high)]
            alpha = policy.metric_policy(key.workload.benchmark, key.metric).alpha
            if typical[1] - typical[0] > -math.log(alpha):
                yield key, _sentence(metric.groups, low.tolist(), high.tolist())

    @property
    def _rounding(self) -> float:
        """The standard deviation that rounding of the metrics gives their mean."""
        steps = [resolution(metric.groups.values) for metric in self.metrics]
        return math.hypot(*steps) / len(steps) / ROUNDED


def find_boundary(levels: Samples, rounding: float = 0.0) -> float | None:
    """The least value on the higher of two levels; None if there may be one level."""
    ordered = np.sort(levels)
    number = ordered.size
    if number < FEWEST:
        return None
    gaps, scatter = np.diff(ordered), np.maximum(_scatter_within(ordered), rounding)
    above = number - np.arange(1, number)  # groups on the higher level, if parted at a gap
    fewest = math.ceil(FEWEST_SHARE * number)
    least = np.where(above > 1, APART + OF_FEW / number**2, OF_ONE) * scatter
    is_large = (gaps > least) & (above >= fewest) & (number - above >= max(2, fewest))
    if is_large.any():
        return float(ordered[1:][is_large][np.argmax(gaps[is_large])])
    return _valley(ordered, APART * rounding) if number >= MANY else None


def _scatter_within(ordered: Samples) -> Samples:
    """The standard deviation within both levels, if values are parted at each gap."""
    centred = ordered - ordered[ordered.size // 2]
    sums, squares = np.cumsum(centred), np.cumsum(centred**2)
    below = np.arange(1, ordered.size)
    above = ordered.size - below
    low = squares[:-1] - sums[:-1] ** 2 / below
    high = squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / above
    scatter: Samples = np.sqrt(np.maximum(0.0, low + high) / (ordered.size - 2))
    return scatter


def _valley(ordered: Samples, least: float) -> float | None:
    """The middle of the valley between two peaks, if these are further apart than the least."""
    valley = deepest_valley(ordered)
    if valley.chance > BY_CHANCE:
        return None
    middle = (valley.low + valley.high) / 2
    low, high = ordered[ordered < middle], ordered[ordered >= middle]
    are_peaks = min(low.size, high.size) >= SMALLEST * ordered.size
    return middle if are_peaks and np.median(high) - np.median(low) > least else None


def _sentence(groups: Units, low: Sequence[int], high: Sequence[int]) -> str:
    slow, fast = (_describe(groups, level) for level in (low, high))
    in_fast = {node for place in high for node in groups.participants[place]}
    only_slow = {node for place in low for node in groups.participants[place]} - in_fast
    where = f"{_list(in_fast)} reach the higher one"
    if only_slow:
        where += f", {_list(only_slow)} only the lower one"
    return (
        f"these groups are on two levels, {fast} and {slow}, and do not show which is normal: "
        f"{where}; a node that is known to be good, criteria of another fleet or what the "
        "hardware should reach settles it"
    )


def _describe(groups: Units, level: Sequence[int]) -> str:
    median = float(np.median(groups.medians[level]))
    return f"{len(level):,} at {median:,.4g} {groups.metric.unit}"


def _list(nodes: Collection[str]) -> str:
    names = sorted(nodes, key=natural_key)
    return list_names(names) if len(names) > 1 else names[0]
