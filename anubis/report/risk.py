"""Risk models and their forecasts, as tables and as JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.logbook import AGE, LONG_AGO_H, RATES
from anubis.core.history.status import Statuses
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.evaluation import CALIBRATED_H, Evaluation
from anubis.models.risk.forecast import HORIZON_H, Forecast
from anubis.models.risk.score_summary import Score
from anubis.models.risk.splits import SplitKind
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.text.wording import figure

if TYPE_CHECKING:
    from rich.console import Console


SPLITS: dict[SplitKind, str] = {
    "random": "rows at random, the same nodes in both parts: only for comparison with the paper",
    "node": "nodes that were not used in training",
    "time": "times after the training data",
    "fleet": "the nodes you named, by models trained on all others",
}
WIDE = 120  # columns of a terminal that has room for the spread over the seeds
SHOWN_H = (24.0, 168.0, 720.0)  # a day, a week, a month
CURVE = 33  # hours of a node's curve in JSON: every fourth
STATUS_WORDS = ("node", "hours since the last incident")
STATUS_FIGURES = ("up h", "total up h", "incidents")
ATTRIBUTES = "attributes (incidents beside all)"


@dataclass(frozen=True, kw_only=True)
class NodeRisks:
    cluster: str
    statuses: Statuses  # of the nodes as they are now
    forecast: Forecast  # a row for each of them
    model: str
    choice: str  # why this model
    attributes: tuple[NodeAttributes, ...]  # of the same nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.statuses.nodes


# --- an evaluation -------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A figure of an evaluation, wherever it is shown."""

    title: str
    value: Callable[[Score], float | None]
    shown: str
    help: str


COLUMNS = (
    Column(
        "accuracy",
        lambda score: score.accuracy.relative,
        ".1%",
        "1 - |p - t| / max(p, t) for the expected and the true hours to the next incident, both at "
        f"most {HORIZON_H:g}, also if no further incident came; the paper's Table 3",
    ),
    Column(
        "over H", lambda score: score.accuracy.over_horizon, ".1%", f"1 - |p - t| / {HORIZON_H:g} h"
    ),
    Column(
        "on observed",
        lambda score: score.accuracy.on_observed,
        ".1%",
        "accuracy if an incident followed",
    ),
    Column(
        "concordance",
        lambda score: score.concordance,
        ".3f",
        "of two nodes, how often the one that had its incident first had the higher risk at that "
        "time; 0.5 is chance",
    ),
    Column(
        "Brier",
        lambda score: score.brier,
        ".4f",
        f"mean squared error of the probabilities over {HORIZON_H:g} h; lower is better",
    ),
    Column(
        "slope",
        lambda score: score.slope,
        ".2f",
        f"calibration at {CALIBRATED_H:g} h: 1 if risks differ as much as they really do, below"
        f" 1 if the differences are exaggerated; a dash if all nodes have the same risk",
    ),
)


def show_evaluation(evaluation: Evaluation, choice: ModelChoice, console: Console) -> None:
    from rich.text import Text

    for kind, scored in scores_by_split(evaluation):
        console.print(Text(f"by {kind}: {SPLITS[kind]}", style="bold"))
        wide = console.width >= WIDE
        figures = [column.title for column in COLUMNS]
        shown = table("model", figures=figures, gap=3 if wide else 2)
        for row in rows(scored, spread=wide):
            add_row(shown, *row)
        console.print(shown)
        console.print()
    for sentence in evaluation.left_out:
        console.print(Text(f"left out: {sentence}"))
    first, *refused = choice.sentences()
    console.print(Text(first, style="bold"))
    for sentence in refused:
        console.print(Text(sentence))


def scores_by_split(evaluation: Evaluation) -> Iterator[tuple[SplitKind, list[Score]]]:
    for kind in SPLITS:
        if scored := [score for score in evaluation.scores if score.split == kind]:
            yield kind, scored


def scores_by_model(scored: Sequence[Score]) -> Iterator[tuple[str, list[Score]]]:
    for model in dict.fromkeys(score.model for score in scored):
        yield model, [score for score in scored if score.model == model]


def rows(scored: Sequence[Score], spread: bool = True) -> Iterator[list[str]]:
    """Yield for each model its name and its figures."""
    for model, scores in scores_by_model(scored):
        yield [
            model,
            *(mean(map(column.value, scores), column.shown, spread) for column in COLUMNS),
        ]


def mean(values: Iterable[float | None], shown: str, spread: bool = True) -> str:
    """Format the mean over the seeds, with the spread if there are several."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "-"
    middle = format(float(np.mean(defined)), shown)
    return (
        middle
        if len(defined) < 2 or not spread
        else f"{middle} ± {format(float(np.std(defined, ddof=1)), shown)}"
    )


@dataclass(frozen=True, kw_only=True)
class LeftOutLine:
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChoiceLine:
    cluster: str


def evaluation_lines(evaluation: Evaluation, choice: ModelChoice, cluster: str) -> Iterator[str]:
    """Yield a line for each model, split and seed, with the data of its calibration plot."""
    for score in evaluation.scores:
        yield json_line("score", score)
    for sentence in evaluation.left_out:
        yield json_line("left-out", LeftOutLine(reason=sentence))
    yield json_line("choice", choice, ChoiceLine(cluster=cluster))


# --- nodes ---------------------------------------------------------------------------------


def show_nodes(risks: NodeRisks, console: Console) -> None:
    node, *figures = node_head()
    shown = table(node, figures=figures)
    for row in node_rows(risks):
        add_row(shown, *row)
    console.print(shown)
    console.print()
    facts = table(*status_words(risks), figures=STATUS_FIGURES)
    for row in status_rows(risks):
        add_row(facts, *row)
    console.print(facts)


def node_head() -> list[str]:
    return ["node", *(f"within {hour:g} h" for hour in SHOWN_H), "expected h", "median h"]


def most_at_risk(forecast: Forecast) -> list[int]:
    """Sort the rows of a forecast by the chance of an incident on the next day."""
    chance = forecast.chances_within(np.array([24.0]))[:, 0]
    return [int(row) for row in np.argsort(-chance, kind="stable")]


def node_rows(risks: NodeRisks) -> Iterator[list[str]]:
    forecast = risks.forecast
    chances = forecast.chances_within(np.array(SHOWN_H))
    expected_h, median_h = forecast.expected_h(), forecast.median_h()
    for i in most_at_risk(forecast):
        yield [
            risks.statuses.nodes[i],
            *(f"{chance:.2%}" for chance in chances[i]),
            figure(float(expected_h[i])),
            figure(float(median_h[i])),
        ]


def status_words(risks: NodeRisks) -> tuple[str, ...]:
    """Return the headings of the columns that are not figures."""
    return (*STATUS_WORDS, ATTRIBUTES) if any(_attributes_in_words(risks)) else STATUS_WORDS


def status_rows(risks: NodeRisks) -> Iterator[list[str]]:
    """Yield what the model knows of each node, in the order of `node_rows`."""
    in_words = _attributes_in_words(risks)
    for row in most_at_risk(risks.forecast):
        status = status_of(risks.statuses, row)
        words = [in_words[row] or "-"] if any(in_words) else []
        up = (figure(status.get(name)) for name in ("up_h", "total_up_h"))
        count = format(status["incidents"], ",.0f") if "incidents" in status else "-"
        yield [risks.statuses.nodes[row], _last_incidents(status), *words, *up, count]


def _attributes_in_words(risks: NodeRisks) -> list[str]:
    """Describe each node as `rack r12 (2.4), sku h100, 9,000 h old`; a rate if the model knows
    it."""
    return [
        ", ".join(filter(None, _attributes_of(status_of(risks.statuses, row), of_node)))
        for row, of_node in enumerate(risks.attributes)
    ]


def _attributes_of(status: Mapping[str, float], attributes: NodeAttributes) -> Iterator[str]:
    for covariate, grouping in RATES.items():
        if name := getattr(attributes, grouping):
            rate = f" ({status[covariate]:.2f})" if covariate in status else ""
            yield f"{grouping} {name}{rate}"
    if AGE in status:
        yield f"{status[AGE]:,.0f} h old"


def status_of(statuses: Statuses, row: int) -> dict[str, float]:
    return dict(zip(statuses.covariates, statuses.values[row].tolist(), strict=True))


def _last_incidents(status: Mapping[str, float]) -> str:
    """Name each category of which the node had an incident, the latest first."""
    met = {
        category: status[f"since_incident_h:{category}"]
        for quantity, _, category in (name.partition(":") for name in status)
        if quantity == "since_incident_h" and category and status.get(f"incidents:{category}")
    }
    latest_first = sorted(met.items(), key=lambda entry: entry[1])
    return ", ".join(f"{category} {_ago(hours)}" for category, hours in latest_first) or "-"


def _ago(hours: float) -> str:
    return figure(hours) if hours < LONG_AGO_H else f"over {LONG_AGO_H:,.0f}"


@dataclass(frozen=True, kw_only=True)
class Chance:
    hours: float
    p: float


@dataclass(frozen=True, kw_only=True)
class ChanceCurve:
    hours: Sequence[float]
    p: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class RiskLine:
    cluster: str
    node: str
    model: str
    within: Sequence[Chance]
    """The chance of an incident within so many hours."""
    expected_h: float | None
    """null: never within what is known."""
    median_h: float | None
    curve: ChanceCurve
    status: Mapping[str, float | None]
    """What the model knows of the node."""
    attributes: Mapping[str, str | float]
    """What an import said of the node."""


def node_lines(risks: NodeRisks) -> Iterator[str]:
    """Yield a line for each node, with its curve."""
    forecast = risks.forecast
    chances = forecast.chances_within(np.array(SHOWN_H))
    expected_h, median_h = forecast.expected_h(), forecast.median_h()
    curve_h = forecast.hours[:: max(1, forecast.hours.size // CURVE)]
    curves = forecast.chances_within(curve_h)
    for i, node in enumerate(risks.statuses.nodes):
        within = zip(SHOWN_H, chances[i].tolist(), strict=True)
        line = RiskLine(
            cluster=risks.cluster,
            node=node,
            model=risks.model,
            within=[Chance(hours=hour, p=p) for hour, p in within],
            expected_h=float(expected_h[i]),
            median_h=float(median_h[i]),
            curve=ChanceCurve(hours=curve_h.tolist(), p=curves[i].tolist()),
            status=status_of(risks.statuses, i),
            attributes={
                name: value
                for name, value in vars(risks.attributes[i]).items()
                if name != "node" and value not in (None, "")
            },
        )
        yield json_line("risk", line)
