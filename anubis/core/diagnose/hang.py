"""Facts about a hang, from what each rank launched: which rank did not launch a collective
(ABSENT), which launched it and did not finish (UNFINISHED), whose process does not answer (STOPPED)
or is gone (GONE). If no more is known: that all ranks wait, or half of them for the others
(STANDSTILL), or that they wait for a rank without a record (MISSING), which is no proof of a fault.

If collectives do not fit together, the program is wrong, and no rank is to blame. Ranks of one
communicator must call the same operations in the same order, most of them with the same number of
elements of the same type. Ranks that wait for each other in a circle called their operations in
different orders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anubis.core.diagnose.crash import crash_window
from anubis.core.diagnose.evidence import Call, CallState, Collector, Gravity, JobEvidence, Pulse
from anubis.core.diagnose.facts import (
    SUSPENDED,
    FactKind,
    Hearing,
    InferenceRule,
    JobFact,
    Whom,
)
from anubis.core.diagnose.live_progress import HALF_REST_S, is_waiting
from anubis.core.diagnose.waiting import Root, Wait, Waiting

RECORDED = 0.9  # confidence in a rank whose record shows that it is absent
UNRECORDED = 0.7  # the rank was asked and had no record, or no rank recorded messages
LOST = 0.5  # confidence that a rank without a record is at fault
ALL_HANG, SOME_HANG = 0.9, 0.7  # confidence that a job hangs, by its kernels
SHOWN = 3  # ranks that a sentence names
_LIBRARY = re.compile(r"/lib(64)?/python3|/(site|dist)-packages/")  # in a frame
CONFIDENCE = {
    Pulse.UNHEARD: 0.8,  # it may be stopped, gone or out of reach
    Pulse.MUTE: 0.8,  # it may only be slow to answer
}


def rank_subject(evidence: JobEvidence, rank: int) -> Whom:
    return Whom(node=evidence.ranks.node_of(rank), rank=rank)


def _holdups(hearing: Hearing) -> Iterator[JobFact]:
    """Ranks that hold up a collective. Counts alone do not show which rank waits for a message: if
    several are behind, some may wait for another of them, and none is named."""
    evidence = hearing.evidence
    waiting = Waiting(evidence.advances, evidence.calls)
    if not evidence.calls and len(waiting.roots) > 1:
        return
    if not waiting.roots and waiting.half_met:
        yield from _half_met(waiting.half_met, waiting, evidence)
    for root in waiting.roots:
        if not root.has_record and root.rank not in evidence.mute:
            yield _missing_record(root, waiting, evidence)
            continue
        sure = RECORDED if root.has_record and evidence.calls else UNRECORDED
        yield JobFact(
            kind=FactKind.UNFINISHED if root.is_stuck else FactKind.ABSENT,
            whom=rank_subject(evidence, root.rank),
            evidence=_sentence(root, waiting) + _activity(evidence, root.rank),
            confidence=sure,
            code="collectives",
            at=_first_launch(root.wait, evidence),
        )


def _half_met(wait: Wait, waiting: Waiting, evidence: JobEvidence) -> Iterator[JobFact]:
    """A fact about the job, if its ranks wait for long: half of those of a sound job wait for the
    others now and then."""
    since = _first_launch(wait, evidence)
    if since is not None and evidence.at - since >= HALF_REST_S:
        waiters = _count_in_words(len(waiting.waiters(wait)), wait)
        yield JobFact(
            kind=FactKind.STANDSTILL,
            whom=Whom(),
            evidence=f"{waiters}; {rank_list(sorted(wait.absent))} did not come to it",
            confidence=SOME_HANG,
            code="half-met",
            at=since,
        )


def _missing_record(root: Root, waiting: Waiting, evidence: JobEvidence) -> JobFact:
    return JobFact(
        kind=FactKind.MISSING,
        whom=rank_subject(evidence, root.rank),
        evidence=f"{_sentence(root, waiting)} (a lost record proves no fault)",
        confidence=LOST,
        code="no-record",
        at=_first_launch(root.wait, evidence),
    )


def _sentence(root: Root, waiting: Waiting) -> str:
    wait = root.wait
    operation = call_name(wait.operation, wait.communicator, wait.sequence)
    if wait.peer is not None and not root.is_stuck:
        return f"rank {wait.rank} waits for rank {root.rank} in {operation}"
    if root.is_stuck:
        through = wait.group - len(wait.late)
        return (
            f"rank {root.rank} came to {operation} and did not finish it; {through} of"
            f" {wait.group} ranks did"
        )
    count = sum(root.rank in waiter.blockers for waiter in waiting.waiters(wait))
    reason = "did not come to it" if root.has_record else "left no record"
    return f"{_count_in_words(count, wait)}; rank {root.rank} {reason}"


def _count_in_words(waiters: int, wait: Wait) -> str:
    operation = call_name(wait.operation, wait.communicator, wait.sequence)
    verb = "waits" if waiters == 1 else "wait"
    return f"{waiters:,} of {wait.group:,} ranks {verb} in {operation}"


def call_name(operation: str, communicator: str, sequence: int) -> str:
    return f"{operation or 'collective'} {sequence} of {communicator or 'the job'}"


def rank_list(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:SHOWN]))
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _activity(evidence: JobEvidence, rank: int) -> str:
    thread = _training_thread(evidence, rank)
    own = [stack for stack in evidence.stacks if stack.rank == rank]
    frames = next((stack.frames for stack in own if stack.thread == thread), ())
    where = f": it is in {place_in_words(frames)}" if frames else ""
    kernel = "" if thread else kernel_words(evidence, rank)
    return where + (f"{',' if where else ':'} {kernel}" if kernel else "")


def place_in_words(frames: Sequence[str]) -> str:
    """Return the innermost call, and the line of the program that led into a library."""
    own = next((frame for frame in reversed(frames) if not _LIBRARY.search(frame)), frames[-1])
    return frames[-1] if own == frames[-1] else f"{frames[-1]}, called from {own}"


def _training_thread(evidence: JobEvidence, rank: int) -> str:
    """Name the thread in which other ranks wait: the main thread, unless they train in another
    one."""
    own = {
        stack.thread
        for stack in evidence.stacks
        if stack.rank == rank and not is_waiting(stack.frames)
    }
    waiting = [
        stack.thread
        for stack in evidence.stacks
        if stack.rank != rank and stack.thread in own and is_waiting(stack.frames)
    ]
    return "" if "" in waiting else next(iter(waiting), "")


def kernel_words(evidence: JobEvidence, rank: int) -> str:
    """Words for what a rank's main thread does in the kernel: the function in which it sleeps."""
    functions = (process.blocked_in for process in evidence.processes if process.rank == rank)
    function = next(functions, "")
    return f"asleep in the kernel ({function})" if function else ""


def _first_launch(wait: Wait, evidence: JobEvidence) -> float | None:
    launches = (
        call.launched
        for call in evidence.calls
        if (call.communicator, call.sequence) == (wait.communicator, wait.sequence)
        and call.launched is not None
    )
    return min(launches, default=None)


STATES = {
    Pulse.MUTE: "runs, and its interpreter does not answer: C code keeps its lock",
    Pulse.GONE: "is gone",
    Pulse.STOPPED: "is stopped, as by SIGSTOP or a debugger",
    Pulse.UNHEARD: "does not answer the others: it is stopped, gone or out of reach",
}


DEAF = "is there, and nothing in it answers"


def _processes(hearing: Hearing) -> Iterable[JobFact]:
    """Yield processes that do not answer. If most are mute, their machine is the reason, and no
    mute one is named. If all are stopped, whoever stopped them will let them go on."""
    evidence = hearing.evidence
    stopped = [process.pulse is Pulse.STOPPED for process in evidence.processes]
    if len(stopped) > 1 and all(stopped):
        yield JobFact(
            kind=FactKind.STANDSTILL,
            whom=Whom(),
            evidence=f"all {len(stopped)} processes are stopped, as those of a suspended job",
            code=SUSPENDED,
        )
        return
    followers = _followers(evidence)
    mute = sum(process.pulse is Pulse.MUTE for process in evidence.processes)
    for process in evidence.processes:
        if process.pulse is Pulse.ANSWERS or process.rank in followers:
            continue
        is_mute = process.pulse is Pulse.MUTE
        are_many = 2 * mute >= max(len(evidence.processes), 2)
        if is_mute and (not evidence.stall or are_many or process.is_late):
            continue  # a rank may only be slow to answer
        state = DEAF if process.is_deaf else STATES[process.pulse]
        kernel = kernel_words(evidence, process.rank) if is_mute else ""
        yield JobFact(
            kind=FactKind.GONE if process.pulse is Pulse.GONE else FactKind.STOPPED,
            whom=rank_subject(evidence, process.rank),
            evidence=f"the process of rank {process.rank} {state}{kernel and f' ({kernel})'}",
            confidence=CONFIDENCE.get(process.pulse, 1.0),
            code=process.pulse,
            at=process.at,
        )


def _followers(evidence: JobEvidence) -> frozenset[int]:
    """Ranks whose processes are gone and whose last error named another rank: they ended because
    that one did. If all gone processes named another rank, only those whose end was not seen."""
    accusers = {event.rank for event in evidence.log if event.gravity is Gravity.DISTRIBUTED}
    gone = [process for process in evidence.processes if process.pulse is Pulse.GONE]
    is_one_quiet = any(process.rank not in accusers for process in gone)
    return frozenset(
        process.rank
        for process in gone
        if process.rank in accusers and (is_one_quiet or process.at is None)
    )


def _standstill(hearing: Hearing) -> Iterable[JobFact]:
    """A fact about the job, without a rank: a rank whose kernels do end may be the one that the
    others wait for, or its timer may only be late."""
    timers = {timer.rank: timer.is_hung for timer in hearing.evidence.timers}
    ended = sorted(rank for rank, is_hung in timers.items() if not is_hung)
    hung = len(timers) - len(ended)
    if 2 * hung > len(timers):
        rest = f", and none of {rank_list(ended)} hangs" if ended else ""
        yield JobFact(
            kind=FactKind.STANDSTILL,
            whom=Whom(),
            evidence=f"a kernel of {hung} of {len(timers)} ranks has not ended for minutes{rest}",
            confidence=SOME_HANG if ended else ALL_HANG,
            code="kernel-timer",
        )


EVEN = frozenset(
    [
        "allreduce",
        "allreducecoalesced",
        "broadcast",
        "reduce",
        "allgatherbase",
        "allgatherintotensor",
        "reducescatterbase",
        "reducescattertensor",
        "barrier",
    ]
)  # operations whose input has the same size on each rank
RING_CONFIDENCE = 0.7  # the circle is seen; that no rank in it is only late is not


def _mismatches(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    open_at = _open_collectives(evidence.calls)
    for (communicator, sequence), calls in open_at.items():
        operation = call_name(calls[0].operation, communicator, sequence)
        for code, sides in (
            ("order", _sides(calls, _plain)),
            ("size", _sides(calls, _elements)),
            ("type", _sides(calls, _types)),
        ):
            if len(sides) > 1:
                yield _mismatch_fact(code, f"ranks differ in {operation}: {_describe_sides(sides)}")
                return  # later differences follow from this one


def _open_collectives(calls: Iterable[Call]) -> Mapping[tuple[str, int], list[Call]]:
    """Collectives that several ranks launched and not all finished, in the order of first
    launch."""
    met: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        if not call.point_to_point:
            met.setdefault((call.communicator, call.sequence), []).append(call)
    still = {
        key: group
        for key, group in met.items()
        if len({call.rank for call in group}) > 1
        and any(call.state is not CallState.FINISHED for call in group)
    }
    return dict(sorted(still.items(), key=lambda item: (_first(item[1]), item[0])))


def _first(calls: Sequence[Call]) -> float:
    return min((call.launched for call in calls if call.launched is not None), default=math.inf)


Variants = dict[str, list[int]]  # what was called → ranks that called it


def _sides(calls: Iterable[Call], view: object) -> Variants:
    sides: Variants = {}
    for call in calls:
        if label := view(call):  # type: ignore[operator]
            sides.setdefault(label, []).append(call.rank)
    return sides


def _plain(call: Call) -> str:
    """Name of the operation without decoration: `nccl:_all_gather_base` and `ALLGATHER_BASE` are
    one."""
    return re.sub(r"[^a-z]", "", call.operation.rpartition(":")[2].lower())


def _elements(call: Call) -> str:
    if _plain(call) not in EVEN or not call.sizes:
        return ""
    return f"{sum(math.prod(size) for size in call.sizes)} elements"


def _types(call: Call) -> str:
    return " ".join(sorted(set(call.dtypes))) if _plain(call) in EVEN else ""


def _describe_sides(sides: Variants) -> str:
    few = sorted(sides.items(), key=lambda side: (len(side[1]), side[1]))
    return ", ".join(f"{label} on {rank_list(ranks)}" for label, ranks in few[:SHOWN])


def _circles(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    waiting = Waiting(evidence.advances, evidence.calls)
    if waiting.roots:
        return
    for ring in waiting.rings:
        places = {rank: next(iter(waiting.waits[rank]), None) for rank in ring}
        if len({(wait.communicator, wait.sequence) for wait in places.values() if wait}) > 1:
            places_text = ", ".join(
                f"rank {rank} in {call_name(wait.operation, wait.communicator, wait.sequence)}"
                for rank, wait in list(places.items())[:SHOWN]
                if wait
            )
            fact = f"{len(ring)} ranks wait for each other in a circle: {places_text}"
            yield _mismatch_fact("circle", fact, RING_CONFIDENCE)
    if not waiting.rings:
        yield from _left_alone(waiting, evidence)


def _left_alone(waiting: Waiting, evidence: JobEvidence) -> Iterator[JobFact]:
    """A rank that waits in a group to which no other rank came, while all others wait too, some of
    them for this rank. Gloo lists no members of groups: they are known by those that came."""
    if waiting.ranks - waiting.recorded_ranks or not all(waiting.waits.values()):
        return
    for rank, (wait, *_) in waiting.waits.items():
        threads = [stack.frames for stack in evidence.stacks if stack.rank == rank]
        if wait.group > 1 or (threads and not any(map(is_waiting, threads))):
            continue
        all_waits = (of_rank for waits in waiting.waits.values() for of_rank in waits)
        if held_up := next((held for held in all_waits if rank in held.blockers), None):
            place = call_name(wait.operation, wait.communicator, wait.sequence)
            came = _sentence(Root(rank, held_up, is_stuck=False), waiting)
            fact = f"{came}: it waits in {place}, to which no other rank came"
            yield _mismatch_fact("circle", fact, RING_CONFIDENCE)
            return


def _logged_mismatches(hearing: Hearing) -> Iterator[JobFact]:
    """Mismatches in the training log. The rank that logged one only received what did not fit, so
    the fact does not blame it."""
    window = crash_window(hearing.evidence)
    for event in hearing.evidence.log:
        if event.gravity is Gravity.MISMATCH and window.has(event):
            speaker = "a rank" if event.rank is None else f"rank {event.rank}"
            yield _mismatch_fact(event.code, f"{speaker}: {event.text}")


def _mismatch_fact(code: str, sentence: str, confidence: float = 0.95) -> JobFact:
    return JobFact(
        kind=FactKind.MISMATCH, whom=Whom(), evidence=sentence, confidence=confidence, code=code
    )


RULES = (
    InferenceRule(
        name="ranks that hold up a collective",
        needs=frozenset({Collector.PROGRESS}),
        gives=frozenset(
            {FactKind.ABSENT, FactKind.UNFINISHED, FactKind.MISSING, FactKind.STANDSTILL}
        ),
        infer=_holdups,
    ),
    InferenceRule(
        name="ranks whose process is stopped or gone",
        needs=frozenset({Collector.PROCESSES}),
        gives=frozenset({FactKind.STOPPED, FactKind.GONE, FactKind.STANDSTILL}),
        infer=_processes,
    ),
    InferenceRule(
        name="ranks whose kernels do not end",
        needs=frozenset({Collector.TIMERS}),
        gives=frozenset({FactKind.STANDSTILL}),
        infer=_standstill,
    ),
)
MATCHING_RULES = (
    InferenceRule(
        name="ranks whose collectives do not match, by the training log",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_logged_mismatches,
    ),
    InferenceRule(
        name="ranks whose collectives do not match",
        needs=frozenset({Collector.CALLS}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_mismatches,
    ),
    InferenceRule(
        name="ranks that wait for each other in a circle",
        needs=frozenset({Collector.CALLS, Collector.PROGRESS}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_circles,
    ),
)
