"""What may be asked for: one record for each use case, from which its options and its Python
signature follow.

An option is declared with its field. Nothing heavy is imported here: the command line reads these
records before it knows which verb is meant.
"""

# no postponed annotations: the command line reads them
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from anubis.core.records import Arrangement, CampaignKind, CriteriaSet, Workload
    from anubis.core.select.selection import Budget

# of a value that a command line has as text
TextForm = Literal["nodes", "date", "time", "duration", "budget", "pass|fail"]


@dataclass(frozen=True)
class FlagWord:
    """A value that a field may have, and the flag that chooses it."""

    value: str
    flag: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a person gives a field of a request."""

    help: str = ""
    flags: tuple[str, ...] = ()  # of the command line; empty: the field's name
    metavar: str | None = None
    form: TextForm | None = None
    least: float | None = None
    words: tuple[FlagWord, ...] = ()  # one flag for each value
    written: str | None = None  # the default as text


class Argument(Option):
    """A field that is given by its place."""


# --- what several requests ask for -----------------------------------------------------------

NodeList = Annotated[
    Sequence[str] | None,
    Argument(
        metavar="NODES",
        form="nodes",
        help="Node list: node[01-16], a comma list, or @file. Default: all of the cluster.",
    ),
]
ClusterName = Annotated[
    str, Option(flags=("--cluster", "-c"), help="A name under configs/clusters/, or a file.")
]
SuiteName = Annotated[
    str, Option(flags=("--suite", "-s"), help="A name under configs/suites/, or a file.")
]
PolicyFile = Annotated[
    str, Option(flags=("--policy", "-p"), help="A name under configs/policies/, or a file.")
]
CriteriaPath = Annotated[
    Path | None,
    Option(
        metavar="PATH",
        help="A criteria file, or a folder of them. Default: what accept learned for the "
        "suite, else ./criteria, else what comes with Anubis.",
    ),
]
BenchmarkFolders = Annotated[
    Sequence[Path],
    Option(
        metavar="DIR",
        help="Another folder of benchmark programs; may be repeated.",
    ),
]
CounterFiles = Annotated[
    Sequence[Path],
    Option(
        metavar="FILE",
        help="Error counters, as ibqueryerrors or ethtool -S print them, or a table of name, "
        "port, counter and value; a second file is a later reading. "
        "Default: read them from the fabric, if the topology is read from it too.",
    ),
]
RiseTime = Annotated[
    float | None,
    Option(
        flags=("--over",),
        metavar="SECONDS",
        least=1.0,
        help="The time in which the counters rose, so that they can be judged: between both "
        "files, from their clearing to the only file, or between two readings of the fabric.",
    ),
]
HcaFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Lines of host and HCA GUID, for HCAs whose descriptions do not name their host.",
    ),
]


def topology_file(help: str) -> Option:
    return Option(metavar="FILE", help=help)


CampaignName = Annotated[
    str | None, Option(metavar="ID", help="The campaign. Default: the latest one.")
]
WithoutDamaged = Annotated[
    bool,
    Option(
        help="Leave out executions that are damaged in the history: what they measured is unknown."
    ),
]
ClusterInHistory = Annotated[
    str | None,
    Option(
        flags=("--cluster", "-c"),
        metavar="NAME",
        help="A cluster by its name in the history, or by its file. Default: the only one.",
    ),
]


# --- campaigns -------------------------------------------------------------------------------


class Unasked:
    """What a campaign goes by if its verb does not ask for it."""

    suite: str | None = None  # None: the one that suits the network
    policy: str = "default"
    benchmarks: Sequence[Path] = ()
    criteria: Path | None = None
    topology: str | None = None
    hcas: Path | None = None
    counters: Sequence[Path] = ()
    over_s: float | None = None
    with_fabric: bool = True
    groups: "Arrangement" = "quick"


@dataclass(frozen=True)
class CampaignRequest(Unasked):
    """What is measured, where, and by which criteria it is judged."""

    verb: ClassVar[str]

    nodes: NodeList = None  # None: all that the cluster has
    _: KW_ONLY
    cluster: ClusterName = "local"
    name: str = ""  # of the campaign; empty: by its kind and the time
    # by benchmark of the suite, the nodes that it tests; None: all benchmarks test all nodes
    tests: Mapping[str, Collection[str]] | None = None
    partners: Sequence[str] = ()  # proven nodes among `nodes`, as partners of those under test
    job: str = ""  # id of the job that the nodes are for: its own work there is no obstacle

    def __post_init__(self) -> None:
        if (self.counters or self.over_s) and not self.crosses_fabric:
            raise UsageError(
                "counters and over_s are for a scan, and for others with a topology: this "
                f"{self.kind} measures no fabric"
            )
        if self.hcas and not self.topology and not self.crosses_fabric:
            raise UsageError("hcas without a topology: give the topology as well")

    @property
    def kind(self) -> "CampaignKind":
        from anubis.core.records import CampaignKind  # loads numpy

        return CampaignKind(self.verb)

    @property
    def crosses_fabric(self) -> bool:
        asked_for = self.kind.judges_fabric and self.topology is not None and self.with_fabric
        return self.kind.names_parts or asked_for


@dataclass(frozen=True, kw_only=True)
class AcceptRequest(CampaignRequest):
    """Run a suite, learn criteria from this run, and judge by them; with a topology, also judge the
    cabling, and pairs cross every link that they can."""

    verb = "accept"

    topology: Annotated[
        str | None,
        topology_file(
            "The topology, as for scan. The cabling of the nodes is then judged as well, "
            "and after the suite, pairs of nodes cross every link that they can."
        ),
    ] = None
    hcas: HcaFile = None
    counters: CounterFiles = ()
    over_s: RiseTime = None
    with_fabric: Annotated[
        bool,
        Option(
            flags=("--no-fabric",), help="With a topology: judge the cabling only, measure no link."
        ),
    ] = True
    suite: SuiteName = "quick"
    policy: PolicyFile = "default"
    benchmarks: BenchmarkFolders = ()


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(CampaignRequest):
    """Run a suite, and judge by these criteria or by those that were accepted for the suite."""

    verb = "validate"

    suite: SuiteName = "quick"
    policy: PolicyFile = "default"
    criteria: CriteriaPath = None
    benchmarks: BenchmarkFolders = ()


@dataclass(frozen=True, kw_only=True)
class ScanRequest(CampaignRequest):
    """Measure pairs of nodes across the fabric, and name the part at fault."""

    verb = "scan"

    topology: Annotated[
        str | None,
        topology_file(
            "ibnetdiscover's output, YAML, a table of host and switch, LLDP, Slurm's or "
            "Kubernetes' view; or a name under configs/topologies/. Forwarding tables in the "
            "same file, from dump_fts or the subnet manager, show which uplink a flow takes. "
            "Default: read from the fabric itself."
        ),
    ] = None
    hcas: HcaFile = None
    counters: CounterFiles = ()
    over_s: RiseTime = None
    groups: Annotated[
        "Arrangement",
        Option(
            words=(
                FlagWord("pairs", "--full", "Every pair of nodes, in n - 1 rounds."),
                FlagWord("quick", "--quick", "Each node once at every distance (the default)."),
                FlagWord(
                    "covering",
                    "--cover",
                    "Like --quick, then more rounds until every link that pairs can cross is "
                    "crossed, surely or with a chance of 95 %; across rails if needed.",
                ),
            )
        ),
    ] = "quick"
    suite: Annotated[
        str | None,
        Option(
            flags=("--suite", "-s"),
            help="A suite of programs for pairs: a name under configs/suites/, or a file. "
            "Default: scan-rdma if the topology has InfiniBand adapters, else scan.",
        ),
    ] = None
    policy: PolicyFile = "default"
    criteria: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Criteria of an earlier scan. Default: learn them from the fast pairs of this "
            "one.",
        ),
    ] = None
    benchmarks: BenchmarkFolders = ()


@dataclass(frozen=True, kw_only=True)
class LocateRequest(CampaignRequest):
    """Find the part at fault among the nodes of a job that failed or was slow: divide them by pods,
    leaves and halves until that part is left. `Caller.handed_back` receives the others."""

    verb = "locate"

    topology: Annotated[
        str | None,
        topology_file(
            "The topology, as for scan: nodes are divided by pods and leaves. Without one, "
            "they are halved in their order."
        ),
    ] = None
    hcas: HcaFile = None
    suite: Annotated[
        str,
        Option(
            flags=("--suite", "-s"),
            help="A suite with programs for groups that fit the job, with `groups: parts`: a name "
            "under configs/suites/, or a file.",
        ),
    ] = "locate"
    policy: PolicyFile = "default"
    criteria: CriteriaPath = None
    benchmarks: BenchmarkFolders = ()


# --- tests that are worth their time ---------------------------------------------------------


@dataclass(frozen=True)
class GateRequest:
    """Decide if nodes are good for a job."""

    nodes: Annotated[
        Sequence[str],
        Argument(
            metavar="NODES",
            form="nodes",
            help="Node list: node[01-16], a comma list, or @file.",
        ),
    ]
    duration_s: Annotated[
        float,
        Option(
            flags=("--duration",),
            metavar="TIME",
            form="duration",
            help="How long the job runs: 90m, 24h, 2d.",
        ),
    ] = 0.0  # of no job: only to plan for another event
    _: KW_ONLY
    unknown_passes: Annotated[
        bool,
        Option(
            flags=("--on-unknown",),
            metavar="pass|fail",
            form="pass|fail",
            written="fail",
            help="Whether a node that no test could judge passes.",
        ),
    ] = False
    may_test: Annotated[
        bool,
        Option(
            flags=("--no-tests",),
            help="Answer from the history alone; unknown if tests would have to run first.",
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which tests may be chosen, their budget, and how they are run."""

    job: Annotated[
        str,  # its own work there is no obstacle
        Option(
            metavar="NAME",
            help="The job that the nodes are for: if it was reported to run there, they are "
            "tested all the same. [default: $SLURM_JOB_ID]",
        ),
    ] = ""
    cluster: Annotated[
        str | None,
        Option(
            flags=("--cluster", "-c"),
            help="A name under configs/clusters/, or a file. Default: the only cluster that the "
            "history knows, or this machine.",
        ),
    ] = None
    suite: SuiteName = "quick"
    policy: PolicyFile = "default"
    criteria: CriteriaPath = None
    benchmarks: BenchmarkFolders = ()
    budget: Annotated[
        "Budget | None",  # None: no limit
        Option(
            metavar="AMOUNT",
            form="budget",
            help="Upper limit for the tests: node-hours in total (8nh), or time per node (30m).",
        ),
    ] = None
    together: Annotated[
        bool,
        Option(
            help="One subset of tests for all nodes, which are measured with each other. Default: "
            "each node gets its own, and is measured with proven nodes.",
        ),
    ] = False
    partners: Annotated[
        Sequence[str],
        Option(
            metavar="NODES",
            form="nodes",
            help="More idle nodes: those that are proven may take part in tests of several nodes.",
        ),
    ] = ()


# --- what was measured before ----------------------------------------------------------------


@dataclass(frozen=True)
class LearnRequest:
    """Learn criteria from past measurements."""

    campaign: CampaignName = None
    _: KW_ONLY
    since: Annotated[
        datetime | None,
        Option(
            metavar="DATE",
            form="date",
            help="Pool the campaign with all finished ones of its suite that began before it, on "
            "DATE (2026-11-01 or 2026-11-01T08:00, UTC) or later. What a device, or a group of "
            "nodes, measured in all of them is one unit; the last try of each step counts, and "
            "workloads that the campaign itself does not run are left out.",
        ),
    ] = None
    exclude: Annotated[
        Collection[str],
        Option(
            metavar="NODES",
            form="nodes",
            help="Do not learn from these nodes, nor from groups that contain them: node[01-16], "
            "a comma list, or @file. Each must be in one of the campaigns.",
        ),
    ] = ()
    start: Annotated[
        Path | None,
        Option(
            flags=("--criteria",),
            metavar="PATH",
            help="Start from these earlier criteria: a file, or a folder of them.",
        ),
    ] = None
    policy: Annotated[
        str | None,
        Option(
            flags=("--policy", "-p"),
            help="A name under configs/policies/, or a file. Default: the campaign's own.",
        ),
    ] = None
    without_damaged: WithoutDamaged = False
    start_sets: Sequence["CriteriaSet"] = ()  # earlier criteria that are in no file
    workloads: Collection["Workload"] | None = None  # None: those that the campaign ran


@dataclass(frozen=True)
class JudgeRequest:
    """Judge past campaigns again, without running anything."""

    campaign: CampaignName = None
    _: KW_ONLY
    since: Annotated[
        datetime | None,
        Option(
            metavar="DATE",
            form="date",
            help="Judge the campaign as one with all finished ones of its suite that began before "
            "it, on DATE (2026-11-01 or 2026-11-01T08:00, UTC) or later. What a device, or a group "
            "of nodes, measured in all of them is one unit.",
        ),
    ] = None
    criteria: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="A criteria file, or a folder of them. Default: those it was last judged by.",
        ),
    ] = None
    without_damaged: WithoutDamaged = False


# --- running jobs ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LookRequest:
    """Look at what the nodes of running jobs report."""

    job: Annotated[
        str, Argument(metavar="JOB", help="The job's id. Default: each job that runs.")
    ] = ""
    cluster: Annotated[
        str | None,
        Option(
            flags=("--cluster", "-c"),
            help="Whose jobs: a name under configs/clusters/, or a file. Its orchestrator says "
            "which nodes a job has.",
        ),
    ] = None
    nodes: Annotated[
        Sequence[str],  # of a recording, only these
        Option(
            metavar="NODES",
            form="nodes",
            help="The nodes of the job, if no orchestrator knows them: node[01-16], a comma "
            "list, or @file.",
        ),
    ] = ()
    file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Recorded telemetry instead: CSV, Parquet or OpenMetrics text; .gz is unpacked.",
        ),
    ] = None
    prometheus: Annotated[str, Option(metavar="URL", help="Ask this Prometheus.")] = ""
    agents: Annotated[bool, Option(help="Ask anubis agent on each of the nodes.")] = False
    watching: Annotated[
        str,
        Option(
            metavar="NAME",
            help="How jobs are watched: a name under configs/watching/, or a file.",
        ),
    ] = "default"
    telemetry: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Where telemetry comes from: a name under configs/telemetry/, or a file. Default: "
            "what --watching names.",
        ),
    ] = ""
    model: Annotated[
        str,
        Option(
            metavar="NAME",
            help="The watch model: a name under criteria/watching/, or a file. Default: what "
            "--watching names.",
        ),
    ] = ""
    until: Annotated[
        float | None,
        Option(
            flags=("--at",),
            metavar="TIME",
            form="time",
            help="Look back from then: 2026-11-01T12:00. Default: now, or a recording's end.",
        ),
    ] = None
    ended: Annotated[
        bool,
        Option(help="The job has failed: a node that left its peers only a minute ago counts too."),
    ] = False


# --- clusters in memory ----------------------------------------------------------------------


@dataclass(frozen=True)
class SimulateRequest:
    """Compare validation policies on a simulated cluster; what is given replaces what the scenario
    says."""

    scenario: Annotated[
        str,
        Argument(metavar="SCENARIO", help="A name under configs/simulations/, or a file."),
    ] = "example"
    _: KW_ONLY
    trace: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Recorded jobs instead of the scenario's: SWF, or a table; .gz is unpacked.",
        ),
    ] = None
    seeds: Annotated[int | None, Option(least=1, help="How often each policy runs.")] = None
    incidents: Annotated[
        str | None,
        Option(
            metavar="rates|model|history",
            help="Where incidents come from: the scenario's rates, a risk model, or the recorded "
            "history.",
        ),
    ] = None
    risk: Annotated[
        str | None,
        Option(
            metavar="truth|NAME|best",
            help="What the Selector knows: the truth, or a risk model learned from the past.",
        ),
    ] = None
    model: Annotated[
        Path | None,
        Option(
            flags=("--risk-model",),
            metavar="FILE",
            help="The risk model to draw incidents from. Default: risk/CLUSTER.npz in "
            "$ANUBIS_HOME.",
        ),
    ] = None
    cluster: ClusterInHistory = None
