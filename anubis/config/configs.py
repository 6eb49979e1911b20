"""Read configs/*.yaml into records: clusters, orchestrators, suites, policies, mappings and more.

A name means the file of that name under configs/: the user's first, then the shipped one. A value
with a slash or a suffix is a path. An unknown key is an error.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from anubis.core.errors import ConfigError, HostlistError, UnknownNameError, did_you_mean
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.records import (
    ClusterIdentity,
    Expectation,
    Limit,
    Policy,
    PolicyKeys,
    Remedy,
    Suite,
    SuiteEntry,
    check_variables,
)
from anubis.core.text import escape_line
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.reach.executors.machine import port_range
from anubis.reach.executors.start_settings import (
    PodSettings,
    PodStart,
    RayStart,
    StartSettings,
    start_ways,
)
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from anubis.reach.orchestrators.orchestrator import OrchestratorSettings, settings_kinds
from anubis.text import hostlist, places
from anubis.text.reading import Shape, kind_of, load_record, load_yaml, read

if TYPE_CHECKING:  # what a gate need not load
    from anubis.core.diagnose.cures import DiagnosisPolicy
    from anubis.core.diagnose.error_classes import ErrorClasses
    from anubis.core.watch.watch_settings import WatchPolicy
    from anubis.lab.study.scenario import Scenario
    from anubis.reach.notifiers.notifier import NotifierSettings
    from anubis.reach.orchestrators.pod_gate import PodGate
    from anubis.readers.incidents.incident_mapping import IncidentMapping
    from anubis.readers.telemetry.config import TelemetrySettings

SHOWN = 60  # characters of a wrong value that an error quotes
PORTS_AT_LEAST = 50  # in a range that Ray shares with programs; the driver's machine uses it twice


@dataclass(frozen=True, kw_only=True)
class _Nodes:
    """Keys of all clusters of real nodes: how programs are started there."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that every program finds in its environment, such as NCCL_IB_HCA. They come before
    what the nodes themselves have."""
    prefix: tuple[str, ...] = ()
    """Words before each program's command, such as those that run it in a container. It must see
    the folder of the programs there, and pass variables on."""
    python: str = ""
    """The Python that runs the programs, with torch. Default: the one that runs Anubis there."""
    ports: str = ""
    """Ports at which programs may listen, as `20000-20999`. Default: any that are free."""
    shared_gpus: bool = False
    """Whether to measure even if other processes use a node's GPUs. By default, such a node is left
    alone, and is unknown."""
    orchestrator: OrchestratorSettings | None = None
    """The owner of the nodes, whose work is left alone: a name under configs/orchestrators/, or
    what such a file says, as a table. Default: only Anubis."""
    keeping: str = ""
    """The policy of the keeper of this cluster: a name under configs/keeping/, or a file beside
    this one. Default: the policy of its last turn, at first `default`."""
    topology: str = ""
    """How its nodes are cabled, for `scan` and `locate` without --topology: a name under
    configs/topologies/, or a file beside this one. Default: read from the fabric itself."""

    def __post_init__(self) -> None:
        check_variables(self.env)
        if self.ports:
            port_range(self.ports)

    @property
    def settings(self) -> StartSettings:
        return StartSettings(**{key.name: getattr(self, key.name) for key in fields(StartSettings)})


@dataclass(frozen=True, kw_only=True)
class LocalCluster(_Nodes):
    """This machine."""

    executor: Literal["local"]
    name: str = ""
    """The name of this cluster in the history: letters, digits, dots and dashes. Nodes of different
    clusters are never mixed up. Default: the name of this machine."""
    site: str = ""
    """The place of the cluster, for the cover of reports."""
    sku: str = ""
    """A name for the kind of hardware: only nodes of the same kind are compared. Default: the name
    of the GPU, or else of the processor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_name(self.name)


@dataclass(frozen=True, kw_only=True)
class RayCluster(_Nodes):
    """Every node of a Ray cluster, or those named."""

    executor: Literal["ray"]
    name: str = ""
    """The name of this cluster in the history: letters, digits, dots and dashes. Nodes of different
    clusters are never mixed up. Default: the name of this file."""
    site: str = ""
    """The place of the cluster, for the cover of reports."""
    address: str = ""
    """`host:port` of the head, or `local`: Ray is started on this machine alone. Default:
    `$RAY_ADDRESS`."""
    start: str | None = None
    """`ssh`, `slurm` or `kubernetes`: start Ray on just the nodes under test, and stop it
    afterwards. It replaces `address` and `token`. Default: Ray runs already."""
    start_options: tuple[str, ...] = ()
    """More words for ssh (`[-F, /etc/anubis/ssh_config]`) or for srun (`[--partition=gpu,
    --gres=gpu:8]`)."""
    start_pod: PodSettings | None = None
    """The pod that runs on each node under test with `start: kubernetes`, as `{image: NAME}`."""
    drained_by: tuple[str, ...] = ()
    """The way to drained nodes without a job, if `start: slurm` cannot start one there: `[ssh]` or
    `[ssh, -F, /etc/anubis/ssh_config]`. Default: these nodes are absent."""
    ray_python: str = ""
    """The Python that has Ray on the nodes. Default: the path of the one that runs Anubis here; in
    a pod `python3`."""
    ray_prefix: tuple[str, ...] = ()
    """Words before that Python, such as those that load a module or run a container."""
    driver_address: str = ""
    """The address at which the nodes reach this machine. Default: the one by which packets leave
    for the first of them."""
    token: str = ""
    """The file with the token of a closed Ray, readable by its owner only. Default: the token that
    Ray itself finds, in `$RAY_AUTH_TOKEN`, `$RAY_AUTH_TOKEN_PATH` or `~/.ray/auth_token`."""
    nodes: str = ""
    """The nodes to use: a node list, or @file, beside this file. Default: all nodes of Ray; with
    `start:`, all nodes of the orchestrator that are not kept from jobs."""
    sku: str = ""
    """The kind of hardware, if all nodes are alike and the names of their parts are not specific
    enough."""
    skus: Mapping[str, str] = field(default_factory=dict)
    """Kinds of hardware that the nodes do not report: a sku, and the list of its nodes."""
    parallel_nodes: int | None = None
    """How many nodes may work at once. Without it, all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_name(self.name)
        _check_parallel_nodes(self.parallel_nodes)
        if self.nodes:
            hostlist.expand(self.nodes)
        hostlist.labels(self.skus)
        self._check_start()

    def _check_start(self) -> None:
        if self.start is not None:
            if self.start not in (ways := start_ways()):
                raise ValueError(f'"start" is "{self.start}"; {did_you_mean(self.start, ways)}')
            for name in ("address", "token"):
                if getattr(self, name):
                    raise ValueError(
                        f'"{name}" (use a Ray that runs already) and "start" (bring one up)'
                        " exclude each other"
                    )
            if self.drained_by:
                self._check_drained_by(self.start)
            if (self.start == "kubernetes") != (self.start_pod is not None):
                raise ValueError('"start: kubernetes" and "start_pod" with an image go together')
            if self.start == "kubernetes" and self.start_options:
                raise ValueError('"start_options" is for ssh and srun; pods have "start_pod"')
            if self.ports and len(port_range(self.ports)) < PORTS_AT_LEAST:
                raise ValueError(f"ports: {self.ports} has fewer than {PORTS_AT_LEAST}")
        else:
            for name in (
                "start_options",
                "start_pod",
                "drained_by",
                "ray_python",
                "ray_prefix",
                "driver_address",
            ):
                if getattr(self, name):
                    raise ValueError(f'"{name}" is for a Ray that is brought up: add "start"')

    def _check_drained_by(self, start: str) -> None:
        ways = [name for name, way in start_ways().items() if way.refused_nodes]
        if start not in ways or self.drained_by[0] != "ssh":
            words = " or ".join(f'"start: {name}"' for name in ways)
            raise ValueError(f'"drained_by" is for {words} and begins with "ssh"')

    @property
    def way(self) -> RayStart | None:
        """Settings for starting Ray on the nodes; None if Ray runs already."""
        if self.start is None:
            return None
        return RayStart(
            by=self.start,
            pods=self._pods,
            options=self.start_options,
            drained_by=self.drained_by,
            prefix=self.ray_prefix,
            python=self.ray_python or ("python3" if self.start_pod else sys.executable),
            env=self.env,
            ports=self.ports,
            driver_address=self.driver_address,
        )

    @property
    def _pods(self) -> PodStart | None:
        if self.start_pod is None:
            return None
        if not isinstance(self.orchestrator, KubernetesSettings):
            raise ConfigError(
                "`start: kubernetes` asks the Kubernetes that owns the nodes: add"
                " `orchestrator: kubernetes` to the cluster's file"
            )
        return PodStart(settings=self.start_pod, kubernetes=self.orchestrator)


@dataclass(frozen=True, kw_only=True)
class SimulatedCluster:
    """A fleet that exists in memory only, with planted defects."""

    executor: Literal["simulated"]
    name: str = ""
    """The name of this cluster in the history: letters, digits, dots and dashes. Nodes of different
    clusters are never mixed up. Default: the name of this file."""
    site: str = ""
    """The place of the cluster, for the cover of reports."""
    fleet: SimulatedFleet = field(default_factory=SimulatedFleet)
    """How large, how even and how troubled it is."""
    parallel_nodes: int | None = None
    """How many nodes may work at once. Without it, all of them."""
    keeping: str = ""
    """The policy of the keeper of this cluster: a name under configs/keeping/, or a file beside
    this one. Default: the policy of its last turn, at first `default`."""
    topology: str = ""
    """How its nodes are cabled, for `scan` and `locate` without --topology: a name under
    configs/topologies/, or a file beside this one. Default: all are on one switch."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_parallel_nodes(self.parallel_nodes)
        hostlist.expand(self.fleet.nodes)


Cluster = LocalCluster | RayCluster | SimulatedCluster
CLUSTERS: dict[str, type[Cluster]] = {
    "local": LocalCluster,
    "ray": RayCluster,
    "simulated": SimulatedCluster,
}


@dataclass(frozen=True, kw_only=True)
class _SuiteFile:
    summary: str
    """What it is for, in one line."""
    benchmarks: tuple[SuiteEntry, ...]
    """What is run, in this order."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that all of its programs find in their environment; an entry's own come first."""

    def __post_init__(self) -> None:
        check_variables(self.env)
        if not self.benchmarks:
            raise ValueError("names no benchmark")


@dataclass(frozen=True, kw_only=True)
class _Distance:
    tail: float = Policy.tail


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """A limit as written in the table of its benchmark."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None
    equals: float | None = None
    source: str
    action: str = ""

    def __post_init__(self) -> None:
        self.limit("", "")

    def limit(self, benchmark: str, table: str) -> Limit:
        return Limit(benchmark=benchmark, table=table, **vars(self))


@dataclass(frozen=True, kw_only=True)
class _LimitsFile:
    version: int
    """Raise it with every change: it is stored with each campaign."""
    benchmark: str
    """The program that measures all of them; "*": whatever program measures them."""
    limits: tuple[_Bound, ...]
    """The limits."""

    def __post_init__(self) -> None:
        _check_each_once([bound.metric for bound in self.limits])


@dataclass(frozen=True, kw_only=True)
class _RemediesFile:
    remedies: tuple[Remedy, ...]
    """The remedies. Of several that fit a code the last counts."""

    def __post_init__(self) -> None:
        for remedy in self.remedies:
            if not 0 < remedy.limit_s < math.inf:
                raise ValueError(f"limit_s is {remedy.limit_s:g}, expected more than 0 seconds")
            for words in remedy.commands:
                if not any("{node}" in word for word in words):
                    raise ValueError(f'the command "{" ".join(words)}" has no word with {{node}}')


@dataclass(frozen=True, kw_only=True)
class _ExpectationsFile:
    expectations: tuple[Expectation, ...]
    """The expectations. Of several that fit a setting the last counts."""


@dataclass(frozen=True, kw_only=True)
class _PolicyFile(PolicyKeys):
    """The policy as grouped in the file; core keeps it flat."""

    summary: str = ""
    """How strict it is, in one line."""
    distance: _Distance = _Distance()
    """How two samples are compared."""
    limits: tuple[str, ...] = ("node_health", "dcgm_diag", "answers", "under_load", "sdc_screen")
    """Tables of limits, by their names under configs/policies/limits/. They apply whatever the
    fleet shows."""
    overrides: tuple[Limit, ...] = ()
    """Single limits that replace those of the tables on this site, each given in full."""
    expectations: tuple[str, ...] = ("node_config",)
    """Tables of what settings of nodes are to be, by their names under
    configs/policies/expectations/. Any other setting is to be that of most nodes of its sku."""
    remedies: tuple[str, ...] = ("default",)
    """Tables of what to do about a verdict, by their names under configs/policies/remedies/."""

    def __post_init__(self) -> None:
        self.record((), (), ())

    def record(
        self,
        limits: tuple[Limit, ...],
        expectations: tuple[Expectation, ...],
        remedies: tuple[Remedy, ...],
    ) -> Policy:
        return Policy(
            tail=self.distance.tail,
            limits=limits,
            expectations=expectations,
            remedies=remedies,
            **{key.name: getattr(self, key.name) for key in fields(PolicyKeys)},
        )


def cluster(name: str) -> Cluster:
    """Read a cluster, with the node files that it names: a campaign keeps the nodes by name."""
    path = find("clusters", name)
    document = load_yaml(path, ConfigError)
    for table in (document, document.get("fleet"), document.get("orchestrator")):
        _read_nodes_beside(table, path)
    written = document.get("keeping")
    if isinstance(written, str) and is_path(written):
        document["keeping"] = str(path.parent / written)
    cabled = document.get("topology")
    with suppress(OSError):  # a name may be too long for a file
        if isinstance(cabled, str) and (path.parent / cabled).is_file():
            document["topology"] = str(path.parent / cabled)
    return read_cluster(document, f'"{path}"')


def read_cluster(document: Mapping[str, object], where: str) -> Cluster:
    """Read a cluster from the table in its file, or from the one that a campaign kept."""
    is_real = document.get("executor") != "simulated"  # simulated nodes have no other owner
    owner = document.get("orchestrator") if is_real else None
    own = {key: value for key, value in document.items() if key != "orchestrator" or not is_real}
    described = _read_by_kind(own, where, "executor", CLUSTERS)
    if owner is None or isinstance(described, SimulatedCluster):
        return described
    return replace(described, orchestrator=_orchestrator_in(owner, where))


def orchestrator(name: str) -> OrchestratorSettings:
    path = find("orchestrators", name)
    document = load_yaml(path, ConfigError)
    _read_nodes_beside(document, path)
    return _read_by_kind(document, f'"{path}"', "kind", settings_kinds())


def _read_nodes_beside(table: object, path: Path) -> None:
    """Replace `nodes: @file` by the nodes in that file, which is beside the given one."""
    if isinstance(table, dict) and str(table.get("nodes")).startswith("@"):
        try:
            table["nodes"] = hostlist.compress(hostlist.read(str(table["nodes"]), path.parent))
        except HostlistError as error:
            raise ConfigError(f'"{path}": {error}') from None


def _orchestrator_in(written: object, where: str) -> OrchestratorSettings:
    """Read the orchestrator in a cluster's file: the name of a file, or a table."""
    match written:
        case str():
            return orchestrator(written)
        case dict():
            return _read_by_kind(written, f'{where}, "orchestrator"', "kind", settings_kinds())
    raise ConfigError(f'{where}: "orchestrator" is {kind_of(written)}, expected a name or a table')


def suite(name: str) -> Suite:
    path = find("suites", name)
    file = load_record(path, _SuiteFile, ConfigError)
    entries = (replace(entry, env={**file.env, **entry.env}) for entry in file.benchmarks)
    return Suite(name=path.stem, summary=file.summary, benchmarks=tuple(entries))


def policy(name: str) -> Policy:
    path = find("policies", name)
    file = load_record(path, _PolicyFile, ConfigError)
    tables = [limit for table in file.limits for limit in limits(table)]
    expected = [rule for table in file.expectations for rule in expectations(table)]
    actions = [remedy for table in file.remedies for remedy in remedies(table)]
    bounds = _override_limits(tables, file.overrides, f'"{path}"')
    return file.record(bounds, tuple(expected), tuple(actions))


def simulation(name: str) -> Scenario:
    from anubis.lab.study.scenario import Scenario

    path = find("simulations", name)
    return load_record(path, Scenario, ConfigError)


def keeping(name: str) -> KeepingPolicy:
    path = find("keeping", name)
    return load_record(path, KeepingPolicy, ConfigError)


def limits(name: str) -> tuple[Limit, ...]:
    """A table of limits, by its name under configs/policies/limits/."""
    path = find("policies/limits", name)
    file = load_record(path, _LimitsFile, ConfigError)
    return tuple(
        bound.limit(file.benchmark, f"{path.stem}@{file.version}") for bound in file.limits
    )


def expectations(name: str) -> tuple[Expectation, ...]:
    """A table of settings, by its name under configs/policies/expectations/."""
    path = find("policies/expectations", name)
    file = load_record(path, _ExpectationsFile, ConfigError)
    return file.expectations


def remedies(name: str) -> tuple[Remedy, ...]:
    """A table of remedies, by its name under configs/policies/remedies/."""
    path = find("policies/remedies", name)
    return load_record(path, _RemediesFile, ConfigError).remedies


def _override_limits(
    tables: Iterable[Limit], overrides: Iterable[Limit], where: str
) -> tuple[Limit, ...]:
    """The tables with single limits replaced; one that replaces nothing must be a typing error."""
    kept = {f"{limit.benchmark} {limit.metric}": limit for limit in tables}
    for limit in overrides:
        name = f"{limit.benchmark} {limit.metric}"
        if name not in kept:
            raise ConfigError(
                f'{where}: "overrides" has "{name}", which is in none of its tables of limits; '
                + did_you_mean(name, kept)
            )
        kept[name] = limit
    return tuple(kept.values())


def incident_mapping(name: str) -> IncidentMapping:
    from anubis.readers.incidents.incident_mapping import KINDS

    path = find("incidents", name)
    return _read_by_kind(load_yaml(path, ConfigError), f'"{path}"', "records", KINDS)


def telemetry(name: str) -> TelemetrySettings:
    """Read which telemetry watches running jobs, and its source."""
    from anubis.readers.telemetry.config import telemetry_settings

    return telemetry_settings(find("telemetry", name))


def diagnosis(name: str) -> DiagnosisPolicy:
    """Read the policy by which jobs are diagnosed."""
    from anubis.core.diagnose.cures import DiagnosisPolicy

    path = find("diagnosis", name)
    policy = load_record(path, DiagnosisPolicy, ConfigError)
    if policy.places:
        from anubis.readers.jobs.trace_reader import trace_readers

        if unknown := sorted(policy.places.keys() - trace_readers().keys()):
            names = ", ".join(trace_readers())
            raise ConfigError(f'"{path}": places has "{unknown[0]}", expected one of {names}')
    return policy


def notifier(name: str) -> NotifierSettings:
    """Read how people get reports of the keeper."""
    from anubis.reach.notifiers.notifier import notifier_kinds

    path = find("notifiers", name)
    kinds = notifier_kinds()
    return _read_by_kind(load_yaml(path, ConfigError), f'"{path}"', "notifier", kinds)


def pod_gate(name: str) -> PodGate:
    """Read the gate that pods of Kubernetes get."""
    from anubis.reach.orchestrators.pod_gate import PodGate

    path = find("pod-gates", name)
    return load_record(path, PodGate, ConfigError)


def watching(name: str) -> WatchPolicy:
    """Read the policy by which running jobs are watched."""
    from anubis.core.watch.watch_settings import WatchPolicy

    path = find("watching", name)
    return load_record(path, WatchPolicy, ConfigError)


def error_classes(name: str = "default") -> ErrorClasses:
    """Read the meaning of log lines: a table under configs/classes/, laid over the shipped table
    that it names."""
    from anubis.core.diagnose.error_classes import ErrorClasses

    path = find("classes", name)
    table = load_record(path, ErrorClasses, ConfigError)
    if not table.based_on:
        return table
    shipped = places.shipped_folder("configs") / "classes"
    basis = shipped / f"{table.based_on}.yaml"
    names = [file.stem for file in shipped.glob("*.yaml")]
    if table.based_on not in names or basis.resolve() == path.resolve():
        hint = did_you_mean(table.based_on, names)
        raise ConfigError(f'"{path}": no shipped table "{table.based_on}" to be based on; {hint}')
    shipped_rows = load_record(basis, ErrorClasses, ConfigError)
    return table.merge_into(shipped_rows.classes)


def _read_by_kind(
    document: Mapping[str, object], where: str, key: str, kinds: Mapping[str, type[Shape]]
) -> Shape:
    """Read a file in which one key decides which other keys are allowed."""
    kind = document.get(key)
    if isinstance(kind, str) and kind in kinds:
        return read(document, kinds[kind], where, ConfigError)
    if kind is None:
        problem = f'the key "{key}" is missing'
    elif isinstance(kind, str):
        problem = f'"{key}" is "{escape_line(kind)[:SHOWN]}"'
    else:
        problem = f'"{key}" is {kind_of(kind)}, expected a name'
    raise ConfigError(f"{where}: {problem}; {did_you_mean(str(kind)[:SHOWN], kinds)}")


def find(kind: str, name: str) -> Path:
    """The file that a name or a path on the command line means."""
    if is_path(name):
        path = Path(name)
        if path.is_dir():
            raise UnknownNameError(f'"{path}" is a folder: name a file in it')
        if not path.is_file():
            raise UnknownNameError(f'there is no file "{path}"; {_near_path(path, kind)}')
        return path
    files = files_of(kind)
    if name not in files:
        shown = escape_line(name)[:SHOWN]
        if Path(name).suffix and not _is_file(name):
            raise UnknownNameError(f'there is no file "{shown}"; {_meaning_of_name(kind)}')
        raise UnknownNameError(
            f"no configs/{kind}/{shown}.yaml; {did_you_mean(shown, files)}{hint_of_file_here(name)}"
        )
    return files[name]


def _near_path(path: Path, kind: str) -> str:
    """Return the name of a file beside it that may be meant, or what a name would mean."""
    beside = {file.stem: file for file in path.parent.glob("*.y*ml")}
    if close := get_close_matches(path.stem, beside, n=1):
        return f'did you mean "{escape_line(str(beside[close[0]]))}"?'
    return _meaning_of_name(kind)


def _meaning_of_name(kind: str) -> str:
    return f"a name without slash and suffix means one under configs/{kind}/"


def hint_of_file_here(name: str) -> str:
    """Return how to name the file NAME or NAME.yaml in this folder, if there is one; a name alone
    means another."""
    here = [] if is_path(name) else [file for file in (name, f"{name}.yaml") if _is_file(file)]
    return f'; the file here is meant by "./{escape_line(here[0])[:SHOWN]}"' if here else ""


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # no file can have that name
        return False


def files_of(kind: str) -> dict[str, Path]:
    """Files by the names that mean them; a site's own precede the shipped ones."""
    folders = (places.home() / "configs" / kind, places.shipped_folder("configs") / kind)
    return {file.stem: file for folder in reversed(folders) for file in folder.glob("*.yaml")}


def is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml"))


def _check_name(name: str) -> None:
    if name:
        ClusterIdentity(name=name)


def _check_each_once(names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f'"{name}" is listed {times} times, expected once')


def _check_parallel_nodes(value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f'"parallel_nodes" is {value}, expected at least 1')
