"""The kernel's facts about connections between the ranks of this machine, and to others: bytes that
the other end has not acknowledged, how often they were sent again in vain, and how many went how
fast.

The first two are read from `/proc/PID/net/tcp` in the network that a rank is in, with no right
beyond that to look at the process. The last is asked of the kernel on a socket of `sock_diag`,
which needs no right either and lists the connections of the network in which this process is. RDMA
does not pass here.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from anubis.core.diagnose.evidence import Connection

SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
BY_FAMILY, DUMP = 20, 0x301  # SOCK_DIAG_BY_FAMILY; a request for all
INFORMATION = 2  # INET_DIAG_INFO
ESTABLISHED = 1 << 1  # the bit of TCP_ESTABLISHED
END, ERROR = 3, 2  # kinds of messages
MOST_BYTES_AT_ONCE = 1 << 18  # of an answer
MOST_ANSWERS = 4096  # messages of the kernel, each with many connections
ANSWER_S = 0.5  # the kernel answers at once
_HEADER = struct.Struct("=IHHII")  # length, kind, flags, number, process
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states, any ends
_ATTRIBUTE = struct.Struct("=HH")  # length, kind
_INODE_AT, _ATTRIBUTES_AT = 68, 72  # places in an answer
_BYTES, _BUSY = struct.Struct("=QQ"), struct.Struct("=QQ")  # acknowledged and received
_BYTES_AT, _BUSY_AT = 120, 168  # places in tcp_info, of Linux 4.10 and later


@dataclass(frozen=True)
class Sending:
    """What a connection has sent and received so far."""

    acknowledged_bytes: int
    busy_s: float  # bytes were on their way, and the other end had room for them
    received_bytes: int = 0


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
            yield kernel.recv(MOST_BYTES_AT_ONCE)


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
                yield struct.unpack_from("=I", message, _INODE_AT)[0], sending
            place += _aligned(length)


def _sending(message: bytes) -> Sending | None:
    """Return what an answer says; None if the kernel counts no busy time."""
    place = _ATTRIBUTES_AT
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
    acknowledged, received = _BYTES.unpack_from(counts, _BYTES_AT)
    busy_us, no_room_us = _BUSY.unpack_from(counts, _BUSY_AT)
    return Sending(acknowledged, max(0, busy_us - no_room_us) / 1e6, received)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


FILES = ("tcp", "tcp6")
MOST_OPEN = 65_536  # files of a process
WINDOW = 40  # samples
RESENDING = 1  # the timer that runs: bytes were sent, and are not acknowledged
PROBING = 4  # the peer has no room for more: its program does not read
_LINE = re.compile(
    r"\s*\d+: ([0-9A-F]+:[0-9A-F]{4}) ([0-9A-F]+:[0-9A-F]{4}) 01 ([0-9A-F]{8}):([0-9A-F]{8})"
    r" ([0-9A-F]{2}):[0-9A-F]+ ([0-9A-F]{8}) +\d+ +\d+ (\d+)"
)
_INODE = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One end of an established connection, at one moment."""

    here: str  # address and port, as the kernel writes them
    there: str
    unacknowledged: int  # bytes, that the other end has room for
    unread: int  # bytes that came, and that the program has not taken
    resent: int  # how often the oldest bytes were sent again without an answer
    inode: int


def parse_wires(lines: Iterable[str]) -> Iterator[Wire]:
    """Parse a file like `/proc/net/tcp`. Lines of any other form are ignored."""
    return (_wire(match) for match in map(_LINE.match, lines) if match)


def _wire(line: re.Match[str]) -> Wire:
    timer = int(line[5], 16)
    return Wire(
        here=line[1],
        there=line[2],
        unacknowledged=0 if timer == PROBING else int(line[3], 16),
        unread=int(line[4], 16),
        resent=int(line[6], 16) if timer == RESENDING else 0,
        inode=int(line[7]),
    )


def address_of(end: str) -> str:
    """Return an address as text: the kernel writes it in the order of its own bytes, four at a
    time."""
    digits = end.partition(":")[0]
    words = (bytes.fromhex(digits[start : start + 8]) for start in range(0, len(digits), 8))
    packed = b"".join(word[::-1] for word in words)
    address = ipaddress.ip_address(packed)
    inner = getattr(address, "ipv4_mapped", None)
    return str(inner or address)


@dataclass(frozen=True)
class _Sample:
    at: float = 0.0
    is_sending: bool = False
    resent: int = 0
    sent: Mapping[int, Sending] = field(default_factory=dict)  # by inode


_Place = tuple[int, str, str, int | None]  # rank, its address, that of its peer, the peer's rank


@dataclass
class SocketWatch:
    """Samples of the connections of processes by their ranks, and what the last samples saw."""

    _seen: dict[_Place, deque[_Sample]] = field(default_factory=dict)
    _received: dict[int, dict[int, int]] = field(default_factory=dict)  # rank → inode → so far
    _loaded: dict[int, int] = field(default_factory=dict)  # rank → bytes from no rank of this host

    def sample(self, pids: Mapping[int, int]) -> None:
        """Take a sample; `pids`: by rank. A process that may not be read has no connections."""
        wires, sendings, at = dict(_wires_of_ranks(pids)), read_sendings(), time.monotonic()
        owners = {(wire.here, wire.there): rank for rank, own in wires.items() for wire in own}
        unread = {(wire.here, wire.there) for own in wires.values() for wire in own if wire.unread}
        now: dict[_Place, _Sample] = {}
        for rank, own in wires.items():
            for wire in own:
                back = wire.there, wire.here
                peer_rank = owners.get(back)
                if peer_rank == rank:
                    continue
                if peer_rank is None and wire.inode in sendings:
                    self._note_received(rank, wire.inode, sendings[wire.inode].received_bytes)
                key = rank, address_of(wire.here), address_of(wire.there), peer_rank
                before = now.get(key, _Sample())
                # what the other end leaves unread waits for its program, not for the wire
                is_sending = wire.unacknowledged > 0 and back not in unread
                sent = {wire.inode: sendings[wire.inode]} if wire.inode in sendings else {}
                now[key] = _Sample(
                    at=at,
                    is_sending=before.is_sending or is_sending,
                    resent=max(before.resent, wire.resent),
                    sent={**before.sent, **sent},
                )
        for key, sample in now.items():
            self._seen.setdefault(key, deque(maxlen=WINDOW)).append(sample)
        for key in self._seen.keys() - now.keys():
            del self._seen[key]

    def _note_received(self, rank: int, inode: int, count: int) -> None:
        before = self._received.setdefault(rank, {})
        self._loaded[rank] = self.loaded_bytes(rank) + max(0, count - before.get(inode, count))
        before[inode] = count

    def loaded_bytes(self, rank: int) -> int:
        """Return how many bytes a rank received since the first sample, as in a download."""
        return self._loaded.get(rank, 0)

    def connections(self) -> Iterator[Connection]:
        for (rank, own, peer, peer_rank), samples in self._seen.items():
            moved = list(_sent_between(samples[0], samples[-1]))
            yield Connection(
                rank=rank,
                own=own,
                peer=peer,
                peer_rank=peer_rank,
                samples=len(samples),
                sending=sum(sample.is_sending for sample in samples),
                resent=samples[-1].resent,
                seen_s=samples[-1].at - samples[0].at,
                moved_bytes=sum(sending.acknowledged_bytes for sending in moved),
                busy_s=max((sending.busy_s for sending in moved), default=0.0),
            )


def _sent_between(first: _Sample, last: _Sample) -> Iterator[Sending]:
    """Yield what each connection sent between two samples."""
    for inode in first.sent.keys() & last.sent.keys():
        before, after = first.sent[inode], last.sent[inode]
        yield Sending(
            after.acknowledged_bytes - before.acknowledged_bytes, after.busy_s - before.busy_s
        )


def _wires_of_ranks(pids: Mapping[int, int]) -> Iterator[tuple[int, list[Wire]]]:
    networks: dict[Path, dict[int, set[int]]] = {}  # the inodes of each rank in it
    for rank, pid in pids.items():
        place = Path("/proc", str(pid))
        with suppress(OSError):
            network = (place / "ns" / "net").readlink()
            networks.setdefault(network, {})[rank] = set(_inodes(place / "fd"))
    for ranks in networks.values():
        sought = set().union(*ranks.values())
        with suppress(OSError):
            folder = Path("/proc", str(pids[next(iter(ranks))]), "net")
            wires = {wire.inode: wire for wire in _wires(folder) if wire.inode in sought}
            for rank, inodes in ranks.items():
                yield rank, [wires[inode] for inode in inodes if inode in wires]


def _wires(folder: Path) -> Iterator[Wire]:
    for name in FILES:
        try:
            with (folder / name).open(encoding="ascii", errors="replace") as file:
                yield from parse_wires(file)
        except FileNotFoundError:
            continue  # no IPv6 here


def _inodes(folder: Path) -> Iterable[int]:
    for entry in islice(folder.iterdir(), MOST_OPEN):
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # closed meanwhile
        if match := _INODE.match(target):
            yield int(match[1])
