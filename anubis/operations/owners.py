"""Who owns the nodes of a cluster, and whose work is on them."""

from __future__ import annotations

from anubis import config, hostlist
from anubis.orchestrators.base import NodeSkus, Orchestrator
from anubis.orchestrators.hosts import HostsOrchestrator
from anubis.orchestrators.kubernetes import KubernetesOrchestrator
from anubis.orchestrators.settings import HostsSettings, KubernetesSettings, SlurmSettings
from anubis.orchestrators.slurm import SlurmOrchestrator


def owner_name(cluster: config.Cluster) -> str:
    """Of who owns its nodes, for a sentence; empty where nobody but Anubis does."""
    if isinstance(cluster, config.SimulatedCluster) or cluster.orchestrator is None:
        return ""
    kind = cluster.orchestrator.kind
    return "its orchestrator" if kind == "hosts" else kind


def orchestrator_of(cluster: config.Cluster) -> Orchestrator | None:
    """None where nobody but Anubis has its nodes."""
    if isinstance(cluster, config.SimulatedCluster):
        return None
    by_node = hostlist.labels(cluster.skus) if isinstance(cluster, config.RayCluster) else {}
    skus = NodeSkus(by_node=by_node, otherwise=cluster.sku)
    match cluster.orchestrator:
        case SlurmSettings() as settings:
            return SlurmOrchestrator(settings, skus)
        case KubernetesSettings() as settings:
            return KubernetesOrchestrator(settings, skus)
        case HostsSettings() as settings:
            return HostsOrchestrator(settings, skus)
    return None
