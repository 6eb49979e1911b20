"""A campaign as results-summary.jsonl: one line for each node, `benchmark/metric:rank` ->
median."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from anubis.core.errors import UsageError
from anubis.core.judge.units import Units, latest_executions, plain_kind, units
from anubis.core.records import CriterionKey, Ended, Execution, ParameterValue, Plan, Workload
from anubis.readers.superbench.results import NODE, RANK, RETURN_CODE, VERSION, place, rank_of

OWN_CODE = 1  # for an Anubis program that could not measure; SuperBench only knows "not 0"


MODELS = {
    "resnet": "resnet_models/pytorch-resnet",
    "densenet": "densenet_models/pytorch-densenet",
    "vgg": "vgg_models/pytorch-vgg",
    "lstm": "lstm_models/pytorch-lstm",
    "bert_": "bert_models/pytorch-bert-",
    "gpt2_": "gpt_models/pytorch-gpt2-",
}
COLLECTIVES = "all_reduce|all_gather|reduce_scatter|all_to_all|broadcast"
PATTERNS = tuple(
    (re.compile(pattern), name, factor)
    for pattern, name, factor in (
        (r"gemm/tflops:(fp64|tf32|fp16|bf16)", r"gemm-flops/\1_tc_flops", 1e3),  # GFLOP/s there
        (r"gemm/tflops:fp32", "gemm-flops/fp32_flops", 1e3),
        (r"gemm/tflops:int8", "gemm-flops/int8_tc_iops", 1e3),
        (r"kernel_launch/(event|wall)_us", r"kernel-launch/\1_time", 1e-3),  # milliseconds there
        (r"host_device_copy/(h2d|d2h)_gbps:pinned/\d+", r"mem-bw/\1_bw", 1.0),
        (r"memory_bandwidth/hbm_gbps:copy", "mem-bw/d2d_bw", 0.5),  # bytes counted once there
        # since SuperBench 0.6 Gb/s over 8, of 1e9 bytes as ours (its pull request 369); before, and
        # under other names (ib_write_8388608_ib0_bw), perftest's MiB/s over 1000
        (r"ib_loopback/bandwidth_gbps:(\d+)", r"ib-loopback/ib_write_bw_\1", 1.0),
        (
            rf"nccl_tests/(busbw|algbw)_gbps:({COLLECTIVES})/(\d+)/out_of_place",
            r"nccl-bw/\2_\3_\1",
            1.0,
        ),
        (rf"nccl_tests/latency_us:({COLLECTIVES})/(\d+)/out_of_place", r"nccl-bw/\1_\2_time", 1.0),
        *(
            (rf"train_\w+/samples_per_s:{own}(\w*)/(\w+)", rf"{foreign}\1/\2_train_throughput", 1.0)
            for own, foreign in MODELS.items()
        ),
    )
)


def alias(
    benchmark: str, metric: str, arguments: Mapping[str, ParameterValue] = MappingProxyType({})
) -> tuple[str, float] | None:
    """Return SuperBench's name without a rank, and the factor; None if SuperBench has no such
    metric."""
    if benchmark == "ib_loopback" and arguments.get("memory") == "cuda":
        return None  # there it is between the host's buffers
    for pattern, name, factor in PATTERNS:
        if match := pattern.fullmatch(f"{benchmark}/{metric}"):
            return re.sub(COLLECTIVES, _drop_underscores, match.expand(name)), factor
    return None


def _drop_underscores(operation: re.Match[str]) -> str:
    return operation[0].replace("_", "")


@dataclass(frozen=True)
class Summary:
    text: str
    left_out: str  # what such a file cannot hold; "" if it holds everything


def summarize(plan: Plan, executions: Iterable[Execution]) -> Summary:
    """Return nodes in the order of the plan and names in alphabetical order, so that bytes
    repeat."""
    last = latest_executions(executions)
    called = _annotated_names(entry.workload for phase in plan.phases for entry in phase.entries)
    lines: dict[str, dict[str, object]] = {node.name: {} for node in plan.nodes}
    for name, benchmark, code in _return_codes(last, called):
        lines[name][f"{benchmark}/{RETURN_CODE}"] = code
    groups = 0
    measured = units(last, plan)
    ambiguous = _ambiguous(measured)
    for alike in measured:
        with_kind = (alike.key.workload, alike.key.metric) in ambiguous
        name_of = {d: _name(alike.key, d, called, with_kind) for d in set(alike.devices)}
        foreign = _alias(alike.key, called)
        medians = (alike.medians * (foreign[1] if foreign else 1.0)).tolist()
        columns = (alike.participants, alike.devices, medians)
        for participants, device, median in zip(*columns, strict=True):
            if len(participants) > 1:
                groups += 1
                continue
            line, name = lines[participants[0]], name_of[device]
            if name in line:
                raise UsageError(
                    f'"{name}" of node "{participants[0]}" would be in the summary twice: '
                    "its devices differ only in kind, which SuperBench does not write"
                )
            line[name] = median
    text = "".join(
        json.dumps({"node": node, **dict(sorted(line.items()))}, ensure_ascii=False) + "\n"
        for node, line in lines.items()
    )
    left_out = f"{groups:,} of groups: such a file has one line per node" if groups else ""
    return Summary(text, left_out)


def _ambiguous(measured: Iterable[Units]) -> set[tuple[Workload, str]]:
    """Return metrics that a node has for several kinds of device: mlx5_0 and mlx5_1, / and
    /scratch."""
    kinds: defaultdict[tuple[Workload, str, str], set[str]] = defaultdict(set)
    for alike in measured:
        kind = plain_kind(alike.key.device_kind)
        if kind != NODE and not kind.startswith(RANK):
            for participants in set(alike.participants):
                kinds[alike.key.workload, alike.key.metric, participants[0]].add(kind)
    return {key[:2] for key, device_kinds in kinds.items() if len(device_kinds) > 1}


def _return_codes(
    last: Iterable[Execution], called: Mapping[Workload, str]
) -> Iterable[tuple[str, str, object]]:
    """Yield return codes: 0 if anything was measured; none for a benchmark that never started."""
    codes: defaultdict[tuple[str, Workload], object] = defaultdict(lambda: None)
    for execution in last:
        if len(execution.step.participants) > 1:
            continue
        key = (execution.step.participants[0], execution.step.workload)
        if execution.ended is Ended.MEASURED:
            codes[key] = 0
        elif codes[key] is None and execution.ended in (Ended.FAILED, Ended.TIMED_OUT):
            own = None if execution.step.workload.version == VERSION else OWN_CODE
            codes[key] = execution.result.environment.get(RETURN_CODE, own)
    for (node, workload), code in codes.items():
        if code is not None:
            yield node, called[workload], code


def _name(key: CriterionKey, device: str, called: Mapping[Workload, str], with_kind: bool) -> str:
    """Return SuperBench's name. The index of a device is its rank: `cuda:3` and `rank:3` both end
    in `:3`.

    SuperBench writes no kind of device; if it is needed, it is appended to the metric's name.
    """
    kind = plain_kind(key.device_kind).strip("/").replace("/", "_") or "root"
    kind = f"_{kind}" if with_kind else ""
    foreign = _alias(key, called)
    name = (foreign[0] if foreign else f"{called[key.workload]}/{key.metric}") + kind
    index = rank_of(device)
    if index:
        return f"{name}:{index}"
    read_again = place(name)  # a qualifier that is a number would be taken for a rank
    return name if read_again and read_again.device == NODE else f"{name}:0"


def _alias(key: CriterionKey, called: Mapping[Workload, str]) -> tuple[str, float] | None:
    return alias(called[key.workload], key.metric, key.workload.arguments)


def _annotated_names(workloads: Iterable[Workload]) -> dict[Workload, str]:
    """Name benchmarks; one that runs in several ways is `benchmark:annotation`, as SuperBench
    writes it."""
    siblings: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in dict.fromkeys(workloads):
        siblings[workload.benchmark].append(workload)
    return {
        workload: benchmark
        if len(alike) == 1
        else f"{benchmark}:{','.join(workload.distinct_from(alike))}"
        for benchmark, alike in siblings.items()
        for workload in alike
    }
