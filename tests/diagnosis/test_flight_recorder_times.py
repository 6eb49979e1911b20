"""Dumps name a rank only if they are of one run and were taken while it stood still."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.diagnostician import DiagnosisAnswer
from anubis.operations.diagnose import diagnose_job
from anubis.operations.requests import DiagnosisRequest
from anubis.readers.jobs.flight_recorder import is_synchronous

RANKS = range(8)
NOW, TIMEOUT_S, STEP_S = 1_790_000_000.0, 600.0, 0.5


def write_dump(folder, rank, *, launched, ended, at, written):
    """A rank that launched and ended so many collectives, the last launch at that time."""
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": int((at - (launched - number) * STEP_S) * 1e9),
            "input_sizes": [[8]],
            "input_dtypes": ["Float"],
            "state": "completed" if number <= ended else "started",
            "retired": number <= ended,
            "timeout_ms": int(TIMEOUT_S * 1e3),
            "is_p2p": False,
        }
        for number in range(max(1, launched - 9), launched + 1)
    ]
    group = {"name": "0", "desc": "default_pg", "ranks": json.dumps([*RANKS])}
    path = folder / f"dump_{rank}"
    dump = {"version": "2.10", "pg_config": {"0": group}, "pg_status": {}, "entries": entries}
    path.write_text(json.dumps(dump))
    os.utime(path, (written, written))


def diagnosed(folder):
    nodes = tuple(f"n{rank}" for rank in RANKS)
    view = diagnose_job(DiagnosisRequest(places={"dumps": folder}, nodes=nodes, ranks_per_node=1))
    if view.diagnosis.answer is DiagnosisAnswer.NOTHING:
        raise AssertionError("dumps never show that a job moves")
    return view.diagnosis


def named(folder):
    return {whom.rank for whom in diagnosed(folder).culprits}


def write_hang(folder, absent, collective, at, ranks=RANKS):
    for rank in ranks:
        launched = collective - (rank in absent)
        written = at + TIMEOUT_S + 1
        write_dump(folder, rank, launched=launched, ended=collective - 1, at=at, written=written)


@pytest.mark.parametrize("absent", range(1, len(RANKS)))
def test_a_job_with_any_number_of_absent_ranks_hangs_and_only_a_minority_is_named(absent, tmp_path):
    write_hang(tmp_path, set(range(absent)), 77, NOW)
    diagnosis = diagnosed(tmp_path)
    assert diagnosis.trouble is JobTrouble.HUNG
    is_minority = 2 * absent < len(RANKS)
    assert {whom.rank for whom in diagnosis.culprits} == set(range(absent if is_minority else 0))
    assert diagnosis.answer is (DiagnosisAnswer.NAMED if is_minority else DiagnosisAnswer.UNKNOWN)


@settings(max_examples=12)
@given(data=st.data())
def test_dumps_of_an_earlier_run_beside_current_ones_name_no_rank(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    absent, before = (data.draw(st.sampled_from(RANKS)) for _ in range(2))
    lost = data.draw(st.sets(st.sampled_from([r for r in RANKS if r != absent]), max_size=3))
    ago_s = data.draw(st.floats(TIMEOUT_S + 100, 1e6))
    collectives = data.draw(st.tuples(st.integers(20, 300), st.integers(20, 300)))
    write_hang(folder, {before}, collectives[0], NOW - ago_s)
    write_hang(folder, {absent}, collectives[1], NOW, [r for r in RANKS if r not in lost])
    assert named(folder) == {absent}


@settings(max_examples=12)
@given(
    steps=st.lists(st.integers(0, 9), min_size=len(RANKS), max_size=len(RANKS)),
    wait_s=st.floats(0, 0.9 * STEP_S),
)
def test_dumps_of_a_working_job_name_no_rank_at_any_times(steps, wait_s, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for rank, step in zip(RANKS, steps, strict=True):
        at = NOW + step * STEP_S
        write_dump(folder, rank, launched=100 + step, ended=99 + step, at=at, written=at + wait_s)
    assert named(folder) == set()


def test_copied_dumps_name_no_rank_that_others_have_overtaken(tmp_path):
    for rank in RANKS:
        at, launched = NOW + rank * STEP_S, 100 + rank
        write_dump(tmp_path, rank, launched=launched, ended=launched - 1, at=at, written=NOW + 9e5)
    assert named(tmp_path) == set()


def test_synchronous_collectives_are_known_by_name():
    names = ("nccl:all_reduce", "nccl:_all_gather_base", "nccl:ALLREDUCE", "gloo:barrier")
    assert all(map(is_synchronous, names))
    names = ("nccl:all_to_all", "nccl:broadcast", "nccl:send 0->1", "nccl:allreduce_coalesced")
    assert not any(map(is_synchronous, names))
