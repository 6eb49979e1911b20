"""Who owns the nodes of a cluster, and whose work is on them."""

from __future__ import annotations

from anubis import config, hostlist
from anubis.orchestrators.base import Orchestrator
from anubis.orchestrators.settings import HostsSettings, KubernetesSettings, SlurmSettings


def orchestrator_of(cluster: config.Cluster) -> Orchestrator | None:
    """None where nobody but Anubis has its nodes."""
    if isinstance(cluster, config.SimulatedCluster):
        return None
    skus = hostlist.labels(cluster.skus) if isinstance(cluster, config.RayCluster) else {}
    match cluster.orchestrator:
        case SlurmSettings() as settings:
            from anubis.orchestrators.slurm import SlurmOrchestrator

            return SlurmOrchestrator(settings, skus=skus, sku=cluster.sku)
        case KubernetesSettings() as settings:
            from anubis.orchestrators.kubernetes import KubernetesOrchestrator

            return KubernetesOrchestrator(settings, skus=skus, sku=cluster.sku)
        case HostsSettings() as settings:
            from anubis.orchestrators.hosts import HostsOrchestrator

            return HostsOrchestrator(settings, skus=skus, sku=cluster.sku)
    return None
