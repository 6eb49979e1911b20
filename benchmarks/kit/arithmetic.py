"""Number formats, and the matrix product in each: what to time, and whether its answer is right.

Random numbers, because easy numbers draw less power and clock higher. Every 61st row of the latest
product is computed again in fp64 and compared; integers must agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

import contract

from kit.block_scaled import BLOCKS, MULTIPLE, Factor
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
    "mxfp8": ("float8_e4m3fn", "bfloat16", 0.25),
    "nvfp4": ("float4_e2m1fn_x2", "bfloat16", 0.25),
}

# the first compute capability with matrix units for a format, where torch needs them
SINCE = {"tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5), **dict.fromkeys(BLOCKS, (10, 0))}
# of AMD's GPUs: what each family has no matrix units for; of one that is unknown, what not all have
AMD_LACKS = {
    "gfx942": (),  # MI300
    "gfx950": ("tf32",),  # MI350
    "gfx90a": ("tf32", "fp8"),  # MI200
    "": ("tf32", "fp8", "int8"),
}
MI300 = "gfx94"  # its fp8 has no infinity and no negative zero, and another bias
# cuBLAS takes these only in multiples of so many rows, columns and terms
IN_BLOCKS = {"fp8": 16, "int8": 16, **dict.fromkeys(BLOCKS, MULTIPLE)}


CHECKED_EVERY = 61  # rows: a prime, so that all places in a tile get their turn


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
    lacking = {
        name: why for name in names if (why := lacks(name, device) or try_product(name, device))
    }
    if len(lacking) == len(names):
        raise contract.NotApplicable("; ".join(lacking.values()))
    if lacking:
        report.note(left_out="; ".join(lacking.values()))
    return [name for name in names if name not in lacking]


def lacks(name: str, device: torch.device) -> str:
    """Return the reason why the device cannot be measured in a format, or nothing."""
    import torch

    if device.type != "cuda":
        is_of_gpus = name == "tf32" or name in BLOCKS
        return f"{name} is a format of GPUs, and there is none here" if is_of_gpus else ""
    kinds = FORMATS[name][0], *BLOCKS.get(name, ())[1:]
    if not all(hasattr(torch, kind) for kind in kinds):
        return f"torch {torch.__version__} has no {name}"
    if torch.version.hip and name in BLOCKS:
        return f"{name} is measured on NVIDIA's GPUs only"
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


TRIED = 256  # rows, columns and terms
REFUSALS = ("not_supported", "not supported", "unsupported", "not implemented")


@cache
def try_product(name: str, device: torch.device) -> str:
    """Return why the libraries refuse a product in a format, or nothing: they may lack a kernel for
    a GPU that has the units."""
    if device.type != "cuda":
        return ""
    try:
        Product(name, TRIED, TRIED, TRIED, device).multiply()
    except RuntimeError as error:
        if reason := refusal(error):
            return f"{name} is refused: {reason}"
        raise
    return ""


def refusal(error: RuntimeError) -> str:
    """Return the first line of an error by which a library refuses what it has no kernel for; of
    any other error, such as a failing GPU's, nothing."""
    is_refusal = any(words in str(error).lower() for words in REFUSALS)
    return str(error).partition("\n")[0] if is_refusal else ""


def chip(device: torch.device) -> str:
    """Return AMD's name of a GPU's processor: gfx942, without its features."""
    import torch

    name: str = torch.cuda.get_device_properties(device).gcnArchName
    return name.partition(":")[0]


def lacks_product(name: str, lengths: Sequence[int]) -> str:
    """Return the reason why a format that is multiplied in blocks has no product of these sizes,
    or nothing."""
    multiple = IN_BLOCKS.get(name, 1)
    if multiple > 1 and len(lengths) == 4:
        return f"torch has no batch of {name} products"
    is_odd = any(length % multiple for length in lengths)
    return f"{name} needs multiples of {multiple}" if is_odd else ""


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
        self,
        name: str,
        m: int,
        n: int,
        k: int,
        device: torch.device,
        batch: int | None = None,
        seed: int = 0,
    ) -> None:
        import torch

        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        _, kind_out, tolerance = FORMATS[name]
        kind = kind_of(name, device)
        generator = torch.Generator(device).manual_seed(k + seed)
        first = () if batch is None else (batch,)
        self.name, self.tolerance = name, tolerance * k**0.5
        self.factors: tuple[Factor, ...] = ()
        if name in BLOCKS:
            self.factors = tuple(Factor.draw(name, rows, k, generator) for rows in (m, n))
            self.left, self.right = self.factors[0].numbers, self.factors[1].numbers.t()
        else:
            self.left = random(kind, (*first, m, k), generator)
            if name in IN_BLOCKS:  # 8-bit units read both factors along the sum
                self.right = random(kind, (n, k), generator).t()
            else:
                self.right = random(kind, (*first, k, n), generator)
        self.out = torch.empty(*first, m, n, dtype=getattr(torch, kind_out), device=device)
        self.multiply = self.kernel(self.out)

    def kernel(self, out: torch.Tensor) -> Callable[[], object]:
        """Return a call that puts the product into memory that is already there."""
        scales = [factor.tiled_scales() for factor in self.factors]
        return kernel(self.name, self.left, self.right, out, scales)

    def wrong_elements(self) -> int:
        if not self.factors:
            return wrong_elements(self.left, self.right, self.out, self.tolerance)
        left, right = self.factors
        truth = left.values(CHECKED_EVERY) @ right.values().t()
        return count_far(self.out, truth, self.tolerance)


def random(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    dtype, device = getattr(torch, kind), generator.device
    if kind == "int8":
        return torch.randint(-128, 128, shape, dtype=dtype, generator=generator, device=device)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def kernel(
    name: str,
    left: torch.Tensor,
    right: torch.Tensor,
    out: torch.Tensor,
    scales: Sequence[torch.Tensor],
) -> Callable[[], object]:
    import torch

    if name == "int8":
        return lambda: torch._int_mm(left, right, out=out)
    if not name.startswith(("fp8", *BLOCKS)):
        multiply = torch.bmm if out.dim() == 3 else torch.mm
        return lambda: multiply(left, right, out=out)
    of_left, of_right = scales or 2 * (torch.ones((), device=out.device),)
    is_fast = name == "fp8"  # or summed with more bits
    return lambda: torch._scaled_mm(
        left, right, of_left, of_right, out_dtype=out.dtype, use_fast_accum=is_fast, out=out
    )


def wrong_elements(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, tolerance: float
) -> int:
    truth = left[..., ::CHECKED_EVERY, :].double() @ right.double()  # exact for whole numbers
    return count_far(out, truth, tolerance)


def count_far(out: torch.Tensor, truth: torch.Tensor, tolerance: float) -> int:
    close = (out[..., ::CHECKED_EVERY, :].double() - truth).abs() <= tolerance  # False for NaN
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
