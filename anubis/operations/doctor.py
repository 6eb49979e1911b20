"""Check what this node can run, and find the build of torch that fits its driver and GPU. Each
check has what it found and, if it matters, what to do."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

from anubis.config import catalog, configs
from anubis.config.catalog import Catalog
from anubis.core.errors import ConfigError, StoreError, UsageError
from anubis.core.records import BenchmarkSpec
from anubis.operations.caller import Caller
from anubis.operations.keeping import kept_policy
from anubis.reach.executors.machine import cpu_model, gpu_models, intel_gpus
from anubis.store.history import History
from anubis.text.wording import quantity


@dataclass(frozen=True)
class Build:
    """A build of torch by its CUDA, and what it needs."""

    cuda: str
    driver: int  # the oldest, by its first number
    oldest: int  # compute capability of the GPUs that it has kernels for, times ten
    newest: int


# Sources: release notes of CUDA (12.x needs driver 525; 13.x needs 580 and has no Volta; Blackwell
# came with 12.8) and the architectures that builds of torch list. The newest first.
BUILDS = (
    Build("13.0", driver=580, oldest=75, newest=121),
    Build("12.8", driver=525, oldest=75, newest=120),
    Build("12.6", driver=525, oldest=50, newest=90),
)
CAPABILITIES = {  # by a model's first letters; drivers before 570 know no Blackwell
    "GB300": 103,
    "B300": 103,
    "GB200": 100,
    "B200": 100,
    "GH200": 90,
    "H200": 90,
    "H100": 90,
    "H800": 90,
    "H20": 90,
    "L40": 89,
    "L20": 89,
    "L4": 89,
    "A100": 80,
    "A800": 80,
    "A30": 80,
    "A40": 86,
    "A10": 86,
    "T4": 75,
    "V100": 70,
}


def capability_of(model: str) -> int:
    """The compute capability of a GPU by its name, times ten; 0 if it is unknown."""
    words = re.split(r"[\s-]", re.sub(r"^(NVIDIA|Tesla)\s+", "", model.strip()))
    names = sorted((name for name in CAPABILITIES if words[0].startswith(name)), key=len)
    return CAPABILITIES[names[-1]] if names else 0


def fitting_build(driver: str, model: str) -> Build | None:
    """The newest build for this driver and GPU; None if there is none, or the driver is unknown."""
    number = int(first[0]) if (first := re.match(r"\d+", driver)) else 0
    capability = capability_of(model)
    fitting = (
        build
        for build in BUILDS
        if build.driver <= number and (not capability or build.oldest <= capability <= build.newest)
    )
    return next(fitting, None)


def advise(driver: str, model: str) -> str:
    """A sentence with the build to install, or with what has to be done before."""
    if build := fitting_build(driver, model):
        tag = "cu" + build.cuda.replace(".", "")
        return f"install torch's build with CUDA {build.cuda} ({tag}) for {model}, driver {driver}"
    if re.match(r"\d+", driver):
        return f"no build of torch fits {model} with driver {driver}: update the driver"
    return "install torch's build for these GPUs: CUDA for NVIDIA's, ROCm for AMD's"


PACKAGES = {"torch": "most benchmarks", "ray": "more than one node", "pycox": "the risk model"}
TOOLS = {  # packages are Debian's and Ubuntu's
    "fio": "apt install fio",
    "ib_write_bw": "apt install perftest",
    "ib_write_lat": "apt install perftest",
    "ucx_perftest": "apt install ucx-utils",
    "dcgmi": "DCGM, from NVIDIA's package repository",
    "nvbandwidth": "build https://github.com/NVIDIA/nvbandwidth",
    "all_reduce_perf": "build https://github.com/NVIDIA/nccl-tests",
    "all_gather_perf": "build https://github.com/NVIDIA/nccl-tests",
}
HCAS = Path("/sys/class/infiniband")
DISTRIBUTION = "anubis-fleet"


@dataclass(frozen=True)
class Check:
    what: str
    state: Literal["good", "missing", "bad"]  # missing costs a benchmark, bad costs all
    found: str
    advice: str = ""


def examine(benchmarks: Sequence[Path] = ()) -> tuple[Check, ...]:
    """Check this node for the shipped programs and those in more folders."""
    return tuple(_checks(catalog.load(catalog.folders(benchmarks))))


def _checks(programs: Catalog) -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0))
    yield Check("processor", "good", f"{cores} cores, {cpu_model()}")
    gpus, count = _gpus()
    yield gpus
    yield Check("python", "good", f"{sys.version.split()[0]}, {sys.executable}")
    yield from (_package(package, purpose) for package, purpose in PACKAGES.items())
    if count:
        yield _cuda(gpus.found.partition(" x ")[2])
    yield from _history()
    for spec in programs.specs.values():
        yield _benchmark(spec, gpus=count)


def _gpus() -> tuple[Check, int]:
    try:
        models, _ = gpu_models()
    except RuntimeError as error:
        advice = "the driver hangs: look into dmesg for XID, reboot the node"
        return Check("gpus", "bad", str(error), advice), 0
    if models:
        listed = ", ".join(f"{number} x {name}" for name, number in Counter(models).items())
        return Check("gpus", "good", listed), len(models)
    if unknown := intel_gpus(Path("/")):
        return Check("gpus", "bad", f"{unknown} of Intel, which no benchmark can measure"), 0
    return Check("gpus", "missing", "none: every benchmark runs on the CPU"), 0


def _driver() -> str:
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _cuda(model: str) -> Check:
    """Check torch and CUDA in a separate process: a broken driver can hang its caller."""
    question = (
        "import torch; of = torch.version; count = torch.cuda.device_count(); "
        "print(count, f'ROCm {of.hip}' if of.hip else f'CUDA {of.cuda}', sep=', ')"
    )
    try:
        answer = subprocess.run(
            [sys.executable, "-c", question], capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()
    except (subprocess.SubprocessError, OSError) as error:
        return Check("torch and cuda", "bad", f"torch cannot ask the GPU: {error}")
    count, _, build = answer.partition(", ")
    if count == "0":
        return Check("torch and cuda", "bad", "torch sees no GPU", advise(_driver(), model))
    return Check("torch and cuda", "good", f"{count} GPUs, {build}")


def _package(package: str, purpose: str) -> Check:
    if version := _version(package):
        return Check(package, "good", version)
    return Check(package, "bad", f"not installed, needed for {purpose}", _way_to(package))


def _version(package: str) -> str:
    """Version of an installed package; empty if it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _way_to(package: str) -> str:
    """Command that installs a package in the version that this Anubis requires."""
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is run in place
        return "./scripts/setup"
    named = [line for line in requirements if re.match(rf"{package}\b(?!-)", line)]
    return f'pip install "{named[0]}"' if named else f"pip install {package}"


def _history() -> Iterator[Check]:
    try:
        url = Caller().find_history()
        with History.open(url) as history:
            count = len(history.campaigns.newest(limit=1000))
            named = {kept_policy(part).notify for part in history.every()} - {""}
    except (StoreError, UsageError) as error:
        yield Check("history", "bad", str(error))
        return
    yield Check("history", "good", f"{quantity(count, 'campaign')} in {url}")
    yield from map(_notifier, sorted(named))


def _notifier(name: str) -> Check:
    """Check that messages to the people whom a keeping policy names can be sent from here."""
    try:
        settings = configs.notifier(name)
        settings.check()
    except ConfigError as error:
        return Check(f"notifier {name}", "bad", str(error))
    return Check(f"notifier {name}", "good", settings.summary)


def _benchmark(spec: BenchmarkSpec, *, gpus: int) -> Check:
    subject = f"benchmark {spec.name}"
    absent = [name for name in spec.needs.packages if not _version(name)]
    if absent:
        return Check(subject, "missing", f"needs {', '.join(absent)}")
    absent = [tool for tool in spec.needs.tools if not shutil.which(tool)]
    if absent:
        ways = ", ".join(dict.fromkeys(TOOLS.get(tool, f"install {tool}") for tool in absent))
        return Check(subject, "missing", f"needs {', '.join(absent)}", ways)
    if spec.needs.gpu and not gpus:
        return Check(subject, "missing", "needs a GPU")
    if spec.needs.hca and not any(HCAS.glob("*")):
        return Check(subject, "missing", "needs an RDMA adapter")
    nodes = max(spec.needs.min_nodes, ceil(spec.needs.min_devices / gpus) if gpus else 1)
    if nodes > 1 and spec.scope == "node":
        return Check(subject, "missing", f"needs {spec.needs.min_devices} GPUs")
    if nodes > 1:
        return Check(subject, "good", f"can run, with {nodes} nodes or more")
    return Check(subject, "good", "can run")
