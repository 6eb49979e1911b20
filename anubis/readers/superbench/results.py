"""results-summary.jsonl and baseline.json into plain values, and the names of metrics into their
parts: strict, nothing interpreted.

SuperBench writes neither unit nor direction. The direction is looked up in a table of words and of
a few old names; a name that is in neither has no direction, and none is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.core.records import Direction, MetricSpec, Workload
from anubis.text.files import json_value, read_text

LONGEST = 60  # characters of a foreign value or name in a sentence


@dataclass(frozen=True)
class NodeResults:
    """The line of one node, with its metrics as written, numbers or not."""

    node: str
    values: Mapping[str, object]


def read_results(path: Path) -> tuple[NodeResults, ...]:
    return parse_results(_text(path), f'"{path}"')


def read_baseline(path: Path) -> dict[str, object]:
    return parse_baseline(_text(path), f'"{path}"')


def parse_results(text: str, where: str) -> tuple[NodeResults, ...]:
    rows: dict[str, NodeResults] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):  # not at every Unicode line end
        if not line.strip():
            continue
        here = f"{where}, line {number}"
        if line.strip() == "{":
            raise UsageError(
                f"{here}: a JSON document over several lines, expected one node per line; a "
                "baseline.json is read by anubis history import superbench-baseline"
            )
        row = _row(_object(line, here), here)
        if row.node in rows:
            raise UsageError(
                f'{here}: node "{row.node}" is already on line {seen[row.node]}: one line per '
                "node; import the results of each run separately"
            )
        rows[row.node], seen[row.node] = row, number
    if not rows:
        raise UsageError(f"{where}: no results in it, expected a JSON object per node")
    return tuple(rows.values())


def parse_baseline(text: str, where: str) -> dict[str, object]:
    baseline = _object(text, where)
    if "node" in baseline or not baseline:
        content = "one node's results" if baseline else "empty"
        raise UsageError(f"{where}: {content}, expected a baseline: metric names with their means")
    return baseline


def number(value: object) -> float | None:
    """Return a finite number, or None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def comparable(value: object) -> float | None:
    """Return a finite number above 0, or None."""
    finite = number(value)
    return finite if finite is not None and finite > 0 else None


def describe_value(value: object) -> str:
    """Describe a foreign value in a sentence."""
    match value:
        case str():
            return f'the text "{cut(value)}"'
        case list():
            return "a list"
        case dict():
            return "a table"
        case float() | int() if not isinstance(value, bool):
            return f"{value:g}" if number(value) is not None else cut(str(value))
        case _:
            return json.dumps(value, default=str)


def cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}..."


def _text(path: Path) -> str:
    if {".csv", ".tsv"} & set(path.suffixes):
        raise UsageError(
            f'"{path}" is a table, expected JSON as SuperBench writes it: anubis history import '
            "csv reads tables of any tool"
        )
    return read_text(path, UsageError)


def _object(text: str, where: str) -> dict[str, object]:
    try:
        document = json_value(text, _unique)
    except json.JSONDecodeError as error:
        at = f"{error.msg} at character {error.pos + 1}"
        raise UsageError(f"{where}: not a complete JSON object ({at}); was it cut off?") from None
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{where}: expected a JSON object, found {describe_value(document)}")
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is written twice: keep the one you mean')
    return table


def _row(document: dict[str, object], here: str) -> NodeResults:
    node = document.pop("node", None)
    if not isinstance(node, str) or not node.strip():
        problem = "it is missing" if node is None else f"found {describe_value(node)}"
        raise UsageError(f'{here}: "node" must be the name of a node, {problem}')
    return NodeResults(node, document)


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
