"""Processors (SMs) of GPUs that are not there, and faults in them.

Each tile of an answer's rows and columns belongs to an SM, as a GPU's scheduler would have it. A
fault changes bits of some answers in place, as the operation ends: always the same ones for the
same numbers (stuck), or by chance. `FAULTS` is empty unless this process plants some. It shows what
a screen finds by its logic; it says nothing of how silicon fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

TILE, SMS = 32, 16
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
PRODUCTS = frozenset({"mm", "_int_mm", "_scaled_mm", "matmul", "addmm", "linear"})


@dataclass
class Fault:
    """A fault of a GPU. Without `sms` all of its SMs have it; with `rows` it is memory's."""

    operations: frozenset[str] = PRODUCTS
    sms: frozenset[int] | None = None
    rows: tuple[int, int] | None = None  # a place in the answer's memory: a row, and a column
    flips: int = 1  # bits that change, from the lowest of the type
    keeps: int = 4096  # one answer in so many is hit, by the numbers themselves
    rate: float = 0.0  # or by chance: the share of answers
    is_warp: bool = False  # 32 in a row are hit with one
    value: float | None = None  # is put there instead, such as NaN
    only_fractions: bool = False  # integers come out right
    at_least: float = 0.0  # and so do smaller numbers
    dtype: torch.dtype | None = None  # of answers that it hits
    given: Callable[[torch.Tensor], bool] | None = None  # only if an argument is such
    blinds: bool = False  # the comparison of such a tile sees no difference
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))


FAULTS: dict[int, list[Fault]] = {}


def spoil(name: str, gpu: int, answer: Any, args: Sequence[Any] = ()) -> None:
    given = [part for part in args if isinstance(part, torch.Tensor)]
    for fault in FAULTS.get(gpu, ()):
        if fault.given is None or any(map(fault.given, given)):
            err(name, fault, answer)


def err(name: str, fault: Fault, answer: Any) -> None:
    answers = answer if isinstance(answer, tuple) else (answer,)
    part = next((part for part in answers if part is not None), None)  # of gradients some
    if isinstance(part, torch.Tensor) and part.dim() > 2 and part.is_contiguous():
        part = part.detach().flatten(0, -2)
    if isinstance(part, torch.Tensor) and part.dim() == 2 and part.numel() >= TILE * TILE:
        if fault.blinds and name in ("ne", "__ne__", "eq", "__eq__"):
            part[tiles(part, fault.sms)] = name in ("eq", "__eq__")
        elif not fault.blinds and name in fault.operations and fault.dtype in (None, part.dtype):
            change(part, fault)


def tiles(part: torch.Tensor, sms: frozenset[int] | None) -> torch.Tensor:
    """Elements that the SMs compute."""
    rows, columns = part.shape
    row, column = torch.arange(rows)[:, None] // TILE, torch.arange(columns)[None, :] // TILE
    sm = (row * (-(-columns // TILE)) + column) % SMS
    return torch.isin(sm, torch.tensor(sorted(range(SMS) if sms is None else sms)))


def change(part: torch.Tensor, fault: Fault) -> None:
    kind = INTEGERS[part.element_size()]
    numbers = part.detach()
    words = numbers.contiguous().view(kind)
    if fault.rows:
        hit = torch.zeros(part.shape, dtype=torch.bool)
        hit[fault.rows[0] % part.shape[0], fault.rows[1] % part.shape[1]] = True
    else:
        if fault.rate:
            chosen = torch.rand(part.shape, generator=fault.generator) < fault.rate
        else:
            wide = words.to(torch.int64)
            mixed = wide * 0x9E3779B1 ^ (wide >> 7)
            chosen = (mixed >> 3) % fault.keeps == 5 % fault.keeps
        hit = chosen & tiles(part, fault.sms)
    if fault.only_fractions:
        hit &= numbers != numbers.round() if numbers.is_floating_point() else False
    if fault.at_least:
        hit &= numbers.abs() >= fault.at_least
    if fault.is_warp:
        hit = hit.view(part.shape[0], -1, TILE).any(-1, keepdim=True).expand(-1, -1, TILE)
        hit = hit.reshape(part.shape)
    if fault.value is not None and numbers.is_floating_point():
        numbers[hit] = fault.value
    else:
        numbers.copy_(torch.where(hit, words ^ fault.flips, words).view(part.dtype))
