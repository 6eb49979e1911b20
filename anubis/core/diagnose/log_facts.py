"""Facts from logs and exit codes about ranks and pairs of nodes.

The first error of a rank counts: what it writes afterwards follows from it, and the last line often
hides the first (NCCL issue 795). Errors that nine of ten ranks share are the program's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from anubis.core.diagnose.crash import OURS, crash_window, node_of, sort_by_time
from anubis.core.diagnose.evidence import Collector, Exit, Gravity, JobEvidence, LogEvent
from anubis.core.diagnose.facts import FAILED_FIRST, FactKind, Hearing, InferenceRule, JobFact, Whom

SHARED = 0.9  # share of all ranks that makes an error the job's
FEWEST = 2  # ranks that must share an error
FEW = 7  # ranks: of so many and one more, one may have lost its last lines
CLOCKS_S = 5.0  # the most that clocks of two launchers differ
LAUNCHER_CONFIDENCE = 0.6  # a launcher sees which process ended first, not which began it
OWN = {Gravity.APPLICATION: FactKind.APPLICATION_ERROR, Gravity.MEMORY: FactKind.OUT_OF_MEMORY}
# errors of what all nodes share: they are not the program's
SHARED_STORAGE = frozenset({"storage-stale", "storage-io", "storage-timeout", "transport-down"})
OWN_LINK = frozenset({"nccl-ib-port", "nccl-ib-device"})  # told by NCCL, of a NIC of its own node
ABORT = 6  # the signal of a process that ends itself; c10d does so after others failed
GLOG = re.compile(r"^\[[IWEF]\d{4} [\d:.]{8,20} [\w.]{1,80}:\d+\] ?")
RANK = "rank "  # begins a peer that a line names by its number
LOCAL = ("127.", "::1", "localhost", "0.0.0.0")  # a process of the same node


def _own_errors(hearing: Hearing) -> Iterator[JobFact]:
    """First error of each rank, or of a node with no errors of its ranks, unless it reports a
    peer."""
    evidence = hearing.evidence
    firsts = list(_firsts(evidence))
    of_all = _common_storage(evidence, [first for first, _ in firsts])
    for first, after in firsts:
        if kind := OWN.get(first.gravity):
            fact = _error_fact(evidence, kind, first, after)
            yield replace(fact, whom=Whom()) if first.code in of_all else fact


def _common_storage(evidence: JobEvidence, firsts: Iterable[LogEvent]) -> frozenset[str]:
    """Codes of storage that failed on several nodes, none of which is to blame."""
    nodes: dict[str, set[str]] = {}
    for event in firsts:
        if event.code in SHARED_STORAGE:
            nodes.setdefault(event.code, set()).add(node_of(evidence, event))
    return frozenset(code for code, where in nodes.items() if len(where) > 1)


def _error_fact(
    evidence: JobEvidence, kind: FactKind, event: LogEvent, after: Sequence[LogEvent]
) -> JobFact:
    node = node_of(evidence, event)
    speaker = f"rank {event.rank}" if event.rank is not None else node or "a rank"
    where = f" on {node}" if node and event.rank is not None else ""
    codes = list(dict.fromkeys(later.code for later in after if later.code != event.code))
    then = f"; then {', '.join(codes[:3])}" if codes else ""
    return JobFact(
        kind=kind,
        whom=Whom(node=node, rank=event.rank, device=event.device),
        evidence=f"{speaker}{where}: {quote(event)}{then}",
        code=event.code,
        at=event.at,
        is_followed=event.is_followed,
    )


def quote(event: LogEvent) -> str:
    """Return its line without the date and the place in PyTorch's code before it."""
    return GLOG.sub("", event.text)


def _firsts(evidence: JobEvidence) -> Iterator[tuple[LogEvent, list[LogEvent]]]:
    """First error of each speaker around the crash, and its later errors. In a kernel log each code
    is a speaker of its own."""
    window = crash_window(evidence)
    speakers: dict[tuple[str, int | None, str], list[LogEvent]] = {}
    for event in evidence.log:
        if event.gravity is Gravity.NOTE or not window.has(event):
            continue
        code = event.code if event.collector is Collector.KERNEL_LOG else ""
        key = node_of(evidence, event), event.rank, code
        speakers.setdefault(key, []).append(event)
    for events in speakers.values():
        first, *after = _sort_events(events)
        yield first, after


def _sort_events(events: Sequence[LogEvent]) -> list[LogEvent]:
    """Events by time if all are dated, else in the order of the log."""
    timed = all(event.at is not None for event in events)
    return sort_by_time(events) if timed else list(events)


def _shared_errors(hearing: Hearing) -> Iterator[JobFact]:
    """Errors that nine of ten ranks share, or all but one of eight, or of as many nodes whose lines
    name no rank: no node is at fault."""
    evidence = hearing.evidence
    for units, count in (("ranks", _count_ranks(evidence)), ("nodes", _count_nodes(evidence))):
        for events in _group_by_error(evidence, units).values():
            if len(events) >= max(FEWEST, min(SHARED * count, max(FEW, count - 1))):
                first = sort_by_time(events.values())[0]
                yield JobFact(
                    kind=FactKind.SAME_ERROR,
                    whom=Whom(),
                    evidence=f"{len(events)} of {count} {units}: {quote(first)}",
                    confidence=len(events) / count,
                    code=first.code,
                    at=first.at,
                    is_followed=all(event.is_followed for event in events.values()),
                )


def _count_ranks(evidence: JobEvidence) -> int:
    speakers = {event.rank for event in evidence.log if event.rank is not None}
    return len(evidence.ranks.nodes or speakers)


def _count_nodes(evidence: JobEvidence) -> int:
    return len(set(evidence.ranks.nodes.values()) or {event.node for event in evidence.log})


def _group_by_error(evidence: JobEvidence, units: str) -> Mapping[str, Mapping[object, LogEvent]]:
    """First errors by what they say, each by the rank or else the node that says it."""
    same: dict[str, dict[object, LogEvent]] = {}
    for first, _ in _firsts(evidence):
        is_of_rank = first.rank is not None
        unit = first.rank if is_of_rank else first.node
        is_counted = unit != "" and is_of_rank == (units == "ranks")
        is_counted = is_counted and first.code not in SHARED_STORAGE
        if first.gravity in OWN and first.detail and is_counted:
            same.setdefault(first.detail, {}).setdefault(unit, first)
    return same


def _reported_absent(hearing: Hearing) -> Iterator[JobFact]:
    """Ranks that others waited for by their numbers. If they are half of all and more, those that
    report them are as likely to be cut off."""
    evidence = hearing.evidence
    window = crash_window(evidence)
    reports = [
        event
        for event in sort_by_time(evidence.log)
        if event.gravity is Gravity.DISTRIBUTED
        and event.peer.startswith(RANK)
        and window.has(event)
    ]
    absent = {int(event.peer.removeprefix(RANK)): event for event in reversed(reports)}
    reporters = {event.rank for event in reports}
    if 2 * len(absent) >= _count_ranks(evidence):
        return
    for rank, event in absent.items():
        if rank not in reporters:
            node = evidence.ranks.node_of(rank)
            where = f" on {node}" if node else ""
            yield JobFact(
                kind=FactKind.ABSENT,
                whom=Whom(node=node, rank=rank),
                evidence=f"rank {rank}{where} did not come, as others report: {quote(event)}",
                confidence=LAUNCHER_CONFIDENCE,
                code=event.code,
                at=event.at,
            )


def _bad_loss(hearing: Hearing) -> Iterator[JobFact]:
    window = crash_window(hearing.evidence)
    losses = (
        event
        for event in hearing.evidence.log
        if event.gravity is Gravity.LOSS and window.has(event)
    )
    for event in sort_by_time(losses)[:1]:
        yield JobFact(
            kind=FactKind.BAD_LOSS, whom=Whom(), evidence=event.text, code=event.code, at=event.at
        )


def _peer_reports(hearing: Hearing) -> Iterator[JobFact]:
    """Reports of one node on another, as edges. A line that names no peer on another node shows
    that something is wrong between some nodes, and blames none."""
    evidence = hearing.evidence
    window = crash_window(evidence)
    seen = set()
    for event in sort_by_time(evidence.log):
        if event.gravity is not Gravity.DISTRIBUTED or not window.has(event):
            continue
        whom, peer = _ends(evidence, event)
        key = whom, peer, event.code
        if key in seen:
            continue
        seen.add(key)
        yield JobFact(
            kind=FactKind.DISTRIBUTED_ERROR,
            whom=whom,
            peer=peer,
            evidence=_report(evidence, event, peer),
            code=event.code,
            at=event.at,
        )


def _ends(evidence: JobEvidence, event: LogEvent) -> tuple[Whom, Whom | None]:
    node = node_of(evidence, event)
    if event.code in OWN_LINK or (event.collector is Collector.KERNEL_LOG and event.device):
        return Whom(node=node, device=event.device), None  # a link of its own
    peer = peer_node(evidence, event.peer)
    if not node or not peer or peer == node:
        return Whom(), None
    return Whom(node=node, device=event.device), Whom(node=peer)


def peer_node(evidence: JobEvidence, peer: str) -> str:
    """Node that a line names by address, name or rank; empty: it is not one of the job's."""
    if not peer or peer.startswith(LOCAL):
        return ""
    if peer.startswith(RANK):
        return evidence.ranks.node_of(int(peer.removeprefix(RANK)))
    return evidence.ranks.node_named(peer)


def _report(evidence: JobEvidence, event: LogEvent, peer: Whom | None) -> str:
    reporter = node_of(evidence, event) or "a rank"
    about = f" reports {peer.node}" if peer else ""
    return f"{reporter}{about}: {quote(event)}"


def _deaths(hearing: Hearing) -> Iterator[JobFact]:
    """Ranks ended by a signal that no launcher sends to end a job: kill, or a fault of the process
    itself. A launcher ends the rest after it saw one fail, so later ends do not count."""
    evidence = hearing.evidence
    began = min(
        (end.at for end in evidence.exits if end.is_first and end.at is not None), default=None
    )
    victims = {first.rank for first, _ in _firsts(evidence) if first.gravity is Gravity.DISTRIBUTED}
    for ended in evidence.exits:
        is_later = began is not None and ended.at is not None and ended.at >= began
        is_victim = ended.rank in victims  # it ended after another one had
        if ended.signal not in OURS or is_victim or (is_later and not ended.is_first):
            continue
        node = evidence.ranks.node_of(ended.rank)
        where = f" on {node}" if node else ""
        yield JobFact(
            kind=FactKind.DIED,
            whom=Whom(node=node, rank=ended.rank),
            evidence=f"rank {ended.rank}{where} was ended by signal {ended.signal}",
            code=f"signal-{ended.signal}",
            at=ended.at,
        )


def _first_failure(hearing: Hearing) -> Iterator[JobFact]:
    """The rank that failed first according to its launcher, unless the process itself blamed
    another one. Of several launchers the earliest counts, if no other is within the error of their
    clocks."""
    evidence = hearing.evidence
    if _is_repeated(evidence):
        return
    accusers = _accusers(evidence)
    firsts = [
        ended
        for ended in evidence.exits
        if ended.is_first and _is_failure(ended) and ended.rank not in accusers
    ]
    start = min((ended.at for ended in firsts if ended.at is not None), default=math.inf)
    near = {end.rank for end in firsts if end.at is None or end.at <= start + CLOCKS_S}
    if len(near) != 1:
        return
    (rank,) = near
    ended = next(end for end in firsts if end.rank == rank)
    node = evidence.ranks.node_of(rank)
    where = f" on {node}" if node else ""
    how = f"with exit code {ended.code}" if ended.code else f"by signal {ended.signal}"
    yield JobFact(
        kind=FactKind.APPLICATION_ERROR,
        whom=Whom(node=node, rank=rank),
        evidence=f"rank {rank}{where} failed first, {how}, as its launcher reports",
        confidence=LAUNCHER_CONFIDENCE,
        code=FAILED_FIRST,
        at=ended.at,
    )


def _is_repeated(evidence: JobEvidence) -> bool:
    """Return whether an error that names no rank was written more than once: several ranks have it,
    and the first one to end is no better than the next."""
    window = crash_window(evidence)
    counts = Counter(
        (event.node, event.detail)
        for event in evidence.log
        if event.rank is None and event.gravity in OWN and window.has(event)
        if event.collector is Collector.TRAINING_LOG
    )
    return any(count > 1 for count in counts.values())


def _accusers(evidence: JobEvidence) -> frozenset[int]:
    """Ranks whose first error is about others. If a node's lines name no rank and report another
    node, that may be each of its ranks."""
    reports = [first for first, _ in _firsts(evidence) if first.gravity is Gravity.DISTRIBUTED]
    ranks = {first.rank for first in reports if first.rank is not None}
    nodes = {
        first.node
        for first in reports
        if first.rank is None and peer_node(evidence, first.peer) not in ("", first.node)
    }
    return frozenset(ranks | {rank for rank, node in evidence.ranks.nodes.items() if node in nodes})


def _is_failure(ended: Exit) -> bool:
    """Return whether a process failed by itself: by an exit code, or as it aborted."""
    return ended.signal == ABORT if ended.signal else bool(ended.code)


LOGS = (Collector.KERNEL_LOG, Collector.TRAINING_LOG)
RULES = (
    *chain.from_iterable(
        (
            InferenceRule(
                name=f"errors of its own, by the {log.value.replace('-', ' ')}",
                needs=frozenset({log}),
                gives=frozenset(OWN.values()),
                infer=_own_errors,
            ),
            InferenceRule(
                name=f"ranks that report others, by the {log.value.replace('-', ' ')}",
                needs=frozenset({log}),
                gives=frozenset({FactKind.DISTRIBUTED_ERROR}),
                infer=_peer_reports,
            ),
        )
        for log in LOGS
    ),
    InferenceRule(
        name="what nine of ten ranks say",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.SAME_ERROR}),
        infer=_shared_errors,
    ),
    InferenceRule(
        name="ranks that others waited for, by the training log",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.ABSENT}),
        infer=_reported_absent,
    ),
    InferenceRule(
        name="a loss that is no number",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.BAD_LOSS}),
        infer=_bad_loss,
    ),
    InferenceRule(
        name="ranks that were ended from outside",
        needs=frozenset({Collector.EXITS}),
        gives=frozenset({FactKind.DIED}),
        infer=_deaths,
    ),
    InferenceRule(
        name="the rank that failed first, as its launcher reports",
        needs=frozenset({Collector.EXITS}),
        gives=frozenset({FactKind.APPLICATION_ERROR}),
        infer=_first_failure,
    ),
)
