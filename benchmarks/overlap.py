"""The cost of matrix products and all-reduces to each other when they run at once, as in training.

Each is timed alone and then beside enough of the other to last three times as long, on streams of
their own (threads on a CPU). The slowdown is the second time over the first, sample by sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import contract
from kit.group import alone, processes

if TYPE_CHECKING:
    import torch
    from kit.group import Group

LONGER = 3  # how much longer the other one goes on: a slowdown beyond it is shown too small

BENCHMARK = contract.Benchmark(
    name="overlap",
    version="1",
    summary="Matrix products and all-reduces at once, against each alone.",
    stresses="matrix units, memory, links and the cores that drive communication, all at once",
    reveals="contention that neither load shows alone: NCCL on too many cores, a power limit",
    duration_s=10.0,
    packages=("torch",),
    min_devices=2,
    launcher="torchrun",
    metrics=(
        contract.lower(
            "slowdown",
            "1",
            "time beside the other over time alone, of compute and of communication",
            ceiling="1 if the two share nothing",
        ),
        contract.higher(
            "tflops",
            "TFLOP/s",
            "of the products alone",
            ceiling="the vendor's dense rate of the format (bf16 on GPUs)",
        ),
        contract.higher(
            "busbw_gbps",
            "GB/s",
            "of the all-reduces alone",
            ceiling="the slowest link's bandwidth, one way",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter("size", 0, "rows and columns; 0: 8192, 512 on a CPU", 128, at_least=0),
        contract.Parameter(
            "bytes", 0, "bytes per message; 0: 256 MiB, 4 MiB on a CPU", smoke=1 << 18, at_least=0
        ),
        contract.Parameter("sample_s", 0.03, "seconds per sample", smoke=0.005, at_least=0.001),
        contract.Parameter(
            "samples",
            20,
            "pairs of timings",
            smoke=3,
            at_least=1,
            counts=("slowdown", "tflops", "busbw_gbps"),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, size: int, bytes: int, sample_s: float, samples: int) -> None:
    import torch
    from kit.arithmetic import normal, state_ceiling, wrong_in_product
    from kit.collectives import ELEMENT, all_reduce, busbw_gbps
    from kit.group import join_ranks

    if alone():
        raise contract.NotApplicable("one rank has no communication to overlap with")
    with join_ranks(report) as group:
        kind = group.device.type
        n = size or (8192 if kind == "cuda" else 512)
        elements = max(1, (bytes or (1 << 28 if kind == "cuda" else 1 << 22)) // ELEMENT)
        report.note(size=n, bytes=elements * ELEMENT, ranks=group.ranks, backend=group.backend)
        state_ceiling(report, "tflops:alone", "bf16", group.device)
        left, right = (normal(n, seed, group.device) for seed in (1, 2))
        out = torch.empty_like(left)
        reduce, wrong_sums = all_reduce(group, elements)
        loads: Loads = {"compute": lambda: torch.mm(left, right, out=out), "communication": reduce}
        alone_s, slowdowns = time_loads(group, loads, sample_s, samples)
        for name, numbers in slowdowns.items():
            report.add(f"slowdown:{name}", kind, numbers)
        report.add("tflops:alone", kind, [2 * n**3 / s / 1e12 for s in alone_s["compute"]])
        moved = elements * ELEMENT
        rates = [busbw_gbps("all_reduce", moved, group.ranks, s) for s in alone_s["communication"]]
        report.add("busbw_gbps:alone", kind, rates)
        wrong = wrong_in_product(left, right, out)
        report.add("agreement:compute", kind, contract.agreement(group.total(wrong)))
        report.add("agreement:communication", kind, contract.agreement(group.total(wrong_sums())))


Loads = dict[str, Callable[[], object]]
Load = tuple[Callable[[], object], int]  # and how many calls of it
Numbers = dict[str, list[float]]


def time_loads(
    group: Group, loads: Loads, sample_s: float, samples: int
) -> tuple[Numbers, Numbers]:
    """Return seconds per call alone, and the slowdown beside the other; both by the slowest
    rank."""
    import torch.distributed as dist
    from kit.timing import WARM_UP_SAMPLES, calls_for

    counts = group.slowest([calls_for(call, group.device, sample_s) for call in loads.values()])
    calls = {name: int(count) for name, count in zip(loads, counts, strict=True)}
    alone_s: Numbers = {name: [] for name in loads}
    beside_s: Numbers = {name: [] for name in loads}
    for _ in range(WARM_UP_SAMPLES + samples):
        for name, rival in (("compute", "communication"), ("communication", "compute")):
            for beside, seconds in ((0, alone_s), (LONGER * calls[rival], beside_s)):
                dist.barrier()
                load = loads[name], calls[name]
                spent = together(group.device, load, (loads[rival], beside))
                seconds[name].append(spent / calls[name])
    alone_s, beside_s = (
        {name: group.slowest(seconds[name][WARM_UP_SAMPLES:]) for name in loads}
        for seconds in (alone_s, beside_s)
    )
    slowdowns = {
        name: [beside / alone for beside, alone in zip(beside_s[name], alone_s[name], strict=True)]
        for name in loads
    }
    return alone_s, slowdowns


def together(device: torch.device, load: Load, rival: Load) -> float:
    """Return the seconds that the load took while its rival ran beside it; both are over at the
    end."""
    if device.type == "cuda":
        return time_on_streams(device, load, rival)
    aside = threading.Thread(target=repeat, args=rival)
    aside.start()
    start = perf_counter()
    repeat(*load)
    spent = perf_counter() - start
    aside.join()
    return spent


def repeat(call: Callable[[], object], calls: int) -> None:
    for _ in range(calls):
        call()


def time_on_streams(device: torch.device, load: Load, rival: Load) -> float:
    """Time on streams; the rival is queued first, so that it is there when the measured calls
    begin."""
    import torch

    aside = torch.cuda.Stream(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    with torch.cuda.stream(aside):
        repeat(*rival)
    begin.record()
    repeat(*load)
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
