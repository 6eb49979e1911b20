"""Convolutions at the shapes of ResNet and VGG: forward, and the gradients of data and weights.

The three passes of a layer run different kernels, so each is a metric of its own. cuDNN may try its
algorithms before the timing; 16-bit images are channels last, as the matrix units like them. A part
of every answer is computed again in fp64, without cuDNN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import contract
from kit.arithmetic import choose, dtypes_parameter, random, state_ceiling
from kit.each_gpu import GPUS, each_gpu

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Layer:
    """Square images of `image` pixels, a square kernel; padded so that stride 1 keeps the size."""

    channels: int
    filters: int
    kernel: int
    image: int
    stride: int = 1

    @property
    def out(self) -> int:
        return (self.image + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def padding(self) -> int:
        return self.kernel // 2


# of 224 x 224 pixels; ResNet-101 and 152 repeat ResNet-50's layers, VGG-19 repeats VGG-16's
LAYERS = {
    "resnet50.conv1_7x7": Layer(3, 64, 7, 224, stride=2),
    "resnet50.conv2_3x3": Layer(64, 64, 3, 56),
    "resnet50.conv3_3x3": Layer(128, 128, 3, 28),
    "resnet50.conv3_shortcut": Layer(256, 512, 1, 56, stride=2),
    "resnet50.conv4_1x1": Layer(1024, 256, 1, 14),
    "resnet50.conv5_3x3": Layer(512, 512, 3, 7),
    "vgg16.conv1_2": Layer(64, 64, 3, 224),
    "vgg16.conv3_2": Layer(256, 256, 3, 56),
    "vgg16.conv5_1": Layer(512, 512, 3, 14),
}
FEW = "resnet50.conv1_7x7,resnet50.conv3_3x3,resnet50.conv4_1x1,vgg16.conv3_2"

# per number format: torch's type, and how far a right answer may be off, in units of the square
# root of the number of terms in a sum
FORMATS = {
    "fp32": ("float32", 1e-3),
    "tf32": ("float32", 1e-2),
    "fp16": ("float16", 8e-2),
    "bf16": ("bfloat16", 8e-2),
}
AUTO = {"cuda": ",".join(FORMATS), "cpu": "fp32,bf16"}
BATCH = {"cuda": 64, "cpu": 1}

BENCHMARK = contract.Benchmark(
    name="convolution",
    version="1",
    summary="Convolutions of ResNet and VGG, forward and backward.",
    stresses="matrix units through cuDNN, caches, memory",
    reveals="throttled clocks, slow memory under mixed load, a broken library, wrong results",
    duration_s=20.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "tflops",
            "TFLOP/s",
            "per number format, layer and pass; taps on the padding count too",
            ceiling="the vendor's dense rate of the format; fp32 may pass it, by Winograd kernels",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        dtypes_parameter(FORMATS, AUTO["cpu"]),
        contract.Parameter(
            "layers", FEW, f'"all", or any of {", ".join(LAYERS)}', smoke="resnet50.conv4_1x1"
        ),
        contract.Parameter(
            "batch", 0, "images per batch; 0: 64 on a GPU, 1 on a CPU", smoke=1, at_least=0
        ),
        contract.Parameter(
            "samples",
            15,
            "timed batches per pass",
            smoke=2,
            at_least=1,
            counts=("tflops",),
            more_is_stronger=True,
        ),
        contract.Parameter("sample_s", 0.01, "seconds per batch", at_least=0),
    ),
)


def flop(layer: Layer, batch: int) -> int:
    """Count one multiplication and one addition per tap, channel, filter, and pixel of the output.

    The gradient of the data and that of the weights each take as many.
    """
    taps = layer.kernel**2 * layer.channels
    return 2 * batch * layer.out**2 * layer.filters * taps


def measure(
    report: contract.Report, dtypes: str, layers: str, batch: int, samples: int, sample_s: float
) -> None:
    import torch
    from kit.gpus.gpu_watch import watch_gpu
    from kit.timing import devices, seconds_per_call

    names = contract.choose("layers", layers, ["all", *LAYERS])
    names = list(LAYERS) if "all" in names else names
    torch.backends.cudnn.benchmark = True
    for device in devices():
        images = batch or BATCH[device.type]
        report.note(batch=images)
        for name in choose(report, dtypes, AUTO[device.type], FORMATS, device):
            torch.backends.cudnn.allow_tf32 = name == "tf32"
            for layer in names:
                convolution = Convolution(LAYERS[layer], images, name, device)
                for kind, one_pass in convolution.passes().items():
                    metric = f"{name}/{layer}/{kind}"
                    with watch_gpu(report.notes, device, f"tflops:{metric}"):
                        seconds = seconds_per_call(one_pass.call, device, samples, sample_s)
                    rates = [flop(LAYERS[layer], images) / s / 1e12 for s in seconds]
                    report.add(f"tflops:{metric}", str(device), rates, seconds.taken)
                    agreement = contract.agreement(one_pass.wrong())
                    report.add(f"agreement:{metric}", str(device), agreement)
                    if name != "fp32":  # whose Winograd kernels do with fewer multiplications
                        state_ceiling(report, f"tflops:{metric}", name, device)


@dataclass
class Pass:
    """A pass over a layer, and the number of wrong elements in a part of its answer."""

    call: Callable[[], Tensor]
    part: Callable[[Tensor], Tensor]
    truth: Callable[[], Tensor]
    tolerance: float

    def wrong(self) -> int:
        close = (self.part(self.call()).double() - self.truth()).abs() <= self.tolerance
        return int((~close).sum())  # False for NaN


class Convolution:
    def __init__(self, layer: Layer, batch: int, name: str, device: device) -> None:
        import torch

        self.layer = layer
        kind, self.tolerance = FORMATS[name]
        generator = torch.Generator(device).manual_seed(layer.filters)
        places = torch.channels_last if kind != "float32" else torch.contiguous_format
        self.data, self.weights, self.gradient = (
            random(kind, shape, generator).contiguous(memory_format=places)
            for shape in (
                (batch, layer.channels, layer.image, layer.image),
                (layer.filters, layer.channels, layer.kernel, layer.kernel),
                (batch, layer.filters, layer.out, layer.out),
            )
        )

    def passes(self) -> dict[str, Pass]:
        layer, taps = self.layer, self.layer.kernel**2
        image, some = slice(-1, None), slice(None, None, 61)  # the last image, some of the filters
        data, weights, gradient = self.data, self.weights, self.gradient
        return {
            "forward": Pass(
                lambda: self.forward(data, weights),
                lambda out: out[image, some],
                lambda: compute_fp64(self.forward, data[image], weights[some]),
                self.tolerance * (taps * layer.channels) ** 0.5,
            ),
            "data_gradient": Pass(
                lambda: self.data_gradient(gradient, data, weights),
                lambda out: out[image],
                lambda: compute_fp64(self.data_gradient, gradient[image], data[image], weights),
                self.tolerance * (taps * layer.filters) ** 0.5,
            ),
            "weight_gradient": Pass(
                lambda: self.weight_gradient(gradient, data, weights),
                lambda out: out[some],
                lambda: compute_fp64(self.weight_gradient, gradient[:, some], data, weights[some]),
                self.tolerance * (len(data) * layer.out**2) ** 0.5,
            ),
        }

    def forward(self, data: Tensor, weights: Tensor) -> Tensor:
        import torch

        return torch.conv2d(data, weights, None, self.layer.stride, self.layer.padding)

    def data_gradient(self, gradient: Tensor, data: Tensor, weights: Tensor) -> Tensor:
        return self.backward(gradient, data, weights, [True, False, False])[0]

    def weight_gradient(self, gradient: Tensor, data: Tensor, weights: Tensor) -> Tensor:
        return self.backward(gradient, data, weights, [False, True, False])[1]

    def backward(
        self, gradient: Tensor, data: Tensor, weights: Tensor, outputs: list[bool]
    ) -> list[Tensor]:
        import torch

        stride, padding = [self.layer.stride] * 2, [self.layer.padding] * 2
        gradients: list[Tensor] = torch.ops.aten.convolution_backward(
            gradient, data, weights, None, stride, padding, [1, 1], False, [0, 0], 1, outputs
        )
        return gradients


def compute_fp64(one_pass: Callable[..., Tensor], *parts: Tensor) -> Tensor:
    """Compute the same pass without cuDNN, by torch's own kernels."""
    import torch

    with torch.backends.cudnn.flags(enabled=False):
        return one_pass(*(part.double().contiguous() for part in parts))


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
