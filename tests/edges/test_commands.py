"""Other people's commands, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from anubis.core.errors import OrchestratorError
from anubis.reach.orchestrators import site_commands
from tests.patience import LIMIT_S, eventually


def test_a_command_that_outlives_sigkill_is_not_waited_for(monkeypatch):
    """It is stuck in the kernel, as on a file server that is away."""

    class Stuck:
        pid = 7
        stdin = stdout = stderr = None

        def wait(self, timeout):
            raise subprocess.TimeoutExpired("scontrol", timeout)

    killed = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    site_commands._end(Stuck())
    assert killed == [7]


def test_a_command_is_over_when_its_process_ends_even_if_its_output_stays_open():
    """So ssh leaves a process behind for its next connections."""
    words = ["sh", "-c", f"sleep {2 * LIMIT_S} & echo done"]
    assert site_commands.run_command(words, LIMIT_S) == "done\n"


def test_a_flood_of_a_command_is_kept_in_part_with_its_last_words(
    monkeypatch,
):
    monkeypatch.setattr(site_commands, "MOST_BYTES", 1000)
    floods = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; echo >&2; echo the end >&2"
    with pytest.raises(OrchestratorError, match="printed 300,000 bytes, too many to read"):
        site_commands.run_command(["sh", "-c", floods], LIMIT_S)
    with pytest.raises(OrchestratorError, match=r": the end$"):
        site_commands.run_command(["sh", "-c", f"{floods}; exit 3"], LIMIT_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")
def test_another_user_with_the_mark_of_a_command_is_left_alone_and_hides_none():
    env = {**os.environ, site_commands.MARK: "bed/7/1.0"}
    another_user, command = (
        subprocess.Popen(["sleep", "1000"], env=env, user=user, start_new_session=True)
        for user in (65534, None)
    )
    both = (another_user, command)
    environments = [Path(f"/proc/{process.pid}/environ") for process in both]
    try:
        # the kernel shows them a moment after the programs have begun
        assert eventually(lambda: all(b"bed/7/1.0" in file.read_bytes() for file in environments))
        assert site_commands.end_marked("bed/7/1.0")
        assert command.wait(LIMIT_S) == -signal.SIGKILL
        assert another_user.poll() is None
    finally:  # one that is left would be the first to be ended the next time
        for process in both:
            process.kill()
            process.wait()
