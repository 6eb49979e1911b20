"""Nodes and jobs of a Kubernetes cluster, and the orders that it takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from anubis.core.errors import OrchestratorError
from anubis.core.keep.keeper_events import FleetSeen, SeenJob
from anubis.core.keep.reasons import NO_DEFECT, code_of
from anubis.core.text import escape_line
from anubis.reach.executors.remote_commands import Courier
from anubis.reach.executors.start_settings import RayStart, StartWay
from anubis.reach.orchestrators.kubernetes_api import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    KubernetesApi,
    accept,
)
from anubis.reach.orchestrators.kubernetes_fields import Document, Fields
from anubis.reach.orchestrators.kubernetes_objects import (
    WRITER,
    JobOwner,
    add_pod,
    cordon_of,
    cordoning,
    ends_by,
    event,
    is_work,
    name_of,
    owner_of,
    releasing,
    seen_node,
    shown_condition,
    sku_by_gpus,
    sku_by_label,
    windows_of,
)
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from anubis.reach.orchestrators.orchestrator import (
    UNKNOWN_SKUS,
    NodeSkus,
    OrchestratorKind,
    Refusals,
    order_each,
)

MOST_TRIES = 20  # when others change a node again and again
MOST_OWNERS = 5  # above a pod
AT_ONCE = 8  # orders, each of up to four requests
OURS = {"fieldManager": WRITER}
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # lists of conditions are merged by their type
RUNNING = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="


class KubernetesOrchestrator:
    def __init__(
        self,
        settings: KubernetesSettings,
        skus: NodeSkus = UNKNOWN_SKUS,
        clock: Callable[[], float] = time.time,
        api: KubernetesApi | None = None,
    ) -> None:
        self._settings = settings
        self._api = api or KubernetesApi(settings)
        self._skus = skus
        self._clock = clock
        self._owners: dict[JobOwner, JobOwner] = {}  # whose each of those in between is

    def observe(self) -> FleetSeen:
        at = self._clock()
        nodes = {
            name_of(node): node
            for node in self._api.items("/api/v1/nodes", labelSelector=self._settings.nodes)
        }
        jobs = self._jobs(nodes.keys())
        running: dict[str, list[str]] = {name: [] for name in nodes}
        for name, job in jobs.items():
            for node in job.nodes:
                running[node].append(name)
        return FleetSeen(
            at=at,
            nodes={
                name: seen_node(node, self._sku_of(node), running[name])
                for name, node in nodes.items()
            },
            jobs=jobs,
            windows=windows_of(nodes, self._settings.maintenance, at),
            why_empty="" if nodes else self._emptiness(),
        )

    def _emptiness(self) -> str:
        labels = self._settings.nodes
        reason = f'none has the labels "{labels}" of `nodes:` in its file' if labels else "none"
        return f"{reason}: kubectl get nodes --show-labels shows what there is"

    def _sku_of(self, node: Document) -> str:
        by_label = sku_by_label(node, self._settings.sku_label)
        return self._skus.find(name_of(node), by_label) or sku_by_gpus(node)

    def _jobs(self, nodes: Collection[str]) -> dict[str, SeenJob]:
        jobs: dict[str, SeenJob] = {}
        for pod, owner in self._work(nodes):
            jobs[owner.job] = add_pod(jobs.get(owner.job), pod, owner)
        return jobs

    def _work(self, nodes: Collection[str]) -> Iterator[tuple[Document, JobOwner]]:
        """Yield the pods of jobs on these nodes, with what owns them in the end."""
        pods = self._api.items("/api/v1/pods", fieldSelector=RUNNING)
        owned = [(pod, owner_of(pod)) for pod in pods]
        by_uid = {Fields(pod).text("metadata", "uid"): owner for pod, owner in owned}
        before, self._owners = self._owners, {}
        for pod, direct in owned:
            node = Fields(pod).text("spec", "nodeName")
            if node in nodes and is_work(pod, direct, self._settings):
                yield pod, self._top(direct, by_uid, before)

    def cordon(self, reasons: Mapping[str, str]) -> Refusals:
        return order_each(lambda node: self._cordon(node, reasons[node]), reasons, AT_ONCE)

    def release(self, nodes: Collection[str]) -> Refusals:
        return order_each(self._release, nodes, AT_ONCE)

    def requeue(self, jobs: Mapping[str, Collection[str]]) -> Refusals:
        """Evict the pods of these jobs on these nodes. What made them makes them anew, elsewhere:
        the nodes are cordoned."""
        nodes = {node for of_job in jobs.values() for node in of_job}
        pods = defaultdict[str, list[Document]](list)
        for pod, owner in self._work(nodes):
            if Fields(pod).text("spec", "nodeName") in jobs.get(owner.job, ()):
                pods[owner.job].append(pod)
        return order_each(lambda job: self._evict(pods[job]), pods.copy(), AT_ONCE)

    def _evict(self, pods: Sequence[Document]) -> None:
        for pod in pods:
            metadata = Fields(pod)
            name, space = metadata.text("metadata", "name"), metadata.text("metadata", "namespace")
            if owner_of(pod).kind == "Pod":
                raise OrchestratorError(
                    f'kubernetes: pod "{name}" has no owner that would make it anew: it is left'
                    " where it is"
                )
            path = f"/api/v1/namespaces/{quote(space, safe='')}/pods/{quote(name, safe='')}"
            about = {"name": name, "namespace": space}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
            reply = self._api.ask("POST", f"{path}/eviction", body=body)
            if reply.status != NOT_FOUND:  # it has ended meanwhile
                accept(reply, f'eviction of pod "{name}"', rights="requeue-rights.yaml")

    def _cordon(self, node: str, reason: str) -> None:
        def change(document: Document) -> Document | None:
            self._refuse_foreign(document, "cordon")
            return cordoning(document, reason, self._settings)

        document, has_changed = self._change(node, "cordon", change)
        if has_changed:
            is_warning = code_of(reason) not in NO_DEFECT
            self._tell(document, "AnubisCordoned", reason, is_warning=is_warning)
        self._show_condition(document, reason, "cordon")

    def _release(self, node: str) -> None:
        def change(document: Document) -> Document | None:
            self._refuse_foreign(document, "release")
            return releasing(document)

        document, has_changed = self._change(node, "release", change)
        if has_changed:
            sentence = "nothing is held against it any more"
            self._tell(document, "AnubisReleased", sentence, is_warning=False)
        self._show_condition(document, None, "release")

    # --- orders ----------------------------------------------------------------------------

    def _refuse_foreign(self, document: Document, order: str) -> None:
        key, name, now = self._settings.maintenance, name_of(document), self._clock()
        if any(window.end > now for window in windows_of({name: document}, key, now).values()):
            raise OrchestratorError(
                f'kubernetes: {order} of "{name}": it has "{key}", so it is under maintenance:'
                " anubis leaves it alone"
            )
        owner = cordon_of(document)
        if owner and not owner.is_anubis:
            whose = escape_line(owner.name) or "somebody else"
            raise OrchestratorError(
                f'kubernetes: {order} of "{name_of(document)}": {whose} keeps it from jobs'
                f" ({escape_line(owner.reason)}): anubis leaves it as it is"
            )

    def _change(
        self, node: str, order: str, change: Callable[[Document], Document | None]
    ) -> tuple[Document, bool]:
        """Change a node; return it as it is now, and whether it had to be changed.

        The change is computed again from the node as it is now, whenever somebody else wrote in
        between.
        """
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        for _ in range(MOST_TRIES):
            request = f'{order} of "{node}"'
            document = accept(self._api.ask("GET", path), request, "spec")
            patch = change(document)
            if patch is None:
                return document, False
            reply = self._api.ask("PATCH", path, body=patch, form=MERGE, query=OURS)
            if reply.status != CONFLICT:
                return accept(reply, request, "spec"), True
        raise OrchestratorError(
            f'kubernetes: {order} of "{node}": others changed the node {MOST_TRIES} times in a row'
            " while it was changed; see who writes it by kubectl get node --show-managed-fields"
        )

    def _show_condition(self, document: Document, reason: str | None, order: str) -> None:
        patch = shown_condition(document, reason, self._clock())
        if patch is None:
            return
        path = f"/api/v1/nodes/{quote(name_of(document), safe='')}/status"
        reply = self._api.ask("PATCH", path, body=patch, form=STRATEGIC, query=OURS)
        accept(reply, f'{order} of "{name_of(document)}", condition')

    def _tell(self, document: Document, word: str, message: str, *, is_warning: bool) -> None:
        body = event(document, word=word, message=message, is_warning=is_warning, at=self._clock())
        reply = self._api.ask("POST", "/api/v1/namespaces/default/events", body=body)
        accept(reply, f'event on "{name_of(document)}"')

    # --- what is there ---------------------------------------------------------------------

    def _top(
        self, owner: JobOwner, pods: Mapping[str, JobOwner], before: Mapping[JobOwner, JobOwner]
    ) -> JobOwner:
        """Return the last in the chain of owners: a Job of a JobSet is the JobSet."""
        limit = owner.ends_by
        for _ in range(MOST_OWNERS):
            is_pod = owner.kind == "Pod"
            above = pods.get(owner.uid, owner) if is_pod else self._owner_above(owner, before)
            limit = min(limit, above.ends_by)
            if above.uid == owner.uid:
                break
            owner = above
        return replace(owner, ends_by=limit)

    def _owner_above(self, owner: JobOwner, before: Mapping[JobOwner, JobOwner]) -> JobOwner:
        """Return the owner above, asked for once: owners do not change. One that is gone, or not to
        be seen, has none."""
        if not owner.path:
            return owner
        if owner not in self._owners:
            self._owners[owner] = before.get(owner) or self._ask_above(owner)
        return self._owners[owner]

    def _ask_above(self, owner: JobOwner) -> JobOwner:
        reply = self._api.ask("GET", owner.path)
        if reply.status in (FORBIDDEN, NOT_FOUND):
            return owner
        document = accept(reply, f'owner "{owner.job}"')
        return replace(owner_of(document), ends_by=ends_by(document))


def _open_pods(start: RayStart, own_address: str) -> Courier:
    from anubis.reach.executors.pods import Pods

    assert start.pods is not None  # `start: kubernetes` is refused without `start_pod`
    return Pods(start, start.pods, own_address)


def _address_of(start: RayStart, node: str) -> str:
    from anubis.reach.executors.pods import address_of

    assert start.pods is not None
    return address_of(start.pods, node)


def _trial(start: RayStart, node: str, command: Sequence[str]) -> list[str]:
    assert start.pods is not None
    image = f"--image={start.pods.settings.image}"
    return ["kubectl", "debug", f"node/{node}", "-it", image, "--", *command]


ORCHESTRATOR = OrchestratorKind(
    settings=KubernetesSettings, open=KubernetesOrchestrator, title="kubernetes"
)
START = StartWay(
    open=_open_pods,
    host=_address_of,
    trial=_trial,
    limits={
        "memlock": "LimitMEMLOCK=infinity for the container runtime: systemctl edit containerd",
        "nofile": "LimitNOFILE=65536 for the container runtime: systemctl edit containerd",
    },
)
