"""Copies between host memory and each GPU, both ways, from pinned and from pageable memory.

A machine without a GPU has no such link. There the copy between two host buffers by one core is
measured, which is how a driver stages pageable memory; it is another metric, never a stand-in.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

BENCHMARK = contract.Benchmark(
    name="host_device_copy",
    version="1",
    summary="Copies between host memory and each GPU.",
    stresses="PCIe or C2C links, the GPU's copy engines, host memory",
    reveals="a link trained at fewer lanes or a lower speed, wrong NUMA placement, wrong bits",
    level="micro",
    scope="node",
    duration_s=4.0,
    metrics=(
        contract.Metric(
            "h2d_gbps",
            "GB/s",
            "higher",
            summary="host to device, from pinned or pageable memory",
            ceiling="PCIe 5.0 x16: 63 GB/s, 4.0 x16: 31.5 GB/s, less protocol",
        ),
        contract.Metric(
            "d2h_gbps",
            "GB/s",
            "higher",
            summary="device to host, to pinned or pageable memory",
            ceiling="PCIe 5.0 x16: 63 GB/s, 4.0 x16: 31.5 GB/s, less protocol",
        ),
        contract.Metric(
            "host_copy_gbps",
            "GB/s",
            "higher",
            summary="host to host by one core, bytes counted once; only where there is no GPU",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "size_bytes", 0, "of a copy; 0: 256 MiB, 128 MiB without GPU", smoke=1 << 20, at_least=0
        ),
        contract.Parameter("samples", 30, "timed batches per direction", smoke=3, at_least=1),
    ),
)


def measure(report: contract.Report, size_bytes: int, samples: int) -> None:
    from _timing import devices

    for device in devices():
        cuda = device.type == "cuda"
        size = size_bytes or (1 << 28 if cuda else 1 << 27)
        report.note(size_bytes=size)
        (across_the_link if cuda else within_the_host)(report, device, size, samples)


def across_the_link(report: contract.Report, device: torch.device, size: int, samples: int) -> None:
    import torch

    there = torch.empty(size, dtype=torch.uint8, device=device)
    sent = torch.randint(256, (size,), dtype=torch.uint8)
    received = torch.empty_like(sent)
    wrong = there_and_back(report, "pageable", sent, there, received, samples)
    there.zero_()
    sent, received = sent.pin_memory(), torch.empty_like(sent).pin_memory()
    wrong += there_and_back(report, "pinned", sent, there, received, samples)
    report.add("agreement", str(device), contract.agreement(wrong))


def there_and_back(
    report: contract.Report,
    kind: str,
    sent: torch.Tensor,
    there: torch.Tensor,
    received: torch.Tensor,
    samples: int,
) -> int:
    """Both directions with one kind of host memory; the number of bytes that came back wrong."""
    from _timing import seconds_per_call

    device, size = there.device, sent.numel()
    up = seconds_per_call(lambda: there.copy_(sent, non_blocking=True), device, samples)
    down = seconds_per_call(lambda: received.copy_(there, non_blocking=True), device, samples)
    report.add(f"h2d_gbps:{kind}", str(device), [size / s / 1e9 for s in up])
    report.add(f"d2h_gbps:{kind}", str(device), [size / s / 1e9 for s in down])
    return int((received != sent).sum())


def within_the_host(report: contract.Report, device: torch.device, size: int, samples: int) -> None:
    import torch
    from _timing import seconds_per_call

    torch.set_num_threads(1)  # memory_bandwidth measures all the cores together
    source, target = (
        torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)  # begins at a page
        for _ in range(2)
    )
    source.random_(256)
    seconds = seconds_per_call(lambda: target.copy_(source), device, samples)
    report.add("host_copy_gbps", str(device), [size / s / 1e9 for s in seconds])
    report.add("agreement", str(device), contract.agreement(int((target != source).sum())))


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
