"""NVIDIA's own nccl-tests, if they are installed: all devices of a node in one process.

It serves to compare with the numbers that others publish; `intranode_collective` measures the same
without them. Bandwidths are worked out from size and time, because the tool prints two decimals.
"""

from __future__ import annotations

import contract
from kit.collectives import SMALL_BYTES, algbw_gbps, busbw_gbps
from kit.parsers import nccl_out_of_bounds, nccl_tests
from kit.tools import find, require_success, run

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
}
LIMIT_S = 300.0  # a run that takes longer hangs

BENCHMARK = contract.Benchmark(
    name="nccl_tests",
    version="1",
    summary="NVIDIA's nccl-tests over all GPUs of a node, out of place and in place.",
    stresses="NVLink, NVSwitch or PCIe between the GPUs",
    reveals="a degraded link or switch plane, wrong sums; NCCL's own fault or ours, by comparison",
    duration_s=60.0,
    gpu=True,
    min_devices=2,
    tools=tuple(PROGRAMS[name] for name in ("all_reduce", "all_gather")),
    metrics=(
        contract.higher(
            "busbw_gbps",
            "GB/s",
            "by operation, size and place; size in bytes as the tool prints it",
            ceiling="the slowest link's bandwidth, one way",
        ),
        contract.higher("algbw_gbps", "GB/s", "message size over time"),
        contract.lower("latency_us", "us", "for messages up to 64 KiB"),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "operations",
            "all_reduce,all_gather",
            f"any of {', '.join(PROGRAMS)}",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "sizes",
            "1024,1048576,33554432,1073741824",
            "per message",
            smoke="1048576",
            more_is_stronger=True,
        ),
        contract.Parameter("directory", "", 'where the programs are; "": on PATH'),
        contract.Parameter(
            "samples",
            5,
            "runs per size",
            smoke=1,
            at_least=1,
            counts=("busbw_gbps", "algbw_gbps", "latency_us"),
            more_is_stronger=True,
        ),
    ),
)


def measure(
    report: contract.Report, operations: str, sizes: str, directory: str, samples: int
) -> None:
    names = contract.choose("operations", operations, PROGRAMS)
    chosen = contract.sizes("sizes", sizes)
    programs = {name: find(PROGRAMS[name], directory) for name in names}
    count = gpus()
    report.note(gpus=count)
    for name in names:
        for size in chosen:
            argv = [programs[name], "-b", str(size), "-e", str(size), "-g", str(count), "-c", "1"]
            texts = [require_success(run(argv, LIMIT_S), PROGRAMS[name]) for _ in range(samples)]
            add(report, name, count, texts)


def gpus() -> int:
    from kit.timing import gpus

    count = gpus()
    if count < 2:
        raise contract.NotApplicable(f"nccl-tests need two GPUs or more: here are {count}")
    return count


def add(report: contract.Report, name: str, ranks: int, texts: list[str]) -> None:
    """Report the numbers of one operation and size, one of each from every text."""
    rows = [row for text in texts for row in nccl_tests(text)]
    if not rows:
        raise contract.Unmeasured(f'{PROGRAMS[name]} wrote no result but "{texts[-1][-160:]}"')
    for size, place in sorted({(row.size_bytes, row.place) for row in rows}):
        seconds = [row.us / 1e6 for row in rows if (row.size_bytes, row.place) == (size, place)]
        series = f"{name}/{size}/{place}"
        busbw = [busbw_gbps(name, size, ranks, s) for s in seconds]
        report.add(f"busbw_gbps:{series}", "cuda", busbw)
        report.add(f"algbw_gbps:{series}", "cuda", [algbw_gbps(size, s) for s in seconds])
        if size <= SMALL_BYTES:
            report.add(f"latency_us:{series}", "cuda", [s * 1e6 for s in seconds])
    size = max(row.size_bytes for row in rows)
    wrong = sum(row.wrong or 0 for row in rows) or sum(map(nccl_out_of_bounds, texts))
    report.add(f"agreement:{name}/{size}", "cuda", contract.agreement(wrong))


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
