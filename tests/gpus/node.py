"""A node with GPUs that are not there: what a process must find so that programs run unchanged.

    node = GpuNode(folder, libraries, gpus=8)
    run(program, env=node.environment(FAKE_FAULTS="3:hang", NVML_lost_3=1))

torch has GPUs (`fake_cuda.py`), /dev or /sys has a device for each, NVIDIA's driver library and
`nvidia-smi` answer, or for `maker="amd"` AMD's compute driver and `amd-smi`. With `plant_hcas` an
adapter stands beside each. Tools that are no part of a driver are there if they are asked for:
`tools=True`. The words that plant trouble are listed where they are read: NVML_… in `fake_nvml.c`,
FAKE_… in `fake_cuda.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.gpus.amd_files import plant_gpu

HERE = Path(__file__).parent


PYTHON = "#!/usr/bin/env -S python3 -I"
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
DRIVERS = {"nvidia": {"nvidia-smi": "nvidia-smi"}, "amd": {"amd-smi": "amd-smi"}}
NCCL_TESTS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce")
NVIDIAS = {name: name for name in ("dcgmi", "nvbandwidth")}
TOOLS = {
    "nvidia": NVIDIAS | {f"{operation}_perf": "nccl_perf" for operation in NCCL_TESTS},
    "amd": {f"{operation}_perf": "nccl_perf" for operation in NCCL_TESTS},  # rccl-tests
}
PERFTEST = dict.fromkeys(("ib_write_bw", "ib_write_lat", "ib_send_lat"), "perftest")

# as /sys/class/kfd shows a processor, a GPU of a version, and memory that lies on it
KFD_CPU = "cpu_cores_count 48\nsimd_count 0\ngfx_target_version 0\nvendor_id 0\n"
KFD_GPU = (
    "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version {}\nvendor_id 4098\n"
    "location_id {}\ndomain 0\n"
)
KFD_BANK = "heap_type {}\nsize_in_bytes {}\nflags 0\nwidth 8192\n"
MI300X = 90402


def build_libraries(folder: Path) -> bool:
    """The driver's, made by this machine's compiler; False if it has none."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    for name in LIBRARIES if compiler else ():
        named = f"-Wl,-soname,{name}"  # so that one that is loaded is found by its name
        source = HERE / "fake_nvml.c"
        subprocess.run(
            [compiler, "-shared", "-fPIC", named, "-o", folder / name, source], check=True
        )
    return compiler is not None


class GpuNode:
    def __init__(
        self,
        folder: Path,
        libraries: Path,
        gpus: int = 8,
        *,
        maker: str = "nvidia",
        tools: bool = False,
    ) -> None:
        self.root, self.libraries, self.gpus, self.maker = folder, libraries, gpus, maker
        if maker == "amd":
            plant_kfd(folder, gpus)
        else:
            put_devices(folder, gpus)
        put_tools(folder / "bin", DRIVERS[maker] | (TOOLS[maker] | PERFTEST if tools else {}))

    def environment(self, **planted: object) -> dict[str, str]:
        """Environment of a process on this node, with what is planted there."""
        libraries = [str(self.libraries / name) for name in LIBRARIES]
        return {
            **os.environ,
            "ANUBIS_HOST_ROOT": str(self.root),
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(HERE),
            "FAKE_GPUS": str(self.gpus),
            "FAKE_MAKER": self.maker,
            "FAKE_DRIVER": os.pathsep.join(libraries if self.maker == "nvidia" else []),
            "NVML_count": str(self.gpus),
            **{name: str(value) for name, value in planted.items()},
        }

    def plant_numa(self, cpus: dict[int, str], near: dict[int, int]) -> None:
        """Memory nodes with these CPUs, and which of them each GPU hangs off."""
        for index, numbers in cpus.items():
            folder = self.root / f"sys/devices/system/node/node{index}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpulist").write_text(numbers)
            (folder / "meminfo").write_text(f"Node {index} MemTotal: 1048576 kB\n")
            (folder / "distance").write_text(
                " ".join("10" if other == index else "21" for other in cpus)
            )
        for gpu, index in near.items():
            folder = self.root / "sys/bus/pci/devices" / address(gpu)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "numa_node").write_text(str(index))

    def plant_hcas(self) -> None:
        """An adapter beside each GPU, behind the same bridge; its counters do not change."""
        for index in range(self.gpus):
            bridge = self.root / f"sys/devices/pci0000:{index:02x}"
            place = bridge / f"0000:{index:02x}:02.0"
            port = place / f"infiniband/mlx5_{index}/ports/1"
            (port / "counters").mkdir(parents=True)
            for name, text in PORT.items():
                (port / name).write_text(f"{text}\n")
            adapter = port.parents[1]
            (adapter / "device").symlink_to(place)
            link(self.root / "sys/class/infiniband" / adapter.name, adapter)
            on_bus = self.root / "sys/bus/pci/devices" / address(index)
            if on_bus.is_dir():  # of AMD's, whose state stands there
                on_bus.rename(bridge / address(index))
            else:
                (bridge / address(index)).mkdir()
            link(on_bus, bridge / address(index))
            (self.root / "proc/driver/nvidia/gpus" / address(index)).mkdir(parents=True)


PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "counters/port_xmit_data": "0",
    "counters/port_rcv_data": "0",
    "counters/symbol_error": "0",
}


def address(gpu: int) -> str:
    return f"0000:{0x1B + 0x20 * gpu:02x}:00.0"


def link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def put_devices(root: Path, gpus: int) -> None:
    devices = root / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{gpu}" for gpu in range(gpus))):
        (devices / name).touch()


def put_tools(folder: Path, tools: dict[str, str]) -> None:
    """Simple programs, which the kernel calls by the names of the tools: so no `env` may come
    between."""
    folder.mkdir()
    for name, stand_in in tools.items():
        text = (HERE / "tools" / stand_in).read_text()
        (folder / name).write_text(text.replace(PYTHON, f"#!{sys.executable} -I", 1))
        (folder / name).chmod(0o755)


def plant_kfd(root: Path, gpus: int, version: int = MI300X, own_bytes: int = 192 << 30) -> None:
    """Plant so many GPUs of AMD's beside a processor, each with memory of its own."""
    for place in range(gpus + 1):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{place}"
        (node / "mem_banks/0").mkdir(parents=True)
        location = (0x1B + 0x20 * (place - 1)) << 8  # bus, device and function
        (node / "properties").write_text(KFD_GPU.format(version, location) if place else KFD_CPU)
        if place:
            plant_gpu(root / "sys/bus/pci/devices" / address(place - 1))
        bank = KFD_BANK.format(1 if place else 0, own_bytes)
        (node / "mem_banks/0/properties").write_text(bank)


def plant_kfd_process(root: Path, pid: int, gpu_id: int, vram_bytes: int, queues: int) -> None:
    """A process that has AMD's compute driver open, as the kernel shows it."""
    place = root / f"sys/class/kfd/kfd/proc/{pid}"
    (place / "queues").mkdir(parents=True)
    (place / "pasid").write_text("32770\n")
    (place / f"vram_{gpu_id}").write_text(f"{vram_bytes}\n")
    (place / f"sdma_{gpu_id}").write_text("0\n")
    for number in range(queues):
        queue = place / f"queues/{number}"
        queue.mkdir()
        for name, value in {"gpuid": gpu_id, "size": 8388608, "type": 2}.items():
            (queue / name).write_text(f"{value}\n")
