"""Which nodes of a job answer their orchestrator no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anubis.core.keep.life import Life

NOTICED_S = 600.0  # an orchestrator shows a node as gone minutes later, and the keeper looks then
UNREACHABLE_S = 60.0  # a node that answers again sooner was only slow to answer


def unreachable(
    lives: Iterable[Life], seen_at: float | None, nodes: Sequence[str], at: float, now: float
) -> dict[str, float] | None:
    """Each with the time since when, if their orchestrator was asked (`seen_at`) since the job was
    in trouble (`at`). None: it was not."""
    of_job = [life for life in lives if life.node in set(nodes)]
    if not of_job or seen_at is None or seen_at < at:
        return None
    latest = min(at + NOTICED_S, now - UNREACHABLE_S)
    return {
        life.node: life.present_at
        for life in of_job
        if not life.present and not life.retired and life.present_at <= latest
    }
