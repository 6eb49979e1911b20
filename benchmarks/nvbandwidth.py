"""NVIDIA's nvbandwidth, if it is installed: copies between host and GPUs and among GPUs.

Every test and pair of devices is a metric and a device of its own. What the tool waives on this
machine (peer tests on one GPU) is noted and has no samples.
"""

from __future__ import annotations

import contract
from kit.parsers import Nvbandwidth
from kit.parsers import nvbandwidth as parse
from kit.tools import Output, find, run

TOOL = "nvbandwidth"
LIMIT_S = 600.0  # a run that takes longer hangs

BENCHMARK = contract.Benchmark(
    name="nvbandwidth",
    version="2",
    summary="NVIDIA's nvbandwidth: copies between host and GPUs and among GPUs.",
    stresses="PCIe or C2C and NVLink, copy engines and SMs",
    reveals="a link trained low, a slow pair of GPUs, by NVIDIA's own measure",
    duration_s=120.0,
    gpu=True,
    tools=(TOOL,),
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "per test of the tool and pair of devices",
            ceiling="the link's: PCIe 5.0 x16 63 GB/s, NVLink 4 450 GB/s, one way",
        ),
        contract.lower("latency_us", "us", "of a load, in its latency tests"),
    ),
    parameters=(
        contract.Parameter(
            "tests",
            "host_to_device_memcpy_ce,device_to_host_memcpy_ce,device_to_device_memcpy_read_ce,"
            "device_to_device_memcpy_write_ce",
            'tests to run, separated by commas; "": all',
            smoke="host_to_device_memcpy_ce",
        ),
        contract.Parameter(
            "samples",
            3,
            "runs of the tool",
            smoke=1,
            at_least=1,
            counts=("bandwidth_gbps", "latency_us"),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, tests: str, samples: int) -> None:
    tool = find(TOOL)
    names = contract.split(tests)
    chosen = ["-t", *names] if names else []
    results = [result_of(run([tool, "-j", *chosen], LIMIT_S)) for _ in range(samples)]
    if waived := sorted({name for result in results for name in result.waived}):
        report.note(waived=",".join(waived))
    for (metric, device), numbers in series(results).items():
        report.add(metric, device, numbers)


def result_of(output: Output) -> Nvbandwidth:
    """Parse the output. The tool may exit with 1 for one test and still have measured the others,
    but says so."""
    result = parse(output.stdout)
    if result.errors:
        raise contract.Unmeasured(f'nvbandwidth said "{"; ".join(result.errors)[:300]}"')
    if not result.cells and not result.waived:
        raise contract.Unmeasured(
            f'nvbandwidth ended with {output.exit_code}: "{output.last_words()}"'
        )
    return result


def series(results: list[Nvbandwidth]) -> dict[tuple[str, str], list[float]]:
    numbers: dict[tuple[str, str], list[float]] = {}
    for cell in (cell for result in results for cell in result.cells):
        name, factor = ("latency_us", 1e-3) if cell.unit == "ns" else ("bandwidth_gbps", 1.0)
        numbers.setdefault((f"{name}:{cell.test}", cell.device), []).append(cell.value * factor)
    return numbers


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
