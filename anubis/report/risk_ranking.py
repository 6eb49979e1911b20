"""The nodes that are most likely to have an incident soon, with the reasons: as JSON Lines and as a
page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.amounts import DAY_H
from anubis.core.history.attributes import GROUPINGS, NodeAttributes
from anubis.core.history.logbook import AGE, LONG_AGO_H, VALIDATED
from anubis.core.records import Judgement
from anubis.models.risk.contributions import Carrier
from anubis.models.risk.evaluation import Evaluation
from anubis.models.risk.risk_files import ModelProvenance
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.risk import COLUMNS, SPLITS, rows, scores_by_split
from anubis.report.service_pages import path_of
from anubis.report.view import GLYPH
from anubis.text.wording import quantity

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
    middle: float  # the chance of the middle node
    half: int  # nodes that carry half of what is expected
    model: str  # empty: the base rate of all nodes
    is_assumed: bool  # no model, and no incident on which a base rate could rest
    looks: bool  # at each node
    trained_at: float | None
    origin: ModelProvenance | None
    trouble: str = ""  # why a model that is there cannot be used


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


def risk_page(glances: Sequence[RiskGlance], as_of: float) -> str:
    return page(
        "service_risk",
        here="/risk",
        as_of=as_of,
        clusters=glances,
        expected=sum(glance.expected for glance in glances),
        total=sum(glance.total for glance in glances),
        horizon_h=glances[0].horizon_h if glances else DAY_H,
        is_modelled=bool(glances) and all(glance.model for glance in glances),
        is_assumed=bool(glances) and all(glance.is_assumed for glance in glances),
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
