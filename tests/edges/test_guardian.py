"""The guardian by itself: one order in, one outcome out, and no process of its program left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anubis.reach.executors import guardian
from tests.patience import eventually

SOURCE = Path(guardian.__file__).read_text()


def start(*argv: str, source: str = SOURCE, **order: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin
    line = {"argv": argv, "cwd": "/", "timeout_s": 30, **order}
    process.stdin.write(json.dumps(line).encode() + b"\n")
    return process


def outcome_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    outcome: dict[str, Any] = json.loads(process.stdout.read())
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0
    return outcome


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", "-c", code


def alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def pid_in(file: Path) -> int:
    assert eventually(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def test_the_outcome_has_the_end_of_the_program_and_its_output() -> None:
    outcome = outcome_of(
        start("sh", "-c", 'echo "$GREETING"; echo alas >&2; exit 5', env={"GREETING": "hello"})
    )
    assert (outcome["exit"], outcome["signal"]) == (5, None)
    assert (outcome["stdout"], outcome["stderr"]) == ("hello\n", "alas\n")
    assert not any(outcome[how] for how in ("timed_out", "flooded", "killed", "left_behind"))
    assert outcome["started_at"] == pytest.approx(time.time(), abs=60)


def test_the_last_output_of_a_program_is_kept_to_the_last_byte() -> None:
    outcome = outcome_of(start(*python("import os; os.write(1, b'x' * 60000); os._exit(0)")))
    assert outcome["stdout"] == "x" * 60000


def test_a_long_stderr_keeps_its_head_and_its_tail() -> None:
    code = "import sys; sys.stderr.write('first' + '.' * 1000000 + 'last')"
    stderr = outcome_of(start(*python(code), stderr_limit=100))["stderr"]
    assert stderr.startswith("first")
    assert stderr.endswith("last")
    assert "[999909 bytes left out]" in stderr


def test_exactly_the_limit_is_no_flood_and_one_byte_more_is() -> None:
    for size, flooded in ((100, False), (101, True)):
        outcome = outcome_of(start(*python(f"print('x' * {size}, end='')"), stdout_limit=100))
        assert outcome["flooded"] is flooded


def test_a_program_may_tidy_up_after_its_deadline() -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('tidied'))\n"
        "print('ready', file=sys.stderr, flush=True); time.sleep(600)\n"
    )
    outcome = outcome_of(start(*python(code), timeout_s=1, grace_s=20))
    assert outcome["timed_out"]
    assert outcome["stderr"] == "ready\ntidied\n"


def test_a_program_gets_the_time_in_which_others_kept_it_from_a_processor_up_to_a_bound() -> None:
    assert "waits_ns = [0]" in SOURCE
    long, short = (SOURCE.replace("waits_ns = [0]", f"waits_ns = [{s}e9]") for s in (3e3, 2))
    waited = outcome_of(start("sleep", "0.5", source=long, timeout_s=0.1, longest_s=6e3))
    assert (waited["exit"], waited["timed_out"]) == (0, False)
    hung = outcome_of(start("sleep", "600", source=short, timeout_s=0.1, longest_s=3))
    assert hung["timed_out"]
    assert 2.0 <= hung["waited_s"] <= 2.9
    unbounded = outcome_of(start("sleep", "600", source=long, timeout_s=0.1))
    assert (unbounded["timed_out"], unbounded["waited_s"]) == (True, 0.0)


@pytest.mark.skipif(
    not Path("/proc/self/task", str(os.getpid()), "schedstat").exists(),
    reason="this kernel does not count how long threads wait for a processor",
)
def test_two_programs_on_one_processor_keep_each_other_waiting() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    two = [subprocess.Popen(python(code)) for _ in range(2)]
    try:
        assert eventually(lambda: guardian.kept_waiting_s(guardian.descendants(os.getpid())) > 0.1)
    finally:
        for process in two:
            process.kill()
            process.wait()


def test_the_end_of_its_stdin_ends_everything(tmp_path: Path) -> None:
    process = start("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 600")
    pid = pid_in(tmp_path / "pid")
    assert process.stdin
    process.stdin.close()
    outcome = outcome_of(process)
    assert outcome["killed"]
    assert outcome["left_behind"] == 1
    assert not alive(pid)


def test_the_guardian_outlives_the_kill_of_its_front_and_still_ends_the_program(
    tmp_path: Path,
) -> None:
    process = start("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 600")
    pid = pid_in(tmp_path / "pid")
    process.send_signal(signal.SIGKILL)  # as Ray does to the children of its workers
    process.wait()
    assert alive(pid)
    assert process.stdin
    assert process.stdout
    process.stdin.close()
    with process.stdout:
        assert json.loads(process.stdout.read())["killed"]
    assert not alive(pid)


def test_the_program_does_not_outlive_a_killed_guardian(tmp_path: Path) -> None:
    process = start("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    pid = pid_in(tmp_path / "pid")
    parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        assert process.stdout.read() == b""  # silence is how a guardian's death is told
    process.wait()


LEAVES_A_DAEMON = """
import os, subprocess, sys, time
daemon = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"],
                          start_new_session=True)
print(daemon.pid, file=open(sys.argv[1], "w"), flush=True)
"""
PARENT_OF = "int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])"
STOPS = "import signal\npid = os.getppid(); os.kill(pid, signal.SIGSTOP)\n"
STOPS_THE_FRONT_TOO = f"{STOPS}os.kill({PARENT_OF}, signal.SIGSTOP); os.kill(pid, 19)\n"


def test_a_daemon_does_not_outlive_the_guardian_that_its_program_killed(
    tmp_path: Path,
) -> None:
    kills = f"{LEAVES_A_DAEMON}\nimport signal\nos.kill(os.getppid(), signal.SIGKILL)"
    process = start(*python(kills), str(tmp_path / "pid"))
    daemon = pid_in(tmp_path / "pid")
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        assert process.stdout.read() == b""
        process.wait()
    assert not alive(daemon)


def test_a_guardian_that_its_program_stopped_goes_on(tmp_path: Path) -> None:
    process = start(*python(f"{LEAVES_A_DAEMON}{STOPS}"), str(tmp_path / "pid"))
    daemon = pid_in(tmp_path / "pid")
    outcome = outcome_of(process)
    assert (outcome["exit"], outcome["left_behind"]) == (0, 1)
    assert not alive(daemon)


def test_a_front_that_was_stopped_as_well_is_ended_with_all_below(tmp_path: Path) -> None:
    code = f"{LEAVES_A_DAEMON}{STOPS_THE_FRONT_TOO}time.sleep(600)"
    process = start(*python(code), str(tmp_path / "pid"))
    daemon = pid_in(tmp_path / "pid")
    stat = Path(f"/proc/{process.pid}/stat")
    assert eventually(lambda: b") T " in stat.read_bytes())
    guardian.end_with_front(process.pid)
    process.wait()
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        assert process.stdout.read() == b""
    assert not alive(daemon)


def test_a_process_that_cannot_be_killed_is_reported_and_not_awaited(tmp_path: Path) -> None:
    powerless = SOURCE.replace("signal_all(signal.SIGKILL)", "pass").replace(
        "KILL_PATIENCE_S = 5.0", "KILL_PATIENCE_S = 0.1"
    )
    stubborn = f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 600"
    process = start("sh", "-c", stubborn, source=powerless, timeout_s=1, grace_s=0.1)
    pid = pid_in(tmp_path / "pid")
    outcome = outcome_of(process)
    assert outcome["timed_out"]
    assert pid in outcome["unkillable"]
    for stuck in outcome["unkillable"]:
        with suppress(ProcessLookupError):
            os.kill(stuck, signal.SIGKILL)


def test_a_missing_program_is_reported_as_such() -> None:
    outcome = outcome_of(start("/no/such/program"))
    assert "/no/such/program" in outcome["could_not_start"]
