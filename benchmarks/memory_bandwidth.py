"""Memory bandwidth of the CPUs, together and per NUMA node, and of each GPU.

Kernels and bytes are counted as STREAM counts them: fp64, what the program reads and writes,
without the lines that a CPU's cache fetches before it overwrites them. Arrays are far larger than
all caches together, and every element of every answer is checked. At the end all memory that is
free on a GPU is filled with a pattern and read again, and then with its inverse, so that every bit
has been 0 and 1: that is a test of the memory, and no rate.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import contract
from kit.each_gpu import GPUS, each_gpu
from kit.gpus import ceilings

if TYPE_CHECKING:
    import torch

ITEM_BYTES = 8  # of double precision
# arrays that a kernel reads or writes
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3, "read": 1, "write": 1}
ON_CPU = "copy,scale,add,triad"
ON_GPU = "copy,read,write,triad"
GPU_BYTES = 1 << 32  # far more than any cache of a GPU
CHUNK_BYTES = 1 << 28  # enough chunks to reach nearly all memory
SPARE_CHUNKS = 4  # for what is compared with them, and for the driver
PERIOD = 1009  # elements after which the numbers in an array begin again
# Elements that are checked at a time, in whole periods: on a CPU they stay in its cache.
AT_ONCE = {"cpu": 32 * PERIOD, "cuda": 4096 * PERIOD}

BENCHMARK = contract.Benchmark(
    name="memory_bandwidth",
    version="2",
    summary="Streams through arrays far larger than any cache.",
    stresses="memory controllers and channels of CPUs and GPUs (HBM)",
    reveals="a missing or slow memory channel, remapped rows, low memory clocks, wrong bits",
    duration_s=30.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "of the CPUs' memory, per kernel: copy a=b, scale a=3b, add a=b+c, "
            "triad a=b+3c; device: cpu for all cores, numa0 for one node's own",
            ceiling="channels x transfers per second x channel width",
        ),
        contract.higher(
            "hbm_gbps",
            "GB/s",
            "of a GPU's memory, per kernel: copy, triad, read (a sum), write (a fill)",
            ceiling="the vendor's memory bandwidth",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        contract.Parameter(
            "parts",
            "gpu,cpu",
            "whose memory: gpu, cpu; a missing one is left out",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "kernels",
            "auto",
            f'"auto": {ON_GPU} on a GPU, {ON_CPU} on a CPU',
            more_is_stronger=True,
        ),
        contract.Parameter(
            "size_bytes",
            0,
            "bytes of each of three arrays; 0: 4 GiB on a GPU, four times the last caches on a CPU",
            smoke=1 << 20,
            at_least=0,
        ),
        contract.Parameter(
            "pattern",
            True,
            "whether a pattern is written to all free memory of each GPU and checked",
            smoke=False,
        ),
        contract.Parameter(
            "samples",
            20,
            "timed batches per kernel",
            smoke=3,
            at_least=1,
            counts=("bandwidth_gbps", "hbm_gbps"),
            more_is_stronger=True,
        ),
    ),
)


def measure(
    report: contract.Report, parts: str, kernels: str, size_bytes: int, pattern: bool, samples: int
) -> None:
    from kit.timing import gpus

    places, names = choose(parts, kernels)
    if "gpu" not in places:
        return
    count = gpus()
    if places == ["gpu"] and not count:
        raise contract.NotApplicable("only GPUs were asked for, and there is none here")
    for index in range(count):
        measure_gpu(report, index, names or contract.split(ON_GPU), size_bytes, samples)
        if pattern:
            check_all_memory(report, index)


def measure_host(
    report: contract.Report, parts: str, kernels: str, size_bytes: int, pattern: bool, samples: int
) -> None:
    places, names = choose(parts, kernels)
    if "cpu" in places:
        measure_cpus(report, names or contract.split(ON_CPU), size_bytes, samples)


def choose(parts: str, kernels: str) -> tuple[list[str], list[str]]:
    """Return the chosen memories, and the kernels if each does not use its own."""
    names = [] if kernels == "auto" else contract.choose("kernels", kernels, ARRAYS)
    return contract.choose("parts", parts, ["gpu", "cpu"]), names


def measure_gpu(
    report: contract.Report, index: int, kernels: list[str], size_bytes: int, samples: int
) -> None:
    import torch

    device = torch.device("cuda", index)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    size = size_bytes or min(GPU_BYTES, free_bytes // 6)
    report.note(gpu_size_bytes=size)
    stream(report, "hbm_gbps", str(device), device, kernels, size, samples)
    state_ceilings(report, ceilings.gpu_of(torch.cuda.get_device_properties(device)), kernels)
    torch.cuda.empty_cache()


def check_all_memory(report: contract.Report, index: int) -> None:
    import torch
    from kit.copies import words

    device = torch.device("cuda", index)
    free_bytes, all_bytes = torch.cuda.mem_get_info(device)
    count = max(1, free_bytes // CHUNK_BYTES - SPARE_CHUNKS)
    chunks = [words(CHUNK_BYTES, device) for _ in range(count)]
    report.add("agreement:pattern", str(device), contract.agreement(wrong_in_pattern(chunks)))
    share = round(count * CHUNK_BYTES / all_bytes, 3)
    report.notes.setdefault("checked_share", {})[str(device)] = share
    del chunks
    torch.cuda.empty_cache()


def wrong_in_pattern(chunks: list[torch.Tensor]) -> int:
    """Count wrong words after all were written, and again after all were written inverted."""
    wrong = 0
    for inverted in (False, True):
        write_all(chunks, inverted)
        wrong += wrong_in_all(chunks, inverted)
    return wrong


def write_all(chunks: list[torch.Tensor], inverted: bool) -> None:
    """Write words of which no two are alike, so that one which lands in another's place is
    wrong."""
    from kit.copies import write_pattern

    for number, chunk in enumerate(chunks):
        write_pattern(chunk, number)
        if inverted:
            chunk.bitwise_not_()


def wrong_in_all(chunks: list[torch.Tensor], inverted: bool) -> int:
    from kit.copies import wrong_words

    return sum(
        wrong_words(chunk.bitwise_not_() if inverted else chunk, number)
        for number, chunk in enumerate(chunks)
    )


def state_ceilings(report: contract.Report, card: ceilings.Gpu | None, kernels: list[str]) -> None:
    if card:
        for kernel in kernels:
            report.ceiling(f"hbm_gbps:{kernel}", card.hbm_gbps, source=card.source)


def measure_cpus(
    report: contract.Report, kernels: list[str], size_bytes: int, samples: int
) -> None:
    """Measure all cores together; then each NUMA node by itself, if there are several."""
    import torch
    from kit import numa

    size = size_bytes or cpu_size(last_caches_bytes(), memory_bytes())
    report.note(size_bytes=size, numa=numa.summary())
    nodes = numa.nodes()
    for node in [None, *(nodes if len(nodes) > 1 else [])]:
        with numa.bound_to(node):
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            where, cpu = node.name if node else "cpu", torch.device("cpu")
            stream(report, "bandwidth_gbps", where, cpu, kernels, size, samples)


def cpu_size(caches_bytes: int, available_bytes: int) -> int:
    """Return a size by STREAM's rule, if three such arrays leave half of the memory to others."""
    return min(max(1 << 28, 4 * caches_bytes), available_bytes // 6)


def last_caches_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Sum all caches of the last level; each is shown by every CPU that shares it."""
    caches = {}
    for folder in cpus.glob("cpu[0-9]*/cache"):
        for last in sorted(folder.glob("index[0-9]*"))[-1:]:
            caches[(last / "shared_cpu_list").read_text()] = (last / "size").read_text()
    return sum(int(size.strip().removesuffix("K")) << 10 for size in caches.values())


def memory_bytes() -> int:
    """Return the machine's memory, or what a container was given of it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # the other cgroup version, or "max"
            limits.append(int(Path("/sys/fs/cgroup", file).read_text()))
    return min(limits)


# --- the kernels ---------------------------------------------------------------------------


def stream(
    report: contract.Report,
    metric: str,
    where: str,
    device: torch.device,
    kernels: list[str],
    size: int,
    samples: int,
) -> None:
    from kit.timing import seconds_per_call

    elements = max(1, size // ITEM_BYTES)
    a, b, c = (whole_numbers(elements, device, step) for step in (1, 3, 7))
    wrong = 0
    for name in kernels:
        call, errors = kernel(name, a, b, c)
        a.zero_()
        seconds = seconds_per_call(call, device, samples)
        rates = [rate_gbps(name, elements, s) for s in seconds]
        report.add(f"{metric}:{name}", where, rates, seconds.taken)
        wrong += errors()
    report.add("agreement", where, contract.agreement(wrong))


def rate_gbps(kernel: str, elements: int, seconds: float) -> float:
    return ARRAYS[kernel] * ITEM_BYTES * elements / seconds / 1e9


def whole_numbers(elements: int, device: torch.device, step: int) -> torch.Tensor:
    """Return numbers that are small enough that every sum below is exact, in whatever order.

    All threads write, each its share, so that the pages of each are on its NUMA node.
    """
    import torch

    period = torch.arange(PERIOD, dtype=torch.float64, device=device).mul_(step).remainder_(PERIOD)
    numbers = torch.empty(elements, dtype=torch.float64, device=device)
    end = elements // PERIOD * PERIOD  # of the last whole period
    numbers[:end].view(-1, PERIOD).copy_(period)
    numbers[end:].copy_(period[: elements - end])
    return numbers


def kernel(
    name: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> tuple[Callable[[], object], Callable[[], int]]:
    """Return what to time, and a count of the wrong elements in its latest answer.

    Answers repeat as the numbers do, so that only they are read again, and an operand that was read
    wrong or has changed since is wrong as well.
    """
    import torch

    total = torch.zeros((), dtype=b.dtype, device=b.device)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: a.copy_(b),
        "scale": lambda: torch.mul(b, 3, out=a),
        "add": lambda: torch.add(b, c, out=a),
        "triad": lambda: torch.add(b, c, alpha=3, out=a),
        "read": lambda: torch.sum(b, dim=0, out=total),
        "write": lambda: a.fill_(3),
    }
    truths: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "copy": lambda b, c: b,
        "scale": lambda b, c: b + b + b,
        "add": lambda b, c: c + b,
        "triad": lambda b, c: c + c + c + b,
        "write": lambda b, c: torch.full_like(b, 3),
    }
    at_once = AT_ONCE[a.device.type]

    def wrong() -> int:
        if name == "read":
            return int(total.item() != sum(int(part.long().sum()) for part in b.split(at_once)))
        truth = truths[name](b[:at_once], c[:at_once])
        return sum(count_different(part, truth[: len(part)]) for part in a.split(at_once))

    return calls[name], wrong


def count_different(numbers: torch.Tensor, truth: torch.Tensor) -> int:
    if numbers.device.type == "cpu" and find_spec("numpy"):  # it takes a quarter of torch's time
        import numpy as np

        return int(np.count_nonzero(numbers.numpy() != truth.numpy()))
    return int((numbers != truth).sum())


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure, measure_host))
