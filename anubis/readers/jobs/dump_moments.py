"""Which dumps of a folder belong together. Only dumps of one run, taken while it stood still, show
who is absent from a collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anubis.core.diagnose.evidence import CallState, JobEvidence

WAITED_S = 1800.0  # gloo's time-out, the longest that is usual
SLACK_S = 60.0  # a step, and what clocks differ
STILL_S = 5.0  # a rank that launched so shortly before its dump did not stand still
SYNCHRONOUS = ("allreduce", "allgather", "reducescatter", "barrier")
# nobody ends one of these before everybody has begun it; with uneven sizes all_to_all is none


def earlier_ranks(newest: Mapping[int, float], timeouts: Iterable[float]) -> frozenset[int]:
    """Return the ranks whose last launch is so long before the newest of all that the others would
    have timed out since: their dumps are of an earlier run."""
    limit = max(timeouts, default=WAITED_S) + SLACK_S
    last = max(newest.values(), default=0.0)
    return frozenset(rank for rank, at in newest.items() if last - at > limit)


def busy_ranks(newest: Mapping[int, float], written: Mapping[int, float]) -> frozenset[int]:
    """Return the ranks that launched a collective just before their dumps were written."""
    return frozenset(
        rank for rank, at in newest.items() if 0 <= written.get(rank, 0.0) - at < STILL_S
    )


def overtaken_rank(evidence: JobEvidence) -> tuple[int, int, str] | None:
    """Return a rank whose dump is older than that of another one, which ended a collective that
    needs both: the rank, the other one, and the collective. None: there is none."""
    ended: dict[str, tuple[int, int, str]] = {}
    for call in evidence.calls:
        if call.state is CallState.FINISHED and is_synchronous(call.operation):
            best = ended.get(call.communicator, (0, 0, ""))
            ended[call.communicator] = max(best, (call.sequence, call.rank, call.operation))
    for advance in evidence.advances:
        sequence, faster, operation = ended.get(advance.communicator, (0, 0, ""))
        if advance.enqueued < sequence:
            return advance.rank, faster, f"{operation} {sequence} of {advance.communicator}"
    return None


def is_synchronous(operation: str) -> bool:
    plain = operation.lower().replace("_", "")
    return any(name in plain for name in SYNCHRONOUS) and "coalesced" not in plain
