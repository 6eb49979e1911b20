"""A hang: who did not come (ABSENT), who came and did not finish (UNFINISHED), and whose process
does not answer (STOPPED) or is gone (DIED)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anubis.core.diagnosing.chain import Hearing, InferenceRule
from anubis.core.diagnosing.evidence import Collector, JobEvidence, Pulse
from anubis.core.diagnosing.facts import FactKind, JobFact, Whom
from anubis.core.diagnosing.waiting import Root, Wait, Waiting

RECORDED = 0.9  # how sure one may be of who is known not to have come
UNRECORDED = 0.7  # its record may have been lost


def whom_of(evidence: JobEvidence, rank: int) -> Whom:
    return Whom(node=evidence.ranks.node_of(rank), rank=rank)


def _who_holds_up(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    waiting = Waiting(evidence.advances, evidence.calls)
    for root in waiting.roots:
        yield JobFact(
            kind=FactKind.UNFINISHED if root.is_stuck else FactKind.ABSENT,
            whom=whom_of(evidence, root.rank),
            evidence=_sentence(root, waiting) + _doing(evidence, root.rank),
            confidence=RECORDED if root.has_record else UNRECORDED,
            code="collectives",
            at=_since(root.wait, evidence),
        )


def _sentence(root: Root, waiting: Waiting) -> str:
    wait = root.wait
    operation = named(wait.operation, wait.communicator, wait.sequence)
    if wait.peer is not None and not root.is_stuck:
        return f"rank {wait.rank} waits for rank {root.rank} in {operation}"
    if root.is_stuck:
        through = wait.group - len(wait.late)
        return (
            f"rank {root.rank} came to {operation} and did not finish it; {through} of"
            f" {wait.group} ranks did"
        )
    count = sum(root.rank in waiter.on for waiter in waiting.waiters(wait))
    reason = "did not come to it" if root.has_record else "left no record"
    return f"{count} of {wait.group} ranks wait in {operation}; rank {root.rank} {reason}"


def named(operation: str, communicator: str, sequence: int) -> str:
    return f"{operation or 'collective'} {sequence} of {communicator or 'the job'}"


def _doing(evidence: JobEvidence, rank: int) -> str:
    stacks = (stack.frames for stack in evidence.stacks if stack.rank == rank)
    frames = next(stacks, ())
    return f": it is in {frames[-1]}" if frames else ""


def _since(wait: Wait, evidence: JobEvidence) -> float | None:
    launches = (
        call.launched
        for call in evidence.calls
        if (call.communicator, call.sequence) == (wait.communicator, wait.sequence)
        and call.launched is not None
    )
    return min(launches, default=None)


def _processes(hearing: Hearing) -> Iterable[JobFact]:
    evidence = hearing.evidence
    for process in evidence.processes:
        if process.pulse is not Pulse.ANSWERS:
            is_gone = process.pulse is Pulse.GONE
            state = "is gone" if is_gone else "is there, and does not answer"
            yield JobFact(
                kind=FactKind.DIED if is_gone else FactKind.STOPPED,
                whom=whom_of(evidence, process.rank),
                evidence=f"the process of rank {process.rank} {state}",
                code=process.pulse,
                at=process.at,
            )


RULES = (
    InferenceRule(
        name="who holds up a collective",
        needs=frozenset({Collector.PROGRESS}),
        gives=frozenset({FactKind.ABSENT, FactKind.UNFINISHED}),
        infer=_who_holds_up,
    ),
    InferenceRule(
        name="whose process is stopped or gone",
        needs=frozenset({Collector.PROCESSES}),
        gives=frozenset({FactKind.STOPPED, FactKind.DIED}),
        infer=_processes,
    ),
)
