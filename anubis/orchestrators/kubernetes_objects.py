"""Kubernetes' objects as plain documents: what they say of a fleet, and what we write on a node.

Whoever set `spec.unschedulable` last owns a cordon: Kubernetes keeps, by field, who wrote what. A
node with our annotation whose field somebody else wrote since is somebody else's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from anubis.core.lifecycle.events import SeenJob, SeenNode
from anubis.core.lifecycle.reasons import NO_DEFECT, code_of, is_ours, sentence_of
from anubis.executors.machine import slug
from anubis.orchestrators.settings import KubernetesSettings

Document = Mapping[str, Any]

WRITER = "anubis"  # what Kubernetes notes beside each field that we write
MARK = "anubis-fleet/cordon"  # the annotation that makes a cordon ours; it holds our reason
FLAG = "anubis-fleet/out"  # the key of the label and of the taint; the value is the code
CONDITION = "AnubisHealthy"
PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
# what says of a node that it is about to go
LEAVING = (
    *("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"),
    *("node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"),
)
# owners that may have an owner themselves, and where to ask for them
IN_BETWEEN = {
    ("batch", "Job"): "jobs",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("ray.io", "RayCluster"): "rayclusters",
}


# --- what is there ------------------------------------------------------------------------


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def seen_node(node: Document, sku: str, jobs: Iterable[str]) -> SeenNode:
    is_up = _condition(node, "Ready").get("status") == "True"
    words = ["Ready" if is_up else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    owner = cordon_of(node)
    return SeenNode(
        sku=sku,
        state=",".join(words),  # as kubectl shows it
        is_up=is_up,
        jobs=tuple(sorted(jobs)),
        cordon=owner.reason if owner else "",
        cordoned_by=owner.name if owner else "",
        cordoned_at=owner.at if owner else None,
    )


def sku_by_label(node: Document, label: str) -> str:
    return _labels(node).get(label, "")


def sku_by_gpus(node: Document) -> str:
    """In the words of `executors.machine`, so that a node has the same sku by both ways."""
    labels = _labels(node)
    product = next((labels[key] for key in PRODUCTS if labels.get(key)), "")
    count = labels.get("nvidia.com/gpu.count") or _capacity(node)
    return (
        slug(f"{product.removesuffix('-SHARED')} {count}x") if product and count else slug(product)
    )


@dataclass(frozen=True, kw_only=True)
class CordonOwner:
    """Who keeps a node from jobs, since when, and why."""

    reason: str
    name: str = ""
    at: float | None = None

    @property
    def is_anubis(self) -> bool:
        return is_ours(self.reason)


def cordon_of(node: Document) -> CordonOwner | None:
    if not node["spec"].get("unschedulable"):
        leaving = next((key for key in _taint_keys(node) if key in LEAVING), "")
        return CordonOwner(reason=f'taint "{leaving}"') if leaving else None
    writes = _writes_of_unschedulable(node)
    strangers = [write for write in writes if write.get("manager") != WRITER]
    mark = _annotations(node).get(MARK, "")
    reason = mark if is_ours(mark) and not strangers else "unschedulable"
    last = max(strangers or writes, key=lambda write: write.get("time", ""), default={})
    at = moment(last["time"]) if last.get("time") else None
    return CordonOwner(reason=reason, name=last.get("manager", ""), at=at)


def _writes_of_unschedulable(node: Document) -> Sequence[Document]:
    return [
        entry
        for entry in node["metadata"].get("managedFields") or ()
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]


def _labels(document: Document) -> Mapping[str, str]:
    return document["metadata"].get("labels") or {}


def _annotations(document: Document) -> Mapping[str, str]:
    return document["metadata"].get("annotations") or {}


def _taints(node: Document) -> Sequence[Document]:
    return node["spec"].get("taints") or ()


def _taint_keys(node: Document) -> list[str]:
    return [taint["key"] for taint in _taints(node)]


def _condition(node: Document, kind: str) -> Document:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == kind), {})


def _capacity(node: Document) -> str:
    capacity = (node.get("status") or {}).get("capacity") or {}
    return str(
        next((capacity[key] for key in ("nvidia.com/gpu", "amd.com/gpu") if key in capacity), "")
    )


# --- who works ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JobOwner:
    """What a pod belongs to, and then what that belongs to."""

    api: str  # "batch/v1"
    kind: str
    name: str
    namespace: str
    uid: str = ""
    ends_by: float = math.inf

    @property
    def job(self) -> str:
        """A name may be used again, by another job."""
        return f"{self.namespace}/{self.kind}/{self.name}@{self.uid[:8]}"

    @property
    def path(self) -> str:
        """Where to ask for it, if it may have an owner itself; else empty."""
        group, _, _ = self.api.rpartition("/")
        plural = IN_BETWEEN.get((group, self.kind), "")
        root = f"/apis/{self.api}/namespaces/{self.namespace}"
        return f"{root}/{plural}/{self.name}" if plural else ""


def is_work(pod: Document, settings: KubernetesSettings) -> bool:
    """It has a node, has not ended, asks for a GPU, and is neither a daemon nor Anubis itself."""
    owner = owner_of(pod)
    return (
        bool(pod["spec"].get("nodeName"))
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and owner.kind not in ("DaemonSet", "Node")
        and owner.namespace != settings.namespace
        and (bool(pod["spec"].get("resourceClaims")) or _asks_for(pod, settings.gpus))
    )


def owner_of(document: Document) -> JobOwner:
    """The controller of a pod, or of an owner; without one, the thing itself."""
    metadata = document["metadata"]
    namespace = str(metadata.get("namespace", ""))
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return JobOwner(
                api=owner["apiVersion"],
                kind=owner["kind"],
                name=owner["name"],
                namespace=namespace,
                uid=owner["uid"],
            )
    kind, api = document.get("kind", "Pod"), document.get("apiVersion", "v1")
    name, uid = name_of(document), metadata.get("uid", "")
    return JobOwner(api=api, kind=kind, name=name, namespace=namespace, uid=uid)


def started_at(pod: Document) -> float:
    """When the node took it, or else when it was made."""
    status = pod.get("status") or {}
    return moment(status.get("startTime") or pod["metadata"].get("creationTimestamp"))


def ends_by(document: Document) -> float:
    """By the limit of a pod, or of a Job, on its time."""
    limit = (document.get("spec") or {}).get("activeDeadlineSeconds")
    return math.inf if limit is None else started_at(document) + float(limit)


def joined(job: SeenJob | None, pod: Document, owner: JobOwner) -> SeenJob:
    """A job with one more of its pods."""
    node, start = pod["spec"]["nodeName"], started_at(pod)
    limit = min(ends_by(pod), owner.ends_by)
    if job is None:
        return SeenJob(owner=owner.namespace, nodes=(node,), started_at=start, ends_by=limit)
    nodes = tuple(sorted({*job.nodes, node}))
    first, last = min(job.started_at or start, start), max(job.ends_by, limit)
    return replace(job, nodes=nodes, started_at=first, ends_by=last)


def moment(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _asks_for(pod: Document, patterns: Sequence[str]) -> bool:
    spec = pod["spec"]
    return any(
        str(amount) != "0" and fnmatchcase(resource, pattern)
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for amounts in (container.get("resources") or {}).values()
        if isinstance(amounts, dict)
        for resource, amount in amounts.items()
        for pattern in patterns
    )


# --- what we write ------------------------------------------------------------------------


def cordoning(node: Document, reason: str, settings: KubernetesSettings) -> Document | None:
    """The change that takes a node out, as one merge patch; None where it is out so already."""
    code = flag(code_of(reason))
    marks = (code if settings.label else None, code if settings.taint else None)
    return _changed(node, unschedulable=True, reason=reason, marks=marks)


def releasing(node: Document) -> Document | None:
    """The change that takes back all that is ours; None where there is nothing. Only for a node
    that nobody else keeps from jobs."""
    return _changed(node, unschedulable=False, reason=None, marks=(None, None))


def _changed(
    node: Document, *, unschedulable: bool, reason: str | None, marks: tuple[str | None, str | None]
) -> Document | None:
    label, taint = marks
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    if _annotations(node).get(MARK) != reason:
        metadata["annotations"] = {MARK: reason}
    if _labels(node).get(FLAG) != label:
        metadata["labels"] = {FLAG: label}
    if bool(node["spec"].get("unschedulable")) != unschedulable:
        spec["unschedulable"] = unschedulable or None
    taints = [entry for entry in _taints(node) if entry["key"] != FLAG]
    if taint is not None:
        taints.append({"key": FLAG, "value": taint, "effect": "NoSchedule"})
    if taints != list(_taints(node)):
        spec["taints"] = taints or None
    if not metadata and not spec:
        return None
    metadata["resourceVersion"] = node["metadata"]["resourceVersion"]  # refused if it changed since
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def flag(code: str) -> str:
    """As the value of a label or of a taint may be."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", code)[:63].strip("._-")


def shown_condition(node: Document, reason: str | None, at: float) -> Document | None:
    """The change of the node's condition, as a strategic merge patch; None where it is right.

    Nothing is held against a spare, a new node or one that is released: none of them has one.
    """
    shown = _condition(node, CONDITION)
    if reason is None or code_of(reason) in NO_DEFECT:
        return _of_status({"$patch": "delete", "type": CONDITION}) if shown else None
    code, sentence = code_of(reason), sentence_of(reason)
    if (shown.get("status"), shown.get("reason"), shown.get("message")) == (
        "False",
        code,
        sentence,
    ):
        return None
    since = shown.get("lastTransitionTime") if shown.get("status") == "False" else None
    return _of_status(
        {
            "type": CONDITION,
            "status": "False",
            "reason": code,
            "message": sentence,
            "lastHeartbeatTime": stamp(at),
            "lastTransitionTime": since or stamp(at),
        }
    )


def _of_status(condition: Document) -> Document:
    return {"status": {"conditions": [condition]}}


def event(node: Document, *, word: str, message: str, is_warning: bool, at: float) -> Document:
    """What `kubectl describe node` lists. Events on nodes belong to the namespace `default`."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{WRITER}-", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name_of(node),
            "uid": node["metadata"].get("uid", name_of(node)),
        },
        "type": "Warning" if is_warning else "Normal",
        "reason": word,
        "message": message,
        "source": {"component": WRITER},
        "firstTimestamp": stamp(at),
        "lastTimestamp": stamp(at),
        "count": 1,
    }


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
