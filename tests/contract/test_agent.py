"""The 1 Hz agent: samples, reports, records, and the sources that it can do without."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import kit.gpus.nvml
import pytest
import telemetry.agent
import typer.main
from kit.network.ethtool import Statistics
from telemetry.agent import AT, Agent, Questioner, Recording, moments_of, options
from telemetry.gpu_source import Gpus
from telemetry.host_source import Host
from telemetry.network_source import HARDWARE, Network, Pauses, nics_in_use, traffic_of
from telemetry.page import text_of
from telemetry.ring import Ring, node_values
from telemetry.sources import Place, Rates, Sampled

from anubis.cli.main import app
from tests.contract.conftest import BENCHMARKS
from tests.gpus.node import GpuNode, plant_kfd
from tests.patience import LIMIT_S, eventually

HERE = Place(Path("/"), Path("/proc"))
NIC = next(iter(nics_in_use(HERE.root, list(traffic_of(Path("/proc/net/dev").read_bytes())))), "")
EXAMPLE = Path(__file__).parents[1] / "telemetry/agent.jsonl"
AGENT = BENCHMARKS / "telemetry"


# --- counters ------------------------------------------------------------------------------


def test_a_counter_that_was_set_back_or_came_round_is_not_known_for_one_sample():
    rates = Rates()
    counts = [100, 150, 20, 40, None, 60, 70]
    rises = [rates.rise("sent", count, float(now)) for now, count in enumerate(counts)]
    assert rises == [None, 50, None, 20, None, None, 10]


def test_a_counter_that_stopped_at_its_end_says_nothing_of_now():
    rates = Rates()
    counts = [2**32 - 9, 2**32 - 1, 2**32 - 1, 2**32 + 9]
    assert [rates.rise("sent", count, float(now)) for now, count in enumerate(counts)] == [None] * 4


def test_a_rate_is_of_the_time_that_passed_and_not_over_a_long_gap():
    rates = Rates()
    assert rates.rise("sent", 0, 10.0) is None
    assert rates.rise("sent", 300, 13.0) == 100
    assert rates.rise("sent", 900, 29.0) is None


# --- moments -------------------------------------------------------------------------------


class Clock:
    """Sleeps exactly, and loses what a moment's work takes."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_samples_are_taken_at_full_seconds_and_no_work_in_between_adds_up():
    clock, moments = Clock(1000.4), []
    for moment, missed in islice(moments_of(1.0, clock, clock.sleep), 5):
        moments.append((moment, missed))
        clock.sleep(0.7)
    assert moments == [(1001, 0), (1002, 0), (1003, 0), (1004, 0), (1005, 0)]


def test_a_machine_that_stood_still_counts_its_missed_samples_and_invents_none():
    clock, moments = Clock(1000.0), []
    for moment, missed in islice(moments_of(1.0, clock, clock.sleep), 3):
        moments.append((moment, missed))
        clock.sleep(4.3 if moment == 1001 else 0.1)
    assert moments == [(1001, 0), (1006, 4), (1007, 0)]


def test_a_clock_that_is_set_back_stops_no_sampling_and_later_rows_make_room():
    clock, ring = Clock(5000.0), Ring("node1", 1.0)
    for moment, missed in islice(moments_of(1.0, clock, clock.sleep), 4):
        assert missed == 0
        ring.add(moment, [])
        clock.now -= 1000 if moment == 5002 else 0
    rows = [json.loads(line) for line in ring.lines_since(0)][1:]
    assert rows == [[4003], [4004]]
    assert clock.now == 4004


# --- devices, and what of them becomes a node's ----------------------------------------------


def test_several_devices_give_a_node_their_mean_and_their_worst():
    assert node_values("gpu_duty", {"0": 90, "1": 60}) == {"gpu_duty": 75, "gpu_duty:worst": 60}
    assert node_values("cnp", {"mlx5_0/1": 2, "mlx5_1/1": 4}) == {"cnp": 3, "cnp:worst": 4}
    assert node_values("cpu_use", {"node": 12}) == {"cpu_use": 12}


def test_a_device_that_says_nothing_ends_the_worst_and_is_no_zero_in_the_mean():
    values = node_values("gpu_power", {"0": 600, "1": math.nan, "2": 700})
    assert values["gpu_power"] == 650
    assert math.isnan(values["gpu_power:worst"])


# --- the ring ------------------------------------------------------------------------------


def sampled(**values: float) -> Sampled:
    return Sampled(values={metric: {"node": value} for metric, value in values.items()})


def test_a_ring_holds_its_span_and_gives_lines_after_a_time():
    ring = Ring("node1", 1.0, span_s=3)
    for now in range(10, 15):
        ring.add(now, [sampled(cpu_use=now / 4)])
    assert [json.loads(line) for line in ring.lines_since(0)][1:] == [
        [12, 3],
        [13, 3.25],
        [14, 3.5],
    ]
    assert [json.loads(line) for line in ring.lines_since(13)][1:] == [[14, 3.5]]


def test_a_metric_that_comes_later_was_not_known_before_and_one_that_ends_is_not_zero():
    ring = Ring("node1", 1.0)
    ring.add(10, [sampled(cpu_use=1)])
    ring.add(11, [sampled(disk_use=2)])
    heading, *rows = (json.loads(line) for line in ring.lines_since(0))
    assert heading["metrics"] == ["cpu_use", "disk_use"]
    assert rows == [[10, 1, None], [11, None, 2]]


def test_a_number_of_bytes_arrives_as_it_was():
    ring = Ring("node1", 1.0)
    ring.add(1795385747.001, [sampled(disk_use=85899345920, throughput=123456789012.5)])
    assert json.loads(list(ring.lines_since(0))[-1]) == [
        1795385747.001,
        85899345920,
        123456789012.5,
    ]


def test_the_recorded_example_has_the_format_of_the_agent():
    """`anubis/readers/telemetry/` reads this file in its tests."""
    heading, *rows = (json.loads(line) for line in EXAMPLE.read_text().split("\n") if line)
    assert (heading["agent"], heading["node"], heading["step_s"]) == (1, "node017", 1.0)
    assert {len(row) for row in rows} == {1 + len(heading["metrics"])}
    worst = [row[1 + heading["metrics"].index("gpu_duty:worst")] for row in rows]
    assert (worst[0], worst[-1]) == (90, None)  # GPU 5 fell off the bus


# --- the program ---------------------------------------------------------------------------


@dataclass
class Running:
    process: subprocess.Popen[str]
    url: str

    def text(self, path: str, **headers: str) -> str:
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
        return text


@contextmanager
def agent(*words: str | Path, env: dict[str, str] | None = None) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, AGENT, "--listen=127.0.0.1:0", *words],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        greeting = process.stderr.readline()
        yield Running(process, re.findall(r"http://[\d.:]+", greeting)[0])
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0
        process.stderr.close()


# --- sources that are not there, fail or hang -----------------------------------------------


@pytest.fixture
def gpu_node(tmp_path, nvml_library, monkeypatch) -> Iterator[GpuNode]:
    """NVML answers in this process, and knows eight GPUs."""
    library = ctypes.CDLL(str(nvml_library))
    monkeypatch.setenv("NVML_count", "8")
    (tmp_path / "node").mkdir()
    node = GpuNode(tmp_path / "node", nvml_library.parent)
    node.plant_hcas()
    yield node
    monkeypatch.undo()
    library.forget()


@pytest.fixture
def plant(monkeypatch):
    def plant(**values: int) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"NVML_{name}", str(value))

    return plant


class Sampler:
    """The agent's own thread, at moments that a test chooses."""

    def __init__(self, node: GpuNode) -> None:
        place = Place(node.root, Path("/proc"), "node7")
        sources = {"host": Host(place), "gpus": Gpus(place)}
        self.agent = Agent(Ring("node7", 1.0), sources, None)

    def rows(self, count: int, at: float | None = None) -> list[dict[str, float]]:
        """Rows of a page, without those that are not known."""
        for moment in range(count):
            self.agent.sample(float(moment + 1), time.monotonic() if at is None else at)
        heading, *rows = (json.loads(line) for line in self.agent.ring.lines_since(0))
        columns = ("time", *heading["metrics"])
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        return [{name: v for name, v in row.items() if v is not None} for row in named]

    @property
    def absent(self) -> dict[str, str]:
        return self.agent.ring.absent

    @property
    def page(self) -> str:
        return text_of(self.agent.lines(), is_open=False)


def test_values_of_nvml_for_eight_gpus_arrive_unchanged_and_a_lost_one_is_no_zero(gpu_node, plant):
    plant(**{f"duty_{gpu}": 90 + gpu for gpu in range(8)}, power=512000, lost_after_5=3)
    plant(gpm5=41, gpm20=1200, gpm21=800)
    sampler = Sampler(gpu_node)
    first = sampler.rows(1)[0]
    plant(handle_5=15)  # it is not reached again
    *_, last = sampler.rows(3)
    assert (first["gpu_duty"], first["gpu_duty:worst"]) == (93.5, 90)
    assert (first["gpu_power"], first["gpu_tensor"], first["gpu_temperature"]) == (512, 41, 31)
    assert first["pcie_throughput"] == 2000 * 2**20
    assert first["gpu_memory"] == 75_000_000_000
    assert sampler.absent["gpu_sm"] == "not supported by this GPU"
    assert last["gpu_duty"] == pytest.approx((748 - 95) / 7)
    assert not {"gpu_duty:worst", "gpu_tensor:worst"} & last.keys()
    gpu_4 = '{gpu="4",UUID="GPU-4",Hostname="node7"}'
    assert f"DCGM_FI_DEV_GPU_UTIL{gpu_4} 94\n" in sampler.page
    assert f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu_4} 0.41\n" in sampler.page
    assert 'gpu="5"' not in sampler.page


def test_errors_of_gpus_have_the_names_of_dcgm_and_those_that_nothing_counts_have_no_line(
    gpu_node, plant
):
    plant(ecc_uncorrected_now_3=2, rows_uncorrectable_3=4, no_nvlink_counter_2=3, lost_after_5=3)
    sampler = Sampler(gpu_node)
    sampler.rows(1)
    lines = dict(line.rsplit(" ", 1) for line in sampler.page.splitlines() if "DCGM" in line)

    def values(metric):
        return {
            gpu: float(value)
            for gpu in range(8)
            for name, value in lines.items()
            if name.startswith(f'DCGM_FI_DEV_{metric}{{gpu="{gpu}"')
        }

    others = dict.fromkeys(range(8), 0.0)
    assert values("ECC_DBE_VOL_TOTAL") == others | {3: 2.0}
    assert values("UNCORRECTABLE_REMAPPED_ROWS") == others | {3: 4.0}
    assert values("PCIE_REPLAY_COUNTER") == dict.fromkeys(range(8), 40.0)
    counted = dict.fromkeys(range(8), 18 * 1000.0)
    assert values("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL") == counted
    assert values("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL") == {
        g: n for g, n in counted.items() if g != 2
    }
    plant(handle_5=15)
    sampler.rows(3)
    assert 'gpu="5"' not in sampler.page  # lost: unknown, not without errors


def test_xids_and_clock_reasons_have_the_names_of_dcgm_also_of_a_gpu_that_is_gone(gpu_node, plant):
    plant(no_xids_1=1, throttle_2=0x40)
    sampler = Sampler(gpu_node)
    sampler.rows(1)

    def values(metric):
        lines = (line.rsplit(" ", 1) for line in sampler.page.splitlines())
        return {n.partition("{")[2]: float(v) for n, v in lines if n.startswith(f"{metric}{{")}

    def labelled(gpu, more=""):
        return f'gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node7"{more}}}'

    assert values("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")[labelled(2)] == 0x40
    assert values("DCGM_FI_DEV_XID_ERRORS") == {labelled(g): 0 for g in range(8) if g != 1}
    assert not values("anubis_agent_xids_total")
    plant(xid_5=79, handle_5=15, lost_5=1, xid_1=48)  # of GPU 1 the driver reports none
    sampler.rows(2)
    plant(xid_6=63)
    sampler.rows(1)
    last = values("DCGM_FI_DEV_XID_ERRORS")
    assert {gpu: last[labelled(gpu)] for gpu in (0, 5, 6)} == {0: 0, 5: 79, 6: 63}
    assert values("anubis_agent_xids_total") == {
        labelled(5, ',xid="79"'): 1,
        labelled(6, ',xid="63"'): 1,
    }


def test_states_and_xids_of_gpus_are_passed_on_once_as_they_change(gpu_node, plant):
    source, passed = Gpus(Place(gpu_node.root, Path("/proc"), "node7")), []
    source.note = lambda id, line: passed.append(line)
    source.read(0.0)
    plant(xid_6=63, field230_2=1, failure_3=1)
    for now in (10.0, 20.0):
        source.read(now)
    gpus = {gpu: source._gpus[gpu].place for gpu in (2, 3, 6)}
    assert sorted(passed) == sorted(
        [
            f"NVML: GPU {gpus[2]}: recovery action: reset the GPU",
            f"NVML: GPU {gpus[3]}: row remap failure: 1",
            f"NVRM: Xid (PCI:{gpus[6][:-2]}): 63, as NVML reports it",
        ]
    )
    assert gpus[2].count(":") == 2


def test_a_gpu_that_was_reset_comes_back_and_the_others_never_paused(gpu_node, plant):
    plant(duty=50, lost_after_5=2)
    gpus = Gpus(Place(gpu_node.root, gpu_node.root))
    duties = []
    for now in (0, 1, 2, 3, 4, 40, 41):
        plant(handle_5=15 if 0 < now < 5 else 0)  # not reached until it was reset
        plant(lost_after_5=2 if now < 4 else 0)
        sampled = gpus.read(float(now))
        duties.append(sampled.values["gpu_duty"])
    assert [row["5"] == 50 for row in duties] == [True, True, False, False, False, True, True]
    assert {row["4"] for row in duties} == {50}


def test_on_a_signal_all_gpus_are_let_go_of_and_taken_again(gpu_node, plant, monkeypatch):
    ended = []
    monkeypatch.setattr(kit.gpus.nvml, "end", lambda: ended.append(1))
    plant(duty=50)
    gpus = Gpus(Place(gpu_node.root, gpu_node.root))
    gpus.read(0.0)
    gpus.wants_rest = True
    resting = gpus.read(1.0), gpus.read(500.0)
    assert all(math.isnan(value) for row in resting for value in row.values["gpu_duty"].values())
    assert "lets go of GPUs" in resting[0].absent["gpu_sm"]
    assert len(ended) == 1
    assert gpus.read(602.0).values["gpu_duty"]["0"] == 50
    gpus.wants_rest = True
    gpus.read(603.0)
    gpus.wants_rest = True  # it is done
    assert gpus.read(604.0).values["gpu_duty"]["0"] == 50


@pytest.mark.parametrize(("action", "users", "rests"), [(1, 0, True), (1, 2, False), (2, 0, False)])
def test_a_gpu_that_is_to_be_reset_is_released_once_nothing_runs_on_it(
    gpu_node, plant, action, users, rests
):
    plant(duty=50, field230=action, users=users)
    gpus = Gpus(Place(gpu_node.root, gpu_node.root))
    gpus.read(0.0)
    resting = gpus.read(1.0)
    assert math.isnan(resting.values["gpu_duty"]["0"]) is rests
    assert ("so that GPU 0" in resting.absent.get("gpu_sm", "")) is rests
    plant(field230=0)  # it was reset
    assert gpus.read(602.0).values["gpu_duty"]["0"] == 50


def test_a_driver_that_hangs_takes_no_other_series_with_it(gpu_node, plant, monkeypatch):
    monkeypatch.setattr(telemetry.agent, "PATIENCE_S", 0.3)
    plant(hang_after_7=1)
    sampler = Sampler(gpu_node)
    first, *_, last = sampler.rows(4)  # the driver takes an hour
    assert "gpu_duty" in first
    assert not {"gpu_duty", "gpu_power"} & last.keys()
    assert "memory_use" in last
    assert sampler.absent["gpu_power"].startswith("no answer for ")
    assert 'anubis_agent_source_answers{source="gpus"} 0\n' in sampler.page
    assert "DCGM" not in sampler.page


def test_a_gpu_without_counters_names_dcgm_as_the_way_to_get_them(gpu_node, plant):
    plant(gpm=0, pcie_tx=500, pcie_rx=250, nvlink_tx=7000, nvlink_rx=3000)
    sampler, began = Sampler(gpu_node), time.monotonic()
    sampler.rows(1, at=began)
    plant(nvlink_tx=7000 + 2 * 204800, nvlink_rx=3000 + 2 * 102400)
    last = sampler.rows(1, at=began + 2)[-1]
    assert "DCGM may" in sampler.absent["gpu_tensor"]
    assert not {"gpu_tensor", "gpu_graphics"} & last.keys()
    assert last["pcie_throughput"] == 750_000
    assert last["nvlink_throughput"] == pytest.approx(300 * 2**20)


def test_without_a_driver_or_with_amd_gpus_the_metric_is_absent_with_its_reason(
    tmp_path, monkeypatch
):
    def no_driver() -> None:
        raise kit.gpus.nvml.NoDriver("libnvidia-ml.so.1 cannot be loaded")

    monkeypatch.setattr(kit.gpus.nvml, "begin", no_driver)
    plant_kfd(tmp_path, gpus=2)
    for root, reason in ((tmp_path, "of AMD's GPUs"), (tmp_path / "other", "libnvidia-ml.so.1")):
        sampled = Gpus(Place(root, root)).read(1.0)
        assert not sampled.values
        assert sampled.absent["gpu_duty"].startswith(reason)


def test_a_source_that_fails_is_reported_with_its_reason_and_others_go_on():
    class Broken:
        def read(self, now: float) -> Sampled:
            raise OverflowError("a counter of the future")

    agent = Agent(Ring("node7", 1.0), {"gpus": Broken(), "host": Host(HERE)}, None)
    agent.sample(1.0, time.monotonic())
    assert agent.ring.absent == {"gpus": "OverflowError: a counter of the future"}
    assert "memory_use" in agent.ring.metrics


def test_counters_of_an_hca_become_rates_and_a_lost_one_has_none(gpu_node):
    ports = gpu_node.root / "sys/class/infiniband"
    source = Network(Place(gpu_node.root, Path("/nowhere")))
    for hca in range(8):
        (ports / f"mlx5_{hca}/ports/1/hw_counters").mkdir()
        for name in HARDWARE:
            (ports / f"mlx5_{hca}/ports/1/hw_counters" / name).write_text("7\n")
    first = source.read(10.0)
    (ports / "mlx5_2/ports/1/counters/port_xmit_data").write_text("500000\n")
    (ports / "mlx5_2/ports/1/hw_counters/np_ecn_marked_roce_packets").write_text("27\n")
    second = source.read(12.0)
    shutil.rmtree(ports / "mlx5_2/ports")
    for files in (source._ports["mlx5_2/1"].hardware.values(),):
        for file in files:
            file.close()
    third = source.read(13.0)
    assert all(math.isnan(value) for value in first.values["ecn"].values())
    assert second.values["throughput"] == {"node": 1_000_000}  # words of four bytes, in 2 s
    assert (second.values["ecn"]["mlx5_2/1"], second.values["ecn"]["mlx5_3/1"]) == (10, 0)
    assert math.isnan(third.values["ecn"]["mlx5_2/1"])
    assert "tcp_throughput" not in third.values or math.isnan(
        third.values["tcp_throughput"]["node"]
    )


def test_pause_frames_are_counted_by_priority_and_added_up():
    class Driver:
        names: ClassVar = [
            "rx_bytes",
            "tx_prio0_pause",
            "tx_prio3_pause",
            "tx_prio3_pause_duration",
        ]

        def __init__(self) -> None:
            self.frames = [9, 1, 10, 5]

        def counts(self) -> list[int]:
            return self.frames

    driver = Driver()
    pauses = Pauses(HERE, lambda nic: driver)
    assert math.isnan(pauses.read(1.0).values["pfc_tx"].popitem()[1])
    driver.frames = [99, 3, 50, 5]
    sampled = pauses.read(2.0)
    assert {*sampled.values["pfc_tx"].values()} == {42}
    assert {line.value for line in sampled.lines()} == {3, 50}


def test_a_driver_that_begins_to_count_something_else_is_asked_anew():
    """As one does that is given another number of channels."""

    class Driver:
        def __init__(self, names: list[str], counts: list[int]) -> None:
            self.names, self.frames = names, counts

        def counts(self) -> list[int]:
            if not self.frames:
                raise OSError(errno.ESTALE, "its driver counts other things than before")
            return self.frames

        def close(self) -> None:
            self.frames = []

    before, after = Driver(["tx_prio3_pause"], [5]), Driver(["rx0", "tx_prio3_pause"], [900, 7])
    drivers = iter([before, after])
    pauses = Pauses(HERE, lambda nic: next(drivers) if nic == NIC else no_nic())
    assert pauses.read(1.0).values
    before.close()
    for now in (2.0, 3.0):  # the first sees that it has changed
        assert math.isnan(pauses.read(now).values["pfc_tx"][NIC])
    after.frames = [950, 17]
    assert pauses.read(4.0).values["pfc_tx"] == {NIC: 10}


def no_nic() -> Statistics:
    raise OSError(errno.ENODEV, "No such device")


def test_without_pause_frames_the_agent_says_of_which_nic():
    sampled = Pauses(HERE).read(1.0)
    assert "its driver counts no pause frames" in sampled.absent["pfc_tx"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
def test_statistics_of_a_driver_are_those_that_the_kernel_has_by_name():
    """Each of a pair of virtual NICs has the number of the other."""
    names = [f"agent{os.getpid()}{end}"[-15:] for end in "ab"]
    pair = ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]]
    subprocess.run(pair, check=True)
    try:
        for name, other in zip(names, reversed(names), strict=True):
            statistics = Statistics(name)
            counts = dict(zip(statistics.names, statistics.counts(), strict=True))
            assert counts["peer_ifindex"] == socket.if_nametoindex(other)
            statistics.names.append("one that the driver had before")
            with pytest.raises(OSError, match="counts other things"):
                statistics.counts()
            statistics.close()
    finally:
        subprocess.run(["ip", "link", "delete", names[0]], check=True)
    with pytest.raises(OSError, match="No such device"):
        Statistics(names[0])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--listen=nonsense"], 64, '--listen "nonsense": expected ADDRESS:PORT'),
        (
            ["--token-file=/nowhere/token"],
            64,
            'the token file "/nowhere/token" cannot be read: no such',
        ),
        (["--listen=192.0.2.1:9841"], 2, "cannot listen on 192.0.2.1:9841: cannot assign"),
    ],
)
def test_an_agent_that_cannot_begin_is_refused_in_one_sentence(words, code, sentence):
    done = subprocess.run([sys.executable, AGENT, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith(f"anubis agent: error: {sentence}")


def test_an_agent_with_a_token_answers_only_with_it_and_never_shows_it(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with agent(f"--token-file={file}") as running:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                running.text("/metrics", **headers)
        assert "anubis_agent_samples_total" in running.text(
            "/metrics", Authorization="Bearer s3cret"
        )
        port = running.url.rpartition(":")[2]
        second = subprocess.run(
            [sys.executable, AGENT, f"--listen=127.0.0.1:{port}"], capture_output=True, text=True
        )
    assert second.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in second.stderr


def test_a_recording_goes_on_after_a_kill_and_a_full_disk_stops_no_sampling(tmp_path):
    file = tmp_path / "node.jsonl"
    process = subprocess.Popen(
        [sys.executable, AGENT, "--listen=127.0.0.1:0", f"--record={file}"], stderr=subprocess.PIPE
    )
    assert eventually(lambda: file.exists() and len(file.read_text().splitlines()) >= 3)
    process.kill()
    process.communicate()
    file.write_text(file.read_text() + "[17953")  # what a kill can leave
    lines = len(file.read_text().splitlines())
    with agent(f"--record={file}"):
        assert eventually(lambda: len(file.read_text().splitlines()) >= lines + 3)
    whole = [line for line in file.read_text().splitlines() if line.endswith(("]", "}"))]
    assert sum(line.startswith("{") for line in whole) == 2
    assert [json.loads(line) for line in whole]
    assert file.stat().st_mode & 0o077 == 0


def test_a_late_answer_of_a_source_is_no_sample_of_now():
    over = threading.Event()

    class Slow:
        def read(self, now: float) -> Sampled:
            over.wait(LIMIT_S)
            return sampled(cpu_use=now)

    slow = Questioner("slow", Slow())
    slow.ask(1.0)
    assert slow.answer(1.0, time.monotonic()).absent.keys() == {"slow"}
    slow.ask(2.0)
    over.set()
    assert not slow.answer(2.0, time.monotonic() + 20).values


def test_a_file_that_cannot_be_written_is_tried_again_after_a_minute_and_reported_once(
    tmp_path, capsys
):
    file, ring = tmp_path / "later/node.jsonl", Ring("node7", 1.0)
    recording = Recording(file)
    recording.write(ring, ring.add(1.0, []), 1.0)
    recording.write(ring, ring.add(62.0, []), 62.0)
    file.parent.mkdir()
    recording.write(ring, ring.add(63.0, []), 63.0)
    assert not file.exists()
    recording.write(ring, ring.add(123.0, []), 123.0)
    assert file.read_text().splitlines()[1:] == [ring.heading(), "[123]"]
    assert capsys.readouterr().err.count("\n") == 1


def test_a_full_disk_is_reported_once_and_stops_no_sampling(capsys):
    agent = Agent(Ring("node7", 1.0), {"host": Host(HERE)}, Path("/dev/full"))
    for moment in range(3):
        agent.sample(float(moment), time.monotonic())
    assert len(list(agent.ring.lines_since(-1))) == 4
    assert capsys.readouterr().err.count("\n") == 1
    assert "anubis_agent_recording 0\n" in text_of(agent.lines(), is_open=False)


def test_no_client_can_keep_another_from_its_answer(tmp_path):
    with agent() as running:
        host, port = running.url.removeprefix("http://").split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(20)]
        for text in (b"nonsense\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\0" * 9000, b""):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(text)
        assert eventually(lambda: "samples_total" in answered(running))
        for client in silent:
            client.close()


def answered(running: Running) -> str:
    try:
        return running.text("/metrics")
    except OSError:
        return ""


def test_the_verb_has_the_options_of_the_program_and_becomes_it():
    declared = {p.opts[0]: p.default for p in typer.main.get_command(app).commands["agent"].params}
    parser = {a.option_strings[0]: a.default for a in options()._actions if a.dest != "help"}
    assert declared.keys() == parser.keys()
    assert declared["--listen"] == parser["--listen"] == AT
    anubis = Path(sys.executable).with_name("anubis")
    done = subprocess.run([anubis, "agent", "--listen=x"], capture_output=True, text=True)
    assert done.stderr.startswith('anubis agent: error: --listen "x"')
    assert done.returncode == 64
