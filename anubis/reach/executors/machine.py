"""The description of this machine: its hardware's name, its interfaces, a free port.

It travels to the nodes by value: the standard library only, and nothing of Anubis. It asks
nvidia-smi rather than a driver library, because a sick driver may never answer. GPUs of AMD are
described by the kernel and its tools; Intel's are only reported.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


SIOCGIFADDR = 0x8915  # of linux/sockios.h
TOOL_PATIENCE_S = 20.0  # nvidia-smi without persistence mode starts the driver
CHOOSING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# set by an order, unless they are set already
OPERATORS = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts about a node that the driver needs to write orders for it."""

    hostname: str
    address: str
    interface: str  # that owns the address; "" when none does, as behind a NAT
    python: str
    cores: int
    gpus: int
    sku: str
    is_set: frozenset[str]  # variables that the operator set there: leave them alone


def describe(address: str, environment: Mapping[str, str]) -> Machine:
    """Describe this machine as a program started in `environment` finds it. RuntimeError: it is too
    sick to be described."""
    root = Path(environment.get("ANUBIS_HOST_ROOT", "/"))
    chosen = chosen_gpus(environment)
    models, is_complete = gpu_models(root)
    gpus = visible(models, chosen)
    count = len(gpus)
    if not is_complete:  # a lost GPU keeps its device file, and its rank
        count = max(count, len(visible(cards(root), chosen)))
    if not count and chosen is None and (unknown := intel_gpus(root)):
        raise RuntimeError(
            f"it has {unknown} Intel GPUs, and only those of NVIDIA and AMD can be measured: an "
            'empty CUDA_VISIBLE_DEVICES ("") there has its processor measured instead'
        )
    return Machine(
        hostname=socket.gethostname(),
        address=address,
        interface=interface_of(address),
        python=sys.executable,
        cores=len(os.sched_getaffinity(0)),
        gpus=count,
        sku=sku_of(gpus or visible(cards(root), chosen), cpu_model()),
        is_set=frozenset(OPERATORS & environment.keys()),
    )


def sku_of(gpus: list[str], cpu: str) -> str:
    """Return the sku. The count is part of the name: a node that lost a GPU must not pass for a
    complete one, nor one with GPUs of two models for one with as many of the first."""
    return slug(" ".join(f"{name} {count}x" for name, count in Counter(gpus).items()) or cpu)


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", " ", words.lower())).strip("-")


def gpu_models(root: Path = Path("/")) -> tuple[list[str], bool]:
    """List one name for each GPU, or for each slice of one, and say whether the list is complete.

    nvidia-smi ends with an error when one GPU is lost or an infoROM is damaged, and lists the
    others.
    """
    if not cards(root) and (models := amd_models(root, ask)):
        return models, True
    if not shutil.which("nvidia-smi"):
        return [], False
    listing, exit_code = answer(["nvidia-smi", "-L"], TOOL_PATIENCE_S)
    return parse_listing(listing), exit_code == 0


def parse_listing(listing: str) -> list[str]:
    """Parse the output of `nvidia-smi -L`; a GPU that is sliced (MIG) is listed by its slices."""
    models: list[str] = []
    slices: dict[int, list[str]] = {}
    for line in listing.splitlines():
        if gpu := re.match(r"GPU \d+: (.*?) \(UUID", line):
            models.append(gpu[1])
        elif (part := re.match(r"\s+(MIG \S+) +Device +\d+: \(UUID", line)) and models:
            slices.setdefault(len(models) - 1, []).append(f"{models[-1]} {part[1]}")
    return [name for place, model in enumerate(models) for name in slices.get(place, [model])]


def cards(root: Path) -> list[str]:
    """Return one name for each device file of a GPU; the model is unknown."""
    return ["nvidia gpu" for _ in (root / "dev").glob("nvidia[0-9]*")]


def ask(argv: list[str]) -> str:
    return answer(argv, TOOL_PATIENCE_S)[0]


def chosen_gpus(environment: Mapping[str, str]) -> str | None:
    """Return the shortest list of GPUs that a process may see, if there is any such list."""
    lists = [environment[name] for name in CHOOSING if name in environment]
    return min(lists, key=lambda names: names.count(",") if names else -1, default=None)


def visible(gpus: list[str], chosen: str | None) -> list[str]:
    """Return the GPUs that such a list leaves."""
    if chosen is None:
        return gpus
    return gpus[: len([device for device in chosen.split(",") if device.strip() not in ("", "-1")])]


def answer(argv: list[str], patience_s: float) -> tuple[str, int]:
    """Return the stdout of a tool and its exit code; one that hangs in the kernel is left
    behind."""
    tool = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert tool.stdout is not None
    deadline = time.monotonic() + patience_s
    while tool.poll() is None:  # not run(timeout=): that waits for the killed without limit
        if time.monotonic() > deadline:
            tool.kill()
            tool.stdout.close()
            raise RuntimeError(f"{argv[0]} gives no answer within {patience_s:g} s")
        time.sleep(0.02)
    with tool.stdout:
        return tool.stdout.read(), tool.returncode


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return named[1] if named else platform.machine()  # ARM kernels give no name


def interface_of(address: str) -> str:
    """Return the name of the interface that owns an IPv4 address; all of 127/8 is the
    loopback's."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return ""


def free_port(address: str, ports: str = "") -> int:
    """Return a port that is free now, and with luck still free when the program binds it: a
    collision is retried.

    A range is tried in any order, so that two that look at once seldom choose the same.
    """
    choices = list(port_range(ports)) if ports else [0]
    random.shuffle(choices)
    for choice in choices:
        with socket.socket() as probe:
            try:
                probe.bind((address, choice))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise OSError(f"no port of {ports or 'any'} is free")


def port_range(words: str) -> range:
    first, _, last = words.partition("-")
    if first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 1 << 16:
        return range(int(first), int(last) + 1)
    raise ValueError(f'ports cannot be "{words}": expected two numbers, such as 20000-20999')
