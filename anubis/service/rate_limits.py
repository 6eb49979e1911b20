"""Limit how often a name may ask: its bucket fills steadily and may be emptied at once."""

from __future__ import annotations

from dataclasses import dataclass

MOST_BUCKETS = 10_000  # of addresses; beyond that all start full again


@dataclass
class Bucket:
    left: float
    at: float


class Rates:
    def __init__(self, per_s: float, at_once: float) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._buckets: dict[str, Bucket] = {}

    def allows(self, name: str, now: float) -> bool:
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(name, Bucket(left=self._at_once, at=now))
        filled = bucket.left + (now - bucket.at) * self._per_s
        bucket.left, bucket.at = min(self._at_once, filled), now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True
