"""Pods that bring up Ray on nodes of Kubernetes: on a simple API server and kubelet.

`scripts/studies/show-life kubernetes` shows it with a real API server, and a real Ray on hosts.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from anubis.config import configs
from anubis.core.errors import ConfigError, OrchestratorError
from anubis.reach.executors import pods
from anubis.reach.executors.pods import Pods
from anubis.reach.executors.remote_commands import address_for
from anubis.reach.executors.start_settings import PodSettings, PodStart, RayStart
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from tests.edges.fake_kubelet import FakeKubelet
from tests.edges.kubernetes_server import PODS, SECRETS, FakeApi, api_server, kubeconfig
from tests.edges.test_kubernetes import right_used
from tests.patience import eventually

IMAGE = "registry.example.com/anubis:1.0.0rc1"
RIGHTS = Path(__file__).parents[2] / "configs" / "kubernetes"
H100 = {"status": {"allocatable": {"nvidia.com/gpu": "8", "amd.com/gpu": "0", "cpu": "96"}}}


@pytest.fixture
def api():
    with api_server() as server:
        server.put_node("n1", **H100)
        yield server


@pytest.fixture
def start(api, tmp_path) -> RayStart:
    file = kubeconfig(tmp_path, api.url_base)
    owner = KubernetesSettings(kind="kubernetes", kubeconfig=file, deadline_s=5.0)
    settings = PodStart(settings=PodSettings(image=IMAGE, runtime_class="nvidia"), kubernetes=owner)
    return RayStart(by="kubernetes", pods=settings, python=sys.executable, ports="23000-23199")


@pytest.fixture
def opened(start):
    made = Pods(start, start.pods, "127.0.0.1")
    yield made
    made.close()


@pytest.fixture
def kubelet(api):
    core = client.CoreV1Api(client.ApiClient(client.Configuration(host=api.url_base)))
    with FakeKubelet(core, lambda node: ()) as kubelet:
        yield kubelet


def order(words: str, **more: object) -> dict[str, object]:
    return {"argv": ["sh", "-c", words], "timeout_s": 30.0, **more}


def ours(api: FakeApi) -> list[dict]:
    return existing(api, PODS)


def existing(api: FakeApi, kind: object) -> list[dict]:
    rows = [entry for (key, _, _), entry in api.objects.items() if key == kind]
    return [entry.raw for entry in rows if not entry.deleted]


def test_a_pod_calls_back_gets_its_order_and_leaves_with_its_password(
    api: FakeApi, opened, kubelet, tmp_path
):
    remote_command = opened.send("n1", order("echo $0 here; exit 3"), tmp_path / "0")
    assert eventually(lambda: remote_command.has_ended), (
        remote_command.last_words(),
        kubelet.troubles[-1:],
    )
    outcome = remote_command.outcome()
    assert outcome["exit"] == 3
    assert outcome["stdout"] == "sh here\n"
    assert remote_command.password not in json.dumps(kubelet.ran)
    remote_command.close(time.monotonic() + 5)
    assert eventually(lambda: not ours(api))


def test_processes_in_a_pod_end_with_their_driver(opened, kubelet, tmp_path):
    """However that ended: here is no more than the end of a connection."""
    remote_command = opened.send(
        "n1", order("echo $$ > pid; sleep 600", cwd=str(tmp_path)), tmp_path / "0"
    )
    assert eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    assert process.exists()
    remote_command._line.shutdown(socket.SHUT_RDWR)
    assert eventually(lambda: not process.exists())


def test_a_caller_without_the_password_gets_nothing(opened, kubelet, tmp_path):
    remote_command = opened.send("n1", order("true"), tmp_path / "0")
    with socket.create_connection((opened.address, opened.port)) as stranger:
        stranger.sendall(b"guess\n")
        assert stranger.recv(100) == b""
    assert eventually(lambda: remote_command.has_ended)
    with socket.create_connection((opened.address, opened.port)) as late:
        late.sendall(remote_command.password.encode() + b"\n")
        assert late.recv(100) == b""


def test_a_pod_is_bound_to_its_node_takes_all_its_gpus_and_has_no_account(
    api: FakeApi, opened, tmp_path
):
    opened.send("n1", order("true"), tmp_path / "0")
    assert eventually(lambda: existing(api, SECRETS))
    (pod,) = ours(api)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert (pod["metadata"]["namespace"], spec["nodeName"]) == ("anubis", "n1")
    assert (container["image"], spec["runtimeClassName"]) == (IMAGE, "nvidia")
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert spec["hostNetwork"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    (secret,) = existing(api, SECRETS)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


@pytest.mark.parametrize(
    ("node", "refused", "words"),
    [
        ("n9", (), 'node "n9": answered 404'),
        ("n1", ("post", "/pods"), "configs/kubernetes/start-rights.yaml"),
    ],
)
def test_a_pod_that_cannot_be_created_is_reported_with_the_reason(
    api: FakeApi, opened, tmp_path, node, refused, words
):
    api.refused.update([refused] if refused else [])
    remote_command = opened.send(node, order("true"), tmp_path / "0")
    assert eventually(lambda: remote_command.has_ended)
    assert words in remote_command.last_words()
    assert remote_command.outcome() is None


def test_a_pod_that_kubernetes_refuses_or_that_fails_is_quoted(
    api: FakeApi, opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(pods, "CALLS_WITHIN_S", 0.0)
    remote_command = opened.send("n1", order("true"), tmp_path / "0")
    assert eventually(lambda: ours(api))
    status = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "requested 8, used 8"}
    api.objects[PODS, "anubis", remote_command.name].patch({"status": status})
    assert eventually(lambda: remote_command.has_ended)
    assert remote_command.last_words() == (
        "its pod is Failed: OutOfnvidia.com/gpu, requested 8, used 8"
    )


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, "Pending: ImagePullBackOff"),
        ({"terminated": {"reason": "Error", "exitCode": 127}}, "Pending: Error, exit code 127"),
        (
            {"terminated": {"message": "Traceback:\nTimeoutError: timed out", "exitCode": 1}},
            "Pending: Traceback:\nTimeoutError: timed out, exit code 1",
        ),
    ],
)
def test_the_state_of_a_container_is_part_of_the_message(container, words):
    status = {"phase": "Pending", "containerStatuses": [{"state": container}]}
    assert ": ".join(pods.state_of({"status": status})) == words


def test_a_server_that_hangs_is_awaited_once_for_all_pods_to_delete(api: FakeApi, start, tmp_path):
    owner = replace(start.pods.kubernetes, deadline_s=2.0)
    opened = Pods(start, replace(start.pods, kubernetes=owner), "127.0.0.1")
    remote_commands = [
        opened.send("n1", order("true"), tmp_path / str(number)) for number in range(3)
    ]
    assert eventually(lambda: sum(path.endswith("/secrets") for _, path in api.asked()) == 3)
    api.stuck.add(("delete", ""))
    for remote_command in remote_commands:
        remote_command.close(time.monotonic())
    opened.close()
    asked = {request for request in api.asked() if request[0] == "DELETE"}
    assert len(asked) == 1


def test_pods_of_dead_drivers_are_removed_and_running_ones_are_not(api: FakeApi, start):
    long_ago, now = "2026-01-01T00:00:00Z", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for name, phase, made in (
        ("ended", "Succeeded", now),
        ("failed", "Failed", now),
        ("begun", "Running", long_ago),
        ("waits", "Pending", now),
        ("never-begun", "Pending", long_ago),
    ):
        about = {"name": name, "namespace": "anubis", "labels": {"app": pods.APP}}
        about |= {"creationTimestamp": made, "resourceVersion": "1"}
        api.objects[PODS, "anubis", name] = {"metadata": about, "status": {"phase": phase}}
    Pods(start, start.pods, "127.0.0.1").close()
    assert {pod["metadata"]["name"] for pod in ours(api)} == {"begun", "waits"}


def test_the_rights_are_those_that_a_start_uses_and_no_more(
    api: FakeApi, opened, kubelet, tmp_path
):
    before = len(api.asked())
    remote_command = opened.send("n1", order("true"), tmp_path / "0")
    assert eventually(lambda: existing(api, SECRETS))
    remote_command.close(time.monotonic())
    used = {right_used(*request)[1:] for request in api.asked()[before:] if "anubis" in request[1]}
    rules = yaml.safe_load_all((RIGHTS / "start-rights.yaml").read_text())
    written = {
        (group, resource, verb)
        for document in rules
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert used - {("", "pods", "list")} == written  # which rights.yaml gives


def test_the_address_is_that_towards_the_node_as_kubernetes_says(api: FakeApi, start):
    api.put_node("n2", status={"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]})
    assert address_for(start, ["n2"]) == "127.0.0.1"
    with pytest.raises(OrchestratorError, match='node "n9": answered 404'):
        address_for(start, ["n9"])


def test_pods_are_asked_of_the_kubernetes_that_owns_the_nodes(tmp_path):
    file = tmp_path / "prod.yaml"
    words = {"executor": "ray", "start": "kubernetes", "start_pod": {"image": IMAGE}}
    file.write_text(json.dumps(words))
    with pytest.raises(ConfigError, match="add `orchestrator: kubernetes`"):
        _ = configs.cluster(str(file)).way
    file.write_text(json.dumps({**words, "orchestrator": "kubernetes"}))
    way = configs.cluster(str(file)).way
    assert (way.by, way.python, way.pods.settings.image) == ("kubernetes", "python3", IMAGE)
