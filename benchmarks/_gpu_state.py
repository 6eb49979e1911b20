"""The state of a GPU while it is measured: clocks, power, temperature, and what holds them back.

A thread asks NVML now and then and the summary goes into the document beside the samples, under
"gpu_state", per device and metric. Whatever fails here is noted there and reaches nobody else.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import contract
from _nvml import LIBRARY, Nvml, Unread, names, nvml

if TYPE_CHECKING:
    import torch

# what is read, and how: the function, and its arguments between the device and the answer
READINGS: dict[str, tuple[str, *tuple[int, ...]]] = {
    "sm_mhz": ("nvmlDeviceGetClockInfo", 1),
    "memory_mhz": ("nvmlDeviceGetClockInfo", 2),
    "power_mw": ("nvmlDeviceGetPowerUsage",),
    "temperature_c": ("nvmlDeviceGetTemperature", 0),
    "reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
}

Reading = dict[str, int]
PATIENCE_S = 5  # with a driver that may hang


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
def node_watched(
    report: contract.Report, period_s: float = 0.5, library: str = LIBRARY
) -> Iterator[None]:
    """Watch all GPUs of the node while the body runs, whoever measures on them."""
    found: list[str] = []
    failures: list[str] = []

    def look() -> None:
        try:
            found.extend(uuids(nvml(library)))
        except Exception as error:
            failures.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    states: dict[str, Any] = {}
    with ExitStack() as watches:
        for uuid in tuple(found):
            plain = uuid.partition("-")[2]
            states[uuid] = watches.enter_context(watch(plain, period_s, library))
        yield
    if not states:
        states["unread"] = failures[0] if failures else "NVML does not answer"
    report.notes.setdefault("gpu_state", {})["node"] = states


def uuids(driver: Nvml) -> list[str]:
    """Of all GPUs, as `GPU-…`, in NVML's order."""
    found = []
    for index in range(driver.number("nvmlDeviceGetCount_v2")):
        gpu = ctypes.c_void_p()
        driver.ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(gpu))
        found.append(driver.text("nvmlDeviceGetUUID", gpu))
    return found


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
            gpu = handle(driver, uuid)
            over.wait(period_s)  # clocks need a moment to rise
            readings.append(read(driver, gpu))
            while not over.wait(period_s):
                readings.append(read(driver, gpu))
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


def handle(driver: Nvml, uuid: str) -> ctypes.c_void_p:
    gpu = ctypes.c_void_p()
    for kind in ("GPU", "MIG"):  # torch gives the UUID without saying of which it is
        try:
            driver.ask("nvmlDeviceGetHandleByUUID", f"{kind}-{uuid}".encode(), ctypes.byref(gpu))
            return gpu
        except Unread as error:
            failure = error
    raise Unread(f"NVML knows no GPU {uuid}: {failure}")


def read(driver: Nvml, gpu: ctypes.c_void_p) -> Reading:
    """What answers now: some GPUs lack a sensor, a MIG slice lacks most."""
    reading = {}
    for name, (function, *arguments) in READINGS.items():
        try:
            reading[name] = driver.number(function, gpu, *arguments)
        except Unread as error:
            failure = error
    if not reading:
        raise failure
    return reading
