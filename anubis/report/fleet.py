"""Nodes and campaigns at a glance, as tables and as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Validation
from anubis.core.records import CampaignKind, Judgement
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.report.view import GLYPH
from anubis.store.holds import Hold
from anubis.text.wording import moment, names, quantity

if TYPE_CHECKING:
    from rich.console import Console


PASSES_NAMED = 4  # fit into a cell of the table; the rest is counted


@dataclass(frozen=True, kw_only=True)
class NodeGlance:
    """The known facts of a node, without a further test."""

    node: str
    cluster: str
    judgement: Judgement  # as a gate has it that runs nothing
    why: str = ""  # it is out of service, owes an answer, or a clock is in doubt
    hold: Hold | None = None
    last: Validation | None = None
    passed: Mapping[str, float] = field(default_factory=dict)  # benchmarks, and when
    attributes: NodeAttributes


@dataclass(frozen=True, kw_only=True)
class CampaignGlance:
    """A campaign and its progress."""

    campaign: str
    cluster: str
    kind: CampaignKind
    suite: str
    nodes: int
    created_at: float
    finished_at: float | None
    judgement: Judgement | None  # None: it is not over
    executions: Mapping[str, int]  # how many ended how


@dataclass(frozen=True, kw_only=True)
class StandingLine:
    node: str
    cluster: str
    judgement: Judgement
    """The answer of a gate that runs no tests."""
    why: str
    """It is out of service, owes an answer, or its passes do not count while a clock is in doubt;
    empty: none of these."""
    holder: str | None
    """What has it now: a campaign."""
    held_since: float | None
    last_verdict: Judgement | None
    last_code: str | None
    last_campaign: str | None
    last_at: float | None
    """Seconds since 1970."""
    passed: Mapping[str, float]
    """When it last passed each benchmark, of the passes that count."""
    sku: str
    rack: str
    cage: str


@dataclass(frozen=True, kw_only=True)
class CampaignStatusLine:
    campaign: str
    cluster: str
    kind: str
    suite: str
    nodes: int
    created_at: float
    """Seconds since 1970."""
    finished_at: float | None
    """null: it is not over."""
    judgement: Judgement | None
    """The judgement of the whole; null: it is not over."""
    executions: Mapping[str, int]
    """How many ended how: measured, failed, timed-out, ..."""


def node_fields(glance: NodeGlance) -> StandingLine:
    last, hold, attributes = glance.last, glance.hold, glance.attributes
    return StandingLine(
        node=glance.node,
        cluster=glance.cluster,
        judgement=glance.judgement,
        why=glance.why,
        holder=hold.holder if hold else None,
        held_since=hold.since if hold else None,
        last_verdict=last.judgement if last else None,
        last_code=last.code if last else None,
        last_campaign=last.campaign if last else None,
        last_at=last.at if last else None,
        passed=glance.passed,
        sku=attributes.sku,
        rack=attributes.rack,
        cage=attributes.cage,
    )


def node_line(glance: NodeGlance) -> str:
    return json_line("standing", node_fields(glance))


def campaign_fields(glance: CampaignGlance) -> CampaignStatusLine:
    return CampaignStatusLine(
        campaign=glance.campaign,
        cluster=glance.cluster,
        kind=glance.kind,
        suite=glance.suite,
        nodes=glance.nodes,
        created_at=glance.created_at,
        finished_at=glance.finished_at,
        judgement=glance.judgement,
        executions=glance.executions,
    )


def campaign_line(glance: CampaignGlance) -> str:
    return json_line("campaign-status", campaign_fields(glance))


def judgement_reason(glance: NodeGlance) -> str:
    """Return the reason beside the judgement of a node."""
    if glance.why:
        return glance.why
    if glance.judgement is Judgement.HEALTHY:
        return f"passed {names(sorted(glance.passed), PASSES_NAMED)}"
    if glance.last is None:
        return "never tested"
    return "no pass counts since its last incident, repair, defect or upgrade"


def show_nodes(glances: Sequence[NodeGlance], console: Console) -> None:
    """Print the counts, and a row for each node; first those that are not healthy."""
    clusters = {glance.cluster for glance in glances}
    rows = table("node", "", "last verdict (UTC)", "held by", "why", gap=2)
    for glance in sorted(glances, key=lambda glance: glance.judgement is Judgement.HEALTHY):
        name = glance.node if len(clusters) == 1 else f"{glance.cluster}: {glance.node}"
        head = f"{GLYPH[glance.judgement]} {glance.judgement}"
        held = glance.hold.holder if glance.hold else ""
        add_row(rows, name, head, _last(glance.last), held, judgement_reason(glance))
    console.print(_counts(glances), markup=False)
    console.print()
    console.print(rows)


def _last(last: Validation | None) -> str:
    return f"{last.judgement} {_show_time(last.at)}" if last else "-"


def _counts(glances: Sequence[NodeGlance]) -> str:
    judged = [glance.judgement for glance in glances]
    counts = [f"{judged.count(judgement):,} {judgement}" for judgement in Judgement]
    return f"{quantity(len(glances), 'node')}: {', '.join(counts[:3])}"


def show_campaigns(glances: Sequence[CampaignGlance], console: Console) -> None:
    rows = table("campaign", "cluster", "suite", "", "when (UTC)", figures=("nodes", "executions"))
    for glance in glances:
        add_row(rows, *_campaign_cells(glance))
    console.print(rows)


def _campaign_cells(glance: CampaignGlance) -> Iterator[str]:
    yield from (glance.campaign, glance.cluster, glance.suite, progress(glance))
    yield _show_time(glance.created_at)
    yield f"{glance.nodes:,}"
    yield f"{sum(glance.executions.values()):,}"


def progress(glance: CampaignGlance) -> str:
    if glance.finished_at is None:
        return "not over"
    return f"{GLYPH[glance.judgement]} {glance.judgement}" if glance.judgement else "over"


def _show_time(at: float) -> str:
    return moment(at).removesuffix(" UTC")
