"""A watch model as a table and as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.core.watch.model import WatchModel
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table

if TYPE_CHECKING:
    from rich.console import Console


SIZES = (4, 16, 1024)  # nodes, whose thresholds are shown


def origin_of(model: WatchModel) -> str:
    origin = model.origin
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    return (
        f"learned from {origin.jobs} healthy jobs ({origin.source}), seed {origin.seed},"
        f" {versions}; order of metrics: {origin.order}"
    )


def show(model: WatchModel, screen: Console) -> None:
    limits_at = [f"{size:,} nodes" for size in SIZES]
    shown = table("metric", figures=["error", "variance", *limits_at])
    for metric in _ordered_metrics(model):
        fit, limits = model.origin.fits.get(metric), model.thresholds[metric]
        learned = [f"{fit.error:.1e}", f"{fit.variance:.1e}"] if fit else ["-", "-"]
        add_row(shown, metric, *learned, *(f"{limits.value_at(size):.2f}" for size in SIZES))
    screen.print(shown)


@dataclass(frozen=True, kw_only=True)
class ThresholdLine:
    nodes: int
    score: float


@dataclass(frozen=True, kw_only=True)
class WatchModelLine:
    file: str
    source: str
    """What it was learned from."""
    is_synthetic: bool
    """Made jobs, not recorded ones."""
    jobs: int
    seed: int
    versions: Mapping[str, str]
    order: Sequence[str]
    """The order in which metrics are asked."""
    order_from: str


@dataclass(frozen=True, kw_only=True)
class ModelledMetricLine:
    metric: str
    is_asked: bool
    windows: int | None
    """Number of windows that were learned from; null if several metrics are compared as one."""
    error: float | None
    """Mean square of what is not given back of windows that were not learned from."""
    variance: float | None
    """Variance of the same windows: the error of a model that always says the same."""
    thresholds: Sequence[ThresholdLine]
    """The score that a node must exceed, by how many nodes are compared."""


def lines(model: WatchModel, file: Path) -> Iterator[str]:
    origin = model.origin
    head = WatchModelLine(
        file=str(file),
        source=origin.source,
        is_synthetic=origin.is_synthetic,
        jobs=origin.jobs,
        seed=origin.seed,
        versions=origin.versions,
        order=model.order,
        order_from=origin.order,
    )
    yield json_line("watch-model", head)
    for metric in _ordered_metrics(model):
        fit, limits = origin.fits.get(metric), model.thresholds[metric]
        fields = ModelledMetricLine(
            metric=metric,
            is_asked=metric in model.order,
            windows=fit.windows if fit else None,
            error=fit.error if fit else None,
            variance=fit.variance if fit else None,
            thresholds=[
                ThresholdLine(nodes=nodes, score=score)
                for nodes, score in zip(limits.nodes, limits.scores, strict=True)
            ],
        )
        yield json_line("modelled-metric", fields)


def _ordered_metrics(model: WatchModel) -> tuple[str, ...]:
    """Return the metrics that the model looks at, then the others."""
    return (*model.order, *sorted(set(model.thresholds) - set(model.order)))
