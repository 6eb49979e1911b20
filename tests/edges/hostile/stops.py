#!/usr/bin/env python3
"""Stops its guardian, the guardian's front and itself."""

import os
import signal
from pathlib import Path


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


guardian = os.getppid()
for pid in (parent(guardian), guardian, os.getpid()):
    os.kill(pid, signal.SIGSTOP)
