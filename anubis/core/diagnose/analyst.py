"""Conclude what is wrong with a job and which nodes or ranks are at fault, but not why, nor what
to do. If that is not known yet, it names the one collector that would settle it.

The analyst gets all facts at once. The order of `TIERS` says which outweighs which: what one host
shows of itself outweighs what hosts report of each other, and that outweighs unusual values. No
rank is blamed for a collective that ranks called differently, nor for an error that all have in
common.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anubis.core.diagnose.evidence import Collector, Gravity, JobEvidence
from anubis.core.diagnose.facts import FAILED_FIRST, SUSPENDED, FactKind, JobFact, Reasoning, Whom
from anubis.core.diagnose.live_progress import proof

SURE_S = 5.0  # margin before the last move, because clocks differ
PAIR = 2  # the most hosts that are named because they report each other


class JobTrouble(StrEnum):
    FAILED = "failed"
    HUNG = "hung"
    SLOW = "slow"
    UNEVEN = "uneven"  # it works, and a node is unlike its peers
    NOTHING = "nothing"  # found, and the job moves
    UNKNOWN = "unknown"  # neither trouble nor movement was seen


@dataclass(frozen=True, kw_only=True)
class Tier:
    kinds: tuple[FactKind, ...]
    trouble: JobTrouble
    blames: bool = True
    firsts: bool = False  # only the earliest facts: the others followed from them


TIERS = (
    Tier(kinds=(FactKind.CRITICAL_ERROR,), trouble=JobTrouble.FAILED),
    Tier(kinds=(FactKind.UNREACHABLE,), trouble=JobTrouble.FAILED),
    Tier(kinds=(FactKind.MISMATCH,), trouble=JobTrouble.HUNG, blames=False),
    Tier(kinds=(FactKind.SAME_ERROR, FactKind.BAD_LOSS), trouble=JobTrouble.FAILED, blames=False),
    Tier(kinds=(FactKind.ABSENT, FactKind.STOPPED, FactKind.UNFINISHED), trouble=JobTrouble.HUNG),
    Tier(kinds=(FactKind.OUT_OF_MEMORY,), trouble=JobTrouble.FAILED, firsts=True),
    Tier(kinds=(FactKind.APPLICATION_ERROR, FactKind.DIED), trouble=JobTrouble.FAILED, firsts=True),
    Tier(kinds=(FactKind.GONE,), trouble=JobTrouble.FAILED, firsts=True),
    Tier(kinds=(FactKind.ELSEWHERE,), trouble=JobTrouble.HUNG),
    Tier(kinds=(FactKind.COMMON_PART,), trouble=JobTrouble.FAILED),
    Tier(kinds=(FactKind.SILENT,), trouble=JobTrouble.FAILED),
    Tier(kinds=(FactKind.DISTRIBUTED_ERROR,), trouble=JobTrouble.FAILED),
    Tier(kinds=(FactKind.SLOW_NETWORK,), trouble=JobTrouble.SLOW),
    Tier(kinds=(FactKind.SLOW_COMPUTE,), trouble=JobTrouble.SLOW),
    Tier(kinds=(FactKind.UNLIKE_PEERS,), trouble=JobTrouble.UNEVEN),
    Tier(kinds=(FactKind.OUTLIER,), trouble=JobTrouble.UNEVEN),
    Tier(kinds=(FactKind.SETTINGS_DIFFER,), trouble=JobTrouble.UNEVEN),
    Tier(kinds=(FactKind.NETWORK_FAULT,), trouble=JobTrouble.UNEVEN),
)


HANGS = {
    *(FactKind.ABSENT, FactKind.STOPPED, FactKind.UNFINISHED),
    *(FactKind.STANDSTILL, FactKind.MISMATCH, FactKind.MISSING, FactKind.ELSEWHERE),
}
LASTING = {
    *(FactKind.CRITICAL_ERROR, FactKind.UNREACHABLE, FactKind.SLOW_COMPUTE, FactKind.SLOW_NETWORK),
    *(FactKind.UNLIKE_PEERS, FactKind.OUTLIER, FactKind.SETTINGS_DIFFER, FactKind.NETWORK_FAULT),
    *(FactKind.BAD_LOSS, FactKind.SLOWED, FactKind.MAY_BE_SLOW),
}  # facts that remain true of a job that moves
CONSEQUENCES = {
    *(FactKind.DISTRIBUTED_ERROR, FactKind.MISSING, FactKind.GONE),
    *(FactKind.ABSENT, FactKind.LIKELY_PART, FactKind.COMMON_PART, FactKind.SILENT),
}  # facts that an error of a rank may be behind
UNRELATED = {
    *(FactKind.SETTINGS_DIFFER, FactKind.NETWORK_FAULT, FactKind.OUTLIER, FactKind.UNLIKE_PEERS),
    *(FactKind.SLOWED, FactKind.MAY_BE_SLOW, FactKind.STANDSTILL),
}  # facts that say nothing of an error
HARMLESS = {FactKind.SETTINGS_DIFFER}  # no trouble, unless it names a node


@dataclass(frozen=True, kw_only=True)
class Analysis:
    trouble: JobTrouble
    culprits: tuple[Whom, ...] = ()
    decisive: tuple[JobFact, ...] = ()  # facts that the result rests on
    is_the_job_itself: bool = False  # the whole job is at fault: its code, its data or its settings
    is_either: bool = False  # one of the culprits is at fault, and it is unknown which

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(whom.node for whom in self.culprits if whom.node))


def analyse(reasoning: Reasoning, evidence: JobEvidence) -> Analysis:
    until = min((rise.until for rise in proof(evidence)), default=-math.inf)
    current = [fact for fact in reasoning.facts if not _is_survived(fact, until)]
    current = _drop_followed(current, evidence)
    for tier in TIERS:
        facts = [fact for fact in current if fact.kind in tier.kinds]
        if tier.firsts:
            facts = _first(facts)
        culprits = _culprits(facts)
        if tier.firsts and _are_most(culprits, evidence):
            continue
        if FactKind.GONE in tier.kinds and _may_be_over(current, evidence):
            continue
        if not facts or (tier.blames and not culprits):
            continue
        trouble = _trouble(tier.trouble, current, evidence)
        if not tier.blames:
            # a loss that is no number may be the work of a GPU that errs
            is_proven = any(fact.kind is not FactKind.BAD_LOSS for fact in facts)
            return Analysis(trouble=trouble, decisive=tuple(facts), is_the_job_itself=is_proven)
        is_either = len(culprits) > 1 and FactKind.DISTRIBUTED_ERROR in tier.kinds
        return Analysis(
            trouble=trouble, culprits=culprits, decisive=tuple(facts), is_either=is_either
        )
    is_well = proof(evidence) and all(fact.kind in HARMLESS for fact in reasoning.facts)
    likely = JobTrouble.NOTHING if is_well else JobTrouble.UNKNOWN
    if any(fact.kind is FactKind.SLOWED for fact in current):
        likely = JobTrouble.SLOW
    kinds = (FactKind.STANDSTILL, FactKind.MISSING, FactKind.SLOWED, FactKind.MAY_BE_SLOW)
    return Analysis(
        trouble=_trouble(likely, current, evidence),
        decisive=tuple(fact for fact in current if fact.kind in kinds),
    )


def _is_survived(fact: JobFact, until: float) -> bool:
    """Return whether the job has moved since the fact, so that the fact explains nothing of the
    present. Broken hardware stays broken."""
    return fact.kind not in LASTING and fact.at is not None and fact.at < until - SURE_S


def _drop_followed(facts: list[JobFact], evidence: JobEvidence) -> list[JobFact]:
    """Drop errors whose ranks counted steps afterwards, unless consequences show that something
    failed, and nothing but these errors may explain it."""
    left = [fact for fact in facts if not fact.is_followed]
    kinds = {fact.kind for fact in left} - UNRELATED
    failed = bool(kinds) or any(end.code or end.signal for end in evidence.exits)
    return facts if failed and kinds <= CONSEQUENCES else left


def _trouble(likely: JobTrouble, facts: Sequence[JobFact], evidence: JobEvidence) -> JobTrouble:
    """Trouble by what the processes do, which outweighs the usual meaning of facts: a job whose
    processes are gone has failed, a job with a rank that others wait for hangs, and a job that
    moves has not failed."""
    kinds = {fact.kind for fact in facts}
    if likely is JobTrouble.UNKNOWN and any(fact.code == SUSPENDED for fact in facts):
        return likely
    if _may_be_over(facts, evidence):
        return likely
    moves = bool(proof(evidence)) and kinds <= LASTING
    has_ended = any(end.code or end.signal for end in evidence.exits) and not moves
    if evidence.alive is False or has_ended:
        return JobTrouble.FAILED
    if evidence.stall:
        return JobTrouble.HUNG
    if FactKind.MISMATCH in kinds and kinds & {FactKind.DIED, FactKind.GONE}:
        return JobTrouble.FAILED
    if kinds & HANGS:
        return JobTrouble.HUNG
    if FactKind.UNREACHABLE in kinds and evidence.alive and not moves:
        return JobTrouble.HUNG
    errors = {FactKind.DISTRIBUTED_ERROR, FactKind.APPLICATION_ERROR, FactKind.OUT_OF_MEMORY}
    if kinds & errors and not evidence.alive:
        return JobTrouble.FAILED
    is_uneven = moves and FactKind.BAD_LOSS not in kinds
    return JobTrouble.UNEVEN if is_uneven and likely is JobTrouble.FAILED else likely


def _may_be_over(facts: Iterable[JobFact], evidence: JobEvidence) -> bool:
    """Return whether all processes have ended and nothing shows that they ended badly."""
    has_reports = evidence.stall or any(event.gravity is not Gravity.NOTE for event in evidence.log)
    has_reports = has_reports or any(end.code or end.signal for end in evidence.exits)
    only_gone = all(fact.kind in {FactKind.GONE, *HARMLESS} for fact in facts)
    return evidence.alive is False and only_gone and not has_reports


def _first(facts: Sequence[JobFact]) -> list[JobFact]:
    """The earliest facts, or all of them if no time is known; if the launcher reports which rank
    failed first, only that rank's."""
    start = min((fact.at for fact in facts if fact.at is not None), default=math.inf)
    first = [fact for fact in facts if fact.at in (None, start)] or list(facts)
    ranks = {fact.whom.rank for fact in facts if fact.code == FAILED_FIRST}
    return [fact for fact in first if fact.whom.rank in ranks] or first


def _culprits(facts: Sequence[JobFact]) -> tuple[Whom, ...]:
    """Subjects of the facts, each once, and each rank once: sources may name its node differently.
    If hosts report each other: both ends of a single pair, else none."""
    if any(fact.kind is FactKind.DISTRIBUTED_ERROR for fact in facts):
        ends = dict.fromkeys(end for fact in facts for end in _ends(fact))
        return tuple(ends) if len(ends) <= PAIR else ()
    subjects: dict[object, Whom] = {}
    for fact in facts:
        if fact.whom != Whom():
            subject = fact.whom if fact.whom.rank is None else fact.whom.rank
            subjects.setdefault(subject, fact.whom)
    return tuple(subjects.values())


def _are_most(culprits: Sequence[Whom], evidence: JobEvidence) -> bool:
    """Return whether culprits are most of the ranks: then the cause is not one of them."""
    return len(culprits) > 1 and 2 * len(culprits) >= len(evidence.ranks.nodes)


def _ends(report: JobFact) -> Iterable[Whom]:
    return (Whom(node=end.node) for end in (report.whom, report.peer) if end and end.node)


# that show who it is, the surest first
WHO: Mapping[JobTrouble, tuple[Collector, ...]] = {
    JobTrouble.HUNG: (Collector.STACKS, Collector.CALLS, Collector.KERNEL_LOG),
    JobTrouble.FAILED: (Collector.TRAINING_LOG, Collector.KERNEL_LOG, Collector.CALLS),
    JobTrouble.SLOW: (Collector.STEPS, Collector.TELEMETRY, Collector.KERNEL_LOG),
    JobTrouble.UNEVEN: (Collector.STEPS, Collector.KERNEL_LOG),
}
# that show why, for causes that are only what was seen of a culprit
WHY: Mapping[FactKind, tuple[Collector, ...]] = {
    FactKind.ABSENT: (Collector.STACKS, Collector.KERNEL_LOG),
    FactKind.UNFINISHED: (Collector.KERNEL_LOG, Collector.TELEMETRY),
    FactKind.ELSEWHERE: (Collector.KERNEL_LOG,),
    FactKind.STOPPED: (Collector.KERNEL_LOG,),
    FactKind.GONE: (Collector.TRAINING_LOG, Collector.KERNEL_LOG),
    FactKind.DIED: (Collector.KERNEL_LOG,),
    FactKind.DISTRIBUTED_ERROR: (Collector.KERNEL_LOG,),
    FactKind.SLOW_COMPUTE: (Collector.TELEMETRY, Collector.KERNEL_LOG),
    FactKind.SLOW_NETWORK: (Collector.KERNEL_LOG,),
    FactKind.SLOWED: (Collector.TELEMETRY, Collector.KERNEL_LOG),
}


def settling_collector(
    trouble: JobTrouble,
    cause: FactKind | None,
    collectors: Collection[Collector],
    *,
    is_named: bool,
) -> Collector | None:
    """Return the collector that would show who it is, or else why; None if no one would."""
    needed = WHO.get(trouble, ()) if not is_named else ()
    needed += WHY.get(cause, ()) if cause else ()
    return next((name for name in needed if name not in collectors), None)
