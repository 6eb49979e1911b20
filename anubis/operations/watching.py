"""Running jobs are watched: what their nodes reported is looked at, and whom it makes suspect is
told to the keeper. A suspicion is no verdict: the keeper has it tested."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anubis.core.watching.comparisons import AnswersForMetrics
from anubis.core.watching.detector import look
from anubis.core.watching.findings import Deviation, Look, Suspicion
from anubis.core.watching.likelihood import by_category, mix_of
from anubis.core.watching.outliers import OutlierStream
from anubis.core.watching.settings import WatchSettings
from anubis.core.watching.telemetry import Telemetry
from anubis.operations.caller import NOBODY, Caller
from anubis.telemetry.pulled import TelemetrySource


@dataclass(frozen=True, kw_only=True)
class Watching:
    """By what jobs are watched."""

    source: TelemetrySource
    model: AnswersForMetrics
    settings: WatchSettings = WatchSettings()
    categories: Mapping[str, str] = field(default_factory=dict)  # of kinds of faults, at this site


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """A look at a job, and what it looked at."""

    look: Look
    telemetry: Telemetry
    remarks: tuple[str, ...] = ()  # on the telemetry


def look_at_job(
    job: str,
    nodes: Sequence[str],
    watching: Watching,
    caller: Caller = NOBODY,
    *,
    ended: bool = False,
    until: float | None = None,
) -> JobLook:
    """One look, at what these nodes reported up to now or up to that time."""
    at = caller.clock() if until is None else until
    pulled = watching.source.pull(nodes, at, watching.settings.pull_s)
    return JobLook(
        look=look_at(pulled.telemetry, watching, job=job, ended=ended),
        telemetry=pulled.telemetry,
        remarks=pulled.remarks,
    )


def look_at(
    telemetry: Telemetry, watching: Watching, *, job: str = "", ended: bool = False
) -> Look:
    """By both rules: who left its peers, and, where more than an hour is known, who stood apart
    for ten minutes. Every suspicion has the mix of categories that its deviations speak for."""
    seen = look(telemetry, watching.model, watching.settings, job=job, ended=ended)
    suspicions = {suspicion.node: suspicion for suspicion in seen.suspicions}
    for node, deviations in _outliers(telemetry).items():
        first = suspicions.get(node) or Suspicion(
            node=node, since=deviations[0].since, deviations=()
        )
        metrics = {deviation.metric for deviation in first.deviations}
        more = tuple(deviation for deviation in deviations if deviation.metric not in metrics)
        suspicions[node] = replace(first, deviations=(*first.deviations, *more))
    mixed = tuple(
        replace(suspicion, mix=_mix(suspicion.deviations, watching.categories))
        for suspicion in suspicions.values()
    )
    return replace(seen, suspicions=mixed)


def _outliers(telemetry: Telemetry) -> Mapping[str, Sequence[Deviation]]:
    stream = OutlierStream(telemetry.metrics, telemetry.nodes, telemetry.groups)
    if telemetry.step_s * telemetry.points < stream.rule.level_s:
        return {}
    stream.hear(telemetry)
    return {} if stream.unable() else stream.deviations()


def _mix(deviations: Sequence[Deviation], categories: Mapping[str, str]) -> Mapping[str, float]:
    return by_category(mix_of({deviation.family for deviation in deviations}), categories)


def follow_job(
    job: str, nodes: Sequence[str], watching: Watching, caller: Caller = NOBODY
) -> Iterator[JobLook]:
    """Looks, one each interval, until the caller wants no more."""
    while not caller.wants_stop():
        due = caller.clock() + watching.settings.interval_s
        yield look_at_job(job, nodes, watching, caller)
        while not caller.wants_stop() and (left := due - caller.clock()) > 0:
            time.sleep(min(left, 1.0))
