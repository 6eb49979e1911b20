"""The fewest warm-up and measured steps of a benchmark that repeat (ANUBIS paper, appendix B).

It proposes parameters; it judges no node and runs nothing. The choices that the paper leaves open:

- *The period* is sought per series. Seasonal decomposition needs one as input: candidates are
  the peaks of the autocorrelation of the steps and of their changes. The strength of a season,
  1 - var(rest) / var(season + rest), is corrected for the 1/k that the mean over k cycles of
  pure noise explains too. Multiples of a period are as strong, so the smallest that is about as
  strong as the strongest is taken. Freak steps are clipped first.
- *A cycle* is the fewest whole periods with LEAST_CYCLE steps: one or seven steps are no
  distribution. If no cycles are alike, cycles of twice the length are tried, up to half of the
  series.
- *The first run of similar cycles* is two adjacent cycles, the first of which is also like most of
  the later ones. Otherwise a clock that boosts for the first 70 steps would count as steady. The
  warm-up ends at the begin of the run, and is at most half of the series.
- *n* is not the length of that run, which would save nothing, but the fewest steps that repeat.
  These are whole periods with LEAST_STEPS, however short the cycle, because a window must show the
  slow steps; they are doubled if that is too noisy. They repeat only if nearly every series
  repeats them by itself: runs that read the same data in the same order agree step by step
  without being steady.
- *The best across nodes*: every warm-up that was found is tried with every length. A criterion
  is learned from the series cut this way. The best cut is that on which most series agree, then
  that on which they agree most closely. First the warm-ups are compared, each with its longest
  window, because with many short windows all series agree in one by chance; then the lengths. Of
  cuts that are about as good the cheapest wins; otherwise the longest always would.
- *Nothing repeats* if most series have no run, no length repeats, or learning refuses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from anubis.core.errors import CriteriaError
from anubis.core.judge.calibration import FEWEST
from anubis.core.judge.criteria import learn, refuse_unusable
from anubis.core.judge.ecdf import distance
from anubis.core.records import Criterion, CriterionKey, MetricSpec, Policy, Samples

T = TypeVar("T")

LEAST_CYCLE = 20  # steps: one or seven are no distribution
LEAST_STEPS = 80  # so many steps miss a slow tenth of all steps once in 4,600 times
NEARLY_ALL = 0.9  # or all but one
STRONG = 0.3  # share of the variance that a season must explain
ABOUT_AS_STRONG = 0.05  # of the variance: multiples of a period differ by less
ABOUT_AS_MANY = 0.01  # of the series
ABOUT_AS_GOOD = 0.005  # of a repeatability: less does not repeat from series to series

# Bounds of the cost for any input:
MOST_SEARCHED = 64  # series in which runs are sought
MOST_COMPARED = 256  # series with which candidates are compared
MOST_WARMUPS = 8  # of one search
MOST_CYCLES = 64  # into which a series is divided at most
MOST_STARTS = 256  # of a run that are tried
MOST_PEAKS = 12  # of an autocorrelation that are looked at
LONGEST_SEARCHED = 4096  # steps in which a period is sought


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The parameters proposed for one workload and metric; if there are none, `refusal` has the
    reason."""

    period: int  # 1: none
    warmup: int  # steps to drop
    steps: int  # steps to measure after them
    fixed_steps: int  # as measured; the median if series differ
    fixed_repeatability: float | None
    repeatability: float | None
    time_saved: float  # share
    refusal: str = ""


@dataclass(frozen=True)
class Cut:
    """A candidate: the steps to keep, and the criterion learned from them."""

    warmup: int
    steps: int
    learned: Criterion

    @property
    def repeatability(self) -> float:
        return self.learned.repeatability or 0.0


@dataclass(frozen=True)
class Task:
    """The settings shared by all criteria learned here; steps are in goodness."""

    key: CriterionKey
    metric: MetricSpec
    policy: Policy

    def cut(self, series: Sequence[Samples], warmup: int, steps: int) -> Cut:
        kept = [steps_of[warmup : warmup + steps] for steps_of in series]
        few = len(kept) < FEWEST  # how far the next may be off is no question here
        learned = learn(
            kept,
            key=self.key,
            metric=self.metric,
            nodes=len(kept),
            policy=replace(self.policy, calibrated=False) if few else self.policy,
            count_slow=False,
        )
        return Cut(warmup, steps, learned)


def tune(
    series: Sequence[Samples], *, key: CriterionKey, metric: MetricSpec, policy: Policy
) -> Tuned:
    """The cheapest (warm-up, steps) that repeats across `series`, each with its steps in order.

    One series is one unit: a device of a node in one execution.
    """
    if not series:
        raise CriteriaError(f"nothing to tune {key.workload} {key.metric} by: no steps")
    refuse_unusable(series, key)
    rates = [1.0 / steps if metric.direction == "lower" else steps for steps in series]
    task = Task(key, replace(metric, direction="higher"), policy)
    measured = int(np.median([series_rates.size for series_rates in rates]))
    fixed = task.cut(rates, 0, max(series_rates.size for series_rates in rates))

    searched = _spread(rates, MOST_SEARCHED)
    periods = [find_period(series_rates) for series_rates in searched]
    period = _usual_period(periods)
    runs = [
        find_run(series_rates, own_period, policy)
        for series_rates, own_period in zip(searched, periods, strict=True)
    ]
    best, refusal = _best_cut(rates, runs, period, task)
    return Tuned(
        period=period,
        warmup=best.warmup if best else 0,
        steps=best.steps if best else measured,
        fixed_steps=measured,
        fixed_repeatability=fixed.learned.repeatability,
        repeatability=best.learned.repeatability if best else None,
        time_saved=_time_saved(rates, best.warmup + best.steps) if best else 0.0,
        refusal=refusal,
    )


def _best_cut(
    rates: Sequence[Samples], runs: Sequence[int | None], period: int, task: Task
) -> tuple[Cut | None, str]:
    alpha = task.policy.alpha
    begun = [run for run in runs if run is not None]
    if 2 * len(begun) <= len(runs):
        return None, (
            f"not repeatable enough: {len(runs) - len(begun)} of {len(runs)} series never settle "
            f"into cycles that are alike (similarity above {alpha:g})"
        )
    compared = _spread(rates, MOST_COMPARED)
    tried = list(candidates(begun, period, min(series_rates.size for series_rates in rates)))
    shares = [_repeating_share(compared, warmup, steps, task.policy) for warmup, steps in tried]
    enough = min(NEARLY_ALL, 1 - 1 / len(compared))
    cuts = [
        task.cut(compared, warmup, steps)
        for (warmup, steps), share in zip(tried, shares, strict=True)
        if share >= enough - 1e-9
    ]
    if not cuts:
        share, steps = max((share, -steps) for (_, steps), share in zip(tried, shares, strict=True))
        return None, (
            f"not repeatable enough: at best, with {-steps} steps, {share:.0%} of the series "
            f"repeat themselves (similarity above {alpha:g})"
        )
    cheapest = _choose(cuts, len(compared))
    best = task.cut(rates, cheapest.warmup, cheapest.steps)
    return (None, best.learned.refusal) if best.learned.refusal else (best, "")


def _choose(cuts: Sequence[Cut], series: int) -> Cut:
    """The best cut: first the warm-up, by the longest window after each; then the fewest steps
    after it."""
    longest = {cut.warmup: cut for cut in sorted(cuts, key=lambda cut: cut.steps)}
    warmup = min(_nearly_best(list(longest.values()), series), key=lambda cut: cut.warmup).warmup
    there = [cut for cut in cuts if cut.warmup == warmup]
    return min(_nearly_best(there, series), key=lambda cut: cut.steps)


def _nearly_best(cuts: Sequence[Cut], series: int) -> list[Cut]:
    """The cuts on which most series agree, limited to those with the closest agreement."""
    agreeing = max(cut.learned.healthy for cut in cuts)
    agreed = [cut for cut in cuts if cut.learned.healthy >= agreeing - ABOUT_AS_MANY * series]
    limit = max(cut.repeatability for cut in agreed) - ABOUT_AS_GOOD
    return [cut for cut in agreed if cut.repeatability >= limit]


def _repeating_share(series: Sequence[Samples], warmup: int, steps: int, policy: Policy) -> float:
    """The share of series that settle there; 1 if none has room for a second window."""
    roomy = [series_rates for series_rates in series if series_rates.size >= warmup + 2 * steps]
    settled = sum(settles(series_rates, warmup, steps, policy) for series_rates in roomy)
    return settled / len(roomy) if roomy else 1.0


def find_period(rates: Samples) -> int:
    """The number of steps after which a series repeats its pattern; 1 if it has none.

    The second half is searched, because the warm-up is over there.
    """
    seen = _clip(rates[rates.size // 2 :][:LONGEST_SEARCHED])
    if np.ptp(seen) <= 1e-9 * seen.max():
        return 1
    strengths = {period: seasonal_strength(seen, period) for period in _peaks(seen)}
    if not strengths or max(strengths.values()) < STRONG:
        return 1
    limit = max(STRONG, max(strengths.values()) - ABOUT_AS_STRONG)
    first = min(period for period, strength in strengths.items() if strength >= limit)
    near = range(max(2, first - 2), first + 3)
    return max(near, key=lambda period: (strengths.get(period, 0.0), -period))


def _clip(rates: Samples) -> Samples:
    """Clip values that occur once or twice: they would hide a season, which occurs at least three
    times."""
    ordered = np.sort(rates)
    clipped: Samples = np.clip(
        rates, ordered[min(2, rates.size - 1)], ordered[max(-3, -rates.size)]
    )
    return clipped


def _peaks(rates: Samples) -> list[int]:
    """The periods at which the autocorrelation of the steps or of their changes is highest, and
    those next to them."""
    from statsmodels.tsa.stattools import acf  # type: ignore[import-untyped]

    longest = rates.size // 3
    periods: set[int] = set()
    for seen in (rates, np.diff(rates)):
        if longest < 2 or np.ptp(seen) == 0:
            continue
        height = acf(seen, nlags=min(longest + 1, seen.size - 1), fft=True)
        inner = height[2:-1]
        peaks = 2 + np.flatnonzero((inner > height[1:-2]) & (inner >= height[3:]) & (inner > 0))
        highest = peaks[np.argsort(-height[peaks], kind="stable")][:MOST_PEAKS]
        periods.update(int(peak) + shift for peak in highest for shift in (-1, 0, 1))
    return sorted(period for period in periods if 2 <= period <= longest)


def seasonal_strength(rates: Samples, period: int) -> float:
    """The share of the variation about a moving average over `period` steps that repeats with it,
    in [0, 1], given at least two cycles: Wang, Smith and Hyndman (2006), corrected for few cycles.

    The season is that of statsmodels' `seasonal_decompose`, which takes twenty times as long.
    """
    window = np.full(period, 1.0)
    if period % 2 == 0:
        window = np.concatenate(([0.5], window[1:], [0.5]))
    trend = np.convolve(rates, window / period, mode="valid")
    varying = rates[period // 2 :][: trend.size] - trend
    phase = np.arange(varying.size) % period
    season = np.bincount(phase, varying) / np.bincount(phase)
    total = float(np.var(varying))
    cycles = varying.size / period
    if total <= 0 or cycles <= 1:
        return 0.0
    return 1 - float(np.var(varying - season[phase])) / (total * (1 - 1 / cycles))


def find_run(rates: Samples, period: int, policy: Policy) -> int | None:
    """The begin of the first run of similar cycles; None if there is none at any cycle length."""
    stride = math.ceil(rates.size / MOST_STARTS)
    cycle = _round_up(max(LEAST_CYCLE, rates.size / MOST_CYCLES), period)
    while 2 * cycle <= rates.size:
        for start in range(0, min(rates.size // 2, rates.size - 2 * cycle) + 1, stride):
            if settles(rates, start, cycle, policy):
                return start
        cycle *= 2
    return None


def settles(rates: Samples, start: int, length: int, policy: Policy) -> bool:
    """True if a window is like the next one, and like most later ones."""
    from anubis.core.judge import ecdf

    count = (rates.size - start) // length
    windows = rates[start : start + count * length].reshape(count, length)
    first = np.sort(windows[0])
    if 1 - distance(first, np.sort(windows[1]), policy.tail) <= policy.alpha:
        return False
    later = ecdf.Bundle.from_samples(np.sort(windows[1:], axis=1))
    similarity = 1 - ecdf.distances_to(later, first, policy.tail, worse=False)
    return bool(2 * np.count_nonzero(similarity > policy.alpha) > count - 1)


def candidates(warmups: Iterable[int], period: int, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield every warm-up with every length, doubled while the series have room for it twice.

    If even the shortest length does not fit twice, the length is all that is left after the
    warm-up.
    """
    least = _round_up(LEAST_STEPS, period)
    for warmup in _spread(
        sorted({warmup for warmup in warmups if warmup < shortest}), MOST_WARMUPS
    ):
        room = (shortest - warmup) // 2
        lengths = [least << times for times in range(room.bit_length()) if least << times <= room]
        for steps in lengths or [shortest - warmup]:
            yield warmup, steps


def _round_up(steps: float, period: int) -> int:
    """The smallest number of whole periods, in steps, that is at least `steps`."""
    return period * math.ceil(steps / period)


def _time_saved(rates: Iterable[Samples], kept: int) -> float:
    """The share of the time that is saved. A step takes the reciprocal of its rate, so slow warm-up
    steps count with their real time."""
    before = after = 0.0
    for series_rates in rates:
        before += float(np.sum(1 / series_rates))
        after += float(np.sum(1 / series_rates[:kept]))
    return 1 - after / before


def _spread(items: Sequence[T], count: int) -> list[T]:
    """A selection of at most `count` of the items, evenly spread from first to last."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _usual_period(periods: Iterable[int]) -> int:
    """The most frequent period; of equally frequent ones the smallest."""
    counted = Counter(periods)
    return min(counted, key=lambda period: (-counted[period], period))
