"""What a metric name of SuperBench says: benchmark, metric, rank, and which direction is better.

SuperBench writes neither unit nor direction. The direction is read from a declared table of words
and of a few old names; a name that is in neither has none, and nobody guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from anubis.core.records import Direction, MetricSpec, Workload

VERSION = "superbench"  # the file does not say which version of it measured
RETURN_CODE = "return_code"
NODE, RANK = "node", "rank"  # kinds of device: the whole node, or one rank of it

LOWER = ("time", "times", "steptime", "latency", "lat", "duration", "overhead", "cost")
HIGHER = ("bw", "busbw", "algbw", "bandwidth", "throughput", "flops", "gflops", "tflops", "iops")
OWN = ("gbps", "samples_per_s", "agreement")  # as Anubis' programs say it; higher as well
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
# there a rank is a way between a GPU and a NUMA node: unlike the others, alike on every node
WAYS = re.compile(r"gpu-(sm-)?copy-bw/(dtoh|htod)")
USAGE = "monitor/"  # what was in use meanwhile, bandwidth too: no measure of how good it is

_RANKED = re.compile(r"(.+):(\d+)")
_NS = re.compile(r"_ns(?![a-z])")
_WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(BY_WORD, key=len, reverse=True))})(?![a-z])")


@dataclass(frozen=True)
class MetricPlace:
    """Where a number of SuperBench stands in Anubis."""

    benchmark: str
    metric: str
    device: str

    @property
    def name(self) -> str:
        """Without the rank."""
        return f"{self.benchmark}/{self.metric}"

    @property
    def family(self) -> str:
        """Anubis takes what follows a colon for a qualifier of what stands before it."""
        return self.metric.partition(":")[0]


@lru_cache(maxsize=1 << 16)
def place(name: str) -> MetricPlace | None:
    """`mem-bw/H2D_Mem_BW:3`: benchmark, metric and rank. None for a name without a benchmark.

    The benchmark is all before the last slash, because each model of `bert_models/…` has a return
    code of its own.
    """
    ranked = _RANKED.fullmatch(name)
    plain, rank = (ranked[1], ranked[2]) if ranked else (name, "")
    colon = (
        "" if WAYS.fullmatch(plain) else ":"
    )  # its ranks are one kind of device, or each its own
    benchmark, _, metric = plain.rpartition("/")
    device = f"{RANK}{colon}{rank}" if rank else NODE
    return MetricPlace(benchmark, metric, device) if benchmark and metric else None


def rank_of(device: str) -> str:
    """`rank:3`, `rank3` and `cuda:3`: "3". "" for a device without an index."""
    kind, colon, index = device.partition(":")
    return index if colon else kind.removeprefix(RANK) if kind.startswith(RANK) else ""


def spec(where: MetricPlace) -> MetricSpec | None:
    """The metric as Anubis declares one; None when nothing says which direction is better."""
    better = direction(where.name)
    unit = "ns" if _NS.search(where.metric) else "units"
    return better and MetricSpec(name=where.family, unit=unit, direction=better)


def direction(name: str) -> Direction | None:
    """Of a name without its rank; the last word that says something decides: `bw_test_time`."""
    name = name.lower()
    for pattern, better in BY_NAME:
        if re.fullmatch(pattern, name):
            return better
    words = _WORD.findall(name.partition("/")[2])
    return BY_WORD[words[-1]] if words and not name.startswith(USAGE) else None


def workload(benchmark: str) -> Workload:
    return Workload.of(benchmark, VERSION, {})
