"""Matrix products without a pause on all GPUs at once, every one of them compared with the first.

The same kernel on the same numbers gives the same bits, so that a product which differs from the
first is silent data corruption; the first is checked against fp64. The rate, comparison included,
is one sample per second, so that throttling shows as the GPUs grow hot. Each product goes to the
next place in the GPU's memory, so that soon all of it is written and read, and again and again.

A load that swings is harder on power supplies than one without a pause: products for half of a
period and rest for the other half, on all GPUs in step. Its rate is that of the times of work.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import contract
from kit.arithmetic import FORMATS, Product, choose, flop, lacks_product, state_ceiling
from kit.each_gpu import GPUS, each_gpu
from kit.swing import Swing

if TYPE_CHECKING:
    import torch

AUTO = {"cuda": "bf16", "cpu": "fp32"}
SIZE = {"cuda": 8192, "cpu": 512}
WORK_SHARE = 0.45  # of a period: nearly half, so that a late start does not cost the next one
PLACES_ON_A_CPU = 4  # main memory is not filled: others live in it

BENCHMARK = contract.Benchmark(
    name="gpu_burn",
    version="2",
    summary="A load on all GPUs at once, without a pause or swinging, every result checked.",
    stresses="power delivery and cooling of the whole node, matrix units, all of the GPUs' memory",
    reveals="silent data corruption, bad memory, thermal throttling, a power cap, a GPU that falls "
    "off the bus",
    duration_s=100.0,
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "per number format, and period if it swings; one sample per second of load, checking "
            "included",
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
        contract.Parameter(
            "swing_ms",
            "0",
            'any of 0 (without a pause) and periods of products and rest, such as "0,20,50,200"',
            more_is_stronger=True,
        ),
        contract.Parameter(
            "seconds", 60, "per format and period", smoke=1, at_least=1, more_is_stronger=True
        ),
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
    swing_ms: str,
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
    if reason := next(filter(None, (lacks_product(name, (n, n, n)) for name in names)), ""):
        raise contract.BadParameter(f'size cannot be "{n}": {reason}')
    periods_ms = contract.sizes("swing_ms", swing_ms, at_least=0)
    report.note(size=n)
    with ThreadPoolExecutor(len(gpus)) as threads:
        for name in names:
            burns = list(threads.map(lambda gpu, name=name: Burn(name, n, gpu, memory_share), gpus))
            for period_ms in periods_ms:
                burn_all(report, burns, period_ms, seconds, threads)
            del burns
            free_memory()
    sleep(cool_down)


def free_memory() -> None:
    """Free memory, so that the next format finds all of it free."""
    import torch

    torch.cuda.empty_cache()  # does nothing without a GPU


def burn_all(
    report: contract.Report,
    burns: list[Burn],
    period_ms: int,
    seconds: float,
    threads: ThreadPoolExecutor,
) -> None:
    from kit.gpus.gpu_watch import watch_gpu
    from kit.together import start_together

    load = f"{burns[0].name}/{period_ms}ms" if period_ms else burns[0].name
    with ExitStack() as watches:
        for burn in burns:
            watches.enter_context(
                watch_gpu(report.notes, burn.device, f"tflops:{load}", period_s=0.5)
            )
        swing = partial(Swing, period_ms / 1e3, start_together()) if period_ms else None
        series = list(threads.map(lambda burn: burn.run(seconds, swing and swing()), burns))
    for burn, samples in zip(burns, series, strict=True):
        show(report, load, burn, samples)


def show(report: contract.Report, load: str, burn: Burn, samples: list[float]) -> None:
    device, wrong = str(burn.device), burn.wrong_results()
    report.add(f"tflops:{load}", device, samples)
    report.add(f"agreement:{load}", device, contract.agreement(wrong))
    facts = {"filled_bytes": burn.bytes, "wrong_results": wrong}
    for name, fact in (facts | ({"swings": burn.swings} if burn.swings else {})).items():
        report.notes.setdefault(name, {}).setdefault(device, {})[load] = fact
    state_ceiling(report, f"tflops:{load}", burn.name, burn.device)


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
        self.products = [(product.kernel(place), bits(place)) for place in places]
        self.turn, self.now = 0, bits(product.out)
        self.swings: dict[str, float] = {}

    def multiply(self) -> None:
        self.turn = (self.turn + 1) % len(self.products)
        product, self.now = self.products[self.turn]
        product()

    def run(self, seconds: float, swing: Swing | None = None) -> list[float]:
        """Return TFLOP/s, second by second: a device that slows down gets fewer products into
        each. Of a load that swings the times of work count."""
        from kit.timing import calls_for

        work_s = WORK_SHARE * swing.period_s if swing else 1.0
        calls = calls_for(self.step, self.device, sample_s=work_s)
        self.time(calls // 4)  # clocks rise
        samples: list[float] = []
        end = perf_counter() + seconds
        while perf_counter() < end:
            elapsed, count = self.load(calls, swing)
            samples.append(count * self.flop / elapsed / 1e12)
            calls = max(1, round(count / elapsed * work_s))
        self.swings = swing.facts() if swing else {}
        return samples

    def load(self, calls: int, swing: Swing | None) -> tuple[float, int]:
        """Return the seconds of work and the products of about a second of load."""
        if not swing:
            return self.time(calls), calls
        worked_s, count, end = 0.0, 0, perf_counter() + 1.0
        while perf_counter() < end:
            swing.wait()
            worked_s += self.time(calls)
            count += calls
        return worked_s, count

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
        """Do a product and its comparison, without waiting for the outcome."""
        import torch

        self.multiply()
        torch.ne(self.now, self.first, out=self.differs)
        self.different.add_(self.differs.any())

    def wrong_results(self) -> int:
        """Return the wrong results since this was last asked; a wrong first one always counts."""
        different = int(self.different)
        self.different.zero_()
        return different + self.first_is_wrong


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
