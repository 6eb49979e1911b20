"""A matrix product shared out over the devices of a node, the two ways that training does it.

`column`: each rank multiplies by its columns, and an all-gather collects them. `row`: each rank
sums over its part of the inner dimension, and an all-reduce adds the parts. Rows of the assembled
product are compared with the unshared product in fp64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import contract
from kit.group import alone, processes

if TYPE_CHECKING:
    import torch
    from kit.group import Group

BENCHMARK = contract.Benchmark(
    name="sharded_matmul",
    version="1",
    summary="A matrix product shared out over a node's devices (tensor parallel).",
    stresses="matrix units and the links between the devices, in turn",
    reveals="a slow GPU or link that holds up the others, wrong products or sums",
    duration_s=5.0,
    packages=("torch",),
    min_devices=2,
    launcher="torchrun",
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "2 n^3 operations, per rank, communication included, by the slowest rank",
            ceiling="the vendor's dense rate of the format (bf16 on GPUs), less communication",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "size",
            0,
            "rows and columns, rounded to a multiple of the ranks; 0: 8192, 768 on a CPU",
            smoke=192,
            at_least=0,
        ),
        contract.Parameter(
            "samples",
            20,
            "timed batches per way",
            smoke=3,
            at_least=1,
            counts=("tflops",),
            more_is_stronger=True,
        ),
    ),
)


def flop_per_rank(size: int, ranks: int) -> float:
    return 2 * size**3 / ranks


def measure(report: contract.Report, size: int, samples: int) -> None:
    from kit.arithmetic import normal, state_ceiling, wrong_in_product
    from kit.group import join_ranks, slowest_times

    if alone():
        raise contract.NotApplicable("one rank has no other rank to share a product with")
    with join_ranks(report) as group:
        kind = group.device.type
        n = size or (8192 if kind == "cuda" else 768)
        n = max(group.ranks, n - n % group.ranks)
        report.note(size=n, ranks=group.ranks, backend=group.backend)
        left, right = (normal(n, seed, group.device) for seed in (1, 2))
        for name, way in WAYS.items():
            multiply, product = way(group, left, right)
            seconds = slowest_times(multiply, group.device, samples)
            rates = [flop_per_rank(n, group.ranks) / s / 1e12 for s in seconds]
            wrong = group.total(wrong_in_product(left, right, product()))
            report.add(f"tflops:{name}", kind, rates)
            state_ceiling(report, f"tflops:{name}", "bf16", group.device)
            report.add(f"agreement:{name}", kind, contract.agreement(wrong))


# --- the ways: what to time, and the assembled product --------------------------------------

Way = tuple[Callable[[], None], Callable[[], "torch.Tensor"]]


def split_columns(group: Group, left: torch.Tensor, right: torch.Tensor) -> Way:
    import torch
    from kit.collectives import either

    gather = either("all_gather_single", "all_gather_into_tensor")
    n, ranks = len(left), group.ranks
    own_columns = right.chunk(ranks, dim=1)[group.rank].contiguous()
    part = torch.empty(n, n // ranks, dtype=left.dtype, device=left.device)
    parts = torch.empty(ranks * n, n // ranks, dtype=left.dtype, device=left.device)

    def multiply() -> None:
        torch.mm(left, own_columns, out=part)
        gather(parts, part, group=group.links)

    return multiply, lambda: torch.cat(parts.chunk(ranks), dim=1)


def split_rows(group: Group, left: torch.Tensor, right: torch.Tensor) -> Way:
    import torch
    import torch.distributed as dist

    own_left = left.chunk(group.ranks, dim=1)[group.rank].contiguous()
    own_right = right.chunk(group.ranks, dim=0)[group.rank].contiguous()
    out = torch.empty_like(left)

    def multiply() -> None:
        torch.mm(own_left, own_right, out=out)
        dist.all_reduce(out, group=group.links)

    return multiply, lambda: out


WAYS: dict[str, Callable[[Group, torch.Tensor, torch.Tensor], Way]] = {
    "column": split_columns,
    "row": split_rows,
}


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
