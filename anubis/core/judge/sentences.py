"""One sentence on what falls short: what, by how much, on which of how many devices, against what.

A sentence names its device once, as ` on DEVICE`, so that the sentence about a node can name all of
them instead. Its cause says the same without name, place and amount, so that nodes with the same
fault can be grouped.
"""

from __future__ import annotations

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
    "nvbandwidth bandwidth_gbps": "copies",
    "nvbandwidth latency_us": "access to the memory of another GPU",
    "memory_bandwidth hbm_gbps": "GPU memory",
    "memory_bandwidth bandwidth_gbps": "main memory",
    "cpu_memory_latency latency_ns": "access to main memory",
    "disk_io bandwidth_gbps": "disk transfers",
    "disk_io iops": "disk requests",
    "disk_io latency_us": "a disk request",
    "kernel_launch event_us": "a kernel launch",
    "kernel_launch wall_us": "a kernel launch with its wait",
    "kernel_launch single_us": "a single kernel launch",
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
    "node_health gpus_lost": "lost GPUs",
    "node_health ecc_correctable": "corrected ECC errors",
    "node_health ecc_deferred": "deferred ECC errors",
    "node_health ecc_uncorrectable": "uncorrectable ECC errors",
    "node_health rows_remapped": "replaced rows of GPU memory",
    "node_health pages_retired": "retired pages of GPU memory",
    "node_health bad_pages": "bad pages of GPU memory",
    "node_health throttled": "share of looks at a GPU that slowed itself down",
    "node_health thermal_margin_c": "margin to the temperature that slows a GPU down",
    "node_health pcie_lanes_missing": "missing PCIe lanes",
    "node_health pcie_errors": "PCIe errors",
    "node_health pcie_replays": "PCIe replays",
    "node_health nvlinks_inactive": "inactive NVLinks",
    "node_health nvlink_errors": "NVLink errors",
    "node_health nvlink_symbols": "wrong symbols on NVLinks",
    "node_health xgmi_links_inactive": "inactive XGMI links",
    "node_health xgmi_errors": "XGMI errors",
    "node_health port_errors_per_s": "errors of an RDMA port per second",
    "node_health xids": "XID errors",
    "node_health sxids": "NVSwitch errors",
    "node_health machine_checks": "machine checks",
    "node_health edac_errors": "errors of main memory",
    "node_health cpus_not_performance": "processors that may run slower to save power",
    "node_health disk_free_share": "free share of the disk",
    "node_health inodes_free_share": "free share of the inodes",
    "node_health clock_offset_ms": "offset of the clock",
    "dcgm_diag completeness": "completed tests of DCGM",
    "dcgm_diag findings": "findings of DCGM",
    "sdc_screen seen_once": "wrong answers that did not come back",
    "* gpu_errors_per_min": "errors of a busy GPU per minute",
    "* gpu_held_back": "share of looks at a busy GPU that slowed itself down",
}
STATES: Mapping[str, str] = {  # of a device, in words, if the limit is broken
    "ecc_enabled": "ECC is off",
    "sram_threshold_exceeded": "too many SRAM errors",
    "row_remap_pending": "a row of GPU memory waits for a reset",
    "row_remap_failure": "a row of GPU memory could not be replaced",
    "page_retirement_pending": "a page of GPU memory waits for a reset",
    "fabric_unready": "no registration with the NVSwitch fabric",
    "fabric_unhealthy": "the NVSwitch fabric reports a fault",
    "recovery_needed": "the driver asks for a reset or a restart",
    "port_down": "no link",
    "mount_missing": "nothing is mounted",
}
# what `agreement` counts, in the singular and the plural: by program or qualifier
WRONG_ANSWERS = ("wrong answer", "wrong answers")
WRONG: Mapping[str, tuple[str, str]] = {
    "dcgm_diag": ("failure", "failures"),
    "by_hca": ("node sent by TCP, not by HCAs", "nodes sent by TCP, not by HCAs"),
    "by_nvlink": ("node did not send by NVLink", "nodes did not send by NVLink"),
    "rails": ("rail is on one of the nodes only", "rails are on one of the nodes only"),
}
COUNTED: Mapping[str, tuple[str, str]] = {  # on a node: how it is there, and how it is not
    "gpus": ("GPUs are there", "GPUs are missing"),
    "nvlinks": ("NVLinks are up", "NVLinks are down"),
    "xgmi_links": ("XGMI links are up", "XGMI links are down"),
    "ports_active": ("RDMA ports are up", "RDMA ports are down"),
    "port_up": ("RDMA ports are up", "RDMA ports are down"),
    "cpus": ("processors are online", "processors are offline"),
}
NOUNS: Mapping[str, str] = {"cuda": "GPUs", "gpu": "GPUs"}
TOLERATED = 0.005  # a smaller change of the median is called none
TIMES = ("s", "ms", "us", "ns")
MANY = 3  # times normal, from which on a change is no percentage


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong: the sentence for one unit, and the cause, which is the same wherever the same
    is wrong."""

    reason: str
    cause: str

    def cast_doubt(self, doubt: str) -> Finding:
        return Finding(reason=f"{doubt}: {self.reason}", cause=f"{self.cause}, in doubt")


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

    @property
    def words(self) -> str:
        return metric_words(self.benchmark, self.metric) or self.metric

    @property
    def subject(self) -> str:
        """The same, without a program named beside it."""
        has_words = metric_words(self.benchmark, self.metric)
        return has_words or f"{self.benchmark}: {self.metric}"

    @property
    def is_count(self) -> bool:
        """True if some of what is counted is not there, or more than that."""
        is_whole = self.measured.is_integer() and self.normal.is_integer()
        differs = self.measured < self.normal or self.metric in COUNTED
        return self.unit == "1" and differs and is_whole

    @property
    def change(self) -> float:
        return abs(self.measured / self.normal - 1) if self.normal else 1.0

    @property
    def is_uneven(self) -> bool:
        """True if the median is as it should be, and the whole is not."""
        is_small = self.change < max(TOLERATED, 1 - self.alpha)
        return is_small and self.similarity < self.alpha and self.than == "normal"


def find_shortfall(short: Shortfall) -> Finding:
    """The finding about a level: how far the median is from normal, in the metric's own unit."""
    if short.is_count:
        return _find_other_count(short)
    place = place_clause(short.device)
    against = f"{_figures(short.measured, short.normal)}{unit_clause(short.unit)}"
    if short.is_uneven:
        spread = f"samples {1 - short.similarity:.0%} from normal, limit {1 - short.alpha:.0%}"
        return Finding(
            reason=f"{short.words} uneven{place}: {spread}; their median is {against}",
            cause=f"{short.subject} uneven",
        )
    verb, way = _comparison(short)
    return Finding(
        reason=f"{short.words} {verb}{_amount(short, way)}{place}: {against}",
        cause=f"{short.subject} {verb}{way}",
    )


def _amount(short: Shortfall, way: str) -> str:
    """The amount of a change, and its direction. What is left of a rate is not rounded away."""
    if not short.normal:
        return way
    if (times := short.measured / short.normal) >= MANY:
        return f"{times:,.0f} times as {'long' if short.unit in TIMES else 'high'} as {short.than}"
    text = f"{short.change:.0%}"
    return f"{'over 99%' if text == '100%' and 0 < times < 1 else text} {way}"


def _find_other_count(short: Shortfall) -> Finding:
    there, missing = COUNTED.get(short.metric, (short.metric, f"fewer {short.metric} than normal"))
    place = place_clause(short.device)
    if short.measured > short.normal:
        reason = f"{short.measured:g} {there}{place}, normally {short.normal:g}"
        return Finding(reason=reason, cause=f"more {there} than normal")
    counts = f"{short.measured:g} of {short.normal:g}"
    return Finding(reason=f"{counts} {there}{place}", cause=missing)


def find_wrong_answers(benchmark: str, metric: str, device: str, agreement: float) -> Finding:
    """The finding about wrong answers of a program that knows the right ones: how many."""
    qualifier = metric.partition(":")[2]
    singular, plural = WRONG.get(benchmark) or WRONG.get(qualifier) or WRONG_ANSWERS
    number = round(1 / agreement - 1)
    words = f"{number:,} {singular if number == 1 else plural}"
    if qualifier in WRONG:
        return Finding(reason=words, cause=f"{benchmark}: {plural}")
    reason = f"{_qualify(words, qualifier)}{place_clause(device)}"
    return Finding(reason=reason, cause=f"{benchmark}: {plural}")


def find_slow_samples(
    short: Shortfall, *, number: int, samples: int, measured: float, usual: float, share: float
) -> Finding:
    """The finding about a device that is slow in some of its samples only."""
    figures = f"{_figures(measured, usual)}{unit_clause(short.unit)}"
    some = f"{number} of {samples} samples at {figures}, normally {share:.1%}"
    return Finding(
        reason=f"{short.words} slow at times{place_clause(short.device)}: {some}",
        cause=f"{short.subject} slow at times",
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


@cache
def metric_words(benchmark: str, metric: str) -> str:
    """Words for a metric, with its qualifier: `matrix products (fp32)`; empty if there are none."""
    family, _, qualifier = metric.partition(":")
    if benchmark == "node_health" and family in COUNTED:
        return COUNTED[family][0]
    if is_state(benchmark, metric):
        return _qualify(STATES[family], qualifier)
    for pattern, words in WORDS.items():
        if fnmatchcase(f"{benchmark} {family}", pattern):
            return _qualify(words, qualifier)
    return ""


def is_state(benchmark: str, metric: str) -> bool:
    """True if the metric has a value for a state, and no amount."""
    return benchmark == "node_health" and metric.partition(":")[0] in STATES


def _qualify(words: str, qualifier: str) -> str:
    return f"{words} ({qualifier})" if qualifier else words


def place_clause(device: str) -> str:
    return "" if device in ("", "node") else f" on {device}"


def _comparison(short: Shortfall) -> tuple[str, str]:
    """The words before and after the amount."""
    is_less = short.measured < short.normal
    if short.unit.endswith("/s") and short.direction == "higher" and is_less:
        return "", f"slower than {short.than}"
    if short.unit in TIMES and short.direction == "lower" and not is_less:
        return "takes ", f"longer than {short.than}"
    return "", f"{'below' if is_less else 'above'} {short.than}"


def _figures(measured: float, normal: float) -> str:
    """Both figures, with as many digits as it takes to tell them apart."""
    for digits in (3, 4, 5, 6):
        pair = [_figure(value, digits) for value in (measured, normal)]
        if pair[0] != pair[1]:
            break
    return f"{pair[0]} instead of {pair[1]}"


def _figure(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def unit_clause(unit: str) -> str:
    return {"1": "", "1/s": " per s", "1/min": " per min"}.get(unit, f" {unit}")
