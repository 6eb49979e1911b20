"""Risk models and what they foretell, as tables and as JSON Lines."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anubis.report.wording import figure
from anubis.risk.evaluation import Choice, Evaluation, Score
from anubis.risk.forecast import Forecast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SPLITS = {
    "random": "rows at random: a node stands on both sides, comparable with the paper only",
    "node": "other nodes",
    "time": "later times",
}
CURVE = 33  # hours of a node's curve in JSON: every fourth


# --- an evaluation -------------------------------------------------------------------------


def show_evaluation(evaluation: Evaluation, choice: Choice, console: Console) -> None:
    from rich.text import Text

    for split, meaning in SPLITS.items():
        scored = [one for one in evaluation.scores if one.split == split]
        if not scored:
            continue
        console.print(Text(f"by {split}: {meaning}", style="bold"))
        console.print(_scores(scored))
    for sentence in evaluation.left_out:
        console.print(Text(f"left out: {sentence}"))
    console.print(Text(choice.reason, style="bold"))


def _scores(scored: Sequence[Score]) -> Table:
    table = _table("model")
    for column in ("accuracy", "over H", "on observed", "concordance", "Brier", "slope"):
        table.add_column(column, justify="right", no_wrap=True)
    for model in dict.fromkeys(one.model for one in scored):
        mine = [one for one in scored if one.model == model]
        table.add_row(
            model,
            _mean(mine, lambda one: one.accuracy.relative, ".1%"),
            _mean(mine, lambda one: one.accuracy.over_horizon, ".1%"),
            _mean(mine, lambda one: one.accuracy.on_observed, ".1%"),
            _mean(mine, lambda one: one.concordance, ".3f"),
            _mean(mine, lambda one: one.brier, ".4f"),
            _mean(mine, lambda one: one.slope, ".2f"),
        )
    return table


def _mean(scored: Sequence[Score], what: Callable[[Score], float | None], shown: str) -> str:
    """Over the seeds, with their spread where there are several."""
    values = [value for one in scored if (value := what(one)) is not None]
    if not values:
        return "-"
    mean = format(float(np.mean(values)), shown)
    return mean if len(values) < 2 else f"{mean} ± {format(float(np.std(values, ddof=1)), shown)}"


def evaluation_lines(evaluation: Evaluation, choice: Choice) -> Iterator[str]:
    """A line for each model, split and seed, with the data of its calibration plot."""
    for one in evaluation.scores:
        yield json.dumps({"type": "score", **dataclasses.asdict(one)})
    for sentence in evaluation.left_out:
        yield json.dumps({"type": "left-out", "reason": sentence})
    yield json.dumps({"type": "choice", **dataclasses.asdict(choice)})


# --- nodes ---------------------------------------------------------------------------------


def show_nodes(
    nodes: Sequence[str], forecast: Forecast, hours: Sequence[float], console: Console
) -> None:
    """Those most at risk first."""
    table = _table("node")
    for hour in hours:
        table.add_column(f"within {hour:g} h", justify="right", no_wrap=True)
    for column in ("expected h", "median h"):
        table.add_column(column, justify="right", no_wrap=True)
    chances = forecast.within(np.array(hours))
    expected_h, median_h = forecast.expected_h(), forecast.median_h()
    for i in np.argsort(-chances[:, 0], kind="stable"):
        table.add_row(
            nodes[i],
            *(f"{chance:.2%}" for chance in chances[i]),
            figure(float(expected_h[i])),
            figure(float(median_h[i])),
        )
    console.print(table)


def node_lines(
    nodes: Sequence[str], forecast: Forecast, hours: Sequence[float], model: str
) -> Iterator[str]:
    """A line for each node, with its curve."""
    chances = forecast.within(np.array(hours))
    expected_h, median_h = forecast.expected_h(), forecast.median_h()
    curve_h = forecast.hours[:: max(1, forecast.hours.size // CURVE)]
    curves = forecast.within(curve_h)
    for i, node in enumerate(nodes):
        document = {
            "type": "risk",
            "node": node,
            "model": model,
            "within": [
                {"hours": hour, "p": float(p)} for hour, p in zip(hours, chances[i], strict=True)
            ],
            "expected_h": _finite(expected_h[i]),
            "median_h": _finite(median_h[i]),
            "curve": {"hours": curve_h.tolist(), "p": curves[i].tolist()},
        }
        yield json.dumps(document)


def _finite(value: float) -> float | None:
    """JSON has no infinity: none is "never, as far as is known"."""
    return float(value) if math.isfinite(value) else None


def _table(first: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    return table
