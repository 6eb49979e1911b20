"""The findings of node_health: samples by metric and device, facts, and what could not be read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# below it lie sys, proc and dev; a container that has the host's elsewhere says where
ROOT = Path(os.environ.get("ANUBIS_HOST_ROOT", "/"))


@dataclass
class Findings:
    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)  # what could not be read, and why

    def add(self, metric: str, device: str, *values: float) -> None:
        self.samples.setdefault((metric, device), []).extend(values)

    def miss(self, name: str, why: object) -> None:
        """Keep the first reason why something is missing: eight GPUs lack a sensor for the same
        reason."""
        self.unread.setdefault(name, str(why))
