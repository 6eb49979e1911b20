"""Collectives, overlap, shared products and pairs: against counts by hand, and planted faults."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import contract
import ib_loopback
import incast
import intranode_collective
import kit.network.between_hosts
import kit.network.perftest
import kit.network.ports
import kit.pair
import kit.tools
import overlap
import pair_rdma
import pair_torch
import pair_ucx
import pytest
import sharded_matmul
import torch
from kit.collectives import (
    BUS_FACTORS,
    OPERATIONS,
    algbw_gbps,
    busbw_gbps,
    differing,
    elements,
    fill,
    measure_size,
)
from kit.possession import Seconds

from tests.gpus import node
from tests.patience import LIMIT_S, eventually

BENCHMARKS = Path(kit.tools.__file__).parents[1]
UCX = shutil.which("ucx_perftest")
PERFTEST = shutil.which("ib_write_bw")
needs_ucx = pytest.mark.skipif(UCX is None, reason="ucx_perftest is not installed")


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """A program with a fault planted in it before its ranks start to measure."""

    def plant(name: str, fault: str) -> Path:
        program = tmp_path_factory.mktemp("planted") / f"{name}.py"
        program.write_text(
            f"import os, sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n"
            f"import contract, {name} as program\nrank = int(os.environ.get('RANK', -1))\n{fault}\n"
            "contract.run(program.BENCHMARK, program.measure, "
            "getattr(program, 'processes', None))\n"
        )
        return program

    return plant


@pytest.fixture(scope="module")
def planted(plant, run):
    """Runs such a program."""

    def planted(name: str, fault: str, *arguments: str, env=None):
        return run(plant(name, fault), *arguments, env={**os.environ, **(env or {})})

    return planted


# --- formulas ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 8])
def test_bus_bandwidth_of_one_way_operations_is_the_rate_of_one_link(n):
    size, seconds = n * 1_000_000, 0.004
    # a chain: every link of it carries the whole message once; a ring: n - 1 of n blocks
    for operation, carried in (
        ("broadcast", size),
        ("reduce", size),
        ("reduce_scatter", sum(size // n for _step in range(n - 1))),
    ):
        assert busbw_gbps(operation, size, n, seconds) == pytest.approx(carried / seconds / 1e9)
        assert algbw_gbps(size, seconds) == pytest.approx(size / seconds / 1e9)


def test_a_message_without_a_block_for_every_rank_is_left_out():
    assert elements("all_reduce", 8, ranks=128) == 2
    assert elements("all_gather", 8, ranks=128) == 0
    assert elements("all_to_all", 4 * 300, ranks=128) == 256


def test_every_differing_element_is_counted_at_any_offset(monkeypatch):
    monkeypatch.setattr("kit.collectives.CHUNK", 1000)
    numbers = torch.zeros(2500)
    fill(numbers, plus=3)
    assert differing(numbers, plus=3) == 0
    assert numbers[1021] == 3  # the ramp begins anew
    numbers[999] += 1
    numbers[2499] = float("nan")
    assert differing(numbers, plus=3) == 2
    assert differing(numbers[1000:], plus=3, begin=1000) == 1


@pytest.mark.parametrize("ranks", [2, 3, 8, 1024])
@pytest.mark.parametrize("name", ["all_reduce", "reduce"])
def test_numbers_that_are_timed_are_random_and_neither_grow_nor_vanish(monkeypatch, name, ranks):
    seen = []

    def add_up(buffer, group, dst=0):
        buffer.mul_(ranks)  # what all ranks have alike after the first call
        seen.append(buffer.abs().median().item())

    monkeypatch.setattr(f"torch.distributed.{name}", add_up)
    group = SimpleNamespace(ranks=ranks, rank=0, device=torch.device("cpu"), links=None)
    call, _ = OPERATIONS[name](group, 4096)
    for _ in range(1000):
        call()
    assert 2**-64 < min(seen) < max(seen) < 2**64
    assert 1000 > len({*seen}) > 5


def test_a_collective_states_the_share_that_others_may_have_cost_any_rank(monkeypatch):
    """A busy machine makes it slow, and must not make its node defective."""
    own, other = Seconds([1.0, 2.0], [0.0, 0.5]), Seconds([3.0, 1.0], [0.25, 0.1])
    of_others = iter([[1], other, other.taken])  # calls in a sample, durations, shares

    def slowest(numbers, group=None):
        return [max(pair) for pair in zip(numbers, next(of_others), strict=True)]

    monkeypatch.setattr("kit.group.slowest", slowest)
    monkeypatch.setattr("kit.timing.calls_for", lambda *_: 1)
    monkeypatch.setattr("kit.timing.time_calls", lambda *_: own)
    monkeypatch.setattr("torch.distributed.barrier", lambda group: None)
    report = contract.Report(frozenset({"busbw_gbps", "algbw_gbps", "agreement"}))
    group = SimpleNamespace(
        ranks=2,
        rank=0,
        device=torch.device("cpu"),
        links=None,
        add_crossing=lambda *_: None,
        total=lambda wrong: wrong,
    )
    operation = (lambda: None), (lambda: 0)
    monkeypatch.setitem(OPERATIONS, "all_reduce", lambda *_: operation)
    measure_size(report, group, "all_reduce", 1 << 20, samples=2)
    taken = report.notes["taken_by_others"]
    assert {metric.partition(":")[0]: shares["cpu"] for metric, shares in taken.items()} == {
        "busbw_gbps": [0.25, 0.5],
        "algbw_gbps": [0.25, 0.5],
    }
    (busbw,) = (s["samples"] for s in report.series if s["metric"].startswith("busbw"))
    assert busbw == [pytest.approx(busbw_gbps("all_reduce", 1 << 20, 2, s)) for s in (3.0, 2.0)]


def test_shared_products_count_the_operations_of_one_rank():
    n, ranks, operations = 6, 3, 0
    for _row in range(n):
        for _column in range(n // ranks):
            for _term in range(n):
                operations += 2
    assert sharded_matmul.flop_per_rank(n, ranks) == operations


# --- collectives of two real ranks, one of which receives a wrong number -------------------

SPOILT = """
import torch.distributed as dist

def spoil(name, element):
    sound = getattr(dist, name)
    def spoilt(*arguments, **named):
        sound(*arguments, **named)
        if rank == 1 and len(arguments[0].flatten()) > 1:
            arguments[0].view(-1)[element] += 1
    setattr(dist, name, spoilt)

spoil("reduce_scatter_single", 0)
spoil("broadcast", -1)
"""


@pytest.fixture(scope="module")
def spoilt(planted):
    every = ",".join(BUS_FACTORS)
    arguments = "--samples=2", "--bytes=4,4096,1048576", f"--operations={every}"
    ran = planted("intranode_collective", SPOILT, *arguments)
    assert ran.exit_code == 0, ran.stderr
    return ran


def test_a_wrong_element_shows_in_its_operation_and_in_no_other(spoilt):
    for operation in BUS_FACTORS:
        bad = operation in ("reduce_scatter", "broadcast")
        assert spoilt.samples(f"agreement:{operation}/4096") == [0.5 if bad else 1.0], operation


def test_both_bandwidths_and_the_latency_follow_from_the_same_times(spoilt):
    for operation, factor in BUS_FACTORS.items():
        times = [us / 1e6 for us in spoilt.samples(f"latency_us:{operation}/4096")]
        algbw = spoilt.samples(f"algbw_gbps:{operation}/4096")
        assert algbw == pytest.approx([4096 / s / 1e9 for s in times])
        busbw = spoilt.samples(f"busbw_gbps:{operation}/4096")
        assert busbw == pytest.approx([factor(2) * rate for rate in algbw])


def test_large_messages_have_no_latency_and_too_small_ones_nothing(spoilt):
    metrics = {series["metric"] for series in spoilt.document["series"]}
    assert "busbw_gbps:all_reduce/1048576" in metrics
    assert "latency_us:all_reduce/1048576" not in metrics
    assert "latency_us:all_reduce/4" in metrics
    assert "latency_us:all_gather/4" not in metrics
    left_out = spoilt.document["environment"]["too_small_for_the_ranks"].split(",")
    assert left_out == ["all_gather/4", "reduce_scatter/4", "all_to_all/4"]


def test_through_the_hcas_needs_gpus_and_hcas(monkeypatch):
    with pytest.raises(contract.NotApplicable, match="only NCCL between GPUs"):
        intranode_collective.hca_environment()
    monkeypatch.setattr("kit.timing.gpus", lambda: 8)
    monkeypatch.setattr(intranode_collective, "active", list)
    with pytest.raises(contract.NotApplicable, match="no HCA with an active port"):
        intranode_collective.hca_environment()
    monkeypatch.setattr(intranode_collective, "active", lambda: ["mlx5_0"])
    settings = intranode_collective.hca_environment()
    assert (settings["NCCL_P2P_DISABLE"], settings["NCCL_NET"]) == ("1", "IB")


# --- overlap and shared products -----------------------------------------------------------

SLOWED = """
def together(device, load, rival):
    (call, calls), (_, rival_calls) = load, rival
    for _ in range(calls):
        call()
    return calls * (0.1 if not rival_calls else 0.1 + 0.05 * (1 + rank))
program.together = together
"""


def test_a_slowdown_is_that_of_the_rank_that_suffers_most(planted):
    ran = planted("overlap", SLOWED, "--smoke")
    assert ran.exit_code == 0, ran.stderr
    # alone 0.1 s a call on both; beside the other 0.15 s on rank 0, 0.2 s on rank 1
    assert ran.samples("slowdown:compute") == pytest.approx([2.0] * 3)
    assert ran.samples("slowdown:communication") == pytest.approx([2.0] * 3)
    assert ran.samples("tflops:alone") == pytest.approx([2 * 128**3 / 0.1 / 1e12] * 3)
    assert ran.samples("busbw_gbps:alone") == pytest.approx([(1 << 18) / 0.1 / 1e9] * 3)


def test_concurrent_work_is_over_before_the_next_timing_begins(monkeypatch):
    now, readings, measured, beside = 0.0, iter((None, "the end")), threading.Event(), []

    def clock():
        if next(readings):
            measured.set()
        return now

    def work():
        nonlocal now
        now += 10.0

    monkeypatch.setattr(overlap, "perf_counter", clock)
    rival = (lambda: beside.append(measured.wait(LIMIT_S)), 4)  # which outlasts what is measured
    assert overlap.together(torch.device("cpu"), (work, 2), rival) == 20.0
    assert beside == [True] * 4


def test_a_wrong_sum_shows_in_the_product_shared_by_rows_only(planted):
    fault = """
import torch.distributed as dist
sound = dist.all_reduce
def spoilt(tensor, *arguments, **named):
    sound(tensor, *arguments, **named)
    if rank == 1 and tensor.dim() == 2:
        tensor[61, 3] += 1
dist.all_reduce = spoilt
"""
    ran = planted("sharded_matmul", fault, "--smoke", "--size=131")
    assert ran.exit_code == 0, ran.stderr
    assert ran.document["environment"]["size"] == 130  # whole shares for two ranks
    assert ran.samples("agreement:row") == [0.5]
    assert ran.samples("agreement:column") == [1.0]


# --- HCAs, as the kernel shows them --------------------------------------------------------


@pytest.fixture
def sysfs(tmp_path):
    for name, state, rate, sent in (
        ("mlx5_10", "4: ACTIVE", "400 Gb/sec (4X NDR)", 7),
        ("mlx5_2", "4: ACTIVE", "400 Gb/sec (4X NDR)", 5),
        ("mlx5_3", "1: DOWN", "10 Gb/sec (4X SDR)", 0),
    ):
        port = tmp_path / "infiniband" / name / "ports" / "1"
        (port / "counters").mkdir(parents=True)
        (port / "state").write_text(state + "\n")
        (port / "rate").write_text(rate + "\n")
        (port / "counters" / "port_xmit_data").write_text(f"{sent}\n")
        device = port.parents[1] / "device"
        device.mkdir()
        (device / "local_cpulist").write_text("0-3,8\n")
    return tmp_path / "infiniband"


def test_only_hcas_with_a_port_that_is_up_take_part_in_their_order(sysfs):
    hcas = kit.network.ports.active(sysfs)
    assert [hca.name for hca in hcas] == ["mlx5_2", "mlx5_10"]
    assert hcas[0].gbps == 50  # 400 Gb/s
    assert hcas[0].cpus == {0, 1, 2, 3, 8}
    assert kit.network.ports.ceiling_of(hcas) == 50
    assert (
        kit.network.ports.carried_bytes("mlx5_2", sysfs)
        + kit.network.ports.carried_bytes("mlx5_10", sysfs)
        == 48
    )


@pytest.mark.parametrize(
    ("product", "is_manager"), [(b"SMDL=SW_MNG", True), (b"MCX755106AS-HEA", False)]
)
def test_adapters_that_manage_the_nvswitches_of_their_node_are_no_rails(sysfs, product, is_manager):
    """As on HGX B200: ConnectX-7 too, active at 400 Gb/s, and with no other node behind."""
    device = sysfs / "mlx5_2" / "device"
    (device / "device").write_text("0x1021\n")
    (device / "vpd").write_bytes(b"\x82\x10\0ConnectX-7\x90\x2a\0V3\x20" + product + b"\0\x78")
    rails = ["mlx5_10"] if is_manager else ["mlx5_2", "mlx5_10"]
    assert [hca.name for hca in kit.network.ports.active(sysfs)] == rails
    assert ("mlx5_2" in [port.name for port in kit.network.ports.physical_ports(sysfs)]) is (
        not is_manager
    )


GIB = 1 << 30
FABRIC = kit.network.between_hosts.Fabric("0a1b.3", 0, 900.0)
NO_FABRIC = kit.network.between_hosts.Fabric("", None, 0.0)


class Machine:
    """Files of one host: HCAs with any counters, and interfaces of sockets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/net").mkdir(parents=True)
        self.rows: dict[str, int] = {}

    def hca(self, name: str, **counters: int) -> None:
        port = self.root / "sys/class/infiniband" / name / "ports/1"
        port.mkdir(parents=True, exist_ok=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        for counter, count in counters.items():
            file = port / counter.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{count}\n")

    def interface(self, name: str, sent: int, kind: int = 1, hca: str = "") -> None:
        place = self.root / "sys/class/net" / name
        (place / "device/infiniband" / hca).mkdir(parents=True, exist_ok=True)
        (place / "type").write_text(f"{kind}\n")
        self.rows[name] = sent
        lines = (
            f"{name:>6}: {1000} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0"
            for name, sent in self.rows.items()
        )
        heads = "Inter-|   Receive   |  Transmit\n face |bytes    packets errs\n"
        (self.root / "proc/net/dev").write_text(heads + "\n".join(lines) + "\n")


def infiniband(machine: Machine, sent: int) -> None:
    machine.hca("mlx5_0", counters__port_xmit_data=sent // 4, counters__port_rcv_data=7)


def efa(machine: Machine, sent: int) -> None:
    machine.hca("rdmap16s27", hw_counters__rdma_write_bytes=sent, hw_counters__rx_drops=0)


def broadcom(machine: Machine, sent: int) -> None:
    machine.hca("bnxt_re0", hw_counters__tx_bytes=sent, hw_counters__rx_bytes=9)


def without_counters(machine: Machine, sent: int) -> None:
    """An HCA without counters, as a pod sees its own, or as a driver that counts nothing shows
    it."""
    machine.hca("mlx5_0")


def still(machine: Machine, sent: int) -> None:
    infiniband(machine, 0)


def by_tcp(machine: Machine, sent: int) -> None:
    still(machine, sent)
    machine.interface("eth0", sent)


def by_tcp_of_a_pod(machine: Machine, sent: int) -> None:
    without_counters(machine, sent)
    machine.interface("eth0", sent)


def by_ipoib(machine: Machine, sent: int) -> None:
    infiniband(machine, sent)
    machine.interface("ib0", sent, kind=32)


def roce_whose_interface_counts_all(machine: Machine, sent: int) -> None:
    without_counters(machine, sent)
    machine.interface("eth2", sent, hca="mlx5_0")


def storage_over_tcp(machine: Machine, sent: int) -> None:
    infiniband(machine, sent)
    machine.interface("eth0", 3 * sent)


def a_little_over_tcp(machine: Machine, sent: int) -> None:
    still(machine, sent)
    machine.interface("eth0", sent // 2)


def hosts_of(plant, folder: Path, fabric=NO_FABRIC, sent: int = 20 * GIB):
    """Two hosts that sent so much to each other, by their counters before and after."""
    watching = kit.network.between_hosts
    hosts = []
    for host in ("n0", "n1"):
        machine, counts = Machine(folder / host), []
        machine.interface("lo", 0)
        for total in (0, sent):
            plant(machine, total)
            machine.interface("lo", 10 * total)
            links = fabric if fabric.bytes is None else replace(fabric, bytes=total)
            counts.append(replace(watching.read_counts(None, machine.root), fabric=links))
        hosts.append(watching.rise(*counts, host, sent, 50.0))
    return watching.join_hosts(hosts)


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(kit.network.between_hosts, "read_fabric", lambda _: NO_FABRIC)


@pytest.mark.parametrize(
    ("plant", "fabric", "way", "samples", "ceiling"),
    [
        (infiniband, NO_FABRIC, "hca", 1.0, 50),
        (efa, NO_FABRIC, "hca", 1.0, 50),
        (broadcom, NO_FABRIC, "hca", 1.0, 50),
        (still, FABRIC, "nvlink", 1.0, 900),
        (without_counters, FABRIC, "nvlink", 1.0, 900),
        (infiniband, FABRIC, "hca", 1.0, 50),
        (without_counters, NO_FABRIC, "not known", None, 50),
        (still, NO_FABRIC, "not known", None, 50),
        (still, kit.network.between_hosts.Fabric("0a1b.3", None, 0.0), "not known", None, None),
        (a_little_over_tcp, NO_FABRIC, "not known", None, 50),
        (roce_whose_interface_counts_all, NO_FABRIC, "not known", None, 50),
        (storage_over_tcp, NO_FABRIC, "hca", 1.0, 50),
        (by_tcp, NO_FABRIC, "tcp", 1 / 3, 50),
        (by_tcp, FABRIC, "tcp", 1 / 3, 50),
        (by_tcp_of_a_pod, NO_FABRIC, "tcp", 1 / 3, 50),
        (by_ipoib, NO_FABRIC, "tcp", 1 / 3, 50),
    ],
)
def test_only_sockets_that_carried_the_bytes_prove_tcp(
    plant, fabric, way, samples, ceiling, tmp_path, no_driver
):
    report = contract.Report(frozenset({"agreement", "busbw_gbps"}))
    kit.network.between_hosts.judge(report, hosts_of(plant, tmp_path, fabric), by_choice=False)
    assert [facts["way"] for facts in report.notes["between_hosts"].values()] == [way, way]
    assert [series["samples"] for series in report.series] == ([[samples]] if samples else [])
    assert report.notes.get("sent_by_tcp") == ("n0, n1" if way == "tcp" else None)
    stated = report.notes.get("ceilings", {}).get("busbw_gbps", {}).get("value")
    assert stated == ceiling


@pytest.mark.parametrize(
    ("plant", "fabric", "samples"),
    [(still, FABRIC, [1.0]), (infiniband, FABRIC, [1 / 3]), (by_tcp, FABRIC, [1 / 3])],
)
def test_pairs_over_nvlink_that_go_another_way_are_wrong_answers(
    plant, fabric, samples, tmp_path, no_driver, monkeypatch
):
    monkeypatch.setenv(kit.network.between_hosts.MNNVL, "1")
    report = contract.Report(frozenset({"agreement"}))
    kit.network.between_hosts.judge(report, hosts_of(plant, tmp_path, fabric), by_choice=False)
    (series,) = report.series
    assert (series["metric"], series["samples"]) == ("agreement:by_nvlink", samples)


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (("a.1", "a.1"), None),
        (("a.1", "a.2"), contract.Unmeasured),
        (("a.1", ""), contract.Unmeasured),
        (("", ""), contract.NotApplicable),
    ],
)
def test_nodes_without_a_common_nvlink_domain_are_refused_if_it_is_measured(
    names, refusal, no_driver
):
    def check(environment):
        seen = list(zip(("n0", "n1"), names, strict=True))
        kit.network.between_hosts.require_one_domain(lambda own: seen, "cuda:0", environment)

    check({})
    with nullcontext() if refusal is None else pytest.raises(refusal):
        check({"NCCL_MNNVL_ENABLE": "1"})


@pytest.mark.parametrize(
    ("usual", "busy", "fabric", "ways", "samples"),
    [
        (without_counters, by_tcp_of_a_pod, NO_FABRIC, ["not known", "not known"], []),
        (still, by_tcp, FABRIC, ["nvlink", "nvlink"], [[1.0]]),
        (infiniband, by_tcp, NO_FABRIC, ["hca", "tcp"], [[0.5]]),
    ],
)
def test_one_host_whose_sockets_are_busy_sent_nothing_by_tcp_if_another_way_may_have_been_taken(
    usual, busy, fabric, ways, samples, tmp_path, no_driver
):
    """Files that it reads meanwhile, say: what goes by TCP goes from one host to another."""
    report = contract.Report(frozenset({"agreement"}))
    hosts = hosts_of(usual, tmp_path / "a", fabric)
    hosts["n1"] = hosts_of(busy, tmp_path / "b", fabric)["n1"]
    kit.network.between_hosts.judge(report, hosts, by_choice=False)
    assert [facts["way"] for facts in report.notes["between_hosts"].values()] == ways
    assert [series["samples"] for series in report.series] == samples


def test_too_few_bytes_beside_other_traffic_prove_no_way(tmp_path, no_driver):
    hosts = hosts_of(by_tcp, tmp_path, sent=10 << 20)
    assert set(kit.network.between_hosts.Ways(hosts).by_host.values()) == {"not known"}


def test_a_counter_that_began_anew_is_not_known(tmp_path, no_driver):
    machine = Machine(tmp_path)
    infiniband(machine, GIB)
    before = kit.network.between_hosts.read_counts(None, tmp_path)
    infiniband(machine, 0)
    carried = kit.network.between_hosts.rise(
        before, kit.network.between_hosts.read_counts(None, tmp_path), "n", 0, 50
    )
    assert carried.by_hca == {"mlx5_0": None}


def test_a_host_without_hcas_is_expected_to_send_by_tcp(tmp_path, no_driver):
    report = contract.Report(frozenset({"agreement"}))
    hosts = hosts_of(lambda machine, sent: machine.interface("eth0", sent), tmp_path)
    kit.network.between_hosts.judge(report, hosts, by_choice=False)
    assert report.series == []


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ("", {"eth0", "eth10", "ib0"}),
        ("eth", {"eth0", "eth10"}),
        ("=eth0", {"eth0"}),
        ("^eth", {"ib0"}),
        ("^=eth0", {"eth10", "ib0"}),
        ("ib,eth1", {"ib0", "eth10"}),
    ],
)
def test_interfaces_are_those_that_nccl_is_left(choice, left):
    environment = {"NCCL_SOCKET_IFNAME": choice} if choice else {}
    names = ("lo", "eth0", "eth10", "ib0")
    chosen = {name for name in names if kit.network.between_hosts.is_for_sockets(name, environment)}
    assert chosen == left


@pytest.mark.parametrize("name", ["NCCL_IB_DISABLE", "NCCL_NET"])
def test_tcp_by_choice_is_accepted_without_a_remark(name, tmp_path, no_driver):
    chosen = kit.network.between_hosts.tcp_is_chosen
    assert not chosen({name: "0" if name == "NCCL_IB_DISABLE" else "IB"})
    assert chosen({name: "1" if name == "NCCL_IB_DISABLE" else "Socket"})
    report = contract.Report(frozenset({"agreement"}))
    kit.network.between_hosts.judge(report, hosts_of(by_tcp, tmp_path), by_choice=True)
    assert report.series == []


TWO_HOSTS = """
import platform
from kit.network import between_hosts, ports
platform.node = lambda: f"n{rank}"
between_hosts.ENOUGH = 1
HCA = ports.Hca(name="mlx5_0", port=1, gbps=50.0, cpus=frozenset(), place="/x")
ports.active = lambda *_: [HCA]
counts, sockets = iter((0, rank << 30)), iter((0, (1 - rank) << 30))
ports.carried_bytes = lambda *_: next(counts)
between_hosts.interfaces = lambda _: {"eth0": between_hosts.Interface((next(sockets), 0))}
"""


@pytest.mark.long
def test_between_nodes_with_gpus_the_bytes_of_each_hca_are_noted(planted, nvml_library, tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    environment = node.GpuNode(folder, nvml_library.parent, 2).environment(NVML_cluster=7)
    words = ("--operations=broadcast", "--bytes=4096", "--samples=1")
    ran = planted("collective", TWO_HOSTS, *words, env=environment)
    assert ran.exit_code == 0, ran.stderr
    assert ran.samples("agreement:by_hca") == [0.5]
    facts = ran.document["environment"]
    assert facts["hcas_carried_bytes"] == {"n0": {"mlx5_0": 0}, "n1": {"mlx5_0": 1 << 30}}
    assert facts["sent_by_tcp"] == "n0"
    assert facts["between_hosts"]["n0"]["sent_bytes_at_least"] == 2048  # half of the message


def test_an_hca_uses_the_gpu_behind_the_same_bridge():
    gpus = ["/sys/devices/pci0000:00/0000:01.0/g0", "/sys/devices/pci0000:80/0000:81.0/g1"]
    assert kit.network.ports.nearest_gpu("/sys/devices/pci0000:80/0000:81.0/nic", gpus) == 1
    assert kit.network.ports.nearest_gpu("/sys/devices/pci0000:00/0000:05.0/nic", gpus) == 0


# --- servers and clients -------------------------------------------------------------------


@needs_ucx
def test_a_port_that_another_took_first_is_tried_no_more(monkeypatch):
    with socket.create_server(("", 0)) as other:
        taken, free = other.getsockname()[1], kit.tools.free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(kit.tools, "free_port", lambda: next(ports))
        with kit.tools.serve(lambda port: [UCX, "-p", str(port)], limit_s=20) as (port, server):
            assert port == free
            assert server.poll() is None
        assert server.poll() is not None


def test_a_server_that_cannot_start_is_reported_with_its_reason_in_one_line(monkeypatch):
    broken = [sys.executable, "-c", "import sys; sys.exit('no such device')"]
    with (
        pytest.raises(contract.Unmeasured, match='as server said "no such device"'),
        kit.tools.serve(lambda _: broken, limit_s=20),
    ):
        pass


def test_a_tool_that_hangs_is_ended_at_its_deadline():
    with pytest.raises(contract.Unmeasured, match=r"sleep gave no answer within 0\.1 s"):
        kit.tools.run(["sleep", "60"], limit_s=0.1)


HCA = kit.network.ports.Hca(
    name="mlx5_0", port=1, gbps=50.0, cpus=frozenset(), place="/sys/devices/x"
)


@pytest.mark.skipif(PERFTEST is None, reason="perftest is not installed")
def test_perftest_that_finds_no_hca_reports_it_in_one_line():
    if list(kit.network.ports.SYSFS.glob("*")):
        pytest.skip("this machine has HCAs")
    with pytest.raises(contract.Unmeasured, match="Unable to find the Infiniband/RoCE device"):
        ib_loopback.to_itself(PERFTEST, HCA, 65536, [])


@pytest.fixture
def stand_ins(tmp_path):
    node.put_tools(tmp_path / "bin", node.PERFTEST)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "BW": "24056.72", "LAT": "1.80"}


PLANTED_HCAS = """
from kit.network.ports import Hca
def active():
    names = ["mlx5_0", "mlx5_1"] if rank != LACKING else ["mlx5_0"]
    return [Hca(name=name, port=1, gbps=50.0, cpus=frozenset(), place="/x") for name in names]
program.active = active
"""


def test_loopback_meets_every_hca_in_gigabytes_of_1e9(planted, stand_ins):
    fault = PLANTED_HCAS.replace("LACKING", "None")
    ran = planted("ib_loopback", fault, "--sizes=8388608", "--samples=2", env=stand_ins)
    assert ran.exit_code == 0, ran.stderr
    series = {s["device"]: s["samples"] for s in ran.document["series"]}
    # 8388608 bytes at 0.003007 million messages a second, as that recording has it
    assert series["mlx5_0"] == pytest.approx([8388608 * 0.003007 / 1e3] * 2, rel=1e-3)
    assert set(series) == {"mlx5_0", "mlx5_1"}
    assert ran.document["environment"]["ceilings"]["bandwidth_gbps"]["value"] == 50


BROKEN = """
sound = program.arguments
def arguments(tool, hca, *rest):
    broken = ["sh", "-c", "echo \\"Couldn't allocate MR\\"; exit 1"]
    return broken if hca.name == "mlx5_0" else sound(tool, hca, *rest)
program.arguments = arguments
"""


@pytest.mark.parametrize("name", ["ib_loopback", "pair_rdma"])
def test_an_hca_that_fails_is_named_and_hides_no_other(planted, stand_ins, name):
    fault = ALL_HCAS + BROKEN
    ran = planted(name, fault, "--sizes=65536", "--samples=1", env=stand_ins)
    assert ran.exit_code == 0, ran.stderr
    assert any("mlx5_1" in s["device"] for s in ran.document["series"])
    ((hca, reason),) = ran.document["environment"]["failed_devices"].items()
    assert hca.startswith("mlx5_0")
    assert "Couldn't allocate MR" in reason


def test_a_slow_direction_and_a_missing_rail_show_in_a_pair(planted, stand_ins):
    fault = PLANTED_HCAS.replace("LACKING", "1") + (
        "import kit.pair\nkit.pair.active = active\n"
        "if rank == 1:\n    os.environ['BW'] = '12028.36'\n"  # what the second node sends is slow
    )
    ran = planted("pair_rdma", fault, "--sizes=65536", "--samples=2", env=stand_ins)
    assert ran.exit_code == 0, ran.stderr
    assert {s["device"] for s in ran.document["series"]} == {"mlx5_0-mlx5_0", "hcas"}
    forth = ran.samples("bandwidth_gbps:forth/65536")
    assert ran.samples("bandwidth_gbps:back/65536") == pytest.approx([s / 2 for s in forth])
    assert ran.samples("latency_us:65536") == [1.8, 1.8]
    assert ran.samples("agreement:rails") == [0.5]


ONE_IS_SLOW = """
sound = program.arguments
def arguments(tool, hca, *rest):
    slow = ["env", "BW=12028.36"] if hca.name == "mlx5_1" else []
    return [*slow, *sound(tool, hca, *rest)]
program.arguments = arguments
"""


@pytest.mark.parametrize(
    ("fault", "samples"), [("", {2: 1}), (ONE_IS_SLOW, {2: 3}), (BROKEN, {1: 3})]
)
def test_hcas_at_once_need_one_sample_if_they_are_alike(planted, stand_ins, fault, samples):
    """Number of HCAs that answer, and of their samples: one that fails has none beside it."""
    ran = planted(
        "pair_rdma",
        ALL_HCAS + fault,
        "--sizes=8388608",
        "--samples=3",
        "--at_once=true",
        env=stand_ins,
    )
    assert ran.exit_code == 0, ran.stderr
    of_size = [s for s in ran.document["series"] if s["metric"] == "bandwidth_gbps:back/8388608"]
    assert {len(of_size): len(of_size[0]["samples"])} == samples
    values = {s["device"]: s["samples"][0] for s in of_size}
    if fault == ONE_IS_SLOW:
        assert values["mlx5_1-mlx5_1"] == pytest.approx(values["mlx5_0-mlx5_0"] / 2)
    if fault == BROKEN:
        assert list(ran.document["environment"]["failed_devices"]) == ["mlx5_0-mlx5_0"]


BY_WHICH = """
import kit.pair
kit.pair.active = active
log = open(f"{os.environ['TOOLS']}-{rank}", "a")
sound = kit.pair.transfer
def transfer(pair, sender, way, *rest):
    command = way.server(0)
    print(command[command.index("-d") + 1], file=log, flush=True)
    return sound(pair, sender, way, *rest)
program.transfer = transfer
"""


def test_across_rails_each_end_measures_by_its_own_adapter(planted, stand_ins, tmp_path):
    """Rail 7 is on no node; of three rails that are counted round, 1 is followed by 7."""
    fault = PLANTED_HCAS.replace("LACKING", "None") + BY_WHICH
    words = "--sizes=8388608", "--samples=1", "--shift=1", "--rails=0,1,7"
    env = stand_ins | {"TOOLS": str(tmp_path / "tools")}
    ran = planted("pair_rdma", fault, *words, env=env)
    assert ran.exit_code == 0, ran.stderr
    assert {s["device"] for s in ran.document["series"]} == {"mlx5_0-mlx5_1"}
    by_end = [(tmp_path / f"tools-{rank}").read_text().split() for rank in (0, 1)]
    assert by_end == [["mlx5_0"] * 2, ["mlx5_1"] * 2]


def test_adapters_that_no_rail_names_do_not_meet_across_rails(planted, stand_ins):
    fault = PLANTED_HCAS.replace("LACKING", "1") + "import kit.pair\nkit.pair.active = active\n"
    ran = planted("pair_rdma", fault, "--shift=1", "--rails=0,8", env=stand_ins)
    assert ran.exit_code != 0
    assert "no HCAs meet 1 rails apart" in ran.stderr


IN_GPUS = """
import kit.pair, kit.network.perftest, kit.network.ports
kit.pair.active = active
kit.network.perftest.gpu_places = lambda: ["/sys/devices/pci0/0000:0a:00.0", "/x/0000:8b:00.0"]
from pathlib import Path
kit.network.perftest.MODULES = Path(os.environ["MODULES"])
log = open(os.environ["TOOLS"], "a")
sound = kit.pair.transfer
def transfer(pair, sender, way, *rest):
    print(*way.server(0), file=log, flush=True)
    return sound(pair, sender, way, *rest)
program.transfer = transfer
"""


def test_buffers_in_gpus_are_those_of_the_gpu_beside_the_hca_and_latency_is_of_sends(
    planted, stand_ins, tmp_path
):
    """perftest refuses latencies of writes between GPUs, and inline messages out of one."""
    fault = PLANTED_HCAS.replace("LACKING", "None") + IN_GPUS
    env = {**stand_ins, "HELP": "--use_cuda=<id> --use_cuda_bus_id=<id> --use_cuda_dmabuf"}
    env |= {"TOOLS": str(tmp_path / "tools"), "MODULES": str(tmp_path / "none")}
    words = ("--memory=cuda", "--hcas=mlx5_0", "--sizes=64", "--samples=1")
    ran = planted("pair_rdma", fault, *words, env=env)
    assert ran.exit_code == 0, ran.stderr
    assert ran.samples("latency_us:64") == [1.8]
    calls = [line.split() for line in (tmp_path / "tools").read_text().splitlines()]
    assert {Path(call[0]).name for call in calls} == {"ib_write_bw", "ib_send_lat"}
    for call in calls:
        assert "--use_cuda_bus_id=0000:8b:00.0" in call
        assert call[-3:] == ["--use_cuda_dmabuf", "-I", "0"]


def test_an_hca_reaches_a_gpu_by_a_module_or_by_dma_buf_or_not_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(kit.network.perftest, "MODULES", tmp_path)
    assert kit.network.perftest.way_into_gpus("--use_cuda_dmabuf") == ["--use_cuda_dmabuf"]
    with pytest.raises(contract.NotApplicable, match="load the module nvidia_peermem"):
        kit.network.perftest.way_into_gpus("--use_cuda=<id>")
    (tmp_path / "nvidia_peermem").mkdir()
    assert kit.network.perftest.way_into_gpus("--use_cuda_dmabuf") == []


def test_an_older_perftest_gets_the_number_of_the_gpu(monkeypatch):
    monkeypatch.setattr(
        kit.network.perftest, "gpu_places", lambda: ["/x/0000:0a:00.0", "/y/0000:8b:00.0"]
    )
    monkeypatch.setattr(kit.network.perftest, "find", str)
    monkeypatch.setattr(kit.network.perftest, "way_into_gpus", lambda options: [])
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    for options, told in (("--use_cuda=<id>", ["--use_cuda=0", "-I", "0"]), ("-x", None)):
        help_text = subprocess.CompletedProcess([], 0, stdout=options, stderr="")
        monkeypatch.setattr(kit.network.perftest, "run", lambda *_, text=help_text, **__: text)
        if told:
            assert kit.network.perftest.memory_arguments("cuda", HCA) == told
            assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        else:
            with pytest.raises(contract.NotApplicable, match="built without CUDA"):
                kit.network.perftest.memory_arguments("cuda", HCA)


# --- incast --------------------------------------------------------------------------------


def test_receivers_are_spread_over_all_nodes():
    names = [f"n{i}" for i in range(10)]
    assert incast.spread(names, 0) == names
    assert incast.spread(names, 99) == names
    assert incast.spread(names, 4) == ["n0", "n2", "n5", "n7"]


SPOILT_SENDER = """
import kit.group
program.processes = lambda: 4
pattern = program.pattern
program.pattern = lambda sender, *rest: pattern(sender + (rank == 2 == sender), *rest)
kit.group.slowest_times = lambda call, *_, **__: [(call(), 0.001)[1]] * 2
"""


def test_incast_counts_all_senders_and_shows_wrong_bytes_at_their_receivers(planted):
    """Four ranks stand for nodes; the third sends wrong bytes to each of the others."""
    ran = planted("incast", SPOILT_SENDER, "--sizes=1000", "--receivers=0")
    assert ran.exit_code == 0, ran.stderr
    right = {s["device"]: s["samples"] for s in series_of(ran, "agreement:1000")}
    bad = [1 / 1001]
    assert right == {"cpu:0": bad, "cpu:1": bad, "cpu:2": [1.0], "cpu:3": bad}
    rates = [s["samples"] for s in series_of(ran, "ingress_gbps:1000")]
    assert rates == [pytest.approx([3 * 1000 / 0.001 / 1e9] * 2)] * 4


def series_of(ran, metric):
    return [series for series in ran.document["series"] if series["metric"] == metric]


def test_perftest_gets_size_count_and_device():
    argv = pair_rdma.arguments("/bin/ib_write_bw", HCA, 1234, 8 << 20, ["--use_cuda=3"])
    written = "/bin/ib_write_bw -d mlx5_0 -i 1 -p 1234 -s 8388608 -n 512 -F --use_cuda=3"
    assert " ".join(argv) == written


# --- pairs ---------------------------------------------------------------------------------


def test_the_first_rank_of_each_node_works():
    def ends(nodes, ranks, local):
        env = {"GROUP_WORLD_SIZE": nodes, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": local}
        return kit.pair.ends({name: str(number) for name, number in env.items()})

    assert ends(2, 16, 8) == (0, 8)
    assert ends(2, 2, 1) == (0, 1)
    assert ends(1, 2, 2) == (0, 1)
    for wrong in ((3, 3, 1), (1, 1, 1), (2, 9, 8)):
        with pytest.raises(contract.Unmeasured, match="a pair needs two nodes"):
            ends(*wrong)


@needs_ucx
def test_ucx_numbers_are_those_that_ucx_perftest_printed(run, benchmark_file, tmp_path):
    tee = tmp_path / "ucx_perftest"
    tee.write_text(
        f'#!/bin/sh\ncase "$*" in *"-t "*) ;; *) exec {UCX} "$@" ;; esac\n'
        f'echo "$@" >> {tmp_path}/asked\n{UCX} "$@" | tee -a {tmp_path}/said\n'
    )
    tee.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = run(benchmark_file("pair_ucx"), "--smoke", "--sizes=1024", "--samples=2", env=env)
    assert ran.exit_code == 0, ran.stderr
    clients = (tmp_path / "asked").read_text().splitlines()
    lines = [line.strip().split(",") for line in (tmp_path / "said").read_text().splitlines()]
    results = [line for line in lines if len(line) == 8 and line[0].isdecimal()]
    tests = [
        (asked.split("-t ")[1].split()[0], result)
        for asked, result in zip(clients, results, strict=True)
    ]
    # whatever was tried before, the last two tests of a kind are its samples
    rates = [int(line[7]) * 1024 / 1e9 for test, line in tests if test == "tag_bw"]
    back = ran.samples("bandwidth_gbps:back/1024")
    assert back == pytest.approx(rates[-2:], rel=0.05)
    forth = ran.samples("bandwidth_gbps:forth/1024")
    assert any(forth == pytest.approx(rates[at : at + 2], rel=0.05) for at in range(len(rates) - 4))
    waits = [float(line[3]) for test, line in tests if test == "tag_lat"]
    assert ran.samples("latency_us:1024") == waits[-2:]


@pytest.mark.parametrize("size", [64, 1024, 1 << 20])
@pytest.mark.parametrize("rate", [10e6, 25e6, 1e9, 50e9], ids="{:g}".format)
def test_a_sample_lasts_long_enough_despite_buffers_and_stalls_of_the_first_messages(size, rate):
    def takes_s(messages, stalled_s, buffer):
        """A memory's speed into the buffer, then the link's; and the first test met a stall."""
        sent = messages * size
        return sent / 100e9 + max(0, sent - buffer) / rate + (stalled_s if messages < 10 else 0)

    for stalled_s, buffer in ((0, 0), (0.1, 0), (0, 300_000), (0.1, 300_000)):
        tried = []

        def message_s(messages, stalled_s=stalled_s, buffer=buffer, tried=tried):
            tried.append(takes_s(messages, stalled_s, buffer))
            return tried[-1] / messages

        messages = pair_ucx.lasting(0.3, message_s)
        lasts_s = takes_s(messages, 0, buffer)
        assert lasts_s > 0.1
        assert lasts_s < 0.7 or messages == pair_ucx.FEW
        assert sum(tried) < 30 * 0.3


def test_bytes_that_arrive_wrong_show_in_a_pair_and_its_times_are_the_slower_ends(planted):
    fault = """
import torch.distributed as dist
from kit import timing
from kit.possession import Seconds
def planted(call, device, samples, calls):
    call()
    return Seconds([0.001 * (1 + rank)] * samples, [0] * samples)
timing.time_calls = planted
sound = dist.recv
def spoilt(tensor, *arguments, **named):
    sound(tensor, *arguments, **named)
    if rank == 1 and tensor.dtype.itemsize == 1 and tensor.numel() == 65536:
        tensor[7] += 1
dist.recv = spoilt
"""
    ran = planted("pair_torch", fault, "--smoke", "--sizes=64,65536")
    assert ran.exit_code == 0, ran.stderr
    assert ran.samples("agreement:65536") == [0.5]
    assert ran.samples("agreement:64") == [1.0]
    for direction in ("forth", "back"):
        rates = ran.samples(f"bandwidth_gbps:{direction}/65536")
        assert rates == pytest.approx([65536 / 0.002 / 1e9] * 3)
    assert ran.samples("latency_us:64") == pytest.approx([1000.0] * 3)  # half of 2 ms


def on_two_nodes(start: Callable[[int], Any]) -> list[Any]:
    """A function that runs the ranks of one node, for both nodes at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(start, (0, 1)))


@pytest.mark.parametrize("name", [pytest.param("pair_ucx", marks=needs_ucx), "pair_torch"])
def test_the_first_of_two_nodes_reports_and_idle_ranks_end_well(
    benchmark_file, forked, tmp_path, name
):
    torchrun = "-m", "torch.distributed.run", "--rdzv-backend=static", "--local-addr=127.0.0.1"
    pair_test = "--master-addr=127.0.0.1", f"--master-port={kit.tools.free_port()}"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}

    def start(node: int):
        ranks = "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2"
        words = (str(benchmark_file(name)), "--smoke", "--sizes=1024")
        return forked.run([*torchrun, *pair_test, *ranks, *words], environment, tmp_path)

    first, second = on_two_nodes(start)
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr + second.stderr
    metrics = [series["metric"] for series in first.document["series"]]
    assert {"bandwidth_gbps:forth/1024", "bandwidth_gbps:back/1024"} <= set(metrics)
    assert second.stdout == ""


def test_across_rails_gpus_meet_those_further_on(benchmark_file, forked, gpu_node, tmp_path):
    torchrun = "-m", "torch.distributed.run", "--rdzv-backend=static", "--local-addr=127.0.0.1"
    pair_test = "--master-addr=127.0.0.1", f"--master-port={kit.tools.free_port()}"
    environment = {**gpu_node(2).environment(), "GLOO_SOCKET_IFNAME": "lo"}

    def start(node: int):
        ranks = "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2"
        words = (str(benchmark_file("pair_torch")), "--smoke", "--sizes=1024", "--shift=1")
        return forked.run([*torchrun, *pair_test, *ranks, *words], environment, tmp_path)

    first, second = on_two_nodes(start)
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr + second.stderr
    series = first.document["series"]
    assert {one["device"] for one in series} == {"cuda:0-cuda:1", "cuda:1-cuda:0"}
    assert {*chain.from_iterable(one["samples"] for one in series if "agree" in one["metric"])} == {
        1
    }


@pytest.mark.parametrize(("gpus", "rails"), [(1, "0,1"), (4, "0,1")])
def test_gpus_that_are_not_in_the_order_of_rails_give_no_path_across(gpus, rails):
    with pytest.raises(contract.NotApplicable):
        pair_torch.check_rails(gpus, rails)
    assert pair_torch.check_rails(2, rails) is None


# --- killed at any moment ------------------------------------------------------------------


def with_marker(marker: str) -> list[int]:
    """Processes that inherited a variable from the program under test."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def names_of(marker: str) -> list[str]:
    names = []
    for pid in with_marker(marker):
        try:
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return names


@pytest.mark.long
@needs_ucx
def test_a_pair_killed_while_its_tool_works_leaves_nothing(benchmark_file, tmp_path, shared_memory):
    """Before that it is a launcher: test_orphaned_ranks.py kills one."""
    marker = f"ANUBIS_TEST_MARKER={tmp_path.name}"
    name, _, value = marker.partition("=")
    program = subprocess.Popen(
        [*shared_memory.inside, sys.executable, benchmark_file("pair_ucx"), "--sample_s=100"],
        env={**os.environ, name: value, "TMPDIR": str(tmp_path)},  # torchrun leaves a folder there
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: "ucx_perftest" in names_of(marker))
        time.sleep(0.3)
        program.kill()
        program.wait()
        assert eventually(lambda: not with_marker(marker))
    finally:
        for pid in with_marker(marker):
            os.kill(pid, signal.SIGKILL)
    assert not shared_memory.left()


ALL_HCAS = PLANTED_HCAS.replace("LACKING", "None") + "import kit.pair\nkit.pair.active = active\n"
TWO_GPUS = "program.gpus = lambda: 2"
TOOL_OF = {  # by adapter: the tool that it waits for, and what it must believe of this machine
    "ib_loopback": ("ib_write_bw", ALL_HCAS),
    "pair_rdma": ("ib_write_bw", ALL_HCAS + "program.processes = lambda: 2"),
    "nccl_tests": ("all_reduce_perf", TWO_GPUS),
    "nvbandwidth": ("nvbandwidth", ""),
    "dcgm_diag": ("dcgmi", ""),
}
MOMENTS = {(name, moment) for name in TOOL_OF for moment in ("it starts", "the tool works")}
MOMENTS.remove(("pair_rdma", "the tool works"))  # which pair_ucx shows by a real tool


@pytest.mark.long
@pytest.mark.parametrize(("name", "moment"), sorted(MOMENTS))
def test_killed_at_any_moment_an_adapter_leaves_nothing(
    plant, stand_ins, tmp_path, shared_memory, name, moment
):
    tool, fault = TOOL_OF[name]
    for other in {tool, "all_gather_perf"} - {"ib_write_bw"}:  # that one is there
        (tmp_path / "bin" / other).write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
        (tmp_path / "bin" / other).chmod(0o755)
    scratch, marker = tmp_path / "scratch", f"ANUBIS_TEST_MARKER={tmp_path}"
    scratch.mkdir()
    marks = {"ANUBIS_TEST_MARKER": str(tmp_path), "TMPDIR": str(scratch), "STALL": "600"}
    program = subprocess.Popen(
        [*shared_memory.inside, sys.executable, plant(name, fault)],
        env={**os.environ, **stand_ins, **marks},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: moment == "it starts" or tool in names_of(marker))
        time.sleep({"it starts": 0.05, "the tool works": 0.3}[moment])
        assert program.poll() is None
        program.kill()
        program.wait()
        assert eventually(lambda: not with_marker(marker))
    finally:
        for pid in with_marker(marker):
            os.kill(pid, signal.SIGKILL)
    assert not list(scratch.iterdir())
    assert not shared_memory.left()


# --- two hosts and a wire between them -----------------------------------------------------


@pytest.fixture
def hosts():
    """Two network namespaces with one wire; the way from the second to the first is slow."""
    if os.geteuid() != 0 or not shutil.which("tc"):
        pytest.skip("network namespaces need root, and tc")
    names = [f"anubis-{os.getpid()}-{end}" for end in "ab"]
    wires = [f"w{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        ends = ["type", "veth", "peer", "name", wires[1], "netns", names[1]]
        subprocess.run(["ip", "-n", names[0], "link", "add", wires[0], *ends], check=True)
        for end, (name, wire) in enumerate(zip(names, wires, strict=True), 1):
            for words in (f"addr add 10.231.7.{end}/24 dev {wire}", "link set lo up"):
                subprocess.run(["ip", "-n", name, *words.split()], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", wire, "up"], check=True)
        slow = ["root", "tbf", "rate", "200mbit", "burst", "64kb", "latency", "50ms"]
        subprocess.run(["tc", "-n", names[1], "qdisc", "add", "dev", wires[1], *slow], check=True)
        yield list(zip(names, wires, strict=True))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.testbed
@pytest.mark.parametrize(
    ("name", "size"),  # a test of UCX is four messages and more, which may be smaller
    [pytest.param("pair_ucx", 1_048_576, marks=needs_ucx), ("pair_torch", 2_097_152)],
)
def test_a_wire_that_is_slow_one_way_is_slow_in_that_direction_only(
    benchmark_file, hosts, name, size
):
    def start(node: int):
        network, wire = hosts[node]
        rank = {"RANK": str(node), "GROUP_RANK": str(node), "LOCAL_RANK": "0"}
        ranks = {"WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
        place = {"MASTER_ADDR": "10.231.7.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": wire}
        return subprocess.run(
            [
                *("ip", "netns", "exec", network, sys.executable, benchmark_file(name)),
                *("--smoke", f"--sizes={size}"),
            ],
            env={**os.environ, **rank, **ranks, **place},
            capture_output=True,
            text=True,
            timeout=300,
        )

    first, second = on_two_nodes(start)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    samples = {series["metric"]: series["samples"] for series in json.loads(first.stdout)["series"]}
    slow = max(samples[f"bandwidth_gbps:back/{size}"])
    assert slow <= 0.2 / 8 * 1.05  # 200 Mbit/s, and what the token bucket lends
    assert max(samples[f"bandwidth_gbps:forth/{size}"]) > 2 * slow
