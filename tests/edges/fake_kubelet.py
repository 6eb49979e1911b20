"""In place of kubelets: runs the commands of each pod that is bound to a node. It asserts nothing.

They run on a host of the node's name, init containers first and one after the other, and their ends
are written to the API server. Images, volumes and limits are ignored.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from anubis.reach.executors.guardian import end_with_front
from tests.patience import LIMIT_S

EVERY_S = 0.2
KEPT = ("PATH", "HOME", "LANG")  # of the environment here, as an image would have them


class FakeKubelet:
    """For all nodes. Also in place of the collector of pods without an owner."""

    def __init__(self, core: Any, into: Callable[[str], Sequence[str]]) -> None:
        """`core`: a client of the API; `into`: words before a command, that lead to a host."""
        self._core, self._into = core, into
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}  # containers of a pod
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.ran: list[dict[str, Any]] = []  # pods, as they were begun
        self.said: dict[str, str] = {}  # by the init containers of a pod
        self.troubles: list[str] = []

    def __enter__(self) -> FakeKubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(LIMIT_S)
        for process in self._running.values():
            _end(process)

    def _work(self) -> None:
        while not self._is_over.wait(EVERY_S):
            try:
                self._turn()
            except Exception as trouble:  # a write in between; the next turn looks again
                self.troubles.append(repr(trouble))

    def _turn(self) -> None:
        listed = self._core.list_pod_for_all_namespaces(_preload_content=False, limit=1000)
        pods = {pod["metadata"]["uid"]: pod for pod in json.loads(listed.data)["items"]}
        for uid in self._running.keys() - pods.keys():
            _end(self._running.pop(uid))
        for uid, pod in pods.items():
            if pod["spec"].get("nodeName"):
                self._tend(uid, pod)

    def _tend(self, uid: str, pod: Mapping[str, Any]) -> None:
        process, phase = self._running.get(uid), (pod.get("status") or {}).get("phase", "Pending")
        if pod["metadata"].get("deletionTimestamp"):
            if process:
                _end(self._running.pop(uid))
            self._forget(pod)
        elif process is None and phase == "Pending":
            self.ran.append(dict(pod))
            (container,) = pod["spec"]["containers"]
            self._waiting[uid] = [*pod["spec"].get("initContainers", ()), container]
            self._begin(uid, pod)
        elif process is not None and phase in ("Pending", "Running") and process.poll() is not None:
            self._go_on(uid, pod, process)

    def _go_on(self, uid: str, pod: Mapping[str, Any], process: subprocess.Popen[bytes]) -> None:
        """Begin the next container of a pod, or report its end."""
        code = process.returncode
        if process.stdout:  # of an init container
            self.said[uid] = self.said.get(uid, "") + process.stdout.read().decode()
        if self._waiting[uid] and not code:
            self._begin(uid, pod)
            return
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        self._tell(pod, "Failed" if code else "Succeeded", state)

    def _begin(self, uid: str, pod: Mapping[str, Any]) -> None:
        container = self._waiting[uid].pop(0)
        is_last = not self._waiting[uid]
        variables = {name: os.environ[name] for name in KEPT if name in os.environ}
        for entry in container.get("env", ()):
            variables[entry["name"]] = self._value(pod, entry)
        self._running[uid] = subprocess.Popen(
            [*self._into(pod["spec"]["nodeName"]), *container["command"]],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=None if is_last else subprocess.PIPE,
            start_new_session=True,
        )
        if is_last:
            self._tell(pod, "Running", {"running": {}})

    def _value(self, pod: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "spec.nodeName"
            return str(pod["spec"]["nodeName"])
        return self._secret(pod, entry) if source else entry.get("value", "").replace("$$", "$")

    def _secret(self, pod: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
        reference = entry["valueFrom"]["secretKeyRef"]
        read = self._core.read_namespaced_secret(
            reference["name"], pod["metadata"]["namespace"], _preload_content=False
        )
        secret = json.loads(read.data)
        if "stringData" in secret:  # which a real server never shows
            return str(secret["stringData"][reference["key"]])
        return base64.b64decode(secret["data"][reference["key"]]).decode()

    def _tell(self, pod: Mapping[str, Any], phase: str, state: Mapping[str, Any]) -> None:
        container = {"name": pod["spec"]["containers"][0]["name"], "state": state, "image": ""}
        container |= {"imageID": "", "ready": False, "restartCount": 0}
        about, status = pod["metadata"], {"phase": phase, "containerStatuses": [container]}
        self._core.patch_namespaced_pod_status(
            about["name"], about["namespace"], {"status": status}, _preload_content=False
        )

    def _forget(self, pod: Mapping[str, Any]) -> None:
        about = pod["metadata"]
        self._core.delete_namespaced_pod(
            about["name"], about["namespace"], grace_period_seconds=0, _preload_content=False
        )
        listed = self._core.list_namespaced_secret(about["namespace"], _preload_content=False)
        for secret in json.loads(listed.data)["items"]:
            owners = secret["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == about["uid"] for owner in owners):
                with suppress(Exception):
                    self._core.delete_namespaced_secret(
                        secret["metadata"]["name"], about["namespace"], _preload_content=False
                    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started, as a container that is killed."""
    if process.poll() is None:
        end_with_front(process.pid)
    process.wait(LIMIT_S)
