"""The page of a look: for each suspect its picture against its peers. It needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.watch.conclusion import LookAnswer
from anubis.core.watch.findings import Suspicion
from anubis.report.page import page
from anubis.report.watch import (
    RULES,
    LookView,
    clock,
    confidence_sentence,
    deviation_cells,
    headline,
    mix_sentence,
    next_steps,
    odd,
    peers_of,
    unbroken,
    unjudged_reasons,
)
from anubis.report.watch_pictures import NodePicture, pictures_of_job, pictures_of_node

PICTURED = 6  # suspects; of more only the table


@dataclass(frozen=True, kw_only=True)
class SuspectSection:
    node: str
    since: str
    peers: int
    rule: str
    rows: list[list[str]]
    sentences: list[str]
    pictures: list[NodePicture]


@dataclass(frozen=True, kw_only=True)
class LookSection:
    job: str
    cluster: str
    headline: str
    answer: LookAnswer
    span: str
    nodes: int
    judged: Sequence[str]
    suspects: list[SuspectSection]
    begins_late: bool  # the pictures show more than was judged
    pictures: list[NodePicture]  # of the job, if no node differs
    anomalies: list[str]
    unjudged: list[str]
    remarks: Sequence[str]
    steps: list[str]
    learned_from: str


def render(views: Sequence[LookView]) -> str:
    sections = [_section(view) for view in views]
    return page(
        "watch",
        looks=sections,
        title=unbroken(sections[0].headline) if len(sections) == 1 else "Looks",
    )


def _section(view: LookView) -> LookSection:
    look = view.look
    return LookSection(
        job=look.job,
        cluster=view.cluster,
        headline=headline(view),
        answer=view.conclusion.answer,
        span=f"{clock(look.start)} to {clock(look.end)}",
        nodes=len(look.nodes),
        judged=look.judged,
        suspects=[
            _suspect(view, suspicion, place) for place, suspicion in enumerate(look.suspicions)
        ],
        begins_late=look.start > view.telemetry.start,
        pictures=[] if look.suspicions else pictures_of_job(view),
        anomalies=[odd(anomaly) for anomaly in look.anomalies],
        unjudged=list(unjudged_reasons(view)),
        remarks=view.remarks,
        steps=next_steps(view),
        learned_from=view.learned_from,
    )


def _suspect(view: LookView, suspicion: Suspicion, place: int) -> SuspectSection:
    return SuspectSection(
        node=suspicion.node,
        since=clock(suspicion.since),
        peers=len(peers_of(view, suspicion.node)),
        rule=RULES[suspicion.deviations[0].sign],
        rows=[
            [deviation.metric, *deviation_cells(view, deviation)]
            for deviation in suspicion.deviations
        ],
        sentences=[
            sentence
            for sentence in (mix_sentence(suspicion), confidence_sentence(view, suspicion))
            if sentence
        ],
        pictures=pictures_of_node(view, suspicion) if place < PICTURED else [],
    )
