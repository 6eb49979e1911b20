"""Kubernetes' objects as plain documents: their facts about a fleet, and our marks on a node.

The last writer of `spec.unschedulable` owns a cordon: Kubernetes keeps, by field, who wrote what.
If somebody else has written that field since, a node with our annotation is somebody else's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from anubis.core.keep.keeper_events import SeenJob, SeenNode, SeenWindow
from anubis.core.keep.reasons import NO_DEFECT, code_of, is_ours, sentence_of
from anubis.core.text import escape_line
from anubis.reach.executors.machine import slug
from anubis.reach.orchestrators.kubernetes_fields import Document, Fields, instant
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings

WRITER = "anubis"  # what Kubernetes notes beside each field that we write
MARK = "anubis-fleet/cordon"  # the annotation that makes a cordon ours; it holds our reason
FLAG = "anubis-fleet/out"  # the key of the label and of the taint; the value is the code
CONDITION = "AnubisHealthy"
PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
AMOUNT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")  # the number of a quantity
# marks of a node that is about to go
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
    return Fields(document).require("metadata", "name")


def seen_node(node: Document, sku: str, jobs: Iterable[str]) -> SeenNode:
    ready = _condition(node, "Ready")
    is_up = ready.text("status") == "True"
    words = ["Ready" if is_up else "NotReady"]
    if Fields(node).flag("spec", "unschedulable"):
        words.append("SchedulingDisabled")
    owner = cordon_of(node)
    why = escape_line(ready.text("message") or ready.text("reason"))
    return SeenNode(
        sku=sku,
        state=",".join(words),  # as kubectl shows it
        meaning="" if is_up else f"not ready: {why or 'kubernetes has no reason for it'}",
        is_up=is_up,
        jobs=tuple(sorted(jobs)),
        cordon=owner.reason if owner else "",
        cordoned_by=owner.name if owner else "",
        cordoned_at=owner.at if owner else None,
    )


def sku_by_label(node: Document, label: str) -> str:
    return _labels(node).text(label) if label else ""


def sku_by_gpus(node: Document) -> str:
    """Return the sku in the words of `reach.executors.machine`, as the executors say it."""
    labels = _labels(node)
    product = next(filter(None, map(labels.text, PRODUCTS)), "")
    count = labels.text("nvidia.com/gpu.count") or _capacity(node)
    return (
        slug(f"{product.removesuffix('-SHARED')} {count}x") if product and count else slug(product)
    )


@dataclass(frozen=True, kw_only=True)
class CordonOwner:
    """The one that keeps a node from jobs, since when, and why."""

    reason: str
    name: str = ""
    at: float | None = None

    @property
    def is_anubis(self) -> bool:
        return is_ours(self.reason)


def cordon_of(node: Document) -> CordonOwner | None:
    if not Fields(node).flag("spec", "unschedulable"):
        leaving = next((key for key in _taint_keys(node) if key in LEAVING), "")
        return CordonOwner(reason=f'taint "{leaving}"') if leaving else None
    writes = _writes_of_unschedulable(node)
    strangers = [write for write in writes if write.text("manager") != WRITER]
    mark = _annotations(node).text(MARK)
    reason = mark if is_ours(mark) and not strangers else "unschedulable"
    last = max(strangers or writes, key=lambda write: write.moment("time"), default=None)
    if last is None:
        return CordonOwner(reason=reason)
    return CordonOwner(reason=reason, name=last.text("manager"), at=last.moment("time") or None)


def windows_of(nodes: Mapping[str, Document], key: str, at: float) -> dict[str, SeenWindow]:
    """Return the maintenances of nodes that have this label, annotation or taint; nodes with the
    same words share one. `at`: now, as no begin is known."""
    if not key:
        return {}
    by_value: dict[str, list[str]] = {}
    for name, node in nodes.items():
        value = maintenance_of(node, key)
        if value is not None:
            by_value.setdefault(value, []).append(name)
    return {
        f"{key}={value}" if value else key: SeenWindow(
            nodes=tuple(names),
            begin=at,
            end=_end_in(value),
            reason=f"kubernetes: {key}" + (f"={escape_line(value)}" if value else ""),
        )
        for value, names in by_value.items()
    }


def maintenance_of(node: Document, key: str) -> str | None:
    """Return the text of the label, annotation or taint; None if the node has none."""
    for table in (_labels(node), _annotations(node)):
        if key in table.raw:
            return table.text(key)
    return next((taint.text("value") for taint in _taints(node) if taint.text("key") == key), None)


def _end_in(value: str) -> float:
    """Return the time that a text names; if there is none, no end: its owner takes it back."""
    try:
        return instant(value)
    except (ValueError, OverflowError):
        return math.inf


def _writes_of_unschedulable(node: Document) -> Sequence[Fields]:
    return [
        entry
        for entry in Fields(node).rows("metadata", "managedFields")
        if "f:unschedulable" in entry.table("fieldsV1", "f:spec").raw
    ]


def _labels(document: Document) -> Fields:
    return Fields(document).table("metadata", "labels")


def _annotations(document: Document) -> Fields:
    return Fields(document).table("metadata", "annotations")


def _taints(node: Document) -> list[Fields]:
    return Fields(node).rows("spec", "taints")


def _taint_keys(node: Document) -> list[str]:
    return [taint.text("key") for taint in _taints(node)]


def _condition(node: Document, kind: str) -> Fields:
    conditions = Fields(node).rows("status", "conditions")
    return next((entry for entry in conditions if entry.text("type") == kind), Fields({}, kind))


def _capacity(node: Document) -> str:
    capacity = Fields(node).table("status", "capacity")
    return next(filter(None, map(capacity.amount, ("nvidia.com/gpu", "amd.com/gpu"))), "")


# --- who works ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JobOwner:
    """The owner of a pod, or the owner of that owner."""

    api: str  # "batch/v1"
    kind: str
    name: str
    namespace: str
    uid: str = ""
    ends_by: float = math.inf

    @property
    def job(self) -> str:
        """Id of the job, with a part of its uid: another job may use the name again."""
        return f"{self.namespace}/{self.kind}/{self.name}@{self.uid[:8]}"

    @property
    def path(self) -> str:
        """Path to ask for it, if it may have an owner itself; else empty."""
        group, _, _ = self.api.rpartition("/")
        plural = IN_BETWEEN.get((group, self.kind), "")
        root = f"/apis/{self.api}/namespaces/{self.namespace}"
        return f"{root}/{plural}/{self.name}" if plural else ""


def is_work(pod: Document, owner: JobOwner, settings: KubernetesSettings) -> bool:
    """True for a pod that has a node, has not ended, asks for a GPU, and is neither a daemon nor
    Anubis itself."""
    part = Fields(pod)
    return (
        bool(part.text("spec", "nodeName"))
        and part.text("status", "phase") not in ("Succeeded", "Failed")
        and owner.kind not in ("DaemonSet", "Node")
        and owner.namespace != settings.namespace
        and (bool(part.rows("spec", "resourceClaims")) or asks_for_gpus(part, settings.gpus))
    )


def owner_of(document: Document) -> JobOwner:
    """Return the controller of a pod, or of an owner; without one, the thing itself."""
    part = Fields(document)
    namespace = part.text("metadata", "namespace")
    for owner in part.rows("metadata", "ownerReferences"):
        if owner.flag("controller"):
            return JobOwner(
                api=owner.require("apiVersion"),
                kind=owner.require("kind"),
                name=owner.require("name"),
                namespace=namespace,
                uid=owner.require("uid"),
            )
    return JobOwner(
        api=part.text("apiVersion") or "v1",
        kind=part.text("kind") or "Pod",
        name=name_of(document),
        namespace=namespace,
        uid=part.text("metadata", "uid"),
    )


def started_at(document: Document) -> float:
    """Return when the node took it, or else when it was made."""
    part = Fields(document)
    return part.moment("status", "startTime") or part.moment("metadata", "creationTimestamp")


def ends_by(document: Document) -> float:
    """Return the end by the limit of a pod, or of a Job, on its time."""
    limit = Fields(document).seconds("spec", "activeDeadlineSeconds")
    return math.inf if limit is None else started_at(document) + limit


def add_pod(job: SeenJob | None, pod: Document, owner: JobOwner) -> SeenJob:
    """Return a job with one more of its pods. It has begun if one of them has: until then the gate
    in a pod may still stop it."""
    node, start = Fields(pod).require("spec", "nodeName"), started_at(pod)
    limit = min(ends_by(pod), owner.ends_by)
    has_begun = Fields(pod).text("status", "phase") != "Pending"
    if job is None:
        return SeenJob(
            owner=owner.namespace,
            nodes=(node,),
            started_at=start,
            ends_by=limit,
            has_begun=has_begun,
        )
    nodes = tuple(sorted({*job.nodes, node}))
    first, last = min(job.started_at or start, start), max(job.ends_by, limit)
    has_begun |= job.has_begun
    return replace(job, nodes=nodes, started_at=first, ends_by=last, has_begun=has_begun)


def asks_for_gpus(pod: Fields, patterns: Sequence[str]) -> bool:
    """True if a container of a pod asks for a resource that one of the patterns names."""
    containers = [*pod.rows("spec", "containers"), *pod.rows("spec", "initContainers")]
    return any(
        is_something(amounts.amount(resource))
        for container in containers
        for amounts in (container.table("resources", part) for part in ("limits", "requests"))
        for resource in amounts.raw
        if any(fnmatchcase(resource, pattern) for pattern in patterns)
    )


def is_something(amount: str) -> bool:
    """Return true if an amount of a resource is more than nothing, however it is written (`0`,
    `0m`)."""
    number = AMOUNT.match(amount.strip())
    return bool(amount.strip()) and (number is None or float(number[0]) != 0)


# --- what we write ------------------------------------------------------------------------


def cordoning(node: Document, reason: str, settings: KubernetesSettings) -> Document | None:
    """Return the change that takes a node out, as one merge patch; None if it is out already."""
    code = flag(code_of(reason))
    marks = (code if settings.label else None, code if settings.taint else None)
    return _change(node, unschedulable=True, reason=reason, marks=marks)


def releasing(node: Document) -> Document | None:
    """Return the change that takes back all that is ours; None if there is nothing. Only for a node
    that only Anubis keeps from jobs."""
    return _change(node, unschedulable=False, reason=None, marks=(None, None))


def _change(
    node: Document, *, unschedulable: bool, reason: str | None, marks: tuple[str | None, str | None]
) -> Document | None:
    label, taint = marks
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    if (_annotations(node).text(MARK) or None) != reason:
        metadata["annotations"] = {MARK: reason}
    if (_labels(node).text(FLAG) or None) != label:
        metadata["labels"] = {FLAG: label}
    if Fields(node).flag("spec", "unschedulable") != unschedulable:
        spec["unschedulable"] = unschedulable or None
    before = [taint.raw for taint in _taints(node)]
    taints = [taint.raw for taint in _taints(node) if taint.text("key") != FLAG]
    if taint is not None:
        taints.append({"key": FLAG, "value": taint, "effect": "NoSchedule"})
    if taints != before:
        spec["taints"] = taints or None
    if not metadata and not spec:
        return None
    metadata["resourceVersion"] = Fields(node).require("metadata", "resourceVersion")
    # with it, the change is refused if the node changed since
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def flag(code: str) -> str:
    """Return a code in the form that a value of a label or of a taint may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", code)[:63].strip("._-")


def shown_condition(node: Document, reason: str | None, at: float) -> Document | None:
    """Return the change of the node's condition, as a strategic merge patch; None if it is right.

    A spare, a new node and a released one have no condition.
    """
    shown = _condition(node, CONDITION)
    if reason is None or code_of(reason) in NO_DEFECT:
        return _status_patch({"$patch": "delete", "type": CONDITION}) if shown.raw else None
    code, sentence = code_of(reason), sentence_of(reason)
    status = shown.text("status")
    if (status, shown.text("reason"), shown.text("message")) == ("False", code, sentence):
        return None
    since = shown.text("lastTransitionTime") if status == "False" else ""
    return _status_patch(
        {
            "type": CONDITION,
            "status": "False",
            "reason": code,
            "message": sentence,
            "lastHeartbeatTime": stamp(at),
            "lastTransitionTime": since or stamp(at),
        }
    )


def _status_patch(condition: Document) -> Document:
    return {"status": {"conditions": [condition]}}


def event(node: Document, *, word: str, message: str, is_warning: bool, at: float) -> Document:
    """Return an event, which `kubectl describe node` lists. Events on nodes belong to the namespace
    `default`."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{WRITER}-", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name_of(node),
            "uid": Fields(node).text("metadata", "uid") or name_of(node),
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
