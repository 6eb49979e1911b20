"""Made stacks of stalled jobs with a planted culprit; and programs that rest, take turns, or do not
answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from anubis.core.diagnose import hang, stacks
from anubis.core.diagnose.evidence import (
    Advance,
    Call,
    CallState,
    Collector,
    Connection,
    JobEvidence,
    ProcessState,
    Pulse,
    RankMap,
    Stack,
    Stall,
)
from anubis.core.diagnose.facts import reason
from anubis.core.diagnose.live_progress import (
    ALONE_S,
    HALF_REST_S,
    LONGEST_STILL_S,
    MUTE_S,
    OVERCOME,
    REST_S,
    TURNS,
    Standstill,
    rest_of,
)
from anubis.readers.jobs.scheduling import ProcessorWatch, kernel_function
from tests.patience import eventually

START = ("<module> (/job/train.py:90)", "main (/job/train.py:80)")
SEND = (*START, "step (/job/train.py:31)", "send (/py/torch/distributed/distributed_c10d.py:2700)")
RECEIVE = (*START, "step (/job/train.py:33)", "recv (/py/torch/distributed/distributed_c10d.py:99)")
BACKWARD = (*START, "step (/job/train.py:40)", "_engine_run_backward (/py/autograd/graph.py:824)")
SAVE = (*START, "save (/job/train.py:60)", "write (/py/torch/distributed/checkpoint/fs.py:7)")
LOAD = (*START, "step (/job/train.py:20)", "get (/lib/queue.py:171)")
OWN = (*START, "step (/job/train.py:22)")
DISPATCHED = "__call__ (/py/torch/_ops.py:1279)"
TENSOR = (*START, "wait_tensor (/py/torch/distributed/_functional_collectives.py:1)", DISPATCHED)
OPERATION = (*START, "forward (/job/model.py:9)", DISPATCHED)
WAITS = (SEND, RECEIVE, BACKWARD, TENSOR)


def still(
    places: Mapping[int, Sequence[str]] | Sequence[Sequence[str]],
    *more: Stack,
    stages: Mapping[int, int] | None = None,
    blocked: Mapping[int, str] | None = None,
    operation: str = "gloo:all_reduce",
    wires: bool = False,
) -> JobEvidence:
    """A stalled job, with its main threads at these places."""
    if not isinstance(places, Mapping):
        places = dict(enumerate(places))
    return JobEvidence(
        job="j",
        at=100.0,
        collectors=frozenset({Collector.STACKS, Collector.PROCESSES, Collector.PROGRESS}),
        ranks=RankMap(stages=stages or {}),
        stacks=tuple(Stack(rank=rank, frames=tuple(at)) for rank, at in places.items()) + more,
        processes=tuple(
            ProcessState(
                rank=rank,
                pulse=Pulse.ANSWERS,
                rests_s=30.0,
                blocked_in=(blocked or {}).get(rank, ""),
            )
            for rank in places
        ),
        advances=tuple(
            Advance(
                rank=rank,
                communicator="all",
                members=tuple(places),
                enqueued=2,
                completed=2,
                operation=operation,
            )
            for rank in places
        ),
        connections=tuple(
            Connection(rank=rank, peer="n", samples=40, sending=0) for rank in places if wires
        ),
        stall=Stall(since=70.0, sentence="it stands still"),
    )


def named(evidence: JobEvidence) -> list[int | None]:
    facts = reason(evidence, stacks.RULES).facts
    return [fact.whom.rank for fact in facts if fact.kind == "elsewhere"]


@pytest.mark.parametrize("seed", range(20))
def test_exactly_the_ranks_that_do_not_wait_are_named(seed: int):
    dice = random.Random(seed)
    ranks = range(dice.choice([2, 4, 8, 64]))
    culprits = sorted(dice.sample(ranks, dice.choice([0, 1, max(1, len(ranks) // 4)])))
    places = [dice.choice([LOAD, OWN, SAVE, OPERATION] if r in culprits else WAITS) for r in ranks]
    assert named(still(places)) == culprits
    assert named(replace(still(places), stall=None)) == []  # while it moves they are only late


def test_a_place_in_a_library_is_shown_with_the_line_of_the_program_that_led_there():
    pool = (*START, "step (/job/train.py:22)", "wait (/usr/lib/python3.12/threading.py:355)")
    (fact,) = reason(still([SEND, SEND, pool]), stacks.RULES).facts
    own = "step (/job/train.py:22)"
    assert f"wait (/usr/lib/python3.12/threading.py:355), called from {own}" in fact.evidence
    (fact,) = reason(still([SEND, SEND, OWN]), stacks.RULES).facts
    assert "called from" not in fact.evidence


def test_a_rank_that_waits_in_a_group_to_which_no_other_came_is_the_programs_fault():
    """As seen of a barrier with another group than that of the others, by gloo."""

    def advance(rank: int, group: str, enqueued: int) -> Advance:
        members = (0, 1, 2) if group == "all" else (rank,)
        return Advance(
            rank=rank, communicator=group, members=members, enqueued=enqueued, completed=20
        )

    together = advance(0, "all", 21), advance(2, "all", 21)
    alone = advance(1, "all", 20), replace(advance(1, "1", 1), completed=0)
    made = replace(still([SEND, SEND, SEND]), advances=(*together, *alone), calls=())
    made = replace(made, collectors=made.collectors | {Collector.PROGRESS, Collector.CALLS})
    (fact,) = reason(made, hang.MATCHING_RULES).facts
    assert (fact.kind, fact.code) == ("mismatch", "circle")
    assert "rank 1 did not come to it: it waits in collective 1 of 1" in fact.evidence
    elsewhere = replace(made, stacks=still([SEND, OWN, SEND]).stacks)
    assert reason(elsewhere, hang.MATCHING_RULES).facts == ()


def test_most_of_the_ranks_are_never_named():
    assert named(still([SEND, OWN, OWN, LOAD])) == []
    assert named(still([OWN, OWN, OWN, OWN])) == []


def test_without_communication_the_few_ranks_at_another_place_are_named():
    assert named(still([LOAD, LOAD, SAVE, LOAD])) == [2]
    later = (*START, "step (/job/train.py:29)")
    assert named(still([OWN, OWN, later, OWN])) == [2]
    assert named(still([LOAD, OWN, SAVE, later])) == []


def test_a_usual_place_of_a_stage_is_no_sign_of_a_fault():
    places = [RECEIVE] * 3 + [LOAD] * 3
    stages = {rank: rank // 3 for rank in range(6)}
    assert named(still(places, stages=stages)) == []
    places[1] = OWN
    assert named(still(places, stages=stages)) == [1]


def test_on_devices_a_line_of_the_program_may_be_a_wait_for_them():
    """Such as `loss.item()` in the last stage, whose wait no stack of Python shows."""
    places = [SEND, SEND, SEND, OWN]
    assert named(still(places, operation="nccl:all_reduce")) == []
    sleeping = {3: "hrtimer_nanosleep"}
    assert named(still(places, operation="nccl:all_reduce", blocked=sleeping)) == [3]
    assert named(still([SEND, SEND, SEND, LOAD], operation="nccl:all_reduce")) == [3]


def test_a_thread_that_most_ranks_have_is_compared_too():
    threads = [
        Stack(rank=rank, thread="save", frames=("save (/t.py:1)", "put (/t.py:2)"))
        for rank in range(4)
    ]
    threads[2] = replace(threads[2], frames=("save (/t.py:1)", "open (/t.py:9)"))
    assert named(still([SEND] * 4, *threads)) == [2]
    assert named(still([SEND, SEND, SEND, OWN], *threads)) == [3]  # the main thread goes first
    assert named(still([SEND] * 4, threads[2])) == []  # a thread of one rank alone


def test_a_rank_that_trains_in_a_second_thread_as_under_ray_train_is_shown_there():
    loop = ("main_loop (/py/ray/_private/worker.py:1069)",)
    threads = [Stack(rank=rank, frames=BACKWARD, thread="train") for rank in (0, 1, 2)]
    made = still([loop] * 4, *threads, Stack(rank=3, frames=LOAD, thread="train"))
    behind = tuple(replace(at, enqueued=3) if at.rank < 3 else at for at in made.advances)
    (fact,) = reason(replace(made, advances=behind), hang.RULES).facts
    assert (fact.kind, fact.whom.rank) == ("absent", 3)
    assert "it is in get (/lib/queue.py:171)" in fact.evidence


def test_if_all_ranks_wait_for_messages_that_none_sends_the_program_is_wrong():
    places = [RECEIVE, RECEIVE, SEND, RECEIVE]
    (fact,) = reason(still(places, wires=True), stacks.RULES).facts
    assert (fact.kind, fact.code, fact.whom.rank) == ("mismatch", "nobody-sends", None)
    (unknown,) = reason(still(places), stacks.RULES).facts  # as by RDMA, which the kernel hides
    assert (unknown.kind, unknown.code) == ("standstill", "all-wait")
    partly = still(dict(enumerate(places[:3])), wires=True)
    world = tuple(replace(advance, members=(0, 1, 2, 3)) for advance in partly.advances)
    assert not reason(replace(partly, advances=world), stacks.RULES).facts  # one was not asked


def test_a_rank_whose_interpreter_does_not_answer_is_named_unless_most_do_not():
    def mute(*ranks: int) -> JobEvidence:
        states = (
            ProcessState(rank=rank, pulse=Pulse.MUTE if rank in ranks else Pulse.ANSWERS)
            for rank in range(4)
        )
        return replace(still([SEND] * 4), processes=tuple(states))

    assert not reason(replace(mute(1), stall=None), hang.RULES).facts  # it may only be slow
    (fact,) = reason(mute(1), hang.RULES).facts
    assert (fact.kind, fact.whom.rank, fact.code) == ("stopped", 1, "mute")
    assert not reason(mute(0, 1), hang.RULES).facts
    late = [replace(state, is_late=True) for state in mute(1).processes]
    assert not reason(replace(mute(1), processes=tuple(late)), hang.RULES).facts


def looks(*, at: float, rests: Sequence[float], sleeps: int = 0, place: Sequence[str] = ()):
    evidence = still([place or SEND] * len(rests))
    states = (
        ProcessState(rank=rank, pulse=Pulse.ANSWERS, rests_s=rests_s, sleeps=sleeps)
        for rank, rests_s in enumerate(rests)
    )
    return replace(evidence, at=at, processes=tuple(states), advances=(), stall=None)


def test_a_job_stalls_if_all_its_programs_rest_or_half_of_them_for_long():
    def rest(*rests: float) -> float:
        return rest_of(looks(at=0.0, rests=rests).processes)

    assert rest(REST_S, REST_S + 9) == REST_S
    assert rest(0.0, REST_S + 9, REST_S + 9, REST_S + 9) == 0.0
    assert rest(0.0, 1.0, HALF_REST_S, HALF_REST_S) == HALF_REST_S
    assert rest(0.0, 1.0, 2.0, HALF_REST_S) == 0.0
    assert rest() == 0.0


def test_programs_that_communicate_and_go_on_prove_that_a_job_moves_and_circles_prove_nothing():
    circling, working = Standstill(), Standstill()
    for at in range(12):
        lines = (*START, f"poll (/job/train.py:{at % 3})")
        circling.observe(looks(at=at, rests=[0.0, 0.0], sleeps=10 * at, place=lines))
        place = SEND if at % 3 else OWN
        since = working.observe(looks(at=at, rests=[0.0, 0.0], sleeps=10 * at, place=place))
        assert since is None
    assert [(count.what, count.after > count.before) for count in working.counts] == [
        (TURNS, True),
        (TURNS, True),
    ]
    assert [count.after - count.before for count in circling.counts] == [0, 0]
    assert working.is_settled
    assert not circling.is_settled


def test_a_job_that_wakes_up_without_moving_stalls_after_a_minute():
    """As ranks that try again and again to reach one that never joined."""
    standstill = Standstill()
    for at in range(int(LONGEST_STILL_S)):
        assert standstill.observe(looks(at=at, rests=[0.0, at], sleeps=20 * at)) is None
    last = looks(at=LONGEST_STILL_S, rests=[0.0, LONGEST_STILL_S], sleeps=20 * 60)
    assert standstill.observe(last) == 0.0


@pytest.mark.parametrize(
    ("lines", "sign"),
    [
        (1, {}),
        (2, {}),
        (5, {}),
        (1, {"is_busy": True}),
        (0, {"is_busy": True, "pulse": Pulse.MUTE}),
        (0, {"pulse": Pulse.MUTE}),
        (1, {"work_ran": 0.5}),
    ],
)
def test_a_rank_that_visibly_works_alone_hangs_no_job_for_ten_minutes(lines: int, sign):
    """As in an evaluation on rank 0, for which all others wait. A rank that runs at one line and
    touches no new memory shows no work, also if its threads run and it waits for none."""
    standstill, hangs = Standstill(), []
    for at in range(int(ALONE_S) + 2):
        evidence = looks(at=at, rests=[0.0, at], place=SEND)
        works = [
            replace(evidence.stacks[0], frames=(*OWN, f"eval (/job/e.py:{at % max(lines, 1)})"))
        ]
        stacks = (*(works if lines else ()), evidence.stacks[1])
        states = (replace(evidence.processes[0], **sign), evidence.processes[1])
        seen = replace(evidence, stacks=stacks, processes=states)
        hangs.append(standstill.observe(seen) is not None)
    assert any(hangs[:-2]) is not (lines > 1 or "is_busy" in sign)
    assert not any(hangs[: int(LONGEST_STILL_S)])
    assert hangs[-1]
    assert not standstill.alone


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_rank_whose_threads_work_while_it_waits_for_them_is_at_work(share: float):
    """It has waited for long at the first look, and what its threads run is known after a while."""
    standstill, wait = Standstill(), (*OWN, "wait (/usr/lib/python3.11/threading.py:327)")
    for at in range(90):
        evidence = looks(at=at, rests=[at + REST_S, at + REST_S])
        state = replace(evidence.processes[0], work_ran=share if at > 8 else None)
        stacks = (replace(evidence.stacks[0], frames=wait), evidence.stacks[1])
        seen = replace(evidence, stacks=stacks, processes=(state, evidence.processes[1]))
        assert (standstill.observe(seen) is None) is (share > 0 or at <= 8)
    assert standstill.alone == ((0,) if share else ())


@pytest.mark.parametrize(("pause_s", "limit_s"), [(1, REST_S), (90, OVERCOME * 90)])
def test_a_pause_hangs_no_job_that_has_overcome_one_of_its_length(pause_s: int, limit_s: float):
    """Ranks that rest, as while one waits for a service, and that paused like that before."""
    standstill = Standstill()
    calls = tuple(
        Call(
            rank=0,
            communicator="all",
            sequence=number,
            operation="gloo:all_reduce",
            state=CallState.FINISHED,
            launched=float(at),
        )
        for number, at in enumerate([*range(-300, -200), *range(pause_s - 201, 1)])
    )
    counts = (Advance(rank=0, communicator="all", members=(0, 1), enqueued=99, completed=99),)
    for at in range(int(limit_s) + 1):
        evidence = replace(looks(at=at, rests=[at, at]), calls=calls, advances=counts)
        assert (standstill.observe(evidence) is not None) is (at >= limit_s)


def test_a_job_that_rests_hangs_though_it_recorded_nothing():
    standstill = Standstill()
    for at in range(int(REST_S)):
        assert standstill.observe(looks(at=at, rests=[at, at], sleeps=5)) is None
    assert standstill.observe(looks(at=REST_S, rests=[REST_S, REST_S], sleeps=5)) == 0.0


def test_a_rank_that_does_not_answer_hangs_a_job_once_all_others_have_rested():
    """A program that starts may keep its interpreter to itself for seconds, and the others wait."""
    hung, starting = Standstill(), Standstill()
    for at in range(int(MUTE_S)):
        resting = looks(at=at, rests=[at, at])
        mute = (replace(resting.processes[0], pulse=Pulse.MUTE), resting.processes[1])
        assert hung.observe(replace(resting, processes=mute)) is None
        starting.observe(replace(resting, processes=mute))
    last = replace(resting, at=MUTE_S)
    at_last = replace(mute[1], rests_s=MUTE_S)
    assert hung.observe(replace(last, processes=(mute[0], at_last))) == 0.0
    assert starting.observe(replace(last, processes=(resting.processes[0], at_last))) is None


def test_a_rank_is_only_late_until_it_has_not_answered_for_long_or_in_any_look():
    hangs = Standstill()

    def look(at: float, *mute: int) -> tuple[int, ...]:
        resting = looks(at=at, rests=[at] * 4)
        states = (
            replace(state, pulse=Pulse.MUTE if state.rank in mute else Pulse.ANSWERS)
            for state in resting.processes
        )
        hangs.observe(replace(resting, processes=tuple(states)))
        return hangs.late

    assert look(0.0, 1) == ()  # it is all that is known
    assert look(4.0, 1, 2) == (2,)
    assert look(8.0, 2) == (2,)
    assert look(12.0, 3) == (3,)
    assert look(12.0 + MUTE_S, 3) == ()
    assert look(40.0) == ()


@pytest.fixture
def programs() -> Iterator[tuple[int, int]]:
    """Two programs: one that sleeps and one that wakes up again and again."""
    codes = ("import time; time.sleep(600)", "import time\nwhile True: time.sleep(0.01)")
    started = [subprocess.Popen([sys.executable, "-c", code]) for code in codes]
    try:
        yield started[0].pid, started[1].pid
    finally:
        for program in started:
            program.kill()
            program.wait()


def test_the_kernel_shows_which_program_rests_and_for_how_long(programs: tuple[int, int]):
    resting, waking = programs
    watch = ProcessorWatch()

    def is_told() -> bool:
        watch.sample({0: resting, 1: waking})
        time.sleep(0.2)
        return (watch.rest_s(0) or 0.0) > 0.5

    assert eventually(is_told)
    assert (watch.rest_s(1) or 0.0) < (watch.rest_s(0) or 0.0)
    assert (watch.sleeps(1) or 0) > (watch.sleeps(0) or 0)
    if os.geteuid() == 0:
        assert "sleep" in kernel_function(resting)
    watch.sample({2: 2**22 + 1})
    assert watch.rest_s(2) is None
    assert watch.sleeps(2) is None
