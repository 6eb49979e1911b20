"""Programs that a server forks end as those of an interpreter, and leave nothing behind."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import forks

from anubis.reach.executors import guardian
from anubis.reach.executors.forked_python import ForkedPython
from tests.contract.conftest import BENCHMARKS
from tests.patience import LIMIT_S, eventually

SERVER = BENCHMARKS / "kit" / "forks.py"
SAYS = "import sys; print('out', *sys.argv[1:], flush=True); print('err', file=sys.stderr); "
LEAVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
"""
SESSION = "    os.setsid()\n"
DAEMON = LEAVES.replace(SESSION, f"    if os.fork():\n        os._exit(0)\n{SESSION}")
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


class Lent:
    """A server that loads nothing, and orders that may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.forked = folder, ForkedPython()
        self.loads_nothing = folder / "kit"
        self.loads_nothing.mkdir()
        quick = SERVER.read_text().replace('load(sys.argv[2:] or ["torch"])', "load([])")
        (self.loads_nothing / "forks.py").write_text(quick)
        stand_in = (SERVER.parent / "forked_python").read_text()
        (self.loads_nothing / "forked_python").write_text(stand_in)
        (self.loads_nothing / "forked_python").chmod(0o755)

    def order(self, text: str, *words: object, **env: str) -> dict:
        program = self._folder / "program.py"
        program.write_text(text)
        argv = [sys.executable, str(program), *map(str, words)]
        order = {"argv": argv, "env": env, "forks": str(self.loads_nothing / "forks.py")}
        order["by_gpu"] = "ANUBIS_GPU" in env
        return self.forked.lend(order, os.environ)

    def start(self, order: dict) -> subprocess.Popen:
        first = order["env"].get("PYTHON_EXEC", sys.executable)
        return subprocess.Popen(
            [first, *order["argv"][1:]],
            env={**os.environ, **order["env"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Lent]:
    lent = Lent(tmp_path)
    yield lent
    lent.forked.end()


def pid_in(file: Path) -> int:
    assert eventually(lambda: file.exists() and file.read_text())
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the second if it ends between open and read
        return True


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 11)", -11)],
)
def test_a_program_ends_as_by_an_interpreter(lent, end, code):
    process = lent.start(lent.order(SAYS + end, "a", "b"))
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (code, "out a b\n")
    assert err.startswith("err\n")


def test_a_program_dies_with_its_requester_and_the_guardian_finds_none_left(lent, tmp_path):
    order = lent.order(SLEEPS, tmp_path / "pid")
    process = lent.start(order)
    pid = pid_in(tmp_path / "pid")
    process.kill()
    process.communicate()
    assert guardian.forked_for(order, "gone") == []
    assert is_gone(pid)


def test_time_that_a_program_waited_for_a_processor_counts_though_the_server_started_it(
    lent, tmp_path, monkeypatch
):
    orders = [lent.order(SLEEPS, tmp_path / name) for name in ("first", "second")]
    programs = [lent.start(order) for order in orders]
    pids = [pid_in(tmp_path / name) for name in ("first", "second")]
    monkeypatch.setattr(guardian, "kept_waiting_s", lambda asked: len({*pids} & {*asked}))
    limits = {"timeout_s": 1.0, "longest_s": 9.0}
    for order, program, pid in zip(orders, programs, pids, strict=True):
        assert guardian.forked_for(order, "running") == [pid]
        assert guardian.granted_s({**order, **limits}, program.pid) == 1.0
    for program in programs:
        program.kill()
        program.communicate()


def test_processes_that_a_program_leaves_behind_are_ended(lent, tmp_path):
    process = lent.start(lent.order(LEAVES, tmp_path / "pid"))
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert eventually(lambda: is_gone(pid_in(tmp_path / "pid")))


def test_background_processes_of_one_program_outlive_the_end_of_another(lent, tmp_path):
    keeper = lent.start(lent.order(f"{DAEMON}\ntime.sleep(600)", tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")
    for _ in range(2):  # the server looks around after each
        lent.start(lent.order(SAYS)).communicate(timeout=LIMIT_S)
    time.sleep(0.1)
    assert not is_gone(pid)
    keeper.kill()
    keeper.communicate()
    assert eventually(lambda: is_gone(pid))


def test_the_end_of_the_server_ends_its_programs(lent, tmp_path):
    process = lent.start(lent.order(SLEEPS, tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")
    lent.forked.end()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == -signal.SIGKILL
    assert eventually(lambda: is_gone(pid))


def test_without_a_server_the_stand_in_is_the_interpreter(lent):
    order = lent.order(SAYS)
    lent.forked.end()
    process = lent.start(order)
    assert process.communicate(timeout=LIMIT_S) == ("out\n", "err\n")
    assert guardian.forked_for(order, "gone") == []


def test_no_python3_on_path_is_needed_and_a_folder_in_which_nothing_may_run_is_no_failure(
    lent, tmp_path, monkeypatch
):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 77\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert lent.start(lent.order(SAYS)).communicate(timeout=LIMIT_S)[0] == "out\n"
    (lent.loads_nothing / "forked_python").chmod(0o644)
    assert lent.order(SAYS)["forks"] == ""


def test_a_program_with_other_libraries_is_started_by_itself(lent):
    assert lent.order(SAYS)["forks"].startswith("@anubis-")
    assert lent.order(SAYS, LD_PRELOAD="other.so")["forks"] == ""


def test_a_program_that_crashes_writes_as_large_a_core_as_its_requester_may(lent):
    shows = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
    order = lent.order(shows)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    lent.start(order).communicate(timeout=LIMIT_S)  # by then the server has its own limit
    other = 0 if soft else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (other, hard))
    try:
        out, _ = lent.start(order).communicate(timeout=LIMIT_S)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert out.split()[0] == str(other)


def test_a_request_is_not_sent_to_another_user_under_the_name_of_an_ended_server(monkeypatch):
    name = f"anubis-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
        taken.bind(f"\0{name}")
        taken.listen()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # so that we are the other
        with pytest.raises(ConnectionError, match="another user"):
            forks.ask(f"@{name}", ["program.py"], (1, 2))
        other, _ = taken.accept()
        with other:
            assert other.recv(100) == b""


def test_a_stranger_is_none_of_ours():
    class Line:
        def getsockopt(self, *_: int) -> bytes:
            return struct.pack("3i", 1, os.geteuid() + 1, 0)

    assert not forks.is_ours(Line())


# --- processes that stay with a GPU -----------------------------------------------------------

OF_GPU = {"ANUBIS_GPU": "cuda:0"}
KNOWS = "import os, sys; print(os.getpid(), *sys.argv[1:], hasattr(sys, 'met'), flush=True); "


def ran(lent: Lent, text: str, *words: object, **env: str) -> tuple[int, list[str]]:
    process = lent.start(lent.order(KNOWS + text, *words, **{**OF_GPU, **env}))
    out, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, out.split()


def test_programs_of_one_gpu_run_in_turn_in_one_process_and_each_finds_its_own(lent, tmp_path):
    (tmp_path / "own.py").write_text("number = 1")
    sets = "import own; own.number += 1; sys.path.insert(0, 'x'); print(own.number, len(sys.path))"
    (first, second) = (ran(lent, sets, word, ANUBIS_LIMIT_S=word) for word in "ab")
    assert first == (0, [first[1][0], "a", "False", "2", first[1][-1]])
    assert second == (0, [first[1][0], "b", "False", "2", first[1][-1]])


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(1)", 1),
        ("os.kill(os.getpid(), 11)", -11),
        ("import threading; threading.Thread(target=sys.stdin.read, daemon=True).start()", 0),
        ("import threading; t = threading.Timer(60, print); t.daemon = True; t.start()", 0),
    ],
)
def test_a_program_that_fails_or_leaves_a_thread_is_followed_by_a_new_process(lent, end, code):
    (ended, first), (_, second) = ran(lent, end), ran(lent, "")
    assert ended == code
    assert (first[0] == second[0]) is ("stdin" in end)  # that thread ends by itself


@pytest.mark.parametrize("is_numbered_otherwise", [False, True])
def test_a_process_that_stays_is_no_stranger_on_its_gpu(lent, monkeypatch, is_numbered_otherwise):
    _, (word, *_) = ran(lent, "")
    pid = int(word)
    seen_as = pid + is_numbered_otherwise  # as the host numbers the processes of a container
    monkeypatch.setattr(guardian, "gpu_processes", lambda: [] if is_gone(pid) else [seen_as])
    assert guardian.occupied_by(lent.order("", **OF_GPU), patience_s=LIMIT_S / 2) == ""
    assert is_gone(pid) is is_numbered_otherwise


def test_a_process_that_stays_leaves_before_a_program_that_may_want_all_of_its_gpu(lent):
    _, (pid, *_) = ran(lent, "")
    lent.order("")
    assert eventually(lambda: is_gone(int(pid)))


def test_a_program_that_is_killed_takes_the_process_along_that_would_have_stayed(lent, tmp_path):
    _, (pid, *_) = ran(lent, "")
    process = lent.start(lent.order(SLEEPS, tmp_path / "pid", **OF_GPU))
    assert pid_in(tmp_path / "pid") == int(pid)
    process.kill()
    process.communicate()
    assert eventually(lambda: is_gone(int(pid)))
