"""Which GPUs this machine has and this process may use, without asking a driver that may hang."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

NOT_CHOSEN = {"", "-1", "NoDevFiles"}  # as Slurm says it; whatever follows is not seen either


def cards(root: Path | None = None) -> list[str]:
    """The kernel's device files of GPUs, by number: they stay when a GPU falls off the bus."""
    devices = (root or Path(os.environ.get("ANUBIS_HOST_ROOT", "/"))) / "dev"
    names = [card.name for card in devices.glob("nvidia[0-9]*")]
    return sorted(names, key=lambda name: int(re.sub(r"\D", "", name)))


def chosen(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES names, number by number or UUID by UUID; None: nobody chose."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    end = next((place for place, word in enumerate(words) if word in NOT_CHOSEN), len(words))
    return words[:end]


def expected() -> int:
    """How many GPUs a process must see here: those chosen, or all that have a device file."""
    names = chosen()
    return len(cards()) if names is None else len(names)
