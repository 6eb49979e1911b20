"""What collectors brought of a job that hangs, has failed or is slow: records without an opinion.

A collector that had nothing to bring leaves its field empty and itself out of `collectors`; why,
it says in one sentence under `gaps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from anubis.core.fabric import Fabric
from anubis.core.watch.findings import Look


class Collector(StrEnum):
    """Who brings records. One counts as there also if it has nothing to report."""

    KERNEL_LOG = "kernel-log"
    TRAINING_LOG = "training-log"
    EXITS = "exits"
    REACH = "reach"
    PROCESSES = "processes"
    PROGRESS = "progress"
    CALLS = "calls"
    STACKS = "stacks"
    STEPS = "steps"
    TIMERS = "timers"
    TELEMETRY = "telemetry"
    SETTINGS = "settings"
    CONNECTIONS = "connections"


class Gravity(StrEnum):
    """What a line of a log allows to be thought of whoever wrote it."""

    CRITICAL = "critical"  # a sure sign of broken hardware, here
    DISTRIBUTED = "distributed"  # something went wrong between two, and it may be the other
    APPLICATION = "application"  # the program, or the hardware: a repeat tells
    MISMATCH = "mismatch"  # ranks called different collectives: no one of them is to blame
    MEMORY = "memory"  # somebody asked for more of it than there is
    LOSS = "loss"  # the training itself went wrong: not a number
    NOTE = "note"  # known, and no cause


@dataclass(frozen=True, kw_only=True)
class LogEvent:
    """A line of a log, or several that belong together, understood."""

    collector: Collector
    code: str  # its row in the table of classes: `xid-79`, `mlx5-link-down`
    gravity: Gravity
    text: str  # fit to be shown, and short
    node: str = ""
    rank: int | None = None
    at: float | None = None
    peer: str = ""  # the other end, as it was named: an address, a host, `rank 3`
    device: str = ""  # a PCI address, `mlx5_0`, `nvme0n1`
    detail: str = (
        ""  # by which the same error on other ranks is recognised, addresses and numbers left out
    )
    lasted_s: float = 0.0  # for how long the trouble had gone on by then, where the line says so


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the process of a rank ended."""

    rank: int
    code: int | None = None
    signal: int | None = None
    at: float | None = None
    is_first: bool = False  # that its launcher saw fail; it ended the others then


@dataclass(frozen=True, kw_only=True)
class Advance:
    """How far a rank has come in a communicator: numbers of its collectives."""

    rank: int
    communicator: str  # the same on all of its ranks
    members: tuple[int, ...]
    enqueued: int
    completed: int
    started: int | None = None  # by the device; gloo does not tell
    operation: str = ""  # that it waits in


class CallState(StrEnum):
    LAUNCHED = "launched"
    STARTED = "started"  # on its device
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One collective, or one send or receive, as one rank recorded it."""

    rank: int
    communicator: str
    sequence: int
    operation: str
    state: CallState
    point_to_point: bool = False
    peer: int | None = None  # of a send or receive: the rank at its other end
    sizes: tuple[tuple[int, ...], ...] = ()  # of its inputs
    dtypes: tuple[str, ...] = ()
    launched: float | None = None
    finished: float | None = None
    line: str = ""  # of the user's code


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a process was doing, outermost call first."""

    rank: int
    frames: tuple[str, ...]


class Pulse(StrEnum):
    """What a process does when it is looked at from outside."""

    ANSWERS = "answers"
    STOPPED = "stopped"  # it is there, and does not answer
    GONE = "gone"
    UNHEARD = "unheard"  # the other processes of the job hear nothing of it


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """A process of a job, as the collector met it."""

    rank: int
    pulse: Pulse
    at: float | None = None
    waits: float | None = None  # share of the time for which it could have run, and was not let


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What a rank sends to another one or to an address, by the kernel of its own host."""

    rank: int
    own: str = ""  # address of its end
    peer: str  # and of the other one
    peer_rank: int | None = None
    samples: int  # lately
    sending: int  # of these: bytes were under way, and not because the peer's program was slow
    resent: int = 0  # how often the same bytes were sent again by now, without an answer


@dataclass(frozen=True, kw_only=True)
class KernelTimer:
    """Whether a kernel of a rank has run for so long that its timer calls it hung."""

    rank: int
    is_hung: bool


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of one rank."""

    rank: int
    step: int
    duration_s: float
    own_s: float | None  # that it worked; None: nobody recorded it
    network_s: float | None = None  # of that, on the wire
    communicator: str = ""  # of whose collectives `collective_s` and `group_s` are
    collective_s: float | None = None  # its time in them
    group_s: float | None = None  # the mean of its group


@dataclass(frozen=True, kw_only=True)
class RankMap:
    """Which rank ran where, and which ranks do the same work."""

    nodes: Mapping[int, str] = field(default_factory=dict)
    stages: Mapping[int, int] = field(
        default_factory=dict
    )  # of the pipeline; without, all are alike
    addresses: Mapping[str, str] = field(default_factory=dict)  # address or host name → node

    def node_of(self, rank: int) -> str:
        """Empty: nobody said."""
        return self.nodes.get(rank, "")

    def rank_on(self, node: str, local: int) -> int | None:
        """Of the node's ranks, in order, the one of that number."""
        own = sorted(rank for rank, name in self.nodes.items() if name == node)
        return own[local] if local < len(own) else None

    def node_named(self, peer: str) -> str:
        """The node that a log calls so: by name, or by address with or without port, or empty."""
        if peer in self.addresses:
            return self.addresses[peer]
        return self.addresses.get(peer.rpartition(":")[0].strip("[]"), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkingPair:
    """Two nodes that are known to have reached each other when the job had failed, or just before:
    by a collective that ended, or by a probe."""

    a: str
    b: str
    size_bytes: int | None = None  # of the messages; None: of those of the job
    device: str = ""  # the NIC; empty: on all


@dataclass(frozen=True, kw_only=True)
class OddSetting:
    """A node has another setting than most of its sku, or than the site expects."""

    node: str
    setting: str
    device: str  # `node` for what belongs to none
    sentence: str  # its value, that of others, and of how many
    at: float  # when it told it


@dataclass(frozen=True, kw_only=True)
class Rise:
    """A count of the job's work that rose between two moments apart in time."""

    what: str  # that is counted: `collectives`, `steps`
    before: int
    after: int
    since: float  # when it was `before`
    until: float  # when it was `after`
    vouches_s: float  # for so long after `until` it shows that the job moves
    ranks: frozenset[int] = frozenset()  # whose work it is; empty: that of all


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Somebody says that the job runs and comes no further."""

    since: float
    sentence: str  # who says so, and why


@dataclass(frozen=True, kw_only=True)
class JobEvidence:
    """All that is known of one job, at one moment."""

    job: str
    at: float
    collectors: frozenset[Collector]
    ranks: RankMap = field(default_factory=RankMap)
    gaps: Mapping[Collector, str] = field(
        default_factory=dict
    )  # why a collector is not there: one sentence
    log: tuple[LogEvent, ...] = ()
    exits: tuple[Exit, ...] = ()
    unreachable: Mapping[str, float] = field(
        default_factory=dict
    )  # nodes that answer nobody, and since when
    advances: tuple[Advance, ...] = ()
    mute: frozenset[int] = (
        frozenset()
    )  # ranks that were asked how far they are, or whose logs were read, and did not tell
    calls: tuple[Call, ...] = ()
    stacks: tuple[Stack, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    steps: tuple[StepTime, ...] = ()
    connections: tuple[Connection, ...] = ()
    timers: tuple[KernelTimer, ...] = ()
    look: Look | None = None  # at its telemetry
    settings: tuple[OddSetting, ...] = ()
    unread: frozenset[str] = frozenset()  # nodes whose logs nobody has: they are not silent
    working: tuple[WorkingPair, ...] = ()
    fabric: Fabric | None = None  # between its nodes, where a topology is known
    groups: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # without a fabric: "leaf", "rack" or the like → node → its name
    alive: bool | None = None  # whether its processes still run; None: nobody asked
    stall: Stall | None = None
    progress: tuple[Rise, ...] = ()
    is_past: bool = False  # asked about after its end: that it moved before proves nothing


def joined(evidence: JobEvidence, pieces: Iterable[JobEvidence]) -> JobEvidence:
    """What collectors brought one by one, as of one job at one moment: that of `evidence`. A gap
    that another piece fills is none; what a collector could not read of its own part stays."""
    partly = {name for name in evidence.gaps if name in evidence.collectors}
    for piece in pieces:
        partly |= {name for name in piece.gaps if name in piece.collectors}
        evidence = replace(
            evidence,
            collectors=evidence.collectors | piece.collectors,
            ranks=RankMap(
                nodes={**piece.ranks.nodes, **evidence.ranks.nodes},
                stages={**piece.ranks.stages, **evidence.ranks.stages},
                addresses={**piece.ranks.addresses, **evidence.ranks.addresses},
            ),
            gaps={**piece.gaps, **evidence.gaps},
            unreachable={**piece.unreachable, **evidence.unreachable},
            look=evidence.look or piece.look,
            unread=evidence.unread | piece.unread,
            working=evidence.working + piece.working,
            fabric=evidence.fabric or piece.fabric,
            groups={**piece.groups, **evidence.groups},
            stall=evidence.stall or piece.stall,
            alive=piece.alive if evidence.alive is None else evidence.alive,
            progress=evidence.progress + piece.progress,
            is_past=evidence.is_past or piece.is_past,
            log=evidence.log + piece.log,
            exits=evidence.exits + piece.exits,
            advances=evidence.advances + piece.advances,
            mute=evidence.mute | piece.mute,
            calls=evidence.calls + piece.calls,
            stacks=evidence.stacks + piece.stacks,
            processes=evidence.processes + piece.processes,
            steps=evidence.steps + piece.steps,
            connections=evidence.connections + piece.connections,
            timers=evidence.timers + piece.timers,
            settings=evidence.settings + piece.settings,
        )
    gaps = {
        name: why
        for name, why in evidence.gaps.items()
        if name in partly or name not in evidence.collectors
    }
    return replace(evidence, gaps=gaps)
