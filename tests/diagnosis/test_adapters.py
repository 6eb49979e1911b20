"""Adapters that are tested first by their error counters, on files as the kernel has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.cures import CurePolicy
from anubis.core.diagnose.diagnostician import diagnose
from anubis.core.diagnose.evidence import (
    AdapterRise,
    JobEvidence,
    Rise,
    Stall,
)
from anubis.operations.diagnose import rules
from anubis.readers.jobs.adapter_counters import AdapterWatch
from anubis.readers.jobs.live import LiveAnswer, LiveLook, LiveRank, Pulse, evidence_of_looks

NODES = ("n0", "n1", "n2", "n3")
MOVES = Rise(what="collectives", before=1, after=99, since=80.0, until=100.0, vouches_s=60.0)


def write(root: Path, port: str, **counts: object) -> None:
    for counter, count in counts.items():
        is_way = counter in ("out_of_sequence", "local_ack_timeout_err")
        file = root / port / ("hw_counters" if is_way else "counters") / counter
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{count}\n")


def test_counters_are_compared_with_the_first_look_and_not_asked_all_the_time(tmp_path: Path):
    watch = AdapterWatch(root=tmp_path)
    write(tmp_path, "mlx5_0/ports/1", symbol_error=7, out_of_sequence=3, port_rcv_data=5)
    write(tmp_path, "mlx5_1/ports/1", link_downed=0, symbol_error="N/A (no PMA)")
    write(tmp_path, "mlx5_1/ports/2", local_ack_timeout_err=9)
    watch.sample(100.0)
    assert not list(watch.rises())
    write(tmp_path, "mlx5_0/ports/1", symbol_error=7, out_of_sequence=14, port_rcv_data=99)
    write(tmp_path, "mlx5_1/ports/1", link_downed=1)
    write(tmp_path, "mlx5_1/ports/2", local_ack_timeout_err=2)  # the driver was loaded again
    watch.sample(101.0)
    assert not list(watch.rises())
    watch.sample(120.0)
    assert {(rise.device, rise.counter, rise.rise, rise.seen_s) for rise in watch.rises()} == {
        ("mlx5_0", "out_of_sequence", 11, 20.0),
        ("mlx5_1/1", "link_downed", 1, 20.0),
    }
    assert not list(AdapterWatch(root=tmp_path / "absent").rises())


def job(*, rises: Mapping[tuple[str, str], int], is_well: bool = False) -> JobEvidence:
    """A job on four nodes, which hangs for an unknown reason."""
    looks = [
        LiveLook(
            at=100.0,
            answers=(
                LiveAnswer(
                    rank=LiveRank(rank=rank, pid=1, socket="", host=node, world=4, here=1),
                    pulse=Pulse.ANSWERS,
                ),
            ),
            adapters=tuple(
                AdapterRise(device="mlx5_0", counter=counter, rise=rise, seen_s=20.0)
                for (own, counter), rise in rises.items()
                if own == node
            ),
        )
        for rank, node in enumerate(NODES)
    ]
    moving = replace(evidence_of_looks(looks), progress=(MOVES,), gaps={})
    stall = Stall(since=60.0, sentence="it stands still")
    return moving if is_well else replace(moving, progress=(), stall=stall)


@pytest.mark.parametrize(
    ("rises", "first"),
    [
        pytest.param({("n1", "link_downed"): 1}, ["n1"], id="a link that broke"),
        pytest.param({("n1", "symbol_error"): 3}, [], id="bits that flip now and then"),
        pytest.param({("n1", "symbol_error"): 400}, ["n1"], id="many errors of a link"),
        pytest.param(
            {("n2", "out_of_sequence"): 90, ("n0", "out_of_sequence"): 4}, ["n2"], id="nearly all"
        ),
        pytest.param({("n1", "np_cnp_sent"): 900}, [], id="a few marks of congestion"),
        pytest.param(
            {("n1", "np_cnp_sent"): 9000, ("n2", "np_cnp_sent"): 8000}, [], id="marks of several"
        ),
        pytest.param({("n1", "np_cnp_sent"): 9000}, ["n1"], id="congestion before one node"),
        pytest.param(
            {(node, "local_ack_timeout_err"): 50 for node in NODES if node != "n3"},
            [],
            id="all miss the answers of one: a sound node would be tested",
        ),
    ],
)
def test_an_adapter_with_errors_is_tested_first_and_never_blamed(
    rises: Mapping[tuple[str, str], int], first: list[str]
):
    hangs = diagnose(job(rises=rises), rules(), CurePolicy())
    assert (hangs.trouble, hangs.culprits) == (JobTrouble.HUNG, ())
    assert [fact.whom.node for fact in hangs.likeliest] == first
    assert all(
        fact.whom.device == "mlx5_0" and "rose within 20 s" in fact.evidence
        for fact in hangs.likeliest
    )
    assert list(hangs.cure.tested) == first
    well = diagnose(job(rises=rises, is_well=True), rules(), CurePolicy())
    assert (well.trouble, well.facts) == (JobTrouble.NOTHING, ())
