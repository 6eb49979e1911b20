"""The GPUs that this machine has and this process may use, without asking a driver that may
hang."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kit.sysfs import text

NOT_CHOSEN = {"", "-1", "NoDevFiles"}  # as Slurm says it; whatever follows is not seen either
CHOOSING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# gfx_target_version of AMD's GPUs that compute: MI50, MI100, MI200, MI300, MI350
INSTINCT = {90006, 90008, 90010, 90402, 90500}
OWN_MEMORY = ("1", "2")  # heap_type of a memory bank that lies on the card
SMALLEST_BYTES = 4 << 30  # what a processor sets aside for its own graphics is less
INTEL = "0x8086"


def machine_root() -> Path:
    return Path(os.environ.get("ANUBIS_HOST_ROOT", "/"))


def cards(root: Path | None = None) -> list[str]:
    """List the kernel's device files of GPUs, by number: they stay when a GPU falls off the bus.

    AMD's share one file, and are named by their places in the topology behind it.
    """
    root = root or machine_root()
    names = [card.name for card in (root / "dev").glob("nvidia[0-9]*")]
    return sorted(names, key=lambda name: int(re.sub(r"\D", "", name))) or amd_cards(root)


def amd_cards(root: Path | None = None) -> list[str]:
    nodes = ((root or machine_root()) / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")
    return [
        f"kfd/{node.name}"
        for node in sorted(nodes, key=lambda node: int(node.name))
        if computes(node)
    ]


def computes(node: Path) -> bool:
    """Return true for a card; false for a processor and for what is built into one."""
    version = int(properties(node / "properties").get("gfx_target_version", "0"))
    banks = [properties(bank / "properties") for bank in (node / "mem_banks").glob("[0-9]*")]
    own = sum(int(b.get("size_in_bytes", 0)) for b in banks if b.get("heap_type") in OWN_MEMORY)
    return version in INSTINCT or (version > 0 and own >= SMALLEST_BYTES)


def properties(file: Path) -> dict[str, str]:
    """Parse lines of `name number`."""
    pairs = (line.split() for line in text(file).splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def intel_cards(root: Path | None = None) -> list[str]:
    """List addresses of cards, without what is built into a processor: that is on the first bus."""
    return [
        device.name
        for device in sorted(((root or machine_root()) / "sys/bus/pci/devices").glob("*"))
        if text(device / "vendor") == INTEL
        and text(device / "class").startswith("0x03")
        and not device.name.startswith("0000:00:")
    ]


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return the names in a list of visible GPUs, numbers or UUIDs; None if there is no list.

    Of several lists the shortest.
    """
    variable = choosing_variable(environment)
    return named_in(environment[variable]) if variable in environment else None


def choosing_variable(environment: Mapping[str, str] = os.environ) -> str:
    """Return the variable in which one of them may be chosen: the numbers in a list are its own."""
    lists = {name: named_in(environment[name]) for name in CHOOSING if name in environment}
    return min(lists, key=lambda name: len(lists[name]), default=CHOOSING[0])


def named_in(names: str) -> list[str]:
    words = [word.strip() for word in names.split(",")]
    end = next((place for place, word in enumerate(words) if word in NOT_CHOSEN), len(words))
    return words[:end]


def expected_count() -> int:
    """Return the number of GPUs that a process must see here: those chosen, or all that the kernel
    shows."""
    names = visible_gpus()
    return len(cards()) if names is None else len(names)
