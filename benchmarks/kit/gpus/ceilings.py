"""The vendors' promises for each GPU: dense arithmetic rates per format, and memory bandwidth.

Rates are without sparsity; if a data sheet prints only the sparse rate, half of it. A format that a
data sheet does not list is left out, and so is every GPU that is not in the table: nothing here is
guessed. A test holds the rates against cores times clock. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")

# Sources: images.nvidia.com/content/technologies/volta/pdf (V100, V100S),
# www.nvidia.com/content/dam/en-zz/Solutions/Data-Center (T4, A100, A10),
# resources.nvidia.com/en-us-tensor-core (H100, its white paper, H200) and
# resources.nvidia.com/en-us-blackwell-architecture (the final sheet: HGX B200 with 180 GB and
# GB200 NVL72 with 186 GB; the brief before it promised a little more).
# Not their makers' sheets but copies of them were at hand for H20 and B300, GB300: what the copies
# state differently, or what the cores cannot do at their clocks, is blank. A800 is A100 with fewer
# NVLinks. Of H800, H100 with 64 or 94 GB as SXM, MI308X and the matrix units of L20 no sheet was
# found: they are left out.
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
A800-SXM4-80GB  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 2039 | A100 data sheet
A800 80GB PCIe  | 19.5 | 19.5 |   156 |    312 |    312 |      - |    624 | 1935 | A100 data sheet
A30             | 10.3 | 10.3 |    82 |    165 |    165 |      - |    330 |  933 | A30 data sheet
A40             |    - | 37.4 |  74.8 |  149.7 |  149.7 |      - |  299.3 |  696 | A40 data sheet
A10             |    - | 31.2 |  62.5 |    125 |    125 |      - |    250 |  600 | A10 data sheet
L4              |    - | 30.3 |    60 |    121 |    121 |  242.5 |  242.5 |  300 | L4 data sheet
L20             |    - | 59.4 |     - |      - |      - |      - |      - |  864 | cores times clock
L40             |    - | 90.5 |  90.5 | 181.05 | 181.05 |    362 |    362 |  864 | L40 data sheet
L40S            |    - | 91.6 |   183 | 362.05 | 362.05 |    733 |    733 |  864 | L40S data sheet
H100 80GB HBM3  | 66.9 | 66.9 | 494.7 |  989.4 |  989.4 | 1978.9 | 1978.9 | 3352 | H100 white paper
H100 PCIe       | 51.2 | 51.2 |   378 |    756 |    756 |   1513 |   1513 | 2039 | H100 white paper
H100 NVL        |   60 |   60 | 417.5 |  835.5 |  835.5 | 1670.5 | 1670.5 | 3900 | H100 data sheet
H20             |    - |    - |    74 |    148 |    148 |      - |    296 | 4000 | H20 sheet, a copy
GH200 480GB     |   67 |   67 | 494.5 |  989.5 |  989.5 |   1979 |   1979 | 4000 | GH200 data sheet
GH200 144G HBM3e |  67 |   67 | 494.5 |  989.5 |  989.5 |   1979 |   1979 | 4900 | GH200 data sheet
H200            | 66.9 | 66.9 | 494.7 |  989.4 |  989.4 | 1978.9 | 1978.9 | 4800 | H200 data sheet
H200 NVL        |   60 |   60 | 417.5 |  835.5 |  835.5 | 1670.5 | 1670.5 | 4800 | H200 data sheet
B200            |   37 |   75 |  1100 |   2250 |   2250 |   4500 |   4500 | 7700 | Blackwell sheet
GB200           |   40 |   80 |  1250 |   2500 |   2500 |   5000 |   5000 | 8000 | Blackwell sheet
B300 SXM6 AC    |    - |   75 |  1100 |   2250 |   2250 |   4500 |      - | 7700 | B300 sheet, copy
GB300           |    - |   80 |  1250 |   2500 |   2500 |   5000 |      - | 8000 | GB300 sheet, copy
"""

# Of the Blackwell sheet too. No sheet lists mxfp8, and the copies for B300 and GB300 state several
# rates of 4 bits: these are left out.
_NVFP4 = {"B200": 9000.0, "GB200": 10000.0}

# Of AMD's, one device as torch sees it: of MI250 and MI250X half a card. Rates of the matrix units,
# from the data sheets (www.amd.com/content/dam/amd/en/documents/instinct-tech-docs). The number of
# compute units tells a part of a GPU (CPX, DPX), and MI250 from MI250X, which share a name.
_AMD_TABLE = """
       | CUs |  fp64 |  fp32 |  tf32 |   fp16 |   bf16 |    fp8 |   int8 |    HBM
MI100  | 120 |  11.5 |  46.1 |     - |  184.6 |   92.3 |      - |  184.6 | 1228.8
MI210  | 104 |  45.3 |  45.3 |     - |  181.0 |  181.0 |      - |  181.0 | 1638.4
MI250  | 104 | 45.25 | 45.25 |     - | 181.05 | 181.05 |      - | 181.05 | 1638.4
MI250X | 110 | 47.85 | 47.85 |     - |  191.5 |  191.5 |      - |  191.5 | 1638.4
MI300A | 228 | 122.6 | 122.6 | 490.3 |  980.6 |  980.6 | 1961.2 | 1961.2 |   5325
MI300X | 304 | 163.4 | 163.4 | 653.7 | 1307.4 | 1307.4 | 2614.9 | 2614.9 |   5325
MI325X | 304 | 163.4 | 163.4 | 653.7 | 1307.4 | 1307.4 | 2614.9 | 2614.9 |   6000
MI350X | 256 |  72.1 | 144.2 |     - | 2306.9 | 2306.9 | 4613.7 | 4613.7 |   8000
MI355X | 256 |  78.6 | 157.3 |     - | 2516.6 | 2516.6 | 5033.2 | 5033.2 |   8000
"""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    tflops: dict[str, float]
    hbm_gbps: float
    source: str


def gpu(name: str, processors: int = 0) -> Gpu | None:
    """Return the GPU that torch and NVML call by this name; None for a part of one or an unknown
    one.

    `processors`: how many multiprocessors or compute units it has, without which none of AMD's is
    known.
    """
    models = re.findall(r"\bMI\d+[AX]?\b", name)
    amds = (_amds().get((model, processors)) for model in models)
    return next(filter(None, amds), None) or _gpus().get(
        re.sub(r"^(NVIDIA|Tesla) ", "", name.strip())
    )


def gpu_of(properties: Any) -> Gpu | None:
    """Return the GPU with torch's properties of a device."""
    return gpu(properties.name, properties.multi_processor_count)


@cache
def _gpus() -> dict[str, Gpu]:
    cards = {name: _gpu("NVIDIA", *row) for name, *row in _rows(_TABLE)}
    for name, rate in _NVFP4.items():
        cards[name].tflops["nvfp4"] = rate
    return cards


@cache
def _amds() -> dict[tuple[str, int], Gpu]:
    return {
        (name, int(units)): _gpu("AMD", *row, f"{name} data sheet")
        for name, units, *row in _rows(_AMD_TABLE)
    }


def _rows(table: str) -> list[list[str]]:
    _, *rows = ([cell.strip() for cell in row.split("|")] for row in table.strip().splitlines())
    return rows


def _gpu(maker: str, *row: str) -> Gpu:
    *rates, hbm, source = row
    return Gpu(
        tflops={kind: float(x) for kind, x in zip(FORMATS, rates, strict=True) if x != "-"},
        hbm_gbps=float(hbm),
        source=f"{maker} {source}, dense",
    )
