"""Settings of nodes: as most of the sku have them, or as the policy says; and versions of drivers
and libraries: kept with what is learned, and reported if they moved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.judge.equality import (
    FEWEST,
    NodeSettings,
    SettingKey,
    differences,
    judge_settings,
    usual_settings,
    versions,
    voters,
)
from anubis.core.records import (
    CriteriaSet,
    Ended,
    Execution,
    Expectation,
    Judgement,
    Node,
    Plan,
    Provenance,
    Result,
    Step,
    Workload,
)

WORKLOAD = Workload.make("node_config", "1", {})


def node(name, sku="h100", unread=(), **settings):
    """Settings of a whole node, or of devices if a table is given."""
    texts = {n: v if isinstance(v, dict) else {"node": v} for n, v in settings.items()}
    return NodeSettings(node=name, sku=sku, workload=WORKLOAD, texts=texts, unread=dict(unread))


def fleet(*drivers, **more):
    return [node(f"n{place}", driver=text, **more) for place, text in enumerate(drivers)]


def judgements(nodes, expectations=(), before=()):
    """Judgements by node, setting and device."""
    batch_verdicts, alone = judge_settings(nodes, expectations, before)
    verdicts = [*alone, *(verdict for batch_verdict in batch_verdicts for verdict in batch_verdict)]
    return {
        (verdict.participants[0], verdict.metric, verdict.device): verdict for verdict in verdicts
    }


def named(nodes, **how):
    return {
        place: verdict.judgement
        for place, verdict in judgements(nodes, **how).items()
        if verdict.judgement is not Judgement.HEALTHY
    }


def test_a_node_that_differs_from_most_is_named_with_both_values():
    found = judgements(fleet("550.2", "550.2", "535.1", "550.2"))
    bad = found["n2", "driver", "node"]
    assert (bad.judgement, bad.code) == (Judgement.DEFECTIVE, "NODE_CONFIG.DRIVER")
    assert bad.reason == ('driver of n2 is "535.1", and "550.2" on 3 of 4 nodes of its sku')
    well = [verdict for place, verdict in found.items() if place[0] != "n2"]
    assert {(v.judgement, v.reason) for v in well} == {
        (Judgement.HEALTHY, "as most nodes of its sku")
    }


def test_without_a_majority_of_values_all_nodes_are_unknown():
    found = judgements(fleet("a", "a", "b", "b"))
    assert {v.judgement for v in found.values()} == {Judgement.UNKNOWN}
    assert found["n0", "driver", "node"].reason == (
        'driver of n0 is "a", and no value has a majority: "a" on 2, "b" on 2 of 4 nodes of its sku'
    )


@pytest.mark.parametrize("drivers", [("a",), ("a", "a"), ("a", "b")])
def test_settings_of_fewer_than_three_nodes_are_not_compared(drivers):
    found = judgements(fleet(*drivers))
    assert {(v.judgement, v.code) for v in found.values()} == {
        (Judgement.NOT_APPLICABLE, "NO-PEERS")
    }


def test_nodes_of_another_sku_have_no_vote():
    mixed = [*fleet("a", "a", "a"), *(node(f"m{i}", sku="a100", driver="b") for i in range(3))]
    assert named(mixed) == {}


def test_a_device_is_compared_with_the_device_of_that_name():
    nodes = [node(f"n{i}", vbios={"cuda:0": "96", "cuda:1": "97"}) for i in range(3)]
    nodes.append(node("n3", vbios={"cuda:0": "96", "cuda:1": "96"}))
    assert named(nodes) == {("n3", "vbios", "cuda:1"): Judgement.DEFECTIVE}


def test_the_history_votes_for_nodes_that_are_not_there():
    before = fleet("a", "a", "a", "b")
    alone = [node("n9", driver="b")]
    assert named(alone, before=before) == {("n9", "driver", "node"): Judgement.DEFECTIVE}
    assert named([node("n9", driver="a")], before=before) == {}
    # one that is there has one vote, its own of now
    again = [node("n1", driver="b"), node("n2", driver="b")]
    assert {told.node: told.texts["driver"]["node"] for told in voters(again, before)} == {
        "n0": "a",
        "n1": "b",
        "n2": "b",
        "n3": "b",
    }


def test_an_expectation_of_one_kind_of_gpu_leaves_the_others_to_the_majority():
    kinds = {"cuda:0": "data centre", "cuda:1": "consumer"}
    modes = {"cuda:0": "off", "cuda:1": "off"}
    nodes = [node(f"n{i}", mode=modes, gpu_kind=kinds) for i in range(3)]
    pin = Expectation(setting="mode", gpu_kind="data*", equals=("on",), source="release 7")
    assert {
        v.device for v in judgements(nodes, [pin]).values() if v.code == "NODE_CONFIG.MODE"
    } == {"cuda:0"}
    advice = replace(pin, is_advice=True)
    found = judgements(nodes, [advice])
    assert {v.device for v in found.values() if v.code == "ADVISED"} == {"cuda:0"}
    assert Judgement.DEFECTIVE not in {v.judgement for v in found.values()}


def test_an_exchanged_gpu_is_another_model_and_its_other_settings_are_its_own():
    models, caps = {"cuda:0": "H100", "cuda:1": "H100"}, {"cuda:0": "700", "cuda:1": "700"}
    nodes = [node(f"n{i}", gpu_model=models, power=caps) for i in range(4)]
    nodes[1] = node("n1", gpu_model=models | {"cuda:1": "A100"}, power=caps | {"cuda:1": "400"})
    found = judgements(nodes)
    assert [place for place, v in found.items() if v.judgement is Judgement.DEFECTIVE] == [
        ("n1", "gpu_model", "cuda:1")
    ]
    assert found["n1", "power", "cuda:1"].code == "NO-PEERS"
    nodes[1] = node("n1", gpu_model=models, power=caps | {"cuda:1": "400"})
    assert judgements(nodes)["n1", "power", "cuda:1"].judgement is Judgement.DEFECTIVE


def test_a_pinned_value_is_right_even_if_most_nodes_have_another():
    pin = Expectation(setting="driver", equals=("550.*",), source="release 7")
    found = judgements(fleet("535", "535", "550.3"), expectations=[pin])
    assert found["n2", "driver", "node"].judgement is Judgement.HEALTHY
    assert found["n0", "driver", "node"].reason == (
        'driver of n0 is "535", expected "550.*" (release 7);'
        ' it is "535" on 2 of 3 nodes of its sku'
    )
    other_sku = Expectation(setting="driver", sku="b200", equals=("1",), source="us")
    assert list(named(fleet("a", "a", "b"), expectations=[other_sku])) == [("n2", "driver", "node")]


def test_the_last_of_several_expectations_counts_and_one_without_values_allows_any():
    rules = [
        Expectation(setting="*", equals=("a",), source="first"),
        Expectation(setting="driver", source="may differ here"),
    ]
    found = judgements(fleet("a", "b", "c"), expectations=rules)
    assert {(v.judgement, v.code) for v in found.values()} == {
        (Judgement.NOT_APPLICABLE, "NOT-JUDGED")
    }


def test_a_setting_that_one_node_could_not_read_and_others_could_is_unknown():
    silent = node("n9", unread={"driver": "NVML does not answer"}, kernel="6.8")
    found = judgements([*fleet("a", "a", "a", kernel="6.8"), silent])
    verdict = found["n9", "driver", "node"]
    assert (verdict.judgement, verdict.code) == (Judgement.UNKNOWN, "UNREAD")
    assert 'could not be read: NVML does not answer; it is "a" on 3 of 3' in verdict.reason
    assert found["n9", "kernel", "node"].judgement is Judgement.HEALTHY
    # if no node could read it, no node is at fault
    assert named([node(f"n{i}", unread={"bios": "no"}, kernel="6.8") for i in range(4)]) == {}


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_a_majority_is_more_than_half_of_at_least_three(texts):
    usual = usual_settings(fleet(*texts)).get(SettingKey("h100", "node_config", "driver", "node"))
    counts = Counter(texts)
    if len(texts) < FEWEST:
        assert usual is None
    else:
        expected = [text for text in counts if counts[text] * 2 > len(texts)]
        assert usual is not None
        assert [usual.text] == (expected or [None])
        assert usual.voters == len(texts)


def test_advice_of_all_nodes_is_one_sentence_and_no_defect():
    kinds = {"cuda:0": "data centre", "cuda:1": "data centre"}
    nodes = [node(f"n{i}", mode=dict.fromkeys(kinds, "off"), gpu_kind=kinds) for i in range(3)]
    rule = Expectation(setting="mode", equals=("on",), is_advice=True, source="release 7")
    batches, alone = judge_settings(nodes, [rule])
    (advice,) = [batch for batch in batches if batch.code == "ADVISED"]
    assert not alone
    assert (advice.reason, len(advice)) == ('is "off", better "on" (release 7)', 6)


PLAN = Plan(
    suite="s",
    nodes=tuple(Node(name=name, sku=name[0]) for name in ("a1", "a2", "b1")),
    phases=(),
    specs=(),
)


def ran(node: str, **environment: str) -> Execution:
    step = Step(
        id=node, workload=Workload.make("gemm", "1", {}), participants=(node,), phase=0, repeat=0,
        timeout_s=1.0, exclusive=True,
    )  # fmt: skip
    result = Result(environment=environment)
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def learned(sku: str, **known: str) -> CriteriaSet:
    origin = Provenance(suite="s", anubis="1", digest="", created_at="", versions=known)
    return CriteriaSet(sku=sku, criteria=(), provenance=origin)


def test_each_kind_of_node_has_the_versions_that_its_nodes_reported():
    executions = [
        ran("a1", driver="550", cuda="12.4", cpu="any"),
        ran("a2", driver="560", nccl="2.21", cudnn="9.1.0"),
        ran("b1"),
    ]
    assert versions(executions, PLAN) == {
        "a": {"driver": "550, 560", "cuda": "12.4", "nccl": "2.21", "cudnn": "9.1.0"}
    }


def test_only_a_version_that_moved_since_learning_is_reported():
    now = versions([ran("a1", driver="560", cuda="12.4", nccl="2.21")], PLAN)
    (sentence,) = differences([learned("a", driver="550", cuda="12.4")], now)
    assert sentence.startswith('driver of a is "560", its criteria were learned with "550"')
    assert not list(differences([learned("a"), learned("b", driver="1")], now))
