"""Diagnose why a job hangs, failed or is slow, from the traces that it left.

Each trace that cannot be read is one sentence of the answer. Nothing is done to nodes. On request,
suspects are reported to the keeper, which tests them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anubis.config import configs
from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.chain import InferenceRule
from anubis.core.diagnose.classes import ErrorClasses
from anubis.core.diagnose.cures import WEIGHTS, PastDiagnosis
from anubis.core.diagnose.diagnostician import DiagnosisAnswer, diagnose
from anubis.core.diagnose.evidence import Collector, JobEvidence, RankMap, Stall, join_evidence
from anubis.core.diagnose.faults import fault_of
from anubis.core.diagnose.live_progress import LONGEST_STILL_S
from anubis.core.diagnose.policy import PLACES, DiagnosisPolicy
from anubis.core.errors import AnubisError, ConfigError, EvidenceError, UsageError, did_you_mean
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.judge.equality import NodeSettings
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import resolve, time_in
from anubis.operations.job_surroundings import surroundings
from anubis.operations.owners import orchestrator_of
from anubis.operations.precedents import last_settings
from anubis.operations.running_jobs import nodes_of
from anubis.operations.strangers import drop_strangers
from anubis.operations.tell import note
from anubis.operations.watch import LookRequest, take_looks
from anubis.report.diagnose import DiagnosisView, headline, lines
from anubis.report.diagnosis_page import facts_of
from anubis.store.diagnoses import DiagnosisDetails
from anubis.store.history import ClusterHistory

if TYPE_CHECKING:
    from anubis.readers.jobs.live import LiveLook, LiveRank

LIVE_S = 20.0  # how long running processes are observed
KEPT_S = 10.0  # the same if other machines observe at the same time
UNTOLD_S = LONGEST_STILL_S + 5.0  # the same if they seem to stand still
SOURCE = "diagnosis"  # of its suspicions
HOW_TO_NAME = (
    "no traces of the job are known: give --logs, --kernel, --dumps, --ras, "
    "--xpu-timer, --traces, --inspector, --live or --telemetry"
)


@dataclass(frozen=True, kw_only=True)
class DiagnosisRequest:
    job: str = ""
    nodes: Sequence[str] = ()  # in the order of their ranks
    ranks_per_node: int | None = None  # None: as the site's policy says
    ranks: Path | None = None  # instead, a table of ranks and their nodes
    cluster: str | None = None
    topology: str | None = None  # of the fabric between them
    places: Mapping[str, Path] = field(default_factory=dict)  # of its traces, by the policy's words
    policy: str = "default"  # under configs/diagnosis/
    at: float | None = None  # of the failure; None: now
    stall: Stall | None = None  # a report that it stands still
    since: float | None = None  # advice for this job since then was about the same trouble


def diagnose_job(
    request: DiagnosisRequest,
    caller: Caller = NOBODY,
    *,
    past: Sequence[PastDiagnosis] = (),
    votes: Sequence[NodeSettings] = (),
    around: JobEvidence | None = None,
) -> DiagnosisView:
    """Diagnose a job. `past`: advice given before; what did not help is not advised again. `votes`:
    the settings that the cluster's nodes last reported. `around`: what is known of the network
    between the job's nodes, if no topology is named."""
    from anubis.readers.jobs.node_settings import settings_evidence

    policy = configs.diagnosis(request.policy)
    places = _places(request, policy)
    if not places:
        raise UsageError(HOW_TO_NAME)
    classes = configs.error_classes(policy.classes)
    policy = replace(policy, codes={**classes.levels, **policy.codes})
    ranks = _ranks(request, policy)
    topology, zone = request.topology or policy.topology, _zone(policy.zone)
    pieces = list(_collect(places, topology, ranks, classes, zone, caller))  # takes a while
    evidence = join_evidence(
        JobEvidence(
            job=request.job,
            # wall clock: logs and dumps are dated by it
            at=caller.clock() if request.at is None else request.at,
            collectors=frozenset(),
            ranks=ranks,
            stall=request.stall,
            is_past=request.at is not None,
        ),
        pieces,
    )
    evidence = join_evidence(evidence, [around] if around else [])
    evidence = join_evidence(evidence, [settings_evidence(evidence, votes)])
    diagnosis = diagnose(evidence, rules(), policy, past=past)
    return DiagnosisView(diagnosis=diagnosis, evidence=evidence, cluster=request.cluster or "")


def diagnose_and_tell(
    request: DiagnosisRequest, caller: Caller = NOBODY
) -> tuple[DiagnosisView, tuple[str, ...]]:
    """Diagnose with the advice of earlier diagnoses, keep the diagnosis, and report new suspects to
    the keeper. Return the diagnosis and those suspects."""
    with caller.history() as history:
        part = resolve(history, request.cluster, caller)
        now = time_in(part, caller).now if request.at is None else request.at
        past = part.diagnoses.read_since(now - configs.diagnosis(request.policy).repeat_s)
        past = [entry for entry in past if not _is_of_same_trouble(entry, request)]
        around = surroundings(history, part, request.nodes, now, caller)
        view = diagnose_job(
            request, caller, past=past, votes=last_settings(part, now), around=around
        )
        event_records = _suspicions(view, part, configs.diagnosis(request.policy).categories)
        event_records = drop_strangers(event_records, part, request.cluster, caller)
        note(event_records, part)
        if view.diagnosis.answer is not DiagnosisAnswer.NOTHING:
            part.diagnoses.write(kept_of(view), details_of(view))
    return view, tuple(node for event_record in event_records for node in event_record.event.nodes)


def _is_of_same_trouble(past: PastDiagnosis, request: DiagnosisRequest) -> bool:
    return request.since is not None and past.job == request.job and past.at >= request.since


def kept_of(view: DiagnosisView) -> PastDiagnosis:
    diagnosis = view.diagnosis
    return PastDiagnosis(
        job=diagnosis.job,
        at=diagnosis.at,
        level=diagnosis.cure.level,
        code=diagnosis.code,
        nodes=diagnosis.nodes,
        headline=headline(view),
    )


def details_of(view: DiagnosisView) -> DiagnosisDetails | None:
    """Details of a diagnosis; None if there is nothing to show."""
    diagnosis = view.diagnosis
    if diagnosis.trouble in (JobTrouble.NOTHING, JobTrouble.UNKNOWN):
        return None
    return DiagnosisDetails(
        job=diagnosis.job,
        at=diagnosis.at,
        lines="\n".join(lines(view)),
        page=json.dumps(facts_of(view)),
    )


def _suspicions(
    view: DiagnosisView, part: ClusterHistory, categories: Mapping[str, str]
) -> list[EventRecord]:
    """Suspicions that are new: a node that is suspected already is left out."""
    diagnosis = view.diagnosis
    fault = fault_of(diagnosis.cause)
    kept = [entry for entry in part.keeping.suspicions() if entry.source == SOURCE]
    fresh = []
    for node in diagnosis.nodes:
        of_node = [entry for entry in kept if entry.node == node]
        if all(entry.ended_at is not None and entry.ended_at < diagnosis.at for entry in of_node):
            raised = SuspicionRaised(
                nodes=(node,),
                category=categories.get(fault, fault),
                source=SOURCE,
                reason=headline(view),
                confidence=WEIGHTS[diagnosis.cure.level] * diagnosis.confidence,
            )
            id = f"{SOURCE} {node} {len(of_node) + 1}"
            fresh.append(EventRecord(id=id, at=diagnosis.at, event=raised))
    return fresh


def rules() -> tuple[InferenceRule, ...]:
    """All inference rules; each is applied if its needs are met."""
    from anubis.core.diagnose import (
        bystanders,
        critical,
        hang,
        log_facts,
        mismatch,
        odd_settings,
        root_cause,
        slow,
        wires,
    )

    modules = (
        critical,
        log_facts,
        bystanders,
        hang,
        mismatch,
        wires,
        slow,
        root_cause,
        odd_settings,
    )
    return tuple(rule for module in modules for rule in module.RULES)


def _places(request: DiagnosisRequest, policy: DiagnosisPolicy) -> dict[str, Path]:
    """Paths of the traces: those that the site's policy states, replaced by those of the
    request."""
    if unknown := sorted(request.places.keys() - set(PLACES)):
        raise UsageError(f'no trace is called "{unknown[0]}"; {did_you_mean(unknown[0], PLACES)}')
    stated = {name: policy.place_of(name, request.job) for name in PLACES}
    return {**{name: Path(at) for name, at in stated.items() if at}, **request.places}


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ConfigError(
            f'zone is "{name}", which no time zone is called here; expected UTC or one such as'
            " Europe/Berlin"
        ) from None


# --- ranks and their nodes -----------------------------------------------------------------


def _ranks(request: DiagnosisRequest, policy: DiagnosisPolicy) -> RankMap:
    from anubis.readers.jobs.ranks import number_ranks, read_ranks

    if request.ranks:
        return read_ranks(request.ranks)
    per_node = policy.ranks_per_node if request.ranks_per_node is None else request.ranks_per_node
    if per_node < 1:
        raise UsageError(f"{per_node} ranks on a node, expected 1 or more")
    nodes = request.nodes
    if not nodes and request.job and request.cluster:
        nodes = nodes_of(request.job, orchestrator_of(configs.cluster(request.cluster)))
    return number_ranks(nodes, per_node)


# --- what it left behind -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Trail:
    """One kind of trace that a job leaves."""

    place: str  # the policy's word for where that is, and the option of the command line
    words: str
    collectors: tuple[Collector, ...]  # which need it
    read: Callable[[Path, RankMap, ErrorClasses], JobEvidence] = field(compare=False)


def _collect(
    places: Mapping[str, Path],
    topology: str | None,
    ranks: RankMap,
    classes: ErrorClasses,
    zone: tzinfo,
    caller: Caller,
) -> Iterator[JobEvidence]:
    trails = _trails(zone)
    for trail in trails:
        if (path := places.get(trail.place)) is not None:
            caller.doing(f"reading {trail.words}")
            try:
                yield trail.read(path, ranks, classes)
            except EvidenceError as error:
                yield _gap(trail, str(error))
    absent = [trail for trail in trails if trail.place not in places]
    for trail in absent:  # a named one that could not be read was reported above
        instead = [rival.place for rival in absent if {*rival.collectors} & {*trail.collectors}]
        yield _gap(trail, f"no {trail.words} ({' or '.join(f'--{place}' for place in instead)})")
    if topology:
        yield _fabric(topology)


def _gap(trail: _Trail, why: str) -> JobEvidence:
    return JobEvidence(
        job="", at=0.0, collectors=frozenset(), gaps=dict.fromkeys(trail.collectors, why)
    )


def _fabric(topology: str) -> JobEvidence:
    from anubis.operations.topology import survey

    fabric = survey(topology, None).fabric
    return JobEvidence(job="", at=0.0, collectors=frozenset(), fabric=fabric)


def _trails(zone: tzinfo) -> tuple[_Trail, ...]:
    """Kinds of traces. Running processes come first: a process may end while it is observed, and
    then its logs say why. `zone`: of times in logs that name none."""
    return (
        _Trail(
            place="live",
            words="processes to ask",
            collectors=(Collector.PROCESSES, Collector.STACKS, Collector.CONNECTIONS),
            read=_live,
        ),
        _Trail(
            place="logs",
            words="training logs",
            collectors=(Collector.TRAINING_LOG, Collector.EXITS),
            read=partial(_logs, zone=zone),
        ),
        _Trail(
            place="kernel",
            words="kernel logs",
            collectors=(Collector.KERNEL_LOG,),
            read=partial(_kernel, zone=zone),
        ),
        _Trail(
            place="dumps",
            words="dumps of collectives",
            collectors=(Collector.PROGRESS, Collector.CALLS),
            read=_dumps,
        ),
        _Trail(
            place="ras",
            words="reports of RAS",
            collectors=(Collector.PROGRESS, Collector.PROCESSES),
            read=_ras,
        ),
        _Trail(
            place="xpu-timer",
            words="timers of kernels",
            collectors=(Collector.TIMERS,),
            read=_timers,
        ),
        _Trail(
            place="traces",
            words="traces of steps",
            collectors=(Collector.STEPS,),
            read=_traces,
        ),
        _Trail(
            place="inspector",
            words="lines of NCCL Inspector",
            collectors=(Collector.STEPS,),
            read=_inspector,
        ),
        _Trail(
            place="telemetry",
            words="telemetry",
            collectors=(Collector.TELEMETRY,),
            read=_telemetry,
        ),
    )


def _logs(path: Path, ranks: RankMap, classes: ErrorClasses, *, zone: tzinfo = UTC) -> JobEvidence:
    from anubis.readers.jobs.training_logs import read_training

    return read_training(path, ranks, classes, zone)


def _kernel(
    path: Path, ranks: RankMap, classes: ErrorClasses, *, zone: tzinfo = UTC
) -> JobEvidence:
    from anubis.readers.jobs.kernel_logs import read_kernel

    return read_kernel(path, ranks, classes, zone)


def _live(path: Path, *_: object) -> JobEvidence:
    """Evidence of running processes, with the reason why some ranks cannot be asked."""
    from anubis.readers.jobs.live import refusals

    refused = refusals(path) if path.is_dir() else ""
    try:
        evidence = _observe_ranks(path)
    except EvidenceError:
        if refused:
            raise EvidenceError(refused) from None
        raise
    gaps = {Collector.PROCESSES: refused} if refused else {}
    return replace(evidence, gaps={**evidence.gaps, **gaps})


def _observe_ranks(path: Path) -> JobEvidence:
    """Evidence of the ranks. If the job works, no rank counts as absent, only as late."""
    from anubis.readers.jobs.live import evidence_of_looks, hang_together, stall_of
    from anubis.readers.jobs.live_files import look_files, read_looks

    files = look_files(path)
    looks = read_looks(files) or [_watch_ranks(path, LIVE_S)]
    evidence = evidence_of_looks(looks)
    if hang_together(looks):
        return replace(evidence, stall=stall_of(looks, evidence))
    at_work = frozenset({Collector.PROGRESS, Collector.CALLS})
    return replace(evidence, collectors=evidence.collectors - at_work, advances=(), calls=())


def _watch_ranks(place: Path, seconds: float) -> LiveLook:
    """Watch ranks until they stand still or are shown to work; if neither is clear in time, for as
    long as a pause may last."""
    from anubis.readers.jobs.live import ask_ranks, watch_ranks

    present = _rank_finder(place)
    look = ask_ranks(present())  # raises an error that says why if no rank can be asked
    began = time.monotonic()
    for look in watch_ranks(present):
        spent_s = time.monotonic() - began
        if look.hangs or spent_s >= (seconds if look.is_told else max(seconds, UNTOLD_S)):
            break
    return look


def _rank_finder(place: Path) -> Callable[[], list[LiveRank]]:
    """Make a function that finds the ranks. `place`: the folder in which ranks announce themselves,
    or /proc/PID of a process that started them."""
    from anubis.readers.jobs.live import ranks_in
    from anubis.readers.jobs.processes import PROC, live_folder, ranks_of_process

    if place.parent != PROC:
        return partial(ranks_in, place)
    pid = int(place.name) if place.name.isdecimal() else 0
    if folder := live_folder(pid):
        return partial(ranks_in, folder)
    ranks = ranks_of_process(pid)
    return lambda: ranks


def keep_look(place: Path, kept_in: Path, caller: Caller = NOBODY) -> Path:
    """Write what this machine's ranks report, for a diagnosis of all machines of their job."""
    from anubis.readers.jobs.live_files import write_look

    caller.doing("looking at the ranks of this machine")
    return write_look(_watch_ranks(place, KEPT_S), kept_in)


def _dumps(path: Path, *_: object) -> JobEvidence:
    from anubis.readers.jobs.flight_recorder import read_dumps

    return read_dumps(path)


def _ras(path: Path, *_: object) -> JobEvidence:
    from anubis.readers.jobs.ras import read_ras

    return read_ras(path)


def _timers(path: Path, *_: object) -> JobEvidence:
    from anubis.readers.jobs.xpu_timer import read_xpu_timer

    return read_xpu_timer(path)


def _inspector(path: Path, *_: object) -> JobEvidence:
    from anubis.readers.jobs.inspector import read_inspector

    return read_inspector(path)


def _traces(path: Path, *_: object) -> JobEvidence:
    from anubis.readers.jobs.kineto import read_traces
    from anubis.readers.jobs.step_tables import read_step_table

    return read_traces(path) if path.is_dir() else read_step_table(path)


def _telemetry(path: Path, *_: object) -> JobEvidence:
    try:
        (view,) = take_looks(LookRequest(file=path, ended=True))
    except AnubisError as error:
        raise EvidenceError(str(error)) from None
    return JobEvidence(
        job="", at=view.look.end, collectors=frozenset({Collector.TELEMETRY}), look=view.look
    )
