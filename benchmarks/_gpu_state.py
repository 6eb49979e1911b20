"""The state of a GPU while it is measured: clocks, power, temperature, and what holds them back.

A thread asks NVML now and then and the summary goes into the document beside the samples, under
"gpu_state", per device and metric. Whatever fails here is noted there and reaches nobody else.
NVML is called through ctypes: a node has the driver's library, not always the Python bindings.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

import contract

if TYPE_CHECKING:
    import torch

LIBRARY = "libnvidia-ml.so.1"

# bits of nvmlDeviceGetCurrentClocksThrottleReasons (nvml.h, nvmlClocksEventReason...)
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

# what is read, and how: the function, and its arguments between the device and the answer
READINGS: dict[str, tuple[str, *tuple[int, ...]]] = {
    "sm_mhz": ("nvmlDeviceGetClockInfo", 1),
    "memory_mhz": ("nvmlDeviceGetClockInfo", 2),
    "power_mw": ("nvmlDeviceGetPowerUsage",),
    "temperature_c": ("nvmlDeviceGetTemperature", 0),
    "reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
}

Reading = dict[str, int]


class Unread(Exception):
    """The state could not be read, for a reason that one line can tell."""


@contextmanager
def watched(
    report: contract.Report, device: torch.device, metric: str, period_s: float = 0.1
) -> Iterator[None]:
    """Watch the device while the body measures the metric. Only a GPU has such a state."""
    if device.type != "cuda":
        yield
        return
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", "without a UUID"))
    with watch(uuid, period_s) as state:
        yield
    report.notes.setdefault("gpu_state", {}).setdefault(str(device), {})[metric] = state


@contextmanager
def watch(uuid: str, period_s: float, library: str = LIBRARY) -> Iterator[dict[str, Any]]:
    """Yields a summary that is filled in at the end.

    The GPU is found by its UUID: NVML numbers GPUs in another order than CUDA does.
    """
    state: dict[str, Any] = {}
    readings: list[Reading] = []
    failures: list[str] = []
    over = threading.Event()

    def look() -> None:
        try:
            driver = nvml(library)
            gpu = driver.handle(uuid)
            over.wait(period_s)  # clocks need a moment to rise
            readings.append(driver.read(gpu))
            while not over.wait(period_s):
                readings.append(driver.read(gpu))
        except Exception as error:
            failures.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        over.set()
        thread.join(timeout=1)  # a driver that hangs must not take the measurement with it
        state |= summary(readings)
        if failures or not readings:
            state["unread"] = failures[0] if failures else "NVML does not answer"


def summary(readings: Sequence[Reading]) -> dict[str, Any]:
    """Extremes and medians of what could be read; of each reason the share of the readings."""

    def series(name: str) -> list[int]:
        return [reading[name] for reading in readings if name in reading]

    facts: dict[str, Any] = {"readings": len(readings)}
    for clock in ("sm_mhz", "memory_mhz"):
        if numbers := series(clock):
            facts |= {f"{clock}_median": median(numbers), f"{clock}_min": min(numbers)}
    if numbers := series("power_mw"):
        facts |= {"power_w_median": median(numbers) / 1e3, "power_w_max": max(numbers) / 1e3}
    if numbers := series("temperature_c"):
        facts["temperature_c_max"] = max(numbers)
    if words := [names(bits) for bits in series("reasons")]:
        facts["reasons"] = {
            name: sum(name in word for word in words) / len(words)
            for name in sorted(set().union(*words))
        }
    return facts


def names(bits: int) -> set[str]:
    known = {name for bit, name in REASONS.items() if bits & bit}
    unknown = bits & ~sum(REASONS)
    return known | ({f"unknown_{unknown:#x}"} if unknown else set())


class Nvml:
    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise Unread(f"{library} cannot be loaded: {error}") from error
        self._call("nvmlInitWithFlags", 0)

    def handle(self, uuid: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        for kind in ("GPU", "MIG"):  # torch gives the UUID without saying of which it is
            try:
                self._call(
                    "nvmlDeviceGetHandleByUUID", f"{kind}-{uuid}".encode(), ctypes.byref(handle)
                )
                return handle
            except Unread as error:
                failure = error
        raise Unread(f"NVML knows no GPU {uuid}: {failure}")

    def read(self, handle: ctypes.c_void_p) -> Reading:
        """What answers now: some GPUs lack a sensor, a MIG slice lacks most."""
        reading = {}
        for name, (function, *arguments) in READINGS.items():
            answer = ctypes.c_ulonglong()  # zero above the 32 bits that most of them write
            try:
                self._call(function, handle, *arguments, ctypes.byref(answer))
                reading[name] = answer.value
            except Unread as error:
                failure = error
        if not reading:
            raise failure
        return reading

    def _call(self, function: str, *arguments: object) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise Unread(f"NVML has no {function}") from None
        if code:
            raise Unread(f"{function} answers {code}")


nvml = cache(Nvml)
