"""Where nodes stand is read anew only when it may have changed: the whole reading is the judge."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from anubis import places
from anubis.core.past.events import FleetUpgraded, JobEnded, Notice, SuspicionRaised
from anubis.core.past.status import Incident, Repair
from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    Judgement,
    Node,
    NodeVerdict,
    Plan,
    Policy,
)
from anubis.operations.standings import present_of
from anubis.selector import LOOKED_BACK_S, read_present
from anubis.store.history import History

NODES = ("n1", "n2", "n3")
HOUR_S = 3600.0
REPERTOIRE = SimpleNamespace(demands=[])


class Told:
    """A history to which something is told, some of it by clocks that are ahead."""

    def __init__(self, history, rng):
        self.history = history
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
                self.notice(at, FleetUpgraded(nodes=(node,)))
            case "suspicion":
                self.notice(at, SuspicionRaised(nodes=(node,), category="gpu", source="me"))
            case "job":
                self.notice(at, JobEnded(nodes=(node,), job="7"))

    def notice(self, at, event):
        self.part.notices.add(Notice(id=f"e{self.number}", at=at, event=event))

    def conclude(self, at):
        plan = Plan(
            suite="s", nodes=tuple(Node(name=n, sku="x") for n in NODES), phases=(), specs=()
        )
        name = f"c{self.number}"
        campaign = Campaign(
            id=name, kind=CampaignKind.VALIDATE, plan=plan, policy=Policy(), executor="local",
            created_at=at,
        )  # fmt: skip
        self.history.campaigns.begin(campaign)
        judgements = (Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN)
        verdicts = tuple(
            NodeVerdict(node=node, judgement=self.rng.choice(judgements), code="X", reason="")
            for node in NODES
        )
        assessment = Assessment(alone=(), nodes=verdicts)
        self.history.assessments.conclude(name, assessment, (), finished_at=at)


@pytest.fixture
def told(tmp_path, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    with History.open(str(tmp_path / "history.sqlite")) as history:
        yield Told(history, random.Random(0))


def stands(told):
    """By what was kept, as another process finds it."""
    return present_of(told.history.only(), told.now, REPERTOIRE)


def stands_by_all(told):
    return read_present(told.history.only(), told.now)


@pytest.mark.parametrize("seed", range(2))
def test_what_was_kept_of_where_nodes_stand_is_what_all_of_the_history_says(told, seed):
    told.rng.seed(seed)
    for _ in range(40):
        if told.rng.random() < 0.5:
            told.tell()
        told.now += told.rng.choice([1, 1, 60, 300, 600, -400])
        kept, whole = stands(told), stands_by_all(told)
        assert kept.standing == whole.standing
        assert kept.windows == whole.windows


def test_it_is_read_once_while_nothing_bears_on_it_and_at_least_once_an_hour(told):
    told.conclude(told.now - HOUR_S)
    stands(told)
    place = places.standing_file(told.part.cluster)

    def is_read_again():
        before = place.stat().st_mtime_ns, place.stat().st_ino
        stands(told)
        return (place.stat().st_mtime_ns, place.stat().st_ino) != before

    told.now += 60
    told.notice(told.now, JobEnded(nodes=("n1",), job="7"))
    assert not is_read_again()
    told.number += 1
    told.notice(told.now, FleetUpgraded(nodes=("n1",)))
    assert is_read_again()
    assert not is_read_again()
    told.now += 2 * HOUR_S
    assert is_read_again()
    place.write_text(place.read_text().replace("n1", "n9"))
    assert is_read_again()
    assert stands(told).standing == stands_by_all(told).standing
