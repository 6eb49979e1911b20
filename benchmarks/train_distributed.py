"""Training of the other programs' models over a group of nodes.

By default BERT, whose 335 million gradients are averaged by all-reduce, and the mixture of experts,
whose tokens cross the fabric by all-to-all in every layer. Rates are the group's, at the pace of
its slowest rank; `compute_s`, `loss` and `agreement` name host and device. How:
`kit/training/course.py`.
"""

from __future__ import annotations

from functools import partial

import contract
from kit.group import processes
from kit.training import course
from kit.training.models import EVERY

BENCHMARK = contract.Benchmark(
    name="train_distributed",
    version="1",
    summary="Trains a model on several nodes together.",
    stresses="GPUs, NICs and switches at once, as a training job does",
    reveals="a node, NIC or link that slows a job down although it looks fine alone",
    level="end-to-end",
    scope="group",
    duration_s=40.0,
    packages=("torch",),
    launcher="torchrun",
    min_nodes=2,
    metrics=course.METRICS,
    parameters=course.parameters("bert_large,moe", EVERY, smoke="gpt2_small"),
)


measure = partial(course.measure, catalog=EVERY, among_hosts=True)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
