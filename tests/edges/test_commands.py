"""Other people's commands, and what they leave behind."""

from __future__ import annotations

import os
import subprocess

from anubis.reach.orchestrators import site_commands


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
