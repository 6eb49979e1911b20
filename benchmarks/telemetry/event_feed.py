"""Events of this node for the service: lines of the kernel and states of GPUs, at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from telemetry.kernel_lines import KernelLines, LogLine
from telemetry.line_sender import LineSender
from telemetry.sources import Line


class EventFeed:
    def __init__(self, sender: LineSender, log: Path) -> None:
        self._sender, self._kernel = sender, KernelLines(log, sender.add)

    def begin(self) -> None:
        for run, name in ((self._sender.run, "sender"), (self._kernel.run, "kernel log")):
            threading.Thread(target=run, daemon=True, name=name).start()

    def note(self, id: str, text: str) -> None:
        """Pass on what NVML reports."""
        now = time.time()
        self._sender.add(LogLine(f"nvml-{id}-{now:.0f}", round(now, 3), time.monotonic(), text))

    def lines(self) -> Iterator[Line]:
        yield from self._kernel.lines()
        yield from self._sender.lines()
