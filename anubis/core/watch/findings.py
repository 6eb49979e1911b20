"""Results of one look at a running job: suspicions with their evidence, never verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anubis.core.watch.telemetry import Side


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
