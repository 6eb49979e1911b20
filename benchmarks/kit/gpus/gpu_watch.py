"""The state of GPUs while something is measured: clocks, power, temperature, what holds them back.

A thread reads it now and then, and the summary goes into the document beside the samples, under
"gpu_state". Whatever fails here is noted there and disturbs no measurement.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from kit.background import begin
from kit.gpus.cards import visible_gpus
from kit.gpus.drivers import Driver, find_driver
from kit.gpus.readings import Handle, Reader, Reading, Unread

if TYPE_CHECKING:
    import torch

PATIENCE_S = 5  # with a driver that may hang
SILENCE = "{} does not answer"
BUSY_READINGS = 4  # fewer show nothing of a load
GPU_MODELS = "gpu_models"  # in an environment: the model of each GPU, as contract.py notes it
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

    driver, name = find_driver(), str(device)
    properties = torch.cuda.get_device_properties(device)
    with watch(driver, lambda: gpu_of(driver, name, properties), period_s) as states:
        yield
    state = {"readings": 0} | states.pop(name, {}) | states
    notes.setdefault("gpu_state", {}).setdefault(str(device), {})[metric] = state


@contextmanager
def node_watched(report: Any, period_s: float = 0.5) -> Iterator[None]:
    """Watch all GPUs of the node while the body runs, whoever measures on them.

    Errors that a GPU counts under load, and what held it back then, are facts of their own. The
    report is a contract.Report, whose module needs this one.
    """
    notes, driver = report.notes, find_driver()
    set_clocks_back()
    rates: Rates | None = {} if ERRORS in report.metrics else None
    models: dict[str, str] = {}
    with watch(driver, lambda: all_gpus(driver), period_s, rates, models) as states:
        yield
    set_clocks_back()
    for name, by_counter in (rates or {}).items():
        if risen := {counter: rate for counter, rate in by_counter.items() if rate}:
            states[name]["errors_per_min"] = risen
    notes.setdefault("gpu_state", {})["node"] = states
    if models and "torch" not in sys.modules:  # which names the GPUs that it uses
        devices = devices_by_name(list(models)).items()
        notes.setdefault(GPU_MODELS, {device: models[name] for name, device in devices})
    if report.series and rates is not None:
        report_load(report, states, rates)


def set_clocks_back() -> None:
    """Set back the clocks that a program has left changed. What fails disturbs no measurement."""
    from kit.gpus.clocks import give_back_all  # it loads pynvml

    with suppress(Exception):
        begin(give_back_all).result(PATIENCE_S)


def report_load(report: Any, states: Mapping[str, Any], rates: Rates) -> None:
    gpus = [name for name, state in states.items() if isinstance(state, dict)]
    for name, device in devices_by_name(gpus).items():
        for counter, per_min in rates.get(name, {}).items():
            report.add(f"{ERRORS}:{counter.replace(':', '_')}", device, [per_min])
        for reason, share in states[name].get("held_back", {}).items():
            report.add(f"{HELD_BACK}:{reason}", device, [share])


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


def gpu_of(driver: Driver, name: str, properties: Any) -> Choice:
    driver.begin()
    return {name: driver.find_gpu(properties)}, {}


def all_gpus(driver: Driver) -> Choice:
    """Return all GPUs by UUID, as `GPU-…`, in the driver's order; those that do not give theirs by
    their number."""
    driver.begin()
    handles, refused = driver.gpus_by_index()
    if not handles and not refused:
        raise Unread(f"{driver.CALLED} knows of no GPU")
    named = {
        driver.read(gpu, driver.UUID).values.get("uuid", f"gpu {index}"): gpu
        for index, gpu in handles.items()
    }
    return named, {f"gpu {index}": reason for index, reason in refused.items()}


@contextmanager
def watch(
    driver: Driver,
    choose: Callable[[], Choice],
    period_s: float,
    rates: Rates | None = None,
    models: dict[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what is filled in at the end: a summary for each GPU, and what went wrong.

    `rates` is filled with the rise of the counters of errors, `models` with the GPUs' models.
    """
    states: dict[str, Any] = {}
    series: dict[str, list[Reading]] = {}
    over = threading.Event()

    def look() -> None:
        gpus, refused = choose()
        series.update({name: [Reading(unread={"gpu": why})] for name, why in refused.items()})
        if models is not None:
            models.update(read_models(driver, gpus))
        begun, before = time.monotonic(), {} if rates is None else count_errors(driver, gpus)
        sample(driver, gpus, driver.STATE, period_s, over, series)
        if rates is not None:
            minutes = max(1.0, (time.monotonic() - begun) / 60)
            after = count_errors(driver, gpus)
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
            states["unread"] = SILENCE.format(driver.CALLED)
        except Exception as error:
            states["unread"] = str(error) or type(error).__name__
        states |= {
            name: summary(driver, list(readings)) for name, readings in tuple(series.items())
        }


def read_models(driver: Driver, gpus: Mapping[str, Handle]) -> dict[str, str]:
    readings = {
        name: driver.read(gpu, {"model": driver.IDENTITY["model"]}) for name, gpu in gpus.items()
    }
    return {name: r.values["model"] for name, r in readings.items() if r.values.get("model")}


def count_errors(driver: Driver, gpus: Mapping[str, Handle]) -> dict[str, dict[str, int]]:
    return {name: driver.read(gpu, driver.ERRORS).values for name, gpu in gpus.items()}


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
    driver: Driver,
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
            series[name].append(driver.read(gpu, readers))
            if not series[name][-1].values:
                del answering[name]
        if not answering or over.wait(period_s):
            return


def summary(driver: Driver, readings: Sequence[Reading]) -> dict[str, Any]:
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
        facts["reasons"] = driver.shares(reasons)
        if len(busy := driver.busy(reasons)) >= BUSY_READINGS:
            facts |= {"busy_readings": len(busy), "held_back": driver.slowdowns(busy)}
    if not readings:
        facts["unread"] = SILENCE.format(driver.CALLED)
    elif not readings[-1].values:
        facts["unread"] = next(iter(readings[-1].unread.values()), "no sensor is supported")
    return facts
