"""`anubis serve` as its callers meet it: the API, tokens, limits, pages and figures."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
import threading
import time
from base64 import b64encode
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import anyio
import psycopg
import pytest
from jsonschema import Draft202012Validator
from sqlalchemy.exc import OperationalError

from anubis.core.errors import (
    AnubisError,
    StoreError,
    StoreUnreachableError,
    UnknownRecordError,
    UsageError,
)
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import KEPT, Debt, IncidentReported
from anubis.core.history.status import Incident, Job, Repair
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import Cordon, LifeAction, Mode, OpenTicket, Release, Stage, Swap
from anubis.core.keep.life import Life
from anubis.core.keep.periodic_tasks import PeriodicTask
from anubis.operations import tell as telling
from anubis.operations.caller import Caller
from anubis.operations.fleet import Upkeep
from anubis.operations.keep import KeptFleet
from anubis.operations.requests import GateRequest, Terms
from anubis.operations.tell import Telling
from anubis.operations.tokens import make_token, revoke_token
from anubis.service import admission, gate, pages, service_settings, service_state
from anubis.service.app import Actor
from anubis.service.fleet_cache import Board, Snapshot
from anubis.service.gate import GateQuestion, Gates, StartedTests, reply
from anubis.service.keeper_turns import LONGEST_TURN_S, Turns
from anubis.service.metrics import Gauges
from anubis.service.problems import OwnFiles, Refused, status_of
from anubis.service.requester import OpenHistory, Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.service_state import AuditTrail
from anubis.store import claims, database
from anubis.store.database_errors import explain
from anubis.store.keeping import LastTurn
from anubis.store.tokens import AuditEntry
from tests.edges.desk import check_line
from tests.edges.postgresql import ask
from tests.edges.test_exit_codes import kept
from tests.edges.visitor import Visitor, house_of, items, page, problem
from tests.patience import LIMIT_S, eventually

JSON = {"content-type": "application/json"}
ODD = "<script>alert(1)</script>"


def clear_tokens(visitor):
    visitor.admission._read_at = float("-inf")


# --- the documents ----------------------------------------------------------------------------


@pytest.mark.long
def test_answers_follow_the_openapi_document(visitor):
    from tests.edges.openapi import There, troubles  # it takes a second to load

    url = visitor.house.history_url
    token = make_token("tester", ("read", "report"), Caller(history_url=url))
    (campaign,) = items(visitor.ask("/v1/campaigns", token=token))
    answered = set()

    def send(request):
        answer = visitor.ask(
            request.path_url,
            request.method,
            token=token,
            headers=dict(request.headers),
            content=request.body,
        )
        answered.add((request.path_url.partition("?")[0], answer.status_code))
        return answer

    there = There(
        names={"cluster": "fleet", "node": "n1", "campaign": campaign["campaign"]},
        bodies={
            "/v1/gate": {"nodes": ["n[1-2]"], "duration_s": 3600},
            "/v1/events": {"event": "node-added", "nodes": ["n1"], "id": "once"},
        },
    )
    document = visitor.ask("/v1/openapi.json", token=token).json()
    assert list(troubles(document, there, send, examples=2, seed=7)) == []
    assert {("/v1/gate", 200), ("/v1/events", 201)} <= answered
    assert {("/v1/nodes/fleet/n1", 200), ("/v1/campaigns/0", 404)} <= answered


def test_the_api_gives_the_documents_of_the_command_line(fleet, visitor):
    nodes = items(visitor.ask("/v1/nodes"))
    assert nodes == fleet.run("history", "standing", "--json").lines
    assert items(visitor.ask("/v1/nodes?limit=2&offset=3")) == nodes[3:5]
    first = nodes[0]
    path = f"/v1/nodes/{first['cluster']}/{first['node']}"
    assert visitor.ask(path).json() == first
    assert items(visitor.ask(f"{path}/happenings")) == (
        fleet.run("history", "show", first["node"], "--json").lines
    )
    (campaign,) = items(visitor.ask("/v1/campaigns"))
    assert [campaign] == fleet.run("history", "campaigns", "--json").lines
    path = f"/v1/campaigns/{campaign['campaign']}"
    assert visitor.ask(path).json() == campaign
    assert items(visitor.ask(f"{path}/report")) == fleet.run("report", "--json").lines
    assert items(visitor.ask("/v1/nodes?judgement=defective")) == []


def test_an_absent_resource_is_a_problem_document(visitor):
    assert 'knows no node "n99"' in problem(visitor.ask("/v1/nodes/prod/n99"), 404)
    assert 'campaign "c99" is not in' in problem(visitor.ask("/v1/campaigns/c99"), 404)
    problem(visitor.ask("/v1/nowhere"), 404)
    problem(visitor.ask("/v1/nodes?limit=0"), 422)


def test_a_browser_gets_a_page_with_the_ways_on_if_a_page_cannot_be_shown(visitor):
    browser = {"accept": "text/html,*/*;q=0.8"}
    absent = visitor.ask("/nodes/prod/n99", headers=browser)
    assert (absent.status_code, absent.headers["content-type"]) == (404, pages.HTML)
    assert "<h1>The history knows no node &#34;n99&#34;" in absent.text
    assert 'href="/tickets"' in absent.text
    assert "refresh" not in absent.headers, "it will not be there later"
    problem(visitor.ask("/v1/nodes/prod/n99", headers=browser), 404)

    async def late(*_):
        raise Refused(503, "ask again")

    visitor.house.overviews.read = late
    unready = visitor.ask("/tickets", headers=browser)
    assert (unready.status_code, unready.headers["refresh"]) == (503, "20")
    assert "<h1>Ask again</h1>" in unready.text


def test_a_gate_is_answered_at_once_and_kept_as_a_decision(visitor):
    asked = {"nodes": ["n[1-2]"], "duration_s": 3600}
    answer = visitor.ask("/v1/gate", "POST", json=asked)
    assert answer.status_code == 200, answer.text
    check_line(answer.json())
    assert answer.json()["answer"] == "go"
    visitor.house.board._renew()
    (decision,) = items(visitor.ask("/v1/decisions"))
    assert decision["nodes"] == ["n1", "n2"]
    text = visitor.ask("/metrics").text
    assert 'anubis_gate_answers_total{answer="go"} 1.0' in text
    assert "anubis_gate_duration_seconds_count 1.0" in text


def test_a_gate_for_a_job_is_answered_alike_by_both_front_ends(fleet, visitor):
    """On a node on which another job runs, no gate says go, tested or not."""
    running = Job(id="7", nodes=("n2",), start=time.time() - 60, planned_s=3600)
    visitor.house.history.only().jobs.add([running])
    asked = {"nodes": ["n[1-2]"], "duration_s": 60}
    words = ("gate", "n[1-2]", "--duration", "60s", "--no-tests", "--suite", fleet.where["suite"])
    for job, expected in (("8", "unknown"), ("7", "go"), ("8", "unknown"), ("7", "unknown")):
        answer = visitor.ask("/v1/gate", "POST", json={**asked, "job": job}).json()
        printed = fleet.ask(*words, "--job", job, "--json").summary
        known = {name: cell for name, cell in answer.items() if name != "remaining"}
        assert known == {name: printed[name] for name in known}
        assert (answer["answer"], [*answer["busy"]]) == (expected, ["n2"] * (job != "7"))
        if expected == "go":
            assert fleet.run("tell", "node-added", "n2", "--later").code == 0  # it was never tested


def test_the_job_that_its_orchestrator_placed_does_not_block_its_own_gate(visitor, tmp_path):
    """A pod asks from the node that Kubernetes gave it, where it is a running job already."""
    running = Job(id="ml/Job/train@1a2b3c4d", nodes=("n2",), start=time.time() - 9, planned_s=60)
    visitor.house.history.only().jobs.add([running])
    asked = {"nodes": ["n2"], "duration_s": 60}
    assert visitor.ask("/v1/gate", "POST", json=asked).json()["answer"] == "unknown"
    file = tmp_path / "elsewhere.yaml"
    file.write_text("{name: fleet, executor: ray, orchestrator: kubernetes}")
    settings = replace(visitor.house.settings, files={"fleet": str(file)})
    answer = Visitor(replace(visitor.house, settings=settings)).ask("/v1/gate", "POST", json=asked)
    assert (answer.json()["answer"], answer.json()["busy"]) == ("go", {})


def test_a_gate_of_the_service_writes_only_through_the_one_writer(fleet, visitor):
    terms = Terms(suite=fleet.where["suite"], benchmarks=fleet.where["benchmarks"])
    url = visitor.house.history_url
    question = GateQuestion(
        history_url=url,
        token="",
        request=GateRequest(("n1",), 60.0),
        terms=terms,
    )
    decisions = visitor.house.history.only().decisions
    answered = reply(question)
    assert decisions.newest() == []
    assert answered.decision.cluster == visitor.house.history.only().cluster
    visitor.ask("/v1/gate", "POST", json={"nodes": ["n1"], "duration_s": 60})
    (kept,) = decisions.newest()
    assert (kept.nodes, kept.cluster) == (("n1",), answered.decision.cluster)


def test_a_token_of_a_given_secret_is_entered_once(fleet, visitor, tmp_path):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    words = ("token", "make", "gate", "--scope", "read", "--secret-file", str(file))
    for _ in range(2):
        made = fleet.run(*words)
        assert (made.code, made.out) == (0, "")
    secret = file.read_text().strip()
    assert visitor.ask("/v1/nodes", token=secret).status_code == 200
    assert [token.name for token in visitor.house.history.tokens.all()] == ["gate"]
    assert "take another name" in fleet.run(*words[:4], "act", *words[5:]).err
    revoke_token("gate", of(fleet))
    assert "take another name" in fleet.run(*words).err
    for text in ("", "short", "a secret with spaces that is long enough"):
        file.write_text(text)
        assert fleet.run(*words).code == 64


def test_a_gate_that_would_have_to_test_states_it_and_needs_the_scope_act(
    fleet, visitor, monkeypatch
):
    begun = []
    monkeypatch.setattr(StartedTests, "start", lambda self, words, url, now: begun.append(words))
    visitor.house.history.only().incidents.add(
        [Incident(node="n1", category="gpu", start=time.time() - 0.002, end=time.time() - 0.001)]
    )
    asked = {"nodes": ["n1"], "duration_s": 86400, "job": "7"}
    answer = visitor.ask("/v1/gate", "POST", json=asked).json()
    assert (answer["answer"], answer["needs"]) == ("unknown", ["flow"])
    asked["start_tests"] = True
    assert 'none may "act"' in problem(visitor.ask("/v1/gate", "POST", json=asked), 403)
    secret = make_token("ops", ("read", "act"), of(fleet))
    clear_tokens(visitor)
    answer = visitor.ask("/v1/gate", "POST", json=asked, token=secret)
    assert (answer.status_code, answer.json()["needs"]) == (202, ["flow"])
    ((verb, nodes, *options),) = begun
    assert (verb, nodes) == ("gate", "n1")
    assert options[options.index("--duration") + 1] == "86400s"
    assert "--job=7" in options
    assert ("ops", "tests on n1") in [(e.who, e.path[:11]) for e in visitor.told()]


def of(desk):
    return Caller(history_url=str(desk.history))


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("{", "the body is no JSON"),
        ("[]", "the body is no table"),
        ('{"nodes": ["n1"]}', 'the key "duration_s" is missing'),
        ('{"nodes": "n1", "duration_s": 60}', '"nodes": expected a list'),
        ('{"nodes": ["n1"], "duration_s": -1}', "a job of -1 s"),
        ('{"nodes": ["n1"], "duration_s": 60, "node": 1}', 'unknown key "node"'),
        ('{"nodes": [], "duration_s": 60}', "names no node"),
        ('{"nodes": ["n1"], "duration_s": 60, "cluster": "../../etc/x.yaml"}', "cluster"),
        ('{"nodes": ["@/etc/passwd"], "duration_s": 60}', "@/etc/passwd"),
    ],
)
def test_a_gate_that_makes_no_sense_gets_one_sentence(empty, body, complaint):
    answer = empty.ask("/v1/gate", "POST", content=body, headers=JSON)
    assert complaint in problem(answer, 400)


def test_an_upgrade_under_a_running_service_is_named_as_the_cause_of_errors(
    visitor, fleet, tmp_path
):
    module = tmp_path / "anubis" / "old.py"
    module.parent.mkdir()
    module.write_text("")
    visitor = Visitor(replace(visitor.house, own_files=OwnFiles(module.parent)))
    asked = {"nodes": ["n1"], "duration_s": 60}
    Path(fleet.where["suite"]).write_text("a_key_of_tomorrow: 1")
    assert "restart" not in problem(visitor.ask("/v1/gate", "POST", json=asked), 400)
    module.write_text("VERSION = 2")
    detail = problem(visitor.ask("/v1/gate", "POST", json=asked), 503)
    assert "restart the service; until then: " in detail
    assert 'unknown key "a_key_of_tomorrow"' in detail
    asked["nodes"] = []  # what the request has wrong is still its own
    assert "restart" not in problem(visitor.ask("/v1/gate", "POST", json=asked), 400)


ALERT = {
    "receiver": "anubis",
    "status": "firing",
    "groupLabels": {"alertname": "GpuFellOff"},
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "GpuFellOff", "node": "n3", "severity": "critical"},
            "annotations": {"summary": "a GPU is gone"},
            "startsAt": "2026-11-20T08:00:00.123456789Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": "b1",
        },
        {"labels": {"alertname": "Watchdog"}, "startsAt": "2026-11-20T08:00:00Z", "endsAt": ""},
    ],
}


def test_an_alert_is_an_incident_from_when_it_fires_until_it_is_resolved(fleet, visitor):
    secret = make_token("alertmanager", ("report",), of(fleet))
    taken = visitor.ask("/v1/alerts", "POST", json=ALERT, token=secret)
    assert taken.status_code == 200, taken.text
    check_line(taken.json())
    assert taken.json()["categories"] == {"GpuFellOff": 1}
    assert taken.json()["left_out"] == {"no node is named": 1}
    for expiry in ("2026-11-20T08:01:00Z", "2126-11-20T08:00:00Z"):  # of an alert that still fires
        told = {"alerts": [{**alert, "endsAt": expiry} for alert in ALERT["alerts"]]}
        assert visitor.ask("/v1/alerts", "POST", json=told, token=secret).json()["completed"] == 0
    again = visitor.ask("/v1/alerts", "POST", json=ALERT, token=secret).json()
    assert (again["new"], again["known"]) == (0, 1)
    history = visitor.house.history.only()
    (incident,) = history.incidents.all()
    assert (incident.node, incident.category, incident.end) == ("n3", "GpuFellOff", None)
    over = json.dumps(ALERT).replace("0001-01-01T00", "2026-11-20T09").replace("firing", "resolved")
    resolved = json.loads(over)
    assert visitor.ask("/v1/alerts", "POST", json=resolved, token=secret).json()["completed"] == 1
    (incident,) = history.incidents.all()
    assert incident.end - incident.start == pytest.approx(3600, abs=1)
    visitor.ask("/v1/alerts", "POST", json=ALERT, token=secret)  # it was resolved by mistake
    assert [incident.end for incident in history.incidents.all()] == [None]
    visitor.ask("/v1/alerts", "POST", json=resolved, token=secret)
    assert history.incidents.all() == [incident]
    assert [e.who for e in visitor.told()] == ["alertmanager"] * 7


def test_alerts_on_nodes_of_the_cluster_are_kept_and_others_named(fleet, visitor):
    secret = make_token("alertmanager", ("report",), of(fleet))
    alert, _ = ALERT["alerts"]

    def tell(*nodes):
        alerts = [{**alert, "labels": {**alert["labels"], "node": node}} for node in nodes]
        told = {**ALERT, "alerts": alerts}
        return visitor.ask("/v1/alerts", "POST", json=told, token=secret)

    taken = tell("head01", "n3", "n99", "N4.example.org:9100", "n4:9835").json()
    check_line(taken)
    assert (taken["nodes"], taken["incidents"], taken["ignored"]) == (2, 2, ["head01", "n99"])
    incidents = visitor.house.history.only().incidents.all()
    assert [incident.node for incident in incidents] == ["n3", "n4"]  # n4 by two other names
    before = kept(fleet.history)
    complaint = problem(tell("head01"), 400)
    assert 'node "head01" is not in cluster "fleet", which has n[1-8]' in complaint
    assert kept(fleet.history) == before


def test_events_about_unknown_nodes_or_clusters_are_refused_and_leave_no_row(fleet, visitor):
    secret = make_token("all", ("read", "report", "operate", "act"), of(fleet))
    before, kinds = kept(fleet.history), set()

    def refused(path, body):
        answer = visitor.ask(path, "POST", json=body, token=secret)
        visitor.house.trail._flush()
        new = [row for row in kept(fleet.history) if row not in before and '"audit"' not in row]
        assert new == [], body
        return problem(answer, 400)

    for event in (*SITE_SAYS, *ORDERS, *WATCHERS_SAY):
        kinds.add(event["event"])
        elsewhere = {**event, "cluster": "fleeet"}
        if event["event"] == "node-added":
            continue
        complaint = refused("/v1/events", {**event, "nodes": ["n1", "n10"]})
        assert 'node "n10" is not in cluster "fleet", which has n[1-8]; did you' in complaint
        assert 'did you mean "fleet"? it knows fleet' in refused("/v1/events", elsewhere)
    assert kinds == {*KEPT}
    refused("/v1/gate", {"nodes": ["gpu[01-04]"], "duration_s": 60})
    refused("/v1/gate", {"nodes": ["n1"], "duration_s": 60, "cluster": "simulated"})
    refused("/v1/alerts?cluster=typo", ALERT)
    refused("/v1/incidents?cluster=typo", [])
    for path in ("nodes", "campaigns", "decisions", "tickets", "spares", "looks", "diagnoses"):
        problem(visitor.ask(f"/v1/{path}?cluster=typo", token=secret), 400)
    added = {"event": "node-added", "nodes": ["n9"]}
    assert visitor.ask("/v1/events", "POST", json=added, token=secret).status_code == 201
    gone = {"event": "node-removed", "nodes": ["n9"]}
    assert visitor.ask("/v1/events", "POST", json=gone, token=secret).status_code == 201


def test_a_service_means_the_one_cluster_that_it_serves_and_else_asks_as_http_does(fleet):
    fleet.run("tell", "node-added", "n[1-2]", "--cluster", "other", "--later")
    settings = {**fleet.where, "files": {"fleet": "fleet.yaml"}}
    serving = Visitor(house_of(str(fleet.history), **settings))
    secret = make_token("all", ("read", "report", "operate"), of(fleet))
    upgraded = {"event": "fleet-upgraded", "nodes": ["n1"]}
    told = serving.ask("/v1/events", "POST", json=upgraded, token=secret)
    assert (told.status_code, told.json()["cluster"]) == (201, "fleet")
    wish = {"nodes": ["n5"], "duration_s": 60}
    assert serving.ask("/v1/gate", "POST", json=wish, token=secret).json()["cluster"] == "fleet"
    assert serving.ask("/v1/alerts", "POST", json=ALERT, token=secret).json()["cluster"] == "fleet"
    plain = Visitor(house_of(str(fleet.history), **fleet.where))
    for path, body in (("events", upgraded), ("gate", wish), ("alerts", ALERT)):
        complaint = problem(plain.ask(f"/v1/{path}", "POST", json=body, token=secret), 400)
        assert 'knows clusters "fleet", "other": name one' in complaint
        assert "?cluster=" in complaint
        assert "--cluster" not in complaint
    for one in (serving, plain):
        one.house.history.close_at_last()


def test_incidents_over_http_are_read_like_a_file(fleet, visitor):
    secret = make_token("site", ("report",), of(fleet))
    records = [{"node": "n2", "category": "fan", "start": "2026-11-20T08:00", "end": ""}]
    taken = visitor.ask("/v1/incidents", "POST", json=records, token=secret)
    assert (taken.status_code, taken.json()["incidents"]) == (200, 1)
    records[0]["start"] = "soon"
    complaint = problem(visitor.ask("/v1/incidents", "POST", json=records, token=secret), 400)
    assert "the start cannot be read as a time" in complaint
    for mapping in ("../plain", "/etc/passwd", "none"):
        path = f"/v1/incidents?mapping={mapping}"
        problem(visitor.ask(path, "POST", json=records, token=secret), 400)


def test_an_event_with_an_id_is_kept_once(fleet, visitor):
    secret = make_token("slurm", ("report",), of(fleet))
    event = {"event": "incident-reported", "nodes": ["n[1-2]"], "category": "gpu", "id": "e1"}
    first = visitor.ask("/v1/events", "POST", json=event, token=secret)
    check_line(first.json())
    assert (first.status_code, first.json()["is_new"]) == (201, True)
    again = visitor.ask("/v1/events", "POST", json=event, token=secret)
    assert (again.status_code, again.json()["is_new"]) == (200, False)
    (event_record,) = visitor.house.history.only().event_records.all()
    assert (event_record.id, event_record.event.nodes) == ("e1", ("n1", "n2"))
    for wrong, complaint in (
        ({"event": "node-ended"}, 'event "node-ended" is not known'),
        ({"event": "node-added"}, 'the key "nodes" is missing'),
        ({**event, "colour": 1}, 'unknown key "colour"'),
        ({**event, "at": 1e12}, "is in the future"),
        ({**event, "id": "two\nlines"}, "id is 'two\\nlines', expected one line"),
        ({**event, "id": "e2", "category": "long" * 1000}, "expected one line of at most 500"),
    ):
        answer = visitor.ask("/v1/events", "POST", json=wrong, token=secret)
        assert complaint in problem(answer, 400)


SOON = time.time() + 3600.0
SITE_SAYS = (
    {"event": "maintenance", "nodes": ["n1"], "begin": SOON, "end": SOON + 60.0},
    {"event": "maintenance-ended", "nodes": ["n1"]},
    {"event": "node-removed", "nodes": ["n1"]},
    {"event": "fleet-upgraded", "nodes": ["n1"]},
    {"event": "repair-begun", "nodes": ["n1"]},
    {"event": "repair-done", "nodes": ["n1"]},
)
ORDERS = ({"event": "operator-said", "order": "retire", "nodes": ["n[1-2]"]},)
WATCHERS_SAY = (
    {"event": "node-added", "nodes": ["n1"]},
    {"event": "job-allocated", "nodes": ["n1"], "job": "7", "duration_s": 60.0},
    {"event": "job-stalled", "nodes": ["n1"], "job": "7"},
    {"event": "job-ended", "nodes": ["n1"], "job": "7"},
    {"event": "job-unexplained", "nodes": ["n1"], "job": "7"},
    {"event": "incident-reported", "nodes": ["n1"], "category": "gpu"},
    {"event": "suspicion-raised", "nodes": ["n1"], "category": "gpu", "source": "log"},
    {"event": "part-suspected", "nodes": ["n1"], "part": "link leaf2 - spine1", "source": "ufm"},
)


def test_each_kind_of_event_needs_its_scope_and_orders_record_their_author(near):
    near.run("tell", "node-added", "n[1-2]", "--later")
    visitor, scoped = Visitor(house_of(str(near.history))), {}
    cluster = visitor.house.history.only().cluster
    for scope in ("report", "operate", "act"):
        scoped[scope] = make_token(f"the {scope}er".replace(" ", "-"), (scope,), of(near))
    told = {event["event"] for event in (*SITE_SAYS, *ORDERS, *WATCHERS_SAY)}
    assert told == {*KEPT}
    for allowed, events in (("report", WATCHERS_SAY), ("operate", SITE_SAYS), ("act", ORDERS)):
        for event in events:
            for scope, token in scoped.items():
                answer = visitor.ask("/v1/events", "POST", json=event, token=token)
                if scope == allowed:
                    assert answer.status_code == 201, answer.text
                else:
                    assert f'{event["event"]}: token "the-{scope}er" has no scope "{allowed}"' in (
                        problem(answer, 403)
                    )
    told = [(entry.who, entry.path) for entry in visitor.told() if entry.method == "order"]
    assert told == [
        *(("the-operateer", f"{event['event']} n1 of {cluster}") for event in SITE_SAYS),
        ("the-acter", f"retire n[1-2] of {cluster}"),
    ]
    visitor.house.history.close_at_last()


def test_the_author_of_an_order_is_in_the_audit(near):
    near.run("tell", "node-added", "n1", "--later")
    assert near.run("tell", "repair-begun", "n1", "--later").code == 0
    (entry,) = near.run("token", "audit", "--json").lines
    assert entry["who"] == of(near).name()
    with of(near).history() as history:
        assert (entry["method"], entry["path"]) == (
            "order",
            f"repair-begun n1 of {history.only().cluster}",
        )


def test_a_token_ends_at_its_date_with_a_warning_before(near, empty, monkeypatch):
    secret = near.run("token", "make", "ops", "--expires", "2d").out.strip()
    assert empty.ask("/v1/nodes", token=secret).status_code == 200
    listed = near.run("token", "list")
    assert 'token "ops" ends in 48 h: make another one in time' in listed.err
    (line,) = near.run("token", "list", "--json").lines
    assert line["expires_at"] - line["made_at"] == 2 * 86_400
    (sample,) = re.findall(
        r'expires_timestamp_seconds\{token="ops"\} (.+)',
        empty.ask("/metrics", token=secret).text,
    )
    assert float(sample) == line["expires_at"]
    monkeypatch.setattr(time, "time", lambda: line["expires_at"])
    assert 'token "ops" ended 20' in problem(empty.ask("/v1/nodes", token=secret), 401)
    assert "a token is needed" in problem(empty.ask("/v1/nodes"), 401)  # the rule still applies
    assert '--expires is "soon"' in near.run("token", "make", "x", "--expires", "soon").err
    with pytest.raises(UsageError, match="10 years at most"):
        make_token("x", ("read",), of(near), lasts_s=1e18)


def test_events_that_come_together_are_kept_together_and_a_bad_one_spoils_no_other(
    fleet, visitor, monkeypatch
):
    batches = []

    def tell_all(tellings, history, caller):
        batches.append(len(tellings))
        return telling.tell_all(tellings, history, caller)

    monkeypatch.setattr(service_state, "tell_all", tell_all)
    box, requester = visitor.house.event_queue, Requester(visitor.house.history, "", ())
    refused = []

    async def tell(number):
        event = IncidentReported(nodes=("n1",), category="gpu")
        telling = Telling(event=event, id=f"i{number}")
        wrong = {7: {"at": 1e12}, 8: {"cluster": "no/cluster"}}
        try:
            await box.tell(replace(telling, **wrong.get(number, {})), requester)
        except AnubisError:
            refused.append(number)

    async def tell_at_once():
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(tell, number)

    anyio.run(tell_at_once)
    assert sorted(refused) == [7, 8]
    assert sum(batches) == 29  # without that of no cluster
    assert len(batches) < 5
    kept = {event_record.id for event_record in visitor.house.history.only().event_records.all()}
    assert kept == {f"i{number}" for number in range(30)} - {"i7", "i8"}


def test_turns_are_taken_one_at_a_time_and_only_by_the_service_that_acts():
    class Process:
        returncode = None

        def poll(self):
            return self.returncode

    begun = []
    turns = Turns(("prod",), 60.0, lambda cluster: begun.append(Process()) or begun[-1])
    turns._take("prod", 1000.0)
    turns.hurry("prod")
    turns._due["prod"] = 0.0
    turns._take("prod", 1001.0)  # the first still runs
    assert len(begun) == 1
    begun[0].returncode = 0
    turns._take("prod", 1002.0)
    assert len(begun) == 2
    begun[1].returncode = 0
    turns._take("prod", 1003.0)  # not due
    assert len(begun) == 2
    assert not turns.may_act()
    assert Turns(("prod",), 0.0, begun.append)._due == {}


def test_the_audit_waits_for_a_history_that_cannot_be_reached():
    troubles, kept = [StoreUnreachableError("the server does not answer")], []

    def keep(entries):
        if troubles:
            raise troubles.pop()
        kept.extend(entries)

    trail = AuditTrail(keep)
    entry = AuditEntry(at=1.0, who="a", address="", method="POST", path="/", status=200)
    trail.add(entry)
    trail.add(replace(entry, at=2.0))
    trail._flush()
    trail.add(replace(entry, at=3.0))
    trail._flush()
    assert [entry.at for entry in kept] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "trouble",
    [
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("attempt to write a readonly database"),
        psycopg.errors.DiskFull("could not extend file: No space left on device"),
    ],
)
def test_a_report_that_the_database_refuses_is_to_be_sent_again(trouble):
    assert status_of(explain("here", OperationalError("INSERT", {}, trouble))) == 503


def test_a_request_for_an_unknown_record_is_not_to_be_sent_again():
    assert status_of(UnknownRecordError("no such node")) == 400


def test_a_gate_whose_caller_left_delays_no_other(monkeypatch):
    began, may_end = [], threading.Event()

    def slow(question):
        began.append(question)
        may_end.wait(LIMIT_S)

    monkeypatch.setattr(gate, "reply", slow)
    waiting = Gates(in_process=True, patience_s=0.05)

    async def ask_all():
        return await asyncio.gather(*map(waiting.ask, range(3)), return_exceptions=True)

    refusals = asyncio.run(ask_all())
    may_end.set()
    waiting._executor.shutdown(wait=True)
    assert [refusal.status for refusal in refusals] == [503, 503, 503]
    assert began == [0]


def test_a_turn_that_does_not_end_is_ended_so_that_its_cluster_is_kept():
    class Stuck:
        returncode = None

        def poll(self):
            return self.returncode

        def kill(self):
            self.returncode = -9

    begun = []
    turns = Turns(("prod",), 60.0, lambda cluster: begun.append(Stuck()) or begun[-1])
    turns._take("prod", 1000.0)
    turns._take("prod", 1000.0 + LONGEST_TURN_S - 1)
    assert [turn.returncode for turn in begun] == [None]
    turns._take("prod", 1000.0 + LONGEST_TURN_S)
    turns._take("prod", 1001.0 + LONGEST_TURN_S)
    assert [turn.returncode for turn in begun] == [-9, None]


def test_a_history_that_does_not_answer_delays_no_caller_for_ever(near):
    house = house_of(str(near.history), answer_s=0.2)
    visitor, goes_on = Visitor(house), threading.Event()
    house.history.tokens.all = lambda: goes_on.wait() and []
    threading.Timer(1.0, goes_on.set).start()
    assert "the history does not answer" in problem(visitor.ask("/v1/nodes"), 503)
    assert goes_on.wait(LIMIT_S)
    house.history.close_at_last()


def test_every_document_of_the_api_is_described_by_openapi(visitor):
    described = visitor.ask("/v1/openapi.json").json()
    for path, verbs in described["paths"].items():
        for operation in verbs.values():
            assert {"400", "401", "403", "429", "503"} <= operation["responses"].keys(), path
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            Draft202012Validator.check_schema(schema)
    schema = described["paths"]["/v1/nodes"]["get"]["responses"]["200"]["content"]
    Draft202012Validator(schema["application/json"]["schema"]).validate(
        visitor.ask("/v1/nodes").json()
    )


# --- who may come in --------------------------------------------------------------------------


def test_a_service_without_tokens_is_for_readers_on_its_machine_only(empty):
    assert empty.ask("/v1/nodes").status_code == 200
    assert 'none may "report"' in problem(empty.ask("/v1/alerts", "POST", json={}), 403)
    settings = ServiceSettings(host="0.0.0.0")
    with pytest.raises(UsageError, match="there is no token: make one first"):
        settings.refuse_open(has_tokens=False)
    settings.refuse_open(has_tokens=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        ServiceSettings(host=host).refuse_open(has_tokens=False)


def test_once_there_is_a_token_each_request_needs_one_with_the_right_scope(near, empty):
    caller = of(near)
    reader = make_token("reader", ("read",), caller)
    reporter = make_token("reporter", ("report",), caller)
    for path in ("/v1/nodes", "/metrics", "/v1/openapi.json"):
        answer = empty.ask(path)
        assert "a token is needed" in problem(answer, 401)
        assert answer.headers["www-authenticate"] == (
            'Bearer realm="Anubis"' if path.startswith("/v1") else 'Basic realm="Anubis"'
        )
        assert "not valid" in problem(empty.ask(path, token=reader[:-1]), 401)
        assert 'no scope "read"' in problem(empty.ask(path, token=reporter), 403)
        assert empty.ask(path, token=reader).status_code == 200
    basic = {"authorization": f"Basic {b64encode(f'me:{reader}'.encode()).decode()}"}
    assert empty.ask("/v1/nodes", headers=basic).status_code == 200
    assert 'no scope "report"' in problem(
        empty.ask("/v1/alerts", "POST", json=ALERT, token=reader), 403
    )
    assert empty.ask("/healthz").status_code == empty.ask("/readyz").status_code == 200
    assert {(e.who, e.status) for e in empty.told()} >= {("", 401), ("reader", 403)}
    revoke_token("reader", caller)
    clear_tokens(empty)
    problem(empty.ask("/v1/nodes", token=reader), 401)
    revoke_token("reporter", caller)
    clear_tokens(empty)
    problem(empty.ask("/v1/alerts", "POST", json=ALERT, token=reporter), 401)


def test_only_the_digest_of_a_token_is_stored_and_a_name_is_used_once(near):
    secret = near.run("token", "make", "ops", "--scope", "read,act").out.strip()
    assert len(secret) > 40
    assert secret.encode() not in near.history.read_bytes()
    (line,) = near.run("token", "list", "--json").lines
    assert (line["name"], line["scopes"], line["revoked_at"]) == ("ops", ["read", "act"], None)
    assert near.run("token", "revoke", "ops").code == 0
    assert near.run("token", "list", "--json").lines[0]["revoked_at"]
    again = near.run("token", "make", "ops")
    assert (again.code, 'a token "ops" is there, or was' in again.err) == (64, True)
    assert 'no token "ops" is valid' in near.run("token", "revoke", "ops").err
    assert '--scope "write" is not known' in near.run("token", "make", "x", "--scope", "write").err
    with pytest.raises(StoreError):
        make_token("ops", ("read",), of(near))


def test_a_page_elsewhere_cannot_ask_in_a_readers_name(near, empty):
    secret = make_token("ops", ("read", "report", "act"), of(near))
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost"},
        {"sec-fetch-site": "cross-site"},
    ):
        answer = empty.ask("/v1/alerts", "POST", json=ALERT, token=secret, headers=headers)
        assert "another origin" in problem(answer, 403)
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    answer = empty.ask("/v1/alerts", "POST", json=ALERT, token=secret, headers=own)
    assert "begin with anubis accept" in problem(answer, 400)
    form = {"data": {"nodes": "n1"}}
    problem(empty.ask("/v1/gate", "POST", token=secret, **form), 415)
    rebound = empty.ask("/v1/nodes", token=secret, at="http://evil.example:8750")
    assert "no name of this service" in problem(rebound, 421)
    for own_name in ("http://127.0.0.1:8750", "http://[::1]:8750", "http://10.1.2.3"):
        assert empty.ask("/v1/nodes", token=secret, at=own_name).status_code == 200


def test_a_name_server_is_asked_once_for_many_requests(monkeypatch):
    questions = []
    monkeypatch.setattr(socket, "getfqdn", lambda: questions.append("") or "Head.example")
    service_settings._full_name.cache_clear()
    is_own = ServiceSettings().is_own
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    assert [is_own(name) for name in ("head.example", "HEAD.EXAMPLE", "evil.example")] == [
        True,
        True,
        False,
    ]
    assert is_own("localhost")
    assert len(questions) == 1
    monkeypatch.setattr(time, "monotonic", lambda: 1100.0)
    is_own("head.example")
    assert len(questions) == 2


def test_requests_that_are_too_large_too_frequent_or_too_slow_are_refused(near, monkeypatch):
    visitor = Visitor(house_of(str(near.history), most_bytes=1000, rate_per_s=3))
    headers = {f"x-{i}": "a" * 500 for i in range(40)}
    problem(visitor.ask("/v1/nodes", headers=headers), 431)
    problem(visitor.ask("/v1/gate", "POST", content=b"x" * 1001, headers=JSON), 413)

    async def endless():
        while True:
            yield b"x" * 100

    problem(visitor.ask("/v1/gate", "POST", content=endless(), headers=JSON), 413)
    statuses = [visitor.ask("/v1/campaigns").status_code for _ in range(200)]
    assert 429 in statuses
    visitor.house.history.close_at_last()
    slow = Visitor(house_of(str(near.history), answer_s=0.2))
    given_up = threading.Event()
    monkeypatch.setattr(Board, "read", lambda self: given_up.wait(LIMIT_S))
    assert "no answer within 0.2 s" in problem(slow.ask("/v1/nodes"), 503)
    given_up.set()
    slow.house.history.close_at_last()


def test_a_bug_is_logged_and_its_caller_gets_no_traceback(empty, monkeypatch, caplog):
    monkeypatch.setattr(Board, "read", lambda self: 1 / 0)
    detail = problem(empty.ask("/v1/nodes"), 500)
    assert detail == "a bug in Anubis: the log of the service has more"
    assert "ZeroDivisionError" in caplog.text


def test_every_answer_has_the_headers_that_keep_a_browser_from_harm(empty):
    for path in ("/v1/nodes", "/healthz", "/nowhere"):
        headers = empty.ask(path).headers
        for name, value in admission.ALWAYS.items():
            assert headers[name] == value
        assert headers["content-security-policy"].startswith("default-src 'none'")


# --- the figures ------------------------------------------------------------------------------


def test_the_figures_count_nodes_campaigns_and_requests(fleet, visitor):
    visitor.ask("/v1/nodes/prod/none")
    text = visitor.ask("/metrics").text
    cluster = items(visitor.ask("/v1/campaigns"))[0]["cluster"]
    for sample in (
        f'anubis_nodes{{cluster="{cluster}",judgement="healthy"}} 8.0',
        f'anubis_node_verdicts{{cluster="{cluster}",code="OK",judgement="healthy"}} 8.0',
        f'anubis_nodes_held{{cluster="{cluster}"}} 0.0',
        f'anubis_campaign_executions{{cluster="{cluster}",ended="measured"}} 8.0',
        'route="/v1/nodes/{cluster}/{node}",status="404"} 1.0',
    ):
        assert sample in text, text


# --- several of them --------------------------------------------------------------------------


def held_in_turn(url):
    """Locks as of two processes: the first has it, and then the other."""
    with OpenHistory.open(url) as first, OpenHistory.open(url) as second:
        lock, rival = first.acting_lock(), second.acting_lock()
        assert lock.holder() == ""
        yield lock.has(), rival.has(), lock.has()
        assert rival.holder() == lock.holder() == database.own_name()
        lock.give_back()
        assert rival.holder() == ""
        yield rival.has(), lock.has(), rival.has()
        rival.give_back()
        first.close_at_last()
        second.close_at_last()


def test_one_of_several_services_acts_and_the_next_takes_over(near):
    assert [*held_in_turn(str(near.history))] == [(True, False, True)] * 2


@pytest.mark.long
def test_with_a_server_one_acts_too_and_its_connection_is_the_lock(server):
    url = server.new_database()
    assert [*held_in_turn(url)] == [(True, False, True)] * 2
    with OpenHistory.open(url) as first, OpenHistory.open(url) as second:
        lock, rival = first.acting_lock(), second.acting_lock()
        assert (lock.has(), rival.has()) == (True, False)
        ask(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'",
        )
        assert eventually(rival.has)  # the server only sends a signal, and answers at once
        with pytest.raises(StoreError):
            lock.has()
        assert not lock.has()
        rival.give_back()
        first.close_at_last()
        second.close_at_last()


def test_a_service_that_stalls_loses_the_lock_and_learns_of_it(server, monkeypatch):
    monkeypatch.setattr(claims, "FORGOTTEN_AFTER_S", 0.2)
    url = server.new_database()
    with OpenHistory.open(url) as first, OpenHistory.open(url) as second:
        lock, rival = first.acting_lock(), second.acting_lock()
        assert (lock.has(), rival.has()) == (True, False)
        assert eventually(rival.has)
        with pytest.raises(StoreError):
            lock.has()
        rival.give_back()
        first.close_at_last()
        second.close_at_last()


def test_a_service_that_stalled_does_not_act_on_an_old_lock(empty):
    now = [0.0]
    actor = Actor(empty.house.history, [].append, clock=lambda: now[0])
    actor._look()
    assert actor.is_acting
    now[0] = claims.FORGOTTEN_AFTER_S
    assert not actor.is_acting
    actor._look()
    assert actor.is_acting
    actor._lock.give_back()


def test_only_the_acting_service_reports_that_it_acts(empty):
    states = []
    actor = Actor(empty.house.history, states.append)
    rival = Actor(OpenHistory.open(empty.house.history_url), states.append)
    actor._look()
    rival._look()
    assert (actor.is_acting, rival.is_acting) == (True, False)
    actor._lock.give_back()
    rival._look()
    assert rival.is_acting
    rival._lock.give_back()
    rival._lock._database.close()


# --- the pages --------------------------------------------------------------------------------


def test_the_snapshot_for_readers_is_made_once_at_the_start(visitor):
    board = visitor.house.board
    board.start()
    try:
        deadline = time.monotonic() + 30
        while board._snapshot is None and time.monotonic() < deadline:
            time.sleep(0.01)
        first = board._snapshot
        assert first is not None
        assert board.read() is first
    finally:
        board.stop()


def test_pages_show_the_fleet_a_node_its_campaigns_and_decisions_without_a_script(visitor):
    visitor.ask("/v1/gate", "POST", json={"nodes": ["n1"], "duration_s": 3600})
    visitor.house.board._renew()
    fleet_page = page(visitor, "/")
    assert "<b>8</b> healthy" in fleet_page
    (href,) = re.findall(r'href="(/nodes/[^"]+/n1)"', fleet_page)
    node_page = page(visitor, href)
    assert "healthy, 1 benchmark, campaign accept-" in node_page
    assert "Decisions about it" in node_page
    campaigns = page(visitor, "/campaigns")
    (href,) = re.findall(r'href="(/campaigns/accept-[^"]+)"', campaigns)
    campaign_page = page(visitor, href)
    assert "8 ended: 8 measured" in " ".join(re.sub("<[^>]+>", "", campaign_page).split())
    assert "a job of 1 h" in page(visitor, "/decisions")
    rooms = re.findall(r'<a href="([^"]+)"', fleet_page.partition("</nav>")[0])
    assert len(rooms) > 8
    for text in (node_page, campaign_page, *(page(visitor, room) for room in rooms[1:])):
        assert "a simulated fleet: no hardware was measured" in text
    for text in (fleet_page, node_page, campaigns, campaign_page):
        assert set(re.findall("<script[^>]*>", text)) <= {'<script src="/live.js">'}
        assert text.count("<h1") == 1
    report = visitor.ask(f"{href}/report")
    (script,) = re.findall(r"<script>(.*?)</script>", report.text, re.S)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in report.headers["content-security-policy"]


def test_a_page_follows_a_campaign_that_is_not_over(fleet, visitor, monkeypatch):
    campaigns = visitor.house.history.campaigns
    done = campaigns.get(campaigns.newest(1)[0].id)
    campaigns.begin(replace(done, id="accept-open", finished_at=None))
    text = page(visitor, "/campaigns/accept-open")
    assert 'data-stream="/campaigns/accept-open/stream"' in text
    assert '<progress max="8" value="0"' in text
    assert visitor.ask("/live.js").headers["content-type"].startswith("text/javascript")
    stream = visitor.ask(f"/campaigns/{done.id}/stream")
    assert stream.headers["content-type"].startswith("text/event-stream")
    (message,) = stream.text.removesuffix("\n\n").split("\n\n")
    line = json.loads(message.removeprefix("data: "))
    check_line(line)
    assert line["judgement"] == "healthy"


def test_a_page_is_notified_only_if_its_content_changed(visitor, monkeypatch):
    monkeypatch.setattr(pages, "LOOKS_EVERY_S", 0.01)
    history, board = visitor.house.history.only(), visitor.house.board

    async def look():
        stream = pages._changes(visitor.house, asyncio.Semaphore(1))
        messages = [await anext(stream)]
        board._renew()
        messages.append(await anext(stream))
        history.incidents.add([Incident(node="n1", category="gpu", start=time.time())])
        board._renew()
        return [*messages, await anext(stream)]

    first, unchanged, changed = asyncio.run(look())
    assert unchanged == ": nothing new\n\n"
    assert json.loads(first.removeprefix("data: "))["as_of"] < board.read().at
    assert json.loads(changed.removeprefix("data: "))["as_of"] == board.read().at
    assert f'data-changes="/stream" data-as-of="{board.read().at}"' in page(visitor, "/")


def test_names_and_reasons_are_escaped_on_every_page(fleet, visitor):
    history = visitor.house.history.only()
    history.incidents.add([Incident(node="n1", category=ODD, start=time.time() - 9)])
    history.repairs.add([Repair(node="n1", start=1.0, action=f"{ODD}\x1b[2J")])
    attributes = NodeAttributes(node="n2", rack=ODD)
    visitor.house.history.imports.add_attributes("f", 1.0, history.cluster, [attributes])
    visitor.house.board._renew()
    for path in ("/", f"/nodes/{history.cluster}/n1", "/decisions", "/campaigns"):
        text = page(visitor, path)
        assert ODD not in text
        assert "\x1b" not in text
    assert "&lt;script&gt;" in page(visitor, "/")


def test_an_open_breaker_and_proposals_are_on_the_first_page(fleet, visitor):
    history = visitor.house.history.only()
    life = Life(node="n1", sku="h100")
    suspect = Life(node="n2").add_debt(Debt.UPGRADE, 5.0).add_debt(Debt.WORK, 1.0)
    spare = Life(node="n3", sku="h100", is_reserve=True)
    breaker = Breaker(is_open=True)
    kept = KeptFleet(
        cluster=history.cluster,
        at=1.0,
        lives={"n1": life, "n2": suspect, "n3": spare},
        last_turn=LastTurn(at=20.0, by="anubis process 7 on login1", seen_at=10.0),
        breakers={"fleet": breaker, "sku h100": Breaker(accepted=3)},
        actions=(
            LifeAction(
                id=17,
                at=1.0,
                command=Cordon(mode=Mode.PROPOSE, node="n1", code="GEMM.TFLOPS", reason="slow"),
                stage=Stage.PROPOSED,
                changed_at=1.0,
            ),
        ),
    )
    snapshot = visitor.house.board.read()
    periodic_tasks = {PeriodicTask.SWEEP: 1.5}
    part = replace(snapshot.clusters[history.cluster], kept=kept, periodic_tasks=periodic_tasks)
    upkeep = Upkeep(
        failed=tuple(replace(a, stage=Stage.FAILED, note="denied") for a in kept.actions),
        overdue={PeriodicTask.RISK: 2.5},
        undiagnosed=(8.0, 7.0),
        spares={"h100": 2, "elsewhere": 1},
    )
    visitor.house.board._snapshot = replace(
        snapshot, clusters={history.cluster: part}, pages={}, upkeep={history.cluster: upkeep}
    )
    text = page(visitor, "/")
    assert "the breaker is open (fleet): no more nodes are taken out until an" in text
    assert "closes it (anubis keep --close fleet)" in text
    assert "accepted to be out when a breaker was closed: 3 of sku h100" in text
    assert re.search(r"last turn 1970-01-01 \S+( \S+)? by anubis process 7 on login1", text)
    assert 'role="alert"' in text
    assert ">failed: denied</td>" in text
    assert ">proposed</td>" in text
    figures = visitor.ask("/metrics").text
    for sample in (
        f'anubis_breakers_open{{cluster="{history.cluster}"}} 1.0',
        f'anubis_node_states{{cluster="{history.cluster}",state="in-service"}} 1.0',
        f'anubis_open_actions{{action="cordon",cluster="{history.cluster}",stage="proposed"}} 1.0',
        f'success_timestamp_seconds{{cluster="{history.cluster}",task="sweep"}} 1.5',
        f'last_turn_timestamp_seconds{{cluster="{history.cluster}"}} 20.0',
        f'fleet_seen_timestamp_seconds{{cluster="{history.cluster}"}} 10.0',
        f'oldest_action_timestamp_seconds{{action="cordon",cluster="{history.cluster}",stage=',
        f'failed_actions{{action="cordon",cluster="{history.cluster}"}} 1.0',
        f'oldest_suspect_timestamp_seconds{{cluster="{history.cluster}"}} 5.0',
        f'spares{{cluster="{history.cluster}",sku="h100",which="wanted"}} 2.0',
        f'spares{{cluster="{history.cluster}",sku="h100",which="ready"}} 1.0',
        f'accepted_nodes{{cluster="{history.cluster}",scope="sku h100"}} 3.0',
        f'diagnoses_waiting{{cluster="{history.cluster}"}} 2.0',
        f'oldest_waiting_timestamp_seconds{{cluster="{history.cluster}"}} 7.0',
        f'overdue_since_timestamp_seconds{{cluster="{history.cluster}",task="risk"}} 2.5',
    ):
        assert sample in figures
    assert 'sku="elsewhere"' not in figures
    assert "keep n1 from jobs (GEMM.TFLOPS)" in text
    assert "proposed" in text


def test_the_page_of_a_node_shows_actions_their_authors_and_results(fleet, visitor):
    history = visitor.house.history.only()
    cordon = Cordon(mode=Mode.PROPOSE, node="n1", code="GEMM", reason="slow")
    ticket = OpenTicket(
        mode=Mode.ACT, ticket="n1/c", node="n1", code="GEMM", reason="slow", campaign="c"
    )
    swap = Swap(mode=Mode.ACT, node="n1", spare="n2")
    other = Release(mode=Mode.PROPOSE, node="n11", reason="n1 is another")
    with history.keeping.turn("anubis process 7 on login1") as turn:
        turn.keep([cordon, ticket, swap, other], time.time() - 60)
        (kept,) = (a for a in turn.open_actions() if a.command == cordon)
        turn.approve(kept, replace(cordon, mode=Mode.ACT), time.time() - 50, "alice@login1")
    with history.keeping.turn("anubis process 7 on login1") as turn:
        sent = turn.action(kept.id)
        turn.follow(sent, Stage.FAILED, time.time() - 40, "slurm refused")
    visitor.house.board._renew()
    text = page(visitor, f"/nodes/{history.cluster}/n1")
    assert "keep n1 from jobs (GEMM): failed, ordered by alice@login1 (slurm refused)" in text
    by = "ordered by the policy, in a turn of anubis process 7 on login1"
    assert f"ticket for n1 (GEMM): done, {by}" in text
    assert f"bring n2 into service for n1: done, {by}" in text
    assert "n11" not in text
    spare = f"/v1/nodes/{history.cluster}/n2/happenings"
    (told,) = [line for line in items(visitor.ask(spare)) if line["type"] == "action"]
    assert (told["action"], told["stage"], told["cluster"]) == ("swap", "done", history.cluster)
    assert items(visitor.ask(spare)) == fleet.run("history", "show", "n2", "--json").lines


def test_a_cluster_that_is_to_be_kept_and_never_was_was_kept_last_in_1970():
    empty = Snapshot(at=9.0, clusters={}, campaigns=(), decisions=())
    settings = ServiceSettings(files={"prod": "prod.yaml"}, turn_every_s=60.0)
    figures = Gauges(lambda: empty, settings.turns_every_s).text().decode()
    assert 'anubis_keeper_turn_interval_seconds{cluster="prod"} 60.0' in figures
    assert 'anubis_keeper_last_turn_timestamp_seconds{cluster="prod"} 0.0' in figures
    assert ServiceSettings(files={"prod": "prod.yaml"}, turn_every_s=0.0).turns_every_s == {}


# --- how it ends ---------------------------------------------------------------------------


def test_a_service_ends_if_its_signal_comes_while_it_starts(near):
    with near.start("serve", "--port", "0") as starting:
        assert "a new history begins" in starting.stderr.readline()
        starting.terminate()
        assert starting.wait() == 0


def test_the_end_of_a_service_ends_the_process_that_computes_for_it():
    process = gate.OneProcess()
    computing = process.submit(time.sleep, 2 * LIMIT_S)
    assert eventually(computing.running)
    process.shutdown(wait=True, cancel_futures=True)
    with pytest.raises(BrokenProcessPool):
        computing.result(LIMIT_S)
