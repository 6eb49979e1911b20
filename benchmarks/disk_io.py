"""Sequential and random reads and writes of one file in a directory, by fio, past the page cache.

It writes to a file without a name, which is gone with its last user however that one ends, and
never to a device. If the file system refuses O_DIRECT the metrics say so ("_buffered"), because
such numbers must not meet direct ones. Bandwidth and requests per second come from many requests in
flight, latency from one at a time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import contract

# pattern: fio's name for it, block size, requests in flight, what it is run for
PATTERNS = {
    "sequential_read": ("read", "1M", 16, "bandwidth"),
    "sequential_write": ("write", "1M", 16, "bandwidth"),
    "random_read": ("randread", "4k", 32, "bandwidth"),
    "random_write": ("randwrite", "4k", 32, "bandwidth"),
    "random_read_alone": ("randread", "4k", 1, "latency"),
    "random_write_alone": ("randwrite", "4k", 1, "latency"),
}
PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}
IN_MEMORY = {"tmpfs", "ramfs"}
SCRATCH = ".anubis-disk_io-"

BENCHMARK = contract.Benchmark(
    name="disk_io",
    version="2",
    summary="Sequential and random reads and writes of a file (fio).",
    stresses="the local disk or the file system under a directory",
    reveals="a worn or throttled drive, a degraded RAID, a slow mount",
    duration_s=25.0,
    tools=("fio",),
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "1 MiB blocks, 16 in flight (sequential); 4 KiB blocks, 32 in flight (random)",
            ceiling="NVMe: the drive's data sheet; PCIe 4.0 x4: 7.9 GB/s",
        ),
        contract.higher(
            "iops", "1/s", "requests of the random patterns", ceiling="the drive's data sheet"
        ),
        contract.lower(
            "latency_us",
            "us",
            "completion of a 4 KiB request, one at a time: mean, p50, p99, p99.9 of a run",
        ),
    ),
    parameters=(
        contract.Parameter("path", "", 'directory for the file; "": the temporary directory'),
        contract.Parameter(
            "size_mib", 1024, "size of the file", smoke=8, at_least=2, more_is_stronger=True
        ),
        contract.Parameter("reserve_mib", 1024, "free space to leave", smoke=16, at_least=0),
        contract.Parameter(
            "samples",
            5,
            "runs per pattern",
            smoke=2,
            at_least=1,
            counts=("bandwidth_gbps", "iops", "latency_us"),
            more_is_stronger=True,
        ),
        contract.Parameter("sample_s", 0.5, "seconds per run", smoke=0.05, at_least=0.01),
    ),
)


def measure(
    report: contract.Report,
    path: str,
    size_mib: int,
    reserve_mib: int,
    samples: int,
    sample_s: float,
) -> None:
    fio = shutil.which("fio")
    if fio is None:
        raise contract.NotApplicable("fio is not installed (apt-get install fio, dnf install fio)")
    place = Path(path or tempfile.gettempdir())
    filesystem, source, mount = check(place, size_mib, reserve_mib)
    with filled_file(place, size_mib) as file:
        name = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        direct = accepts_o_direct(name)
        document = run_fio(fio, job_file(name, size_mib, samples, sample_s, direct))
    report.note(directory=str(place), filesystem=filesystem, source=source, direct=direct)
    report.note(fio=document["fio version"])
    device = re.sub(r"[^\w:./-]", "_", mount)
    for metric, numbers in numbers_of(document["jobs"]).items():
        report.add(metric if direct else f"{metric}_buffered", device, numbers)


def check(place: Path, size_mib: int, reserve_mib: int) -> tuple[str, str, str]:
    """Return the mount of a directory, if it is a disk's and has the room."""
    if not place.is_dir():
        raise contract.BadParameter(
            f'path "{place}" is {kind_of(place)}: name a directory on a mounted file system'
        )
    filesystem, source, mount = find_mount(place)
    if filesystem in IN_MEMORY:
        raise contract.NotApplicable(
            f'"{place}" is memory ({filesystem}), not a disk: choose with --path=DIRECTORY'
        )
    free_mib = shutil.disk_usage(place).free >> 20
    if free_mib < size_mib + reserve_mib:
        raise contract.Unmeasured(
            f'"{place}" has {free_mib} MiB free, expected {size_mib} for the file and '
            f"{reserve_mib} in reserve: free some, or choose with --path=DIRECTORY, --size_mib=N "
            "or --reserve_mib=N"
        )
    return filesystem, source, mount


def kind_of(place: Path) -> str:
    try:
        mode = place.stat().st_mode
    except OSError as error:
        return f"not to be had ({error.strerror})"
    kinds = {stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device"}
    return kinds.get(stat.S_IFMT(mode), "no directory")


def find_mount(place: Path) -> tuple[str, str, str]:
    """Return type, source and place of the innermost mount that has the directory's device
    number."""
    device, path = place.stat().st_dev, place.resolve()
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [("", "", str(path))]  # some file systems have numbers that no mount shows
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, kind = line.partition(" - ")
        _, _, its_number, _, point, *_ = mount.split()
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point)
        if its_number == number and path.is_relative_to(point):
            filesystem, source, *_ = kind.split()
            mounts.append((filesystem, source, point))
    return max(mounts[1:] or mounts, key=lambda entry: len(entry[2]))


@contextmanager
def filled_file(place: Path, size_mib: int) -> Iterator[BinaryIO]:
    try:
        remove_leftovers(place)
        file = nameless_file(place)
        fill(file, size_mib)
    except OSError as error:  # read-only, over quota, not ours to write, a failing disk
        raise contract.Unmeasured(f'"{place}" cannot be written to: {error.strerror}') from None
    with file:
        yield file


def nameless_file(place: Path) -> BinaryIO:
    """Open a file without a name; if the file system has no O_TMPFILE, it has a name for an
    instant."""
    try:
        number = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:
        number, name = tempfile.mkstemp(prefix=SCRATCH, dir=place)
        Path(name).unlink(missing_ok=True)
    return os.fdopen(number, "w+b")


def remove_leftovers(place: Path) -> None:
    """Remove files of runs that were killed in that instant: empty files of ours with such a
    name."""
    for leftover in place.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            state = leftover.lstat()
            empty = stat.S_ISREG(state.st_mode) and state.st_size == 0
            if empty and state.st_uid == os.getuid():
                leftover.unlink()


def fill(file: BinaryIO, size_mib: int) -> None:
    """Write real blocks with numbers in them: a hole, or zeros, would be read without the disk."""
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
    """Return one job per sample, one after the other, pattern by turns so that drift meets them
    all."""
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
        "percentile_list": ":".join(PERCENTILES.values()),
    }
    sections = ["[global]\n" + "".join(f"{key}={value}\n" for key, value in common.items())]
    turns = ["warm_up", *list(PATTERNS) * samples]
    for turn in turns:
        kind, block, in_flight, _ = PATTERNS.get(turn, PATTERNS["sequential_read"])
        sections.append(f"[{turn}]\nrw={kind}\nbs={block}\niodepth={in_flight}\n")
    return "\n".join(sections)


def run_fio(fio: str, jobs: str) -> dict[str, Any]:
    fio = subprocess.run(
        contract.bonded([fio, "--output-format=json", "-"]),
        input=jobs,
        capture_output=True,
        text=True,
    )
    if fio.returncode != 0:
        lines = (fio.stderr or fio.stdout).strip().splitlines() or ["nothing"]
        raise contract.Unmeasured(f'fio ended with {fio.returncode} and said "{lines[0]}"')
    document: dict[str, Any] = json.loads(fio.stdout[fio.stdout.index("{") :])  # after notes
    return document


def numbers_of(jobs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return fio's results per metric, in the order of the runs."""
    numbers: dict[str, list[float]] = {}
    for job in jobs:
        if job["jobname"] not in PATTERNS:
            continue
        kind, _, _, purpose = PATTERNS[job["jobname"]]
        pattern = job["jobname"].removesuffix("_alone")
        way = job[kind.removeprefix("rand")]
        if purpose == "bandwidth":
            numbers.setdefault(f"bandwidth_gbps:{pattern}", []).append(way["bw_bytes"] / 1e9)
            if kind.startswith("rand"):
                numbers.setdefault(f"iops:{pattern}", []).append(way["iops"])
            continue
        latency = way["clat_ns"]
        numbers.setdefault(f"latency_us:{pattern}/mean", []).append(latency["mean"] / 1e3)
        for name, percent in PERCENTILES.items():
            nanoseconds = latency["percentile"][percent]
            numbers.setdefault(f"latency_us:{pattern}/{name}", []).append(nanoseconds / 1e3)
    return numbers


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
