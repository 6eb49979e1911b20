"""Training of BERT, GPT-2, a Llama-like decoder or a mixture of experts on random tokens.

The mixture's experts are spread over the devices of the node, so each of its layers waits for two
all-to-alls on the way forward and two on the way back. How they are measured:
`kit/training/course.py`.
"""

from __future__ import annotations

from functools import partial

import contract
from kit.training import course
from kit.training.models import TRANSFORMERS

BENCHMARK = contract.Benchmark(
    name="train_transformer",
    version="2",
    summary="Trains transformers on all devices of a node.",
    stresses="matrix units, memory, kernel launches, the host and the links between GPUs together",
    reveals="what micro-benchmarks miss: jitter, slow hosts, throttling under a mixed load, "
    "a slow GPU or link among good ones, wrong arithmetic",
    level="end-to-end",
    duration_s=20.0,
    packages=("torch",),
    launcher="torchrun",
    metrics=course.METRICS,
    parameters=course.parameters("gpt2_small", TRANSFORMERS, smoke="gpt2_small,moe"),
)


measure = partial(course.measure, catalog=TRANSFORMERS)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, course.processes)
