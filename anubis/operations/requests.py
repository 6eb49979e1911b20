"""What may be asked for: one record for each use case, from which its options and its Python
signature follow.

An option is declared with its field. Nothing heavy is imported here: the command line reads these
records before it knows which verb is meant.
"""

# no postponed annotations: the command line reads them
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from anubis.core.records import Arrangement, CampaignKind

TextForm = Literal["nodes"]  # how a field is written as text, where that is not its own form


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
    flags: tuple[str, ...] = ()  # of the command line; empty: the field is given by its place
    metavar: str | None = None
    form: TextForm | None = None
    least: float | None = None
    words: tuple[FlagWord, ...] = ()  # one flag for each value


# --- what several requests ask for -----------------------------------------------------------

NodeList = Annotated[
    Sequence[str] | None,
    Option(
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
        flags=("--criteria",),
        metavar="PATH",
        help="A criteria file, or a folder of them. Default: what accept learned for the "
        "suite, else ./criteria, else what comes with Anubis.",
    ),
]
BenchmarkFolders = Annotated[
    Sequence[Path],
    Option(
        flags=("--benchmarks",),
        metavar="DIR",
        help="Another folder of benchmark programs; may be repeated.",
    ),
]
CounterFiles = Annotated[
    Sequence[Path],
    Option(
        flags=("--counters",),
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
        flags=("--hcas",),
        metavar="FILE",
        help="Lines of host and HCA GUID, for HCAs whose descriptions do not name their host.",
    ),
]


def topology_file(help: str) -> Option:
    return Option(flags=("--topology",), metavar="FILE", help=help)


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
            flags=("--criteria",),
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
