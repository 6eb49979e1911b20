"""Matrix products without a pause on all GPUs at once, every one of them compared with the first.

The same kernel on the same numbers gives the same bits, so that a product which differs from the
first is silent data corruption; the first is checked against fp64. The rate, comparison included,
is one sample per second, so that throttling shows as the GPUs grow hot. Each product goes to the
next place in the GPU's memory, so that soon all of it is written and read, and again and again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import contract
from kit.arithmetic import FORMATS, IN_BLOCKS, Product, choose, flop, kernel, state_ceiling
from kit.each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    import torch

AUTO = {"cuda": "bf16", "cpu": "fp32"}
SIZE = {"cuda": 8192, "cpu": 512}
PLACES_ON_A_CPU = 4  # main memory is not filled: others live in it

BENCHMARK = contract.Benchmark(
    name="gpu_burn",
    version="2",
    summary="A sustained load on all GPUs at once, every result checked.",
    stresses="power delivery and cooling of the whole node, matrix units, all of the GPUs' memory",
    reveals="silent data corruption, bad memory, thermal throttling, a power cap, a GPU that falls "
    "off the bus",
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
        contract.Parameter(
            "memory_share",
            0.9,
            "of each GPU's free memory, which the products fill by turns; 0: one place for all",
            smoke=0.0,
            at_least=0,
            more_is_stronger=True,
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


def measure(
    report: contract.Report,
    dtypes: str,
    size: int,
    memory_share: float,
    seconds: int,
    cool_down: int,
) -> None:
    from kit.timing import devices

    if memory_share > 0.95:
        raise contract.BadParameter(
            f'memory_share cannot be "{memory_share}": at most 0.95, the products need some room'
        )

    gpus = devices()
    kind = gpus[0].type
    n = size or SIZE[kind]
    names = choose(report, dtypes, AUTO[kind], FORMATS, gpus[0])
    if n % 16 and IN_BLOCKS & set(names):
        raise contract.BadParameter(f'size cannot be "{n}": fp8 and int8 need a multiple of 16')
    report.note(size=n)
    with ThreadPoolExecutor(len(gpus)) as threads:
        for name in names:
            burn_all(
                report,
                list(threads.map(lambda gpu, name=name: Burn(name, n, gpu, memory_share), gpus)),
                seconds,
                threads,
            )
            free_memory()
    sleep(cool_down)


def free_memory() -> None:
    """Free memory, so that the next format finds all of it free."""
    import torch

    torch.cuda.empty_cache()  # does nothing without a GPU


def burn_all(
    report: contract.Report, burns: list[Burn], seconds: float, threads: ThreadPoolExecutor
) -> None:
    from kit.gpu_watch import watch_gpu
    from kit.together import start_together

    with ExitStack() as watches:
        for burn in burns:
            watches.enter_context(watch_gpu(report.notes, burn.device, burn.metric, period_s=0.5))
        start_together()
        series = list(threads.map(lambda burn: burn.run(seconds), burns))
    for burn, samples in zip(burns, series, strict=True):
        device, wrong = str(burn.device), burn.wrong_results()
        report.add(burn.metric, device, samples)
        report.add(f"agreement:{burn.name}", device, contract.agreement(wrong))
        report.notes.setdefault("filled_bytes", {}).setdefault(device, {})[burn.name] = burn.bytes
        report.notes.setdefault("wrong_results", {}).setdefault(device, {})[burn.name] = wrong
        state_ceiling(report, burn.metric, burn.name, burn.device)


class Burn:
    """One device's load in one format, and its results."""

    def __init__(self, name: str, n: int, device: torch.device, memory_share: float = 0.0) -> None:
        import torch

        self.name, self.metric, self.device = name, f"tflops:{name}", device
        self.flop = flop(n, n, n)
        product = Product(name, n, n, n, device)
        product.multiply()
        self.first_is_wrong = product.wrong_elements() > 0
        self.first = bits(product.out).clone()
        self.differs = torch.empty(n, n, dtype=torch.bool, device=device)
        self.different = torch.zeros((), dtype=torch.int64, device=device)
        places = [product.out, *more_places(product.out, memory_share)]
        self.bytes = len(places) * product.out.nbytes
        self.products = [
            (kernel(name, product.left, product.right, place), bits(place)) for place in places
        ]
        self.turn, self.now = 0, bits(product.out)

    def multiply(self) -> None:
        self.turn = (self.turn + 1) % len(self.products)
        product, self.now = self.products[self.turn]
        product()

    def run(self, seconds: float) -> list[float]:
        """Return TFLOP/s, second by second: a device that slows down gets fewer products into
        each."""
        from kit.timing import calls_for

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
        """Do a product and its comparison; nobody waits for the outcome."""
        import torch

        self.multiply()
        torch.ne(self.now, self.first, out=self.differs)
        self.different.add_(self.differs.any())

    def wrong_results(self) -> int:
        return int(self.different) + self.first_is_wrong


def more_places(out: torch.Tensor, memory_share: float) -> list[torch.Tensor]:
    """Allocate answers like this one, in so large a share of the memory that is free now."""
    import torch

    if out.device.type != "cuda":
        return [torch.empty_like(out) for _ in range(PLACES_ON_A_CPU - 1)]
    free_bytes, _ = torch.cuda.mem_get_info(out.device)
    count = int(memory_share * free_bytes) // out.nbytes
    return [torch.empty_like(out) for _ in range(count)]


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers: a NaN equals itself, and no wrong bit hides in a
    rounding."""
    import torch

    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return numbers.view(integers[numbers.element_size()])


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
