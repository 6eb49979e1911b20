"""Recognises stacks of programs that wait for other ranks."""

from __future__ import annotations

from collections.abc import Sequence

COMMUNICATION = (  # parts of the files of calls in which ranks wait for each other
    "torch/distributed/",
    "torch/nn/parallel/distributed.py",
    "deepspeed/comm/",
    "megatron/core/pipeline_parallel/p2p_communication.py",
    "mpi4py/",
)
ALONE = (
    "torch/distributed/checkpoint/",
    "torch/distributed/elastic/",
)  # and do not, in spite of that
BACKWARD = "_engine_run_backward ("  # the hooks of gradients communicate in it


def is_waiting(frames: Sequence[str]) -> bool:
    """Return whether a stack ends in a call in which ranks wait for each other."""
    last = frames[-1] if frames else ""
    if any(part in last for part in ALONE):
        return False
    return last.startswith(BACKWARD) or any(part in last for part in COMMUNICATION)
