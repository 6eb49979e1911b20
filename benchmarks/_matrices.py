"""Matrices whose product can be checked: the same on every rank, and rows of the truth in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import contract
    import torch

STRIDE = 61  # every 61st row is checked: a prime, so that all places in a tile get their turn


def normal(rows: int, columns: int, seed: int, device: torch.device) -> torch.Tensor:
    """Normally distributed: easy numbers would draw less power. bf16 on a GPU, fp32 on a CPU."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    numbers = torch.randn(rows, columns, generator=generator, device=device)
    return numbers.to(torch.bfloat16 if device.type == "cuda" else torch.float32)


def wrong_elements(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> int:
    """Elements of the checked rows that are further off than rounding explains, NaN included."""
    import torch

    tolerance = (8e-2 if out.dtype == torch.bfloat16 else 1e-4) * left.shape[1] ** 0.5
    truth = left[::STRIDE].double() @ right.double()
    close = (out[::STRIDE].double() - truth).abs() <= tolerance  # False for NaN
    return int((~close).sum())


def state_ceiling(report: contract.Report, metric: str, device: torch.device) -> None:
    """The vendor's rate of the format that `normal` draws, where the table knows the GPU."""
    import torch

    if device.type == "cuda":
        from _ceilings import gpu

        found = gpu(torch.cuda.get_device_name(device))
        if found and "bf16" in found.tflops:
            report.ceiling(metric, found.tflops["bf16"], source=found.source)
