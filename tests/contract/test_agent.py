"""The 1 Hz agent: what it samples, tells and keeps, and what it goes on without."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path

from _telemetry import Rates, Sampled
from _telemetry_agent import moments_of
from _telemetry_ring import Ring, of_node

from tests.contract.conftest import BENCHMARKS

EXAMPLE = Path(__file__).parents[1] / "telemetry/agent.jsonl"
AGENT = BENCHMARKS / "_telemetry_agent.py"


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


def test_a_machine_that_stood_still_tells_how_many_samples_it_missed_and_makes_none_up():
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
    rows = [json.loads(line) for line in ring.since(0)][1:]
    assert rows == [[4003], [4004]]
    assert clock.now == 4004


# --- devices, and what of them becomes a node's ----------------------------------------------


def test_of_several_devices_a_node_has_the_mean_and_the_worst():
    assert of_node("gpu_duty", {"0": 90, "1": 60}) == {"gpu_duty": 75, "gpu_duty:worst": 60}
    assert of_node("cnp", {"mlx5_0/1": 2, "mlx5_1/1": 4}) == {"cnp": 3, "cnp:worst": 4}
    assert of_node("cpu_use", {"node": 12}) == {"cpu_use": 12}


def test_a_device_that_says_nothing_ends_the_worst_and_is_no_zero_in_the_mean():
    values = of_node("gpu_power", {"0": 600, "1": math.nan, "2": 700})
    assert values["gpu_power"] == 650
    assert math.isnan(values["gpu_power:worst"])


# --- the ring ------------------------------------------------------------------------------


def sampled(**values: float) -> Sampled:
    return Sampled(values={metric: {"node": value} for metric, value in values.items()})


def test_a_ring_holds_its_span_and_gives_what_came_after_a_time():
    ring = Ring("node1", 1.0, span_s=3)
    for now in range(10, 15):
        ring.add(now, [sampled(cpu_use=now / 4)])
    assert [json.loads(line) for line in ring.since(0)][1:] == [[12, 3], [13, 3.25], [14, 3.5]]
    assert [json.loads(line) for line in ring.since(13)][1:] == [[14, 3.5]]


def test_a_metric_that_comes_later_was_not_known_before_and_one_that_ends_is_not_zero():
    ring = Ring("node1", 1.0)
    ring.add(10, [sampled(cpu_use=1)])
    ring.add(11, [sampled(disk_use=2)])
    heading, *rows = (json.loads(line) for line in ring.since(0))
    assert heading["metrics"] == ["cpu_use", "disk_use"]
    assert rows == [[10, 1, None], [11, None, 2]]


def test_a_number_of_bytes_arrives_as_it_was():
    ring = Ring("node1", 1.0)
    ring.add(1795385747.001, [sampled(disk_use=85899345920, throughput=123456789012.5)])
    assert json.loads(list(ring.since(0))[-1]) == [1795385747.001, 85899345920, 123456789012.5]


def test_the_recorded_example_is_what_the_agent_writes():
    """`anubis/telemetry/` reads this file in its tests."""
    heading, *rows = (json.loads(line) for line in EXAMPLE.read_text().split("\n") if line)
    assert (heading["agent"], heading["node"], heading["step_s"]) == (1, "node017", 1.0)
    assert {len(row) for row in rows} == {1 + len(heading["metrics"])}
    worst = [row[1 + heading["metrics"].index("gpu_duty:worst")] for row in rows]
    assert (worst[0], worst[-1]) == (90, None)  # GPU 5 fell off the bus
