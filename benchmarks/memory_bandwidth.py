"""Memory bandwidth of each GPU, or of the CPU's memory with all cores: STREAM's copy and triad.

Bytes are counted as STREAM counts them: what the program reads and writes, without the lines that
a CPU's cache fetches before it overwrites them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

BENCHMARK = contract.Benchmark(
    name="memory_bandwidth",
    version="1",
    summary="Streams through arrays far larger than any cache.",
    stresses="memory controllers and channels (GPU: HBM)",
    reveals="a missing or slow memory channel, remapped rows, low memory clocks, wrong bits",
    level="micro",
    scope="node",
    duration_s=6.0,
    metrics=(
        contract.Metric(
            "copy_gbps",
            "GB/s",
            "higher",
            summary="a = b, 2 x 4 bytes per element",
            ceiling="channels x transfers per second x channel width",
        ),
        contract.Metric(
            "triad_gbps",
            "GB/s",
            "higher",
            summary="a = b + 3 c, 3 x 4 bytes per element",
            ceiling="channels x transfers per second x channel width",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "size_bytes",
            0,
            "of each of three arrays; 0: 1 GiB on a GPU, 256 MiB on a CPU",
            smoke=1 << 20,
            at_least=0,
        ),
        contract.Parameter("samples", 30, "timed batches per kernel", smoke=3, at_least=1),
    ),
)


def measure(report: contract.Report, size_bytes: int, samples: int) -> None:
    from _timing import devices

    for device in devices():
        size = size_bytes or (1 << 30 if device.type == "cuda" else 1 << 28)
        report.note(size_bytes=size)
        stream(report, device, max(1, size // 4), samples)


def stream(report: contract.Report, device: torch.device, elements: int, samples: int) -> None:
    import torch
    from _timing import seconds_per_call

    # ones are written by all threads, so that each touches its share first: pages then lie by NUMA
    a, b, c = (torch.ones(elements, device=device) for _ in range(3))
    b.random_(1000)  # whole numbers: every sum below is exact in fp32
    c.random_(1000)

    seconds = seconds_per_call(lambda: a.copy_(b), device, samples)
    report.add("copy_gbps", str(device), [2 * 4 * elements / s / 1e9 for s in seconds])
    wrong = int((a != b).sum())

    seconds = seconds_per_call(lambda: torch.add(b, c, alpha=3, out=a), device, samples)
    report.add("triad_gbps", str(device), [3 * 4 * elements / s / 1e9 for s in seconds])
    wrong += int((a != b + c + c + c).sum())
    report.add("agreement", str(device), contract.agreement(wrong))


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
