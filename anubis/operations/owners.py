"""Find who owns the nodes of a cluster, and whose work is on them."""

from __future__ import annotations

from dataclasses import dataclass

from anubis.config import configs
from anubis.core.errors import UsageError, did_you_mean
from anubis.reach.orchestrators.orchestrator import NodeSkus, Orchestrator, orchestrator_kinds
from anubis.text import hostlist


def owner_name(cluster: configs.Cluster) -> str:
    """Name of the orchestrator that owns the nodes, for a sentence; empty if only Anubis uses
    them."""
    if isinstance(cluster, configs.SimulatedCluster) or cluster.orchestrator is None:
        return ""
    return orchestrator_kinds()[cluster.orchestrator.kind].title


def orchestrator_of(cluster: configs.Cluster) -> Orchestrator | None:
    """Orchestrator of a cluster; None if only Anubis uses its nodes."""
    if isinstance(cluster, configs.SimulatedCluster):
        return None
    by_node = hostlist.labels(cluster.skus) if isinstance(cluster, configs.RayCluster) else {}
    skus = NodeSkus(by_node=by_node, otherwise=cluster.sku)
    settings = cluster.orchestrator
    return orchestrator_kinds()[settings.kind].open(settings, skus) if settings else None


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
