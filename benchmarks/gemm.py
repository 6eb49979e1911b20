"""Dense matrix products per number format: does each GPU (or the CPU) reach its arithmetic rate?

Square products for the rate itself, and on request the products of well-known models, whose other
proportions choose other kernels, and batches of small ones, as attention multiplies its heads. How
answers are checked: kit/arithmetic.py.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import contract
from kit.arithmetic import (
    FORMATS,
    Product,
    choose,
    dtypes_parameter,
    flop,
    lacks_product,
    state_ceiling,
)
from kit.each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    import torch

# rows and terms of a model's weights, as (n, k): tokens x k times k x n
MODELS = {
    "bert_large": {"qkv": (3072, 1024), "up": (4096, 1024), "down": (1024, 4096)},
    "gpt2_large": {"qkv": (3840, 1280), "up": (5120, 1280), "down": (1280, 5120)},
    "llama_7b": {"qkv": (12288, 4096), "gate_up": (22016, 4096), "down": (4096, 11008)},
}
TOKENS = {"cuda": 4096, "cpu": 64}
# the heads of BERT-large over all sequences of 512 tokens: scores, and what they weigh
HEADS, HEAD_WIDTH, CONTEXT = 16, 64, 512
AUTO = {"cuda": ",".join(FORMATS), "cpu": "fp64,fp32,bf16"}

BENCHMARK = contract.Benchmark(
    name="gemm",
    version="2",
    summary="Dense matrix products in several number formats.",
    stresses="matrix units, registers, caches, power delivery and cooling",
    reveals="throttled clocks, a power cap, broken or miscalculating cores",
    duration_s=10.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "2 m n k operations per product, per number format, and shape unless square",
            ceiling="the vendor's dense rate of the format at the sustained clock",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        dtypes_parameter(FORMATS, AUTO["cpu"]),
        contract.Parameter(
            "shapes",
            "square",
            f'"square", MxNxK, BxMxNxK for B such products in one call, "attention", a model '
            f'({", ".join(MODELS)}), or one of its products ("llama_7b.down")',
            more_is_stronger=True,
        ),
        contract.Parameter(
            "size",
            0,
            "rows and columns of square; 0: 8192 on a GPU (fp64, fp32: 4096), 1024 on a CPU",
            smoke=128,
            at_least=0,
        ),
        contract.Parameter(
            "samples",
            30,
            "timed batches per product",
            smoke=3,
            at_least=1,
            counts=("tflops",),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, dtypes: str, shapes: str, size: int, samples: int) -> None:
    from kit.gpus.gpu_watch import watch_gpu
    from kit.timing import devices, seconds_per_call

    for device in devices():
        for name in choose(report, dtypes, AUTO[device.type], FORMATS, device):
            square = size or default_size(name, device)
            for shape, lengths in products(shapes, square, TOKENS[device.type]).items():
                metric = f"{name}/{shape}" if shape else name
                if reason := lacks_product(name, lengths):
                    report.note(**{f"product:{metric}": f"left out: {reason}"})
                    continue
                *batch, m, n, k = lengths
                product = Product(name, m, n, k, device, *batch)
                with watch_gpu(report.notes, device, f"tflops:{metric}"):
                    seconds = seconds_per_call(product.multiply, device, samples)
                rates = [prod(batch) * flop(m, n, k) / s / 1e12 for s in seconds]
                report.add(f"tflops:{metric}", str(device), rates, seconds.taken)
                wrong = product.wrong_elements()
                report.add(f"agreement:{metric}", str(device), contract.agreement(wrong))
                report.note(**{f"product:{metric}": "x".join(map(str, lengths))})
                state_ceiling(report, f"tflops:{metric}", name, device)
    if not report.series:
        raise contract.BadParameter(
            "fp8 and int8 need sizes that are multiples of 16, mxfp8 and nvfp4 of 128, and no "
            "batches of products"
        )


def default_size(name: str, device: torch.device) -> int:
    """Return a size that is large enough for the full rate, and a few milliseconds on a GPU."""
    if device.type == "cpu":
        return 1024
    return 4096 if name in ("fp64", "fp32") else 8192


def products(shapes: str, square: int, tokens: int) -> dict[str, tuple[int, ...]]:
    """Return the products asked for, as (m, n, k) or (batch, m, n, k) under the name of their
    metric."""
    by_name: dict[str, dict[str, tuple[int, ...]]] = {
        "square": {"": (square, square, square)},
        "attention": attention(tokens),
    }
    for model, layers in MODELS.items():
        by_name[model] = {f"{model}.{layer}": (tokens, n, k) for layer, (n, k) in layers.items()}
        by_name |= {shape: {shape: sizes} for shape, sizes in by_name[model].items()}
    chosen: dict[str, tuple[int, ...]] = {}
    for name in contract.split(shapes):
        sizes = [int(word) if word.isdecimal() else 0 for word in name.split("x")]
        if name in by_name:
            chosen |= by_name[name]
        elif len(sizes) in (3, 4) and all(sizes):
            chosen[name] = tuple(sizes)
        else:
            raise contract.BadParameter(
                f'shapes cannot have "{name}": use MxNxK, BxMxNxK, {", ".join(by_name)}'
            )
    if not chosen:
        raise contract.BadParameter(f'shapes cannot be "{shapes}": name at least one')
    return chosen


def attention(tokens: int) -> dict[str, tuple[int, ...]]:
    length = min(CONTEXT, tokens)
    batch = HEADS * (tokens // length)
    return {
        "attention.scores": (batch, length, length, HEAD_WIDTH),
        "attention.values": (batch, length, HEAD_WIDTH, length),
    }


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
