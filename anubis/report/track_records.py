"""The findings of each benchmark so far, as a table, as JSON Lines and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anubis.core.history.defects import TrackRecord
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.screen_tables import add_row, table
from anubis.text.wording import share

if TYPE_CHECKING:
    from rich.console import Console


FIGURES = ("nodes found", "by it alone", "coverage", "tried", "repeats", "lowest")
LEGEND = (
    "Nodes found: on which it found a defect; by it alone: one that no other benchmark found. "
    "Coverage: its share of all known defects, by which the Selector chooses; tried: on how many "
    "of these it ran. Repeats: how alike the healthy are, the mean of its metrics, and the lowest."
)


def rows(records: Sequence[TrackRecord]) -> Iterator[list[str]]:
    for record in records:
        repeats = record.repeatability
        yield [
            record.benchmark,
            f"{len(record.nodes):,}",
            f"{len(record.alone):,}",
            "-" if record.coverage is None else f"{record.coverage:.1%}",
            f"{record.tried:,}",
            share(repeats.mean if repeats else None),
            share(repeats.lowest if repeats else None),
        ]


def show(records: Sequence[TrackRecord], console: Console) -> None:
    lines = table("benchmark", figures=FIGURES, gap=2)
    for row in rows(records):
        add_row(lines, *row)
    console.print(lines)
    console.print(f"\n{LEGEND}", style="dim", highlight=False)


@dataclass(frozen=True, kw_only=True)
class TrackRecordLine:
    benchmark: str
    nodes: Sequence[str]
    """Nodes with a defect that it found."""
    alone: Sequence[str]
    """Nodes with a defect that only it found."""
    defects: int
    tried: int
    """Defects on whose node it was measured at that time."""
    coverage: float | None
    """Its share of all known defects."""
    repeatability: float | None
    lowest: float | None
    lowest_metric: str | None


def json_lines(records: Sequence[TrackRecord]) -> Iterator[str]:
    for record in records:
        repeats = record.repeatability
        fields = TrackRecordLine(
            benchmark=record.benchmark,
            nodes=record.nodes,
            alone=record.alone,
            defects=record.defects,
            tried=record.tried,
            coverage=record.coverage,
            repeatability=repeats.mean if repeats else None,
            lowest=repeats.lowest if repeats else None,
            lowest_metric=repeats.metric if repeats else None,
        )
        yield json_line("track-record", fields)


def render(records: Sequence[TrackRecord]) -> str:
    return page("track_records", head=("benchmark", *FIGURES), rows=rows(records), legend=LEGEND)
