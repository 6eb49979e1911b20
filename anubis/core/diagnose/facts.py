"""Facts about a job, the rules that conclude them, and the chain of reasoning that the rules form.

A rule declares what it needs and what it gives, and runs as soon as its needs are met. So each job
gets the chain that its data allow. Rules run again while any gives a new fact, each at most once
for the same facts; a fact is never added twice, and no chain is longer than `DEPTH`: reasoning
always ends. No rule may conclude from the absence of a fact: the fact could be added a round later.
The analyst decides at the end which fact outweighs which.

The cause of a diagnosis is also mapped to a kind of fault, in the words of the published table that
suspicions use. The kind then chooses a test that has found such faults before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anubis.core.diagnose.evidence import Collector, JobEvidence


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
    MAY_BE_SLOW = "may-be-slow"  # others wait for it, which is no proof
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


SUSPENDED = "suspended"  # code: all processes are stopped, which is no fault
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
    is_followed: bool = False  # by steps of its rank: it may have ended nothing


DEPTH = 16  # rounds: a bound for rules that feed each other


@dataclass(frozen=True)
class Hearing:
    """The evidence on a job, and all facts concluded so far."""

    evidence: JobEvidence
    facts: tuple[JobFact, ...] = ()

    def facts_of(self, *kinds: FactKind) -> list[JobFact]:
        return [fact for fact in self.facts if fact.kind in kinds]


@dataclass(frozen=True, kw_only=True)
class InferenceRule:
    name: str
    needs: frozenset[Collector | FactKind]
    gives: frozenset[FactKind]
    hears: frozenset[FactKind] = frozenset()  # facts that it also uses if they are there
    infer: Callable[[Hearing], Iterable[JobFact]] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """Facts in the order of their conclusion, and rules that lacked something."""

    facts: tuple[JobFact, ...]
    unmet: dict[str, tuple[str, ...]]  # rule → what it lacked


def reason(evidence: JobEvidence, rules: Sequence[InferenceRule]) -> Reasoning:
    """Apply the rules in rounds until no round adds a fact. A round sees only the facts of earlier
    rounds."""
    hearing = Hearing(evidence)
    asked_about: dict[str, list[JobFact]] = {}  # by rule: the facts of its last run
    for _ in range(DEPTH):
        fresh: dict[tuple[object, ...], JobFact] = {}
        present = {_identity(fact) for fact in hearing.facts}
        for rule in rules:
            about = hearing.facts_of(*_kinds(rule.needs), *rule.hears)
            if _lacking(rule, hearing) or asked_about.get(rule.name) == about:
                continue
            asked_about[rule.name] = about
            for fact in rule.infer(hearing):
                if fact.kind not in rule.gives:
                    raise ValueError(
                        f"rule {rule.name} gives {fact.kind}, which it does not declare"
                    )
                if _identity(fact) not in present:
                    fresh.setdefault(_identity(fact), fact)
        if not fresh:
            break
        hearing = Hearing(evidence, (*hearing.facts, *fresh.values()))
    unmet = {rule.name: lacking for rule in rules if (lacking := _lacking(rule, hearing))}
    return Reasoning(facts=hearing.facts, unmet=unmet)


def _kinds(needs: Iterable[Collector | FactKind]) -> list[FactKind]:
    return [need for need in needs if isinstance(need, FactKind)]


def _lacking(rule: InferenceRule, hearing: Hearing) -> tuple[str, ...]:
    kinds = {fact.kind for fact in hearing.facts}
    return tuple(sorted(rule.needs - hearing.evidence.collectors - kinds))


def _identity(fact: JobFact) -> tuple[object, ...]:
    """Key of a fact: facts with the same key say the same."""
    return fact.kind, fact.whom, fact.code, fact.peer


BY_CODE = (  # the first that matches the whole code
    (r"xid-(48|63|64|92|94|95|171|172)", "ecc"),
    (r"xid-79|.*fallen-off.*|.*gpu-lost.*", "gpu-drop"),
    (r"xid-(74|14[4-9]|150)(-.*)?|sxid.*|.*nvlink.*", "nvlink"),
    (r"xid-(13|31|43|45|68|69)|.*cuda.*", "cuda-error"),
    (r"xid-\d+|gsp-.*|gpu-.*", "gpu-error"),
    (r".*pcie.*|aer.*", "pcie-downgrade"),
    (r"mlx5.*|.*nic.*|.*link-down.*|.*ib-.*", "nic-dropout"),
    (r"nvme.*|.*read-only.*|.*storage.*|.*disk.*", "storage"),
)
BY_KIND = {
    FactKind.UNREACHABLE: "unreachable",
    FactKind.SILENT: "unreachable",
    FactKind.COMMON_PART: "optical-cable",
    FactKind.LIKELY_PART: "optical-cable",
    FactKind.DISTRIBUTED_ERROR: "optical-cable",
    FactKind.UNFINISHED: "optical-cable",
    FactKind.SLOW_NETWORK: "optical-cable",
    FactKind.NETWORK_FAULT: "optical-cable",
    FactKind.SLOW_COMPUTE: "gpu-error",
}
ELSE = "cuda-error"  # the process failed, hangs or is absent


def fault_of(cause: JobFact | None) -> str:
    if cause is None:
        return ELSE
    by_code = (fault for pattern, fault in BY_CODE if re.fullmatch(pattern, cause.code))
    return next(by_code, BY_KIND.get(cause.kind, ELSE))
