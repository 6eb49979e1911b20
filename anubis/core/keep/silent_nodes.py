"""Nodes of a job that no longer answer their orchestrator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anubis.core.keep.life import Life

NOTICED_S = 600.0  # an orchestrator shows minutes later that a node is gone
UNREACHABLE_S = 60.0  # a node that answers again sooner was only slow to answer


def unreachable(
    lives: Iterable[Life], seen_at: float | None, nodes: Sequence[str], at: float, now: float
) -> dict[str, float] | None:
    """Unreachable nodes of a job, with the time since when; None: the orchestrator was not asked
    (`seen_at`) since the job was in trouble (`at`)."""
    of_job = [life for life in lives if life.node in set(nodes)]
    if not of_job or seen_at is None or seen_at < at:
        return None
    latest = min(at + NOTICED_S, now - UNREACHABLE_S)
    return {
        life.node: life.present_at
        for life in of_job
        if not life.present and not life.retired and life.present_at <= latest
    }
