"""Sequential and random reads and writes of one file in a directory, by fio, past the page cache.

It writes to a file without a name, which is gone with its last user however that one ends, and
never to a device. Where the file system refuses O_DIRECT the metrics say so ("_buffered"), because
such numbers must not meet direct ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import contract

# pattern: fio's name for it, block size, requests in flight
PATTERNS = {
    "sequential_read": ("read", "1M", 16),
    "sequential_write": ("write", "1M", 16),
    "random_read": ("randread", "4k", 1),
    "random_write": ("randwrite", "4k", 1),
}
IN_MEMORY = {"tmpfs", "ramfs"}

BENCHMARK = contract.Benchmark(
    name="disk_io",
    version="1",
    summary="Sequential and random reads and writes of a file (fio).",
    stresses="the local disk or the file system under a directory",
    reveals="a worn or throttled drive, a degraded RAID, a slow mount",
    level="micro",
    scope="node",
    duration_s=13.0,
    tools=("fio",),
    metrics=(
        contract.Metric(
            "bandwidth_gbps",
            "GB/s",
            "higher",
            summary="1 MiB blocks, 16 in flight (sequential); 4 KiB blocks, one by one (random)",
            ceiling="NVMe: the drive's data sheet; PCIe 4.0 x4: 7.9 GB/s",
        ),
        contract.Metric(
            "latency_us", "us", "lower", summary="mean completion of a random 4 KiB request"
        ),
        contract.Metric(
            "tail_latency_us", "us", "lower", summary="99th percentile of the same requests"
        ),
    ),
    parameters=(
        contract.Parameter("directory", "", 'where to put the file; "": the temporary directory'),
        contract.Parameter("size_mib", 256, "of the file", smoke=8, at_least=2),
        contract.Parameter("samples", 5, "runs per pattern", smoke=2, at_least=1),
        contract.Parameter("sample_s", 0.2, "seconds per run", smoke=0.05, at_least=0.01),
    ),
)


def measure(
    report: contract.Report, directory: str, size_mib: int, samples: int, sample_s: float
) -> None:
    fio = shutil.which("fio")
    if fio is None:
        raise contract.NotApplicable("fio is not installed (apt-get install fio, dnf install fio)")
    place = Path(directory or tempfile.gettempdir())
    filesystem, source = check(place, size_mib)
    with tempfile.TemporaryFile(dir=place) as file:
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        fill(file, size_mib)
        direct = accepts_o_direct(path)
        jobs = run_fio(fio, job_file(path, size_mib, samples, sample_s, direct))
    report.note(directory=str(place), filesystem=filesystem, source=source, direct=direct)
    for metric, numbers in numbers_of(jobs).items():
        report.add(metric if direct else f"{metric}_buffered", "cpu", numbers)


def check(place: Path, size_mib: int) -> tuple[str, str]:
    """The file system that holds a directory, if it is a disk's and has the room."""
    if not place.is_dir():
        raise contract.BadParameter(f'directory "{place}" is not a directory')
    filesystem, source = mounted(place)
    if filesystem in IN_MEMORY:
        raise contract.NotApplicable(
            f'"{place}" is memory ({filesystem}), not a disk: choose with --directory=PATH'
        )
    free_mib = shutil.disk_usage(place).free >> 20
    if free_mib < 2 * size_mib:
        raise contract.Unmeasured(
            f'"{place}" has {free_mib} MiB free, expected twice the file ({2 * size_mib} MiB): '
            "free some, or choose with --directory=PATH or --size_mib=N"
        )
    return filesystem, source


def mounted(place: Path) -> tuple[str, str]:
    """Type and source of the mount whose device number the directory has; "" when none has."""
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == number:
            filesystem, source, *_ = kind.split()
            return filesystem, source
    return "", ""


def fill(file: BinaryIO, size_mib: int) -> None:
    """Real blocks with numbers in them: a hole, or zeros, would be read without the disk."""
    for _ in range(size_mib):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())


def accepts_o_direct(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return False
    return True


def job_file(path: str, size_mib: int, samples: int, sample_s: float, direct: bool) -> str:
    """One job per sample, one after the other, pattern by turns so that drift meets them all."""
    common = {
        "filename": path,
        "size": f"{size_mib}M",
        "direct": int(direct),
        "invalidate": 1,
        "ioengine": "libaio",
        "thread": 1,
        "time_based": 1,
        "runtime": f"{round(sample_s * 1e3)}ms",
        "stonewall": 1,
    }
    sections = ["[global]\n" + "".join(f"{key}={value}\n" for key, value in common.items())]
    turns = ["warm_up", *list(PATTERNS) * samples]
    for turn in turns:
        kind, block, in_flight = PATTERNS.get(turn, PATTERNS["sequential_read"])
        sections.append(f"[{turn}]\nrw={kind}\nbs={block}\niodepth={in_flight}\n")
    return "\n".join(sections)


def run_fio(fio: str, jobs: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [fio, "--output-format=json", "-"],
        input=jobs,
        capture_output=True,
        text=True,
        preexec_fn=contract.die_with_parent,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise contract.Unmeasured(f'fio ended with {done.returncode} and said "{said[0]}"')
    document = json.loads(done.stdout[done.stdout.index("{") :])  # notes may come first
    results: list[dict[str, Any]] = document["jobs"]
    return results


def numbers_of(jobs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """fio's results per metric, in the order of the runs."""
    numbers: dict[str, list[float]] = {}
    for job in jobs:
        pattern = job["jobname"]
        if pattern not in PATTERNS:
            continue
        kind, _, _ = PATTERNS[pattern]
        way = job[kind.removeprefix("rand")]
        numbers.setdefault(f"bandwidth_gbps:{pattern}", []).append(way["bw_bytes"] / 1e9)
        if kind.startswith("rand"):
            latency = way["clat_ns"]
            numbers.setdefault(f"latency_us:{pattern}", []).append(latency["mean"] / 1e3)
            numbers.setdefault(f"tail_latency_us:{pattern}", []).append(
                latency["percentile"]["99.000000"] / 1e3
            )
    return numbers


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
