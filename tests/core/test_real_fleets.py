"""Learning on published measurements of real GPUs: the same nodes as the naive method finds.

The expected sets were computed independently with the double loop of the definition, as those of
a made fleet are here.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict

import naive
import numpy as np
import pytest

from anubis.core.judge import criteria
from anubis.core.judge.node_kinds import find_kinds
from anubis.core.judge.units import Units
from anubis.core.records import CriterionKey, MetricSpec, Policy, Workload

FLEETS = [
    *("frontera-bert", "frontera-pagerank", "frontera-resnet"),
    *("bert-longhorn", "pagerank-longhorn", "resnet-longhorn", "sgemm-longhorn"),
]
Gpus = list[tuple[str, list[float]]]  # the place of each, and its times

KEY = CriterionKey(
    sku="gpu", workload=Workload.make("published", "1", {}), metric="time_ms", device_kind="cuda"
)
TIME = MetricSpec(name="time_ms", unit="ms", direction="lower")


@pytest.fixture
def gpus(real):
    """Time per iteration of every run of a published fleet, by GPU."""

    def read(name: str) -> Gpus:
        times: defaultdict[str, list[float]] = defaultdict(list)
        place = {}
        with gzip.open(real(f"benchmarks/{name}-agg.csv.gz"), "rt") as lines:
            for row in csv.DictReader(lines):
                times[row["uuid"]].append(float(row["perf"]))
                place[row["uuid"]] = f"{row['cabinet']}-{row['node']}/{row.get('device', '')}"
        return [(place[uuid], of_one) for uuid, of_one in times.items()]

    return read


@pytest.fixture(scope="module")
def made() -> Gpus:
    """Twenty nodes, of which one is slow and one has a slow GPU, as far as the real ones."""
    rng = np.random.default_rng(6)
    slow = {(3, 0), (3, 1), (3, 2), (3, 3), (11, 2)}
    return [
        (f"c1-{node}/{gpu}", list(level * rng.normal(1, 0.004, 3)))
        for node in range(20)
        for gpu in range(4)
        for level in [rng.normal(180, 1.8) * (1.09 if (node, gpu) in slow else 1)]
    ]


def assert_of_one_kind(fleet: Gpus) -> None:
    edges = np.cumsum([0, *(len(times) for _, times in fleet)])
    measured = Units(
        KEY,
        TIME,
        participants=tuple((place.partition("/")[0],) for place, _ in fleet),
        devices=tuple(f"cuda:{number}" for number in range(len(fleet))),
        values=np.concatenate([times for _, times in fleet]),
        edges=edges,
        firsts=np.arange(edges.size),
    )
    assert find_kinds([measured], Policy()) == []


def test_a_made_fleet_is_not_taken_for_two_kinds(made):
    assert_of_one_kind(made)


@pytest.mark.twin("test_a_made_fleet_is_not_taken_for_two_kinds")
@pytest.mark.parametrize("name", FLEETS)
def test_no_real_fleet_is_taken_for_two_kinds(gpus, name):
    """GPUs of two of them have two modes, 1 to 3 % apart: less than the limit."""
    assert_of_one_kind(gpus(name))


def defective(fleet: Gpus, tail: float, *, calibrated: bool = False) -> tuple[int, list[str]]:
    samples = [np.array(times) for _, times in fleet]
    learned = criteria.learn(
        samples,
        key=KEY,
        metric=TIME,
        nodes=len(fleet),
        policy=Policy(tail=tail, calibrated=calibrated),
    )
    assert not learned.refusal
    similarities = criteria.similarities(samples, learned)
    bad = [
        place
        for (place, _), similarity in zip(fleet, similarities, strict=True)
        if not similarity > learned.alpha
    ]
    assert 0 < len(bad) < len(fleet)
    return len(fleet), sorted(bad)


of_a_made_fleet = pytest.mark.twin("test_the_slow_gpus_of_a_made_fleet_are_those_of_the_definition")


def every_gpu_of(*nodes: str) -> list[str]:
    return sorted(f"{node}/{gpu}" for node in nodes for gpu in range(4))


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("tail", [0.0, 0.05])
def test_the_slow_gpus_of_a_made_fleet_are_those_of_the_definition(made, tail, calibrated):
    rates = [[1 / time for time in times] for _, times in made]
    kept = naive.settle(rates, 0.95, tail)
    expected = sorted(place for i, (place, _) in enumerate(made) if i not in kept)
    assert expected == [*every_gpu_of("c1-11")[2:3], *every_gpu_of("c1-3")]
    assert defective(made, tail, calibrated=calibrated) == (80, expected)


@of_a_made_fleet
@pytest.mark.parametrize("tail", [0.0, 0.05])
def test_frontera_resnet_has_five_slow_nodes_and_one_slow_gpu(gpus, tail):
    nodes = every_gpu_of("c196-112", "c196-91", "c197-91", "c198-32", "c198-52")
    assert defective(gpus("frontera-resnet"), tail) == (296, sorted([*nodes, "c198-62/3"]))


@of_a_made_fleet
@pytest.mark.parametrize("tail", [0.0, 0.05])
def test_frontera_bert_has_two_slow_nodes(gpus, tail):
    assert defective(gpus("frontera-bert"), tail) == (276, every_gpu_of("c198-21", "c198-62"))


@of_a_made_fleet
@pytest.mark.parametrize("tail", [0.0, 0.05])
def test_longhorn_bert_has_one_slow_node(gpus, tail):
    assert defective(gpus("bert-longhorn"), tail) == (136, every_gpu_of("c002-5"))


@of_a_made_fleet
@pytest.mark.parametrize("tail", [0.0, 0.05])
def test_longhorn_sgemm_has_five_slow_gpus(gpus, tail):
    assert len(defective(gpus("sgemm-longhorn"), tail)[1]) == 5


@of_a_made_fleet
@pytest.mark.parametrize(
    "name", ["frontera-resnet", "frontera-bert", "bert-longhorn", "sgemm-longhorn"]
)
def test_calibration_condemns_the_same_gpus_as_alpha(gpus, name):
    """Also the fifth of sgemm-longhorn, 5.4 % off if the next is 4.7 % off: the slower half of the
    fleet, in which defects may be, does not widen the limit."""
    fleet = gpus(name)
    assert defective(fleet, 0.05, calibrated=True) == defective(fleet, 0.05)
