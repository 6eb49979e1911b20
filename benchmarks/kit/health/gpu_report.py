"""GPUs in the report of node_health: what their driver says, and how many it does not reach."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from kit.gpus.drivers import Driver, find_driver
from kit.gpus.gpu_watch import sample
from kit.gpus.readings import NoDriver, Reading, Unread
from kit.health.findings import Findings

PERIOD_S = 0.25  # between two looks at the throttle reasons
PATIENCE_S = 30.0  # a driver that has to wake eight GPUs is slow; one that takes longer hangs


@dataclass
class Look:
    findings: Findings = field(default_factory=Findings)
    lost: int = 0  # GPUs that the driver knows of and does not reach
    failed: str = ""  # why the driver tells nothing of its GPUs ...
    silent: str = ""  # ... or that it never answered


def look(over: threading.Event) -> Look:
    """Return everything about all GPUs, and what changes until it is over."""
    driver = find_driver()
    driver.begin()
    handles, refused = driver.gpus_by_index()
    if not handles and not refused:
        raise Unread(f"{driver.CALLED} knows of no GPU")
    gpus = {f"cuda:{index}": gpu for index, gpu in handles.items()}
    once = driver.COUNTERS | driver.CONDITION | driver.IDENTITY
    first = {device: driver.read(gpu, once) for device, gpu in gpus.items()}
    looks: dict[str, list[Reading]] = {}
    sample(driver, gpus, driver.HELD_BACK, PERIOD_S, over, looks)
    last = {device: driver.read(gpu, driver.COUNTERS) for device, gpu in gpus.items()}

    readings = {device: [first[device], *looks[device], last[device]] for device in gpus}
    findings = Findings(facts={"gpus": {}})
    of_node = driver.read(None, driver.DRIVER)
    findings.facts |= of_node.values
    findings.unread |= {f"cuda:{index}": reason for index, reason in refused.items()}
    report_unread(findings, {"the driver": [of_node], **readings})
    for device in gpus:
        report_condition(findings, driver, device, first[device])
        report_throttling(findings, driver, device, looks[device])
        report_rises(findings, device, first[device], last[device])
    report_missing(findings, driver, first)
    lost = [device for device in gpus if any(reading.gone for reading in readings[device])]
    if reached := len(gpus) - len(lost):
        findings.add("gpus", "node", reached)
    return Look(findings, len(refused) + len(lost))


def report_unread(findings: Findings, readings: Mapping[str, Sequence[Reading]]) -> None:
    """Report what failed before what is not supported: one GPU's missing support must not hide
    another's failure."""
    by_device = [(device, reading) for device, row in readings.items() for reading in row]
    for device, reading in by_device:
        for name, reason in reading.unread.items():
            findings.miss(name, f"{device}: {reason}")
    for device, reading in by_device:
        for name in reading.unsupported:
            findings.miss(name, f"not supported by {device}")


def report_condition(findings: Findings, driver: Driver, device: str, reading: Reading) -> None:
    for name, value in reading.values.items():
        if name in driver.CONDITION:
            findings.add(name, device, value)
    identity = {name: value for name, value in reading.values.items() if name in driver.IDENTITY}
    findings.facts["gpus"][device] = identity


def report_missing(findings: Findings, driver: Driver, readings: Mapping[str, Reading]) -> None:
    """Report how many fewer links a GPU has than the best of its siblings of the same model, if its
    driver does not say how many it should have. It is a count, which a limit judges as it judges
    the driver's own."""
    for missing, name in driver.BY_SIBLINGS.items():
        largest: dict[object, int] = {}
        for values in (reading.values for reading in readings.values()):
            if name in values:
                model = values.get("model")
                largest[model] = max(values[name], largest.get(model, 0))
        for device, values in ((device, reading.values) for device, reading in readings.items()):
            if name in values and missing not in values:
                findings.add(missing, device, largest[values.get("model")] - values[name])


def report_throttling(
    findings: Findings, driver: Driver, device: str, looks: Sequence[Reading]
) -> None:
    shown = [look.values["throttled"] for look in looks if look.values]
    for reason, share in driver.slowdowns(shown).items():
        findings.add(f"throttled:{reason}", device, share)


def report_rises(findings: Findings, device: str, first: Reading, last: Reading) -> None:
    for name in first.values.keys() & last.values.keys():
        rise = last.values[name] - first.values[name]
        # counters that somebody cleared meanwhile began again at 0
        findings.add(name, device, rise if rise >= 0 else last.values[name])


def addresses(findings: Findings) -> dict[str, str]:
    """Return the GPUs' places on the PCI bus, as far as they could be read."""
    gpus = findings.facts.get("gpus", {})
    return {device: facts["address"] for device, facts in gpus.items() if "address" in facts}


def outcome(looking: Future[Look]) -> Look:
    """Return what was seen. A driver that hangs or refuses leaves everything unknown: no GPU is
    lost by that."""
    nothing, called = Look(), find_driver().CALLED
    try:
        return looking.result(PATIENCE_S)
    except TimeoutError:
        nothing.silent = f"{called} does not answer within {PATIENCE_S:g} s"
        nothing.findings.miss(called, nothing.silent)
    except Unread as error:
        nothing.findings.miss(called, error)
        nothing.failed = "" if isinstance(error, NoDriver) else str(error)
    return nothing
