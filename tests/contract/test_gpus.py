"""What is read of GPUs, and watched while something is measured: NVIDIA's own bindings on a library
that answers like NVML with planted values."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import contract
import kit.gpus.clocks
import kit.gpus.gpu_watch
import kit.gpus.nvml
import pynvml
import pytest
from kit.gpus.readings import Reading

from anubis.config.catalog import parse_description
from anubis.reach.executors.ray_cluster import stage
from anubis.reach.executors.start_settings import Program
from tests.contract.conftest import BENCHMARKS
from tests.patience import eventually


class Fake:
    """The library in this process, found by pynvml under its name."""

    def __init__(self, library: Path, plant: Callable[[str, str], None]) -> None:
        self.library = ctypes.CDLL(str(library))
        self.plant_in = plant

    def plant(self, **values: int) -> None:
        for name, value in values.items():
            self.plant_in(f"NVML_{name}", str(value))

    def wait_for(self, count: int, *, of: str = "readings", gpu: int = 0) -> None:
        """It counts what it is asked, so that a busy machine makes this slow, not wrong."""
        counts = (ctypes.c_uint * 8).in_dll(self.library, of)
        assert eventually(lambda: counts[gpu] >= count)


@pytest.fixture
def nvml(nvml_library, monkeypatch):
    fake = Fake(nvml_library, monkeypatch.setenv)
    yield fake
    monkeypatch.undo()
    fake.library.forget()


@pytest.fixture
def gpu(nvml):
    kit.gpus.nvml.begin()
    return kit.gpus.nvml.gpus_by_index()[0][0]


# --- readers -------------------------------------------------------------------------------


def test_zero_unsupported_and_unread_stay_three_things(nvml, gpu):
    nvml.plant(ecc_uncorrected_now=0, power_cap=0)
    nvml.plant(no_vbios=1)
    readers = {
        "zero": kit.gpus.nvml.CONDITION["power_cap_w"],
        "unsupported": kit.gpus.nvml.IDENTITY["vbios"],
        "unread": kit.gpus.nvml.ecc_errors("NO_SUCH_KIND", "VOLATILE"),
        "bridge": kit.gpus.nvml.CONDITION["nvlinks"],
        "temperature": kit.gpus.nvml.temperature_c,
    }
    nvml.plant(links_down=18)
    reading = kit.gpus.nvml.read(gpu, readers)
    assert reading.values == {"zero": 0, "temperature": 31}
    assert reading.unsupported == ["unsupported"]
    assert reading.unread.keys() == {"unread", "bridge"}
    assert "NO_SUCH_KIND" in reading.unread["unread"]
    assert reading.gone is False


def test_a_gpu_that_fell_off_the_bus_is_gone(nvml, gpu):
    nvml.plant(lost_0=1)
    reading = kit.gpus.nvml.read(gpu, kit.gpus.nvml.STATE)
    assert reading.gone is True
    assert reading.values == {}
    assert reading.unread == dict.fromkeys(kit.gpus.nvml.STATE, "GPU is lost")


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [(3, 0, "completed"), (2, 0, "in progress"), (3, 5, "completed, status 5"), (9, 0, "state 9")],
)
def test_the_states_of_the_fabric_and_of_slices_are_reported(nvml, gpu, state, status, words):
    nvml.plant(fabric=state, fabric_status=status, mig=1)
    values = kit.gpus.nvml.read(gpu, kit.gpus.nvml.IDENTITY).values
    assert (values["fabric_state"], values["mig_mode"]) == (words, 1)


def test_every_reader_has_an_answer_or_says_that_it_is_not_supported(gpu):
    """The bindings' own names and arguments; a misspelt one would be unread."""
    tables = (
        kit.gpus.nvml.STATE,
        kit.gpus.nvml.CONDITION,
        kit.gpus.nvml.COUNTERS,
        kit.gpus.nvml.IDENTITY,
        kit.gpus.nvml.UUID,
    )
    for table in tables:
        reading = kit.gpus.nvml.read(gpu, table)
        assert reading.unread == {}
        assert {*reading.values, *reading.unsupported} == table.keys()
    assert (
        kit.gpus.nvml.read(None, kit.gpus.nvml.DRIVER).values.keys() == kit.gpus.nvml.DRIVER.keys()
    )


def test_one_link_counter_that_is_not_supported_takes_no_other_with_it(nvml, gpu):
    nvml.plant(no_nvlink_counter=3)
    reading = kit.gpus.nvml.read(gpu, kit.gpus.nvml.COUNTERS)
    assert reading.values.pop("pcie_replays") == 40
    assert reading.values == {
        f"nvlink_errors:{of}": 18000 for of in ("replay", "recovery", "crc_flit")
    }
    assert reading.unsupported[0] == "nvlink_errors:crc_data"  # then those of NVLink 5


def test_text_of_older_bindings_is_text():
    assert kit.gpus.nvml.read(None, {"model": lambda _: b"NVIDIA H200"}).values == {
        "model": "NVIDIA H200"
    }


def test_the_reasons_have_the_bits_that_nvidias_bindings_give_them():
    for name in kit.gpus.nvml.REASONS:
        camel = "".join(word.capitalize() for word in name.split("_"))
        assert kit.gpus.nvml.reason_names(getattr(pynvml, f"nvmlClocksEventReason{camel}")) == {
            name
        }
    assert kit.gpus.nvml.reason_names(0x4 | 1 << 40) == {"sw_power_cap", "unknown_0x10000000000"}


# --- where the bindings come from ----------------------------------------------------------


WHERE = "import sys; sys.path.insert(0, {!r}); import kit.gpus.nvml; {}"


def test_a_node_without_the_bindings_uses_those_that_travel_and_prefers_its_own(tmp_path, describe):
    gemm = BENCHMARKS / "gemm.py"
    spec = parse_description(describe(gemm).stdout, gemm)
    staged = tmp_path / stage([Program(file=gemm, spec=spec)], tmp_path)[BENCHMARKS]
    script = WHERE.format(str(staged), "print(kit.gpus.nvml.pynvml.__file__)")
    bare = subprocess.check_output([sys.executable, "-S", "-c", script], text=True)
    assert Path(bare.strip()) == staged / "packages" / "pynvml.py"
    installed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert installed.strip() == pynvml.__file__


def test_without_any_bindings_the_error_names_their_installation():
    script = WHERE.format(str(BENCHMARKS), "kit.gpus.nvml.begin()")
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False
    )
    assert (
        'NoDriver: module "pynvml" is neither installed (pip install nvidia-ml-py)' in done.stderr
    )


# --- watching ------------------------------------------------------------------------------


def watch(uuid: str, period_s: float = 0.01):
    properties = types.SimpleNamespace(uuid=uuid)
    choose = lambda: kit.gpus.gpu_watch.gpu_of(kit.gpus.nvml, uuid, properties)  # noqa: E731
    return kit.gpus.gpu_watch.watch(kit.gpus.nvml, choose, period_s)


BUSY = {
    "pcie_generation_1": 5,
    "pcie_width_1": 8,
    "sm_now_1": 1980,
    "sm_dip_1": 1200,
    "power_1": 700000,
    "celsius_1": 88,
    "throttle_1": 0x44,
}


def test_the_summary_has_clocks_power_temperature_and_reasons_of_the_chosen_gpu(nvml):
    nvml.plant(**BUSY)
    with watch("1") as states:
        nvml.wait_for(4, gpu=1)
    state = states["1"]
    assert state.pop("readings") >= 3
    state.pop("busy_readings", None), state.pop("held_back", None)  # from four on
    assert state == {
        "sm_mhz_median": 1980,
        "sm_mhz_min": 1200,
        "memory_mhz_median": 2619,
        "memory_mhz_min": 2619,
        "power_w_median": 700,
        "power_w_max": 700,
        "temperature_c_max": 88,
        "pcie_generation_max": 5,
        "pcie_width_min": 8,
        "reasons": {"hw_thermal_slowdown": 1, "sw_power_cap": 1},
    }


def test_a_slice_of_a_gpu_is_found_as_well(nvml):
    nvml.plant(mig=1)
    with watch("2") as states:
        pass
    assert states["2"]["readings"] >= 1  # a second one if the machine paused


def test_a_measurement_shorter_than_the_period_gets_one_reading(nvml):
    with watch("0", 3600) as states:
        pass
    assert (states["0"]["readings"], states["0"]["temperature_c_max"]) == (1, 31)
    assert states["0"]["reasons"] == {"gpu_idle": 1}


def test_a_reason_is_given_with_the_share_of_readings_that_showed_it():
    shown = [{"sw_power_cap"}, set(), {"sw_power_cap", "hw_slowdown"}, {"gpu_idle"}]
    readings = [Reading(values={"reasons": reasons}) for reasons in shown]
    assert kit.gpus.gpu_watch.summary(kit.gpus.nvml, readings)["reasons"] == {
        "gpu_idle": 0.25,
        "hw_slowdown": 0.25,
        "sw_power_cap": 0.5,
    }


def test_a_sensor_that_does_not_answer_is_left_out(nvml):
    nvml.plant(no_power=1)
    with watch("0") as states:
        pass
    assert states["0"]["temperature_c_max"] == 31
    assert not any(name.startswith("power") for name in states["0"])


@pytest.mark.parametrize(
    ("uuid", "code", "complaint"),
    [("cccc", 0, "NVML knows no GPU cccc: Not Found"), ("1", 9, "nvmlInit: Driver Not Loaded")],
)
def test_unreadable_state_is_reported_and_stops_no_measurement(nvml, uuid, code, complaint):
    nvml.plant(init=code)
    with watch(uuid) as states:
        pass
    assert states == {"unread": complaint}


def test_a_gpu_that_falls_off_the_bus_leaves_its_earlier_readings_and_the_reason(nvml):
    nvml.plant(lost_after_1=2)
    with watch("1") as states:
        nvml.wait_for(1, of="refusals", gpu=1)
    assert (states["1"]["readings"], states["1"]["sm_mhz_median"]) == (2, 345)
    assert states["1"]["unread"] == "GPU is lost"


def test_a_driver_that_hangs_delays_nothing(nvml, monkeypatch):
    monkeypatch.setattr(kit.gpus.gpu_watch, "PATIENCE_S", 0.1)
    nvml.plant(hang=30)
    with watch("0") as states:
        pass
    assert states == {"unread": "NVML does not answer"}


def test_an_error_of_the_measurement_passes_through(nvml):
    with pytest.raises(contract.Unmeasured), watch("0"):
        raise contract.Unmeasured("out of memory")


# CUDA's first GPU is NVML's second one
IN_A_PROGRAM = """
import sys
sys.path.insert(0, {benchmarks!r})
import torch, types
import kit.gpus.gpu_watch
torch.cuda.get_device_properties = lambda gpu: types.SimpleNamespace(uuid=["1", "0"][gpu.index])
notes = {{}}
for device in (torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")):
    with kit.gpus.gpu_watch.watch_gpu(notes, device, "tflops:bf16"):
        pass
print({{gpu: of["tflops:bf16"]["temperature_c_max"] for gpu, of in notes["gpu_state"].items()}})
"""


@pytest.mark.long
def test_the_loader_finds_the_library_and_the_uuid_the_gpu(nvml_library):
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROGRAM.format(benchmarks=str(BENCHMARKS))],
        env={"LD_LIBRARY_PATH": str(nvml_library.parent), "NVML_celsius_1": "88"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{'cuda:0': 88, 'cuda:1': 31}\n"


def test_all_gpus_of_a_node_are_watched_and_one_that_is_lost_hides_no_other(nvml, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # then torch names their models
    nvml.plant(**BUSY, count=4, lost_2=1, handle_3=15, name_1="NVIDIA A100-SXM4-40GB")
    report, notes = reported()
    with kit.gpus.gpu_watch.node_watched(report, 0.01):
        nvml.wait_for(4, gpu=1)
    states = notes["gpu_state"]["node"]
    assert states.keys() == {"GPU-0", "GPU-1", "gpu 2", "gpu 3"}
    assert states["GPU-1"]["temperature_c_max"] == 88
    assert states["GPU-0"]["power_w_max"] == 70
    lost = {"readings": 0, "unread": "GPU is lost"}
    assert states["gpu 2"] == states["gpu 3"] == lost
    assert notes["gpu_models"] == {"cuda:0": "NVIDIA H200", "cuda:1": "NVIDIA A100-SXM4-40GB"}


def test_a_program_on_a_node_with_gpus_reports_their_state_or_the_reason(
    run, benchmark_file, tmp_path
):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    program = benchmark_file("cpu_memory_latency")
    ran = run(program, "--smoke", env={**os.environ, "ANUBIS_HOST_ROOT": str(tmp_path)})
    unread = {"unread": "libnvidia-ml.so.1 cannot be loaded"}
    assert ran.document["environment"]["gpu_state"]["node"] == unread
    assert "gpu_state" not in run(program, "--smoke").document["environment"]


# --- errors under load ---------------------------------------------------------------------


def reported():
    """A report of a program that measured something."""
    report = contract.Report(
        frozenset({"tflops", "gpu_errors_per_min", "gpu_held_back"}),
        frozenset({"gpu_errors_per_min", "gpu_held_back"}),
    )
    report.add("tflops", "cuda:0", [1.0])
    return report, report.notes


def watched_facts(nvml, *, readings: int = 6) -> dict[tuple[str, str], float]:
    report, _ = reported()
    with kit.gpus.gpu_watch.node_watched(report, 0.01):
        nvml.wait_for(readings, gpu=1)
    facts = {(s["metric"], s["device"]): s["samples"][0] for s in report.series}
    facts.pop(("tflops", "cuda:0"))
    return facts


def test_errors_that_rise_under_load_are_facts_of_their_gpu(nvml, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.plant(**BUSY, count=2, pcie_replays_1=9, recoveries_1=2)
    facts = watched_facts(nvml)
    risen = {name: rate for name, rate in facts.items() if rate and "held" not in name[0]}
    assert risen == {  # within less than a minute
        ("gpu_errors_per_min:pcie_replays", "cuda:1"): 9,
        ("gpu_errors_per_min:nvlink_errors_recovery", "cuda:1"): 2,
    }
    assert facts["gpu_errors_per_min:ecc_correctable", "cuda:0"] == 0
    assert ("gpu_errors_per_min:nvlink_errors_integrity", "cuda:0") not in facts  # of NVLink 5


def test_only_a_busy_gpu_has_reasons_of_slowdowns(nvml, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.plant(count=2, throttle_1=0x8)
    facts = watched_facts(nvml)
    shown = {name: share for name, share in facts.items() if name[0].startswith("gpu_held_back")}
    assert shown == {
        (f"gpu_held_back:{reason}", "cuda:1"): reason == "hw_slowdown"
        for reason in kit.gpus.nvml.SLOWDOWNS
    }


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, {"GPU-0": "cuda:0", "GPU-1": "cuda:1", "GPU-2": "cuda:2"}),
        ("2,0", {"GPU-2": "cuda:0", "GPU-0": "cuda:1"}),
        ("GPU-1", {"GPU-1": "cuda:0"}),
        ("MIG-1", {}),
    ],
)
def test_errors_are_of_the_gpus_that_the_program_may_use(visible, devices, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert kit.gpus.gpu_watch.devices_by_name(["GPU-0", "GPU-1", "GPU-2"]) == devices


def test_gpus_keep_their_numbers_beside_those_that_give_no_name(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = kit.gpus.gpu_watch.devices_by_name(["gpu 1", "GPU-a", "GPU-b", "gpu 2"])
    assert devices == {"gpu 1": "cuda:1", "GPU-a": "cuda:0", "GPU-b": "cuda:3", "gpu 2": "cuda:2"}


# --- NVLink 5 and fabrics ------------------------------------------------------------------


def value_of(gpu, name: str, table) -> object:
    reading = kit.gpus.nvml.read(gpu, {name: table[name]})
    return "unsupported" if reading.unsupported else {**reading.unread, **reading.values}[name]


@pytest.mark.parametrize(
    ("planted", "name", "value"),
    [
        ({}, "nvlink_fabric", "of this host"),  # it ends at the host
        ({"cluster": 7, "clique": 3}, "nvlink_fabric", f"{7:032x}.3"),
        ({"cluster": 7, "fabric": 2}, "nvlink_fabric", "of this host"),  # it is still being joined
        ({"cluster": 7, "old_fabric": 1}, "nvlink_fabric", "of this host"),
        ({"field230": 0}, "recovery_action", "none"),
        ({"field230": 4}, "recovery_action", "drain and reset the GPU"),
        ({"field230": 99}, "recovery_action", "action 99"),
        ({}, "recovery_action", "unsupported"),
        ({"field230": 1}, "recovery_needed", True),
        ({"field230": 0}, "recovery_needed", False),
        ({}, "fabric_unhealthy:route", "unsupported"),
        ({"fabric_mask": 0b01_10_10_10}, "fabric_unhealthy:degraded_bandwidth", False),
        ({"fabric_mask": 0b10_10_10_01}, "fabric_unhealthy:degraded_bandwidth", True),
        ({"fabric_mask": 0b10_01_10_10}, "fabric_unhealthy:route", True),
        ({"fabric_mask": 1 << 8}, "fabric_unhealthy:configuration", False),
        ({"fabric_mask": 5 << 8}, "fabric_unhealthy:configuration", True),
        ({"old_fabric": 1, "fabric_mask": 1}, "fabric_unhealthy:route", "unsupported"),
        ({"field207": 2}, "nvlink_errors:buffer_overruns", 36),  # of 18 links
        ({"field207": 2, "links_down": 3}, "nvlink_errors:buffer_overruns", 30),
        ({"field221": 1}, "nvlink_symbols:symbol", 18),
        ({"nvlink_tx": 3, "nvlink_rx": 4}, "nvlink_bytes", 7 << 10),
        ({"field202": 5, "field204": 6}, "nvlink_bytes", 18 * 11),
        ({"field164": 53125}, "nvlink_gbps", 956.25),
        ({"field90": 26562, "links_down": 2}, "nvlink_gbps", 424.992),
        ({"field82": 71}, "memory_temperature_c", 71),
        ({"field186": 1_003_000}, "power_instant_w", 1003),
        ({"margin": 17}, "thermal_margin_c", 17),
        ({}, "thermal_margin_c", 61),  # to the temperature of a slowdown
        (
            {"slows_down_at": -2},
            "thermal_margin_c",
            "the driver says that it slows down at -2 degrees",
        ),
        ({"refuse": "CurrentClocksEventReasons:13"}, "reasons", {"gpu_idle"}),
        ({"refuse": "CurrentClocksThrottleReasons:26"}, "reasons", {"gpu_idle"}),
        ({"refuse": "Temperature:26"}, "temperature_c", 31),
        ({"links_down": 2}, "nvlinks_inactive", 2),
        ({"links_down": 2, "far_end": 0}, "nvlinks_inactive", "unsupported"),
        ({"c2c": 1, "pcie_width": 1}, "pcie_lanes_missing", "unsupported"),
    ],
)
def test_a_driver_of_blackwells_is_read_and_an_older_one_too(nvml, planted, name, value):
    nvml.plant(**planted)
    kit.gpus.nvml.begin()
    tables = (
        kit.gpus.nvml.STATE,
        kit.gpus.nvml.CONDITION,
        kit.gpus.nvml.COUNTERS,
        kit.gpus.nvml.IDENTITY,
    )
    table = next(t for t in (*tables, kit.gpus.nvml.FABRIC) if name in t)
    assert value_of(kit.gpus.nvml.gpus_by_index()[0][0], name, table) == value


# --- clocks that are changed and set back --------------------------------------------------

CLOCKS = "2619 1500"  # of memory and processors, as an owner has set them
CHANGE = f"""
import sys, time; sys.path.insert(0, {str(BENCHMARKS)!r})
from kit.gpus import nvml; from kit.gpus.clocks import change_clock
nvml.begin()
with change_clock("lowest", nvml.gpus_by_index()[0][0]):
    print("changed", flush=True); time.sleep(600)
"""


@pytest.fixture
def set_clocks(tmp_path, monkeypatch) -> Path:
    """The clocks of the first GPU, which the driver keeps whatever process ends."""
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setenv("NVML_clocks", str(folder))
    monkeypatch.setenv("ANUBIS_HOST_ROOT", str(tmp_path))
    (folder / "0").write_text(CLOCKS)
    return folder / "0"


@pytest.mark.parametrize(("way", "mhz"), [("lowest", 345), ("highest", 1980)])
def test_clocks_are_changed_and_set_back_also_after_an_error(set_clocks, gpu, way, mhz):
    seen = []
    with suppress(ZeroDivisionError), kit.gpus.clocks.change_clock(way, gpu):
        seen.append(set_clocks.read_text())
        raise ZeroDivisionError
    assert (seen, set_clocks.read_text()) == ([f"2619 {mhz}"], CLOCKS)
    assert [*kit.gpus.clocks.folder().glob("*")] == []


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ({"refuse": "nvmlDeviceSetApplicationsClocks:4"}, "Insufficient Permissions"),
        ({"refuse": "ApplicationsClock:26"}, r"\w"),  # it cannot be known what they were
        ({"refuse": "SupportedGraphicsClocks:3"}, "Not Supported"),
    ],
)
def test_clocks_that_may_not_be_changed_stay_as_they_are(set_clocks, nvml, gpu, planted, reason):
    nvml.plant(**planted)
    with (
        pytest.raises(kit.gpus.readings.Unread, match=reason),
        kit.gpus.clocks.change_clock("lowest", gpu),
    ):
        pytest.fail("the body must not run")
    assert set_clocks.read_text() == CLOCKS
    assert [*kit.gpus.clocks.folder().glob("*")] == []


def test_clocks_that_a_killed_program_left_are_set_back_by_the_next_one(
    set_clocks, nvml, nvml_library, monkeypatch
):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", CHANGE], env=environment, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stdout.readline() == b"changed\n"
        kit.gpus.gpu_watch.set_clocks_back()  # they are in use
        assert set_clocks.read_text() == "2619 345"
        program.kill()
    assert set_clocks.read_text() == "2619 345"
    nvml.plant(refuse="nvmlDeviceSetApplicationsClocks:4")
    kit.gpus.gpu_watch.set_clocks_back()  # without the right to, they wait
    monkeypatch.delenv("NVML_refuse")
    report = contract.Report(frozenset(), frozenset())
    with kit.gpus.gpu_watch.node_watched(report):
        assert set_clocks.read_text() == CLOCKS
    assert [*kit.gpus.clocks.folder().glob("*")] == []
