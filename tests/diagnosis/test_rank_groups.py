"""What the ranks of a job are doing, as rows of a page."""

from __future__ import annotations

import random
import re
from itertools import pairwise

from anubis.core.diagnose.evidence import (
    Advance,
    JobEvidence,
    ProcessState,
    Pulse,
    RankMap,
    Stack,
)
from anubis.core.diagnose.facts import Whom
from anubis.report.diagnosis_pages import waiting_grid
from anubis.report.rank_groups import rank_groups, rank_ranges

WAITS = ("main (train.py:1)", "all_reduce (torch/distributed/x.py:{line})")


def test_ranks_at_one_place_are_one_row_and_those_that_wait_come_last():
    ranks = range(64)
    stacks = [Stack(rank=rank, frames=(WAITS[0], WAITS[1].format(line=rank % 3))) for rank in ranks]
    stacks[9] = Stack(rank=9, frames=("main (train.py:1)", "load (data.py:5)"))
    stacks.append(Stack(rank=3, frames=("elsewhere (x.py:1)",), thread="run"))
    evidence = JobEvidence(
        job="4711",
        at=0.0,
        collectors=frozenset(),
        ranks=RankMap(nodes={rank: f"n{rank // 8}" for rank in ranks}),
        stacks=tuple(stacks),
        processes=tuple(
            ProcessState(rank=rank, pulse=Pulse.STOPPED if rank == 5 else Pulse.ANSWERS, rests_s=30)
            for rank in ranks
        ),
        advances=tuple(
            Advance(
                rank=rank,
                communicator="all",
                members=tuple(ranks),
                enqueued=1500 - (rank == 9),
                completed=1499,
            )
            for rank in ranks
        ),
    )
    groups, more = rank_groups(evidence)
    assert more == 0
    shown = [(group.ranks, group.nodes, group.doing, group.launched) for group in groups]
    waiting = "waits for others in all_reduce (torch/distributed/x.py:0)"
    assert shown == [
        ("rank 9", "n1", "load (data.py:5)", "1,499"),
        (
            "rank 5",
            "n0",
            "stopped waits for others in all_reduce (torch/distributed/x.py:2)",
            "1,500",
        ),
        ("62 ranks: 0-4, 6-8, 10-63", "n[0-7]", waiting, "1,500"),
    ]


def test_a_row_names_all_ranks_that_it_counts():
    dice = random.Random(1)
    for _ in range(50):
        ranks = sorted(dice.sample(range(40), dice.randrange(2, 12)))
        count, _, text = rank_ranges(ranks).partition(" ranks: ")
        text, _, more = text.partition(" and ")
        named = [
            rank
            for part in text.split(", ")
            for first, _, last in [part.partition("-")]
            for rank in range(int(first), int(last or first) + 1)
        ]
        assert named == ranks[: len(named)]
        assert len(named) + int(more.removesuffix(" more") or 0) == len(ranks) == int(count)


def test_the_number_of_a_named_rank_stands_below_its_column_and_no_number_covers_another():
    for count, named in ((600, {20, 331}), (600, set()), (4, {2})):
        ranks = tuple(range(count))
        advances = [
            Advance(
                rank=r, communicator="all", members=ranks, enqueued=9 - (r in named), completed=8
            )
            for r in ranks
        ]
        evidence = JobEvidence(job="1", at=0.0, collectors=frozenset(), advances=tuple(advances))
        grid = waiting_grid(evidence, [Whom(rank=rank) for rank in named])
        labels = re.findall(r'x="([\d.]+)"[^>]*>(\d+)</', grid)
        assert {str(rank) for rank in named} <= {number for _, number in labels}
        places = sorted(float(x) for x, _ in labels)
        letters = max(len(number) for _, number in labels)
        assert all(b - a >= 6 * letters for a, b in pairwise(places))
