"""GPUs of other makers: AMD's are recognised and never measured as processors, Intel's are
reported.

The kernel's files are laid out as on nodes with MI300X (tests/gpus/amd_files.py); the tools' JSON
is laid out as by amd-smi of ROCm 6.1 and 7.2, and by rocm-smi.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import types

import contract
import kit.arithmetic
import kit.each_gpu
import kit.gpus.amdgpu
import kit.gpus.cards
import kit.gpus.gpu_watch
import kit.gpus.readings
import pytest
import torch

from anubis.config.catalog import parse_description
from anubis.core.records import Judgement, Verdict
from anubis.reach.executors.machine import describe
from tests.contract.conftest import Ran
from tests.contract.test_node_health import PROGRAM, judged, samples
from tests.gpus.amd_files import metrics
from tests.gpus.node import KFD_BANK, MI300X, GpuNode, plant_kfd
from tests.patience import LIMIT_S

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
    for name in kit.gpus.cards.CHOOSING:
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
def test_a_node_of_amd_has_the_name_of_its_tool(root, amd, name, answer):
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
    assert kit.gpus.cards.visible_gpus(environment) == ["0", "1"]


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
def test_one_gpu_of_several_is_chosen_by_the_variable_that_made_the_list(
    amd, monkeypatch, lists, one
):
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


def test_a_gpu_inside_a_processor_does_not_count_and_a_card_does(root, amd):
    amd(1, version=100306, own_bytes=512 << 20)
    assert (describe("127.0.0.1", os.environ).gpus, kit.gpus.cards.cards()) == (0, [])
    bank = root / "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties"
    bank.write_text(KFD_BANK.format(1, 24 << 30))
    assert describe("127.0.0.1", os.environ).sku == "amd-gfx1036-1x"
    assert kit.gpus.cards.cards() == ["kfd/1"]


def test_a_program_on_a_node_of_amds_never_measures_the_processor(root, amd, run, benchmark_file):
    amd(2)
    ran = run(benchmark_file("kernel_launch"), "--smoke")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "has kfd/1, kfd/2, but torch" in ran.stderr
    hidden = run(
        benchmark_file("kernel_launch"), "--smoke", env=os.environ | {"HIP_VISIBLE_DEVICES": ""}
    )
    assert {series["device"] for series in hidden.document["series"]} == {"cpu"}
    state = hidden.document["environment"]["gpu_state"]["node"]
    assert state["gpu 1"]["memory_temperature_c_max"] == 35


# --- the state of AMD's GPUs, by the kernel's files ------------------------------------------

# what the driver is made to say of one GPU, and the metric and value that must tell it
AMD_FAULTS = {
    "ras/umc_err_count=ue: 2\nce: 3\nde: 1": ("ecc_uncorrectable:volatile", 2),
    "ras/features=feature mask: 0x1fe": ("ecc_enabled", 0),
    "ras/gpu_vram_bad_pages=0x1 : 0x1000 : R\n0x2 : 0x1000 : P": ("bad_pages:pending", 1),
    "current_link_width=8": ("pcie_lanes_missing", 8),
    "hwmon/hwmon3/temp3_input=106000": ("thermal_margin_c", 0),
    "hwmon/hwmon3/power1_cap=550000000": ("power_cap_w", 550),
    "mem_info_vram_total=100000000000": ("gpu_memory_gb", 100),
    "pp_dpm_sclk=0: 132Mhz\n1: 1200Mhz *": ("clock_max_mhz:sm", 1200),
}


@pytest.fixture
def look(root, amd, run, benchmark_file):
    """node_health on a node with eight GPUs, of which the second has a planted file."""
    amd(8)

    def look(fault: str = "", metrics: bytes = b"") -> Ran:
        place = root / "sys/bus/pci/devices/0000:3b:00.0"
        if fault:
            name, _, text = fault.partition("=")
            (place / name).write_text(f"{text}\n")
        if metrics:
            (place / "gpu_metrics").write_bytes(metrics)
        return run(benchmark_file("node_health"), "--smoke")

    return look


def test_each_fault_of_a_gpu_of_amds_shows_in_its_metric_and_is_a_defect(look):
    good = look()
    found = samples(good)
    assert (found["gpus", "node"], found["gpus_lost", "node"]) == (8, 0)
    assert found["xgmi_links", "cuda:7"] == 7  # of eight, one of which is not wired
    assert found["bad_pages:retired", "cuda:1"] == 1  # and long ago
    assert found["ecc_correctable:volatile", "cuda:1"] == 0  # those of XGMI are none
    assert found["thermal_margin_c", "cuda:1"] == 59
    for fault in AMD_FAULTS:
        bad = look(fault, metrics(pcie_width=0xFFFF, xgmi_status=[0, 0xFFFF] + [1] * 6))
    found = samples(bad)
    verdicts = {(v.metric, v.device) for v in judged_alone(good, bad)}
    for metric, value in AMD_FAULTS.values():
        assert found[metric, "cuda:1"] == value, metric
    assert found["ecc_deferred:volatile", "cuda:1"] == 1
    expected = {(metric, "cuda:1") for metric, _ in AMD_FAULTS.values()}
    for metric in ("pcie_width", "xgmi_links", "xgmi_links_inactive"):
        expected.add((metric, "cuda:1"))
    assert verdicts == expected


def test_an_xgmi_link_that_is_down_on_all_gpus_is_how_they_are_wired_and_no_defect(root, look):
    good = look()
    for metrics_file in root.glob("sys/bus/pci/devices/*/gpu_metrics"):
        metrics_file.write_bytes(metrics(pcie_width=16, xgmi_status=[1, 0] + [1] * 6))
    of_links = {
        value for (metric, _), value in samples(look()).items() if metric == "xgmi_links_inactive"
    }
    assert of_links == {0}
    assert judged_alone(good, look()) == []
    one_less = look("pcie_replay_count=4", metrics(pcie_width=16, xgmi_status=[1, 0, 0] + [1] * 5))
    found = {(verdict.metric, verdict.device) for verdict in judged_alone(good, one_less)}
    assert found == {(name, "cuda:1") for name in ("xgmi_links", "xgmi_links_inactive")}


def judged_alone(good: Ran, bad: Ran) -> list[Verdict]:
    described = subprocess.run(
        [sys.executable, PROGRAM, "--describe"], capture_output=True, text=True, check=True
    )
    found = judged(parse_description(described.stdout, PROGRAM), good, bad)
    return [verdict for verdict in found.alone if verdict.judgement is Judgement.DEFECTIVE]


def test_values_that_the_driver_of_amd_lacks_are_unread_and_a_gpu_without_files_is_lost(root, look):
    (root / "sys/bus/pci/devices/0000:3b:00.0/max_link_speed").write_text("\n")
    unread = look(
        "ras/gfx_err_count=Query currently inaccessible", b"\x10\x00\x01\x0a" * 99
    ).document["environment"]["unread"]
    assert unread["ecc_uncorrectable:volatile"] == (
        'cuda:1: the driver says "Query currently inaccessible"'
    )
    assert unread["throttled"] == "cuda:1: gpu_metrics of format 1.10 is not known here"
    assert unread["pcie_max_generation"].startswith("cuda:1: ")
    shutil.rmtree(root / "sys/bus/pci/devices/0000:7b:00.0")
    found = samples(look())
    assert (found["gpus", "node"], found["gpus_lost", "node"]) == (7, 1)


@pytest.mark.parametrize("revision", [4, 5, 6, 7, 8])
def test_fields_of_the_firmware_table_are_at_the_offsets_of_c(revision):
    table = metrics(revision, activity=31, pcie_width=16, replays=5)
    expected = {"activity": 31, "pcie_link_width": 16, "pcie_replays": 5}
    if revision >= 6:
        table = metrics(revision, activity=31, pcie_width=16, replays=5, cycles=9, regulator=3)
        expected |= {"cycles": 9, "regulator_thermal": 3}
    assert kit.gpus.amdgpu.parse_metrics(table) == expected
    with pytest.raises(kit.gpus.readings.Unread, match="ends too early"):
        kit.gpus.amdgpu.parse_metrics(table[:40])


def test_attributes_of_the_newest_firmware_table_are_found_in_any_order_and_number():
    attributes = [  # unit, type, attribute, values: as AMDGPU_METRICS_ENC_ATTR packs them
        (2, 2, 0, (45,)),
        (0, 6, 25, (5,)),
        (10, 2, 4, (31,)),
        (1, 2, 33, (1300,) * 8),
        (0, 6, 9, (9,)),
        (0, 6, 13, (3,)),
        (0, 6, 12, (2**64 - 1,)),  # not filled
        (0, 2, 31, (1, 1, 1, 0, 1, 1, 1, 65535)),
        (0, 2, 16, (16,)),
    ]
    body = b"".join(
        struct.pack(
            f"<Q{len(values)}{'BbHhIiQq'[kind]}",
            unit << 24 | kind << 20 | attribute << 10 | len(values),
            *values,
        )
        for unit, kind, attribute, values in attributes
    )
    table = struct.pack("<HBBi", 8 + len(body), 1, 9, len(attributes)) + body
    assert kit.gpus.amdgpu.parse_metrics(table) == {
        "activity": 31,
        "pcie_replays": 5,
        "cycles": 9,
        "regulator_thermal": 3,
        "xgmi_up": (1, 1, 1, 0, 1, 1, 1, 65535),
        "pcie_link_width": 16,
    }
    with pytest.raises(kit.gpus.readings.Unread, match="ends too early"):
        kit.gpus.amdgpu.parse_metrics(table[:40])
    with pytest.raises(kit.gpus.readings.Unread, match="unknown type"):
        kit.gpus.amdgpu.parse_metrics(struct.pack("<HBBiQ", 16, 1, 9, 1, 9 << 20 | 1))


def test_slowdowns_of_a_gpu_are_shares_of_the_firmware_cycles():
    def at(cycles: int, hot: int, capped: int, *, busy: bool = True) -> kit.gpus.amdgpu.Residency:
        return kit.gpus.amdgpu.Residency(cycles, {"socket_thermal": hot, "power_cap": capped}, busy)

    looks = [at(2**32 - 100, 5, 2**32 - 10), at(400, 130, 240), at(900, 130, 240, busy=False)]
    assert kit.gpus.amdgpu.slowdowns(kit.gpus.amdgpu.busy(looks)) == {"socket_thermal": 0.25}
    assert kit.gpus.amdgpu.shares(looks[:2]) == {"socket_thermal": 0.25, "power_cap": 0.5}
    assert kit.gpus.amdgpu.shares(looks[:1]) == {}  # of one look nothing is known, not 0


def test_errors_of_a_gpu_of_amds_that_rise_under_load_are_facts(root, amd, monkeypatch):
    amd(2)
    counted, count_errors = threading.Event(), kit.gpus.gpu_watch.count_errors

    def count(*of):
        counts = count_errors(*of)
        counted.set()
        return counts

    monkeypatch.setattr(kit.gpus.gpu_watch, "count_errors", count)
    report = contract.Report(
        frozenset({"tflops", *(m.name for m in contract.UNDER_LOAD)}),
        frozenset(m.name for m in contract.UNDER_LOAD),
    )
    report.add("tflops", "cuda:0", [1.0])
    with kit.gpus.gpu_watch.node_watched(report, 0.01):
        assert counted.wait(LIMIT_S)
        gpu = root / "sys/bus/pci/devices/0000:3b:00.0"
        (gpu / "ras/umc_err_count").write_text("ue: 0\nce: 40\nde: 2\n")
        (gpu / "gpu_metrics").write_bytes(metrics(cycles=1, activity=99))
    risen = {(s["metric"], s["device"]): s["samples"] for s in report.series if any(s["samples"])}
    assert risen == {
        ("tflops", "cuda:0"): [1.0],
        ("gpu_errors_per_min:ecc_correctable", "cuda:1"): [40.0],
        ("gpu_errors_per_min:ecc_deferred", "cuda:1"): [2.0],
    }


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


def test_an_intel_gpu_is_reported_and_not_measured_as_a_processor(root, run, benchmark_file):
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
        ("gfx942:sramecc+:xnack-", "float8_e4m3fnuz", {"mxfp8", "nvfp4"}),
        ("gfx950:sramecc+:xnack-", "float8_e4m3fn", {"tf32", "mxfp8", "nvfp4"}),
        ("gfx90a:sramecc+:xnack-", "float8_e4m3fn", {"tf32", "fp8", "mxfp8", "nvfp4"}),
        ("gfx1100", "float8_e4m3fn", {"tf32", "fp8", "int8", "mxfp8", "nvfp4"}),
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
