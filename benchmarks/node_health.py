"""The state of a node, as its drivers, its kernel and its time service report it.

Nothing is loaded and nothing is timed. Sizes, such as the number of GPUs, are compared with the
fleet; errors and states have limits (configs/policies/limits/node_health.yaml). Only the rise of
link counters during the look is reported. What cannot be read is left out and named in the
environment under "unread", never reported as 0.
"""

from __future__ import annotations

import threading
import time

import contract
from kit.background import begin
from kit.gpus.cards import cards
from kit.health.findings import ROOT, Findings
from kit.health.host_facts import report_host, undriven_gpus
from kit.health.log_report import report_log
from kit.health.port_report import count_ports, report_rises, report_states
from kit.network.ports import physical_ports


def fault(name: str, summary: str, unit: str = "1") -> contract.Metric:
    return contract.Metric(name, unit, "lower", summary, judged_by="limit")


def need(name: str, unit: str, summary: str) -> contract.Metric:
    return contract.Metric(name, unit, "higher", summary, judged_by="limit")


BENCHMARK = contract.Benchmark(
    name="node_health",
    version="1",
    summary="Counts, states and errors that drivers and kernel report about a node.",
    stresses="nothing: it reads",
    reveals="missing GPUs, worn GPU memory, narrowed or broken links, ports that are down, XIDs, "
    "full disks, absent mounts, a clock that is off",
    duration_s=5.0,
    exclusive=False,
    metrics=(
        contract.higher("gpus", "1", "GPUs that the driver reaches"),
        fault("gpus_lost", "GPUs that no driver has, or that it no longer reaches"),
        contract.higher("gpu_memory_gb", "GB", "memory of a GPU"),
        need("ecc_enabled", "1", "1 when the GPU's memory is checked"),
        fault("ecc_correctable", "corrected errors: volatile since driver load, aggregate ever"),
        fault(
            "ecc_uncorrectable", "errors beyond that: volatile since driver load, aggregate ever"
        ),
        fault("ecc_deferred", "AMD: errors in memory that nothing has read yet, since driver load"),
        fault("sram_threshold_exceeded", "1 when the GPU counted too many errors in its SRAM"),
        fault("rows_remapped", "rows of GPU memory replaced by spare ones, by kind of error"),
        fault("row_remap_pending", "1 when a row waits for a reset to be replaced"),
        fault("row_remap_failure", "1 when a row could not be replaced"),
        fault("pages_retired", "pages of GPU memory that are no longer used"),
        fault("page_retirement_pending", "1 when a page waits for a reset to be retired"),
        fault("bad_pages", "AMD: pages of GPU memory that are bad, by what became of them"),
        contract.higher("pcie_max_generation", "1", "of card and slot; idle GPUs run a lower one"),
        contract.higher("pcie_width", "1", "PCI Express lanes in use"),
        fault("pcie_lanes_missing", "lanes that card and slot have and the link does not use"),
        fault("pcie_errors", "PCIe errors that the kernel counted (AER) since boot, by severity"),
        fault("pcie_replays", "how far the GPU's count of PCIe replays rose during the look"),
        contract.higher("nvlinks", "1", "NVLinks that are up"),
        fault(
            "nvlinks_inactive",
            "NVLinks that are down: of all that end at switches, else of those that siblings have",
        ),
        fault("nvlink_errors", "how far NVLink's error counters rose during the look"),
        fault("nvlink_symbols", "how far wrong symbols of NVLink 5 rose during the look"),
        contract.higher("xgmi_links", "1", "AMD: links to other GPUs that are up"),
        fault(
            "xgmi_links_inactive",
            "AMD: links to other GPUs that only siblings have",
        ),
        fault("xgmi_errors", "AMD: how far errors of these links rose during the look"),
        fault("fabric_unready", "1 when the GPU is not registered with the NVSwitch fabric"),
        fault("fabric_unhealthy", "1 when the NVSwitch fabric says so of the GPU, by aspect"),
        fault("recovery_needed", "1 when the driver asks for a reset or a restart"),
        contract.higher("clock_max_mhz", "MHz", "highest clock that the GPU allows"),
        fault("throttled", "share of looks at which the hardware slowed the GPU down"),
        contract.higher("power_cap_w", "W", "power that the GPU may draw"),
        need("thermal_margin_c", "C", "degrees left before the GPU slows itself down"),
        contract.higher("ports_active", "1", "RDMA ports that are up"),
        contract.higher(
            "port_up", "1", "1 when an RDMA port is up, else 0.5: by port, as most nodes have it"
        ),
        fault("port_down", "1 when an RDMA port that is named as expected is not up"),
        contract.higher("port_gbps", "GB/s", "rate of the port's link, one way"),
        fault("port_errors_per_s", "how fast its error counters rose during the look", "1/s"),
        fault("xids", "errors of NVIDIA's driver in the kernel log: all, and by number"),
        fault("sxids", "errors of NVSwitches in the kernel log, by severity"),
        fault("machine_checks", "machine checks in the kernel log, corrected or uncorrected"),
        fault("edac_errors", "errors of main memory since boot, by kind"),
        contract.higher("memory_gb", "GB", "main memory"),
        contract.higher("cpus", "1", "processors that are online"),
        fault("cpus_not_performance", "processors whose governor is not `performance`"),
        fault("mount_missing", "1 when an expected mount is not there"),
        need("disk_free_share", "1", "free share of a file system's blocks"),
        need("inodes_free_share", "1", "free share of a file system's files"),
        fault("clock_offset_ms", "how far the system clock is off, by its time service", "ms"),
    ),
    parameters=(
        contract.Parameter("mounts", "", "mount points that must be there, separated by commas"),
        contract.Parameter(
            "ports",
            "",
            "RDMA ports that must be up, such as mlx5_0,mlx5_1/2; "
            '"": those that are up on most nodes',
        ),
        contract.Parameter("log_hours", 24.0, "hours of the kernel log that count", at_least=0),
        contract.Parameter(
            "seconds", 3.0, "seconds between two looks at a counter", smoke=0.25, at_least=0.05
        ),
    ),
)


def measure(
    report: contract.Report, mounts: str, ports: str, log_hours: float, seconds: float
) -> None:
    from kit.health.gpu_report import addresses, look, outcome  # it loads pynvml

    over = threading.Event()
    looking = begin(lambda: look(over))
    findings = Findings()
    look_at_ports(findings, contract.split(ports), seconds)
    over.set()
    gpus = outcome(looking)
    places = addresses(gpus.findings)
    report_host(findings, ROOT, contract.split(mounts), places)
    answering = {device for metric, device in gpus.findings.samples if metric == "recovery_needed"}
    report_log(findings, ROOT, log_hours, places, answering)
    lost = gpus.lost + undriven_gpus(ROOT)
    if lost or ("gpus", "node") in gpus.findings.samples:
        findings.add("gpus_lost", "node", lost)
    hand_over(report, gpus.findings)
    hand_over(report, findings)
    if cards(ROOT):  # without any there is nothing that a driver could keep silent about
        for kind, reason in (("failed", gpus.failed), ("silent", gpus.silent)):
            if reason:
                report.note(**{f"{kind}_devices": {"GPUs": reason}})


def look_at_ports(findings: Findings, expected: list[str], seconds: float) -> None:
    ports = physical_ports(ROOT / "sys/class/infiniband")
    before, started = count_ports(ports), time.monotonic()
    report_states(findings, ports, expected)
    time.sleep(max(0.0, seconds - (time.monotonic() - started)))
    report_rises(findings, before, count_ports(ports), time.monotonic() - started)


def hand_over(report: contract.Report, findings: Findings) -> None:
    for (metric, device), samples in findings.samples.items():
        if min(samples) > 0 or metric.partition(":")[0] in report.facts:
            report.add(metric, device, samples)
        else:
            findings.miss(f"{metric} of {device}", "it is said to be 0")
    report.notes |= {name: fact for name, fact in findings.facts.items() if fact}
    report.notes.setdefault("unread", {}).update(findings.unread)


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
