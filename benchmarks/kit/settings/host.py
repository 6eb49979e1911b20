"""Settings of the host: firmware, kernel, processors, memory, limits, mounts, services, software.

Plain functions of a root, below which are the files of the kernel and of the system.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path

from kit.settings.pci import acs
from kit.settings.texts import Hidden, Settings, expected_text, file_text, names_in
from kit.sysfs import unescape

MODULES = {  # settings, and the kernel modules of which they tell
    "ofed": ("mlx5_core",),
    "peer_memory": ("nvidia_peermem", "nv_peer_mem"),
    "gdrcopy": ("gdrdrv",),
}
LIMITS = ("Max locked memory", "Max open files", "Max processes", "Max stack size", "Max core file")
KERNEL_SETTINGS = (
    "kernel/numa_balancing",
    "kernel/randomize_va_space",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/zone_reclaim_mode",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_ecn",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/rp_filter",
)
# whoever keeps the time, as the kernel shortens their names
TIME_SERVICES = ("chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys", "openntpd")
SERVICES = (
    *("nv-fabricmanager", "nvidia-persiste", "nvidia-imex"),
    *("irqbalance", "opensm", "tuned", "dcgm-exporter"),
)
NETWORK_FILES = (
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "wekafs", "cifs", "panfs",
    "orangefs", "glusterfs", "fuse.glusterfs", "9p", "virtiofs", "fuse.s3fs", "fuse.juicefs",
)  # fmt: skip
OF_JOBS = ("/run", "/var/lib/kubelet", "/var/lib/docker", "/var/lib/containers", "/var/lib/enroot")
# what differs from node to node by itself: addresses, and where the kernel was loaded from
OF_THIS_NODE = re.compile(
    r"(BOOT_IMAGE|initrd|root|resume|ip|BOOTIF|nfsroot|hostname|rd\.luks\S*|netroot|boothwaddr|"
    r"systemd\.hostname|clientaddr|addr|mountaddr|localaddr)=[^\s,]*,?"
)
SECRET = re.compile(r"pass|secret|token|key", re.IGNORECASE)
SOFTWARE = {  # settings, and the packages of Python that carry it
    "nccl": r"nvidia-nccl-cu\d+|rccl",
    "cudnn": r"nvidia-cudnn-cu\d+",
    "cuda_runtime": r"nvidia-cuda-runtime(-cu\d+)?",
    "torch": r"torch",
}
Packages = Mapping[str, str]


def tell_host(settings: Settings, root: Path, packages: Packages | None = None) -> None:
    tell_firmware(settings, root)
    tell_kernel(settings, root)
    tell_processors(settings, root)
    tell_memory(settings, root)
    tell_limits(settings, root)
    tell_mounts(settings, root)
    tell_services(settings, root)
    tell_software(settings, root, package_versions() if packages is None else packages)


def tell_firmware(settings: Settings, root: Path) -> None:
    dmi = root / "sys/class/dmi/id"
    for name, files in {
        "bios": ("bios_vendor", "bios_version", "bios_date"),
        "board": ("sys_vendor", "product_name", "board_name"),
    }.items():
        settings.ask(name, lambda files=files: join(file_text(dmi / file) for file in files))
        if name not in settings.texts:
            settings.miss(name, f"{dmi} does not say")
    settings.ask("microcode", lambda: microcode(expected_text(root / "proc/cpuinfo")))


def join(words: Iterable[str | None]) -> str | None:
    return " ".join(word for word in words if word) or None


def microcode(cpuinfo: str) -> str | None:
    """Return the versions of all processors: one that missed an update differs from its own
    neighbours."""
    versions = re.findall(r"^microcode\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    return ", ".join(sorted(set(versions))) or None


def tell_kernel(settings: Settings, root: Path) -> None:
    settings.ask("kernel", lambda: expected_text(root / "proc/sys/kernel/osrelease"))
    settings.ask("kernel_options", lambda: options(expected_text(root / "proc/cmdline")))
    settings.ask("os", lambda: system(file_text(root / "etc/os-release")))
    for name, modules in MODULES.items():
        settings.ask(name, lambda modules=modules: module(root, modules))
    for place in KERNEL_SETTINGS:
        device = place.replace("/", ".")
        settings.ask("sysctl", lambda place=place: file_text(root / "proc/sys" / place), device)
    settings.ask("iommu", lambda: iommu(root))
    settings.ask("acs", lambda: acs(root / "sys/bus/pci/devices"))
    clock = root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
    settings.ask("clock_source", lambda: file_text(clock))


def options(command_line: str) -> str:
    """Return the command line without options about the device that this node started from, and
    without those of its first process. Passwords do not go into results."""
    words = command_line.partition(" -- ")[0].split()
    return " ".join(hidden(word) for word in words if not OF_THIS_NODE.fullmatch(word))


def hidden(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}=…" if value and SECRET.search(name) else word


def system(release: str | None) -> str | None:
    """Return the system's name in /etc/os-release."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', release or "", re.MULTILINE)
    return match[1] if match else None


def module(root: Path, modules: Iterable[str]) -> str:
    """Return the first of them that is loaded, with its version; those of the kernel itself have
    none."""
    for name in modules:
        if (root / "sys/module" / name).is_dir():
            return f"{name} {file_text(root / 'sys/module' / name / 'version') or 'of the kernel'}"
    return "not loaded"


def iommu(root: Path) -> str:
    """Say how addresses of devices are translated; peer-to-peer traffic is slow if all are."""
    if not names_in(root / "sys/class/iommu"):
        return "off"
    groups = root / "sys/kernel/iommu_groups"
    kinds = {file_text(groups / group / "type") for group in names_in(groups)} - {None}
    return f"on: {', '.join(sorted(filter(None, kinds))) or 'no group'}"


# --- processors and memory -----------------------------------------------------------------


def tell_processors(settings: Settings, root: Path) -> None:
    cpus = root / "sys/devices/system/cpu"
    settings.ask("governor", lambda: common(cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")))
    settings.ask("cpu_driver", lambda: common(cpus.glob("cpu[0-9]*/cpufreq/scaling_driver")))
    for name in ("governor", "cpu_driver"):
        if name not in settings.texts:
            settings.tell(name, "none")
    settings.ask("smt", lambda: file_text(cpus / "smt/control"))
    settings.ask("boost", lambda: boost(cpus))
    nodes = root / "sys/devices/system/node"
    settings.ask("numa", lambda: numa(nodes))


def common(files: Iterable[Path]) -> str | None:
    """Return the texts of files, the most frequent first, with their counts if they differ."""
    counts = Counter(filter(None, map(file_text, files)))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{text} on {count}" for text, count in counts.most_common()) or None


def boost(cpus: Path) -> str | None:
    allowed, forbidden = (
        file_text(cpus / "cpufreq/boost"),
        file_text(cpus / "intel_pstate/no_turbo"),
    )
    if allowed is None and forbidden is None:
        return None
    return "on" if allowed == "1" or forbidden == "0" else "off"


def numa(nodes: Path) -> str | None:
    lists = {name: file_text(nodes / name / "cpulist") for name in names_in(nodes)}
    return "; ".join(f"{name} {cpus}" for name, cpus in lists.items() if cpus is not None) or None


def tell_memory(settings: Settings, root: Path) -> None:
    settings.ask("huge_pages", lambda: huge_pages(expected_text(root / "proc/meminfo")))
    huge = root / "sys/kernel/mm/transparent_hugepage"
    settings.ask("transparent_huge_pages", lambda: selection(file_text(huge / "enabled")))
    settings.ask("swap", lambda: swap(expected_text(root / "proc/swaps")))


def huge_pages(meminfo: str) -> str | None:
    facts = dict(re.findall(r"^(\w+):\s+(\d+)", meminfo, re.MULTILINE))
    if "HugePages_Total" not in facts:
        return None
    return f"{facts['HugePages_Total']} of {facts.get('Hugepagesize', '?')} kB"


def selection(line: str | None) -> str | None:
    """Return the word in brackets: `always [madvise] never`."""
    match = re.search(r"\[([\w-]+)\]", line or "")
    return match[1] if match else line


def swap(table: str) -> str:
    return "on" if len(table.splitlines()) > 1 else "off"


# --- limits, mounts, services --------------------------------------------------------------


def tell_limits(settings: Settings, root: Path) -> None:
    """Note the limits of this process; jobs that are started otherwise may have others."""
    try:
        table = expected_text(root / "proc/self/limits")
    except Hidden as error:
        settings.miss("ulimit", error)
        return
    for name in LIMITS:
        match = re.search(rf"^{name}(?: size)?\s{{2,}}(\S+)\s+(\S+)", table, re.MULTILINE)
        if match:
            device = name.removeprefix("Max ")
            settings.tell("ulimit", f"{match[1]}, at most {match[2]}", device)


def tell_mounts(settings: Settings, root: Path) -> None:
    """Note the mounts from other machines: what a job finds there, and how."""
    try:
        mounts = network_mounts(expected_text(root / "proc/self/mountinfo"))
    except Hidden as error:
        settings.miss("mounts", error)
        return
    settings.tell("mounts", ", ".join(sorted(mounts)) or "none")
    for place, how in mounts.items():
        settings.tell("mount_options", how, place)


def network_mounts(table: str) -> dict[str, str]:
    """Return, by place, the kind, source and options of a mount, without the addresses of this
    node. A mount that comes and goes with its users is reported by its place alone."""
    mounts: dict[str, str] = {}
    by_demand: set[str] = set()
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()
        if len(fields) < 6 or len(source) < 2:
            continue
        if source[0] == "autofs":
            by_demand.add(unescape(fields[4]))
        if source[0] not in NETWORK_FILES:
            continue
        options = OF_THIS_NODE.sub("", ",".join([fields[5], *source[2:]])).strip(",")
        mounts[unescape(fields[4])] = f"{source[0]} {unescape(source[1])} {options}"
    passing = (*by_demand, *OF_JOBS)
    lasting = {
        place: how
        for place, how in mounts.items()
        if not any(place == root or place.startswith(f"{root}/") for root in passing)
    }
    return lasting | dict.fromkeys(by_demand - {"/proc/sys/fs/binfmt_misc"}, "on demand")


def tell_services(settings: Settings, root: Path) -> None:
    running = commands(root)
    if running is None:
        settings.miss("time_service", f"{root / 'proc'} shows no process")
        return
    keepers = [name for name in TIME_SERVICES if name in running]
    settings.tell("time_service", ", ".join(keepers) or "none")
    for name in SERVICES:
        settings.tell("service", "runs" if name in running else "does not run", name)


def commands(root: Path) -> frozenset[str] | None:
    """Return the commands of all processes that are visible here."""
    names = set()
    for place in (root / "proc").glob("[0-9]*"):
        try:
            names.add((place / "comm").read_text(errors="replace").strip())
        except OSError:
            continue  # it has ended meanwhile
    return frozenset(names) or None


# --- software ------------------------------------------------------------------------------


def tell_software(settings: Settings, root: Path, packages: Packages) -> None:
    for name, pattern in SOFTWARE.items():
        versions = [text for package, text in packages.items() if re.fullmatch(pattern, package)]
        settings.tell(name, ", ".join(sorted(versions)) or "not in this Python")
    settings.ask("cuda_toolkit", lambda: toolkit(root))
    settings.tell("nccl_of_system", ", ".join(libraries(root, "libnccl.so.2.*")) or "none")


def package_versions() -> dict[str, str]:
    """Return the packages of the Python that runs the programs."""
    names = ((package.metadata["Name"], package.version) for package in distributions())
    return {name.lower().replace("_", "-"): version for name, version in names if name}


def toolkit(root: Path) -> str:
    """Return the toolkit behind /usr/local/cuda."""
    described = file_text(root / "usr/local/cuda/version.json")
    if described is None:
        return "none"
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([^"]+)"', described)
    return match[1] if match else "of unknown version"


def libraries(root: Path, pattern: str) -> list[str]:
    places = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib")
    return sorted({file.name for place in places for file in (root / place).glob(pattern)})
