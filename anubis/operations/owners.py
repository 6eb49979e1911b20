"""Find who owns the nodes of a cluster, and whose work is on them."""

from __future__ import annotations

from anubis.config import configs
from anubis.reach.orchestrators.orchestrator import NodeSkus, Orchestrator
from anubis.reach.orchestrators.orchestrator_settings import orchestrator_kinds
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
