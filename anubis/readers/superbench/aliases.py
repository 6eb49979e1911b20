"""SuperBench's names for metrics of Anubis that measure the same, with the factor between units.

Only metrics that mean the same have one: a metric that is measured by another tool, or counts other
bytes, keeps its own name, so that unlike numbers are never compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from anubis.core.records import ParameterValue

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
