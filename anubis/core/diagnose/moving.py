"""Proof that a job moves: counts of its work that rose between two looks, up to the moment of the
question. Without it nobody may say that nothing is wrong."""

from __future__ import annotations

from anubis.core.diagnose.evidence import JobEvidence, Pulse, Rise

AHEAD_S = 5.0  # clocks of two machines may differ by so much; what is dated later proves nothing


def proof(evidence: JobEvidence) -> tuple[Rise, ...]:
    """What shows that all ranks move. Empty: nothing that was read does."""
    are_there = all(process.pulse is Pulse.ANSWERS for process in evidence.processes)
    if evidence.is_past or evidence.alive is False or evidence.stall or not are_there:
        return ()
    rises = evidence.progress
    if not all(_is_proof(rise, evidence.at) for rise in rises):
        return ()  # a count that stands speaks against others that rise
    if any(not rise.ranks for rise in rises):
        return rises
    moving = frozenset[int]().union(*(rise.ranks for rise in rises))
    return rises if rises and everybody(evidence) <= moving else ()


def everybody(evidence: JobEvidence) -> frozenset[int]:
    """All ranks of which anything was heard; else those that the job is said to have."""
    members = (rank for advance in evidence.advances for rank in advance.members)
    processes = (process.rank for process in evidence.processes)
    return frozenset((*members, *processes)) or frozenset(evidence.ranks.nodes)


def _is_proof(rise: Rise, at: float) -> bool:
    is_one = rise.after > rise.before and rise.until > rise.since
    return is_one and -AHEAD_S <= at - rise.until <= rise.vouches_s
