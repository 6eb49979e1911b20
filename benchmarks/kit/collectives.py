"""The collective operations: what to time, how to count wrong elements, and the two bandwidths.

Sizes and factors follow nccl-tests (doc/PERFORMANCE.md there), so that the numbers compare: the
size of an all-gather is what each rank holds afterwards, that of a reduce-scatter or an all-to-all
what each rank gives; bus bandwidth is the rate that the slowest link must carry, whatever the
number of ranks. An operation that moves blocks takes whole blocks of four bytes per rank only: a
size too small for that is left out, never measured under a wrong name.

What is timed is random: zeros draw less power on links and in memory. The sum of a buffer into
itself grows with each call; it is made small again so seldom that no time shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import contract

if TYPE_CHECKING:
    import torch

    from kit.group import Group

ELEMENT = 4  # bytes of an fp32 number
SMALL_BYTES = 1 << 16  # up to here the time is worth a look of its own
LEAST, MOST = 2.0**-60, 2.0**60  # of random numbers that grow with each call
CHUNK = 1 << 26  # elements that are filled or compared at once: 8 GiB must leave room for itself

# the share of a message that crosses the slowest link, for n ranks
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}
IN_BLOCKS = {"all_gather", "reduce_scatter", "all_to_all"}
USUAL = "all_reduce,all_gather,reduce_scatter,all_to_all"

METRICS = (
    contract.higher(
        "busbw_gbps",
        "GB/s",
        "bus bandwidth per operation and message size, by the slowest rank",
        ceiling="the slowest link's bandwidth, one way",
    ),
    contract.higher("algbw_gbps", "GB/s", "message size over time, same operations"),
    contract.lower("latency_us", "us", "time of one operation, for messages up to 64 KiB"),
    contract.AGREEMENT,
)

PARAMETERS = (
    contract.Parameter(
        "operations", USUAL, f"any of {', '.join(BUS_FACTORS)}", more_is_stronger=True
    ),
    contract.Parameter(
        "bytes",
        "auto",
        'message sizes, from 4 to 8589934592 or beyond; "auto": 1 KiB, 1 MiB, 32 MiB, 512 MiB '
        "on GPUs, 1 KiB, 64 KiB, 1 MiB, 8 MiB on CPUs",
        smoke="4096,65536",
        more_is_stronger=True,
    ),
    contract.Parameter(
        "samples",
        20,
        "timed batches per size",
        smoke=3,
        at_least=1,
        counts=("busbw_gbps", "algbw_gbps", "latency_us"),
        more_is_stronger=True,
    ),
)


def algbw_gbps(size_bytes: int, seconds: float) -> float:
    return size_bytes / seconds / 1e9


def busbw_gbps(operation: str, size_bytes: int, ranks: int, seconds: float) -> float:
    return algbw_gbps(size_bytes, seconds) * BUS_FACTORS[operation](ranks)


def measure(report: contract.Report, operations: str, bytes: str, samples: int) -> None:
    from kit.group import join_ranks

    names = contract.choose("operations", operations, BUS_FACTORS)
    with join_ranks(report) as group:
        sizes = message_sizes(bytes, group.device.type)
        report.note(**group.facts())
        report.note(bytes=",".join(map(str, sizes)))
        too_small = []
        for name in names:
            for size in sizes:
                if elements(name, size, group.ranks):
                    measure_size(report, group, name, size, samples)
                else:
                    too_small.append(f"{name}/{size}")
        if too_small:
            report.note(too_small_for_the_ranks=",".join(too_small))


def measure_size(report: contract.Report, group: Group, name: str, size: int, samples: int) -> None:
    from kit.group import slowest_times

    kind, count = group.device.type, elements(name, size, group.ranks)
    call, wrong = OPERATIONS[name](group, count)
    seconds = slowest_times(call, group.device, samples)
    moved = ELEMENT * count
    group.add_crossing(moved, samples)
    busbw = [busbw_gbps(name, moved, group.ranks, s) for s in seconds]
    algbw = [algbw_gbps(moved, s) for s in seconds]
    report.add(f"busbw_gbps:{name}/{size}", kind, busbw, seconds.taken)
    report.add(f"algbw_gbps:{name}/{size}", kind, algbw, seconds.taken)
    if size <= SMALL_BYTES:
        latency = [s * 1e6 for s in seconds]
        report.add(f"latency_us:{name}/{size}", kind, latency, seconds.taken)
    report.add(f"agreement:{name}/{size}", kind, contract.agreement(group.total(wrong())))


def message_sizes(text: str, kind: str) -> list[int]:
    if text == "auto":
        large = (1 << 20, 1 << 25, 1 << 29) if kind == "cuda" else (1 << 16, 1 << 20, 1 << 23)
        return [1 << 10, *large]
    return contract.sizes("bytes", text, at_least=ELEMENT)


def elements(operation: str, size_bytes: int, ranks: int) -> int:
    """Return the numbers in a message of about that size; 0 if it has no whole block for each
    rank."""
    count = size_bytes // ELEMENT
    return count - count % ranks if operation in IN_BLOCKS else count


# --- the operations: what to time, and how many elements are wrong after one more call ------

Operation = tuple[Callable[[], object], Callable[[], int]]


def all_reduce(group: Group, count: int) -> Operation:
    import torch.distributed as dist

    n = group.ranks
    return single_buffer(group, count, dist.all_reduce, group.rank, times=n, plus=n * (n - 1) // 2)


def reduce(group: Group, count: int) -> Operation:
    import torch.distributed as dist

    n, to_first = group.ranks, partial(dist.reduce, dst=0)
    call, wrong = single_buffer(group, count, to_first, group.rank, times=n, plus=n * (n - 1) // 2)
    return call, lambda: wrong() * (group.rank == 0)  # all take part, one has the sum


def broadcast(group: Group, count: int) -> Operation:
    import torch.distributed as dist

    from_first = partial(dist.broadcast, src=0)
    return single_buffer(group, count, from_first, 7 if group.rank == 0 else 0, times=1, plus=7)


def single_buffer(
    group: Group, count: int, operation: Callable[..., Any], sent: int, times: int, plus: int
) -> Operation:
    """Return an operation on one buffer. Its check fills the buffer with the ramp and `sent`, and
    expects the ramp `times` and `plus`. Timed numbers grow by `times` with each call."""
    import torch

    buffer = torch.empty(count, device=group.device)
    calls_until_large = int(math.log(MOST / LEAST, times)) if times > 1 else 0
    fill_random(buffer, group.rank, LEAST if calls_until_large else 1.0)
    calls = 0

    def call() -> None:
        nonlocal calls
        operation(buffer, group=group.links)
        calls += 1
        if calls_until_large and calls % calls_until_large == 0:
            buffer.mul_(float(times) ** -calls_until_large)

    def wrong() -> int:
        fill(buffer, sent)
        operation(buffer, group=group.links)
        return differing(buffer, times, plus)

    return call, wrong


def all_gather(group: Group, count: int) -> Operation:
    import torch

    block = count // group.ranks
    gather = either("all_gather_single", "all_gather_into_tensor")
    own_block = torch.empty(block, device=group.device)
    everyones = torch.empty(count, device=group.device)
    fill_random(own_block, group.rank)

    def call() -> None:
        gather(everyones, own_block, group=group.links)

    def wrong() -> int:
        fill(own_block, group.rank)
        call()
        parts = everyones.view(group.ranks, block)
        return sum(differing(part, plus=rank) for rank, part in enumerate(parts))

    return call, wrong


def reduce_scatter(group: Group, count: int) -> Operation:
    import torch

    n, block = group.ranks, count // group.ranks
    scatter = either("reduce_scatter_single", "reduce_scatter_tensor")
    everyones = torch.empty(count, device=group.device)
    own_block = torch.empty(block, device=group.device)
    fill_random(everyones, group.rank)

    def call() -> None:
        scatter(own_block, everyones, group=group.links)

    def wrong() -> int:
        fill(everyones, group.rank)
        call()
        return differing(own_block, times=n, plus=n * (n - 1) // 2, begin=group.rank * block)

    return call, wrong


def all_to_all(group: Group, count: int) -> Operation:
    import torch
    import torch.distributed as dist

    block = count // group.ranks
    sent = torch.empty(group.ranks, block, device=group.device)
    received = torch.empty_like(sent)
    fill_random(sent.view(-1), group.rank)

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
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "reduce": reduce,
}


def either(name: str, before: str) -> Callable[..., Any]:
    """Return a collective by its new name or its old one: torch renamed two and warns about the old
    names; older ones know only those."""
    import torch.distributed as dist

    operation: Callable[..., Any] = getattr(dist, name, None) or getattr(dist, before)
    return operation


def fill_random(flat: torch.Tensor, rank: int, scale: float = 1.0) -> None:
    """Fill with normal numbers, other ones on each rank, as training has them."""
    import torch

    generator = torch.Generator(flat.device).manual_seed(rank)
    for start in range(0, flat.numel(), CHUNK):
        flat[start : start + CHUNK].normal_(generator=generator).mul_(scale)


def fill(flat: torch.Tensor, plus: int) -> None:
    for part, ramp in add_ramp(flat, 0):
        part.copy_(ramp + plus)


def differing(flat: torch.Tensor, times: int = 1, plus: int = 0, begin: int = 0) -> int:
    """Count elements that are not `times` the ramp and `plus`; fp32 holds such numbers exactly."""
    return sum(int((part != times * ramp + plus).sum()) for part, ramp in add_ramp(flat, begin))


def add_ramp(flat: torch.Tensor, begin: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pieces beside 0, 1, … 1020, 0, 1, … from the place of element `begin`."""
    import torch

    for start in range(0, flat.numel(), CHUNK):
        part = flat[start : start + CHUNK]
        first = begin + start
        yield part, torch.arange(first, first + part.numel(), device=flat.device) % 1021
