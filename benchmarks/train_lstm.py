"""Training of a stack of eight LSTM layers on random sequences.

Each of its 512 steps waits for the one before, so small products follow each other without a pause
and the latency of a GPU shows, not its width. How it is measured: `kit/training/course.py`.
"""

from __future__ import annotations

from functools import partial

import contract
from kit.training import course
from kit.training.models import LSTMS

BENCHMARK = contract.Benchmark(
    name="train_lstm",
    version="1",
    summary="Trains an LSTM on all devices of a node.",
    stresses="chains of small products, caches, kernel launches and the links between GPUs",
    reveals="latency, clocks that do not rise, a slow GPU among good ones, wrong arithmetic",
    level="end-to-end",
    duration_s=20.0,
    packages=("torch",),
    launcher="torchrun",
    metrics=course.METRICS,
    parameters=course.parameters("lstm", LSTMS, smoke="lstm"),
)


measure = partial(course.measure, catalog=LSTMS)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, course.processes)
