"""A node with GPUs that are not there: what a process must find so that programs run unchanged.

    node = GpuNode(folder, libraries, gpus=8)
    run(program, env=node.environment(FAKE_FAULTS="3:hang", NVML_lost_3=1))

torch has GPUs (`fake_cuda.py`), NVIDIA's driver library and `nvidia-smi` answer, and /dev has a
device for each. The words that plant trouble are listed where they are read: NVML_… in
`fake_nvml.c`, FAKE_… in `fake_cuda.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")


def build_libraries(folder: Path) -> bool:
    """The driver's, made by this machine's compiler; False where it has none."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    for name in LIBRARIES if compiler else ():
        named = f"-Wl,-soname,{name}"  # so that one that is loaded is found by its name
        source = HERE / "fake_nvml.c"
        subprocess.run(
            [compiler, "-shared", "-fPIC", named, "-o", folder / name, source], check=True
        )
    return compiler is not None


class GpuNode:
    def __init__(self, folder: Path, libraries: Path, gpus: int = 8) -> None:
        self.root, self.libraries, self.gpus = folder, libraries, gpus
        devices = folder / "dev"
        devices.mkdir()
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{gpu}" for gpu in range(gpus))):
            (devices / name).touch()

    def environment(self, **planted: object) -> dict[str, str]:
        """Of a process on this node, with what is planted there."""
        return {
            **os.environ,
            "ANUBIS_HOST_ROOT": str(self.root),
            "PATH": f"{HERE}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(HERE),
            "FAKE_GPUS": str(self.gpus),
            "FAKE_DRIVER": os.pathsep.join(str(self.libraries / name) for name in LIBRARIES),
            "NVML_count": str(self.gpus),
            **{name: str(value) for name, value in planted.items()},
        }

    def plant_numa(self, cpus: dict[int, str], near: dict[int, int]) -> None:
        """Memory nodes with these CPUs, and which of them each GPU hangs off."""
        for index, numbers in cpus.items():
            folder = self.root / f"sys/devices/system/node/node{index}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(numbers)
            (folder / "meminfo").write_text(f"Node {index} MemTotal: 1048576 kB\n")
            (folder / "distance").write_text(
                " ".join("10" if other == index else "21" for other in cpus)
            )
        for gpu, index in near.items():
            folder = self.root / f"sys/bus/pci/devices/0000:{0x1B + 0x20 * gpu:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "numa_node").write_text(str(index))
