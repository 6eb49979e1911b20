"""Look at running jobs on request: at the named nodes, by the named telemetry and watch model."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from anubis.config import configs
from anubis.core.errors import OrchestratorError, TelemetryError, UsageError, named_by_request
from anubis.core.keep.suspicions import HitRate, hit_rates
from anubis.core.watch.watch_settings import WatchSettings
from anubis.models.watch import watch_model_files
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import drop_strangers, resolve, time_in
from anubis.operations.owners import RunningJob, nodes_of, orchestrator_of, running_jobs
from anubis.operations.requests import LookRequest
from anubis.operations.tell import note
from anubis.operations.watch_rounds import (
    JobMemory,
    Watching,
    look_at_job,
    source_of,
    suspicions_of,
    view_of,
)
from anubis.readers.telemetry.config import AgentSettings, PrometheusSettings, TelemetrySettings
from anubis.readers.telemetry.pulled import PulledTelemetry, TelemetrySource
from anubis.readers.telemetry.recorded import read_recording, write_recording
from anubis.report.watch import LookView
from anubis.text.wording import moment, quantity

HOW_TO_STATE = (
    'give --prometheus URL, --agents or --file FILE; or state it once, as "prometheus: {url: ...}"'
    ' or "agents: {}" beside "based_on: default" in $ANUBIS_HOME/configs/telemetry/default.yaml'
)


def take_looks(request: LookRequest, caller: Caller = NO_CALLER) -> list[LookView]:
    """Look once at a job, at a recording, or at each running job of a cluster."""
    return _look(request, _watching(request, caller), caller)


def follow_jobs(
    request: LookRequest, *, every_s: float | None = None, caller: Caller = NO_CALLER
) -> Iterator[list[LookView]]:
    """Look time and again, until the caller wants no more. After the first look, a source that does
    not answer costs only one look."""
    if request.file:
        raise UsageError("a recording has an end: --follow is for jobs that run")
    watching = _watching(request, caller)
    if every_s is not None:
        watching = replace(watching, settings=replace(watching.settings, interval_s=every_s))
    has_looked, memories = False, defaultdict[str, JobMemory](lambda: JobMemory(watching))
    while not caller.wants_stop():
        due = time.monotonic() + watching.settings.interval_s
        try:
            yield _look(request, watching, caller, memories)
            has_looked = True
        except (TelemetryError, OrchestratorError) as error:
            if not has_looked:
                raise
            caller.remark(f"no look: {error}")
        while not caller.wants_stop() and (left := due - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))


def tell_suspicions(
    view: LookView, cluster: str | None = None, caller: Caller = NO_CALLER
) -> tuple[str, ...]:
    """Report suspects to the keeper; return those that it did not know of."""
    with caller.history(begins=True) as history:
        part = resolve(history, cluster, caller)
        now, window = time_in(part, caller).now, WatchSettings().window
        event_records = suspicions_of(view.look, view.telemetry, window, part, now)
        event_records = drop_strangers(event_records, part, cluster, caller)
        note(event_records, part)
    return tuple(node for event_record in event_records for node in event_record.event.nodes)


def record_telemetry(view: LookView, path: Path) -> None:
    """Write the telemetry of a look to a file that can be looked at again."""
    write_recording(view.telemetry, path)


# --- what is asked for ---------------------------------------------------------------------


def _watching(request: LookRequest, caller: Caller) -> Watching:
    """Settings of the watch; the request precedes the files."""
    policy = configs.watching(request.watching)
    with named_by_request(bool(request.model)):
        model = watch_model_files.load(watch_model_files.place(request.model or policy.model))
    settings = configs.telemetry(request.telemetry or policy.telemetry)
    return Watching(
        source=_source(request, settings, model.order),
        model=model,
        settings=policy.settings,
        categories=policy.categories,
        rates=_rates(request.cluster, caller) if request.cluster else {},
    )


def _source(
    request: LookRequest, settings: TelemetrySettings, metrics: Sequence[str]
) -> TelemetrySource:
    if request.prometheus and request.agents:
        raise UsageError("--prometheus and --agents exclude each other: give one of them")
    if request.file:
        return _Recording(path=request.file, settings=settings, metrics=metrics)
    if request.prometheus:
        settings = replace(settings, prometheus=_named_prometheus(request.prometheus, settings))
    elif request.agents:
        agents = settings.agents or AgentSettings()
        settings = replace(settings, prometheus=None, agents=agents)
    elif not settings.prometheus and not settings.agents:
        raise UsageError(f"no source of telemetry is configured: {HOW_TO_STATE}")
    return source_of(settings, metrics)


def _named_prometheus(url: str, settings: TelemetrySettings) -> PrometheusSettings:
    try:
        stated = settings.prometheus or PrometheusSettings(url=url)
        return replace(stated, url=url)
    except ValueError as error:
        raise UsageError(f"--prometheus: {error}") from None


@dataclass(frozen=True, kw_only=True)
class _Recording:
    path: Path
    settings: TelemetrySettings
    metrics: Sequence[str]

    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        """Telemetry of the whole recording up to then: what precedes the last minutes distinguishes
        roles from faults."""
        with named_by_request():
            pulled = read_recording(self.path, self.settings, self.metrics, nodes=nodes)
        telemetry = pulled.telemetry
        points = int(np.count_nonzero(telemetry.times <= until))
        if not points:
            raise UsageError(
                f'"{self.path}" begins at {moment(telemetry.start)}, later than {moment(until)}: '
                f"name a time up to {moment(telemetry.end)}"
            )
        return replace(pulled, telemetry=replace(telemetry, values=telemetry.values[:, :, :points]))


def _rates(cluster: str, caller: Caller) -> Mapping[tuple[str, str], HitRate]:
    """Hit rates of earlier suspicions, if the history knows the cluster."""
    with caller.history(begins=True) as history:
        if cluster not in history.clusters.names():
            return {}
        return hit_rates(history.cluster(cluster).keeping.suspicions())


def _look(
    request: LookRequest,
    watching: Watching,
    caller: Caller,
    memories: Mapping[str, JobMemory] | None = None,
) -> list[LookView]:
    until = math.inf if request.file and request.until is None else request.until
    return [
        view_of(
            look_at_job(
                running.id,
                running.nodes,
                watching,
                caller,
                ended=request.ended,
                until=until,
                memory=None if memories is None else memories[running.id],
            ),
            watching,
            cluster=request.cluster or "",
            ended=request.ended,
        )
        for running in _jobs(request, watching.settings, caller)
    ]


def _jobs(request: LookRequest, settings: WatchSettings, caller: Caller) -> list[RunningJob]:
    if request.nodes or request.file:
        return [RunningJob(id=request.job, nodes=tuple(request.nodes))]
    if not request.cluster:
        raise UsageError(
            "no nodes to look at: give --cluster for its running jobs, --nodes, or"
            " --file with a recording"
        )
    orchestrator = orchestrator_of(configs.cluster(request.cluster))
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
            f"{quantity(small, 'job')} of fewer than {settings.least_nodes} nodes: too few to"
            f" find one unlike the others"
        )
    if not large:
        raise UsageError(f'cluster "{request.cluster}" runs no job that can be watched')
    return large
