"""How good risk models are, and what one foretells of nodes, as pages that need nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anubis import __version__
from anubis.report.chart import Axis, Chart, round_down, round_up, whole_steps
from anubis.report.page import environment
from anubis.report.risk import (
    COLUMNS,
    SPLITS,
    by_model,
    by_split,
    most_at_risk,
    node_head,
    node_rows,
    rows,
)
from anubis.report.svg import add, apart, cut, title, written
from anubis.risk.evaluation import CALIBRATED_H, Evaluation, ModelChoice, Score
from anubis.risk.forecast import HORIZON_H, Forecast
from anubis.risk.models import MODELS
from anubis.study.trials import SeedMean, estimate

LOOKING = {model.name for model in MODELS if model.looks}
UNDRAWN = ("random",)  # splits that decide nothing have their table only
NAMED = 5  # curves with the node's name beside them
DAY_H = 24.0
LETTERS = 16
SMALLEST = 1e-3  # a share that is drawn; below, groups lie on the edge


def evaluation_page(evaluation: Evaluation, choice: ModelChoice) -> str:
    return _page(
        "risk_evaluation",
        choice=choice,
        columns=COLUMNS,
        calibrated_h=CALIBRATED_H,
        left_out=evaluation.left_out,
        splits=[
            {
                "kind": kind,
                "meaning": SPLITS[kind],
                "seeds": len({one.seed for one in scored}),
                "rows": list(rows(scored)),
                "plots": [] if kind in UNDRAWN else _calibration(scored),
            }
            for kind, scored in by_split(evaluation)
        ],
    )


def nodes_page(
    nodes: Sequence[str], forecast: Forecast, hours: Sequence[float], model: str, choice: str
) -> str:
    return _page(
        "risk_nodes",
        model=model,
        choice=choice,
        named=NAMED,
        head=node_head(hours),
        rows=list(node_rows(nodes, forecast, hours)),
        curves=_curves(nodes, forecast),
    )


def _page(template: str, **facts: Any) -> str:
    found = environment().get_template(f"{template}.html.j2")
    return found.render(version=__version__, **facts)


# --- calibration ---------------------------------------------------------------------------


Groups = list[tuple[float, SeedMean]]  # what was foretold of each, and what came


def _calibration(scored: Sequence[Score]) -> list[tuple[str, str]]:
    """A picture for each model that tells nodes apart, all of one scale."""
    found = {model: _groups(mine) for model, mine in by_model(scored) if model in LOOKING}
    axis = _shares(
        p for each in found.values() for foretold, came in each for p in (foretold, came.mean)
    )
    return [(model, _calibration_plot(model, groups, axis)) for model, groups in found.items()]


def _groups(scored: Sequence[Score]) -> Groups:
    """The least at risk first; means over the seeds."""
    return [
        (float(np.mean([one.predicted for one in each])), estimate([one.found for one in each]))
        for each in zip(*(one.groups for one in scored), strict=False)
    ]


def _shares(known: Iterable[float]) -> Axis:
    """Logarithmic, as risks are: how they spread is then the slope."""
    seen = [share for share in known if share > 0] or [1.0]
    begin = max(SMALLEST, round_down(min(seen)))
    end = min(1.0, max(round_up(max(seen)), 10 * begin))
    return Axis(title="foretold", begin=begin, end=end, spelled=lambda share: f"{share:.3g}")


def _calibration_plot(model: str, groups: Groups, axis: Axis) -> str:
    chart = Chart(width=320, height=300, across=axis, up=replace(axis, title="had an incident"))
    made = chart.frame(f"calibration of {model}: what was foretold of ten groups, and what came")
    chart.line(made, [(axis.begin, axis.begin), (axis.end, axis.end)], "ideal")
    for foretold, came in groups:
        ends = (max(axis.begin, came.low), min(axis.end, came.high))
        chart.line(made, [(foretold, end) for end in ends], "interval")
    for foretold, came in groups:
        x, y = chart.x(foretold), chart.y(came.mean)
        dot = add(made, "circle", class_="dot", r=4.5, cx=x, cy=y)
        title(dot, f"foretold {foretold:.1%}, had an incident {came.mean:.1%}")
    return written(made)


# --- nodes ---------------------------------------------------------------------------------


def _curves(nodes: Sequence[str], forecast: Forecast) -> str:
    """The chance of an incident over time, a line for each node; those most at risk are named."""
    chances = forecast.within(forecast.hours)
    days = forecast.hours / DAY_H
    first = sorted(most_at_risk(forecast)[:NAMED], key=lambda row: -chances[row, -1])
    chart = Chart(
        width=760,
        height=360,
        across=Axis(title="days from now", end=HORIZON_H / DAY_H, spelled="{:.0f}".format),
        up=Axis(
            title="chance of an incident by then",
            end=min(1.0, whole_steps(max(float(chances.max()), 0.01))),
            spelled="{:.0%}".format,
        ),
        right=130,
    )
    made = chart.frame("chance of an incident over the days, a curve for each node")
    for row in [*np.setdiff1d(np.arange(len(nodes)), first), *first]:
        kind = "curve most" if row in first else "curve"
        points = list(zip(days.tolist(), chances[row].tolist(), strict=True))
        title(chart.line(made, points, kind), nodes[row])
    ends = [chart.y(float(chances[row, -1])) for row in first]
    for row, at in zip(first, apart(ends, [14.0] * len(ends), chart.height), strict=True):
        words = cut(nodes[row], LETTERS)
        add(made, "text", words, class_="named", x=chart.x(chart.across.end) + 6, y=at)
    return written(made)
