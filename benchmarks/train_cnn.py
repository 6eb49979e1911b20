"""Training of convolutional networks on random pictures: ResNet, DenseNet and VGG.

ResNet needs a little of everything, DenseNet memory bandwidth and many small kernels, VGG
arithmetic and, for its 138 million weights, the links.
How they are measured: `kit/training/course.py`.
"""

from __future__ import annotations

from functools import partial

import contract
from kit.training import course
from kit.training.models import CNNS

BENCHMARK = contract.Benchmark(
    name="train_cnn",
    version="1",
    summary="Trains ResNet, DenseNet and VGG on all devices of a node.",
    stresses="convolutions, memory bandwidth, kernel launches and the links between GPUs together",
    reveals="slow convolution kernels, a slow GPU or link among good ones, wrong arithmetic",
    level="end-to-end",
    duration_s=20.0,
    packages=("torch",),
    launcher="torchrun",
    metrics=course.METRICS,
    parameters=course.parameters("resnet50", CNNS, smoke="resnet50"),
)


measure = partial(course.measure, catalog=CNNS)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, course.processes)
