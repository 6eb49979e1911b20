"""SuperBench's files in and out: its names kept, its traps named, its rules never executed."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anubis.core.campaign import planning
from anubis.core.errors import UsageError
from anubis.core.records import (
    Assessment,
    BenchmarkSpec,
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    Node,
    ParameterSpec,
    Policy,
    Readings,
    Result,
    Series,
    Step,
    Suite,
    SuiteEntry,
)
from anubis.operations.validator import judge
from anubis.readers.superbench.adoption import adopt
from anubis.readers.superbench.results import (
    NodeResults,
    describe_value,
    direction,
    parse_results,
    place,
)
from anubis.readers.superbench.rules import apply_rules, parse_rules
from anubis.readers.superbench.summary import alias, summarize
from tests.edges.desk import assert_refused

SLOWER = 1.25  # 20 % less of what should be more


@pytest.fixture
def published(real: Any) -> Callable[[str], Path]:
    return lambda name: Path(real(f"superbench/{name}"))


def results_like_superbenchs() -> str:
    """Its three nodes: the launches of the first are slow once, the copies of the third failed."""

    def row(number: int) -> dict[str, object]:
        launches = {
            f"kernel-launch/{name}_overhead:{rank}": value * (1 + (rank + number) % 3 / 1000)
            for name, value in (("event", 0.00596), ("wall", 0.01026))
            for rank in range(8)
        }
        copies = {
            f"mem-bw/{name}_Mem_BW:{rank}": value * (1 + (rank + number) % 3 / 1000)
            for name, value in (("H2D", 25.6), ("D2H", 24.3))
            for rank in range(8)
        }
        return {
            "node": f"sb-validation-0{number}",
            "kernel-launch/return_code": 0,
            "mem-bw/return_code": int(number == 3),
            **launches,
            **({"kernel-launch/event_overhead:0": 0.1} if number == 1 else {}),
            **(copies if number < 3 else {}),
        }

    return lines(row(1), row(2), row(3))


@pytest.fixture(params=["made", "real"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "real":
        return request.getfixturevalue("published")("test_results.jsonl")
    file = tmp_path / "results.jsonl"
    file.write_text(results_like_superbenchs())
    return file


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def lines(*rows: Mapping[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def fleet(**changes: Mapping[str, object]) -> str:
    """Five alike nodes, and what one of them has otherwise."""
    rows = []
    for i in range(1, 6):
        row = {
            "node": f"n{i}",
            "mem-bw/return_code": 0,
            "mem-bw/h2d_bw:0": 25.0 + i / 100,
            "mem-bw/h2d_bw:1": 25.2 + i / 100,
            "kernel-launch/event_time:0": 0.005 + i / 1e6,
        }
        rows.append(row | changes.get(f"n{i}", {}))
    return lines(*rows)


def imported(desk, text: str, name: str = "results-summary.jsonl") -> str:
    done = desk.run("history", "import", "superbench", str(desk.write(name, text)), "--sku", "a100")
    assert done.code == 0, done.err
    return done.out.strip()


def assessed(text: str) -> Assessment:
    """An assessment by the criteria that the results teach themselves, as an import is judged."""
    plan, executions = adopt(parse_results(text, "it"), "a100")
    campaign = Campaign(
        id="c", kind=CampaignKind.IMPORT, plan=plan, policy=Policy(), executor="", created_at=0.0
    )
    return judge(campaign, executions, {}, 0.0)[0]


def learned(desk, campaign: str) -> str:
    done = desk.run("criteria", "learn", "--campaign", campaign, "--out", "criteria")
    assert done.code == 0, done.err
    return "criteria"


def judged(desk, campaign: str, criteria: str):
    return desk.run("criteria", "judge", "--campaign", campaign, "--criteria", criteria, "--json")


# --- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "benchmark", "metric", "device"),
    [
        ("mem-bw/h2d_bw:3", "mem-bw", "h2d_bw", "rank:3"),
        ("mem-bw/h2d_bw", "mem-bw", "h2d_bw", "node"),
        ("nccl-bw:nvlink/allreduce_8_time:0", "nccl-bw:nvlink", "allreduce_8_time", "rank:0"),
        ("bert_models/pytorch-bert-base/fp16_x", "bert_models/pytorch-bert-base", "fp16_x", "node"),
        ("ib-traffic/ib_write_bw_8_0_1:a_b", "ib-traffic", "ib_write_bw_8_0_1:a_b", "node"),
        ("gpu-sm-copy-bw/dtoh:31", "gpu-sm-copy-bw", "dtoh", "rank31"),
    ],
)
def test_a_name_is_benchmark_metric_and_rank(name, benchmark, metric, device):
    found = place(name)
    assert found is not None
    assert (found.benchmark, found.metric, found.device) == (benchmark, metric, device)


@pytest.mark.parametrize("name", ["time", "/time", "bench/", ":0", ""])
def test_a_name_without_a_benchmark_or_a_metric_has_no_place(name):
    assert place(name) is None


# each as SuperBench's documentation describes the metric
DIRECTIONS = {
    "kernel-launch/event_time": "lower",
    "kernel-launch/wall_overhead": "lower",
    "gemm-flops/fp16_tc_flops": "higher",
    "gemm-flops/int8_tc_iops": "higher",
    "gemm-flops/FP64_TC": "higher",
    "cpu-memory-bw-latency/mem_bandwidth_matrix_numa_0_1_lat": "lower",
    "cpu-memory-bw-latency/mem_bandwidth_matrix_numa_0_1_bw": "higher",
    "nccl-bw/allreduce_8_time": "lower",
    "nccl-bw/allreduce_8_busbw": "higher",
    "ib-loopback/ib_write_bw_8388608": "higher",
    "ib-loopback/IB_write_8388608_Avg_0": "higher",
    "disk-benchmark/nvme0n1_rand_read_read_lat_ns_99.9": "lower",
    "disk-benchmark/nvme0n1_rand_read_read_iops": "higher",
    "ort-inference/fp16_resnet50_time_95": "lower",
    "model-benchmarks:gpt/pytorch-gpt2-large/fp16_inference_throughput_50": "higher",
    "model-benchmarks:gpt/pytorch-gpt2-large/fp16_train_step_time": "lower",
    "bert_models/pytorch-bert-base/steptime_train_float32": "lower",
    "pytorch-dist-inference/step_times_99": "lower",
    "pytorch-matmul/nosharding": "lower",
    "disk-benchmark/nvme0n1_rand_read_bs": None,
    "monitor/gpu_temperature": None,
    "monitor/ib0_receive_bw": None,
    "gpu-burn/gpu_0_pass": None,
    "tcp-connectivity/host_failed_count": None,
    "model-benchmarks:gpt/pytorch-gpt2-large/deterministic_config_num_steps": None,
    "mem-bw/flat_latent_bwx": None,
}


@pytest.mark.parametrize(("name", "better"), DIRECTIONS.items(), ids=DIRECTIONS.keys())
def test_a_direction_comes_from_the_declared_table_or_not_at_all(name, better):
    assert direction(name) == better


# --- in ------------------------------------------------------------------------------------


def test_every_number_above_0_is_kept_under_its_name(results):
    rows = parse_results(results.read_text(), "it")
    _, executions = adopt(rows, "a100")
    found = Counter(
        execution.step.participants[0] for execution in executions for _ in execution.result.series
    )
    for row in rows:
        usable = [
            name
            for name, value in row.values.items()
            if value > 0 and not name.endswith("return_code")
        ]
        assert found[row.node] == len(usable)


def test_criteria_of_a_file_find_the_node_that_was_made_20_percent_worse(near, results):
    rows = rows_of(results)
    criteria = learned(near, imported(near, lines(*rows)))
    worse = {"time", "steptime", "overhead", "cost", "nosharding", "sharding"}
    slow = {
        name: value * SLOWER if worse & set(_words(name)) else value / SLOWER
        for name, value in rows[1].items()
        if isinstance(value, float)
    }
    campaign = imported(near, lines(rows[0], rows[1] | slow, rows[2]), "slow.jsonl")
    done = judged(near, campaign, criteria)
    assert done.code == 1
    assert set(done.summary["defective"]) == {"sb-validation-01", "sb-validation-02"}
    bad = Counter(v["node"] for v in done.verdicts if v["verdict"] == "defective")
    positive = sum(value > 0 for name, value in slow.items())
    assert bad == {"sb-validation-01": 1, "sb-validation-02": positive}
    h2d = [v for v in done.verdicts if v["metric"] == "H2D_Mem_BW" and v["device"] == "rank:3"]
    assert {v["node"]: v["verdict"] for v in h2d} == {
        "sb-validation-01": "healthy",
        "sb-validation-02": "defective",
    }


def _words(name: str) -> list[str]:
    return name.replace("/", "_").replace("-", "_").replace(":", "_").split("_")


def test_the_results_of_superbench_have_its_one_slow_launch_and_its_one_failure(near, results):
    done = near.run("report", "--campaign", imported(near, results.read_text()), "--json")
    assert done.code == 1
    assert done.summary["defective"] == ["sb-validation-01"]
    assert done.summary["healthy"] == ["sb-validation-02"]
    assert done.summary["unknown"] == ["sb-validation-03"]
    first = done.verdicts[0]
    assert (first["metric"], first["device"]) == ("event_overhead", "rank:0")
    (unknown,) = [v for v in done.verdicts if v["verdict"] == "unknown"]
    assert unknown["reason"] == "its return_code is 1"
    assert unknown["benchmark"] == "mem-bw"


@pytest.mark.parametrize(
    ("code", "said"),
    [(33, "33"), (-1, "-1"), (None, "null"), ("x", 'the text "x"'), (False, "false")],
)
def test_a_failed_benchmark_is_unknown_despite_numbers_beside_it(code, said):
    _, executions = adopt(parse_results(fleet(n2={"mem-bw/return_code": code}), "it"), "a100")
    (failed,) = [e for e in executions if e.ended is Ended.FAILED]
    assert failed.step.participants == ("n2",)
    assert failed.step.workload.benchmark == "mem-bw"
    assert failed.reason == f"its return_code is {said}"
    of_it = [e for e in executions if e.step.participants == ("n2",) and "mem" in e.step.id]
    assert of_it == [failed]
    assert not failed.result.series


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "h2d_bw:1 is 0"),
        (-3.5, "h2d_bw:1 is -3.5"),
        (float("nan"), "h2d_bw:1 is nan"),
        (float("inf"), "h2d_bw:1 is inf"),
        (None, "h2d_bw:1 is null"),
        (True, "h2d_bw:1 is true"),
        ("N/A", 'h2d_bw:1 is the text "N/A"'),
        ("25.2", 'h2d_bw:1 is the text "25.2"'),
        ([25.2], "h2d_bw:1 is a list"),
        (10**400, "h2d_bw:1 is 1000"),
    ],
    ids=str,
)
def test_a_value_not_above_0_makes_the_node_unknown_and_not_healthy(value, said):
    found = assessed(fleet(n3={"mem-bw/h2d_bw:1": value}))
    assert found.named(Judgement.UNKNOWN) == ("n3",)
    assert found.named(Judgement.HEALTHY) == ("n1", "n2", "n4", "n5")
    (unknown,) = [v for v in found.verdicts() if v.judgement is Judgement.UNKNOWN]
    assert unknown.reason.startswith(f"1 value that most nodes have: {said}")


def test_a_node_that_lacks_metrics_or_all_of_them_is_unknown():
    rows = [json.loads(line) for line in fleet().splitlines()]
    del rows[1]["mem-bw/h2d_bw:1"]
    rows[3] = {"node": "n4"}
    found = assessed(lines(*rows))
    assert found.named(Judgement.UNKNOWN) == ("n2", "n4")
    reasons = {
        (v.participants[0], v.benchmark): v.reason
        for v in found.verdicts()
        if v.judgement is Judgement.UNKNOWN
    }
    assert reasons == {
        ("n2", "mem-bw"): "1 value that most nodes have: h2d_bw:1 is missing",
        ("n4", "mem-bw"): (
            "2 values that most nodes have: h2d_bw:0 is missing, h2d_bw:1 is missing"
        ),
        ("n4", "kernel-launch"): "1 value that most nodes have: event_time:0 is missing",
    }


def test_a_metric_that_few_nodes_have_is_required_of_no_other():
    """Results of several nodes together are on the line of the first."""
    text = fleet(n1={"nccl-bw/allreduce_8_time": 30.0})
    _, executions = adopt(parse_results(text, "it"), "a100")
    assert all(execution.ended is Ended.MEASURED for execution in executions)


def test_metrics_that_cannot_be_judged_are_named_and_left_out():
    text = fleet(
        n1={
            "monitor/gpu_temperature:0": 60,
            "uptime": 7,
            "nccl-bw/allreduce_0_1:8_time": 3.0,
            "nccl-bw/allreduce_0_1:8_busbw": 3.0,
            "nccl-bw/all_busbw": 0.0,
        }
    )
    plan, executions = adopt(parse_results(text, "it"), "a100")
    assert plan.left_out == (
        "1 metric whose name has no benchmark: uptime",
        "1 metric without a known direction (higher or lower is better): monitor/gpu_temperature",
        "1 metric of one name before the colon, but with two directions: nccl-bw/allreduce_0_1",
        "1 metric without a number above 0 on any node: nccl-bw/all_busbw",
    )
    assert {spec.name for spec in plan.specs} == {"mem-bw", "kernel-launch"}
    assert all(execution.ended is Ended.MEASURED for execution in executions)


def test_a_benchmark_that_failed_everywhere_is_not_forgotten():
    failed = {f"n{i}": {"gpu-burn/return_code:0": 1} for i in range(1, 6)}
    plan, executions = adopt(parse_results(fleet(**failed), "it"), "a100")
    assert "gpu-burn" in {spec.name for spec in plan.specs}
    assert sum(execution.ended is Ended.FAILED for execution in executions) == 5


BAD_FILES = {
    "nothing": ("", "no results in it"),
    "a broken line": (
        '{"node": "a", "mem-bw/x_bw": 1}\n{"node": "b", "mem',
        "line 2: not a complete JSON object (Unterminated string starting at at character 15)",
    ),
    "a list": ('[{"node": "a"}]', "line 1: expected a JSON object, found a list"),
    "no name": ('\n{"mem-bw/x_bw": 1}', 'line 2: "node" must be the name of a node, it is missing'),
    "a number for a name": ('{"node": 7}', '"node" must be the name of a node, found 7'),
    "an empty name": ('{"node": " "}', '"node" must be the name of a node, found the text ""'),
    "a node twice": (
        '{"node": "a", "b/x_bw": 1}\n{"node": "c", "b/x_bw": 1}\n{"node": "a", "b/x_bw": 1}',
        'line 3: node "a" is already on line 1',
    ),
    "a metric twice": (
        '{"node": "a", "b/x_bw": 1, "b/x_bw": 2}',
        'line 1: "b/x_bw" is written twice',
    ),
    "a baseline": ('{\n  "b/x_bw": 1\n}', "read by anubis history import superbench-baseline"),
    "nothing to judge": (
        '{"node": "a", "monitor/gpu_temperature": 60}',
        "no metric that can be judged: 1 metric without a known direction",
    ),
    "no metric": ('{"node": "a"}', "no metric that can be judged: there is none"),
    "too deep": ('{"node": "a", "b/x_bw": ' + "[" * 100_000, "line 1: "),
}


@pytest.mark.parametrize(("text", "sentence"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_results_that_cannot_be_read_are_refused_in_one_line(near, text, sentence):
    file = near.write("results.jsonl", text)
    assert_refused(
        near.run("history", "import", "superbench", str(file), "--sku", "a100"), sentence
    )
    assert not near.home.exists()


def test_results_in_another_encoding_are_refused_and_a_byte_order_mark_is_not(near):
    file = near.folder / "results.jsonl"
    ask = ("history", "import", "superbench", str(file), "--sku", "a100")
    for encoding in ("utf-16", "latin-1"):
        file.write_bytes(fleet(n1={"node": "knötchen"}).replace("\\u00f6", "ö").encode(encoding))
        assert_refused(near.run(*ask), "results.jsonl", "not UTF-8 text")
    file.write_bytes(fleet().encode("utf-8-sig"))
    assert near.run(*ask).code == 0


def test_orders_that_cannot_be_are_refused(near):
    file = str(near.write("results.jsonl", fleet()))
    absent = near.run("history", "import", "superbench", "absent.jsonl", "--sku", "a100")
    assert_refused(absent, 'cannot read "absent.jsonl": No such file or directory')
    assert_refused(near.run("history", "import", "superbench", file), "'--sku'")
    assert_refused(
        near.run("history", "import", "superbench", file, "--sku", " "), "--sku is empty"
    )
    alone = near.run("history", "import", "superbench", file, "--sku", "a", "--baseline", file)
    assert_refused(alone, "--baseline is what --rules compare with")


# --- out -----------------------------------------------------------------------------------


def written(desk, campaign: str) -> str:
    done = desk.run("report", "--campaign", campaign, "--superbench", "out.jsonl")
    assert "summary for SuperBench: out.jsonl" in done.err
    return (desk.folder / "out.jsonl").read_text()


def test_imported_results_are_exported_unchanged_and_read_back_equal(near, results):
    original = rows_of(results)
    text = written(near, imported(near, lines(*original)))
    again = [json.loads(line) for line in text.splitlines()]
    assert [row["node"] for row in again] == [row["node"] for row in original]
    for row, back in zip(original, again, strict=True):
        kept = {name: value for name, value in row.items() if name == "node" or value > 0}
        assert kept.items() <= back.items()
        assert all(name.endswith("return_code") for name in back.keys() - kept.keys())
    assert written(near, imported(near, text, "back.jsonl")) == text


def test_an_acceptance_of_our_own_is_written_as_medians(near):
    near.pace.write_text("100, 101, 99, 107\n")
    done = near.ask("accept", "--suite", near.suite(near.flow()), "--json")
    campaign = done.summary["campaign"]
    assert done.code == 0
    (line,) = [json.loads(text) for text in written(near, campaign).splitlines()]
    assert line == {
        "node": done.summary["healthy"][0],
        "flow/return_code": 0,
        "flow/speed": statistics.median([100, 101, 99, 107] * 3),
    }


def test_our_own_results_get_ranks_annotations_and_return_codes():
    copy = BenchmarkSpec(
        name="copy",
        parameters=(
            ParameterSpec(name="size", type="int", default=0),
            ParameterSpec(name="type", type="str", default="int"),
        ),
        version="1",
        summary="",
        stresses="",
        reveals="",
        level="micro",
        scope="node",
        duration_s=1.0,
        metrics=(MetricSpec(name="gbps", unit="GB/s", direction="higher"),),
    )
    meet = dataclasses.replace(copy, name="meet", scope="group", parameters=())
    sizes = [SuiteEntry(benchmark="copy", parameters={"size": size}) for size in (1, 2)]
    suite = Suite(name="s", summary="", benchmarks=(*sizes, SuiteEntry(benchmark="meet")))
    nodes = [Node(name=name, sku="x") for name in ("b", "a")]
    plan = planning.plan(suite, nodes, {"copy": copy, "meet": meet})
    measured = {
        ("b", 1): [("gbps", "cuda:0", [3, 1, 2]), ("gbps:bf16", "cuda:1", [5])],
        ("b", 2): [("gbps", "cpu", [7]), ("gbps:65536", "cpu", [8])],
        ("a", 1): None,
    }
    executions = []
    for phase in range(len(plan.phases)):
        for step in planning.steps(plan, phase, {"a", "b"}):
            together = len(step.participants) > 1
            key = (step.participants[0], step.workload.arguments.get("size"))
            if not together and key not in measured:
                continue
            series = [("gbps", "cpu", [9])] if together else measured[key]
            executions.append(_ended(step, series))
    summary = summarize(plan, executions)
    assert summary.left_out == "1 of groups: such a file has one line per node"
    assert [json.loads(line) for line in summary.text.splitlines()] == [
        {
            "node": "b",
            "copy:size=1/gbps:0": 2.0,
            "copy:size=1/gbps:bf16:1": 5.0,
            "copy:size=1/return_code": 0,
            "copy:size=2/gbps": 7.0,
            "copy:size=2/gbps:65536:0": 8.0,
            "copy:size=2/return_code": 0,
        },
        {"node": "a", "copy:size=1/return_code": 1},
    ]
    assert summarize(plan, reversed(executions)) == summary


def _ended(step: Step, found: list[tuple[str, str, list[float]]] | None) -> Execution:
    series = Readings.pack(
        Series(metric=metric, device=device, samples=np.array(samples, dtype=float))
        for metric, device, samples in found or ()
    )
    ended = Ended.FAILED if found is None else Ended.MEASURED
    return Execution(step=step, attempt=1, ended=ended, final=True, result=Result(series=series))


def test_a_failure_keeps_its_return_code_and_missing_values_stay_missing():
    rows = [json.loads(line) for line in fleet(n2={"mem-bw/return_code": 33}).splitlines()]
    rows[4] = {"node": "n5"}
    text = summarize(*adopt(parse_results(lines(*rows), "it"), "a100")).text
    back = {row.node: row.values for row in parse_results(text, "it")}
    assert back["n2"] == {
        "mem-bw/return_code": 33,
        "kernel-launch/return_code": 0,
        "kernel-launch/event_time:0": rows[1]["kernel-launch/event_time:0"],
    }
    assert back["n5"] == {}
    assert summarize(*adopt(parse_results(text, "it"), "a100")).text == text


# --- baselines -----------------------------------------------------------------------------


@pytest.fixture(params=["made", "real"])
def baseline_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "real":
        return request.getfixturevalue("published")("ndv4-a100-baseline-1939-nodes.json")
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({ALL_REDUCE: 235.0, "nccl-bw/return_code": 0}))
    return file


ALL_REDUCE = "nccl-bw/allreduce_8589934592_busbw"


def test_a_baseline_fails_values_5_percent_below_its_mean(near, baseline_file):
    mean = json.loads(baseline_file.read_text())[ALL_REDUCE]
    done = near.run(
        *("history", "import", "superbench-baseline", str(baseline_file)),
        *("--sku", "a100", "--units", "1939", "--out", "criteria"),
    )
    assert done.code == 0
    assert "means have no spread" in done.err
    rows = [
        {"node": f"at-{share}", f"{ALL_REDUCE}:0": mean * share} for share in (1.2, 1, 0.96, 0.94)
    ]
    done = judged(near, imported(near, lines(*rows)), "criteria")
    assert {v["node"]: v["verdict"] for v in done.verdicts} == {
        "at-1.2": "healthy",
        "at-1": "healthy",
        "at-0.96": "healthy",
        "at-0.94": "defective",
    }


def test_a_baseline_that_cannot_be_criteria_is_refused(near):
    ask = ("--sku", "a100", "--out", "criteria")
    file = str(near.write("baseline.json", {"mem-bw/h2d_bw": 25.0}))
    of = ("history", "import", "superbench-baseline")
    assert_refused(near.run(*of, file, *ask), "'--units'")
    assert_refused(near.run(*of, file, *ask, "--units", "2"), "a mean of 2 units is too few")
    for text, sentence in (
        ('{"mem-bw/h2d_bw": ', "not a complete JSON object"),
        ("{}", "expected a baseline"),
        ('{"node": "a", "mem-bw/h2d_bw": 25.0}', "one node's results, expected a baseline"),
        ('{"mem-bw/h2d_bw:3": 25.0}', "no metric that can be judged"),
        ('{"mem-bw/h2d_bw": NaN}', "no metric that can be judged"),
    ):
        broken = str(near.write("broken.json", text))
        assert_refused(near.run(*of, broken, *ask, "--units", "9"), sentence)
    assert not (near.folder / "criteria").exists()


# --- rules ---------------------------------------------------------------------------------


def rules(**of: Mapping[str, object]) -> dict[str, object]:
    return {"version": "v0.10", "superbench": {"rules": of}}


def rule(function: str, criteria: object, *metrics: str, **more: object) -> dict[str, object]:
    return {
        "function": function,
        "criteria": criteria,
        "categories": "Some",
        "metrics": list(metrics),
        **more,
    }


OF_ITS_TESTS = rules(
    rule0=rule(
        "variance",
        "lambda x:x>0.05",
        r"kernel-launch/event_overhead:\d+",
        r"kernel-launch/wall_overhead:\d+",
    ),
    rule1=rule("variance", "lambda x:x<-0.05", r"mem-bw/H2D_Mem_BW:\d+", r"mem-bw/D2H_Mem_BW:\d+"),
    failed=rule("value", "lambda x:x>0", "kernel-launch/return_code", "mem-bw/return_code"),
)


# the means that its tests compare with
ITS_BASELINE = {
    "kernel-launch/event_overhead": 0.00596,
    "kernel-launch/wall_overhead": 0.01026,
    "kernel-launch/return_code": 0,
    "mem-bw/H2D_Mem_BW": 25.6,
    "mem-bw/D2H_Mem_BW": 24.3,
    "mem-bw/D2D_Mem_BW": 1118.0,
    "mem-bw/return_code": 0,
}


def test_rules_of_superbench_find_on_its_results_the_defects_that_it_finds(desk, results):
    """Its test suite: 01 for event_overhead:0 (+1577.85 %), 02 accepted, 03 for the failure."""
    file = str(desk.write("rules.yaml", OF_ITS_TESTS))
    done = desk.run(
        *("history", "import", "superbench", str(results), "--sku", "a100", "--json"),
        *("--rules", file, "--baseline", str(desk.write("baseline.json", ITS_BASELINE))),
    )
    assert done.code == 1
    assert done.summary["healthy"] == ["sb-validation-02"]
    assert set(done.summary["defective"]) == {"sb-validation-01", "sb-validation-03"}
    bad = {v["node"]: v for v in done.verdicts if v["verdict"] == "defective"}
    assert "event_overhead:0 is 0.1, +1577.9%" in bad["sb-validation-01"]["reason"]
    assert bad["sb-validation-03"]["code"] == "RULE.FAILED"
    missing = [v for v in done.verdicts if v["verdict"] == "unknown"]
    assert {v["node"] for v in missing} == {"sb-validation-03"}
    assert len(missing) == 16  # 8 ranks of H2D and of D2H


@pytest.mark.parametrize(
    ("criteria", "violating", "keeping"),
    [
        ("lambda x:x>0.05", 10.6, 10.4),
        ("lambda x:x<-0.05", 9.4, 9.6),
        ("lambda x : x >= 1e-1", 11.0, 10.9),
        ("lambda value:value<=-.1", 9.0, 9.1),
        ("lambda x: x != 0", 10.1, 10.0),
        ("lambda x:x==+0.0", 10.0, 10.1),
    ],
)
def test_a_comparison_in_a_rule_means_the_same_as_in_python(criteria, violating, keeping):
    def variance(value: float) -> bool:
        return bool(eval(criteria)((value - 10.0) / 10.0))  # ours to run, not a file's

    assert variance(violating)
    assert not variance(keeping)
    found = parse_rules(rules(one=rule("variance", criteria, "b/x:0")), "it")
    rows = [NodeResults("bad", {"b/x:0": violating}), NodeResults("good", {"b/x:0": keeping})]
    assessment, idle = apply_rules(found, rows, {"b/x": 10.0})
    assert assessment.named(Judgement.DEFECTIVE) == ("bad",)
    assert assessment.named(Judgement.HEALTHY) == ("good",)
    assert idle == []


PWNED = "lambda x: __import__('os').system('touch pwned')"
REFUSED_RULES = {
    "code": (rule("value", PWNED, "b/x"), ("__import__", "code in a rule is never run")),
    "code behind a comparison": (
        rule("value", f"lambda x:x>0 or {PWNED}", "b/x"),
        ("is never run",),
    ),
    "another variable": (rule("value", "lambda x:y>0", "b/x"), ('"lambda x:y>0"',)),
    "a calculation": (rule("value", "lambda x:x>1-0.05", "b/x"), ('"lambda x:x>1-0.05"',)),
    "a number": (rule("value", 0.05, "b/x"), ("its criteria is 0.05",)),
    "several rules": (
        rule("multi_rules", 'lambda label:label["a"]>=2'),
        ('its function is the text "multi_rules"', 'label["a"]>=2'),
    ),
    "stored": (rule("value", "lambda x:x>0", "b/x", store=True), ("stored for other rules",)),
    "no function": ({"criteria": "lambda x:x>0"}, ("its function is null",)),
    "no metrics": (
        {"function": "value", "criteria": "lambda x:x>0", "metircs": ["b/x"]},
        ('expected "metrics"', "metircs"),
    ),
    "no pattern": (rule("value", "lambda x:x>0", "b/(x"), ('"b/(x" is not a pattern',)),
    "no table": ("value", ("expected a table",)),
}


@pytest.mark.parametrize(("bad", "words"), REFUSED_RULES.values(), ids=REFUSED_RULES.keys())
def test_a_rule_that_is_no_comparison_is_refused_by_name_and_never_run(near, bad, words):
    file = near.write("rules.yaml", rules(good=rule("value", "lambda x:x>0", "b/x"), bad=bad))
    results = near.write("results.jsonl", fleet())
    ask = ("history", "import", "superbench", str(results), "--sku", "a100", "--rules", str(file))
    assert_refused(near.run(*ask), 'rules.yaml": rule "bad": ', *words)
    assert not (near.folder / "pwned").exists()
    assert not near.home.exists()


def test_rules_without_their_baseline_or_metrics_are_refused(near):
    results = str(near.write("results.jsonl", fleet()))

    def ask(document: Mapping[str, object], *more: str):
        file = str(near.write("rules.yaml", document))
        return near.run(
            "history", "import", "superbench", results, "--sku", "a100", "--rules", file, *more
        )

    varying = rules(one=rule("variance", "lambda x:x<-0.05", r"mem-bw/h2d_bw:\d"))
    assert_refused(ask(varying), 'rule "one" compares "mem-bw/h2d_bw:0" with the baseline')
    zero = str(near.write("baseline.json", {"mem-bw/h2d_bw": 0}))
    assert_refused(ask(varying, "--baseline", zero), "which has no number other than 0 for it")
    assert_refused(ask({"superbench": {"benchmarks": {}}}), 'under "superbench", "rules"')
    nowhere = rules(one=rule("value", "lambda x:x>0", "other/x"))
    assert_refused(ask(nowhere), "no rule matches a metric in the results")
    assert not near.home.exists()


def test_a_failure_check_asks_for_every_test_and_missing_is_unknown():
    check = rule("failure_check", "lambda x:x!=0", "a/return_code", "b/return_code")
    found = parse_rules(rules(failed=check), "it")
    rows = [
        NodeResults("well", {"a/return_code": 0, "b/return_code": 0}),
        NodeResults("failed", {"a/return_code": -1, "b/return_code": 0}),
        NodeResults("partly", {"a/return_code": 0}),
    ]
    assessment, _ = apply_rules(found, rows, {})
    assert {node.node: node.judgement.value for node in assessment.nodes} == {
        "well": "healthy",
        "failed": "defective",
        "partly": "unknown",
    }
    nobody, _ = apply_rules(found, rows[2:], {})
    assert nobody.nodes[0].judgement is Judgement.UNKNOWN


def test_a_rule_looks_only_at_the_benchmark_it_names():
    found = parse_rules(rules(one=rule("value", "lambda x:x>0", "mem-bw:*.*/.*_count")), "it")
    rows = [NodeResults("n", {"mem-bw:nvlink/x_count": 0, "gpu-mem-bw/x_count": 9})]
    assessment, _ = apply_rules(found, rows, {})
    assert assessment.nodes[0].judgement is Judgement.HEALTHY
    with pytest.raises(UsageError, match="no rule matches a metric"):
        apply_rules(found, [NodeResults("n", {"gpu-mem-bw/x_count": 9})], {})


def test_devices_of_different_kinds_are_told_apart_in_an_export():
    """SuperBench's names end in a rank; mlx5_0 and mlx5_1 have none, nor have / and /scratch."""
    metric = MetricSpec(name="rate", unit="GB/s", direction="higher")
    spec = BenchmarkSpec(
        name="links",
        version="1",
        summary="",
        stresses="",
        reveals="",
        level="micro",
        scope="node",
        duration_s=1,
        metrics=(metric,),
    )
    nodes = (Node(name="n1", sku="s"), Node(name="n2", sku="s"))
    planned = planning.plan(
        Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="links"),)),
        nodes,
        {"links": spec},
    )
    here = {"n1": ("mlx5_0", "mlx5_1", "/", "/scratch/a"), "n2": ("mlx5_1",)}
    done = [
        Execution(
            step=step,
            attempt=1,
            ended=Ended.MEASURED,
            final=True,
            result=Result(
                series=Readings.pack(
                    Series(metric="rate", device=device, samples=np.array([float(value)]))
                    for value, device in enumerate(here[step.participants[0]], 1)
                )
            ),
        )
        for step in planning.steps(planned, 0, set(here))
    ]
    first, second = map(json.loads, summarize(planned, done).text.splitlines())
    assert first == {
        "node": "n1",
        "links/rate_mlx5_0": 1,
        "links/rate_mlx5_1": 2,
        "links/rate_root": 3,
        "links/rate_scratch_a": 4,
        "links/return_code": 0,
    }
    assert second == {"node": "n2", "links/rate_mlx5_1": 1, "links/return_code": 0}


# --- the names that SuperBench has for our metrics --------------------------------------------

LOOPBACK = "ib-loopback/ib_write_bw_8388608"
KNOWN_TO_SUPERBENCH = {  # in its published baselines, or in the names that its models share
    ("gemm", "tflops:bf16"): ("gemm-flops/bf16_tc_flops", 1e3),
    ("gemm", "tflops:fp32"): ("gemm-flops/fp32_flops", 1e3),
    ("gemm", "tflops:int8"): ("gemm-flops/int8_tc_iops", 1e3),
    ("kernel_launch", "event_us"): ("kernel-launch/event_time", 1e-3),
    ("host_device_copy", "h2d_gbps:pinned/268435456"): ("mem-bw/h2d_bw", 1.0),
    ("memory_bandwidth", "hbm_gbps:copy"): ("mem-bw/d2d_bw", 0.5),
    ("nccl_tests", "busbw_gbps:all_reduce/1048576/out_of_place"): (
        "nccl-bw/allreduce_1048576_busbw",
        1.0,
    ),
    ("nccl_tests", "latency_us:all_reduce/8/out_of_place"): ("nccl-bw/allreduce_8_time", 1.0),
    ("ib_loopback", "bandwidth_gbps:8388608"): (LOOPBACK, 1.0),
    ("train_cnn", "samples_per_s:resnet50/fp16"): (
        "resnet_models/pytorch-resnet50/fp16_train_throughput",
        1.0,
    ),
    ("train_transformer", "samples_per_s:bert_large/fp32"): (
        "bert_models/pytorch-bert-large/fp32_train_throughput",
        1.0,
    ),
    ("train_lstm", "samples_per_s:lstm/fp16"): (
        "lstm_models/pytorch-lstm/fp16_train_throughput",
        1.0,
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), KNOWN_TO_SUPERBENCH.items())
def test_a_metric_that_superbench_has_takes_its_name(ours, theirs):
    assert alias(*ours) == theirs


@pytest.mark.parametrize(
    ("benchmark", "metric"),
    [
        ("gemm", "tflops:bf16/bert_large.up"),  # another product
        ("gemm", "agreement:bf16"),
        ("intranode_collective", "busbw_gbps:all_reduce/1048576"),  # not nccl-tests
        ("host_device_copy", "h2d_gbps:pageable/268435456"),
        ("train_transformer", "samples_per_s:llama/bf16"),
    ],
)
def test_a_metric_measured_differently_keeps_its_own_name(benchmark, metric):
    assert alias(benchmark, metric) is None


BASELINES = ("ndv4-a100-baseline-1939-nodes.json", "ndmv4-a100-baseline-729-nodes.json")


@pytest.mark.twin("test_a_metric_that_superbench_has_takes_its_name")
def test_names_of_metrics_occur_in_the_published_baselines_of_superbench(published):
    names = {name for file in BASELINES for name in json.loads(published(file).read_text())}
    theirs = {name for name, _ in KNOWN_TO_SUPERBENCH.values()}
    newer = {LOOPBACK, "lstm_models/pytorch-lstm/fp16_train_throughput"}
    assert theirs - newer <= names
    assert LOOPBACK not in names  # there the same in other units has another name: see below


@pytest.mark.twin("test_a_metric_that_superbench_has_takes_its_name")
def test_before_0_6_superbench_reported_the_loopback_in_mebibytes_under_other_names(published):
    """perftest's MiB/s in its first results, thousands of them in its baselines."""
    results = rows_of(published("test_results.jsonl"))[0]
    baseline = json.loads(published(BASELINES[1]).read_text())
    for size in (1024, 65536, 8388608):
        mib_s = results[f"ib-loopback/IB_write_{size}_Avg_0:0"]
        mean = baseline[f"ib-loopback/ib_write_{size}_ib0_bw"]
        assert mean == pytest.approx(mib_s / 1000, rel=0.03)


def test_a_loopback_through_the_memory_of_gpus_keeps_its_own_name():
    metric = "bandwidth_gbps:8388608"
    assert alias("ib_loopback", metric, {"memory": "host"}) == (LOOPBACK, 1.0)
    assert alias("ib_loopback", metric, {"memory": "cuda"}) is None


def test_an_exported_rate_is_in_the_unit_of_superbench():
    spec = BenchmarkSpec(
        name="gemm", version="2", summary="", stresses="", reveals="", level="micro", scope="node",
        duration_s=1.0, metrics=(MetricSpec(name="tflops", unit="TFLOP/s", direction="higher"),),
    )  # fmt: skip
    plan = planning.plan(
        Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="gemm"),)),
        [Node(name="n1", sku="x")],
        {"gemm": spec},
    )
    (step,) = planning.steps(plan, 0, {"n1"})
    done = [_ended(step, [("tflops:bf16", "cuda:1", [780.0, 790.0, 800.0])])]
    (line,) = summarize(plan, done).text.splitlines()
    assert json.loads(line)["gemm-flops/bf16_tc_flops:1"] == 790_000


def test_any_foreign_value_can_be_put_into_a_sentence():
    for value in (b"\x00\xff", None, True, {}, [], "text", 1.5, float("nan"), date(2026, 11, 22)):
        assert describe_value(value)
