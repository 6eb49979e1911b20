"""The settings of a node, as text: versions, modes, sizes and places of its parts.

Nothing is loaded and nothing is timed. Nodes of a kind are to be set up alike: each setting is
compared with that of the others (configs/policies/expectations/), so what differs by itself, such
as serial numbers and addresses, is not reported. What cannot be read is named in the environment
under "unread". Machines without GPUs or NICs have fewer settings, which is no failure.
"""

from __future__ import annotations

import contract
from kit.background import begin
from kit.gpus.cards import machine_root
from kit.settings.host import tell_host
from kit.settings.network import tell_network
from kit.settings.texts import Settings

S = contract.Setting
OF_GPUS = (
    S("driver", "the GPUs' kernel driver and its version"),
    S("driver_kind", "whether NVIDIA's kernel module is the open one"),
    S("cards", "GPUs that the kernel shows"),
    S("imex_channels", "channels of memory that GPUs of several hosts share by NVLink (IMEX)"),
    S("nvml", "version of NVML"),
    S("cuda_of_driver", "the newest CUDA that the driver can run"),
    S("gpu_model", "of each GPU"),
    S("gpu_kind", "what each GPU is made for: data centre, workstation, consumer, or virtual"),
    S("vbios", "version of each GPU's firmware"),
    S("inforom", "version of each GPU's InfoROM"),
    S("persistence_mode", "whether the driver stays loaded while no program uses the GPU"),
    S("ecc_mode", "whether the GPU's memory is checked"),
    S("ecc_pending_mode", "the same after the next restart"),
    S("mig_mode", "whether the GPU is sliced"),
    S("compute_mode", "which programs may use the GPU at a time"),
    S("power_limit_w", "power that the GPU may draw"),
    S("applications_clock", "clocks that were set for applications"),
    S("gpu_links", "how each GPU reaches the others: NVLinks, or the way over PCIe"),
    S("slot", "place on the PCI bus, and NUMA node, of each GPU and adapter"),
    S("nearest_adapter", "the RDMA adapters that are nearest to each GPU"),
)
OF_NETWORK = (
    S("nics", "names of the network devices that have hardware"),
    S("adapters", "names of RDMA adapters, by which rails are told, and their slots"),
    S("firmware", "of each RDMA adapter"),
    S("model", "board of each RDMA adapter"),
    S("nic_of_adapter", "network devices of each RDMA adapter"),
    S("max_read_request", "largest read that an adapter asks of memory at once"),
    S("link_layer", "InfiniBand or Ethernet, of each port"),
    S("traffic_class", "of RoCE traffic, of each port"),
    S("roce_mode", "version of RoCE, of each port"),
    S("roce_tos", "type of service of RoCE connections, of each port"),
    S("mtu", "largest packet of each network device"),
    S("nic_driver", "of each network device"),
    S("queue_length", "of each network device"),
    S("pfc", "priorities of each network device that are paused by flow control"),
    S("ecn", "priorities of each network device on which congestion is marked"),
)
OF_HOST = (
    S("bios", "vendor, version and date"),
    S("board", "maker and model of the machine"),
    S("microcode", "of the processors"),
    S("kernel", "version of Linux"),
    S("kernel_options", "its command line, without what names this very node"),
    S("os", "the distribution"),
    S("ofed", "version of the RDMA driver, which the kernel's own has not"),
    S("peer_memory", "the module by which NICs reach GPU memory"),
    S("gdrcopy", "the module by which processors reach GPU memory"),
    S("sysctl", "settings of the kernel"),
    S("iommu", "whether addresses of devices are translated, and how"),
    S("acs", "at how many PCI bridges traffic between devices goes through the root"),
    S("clock_source", "the clock by which the kernel counts time"),
    S("governor", "of the processors' frequency"),
    S("cpu_driver", "of the processors' frequency"),
    S("smt", "whether cores have several threads"),
    S("boost", "whether processors may run faster than their nominal clock"),
    S("numa", "which processors each NUMA node has"),
    S("huge_pages", "number and size"),
    S("transparent_huge_pages", "when the kernel uses them"),
    S("swap", "whether memory may be swapped out"),
    S("ulimit", "limits of the process that ran this program"),
    S("mounts", "file systems of other machines"),
    S("mount_options", "of each of them"),
    S("time_service", "the service that keeps the clock right"),
    S("service", "whether it runs"),
    S("nccl", "of the Python that runs the programs"),
    S("nccl_of_system", "the libraries that are installed beside it"),
    S("cudnn", "of the Python that runs the programs"),
    S("cuda_runtime", "of the Python that runs the programs"),
    S("torch", "of the Python that runs the programs"),
    S("cuda_toolkit", "the one in /usr/local/cuda"),
)

BENCHMARK = contract.Benchmark(
    name="node_config",
    version="1",
    summary="How a node is set up: versions, modes and places of its parts, as text.",
    stresses="nothing: it reads",
    reveals="nodes that are set up otherwise than others: another driver or firmware, a mode that "
    "a repair reset, NICs under other names",
    duration_s=2.0,
    exclusive=False,
    metrics=(
        contract.Metric("settings", "1", "higher", "settings that were read", judged_by="limit"),
        contract.Metric(
            "settings_unread", "1", "lower", "settings that could not be read", judged_by="limit"
        ),
    ),
    parameters=(
        contract.Parameter(
            "patience_s", 20.0, "seconds that a driver may take to answer", at_least=0.1
        ),
    ),
    settings=OF_GPUS + OF_NETWORK + OF_HOST,
)


def measure(report: contract.Report, patience_s: float) -> None:
    from kit.settings.gpus import read_gpus, tell_gpus  # it loads pynvml

    root = machine_root()
    asking = begin(read_gpus)
    settings = Settings()
    tell_host(settings, root)
    tell_network(settings, root)
    tell_gpus(settings, root, asking, patience_s)
    hand_over(report, settings)


def hand_over(report: contract.Report, settings: Settings) -> None:
    for name, texts in settings.texts.items():
        for device, text in texts.items():
            if text:
                report.set_as(name, device, text)
    report.notes["unread"] = settings.unread
    report.add("settings", "node", [sum(map(len, settings.texts.values()))])
    report.add("settings_unread", "node", [len(settings.unread)])


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
