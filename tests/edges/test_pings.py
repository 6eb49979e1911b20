"""The keeper and the agents' pings: plans go out, losses come back, and a bad NIC is suspected."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from telemetry.nic_addresses import Nic
from telemetry.page import AgentServer
from telemetry.pinger import Pinger, read_plan

from anubis.core.errors import TelemetryError
from anubis.core.fabric import RailNic
from anubis.core.history.events import EventRecord, NodeAdded, PartSuspected
from anubis.core.keep.keeping_policy import KeepingPolicy, PingTask
from anubis.core.keep.periodic_tasks import PeriodicTask, PeriodicTaskEnd
from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.keep import keep
from anubis.operations.keeping import ChosenPolicy, Keeping
from anubis.operations.links import links_at_a_glance
from anubis.operations.periodic_tasks import do_periodic_tasks
from anubis.operations.tell import note
from anubis.readers.telemetry.agent_pings import read_pings
from anubis.report.links import fabric_page
from anubis.store.history import History

NODES = [f"127.0.1.{number}" for number in range(1, 9)]  # each an address, and so a host's name
TOKEN = "a token of the site"
FABRIC = f"""\
summary: four leaves
racks:
  - {{nodes: "{",".join(NODES[:2])}", leaves: leaf1}}
  - {{nodes: "{",".join(NODES[2:4])}", leaves: leaf2}}
  - {{nodes: "{",".join(NODES[4:6])}", leaves: leaf3}}
  - {{nodes: "{",".join(NODES[6:])}", leaves: leaf4}}
links:
  - {{below: "leaf[1-4]", above: spine}}
"""
FIRST, LAST = 60_000_000, 60_000_100


class FakePings:
    """An agent that has pinged for a hundred windows by the plan that it got."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sick = {NODES[1]}  # pings between these nodes and others are lost
        self.plan: dict[str, Any] = {"window_s": 0.0, "flows": []}

    def take_plan(self, document: Any) -> None:
        read_plan(document, {"eth0"})
        self.plan = document

    def report(self) -> dict[str, Any]:
        flows = list(enumerate(self.plan["flows"]))
        ends = [{flow["source"][0], flow["target"][0]} for _, flow in flows]
        bad = [n for n, two in enumerate(ends) if len(two & self.sick) == 1]
        lost = [
            [window, number, 30, 10]
            for number in bad
            for window in (FIRST + 10, FIRST + 40, FIRST + 70)
        ]
        about = {"since": FIRST, "answered": 99, "best_us": 20.0}
        return {
            "pings": 1,
            "node": "whatever",
            "port": 9842,
            "addresses": {"eth0": self.address},
            "window_s": self.plan["window_s"],
            "first": FIRST,
            "last": LAST,
            "asleep": [],
            "flows": [flow | about | {"flow": number} for number, flow in flows],
            "lost": lost,
        }


@pytest.fixture
def agents() -> Iterator[tuple[int, dict[str, FakePings]]]:
    made: dict[str, FakePings] = {}
    with ExitStack() as opened:
        port = 0
        for node in NODES[:-1]:  # that of the last does not run
            made[node] = FakePings(node)
            server = AgentServer((node, port), tuple, lambda since: iter(()), TOKEN, made[node])
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            opened.callback(server.server_close)
            opened.callback(server.shutdown)
        yield port, made


@pytest.fixture
def home(agents, near, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    (tmp_path / "token").write_text(TOKEN)
    files = {
        "clusters/bed.yaml": f"executor: ray\nstart: ssh\nnodes: {','.join(NODES)}\n"
        "topology: fabric.yaml\n",
        "clusters/fabric.yaml": FABRIC,
        "telemetry/bed.yaml": "summary: bed\nbased_on: default\n"
        f"agents: {{port: {agents[0]}, token_file: {tmp_path}/token, deadline_s: 60}}\n",
    }
    for name, text in files.items():
        file = tmp_path / "configs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def pinging(home: Path) -> tuple[Caller, Callable[[], str]]:
    """A keeper of these nodes, and what the next periodic pings say."""
    clock = itertools.count(1.8e9, 600.0)
    caller = Caller(history_url=f"sqlite:///{home}/h.db", clock=lambda: next(clock))
    policy = KeepingPolicy(pings=PingTask(every="10m", telemetry="bed", category="nic"))
    keeping = Keeping(
        chosen=ChosenPolicy(policy=policy),
        cluster="bed",
    )
    keep(keeping, caller)
    with History.open(caller.history_url) as history:
        part = history.cluster("bed")
        note([EventRecord(id="new", at=1.8e9, event=NodeAdded(nodes=tuple(NODES)))], part)
    keep(keeping, caller)

    def ping() -> str:
        states = {state.task: state for state in do_periodic_tasks(keeping, caller)}
        last = states[PeriodicTask.PINGS].last
        assert last.end is PeriodicTaskEnd.DONE
        return last.sentence  # type: ignore[no-any-return]

    return caller, ping


def test_the_keeper_plans_pings_and_suspects_the_node_that_loses_them_repeatedly(
    home, agents, near
):
    caller, ping = pinging(home)
    assert ping().startswith("no flow was measured so far; 1 of 8 agents did not answer")
    pinged = {
        (flow["source"][0], flow["target"][0], flow["address"])
        for one in agents[1].values()
        for flow in one.plan["flows"]
    }
    assert pinged
    assert all(target == address for _, target, address in pinged)
    assert all(NODES[-1] not in ends for ends in pinged)  # where it could be pinged is not known
    second = ping()
    assert second.startswith(f"node {NODES[1]} or its NIC: loses pings in 3 episodes since 2027-")
    ping()
    with History.open(caller.history_url) as history:
        (suspicion,) = history.cluster("bed").keeping.suspicions()
    assert (suspicion.node, suspicion.source, suspicion.category) == (NODES[1], "pings", "nic")
    by_hand = near.run("watch", "--pings", "--cluster", "bed", "--telemetry", "bed", "--json")
    part, seen = by_hand.lines
    assert (by_hand.code, part["type"], part["verdict"]) == (1, "part", "defective")
    assert {one["name"] for one in part["parts"]} == {NODES[1]}
    assert (seen["type"], list(seen["silent"])) == ("pings", [NODES[-1]])
    assert near.run("watch", "--pings", "--cluster", "bed", "--tell").code == 64


def test_a_link_that_flaps_is_an_event_and_on_the_page_and_no_node_is_suspected(home, agents):
    caller, ping = pinging(home)
    for agent in agents[1].values():
        agent.sick = set(NODES[2:4])
    ping()
    for _ in range(3):
        assert ping().startswith("link leaf2 - spine: loses pings in 3 episodes since 2027-")
    with History.open(caller.history_url) as history:
        part = history.cluster("bed")
        assert part.keeping.suspicions() == []
        (record,) = part.event_records.read_kind(PartSuspected)
    assert (record.event.part, record.event.source) == ("link leaf2 - spine", "pings")
    assert [{p.name, p.other} for p in record.event.parts] == [{"leaf2", "spine"}]
    (between,) = links_at_a_glance(caller)
    (suspect,) = between.suspects
    assert (suspect.subject, suspect.judgement) == ("link leaf2 - spine", Judgement.UNKNOWN)
    page = fabric_page([between], as_of=1.8e9)
    assert "link leaf2 - spine" in page
    assert "loses pings in 3 episodes" in page
    assert "<b>1</b> suspected" in page.partition("</h1>")[0]


def test_a_report_of_an_agent_is_read_and_nonsense_is_refused():

    one = Pinger("a", TOKEN, 0, {"eth0": Nic("lo", "127.0.0.1")})
    target = {"target": ["b", "0"], "address": "127.0.0.2", "port": 9}
    flow = {"source": ["a", "0"], "device": "eth0"} | target
    one.take_plan({"window_s": 30.0, "every_s": 1.0, "flows": [flow]})
    body = json.dumps(one.report()).encode()
    one.close()
    answer = read_pings("here", body)
    assert answer.report.flows[0].ends == (RailNic("here", "0"), RailNic("b", "0"))
    assert answer.targets == {RailNic("b", "0"): ("127.0.0.2", 9)}
    for text in (b"", b"[]", b"{}", b"\xff", body.replace(b'"first": ', b'"first": "x", "f": ')):
        with pytest.raises(TelemetryError):
            read_pings("here", text)
