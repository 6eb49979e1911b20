"""A campaign for programs: an object per verdict, part and kind, then one summary. Never NaN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from anubis.core.records import Judgement, PartVerdict, Verdict
from anubis.report import coverage, kinds
from anubis.report.view import CampaignView
from anubis.report.wording import json_line
from anubis.simulation.reckoning import DETECTIONS, Reckoning


def lines(view: CampaignView) -> Iterator[str]:
    for verdict in view.assessment.verdicts():
        yield json_line(_verdict(verdict) | _remedy(view, verdict))
    for part in view.assessment.parts:
        yield json_line(part_record(part) | _remedy(view, part))
    yield from kinds.lines(view.kinds)
    if view.network and (crossed := view.network.coverage):
        yield json_line(
            {
                "type": "crossed",
                "nics": len(crossed.nics),
                "tiers": coverage.record(crossed),
                "uncrossed": view.network.uncrossed,
            }
        )
    if view.reckoning:
        yield from _reckoning(view.reckoning)
    named, parts_named = view.assessment.named, view.assessment.parts_named
    yield json_line(
        {
            "type": "summary",
            "campaign": view.campaign.id,
            "cluster": view.campaign.cluster,
            "judgement": view.assessment.judgement.value,
            "headline": view.headline,
            "healthy": named(Judgement.HEALTHY),
            "defective": named(Judgement.DEFECTIVE),
            "unknown": named(Judgement.UNKNOWN),
            "not_applicable": named(Judgement.NOT_APPLICABLE),
            "defective_parts": parts_named(Judgement.DEFECTIVE),
            "unknown_parts": parts_named(Judgement.UNKNOWN),
            "duration_s": round(view.duration_s, 3),
        }
    )


def _reckoning(reckoning: Reckoning) -> Iterator[str]:
    """What was planted in a simulated fleet, and how much of it was found."""
    for planted in reckoning.planted:
        yield json_line({"type": "planted", **asdict(planted)})
    document: dict[str, object] = {"type": "reckoning", "planted": len(reckoning.planted)}
    for detected in DETECTIONS:
        document[detected] = len(reckoning.having(detected))
    yield json_line({**document, "wrongly_blamed": reckoning.wrongly_blamed})


def _remedy(view: CampaignView, verdict: Verdict | PartVerdict) -> dict[str, str | None]:
    """What to do, where something is wrong and the policy says it."""
    remedy = view.remedy(verdict.code)
    return {"action": remedy.action if remedy else None}


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "type": "verdict",
        "node": ",".join(verdict.participants),
        "participants": verdict.participants,
        "device": verdict.device or None,
        "benchmark": verdict.benchmark or None,  # a lost node is lost to all benchmarks
        "metric": verdict.metric or None,
        "verdict": verdict.judgement.value,
        "code": verdict.code,
        "similarity": verdict.similarity,
        "alpha": verdict.alpha,
        "reason": verdict.reason,
    }


def part_record(verdict: PartVerdict) -> dict[str, object]:
    return {
        "type": "part",
        "parts": _parts(verdict),
        "subject": verdict.subject,
        "verdict": verdict.judgement.value,
        "code": verdict.code,
        "confidence": verdict.confidence and round(verdict.confidence, 6),
        "reason": verdict.reason,
        "evidence": verdict.evidence,
    }


def _parts(verdict: PartVerdict) -> list[dict[str, str | None]]:
    if verdict.nodes:
        first, *further = verdict.nodes
        return [{"kind": "path", "name": first, "other": ",".join(further)}]
    return [
        {"kind": part.kind, "name": part.name, "other": part.other or None}
        for part in verdict.parts
    ]
