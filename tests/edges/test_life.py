"""The life of one node, under owners that are stand-ins and on a fleet in memory.

`scripts/studies/show-life` plays the same steps on hosts: under a real Slurm, under a real
Kubernetes API server, and by a site's own commands.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from anubis.config import catalog
from anubis.core.amounts import HOUR_S
from anubis.core.history.events import NodeAdded, RepairBegun, RepairDone
from anubis.core.keep.commands import Prove
from anubis.core.records import Judgement
from anubis.operations.requests import AcceptRequest
from anubis.reach.orchestrators.hosts import HostsOrchestrator, HostsSettings
from anubis.reach.orchestrators.kubernetes import KubernetesOrchestrator
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from anubis.reach.orchestrators.orchestrator import NodeSkus
from anubis.report.keep import sentence
from tests.edges.desk import FLOW, Desk
from tests.edges.kubernetes_server import NODES, FakeApi, api_server, kubeconfig
from tests.edges.life import Story, live
from tests.edges.site_hosts import SiteHosts
from tests.edges.test_keeping import ACT, Site, fire

EVENTS = {"node-added": NodeAdded, "repair-begun": RepairBegun, "repair-done": RepairDone}
PAIR = FLOW.replace('"flow"', '"pair"').replace(
    '"scope": "node"', '"scope": "pair", "needs": {"min_nodes": 2}'
)


class KeptFleet:
    """Eight nodes in memory, of which the slow one is yet to be added."""

    def __init__(self, desk: Desk) -> None:
        desk.program("pair.sh", PAIR)
        self.site = Site(desk)
        self.site.suite = desk.suite(desk.flow(), {**desk.flow(), "benchmark": "pair", "rounds": 1})
        self.history = self.site.history
        self.new = self.site.bad
        self.proven = [f"n{number}" for number in range(1, 9) if f"n{number}" != self.new]
        self.by_hand = self.proven[1]

    def kept_by(self, owner, orchestrator):
        self.owner = owner
        self.site.owner = orchestrator(NodeSkus(otherwise="h100"), self.site.later)

    def accept(self):
        result = self.site.measure(AcceptRequest, self.proven)
        verdicts = result.view.assessment.nodes
        return [verdict.node for verdict in verdicts if verdict.judgement is Judgement.HEALTHY]

    def keep(self):
        self.fleet = self.site.keep(**ACT, spares={"h100": 1})
        return {node: life.state.value for node, life in self.fleet.lives.items()}

    def tell(self, event, node):
        self.site.tell(EVENTS[event](nodes=(node,)))

    def alert(self, node, *, fires):
        fire(self.site, node, **({} if fires else {"ended": self.site.now}))

    def mend(self):
        self.site.mend()

    def swaps(self):
        commands = [action.command for action in self.fleet.actions]
        return [sentence(command) for command in commands if command.kind == "swap"]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told) -> KeptFleet:
    monkeypatch.setattr(catalog, "describe_all", told)
    desk = Desk(tmp_path)
    monkeypatch.setenv("ANUBIS_HOME", str(desk.home))
    return KeptFleet(desk)


class MockedKubernetes:
    """What `kubectl` does and shows, on a mocked API server."""

    name = "Kubernetes"

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def add(self, node):
        self._api.put_node(node)

    def shown(self, node):
        document = self._api.node(node)
        kept = [entry["manager"] for entry in document["metadata"].get("managedFields", ())]
        return f"{document['spec'] or 'takes jobs'} by {kept}: {self.reason(node)}"

    def reason(self, node):
        return (
            self._api.node(node)["metadata"].get("annotations", {}).get("anubis-fleet/cordon", "")
        )

    def takes_jobs(self, node):
        return "unschedulable" not in self._api.node(node)["spec"]

    def cordon(self, node):
        self._api.write(node, "kubectl-cordon", spec={"unschedulable": True})

    def runs_a_job(self, node):
        self._api.put_pod("train", node)
        self._api.put_pod("train", node, status={"phase": "Succeeded"})
        return "it ran"


@pytest.mark.long
def test_a_node_lives_on_a_mocked_kubernetes(fleet, tmp_path):
    with api_server() as api:
        for node in fleet.proven:
            api.put_node(node, metadata={"labels": {"rack": "r7"}})
        settings = KubernetesSettings(
            kind="kubernetes", kubeconfig=kubeconfig(tmp_path, api.url_base)
        )
        fleet.kept_by(MockedKubernetes(api), partial(KubernetesOrchestrator, settings))
        live(fleet, story := Story())
        events = [event["reason"] for event in api.events()]
        racks = {api.node(node)["metadata"]["labels"]["rack"] for node in fleet.proven}
    assert not story.wrong
    assert len(story.rows) == 9
    assert events.count("AnubisReleased") == 6  # two spares, a repaired node, after three alerts
    assert racks == {"r7"}


@pytest.mark.long
def test_a_deleted_node_and_one_that_is_not_ready_are_no_spares_and_pass_no_gate(fleet, tmp_path):
    with api_server() as api:
        for node in fleet.proven:
            api.put_node(node)
        config = kubeconfig(tmp_path, api.url_base)
        settings = KubernetesSettings(kind="kubernetes", kubeconfig=config)
        fleet.kept_by(MockedKubernetes(api), partial(KubernetesOrchestrator, settings))
        fleet.accept()
        for _ in range(3):
            states = fleet.keep()
        (spare,) = (node for node, state in states.items() if state == "spare")
        serving = next(node for node, state in states.items() if state == "in-service")
        assert {fleet.site.gate(node) for node in (spare, serving)} == {Judgement.HEALTHY}
        del api.objects[NODES, None, spare]
        api.write(serving, "x", status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
        for _ in range(3):
            fleet.site.later(10 * HOUR_S)
            states = fleet.keep()
            assert {states[node] for node in (spare, serving)} == {"lost"}
            assert {fleet.site.gate(node) for node in (spare, serving)} == {Judgement.UNKNOWN}
        assert [state for node, state in states.items() if state == "spare"] == ["spare"]
        api.put_node(spare)
        fleet.site.later()
        fleet.keep()
        tested = [
            action.command for action in fleet.fleet.actions if isinstance(action.command, Prove)
        ]
        assert spare in tested[-1].owed, "it may be another machine"


@pytest.mark.long
def test_a_node_lives_on_hosts_by_commands_of_a_site(fleet, tmp_path):
    hosts = SiteHosts(tmp_path / "hosts")
    for node in fleet.proven:
        hosts.add(node)
    settings = HostsSettings(kind="hosts", nodes="n[1-8]", **hosts.commands())
    fleet.kept_by(hosts, partial(HostsOrchestrator, settings))
    live(fleet, story := Story())
    assert not story.wrong
    assert len(story.rows) == 9
