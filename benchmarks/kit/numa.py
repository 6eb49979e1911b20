"""NUMA: the nodes of this machine, the one nearest to a GPU, and how to run and allocate on one.

Everything comes from sysfs and two system calls. Inside a container sysfs still shows the whole
machine, so a node lists beside its CPUs those that this process may use, and its memory counts as
none if the cpuset forbids it. If a sandbox refuses memory policies, memory comes from the node that
touches it first, which is the node that the thread is bound to.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import contract

from kit.sysfs import parse_list

SYS = Path(os.environ.get("ANUBIS_HOST_ROOT", "/"), "sys")
STATUS = Path("/proc/self/status")
THREADS = Path("/proc/self/task")

_CALLS = {  # numbers of the system calls, from the kernel's tables
    "x86_64": {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239},
    "aarch64": {"mbind": 235, "set_mempolicy": 237, "get_mempolicy": 236},
}
_BIND = 2  # MPOL_BIND
_NODES = 1024  # bits of a node mask
_Mask = ctypes.c_ulong * (_NODES // (8 * ctypes.sizeof(ctypes.c_ulong)))


@dataclass(frozen=True, kw_only=True)
class Node:
    index: int
    cpus: frozenset[int]  # that this process may use
    all_cpus: frozenset[int]
    memory_bytes: int
    distances: dict[int, int] = field(hash=False)  # to each node, 10 to itself

    @property
    def name(self) -> str:
        return f"numa{self.index}"


@cache
def allowed_cpus() -> frozenset[int]:
    """Return the CPUs of this process as it was started, whatever it binds itself to later."""
    return frozenset(os.sched_getaffinity(0))


def nodes() -> list[Node]:
    """Return every node on which this process may both run and allocate."""
    return [node for node in all_nodes() if node.cpus and node.memory_bytes]


def all_nodes() -> list[Node]:
    """Return every node that sysfs shows; one with everything if the kernel knows of no NUMA."""
    allowed = allowed_cpus()
    folders = {int(f.name[4:]): f for f in SYS.glob("devices/system/node/node[0-9]*")}
    if not folders:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return [
            Node(index=0, cpus=allowed, all_cpus=allowed, memory_bytes=memory, distances={0: 10})
        ]
    with_memory = parse_list(contract.value_after(STATUS, "Mems_allowed_list"))
    nodes = []
    for index, folder in sorted(folders.items()):
        cpus = parse_list((folder / "cpulist").read_text())
        kib = int(contract.value_after(folder / "meminfo", f"Node {index} MemTotal").split()[0])
        distances = map(int, (folder / "distance").read_text().split())
        nodes.append(
            Node(
                index=index,
                cpus=cpus & allowed,
                all_cpus=cpus,
                memory_bytes=kib << 10 if index in with_memory else 0,
                distances=dict(zip(sorted(folders), distances, strict=True)),
            )
        )
    return nodes


def summary() -> str:
    """Return one line for the document: what there is, and what of it this process may use."""
    return "; ".join(
        f"{node.name}: CPUs {show_list(node.cpus)} of {show_list(node.all_cpus)}, "
        f"{node.memory_bytes / (1 << 30):.0f} GiB"
        for node in all_nodes()
    )


def show_list(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return ",".join(parts) or "none"


# --- GPUs ----------------------------------------------------------------------------------


def nearest_to_gpu(index: int) -> Node | None:
    """Return the node that a GPU is attached to; None if it is unknown, as in most virtual
    machines."""
    address = bus_id(index)
    return nearest(address) if address else None


def stay_near_gpu(index: int) -> Node | None:
    """Keep this process, and what it starts, to the CPUs of the node that a GPU is attached to.

    If that is unknown, as in most virtual machines, it runs wherever it may.
    """
    allowed_cpus()
    if node := nearest_to_gpu(index):
        os.sched_setaffinity(0, node.cpus)
    return node


def stay_beside_gpu(index: int, further: int) -> str:
    """Keep this process to the node so many further on than the GPU's own, and return its name."""
    near, everywhere = nearest_to_gpu(index), nodes()
    places = [place for place, node in enumerate(everywhere) if near and node.index == near.index]
    if not places:
        return "the host"
    node = everywhere[(places[0] + further) % len(everywhere)]
    os.sched_setaffinity(0, node.cpus)
    return node.name


def nearest(address: str) -> Node | None:
    try:
        index = int((pci_folder(address) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return next((node for node in nodes() if node.index == index), None)


def pci_folder(address: str) -> Path:
    domain, _, rest = address.lower().partition(":")
    name = f"{int(domain, 16):04x}:{rest}"  # NVML writes eight digits, sysfs four
    return SYS / "bus/pci/devices" / name


def bus_id(index: int, driver: str = "libcuda.so.1") -> str | None:
    """Return the PCI address of a GPU by CUDA's driver, which counts GPUs as torch does."""
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        return None
    device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    failed = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), index)
        or cuda.cuDeviceGetPCIBusId(text, len(text), device)
    )
    return None if failed else text.value.decode()


# --- running and allocating on a node ------------------------------------------------------


@contextmanager
def bound_to(node: Node | None) -> Iterator[None]:
    """Run all threads of this process on the CPUs of a node; what this one allocates is in its
    memory.

    Threads that are started inside inherit both. None binds nothing.
    """
    if node is None:
        yield
        return
    own_cpus = os.sched_getaffinity(0)
    before = _affinities()
    policy = _policy()
    _set_affinity(dict.fromkeys(before, node.cpus))
    if policy:
        _call("set_mempolicy", _BIND, _mask(node.index), _NODES + 1)
    try:
        yield
    finally:
        if policy:
            mode, mask = policy
            _call("set_mempolicy", mode, mask if any(mask) else None, _NODES + 1)
        _set_affinity({thread: before.get(thread, own_cpus) for thread in _threads()})


def pages(size_bytes: int, node: Node) -> mmap.mmap:
    """Return zeroed small pages in a node's memory, which stay there whoever uses them.

    Small, because whether huge ones can be had differs from node to node and day to day.
    """
    area = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        area.madvise(mmap.MADV_NOHUGEPAGE)
    start = address_of(area)
    _call("mbind", start, size_bytes, _BIND, _mask(node.index), _NODES + 1, 0)
    with bound_to(node):
        ctypes.memset(start, 0, size_bytes)
    return area


def address_of(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def _threads() -> list[int]:
    return [int(thread.name) for thread in THREADS.iterdir()]


def _affinities() -> dict[int, set[int]]:
    affinities = {}
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            affinities[thread] = os.sched_getaffinity(thread)
    return affinities


def _set_affinity(affinities: dict[int, Iterable[int]]) -> None:
    for thread, cpus in affinities.items():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cpus)


def _policy() -> tuple[int, ctypes.Array[ctypes.c_ulong]] | None:
    mode, mask = ctypes.c_int(), _Mask()
    was_done = _call("get_mempolicy", ctypes.byref(mode), mask, _NODES, None, 0)
    return (mode.value, mask) if was_done else None


def _mask(index: int) -> ctypes.Array[ctypes.c_ulong]:
    mask, width = _Mask(), 8 * ctypes.sizeof(ctypes.c_ulong)
    mask[index // width] = 1 << index % width
    return mask


def _call(name: str, *arguments: object) -> bool:
    """Make a system call that may be missing or refused; return whether it was done."""
    number = _CALLS.get(platform.machine(), {}).get(name)
    if number is None:
        return False
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return bool(ctypes.CDLL(None).syscall(ctypes.c_long(number), *wide) == 0)
