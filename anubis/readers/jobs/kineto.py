"""Times of training steps: from tables (CSV) of what each worker did, from when and for how long;
and from traces of torch.profiler (Kineto's JSON), one of each rank.

A worker's own time is what it recorded of work. Time that is neither that nor communication may be
anything; a table without spans of work gives no own time. Collectives of workers of one stage end
together, so the time in them shows which worker came last; sends and receives are left to the
pipeline.

In a trace on GPUs kernels count, those of NCCL as communication; without them PyTorch's operations,
waiting for data, and the calls of collectives. Kernels of computation are also kept one by one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, median

from anubis.core.diagnose.evidence import Collector, JobEvidence, KernelStep, RankMap, StepTime
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.ranks import NamedGroup, pipeline_stages
from anubis.readers.jobs.trace_reader import Broken, TraceReader
from anubis.text.files import json_value, read_text
from anubis.text.tables import Table, open_table, parse_table

WHOLE = "step"  # a span that is the step itself
NO_WORK = (
    "the trace has no spans of computation: ranks that work longer than their peers cannot be found"
)
NO_STAGES = (
    "the trace has sends and receives and states no stages: ranks that work longer may have more to"
    " do (--ranks FILE with a column stage)"
)
COLUMNS = ("rank", "step", "optype", "start_ts", "duration")
MOST_ROWS = 5_000_000  # thousands of steps of hundreds of ranks
_MESSAGE = re.compile(r"send|recv|receive", re.IGNORECASE)
_COLLECTIVE = re.compile(
    r"reduce|gather|scatter|broadcast|all.?to.?all|barrier|sync", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    operation: str
    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s

    @property
    def is_collective(self) -> bool:
        return bool(_COLLECTIVE.search(self.operation)) and not _MESSAGE.search(self.operation)

    @property
    def is_communication(self) -> bool:
        return bool(_COLLECTIVE.search(self.operation) or _MESSAGE.search(self.operation))

    @property
    def is_message(self) -> bool:
        return bool(_MESSAGE.search(self.operation))

    @property
    def is_work(self) -> bool:
        return not self.is_communication and self.operation != WHOLE


SpansOfSteps = Mapping[tuple[int, int], list[TraceSpan]]  # of a rank and a step


def read_step_table(path: Path) -> JobEvidence:
    with open_table(path, EvidenceError, most_lines=MOST_ROWS) as table:
        return _evidence(table)


def parse_step_table(text: str, where: str) -> JobEvidence:
    return _evidence(parse_table(text, where, EvidenceError, most_lines=MOST_ROWS))


def _evidence(table: Table) -> JobEvidence:
    spans: dict[tuple[int, int], list[TraceSpan]] = {}
    stages: dict[int, int] = {}
    table.require(*COLUMNS)
    for row in table:
        rank = table.whole(row, "rank")
        if table.cell(row, "stage"):
            stages[rank] = table.whole(row, "stage")
        span = TraceSpan(
            escape_line(table.cell(row, "optype")[:80]),
            table.seconds(row, "start_ts"),
            table.seconds(row, "duration"),
        )
        spans.setdefault((rank, table.whole(row, "step")), []).append(span)
    if not spans:
        raise EvidenceError(f"{table.where}: no steps")
    return JobEvidence(
        collectors=frozenset({Collector.STEPS}),
        ranks=RankMap(stages=stages),
        steps=tuple(step_times(spans, stages)),
        gaps=gaps_of(spans, stages),
    )


def gaps_of(spans: SpansOfSteps, stages: Mapping[int, int]) -> dict[Collector, str]:
    if not _is_comparable(spans, stages):
        return {Collector.STEPS: NO_STAGES}
    return {} if _has(spans, "is_work") else {Collector.STEPS: NO_WORK}


def _has(spans: SpansOfSteps, trait: str) -> bool:
    return any(getattr(span, trait) for of_step in spans.values() for span in of_step)


def _is_comparable(spans: SpansOfSteps, stages: Mapping[int, int]) -> bool:
    """Return whether it is known which ranks do the same work: without messages all do."""
    return bool(stages) or not _has(spans, "is_message")


# --- what it means -------------------------------------------------------------------------------


def step_times(spans: SpansOfSteps, stages: Mapping[int, int]) -> Iterator[StepTime]:
    """Yield for each rank and step how long it took, how long the rank worked, and how its time in
    collectives compares with the mean of its stage."""
    is_recorded = _has(spans, "is_work") and _is_comparable(spans, stages)
    waited: dict[tuple[int, int], float] = {}
    of_stage: dict[tuple[int, int], list[float]] = {}
    for (rank, step), spans_of_step in spans.items():
        waited[rank, step] = sum(span.duration_s for span in spans_of_step if span.is_collective)
        of_stage.setdefault((stages.get(rank, 0), step), []).append(waited[rank, step])
    for (rank, step), spans_of_step in sorted(spans.items()):
        stage = stages.get(rank, 0)
        group = of_stage[stage, step]
        duration = max(span.end_s for span in spans_of_step) - min(
            span.start_s for span in spans_of_step
        )
        yield StepTime(
            rank=rank,
            step=step,
            duration_s=duration,
            own_s=covered_s(span for span in spans_of_step if span.is_work)
            if is_recorded
            else None,
            communicator=f"stage {stage}",
            collective_s=waited[rank, step] if len(group) > 1 else None,
            group_s=fmean(group) if len(group) > 1 else None,
        )


def covered_s(spans: Iterable[TraceSpan]) -> float:
    """Return the seconds that at least one of the spans covers."""
    total, end = 0.0, -math.inf
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.end_s > end:
            total += span.end_s - max(span.start_s, end)
            end = span.end_s
    return total


MOST_RANKS = 4096  # traces are large
LEAST_SHARE = 0.01  # of a step's time in kernels: shorter ones say little
MOST_GRIDS = 64  # of one kernel in a step
WORK = "work"
NO_RANKS = RankMap()
RANK = re.compile(r"rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
STEP = re.compile(r"ProfilerStep#(\d{1,9})")
KERNEL = re.compile(r"nccl(?:Dev)?Kernel", re.IGNORECASE)
CALL = re.compile(r"(?:gloo|nccl):")
OPERATION = re.compile(r"aten::|enumerate\(DataLoader\)")


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    spans: Mapping[tuple[int, int], list[TraceSpan]]  # by rank and step
    groups: tuple[NamedGroup, ...]
    kernels: tuple[KernelStep, ...] = ()


def read_traces(folder: Path, ranks: RankMap = NO_RANKS) -> JobEvidence:
    """Read all traces of a folder: `*.json`, gzipped or not. One that cannot be read is a gap; if
    none can, that is an error."""
    try:
        paths = sorted(path for path in folder.iterdir() if ".json" in path.suffixes)
    except OSError as cause:
        raise EvidenceError(f'cannot read "{folder}": {cause.strerror}') from None
    spans: dict[tuple[int, int], list[TraceSpan]] = {}
    broken = Broken()
    groups: list[NamedGroup] = []
    kernels: list[KernelStep] = []
    for of_file in broken.read(paths[:MOST_RANKS], _read):
        spans.update(of_file.spans)
        kernels.extend(of_file.kernels)
        groups.extend(of_file.groups)
    if not spans:
        raise broken.error(f'"{folder}" has no traces with steps, expected *.json of a profiler')
    stages = ranks.stages or pipeline_stages(groups)
    return JobEvidence(
        collectors=frozenset({Collector.STEPS}),
        ranks=RankMap(stages=stages),
        steps=tuple(step_times(spans, stages)),
        kernels=tuple(kernels),
        gaps={**gaps_of(spans, stages), **broken.gaps(Collector.STEPS)},
    )


def _read(path: Path) -> RankTrace:
    named = RANK.search(path.name)
    rank = int(named[1]) if named else None
    return parse_trace(read_text(path, EvidenceError), f'"{path}"', rank)


def parse_trace(text: str, where: str, rank_of_file: int | None = None) -> RankTrace:
    """Return spans by rank and step: the step itself, and the communication within it."""
    try:
        document = json_value(text)
    except ValueError as cause:
        raise EvidenceError(f"{where} is no JSON: {escape_line(str(cause))[:200]}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise EvidenceError(f"{where} is no trace of a profiler: it has no list of traceEvents")
    information = document.get("distributedInfo")
    rank = information.get("rank") if isinstance(information, dict) else rank_of_file
    if type(rank) is not int or not 0 <= rank < 1_000_000:
        raise EvidenceError(f"{where}: neither its distributedInfo nor its name states a rank")
    named = list(_spans(events))
    on_device = list(_spans(event for event in events if _is_on_device(event)))
    kernels = [span for span in named if KERNEL.search(span.operation)]
    calls = kernels or [span for span in named if CALL.match(span.operation)]
    work = [span for span in on_device if not KERNEL.search(span.operation)]
    work = work or [span for span in named if OPERATION.match(span.operation)]
    groups = tuple(_groups(rank, information))
    return RankTrace(
        spans=dict(_steps(rank, named, calls, work)),
        groups=groups,
        kernels=tuple(_kernel_steps(rank, named, events)),
    )


def _groups(rank: int, information: object) -> Iterator[NamedGroup]:
    """Yield the groups of ranks that a trace lists, and always one of the rank without a name."""
    yield NamedGroup(rank=rank, name="", members=())
    listed = information.get("pg_config") if isinstance(information, dict) else None
    for group in listed if isinstance(listed, list) else ():
        if isinstance(group, dict):
            members = tuple(map(int, re.findall(r"\d{1,7}", str(group.get("ranks", "")))))
            name = f"{group.get('pg_desc', group.get('desc', ''))} {group.get('pg_name', '')}"
            yield NamedGroup(rank=rank, name=name, members=members[:MOST_RANKS])


def _is_on_device(event: object) -> bool:
    return isinstance(event, dict) and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def _kernel_steps(
    rank: int, named: Iterable[TraceSpan], events: Iterable[object]
) -> Iterator[KernelStep]:
    """Yield times of the kernels that take most of the time."""
    steps = sorted(
        (span.start_s, span.end_s, int(match[1]))
        for span in named
        if (match := STEP.fullmatch(span.operation))
    )
    times: dict[tuple[int, str], dict[str, list[float]]] = {}
    for event in events:
        if not isinstance(event, dict) or event.get("cat") != "kernel":
            continue
        arguments = event.get("args")
        grid = arguments.get("grid") if isinstance(arguments, dict) else ""
        for span in _spans([event]):
            place = bisect_right(steps, (span.start_s, math.inf, 0)) - 1
            if place >= 0 and span.start_s < steps[place][1] and not KERNEL.search(span.operation):
                of_name = times.setdefault((steps[place][2], span.operation), {})
                of_name.setdefault(str(grid)[:80], []).append(span.duration_s)
    whole_s = {step: 0.0 for _, _, step in steps}
    for (step, _), of_name in times.items():
        whole_s[step] += sum(map(sum, of_name.values()))
    for (step, name), of_name in times.items():
        if sum(map(sum, of_name.values())) >= LEAST_SHARE * whole_s[step]:
            for grid, took in islice(of_name.items(), MOST_GRIDS):
                yield KernelStep(
                    rank=rank,
                    step=step,
                    name=name,
                    grid=grid,
                    typical_s=median(took),
                    total_s=sum(took),
                )


def _spans(events: Iterable[object]) -> Iterator[TraceSpan]:
    for event in events:
        if (
            isinstance(event, dict)
            and event.get("ph") == "X"
            and isinstance(event.get("name"), str)
        ):
            start, duration = _seconds(event.get("ts")), _seconds(event.get("dur"))
            if start is not None and duration is not None:
                yield TraceSpan(event["name"][:200], start, duration)


def _seconds(value: object) -> float | None:
    """Convert microseconds; None if the value is no duration."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        return None
    return float(value) / 1e6  # type: ignore[arg-type]


def _steps(
    rank: int, named: Iterable[TraceSpan], calls: Iterable[TraceSpan], work: Iterable[TraceSpan]
) -> Iterator[tuple[tuple[int, int], list[TraceSpan]]]:
    steps: Mapping[int, TraceSpan] = {
        int(match[1]): span for span in named if (match := STEP.fullmatch(span.operation))
    }
    spans = [*map(_all, calls), *(TraceSpan(WORK, span.start_s, span.duration_s) for span in work)]
    spans.sort(key=lambda span: span.start_s)
    starts = [span.start_s for span in spans]
    for number, step in steps.items():
        inside = spans[bisect_left(starts, step.start_s) : bisect_left(starts, step.end_s)]
        yield (rank, number), [TraceSpan(WHOLE, step.start_s, step.duration_s), *inside]


def _all(span: TraceSpan) -> TraceSpan:
    """Return a collective under one name, whatever its kernel is called; sends and receives keep
    their name."""
    is_message = re.search(r"send|recv", span.operation, re.IGNORECASE)
    name = span.operation if is_message else "gather"
    return TraceSpan(name, span.start_s, span.duration_s)


TRACE = TraceReader(
    place="traces",
    words="traces of steps",
    help="How long its steps took: a folder of Kineto's traces, or a CSV file.",
    brings=(Collector.STEPS,),
    order=6,
    read=lambda path, context: (
        read_traces(path, context.ranks) if path.is_dir() else read_step_table(path)
    ),
)
