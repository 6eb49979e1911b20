"""Scrapes of xpu_timer: whether a job hangs by its kernels, made and real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.cures import CurePolicy
from anubis.core.diagnose.diagnostician import Diagnosis, diagnose
from anubis.core.diagnose.evidence import JobEvidence
from anubis.core.errors import EvidenceError
from anubis.operations.diagnose import rules
from anubis.readers.jobs.xpu_timer import parse_xpu_timer, read_xpu_timer
from tests.diagnosis.made_recorders import scrape


def judged(evidence: JobEvidence) -> Diagnosis:
    return diagnose(evidence, rules(), CurePolicy())


@pytest.mark.parametrize(
    ("hung", "trouble"),
    [
        (range(8), JobTrouble.HUNG),
        ([rank for rank in range(8) if rank != 6], JobTrouble.HUNG),
        ([0, 2, 5], JobTrouble.UNKNOWN),
        ([], JobTrouble.UNKNOWN),
    ],
)
def test_unfinished_kernels_show_a_hang_and_name_no_rank(
    hung: list[int], trouble: JobTrouble, tmp_path: Path
):
    for node in range(2):  # a scrape of each node
        flags = {rank: rank in hung for rank in range(4 * node, 4 * node + 4)}
        (tmp_path / f"n{node}").write_text(scrape(flags))
    diagnosis = judged(read_xpu_timer(tmp_path))
    assert (diagnosis.trouble, diagnosis.culprits) == (trouble, ())
    told = [fact.evidence for fact in diagnosis.decisive]
    assert ("none of rank 6" in "".join(told)) == (len(hung) == 7)


@pytest.mark.twin("test_unfinished_kernels_show_a_hang_and_name_no_rank")
def test_real_scrapes_of_a_job_that_hangs_and_of_one_that_does_not(real: Callable[[str], Path]):
    """DLRover's own tests call the first a hang, and the others none."""
    troubles = [
        judged(read_xpu_timer(real(f"runtime/dlrover/xpu_timer-{name}"))).trouble
        for name in (
            "hang-xpu_timer_metric_all",
            "hang-xpu_timer_metric_some",
            "normal-xpu_timer_metric_0",
        )
    ]
    assert troubles == [JobTrouble.HUNG, JobTrouble.UNKNOWN, JobTrouble.UNKNOWN]


def test_a_local_rank_is_no_rank():
    line = 'XPU_TIMER_COMMON_HANG{local_rank="3",rank="11"} 1 1700000000000'
    (timer,) = parse_xpu_timer([line], "s")
    assert (timer.rank, timer.is_hung) == (11, True)


@pytest.mark.parametrize(
    "text",
    ["", "up 1\n", "XPU_TIMER_COMMON_HANG 1\n", 'XPU_TIMER_COMMON_HANG{rank="0"} NaN\n', "\0" * 99],
)
def test_a_text_without_a_scrape_is_one_sentence(text: str):
    with pytest.raises(EvidenceError, match=r"^s"):
        parse_xpu_timer(text.splitlines(), "s")
