"""Reports of NCCL's RAS: unreachable ranks, ranks behind, and reports that show neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from anubis.core.diagnose import hang
from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import reason
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.ras import evidence_of, parse_ras, read_ras
from tests.diagnosis.made_recorders import ras_json, ras_text

LATER = "2026-11-23 05:00:30"


def read(*texts: str) -> JobEvidence:
    return evidence_of([report for text in texts for report in parse_ras(text, "r")])


def told(evidence: JobEvidence) -> list[tuple[str, int | None]]:
    return [(fact.kind.value, fact.whom.rank) for fact in reason(evidence, hang.RULES).facts]


def counts(most: int, behind: dict[int, int], ranks: int = 8) -> dict[int, dict[str, int]]:
    return {rank: {"AllReduce": behind.get(rank, most)} for rank in range(ranks)}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_rank_that_its_peers_do_not_reach_is_named_from_text(is_old: bool):
    assert told(read(ras_text(missing=[5], is_old=is_old))) == [("stopped", 5)]


@pytest.mark.parametrize("is_spoilt", [False, True])
def test_a_rank_that_its_peers_do_not_reach_is_named_from_json(is_spoilt: bool):
    ranks = {rank: launched for rank, launched in counts(12, {}).items() if rank != 3}
    text = ras_json([("c1", ranks)], missing=[3], is_spoilt=is_spoilt)
    assert told(read(text)) == [("stopped", 3)]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_lone_rank_behind_is_named_once_nothing_moves(is_old: bool):
    report = ras_text(launched={6: 649}, is_old=is_old)
    assert told(read(report)) == []
    assert "take another one" in read(report).gaps[Collector.PROGRESS]
    assert told(read(report, report)) == [("absent", 6)]
    assert told(read(report + report)) == [("absent", 6)]


def test_a_job_that_moves_is_no_hang():
    evidence = read(ras_text(launched={6: 649}), ras_text(launched={6: 659}, most=660))
    assert told(evidence) == []
    assert "launched more" in evidence.gaps[Collector.PROGRESS]
    assert evidence.progress == ()  # at an unknown time
    first = ras_json([("c1", counts(10, {2: 9}))])
    assert told(read(first, ras_json([("c1", counts(11, {2: 9}))], taken=LATER))) == []
    assert told(read(first, ras_json([("c1", counts(10, {2: 9}))], taken=LATER))) == [("absent", 2)]


@pytest.mark.parametrize(("ahead", "rises"), [(11, True), (10, False)])
def test_a_job_moves_if_each_of_its_ranks_launched_more_between_two_dated_reports(
    ahead: int, rises: bool
):
    first = ras_json([("c1", counts(10, {}))])
    (progress,) = read(first, ras_json([("c1", counts(11, {2: ahead}))], taken=LATER)).progress
    assert (progress.after > progress.before) is rises
    assert progress.until > progress.since


def test_the_same_report_twice_is_one_report():
    assert told(read(*[ras_json([("c1", counts(10, {2: 9}))])] * 2)) == []


def test_several_ranks_behind_name_none():
    """A rank that waits for a message of the one at fault has launched less as well."""
    evidence = read(*[ras_text(launched={6: 649, 2: 649})] * 2)
    assert told(evidence) == []
    assert "sends and receives" in evidence.gaps[Collector.PROGRESS]


def test_a_small_group_is_mapped_to_ranks_of_the_job_by_processes():
    world = ("c1", {rank: {"AllReduce": 4} for rank in range(8)})
    pair = ("c2", {4: {"AllGather": 9}, 5: {"AllGather": 8}})
    reports = [ras_json([world, pair], taken=taken) for taken in ("2026-11-23 05:00:00", LATER)]
    assert told(read(*reports)) == [("absent", 5)]


def test_if_most_ranks_do_not_answer_the_asked_one_is_cut_off_and_none_is_named():
    evidence = read(ras_text(missing=[0, 1, 2, 3]))
    assert told(evidence) == []
    assert "4 of 8 ranks do not answer" in evidence.gaps[Collector.PROCESSES]


def test_reports_are_read_from_a_folder_in_the_order_of_their_dates(tmp_path: Path):
    (tmp_path / "z.json").write_text(
        ras_json([("c1", counts(10, {}))], taken="2026-11-22 05:00:00")
    )
    for name, taken in (("a.json", LATER), ("b.json", "2026-11-23 05:00:00")):
        (tmp_path / name).write_text(ras_json([("c1", counts(11, {4: 7}))], taken=taken))
    assert told(read_ras(tmp_path)) == [("absent", 4)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no report of NCCL's RAS"),
        ("{", "no report of NCCL's RAS"),
        ("{}", "no list of communicators"),
        ('{"communicators": [{"size": 9000000}]}', "size is 9000000"),
        (ras_text(launched={9: 1}), "has 8 ranks, and rank 9"),
        (ras_json([]), "no communicators"),
        ("Job summary\nCommunicators...\nNo communicator data collected!\n", "no communicators"),
    ],
)
def test_a_text_without_a_report_of_ras_is_one_sentence(text: str, why: str, tmp_path: Path):
    (tmp_path / "r").write_text(text)
    with pytest.raises(EvidenceError, match=why):
        read_ras(tmp_path / "r")


def test_text_of_millions_of_ranks_is_refused():
    section = "#0-0 (ab) MISMATCH\nCommunicator ranks have different AllReduce operation counts\n"
    section += "9 ranks have launched up to operation 1\n"
    text = f"Job summary\nCommunicators...\n0 1 1 1 999999 1 RUNNING MISMATCH\n{section * 4}"
    with pytest.raises(EvidenceError, match="more than 2,000,000 ranks"):
        parse_ras(text, "r")
