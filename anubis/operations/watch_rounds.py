"""Watch running jobs: look at what their nodes report, and report suspects to the keeper. A
suspicion is no verdict: the keeper tests the node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anubis.config import configs
from anubis.core.errors import AnubisError, ConfigError, StoreUnreachableError
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.keep.suspicions import HitRate, hit_rates
from anubis.core.watch.detector import look
from anubis.core.watch.distances import AnswersForMetrics
from anubis.core.watch.findings import Deviation, Look, Suspicion
from anubis.core.watch.likelihood import mix_by_category, mix_of
from anubis.core.watch.model import WatchModel
from anubis.core.watch.odd_windows import pack_windows
from anubis.core.watch.outliers import OutlierStream, pack_stream, resume_stream
from anubis.core.watch.rounds import KeptLook, WatchedJob, due_jobs, gone_jobs
from anubis.core.watch.silences import standing_still
from anubis.core.watch.telemetry import Telemetry
from anubis.core.watch.watch_settings import WatchSettings
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import time_in
from anubis.operations.keeping import Keeping, enter_if_answered
from anubis.operations.tell import note, note_stall
from anubis.readers.telemetry.config import TelemetrySettings
from anubis.readers.telemetry.pulled import TelemetryRing, TelemetrySource
from anubis.report.watch import LookView, lines
from anubis.report.watch_page import render
from anubis.report.watch_rounds import JobLooked, WatchedCluster
from anubis.store.history import ClusterHistory
from anubis.store.looks import LookDetails
from anubis.text.wording import moment, quantity

SOURCE = "watch"  # of its suspicions


@dataclass(frozen=True, kw_only=True)
class Watching:
    """How jobs are watched."""

    source: TelemetrySource
    model: AnswersForMetrics
    settings: WatchSettings = WatchSettings()
    categories: Mapping[str, str] = field(default_factory=dict)  # of kinds of faults, at this site
    rates: Mapping[tuple[str, str], HitRate] = field(default_factory=dict)  # of sources, so far


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """A look at a job, and its telemetry."""

    look: Look
    telemetry: Telemetry
    remarks: tuple[str, ...] = ()  # on the telemetry
    still_since: float | None = None  # no node of the job has worked since then


class JobMemory:
    """What is kept of a job from one look to the next: its last minutes, so that only new telemetry
    is read, and how long each node has been apart from all others."""

    def __init__(self, watching: Watching, kept: bytes = b"") -> None:
        """`kept`: bytes that an earlier memory of this job returned from `to_keep`."""
        self.source = TelemetryRing(watching.source, watching.settings.known_s)
        self._stream: OutlierStream | None = None
        self._kept = kept

    def outliers(self, telemetry: Telemetry) -> Mapping[str, Sequence[Deviation]]:
        if self._stream is None or not self._stream.is_about(telemetry):
            self._stream = OutlierStream(telemetry.metrics, telemetry.nodes, telemetry.groups)
            if self._kept:
                resume_stream(self._stream, self._kept)
        self._stream.hear(telemetry)
        return _named_deviations(self._stream)

    def to_keep(self) -> bytes:
        """State from which another process can go on; empty if the rule can name no node anyway."""
        return pack_stream(self._stream) if self._stream and self._stream.has_peers else b""


def look_at_job(
    job: str,
    nodes: Sequence[str],
    watching: Watching,
    caller: Caller = NO_CALLER,
    *,
    ended: bool = False,
    since: float = -math.inf,
    until: float | None = None,
    memory: JobMemory | None = None,
) -> JobLook:
    """Look once, at what these nodes reported since the job began, up to now or up to that time.
    Before it they may have done anything: they were no peers."""
    at = caller.clock() if until is None else until  # wall clock: telemetry is dated by such clocks
    source = memory.source if memory else watching.source
    pulled = source.pull(nodes, at, watching.settings.known_s)
    telemetry = pulled.telemetry.drop_before(since)
    stopped = None if ended else standing_still(telemetry, watching.settings.stalled_s)
    still = () if stopped is None else (f"no node of it works since {moment(stopped)}",)
    return JobLook(
        look=look_at(telemetry, watching, job=job, ended=ended, memory=memory),
        telemetry=telemetry,
        remarks=(*still, *pulled.remarks),
        still_since=stopped,
    )


def look_at(
    telemetry: Telemetry,
    watching: Watching,
    *,
    job: str = "",
    ended: bool = False,
    memory: JobMemory | None = None,
) -> Look:
    """Look by both rules: nodes that left their peers and, if more than an hour is known, nodes
    that were apart for ten minutes. Every suspicion has the mix of categories that its deviations
    indicate."""
    outliers = memory.outliers if memory else _outliers
    seen = look(telemetry, watching.model, watching.settings, job=job, ended=ended)
    suspicions = {suspicion.node: suspicion for suspicion in seen.suspicions}
    for node, deviations in outliers(telemetry).items():
        first = suspicions.get(node) or Suspicion(
            node=node, since=deviations[0].since, deviations=()
        )
        metrics = {deviation.metric for deviation in first.deviations}
        more = tuple(deviation for deviation in deviations if deviation.metric not in metrics)
        suspicions[node] = replace(first, deviations=(*first.deviations, *more))
    weighed = tuple(_weigh(suspicion, watching) for suspicion in suspicions.values())
    return replace(seen, suspicions=weighed)


def _weigh(suspicion: Suspicion, watching: Watching) -> Suspicion:
    mix = _mix(suspicion.deviations, watching.categories)
    rate = watching.rates.get((SOURCE, likeliest(mix)), HitRate())
    return replace(suspicion, mix=mix, confidence=rate.confidence())


def _outliers(telemetry: Telemetry) -> Mapping[str, Sequence[Deviation]]:
    stream = OutlierStream(telemetry.metrics, telemetry.nodes, telemetry.groups)
    stream.hear(telemetry)
    return _named_deviations(stream)


def _named_deviations(stream: OutlierStream) -> Mapping[str, Sequence[Deviation]]:
    """Deviations by node. In the first hour there are none: it is not known yet what is usual for a
    node."""
    return {} if stream.heard_s < stream.rule.level_s or stream.unable() else stream.deviations()


def _mix(deviations: Sequence[Deviation], categories: Mapping[str, str]) -> Mapping[str, float]:
    return mix_by_category(mix_of({deviation.family for deviation in deviations}), categories)


def view_of(seen: JobLook, watching: Watching, *, cluster: str, ended: bool) -> LookView:
    shorter = watching.settings.continuity_ended_s if ended else None
    return LookView(
        look=seen.look,
        telemetry=seen.telemetry,
        continuity_s=watching.settings.continuity_s if shorter is None else shorter,
        cluster=cluster,
        remarks=seen.remarks,
        learned_from=watching.model.origin.source if isinstance(watching.model, WatchModel) else "",
        rates={
            suspicion.node: watching.rates.get((SOURCE, likeliest(suspicion.mix)), HitRate())
            for suspicion in seen.look.suspicions
        },
    )


def likeliest(mix: Mapping[str, float]) -> str:
    return max(mix, key=lambda category: mix[category])


# --- all running jobs ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WatchRound:
    """The result of watching a cluster's jobs: the last look at each."""

    cluster: str
    at: float
    looks: tuple[KeptLook, ...]
    rates: Mapping[str, HitRate]  # of suspicions of this source, by category


def watching_of(name: str) -> Watching:
    """Read from files how jobs are watched."""
    from anubis.models.watch import watch_model_files

    policy = configs.watching(name)
    model = watch_model_files.load(watch_model_files.place(policy.model))
    return Watching(
        source=source_of(configs.telemetry(policy.telemetry), model.order),
        model=model,
        settings=policy.settings,
        categories=policy.categories,
    )


def source_of(settings: TelemetrySettings, metrics: Sequence[str]) -> TelemetrySource:
    if settings.prometheus:
        from anubis.readers.telemetry.prometheus import Prometheus

        return Prometheus(settings, metrics)
    if settings.agents:
        from anubis.readers.telemetry.agents import Agents

        return Agents(settings, metrics)
    raise ConfigError(
        'no source of telemetry is configured: write "prometheus: {url: ...}" or "agents: {}"'
        " into a file of configs/telemetry/ that is based on the default, and name it in a file"
        " of configs/watching/"
    )


def watch_jobs(
    keeping: Keeping,
    caller: Caller = NO_CALLER,
    drive: Callable[[], object] | None = None,
    watching: Watching | None = None,
) -> WatchRound | None:
    """Look at all running jobs that are due, and report suspects to the keeper, unless another
    process is doing it. None: the policy does not watch.

    `drive` starts this function elsewhere, without `drive`. `watching`: used instead of what the
    policy names.
    """
    if not keeping.policy.watch and watching is None:
        return None
    with caller.history() as history:
        part = enter_if_answered(history, keeping, caller)
        settings = (
            watching.settings if watching else configs.watching(keeping.policy.watch).settings
        )
        jobs, looks, now = _jobs(part, settings), part.looks.all(), time_in(part, caller).now
        due = due_jobs(
            jobs,
            {look.job: look for look in looks},
            now,
            interval_s=settings.interval_s,
            pull_s=settings.pull_s,
        )
        with part.looks.alone() as is_alone:
            if is_alone and (gone := gone_jobs(jobs, looks, now, pull_s=settings.pull_s)):
                part.looks.forget(gone)
            if due and is_alone and drive is None:
                _look_at_all(due, watching or watching_of(keeping.policy.watch), part, caller)
        if due and is_alone and drive is not None:
            drive()
        if due and not is_alone:
            caller.remark(f"another process watches the jobs of cluster {part.cluster}")
        return WatchRound(
            cluster=part.cluster,
            at=time_in(part, caller).now,
            looks=tuple(part.looks.all()),
            rates=_rates(part),
        )


def last_looks(caller: Caller = NO_CALLER) -> list[WatchedCluster]:
    """Last look at each watched job of each cluster, those with suspects first."""
    with caller.history() as history:
        return [_last_looks(part, time_in(part, caller).now) for part in history.every()]


def _last_looks(part: ClusterHistory, now: float) -> WatchedCluster:
    saw = part.looks.lines()
    jobs = [
        JobLooked(cluster=part.cluster, kept=kept, lines=tuple(saw.get(kept.job, "").splitlines()))
        for kept in part.looks.all()
    ]
    jobs.sort(key=lambda job: (job.kept.job_ended, -job.kept.suspects, not job.kept.trouble))
    return WatchedCluster(cluster=part.cluster, at=now, jobs=jobs)


def last_look(cluster: str, job: str, caller: Caller = NO_CALLER) -> LookDetails | None:
    """Details of the last look at a job that saw anything."""
    with caller.history() as history:
        if cluster not in history.clusters.names():
            return None
        return history.cluster(cluster).looks.details(job)


def _rates(part: ClusterHistory) -> Mapping[str, HitRate]:
    rates = hit_rates(part.keeping.suspicions())
    return {category: rate for (source, category), rate in rates.items() if source == SOURCE}


def _jobs(part: ClusterHistory, settings: WatchSettings) -> list[WatchedJob]:
    """Jobs with enough nodes for a majority to show what is normal."""
    return [
        WatchedJob(id=job.id, nodes=job.nodes, began_at=job.start, ended_at=job.end)
        for job in part.jobs.all()
        if len(job.nodes) >= settings.least_nodes
    ]


def _look_at_all(
    due: Sequence[WatchedJob], watching: Watching, part: ClusterHistory, caller: Caller
) -> None:
    """Look at all due jobs. A failure at one job is kept with that job, and the others are looked
    at all the same."""
    bugs: list[Exception] = []
    for job in due:
        if caller.wants_stop():
            return
        try:
            _look_and_tell(job, watching, part, caller)
        except StoreUnreachableError:
            raise
        except AnubisError as error:
            part.looks.write(_failed_look(job, str(error), part, caller))
        except Exception as error:
            bugs.append(error)
            part.looks.write(
                _failed_look(job, f"a bug in Anubis ({type(error).__name__})", part, caller)
            )
    if bugs:
        raise bugs[0]


def _failed_look(job: WatchedJob, why: str, part: ClusterHistory, caller: Caller) -> KeptLook:
    caller.remark(f"job {job.id} could not be examined: {why}")
    return KeptLook(
        job=job.id,
        at=time_in(part, caller).now,
        nodes=len(job.nodes),
        job_ended=job.ended_at is not None,
        trouble=why,
    )


def _look_and_tell(
    job: WatchedJob, watching: Watching, part: ClusterHistory, caller: Caller
) -> None:
    """Look at a job, report its suspects, and keep what the look saw and what the rule of ten
    minutes needs for the next one."""
    began, has_ended = time_in(part, caller).now, job.ended_at is not None
    trusted = replace(watching, rates=hit_rates(part.keeping.suspicions()))
    earlier = part.looks.details(job.id)
    memory = JobMemory(trusted, earlier.stream if earlier else b"")
    seen = look_at_job(
        job.id,
        job.nodes,
        trusted,
        caller,
        ended=has_ended,
        since=job.began_at,
        until=time_in(part, caller).now if job.ended_at is None else job.ended_at,
        memory=memory,
    )
    for sentence in seen.remarks:
        caller.remark(f"job {job.id}: {sentence}")
    now, window = time_in(part, caller).now, watching.settings.window
    note(suspicions_of(seen.look, seen.telemetry, window, part, now), part)
    if seen.still_since is not None:
        note_stall(job.id, job.nodes, seen.still_since, seen.remarks[0], part)
    kept = KeptLook(
        job=job.id,
        at=began,
        nodes=len(job.nodes),
        suspects=len(seen.look.suspicions),
        anomalies=len(seen.look.anomalies),
        job_ended=has_ended,
        trouble="" if seen.look.judged else _unjudged_reason(seen.look),
    )
    view = view_of(seen, trusted, cluster=part.cluster, ended=has_ended)
    details = LookDetails(
        job=job.id,
        lines="\n".join(lines(view)),
        page=render([view]),
        stream=b"" if has_ended else memory.to_keep(),
    )
    part.looks.write(kept, details)


def _unjudged_reason(look: Look) -> str:
    reasons = "; ".join(f"{name}: {why}" for name, why in look.unjudged.items())
    return f"no metric could be judged: {reasons or 'nothing was reported'}"


def suspicions_of(
    look: Look, telemetry: Telemetry, window: int, part: ClusterHistory, now: float
) -> list[EventRecord]:
    """Event records for the keeper. A node that this source suspects already is left out, and so is
    what was seen before the last suspicion of it ended; so a repeated look is reported once."""
    kept = [entry for entry in part.keeping.suspicions() if entry.source == SOURCE]
    event_records = []
    at = min(look.end, now)
    for suspicion in look.suspicions:
        of_node = [entry for entry in kept if entry.node == suspicion.node]
        if all(entry.ended_at is not None and entry.ended_at < at for entry in of_node):
            id = f"{SOURCE} {suspicion.node} {len(of_node) + 1}"
            event = replace(
                _suspicion_event(suspicion, look),
                windows=pack_windows(telemetry, suspicion.since, window),
            )
            event_records.append(EventRecord(id=id, at=at, event=event))
    return event_records


def _suspicion_event(suspicion: Suspicion, look: Look) -> SuspicionRaised:
    return SuspicionRaised(
        nodes=(suspicion.node,),
        category=likeliest(suspicion.mix),
        source=SOURCE,
        reason=_sentence(suspicion, look),
        mix=suspicion.mix,
    )


def _sentence(suspicion: Suspicion, look: Look) -> str:
    first, more = suspicion.deviations[0], len(suspicion.deviations) - 1
    value = "reports nothing" if math.isnan(first.value) else f"{first.value:.4g}"
    also = f", and {quantity(more, 'other metric')}" if more else ""
    whose = f"job {look.job}: " if look.job else ""
    return (
        f"{whose}{first.metric} {value} against {first.peers:.4g} of its peers since"
        f" {moment(suspicion.since)}{also}"
    )
