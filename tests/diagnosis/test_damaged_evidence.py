"""A file that cannot be read hides no other one, for each collector."""

from __future__ import annotations

import json
import time

import pytest

from anubis.config import configs
from anubis.core.diagnose.evidence import Pulse
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.live import LiveAnswer, LiveLook, LiveRank
from anubis.readers.jobs.live_trace import read_live, write_look
from anubis.readers.jobs.ranks import number_ranks
from anubis.readers.jobs.trace_reader import TraceContext, trace_readers
from tests.diagnosis.made_recorders import inspector_files, ras_text, scrape
from tests.diagnosis.test_steps import trace

CONTEXT = TraceContext(
    ranks=number_ranks(["n0", "n1"], 4), classes=configs.error_classes(), zone=None, look=None
)
DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [],
}
FILES = {  # sound files of each collector
    "dumps": {f"dump_{rank}.json": json.dumps(DUMP) for rank in range(2)},
    "kernel": {f"n{number}.log": "[1.0] usb 1-1: new device\n" for number in range(2)},
    "logs": {f"rank_{rank}.log": "step 1\n" for rank in range(2)},
    "traces": {f"rank{rank}.json": trace(rank, 5e5, 1e6) for rank in range(2)},
    "inspector": inspector_files(),
    "ras": {f"{number}.txt": ras_text(missing=[5]) for number in range(2)},
    "xpu-timer": {"n0": scrape({0: True}), "n1": scrape({1: True})},
}
DAMAGE = b"\x1f\x8b\x08\x00damaged"  # what says that it is packed, and is not


@pytest.mark.parametrize("place", FILES)
def test_a_damaged_file_is_a_gap_and_hides_no_other_file(place, tmp_path):
    for name, text in FILES[place].items():
        (tmp_path / name).write_text(text)
    reader = trace_readers()[place]
    sound = reader.read(tmp_path, CONTEXT)
    (tmp_path / "a9.json").write_bytes(DAMAGE)  # before the others, by its name
    (tmp_path / "a_9.log").write_bytes(DAMAGE)
    evidence = reader.read(tmp_path, CONTEXT)
    assert evidence.collectors == sound.collectors
    assert any("a9.json" in why or "a_9.log" in why for why in evidence.gaps.values())
    for name in FILES[place]:
        (tmp_path / name).unlink()
    with pytest.raises(EvidenceError, match=r"a9\.json|a_9\.log"):
        reader.read(tmp_path, CONTEXT)


def look_of(*ranks, at, pulse=Pulse.ANSWERS):
    answers = (
        LiveAnswer(
            rank=LiveRank(rank=rank, pid=1, socket="", host="n0", world=4, here=2), pulse=pulse
        )
        for rank in ranks
    )
    return LiveLook(at=at, answers=tuple(answers))


def kept(folder, name, look):
    write_look(look, folder).rename(folder / f"{name}.look")


def pulses(folder):
    return {state.rank: state.pulse for state in read_live(folder).processes}


def test_damaged_or_future_answers_of_machines_hide_no_others(tmp_path):
    now = time.time()
    kept(tmp_path, "n1", look_of(0, 1, at=now - 5))
    kept(tmp_path, "n2", look_of(2, 3, at=now + 1e5, pulse=Pulse.GONE))
    (tmp_path / "n0.look").write_bytes(DAMAGE)
    assert pulses(tmp_path) == dict.fromkeys((0, 1), Pulse.ANSWERS)
    assert any("n0.look" in why for why in read_live(tmp_path).gaps.values())
    (tmp_path / "n1.look").unlink()
    with pytest.raises(EvidenceError, match=r"n0\.look"):
        read_live(tmp_path)


def test_a_rank_that_moved_to_another_machine_is_as_it_was_found_last(tmp_path):
    now = time.time()
    kept(tmp_path, "n1", look_of(0, 1, at=now - 60, pulse=Pulse.GONE))
    kept(tmp_path, "n2", look_of(0, 1, at=now))
    assert pulses(tmp_path) == dict.fromkeys((0, 1), Pulse.ANSWERS)
