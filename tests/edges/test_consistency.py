"""The keeper, a gate, a sweep, the lists of nodes, documents, pages and figures of the service
never contradict each other about a node."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from dataclasses import replace

import pytest

from anubis.config import catalog
from anubis.core.clock import SETTLED_S
from anubis.core.errors import AnubisError, Stopped, UsageError
from anubis.core.history.events import (
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    JobEnded,
    MaintenancePlanned,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.history.status import Incident
from anubis.core.keep.commands import Mode
from anubis.core.keep.keeper_events import SeenJob, SeenNode
from anubis.core.keep.life import State
from anubis.core.records import Judgement
from anubis.operations.clusters import time_in
from anubis.operations.fleet import glance_at
from anubis.operations.import_ import import_csv, import_incidents, import_nodes
from anubis.operations.nodes import nodes
from anubis.operations.requests import (
    CsvImport,
    IncidentImport,
    NodeImport,
    Terms,
    ValidateRequest,
)
from anubis.operations.sweep import sweep
from anubis.report.gate import sentence
from anubis.service.fleet_cache import Board
from anubis.service.metrics import Gauges
from anubis.store.history import History
from tests.edges.desk import Desk
from tests.edges.test_keeping import ACT, Site
from tests.edges.visitor import Visitor, house_of, items, page

FLEET = [f"n{i}" for i in range(1, 9)]
HEALTHY, DEFECTIVE, UNKNOWN = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN

# What a gate that runs nothing, and a page, may say of a node, by where its keeper has it; and
# whether a sweep may test it: None where it may, and need not.
TILE = r'class="t ([\w-]+)[^"]*" data-node="(\w+)"'
COMPATIBLE = {
    State.IN_SERVICE: ({"go", "unknown"}, {HEALTHY}, None),
    State.SPARE: ({"go", "unknown"}, {HEALTHY}, None),
    State.SUSPECT: ({"unknown"}, {UNKNOWN}, True),
    State.NEW: ({"unknown"}, {UNKNOWN}, True),
    State.DRAINING: ({"no-go", "unknown"}, {DEFECTIVE, UNKNOWN}, None),
    State.OUT: ({"no-go", "unknown"}, {DEFECTIVE, UNKNOWN}, None),  # it owes proof only
    State.REPAIRING: ({"no-go"}, {DEFECTIVE}, False),
    State.LOST: ({"unknown", "no-go"}, {UNKNOWN, DEFECTIVE}, False),
    State.RETIRED: ({"no-go"}, {DEFECTIVE}, False),
}
IN_DOUBT = ({"unknown"}, {UNKNOWN}, None)  # of nodes that serve, while the clock is in doubt


class Life:
    """Of a whole fleet, at random."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.draw = site, random.Random(seed)
        self.moves: list[str] = []
        self.glance = None
        self.incidents = 0
        self.board = Board(site.caller)
        house = house_of(site.history)
        self.visitor = Visitor(replace(house, board=self.board, gauges=Gauges(self.board.read)))

    def step(self) -> None:
        some = tuple(self.draw.sample(FLEET, self.draw.choice([1, 1, 2])))
        moves = [name for name in dir(self) if name.startswith("do_")]
        move = self.draw.choice([*moves, *["do_tell"] * 5])
        self.moves.append(f"{move} {','.join(some)}")
        getattr(self, move)(some)

    def turn(self):
        modes = self.draw.choice([ACT, {**ACT, "test": Mode.PROPOSE}, {"test": Mode.PROPOSE}])
        return self.site.keep(**modes)

    def do_pass(self, some):
        self._measure(some)

    def do_fail(self, some):
        self._measure(some, slow_share=0.4)

    def do_lose(self, some):
        self._measure(some, lost_share=0.3)

    def do_crash(self, some):
        self._measure(some, crash_share=0.3)

    def _measure(self, some, **trouble):
        """Measure with all others, so that there is something to compare with."""
        self.site.describe(seed=self.draw.randrange(1000), **trouble)
        self.site.measure(ValidateRequest, self.draw.choice([None, None, some]))
        self.site.describe()

    def do_tell(self, some):
        event = self.draw.choice(
            [
                *(kind(nodes=some) for kind in (NodeAdded, NodeRemoved, FleetUpgraded)),
                *(kind(nodes=some) for kind in (RepairBegun, RepairDone, RepairDone)),
                IncidentReported(nodes=some, category="gpu"),
                SuspicionRaised(nodes=some, category="gpu", source="me"),
                *(OperatorSaid(order=order, nodes=some) for order in (Order.RETIRE, Order.RETURN)),
            ]
        )
        self.moves[-1] += f" {event.kind}"
        self.site.tell(event)

    def do_import(self, some):
        self.incidents += 1
        start = self.site.now - self.draw.choice([1000.0, 10.0, -1e6])
        end = self.draw.choice([None, None, self.site.now - 1])
        with History.open(self.site.history) as history:
            history.only().incidents.add(
                Incident(node=node, category="gpu", start=start, end=end and max(end, start))
                for node in some
            )

    def do_end_incidents(self, some):
        with History.open(self.site.history) as history:
            part = history.only()
            part.incidents.add(
                replace(incident, end=max(self.site.now, incident.start))
                for incident in part.incidents.all()
                if incident.end is None
            )

    def do_leave(self, some):
        for node in some:
            self.site.owner.nodes.pop(node, None)

    def do_come(self, some):
        for node in FLEET:
            self.site.owner.nodes.setdefault(node, SeenNode(sku="h100"))

    def do_job(self, some):
        self.site.owner.jobs = {"7": SeenJob(owner="jo", nodes=some, started_at=self.site.now)}

    def do_end_job(self, some):
        self.site.owner.jobs = {}
        with suppress(UsageError):  # it never began
            self.site.tell(JobEnded(nodes=(), job="7", failed=self.draw.random() < 0.5))

    def do_jump(self, some):
        self.site.off_s = self.draw.choice([0.0, 0.0, 3e7, 2.6e6, -3e7, 600.0, -600.0])
        self.moves[-1] += f" {self.site.off_s:g}"

    def do_set_right(self, some):
        self.site.off_s = 0.0

    def do_wait(self, some):
        self.site.later(self.draw.choice([10.0, SETTLED_S, 86_400.0]))

    # --- the answers of all verbs ----------------------------------------------------------

    def swept(self):
        """Nodes that a sweep would test."""
        caller, decisions = self.site.caller, []

        def decided(decision):
            decisions.append(decision)
            raise Stopped("it is only asked")

        caller.decided = decided
        terms = Terms(
            suite=self.site.suite, benchmarks=(self.site.desk.programs,), cluster=self.site.cluster
        )
        with pytest.raises(Stopped):
            sweep(FLEET, terms, caller)
        return {node for test in decisions[0].tests for node in test.nodes}

    def check(self, fleet) -> None:
        site, doubt = self.site, fleet.doubt
        with History.open(site.history) as history:
            part = history.only()
            self.glance = glance_at(part, time_in(part, site.caller), self.glance)
            afresh = glance_at(part, time_in(part, site.caller))
            busy = {node for job in part.jobs.all() if job.end is None for node in job.nodes}
        assert self.glance.by_name == afresh.by_name, self.moves
        listed = {view.node: view for view in nodes(cluster=site.cluster, caller=site.caller)}
        swept, counted = self.swept(), dict.fromkeys(Judgement, 0)
        self.board._renew()
        documents = {line["node"]: line for line in items(self.visitor.ask("/v1/nodes"))}
        tiles = {node: how for how, node in re.findall(TILE, page(self.visitor, "/"))}
        assert documents.keys() == tiles.keys() == afresh.by_name.keys()
        for node, glance in afresh.by_name.items():
            counted[glance.judgement] += 1
            life = fleet.lives[node]
            state = replace(life, trial=None).state
            answers, judgements, is_swept = COMPATIBLE[state]
            asked = site.asked(node)
            said = f"{node} is {state}, {life}: {doubt}\n{self.moves}"
            if doubt and state in (State.IN_SERVICE, State.SPARE):
                answers, judgements, is_swept = IN_DOUBT
                assert glance.why == listed[node].doubt == doubt, said
                assert doubt in sentence(asked)
            assert asked.answer in answers, said
            assert listed[node].judgement is glance.judgement, said
            assert glance.judgement in judgements, f"{glance}\n{said}"
            assert listed[node].judgement is glance.judgement, said
            assert bool(listed[node].unfit) is (glance.judgement is DEFECTIVE), said
            judged, document = glance.judgement.value, documents[node]
            assert (document["judgement"], document["why"]) == (judged, glance.why), said
            assert tiles[node] == judged, said
            shown = page(self.visitor, f"/nodes/{afresh.cluster}/{node}")
            assert f'<span class="{judged}">{judged}</span>' in shown, said
            assert f"<dt>state</dt><dd>{life.state.value}</dd>" in shown, said
            if is_swept is not None and node not in busy and not life.is_cordoned_by_others:
                assert (node in swept) is is_swept, said
        figures = self.visitor.ask("/metrics").text
        for judgement in (HEALTHY, DEFECTIVE, UNKNOWN):
            name = f'anubis_nodes{{cluster="{afresh.cluster}",judgement="{judgement.value}"}}'
            assert f"{name} {counted[judgement]}.0" in figures
        assert f'anubis_clock_doubted{{cluster="{afresh.cluster}"}} {bool(doubt):.1f}' in figures


@pytest.fixture
def site(tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    desk = Desk(tmp_path)
    monkeypatch.setenv("ANUBIS_HOME", str(desk.home))
    site = Site(desk)
    site.mend()
    site.accept()
    return site


def test_keeper_gate_sweep_lists_pages_and_figures_never_contradict_each_other(site):
    life = Life(site, seed=0)
    for _ in range(3):
        for _ in range(5):
            life.step()
        life.check(life.turn())


def test_a_node_is_proven_for_its_keeper_and_all_others_by_the_same_passes(site):
    life, part = Life(site, seed=0), site.suite
    site.suite = site.desk.suite(site.desk.flow(), site.desk.spin(0), name="whole.yaml")
    site.accept()
    site.tell(IncidentReported(nodes=("n1",), category="gpu"))
    fleet = site.keep(test=Mode.PROPOSE)
    site.measure(ValidateRequest, ("n1",), suite=part)
    life.check(fleet)
    (weaker,) = [site.asked("n1", suite=part)]
    assert weaker.answer == "unknown"
    assert site.keep(test=Mode.PROPOSE).lives["n1"].state is not State.IN_SERVICE
    site.measure(ValidateRequest, ("n1",))
    assert site.asked("n1").answer == "go"
    life.check(site.keep(test=Mode.PROPOSE))
    assert site.gate("n1") is HEALTHY


def test_an_order_counts_before_the_keeper_has_heard_it(site):
    site.tell(OperatorSaid(nodes=("n2",), order=Order.RETIRE))
    assert site.asked("n2").answer == "no-go", "no keeper has taken a turn"
    site.tell(OperatorSaid(nodes=("n2",), order=Order.RETURN))
    assert site.asked("n2").answer != "no-go"
    fleet = site.keep()
    site.tell(OperatorSaid(nodes=("n1",), order=Order.RETIRE))
    assert site.asked("n1").answer == "no-go"
    assert fleet.lives["n1"].state is State.IN_SERVICE


def _name(site, some, draw):
    """Name nodes in one of the ways in which a history may come to know them."""
    told = draw.choice(
        [
            NodeAdded(nodes=some),
            NodeRemoved(nodes=some),
            RepairBegun(nodes=some),
            SuspicionRaised(nodes=some, category="gpu", source="me"),
            MaintenancePlanned(nodes=some, begin=site.now, end=site.now + 1000.0),
            JobAllocated(nodes=some, duration_s=3600.0, job=f"job of {some}"),
        ]
    )
    rows = {
        "ms": [f"{node},{draw.random() + 1}" for node in some],
        "start,category": [f"{node},1690000000,gpu" for node in some],
        "rack": [f"{node},r1" for node in some],
    }
    files = [
        site.desk.write(f"{heading}.csv", "\n".join([f"node,{heading}", *lines]))
        for heading, lines in rows.items()
    ]
    measured, incidents, racks = files
    table = CsvImport(
        file=measured, suite="s", sku="a", metrics=("ms=lower,ms",), cluster=site.cluster
    )
    watched = draw.choice([None, some])
    with suppress(AnubisError):  # some are strangers, or nothing is known yet
        draw.choice(
            [
                lambda: site.tell(told),
                lambda: site.tell(told),
                lambda: import_csv(table, site.caller),
                lambda: import_nodes(NodeImport(file=racks, cluster=site.cluster), site.caller),
                lambda: import_incidents(
                    IncidentImport(file=incidents, cluster=site.cluster, nodes=watched),
                    site.caller,
                ),
                lambda: site.owner.nodes.update(dict.fromkeys(some, SeenNode(sku="h100"))),
                site.keep,
            ]
        )()


def test_lists_have_the_nodes_about_which_a_gate_answers_by_the_history(
    tmp_path, monkeypatch, told
):
    monkeypatch.setattr(catalog, "describe_all", told)
    desk = Desk(tmp_path)
    monkeypatch.setenv("ANUBIS_HOME", str(desk.home))
    site, draw, glance = Site(desk), random.Random(0), None
    site.owner.nodes.clear()
    known = set()
    while len(known) < 8:
        _name(site, tuple(draw.sample([*FLEET, *(f"x{i}" for i in range(8))], 2)), draw)
        with History.open(site.history) as history:
            if not history.clusters.names():
                continue
            part = history.only()
            glance = glance_at(part, time_in(part, site.caller), glance)
            known = set(part.node_names.all())
            assert known == part.node_names.find([*known, *FLEET, "x1"])
        assert known == glance.by_name.keys()
        assert known == {view.node for view in nodes(cluster=site.cluster, caller=site.caller)}
