"""Healthy nodes of many kinds, as NVIDIA's driver shows them: the names are nvidia-smi's.

    healthy_kinds.py  prints for each kind what node_config, node_health and a watched load report

What is planted is listed in `fake_nvml.c`; 3 is NVML_ERROR_NOT_SUPPORTED, 13 that the driver's
library lacks the function. The process has its library already (`sitecustomize.py`). No asserts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

DATA_CENTRE, TESLA, RTX, GEFORCE, VCS = 14, 2, 13, 15, 9
NO_NVLINK = {"links": 0, "fabric": 0}
NO_ECC = {"refuse": "EccMode:3,TotalEccErrors:3,RemappedRows:3"}
# what a hypervisor, or a GPU that is a part of its processor, answers at all
NAMED = {"refuse": "*:3", "answer": "Name,Brand,MemoryInfo,VirtualizationMode,PersistenceMode"}
ASLEEP = {"persistence": 0}

KINDS: dict[str, dict[str, object]] = {
    "H200, 8 on a board": {},
    "H200, persistence off": ASLEEP,
    "H100, sliced": {"mig": 1, "refuse": "UtilizationRates:3"},
    "A100-SXM4-80GB, sliced: its NVLinks are off": {
        "mig": 1,
        "links": 12,
        "links_down": 12,
        "fabric": 0,
    },
    "A100 80GB PCIe, without a bridge": {
        "links": 12,
        "links_down": 12,
        "fabric": 0,
        "pcie_max_generation": 4,
    },
    "H200 of a driver of 2021": {
        "refuse": "FieldValues:13,GpuFabricInfoV:13,GpuFabricInfo:13,MarginTemperature:13,"
        "SramEccErrorStatus:13,CurrentClocksEventReasons:13"
    },
    "H200 of a driver that took away what was deprecated": {
        "refuse": "CurrentClocksThrottleReasons:26,Temperature:26,GpuFabricInfo:26"
    },
    "H100 PCIe, two by three bridges of four links": {
        "links": 18,
        "links_down": 6,
        "far_end": 0,
        "fabric": 0,
    },
    "V100-SXM2-32GB": {
        "brand": TESLA,
        "links": 6,
        "fabric": 0,
        "retires_pages": 1,
        "pcie_max_generation": 3,
        "refuse": "RemappedRows:3,MigMode:3",
    },
    "Tesla T4": NO_NVLINK
    | ASLEEP
    | {"brand": TESLA, "retires_pages": 1, "refuse": "RemappedRows:3"},
    "A10": NO_NVLINK | ASLEEP,
    "L4, at its power cap": NO_NVLINK
    | ASLEEP
    | {"power_cap": 72000, "throttle": 4, "pcie_max_generation": 4},
    "L40S": NO_NVLINK,
    "GH200 480GB": {"links_down": 18, "fabric": 3, "pcie_width": 1, "pcie_max_width": 1},
    "GB200": {
        "cluster": 7,
        "clique": 3,
        "fabric_mask": 0b10_10_10_10,
        "c2c": 1,
        "pcie_width": 1,
    },
    "RTX A6000, ECC off": NO_NVLINK | ASLEEP | {"brand": RTX, "ecc_mode": 0},
    "RTX A6000, two by a bridge": ASLEEP
    | {"brand": RTX, "links": 4, "far_end": 0, "fabric": 0, "ecc_mode": 0},
    "GeForce RTX 4090": NO_NVLINK | ASLEEP | {"brand": GEFORCE} | NO_ECC,
    "RTX 4090, no limit of temperature": NO_NVLINK
    | ASLEEP
    | {"brand": GEFORCE, "slows_down_at": 0}
    | NO_ECC,
    "GRID A100D-40C, a guest": ASLEEP | NAMED | {"brand": VCS, "virtualization": 2},
    "a guest of which the brand is the host's": ASLEEP
    | {"virtualization": 2, "ecc_mode": 0}
    | NO_NVLINK,
    "a GPU that is lent whole": ASLEEP | {"virtualization": 1} | NO_NVLINK,
    "Orin (nvgpu)": {"refuse": "*:3", "answer": "Name"},
    "NVIDIA GB10, memory of the processor": {
        "refuse": "*:3",
        "answer": "Name,Temperature,CurrentClocksEventReasons",
    },
    "answers nothing": {"refuse": "*:3"},
    "16 of a DGX-2": {"brand": TESLA, "count": 16, "links": 6, "fabric": 0},
}


def look() -> dict[str, object]:
    """Return what the programs report of GPUs as they are planted now."""
    import contract
    import gemm
    import node_config
    import node_health
    from kit.background import begin
    from kit.gpus.cards import machine_root
    from kit.gpus.gpu_watch import node_watched
    from kit.health.gpu_report import look, outcome
    from kit.settings.gpus import read_gpus, tell_gpus
    from kit.settings.texts import Settings

    over = threading.Event()
    over.set()
    idle = contract.Report.from_benchmark(node_health.BENCHMARK)
    node_health.hand_over(idle, outcome(begin(lambda: look(over))).findings)
    settings = Settings()
    tell_gpus(settings, machine_root(), begin(read_gpus), 20.0)
    told = contract.Report.from_benchmark(node_config.BENCHMARK)
    node_config.hand_over(told, settings)
    loaded = contract.Report.from_benchmark(gemm.BENCHMARK)
    with node_watched(loaded, period_s=0.005):
        loaded.add("agreement:bf16", "cuda:0", contract.agreement(0))
    return {
        name: {"series": report.series, "environment": report.notes}
        for name, report in (("node_health", idle), ("node_config", told), ("gemm", loaded))
    }


def main() -> None:
    answers = {}
    for kind, planted in KINDS.items():
        words = {f"NVML_{name}": str(value) for name, value in planted.items()}
        os.environ.update(words)
        answers[kind] = look()
        for word in words:
            del os.environ[word]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
