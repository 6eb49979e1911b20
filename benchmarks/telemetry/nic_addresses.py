"""The IPv4 addresses of this machine's NICs, by the names of their devices: of an HCA that of its
interface, too."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GET_ADDRESS = 0x8915  # SIOCGIFADDR, of linux/sockios.h
LOOPBACK = "lo"


class Nic(NamedTuple):
    interface: str
    address: str


def nics_here(root: Path) -> dict[str, Nic]:
    """Return the NICs that have an address. One of several ports of an HCA goes by its interface
    only."""
    names = [name for _, name in socket.if_nameindex() if name != LOOPBACK]
    nics = {name: Nic(name, address) for name in names if (address := address_of(name))}
    for hca, interfaces in hca_interfaces(root):
        if len(interfaces) == 1 and interfaces[0] in nics:
            nics[hca] = nics[interfaces[0]]
    return nics


def hca_interfaces(root: Path) -> Iterator[tuple[str, list[str]]]:
    for hca in sorted((root / "sys/class/infiniband").glob("*")):
        yield hca.name, sorted(path.name for path in (hca / "device/net").glob("*"))


def address_of(interface: str) -> str:
    """Return its address; empty if it has none."""
    question = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            return socket.inet_ntoa(fcntl.ioctl(opened, GET_ADDRESS, question)[20:24])
        except OSError:
            return ""
