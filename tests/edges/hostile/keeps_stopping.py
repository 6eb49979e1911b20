#!/usr/bin/env python3
"""Stops its guardian and the guardian's front again and again."""

import os
import signal
import time
from pathlib import Path

guardian = os.getppid()
front = int(Path(f"/proc/{guardian}/stat").read_text().rpartition(")")[2].split()[1])
while True:
    for pid in (front, guardian):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.001)
