"""What a cluster's file says of who owns its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Slurm, by its own commands: `sinfo`, `squeue` and `scontrol`."""

    kind: Literal["slurm"]
    partition: str = ""
    """The partition that these nodes are in, or several with commas between them. Default: all."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Kinds of hardware by Slurm's features: a feature, and the sku of the nodes that have it. What
    the cluster's own `skus` say comes first."""
    deadline_s: float = 10.0
    """How long a command of Slurm may take."""

    def __post_init__(self) -> None:
        _positive("deadline_s", self.deadline_s)


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
    """The nodes of a Kubernetes cluster; pods that ask for GPUs are their jobs."""

    kind: Literal["kubernetes"]
    kubeconfig: str = ""
    """The file that says where the cluster is and who asks. Default: in a pod its service account,
    elsewhere `$KUBECONFIG` or `~/.kube/config`."""
    context: str = ""
    """Which cluster of that file. Default: its current one."""
    nodes: str = ""
    """Which nodes belong to the fleet, as a selector of labels: `nvidia.com/gpu.present=true`.
    Default: all of them."""
    sku_label: str = ""
    """The label that holds a node's kind of hardware. Default: GPU and count, as the labels of the
    GPU's maker tell them."""
    gpus: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*")
    """Pods that ask for one of these resources are work. Pods of a DaemonSet never are."""
    namespace: str = "anubis"
    """Where Anubis itself runs: pods there are no work."""
    taint: bool = False
    """Whether a node that is taken out also gets the taint `anubis-fleet/out=CODE:NoSchedule`."""
    label: bool = False
    """Whether a node that is taken out also gets the label `anubis-fleet/out=CODE`."""
    deadline_s: float = 10.0
    """How long Kubernetes may take for an answer."""

    def __post_init__(self) -> None:
        _positive("deadline_s", self.deadline_s)


OrchestratorSettings = SlurmSettings | KubernetesSettings
ORCHESTRATORS: dict[str, type[OrchestratorSettings]] = {
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
}


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f'"{name}" is {value:g}, expected more than 0')
