"""Diagnose jobs automatically, each once: those that ended lately, and those that stand still.

No report says that a job failed: its traces show it. A person or the watch reports that a running
job stands still; logs that stay silent, if their place is known, show it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.config import configs
from anubis.core.amounts import HOUR_S
from anubis.core.diagnose.cures import CureLevel, DiagnosisPolicy, PastDiagnosis
from anubis.core.diagnose.diagnose_due import (
    AGAIN_S,
    LOGS,
    UNEXPLAINED_S,
    ReportedStall,
    silence_begin,
    undiagnosed_stalls,
    unexplained,
)
from anubis.core.diagnose.evidence import Stall
from anubis.core.errors import AnubisError
from anubis.core.history.events import EventRecord, JobUnexplained
from anubis.core.history.status import Job
from anubis.core.keep.suspicions import hit_rates, open_suspicion
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import time_in
from anubis.operations.diagnose import SOURCE, diagnose_and_tell, kept_of
from anubis.operations.keeping import Keeping, enter_if_answered
from anubis.operations.requests import DiagnosisRequest
from anubis.operations.tell import note, stall_event_record, stalls_by_job
from anubis.report.diagnosis_pages import OPEN, DiagnosedCluster, DiagnosedJob
from anubis.store.diagnoses import DETAILS_KEPT_S, DiagnosisDetails
from anubis.store.history import ClusterHistory
from anubis.text.wording import moment, time_span

LATELY_S = HOUR_S  # a job that ended earlier is not diagnosed
SETTLED_S = 30.0  # after the end, until the logs are written
MOST_SHOWN = 200  # jobs in one answer


@dataclass(frozen=True, kw_only=True)
class _Patient:
    """A job that is to be diagnosed now."""

    job: str
    nodes: tuple[str, ...]
    at: float  # when it ended, or since when it stands still
    stall: Stall | None = None


def diagnose_due(
    keeping: Keeping, caller: Caller = NO_CALLER, drive: Callable[[], object] | None = None
) -> tuple[DiagnosedJob, ...]:
    """Diagnose jobs that ended lately or stand still, unless another process is doing it; return
    all diagnoses of the last day. `drive` starts this function elsewhere, without `drive`."""
    name = keeping.policy.diagnose
    if not name:
        return ()
    policy = configs.diagnosis(name)
    with caller.history() as history:
        part = enter_if_answered(history, keeping, caller)
        now = time_in(part, caller).now
        with part.diagnoses.alone() as is_alone:
            due = _due(part, policy, now) if is_alone else []
            if drive is None:
                for patient in due:
                    _diagnose(patient, name, part, caller)
        if due and drive is not None:
            drive()
        return tuple(_add_outcomes(part.diagnoses.read_since(now - policy.repeat_s), part))


def undiagnosed_since(part: ClusterHistory, now: float) -> tuple[float, ...]:
    """Times since which undiagnosed jobs have ended or stand still."""
    return tuple(patient.at for patient in _patients(part, now))


def _due(part: ClusterHistory, policy: DiagnosisPolicy, now: float) -> list[_Patient]:
    note(list(_silent_jobs(part.jobs.read_since(now), policy, part, now)), part)
    return _patients(part, now)


def _patients(part: ClusterHistory, now: float) -> list[_Patient]:
    lately = {job.id: job for job in part.jobs.read_since(now - LATELY_S)}
    times: dict[str, list[float]] = {}
    for diagnosis in part.diagnoses.read_since(0.0):
        times.setdefault(diagnosis.job, []).append(diagnosis.at)
    stalls = [stall for of_job in stalls_by_job(part).values() for stall in of_job]
    due = undiagnosed_stalls(stalls, times)
    jobs = {job.id: job for job in part.jobs.read_about(stall.job for stall in due)}
    return [*_ended_jobs(lately.values(), times, now), *_stalled_jobs(due, jobs, now)]


def _ended_jobs(
    jobs: Iterable[Job], times: Mapping[str, list[float]], now: float
) -> Iterable[_Patient]:
    for job in jobs:
        is_recent = job.end is not None and now - LATELY_S <= job.end <= now - SETTLED_S
        if is_recent and job.end is not None and job.end not in times.get(job.id, ()):
            yield _Patient(job=job.id, nodes=job.nodes, at=job.end)


def _stalled_jobs(
    stalls: Iterable[ReportedStall], jobs: Mapping[str, Job], now: float
) -> Iterable[_Patient]:
    """Jobs that stand still; if a job has ended, its end is diagnosed instead."""
    for stall in stalls:
        job = jobs.get(stall.job)
        runs = job.end is None if job else now - stall.at <= LATELY_S
        if runs:
            yield _Patient(
                job=stall.job,
                nodes=stall.nodes,
                at=stall.at,
                stall=Stall(since=stall.at, sentence=_sentence(stall)),
            )


def _sentence(stall: ReportedStall) -> str:
    reason = f": {stall.reason}" if stall.reason else ""
    return f"{stall.source} reports that it has made no progress since {moment(stall.at)}{reason}"


def _diagnose(patient: _Patient, policy: str, part: ClusterHistory, caller: Caller) -> None:
    """Diagnose a job and keep the result, even without any finding, so that it is not diagnosed
    again. If a job ends with its stall, the advice for the stall does not count as useless: it was
    about the same trouble."""
    request = DiagnosisRequest(
        job=patient.job,
        nodes=patient.nodes,
        cluster=part.cluster,
        policy=policy,
        at=patient.at,
        stall=patient.stall,
        since=patient.at - AGAIN_S,
    )
    try:
        view, _ = diagnose_and_tell(request, caller)
        kept = kept_of(view)
    except AnubisError as error:
        kept = PastDiagnosis(
            job=patient.job,
            at=patient.at,
            level=CureLevel.NONE,
            code="",
            headline=f"not diagnosed: {error}",
        )
    part.diagnoses.write(kept)
    caller.remark(kept.headline)
    if patient.stall is None:
        note(list(_unexplained(patient, part)), part)


def _unexplained(patient: _Patient, part: ClusterHistory) -> Iterator[EventRecord]:
    """Report of the trouble of a job that ended, if none of its diagnoses knows a culprit."""
    diagnoses = part.diagnoses.read_since(patient.at - UNEXPLAINED_S)
    jobs = part.jobs.read_about({diagnosis.job for diagnosis in diagnoses})
    nodes_of = {job.id: job.nodes for job in jobs} | {patient.job: patient.nodes}
    has_stalled = patient.job in stalls_by_job(part)
    if trouble := unexplained(patient.job, diagnoses, nodes_of, has_stalled=has_stalled):
        nodes, reason = trouble
        event = JobUnexplained(nodes=nodes, job=patient.job, source=SOURCE, reason=reason)
        yield EventRecord(id=f"job {patient.job} unexplained", at=patient.at, event=event)


# --- what was diagnosed -------------------------------------------------------------------------


def last_diagnoses(caller: Caller = NO_CALLER) -> list[DiagnosedCluster]:
    """Diagnoses of each cluster, as far back as their details are kept."""
    with caller.history() as history:
        return [_last_diagnoses(part, time_in(part, caller).now) for part in history.every()]


def _last_diagnoses(part: ClusterHistory, now: float) -> DiagnosedCluster:
    diagnosed = _add_outcomes(part.diagnoses.read_since(now - DETAILS_KEPT_S), part)
    telling = [job for job in reversed(diagnosed) if job.says_something]
    rates = hit_rates(part.keeping.suspicions())
    return DiagnosedCluster(
        cluster=part.cluster,
        jobs=telling[:MOST_SHOWN],
        others=len(diagnosed) - len(telling),
        rates={category: rate for (source, category), rate in rates.items() if source == SOURCE},
    )


def kept_diagnosis(
    cluster: str, job: str, at: float, caller: Caller = NO_CALLER
) -> tuple[DiagnosedJob, DiagnosisDetails] | None:
    """A kept diagnosis with the outcomes for its suspects; None if it is not kept."""
    with caller.history() as history:
        if cluster not in history.clusters.names():
            return None
        part = history.cluster(cluster)
        details = part.diagnoses.details(job, at)
        if details is None:
            return None
        of_job = [past for past in part.diagnoses.read_since(details.at) if past.job == job]
        return _add_outcomes(of_job[:1], part)[0], details


def _add_outcomes(past: Sequence[PastDiagnosis], part: ClusterHistory) -> list[DiagnosedJob]:
    suspicions = [entry for entry in part.keeping.suspicions() if entry.source == SOURCE]
    detailed = part.diagnoses.detailed_jobs()
    return [
        DiagnosedJob(
            cluster=part.cluster,
            past=diagnosis,
            outcomes={
                node: suspicion.outcome.value if suspicion.outcome else OPEN
                for node in diagnosis.nodes
                if (suspicion := open_suspicion(suspicions, SOURCE, node, diagnosis.at))
            },
            is_kept=(diagnosis.job, diagnosis.at) in detailed,
        )
        for diagnosis in past
    ]


# --- jobs whose logs are silent -----------------------------------------------------------------


def _silent_jobs(
    jobs: Iterable[Job], policy: DiagnosisPolicy, part: ClusterHistory, now: float
) -> Iterable[EventRecord]:
    """Stalls of running jobs that no longer write to their own logs."""
    from anubis.readers.jobs.log_lines import last_written

    if not policy.silent_s or "{job}" not in policy.places.get("logs", ""):
        return
    stalls = stalls_by_job(part)
    for job in jobs:
        if job.end is not None:
            continue
        written = last_written(Path(policy.place_of("logs", job.id)), now - policy.silent_s)
        if written is None:
            continue
        since = silence_begin(written, job.start, now, policy.silent_s, stalls.get(job.id, []))
        if since is not None:
            reason = f"its logs have had no new line for {time_span(now - since)}"
            yield stall_event_record(job.id, job.nodes, since, LOGS, reason)
