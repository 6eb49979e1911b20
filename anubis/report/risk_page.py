"""Pages of risk models: how good they are, and one model's forecast for nodes. They need nothing
else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from anubis.core.amounts import DAY_H
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Statuses
from anubis.lab.study.trials import SeedMean, estimate
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.evaluation import CALIBRATED_H, Evaluation
from anubis.models.risk.forecast import HORIZON_H, Forecast
from anubis.models.risk.models import MODELS
from anubis.models.risk.score_summary import Score
from anubis.report.page import page
from anubis.report.risk import (
    COLUMNS,
    SPLITS,
    STATUS_FIGURES,
    most_at_risk,
    node_head,
    node_rows,
    rows,
    scores_by_model,
    scores_by_split,
    status_rows,
    status_words,
)
from anubis.report.svg import (
    Axis,
    Chart,
    add,
    apart,
    cut,
    round_down,
    round_up,
    serialize,
    title,
    whole_steps,
)

LOOKING = {model.name for model in MODELS if model.looks}
UNDRAWN = ("random",)  # splits that decide nothing have their table only
NAMED = 5  # curves with the node's name beside them
LETTERS = 16  # of a name beside its curve
SMALLEST = 1e-3  # a share that is drawn; below, groups lie on the edge


def evaluation_page(evaluation: Evaluation, choice: ModelChoice, cluster: str) -> str:
    return page(
        "risk_evaluation",
        cluster=cluster,
        choice=choice,
        columns=COLUMNS,
        calibrated_h=CALIBRATED_H,
        left_out=evaluation.left_out,
        splits=[
            {
                "kind": kind,
                "meaning": SPLITS[kind],
                "seeds": len({score.seed for score in scored}),
                "rows": list(rows(scored)),
                "plots": [] if kind in UNDRAWN else _calibration(scored),
            }
            for kind, scored in scores_by_split(evaluation)
        ],
    )


def nodes_page(
    cluster: str,
    statuses: Statuses,
    forecast: Forecast,
    hours: Sequence[float],
    model: str,
    choice: str,
    attributes: Sequence[NodeAttributes] = (),
) -> str:
    words = status_words(statuses, attributes)
    return page(
        "risk_nodes",
        cluster=cluster,
        model=model,
        choice=choice,
        named=NAMED,
        head=node_head(hours),
        rows=list(node_rows(statuses.nodes, forecast, hours)),
        status_head=[*words, *STATUS_FIGURES],
        status_words=len(words),
        status_rows=list(status_rows(statuses, forecast, attributes)),
        curves=_curves(statuses.nodes, forecast),
    )


# --- calibration ---------------------------------------------------------------------------


Groups = list[tuple[float, SeedMean]]  # the predicted risk of each, and what was observed


def _calibration(scored: Sequence[Score]) -> list[tuple[str, str]]:
    """Draw a picture for each model that tells nodes apart, all with the same scale."""
    groups_of = {
        model: _groups(scores) for model, scores in scores_by_model(scored) if model in LOOKING
    }
    axis = _shares(
        p
        for groups in groups_of.values()
        for predicted, observed in groups
        for p in (predicted, observed.mean)
    )
    return [(model, _calibration_plot(model, groups, axis)) for model, groups in groups_of.items()]


def _groups(scored: Sequence[Score]) -> Groups:
    """Return groups of nodes, the least at risk first, with means over the seeds."""
    return [
        (
            float(np.mean([score.predicted for score in group])),
            estimate([score.found for score in group]),
        )
        for group in zip(*(score.groups for score in scored), strict=False)
    ]


def _shares(shares: Iterable[float]) -> Axis:
    """Return a logarithmic axis, as risks spread by factors."""
    positive = [share for share in shares if share > 0] or [1.0]
    begin = max(SMALLEST, round_down(min(positive)))
    end = min(1.0, max(round_up(max(positive)), 10 * begin))
    return Axis(title="predicted", begin=begin, end=end, spelled="{:.3g}".format, logarithmic=True)


def _calibration_plot(model: str, groups: Groups, axis: Axis) -> str:
    chart = Chart(width=320, height=300, across=axis, up=replace(axis, title="had an incident"))
    canvas = chart.frame(f"calibration of {model}: predicted and observed risk of ten groups")
    chart.line(canvas, [(axis.begin, axis.begin), (axis.end, axis.end)], "ideal")
    for predicted, observed in groups:
        ends = (max(axis.begin, observed.low), min(axis.end, observed.high))
        chart.line(canvas, [(predicted, end) for end in ends], "interval")
    for predicted, observed in groups:
        dot = chart.dot(canvas, (predicted, observed.mean))
        title(dot, f"predicted {predicted:.1%}, had an incident {observed.mean:.1%}")
    return serialize(canvas)


# --- nodes ---------------------------------------------------------------------------------


def _curves(nodes: Sequence[str], forecast: Forecast) -> str:
    """Draw the chance of an incident over time, a line for each node; those most at risk are
    named."""
    chances = forecast.chances_within(forecast.hours)
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
    canvas = chart.frame("chance of an incident over the days, a curve for each node")
    for row in [*np.setdiff1d(np.arange(len(nodes)), first), *first]:
        kind = "curve most" if row in first else "curve"
        points = list(zip(days.tolist(), chances[row].tolist(), strict=True))
        title(chart.line(canvas, points, kind), nodes[row])
    ends = [chart.y(float(chances[row, -1])) for row in first]
    for row, at in zip(first, apart(ends, [14.0] * len(ends), chart.height), strict=True):
        words = cut(nodes[row], LETTERS)
        add(canvas, "text", words, class_="named", x=chart.x(chart.across.end) + 6, y=at)
    return serialize(canvas)
