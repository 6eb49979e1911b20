"""Nodes and jobs of a Kubernetes cluster, by its official client.

Answers are read as plain JSON, which is cheaper than the client's objects for 5,000 nodes. Every
call has a deadline of its own, also where a name server or a credential plugin never answers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.parse import quote

from anubis.core.errors import OrchestratorError
from anubis.core.lifecycle.events import FleetSeen, SeenJob
from anubis.core.lifecycle.reasons import NO_DEFECT, code_of
from anubis.core.text import one_line
from anubis.orchestrators.kubernetes_objects import (
    WRITER,
    Document,
    JobOwner,
    cordon_of,
    cordoning,
    ends_by,
    event,
    is_work,
    joined,
    name_of,
    owner_of,
    releasing,
    seen_node,
    shown_condition,
    sku_by_gpus,
    sku_by_label,
)
from anubis.orchestrators.settings import KubernetesSettings

Returned = TypeVar("Returned")

PAGE = 500  # objects an answer may hold
MOST_LISTS = 3  # a list that grew too old while it was read is read again
MOST_TRIES = 8  # when others change a node again and again
MOST_OWNERS = 5  # above a pod
OK, CREATED = 200, 201
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410
OURS = {"fieldManager": WRITER}
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # lists of conditions are merged by their type
RUNNING = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="


@dataclass(frozen=True, kw_only=True)
class _Reply:
    status: int
    document: Document


class KubernetesOrchestrator:
    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        skus: Mapping[str, str] | None = None,
        sku: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`skus`: of nodes by name; `sku`: of those that neither it nor a label speaks of."""
        self._settings = settings
        self._skus = skus or {}
        self._sku = sku
        self._clock = clock
        self._client: Any = None
        self._owners: dict[JobOwner, JobOwner] = {}  # whose each of those in between is

    def observe(self) -> FleetSeen:
        at = self._clock()
        nodes = {
            name_of(node): node
            for node in self._list("/api/v1/nodes", labelSelector=self._settings.nodes)
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
        )

    def _sku_of(self, node: Document) -> str:
        by_label = sku_by_label(node, self._settings.sku_label)
        return self._skus.get(name_of(node)) or by_label or self._sku or sku_by_gpus(node)

    def _jobs(self, nodes: Collection[str]) -> dict[str, SeenJob]:
        pods = self._list("/api/v1/pods", fieldSelector=RUNNING)
        by_uid = {pod["metadata"].get("uid", ""): owner_of(pod) for pod in pods}
        before, self._owners = self._owners, {}
        jobs: dict[str, SeenJob] = {}
        for pod in pods:
            if pod["spec"].get("nodeName") in nodes and is_work(pod, self._settings):
                owner = self._top(owner_of(pod), by_uid, before)
                jobs[owner.job] = joined(jobs.get(owner.job), pod, owner)
        return jobs

    def cordon(self, node: str, reason: str) -> None:
        def change(document: Document) -> Document | None:
            self._refuse_foreign(document, "cordon")
            return cordoning(document, reason, self._settings)

        document, has_changed = self._change(node, "cordon", change)
        if has_changed:
            is_warning = code_of(reason) not in NO_DEFECT
            self._tell(document, "AnubisCordoned", reason, is_warning=is_warning)
        self._show_condition(document, reason, "cordon")

    def release(self, node: str) -> None:
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
        owner = cordon_of(document)
        if owner and not owner.is_anubis:
            whose = one_line(owner.name) or "somebody else"
            raise OrchestratorError(
                f'kubernetes: {order} of "{name_of(document)}": {whose} keeps it from jobs'
                f" ({one_line(owner.reason)}): anubis leaves it as it is"
            )

    def _change(
        self, node: str, order: str, change: Callable[[Document], Document | None]
    ) -> tuple[Document, bool]:
        """The node as it is now, and whether it had to be changed.

        Decided again by what the node is now, whenever somebody else wrote in between.
        """
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        for _ in range(MOST_TRIES):
            request = f'{order} of "{node}"'
            document = _accepted(self._ask("GET", path), request, "spec")
            patch = change(document)
            if patch is None:
                return document, False
            reply = self._ask("PATCH", path, body=patch, form=MERGE, query=OURS)
            if reply.status != CONFLICT:
                return _accepted(reply, request, "spec"), True
        raise OrchestratorError(
            f'kubernetes: {order} of "{node}": others changed the node {MOST_TRIES} times in a row'
            " while it was changed; see who writes it by kubectl get node --show-managed-fields"
        )

    def _show_condition(self, document: Document, reason: str | None, order: str) -> None:
        patch = shown_condition(document, reason, self._clock())
        if patch is None:
            return
        path = f"/api/v1/nodes/{quote(name_of(document), safe='')}/status"
        reply = self._ask("PATCH", path, body=patch, form=STRATEGIC, query=OURS)
        _accepted(reply, f'{order} of "{name_of(document)}", condition')

    def _tell(self, document: Document, word: str, message: str, *, is_warning: bool) -> None:
        body = event(document, word=word, message=message, is_warning=is_warning, at=self._clock())
        reply = self._ask("POST", "/api/v1/namespaces/default/events", body=body)
        _accepted(reply, f'event on "{name_of(document)}"')

    # --- what is there ---------------------------------------------------------------------

    def _list(self, path: str, **selector: str) -> list[Document]:
        """Page by page. A list that outlived what the server keeps of it is begun again."""
        for _ in range(MOST_LISTS):
            items = self._pages(path, selector)
            if items is not None:
                return items
        raise OrchestratorError(
            f'kubernetes: the list "{path}" grew too old {MOST_LISTS} times while it was read;'
            " is the API server overloaded?"
        )

    def _pages(self, path: str, selector: Mapping[str, str]) -> list[Document] | None:
        items: list[Document] = []
        more = ""
        while True:
            query = {**selector, "limit": str(PAGE), "continue": more}
            reply = self._ask("GET", path, query=query)
            if reply.status == GONE and more:
                return None
            document = _accepted(reply, f'list "{path}"', "items")
            items += document["items"]
            more = document["metadata"].get("continue") or ""
            if not more:
                return items

    def _top(
        self,
        owner: JobOwner,
        pods: Mapping[str, JobOwner],
        before: Mapping[JobOwner, JobOwner],
    ) -> JobOwner:
        """The last in the chain of owners: a Job of a JobSet is the JobSet."""
        limit = owner.ends_by
        for _ in range(MOST_OWNERS):
            is_pod = owner.kind == "Pod"
            above = pods.get(owner.uid, owner) if is_pod else self._above(owner, before)
            limit = min(limit, above.ends_by)
            if above.uid == owner.uid:
                break
            owner = above
        return replace(owner, ends_by=limit)

    def _above(self, owner: JobOwner, before: Mapping[JobOwner, JobOwner]) -> JobOwner:
        """Asked for once: owners do not change. Whoever is gone, or not to be seen, has none."""
        if not owner.path:
            return owner
        if owner not in self._owners:
            self._owners[owner] = before.get(owner) or self._ask_above(owner)
        return self._owners[owner]

    def _ask_above(self, owner: JobOwner) -> JobOwner:
        reply = self._ask("GET", owner.path)
        if reply.status in (FORBIDDEN, NOT_FOUND):
            return owner
        document = _accepted(reply, f'owner "{owner.job}"')
        return replace(owner_of(document), ends_by=ends_by(document))

    # --- the way there ---------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        form: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> _Reply:
        def send() -> _Reply:
            client = self._connected()
            request = client.param_serialize(
                method=method,
                resource_path=path,
                query_params=[(key, value) for key, value in (query or {}).items() if value],
                header_params={"Accept": "application/json", "Content-Type": form},
                body=body,
                auth_settings=["BearerToken"],
            )
            patience_s = 2 * self._settings.deadline_s  # after which who was left behind ends
            reply = client.call_api(*request, _request_timeout=patience_s)
            return _Reply(status=reply.status, document=_document(reply.read()))

        try:
            return _within(self._settings.deadline_s, send)
        except TimeoutError:
            raise OrchestratorError(
                f'kubernetes: {method} "{path}": no answer within {self._settings.deadline_s:g} s'
            ) from None
        except OrchestratorError:
            raise
        except (
            Exception
        ) as trouble:  # the client, its transport and its plugins raise what they like
            raise OrchestratorError(
                f'kubernetes: {method} "{path}": {_last_line(str(trouble))}'
            ) from trouble

    def _connected(self) -> Any:
        """Not a cached property: all instances share its lock, which a plugin may never free."""
        if self._client is None:
            self._client = _client_of(self._settings)
        return self._client


def _client_of(settings: KubernetesSettings) -> Any:
    try:
        from kubernetes import client, config
    except ImportError:
        raise OrchestratorError(
            "kubernetes: its client is not installed; pip install 'anubis-fleet[kubernetes]'"
        ) from None
    configuration = client.Configuration()
    configuration.retries = False
    _find_the_way(settings, config, configuration)
    return client.ApiClient(configuration)


def _find_the_way(settings: KubernetesSettings, config: Any, into: Any) -> None:
    file, context = settings.kubeconfig, settings.context
    if not file and not context:
        with suppress(config.ConfigException):  # not in a pod
            config.load_incluster_config(client_configuration=into)
            return
    try:
        config.load_kube_config(
            config_file=file or None,
            context=context or None,
            client_configuration=into,
            persist_config=False,
        )
    except config.ConfigException as trouble:
        where = f'"{file}"' if file else "$KUBECONFIG or ~/.kube/config"
        raise OrchestratorError(
            f"kubernetes: {where} shows no way to a cluster: {_last_line(str(trouble))}"
        ) from None


def _within(limit_s: float, call: Callable[[], Returned]) -> Returned:
    """Whatever the call waits for: who has not answered by then is left behind."""
    answers: SimpleQueue[tuple[Returned | None, Exception | None]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except Exception as trouble:
            answers.put((None, trouble))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, trouble = answers.get(timeout=limit_s)
    except Empty:
        raise TimeoutError from None
    if trouble is not None:
        raise trouble
    return answer  # type: ignore[return-value]  # None comes with trouble only


def _document(content: bytes) -> Document:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    return (
        document
        if isinstance(document, dict)
        else {"message": content[:200].decode(errors="replace")}
    )


def _accepted(reply: _Reply, request: str, part: str = "metadata") -> Document:
    """What was answered, if it is what was asked for: a proxy in between may answer, too."""
    if reply.status in (OK, CREATED) and "metadata" in reply.document and part in reply.document:
        return reply.document
    message = _last_line(str(reply.document.get("message", "an object of another kind")))
    hint = "; configs/kubernetes/rights.yaml has the rights that it takes"
    raise OrchestratorError(
        f"kubernetes: {request}: answered {reply.status}, expected its object: {message}"
        + (hint if reply.status in (UNAUTHORIZED, FORBIDDEN) else "")
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1].strip())[:300] if lines else "no reason"
