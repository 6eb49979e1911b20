"""The activity of a GPU's parts from one second to the next, by NVML's own counters (GPM).

Hopper and later GPUs have them, and no DCGM is needed; a GPU that is sliced (MIG) has not.
"""

from __future__ import annotations

import math

from kit.gpus.nvml import pynvml
from kit.gpus.readings import Handle, Unread

MIB = 1 << 20  # GPM counts the traffic of links in MiB
PARTS = {  # GPM's number, and its unit in ours
    "gpu_graphics": (1, 1),
    "gpu_sm": (2, 1),
    "gpu_tensor": (5, 1),
    "gpu_memory_bandwidth": (10, 1),
    "gpu_fp64": (11, 1),
    "gpu_fp32": (12, 1),
    "gpu_fp16": (13, 1),
    "pcie_tx": (20, MIB),
    "pcie_rx": (21, MIB),
    "nvlink_rx": (60, MIB),
    "nvlink_tx": (61, MIB),
}


class Profile:
    """The profile of one GPU, from each reading to the next."""

    def __init__(self, gpu: Handle) -> None:
        try:
            support = pynvml.nvmlGpmQueryDeviceSupport(gpu)
            if not support.isSupportedDevice:
                raise Unread("NVML has no such counters on this GPU: DCGM may")
            self._gpu = gpu
            self._before, self._now = (pynvml.nvmlGpmSampleAlloc() for _ in range(2))
            pynvml.nvmlGpmSampleGet(gpu, self._now)
        except AttributeError:
            raise Unread("this pynvml does not know of such counters") from None
        except pynvml.NVMLError as error:
            raise Unread(f"NVML has no such counters on this GPU: {error}") from error

    def read(self) -> dict[str, float]:
        """Return the activity since the last reading; parts that are not counted are left out."""
        self._before, self._now = self._now, self._before
        pynvml.nvmlGpmSampleGet(self._gpu, self._now)
        question = pynvml.c_nvmlGpmMetricsGet_t()
        question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        question.sample1, question.sample2 = self._before, self._now
        question.numMetrics = len(PARTS)
        for place, (number, _) in enumerate(PARTS.values()):
            question.metrics[place].metricId = number
        answers = pynvml.nvmlGpmMetricsGet(question).metrics
        return {
            part: unit * answers[place].value
            for place, (part, (_, unit)) in enumerate(PARTS.items())
            if answers[place].nvmlReturn == 0 and math.isfinite(answers[place].value)
        }
