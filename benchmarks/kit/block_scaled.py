"""Factors whose numbers share scales in blocks, as the matrix units of Blackwell take them.

nvfp4: 4-bit numbers, two in a byte, and a scale in fp8 for each 16 of them. mxfp8: 8-bit numbers
and a power of two for each 32 (Microscaling, Open Compute Project). Scales lie in memory in tiles
of 128 rows and 4 blocks; within a tile rows 32 apart are neighbours (cuBLAS, "1D block scaling").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BLOCKS = {"mxfp8": (32, "float8_e8m0fnu"), "nvfp4": (16, "float8_e4m3fn")}  # numbers, and the scale
MULTIPLE = 128  # of rows and terms, so that tiles of scales are full
OF_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # and the same below 0


class Factor:
    """A factor: `numbers` by rows of terms, and `scales` by rows of blocks. Of both the bytes are
    given."""

    def __init__(self, name: str, codes: torch.Tensor, scales: torch.Tensor) -> None:
        import torch

        self.block, kind = BLOCKS[name]
        of_numbers = "float4_e2m1fn_x2" if name == "nvfp4" else "float8_e4m3fn"
        self.numbers = codes.view(getattr(torch, of_numbers))
        self.scales = scales.view(getattr(torch, kind))

    @classmethod
    def draw(cls, name: str, rows: int, terms: int, generator: torch.Generator) -> Factor:
        """Return a random factor whose scales are a half or one."""
        import torch

        block, kind = BLOCKS[name]
        device = generator.device
        if name == "nvfp4":
            codes = torch.randint(
                0, 256, (rows, terms // 2), dtype=torch.uint8, generator=generator, device=device
            )
        else:
            drawn = torch.randn((rows, terms), generator=generator, device=device)
            codes = drawn.to(torch.float8_e4m3fn).view(torch.uint8)
        halves = torch.randint(1, 3, (rows, terms // block), generator=generator, device=device)
        return cls(name, codes, (halves / 2).to(getattr(torch, kind)))

    def tiled_scales(self) -> torch.Tensor:
        """Return the scales as the kernel reads them."""
        import torch

        rows, blocks = self.scales.shape
        tiles = self.scales.view(torch.uint8).view(rows // 128, 4, 32, blocks // 4, 4)
        return tiles.permute(0, 3, 2, 1, 4).contiguous().view(self.scales.dtype).flatten()

    def values(self, step: int = 1) -> torch.Tensor:
        """Return every so manieth row as fp64."""
        import torch

        numbers, scales = self.numbers[::step], self.scales[::step]
        if numbers.dtype == torch.float8_e4m3fn:
            wide = numbers.double()
        else:
            codes = numbers.view(torch.uint8)
            table = torch.tensor(OF_FOUR_BITS, dtype=torch.float64, device=codes.device)
            table = torch.cat((table, -table))
            both = torch.stack((codes & 15, codes >> 4), -1).flatten(1)
            wide = table[both.int()]
        return wide * scales.double().repeat_interleave(self.block, 1)
