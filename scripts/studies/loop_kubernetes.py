"""A real API server of Kubernetes that owns the hosts of show-loop: the webhook of `anubis serve`
adds the gate to each pod. It asserts nothing.

The API server is in the network of the driver alone. There is no kubelet, scheduler or controller
of jobs: FakeKubelet runs on each host what the pods bound to it say, and `LoopKubernetes.play`
makes the pods of a job on free hosts, all at once.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml
from loop_site import RANKS, SERVICE, LoopSite, ServiceSettings, written

from tests.edges import api_server
from tests.edges.fake_kubelet import FakeKubelet

NEEDED = ("openssl", "curl", "kube-apiserver", "etcd")
SPACE, TESTS = "ml", "anubis"  # namespaces of jobs, and of tests
OURS, BY_HAND = "anubis-fleet/cordon", "example.com/why"  # annotations with the reason of a cordon
GATED = {"anubis-fleet/gate": "enabled"}
AGAIN_S = 10.0  # from the end of a try of a job to the next one
ENDED = ("Succeeded", "Failed")


@dataclass
class Gang:
    """A job: as many pods as it has ranks, which begin and end together."""

    id: str
    name: str
    owner: Mapping[str, Any]
    rank: str  # a line of shell
    port: int
    state: str = "PENDING"
    due: float = 0.0  # it begins no earlier
    has_begun: bool = False  # in this try
    restarts: int = 0
    nodes: list[str] = field(default_factory=list)
    answer: str = ""


class LoopKubernetes:
    name = "Kubernetes"
    source = "nodes and pods of the API server"

    def __init__(self, site: LoopSite, made: api_server.Server, kubelet: FakeKubelet) -> None:
        self._bed, self._jobs, self._made, self._kubelet = site.bed, site.jobs, made, kubelet
        self._gangs: dict[str, Gang] = {}
        self._lock = threading.Lock()
        self._failed_at: dict[str, float] = {}  # nodes on which a pod failed
        way = made.kubeconfig("anubis", api_server.account_token(made))
        self.cluster: Mapping[str, object] = {
            "orchestrator": {"kind": "kubernetes", "kubeconfig": way},
            "start": "kubernetes",
            "start_pod": {"image": "none"},
            "ray_python": sys.executable,
        }
        self.variables: Mapping[str, str] = {}
        self.parts: Sequence[str] = (
            f"a real API server of Kubernetes ({api_server.version(made)}) that asks the webhook",
            "scheduler, kubelets and the controller of jobs are played",
            "Ray, brought up in pods for each test",
        )
        api_server.make_certificates(made.folder, self._address)
        options = ["--host", "0.0.0.0", "--name", self._address]
        options += ["--pod-gate", str(made.folder / "gate.yaml")]
        options += ["--certificate", str(made.folder / "tls.crt")]
        options += ["--private-key", str(made.folder / "tls.key")]
        self.service = ServiceSettings(options=options, authority=made.folder / "ca.crt")

    @property
    def _address(self) -> str:
        return self._bed.address_of("driver")

    def ask_gate(self, site: LoopSite) -> None:
        """Register the webhook of the chart, and hand its token to the namespace of the jobs."""
        gate: dict[str, object] = {
            "service": f"https://{self._address}:{SERVICE}",
            "cluster": "bed",
        }
        gate |= {"authority": str(self._made.folder / "ca.crt"), "when_unknown": "wait"}
        gate |= {"deadline_s": 60, "when_silent": "wait"}
        written(self._made.folder / "gate.yaml", yaml.safe_dump(gate))
        token = site.new_token("gate", "read")
        secret = {"metadata": {"name": "anubis-gate"}, "stringData": {"token": token}}
        with self._bed.network_of("driver"):
            core = self._core()
            core.create_namespace({"metadata": {"name": SPACE, "labels": GATED}})
            core.create_namespaced_secret(SPACE, secret)
            if trouble := api_server.apply(self._made, self._webhook()):
                raise SystemExit(f"show-loop: {trouble}")

    def _webhook(self) -> Mapping[str, Any]:
        """The webhook of the chart at another address: there is no network of a cluster."""
        authority = b64encode((self._made.folder / "ca.crt").read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        hook = {
            "name": "pod-gate.anubis-fleet.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "namespaceSelector": {"matchLabels": GATED},
            "rules": [{**rule, "operations": ["CREATE"], "scope": "Namespaced"}],
            "clientConfig": {
                "url": f"https://127.0.0.1:{SERVICE}/v1/pod-gate",
                "caBundle": authority,
            },
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "anubis"},
            "webhooks": [hook],
        }

    # --- what it shows ---

    def _core(self) -> Any:
        return self._made.core("admin")

    def _list(self, path: str) -> list[dict[str, Any]]:
        with self._bed.network_of("driver"):
            client = self._made.client("admin")
            items: list[dict[str, Any]] = api_server.send(client, "GET", f"/api/v1/{path}")["items"]
        return items

    def _pods(self) -> list[dict[str, Any]]:
        """Pods that have not ended."""
        return [pod for pod in self._list("pods") if phase(pod) not in ENDED]

    def look(self) -> Mapping[str, str]:
        pods = self._pods()
        taken = {pod["spec"]["nodeName"] for pod in pods}
        shown = {}
        for node in self._list("nodes"):
            state = "alloc" if node["metadata"]["name"] in taken else "idle"
            if node["spec"].get("unschedulable"):
                state = "drain"
            reason = reason_in(node)
            shown[node["metadata"]["name"]] = f"{state}|{reason}" if reason else state
        for pod in pods:
            if pod["metadata"]["namespace"] == TESTS:
                place = pod["spec"]["nodeName"]
                shown[f"job {pod['metadata']['name']} anubis-test"] = f"RUNNING|{place}"
        for gang in list(self._gangs.values()):
            if gang.state in ("PENDING", "RUNNING"):
                shown[f"job {gang.id} {gang.name}"] = f"{gang.state}|{','.join(gang.nodes)}"
        return shown

    def _node(self, node: str) -> dict[str, Any]:
        with self._bed.network_of("driver"):
            shown = self._core().read_node(node, _preload_content=False)
        document: dict[str, Any] = json.loads(shown.data)
        return document

    def shown(self, node: str) -> str:
        document = self._node(node)
        takes = "unschedulable" if document["spec"].get("unschedulable") else "takes jobs"
        reason = reason_in(document)
        return f"{takes}: {reason}" if reason else takes

    def reason(self, node: str) -> str:
        return reason_in(self._node(node))

    def drain(self, node: str, reason: str) -> None:
        with self._bed.network_of("driver"):
            core = self._made.core("kubectl")
            core.patch_node(node, {"metadata": {"annotations": {BY_HAND: reason}}})
            change = {"spec": {"unschedulable": True}}
            core.patch_node(node, change, field_manager="kubectl-cordon")

    # --- jobs ---

    def submit(self, name: str, rank: str) -> str:
        """Make the job's object; its pods follow."""
        container = {"name": "main", "image": "none"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        path = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
        with self._bed.network_of("driver"):
            document = {**body, "spec": {"template": template}}
            kept = api_server.send(self._made.client("admin"), "POST", path, document)
        uid = kept["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        gang = Gang(
            id=f"{SPACE}/Job/{name}@{uid[:8]}",  # as Anubis calls it
            name=name,
            owner={**owner, "controller": True},
            rank=rank,
            port=20000 + len(self._gangs),
        )
        self._gangs[gang.id] = gang
        return gang.id

    def nodes_of(self, job: str) -> list[str]:
        return list(self._gangs[job].nodes)

    def jobs_on(self, node: str) -> list[str]:
        return [gang.id for gang in list(self._gangs.values()) if node in gang.nodes]

    def put_back(self, job: str) -> None:
        with self._lock:
            self._end(self._gangs[job], "PENDING")

    def cancel(self, job: str) -> None:
        with self._lock:
            self._end(self._gangs[job], "CANCELLED")

    def state_of(self, job: str) -> str:
        return self._gangs[job].state

    def gate_answer(self, job: str) -> str:
        return self._gangs[job].answer

    def outcome(self, job: str) -> str:
        gang = self._gangs[job]
        return f"{job}: {gang.state}; restarts {gang.restarts}"

    # --- in place of a scheduler and a controller of jobs ---

    def play(self, is_over: threading.Event) -> None:
        while not is_over.wait(1.0):
            for gang in list(self._gangs.values()):
                try:
                    with self._lock:
                        self._tend(gang)
                except Exception as trouble:  # the next second tries it again
                    print(
                        f"    job {gang.id}: {' '.join(str(trouble).split())[:300]}",
                        file=sys.stderr,
                    )

    def _tend(self, gang: Gang) -> None:
        if gang.state not in ("PENDING", "RUNNING"):
            return
        pods = self._pods_of(gang)
        if not pods:
            if time.time() >= gang.due:
                self._bind(gang)
            return
        phases = {phase(pod) for pod in pods}
        gang.answer = "; ".join(filter(None, map(self._said, pods))) or gang.answer
        if "Failed" in phases:
            for pod in pods:
                if phase(pod) == "Failed":
                    self._failed_at[pod["spec"]["nodeName"]] = time.time()
            self._end(gang, "PENDING")
        elif phases == {"Succeeded"}:
            gang.state, gang.nodes = "COMPLETED", []
        elif phases <= {"Running", "Succeeded"} and len(pods) == RANKS:
            gang.state, gang.has_begun = "RUNNING", True

    def _pods_of(self, gang: Gang) -> list[dict[str, Any]]:
        selector = f"batch.kubernetes.io%2Fjob-name%3D{gang.name}"
        return self._list(f"namespaces/{SPACE}/pods?labelSelector={selector}")

    def _said(self, pod: Mapping[str, Any]) -> str:
        return self._kubelet.said.get(pod["metadata"]["uid"], "").strip()

    def _bind(self, gang: Gang) -> None:
        """Make the pods of a job on free hosts: the longest without a failure first."""
        taken = {pod["spec"]["nodeName"] for pod in self._pods()}
        shown = {node["metadata"]["name"]: node for node in self._list("nodes")}
        free = [
            name
            for name, node in sorted(shown.items())
            if name not in taken and not node["spec"].get("unschedulable")
        ]
        nodes = sorted(free, key=lambda name: self._failed_at.get(name, 0.0))[:RANKS]
        if len(nodes) < RANKS:
            return
        gang.nodes, gang.has_begun = nodes, False
        (self._jobs / gang.id / "logs").mkdir(parents=True, exist_ok=True)
        for number in range(RANKS):
            self._make(gang, number, nodes)

    def _make(self, gang: Gang, number: int, nodes: Sequence[str]) -> None:
        place = self._jobs / gang.id
        variables = {
            "PLACE": place,
            "RANK": number,
            "WORLD_SIZE": RANKS,
            "MASTER_ADDR": self._bed.address_of(nodes[0]),
            "MASTER_PORT": gang.port,
        }
        script = f"exec >{place}/logs/rank_{number}.log 2>&1; {gang.rank}"
        container = {
            "name": "main",
            "image": "none",
            "command": ["sh", "-c", script],
            "env": [{"name": name, "value": str(value)} for name, value in variables.items()],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},  # which makes it work, and gated
        }
        about = {
            "name": f"{gang.name}-{number}-{secrets.token_hex(3)}",
            "labels": {"batch.kubernetes.io/job-name": gang.name},
            "ownerReferences": [gang.owner],
        }
        spec: dict[str, object] = {"nodeName": nodes[number], "restartPolicy": "Never"}
        spec |= {"containers": [container], "activeDeadlineSeconds": 1800}
        with self._bed.network_of("driver"):
            self._core().create_namespaced_pod(SPACE, {"metadata": about, "spec": spec})

    def _end(self, gang: Gang, state: str) -> None:
        """Remove the pods of a job. `state`: what becomes of it."""
        gang.restarts += gang.has_begun and state == "PENDING"
        gang.state, gang.nodes, gang.has_begun = state, [], False
        gang.due = time.time() + AGAIN_S
        for pod in self._pods_of(gang):
            with self._bed.network_of("driver"):
                self._core().delete_namespaced_pod(pod["metadata"]["name"], SPACE)


def phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def reason_in(node: Mapping[str, Any]) -> str:
    """The reason of a cordon; ours counts only as long as it is there."""
    notes = node["metadata"].get("annotations", {})
    by_hand = notes.get(BY_HAND, "") if node["spec"].get("unschedulable") else ""
    return str(notes.get(OURS, "") or by_hand)


@contextmanager
def kubernetes_owner(site: LoopSite) -> Iterator[LoopKubernetes]:
    folder = site.folder / "kubernetes"
    folder.mkdir()
    with ExitStack() as until_down:
        with site.bed.network_of("driver"):  # its processes and threads stay there
            made = until_down.enter_context(api_server.server(api_server.programs(), folder))
            kubelet = FakeKubelet(made.core("kubelet"), site.bed.words_into)
            until_down.enter_context(kubelet)
            for document in api_server.manifests("*rights.yaml"):
                if trouble := api_server.apply(made, document):
                    raise SystemExit(f"show-loop: {trouble}")
            for node in site.nodes:
                api_server.add_node(made.core("admin"), node, {"kubernetes.io/hostname": node})
            owner = LoopKubernetes(site, made, kubelet)
        is_over = threading.Event()
        thread = threading.Thread(target=owner.play, args=(is_over,), daemon=True)
        thread.start()
        until_down.callback(thread.join)
        until_down.callback(is_over.set)
        yield owner
