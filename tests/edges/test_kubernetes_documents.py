"""Kubernetes' documents as they should not be, and its API server when it is too busy."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.errors import OrchestratorError
from anubis.core.keep.reasons import reason
from anubis.reach.executors.pods import gpus_of, secret_of, state_of
from anubis.reach.orchestrators.kubernetes import KubernetesOrchestrator
from anubis.reach.orchestrators.kubernetes_api import ApiReply, KubernetesApi, pause_after
from anubis.reach.orchestrators.kubernetes_fields import Fields
from anubis.reach.orchestrators.kubernetes_objects import is_something
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from tests.edges.kubernetes_server import kubeconfig
from tests.edges.orders import cordon, release

SLOW = reason("GEMM.SLOW", "gemm is 12 % slower than its peers")
AT = 1_795_305_600.0
EVERYTHING = KubernetesSettings(
    kind="kubernetes", taint=True, label=True, sku_label="hardware", maintenance="site/maintenance"
)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "set-0", "uid": "u2", "controller": True}
NODE = {
    "kind": "Node",
    "metadata": {
        "name": "a1",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-L4", "site/maintenance": "20261124T0800Z"},
        "annotations": {"anubis-fleet/cordon": SLOW},
        "managedFields": [
            {
                "manager": "anubis",
                "time": "2026-11-22T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
            }
        ],
    },
    "spec": {"unschedulable": True, "taints": [{"key": "x", "value": "y", "effect": "NoExecute"}]},
    "status": {
        "capacity": {"nvidia.com/gpu": "2"},
        "allocatable": {"nvidia.com/gpu": "2"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "well"},
            {"type": "AnubisHealthy", "status": "False", "reason": "X", "message": "y"},
        ],
    },
}
POD = {
    "kind": "Pod",
    "metadata": {
        "name": "train",
        "namespace": "ml",
        "uid": "u3",
        "creationTimestamp": "2026-11-22T00:00:00Z",
        "ownerReferences": [OWNER],
    },
    "spec": {
        "nodeName": "a1",
        "activeDeadlineSeconds": 60,
        "resourceClaims": [],
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {}}}],
        "initContainers": [],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-11-22T01:00:00Z",
        "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
    },
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "set-0", "namespace": "ml", "uid": "u2", "ownerReferences": []},
    "spec": {"activeDeadlineSeconds": 600},
    "status": {"startTime": "2026-11-22T01:00:00Z"},
}
ODD = st.one_of(
    st.sampled_from([None, 0, -1, 7.5, float("nan"), 10**30, True, "", "x", "\n\u202e", "0m"]),
    st.sampled_from(["2026-13-45T99:00", "0001-01-01T00:00:00+14:00", "9e999", "1795305600"]),
    st.sampled_from([[], [None], ["a"], [[]], {}, {"a": None}, {"": {}}, [{}], [{"key": 1}]]),
)


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


@st.composite
def spoiled(draw, document: dict) -> object:
    """A document with up to two things wrong or missing."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from([place for place in places(made) if place] or [()]))
        if not path:
            return copy.deepcopy(draw(ODD))
        *above, last = path
        holder = made
        for key in above:
            holder = holder[key]
        if draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = copy.deepcopy(draw(ODD))
    return made


class SaidByTheServer(KubernetesApi):
    """Answers without a server."""

    def __init__(self, nodes: object, pods: object, job: object) -> None:
        super().__init__(EVERYTHING, sleep=lambda seconds: None)
        self._nodes, self._pods, self._job = nodes, pods, job

    def _ask(self, method, path, body, form, query, limit_s):
        answer: object = self._job
        if path.endswith("/nodes"):
            answer = self._nodes
        elif path.endswith("/pods"):
            answer = self._pods
        elif "/nodes/" in path:
            items = self._nodes.get("items") if isinstance(self._nodes, dict) else None
            answer = items[0] if isinstance(items, list) and items else {}
        document = answer if isinstance(answer, dict) else {"message": str(answer)}
        return ApiReply(status=200, document=document)


def one_sentence(call) -> str:
    """The sentence with which it was refused, if it was, in one line."""
    try:
        call()
    except OrchestratorError as refusal:
        sentence = str(refusal)
    else:
        return ""
    assert sentence.startswith("kubernetes: ")
    assert "\n" not in sentence
    return sentence


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_spoiled_document_of_kubernetes_is_one_sentence(data):
    nodes = data.draw(spoiled({"kind": "NodeList", "metadata": {}, "items": [NODE]}))
    pods = data.draw(spoiled({"kind": "PodList", "metadata": {}, "items": [POD]}))
    job = data.draw(spoiled(JOB))
    kubernetes = KubernetesOrchestrator(
        EVERYTHING, clock=lambda: AT, api=SaidByTheServer(nodes, pods, job)
    )
    one_sentence(kubernetes.observe)
    free = KubernetesOrchestrator(
        KubernetesSettings(kind="kubernetes", taint=True), clock=lambda: AT, api=kubernetes._api
    )
    one_sentence(lambda: cordon(free, "a1", SLOW))
    one_sentence(lambda: release(free, "a1"))


@given(spoiled(POD), spoiled(NODE))
@settings(max_examples=25, deadline=None)
def test_pods_of_ours_and_their_nodes_are_read_likewise(pod, node):
    if isinstance(pod, dict):
        one_sentence(lambda: state_of(pod))
        one_sentence(lambda: secret_of(pod, "password"))
    if isinstance(node, dict):
        one_sentence(lambda: gpus_of(node, ("nvidia.com/gpu",)))


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("metadata", "labels"), ["a"], "node \"a1\": metadata.labels is ['a'], expected a table"),
        (("status", "conditions"), ["x"], "node \"a1\": status.conditions[0] is 'x', expected a"),
        (("metadata", "name"), None, "node without a name: metadata.name is not there"),
    ],
)
def test_the_sentence_names_the_object_and_the_field(place, value, sentence):
    node = copy.deepcopy(NODE)
    node[place[0]][place[1]] = value
    nodes = {"kind": "NodeList", "metadata": {}, "items": [node]}
    api = SaidByTheServer(nodes, {"metadata": {}, "items": []}, {})
    kubernetes = KubernetesOrchestrator(EVERYTHING, clock=lambda: AT, api=api)
    assert sentence in one_sentence(kubernetes.observe)


def test_a_list_of_nothing_is_empty_as_kubernetes_writes_it():
    nothing = {"metadata": {}, "items": None}
    kubernetes = KubernetesOrchestrator(EVERYTHING, api=SaidByTheServer(nothing, nothing, {}))
    assert kubernetes.observe().nodes == {}


@pytest.mark.parametrize(
    ("amount", "is_any"),
    [("8", True), ("0", False), ("0m", False), ("0.0", False), ("", False), ("all", True)],
)
def test_an_amount_of_nothing_is_recognised_in_any_notation(amount, is_any):
    assert is_something(amount) is is_any


def test_a_time_without_a_zone_is_utc():
    assert Fields({"time": "2026-11-22T00:00:00"}).moment("time") == AT


# --- maintenance --------------------------------------------------------------------------


def test_a_label_annotation_or_taint_that_the_file_names_is_a_maintenance():
    until = copy.deepcopy(NODE)
    tainted = {
        "metadata": {"name": "a2", "resourceVersion": "1"},
        "spec": {"taints": [{"key": "site/maintenance", "value": "fans"}]},
    }
    free = {"metadata": {"name": "a3", "annotations": {"other": "x"}}}
    nodes = {"metadata": {}, "items": [until, tainted, free]}
    api = SaidByTheServer(nodes, {"metadata": {}, "items": []}, JOB)
    seen = KubernetesOrchestrator(EVERYTHING, clock=lambda: AT, api=api).observe()
    ends = {window.nodes: window.end for window in seen.windows.values()}
    assert ends == {("a1",): AT + 56 * 3600, ("a2",): float("inf")}
    with pytest.raises(OrchestratorError, match="under maintenance: anubis leaves it alone"):
        cordon(KubernetesOrchestrator(EVERYTHING, clock=lambda: AT, api=api), "a1", SLOW)
    over = KubernetesOrchestrator(EVERYTHING, clock=lambda: AT + 57 * 3600, api=api)
    cordon(over, "a1", SLOW)


# --- a server that is too busy ------------------------------------------------------------


@contextmanager
def busy_server(*answers: tuple[int, str]) -> Iterator[tuple[str, list[str]]]:
    """Refuses as often as there are answers, and then has no nodes; and the requests that it
    got."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(self.command)
            status, pause = left.pop(0) if left else (200, "")
            document = {"metadata": {"name": "a1", "resourceVersion": "1"}, "items": [], "spec": {}}
            text = json.dumps(document if status == 200 else {"message": "too busy"}).encode()
            self.send_response(status)
            if pause:
                self.send_header("Retry-After", pause)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asking(tmp_path: Path, url: str, pauses: list[float]) -> KubernetesApi:
    file = kubeconfig(tmp_path, url)
    return KubernetesApi(
        KubernetesSettings(kind="kubernetes", kubeconfig=file), sleep=pauses.append
    )


def test_a_busy_server_is_asked_again_after_the_pause_that_it_asks_for(tmp_path):
    pauses: list[float] = []
    with busy_server((429, "3"), (503, ""), (500, "soon")) as (url, asked):
        assert asking(tmp_path, url, pauses).items("/api/v1/nodes") == []
    assert pauses == [3.0, 1.0, 1.0]
    assert len(asked) == 4


def test_a_busy_server_is_asked_a_few_times_and_left_alone_as_it_asks(tmp_path):
    pauses: list[float] = []
    with busy_server(*[(429, "1")] * 9) as (url, asked), pytest.raises(OrchestratorError) as error:
        asking(tmp_path, url, pauses).items("/api/v1/nodes")
    assert (len(asked), pauses) == (4, [1.0, 1.0, 1.0])
    assert "answered 429, expected its object: too busy; asked 4 times" in str(error.value)
    with busy_server((503, "3600")) as (url, asked), pytest.raises(OrchestratorError) as error:
        asking(tmp_path, url, pauses).items("/api/v1/nodes")
    assert len(asked) == 1, "an hour is longer than anybody waits here"
    assert "asked once, and asks to be left alone for 3600 s" in str(error.value)


def test_a_write_that_may_have_been_done_is_not_asked_for_again_unasked(tmp_path):
    pauses: list[float] = []
    with busy_server((500, ""), (429, "1")) as (url, asked):
        api = asking(tmp_path, url, pauses)
        assert api.ask("PATCH", "/api/v1/nodes/a1", body={}).status == 500
        assert api.ask("PATCH", "/api/v1/nodes/a1", body={}).status == 200
    assert (len(asked), pauses) == (3, [1.0])


def test_a_pause_may_be_a_date():
    past = ApiReply(status=429, document={}, retry_after=formatdate(0, usegmt=True))
    odd = ApiReply(status=429, document={}, retry_after="Mon, 99 Nov 99999 00:00:00 GMT")
    assert (pause_after(past, "GET"), pause_after(odd, "GET")) == (0.0, 1.0)
    assert pause_after(ApiReply(status=404, document={}, retry_after="1"), "GET") is None
