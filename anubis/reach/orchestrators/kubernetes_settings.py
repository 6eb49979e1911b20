"""Settings of the Kubernetes that owns the nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anubis.reach.orchestrators.orchestrator import OrchestratorSettings, check_positive


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings(OrchestratorSettings):
    """The nodes of a Kubernetes cluster; pods that ask for GPUs are their jobs."""

    kind: Literal["kubernetes"]
    kubeconfig: str = ""
    """The file with the cluster's address and the account to use. Default: in a pod its service
    account, elsewhere `$KUBECONFIG` or `~/.kube/config`."""
    context: str = ""
    """The cluster of that file. Default: its current one."""
    nodes: str = ""
    """The nodes of the fleet, as a selector of labels: `nvidia.com/gpu.present=true`. Default: all
    of them."""
    sku_label: str = ""
    """The label that holds a node's kind of hardware. Default: GPU and count, as the labels of the
    GPU's maker tell them."""
    gpus: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*")
    """Pods that ask for one of these resources are work. Pods of a DaemonSet never are."""
    maintenance: str = ""
    """Nodes that have this label, annotation or taint are under maintenance, and left alone:
    `example.com/maintenance`. Its value may be a time, until which that is so; a label takes it as
    `20261124T0800Z`. Default: none says so."""
    namespace: str = "anubis"
    """The namespace of Anubis itself: pods there are not work."""
    taint: bool = False
    """Whether a node that is taken out also gets the taint `anubis-fleet/out=CODE:NoSchedule`."""
    label: bool = False
    """Whether a node that is taken out also gets the label `anubis-fleet/out=CODE`."""
    deadline_s: float = 10.0
    """How long Kubernetes may take for an answer."""

    def __post_init__(self) -> None:
        check_positive("deadline_s", self.deadline_s)
