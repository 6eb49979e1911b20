"""The parts of a metric name of SuperBench: benchmark, metric, rank, and the better direction.

SuperBench writes neither unit nor direction. The direction is looked up in a table of words and of
a few old names; a name that is in neither has no direction, and none is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from anubis.core.records import Direction, MetricSpec, Workload

VERSION = "superbench"  # the file does not say which version of SuperBench measured
RETURN_CODE = "return_code"
NODE, RANK = "node", "rank"  # kinds of device: the whole node, or one rank of it

LOWER = ("time", "times", "steptime", "latency", "lat", "duration", "overhead", "cost")
HIGHER = ("bw", "busbw", "algbw", "bandwidth", "throughput", "flops", "gflops", "tflops", "iops")
OWN = ("gbps", "samples_per_s", "agreement")  # words of Anubis' own programs; higher as well
BY_WORD: dict[str, Direction] = {
    **dict.fromkeys(LOWER, "lower"),
    **dict.fromkeys((*HIGHER, *OWN), "higher"),
}
# names of SuperBench before 0.5, which carry no such word
BY_NAME: tuple[tuple[str, Direction], ...] = (
    (r"gemm-flops/(fp|tf|bf|int)\d+(_tc)?", "higher"),
    (r"gpu-(sm-)?copy-bw/(dtoh|htod)", "higher"),
    (r"ib-loopback/ib_(write|read|send)_\d+_avg_\d+", "higher"),  # perftest's mean bandwidth
    (r"(pytorch-)?matmul/nosharding", "lower"),
    (r"(pytorch-)?sharding-matmul/(allreduce|allgather)", "lower"),
)
# here a rank is a way between a GPU and a NUMA node: ranks differ, but are the same on every node
WAYS = re.compile(r"gpu-(sm-)?copy-bw/(dtoh|htod)")
USAGE = "monitor/"  # what was in use meanwhile, bandwidth too: not a measure of quality

_RANKED = re.compile(r"(.+):(\d+)")
_NS = re.compile(r"_ns(?![a-z])")
_WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(BY_WORD, key=len, reverse=True))})(?![a-z])")


@dataclass(frozen=True)
class MetricPlace:
    """The place of a number of SuperBench in Anubis."""

    benchmark: str
    metric: str
    device: str

    @property
    def name(self) -> str:
        """Name without the rank."""
        return f"{self.benchmark}/{self.metric}"

    @property
    def family(self) -> str:
        """Part before the colon; in Anubis the part after it is a qualifier."""
        return self.metric.partition(":")[0]


@lru_cache(maxsize=1 << 16)
def place(name: str) -> MetricPlace | None:
    """Parse `mem-bw/H2D_Mem_BW:3` into benchmark, metric and rank. None for a name without a
    benchmark.

    The benchmark is all before the last slash, because each model of `bert_models/…` has a return
    code of its own.
    """
    ranked = _RANKED.fullmatch(name)
    plain, rank = (ranked[1], ranked[2]) if ranked else (name, "")
    # the ranks of a metric are one kind of device, or each its own
    colon = "" if WAYS.fullmatch(plain) else ":"
    benchmark, _, metric = plain.rpartition("/")
    device = f"{RANK}{colon}{rank}" if rank else NODE
    return MetricPlace(benchmark, metric, device) if benchmark and metric else None


def rank_of(device: str) -> str:
    """Return "3" for `rank:3`, `rank3` and `cuda:3`; "" for a device without an index."""
    kind, colon, index = device.partition(":")
    return index if colon else kind.removeprefix(RANK) if kind.startswith(RANK) else ""


def spec(where: MetricPlace) -> MetricSpec | None:
    """Return the metric as Anubis declares it; None if the better direction is unknown."""
    better = direction(where.name)
    unit = "ns" if _NS.search(where.metric) else "units"
    return better and MetricSpec(name=where.family, unit=unit, direction=better)


def direction(name: str) -> Direction | None:
    """Return the direction of a name without its rank; the last known word decides:
    `bw_test_time`."""
    name = name.lower()
    for pattern, better in BY_NAME:
        if re.fullmatch(pattern, name):
            return better
    words = _WORD.findall(name.partition("/")[2])
    return BY_WORD[words[-1]] if words and not name.startswith(USAGE) else None


def workload(benchmark: str) -> Workload:
    return Workload.make(benchmark, VERSION, {})
