"""NAME: say in a line what is measured."""

import time

import contract

BENCHMARK = contract.Benchmark(
    name="NAME",
    version="1",
    summary="How many sums of a list a core does.",
    stresses="one core and its cache",
    reveals="a slow or throttled core",
    duration_s=2.0,
    metrics=(contract.higher("sums_per_s", "1/s"),),
    parameters=(
        contract.Parameter(
            "samples", 20, "timed rounds", smoke=3, at_least=1, counts=("sums_per_s",)
        ),
    ),
)


def measure(report: contract.Report, samples: int) -> None:
    numbers = list(range(100_000))
    for _ in range(3):  # warm-up
        sum(numbers)
    rates = []
    for _ in range(samples):
        began = time.perf_counter()
        sum(numbers)
        rates.append(1 / (time.perf_counter() - began))
    report.add("sums_per_s", "cpu", rates)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
