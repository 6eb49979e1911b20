"""Number formats, and the matrix product in each: what to time, and whether its answer is right.

Random numbers, because easy numbers draw less power and clock higher. Every 61st row of the latest
product is computed again in fp64 and compared; integers must agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import contract

from kit.gpus import ceilings

if TYPE_CHECKING:
    import torch

# per number format: torch's types of the factors and of the product, and how far a right answer
# may be off, in units of the square root of the number of terms in a sum
FORMATS = {
    "fp64": ("float64", "float64", 1e-10),
    "fp32": ("float32", "float32", 1e-4),
    "tf32": ("float32", "float32", 1e-2),
    "fp16": ("float16", "float16", 1e-2),
    "bf16": ("bfloat16", "bfloat16", 8e-2),
    "fp8": ("float8_e4m3fn", "bfloat16", 0.25),  # matrix units may sum it with 13 bits
    "int8": ("int8", "int32", 0.0),
}

# the first compute capability with matrix units for a format, where torch needs them
SINCE = {"tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5)}
# of AMD's GPUs: what each family has no matrix units for; of one that is unknown, what not all have
AMD_LACKS = {
    "gfx942": (),  # MI300
    "gfx950": ("tf32",),  # MI350
    "gfx90a": ("tf32", "fp8"),  # MI200
    "": ("tf32", "fp8", "int8"),
}
MI300 = "gfx94"  # its fp8 has no infinity and no negative zero, and another bias
IN_BLOCKS = {"fp8", "int8"}  # cuBLAS takes these only in multiples of 16


def flop(m: int, n: int, k: int) -> int:
    """Count one multiplication and one addition for each of k terms of each of m x n elements."""
    return 2 * m * n * k


def dtypes_parameter(formats: Collection[str], on_a_cpu: str) -> contract.Parameter:
    summary = f'any of {", ".join(formats)}; "auto": all on a GPU, {on_a_cpu} on a CPU'
    return contract.Parameter("dtypes", "auto", summary, more_is_stronger=True)


def choose(
    report: contract.Report, dtypes: str, auto: str, formats: Collection[str], device: torch.device
) -> list[str]:
    """Return the formats to measure: those asked for that this device has. Those that it lacks are
    noted."""
    names = contract.choose("dtypes", auto if dtypes == "auto" else dtypes, formats)
    lacking = {name: why for name in names if (why := lacks(name, device))}
    if len(lacking) == len(names):
        raise contract.NotApplicable("; ".join(lacking.values()))
    if lacking:
        report.note(left_out="; ".join(lacking.values()))
    return [name for name in names if name not in lacking]


def lacks(name: str, device: torch.device) -> str:
    """Return the reason why the device cannot be measured in a format, or nothing."""
    import torch

    if device.type != "cuda":
        return "tf32 is a format of GPUs, and there is none here" if name == "tf32" else ""
    if torch.version.hip:
        name_of_chip = chip(device)
        family = next((f for f in AMD_LACKS if name_of_chip.startswith(f)), "")
        return f"{name} is no format of {name_of_chip}" if name in AMD_LACKS[family] else ""
    capability = torch.cuda.get_device_capability(device)
    if capability < (since := SINCE.get(name, (0, 0))):
        card = torch.cuda.get_device_name(device)
        return "{} needs compute capability {}.{}, {} has {}.{}".format(
            name, *since, card, *capability
        )
    return ""


def chip(device: torch.device) -> str:
    """Return AMD's name of a GPU's processor: gfx942, without its features."""
    import torch

    name: str = torch.cuda.get_device_properties(device).gcnArchName
    return name.partition(":")[0]


def kind_of(name: str, device: torch.device) -> str:
    """Return torch's type of the factors: of fp8 there are two, and a GPU has units for one of
    them."""
    import torch

    kind, *_ = FORMATS[name]
    on_mi300 = device.type == "cuda" and torch.version.hip and chip(device).startswith(MI300)
    return "float8_e4m3fnuz" if name == "fp8" and on_mi300 else kind


def state_ceiling(
    report: contract.Report, metric: str, format_name: str, device: torch.device
) -> None:
    """State the vendor's dense rate of this GPU beside the metric, if it is known."""
    import torch

    if device.type != "cuda":
        return
    card = ceilings.gpu_of(torch.cuda.get_device_properties(device))
    if card and format_name in card.tflops:
        report.ceiling(metric, card.tflops[format_name], card.source)


class Product:
    """A product of random factors, or a batch of them: `multiply` is what to time, `out` its latest
    answer."""

    def __init__(
        self, name: str, m: int, n: int, k: int, device: torch.device, batch: int | None = None
    ) -> None:
        import torch

        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        _, kind_out, tolerance = FORMATS[name]
        kind = kind_of(name, device)
        generator = torch.Generator(device).manual_seed(k)
        first = () if batch is None else (batch,)
        self.left = random(kind, (*first, m, k), generator)
        if name in IN_BLOCKS:  # 8-bit units read both factors along the sum
            self.right = random(kind, (n, k), generator).t()
        else:
            self.right = random(kind, (*first, k, n), generator)
        self.out = torch.empty(*first, m, n, dtype=getattr(torch, kind_out), device=device)
        self.tolerance = tolerance * k**0.5
        self.multiply = kernel(name, self.left, self.right, self.out)

    def wrong_elements(self) -> int:
        return wrong_elements(self.left, self.right, self.out, self.tolerance)


def random(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    dtype, device = getattr(torch, kind), generator.device
    if kind == "int8":
        return torch.randint(-128, 128, shape, dtype=dtype, generator=generator, device=device)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def kernel(
    name: str, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
) -> Callable[[], object]:
    """Return a call that puts one product into memory that is already there."""
    import torch

    if name == "int8":
        return lambda: torch._int_mm(left, right, out=out)
    if name != "fp8":
        multiply = torch.bmm if out.dim() == 3 else torch.mm
        return lambda: multiply(left, right, out=out)
    scale = torch.ones((), device=out.device)
    return lambda: torch._scaled_mm(
        left, right, scale, scale, out_dtype=out.dtype, use_fast_accum=True, out=out
    )


def wrong_elements(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, tolerance: float
) -> int:
    # every 61st row: a prime, so that all places in a tile get their turn
    truth = left[..., ::61, :].double() @ right.double()  # whole numbers below 2^53 are exact
    close = (out[..., ::61, :].double() - truth).abs() <= tolerance  # False for NaN
    return int((~close).sum())


# --- one format for all ranks: bf16 on a GPU, fp32 on a CPU --------------------------------


def normal(n: int, seed: int, device: torch.device) -> torch.Tensor:
    """Return a square matrix, the same on every rank."""
    import torch

    kind = "bfloat16" if device.type == "cuda" else "float32"
    return random(kind, (n, n), torch.Generator(device).manual_seed(seed))


def wrong_in_product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> int:
    *_, tolerance = FORMATS["bf16" if out.itemsize == 2 else "fp32"]
    return wrong_elements(left, right, out, tolerance * left.shape[1] ** 0.5)
