"""The product of factors with scales in blocks, on a CPU, which has no kernel for it.

Reads codes and scales one place at a time, by the offsets that cuBLAS documents: it shares nothing
with benchmarks/kit/block_scaled.py.
"""

from __future__ import annotations

import torch

FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def multiply(
    left: torch.Tensor,
    right: torch.Tensor,
    of_left: torch.Tensor,
    of_right: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    return out.copy_(decode(left, of_left) @ decode(right.t(), of_right).t())


def decode(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    if numbers.dtype == torch.float4_e2m1fn_x2:
        block, packed = 16, numbers.view(torch.uint8)
        values = torch.zeros(len(packed), 2 * packed.shape[1], dtype=torch.float64)
        for code, value in enumerate(FP4):
            values[:, 0::2][packed % 16 == code] = value
            values[:, 1::2][packed // 16 == code] = value
    else:
        block, values = 32, numbers.double()
    wide = scales.double()
    blocks = values.shape[1] // block
    for row in range(len(values)):
        for column in range(blocks):
            tile = (row // 128) * (blocks // 4) + column // 4
            place = 512 * tile + 16 * (row % 32) + 4 * (row % 128 // 32) + column % 4
            values[row, column * block : (column + 1) * block] *= wide[place]
    return values
