"""What logs and exit codes say of ranks and of pairs of nodes.

The first error of a rank counts: what it writes afterwards follows from it, and the last line
often hides the first (NCCL issue 795). Errors that nine of ten ranks share are the program's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from anubis.core.diagnose.chain import Hearing, InferenceRule
from anubis.core.diagnose.critical import OURS, by_time, crash_window, node_of
from anubis.core.diagnose.evidence import Collector, Gravity, JobEvidence, LogEvent
from anubis.core.diagnose.facts import FAILED_FIRST, FactKind, JobFact, Whom

SHARED = 0.9  # of all ranks, for an error to be the job's
FEWEST = 2  # ranks that can share anything
CLOCKS_S = 5.0  # by which clocks of two launchers may differ
LAUNCHER_CONFIDENCE = 0.6  # it sees who ended first, not who began it
OWN = {
    Gravity.APPLICATION: FactKind.APPLICATION_ERROR,
    Gravity.MEMORY: FactKind.OUT_OF_MEMORY,
}
LOCAL = ("127.", "::1", "localhost", "0.0.0.0")  # a process of the same node


def _own_errors(hearing: Hearing) -> Iterator[JobFact]:
    """What a rank, or a node without a word of its ranks, says first, unless a peer failed it."""
    evidence = hearing.evidence
    for first, after in _firsts(evidence):
        if kind := OWN.get(first.gravity):
            yield _of(evidence, kind, first, after)


def _of(
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
        evidence=f"{speaker}{where}: {event.text}{then}",
        code=event.code,
        at=event.at,
    )


def _firsts(evidence: JobEvidence) -> Iterator[tuple[LogEvent, list[LogEvent]]]:
    """Of each speaker the first error around the crash, and what came after it. A kernel log speaks
    of each code for itself."""
    window = crash_window(evidence)
    speakers: dict[tuple[str, int | None, str], list[LogEvent]] = {}
    for event in evidence.log:
        if event.gravity is Gravity.NOTE or not window.has(event.at):
            continue
        code = event.code if event.collector is Collector.KERNEL_LOG else ""
        key = node_of(evidence, event), event.rank, code
        speakers.setdefault(key, []).append(event)
    for events in speakers.values():
        first, *after = _in_order(events)
        yield first, after


def _in_order(events: Sequence[LogEvent]) -> list[LogEvent]:
    """As they were written; the clock decides only where it knows all of them."""
    timed = all(event.at is not None for event in events)
    return by_time(events) if timed else list(events)


def _shared(hearing: Hearing) -> Iterator[JobFact]:
    """The same error on nine of ten ranks: nobody's node is at fault."""
    evidence = hearing.evidence
    everybody = set(evidence.ranks.nodes) or {
        event.rank for event in evidence.log if event.rank is not None
    }
    same: dict[str, dict[int, LogEvent]] = {}
    for first, _ in _firsts(evidence):
        if first.gravity in OWN and first.rank is not None and first.detail:
            same.setdefault(first.detail, {}).setdefault(first.rank, first)
    for events in same.values():
        if len(events) >= max(FEWEST, SHARED * len(everybody)):
            first = by_time(events.values())[0]
            yield JobFact(
                kind=FactKind.SAME_ERROR,
                whom=Whom(),
                evidence=f"{len(events)} of {len(everybody)} ranks: {first.text}",
                confidence=len(events) / len(everybody),
                code=first.code,
                at=first.at,
            )


def _bad_loss(hearing: Hearing) -> Iterator[JobFact]:
    window = crash_window(hearing.evidence)
    losses = (
        event
        for event in hearing.evidence.log
        if event.gravity is Gravity.LOSS and window.has(event.at)
    )
    for event in by_time(losses)[:1]:
        yield JobFact(
            kind=FactKind.BAD_LOSS,
            whom=Whom(),
            evidence=event.text,
            code=event.code,
            at=event.at,
        )


def _between(hearing: Hearing) -> Iterator[JobFact]:
    """Who reports whom: an edge from node to node. Where a line names no peer on another node, it
    says that something is wrong between some of them, and blames nobody."""
    evidence = hearing.evidence
    window = crash_window(evidence)
    seen = set()
    for event in by_time(evidence.log):
        if event.gravity is not Gravity.DISTRIBUTED or not window.has(event.at):
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
    if event.collector is Collector.KERNEL_LOG and event.device:
        return Whom(node=node, device=event.device), None  # a link of its own
    peer = peer_node(evidence, event.peer)
    if not node or not peer or peer == node:
        return Whom(), None
    return Whom(node=node, device=event.device), Whom(node=peer)


def peer_node(evidence: JobEvidence, peer: str) -> str:
    """The node that a line means by an address, a name or a rank; empty: none of the job's."""
    if not peer or peer.startswith(LOCAL):
        return ""
    if peer.startswith("rank "):
        return evidence.ranks.node_of(int(peer[5:])) if peer[5:].isdecimal() else ""
    return evidence.ranks.node_named(peer) or evidence.ranks.node_named(peer.partition(".")[0])


def _report(evidence: JobEvidence, event: LogEvent, peer: Whom | None) -> str:
    reporter = node_of(evidence, event) or "a rank"
    about = f" reports {peer.node}" if peer else ""
    return f"{reporter}{about}: {event.text}"


def _died(hearing: Hearing) -> Iterator[JobFact]:
    """By a signal that no launcher sends to end a job: kill, or a fault of the process itself. What
    ended after a launcher saw one fail, it ended itself."""
    evidence = hearing.evidence
    began = min(
        (end.at for end in evidence.exits if end.is_first and end.at is not None), default=None
    )
    for ended in evidence.exits:
        is_later = began is not None and ended.at is not None and ended.at >= began
        if ended.signal not in OURS or (is_later and not ended.is_first):
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


def _failed_first(hearing: Hearing) -> Iterator[JobFact]:
    """By the word of its launcher, unless the process itself blamed another one. Of several
    launchers the first counts, if none is so close that their clocks cannot tell."""
    evidence = hearing.evidence
    accusers = {
        first.rank for first, _ in _firsts(evidence) if first.gravity is Gravity.DISTRIBUTED
    }
    firsts = [
        ended
        for ended in evidence.exits
        if ended.is_first and ended.code and not ended.signal and ended.rank not in accusers
    ]
    start = min((ended.at for ended in firsts if ended.at is not None), default=math.inf)
    near = {end.rank for end in firsts if end.at is None or end.at <= start + CLOCKS_S}
    if len(near) != 1:
        return
    (rank,) = near
    ended = next(end for end in firsts if end.rank == rank)
    node = evidence.ranks.node_of(rank)
    where = f" on {node}" if node else ""
    yield JobFact(
        kind=FactKind.APPLICATION_ERROR,
        whom=Whom(node=node, rank=rank),
        evidence=f"rank {rank}{where} failed first, with exit code {ended.code}, by its launcher",
        confidence=LAUNCHER_CONFIDENCE,
        code=FAILED_FIRST,
        at=ended.at,
    )


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
                name=f"who reports whom, by the {log.value.replace('-', ' ')}",
                needs=frozenset({log}),
                gives=frozenset({FactKind.DISTRIBUTED_ERROR}),
                infer=_between,
            ),
        )
        for log in LOGS
    ),
    InferenceRule(
        name="what nine of ten ranks say",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.SAME_ERROR}),
        infer=_shared,
    ),
    InferenceRule(
        name="a loss that is no number",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.BAD_LOSS}),
        infer=_bad_loss,
    ),
    InferenceRule(
        name="who was ended from outside",
        needs=frozenset({Collector.EXITS}),
        gives=frozenset({FactKind.DIED}),
        infer=_died,
    ),
    InferenceRule(
        name="whom its launcher saw fail first",
        needs=frozenset({Collector.EXITS}),
        gives=frozenset({FactKind.APPLICATION_ERROR}),
        infer=_failed_first,
    ),
)
