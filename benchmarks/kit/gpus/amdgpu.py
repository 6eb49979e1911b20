"""Facts about AMD's GPUs from the files of the kernel's driver: plain functions of a GPU's folder.

The tables have the names of nvml.py, as far as there is such a thing; no tool is asked. The
file `xgmi_error` is left alone, because reading it clears the counter of the hardware.
Sources: Linux, Documentation/gpu/amdgpu (ras, thermal, driver-misc), and kgd_pp_interface.h.

GPUs are numbered as the compute driver numbers them, and so by torch.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.gpus.cards import amd_cards, machine_root, properties
from kit.gpus.readings import NoDriver, Reader, Reading, Unread, Unsupported

CALLED = "amdgpu"
LINK_BLOCKS = ("xgmi_wafl", "pcie_bif")  # their errors are no errors of memory or processors
ABSENT = {errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA}
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by GT/s
LINK_UP = 1  # of XGMI; down is 0, and so some firmware may call what is not wired
LIMITERS = ("prochot", "power_cap", "socket_thermal", "regulator_thermal", "memory_thermal")
ROLL_OVER = 1 << 32  # the counters have 32 bits


def read(gpu: Path, readers: Mapping[str, Reader]) -> Reading:
    """Call each reader by itself: one that fails takes no other with it."""
    reading = Reading()
    for name, reader in readers.items():
        try:
            reading.values[name] = reader(gpu)
        except Unsupported:
            reading.unsupported.append(name)
        except OSError as error:
            if error.errno in ABSENT and (gpu is None or gpu.is_dir()):
                reading.unsupported.append(name)
            else:
                reading.unread[name] = error.strerror or str(error)
                reading.gone |= error.errno in (errno.ENODEV, errno.ENOENT)
        except (Unread, ValueError, LookupError) as error:  # a file with other words
            reading.unread[name] = str(error)
    return reading


def begin() -> None:
    """Find the driver. Must come before everything else; may come again."""
    if not (machine_root() / "sys/class/kfd/kfd/topology").is_dir():
        raise NoDriver("the kernel shows no compute driver of AMD's (amdgpu)")


def gpus_by_index() -> tuple[dict[int, Path], dict[int, str]]:
    """Return the folders of the GPUs, and why there is none for the others."""
    folders: dict[int, Path] = {}
    refused: dict[int, str] = {}
    root = machine_root()
    for index, card in enumerate(amd_cards(root)):
        node = root / "sys/class/kfd/kfd/topology/nodes" / card.partition("/")[2]
        place = root / "sys/bus/pci/devices" / place_of(properties(node / "properties"))
        if place.is_dir():
            folders[index] = place
        else:
            refused[index] = f'the kernel shows no PCI device "{place.name}"'
    return folders, refused


def place_of(node: Mapping[str, str]) -> str:
    """Return the PCI address in the properties of a node. Parts of one GPU (CPX) share it, and
    differ in the function only."""
    location = int(node.get("location_id", "0"))
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return f"{int(node.get('domain', '0')):04x}:{bus:02x}:{device:02x}.0"


def find_gpu(properties: Any) -> Path:
    """Return the folder of a GPU by torch's properties of it."""
    try:
        numbers = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        raise Unread("this torch does not say where its GPU is") from None
    return machine_root() / "sys/bus/pci/devices" / "{:04x}:{:02x}:{:02x}.0".format(*numbers)


def line(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace").strip()


# --- errors that the hardware counted (RAS) --------------------------------------------------


def errors_by_block(gpu: Path) -> dict[str, dict[str, int]]:
    """Return the errors of each block since the driver was loaded: ue, ce, and of memory de."""
    files = sorted((gpu / "ras").glob("*_err_count"))
    if not files:
        raise Unsupported
    return {file.name.removesuffix("_err_count"): parse_errors(line(file)) for file in files}


def parse_errors(text: str) -> dict[str, int]:
    counts = {kind: int(count) for kind, count in re.findall(r"^(\w+): (\d+)$", text, re.M)}
    if "ue" not in counts:  # while a GPU is reset
        raise Unread(f'the driver says "{text}"')
    return counts


def ras_errors(kind: str, *, of_links: bool = False) -> Reader:
    """Return a reader of the errors of one kind: of links, or of all the rest."""

    def count(gpu: Path) -> int:
        blocks = errors_by_block(gpu)
        chosen = [counts for name, counts in blocks.items() if (name in LINK_BLOCKS) == of_links]
        numbers = [counts[kind] for counts in chosen if kind in counts]
        if not numbers:
            raise Unsupported
        return sum(numbers)

    return count


def some_errors(gpu: Path) -> str:
    blocks = errors_by_block(gpu)
    return ", ".join(
        f"{name} {kind} {count}"
        for name, counts in blocks.items()
        for kind, count in counts.items()
        if count
    )


def checks_memory(gpu: Path) -> int:
    """Return 1 if the blocks that are watched include the memory, which is the first."""
    mask = re.search(r"feature mask: (0x[0-9a-f]+)", line(gpu / "ras/features"))
    if not mask:
        raise Unread("ras/features has no mask")
    return int(mask[1], 16) & 1


def bad_pages(flag: str) -> Reader:
    """Return a reader of the number of pages of memory with a flag: R, retired; P, pending; F,
    the driver could not retire it; "" of all."""

    def count(gpu: Path) -> int:
        pages = line(gpu / "ras/gpu_vram_bad_pages").splitlines()
        return sum(page.endswith(f": {flag}" if flag else "") for page in pages)

    return count


# --- what the firmware measures --------------------------------------------------------------

_WIDTHS = {"pcie_link_width": "H", "pcie_replays": "Q", "xgmi_up": "8H"}


def _accumulators_from(place: int) -> dict[str, int]:
    return {name: place + 4 * number for number, name in enumerate(("cycles", *LIMITERS))}


# where each field of `gpu_metrics` is, by content revision of format 1
LAYOUTS: dict[int, dict[str, int]] = {
    4: {"pcie_link_width": 48, "pcie_replays": 88},
    5: {"pcie_link_width": 112, "pcie_replays": 152},
    6: _accumulators_from(32) | {"pcie_link_width": 60, "pcie_replays": 104},
    7: _accumulators_from(40) | {"pcie_link_width": 68, "pcie_replays": 112, "xgmi_up": 264},
}
LAYOUTS[8] = LAYOUTS[7]
_SHARED = {"activity": 12}  # of all of these, the GPU's share of time at work, in percent


# Format 1.9 is a list of attributes: a number of 64 bits, which has the attribute, the type of its
# values and how many there are, and then the values (amdgpu: kgd_pp_interface.h, smu_cmn.h)
LISTED = 9
ALL_ONES = b"\xff" * 8  # as the driver fills a table first
_TYPES = "BbHhIiQq"
_ATTRIBUTES = {
    4: "activity",
    **dict(enumerate(("cycles", *LIMITERS), start=9)),
    16: "pcie_link_width",
    25: "pcie_replays",
    31: "xgmi_up",
}


def parse_metrics(data: bytes) -> dict[str, Any]:
    """Return the fields of a `gpu_metrics`; what the firmware does not fill is all ones."""
    if len(data) < 4:
        raise Unread("gpu_metrics is empty")
    _, form, content = struct.unpack_from("<HBB", data)
    if form != 1 or content not in (*LAYOUTS, LISTED):
        raise Unread(f"gpu_metrics of format {form}.{content} is not known here")
    fields: dict[str, Any] = {}
    try:
        for name, width, place in _listed(data) if content == LISTED else _placed(content):
            values = struct.unpack_from(f"<{width}", data, place)
            (unfilled,) = struct.unpack(f"<{width[-1]}", ALL_ONES[: struct.calcsize(width[-1])])
            if any(value != unfilled for value in values):
                fields[name] = values if len(values) > 1 else values[0]
    except struct.error:
        raise Unread("gpu_metrics ends too early") from None
    return fields


def _placed(content: int) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the width and the place of each field of formats that have places."""
    for name, place in (LAYOUTS[content] | _SHARED).items():
        yield name, "H" if name in _SHARED else _WIDTHS.get(name, "I"), place


def _listed(data: bytes) -> Iterator[tuple[str, str, int]]:
    """Yield the same of the attributes that are read."""
    (count,) = struct.unpack_from("<i", data, 4)
    place = 8
    for _ in range(count):
        (encoded,) = struct.unpack_from("<Q", data, place)
        kind, attribute, number = encoded >> 20 & 0xF, encoded >> 10 & 0x3FF, encoded & 0x3FF
        if kind >= len(_TYPES) or not number:
            raise Unread(f"gpu_metrics has an attribute of unknown type: {encoded:#x}")
        width = f"{number}{_TYPES[kind]}"
        if attribute in _ATTRIBUTES:
            yield _ATTRIBUTES[attribute], width, place + 8
        place += 8 + struct.calcsize(f"<{width}")


def metric(gpu: Path, name: str) -> Any:
    fields = parse_metrics((gpu / "gpu_metrics").read_bytes())
    if name not in fields:
        raise Unsupported
    return fields[name]


@dataclass(frozen=True)
class Residency:
    """The firmware's cycles so far, and in how many of them each limiter held the GPU back."""

    cycles: int
    held_back: Mapping[str, int]
    is_busy: bool


def residency(gpu: Path) -> Residency:
    fields = parse_metrics((gpu / "gpu_metrics").read_bytes())
    if "cycles" not in fields:
        raise Unsupported
    held_back = {name: fields[name] for name in LIMITERS if name in fields}
    return Residency(fields["cycles"], held_back, fields.get("activity", 0) > 0)


def busy(held_back: Sequence[Residency]) -> list[Residency]:
    return [reading for reading in held_back if reading.is_busy]


def shares(held_back: Sequence[Residency]) -> dict[str, float]:
    """Return the share of the cycles, from the first reading to the last, in which each limiter
    held the GPU back. The counters have 32 bits."""
    if len(held_back) < 2:
        return {}
    first, last = held_back[0], held_back[-1]
    cycles = (last.cycles - first.cycles) % ROLL_OVER
    risen = {
        name: (last.held_back[name] - first.held_back[name]) % ROLL_OVER
        for name in first.held_back.keys() & last.held_back.keys()
    }
    return {name: min(1.0, rise / cycles) for name, rise in sorted(risen.items()) if cycles}


def slowdowns(held_back: Sequence[Residency]) -> dict[str, float]:
    """Return the shares of the limiters that are a fault; a cap on power is none."""
    return {name: share for name, share in shares(held_back).items() if name != "power_cap"}


# --- links -----------------------------------------------------------------------------------


def pcie_width(gpu: Path) -> int:
    """Return the lanes in use: by the firmware, as the GPU's own switch may stand in between."""
    try:
        return int(metric(gpu, "pcie_link_width"))
    except (Unsupported, Unread, OSError):
        return int(line(gpu / "current_link_width"))


def possible(gpu: Path, name: str) -> list[str]:
    """Return what card and slot could do, as far as the kernel says it."""
    files = (gpu / name, gpu.resolve().parent / name)
    return [line(file) for file in files if file.exists()]


def pcie_lanes_missing(gpu: Path) -> int:
    widths = [int(width) for width in possible(gpu, "max_link_width")]
    if not widths:
        raise Unsupported
    return max(0, min(widths) - pcie_width(gpu))


def generation(speed: str) -> int:
    """Return the generation of "32.0 GT/s PCIe"."""
    return GENERATIONS[float(speed.split()[0])]


def pcie_max_generation(gpu: Path) -> int:
    return min(map(generation, possible(gpu, "max_link_speed")))


def pcie_replays(gpu: Path) -> int:
    try:
        return int(line(gpu / "pcie_replay_count"))
    except OSError:
        return int(metric(gpu, "pcie_replays"))


def xgmi_links(gpu: Path) -> int:
    """Return the number of links to other GPUs that are up; unsupported if none is. How many are
    wired only siblings show."""
    if not (links := metric(gpu, "xgmi_up").count(LINK_UP)):
        raise Unsupported
    return int(links)


# --- sensors ---------------------------------------------------------------------------------


def sensor(gpu: Path, *names: str) -> int:
    """Return the first of these sensors that there is, in the kernel's units."""
    for folder in sorted((gpu / "hwmon").glob("hwmon*")):
        for name in names:
            if (folder / name).exists():
                return int(line(folder / name))
    raise Unsupported


def temperatures(gpu: Path, kind: str) -> dict[str, float]:
    """Return temperatures by the labels of their sensors: junction, mem, edge."""
    labels = sorted((gpu / "hwmon").glob("hwmon*/temp*_label"))
    files = {line(label): label.with_name(label.name.replace("label", kind)) for label in labels}
    return {label: int(line(file)) / 1e3 for label, file in files.items() if file.exists()}


def temperature(label: str) -> Reader:
    def celsius(gpu: Path) -> float:
        now = temperatures(gpu, "input")
        if label not in now:
            raise Unsupported
        return now[label]

    return celsius


def thermal_margin_c(gpu: Path) -> float:
    """Return the degrees that are left below the critical temperature of the sensor that has
    fewest."""
    now, critical = temperatures(gpu, "input"), temperatures(gpu, "crit")
    margins = [limit - now[label] for label, limit in critical.items() if limit and label in now]
    if not margins:
        raise Unsupported
    return max(0.0, min(margins))


def highest_clock(name: str) -> Reader:
    """Return a reader of the highest clock in a table such as `1: 2100Mhz *`."""

    def mhz(gpu: Path) -> int:
        return max(map(int, re.findall(r"(\d+)\s*Mhz", line(gpu / name), re.I)))

    return mhz


def text_of(name: str) -> Reader:
    return lambda gpu: line(gpu / name)


# --- what can be read, by name ---------------------------------------------------------------

DRIVER: dict[str, Reader] = {
    "driver_version": lambda _: line(machine_root() / "sys/module/amdgpu/version")
}
UUID: dict[str, Reader] = {}  # torch and lists of visible GPUs call them by their numbers

HELD_BACK: dict[str, Reader] = {"throttled": residency}

STATE: dict[str, Reader] = {
    "sm_mhz": lambda gpu: sensor(gpu, "freq1_input") / 1e6,
    "memory_mhz": lambda gpu: sensor(gpu, "freq2_input") / 1e6,
    "power_w": lambda gpu: sensor(gpu, "power1_average", "power1_input") / 1e6,
    "temperature_c": temperature("junction"),
    "memory_temperature_c": temperature("mem"),
    "pcie_generation": lambda gpu: generation(line(gpu / "current_link_speed")),
    "pcie_width": pcie_width,
    "reasons": residency,
}

COUNTERS: dict[str, Reader] = {
    "pcie_replays": pcie_replays,
    "xgmi_errors:correctable": ras_errors("ce", of_links=True),
    "xgmi_errors:uncorrectable": ras_errors("ue", of_links=True),
}

ERRORS: dict[str, Reader] = COUNTERS | {
    "ecc_correctable": ras_errors("ce"),
    "ecc_uncorrectable": ras_errors("ue"),
    "ecc_deferred": ras_errors("de"),
    "bad_pages": bad_pages(""),
}

CONDITION: dict[str, Reader] = {
    "gpu_memory_gb": lambda gpu: int(line(gpu / "mem_info_vram_total")) / 1e9,
    "ecc_enabled": checks_memory,
    "ecc_correctable:volatile": ras_errors("ce"),
    "ecc_uncorrectable:volatile": ras_errors("ue"),
    "ecc_deferred:volatile": ras_errors("de"),
    "bad_pages:retired": bad_pages("R"),
    "bad_pages:pending": bad_pages("P"),
    "bad_pages:not_retired": bad_pages("F"),
    "pcie_max_generation": pcie_max_generation,
    "pcie_width": pcie_width,
    "pcie_lanes_missing": pcie_lanes_missing,
    "xgmi_links": xgmi_links,
    "clock_max_mhz:sm": highest_clock("pp_dpm_sclk"),
    "clock_max_mhz:memory": highest_clock("pp_dpm_mclk"),
    "power_cap_w": lambda gpu: sensor(gpu, "power1_cap") / 1e6,
    "thermal_margin_c": thermal_margin_c,
}

BY_SIBLINGS = {"xgmi_links_inactive": "xgmi_links"}  # what is missing of what GPUs like it have

IDENTITY: dict[str, Reader] = {
    "model": text_of("product_name"),
    "address": lambda gpu: gpu.name,
    "vbios": text_of("vbios_version"),
    "compute_partition": text_of("current_compute_partition"),
    "memory_partition": text_of("current_memory_partition"),
    "temperature_c": temperature("junction"),
    "errors_by_block": some_errors,
}
