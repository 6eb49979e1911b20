"""What is to be simulated, as configs/simulations/ has it: a cluster, its jobs, its troubles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from anubis.core.errors import did_you_mean
from anubis.core.records import SelectionPolicy
from anubis.simulation.incidents import Category

PolicyName = Literal["absence", "full set", "cron", "random", "selector", "ideal"]
IncidentSource = Literal["rates", "model", "history"]
SOURCES: tuple[IncidentSource, ...] = ("rates", "model", "history")
POLICIES: tuple[PolicyName, ...] = ("absence", "full set", "cron", "random", "selector", "ideal")


def _at_least(name: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        raise ValueError(f'"{name}" is {value:g}, expected at least {least:g}')


def _above(name: str, value: float, bound: float = 0.0) -> None:
    if not bound < value < math.inf:
        raise ValueError(f'"{name}" is {value:g}, expected more than {bound:g}')


def _each_once(name: str, words: Iterable[str]) -> None:
    for word, times in Counter(words).items():
        if times > 1:
            raise ValueError(f'"{name}" names "{word}" {times} times, expected once')


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many of the jobs ask for so many nodes."""

    nodes: int
    share: float

    def __post_init__(self) -> None:
        _at_least("nodes", self.nodes, 1)
        _above("share", self.share)


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Recorded jobs, or made ones: durations are log-normal, sizes as they are shared out."""

    trace: str = ""  # a file; "" makes jobs
    devices_per_node: int = 8  # a trace asks for GPUs or processors
    whole_nodes_only: bool = True  # leaves out jobs that ask for less than a node
    limit_h: float | None = None  # longer jobs are cut into pieces, each with nodes of its own
    load: float = 1.5  # what they ask for, as a multiple of what the nodes can do; 0: as recorded
    median_h: float = 12.0
    spread: float = 1.5  # of the logarithm
    sizes: tuple[Size, ...] = (Size(nodes=1, share=1.0),)

    def __post_init__(self) -> None:
        _at_least("devices_per_node", self.devices_per_node, 1)
        _at_least("load", self.load, 0)
        _above("median_h", self.median_h)
        _at_least("spread", self.spread, 0)
        if self.limit_h is not None:
            _above("limit_h", self.limit_h)
        if not self.sizes:
            raise ValueError('"sizes" is empty, expected at least one')
        if not self.trace and not self.load:
            raise ValueError('"load" is 0, which needs a "trace" to say when jobs arrived')


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    name: str
    minutes: float

    def __post_init__(self) -> None:
        _above("minutes", self.minutes)


@dataclass(frozen=True, kw_only=True)
class RepairTimes:
    """Means, in hours."""

    incident_h: float = 24.0
    defect_h: float = 6.0  # where a benchmark has said what is wrong

    def __post_init__(self) -> None:
        _at_least("incident_h", self.incident_h, 0)
        _at_least("defect_h", self.defect_h, 0)


@dataclass(frozen=True, kw_only=True)
class Variations:
    """What is tried beside the scenario itself."""

    catch: tuple[float, ...] = (1.0, 0.5, 0.0)
    p0: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("catch", "p0"):
            for value in getattr(self, name):
                if not 0 <= value <= 1:
                    raise ValueError(f'"{name}" has {value:g}, expected numbers from 0 to 1')


@dataclass(frozen=True, kw_only=True)
class Scenario:
    summary: str
    nodes: int = 100
    spares: int = 5  # of the nodes: the hot buffer
    days: float = 30.0
    seeds: int = 5
    jobs: Jobs = field(default_factory=Jobs)
    benchmarks: tuple[Benchmark, ...]
    categories: tuple[Category, ...]
    incidents: IncidentSource = "rates"  # where they come from
    risk: str = "truth"  # which the Selector is told; or the name of a model, or "best" of them
    past_days: float = 90.0  # which such a model learns from, where the history has none
    repair: RepairTimes = field(default_factory=RepairTimes)
    shows_h: float | None = None  # how long before its incident a defect can be found
    catch: float = 1.0  # share of the defects that a benchmark can find which it does find
    checkpoint_h: float = 0.0  # an incident loses the work since the last; 0: it loses none
    policies: tuple[PolicyName, ...] = POLICIES
    cron_every_h: float = 168.0
    selection: SelectionPolicy = SelectionPolicy(p0=0.01, half_life_h=1.0)
    incident_costs_h: float | None = None  # node-hours; None: half of the job, on all its nodes
    known_defects: int = 500  # of the past, which tell the Selector what finds what
    sweep: Variations = field(default_factory=Variations)

    def __post_init__(self) -> None:
        _at_least("nodes", self.nodes, 1)
        _at_least("seeds", self.seeds, 1)
        _above("days", self.days)
        _above("past_days", self.past_days)
        _at_least("checkpoint_h", self.checkpoint_h, 0)
        _above("cron_every_h", self.cron_every_h)
        if not 0 <= self.spares < self.nodes:
            raise ValueError(
                f"spares is {self.spares}, expected 0 to {self.nodes - 1} of the nodes"
            )
        _at_least("known_defects", self.known_defects, 0)
        if self.incident_costs_h is not None:
            _above("incident_costs_h", self.incident_costs_h)
        if self.selection.search != "greedy":
            raise ValueError(
                f'search is "{self.selection.search}", expected greedy: a simulation decides often'
            )
        if not 0 <= self.catch <= 1:
            raise ValueError(f"catch is {self.catch:g}, expected a share from 0 to 1")
        if self.shows_h is not None:
            _at_least("shows_h", self.shows_h, 0)
        _each_once("benchmarks", (benchmark.name for benchmark in self.benchmarks))
        _each_once("categories", (category.name for category in self.categories))
        _each_once("policies", self.policies)
        known = {benchmark.name for benchmark in self.benchmarks}
        for category in self.categories:
            for cause in category.causes:
                for name in cause.found_by:
                    if name not in known:
                        raise ValueError(
                            f'"{category.name}" has a cause found by "{name}", '
                            f"which is none of the benchmarks; {did_you_mean(name, known)}"
                        )

    @property
    def benchmark_names(self) -> tuple[str, ...]:
        return tuple(benchmark.name for benchmark in self.benchmarks)

    @property
    def span_h(self) -> float:
        return self.days * 24
