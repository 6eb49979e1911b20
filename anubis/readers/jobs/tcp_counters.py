"""The kernel's counts of each TCP connection here: bytes that the other end acknowledged, and the
time in which bytes were on their way.

It answers on a socket of `sock_diag` without any right, and lists the connections of the network in
which this process is.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
BY_FAMILY, DUMP = 20, 0x301  # SOCK_DIAG_BY_FAMILY; a request for all
INFORMATION = 2  # INET_DIAG_INFO
ESTABLISHED = 1 << 1  # the bit of TCP_ESTABLISHED
END, ERROR = 3, 2  # kinds of messages
MOST_BYTES = 1 << 18  # of an answer
MOST_ANSWERS = 4096  # messages of the kernel, each with many connections
ANSWER_S = 0.5  # the kernel answers at once
_HEADER = struct.Struct("=IHHII")  # length, kind, flags, number, process
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states, any ends
_ATTRIBUTE = struct.Struct("=HH")  # length, kind
_INODE, _ATTRIBUTES = 68, 72  # places in an answer
_ACKNOWLEDGED, _BUSY = struct.Struct("=Q"), struct.Struct("=QQ")
_ACKNOWLEDGED_AT, _BUSY_AT = 120, 168  # places in tcp_info, of Linux 4.10 and later


@dataclass(frozen=True)
class Sending:
    """What a connection has sent so far."""

    acknowledged_bytes: int
    busy_s: float  # bytes were on their way, and the other end had room for them


def read_sendings() -> dict[int, Sending]:
    """Read all established connections, by inode; none if the kernel does not answer."""
    sendings: dict[int, Sending] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            sendings.update(parse_answers(_ask(family)))
    return sendings


def _ask(family: int) -> Iterator[bytes]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INFORMATION - 1), ESTABLISHED)
    header = _HEADER.pack(_HEADER.size + len(body), BY_FAMILY, DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_S)
        kernel.send(header + body)
        for _ in range(MOST_ANSWERS):
            yield kernel.recv(MOST_BYTES)


def parse_answers(answers: Iterable[bytes]) -> Iterator[tuple[int, Sending]]:
    """Yield inodes and what they sent, up to the message that ends the list."""
    for answer in answers:
        place = 0
        while place + _HEADER.size <= len(answer):
            length, kind, *_ = _HEADER.unpack_from(answer, place)
            if kind in (END, ERROR) or length < _HEADER.size:
                return
            message = answer[place + _HEADER.size : place + length]
            if kind == BY_FAMILY and (sending := _sending(message)) is not None:
                yield struct.unpack_from("=I", message, _INODE)[0], sending
            place += _aligned(length)


def _sending(message: bytes) -> Sending | None:
    """Return what an answer says; None if the kernel counts no busy time."""
    place = _ATTRIBUTES
    while place + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, place)
        if length < _ATTRIBUTE.size:
            return None
        if kind == INFORMATION:
            return _parse_information(message[place + _ATTRIBUTE.size : place + length])
        place += _aligned(length)
    return None


def _parse_information(counts: bytes) -> Sending | None:
    if len(counts) < _BUSY_AT + _BUSY.size:
        return None
    (acknowledged,) = _ACKNOWLEDGED.unpack_from(counts, _ACKNOWLEDGED_AT)
    busy_us, no_room_us = _BUSY.unpack_from(counts, _BUSY_AT)
    return Sending(acknowledged, max(0, busy_us - no_room_us) / 1e6)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
