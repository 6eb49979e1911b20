"""Requests to a Kubernetes API server, by its official client.

Answers are read as plain JSON, which is cheaper than the client's objects for 5,000 nodes. Every
call has a deadline of its own, also if a name server or a credential plugin never answers.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from anubis.core.errors import MissingPackageError, OrchestratorError, OrchestratorSilentError
from anubis.core.text import escape_line
from anubis.reach.orchestrators.kubernetes_fields import Document, Fields
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from anubis.text.packages import require_package

Returned = TypeVar("Returned")

MOST_ASKED = 4  # times, if a server is too busy
PAUSE_S = 1.0  # from one time to the next, if it does not say
PAGE = 500  # objects an answer may hold
MOST_LISTS = 3  # a list that grew too old while it was read is read again
OK, CREATED, ACCEPTED = 200, 201, 202  # statuses of HTTP
BUSY, BROKEN = 429, (500, 502, 503, 504)  # statuses that may pass
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410  # of HTTP


@dataclass(frozen=True, kw_only=True)
class ApiReply:
    status: int
    document: Document
    retry_after: str = ""  # how long it asks to be left alone, in its own words
    asked: int = 1  # how often, until it answered so


class KubernetesApi:
    """The way to one API server; it is looked for when it is first needed."""

    def __init__(
        self, settings: KubernetesSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._client: Any = None

    def items(self, path: str, **selector: str) -> list[Document]:
        """List objects page by page. A list that outlived what the server keeps of it is begun
        again."""
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
            reply = self.ask("GET", path, query=query)
            if reply.status == GONE and more:
                return None
            part = Fields(accept(reply, f'list "{path}"', "items"), f'list "{path}"')
            kind = part.text("kind").removesuffix("List")
            items += [
                {"kind": kind, **item.raw} if kind else item.raw for item in part.rows("items")
            ]
            more = part.text("metadata", "continue")
            if not more:
                return items

    def ask(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        form: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> ApiReply:
        """Send a request. A server that is too busy is asked again after the pause that it asks
        for, until the deadline is over, or it was busy too often."""
        _load_client()  # which takes seconds on a busy machine, and is no silence of the server
        until = time.monotonic() + self._settings.deadline_s
        for times in range(1, MOST_ASKED + 1):
            left_s = until - time.monotonic()
            reply = replace(self._ask(method, path, body, form, query, left_s), asked=times)
            pause_s = pause_after(reply, method) if times < MOST_ASKED else None
            if pause_s is None or time.monotonic() + pause_s >= until:
                break
            self._sleep(pause_s)
        return reply

    def _ask(
        self,
        method: str,
        path: str,
        body: Document | None,
        form: str,
        query: Mapping[str, str] | None,
        limit_s: float,
    ) -> ApiReply:
        def send() -> ApiReply:
            client = self._connect()
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
            return ApiReply(
                status=reply.status,
                document=_document(reply.read()),
                retry_after=str(reply.getheader("Retry-After") or ""),
            )

        try:
            return _call_within(limit_s, send)
        except TimeoutError:
            raise OrchestratorSilentError(
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

    def _connect(self) -> Any:
        """Return the client. It is no cached property: all instances share its lock, which a plugin
        may never free."""
        if self._client is None:
            self._client = _client_of(self._settings)
        return self._client


def _load_client() -> tuple[Any, Any]:
    try:
        require_package("kubernetes", "an orchestrator that is Kubernetes")
    except MissingPackageError as error:
        raise OrchestratorError(f"kubernetes: {error}") from None
    from kubernetes import client, config

    return client, config


def _client_of(settings: KubernetesSettings) -> Any:
    client, config = _load_client()
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
    except Exception as trouble:  # a file that is half-written is whatever the client stumbles over
        where = file or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise OrchestratorError(
            f'kubernetes: "{escape_line(where)}" has no usable cluster: {_way_trouble(trouble)};'
            " name a file with which kubectl works, in $KUBECONFIG or as kubeconfig: of the"
            " orchestrator"
        ) from None


def _way_trouble(trouble: Exception) -> str:
    """Return what is wrong with a kubeconfig, in the client's words if these are a sentence."""
    if mark := getattr(trouble, "problem_mark", None):  # of YAML
        return f"line {mark.line + 1} is no YAML"
    words = _last_line(str(trouble)).removeprefix("Invalid kube-config file. ")
    if "No configuration found" in words or words.endswith("file is empty"):
        return "the file is missing or empty"
    is_clients = type(trouble).__module__.startswith("kubernetes.")
    return words if is_clients or isinstance(trouble, OSError) else "it is no kubeconfig"


def _call_within(limit_s: float, call: Callable[[], Returned]) -> Returned:
    """Return the result of the call within the limit, whatever it waits for; a late one is left
    behind."""
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


def pause_after(reply: ApiReply, method: str) -> float | None:
    """Return the pause before the request is sent again; None if its answer stands. A write that
    may have been done is only sent again if the server says when."""
    says_when = bool(reply.retry_after)
    if reply.status == BUSY or (reply.status in BROKEN and (says_when or method == "GET")):
        return _pause(reply.retry_after)
    return None


def _pause(text: str) -> float:
    """Parse seconds, or a date of HTTP; the usual pause if it is neither."""
    with suppress(ValueError, OverflowError):
        return max(0.0, float(text)) if text.isdecimal() else _seconds_until(text)
    return PAUSE_S


def _seconds_until(text: str) -> float:
    # wall clock: its API server says until when, by such a clock
    return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())


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


def accept(
    reply: ApiReply, request: str, part: str = "metadata", rights: str = "rights.yaml"
) -> Document:
    """Return the answer if it is the expected object: a proxy in between may answer, too.

    `rights`: the file that gives them.
    """
    if reply.status in (OK, CREATED) and "metadata" in reply.document and part in reply.document:
        return reply.document
    message = _last_line(str(reply.document.get("message", "an object of another kind")))
    hint = ""
    if reply.status in (UNAUTHORIZED, FORBIDDEN):
        hint = f"; configs/kubernetes/{rights} has the rights that it takes"
    elif reply.status == BUSY or reply.status in BROKEN:
        hint = _hint_of_busy(reply)
    raise OrchestratorError(
        f"kubernetes: {request}: answered {reply.status}, expected its object: {message}{hint}"
    )


def _hint_of_busy(reply: ApiReply) -> str:
    asks = f", and asks to be left alone for {escape_line(reply.retry_after)[:40]} s"
    times = "once" if reply.asked == 1 else f"{reply.asked} times"
    return f"; asked {times}{asks if reply.retry_after.isdecimal() else ''}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return escape_line(lines[-1].strip())[:300] if lines else "no reason"
