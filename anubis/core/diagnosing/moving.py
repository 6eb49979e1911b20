"""Proof that a job moves: counts of its work that rose between two looks, up to the moment of the
question. Without it nobody may say that nothing is wrong."""

from __future__ import annotations

from anubis.core.diagnosing.evidence import JobEvidence, Progress, Pulse

AHEAD_S = 5.0  # clocks of two machines may differ by so much; what is dated later proves nothing


def proof(evidence: JobEvidence) -> tuple[Progress, ...]:
    """What shows that all ranks move. Empty: nothing that was read does."""
    are_there = all(process.pulse is Pulse.ANSWERS for process in evidence.processes)
    if evidence.is_past or evidence.alive is False or evidence.stall or not are_there:
        return ()
    rising = tuple(progress for progress in evidence.progress if _is_proof(progress, evidence.at))
    if any(not progress.ranks for progress in rising):
        return rising
    moving = frozenset[int]().union(*(progress.ranks for progress in rising))
    return rising if rising and everybody(evidence) <= moving else ()


def everybody(evidence: JobEvidence) -> frozenset[int]:
    """All ranks of which anything was heard; else those that the job is said to have."""
    members = (rank for advance in evidence.advances for rank in advance.members)
    heard = (process.rank for process in evidence.processes)
    return frozenset((*members, *heard)) or frozenset(evidence.ranks.nodes)


def _is_proof(progress: Progress, at: float) -> bool:
    rose = progress.after > progress.before and progress.until > progress.since
    return rose and -AHEAD_S <= at - progress.until <= progress.vouches_s
