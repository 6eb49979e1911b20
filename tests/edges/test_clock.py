"""Clocks jump back and forth while nodes are tested, judged and repaired. When the doubt is over,
everything is as in the same story with a sound clock."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from itertools import product

import pytest

from anubis.config import catalog
from anubis.core.clock import SETTLED_S
from anubis.core.history.events import (
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    NodeAdded,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.keep.commands import Mode, Prove
from anubis.core.keep.life import State
from anubis.core.records import Judgement
from anubis.operations.campaigns import hold_clock
from anubis.operations.clusters import time_in
from anubis.operations.fleet import standings
from anubis.operations.import_ import report_incidents
from anubis.operations.keep import actions
from anubis.operations.nodes import nodes
from anubis.operations.requests import ValidateRequest
from anubis.operations.tell import Telling, tell
from anubis.report import nodes as node_listing
from anubis.report.fleet import judgement_reason, node_fields
from anubis.report.gate import sentence
from anubis.store.history import History
from anubis.store.holds import LASTS_S
from tests.edges.test_keeping import ACT, DAY_S, Site

FLEET = [f"n{i}" for i in range(1, 9)]
JUMPS_S = [20 * DAY_S, 20 * DAY_S, -20 * DAY_S, 365 * DAY_S, 900.0, -3 * DAY_S]
PROPOSED = {**ACT, "test": Mode.PROPOSE}


class Story:
    """The story of a fleet, played twice: once with a sound clock."""

    def __init__(self, seed):
        self.draw, self.moves, self.doubts, self.off_s = random.Random(seed), [], 0, 0.0
        for _ in range(14):
            self._move(*self.draw.choice(MOVES))
        self._move("wait", 900.0)

    def _move(self, kind, *of):
        some = tuple(self.draw.sample(FLEET, self.draw.choice([1, 1, 2])))
        self.moves.append((kind, some, *of))

    def play(self, site, *, is_sound):
        self.doubts = 0
        for number, (kind, some, *of) in enumerate(self.moves):
            match kind:
                case "tell":
                    site.tell(of[0](nodes=some, **of[1]), id=f"{number}")
                case "measure":
                    site.describe(seed=number, **of[0])
                    site.measure(ValidateRequest, some if of[1] else None)
                    site.describe()
                case "jump":
                    self.doubts += 1
                    site.off_s = 0.0 if is_sound or site.off_s else of[0]
                case "wait":
                    site.later(of[0])
            site.keep(**(ACT if kind == "turn" else PROPOSED))
        site.off_s = 0.0
        site.keep(**PROPOSED)
        site.later(SETTLED_S)
        fleet = site.keep(**PROPOSED)
        assert not fleet.doubt
        return fleet


MOVES = [
    *4 * [("turn",)],
    *3 * [("jump", seconds) for seconds in JUMPS_S],
    *4 * [("wait", 900.0), ("wait", SETTLED_S), ("wait", SETTLED_S)],
    ("wait", DAY_S),
    ("measure", {}, True),
    ("measure", {}, False),
    ("measure", {"slow_share": 0.25}, False),
    *3 * [("tell", IncidentReported, {"category": "gpu"})],
    ("tell", SuspicionRaised, {"category": "gpu", "source": "me"}),
    *[("tell", kind, {}) for kind in (NodeAdded, FleetUpgraded, RepairBegun, RepairDone)],
]  # fmt: skip


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, told):
    with Site.accepted(tmp_path_factory.mktemp("site"), told, is_sound=True) as site:
        site.keep(**ACT)
        return site


def said(site, fleet):
    """Statements on each node, by its keeper and by a gate that runs nothing."""
    with History.open(site.history) as history:
        dates = [
            (event_record.id, event_record.at)
            for event_record in history.only().event_records.all()
        ]
    told = {
        node: (life.state, life.out_reason if life.must_be_out else "", site.gate(node))
        for node, life in fleet.lives.items()
    }
    return told, dict(dates)


def count_tests(site):
    every = actions(1000, only_open=False, cluster=site.cluster, caller=site.caller)
    sent = (a.command for a in every if isinstance(a.command, Prove) and a.campaign)
    return Counter(node for test in sent for node in test.owed)


@pytest.fixture
def site(accepted, tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    return accepted.copied(tmp_path / "home", monkeypatch)


def test_while_a_clock_is_in_doubt_all_doors_give_the_same_reason_and_remedy(site):
    site.off_s = 365 * DAY_S
    doubt = site.keep(**PROPOSED).doubt
    assert " is in doubt: the wall clock moved 365 days ahead" in doubt
    assert "; correct it: " in doubt
    (view,) = nodes(["n1"], cluster=site.cluster, caller=site.caller)
    (glance,) = standings(["n1"], caller=site.caller)
    asked = site.asked("n1")
    answers = {view.judgement, glance.judgement, asked.judged["n1"]}
    assert answers == {Judgement.UNKNOWN}
    assert (
        node_listing.fields(view).doubt
        == judgement_reason(glance)
        == node_fields(glance).why
        == doubt
    )
    assert f"; {doubt}" in sentence(asked)
    site.off_s = 0.0
    site.keep(**PROPOSED)
    (view,) = nodes(["n1"], cluster=site.cluster, caller=site.caller)
    assert (view.judgement, view.doubt) == (Judgement.HEALTHY, "")


def test_an_event_dated_tomorrow_by_another_machine_causes_one_test(site):
    ahead = site.caller_on("one that is ahead", DAY_S)
    some, before = ("n1", "n2", "n3", "n5"), count_tests(site)
    site.tell(RepairBegun(nodes=("n5",)))
    for event in (
        IncidentReported(nodes=("n1",), category="gpu"),
        *(kind(nodes=("n2",)) for kind in 2 * [RepairBegun, RepairDone]),
        RepairDone(nodes=("n3", "n5")),
        JobAllocated(nodes=("n4",), job="7", duration_s=60.0),
    ):
        tell(Telling(event=event, cluster=site.cluster), ahead)
    assert site.asked("n4").busy
    for _ in range(4):
        fleet = site.keep(owner=False, test=Mode.ACT)
    assert count_tests(site) - before == dict.fromkeys(some, 1)
    for node in some:
        assert fleet.lives[node].state is State.IN_SERVICE
        assert site.gate(node) is Judgement.HEALTHY, node
    assert site.asked("n4").busy
    site.later(DAY_S + 60.0)  # as that machine had it, and longer than the job was planned
    fleet = site.keep(owner=False, test=Mode.ACT)
    assert count_tests(site) - before == dict.fromkeys(some, 1)
    assert site.gate(*some) is Judgement.HEALTHY
    assert not site.asked("n4").busy


def test_an_alert_that_began_now_is_taken_while_the_clock_is_behind(site):
    site.off_s = -20 * DAY_S
    site.keep(**ACT)
    start = datetime.fromtimestamp(site.now, UTC).isoformat()
    text = json.dumps({"node": "n1", "category": "gpu", "start": start, "end": None})
    report_incidents(text, "a monitor", cluster=site.cluster, caller=site.caller)
    assert site.keep(**ACT).lives["n1"].out_reason[0] == "INCIDENT"


def test_an_alert_ends_if_its_monitor_ends_it_on_any_clock(site):
    """As it begins and as it ends, it is ahead, right or behind. An end to come is believed."""
    ways = [(a, b) for a, b in product((30 * DAY_S, 0.0, -30 * DAY_S), repeat=2) if b <= max(a, 0)]
    acting = {**ACT, "out_of_fleet": 1.0, "out_of_sku": 1.0}

    def report(node, start, end=None):
        told = {"node": node, "category": "gpu", "start": start, "end": end}
        report_incidents(json.dumps(told), "it", cluster=site.cluster, caller=site.caller)

    def date(off_s):
        return datetime.fromtimestamp(site.now + off_s, UTC).isoformat()

    starts = [date(at_start) for at_start, _ in ways]
    ill = FLEET[: len(ways)]
    for node, start in zip(ill, starts, strict=True):
        report(node, start)
    fleet = site.keep(**acting)
    assert all(fleet.lives[node].incidents for node in ill)
    assert {site.gate(node) for node in ill} == {Judgement.DEFECTIVE}
    site.later(3600.0)
    for node, start, (_, at_end) in zip(ill, starts, ways, strict=True):
        report(node, start, date(at_end))
    assert {site.gate(node) for node in ill}.isdisjoint({Judgement.HEALTHY}), "unproven since"
    for _ in range(3):
        fleet = site.keep(**acting)
    assert not any(life.incidents for life in fleet.lives.values())
    site.later(31 * DAY_S)
    fleet = site.keep(**acting)
    assert {life.state for life in fleet.lives.values()} == {State.IN_SERVICE}


@pytest.mark.parametrize("off_s", [DAY_S, -DAY_S])
def test_a_clock_that_is_set_right_within_a_campaign_leaves_it_its_nodes(site, off_s):
    """It was wrong as the campaign began, and unnoticed."""
    with History.open(site.history) as history:
        part = history.only()
        clock = hold_clock(part, site.caller)

        def held():
            return [hold.node for hold in part.holds.current(time_in(part, site.caller).now)]

        with part.holds.hold(["n1"], "a campaign", clock) as ours:
            site.off_s = off_s
            for _ in range(2 + int(SETTLED_S // 600)):
                for _ in range(10):
                    site.later(60.0)
                    ours.renew()
                assert held() == ["n1"]
                site.now -= 99.0  # a turn is taken right away
                fleet = site.keep(**PROPOSED)
                assert held() == ["n1"]
            assert not fleet.doubt
            ours.renew()
            now = time_in(part, site.caller).now
            (hold,) = part.holds.current(now)
            assert hold.until == pytest.approx(now + LASTS_S, abs=LASTS_S / 4)


def test_a_doubt_about_the_clock_costs_only_additional_tests(accepted, tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    story = Story(seed=1)
    sound = accepted.copied(tmp_path / "sound", monkeypatch)
    expected, dates = said(sound, story.play(sound, is_sound=True))
    tested = count_tests(sound)
    site = accepted.copied(tmp_path / "wrong", monkeypatch)
    found, found_dates = said(site, story.play(site, is_sound=False))
    moves = "\n".join(map(str, story.moves))
    assert found == expected, moves
    assert found_dates == pytest.approx(dates, abs=300.0), moves
    for node, number in count_tests(site).items():
        assert number <= tested[node] + story.doubts, moves
