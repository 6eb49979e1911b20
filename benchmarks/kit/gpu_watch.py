"""The state of GPUs while something is measured: clocks, power, temperature, what holds them back.

A thread reads it now and then, and the summary goes into the document beside the samples, under
"gpu_state". Whatever fails here is noted there and disturbs no measurement.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from kit import nvml
from kit.background import begin
from kit.cards import amd_cards, visible_gpus
from kit.nvml import Handle, Reader, Reading

if TYPE_CHECKING:
    import torch

PATIENCE_S = 5  # with a driver that may hang
SILENCE = "NVML does not answer"
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
BUSY_READINGS = 4  # fewer show nothing of a load
ERRORS, HELD_BACK = "gpu_errors_per_min", "gpu_held_back"  # metrics of whatever loads a node's GPUs


@contextmanager
def watch_gpu(
    notes: dict[str, Any], device: torch.device, metric: str, period_s: float = 0.1
) -> Iterator[None]:
    """Watch the device while the body measures the metric. Only a GPU has such a state."""
    if device.type != "cuda":
        yield
        return
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", "without a UUID"))
    with watch(lambda: gpu_of(uuid), period_s) as states:
        yield
    state = {"readings": 0} | states.pop(uuid, {}) | states
    notes.setdefault("gpu_state", {}).setdefault(str(device), {})[metric] = state


@contextmanager
def node_watched(report: Any, period_s: float = 0.5) -> Iterator[None]:
    """Watch all GPUs of the node while the body runs, whoever measures on them.

    Errors that a GPU counts under load, and what held it back then, are facts of their own. The
    report is a contract.Report, whose module needs this one.
    """
    notes = report.notes
    if amd_cards():
        notes.setdefault("gpu_state", {})["node"] = {"unread": "of AMD's GPUs no state is read"}
        yield
        return
    rates: Rates | None = {} if ERRORS in report.metrics else None
    with watch(all_gpus, period_s, rates) as states:
        yield
    for name, by_counter in (rates or {}).items():
        if risen := {counter: rate for counter, rate in by_counter.items() if rate}:
            states[name]["errors_per_min"] = risen
    notes.setdefault("gpu_state", {})["node"] = states
    if report.series and rates is not None:
        report_load(report, states, rates)


def report_load(report: Any, states: Mapping[str, Any], rates: Rates) -> None:
    gpus = [name for name, state in states.items() if isinstance(state, dict)]
    for name, device in devices_by_name(gpus).items():
        for counter, per_min in rates.get(name, {}).items():
            report.add(f"{ERRORS}:{counter.replace(':', '_')}", device, [per_min])
        state = states[name]
        if state.get("busy_readings", 0) >= BUSY_READINGS:
            for reason in SLOWDOWNS:
                report.add(f"{HELD_BACK}:{reason}", device, [state["held_back"].get(reason, 0.0)])


def devices_by_name(names: Sequence[str]) -> dict[str, str]:
    """Return the devices that this process may use by the names of `all_gpus`; a slice of a GPU is
    none."""
    by_number = {name: int(name[4:]) for name in names if name.startswith("gpu ")}
    free = (index for index in itertools.count() if index not in by_number.values())
    numbers = {name: by_number[name] if name in by_number else next(free) for name in names}
    visible = visible_gpus()
    if visible is None:
        return {name: f"cuda:{number}" for name, number in numbers.items()}
    places = {name: f"cuda:{place}" for place, name in enumerate(visible)}
    chosen = {name: places.get(name) or places.get(str(n)) for name, n in numbers.items()}
    return {name: device for name, device in chosen.items() if device}


Rates = dict[str, dict[str, float]]  # by GPU and counter of errors, per minute
Choice = tuple[dict[str, Handle], dict[str, str]]  # by name: GPUs, and why others are not reached


def gpu_of(uuid: str) -> Choice:
    """Return a GPU by its UUID: NVML numbers GPUs in another order than CUDA does."""
    nvml.begin()
    return {uuid: nvml.find_gpu(uuid)}, {}


def all_gpus() -> Choice:
    """Return all GPUs by UUID, as `GPU-…`, in NVML's order; those that do not give theirs by their
    number."""
    nvml.begin()
    handles, refused = nvml.gpus_by_index()
    if not handles and not refused:
        raise nvml.Unread("NVML knows of no GPU")
    named = {
        nvml.read(gpu, nvml.UUID).values.get("uuid", f"gpu {index}"): gpu
        for index, gpu in handles.items()
    }
    return named, {f"gpu {index}": reason for index, reason in refused.items()}


@contextmanager
def watch(
    choose: Callable[[], Choice], period_s: float, rates: Rates | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what is filled in at the end: a summary for each GPU, and what went wrong.

    `rates` is filled with the rise of the counters of errors.
    """
    states: dict[str, Any] = {}
    series: dict[str, list[Reading]] = {}
    over = threading.Event()

    def look() -> None:
        gpus, refused = choose()
        series.update({name: [Reading(unread={"gpu": why})] for name, why in refused.items()})
        begun, before = time.monotonic(), {} if rates is None else count_errors(gpus)
        sample(gpus, nvml.STATE, period_s, over, series)
        if rates is not None:
            minutes = max(1.0, (time.monotonic() - begun) / 60)
            after = count_errors(gpus)
            for name in gpus:
                rates[name] = rise_per_min(before[name], after[name], minutes)

    looking = begin(look)
    try:
        yield states
    finally:
        over.set()
        try:
            looking.result(PATIENCE_S)
        except TimeoutError:
            states["unread"] = SILENCE
        except Exception as error:
            states["unread"] = str(error) or type(error).__name__
        states |= {name: summary(list(readings)) for name, readings in tuple(series.items())}


def count_errors(gpus: Mapping[str, Handle]) -> dict[str, dict[str, int]]:
    return {name: nvml.read(gpu, nvml.ERRORS).values for name, gpu in gpus.items()}


def rise_per_min(
    before: Mapping[str, int], after: Mapping[str, int], minutes: float
) -> dict[str, float]:
    """Return how fast each counter rose; one that somebody cleared meanwhile began again at 0."""
    return {
        name: (after[name] - before[name] if after[name] >= before[name] else after[name]) / minutes
        for name in after
        if name in before
    }


def sample(
    gpus: Mapping[str, Handle],
    readers: Mapping[str, Reader],
    period_s: float,
    over: threading.Event,
    series: dict[str, list[Reading]],
) -> None:
    """Read all GPUs until it is over, at least once; GPUs that answer nothing are not read again.

    `series` is filled as it goes on: should the driver hang, what was read before is there.
    """
    series |= {name: [] for name in gpus}
    answering = dict(gpus)
    over.wait(period_s)  # clocks need a moment to rise
    while True:
        for name, gpu in tuple(answering.items()):
            series[name].append(nvml.read(gpu, readers))
            if not series[name][-1].values:
                del answering[name]
        if not answering or over.wait(period_s):
            return


def summary(readings: Sequence[Reading]) -> dict[str, Any]:
    """Return extremes and medians of what could be read, and the share of each reason among the
    readings."""

    def values(name: str) -> list[Any]:
        return [reading.values[name] for reading in readings if name in reading.values]

    facts: dict[str, Any] = {"readings": sum(bool(reading.values) for reading in readings)}
    for clock in ("sm_mhz", "memory_mhz"):
        if numbers := values(clock):
            facts |= {f"{clock}_median": median(numbers), f"{clock}_min": min(numbers)}
    if numbers := values("power_w"):
        facts |= {"power_w_median": median(numbers), "power_w_max": max(numbers)}
    for name in ("power_instant_w", "memory_temperature_c"):
        if numbers := values(name):
            facts[f"{name}_max"] = max(numbers)
    if numbers := values("temperature_c"):
        facts["temperature_c_max"] = max(numbers)
    if numbers := values("pcie_generation"):
        facts["pcie_generation_max"] = max(numbers)  # idle links run a lower one
    if numbers := values("pcie_width"):
        facts["pcie_width_min"] = min(numbers)
    if reasons := values("reasons"):
        facts["reasons"] = shares(reasons)
        busy = [shown for shown in reasons if "gpu_idle" not in shown]
        if len(busy) >= BUSY_READINGS:
            facts |= {"busy_readings": len(busy), "held_back": shares(busy)}
    if not readings:
        facts["unread"] = SILENCE
    elif not readings[-1].values:
        facts["unread"] = next(iter(readings[-1].unread.values()), "no sensor is supported")
    return facts


def shares(reasons: Sequence[set[str]]) -> dict[str, float]:
    """Return, for each reason, the share of the readings that showed it."""
    return {
        name: sum(name in shown for shown in reasons) / len(reasons)
        for name in sorted(set().union(*reasons))
    }
