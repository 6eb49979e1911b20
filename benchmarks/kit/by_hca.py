"""The check that what NCCL sent between nodes left by their HCAs: it falls back to TCP without a
word.

A fleet that falls back everywhere would be its own normal: so a node whose HCAs kept still counts
as a wrong answer, which no fleet excuses. If TCP was asked for, or a node has no HCA, nothing is
expected of them. What each HCA carried is noted either way.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import contract

from kit import ports

METRIC = "agreement:by_hca"
STILL = 1 << 20  # bytes; what is measured is far more, what else goes on is less


@dataclass(frozen=True)
class Carried:
    """Bytes that the HCAs of one host carried while it measured, out and in: a host that only
    receives works as well."""

    host: str
    by_hca: Mapping[str, int]  # those with a port that is up
    gbps: float  # of their links together, one way

    @property
    def is_still(self) -> bool:
        return sum(self.by_hca.values()) < STILL


@contextmanager
def watch_hcas(
    report: contract.Report, gather: Callable[[Carried], Iterable[Carried]] | None
) -> Iterator[None]:
    """Watch the HCAs in the block. `gather` collects the values of all ranks. None: NCCL has
    nothing to send between hosts."""
    if not gather:
        yield
        return
    before = {hca.name: ports.carried_bytes(hca.name) for hca in ports.active()}
    yield
    links = {hca.name: hca.gbps for hca in ports.active()}
    own = Carried(
        platform.node(),
        {name: ports.carried_bytes(name) - bytes for name, bytes in before.items()},
        sum(links.values()) if all(links.values()) else 0.0,
    )
    judge(report, {carried.host: carried for carried in gather(own)}, by_choice=tcp_is_chosen())


def tcp_is_chosen(environment: Mapping[str, str] = os.environ) -> bool:
    """Return true if NCCL was told to leave the HCAs alone."""
    switched_off = environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")
    return switched_off or environment.get("NCCL_NET", "").lower() == "socket"


def judge(report: contract.Report, hosts: Mapping[str, Carried], *, by_choice: bool) -> None:
    report.note(hcas_carried_bytes={host: dict(carried.by_hca) for host, carried in hosts.items()})
    if not all(carried.by_hca for carried in hosts.values()):
        return
    if slowest := min(carried.gbps for carried in hosts.values()):
        source = "rates of a node's links together, in sysfs"
        for metric in ("busbw_gbps", "ingress_gbps"):
            if metric in report.metrics:
                report.ceiling(metric, slowest, source)
    if not by_choice:
        still = [host for host, carried in hosts.items() if carried.is_still]
        report.add(METRIC, "hcas", contract.agreement(len(still)))
        if still:
            report.note(hcas_kept_still=", ".join(still))
