"""Pages of risk models: how good they are, one model's forecast for nodes, and the nodes that are
most likely to have an incident soon, with the reasons, also as JSON Lines. They need nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.amounts import DAY_H
from anubis.core.history.attributes import GROUPINGS, NodeAttributes
from anubis.core.history.logbook import AGE, LONG_AGO_H, VALIDATED
from anubis.core.records import Judgement
from anubis.lab.study.trials import SeedMean, estimate
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.covariates import Carrier
from anubis.models.risk.evaluation import CALIBRATED_H, Evaluation
from anubis.models.risk.forecast import HORIZON_H, Forecast
from anubis.models.risk.models import MODELS
from anubis.models.risk.risk_files import ModelProvenance
from anubis.models.risk.score_summary import Score
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.risk import (
    COLUMNS,
    SPLITS,
    STATUS_FIGURES,
    NodeRisks,
    most_at_risk,
    node_head,
    node_rows,
    rows,
    scores_by_model,
    scores_by_split,
    status_rows,
    status_words,
)
from anubis.report.service_pages import path_of
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
from anubis.report.view import GLYPH
from anubis.text.wording import quantity

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


def nodes_page(risks: NodeRisks) -> str:
    words = status_words(risks)
    return page(
        "risk_nodes",
        finding=finding(risks),
        cluster=risks.cluster,
        model=risks.model,
        choice=risks.choice,
        named=NAMED,
        head=node_head(),
        rows=list(node_rows(risks)),
        status_head=[*words, *STATUS_FIGURES],
        status_words=len(words),
        status_rows=list(status_rows(risks)),
        curves=_curves(risks.statuses.nodes, risks.forecast),
    )


def finding(risks: NodeRisks) -> str:
    """Return how many incidents are expected within a day, and on which node one is likeliest."""
    chances = risks.forecast.chances_within(np.array([DAY_H]))[:, 0]
    if not len(chances):
        return "No node is known, so no incident is expected"
    expected = f"{risks.forecast.hazard_at(np.array([DAY_H])).sum():.2g}"
    number = "1 incident is" if expected == "1" else f"{expected} incidents are"
    among = f"{number} expected within a day on {quantity(len(chances), 'node')}"
    if len(chances) == 1 or np.ptp(chances) == 0:
        return f"{among}, with a chance of {chances[0]:.2%} on each"
    worst = int(np.argmax(chances))
    return (
        f"{among}; the likeliest is on {risks.nodes[worst]}, with a chance of {chances[worst]:.2%}"
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


CARRIERS_NAMED = 2  # of a node: fit into a cell
SHOWN = 50  # nodes
NOTABLE = 0.9  # of the chance: what lowers it less is not worth a word


@dataclass(frozen=True, kw_only=True)
class NodeAtRisk:
    node: str
    chance: float
    judgement: Judgement  # as a gate has it that runs nothing
    carriers: tuple[Carrier, ...]  # what lowers it most first
    status: Mapping[str, float]
    attributes: NodeAttributes


@dataclass(frozen=True, kw_only=True)
class RiskGlance:
    cluster: str
    horizon_h: float
    nodes: tuple[NodeAtRisk, ...]  # the likeliest first; none without a model
    total: int
    expected: float  # incidents within the horizon
    middle: float  # the chance of the middle node, by incidents alone
    half: int  # nodes that carry half of what is expected
    model: str  # empty: the base rate of all nodes
    is_assumed: bool  # no model, and no incident on which a base rate could rest
    looks: bool  # at each node
    trained_at: float | None
    origin: ModelProvenance | None
    trouble: str = ""  # why a model that is there cannot be used
    unanswered: int = 0  # nodes that owe an answer, which count with 1 whatever the others do


@dataclass(frozen=True, kw_only=True)
class CarrierFields:
    about: str
    """up, incidents, validated, age, rack, cage, sku, or a category of incidents."""
    status: Mapping[str, float]
    """What the model knows of the node about it."""
    p_without: float
    """The chance if this were as it is for the middle one of all nodes."""


@dataclass(frozen=True, kw_only=True)
class NodeRiskLine:
    cluster: str
    node: str
    hours: float
    p: float
    """The chance of an incident within so many hours."""
    model: str
    trained_at: float | None
    """The end of the data that it was trained on; null: no model, or one that does not say."""
    carried_by: Sequence[CarrierFields]
    """What carries the chance, most first; none where the model gives all nodes the same."""


def node_line(glance: RiskGlance, at_risk: NodeAtRisk) -> str:
    fields = NodeRiskLine(
        cluster=glance.cluster,
        node=at_risk.node,
        hours=glance.horizon_h,
        p=at_risk.chance,
        model=glance.model,
        trained_at=glance.trained_at,
        carried_by=[_carrier_fields(carrier, at_risk) for carrier in at_risk.carriers],
    )
    return json_line("node-risk", fields)


def _carrier_fields(carrier: Carrier, at_risk: NodeAtRisk) -> CarrierFields:
    return CarrierFields(
        about=carrier.about,
        status={name: at_risk.status[name] for name in carrier.covariates},
        p_without=carrier.without,
    )


def risk_page(glances: Sequence[RiskGlance], as_of: float, simulated: str = "") -> str:
    return page(
        "service_risk",
        here="/risk",
        as_of=as_of,
        simulated=simulated,
        clusters=glances,
        expected=sum(glance.expected for glance in glances),
        total=sum(glance.total for glance in glances),
        horizon_h=glances[0].horizon_h if glances else DAY_H,
        is_modelled=bool(glances) and all(glance.model for glance in glances),
        assumed=sum(glance.expected for glance in glances if glance.is_assumed),
        is_assumed=bool(glances) and all(glance.is_assumed for glance in glances),
        likeliest=likeliest(glances),
        foremost=foremost,
        shown=SHOWN,
        notable=notable,
        in_words=describe_carrier,
        amount=amount,
        per_cent=percent,
        columns=COLUMNS,
        judged=held_out_scores,
        glyph=GLYPH,
        path_of=path_of,
    )


def foremost(glance: RiskGlance) -> NodeAtRisk | None:
    """The node with the largest chance that a model gives, if the middle node has notably less. One
    that owes an answer has no chance of its own."""
    if not glance.looks or len(glance.nodes) <= glance.unanswered:
        return None
    first = glance.nodes[glance.unanswered]
    return first if glance.middle < NOTABLE * first.chance else None


def likeliest(glances: Iterable[RiskGlance]) -> NodeAtRisk | None:
    """The foremost of all clusters."""
    return max(filter(None, map(foremost, glances)), key=lambda node: node.chance, default=None)


def notable(at_risk: NodeAtRisk) -> list[Carrier]:
    least = NOTABLE * at_risk.chance
    return [carrier for carrier in at_risk.carriers if carrier.without < least][:CARRIERS_NAMED]


def describe_carrier(carrier: Carrier, at_risk: NodeAtRisk) -> str:
    """Return words such as `3 gpu incidents, the last 20 h ago` or `back for 5 h`."""
    status, attributes = at_risk.status, at_risk.attributes
    about = carrier.about
    if about == "up":
        return f"back for {_hours(status.get('up_h', 0.0))}"
    if about == "validated":
        return f"last validated {_hours(status[VALIDATED])} ago"
    if about == "age":
        return f"{_hours(status[AGE])} old"
    if about in GROUPINGS:
        return f"{about} {getattr(attributes, about)}, {status[f'{about}_rate']:.1f} times as many"
    return _incidents(about, status)


def _incidents(about: str, status: Mapping[str, float]) -> str:
    """Describe the incidents of one category, or of all."""
    suffix = "" if about == "incidents" else f":{about}"
    number = int(status.get(f"incidents{suffix}", 0))
    kind = "incident" if not suffix else f"{about} incident"
    ago = status.get(f"since_incident_h{suffix}", LONG_AGO_H)
    last = f", the last {_hours(ago)} ago" if number else ""
    return f"{quantity(number, kind)}{last}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours < 2 * DAY_H else f"{hours / DAY_H:,.0f} days"


def percent(chance: float) -> str:
    return f"{chance:.1%}" if chance >= 0.001 else f"{chance:.2%}"


def amount(expected: float) -> str:
    return f"{expected:,.1f}" if expected >= 1 else f"{expected:.2g}"


def held_out_scores(origin: ModelProvenance) -> Iterator[tuple[str, list[str]]]:
    """Yield scores of the model on data that it did not learn from, by what was held back."""
    evaluation = Evaluation(scores=origin.scores)
    for kind, scored in scores_by_split(evaluation):
        for row in rows(scored):
            yield SPLITS[kind], row
