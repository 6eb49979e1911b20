"""Planted faults, one by one: each shows in its metric and, by the shipped policy, in the verdict.

The machine is a tree of files below ANUBIS_HOST_ROOT; its GPUs are those of fake_nvml.c.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import kit.health.host_facts
import kit.health.kernel_log
import kit.health.log_report
import pytest
from kit.health.findings import Findings

from anubis.config import configs
from anubis.config.catalog import parse_description, parse_result
from anubis.core.campaign.planning import plan, steps
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import units
from anubis.core.records import (
    Assessment,
    Ended,
    Execution,
    Judgement,
    Node,
    Suite,
    SuiteEntry,
    Verdict,
)
from tests.contract.conftest import BENCHMARKS, Ran
from tests.patience import LIMIT_S, eventually

PROGRAM = BENCHMARKS / "node_health.py"
ADDRESSES = [f"0000:{0x1B + 0x20 * gpu:02x}:00.0" for gpu in range(4)]  # as fake_nvml.c has them
UP_S = 1_000_000.0
MOUNTED = "22 1 0:20 / {} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
COUNTERS = {
    "counters": ("symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards"),
    "hw_counters": ("out_of_sequence", "rnr_nak_retry_err"),
}


class Machine:
    """A healthy node as the kernel shows it: four GPUs, two InfiniBand ports, one NVMe drive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/uptime", f"{UP_S} 5.0\n")
        self.write("proc/meminfo", "MemTotal: 2113000000 kB\nHugePages_Total:       0\n")
        self.write("proc/self/mountinfo", MOUNTED.format("/") + MOUNTED.format(r"/lustre\040one"))
        self.write("sys/devices/system/cpu/online", "0-95,96-191\n")
        self.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
        self.write("sys/devices/system/edac/mc/mc0/ce_count", "12\n")
        self.write("sys/devices/system/edac/mc/mc0/ue_count", "0\n")
        self.log()
        for gpu, address in enumerate(ADDRESSES):
            self.write(f"dev/nvidia{gpu}", "")
            self.pci(address, vendor="0x10de", **{"class": "0x030200"})
        for number in (0, 1):
            self.port(f"mlx5_{number}", f"0000:18:00.{number}")
        self.device("nvme/nvme0", "0000:c1:00.0", width=4)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def log(self, *messages: str, ago_s: float = 60) -> None:
        when = round((UP_S - ago_s) * 1e6)
        lines = ["6,1,5000000,-;Linux version 6.8.0", " SUBSYSTEM=cpu"]
        lines += [f"4,{number},{when},-;{text}" for number, text in enumerate(messages, 2)]
        self.write("dev/kmsg", "\n".join(lines) + "\n")

    def pci(self, address: str, **files: str) -> Path:
        folder = self.root / "sys/bus/pci/devices" / address
        (folder / "driver").mkdir(parents=True)
        (self.root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
        zeros = {f"aer_dev_{kind}": f"Undefined 0\nTOTAL_ERR_{word} 0\n" for kind, word in AER}
        for name, text in (files | zeros).items():
            (folder / name).write_text(text)
        return folder

    def device(self, name: str, address: str, width: int) -> None:
        self.pci(address, current_link_width=f"{width}\n", max_link_width=f"{width}\n")
        place = self.root / "sys/class" / name
        place.mkdir(parents=True)
        (place / "device").symlink_to(self.root / "sys/bus/pci/devices" / address)

    def port(self, name: str, address: str) -> None:
        self.device(f"infiniband/{name}", address, width=16)
        for file, text in {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
        }.items():
            self.write(f"sys/class/infiniband/{name}/ports/1/{file}", text + "\n")
        for folder, counters in COUNTERS.items():
            for counter in counters:
                self.write(f"sys/class/infiniband/{name}/ports/1/{folder}/{counter}", "3\n")

    def set_port(self, name: str, file: str, text: str) -> None:
        self.write(f"sys/class/infiniband/{name}/ports/1/{file}", text + "\n")


AER = [("fatal", "FATAL"), ("nonfatal", "NONFATAL"), ("correctable", "COR")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def look(run, nvml_library):
    """Runs the program on a planted machine; NVML's planted values are given as words."""

    def look(machine: Machine, *arguments: str, **nvml: int) -> Ran:
        return run(
            PROGRAM,
            "--seconds=0.05",
            *arguments,
            env={
                "ANUBIS_HOST_ROOT": str(machine.root),
                "LD_LIBRARY_PATH": str(nvml_library.parent),
                "PATH": "/nowhere",
                **{f"NVML_{name}": str(value) for name, value in nvml.items()},
            },
        )

    return look


def samples(ran: Ran) -> dict[tuple[str, str], float]:
    assert ran.exit_code == 0, ran.stderr
    return {(s["metric"], s["device"]): s["samples"][0] for s in ran.document["series"]}


@pytest.fixture(scope="module")
def spec():
    described = subprocess.run(
        [sys.executable, PROGRAM, "--describe"], capture_output=True, text=True, check=True
    )
    return parse_description(described.stdout, PROGRAM)


def judged(spec, good: Ran, bad: Ran) -> Assessment:
    """Three good nodes and one more, by what they teach and by the shipped policy."""
    policy = configs.policy("default")
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark=spec.name),))
    nodes = [Node(name=f"n{number}", sku="h200") for number in range(4)]
    planned = plan(suite, nodes, {spec.name: spec})
    results = [parse_result(ran.stdout, spec) for ran in (good, good, good, bad)]
    done = [
        Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)
        for step, result in zip(steps(planned, 0, {n.name for n in nodes}), results, strict=True)
    ]
    found = units(done, planned)
    criteria = learn_criteria(found, policy, suite="s", anubis="0", created_at="now")
    return assess(found, done, planned, criteria, {}, limits=policy.limits)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory, nvml_library, run):
    machine = Machine(tmp_path_factory.mktemp("good") / "machine")
    return run(
        PROGRAM,
        "--seconds=0.05",
        env={
            "ANUBIS_HOST_ROOT": str(machine.root),
            "LD_LIBRARY_PATH": str(nvml_library.parent),
            "PATH": "/nowhere",
        },
    )


@pytest.fixture
def defects(spec, good_run):
    """The verdicts against a node that answered so, beside three that are well."""

    def defects(bad: Ran) -> dict[tuple[str, str], Verdict]:
        found = judged(spec, good_run, bad)
        assert [node.judgement for node in found.nodes[:3]] == [Judgement.HEALTHY] * 3
        return {
            (verdict.metric, verdict.device): verdict
            for verdict in found.alone
            if verdict.judgement is Judgement.DEFECTIVE
        }

    return defects


def test_a_healthy_node_reports_all_metrics_and_is_healthy(spec, good_run):
    found = samples(good_run)
    expected = {
        ("gpus", "node"): 4,
        ("gpus_lost", "node"): 0,
        ("gpu_memory_gb", "cuda:3"): 150,
        ("ecc_correctable:aggregate", "cuda:0"): 7,
        ("ecc_uncorrectable:volatile", "cuda:0"): 0,
        ("rows_remapped:correctable", "cuda:1"): 1,
        ("pcie_width", "cuda:2"): 16,
        ("nvlinks", "cuda:0"): 18,
        ("nvlink_errors:recovery", "cuda:0"): 0,
        ("power_cap_w", "cuda:0"): 700,
        ("clock_max_mhz:sm", "cuda:0"): 1980,
        ("thermal_margin_c", "cuda:0"): 92 - 31,
        ("ports_active", "node"): 2,
        ("port_gbps", "mlx5_0"): 50,
        ("port_errors_per_s:link_downed", "mlx5_1"): 0,
        ("pcie_lanes_missing", "nvme0"): 0,
        ("memory_gb", "node"): 2113000000 * 1024 / 1e9,
        ("cpus", "node"): 192,
        ("edac_errors:correctable", "node"): 12,
        ("xids", "node"): 0,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert {metric.partition(":")[0] for metric, _ in found} >= {
        metric.name for metric in spec.metrics
    } - {"pages_retired", "page_retirement_pending", "sxids", "mount_missing"} - {
        *("fabric_unhealthy", "nvlink_symbols", "recovery_needed"),  # newer GPUs have these
        "clock_offset_ms",
        "port_down",  # of ports that are named as expected
        *("bad_pages", "ecc_deferred", "xgmi_links", "xgmi_links_inactive", "xgmi_errors"),  # AMD's
    }
    assessment = judged(spec, good_run, good_run)
    assert {node.judgement for node in assessment.nodes} == {Judgement.HEALTHY}
    assert "like the fleet's or within their limits" in assessment.nodes[0].reason


def test_the_environment_explains_the_numbers_and_lists_unread_ones(good_run):
    facts = good_run.document["environment"]
    assert facts["gpus"]["cuda:1"] == {
        "model": "NVIDIA H200",
        "address": "0000:3b:00.0",
        "nvlink_fabric": "of this host",
        "vbios": "96.00.BC.00.01",
        "pcie_generation_now": 1,
        "power_default_w": 700,
        "sm_mhz_now": 345,
        "temperature_c": 31,
        "mig_mode": 0,
        "fabric_state": "completed",
        "persistence_mode": 1,
    }
    assert (facts["driver_version"], facts["cuda_driver_version"]) == ("570.86.15", "12.8")
    assert facts["ports"]["mlx5_0"].startswith("InfiniBand, 4: ACTIVE, 5: LinkUp, 400 Gb/sec")
    assert facts["port_errors_since_start"]["mlx5_0"]["link_downed"] == 3
    assert facts["governors"] == {"performance": 1}
    assert facts["unread"]["pages_retired"] == "not supported by cuda:0"
    assert facts["unread"]["clock_offset_ms"].startswith("no time service answers")


LOST = [  # what NVML is made to say of the GPUs, how many are lost, how many are left
    ({"count": 3}, 0, 3),
    ({"handle_2": 15}, 1, 3),
    ({"lost_1": 1}, 1, 3),
    ({"handle_0": 4, "handle_3": 4}, 0, 2),  # that this process may not use, and no other lost
]


@pytest.mark.parametrize(("planted", "lost", "left"), LOST, ids=[str(f[0]) for f in LOST])
def test_a_gpu_that_is_missing_or_no_longer_answers_is_a_defect(
    machine, look, defects, planted, lost, left
):
    ran = look(machine, **planted)
    found = samples(ran)
    assert (found.get(("gpus_lost", "node"), 0), found.get(("gpus", "node"))) == (lost, left)
    counted = {metric for metric, device in defects(ran) if device == "node"}
    assert counted == ({"gpus_lost"} if lost else set()) | ({"gpus"} if left else set())


def test_a_driver_that_reports_nothing_is_a_failure_with_its_reason_and_no_lost_gpu(machine, look):
    ran = look(machine, init=18)
    assert {("gpus_lost", "node"), ("gpus", "node")}.isdisjoint(samples(ran))
    mismatch = {"GPUs": "nvmlInit: RM has detected an NVML/RM version mismatch."}
    assert ran.document["environment"]["failed_devices"] == mismatch
    assert samples(ran)["ports_active", "node"] == 2


def test_a_driver_that_knows_of_none_of_the_gpus_in_the_kernel_is_a_failure_too(machine, look):
    for planted, reason in (
        ({"count": 0}, "NVML knows of no GPU"),
        ({"handle": 4}, "NVML lets this process use none of 4 GPUs"),
    ):
        ran = look(machine, **planted)
        assert ran.document["environment"]["failed_devices"] == {"GPUs": reason}


# what NVML is made to say, all at once, and the metric, device and value that must tell it
GPU_FAULTS = {
    "memory_1=140": ("gpu_memory_gb", "cuda:1", 140),
    "ecc_mode_0=0": ("ecc_enabled", "cuda:0", 0),
    "ecc_uncorrected_now_3=2": ("ecc_uncorrectable:volatile", "cuda:3", 2),
    "sram_2=1": ("sram_threshold_exceeded", "cuda:2", 1),
    "rows_correctable_0=11": ("rows_remapped:correctable", "cuda:0", 11),
    "rows_uncorrectable_0=512": ("rows_remapped:uncorrectable", "cuda:0", 512),
    "pending_1=1": ("row_remap_pending", "cuda:1", 1),
    "failure_1=1": ("row_remap_failure", "cuda:1", 1),
    "pcie_width_2=8": ("pcie_lanes_missing", "cuda:2", 8),
    "pcie_max_width_2=16": ("pcie_width", "cuda:2", 8),
    "pcie_max_generation_2=4": ("pcie_max_generation", "cuda:2", 4),
    "links_down_3=2": ("nvlinks_inactive", "cuda:3", 2),
    "links_down_1=0": ("nvlinks", "cuda:3", 16),
    "recoveries_3=5": ("nvlink_errors:recovery", "cuda:3", 5),
    "fabric_0=2": ("fabric_unready", "cuda:0", 1),
    "fabric_status_1=999": ("fabric_unready", "cuda:1", 1),
    "throttle_0=64": ("throttled:hw_thermal_slowdown", "cuda:0", 1),
    "throttle_2=128": ("throttled:hw_power_brake_slowdown", "cuda:2", 1),
    "celsius_0=95": ("thermal_margin_c", "cuda:0", 0),
    "power_cap_1=500000": ("power_cap_w", "cuda:1", 500),
    "sm_clock_1=1200": ("clock_max_mhz:sm", "cuda:1", 1200),
}


def test_each_fault_of_a_gpu_shows_in_its_metric_and_is_a_defect_and_nothing_else_is(
    machine, look, defects
):
    planted = dict(fault.split("=") for fault in GPU_FAULTS)
    ran = look(machine, **planted)
    found = samples(ran)
    for metric, device, value in GPU_FAULTS.values():
        assert found[metric, device] == value, metric
    verdicts = defects(ran)
    assert verdicts.keys() == {(metric, device) for metric, device, _ in GPU_FAULTS.values()}
    for (metric, _), verdict in verdicts.items():
        assert verdict.code == f"NODE_HEALTH.{metric}".upper().replace(":", ".")


def test_a_verdict_by_limit_names_value_limit_and_source(machine, look, defects):
    verdict = defects(look(machine, ecc_uncorrected_now_3=2))[
        "ecc_uncorrectable:volatile", "cuda:3"
    ]
    assert verdict.reason == (
        "uncorrectable ECC errors (volatile) on cuda:3: 2 instead of at most 0 (NVIDIA Xid catalog,"
        " 48: a reset or restart is needed to clear an uncorrectable error)"
    )


def test_harmless_conditions_are_no_defects(machine, look, defects):
    """Errors of long ago, an idle link, a power cap that is reached, a bridge that is not there."""
    machine.log("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", ago_s=25 * 3600)
    ran = look(machine, ecc_uncorrected_ever=3, pcie_generation=1, throttle=0x4, links_down=18)
    assert samples(ran)["ecc_uncorrectable:aggregate", "cuda:0"] == 3
    assert ran.document["environment"]["unread"]["nvlinks"].startswith("cuda:0: no link")
    assert len(ran.document["environment"]["xid_log"]) == 1
    assert defects(ran) == {}


def test_a_query_that_one_gpu_does_not_support_hides_no_other(machine, look):
    ran = look(machine, no_nvlink_counter_0=3, no_vbios_0=1, no_throttle_1=1, lost_2=1)
    found = samples(ran)
    links = {name for name, _ in found if name.startswith("nvlink_errors")}
    assert links == {
        f"nvlink_errors:{kind}" for kind in ("replay", "recovery", "crc_flit", "crc_data")
    }
    assert ("nvlink_errors:crc_data", "cuda:0") not in found
    assert ("throttled:hw_slowdown", "cuda:1") not in found
    facts = ran.document["environment"]
    assert facts["gpus"]["cuda:0"]["power_default_w"] == 700
    assert facts["unread"]["vbios"] == "cuda:2: GPU is lost"  # a failure goes first
    assert facts["unread"]["throttled"] == "cuda:2: GPU is lost"


def test_pages_that_older_gpus_retired_are_counted_over_both_causes(machine, look):
    assert samples(look(machine, retires_pages=1))["pages_retired", "cuda:0"] == 42


def test_a_gpu_on_the_bus_without_a_driver_is_lost(machine, look, defects):
    (machine.root / "sys/bus/pci/devices" / ADDRESSES[3] / "driver").rmdir()
    ran = look(machine, count=3)
    assert samples(ran)["gpus_lost", "node"] == 1
    assert {("gpus", "node"), ("gpus_lost", "node")} <= defects(ran).keys()


@pytest.mark.long
def test_a_driver_that_hangs_is_reported_beside_all_other_facts(machine, nvml_library):
    script = f"""
import sys; sys.path.insert(0, {str(BENCHMARKS)!r})
import kit.health.gpu_report; kit.health.gpu_report.PATIENCE_S = 0.3
import runpy; sys.argv = ["node_health.py", "--seconds=0.05"]
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            "ANUBIS_HOST_ROOT": str(machine.root),
            "LD_LIBRARY_PATH": str(nvml_library.parent),
            "NVML_hang": "60",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    ran = Ran(done.returncode, done.stdout, done.stderr)
    assert ("gpus_lost", "node") not in samples(ran)
    assert samples(ran)["ports_active", "node"] == 2
    silent = {"GPUs": "NVML does not answer within 0.3 s"}
    assert ran.document["environment"]["silent_devices"] == silent


# --- ports ---------------------------------------------------------------------------------


def test_a_port_that_is_down_and_up_on_most_nodes_is_a_defect(machine, look, defects):
    machine.set_port("mlx5_1", "state", "1: DOWN")
    machine.set_port("mlx5_1", "phys_state", "2: Polling")
    ran = look(machine)
    assert samples(ran)["ports_active", "node"] == 1
    assert defects(ran).keys() == {("port_up:mlx5_1", "node"), ("ports_active", "node")}


def test_an_uncabled_port_is_no_defect(spec, machine, look):
    machine.set_port("mlx5_1", "state", "1: DOWN")
    machine.set_port("mlx5_1", "phys_state", "2: Polling")
    bare = look(machine)
    assert samples(bare)["port_up:mlx5_1", "node"] == 0.5
    assert {node.judgement for node in judged(spec, bare, bare).nodes} == {Judgement.HEALTHY}


def test_a_port_without_a_subnet_manager_is_down_though_its_link_is_up(machine, look, defects):
    machine.set_port("mlx5_1", "state", "2: INIT")
    assert ("port_up:mlx5_1", "node") in defects(look(machine))


def test_a_disabled_port_is_down_only_if_it_is_expected(machine, look):
    machine.set_port("mlx5_1", "state", "1: DOWN")
    machine.set_port("mlx5_1", "phys_state", "3: Disabled")
    assert ("port_up:mlx5_1", "node") not in samples(look(machine))
    named = samples(look(machine, "--ports=mlx5_0,mlx5_1,mlx5_7"))
    assert [named["port_down", f"mlx5_{n}"] for n in (0, 1, 7)] == [0, 1, 1]


def test_a_slower_port_is_worse_than_the_fleet(machine, look, defects):
    machine.set_port("mlx5_0", "rate", "200 Gb/sec (2X NDR)")
    assert "50% slower than normal" in defects(look(machine))["port_gbps", "mlx5_0"].reason


def test_an_error_counter_that_rises_meanwhile_is_a_defect_and_a_constant_one_is_none(
    machine, look, defects
):
    counter = "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    over = threading.Event()

    def rise() -> None:
        count = 3
        while not over.wait(0.005):
            count += 1
            machine.write(f"{counter}.new", f"{count}\n").replace(machine.root / counter)

    thread = threading.Thread(target=rise)
    thread.start()
    try:
        ran = look(machine)
    finally:
        over.set()
        thread.join()
    assert samples(ran)["port_errors_per_s:link_downed", "mlx5_0"] > 1
    assert defects(ran).keys() == {("port_errors_per_s:link_downed", "mlx5_0")}


def test_a_narrowed_link_of_an_adapter_is_a_defect_and_a_narrow_slot_is_none(
    machine, look, defects
):
    place = machine.root / "sys/bus/pci/devices/0000:18:00.0"
    (place / "current_link_width").write_text("8\n")
    assert defects(look(machine)).keys() == {
        ("pcie_lanes_missing", "mlx5_0"),
        ("pcie_width", "mlx5_0"),
    }
    (place.parent / "max_link_width").write_text("8\n")  # of the slot above it
    ran = look(machine)
    assert samples(ran)["pcie_lanes_missing", "mlx5_0"] == 0


def test_links_of_gpus_are_compared_with_those_of_slots_and_siblings(machine, look):
    machine.write("sys/bus/pci/devices/max_link_width", "8\n")  # of the slots
    found = samples(
        look(machine, pcie_width=8, pcie_width_2=4, far_end=0, links_down=6, links_down_3=8)
    )
    by_gpu = [
        tuple(found[metric, f"cuda:{gpu}"] for metric in ("pcie_lanes_missing", "nvlinks_inactive"))
        for gpu in range(4)
    ]
    assert by_gpu == [(0, 0), (0, 0), (4, 0), (0, 2)]


def test_a_fatal_error_of_a_link_is_a_defect(machine, look, defects):
    place = machine.root / "sys/bus/pci/devices" / ADDRESSES[2]
    (place / "aer_dev_fatal").write_text("DLP 1\nSDES 0\nTOTAL_ERR_FATAL 1\n")
    assert defects(look(machine)).keys() == {("pcie_errors:fatal", "cuda:2")}


# --- the kernel log ------------------------------------------------------------------------


def test_an_xid_counts_for_its_gpu(machine, look, defects):
    machine.log("NVRM: Xid (PCI:0000:5b:00): 79, GPU has fallen off the bus.")
    verdict = defects(look(machine))["xids:79", "cuda:2"]
    assert (
        verdict.reason == "XID errors (79) on cuda:2: 1 instead of at most 0 (NVIDIA Xid catalog)"
    )


def test_xids_of_applications_are_facts(machine, look, defects):
    machine.log(*["NVRM: Xid (PCI:0000:1b:00): 31, pid=7, MMU Fault"] * 3)
    ran = look(machine)
    assert samples(ran)["xids:31", "cuda:0"] == 3
    assert samples(ran)["xids", "node"] == 3
    assert defects(ran) == {}


# the first two lines as NVIDIA's documents print them, the others as drivers write them
LINES = [
    (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).",
        {("xids:94", "pci:0000:01:00"): 1},
    ),
    (
        "NVRM: Xid (0000:03:00): 14, Channel 00000001",  # of drivers before PCI was written
        {("xids:14", "pci:0000:03:00"): 1},
    ),
    ("NVRM: Xid (PCI:0000:3B:00): 119, pid=1, GSP RPC Timeout", {("xids:119", "cuda:1"): 1}),
    (
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (.)",
        {("xids:154", "cuda:1"): 1},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (.) to 0x0 (None)",
        {},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x04 0x01)",
        {("xids:145_nonfatal", "cuda:1"): 1},
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 03 (0x11 0x00)",
        {("xids:149", "cuda:1"): 1},
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore",
        {("sxids:non_fatal", "node"): 1, ("sxids:fatal", "node"): 0},
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        {("sxids:non_fatal", "node"): 0, ("sxids:fatal", "node"): 1},
    ),
    (
        "mce: [Hardware Error]: CPU 20: Machine Check: 0 Bank 7: 8c00004000010091",
        {("machine_checks:corrected", "node"): 1},
    ),
    (
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400",
        {("machine_checks:uncorrected", "node"): 1},
    ),
    (
        "[Hardware Error]: Uncorrected, software containable error.",
        {("machine_checks:uncorrected", "node"): 1},
    ),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_of_the_log_is_counted_under_its_kind(machine, line, expected):
    machine.log(line)
    found = Findings()
    devices = {f"cuda:{gpu}": address for gpu, address in enumerate(ADDRESSES)}
    kit.health.log_report.report_log(found, machine.root, 24, devices)
    nothing = {("machine_checks:corrected", "node"): 0, ("machine_checks:uncorrected", "node"): 0}
    total = sum(count for (metric, _), count in expected.items() if metric.startswith("xids"))
    told = {key: values[0] for key, values in found.samples.items()}
    assert told == nothing | {("xids", "node"): total} | expected


BY_FIRMWARE = """{1}[Hardware Error]: event severity: SEVERITY
{1}[Hardware Error]:  Error 0, type: SEVERITY
{1}[Hardware Error]:   section_type: SECTION
{1}[Hardware Error]:   physical_address: 0x0000000000000080"""


@pytest.mark.parametrize(
    ("severity", "section", "expected"),
    [
        ("corrected", "memory error", (1, 0)),
        ("recoverable", "memory error", (0, 1)),
        ("fatal", "ARM processor error", (0, 1)),
        ("info", "memory error", (0, 0)),
        ("recoverable", "PCIe error", (0, 0)),  # the kernel counts these by itself
    ],
)
def test_errors_that_the_firmware_found_count_as_machine_checks(severity, section, expected):
    lines = BY_FIRMWARE.replace("SEVERITY", severity).replace("SECTION", section).splitlines()
    counts = kit.health.kernel_log.machine_checks(lines)
    assert tuple(counts.values()) == expected


def test_a_blackwell_whose_nvlink_recovered_from_an_error_is_healthy(machine, look, defects):
    machine.log("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x13)")
    assert defects(look(machine)) == {}


JOURNAL = """{"__REALTIME_TIMESTAMP":"%d","MESSAGE":"Linux version 6.8.0"}
{"__REALTIME_TIMESTAMP":"%d","MESSAGE":[80,82]}
{"__REALTIME_TIMESTAMP":"%d","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, GPU is lost."}
"""


@pytest.mark.parametrize("journal", ["of an hour ago", "empty", "absent"])
def test_a_log_that_may_not_be_read_is_read_by_the_journal_or_is_a_fact_and_never_zero(
    machine, monkeypatch, tmp_path, journal
):
    opened = os.open

    def refuse(path, *how, **more):
        if str(path).endswith("kmsg"):
            raise PermissionError(1, "Operation not permitted")
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if journal != "absent" else "/nowhere")
    hour_ago = (time.time() - 3600) * 1e6
    text = JOURNAL % (3 * (hour_ago,)) if journal == "of an hour ago" else "-- No entries --"
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    (tmp_path / "journalctl").chmod(0o755)
    found = Findings()
    kit.health.log_report.report_log(found, machine.root, 24, {"cuda:1": ADDRESSES[1]})
    if journal == "of an hour ago":
        assert found.samples["xids:79", "cuda:1"] == [1]
        assert found.facts["kernel_log"].startswith("by the journal (")
        return
    assert found.samples == {}
    assert "Operation not permitted; " in found.unread["kernel log"]
    reason = "shows nothing of the kernel" if journal == "empty" else "journalctl is not on PATH"
    assert reason in found.unread["kernel log"]


def test_every_xid_with_a_limit_is_one_that_nvidia_would_not_leave_to_the_application():
    """By the catalog: reset or restart at once, or a workflow for ECC and NVLink."""
    acted_on = {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 154, 155, 156}
    limited = {
        int(limit.metric.partition(":")[2])
        for limit in configs.limits("node_health")
        if limit.metric.startswith("xids:")
    }
    assert limited == acted_on | {*range(144, 151), 158}


def test_a_gpu_whose_driver_states_its_recovery_is_not_judged_by_the_log(machine, look, defects):
    machine.log(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)"
    )
    asked = {key for key in defects(look(machine)) if key[0].startswith(("xids", "recovery"))}
    assert asked == {("xids:154", "cuda:1")}
    field = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: it was reset since
    assert defects(look(machine, **{f"field{field}": 0})) == {}


# --- files and time ------------------------------------------------------------------------


def test_a_mount_that_is_absent_is_a_defect(machine, look, defects):
    ran = look(machine, "--mounts=/lustre one,/scratch")
    assert samples(ran)["mount_missing", "/lustre one"] == 0
    assert samples(ran)["mount_missing", "/scratch"] == 1
    verdict = defects(look(machine, "--mounts=/scratch"))["mount_missing", "/scratch"]
    assert verdict.reason.startswith("nothing is mounted on /scratch (")


@pytest.fixture
def full_disk(machine) -> Iterator[None]:
    """A real file system without room on the machine's /tmp."""
    place = machine.root / "tmp"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "full", place], check=False)
    if mount.returncode:
        pytest.skip("a file system can only be mounted as root")
    (place / "big").write_bytes(bytes(64 << 10))
    yield
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_a_defect(machine, look, defects, full_disk):
    ran = look(machine)
    assert samples(ran)["disk_free_share", "/tmp"] == 0
    assert "instead of at least 0.05" in defects(ran)["disk_free_share", "/tmp"].reason


def test_the_free_share_is_that_of_users_without_root():
    found = Findings()
    # 100 blocks, 30 free of which 10 for any user; 50 files, 20 free, 5 for any user
    space = os.statvfs_result((4096, 4096, 100, 30, 10, 50, 20, 5, 0, 255))
    kit.health.host_facts.free_space(found, "/", space)
    assert found.samples == {
        ("disk_free_share", "/"): [10 / 80],
        ("inodes_free_share", "/"): [5 / 50],
    }


def test_a_mount_whose_server_is_gone_delays_nothing(monkeypatch):
    monkeypatch.setattr(kit.health.host_facts, "PATIENCE_S", 0.05)
    given_up = threading.Event()
    assert isinstance(kit.health.host_facts.wait_for(lambda: given_up.wait(LIMIT_S)), TimeoutError)
    given_up.set()
    assert kit.health.host_facts.wait_for(lambda: 7) == 7


CHRONY = (
    "A9FEA97B,169.254.169.123,4,1700000000.1,{},0.0000012,0.00001,-9.4,0.0,0.01,0.0003,0.0002,"
    "16.1,{}\n"
)
TIMESYNC = (
    "       Server: 185.125.190.57 (ntp.ubuntu.com)\n       Offset: {}\n        Delay: 25ms\n"
)


@pytest.mark.parametrize(
    ("tool", "answer", "ms"),
    [
        ("chronyc", CHRONY.format("-0.002500000", "Normal"), -2.5),
        ("chronyc", CHRONY.format("0.0", "Not synchronised"), None),
        ("chronyc", "506 Cannot talk to daemon\n", None),
        ("ntpq", "associd=0 status=0615 leap_none, 1 event,\noffset=-0.12\n", -0.12),
        ("timedatectl", TIMESYNC.format("-1.160ms"), -1.16),
        ("timedatectl", TIMESYNC.format("+3us"), 0.003),
        ("timedatectl", TIMESYNC.format("2.5s"), 2500),
        ("timedatectl", "Failed to query server", None),
    ],
)  # fmt: skip
def test_the_offset_of_the_clock_is_read_from_each_time_service(tool, answer, ms):
    assert kit.health.host_facts.CLOCKS[tool][1](answer) == (
        None if ms is None else pytest.approx(ms)
    )


def time_service(folder: Path, text: str) -> Path:
    tool = folder / "chronyc"
    folder.mkdir(exist_ok=True)
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    return folder


def test_a_clock_that_is_far_off_is_a_defect(machine, tmp_path, monkeypatch):
    folder = time_service(tmp_path / "bin", f"echo '{CHRONY.format('-4.5', 'Normal').strip()}'")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    found = Findings()
    kit.health.host_facts.clock(found)
    assert found.samples == {("clock_offset_ms", "node"): [4500]}


def test_killed_at_any_moment_it_leaves_no_process(machine, tmp_path):
    """Its only child is the program that it asks for the time."""
    pid_file = tmp_path / "pid"
    folder = time_service(tmp_path / "bin", f"echo $$ > {pid_file}; exec /bin/sleep 600")
    program = subprocess.Popen(
        [sys.executable, PROGRAM, "--seconds=0.05"],
        env={"ANUBIS_HOST_ROOT": str(machine.root), "PATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: pid_file.exists() and pid_file.read_text())
    program.send_signal(signal.SIGKILL)
    program.communicate()
    child = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    assert eventually(lambda: not child.exists() or b") Z " in child.read_bytes())


# --- what is not there ---------------------------------------------------------------------


def test_an_empty_machine_reports_nothing_with_the_reasons(tmp_path, run):
    (tmp_path / "proc").mkdir()
    ran = run(
        PROGRAM, "--seconds=0.05", env={"ANUBIS_HOST_ROOT": str(tmp_path), "PATH": "/nowhere"}
    )
    assert {metric for metric, _ in samples(ran)} == {"disk_free_share", "inodes_free_share"}
    unread = ran.document["environment"]["unread"]
    assert {"NVML", "memory_gb", "cpus", "kernel log", "edac_errors"} <= unread.keys()


def test_node_health_takes_ten_seconds_by_default(run):
    described = json.loads(run(PROGRAM, "--describe").stdout)
    assert described["duration_s"] < 10
    assert described["exclusive"] is False
