"""Settings of the owner of a cluster's nodes, from the cluster's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anubis.text import hostlist


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
    maintenance: str = ""
    """Nodes that have this label, annotation or taint are under maintenance, and left alone:
    `example.com/maintenance`. Its value may be a time, until which that is so; a label takes it as
    `20261124T0800Z`. Default: none says so."""
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


SHELLS_ELSEWHERE = ("ssh", "pdsh", "clush", "sh", "bash")  # what they get is read by a shell


@dataclass(frozen=True, kw_only=True)
class HostsSettings:
    """Hosts that neither Slurm nor Kubernetes has, by commands of your own.

    Each command is a list of words, run here and never through a shell; `{node}` in a word stands
    for the node, `{reason}` for the reason of a cordon.
    """

    kind: Literal["hosts"]
    nodes: str
    """Which nodes there are: a node list, or @file, beside this file."""
    jobs: tuple[str, ...]
    """Prints the jobs of a node, one a line: its id, and then, if known, whose it is."""
    job_ids: Literal["host", "fleet"] = "host"
    """Whether each node has ids of its own, as processes have (host), or an id that several nodes
    print is one job on all of them (fleet). Only such jobs can be watched."""
    cordoned: tuple[str, ...] = ()
    """Prints the reason why a node is kept from jobs, or nothing. Default: Anubis only looks for
    jobs, and takes no node out."""
    cordon: tuple[str, ...] = ()
    """Keeps further jobs from a node. The reason also comes on its standard input, which is the
    way for commands that a shell reads, such as those of ssh."""
    release: tuple[str, ...] = ()
    """Takes that back."""
    deadline_s: float = 10.0
    """How long one command may take for one node."""
    at_once: int = 32
    """How many nodes are asked at once."""

    def __post_init__(self) -> None:
        _positive("deadline_s", self.deadline_s)
        _positive("at_once", self.at_once)
        hostlist.expand(self.nodes)
        orders = {name: getattr(self, name) for name in ("cordoned", "cordon", "release")}
        if missing := [name for name, words in orders.items() if not words]:
            if len(missing) < len(orders):
                raise ValueError(f'"{missing[0]}" is missing: give all of {", ".join(orders)}')
            orders = {}
        for name, words in {"jobs": self.jobs, **orders}.items():
            _check_words(name, words)


OrchestratorSettings = SlurmSettings | KubernetesSettings | HostsSettings
ORCHESTRATORS: dict[str, type[OrchestratorSettings]] = {
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
    "hosts": HostsSettings,
}


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f'"{name}" is {value:g}, expected more than 0')


def _check_words(name: str, words: tuple[str, ...]) -> None:
    if not any("{node}" in word for word in words):
        raise ValueError(f'"{name}" has no word with {{node}}, so it would say the same of all')
    program = words[0].rpartition("/")[2]
    if program in SHELLS_ELSEWHERE and any("{reason}" in word for word in words):
        raise ValueError(
            f'"{name}" hands the reason to {program}, where a shell would read it: take it from the'
            " standard input instead"
        )
