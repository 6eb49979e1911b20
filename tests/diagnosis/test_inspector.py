"""Lines of NCCL Inspector: the slow ranks that they show, and lines that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from anubis.core.errors import EvidenceError
from anubis.readers.jobs.inspector import parse_inspector, read_inspector
from tests.diagnosis.made_recorders import WORLD, inspector_files
from tests.diagnosis.test_steps import named

PAIRS = {f"0x{pair}": (2 * pair, 2 * pair + 1) for pair in range(4)}


def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("slow", [0, 5])
def test_a_rank_that_is_last_in_collectives_of_all_is_named(tmp_path: Path, slow: int):
    assert named(read_inspector(folder(tmp_path, inspector_files(slow={slow: 1.6})))) == [slow]


def test_ranks_of_groups_are_those_of_the_job_and_a_victim_is_not_named(tmp_path: Path):
    """The other one of rank 5's pair waits for it, and then comes to the rest as late."""
    files = inspector_files(slow={5: 1.8}, groups=PAIRS)
    assert named(read_inspector(folder(tmp_path, files))) == [5]


def test_no_rank_is_named_if_none_is_slow_or_all_are(tmp_path: Path):
    assert named(read_inspector(folder(tmp_path, inspector_files(groups=PAIRS)))) == []
    all_slow = inspector_files(slow=dict.fromkeys(range(8), 1.8))
    assert named(read_inspector(folder(tmp_path, all_slow))) == []


def test_a_job_moves_as_far_as_the_rank_that_has_written_nothing_for_longest(tmp_path: Path):
    files = inspector_files()
    name = sorted(files)[3]
    files[name] = "".join(files[name].splitlines(keepends=True)[:20])
    (progress,) = read_inspector(folder(tmp_path, files)).progress
    assert (progress.before, progress.after) == (0, 19)


def test_lines_that_were_never_written_change_nothing(tmp_path: Path):
    files = inspector_files(slow={2: 1.6}, calls=300, lost=0.1)
    assert named(read_inspector(folder(tmp_path, files))) == [2]


def test_the_last_processes_of_a_restarted_job_count(tmp_path: Path):
    first = {
        name.replace("pid1", "pid2"): text.replace('"pid": 1', '"pid": 2')
        .replace("17900000", "17890000")
        .replace(WORLD, "0xabc")
        for name, text in inspector_files(slow={1: 1.6}).items()
    }
    assert named(read_inspector(folder(tmp_path, {**first, **inspector_files(slow={6: 1.6})}))) == [
        6
    ]


def test_times_of_the_host_alone_are_left_out(tmp_path: Path):
    files = {
        name: text.replace("kernel_gpu", "collective_cpu")
        for name, text in inspector_files(slow={5: 1.6}).items()
    }
    with pytest.raises(EvidenceError, match="no lines"):
        read_inspector(folder(tmp_path, files))


def test_torn_first_and_last_lines_are_no_damage_and_more_is_one_sentence():
    lines = inspector_files()["n0-pid1000.log"].splitlines()
    assert len(parse_inspector([lines[0][50:], *lines[1:-1], lines[-1][:90]], "f")) == 38
    with pytest.raises(EvidenceError, match=r"^f: line 1 of its end: .*2 more of 40 lines"):
        parse_inspector(["{", "1", '{"header": {}}', *lines[3:]], "f")


def test_one_broken_file_is_a_gap_and_a_folder_of_others_is_refused(tmp_path: Path):
    files = {**inspector_files(slow={2: 1.6}), "n1-pid1007.log": ""}
    with pytest.raises(EvidenceError, match="no rank can be compared"):
        read_inspector(folder(tmp_path, files))
    (gap,) = read_inspector(
        folder(tmp_path, {**inspector_files(slow={2: 1.6}), "other.log": "word\n"})
    ).gaps.values()
    assert "other.log" in gap
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvidenceError, match="has no lines"):
        read_inspector(tmp_path / "empty")
    with pytest.raises(EvidenceError, match="cannot read"):
        read_inspector(tmp_path / "nowhere")
