"""A node with GPUs that are not there: what a process must find so that programs run unchanged.

    node = GpuNode(folder, library, gpus=8)
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


def build_library(folder: Path) -> Path | None:
    """The driver's library, made by this machine's compiler; None where it has none."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    named = f"-Wl,-soname,{library.name}"  # so that one that is loaded is found by its name
    source = HERE / "fake_nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", named, "-o", library, source], check=True)
    return library


class GpuNode:
    def __init__(self, folder: Path, library: Path, gpus: int = 8) -> None:
        self.root, self.library, self.gpus = folder, library, gpus
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
            "FAKE_NVML": str(self.library),
            "NVML_count": str(self.gpus),
            **{name: str(value) for name, value in planted.items()},
        }
