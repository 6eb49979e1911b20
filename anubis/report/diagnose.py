"""A diagnosis in ten lines: what is wrong, with which rank or node, why, how sure, what to do, what
could not be read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from anubis.core.diagnose.analyst import JobTrouble, settling_collector
from anubis.core.diagnose.cures import WORDS, CureLevel
from anubis.core.diagnose.diagnostician import Diagnosis, DiagnosisAnswer
from anubis.core.diagnose.evidence import (
    MAY_WAIT,
    AskedNodes,
    Collector,
    Gravity,
    JobEvidence,
    LogEvent,
    Rise,
)
from anubis.core.diagnose.facts import SUSPENDED, FactKind, JobFact, Whom
from anubis.core.diagnose.live_progress import AHEAD_S
from anubis.report.json import json_line
from anubis.text.wording import moment, quantity, short_node_list, time_span

if TYPE_CHECKING:
    from rich.console import Console


WIDTH = 79  # letters at most: a longer line is hard to read
LABEL = 10  # letters of a label, and the space after it
LIKELIEST = 4  # parts to test first that a terminal names
# lines of a log that say who ended the job: its user, or its scheduler with a reason
ENDED = frozenset({"interrupted", "time-limit", "preempted", "requeued"})
REASONS = 2  # why nodes did not answer, that a terminal lists
VERBS = {
    JobTrouble.FAILED: "failed",
    JobTrouble.HUNG: "hangs",
    JobTrouble.SLOW: "is slow",
    JobTrouble.UNEVEN: "runs, and not all of its nodes alike",
}


@dataclass(frozen=True, kw_only=True)
class DiagnosisView:
    diagnosis: Diagnosis
    evidence: JobEvidence
    cluster: str = ""
    suspected: Mapping[str, str] = field(default_factory=dict)  # node → another source

    @property
    def job(self) -> str:
        return f"job {self.diagnosis.job}" if self.diagnosis.job else "this job"


# --- sentences -----------------------------------------------------------------------------


def headline(view: DiagnosisView) -> str:
    diagnosis = view.diagnosis
    if not diagnosis.collectors:
        return f"{view.job}: cannot say: no usable evidence"
    if diagnosis.trouble is JobTrouble.UNKNOWN:
        return f"{view.job}: cannot say: {_unknown(view)}"
    if diagnosis.trouble is JobTrouble.NOTHING:
        return f"{view.job} moves, and nothing wrong was seen"
    verb = VERBS[diagnosis.trouble]
    if diagnosis.is_the_job_itself:
        return f"{view.job} {verb} by its own fault, and no node is at fault"
    if _has_bad_loss(diagnosis):
        sign = "its loss or a gradient is not a number"
        return f"{view.job} {verb}: {sign}, by its program, its data or a GPU"
    if not diagnosis.culprits:
        return "; ".join([f"{view.job} {verb}, and no culprit can be named", *_suspected(view)])
    culprits = " and ".join(_culprit_names(diagnosis.culprits[:2]))
    more = f" and {len(diagnosis.culprits) - 2:,} more" if len(diagnosis.culprits) > 2 else ""
    return f"{view.job} {verb}: {culprits}{more}"


def _suspected(view: DiagnosisView) -> list[str]:
    clauses = [f"{node} is suspected ({source})" for node, source in view.suspected.items()]
    more = [f"and {len(clauses) - 2:,} more"] if len(clauses) > 2 else []
    return [", ".join([*clauses[:2], *more])] if clauses else []


def _has_bad_loss(diagnosis: Diagnosis) -> bool:
    return any(fact.kind is FactKind.BAD_LOSS for fact in diagnosis.decisive)


def _is_suspended(diagnosis: Diagnosis) -> bool:
    return any(fact.code == SUSPENDED for fact in diagnosis.facts)


def _was_ended(view: DiagnosisView) -> bool:
    """Return whether its user or its scheduler ended the job."""
    log = view.evidence.log
    return not view.diagnosis.progress and any(event.code in ENDED for event in log)


def _unknown(view: DiagnosisView) -> str:
    """Return the reason why the state of the job is unknown."""
    diagnosis, evidence = view.diagnosis, view.evidence
    if slow := [fact.whom for fact in diagnosis.facts if fact.kind is FactKind.MAY_BE_SLOW]:
        late = [whom for whom in slow if whom != Whom()]
        more = f" and {len(late) - 2:,} more" if len(late) > 2 else ""
        names = " and ".join(_culprit_names(late[:2]))
        if not late:
            return "it moves, and may be slower than it was: its machines did more else before"
        return f"it moves, and its ranks wait for {names}{more}, which is no proof of slowness"
    if _is_suspended(diagnosis):
        return "it is suspended: whoever stopped its processes can let them go on"
    if _was_ended(view):
        return "its user or its scheduler ended it, and no trouble before that was read"
    if diagnosis.progress:
        return "it moves, and has moved on since the trouble that was found"
    if evidence.alive is False:
        return "its processes have ended, and nothing that was read shows how"
    if evidence.is_past:
        return "nothing that was read shows why it ended, or whether it ended well"
    if followed := [fact for fact in diagnosis.facts if fact.is_followed]:
        name = subject_name(followed[0].whom) if len(followed) == 1 else "its ranks"
        return f"{name} wrote an error and more steps after it, so it may have gone on"
    if (gap := evidence.gaps.get(Collector.PROGRESS, "")).startswith(MAY_WAIT):
        return gap
    if evidence.processes and not evidence.advances and not evidence.progress:
        return "nothing wrong was seen, but none of its ranks reported how far it is"
    if _last_note(evidence):
        return "no cause was read, and nothing shows that it moves now"
    return "nothing wrong was seen, and nothing shows that it moves now"


def _last_note(evidence: JobEvidence) -> LogEvent | None:
    """Return the last line of a log that is known and names no cause, as of a launcher that saw a
    process fail; None if there is none."""
    notes = [
        event
        for event in evidence.log
        if event.gravity is Gravity.NOTE and event.collector is Collector.TRAINING_LOG
    ]
    why = [event for event in notes if event.code in ENDED]
    return max(why or notes, key=lambda event: event.at or 0.0, default=None)


def _culprit_names(culprits: Sequence[Whom]) -> list[str]:
    return [subject_name(whom) for whom in culprits]


def subject_name(whom: Whom) -> str:
    """Return a name such as `rank 3 on n1`, `GPU 0000:3b:00 of n1` or `link ...`."""
    if whom.part:
        return whom.part
    place = f" on {whom.node}" if whom.node else ""
    if whom.rank is not None:
        return f"rank {whom.rank}{place}"
    if whom.device:
        return f"{whom.device} of {whom.node}" if whom.node else whom.device
    return f"node {whom.node}" if whom.node else "the job"


def ten_lines(view: DiagnosisView) -> Iterator[tuple[str, str]]:
    """Yield pairs of a label and a sentence; the first line is the headline."""
    diagnosis = view.diagnosis
    has_ended = diagnosis.trouble is JobTrouble.UNKNOWN and view.evidence.alive is False
    if not has_ended and (facts := diagnosis.decisive or diagnosis.facts):  # the headline says it
        yield "what", facts[0].evidence
    elif view.evidence.stall:
        yield "what", view.evidence.stall.sentence
    elif diagnosis.trouble is JobTrouble.UNKNOWN and (note := _last_note(view.evidence)):
        yield "noted", note.text
    if diagnosis.culprits:
        yield (
            "culprit",
            "; ".join(_culprit_names(diagnosis.culprits[:4])) + _count_more(diagnosis.culprits),
        )
    if diagnosis.likeliest:
        yield "test first", "; ".join(_likely_names(diagnosis.likeliest))
    if diagnosis.cause and diagnosis.cause not in diagnosis.decisive[:1]:
        yield "why", diagnosis.cause.evidence
    elif diagnosis.cause and diagnosis.cause.kind in (FactKind.ABSENT, FactKind.UNFINISHED):
        yield "why", "not known: nothing that was read shows why"
    if diagnosis.trouble is JobTrouble.NOTHING:
        yield "seen", moving(diagnosis.progress)
    elif diagnosis.trouble is JobTrouble.UNKNOWN:
        for rise in view.evidence.progress:
            if sign := _last_sign(rise, diagnosis.at):
                yield "last seen", sign
    elif diagnosis.collectors:
        yield "how sure", certainty(view)
        yield "cure", cure(diagnosis)
    for step in next_steps(view):
        yield "next", step
    if view.evidence.asked:
        yield "asked", asked_nodes(view.evidence.asked)
    if gaps := missing_evidence(diagnosis.gaps.values()):
        yield "not seen", gaps


def asked_nodes(question: AskedNodes) -> str:
    """Say how many nodes answered, and why the others did not: the most usual reasons."""
    count = len(question.nodes) - len(question.silent)
    if not question.silent:
        return f"all {count:,} nodes answered" if count > 1 else "its node answered"
    by_reason: dict[str, list[str]] = {}
    for node, why in question.silent.items():
        by_reason.setdefault(why, []).append(node)
    usual = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    reasons = [f"{short_node_list(nodes)}: {why}" for why, nodes in usual[:REASONS]]
    if rest := sum(len(nodes) for _, nodes in usual[REASONS:]):
        reasons.append(f"{quantity(rest, 'node')} for other reasons")
    return f"{count:,} of {len(question.nodes):,} nodes answered; not {'; '.join(reasons)}"


def _likely_names(likeliest: Sequence[JobFact]) -> Iterator[str]:
    """Yield each part that may be behind the errors, with its chance; many are summed up."""
    for fact in likeliest[:LIKELIEST]:
        yield f"{subject_name(fact.whom)} ({fact.confidence:.0%})"
    if rest := likeliest[LIKELIEST:]:
        chance = sum(fact.confidence for fact in rest)
        yield f"{len(rest):,} more ({chance:.0%} together)"


def moving(progress: Sequence[Rise]) -> str:
    """List the counts that rose, as evidence that the job moves."""
    by_count: dict[str, list[Rise]] = {}
    for rise in progress:
        by_count.setdefault(rise.what, []).append(rise)
    return "; ".join(_rises(count, rises) for count, rises in by_count.items())


def _rises(count: str, rises: Sequence[Rise]) -> str:
    least = min(rises, key=lambda rise: rise.after - rise.before)
    ranks = frozenset[int]().union(*(rise.ranks for rise in rises))
    whose = f" of each of {len(ranks):,} ranks" if len(ranks) > 1 else ""
    comma = ", the least" if len(rises) > 1 else ""
    return (
        f"{count}{whose} rose{comma} from {least.before:,} to {least.after:,} between"
        f" {clock(least.since)} and {clock(least.until)}"
    )


def _last_sign(rise: Rise, at: float) -> str:
    """Say until when a count rose, and how long ago that is; empty if it did not."""
    if rise.until > at + AHEAD_S:
        dated = f"the last of its {rise.what} are dated {moment(rise.until)}"
        return f"{dated}, which is still to come: a clock, or the policy's zone, is wrong"
    if rise.after <= rise.before or rise.until <= rise.since:
        return ""
    return f"{_rises(rise.what, [rise])}, {time_span(max(0.0, at - rise.until))} ago"


def missing_evidence(gaps: Iterable[str]) -> str:
    """List missing evidence: first what was named but could not be read, then what could have been
    named. What no option brings is on the page alone, and the headline says for whom ranks wait."""
    every = dict.fromkeys(gap for gap in gaps if not gap.startswith(MAY_WAIT))
    unnamed = [gap[len("no ") :] for gap in every if gap.startswith("no ") and gap.endswith(")")]
    failed = [gap for gap in every if not gap.startswith("no ")]
    return "; ".join([*failed, *([f"no {', '.join(unnamed)}"] if unnamed else [])])


def _count_more(culprits: Sequence[Whom]) -> str:
    return f" and {len(culprits) - 4:,} more" if len(culprits) > 4 else ""


def certainty(view: DiagnosisView) -> str:
    diagnosis = view.diagnosis
    if not diagnosis.confidence:
        return "not at all: no rule came to a conclusion"
    return f"{min(diagnosis.confidence, 0.99):.0%}, by {' and '.join(sorted(diagnosis.collectors))}"


def cure(diagnosis: Diagnosis) -> str:
    cure = diagnosis.cure
    words = WORDS[cure.level]
    if cure.level is CureLevel.NONE:
        return words
    if cure.level is CureLevel.REPLACE and cure.replaced:
        words = f"replace {short_node_list(cure.replaced)}"
    why = f" ({cure.why})" if cure.why else ""
    return f"level {cure.level:d} of 4: {words}{why}"


def next_steps(view: DiagnosisView) -> list[str]:
    """List commands that turn a suspicion into a verdict, or bring evidence that would settle the
    answer."""
    diagnosis = view.diagnosis
    cluster = f" --cluster {view.cluster}" if view.cluster else ""
    settled_by = [
        f"anubis diagnose{f' {diagnosis.job}' if diagnosis.job else ''} {option}"
        for option in settling_options(view)
    ]
    if diagnosis.cure.tested:
        return [f"anubis validate '{short_node_list(diagnosis.cure.tested)}'{cluster}", *settled_by]
    nodes = sorted(set(view.evidence.ranks.nodes.values()))
    if _has_bad_loss(diagnosis):
        return [f"anubis locate '{short_node_list(nodes) or 'NODES'}'{cluster} --sdc"]
    is_unknown = view.diagnosis.answer is DiagnosisAnswer.UNKNOWN
    if is_unknown and diagnosis.trouble is not JobTrouble.UNKNOWN and diagnosis.facts and nodes:
        return [*settled_by, f"anubis locate '{short_node_list(nodes)}'{cluster}"]
    return settled_by


def settling_options(view: DiagnosisView) -> list[str]:
    """List the option that would settle the answer, if one would."""
    from anubis.readers.jobs.trace_reader import trace_readers

    diagnosis = view.diagnosis
    may_be_slow = any(fact.kind is FactKind.MAY_BE_SLOW for fact in diagnosis.facts)
    is_unknown = diagnosis.trouble is JobTrouble.UNKNOWN
    if is_unknown and not may_be_slow:
        return [settling(view)]
    needed = settling_collector(
        JobTrouble.SLOW if is_unknown else diagnosis.trouble,
        diagnosis.cause.kind if diagnosis.cause else None,
        diagnosis.collectors,
        is_named=diagnosis.answer is DiagnosisAnswer.NAMED,
    )
    readers = (reader for reader in trace_readers().values() if needed in reader.brings)
    return [f"--{reader.place} FOLDER" for reader in readers][:1]


def settling(view: DiagnosisView) -> str:
    """Return options that show whether a job moves, or why it ended: counts of a running job at two
    times, or its logs."""
    evidence = view.evidence
    is_over = evidence.is_past or evidence.alive is False or _was_ended(view)
    may_wait = evidence.gaps.get(Collector.PROGRESS, "").startswith(MAY_WAIT)
    can_answer = bool(evidence.advances) or may_wait or _is_suspended(view.diagnosis)
    if is_over or (Collector.PROCESSES in evidence.collectors and not can_answer):
        if Collector.TRAINING_LOG not in evidence.collectors:
            return "--logs FOLDER"
        return "--dumps FOLDER" if is_over else "--hook FOLDER"
    return "--live FOLDER"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


# --- on a terminal -------------------------------------------------------------------------


def show(view: DiagnosisView, console: Console) -> None:
    is_named = view.diagnosis.answer is DiagnosisAnswer.NAMED
    width = min(WIDTH, console.width)
    for line in textwrap.wrap(headline(view), width, subsequent_indent="  "):
        console.print(line, markup=False, highlight=False, style="bold" if is_named else "")
    for label, sentence in ten_lines(view):
        if label == "next":  # to be copied: never broken
            console.print(
                f"  {label:<{LABEL}}{sentence}", markup=False, highlight=False, soft_wrap=True
            )
            continue
        for place, line in enumerate(textwrap.wrap(sentence, width - LABEL - 2)):
            console.print(
                f"  {'' if place else label:<{LABEL}}{line}", markup=False, highlight=False
            )


# --- for programs --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WhomFields:
    """All null: the whole job."""

    node: str | None
    rank: int | None
    device: str | None
    """A GPU or NIC of that node."""
    part: str | None
    """A part of the fabric."""


@dataclass(frozen=True, kw_only=True)
class FactLine:
    cluster: str
    job: str
    kind: FactKind
    whom: WhomFields
    peer: WhomFields | None
    """The other end, if one end reports the other."""
    code: str
    """The code of the line or rule that says so: `xid-79`."""
    evidence: str
    confidence: float
    at: float | None
    is_decisive: bool
    """It names the culprits."""


@dataclass(frozen=True, kw_only=True)
class ProgressFields:
    """A count that rose between two looks apart in time."""

    what: str
    """The thing counted: collectives, steps."""
    ranks: Sequence[int]
    """The ranks that were counted; empty: all."""
    before: int
    after: int
    since: float
    until: float


@dataclass(frozen=True, kw_only=True)
class DiagnosisLine:
    cluster: str
    job: str
    at: float
    answer: DiagnosisAnswer
    """The exit code follows it: 1 for named, 0 for nothing, 2 for unknown."""
    headline: str
    """The first line of the terminal."""
    trouble: JobTrouble
    culprits: Sequence[WhomFields]
    nodes: Sequence[str]
    """The nodes of the culprits."""
    is_the_job_itself: bool
    """Its code, its data or its settings: no node is to blame."""
    cause: FactKind | None
    code: str
    why: str
    confidence: float
    level: int | None
    """The level of the cure: 0 leave, 1 retry, 2 restart, 3 replace, 4 fail. Null: unknown, as the
    state of the job is."""
    cure: str
    replaced: Sequence[str]
    """Nodes to replace."""
    tested: Sequence[str]
    """Nodes that a test should prove or clear."""
    next: Sequence[str]
    """Commands that prove or clear a suspicion, or bring what would settle the answer."""
    progress: Sequence[ProgressFields]
    """What shows that the job moves. Nothing is wrong only if there is some."""
    collectors: Sequence[str]
    """Collectors that were asked, and answered."""
    gaps: Mapping[str, str]
    """Collectors that were not asked or did not answer, and why."""
    unmet: Mapping[str, Sequence[str]]
    """Rules that could not be asked, and what they lacked."""
    asked: Sequence[str]
    """Nodes whose agents were asked to look at the job; empty: none was."""
    silent: Mapping[str, str]
    """Those of them that brought no look, and why. They are missing, not suspected."""


def lines(view: DiagnosisView) -> Iterator[str]:
    """Yield a line for each fact, in the order of reasoning, then the diagnosis."""
    for fact in view.diagnosis.facts:
        yield json_line("fact", _fact_fields(view, fact))
    yield json_line("diagnosis", _diagnosis_fields(view))


def _fields_of(whom: Whom) -> WhomFields:
    return WhomFields(
        node=whom.node or None, rank=whom.rank, device=whom.device or None, part=whom.part or None
    )


def _fact_fields(view: DiagnosisView, fact: JobFact) -> FactLine:
    return FactLine(
        cluster=view.cluster,
        job=view.diagnosis.job,
        kind=fact.kind,
        whom=_fields_of(fact.whom),
        peer=_fields_of(fact.peer) if fact.peer else None,
        code=fact.code,
        evidence=fact.evidence,
        confidence=fact.confidence,
        at=fact.at,
        is_decisive=fact in view.diagnosis.decisive,
    )


def _diagnosis_fields(view: DiagnosisView) -> DiagnosisLine:
    diagnosis = view.diagnosis
    return DiagnosisLine(
        cluster=view.cluster,
        job=diagnosis.job,
        at=diagnosis.at,
        answer=view.diagnosis.answer,
        headline=headline(view),
        trouble=diagnosis.trouble,
        culprits=[_fields_of(whom) for whom in diagnosis.culprits],
        nodes=diagnosis.nodes,
        is_the_job_itself=diagnosis.is_the_job_itself,
        cause=diagnosis.cause.kind if diagnosis.cause else None,
        code=diagnosis.cause.code if diagnosis.cause else "",
        why=diagnosis.cause.evidence if diagnosis.cause else "",
        confidence=diagnosis.confidence,
        level=None if diagnosis.cure.level is CureLevel.NONE else int(diagnosis.cure.level),
        cure=cure(diagnosis),
        replaced=diagnosis.cure.replaced,
        tested=diagnosis.cure.tested,
        next=next_steps(view),
        progress=[
            ProgressFields(
                what=rise.what,
                ranks=sorted(rise.ranks),
                before=rise.before,
                after=rise.after,
                since=rise.since,
                until=rise.until,
            )
            for rise in diagnosis.progress
        ],
        collectors=sorted(diagnosis.collectors),
        gaps={name.value: why for name, why in diagnosis.gaps.items()},
        unmet=diagnosis.unmet,
        asked=view.evidence.asked.nodes if view.evidence.asked else (),
        silent=view.evidence.asked.silent if view.evidence.asked else {},
    )
