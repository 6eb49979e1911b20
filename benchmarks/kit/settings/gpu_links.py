"""How the GPUs of a node reach each peer, by `nvidia-smi topo -m`: NVLinks, or the way over PCIe.

The order of its words is from near to far: NV18 (so many NVLinks), PIX (one PCIe bridge), PXB
(several), PHB (the host's bridge), NODE (within a NUMA node), SYS (between processors).
"""

from __future__ import annotations

import re

from contract import NotApplicable, Unmeasured

from kit.gpus.readings import Unread
from kit.numa import show_list
from kit.tools import find, require_success, run

UNDERLINED = re.compile(r"\x1b\[\d*m")  # the header, whether or not a terminal shows it
GPU = re.compile(r"GPU(\d+)")
SELF = "X"
WORD = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")

Links = dict[int, dict[int, str]]  # by GPU, and the GPU that it reaches


def read_links(limit_s: float) -> Links:
    """Return what NVIDIA's tool says. Unread: it says nothing, or something else."""
    try:
        command = [find("nvidia-smi"), "topo", "-m"]
        return parse(require_success(run(command, limit_s), "nvidia-smi topo -m"))
    except (NotApplicable, Unmeasured) as error:
        raise Unread(str(error)) from None


def parse(text: str) -> Links:
    """Parse the corner of the table that is about GPUs: adapters and affinities follow it."""
    rows = [row for line in text.splitlines() if (row := UNDERLINED.sub("", line).split())]
    heads = [row for row in rows if GPU.fullmatch(row[0]) and row[1:2] != [SELF]]
    gpus = leading_gpus(heads[0]) if heads else []
    table = {row[0]: row[1 : 1 + len(gpus)] for row in rows if row[0] in gpus and row != heads[0]}
    if not gpus or [*table] != gpus:
        raise Unread("nvidia-smi topo -m shows no table of GPUs that is known")
    links: Links = {}
    for gpu, words in table.items():
        of_gpu = {peer: word for peer, word in zip(gpus, words, strict=False) if peer != gpu}
        odd = [word for word in of_gpu.values() if not WORD.fullmatch(word)]
        if odd or len(words) < len(gpus) or words[gpus.index(gpu)] != SELF:
            shown = odd[0] if odd else " ".join(words)
            raise Unread(f'nvidia-smi topo -m says "{shown}" of {gpu}, which is not known')
        links[number(gpu)] = {number(peer): word for peer, word in of_gpu.items()}
    return links


def leading_gpus(row: list[str]) -> list[str]:
    end = next((place for place, word in enumerate(row) if not GPU.fullmatch(word)), len(row))
    return row[:end]


def number(gpu: str) -> int:
    return int(gpu.removeprefix("GPU"))


def describe(links: dict[int, str]) -> str:
    """Return `NV18 to 1-7`, with a part for each way."""
    ways: dict[str, list[int]] = {}
    for peer, word in links.items():
        ways.setdefault(word, []).append(peer)
    return "; ".join(f"{word} to {show_list(peers)}" for word, peers in sorted(ways.items()))
