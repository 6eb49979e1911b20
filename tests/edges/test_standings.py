"""Track records are read anew only after a possible change, and then equal a full reading."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest

from anubis.core.campaign import planning
from anubis.core.errors import StoreError
from anubis.core.history.events import EventRecord, FleetUpgraded, JobEnded, SuspicionRaised
from anubis.core.history.status import Incident, Repair
from anubis.core.records import (
    Assessment,
    BenchmarkSpec,
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    Node,
    NodeVerdict,
    ParameterSpec,
    Policy,
    Suite,
    SuiteEntry,
    Verdict,
)
from anubis.operations.selector import LOOKED_BACK_S, read_present
from anubis.operations.standings import present_of
from anubis.store.history import History
from anubis.text import places

NODES = ("n1", "n2", "n3")
HOUR_S = 3600.0
REPERTOIRE = SimpleNamespace(demands=[])


class Told:
    """A history with events, some of them from clocks that are ahead."""

    def __init__(self, history, rng, file):
        self.history = history
        self.file = file
        self.part = history.only()
        self.rng = rng
        self.now = 1.7e9
        self.number = 0

    def tell(self):
        self.number += 1
        at = self.now - self.rng.choice([-600, -60, 60, 7200, LOOKED_BACK_S - 300])
        node = self.rng.choice(NODES)
        match self.rng.choice(["campaign", "incident", "repair", "upgrade", "suspicion", "job"]):
            case "campaign":
                self.conclude(at)
            case "incident":
                end = self.rng.choice([None, at + 300])
                incident = Incident(node=node, category="gpu", start=at, end=end)
                self.part.incidents.add([incident])
            case "repair":
                self.part.repairs.add([Repair(node=node, start=at, end=at + 300)])
            case "upgrade":
                self.event_record(at, FleetUpgraded(nodes=(node,)))
            case "suspicion":
                self.event_record(at, SuspicionRaised(nodes=(node,), category="gpu", source="me"))
            case "job":
                self.event_record(at, JobEnded(nodes=(node,), job="7"))

    def event_record(self, at, event):
        self.part.event_records.add(EventRecord(id=f"e{self.number}", at=at, event=event))

    def conclude(self, at):
        """Conclude a campaign of some nodes, by either size of a benchmark that can no longer be
        chosen."""
        nodes = self.rng.sample(NODES, self.rng.randint(1, len(NODES)))
        judgements = list(Judgement)[:3]
        ended = {node: self.rng.choice(judgements) for node in nodes}
        self.conclude_as(at, ended, self.rng.choice(SIZES))

    def conclude_as(self, at, ended, size):
        nodes, run = list(ended), plan(ended, size)
        name = f"c{self.number}"
        campaign = Campaign(
            id=name, kind=CampaignKind.VALIDATE, plan=run, policy=Policy(), executor="local",
            created_at=at,
        )  # fmt: skip
        self.history.campaigns.begin(campaign)
        executions = [
            Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, duration_s=1.0)
            for step in planning.steps(run, 0, nodes)
            if ended[step.participants[0]] is not Judgement.UNKNOWN
        ]
        self.history.executions.record(name, executions)
        bad = [node for node in nodes if ended[node] is Judgement.DEFECTIVE]
        found = tuple(
            Verdict(
                participants=(node,), benchmark="gemm", judgement=Judgement.DEFECTIVE, code="X",
                reason="",
            )
            for node in bad
        )  # fmt: skip
        verdicts = tuple(
            NodeVerdict(node=node, judgement=ended[node], code="X", reason="") for node in nodes
        )
        assessment = Assessment(alone=found, nodes=verdicts)
        self.history.assessments.conclude(name, assessment, (), finished_at=at)


SIZES = (1, 2)


def plan(nodes, size):
    spec = BenchmarkSpec(
        name="gemm",
        version="1",
        summary="",
        stresses="",
        reveals="",
        level="micro",
        scope="node",
        duration_s=1.0,
        metrics=(MetricSpec(name="rate", unit="1/s", direction="higher"),),
        parameters=(ParameterSpec(name="size", type="int", default=1, more_is_stronger=True),),
    )
    suite = Suite(
        name="s",
        summary="",
        benchmarks=(SuiteEntry(benchmark="gemm", parameters={"size": size}),),
    )
    return planning.plan(suite, [Node(name=n, sku="x") for n in nodes], {"gemm": spec})


@pytest.fixture
def told(tmp_path, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    with History.open(str(tmp_path / "history.sqlite")) as history:
        yield Told(history, random.Random(0), tmp_path / "history.sqlite")


def stands(told):
    """Standing by what was kept, as another process finds it."""
    return present_of(told.history.only(), told.now, REPERTOIRE)


def stands_by_all(told):
    return read_present(told.history.only(), told.now)


@pytest.mark.parametrize("seed", range(2))
def test_remembered_track_records_equal_a_full_reading(told, seed):
    told.rng.seed(seed)
    for _ in range(40):
        if told.rng.random() < 0.5:
            told.tell()
        told.now += told.rng.choice([1, 1, 60, 300, 600, -400])
        kept, whole = stands(told), stands_by_all(told)
        assert kept.standing == whole.standing
        assert kept.windows == whole.windows


def test_track_records_are_read_once_until_a_change_and_at_least_once_an_hour(told):
    told.conclude(told.now - HOUR_S)
    stands(told)
    place = places.standing_file(told.part.cluster)

    def is_read_again():
        before = place.stat().st_mtime_ns, place.stat().st_ino
        stands(told)
        return (place.stat().st_mtime_ns, place.stat().st_ino) != before

    told.now += 60
    told.event_record(told.now, JobEnded(nodes=("n1",), job="7"))
    assert not is_read_again()
    told.number += 1
    told.event_record(told.now, FleetUpgraded(nodes=("n1",)))
    assert is_read_again()
    assert not is_read_again()
    told.now += 2 * HOUR_S
    assert is_read_again()
    place.write_text(place.read_text().replace("n1", "n9"))
    assert is_read_again()
    assert stands(told).standing == stands_by_all(told).standing


def test_after_a_campaign_only_that_one_is_read_and_all_of_them_after_an_hour(told):
    """A part missing from an older one is missed by each reader."""
    told.conclude(told.now - HOUR_S)
    stands(told)
    told.number += 1
    with closing(sqlite3.connect(told.file)) as connection, connection:
        connection.execute("DELETE FROM node_verdicts")
    told.conclude(told.now - 60)
    standing = stands(told).standing
    with pytest.raises(StoreError):
        stands_by_all(told)
    assert standing.unfit.keys() <= set(NODES)
    told.now += HOUR_S
    with pytest.raises(StoreError):
        stands(told)


def test_a_benchmark_that_found_a_defect_elsewhere_is_required_of_every_node(told):
    told.conclude_as(told.now - 120, {"n1": Judgement.HEALTHY}, 1)
    assert "gemm" in stands(told).standing.counted["n1"]
    told.number += 1
    told.conclude_as(told.now - 60, {"n2": Judgement.DEFECTIVE}, 2)
    assert not stands(told).standing.counted
    assert not stands_by_all(told).standing.counted
