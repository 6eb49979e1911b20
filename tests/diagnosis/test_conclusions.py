"""For any evidence the parts of an answer agree: trouble, culprit, cause, cure and exit code. And
"nothing wrong" is the answer only for a job that is seen to move."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.cli.diagnose import exit_code
from anubis.core.diagnose.analyst import HARMLESS, JobTrouble
from anubis.core.diagnose.cures import CureLevel, CurePolicy, PastDiagnosis
from anubis.core.diagnose.diagnostician import Diagnosis, DiagnosisAnswer, diagnose
from anubis.core.diagnose.evidence import (
    MAY_WAIT,
    Advance,
    Call,
    CallState,
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
    Rise,
    Stall,
    StepTime,
)
from anubis.core.diagnose.facts import FactKind
from anubis.lab.simulation.hangs import HangingJob, JobLayout, dump_bytes
from anubis.operations.caller import Caller
from anubis.operations.diagnose import DiagnosisRequest, diagnose_job, rules
from anubis.report import diagnose as report

NOW = 1_790_000_000.0
RULES = rules()
NODES = [f"n{number}" for number in range(4)]

ranks = st.integers(0, 7)
nodes = st.sampled_from(NODES)
times = st.none() | st.floats(-900.0, 30.0).map(lambda ago: NOW + ago)
counts = st.integers(0, 30)
lasting = st.floats(0.1, 9.0)


def several(strategy, most=4):
    return st.lists(strategy, max_size=most).map(tuple)


advances = st.builds(
    lambda rank, communicator, done, more, everybody: Advance(
        rank=rank,
        communicator=communicator,
        members=tuple(range(8)) if everybody else (),
        enqueued=done + more,
        completed=done,
    ),
    ranks,
    st.sampled_from(["all", "dp"]),
    counts,
    st.integers(0, 2),
    st.booleans(),
)
calls = st.builds(
    Call,
    rank=ranks,
    communicator=st.just("all"),
    sequence=counts,
    operation=st.sampled_from(["all_reduce", "broadcast"]),
    state=st.sampled_from(CallState),
    launched=times,
    sizes=st.sampled_from([(), ((4,),), ((8,),)]),
)
events = st.builds(
    LogEvent,
    collector=st.sampled_from([Collector.KERNEL_LOG, Collector.TRAINING_LOG]),
    code=st.sampled_from(["xid-79", "xid-94", "python-error", "gloo-closed"]),
    gravity=st.sampled_from(Gravity),
    text=st.just("a line"),
    node=nodes,
    rank=st.none() | ranks,
    at=times,
    peer=st.sampled_from(["", "n1", "n2"]),
    detail=st.sampled_from(["", "KeyError"]),
)
progress = st.builds(
    Rise,
    what=st.sampled_from(["collectives", "steps"]),
    before=counts,
    after=counts,
    since=st.just(NOW - 20.0),
    until=st.sampled_from([NOW - 600.0, NOW - 20.0, NOW - 1.0, NOW + 600.0]),
    vouches_s=st.just(60.0),
    ranks=st.frozensets(ranks) | st.just(frozenset(range(8))),
)
evidence = st.builds(
    JobEvidence,
    job=st.just("7"),
    at=st.just(NOW),
    collectors=st.frozensets(st.sampled_from(Collector)) | st.just(frozenset(Collector)),
    ranks=st.sampled_from([RankMap(), RankMap(nodes={rank: f"n{rank // 2}" for rank in range(8)})]),
    log=several(events),
    exits=several(
        st.builds(
            Exit,
            rank=ranks,
            code=st.sampled_from([None, 0, 1]),
            signal=st.sampled_from([None, 9, 15]),
            at=times,
            is_first=st.booleans(),
        ),
        2,
    ),
    unreachable=st.dictionaries(nodes, st.just(NOW - 60.0), max_size=1),
    advances=several(advances, 8),
    mute=st.frozensets(ranks, max_size=2),
    calls=several(calls, 8),
    processes=several(
        st.builds(ProcessState, rank=ranks, pulse=st.sampled_from(Pulse), at=times), 8
    ),
    steps=several(
        st.builds(
            StepTime,
            rank=ranks,
            step=st.integers(0, 4),
            duration_s=lasting,
            own_s=st.none() | lasting,
            collective_s=lasting,
            group_s=lasting,
        ),
        12,
    ),
    timers=several(st.builds(KernelTimer, rank=ranks, is_hung=st.booleans())),
    connections=several(
        st.builds(
            Connection,
            rank=ranks,
            peer=st.just("n1"),
            peer_rank=st.none() | ranks,
            samples=st.just(40),
            sending=st.integers(0, 40),
            resent=st.sampled_from([0, 9]),
        ),
        2,
    ),
    settings=several(
        st.builds(
            OddSetting,
            node=nodes,
            setting=st.just("mtu"),
            device=st.just("eth0"),
            sentence=st.just("9000"),
            at=st.just(NOW - 60.0),
        ),
        2,
    ),
    alive=st.sampled_from([None, True, False]),
    stall=st.none() | st.just(Stall(since=NOW - 600.0, sentence="an operator says so")),
    progress=several(progress, 2),
    is_past=st.booleans(),
)
quiet = st.builds(
    JobEvidence,
    job=st.just("7"),
    at=st.just(NOW),
    collectors=st.just(frozenset(Collector)),
    ranks=st.just(RankMap(nodes={rank: f"n{rank // 2}" for rank in range(8)})),
    alive=st.sampled_from([None, True, False]),
    progress=several(progress, 3),
    is_past=st.booleans(),
)
policies = st.builds(
    CurePolicy,
    levels=st.dictionaries(st.sampled_from(FactKind), st.integers(0, 4), max_size=6),
    restarts=st.integers(0, 2),
    retries=st.integers(0, 2),
)
pasts = several(
    st.builds(
        PastDiagnosis,
        job=st.just("7"),
        at=st.just(NOW - 60.0),
        level=st.sampled_from(CureLevel),
        code=st.sampled_from(["xid-79", "collectives", "alpha", "gone"]),
        nodes=several(nodes, 2),
    )
)
WORDS = {
    JobTrouble.FAILED: " failed",
    JobTrouble.HUNG: " hangs",
    JobTrouble.SLOW: " is slow",
    JobTrouble.UNEVEN: " runs, and not all of its nodes alike",
    JobTrouble.NOTHING: " moves, and nothing wrong was seen",
    JobTrouble.UNKNOWN: ": cannot say: ",
}
OVER = (JobTrouble.FAILED, JobTrouble.HUNG)


def check(diagnosis: Diagnosis, told: JobEvidence, policy: CurePolicy) -> None:
    trouble, cure, answer = diagnosis.trouble, diagnosis.cure, diagnosis.answer
    is_named = bool(diagnosis.culprits) or diagnosis.is_the_job_itself
    assert not (diagnosis.culprits and diagnosis.is_the_job_itself)
    assert (answer is DiagnosisAnswer.NAMED) == is_named
    assert (answer is DiagnosisAnswer.NOTHING) == (trouble is JobTrouble.NOTHING)
    assert exit_code(diagnosis) == (1 if is_named else 0 if trouble is JobTrouble.NOTHING else 2)
    # what, and what to do about it
    if trouble is JobTrouble.NOTHING:
        assert any(rise.after > rise.before for rise in diagnosis.progress)
        assert told.alive is not False
        assert told.stall is None
        assert not told.is_past
        assert {fact.kind for fact in diagnosis.facts} <= HARMLESS
    assert (cure.level is CureLevel.NONE) == (trouble is JobTrouble.UNKNOWN)
    assert not (trouble in OVER and cure.level is CureLevel.LEAVE)
    assert not (trouble not in OVER and cure.level is CureLevel.FAIL)
    assert trouble not in (JobTrouble.NOTHING, JobTrouble.UNKNOWN) or not is_named
    assert trouble not in (JobTrouble.SLOW, JobTrouble.UNEVEN) or is_named
    # whom it costs
    assert {*cure.replaced} <= {*cure.tested} <= {*diagnosis.nodes}
    assert not cure.replaced or cure.level is CureLevel.REPLACE
    is_broken = diagnosis.cause and diagnosis.cause.kind is FactKind.CRITICAL_ERROR
    if is_broken and policy == CurePolicy():
        assert cure.level in (CureLevel.REPLACE, CureLevel.FAIL)
        assert len(diagnosis.nodes) > 2 or cure.replaced == diagnosis.nodes


def check_words(view: report.DiagnosisView) -> None:
    trouble = view.diagnosis.trouble
    headline, lines = report.headline(view), dict(report.ten_lines(view))
    *_, document = map(json.loads, report.lines(view))
    if not view.diagnosis.collectors:
        trouble = JobTrouble.UNKNOWN if trouble is JobTrouble.NOTHING else trouble
    shown = [of for of, words in WORDS.items() if headline.startswith(f"job 7{words}")]
    assert shown == [trouble] or not view.diagnosis.collectors
    assert ("seen" in lines) == (trouble is JobTrouble.NOTHING)
    if trouble is JobTrouble.UNKNOWN:
        assert "cure" not in lines
        assert lines["next"].startswith("anubis diagnose 7 --")
        assert document["level"] is None
    assert "leave" not in lines.get("cure", "") or trouble not in OVER
    assert bool(document["progress"]) >= (trouble is JobTrouble.NOTHING)


@settings(max_examples=50)
@given(evidence | quiet, st.just(CurePolicy()) | policies, pasts)
def test_the_parts_of_an_answer_agree(told, policy, past):
    diagnosis = diagnose(told, RULES, policy, past=past)
    check(diagnosis, told, policy)
    check_words(report.DiagnosisView(diagnosis=diagnosis, evidence=told))


MOVES = Rise(what="steps", before=3, after=9, since=NOW - 30.0, until=NOW - 2.0, vouches_s=10.0)
SEEN = JobEvidence(
    job="7", at=NOW, collectors=frozenset({Collector.TRAINING_LOG}), progress=(MOVES,)
)
WORLD = RankMap(nodes=dict.fromkeys(range(4), "n0"))


@pytest.mark.parametrize(
    ("told", "is_well"),
    [
        pytest.param(SEEN, True, id="steps that go on"),
        pytest.param(replace(SEEN, progress=()), False, id="no count"),
        pytest.param(replace(SEEN, at=NOW + 60), False, id="steps that went on a minute ago"),
        pytest.param(replace(SEEN, at=NOW - 60), False, id="steps of a minute to come"),
        pytest.param(replace(SEEN, is_past=True), False, id="before it ended"),
        pytest.param(replace(SEEN, alive=False), False, id="no process is left"),
        pytest.param(
            replace(SEEN, ranks=WORLD, progress=(replace(MOVES, ranks=frozenset(range(4))),)),
            True,
            id="all ranks move",
        ),
        pytest.param(
            replace(SEEN, ranks=WORLD, progress=(replace(MOVES, ranks=frozenset(range(3))),)),
            False,
            id="one rank is not known to move",
        ),
        pytest.param(
            replace(SEEN, progress=(replace(MOVES, before=9),)), False, id="the same at both looks"
        ),
        pytest.param(
            replace(SEEN, progress=(replace(MOVES, since=NOW - 2.0),)), False, id="one single look"
        ),
        pytest.param(
            replace(SEEN, progress=(MOVES, replace(MOVES, before=9, ranks=frozenset({2})))),
            False,
            id="steps that go on, and a rank that stands",
        ),
        pytest.param(
            replace(SEEN, processes=(ProcessState(rank=0, pulse=Pulse.GONE),)),
            False,
            id="a process is gone",
        ),
    ],
)
def test_nothing_is_wrong_only_with_a_job_that_is_seen_to_move(told, is_well):
    assert (diagnose(told, RULES, CurePolicy()).answer is DiagnosisAnswer.NOTHING) == is_well


# --- what tells nothing --------------------------------------------------------------------------


def same_dumps(folder: Path) -> None:
    (dump, *_) = HangingJob(JobLayout(dp=4)).run().dumps().values()
    for rank in range(16):
        (folder / f"dump_{rank}").write_bytes(dump_bytes(dump, as_json=True))


def of_one_moment(folder: Path) -> None:
    for rank, dump in HangingJob(JobLayout(dp=4)).run().dumps().items():
        (folder / f"dump_{rank}").write_bytes(dump_bytes(dump, as_json=True))


def steps_until(ago_s: float) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        times = [datetime.fromtimestamp(NOW - ago_s - 60 + 5 * step, UTC) for step in range(13)]
        lines = [f"{at:%Y-%m-%d %H:%M:%S} step {step}/100\n" for step, at in enumerate(times)]
        (folder / "rank0.log").write_text("".join(lines))

    return write


SCENES: Mapping[str, tuple[str, Callable[[Path], object], int]] = {
    "random bytes": ("logs", lambda at: (at / "a.log").write_bytes(Random(3).randbytes(99_999)), 2),
    "one long line": ("logs", lambda at: (at / "a.log").write_bytes(b"x" * 5_000_000), 2),
    "an empty folder": ("logs", lambda at: None, 2),
    "an empty file": ("logs", lambda at: (at / "a.log").write_bytes(b""), 2),
    "16 copies of one dump": ("dumps", same_dumps, 2),
    "dumps of one moment": ("dumps", of_one_moment, 2),
    "words without a step": (
        "logs",
        lambda at: (at / "a.log").write_text("epoch of joy\n" * 99),
        2,
    ),
    "steps without a time": ("logs", lambda at: (at / "a.log").write_text("step 1\nstep 2\n"), 2),
    "steps until ten minutes ago": ("logs", steps_until(600.0), 2),
    "steps that go on": ("logs", steps_until(4.0), 0),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_without_progress_is_never_called_well(scene, tmp_path):
    place, write, code = SCENES[scene]
    (tmp_path / place).mkdir()
    write(tmp_path / place)
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db", clock=lambda: NOW)
    view = diagnose_job(DiagnosisRequest(job="7", places={place: tmp_path / place}), caller)
    assert exit_code(view.diagnosis) == code, report.headline(view)
    check(view.diagnosis, view.evidence, CurePolicy())
    check_words(view)


def test_after_a_loss_that_is_no_number_the_gpus_of_the_job_are_searched(tmp_path):
    (tmp_path / "rank_2.log").write_text("found NaN in local forward loss\n")
    request = DiagnosisRequest(
        job="7", nodes=("n1", "n2", "n3"), ranks_per_node=1, places={"logs": tmp_path}
    )
    view = diagnose_job(request, Caller(history_url=f"sqlite:///{tmp_path}/history.db"))
    assert report.headline(view).endswith("is not a number, by its program, its data or a GPU")
    assert report.next_steps(view) == ["anubis locate 'n[1-3]' --sdc"]
    assert exit_code(view.diagnosis) == 2


def test_a_rank_for_which_others_may_wait_is_in_the_headline_and_not_among_missing_evidence():
    busy = f"{MAY_WAIT} rank 0, busy with files or a download"
    evidence = JobEvidence(
        at=NOW, collectors=frozenset({Collector.PROCESSES}), gaps={Collector.PROGRESS: busy}
    )
    diagnosis = diagnose(evidence, RULES, CurePolicy())
    view = report.DiagnosisView(diagnosis=diagnosis, evidence=evidence)
    assert report.headline(view) == f"this job: cannot say: {busy}"
    assert busy not in dict(report.ten_lines(view)).values()
