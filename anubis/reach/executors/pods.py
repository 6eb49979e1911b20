"""The way to nodes of Kubernetes: a pod on each of them, which calls the driver back.

Nobody enters a pod. It knows the driver's address, shows a password from a Secret of its own, and
reads over that connection what a remote command reads over ssh: the connection is its stdin, and
when it ends, however that was, so does everything in the pod. A driver that died leaves objects
without a process, which the next start removes.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

from anubis.core.errors import OrchestratorError
from anubis.reach.executors.callback import Entrance
from anubis.reach.executors.programs import ProgramOutcome
from anubis.reach.executors.remote_commands import TAKE_IN, last_words, lines_for, report_in
from anubis.reach.executors.start_settings import PodStart, RayStart
from anubis.reach.orchestrators.kubernetes_api import ACCEPTED, NOT_FOUND, KubernetesApi, accept
from anubis.reach.orchestrators.kubernetes_fields import Document, Fields
from anubis.reach.orchestrators.kubernetes_objects import is_something, name_of

APP = "anubis-node"  # the label of our pods
PRIVILEGED = {"privileged": True, "runAsUser": 0}  # an image's own user has no privileges
RUN = "anubis-fleet/start"  # the label that holds of which start they are
RIGHTS = "start-rights.yaml"
LOOK_EVERY_S = 1.0  # a question to the API server each time
CALLS_WITHIN_S = 5.0  # a pod that has ended may have called just before
ABANDONED_S = 900.0  # no driver waits so long for a pod that has not begun
TO_GO_S = 5  # for a pod whose program was ended before
READ_BYTES = 1 << 16  # at once
# a cut cable ends the way after half a minute, on both sides
KEPT_ALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}
CALL_BACK = """import os, socket, sys
line = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
line.settimeout(None)
line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in (("KEEPIDLE", 10), ("KEEPINTVL", 5), ("KEEPCNT", 4)):
    line.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_" + option), value)
line.sendall(os.environ.pop("ANUBIS_PASSWORD").encode() + b"\\n")
os.dup2(line.fileno(), 0)
os.dup2(line.fileno(), 1)
line.close()
"""


class Pods(Entrance):
    """The pods of one start, and the address that they call."""

    def __init__(self, start: RayStart, pods: PodStart, address: str) -> None:
        self._start, self._pods = start, pods
        self._api = KubernetesApi(pods.kubernetes)
        self._run = secrets.token_hex(4)
        self._remote_commands: list[PodCommand] = []
        self._is_over = threading.Event()
        self._place = f"/api/v1/namespaces/{quote(pods.kubernetes.namespace, safe='')}"
        self._is_deaf = False  # the API server, when pods were to be removed
        sweep(self._api, self._place)
        super().__init__(address, start.ports)
        self.__enter__()
        threading.Thread(target=self._look, daemon=True).start()

    def send(self, node: str, order: Mapping[str, Any], files: Path) -> PodCommand:
        remote_command = PodCommand(
            self, f"{APP}-{self._run}-{len(self._remote_commands)}", order, files
        )
        self._remote_commands.append(remote_command)
        threading.Thread(target=self._make, args=(node, remote_command), daemon=True).start()
        return remote_command

    def close(self) -> None:
        self._is_over.set()
        self.__exit__()

    def greet(self, line: socket.socket, host: str, words: str) -> None:
        """Hand the connection to the pod with this password, which is good once."""
        for remote_command in self._remote_commands:
            if hmac.compare_digest(words.encode(), remote_command.password.encode()):
                remote_command.take(line)

    def remove(self, name: str) -> None:
        """Remove a pod; its Secret goes with it: Kubernetes collects what a pod owned. What is not
        removed here, the next start sweeps: a deaf server is not waited for once for each pod."""
        if self._is_deaf:
            return
        path, grace = f"{self._place}/pods/{name}", {"gracePeriodSeconds": str(TO_GO_S)}
        try:
            self._api.ask("DELETE", path, query=grace)
        except OrchestratorError:
            self._is_deaf = True

    def _make(self, node: str, remote_command: PodCommand) -> None:
        """Make the pod first, so that the Secret has an owner from its begin."""
        try:
            reply = self._api.ask("GET", f"/api/v1/nodes/{quote(node, safe='')}")
            gpus = gpus_of(accept(reply, f'node "{node}"', "status"), self._pods.kubernetes.gpus)
            driver = (self.address, self.port)
            spec = pod_spec(self._start, self._pods, node, gpus, driver, remote_command.name)
            about = {"name": remote_command.name, "labels": {"app": APP, RUN: self._run}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
            made = self._post("pods", pod, f'pod on "{node}"')
            self._post(
                "secrets",
                secret_of(made, remote_command.password),
                f'secret of the pod on "{node}"',
            )
        except OrchestratorError as error:
            remote_command.fail(str(error))
        if remote_command.has_ended:  # let go meanwhile
            self.remove(remote_command.name)

    def _post(self, plural: str, document: Document, request: str) -> Document:
        reply = self._api.ask("POST", f"{self._place}/{plural}", body=document)
        return accept(reply, request, rights=RIGHTS)

    def _look(self) -> None:
        """Look at the pods that have not called yet, as long as there are any."""
        while not self._is_over.wait(LOOK_EVERY_S):
            silent = {
                remote_command.name: remote_command
                for remote_command in self._remote_commands
                if remote_command.is_awaited
            }
            if not silent:
                continue
            with suppress(OrchestratorError):  # the deadline of the start counts
                for pod in self._api.items(
                    f"{self._place}/pods", labelSelector=f"{RUN}={self._run}"
                ):
                    if name_of(pod) in silent:
                        silent[name_of(pod)].look_at(pod)


class PodCommand:
    """A remote command by a pod. Its output comes as it would from a command."""

    def __init__(self, pods: Pods, name: str, order: Mapping[str, Any], files: Path) -> None:
        self.name, self.password = name, secrets.token_hex(32)
        self.sent_at = time.monotonic()
        self._pods, self._order = pods, order
        self._output = files.with_suffix(".out")
        self._output.touch()
        self._line: socket.socket | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._seen, self._seen_over_at = "its pod did not report", 0.0

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def is_awaited(self) -> bool:
        return self._line is None and not self.has_ended

    def take(self, line: socket.socket) -> None:
        """Hand the order to a pod that called, and listen until it is over."""
        with self._lock:
            if not self.is_awaited:
                return
            self._line = line
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEPT_ALIVE.items():
            line.setsockopt(socket.IPPROTO_TCP, option, value)
        with suppress(OSError), self._output.open("ab") as output:
            line.sendall(lines_for(self._order))
            while data := line.recv(READ_BYTES):
                output.write(data)
        self._ended.set()

    def look_at(self, pod: Document) -> None:
        phase, why = state_of(pod)
        self._seen = f"its pod is {phase}{': ' * bool(why)}{why}"
        if phase not in ("Succeeded", "Failed"):
            return
        self._seen_over_at = self._seen_over_at or time.monotonic()
        if time.monotonic() - self._seen_over_at > CALLS_WITHIN_S:
            self.fail(self._seen)

    def fail(self, why: str) -> None:
        with self._lock:
            if self.is_awaited:
                self._seen = why
                self._ended.set()

    def outcome(self) -> ProgramOutcome | None:
        return report_in(self._output.read_bytes())

    def last_words(self) -> str:
        return last_words(self.outcome(), self._seen)

    def let_go(self) -> None:
        with self._lock:
            if self._line is None:
                self._ended.set()
                return
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def close(self, until: float) -> None:
        self.let_go()
        self._ended.wait(max(0.0, until - time.monotonic()))
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
        self._ended.set()
        self._pods.remove(self.name)


# --- documents ----------------------------------------------------------------------------


def pod_spec(
    start: RayStart,
    pods: PodStart,
    node: str,
    gpus: Mapping[str, str],
    driver: tuple[str, int],
    secret: str,
) -> dict[str, Any]:
    """Return the pod: on this node and no other, without a scheduler; the kubelet refuses it if one
    of the GPUs is taken. It asks Kubernetes nothing, so it gets no account."""
    settings = pods.settings
    command = [*start.prefix, start.python, "-I", "-S", "-c", CALL_BACK + TAKE_IN]
    password = {"secretKeyRef": {"name": secret, "key": "password"}}
    container = {
        "name": "ray",
        "image": settings.image,
        "command": [*command, driver[0], str(driver[1])],
        "env": [{"name": "ANUBIS_PASSWORD", "valueFrom": password}],
        "securityContext": PRIVILEGED if settings.privileged else {"privileged": False},
        "resources": {"limits": dict(gpus)},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # why it did not reach the driver
        "volumeMounts": [{"name": "memory", "mountPath": "/dev/shm"}],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],  # nodes that are out are measured, too
        "hostNetwork": True,  # the node's own name, its own network and its NICs
        "hostIPC": True,  # NCCL and CUDA share memory between processes
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TO_GO_S,
        "containers": [container],
        "volumes": [{"name": "memory", "hostPath": {"path": "/dev/shm", "type": "Directory"}}],
    }
    if settings.runtime_class:
        spec["runtimeClassName"] = settings.runtime_class
    if settings.pull_secret:
        spec["imagePullSecrets"] = [{"name": settings.pull_secret}]
    return spec


def secret_of(pod: Document, password: str) -> Document:
    name, uid = name_of(pod), Fields(pod).require("metadata", "uid")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "stringData": {"password": password},
    }


def gpus_of(node: Document, patterns: tuple[str, ...]) -> dict[str, str]:
    """Return all GPUs of a node, so that no other pod has one of them meanwhile."""
    amounts = Fields(node).table("status", "allocatable")
    return {
        resource: amount
        for resource in amounts.raw
        if any(fnmatchcase(resource, pattern) for pattern in patterns)
        and is_something(amount := amounts.amount(resource))
    }


def address_of(pods: PodStart, node: str) -> str:
    """Return the address of a node in Kubernetes; its name, if it has none."""
    reply = KubernetesApi(pods.kubernetes).ask("GET", f"/api/v1/nodes/{quote(node, safe='')}")
    shown = Fields(accept(reply, f'node "{node}"', "status")).rows("status", "addresses")
    internal = (e.require("address") for e in shown if e.text("type") == "InternalIP")
    return next(internal, node)


def state_of(pod: Document) -> tuple[str, str]:
    """Return a pod's phase and its reason: `OutOfnvidia.com/gpu`, `ImagePullBackOff`, an exit
    code."""
    status = Fields(pod).table("status")
    reasons = [status.text("reason"), status.text("message")]
    for container in status.rows("containerStatuses"):
        for name in container.table("state").raw:
            state = container.table("state", name)
            code = state.amount("exitCode")
            reasons += [state.text("reason"), state.text("message")]
            reasons += [f"exit code {code}"] if code else []
    return status.text("phase") or "Pending", ", ".join(filter(None, reasons))


def sweep(api: KubernetesApi, place: str) -> None:
    """Remove what dead drivers left: pods that have ended, and those that never began."""
    for pod in api.items(f"{place}/pods", labelSelector=f"app={APP}"):
        phase, _ = state_of(pod)
        # wall clock: the API server dates its pods by one
        age_s = time.time() - Fields(pod).moment("metadata", "creationTimestamp")
        if phase in ("Succeeded", "Failed") or (phase == "Pending" and age_s > ABANDONED_S):
            path = f"{place}/pods/{quote(name_of(pod), safe='')}"
            reply = api.ask("DELETE", path, query={"gracePeriodSeconds": str(TO_GO_S)})
            if reply.status not in (ACCEPTED, NOT_FOUND):
                accept(reply, f'removal of "{name_of(pod)}"', rights=RIGHTS)
