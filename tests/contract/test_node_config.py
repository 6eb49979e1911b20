"""How a node is set up: read from trees of files as kernels show them, and from a made driver."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import kit.settings.dcb
import kit.settings.host
import kit.settings.network
import kit.settings.pci
import pytest
from kit.gpus.readings import Unread
from kit.settings.gpu_links import describe as describe_links
from kit.settings.gpu_links import parse as parse_links
from kit.settings.texts import NOT_SUPPORTED, Hidden, Settings

from tests.contract.conftest import BENCHMARKS

PROGRAM = BENCHMARKS / "node_config.py"
# of a node with Lustre and NFS, as `cat /proc/self/mountinfo` printed it; addresses changed
MOUNTS = r"""
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
61 22 0:51 / /scratch rw,noatime shared:31 - lustre 10.0.0.5@o2ib:10.0.0.6@o2ib:/fs1 rw,flock,lazystatfs
72 22 0:60 / /home\040of\040all rw,relatime shared:33 - nfs4 nas:/home rw,vers=4.2,hard,proto=tcp,clientaddr=10.1.2.3,local_lock=none,addr=10.0.9.9
81 22 0:71 / /home/users rw shared:41 - autofs auto.home rw,indirect
82 81 0:72 / /home/users/ada rw shared:42 - nfs4 nas:/ada rw,vers=4.2,addr=10.0.9.9
83 22 0:73 / /var/lib/kubelet/pods/3f/volume rw shared:43 - ceph 10.0.0.9:/v rw
80 22 0:70 / /tmp rw shared:40 - tmpfs tmpfs rw
"""  # noqa: E501
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max core file size        0                    unlimited            bytes
Max processes             1027815              1027815              processes
Max open files            1024                 1048576              files
Max locked memory         unlimited            unlimited            bytes
Max stack size            8388608              unlimited            bytes
"""
CMDLINE = (
    "BOOT_IMAGE=/vmlinuz-6.8.0-45 root=UUID=3f0a ro iommu=pt pci=realloc=off "
    "ip=10.1.2.3::10.1.0.1:255.255.0.0:gpu-17:eno1:off wifi.password=hunter2 -- --id 17"
)
FILES = {
    "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "proc/cmdline": CMDLINE,
    "proc/cpuinfo": "microcode\t: 0x2b0005c0\nmodel : 1\nmicrocode\t: 0x2b000571\n",
    "proc/meminfo": "MemTotal: 2113000000 kB\nHugePages_Total:    1024\nHugepagesize:  2048 kB\n",
    "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
    "proc/self/limits": LIMITS,
    "proc/self/mountinfo": MOUNTS,
    "proc/1/comm": "systemd\n",
    "proc/812/comm": "chronyd\n",
    "proc/900/comm": "nv-fabricmanager\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
    "usr/local/cuda/version.json": '{"cuda" : {\n "name" : "CUDA SDK",\n "version" : "12.6.2"}}',
    "usr/lib/x86_64-linux-gnu/libnccl.so.2.23.4": "",
    "sys/class/dmi/id/bios_vendor": "Supermicro\n",
    "sys/class/dmi/id/bios_version": "2.4\n",
    "sys/class/dmi/id/bios_date": "05/17/2025\n",
    "sys/class/dmi/id/product_name": "SYS-821GE\n",
    "sys/class/iommu/dmar0/x": "",
    "sys/kernel/iommu_groups/0/type": "identity\n",
    "sys/kernel/iommu_groups/1/type": "DMA-FQ\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/cpu/smt/control": "on\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/module/mlx5_core/version": "24.10-0.7.0\n",
    "sys/module/nvidia_peermem/refcnt": "0\n",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def told_of_host(root: Path) -> Settings:
    settings = Settings()
    packages = {"torch": "2.7.1", "nvidia-nccl-cu12": "2.26.2", "nvidia-cudnn-cu12": "9.7.1"}
    kit.settings.host.tell_host(settings, root, packages)
    return settings


def test_settings_of_a_host_are_those_of_kernel_and_system(root):
    settings = told_of_host(root)
    of_node = {name: texts["node"] for name, texts in settings.texts.items() if "node" in texts}
    assert of_node == {
        "bios": "Supermicro 2.4 05/17/2025",
        "board": "SYS-821GE",
        "microcode": "0x2b000571, 0x2b0005c0",
        "kernel": "6.8.0-45-generic",
        "kernel_options": "ro iommu=pt pci=realloc=off wifi.password=…",
        "os": "Ubuntu 24.04.1 LTS",
        "ofed": "mlx5_core 24.10-0.7.0",
        "peer_memory": "nvidia_peermem of the kernel",
        "gdrcopy": "not loaded",
        "iommu": "on: DMA-FQ, identity",
        "acs": "no bridges",
        "governor": "performance on 2, powersave on 1",
        "cpu_driver": "none",
        "smt": "on",
        "boost": "on",
        "numa": "node0 0-1; node1 2-3",
        "huge_pages": "1024 of 2048 kB",
        "transparent_huge_pages": "madvise",
        "swap": "off",
        "mounts": "/home of all, /home/users, /scratch",
        "time_service": "chronyd",
        "nccl": "2.26.2",
        "cudnn": "9.7.1",
        "cuda_runtime": "not in this Python",
        "torch": "2.7.1",
        "cuda_toolkit": "12.6.2",
        "nccl_of_system": "libnccl.so.2.23.4",
    }
    assert settings.texts["mount_options"] == {
        "/scratch": "lustre 10.0.0.5@o2ib:10.0.0.6@o2ib:/fs1 rw,noatime,rw,flock,lazystatfs",
        "/home/users": "on demand",
        "/home of all": "nfs4 nas:/home rw,relatime,rw,vers=4.2,hard,proto=tcp,local_lock=none",
    }
    assert settings.texts["ulimit"]["locked memory"] == "unlimited, at most unlimited"
    assert settings.texts["ulimit"]["open files"] == "1024, at most 1048576"
    assert settings.texts["sysctl"] == {
        "kernel.numa_balancing": "0",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }
    assert settings.texts["service"]["nv-fabricmanager"] == "runs"
    assert settings.texts["service"]["irqbalance"] == "does not run"
    assert settings.unread == {}


def test_off_absent_and_not_readable_stay_three_things(root, tmp_path):
    (root / "proc/swaps").unlink()
    (root / "proc/sys/kernel/osrelease").unlink()
    (root / "proc/sys/kernel/osrelease").mkdir()  # as good as a file that cannot be read
    settings = told_of_host(root)
    assert settings.texts["sysctl"]["kernel.numa_balancing"] == "0"
    assert settings.texts["gdrcopy"] == {"node": "not loaded"}
    assert "kernel" not in settings.texts
    assert settings.unread["kernel"].endswith("osrelease: Is a directory")
    assert settings.unread["swap"].endswith("swaps does not exist")


def express(control: int) -> bytes:
    """A device that has a capability of PCI Express at 0x60, behind one of power at 0x40."""
    space = bytearray(256)
    space[0x34], space[0x40], space[0x41], space[0x60] = 0x40, 0x01, 0x60, 0x10
    struct.pack_into("<H", space, 0x68, control)
    return bytes(space)


def bridge(*capabilities: tuple[int, int]) -> bytes:
    """A bridge with these extended capabilities, each with the value of its byte 6."""
    space = bytearray(4096)
    for place, (kind, control) in enumerate(capabilities):
        at = 0x100 + 0x40 * place
        following = at + 0x40 if place + 1 < len(capabilities) else 0
        struct.pack_into("<I", space, at, kind | 1 << 16 | following << 20)
        struct.pack_into("<H", space, at + 6, control)
    return bytes(space)


def test_requests_and_access_control_are_read_from_the_configuration_space(tmp_path):
    assert kit.settings.pci.request_bytes(express(0x5000 | 0x0FFF)) == 4096
    assert kit.settings.pci.request_bytes(express(0x2810)) == 512
    assert kit.settings.pci.request_bytes(bytes(256)) is None
    looped = bytearray(256)
    looped[0x34], looped[0x40], looped[0x41] = 0x40, 0x01, 0x40
    assert kit.settings.pci.request_bytes(bytes(looped)) is None

    for number, space in enumerate(
        [bridge((1, 9), (0x0D, 0x1D)), bridge((0x0D, 0)), bridge((3, 1))]
    ):
        place = tmp_path / f"0000:{number:02x}:00.0"
        write(place / "class", "0x060400\n")
        (place / "config").write_bytes(space)
    write(tmp_path / "0000:ff:00.0/class", "0x030200\n")
    assert kit.settings.pci.acs(tmp_path) == "on at 1 of 2 bridges"
    (tmp_path / "0000:00:00.0/config").write_bytes(bridge((0x0D, 1))[:64])
    with pytest.raises(Hidden, match="only root"):
        kit.settings.pci.acs(tmp_path)


def answer(pfc: bytes | None, error: int | None = None) -> bytes:
    if error is not None:
        return struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -error) + bytes(16)
    name = b"eth0\0\0\0\0"
    inside = struct.pack("=HH", 4 + len(pfc), 2) + pfc + bytes(-len(pfc) % 4) if pfc else b""
    body = struct.pack("=BBH", 0, 21, 0) + struct.pack("=HH", 9, 1) + name
    body += struct.pack("=HH", 4 + len(inside), 13 | 0x8000) + inside
    return struct.pack("=IHHII", 16 + len(body), 78, 0, 1, 0) + body


def test_flow_control_is_read_from_the_kernel_s_answer():
    ieee_pfc = struct.pack("=BBBBH", 8, 0b00001000, 0, 0, 0) + bytes(128)
    assert kit.settings.dcb.describe(answer(ieee_pfc)) == "on priorities 3"
    assert kit.settings.dcb.describe(answer(bytes([8, 0]) + bytes(134))) == "off"
    assert kit.settings.dcb.describe(answer(None)) == NOT_SUPPORTED
    assert kit.settings.dcb.describe(answer(None, error=95)) == NOT_SUPPORTED
    with pytest.raises(Hidden, match="Operation not permitted"):
        kit.settings.dcb.describe(answer(None, error=1))
    with pytest.raises(Hidden, match="cut short"):
        kit.settings.dcb.describe(b"\0" * 7)


def test_the_kernel_answers_for_a_device_without_flow_control():
    assert kit.settings.dcb.flow_control("lo") == NOT_SUPPORTED


@pytest.fixture
def network(root):
    """Two rails in their slots, each beside a GPU, and a bridge that software made."""
    for number, slot in enumerate(("18", "5e")):
        device = root / f"sys/devices/pci0000:{slot}/0000:{slot}:00.0"
        write(device / "numa_node", f"{number}\n")
        (device / "config").write_bytes(express(0x5000))
        adapter, nic = device / f"infiniband/mlx5_{number}", device / f"net/ib{number}"
        write(adapter / "fw_ver", "28.43.1014\n")
        write(adapter / "board_id", "MT_0000000838\n")
        write(adapter / "ports/1/link_layer", "Ethernet\n")
        write(adapter / "tc/1/traffic_class", "Global tclass=106\n" if number else "")
        write(nic / "mtu", "4200\n")
        write(nic / "tx_queue_len", "1000\n")
        for role, on in (("roce_np", "3"), ("roce_rp", "9")):
            for priority in "03":
                write(nic / f"ecn/{role}/enable/{priority}", str(int(priority == on)))
        for place, target in ((adapter, "infiniband"), (nic, "net")):
            (place / "device").symlink_to(device)
            link = root / "sys/class" / target / place.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
        gpu = root / f"sys/devices/pci0000:{slot}/0000:{slot}:01.0"
        write(gpu / "numa_node", f"{number}\n")
        write(root / f"proc/driver/nvidia/gpus/0000:{slot}:01.0/information", "")
        bus = root / "sys/bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / f"0000:{slot}:01.0").symlink_to(gpu)
    write(root / "sys/class/net/docker0/mtu", "1500\n")
    write(root / "sys/class/net/bond0/bonding/mode", "802.3ad 4\n")
    write(root / "sys/class/net/bond0/mtu", "9000\n")
    write(root / "sys/class/net/enxb03af2b6059f/device/vendor", "0x0b1f\n")
    write(root / "sys/class/net/enxb03af2b6059f/mtu", "1500\n")
    write(root / "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "RoCE v2\n")
    return root


def test_settings_of_nics_and_distances_are_those_of_the_kernel(network):
    settings = Settings()

    def ask(nic: str) -> str:
        if nic == "ib1":
            raise Hidden("no answer")
        return "on priorities 3"

    kit.settings.network.tell_network(settings, network, ask)
    assert settings.texts == {
        "nics": {"node": "bond0, enx…, ib0, ib1"},
        "adapters": {"node": "mlx5_0 0000:18:00.0; mlx5_1 0000:5e:00.0"},
        "firmware": {"mlx5_0": "28.43.1014", "mlx5_1": "28.43.1014"},
        "model": {"mlx5_0": "MT_0000000838", "mlx5_1": "MT_0000000838"},
        "nic_of_adapter": {"mlx5_0": "ib0", "mlx5_1": "ib1"},
        "max_read_request": {"mlx5_0": "4096 B", "mlx5_1": "4096 B"},
        "link_layer": {"mlx5_0": "Ethernet", "mlx5_1": "Ethernet"},
        "traffic_class": {"mlx5_0": "default", "mlx5_1": "106"},
        "roce_mode": {"mlx5_0": "RoCE v2"},
        "mtu": {"bond0": "9000", "ib0": "4200", "ib1": "4200"},
        "queue_length": {"ib0": "1000", "ib1": "1000"},
        "pfc": {"bond0": "on priorities 3", "ib0": "on priorities 3"},
        "ecn": {"bond0": NOT_SUPPORTED}
        | dict.fromkeys(("ib0", "ib1"), "roce_np on priorities 3; roce_rp on priorities none"),
        "slot": {
            "mlx5_0": "0000:18:00.0, NUMA node 0",
            "mlx5_1": "0000:5e:00.0, NUMA node 1",
            "cuda:0": "0000:18:01.0, NUMA node 0",
            "cuda:1": "0000:5e:01.0, NUMA node 1",
        },
        "nearest_adapter": {"cuda:0": "mlx5_0", "cuda:1": "mlx5_1"},
    }
    assert settings.unread == {"pfc of ib1": "no answer"}


def test_settings_of_gpus_are_those_of_their_driver(root, run, nvml_library):
    for gpu in range(4):
        write(root / f"dev/nvidia{gpu}", "")
    write(root / "sys/module/nvidia/version", "570.86.15\n")
    write(root / "dev/nvidia-caps-imex-channels/channel0", "")
    write(root / "proc/4711/comm", "nvidia-imex\n")
    ran = run(
        PROGRAM,
        env={
            "ANUBIS_HOST_ROOT": str(root),
            "LD_LIBRARY_PATH": str(nvml_library.parent),
            "NVML_persistence_2": "0",
            "NVML_power_cap_1": "400000",
        },
    )
    assert ran.exit_code == 0, ran.stderr
    environment = ran.document["environment"]
    settings = environment["settings"]
    assert settings["driver"] == {"node": "nvidia 570.86.15"}
    assert settings["cards"] == {"node": "4"}
    assert settings["imex_channels"] == {"node": "1"}
    assert settings["service"]["nvidia-imex"] == "runs"
    assert settings["persistence_mode"] == {
        "cuda:0": "on",
        "cuda:1": "on",
        "cuda:2": "off",
        "cuda:3": "on",
    }
    assert settings["power_limit_w"]["cuda:1"] == "400 W"
    assert settings["ecc_mode"]["cuda:0"] == "on"
    assert "inforom of cuda:0" in environment["unread"]  # this driver does not know the question
    assert environment["unread"]["gpu_links"] == "nvidia-smi is not on PATH"
    samples = {s["metric"]: s["samples"][0] for s in ran.document["series"]}
    assert samples["settings"] == sum(map(len, settings.values()))
    assert samples["settings_unread"] == len(environment["unread"])


def test_a_driver_that_knows_of_no_gpu_leaves_their_settings_unread(root, nvml_library, run):
    write(root / "dev/nvidia0", "")
    env = {"ANUBIS_HOST_ROOT": str(root), "LD_LIBRARY_PATH": str(nvml_library.parent)}
    unread = run(PROGRAM, env=env | {"NVML_count": "0"}).document["environment"]["unread"]
    assert unread["persistence_mode"] == "NVML knows of no GPU"


def test_a_machine_with_amd_gpus_reports_the_settings_that_its_kernel_shows(root, run):
    node = "sys/class/kfd/kfd/topology/nodes/1"
    write(root / node / "properties", "gfx_target_version 90402\n")
    write(root / "sys/module/amdgpu/version", "6.10.5\n")
    ran = run(PROGRAM, env={"ANUBIS_HOST_ROOT": str(root)})
    assert ran.exit_code == 0, ran.stderr
    environment = ran.document["environment"]
    assert environment["settings"]["driver"] == {"node": "amdgpu 6.10.5"}
    assert "only what the kernel shows is read" in environment["unread"]["vbios"]


# as drivers 570 and 418 write it, with adapters beside the GPUs; the first underlines its header
HGX = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNV18\tPIX\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNODE\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tSYS\tPIX\t56-111,168-223\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
BRIDGED = """\
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity
GPU0     X      NV12    PXB     SYS     PHB     0-13,28-41
GPU1    NV12     X      PXB     SYS     PHB     0-13,28-41
GPU2    PXB     PXB      X      SYS     NODE    0-13,28-41
GPU3    SYS     SYS     SYS      X      SYS     14-27,42-55
mlx5_0  PHB     PHB     NODE    SYS      X
"""


def test_the_table_of_nvidias_tool_says_by_which_way_gpus_reach_each_other():
    both = {0: "NV18", 1: "NV18", 2: "NV18"}
    expected = {gpu: {other: both[other] for other in both if other != gpu} for gpu in both}
    assert parse_links(HGX) == expected
    told = {gpu: describe_links(of_gpu) for gpu, of_gpu in parse_links(BRIDGED).items()}
    assert told[0] == "NV12 to 1; PXB to 2; SYS to 3"
    assert told[3] == "SYS to 0-2"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "shows no table of GPUs that is known"),
        ("Failed to initialize NVML: Unknown Error", "shows no table of GPUs that is known"),
        (HGX.replace("GPU1\tNV18", "GPU1\tERR!"), 'says "ERR!" of GPU1, which is not known'),
        (HGX[: HGX.index("GPU2\tNV18")], "shows no table of GPUs that is known"),  # it was cut
        (HGX[: HGX.index("\t X \tSYS\tPIX")], 'says "NV18 NV18" of GPU2, which is not known'),
        (HGX.replace("GPU1\tNV18\t X", "GPU1\t X \tNV18"), 'says "X" of GPU1'),
    ],
)
def test_a_table_of_nvidias_tool_in_an_unknown_form_is_one_sentence(text, complaint):
    with pytest.raises(Unread, match=re.escape(complaint)):
        parse_links(text)
