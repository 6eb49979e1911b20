"""Matrix products without a pause on all GPUs at once, every one of them compared with the first.

The same kernel on the same numbers gives the same bits, so that a product which differs from the
first is silent data corruption; the first is checked against fp64. The rate, comparison included,
is one sample per second, so that throttling shows as the GPUs grow hot.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import contract
from _arithmetic import FORMATS, IN_BLOCKS, Product, choose, flop, state_ceiling
from _each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    import torch

AUTO = {"cuda": "bf16", "cpu": "fp32"}
SIZE = {"cuda": 8192, "cpu": 512}

BENCHMARK = contract.Benchmark(
    name="gpu_burn",
    version="1",
    summary="A sustained load on all GPUs at once, every result checked.",
    stresses="power delivery and cooling of the whole node, matrix units",
    reveals="silent data corruption, thermal throttling, a power cap, a GPU that falls off the bus",
    duration_s=100.0,
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "per number format, one sample per second, checking included",
            ceiling="the vendor's dense rate of the format, less about a tenth for checking",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        contract.Parameter(
            "dtypes",
            "auto",
            f"any of {', '.join(FORMATS)}, one after the other; "
            f'"auto": {AUTO["cuda"]} on GPUs, {AUTO["cpu"]} on a CPU',
            more_is_stronger=True,
        ),
        contract.Parameter(
            "size",
            0,
            f"rows and columns; 0: {SIZE['cuda']} on GPUs, {SIZE['cpu']} on a CPU",
            smoke=128,
            at_least=0,
        ),
        contract.Parameter("seconds", 60, "per format", smoke=1, at_least=1, more_is_stronger=True),
        contract.Parameter(
            "cool_down",
            30,
            "seconds of rest at the end, so that the next test starts cool",
            smoke=0,
            at_least=0,
        ),
    ),
)


def measure(report: contract.Report, dtypes: str, size: int, seconds: int, cool_down: int) -> None:
    from _timing import devices

    gpus = devices()
    kind = gpus[0].type
    n = size or SIZE[kind]
    names = choose(report, dtypes, AUTO[kind], FORMATS, gpus[0])
    if n % 16 and IN_BLOCKS & set(names):
        raise contract.BadParameter(f'size cannot be "{n}": fp8 and int8 need a multiple of 16')
    report.note(size=n)
    with ThreadPoolExecutor(len(gpus)) as threads:
        for name in names:
            burns = list(threads.map(lambda gpu, name=name: Burn(name, n, gpu), gpus))
            burn_all(report, burns, seconds, threads)
    sleep(cool_down)


def burn_all(
    report: contract.Report, burns: list[Burn], seconds: float, threads: ThreadPoolExecutor
) -> None:
    from _gpu_watch import watched

    with ExitStack() as watches:
        for burn in burns:
            watches.enter_context(watched(report.notes, burn.device, burn.metric, period_s=0.5))
        series = list(threads.map(lambda burn: burn.run(seconds), burns))
    for burn, samples in zip(burns, series, strict=True):
        device, wrong = str(burn.device), burn.wrong_results()
        report.add(burn.metric, device, samples)
        report.add(f"agreement:{burn.name}", device, contract.agreement(wrong))
        report.notes.setdefault("wrong_results", {}).setdefault(device, {})[burn.name] = wrong
        state_ceiling(report, burn.metric, burn.name, burn.device)


class Burn:
    """One device's load in one format, and what came of it."""

    def __init__(self, name: str, n: int, device: torch.device) -> None:
        import torch

        self.name, self.metric, self.device = name, f"tflops:{name}", device
        self.flop = flop(n, n, n)
        product = Product(name, n, n, n, device)
        self.multiply = product.multiply
        self.multiply()
        self.first_is_wrong = product.wrong_elements() > 0
        self.now = bits(product.out)
        self.first = self.now.clone()
        self.differs = torch.empty(n, n, dtype=torch.bool, device=device)
        self.different = torch.zeros((), dtype=torch.int64, device=device)

    def run(self, seconds: float) -> list[float]:
        """TFLOP/s, second by second: a device that slows down gets fewer products into each."""
        from _timing import calls_for

        calls = calls_for(self.step, self.device, sample_s=1.0)
        self.time(calls // 4)  # clocks rise
        samples: list[float] = []
        end = perf_counter() + seconds
        while perf_counter() < end:
            elapsed = self.time(calls)
            samples.append(calls * self.flop / elapsed / 1e12)
            calls = max(1, round(calls / elapsed))
        return samples

    def time(self, calls: int) -> float:
        import torch

        started = perf_counter()
        try:
            for _ in range(calls):
                self.step()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except RuntimeError as error:  # a GPU that falls off the bus, an uncorrectable memory error
            reason = str(error).partition("\n")[0]
            raise contract.Unmeasured(f"{self.device} failed under load: {reason}") from error
        return perf_counter() - started

    def step(self) -> None:
        """A product and its comparison; nobody waits for the outcome."""
        import torch

        self.multiply()
        torch.ne(self.now, self.first, out=self.differs)
        self.different.add_(self.differs.any())

    def wrong_results(self) -> int:
        return int(self.different) + self.first_is_wrong


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """The same memory as integers: a NaN equals itself, and no wrong bit hides in a rounding."""
    import torch

    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return numbers.view(integers[numbers.element_size()])


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
