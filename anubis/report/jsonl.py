"""A campaign for programs: its plan, phase by phase; a JSON object for each verdict, part and kind;
then a summary. No value is NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.campaign.planning import Estimate
from anubis.core.records import Judgement, PartVerdict, Phase, Verdict
from anubis.lab.simulation.reckoning import Reckoning
from anubis.report import coverage
from anubis.report.coverage import TierCrossed
from anubis.report.json import json_line
from anubis.report.view import CampaignView, CauseGroup, kind_lines


@dataclass(frozen=True, kw_only=True)
class VerdictLine:
    node: str
    """Its name; of a group, all names with commas between them."""
    participants: Sequence[str]
    device: str | None
    """null: the node as a whole."""
    benchmark: str | None
    """null: the node was lost to all benchmarks."""
    metric: str | None
    verdict: Judgement
    code: str
    """Stable: act on it, not on the reason."""
    similarity: float | None
    """The similarity by the limit that the node is furthest beyond or nearest to; at or below
    `alpha` the node falls short."""
    alpha: float | None
    reason: str
    cause: str
    """What is wrong, without name, place and amount: nodes with the same fault have it in common.
    Empty: the reason is of that kind."""
    action: str | None
    """What to do, if the policy says so."""


@dataclass(frozen=True, kw_only=True)
class PartName:
    kind: str
    name: str
    other: str | None
    """The other end of a part between two nodes or switches."""


@dataclass(frozen=True, kw_only=True)
class PartLine:
    parts: Sequence[PartName]
    """If there are several, one of them is at fault, and it is not known which."""
    subject: str
    verdict: Judgement
    code: str
    confidence: float | None
    reason: str
    evidence: Sequence[str]
    action: str | None
    """What to do, if the policy says so."""


@dataclass(frozen=True, kw_only=True)
class CrossedLine:
    nics: int
    """Number of NICs that took part."""
    tiers: Sequence[TierCrossed]
    """How many links between two tiers were crossed surely."""
    uncrossed: Mapping[str, int]
    """How many links were not, by reason: seldom, left out, across rails, out of reach."""


@dataclass(frozen=True, kw_only=True)
class ReckoningLine:
    planted: int
    found: int
    unsure: int
    missed: int
    wrongly_blamed: Sequence[str]
    """Called defective, and nothing is planted there."""


@dataclass(frozen=True, kw_only=True)
class SummaryLine:
    campaign: str
    cluster: str
    judgement: Judgement
    """The judgement of the whole; the exit code follows it."""
    headline: str
    """The first line of the terminal."""
    healthy: Sequence[str]
    defective: Sequence[str]
    unknown: Sequence[str]
    not_applicable: Sequence[str]
    defective_parts: Sequence[str]
    unknown_parts: Sequence[str]
    causes: Sequence[CauseGroup]
    """Nodes that are not healthy, grouped by what is wrong with them: the worst verdict first, then
    the largest group."""
    caveat: str
    """What criteria that were learned from these very nodes do not show, and single measurements.
    Empty: others taught them, and what fell short was measured again."""
    duration_s: float


def lines(view: CampaignView) -> Iterator[str]:
    for verdict in view.assessment.verdicts():
        yield json_line("verdict", _verdict_fields(verdict, _action(view, verdict)))
    for part in view.assessment.parts:
        yield json_line("part", part_fields(part, _action(view, part)))
    yield from kind_lines(view.kinds)
    if view.network and (crossed := view.network.coverage):
        fields = CrossedLine(
            nics=len(crossed.nics),
            tiers=coverage.tier_rows(crossed),
            uncrossed=view.network.uncrossed,
        )
        yield json_line("crossed", fields)
    if view.reckoning:
        yield from _reckoning(view.reckoning)
    yield json_line("summary", _summary_fields(view))


def _summary_fields(view: CampaignView) -> SummaryLine:
    named, parts_named = view.assessment.named, view.assessment.parts_named
    return SummaryLine(
        campaign=view.campaign.id,
        cluster=view.campaign.cluster,
        judgement=view.assessment.judgement,
        headline=view.headline,
        healthy=named(Judgement.HEALTHY),
        defective=named(Judgement.DEFECTIVE),
        unknown=named(Judgement.UNKNOWN),
        not_applicable=named(Judgement.NOT_APPLICABLE),
        defective_parts=parts_named(Judgement.DEFECTIVE),
        unknown_parts=parts_named(Judgement.UNKNOWN),
        causes=view.causes,
        caveat=view.caveat,
        duration_s=round(view.duration_s, 3),
    )


def _reckoning(reckoning: Reckoning) -> Iterator[str]:
    """Yield what was planted in a simulated fleet, and how much of it was found."""
    for planted in reckoning.planted:
        yield json_line("planted", planted)
    counts = ReckoningLine(
        planted=len(reckoning.planted),
        found=len(reckoning.select("found")),
        unsure=len(reckoning.select("unsure")),
        missed=len(reckoning.select("missed")),
        wrongly_blamed=reckoning.wrongly_blamed,
    )
    yield json_line("reckoning", counts)


def _action(view: CampaignView, verdict: Verdict | PartVerdict) -> str | None:
    """Return what to do if something is wrong and the policy has a remedy."""
    remedy = view.remedy(verdict.code)
    return remedy.action if remedy else None


def _verdict_fields(verdict: Verdict, action: str | None) -> VerdictLine:
    return VerdictLine(
        node=",".join(verdict.participants),
        participants=verdict.participants,
        device=verdict.device or None,
        benchmark=verdict.benchmark or None,  # a lost node is lost to all benchmarks
        metric=verdict.metric or None,
        verdict=verdict.judgement,
        code=verdict.code,
        similarity=verdict.similarity,
        alpha=verdict.alpha,
        reason=verdict.reason,
        cause=verdict.cause,
        action=action,
    )


def part_fields(verdict: PartVerdict, action: str | None = None) -> PartLine:
    return PartLine(
        parts=_parts(verdict),
        subject=verdict.subject,
        verdict=verdict.judgement,
        code=verdict.code,
        confidence=verdict.confidence and round(verdict.confidence, 6),
        reason=verdict.reason,
        evidence=verdict.evidence,
        action=action,
    )


def _parts(verdict: PartVerdict) -> list[PartName]:
    if verdict.nodes:
        first, *further = verdict.nodes
        return [PartName(kind="path", name=first, other=",".join(further))]
    return [
        PartName(kind=part.kind, name=part.name, other=part.other or None) for part in verdict.parts
    ]


@dataclass(frozen=True, kw_only=True)
class PhaseLine:
    phase: str
    benchmarks: Sequence[str]
    steps: int
    turns: int
    """How often steps wait for others before they begin."""
    fewest_turns: int
    """The least number of turns of pairs that share cables, in whatever order; 0 if none wait."""
    duration_s: float
    node_hours: float


def phase_fields(phase: Phase, cost: Estimate) -> PhaseLine:
    return PhaseLine(
        phase=phase.name,
        benchmarks=[str(entry.workload) for entry in phase.entries],
        steps=cost.steps,
        turns=cost.turns,
        fewest_turns=cost.fewest_turns,
        duration_s=round(cost.duration_s, 1),
        node_hours=round(cost.node_hours, 4),
    )
