"""The addresses of this machine's NICs, by the names of their devices: of an HCA that of its
interface, too. A NIC without an IPv4 address has its first global one of IPv6."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GET_ADDRESS = 0x8915  # SIOCGIFADDR, of linux/sockios.h
LOOPBACK = "lo"
GLOBAL, UNUSABLE = "00", 0x48  # a scope; flags (linux/if_addr.h): a duplicate, or not yet checked


class Nic(NamedTuple):
    interface: str
    address: str


def nics_here(root: Path) -> dict[str, Nic]:
    """Return the NICs that have an address. One of several ports of an HCA goes by its interface
    only."""
    names = [name for _, name in socket.if_nameindex() if name != LOOPBACK]
    global_ones = addresses_v6(root)
    addresses = {name: address_of(name) or global_ones.get(name, "") for name in names}
    nics = {name: Nic(name, address) for name, address in addresses.items() if address}
    for hca, interfaces in hca_interfaces(root):
        if len(interfaces) == 1 and interfaces[0] in nics:
            nics[hca] = nics[interfaces[0]]
    return nics


def hca_interfaces(root: Path) -> Iterator[tuple[str, list[str]]]:
    for hca in sorted((root / "sys/class/infiniband").glob("*")):
        yield hca.name, sorted(path.name for path in (hca / "device/net").glob("*"))


def addresses_v6(root: Path) -> dict[str, str]:
    """Return the first global IPv6 address of each interface, by the kernel's table."""
    addresses: dict[str, str] = {}
    with suppress(OSError):  # without IPv6 there is no table
        for line in (root / "proc/net/if_inet6").read_text().splitlines():
            number, _, _, scope, flags, interface = line.split()
            if scope == GLOBAL and not int(flags, 16) & UNUSABLE:
                address = str(ipaddress.IPv6Address(int(number, 16)))
                addresses.setdefault(interface, address)
    return addresses


def address_of(interface: str) -> str:
    """Return its IPv4 address; empty if it has none."""
    question = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            return socket.inet_ntoa(fcntl.ioctl(opened, GET_ADDRESS, question)[20:24])
        except OSError:
            return ""
