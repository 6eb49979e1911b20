"""What the pings between agents show, as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anubis.core.network.ping_results import PingFindings
from anubis.core.records import Judgement
from anubis.report.json import json_line
from anubis.report.jsonl import part_fields


@dataclass(frozen=True, kw_only=True)
class PingsLine:
    judgement: Judgement
    known: int
    """Number of flows of which something is known."""
    unknown: int
    """Number of flows of which nothing is known."""
    came_and_went: int
    """Number of flows with losses that are over, and blame nothing."""
    usual_loss: float
    """Share of pings that a usual flow loses."""
    silent: Mapping[str, str]
    """Reasons why agents did not answer, by node."""


def lines(findings: PingFindings, judgement: Judgement, silent: Mapping[str, str]) -> Iterator[str]:
    for suspicion in findings.suspicions:
        yield json_line("part", part_fields(suspicion.verdict))
    for doubt in findings.doubts:
        yield json_line("part", part_fields(doubt))
    yield json_line(
        "pings",
        PingsLine(
            judgement=judgement,
            known=findings.known,
            unknown=len(findings.unknown),
            came_and_went=len(findings.came_and_went),
            usual_loss=round(findings.usual_loss, 9),
            silent=silent,
        ),
    )
