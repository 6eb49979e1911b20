"""The group of the ranks of a torchrun program, and how they agree on numbers.

Measurements go over `links` (NCCL between GPUs, gloo between CPUs); agreement always goes over
gloo, beside it. Every rank makes the same calls in the same order, whatever it saw.
"""

from __future__ import annotations

import os
import pickle
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import contract

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from kit.network.between_hosts import Crossing
    from kit.possession import Seconds

SAMPLE_S = 0.02  # the calls of one sample take so long, so that the clock counts for nothing


@dataclass(frozen=True, kw_only=True)
class Group:
    rank: int
    ranks: int
    hosts: int
    backend: str
    device: torch.device
    links: ProcessGroup
    crossing: Crossing
    numa: str = ""  # where the ranks run: each beside its GPU
    place: str = "the host"  # of this one

    def facts(self) -> dict[str, int | str]:
        facts: dict[str, int | str] = {
            "ranks": self.ranks,
            "hosts": self.hosts,
            "backend": self.backend,
        }
        return facts | ({"numa_of_ranks": self.numa} if self.numa else {})

    def add_crossing(self, message_bytes: float, times: int) -> None:
        """Add operations on messages of so many bytes. Of each, a host has to send or receive what
        is not its own share, however the operation is done."""
        self.crossing.add(times * message_bytes * (1 - 1 / self.hosts))

    def slowest(self, numbers: Sequence[float]) -> list[float]:
        """Return, number by number, the largest of all ranks."""
        return slowest(numbers)

    def total(self, count: int) -> int:
        return total(count)


@contextmanager
def join_ranks(report: contract.Report) -> Iterator[Group]:
    """Join all ranks: NCCL if every one of them has a GPU of its own, gloo if none has."""
    import torch
    import torch.distributed as dist

    from kit.network.between_hosts import watch_hosts
    from kit.numa import stay_near_gpu
    from kit.timing import gpus

    local_rank, local_ranks = (int(os.environ[f"LOCAL_{name}"]) for name in ("RANK", "WORLD_SIZE"))
    count = gpus()
    if 0 < count < local_ranks:
        raise contract.Unmeasured(
            f"torch sees {count} GPUs, expected one for each of {local_ranks} ranks: is one lost "
            "(see nvidia-smi), or is MIG on, whose slices NCCL does not join?"
        )
    cuda = count > 0
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    node = None
    if cuda:
        node = stay_near_gpu(local_rank)  # before the driver's and NCCL's threads are started
        torch.cuda.set_device(device)
    with meet():
        seen = everyones((platform.node(), device.type, node.name if node else ""))
        if len({kind for _, kind, _ in seen}) > 1:
            lacking = sorted({host for host, kind, _ in seen if kind == "cpu"})
            raise contract.Unmeasured(
                f"too few visible GPUs on {', '.join(lacking)}, while others have one per rank"
            )
        backend = "nccl" if cuda else "gloo"
        hosts = len({host for host, _, _ in seen})
        with watch_hosts(report, everyones if cuda and hosts > 1 else None, device) as crossing:
            yield Group(
                rank=dist.get_rank(),
                ranks=dist.get_world_size(),
                hosts=hosts,
                backend=backend,
                device=device,
                links=dist.new_group(backend=backend),
                crossing=crossing,
                numa=ranks_on([name for _, _, name in seen]),
                place=node.name if node else "the host",
            )


def ranks_on(names: Sequence[str]) -> str:
    """Return `numa0: 4 ranks, numa1: 4 ranks`; nothing if none is bound."""
    counts = Counter(filter(None, names))
    return ", ".join(f"{name}: {count} ranks" for name, count in sorted(counts.items()))


@contextmanager
def meet() -> Iterator[None]:
    """Join all ranks so that they can agree on things; there is nothing to measure over yet."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def alone() -> bool:
    return os.environ["WORLD_SIZE"] == "1"


def processes() -> int:
    """Return the number of ranks on one machine alone: one per GPU, or two on a CPU."""
    from kit.timing import gpus

    count = gpus()
    if count == 1:
        raise contract.NotApplicable("one GPU alone has no peer: launch it on more nodes")
    return count or 2


def slowest(numbers: Sequence[float], group: ProcessGroup | None = None) -> list[float]:
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
    return [float(number) for number in tensor]


def total(count: int, group: ProcessGroup | None = None) -> int:
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(count)
    dist.all_reduce(tensor, group=group)
    return int(tensor)


def everyones(thing: Any, group: ProcessGroup | None = None) -> list[Any]:
    """Return the values of all ranks, by rank, on every rank. torch's own way needs NumPy, which a
    machine with torch may lack."""
    import torch
    import torch.distributed as dist

    own = pickle.dumps(thing)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(own)]), group)
    sent = torch.frombuffer(bytearray(own.ljust(int(max(sizes)), b"\0")), dtype=torch.uint8)
    received = [torch.empty_like(sent) for _ in sizes]
    dist.all_gather(received, sent, group)
    return [pickle.loads(bytes(words.tolist())) for words in received]


def slowest_times(
    call: Callable[[], object],
    device: torch.device,
    samples: int,
    group: ProcessGroup | None = None,
) -> Seconds:
    """Return seconds per call of a collective operation, by the slowest rank, and the share of each
    that others may have cost any rank; the ranks stay in step."""
    import torch.distributed as dist

    from kit.possession import Seconds
    from kit.timing import calls_for, time_calls

    (calls,) = slowest([calls_for(call, device, SAMPLE_S)], group)
    dist.barrier(group)
    own = time_calls(call, device, samples, int(calls))
    return Seconds(slowest(own, group), slowest(own.taken, group))
