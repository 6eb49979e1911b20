"""NUMA nodes, memory latency and bandwidth: against the kernel's books and closed forms."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import subprocess
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contract
import cpu_memory_latency as latency
import kit.group
import kit.numa
import memory_bandwidth as bandwidth
import numpy as np
import pytest
import torch

BENCHMARKS = Path(kit.numa.__file__).parents[1]
CPUS = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="two nodes need two CPUs")
needs_loop = pytest.mark.skipif(platform.machine() not in latency.CODE, reason="no loop for it")


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Nodes as sysfs shows them: per node its CPUs, its GiB of memory, its distances."""

    def plant(nodes: dict[int, tuple[str, int, str]], memory_allowed: str) -> None:
        for index, (cpus, gib, distances) in nodes.items():
            folder = tmp_path / f"devices/system/node/node{index}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{cpus}\n")
            (folder / "meminfo").write_text(f"Node {index} MemTotal:   {gib << 20} kB\n")
            (folder / "distance").write_text(f"{distances}\n")
        (tmp_path / "status").write_text(f"Name:\tx\nMems_allowed_list:\t{memory_allowed}\n")
        monkeypatch.setattr(kit.numa, "SYS", tmp_path)
        monkeypatch.setattr(kit.numa, "STATUS", tmp_path / "status")

    return plant


@pytest.fixture
def two_nodes(plant):
    plant({0: (f"{CPUS[0]}", 2, "10 21"), 1: (f"{CPUS[1]}", 2, "21 10")}, "0-1")


# --- what sysfs says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0,2-3,7-7", {0, 2, 3, 7})],
)
def test_lists_of_the_kernel_are_read(text, numbers):
    assert kit.numa.parse_list(f"{text}\n") == numbers
    assert kit.numa.parse_list(kit.numa.show_list(numbers).replace("none", "")) == numbers


def test_a_node_has_only_the_cpus_and_the_memory_that_this_process_may_use(plant):
    plant(
        {
            0: (f"{CPUS[0]},4000-4003", 64, "10 21 40"),
            1: ("4004-4007", 64, "21 10 40"),  # as in a container with the CPUs of node 0
            8: ("", 96, "40 40 10"),  # memory without CPUs, as that of a GPU
        },
        memory_allowed="0,8",
    )
    (node,) = kit.numa.nodes()
    assert (node.name, node.cpus, node.memory_bytes) == ("numa0", {CPUS[0]}, 64 << 30)
    assert node.distances == {0: 10, 1: 21, 8: 40}
    assert [n.memory_bytes >> 30 for n in kit.numa.all_nodes()] == [64, 0, 96]
    assert kit.numa.summary() == (
        f"numa0: CPUs {CPUS[0]} of {CPUS[0]},4000-4003, 64 GiB; "
        "numa1: CPUs none of 4004-4007, 0 GiB; numa8: CPUs none of none, 96 GiB"
    )


def test_a_kernel_without_numa_is_one_node_with_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(kit.numa, "SYS", tmp_path)
    (node,) = kit.numa.nodes()
    assert node.cpus == set(CPUS)
    kib = int(contract.value_after("/proc/meminfo", "MemTotal").split()[0])
    assert node.memory_bytes == pytest.approx(kib << 10, rel=0.01)


@needs_two_cpus
def test_the_node_nearest_to_a_gpu_is_that_of_its_pci_address(two_nodes, tmp_path):
    for address, node in {"0000:1b:00.0": 1, "0000:2c:00.0": -1, "10000:01:00.0": 0}.items():
        folder = tmp_path / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    assert kit.numa.nearest("00000000:1B:00.0").index == 1  # as NVML writes it
    assert kit.numa.nearest("0000:1B:00.0").index == 1  # as CUDA does
    assert kit.numa.nearest("00010000:01:00.0").index == 0
    assert kit.numa.nearest("0000:2C:00.0") is None  # as in most virtual machines
    assert kit.numa.nearest("0000:3D:00.0") is None


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for a driver of our own")
def test_the_pci_address_is_asked_of_the_driver_by_the_gpus_number(tmp_path):
    (tmp_path / "cuda.c").write_text(
        """
        #include <stdio.h>
        static int ready;
        int cuInit(unsigned flags) { ready = 1; return 0; }
        int cuDeviceGet(int *device, int index) { *device = index + 16; return index > 1; }
        int cuDeviceGetPCIBusId(char *text, int length, int device) {
            if (!ready) return 3;
            snprintf(text, length, "0000:%02X:00.0", device);
            return 0;
        }
        """
    )
    library = tmp_path / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "cuda.c")]
    subprocess.run(command, check=True)
    assert kit.numa.bus_id(1, str(library)) == "0000:11:00.0"
    assert kit.numa.bus_id(2, str(library)) is None  # the driver refuses
    assert kit.numa.bus_id(0, str(tmp_path / "none.so")) is None


# --- being bound ---------------------------------------------------------------------------


def cpus_of_threads() -> set[str]:
    """The CPUs on which each thread of this process may run, by the kernel."""
    status = (task / "status" for task in Path("/proc/self/task").iterdir())
    return {contract.value_after(file, "Cpus_allowed_list") for file in status}


def books_of(area: mmap.mmap) -> str:
    """The kernel's line about a mapping: its policy, and its pages by node."""
    lines = Path("/proc/thread-self/numa_maps").read_text().splitlines()
    start = kit.numa.address_of(area)
    return next(f"{line} " for line in reversed(lines) if int(line.split()[0], 16) <= start)


@needs_two_cpus
def test_all_threads_run_on_the_bound_node_and_return_afterwards(two_nodes):
    go_on = threading.Event()
    other = threading.Thread(target=go_on.wait)
    other.start()
    try:
        before = cpus_of_threads()
        with kit.numa.bound_to(kit.numa.nodes()[1]):
            assert cpus_of_threads() == {str(CPUS[1])}
        assert cpus_of_threads() == before
        with kit.numa.bound_to(None):
            assert cpus_of_threads() == before
    finally:
        go_on.set()
        other.join()


def test_a_thread_that_ends_meanwhile_causes_no_error(monkeypatch):
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        threads = [gone.pid, *kit.numa._threads()]
    monkeypatch.setattr(kit.numa, "_threads", lambda: threads)
    before = cpus_of_threads()
    with kit.numa.bound_to(kit.numa.all_nodes()[0]):
        assert len(cpus_of_threads()) == 1
    assert cpus_of_threads() == before


@pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists() or kit.numa._policy() is None,
    reason="no memory policies here",
)
def test_bound_memory_is_on_its_node():
    node = kit.numa.nodes()[0]
    area = kit.numa.pages(64 * mmap.PAGESIZE, node)
    assert f" bind:{node.index} " in books_of(area)
    assert f" N{node.index}=64 " in books_of(area)
    plain = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert " default " in books_of(plain)
    with kit.numa.bound_to(node):
        assert f" bind:{node.index} " in books_of(plain)
    assert " default " in books_of(plain)


# --- latency -------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 2, 64, 1000])
def test_the_pointers_form_one_cycle_through_all_lines(lines):
    after, line, seen = latency.cycle(lines), 0, set()
    for _ in range(lines):
        line = int(after[line])
        seen.add(line)
    assert line == 0
    assert seen == set(range(lines))


def test_the_cycle_is_in_no_order_that_a_prefetcher_could_guess():
    after = latency.cycle(10_000)
    _, counts = np.unique(after - np.arange(10_000), return_counts=True)
    assert counts.max() < 10


@needs_loop
@pytest.mark.parametrize("hops", [1, 2, 999, 5000])
def test_the_machine_code_follows_the_pointers_as_python_does(hops):
    lines = 1000
    area = kit.numa.pages(lines * 64, kit.numa.nodes()[0])
    start = latency.lay_out(area, lines * 64)
    after, line = latency.cycle(lines), 0
    for _ in range(hops):
        line = int(after[line])
    chase = latency.load(latency.CODE[platform.machine()])
    assert chase(start, hops) == start + 64 * line


def test_a_processor_that_it_has_no_loop_for_is_not_applicable():
    with pytest.raises(contract.NotApplicable, match="no loop for"):
        latency.load(None)


# That memory is slower than caches, and a throttled CPU than a whole one, is for
# scripts/studies/show-memory to show: it takes a quiet machine.


def test_time_in_which_the_cpu_was_taken_away_counts_as_latency():
    hops_of = []

    def chase(start: int, hops: int) -> int:
        hops_of.append(hops)
        time.sleep(0.05)
        return start

    latencies = latency.latencies_ns(chase, 0, samples=3, sample_s=0.05)
    assert all(ns * hops >= 0.05e9 for ns, hops in zip(latencies, hops_of[1:], strict=True))


@needs_loop
@needs_two_cpus
def test_every_node_chases_through_its_own_memory_and_at_the_largest_size_through_all(two_nodes):
    report = contract.Report(frozenset({"latency_ns"}))
    latency.measure(report, bytes="65536,8192", samples=2, sample_s=1e-4)
    assert {(s["metric"], s["device"]) for s in report.series} == {
        *(("latency_ns:8192", node) for node in ("numa0", "numa1")),
        *(("latency_ns:65536", pair) for pair in ("numa0", "numa1")),
        *(("latency_ns:65536", pair) for pair in ("numa0-numa1", "numa1-numa0")),
    }


@pytest.mark.parametrize("sizes", ["", "4k", "16384,64", "-16384"])
def test_sizes_that_cannot_be_are_refused(sizes, near, benchmark_file):
    ran = near(benchmark_file("cpu_memory_latency"), f"--bytes={sizes}")
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


@needs_loop
def test_a_kernel_with_pages_of_64_kib_measures_sizes_below_one_page(
    near, benchmark_file, monkeypatch
):
    monkeypatch.setattr(mmap, "PAGESIZE", 1 << 16)  # as on many aarch64 systems
    words = ("--bytes=16384", "--samples=1", "--sample_s=0.001")
    ran = near(benchmark_file("cpu_memory_latency"), *words)
    assert ran.exit_code == 0, ran.stderr
    assert ran.document["environment"]["page_bytes"] == 1 << 16


def test_an_array_larger_than_memory_could_not_be_measured(near, benchmark_file):
    ran = near(benchmark_file("cpu_memory_latency"), f"--bytes={1 << 50}")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "too little for an array" in ran.stderr


@needs_two_cpus
def test_a_thread_placed_near_a_gpu_runs_there_and_names_the_node(two_nodes, monkeypatch):
    far = kit.numa.nodes()[1]
    monkeypatch.setattr(kit.numa, "nearest_to_gpu", lambda index: far if index == 3 else None)

    def place(index):  # in a thread of its own, which alone is moved
        return kit.numa.stay_near_gpu(index), os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(place, 0).result() == (None, set(CPUS))
        assert thread.submit(place, 3).result() == (far, set(far.cpus))
    assert sorted(os.sched_getaffinity(0)) == CPUS


def test_the_nodes_of_the_ranks_are_reported_once_for_all():
    names = ["numa0"] * 4 + ["numa1"] * 4
    assert kit.group.ranks_on(names) == "numa0: 4 ranks, numa1: 4 ranks"
    assert kit.group.ranks_on([""] * 8) == ""


# --- bandwidth -----------------------------------------------------------------------------

# STREAM 5.10 on 120,000,000 elements, as recorded: best rate in MB/s, least time in seconds
STREAM = {
    "copy": (108180.5, 0.017748),
    "scale": (108572.8, 0.017684),
    "add": (104571.7, 0.027541),
    "triad": (105256.0, 0.027362),
}


@pytest.mark.parametrize("kernel", STREAM)
def test_bytes_are_counted_as_stream_counts_them(kernel):
    mb_per_s, seconds = STREAM[kernel]
    rate = bandwidth.rate_gbps(kernel, 120_000_000, seconds)
    assert rate == pytest.approx(mb_per_s / 1e3, rel=1e-4)  # STREAM prints microseconds


def test_time_in_which_the_cpu_was_taken_away_costs_bandwidth(monkeypatch):
    idle = lambda: time.sleep(0.05), lambda: 0
    monkeypatch.setattr(bandwidth, "kernel", lambda *_: idle)
    report, cpu = contract.Report(frozenset({"bandwidth_gbps", "agreement"})), torch.device("cpu")
    bandwidth.stream(report, "bandwidth_gbps", "cpu", cpu, ["triad"], 1 << 20, samples=3)
    most = bandwidth.rate_gbps("triad", (1 << 20) // bandwidth.ITEM_BYTES, 0.05)
    assert all(0 < rate <= most for rate in report.series[0]["samples"])


BY_NUMPY = {
    "copy": lambda b, c: b,
    "scale": lambda b, c: 3 * b,
    "add": lambda b, c: b + c,
    "triad": lambda b, c: b + 3 * c,
    "write": lambda b, c: np.full_like(b, 3),
}


def arrays(elements: int = 10_000) -> list[torch.Tensor]:
    return [bandwidth.whole_numbers(elements, torch.device("cpu"), step) for step in (1, 3, 7)]


@pytest.mark.parametrize("name", BY_NUMPY)
def test_each_kernel_computes_its_operation_and_counts_each_wrong_element(name):
    a, b, c = arrays()
    call, wrong = bandwidth.kernel(name, a.zero_(), b, c)
    assert wrong() > 5000  # nothing was computed yet
    call()
    assert np.array_equal(a.numpy(), BY_NUMPY[name](b.numpy(), c.numpy()))
    assert wrong() == 0
    a[17] += 1
    a[9_999] = float("nan")
    assert wrong() == 2


def test_a_sum_that_misses_a_bit_is_wrong():
    a, b, c = arrays()
    call, wrong = bandwidth.kernel("read", a, b, c)
    call()
    assert wrong() == 0
    b[4321] += 1  # as if it had been read wrong
    assert wrong() == 1


def test_wrong_bits_are_a_measured_metric(monkeypatch):
    sound = torch.add

    def spoilt(*terms, out, **more):
        sound(*terms, out=out, **more)[5] += 1

    monkeypatch.setattr(torch, "add", spoilt)
    report = contract.Report(frozenset({"bandwidth_gbps", "agreement"}))
    names, cpu = ["copy", "triad"], torch.device("cpu")
    bandwidth.stream(report, "bandwidth_gbps", "cpu", cpu, names, 80_000, samples=1)
    assert report.series[-1] == {"metric": "agreement", "device": "cpu", "samples": [0.5]}


def stuck_at_1(chunks):
    chunks[1][500] |= 1 << 20


def one_word_in_anothers_place(chunks):
    chunks[2][7] = chunks[0][7]


def one_row_in_anothers_place(chunks):
    chunks[2][100:200] = chunks[2][300:400].clone()


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (lambda chunks: None, 0),
        (stuck_at_1, 1),  # right in one of the two passes
        (one_word_in_anothers_place, 2),
        (one_row_in_anothers_place, 200),
    ],
)
def test_a_pattern_in_all_memory_finds_stuck_and_misdirected_writes(monkeypatch, fault, wrong):
    write_all = bandwidth.write_all

    def with_a_fault(chunks, inverted):
        write_all(chunks, inverted)
        fault(chunks)

    monkeypatch.setattr(bandwidth, "write_all", with_a_fault)
    chunks = [torch.zeros(1000, dtype=torch.int32) for _ in range(3)]
    assert bandwidth.wrong_in_pattern(chunks) == wrong


def test_all_memory_that_is_free_on_a_gpu_is_filled_but_a_little(monkeypatch):
    import kit.copies

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (79 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    filled: list[int] = []
    monkeypatch.setattr(kit.copies, "words", lambda size, device: filled.append(size))
    monkeypatch.setattr(bandwidth, "wrong_in_pattern", lambda chunks: 0)
    report = contract.Report(frozenset({"agreement"}))
    bandwidth.check_all_memory(report, 3)
    assert 78 << 30 <= sum(filled) <= 79 << 30
    assert report.notes["checked_share"] == {"cuda:3": 0.975}
    assert report.series[0]["metric"] == "agreement:pattern"


def test_arrays_are_four_times_all_last_caches_and_leave_half_of_the_memory(tmp_path):
    for cpu, (last, size, shared) in enumerate(
        [(3, "32768K", "0-1"), (3, "32768K", "0-1"), (3, "65536K", "2"), (2, "1024K", "3")]
    ):
        for level in range(last + 1):
            folder = tmp_path / f"cpu{cpu}/cache/index{level}"
            folder.mkdir(parents=True)
            (folder / "size").write_text(f"{size if level == last else '32K'}\n")
            (folder / "shared_cpu_list").write_text(f"{shared if level == last else cpu}\n")
    (tmp_path / "cpu4/cache").mkdir(parents=True)  # a machine that hides its caches
    assert bandwidth.last_caches_bytes(tmp_path) == (32 + 64 + 1) << 20
    assert bandwidth.cpu_size(97 << 20, 1 << 40) == 388 << 20
    assert bandwidth.cpu_size(0, 1 << 40) == 256 << 20
    assert bandwidth.cpu_size(1 << 30, 6 << 30) == 1 << 30


def test_only_gpus_on_a_node_without_any_is_not_applicable(near, benchmark_file):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    ran = near(benchmark_file("memory_bandwidth"), "--smoke", "--parts=gpu")
    assert ran.exit_code == 3
    assert "there is none here" in ran.document["not_applicable"]


@pytest.mark.parametrize("argument", ["--parts=disk", "--kernels=copy,fly", "--kernels=,"])
def test_unknown_arguments_of_memory_bandwidth_are_refused(near, benchmark_file, argument):
    ran = near(benchmark_file("memory_bandwidth"), "--smoke", argument)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


PLANTED = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from pathlib import Path
import kit.numa, contract, memory_bandwidth, torch
kit.numa.SYS, kit.numa.STATUS = Path({{folder!r}}), Path({{folder!r}}, "status")
stream = memory_bandwidth.stream
def spoken(report, metric, where, *rest):
    report.note(**{{{{where: f"{{{{torch.get_num_threads()}}}} threads"}}}})
    stream(report, metric, where, *rest)
memory_bandwidth.stream = spoken
measure = memory_bandwidth.each_gpu(memory_bandwidth.measure, memory_bandwidth.measure_host)
contract.run(memory_bandwidth.BENCHMARK, measure)
"""


@needs_two_cpus
def test_each_of_several_nodes_streams_through_its_own_memory(two_nodes, tmp_path, run):
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED.format(folder=str(tmp_path)))
    ran = run(planted, "--smoke", "--kernels=triad")
    assert ran.exit_code == 0, ran.stderr
    rates = [s["device"] for s in ran.document["series"] if s["metric"] == "bandwidth_gbps:triad"]
    assert rates == ["cpu", "numa0", "numa1"]
    threads = [ran.document["environment"][where] for where in rates]
    assert threads == [f"{len(CPUS)} threads", "1 threads", "1 threads"]


def test_the_ceiling_of_bandwidth_comes_from_the_table_of_gpus():
    known = types.SimpleNamespace(hbm_gbps=4800.0, source="data sheet")
    report = contract.Report(frozenset({"hbm_gbps"}))
    bandwidth.state_ceilings(report, None, ["copy"])
    assert report.notes == {}
    bandwidth.state_ceilings(report, known, ["copy", "read"])
    ceiling = {"value": 4800.0, "source": "data sheet"}
    assert report.notes["ceilings"] == {"hbm_gbps:copy": ceiling, "hbm_gbps:read": ceiling}
