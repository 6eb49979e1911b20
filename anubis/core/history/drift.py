"""How near the tests of a metric came to its limit, one after the other: a metric that drifts shows
here before a node fails by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from anubis.core.records import Samples

FAR = 0.95  # the quantile of the units that are furthest off
NOTHING = 0.005  # a share of a limit that is not shown


@dataclass(frozen=True, kw_only=True, eq=False)
class LimitShares:
    """The share of its limit that each unit of a metric used in one test: 0 is equal to its
    criterion, 1 is at the limit, and more is beyond it."""

    at: float
    benchmark: str
    metric: str
    shares: Samples


@dataclass(frozen=True, kw_only=True)
class DriftPoint:
    """One test of a metric."""

    at: float
    units: int
    middle: float  # the median share of the limit
    far: float  # the share that all but a twentieth of the units kept below


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The tests of a metric, the oldest first."""

    benchmark: str
    metric: str
    points: Sequence[DriftPoint]

    @property
    def last(self) -> DriftPoint:
        return self.points[-1]

    @property
    def change(self) -> float | None:
        """The share of the last test less the median of those before; None: there was no other
        test."""
        return self._change(attrgetter("middle"))

    @property
    def far_change(self) -> float | None:
        """The same of the units furthest off."""
        return self._change(attrgetter("far"))

    @property
    def is_still(self) -> bool:
        """True if it used nothing of its limit in any test."""
        return all(point.far < NOTHING for point in self.points)

    def _change(self, share: Callable[[DriftPoint], float]) -> float | None:
        before = [share(point) for point in self.points[:-1]]
        return share(self.last) - float(np.median(before)) if before else None


def share_of_limit(similarity: Samples, alpha: float) -> Samples:
    """The distance from normal, as a share of the distance that alpha allows."""
    return (1 - similarity) / (1 - alpha)


def drifts(tests: Iterable[LimitShares]) -> list[Drift]:
    """Tests by metric: those beyond their limit first, then those that drifted most towards it;
    those that were tested once at the end."""
    by_metric: defaultdict[tuple[str, str], defaultdict[float, list[Samples]]]
    by_metric = defaultdict(lambda: defaultdict(list))
    for test in tests:
        if test.shares.size:
            by_metric[test.benchmark, test.metric][test.at].append(test.shares)
    by_name = [
        Drift(
            benchmark=benchmark,
            metric=metric,
            points=[
                _point(at, np.concatenate(of_test)) for at, of_test in sorted(tests_of.items())
            ],
        )
        for (benchmark, metric), tests_of in by_metric.items()
    ]
    return sorted(by_name, key=_order)


def _point(at: float, shares: Samples) -> DriftPoint:
    middle, far = np.quantile(shares, (0.5, FAR)).tolist()
    return DriftPoint(at=at, units=shares.size, middle=middle, far=far)


def _order(drift: Drift) -> tuple[bool, bool, float, float, float, str, str]:
    change = drift.change
    rank = -round(change or 0.0, 3), -(drift.far_change or 0.0), -drift.last.far
    return drift.last.far < 1, change is None, *rank, drift.benchmark, drift.metric
