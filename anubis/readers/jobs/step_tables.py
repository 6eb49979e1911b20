"""Traces of training steps as tables (CSV): what each worker did, from when and for how long.

A worker's own time is what it recorded of work. Time that is neither that nor communication may be
anything; a table without spans of work gives no own time. Collectives of workers of one stage
end together, so the time in them shows which worker came last; sends and receives are left to the
pipeline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from anubis.core.diagnose.evidence import Collector, JobEvidence, RankMap, StepTime
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
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


def read_step_table(path: Path, job: str = "", at: float = 0.0) -> JobEvidence:
    with open_table(path, EvidenceError, most_lines=MOST_ROWS) as table:
        return _evidence(table, job, at)


def parse_step_table(text: str, where: str, *, job: str = "", at: float = 0.0) -> JobEvidence:
    return _evidence(parse_table(text, where, EvidenceError, most_lines=MOST_ROWS), job, at)


def _evidence(table: Table, job: str, at: float) -> JobEvidence:
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
        job=job,
        at=at,
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
