"""Copies between host memory and each GPU: each way and both at once, from near and far nodes.

Host memory is pinned or pageable and is on the GPU's own NUMA node, to which the process is bound
meanwhile; pinned copies are repeated on every other node. All bytes are checked when they have gone
there and back.

A machine without a GPU has no such link. There the copy between two host buffers by one core is
measured, which is how a driver stages pageable memory; it is another metric, never a stand-in.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import TYPE_CHECKING

import contract
from kit.each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    import torch
    from kit.numa import Node

    Buffers = tuple[torch.Tensor, torch.Tensor]

PCIE = "PCIe 5.0 x16: 63 GB/s, 4.0 x16: 31.5 GB/s, less protocol overhead"
# bits of data in those sent, by transfers per second (1e9); newer rates are coded otherwise
OF_FLITS = 242 / 256  # bytes of a flit of PCIe 6 without its two checks
PCIE_CODES = {
    **dict.fromkeys((2.5, 5.0), 8 / 10),
    **dict.fromkeys((8.0, 16.0, 32.0), 128 / 130),
    64.0: OF_FLITS,
}

BENCHMARK = contract.Benchmark(
    name="host_device_copy",
    version="2",
    summary="Copies between host memory and each GPU.",
    stresses="PCIe or C2C links, the GPU's copy engines, host memory, links between sockets",
    reveals="a link trained at fewer lanes or a lower speed, wrong NUMA placement, wrong bits",
    duration_s=60.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "h2d_gbps",
            "GB/s",
            "host to device, from pinned or pageable memory, by size; pinned/far21: from "
            "a node at that distance (sysfs) to the GPU's own, device with the node's name",
            ceiling=PCIE,
        ),
        contract.higher("d2h_gbps", "GB/s", "device to host, likewise", ceiling=PCIE),
        contract.higher(
            "both_ways_gbps",
            "GB/s",
            "the bytes of both directions, copied at once, pinned",
            ceiling="twice that of one direction",
        ),
        contract.higher(
            "host_copy_gbps",
            "GB/s",
            "host to host by one core, bytes counted once; only where there is no GPU",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        contract.Parameter(
            "bytes",
            "auto",
            'bytes per copy; "auto": 256 MiB, 128 MiB without GPU',
            smoke="1048576",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "samples",
            20,
            "timed batches per direction",
            smoke=3,
            at_least=1,
            counts=("h2d_gbps", "d2h_gbps", "both_ways_gbps", "host_copy_gbps"),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, bytes: str, samples: int) -> None:
    from kit import numa
    from kit.timing import devices

    near = {}
    for device in devices():
        cuda = device.type == "cuda"
        auto = [1 << 28 if cuda else 1 << 27]
        sizes = auto if bytes == "auto" else sorted(set(contract.sizes("bytes", bytes, 4)))
        report.note(bytes=",".join(map(str, sizes)))
        if cuda:
            near[device] = numa.nearest_to_gpu(device.index)
            state_ceilings(report, numa.bus_id(device.index), sizes)
        for size in sizes:
            if cuda:
                across_the_link(report, device, size, samples, near[device], numa.nodes())
            else:
                measure_host(report, device, size, samples)
    if near:
        places = {str(gpu): node.name if node else "unknown" for gpu, node in near.items()}
        report.note(numa=numa.summary(), nearest=", ".join(map(" ".join, places.items())))


def state_ceilings(report: contract.Report, bus_id: str | None, sizes: list[int]) -> None:
    """State the ceilings of PCIe, if sysfs knows the slot; a Grace CPU has another link to its
    GPU."""
    from kit.numa import pci_folder

    if bus_id is None or platform.machine() != "x86_64":
        return
    try:
        speed, width = (
            (pci_folder(bus_id) / name).read_text() for name in ("max_link_speed", "max_link_width")
        )
        gigatransfers, lanes = float(speed.split()[0]), int(width)
        rate = pcie_gbps(gigatransfers, lanes)
    except (OSError, ValueError, KeyError):
        return
    source = f"PCIe, {gigatransfers:g} GT/s on {lanes} lanes (sysfs)"
    for size in sizes:
        for way in ("h2d_gbps", "d2h_gbps"):
            report.ceiling(f"{way}:pinned/{size}", rate, source)


def pcie_gbps(gigatransfers: float, lanes: int) -> float:
    """Return the rate of one bit per lane and transfer, less the line code; packets cost some
    more."""
    return gigatransfers * PCIE_CODES[gigatransfers] * lanes / 8


# --- with a GPU ----------------------------------------------------------------------------


def across_the_link(
    report: contract.Report,
    device: torch.device,
    size: int,
    samples: int,
    near: Node | None,
    nodes: list[Node],
) -> None:
    from kit import numa
    from kit.copies import words

    there, outgoing = words(size, device), words(size, device)
    wrong = 0
    with numa.bound_to(near):
        for kind in ("pageable", "pinned"):
            host = host_words(size, near, kind == "pinned")
            names = f"{kind}/{size}", str(device)
            wrong += there_and_back(report, *names, host, there, samples)
        wrong += both_ways(report, *names, host, (there, outgoing), samples)
    for node in nodes if near else []:
        if node != near:
            with numa.bound_to(node):
                host = host_words(size, node, True)
                names = f"pinned/far{near.distances[node.index]}/{size}", f"{device}-{node.name}"
                wrong += there_and_back(report, *names, host, there, samples)
    report.add(f"agreement:{size}", str(device), contract.agreement(wrong))


def host_bytes(bytes: str, **_: contract.Value) -> int:
    """Return the bytes of two buffers of each size, pageable and pinned near the GPU, and pinned on
    each other node."""
    from kit import numa

    sizes = [1 << 28] if bytes == "auto" else set(contract.sizes("bytes", bytes, 4))
    return 2 * sum(sizes) * (1 + max(1, len(numa.nodes())))


@cache
def host_words(size: int, node: Node | None, pinned: bool) -> Buffers:
    """Return two buffers on the node to which the process is bound.

    They are kept to the end: torch hands pinned memory that was freed out again, wherever it is.
    """
    import torch
    from kit.copies import words

    cpu, pinnable = torch.device("cpu"), torch.cuda.is_available()
    return words(size, cpu, pinned and pinnable), words(size, cpu, pinned and pinnable)


def there_and_back(
    report: contract.Report, kind: str, where: str, host: Buffers, there: torch.Tensor, samples: int
) -> int:
    """Copy in each direction by itself; return the number of words that came back wrong."""
    from kit.copies import write_pattern, wrong_words
    from kit.timing import seconds_per_call

    sent, received = host
    device, size = there.device, sent.nbytes
    write_pattern(sent, salt=1), received.zero_(), there.zero_()
    up = seconds_per_call(lambda: there.copy_(sent, non_blocking=True), device, samples)
    down = seconds_per_call(lambda: received.copy_(there, non_blocking=True), device, samples)
    report.add(f"h2d_gbps:{kind}", where, [size / s / 1e9 for s in up], up.taken)
    report.add(f"d2h_gbps:{kind}", where, [size / s / 1e9 for s in down], down.taken)
    return wrong_words(received, salt=1)


def both_ways(
    report: contract.Report, kind: str, where: str, host: Buffers, remote: Buffers, samples: int
) -> int:
    from kit.copies import copy_together, write_pattern, wrong_words
    from kit.timing import seconds_per_call

    (sent, received), (there, outgoing) = host, remote
    write_pattern(sent, salt=2), write_pattern(outgoing, salt=3), received.zero_(), there.zero_()
    call = copy_together([(there, sent), (received, outgoing)], there.device)
    seconds = seconds_per_call(call, there.device, samples)
    rates = [2 * sent.nbytes / s / 1e9 for s in seconds]
    report.add(f"both_ways_gbps:{kind}", where, rates, seconds.taken)
    return wrong_words(there, salt=2) + wrong_words(received, salt=3)


# --- without -------------------------------------------------------------------------------


def measure_host(report: contract.Report, device: torch.device, size: int, samples: int) -> None:
    import mmap

    import torch
    from kit.copies import write_pattern, wrong_words
    from kit.timing import seconds_per_call

    torch.set_num_threads(1)  # memory_bandwidth measures all the cores together
    source, target = (
        torch.frombuffer(mmap.mmap(-1, 4 * (size // 4)), dtype=torch.int32)  # begins at a page
        for _ in range(2)
    )
    write_pattern(source, salt=1)
    seconds = seconds_per_call(lambda: target.copy_(source), device, samples)
    rates = [source.nbytes / s / 1e9 for s in seconds]
    report.add(f"host_copy_gbps:{size}", str(device), rates, seconds.taken)
    report.add(f"agreement:{size}", str(device), contract.agreement(wrong_words(target, salt=1)))


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure, host_bytes=host_bytes))
