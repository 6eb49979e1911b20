"""Light pings from this node to others by a plan that Anubis sends, and answers to those of others.

Each flow has a port of its own at the sender, so that switches which hash send it the same way each
time. What is lost is counted in windows of the wall clock, for a day. It judges nothing. Without a
plan it only answers; a plan that is not renewed ends after an hour. Standard library only.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from telemetry.nic_addresses import Nic
from telemetry.ping_packets import (
    ANSWER,
    PING,
    Arrival,
    Packet,
    answer_to,
    arrivals,
    open_socket,
    pack,
)
from telemetry.sources import Line

FORM = 1  # raised if what an answer means changes
PLAN_S = 3600.0  # without a new plan
KEPT_S = 86400.0  # of counts
LATE_S = 5.0  # an answer after this counts as lost
NAP_S = 0.2  # the longest wait: after a longer one it did not run all the time
WOKEN_LATE_S = 1.0  # between two turns: it was held up
AWAKE = 0.95  # share of a window
NEWEST = 10  # windows from which the quickest answer is reported
MOST_FLOWS, MOST_PER_S = 1024, 500.0  # of a plan
MOST_ANSWERS_PER_S = 2000  # to all nodes together: far above what any plan asks for


class PlanError(ValueError):
    """A plan that is not carried out."""


@dataclass(frozen=True)
class Route:
    """A NIC here, and one there."""

    source: tuple[str, str]  # node and rail
    target: tuple[str, str]
    device: str  # here
    address: str  # there
    port: int


@dataclass
class Window:
    awake_s: float = 0.0
    counts: dict[int, list[int]] = field(default_factory=dict)  # by flow: sent, answered


@dataclass
class PingFlow:
    number: int
    route: Route
    since: int  # the first whole window
    way: socket.socket
    answered: int = 0
    best: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=NEWEST))

    def note(self, window: int, seconds: float) -> None:
        self.answered += 1
        if seconds <= 0:  # a clock was set in between
            return
        if self.best and self.best[-1][0] == window:
            self.best[-1] = window, min(seconds, self.best[-1][1])
        else:
            self.best.append((window, seconds))

    def best_us(self, last: int) -> float | None:
        times = [seconds for window, seconds in self.best if window > last - NEWEST]
        return round(min(times) * 1e6, 1) if times else None


class Pinger:
    def __init__(self, node: str, token: str, port: int, nics: Mapping[str, Nic]) -> None:
        """Open a socket for answers at each of these NICs, given by the names of its devices."""
        self._node, self._token, self._nics = node, token.encode(), dict(nics)
        self._selector, self._lock = selectors.DefaultSelector(), threading.Lock()
        self._session, self._number = os.urandom(8), 0
        self._flows: dict[int, PingFlow] = {}
        self._made = 0
        self._waiting: dict[int, tuple[PingFlow, int, float, float]] = {}
        self._due: list[tuple[float, int]] = []
        self._windows: dict[int, Window] = {}
        self._window_s = self._every_s = 0.0
        self._until = 0.0
        self._answered_in, self._answers = 0, 0
        self.sent = self.lost = 0
        self.port = port
        for nic in dict.fromkeys(nics.values()):
            door = open_socket(nic.interface, nic.address, self.port)
            self._selector.register(door, selectors.EVENT_READ, self._answer)
            self.port = door.getsockname()[1]

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            cast(socket.socket, key.fileobj).close()
        self._selector.close()

    # --- the plan ------------------------------------------------------------------------------

    def take_plan(self, document: Any) -> None:
        """Begin with a plan. Flows that were in the last one go on, with their counts."""
        window_s, every_s, routes = read_plan(document, self._nics)
        with self._lock:
            if window_s != self._window_s:
                self._windows.clear()
                self._end_flows(set())
            self._window_s, self._every_s = window_s, every_s
            self._until = time.monotonic() + PLAN_S
            self._end_flows(set(routes))
            pinged = {flow.route for flow in self._flows.values()}
            for route in routes:
                if route not in pinged:
                    with suppress(OSError):  # a NIC that has lost its address pings nothing
                        self._begin(route)
            self._spread()

    def _begin(self, route: Route) -> None:
        self._made += 1
        way = open_socket(*self._nics[route.device])
        since = math.floor(time.time() / self._window_s) + 1
        self._flows[self._made] = PingFlow(self._made, route, since, way)
        self._selector.register(way, selectors.EVENT_READ, self._take_answer)

    def _end_flows(self, staying: set[Route]) -> None:
        gone = [flow for flow in self._flows.values() if flow.route not in staying]
        for flow in gone:
            del self._flows[flow.number]
            self._selector.unregister(flow.way)
            flow.way.close()

    def _spread(self) -> None:
        """Spread the flows over the time between two pings of one."""
        now, step = time.monotonic(), self._every_s / max(1, len(self._flows))
        self._due = [(now + place * step, number) for place, number in enumerate(self._flows)]

    # --- pings and answers ---------------------------------------------------------------------

    def run(self) -> None:
        """Ping and answer for ever."""
        before = time.monotonic()
        while True:
            before = self.take_turn(before)

    def take_turn(self, before: float) -> float:
        """Wait for what is due or arrives, and return the time. `before`: that of the last turn."""
        with self._lock:
            due = self._due[0][0] if self._due else math.inf
        ready = self._selector.select(min(max(due - time.monotonic(), 0.0), NAP_S))
        with self._lock:
            now = time.monotonic()
            if now - before < WOKEN_LATE_S:
                self._window(self._index()).awake_s += now - before
            for key, _ in ready:
                self._read_all(key)
            self._send_due(now)
            self._forget_late(now)
            self._tidy()
        return now

    def _read_all(self, key: selectors.SelectorKey) -> None:
        opened = cast(socket.socket, key.fileobj)
        for arrival in arrivals(opened, self._token):  # none, if the flow has just ended
            key.data(opened, arrival)

    def _answer(self, door: socket.socket, arrival: Arrival) -> None:
        second = math.floor(time.monotonic())
        if second != self._answered_in:
            self._answered_in, self._answers = second, 0
        self._answers += 1
        if arrival.packet.kind == PING and self._answers <= MOST_ANSWERS_PER_S:
            with suppress(OSError):
                door.sendto(pack(answer_to(arrival), self._token), arrival.sender)

    def _take_answer(self, way: socket.socket, arrival: Arrival) -> None:
        packet = arrival.packet
        if packet.kind != ANSWER or packet.session != self._session:
            return
        waiting = self._waiting.get(packet.number)
        if waiting is None or waiting[0].way is not way:
            return
        flow, window, _, sent_at = waiting
        if arrival.sender[:2] != (flow.route.address, flow.route.port):
            return
        del self._waiting[packet.number]
        self._window(window).counts.setdefault(flow.number, [0, 0])[1] += 1
        flow.note(window, arrival.at - sent_at - packet.held_us * 1e-6)

    def _send_due(self, now: float) -> None:
        if now > self._until:
            return
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            if flow := self._flows.get(number):
                self._send(flow, now)
                again = max(due + self._every_s, now)  # what was missed is not made up for
                heapq.heappush(self._due, (again, number))

    def _send(self, flow: PingFlow, now: float) -> None:
        self._number = (self._number + 1) % (1 << 32)
        self.sent += 1
        window = self._index()
        self._window(window).counts.setdefault(flow.number, [0, 0])[0] += 1
        self._waiting[self._number] = flow, window, now, time.time()
        ping = pack(Packet(PING, self._session, self._number), self._token)
        with suppress(OSError):  # a link that is down refuses it: it is lost
            flow.way.sendto(ping, (flow.route.address, flow.route.port))

    def _forget_late(self, now: float) -> None:
        while self._waiting:
            number, (_, _, sent, _) = next(iter(self._waiting.items()))
            if now - sent < LATE_S:
                return
            del self._waiting[number]
            self.lost += 1

    # --- counts --------------------------------------------------------------------------------

    def _index(self) -> int:
        return math.floor(time.time() / self._window_s) if self._window_s else 0

    def _window(self, index: int) -> Window:
        return self._windows.setdefault(index, Window())

    def _tidy(self) -> None:
        """Forget windows of more than a day ago, and all if the clock was set back: nothing would
        be in order."""
        index = self._index()
        if self._windows and max(self._windows) > index:
            self._windows.clear()
            for flow in self._flows.values():
                flow.since = index + 1
        limit = KEPT_S / self._window_s if self._window_s else 1
        while self._windows and (oldest := next(iter(self._windows))) < index - limit:
            del self._windows[oldest]

    def report(self) -> dict[str, Any]:
        """Return what Anubis asks for: the addresses here, the flows, and what was lost."""
        with self._lock:
            last = self._index() - 1 - math.ceil(LATE_S / (self._window_s or LATE_S))
            kept = {index: w for index, w in self._windows.items() if index <= last}
            first = min(kept, default=last + 1)
            return {
                "pings": FORM,
                "node": self._node,
                "port": self.port,
                "addresses": {device: nic.address for device, nic in self._nics.items()},
                "window_s": self._window_s,
                "first": first,
                "last": last,
                "asleep": [i for i in range(first, last + 1) if not self._was_awake(i)],
                "flows": [flow_document(flow, last) for flow in self._flows.values()],
                "lost": list(lost_rows(kept, self._flows)),
            }

    def _was_awake(self, index: int) -> bool:
        window = self._windows.get(index)
        return window is not None and window.awake_s >= AWAKE * self._window_s

    def lines(self) -> Iterator[Line]:
        yield Line("anubis_agent_pings_sent_total", "", self.sent)
        yield Line("anubis_agent_pings_lost_total", "", self.lost)


def flow_document(flow: PingFlow, last: int) -> dict[str, Any]:
    return {
        "flow": flow.number,
        "source": flow.route.source,
        "target": flow.route.target,
        "address": flow.route.address,
        "port": flow.route.port,
        "since": flow.since,
        "answered": flow.answered,
        "best_us": flow.best_us(last),
    }


def lost_rows(windows: Mapping[int, Window], flows: Mapping[int, PingFlow]) -> Iterator[list[int]]:
    """Yield window, flow, sent and answered if anything was lost."""
    for index, window in windows.items():
        for number, (sent, answered) in window.counts.items():
            if answered < sent and number in flows:
                yield [index, number, sent, answered]


def read_plan(document: Any, nics: Collection[str]) -> tuple[float, float, dict[Route, None]]:
    """Return the length of windows, the time between two pings of a flow, and the flows."""
    try:
        window_s, every_s = float(document["window_s"]), float(document["every_s"])
        routes = {read_route(flow): None for flow in document["flows"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise PlanError("expected window_s, every_s and flows") from None
    if not (0 < every_s <= window_s <= 3600):
        raise PlanError("expected every_s up to window_s, and window_s up to 3600")
    if len(routes) > min(MOST_FLOWS, MOST_PER_S * every_s):
        raise PlanError(f"{len(routes)} flows every {every_s:g} s are too many")
    if missing := {route.device for route in routes} - set(nics):
        raise PlanError(f"no address at {min(missing)}")
    return window_s, every_s, routes


def read_route(flow: Any) -> Route:
    node, rail = flow["source"]
    far, far_rail = flow["target"]
    port = int(flow["port"])
    if not 0 < port < 1 << 16:
        raise ValueError
    address = str(ipaddress.ip_address(str(flow["address"])))
    texts = (node, rail, far, far_rail, flow["device"])
    if not all(isinstance(text, str) and len(text) <= 253 for text in texts):
        raise ValueError
    return Route((node, rail), (far, far_rail), flow["device"], address, port)
