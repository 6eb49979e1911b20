"""Facts from the call stacks of a job that stands still: which ranks are not where the others wait.

Ranks wait for each other in calls of communication. The program of the rank that they wait for is
somewhere else: in its own code, in a data loader, in a system call. So the few ranks that are not
in communication are the ones to look at; if no rank is, the few that are not where most are. Ranks
of different stages of a pipeline do different work, and are compared within their stage only. A
thread that most ranks have is compared like the main thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anubis.core.diagnose.evidence import Collector, JobEvidence, Pulse, Stack
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.hang import kernel_words, place_in_words, rank_list, rank_subject
from anubis.core.diagnose.live_progress import all_ranks, is_waiting
from anubis.core.diagnose.waiting import Waiting

BLOCKING = (  # files in which a program waits for something that is no other rank
    *("/queue.py:", "/threading.py:", "/subprocess.py:", "/selectors.py:", "/socket.py:"),
    *("/multiprocessing/", "torch/utils/data/", "/concurrent/futures/", "/asyncio/"),
)
DEVICE = "nccl:"  # operations on devices, whose results a program awaits in any line
FEWEST_PEERS = 3  # ranks of a stage that show what is usual there
MAIN_CONFIDENCE = 0.85  # a main thread that is elsewhere may itself wait for another rank
THREAD_CONFIDENCE = 0.6  # there may be no wait for the other thread
DEADLOCK_CONFIDENCE = 0.7  # a message may have been lost
FEWEST_SAMPLES = 12  # of a connection
_LINE = re.compile(r":\d+\)$")

CodePlace = tuple[str, ...]


def odd_ranks(stacks: Mapping[int, Sequence[str]]) -> tuple[int, ...]:
    """Ranks that are not where the others wait: none unless they are few."""
    waiting = {rank for rank, frames in stacks.items() if is_waiting(frames)}
    if waiting:
        odd = stacks.keys() - waiting
    else:
        odd = _outside_majority({rank: _place(frames) for rank, frames in stacks.items()})
        odd = odd or _outside_majority({rank: tuple(frames) for rank, frames in stacks.items()})
    return tuple(sorted(odd)) if 2 * len(odd) <= len(stacks) else ()


def _place(frames: Sequence[str]) -> CodePlace:
    """A stack without numbers of lines: ranks in one function do the same."""
    return tuple(_LINE.sub(")", frame) for frame in frames)


def _outside_majority(places: Mapping[int, CodePlace]) -> set[int]:
    together: dict[CodePlace, set[int]] = {}
    for rank, place in places.items():
        together.setdefault(place, set()).add(rank)
    majority = max(together.values(), key=len, default=set())
    return places.keys() - majority if 2 * len(majority) > len(places) else set()


def _elsewhere(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    if not evidence.stall:
        return
    threads = _group_by_thread(evidence.stacks)
    named = False
    for peers in _peer_groups(evidence, threads.get("", {})):
        for rank in odd_ranks(peers):
            if _is_surely_elsewhere(evidence, rank, peers[rank]):
                named = True
                yield _fact(evidence, rank, peers, "", MAIN_CONFIDENCE)
    for thread, stacks in threads.items():
        if named or not thread or 2 * len(stacks) <= len(threads.get("", {})):
            continue
        for peers in _peer_groups(evidence, stacks):
            for rank in odd_ranks(peers):
                yield _fact(evidence, rank, peers, thread, THREAD_CONFIDENCE)


def _group_by_thread(stacks: Iterable[Stack]) -> dict[str, dict[int, Sequence[str]]]:
    threads: dict[str, dict[int, Sequence[str]]] = {}
    for stack in stacks:
        if stack.frames:
            threads.setdefault(stack.thread, {}).setdefault(stack.rank, stack.frames)
    return threads


def _peer_groups(
    evidence: JobEvidence, stacks: Mapping[int, Sequence[str]]
) -> list[dict[int, Sequence[str]]]:
    """Ranks to be compared with each other: those of a stage, if each stage has enough of them."""
    stages: dict[int | None, dict[int, Sequence[str]]] = {}
    for rank, frames in stacks.items():
        stages.setdefault(evidence.ranks.stages.get(rank), {})[rank] = frames
    if all(len(peers) >= FEWEST_PEERS for peers in stages.values()):
        return list(stages.values())
    return [dict(stacks)]


def _is_surely_elsewhere(evidence: JobEvidence, rank: int, frames: Sequence[str]) -> bool:
    """Return whether a rank waits for no other. On devices a program waits for communication in any
    line that needs a result. There only a call that waits for something else, or a sleep in the
    kernel, shows that it is elsewhere."""
    operations = [advance.operation for advance in evidence.advances]
    operations += [call.operation for call in evidence.calls]
    if not any(DEVICE in operation for operation in operations):
        return True
    in_kernel = any(
        process.rank == rank and process.blocked_in and "futex" not in process.blocked_in
        for process in evidence.processes
    )
    return in_kernel or any(part in frames[-1] for part in BLOCKING)


def _fact(
    evidence: JobEvidence,
    rank: int,
    peers: Mapping[int, Sequence[str]],
    thread: str,
    confidence: float,
) -> JobFact:
    frames = peers[rank]
    waiting = sum(is_waiting(of_peer) for of_peer in peers.values())
    count = f"{waiting} of {len(peers)} ranks wait for others"
    if not waiting:
        count = f"most of {len(peers)} ranks are in the same place"
    kernel = "" if thread else kernel_words(evidence, rank)
    name = f"thread {thread} of rank {rank}" if thread else f"rank {rank}"
    return JobFact(
        kind=FactKind.ELSEWHERE,
        whom=rank_subject(evidence, rank),
        evidence=f"{count}; {name} is in {place_in_words(frames)}{kernel and f', {kernel}'}",
        confidence=confidence,
        code="stacks",
        at=evidence.stall.since if evidence.stall else None,
    )


def _all_wait(hearing: Hearing) -> Iterator[JobFact]:
    """All ranks wait for messages, and none recorded for which. If no byte is on its way between
    them, no rank sends: the program is wrong."""
    evidence = hearing.evidence
    main = _group_by_thread(evidence.stacks).get("", {})
    rests = [process.rests_s or 0.0 for process in evidence.processes]
    waiting = Waiting(evidence.advances, evidence.calls)
    if not evidence.stall or len(main) < 2 or main.keys() < all_ranks(evidence):
        return
    if not all(map(is_waiting, main.values())) or not all(rests) or any(waiting.waits.values()):
        return
    if any(process.pulse is not Pulse.ANSWERS for process in evidence.processes):
        return
    places = ", ".join(sorted({frames[-1] for frames in main.values()})[:2])
    fact = f"all {len(main)} ranks wait for messages ({places})"
    wires = evidence.connections
    if wires and all(wire.samples >= FEWEST_SAMPLES and not wire.sending for wire in wires):
        yield JobFact(
            kind=FactKind.MISMATCH,
            whom=Whom(),
            evidence=f"{fact}, and no byte is on its way between them",
            confidence=DEADLOCK_CONFIDENCE,
            code="nobody-sends",
        )
    else:
        yield JobFact(
            kind=FactKind.STANDSTILL,
            whom=Whom(),
            evidence=f"{fact}, and no record shows for which",
            confidence=DEADLOCK_CONFIDENCE,
            code="all-wait",
        )


def _shared_place(hearing: Hearing) -> Iterator[JobFact]:
    """All ranks stand still in one place that is no communication: what they share is the
    reason."""
    evidence = hearing.evidence
    main = _group_by_thread(evidence.stacks).get("", {})
    if not evidence.stall or len(main) < 2 or any(map(is_waiting, main.values())):
        return
    if len({_place(frames) for frames in main.values()}) == 1:
        frames = main[min(main)]
        kernel = kernel_words(evidence, min(main))
        yield JobFact(
            kind=FactKind.STANDSTILL,
            whom=Whom(),
            evidence=(f"{rank_list(list(main))} are all in {frames[-1]}{kernel and f', {kernel}'}"),
            confidence=DEADLOCK_CONFIDENCE,
            code="same-place",
        )


RULES = (
    InferenceRule(
        name="ranks that are not where the others wait",
        needs=frozenset({Collector.STACKS}),
        gives=frozenset({FactKind.ELSEWHERE}),
        infer=_elsewhere,
    ),
    InferenceRule(
        name="ranks that all wait for messages",
        needs=frozenset({Collector.STACKS, Collector.PROCESSES}),
        gives=frozenset({FactKind.MISMATCH, FactKind.STANDSTILL}),
        infer=_all_wait,
    ),
    InferenceRule(
        name="ranks that stand still in one place",
        needs=frozenset({Collector.STACKS}),
        gives=frozenset({FactKind.STANDSTILL}),
        infer=_shared_place,
    ),
)
