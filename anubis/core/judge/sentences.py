"""One sentence on what falls short: what, by how much, on which of how many devices, against what.

A sentence names its device once, as ` on DEVICE`, so that the sentence about a node can name all of
them instead, and so that nodes with the same cause can be grouped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from anubis.core.records import Direction

# the words for a metric of a program, by `program metric`; the first that fits counts
WORDS: Mapping[str, str] = {
    "gemm tflops": "matrix products",
    "convolution tflops": "convolutions",
    "gpu_burn tflops": "matrix products under full load",
    "sharded_matmul tflops": "matrix products across ranks",
    "overlap tflops": "matrix products without communication",
    "overlap busbw_gbps": "all-reduces without computation",
    "overlap slowdown": "slowdown of computation beside communication",
    "host_device_copy h2d_gbps": "copies to the GPU",
    "host_device_copy d2h_gbps": "copies from the GPU",
    "host_device_copy both_ways_gbps": "copies to and from the GPU at once",
    "host_device_copy host_copy_gbps": "copies in main memory",
    "peer_copy bandwidth_gbps": "copies between GPUs",
    "memory_bandwidth hbm_gbps": "GPU memory",
    "memory_bandwidth bandwidth_gbps": "main memory",
    "cpu_memory_latency latency_ns": "access to main memory",
    "disk_io bandwidth_gbps": "disk transfers",
    "disk_io iops": "disk requests",
    "disk_io latency_us": "a disk request",
    "kernel_launch event_us": "a kernel launch",
    "kernel_launch wall_us": "a kernel launch with its wait",
    "*collective latency_us": "a small collective",
    "nccl_tests latency_us": "a small collective",
    "*collective *busbw_gbps": "collectives",
    "*collective *algbw_gbps": "collectives",
    "nccl_tests *bw_gbps": "collectives",
    "incast ingress_gbps": "reception from all other nodes",
    "ib_loopback bandwidth_gbps": "RDMA through the own adapter",
    "pair_* bandwidth_gbps": "transfers between two nodes",
    "pair_* latency_us": "a message between two nodes",
    "train_* samples_per_s": "training",
    "train_* compute_s": "the computation of a training step",
    "train_* loss": "training loss",
    "infer_transformer prefill_tokens_per_s": "reading of prompts",
    "infer_transformer decode_tokens_per_s": "writing of tokens",
    "node_health gpu_memory_gb": "memory of a GPU",
    "node_health pcie_max_generation": "PCIe generation",
    "node_health pcie_width": "PCIe width",
    "node_health clock_max_mhz": "highest clock of a GPU",
    "node_health power_cap_w": "power limit of a GPU",
    "node_health port_gbps": "link rate of an RDMA port",
    "node_health memory_gb": "main memory",
}
COUNTED: Mapping[str, str] = {  # of what is counted on a node, and how it is there
    "gpus": "GPUs are there",
    "nvlinks": "NVLinks are up",
    "ports_active": "RDMA ports are up",
    "port_up": "RDMA ports are up",
    "cpus": "processors are online",
}
FAILURES: Mapping[str, str] = {"hang": "hangs", "crash": "crashes"}  # by the end of a code
NOUNS: Mapping[str, str] = {"cuda": "GPUs", "gpu": "GPUs"}
TOLERATED = 0.005  # a smaller change of the median is called none
TIMES = ("s", "ms", "us", "ns")
AMOUNT = re.compile(r" [\d,.]+% (?=slower|longer|below|above)")
COUNT = re.compile(r"^[\d.e+]+ of [\d.e+]+ ")
PLACE = re.compile(r" on (?:all \d|\d+ of \d|\S+ \(|\S+$).*")


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """How far a metric of one device is from normal."""

    benchmark: str
    metric: str
    unit: str
    direction: Direction
    device: str
    measured: float  # the median
    normal: float
    similarity: float
    alpha: float
    than: str = "normal"  # with which it is compared


def shortfall_sentence(short: Shortfall) -> str:
    """The sentence about a level: how far the median is from normal, in the metric's own unit."""
    words = metric_words(short.benchmark, short.metric) or short.metric
    place = place_clause(short.device)
    measured, normal = short.measured, short.normal
    if short.unit == "1" and measured < normal and measured.is_integer() and normal.is_integer():
        counted = COUNTED.get(short.metric, short.metric)
        return f"{measured:g} of {normal:g} {counted}{place}"
    change = abs(measured / normal - 1) if normal else 1.0
    against = f"{_figures(measured, normal)}{_unit(short.unit)}"
    is_uneven = change < max(TOLERATED, 1 - short.alpha) and short.similarity < short.alpha
    if is_uneven and short.than == "normal":
        return (
            f"{words} uneven{place}: {1 - short.similarity:.0%} from normal as a whole, limit "
            f"{1 - short.alpha:.0%}; median {against}"
        )
    return f"{words} {_amount(short, change)}{place}: {against}"


def slow_samples_sentence(
    short: Shortfall, *, number: int, samples: int, measured: float, usual: float, share: float
) -> str:
    """The sentence about a device that is slow in some of its samples only."""
    words = metric_words(short.benchmark, short.metric) or short.metric
    return (
        f"{words} slow at times{place_clause(short.device)}: {number} of {samples} samples at "
        f"{_figures(measured, usual)}{_unit(short.unit)}; healthy: {share:.1%}"
    )


def node_sentence(
    reason: str, device: str, short: Collection[str], measured: Collection[str], further: int
) -> str:
    """The sentence about a node, from that on its worst device: which of its devices of how many
    fall short, and how many more metrics do."""
    kind = device.partition(":")[0]
    total = len({name for name in (*short, *measured) if name.partition(":")[0] == kind})
    number = len({name for name in short if name.partition(":")[0] == kind})
    noun = NOUNS.get(kind, "devices")
    if total > 1:
        scope = (
            f" on {device} (1 of {total} {noun})"
            if number == 1
            else f" on {f'all {total}' if number == total else f'{number} of {total}'} {noun}"
            f" (worst {device})"
        )
        reason = reason.replace(f" on {device}", scope, 1)
    return reason + (f"; {further} more metric{'s' * (further > 1)} as well" if further else "")


def cause_of(node: str, code: str, reason: str) -> str:
    """Cause that nodes with the same fault have in common: their sentence without name, place and
    amount."""
    program, _, failure = code.lower().partition(".")
    if failure in FAILURES:
        return f"{program} {FAILURES[failure]}"
    prefix = f"{program}: " if reason.startswith(f"{program}: ") else ""
    cause = reason.removeprefix(prefix).replace(f" of {node} is ", " is ")
    cause = re.split(r": |; |, ", cause, maxsplit=1)[0]
    cause = COUNT.sub("not all ", PLACE.sub("", cause))
    return prefix + AMOUNT.sub(" ", cause)


@cache
def metric_words(benchmark: str, metric: str) -> str:
    """Words for a metric, with its qualifier: `matrix products (fp32)`; empty if there are none."""
    family, _, qualifier = metric.partition(":")
    if benchmark == "node_health" and family in COUNTED:
        return COUNTED[family]
    for pattern, words in WORDS.items():
        if fnmatchcase(f"{benchmark} {family}", pattern):
            return f"{words} ({qualifier})" if qualifier else words
    return ""


def place_clause(device: str) -> str:
    return "" if device in ("", "node") else f" on {device}"


def _amount(short: Shortfall, change: float) -> str:
    is_less = short.measured < short.normal
    if short.unit.endswith("/s") and short.direction == "higher" and is_less:
        return f"{change:.0%} slower than {short.than}"
    if short.unit in TIMES and short.direction == "lower" and not is_less:
        return f"takes {change:.0%} longer than {short.than}"
    return f"{change:.0%} {'below' if is_less else 'above'} {short.than}"


def _figures(measured: float, normal: float) -> str:
    """Both figures, with as many digits as it takes to tell them apart."""
    for digits in (3, 4, 5, 6):
        pair = [_figure(value, digits) for value in (measured, normal)]
        if pair[0] != pair[1]:
            break
    return f"{pair[0]} instead of {pair[1]}"


def _figure(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _unit(unit: str) -> str:
    return {"1": "", "1/s": " per s"}.get(unit, f" {unit}")
