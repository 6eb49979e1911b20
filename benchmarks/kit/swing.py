"""A load that swings: work and rest by turns, on a clock that all GPUs of a node share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Swing:
    """Periods from a moment of the steady clock on: half of each is work, the other half rest."""

    period_s: float
    origin: float
    late_s: list[float] = field(default_factory=list)  # of each time of work
    periods: int = 0  # until the last of them

    def next_start(self, now: float) -> float:
        """Return when the next period begins; one that has begun is missed."""
        return self.origin + self.period_s * max(
            0, math.ceil((now - self.origin) / self.period_s - 1e-9)
        )

    def wait(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        start = self.next_start(clock())
        sleep(max(0.0, start - clock()))
        self.late_s.append(clock() - start)
        self.periods = round((start - self.origin) / self.period_s) + 1

    def facts(self) -> dict[str, float]:
        late_ms = [1e3 * late_s for late_s in self.late_s]
        return {
            "swings": len(late_ms),
            "missed": self.periods - len(late_ms),
            "late_ms_median": median(late_ms),
            "late_ms_max": max(late_ms),
        }
