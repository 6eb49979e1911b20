"""Decide which passes are strong enough: a pass with other parameters counts only if the program
reports that these demand at least as much."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anubis.core.history.status import Validation
from anubis.core.records import Demand, Workload

LASTS = "seconds"  # the parameter of programs that look for a time that is chosen
CampaignDemands = Mapping[str, Mapping[str, tuple[Demand, ...]]]  # by campaign and benchmark


@dataclass(frozen=True, kw_only=True)
class Strength:
    """Demands of campaigns. If a campaign's parameters are unknown, its passes count by benchmark
    name only."""

    demands: CampaignDemands = field(default_factory=dict)
    required: Mapping[str, Iterable[Workload]] = field(default_factory=dict)  # by benchmark
    offered: Mapping[str, Sequence[Demand]] = field(default_factory=dict)  # can be chosen now
    _counting: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = field(default_factory=dict)

    def is_enough(self, later: str, earlier: str, benchmark: str) -> bool:
        """Return whether a pass in the later campaign disproves a defect that the earlier one
        found."""
        found_by = self.demands.get(earlier, {}).get(benchmark, ())
        return self._covers(later, benchmark, (demand.workload for demand in found_by))

    def times_as_long(self, later: str, earlier: str, benchmark: str) -> float:
        """Return how many times as long a pass in the later campaign was under test as whatever
        found the defect; 0 if it is not enough."""
        if not self.is_enough(later, earlier, benchmark):
            return 0.0
        passed = self.demands.get(later, {}).get(benchmark, ())
        found_by = [demand.workload for demand in self.demands.get(earlier, {}).get(benchmark, ())]
        longest = (
            max(
                (_times(demand, workload) for demand in passed if demand.covers(workload)),
                default=1.0,
            )
            for workload in found_by
        )
        return min(longest, default=1.0)

    def would_answer(self, benchmark: str, earlier: str) -> bool:
        """Return whether a pass of what can be chosen now answers a benchmark of the earlier
        campaign."""
        demands = self.demands.get(earlier, {}).get(benchmark, ())
        offered = self.offered.get(benchmark, ())
        return bool(offered) and _cover(offered, (demand.workload for demand in demands))

    def counted_benchmarks(self, validation: Validation) -> tuple[str, ...]:
        """Benchmarks of a validation that demand no less than is required of them."""
        ran = validation.campaign, validation.benchmarks
        if ran not in self._counting:  # a campaign validates many nodes
            self._counting[ran] = tuple(
                name
                for name in validation.benchmarks
                if self._covers(validation.campaign, name, self.required.get(name, ()))
            )
        return self._counting[ran]

    def _covers(self, campaign: str, benchmark: str, required: Iterable[Workload]) -> bool:
        if campaign not in self.demands:
            return True
        return _cover(self.demands[campaign].get(benchmark, ()), required)


def _cover(passed: Collection[Demand], required: Iterable[Workload]) -> bool:
    return all(any(demand.covers(workload) for demand in passed) for workload in required)


def _times(demand: Demand, covered: Workload) -> float:
    """Return how many times as long a demand lasts as a workload that it covers."""
    own, of_found = (a.get(LASTS) for a in (demand.workload.arguments, covered.arguments))
    if LASTS not in demand.stronger_with or isinstance(own, str) or isinstance(of_found, str):
        return 1.0
    return own / of_found if own and of_found else 1.0
