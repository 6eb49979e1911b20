"""Facts with a fixed meaning: a limit judges them, the fleet never, and both in one assessment; and
what to do about a verdict: for every code there is, and by the most specific rule."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import nodes, spec

from anubis.config import catalog, configs
from anubis.core.campaign.planning import plan, steps
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.limits import remedy_of
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import (
    Ended,
    Execution,
    Judgement,
    Limit,
    MetricSpec,
    Policy,
    Readings,
    Remedy,
    Result,
    Series,
    Suite,
    SuiteEntry,
)

H, D, U = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
FACTS = spec(
    "facts",
    metrics=(
        MetricSpec(name="errors", unit="1", direction="lower", judged_by="limit"),
        MetricSpec(name="room", unit="GB", direction="higher", judged_by="limit"),
        MetricSpec(name="rate", unit="GB/s", direction="higher"),
    ),
)
RESET = (("reset", "{node}"),)
NO_ERRORS = Limit(benchmark="facts", metric="errors", at_most=0, source="us", action="mend it")


def planned(count):
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="facts"),))
    return plan(suite, nodes(count), {"facts": FACTS})


def measured(the_plan, values):
    """`values(node)` is what it measured: metric and device to samples."""
    fit = {node.name for node in the_plan.nodes}
    return [
        Execution(
            step=step,
            attempt=1,
            ended=Ended.MEASURED,
            final=True,
            result=Result(
                series=Readings.pack(
                    Series(metric=metric, device=device, samples=np.array(samples, dtype=float))
                    for (metric, device), samples in values(step.participants[0]).items()
                )
            ),
        )
        for step in steps(the_plan, 0, fit)
    ]


def judged(the_plan, done, *limits):
    found = units(latest_executions(done), the_plan)
    criteria = learn_criteria(found, Policy(), suite="s", anubis="0", created_at="now")
    return assess(found, done, the_plan, criteria, {}, limits=limits), criteria


def alike(node):
    return {("errors", "cuda:0"): [0], ("errors", "cuda:1"): [0], ("rate", "cuda:0"): [100]}


def test_one_gpu_over_its_limit_makes_its_node_defective_and_says_all_a_person_needs():
    found, _ = judged(
        the_plan := planned(4),
        measured(
            the_plan, lambda n: alike(n) | ({("errors", "cuda:1"): [0, 2]} if n == "n2" else {})
        ),
        NO_ERRORS,
    )
    assert {n.node: n.judgement for n in found.nodes} == {"n0": H, "n1": H, "n2": D, "n3": H}
    worst = next(found.verdicts())
    assert (worst.participants, worst.device, worst.code) == (("n2",), "cuda:1", "FACTS.ERRORS")
    assert worst.reason == "errors on cuda:1: 2 instead of at most 0 (us)"
    assert (worst.similarity, worst.alpha) == (None, None)
    (within,) = [
        batch_verdict for batch_verdict in found.batch_verdicts if batch_verdict.metric == "errors"
    ]
    assert (within.judgement, within.reason, len(within)) == (H, "within its limit", 7)
    assert found.nodes[0].reason == "all 3 metrics are like the fleet's or within their limits"


def test_an_error_that_all_nodes_have_is_none_the_less_one():
    everywhere = lambda node: {("errors", "cuda:0"): [1], ("rate", "cuda:0"): [100]}  # noqa: E731
    found, _ = judged(the_plan := planned(8), measured(the_plan, everywhere), NO_ERRORS)
    assert {node.judgement for node in found.nodes} == {D}


def test_a_wrong_digest_of_a_gpu_is_named_before_its_other_defects():
    wrong = lambda n: alike(n) | ({("errors", "cuda:1"): [9]} if n == "n2" else {})  # noqa: E731
    done = measured(the_plan := planned(4), wrong)
    notes = {"n2": {"digests": {"cuda:0": {"exp": "usual"}, "cuda:1": {"exp": "odd"}}}}
    usual = {"digests": {"cuda:1": {"exp": "usual"}}}
    done = [
        replace(run, result=replace(run.result, environment=notes.get(name, usual)))
        for run in done
        for name in run.step.participants
    ]
    found, _ = judged(the_plan, [*done, *done], NO_ERRORS)
    assert [node.code for node in found.nodes if node.judgement is D] == ["FACTS.DIGEST.GPU"]


def test_the_fleet_learns_nothing_of_facts():
    _, (criteria,) = judged(the_plan := planned(4), measured(the_plan, alike), NO_ERRORS)
    assert [criterion.key.metric for criterion in criteria.criteria] == ["rate"]


def test_a_fact_without_a_limit_is_no_verdict_at_all():
    only_facts = lambda node: {("errors", "cuda:0"): [99]}  # noqa: E731
    found, criteria = judged(the_plan := planned(4), measured(the_plan, only_facts))
    assert (list(found.verdicts()), criteria) == ([], ())
    assert {node.judgement for node in found.nodes} == {U}


def test_a_limit_applies_also_to_a_metric_that_the_fleet_judges():
    """One is below the floor, another above it and yet worse than the fleet."""
    rates = {"n0": 50.0, "n1": 61.3}  # 60 would be one step of rounding off
    floor = Limit(benchmark="facts", metric="rate", at_least=55, source="the contract")
    found, _ = judged(
        the_plan := planned(6),
        measured(the_plan, lambda node: {("rate", "cuda:0"): [rates.get(node, 70.0)]}),
        floor,
    )
    by_node = {v.participants[0]: v for v in found.alone}
    assert "instead of at least 55" in by_node["n0"].reason
    assert "slower than normal" in by_node["n1"].reason
    assert len(list(found.verdicts())) == 6  # one for each unit, never two


def test_a_limit_of_a_qualified_metric_goes_before_that_of_its_family():
    family = replace(NO_ERRORS, at_most=5)
    mine = replace(NO_ERRORS, metric="errors:corrected", at_most=100)
    values = {("errors:corrected", "cuda:0"): [50], ("errors:fatal", "cuda:0"): [6]}
    found, _ = judged(the_plan := planned(1), measured(the_plan, lambda n: values), family, mine)
    assert [(v.metric, v.judgement) for v in found.verdicts()] == [
        ("errors:fatal", D),
        ("errors:corrected", H),
    ]


@pytest.mark.parametrize(
    ("bounds", "within", "outside"),
    [
        ({"at_most": 3}, [0, 3], [3.1]),
        ({"at_least": 3}, [3, 1e300], [0, 2.9]),
        ({"equals": 3}, [3], [0, 2, 4]),
        ({"at_least": 1, "at_most": 3}, [1, 2, 3], [0, 0.9, 3.1]),
    ],
)
def test_a_bound_itself_is_within(bounds, within, outside):
    limit = Limit(benchmark="facts", metric="room", source="us", **bounds)
    for value, expected in [*((v, H) for v in within), *((v, D) for v in outside)]:
        values = {("room", "cuda:0"): [value]}
        done = measured(the_plan := planned(1), lambda n, values=values: values)
        (node,) = judged(the_plan, done, limit)[0].nodes
        assert node.judgement is expected, value


def test_the_worst_of_several_samples_is_the_one_reported():
    limit = Limit(benchmark="facts", metric="room", at_least=5, source="us")
    values = {("room", "cuda:0"): [9, 1, 4]}
    found, _ = judged(the_plan := planned(1), measured(the_plan, lambda n: values), limit)
    assert found.alone[0].reason == "room on cuda:0: 1 instead of at least 5 GB (us)"


@pytest.mark.parametrize(
    ("bounds", "complaint"),
    [
        ({}, "has no bound"),
        ({"at_most": -1}, "0 or more"),
        ({"at_most": float("nan")}, "finite"),
        ({"equals": 1, "at_most": 1}, "one of them"),
        ({"at_most": 1, "at_least": 2}, "allows nothing"),
    ],
)
def test_a_limit_that_no_value_can_break_is_refused(bounds, complaint):
    with pytest.raises(ValueError, match=complaint):
        Limit(benchmark="facts", metric="room", source="us", **bounds)


def test_a_limit_reads_as_a_sentence_and_as_a_table_entry():
    limit = Limit(benchmark="b", metric="m", at_least=0.05, at_most=2, source="us")
    assert (str(limit), limit.symbols) == ("at least 0.05, at most 2", "≥ 0.05, ≤ 2")


ROOT = Path(__file__).parents[2]
NOTHING_TO_DO = {"OK", "NOT-APPLICABLE"}


def codes_of_programs() -> set[str]:
    shipped = catalog.load(catalog.folders()).specs.values()
    metrics = {f"{spec.name}.{metric.name}" for spec in shipped for metric in spec.metrics}
    failures = {f"{spec.name}.{failure}" for spec in shipped for failure in ("crash", "hang")}
    return {code.upper() for code in metrics | failures}


def codes_in_the_documentation() -> set[str]:
    table = (ROOT / "docs" / "output.md").read_text().partition("## Codes")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    codes = set()
    for row in rows:
        first, *others = re.findall(r"`([A-Z.-]+)`", row)
        family = first.partition(".")[0]
        codes |= {first, *(family + code if code.startswith(".") else code for code in others)}
    return {code for code in codes if not code.startswith("BENCHMARK.")} - NOTHING_TO_DO


def test_the_shipped_policy_has_a_remedy_for_every_code():
    policy = configs.policy("default")
    codes = codes_in_the_documentation() | codes_of_programs()
    assert {"NETWORK.UPLINKS", "WIRING.SLOW", "NODE-LOST", "GEMM.HANG"} <= codes
    assert sorted(code for code in codes if remedy_of(code, policy) is None) == []


def test_no_remedy_is_hidden_by_a_later_one():
    policy = replace(configs.policy("default"), limits=())
    for remedy in policy.remedies:
        for pattern in remedy.codes:
            assert remedy_of(pattern.replace("*", "ANY"), policy) == remedy, pattern


def test_the_last_of_several_fitting_remedies_counts():
    site = Remedy(codes=("GEMM.*",), action="call the hall team")
    policy = Policy(remedies=(Remedy(codes=("GEMM.TFLOPS", "*"), action="reset it"), site))
    assert remedy_of("GEMM.TFLOPS", policy) == site
    assert remedy_of("DISK_IO.READ", policy).action == "reset it"
    assert remedy_of("DISK_IO.READ", Policy()) is None


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("NODE_HEALTH.XIDS.79", "restart"),
        ("NODE_HEALTH.XIDS.48", "look it up"),
        ("NODE_HEALTH.XIDS_SEEN", "compare"),  # a name that begins alike is another metric
        ("GEMM.AGREEMENT", "take it out"),  # of every program
        ("TRAIN_CNN.AGREEMENT.BF16", "train again"),  # its own goes before that of every program
    ],
)
def test_the_action_of_the_limit_goes_first_the_nearest_one_before_its_family(code, action):
    def limit(benchmark: str, metric: str, action: str) -> Limit:
        return Limit(benchmark=benchmark, metric=metric, at_most=0, source="us", action=action)

    policy = Policy(
        limits=(
            limit("node_health", "xids:79", "restart"),
            limit("node_health", "xids", "look it up"),
            limit("*", "agreement", "take it out"),
            limit("*", "agreement:bf16", "take it out by all means"),
            limit("train_cnn", "agreement", "train again"),
        ),
        remedies=(Remedy(codes=("*",), action="compare", evidence="a log", commands=RESET),),
    )
    remedy = remedy_of(code, policy)
    assert (remedy.action, remedy.evidence, remedy.commands) == (action, "a log", RESET)
