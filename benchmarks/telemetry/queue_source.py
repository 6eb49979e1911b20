"""Telemetry of the queues at a node's NICs: bytes that were sent and that the link did not take.

In a ring of hosts all throughputs fall together with that of one slow link. The queues show which
link it is: the queue grows before the slow link, and nowhere else.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from telemetry.network_source import nics_in_use
from telemetry.sources import Line, Place, Sampled, labels

ASKED_EVERY_S = 0.05  # between two samples: what waits comes and goes with each message
DEAREST = 0.001  # share of a core; a host with hundreds of queues asks less often

# of the kernel: linux/rtnetlink.h, linux/gen_stats.h
GET_QUEUES, ASKED, DUMP, END, ERROR = 38, 0x1, 0x300, 3, 2
KIND, STATISTICS, QUEUE = 1, 7, 3  # TCA_KIND, TCA_STATS2, TCA_STATS_QUEUE
ROOT = 0xFFFFFFFF  # TC_H_ROOT
QUESTION = struct.pack("=IHHII", 36, GET_QUEUES, ASKED | DUMP, 1, 0) + bytes(20)
LIMIT_S = 1.0  # the kernel answers at once


class SendQueues:
    """Bytes in the queue of each NIC, the mean since the last sample."""

    def __init__(self, place: Place) -> None:
        self._root = place.root
        self._sums: dict[str, tuple[str, int]] = {}  # of each NIC: kind of queue, bytes
        self._asked = 0
        self._trouble = ""
        self._lock = threading.Lock()
        threading.Thread(target=self._ask_for_ever, daemon=True, name="queues").start()

    def read(self, now: float) -> Sampled:
        with self._lock:
            sums, times, trouble = self._sums, self._asked, self._trouble
            self._sums, self._asked = {}, 0
        sampled, lines = Sampled(), list[Line]()
        for nic in nics_in_use(self._root, list(sums)):
            kind, total = sums[nic]
            sampled.add("send_queue", nic, total / times)
            lines.append(Line("node_qdisc_backlog", labels(device=nic, kind=kind), total / times))
        if not sampled.values:
            sampled.absent["send_queue"] = trouble or "no NIC has a queue"
        sampled.lines = lambda: lines
        return sampled

    def _ask_for_ever(self) -> None:
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
                kernel.settimeout(LIMIT_S)
                while True:
                    began = time.thread_time()
                    self._note(queued_bytes(kernel))
                    took = time.thread_time() - began
                    time.sleep(max(ASKED_EVERY_S, took / DEAREST))
        except OSError as error:
            self._trouble = f"the kernel does not tell its queues: {os.strerror(error.errno or 0)}"

    def _note(self, queues: dict[str, tuple[str, int]]) -> None:
        with self._lock:
            self._asked += 1
            for nic, (kind, waiting) in queues.items():
                self._sums[nic] = kind, self._sums.get(nic, (kind, 0))[1] + waiting


def queued_bytes(kernel: socket.socket) -> dict[str, tuple[str, int]]:
    """Return, for each device, the kind of its outermost queue, and the bytes in it and in those
    within."""
    kernel.send(QUESTION)
    queues: dict[str, tuple[str, int]] = {}
    while True:
        for kind, body in messages(kernel.recv(1 << 17)):
            if kind == END:
                return queues
            if kind == ERROR:
                raise OSError(-struct.unpack_from("=i", body)[0], "netlink")
            index, parent = struct.unpack_from("=4xi4xI", body)
            parts = dict(attributes(body[20:]))
            if parent == ROOT and STATISTICS in parts:
                name = parts.get(KIND, b"").rstrip(b"\0").decode()
                queues[device(index)] = name, backlog(parts[STATISTICS])


def device(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return f"gone-{index}"


def backlog(statistics: bytes) -> int:
    queue = dict(attributes(statistics)).get(QUEUE, b"")
    return int(struct.unpack_from("=4xI", queue)[0]) if len(queue) >= 8 else 0


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:length]
        data = data[max(16, pad(length)) :]


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[max(4, pad(length)) :]


def pad(length: int) -> int:
    return (length + 3) & ~3
