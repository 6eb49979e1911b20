"""The datagrams of pings: signed with the agents' token, so that no stranger can send or answer.

An answer is as long as its ping, and has the time for which the other end held it. Standard library
only.
"""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

PING, ANSWER = 1, 2  # kinds of packets
FORM = struct.Struct("!4sB3x8sII")  # magic, kind, session, number, microseconds held
MAGIC = b"APN1"
SIGNATURE_BYTES = 16  # of SHA-256: half of it cannot be guessed either
SIZE = FORM.size + SIGNATURE_BYTES
RECEIVED_AT = 35  # SO_TIMESTAMPNS: the kernel notes when a datagram came
TIMESPEC = struct.Struct("=qq")
MOST_HELD_US = 2**32 - 1  # of the field
MOST_READ = 64  # datagrams of a socket in one turn


class Packet(NamedTuple):
    kind: int
    session: bytes  # of the agent that pings, since it began
    number: int
    held_us: int = 0


class Arrival(NamedTuple):
    packet: Packet
    sender: tuple[str, int]  # with IPv6, a flow label and a scope follow
    at: float  # wall clock, by the kernel


def pack(packet: Packet, token: bytes) -> bytes:
    text = FORM.pack(MAGIC, packet.kind, packet.session, packet.number, packet.held_us)
    return text + signature(text, token)


def unpack(data: bytes, token: bytes) -> Packet | None:
    """Return the packet; None if it is another's."""
    text = data[: FORM.size]
    if len(data) != SIZE or not hmac.compare_digest(data[FORM.size :], signature(text, token)):
        return None
    magic, kind, session, number, held_us = FORM.unpack(text)
    return Packet(kind, session, number, held_us) if magic == MAGIC else None


def signature(text: bytes, token: bytes) -> bytes:
    return hmac.digest(token, text, "sha256")[:SIGNATURE_BYTES]


def open_socket(device: str, address: str, port: int = 0) -> socket.socket:
    """Open a socket that sends and receives on this NIC only, if this process may ask for it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        with suppress(OSError):  # without the right, the address alone chooses the NIC
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        opened.setsockopt(socket.SOL_SOCKET, RECEIVED_AT, 1)
        opened.bind((address, port))
    except OSError:
        opened.close()
        raise
    return opened


def arrivals(opened: socket.socket, token: bytes) -> Iterator[Arrival]:
    """Yield what has arrived and is of an agent; the rest is thrown away."""
    for _ in range(MOST_READ):
        try:
            data, notes, _, sender = opened.recvmsg(SIZE + 1, 64)
        except OSError:  # nothing is there, or the other end refused an earlier one
            return
        if packet := unpack(data, token):
            yield Arrival(packet, sender, arrival_time(notes))


def arrival_time(notes: list[tuple[int, int, bytes]]) -> float:
    for level, kind, value in notes:
        if (level, kind) == (socket.SOL_SOCKET, RECEIVED_AT) and len(value) == TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack(value)
            return float(seconds + nanoseconds * 1e-9)
    return time.time()


def answer_to(arrival: Arrival) -> Packet:
    held = round((time.time() - arrival.at) * 1e6)
    _, session, number, _ = arrival.packet
    return Packet(ANSWER, session, number, min(max(held, 0), MOST_HELD_US))
