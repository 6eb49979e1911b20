"""GPUs that are not NVIDIA's: AMD's by the kernel and its tools, and Intel's, which are only
reported.

It travels to the nodes with `machine.py`: the standard library only, and nothing of Anubis.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Ask = Callable[[list[str]], str]  # the stdout of a tool

# gfx_target_version of what computes: MI50, MI100, MI200, MI300, MI350
INSTINCT = {90006, 90008, 90010, 90402, 90500}
OWN_MEMORY = ("1", "2")  # heap_type of a memory bank that lies on the card
SMALLEST_BYTES = 4 << 30  # what a processor sets aside for its own graphics is less
INTEL = "0x8086"
TOOLS = {
    "amd-smi": ["amd-smi", "static", "--asic", "--json"],
    "rocm-smi": ["rocm-smi", "--showproductname", "--json"],
}


def amd_models(root: Path, ask: Ask) -> list[str]:
    """Return one name for each GPU that AMD's compute driver shows; without a tool that of its
    processor."""
    chips = [chip(int(version)) for version in amd_chips(root)]
    names = amd_names(ask) if chips else []
    return names if len(names) == len(chips) else [f"amd {name}" for name in chips]


def amd_chips(root: Path) -> Iterator[str]:
    """Yield the version of each GPU's instruction set, by the topology of /dev/kfd."""
    for node in sorted(
        (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*"), key=lambda path: int(path.name)
    ):
        version = properties(node / "properties").get("gfx_target_version", "0")
        if int(version) in INSTINCT or (int(version) and own_memory(node) >= SMALLEST_BYTES):
            yield version


def own_memory(node: Path) -> int:
    banks = [properties(bank / "properties") for bank in (node / "mem_banks").glob("[0-9]*")]
    own = (bank for bank in banks if bank.get("heap_type") in OWN_MEMORY)
    return sum(int(bank.get("size_in_bytes", "0")) for bank in own)


def properties(file: Path) -> dict[str, str]:
    """Parse lines of `name number`."""
    pairs = (line.split() for line in text(file).splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def chip(version: int) -> str:
    """Return the name of a version: 90402 is gfx942, and 90010 is gfx90a: minor and step are
    hexadecimal digits."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def amd_names(ask: Ask) -> list[str]:
    """Return the names of the GPUs by a tool of AMD's; complaints may precede its JSON."""
    for tool, argv in TOOLS.items():
        if shutil.which(tool):
            start = re.search(r"^\s*[\[{]", answer := ask(argv), re.M)
            try:
                document = json.loads(answer[start.start() :]) if start else {}
            except ValueError:
                continue
            names = [name for card in cards_in(document) if (name := market_name(card))]
            if names:
                return names
    return []


def cards_in(document: Any) -> list[dict[str, Any]]:
    """Return the cards of amd-smi, a list or under `gpu_data`, or those of rocm-smi, `card0`,
    `card1` …"""
    if isinstance(document, dict) and "gpu_data" not in document:
        return [document[name] for name in document if re.fullmatch(r"card\d+", name)]
    listed = document["gpu_data"] if isinstance(document, dict) else document
    return [card.get("asic", {}) for card in listed if isinstance(card, dict)]


def market_name(card: dict[str, Any]) -> str:
    by_key = {key.lower().replace(" ", "_"): str(value) for key, value in card.items()}
    names = (by_key.get(key, "") for key in ("market_name", "card_series"))
    return next((name for name in names if name not in ("", "N/A")), "")


def intel_gpus(root: Path) -> int:
    """Count cards, without what is built into a processor: that is on the first bus."""
    devices = [
        device
        for device in (root / "sys/bus/pci/devices").glob("*")
        if text(device / "vendor") == INTEL and text(device / "class").startswith("0x03")
    ]
    return sum(not device.name.startswith("0000:00:") for device in devices)


def text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
