"""Matrix products without a pause on all GPUs at once, every one of them compared with the first.

The same kernel on the same numbers gives the same bits, so that a product which differs from the
first is silent data corruption; the first is checked against fp64. The rate, comparison included,
is one sample per second, so that throttling shows as the GPUs grow hot. Each product goes to the
next place in the GPU's memory, so that soon all of it is written and read, and again and again.

Several turns have other numbers each, and one shape after the other: other kernels and other wires
get hot than in hours of one product.

A load that swings is harder on power supplies than one without a pause: products for half of a
period and rest for the other half, on all GPUs in step. Its rate is that of the times of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
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
SHAPES = {  # of turns: rows, columns and terms, as shares of the size; all do the same work
    "": (1.0, 1.0, 1.0),
    "tall": (2.0, 1.0, 0.5),
    "deep": (0.5, 1.0, 2.0),
}
PLACES_ON_A_CPU = 4  # main memory is not filled: others live in it

BENCHMARK = contract.Benchmark(
    name="gpu_burn",
    version="3",
    summary="A load on all GPUs at once, without a pause or swinging, every result checked.",
    stresses="power delivery and cooling of the whole node, matrix units, all of the GPUs' memory",
    reveals="silent data corruption, bad memory, thermal throttling, a power cap, a GPU that falls "
    "off the bus",
    duration_s=100.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "per number format, and shape or period if there are several; one sample per second of "
            "load, checking included",
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
            "turns",
            1,
            "of all formats, each with other numbers and the next of three shapes",
            at_least=1,
            more_is_stronger=True,
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
    turns: int,
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
    shapes = [shape_of(turn, n) for turn in range(min(turns, len(SHAPES)))]
    reasons = (lacks_product(name, shape) for name in names for shape in shapes)
    if reason := next(filter(None, reasons), ""):
        raise contract.BadParameter(f'size cannot be "{n}": {reason}')
    periods_ms = contract.sizes("swing_ms", swing_ms, at_least=0)
    report.note(size=n)
    loads: Loads = {}
    with ThreadPoolExecutor(len(gpus)) as threads:
        for turn, name in product(range(turns), names):
            make = partial(Burn, name, n, memory_share=memory_share, turn=turn)
            burns = list(threads.map(make, gpus))
            for period_ms in periods_ms:
                burn_all(report, burns, period_ms, seconds, threads, loads)
            del burns
            free_memory()
    for load, of_devices in loads.items():
        for device, total in of_devices.items():
            show(report, load, str(device), total)
            state_ceiling(report, f"tflops:{load}", load.partition("/")[0], device)
    sleep(cool_down)


def shape_of(turn: int, n: int) -> tuple[int, int, int]:
    """Return rows, columns and terms of the products of a turn."""
    rows, columns, terms = list(SHAPES.values())[turn % len(SHAPES)]
    return int(rows * n), int(columns * n), int(terms * n)


def free_memory() -> None:
    """Free memory, so that the next format finds all of it free."""
    import torch

    torch.cuda.empty_cache()  # does nothing without a GPU


@dataclass
class Load:
    """What one device did under a load, in all turns of it."""

    samples: list[float] = field(default_factory=list)  # TFLOP/s, second by second
    wrong: int = 0
    bytes: int = 0  # that the products filled
    swings: Mapping[str, float] = field(default_factory=dict)


Loads = dict[str, dict["torch.device", Load]]


def burn_all(
    report: contract.Report,
    burns: list[Burn],
    period_ms: int,
    seconds: float,
    threads: ThreadPoolExecutor,
    loads: Loads,
) -> None:
    from kit.gpus.gpu_watch import watch_gpu
    from kit.together import start_together

    load = "/".join(filter(None, (burns[0].name, f"{period_ms}ms" if period_ms else "")))
    with ExitStack() as watches:
        for burn in burns:
            watches.enter_context(
                watch_gpu(report.notes, burn.device, f"tflops:{load}", period_s=0.5)
            )
        swing = partial(Swing, period_ms / 1e3, start_together()) if period_ms else None
        series = list(threads.map(lambda burn: burn.run(seconds, swing and swing()), burns))
    for burn, samples in zip(burns, series, strict=True):
        total = loads.setdefault(load, {}).setdefault(burn.device, Load())
        total.samples += samples
        total.wrong += burn.wrong_results()
        total.bytes, total.swings = burn.bytes, burn.swings


def show(report: contract.Report, load: str, device: str, total: Load) -> None:
    report.add(f"tflops:{load}", device, total.samples)
    report.add(f"agreement:{load}", device, contract.agreement(total.wrong))
    facts = {"filled_bytes": total.bytes, "wrong_results": total.wrong}
    for name, fact in (facts | ({"swings": total.swings} if total.swings else {})).items():
        report.notes.setdefault(name, {}).setdefault(device, {})[load] = fact


class Burn:
    """One device's load in one format and shape, and its results."""

    def __init__(
        self, name: str, n: int, device: torch.device, memory_share: float = 0.0, turn: int = 0
    ) -> None:
        import torch

        shape = list(SHAPES)[turn % len(SHAPES)]
        self.name, self.device = f"{name}/{shape}" if shape else name, device
        rows, columns, terms = shape_of(turn, n)
        self.flop = flop(rows, columns, terms)
        first = Product(name, rows, columns, terms, device, seed=turn)
        first.multiply()
        self.first_is_wrong = first.wrong_elements() > 0
        self.first = bits(first.out).clone()
        self.differs = torch.empty(rows, columns, dtype=torch.bool, device=device)
        self.different = torch.zeros((), dtype=torch.int64, device=device)
        places = [first.out, *more_places(first.out, memory_share)]
        self.bytes = len(places) * first.out.nbytes
        self.products = [(first.kernel(place), bits(place)) for place in places]
        self.at, self.now = 0, bits(first.out)
        self.swings: dict[str, float] = {}

    def multiply(self) -> None:
        self.at = (self.at + 1) % len(self.products)
        multiply, self.now = self.products[self.at]
        multiply()

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
