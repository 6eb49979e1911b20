"""Devices to time on, and clocks: CUDA events on a GPU, perf_counter on a CPU.

Every count of calls is fixed by its arguments and never by what one process happened to see, so
that the ranks of a group can time collectives with it and stay in step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise

import contract
import torch

from kit.gpus import cards
from kit.possession import Possession, Seconds, Threads
from kit.together import start_together

WARM_UP_SAMPLES = 3  # clocks rise, caches fill and kernels load meanwhile
SAMPLE_S = 0.03  # shorter samples would measure the clock and the launch


def devices() -> list[torch.device]:
    """Return every GPU in sight; without one the CPU, with all the cores that this process may
    use."""
    if count := gpus():
        return [torch.device("cuda", index) for index in range(count)]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return [torch.device("cpu")]


def gpus() -> int:
    """Count the GPUs that torch sees. If it sees none and there must be some, that is an error: it
    must not pass for a CPU node."""
    count = torch.cuda.device_count()
    chosen = cards.visible_gpus()
    if not count and (missing := cards.expected_count()):
        where = (
            f"/dev has {', '.join(cards.cards())}"
            if chosen is None or contract.ONE_GPU in os.environ  # which was not chosen by anybody
            else f'CUDA_VISIBLE_DEVICES is "{",".join(chosen)}"'
        )
        raise contract.Unmeasured(
            f"{where}, but torch {torch.__version__} sees no GPU, expected {missing}: has the "
            "driver failed (see nvidia-smi, amd-smi), is MIG on without a slice, or is this torch "
            "a build for the CPU or for another maker's GPUs?"
        )
    if not count and chosen is None and (unknown := cards.intel_cards()):
        raise contract.Unmeasured(
            f"here are GPUs of Intel ({', '.join(unknown)}), and only those of NVIDIA and AMD can "
            'be measured: with CUDA_VISIBLE_DEVICES="" the processor is measured instead'
        )
    return count


def seconds_per_call(
    call: Callable[[], object], device: torch.device, samples: int, sample_s: float = SAMPLE_S
) -> Seconds:
    """Return `samples` numbers, each the mean over as many calls as make it last about
    `sample_s`.

    If one call on a CPU lasts as long, two calls warm it up: gigabytes are read again by each. A
    GPU's clocks need the time of all of them.
    """
    if device.type == "cpu":
        two_calls_s = _batches(call, device, batches=2, calls=1, stamps=Possession(Threads()))
        if two_calls_s[-1] >= sample_s:
            return time_calls(call, device, samples, calls=1, warm_up=0)
    return time_calls(call, device, samples, calls_for(call, device, sample_s))


def calls_for(call: Callable[[], object], device: torch.device, sample_s: float) -> int:
    """Return the number of calls that last `sample_s`."""
    for _ in range(2):
        call()
    (three_calls_s,) = _batches(call, device, batches=1, calls=3, stamps=Possession(Threads()))
    return max(1, math.ceil(sample_s / max(three_calls_s / 3, 1e-9)))


def time_calls(
    call: Callable[[], object],
    device: torch.device,
    samples: int,
    calls: int,
    warm_up: int = WARM_UP_SAMPLES,
) -> Seconds:
    """Time calls, together with the other GPUs of the node if they are measured at once; the first
    few samples are warm-up (clocks, caches, allocator) and are dropped."""
    on_gpu = device.type == "cuda"
    with Possession(Threads.this_one() if on_gpu else Threads.all()) as possession:
        start_together()
        spent = _batches(call, device, warm_up + samples, calls, possession)
    seconds = possession.seconds_on_gpu(spent) if on_gpu else possession.seconds_on_host()
    return seconds.drop_first(warm_up).divide(calls)


def _batches(
    call: Callable[[], object], device: torch.device, batches: int, calls: int, stamps: Possession
) -> list[float]:
    if device.type == "cuda":
        return _cuda_batches(call, device, batches, calls, stamps)
    stamps.stamp()
    for _ in range(batches):
        for _ in range(calls):
            call()
        stamps.stamp()
    return stamps.between_s


def _cuda_batches(
    call: Callable[[], object], device: torch.device, batches: int, calls: int, stamps: Possession
) -> list[float]:
    """Time batches with one event between them and one wait at the end: the GPU never idles in
    between."""
    with torch.cuda.device(device):
        edges = [torch.cuda.Event(enable_timing=True) for _ in range(batches + 1)]
        torch.cuda.synchronize()
        stamps.stamp()
        edges[0].record()
        for edge in edges[1:]:
            for _ in range(calls):
                call()
            edge.record()
            stamps.stamp()
        torch.cuda.synchronize()
        milliseconds = [start.elapsed_time(end) for start, end in pairwise(edges)]
    return [duration / 1e3 for duration in milliseconds]
