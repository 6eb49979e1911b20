"""Many nodes send to one at once; each node is the receiver in its turn.

The rate is bound by the receiver's own links, and by how switches hold back senders that share a
port: pairs of nodes never show it. GPU i of every other node sends to GPU i of the receiver; what
arrives is checked. On one machine alone each rank acts as a node.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import contract
from kit.group import processes

if TYPE_CHECKING:
    import torch
    from kit.group import Group

BENCHMARK = contract.Benchmark(
    name="incast",
    version="1",
    summary="Many to one: all other nodes of a group send to one at once (NCCL or gloo).",
    stresses="the receiver's NICs and PCIe, the switch ports before them, congestion control",
    reveals="a port that drops or pauses under load, a NIC that cannot take its rate, wrong bytes",
    scope="group",
    duration_s=20.0,
    packages=("torch",),
    min_devices=2,
    launcher="torchrun",
    metrics=(
        contract.higher(
            "ingress_gbps",
            "GB/s",
            "what arrives at a node from all others together, by the bytes that each rank sends",
            ceiling="the rate of the receiver's NICs, one way",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "sizes", "65536,1048576,8388608", "bytes per message", smoke="4096,65536"
        ),
        contract.Parameter(
            "receivers",
            8,
            "how many nodes are sent to, one after the other, spread over all; 0: every node",
            smoke=0,
            at_least=0,
        ),
        contract.Parameter(
            "samples", 10, "timed batches per size", smoke=3, at_least=1, counts=("ingress_gbps",)
        ),
    ),
)


def measure(report: contract.Report, sizes: str, receivers: int, samples: int) -> None:
    from kit.group import alone, join_ranks, slowest_times

    chosen = contract.sizes("sizes", sizes)
    if alone():
        raise contract.NotApplicable("one rank has no other rank to send to")
    with join_ranks(report) as group:
        nodes = ranks_by_node(group)
        report.note(**group.facts())
        for name in spread(list(nodes), receivers):
            for size in chosen:
                flood = Incast(group, nodes, name, size)
                seconds = slowest_times(flood.send, group.device, samples)
                arrived = (group.ranks - len(nodes[name])) * size
                group.add_crossing(size, samples)
                report.add(f"ingress_gbps:{size}", name, [arrived / s / 1e9 for s in seconds])
                wrong = group.total(flood.wrong_bytes())
                report.add(f"agreement:{size}", name, contract.agreement(wrong))


def ranks_by_node(group: Group) -> dict[str, list[int]]:
    """Return the ranks of each node, named as devices of one kind, so that any receiver is compared
    with all others."""
    from kit.group import everyones

    kind = group.device.type
    nodes: dict[str, list[int]] = {}
    for rank, host in enumerate(everyones(platform.node())):
        name = f"{kind}:{host if group.hosts > 1 else rank}"
        nodes.setdefault(name, []).append(rank)
    return nodes


def spread(names: Sequence[str], count: int) -> list[str]:
    """Return so many of them, evenly spread from the first on; with 0 all."""
    count = min(count or len(names), len(names))
    return [names[place * len(names) // count] for place in range(count)]


class Incast:
    """The part of one rank: a receiver or a sender, with its buffers."""

    def __init__(
        self, group: Group, nodes: Mapping[str, Sequence[int]], receiver: str, size: int
    ) -> None:
        import torch
        import torch.distributed as dist

        self.expected: list[torch.Tensor] = []
        self.received: list[torch.Tensor] = []
        self.transfers: list[dist.P2POp] = []
        ends = nodes[receiver]
        for name, ranks in nodes.items():
            for place, sender in enumerate(ranks if name != receiver else ()):
                end = ends[place % len(ends)]
                if group.rank == sender:
                    sent = pattern(sender, size, group.device)
                    self.transfers.append(dist.P2POp(dist.isend, sent, end, group.links))
                elif group.rank == end:
                    arriving = torch.zeros(size, dtype=torch.uint8, device=group.device)
                    self.received.append(arriving)
                    self.expected.append(pattern(sender, size, group.device))
                    self.transfers.append(dist.P2POp(dist.irecv, arriving, sender, group.links))

    def send(self) -> None:
        import torch.distributed as dist

        if self.transfers:
            for work in dist.batch_isend_irecv(self.transfers):
                work.wait()

    def wrong_bytes(self) -> int:
        """Send once more and count wrong bytes at a receiver."""
        for buffer in self.received:
            buffer.zero_()
        self.send()
        pairs = zip(self.received, self.expected, strict=True)
        return sum(int((received != expected).sum()) for received, expected in pairs)


def pattern(sender: int, size: int, device: torch.device) -> torch.Tensor:
    """Return a pattern of its own for each sender, so that messages that are mixed up are wrong."""
    import torch

    return (torch.arange(size, device=device) % 251 + sender).to(torch.uint8)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
