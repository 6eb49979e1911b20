"""Facts about a job that rules conclude from evidence and from other facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FactKind(StrEnum):
    # of one node, one rank or one device
    CRITICAL_ERROR = "critical-error"  # a sure sign of broken hardware
    APPLICATION_ERROR = "application-error"  # one rank's program failed, or its hardware
    OUT_OF_MEMORY = "out-of-memory"
    UNREACHABLE = "unreachable"
    DIED = "died"  # its process was ended by a signal from outside
    GONE = "gone"  # its process no longer exists, for an unknown reason: others may have ended it
    STOPPED = "stopped"  # its process does nothing, or others receive nothing from it
    ABSENT = "absent"  # its group waits in a collective that it never launched
    ELSEWHERE = "elsewhere"  # the job stands still, and its program is where few others are
    UNFINISHED = "unfinished"  # all launched the collective, and this one did not finish it
    MISSING = "missing"  # others wait for it, and it left no record: no proof of a fault
    SILENT = "silent"  # others name it, and it logs nothing: a dead node does not log
    SLOW_COMPUTE = "slow-compute"
    SLOW_NETWORK = "slow-network"
    UNLIKE_PEERS = "unlike-peers"  # Minder's rule, by telemetry
    OUTLIER = "outlier"  # Aegis' rule, by telemetry
    # between two, or of the fabric
    DISTRIBUTED_ERROR = "distributed-error"  # one end reports the other
    COMMON_PART = "common-part"  # one part explains the distributed errors
    LIKELY_PART = "likely-part"  # it may explain them: it is among the first parts to test
    # of the whole job
    SAME_ERROR = "same-error"  # on nine of ten ranks: the code, its data or its settings
    STANDSTILL = "standstill"  # it does not go on, for an unknown reason
    SLOWED = "slowed"  # all of it takes longer than it did, and no rank stands out
    MISMATCH = "mismatch"  # ranks called different collectives: no rank is to blame
    BAD_LOSS = "bad-loss"  # not a number
    SETTINGS_DIFFER = "settings-differ"
    NETWORK_FAULT = "network-fault"  # found by topology, counters or a scan


FAILED_FIRST = "failed-first"  # code: the launcher reports which process failed first


@dataclass(frozen=True, kw_only=True)
class Whom:
    """The node, rank, device or part that a fact is about. All empty: the whole job."""

    node: str = ""
    rank: int | None = None
    device: str = ""  # a GPU or NIC of that node
    part: str = ""  # of the fabric


@dataclass(frozen=True, kw_only=True)
class JobFact:
    kind: FactKind
    whom: Whom
    evidence: str  # one sentence, with the numbers
    confidence: float = 1.0
    code: str = ""  # of the line or rule behind it: `xid-79`, `alpha`
    at: float | None = None  # since when
    peer: Whom | None = None  # the other end of a distributed error
    because: tuple[JobFact, ...] = ()  # what it was concluded from
