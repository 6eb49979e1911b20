"""GPUs that are not NVIDIA's: AMD's are seen and never measured as processors, Intel's are told.

The kernel's files are as they stand on nodes with MI300X; the tools' JSON is laid out as by amd-smi
of ROCm 6.1 and 7.2, and by rocm-smi.
"""

from __future__ import annotations

import os
import time
import types

import kit.arithmetic
import kit.cards
import kit.each_gpu
import pytest
import torch

from anubis.reach.executors.machine import describe
from tests.gpus.node import KFD_BANK, MI300X, GpuNode, plant_kfd

LIST = """WARNING: User is missing the following required groups: render
[{}]
"""
CARD = (
    """{{"gpu": {}, "asic": {{"market_name": "AMD Instinct MI300X OAM", "vendor_id": "0x1002"}}}}"""
)
TOOLS = {
    "amd-smi 6": ("amd-smi", LIST.format(", ".join(CARD.format(gpu) for gpu in range(8)))),
    "amd-smi 7": (
        "amd-smi",
        '{"gpu_data": [' + ", ".join(CARD.format(gpu) for gpu in range(8)) + "]}",
    ),
    "rocm-smi": (
        "rocm-smi",
        "{"
        + "".join(
            f'"card{gpu}": {{"Card Series": "AMD Instinct MI300X OAM"}}, ' for gpu in range(8)
        )
        + '"system": {"Driver version": "6.8.5"}}',
    ),
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOST_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in kit.cards.CHOOSING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def amd(root):
    """A node with so many GPUs of a version beside its processor, each with memory of its own."""

    def amd(count: int, version: int = MI300X, own_bytes: int = 0) -> None:
        plant_kfd(root, count, version, own_bytes)

    return amd


def put_tool(root, name, answer):
    (root / name).write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    (root / name).chmod(0o755)


@pytest.mark.parametrize(("name", "answer"), TOOLS.values(), ids=TOOLS)
def test_a_node_of_amds_is_called_what_its_tool_calls_it(root, amd, name, answer):
    amd(8)
    put_tool(root, name, answer)
    machine = describe("127.0.0.1", os.environ)
    assert (machine.sku, machine.gpus) == ("amd-instinct-mi300x-oam-8x", 8)


@pytest.mark.parametrize("answer", ["", "[", "[]", '{"gpu_data": [{"asic": {}}]}'])
def test_a_node_of_amds_without_an_answer_is_called_by_its_chips(root, amd, answer):
    amd(8)
    put_tool(root, "amd-smi", answer)
    machine = describe("127.0.0.1", os.environ)
    assert (machine.sku, machine.gpus) == ("amd-gfx942-8x", 8)


def test_lists_of_visible_gpus_of_amds_count_and_the_shortest_of_several(root, amd):
    amd(8)
    environment = {**os.environ, "ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "0,1"}
    assert describe("127.0.0.1", environment).gpus == 2
    assert kit.cards.visible_gpus(environment) == ["0", "1"]


@pytest.mark.parametrize(
    ("lists", "one"),
    [
        ({}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, {"ROCR_VISIBLE_DEVICES": "5"}),
        # the second counts what the first leaves
        (
            {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1"},
            {"HIP_VISIBLE_DEVICES": "1"},
        ),
    ],
)
def test_one_gpu_of_several_is_chosen_where_the_list_was_made(amd, monkeypatch, lists, one):
    amd(2)
    for name, value in lists.items():
        monkeypatch.setenv(name, value)
    started: list[dict[str, str]] = []
    monkeypatch.setattr(kit.each_gpu, "run", lambda argv, limit, env: started.append(env))
    to_measure, _ = kit.each_gpu.gpus()
    for gpu in to_measure:
        kit.each_gpu.measure_gpu(gpu, time.monotonic() + 9)
    assert len(started) == 2
    assert {n: v for n, v in started[1].items() if "VISIBLE" in n} == one


def test_what_is_built_into_a_processor_is_no_gpu_and_a_card_is(root, amd):
    amd(1, version=100306, own_bytes=512 << 20)
    assert (describe("127.0.0.1", os.environ).gpus, kit.cards.cards()) == (0, [])
    bank = root / "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties"
    bank.write_text(KFD_BANK.format(1, 24 << 30))
    assert describe("127.0.0.1", os.environ).sku == "amd-gfx1036-1x"
    assert kit.cards.cards() == ["kfd/1"]


def test_a_program_on_a_node_of_amds_never_measures_the_processor(root, amd, run, benchmark_file):
    amd(2)
    ran = run(benchmark_file("kernel_launch"), "--smoke")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "has kfd/1, kfd/2, but torch" in ran.stderr
    hidden = run(
        benchmark_file("kernel_launch"), "--smoke", env=os.environ | {"HIP_VISIBLE_DEVICES": ""}
    )
    assert {series["device"] for series in hidden.document["series"]} == {"cpu"}
    assert "AMD" in hidden.document["environment"]["gpu_state"]["node"]["unread"]


def test_of_amds_gpus_the_number_is_read_and_all_else_is_missed_not_absent(
    root, amd, run, benchmark_file
):
    amd(8)
    ran = run(benchmark_file("node_health"), "--smoke")
    assert (ran.samples("gpus"), ran.samples("gpus_lost")) == ([8], [0])
    unread = ran.document["environment"]["unread"]
    for fact in ("ecc_uncorrectable:volatile", "gpu_memory_gb", "nvlinks", "power_cap_w"):
        assert unread[fact] == "of AMD's GPUs only the number is read"


def test_a_program_measures_each_gpu_of_amds_beside_its_ceiling(
    run, benchmark_file, tmp_path, nvml_library
):
    two = GpuNode(tmp_path, nvml_library.parent, 2, maker="amd")
    words = ("--smoke", "--dtypes=fp8", "--samples=1", "--shapes=64x64x64")
    ran = run(benchmark_file("gemm"), *words, env=two.environment(ROCR_VISIBLE_DEVICES="0,1"))
    assert ran.exit_code == 0, ran.stderr
    assert {series["device"] for series in ran.document["series"]} == {"cuda:0", "cuda:1"}
    (ceiling,) = ran.document["environment"]["ceilings"].values()
    assert ceiling == {"value": 2614.9, "source": "AMD MI300X data sheet, dense"}


def put_intel(root, *addresses):
    for address in addresses:
        device = root / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        (device / "class").write_text("0x038000\n")


def test_an_intel_gpu_is_told_and_not_measured_as_a_processor(root, run, benchmark_file):
    put_intel(root, "0000:00:02.0")  # of a laptop's processor
    assert describe("127.0.0.1", os.environ).gpus == 0
    put_intel(root, "0000:3a:00.0")
    with pytest.raises(RuntimeError, match="it has 1 Intel GPUs, and only those of NVIDIA and AMD"):
        describe("127.0.0.1", os.environ)
    ran = run(benchmark_file("kernel_launch"), "--smoke")
    assert ran.exit_code == 1
    assert "GPUs of Intel (0000:3a:00.0)" in ran.stderr
    assert describe("127.0.0.1", os.environ | {"CUDA_VISIBLE_DEVICES": ""}).gpus == 0


@pytest.mark.parametrize(
    ("arch", "kind", "lacking"),
    [
        ("gfx942:sramecc+:xnack-", "float8_e4m3fnuz", set()),
        ("gfx950:sramecc+:xnack-", "float8_e4m3fn", {"tf32"}),
        ("gfx90a:sramecc+:xnack-", "float8_e4m3fn", {"tf32", "fp8"}),
        ("gfx1100", "float8_e4m3fn", {"tf32", "fp8", "int8"}),
    ],
)
def test_fp8_is_of_the_kind_that_the_gpu_has_units_for(monkeypatch, arch, kind, lacking):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    properties = types.SimpleNamespace(gcnArchName=arch)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    gpu = torch.device("cuda", 0)
    assert kit.arithmetic.kind_of("fp8", gpu) == kind
    assert {name for name in kit.arithmetic.FORMATS if kit.arithmetic.lacks(name, gpu)} == lacking
    assert kit.arithmetic.kind_of("fp8", torch.device("cpu")) == "float8_e4m3fn"
