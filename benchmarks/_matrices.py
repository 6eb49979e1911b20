"""Matrices whose product can be checked: the same on every rank, and rows of the truth in fp64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _arithmetic import wrong_elements

if TYPE_CHECKING:
    import torch


def normal(rows: int, columns: int, seed: int, device: torch.device) -> torch.Tensor:
    """Normally distributed: easy numbers would draw less power. bf16 on a GPU, fp32 on a CPU."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    numbers = torch.randn(rows, columns, generator=generator, device=device)
    return numbers.to(torch.bfloat16 if device.type == "cuda" else torch.float32)


def wrong_in_product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> int:
    """Elements of the checked rows that are further off than rounding explains, NaN included."""
    import torch

    tolerance = 8e-2 if out.dtype == torch.bfloat16 else 1e-4
    return wrong_elements(left, right, out, tolerance * left.shape[1] ** 0.5)
