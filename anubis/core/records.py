"""The nouns of Anubis as frozen values, with no behaviour beyond what follows from a value itself.

Each idea has one word; DESIGN.md section 2 is the dictionary. Values are validated where they
enter (config, catalog, contract, store) and trusted here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Literal, Self, cast

import numpy as np
import numpy.typing as npt

from anubis.core.fabric import Fabric, Part

Samples = npt.NDArray[np.float64]
ParameterValue = int | float | str | bool
Direction = Literal["higher", "lower", "either"]  # which is better; "either": any change is worse
JudgedBy = Literal["fleet", "limit"]  # a limit: for facts that are not learned, and may be 0
Level = Literal["micro", "end-to-end"]
Scope = Literal["node", "pair", "group"]
# Which nodes meet: all together; every pair; groups side by side; one pair for each hop distance
# (and more, until every link is crossed almost surely).
Arrangement = Literal["all", "pairs", "batches", "quick", "covering", "parts", "across"]
Launcher = Literal["plain", "torchrun"]
PARTS: Arrangement = "parts"
IN_GROUPS: tuple[Arrangement, ...] = ("all", "batches")
BY_PAIRS: tuple[Arrangement, ...] = ("pairs", "quick", "covering")
MNNVL = "NCCL_MNNVL_ENABLE"  # "1": between nodes of one NVLink domain NCCL goes by NVLink alone
MOST_OF_MODEL = 80  # characters of a GPU's model
MOST_RUNS = 100_000  # the largest number of runs of a suite's entry
UNNAMED = "unnamed"  # the cluster of records from before clusters had names


@dataclass(frozen=True, kw_only=True)
class Node:
    name: str
    sku: str
    address: str = ""
    gpus: int = 0  # 0 also if unknown


@dataclass(frozen=True, kw_only=True)
class ClusterIdentity:
    """The identity of a cluster: its name, and the access to its nodes if two share a name."""

    name: str
    executor: str = ""  # "" if nothing reaches its nodes
    address: str = ""
    is_chosen: bool = False  # a person gave it this name; else it is that of its file or machine

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name) or self.name == UNNAMED:
            raise ValueError(
                f'"{self.name}" cannot name a cluster, expected letters, digits, dots and dashes'
            )


# --- how a benchmark describes itself ------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    name: str
    unit: str
    direction: Direction
    summary: str = ""
    ceiling: str = ""
    judged_by: JudgedBy = "fleet"

    @property
    def is_count(self) -> bool:
        """True for a number of things or events."""
        return self.unit == "1"

    @property
    def meaning(self) -> str:
        return f"{self.unit} ({self.direction} is better)"


@dataclass(frozen=True, kw_only=True)
class SettingSpec:
    """A fact as text that a program tells, such as a version: nodes of a sku are to have the
    same."""

    name: str
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class ParameterSpec:
    name: str
    type: Literal["int", "float", "str", "bool"]
    default: ParameterValue
    summary: str = ""
    more_is_stronger: bool = False  # a pass with more also counts if less is asked for
    of_pair_test: bool = False  # given with each step (between which devices), not in the workload
    counts: tuple[str, ...] = ()  # metrics of which each series has at least as many samples
    unless: str = ""  # the parameter that, if it is set, ends what is said of `counts`


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a node must have; a program that lacks something only at run time exits with 3."""

    packages: tuple[str, ...] = ()  # of Python
    tools: tuple[str, ...] = ()
    gpu: bool = False
    hca: bool = False  # an RDMA adapter
    min_nodes: int = 1
    min_devices: int = 1  # participating GPUs, or ranks if there are none


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec:
    name: str
    version: str
    summary: str
    stresses: str
    reveals: str
    level: Level
    scope: Scope
    duration_s: float
    metrics: tuple[MetricSpec, ...]
    parameters: tuple[ParameterSpec, ...] = ()
    needs: Needs = Needs()
    exclusive: bool = True
    launcher: Launcher = "plain"
    settings: tuple[SettingSpec, ...] = ()

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("declares no metric")
        if not 0 < self.duration_s < math.inf:
            raise ValueError(f"duration_s is {self.duration_s:g}, expected seconds above 0")
        if self.scope == "pair" and self.needs.min_nodes < 2:
            raise ValueError("scope pair needs min_nodes of at least 2")
        for parameter in self.parameters:
            if unknown := [name for name in parameter.counts if name not in self._families]:
                raise ValueError(f'{parameter.name} counts "{unknown[0]}", which is no metric')
            if parameter.counts and parameter.type != "int":
                raise ValueError(f"{parameter.name} counts samples and is no whole number")

    @property
    def crosses_rails(self) -> bool:
        """True if it can measure from one rail to another."""
        return {"shift", "rails"} <= {p.name for p in self.parameters if p.of_pair_test}

    def samples_ordered(self, parameters: Mapping[str, ParameterValue]) -> dict[str, int]:
        """The least number of samples that each series of a metric has with these parameters."""
        chosen = {p.name: p.default for p in self.parameters} | dict(parameters)
        return {
            metric: number
            for parameter in self.parameters
            for metric in parameter.counts
            if isinstance(number := chosen[parameter.name], int)
            and not chosen.get(parameter.unless)
        }

    def metric(self, name: str) -> MetricSpec | None:
        """The family of a metric: `tflops:bf16` is `tflops`, qualified."""
        return self._families.get(name.partition(":")[0])

    @cached_property
    def _families(self) -> dict[str, MetricSpec]:
        return {metric.name: metric for metric in self.metrics}


# --- what is to run ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Workload:
    """benchmark@version with its parameters: measurements of one workload are comparable."""

    benchmark: str
    version: str
    parameters: str  # canonical JSON, so that a workload can be a key

    @classmethod
    def make(
        cls, benchmark: str, version: str, parameters: Mapping[str, ParameterValue]
    ) -> Workload:
        return cls(benchmark=benchmark, version=version, parameters=canonical(parameters))

    @property
    def arguments(self) -> dict[str, ParameterValue]:
        arguments: dict[str, ParameterValue] = json.loads(self.parameters)
        return arguments

    @property
    def program_arguments(self) -> dict[str, ParameterValue]:
        return {name: v for name, v in self.arguments.items() if not name.startswith(PLANNED)}

    def add_plan_facts(self, planned: Mapping[str, str]) -> Workload:
        """Another workload with the same program and arguments, set apart by facts of the plan."""
        of_plan = {f"{PLANNED}{name}": value for name, value in planned.items()}
        return Workload.make(self.benchmark, self.version, self.arguments | of_plan)

    def distinct_from(self, siblings: Collection[Workload]) -> list[str]:
        """The arguments in which it differs from others of the same benchmark, as text."""
        return [
            f"{name}={value}"
            for name, value in self.arguments.items()
            if any(sibling.arguments.get(name) != value for sibling in siblings)
        ]

    def __str__(self) -> str:
        return f"{self.benchmark}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A test asked of a node, and the parameters that ask for more if they are larger."""

    workload: Workload
    stronger_with: tuple[str, ...] = ()

    def covers(self, workload: Workload) -> bool:
        """True if a node that passes this has also passed the other workload."""
        own = self.workload
        if (own.benchmark, own.version) != (workload.benchmark, workload.version):
            return False
        more, less = own.arguments, workload.arguments
        return more.keys() == less.keys() and all(
            more[name] == less[name]
            or (name in self.stronger_with and _is_more(more[name], less[name]))
            for name in more
        )


def _is_more(value: ParameterValue, than: ParameterValue) -> bool:
    """True if a number is larger, or if a list has all words of the other and more."""
    if isinstance(value, str) or isinstance(than, str):
        return set(str(than).split(",")) < set(str(value).split(","))
    return value > than


# in an environment: metric, device and ordered number of short series
CUT_SHORT = "cut_short"
# in an environment: devices without samples, and why (they failed, or did not answer)
FAILED_DEVICES, SILENT_DEVICES = "failed_devices", "silent_devices"
LEFT_NOTHING = (FAILED_DEVICES, SILENT_DEVICES)
MODELS = "gpu_models"  # in an environment: the model of each GPU, by device

# prefixes of names among the parameters of a workload
VARIABLE = "env."  # variables in the environment of its program
PLANNED = "plan."  # facts of the plan, which its program does not get


def check_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not value.isprintable():
            raise ValueError(f'env has "{name}", expected names of variables and printable values')


@dataclass(frozen=True, kw_only=True)
class SuiteEntry:
    benchmark: str
    """The program. `anubis bench list` shows all."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    """The program's own parameters, by name. Those left out keep their defaults."""
    repeats: int = 1
    """How often it runs. A single machine has only its repeats to learn from: at least 3."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program finds in its environment, such as NCCL_ALGO. Results with
    other variables are not compared with it."""
    timeout_s: float | None = None
    """The time after which it is killed. Default: six times `duration_s`, and at least a minute.
    With `gpus: in_turn` it is of one GPU, as `duration_s` is, and counts as often as a node has
    GPUs."""
    duration_s: float | None = None
    """How long it usually takes, for planning. Default: what the program says."""
    groups: Arrangement = "all"
    """The groups in which nodes are tested: all at once (all), every pair (pairs), groups of `size`
    nodes side by side, which load the network together (batches), a pair for each hop distance
    (quick), or pairs until every link is crossed (covering). In `anubis locate`: those that share
    no cable with others, then ever fewer (parts), and pairs between such groups (across)."""
    size: int | None = None
    """How many nodes a group of batches has."""
    rounds: int | None = None
    """How many rounds of pairs. Default: all of them."""
    repaired_only: bool = False
    """Whether only nodes that come from a repair run it (`--repaired`)."""

    def __post_init__(self) -> None:
        for name, least in (("repeats", 1), ("rounds", 1), ("size", 2)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name} is {number}, expected at least {least}")
            if number is not None and number > MOST_RUNS:
                raise ValueError(f"{name} is {number}, expected at most {MOST_RUNS:,}")
        check_variables(self.env)
        if (self.groups == "batches") is not (self.size is not None):
            raise ValueError("batches and size belong together: give both or neither")
        for name in ("timeout_s", "duration_s"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"{name} is {seconds:g}, expected a number of seconds above 0")

    @property
    def goes_by_nvlink(self) -> bool:
        """True if NCCL is to send between nodes by NVLink alone."""
        return self.env.get(MNNVL) == "1"


@dataclass(frozen=True, kw_only=True)
class Suite:
    name: str
    summary: str
    benchmarks: tuple[SuiteEntry, ...]

    def leave_out(self, *, repaired: bool) -> Suite:
        """Return the suite of nodes that come from a repair, or of all others."""
        kept = (entry for entry in self.benchmarks if repaired or not entry.repaired_only)
        return replace(self, benchmarks=tuple(kept))


@dataclass(frozen=True, kw_only=True)
class PlannedEntry:
    """A suite entry that met its benchmark: parameters complete, limits known."""

    workload: Workload
    scope: Scope
    exclusive: bool
    repeats: int
    timeout_s: float
    duration_s: float
    groups: Arrangement
    rounds: int | None
    min_nodes: int
    nodes: tuple[str, ...] | None = None  # the nodes to test; None: all that the plan tests
    size: int | None = None  # of a group of batches


@dataclass(frozen=True, kw_only=True)
class Phase:
    name: str
    entries: tuple[PlannedEntry, ...]
    crosses_fabric: bool = True  # its pairs are judged by the plan's fabric, if there is one


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """What one error counter of a port shows, or by how much it rose."""

    guid: str  # of the switch, or of the HCA's port: in hexadecimal without leading zeros
    name: str  # the name of the switch or HCA: leaf-5, node001 mlx5_0
    port: str
    counter: str  # the kernel's name: symbol_error
    value: int


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What the ports of a fabric counted, and the limits for a rise in a known time."""

    counts: tuple[Count, ...] = ()
    over_s: float | None = None  # the time of the rise; None if unknown
    stuck: tuple[Count, ...] = ()  # counters that cannot rise any more: they are at their maximum
    limits: tuple[Limit, ...] = ()
    is_whole: bool = False  # a port that is not listed counted nothing ...
    unread: tuple[tuple[str, str], ...] = ()  # ... but for these: name of the device, port or ALL


@dataclass(frozen=True, kw_only=True)
class Plan:
    suite: str
    nodes: tuple[Node, ...]
    phases: tuple[Phase, ...]
    specs: tuple[BenchmarkSpec, ...]
    left_out: tuple[str, ...] = ()  # tests of the suite that this fleet cannot run, and why
    fabric: Fabric | None = None  # the network between the nodes, if phases cross it
    counters: Counters = Counters()  # of its ports, before the campaign
    wiring: tuple[PartVerdict, ...] = ()  # verdicts on cabling, from the topology alone
    partners: tuple[str, ...] = ()  # proven nodes, as partners of tested ones
    non_blocking: bool = False  # planned pairs do not wait for each other's cables
    suspected: tuple[Part, ...] = ()  # parts that came and went in earlier campaigns

    def spec(self, workload: Workload) -> BenchmarkSpec:
        return self._specs[workload.benchmark, workload.version]

    def sku(self, node: str) -> str:
        return self._skus[node]

    def runs(self, workload: Workload) -> int:
        """The number of runs of a unit, if results do not ask for more."""
        return max(
            (e.repeats for p in self.phases for e in p.entries if e.workload == workload), default=1
        )

    @cached_property
    def crossing(self) -> frozenset[Workload]:
        """The workloads by which the fabric is judged."""
        phases = [phase for phase in self.phases if self.fabric and phase.crosses_fabric]
        entries = (entry for phase in phases for entry in phase.entries)
        return frozenset(
            entry.workload for entry in entries if entry.groups != PARTS and entry.scope != "node"
        )

    @cached_property
    def workloads(self) -> frozenset[Workload]:
        return frozenset(entry.workload for phase in self.phases for entry in phase.entries)

    @cached_property
    def across(self) -> frozenset[Workload]:
        """The workloads that only follow from results."""
        entries = (entry for phase in self.phases for entry in phase.entries)
        return frozenset(entry.workload for entry in entries if entry.groups == "across")

    @cached_property
    def reproducing(self) -> frozenset[Workload]:
        """The workloads by which a search for the part of a job that fails separates good groups
        from bad ones."""
        entries = (entry for phase in self.phases for entry in phase.entries)
        return frozenset(entry.workload for entry in entries if entry.groups == PARTS)

    @cached_property
    def in_groups(self) -> frozenset[Workload]:
        """The workloads of groups, whose slow ones are searched for the nodes that make them so."""
        entries = (entry for phase in self.phases for entry in phase.entries)
        return frozenset(
            entry.workload
            for entry in entries
            if entry.scope == "group" and entry.groups in IN_GROUPS
        )

    def crosses(self, verdict: Verdict | BatchVerdict) -> bool:
        """True if the verdict is about the fabric."""
        return (verdict.benchmark, verdict.parameters) in self._crossing

    @cached_property
    def teaching(self) -> frozenset[Workload]:
        """The workloads from which others learn: those of the suite; in a scan all that cross; in a
        search for what makes a job fail the pairs across its parts."""
        return self.workloads - self.crossing | self.across or self.workloads

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The demands, one for each workload."""
        stronger_with = {
            place: tuple(p.name for p in spec.parameters if p.more_is_stronger)
            for place, spec in self._specs.items()
        }
        return tuple(
            Demand(
                workload=workload,
                stronger_with=stronger_with.get((workload.benchmark, workload.version), ()),
            )
            for workload in dict.fromkeys(e.workload for p in self.phases for e in p.entries)
        )

    @cached_property
    def _specs(self) -> dict[tuple[str, str], BenchmarkSpec]:
        return {(spec.name, spec.version): spec for spec in self.specs}

    @cached_property
    def _crossing(self) -> frozenset[tuple[str, str]]:
        return frozenset((workload.benchmark, workload.parameters) for workload in self.crossing)

    @cached_property
    def _skus(self) -> dict[str, str]:
        return {node.name: node.sku for node in self.nodes}


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One run of a benchmark on its participants. The id says it all, so plans can be replayed."""

    id: str
    workload: Workload
    participants: tuple[str, ...]
    phase: int
    repeat: int
    timeout_s: float
    exclusive: bool

    @property
    def turn(self) -> int:
        """0 for planned steps, 1 for steps that followed from their results, and so on."""
        return self._number(3)

    @property
    def shift(self) -> int:
        """The number of rails further on at the second node of a pair: 0 for like rails."""
        return self._number(4)

    def _number(self, place: int) -> int:
        numbers = self.id.partition("/")[0].split(".")
        return int(numbers[place]) if len(numbers) > place else 0


# --- what was measured ---------------------------------------------------------------------


Models = tuple[tuple[str, str], ...]  # device and model


@lru_cache(1 << 10)
def _plain_model(name: str) -> str:
    """A model without its maker, which older drivers leave out: `A100-SXM4-80GB`."""
    return " ".join(name.split()).removeprefix("NVIDIA ")[:MOST_OF_MODEL]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """All samples of one metric on one device, without warm-up."""

    metric: str
    device: str
    samples: Samples


@dataclass(frozen=True, slots=True)
class Layout:
    """The series of the samples in a row of values, one after the other."""

    series: tuple[tuple[str, str, int], ...]  # metric, device, number of samples


@dataclass(frozen=True, eq=False, slots=True)
class Readings(Iterable[Series]):
    """The series of one execution, their samples in one row; thousands have the same layout."""

    layout: Layout
    values: Samples

    @classmethod
    def pack(cls, series: Iterable[Series] = ()) -> Self:
        parts = tuple(series)
        values = np.concatenate([part.samples for part in parts]) if parts else np.empty(0)
        values.flags.writeable = False
        layout = Layout(tuple((part.metric, part.device, len(part.samples)) for part in parts))
        return cls(layout, values)

    def __len__(self) -> int:
        return len(self.layout.series)

    def __iter__(self) -> Iterator[Series]:
        first = 0
        for metric, device, length in self.layout.series:
            yield Series(metric=metric, device=device, samples=self.values[first : first + length])
            first += length


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The document of one execution that reached its end: measured, or not applicable here."""

    series: Readings = Readings.pack()
    environment: Mapping[str, object] = field(default_factory=dict)
    not_applicable: str = ""

    @property
    def cut_short(self) -> Mapping[tuple[str, str], int]:
        """The number of samples ordered, for each series with fewer, by metric and device."""
        noted = cast(Iterable[tuple[str, str, int]], self.environment.get(CUT_SHORT, ()))
        return {(metric, device): number for metric, device, number in noted}

    @property
    def unanswered(self) -> Mapping[str, str]:
        """The devices that failed or gave no answer, each with the reason."""
        noted = (self.environment.get(name, {}) for name in LEFT_NOTHING)
        return dict(chain.from_iterable(cast(Mapping[str, str], of).items() for of in noted))

    @property
    def models(self) -> Models:
        """The model of each device that the program named."""
        noted = self.environment.get(MODELS)
        if not isinstance(noted, Mapping):
            return ()
        return tuple(
            sorted((str(device), _plain_model(str(name))) for device, name in noted.items())
        )

    @property
    def whole_series(self) -> Readings:
        """The series with as many samples as ordered, which alone prove something."""
        cut_short = self.cut_short
        if not cut_short:
            return self.series
        return Readings.pack(s for s in self.series if (s.metric, s.device) not in cut_short)


class Ended(StrEnum):
    """How an execution ended; this is no verdict.

    MEASURED has all samples. If one device of several failed or hung, FAILED and TIMED_OUT have
    those of the others.
    """

    MEASURED = "measured"
    NOT_APPLICABLE = "not-applicable"
    FAILED = "failed"  # the program itself: it crashed, or left no valid document
    NOT_RUN = "not-run"  # the infrastructure: the program could not be run
    TIMED_OUT = "timed-out"
    LOST = "lost"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One run of one step, as it is kept in the history."""

    step: Step
    attempt: int
    ended: Ended
    final: bool  # False: an infrastructure failure, tried again
    reason: str = ""
    lost: tuple[str, ...] = ()  # participants that were lost while it ran
    started_at: float | None = None
    duration_s: float = 0.0
    result: Result = Result()


# --- what it means -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CriterionKey:
    """Criteria are comparable only within one key; anything else is unknown, never healthy."""

    sku: str
    workload: Workload
    metric: str
    device_kind: str  # "cpu", "cuda": the device without its index; with its model, if it is known


@dataclass(frozen=True, kw_only=True)
class SlowShare:
    """The share of steps of healthy units that take at least `times` as long as usual."""

    times: float
    share: float
    steps: int  # from which it was learned
    correlation: float  # of two steps of one unit: 0 if slow steps come one by one


@dataclass(frozen=True, kw_only=True)
class SlowSteps:
    """Which steps of a run are slow, and how many of them a healthy unit may have."""

    usual: tuple[float, ...]  # logarithm of the usual time at each place of a run, or everywhere
    scatter: tuple[float, ...]  # how much larger it may be there by chance
    shares: tuple[SlowShare, ...]  # of what is rare: steps slower than the first are set aside
    lost: float  # the time that a healthy unit loses in slow steps, relative to its usual time
    least: float  # slow steps that cost no more than this share of a unit's rate are no defect
    once: float  # if so many slow steps are less likely than this, the unit is a suspect;
    both: float  # if those of two measurements are less likely than this, it is defective


@dataclass(frozen=True, kw_only=True)
class KnownScatter:
    """How much healthy nodes differed in a loss: a standard deviation and its degrees of
    freedom."""

    spread: float
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """The learned reference sample of one key, with what is needed to trust it or not."""

    key: CriterionKey
    unit: str
    direction: Direction
    reference: Samples  # as measured, sorted
    alpha: float
    tail: float
    units: int  # samples offered to learning: devices, groups, or repeats of one node
    healthy: int  # samples that were kept
    nodes: int
    repeatability: float | None  # None: no two measurements to compare
    refusal: str = ""  # why it cannot be used for judging; "" if it can
    proposed_alpha: float | None = None  # by the spread of the healthy; None: unknown
    shows: float | None = None  # the smallest loss in all samples that is found nine times in ten
    typical_alpha: float | None = None  # the limit of the typical loss; None: as alpha
    siblings_alpha: float | None = None  # the limit of a unit beside the others of its node
    # not above it, and within the limits of few nodes or of coarse values: unknown
    doubt_alpha: float | None = None
    slow_steps: SlowSteps | None = None  # None: they are not counted
    stalls: float | None = None  # the smallest share of samples that is found if half as good
    repeats: int | None = None  # times the measuring that alpha takes; 0: never; None: unknown
    scatter: KnownScatter | None = None  # of the mean loss of healthy nodes; None: not known
    typical_scatter: KnownScatter | None = None  # of their typical loss
    earlier: int = 0  # campaigns before, whose scatter its limits rest on too
    from_repeats: bool = False  # the units were repeats of one machine: it describes only that one

    def __str__(self) -> str:
        return f"{self.key.workload} {self.key.metric} ({self.key.sku})"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    suite: str
    anubis: str
    digest: str  # of the measurements it was learned from
    created_at: str
    versions: Mapping[str, str] = field(default_factory=dict)  # of driver, CUDA, NCCL, cuDNN


@dataclass(frozen=True, kw_only=True)
class NodeKind:
    """One of several kinds of nodes that learning found under one sku."""

    sku: str  # their common sku
    label: str  # a sku of its own: nodes with it need not be separated
    nodes: tuple[str, ...]
    confidence: float  # in several kinds under the sku; not in the kind of each node
    metric: str  # the metric that separates the kinds best, with the typical value of this kind
    typical: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class CriteriaSet:
    """The criteria of one SKU, or of one kind of nodes under it: the content of one file."""

    sku: str
    criteria: tuple[Criterion, ...]
    provenance: Provenance
    node_kind: NodeKind | None = None  # if the sku alone does not identify their nodes

    @property
    def nodes_sku(self) -> str:
        return self.node_kind.sku if self.node_kind else self.sku


_DISTANCE = re.compile(r" (at \d+ hops|in groups of \d).*")


def strip_distance(sku: str) -> str:
    """The sku without the distance of its pairs or the size of its groups."""
    return _DISTANCE.sub("", sku)


def sets_taught_by(sets: Iterable[CriteriaSet], plan: Plan) -> tuple[CriteriaSet, ...]:
    """The sets without those that only judge the plan's own fabric."""
    return tuple(
        of_sku
        for of_sku in sets
        if not of_sku.criteria or any(c.key.workload in plan.teaching for c in of_sku.criteria)
    )


def new_criteria(
    before: Iterable[CriteriaSet], new: Iterable[CriteriaSet]
) -> tuple[CriteriaSet, ...]:
    """The new criteria whose keys have no trusted criterion before."""
    trusted = {key for key, criterion in criteria_by_key(before).items() if not criterion.refusal}
    left = (
        replace(of_sku, criteria=tuple(c for c in of_sku.criteria if c.key not in trusted))
        for of_sku in new
    )
    return tuple(of_sku for of_sku in left if of_sku.criteria)


def criteria_by_key(sets: Iterable[CriteriaSet]) -> dict[CriterionKey, Criterion]:
    return {
        criterion.key: criterion for criteria_set in sets for criterion in criteria_set.criteria
    }


class Judgement(StrEnum):
    HEALTHY = "healthy"
    DEFECTIVE = "defective"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


FAILED_ONCE = "FAILED-ONCE"  # code of a verdict: the program is to be tried again on this node
TOO_FEW_NODES = "TOO-FEW-NODES"  # a loss that may be chance among so few
TOO_COARSE = "TOO-COARSE"  # a loss that may be a matter of rounding
TOO_GOOD = "TOO-GOOD"  # what cannot have been measured right
# codes of verdicts on good measurements that could not be compared with anything
COMPARED_IN_VAIN = frozenset(
    {"NO-CRITERION", "CRITERION-REFUSED", "NO-MAJORITY", TOO_FEW_NODES, TOO_COARSE}
)
WORST_FIRST = (Judgement.DEFECTIVE, Judgement.UNKNOWN, Judgement.NOT_APPLICABLE, Judgement.HEALTHY)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One judgement with its stable code, its evidence and one sentence."""

    participants: tuple[str, ...]
    benchmark: str
    parameters: str = ""  # of the workload, as it writes them
    metric: str = ""
    device: str = ""
    judgement: Judgement
    code: str
    reason: str
    # what is wrong without name, place and amount, for groups; empty: the reason has none of these
    cause: str = ""
    similarity: float | None = None
    alpha: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class BatchVerdict(Collection[Verdict]):
    """The same verdict on many units of one metric, in columns: most of a fleet is healthy."""

    benchmark: str
    parameters: str
    metric: str
    judgement: Judgement
    code: str
    reason: str
    alpha: float | None
    participants: tuple[tuple[str, ...], ...]
    devices: tuple[str, ...]
    similarities: Samples | None  # None: there was nothing to compare with

    def __len__(self) -> int:
        return len(self.devices)

    def __contains__(self, item: object) -> bool:
        return any(verdict == item for verdict in self)

    def __iter__(self) -> Iterator[Verdict]:
        similarities = repeat(None) if self.similarities is None else self.similarities.tolist()
        for participants, device, similarity in zip(
            self.participants, self.devices, similarities, strict=False
        ):
            yield Verdict(
                participants=participants,
                benchmark=self.benchmark,
                parameters=self.parameters,
                metric=self.metric,
                device=device,
                judgement=self.judgement,
                code=self.code,
                reason=self.reason,
                similarity=similarity,
                alpha=self.alpha,
            )


@dataclass(frozen=True, kw_only=True)
class NodeVerdict:
    """The verdict on a node: defective if any part of it is, unknown if nothing proves it good."""

    node: str
    judgement: Judgement
    code: str
    reason: str
    cause: str = ""  # as in its worst verdict; empty: the reason
    # benchmarks that it did not answer; None: not recorded which
    owes: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PartVerdict:
    """The verdict on a part between nodes, or on several that cannot be told apart.

    Where no fabric is known, it is the path between the nodes that did badly together.
    """

    parts: tuple[Part, ...] = ()  # of the fabric, the most probable first
    nodes: tuple[str, ...] = ()  # the ends of a path
    benchmarks: tuple[str, ...] = ()  # in which they did badly, the worst first
    subject: str  # the same in words: `switch leaf3`
    judgement: Judgement
    code: str
    reason: str
    # that it is one of them, not another part or chance; None if it was not computed
    confidence: float | None = None
    evidence: tuple[str, ...] = ()  # the worst flows that cross it, a sentence each

    @property
    def is_between_nodes(self) -> bool:
        return bool(self.nodes) or any(part.kind != "node" for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """All verdicts of a campaign, and from them one on each node and on the parts between."""

    alone: tuple[Verdict, ...]  # verdicts with a sentence of their own, worst first
    batch_verdicts: tuple[BatchVerdict, ...] = ()
    nodes: tuple[NodeVerdict, ...]
    parts: tuple[PartVerdict, ...] = ()
    to_confirm: frozenset[tuple[str, Workload]] = frozenset()
    """Nodes that passed with more slow steps than most, and the program that shows it: a second
    measurement decides. It is not kept with the verdicts."""

    @property
    def judgement(self) -> Judgement:
        """The overall judgement: healthy only if every node and every part between them is."""
        judgements = {node.judgement for node in self.nodes}
        judgements |= {part.judgement for part in self.parts}
        if Judgement.DEFECTIVE in judgements:
            return Judgement.DEFECTIVE
        return Judgement.HEALTHY if judgements == {Judgement.HEALTHY} else Judgement.UNKNOWN

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts one by one, worst first. There may be millions: take only what you
        need."""
        for judgement in WORST_FIRST:
            yield from (verdict for verdict in self.alone if verdict.judgement is judgement)
            for batch_verdict in self.batch_verdicts:
                if batch_verdict.judgement is judgement:
                    yield from batch_verdict

    def __len__(self) -> int:
        """The number of verdicts."""
        return len(self.alone) + sum(map(len, self.batch_verdicts))

    def named(self, judgement: Judgement) -> tuple[str, ...]:
        return tuple(node.node for node in self.nodes if node.judgement is judgement)

    def parts_named(self, judgement: Judgement) -> tuple[str, ...]:
        """The parts between the nodes with this judgement; a node that a scan found is among the
        nodes."""
        return tuple(
            verdict.subject
            for verdict in self.parts
            if verdict.judgement is judgement and verdict.is_between_nodes
        )

    @property
    def lost(self) -> dict[str, str]:
        """The lost nodes, each with the reason, for judging again."""
        return {v.participants[0]: v.reason for v in self.alone if v.code == "NODE-LOST"}


class CampaignKind(StrEnum):
    """The purpose of a campaign. Ask for these facts, never for its name."""

    ACCEPT = "accept"
    VALIDATE = "validate"
    SCAN = "scan"
    LOCATE = "locate"
    IMPORT = "import"  # another tool measured

    @property
    def learns(self) -> bool:
        """True if it is judged by criteria from its own measurements, now and when judged again."""
        return self in (CampaignKind.ACCEPT, CampaignKind.IMPORT)

    @property
    def needs_criteria(self) -> bool:
        """True if it does not start without criteria that were learned before."""
        return self is CampaignKind.VALIDATE

    @property
    def can_resume(self) -> bool:
        return self is not CampaignKind.IMPORT

    @property
    def validates(self) -> bool:
        """True if its verdicts then count as the last validation of its nodes."""
        return self is not CampaignKind.IMPORT

    @property
    def names_parts(self) -> bool:
        """True if it measures only the fabric, and names the part behind its bad pairs."""
        return self is CampaignKind.SCAN

    @property
    def judges_fabric(self) -> bool:
        """True if it judges the cabling of its nodes and the parts between, given a topology."""
        return self in (CampaignKind.ACCEPT, CampaignKind.SCAN, CampaignKind.LOCATE)

    @property
    def narrows(self) -> bool:
        """True if it divides its nodes until a failing part is left, and hands back the others."""
        return self is CampaignKind.LOCATE

    @property
    def is_signed(self) -> bool:
        """True if its report is a document between those who hand over and those who take over."""
        return self is CampaignKind.ACCEPT


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """One plan being carried out, as the history knows it."""

    id: str
    cluster: str = UNNAMED
    kind: CampaignKind
    plan: Plan
    policy: Policy
    executor: str
    setting: str = ""  # how to resume it, as JSON; for an import, a digest of its input
    criteria: tuple[CriteriaSet, ...] = ()  # to judge by; empty while it still learns
    created_at: float
    finished_at: float | None = None

    @property
    def is_in_memory(self) -> bool:
        """True if its nodes are simulated: then its executions have dates of their own clock."""
        return self.executor == "simulated"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound on a metric whatever the fleet does: eight broken GPUs do not make a normal."""

    benchmark: str
    """The program that measures it."""
    metric: str
    """A metric, or one of its family: `xids:79` takes precedence over `xids`."""
    at_most: float | None = None
    """The largest good sample."""
    at_least: float | None = None
    """The smallest good sample."""
    equals: float | None = None
    """The only good sample. It excludes the other two bounds."""
    source: str
    """The place that the number comes from."""
    action: str = ""
    """What to do about a part outside the limit."""
    table: str = ""  # the file that has it, and its version; "" for one of the policy's own

    def __post_init__(self) -> None:
        bounds = [b for b in (self.at_most, self.at_least, self.equals) if b is not None]
        subject = f'the limit of "{self.metric}"'
        if not bounds:
            raise ValueError(f"{subject} has no bound: expected at_most, at_least or equals")
        if not all(0 <= bound < math.inf for bound in bounds):
            raise ValueError(f"{subject} is not a finite number of 0 or more")
        if self.equals is not None and len(bounds) > 1:
            raise ValueError(f"{subject} has equals and another bound: expected one of them")
        if len(bounds) > 1 and bounds[0] < bounds[1]:
            raise ValueError(f"{subject} allows nothing: at_most is below at_least")

    def excess(self, samples: Samples) -> Samples:
        """The amount by which each sample is outside the limit; 0 or less if it is within."""
        excess = np.full(samples.shape, -np.inf)
        if self.equals is not None:
            excess = np.abs(samples - self.equals)
        if self.at_most is not None:
            excess = np.maximum(excess, samples - self.at_most)
        if self.at_least is not None:
            excess = np.maximum(excess, self.at_least - samples)
        return excess

    def __str__(self) -> str:
        """The limit in a sentence: `at most 0`."""
        return self._words("at most ", "at least ", "exactly ")

    @property
    def symbols(self) -> str:
        """The limit in a table: `≤ 0`."""
        return self._words("≤ ", "≥ ", "= ")

    def _words(self, at_most: str, at_least: str, equals: str) -> str:
        words = ((at_least, self.at_least), (at_most, self.at_most), (equals, self.equals))
        return ", ".join(f"{word}{bound:g}" for word, bound in words if bound is not None)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The required value of a setting, whatever most nodes have."""

    setting: str
    """Its name, as the program reports it. `*` matches any letters, `?` one."""
    device: str = "*"
    """The devices that have it, likewise. `node`: those of the node itself."""
    sku: str = "*"
    """The sku of the nodes that have it, likewise."""
    gpu_kind: str = "*"
    """The kind of the GPU that has it, likewise, as the program reports it."""
    equals: tuple[str, ...] = ()
    """The right values, likewise. Without any it may differ: it is reported, but not judged."""
    is_advice: bool = False
    """Whether another value is only reported, with the source, and makes no node defective."""
    source: str
    """Why: a release note, a ticket, a decision of the site."""

    @property
    def may_differ(self) -> bool:
        return not self.equals

    def fits(self, sku: str, setting: str, device: str, gpu_kind: str = "") -> bool:
        pairs = (
            (sku, self.sku),
            (setting, self.setting),
            (device, self.device),
            (gpu_kind, self.gpu_kind),
        )
        return all(fnmatchcase(text, pattern) for text, pattern in pairs)

    def allows(self, text: str) -> bool:
        return any(fnmatchcase(text, pattern) or text == pattern for pattern in self.equals)


@dataclass(frozen=True, kw_only=True)
class SelectionPolicy:
    """When a test is worth its time."""

    p0: float | Literal["job"] = 0.1
    """Test while the chance of an incident that no test foresees is above it. `job`: the chance at
    which the incident is expected to cost the job as much time as the whole suite takes."""
    horizon_h: float = 24.0
    """How far ahead to look if no job says so, in hours."""
    half_life_h: float = 168.0
    """The hours after which a passed test covers half of what it covers when it has just run."""
    prior: float = 0.05
    """What a benchmark may yet find: this much of one defect if it was tried in vain on all known
    ones, this share of all defects if it was never tried. At least 1/n of n benchmarks: few known
    defects do not show that one benchmark finds all."""
    category_prior: float = 2.0
    """How many defects of all categories are added to the known ones of each category."""
    above_p0: Literal["go", "run", "unknown"] = "unknown"
    """What a gate does if a risk above p0 is left after all tests that are worth their time.
    `unknown`: no node passes. `run`: all tests that lower the risk run first, even those that
    are not worth their time. If these leave too much, no node passes. `go`: the job may start, and
    the answer states the risk."""
    defective_parts: Literal["go", "no-go"] = "no-go"
    """What a gate does if a scan found a link or a switch between its nodes defective, and none has
    cleared it since. `go`: the job may start, and the answer names the part."""
    silence_d: float = 30.0
    """Number of days after the last reported incident for which silence is a sign of health. Longer
    silence lowers no risk."""
    search: Literal["greedy", "optimum"] = "optimum"
    """`optimum` looks for the cheapest sufficient choice, in a limited number of steps, and takes
    the better one of what it has found by then and the greedy choice. `greedy`, as the ANUBIS paper
    does, first takes what lowers the risk most per second."""

    def prior_of(self, benchmarks: int) -> float:
        """Return what each of so many benchmarks may yet find."""
        return max(self.prior, 1 / benchmarks) if benchmarks else self.prior

    def __post_init__(self) -> None:
        if isinstance(self.p0, str) and self.p0 != "job":
            raise ValueError(f'p0 is "{self.p0}", expected a probability or "job"')
        if not isinstance(self.p0, str) and not 0 <= self.p0 <= 1:
            raise ValueError(f'p0 is {self.p0:g}, expected a probability from 0 to 1, or "job"')
        for name in ("horizon_h", "half_life_h"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected hours above 0")
        if not 0 <= self.silence_d < math.inf:
            raise ValueError(f"silence_d is {self.silence_d:g}, expected days, 0 or more")
        for name in ("prior", "category_prior"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class MetricAlpha:
    """An alpha of their own for some metrics."""

    benchmark: str = "*"
    """The programs, by name: `*` matches any letters, `?` one. In quotes."""
    metric: str = "*"
    """Their metrics, likewise: `tflops:*`."""
    alpha: float
    """Their alpha, in place of the policy's."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha:g}, expected a similarity between 0 and 1")

    def fits(self, benchmark: str, metric: str) -> bool:
        return fnmatchcase(benchmark, self.benchmark) and fnmatchcase(metric, self.metric)


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What to do about a node or a part whose verdict has one of these codes."""

    codes: tuple[str, ...]
    """Codes of verdicts. `*` matches any letters, `?` one."""
    action: str
    """What to do."""
    evidence: str = ""
    """What a vendor asks for before a part is replaced under warranty."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands of the site that repair the node, each a list of words, in the order in which they
    are tried. A word that is `{node}`, or has it, names the node. They run if the keeping policy
    says so (`repair`)."""
    limit_s: float = 1800.0
    """How long one of them may take."""

    def commands_for(self, node: str) -> list[tuple[str, ...]]:
        """Words of its commands for a node."""
        return [tuple(w.replace("{node}", node) for w in words) for words in self.commands]


@dataclass(frozen=True, kw_only=True)
class PolicyKeys:
    """The keys that a policy and its file have in common."""

    alpha: float = 0.95
    """A sample is defective when its similarity to the fleet's reference is not above it. For a
    single number, 0.95 means 5 % worse."""
    alphas: tuple[MetricAlpha, ...] = ()
    """Metrics with an alpha of their own. Of several that fit a metric the last counts."""
    calibrated: bool = True
    """Whether a run is judged by its mean, its typical step and the number of its slow steps, each
    with a limit as strict as the metric allows. If false, by alpha, as in the paper."""
    own_alpha: bool = False
    """Whether a criterion may be stricter than `alpha` if the spread of its metric allows it."""
    false_alarm_rate: float = 1e-3
    """How often one program may find a healthy node below the limits that are calibrated, by all
    its metrics and devices together."""
    confirm: bool = True
    """Whether what falls short on a single node, or has more slow steps than most, is measured
    there once more, beside a node that is well, before it is called a defect. So is a pair of nodes
    that do well with others, if no topology is known."""
    min_units: int = 3
    """The smallest number of comparable units (devices, groups, repeats of one machine) from which
    anything is learned."""
    retries: int = 1
    """How often a step is retried if the infrastructure failed, never after a bad result."""
    stop_early: bool = False
    """Whether a node that micro-benchmarks find defective is spared the end-to-end ones. That saves
    their time, but whether they would have found the defect is then never learned."""
    selection: SelectionPolicy = SelectionPolicy()
    """When a test is worth its time: `anubis gate` and `anubis sweep`."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha:g}, expected a similarity between 0 and 1")
        if not 0 < self.false_alarm_rate < 0.5:
            raise ValueError(
                f"false_alarm_rate is {self.false_alarm_rate:g}, expected a share like 0.0001"
            )
        if self.min_units < 3:
            raise ValueError(f"min_units is {self.min_units}: fewer than 3 cannot outvote one")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}, expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Policy(PolicyKeys):
    """The rules for judging and for campaigns; read from configs/policies/."""

    tail: float = 0.05
    """The lightest slow tail that counts in full, as a share of the samples. A lighter one counts
    in proportion. It applies to runs whose slow steps are not counted (single values, fewer than 8
    steps, `calibrated: false`). 0 is the formula of the ANUBIS paper."""
    limits: tuple[Limit, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tail <= 1:
            raise ValueError(f"distance.tail is {self.tail:g}, expected a share from 0 to 1")

    def alpha_of(self, benchmark: str, metric: str) -> float:
        fitting = (rule.alpha for rule in reversed(self.alphas) if rule.fits(benchmark, metric))
        return next(fitting, self.alpha)

    def metric_policy(self, benchmark: str, metric: str) -> Policy:
        """The policy with the alpha of this metric as the only one."""
        return replace(self, alpha=self.alpha_of(benchmark, metric), alphas=())


def canonical(value: object) -> str:
    """JSON with one spelling per value; NaN is refused because no reader could compare it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
