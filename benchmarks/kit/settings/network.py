"""Settings of NICs: firmware, driver, MTU, flow control, RoCE, and the slot of each name.

Plain functions of a root, and of a socket to the kernel. Virtual functions are left out: they are
as their adapter is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from kit.network.ports import gpu_places, manages_nvswitches, number_key
from kit.settings.dcb import flow_control
from kit.settings.pci import config_space, request_bytes
from kit.settings.texts import NOT_SUPPORTED, Settings, file_text, names_in

NAMED_BY_ADDRESS = re.compile(r"enx[0-9a-f]{12}")
AskFlowControl = Callable[[str], str]


def tell_network(settings: Settings, root: Path, ask: AskFlowControl = flow_control) -> None:
    adapters = physical(root / "sys/class/infiniband")
    nics = physical(root / "sys/class/net")
    names = [NAMED_BY_ADDRESS.sub("enx…", path.name) for path in nics]
    settings.tell("nics", ", ".join(names) or "none")
    settings.tell("adapters", "; ".join(map(rail_nic, adapters)) or "none")
    for adapter in adapters:
        tell_adapter(settings, root, adapter)
    for nic in nics:
        if NAMED_BY_ADDRESS.fullmatch(nic.name):
            continue  # no two nodes have a NIC of that name
        tell_nic(settings, nic, ask)
    rails = [adapter for adapter in adapters if not manages_nvswitches(adapter / "device")]
    gpus = gpu_places(root / "proc/driver/nvidia/gpus", root / "sys/bus/pci/devices")
    for place, gpu in enumerate(gpus):
        device = f"cuda:{place}"
        settings.tell("slot", f"{Path(gpu).name}, NUMA node {numa_node(Path(gpu))}", device)
        if rails:
            settings.tell("nearest_adapter", nearest(gpu, rails), device)


def physical(folder: Path) -> list[Path]:
    """Return cards by number, and bonds of them. Whatever else has no device is made by software:
    bridges."""
    return [
        folder / name
        for name in sorted(names_in(folder), key=number_key)
        if (folder / name / "bonding").is_dir()
        or ((folder / name / "device").exists() and not (folder / name / "device/physfn").exists())
    ]


def rail_nic(adapter: Path) -> str:
    """Return its name and its slot, by which names and rails belong together."""
    return f"{adapter.name} {slot(adapter)}"


def slot(adapter: Path) -> str:
    return Path(os.path.realpath(adapter / "device")).name


def numa_node(device: Path) -> str:
    return file_text(device / "numa_node") or "unknown"


def nearest(gpu: str, adapters: list[Path]) -> str:
    """Return the adapters that share most of their way from the root of the PCI tree with the
    GPU."""
    shared = {
        adapter.name: len(os.path.commonpath([gpu, os.path.realpath(adapter / "device")]))
        for adapter in adapters
    }
    return ", ".join(name for name, length in shared.items() if length == max(shared.values()))


def tell_adapter(settings: Settings, root: Path, adapter: Path) -> None:
    name, device = adapter.name, adapter / "device"
    settings.ask("firmware", lambda: file_text(adapter / "fw_ver"), name)
    settings.ask("model", lambda: file_text(adapter / "board_id"), name)
    settings.tell("slot", f"{slot(adapter)}, NUMA node {numa_node(device)}", name)
    settings.ask("nic_of_adapter", lambda: ", ".join(names_in(device / "net")) or "none", name)
    settings.ask("max_read_request", lambda: read_request(device), name)
    for port in sorted(names_in(adapter / "ports")):
        place = name if port == "1" else f"{name}/{port}"
        settings.ask(
            "link_layer",
            lambda port=port: file_text(adapter / "ports" / port / "link_layer"),
            place,
        )
        settings.ask("traffic_class", lambda port=port: traffic_class(adapter / "tc" / port), place)
        cm = root / "sys/kernel/config/rdma_cm" / name / "ports" / port
        settings.ask("roce_mode", lambda cm=cm: file_text(cm / "default_roce_mode"), place)
        settings.ask("roce_tos", lambda cm=cm: file_text(cm / "default_roce_tos"), place)


def read_request(device: Path) -> str | None:
    if not (device / "config").exists():
        return None
    size = request_bytes(config_space(device))
    return f"{size} B" if size else NOT_SUPPORTED


def traffic_class(folder: Path) -> str | None:
    """Parse `Global tclass=106` as the driver writes it; an empty file is the default."""
    line = file_text(folder / "traffic_class")
    if line is None:
        return None
    match = re.search(r"tclass=(\d+)", line)
    return match[1] if match else line or "default"


def tell_nic(settings: Settings, nic: Path, ask: AskFlowControl) -> None:
    settings.ask("mtu", lambda: file_text(nic / "mtu"), nic.name)
    settings.ask("nic_driver", lambda: driver(nic), nic.name)
    settings.ask("queue_length", lambda: file_text(nic / "tx_queue_len"), nic.name)
    settings.ask("pfc", lambda: ask(nic.name), nic.name)
    settings.ask("ecn", lambda: ecn(nic / "ecn"), nic.name)


def driver(nic: Path) -> str | None:
    place = nic / "device/driver"
    return Path(os.path.realpath(place)).name if place.exists() else None


def ecn(folder: Path) -> str:
    """Say, for each priority, whether the NIC marks congestion (np) and slows down for it (rp)."""
    parts = list(enabled_roles(folder))
    return "; ".join(parts) or NOT_SUPPORTED


def enabled_roles(folder: Path) -> Iterator[str]:
    for role in ("roce_np", "roce_rp"):
        priorities = names_in(folder / role / "enable")
        on = [p for p in priorities if file_text(folder / role / "enable" / p) == "1"]
        if priorities:
            yield f"{role} on priorities {','.join(on) or 'none'}"
