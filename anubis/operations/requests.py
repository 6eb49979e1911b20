"""What may be asked for: one record for each use case, from which its options and its Python
signature follow.

An option is declared with its field. Nothing heavy is imported here: the command line reads these
records before it knows which verb is meant.
"""

# no postponed annotations: the command line reads them
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, Field, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from anubis.core.diagnose.evidence import Stall
    from anubis.core.records import Arrangement, CampaignKind, CriteriaSet, Workload
    from anubis.core.select.selection import Budget

# of a value that a command line has as text
TextForm = Literal["nodes", "date", "time", "duration", "interval", "budget", "shares", "pass|fail"]


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
    most: float | None = None
    words: tuple[FlagWord, ...] = ()  # one flag for each value
    written: str | None = None  # the default as text


class Argument(Option):
    """A field that is given by its place."""


def option_of(field: Field[Any]) -> Option | None:
    """Declaration of how a person gives this field of a request; None if no person does."""
    return next((mark for mark in get_args(field.type)[1:] if isinstance(mark, Option)), None)


def flags_of(field: Field[Any]) -> tuple[str, ...]:
    """The options of the command line for this field."""
    mark = option_of(field)
    return (mark.flags if mark else ()) or (f"--{field.name.replace('_', '-')}",)


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
    Option(metavar="DIR", help="Another folder of benchmark programs. May be repeated."),
]
CounterFiles = Annotated[
    Sequence[Path],
    Option(
        metavar="FILE",
        help="Error counters, as ibqueryerrors, ethtool -S, snmpwalk or gnmic print them, or a "
        "table of name, port, counter and value. A second file is a later reading. "
        "Default: read them from the fabric, if the topology is read from it too.",
    ),
]
RiseTime = Annotated[
    float | None,
    Option(
        flags=("--over",),
        metavar="SECONDS",
        least=1.0,
        help="The time in which the counters rose, without which they are not judged: between "
        "both files, from their clearing to the only file, or between two readings of the fabric.",
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


FabricFile = Annotated[
    str | None,
    topology_file(
        "ibnetdiscover's output, YAML, a table of host and switch, LLDP, Slurm's or "
        "Kubernetes' view, or a name under configs/topologies/. Forwarding tables in the "
        "same file, from dump_fts or the subnet manager, show which uplink a flow takes. "
        "Default: read from the fabric itself."
    ),
]

CampaignName = Annotated[
    str | None, Option(metavar="ID", help="The campaign. Default: the latest one.")
]
WithoutDamaged = Annotated[
    bool,
    Option(
        help="Leave out executions that are damaged in the history: what they measured is unknown."
    ),
]
ClusterAsked = Annotated[
    str | None,
    Option(
        flags=("--cluster", "-c"),
        help="A name under configs/clusters/, or a file. Default: the only cluster that the "
        "history knows, or this machine.",
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
    """What is measured, on which nodes, and the criteria for judging it."""

    verb: ClassVar[str]

    nodes: NodeList = None  # None: all that the cluster has
    _: KW_ONLY
    cluster: ClusterName = "local"
    name: str = ""  # of the campaign; empty: by its kind and the time
    # by benchmark of the suite, the nodes that it tests; None: all benchmarks test all nodes
    tests: Mapping[str, Collection[str]] | None = None
    partners: Sequence[str] = ()  # proven nodes among `nodes`, as partners of those under test
    job: str = ""  # id of the job that the nodes are for: its own work there is no obstacle
    leaves_out_busy: bool = False  # named nodes at work are left out, and the others measured
    repaired: bool = False  # the nodes come from a repair
    is_instead_of_validation: bool = False  # no criteria of such nodes exist: it learns them

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

    repaired: Annotated[
        bool, Option(help="The nodes come from a repair: run what only such nodes run, too.")
    ] = False
    suite: SuiteName = "quick"
    policy: PolicyFile = "default"
    criteria: CriteriaPath = None
    benchmarks: BenchmarkFolders = ()


@dataclass(frozen=True, kw_only=True)
class ScanRequest(CampaignRequest):
    """Measure pairs of nodes across the fabric, and name the part at fault."""

    verb = "scan"

    topology: FabricFile = None
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
                    "Like --quick, then more rounds, across rails if needed, until every link that "
                    "pairs can cross is crossed with a chance of 95 % or more.",
                ),
            )
        ),
    ] = "quick"
    non_blocking: Annotated[
        bool,
        Option(
            flags=("--non-blocking",),
            help="The fabric does not block, and its switches spread packets over all paths "
            "(adaptive routing): planned pairs do not wait for each other. Pairs that follow from "
            "results still do, so nothing is blamed if the fabric does block.",
        ),
    ] = False
    suite: Annotated[
        str | None,
        Option(
            flags=("--suite", "-s"),
            help="A suite of programs for pairs: a name under configs/suites/, or a file. "
            "Default: scan, or with InfiniBand adapters in the topology scan-rdma, or scan-rails "
            "if its rails share no cable.",
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
    sdc: Annotated[
        bool,
        Option(
            flags=("--sdc",),
            help="If ranks disagreed and nothing failed: find the GPU, or the place in its host, "
            "that computes other numbers than most. It uses the suite locate-sdc.",
        ),
    ] = False
    policy: PolicyFile = "default"
    criteria: CriteriaPath = None
    benchmarks: BenchmarkFolders = ()

    @property
    def crosses_fabric(self) -> bool:
        return super().crosses_fabric and not self.sdc


# --- tests that are worth their time ---------------------------------------------------------


JobDuration = Annotated[
    float,
    Option(
        flags=("--duration",),
        metavar="TIME",
        form="duration",
        help="How long the job runs: 90m, 24h, 2d.",
    ),
]


@dataclass(frozen=True)
class JobQuestion:
    """Nodes that are to be good for a job."""

    nodes: Annotated[
        Sequence[str],
        Argument(
            metavar="NODES", form="nodes", help="Node list: node[01-16], a comma list, or @file."
        ),
    ]
    """Names, or node lists such as node[01-16]."""
    duration_s: JobDuration
    """How long the job runs."""
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
    """Whether a node passes that no test could judge."""


@dataclass(frozen=True)
class GateRequest(JobQuestion):
    """Decide if nodes are good for a job."""

    duration_s: JobDuration = 0.0  # of no job: only to plan for another event
    _: KW_ONLY
    may_test: Annotated[
        bool,
        Option(
            flags=("--no-tests",),
            help="Answer from the history alone. The answer is unknown if tests would have to run "
            "first.",
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which tests may be chosen, their budget, and how they are run."""

    job: Annotated[
        str,  # its own work there is no obstacle
        Option(
            metavar="NAME",
            help="The job that the nodes are for. They are tested even if it was reported to run "
            "there. [default: $SLURM_JOB_ID]",
        ),
    ] = ""
    cluster: ClusterAsked = None
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
            "each node gets its own, and is measured with proven nodes."
        ),
    ] = False
    partners: Annotated[
        Sequence[str],
        Option(
            metavar="NODES",
            form="nodes",
            help="More idle nodes. If they are proven, they may take part in tests of several "
            "nodes.",
        ),
    ] = ()
    repaired: bool = False  # the nodes come from a repair


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
            "nodes, measured in all of them is one unit. The last try of each step counts, and "
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
            help="The cluster of the jobs: a name under configs/clusters/, or a file. Its "
            "orchestrator says which nodes a job has.",
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
            help="Recorded telemetry instead: CSV, Parquet or OpenMetrics text, also as .gz.",
        ),
    ] = None
    prometheus: Annotated[str, Option(metavar="URL", help="Ask this Prometheus.")] = ""
    agents: Annotated[bool, Option(help="Ask anubis agent on each of the nodes.")] = False
    watching: Annotated[
        str,
        Option(
            metavar="NAME", help="How jobs are watched: a name under configs/watching/, or a file."
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
    """Compare validation policies on a simulated cluster. A field that is given replaces that of
    the scenario."""

    scenario: Annotated[
        str, Argument(metavar="SCENARIO", help="A name under configs/simulations/, or a file.")
    ] = "example"
    _: KW_ONLY
    trace: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Recorded jobs instead of the scenario's: SWF, or a table, also as .gz.",
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


# --- what happens to nodes -------------------------------------------------------------------

ClusterOfNodes = Annotated[
    str | None,
    Option(
        flags=("--cluster", "-c"),
        metavar="NAME",
        help="The cluster of these nodes: one that the history knows, or its file. Default: the "
        "only one that the history knows.",
    ),
]
KeepingName = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="A policy under configs/keeping/, or a file. Default: the policy that the "
        "cluster's file names (keeping:), else that of the last turn, else default.",
    ),
]


@dataclass(frozen=True)
class TellRequest:
    """Report what happened to nodes. An option belongs to the events that have a field for it."""

    event: Annotated[str, Argument(metavar="EVENT")]  # its help lists the events
    nodes: NodeList = None
    _: KW_ONLY
    job: Annotated[str | None, Option(help="The job's id.")] = None
    failed: Annotated[
        bool, Option(help="The job that ended has failed: its nodes are checked.")
    ] = False
    duration_s: Annotated[
        float | None,
        Option(
            flags=("--duration",),
            metavar="TIME",
            form="duration",
            help="How long the job may run: 90m, 24h, 2d.",
        ),
    ] = None
    category: Annotated[
        str | None, Option(metavar="WORD", help="The category of an incident or a suspicion.")
    ] = None
    part: Annotated[
        str,
        Option(
            metavar="TEXT",
            help="The part between the nodes that is suspected: 'link leaf2 - spine1'.",
        ),
    ] = ""
    source: Annotated[
        str,
        Option(
            metavar="WORD",
            help="The person or program that suspects the nodes or the part, saw the stall or "
            "planned the maintenance.",
        ),
    ] = "operator"
    reason: Annotated[str, Option(metavar="TEXT", help="The reason, or what a repair did.")] = ""
    mix: Annotated[
        Mapping[str, float] | None,
        Option(
            metavar="SHARES",
            form="shares",
            help="How likely each category of a suspicion is, such as gpu=0.7,host=0.3. Tests are"
            " chosen by it.",
        ),
    ] = None
    confidence: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            least=0,
            most=1,
            help="How likely the suspicion is right, as its source says. The outcomes of "
            "earlier suspicions of this source outweigh it.",
        ),
    ] = None
    begin: Annotated[
        float | None,
        Option(
            flags=("--from",),
            metavar="TIME",
            form="time",
            help="When a maintenance begins: 2026-11-01T12:00. Default: now.",
        ),
    ] = None
    end: Annotated[
        float | None,
        Option(flags=("--until",), metavar="TIME", form="time", help="When a maintenance ends."),
    ] = None
    id: Annotated[
        str,
        Option(help="The event's name. An event that is reported twice by one name counts once."),
    ] = ""
    at: Annotated[
        float | None,
        Option(metavar="TIME", form="time", help="When it happened: 2026-11-01T12:00."),
    ] = None
    cluster: ClusterAsked = None


@dataclass(frozen=True, kw_only=True)
class KeepRequest:
    """The cluster to keep, and the policy."""

    cluster: ClusterAsked = None
    keeping: KeepingName = None
    benchmarks: BenchmarkFolders = ()
    service: Annotated[  # which starts the turns; once another one acts, no turn is taken
        str,
        Option(
            metavar="NAME",
            help="Used by anubis serve: the service that takes this turn. No turn is taken if "
            "another service acts by now.",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ServeRequest:
    """Where the service listens, and which clusters it keeps."""

    host: Annotated[
        str,
        Option(
            metavar="ADDRESS",
            help="Where to listen. Beyond this machine only with tokens: anubis token make.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Option(metavar="N", least=0, most=65_535, help="The port, or 0 for any free one.")
    ] = 8750
    names: Annotated[
        Sequence[str],
        Option(
            flags=("--name",),
            metavar="HOST",
            help="A name by which others reach it, beside this host's own. May be repeated.",
        ),
    ] = ()
    clusters: Annotated[
        Sequence[str],
        Option(
            flags=("--cluster", "-c"),
            metavar="CLUSTER",
            help="A cluster to keep and to start tests on, as a name or a file. May be repeated.",
        ),
    ] = ()
    suite: SuiteName = "quick"
    policy: PolicyFile = "default"
    benchmarks: BenchmarkFolders = ()
    keeping: KeepingName = None
    turn_every_s: Annotated[
        float,
        Option(
            flags=("--every",),
            metavar="TIME",
            form="interval",
            written="60s",
            help="How often the keeper takes a turn on each --cluster: 60s, 5m, or 0s for never.",
        ),
    ] = 60.0
    alerts: Annotated[
        str,
        Option(
            metavar="MAPPING",
            help="How Alertmanager's alerts become incidents: a name under configs/incidents/.",
        ),
    ] = "alertmanager"
    trusted: Annotated[
        Sequence[str],
        Option(
            metavar="NETWORK",
            help="Addresses whose connections are kept when there are too many: 10.1.0.0/16, or "
            "a proxy's. May be repeated. Default: this machine's own, 127.0.0.0/8 and ::1.",
        ),
    ] = ()
    pod_gate: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Answer Kubernetes which pods get a gate: a name under configs/pod-gates/, or a "
            "file.",
        ),
    ] = None
    certificate: Annotated[  # with both, the service answers over TLS
        Path | None,
        Option(
            metavar="FILE",
            help="Answer over HTTPS with this certificate (PEM). A renewed one is used at once.",
        ),
    ] = None
    private_key: Annotated[Path | None, Option(metavar="FILE", help="The certificate's key.")] = (
        None
    )
    rate_per_s: Annotated[
        float,
        Option(
            flags=("--rate",), metavar="N", least=1.0, help="Requests of one token in a second."
        ),
    ] = 500.0


# --- jobs in trouble -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DiagnosisRequest:
    """Find why a job hangs, failed or is slow, from the traces that it left."""

    job: Annotated[
        str,
        Argument(metavar="JOB", help="The job's id: for the answer, and for {job} in the policy."),
    ] = ""
    cluster: Annotated[
        str | None,
        Option(
            flags=("--cluster", "-c"),
            help="The cluster of the job: a name under configs/clusters/, or a file. Its "
            "orchestrator says which nodes a running job has.",
        ),
    ] = None
    nodes: Annotated[
        Sequence[str],
        Option(
            metavar="NODES",
            form="nodes",
            help="Its nodes in the order of their ranks: node[01-16], a comma list, or @file.",
        ),
    ] = ()
    ranks_per_node: Annotated[
        int | None, Option(metavar="N", help="How many ranks a node has. Default: the policy's, 8.")
    ] = None
    ranks: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Instead of --nodes: a table with the columns rank and node and, if known, stage "
            "and address.",
        ),
    ] = None
    topology: Annotated[
        str | None, Option(metavar="FILE", help="The fabric between its nodes.")
    ] = None
    counters: Annotated[
        Sequence[Path],
        Option(
            metavar="FILE",
            help="Error counters of the fabric after the crash, in the forms that a scan reads. A "
            "second file is a later reading, and only what rose between them counts.",
        ),
    ] = ()
    policy: Annotated[
        str,
        Option(
            flags=("--diagnosis",),
            metavar="NAME",
            help="Where traces are and what may be advised: a name under configs/diagnosis/, or "
            "a file.",
        ),
    ] = "default"
    at: Annotated[
        float | None,
        Option(metavar="TIME", form="time", help="When it failed, 2026-11-01T12:00. Default: now."),
    ] = None
    places: Mapping[str, Path] = field(default_factory=dict)  # of its traces, by the policy's words
    stall: "Stall | None" = None  # a report that it makes no progress
    since: float | None = None  # advice for this job since then was about the same trouble


# --- the risk of incidents -------------------------------------------------------------------

RiskModelFile = Annotated[
    Path | None,
    Option(
        flags=("--risk-model",),
        metavar="FILE",
        help="The file of the trained model. Default: risk/CLUSTER.npz in $ANUBIS_HOME.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TrainRiskRequest:
    """Train a model of the risk of incidents, and write its file."""

    model: Annotated[
        str | None,
        Option(
            flags=("--kind",),
            metavar="NAME",
            help="Train this kind, without comparing it with others.",
        ),
    ] = None
    cluster: ClusterInHistory = None
    file: RiskModelFile = None
    seed: Annotated[int, Option(help="Seed of the training's random draws.")] = 0


@dataclass(frozen=True, kw_only=True)
class EvaluateRiskRequest:
    """Compare the models of risk on nodes and times that they were not trained on."""

    seeds: Annotated[int, Option(least=2, help="How many splits of each kind.")] = 5
    ask: Annotated[
        Collection[str],
        Option(
            metavar="NODES",
            form="nodes",
            help="Test on these nodes only, with models trained on all others.",
        ),
    ] = ()
    cluster: ClusterInHistory = None


@dataclass(frozen=True)
class RiskRequest:
    """Forecast incidents on nodes by a trained model."""

    nodes: Annotated[
        Sequence[str],
        Argument(
            metavar="NODES", form="nodes", help="Node list: node[01-16], a comma list, or @file."
        ),
    ]
    _: KW_ONLY
    cluster: ClusterInHistory = None
    file: RiskModelFile = None


# --- what others measured and wrote ----------------------------------------------------------


def column_option(keys: str, example: str) -> Option:
    """Option that says which column of a table has which of these keys."""
    return Option(
        flags=("--map",),
        metavar="KEY=COLUMN",
        help=f"Which column has what, or several in one text: node=host, {example}. Keys: {keys}. "
        "A column with the name of its key needs no --map. May be repeated.",
    )


TableFile = Annotated[Path, Argument(metavar="FILE", help="A table with a heading.")]
HardwareKind = Annotated[
    str, Option(help="The hardware kind of the nodes: only results of one kind are compared.")
]


@dataclass(frozen=True)
class CsvImport:
    """Import a table of measurements."""

    file: TableFile
    _: KW_ONLY
    suite: Annotated[
        str,
        Option(
            flags=("--suite", "-s"),
            metavar="NAME",
            help="The name of these measurements. Files of one name are learned from and judged "
            "together.",
        ),
    ]
    columns: Annotated[
        Sequence[str],
        column_option(
            "node, device, gpu_model, metric, value, unit, direction, sku, time",
            "device='gpu:{slot}'",
        ),
    ] = ()
    metrics: Annotated[
        Sequence[str],
        Option(
            flags=("--metric",),
            metavar="NAME=DIRECTION[,UNIT]",
            help="A metric to take, and whether higher, lower or either is better: "
            "step_ms=lower,ms. Without a column metric, each is a column of its own. Default: all "
            "that the column metric names. May be repeated.",
        ),
    ] = ()
    sku: Annotated[str, Option(help="The hardware kind of the nodes, if no column has it.")] = ""
    policy: PolicyFile = "default"
    skip_wrong: Annotated[
        bool,
        Option(
            flags=("--skip-wrong-lines",),
            help="Import the other lines. A node with a wrong line is unknown. Default: one "
            "wrong line stops the import.",
        ),
    ] = False
    cluster: ClusterOfNodes = None


@dataclass(frozen=True)
class SuperbenchImport:
    """Import the results of SuperBench."""

    file: Annotated[Path, Argument(metavar="FILE", help="A results-summary.jsonl.")]
    _: KW_ONLY
    sku: HardwareKind
    policy: PolicyFile = "default"
    rules: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Also judge by this SuperBench rule file. Nothing in it is executed.",
        ),
    ] = None
    baseline: Annotated[
        Path | None, Option(metavar="FILE", help="The baseline.json that the rules compare with.")
    ] = None
    cluster: ClusterOfNodes = None


@dataclass(frozen=True)
class BaselineImport:
    """Make criteria from the baseline of SuperBench."""

    file: Annotated[Path, Argument(metavar="FILE", help="A baseline.json.")]
    _: KW_ONLY
    sku: HardwareKind
    units: Annotated[
        int, Option(metavar="N", help="How many units the means are of: the file does not say.")
    ]
    policy: PolicyFile = "default"


@dataclass(frozen=True)
class IncidentImport:
    """Import incidents of nodes."""

    file: Annotated[Path, Argument(metavar="FILE", help="A table or a list of events.")]
    _: KW_ONLY
    mapping: Annotated[
        str,
        Option(
            help="What each column means: a name under configs/incidents/, or a file. "
            "plain: node, category, start, end."
        ),
    ] = "plain"
    nodes: Annotated[
        Collection[str] | None,
        Option(
            metavar="NODES",
            form="nodes",
            help="All nodes that were watched, known or not. Incidents of others are left out. "
            "Default: those in the file that the cluster has. If it has none so far: all in the "
            "file, plus as many as the mapping says.",
        ),
    ] = None
    cluster: ClusterOfNodes = None


@dataclass(frozen=True)
class NodeImport:
    """Import what nodes are and where they are: rack, cage, sku, time of installation."""

    file: TableFile
    _: KW_ONLY
    columns: Annotated[
        Sequence[str], column_option("node, rack, cage, sku, installed", "cage='{rack}/{cage}'")
    ] = ()
    times: Annotated[
        Sequence[str],
        Option(
            flags=("--time",),
            metavar="FORMAT",
            help="How times of installation are written: iso, a pattern like %d.%m.%Y, or seconds, "
            "days and so on since 1970. May be repeated. Default: iso.",
        ),
    ] = ()
    zone: Annotated[str, Option(metavar="ZONE", help="The time zone of times that name none.")] = (
        "UTC"
    )
    cluster: ClusterOfNodes = None


# --- fabrics and steps -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FabricRequest:
    """Inspect a fabric: its topology, and its error counters."""

    topology: str | None = None  # None: read from the fabric itself
    hcas: Path | None = None
    nodes: Sequence[str] = ()  # to be found in it
    counters: Sequence[Path] = ()
    over_s: float | None = None


@dataclass(frozen=True)
class TuneRequest:
    """Find the fewest steps of a benchmark that still repeat."""

    benchmark: Annotated[str, Argument(help="The benchmark's name.")]
    campaign: CampaignName = None
