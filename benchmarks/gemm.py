"""Dense matrix products per number format: does each GPU (or the CPU) reach its arithmetic rate?

Square matrices of normally distributed numbers, because easy numbers draw less power and clock
higher. Every 61st row of the last timed product is computed again in fp64 and compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

# per number format: torch's type, and how far a right answer may be off, in units of sqrt(size)
FORMATS = {
    "fp64": ("float64", 1e-10),
    "fp32": ("float32", 1e-4),
    "tf32": ("float32", 1e-2),
    "fp16": ("float16", 1e-2),
    "bf16": ("bfloat16", 8e-2),
}

BENCHMARK = contract.Benchmark(
    name="gemm",
    version="1",
    summary="Dense matrix products in several number formats.",
    stresses="matrix units, registers, caches, power delivery and cooling",
    reveals="throttled clocks, a power cap, broken or miscalculating cores",
    level="micro",
    scope="node",
    duration_s=5.0,
    metrics=(
        contract.Metric(
            "tflops",
            "TFLOP/s",
            "higher",
            summary="2 n^3 operations per product of n x n matrices, per number format",
            ceiling="the vendor's dense rate of the format at the sustained clock",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "dtypes", "auto", f'formats out of {", ".join(FORMATS)}; "auto": fp32,bf16 on a CPU'
        ),
        contract.Parameter("size", 0, "rows and columns; 0: by device", smoke=128, at_least=0),
        contract.Parameter("samples", 30, "timed batches per format", smoke=3, at_least=1),
    ),
)


def flop(size: int) -> int:
    """One multiplication and one addition for each of `size` terms of each element."""
    return 2 * size**3


def measure(report: contract.Report, dtypes: str, size: int, samples: int) -> None:
    from _timing import devices, seconds_per_call

    for device in devices():
        cuda = device.type == "cuda"
        n = size or (4096 if cuda else 1024)
        names = choose(dtypes, cuda)
        report.note(size=n, dtypes=",".join(names))
        for name in names:
            multiply, wrong = product(name, n, device)
            seconds = seconds_per_call(multiply, device, samples)
            report.add(f"tflops:{name}", str(device), [flop(n) / s / 1e12 for s in seconds])
            report.add(f"agreement:{name}", str(device), contract.agreement(wrong()))


def choose(dtypes: str, cuda: bool) -> list[str]:
    if dtypes == "auto":
        return list(FORMATS) if cuda else ["fp32", "bf16"]
    names = contract.split(dtypes)
    if not names or not set(names) <= set(FORMATS):
        raise contract.BadParameter(f'dtypes cannot be "{dtypes}": use {", ".join(FORMATS)}')
    if "tf32" in names and not cuda:
        raise contract.NotApplicable("tf32 is a format of GPUs, and there is none here")
    return names


def product(
    name: str, n: int, device: torch.device
) -> tuple[Callable[[], None], Callable[[], int]]:
    """The product to time, and a count of the wrong elements in its latest answer."""
    import torch

    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    type_name, tolerance = FORMATS[name]
    generator = torch.Generator(device).manual_seed(n)
    left, right = (
        torch.randn(n, n, generator=generator, device=device).to(getattr(torch, type_name))
        for _ in range(2)
    )
    out = torch.empty_like(left)

    def multiply() -> None:
        torch.mm(left, right, out=out)

    return multiply, lambda: wrong_elements(left, right, out, tolerance * n**0.5)


def wrong_elements(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, tolerance: float
) -> int:
    truth = left[::61].double() @ right.double()
    close = (out[::61].double() - truth).abs() <= tolerance  # False for NaN
    return int((~close).sum())


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
