"""Who owns the nodes of a cluster, and whose work is on them."""

from __future__ import annotations

from anubis.config import configs
from anubis.reach.orchestrators.hosts import HostsOrchestrator
from anubis.reach.orchestrators.kubernetes import KubernetesOrchestrator
from anubis.reach.orchestrators.orchestrator import NodeSkus, Orchestrator
from anubis.reach.orchestrators.orchestrator_settings import (
    HostsSettings,
    KubernetesSettings,
    SlurmSettings,
)
from anubis.reach.orchestrators.slurm import SlurmOrchestrator
from anubis.text import hostlist


def owner_name(cluster: configs.Cluster) -> str:
    """Of who owns its nodes, for a sentence; empty where nobody but Anubis does."""
    if isinstance(cluster, configs.SimulatedCluster) or cluster.orchestrator is None:
        return ""
    kind = cluster.orchestrator.kind
    return "its orchestrator" if kind == "hosts" else kind


def orchestrator_of(cluster: configs.Cluster) -> Orchestrator | None:
    """None where nobody but Anubis has its nodes."""
    if isinstance(cluster, configs.SimulatedCluster):
        return None
    by_node = hostlist.labels(cluster.skus) if isinstance(cluster, configs.RayCluster) else {}
    skus = NodeSkus(by_node=by_node, otherwise=cluster.sku)
    match cluster.orchestrator:
        case SlurmSettings() as settings:
            return SlurmOrchestrator(settings, skus)
        case KubernetesSettings() as settings:
            return KubernetesOrchestrator(settings, skus)
        case HostsSettings() as settings:
            return HostsOrchestrator(settings, skus)
    return None
