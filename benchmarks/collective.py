"""Bandwidth and latency of a group's collectives over a range of message sizes.

All-reduce, all-gather, reduce-scatter and all-to-all unless others are asked for; every operation
is checked once, element by element, after it was timed. What the numbers mean:
`kit/collectives.py`.
"""

from __future__ import annotations

import contract
from kit.collectives import METRICS, PARAMETERS, busbw_gbps
from kit.collectives import measure as measure_group
from kit.group import alone, processes

__all__ = ["BENCHMARK", "busbw_gbps", "measure", "processes"]

BENCHMARK = contract.Benchmark(
    name="collective",
    version="2",
    summary="Collective operations of a group: NCCL on GPUs, gloo on CPUs.",
    stresses="NVLink, PCIe, NICs, switches and the software that drives them",
    reveals="a slow or lossy link, a NIC on the wrong rail, a straggling node, wrong sums",
    scope="group",
    duration_s=20.0,
    packages=("torch",),
    min_devices=2,
    launcher="torchrun",
    metrics=METRICS,
    parameters=PARAMETERS,
)


def measure(report: contract.Report, operations: str, bytes: str, samples: int) -> None:
    if alone():
        raise contract.NotApplicable("a group of one rank has no other rank to talk to")
    measure_group(report, operations, bytes, samples)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
