"""A Kubernetes API server that is not there: kmock, with what it leaves out of a real one.

Refused writes of an object that changed since (409), pages of lists that may grow too old (410),
lists of conditions merged by their type, and who wrote `spec.unschedulable`. The same is shown on a
real API server by `scripts/studies/try-kubernetes`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import attrs
import kmock
from aiohttp import web
from kmock import KubernetesEmulator, KubernetesError, Server

from tests.patience import LIMIT_S

NODES, PODS, EVENTS, SECRETS = (
    kmock.resource(group="", version="v1", plural=plural)
    for plural in ("nodes", "pods", "events", "secrets")
)


@attrs.define(kw_only=True)
class FakeApi(KubernetesEmulator):
    _versions: count = attrs.field(factory=lambda: count(2), init=False)
    url_base: str = ""
    page: int = 10_000
    too_old: int = 0  # continued lists that are refused
    before_patch: object = None  # called with the node's name before a change of it
    refused: set = attrs.field(factory=set)  # methods and ends of paths that are forbidden
    stuck: set = attrs.field(factory=set)

    async def _handle(self, request):
        place = (request.method.name.lower(), request.url.path)
        for method, path in self.stuck:
            if place[0] == method and place[1].endswith(path):
                await asyncio.sleep(30)
        for method, path in self.refused:
            if place[0] == method and place[1].endswith(path):
                raise KubernetesError(403, "Forbidden", f'user "anubis" cannot {place[0]} {path}')
        if request.method == kmock.method.PATCH:
            self._prepare(request)
        if request.url.path.endswith("/eviction"):
            space, _, name, _ = request.url.path.split("/")[-4:]
            if (PODS, space, name) not in self.objects:
                raise KubernetesError(404, "NotFound", f'pods "{name}" not found')
            del self.objects[PODS, space, name]
            return web.json_response({"kind": "Status", "metadata": {}, "status": "Success"})
        if request.method == kmock.method.POST:
            metadata = request.data["metadata"]
            metadata.setdefault("name", f"{metadata.get('generateName', '')}{next(self._versions)}")
            metadata.setdefault("uid", f"uid-{metadata['name']}")
            if request.namespace:
                metadata["namespace"] = request.namespace
        return await super()._handle(request)

    def _prepare(self, request) -> None:
        if self.before_patch is not None:
            self.before_patch(request.name)
        if (NODES, None, request.name) not in self.objects:
            return
        node = self.objects[NODES, None, request.name].raw
        metadata = request.data.setdefault("metadata", {})
        version = metadata.get("resourceVersion")
        if version not in (None, node["metadata"]["resourceVersion"]):
            raise KubernetesError(409, "Conflict", "the object has been modified")
        metadata["resourceVersion"] = str(next(self._versions))
        if "unschedulable" in request.data.get("spec", {}):
            fields = {"f:spec": {"f:unschedulable": {}}}
            entry = {
                "manager": request.params["fieldManager"],
                "time": "2026-11-22T00:00:00Z",
                "fieldsV1": fields,
            }
            metadata["managedFields"] = [entry]
        if "status" in request.data:
            new = {entry["type"]: entry for entry in request.data["status"]["conditions"]}
            old = node.get("status", {}).get("conditions", [])
            merged = {entry["type"]: entry for entry in old} | new
            request.data["status"]["conditions"] = [
                entry for entry in merged.values() if entry.get("$patch") != "delete"
            ]

    async def _serve_list(self, request):
        whole = await super()._serve_list(request)
        start = int(request.params.get("continue", 0))
        if start and self.too_old:
            self.too_old -= 1
            raise KubernetesError(410, "Expired", "the provided continue parameter is too old")
        size = min(self.page, int(request.params["limit"]))
        items = whole["items"]
        if "=" in (selector := request.params.get("labelSelector", "")):
            key, _, value = selector.partition("=")
            items = [i for i in items if i["metadata"].get("labels", {}).get(key) == value]
        more = str(start + size) if start + size < len(items) else ""
        return {
            "metadata": {"continue": more, "resourceVersion": "1"},
            "items": items[start : start + size],
        }

    # what a test does with it

    def put_node(self, name: str, **parts) -> None:
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.objects[NODES, None, name] = {
            "metadata": metadata | parts.get("metadata", {}),
            "spec": parts.get("spec", {}),
            "status": ready | parts.get("status", {}),
        }

    def node(self, name: str) -> dict:
        return self.objects[NODES, None, name].raw

    def write(self, name: str, manager: str, **parts) -> None:
        """Write as another client."""
        if "unschedulable" in parts.get("spec", {}):
            fields = {"f:spec": {"f:unschedulable": {}}}
            entries = [{"manager": manager, "time": "2026-11-22T03:00:00Z", "fieldsV1": fields}]
            parts.setdefault("metadata", {})["managedFields"] = entries
        parts.setdefault("metadata", {})["resourceVersion"] = str(next(self._versions))
        self.objects[NODES, None, name].patch(parts)

    def put_pod(self, name: str, node: str = "", gpus: int = 8, owner=None, **parts) -> None:
        space = parts.pop("namespace", "ml")
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
        self.objects[PODS, space, name] = {
            "metadata": {
                "name": name,
                "namespace": space,
                "uid": f"uid-{name}",
                "ownerReferences": [] if owner is None else [owner],
            },
            "spec": {"containers": [{"resources": {"limits": limits}}]}
            | ({"nodeName": node} if node else {})
            | parts.pop("spec", {}),
            "status": {"phase": "Running", "startTime": "2026-11-22T01:00:00Z"}
            | parts.pop("status", {}),
        }

    def put_owner(self, resource: str, name: str, owner=None, **parts) -> None:
        """`apps/v1/replicasets`, in the namespace of the pods."""
        group, version, plural = resource.split("/")
        kind = {"jobs": "Job", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}[plural]
        key = kmock.resource(group=group, version=version, plural=plural)
        self.objects[key, "ml", name] = {
            "apiVersion": f"{group}/{version}",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{kind}-{name}",
                "ownerReferences": [] if owner is None else [owner],
            },
            "spec": parts.get("spec", {}),
            "status": {"startTime": "2026-11-22T01:00:00Z"},
        }

    def events(self) -> list[dict]:
        return [entry.raw for (resource, _, _), entry in self.objects.items() if resource == EVENTS]

    def asked(self) -> list[tuple[str, str]]:
        return [(request.method.name, request.url.path) for request in self._requests]


def owner(kind: str, name: str, api: str) -> dict:
    uid = f"uid-{kind}-{name}"
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


@contextmanager
def api_server() -> Iterator[FakeApi]:
    """An API server in a thread of its own, as the client blocks."""
    loop = asyncio.new_event_loop()
    started, ended = threading.Event(), asyncio.Event()
    api = FakeApi()
    for resource in (NODES, PODS, EVENTS, SECRETS):
        api.resources[resource] = {}

    async def serve() -> None:
        async with api, Server(api) as server:
            api.url_base = str(server.url).rstrip("/")
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(LIMIT_S)
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(LIMIT_S)
        loop.close()


def kubeconfig(folder: Path, url: str) -> str:
    file = folder / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "made", "cluster": {"server": url}}],
                "users": [{"name": "anubis", "user": {"token": "x"}}],
                "contexts": [{"name": "made", "context": {"cluster": "made", "user": "anubis"}}],
                "current-context": "made",
            }
        )
    )
    return str(file)
