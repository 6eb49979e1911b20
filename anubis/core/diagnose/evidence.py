"""Records that collectors brought of a job that hangs, has failed or is slow, without conclusions.

A collector that brought nothing leaves its field empty and is absent from `collectors`; `gaps` has
its reason in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeVar

from anubis.core.fabric import Fabric, Part
from anubis.core.watch.findings import Look


class Collector(StrEnum):
    """A source of records. It counts as present even if it has nothing to report."""

    words: str  # what is missing if it brought nothing: "no kernel logs"

    def __new__(cls, value: str, words: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    KERNEL_LOG = "kernel-log", "kernel logs"
    TRAINING_LOG = "training-log", "training logs"
    EXITS = "exits", "exit codes"
    REACH = "reach", "word of whether its nodes answer"
    PROCESSES = "processes", "processes to ask"
    PROGRESS = "progress", "counts of collectives"
    CALLS = "calls", "records of collectives"
    STACKS = "stacks", "stacks"
    STEPS = "steps", "traces of steps"
    TRANSFERS = "transfers", "times of transfers"
    TIMERS = "timers", "timers of kernels"
    TELEMETRY = "telemetry", "telemetry"
    SETTINGS = "settings", "settings of its nodes"
    CONNECTIONS = "connections", "connections between its ranks"


MAY_WAIT = "its ranks may wait for"  # begins a gap in its progress that is no fault


class Gravity(StrEnum):
    """Severity of a line of a log: what it proves about the rank or node that wrote it."""

    CRITICAL = "critical"  # a sure sign of broken hardware, here
    DISTRIBUTED = "distributed"  # something went wrong between two, either may be at fault
    APPLICATION = "application"  # the program or the hardware: a repetition shows which
    MISMATCH = "mismatch"  # ranks called different collectives: no rank is to blame
    MEMORY = "memory"  # a program asked for more than there is
    LOSS = "loss"  # the training itself went wrong: not a number
    NOTE = "note"  # known, and no cause


@dataclass(frozen=True, kw_only=True)
class LogEvent:
    """A line of a log, or several that belong together, after parsing."""

    collector: Collector
    code: str  # its row in the table of classes: `xid-79`, `mlx5-link-down`
    gravity: Gravity
    text: str  # fit to be shown, and short
    node: str = ""
    rank: int | None = None
    at: float | None = None
    by: float | None = None  # when at the latest, if `at` is unknown
    written_by: float | None = None  # its line, if known: `at` may be of one long before it
    peer: str = ""  # the other end, as it was named: an address, a host, `rank 3`
    device: str = ""  # a PCI address, `mlx5_0`, `nvme0n1`
    detail: str = ""  # key of the same error on other ranks: without addresses and numbers
    lasted_s: float = 0.0  # how long the trouble had lasted by then, if the line says so
    is_followed: bool = False  # by steps of its rank, which may have been in a buffer


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of a rank's process."""

    rank: int
    code: int | None = None
    signal: int | None = None
    at: float | None = None
    is_first: bool = False  # its launcher saw it fail first, and then ended the others


@dataclass(frozen=True, kw_only=True)
class Advance:
    """Progress of a rank in a communicator: numbers of its collectives."""

    rank: int
    communicator: str  # the same on all of its ranks
    members: tuple[int, ...]
    enqueued: int
    completed: int
    started: int | None = None  # by the device; gloo does not report it
    operation: str = ""  # in which it waits


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
    took_s: float | None = None  # by its device, from when this rank had come to it
    members: tuple[int, ...] = ()  # of the communicator
    line: str = ""  # of the user's code


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Call stack of a thread of a process, outermost call first."""

    rank: int
    frames: tuple[str, ...]  # "name (file:line)"
    thread: str = ""  # function that it began with; empty: the main thread


class Pulse(StrEnum):
    """State of a process as seen from outside."""

    ANSWERS = "answers"
    MUTE = "mute"  # it is not stopped, and its interpreter does not answer
    STOPPED = "stopped"  # it exists and does not answer
    GONE = "gone"
    UNHEARD = "unheard"  # the other processes of the job receive nothing from it


@dataclass(frozen=True, kw_only=True)
class PastPart:
    """What a rank that sends messages did for a while, by its own notes."""

    until: float
    length_s: float
    messages: int
    looks: int  # at its program,
    at_work: int  # those in which it waited for no other rank


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """A process of a job as the collector found it."""

    rank: int
    pulse: Pulse
    at: float | None = None
    waits: float | None = None  # share of the time in which it was ready and got no processor
    work_waits: float | None = None  # the same without the threads that only communicate
    work_ran: float | None = None  # share of the time in which those ran
    waited_before: float | None = None  # in which they waited, from its join to the first look
    times_seen: int = 0  # looks at its main thread,
    times_at_work: int = 0  # those in which it waited for no other rank
    past: tuple[PastPart, ...] = ()  # oldest first
    rests_s: float | None = None  # for so long its main thread and its children hardly ran
    sleeps: int | None = None  # how often its main thread has gone to sleep so far
    moved_bytes: int | None = None  # that it has read and written so far
    is_busy: bool = False  # it touched new memory, or what it started ran
    blocked_in: str = ""  # function of the kernel in which its main thread sleeps
    is_deaf: bool = (
        False  # of a mute one: not even its recorder answers, which needs no interpreter
    )
    is_late: bool = False  # of a mute one: it answered not long ago


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Traffic of a rank to another rank or an address, by the kernel of its own host."""

    rank: int
    own: str = ""  # address of its end
    peer: str  # address of the other end
    peer_rank: int | None = None
    samples: int  # recent ones
    sending: int  # samples in which bytes were under way although the peer's program was not slow
    resent: int = 0  # how often the same bytes were sent again so far without an answer
    seen_s: float = 0.0  # time over which the kernel counted the following
    moved_bytes: int = 0  # that the other end acknowledged
    busy_s: float = 0.0  # bytes were under way, and the other end had room for them

    @property
    def rate(self) -> float | None:
        """Bytes a second while bytes were under way; None if the kernel counted nothing."""
        return self.moved_bytes / self.busy_s if self.busy_s > 0 and self.moved_bytes > 0 else None


@dataclass(frozen=True, kw_only=True)
class AdapterRise:
    """Rise of an error counter of an RDMA adapter while the job was looked at."""

    node: str = ""
    device: str  # `mlx5_0`
    counter: str  # the kernel's name: out_of_sequence
    rise: int
    seen_s: float


@dataclass(frozen=True, kw_only=True)
class KernelTimer:
    """State of a rank's kernel timer: hung, or not."""

    rank: int
    is_hung: bool


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of one rank."""

    rank: int
    step: int
    duration_s: float
    own_s: float | None  # time that it worked; None: not recorded
    communicator: str = ""  # that `collective_s` and `group_s` are about
    collective_s: float | None = None  # its time in them
    group_s: float | None = None  # mean of its group's times in them


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelStep:
    """Times of one kernel of computation on the GPU of one rank in one step."""

    rank: int
    step: int
    name: str
    grid: str  # with the same one it does the same amount of work, if that is not in its data
    typical_s: float  # median of its calls
    total_s: float


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Data that ranks exchanged, in a collective or in a message."""

    ranks: frozenset[int]
    what: str  # operation and size: transfers with the same are alike
    took_s: float  # from when the last of the ranks had come
    at: float  # its begin or its end, the same of all


@dataclass(frozen=True, kw_only=True)
class RankMap:
    """Node of each rank, and ranks that do the same work."""

    nodes: Mapping[int, str] = field(default_factory=dict)
    stages: Mapping[int, int] = field(
        default_factory=dict
    )  # stages of the pipeline; empty: all ranks do the same work
    addresses: Mapping[str, str] = field(default_factory=dict)  # address or host name → node

    def node_of(self, rank: int) -> str:
        """Node of a rank. Empty: unknown."""
        return self.nodes.get(rank, "")

    def rank_on(self, node: str, local: int) -> int | None:
        """Rank number `local` of the node's ranks, in order."""
        own = sorted(rank for rank, name in self.nodes.items() if name == node)
        return own[local] if local < len(own) else None

    def node_named(self, peer: str) -> str:
        """Node that a log calls by this name or address, with or without port or domain; or
        empty."""
        host = peer.rpartition(":")[0].strip("[]")
        node = self.addresses.get(peer) or self.addresses.get(host)
        return node or self._by_label.get(_label(peer), "")

    @cached_property
    def _by_label(self) -> Mapping[str, str]:
        """Nodes by their names without a domain, of each name that only one node has."""
        labels = {node: _label(node) for node in self.addresses.values()}
        counts = Counter(labels.values())
        return {label: node for node, label in labels.items() if label and counts[label] == 1}


def _label(host: str) -> str:
    """First label of a host's name; empty for an address."""
    label = host.partition(".")[0]
    return "" if label.isdecimal() or ":" in label else label


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkingPair:
    """Two nodes that reached each other when the job had failed, or just before: by a collective
    that ended, or by a probe."""

    a: str
    b: str
    size_bytes: int | None = None  # of the messages; None: the sizes of the job's messages
    device: str = ""  # the NIC; empty: on all


@dataclass(frozen=True, kw_only=True)
class OddSetting:
    """A node's setting that differs from most of its sku, or from what the site expects."""

    node: str
    setting: str
    device: str  # `node` for what belongs to none
    sentence: str  # its value, the others' value, and how many they are
    at: float  # when the node reported it


@dataclass(frozen=True, kw_only=True)
class Rise:
    """A count of the job's work that rose between two different moments."""

    what: str  # that is counted: `collectives`, `steps`
    before: int
    after: int
    since: float  # when it was `before`
    until: float  # when it was `after`
    vouches_s: float  # for so long after `until` it proves that the job moves
    ranks: frozenset[int] = frozenset()  # whose work it counts; empty: all


@dataclass(frozen=True, kw_only=True)
class JobPace:
    """How fast the collectives, messages or steps of a job followed each other earlier and
    lately."""

    what: str = "collectives"
    earlier_s: float  # between two of them; of nearly all earlier ones at most
    lately_s: float  # of all late ones at least
    since: float  # when "lately" began

    @property
    def ratio(self) -> float:
        """Return how many times as long they take lately."""
        return self.lately_s / self.earlier_s if self.earlier_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A report that the job runs and makes no progress."""

    since: float
    sentence: str  # the source, and its reason


@dataclass(frozen=True, kw_only=True)
class AskedNodes:
    """Nodes whose agents were asked to look at the job. One that did not answer is missing: that is
    no sign of a fault."""

    nodes: tuple[str, ...]
    silent: Mapping[str, str]  # node → why it brought nothing


@dataclass(frozen=True, kw_only=True)
class JobEvidence:
    """All that is known of one job at one moment."""

    job: str = ""
    at: float = 0.0
    collectors: frozenset[Collector]
    ranks: RankMap = field(default_factory=RankMap)
    gaps: Mapping[Collector, str] = field(
        default_factory=dict
    )  # why a collector brought nothing: one sentence
    log: tuple[LogEvent, ...] = ()
    exits: tuple[Exit, ...] = ()
    unreachable: Mapping[str, float] = field(
        default_factory=dict
    )  # node that does not answer → since when
    advances: tuple[Advance, ...] = ()
    mute: frozenset[int] = (
        frozenset()
    )  # ranks whose progress was asked for, or whose logs were read, without a result
    calls: tuple[Call, ...] = ()
    stacks: tuple[Stack, ...] = ()
    processes: tuple[ProcessState, ...] = ()
    steps: tuple[StepTime, ...] = ()
    kernels: tuple[KernelStep, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    connections: tuple[Connection, ...] = ()
    adapters: tuple[AdapterRise, ...] = ()
    timers: tuple[KernelTimer, ...] = ()
    look: Look | None = None  # at its telemetry
    settings: tuple[OddSetting, ...] = ()
    unread: frozenset[str] = frozenset()  # nodes whose logs are not available: they are not silent
    working: tuple[WorkingPair, ...] = ()
    fabric: Fabric | None = None  # between its nodes, if a topology is known
    groups: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # without a fabric: "leaf", "rack" or the like → node → its name
    hints: Mapping[Part, float] = field(default_factory=dict)  # factors on the odds of its parts
    alive: bool | None = None  # its processes still run; None: not checked
    stall: Stall | None = None
    pace: JobPace | None = None  # None: too little was recorded
    progress: tuple[Rise, ...] = ()
    asked: AskedNodes | None = None  # None: no agent was asked
    is_past: bool = False  # the question came after its end: earlier movement proves nothing


Merged = TypeVar("Merged", JobEvidence, RankMap)
OF_QUESTION = ("job", "at", "is_past")  # fields that no collector fills


def join_evidence(evidence: JobEvidence, pieces: Iterable[JobEvidence]) -> JobEvidence:
    """Merge what collectors brought one by one into evidence on one job at one moment: that of
    `evidence`. A gap that another piece fills disappears; a collector's gap in its own part
    stays."""
    partly = {name for name in evidence.gaps if name in evidence.collectors}
    for piece in pieces:
        partly |= {name for name in piece.gaps if name in piece.collectors}
        evidence = _merge(evidence, piece, leaving=OF_QUESTION)
    gaps = {
        name: why
        for name, why in evidence.gaps.items()
        if name in partly or name not in evidence.collectors
    }
    return replace(evidence, gaps=gaps)


def _merge(first: Merged, second: Merged, *, leaving: Collection[str] = ()) -> Merged:
    """Merge two records field by field."""
    names = [entry.name for entry in fields(first) if entry.name not in leaving]
    return replace(
        first, **{name: _joined(getattr(first, name), getattr(second, name)) for name in names}
    )


def _joined(first: Any, second: Any) -> Any:
    """Join two values of a field: collections one after the other; of two statements about one
    thing the first, of two paces the one that slowed more."""
    if isinstance(first, JobPace) and isinstance(second, JobPace):
        return max(first, second, key=lambda pace: pace.ratio)
    if isinstance(first, tuple):
        return first + second
    if isinstance(first, frozenset):
        return first | second
    if isinstance(first, Mapping):
        return {**second, **first}
    if isinstance(first, RankMap):
        return _merge(first, second)
    return second if first is None else first
