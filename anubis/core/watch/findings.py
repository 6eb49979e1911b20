"""Results of one look at a running job: suspicions with their evidence, never verdicts, and the
conclusion: nodes are unlike the others, none is, or nothing can be said.

Missing data clears no node: silence, or too few reports, is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.watch.telemetry import Side, Telemetry


class Sign(StrEnum):
    """The rule that found a node unlike its peers."""

    CONTRAST = "contrast"  # it left its peers by more than is usual in this job
    UNLIKE_PEERS = "unlike-peers"  # Minder's: its denoised windows are apart for minutes
    OUTLIER = "outlier"  # Aegis': beyond mean + 2 deviations for all of ten minutes
    VANISHED = "vanished"  # its series ended while its peers' continued


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One metric in which a node left its peers and did not return."""

    sign: Sign
    metric: str
    family: str  # cpu, gpu, pfc, throughput, disk or memory
    since: float
    until: float
    side: Side
    value: float  # its median since then, in the metric's unit; NaN: it reports nothing
    peers: float  # the median of its peers
    effect: float  # the distance of the two, as a share of the metric's range
    score: float = 0.0  # exceeds `threshold`
    threshold: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    node: str
    since: float  # the moment it left its peers
    deviations: tuple[Deviation, ...]  # the one that named it first
    mix: Mapping[str, float] = field(default_factory=dict)  # chance of each kind of fault
    confidence: float = 0.5  # share of this source's right suspicions at this site


class AnomalyKind(StrEnum):
    """What is worth a remark, and is no suspicion."""

    UNSTEADY = "unsteady"  # it left its peers and returned
    ALWAYS_APART = "always-apart"  # it differs since telemetry began: a role, not a fault
    SILENT = "silent"  # it reports nothing, nor did it before
    GAPS = "gaps"


@dataclass(frozen=True, kw_only=True)
class Anomaly:
    node: str  # empty: the whole job
    kind: AnomalyKind
    metric: str
    since: float
    until: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a job, at what its nodes reported in the minutes before."""

    job: str
    nodes: tuple[str, ...]
    start: float
    end: float
    suspicions: tuple[Suspicion, ...]
    anomalies: tuple[Anomaly, ...] = ()
    judged: tuple[str, ...] = ()  # metrics, in the order of comparison
    unjudged: Mapping[str, str] = field(default_factory=dict)  # metric → why not


class LookAnswer(StrEnum):
    NAMED = "named"
    NO_NODE = "nobody"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class LookConclusion:
    answer: LookAnswer
    why: str = ""  # reason for no answer, or for one without all nodes
    unseen: tuple[str, ...] = ()  # nodes that reported none of the judged metrics


def conclude(look: Look, telemetry: Telemetry, *, continuity_s: float) -> LookConclusion:
    """Conclusion of a look. `continuity_s`: time for which a node must be unlike its peers, so also
    the least time for which they must have been seen."""
    if look.suspicions:
        return LookConclusion(answer=LookAnswer.NAMED, unseen=_unseen_nodes(look, telemetry))
    if why := _missing_data(look, telemetry, continuity_s):
        return LookConclusion(answer=LookAnswer.UNKNOWN, why=why)
    unseen = _unseen_nodes(look, telemetry)
    answer = LookAnswer.UNKNOWN if unseen else LookAnswer.NO_NODE
    why = f"{len(unseen):,} of {len(look.nodes):,} nodes reported nothing" if unseen else ""
    return LookConclusion(answer=answer, why=why, unseen=unseen)


def _missing_data(look: Look, telemetry: Telemetry, continuity_s: float) -> str:
    if not look.judged:
        reasons = set(look.unjudged.values())
        return reasons.pop() if len(reasons) == 1 else "no metric could be judged"
    seen = _majority_flags(look, telemetry)
    if not seen.any():
        return "most nodes reported nothing"
    quiet_s = telemetry.step_s * int(np.argmax(seen[::-1]))
    if quiet_s >= continuity_s:
        return f"most nodes reported nothing in the last {quiet_s:.0f} s"
    together_s = telemetry.step_s * _longest(seen)
    if together_s < continuity_s:
        return (
            f"most nodes reported for {together_s:.0f} s at a stretch, and a node counts as unlike "
            f"its peers after {continuity_s:.0f} s"
        )
    return ""


def _report_flags(look: Look, telemetry: Telemetry) -> Flags:
    """Flags, nodes x times: the node reported any of the judged metrics."""
    span = telemetry.last(look.end - look.start + telemetry.step_s)
    rows = [row for row, metric in enumerate(span.metrics) if metric.name in look.judged]
    return np.asarray(np.isfinite(span.values[rows or slice(None)]).any(axis=0))


def _majority_flags(look: Look, telemetry: Telemetry) -> Flags:
    """Flags of the times at which most nodes reported."""
    reported = _report_flags(look, telemetry)
    return np.asarray(reported.sum(axis=0) * 2 > len(telemetry.nodes))


def _unseen_nodes(look: Look, telemetry: Telemetry) -> tuple[str, ...]:
    suspects = {suspicion.node for suspicion in look.suspicions}
    reported = np.asarray(_report_flags(look, telemetry).any(axis=1))
    return tuple(
        node
        for node, any_report in zip(telemetry.nodes, reported, strict=True)
        if not any_report and node not in suspects
    )


def _longest(flags: Flags) -> int:
    """Length of the longest row of true values."""
    ends = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return int((ends[1::2] - ends[::2]).max(initial=0))
