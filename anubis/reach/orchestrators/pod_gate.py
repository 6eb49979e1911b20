"""The gate in pods of Kubernetes: what its admission webhook answers, as pure functions.

A pod with GPUs gets one more init container, the first, which asks the service whether the node is
good for the job. Nothing else of the pod changes. Whatever is not understood is let through as it
is: a gate that breaks must not stop a cluster.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anubis.core.amounts import DAY_S
from anubis.core.errors import OrchestratorError
from anubis.reach.orchestrators.kubernetes_fields import Document, Fields
from anubis.reach.orchestrators.kubernetes_objects import asks_for_gpus

NAME = "anubis-gate"  # of the init container
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")
WithoutAnswer = Literal["start", "wait"]
# labels that name the pods which begin, and fail, together: what makes a gang of several first
GANGS = (
    ("JobSet", "jobset.sigs.k8s.io/jobset-name"),
    ("TrainingJob", "training.kubeflow.org/job-name"),  # PyTorchJob, MPIJob and their like
    ("VolcanoJob", "volcano.sh/job-name"),
    ("KueuePodGroup", "kueue.x-k8s.io/pod-group-name"),
    ("PodGroup", "scheduling.x-k8s.io/pod-group"),
    ("RayCluster", "ray.io/cluster"),
    ("Job", "batch.kubernetes.io/job-name"),
)
LEADER, GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"  # an annotation
AMOUNTS = {"cpu": "50m", "memory": "32Mi"}  # both as request and limit: the pod keeps its class
SCRIPT = r"""# Exit code 0: the job may begin. 1: it may not.
set -u
ask="{\"nodes\": [\"$NODE\"], \"duration_s\": $DURATION_S,"
ask="$ask \"cluster\": \"$CLUSTER\", \"gang\": \"$GANG\"}"
post() {
  printf 'header = "Authorization: Bearer %s"\n' "${TOKEN:-}" |
    curl --config - --silent --show-error --max-time "$DEADLINE_S" "$@" \
      --header 'Content-Type: application/json' --data "$ask" "$ANUBIS/v1/gate" 2>&1
}
if [ -n "${AUTHORITY:-}" ]; then
  said=$(post --cacert /dev/fd/3 3<<END
$AUTHORITY
END
)
else
  said=$(post)
fi
case $(printf %s "$said" | tr -d ' \n') in
  *'"answer":"go"'*) echo "anubis: go: $NODE"; exit 0 ;;
  *'"answer":"no-go"'*) echo "anubis: no-go: $NODE: $said"; exit 1 ;;
  *'"answer":"unknown"'*) choice=$WHEN_UNKNOWN; why="does not know $NODE well enough" ;;
  *) choice=$WHEN_SILENT; why="gave no answer within $DEADLINE_S s" ;;
esac
echo "anubis $why, so the job is told to $choice: $said"
[ "$choice" = start ]
"""


@dataclass(frozen=True, kw_only=True)
class PodGate:
    """The gate of pods with GPUs, in namespaces with the label `anubis-fleet/gate=enabled`."""

    service: str
    """The service's address, as pods reach it: `https://anubis.anubis.svc:8750`."""
    cluster: str
    """The name of this cluster in the history."""
    image: str = "curlimages/curl:8.10.1"
    """An image with sh and curl, which every node can pull."""
    authority: str = ""
    """A file with the certificate (PEM) of the authority that signed the service's own. It is read
    for each pod. Default: what the image trusts."""
    duration_s: float = DAY_S
    """How long a job runs, unless its pod has `activeDeadlineSeconds`."""
    deadline_s: float = 10.0
    """How long a pod waits for the answer."""
    when_unknown: WithoutAnswer = "start"
    """What a pod does if the history is too thin to decide: `start` or `wait`."""
    when_silent: WithoutAnswer = "start"
    """What it does if the service does not answer. To wait stops all jobs while it is down."""
    secret: str = "anubis-gate"
    """The secret with the token, under the key `token`, in each of those namespaces. Without it the
    service refuses to answer, and `when_silent` counts."""
    gpus: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*")
    """Pods that ask for one of these resources, or for any by a resource claim, get the gate."""
    namespace: str = "anubis"
    """The namespace of Anubis itself: pods there get no gate."""

    def __post_init__(self) -> None:
        for name, text in (("service", self.service), ("cluster", self.cluster)):
            if not text or any(letter in text for letter in '"\\$` \n'):
                raise ValueError(f'{name} "{text}": expected a word without quotes and spaces')
        if not (self.duration_s > 0 and self.deadline_s > 0):
            raise ValueError("duration_s and deadline_s: expected more than 0 seconds")


@dataclass(frozen=True, kw_only=True)
class PodAnswer:
    """The answer to a review of Kubernetes, and what became of the pod."""

    document: Mapping[str, Any]
    outcome: Literal["added", "left", "odd"]


def answer_review(review: Document, settings: PodGate, authority: str) -> PodAnswer:
    """Answer an AdmissionReview (v1). `authority`: the certificate itself. An OrchestratorError if
    it is none; a pod that is not understood is let through, with a warning for its maker."""
    fields = Fields(review, "the review")
    if fields.text("kind") != "AdmissionReview":
        raise OrchestratorError("expected an AdmissionReview of admission.k8s.io/v1")
    request = fields.table("request")
    response: dict[str, Any] = {"uid": request.require("uid"), "allowed": True}
    outcome: Literal["added", "left", "odd"] = "left"
    try:
        why = reason_to_leave(request, settings)
        if not why:
            pod = request.table("object").raw
            gate = gate_container(pod, request.text("namespace"), settings, authority)
            patch = json.dumps([patch_of(pod, gate)]).encode()
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
            outcome = "added"
    except OrchestratorError as error:
        why, outcome = f"no gate was added: {error}"[:250], "odd"
        response["warnings"] = [f"anubis: {why}"]
    response["auditAnnotations"] = {"gate": why or "added"}
    kinds = {"apiVersion": fields.text("apiVersion"), "kind": "AdmissionReview"}
    return PodAnswer(document={**kinds, "response": response}, outcome=outcome)


def reason_to_leave(request: Fields, settings: PodGate) -> str:
    """Return why a pod gets no gate; empty if it does."""
    about, pod = request.table("kind"), request.table("object")
    if request.text("operation") != "CREATE" or request.text("subResource"):
        return "it is no new pod"
    if (about.text("group"), about.text("kind")) != ("", "Pod"):
        return "it is no pod"
    if request.text("namespace") in (*SYSTEM, settings.namespace):
        return "it is in a namespace of the system"
    owners = pod.rows("metadata", "ownerReferences")
    if any(owner.text("kind") in ("DaemonSet", "Node") for owner in owners):
        return "it is a daemon"
    if any(row.text("name") == NAME for row in pod.rows("spec", "initContainers")):
        return "it has one"
    if not (pod.rows("spec", "resourceClaims") or asks_for_gpus(pod, settings.gpus)):
        return "it asks for no GPU"
    return ""


def patch_of(pod: Document, gate: Document) -> dict[str, Any]:
    """The one operation (RFC 6902) that puts the gate before all other init containers."""
    if pod["spec"].get("initContainers") is None:
        return {"op": "add", "path": "/spec/initContainers", "value": [gate]}
    return {"op": "add", "path": "/spec/initContainers/0", "value": gate}


def gate_container(
    pod: Document, namespace: str, settings: PodGate, authority: str
) -> dict[str, Any]:
    """The init container. It passes the strictest of Kubernetes' own standards."""
    limit_s = Fields(pod).seconds("spec", "activeDeadlineSeconds")
    values = {
        "ANUBIS": settings.service,
        "CLUSTER": settings.cluster,
        "GANG": gang_of(pod, namespace),
        "DURATION_S": f"{limit_s or settings.duration_s:g}",
        "DEADLINE_S": f"{settings.deadline_s:g}",
        "WHEN_UNKNOWN": settings.when_unknown,
        "WHEN_SILENT": settings.when_silent,
        "AUTHORITY": authority.strip(),
    }
    token = {"name": settings.secret, "key": "token", "optional": True}
    return {
        "name": NAME,
        "image": settings.image,
        "command": ["sh", "-c", SCRIPT],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": token}},
            # Kubernetes reads "$(NAME)" in a value: "$$" is a "$" to it
            *({"name": name, "value": text.replace("$", "$$")} for name, text in values.items()),
        ],
        "resources": {"requests": dict(AMOUNTS), "limits": dict(AMOUNTS)},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def gang_of(pod: Document, namespace: str) -> str:
    """The name of the gang that a pod is one of, as `namespace/kind/name`; empty if of none."""
    fields = Fields(pod)
    labels = fields.table("metadata", "labels")
    gang = ""
    if leader := labels.text(LEADER):
        gang = f"LeaderWorkerSet/{leader}-{labels.text(GROUP)}"
    for kind, label in GANGS:
        if not gang and labels.text(label):
            gang = f"{kind}/{labels.text(label)}"
    group = fields.text("spec", "schedulingGroup", "podGroupName") or fields.text(
        "metadata", "annotations", VOLCANO_GROUP
    )
    gang = gang or (f"PodGroup/{group}" if group else "")
    name = f"{namespace}/{gang}"
    is_plain = all(letter.isalnum() or letter in "._-/" for letter in name)  # it goes into JSON
    return name if gang and is_plain else ""
