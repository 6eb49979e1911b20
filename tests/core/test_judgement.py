"""From executions to verdicts: which units are judged, which nodes are blamed, and which stay
unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fleets import entry, small_plan

from anubis.config import criteria_files
from anubis.core.campaign.planning import follow_ups, steps
from anubis.core.fabric import Part
from anubis.core.judge.faulty_paths import faulty_paths
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import (
    Assessment,
    Ended,
    Execution,
    Judgement,
    MetricAlpha,
    NodeVerdict,
    PartVerdict,
    Policy,
    Readings,
    Result,
    Series,
    Verdict,
)
from anubis.report.campaign_remarks import remarks_on

POLICY = Policy()
H, D, U, N = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN, Judgement.NOT_APPLICABLE


def executions(plan, rate, devices=2):
    """Every step measured; `rate(step, device)` is what each device gives."""
    rng = np.random.default_rng(0)
    fit = {node.name for node in plan.nodes}
    for phase in range(len(plan.phases)):
        for step in steps(plan, phase, fit):
            group = len(step.participants) > 1
            series = Readings.pack(
                Series(
                    metric="rate",
                    device=f"cuda:{i}",
                    samples=rate(step, i) * rng.normal(1, 0.002, 8),
                )
                for i in range(1 if group else devices)
            )
            yield measured(step, Result(series=series))


def measured(step, result):
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def ended(execution, how, reason="because", **changes):
    return replace(execution, ended=how, reason=reason, result=Result(), **changes)


def judged(plan, done, criteria=None, lost=None):
    settled = latest_executions(done)
    found = units(settled, plan)
    criteria = criteria or learn(plan, done)
    return assess(found, settled, plan, criteria, lost or {})


def learn(plan, done, policy=POLICY):
    found = units(latest_executions(done), plan)
    return learn_criteria(found, policy, suite="s", anubis="0", created_at="now")


def by_node(assessment):
    return {node.node: node.judgement for node in assessment.nodes}


def test_one_slow_gpu_makes_its_node_defective_and_is_named():
    plan = small_plan(8, [entry("compute")])
    slow = lambda step, i: 93.0 if step.participants == ("n3",) and i == 1 else 100.0  # noqa: E731
    assessment = judged(plan, list(executions(plan, slow)))
    assert by_node(assessment) == {f"n{i}": D if i == 3 else H for i in range(8)}
    worst = next(assessment.verdicts())
    assert (worst.participants, worst.device, worst.code) == (("n3",), "cuda:1", "COMPUTE.RATE")
    assert "7% slower than normal" in worst.reason
    assert "GB/s" in worst.reason


@pytest.mark.parametrize(("slow", "is_shared"), [(8, True), (5, True), (4, False)])
def test_a_defect_of_most_nodes_is_remarked_as_one_cause(slow, is_shared):
    plan = small_plan(8, [entry("compute")])
    criteria = learn(plan, list(executions(plan, lambda step, i: 100.0)))
    capped = {f"n{i}" for i in range(slow)}
    done = list(executions(plan, lambda step, i: 90.0 if step.participants[0] in capped else 100.0))
    view = SimpleNamespace(
        campaign=SimpleNamespace(policy=SimpleNamespace(stop_early=False), plan=plan),
        executions=done,
        assessment=judged(plan, done, criteria),
        is_by_itself=False,
    )
    remarks = [sentence.partition(":")[0] for sentence in remarks_on(view)]
    named = f"{slow} of 8 nodes of sku h100 have one defect (compute"
    assert remarks == [named] * is_shared


@pytest.mark.parametrize(
    ("slow", "says"),
    [
        ([2], "cuda:2 (1 of 4 GPUs)"),
        ([0, 2, 3], "3 of 4 GPUs (worst cuda:2)"),
        ([0, 1, 2, 3], "all 4 GPUs (worst cuda:2)"),
    ],
)
def test_the_reason_of_a_node_counts_its_slow_gpus_and_names_the_worst(slow, says):
    plan = small_plan(8, [entry("compute")])

    def rate(step, i):
        if step.participants != ("n3",) or i not in slow:
            return 100.0
        return 80.0 if i == 2 else 90.0

    node = judged(plan, list(executions(plan, rate, devices=4))).nodes[3]
    assert node.reason.startswith(f"compute: rate 20% slower than normal on {says}: ")
    assert node.cause == "compute: rate slower than normal"
    assert "more" not in node.reason


@pytest.mark.parametrize(
    ("slow", "says"),
    [
        ([2], "10% slower than its siblings on cuda:2 (1 of 8 GPUs): 93.6 instead of 104 GB/s"),
        (range(8), "slower than normal on all 8 GPUs (worst "),
    ],
)
def test_a_node_says_whether_a_gpu_lags_behind_its_siblings_or_all_do_behind_the_fleet(slow, says):
    """Nodes differ by 4 %, so that 6 % below the fleet's median is nothing by itself."""
    plan = small_plan(16, [entry("compute")])

    def rate(step, i):
        number = int(step.participants[0].removeprefix("n"))
        pace = 96.0 + 8.0 * number / 15
        return pace * (0.9 if len(slow) == 1 else 0.8) if number == 15 and i in slow else pace

    assessment = judged(plan, list(executions(plan, rate, devices=8)))
    assert by_node(assessment) == {f"n{i}": D if i == 15 else H for i in range(16)}
    assert says in assessment.nodes[15].reason


def exactly(plan, metric, value):
    """Every step measured once on each node, without noise."""
    for done in executions(plan, lambda *_: 1.0):
        samples = np.array([value(done.step.participants[0])])
        series = Series(metric=metric, device="node", samples=samples)
        yield replace(done, result=Result(series=Readings.pack([series])))


def test_missing_things_are_reported_as_so_many_of_so_many():
    plan = small_plan(8, [entry("count")])
    counted = exactly(plan, "gpus", lambda node: 7.0 if node == "n3" else 8.0)
    assert "count: 7 of 8 GPUs are there" in judged(plan, list(counted)).nodes[3].reason


@pytest.mark.parametrize(
    ("program", "metric", "usual", "less", "judgement", "code"),
    [
        ("probe", "rate", 100.0, 95.0, U, "TOO-COARSE"),
        ("count", "gpus", 8.0, 7.0, D, "COUNT.GPUS"),
    ],
)
def test_a_few_nodes_one_step_of_rounding_off_are_unknown_and_those_that_lack_a_gpu_defective(
    program, metric, usual, less, judgement, code
):
    plan = small_plan(24, [entry(program)])
    few = {"n1", "n7", "n20"}
    recorded = exactly(plan, metric, lambda node: less if node in few else usual)
    nodes = judged(plan, list(recorded)).nodes
    assert {node.node for node in nodes if node.judgement is judgement} == few
    assert {node.code for node in nodes} == {"OK", code}


@pytest.mark.parametrize(("times", "judgement"), [(19.0, H), (21.0, U), (1000.0, U)])
def test_a_node_that_is_many_times_as_good_as_the_others_is_not_called_good(times, judgement):
    """Its program did not do the work, or changed its unit."""
    plan = small_plan(8, [entry("probe")])
    recorded = exactly(plan, "rate", lambda node: 100.0 * (times if node == "n3" else 1.0))
    node = judged(plan, list(recorded)).nodes[3]
    assert node.judgement is judgement
    assert node.code == ("OK" if judgement is H else "TOO-GOOD")


def test_a_node_with_more_gpus_than_its_kind_is_another_kind_of_node():
    plan = small_plan(8, [entry("count")])
    recorded = exactly(plan, "gpus", lambda node: 9.0 if node == "n3" else 8.0)
    nodes = judged(plan, list(recorded)).nodes
    assert {node.node for node in nodes if node.judgement is U} == {"n3"}
    assert nodes[3].code == "TOO-GOOD"
    assert "9 GPUs are there, normally 8" in nodes[3].reason
    ports = exactly(plan, "ports_active", lambda node: 9.0 if node == "n3" else 8.0)
    assert {node.judgement for node in judged(plan, list(ports)).nodes} == {H}


def test_rounding_makes_no_count_a_higher_one():
    assert 1 / (1 / 49) > 49  # as a mean of rates is taken
    plan = small_plan(8, [entry("count")])
    nodes = judged(plan, list(exactly(plan, "gpus", lambda _: 49.0))).nodes
    assert {node.judgement for node in nodes} == {H}


def test_a_node_that_is_slow_at_times_is_reported_with_its_slow_samples():
    """Steps that scatter by 3 %: by its mean it is as well as the others."""
    plan = small_plan(24, [entry("probe")])
    rng = np.random.default_rng(3)

    def rate(step, i):
        steps = rng.normal(100.0, 3.0, 8)
        steps[:3] /= 2 if step.participants == ("n3",) and i == 1 else 1
        return steps

    assessment = judged(plan, list(executions(plan, rate)))
    assert by_node(assessment) == {f"n{i}": D if i == 3 else H for i in range(24)}
    reason = assessment.nodes[3].reason
    assert re.search(r"rate slow at times on cuda:1 .*: 3 of 8 samples at (4[89]|5[01])", reason)
    assert re.search(r"normally 0\.\d%", reason)


def test_a_metric_with_an_alpha_of_its_own_is_judged_by_it_and_no_other_is():
    """Four per cent slow in both: more than is tolerated in one of them."""
    plan = small_plan(8, [entry("compute"), entry("probe")])
    slow = lambda step, i: 96.0 if step.participants == ("n3",) else 100.0  # noqa: E731
    done = list(executions(plan, slow))
    policy = Policy(alphas=(MetricAlpha(benchmark="pro*", metric="rate", alpha=0.98),))
    assessment = judged(plan, done, learn(plan, done, policy))
    assert {v.benchmark for v in assessment.alone if v.judgement is D} == {"probe"}
    assert by_node(assessment) == {f"n{i}": D if i == 3 else H for i in range(8)}
    assert set(by_node(judged(plan, done)).values()) == {H}


def test_a_refused_criterion_calls_no_node_healthy_or_defective():
    plan = small_plan(8, [entry("compute")])
    rate = lambda step, i: 100.0 if int(step.participants[0][1:]) < 4 else 50.0  # noqa: E731
    assessment = judged(plan, list(executions(plan, rate)))
    assert set(by_node(assessment).values()) == {U}
    assert {v.code for v in assessment.verdicts()} == {"CRITERION-REFUSED"}
    assert (
        "no trusted criterion for rate: only 8 of 16 units are alike" in assessment.nodes[0].reason
    )
    assert assessment.nodes[0].cause in assessment.nodes[0].reason  # the same for all of a batch


def test_a_node_that_is_slow_in_every_pair_is_blamed_and_its_partners_are_not():
    plan = small_plan(4, [entry("pair")])
    rate = lambda step, i: 25.0 if "n2" in step.participants else 100.0  # noqa: E731
    assessment = judged(plan, list(executions(plan, rate)))
    assert by_node(assessment) == {"n0": H, "n1": H, "n2": D, "n3": H}
    blamed = [v for v in assessment.verdicts() if v.participants == ("n2",)]
    assert "slow with every partner (n0, n1, n3)" in blamed[0].reason
    pairs = [v for v in assessment.verdicts() if len(v.participants) == 2 and v.judgement is D]
    assert len(pairs) == 3


def test_a_bad_link_is_a_defective_pair_of_two_healthy_nodes():
    plan = small_plan(6, [entry("pair")])
    rate = lambda step, i: 25.0 if set(step.participants) == {"n1", "n4"} else 100.0  # noqa: E731
    assessment = judged(plan, list(executions(plan, rate)))
    assert set(by_node(assessment).values()) == {H}
    assert [v.participants for v in assessment.verdicts() if v.judgement is D] in (
        [("n1", "n4")],
        [("n4", "n1")],
    )


@pytest.mark.parametrize(
    ("first", "again", "judgement", "code"),
    [
        (92.0, 92.0, D, "PAIR.RATE"),
        (92.0, 100.0, H, "OK"),  # 8 % below normal with a limit of 5 %: by chance
        (60.0, 100.0, U, "UNSTABLE"),  # 40 % below normal is no chance
        (60.0, 60.0, D, "PAIR.RATE"),
    ],
)
def test_a_pair_is_judged_by_both_times_that_it_was_measured(first, again, judgement, code):
    plan = small_plan(6, [entry("pair")])
    suspect = {"n1", "n4"}
    rate = lambda step, i: first if set(step.participants) == suspect else 100.0  # noqa: E731
    done = list(executions(plan, rate))
    (pair,) = (e.step.participants for e in done if set(e.step.participants) == suspect)
    (step,) = follow_ups(plan, 0, 0, 1, [pair])
    samples = again * np.random.default_rng(1).normal(1, 0.002, 8)
    series = Readings.pack([Series(metric="rate", device="cuda:0", samples=samples)])
    assessment = judged(plan, [measured(step, Result(series=series)), *done], learn(plan, done))
    (verdict,) = (v for v in assessment.verdicts() if set(v.participants) == suspect)
    assert (verdict.judgement, verdict.code) == (judgement, code)
    if code == "UNSTABLE":
        assert "good when it was measured again" in verdict.reason


def test_a_slow_group_of_all_nodes_blames_none():
    plan = small_plan(4, [entry("collective", repeats=4)])
    good = learn(plan, list(executions(plan, lambda step, i: 100.0)))
    assessment = judged(plan, list(executions(plan, lambda step, i: 50.0)), good)
    assert set(by_node(assessment).values()) == {U}
    assert {node.code for node in assessment.nodes} == {"CANNOT-TELL-APART"}
    assert next(assessment.verdicts()).judgement is D


def test_a_missing_measurement_is_unknown_and_an_inapplicable_one_is_not_applicable():
    plan = small_plan(8, [entry("compute"), entry("probe")])
    done = list(executions(plan, lambda step, i: 100.0))
    where = {(e.step.participants[0], e.step.workload.benchmark): i for i, e in enumerate(done)}

    def change(node, benchmark, how, **changes):
        i = where[node, benchmark]
        done[i] = ended(done[i], how, **changes)

    change("n0", "compute", Ended.NOT_RUN, reason="no port was free")
    change("n1", "compute", Ended.NOT_RUN)
    change("n2", "compute", Ended.LOST, lost=("n2",))
    change("n2", "probe", Ended.SKIPPED, lost=("n2",))
    change("n3", "compute", Ended.NOT_APPLICABLE)
    assessment = judged(plan, done)
    assert by_node(assessment) == {f"n{i}": U if i < 3 else H for i in range(8)}
    codes = [node.code for node in assessment.nodes]
    assert codes == ["NOT-MEASURED", "NOT-MEASURED", "NODE-LOST"] + ["OK"] * 5
    assert sum(v.judgement is N for v in assessment.verdicts()) == 1
    assert sum(v.code == "NODE-LOST" for v in assessment.verdicts()) == 1


@pytest.mark.parametrize(("benchmark", "reason"), [("compute", "compute: "), ("pair", "")])
def test_samples_that_were_ordered_and_not_delivered_leave_a_node_unknown(benchmark, reason):
    plan = small_plan(8, [entry(benchmark)])
    done = list(executions(plan, lambda step, i: 100.0))
    criteria = learn(plan, done)
    short = {"cut_short": [["rate", "cuda:0", 100]]}
    done = [
        replace(run, result=replace(run.result, environment=short))
        if "n2" in run.step.participants
        else run
        for run in done
    ]
    assessment = judged(plan, done, criteria)
    assert by_node(assessment) == {f"n{i}": U if i == 2 else H for i in range(8)}
    (node,) = (node for node in assessment.nodes if node.node == "n2")
    assert node.owes == (benchmark,)
    measured = f"{reason}measured 8 of 100 samples of rate on cuda:0"
    assert measured in {v.reason for v in assessment.verdicts()} | {node.reason}


def failing(plan, how, failures):
    """All is measured but for these: by node, how its runs ended, the last one in a later turn."""
    done = list(executions(plan, lambda step, i: 100.0))
    for node, count in failures.items():
        own = [i for i, execution in enumerate(done) if execution.step.participants == (node,)]
        (tried_again,) = follow_ups(plan, 0, 0, 1, [(node,)])
        again = replace(done[own[0]], step=tried_again)
        done.append(ended(again, how, reason="SIGSEGV") if count > 1 else again)
        done[own[0]] = ended(done[own[0]], how, reason="SIGSEGV")
    return done


@pytest.mark.parametrize(("how", "code"), [(Ended.FAILED, "CRASH"), (Ended.TIMED_OUT, "HANG")])
def test_a_program_that_fails_twice_on_a_node_and_runs_on_its_peers_is_a_defect(how, code):
    plan = small_plan(8, [entry("compute")])
    assessment = judged(plan, failing(plan, how, {"n2": 2, "n5": 2}))
    assert by_node(assessment) == {f"n{i}": D if i in (2, 5) else H for i in range(8)}
    (node,) = (node for node in assessment.nodes if node.node == "n2")
    assert node.code == f"COMPUTE.{code}"
    assert node.reason == "compute: failed 2 times here, but it runs on 6 of 8 nodes: SIGSEGV"
    assert node.cause == {"CRASH": "compute crashes", "HANG": "compute hangs"}[code]


def test_a_gpu_that_failed_hides_no_other_gpu_of_its_node():
    plan = small_plan(8, [entry("compute")])
    done = failing(plan, Ended.FAILED, {"n2": 2})
    own = [i for i, run in enumerate(done) if run.step.participants == ("n2",)]
    for i in own:
        beside = Series(metric="rate", device="cuda:0", samples=np.full(16, 50.0))
        done[i] = replace(done[i], result=Result(series=Readings.pack([beside])))
    verdicts = [v for v in judged(plan, done).verdicts() if v.participants == ("n2",)]
    assert {(v.code, v.device) for v in verdicts if v.judgement is D} == {
        ("COMPUTE.CRASH", ""),
        ("COMPUTE.RATE", "cuda:0"),
    }


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_a_number_that_is_no_measurement_leaves_its_node_unknown_and_changes_nothing_else(number):
    plan = small_plan(8, [entry("compute"), entry("train")])
    done = list(executions(plan, lambda step, i: 100.0))

    def told(run):
        if (run.step.workload.benchmark, run.step.participants) != ("compute", ("n3",)):
            return run
        first, second = run.result.series
        odd = replace(second, samples=np.append(second.samples[1:], number))
        return replace(run, result=Result(series=Readings.pack([first, odd])))

    sound = judged(plan, done)
    found = judged(plan, [told(run) for run in done])
    assert by_node(found) == by_node(sound) | {"n3": U}
    (verdict,) = [verdict for verdict in found.alone if verdict.judgement is U]
    assert (verdict.participants, verdict.code, verdict.device) == (
        ("n3",),
        "NOT-MEASURED",
        "cuda:1",
    )
    assert f'as "{number:g}": expected a positive finite number' in verdict.reason


def test_a_program_that_ran_when_it_was_tried_again_leaves_the_node_unknown():
    plan = small_plan(8, [entry("compute")])
    assessment = judged(plan, failing(plan, Ended.FAILED, {"n2": 1}))
    assert by_node(assessment) == {f"n{i}": U if i == 2 else H for i in range(8)}
    assert [node.code for node in assessment.nodes if node.node == "n2"] == ["UNSTABLE"]


@pytest.mark.parametrize(
    ("how", "code"), [(Ended.FAILED, "NOT-MEASURED"), (Ended.TIMED_OUT, "TIMED-OUT")]
)
@pytest.mark.parametrize("count", [3, 6])
def test_a_program_that_fails_on_half_of_the_nodes_or_more_blames_none(how, code, count):
    plan = small_plan(6, [entry("compute")])
    done = failing(plan, how, {f"n{i}": 2 for i in range(count)})
    assessment = judged(plan, done)
    assert list(by_node(assessment).values()) == [U] * count + [H] * (6 - count)
    assert {node.code for node in assessment.nodes[:count]} == {code}


def test_a_program_that_could_not_run_blames_no_node_at_any_number_of_tries():
    plan = small_plan(8, [entry("compute")])
    assessment = judged(plan, failing(plan, Ended.NOT_RUN, {"n2": 2}))
    assert by_node(assessment) == {f"n{i}": U if i == 2 else H for i in range(8)}
    assert [node.code for node in assessment.nodes if node.node == "n2"] == ["NOT-MEASURED"]


def test_a_node_of_another_kind_is_no_peer():
    plan = small_plan(8, [entry("compute")])
    other = tuple(replace(node, sku="other") if node.name == "n2" else node for node in plan.nodes)
    plan = replace(plan, nodes=other)
    assessment = judged(plan, failing(plan, Ended.FAILED, {"n2": 2}))
    assert by_node(assessment)["n2"] is U


def test_a_second_failure_among_repeats_counts_as_the_second_try():
    plan = small_plan(8, [entry("compute", repeats=3)])
    done = list(executions(plan, lambda step, i: 100.0))
    own = [i for i, execution in enumerate(done) if execution.step.participants == ("n2",)]
    for failures, judgement in ((1, U), (2, D)):
        done[own[failures]] = ended(done[own[failures]], Ended.FAILED)
        assert by_node(judged(plan, done))["n2"] is judgement


def test_a_node_of_which_nothing_is_known_is_never_healthy():
    plan = small_plan(3, [entry("compute")])
    assessment = judged(plan, [])
    assert set(by_node(assessment).values()) == {U}
    only_absent = [ended(e, Ended.NOT_APPLICABLE) for e in executions(plan, lambda s, i: 1.0)]
    assert set(by_node(judged(plan, only_absent)).values()) == {N}


def without(run, keeps):
    kept = [part for part in run.result.series if keeps(part.device)]
    return replace(run, result=Result(series=Readings.pack(kept)))


@pytest.mark.parametrize("others", [7, 0])
@pytest.mark.parametrize("runs", [{0, 1, 2}, {2}])
def test_a_run_that_lacks_a_device_of_most_nodes_proves_nothing_beside_them_or_alone(others, runs):
    plan = small_plan(8, [entry("compute", repeats=3)])
    done = list(executions(plan, lambda step, i: 100.0, devices=4))
    known = learn(plan, done)
    asked = {"n0", *(f"n{i}" for i in range(1, 1 + others))}
    short = [
        without(run, lambda device: device != "cuda:3")
        if run.step.participants == ("n0",) and run.step.repeat in runs
        else run
        for run in done
        if run.step.participants[0] in asked
    ]
    plan = replace(plan, nodes=tuple(node for node in plan.nodes if node.name in asked))
    (node,) = [n for n in judged(plan, short, known).nodes if n.judgement is not H]
    where = "cuda:3" if others or len(runs) < 3 else "1 of 4 cuda"
    assert (node.node, node.judgement, node.owes) == ("n0", U, ("compute",))
    assert f"1 value that most nodes have is missing: rate on {where}" in node.reason


def test_a_defect_outweighs_an_unknown():
    plan = small_plan(6, [entry("compute"), entry("probe")])
    slow = lambda step, i: 50.0 if step.participants == ("n0",) else 100.0  # noqa: E731
    done = list(executions(plan, slow))
    done = [
        ended(e, Ended.FAILED)
        if e.step.participants == ("n0",) and e.step.workload.benchmark == "probe"
        else e
        for e in done
    ]
    assert by_node(judged(plan, done))["n0"] is D


def test_criteria_of_another_workload_or_sku_judge_nothing_and_state_the_difference():
    plan = small_plan(4, [entry("compute")])
    done = list(executions(plan, lambda step, i: 100.0))
    (learned,) = learn(plan, done)
    key = learned.criteria[0].key
    for other, words in (
        (replace(key, workload=replace(key.workload, version="2")), 'version "2", this is "1"'),
        (replace(key, sku="a100"), 'sku "a100", this is "h100"'),
        (replace(key, workload=replace(key.workload, parameters="{}")), "parameters"),
        (replace(key, device_kind="cpu"), 'device "cpu", this is "cuda"'),
        (replace(key, metric="rate:fp8"), 'metric "rate:fp8", this is "rate"'),
        (replace(key, workload=replace(key.workload, benchmark="x")), "do not cover compute"),
    ):
        foreign = replace(learned, criteria=(replace(learned.criteria[0], key=other),))
        assessment = judged(plan, done, (foreign,))
        assert set(by_node(assessment).values()) == {U}
        assert {v.code for v in assessment.verdicts()} == {"NO-CRITERION"}
        assert words in next(assessment.verdicts()).reason


@pytest.mark.parametrize(
    ("taught", "words"),
    [
        ({"unit": "Gbit/s"}, "the criteria are in Gbit/s (higher is better), this is in GB/s"),
        ({"direction": "lower"}, "(lower is better), this is in "),
    ],
)
def test_criteria_in_another_unit_judge_nothing(taught, words):
    """Half the speed in Gbit/s is four times as good as normal in GB/s."""
    plan = small_plan(8, [entry("compute")])
    (learned,) = learn(plan, list(executions(plan, lambda step, i: 100.0)))
    done = list(executions(plan, lambda step, i: 400.0 if step.participants == ("n3",) else 800.0))
    foreign = replace(learned, criteria=(replace(learned.criteria[0], **taught),))
    assessment = judged(plan, done, (foreign,))
    assert set(by_node(assessment).values()) == {U}
    assert words in next(assessment.verdicts()).reason


def test_two_kinds_of_node_are_learned_apart():
    plan = small_plan(8, [entry("compute")])
    nodes = tuple(replace(n, sku="h200" if i > 3 else "h100") for i, n in enumerate(plan.nodes))
    plan = replace(plan, nodes=nodes)
    faster = {node.name for node in nodes if node.sku == "h200"}
    rate = lambda step, i: 150.0 if step.participants[0] in faster else 100.0  # noqa: E731
    done = list(executions(plan, rate))
    assert [each.sku for each in learn(plan, done)] == ["h100", "h200"]
    assert set(by_node(judged(plan, done)).values()) == {H}


def test_a_single_machine_learns_from_its_repeats():
    plan = small_plan(1, [entry("probe", repeats=4)])
    done = list(executions(plan, lambda step, i: 100.0))
    (learned,) = learn(plan, done)
    assert learned.criteria[0].units == 8  # four repeats of two devices
    assert learned.criteria[0].nodes == 1
    assert by_node(judged(plan, done)) == {"n0": H}


def test_a_single_machine_whose_repeats_disagree_is_unstable_and_not_defective():
    plan = small_plan(1, [entry("probe", repeats=5)])
    slow = lambda step, i: 50.0 if step.repeat == 2 else 100.0  # noqa: E731
    done = list(executions(plan, slow))
    criteria = learn(plan, done)
    assert not criteria[0].criteria[0].refusal
    settled = latest_executions(done)
    found = units(settled, plan)
    (alone,) = assess(found, settled, plan, criteria, {}, taught_here=plan.workloads).nodes
    assert (alone.judgement, alone.code) == (U, "UNSTABLE")
    (later,) = assess(found, settled, plan, criteria, {}).nodes  # judged by what it was before
    assert later.judgement is D


def test_a_step_that_was_lost_and_measured_later_counts_as_measured():
    plan = small_plan(4, [entry("compute")])
    done = list(executions(plan, lambda step, i: 100.0))
    before = [ended(done[0], Ended.LOST, lost=("n0",))]
    again = replace(done[0], attempt=2)
    assert set(by_node(judged(plan, [*before, *done[1:], again])).values()) == {H}


def test_criteria_do_not_depend_on_the_order_in_which_results_arrived():
    plan = small_plan(6, [entry("compute", repeats=2)])
    done = list(executions(plan, lambda step, i: 100.0))
    (one,), (other,) = learn(plan, done), learn(plan, done[::-1])
    assert one.provenance.digest == other.provenance.digest
    assert criteria_files.dump(one) == criteria_files.dump(other)


# --- what the whole came to ----------------------------------------------------------------


def pairs_plan(nodes):
    return small_plan(nodes, [entry("pair", groups="pairs")])


def faults(assessment):
    return [(part.parts, part.nodes, part.judgement) for part in assessment.parts]


def test_a_bad_pair_of_good_nodes_is_one_faulty_path_and_the_whole_is_defective():
    plan = pairs_plan(6)
    slow = {"n1", "n4"}
    done = list(executions(plan, lambda step, i: 50 if set(step.participants) == slow else 100))
    assessment = judged(plan, done)
    assert set(by_node(assessment).values()) == {H}
    assert faults(assessment) == [((), ("n1", "n4"), D)]
    assert assessment.parts_named(D) == ("path between n1 and n4",)
    assert assessment.judgement is D


@pytest.mark.parametrize(
    ("how", "code"), [(Ended.FAILED, "NOT-MEASURED"), (Ended.TIMED_OUT, "TIMED-OUT")]
)
def test_a_pair_of_good_nodes_without_an_answer_leaves_its_path_and_the_whole_unknown(how, code):
    plan = pairs_plan(6)
    done = [
        ended(run, how) if set(run.step.participants) == {"n1", "n4"} else run
        for run in executions(plan, lambda step, i: 100)
    ]
    assessment = judged(plan, done)
    assert set(by_node(assessment).values()) == {H}
    assert faults(assessment) == [((), ("n1", "n4"), U)]
    assert assessment.parts[0].code == code
    assert assessment.judgement is U


def test_pairs_of_a_node_that_is_to_blame_are_no_parts_of_their_own():
    plan = pairs_plan(6)
    done = list(executions(plan, lambda step, i: 50 if "n2" in step.participants else 100))
    assessment = judged(plan, done)
    assert by_node(assessment)["n2"] is D
    assert assessment.parts == ()
    assert assessment.judgement is D


def test_the_whole_is_healthy_only_if_every_node_and_every_part_is():
    nodes = {j: NodeVerdict(node=j.value, judgement=j, code="", reason="") for j in (H, U, N, D)}
    part = PartVerdict(parts=(Part("switch", "s"),), subject="s", judgement=U, code="", reason="")

    def whole(*judgements, parts=()):
        return Assessment(
            alone=(), nodes=tuple(nodes[j] for j in judgements), parts=parts
        ).judgement

    assert whole(H, H) is H
    assert whole() is U
    assert whole(H, U) is whole(H, N) is whole(N) is whole(H, parts=(part,)) is U
    assert whole(H, U, D) is whole(H, parts=(replace(part, judgement=D),)) is D


def test_a_group_that_is_slow_because_of_a_faulty_pair_in_it_is_not_named_beside_the_pair():
    names = ("n1", "n2", "n3", "n4")
    nodes = [NodeVerdict(node=name, judgement=H, code="OK", reason="") for name in names]

    def slow(*participants):
        return Verdict(
            participants=participants, benchmark="b", judgement=D, code="B", reason="slow"
        )

    pair, whole, elsewhere = slow("n3", "n1"), slow(*names), slow("n2", "n4", "n5")
    parts = faulty_paths([whole, pair, elsewhere], nodes)
    assert [part.nodes for part in parts] == [("n1", "n3"), ("n2", "n4", "n5")]


def test_a_path_names_each_benchmark_in_which_its_nodes_did_badly_once_the_worst_first():
    pair = Verdict(participants=("n2", "n1"), benchmark="", judgement=D, code="B", reason="slow")
    shortcomings = [
        replace(pair, benchmark=benchmark, similarity=similarity)
        for benchmark, similarity in (("a", 0.8), ("b", 0.5), ("a", 0.6))
    ]
    (path,) = faulty_paths(shortcomings, [])
    assert path.benchmarks == ("b", "a")
