"""How perftest's programs are called here, and what is asked of their answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import contract
from _parsers import perftest
from _ports import Hca, gpu_places, nearest_gpu
from _tools import find, run

BANDWIDTH, LATENCY = "ib_write_bw", "ib_write_lat"
LATENCY_OF_GPUS = "ib_send_lat"  # with buffers in a GPU, perftest refuses ib_write_lat
LIMIT_S = 60.0
SAMPLE_BYTES = 1 << 32  # in one test of bandwidth, as far as the number of messages allows


def arguments(tool: str, hca: Hca, port: int, size: int, memory: Sequence[str]) -> list[str]:
    """Of the server; those of the client end with the server's address."""
    where = ["-d", hca.name, "-i", str(hca.port), "-p", str(port)]
    options = ["-s", str(size), "-n", str(messages(tool, size)), "-F"]
    return [tool, *where, *options, *memory]


def messages(tool: str, size: int) -> int:
    """Enough to last, and no more than 5000, perftest's default; a latency is one at a time."""
    return 1000 if tool.endswith("lat") else min(5000, max(100, SAMPLE_BYTES // size))


def answer(text: str, size: int, unit: str) -> float:
    """The one number that a test of one size came to: `gbps`, or `us`."""
    values = [row.values[unit] for row in perftest(text) if row.size_bytes == size]
    if len(values) != 1:
        raise contract.Unmeasured(f'perftest wrote no result but "{text[-160:].strip()}"')
    return values[0]


def memory_arguments(memory: str, hca: Hca) -> list[str]:
    """Buffers in the host's memory, or in that of the GPU nearest to the HCA."""
    if memory == "host":
        return []
    if memory != "cuda":
        raise contract.BadParameter(f'memory cannot be "{memory}": use host or cuda')
    gpus = gpu_places()
    if not gpus:
        raise contract.NotApplicable("no GPU whose memory the HCAs could reach")
    options = run([find(BANDWIDTH), "--help"], limit_s=10).stdout
    nearest = nearest_gpu(hca.place, gpus)
    if "use_cuda_bus_id" in options:
        gpu = f"--use_cuda_bus_id={Path(gpus[nearest]).name}"
    elif "use_cuda" in options:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        gpu = f"--use_cuda={nearest}"
    else:
        raise contract.NotApplicable("perftest here is built without CUDA (--use_cuda)")
    return [gpu, "-I", "0"]  # what lies in a GPU cannot be sent inline, which short messages are
