"""Telemetry of a node's NICs and HCAs: bytes, marked packets, notifications and pause frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kit.network.ethtool import Statistics
from kit.network.ports import Port, adapters
from kit.sysfs import text

from telemetry.sources import KernelFile, Line, Place, Rates, Sampled, labels, numbered_lines, total

LOOKED_FOR_EVERY = 10  # samples
WORD_BYTES = 4  # HCAs count words
RECEIVED, SENT = 0, 8  # columns of /proc/net/dev
HARDWARE = {  # files of hw_counters, and what node_exporter calls them
    "np_ecn_marked_roce_packets": "node_infiniband_np_ecn_marked_roce_packets_received_total",
    "np_cnp_sent": "node_infiniband_np_cnp_packets_sent_total",
    "rp_cnp_handled": "node_infiniband_rp_cnp_packets_handled_total",
}
PAUSES = re.compile(r"tx_prio(\d)_pause")
NO_HCA = "no HCA's port is up"
NO_CONGESTION = "no HCA counts it: only RoCE is marked and notified"


@dataclass
class HcaPort:
    """A port that was up since this program began, and its counters."""

    hca: str
    port: str
    received: KernelFile
    sent: KernelFile
    hardware: dict[str, KernelFile]

    @property
    def name(self) -> str:
        return f"{self.hca}/{self.port}"

    @property
    def labels(self) -> str:
        return labels(device=self.hca, port=self.port)


class Network:
    """The traffic of all NICs and HCAs together, and how often packets were marked on the way."""

    def __init__(self, place: Place) -> None:
        self._root, self._asked, self._rates = place.root, 0, Rates()
        self._file = KernelFile(place.proc / "net/dev")
        self._nics: set[str] = set()
        self._ports: dict[str, HcaPort] = {}

    def read(self, now: float) -> Sampled:
        traffic = traffic_of(self._file.whole())
        if self._asked % LOOKED_FOR_EVERY == 0:
            self._nics |= nics_in_use(self._root, list(traffic))
            self._ports |= ports_in_use(self._root, self._ports)
        self._asked += 1
        sampled, lines = Sampled(), list[Line]()
        rates = [self._read_nic(lines, nic, traffic.get(nic), now) for nic in self._nics]
        ethernet = sum_known(rates)
        sampled.add("tcp_throughput", "node", ethernet)
        rates = [self._read_port(lines, port, now) for port in self._ports.values()]
        sampled.add("throughput", "node", sum_known([ethernet, *rates]))
        for port in self._ports.values():
            self._read_congestion(sampled, lines, port, now)
        if "ecn" not in sampled.values:
            reason = NO_CONGESTION if self._ports else NO_HCA
            sampled.absent |= dict.fromkeys(("ecn", "cnp"), reason)
        sampled.lines = lambda: lines
        return sampled

    def _read_nic(
        self, lines: list[Line], nic: str, traffic: tuple[int, int] | None, now: float
    ) -> float | None:
        """Return the rate of a NIC; None if it is gone, or not known yet."""
        if traffic is None:
            return self._rates.rise(nic, None, now)
        for kind, count in zip(("receive", "transmit"), traffic, strict=True):
            lines.append(Line(f"node_network_{kind}_bytes_total", labels(device=nic), count))
        return self._rates.rise(nic, sum(traffic), now)

    def _read_port(self, lines: list[Line], port: HcaPort, now: float) -> float | None:
        rates: list[float | None] = []
        for kind, file in (("received", port.received), ("transmitted", port.sent)):
            words = file.number()
            rates.append(self._rates.rise(f"{port.name} {kind}", words, now))
            if words is not None:
                exported = f"node_infiniband_port_data_{kind}_bytes_total"
                lines.append(Line(exported, port.labels, WORD_BYTES * words))
        carried = None if None in rates else sum_known(rates)
        return None if carried is None else WORD_BYTES * carried

    def _read_congestion(
        self, sampled: Sampled, lines: list[Line], port: HcaPort, now: float
    ) -> None:
        rises: dict[str, float | None] = {}
        for file, counter in port.hardware.items():
            count = counter.number()
            rises[file] = self._rates.rise(f"{port.name} {file}", count, now)
            if count is not None:
                lines.append(Line(HARDWARE[file], port.labels, count))
        if rises:
            sampled.add("ecn", port.name, rises.get("np_ecn_marked_roce_packets"))
            sampled.add("cnp", port.name, total(rises, ("np_cnp_sent", "rp_cnp_handled")))


def sum_known(rates: Iterable[float | None]) -> float | None:
    """Sum the rates of the devices that report; None if none does."""
    numbers = [rate for rate in rates if rate is not None]
    return sum(numbers) if numbers else None


def traffic_of(net_dev: bytes) -> dict[str, tuple[int, int]]:
    """Return, for each NIC, the bytes received and sent."""
    return {
        name: (int(words[RECEIVED]), int(words[SENT]))
        for name, words in numbered_lines(net_dev)
        if len(words) > SENT and words[0].isdigit()
    }


def nics_in_use(root: Path, names: list[str]) -> set[str]:
    """Return cards with a carrier; in a container, which has none, whatever leads out of it."""
    places = {name: root / "sys/class/net" / name for name in names}
    cards = [name for name, place in places.items() if (place / "device").exists()]
    chosen = cards or [name for name in names if name != "lo"]
    return {name for name in chosen if text(places[name] / "carrier") != "0"}


def ports_in_use(root: Path, before: Collection[str]) -> dict[str, HcaPort]:
    ports = (port for hca in adapters(root / "sys/class/infiniband") for port in hca)
    active = (hca_port(port) for port in ports if port.is_active)
    return {port.name: port for port in active if port.name not in before}


def hca_port(port: Port) -> HcaPort:
    hardware = {name: port.path / "hw_counters" / name for name in HARDWARE}
    return HcaPort(
        hca=port.adapter.name,
        port=port.path.name,
        received=KernelFile(port.path / "counters/port_rcv_data"),
        sent=KernelFile(port.path / "counters/port_xmit_data"),
        hardware={name: KernelFile(path) for name, path in hardware.items() if path.exists()},
    )


class Pauses:
    """PFC's pause frames that each NIC sent, by the statistics of its driver."""

    def __init__(
        self, place: Place, statistics_of: Callable[[str], Statistics] = Statistics
    ) -> None:
        self._root, self._asked, self._rates = place.root, 0, Rates()
        self._file, self._open = KernelFile(place.proc / "net/dev"), statistics_of
        self._nics: dict[str, Statistics] = {}
        self._columns: dict[str, dict[str, int]] = {}  # by NIC and priority
        self._uncounted: dict[str, str] = {}  # NICs, and why

    def read(self, now: float) -> Sampled:
        if self._asked % LOOKED_FOR_EVERY == 0:
            self._look()
        self._asked += 1
        sampled, lines, renewed = Sampled(), list[Line](), list[str]()
        for nic, statistics in self._nics.items():
            try:
                counts = statistics.counts()
            except OSError:
                sampled.add("pfc_tx", nic, self._rates.rise(nic, None, now))
                renewed.append(nic)
                continue
            columns = self._columns[nic]
            frames = sum(counts[column] for column in columns.values())
            sampled.add("pfc_tx", nic, self._rates.rise(nic, frames, now))
            lines += pause_lines(nic, {prio: counts[at] for prio, at in columns.items()})
        for nic in renewed:
            self._take(nic)
        if not self._nics:
            sampled.absent["pfc_tx"] = self._absence()
        sampled.lines = lambda: lines
        return sampled

    def _look(self) -> None:
        names = list(traffic_of(self._file.whole()))
        for nic in nics_in_use(self._root, names):
            if nic not in self._nics and nic not in self._uncounted:
                self._take(nic)

    def _take(self, nic: str) -> None:
        """Open the counters of a NIC; one that counted before is missed until it does again."""
        try:
            statistics = self._open(nic)
        except OSError as error:
            self._uncounted[nic] = str(error.strerror).lower()
            return
        columns = {
            match[1]: column
            for column, name in enumerate(statistics.names)
            if (match := PAUSES.fullmatch(name))
        }
        if columns:
            if nic in self._nics:
                self._nics[nic].close()
            self._nics[nic], self._columns[nic] = statistics, columns
        else:
            statistics.close()
            self._uncounted[nic] = "its driver counts no pause frames by priority"

    def _absence(self) -> str:
        if not self._uncounted:
            return "no NIC is up"
        return "; ".join(f"{nic}: {reason}" for nic, reason in self._uncounted.items())


def pause_lines(nic: str, frames: dict[str, int]) -> Iterator[Line]:
    for priority, count in frames.items():
        yield Line(f"node_ethtool_transmitted_prio{priority}_pause", labels(device=nic), count)
