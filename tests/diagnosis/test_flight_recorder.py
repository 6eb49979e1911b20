"""The ranks to blame for a hang, by recorded collectives: on made jobs, and on real ones."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anubis.core.diagnose import hang
from anubis.core.diagnose.analyst import Analysis, JobTrouble, analyse
from anubis.core.diagnose.evidence import JobEvidence
from anubis.core.diagnose.facts import FactKind, reason
from anubis.core.errors import EvidenceError
from anubis.lab.simulation.hangs import HangFault, HangingJob, JobLayout, Operation, dump_bytes
from anubis.readers.jobs.flight_recorder import evidence_of, parse_dump, read_dumps

RULES = (*hang.RULES, *hang.MATCHING_RULES)
LAYOUTS = (
    JobLayout(dp=4),
    JobLayout(tp=4, dp=2),
    JobLayout(pp=4, dp=2),
    JobLayout(tp=2, pp=2, dp=2),
    JobLayout(tp=2, pp=4, dp=2, experts=True),
    JobLayout(tp=4, pp=2, dp=2, experts=True),
)


def evidence(job: HangingJob, seed: int = 0, missing: Sequence[int] = ()) -> JobEvidence:
    dumps = job.dumps(seed, missing)
    read = {
        rank: parse_dump(dump_bytes(dump, as_json=seed % 2 == 0), "made")
        for rank, dump in dumps.items()
    }
    return evidence_of(read)


def analysed(records: JobEvidence) -> Analysis:
    return analyse(reason(records, RULES), records)


def blamed(records: JobEvidence) -> list[int | None]:
    return sorted(whom.rank for whom in analysed(records).culprits if whom.rank is not None)


def shuffled(seed: int) -> tuple[random.Random, JobLayout, int]:
    dice = random.Random(seed)
    layout = dice.choice(LAYOUTS)
    return dice, layout, dice.randrange(layout.world)


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_that_stops_is_named_and_no_other(seed: int):
    dice, layout, rank = shuffled(seed)
    at = dice.randrange(len(layout.program(rank))) if seed % 4 else 0
    job = HangingJob(layout, [HangFault(rank, at)]).run()
    assert blamed(evidence(job, seed)) == [rank], f"seed {seed}: {layout}, rank {rank} at {at}"


@pytest.mark.parametrize("seed", range(12))
def test_a_rank_whose_device_sticks_in_a_finished_collective_is_named(seed: int):
    dice, layout, rank = shuffled(seed)
    program = layout.program(rank)
    at = dice.choice([i for i, op in enumerate(program) if op.peer is None and len(op.group) > 1])
    records = evidence(HangingJob(layout, [HangFault(rank, at, "sticks")]).run(), seed)
    assert blamed(records) == [rank], f"seed {seed}: {layout}, rank {rank} at {at}"
    assert {fact.kind for fact in analysed(records).decisive} == {FactKind.UNFINISHED}


@pytest.mark.parametrize("seed", range(8))
def test_a_rank_without_a_dump_is_missing_and_not_guilty(seed: int):
    """Its dump may have been lost: that a process is gone is reported by others."""
    dice, layout, rank = shuffled(seed)
    at = dice.randrange(len(layout.program(rank))) if seed % 4 else 0
    records = evidence(HangingJob(layout, [HangFault(rank, at)]).run(), seed, missing=[rank])
    conclusion = analysed(records)
    assert (conclusion.culprits, conclusion.trouble) == ((), JobTrouble.HUNG)
    assert [fact.whom.rank for fact in conclusion.decisive] == [rank]
    asked = analysed(replace(records, mute=frozenset({rank})))
    assert [whom.rank for whom in asked.culprits] == [rank]


@pytest.mark.parametrize("seed", range(10))
def test_lost_dumps_make_no_innocent_rank_named(seed: int):
    dice, layout, rank = shuffled(seed)
    at = dice.randrange(len(layout.program(rank))) if seed % 4 else 0
    job = HangingJob(layout, [HangFault(rank, at)]).run()
    for lost in (1, layout.world // 4, layout.world // 2, layout.world - 1):
        missing = dice.sample(range(layout.world), lost)
        conclusion = analysed(evidence(job, seed, missing=missing))
        names = {whom.rank for whom in conclusion.culprits}
        assert names <= {rank}, f"seed {seed}: {layout}, {rank} at {at} without {missing}"
        assert not conclusion.is_the_job_itself, f"seed {seed}: {layout} without {missing}"


@pytest.mark.parametrize("seed", range(8))
def test_two_that_stop_at_one_time_are_both_named(seed: int):
    dice = random.Random(seed)
    layout = dice.choice(LAYOUTS[1:])
    first, second = sorted(dice.sample(range(layout.world), 2))
    length = len(layout.program(0)) // layout.steps
    whole_steps = dice.randrange(1, layout.steps) * length
    program = layout.program(first)
    at = next(i for i in range(whole_steps, len(program)) if program[i].description == "default_pg")
    of_second = layout.program(second)
    same = [i for i, op in enumerate(of_second) if op.description == "default_pg"]
    count = [i for i, op in enumerate(program) if op.description == "default_pg"].index(at)
    faults = [HangFault(first, at), HangFault(second, same[count])]
    assert blamed(evidence(HangingJob(layout, faults).run(), seed)) == [first, second], (
        f"seed {seed}"
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("change", ["order", "size", "type"])
def test_mismatched_collectives_name_no_rank(seed: int, change: str):
    dice, layout, rank = shuffled(seed)
    program = layout.program(rank)
    at = dice.choice(
        [i for i, op in enumerate(program) if "all_reduce" in op.kind and len(op.group) > 1]
    )
    changes = {"order": {"kind": "broadcast"}, "size": {"sizes": (7,)}, "type": {"dtype": "Half"}}
    called = replace(program[at], **changes[change])  # type: ignore[arg-type]
    records = evidence(HangingJob(layout, [HangFault(rank, at, "calls", called)]).run(), seed)
    conclusion = analysed(records)
    assert not conclusion.culprits
    assert conclusion.is_the_job_itself
    assert conclusion.decisive[0].code == change


@pytest.mark.parametrize("seed", range(4))
def test_dumps_of_a_job_at_work_name_no_rank(seed: int):
    _, layout, _ = shuffled(seed)
    conclusion = analysed(evidence(HangingJob(layout).run(), seed))
    assert not conclusion.culprits
    assert not conclusion.is_the_job_itself


def test_a_collective_called_by_one_rank_alone_names_no_rank():
    """Three of four did not come: that is no minority."""
    layout = JobLayout(dp=4)
    job = HangingJob(layout, [HangFault(rank, 1) for rank in (1, 2, 3)]).run()
    assert blamed(evidence(job)) == []


def test_counts_of_the_only_group_name_the_absent_rank_without_any_recorded_call(tmp_path: Path):
    """As dumps that leave out collectives (`includeCollectives` of the worker server)."""
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
    for rank in range(4):
        counts = {"last_enqueued_collective": 10 + (rank != 2), "last_completed_collective": 10}
        dump = {"version": "2.10", "pg_config": {"0": group}, "pg_status": {"0": counts}}
        (tmp_path / f"dump_{rank}").write_text(json.dumps({**dump, "entries": []}))
    assert blamed(read_dumps(tmp_path)) == [2]


def test_ranks_that_call_two_groups_in_different_orders_wait_in_a_circle():
    both = Operation((0, 1), "A", "all_reduce"), Operation((0, 1), "B", "all_reduce")
    job = HangingJob(JobLayout(dp=2))
    job.run()
    for number, rank in enumerate(job.ranks):
        rank.program[:] = both if number == 0 else both[::-1]
        rank.device, rank.stops = 0, 2
    conclusion = analysed(evidence(job))
    assert conclusion.is_the_job_itself
    assert conclusion.decisive[0].code == "circle"


@pytest.mark.parametrize("missing", [13, 3, 8])
def test_a_lost_dump_accuses_no_rank_while_another_is_known_to_be_absent(missing: int):
    layout = LAYOUTS[4]
    records = evidence(HangingJob(layout, [HangFault(5, 20)]).run(), 2, missing=[missing])
    assert blamed(records) == [5]


@pytest.mark.twin("test_a_rank_that_stops_is_named_and_no_other")
@pytest.mark.parametrize(
    ("name", "ranks"), [("gpu_error_1st", [12, 14]), ("lock_gil_1st", [9, 14])]
)
def test_exactly_the_injected_ranks_of_real_dumps_are_named(
    real: Callable[[str], Path], name: str, ranks: list[int]
):
    assert blamed(read_dumps(real(f"runtime/flight-recorder/{name}"))) == ranks


@pytest.mark.twin("test_lost_dumps_make_no_innocent_rank_named")
@pytest.mark.parametrize(
    ("name", "guilty"), [("gpu_error_1st", {12, 14}), ("lock_gil_1st", {9, 14})]
)
def test_real_dumps_with_some_lost_name_no_innocent_rank(
    real: Callable[[str], Path], name: str, guilty: set[int]
):
    folder = real(f"runtime/flight-recorder/{name}")
    dumps = {
        rank: parse_dump((folder / f"_dump_{rank}").read_bytes(), "dump") for rank in range(16)
    }
    dice = random.Random(name)
    for lost in (4, 8):
        named = 0
        for _ in range(60):
            missing = dice.sample(range(16), lost)
            kept = {rank: dump for rank, dump in dumps.items() if rank not in missing}
            culprits = {*blamed(evidence_of(kept))}
            named += bool(culprits)
            assert culprits <= guilty, f"without {missing}"
        assert named >= 20, "and yet it names whose records are there"


# --- what may be in a dump -----------------------------------------------------------------------


def dump(**more: Any) -> dict[str, Any]:
    return {**HangingJob(JobLayout()).run().dumps()[0], **more}


class Executed:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit(3)",))


HOSTILE = {
    "nothing": b"",
    "a pickle that executes": pickle.dumps(Executed()),
    "a pickle of its own class": pickle.dumps(Path("/")),
    "a memory of 64 GB": b"\x80\x02Nr\xff\xff\xff\xff.",
    "a cut-off pickle": pickle.dumps(dump(), protocol=2)[:-20],
    "an array of 2 GB": b"\x80\x05\x96\x00\x00\x00\x80\x00\x00\x00\x00.",
    "keys in depth": b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"Ns.",
    "lists in depth": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "JSON in depth": b'{"version": "2.0", "entries": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "not text": b"\xff\xfe\x00",
    "JSON of something else": b'{"a": 1}',
    "a list": b"[]",
    "a newer version": json.dumps(dump(version="3.0")).encode(),
    "entries that are no list": json.dumps(dump(entries={"a": 1})).encode(),
    "an entry that is none": json.dumps(dump(entries=[3])).encode(),
    "a count that is none": json.dumps(
        dump(entries=[{"collective_seq_id": float("nan")}])
    ).encode(),
    "a status that is none": json.dumps(dump(pg_status={"0": []})).encode(),
    "a huge number": json.dumps(dump(entries=[{"collective_seq_id": 10**300}])).encode(),
    "a group that is none": json.dumps(dump(entries=[{"process_group": "x"}])).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_dump_is_refused_in_a_sentence(name: str):
    with pytest.raises(EvidenceError) as refusal:
        parse_dump(HOSTILE[name], "the dump")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_dump_with_parts_that_do_not_matter_is_read():
    odd = dump(
        nccl_comm_state={"x": 1}, entries=[{"frames": 3, "input_sizes": "no", "pg_id": None}]
    )
    assert len(parse_dump(json.dumps(odd).encode(), "odd").calls) == 1


def test_a_dump_that_calls_two_groups_by_one_number_is_read():
    entries = [
        {"pg_id": 1, "process_group": [name, "DATA"], "collective_seq_id": at, "state": "scheduled"}
        for at, name in enumerate(("1", "2"), start=1)
    ]
    records = evidence_of({0: parse_dump(json.dumps(dump(entries=entries)).encode(), "odd")})
    assert {call.communicator for call in records.calls} == {"DATA 1", "DATA 2"}


def test_dumps_in_a_folder_belong_to_the_ranks_in_their_names(tmp_path: Path):
    job = HangingJob(JobLayout(dp=4), [HangFault(2, 5)]).run()
    for rank, made in job.dumps().items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump_bytes(made, as_json=False))
    (tmp_path / "fault_injection.log").write_text("none of our business")
    assert blamed(read_dumps(tmp_path)) == [2]
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"broken")
    assert "nccl_trace_rank_1" in next(iter(read_dumps(tmp_path).gaps.values()))


def test_a_folder_without_dumps_is_refused(tmp_path: Path):
    with pytest.raises(EvidenceError, match="has no dumps"):
        read_dumps(tmp_path)
    with pytest.raises(EvidenceError, match="cannot read"):
        read_dumps(tmp_path / "nowhere")
    (tmp_path / "dump_0").write_bytes(b"x")
    with pytest.raises(EvidenceError, match="no dump"):
        read_dumps(tmp_path)


def test_calls_that_were_launched_as_one_are_as_far_as_the_one():
    """Recorders leave the single ones at the state in which they were launched."""
    common = {"pg_id": 0, "process_group": ["0", "PIPELINE"], "is_p2p": True, "p2p_seq_id": 1}
    entries = [
        {**common, "record_id": 0, "profiling_name": "nccl:send 0->1", "state": "scheduled"},
        {**common, "record_id": 1, "profiling_name": "nccl:recv 0<-1", "state": "scheduled"},
        {**common, "record_id": 2, "profiling_name": "nccl:coalesced", "state": "completed"},
    ]
    read = parse_dump(json.dumps(dump(entries=entries)).encode(), "made")
    assert [call.state for call in evidence_of({0: read}).calls] == ["finished", "finished"]


def message(rank: int, peer: int, state: str, *, sends: bool, batch: bool) -> dict[str, object]:
    """A dump of a rank in an unfinished message, alone or launched together with one to a third
    rank."""
    arrow = f"send {rank}->" if sends else f"recv {rank}<-"
    other_way = f"recv {rank}<-2" if sends else f"send {rank}->2"
    names = [f"nccl:{arrow}{peer}", *([f"nccl:{other_way}", "nccl:coalesced"] if batch else [])]
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "PIPELINE"],
            "p2p_seq_id": 1 + rank,  # ends count on their own
            "is_p2p": True,
            "profiling_name": name,
            "time_created_ns": 10**18,
            "state": state if name == names[-1] else "scheduled",
        }
        for number, name in enumerate(names)
    ]
    group = {"name": "0", "desc": "PIPELINE", "ranks": "[0, 1, 2]"}
    return dump(entries=entries, pg_config={"0": group})


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize(
    ("states", "named"),
    [(("started", "scheduled"), [1]), (("started", "started"), []), (("scheduled",) * 2, [])],
)
def test_the_end_that_did_not_begin_a_message_is_named(
    states: tuple[str, str], named: list[int], sends: bool, batch: bool
):
    """Before, two ends that had both come were a circle: the job's own fault."""
    made = {
        0: message(0, 1, states[0], sends=sends, batch=batch),
        1: message(1, 0, states[1], sends=not sends, batch=batch),
    }
    records = evidence_of({r: parse_dump(json.dumps(d).encode(), "m") for r, d in made.items()})
    assert blamed(records) == named
    assert not analysed(records).is_the_job_itself


def test_a_rank_whose_partner_waits_is_not_named_if_most_ranks_wait_for_nothing():
    """As after a collective that one rank called once too often, at the end of its program."""

    def rank_in(pair: tuple[int, int], launched: int) -> dict[str, object]:
        entries = [
            {
                "record_id": number,
                "pg_id": 0,
                "process_group": [str(pair[0]), "EXPERTS"],
                "collective_seq_id": number + 1,
                "profiling_name": "nccl:all_to_all",
                "state": "completed" if number < 3 else "started",
            }
            for number in range(launched)
        ]
        group = {"name": str(pair[0]), "desc": "EXPERTS", "ranks": json.dumps(pair)}
        return dump(entries=entries, pg_config={"0": group})

    made = {0: ((0, 1), 4), 1: ((0, 1), 3), 2: ((2, 3), 3), 3: ((2, 3), 3)}
    read = {rank: parse_dump(json.dumps(rank_in(*how)).encode(), "m") for rank, how in made.items()}
    assert blamed(evidence_of(read)) == []
    assert blamed(evidence_of({rank: read[rank] for rank in (0, 1)})) == [1]
