"""Find the jobs that run on a cluster and their nodes, as its orchestrator shows them."""

from __future__ import annotations

from dataclasses import dataclass

from anubis.core.errors import UsageError, did_you_mean
from anubis.reach.orchestrators.orchestrator import Orchestrator


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    id: str
    nodes: tuple[str, ...]
    owner: str = ""  # empty: the orchestrator does not show it
    started_at: float | None = None


def running_jobs(
    orchestrator: Orchestrator | None, *, least_nodes: int = 1
) -> tuple[RunningJob, ...]:
    """Running jobs; none without an orchestrator: then nodes are named by `--nodes`."""
    if orchestrator is None:
        return ()
    return tuple(
        RunningJob(id=id, nodes=seen.nodes, owner=seen.owner, started_at=seen.started_at)
        for id, seen in sorted(orchestrator.observe().jobs.items())
        if len(seen.nodes) >= least_nodes
    )


def nodes_of(job: str, orchestrator: Orchestrator | None) -> tuple[str, ...]:
    if orchestrator is None:
        raise UsageError(
            f'no source says which nodes job "{job}" has: name them with --nodes, or give the'
            " cluster's file an orchestrator"
        )
    by_id = {running.id: running.nodes for running in running_jobs(orchestrator)}
    if job not in by_id:
        raise UsageError(f'no job "{job}" runs; {did_you_mean(job, by_id)}')
    return by_id[job]
