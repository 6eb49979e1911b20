"""Programs on a node with GPUs that are not there (tests/gpus), and whether it is like one."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import contract
import host_device_copy
import kit.each_gpu
import kit.gpus.nvml
import kit.host_memory
import kit.numa
import pytest
from fleets import spec

from anubis.config.catalog import parse_result
from anubis.core.campaign.state_machine import Failed, Launch, Measured
from anubis.core.records import MetricSpec, Node, Step, Workload
from anubis.reach.executors import guardian
from anubis.reach.executors.local import LocalExecutor
from anubis.reach.executors.machine import describe, free_port, parse_listing, port_range, sku_of
from anubis.reach.executors.programs import last_words, order, processes_on_each
from anubis.reach.executors.start_settings import Program, Rendezvous, StartSettings
from tests.contract.conftest import BENCHMARKS
from tests.gpus.node import plant_kfd_process, put_devices

MIXED = """
import torch

first, second = (torch.ones(4, device=torch.device("cuda", gpu)) for gpu in range(2))
generator = torch.Generator("cuda:1").manual_seed(7)
assert str((first + 1).device) == "cuda:0"
assert str(torch.randn(3, generator=generator, device="cuda:1").device) == "cuda:1"
assert str(second.to("cuda:0").device) == str(torch.nn.Parameter(first).device) == "cuda:0"
assert float(first.copy_(2 * second).sum()) == 8.0
for mix in (
    lambda: first + second,
    lambda: torch.randn(3, generator=generator, device="cpu"),
    lambda: torch.ones(1, device="cuda:2"),
):
    try:
        mix()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


UNDER_LOAD = {metric.name for metric in contract.UNDER_LOAD}


def measured(document):
    """The series of the program itself: every GPU that its driver reaches is watched beside it."""
    return [s for s in document["series"] if s["metric"].partition(":")[0] not in UNDER_LOAD]


def devices(document):
    return sorted({series["device"] for series in measured(document)})


def test_the_stand_in_for_cuda_refuses_as_cuda_does(run, gpu_node, tmp_path):
    program = tmp_path / "mixed.py"
    program.write_text(MIXED)
    ran = run(program, env=gpu_node(2).environment())
    assert ran.stderr == ""
    mixed, generator, beyond = ran.stdout.splitlines()
    assert "at least two devices, cuda:0 and cuda:1" in mixed
    assert generator == "Expected a 'cpu' device type for generator but found 'cuda'"
    assert beyond == "CUDA error: invalid device ordinal"


@pytest.mark.parametrize(
    ("chosen", "measured"), [(None, ["cuda:0", "cuda:1", "cuda:2"]), ("GPU-2", ["cuda:0"])]
)
def test_every_gpu_that_is_visible_is_measured(run, gpu_node, benchmark_file, chosen, measured):
    environment = gpu_node(3).environment()
    environment |= {"CUDA_VISIBLE_DEVICES": chosen} if chosen else {}
    ran = run(benchmark_file("kernel_launch"), "--smoke", env=environment)
    assert devices(ran.document) == measured
    models = ran.document["environment"]["gpu_models"]
    assert models == dict.fromkeys(measured, "NVIDIA H100 80GB HBM3")
    assert ran.document["environment"]["gpu_state"]["node"].keys() == {"GPU-0", "GPU-1", "GPU-2"}


def on(node, monkeypatch, **planted):
    """This process on that node."""
    environment = node.environment(**planted)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


# --- all GPUs at once -----------------------------------------------------------------------

EACH = """
import os, sys, time
sys.path.insert(0, {benchmarks!r})
import contract
from pathlib import Path
from kit.each_gpu import GPUS, each_gpu

HERE = Path(__file__).parent
BENCHMARK = contract.Benchmark(
    name="each", version="1", summary="", stresses="", reveals="", duration_s=1,
    metrics=(contract.higher("speed", "1"),),
    parameters=(GPUS, contract.Parameter("meet", 0, "so many at once", at_least=0),),
)

def measure(report, meet):
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    (HERE / gpu).touch()
    while len(list(HERE.glob("*-*"))) < meet:
        time.sleep(0.01)
    if gpu == os.environ.get("SICK"):
        time.sleep(1000)
    if gpu == os.environ.get("BROKEN"):
        raise RuntimeError("CUDA error: an illegal memory access\\nCompile with a flag")
    if gpu == os.environ.get("CRASHES"):
        print("each: a warning", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    report.add("speed", "cuda:0", [1 + len(list(HERE.glob("*-*")))])
    report.note(seen=gpu, cpus=str(sorted(os.sched_getaffinity(0))), state={{"cuda:0": gpu}})

contract.run(BENCHMARK, each_gpu(measure))
"""


@pytest.fixture
def each(tmp_path):
    program = tmp_path / "each" / "each.py"
    program.parent.mkdir()
    program.write_text(EACH.format(benchmarks=str(BENCHMARKS)))
    return program


def speeds(document):
    return {series["device"]: series["samples"] for series in measured(document)}


def test_all_gpus_are_measured_at_once_by_a_process_each_near_its_gpu(run, gpu_node, each):
    node = gpu_node(3)
    node.plant_numa({0: "0", 1: "1"}, near={0: 0, 1: 0, 2: 1})
    ran = run(each, "--meet=3", env=node.environment())
    assert speeds(ran.document) == {key: [4] for key in ("cuda:0", "cuda:1", "cuda:2")}
    facts = ran.document["environment"]
    assert facts["seen"] == {f"cuda:{i}": f"GPU-{i}" for i in range(3)}
    assert facts["state"] == {f"cuda:{i}": f"GPU-{i}" for i in range(3)}
    assert facts["cpus"]["cuda:0"] == facts["cpus"]["cuda:1"] == "[0]"
    assert ran.document["parameters"] == {"gpus": "at_once", "meet": 3}


def test_a_gpu_that_hangs_and_one_that_fails_cost_their_own_samples(run, gpu_node, each):
    planted = {"SICK": "GPU-1", "BROKEN": "GPU-2", "ANUBIS_LIMIT_S": 8, "NVML_lost_3": 1}
    planted |= {"CRASHES": "GPU-4"}
    ran = run(each, "--meet=3", env=gpu_node(5).environment(**planted))
    assert speeds(ran.document).keys() == {"cuda:0"}
    facts = ran.document["environment"]
    crash = 'it was killed by signal 9 (Killed); last words on stderr: "each: a warning"'
    failures = {"cuda:2": "CUDA error: an illegal memory access", "cuda:3": "GPU is lost"}
    assert facts["failed_devices"] == failures | {"cuda:4": crash}
    assert facts["silent_devices"].keys() == {"cuda:1"}
    assert facts["silent_devices"]["cuda:1"].startswith("no answer within 7.")


def test_if_every_gpu_fails_each_gives_its_reason(run, gpu_node, each):
    lost = {"NVML_lost": 1}
    ran = run(each, env=gpu_node(2).environment(**lost))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "each: cuda:0, cuda:1: GPU is lost\n"


def test_every_slice_of_a_gpu_is_measured(run, gpu_node, each):
    node = gpu_node(2)
    ran = run(each, env=node.environment(NVML_mig=1))
    assert ran.document["environment"]["seen"] == {"cuda:0": "MIG-0", "cuda:1": "MIG-1"}
    none = run(each, env=node.environment(NVML_mig=1, NVML_slices_1=0))
    reason = "MIG is on, and there is no slice to measure"
    assert none.document["environment"]["failed_devices"] == {"cuda:1": reason}


def test_a_driver_that_does_not_answer_leaves_the_numbers(monkeypatch, gpu_node):
    monkeypatch.setattr(kit.gpus.nvml, "begin", lambda: time.sleep(1000))
    monkeypatch.setattr(kit.each_gpu, "PATIENCE_S", 0.01)
    on(gpu_node(3), monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus, unnamed = kit.each_gpu.gpus()
    assert [(gpu.name, gpu.visible) for gpu in gpus] == [(f"cuda:{i}", str(i)) for i in range(3)]
    assert unnamed == {}


def test_a_gpu_that_fails_costs_the_copies_it_takes_part_in(run, gpu_node, benchmark_file):
    environment = gpu_node(3).environment(FAKE_FAULTS="2:copies")
    ran = run(benchmark_file("peer_copy"), "--smoke", "--size_bytes=64", env=environment)
    assert devices(ran.document) == ["cuda:0-cuda:1", "cuda:1-cuda:0"]
    failed = ran.document["environment"]["failed_devices"]
    assert failed["cuda:0-cuda:2"] == "CUDA error: uncorrectable ECC error encountered"
    assert len(failed) == 4


def test_the_line_that_states_a_failure_of_cuda_is_kept():
    stderr = """Traceback (most recent call last):
[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
[rank3]: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
train_cnn: CUDA error: uncorrectable ECC error encountered
[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:1234
"""
    spec = SimpleNamespace(launcher="torchrun")
    words = "train_cnn: CUDA error: uncorrectable ECC error encountered"
    assert last_words({"stderr": stderr}, spec) == words


# --- memory of the host ----------------------------------------------------------------------

GIB_KB = 1 << 20


def plant_memory(root, available_gib, **groups):
    """Plant what the kernel reports as available, and limit, use and cache of groups by folder."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemAvailable:  {int(available_gib * GIB_KB)} kB\n")
    (root / "proc/self/cgroup").write_text("4:memory:/job/step\n1:cpu:/x\n0::/job/step\n")
    for folder, (limit, used, cache) in groups.items():
        group = root / "sys/fs/cgroup" / folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.max").write_text(limit)
        (group / "memory.current").write_text(str(used))
        (group / "memory.stat").write_text(f"anon 7\ninactive_file {cache}\n")


@pytest.mark.parametrize(
    ("groups", "free_gib"),
    [
        ({}, 64),
        ({"job": (str(32 << 30), 30 << 30, 20 << 30), "job/step": ("max", 0, 0)}, 22),
        ({"job": (str(32 << 30), 0, 0), "job/step": (str(8 << 30), 7 << 30, 0)}, 1),
    ],
    ids=["no group", "a job's, less its cache", "a step's"],
)
def test_free_memory_is_the_rest_after_the_kernel_and_every_enclosing_group(
    tmp_path, groups, free_gib
):
    plant_memory(tmp_path, 64, **groups)
    assert kit.host_memory.free_bytes(tmp_path) == free_gib << 30


def test_groups_of_the_first_version_count_too_and_a_kernel_that_says_nothing_is_no_limit(tmp_path):
    assert kit.host_memory.free_bytes(tmp_path) is None
    plant_memory(tmp_path, 64)
    group = tmp_path / "sys/fs/cgroup/memory/job"
    group.mkdir(parents=True)
    for name, value in {"limit": 16, "usage": 6}.items():
        (group / f"memory.{name}_in_bytes").write_text(str(value << 30))
    assert kit.host_memory.free_bytes(tmp_path) == 10 << 30


def test_gpus_at_once_for_which_the_host_has_no_memory_are_refused_and_one_by_one_fit(
    run, gpu_node, each
):
    node = gpu_node(3)
    plant_memory(node.root, 5)
    refused = run(each, env=node.environment())
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "3 processes at once take up to 6.44 GB of host memory, and 5.37 GB" in refused.stderr
    ran = run(each, "--gpus=in_turn", env=node.environment())
    assert speeds(ran.document) == {"cuda:0": [2], "cuda:1": [3], "cuda:2": [4]}
    peaks = ran.document["environment"]["host_peak_bytes"]
    assert all(1 << 20 < peak < 2 << 30 for peak in peaks.values())


@pytest.fixture
def as_ranks(forked, tmp_path):
    """A program as an executor starts it on one node, with so many ranks."""

    def as_ranks(program, ranks, env):
        torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return forked.run([*torchrun, str(program), "--smoke"], env, tmp_path)

    return as_ranks


def test_a_group_for_which_a_node_of_gpus_has_no_memory_is_refused_once_for_all_its_ranks(
    as_ranks, benchmark_file, gpu_node
):
    node = gpu_node(4)
    plant_memory(node.root, 64, job=(str(8 << 30), 1 << 30, 0))
    ran = as_ranks(benchmark_file("train_transformer"), 4, node.environment())
    sentence = "4 processes at once take up to 8.59 GB of host memory, and 7.52 GB are free here"
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.count(sentence) == 1
    outcome = {"stderr": ran.stderr}
    told = SimpleNamespace(name="train_transformer", launcher="torchrun")
    assert last_words(outcome, told) == f"train_transformer: {sentence}: free some"


@pytest.mark.parametrize(
    ("gpus", "free_gib", "is_refused"),
    [(2, 4, False), (2, 3.9, True), (0, 1, False), (0, 0.9, True)],
)
def test_a_rank_without_cuda_takes_a_quarter_of_the_memory(
    monkeypatch, tmp_path, gpus, free_gib, is_refused
):
    put_devices(tmp_path, gpus)
    plant_memory(tmp_path, free_gib)
    node = {"ANUBIS_HOST_ROOT": str(tmp_path), "LOCAL_WORLD_SIZE": "2"}
    for name, value in node.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not kit.host_memory.shortage_of_ranks()  # the first rank has asked for all
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert bool(kit.host_memory.shortage_of_ranks()) is is_refused


def test_host_buffers_of_copies_count_near_and_on_every_other_node(monkeypatch):
    near = SimpleNamespace(index=0)
    monkeypatch.setattr(kit.numa, "nodes", lambda: [near, SimpleNamespace(index=1)])
    # two buffers each of pageable, of pinned, and of pinned memory on the other node
    assert host_device_copy.host_bytes(bytes="1000,50", samples=3) == 6 * 1050
    assert host_device_copy.host_bytes(bytes="auto", samples=3) == 6 << 28


# --- what a node is --------------------------------------------------------------------------

SKU = "nvidia-h100-80gb-hbm3"


@pytest.mark.parametrize(
    ("planted", "sku", "ranks"),
    [
        ({}, f"{SKU}-8x", 8),
        ({"NVML_inforom": 1}, f"{SKU}-8x", 8),
        ({"NVML_lost_3": 1}, f"{SKU}-7x", 8),
        ({"NVML_mig": 1}, f"{SKU}-mig-1g-10gb-8x", 8),
        ({"FAKE_GPUS": 0}, "nvidia-gpu-8x", 8),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "NVML_lost_3": 1}, f"{SKU}-2x", 2),
    ],
    ids=["whole", "infoROM damaged", "one lost", "sliced", "no answer", "two chosen"],
)
def test_a_node_with_gpus_is_none_without(gpu_node, monkeypatch, planted, sku, ranks):
    if "FAKE_GPUS" in planted:
        planted = {"NVML_inforom": 1, **planted}
    machine = describe("127.0.0.1", on(gpu_node(8), monkeypatch, **planted))
    assert (machine.sku, machine.gpus) == (sku, ranks)


def test_a_gpu_without_slices_is_one_and_a_sliced_one_is_its_slices():
    listing = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
"""
    card = "NVIDIA A100-SXM4-40GB"
    gpus = parse_listing(listing)
    assert gpus == [f"{card} MIG 3g.20gb"] * 2 + [card]
    assert sku_of(gpus, "") == "nvidia-a100-sxm4-40gb-mig-3g-20gb-2x-nvidia-a100-sxm4-40gb-1x"


PAIR = SimpleNamespace(exclusive=True, parameters=(), launcher="torchrun")


def test_all_nodes_of_a_step_are_started_the_same_way(gpu_node, monkeypatch, tmp_path):
    whole = describe("127.0.0.1", on(gpu_node(8), monkeypatch))
    blind = replace(whole, gpus=0)
    assert processes_on_each([blind, whole]) == 8
    pair_test = Rendezvous(address="10.0.0.1", port=1, processes=8, nodes=2)
    program = Program(file=tmp_path / "pair.py", spec=PAIR)
    for machine in (whole, blind):
        assert "--nproc-per-node=8" in order(program, {}, 60, machine, pair_test)["argv"]
    assert (processes_on_each([blind]), processes_on_each([blind, blind])) == (2, 1)


def test_variables_that_the_operator_set_on_a_node_stay(gpu_node, monkeypatch, tmp_path):
    chosen = {"NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": 3}
    machine = describe("127.0.0.1", on(gpu_node(8), monkeypatch, **chosen))
    pair_test = Rendezvous(address="10.0.0.1", port=1, processes=8, nodes=2)
    program = Program(file=tmp_path / "pair.py", spec=PAIR)
    assert order(program, {}, 60, machine, pair_test)["env"] == {"GLOO_SOCKET_IFNAME": "lo"}
    others = replace(machine, is_set=frozenset())
    assert order(program, {}, 60, others, pair_test)["env"]["NCCL_SOCKET_IFNAME"] == "=lo"


def test_a_program_gets_the_time_by_which_it_must_have_written(gpu_node, monkeypatch, tmp_path):
    machine = describe("127.0.0.1", on(gpu_node(2), monkeypatch))
    spec = SimpleNamespace(exclusive=True, parameters=())
    program = Program(file=tmp_path / "each.py", spec=spec)
    monkeypatch.setenv(
        kit.each_gpu.LIMIT, order(program, {}, 30, machine)["env"][kit.each_gpu.LIMIT]
    )
    assert 20 < kit.each_gpu.limit_s() < 30


# --- a GPU node never measures its CPU -------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "words"),
    [("7", 'CUDA_VISIBLE_DEVICES is "7", but torch'), ("GPU-7,GPU-6", "cuda:0, cuda:1: /dev has")],
)
def test_chosen_gpus_that_torch_does_not_see_are_no_cpu(
    run, gpu_node, benchmark_file, chosen, words
):
    environment = gpu_node(2).environment(CUDA_VISIBLE_DEVICES=chosen)
    ran = run(benchmark_file("kernel_launch"), "--smoke", env=environment)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert words in ran.stderr


def test_gpus_that_the_operator_hides_leave_a_cpu(run, gpu_node, benchmark_file):
    environment = gpu_node(2).environment(CUDA_VISIBLE_DEVICES="")
    assert devices(run(benchmark_file("kernel_launch"), "--smoke", env=environment).document) == [
        "cpu"
    ]


def test_ranks_without_a_gpu_of_their_own_do_not_turn_to_their_cpus(monkeypatch):
    import kit.group
    import kit.timing

    monkeypatch.setattr(kit.timing, "gpus", lambda: 7)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "8")
    with pytest.raises(contract.Unmeasured, match="7 GPUs, expected one for each of 8 ranks"):
        kit.group.join_ranks(contract.Report(frozenset())).__enter__()


# --- what a cluster's file says of starting programs ------------------------------------------


def run_here(folder, settings=None, **arguments):
    """A program that reports how the executor of this machine started it."""
    file = folder / "tells.py"
    file.write_text(TELLS)
    speed = MetricSpec(name="speed", unit="1", direction="higher")
    tells = spec("tells", duration_s=1.0, metrics=(speed,))
    workload = Workload.make("tells", "1", arguments)
    step = Step(
        id="0.0.0/tells/here",
        workload=workload,
        participants=("here",),
        phase=0,
        repeat=0,
        timeout_s=60,
        exclusive=True,
    )
    programs = {("tells", "1"): Program(file=file, spec=tells)}
    executor = LocalExecutor(Node(name="here", sku="any"), programs, parse_result, settings)
    with closing(executor):
        executor.launch(Launch(step=step, attempt=1))
        return [event for _ in range(2) for event in executor.wait(executor.now() + 60)][-1]


TELLS = """
import json, os, sys
mine = {k: v for k, v in os.environ.items() if k[:3] == "MY_"}
facts = {"arguments": sys.argv[1:], "variables": mine}
print(json.dumps({"schema": "anubis.result/1", "benchmark": "tells", "version": "1",
    "environment": facts, "series": [{"metric": "speed", "device": "cpu", "samples": [1]}]}))
"""


def test_programs_are_started_as_the_file_of_the_cluster_and_the_suite_say(tmp_path):
    settings = StartSettings(
        env={"MY_SITE": "1", "MY_SUITE": "1"}, prefix=("env", "MY_MODULE=nccl"), python="python3"
    )
    event = run_here(tmp_path, settings, size=3, **{"env.MY_SUITE": "Ring"})
    facts = event.result.environment
    assert facts["variables"] == {"MY_SITE": "1", "MY_SUITE": "Ring", "MY_MODULE": "nccl"}
    assert facts["arguments"] == ["--size=3"]


def test_a_node_with_gpus_in_use_is_left_alone(gpu_node, monkeypatch, tmp_path):
    stranger = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(guardian, "__file__", impatient(guardian.__file__, tmp_path))
    try:
        on(gpu_node(2), monkeypatch, NVML_foreign=stranger.pid)
        event = run_here(tmp_path)
        assert isinstance(event, Failed)
        assert event.infrastructure
        who = f"pid {stranger.pid} (sleep of {getpass.getuser()})"
        assert event.reason.endswith(f"the GPUs here are in use by {who}: the node is left alone")
        assert isinstance(run_here(tmp_path, StartSettings(shared_gpus=True)), Measured)
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    ("vram_bytes", "queues", "is_busy"), [(7351832576, 0, True), (0, 1, True), (0, 0, False)]
)
def test_a_node_with_amd_gpus_in_use_is_left_alone(
    monkeypatch, tmp_path, vram_bytes, queues, is_busy
):
    """By the kernel alone. A tool that only looks has the driver open, and neither of both."""
    plant_kfd_process(tmp_path, os.getpid(), 51545, vram_bytes, queues)
    monkeypatch.setenv("ANUBIS_HOST_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = guardian.occupied_by({}, patience_s=0)
    assert (f"in use by pid {os.getpid()} (" in said) is is_busy


@pytest.mark.parametrize(("taken_mib", "is_busy"), [(612, False), (61000, True)])
def test_a_node_whose_gpu_is_full_though_no_process_is_named_is_left_alone(
    gpu_node, monkeypatch, taken_mib, is_busy
):
    """As in a container, whose tools see no process of another one."""
    for name, value in gpu_node(2).environment(NVML_taken_mib_1=taken_mib).items():
        monkeypatch.setenv(name, value)
    refused = "GPU 1 has 59.6 of 140 GiB in use, by no process that a tool names: "
    said = guardian.occupied_by({}, patience_s=0)
    assert said == (f"{refused}the node is left alone" if is_busy else "")


def impatient(source, folder):
    """A guardian that looks twice and no longer."""
    copy = folder / "guardian.py"
    text = Path(source).read_text()
    assert "patience_s: float = 5.0" in text
    copy.write_text(text.replace("patience_s: float = 5.0", "patience_s: float = 0.6"))
    return str(copy)


def test_ports_are_of_the_range_that_the_file_allows():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match=f"no port of {taken}-{taken} is free"):
            free_port("127.0.0.1", f"{taken}-{taken}")
    assert free_port("127.0.0.1", f"{taken}-{taken}") == taken
    for words in ("", "1-", "20-10", "1-70000", "a-b"):
        with pytest.raises(ValueError, match="ports cannot be"):
            port_range(words)


# --- all of it -------------------------------------------------------------------------------


@pytest.mark.long
def test_the_script_tries_programs_on_such_a_node_and_names_failed_ones(run, nvml_library):
    words = ("--gpus=2", "--only=kernel_launch,dcgm_diag", "--plant", "FAKE_FAULTS=1:ecc")
    ran = run(Path(BENCHMARKS).parent / "scripts/studies/try-gpu-node", *words)
    assert ran.exit_code == 1, ran.stderr
    dcgm, kernel, summary = ran.stdout.splitlines()
    assert "ran, " in dcgm
    assert "on cuda:0; cuda:1: CUDA error: uncorrectable ECC error encountered;" in kernel
    assert kernel.endswith("  BAD")
    assert summary == "1 of 2 as they must be, kernel_launch (by itself)"
