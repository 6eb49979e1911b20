"""Kubernetes as the owner of nodes: its nodes and jobs, and the two orders that it takes."""

from __future__ import annotations

import math
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from anubis.core.errors import OrchestratorError
from anubis.core.keep.reasons import SPARE, reason
from anubis.reach.executors.machine import sku_of as sku_of_machine
from anubis.reach.orchestrators.kubernetes import AT_ONCE, KubernetesOrchestrator
from anubis.reach.orchestrators.kubernetes_objects import flag, sku_by_gpus
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from tests.edges.kubernetes_server import PODS, FakeApi, api_server, kubeconfig, owner
from tests.edges.orders import cordon, release

SLOW = reason("GEMM.SLOW", "gemm is 12 % slower than its peers")
AT = 1_795_305_600.0  # 2026-11-22T00:00:00Z


@pytest.fixture
def api():
    with api_server() as server:
        yield server


@pytest.fixture
def ask(api, tmp_path):
    def make(clock=lambda: AT, **settings) -> KubernetesOrchestrator:
        file = kubeconfig(tmp_path, api.url_base)
        keys = {"kind": "kubernetes", "kubeconfig": file, "deadline_s": 5.0} | settings
        return KubernetesOrchestrator(KubernetesSettings(**keys), clock=clock)

    return make


def cordons(kubernetes: KubernetesOrchestrator) -> dict[str, str]:
    return {name: node.cordon for name, node in kubernetes.observe().nodes.items()}


# --- what is seen -------------------------------------------------------------------------


def test_nodes_are_seen_with_their_sku_and_whether_they_answer(api: FakeApi, ask):
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
    api.put_node("a1", metadata={"labels": labels})
    api.put_node("a2", status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    seen = ask().observe()
    assert seen.at == AT
    assert [seen.nodes["a1"].is_up, seen.nodes["a2"].is_up] == [True, False]
    assert seen.nodes["a1"].sku == sku_of_machine(["NVIDIA H100 80GB HBM3"] * 8, "")
    assert seen.nodes["a2"].sku == ""


def test_a_site_may_name_the_label_of_the_sku_and_the_nodes_of_the_fleet(api: FakeApi, ask):
    api.put_node("a1", metadata={"labels": {"pool": "train", "hardware": "h100-ndr"}})
    api.put_node("b1", metadata={"labels": {"pool": "web"}})
    api.put_pod("p", node="b1")
    seen = ask(nodes="pool=train", sku_label="hardware").observe()
    assert {name: node.sku for name, node in seen.nodes.items()} == {"a1": "h100-ndr"}
    assert not seen.jobs


def test_a_node_that_lost_its_labels_is_counted_by_its_capacity():
    node = {
        "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
        "status": {"capacity": {"nvidia.com/gpu": "2"}},
    }
    assert sku_by_gpus(node) == sku_of_machine(["NVIDIA L4"] * 2, "")


def test_pods_that_ask_for_gpus_are_work_and_no_others_are(api: FakeApi, ask):
    api.put_node("a1")
    api.put_pod("train", node="a1")
    api.put_pod("slice", node="a1", gpus=0, spec=asking("nvidia.com/mig-1g.10gb"))
    api.put_pod("claims", node="a1", gpus=0, spec={"resourceClaims": [{"name": "gpu"}]})
    api.put_pod("web", node="a1", gpus=0)
    api.put_pod("ended", node="a1", status={"phase": "Succeeded"})
    api.put_pod("waits")
    api.put_pod("daemon", node="a1", owner=owner("DaemonSet", "dcgm", "apps/v1"))
    api.put_pod("static", node="a1", owner=owner("Node", "a1", "v1"))
    api.put_pod("anubis", node="a1", namespace="anubis")
    seen = ask().observe()
    assert plain(seen.nodes["a1"].jobs) == ["ml/Pod/claims", "ml/Pod/slice", "ml/Pod/train"]
    assert plain(ask(gpus=("cpu",)).observe().jobs) == ["ml/Pod/claims", "ml/Pod/web"]


def plain(jobs: Iterable[str]) -> list[str]:
    """Text without the parts that separate two jobs of one name."""
    return sorted(job.partition("@")[0] for job in jobs)


def test_a_name_that_is_used_again_is_another_job(api: FakeApi, ask):
    api.put_node("a1")
    first = owner("PyTorchJob", "llama", "kubeflow.org/v1") | {"uid": "5f3c2a91-0000"}
    second = first | {"uid": "77aa0b12-0000"}
    api.put_pod("llama-0", node="a1", owner=first)
    assert list(ask().observe().jobs) == ["ml/PyTorchJob/llama@5f3c2a91"]
    api.put_pod("llama-0", node="a1", owner=second)
    assert list(ask().observe().jobs) == ["ml/PyTorchJob/llama@77aa0b12"]


def asking(resource: str) -> dict:
    return {"containers": [{"resources": {"requests": {resource: "1"}}}]}


def test_pods_of_one_owner_are_one_job(api: FakeApi, ask):
    for node in ("a1", "a2", "a3"):
        api.put_node(node)
    torch = owner("PyTorchJob", "llama", "kubeflow.org/v1")
    api.put_pod("llama-0", node="a1", owner=torch)
    api.put_pod("llama-1", node="a2", owner=torch)
    api.put_pod("set-0", node="a1", owner=owner("Job", "set-workers-0", "batch/v1"))
    api.put_pod("set-1", node="a3", owner=owner("Job", "set-workers-1", "batch/v1"))
    for n in (0, 1):
        api.put_owner(
            "batch/v1/jobs", f"set-workers-{n}", owner("JobSet", "set", "jobset.x-k8s.io/v1")
        )
    api.put_pod("serve-x", node="a2", owner=owner("ReplicaSet", "serve-77", "apps/v1"))
    api.put_owner("apps/v1/replicasets", "serve-77", owner("Deployment", "serve", "apps/v1"))
    api.put_pod("leader", node="a2", owner=owner("StatefulSet", "lws", "apps/v1"))
    api.put_owner("apps/v1/statefulsets", "lws", owner("LeaderWorkerSet", "lws", "x/v1"))
    api.put_pod("worker", node="a3", owner=owner("StatefulSet", "lws-0", "apps/v1"))
    api.put_owner(
        "apps/v1/statefulsets", "lws-0", owner("Pod", "leader", "v1") | {"uid": "uid-leader"}
    )
    jobs = ask().observe().jobs
    assert {name.partition("@")[0]: job.nodes for name, job in jobs.items()} == {
        "ml/PyTorchJob/llama": ("a1", "a2"),
        "ml/JobSet/set": ("a1", "a3"),
        "ml/Deployment/serve": ("a2",),
        "ml/LeaderWorkerSet/lws": ("a2", "a3"),
    }
    assert {job.owner for job in jobs.values()} == {"ml"}


def test_pods_of_a_job_leave_a_node_and_no_others_do(api: FakeApi, ask):
    for node in ("a1", "a2"):
        api.put_node(node)
    of_job = owner("PyTorchJob", "llama", "kubeflow.org/v1")
    for name, node in (("llama-0", "a1"), ("llama-1", "a1"), ("llama-2", "a2")):
        api.put_pod(name, node=node, owner=of_job)
    api.put_pod("other", node="a1", owner=owner("PyTorchJob", "bert", "kubeflow.org/v1"))
    api.put_pod("bare", node="a1")
    kubernetes = ask()
    jobs = {name.partition("@")[0]: name for name in kubernetes.observe().jobs}
    refused = kubernetes.requeue({job: ["a1"] for job in (jobs["ml/PyTorchJob/llama"], "x")})
    assert refused == {}
    left = {name for resource, _, name in api.objects if resource == PODS}
    assert left == {"llama-2", "other", "bare"}
    (refusal,) = kubernetes.requeue({jobs["ml/Pod/bare"]: ["a1"]}).values()
    assert "has no owner that would make it anew" in refusal
    api.refused.add(("post", "/eviction"))
    (refusal,) = kubernetes.requeue({jobs["ml/PyTorchJob/bert"]: ["a1"]}).values()
    assert "requeue-rights.yaml" in refusal


def test_a_job_has_begun_once_the_gate_of_one_of_its_pods_has_let_it(api: FakeApi, ask):
    """Init containers run while the phase of a pod is Pending."""
    torch = owner("PyTorchJob", "llama", "kubeflow.org/v1")
    for number in (1, 2):
        api.put_node(f"a{number}")
        api.put_pod(f"p{number}", node=f"a{number}", owner=torch, status={"phase": "Pending"})
    (job,) = ask().observe().jobs.values()
    assert (job.nodes, job.has_begun) == (("a1", "a2"), False)
    api.put_pod("p1", node="a1", owner=torch)
    (job,) = ask().observe().jobs.values()
    assert (job.nodes, job.has_begun) == (("a1", "a2"), True)


def test_an_owner_that_is_gone_or_hidden_ends_the_chain(api: FakeApi, ask):
    api.put_node("a1")
    api.put_pod("p", node="a1", owner=owner("Job", "gone", "batch/v1"))
    api.put_pod("q", node="a1", owner=owner("ReplicaSet", "hidden", "apps/v1"))
    api.refused.add(("get", "/hidden"))
    jobs = ask().observe().nodes["a1"].jobs
    assert plain(jobs) == ["ml/Job/gone", "ml/ReplicaSet/hidden"]


def test_an_owner_is_asked_for_once(api: FakeApi, ask):
    api.put_node("a1")
    for n in range(3):
        api.put_pod(f"p{n}", node="a1", owner=owner("Job", "j", "batch/v1"))
    api.put_owner("batch/v1/jobs", "j")
    kubernetes = ask()
    kubernetes.observe()
    kubernetes.observe()
    assert [path for _, path in api.asked()].count("/apis/batch/v1/namespaces/ml/jobs/j") == 1


def test_a_job_ends_by_its_limit_of_time_or_by_that_of_its_pods(api: FakeApi, ask):
    api.put_node("a1")
    api.put_pod("free", node="a1")
    api.put_pod("short", node="a1", spec={"activeDeadlineSeconds": 60})
    api.put_pod("p", node="a1", owner=owner("Job", "j", "batch/v1"))
    api.put_owner("batch/v1/jobs", "j", spec={"activeDeadlineSeconds": 7200})
    jobs = ask().observe().jobs
    spans = {name.split("/")[2][:4]: job for name, job in jobs.items()}
    assert {name: (job.started_at - AT, job.ends_by - AT) for name, job in spans.items()} == {
        "free": (3600, math.inf),
        "shor": (3600, 3660),
        "j@ui": (3600, 3600 + 7200),
    }


def test_long_lists_are_read_page_by_page(api: FakeApi, ask):
    for n in range(1203):
        api.put_node(f"n{n}")
    assert len(ask().observe().nodes) == 1203
    assert [path for _, path in api.asked()].count("/api/v1/nodes") == 3


def test_a_list_that_grew_too_old_is_read_again_from_its_beginning(api: FakeApi, ask):
    for n in range(7):
        api.put_node(f"n{n}")
    api.page, api.too_old = 3, 1
    assert len(ask().observe().nodes) == 7
    api.too_old = 99
    with pytest.raises(OrchestratorError, match='list "/api/v1/nodes" grew too old 3 times'):
        ask().observe()


def test_a_node_about_to_be_deleted_counts_as_cordoned_by_another(api: FakeApi, ask):
    api.put_node(
        "a1", spec={"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}
    )
    api.put_node("a2", spec={"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]})
    seen = ask().observe().nodes
    assert (seen["a1"].cordon, seen["a1"].is_cordoned_by_anubis) == (
        'taint "ToBeDeletedByClusterAutoscaler"',
        False,
    )
    assert seen["a2"].cordon == ""


# --- cordon and release -------------------------------------------------------------------


def test_a_cordon_lets_no_job_begin_and_has_its_reason_in_every_place(api: FakeApi, ask):
    api.put_node("a1")
    cordon(ask(), "a1", SLOW)
    node = api.node("a1")
    assert node["spec"]["unschedulable"] is True
    condition = node["status"]["conditions"][-1]
    assert [condition[key] for key in ("type", "status", "reason")] == [
        *("AnubisHealthy", "False", "GEMM.SLOW")
    ]
    assert condition["message"] == "gemm is 12 % slower than its peers"
    assert condition["lastTransitionTime"] == "2026-11-22T00:00:00Z"
    [event] = api.events()
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "AnubisCordoned", SLOW)
    assert event["involvedObject"]["name"] == "a1"
    assert "taints" not in node["spec"]
    assert "labels" not in node["metadata"]
    seen = ask().observe().nodes["a1"]
    assert (seen.cordon, seen.is_cordoned_by_anubis) == (SLOW, True)


def test_a_repeated_cordon_writes_once(api: FakeApi, ask):
    api.put_node("a1")
    kubernetes = ask(taint=True, label=True)
    cordon(kubernetes, "a1", SLOW)
    before = api.node("a1")
    cordon(kubernetes, "a1", SLOW)
    assert api.node("a1") == before
    assert len(api.events()) == 1


def test_a_half_written_cordon_is_completed_by_the_next(api: FakeApi, ask):
    api.put_node("a1")
    api.refused.add(("patch", "/status"))
    with pytest.raises(OrchestratorError, match=r'cordon of "a1", condition: answered 403'):
        cordon(ask(), "a1", SLOW)
    api.refused.clear()
    cordon(ask(), "a1", SLOW)
    assert api.node("a1")["status"]["conditions"][-1]["reason"] == "GEMM.SLOW"


def test_a_reason_of_ours_gives_way_to_the_next(api: FakeApi, ask):
    api.put_node("a1")
    cordon(ask(), "a1", reason(SPARE, "kept ready as a spare"))
    assert [entry["type"] for entry in api.node("a1")["status"]["conditions"]] == ["Ready"]
    cordon(ask(), "a1", SLOW)
    assert cordons(ask()) == {"a1": SLOW}
    assert api.node("a1")["status"]["conditions"][-1]["reason"] == "GEMM.SLOW"
    cordon(ask(), "a1", reason(SPARE, "kept ready as a spare"))
    assert [entry["type"] for entry in api.node("a1")["status"]["conditions"]] == ["Ready"]
    assert [event["type"] for event in api.events()] == ["Normal", "Warning", "Normal"]


def test_taint_and_label_are_set_if_configured(api: FakeApi, ask):
    api.put_node("a1", spec={"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]})
    cordon(ask(taint=True, label=True), "a1", SLOW)
    node = api.node("a1")
    assert node["spec"]["taints"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "anubis-fleet/out", "value": "GEMM.SLOW", "effect": "NoSchedule"},
    ]
    assert node["metadata"]["labels"] == {"anubis-fleet/out": "GEMM.SLOW"}
    release(ask(), "a1")
    node = api.node("a1")
    assert node["spec"] == {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
    assert node["metadata"]["labels"] == {}


@pytest.mark.parametrize("code", ["GEMM.SLOW", "A/B:C", "X" * 90, ".odd-"])
def test_a_code_becomes_a_value_that_labels_may_have(code):
    assert flag(code)
    assert len(flag(code)) <= 63
    assert flag(code)[0].isalnum()
    assert flag(code)[-1].isalnum()


def test_a_release_takes_back_all_of_ours_and_nothing_that_others_wrote(api: FakeApi, ask):
    api.put_node("a1", metadata={"labels": {"zone": "x"}})
    original = api.node("a1")["spec"]
    cordon(ask(taint=True), "a1", SLOW)
    taints = [*api.node("a1")["spec"]["taints"], {"key": "theirs", "effect": "NoExecute"}]
    api.write(
        "a1", "them", metadata={"annotations": {"note": "disk swapped"}}, spec={"taints": taints}
    )
    release(ask(taint=True), "a1")
    node = api.node("a1")
    assert node["metadata"]["annotations"] == {"note": "disk swapped"}
    assert node["metadata"]["labels"] == {"zone": "x"}
    assert node["spec"] == original | {"taints": [{"key": "theirs", "effect": "NoExecute"}]}
    assert [entry["type"] for entry in node["status"]["conditions"]] == ["Ready"]
    assert [event["reason"] for event in api.events()] == ["AnubisCordoned", "AnubisReleased"]


def test_a_release_of_a_node_without_a_cordon_does_nothing(api: FakeApi, ask):
    api.put_node("a1")
    release(ask(), "a1")
    assert {method for method, _ in api.asked()} == {"GET"}


@pytest.mark.parametrize("order", ["cordon", "release"])
def test_a_foreign_cordon_is_never_touched(api: FakeApi, ask, order):
    api.put_node("a1")
    api.write("a1", "kubectl-cordon", spec={"unschedulable": True})
    before = api.node("a1")
    with pytest.raises(OrchestratorError, match=f'{order} of "a1": kubectl-cordon keeps it'):
        obey(ask(), order)
    assert api.node("a1") == before
    assert not api.events()
    seen = ask().observe().nodes["a1"]
    assert (seen.state, seen.cordon) == ("Ready,SchedulingDisabled", "unschedulable")
    assert (seen.cordoned_by, seen.cordoned_at) == ("kubectl-cordon", AT + 3 * 3600)
    assert not seen.is_cordoned_by_anubis


@pytest.mark.parametrize("order", ["cordon", "release"])
def test_a_node_freed_and_cordoned_again_by_another_is_theirs(api: FakeApi, ask, order):
    """Our annotation is still there: Kubernetes knows the author of the cordon."""
    api.put_node("a1")
    cordon(ask(), "a1", SLOW)
    api.write("a1", "kubectl-uncordon", spec={"unschedulable": None})
    assert cordons(ask()) == {"a1": ""}
    api.write("a1", "kubectl-cordon", spec={"unschedulable": True})
    with pytest.raises(OrchestratorError, match="kubectl-cordon keeps it"):
        obey(ask(), order)
    assert api.node("a1")["spec"]["unschedulable"] is True
    assert not ask().observe().nodes["a1"].is_cordoned_by_anubis


def obey(kubernetes: KubernetesOrchestrator, order: str) -> None:
    cordon(kubernetes, "a1", SLOW) if order == "cordon" else release(kubernetes, "a1")


def test_a_cordon_that_came_between_reading_and_writing_is_seen(api: FakeApi, ask):
    api.put_node("a1")

    def race(name):
        api.before_patch = None
        api.write(name, "kubectl-cordon", spec={"unschedulable": True})

    api.before_patch = race
    with pytest.raises(OrchestratorError, match="kubectl-cordon keeps it"):
        cordon(ask(), "a1", SLOW)
    assert "annotations" not in api.node("a1")["metadata"]


def test_a_write_in_between_is_kept_and_the_order_carried_out(api: FakeApi, ask):
    api.put_node("a1")

    def race(name):
        api.before_patch = None
        api.write(name, "them", spec={"taints": [{"key": "theirs", "effect": "NoSchedule"}]})

    api.before_patch = race
    cordon(ask(taint=True), "a1", SLOW)
    assert [taint["key"] for taint in api.node("a1")["spec"]["taints"]] == [
        *("theirs", "anubis-fleet/out")
    ]


def test_a_node_that_others_never_leave_alone_is_given_up(api: FakeApi, ask):
    api.put_node("a1")
    api.before_patch = lambda name: api.write(name, "them", metadata={"labels": {"x": "y"}})
    with pytest.raises(OrchestratorError, match="others changed the node 20 times in a row"):
        cordon(ask(), "a1", SLOW)


# --- what goes wrong ----------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_left_after_its_deadline(api: FakeApi, ask):
    api.stuck.add(("get", "/nodes"))
    with pytest.raises(OrchestratorError, match=r'GET "/api/v1/nodes": no answer within 0.3 s'):
        ask(deadline_s=0.3).observe()


def test_after_a_silence_the_server_is_asked_by_no_further_order(api: FakeApi, ask):
    reasons = {f"a{number}": SLOW for number in range(40)}
    api.stuck.add(("get", ""))
    refusals = ask(deadline_s=0.3).cordon(reasons)
    assert refusals.keys() == reasons.keys()
    assert all("no answer within 0.3 s" in why for why in refusals.values())
    assert len(api.asked()) <= AT_ONCE


def test_a_credential_plugin_that_never_ends_is_left_after_the_deadline(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\nexec sleep 5\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    file = tmp_path / "config"
    file.write_text(
        f"""
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:1"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
users:
- name: u
  user:
    exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}, interactiveMode: Never}}
"""
    )
    settings = KubernetesSettings(kind="kubernetes", kubeconfig=str(file), deadline_s=0.5)
    with pytest.raises(OrchestratorError, match=r"no answer within 0.5 s"):
        KubernetesOrchestrator(settings, clock=time.time).observe()


def test_a_missing_right_is_named_with_the_file_that_grants_it(api: FakeApi, ask):
    api.put_node("a1")
    api.refused.add(("patch", "/a1"))
    with pytest.raises(OrchestratorError) as refusal:
        cordon(ask(), "a1", SLOW)
    assert str(refusal.value) == (
        'kubernetes: cordon of "a1": answered 403, expected its object: user "anubis" cannot patch'
        " /a1; configs/kubernetes/rights.yaml has the rights that it takes"
    )


def test_a_node_that_is_not_there_is_named(api: FakeApi, ask):
    with pytest.raises(OrchestratorError, match='cordon of "a9": answered 404'):
        cordon(ask(), "a9", SLOW)


def test_a_name_cannot_leave_its_place_in_a_path(api: FakeApi, ask):
    with pytest.raises(OrchestratorError):
        cordon(ask(), "../namespaces/default/pods/x", SLOW)
    assert not [path for _, path in api.asked() if path.startswith("/api/v1/namespaces")]


def test_a_page_of_a_proxy_is_no_answer(api: FakeApi, ask):
    api["get /api/v1/nodes"] << b"<html>please sign in</html>"
    with pytest.raises(OrchestratorError, match="expected its object: <html>please sign in"):
        ask().observe()


def test_a_missing_client_is_named_with_its_installation(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(OrchestratorError, match=r"pip install 'anubis-fleet\[kubernetes\]'"):
        ask().observe()


def test_a_missing_kubeconfig_or_server_is_one_sentence(tmp_path):
    gone = KubernetesSettings(kind="kubernetes", kubeconfig=str(tmp_path / "none"))
    with pytest.raises(OrchestratorError, match=r'^kubernetes: ".*/none" has no usable cluster: '):
        KubernetesOrchestrator(gone, clock=time.time).observe()
    closed = KubernetesSettings(
        kind="kubernetes", kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1")
    )
    with pytest.raises(OrchestratorError, match=r'^kubernetes: GET "/api/v1/nodes": .*refused'):
        KubernetesOrchestrator(closed, clock=time.time).observe()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is missing or empty"),
        ("apiVersion: v1\nclusters: [", "line 2 is no YAML"),
        ("apiVersion: v1\nkind: Config", "expected key current-context"),
        ("clusters: 5", "it is no kubeconfig"),
    ],
)
def test_a_half_written_kubeconfig_is_named_with_the_way_out(tmp_path, text, words):
    (tmp_path / "config").write_text(text)
    settings = KubernetesSettings(kind="kubernetes", kubeconfig=str(tmp_path / "config"))
    sentence = f'"{tmp_path}/config" has no usable cluster: {words}.*; name a file with which'
    with pytest.raises(OrchestratorError, match=f"(?i){sentence}"):
        KubernetesOrchestrator(settings, clock=time.time).observe()


def test_a_cluster_s_file_may_say_that_kubernetes_owns_its_nodes(tmp_path, api: FakeApi, near):
    api.put_node("a1")
    file = tmp_path / "prod.yaml"
    way = kubeconfig(tmp_path, api.url_base)
    file.write_text(
        f"executor: ray\naddress: local\norchestrator: {{kind: kubernetes, kubeconfig: {way}}}\n"
        "skus: {h100-kind-b: a1}\n"
    )
    done = near.run("nodes", "--cluster", str(file), "--json")
    (line,) = done.lines
    assert (line["node"], line["state"], line["sku"]) == ("a1", "Ready", "h100-kind-b")


# --- the rights ---------------------------------------------------------------------------

FOLDER = Path(__file__).parents[2] / "configs" / "kubernetes"
RIGHTS = FOLDER / "rights.yaml"
FILES = (RIGHTS, FOLDER / "requeue-rights.yaml")


def rules() -> set[tuple[str, str, str, str]]:
    """(namespace or nothing, group, resource, verb) of each right in the file."""
    return {
        (document["metadata"].get("namespace", ""), group, resource, verb)
        for file in FILES
        for document in yaml.safe_load_all(file.read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def right_used(method: str, path: str) -> tuple[str, str, str, str]:
    """The right that a request uses, as Kubernetes asks its rules."""
    words = path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    space = ""
    if rest[0] == "namespaces":
        space, rest = rest[1], rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
    verb = verbs.get(method) or ("get" if len(rest) > 1 else "list")
    return (space if resource == "events" else ""), group, resource, verb


def test_the_rights_are_those_that_a_whole_life_uses_and_no_more(api: FakeApi, ask):
    api.put_node("a1")
    for kind, version in (
        ("Job", "batch/v1"),
        ("ReplicaSet", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("RayCluster", "ray.io/v1"),
    ):
        api.put_pod(f"of-{kind.lower()}", node="a1", owner=owner(kind, "x", version))
    kubernetes = ask(taint=True, label=True)
    kubernetes.observe()
    cordon(kubernetes, "a1", SLOW)
    release(kubernetes, "a1")
    kubernetes.requeue({job: ["a1"] for job in kubernetes.observe().jobs if "RayCluster" in job})
    assert {right_used(*request) for request in api.asked()} == rules()


def test_the_rights_are_bound_to_the_account_of_the_file_only():
    documents = list(yaml.safe_load_all(RIGHTS.read_text()))
    names = {(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents}
    for binding in documents:
        if binding["kind"].endswith("Binding"):
            space = binding["metadata"].get("namespace")
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"], space) in names
            assert binding["subjects"] == [
                {"kind": "ServiceAccount", "name": "anubis", "namespace": "anubis"}
            ]
    assert ("ServiceAccount", "anubis", "anubis") in names
