"""The keeper of a fleet, at work on a real history; only nodes and their owner are made up."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import yaml

from anubis.cli import keep as verbs
from anubis.config import catalog, configs
from anubis.core.clock import SETTLED_S
from anubis.core.errors import (
    AnubisError,
    BusyNodesError,
    ConfigError,
    OrchestratorError,
    Stopped,
    StoreError,
    TelemetryError,
    UsageError,
)
from anubis.core.history.events import (
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    JobEnded,
    JobStalled,
    JobUnexplained,
    MaintenanceEnded,
    MaintenancePlanned,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import (
    Cordon,
    LifeAction,
    Mode,
    Notify,
    Prove,
    Requeue,
    Stage,
    TryRepair,
)
from anubis.core.keep.keeper_events import FleetSeen, SeenJob, SeenNode, SeenWindow
from anubis.core.keep.keeping_policy import KeepingPolicy, LocatePolicy
from anubis.core.keep.life import Owed, Proof, State
from anubis.core.records import CampaignKind, Judgement
from anubis.lab.simulation.simulated_fleet import plants
from anubis.operations.caller import Caller
from anubis.operations.campaigns import plan_campaign, resume_campaign, run_campaign
from anubis.operations.clusters import time_in
from anubis.operations.fleet import standings
from anubis.operations.gate import gate
from anubis.operations.import_ import report_incidents
from anubis.operations.keep import (
    actions,
    approve,
    carry_out,
    close_breakers,
    keep,
)
from anubis.operations.keep_turns import _obeyed_cordons
from anubis.operations.keeper_news import objections_in
from anubis.operations.keeping import ChosenPolicy, Keeping, keeping_of
from anubis.operations.nodes import nodes
from anubis.operations.requests import (
    AcceptRequest,
    GateRequest,
    KeepRequest,
    ScanRequest,
    Terms,
    ValidateRequest,
)
from anubis.operations.sweep import sweep
from anubis.operations.tell import Telling, tell
from anubis.operations.watch_rounds import Watching, watch_jobs
from anubis.readers.telemetry.pulled import PulledTelemetry
from anubis.report.gate import sentence
from anubis.report.history import event_record_happening
from anubis.report.keep import headline, keeping_fields
from anubis.report.nodes import standing
from anubis.report.watch_rounds import sentences_on_rates
from anubis.store import codec
from anubis.store.executions import Executions
from anubis.store.history import History
from anubis.store.holds import LASTS_S
from anubis.store.keeping import KeeperState, News
from anubis.text.wording import moment
from tests.core.watched import StandIn, healthy
from tests.edges.desk import FLOW, Desk
from tests.patience import eventually

ACT = {"cordon": Mode.ACT, "release": Mode.ACT, "test": Mode.ACT, "swap": Mode.ACT}


class Owner:
    """Owns the nodes of a fleet, and obeys orders unless it is set not to."""

    def __init__(self, nodes, now):
        self.nodes = {node: SeenNode(sku="h100") for node in nodes}
        self.jobs = {}
        self.windows = {}
        self.put_back = []
        self.now = now
        self.trouble = ""

    def observe(self):
        running = {
            node: tuple(id for id, job in self.jobs.items() if node in job.nodes)
            for node in self.nodes
        }
        shown = {node: replace(seen, jobs=running[node]) for node, seen in self.nodes.items()}
        windows = dict(self.windows)
        return FleetSeen(at=self.now(), nodes=shown, jobs=dict(self.jobs), windows=windows)

    def cordon(self, reasons):
        if self.trouble:
            raise OrchestratorError(self.trouble)
        for node, reason in reasons.items():
            self.nodes[node] = replace(self.nodes[node], cordon=reason)
        return {}

    def release(self, nodes):
        return self.cordon(dict.fromkeys(nodes, ""))

    def requeue(self, jobs):
        self.put_back += [(job, sorted(nodes)) for job, nodes in jobs.items()]
        for job in jobs:
            del self.jobs[job]
        return {}


class Site:
    """A simulated cluster of eight nodes, its history, its owner, and a clock that we set."""

    def __init__(self, desk):
        self.desk = desk
        self.now = 1.7e9
        self.off_s = 0.0  # by how much the wall clock is wrong
        self.home = desk.home
        self.cluster = self.describe(slow_share=0.125)
        (self.bad,) = plants(configs.cluster(self.cluster).fleet, ["flow"])
        self.suite = desk.suite(desk.flow())
        self.owner = Owner([f"n{i}" for i in range(1, 9)], self.wall_clock)

    @classmethod
    @contextmanager
    def accepted(cls, folder, told, *, is_sound=False):
        """A fleet whose acceptance is over, for a block in which its home is the user's."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(catalog, "describe_all", told)
            desk = Desk(folder)
            patch.setenv("ANUBIS_HOME", str(desk.home))
            site = cls(desk)
            if is_sound:
                site.mend()
            site.accept()
            yield site

    def copied(self, home, monkeypatch, **fleet):
        """This site as it was left, with a history of its own."""
        site = copy(self)
        site.home = shutil.copytree(self.desk.home, home)
        site.cluster = site.describe(**fleet)
        site.owner = Owner(self.owner.nodes, site.wall_clock)
        monkeypatch.setenv("ANUBIS_HOME", str(site.home))
        return site

    def describe(self, **fleet):
        return self.desk.fleet(**fleet)

    @property
    def history(self):
        return str(self.home / "history.sqlite")

    def later(self, seconds=1.0):
        self.now += seconds
        return self.now

    def wall_clock(self):
        return self.later() + self.off_s

    @property
    def caller(self):
        return self.caller_on("its machine")

    def caller_on(self, machine, off_s=0.0):
        return Caller(
            history_url=self.history,
            clock=lambda: self.wall_clock() + off_s,
            uptime=lambda: (machine, self.now),
        )

    def keeping(self, owner=True, **modes):
        limits = {"out_of_fleet": 0.5, "out_of_sku": 0.5, "out_of_job": 1.0, "tested_at_once": 1.0}
        policy = KeepingPolicy(suite=self.suite, check=self.suite, **{**limits, **modes})
        return Keeping(
            chosen=ChosenPolicy(policy=policy),
            cluster=self.cluster,
            benchmarks=(self.desk.programs,),
            orchestrator=self.owner if owner else None,
        )

    @property
    def drained(self):
        return {node for node, seen in self.owner.nodes.items() if seen.cordon}

    def accept(self):
        return self.measure(AcceptRequest)

    def measure(self, record, nodes=None, caller=None, suite=None):
        request = record(
            nodes,
            cluster=self.cluster,
            suite=suite or self.suite,
            benchmarks=(self.desk.programs,),
        )
        return run_campaign(request, caller or self.caller)

    def tell(self, event, **more):
        return tell(Telling(event=event, cluster=self.cluster, **more), self.caller)

    def watches(self):
        with History.open(self.history) as history:
            return history.only().watches.all()

    def keep(self, **modes):
        self.later(100)
        return keep(self.keeping(**modes), self.caller)

    def gate(self, *nodes):
        """Ask a gate that runs no test."""
        return self.asked(*nodes).judged[nodes[0]]

    def asked(self, *nodes, may_test=False, **more):
        programs = (self.desk.programs,)
        more = {"suite": self.suite, **more}
        terms = Terms(benchmarks=programs, cluster=self.cluster, **more)
        return gate(GateRequest(nodes, 3600.0, may_test=may_test), terms, self.caller)

    def mend(self):
        """The slow node is slow no more."""
        self.describe()


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, told):
    """Once for all tests here."""
    with Site.accepted(tmp_path_factory.mktemp("site"), told) as site:
        return site


@pytest.fixture
def site(accepted, tmp_path, monkeypatch, told):
    monkeypatch.setattr(catalog, "describe_all", told)
    return accepted.copied(tmp_path / "home", monkeypatch, slow_share=0.125)


def states(fleet):
    return {node: life.state for node, life in fleet.lives.items()}


def test_from_a_bad_node_to_its_proven_return(site):
    fleet = site.keep(**ACT)
    assert states(fleet)[site.bad] is State.OUT
    assert site.owner.nodes[site.bad].cordon.startswith("anubis[FLOW.")
    assert {s for n, s in states(fleet).items() if n != site.bad} == {State.IN_SERVICE}
    site.tell(RepairBegun(nodes=(site.bad,)))
    assert states(site.keep(**ACT))[site.bad] is State.REPAIRING
    site.tell(RepairDone(nodes=(site.bad,)))
    site.mend()
    fleet = site.keep(**ACT)
    assert states(fleet)[site.bad] is State.IN_SERVICE
    assert not site.owner.nodes[site.bad].cordon


def test_a_turn_that_waits_for_another_one_leaves_reports_their_dates(site, monkeypatch):
    good, take, begun = _good(site), KeeperState.turn, []

    @contextmanager
    def turn(state, by, clock=None):
        if not begun:
            begun.append(site.later(10))
            site.tell(RepairBegun(nodes=(good,)))
            site.later(10)
            site.tell(RepairDone(nodes=(good,)))
            keep(site.keeping(owner=False), site.caller)  # of another process, which is faster
        with take(state, by, clock) as taken:
            yield taken

    site.keep(owner=False)
    monkeypatch.setattr(KeeperState, "turn", turn)
    life = site.keep(owner=False).lives[good]
    assert begun[0] < life.repair_begun_at < begun[0] + 10 < life.repair_done_at
    assert life.repair_done_at in {owed.at for owed in life.owed}


def test_a_repair_that_is_proven_in_part_brings_no_node_back(site, monkeypatch):
    asked = lambda code, benchmark: 3.0  # noqa: E731
    monkeypatch.setattr("anubis.core.history.standing.passes_asked", asked)
    site.keep(**ACT)
    site.tell(RepairDone(nodes=(site.bad,)))
    site.mend()
    assert states(site.keep(**ACT))[site.bad] is not State.IN_SERVICE
    assert site.gate(site.bad) is not Judgement.HEALTHY


def test_an_older_cordon_of_the_same_code_is_set_anew_so_that_it_can_be_released(site):
    proposed = site.keep(cordon=Mode.PROPOSE).actions
    (code,) = {a.command.code for a in proposed if isinstance(a.command, Cordon)}
    older = f"anubis[{code}]: of an earlier keeper"
    site.owner.cordon({site.bad: older})
    site.later(1000)
    site.keep(**ACT)
    assert site.owner.nodes[site.bad].cordon != older
    site.tell(RepairDone(nodes=(site.bad,)))
    site.mend()
    site.keep(**ACT)
    site.keep(**ACT)
    assert not site.owner.nodes[site.bad].cordon


def test_as_shipped_everything_is_proposed_and_nothing_is_done(site):
    fleet = site.keep(owner=False)
    assert states(fleet)[site.bad] is State.DRAINING
    assert {action.stage for action in fleet.actions} == {Stage.PROPOSED}
    assert [action.command.kind for action in fleet.actions] == ["open-ticket", "cordon"]
    assert all(not seen.cordon for seen in site.owner.nodes.values())
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    fleet = site.keep(owner=False)
    kinds = [action.command.kind for action in fleet.actions]
    assert kinds == ["open-ticket", "cordon", "cordon", "prove"]
    again = site.keep(owner=False)
    assert [action.id for action in again.actions] == [action.id for action in fleet.actions]


def test_on_a_node_at_work_nothing_is_tested_but_for_its_own_job(site, monkeypatch):
    """As reported: no orchestrator shows jobs here."""
    node = _good(site)
    site.tell(NodeAdded(nodes=(node,)))
    allocated = JobAllocated(nodes=(node,), duration_s=3600.0, job="17")
    site.tell(allocated)
    (shown,) = nodes([node], cluster=site.cluster, caller=site.caller)
    assert standing(shown) == "at work"
    assert [job.id for job in shown.reported_jobs] == ["17"]
    campaigns = _campaigns(site)
    why = f'node "{node}" is left alone: job 17 runs there since .*tell job-ended --job 17'
    for record in (ValidateRequest, ScanRequest, AcceptRequest):
        with pytest.raises(BusyNodesError, match=why):
            site.measure(record, [node])
    for may_test in (False, True):
        answer = site.asked(node, may_test=may_test)
        assert (answer.answer, answer.doubt) == ("unknown", "busy")
        assert f"these nodes are not all free: {node}; {node}: job 17 runs" in sentence(answer)
    site.keep(owner=False, test=Mode.ACT)
    assert _campaigns(site) == campaigns, "nothing ran"
    assert node not in _measured(site.measure(ValidateRequest))
    site.tell(NodeAdded(nodes=(node,)))
    assert site.asked(node, may_test=True, job="17").answer == "go"
    assert site.asked(node).answer == "unknown", "it is proven, and not free"
    assert site.asked(site.bad, node).answer == "no-go", "that stands first"
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_JOB_ID", "17")
        assert site.asked(node).answer == "go"
    site.tell(JobEnded(nodes=(), job="17"))
    assert site.asked(node).answer == "go"
    assert node in _measured(site.measure(ValidateRequest, [node]))


def test_a_job_without_a_reported_end_keeps_its_nodes_a_day_longer_than_planned(site):
    node = _good(site)
    site.tell(JobAllocated(nodes=(node,), duration_s=3600.0, job="17"))
    site.tell(NodeAdded(nodes=(node,)))
    site.later(86_400.0)
    site.keep(owner=False, test=Mode.ACT)
    with pytest.raises(BusyNodesError, match="job 17 runs there"):
        site.measure(ValidateRequest, [node])
    site.later(3600.0)
    assert nodes([node], cluster=site.cluster, caller=site.caller)[0].reported_jobs == ()
    assert node in _measured(site.measure(ValidateRequest, [node]))
    site.tell(NodeAdded(nodes=(node,)))
    fleet = site.keep(owner=False, test=Mode.ACT)
    assert states(fleet)[node] is State.IN_SERVICE, "the keeper could test it"
    assert not fleet.lives[node].jobs


def test_a_campaign_in_memory_is_dated_after_its_order(site):
    now = site.later()
    machine = Caller(
        history_url=site.history, clock=lambda: now, uptime=lambda: ("its machine", now)
    )
    view = site.measure(ValidateRequest, caller=machine).view
    with History.open(site.history) as history:
        kept = history.campaigns.get(view.campaign.id)
    for campaign in (view.campaign, kept):
        assert (campaign.created_at, campaign.finished_at) == (now, now)
    assert view.duration_s > 9, "by the clock of the fleet"


def test_a_hold_of_a_wrong_clock_does_not_keep_a_node_from_its_keeper_for_ever(site):
    node = _good(site)
    site.tell(NodeAdded(nodes=(node,)))
    with (
        History.open(site.history) as history,
        history.only().holds.hold([node], "somebody else", lambda: site.now + 1e7),
    ):
        assert states(site.keep(**ACT))[node] is State.NEW, "somebody may measure there"
        site.later(LASTS_S)
        assert states(site.keep(**ACT))[node] is State.IN_SERVICE


def _measured(result):
    return {node for run in result.view.executions for node in run.step.participants}


def _judged(result):
    return {verdict.node: verdict.judgement for verdict in result.view.assessment.nodes}


def _campaigns(site):
    with History.open(site.history) as history:
        return [row.id for row in history.campaigns.newest(limit=99)]


def test_a_turn_with_nothing_new_proposes_nothing_once_more(site):
    first, *_, last = [node for node in sorted(site.owner.nodes) if node != site.bad]
    site.tell(FleetUpgraded(nodes=(last,)))  # is more urgent
    site.tell(NodeAdded(nodes=(first,)))
    before = [action.id for action in site.keep(owner=False).actions]
    for _ in range(3):
        assert [action.id for action in site.keep(owner=False).actions] == before
    site.tell(FleetUpgraded(nodes=(first,)))
    (proposed,) = [a for a in site.keep(owner=False).actions if _is_open_test(a)]
    assert proposed.id not in before, "it takes the place of the one before"


def _is_open_test(action):
    return action.command.kind == "prove" and action.stage is Stage.PROPOSED


def test_a_person_has_a_proposal_done_and_can_do_it_once(site):
    fleet = site.keep()
    cordon = next(action for action in fleet.actions if action.command.kind == "cordon")
    fleet = approve(site.keeping(), [cordon.id], site.caller)
    assert site.owner.nodes[site.bad].cordon.startswith("anubis[FLOW.")
    done = next(action for action in fleet.actions if action.id == cordon.id)
    assert done.stage is Stage.DONE
    assert done.ordered_by == site.caller.name()
    with site.caller.history() as history:
        (order,) = history.audit.newest(9)
    deed = f"keep --do {cordon.id}: keep {site.bad} from jobs"
    assert (order.who, order.method) == (site.caller.name(), "order")
    assert order.path.startswith(deed)
    with pytest.raises(UsageError, match=f"action {cordon.id} is done"):
        approve(site.keeping(), [cordon.id], site.caller)


def test_a_cordon_is_ours_if_its_owner_took_it_or_shows_it_word_for_word():
    def action(node, stage):
        order = Cordon(mode=Mode.ACT, node=node, code="GEMM", reason="slow")
        return LifeAction(id=1, at=1.0, command=order, stage=stage, changed_at=1.0)

    failed = [action(node, Stage.FAILED) for node in ("late", "other", "free", "gone")]
    shown = {"late": "anubis[GEMM]: slow", "other": "anubis[GEMM]: of another", "free": ""}
    seen = FleetSeen(at=2.0, nodes={node: SeenNode(cordon=why) for node, why in shown.items()})
    sent = [action("told", Stage.SENT), *failed]
    assert [order.node for order in _obeyed_cordons(sent, seen)] == ["told", "late"]
    assert [order.node for order in _obeyed_cordons(sent, None)] == ["told"]


def test_a_wrong_id_among_several_approvals_leaves_all_undone(site):
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    fleet = site.keep()
    ids = [action.id for action in fleet.actions]
    with pytest.raises(StoreError, match="no action 77"):
        approve(site.keeping(), [*ids, 77], site.caller)
    waiting = actions(cluster=site.cluster, caller=site.caller)
    assert {action.id for action in waiting} == {*ids}
    assert {action.stage for action in waiting} == {Stage.PROPOSED}
    assert not site.drained


def test_an_order_can_be_approved_only_if_an_orchestrator_can_follow_it(site):
    fleet = site.keep(owner=False)
    cordon = next(action for action in fleet.actions if action.command.kind == "cordon")
    with pytest.raises(UsageError, match=r"the cluster has no orchestrator; name one"):
        approve(site.keeping(owner=False), [cordon.id], site.caller)
    assert actions(cluster=site.cluster, caller=site.caller)[0].stage is Stage.PROPOSED


def test_an_event_reported_twice_has_its_consequences_once(site):
    """A client without an answer reports it again, and later: a repair that was proven is not begun
    again, and a job not ended later."""
    node = _good(site)

    def what_follows():
        with History.open(site.history) as history:
            part = history.only()
            return part.repairs.all(), part.jobs.all(), part.watches.all()

    for event in (
        RepairBegun(nodes=(node,)),
        RepairDone(nodes=(node,)),
        JobAllocated(nodes=(node,), job="7", duration_s=60.0),
        JobEnded(nodes=(), job="7"),
        NodeRemoved(nodes=(node,)),
        NodeAdded(nodes=(node,)),
    ):
        assert site.tell(event, id=event.kind).is_new
        once = what_follows()
        site.later(100.0)
        assert not site.tell(event, id=event.kind).is_new
        assert what_follows() == once, event.kind


def test_a_node_that_is_added_is_new_until_it_has_passed(site):
    site.keep(**ACT)
    node = _good(site)
    site.tell(NodeAdded(nodes=(node,)))
    assert states(site.keep(cordon=Mode.ACT))[node] is State.NEW
    fleet = site.keep(**ACT)
    assert states(fleet)[node] is State.IN_SERVICE


def test_a_new_node_takes_no_job_and_passes_no_gate_until_it_is_proven(site):
    site.keep(**ACT)
    site.describe(nodes="n[1-9]")
    site.owner.nodes["n9"] = SeenNode(sku="h100")
    fleet = site.keep(**{**ACT, "test": Mode.PROPOSE})
    assert states(fleet)["n9"] is State.NEW
    assert site.owner.nodes["n9"].cordon == "anubis[UNPROVEN]: new, not yet proven"
    assert site.gate("n9") is Judgement.UNKNOWN
    fleet = site.keep(**ACT)
    assert states(fleet)["n9"] is State.IN_SERVICE
    assert "n9" not in site.drained
    assert site.gate("n9") is Judgement.HEALTHY


def test_an_added_or_returned_node_is_watched_until_it_leaves(site):
    watched = lambda: {w.node for w in site.watches() if w.until is None}  # noqa: E731
    before = watched()
    site.tell(NodeAdded(nodes=("n9",)))
    assert watched() == before | {"n9"}
    site.tell(OperatorSaid(order=Order.RETIRE, nodes=("n9", "n1")))
    assert watched() == before - {"n1"}
    site.tell(OperatorSaid(order=Order.RETURN, nodes=("n1",)))
    assert watched() == before
    site.tell(NodeRemoved(nodes=("n1",)))
    assert watched() == before - {"n1"}


def test_jobs_that_the_owner_shows_are_kept_and_their_nodes_checked_afterwards(site):
    site.keep(**ACT)
    node = _good(site)
    site.owner.jobs["7"] = SeenJob(owner="jo", nodes=(node,), started_at=site.now)
    fleet = site.keep(**ACT)
    assert list(fleet.lives[node].jobs) == ["7"]
    del site.owner.jobs["7"]
    fleet = site.keep(**ACT)
    assert any(
        action.command.kind == "prove" and list(action.command.owed) == [node]
        for action in fleet.actions
    )
    with History.open(site.history) as history:
        (job,) = history.only().jobs.all()
    assert (job.id, job.nodes) == ("7", (node,))
    assert job.end is not None


def test_a_job_has_the_nodes_that_its_owner_shows_last(site):
    """The pods of a gang come one by one, an elastic job exchanges a node, and ranks end early."""
    site.keep(**ACT)
    began = site.now
    for shown, kept in (
        ("n1", "n1"),
        ("n1 n2", "n1 n2"),
        ("n1 n2 n3", "n1 n2 n3"),
        ("n1 n3 n4", "n1 n3 n4"),  # another node in place of n2
        ("n3", "n1 n3 n4"),  # the others are done
    ):
        nodes = tuple(shown.split())
        site.owner.jobs["7"] = SeenJob(owner="jo", nodes=nodes, started_at=began)
        site.keep(**ACT)
        with History.open(site.history) as history:
            (job,) = history.only().jobs.all()
            assert not history.examine().damages
        assert (job.nodes, job.end) == (tuple(kept.split()), None)


def test_a_job_that_its_gate_puts_back_reserves_its_node_and_leaves_no_trace(site):
    site.keep(**ACT)
    node = _good(site)
    waits = SeenJob(owner="jo", nodes=(node,), started_at=site.now, has_begun=False)
    site.owner.jobs["7"] = waits
    assert list(site.keep(**ACT).lives[node].jobs) == ["7"]
    del site.owner.jobs["7"]
    fleet = site.keep(**ACT)
    assert not fleet.lives[node].jobs
    assert not [action for action in fleet.actions if action.command.kind == "prove"]
    with History.open(site.history) as history:
        assert not history.only().jobs.all()


def test_a_job_that_is_begun_again_under_its_id_is_another_one_and_checked_as_well(site):
    site.keep(**ACT)
    node = _good(site)
    for _ in range(2):
        site.owner.jobs["7"] = SeenJob(owner="jo", nodes=(node,), started_at=site.later())
        site.keep(**ACT)
        site.keep(**ACT)
        del site.owner.jobs["7"]
        site.keep(**ACT)
    with History.open(site.history) as history:
        jobs, acts = history.only().jobs.all(), history.only().keeping.newest_actions()
    assert len(jobs) == 2
    assert all(job.end is not None for job in jobs)
    assert [action.command.kind for action in acts].count("prove") == 2


def test_reported_jobs_and_repairs_are_in_the_history(site):
    site.tell(JobAllocated(nodes=("n1", "n2"), duration_s=3600, job="8"))
    site.tell(JobEnded(nodes=(), job="8"))
    site.tell(RepairBegun(nodes=("n3",)))
    site.tell(RepairDone(nodes=("n3",), action="new fan"))
    with History.open(site.history) as history:
        part = history.only()
        (job,), (repair,) = part.jobs.all(), part.repairs.all()
    assert job.start < job.end
    assert (repair.node, repair.action) == ("n3", "new fan")
    assert repair.start < repair.end


@pytest.fixture
def busy(site):
    """A site whose job 7 runs on two nodes, of which each has an incident."""
    site.keep(**ACT)
    nodes = tuple(node for node in site.owner.nodes if node != site.bad)[:2]
    site.owner.jobs["7"] = SeenJob(owner="jo", nodes=nodes, started_at=site.now)
    site.keep(**ACT)
    site.tell(IncidentReported(nodes=nodes, category="xid-79"))
    return site, nodes


def put_back(fleet):
    return [(a.stage, a.note) for a in fleet.actions if isinstance(a.command, Requeue)]


def test_a_job_is_put_back_once_without_all_of_its_nodes_that_are_taken_out(busy):
    site, nodes = busy
    for _ in range(2):
        site.keep(**ACT, requeue=Mode.ACT)
        assert site.owner.put_back == [("7", sorted(nodes))]
    with History.open(site.history) as history:
        listed = history.only().keeping.newest_actions()
    assert [a.stage for a in listed if isinstance(a.command, Requeue)] == [Stage.DONE] * 2


def test_a_proposal_to_put_a_job_back_waits_for_a_person(busy):
    site, (node, _) = busy
    fleet = site.keep(**ACT, requeue=Mode.PROPOSE)
    assert not site.owner.put_back
    ids = {a.command.node: a.id for a in fleet.actions if isinstance(a.command, Requeue)}
    approve(site.keeping(**ACT, requeue=Mode.PROPOSE), [ids[node]], site.caller)
    assert site.owner.put_back == [("7", [node])]
    assert put_back(site.keep(**ACT, requeue=Mode.PROPOSE)) == []


def test_a_job_that_may_not_be_put_back_goes_on_and_the_refusal_is_shown(busy):
    site, _ = busy
    site.owner.requeue = lambda jobs: dict.fromkeys(jobs, "job 7 may not be requeued")
    fleet = site.keep(**ACT, requeue=Mode.ACT)
    assert put_back(fleet) == [(Stage.FAILED, "job 7 may not be requeued")] * 2
    assert put_back(site.keep(**ACT, requeue=Mode.ACT)) == []
    assert "7" in site.owner.jobs


def repair_by(site, script):
    """A policy whose remedy for every code is this script; it writes down for which node it ran."""
    log, program = site.home / "ran", site.home / "repair"
    program.write_text(f"#!/bin/sh\necho $ANUBIS_CODE $1 >> {log}\n{script}\n")
    program.chmod(0o755)
    folder = site.home / "configs" / "policies"
    (folder / "remedies").mkdir(parents=True, exist_ok=True)
    remedy = {"codes": ["*"], "action": "reset", "commands": [[str(program), "{node}"]]}
    (folder / "remedies" / "site.yaml").write_text(yaml.safe_dump({"remedies": [remedy]}))
    (folder / "site.yaml").write_text("remedies: [default, site]\n")
    return {**ACT, "repair": Mode.ACT, "selection": "site"}, log


def repairs(fleet):
    return [(a.stage, a.note) for a in fleet.actions if isinstance(a.command, TryRepair)]


def test_a_command_of_the_site_repairs_a_node_once_and_a_test_proves_it(site):
    policy, log = repair_by(site, "exit 0")
    site.mend()
    fleet = site.keep(**policy)
    assert repairs(fleet) == [(Stage.DONE, "")]
    assert states(site.keep(**policy))[site.bad] is State.IN_SERVICE
    (line,) = log.read_text().splitlines()
    assert re.fullmatch(rf"FLOW\.\S+ {site.bad}", line)
    with History.open(site.history) as history:
        (repair,) = history.only().repairs.all()
    assert (repair.node, repair.action) == (site.bad, f"{site.home}/repair {site.bad}")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("'{node}'", "all", "has no word with {node}"),
        ("action: reset", "limit_s: 0\n  action: reset", "limit_s is 0"),
    ],
)
def test_a_command_that_names_no_node_and_one_without_time_are_refused(site, before, after, why):
    policy, _ = repair_by(site, "exit 0")
    file = site.home / "configs/policies/remedies/site.yaml"
    file.write_text(file.read_text().replace(before, after))
    with pytest.raises(ConfigError, match=why):
        site.keep(**policy)


def test_a_command_that_fails_leaves_its_node_out_and_is_not_run_again(site):
    policy, log = repair_by(site, "echo no such GPU >&2; exit 3")
    fleet = site.keep(**policy)
    ((stage, note),) = repairs(fleet)
    assert stage is Stage.FAILED
    assert note.endswith("no such GPU")
    told = [a.command.sentence for a in fleet.actions if isinstance(a.command, Notify)]
    assert told[0].endswith("no such GPU")
    assert told[1].endswith("it waits for a person")
    assert states(site.keep(**policy))[site.bad] is State.OUT
    assert len(log.read_text().splitlines()) == 1


def test_an_approved_repair_runs_only_as_it_was_proposed(site):
    policy, log = repair_by(site, "exit 0")
    policy["repair"] = Mode.PROPOSE
    site.keep(**policy)
    (action,) = [a for a in site.keep(**policy).actions if isinstance(a.command, TryRepair)]
    file = site.home / "configs/policies/remedies/site.yaml"
    file.write_text(file.read_text().replace("'{node}'", "--force\n    - '{node}'"))
    with pytest.raises(UsageError, match="another command is to be run now"):
        approve(site.keeping(**policy), [action.id], site.caller)
    assert not log.exists()


def test_a_command_runs_only_if_nothing_told_since_it_was_kept_forbids_it(site):
    policy, log = repair_by(site, "exit 0")
    ago, later = site.now - 10, site.now + 1e6
    returned = partial(OperatorSaid, order=Order.RETURN)
    for forbid, allow in (
        (MaintenancePlanned(begin=ago, end=later, nodes=(site.bad,)), MaintenanceEnded),
        (OperatorSaid(order=Order.RETIRE, nodes=(site.bad,)), returned),
        (RepairBegun(nodes=(site.bad,)), None),
    ):
        site.later(100)
        fleet = keep(site.keeping(**policy), site.caller, lambda _: False)
        ((id, stage),) = [
            (a.id, a.stage) for a in fleet.actions if isinstance(a.command, TryRepair)
        ]
        assert stage is Stage.KEPT
        site.tell(forbid)
        carry_out(site.keeping(**policy), id, site.caller)
        assert not log.exists()
        if allow:
            site.tell(allow(nodes=(site.bad,)))
    with History.open(site.history) as history:
        (life,) = history.only().keeping.lives_of([site.bad])
    assert life.attempts == (), "what did not begin is no attempt"


def test_a_suspicion_waits_for_partners_that_other_tests_hold(site):
    site.mend()
    pairs = {"benchmark": "pair_torch", "rounds": 1}
    site.suite = site.desk.suite(site.desk.flow(), pairs, name="pairs.yaml")
    site.accept()
    site.keep(**ACT)
    suspected, *others = site.owner.nodes
    site.tell(SuspicionRaised(nodes=(suspected,), category="gpu", confidence=0.9, source="watch"))
    with (
        History.open(site.history) as history,
        history.only().holds.hold(others, "somebody else", lambda: site.now + 100),
    ):
        fleet = site.keep(**ACT)
    (test,) = [a for a in fleet.actions if isinstance(a.command, Prove)]
    assert (test.stage, states(fleet)[suspected]) == (Stage.FAILED, State.SUSPECT)
    assert "are being tested; wait until that ends" in test.note
    site.later(3600)
    assert states(site.keep(**ACT))[suspected] is State.IN_SERVICE
    with History.open(site.history) as history:
        (decision,) = history.only().decisions.newest(1)
    assert {"flow", "pair_torch"} == {test.benchmark for test in decision.tests}


def test_no_command_runs_on_a_node_that_is_measured(site):
    policy, log = repair_by(site, "exit 0")
    policy["repair"] = Mode.PROPOSE
    site.keep(**policy)
    (action,) = [a for a in site.keep(**policy).actions if isinstance(a.command, TryRepair)]
    with (
        History.open(site.history) as history,
        history.only().holds.hold([site.bad], "somebody else", lambda: site.now),
    ):
        fleet = approve(site.keeping(**policy), [action.id], site.caller)
    measured = "the node is measured by others, or does not answer"
    assert repairs(fleet) == [(Stage.FAILED, measured)]
    assert not log.exists()
    assert repairs(site.keep(**policy)) == [(Stage.PROPOSED, measured)], "it is proposed again"


HANGS = """sleep 1000 & child=$!
setsid sleep 1000 &
echo $$ $child $! > {started}.new; mv {started}.new {started}
wait"""


def test_a_command_whose_keeper_was_killed_has_its_node_alone_and_ends_with_its_time(site):
    """What it started in a session of its own goes on, as after a command that ended well."""
    started = site.home / "started"
    policy, log = repair_by(site, HANGS.format(started=started))
    file = site.home / "configs/policies/remedies/site.yaml"
    commands = [[f"{site.home}/repair", "{node}"], ["/bin/true", "{node}"]]
    remedy = {"codes": ["*"], "action": "", "commands": commands, "limit_s": 3000}
    file.write_text(yaml.safe_dump({"remedies": [remedy]}))
    keeper = get_context("fork").Process(target=site.keep, kwargs=policy)
    keeper.start()
    eventually(started.exists)
    with History.open(site.history) as history:
        assert [hold.node for hold in history.only().holds.current(site.now)] == [site.bad]
    keeper.kill()
    keeper.join()
    command, child, apart = map(int, started.read_text().split())
    other = subprocess.Popen(["sleep", "1000"], env={"ANUBIS_ACTION": "another's"})
    try:
        for _ in range(3):
            site.later(500)
            fleet = site.keep(**policy)
            assert repairs(fleet) == [(Stage.SENT, "")]
            assert states(fleet)[site.bad] is State.REPAIRING
        assert _living(command, child, apart) == [command, child, apart]
        site.later(2000)
        ended = "the process that ran it died; it was ended after 3000 s"
        assert repairs(site.keep(**policy)) == [(Stage.FAILED, ended), (Stage.DONE, "")]
        assert _living(command, child, apart) == [apart]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        os.kill(apart, signal.SIGKILL)
    assert len(log.read_text().splitlines()) == 1


def _living(*pids):
    said = {pid: Path(f"/proc/{pid}/cmdline") for pid in pids}  # empty: it has ended
    return [pid for pid, file in said.items() if file.exists() and file.read_bytes()]


def test_a_command_that_is_stopped_with_its_keeper_is_reported_at_once(site, monkeypatch):
    policy, _ = repair_by(site, "exit 0")
    with monkeypatch.context() as patch:
        patch.setattr("anubis.operations.keep_actions.run_command", _die)
        with pytest.raises(KeyboardInterrupt):
            site.keep(**policy)
    listed = actions(only_open=False, cluster=site.cluster, caller=site.caller)
    noted = [(a.stage, a.note) for a in listed if isinstance(a.command, TryRepair)]
    assert noted == [(Stage.FAILED, "it was stopped with the process that ran it")]
    assert states(site.keep(**policy))[site.bad] is State.OUT


def is_search(action):
    return isinstance(action.command, Prove) and action.command.proof is Proof.TOGETHER


def test_the_nodes_of_a_job_with_unexplained_trouble_are_searched_once_and_the_bad_one_is_out(site):
    site.mend()
    site.tell(RepairDone(nodes=(site.bad,)))
    site.keep(**ACT)
    site.describe(slow_share=0.125)  # it goes bad again, without a report
    meet = FLOW.replace('"flow"', '"meet"').replace('"scope": "node"', '"scope": "group"')
    site.desk.program("meet.sh", meet)
    together = {"benchmark": "meet", "parameters": {"pace": str(site.desk.pace)}, "groups": "parts"}
    suite = site.desk.suite(site.desk.flow(), together, name="locate.yaml")
    nodes = (site.bad, *[node for node in site.owner.nodes if node != site.bad][:3])
    site.tell(JobUnexplained(nodes=nodes, job="7"))
    policy = {**ACT, "test": Mode.PROPOSE, "locate": LocatePolicy(suite=suite)}
    (proposed,) = [action for action in site.keep(**policy).actions if is_search(action)]
    assert proposed.stage is Stage.PROPOSED
    fleet = approve(site.keeping(**policy), [proposed.id], site.caller)
    (done,) = [action for action in fleet.actions if is_search(action)]
    with History.open(site.history) as history:
        campaign = history.campaigns.get(done.campaign)
    assert (done.stage, campaign.kind) == (Stage.DONE, CampaignKind.LOCATE)
    assert {node.name for node in campaign.plan.nodes} == {*nodes}
    assert states(fleet)[site.bad] is State.OUT
    assert not any(map(is_search, site.keep(**policy).actions))


def test_an_order_that_fails_is_reported_and_given_again(site):
    site.owner.trouble = "slurmctld does not answer"
    fleet = site.keep(**ACT)
    failed = [action for action in fleet.actions if action.stage is Stage.FAILED]
    assert [action.note for action in failed] == ["slurmctld does not answer"]
    assert states(fleet)[site.bad] is State.DRAINING
    site.owner.trouble = ""
    fleet = site.keep(**ACT)
    assert states(fleet)[site.bad] is State.OUT
    with History.open(site.history) as history:
        listed = history.only().keeping.newest_actions()
    assert [action.command.kind for action in listed].count("cordon") == 1


def test_a_test_whose_driver_died_before_the_campaign_is_begun_again(site, monkeypatch):
    site.keep(**ACT)
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    with monkeypatch.context() as broken:
        broken.setattr("anubis.operations.decided_tests.carried_out_tests", _die)
        with pytest.raises(KeyboardInterrupt):
            site.keep(**ACT)
    assert states(site.keep(**ACT))[_good(site)] is State.IN_SERVICE


def test_a_turn_waits_for_no_test_that_another_process_carries_out(site):
    site.keep(**ACT)
    site.tell(FleetUpgraded(nodes=(_good(site),)))
    driven = []

    def drive(id):
        driven.append(id)
        return False

    def turn():
        site.later(100)
        return keep(site.keeping(**ACT), site.caller, drive)

    assert states(turn())[_good(site)] is State.TESTING
    with History.open(site.history) as history, history.only().keeping.driving(driven[0]):
        turn()
        assert not carry_out(site.keeping(**ACT), driven[0], site.caller)
    assert len(driven) == 1  # its driver lives
    turn()
    assert len(driven) == 2  # and now it does not
    assert carry_out(site.keeping(**ACT), driven[0], site.caller)
    assert not carry_out(site.keeping(**ACT), driven[0], site.caller)
    assert states(turn())[_good(site)] is State.IN_SERVICE
    assert len(driven) == 2


def test_a_bad_node_is_out_before_any_test_runs(site, monkeypatch):
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    site.tell(IncidentReported(nodes=(site.bad,), category="gpu"))
    monkeypatch.setattr("anubis.operations.decided_tests.carried_out_tests", _die)
    with pytest.raises(KeyboardInterrupt):
        site.keep(**ACT)
    assert site.drained == {site.bad, _good(site)}


def test_a_test_that_was_stopped_in_its_campaign_goes_on_and_is_done_once(site):
    site.keep(**ACT)
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    stopped = site.caller
    stopped.wants_stop = lambda: True
    with pytest.raises(Stopped):
        keep(site.keeping(**ACT), stopped)
    site.later(LASTS_S)
    assert states(site.keep(**ACT))[_good(site)] is State.IN_SERVICE
    with History.open(site.history) as history:
        campaigns = history.campaigns.newest(10)
    assert len(campaigns) == 2  # with the acceptance
    assert all(campaign.finished_at for campaign in campaigns)


def test_nodes_cordoned_by_a_person_or_retired_are_left_alone(site):
    """A person may use them. That no test runs on them is seen in test_life.py."""
    first, second = [node for node in ("n1", "n2", "n3") if node != site.bad][:2]
    site.owner.nodes[first] = replace(site.owner.nodes[first], cordon="memory swap, Jo")
    site.tell(OperatorSaid(order=Order.RETIRE, nodes=(second,)))
    site.keep(**ACT)
    with History.open(site.history) as history:
        assert history.only().keeping.left_alone() == {first, second}


def test_the_node_of_least_risk_is_proven_as_a_spare_and_takes_the_place_of_a_bad_node(
    site, monkeypatch
):
    def foreseen(past, nodes, at, hours):
        return {node: 0.1 if node == "n3" else 0.5 for node in nodes}

    monkeypatch.setattr("anubis.operations.keep_turns.risks", foreseen)
    fleet = site.keep(**ACT, spares={"h100": 1})
    swaps = [a.command for a in fleet.actions if a.command.kind == "swap"]
    assert [(swap.node, swap.spare) for swap in swaps] == [(site.bad, "n3")]
    assert states(fleet)["n3"] is State.IN_SERVICE
    assert not site.owner.nodes["n3"].cordon
    (spare,) = (node for node, state in states(fleet).items() if state is State.SPARE)
    assert site.owner.nodes[spare].cordon.startswith("anubis[SPARE]: ")
    assert [a.command.kind for a in fleet.actions].count("prove") == 2


def fire(site, node, ended=0.0):
    """Report as Alertmanager does an alert that fires, or one that was resolved."""
    alert = {
        "labels": {"alertname": "GPUXid", "node": node},
        "startsAt": _moment(1.7e9 + 3600),
        "endsAt": _moment(ended) if ended else "0001-01-01T00:00:00Z",
    }
    site.now = max(site.now, 1.7e9 + 7200)
    text = json.dumps({"alerts": [alert]})
    wanted = {"mapping": "alertmanager", "cluster": site.cluster, "caller": site.caller}
    report_incidents(text, "Alertmanager", **wanted)


def test_a_removed_node_that_its_owner_still_shows_has_to_prove_itself_like_all_others(site):
    node = _good(site)
    site.tell(NodeRemoved(nodes=(node,)))
    site.keep()
    fire(site, node, ended=1.7e9 + 7000)
    assert states(site.keep())[node] is State.SUSPECT
    assert site.gate(node) is Judgement.UNKNOWN


def test_an_alert_is_received_even_while_the_wall_clock_is_behind(site):
    site.keep(**ACT)
    site.off_s = -3e7
    fire(site, _good(site))
    assert states(site.keep(**ACT))[_good(site)] is State.OUT


def _moment(at):
    return datetime.fromtimestamp(at, UTC).isoformat()


def test_a_firing_alert_drains_its_node_at_the_next_turn_and_until_it_has_passed_since(site):
    site.keep(**ACT)
    node = _good(site)
    fire(site, node)
    fleet = site.keep(**ACT)
    assert site.owner.nodes[node].cordon == 'anubis[INCIDENT]: its incident "GPUXid" is not over'
    assert states(fleet)[node] is State.OUT
    assert "prove" not in [action.command.kind for action in fleet.actions]
    fire(site, node, ended=site.now)
    assert states(site.keep(**{**ACT, "test": Mode.PROPOSE}))[node] is State.OUT
    assert site.gate(node) is not Judgement.HEALTHY
    fleet = site.keep(**ACT)
    assert "prove" in [action.command.kind for action in fleet.actions]
    assert states(fleet)[node] is State.IN_SERVICE
    assert node not in site.drained


def _killed_after_a_result(measure):
    record = Executions.record

    def record_and_die(*of):
        record(*of)
        os.kill(os.getpid(), signal.SIGKILL)

    Executions.record = record_and_die
    measure()


@pytest.mark.parametrize(
    ("verb", "is_told"), [("validate", True), ("validate", False), ("sweep", True)]
)
def test_a_killed_test_that_is_resumed_proves_nothing_from_before_an_incident(site, verb, is_told):
    node = _good(site)
    site.tell(FleetUpgraded(nodes=(node,)))
    terms = Terms(suite=site.suite, benchmarks=(site.desk.programs,), cluster=site.cluster)
    of = {
        "validate": partial(site.measure, ValidateRequest, [node]),
        "sweep": partial(sweep, (node,), terms, site.caller),
    }
    driver = get_context("fork").Process(target=_killed_after_a_result, args=[of[verb]])
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    site.later(100)
    if is_told:
        site.tell(IncidentReported(nodes=(node,), category="gpu"))
    site.later(LASTS_S)
    resume_campaign(CampaignKind.VALIDATE, caller=site.caller)
    assert site.gate(node) is (Judgement.UNKNOWN if is_told else Judgement.HEALTHY)


def test_under_maintenance_a_node_is_left_alone_by_every_verb_until_it_ends(site):
    good = _good(site)
    begin, until = site.now, site.now + 50_000
    window = MaintenancePlanned(
        nodes=(site.bad, good), begin=begin, end=until, reason="new fans", source="Jo"
    )
    site.tell(window, id="fans")
    assert not site.tell(window, id="fans").is_new
    fleet = site.keep(**ACT)
    assert {n for n, s in states(fleet).items() if s is State.MAINTENANCE} == {site.bad, good}
    assert not site.drained
    terms = Terms(suite=site.suite, benchmarks=(site.desk.programs,), cluster=site.cluster)
    answer = gate(GateRequest((good,), 3600.0), terms, site.caller)
    assert (answer.answer, answer.is_tested, answer.named(Judgement.DEFECTIVE)) == (
        *("no-go", False, []),
    )
    why = f"{good}: under maintenance until {moment(until)}: new fans"
    assert why in sentence(answer)
    swept = sweep((good, site.bad), terms, site.caller)
    assert swept.decision.nodes == ()
    with pytest.raises(BusyNodesError, match="is left alone: it is under maintenance until"):
        site.measure(ValidateRequest, [good])
    shown = {view.node: view for view in nodes(cluster=site.cluster, caller=site.caller)}
    assert standing(shown[good]) == "under maintenance"
    (glance,) = standings([good], caller=site.caller)
    assert (glance.judgement, glance.why) == (Judgement.UNKNOWN, why.partition(": ")[2])
    site.tell(MaintenanceEnded(nodes=(good, site.bad)))
    site.keep(**ACT)
    assert site.drained == {site.bad}
    assert site.gate(good) is Judgement.HEALTHY


def test_a_job_that_would_run_into_a_maintenance_does_not_begin(site):
    good = _good(site)
    begin = site.now + 7200
    site.tell(MaintenancePlanned(nodes=(good,), begin=begin, end=begin + 100))
    terms = Terms(suite=site.suite, benchmarks=(site.desk.programs,), cluster=site.cluster)
    answers = {
        hours: gate(GateRequest((good,), hours * 3600.0, may_test=False), terms, site.caller).answer
        for hours in (1, 3)
    }
    assert answers == {1: "go", 3: "no-go"}


def test_a_maintenance_window_of_the_orchestrator_is_recorded_once_with_its_end(site):
    good = _good(site)
    site.owner.windows = {"reservation fans": SeenWindow(nodes=(good,), begin=site.now)}
    for _ in range(3):
        assert states(site.keep(**ACT))[good] is State.MAINTENANCE
    site.owner.windows = {}
    assert states(site.keep(**ACT))[good] is State.IN_SERVICE
    with History.open(site.history) as history:
        told = [n.event.kind for n in history.only().event_records.all()]
    assert told.count("maintenance") == told.count("maintenance-ended") == 1


def test_a_proposal_about_a_node_under_maintenance_cannot_be_approved(site):
    fleet = site.keep(owner=False)
    id = next(action.id for action in fleet.actions if action.command.kind == "cordon")
    site.tell(MaintenancePlanned(nodes=(site.bad,), begin=site.now, end=site.now + 9000))
    site.keep(owner=False)
    with pytest.raises(UsageError, match=f"about {site.bad}, which is under maintenance"):
        approve(site.keeping(), [id], site.caller)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["n1"], "maintenance needs --until"),
        (["--until", "2026-11-24T08:00"], "name the nodes after the event"),
        (["n1", "--until", "soon"], "--until"),
        (["n1", "--until", "2026-11-24T08:00", "--from", "2026-11-25T08:00"], "ends before it"),
        (["n1", "--until", "2098-11-24T08:00"], "no end, or takes more than a year"),
        (["n1", "--until", "2099-11-24T08:00", "--from", "2001-01-02T00:00"], "a year ago"),
    ],
)
def test_a_maintenance_that_cannot_be_is_one_sentence(near, words, wrong):
    done = near.ask("tell", "maintenance", *words, "--later", "--cluster", "local")
    assert (done.code == 0, done.out) == (False, "")
    assert wrong in done.err
    assert len(done.err.strip().splitlines()) == 1
    odd = near.ask("tell", "repair-begun", "n1", "--until", "2026-11-24T08:00", "--later")
    assert "repair-begun has no --until: only maintenance has it" in odd.err


def test_if_most_nodes_fail_at_once_only_a_share_is_drained_until_a_person_allows_more(site):
    """As after a bad driver."""
    site.cluster = site.describe(slow_share=0.75)
    site.measure(ValidateRequest)
    limits = {"out_of_fleet": 0.25, "out_of_sku": 0.25}
    fleet = site.keep(**ACT, **limits)
    assert len(site.drained) == 2
    assert fleet.breakers["fleet"].is_open
    first = headline(fleet.cluster, fleet.lives, fleet.breakers, 0)
    assert first.startswith("the breaker is open (fleet")
    assert "until an operator closes it (anubis keep --close fleet" in first
    site.keep(**ACT, **limits)
    assert len(site.drained) == 2
    keeping = site.keeping(**ACT, **limits)
    with pytest.raises(UsageError, match=r'no breaker "fleeet"; did you mean "fleet"'):
        close_breakers(keeping, ["fleet", "fleeet"], site.caller)
    close_breakers(keeping, [*fleet.breakers], site.caller)
    fleet = site.keep(**ACT, **limits)
    assert len(site.drained) == 4
    told = headline(fleet.cluster, fleet.lives, fleet.breakers, 0)
    accepted = keeping_fields(fleet.cluster, fleet.lives, fleet.breakers).accepted
    assert accepted["fleet"] == 2
    assert "accepted to be out when a breaker was closed: 2 of fleet" in told
    with site.caller.history() as history:
        orders = [entry.path for entry in history.audit.newest(9) if entry.method == "order"]
    assert f"close-breaker fleet of {fleet.cluster}" in orders
    with (
        site.caller.history() as history,
        history.cluster(fleet.cluster).keeping.turn("me") as turn,
    ):
        keeper = turn.keeper(keeping.policy)
        keeper.breakers["fleet"] = Breaker(accepted=2)
        turn.end(keeper, News(event_records=(), conclusions=()), site.caller.clock())
    with pytest.raises(UsageError, match='"fleet" of cluster'):
        close_breakers(keeping, ["fleet"], site.caller)


def test_acting_on_nodes_needs_an_orchestrator(site):
    with pytest.raises(ConfigError, match="the cluster has no orchestrator"):
        site.keeping(owner=False, cordon=Mode.ACT)


def test_a_cluster_file_with_a_mistake_is_refused_and_not_taken_as_ownerless(tmp_path):
    file = tmp_path / "prod.yaml"
    file.write_text("{executor: ray, orchestratr: slurm}")
    with pytest.raises(ConfigError, match="orchestrat"):
        keeping_of(KeepRequest(cluster=str(file)))
    assert keeping_of(KeepRequest(cluster="known-to-the-history-alone")).orchestrator is None


def test_only_actions_that_wait_are_listed_by_default(site):
    site.keep()
    caller = site.caller
    waiting = actions(cluster=site.cluster, caller=caller)
    assert {action.stage for action in waiting} == {Stage.PROPOSED}
    approve(site.keeping(), [waiting[0].id], caller)
    assert len(actions(only_open=False, cluster=site.cluster, caller=caller)) == 2
    assert len(actions(cluster=site.cluster, caller=caller)) == 1


def test_for_ever_means_also_while_the_owner_does_not_answer(site, monkeypatch, capsys):
    request = site.keeping()
    turns = iter([site.keep(), OrchestratorError("no answer"), site.keep()])

    def turn(*_):
        answer = next(turns, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(verbs, "turn_termination_into_interrupt", lambda: None)
    monkeypatch.setattr(verbs.time, "sleep", lambda _: None)
    monkeypatch.setattr(verbs.anubis, "keeping_of", lambda *_, **__: request)
    monkeypatch.setattr(verbs.anubis, "keep", turn)
    with pytest.raises(KeyboardInterrupt):
        verbs.keep(every="60s")
    assert "no turn was taken: no answer" in capsys.readouterr().err
    assert next(turns, None) is None


def _die(*_, **__):
    raise KeyboardInterrupt


def _good(site):
    return next(node for node in site.owner.nodes if node != site.bad)


# --- suspicions ------------------------------------------------------------


def raised(*, source="watch", category="gpu", **more):
    return SuspicionRaised(nodes=("n1",), category=category, source=source, **more)


def suspect(site, id, event):
    site.tell(event, id=id)


def confidence_of(site, id):
    with History.open(site.history) as history:
        (event_record,) = [n for n in history.only().event_records.all() if n.id == id]
        return event_record.event.confidence


def test_a_suspicion_that_a_test_refutes_costs_its_source_confidence_the_next_time(site):
    """Real turns, real tests on a made fleet: (1 + hits) / (2 + hits + misses)."""
    good = _good(site)
    for number, expected in enumerate((1 / 2, 1 / 3, 1 / 4)):
        suspect(site, f"s{number}", replace(raised(mix={"gpu": 0.8, "host": 0.2}), nodes=(good,)))
        assert confidence_of(site, f"s{number}") == pytest.approx(expected)
        assert states(site.keep(**ACT))[good] is State.IN_SERVICE
    suspect(site, "another source", replace(raised(source="operator"), nodes=(good,)))
    suspect(site, "another kind", replace(raised(category="network"), nodes=(good,)))
    assert confidence_of(site, "another source") == confidence_of(site, "another kind") == 0.5
    assert good not in site.drained


def test_a_suspicion_that_a_test_confirms_drains_the_node_and_gains_its_source_confidence(site):
    mended = site.describe()
    site.keep(**ACT)
    site.tell(RepairDone(nodes=(site.bad,)))
    assert states(site.keep(**ACT))[site.bad] is State.IN_SERVICE
    assert site.describe(slow_share=0.125) == mended  # it goes bad again, without a report
    suspect(site, "first", replace(raised(), nodes=(site.bad,)))
    assert states(site.keep(**ACT))[site.bad] is State.OUT
    assert site.drained == {site.bad}
    suspect(site, "second", raised())
    assert confidence_of(site, "second") == pytest.approx(2 / 3)


def test_the_mix_of_a_suspicion_reaches_the_decision_and_the_history(site):
    suspect(site, "s", raised(mix={"gpu": 0.8, "host": 0.2}))
    site.keep(**ACT)
    with History.open(site.history) as history:
        decision = history.only().decisions.newest(1)[0]
        (event_record,) = [n for n in history.only().event_records.all() if n.id == "s"]
    assert (decision.event, decision.category) == ("suspicion-raised", "gpu")
    assert 0.5 <= decision.p < 1
    assert (
        "gpu 80%, host 20%), by watch, confidence 0.50"
        in event_record_happening(event_record).summary
    )


def test_suspicions_recorded_without_a_mix_can_still_be_read():
    old = '{"category":"gpu","nodes":["n1"],"reason":"","source":"watch"}'
    event = codec.load(SuspicionRaised, old)
    assert (event.confidence, event.shares) == (None, {"gpu": 1.0})
    owed = codec.load(Owed, '{"about":"gpu","at":1.0,"debt":"suspicion","id":"s"}')
    assert (owed.confidence, owed.mix) == (1.0, {})


# --- running jobs, watched -------------------------------------------------------------------


class PlantedTelemetry:
    """Of jobs on the nodes of the site: one node's CPU falls. A job may have none at all."""

    def __init__(self, node, without=()):
        self.node, self.without, self.asked = node, without, []

    def pull(self, nodes, until, last_s):
        self.asked.append(until)
        if set(nodes) & set(self.without):
            raise TelemetryError("the Prometheus at http://nowhere:9090 does not answer")
        seen = replace(healthy(len(nodes)), nodes=tuple(nodes), start=until - 899)
        if self.node in nodes:
            seen.values[1, nodes.index(self.node), 500:] = 2.0
        return PulledTelemetry(telemetry=seen)


def by(source):
    return Watching(
        source=source, model=StandIn(), categories=configs.watching("default").categories
    )


def begin(site, job, *nodes, at=None):
    job_of_nodes = JobAllocated(nodes=nodes, duration_s=86_400, job=job)
    site.tell(job_of_nodes, at=at or site.now - 3600)


def event_records(site):
    with History.open(site.history) as history:
        told = history.only().event_records.all()
        return [
            event_record for event_record in told if isinstance(event_record.event, SuspicionRaised)
        ]


def test_a_suspicion_from_a_running_job_leads_to_a_verdict_and_changes_the_hit_rate(site):
    """The whole way, twice: a healthy node that looked odd is cleared, and its source is believed
    less; a bad one is drained."""
    good = _good(site)
    nodes = tuple(site.owner.nodes)
    site.owner.jobs["17"] = SeenJob(
        nodes=nodes[:4], started_at=site.now - 3600, ends_by=site.now + 1e6, owner="ann"
    )
    site.keep(**ACT)
    source = PlantedTelemetry(good)
    once = watch_jobs(site.keeping(**ACT), site.caller, watching=by(source))
    assert [(look.job, look.suspects, look.trouble) for look in once.looks] == [("17", 1, "")]
    (event_record,) = event_records(site)
    assert (event_record.event.nodes, event_record.event.category) == ((good,), "gpu")
    assert event_record.event.confidence == pytest.approx(1 / 2)
    assert "cpu_use 2 against 4" in event_record.event.reason

    fleet = site.keep(**ACT)
    assert fleet.lives[good].state is State.SUSPECT  # its job goes on
    site.later(480)
    watch_jobs(site.keeping(**ACT), site.caller, watching=by(source))
    assert len(event_records(site)) == 1  # it is suspected already

    del site.owner.jobs["17"]
    site.keep(**ACT)
    assert site.keep(**ACT).lives[good].state is State.IN_SERVICE
    assert good not in site.drained

    site.owner.jobs["18"] = SeenJob(
        nodes=nodes[:4], started_at=site.now - 3600, ends_by=site.now + 1e6, owner="ann"
    )
    site.keep(**ACT)
    watch_jobs(site.keeping(**ACT), site.caller, watching=by(source))
    assert event_records(site)[-1].event.confidence == pytest.approx(1 / 3)
    assert len(event_records(site)) == 2
    last = watch_jobs(site.keeping(**ACT), site.caller, watching=by(source))
    (sentence,) = sentences_on_rates(last.rates)
    assert "confirmed 0 and refuted 1; the next is 33% likely to be right" in sentence


class WaitingForEachOther(PlantedTelemetry):
    """GPUs are busy, and since the middle of what is known nothing crosses the network."""

    def __init__(self, stops_at):
        super().__init__("")
        self.stops_at = stops_at

    def pull(self, nodes, until, last_s):
        seen = super().pull(nodes, until, last_s).telemetry
        network = replace(seen.metrics[1], name="throughput", family="throughput")
        seen.values[1, :, seen.times >= self.stops_at] = 0.0
        metrics = (seen.metrics[0], network, seen.metrics[2])
        return PulledTelemetry(telemetry=replace(seen, metrics=metrics))


def test_the_watch_reports_a_stalled_job_once(site):
    nodes = tuple(site.owner.nodes)
    begin(site, "a", *nodes)
    source = WaitingForEachOther(site.now - 650)
    for _ in range(2):
        watch_jobs(site.keeping(owner=False), site.caller, watching=by(source))
        site.later(480)
    with History.open(site.history) as history:
        (event_record,) = history.only().event_records.read_kind(JobStalled)
        assert (event_record.event.job, event_record.event.source) == ("a", "watch")
        assert event_record.at == pytest.approx(source.stops_at, abs=1)
        assert event_record.event.nodes == nodes


class SlowlyLess(PlantedTelemetry):
    """Two hours of a job: after 80 minutes one node's CPU is a little less, too little for windows
    of seconds, and plain beside ten minutes of its peers."""

    def __init__(self, node, nodes, start):
        super().__init__(node)
        whole = healthy(len(nodes), 720, step_s=10.0)
        self.whole = replace(whole, nodes=tuple(nodes), start=start)
        self.whole.values[1, nodes.index(node), 480:] -= 8.0

    def pull(self, nodes, until, last_s):
        known = int(np.count_nonzero(self.whole.times <= until))
        so_far = replace(self.whole, values=self.whole.values[:, :, :known])
        return PulledTelemetry(telemetry=so_far.last(last_s))


def test_a_rule_that_needs_an_hour_works_across_looks_of_a_quarter(site):
    nodes = tuple(site.owner.nodes)
    began = site.now
    begin(site, "a", *nodes, at=began)
    watching = by(SlowlyLess(nodes[3], nodes, began))
    watching = replace(
        watching, settings=replace(watching.settings, min_effect=0.2, contrast=False)
    )
    named = {}
    for minutes in range(16, 112, 8):
        site.now = began + 60 * minutes
        watch_jobs(site.keeping(owner=False), site.caller, watching=watching)
        named[minutes] = [event_record.event.nodes for event_record in event_records(site)]
    assert [named[minutes] for minutes in (80, 88, 104)] == [[], [], [(nodes[3],)]]
    (event_record,) = event_records(site)
    assert event_record.event.reason.startswith("job a: cpu_use 31.96 against 39.9")
    with History.open(site.history) as history:
        kept = history.only().looks.details("a")
        suspicion, look = map(json.loads, kept.lines.splitlines())
        assert (suspicion["node"], look["answer"]) == (nodes[3], "named")
        assert f"{nodes[3]}, unlike its 7 peers since" in kept.page
        history.only().looks.forget(["a"])
        assert history.only().looks.details("a") is None


def test_a_failed_look_at_one_job_is_reported_and_other_jobs_are_examined(site):
    nodes = tuple(site.owner.nodes)
    begin(site, "a", *nodes[:4])
    begin(site, "b", *nodes[4:])
    begin(site, "too small for a majority", *nodes[:2])
    source = PlantedTelemetry(nodes[5], without=nodes[:1])
    kept = watch_jobs(site.keeping(owner=False), site.caller, watching=by(source))
    assert [(look.job, look.suspects) for look in kept.looks] == [("a", 0), ("b", 1)]
    assert "does not answer" in kept.looks[0].trouble
    assert len(event_records(site)) == 1


def test_a_job_that_ended_is_looked_at_once_more_up_to_its_end(site):
    nodes = tuple(site.owner.nodes)[:4]
    begin(site, "a", *nodes)
    source = PlantedTelemetry(nodes[1])
    site.tell(JobEnded(nodes=nodes, job="a"))
    with History.open(site.history) as history:
        (ended_at,) = [job.end for job in history.only().jobs.all()]
    for _ in range(2):
        site.later(30)
        kept = watch_jobs(site.keeping(owner=False), site.caller, watching=by(source))
    assert [(look.job, look.job_ended) for look in kept.looks] == [("a", True)]
    assert source.asked == [ended_at]


def test_jobs_are_watched_only_by_policy_and_missing_settings_are_named(site):
    assert watch_jobs(site.keeping(), site.caller) is None
    begin(site, "a", *tuple(site.owner.nodes)[:4])
    with pytest.raises(AnubisError, match=r"no source of telemetry is configured|watch model"):
        watch_jobs(site.keeping(watch="default"), site.caller)


def test_one_process_watches_and_another_begins_none(site):
    begin(site, "a", *tuple(site.owner.nodes)[:4])
    begun = []
    with History.open(site.history) as history, history.only().looks.alone() as is_alone:
        assert is_alone
        watch_jobs(
            site.keeping(), site.caller, lambda: begun.append("x"), by(PlantedTelemetry("n1"))
        )
    assert (begun, event_records(site)) == ([], [])
    watch_jobs(site.keeping(), site.caller, lambda: begun.append("x"), by(PlantedTelemetry("n1")))
    assert begun == ["x"]


# --- clocks that are wrong -----------------------------------------------------------------

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S


@pytest.mark.parametrize("off_s", [YEAR_S, -300.0])
def test_a_turn_by_a_wrong_clock_concludes_nothing_and_leaves_no_trace_in_the_next(site, off_s):
    modes = {**ACT, "test": Mode.PROPOSE}
    before = states(site.keep(**modes))
    site.off_s = off_s
    for _ in range(3):
        fleet = site.keep(**modes)
        assert states(fleet) == before
        assert "nothing is concluded from age" in fleet.doubt
    site.off_s = 0.0
    fleet = site.keep(**modes)
    assert (states(fleet), fleet.doubt) == (before, "")
    assert site.gate(_good(site)) is Judgement.HEALTHY
    site.owner.nodes[_good(site)] = SeenNode(sku="h100", cordon="by hand")
    assert site.keep(**modes).lives[_good(site)].cordon == "by hand", "nobody looked at the fleet"


def test_while_the_clock_is_in_doubt_a_gate_says_go_only_after_a_test(site):
    site.keep(**ACT)
    site.off_s = YEAR_S
    answer = site.asked(_good(site))
    assert answer.answer == "unknown"
    assert "365 days ahead" in sentence(answer)
    assert site.asked(_good(site), may_test=True).answer == "go"
    assert site.asked(site.bad, may_test=True).answer == "no-go"
    site.off_s = 0.0
    assert site.asked(_good(site)).answer == "go"


def test_dates_of_a_wrong_clock_are_corrected_once_the_right_one_has_settled(site):
    site.off_s = YEAR_S
    assert site.keep(owner=False).doubt, "of the first turn: the acceptance kept a reading"
    site.later(SETTLED_S)
    assert set(states(site.keep(owner=False)).values()) >= {State.SUSPECT}, "it is believed"
    site.off_s = 0.0
    assert site.keep(owner=False).doubt
    site.later(SETTLED_S)
    fleet = site.keep(owner=False)
    assert (states(fleet)[_good(site)], fleet.doubt) == (State.IN_SERVICE, "")


def test_a_pass_that_another_machine_dates_a_day_ahead_hides_no_later_defect(site):
    site.keep(**ACT)
    site.mend()
    site.measure(ValidateRequest, caller=site.caller_on("one that is wrong", DAY_S))
    site.keep(**ACT)
    assert states(site.keep(**ACT))[site.bad] is State.OUT, "nothing has happened yet"
    site.describe(slow_share=0.25)
    now_bad = {*plants(configs.cluster(site.cluster).fleet, ["flow"])} - {site.bad}
    site.measure(ValidateRequest)
    assert now_bad <= {n for n, state in states(site.keep(**ACT)).items() if state is State.OUT}


def test_a_test_that_was_run_while_the_clock_was_wrong_counts_as_of_when_it_was(site):
    site.keep(**ACT)
    site.off_s = -YEAR_S
    site.tell(IncidentReported(nodes=(_good(site),), category="gpu"))
    fleet = site.keep(**ACT)
    assert states(fleet)[_good(site)] is State.IN_SERVICE
    site.off_s = 0.0
    assert states(site.keep(**ACT)) == states(fleet)
    assert site.gate(_good(site)) is Judgement.HEALTHY


def test_a_scan_proves_no_node_without_a_keeper(site):
    site.tell(FleetUpgraded(nodes=("n1",)))
    scanned = run_campaign(ScanRequest(cluster=site.cluster), site.caller)
    assert _judged(scanned)["n1"] is Judgement.HEALTHY
    (view,) = nodes(["n1"], cluster=site.cluster, caller=site.caller)
    assert (view.judgement, view.unproven) == (
        Judgement.UNKNOWN,
        "it was upgraded, and no test has cleared it since",
    )
    assert site.gate("n1") is Judgement.UNKNOWN


def test_a_scan_does_not_make_earlier_passes_a_proof_of_a_node_that_returned(site):
    node = _good(site)
    site.keep(**ACT)
    for order in (Order.RETIRE, Order.RETURN):
        site.tell(OperatorSaid(nodes=(node,), order=order))
        assert states(site.keep(test=Mode.PROPOSE))[node] is not State.IN_SERVICE
    run_campaign(ScanRequest(cluster=site.cluster), site.caller)
    assert site.gate(node) is Judgement.UNKNOWN
    assert states(site.keep(test=Mode.PROPOSE))[node] is State.NEW
    site.measure(ValidateRequest, (node,))
    assert states(site.keep(test=Mode.PROPOSE))[node] is State.IN_SERVICE


def report(event):
    return lambda site, node: site.tell(event(nodes=(node,)))


def find_a_bad_link(site, node):
    site.found["link leaf1 - spine1"] = "NETWORK.LINK in a scan"


def set_the_clock_ahead(site, node):
    site.off_s = YEAR_S


@pytest.mark.parametrize(
    ("happen", "answer", "word"),
    [
        (report(partial(IncidentReported, category="gpu")), "unknown", "gpu"),
        (report(partial(OperatorSaid, order=Order.RETIRE)), "no-go", "retired"),
        (report(partial(MaintenancePlanned, begin=1.7e9, end=1.701e9)), "no-go", "maintenance"),
        (report(partial(JobAllocated, duration_s=60.0, job="9")), "unknown", "job 9"),
        (find_a_bad_link, "no-go", "spine"),
        (set_the_clock_ahead, "unknown", "365 days ahead"),
    ],
)
def test_a_gate_hears_all_that_came_during_its_tests(site, monkeypatch, happen, answer, word):
    """Of two nodes, one of which was tested before."""
    node, other = [node for node in site.owner.nodes if node != site.bad][:2]
    happened, site.found = [], {}
    monkeypatch.setattr("anubis.operations.gate._defective_parts", lambda *_: dict(site.found))
    site.keep(**ACT)
    site.tell(FleetUpgraded(nodes=(node,)))
    caller = site.caller

    def wants_stop():
        if not happened:
            happened.append(happen)
            happen(site, node)
        return False

    caller.wants_stop = wants_stop
    terms = Terms(benchmarks=(site.desk.programs,), cluster=site.cluster, suite=site.suite)
    asked = gate(GateRequest((node, other), 3600.0), terms, caller)
    assert happened
    assert asked.is_tested
    assert _judged(asked.campaign) == {node: Judgement.HEALTHY}
    assert asked.answer == answer, sentence(asked)
    assert word in sentence(asked)
    again = gate(GateRequest((node, other), 3600.0, may_test=False), terms, site.caller)
    assert again.answer == answer, "as it says without a test"


def test_a_scan_proves_no_node_and_no_test_brings_back_a_retired_one(site):
    remarks, caller = [], site.caller
    caller.remark = remarks.append
    site.tell(IncidentReported(nodes=("n1", "n2"), category="gpu"))
    site.tell(OperatorSaid(nodes=("n3",), order=Order.RETIRE))
    site.keep(test=Mode.PROPOSE)
    site.later(100)
    scanned = run_campaign(ScanRequest(cluster=site.cluster), caller)
    assert {node.name for node in scanned.view.campaign.plan.nodes}.isdisjoint({"n3"})
    assert "n3 left out: it is retired" in remarks
    remarks.clear()
    plan = plan_campaign(ScanRequest(cluster=site.cluster), caller).plan
    assert {node.name for node in plan.nodes} == {
        node.name for node in scanned.view.campaign.plan.nodes
    }
    assert "n3 left out: it is retired" in remarks
    site.measure(ValidateRequest, ("n2", "n3"))
    with History.open(site.history) as history:
        part = history.only()
        held = objections_in(part, time_in(part, site.caller), None, (site.desk.programs,))
    assert held.unproven == {
        "n1": f"its keeper has yet to test it by suite {site.suite}: incident gpu"
    }
    assert held.out.keys() == {"n3", site.bad}
    assert held.out["n3"] == "it is retired"
