"""The use cases without a command line: a request in, a value out; nothing is printed or exited."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from anubis import operations
from anubis.config import catalog, configs
from anubis.core.errors import CriteriaError, Stopped, UsageError
from anubis.core.history.events import FleetUpgraded, IncidentReported, NodeAdded
from anubis.core.history.status import Incident
from anubis.core.records import CampaignKind, Judgement
from anubis.core.select.decision import Action
from anubis.lab.simulation.simulated_fleet import plants
from anubis.operations.caller import Caller
from anubis.operations.campaigns import plan_campaign, resume_campaign, run_campaign
from anubis.operations.gate import gate
from anubis.operations.history import timeline
from anubis.operations.requests import (
    AcceptRequest,
    CampaignRequest,
    GateRequest,
    LocateRequest,
    ScanRequest,
    Terms,
    ValidateRequest,
)
from anubis.operations.select import select
from anubis.reach.executors.simulated import SimulatedExecutor
from anubis.store.history import History
from tests.edges.desk import Desk
from tests.patience import eventually


@pytest.fixture(autouse=True)
def silence(capfd):
    """Operations print nothing, and leave signals to the process that calls them."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    yield
    assert capfd.readouterr() == ("", "")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.fixture
def desk(tmp_path, monkeypatch, told) -> Desk:
    monkeypatch.setattr(catalog, "describe_all", told)
    desk = Desk(tmp_path)
    monkeypatch.setenv("ANUBIS_HOME", str(desk.home))
    return desk


@pytest.fixture
def url(desk) -> str:
    """A history elsewhere than under $ANUBIS_HOME."""
    return f"sqlite:///{desk.folder / 'elsewhere.sqlite'}"


class Listener(Caller):
    """Keeps all remarks, and wants to stop after so many executions."""

    def __init__(self, enough: int | None = None, **settings) -> None:
        super().__init__(**settings)
        self.enough, self.done = enough, 0
        self.heard: list[object] = []

    def decided(self, decision) -> None:
        self.heard.append(decision)

    def concluded(self, view) -> None:
        self.heard.append(view.campaign.id)

    @contextmanager
    def following(self, campaign, parallel_nodes):
        self.heard.append(campaign)

        def observe(machine, events) -> None:
            self.done = machine.done

        yield observe

    def wants_stop(self) -> bool:
        return self.enough is not None and self.done >= self.enough


def flow_on(desk, record, *, repeats=1, **fleet) -> CampaignRequest:
    return record(
        cluster=desk.fleet(**fleet),
        suite=desk.suite(desk.flow(repeats=repeats)),
        benchmarks=(desk.programs,),
    )


# --- campaigns -----------------------------------------------------------------------------


def test_accept_names_the_planted_node_and_writes_its_criteria(desk, url):
    request = flow_on(desk, AcceptRequest, slow_share=0.125)
    (planted,) = plants(configs.cluster(request.cluster).fleet, ["flow"])
    result = run_campaign(request, caller=Caller(history_url=url))
    assert result.judgement is Judgement.DEFECTIVE
    assert result.view.assessment.named(Judgement.DEFECTIVE) == (planted,)
    assert [file.parent.name for file in result.criteria_files] == ["tiny"]
    assert all(file.is_file() for file in result.criteria_files)
    assert not desk.history.exists()
    with History.open(url) as history:
        assert history.campaigns.latest(finished=True) == result.view.campaign.id


def test_validate_judges_by_the_criteria_of_accept_and_writes_nothing(desk, url):
    with pytest.raises(CriteriaError, match="no criteria for suite"):
        run_campaign(flow_on(desk, ValidateRequest), caller=Caller(history_url=url))
    accepted = run_campaign(flow_on(desk, AcceptRequest), caller=Caller(history_url=url))
    validated = run_campaign(flow_on(desk, ValidateRequest), caller=Caller(history_url=url))
    assert validated.judgement is Judgement.HEALTHY
    assert validated.criteria_files == ()
    (learned,), (used,) = accepted.view.criteria, validated.view.campaign.criteria
    assert used.provenance == learned.provenance


def test_the_answer_is_given_before_the_nodes_are_let_go(desk, url, monkeypatch):
    listener = Listener(history_url=url)
    monkeypatch.setattr(SimulatedExecutor, "close", lambda self: listener.heard.append("let go"))
    result = run_campaign(flow_on(desk, AcceptRequest), listener)
    assert listener.heard[-2:] == [result.view.campaign.id, "let go"]


def test_a_plan_runs_nothing(desk):
    request = flow_on(desk, AcceptRequest, repeats=3)
    planned = plan_campaign(request)
    assert [node.name for node in planned.plan.nodes] == [f"n{i}" for i in range(1, 9)]
    assert planned.coverage is None
    assert not desk.home.exists()


def test_a_stopped_campaign_keeps_its_measurements_and_resume_does_the_rest(desk, url):
    request = AcceptRequest(
        suite=desk.suite(desk.spin(waits_at=0)),  # six times, on this machine
        benchmarks=(desk.programs,),
    )
    with pytest.raises(Stopped, match="go on with: anubis accept --resume --campaign accept-"):
        run_campaign(request, Listener(enough=2, history_url=url))
    begun = desk.began()
    assert eventually(lambda: not desk.alive())  # what was killed takes a moment to be gone
    with History.open(url) as history:
        name = history.campaigns.latest(finished=False)
        kept = history.executions.read(name)
    assert 2 <= len(kept) < 6

    result = resume_campaign(CampaignKind.ACCEPT, caller=Caller(history_url=url))
    steps = [execution.step.id for execution in result.view.executions]
    assert result.view.campaign.id == name
    assert steps[: len(kept)] == [execution.step.id for execution in kept]
    assert len(steps) == len(set(steps)) == 6
    assert desk.began() == begun + 6 - len(kept)
    with pytest.raises(UsageError, match="there is nothing to resume: no accept was interrupted"):
        resume_campaign(CampaignKind.ACCEPT, caller=Caller(history_url=url))


def test_the_example_in_the_documentation_of_operations_runs(desk):
    smaller = desk.home / "configs" / "clusters" / "simulated.yaml"  # goes before the shipped one
    smaller.parent.mkdir(parents=True)
    smaller.write_text(Path(desk.fleet()).read_text())
    lines = [line[4:] for line in operations.__doc__.splitlines() if line[:4] == "    "]
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    nodes = scope["result"].view.assessment.nodes
    assert {node.node for node in nodes} == {f"n{i}" for i in range(1, 9)}


# --- what is decided -----------------------------------------------------------------------


@pytest.fixture
def fleet(desk, url):
    """Eight simulated nodes that were accepted just now."""
    run_campaign(flow_on(desk, AcceptRequest), caller=Caller(history_url=url))
    desk.terms = Terms(
        suite=str(desk.folder / "tiny.yaml"),
        benchmarks=(desk.programs,),
        cluster=str(desk.folder / "fleet.yaml"),
    )
    return desk


def gate_of(desk, *nodes, caller):
    return gate(GateRequest(nodes, 86400.0), desk.terms, caller)


def executions(desk) -> int:
    with sqlite3.connect(desk.folder / "elsewhere.sqlite") as raw:
        return raw.execute("SELECT count(*) FROM executions").fetchone()[0]


def test_select_dates_a_decision_by_the_clock_it_is_given_and_keeps_it(fleet, url):
    decision = select(
        NodeAdded(nodes=("new",)), fleet.terms, Caller(history_url=url, clock=lambda: 2e9)
    )
    assert (decision.at, decision.action) == (2e9, Action.VALIDATE)
    with History.open(url) as history:
        assert history.only().decisions.newest() == [decision]


def test_a_gate_reports_its_decision_before_it_tests(fleet, url):
    now = time.time()
    with History.open(url) as history:
        history.only().incidents.add(
            Incident(node="n3", category="psu", start=now + i, end=now + i + 0.5) for i in (1, 2, 3)
        )
    before, listener = executions(fleet), Listener(history_url=url, clock=lambda: now + 60)
    result = gate_of(fleet, "n3", "n4", caller=listener)
    decision, campaign, over = listener.heard
    assert decision == result.decision
    assert over == campaign.id  # told at once, whatever becomes of those that follow
    assert [node.name for node in campaign.plan.nodes] == ["n3"]
    assert executions(fleet) == before + 1
    assert (result.answer, result.is_tested, result.unknown) == ("go", True, [])


@pytest.mark.parametrize(
    "event",
    [
        NodeAdded(nodes=("n3",)),
        FleetUpgraded(nodes=("n3",), criteria="learned"),
        IncidentReported(nodes=("n3",), category="psu"),
    ],
    ids=lambda event: event.kind,
)
def test_a_gate_knows_of_events_about_its_nodes_until_they_pass(fleet, url, event):
    caller = Caller(history_url=url)
    assert gate_of(fleet, "n3", "n4", caller=caller).decision.action is Action.SKIP
    select(event, fleet.terms, caller)
    decision = gate_of(fleet, "n3", "n4", caller=caller).decision
    assert [test.nodes for test in decision.tests] == [("n3",)]
    assert any(sentence.startswith("a defect is presumed on n3") for sentence in decision.assumed)
    assert gate_of(fleet, "n3", "n4", caller=caller).decision.action is Action.SKIP
    (kept,) = (
        happening for happening in timeline(["n3"], caller=caller) if happening.kind == "event"
    )
    assert kept.summary.startswith(event.kind)


def test_a_gate_runs_nothing_for_a_node_that_is_out_of_service(fleet, url):
    soon = time.time() + 3600
    with History.open(url) as history:
        history.only().incidents.add([Incident(node="n3", category="psu", start=1e9, end=soon)])
    before = executions(fleet)
    result = gate_of(fleet, "n3", "n4", caller=Caller(history_url=url))
    assert (result.answer, result.judgement) == ("no-go", Judgement.DEFECTIVE)
    assert (result.is_tested, result.campaign, executions(fleet)) == (False, None, before)
    assert (list(result.unfit), result.named(Judgement.HEALTHY)) == (["n3"], ["n4"])


@pytest.mark.parametrize(
    ("record", "wishes"),
    [
        (ValidateRequest, {"topology": "example"}),
        (ValidateRequest, {"groups": "pairs"}),
        (AcceptRequest, {"criteria": Path("criteria")}),
        (LocateRequest, {"over_s": 60.0}),
    ],
)
def test_a_request_has_no_field_that_its_verb_cannot_use(record, wishes):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        record(**wishes)


def test_counters_without_a_topology_are_refused_if_only_a_topology_gives_a_fabric():
    with pytest.raises(UsageError, match="this accept measures no fabric"):
        AcceptRequest(over_s=60.0)
    assert AcceptRequest(over_s=60.0, topology="example").crosses_fabric
    assert ScanRequest(over_s=60.0).crosses_fabric
