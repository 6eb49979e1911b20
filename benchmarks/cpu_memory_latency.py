"""Latency of a load that depends on the one before it, from the first cache out to each NUMA node.

The pointers form one random cycle with one pointer per 64-byte line, so that no prefetcher knows
the next. Pages are small: sizes beyond the reach of the TLB include the walk of the page table, as
they do for an ordinary program. Sizes up to a cache's own hit it; larger ones do in part. Each
node's CPUs chase through their own memory at every size, and at the largest through all others'.

Python cannot chase pointers and compute nodes often lack a compiler, so the loop is given as
machine code.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

import contract
from kit.possession import Possession, Seconds, Threads

if TYPE_CHECKING:
    import numpy as np

LINE_BYTES = 64  # a cache line of all processors of servers
SMALLEST_BYTES = 64 * LINE_BYTES  # whatever the kernel's page is: some have pages of 64 KiB
WARM_UP_HOPS = 1 << 20  # a whole turn of 64 MiB; longer cycles have no place in a cache anyway

# chase(address, hops): follow the pointers and return the last address
CODE = {
    "x86_64": bytes.fromhex(
        "48 8b 3f"  # again: mov rdi, [rdi]
        "48 ff ce"  # dec rsi
        "75 f8"  # jne again
        "48 89 f8"  # mov rax, rdi
        "c3"  # ret
    ),
    "aarch64": bytes.fromhex(
        "00 00 40 f9"  # again: ldr x0, [x0]
        "21 04 00 f1"  # subs x1, x1, 1
        "c1 ff ff 54"  # b.ne again
        "c0 03 5f d6"  # ret
    ),
}

BENCHMARK = contract.Benchmark(
    name="cpu_memory_latency",
    version="1",
    summary="Pointer chasing through caches and memory, per pair of NUMA nodes.",
    stresses="CPU caches, the links between sockets, memory controllers",
    reveals="a wrong NUMA or power setting, a socket link at reduced width, slow memory modules",
    duration_s=8.0,
    metrics=(
        contract.lower(
            "latency_ns",
            "ns",
            "per load, by bytes of the array; device: CPU node (- memory node)",
            ceiling="load-to-use time of the level that holds the array",
        ),
    ),
    parameters=(
        contract.Parameter(
            "bytes",
            "16384,262144,4194304,33554432,268435456",
            "array sizes in bytes",
            smoke="16384,4194304",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "samples",
            20,
            "loops per size and pair of nodes",
            smoke=3,
            counts=("latency_ns",),
            at_least=1,
            more_is_stronger=True,
        ),
        contract.Parameter("sample_s", 0.01, "seconds per sample", smoke=0.002, at_least=1e-4),
    ),
)


def measure(report: contract.Report, bytes: str, samples: int, sample_s: float) -> None:
    from kit import numa

    if not find_spec("numpy"):
        raise contract.NotApplicable("NumPy is not installed, which lays out the array")
    sizes = sorted(set(contract.sizes("bytes", bytes, at_least=SMALLEST_BYTES)))
    chase = load(CODE.get(platform.machine()))
    nodes = numa.nodes()
    report.note(numa=numa.summary(), page_bytes=mmap.PAGESIZE)
    for memory in nodes:
        if 2 * sizes[-1] > memory.memory_bytes:
            raise contract.Unmeasured(
                f"{memory.name} has {memory.memory_bytes >> 20} MiB, too little for an array of "
                f"{sizes[-1] >> 20} MiB beside all else: choose smaller ones with --bytes=N,..."
            )
        area = numa.pages(sizes[-1], memory)
        for size in sizes:
            start = lay_out(area, size)
            for cpus in nodes if size == sizes[-1] else [memory]:
                device = memory.name if cpus == memory else f"{cpus.name}-{memory.name}"
                with numa.bound_to(cpus):
                    numbers = latencies_ns(chase, start, samples, sample_s)
                report.add(f"latency_ns:{size}", device, numbers, numbers.taken)


# --- the chase -----------------------------------------------------------------------------

Chase = Callable[[int, int], int]


def load(code: bytes | None) -> Chase:
    """Return the machine code as a function; its page is written first and made executable then."""
    if code is None:
        raise contract.NotApplicable(f"there is no loop for {platform.machine()} in this program")
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), len(page), executable) != 0:
        raise contract.Unmeasured(
            "the system forbids a program to make code for itself (SELinux execmem, or the like)"
        )
    run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(address)
    run.page = page  # type: ignore[attr-defined]  # lives as long as the function
    return run


def cycle(lines: int) -> np.ndarray:
    """Return for each line the next one, so that all of them form one cycle in random order."""
    import numpy as np

    order = np.random.default_rng(lines).permutation(lines)
    after = np.empty_like(order)
    after[order] = np.roll(order, -1)
    return after


def lay_out(area: mmap.mmap, size: int) -> int:
    """Write the cycle into the first `size` bytes; return the address at which it can be
    entered."""
    import numpy as np
    from kit.numa import address_of

    lines, start = size // LINE_BYTES, address_of(area)
    words = np.frombuffer(area, dtype=np.uint64)
    step = LINE_BYTES // words.itemsize
    words[: lines * step : step] = cycle(lines).astype(np.uint64) * LINE_BYTES + start
    return start


def latencies_ns(chase: Chase, start: int, samples: int, sample_s: float) -> Seconds:
    """Time samples, each from the end of the one before, so that it meets other lines."""
    clock = perf_counter()
    address = chase(start, WARM_UP_HOPS)
    hops = max(1, round(sample_s / ((perf_counter() - clock) / WARM_UP_HOPS)))
    with Possession(Threads.this_one()) as possession:
        possession.stamp()
        for _ in range(samples):
            address = chase(address, hops)
            possession.stamp()
    seconds = possession.seconds_on_host().divide(hops)
    return Seconds((duration * 1e9 for duration in seconds), seconds.taken)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
