"""Without some collectors the answer only becomes weaker, and states it.

Each story is a made job whose truth was decided first. All collectors brought something; then every
subset of them is switched off. Only a rank that the story calls guilty or odd may be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest

from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.cures import CurePolicy
from anubis.core.diagnose.diagnostician import (
    Diagnosis,
    DiagnosisAnswer,
    diagnose,
    unexplained_gaps,
)
from anubis.core.diagnose.evidence import (
    Collector,
    Connection,
    Exit,
    Gravity,
    JobEvidence,
    KernelTimer,
    LogEvent,
    OddSetting,
    ProcessState,
    Pulse,
    RankMap,
    Stack,
    StepTime,
)
from anubis.core.watch.findings import Deviation, Look, Sign, Suspicion
from anubis.core.watch.telemetry import Side
from anubis.lab.simulation.hangs import HangFault, HangingJob, JobLayout, Operation
from anubis.operations.diagnose import rules
from anubis.readers.jobs.flight_recorder import dump_of, evidence_of

NOW = 1_790_000_000.0
RANKS = RankMap(nodes={rank: f"n{rank // 2}" for rank in range(8)})
FIELDS: Mapping[Collector, str] = {  # of what each one brings, but for the logs
    Collector.EXITS: "exits",
    Collector.REACH: "unreachable",
    Collector.PROCESSES: "processes",
    Collector.PROGRESS: "advances",
    Collector.CALLS: "calls",
    Collector.STACKS: "stacks",
    Collector.STEPS: "steps",
    Collector.TIMERS: "timers",
    Collector.TELEMETRY: "look",
    Collector.SETTINGS: "settings",
    Collector.CONNECTIONS: "connections",
}
NOTHING = JobEvidence(job="4711", at=NOW, collectors=frozenset())


def without(evidence: JobEvidence, off: Iterable[Collector]) -> JobEvidence:
    missing = set(off)
    empty = {FIELDS[name]: getattr(NOTHING, FIELDS[name]) for name in missing if name in FIELDS}
    log = tuple(event for event in evidence.log if event.collector not in missing)
    return replace(evidence, collectors=evidence.collectors - missing, log=log, **empty)


@dataclass(frozen=True)
class Story:
    evidence: JobEvidence
    at_fault: frozenset[str]  # nodes
    odd: frozenset[str] = field(default_factory=frozenset)  # of which something is unusual
    is_the_job_itself: bool = False

    def with_all(self) -> JobEvidence:
        return replace(self.evidence, collectors=frozenset(Collector), ranks=RANKS)

    def informative(self) -> list[Collector]:
        """Collectors that brought any record: the rest cannot change what is concluded."""
        logs = {event.collector for event in self.evidence.log}
        return [
            name
            for name in Collector
            if name in logs or (name in FIELDS and getattr(self.evidence, FIELDS[name]))
        ]


def dumped(job: HangingJob) -> JobEvidence:
    return evidence_of({rank: dump_of(dump, "made") for rank, dump in job.run().dumps().items()})


def line(node: str, gravity: Gravity, collector: Collector, **more: object) -> LogEvent:
    code = str(more.pop("code", gravity))
    return LogEvent(
        **{
            "collector": collector,
            "code": code,
            "gravity": gravity,
            "text": code,
            "node": node,
            "at": NOW - 60.0,
            **more,
        }  # type: ignore[arg-type]
    )


def unlike(node: str) -> Look:
    deviation = Deviation(
        sign=Sign.UNLIKE_PEERS,
        metric="gpu_duty_share",
        family="gpu",
        since=NOW - 300.0,
        until=NOW,
        side=Side.LOW,
        value=0.1,
        peers=0.95,
        effect=0.85,
    )
    return Look(
        job="4711",
        nodes=("n0", "n1", "n2", "n3"),
        start=NOW - 900.0,
        end=NOW,
        suspicions=(Suspicion(node=node, since=NOW - 300.0, deviations=(deviation,)),),
    )


def steps(slow: int) -> tuple[StepTime, ...]:
    return tuple(
        StepTime(
            rank=rank,
            step=step,
            duration_s=2.0,
            own_s=1.8 if rank == slow else 1.0,
            collective_s=0.2 if rank == slow else 1.0,
            group_s=0.9,
        )
        for rank in range(8)
        for step in range(4)
    )


def broken_host() -> Story:
    """A GPU of n1 falls off its bus: rank 2 is gone, and all other ranks notice it."""
    job = dumped(HangingJob(JobLayout(dp=4, pp=2), [HangFault(2, 5)]))
    others = ("n0", "n2", "n3")
    reports = [
        line(node, Gravity.DISTRIBUTED, Collector.TRAINING_LOG, peer="n1", code="reset")
        for node in others
    ]
    kernel = line("n1", Gravity.CRITICAL, Collector.KERNEL_LOG, code="xid-79", device="gpu0")
    return Story(
        evidence=replace(
            job,
            log=(kernel, *reports),
            exits=(Exit(rank=2, signal=9, at=NOW - 60.0),),
            unreachable={"n1": NOW - 120.0},
            processes=(ProcessState(rank=2, pulse=Pulse.GONE, at=NOW - 60.0),),
            timers=tuple(KernelTimer(rank=rank, is_hung=rank != 2) for rank in range(8)),
            look=unlike("n1"),
            connections=tuple(
                Connection(rank=rank, peer="n1", peer_rank=2, samples=40, sending=40, resent=9)
                for rank in (0, 4, 6)
            ),
        ),
        at_fault=frozenset({"n1"}),
    )


def behind_a_pipeline() -> Story:
    """Rank 3 stops before it sends: the next stage waits for it, and does not come either. n0 looks
    unusual, and has nothing to do with it."""
    job = dumped(HangingJob(JobLayout(dp=4, pp=2), [HangFault(3, 4)]))
    return Story(
        evidence=replace(
            job,
            timers=tuple(KernelTimer(rank=rank, is_hung=rank != 3) for rank in range(8)),
            stacks=(Stack(rank=3, frames=("train.py:9 load",)),),
            look=unlike("n0"),
            settings=(
                OddSetting(node="n0", setting="mtu", device="eth0", sentence="9000", at=NOW),
            ),
        ),
        at_fault=frozenset({"n1"}),
        odd=frozenset({"n0"}),
    )


def deep_pipeline() -> Story:
    """Rank 3 stops, and rank 5 waits for a message of it. Counts of collectives alone show both as
    having come to nothing."""
    job = dumped(HangingJob(JobLayout(dp=2, pp=4), [HangFault(3, 11)]))
    timers = tuple(KernelTimer(rank=rank, is_hung=rank != 3) for rank in range(8))
    return Story(evidence=replace(job, timers=timers), at_fault=frozenset({"n1"}))


def wrong_program() -> Story:
    """Rank 5 calls another operation than its group."""
    all_ranks = tuple(range(8))
    called = Operation(all_ranks, "default_pg", "broadcast", (1,), "Float")
    layout = JobLayout(dp=8)
    at = len(layout.program(5)) // 2
    while layout.program(5)[at].description != "default_pg":
        at += 1
    job = dumped(HangingJob(layout, [HangFault(5, at, kind="calls", called=called)]))
    return Story(
        evidence=replace(
            job,
            timers=tuple(KernelTimer(rank=rank, is_hung=True) for rank in range(8)),
            processes=tuple(ProcessState(rank=rank, pulse=Pulse.ANSWERS) for rank in range(8)),
            stacks=tuple(Stack(rank=rank, frames=("train.py:9 step",)) for rank in range(8)),
        ),
        at_fault=frozenset(),
        is_the_job_itself=True,
    )


def wrong_settings() -> Story:
    """All ranks end by the same error of their code."""
    return Story(
        evidence=replace(
            NOTHING,
            log=tuple(
                line(
                    f"n{rank // 2}",
                    Gravity.APPLICATION,
                    Collector.TRAINING_LOG,
                    rank=rank,
                    detail="KeyError: 'lr'",
                )
                for rank in range(8)
            ),
            exits=tuple(Exit(rank=rank, code=1, at=NOW - 60.0) for rank in range(8)),
        ),
        at_fault=frozenset(),
        is_the_job_itself=True,
    )


def slow_worker() -> Story:
    return Story(
        evidence=replace(
            NOTHING,
            steps=steps(slow=6),
            look=unlike("n3"),
            processes=tuple(ProcessState(rank=rank, pulse=Pulse.ANSWERS) for rank in range(8)),
            timers=tuple(KernelTimer(rank=rank, is_hung=False) for rank in range(8)),
        ),
        at_fault=frozenset({"n3"}),
    )


STORIES = [
    broken_host,
    behind_a_pipeline,
    deep_pipeline,
    wrong_program,
    wrong_settings,
    slow_worker,
]


def judged(evidence: JobEvidence) -> Diagnosis:
    return diagnose(evidence, RULES, POLICY)


RULES, POLICY = rules(), CurePolicy()


def subsets(names: Iterable[Collector]) -> Iterator[tuple[Collector, ...]]:
    kept = list(names)
    for size in range(len(kept) + 1):
        yield from combinations(kept, size)


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_a_missing_collector_makes_no_answer_name_an_unfounded_rank(tell: Callable[[], Story]):
    story = tell()
    entire = story.with_all()
    full = judged(entire)
    assert set(full.nodes) == story.at_fault
    assert full.is_the_job_itself == story.is_the_job_itself
    for off in subsets(story.informative()):
        partial = judged(without(entire, off))
        why = f"without {', '.join(off)}"
        assert set(partial.nodes) <= story.at_fault | story.odd, why
        assert not story.is_the_job_itself or partial.culprits == (), why
        assert partial.culprits != full.culprits or partial.confidence <= full.confidence, why
        assert partial.gaps.keys() == set(off), why


def test_each_missing_collector_is_explained_in_words_of_its_own():
    entire = slow_worker().with_all()
    for off in subsets(Collector):
        gaps = unexplained_gaps(replace(entire, collectors=entire.collectors - set(off)))
        assert gaps.keys() == set(off)
        assert len(set(gaps.values())) == len(off)
    nothing = judged(without(broken_host().with_all(), Collector))
    assert (nothing.answer, nothing.trouble) == (DiagnosisAnswer.UNKNOWN, JobTrouble.UNKNOWN)


def test_the_reason_of_a_reader_comes_before_the_general_words():
    why = {Collector.CALLS: '"dump_3" is no dump'}
    evidence = replace(without(broken_host().with_all(), [Collector.CALLS]), gaps=why)
    assert judged(evidence).gaps == why
