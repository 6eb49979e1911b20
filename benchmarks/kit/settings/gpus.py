"""Settings of GPUs from their driver and the kernel, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from kit.gpus import nvml
from kit.gpus.cards import amd_cards, cards
from kit.gpus.readings import Reading, Unread
from kit.settings.gpu_links import describe as describe_links
from kit.settings.gpu_links import read_links
from kit.settings.texts import NOT_SUPPORTED, Settings, file_text

OF_DRIVER = {"nvml": "nvml_version", "cuda_of_driver": "cuda_driver_version"}
ON_OFF = {0: "off", 1: "on"}
# A service that may keep the driver loaded: a process that cannot reach its socket reads "off".
KEEPER, KEEPER_COMMAND = "nvidia-persistenced", "nvidia-persiste"
UNSURE = f"off, {KEEPER} runs"
AMD = "of AMD's GPUs no driver is asked: only what the kernel shows is read"


def tell_driver(settings: Settings, root: Path) -> None:
    """Note the driver by the kernel, which answers also if NVML does not."""
    for maker in ("nvidia", "amdgpu"):
        folder = root / "sys/module" / maker
        if folder.is_dir():
            settings.tell("driver", f"{maker} {file_text(folder / 'version') or 'of the kernel'}")
            break
    else:
        settings.tell("driver", "none")
    license = re.search(r"Open Kernel Module", file_text(root / "proc/driver/nvidia/version") or "")
    if (root / "proc/driver/nvidia/version").exists():
        settings.tell("driver_kind", "open" if license else "proprietary")
    settings.tell("cards", len(cards(root)))
    if (channels := root / "dev/nvidia-caps-imex-channels").is_dir():
        settings.tell("imex_channels", len(list(channels.glob("channel*"))))


Readings = tuple[Reading, Mapping[str, Reading]]


def read_gpus() -> Readings:
    """Return the driver's own versions, and its settings of each GPU."""
    nvml.begin()
    handles, refused = nvml.gpus_by_index()
    if not handles and not refused:
        raise Unread("NVML knows of no GPU")
    of_gpus = {f"cuda:{index}": nvml.read(gpu, nvml.SETTINGS) for index, gpu in handles.items()}
    for index, reason in refused.items():
        of_gpus[f"cuda:{index}"] = Reading(unread=dict.fromkeys(nvml.SETTINGS, reason))
    return nvml.read(None, nvml.DRIVER), of_gpus


def tell_gpus(settings: Settings, root: Path, asking: Future[Readings], patience_s: float) -> None:
    tell_driver(settings, root)
    names = [*OF_DRIVER, *nvml.SETTINGS]
    if not cards(root):
        return  # nothing is missing: there is no GPU and no driver
    if amd_cards(root):
        for name in names:
            settings.miss(name, AMD)
        return
    try:
        driver, gpus = asking.result(patience_s)
    except TimeoutError:
        unanswered = f"NVML does not answer within {patience_s:g} s"
        for name in names:
            settings.miss(name, unanswered)
    except Unread as error:
        for name in names:
            settings.miss(name, error)
    else:
        tell_readings(settings, driver, gpus, may_be_kept(settings, root))
        if len(gpus) > 1:
            tell_links(settings, patience_s)


def tell_links(settings: Settings, patience_s: float) -> None:
    try:
        links = read_links(patience_s)
    except Unread as error:
        settings.miss("gpu_links", error)
    else:
        for gpu, of_gpu in links.items():
            settings.tell("gpu_links", describe_links(of_gpu), f"cuda:{gpu}")


def may_be_kept(settings: Settings, root: Path) -> bool:
    """Return whether a service runs that may keep the driver loaded."""
    is_seen = settings.texts.get("service", {}).get(KEEPER_COMMAND) == "runs"
    return is_seen or (root / "run" / KEEPER / "socket").exists()


def tell_readings(
    settings: Settings, driver: Reading, gpus: Mapping[str, Reading], may_be_kept: bool
) -> None:
    for name, reader in OF_DRIVER.items():
        if reader in driver.values:
            settings.tell(name, driver.values[reader])
        else:
            settings.miss(name, driver.unread.get(reader, NOT_SUPPORTED))
    for device, reading in gpus.items():
        for name, value in reading.values.items():
            is_unsure = may_be_kept and name == "persistence_mode" and not value
            settings.tell(name, UNSURE if is_unsure else describe(name, value), device)
        for name in reading.unsupported:
            settings.tell(name, NOT_SUPPORTED, device)
        for name, why in reading.unread.items():
            settings.miss(name, why, device)


def describe(name: str, value: object) -> str:
    if name.endswith("_w"):
        return f"{value:g} W"
    if name.endswith("_mode"):
        return ON_OFF.get(value, str(value)) if isinstance(value, int) else str(value)
    return str(value)
