"""The cost of a kernel launch: the smallest torch operation, one addition to one number.

Event time is what CUDA events see per launch when launches follow each other; wall time is what the
host waits when it synchronizes after each. Percentiles of single launches show what a mean hides: a
driver or a host that is late now and then. Without a GPU, wall time is the cost of calling the
operation. The number counts the launches, so that a lost one shows.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import contract
from kit.each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    import torch
    from kit.possession import Seconds

PERCENTILES = (50, 99)  # the usual launch, and one that is late

BENCHMARK = contract.Benchmark(
    name="kernel_launch",
    version="1",
    summary="Launches of the smallest kernel, one after the other and one at a time.",
    stresses="one core of the host, the driver, the path from host to GPU",
    reveals="a slow or throttled host core, one far from the GPU, a driver that gets in the way",
    duration_s=5.0,
    packages=("torch",),
    metrics=(
        contract.lower(
            "event_us",
            "us",
            "per launch, by CUDA events around many; only where there is a GPU",
            ceiling="the driver's path on one core of the host; no vendor states a number",
        ),
        contract.lower(
            "wall_us",
            "us",
            "per launch and wait (without a GPU: per call), by the host's clock",
            ceiling="event_us and one way to the GPU and back; no vendor states a number",
        ),
        contract.lower(
            "single_us",
            "us",
            "the time in which half (p50) and 99 of 100 (p99) of the launches of a sample are "
            "done, each with its wait, by the host's clock; only where there is a GPU",
            ceiling="wall_us",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        contract.Parameter("launches", 5000, "launches per sample", smoke=100, at_least=1),
        contract.Parameter(
            "samples",
            30,
            "timed batches",
            smoke=3,
            at_least=1,
            counts=("event_us", "wall_us", "single_us"),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, launches: int, samples: int) -> None:
    from kit.timing import devices

    for device in devices():
        launch_on(report, device, launches, samples)


def launch_on(report: contract.Report, device: torch.device, launches: int, samples: int) -> None:
    import torch
    from kit.timing import WARM_UP_SAMPLES, time_calls

    counter = torch.zeros((), dtype=torch.int64, device=device)
    host = torch.device("cpu")  # whose clock is the wall's
    expected = (WARM_UP_SAMPLES + samples) * launches

    def launch() -> None:
        counter.add_(1)

    def launch_and_wait() -> None:
        counter.add_(1)
        torch.cuda.synchronize(device)

    if device.type == "cuda":
        seconds = time_calls(launch, device, samples, launches)
        report.add("event_us", str(device), [s * 1e6 for s in seconds], seconds.taken)
        for percent, seconds in single_launches(launch_and_wait, samples, launches).items():
            metric = f"single_us:p{percent}"
            report.add(metric, str(device), [s * 1e6 for s in seconds], seconds.taken)
        seconds = time_calls(launch_and_wait, host, samples, launches)
        expected *= 3
    else:
        seconds = time_calls(launch, host, samples, launches)
    report.add("wall_us", str(device), [s * 1e6 for s in seconds], seconds.taken)
    report.add("agreement", str(device), contract.agreement(abs(int(counter) - expected)))


def single_launches(launch: Callable[[], None], samples: int, launches: int) -> dict[int, Seconds]:
    """Return percentiles of the duration of single launches, sample by sample."""
    import torch
    from kit.possession import Seconds
    from kit.timing import time_calls

    durations_s: list[float] = []

    def timed() -> None:
        begun = perf_counter()
        launch()
        durations_s.append(perf_counter() - begun)

    taken = time_calls(timed, torch.device("cpu"), samples, launches).taken
    kept = durations_s[-samples * launches :]  # without warm-up
    ordered = [sorted(kept[i : i + launches]) for i in range(0, len(kept), launches)]
    return {
        percent: Seconds((sample[launches * percent // 100] for sample in ordered), taken)
        for percent in PERCENTILES
    }


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
