"""Looks at running jobs that somebody asks for: at which nodes, by which telemetry and which watch
model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anubis import config
from anubis.core.errors import OrchestratorError, TelemetryError, UsageError
from anubis.core.lifecycle.suspicions import HitRate, hit_rates
from anubis.core.past.events import SuspicionRaised
from anubis.core.watching.findings import Look, Suspicion
from anubis.core.watching.model import WatchModel
from anubis.core.watching.settings import WatchSettings
from anubis.core.watching.telemetry import Telemetry
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.owners import orchestrator_of
from anubis.operations.running import RunningJob, nodes_of, running_jobs
from anubis.operations.telling import Receipt, tell
from anubis.operations.watching import (
    JobLook,
    Watching,
    look_at,
    look_at_job,
)
from anubis.report.watch import LookView, headline
from anubis.report.wording import counted, moment
from anubis.telemetry.agents import Agents
from anubis.telemetry.config import PrometheusSettings, TelemetrySettings
from anubis.telemetry.prometheus import Prometheus
from anubis.telemetry.pulled import PulledTelemetry, TelemetrySource
from anubis.telemetry.recorded import read_recording, write_recording
from anubis.watch import files

SOURCE = "watch"  # who suspects the nodes, as the keeper is told
HOW_TO_STATE = (
    'give --prometheus URL, --agents or --file FILE; or state it once, as "prometheus: {url: ...}"'
    ' or "agents: {}" beside "based_on: default" in $ANUBIS_HOME/configs/telemetry/default.yaml'
)


@dataclass(frozen=True, kw_only=True)
class LookRequest:
    job: str = ""
    nodes: Sequence[str] = ()  # of the job, where no orchestrator says so; of a file, only these
    cluster: str | None = None
    file: Path | None = None  # recorded telemetry
    prometheus: str = ""  # its address, instead of what the settings say
    agents: bool = False
    watching: str = "default"  # how: a name under configs/watching/, or a file
    telemetry: str = ""  # the telemetry settings, instead of those that `watching` names
    model: str = ""  # the watch model, instead of the one that `watching` names
    until: float | None = None  # what was reported up to then; by default all, or up to now
    ended: bool = False  # the job has failed: what left its peers last minute counts


@dataclass(frozen=True, kw_only=True)
class _Means:
    """With what jobs are looked at."""

    model: WatchModel
    settings: WatchSettings
    categories: Mapping[str, str]
    telemetry: TelemetrySettings

    def watching(self, source: TelemetrySource) -> Watching:
        return Watching(
            source=source, model=self.model, settings=self.settings, categories=self.categories
        )

    def continuity_s(self, *, ended: bool) -> float:
        shorter = self.settings.continuity_ended_s if ended else None
        return self.settings.continuity_s if shorter is None else shorter


@dataclass(frozen=True)
class _Recorded:
    recording: PulledTelemetry

    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        return self.recording


def watch(request: LookRequest, caller: Caller = NOBODY) -> list[LookView]:
    """One look at a job, at a recording, or at each running job of a cluster."""
    return _look(request, _means(request), caller)


def follow_jobs(
    request: LookRequest, *, every_s: float | None = None, caller: Caller = NOBODY
) -> Iterator[list[LookView]]:
    """Looks, time and again, until the caller wants no more. Once there was one, a source that does
    not answer costs a look, and no more."""
    if request.file:
        raise UsageError("a recording has an end: --follow is for jobs that run")
    means = _means(request)
    if every_s is not None:
        means = replace(means, settings=replace(means.settings, interval_s=every_s))
    has_looked = False
    while not caller.wants_stop():
        due = caller.clock() + means.settings.interval_s
        try:
            yield _look(request, means, caller)
            has_looked = True
        except (TelemetryError, OrchestratorError) as error:
            if not has_looked:
                raise
            caller.remark(f"no look: {error}")
        while not caller.wants_stop() and (left := due - caller.clock()) > 0:
            time.sleep(min(left, 1.0))


def tell_suspicions(
    view: LookView, cluster: str | None = None, caller: Caller = NOBODY
) -> list[Receipt]:
    """The keeper is told of each suspect, once for each time that a node left its peers."""
    return [
        tell(
            SuspicionRaised(
                nodes=(suspicion.node,),
                category=_likeliest(suspicion),
                source=SOURCE,
                reason=headline(view),
                mix=suspicion.mix,
            ),
            id=f"{SOURCE}-{view.look.job}-{suspicion.node}-{suspicion.since:.0f}",
            cluster=cluster,
            caller=caller,
        )
        for suspicion in view.look.suspicions
    ]


def record_telemetry(view: LookView, path: Path) -> None:
    """What the look looked at, to be looked at again."""
    write_recording(view.telemetry, path)


# --- what is asked for ---------------------------------------------------------------------


def _means(request: LookRequest) -> _Means:
    policy = config.watching(request.watching)
    return _Means(
        model=files.load(files.place(request.model or policy.model)),
        settings=policy.settings,
        categories=policy.categories,
        telemetry=config.telemetry(request.telemetry or policy.telemetry),
    )


def _look(request: LookRequest, means: _Means, caller: Caller) -> list[LookView]:
    if request.file:
        seen = _look_at_recording(request, request.file, means)
        return [_view(seen, means, request, caller)]
    watching = means.watching(_source(request, means))
    return [
        _view(
            look_at_job(
                watched.id,
                watched.nodes,
                watching,
                caller,
                ended=request.ended,
                until=request.until,
            ),
            means,
            request,
            caller,
        )
        for watched in _jobs(request, means.settings, caller)
    ]


def _view(seen: JobLook, means: _Means, request: LookRequest, caller: Caller = NOBODY) -> LookView:
    """With what tests have made of earlier suspicions, where it is known whose nodes these are."""
    rates = _rates(seen.look, request.cluster, caller) if request.cluster else {}
    suspicions = tuple(
        replace(
            suspicion,
            confidence=rates.get(suspicion.node, HitRate()).confidence(suspicion.confidence),
        )
        for suspicion in seen.look.suspicions
    )
    return LookView(
        look=replace(seen.look, suspicions=suspicions),
        telemetry=seen.telemetry,
        continuity_s=means.continuity_s(ended=request.ended),
        cluster=request.cluster or "",
        remarks=seen.remarks,
        rates=rates,
        learned_from=means.model.origin.source,
    )


def _rates(look: Look, cluster: str, caller: Caller) -> Mapping[str, HitRate]:
    """By suspect; none in a history that does not know the cluster."""
    if not look.suspicions:
        return {}
    with caller.history() as history:
        if cluster not in history.clusters.names():
            return {}
        known_rates = hit_rates(history.of(cluster).keeping.suspicions())
    return {
        suspicion.node: known_rates.get((SOURCE, _likeliest(suspicion)), HitRate())
        for suspicion in look.suspicions
    }


def _likeliest(suspicion: Suspicion) -> str:
    return next(iter(suspicion.mix), "")


def _look_at_recording(request: LookRequest, path: Path, means: _Means) -> JobLook:
    pulled = read_recording(path, means.telemetry, means.model.order, nodes=request.nodes)
    telemetry = pulled.telemetry
    if request.until is not None:
        telemetry = _up_to(request.until, telemetry, path)
    look = look_at(
        telemetry,
        means.watching(_Recorded(pulled)),
        job=request.job,
        ended=request.ended,
    )
    return JobLook(look=look, telemetry=telemetry, remarks=pulled.remarks)


def _up_to(until: float, telemetry: Telemetry, path: Path) -> Telemetry:
    points = int(np.count_nonzero(telemetry.times <= until))
    if not points:
        raise UsageError(
            f'"{path}" begins at {moment(telemetry.start)}, later than {moment(until)}: name a time'
            f" up to {moment(telemetry.end)}"
        )
    return replace(telemetry, values=telemetry.values[:, :, :points])


def _source(request: LookRequest, means: _Means) -> TelemetrySource:
    """What the command line says goes before what the settings say."""
    stated = means.telemetry
    if request.prometheus and request.agents:
        raise UsageError("--prometheus and --agents exclude each other: give one of them")
    if request.prometheus:
        stated_place = stated.prometheus or PrometheusSettings(url=request.prometheus)
        place = replace(stated_place, url=request.prometheus)
        return Prometheus(stated, means.model.order, place)
    if request.agents or (stated.agents and not stated.prometheus):
        return Agents(stated, means.model.order)
    if stated.prometheus:
        return Prometheus(stated, means.model.order)
    raise UsageError(f"nothing says where the telemetry of the nodes comes from: {HOW_TO_STATE}")


def _jobs(request: LookRequest, settings: WatchSettings, caller: Caller) -> list[RunningJob]:
    if request.nodes:
        return [RunningJob(id=request.job, nodes=tuple(request.nodes))]
    if not request.cluster:
        raise UsageError(
            "nothing says which nodes to look at: give --cluster for its running jobs, --nodes, or"
            " --file with a recording"
        )
    orchestrator = orchestrator_of(config.cluster(request.cluster))
    if request.job:
        return [RunningJob(id=request.job, nodes=nodes_of(request.job, orchestrator))]
    if orchestrator is None:
        raise UsageError(
            f'cluster "{request.cluster}" has no orchestrator to say which jobs run: give --nodes'
        )
    running = running_jobs(orchestrator)
    large = [job for job in running if len(job.nodes) >= settings.least_nodes]
    if small := len(running) - len(large):
        caller.remark(
            f"{counted(small, 'job')} of fewer than {settings.least_nodes} nodes: none of them can"
            " be told to be unlike the others"
        )
    if not large:
        raise UsageError(f'cluster "{request.cluster}" runs no job that can be watched')
    return large
