"""What is said of a GPU's state, against a library that answers like NVML with planted values."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import _gpu_state
import _nvml
import contract
import pytest

GCC = shutil.which("gcc")
pytestmark = pytest.mark.skipif(GCC is None, reason="gcc is not installed")

# Two GPUs. NVML's order is not CUDA's: only the UUID tells which one a handle is.
FAKE = r"""
#include <string.h>
struct gpu {
  const char *uuid; unsigned sm[3], memory, power, temperature; unsigned long long why;
};
static struct gpu gpus[2] = {
  {"GPU-bbbb", {345, 345, 345}, 2619, 70000, 31, 0x1},
  {"GPU-aaaa", {1980, 1980, 1200}, 2619, 700000, 88, 0x44},
};
static unsigned initialized;
unsigned asked, hang_s, lacks_power, broken, lost;
unsigned sleep(unsigned);
int nvmlInitWithFlags(unsigned flags) {
  if (broken) return 9;
  initialized = 1;
  sleep(hang_s);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **handle) {
  if (!initialized) return 1;
  for (int i = 0; i < 2; i++) if (!strcmp(uuid, gpus[i].uuid)) { *handle = gpus + i; return 0; }
  return 6;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **handle) {
  *handle = gpus + index;
  return index < 2 ? 0 : 2;
}
int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned length) {
  strncpy(uuid, gpu->uuid, length);
  return 0;
}
int nvmlDeviceGetClockInfo(struct gpu *gpu, int type, unsigned *mhz) {
  if (lost && asked >= lost) { asked++; return 15; }
  if (type == 1) { *mhz = gpu->sm[asked++ % 3]; return 0; }
  if (type == 2) { *mhz = gpu->memory; return 0; }
  return 2;
}
int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *mw) {
  *mw = gpu->power;
  return lost && asked >= lost ? 15 : lacks_power ? 3 : 0;
}
int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *celsius) {
  *celsius = gpu->temperature;
  return lost && asked >= lost ? 15 : sensor ? 2 : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *why) {
  *why = gpu->why;
  return lost && asked >= lost ? 15 : 0;
}
"""


@pytest.fixture
def fake(tmp_path):
    """The path of a library of its own for each test, so that what one plants, no other sees."""
    (tmp_path / "nvml.c").write_text(FAKE)
    library = tmp_path / _gpu_state.LIBRARY
    subprocess.run([GCC, "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    return str(library)


def plant(library: str, name: str, value: int) -> None:
    ctypes.c_uint.in_dll(ctypes.CDLL(library), name).value = value


def test_the_summary_tells_clocks_power_temperature_and_reasons_of_the_gpu_asked_for(fake):
    with _gpu_state.watch("aaaa", 0.01, fake) as state:
        wait_for_readings(fake, 4)
    assert state["readings"] >= 3
    assert (state["sm_mhz_median"], state["sm_mhz_min"]) == (1980, 1200)
    assert (state["memory_mhz_median"], state["memory_mhz_min"]) == (2619, 2619)
    assert (state["power_w_median"], state["power_w_max"]) == (700, 700)
    assert state["temperature_c_max"] == 88
    assert state["reasons"] == {"hw_thermal_slowdown": 1, "sw_power_cap": 1}
    assert "unread" not in state


def wait_for_readings(library: str, count: int) -> None:
    """The fake counts what it is asked, so that a busy machine makes this slow, not wrong."""
    deadline = time.monotonic() + 30
    while ctypes.c_uint.in_dll(ctypes.CDLL(library), "asked").value < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_measurement_shorter_than_the_period_gets_one_reading(fake):
    with _gpu_state.watch("bbbb", 3600, fake) as state:
        pass
    assert (state["readings"], state["temperature_c_max"]) == (1, 31)
    assert state["reasons"] == {"gpu_idle": 1}


def test_a_reason_is_given_with_the_share_of_readings_that_showed_it():
    readings = [{"reasons": 0x4}, {"reasons": 0x0}, {"reasons": 0x4 | 0x8}, {"reasons": 1 << 40}]
    assert _gpu_state.summary(readings)["reasons"] == {
        "hw_slowdown": 0.25,
        "sw_power_cap": 0.5,
        "unknown_0x10000000000": 0.25,
    }


def test_the_reasons_have_the_names_that_nvidias_bindings_give_them():
    pynvml = pytest.importorskip("pynvml")
    for bit, name in _nvml.REASONS.items():
        camel = "".join(word.capitalize() for word in name.split("_"))
        assert getattr(pynvml, f"nvmlClocksEventReason{camel}") == bit


def test_a_sensor_that_does_not_answer_is_left_out(fake):
    plant(fake, "lacks_power", 1)
    with _gpu_state.watch("aaaa", 0.01, fake) as state:
        pass
    assert state["temperature_c_max"] == 88
    assert not any(name.startswith("power") for name in state)


@pytest.mark.parametrize(
    ("uuid", "broken", "complaint"),
    [
        ("cccc", 0, "NVML knows no GPU cccc: nvmlDeviceGetHandleByUUID answers 6"),
        ("aaaa", 1, "nvmlInitWithFlags answers 9"),
    ],
)
def test_what_cannot_be_read_is_said_and_disturbs_nobody(fake, uuid, broken, complaint):
    plant(fake, "broken", broken)
    with _gpu_state.watch(uuid, 0.01, fake) as state:
        pass
    assert state == {"readings": 0, "unread": complaint}


def test_a_gpu_that_falls_off_the_bus_leaves_what_was_read_before_and_the_reason(fake):
    plant(fake, "lost", 2)  # after two readings every function answers 15, GPU is lost
    with _gpu_state.watch("aaaa", 0.01, fake) as state:
        wait_for_readings(fake, 4)
    assert (state["readings"], state["sm_mhz_median"]) == (2, 1980)
    assert state["unread"] == "nvmlDeviceGetCurrentClocksThrottleReasons answers 15"


def test_without_the_library_it_says_so(tmp_path):
    with _gpu_state.watch("aaaa", 0.01, str(tmp_path / "none.so")) as state:
        pass
    assert "none.so cannot be loaded" in state["unread"]


def test_a_driver_that_hangs_holds_up_nothing(fake):
    plant(fake, "hang_s", 30)
    with _gpu_state.watch("aaaa", 0.01, fake) as state:
        pass
    assert state == {"readings": 0, "unread": "NVML does not answer"}


def test_an_error_of_the_measurement_passes_through(fake):
    with pytest.raises(contract.Unmeasured), _gpu_state.watch("aaaa", 0.01, fake):
        raise contract.Unmeasured("out of memory")


# CUDA's first GPU is NVML's second one
IN_A_PROGRAM = """
import sys
sys.path.insert(0, {benchmarks!r})
import torch, types
import _gpu_state, contract
torch.cuda.get_device_properties = lambda gpu: types.SimpleNamespace(
    uuid=["aaaa", "bbbb"][gpu.index]
)
report = contract.Report(frozenset())
for device in (torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")):
    with _gpu_state.watched(report, device, "tflops:bf16"):
        pass
states = report.notes["gpu_state"].items()
print({{gpu: of["tflops:bf16"]["temperature_c_max"] for gpu, of in states}})
"""


def test_the_loader_finds_the_library_and_the_uuid_the_gpu(fake):
    script = IN_A_PROGRAM.format(benchmarks=str(Path(_gpu_state.__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"LD_LIBRARY_PATH": str(Path(fake).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{'cuda:0': 88, 'cuda:1': 31}\n"


def test_all_gpus_of_a_node_are_watched_whoever_measures(fake):
    report = contract.Report(frozenset())
    with _gpu_state.node_watched(report, 0.01, fake):
        wait_for_readings(fake, 8)
    states = report.notes["gpu_state"]["node"]
    assert list(states) == ["GPU-bbbb", "GPU-aaaa"]
    assert states["GPU-aaaa"]["temperature_c_max"] == 88
    assert states["GPU-bbbb"]["power_w_max"] == 70


def test_a_program_on_a_node_with_gpus_tells_their_state_or_why_not(run, benchmark_file, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    program = benchmark_file("cpu_memory_latency")
    ran = run(program, "--smoke", env={**os.environ, "ANUBIS_HOST_ROOT": str(tmp_path)})
    assert "libnvidia-ml.so.1" in ran.document["environment"]["gpu_state"]["node"]["unread"]
    assert "gpu_state" not in run(program, "--smoke").document["environment"]


def test_a_driver_that_hangs_does_not_hold_up_what_is_measured(fake, monkeypatch):
    monkeypatch.setattr(_gpu_state, "PATIENCE_S", 0.1)
    plant(fake, "hang_s", 60)
    report = contract.Report(frozenset())
    with _gpu_state.node_watched(report, 0.01, fake):
        pass
    assert report.notes["gpu_state"]["node"] == {"unread": "NVML does not answer"}
