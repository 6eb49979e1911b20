"""A job that is asked while it runs: made evidence, made servers, and one real job."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import anubis
from anubis.core.diagnose import hang, slow
from anubis.core.diagnose.analyst import JobTrouble, analyse
from anubis.core.diagnose.evidence import (
    Advance,
    Call,
    CallState,
    Collector,
    Gravity,
    JobEvidence,
    LogEvent,
    PastPart,
    ProcessState,
    Pulse,
    Rise,
    Stall,
)
from anubis.core.diagnose.facts import FactKind, Whom, reason
from anubis.core.diagnose.live_progress import (
    LONGEST_STILL_S,
    REST_S,
    STILL_S,
    STORES_RATE,
    VOUCHES_S,
    WARM_UP,
    Standstill,
    pace_of,
    progress_of,
    steps_of,
)
from anubis.core.errors import EvidenceError
from anubis.operations.caller import Caller
from anubis.operations.diagnose import DiagnosisRequest
from anubis.readers.jobs import live_trace
from anubis.readers.jobs.hook import sitecustomize
from anubis.readers.jobs.live import (
    ENDED,
    HOOK,
    LiveAnswer,
    LiveLook,
    LiveRank,
    add_hook,
    ask_ranks,
    began_at,
    evidence_of_looks,
    find_ranks,
    hang_together,
    parse_stacks,
    pulse_of,
    ranks_in,
    read_past,
    refusals,
    watch_ranks,
)
from anubis.readers.jobs.live_trace import (
    live_folder,
    parse_look,
    ranks_of_process,
    read_look,
    write_look,
)
from anubis.report.diagnose import headline
from tests.patience import LIMIT_S, eventually


def seen(at: float, *counts: tuple[int, int], pulses: str = "") -> JobEvidence:
    """Ranks with as many launched and finished collectives; `s` and `g`: stopped and gone."""
    pulse_of_letter = {"a": Pulse.ANSWERS, "s": Pulse.STOPPED, "g": Pulse.GONE}
    ranks = tuple(range(len(counts)))
    return JobEvidence(
        job="",
        at=at,
        collectors=frozenset({Collector.PROGRESS, Collector.PROCESSES}),
        advances=tuple(
            Advance(
                rank=rank, communicator="all", members=ranks, enqueued=launched, completed=ended
            )
            for rank, (launched, ended) in enumerate(counts)
        ),
        processes=tuple(
            ProcessState(rank=rank, pulse=pulse_of_letter[letter])
            for rank, letter in enumerate(pulses)
        ),
    )


def test_a_job_hangs_if_nothing_moves_while_a_rank_waits():
    standstill = Standstill()
    assert standstill.observe(seen(0, (50, 50), (50, 50))) is None
    assert standstill.observe(seen(1, (60, 59), (59, 59))) is None
    assert standstill.observe(seen(2, (60, 59), (59, 59))) is None
    assert standstill.observe(seen(1 + STILL_S, (60, 59), (59, 59))) is None  # it may only pause
    assert standstill.observe(seen(1 + REST_S, (60, 59), (59, 59))) == 1


def test_a_job_of_which_all_processes_are_stopped_is_suspended_and_no_rank_is_named():
    """As Slurm suspends it, or a scheduler that lets jobs run in turn."""
    for pulses, trouble, culprits in (("ss", JobTrouble.UNKNOWN, 0), ("as", JobTrouble.HUNG, 1)):
        evidence = seen(0, (50, 49), (50, 49), pulses=pulses)
        evidence = replace(evidence, stall=Stall(since=0.0, sentence="nothing moves"), alive=True)
        analysis = analyse(reason(evidence, hang.RULES), evidence)
        assert (analysis.trouble, len(analysis.culprits)) == (trouble, culprits)


def test_a_job_without_waiting_ranks_does_not_hang():
    standstill = Standstill()
    for at in range(100):
        assert standstill.observe(seen(at, (50, 50), (50, 50))) is None


def test_a_job_that_starts_may_pause_for_long_and_then_hangs():
    """Most jobs fail while they start: standing still is a matter of time, not of a count."""
    standstill = Standstill()
    for at in range(int(LONGEST_STILL_S)):
        assert standstill.observe(seen(at, (WARM_UP - 1, WARM_UP - 2), (8, 8))) is None
    assert standstill.observe(seen(LONGEST_STILL_S, (9, 8), (8, 8))) == 0


def storing(at: float, moved_bytes: int) -> JobEvidence:
    """Rank 0 reads or writes, and rank 1 rests and waits for it."""
    looked = seen(at, (50, 50), (51, 50), pulses="aa")
    first, second = looked.processes
    rests = replace(first, rests_s=0.0, moved_bytes=moved_bytes), replace(second, rests_s=at)
    return replace(looked, processes=rests)


@pytest.mark.parametrize("rate", [STORES_RATE // 10, 2 * STORES_RATE])
def test_a_rank_that_stores_a_checkpoint_for_minutes_only_delays_a_sound_job(rate: int):
    standstill, hangs = Standstill(), []
    for at in range(200):
        hangs.append(standstill.observe(storing(at, at * rate)) is not None)
    is_storing = rate > STORES_RATE
    assert any(hangs) is not is_storing
    assert standstill.storing == ((0,) if is_storing else ())
    for at in range(200, 200 + int(LONGEST_STILL_S)):  # it ended, and its job does not go on
        hangs.append(standstill.observe(storing(at, 200 * rate)) is not None)
    assert hangs[-1]


def test_a_recorder_dates_a_standstill_that_began_long_before_the_question():
    call = Call(
        rank=0,
        communicator="all",
        sequence=9,
        operation="all_reduce",
        state=CallState.LAUNCHED,
        launched=1000.0,
    )
    standstill = Standstill()
    assert standstill.observe(replace(seen(1300, (9, 8), (8, 8)), calls=(call,))) is None
    assert standstill.observe(replace(seen(1302, (9, 8), (8, 8)), calls=(call,))) is None
    later = replace(seen(1300 + STILL_S, (9, 8), (8, 8)), calls=(call,))
    assert standstill.observe(later) == 1000


def test_a_count_that_rose_until_the_last_look_is_progress_and_an_earlier_rise_is_none():
    standstill = Standstill()
    for at in range(10):
        standstill.observe(seen(at, (50 + at, 50 + at), (50 + min(at, 2), 50 + min(at, 2))))
    rise, stands = progress_of(standstill.counts, 9.0, standstill.fresh_s)
    assert (rise.ranks, rise.before, rise.after) == (frozenset({0}), 50, 59)
    assert (rise.since, rise.until, rise.vouches_s) == (0.0, 9.0, VOUCHES_S)
    assert (stands.ranks, stands.before, stands.after) == (frozenset({1}), 50, 50)
    assert standstill.is_settled
    for at in range(10, 20):
        standstill.observe(seen(at, (59, 59), (52, 52)))
    rises = progress_of(standstill.counts, 19.0, standstill.fresh_s)
    assert not any(rise.after > rise.before for rise in rises)
    assert not standstill.is_settled


def test_a_job_with_long_steps_may_pause_for_long():
    standstill = Standstill()
    for step in range(4):
        for at in range(5):
            assert standstill.observe(seen(5.0 * step + at, (50 + step, 49), (49, 49))) is None
    assert standstill.observe(seen(15 + 2 * STILL_S, (53, 49), (49, 49))) is None
    assert standstill.observe(seen(15 + 60, (53, 49), (49, 49))) == 15


def test_a_process_that_is_gone_is_reported_at_the_second_look():
    standstill = Standstill()
    assert standstill.observe(seen(0, (50, 50), (50, 50), pulses="aa")) is None
    assert standstill.observe(seen(1, (51, 50), (50, 50), pulses="ag")) is None
    assert standstill.observe(seen(2, (51, 50), (50, 50), pulses="ag")) == 1


def launches(own_s: tuple[float, ...], collectives: int = 40) -> tuple[Call, ...]:
    """Ranks that work for so long before each of the collectives, which all end together."""
    calls, begin = [], 1000.0
    for sequence in range(collectives):
        for rank, seconds in enumerate(own_s):
            calls.append(
                Call(
                    rank=rank,
                    communicator="all",
                    sequence=sequence,
                    operation="all_reduce",
                    state=CallState.FINISHED,
                    launched=begin + seconds,
                )
            )
        begin += max(own_s)
    return tuple(calls)


@pytest.mark.parametrize(
    ("own_s", "ranks"),
    [((1.0, 1.0, 2.0, 1.0), [2]), ((1.0, 1.0, 1.05, 1.0), []), ((1.0, 1.0, 1.0, 1.0), [])],
)
def test_a_rank_that_launches_late_repeatedly_computes_slowly(
    own_s: tuple[float, ...], ranks: list[int]
):
    steps = tuple(steps_of(launches(own_s)))
    assert {round(step.own_s / 6, 3) for step in steps if step.rank == 1} == {1.0}
    evidence = replace(seen(0), steps=steps, collectors=frozenset({Collector.STEPS}))
    facts = reason(evidence, slow.RULES).facts
    assert [fact.whom.rank for fact in facts] == ranks


@pytest.mark.parametrize(
    ("own_s", "waited", "ran", "is_named"),
    [
        pytest.param(1.7, None, None, False, id="as seen of FSDP at a load of 12"),
        pytest.param(2.9, (0.11, 0.36), None, True, id="FSDP at 10: 1.2 s of it in a queue"),
        pytest.param(2.9, (0.4, 0.75), None, False, id="all that it works more it may have waited"),
        pytest.param(2.9, (0.4, 0.75), (0.02, 0.08), True, id="and it takes four times the time"),
        pytest.param(2.9, (0.4, 0.75), (0.02, 0.03), False, id="its processor time hardly differs"),
    ],
)
def test_a_late_rank_among_starving_ones_is_named_only_if_its_work_takes_longer(
    own_s: float,
    waited: tuple[float, float] | None,
    ran: tuple[float, float] | None,
    is_named: bool,
):
    """All want processors. A job whose ranks wait for one of them is not called well."""
    states = tuple(
        ProcessState(
            rank=rank,
            pulse=Pulse.ANSWERS,
            waits=0.5,
            work_waits=waited[rank == 2] if waited else None,
            work_ran=ran[rank == 2] if ran else None,
        )
        for rank in range(4)
    )
    evidence = replace(
        seen(0),
        steps=tuple(steps_of(launches((1.0, 1.0, own_s, 1.0)))),
        processes=states,
        collectors=frozenset({Collector.STEPS, Collector.PROCESSES}),
    )
    reasoning = reason(evidence, slow.RULES)
    (fact,) = reasoning.facts
    kind = FactKind.SLOW_COMPUTE if is_named else FactKind.MAY_BE_SLOW
    assert (fact.kind, fact.whom.rank) == (kind, 2)
    moves = Rise(what="steps", before=1, after=9, since=-9.0, until=0.0, vouches_s=60.0)
    analysis = analyse(reasoning, replace(evidence, progress=(moves,)))
    trouble = JobTrouble.SLOW if is_named else JobTrouble.UNKNOWN
    assert (analysis.trouble, bool(analysis.culprits)) == (trouble, is_named)


@pytest.mark.parametrize("late", range(4))
def test_a_late_rank_of_a_mesh_is_found_by_all_of_its_groups(late: int):
    """Sums in rows, then in columns: each rank meets only two others."""
    own_s = [0.1] * 4
    own_s[late] = 0.4
    calls, free = [], [1000.0] * 4
    for sequence in range(60):
        for group in ((0, 1), (2, 3)), ((0, 2), (1, 3)):
            is_first = group == ((0, 1), (2, 3))
            launched = [free[rank] + own_s[rank] * is_first for rank in range(4)]
            calls += [
                Call(
                    rank=rank,
                    communicator=f"{ranks}",
                    sequence=sequence,
                    operation="all_reduce",
                    state=CallState.FINISHED,
                    launched=launched[rank],
                )
                for ranks in group
                for rank in ranks
            ]
            for ranks in group:
                for rank in ranks:
                    free[rank] = max(launched[peer] for peer in ranks)
    evidence = replace(
        seen(0), steps=tuple(steps_of(calls)), collectors=frozenset({Collector.STEPS})
    )
    (fact,) = reason(evidence, slow.RULES).facts
    assert (fact.kind, fact.whom.rank) == (FactKind.SLOW_COMPUTE, late)
    messages = [replace(call, point_to_point=True, sequence=999) for call in calls[:4]]
    assert all(step.own_s is None for step in steps_of([*calls, *messages]))


@pytest.mark.parametrize(
    ("at_work", "late"),
    [((8, 4, 3, 20), [3]), ((4, 15, 6, 5), [1]), ((8, 12, 12, 14), []), ((20, 3, 18, 2), [])],
)
def test_a_stage_that_works_while_the_others_wait_may_be_slow(
    at_work: tuple[int, ...], late: list[int]
):
    """As seen of pipelines at a load of 18 to 24: two with a slow stage, one without."""
    states = tuple(
        ProcessState(rank=rank, pulse=Pulse.ANSWERS, times_seen=20, times_at_work=count)
        for rank, count in enumerate(at_work)
    )
    collectors = frozenset({Collector.PROCESSES})
    evidence = replace(seen(0), processes=states, collectors=collectors)
    facts = reason(evidence, slow.RULES).facts
    assert [(fact.kind, fact.whom.rank) for fact in facts] == [
        (FactKind.MAY_BE_SLOW, rank) for rank in late
    ]
    steps = tuple(steps_of(launches((1.0, 1.0, 1.0, 1.0))))  # they show more
    collectors |= {Collector.STEPS}
    assert not reason(replace(evidence, steps=steps, collectors=collectors), slow.RULES).facts


def past(*spans: tuple[float, float, float]) -> tuple[PastPart, ...]:
    """Notes of a rank, two seconds each: of each span its length, its messages a second, and the
    share of looks at work."""
    parts: list[PastPart] = []
    for length_s, rate, share in spans:
        for _ in range(int(length_s / 2)):
            until = 2.0 * (len(parts) + 1)
            at_work = round(10 * share)
            parts.append(
                PastPart(
                    until=until, length_s=2.0, messages=int(2 * rate), looks=10, at_work=at_work
                )
            )
    return tuple(parts)


AS_NOW = (20, 30, 0.9)  # since it is slow


@pytest.mark.parametrize(
    ("own", "peers", "waits", "kind"),
    [
        pytest.param(((60, 120, 0.3), AS_NOW), 0.3, 0.1, FactKind.SLOW_COMPUTE, id="it became so"),
        pytest.param(((60, 120, 0.9), AS_NOW), 0.9, 0.1, FactKind.SLOW_COMPUTE, id="all worked"),
        pytest.param(((60, 120, 0.9), AS_NOW), 0.2, 0.1, FactKind.MAY_BE_SLOW, id="more to do"),
        pytest.param(((60, 30, 0.3), AS_NOW), 0.3, 0.1, FactKind.MAY_BE_SLOW, id="not slower"),
        pytest.param(((30, 2, 0.9), AS_NOW), 0.9, 0.1, FactKind.MAY_BE_SLOW, id="it began so"),
        pytest.param(((60, 120, 0.3), AS_NOW), 0.3, 0.7, FactKind.MAY_BE_SLOW, id="it is starved"),
        pytest.param(((8, 120, 0.3), AS_NOW), 0.3, 0.1, FactKind.MAY_BE_SLOW, id="too short"),
        pytest.param((), 0.3, 0.1, FactKind.MAY_BE_SLOW, id="no notes"),
    ],
)
def test_a_stage_is_slow_if_its_own_past_shows_that_it_became_so(
    own: tuple[tuple[float, float, float], ...], peers: float, waits: float, kind: FactKind
):
    of_peer = past(*((length_s, rate, peers) for length_s, rate, _ in own[:1]), (20, 30, 0.2))
    states = tuple(
        ProcessState(
            rank=rank,
            pulse=Pulse.ANSWERS,
            times_seen=20,
            times_at_work=19 if rank == 2 else 4,
            work_waits=waits if rank == 2 else 0.1,
            past=past(*own) if rank == 2 else of_peer,
        )
        for rank in range(4)
    )
    evidence = replace(seen(0), processes=states, collectors=frozenset({Collector.PROCESSES}))
    (fact,) = reason(evidence, slow.RULES).facts
    assert (fact.kind, fact.whom.rank) == (kind, 2)
    assert ("every 8.33 ms" in fact.evidence) is (kind is FactKind.SLOW_COMPUTE)


def test_a_rank_notes_its_messages_and_places_in_few_parts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sitecustomize, "EVERY_S", 0.001)
    rank, ended = sitecustomize._Rank(str(tmp_path)), threading.Event()
    send = sitecustomize._count_calls(ended.wait, rank)
    rank._rank = 3
    speaker = threading.Thread(target=lambda: [send(0.0) for _ in range(7)] and send())
    speaker.start()
    live = LiveRank(rank=3, pid=1, socket=str(tmp_path / f"3.{os.getpid()}.sock"))
    assert eventually(lambda: sum(part.looks for part in read_past(live)) > 300)
    ended.set()
    speaker.join()
    parts = read_past(live)
    assert len(parts) < 60
    assert sum(part.messages for part in parts) <= 8
    begins = [part.until - part.length_s for part in parts]
    assert begins[1:] == pytest.approx([part.until for part in parts[:-1]], abs=1e-5)
    assert all(part.at_work == part.looks for part in parts)  # it waits for no rank
    (Path(live.socket).with_suffix(".past")).write_text(
        '{"places": ["step (a.py:0);recv (torch/distributed/c10d.py:0)"],'
        ' "parts": [[9.0, 2.0, 5, {"0": 3, "-1": 1}]]}'
    )
    (part,) = read_past(live)
    assert (part.messages, part.looks, part.at_work) == (5, 4, 1)
    for words in ("[]", '{"places": [], "parts": [[9.0, 2.0, 5, {"7": 3}]]}', "\xff"):
        (Path(live.socket).with_suffix(".past")).write_text(words)
        assert read_past(live) == ()


def test_a_job_that_became_slower_as_a_whole_is_slow_by_its_own_pace():
    """Its collectives came every second; then every three, and none of its ranks differs."""
    before, after = launches((1.0, 1.0), 200), launches((3.0, 3.0), 60)
    later = [
        replace(call, sequence=call.sequence + 200, launched=call.launched + 200.0)
        for call in after
    ]
    pace = pace_of((*before, *later))
    assert pace is not None
    assert (pace.earlier_s, pace.lately_s) == pytest.approx((1.0, 3.0))
    evidence = replace(seen(0), pace=pace, collectors=frozenset({Collector.STEPS}))
    (fact,) = reason(evidence, slow.RULES).facts
    assert (fact.kind, fact.whom, "3.0 times slower" in fact.evidence) == ("slowed", Whom(), True)
    waiting = tuple(
        ProcessState(rank=rank, pulse=Pulse.ANSWERS, waits=0.6) for rank in range(2)
    )  # other work takes its processors
    assert not reason(replace(evidence, processes=waiting), slow.RULES).facts
    for waited_before, first_look, is_doubted in (
        (0.7, pace.since - 1.0, True),  # the load fell meanwhile, and the job is as slow
        (0.3, pace.since - 1.0, False),
        (0.7, pace.since - 9.0, False),  # all of what is recorded was without the load
    ):
        states = (replace(state, waits=0.1, waited_before=waited_before) for state in waiting)
        rise = Rise(what="steps", before=1, after=9, since=first_look, until=0.0, vouches_s=60.0)
        even = replace(pace, lately_s=pace.earlier_s)
        doubted = replace(evidence, pace=even, processes=tuple(states), progress=(rise,))
        kinds = [fact.kind for fact in reason(doubted, slow.RULES).facts]
        assert kinds == [FactKind.MAY_BE_SLOW] * is_doubted
    steady = pace_of(launches((1.0, 1.0), 300))
    assert steady is not None
    assert steady.lately_s == pytest.approx(steady.earlier_s)
    assert pace_of(launches((1.0, 1.0), 40)) is None


def test_few_collectives_give_no_steps():
    assert not list(steps_of(launches((1.0, 2.0), collectives=8)))
    assert not list(steps_of(()))


def test_a_stack_is_that_of_the_main_thread_with_the_innermost_call_last():
    text = b"""Thread 0x1 (most recent call first):
  File "/lib/threading.py", line 3 in wait

Current thread 0x2 (most recent call first):
  File "/job/train.py", line 8 in pause
  File "/job/train.py", line 11 in <module>
"""
    calls = f'  File "{HOOK}/sitecustomize.py", line 7 in counted\n'.encode()
    own = f'Thread 0x3:\n  File "{HOOK}/sitecustomize.py", line 9 in _record\n\n'.encode()
    hooked = own + text.replace(b"  File", calls + b"  File", 2)
    assert parse_stacks(hooked, 3) == parse_stacks(text, 3)
    main, other = parse_stacks(text, 3)
    assert (main.rank, main.thread) == (3, "")
    assert main.frames == ("<module> (/job/train.py:11)", "pause (/job/train.py:8)")
    assert (other.thread, other.frames) == ("wait", ("wait (/lib/threading.py:3)",))
    assert parse_stacks(b"\xff nothing", 3) == ()


def test_a_folder_without_a_job_is_refused_in_a_sentence(tmp_path: Path):
    with pytest.raises(EvidenceError, match="has no rank that announced itself"):
        ranks_in(tmp_path)
    (tmp_path / "0.json").write_text("[]")
    with pytest.raises(EvidenceError, match="no announcement"):
        find_ranks(tmp_path)
    for odd in (
        '{"rank": 1e400, "pid": 9, "socket": "s"}',
        '{"rank": -1, "pid": 0, "socket": "s"}',
    ):
        (tmp_path / "0.json").write_text(odd)
        with pytest.raises(EvidenceError, match="announce"):
            find_ranks(tmp_path)


def test_two_jobs_in_one_folder_are_not_taken_for_one(tmp_path: Path, process):
    def announce(rank: int, pid: int, **more: object) -> None:
        words = {"rank": rank, "pid": pid, "socket": "", "world": 2, "job": "29500", **more}
        (tmp_path / f"{rank}.json").write_text(json.dumps(words))

    for other in ({"job": "29501"}, {"world": 4}):
        announce(0, os.getpid())
        announce(1, process.pid, **other)
        with pytest.raises(EvidenceError, match="ranks of several jobs"):
            ranks_in(tmp_path)
        announce(1, 2**22 - 1, **other)  # of an earlier run: its process has ended
        assert [rank.rank for rank in ranks_in(tmp_path)] == [0]
    announce(1, 2**22 - 1)
    assert [pulse_of(rank.pid) for rank in ranks_in(tmp_path)] == [Pulse.ANSWERS, Pulse.GONE]
    announce(1, 2**22 - 1, began=1)  # long before the launcher of rank 0, of an earlier run
    assert [rank.rank for rank in ranks_in(tmp_path)] == [0]
    announce(1, process.pid, began=1)  # its id was used again
    assert [rank.rank for rank in ranks_in(tmp_path)] == [0]
    announce(1, process.pid, job="", world=0)  # its launcher does not tell
    assert len(ranks_in(tmp_path)) == 2
    announce(1, process.pid, world=4, host="n9")  # there it may have ended
    assert len(ranks_in(tmp_path)) == 2


def test_only_the_owner_of_a_folder_announces_ranks_there(tmp_path: Path):
    told = tmp_path / "0.json"
    told.write_text(json.dumps({"rank": 0, "pid": os.getpid(), "socket": "/run/other.sock"}))
    (rank,) = find_ranks(tmp_path)
    assert rank.socket == str(tmp_path / "other.sock")  # nothing elsewhere is asked
    tmp_path.chmod(0o777)
    with pytest.raises(EvidenceError, match=f'others may write to "{tmp_path}"'):
        find_ranks(tmp_path)
    tmp_path.chmod(0o700)
    told.rename(tmp_path / "aside")
    told.symlink_to("aside")
    with pytest.raises(EvidenceError, match="no file of the owner"):
        find_ranks(tmp_path)
    told.unlink()
    os.mkfifo(told)  # to read it would take for ever
    with pytest.raises(EvidenceError, match="no file of the owner"):
        find_ranks(tmp_path)
    told.unlink()
    if os.geteuid() == 0:
        (tmp_path / "aside").rename(told)
        for place in (tmp_path, told):
            os.chown(place, 65534, 65534)
        with pytest.raises(EvidenceError, match=r"of user 65534 announces process .* of user 0"):
            find_ranks(tmp_path)


def test_the_hook_follows_no_planted_link(tmp_path: Path):
    """It says in a folder of others why it announces nothing there."""
    victim, planted = tmp_path / "victim", tmp_path / "planted"
    victim.write_text("mine")
    planted.mkdir()
    planted.chmod(0o777)
    (planted / "0.refused").symlink_to(victim)
    code = "import torch.distributed"
    environment = {**add_hook(dict(os.environ), planted), "RANK": "0"}
    environment["PYTHONPATH"] += f":{tmp_path / 'fake'}"
    package = tmp_path / "fake" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text("import torch.distributed.distributed_c10d")
    (package / "distributed_c10d.py").touch()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert victim.read_text() == "mine"
    assert refusals(planted) == f"rank 0 could not be asked: others may enter {planted}"


FAKE_TORCH = {
    "torch/__init__.py": "import torch._C._distributed_c10d",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": "def _WorkerServer(path, port): return path",
    "torch/distributed/__init__.py": "from torch.distributed.distributed_c10d import *",
    "torch/distributed/distributed_c10d.py": """
def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1):
    pass
def get_rank(): return 3
def get_world_size(): return 4
""",
}


@pytest.mark.parametrize(
    ("launcher", "code", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "", (3, 4, 2)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, "", None),  # it may be a launcher
        (
            {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"},
            "init_process_group()",
            (3, 4, 2),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
            "init_process_group('gloo')",
            (3, 4, 0),
        ),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, "init_process_group()", (3, 4, 0)),
        ({}, "init_process_group('gloo', None, None, 4, 3)", (3, 4, 0)),
        ({}, "init_process_group()", (3, 4, 0)),  # the store alone says which
        ({"SLURM_PROCID": "0"}, "init_process_group(rank=3, world_size=4)", (3, 4, 0)),
    ],
)
def test_a_rank_is_recognised_under_any_launcher(
    launcher: dict[str, str], code: str, expected: tuple[int, int, int] | None, tmp_path: Path
):
    for name, text in FAKE_TORCH.items():
        file = tmp_path / "fake" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    live = tmp_path / "live"
    live.mkdir(mode=0o700)
    environment = add_hook(launcher, live)
    environment["PYTHONPATH"] += f":{tmp_path / 'fake'}"
    program = f"import time, torch.distributed\ntorch.distributed.{code or '__name__'}"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    files = list(live.glob("*.json"))
    announced = json.loads(files[0].read_text()) if expected else {}
    keys = ("rank", "world", "here")
    assert tuple(announced.get(key) for key in keys) == (expected or (None, None, None))
    assert [file.name.partition(".")[0] for file in files] == (["3"] if expected else [])
    has_joined = 0 < announced.get("joined", 0) < time.monotonic() and announced["waited_ns"] >= 0
    assert has_joined == ("init_process_group" in code)


def test_a_child_of_a_rank_does_not_take_its_place(tmp_path: Path, process):
    """A worker of a data loader has the environment of its rank, and may import torch again."""
    for name, text in FAKE_TORCH.items():
        file = tmp_path / "fake" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    live = tmp_path / "live"
    live.mkdir(mode=0o700)
    words = {"rank": 0, "pid": process.pid, "socket": "", "began": began_at(process.pid)}
    (live / f"0.{process.pid}.json").write_text(json.dumps(words))
    environment = add_hook({"RANK": "0"}, live)
    environment["PYTHONPATH"] += f":{tmp_path / 'fake'}"
    command = [sys.executable, "-c", "import torch.distributed"]
    subprocess.run(command, env=environment, check=True)
    assert [rank.pid for rank in find_ranks(live)] == [process.pid]
    process.kill()
    process.wait()
    subprocess.run(command, env=environment, check=True)  # its launcher started it again
    (again,) = live.glob("*.json")
    assert json.loads(again.read_text())["pid"] != process.pid


TWO_RANKS = """
import os, subprocess, sys
own = {"WORLD_SIZE": "2", "MASTER_PORT": sys.argv[1]}
rank = [sys.executable, "-c", "import torch.distributed, time; time.sleep(600)"]
ranks = [subprocess.Popen(rank, env=os.environ | own | {"RANK": str(r)}) for r in range(2)]
print(*(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.kill()
"""


def test_a_dead_rank_of_another_job_is_not_one_of_this_job(tmp_path: Path):
    """Two jobs of the same user, program and folder. A rank of one is killed; the other is well."""
    for name, text in FAKE_TORCH.items():
        file = tmp_path / "fake" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    live = tmp_path / "live"
    environment = add_hook(dict(os.environ), live)
    environment["PYTHONPATH"] += f":{tmp_path / 'fake'}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as until_asked:
        jobs = [
            until_asked.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", TWO_RANKS, port], text=True, env=environment, **pipes
                )
            )
            for port in ("29500", "29501")
        ]
        pids = [list(map(int, job.stdout.readline().split())) for job in jobs]
        assert eventually(lambda: len(list(live.glob("*.json"))) == 4)
        with pytest.raises(EvidenceError, match="ranks of several jobs"):
            ranks_in(live)
        for find in (live_trace._rank_finder, lambda place: ranks_of_process(int(place.name))):
            with pytest.raises(EvidenceError, match=r"process \d+ has ranks of several jobs"):
                find(Path("/proc", str(os.getpid())))
        finders = [live_trace._rank_finder(Path("/proc", str(job.pid))) for job in jobs]
        os.kill(pids[0][1], signal.SIGKILL)
        assert eventually(lambda: pulse_of(pids[0][1]) is Pulse.GONE)
        assert [[rank.pid for rank in found()] for found in finders] == pids
        of_a_rank = live_trace._rank_finder(Path("/proc", str(pids[1][0])))
        assert [rank.pid for rank in of_a_rank()] == pids[1]
        for job in jobs:
            job.stdin.close()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_stopped_or_gone_is_seen_from_outside(
    process: subprocess.Popen[bytes], tmp_path: Path
):
    words = {"rank": 3, "pid": process.pid, "socket": str(tmp_path / "no.sock")}
    (tmp_path / "3.json").write_text(json.dumps(words))
    assert pulse_of(process.pid) is Pulse.ANSWERS
    silent = evidence_of_looks([ask_ranks(find_ranks(tmp_path))])
    assert "rank 3 did not answer" in next(iter(silent.gaps.values()))
    process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: pulse_of(process.pid) is Pulse.STOPPED)
    assert [
        fact.kind
        for fact in reason(evidence_of_looks([ask_ranks(find_ranks(tmp_path))]), hang.RULES).facts
    ] == ["stopped"]
    process.kill()
    assert eventually(lambda: pulse_of(process.pid) is Pulse.GONE)
    assert [
        fact.kind
        for fact in reason(evidence_of_looks([ask_ranks(find_ranks(tmp_path))]), hang.RULES).facts
    ] == ["gone"]


def test_a_rank_in_a_pod_is_known_by_the_id_of_its_process_on_this_machine(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A pod counts its processes by itself: its first one is another one outside."""
    proc = tmp_path / "proc"
    for pid, status in (("self", ""), (str(process.pid), f"NSpid:\t{process.pid}\t1\nSeccomp: 2")):
        (proc / pid / "ns").mkdir(parents=True)
        (proc / pid / "ns/pid").touch()
        (proc / pid / "status").write_text(f"Name:\tpython\n{status}\n")
    monkeypatch.setattr("anubis.readers.jobs.live.PROC", proc)
    here = (proc / str(process.pid) / "ns/pid").stat().st_ino
    for rank, (pid, namespace) in enumerate([(1, here), (7, here), (1, here + 10**6)]):
        words = {
            "rank": rank,
            "pid": pid,
            "pid_namespace": namespace,
            "socket": "",
            "host": "pod-0",
        }
        (tmp_path / f"{rank}.json").write_text(json.dumps(words))
    own = socket.gethostname()
    assert [(rank.pid, rank.host) for rank in find_ranks(tmp_path)] == [
        (process.pid, own),
        (ENDED, own),  # others of its pod are here
        (ENDED, "pod-0"),  # of a pod that is not here
    ]
    (proc / "self/ns/pid").unlink()  # as a /proc that hides namespaces
    with pytest.raises(EvidenceError, match=r"rank 0 .*self/ns/pid: No such file"):
        find_ranks(tmp_path)


def test_when_a_process_ended_is_known_only_of_one_that_was_met_while_it_ran(
    process: subprocess.Popen[bytes], tmp_path: Path
):
    words = {"rank": 3, "pid": process.pid, "socket": str(tmp_path / "no.sock")}
    (tmp_path / "3.json").write_text(json.dumps(words))
    looks = watch_ranks(lambda: find_ranks(tmp_path), every_s=0.05)
    assert next(looks).ended == {}
    killed_at = time.time()
    process.kill()
    ends = next(look.ended for look in looks if look.ended)
    assert killed_at <= ends[3] <= time.time()
    (late,) = evidence_of_looks([next(watch_ranks(lambda: find_ranks(tmp_path)))]).processes
    assert (late.pulse, late.at) == (Pulse.GONE, None)


def test_among_ended_processes_the_one_that_blamed_no_other_went_first():
    """Looks at several machines begin after the end; the others report the ranks that they
    missed."""
    closed = [
        LogEvent(
            collector=Collector.TRAINING_LOG,
            code="gloo-closed",
            gravity=Gravity.DISTRIBUTED,
            text="Connection closed by peer",
            rank=rank,
        )
        for rank in (0, 1, 3)
    ]
    states = [ProcessState(rank=rank, pulse=Pulse.GONE) for rank in range(4)]
    evidence = JobEvidence(
        job="j",
        at=0.0,
        collectors=frozenset({Collector.PROCESSES, Collector.TRAINING_LOG}),
        log=tuple(closed),
        processes=tuple(states),
    )
    assert [fact.whom.rank for fact in reason(evidence, hang.RULES).facts] == [2]
    timed = tuple(replace(state, at=float(state.rank)) for state in states)
    accused = replace(evidence, log=(*closed, replace(closed[0], rank=2)), processes=timed)
    assert [fact.at for fact in reason(accused, hang.RULES).facts] == [0.0, 1.0, 2.0, 3.0]
    assert not reason(replace(accused, processes=tuple(states)), hang.RULES).facts


def test_a_diagnosis_asks_the_processes_of_a_job(process: subprocess.Popen[bytes], tmp_path: Path):
    words = {"rank": 3, "pid": process.pid, "socket": str(tmp_path / "no.sock")}
    (tmp_path / "3.json").write_text(json.dumps(words))
    process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: pulse_of(process.pid) is Pulse.STOPPED)
    request = DiagnosisRequest(
        job="4711", nodes=("n0", "n1"), ranks_per_node=2, places={"live": tmp_path}
    )
    diagnosis = anubis.diagnose_job(
        request, Caller(history_url=f"sqlite:///{tmp_path}/history.db")
    ).diagnosis
    assert [(whom.node, whom.rank) for whom in diagnosis.culprits] == [("n1", 3)]


LAUNCHER = """
import os, subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
ranks = [
    subprocess.Popen(sleep, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"})
    for rank in range(3)
]
print(*(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.kill()
"""


@pytest.fixture
def launched() -> Iterator[tuple[int, list[int]]]:
    """A launcher and its ranks, without the hook."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], text=True, **pipes) as launcher:
        assert launcher.stdout is not None
        yield launcher.pid, list(map(int, launcher.stdout.readline().split()))


def test_ranks_are_known_by_the_process_that_started_them(
    launched: tuple[int, list[int]], process: subprocess.Popen[bytes]
):
    launcher, pids = launched
    ranks = ranks_of_process(launcher)
    assert [(rank.rank, rank.pid, rank.world) for rank in ranks] == [
        (rank, pid, 3) for rank, pid in enumerate(pids)
    ]
    assert [rank.rank for rank in ranks_of_process(pids[1])] == [1]
    with pytest.raises(EvidenceError, match="has no rank of a job"):
        ranks_of_process(process.pid)
    with pytest.raises(EvidenceError, match="there is no process"):
        ranks_of_process(2**22 + 1)


def test_a_job_without_the_hook_is_looked_at_from_outside(
    launched: tuple[int, list[int]], tmp_path: Path
):
    launcher, pids = launched
    os.kill(pids[1], signal.SIGSTOP)
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db")
    places = {"live": Path("/proc", str(launcher))}
    diagnosis = anubis.diagnose_job(DiagnosisRequest(places=places), caller).diagnosis
    assert [whom.rank for whom in diagnosis.culprits] == [1]
    assert "started without the hook" in diagnosis.gaps[Collector.STACKS]


def test_a_job_without_any_answer_is_not_called_well(process, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(live_trace, "LIVE_S", 0.1)
    monkeypatch.setattr(live_trace, "UNTOLD_S", 0.1)
    (tmp_path / "0.json").write_text(json.dumps({"rank": 0, "pid": process.pid, "socket": "/no"}))
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db")
    view = anubis.diagnose_job(DiagnosisRequest(places={"live": tmp_path}), caller)
    assert view.diagnosis.answer == "unknown"
    assert "rank 0 did not answer" in view.diagnosis.gaps[Collector.STACKS]
    assert "cannot say" in headline(view)


def test_a_job_with_the_hook_is_found_by_its_announcement(tmp_path: Path):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleep, env=add_hook({}, tmp_path)) as process:
        assert eventually(lambda: live_folder(process.pid))
        assert live_folder(process.pid) == tmp_path
        process.kill()


def trace(collectives: int, ended: int) -> str:
    """A flight recorder's trace of a rank that launched and finished so many."""
    entries = [
        {
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "profiling_name": "gloo:all_reduce",
            "state": "completed" if number <= ended else "scheduled",
            "time_created_ns": 10**18 + number * 10**9,
        }
        for number in range(1, collectives + 1)
    ]
    return json.dumps({"version": "2.10", "entries": entries})


def machine(host: str, *ranks: int, late: int = 2, quiet_s: float = 8.0) -> LiveLook:
    """Two ranks on each of two machines. All but one wait in the 31st collective."""
    return LiveLook(
        at=100.0,
        answers=tuple(
            LiveAnswer(
                rank=LiveRank(rank=rank, pid=1, socket="", host=host, world=4, here=2),
                pulse=Pulse.ANSWERS,
                trace=trace(30 if rank == late else 31, 30),
            )
            for rank in ranks
        ),
        quiet_s=quiet_s,
    )


def asked_on_each(tmp_path: Path, *looks: LiveLook):
    for number, look in enumerate(looks):
        written = write_look(look, tmp_path)
        written.rename(tmp_path / f"n{number}.look")
        assert read_look(tmp_path / f"n{number}.look") == look
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db")
    return anubis.diagnose_job(DiagnosisRequest(places={"live": tmp_path}), caller).diagnosis


def test_looks_of_several_machines_name_the_rank_that_all_wait_for(tmp_path: Path):
    diagnosis = asked_on_each(tmp_path, machine("n0", 0, 1), machine("n1", 2, 3))
    assert [(whom.node, whom.rank) for whom in diagnosis.culprits] == [("n1", 2)]


def test_a_rank_that_was_asked_and_has_launched_nothing_did_not_come(tmp_path: Path):
    """As seen on a rank that slept before its first collective. A lost record would accuse no
    rank."""
    begun = machine("n0", 0, 1), machine("n1", 2, 3)
    asked = LiveRank(rank=2, pid=1, socket="n1.sock", host="n1", world=4, here=2)
    nothing = json.dumps({"version": "2.10", "entries": []})
    for trace in (nothing, ""):
        silent = LiveAnswer(rank=asked, pulse=Pulse.ANSWERS, trace=trace)
        looks = begun[0], replace(begun[1], answers=(silent, begun[1].answers[1]))
        assert [whom.rank for whom in asked_on_each(tmp_path, *looks).culprits] == [2]


def test_a_look_for_an_agent_has_the_ranks_of_its_machine_with_their_last_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All calls of rank 0, and of others the last two and what did not end."""
    here, elsewhere = machine(socket.gethostname(), 0, 1, 2), machine("n1", 3)
    first, second, third = here.answers
    traced = first, replace(second, trace=trace(31, 26)), third
    seen = replace(here, answers=(*traced, *elsewhere.answers))
    monkeypatch.setattr(live_trace, "_observe", lambda *_: seen)
    monkeypatch.setattr(live_trace, "MOST_CALLS", 8)
    monkeypatch.setattr(live_trace, "FEWEST_CALLS", 2)
    text = gzip.decompress(live_trace.look_here(tmp_path)).decode()
    calls = {
        answer.rank.rank: [
            entry["collective_seq_id"] for entry in json.loads(answer.trace)["entries"]
        ]
        for answer in parse_look(text, "the look").answers
    }
    assert calls == {0: list(range(1, 32)), 1: list(range(27, 32)), 2: [29, 30]}


def test_while_one_machine_still_moves_no_rank_is_late(tmp_path: Path):
    looks = machine("n0", 0, 1), machine("n1", 2, 3, quiet_s=2.0)
    assert not hang_together(looks, evidence_of_looks(looks))
    assert asked_on_each(tmp_path, *looks).culprits == ()


def test_looks_of_an_earlier_question_do_not_count(tmp_path: Path):
    old = replace(machine("n0", 0, 1, late=0), at=-60.0)
    fresh = replace(machine("n1", 2, 3, late=3), hangs=True)
    assert asked_on_each(tmp_path, old, fresh).culprits == (Whom(node="n1", rank=3),)


def test_looks_at_two_jobs_are_not_taken_for_one(tmp_path: Path):
    """They have the same ranks: before, the later look counted, and the other job may be dead."""

    def at_port(look: LiveLook, port: str) -> LiveLook:
        named = (replace(answer, rank=replace(answer.rank, job=port)) for answer in look.answers)
        return replace(look, answers=tuple(named))

    dead, well = machine("n0", 0, 1, late=0), replace(machine("n1", 0, 1, late=9), at=101.0)
    diagnosis = asked_on_each(tmp_path, at_port(dead, "29500"), at_port(well, "29501"))
    assert (diagnosis.trouble, diagnosis.culprits) == (JobTrouble.UNKNOWN, ())
    assert "ranks of several jobs" in diagnosis.gaps[Collector.PROCESSES]


def test_a_rank_on_a_machine_that_was_not_asked_is_unknown():
    """Before, it counted as one without a record, and was named."""
    evidence = evidence_of_looks([machine("n0", 0, 1, late=0)])
    assert [fact.whom.rank for fact in reason(evidence, hang.RULES).facts] == [0]
    evidence = evidence_of_looks([machine("n0", 0, 1)])
    assert reason(evidence, hang.RULES).facts == ()
    assert "2 of 4 ranks are on the machines that were asked" in evidence.gaps[Collector.PROGRESS]


def test_half_of_a_large_job_is_not_taken_for_the_whole():
    """It was for jobs of more than 4,096 ranks: the other half then counted as asked."""
    ranks = [
        LiveRank(rank=rank, pid=1, socket="", host=f"n{rank // 8}", world=8192, here=8)
        for rank in range(4096)
    ]
    answers = tuple(LiveAnswer(rank=rank, pulse=Pulse.ANSWERS, trace=trace(0, 0)) for rank in ranks)
    evidence = evidence_of_looks([LiveLook(at=100.0, answers=answers, quiet_s=8.0)])
    assert "4096 of 8192 ranks are on the machines" in evidence.gaps[Collector.PROGRESS]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"at": 1}', b'{"at": "x", "answers": []}', b"\x1f"])
def test_a_look_that_is_none_is_refused_in_a_sentence(text: bytes, tmp_path: Path):
    (tmp_path / "n0.look").write_bytes(text)
    with pytest.raises(EvidenceError, match=r"n0\.look"):
        read_look(tmp_path / "n0.look")


def test_the_hook_runs_the_sitecustomize_that_was_there_and_loads_nothing_else(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.was_run = True")
    code = (
        "import sys; print(getattr(sys, 'was_run', False),"
        " any(name.startswith(('torch', 'anubis')) for name in sys.modules))"
    )
    environment = add_hook({**os.environ, "PYTHONPATH": str(tmp_path), "RANK": "0"}, tmp_path)
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert output.stdout.split() == [b"True", b"False"]
    assert not list(tmp_path.glob("*.json"))


JOB = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", "file://" + sys.argv[1], rank=rank, world_size=2)
for step in range(10_000):
    if step == 30 and rank == 1:
        time.sleep(1000)
    dist.all_reduce(torch.ones(8))
"""


@pytest.mark.long
def test_the_absent_rank_of_a_real_hanging_job_is_named(tmp_path: Path):
    (tmp_path / "train.py").write_text(JOB)
    live = tmp_path / "live"
    live.mkdir(mode=0o700)
    command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "meeting")]
    environment = add_hook({**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, live)
    with (tmp_path / "log").open("wb") as log:
        job = [
            subprocess.Popen(command, env={**environment, "RANK": rank}, stdout=log, stderr=log)
            for rank in "01"
        ]
    try:
        until = time.monotonic() + LIMIT_S
        look = next(
            look
            for look in watch_ranks(lambda: find_ranks(live))
            if look.hangs or time.monotonic() > until
        )
        evidence = evidence_of_looks([look])
        analysis = analyse(reason(evidence, hang.RULES), evidence)
        assert [whom.rank for whom in analysis.culprits] == [1], (tmp_path / "log").read_text()
        assert analysis.decisive[0].kind is FactKind.ABSENT
        assert "train.py" in analysis.decisive[0].evidence
    finally:
        for rank in job:
            rank.kill()
            rank.wait()
