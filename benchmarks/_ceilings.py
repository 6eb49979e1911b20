"""What the vendors promise of each GPU: dense arithmetic rates per format, and memory bandwidth.

Rates are without sparsity; where a data sheet prints only the sparse rate, half of it. A format
that a data sheet does not list is left out, and so is every GPU that is not in the table: nothing
here is guessed. A test holds the rates against cores times clock. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")

# Sources: images.nvidia.com/content/technologies/volta/pdf (V100, V100S),
# www.nvidia.com/content/dam/en-zz/Solutions/Data-Center (T4, A100, A10),
# resources.nvidia.com/en-us-tensor-core (H100, its white paper, H200) and
# resources.nvidia.com/en-us-blackwell-architecture (the final sheet: HGX B200 with 180 GB and
# GB200 NVL72 with 186 GB; the brief before it promised a little more).
# Names as torch and NVML give them, without the leading NVIDIA or Tesla. Rates in 1e12 operations
# per second, fp64 that of the matrix units where they have it; HBM (GDDR on some) in 1e9 bytes/s.
_TABLE = """
                | fp64 | fp32 |  tf32 |   fp16 |   bf16 |    fp8 |   int8 |  HBM | source
V100-SXM2-16GB  |  7.8 | 15.7 |     - |    125 |      - |      - |      - |  900 | V100 data sheet
V100-SXM2-32GB  |  7.8 | 15.7 |     - |    125 |      - |      - |      - |  900 | V100 data sheet
V100-PCIE-16GB  |    7 |   14 |     - |    112 |      - |      - |      - |  900 | V100 data sheet
V100-PCIE-32GB  |    7 |   14 |     - |    112 |      - |      - |      - |  900 | V100 data sheet
V100S-PCIE-32GB |  8.2 | 16.4 |     - |    130 |      - |      - |      - | 1134 | V100 data sheet
T4              |    - |  8.1 |     - |     65 |      - |      - |    130 |  320 | T4 product brief
A100-SXM4-40GB  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 1555 | A100 data sheet
A100-SXM4-80GB  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 2039 | A100 data sheet
A100-PCIE-40GB  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 1555 | A100 data sheet
A100 80GB PCIe  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 1935 | A100 data sheet
A30             | 10.3 | 10.3 |    82 |    165 |    165 |      - |    330 |  933 | A30 data sheet
A40             |    - | 37.4 |  74.8 |  149.7 |  149.7 |      - |  299.3 |  696 | A40 data sheet
A10             |    - | 31.2 |  62.5 |    125 |    125 |      - |    250 |  600 | A10 data sheet
L4              |    - | 30.3 |    60 |    121 |    121 |  242.5 |  242.5 |  300 | L4 data sheet
L40             |    - | 90.5 |  90.5 | 181.05 | 181.05 |    362 |    362 |  864 | L40 data sheet
L40S            |    - | 91.6 |   183 | 362.05 | 362.05 |    733 |    733 |  864 | L40S data sheet
H100 80GB HBM3  | 66.9 | 66.9 | 494.7 |  989.4 |  989.4 | 1978.9 | 1978.9 | 3352 | H100 white paper
H100 PCIe       | 51.2 | 51.2 |   378 |    756 |    756 |   1513 |   1513 | 2039 | H100 white paper
H100 NVL        |   60 |   60 | 417.5 |  835.5 |  835.5 | 1670.5 | 1670.5 | 3900 | H100 data sheet
GH200 480GB     |   67 |   67 | 494.5 |  989.5 |  989.5 |   1979 |   1979 | 4000 | GH200 data sheet
H200            | 66.9 | 66.9 | 494.7 |  989.4 |  989.4 | 1978.9 | 1978.9 | 4800 | H200 data sheet
H200 NVL        |   60 |   60 | 417.5 |  835.5 |  835.5 | 1670.5 | 1670.5 | 4800 | H200 data sheet
B200            |   37 |   75 |  1100 |   2250 |   2250 |   4500 |   4500 | 7700 | Blackwell sheet
GB200           |   40 |   80 |  1250 |   2500 |   2500 |   5000 |   5000 | 8000 | Blackwell sheet
"""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    tflops: dict[str, float]
    hbm_gbps: float
    source: str


def gpu(name: str) -> Gpu | None:
    """The GPU that torch and NVML call by this name; None for a MIG slice or an unknown one."""
    return _gpus().get(re.sub(r"^(NVIDIA|Tesla) ", "", name.strip()))


@cache
def _gpus() -> dict[str, Gpu]:
    _, *rows = ([cell.strip() for cell in row.split("|")] for row in _TABLE.strip().splitlines())
    return {
        name: Gpu(
            tflops={kind: float(x) for kind, x in zip(FORMATS, rates, strict=True) if x != "-"},
            hbm_gbps=float(hbm),
            source=f"NVIDIA {source}, dense",
        )
        for name, *rates, hbm, source in rows
    }
