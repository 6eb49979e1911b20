"""Bus bandwidth of a group: all-reduce, all-gather and all-to-all over a range of message sizes.

Sizes and factors follow nccl-tests (doc/PERFORMANCE.md there), so that the numbers compare: the
size of an all-gather is what each rank holds afterwards, that of an all-to-all what each rank
sends; bus bandwidth is the rate that the slowest link must carry, whatever the number of ranks.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

# the share of a message that crosses the slowest link, for n ranks
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}

BENCHMARK = contract.Benchmark(
    name="collective",
    version="1",
    summary="Collective operations of a group: NCCL on GPUs, gloo on CPUs.",
    stresses="NVLink, PCIe, NICs, switches and what drives them",
    reveals="a slow or lossy link, a NIC on the wrong rail, a straggling node, wrong sums",
    level="micro",
    scope="group",
    duration_s=12.0,
    launcher="torchrun",
    metrics=(
        contract.Metric(
            "busbw_gbps",
            "GB/s",
            "higher",
            summary="bus bandwidth per operation and message size, by the slowest rank",
            ceiling="the slowest link's bandwidth, one way",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter("operations", ",".join(BUS_FACTORS), "which ones"),
        contract.Parameter(
            "bytes",
            "auto",
            'message sizes; "auto": 1 MiB, 32 MiB, 512 MiB on GPUs, 64 KiB, 1 MiB, 8 MiB on CPUs',
            smoke="4096,65536",
        ),
        contract.Parameter("samples", 20, "timed batches per size", smoke=3, at_least=1),
    ),
)


def busbw_gbps(operation: str, size_bytes: int, ranks: int, seconds: float) -> float:
    return size_bytes / seconds * BUS_FACTORS[operation](ranks) / 1e9


def measure(report: contract.Report, operations: str, bytes: str, samples: int) -> None:
    import torch.distributed as dist
    from _timing import calls_for, time_calls

    names = contract.split(operations)
    if not names or not set(names) <= set(BUS_FACTORS):
        raise contract.BadParameter(
            f'operations cannot be "{operations}": use {", ".join(BUS_FACTORS)}'
        )
    if os.environ["WORLD_SIZE"] == "1":
        raise contract.NotApplicable("a group of one rank has nobody to talk to")
    with joined() as group:
        kind = group.device.type
        sizes = message_sizes(bytes, kind)
        report.note(ranks=group.ranks, hosts=group.hosts, backend=group.backend)
        report.note(bytes=",".join(map(str, sizes)))
        for name in names:
            for size in sizes:
                block = max(1, size // 4 // group.ranks)  # elements per rank: whole blocks only
                call, wrong = OPERATIONS[name](group, block)
                (calls,) = group.slowest([calls_for(call, group.device, sample_s=0.02)])
                dist.barrier()
                seconds = group.slowest(time_calls(call, group.device, samples, int(calls)))
                moved = 4 * block * group.ranks
                numbers = [busbw_gbps(name, moved, group.ranks, s) for s in seconds]
                report.add(f"busbw_gbps:{name}/{size}", kind, numbers)
                report.add(
                    f"agreement:{name}/{size}", kind, contract.agreement(group.total(wrong()))
                )


def message_sizes(text: str, kind: str) -> list[int]:
    if text == "auto":
        return [1 << 20, 1 << 25, 1 << 29] if kind == "cuda" else [1 << 16, 1 << 20, 1 << 23]
    sizes = contract.split(text)
    if not sizes or not all(size.isdecimal() and int(size) >= 4 for size in sizes):
        raise contract.BadParameter(f'bytes cannot be "{text}": whole numbers from 4, by commas')
    return [int(size) for size in sizes]


# --- the group -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Group:
    rank: int
    ranks: int
    hosts: int
    backend: str
    device: torch.device
    links: ProcessGroup  # what is measured; agreeing on things goes by gloo, beside it

    def slowest(self, numbers: Sequence[float]) -> list[float]:
        """Number by number, the largest of all ranks."""
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return [float(number) for number in tensor]

    def total(self, count: int) -> int:
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(count)
        dist.all_reduce(tensor)
        return int(tensor)


@contextmanager
def joined() -> Iterator[Group]:
    """All ranks together: NCCL when every one of them has a GPU of its own, gloo when none has."""
    import torch
    import torch.distributed as dist
    from _timing import gpus

    local_rank, local_ranks = (int(os.environ[f"LOCAL_{what}"]) for what in ("RANK", "WORLD_SIZE"))
    cuda = gpus() >= local_ranks
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    try:
        seen: list[tuple[str, str]] = [("", "")] * dist.get_world_size()
        dist.all_gather_object(seen, (platform.node(), device.type))
        if len({kind for _, kind in seen}) > 1:
            lacking = sorted({host for host, kind in seen if kind == "cpu"})
            raise contract.Unmeasured(
                f"too few GPUs in sight on {', '.join(lacking)}, while others have one per rank"
            )
        backend = "nccl" if cuda else "gloo"
        yield Group(
            rank=dist.get_rank(),
            ranks=dist.get_world_size(),
            hosts=len({host for host, _ in seen}),
            backend=backend,
            device=device,
            links=dist.new_group(backend=backend),
        )
    finally:
        dist.destroy_process_group()


def processes() -> int:
    """Ranks on one machine alone: one per GPU, or two on a CPU."""
    from _timing import gpus

    count = gpus()
    if count == 1:
        raise contract.NotApplicable("one GPU alone has nobody to talk to: launch it on more nodes")
    return count or 2


# --- the operations: what to time, and how many elements are wrong after one more call ------

Operation = tuple[Callable[[], object], Callable[[], int]]


def all_reduce(group: Group, block: int) -> Operation:
    import torch
    import torch.distributed as dist

    n = group.ranks
    buffer = torch.zeros(n * block, device=group.device)  # sums of zeros never overflow
    ramp = torch.arange(n * block, device=group.device) % 1021

    def call() -> None:
        dist.all_reduce(buffer, group=group.links)

    def wrong() -> int:
        buffer.copy_(ramp + group.rank)
        call()
        return int((buffer != n * ramp + n * (n - 1) // 2).sum())

    return call, wrong


def all_gather(group: Group, block: int) -> Operation:
    import torch
    import torch.distributed as dist

    mine = torch.zeros(block, device=group.device)
    everyones = torch.zeros(group.ranks * block, device=group.device)
    ramp = torch.arange(block, device=group.device) % 1021

    def call() -> None:
        dist.all_gather_single(everyones, mine, group=group.links)

    def wrong() -> int:
        mine.copy_(ramp + group.rank)
        call()
        ranks = torch.arange(group.ranks, device=group.device)
        return int((everyones != (ramp + ranks[:, None]).flatten()).sum())

    return call, wrong


def all_to_all(group: Group, block: int) -> Operation:
    import torch
    import torch.distributed as dist

    sent = torch.zeros(group.ranks, block, device=group.device)
    received = torch.zeros_like(sent)

    def call() -> None:
        dist.all_to_all_single(received, sent, group=group.links)

    def wrong() -> int:
        ranks = torch.arange(group.ranks, device=group.device)[:, None]
        sent.copy_((group.rank * group.ranks + ranks).expand_as(sent))
        call()
        return int((received != ranks * group.ranks + group.rank).sum())

    return call, wrong


OPERATIONS: dict[str, Callable[[Group, int], Operation]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
}


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
