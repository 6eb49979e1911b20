"""Diagnose why a job hangs, failed or is slow, from the traces that it left.

Each trace that cannot be read is one sentence of the answer. Nothing is done to nodes. On request,
suspects are reported to the keeper, which tests them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from anubis.config import configs
from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.crash import AROUND_S, counter_hints
from anubis.core.diagnose.cures import WEIGHTS, DiagnosisPolicy, PastDiagnosis
from anubis.core.diagnose.diagnostician import Diagnosis, DiagnosisAnswer, diagnose
from anubis.core.diagnose.evidence import AskedNodes, JobEvidence, RankMap, join_evidence
from anubis.core.diagnose.facts import InferenceRule, JobFact, fault_of
from anubis.core.errors import (
    ConfigError,
    EvidenceError,
    TelemetryError,
    UsageError,
    did_you_mean,
    named_by_request,
)
from anubis.core.fabric import Fabric, Part
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.judge.equality import NodeSettings
from anubis.core.network.hints import join_hints
from anubis.core.records import Expectation
from anubis.core.watch.findings import Look
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import drop_strangers, resolve, time_in
from anubis.operations.job_surroundings import surroundings
from anubis.operations.keeping import kept_policy
from anubis.operations.notify import message_of_diagnosis
from anubis.operations.owners import nodes_of, orchestrator_of
from anubis.operations.precedents import last_settings
from anubis.operations.requests import DiagnosisRequest, LookRequest
from anubis.operations.tell import note
from anubis.operations.watch import take_looks
from anubis.readers.jobs.trace_reader import TraceContext, TraceReader, trace_readers
from anubis.report.diagnose import DiagnosisView, headline, lines
from anubis.report.diagnosis_pages import facts_of
from anubis.store.diagnoses import DiagnosisDetails
from anubis.store.history import ClusterHistory
from anubis.text.wording import quantity

SOURCE = "diagnosis"  # of its suspicions


def diagnose_job(
    request: DiagnosisRequest,
    caller: Caller = NO_CALLER,
    *,
    past: Sequence[PastDiagnosis] = (),
    votes: Sequence[NodeSettings] = (),
    expectations: Sequence[Expectation] = (),
    around: JobEvidence | None = None,
) -> DiagnosisView:
    """Diagnose a job. `past`: advice given before; what did not help is not advised again. `votes`:
    the settings that the cluster's nodes last reported, with the site's `expectations`. `around`:
    what is known of the network between the job's nodes, if no topology is named."""
    from anubis.operations.job_surroundings import settings_evidence

    policy = configs.diagnosis(request.policy)
    nodes = _nodes(request)
    live = _ask_agents(request, policy, nodes, caller)
    places = _places(request, policy)
    if live:
        places.pop("live", None)  # of this machine alone
    elif not places:
        raise UsageError(_no_traces(request.job))
    classes = configs.error_classes(policy.classes)
    policy = replace(policy, codes={**classes.levels, **policy.codes})
    ranks = _ranks(request, policy, nodes)
    if live and not request.ranks:
        ranks = _seen_ranks(ranks, live.ranks)
    context = TraceContext(ranks=ranks, classes=classes, zone=_zone(policy.zone), look=_look)
    topology = request.topology or policy.topology
    pieces = [*([live] if live else []), *_collect(places, topology, context, caller)]
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
    if request.counters:
        counted = _read_counters(request, evidence.fabric, caller)
        evidence = replace(evidence, hints=join_hints(evidence.hints, counted))
    evidence = join_evidence(evidence, [settings_evidence(evidence, votes, expectations)])
    diagnosis = diagnose(evidence, rules(), policy, past=past)
    return DiagnosisView(diagnosis=diagnosis, evidence=evidence, cluster=request.cluster or "")


def diagnose_and_tell(
    request: DiagnosisRequest, caller: Caller = NO_CALLER
) -> tuple[DiagnosisView, tuple[str, ...]]:
    """Diagnose with the advice of earlier diagnoses, keep the diagnosis, and report new suspects to
    the keeper. Return the diagnosis and those suspects."""
    with caller.history(begins=True) as history:
        part = resolve(history, request.cluster, caller)
        now = time_in(part, caller).now if request.at is None else request.at
        past = part.diagnoses.read_since(now - configs.diagnosis(request.policy).repeat_s)
        past = [entry for entry in past if not _is_of_same_trouble(entry, request)]
        around = surroundings(history, part, request.nodes, now, caller)
        view = diagnose_job(
            request,
            caller,
            past=past,
            votes=last_settings(part, now),
            expectations=_expectations(part, caller),
            around=around,
        )
        view = replace(view, suspected=_suspected_by_others(part, request.nodes, now))
        event_records = _suspicions(view, part, configs.diagnosis(request.policy).categories)
        event_records = drop_strangers(event_records, part, request.cluster, caller)
        note(event_records, part)
        if view.diagnosis.answer is not DiagnosisAnswer.NOTHING:
            advice, details = kept_of(view), details_of(view)
            with history.together():
                part.diagnoses.write(advice, details)
                # sent by the keeper's next turn; a job that ended without a finding is no news
                if (details or request.stall) and kept_policy(part).notify:
                    part.messages.post([message_of_diagnosis(advice)])
    return view, tuple(node for event_record in event_records for node in event_record.event.nodes)


def _expectations(part: ClusterHistory, caller: Caller) -> tuple[Expectation, ...]:
    """Return what the policy by which the cluster is tested expects of settings."""
    try:
        return configs.policy(kept_policy(part).selection).expectations
    except ConfigError as error:
        caller.remark(f"settings are only compared with those of most nodes: {error}")
        return ()


def _is_of_same_trouble(past: PastDiagnosis, request: DiagnosisRequest) -> bool:
    return request.since is not None and past.job == request.job and past.at >= request.since


def _suspected_by_others(part: ClusterHistory, nodes: Sequence[str], at: float) -> dict[str, str]:
    return {
        entry.node: entry.source
        for entry in part.keeping.suspicions()
        if entry.node in nodes and entry.source != SOURCE and entry.is_open(at)
    }


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
    kept = [entry for entry in part.keeping.suspicions() if entry.source == SOURCE]
    fresh = []
    for node, (cause, confidence) in _suspects(diagnosis).items():
        fault = fault_of(cause)
        of_node = [entry for entry in kept if entry.node == node]
        if all(entry.ended_at is not None and entry.ended_at < diagnosis.at for entry in of_node):
            raised = SuspicionRaised(
                nodes=(node,),
                category=categories.get(fault, fault),
                source=SOURCE,
                reason=cause.evidence if cause and not diagnosis.nodes else headline(view),
                confidence=confidence,
            )
            id = f"{SOURCE} {node} {len(of_node) + 1}"
            fresh.append(EventRecord(id=id, at=diagnosis.at, event=raised))
    return fresh


def _suspects(diagnosis: Diagnosis) -> dict[str, tuple[JobFact | None, float]]:
    """Nodes that a test should prove or clear, with the fact that speaks against each and how
    strongly."""
    if diagnosis.nodes:
        confidence = WEIGHTS[diagnosis.cure.level] * diagnosis.confidence
        return dict.fromkeys(diagnosis.nodes, (diagnosis.cause, confidence))
    return {
        fact.whom.node: (fact, fact.confidence) for fact in diagnosis.likeliest if fact.whom.node
    }


def rules() -> tuple[InferenceRule, ...]:
    """All inference rules; each is applied if its needs are met."""
    from anubis.core.diagnose import (
        adapters,
        crash,
        hang,
        host_connections,
        log_facts,
        node_facts,
        root_cause,
        slow,
        slow_paths,
        stacks,
        transfers,
    )

    return (
        *crash.RULES,
        *log_facts.RULES,
        *node_facts.RULES,
        *hang.RULES,
        *stacks.RULES,
        *hang.MATCHING_RULES,
        *host_connections.RULES,
        *slow.RULES,
        *transfers.RULES,
        *slow_paths.RULES,
        *adapters.RULES,
        *root_cause.RULES,
        *node_facts.SETTINGS_RULES,
    )


def _places(request: DiagnosisRequest, policy: DiagnosisPolicy) -> dict[str, Path]:
    """Paths of the traces: those that the site's policy states, replaced by those of the
    request."""
    readers = trace_readers()
    if unknown := sorted(request.places.keys() - readers.keys()):
        raise UsageError(f'no trace is called "{unknown[0]}"; {did_you_mean(unknown[0], readers)}')
    stated = {name: policy.place_of(name, request.job) for name in readers}
    return {**{name: Path(at) for name, at in stated.items() if at}, **request.places}


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ConfigError(
            f'zone is "{name}", which is no time zone of this machine; expected UTC or one such'
            " as Europe/Berlin"
        ) from None


# --- ranks and their nodes -----------------------------------------------------------------


def _no_traces(job: str) -> str:
    """A sentence for a request without traces. A folder in place of the job's id is a slip."""
    options = ", ".join(f"--{place}" for place in trace_readers())
    if job and Path(job).exists():
        return f'"{job}" is a path, expected the id of a job: say what it is by one of {options}'
    return (
        "no traces of the job are known: give --pid PID for a job on this machine, or one of "
        f"{options}"
    )


def _nodes(request: DiagnosisRequest) -> Sequence[str]:
    """Nodes of the job, in the order of ranks, as they are named or as its orchestrator says."""
    if not request.nodes and not request.ranks and request.job and request.cluster:
        return nodes_of(request.job, orchestrator_of(configs.cluster(request.cluster)))
    return request.nodes


def _ranks(request: DiagnosisRequest, policy: DiagnosisPolicy, nodes: Sequence[str]) -> RankMap:
    from anubis.readers.jobs.ranks import number_ranks, read_ranks

    if request.ranks:
        with named_by_request():
            return read_ranks(request.ranks)
    per_node = policy.ranks_per_node if request.ranks_per_node is None else request.ranks_per_node
    if per_node < 1:
        raise UsageError(f"{per_node} ranks on a node, expected 1 or more")
    return number_ranks(nodes, per_node)


def _seen_ranks(numbered: RankMap, seen: RankMap) -> RankMap:
    """Nodes of ranks as they were seen. Ranks that were not seen are where the numbering puts them,
    but only if all seen ones agree with it."""
    agree = all(numbered.nodes.get(rank) == node for rank, node in seen.nodes.items())
    assumed = numbered.nodes if agree else {}
    return replace(numbered, nodes={**assumed, **seen.nodes})


# --- what agents see of it -----------------------------------------------------------------


def _ask_agents(
    request: DiagnosisRequest, policy: DiagnosisPolicy, nodes: Sequence[str], caller: Caller
) -> JobEvidence | None:
    """Evidence of the agents on the nodes of a running job; None if there are none to ask."""
    is_now = request.at is None or request.stall
    if not (request.job and nodes and is_now) or "live" in request.places:
        return None
    agents = configs.telemetry(policy.telemetry).agents
    if agents is None or not agents.token_file:
        return None
    from anubis.readers.jobs.agent_looks import AgentLooks, ask_agents
    from anubis.readers.jobs.live_trace import evidence_of_job
    from anubis.readers.telemetry.agents import AgentClient

    each_node = tuple(dict.fromkeys(nodes))
    caller.doing(f"asking the agents of {quantity(len(each_node), 'node')} to look at the job")
    try:
        seen = ask_agents(request.job, each_node, AgentClient(agents))
    except TelemetryError as error:  # of their token: the other traces count all the same
        seen = AgentLooks(looks={}, silent=dict.fromkeys(each_node, str(error)))
    if seen.looks:
        evidence = evidence_of_job(list(seen.looks.values()))
        addresses = {**seen.addresses, **evidence.ranks.addresses}
        evidence = replace(evidence, ranks=replace(evidence.ranks, addresses=addresses))
        if seen.silent and not evidence.alive:  # ranks of the missing nodes may be there
            evidence = replace(evidence, alive=None)
    else:
        why = f"no agent answered with a look: {next(iter(seen.silent.values()), '')}"
        gaps = dict.fromkeys(trace_readers()["live"].brings, why)
        evidence = JobEvidence(collectors=frozenset(), gaps=gaps)
    return replace(evidence, asked=AskedNodes(nodes=each_node, silent=seen.silent))


# --- what it left behind -------------------------------------------------------------------


def _collect(
    places: Mapping[str, Path], topology: str | None, context: TraceContext, caller: Caller
) -> Iterator[JobEvidence]:
    readers = trace_readers()
    for reader in readers.values():
        if (path := places.get(reader.place)) is not None:
            caller.doing(f"reading {reader.words}")
            try:
                yield reader.read(path, context)
            except EvidenceError as error:
                yield _gap(reader, str(error))
    absent = [reader for reader in readers.values() if reader.place not in places]
    for reader in absent:  # a named one that could not be read was reported above
        instead = [rival.place for rival in absent if {*rival.brings} & {*reader.brings}]
        yield _gap(reader, f"no {reader.words} ({' or '.join(f'--{place}' for place in instead)})")
    if topology:
        yield _fabric(topology)


def _gap(reader: TraceReader, why: str) -> JobEvidence:
    gaps = dict.fromkeys(reader.brings, why)
    return JobEvidence(collectors=frozenset(), gaps=gaps)


def _fabric(topology: str) -> JobEvidence:
    from anubis.operations.topology import survey

    fabric = survey(topology, None).fabric
    return JobEvidence(collectors=frozenset(), fabric=fabric)


def _read_counters(
    request: DiagnosisRequest, fabric: Fabric | None, caller: Caller
) -> Mapping[Part, float]:
    """The factors on the odds of parts that the counters of their ports give."""
    from anubis.operations.topology import count_errors

    if fabric is None:
        raise UsageError("--counters without the fabric that has these ports: give --topology")
    rose_s = AROUND_S if len(request.counters) > 1 else None
    counted, remarks = count_errors(request.topology or "", request.counters, rose_s, caller)
    for remark in remarks:
        caller.remark(remark.sentence)
    return counter_hints(fabric, counted)


def _look(path: Path) -> Look:
    (view,) = take_looks(LookRequest(file=path, ended=True))
    return view.look


def keep_look(place: Path, kept_in: Path, caller: Caller = NO_CALLER) -> Path:
    """Write what this machine's ranks report, for a diagnosis of all machines of their job."""
    from anubis.readers.jobs.live_trace import write_live

    caller.doing("looking at the ranks of this machine")
    return write_live(place, kept_in)


def look_here(place: Path, caller: Caller = NO_CALLER) -> bytes:
    """Return the same, packed, for another program."""
    from anubis.readers.jobs import live_trace

    caller.doing("looking at the ranks of this machine")
    return live_trace.look_here(place)
