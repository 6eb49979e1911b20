"""Settings in the configuration space of PCI Express devices: access control, and request sizes.

The kernel shows the capabilities behind the first 64 bytes to root only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from kit.settings.texts import Hidden, file_text

BRIDGE = "0x0604"
HEADER = 64  # bytes that everybody may read
EXTENDED, EXPRESS, ACCESS_CONTROL = 0x100, 0x10, 0x0D  # of linux/pci_regs.h
MOST_CAPABILITIES = 64  # a chain that is longer runs in a circle


def acs(devices: Path) -> str:
    """Say which bridges send traffic between their devices up to the root: P2P is slow there."""
    bridges = [
        place
        for place in sorted(devices.glob("*"))
        if (file_text(place / "class") or "").startswith(BRIDGE)
    ]
    if not bridges:
        return "no bridges"
    controls = [access_control(config_space(bridge)) for bridge in bridges]
    able = [control for control in controls if control is not None]
    if not able:
        return f"none of {len(bridges)} bridges has it"
    return f"on at {sum(map(bool, able))} of {len(able)} bridges"


def config_space(device: Path) -> bytes:
    try:
        space = (device / "config").read_bytes()
    except OSError as error:
        raise Hidden(f"{device / 'config'}: {error.strerror}") from error
    if len(space) <= HEADER:
        raise Hidden("only root may read the configuration space of PCI devices")
    return space


def access_control(space: bytes) -> int | None:
    """Return its control register; None if the bridge has none."""
    for capability, at in extended_capabilities(space):
        if capability == ACCESS_CONTROL and at + 8 <= len(space):
            return int(struct.unpack_from("<H", space, at + 6)[0])
    return None


def extended_capabilities(space: bytes) -> Iterator[tuple[int, int]]:
    at = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if at < EXTENDED or at + 4 > len(space):
            return
        (header,) = struct.unpack_from("<I", space, at)
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, at
        at = header >> 20


def request_bytes(space: bytes) -> int | None:
    """Return the largest read that a device asks for at once (MaxReadReq); None if it is no
    PCIe."""
    at = space[0x34] & 0xFC
    for _ in range(MOST_CAPABILITIES):
        if at < HEADER or at + 10 > len(space):
            return None
        if space[at] == EXPRESS:
            (control,) = struct.unpack_from("<H", space, at + 8)
            return 128 << (control >> 12 & 7)
        at = space[at + 1] & 0xFC
    return None
