"""Bandwidth and latency between two nodes by torch's own send and receive: NCCL, or gloo.

It needs no tool and goes the way that training goes. GPU i of one node meets GPU i of the other,
one such rail after the other, so that a slow one has a name. What arrives is checked. With a shift
it meets GPU i + shift, and NCCL must not hand over to the other rail inside a node (PXN).

It measures the network, also between nodes of one NVLink domain. With NCCL_MNNVL_ENABLE=1 it
measures NVLink instead, and nodes that it does not join are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import contract
from kit.pair import DIRECTIONS, LATENCY_UP_TO, METRICS, OF_PAIR_TEST, ends

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

BENCHMARK = contract.Benchmark(
    name="pair_torch",
    version="1",
    summary="Bandwidth both ways and latency between two nodes (torch send and receive).",
    stresses="the path between two nodes as NCCL or gloo use it",
    reveals="a slow rail, link or direction, a NIC that NCCL does not use, wrong bytes",
    scope="pair",
    duration_s=20.0,
    packages=("torch",),
    min_nodes=2,
    launcher="torchrun",
    metrics=(*METRICS, contract.AGREEMENT),
    parameters=(
        contract.Parameter(
            "sizes",
            "64,1024,65536,8388608",
            "bytes per message",
            smoke="64,65536",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "samples",
            10,
            "timed batches per size",
            smoke=3,
            at_least=1,
            counts=("bandwidth_gbps", "latency_us"),
            more_is_stronger=True,
        ),
        *OF_PAIR_TEST,
    ),
)
# of NCCL: each GPU sends and receives by the NIC nearest to it, whichever its partner uses
BY_OWN_NICS = {"NCCL_P2P_PXN_LEVEL": "0", "NCCL_CROSS_NIC": "1"}


@dataclass(frozen=True)
class Rail:
    """Two ranks, one on each node, seen from one of them."""

    end: int
    partner: int
    device: torch.device
    links: ProcessGroup
    agreeing: ProcessGroup


def measure(report: contract.Report, sizes: str, samples: int, shift: int, rails: str) -> None:
    import torch.distributed as dist
    from kit.group import alone, everyones, join_ranks
    from kit.network.between_hosts import BY_NETWORK, MNNVL, require_one_domain

    chosen = contract.sizes("sizes", sizes)
    if alone():
        raise contract.NotApplicable("one rank has no other rank to send to")
    os.environ.setdefault(MNNVL, BY_NETWORK)  # else the way depends on which two nodes meet
    if shift:
        os.environ.update(BY_OWN_NICS)
    with join_ranks(report) as group:
        report.note(**group.facts())
        distance, by_gpus = ends()[1], group.backend == "nccl"
        require_one_domain(everyones, group.device if by_gpus else None)
        if shift:
            check_rails(distance if by_gpus else 1, rails)
        lanes = range(distance if by_gpus else 1)  # CPU ranks share one way
        for first in lanes:
            second = (first + shift) % distance
            pair = [first, distance + second]
            links = dist.new_group(pair, backend=group.backend)
            agreeing = dist.new_group(pair, backend="gloo")
            if group.rank in pair:
                end = pair.index(group.rank)
                rail = Rail(end, pair[1 - end], group.device, links, agreeing)
                name = f"cuda:{first}-cuda:{second}" if by_gpus else "cpu-cpu"
                for size in chosen:
                    measure_size(report, rail, name, size, samples)
                    group.crossing.add(samples * size)
            dist.barrier()
        by_rank = everyones(report.series)
        report.series = [series for first in lanes for series in by_rank[first]]


def check_rails(gpus: int, rails: str) -> None:
    """Refuse a number of rails other than the number of GPUs: else GPU i is not on rail i."""
    if gpus == 1:
        raise contract.NotApplicable("one way between two nodes: there is none across rails")
    if (named := contract.split(rails)) and len(named) != gpus:
        raise contract.NotApplicable(
            f"{len(named)} rails and {gpus} GPUs: nothing says which rail a GPU uses"
        )


def measure_size(report: contract.Report, rail: Rail, name: str, size: int, samples: int) -> None:
    import torch
    from kit.group import slowest_times, total

    sent = torch.arange(size, device=rail.device).to(torch.uint8)
    received = torch.zeros_like(sent)
    wrong = 0

    def seconds(call: Callable[[], None]) -> list[float]:
        return slowest_times(call, rail.device, samples, group=rail.agreeing)

    for direction, sender in DIRECTIONS.items():
        received.zero_()
        one_way, answered = ways(rail, sender, sent, received)
        moved = [size / s / 1e9 for s in seconds(one_way)]
        report.add(f"bandwidth_gbps:{direction}/{size}", name, moved)
        if sender == 0 and size <= LATENCY_UP_TO:
            report.add(f"latency_us:{size}", name, [s / 2 * 1e6 for s in seconds(answered)])
        if rail.end != sender:
            wrong += int((received != sent).sum())
    report.add(f"agreement:{size}", name, contract.agreement(total(wrong, rail.agreeing)))


def ways(
    rail: Rail, sender: int, sent: torch.Tensor, received: torch.Tensor
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return calls for a message from the sender to the other end, and for one there and back."""
    import torch.distributed as dist

    def send() -> None:
        dist.send(sent, rail.partner, group=rail.links)

    def receive() -> None:
        dist.recv(received, rail.partner, group=rail.links)

    def send_and_receive() -> None:
        send()
        receive()

    def receive_and_send() -> None:
        receive()
        send()

    return (send, send_and_receive) if rail.end == sender else (receive, receive_and_send)


def processes() -> int:
    from kit.timing import gpus

    count = gpus()
    if count == 1:
        raise contract.NotApplicable("one GPU has no other to send to: launch it on two nodes")
    return 2


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
