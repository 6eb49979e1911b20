"""Priorities of a NIC that flow control (PFC) pauses, from the kernel by netlink.

The request and the answer are those of linux/dcbnl.h: DCB_CMD_IEEE_GET, IEEE 802.1Q.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from kit.settings.texts import NOT_SUPPORTED, Hidden

GET_DCB, IEEE_GET = 78, 21  # RTM_GETDCB, DCB_CMD_IEEE_GET
IFNAME, IEEE, IEEE_PFC = 1, 13, 2  # DCB_ATTR_IFNAME, DCB_ATTR_IEEE, DCB_ATTR_IEEE_PFC
REQUEST, ERROR = 1, 2  # NLM_F_REQUEST, NLMSG_ERROR
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
KIND = 0x3FFF  # without the flags of a nested attribute
PATIENCE_S = 1.0  # the kernel answers at once
MOST_BYTES = 64 << 10  # of an answer of netlink
NOT_THERE = {95, 19, 22}  # EOPNOTSUPP, ENODEV, EINVAL: a driver without data centre bridging


def flow_control(nic: str) -> str:
    """Return `on priorities 3`, `off`, or that this NIC has none."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(PATIENCE_S)
        kernel.send(question(nic))
        return describe(kernel.recv(MOST_BYTES))


def question(nic: str) -> bytes:
    name = nic.encode() + b"\0"
    body = struct.pack("=BBH", 0, IEEE_GET, 0)
    body += ATTRIBUTE.pack(ATTRIBUTE.size + len(name), IFNAME) + name + bytes(-len(name) % 4)
    return HEADER.pack(HEADER.size + len(body), GET_DCB, REQUEST, 1, 0) + body


def describe(answer: bytes) -> str:
    if len(answer) < HEADER.size + 4:
        raise Hidden("the kernel's answer about flow control is cut short")
    _, kind, *_ = HEADER.unpack_from(answer)
    if kind == ERROR:
        (code,) = struct.unpack_from("=i", answer, HEADER.size)
        if -code in NOT_THERE:
            return NOT_SUPPORTED
        raise Hidden(f"the kernel does not tell flow control: {os.strerror(-code)}")
    for outer, inside in attributes(answer[HEADER.size + 4 :]):
        for inner, value in attributes(inside) if outer == IEEE else ():
            if inner == IEEE_PFC and len(value) >= 2:  # struct ieee_pfc: pfc_cap, pfc_en, ...
                on = [str(priority) for priority in range(8) if value[1] >> priority & 1]
                return f"on priorities {','.join(on)}" if on else "off"
    return NOT_SUPPORTED


def attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + ATTRIBUTE.size <= len(body):
        length, kind = ATTRIBUTE.unpack_from(body, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & KIND, body[at + ATTRIBUTE.size : at + length]
        at += length + -length % 4
