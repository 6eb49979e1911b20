"""A scenario to simulate, as in configs/simulations/: a cluster, its jobs, its incidents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from anubis.core.errors import did_you_mean
from anubis.core.records import SelectionPolicy
from anubis.lab.study.incidents import Category
from anubis.lab.study.response import Means, Response

PolicyName = Literal[
    "absence",
    "full set",
    "cron",
    "random",
    "selector",
    "with watch",
    "with diagnosis",
    "whole loop",
    "ideal",
]
IncidentSource = Literal["rates", "model", "history"]
SOURCES: tuple[IncidentSource, ...] = ("rates", "model", "history")
POLICIES: tuple[PolicyName, ...] = ("absence", "full set", "cron", "random", "selector", "ideal")
MEANS: Mapping[PolicyName, Means] = {  # all of them test as the Selector does
    "with watch": Means(watches=True),
    "with diagnosis": Means(watches=True, diagnoses=True),
    "whole loop": Means(watches=True, diagnoses=True, locates=True, proves=True),
}


def _require_at_least(name: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        raise ValueError(f'"{name}" is {value:g}, expected at least {least:g}')


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f'"{name}" is {value:g}, expected more than 0')


def _require_unique(name: str, words: Iterable[str]) -> None:
    for word, times in Counter(words).items():
        if times > 1:
            raise ValueError(f'"{name}" names "{word}" {times} times, expected once')


@dataclass(frozen=True, kw_only=True)
class Size:
    """The share of jobs that ask for a number of nodes."""

    nodes: int
    """The nodes that a job asks for."""
    share: float
    """The weight of such jobs relative to the others."""

    def __post_init__(self) -> None:
        _require_at_least("nodes", self.nodes, 1)
        _require_positive("share", self.share)


SHORTEST_LIMIT_H = 0.1  # six minutes: what ends sooner is no job worth a test
MOST_PIECES = 10_000  # of a job
FARTHEST = 4.0  # standard deviations that a duration is from the median


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Recorded jobs, or random ones with log-normal durations and the given sizes."""

    trace: str = ""
    """Recorded jobs: a file in the Standard Workload Format, or a table with the columns timestamp,
    duration and num_gpus. Without it, jobs are made."""
    devices_per_node: int = 8
    """GPUs or processors per node: what a trace counts."""
    whole_nodes_only: bool = True
    """Whether to leave out recorded jobs that ask for less than a node."""
    limit_h: float | None = None
    """Longer jobs are cut into pieces of this many hours, each with its own nodes."""
    load: float = 1.5
    """What jobs ask for, as a multiple of what the nodes can do. 0: as recorded."""
    median_h: float = 12.0
    """Median duration of random jobs, in hours."""
    spread: float = 1.5
    """Standard deviation of the logarithm of the duration."""
    sizes: tuple[Size, ...] = (Size(nodes=1, share=1.0),)
    """How many nodes random jobs ask for."""

    def __post_init__(self) -> None:
        _require_at_least("devices_per_node", self.devices_per_node, 1)
        _require_at_least("load", self.load, 0)
        _require_positive("median_h", self.median_h)
        _require_at_least("spread", self.spread, 0)
        if self.limit_h is not None:
            self._check_pieces(self.limit_h)
        if not self.sizes:
            raise ValueError('"sizes" is empty, expected at least one')
        if not self.trace and not self.load:
            raise ValueError('"load" is 0, which needs a "trace" to say when jobs arrived')

    def _check_pieces(self, limit_h: float) -> None:
        _require_at_least("limit_h", limit_h, SHORTEST_LIMIT_H)
        longest = math.log(self.median_h) + FARTHEST * self.spread  # of random jobs, its logarithm
        if not self.trace and longest - math.log(limit_h) > math.log(MOST_PIECES):
            raise ValueError(
                f'"limit_h" of {limit_h:g} cuts random jobs into more than {MOST_PIECES:,} pieces:'
                ' lower "median_h" or "spread", or raise the limit'
            )


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    name: str
    """The benchmark."""
    minutes: float
    """How long it takes on a node."""

    def __post_init__(self) -> None:
        _require_positive("minutes", self.minutes)


@dataclass(frozen=True, kw_only=True)
class RepairTimes:
    """Means, in hours."""

    incident_h: float = 24.0
    """Mean hours of repair after an incident."""
    defect_h: float = 6.0
    """Mean hours of repair where a benchmark has found the defect."""

    def __post_init__(self) -> None:
        _require_at_least("incident_h", self.incident_h, 0)
        _require_at_least("defect_h", self.defect_h, 0)


@dataclass(frozen=True, kw_only=True)
class Variations:
    """Other values to try, besides the scenario's own."""

    catch: tuple[float, ...] = (1.0, 0.5, 0.0)
    """Values of `catch` to try."""
    p0: tuple[float, ...] = ()
    """Values of `selection.p0` to try."""

    def __post_init__(self) -> None:
        for name in ("catch", "p0"):
            for value in getattr(self, name):
                if not 0 <= value <= 1:
                    raise ValueError(f'"{name}" has {value:g}, expected numbers from 0 to 1')


MOST = {
    "nodes": 100_000,
    "seeds": 10_000,
    "days": 36_500,
    "past_days": 36_500,
    "known_defects": 1_000_000,
}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    summary: str
    """What is simulated, in one line."""
    nodes: int = 100
    """The nodes, spares included."""
    spares: int = 5
    """How many of them are spares that replace nodes in repair: the hot buffer."""
    days: float = 30.0
    """How long each run lasts."""
    seeds: int = 5
    """How often each policy runs; figures have an interval over these runs."""
    jobs: Jobs = field(default_factory=Jobs)
    """The jobs of the cluster."""
    benchmarks: tuple[Benchmark, ...]
    """The benchmarks to choose from."""
    categories: tuple[Category, ...]
    """The kinds of incidents."""
    incidents: IncidentSource = "rates"
    """The source of incidents: the rates of the categories, a trained risk model, or the history,
    which then happens again."""
    risk: str = "truth"
    """What the Selector knows: the truth, or what a model learned from the past, named (cox-time,
    exponential …) or the best of them."""
    past_days: float = 90.0
    """Length of the simulated past from which such a model learns if the history has none."""
    repair: RepairTimes = field(default_factory=RepairTimes)
    """How long repairs take."""
    shows_h: float | None = None
    """How many hours before its incident a defect can be found. Without it, all that would strike
    during a job can be found at its start."""
    catch: float = 1.0
    """Share of the defects within its reach that a benchmark really finds."""
    checkpoint_h: float = 0.0
    """An incident loses the work since the last checkpoint. 0: it loses none."""
    response: Response | None = None
    """How faults under jobs become known, and their nodes are found. Without it, each is known at
    once, and its node replaced."""
    policies: tuple[PolicyName, ...] = POLICIES
    """The validation policies to compare."""
    cron_every_h: float = 168.0
    """How often the policy `cron` validates a node."""
    selection: SelectionPolicy = SelectionPolicy(p0=0.01, half_life_h=1.0)
    """The Selector's settings, with the keys of a policy. Without it, `p0` is 0.01 and
    `half_life_h` is 1. A simulation decides often, so `search` counts as greedy."""
    incident_costs_h: float | None = None
    """What an incident costs, in node-hours: a benchmark that saves less is not run. Without it,
    half of the job on all its nodes."""
    known_defects: int = 500
    """Number of past defects from which the Selector learns which benchmark finds what."""
    sweep: Variations = field(default_factory=Variations)
    """Other values to try, besides these settings."""

    def __post_init__(self) -> None:
        for name, limit in MOST.items():
            if getattr(self, name) > limit:
                raise ValueError(f'"{name}" is {getattr(self, name):g}, expected at most {limit:,}')
        _require_at_least("nodes", self.nodes, 1)
        _require_at_least("seeds", self.seeds, 1)
        _require_positive("days", self.days)
        _require_positive("past_days", self.past_days)
        _require_at_least("checkpoint_h", self.checkpoint_h, 0)
        _require_positive("cron_every_h", self.cron_every_h)
        if not 0 <= self.spares < self.nodes:
            raise ValueError(
                f"spares is {self.spares}, expected 0 to {self.nodes - 1} of the nodes"
            )
        _require_at_least("known_defects", self.known_defects, 0)
        if self.incident_costs_h is not None:
            _require_positive("incident_costs_h", self.incident_costs_h)
        if not 0 <= self.catch <= 1:
            raise ValueError(f"catch is {self.catch:g}, expected a share from 0 to 1")
        if self.shows_h is not None:
            _require_at_least("shows_h", self.shows_h, 0)
        _require_unique("benchmarks", (benchmark.name for benchmark in self.benchmarks))
        _require_unique("categories", (category.name for category in self.categories))
        _require_unique("policies", self.policies)
        for policy in self.policies:
            if policy in MEANS and self.response is None:
                raise ValueError(f'"policies" has "{policy}", which needs a "response"')
        names = {benchmark.name for benchmark in self.benchmarks}
        for category in self.categories:
            for cause in category.causes:
                for name in cause.found_by:
                    if name not in names:
                        raise ValueError(
                            f'"{category.name}" has a cause found by "{name}", '
                            f"which is not one of the benchmarks; {did_you_mean(name, names)}"
                        )

    @property
    def benchmark_names(self) -> tuple[str, ...]:
        return tuple(benchmark.name for benchmark in self.benchmarks)

    @property
    def span_h(self) -> float:
        return self.days * 24
