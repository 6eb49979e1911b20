"""What NVML says of the GPUs: errors, remapped memory, links, limits, and who is lost.

GPUs are numbered as NVML does, by their place on the PCI bus; CUDA_DEVICE_ORDER=PCI_BUS_ID makes
CUDA do the same. The numbers of functions' arguments are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from _findings import Findings
from _nvml import (
    INSUFFICIENT_SIZE,
    LIBRARY,
    LOST,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    Nvml,
    Unread,
    names,
    nvml,
)

PERIOD_S = 0.25  # between two looks at the throttle reasons
PATIENCE_S = 5.0  # a driver that takes longer hangs

# one number each: the metric, NVML's function and its arguments, and what it is divided by
NUMBERS: dict[str, tuple[str, tuple[int, ...], float]] = {
    "ecc_correctable:volatile": ("nvmlDeviceGetTotalEccErrors", (0, 0), 1),
    "ecc_correctable:aggregate": ("nvmlDeviceGetTotalEccErrors", (0, 1), 1),
    "ecc_uncorrectable:volatile": ("nvmlDeviceGetTotalEccErrors", (1, 0), 1),
    "ecc_uncorrectable:aggregate": ("nvmlDeviceGetTotalEccErrors", (1, 1), 1),
    "page_retirement_pending": ("nvmlDeviceGetRetiredPagesPendingStatus", (), 1),
    "pcie_max_generation": ("nvmlDeviceGetMaxPcieLinkGeneration", (), 1),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", (), 1),
    "clock_max_mhz:sm": ("nvmlDeviceGetMaxClockInfo", (1,), 1),
    "clock_max_mhz:memory": ("nvmlDeviceGetMaxClockInfo", (2,), 1),
    "power_cap_w": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e3),
}
# the same for what explains a number and is no metric
FACTS: dict[str, tuple[str, tuple[int, ...], float]] = {
    "pcie_generation_now": ("nvmlDeviceGetCurrPcieLinkGeneration", (), 1),
    "power_default_w": ("nvmlDeviceGetPowerManagementDefaultLimit", (), 1e3),
    "sm_mhz_now": ("nvmlDeviceGetClockInfo", (1,), 1),
    "temperature_c": ("nvmlDeviceGetTemperature", (0,), 1),
    "persistence_mode": ("nvmlDeviceGetPersistenceMode", (), 1),
}
VERSIONS = {"nvml": "nvmlSystemGetNVMLVersion", "driver": "nvmlSystemGetDriverVersion"}
NVLINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")
MOST_NVLINKS = 36
SLOWDOWNS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


class Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("ids", ctypes.c_uint * 2),
        ("address", ctypes.c_char * 32),
    )


class Sram(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("counts", ctypes.c_ulonglong * 11),
        ("threshold_exceeded", ctypes.c_uint),
    )


class Fabric(ctypes.Structure):
    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class Gpu:
    """One GPU that NVML gives a handle of."""

    def __init__(self, driver: Nvml, index: int, found: Findings) -> None:
        self.driver, self.found, self.device = driver, found, f"cuda:{index}"
        self.handle = ctypes.c_void_p()
        driver.ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.handle))
        self.lost = False
        self.looks: list[set[str]] = []  # the throttle reasons at each
        self.nvlink_errors: dict[str, int] = {}

    def number(self, function: str, *arguments: object) -> int:
        return self.driver.number(function, self.handle, *arguments)

    def try_to(self, what: str, read: Callable[[], object]) -> None:
        try:
            read()
        except Unread as error:
            self.lost |= error.code in (LOST, RESET_REQUIRED)
            unsupported = error.code == NOT_SUPPORTED
            self.found.miss(what, f"not supported by {self.device}" if unsupported else error)

    def address(self) -> str:
        """As the kernel writes it: 0000:3b:00.0."""
        pci = Pci()
        self.driver.ask("nvmlDeviceGetPciInfo_v3", self.handle, ctypes.byref(pci))
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def read(self) -> None:
        """Everything that does not need two looks."""
        for metric, (function, arguments, scale) in NUMBERS.items():
            self.try_to(
                metric,
                lambda m=metric, f=function, a=arguments, s=scale: self.found.add(
                    m, self.device, self.number(f, *a) / s
                ),
            )
        for what in (
            self.gpu_memory_gb,
            self.ecc_enabled,
            self.rows_remapped,
            self.pages_retired,
            self.sram_threshold_exceeded,
            self.pcie_lanes_missing,
            self.thermal_margin_c,
            self.nvlinks,
            self.fabric_unready,
        ):
            self.try_to(what.__name__, what)
        self.facts()

    def facts(self) -> None:
        facts: dict[str, object] = {}
        try:
            facts["model"] = self.driver.text("nvmlDeviceGetName", self.handle)
            facts["address"] = self.address()
            facts["vbios"] = self.driver.text("nvmlDeviceGetVbiosVersion", self.handle)
            for name, (function, arguments, scale) in FACTS.items():
                facts[name] = self.number(function, *arguments) / scale
        except Unread as error:
            self.found.miss(f"facts of {self.device}", error)
        gpus = self.found.facts.setdefault("gpus", {})
        assert isinstance(gpus, dict)
        gpus[self.device] = facts

    def gpu_memory_gb(self) -> None:
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        self.driver.ask("nvmlDeviceGetMemoryInfo", self.handle, ctypes.byref(memory))
        self.found.add("gpu_memory_gb", self.device, memory[0] / 1e9)

    def ecc_enabled(self) -> None:
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        self.driver.ask(
            "nvmlDeviceGetEccMode", self.handle, ctypes.byref(now), ctypes.byref(pending)
        )
        self.found.add("ecc_enabled", self.device, now.value)

    def rows_remapped(self) -> None:
        rows = [ctypes.c_uint() for _ in range(4)]
        self.driver.ask("nvmlDeviceGetRemappedRows", self.handle, *map(ctypes.byref, rows))
        correctable, uncorrectable, pending, failure = (each.value for each in rows)
        self.found.add("rows_remapped:correctable", self.device, correctable)
        self.found.add("rows_remapped:uncorrectable", self.device, uncorrectable)
        self.found.add("row_remap_pending", self.device, pending)
        self.found.add("row_remap_failure", self.device, failure)

    def pages_retired(self) -> None:
        """Of GPUs before row remapping; without room for addresses NVML still counts them."""
        pages = 0
        for cause in (0, 1):  # many single-bit errors, one double-bit error
            count = ctypes.c_uint(0)
            self.driver.ask(
                "nvmlDeviceGetRetiredPages",
                self.handle,
                cause,
                ctypes.byref(count),
                None,
                fine=INSUFFICIENT_SIZE,
            )
            pages += count.value
        self.found.add("pages_retired", self.device, pages)

    def sram_threshold_exceeded(self) -> None:
        status = Sram(version=ctypes.sizeof(Sram) | 1 << 24)
        self.driver.ask("nvmlDeviceGetSramEccErrorStatus", self.handle, ctypes.byref(status))
        self.found.add("sram_threshold_exceeded", self.device, status.threshold_exceeded)

    def pcie_lanes_missing(self) -> None:
        """Of those that card and slot could have; unlike the generation, it is kept when idle."""
        most = self.number("nvmlDeviceGetMaxPcieLinkWidth")
        now = self.number("nvmlDeviceGetCurrPcieLinkWidth")
        self.found.add("pcie_lanes_missing", self.device, max(0, most - now))

    def thermal_margin_c(self) -> None:
        limit = self.number("nvmlDeviceGetTemperatureThreshold", 1)  # where it slows down
        now = self.number("nvmlDeviceGetTemperature", 0)
        self.found.add("thermal_margin_c", self.device, max(0, limit - now))

    def links(self) -> Iterator[tuple[int, int]]:
        """Each NVLink that the GPU has, and whether it is up."""
        for link in range(MOST_NVLINKS):
            try:
                yield link, self.number("nvmlDeviceGetNvLinkState", link)
            except Unread as error:
                if link == 0:
                    raise
                if error.code in (LOST, RESET_REQUIRED):
                    raise
                return

    def nvlinks(self) -> None:
        """None up at all is how a card without a bridge looks, so only some of them are missed."""
        states = [state for _, state in self.links()]
        if not any(states):
            raise Unread("no link is up, as on a card without a bridge")
        self.found.add("nvlinks", self.device, sum(map(bool, states)))
        self.found.add("nvlinks_inactive", self.device, states.count(0))

    def fabric_unready(self) -> None:
        fabric = Fabric()
        self.driver.ask("nvmlDeviceGetGpuFabricInfo", self.handle, ctypes.byref(fabric))
        if fabric.state == 0:
            raise Unread(f"not supported by {self.device}", NOT_SUPPORTED)
        self.found.add("fabric_unready", self.device, fabric.state != 3 or fabric.status != 0)

    def count_nvlink_errors(self) -> dict[str, int]:
        counts = dict.fromkeys(NVLINK_ERRORS, 0)
        for link, up in self.links():
            for counter, name in enumerate(NVLINK_ERRORS if up else ()):
                counts[name] += self.number("nvmlDeviceGetNvLinkErrorCounter", link, counter)
        return counts

    def begin(self) -> None:
        self.try_to("nvlink_errors", lambda: self.nvlink_errors.update(self.count_nvlink_errors()))

    def look(self) -> None:
        function = "nvmlDeviceGetCurrentClocksThrottleReasons"
        self.try_to("throttled", lambda: self.looks.append(names(self.number(function))))

    def end(self) -> None:
        for reason in SLOWDOWNS if self.looks else ():
            share = sum(reason in look for look in self.looks) / len(self.looks)
            self.found.add(f"throttled:{reason}", self.device, share)
        if self.nvlink_errors:
            self.try_to("nvlink_errors", self.end_nvlink_errors)

    def end_nvlink_errors(self) -> None:
        for name, count in self.count_nvlink_errors().items():
            # counters that somebody cleared meanwhile began again at 0
            before = self.nvlink_errors[name] if count >= self.nvlink_errors[name] else 0
            self.found.add(f"nvlink_errors:{name}", self.device, count - before)


class Watch:
    """Looks at the GPUs in a thread, because a driver that hangs must not hide the rest."""

    def __init__(self, root: Path, seconds: float, library: str = LIBRARY) -> None:
        self.cards = sorted(card.name for card in (root / "dev").glob("nvidia[0-9]*"))
        self.seconds, self.library, self.found = seconds, library, Findings()
        self.lost = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        found = Findings()
        try:
            lost = read(nvml(self.library), self.seconds, found)
        except Unread as error:
            found.miss("NVML", error)
            # without its library nobody can say; a driver that refuses has lost all of them
            lost = len(self.cards) if error.code is not None else 0
        self.found, self.lost = found, lost
        self.over.set()

    def finish(self) -> Findings:
        if not self.over.wait(PATIENCE_S):
            self.found.miss("NVML", f"does not answer within {self.seconds + PATIENCE_S:g} s")
            self.lost = len(self.cards)
        return self.found


def addresses(found: Findings) -> dict[str, str]:
    """The devices' places on the PCI bus, as far as they could be read."""
    gpus = found.facts.get("gpus")
    facts = gpus.items() if isinstance(gpus, dict) else ()
    return {device: of["address"] for device, of in facts if "address" in of}


def read(driver: Nvml, seconds: float, found: Findings) -> int:
    """All about all GPUs; returns how many the driver knows of and no longer reaches."""
    for name, function in VERSIONS.items():
        try:
            found.facts[f"{name}_version"] = driver.text(function)
        except Unread as error:
            found.miss(f"{name}_version", error)
    try:
        cuda = driver.number("nvmlSystemGetCudaDriverVersion")
        found.facts["cuda_driver_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    except Unread as error:
        found.miss("cuda_driver_version", error)
    count = driver.number("nvmlDeviceGetCount_v2")
    gpus = []
    for index in range(count):
        try:
            gpus.append(Gpu(driver, index, found))
        except Unread as error:
            found.miss(f"cuda:{index}", error)
    for gpu in gpus:
        gpu.begin()
        gpu.read()
    pause = threading.Event()
    for _ in range(max(1, round(seconds / PERIOD_S))):
        pause.wait(min(seconds, PERIOD_S))
        for gpu in gpus:
            gpu.look()
    for gpu in gpus:
        gpu.end()
    reached = sum(not gpu.lost for gpu in gpus)
    if reached:
        found.add("gpus", "node", reached)
    return count - reached
