"""The gate in pods of Kubernetes: the answers of its webhook, and the added container."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes import client

from anubis.core.errors import OrchestratorError
from anubis.operations.caller import Caller
from anubis.operations.serve import PodReviewer
from anubis.operations.tokens import make_token
from anubis.reach.orchestrators.pod_gate import NAME, PodGate, answer_review, gang_of
from anubis.service.gate import REMEMBERED_S, Gang, Gangs
from tests.edges.visitor import Visitor, house_of, items, problem

GATE = PodGate(service="https://anubis.anubis.svc:8750", cluster="prod")
LEADER = "leaderworkerset.sigs.k8s.io/name"
GROUP = "leaderworkerset.sigs.k8s.io/group-index"
TRAIN = {"name": "train", "image": "t", "resources": {"limits": {"nvidia.com/gpu": "8"}}}


def pod(*, spec=None, **metadata):
    about = {"generateName": "train-", "namespace": "ml", **metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": [TRAIN], **(spec or {})},
    }


def review(document, **changes):
    """A review as kube-apiserver 1.20 sent it for a pod that was created, with another pod in
    it."""
    file = Path(__file__).parent / "recorded" / "admission-review.json"
    recorded = json.loads(file.read_text())
    recorded["request"] |= {"object": document, **changes}
    return recorded


def patched(document, gate=GATE, authority=""):
    """The pod as Kubernetes makes it of the answer; by RFC 6902, of which `add` is used alone."""
    response = answer_review(review(document), gate, authority).document["response"]
    made = copy.deepcopy(document)
    for step in json.loads(base64.b64decode(response.get("patch", "W10="))):
        assert step.keys() == {"op", "path", "value"}
        assert step["op"] == "add"
        *way, last = step["path"].split("/")[1:]
        place = made
        for word in way:
            place = place[word]
        if isinstance(place, list):
            place.insert(int(last), step["value"])
        else:
            place[last] = step["value"]
    return made


def unknown_fields(value, kind):
    """Fields that Kubernetes' own client does not know of an object of this type."""
    if kind.startswith("list["):
        return [f for row in value for f in unknown_fields(row, kind[5:-1])]
    model = getattr(client, kind, None)
    if model is None or not isinstance(value, dict):
        return []
    names = {json_name: name for name, json_name in model.attribute_map.items()}
    return [name for name in value if name not in names] + [
        f
        for n, v in value.items()
        if n in names
        for f in unknown_fields(v, model.openapi_types[names[n]])
    ]


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "x.io/gpu"]),
    st.sampled_from(["0", "1", "8", 0, 2]),
    max_size=3,
)
CONTAINERS = st.builds(
    lambda name, limits: {"name": name, "image": "i", "resources": {"limits": limits}},
    st.sampled_from(["a", "b", "sidecar"]),
    AMOUNTS,
)
INIT = st.one_of(st.none(), st.just([]), st.lists(CONTAINERS, min_size=1, max_size=3))
PODS = st.builds(
    lambda containers, init, has_init, more: pod(
        spec={"containers": containers, **({"initContainers": init} if has_init else {}), **more}
    ),
    st.lists(CONTAINERS, min_size=1, max_size=3),
    INIT,
    st.booleans(),
    st.sampled_from([{}, {"activeDeadlineSeconds": 60}, {"resourceClaims": [{"name": "gpu"}]}]),
)


@given(PODS)
@settings(max_examples=150, deadline=None)
def test_a_pod_with_gpus_gets_the_gate_first_and_nothing_else_of_it_changes(document):
    made = patched(document)
    spec = document["spec"]
    asked = [
        name
        for c in (*spec["containers"], *(spec.get("initContainers") or ()))
        for name, amount in c["resources"]["limits"].items()
        if name != "cpu" and name != "x.io/gpu" and str(amount) != "0"
    ]
    if not (asked or "resourceClaims" in spec):
        assert made == document
        return
    first, *rest = made["spec"]["initContainers"]
    assert first["name"] == NAME
    assert rest == (spec.get("initContainers") or [])
    others = {**made["spec"], "initContainers": None}
    assert others == {**spec, "initContainers": None}
    assert {**made, "spec": None} == {**document, "spec": None}
    assert unknown_fields(made, "V1Pod") == []
    assert patched(made) == made


@pytest.mark.parametrize(
    ("document", "changes"),
    [
        (pod(), {"operation": "UPDATE"}),
        (pod(), {"subResource": "ephemeralcontainers"}),
        (pod(), {"namespace": "kube-system"}),
        (pod(), {"namespace": "anubis"}),
        (pod(ownerReferences=[{"kind": "DaemonSet", "name": "d"}]), {}),
        (pod(ownerReferences=[{"kind": "Node", "name": "n1"}]), {}),
        (pod(spec={"containers": [{"name": "a", "image": "i"}]}), {}),
        (pod(spec={"initContainers": [{"name": NAME, "image": "mine"}]}), {}),
        (pod(), {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}),
    ],
    ids=str,
)
def test_a_pod_that_needs_no_gate_is_left_with_the_reason_in_the_audit(document, changes):
    answer = answer_review(review(document, **changes), GATE, "")
    response = answer.document["response"]
    assert (answer.outcome, response["allowed"]) == ("left", True)
    assert "patch" not in response
    assert response["auditAnnotations"]["gate"].startswith("it ")


def test_a_pod_that_is_not_understood_begins_and_its_maker_is_warned():
    answer = answer_review(review(pod(spec={"initContainers": "none"})), GATE, "")
    response = answer.document["response"]
    assert (answer.outcome, response["allowed"], "patch" in response) == ("odd", True, False)
    (warning,) = response["warnings"]
    assert warning.startswith("anubis: no gate was added: kubernetes: the review: request.object.")
    assert warning.endswith("spec.initContainers is 'none', expected a list")


@pytest.mark.parametrize("document", [{}, {"kind": "AdmissionReview"}, {"kind": "Pod"}])
def test_a_document_that_is_no_review_is_refused(document):
    with pytest.raises(OrchestratorError):
        answer_review(document, GATE, "")


@pytest.mark.parametrize(
    ("labels", "more", "expected"),
    [
        (
            {"jobset.sigs.k8s.io/jobset-name": "llama", "batch.kubernetes.io/job-name": "l-0"},
            {},
            "ml/JobSet/llama",
        ),
        (
            {
                "leaderworkerset.sigs.k8s.io/name": "vllm",
                "leaderworkerset.sigs.k8s.io/group-index": "1",
            },
            {},
            "ml/LeaderWorkerSet/vllm-1",
        ),
        ({"training.kubeflow.org/job-name": "bert"}, {}, "ml/TrainingJob/bert"),
        ({"volcano.sh/job-name": "hpl"}, {}, "ml/VolcanoJob/hpl"),
        ({"kueue.x-k8s.io/pod-group-name": "g1"}, {}, "ml/KueuePodGroup/g1"),
        ({"scheduling.x-k8s.io/pod-group": "g2"}, {}, "ml/PodGroup/g2"),
        ({"ray.io/cluster": "r"}, {}, "ml/RayCluster/r"),
        ({"batch.kubernetes.io/job-name": "one"}, {}, "ml/Job/one"),
        ({}, {"annotations": {"scheduling.k8s.io/group-name": "v"}}, "ml/PodGroup/v"),
        ({}, {}, ""),
        ({"ray.io/cluster": 'a"b'}, {}, ""),
    ],
)
def test_the_pods_of_a_gang_have_one_name(labels, more, expected):
    assert gang_of(pod(labels=labels, **more), "ml") == expected


def test_the_pods_of_kubernetes_own_gangs_have_one_name():
    assert gang_of(pod(spec={"schedulingGroup": {"podGroupName": "g"}}), "ml") == "ml/PodGroup/g"


def test_each_pod_of_a_gang_is_answered_for_those_that_asked_before_until_one_is_stopped():
    gangs, gang, other = Gangs(), Gang("prod", "ml", "ml/a"), Gang("prod", "ml", "ml/b")
    assert gangs.together(gang, ["n1"], 0.0) == ("n1",)
    gangs.note(gang, ["n1"], 0.0, is_stopped=False)
    assert gangs.together(gang, ["n2"], 1.0) == ("n2", "n1")
    assert gangs.together(other, ["n2"], 1.0) == ("n2",)
    assert gangs.together(gang, ["n2"], REMEMBERED_S) == ("n2",)
    gangs.note(Gang("prod", "ml", ""), ["n9"], 1.0, is_stopped=False)
    assert gangs.together(Gang("prod", "ml", ""), ["n2"], 1.0) == ("n2",)
    gangs.note(gang, ["n2"], 2.0, is_stopped=True)
    assert gangs.together(gang, ["n3"], 3.0) == ("n3",)


def test_a_gang_is_answered_for_all_its_nodes_that_asked(visitor):
    asked = {"duration_s": 60, "gang": "ml/JobSet/a"}
    for node in ("n1", "n2"):
        visitor.ask("/v1/gate", "POST", json={**asked, "nodes": [node]})
    visitor.house.board._renew()
    newest, first = items(visitor.ask("/v1/decisions"))
    assert (sorted(first["nodes"]), sorted(newest["nodes"])) == (["n1"], ["n1", "n2"])


def test_a_token_neither_adds_to_a_gang_of_another_nor_has_it_forgotten(fleet):
    url = str(fleet.history)
    ml, stranger = (make_token(name, ("read",), Caller(history_url=url)) for name in "ms")
    visitor = Visitor(house_of(url))
    asked = {"duration_s": 60, "gang": "ml/JobSet/a"}
    for token, node in ((ml, "n1"), (stranger, "n2"), (ml, "n3")):
        visitor.ask("/v1/gate", "POST", token=token, json={**asked, "nodes": [node]})
    visitor.house.gangs.note(Gang("", "s", "ml/JobSet/a"), ["n2"], 0.0, is_stopped=True)
    visitor.ask("/v1/gate", "POST", token=ml, json={**asked, "nodes": ["n4"]})
    visitor.house.board._renew()
    newest, second, *_ = items(visitor.ask("/v1/decisions", token=ml))
    assert sorted(newest["nodes"]) == ["n1", "n3", "n4"]
    assert sorted(second["nodes"]) == ["n1", "n3"]
    visitor.house.history.close_at_last()


def test_the_service_answers_kubernetes_only_if_configured_and_then_without_a_token(fleet):
    url = str(fleet.history)
    closed, opened = (
        Visitor(house_of(url, **more)) for more in ({}, {"pods": PodReviewer(gate=GATE)})
    )
    asked = {"method": "POST", "json": review(pod())}
    assert closed.ask("/v1/pod-gate", **asked).status_code == 404
    make_token("somebody", ("read",), Caller(history_url=url))
    assert opened.ask("/v1/nodes").status_code == 401
    answer = opened.ask("/v1/pod-gate", **asked)
    assert answer.json()["response"]["uid"] == asked["json"]["request"]["uid"]
    assert answer.json()["apiVersion"] == "admission.k8s.io/v1"
    problem(opened.ask("/v1/pod-gate", "POST", json={"kind": "Pod"}), 400)
    text = opened.house.gauges.text().decode()
    assert 'anubis_pod_gate_reviews_total{outcome="added"} 1.0' in text
    for visitor in (closed, opened):
        visitor.house.history.close_at_last()
