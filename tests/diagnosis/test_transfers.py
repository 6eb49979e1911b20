"""The ranks that communicate slowly, by the durations of transfers: made dumps and lines of jobs
with known wires.

In the made jobs ranks come to a collective late by chance or because they work slowly; its data
then take as long as the slowest wire of its ranks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from anubis.core.diagnose import slow, transfers
from anubis.core.diagnose.analyst import Analysis, JobTrouble, analyse
from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import FactKind, reason
from anubis.readers.jobs.flight_recorder import evidence_of, parse_dump
from anubis.readers.jobs.inspector import read_inspector
from tests.diagnosis.made_recorders import inspector_files

RULES = (*slow.RULES, *transfers.RULES)
WIRE_S = 0.02
Pace = Callable[[int, int], float]  # a rank and a step → how many times as long its wire takes

ROWS = [(0, 1), (2, 3), (4, 5), (6, 7)]
COLUMNS = [(0, 2), (4, 6), (1, 3), (5, 7)]


def dumps(
    groups: Iterable[Sequence[int]],
    wires: Pace,
    *,
    work: Mapping[int, float] | None = None,
    steps: int = 12,
    messages: bool = False,
    untimed: Iterable[int] = (),
) -> JobEvidence:
    """Dumps of eight ranks that work, meet in their groups one after the other, and go on."""
    dice = random.Random(5)
    groups = [tuple(group) for group in groups]
    entries: dict[int, list[dict[str, object]]] = {rank: [] for rank in range(8)}
    now = dict.fromkeys(range(8), 100.0)
    for step in range(steps):
        for rank in now:
            now[rank] += 0.05 * (work or {}).get(rank, 1.0) * dice.uniform(0.9, 1.1)
        for number, group in enumerate(groups):
            slowest = max(wires(rank, step) for rank in group)
            end = max(now[rank] for rank in group) + WIRE_S * slowest * dice.uniform(0.95, 1.05)
            for place, rank in enumerate(group):
                name = f"send {place}->1" if place == 0 else f"recv {place}<-0"
                entry = {
                    "record_id": len(entries[rank]),
                    "pg_id": number,
                    "process_group": [str(number), "groups"],
                    "collective_seq_id": 0 if messages else step + 1,
                    "p2p_seq_id": step + 1 if messages else 0,
                    "profiling_name": f"nccl:{name}" if messages else "nccl:all_reduce",
                    "time_created_ns": int(now[rank] * 1e9),
                    "input_sizes": [[1024, 1024]],
                    "state": "completed",
                    "is_p2p": messages,
                }
                if rank not in untimed:
                    entry["duration_ms"] = 1000 * (end - now[rank])
                entries[rank].append(entry)
                now[rank] = end
    config = {
        str(number): {"name": str(number), "desc": "groups", "ranks": str(list(group))}
        for number, group in enumerate(groups)
    }
    written = {
        rank: json.dumps({"version": "2.10", "pg_config": config, "entries": entries[rank]})
        for rank in entries
    }
    return evidence_of({rank: parse_dump(text.encode(), "made") for rank, text in written.items()})


def at(*ranks: int, times: float = 3.0, since: int = 0) -> Pace:
    return lambda rank, step: times if rank in ranks and step >= since else 1.0


def analysed(evidence: JobEvidence) -> Analysis:
    return analyse(reason(evidence, RULES), evidence)


def named(evidence: JobEvidence) -> list[int | None]:
    return [whom.rank for whom in analysed(evidence).culprits]


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("rank", [0, 6])
def test_the_rank_that_all_slow_groups_share_is_named(rank: int, messages: bool):
    made = dumps([*ROWS, *COLUMNS], at(rank), messages=messages)
    assert named(made) == [rank]
    assert analysed(made).trouble is JobTrouble.SLOW


def test_a_rank_that_works_slowly_has_no_slow_wire():
    made = dumps([*ROWS, *COLUMNS], at(), work={3: 4.0})
    facts = reason(made, transfers.RULES).facts
    assert made.transfers
    assert facts == ()


@pytest.mark.parametrize(
    ("groups", "wires"),
    [
        pytest.param([*ROWS, *COLUMNS], at(), id="none is slow"),
        pytest.param([*ROWS, *COLUMNS], at(5, times=1.3), id="a little slower"),
        pytest.param([*ROWS, *COLUMNS], at(*range(8)), id="all are"),
        pytest.param([tuple(range(8))], at(5), id="one group: nothing to compare with"),
    ],
)
def test_no_rank_is_named_if_its_wire_is_not_slower_than_those_of_others(groups, wires):
    assert reason(dumps(groups, wires), transfers.RULES).facts == ()


def test_a_slow_group_that_no_other_crosses_is_tested_and_no_rank_blamed():
    made = dumps(ROWS, at(5))
    facts = reason(made, RULES).facts
    assert named(made) == []
    assert analysed(made).trouble is JobTrouble.SLOW
    assert [fact.whom.rank for fact in facts if fact.kind is FactKind.LIKELY_PART] == [4, 5]


def test_two_slow_wires_in_different_groups_blame_no_rank():
    assert named(dumps([*ROWS, *COLUMNS], at(0, 7))) == []


def test_collectives_without_the_time_of_one_rank_are_left_out():
    made = dumps([*ROWS, *COLUMNS], at(0), untimed=range(8))
    assert Collector.TRANSFERS not in made.collectors
    assert named(dumps([*ROWS, *COLUMNS], at(0), untimed=[1, 5])) == [0]  # 2 is fast with 3
    assert named(dumps([*ROWS, *COLUMNS], at(0), untimed=[1, 3])) == []  # 0 and 2 met once only


def test_a_job_whose_data_take_longer_than_before_became_slow_as_a_whole():
    made = dumps([tuple(range(8))], at(*range(8), since=20), steps=30)
    (fact,) = reason(made, transfers.RULES).facts
    assert fact.kind is FactKind.SLOWED
    assert "2.9 times as long" in fact.evidence or "3.0 times as long" in fact.evidence
    assert analysed(made).trouble is JobTrouble.SLOW


@pytest.mark.parametrize("steady", [1.0, 3.0])
def test_a_job_whose_data_always_took_as_long_is_not_slow(steady: float):
    made = dumps([tuple(range(8))], at(*range(8), times=steady), steps=30)
    assert reason(made, transfers.RULES).facts == ()


def test_lines_of_nccl_inspector_show_a_slow_wire_beside_a_rank_that_works_slowly(tmp_path: Path):
    groups = {f"0x{number}": pair for number, pair in enumerate([*ROWS, *COLUMNS])}
    wires = {name: 4.0 for name, pair in groups.items() if 6 in pair}
    files = inspector_files(slow={1: 1.3}, groups=groups, wires=wires)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert named(read_inspector(tmp_path)) == [6]
