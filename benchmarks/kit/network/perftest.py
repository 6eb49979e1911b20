"""Calls of perftest's programs, and numbers from their answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import contract

from kit.gpus.cards import machine_root
from kit.network.ports import Hca, gpu_places, nearest_gpu
from kit.parsers import perftest
from kit.tools import find, run

BANDWIDTH, LATENCY = "ib_write_bw", "ib_write_lat"
LATENCY_OF_GPUS = "ib_send_lat"  # with buffers in a GPU, perftest refuses ib_write_lat
LIMIT_S = 60.0  # a run takes seconds
MODULES = machine_root() / "sys/module"
PEERMEM = ("nvidia_peermem", "nv_peer_mem")  # either lets an HCA reach the memory of a GPU
SAMPLE_BYTES = 1 << 32  # in one test of bandwidth, as far as the number of messages allows


def arguments(tool: str, hca: Hca, port: int, size: int, memory: Sequence[str]) -> list[str]:
    """Return the arguments of the server; those of the client end with the server's address."""
    where = ["-d", hca.name, "-i", str(hca.port), "-p", str(port)]
    options = ["-s", str(size), "-n", str(messages(tool, size)), "-F"]
    return [tool, *where, *options, *memory]


def messages(tool: str, size: int) -> int:
    """Return a number of messages that lasts long enough, at most 5000, perftest's default; a
    latency is one at a time."""
    return 1000 if tool.endswith("lat") else min(5000, max(100, SAMPLE_BYTES // size))


def answer(text: str, size: int, unit: str) -> float:
    """Return the one number of a test of one size: `gbps`, or `us`."""
    values = [row.values[unit] for row in perftest(text) if row.size_bytes == size]
    if len(values) != 1:
        raise contract.Unmeasured(f'perftest wrote no result but "{text[-160:].strip()}"')
    return values[0]


def memory_arguments(memory: str, hca: Hca) -> list[str]:
    """Return arguments for buffers in the host's memory, or in that of the GPU nearest to the
    HCA."""
    if memory == "host":
        return []
    if memory != "cuda":
        raise contract.BadParameter(f'memory cannot be "{memory}": use host or cuda')
    gpus = gpu_places()
    if not gpus:
        raise contract.NotApplicable("no GPU whose memory the HCAs could reach")
    options = run([find(BANDWIDTH), "--help"], limit_s=10).stdout
    # data in a GPU cannot be sent inline, as short messages are
    return [*chosen_gpu(options, hca, gpus), *way_into_gpus(options), "-I", "0"]


def chosen_gpu(options: str, hca: Hca, gpus: Sequence[str]) -> list[str]:
    nearest = nearest_gpu(hca.place, list(gpus))
    if "--use_cuda_bus_id" in options:
        return [f"--use_cuda_bus_id={Path(gpus[nearest]).name}"]
    if "--use_cuda" in options:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        return [f"--use_cuda={nearest}"]
    raise contract.NotApplicable(
        "perftest here is built without CUDA (--use_cuda): build it with CUDA_H_PATH=…/cuda.h"
    )


def way_into_gpus(options: str) -> list[str]:
    """Return arguments for the way into GPUs: by a module of the kernel or, if none is loaded, by
    DMA-BUF."""
    if any((MODULES / name).exists() for name in PEERMEM):
        return []
    if "--use_cuda_dmabuf" in options:
        return ["--use_cuda_dmabuf"]
    raise contract.NotApplicable(
        "no HCA reaches the memory of a GPU here: load the module nvidia_peermem, or take a "
        "perftest that knows --use_cuda_dmabuf"
    )
