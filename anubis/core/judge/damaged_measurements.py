"""Measurements of a judged campaign that can no longer be read: its verdicts do without them.

A defective unit stays defective. A unit that was healthy by a damaged measurement is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from anubis.core.judge.faulty_paths import unmeasured_paths
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    BatchVerdict,
    Judgement,
    NodeVerdict,
    Step,
    Verdict,
)

CODE = "DAMAGED"
REASON = "what it measured is damaged in the history, and was left out"

StepPlace = tuple[str, str, tuple[str, ...]]  # benchmark, parameters, participants


def leave_out_damaged(assessment: Assessment, damaged: Collection[Step]) -> Assessment:
    """The assessment in which units of these steps are unknown, and so are nodes that were measured
    alone in one of them. A damaged group leaves the path between its nodes unknown."""
    if not damaged:
        return assessment
    steps = {(s.workload.benchmark, s.workload.parameters, s.participants) for s in damaged}
    unknown = [
        Verdict(
            participants=participants,
            benchmark=benchmark,
            parameters=parameters,
            judgement=Judgement.UNKNOWN,
            code=CODE,
            reason=REASON,
        )
        for benchmark, parameters, participants in sorted(steps)
    ]
    alone = [verdict for verdict in assessment.alone if not _is_moot(verdict, steps)] + unknown
    batch_verdicts = (_trim(batch_verdict, steps) for batch_verdict in assessment.batch_verdicts)
    nodes = _nodes(assessment, unknown)
    return replace(
        assessment,
        alone=tuple(sorted(alone, key=lambda verdict: WORST_FIRST.index(verdict.judgement))),
        batch_verdicts=tuple(
            batch_verdict for batch_verdict in batch_verdicts if len(batch_verdict)
        ),
        nodes=nodes,
        parts=(*assessment.parts, *unmeasured_paths(unknown, nodes)),
    )


def _is_moot(verdict: Verdict, steps: Collection[StepPlace]) -> bool:
    is_of_them = (verdict.benchmark, verdict.parameters, verdict.participants) in steps
    return is_of_them and verdict.judgement is not Judgement.DEFECTIVE


def _trim(batch_verdict: BatchVerdict, steps: Collection[StepPlace]) -> BatchVerdict:
    """The batch verdict without the units of these steps; a defective one stays whole."""
    if batch_verdict.judgement is Judgement.DEFECTIVE:
        return batch_verdict
    stays = [
        (batch_verdict.benchmark, batch_verdict.parameters, participants) not in steps
        for participants in batch_verdict.participants
    ]
    if all(stays):
        return batch_verdict
    kept = np.flatnonzero(stays)
    return replace(
        batch_verdict,
        participants=tuple(batch_verdict.participants[i] for i in kept),
        devices=tuple(batch_verdict.devices[i] for i in kept),
        similarities=None
        if batch_verdict.similarities is None
        else batch_verdict.similarities[kept],
    )


def _nodes(assessment: Assessment, unknown: Collection[Verdict]) -> tuple[NodeVerdict, ...]:
    programs: dict[str, dict[str, None]] = {}
    for verdict in unknown:
        if len(verdict.participants) == 1:
            programs.setdefault(verdict.participants[0], {})[verdict.benchmark] = None
    return tuple(
        NodeVerdict(
            node=node.node,
            judgement=Judgement.UNKNOWN,
            code=CODE,
            reason=f"{', '.join(programs[node.node])}: {REASON}",
            owes=_debts(node, programs[node.node]),
        )
        if node.node in programs and node.judgement is not Judgement.DEFECTIVE
        else node
        for node in assessment.nodes
    )


def _debts(node: NodeVerdict, damaged: Collection[str]) -> tuple[str, ...] | None:
    """The benchmarks that a node owes; None (all of them) if it was not recorded which it owed
    before."""
    if node.judgement is Judgement.UNKNOWN and node.owes is None:
        return None
    return tuple(sorted({*damaged, *(node.owes or ())}))
