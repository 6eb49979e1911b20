"""torchrun gives each rank a session of its own; a killed launcher must not leave them running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LIMIT_S, eventually


def ranks_with(argument: str, launcher: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words and int(process.name) != launcher:
            found.append(int(process.name))
    return found


def loads_torch(process: int) -> bool:
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@pytest.mark.long
def test_ranks_end_when_their_launcher_is_killed(benchmark_file, tmp_path):
    log, scratch = tmp_path / "stderr", tmp_path / "scratch"
    scratch.mkdir()
    endless = f"--samples={1_000_000 + os.getpid()}"
    with log.open("wb") as stderr:
        launcher = subprocess.Popen(
            [sys.executable, benchmark_file("collective"), endless, "--operations=all_reduce"],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
    # past the import of contract, into the long import of torch or beyond
    assert eventually(lambda: sum(map(loads_torch, ranks_with(endless, launcher.pid))) == 2)
    launcher.kill()
    launcher.wait()
    try:
        assert eventually(lambda: not ranks_with(endless, launcher.pid))
    finally:
        for rank in ranks_with(endless, launcher.pid):
            os.kill(rank, signal.SIGKILL)
    assert not list(scratch.iterdir())


def test_a_rank_whose_launcher_was_already_dead_ends_at_once(benchmark_file):
    as_rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "ANUBIS_LAUNCHER": "1"}
    rank = subprocess.run(
        [sys.executable, benchmark_file("collective"), "--operations=all_reduce"],
        capture_output=True,
        env={**os.environ, **as_rank},
        timeout=LIMIT_S,
    )
    assert (rank.returncode, rank.stdout) == (1, b"")
    assert rank.stderr.startswith(b"its launcher ended")
