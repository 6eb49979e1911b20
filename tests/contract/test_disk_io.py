"""disk_io against fio's own numbers, without fio, on memory, and when it is killed halfway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import disk_io
import pytest

FIO = shutil.which("fio")
needs_fio = pytest.mark.skipif(FIO is None, reason="fio is not installed")


@pytest.fixture
def on_disk(tmp_path):
    if disk_io.mounted(tmp_path)[0] in disk_io.IN_MEMORY:
        pytest.skip(f"{tmp_path} is memory, not a disk")
    return tmp_path


def test_without_fio_it_is_not_applicable_and_says_how_to_get_it(run, benchmark_file):
    ran = run(benchmark_file("disk_io"), "--smoke", env={"PATH": "/nonexistent"})
    assert ran.exit_code == 3
    assert ran.document["series"] == []
    assert "fio is not installed (apt-get install fio" in ran.document["not_applicable"]


@needs_fio
def test_its_numbers_are_those_that_fio_printed(run, benchmark_file, on_disk):
    (on_disk / "fio").write_text(f'#!/bin/sh\n{FIO} "$@" | tee {on_disk}/printed.json\n')
    (on_disk / "fio").chmod(0o755)
    data = on_disk / "data"
    data.mkdir()
    ran = run(
        benchmark_file("disk_io"),
        *("--smoke", f"--directory={data}"),
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
    assert samples("latency_us:random_read") == [r["clat_ns"]["mean"] / 1e3 for r in reads]
    # fio's bandwidth is bytes over time: checked from its other counters, to its rounding of 1 ms
    for sample, r in zip(samples("bandwidth_gbps:random_read"), reads, strict=True):
        assert sample == pytest.approx(r["io_bytes"] / (r["runtime"] / 1e3) / 1e9, rel=0.01)


@needs_fio
def test_a_directory_in_memory_is_no_disk(run, benchmark_file):
    memory = Path("/dev/shm")
    if disk_io.mounted(memory)[0] != "tmpfs":
        pytest.skip(f"{memory} is not a tmpfs here")
    ran = run(benchmark_file("disk_io"), "--smoke", f"--directory={memory}")
    assert ran.exit_code == 3
    assert "is memory (tmpfs), not a disk" in ran.document["not_applicable"]


@needs_fio
def test_a_device_or_an_absent_directory_is_refused(run, benchmark_file):
    for place in ("/dev/null", "/no/such/place"):
        ran = run(benchmark_file("disk_io"), "--smoke", f"--directory={place}")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert f'directory "{place}" is not a directory' in ran.stderr


@needs_fio
def test_a_disk_without_room_could_not_be_measured(run, benchmark_file, on_disk):
    ran = run(benchmark_file("disk_io"), "--size_mib=1000000000", f"--directory={on_disk}")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "MiB free, expected twice the file" in ran.stderr


def test_every_pattern_gets_as_many_jobs_as_samples_and_all_are_direct():
    text = disk_io.job_file("/data", size_mib=8, samples=3, sample_s=0.25, direct=True)
    for pattern in disk_io.PATTERNS:
        assert text.count(f"[{pattern}]") == 3
    assert "direct=1\n" in text
    assert "runtime=250ms\n" in text
    assert text.index("[random_write]") < text.rindex("[sequential_read]")  # by turns


@needs_fio
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_killed_halfway_it_leaves_no_file_and_no_fio(benchmark_file, on_disk, ending):
    program = subprocess.Popen(
        [sys.executable, benchmark_file("disk_io"), f"--directory={on_disk}", "--sample_s=100"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        fio = wait_for(lambda: next(filter(has_open(on_disk), children(program.pid)), None))
    finally:
        program.send_signal(ending)
        program.wait()
    assert list(on_disk.iterdir()) == []
    try:
        wait_for(lambda: not alive(fio), limit_s=10)
    finally:
        if alive(fio):
            os.kill(fio, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_open(directory: Path):
    """Whether a process has a file in the directory open, one without a name included."""

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


def wait_for(condition, limit_s: float = 30):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")
