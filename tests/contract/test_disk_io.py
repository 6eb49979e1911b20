"""disk_io against fio's own numbers, without fio, on memory, and when it is killed halfway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import disk_io
import pytest

from tests.patience import LIMIT_S, eventually

FIO = shutil.which("fio")
needs_fio = pytest.mark.skipif(FIO is None, reason="fio is not installed")


def with_mounts(mount: str, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs a program with mounts of its own, which end with it."""
    words = " ".join(map(str, (sys.executable, *command)))
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount} && exec {words}"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or with_mounts("true", "-c", "pass").returncode != 0,
    reason="mounting needs root",
)

PLANTED = f"""
import sys
sys.path.insert(0, {str(Path(disk_io.__file__).parent)!r})
import contract, disk_io
from tests.patience import LIMIT_S, eventually
{{fault}}
contract.run(disk_io.BENCHMARK, disk_io.measure)
"""


@contextmanager
def throttled_reads(directory: Path, bytes_per_second: int) -> Iterator[Callable[[], None]]:
    """A function by which a process joins a group whose reads from the directory's disk are
    limited."""
    limits = Path("/sys/fs/cgroup/blkio")
    number = directory.stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (disk / "partition").exists():
        disk = disk.parent
    if not (disk / "dev").exists() or not os.access(limits / "cgroup.procs", os.W_OK):
        pytest.skip("limiting a disk takes root, a cgroup of version 1 and a local disk")
    group = limits / f"anubis-test-{os.getpid()}"
    group.mkdir()
    try:
        limit = f"{(disk / 'dev').read_text().strip()} {bytes_per_second}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


@pytest.fixture
def on_disk():
    """Folders of tests may be in memory."""
    with TemporaryDirectory(prefix="anubis-disk-") as folder:
        if disk_io.find_mount(Path(folder))[0] in disk_io.IN_MEMORY:
            pytest.skip(f"{folder} is memory, not a disk")
        yield Path(folder)


def test_without_fio_disk_io_is_not_applicable_and_names_its_installation(run, benchmark_file):
    ran = run(benchmark_file("disk_io"), "--smoke", env={"PATH": "/nonexistent"})
    assert ran.exit_code == 3
    assert ran.document["series"] == []
    assert "fio is not installed (apt-get install fio" in ran.document["not_applicable"]


@needs_fio
def test_numbers_of_disk_io_are_those_that_fio_printed(run, benchmark_file, on_disk):
    (on_disk / "fio").write_text(f'#!/bin/sh\n{FIO} "$@" | tee {on_disk}/printed.json\n')
    (on_disk / "fio").chmod(0o755)
    data = on_disk / "data"
    data.mkdir()
    ran = run(
        benchmark_file("disk_io"),
        *("--smoke", f"--path={data}"),
        env={**os.environ, "PATH": f"{on_disk}:{os.environ['PATH']}"},
    )
    assert ran.exit_code == 0, ran.stderr
    assert list(data.iterdir()) == []
    jobs = json.loads((on_disk / "printed.json").read_text())["jobs"]
    reads = [job["read"] for job in jobs if job["jobname"] == "random_read"]
    writes = [job["write"] for job in jobs if job["jobname"] == "sequential_write"]
    assert len(reads) == len(writes) == 2  # --smoke asks for two runs of each
    assert all(job["job options"]["rw"] == "randread" for job in jobs if job["read"] in reads)
    tail = "" if ran.document["environment"]["direct"] else "_buffered"

    def samples(metric: str) -> list[float]:
        return ran.samples(metric + tail)

    assert samples("bandwidth_gbps:sequential_write") == [w["bw_bytes"] / 1e9 for w in writes]
    assert samples("iops:random_read") == [r["iops"] for r in reads]
    alone = [job["read"]["clat_ns"] for job in jobs if job["jobname"] == "random_read_alone"]
    assert samples("latency_us:random_read/mean") == [clat["mean"] / 1e3 for clat in alone]
    tails = [clat["percentile"]["99.900000"] / 1e3 for clat in alone]
    assert samples("latency_us:random_read/p99.9") == tails
    # fio's bandwidth is bytes over time: checked from its other counters, to its rounding of 1 ms
    for sample, r in zip(samples("bandwidth_gbps:random_read"), reads, strict=True):
        assert sample == pytest.approx(r["io_bytes"] / (r["runtime"] / 1e3) / 1e9, rel=0.01)


@needs_fio
def test_a_directory_in_memory_is_no_disk(run, benchmark_file):
    memory = Path("/dev/shm")
    if disk_io.find_mount(memory)[0] != "tmpfs":
        pytest.skip(f"{memory} is not a tmpfs here")
    ran = run(benchmark_file("disk_io"), "--smoke", f"--path={memory}")
    assert ran.exit_code == 3
    assert "is memory (tmpfs), not a disk" in ran.document["not_applicable"]


@needs_fio
def test_a_device_or_an_absent_directory_is_refused(run, benchmark_file):
    places = {
        "/dev/null": "a character device",
        "/no/such/place": "not to be had (No such file or directory)",
        __file__: "no directory",
    }
    if disks := [disk for disk in Path("/dev").iterdir() if disk.is_block_device()]:
        places[str(disks[0])] = "a block device"
    for place, what in places.items():
        ran = run(benchmark_file("disk_io"), "--smoke", f"--path={place}")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert f'path "{place}" is {what}' in ran.stderr
        assert ran.stderr.count("\n") == 1


@needs_fio
def test_a_disk_without_room_could_not_be_measured(run, benchmark_file, on_disk):
    ran = run(benchmark_file("disk_io"), "--size_mib=1000000000", f"--path={on_disk}")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "MiB free, expected 1000000000 for the file and 1024 in reserve" in ran.stderr
    total_mib = shutil.disk_usage(on_disk).total >> 20  # what is free may grow meanwhile
    ran = run(
        benchmark_file("disk_io"), "--smoke", f"--reserve_mib={total_mib}", f"--path={on_disk}"
    )
    assert ran.exit_code == 1


@needs_fio
def test_a_file_that_may_not_grow_could_not_be_measured(run, on_disk):
    """As over quota: the kernel refuses the write halfway."""
    limited = on_disk / "limited.py"
    limited.write_text(
        PLANTED.format(
            fault="""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"""
        )
    )
    ran = run(limited, "--smoke", f"--path={on_disk}")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == f'disk_io: "{on_disk}" cannot be written to: File too large\n'
    assert list(on_disk.iterdir()) == [limited]


@needs_fio
@needs_mounts
def test_a_read_only_mount_could_not_be_measured(benchmark_file, on_disk):
    ran = with_mounts(
        f"mount --bind {on_disk} {on_disk} && mount -o remount,bind,ro {on_disk}",
        *(benchmark_file("disk_io"), "--smoke", f"--path={on_disk}"),
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f'disk_io: "{on_disk}" cannot be written to: Read-only file system\n'


@pytest.mark.long
@needs_fio
@needs_mounts
def test_without_o_direct_the_metrics_have_other_names(on_disk):
    """ramfs has no direct I/O; that it is memory is hidden from the program."""
    planted = on_disk / "planted.py"
    planted.write_text(PLANTED.format(fault='disk_io.check = lambda *a: ("ramfs", "ramfs", "/r")'))
    (on_disk / "ram").mkdir()
    ran = with_mounts(
        f"mount -t ramfs ramfs {on_disk}/ram",
        *(planted, "--smoke", f"--path={on_disk}/ram"),
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["environment"]["direct"] is False
    assert all(series["metric"].endswith("_buffered") for series in document["series"])


@pytest.mark.long
@needs_fio
def test_a_throttled_disk_reads_slower(benchmark_file, on_disk):
    """The kernel limits what a group of processes reads from the disk, and not what it writes."""
    limit_mb = 20
    with throttled_reads(on_disk, limit_mb * 1_000_000) as join:
        plain, slow = (
            subprocess.run(
                [sys.executable, benchmark_file("disk_io"), "--smoke", f"--path={on_disk}"],
                capture_output=True,
                preexec_fn=enter,
            )
            for enter in (None, join)
        )

    def read_mb(ran: subprocess.CompletedProcess[bytes]) -> float:
        series = json.loads(ran.stdout)["series"]
        (read,) = [s for s in series if s["metric"].startswith("bandwidth_gbps:sequential_read")]
        return 1e3 * min(read["samples"])

    if read_mb(plain) < 4 * limit_mb:
        pytest.skip(f"this disk reads {read_mb(plain):.0f} MB/s, too little to throttle")
    assert read_mb(slow) < 1.5 * limit_mb


def test_every_pattern_gets_as_many_jobs_as_samples_and_all_are_direct():
    text = disk_io.job_file("/data", size_mib=8, samples=3, sample_s=0.25, direct=True)
    for pattern in disk_io.PATTERNS:
        assert text.count(f"[{pattern}]") == 3
    assert "direct=1\n" in text
    assert "runtime=250ms\n" in text
    assert "direct=0\n" in disk_io.job_file("/data", 8, 3, 0.25, direct=False)
    assert text.index("[random_write]") < text.rindex("[sequential_read]")  # by turns


def test_leftovers_are_removed_only_if_they_are_surely_ours(tmp_path):
    ours = tmp_path / f"{disk_io.SCRATCH}abc"
    ours.touch()
    kept = [tmp_path / f"{disk_io.SCRATCH}full", tmp_path / "anubis-disk_io-abc"]
    kept[0].write_text("somebody's data")
    kept[1].touch()
    kept.append(tmp_path / f"{disk_io.SCRATCH}link")
    kept[2].symlink_to(kept[0])
    disk_io.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_without_o_tmpfile_the_file_has_no_name_either(tmp_path, monkeypatch):
    real_open = os.open

    def refusing(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    with disk_io.nameless_file(tmp_path) as file:
        file.write(b"1")
        assert list(tmp_path.iterdir()) == []


def test_the_innermost_mount_is_named():
    assert disk_io.find_mount(Path("/proc")) == ("proc", "proc", "/proc")


@needs_fio
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_killed_while_fio_runs_it_leaves_nothing(benchmark_file, on_disk, ending):
    program = started(benchmark_file, on_disk, "--size_mib=64")
    try:
        fio = eventually(lambda: next(filter(has_open(on_disk), children(program.pid)), None))
    finally:
        program.send_signal(ending)
        program.wait()
    try:
        assert eventually(lambda: not alive(fio))
    finally:
        if alive(fio):
            os.kill(fio, signal.SIGKILL)
    assert eventually(lambda: not segments_of(fio))  # the kernel takes a moment after death
    assert list(on_disk.iterdir()) == []


@needs_fio
@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.4])
def test_killed_before_that_it_leaves_nothing(benchmark_file, on_disk, after_s):
    program = started(benchmark_file, on_disk, "--size_mib=512")
    time.sleep(after_s)
    program.kill()
    program.wait()
    assert list(on_disk.iterdir()) == []
    assert not [pid for pid in all_processes() if has_open(on_disk)(pid)]


def started(benchmark_file, on_disk: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, benchmark_file("disk_io"), f"--path={on_disk}", "--sample_s=100", *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def segments_of(pid: int) -> list[str]:
    """The System V shared memory that a process made, and that is still there."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    creator = lines[0].split().index("cpid")
    return [line for line in lines[1:] if line.split()[creator] == str(pid)]


def all_processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_open(directory: Path):
    """Check whether a process has a file in the directory open, one without a name included."""

    def has_open(pid: int) -> bool:
        try:
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            return False
        return any(link.startswith(f"{directory}/") for link in links)

    return has_open


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
