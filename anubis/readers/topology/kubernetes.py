"""The switches and NVLink domains of nodes from Kubernetes' labels: `kubectl get nodes -o json` (or
yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Any

from anubis.core.errors import TopologyError
from anubis.readers.topology import nvlink
from anubis.readers.topology.draft import Draft, Survey

CLIQUE, GPUS = "nvidia.com/gpu.clique", "nvidia.com/gpu.count"  # of GPU feature discovery
MOST_GPUS = 64  # of a node; four times those of the largest
FAMILIES = (  # labels of one maker, from the node upwards
    tuple(f"network.topology.nvidia.com/{part}" for part in ("leaf", "spine", "core")),
    tuple(f"network.topology.nvidia.com/{part}" for part in ("block", "spine", "datacenter")),
    tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(6)),
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (4, 3, 2, 1)),
)


def parse(document: object, where: str) -> Survey:
    draft = Draft()
    nodes = _nodes(document, where)
    domains, odd = nvlink.group_gpus(_gpus_of_nodes(nodes))
    family = max(FAMILIES, key=lambda labels: _count_labels(labels, nodes))
    if not _count_labels(family, nodes):
        if domains:
            return nvlink.add_domains(draft.survey(), domains, odd)
        leaf_labels = ", ".join(labels[0] for labels in FAMILIES)
        raise TopologyError(f"{where}: no node has a label of a switch; known: {leaf_labels}")
    paths = {
        name: [(key, labels[key]) for key in family if labels.get(key)]
        for name, labels in nodes.items()
    }
    tiers: dict[str, set[str]] = {}
    for key, value in chain.from_iterable(paths.values()):
        tiers.setdefault(value, set()).add(key)
    links: set[tuple[str, str]] = set()
    for name, path in paths.items():
        if not path:
            draft.find("no-label", f"{name} has no label {family[0]}")
            continue
        switches = [
            value if len(tiers[value]) == 1 else f"{value} ({key.rpartition('/')[2]})"
            for key, value in path
        ]
        draft.nic(node=name, device="", switch=switches[0])
        links |= set(pairwise(switches))
    for low, high in sorted(links):
        draft.uplink(low, high)
    return nvlink.add_domains(draft.survey(is_outline=True), domains, odd)


def _gpus_of_nodes(nodes: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """The NVLink domain of each GPU of each node: all GPUs of a node are in one."""
    domains = {name: labels.get(CLIQUE, "") for name, labels in nodes.items()}
    return {name: [clique] * _gpus(nodes[name]) for name, clique in domains.items() if clique}


def _gpus(labels: Mapping[str, str]) -> int:
    """The number of a node's GPUs; one, if no label says it."""
    count = labels.get(GPUS, "")
    return min(int(count), MOST_GPUS) if count.isdecimal() and len(count) < 4 else 1


def _count_labels(family: tuple[str, ...], nodes: Mapping[str, Mapping[str, str]]) -> int:
    return sum(bool(labels.get(key)) for labels in nodes.values() for key in family)


def _nodes(document: Any, where: str) -> dict[str, dict[str, str]]:
    items = document.get("items", [document]) if isinstance(document, dict) else None
    try:
        return {
            str(item["metadata"]["name"]): {
                str(key): str(value)
                for key, value in (item["metadata"].get("labels") or {}).items()
            }
            for item in items or ()
        }
    except (TypeError, KeyError, AttributeError):
        raise TopologyError(
            f"{where}: expected what kubectl get nodes -o json writes: items with metadata"
        ) from None
