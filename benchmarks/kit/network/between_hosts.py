"""The way that NCCL's data took between hosts: HCAs, NVLink, or TCP, to which it falls back without
a word.

A fleet that falls back everywhere would be its own normal, so a host that sent by TCP counts as a
wrong answer, which no fleet excuses. TCP needs evidence of its own: an interface of sockets carried
at least what was sent. HCAs whose counters stand still, or that have none, show nothing: a driver
may not count, a container may not see the counters, and between hosts of one NVLink fabric HCAs
rightly rest. Then the way is *not known*, and nothing is judged. What goes by TCP leaves one host
and reaches another: sockets of a single one may have carried anything, such as files.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import contract

from kit.background import begin
from kit.gpus.cards import amd_cards, machine_root
from kit.network import ports
from kit.network.ports import risen
from kit.sysfs import text

if TYPE_CHECKING:
    import torch

METRIC = "agreement:by_hca"
MNNVL, BY_NETWORK, BY_NVLINK = "NCCL_MNNVL_ENABLE", "0", "1"  # of NCCL: 2 is its default, to choose
STILL = 1 << 20  # bytes; less than this goes over unused HCAs
ENOUGH = 1 << 26  # bytes; less is too little to tell from what else a host sends
SHARE = 0.9  # of what was sent: both ways of counting headers are nearer than this
IPOIB = 32  # the kernel's type of an interface whose TCP goes over an HCA
PATIENCE_S = 5.0  # with a driver that may hang
HCA, TCP, NVLINK, UNKNOWN = "hca", "tcp", "nvlink", "not known"


class Crossing:
    """A lower bound of the bytes that each host sent to others or received from them."""

    def __init__(self) -> None:
        self.bytes = 0.0

    def add(self, sent: float) -> None:
        self.bytes += sent


@dataclass(frozen=True)
class Interface:
    """An interface of sockets, and what it has received and sent."""

    bytes: tuple[int, int]
    is_ipoib: bool = False
    is_physical: bool = True
    hcas: frozenset[str] = frozenset()  # of the same device: some drivers count their bytes here


@dataclass(frozen=True)
class Fabric:
    """The part of an NVLink fabric to which a GPU belongs, and what its links have carried."""

    name: str  # of cluster and clique; empty: it reaches no other host, or that is unknown
    bytes: int | None
    gbps: float  # of all links of the GPU together, one way; 0: not known


@dataclass(frozen=True)
class Counts:
    """One reading of the counters that one rank sees."""

    hcas: Mapping[str, int | None]  # those with a port that is up; None: without such a counter
    interfaces: Mapping[str, Interface]
    fabric: Fabric


@dataclass(frozen=True)
class Carried:
    """Bytes that one host carried while it measured, out and in; None: not known."""

    host: str
    by_hca: Mapping[str, int | None]
    by_sockets: int | None = None
    by_ipoib: int = 0
    by_nvlink: int | None = None
    fabric: str = ""
    sent: float = 0.0  # at least
    gbps: float = 0.0  # of the links of its HCAs together, one way
    nvlink_gbps: float = 0.0  # of one GPU's links together, one way

    @property
    def by_all_hcas(self) -> int | None:
        """None if one of them has no counter: it may have carried everything."""
        counted = [count for count in self.by_hca.values() if count is not None]
        return sum(counted) if counted and len(counted) == len(self.by_hca) else None

    def way(self, *, in_one_fabric: bool) -> str:
        """Return the way that its data took, as far as counters prove it."""
        enough, expected = self.sent >= ENOUGH, SHARE * self.sent
        if enough and self.by_ipoib >= expected:
            return TCP
        by_some = sum(count or 0 for count in self.by_hca.values())
        if by_some >= (self.sent / 2 if enough else STILL):
            return HCA
        if enough and (self.by_sockets or 0) >= expected:
            return TCP
        return self.way_beside_sockets(in_one_fabric=in_one_fabric)

    def way_beside_sockets(self, *, in_one_fabric: bool) -> str:
        """Return the way if sockets carried something else; TCP if there is no other that may have
        been taken."""
        by_nvlink = (self.by_nvlink or 0) >= SHARE * self.sent >= SHARE * ENOUGH
        if in_one_fabric and by_nvlink:
            return NVLINK
        is_without_way = self.sent >= ENOUGH and self.by_all_hcas is not None
        by_sockets = max(self.by_ipoib, self.by_sockets or 0) >= SHARE * self.sent
        return TCP if is_without_way and by_sockets else UNKNOWN


# --- reading -------------------------------------------------------------------------------


@contextmanager
def watch_hosts(
    report: contract.Report,
    gather: Callable[[Carried], Sequence[Carried]] | None,
    device: torch.device,
) -> Iterator[Crossing]:
    """Watch the ways between hosts in the block, which adds what it sends. `gather` collects the
    values of all ranks. None: NCCL has nothing to send between hosts."""
    crossing = Crossing()
    if not gather:
        yield crossing
        return
    before = read_counts(device)
    yield crossing
    after = read_counts(device)
    links = [hca.gbps for hca in ports.active()]
    own = rise(before, after, platform.node(), crossing.bytes, sum(links) if all(links) else 0.0)
    judge(report, join_hosts(gather(own)), by_choice=tcp_is_chosen())


def read_counts(device: torch.device, root: Path | None = None) -> Counts:
    root = root or machine_root()
    place = root / "sys/class/infiniband"
    hcas = {hca.name: ports.carried_bytes(hca.name, place) for hca in ports.active(place)}
    return Counts(hcas, interfaces(root), read_fabric(device))


def interfaces(root: Path) -> dict[str, Interface]:
    """Return the interfaces of this network namespace that NCCL may use for sockets."""
    lines = (line.partition(":") for line in text(root / "proc/net/dev").splitlines())
    rows = {name.strip(): words.split() for name, _, words in lines if words}
    return {
        name: Interface(
            bytes=(int(words[0]), int(words[8])),
            is_ipoib=text(root / "sys/class/net" / name / "type") == str(IPOIB),
            is_physical=(root / "sys/class/net" / name / "device").exists(),
            hcas=frozenset(
                hca.name for hca in (root / "sys/class/net" / name / "device/infiniband").glob("*")
            ),
        )
        for name, words in rows.items()
        if len(words) > 8 and is_for_sockets(name)
    }


def is_for_sockets(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return true for an interface that NCCL_SOCKET_IFNAME leaves: prefixes, exact names after `=`,
    none of those after `^`."""
    choice = environment.get("NCCL_SOCKET_IFNAME", "")
    words = choice.lstrip("^=").split(",")
    is_exact = "=" in choice[: len(choice) - len(choice.lstrip("^="))]
    named = any(name == word if is_exact else name.startswith(word) for word in words if word)
    return name != "lo" and (not choice or named != choice.startswith("^"))


def read_fabric(device: torch.device) -> Fabric:
    """Return the NVLink fabric of a GPU; an empty one if the driver does not say, or hangs."""
    nothing = Fabric("", None, 0.0)
    if amd_cards():
        return nothing
    import torch

    properties = torch.cuda.get_device_properties(device)
    try:
        return begin(lambda: ask_for_fabric(properties)).result(PATIENCE_S)
    except Exception:  # without NVML the fabric is not known; it disturbs no measurement
        return nothing


def require_one_domain(
    gather: Callable[[tuple[str, str]], Sequence[tuple[str, str]]],
    device: torch.device | None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Refuse hosts that NVLink is to join and does not. `device`: the GPU of this rank, if any.
    `gather` collects the values of all ranks."""
    if environment.get(MNNVL) != BY_NVLINK:
        return
    if device is None:
        raise contract.NotApplicable("no GPUs, so NVLink joins nothing")
    seen = gather((platform.node(), read_fabric(device).name))
    if not any(name for _, name in seen):
        raise contract.NotApplicable("the GPUs of these hosts are in no NVLink domain")
    if len({name for _, name in seen}) > 1:
        listed = ", ".join(f"{host} in {name or 'none'}" for host, name in sorted(set(seen)))
        raise contract.Unmeasured(f"no NVLink domain has all of these GPUs: {listed}")


def ask_for_fabric(properties: Any) -> Fabric:
    from kit.gpus import nvml

    nvml.begin()
    values = nvml.read(nvml.find_gpu(properties), nvml.FABRIC).values
    return Fabric(
        values.get("fabric", ""), values.get("nvlink_bytes"), values.get("nvlink_gbps", 0.0)
    )


# --- from two readings to a verdict --------------------------------------------------------


def rise(before: Counts, after: Counts, host: str, sent: float, gbps: float) -> Carried:
    hcas = {name: risen(before.hcas.get(name), count) for name, count in after.hcas.items()}
    unseen = {name for name, count in hcas.items() if count is None}
    counted = {
        name: (now, max(risen(*pair) or 0 for pair in zip(then.bytes, now.bytes, strict=True)))
        for name, now in after.interfaces.items()
        if (then := before.interfaces.get(name)) and not now.hcas & unseen
    }
    physical = sum(count for now, count in counted.values() if now.is_physical)
    return Carried(
        host=host,
        by_hca=hcas,
        # of a bridge and what is behind it, the same bytes: they are not added up
        by_sockets=max([physical, *(count for _, count in counted.values())]) if counted else None,
        by_ipoib=sum(count for now, count in counted.values() if now.is_ipoib),
        by_nvlink=risen(before.fabric.bytes, after.fabric.bytes),
        fabric=after.fabric.name,
        sent=sent,
        gbps=gbps,
        nvlink_gbps=after.fabric.gbps,
    )


def join_hosts(ranks: Iterable[Carried]) -> dict[str, Carried]:
    """Join the ranks of each host: they see the same HCAs and sockets, and each its own GPU."""
    by_host: dict[str, list[Carried]] = {}
    for carried in ranks:
        by_host.setdefault(carried.host, []).append(carried)
    return {host: join_ranks_of(row) for host, row in by_host.items()}


def join_ranks_of(ranks: Sequence[Carried]) -> Carried:
    first, fabrics = ranks[0], {carried.fabric for carried in ranks}
    by_gpu = [carried.by_nvlink for carried in ranks if carried.by_nvlink is not None]
    return Carried(
        host=first.host,
        by_hca=first.by_hca,
        by_sockets=first.by_sockets,
        by_ipoib=first.by_ipoib,
        by_nvlink=sum(by_gpu) if by_gpu else None,
        fabric=first.fabric if len(fabrics) == 1 else "",
        sent=max(carried.sent for carried in ranks),
        gbps=first.gbps,
        nvlink_gbps=min(carried.nvlink_gbps for carried in ranks),
    )


def tcp_is_chosen(environment: Mapping[str, str] = os.environ) -> bool:
    """Return true if NCCL was told to leave the HCAs alone."""
    switched_off = environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")
    return switched_off or environment.get("NCCL_NET", "").lower() == "socket"


@dataclass(frozen=True)
class Ways:
    """The ways of all hosts of a group."""

    hosts: Mapping[str, Carried]
    by_host: Mapping[str, str] = field(init=False)
    in_one_fabric: bool = field(init=False)

    def __post_init__(self) -> None:
        names = {carried.fabric for carried in self.hosts.values()}
        is_one = len(names) == 1 and "" not in names
        object.__setattr__(self, "in_one_fabric", is_one)
        ways = {host: seen.way(in_one_fabric=is_one) for host, seen in self.hosts.items()}
        if list(ways.values()).count(TCP) == 1:
            (alone,) = (host for host, way in ways.items() if way == TCP)
            ways[alone] = self.hosts[alone].way_beside_sockets(in_one_fabric=is_one)
        object.__setattr__(self, "by_host", ways)

    def taken_by(self, way: str) -> list[str]:
        return [host for host, taken in self.by_host.items() if taken == way]

    def ceiling(self) -> tuple[float, str]:
        """Return the slowest host's links in GB/s and their source; 0 if another way may have been
        taken."""
        if len(self.taken_by(NVLINK)) == len(self.hosts):
            rates = [carried.nvlink_gbps for carried in self.hosts.values()]
            return min(rates), "rates of a GPU's NVLinks together, by its driver"
        if self.in_one_fabric and self.taken_by(UNKNOWN):
            return 0.0, ""
        rates = [carried.gbps for carried in self.hosts.values()]
        return min(rates), "rates of a node's links together, in sysfs"


def judge(report: contract.Report, hosts: Mapping[str, Carried], *, by_choice: bool) -> None:
    ways = Ways(hosts)
    report.note(
        hcas_carried_bytes={host: dict(carried.by_hca) for host, carried in hosts.items()},
        between_hosts={host: explain(hosts[host], way) for host, way in ways.by_host.items()},
    )
    if not all(carried.by_hca for carried in hosts.values()) and not ways.taken_by(NVLINK):
        return  # a host without an HCA is expected to send by TCP
    slowest, source = ways.ceiling()
    for metric in ("busbw_gbps", "ingress_gbps") if slowest else ():
        if metric in report.metrics:
            report.ceiling(metric, slowest, source)
    if by_choice:
        return
    if os.environ.get(MNNVL) == BY_NVLINK:
        elsewhere = [*ways.taken_by(TCP), *ways.taken_by(HCA)]
        if elsewhere or not ways.taken_by(UNKNOWN):
            report.add("agreement:by_nvlink", "nvlinks", contract.agreement(len(elsewhere)))
        return
    by_tcp = ways.taken_by(TCP)
    if by_tcp:
        report.note(sent_by_tcp=", ".join(by_tcp))
    if by_tcp or not ways.taken_by(UNKNOWN):
        report.add(METRIC, "hcas", contract.agreement(len(by_tcp)))


def explain(carried: Carried, way: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"way": way, "sent_bytes_at_least": int(carried.sent)}
    counted = {
        "hcas": carried.by_all_hcas,
        "sockets": carried.by_sockets,
        "nvlinks": carried.by_nvlink,
    }
    return facts | {f"{name}_bytes": "not known" if n is None else n for name, n in counted.items()}
