"""Proof that a job moves: counts of its work that rose between two looks, up to the moment of the
question. Without this proof no diagnosis may say that nothing is wrong."""

from __future__ import annotations

from anubis.core.diagnose.evidence import JobEvidence, Pulse, Rise

AHEAD_S = 5.0  # the most that clocks of two machines differ; a later date proves nothing


def proof(evidence: JobEvidence) -> tuple[Rise, ...]:
    """Rises that show that all ranks move. Empty: no such proof was read."""
    there = (Pulse.ANSWERS, Pulse.MUTE)  # one that is slow to answer may move
    are_there = all(process.pulse in there for process in evidence.processes)
    if evidence.is_past or evidence.alive is False or evidence.stall or not are_there:
        return ()
    rises = evidence.progress
    if not all(_is_proof(rise, evidence.at) for rise in rises):
        return ()  # one count that does not rise outweighs others that do
    if any(not rise.ranks for rise in rises):
        return rises
    moving = frozenset[int]().union(*(rise.ranks for rise in rises))
    return rises if rises and everybody(evidence) <= moving else ()


def everybody(evidence: JobEvidence) -> frozenset[int]:
    """Ranks that any collector reported; if there are none, those of the rank map."""
    members = (rank for advance in evidence.advances for rank in advance.members)
    processes = (process.rank for process in evidence.processes)
    return frozenset((*members, *processes)) or frozenset(evidence.ranks.nodes)


def _is_proof(rise: Rise, at: float) -> bool:
    is_one = rise.after > rise.before and rise.until > rise.since
    return is_one and -AHEAD_S <= at - rise.until <= rise.vouches_s
