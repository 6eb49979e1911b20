"""The keeper, a gate, a sweep, the lists of nodes, documents, pages and figures of the service
never contradict each other about a node."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from anubis.config import catalog
from anubis.core.errors import AnubisError
from anubis.core.history.events import (
    IncidentReported,
    JobAllocated,
    MaintenancePlanned,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.keep.commands import Mode, Prove
from anubis.core.keep.keeper_events import SeenNode
from anubis.core.keep.life import Proof, State
from anubis.core.records import Judgement
from anubis.operations.clusters import time_in
from anubis.operations.fleet import glance_at
from anubis.operations.import_ import import_csv, import_incidents, import_nodes
from anubis.operations.nodes import nodes
from anubis.operations.requests import (
    CsvImport,
    IncidentImport,
    NodeImport,
    ValidateRequest,
)
from anubis.store.history import History
from tests.edges.desk import Desk
from tests.edges.test_keeping import Site
from tests.edges.verb_lives import FLEET, live

SEEDS = (2, 11)  # of lives in which an earlier version contradicted itself


@pytest.fixture
def site(tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    desk = Desk(tmp_path)
    monkeypatch.setenv("ANUBIS_HOME", str(desk.home))
    site = Site(desk)
    site.mend()
    site.accept()
    return site


@pytest.mark.parametrize("seed", SEEDS)
def test_no_verbs_in_any_order_contradict_each_other_or_end_with_an_unproven_node_as_good(
    site, tmp_path, seed
):
    """`scripts/studies/show-lives --verbs 30` plays more of them."""
    live(site, tmp_path / "life", seed, verbs=8)


def test_a_node_is_proven_for_its_keeper_and_all_others_by_the_same_passes(site):
    part = site.suite
    site.suite = site.desk.suite(site.desk.flow(), site.desk.spin(0), name="whole.yaml")
    site.accept()
    site.tell(IncidentReported(nodes=("n1",), category="gpu"))
    site.keep(test=Mode.PROPOSE)
    site.measure(ValidateRequest, ("n1",), suite=part)
    (weaker,) = [site.asked("n1", suite=part)]
    assert weaker.answer == "unknown"
    assert site.keep(test=Mode.PROPOSE).lives["n1"].state is not State.IN_SERVICE
    site.measure(ValidateRequest, ("n1",))
    assert site.asked("n1").answer == "go"
    site.keep(test=Mode.PROPOSE)
    assert site.gate("n1") is Judgement.HEALTHY


def test_a_test_for_one_category_that_passes_the_whole_suite_proves_a_repair_reported_late(site):
    site.keep(test=Mode.PROPOSE)
    site.tell(IncidentReported(nodes=("n1",), category="gpu"))
    repaired_at = site.later()
    (test,) = [a.command for a in site.keep(test=Mode.ACT).actions if isinstance(a.command, Prove)]
    assert test.proof is Proof.OF_CATEGORY
    site.tell(RepairDone(nodes=("n1",)), at=repaired_at)
    assert site.asked("n1").answer == "go"
    assert site.keep(test=Mode.PROPOSE).lives["n1"].state is State.IN_SERVICE


def test_a_report_while_the_clock_is_behind_counts_once_it_is_right_though_nothing_is_kept(site):
    site.off_s = -3e7
    site.tell(IncidentReported(nodes=("n1",), category="gpu"))
    assert "is in doubt" in site.asked("n2").clock
    site.off_s = 0.0
    assert [site.asked(node).answer for node in ("n1", "n2")] == ["unknown", "go"]


def test_an_order_counts_before_the_keeper_has_heard_it(site):
    site.tell(OperatorSaid(nodes=("n2",), order=Order.RETIRE))
    assert site.asked("n2").answer == "no-go", "no keeper has taken a turn"
    site.tell(OperatorSaid(nodes=("n2",), order=Order.RETURN))
    assert site.asked("n2").answer != "no-go"
    site.tell(NodeRemoved(nodes=("n3",)))
    assert site.asked("n3").answer == "unknown"
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
