"""Alert rules and dashboard: by promtool, and by a Prometheus that scrapes a real service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from anubis.service.connections import Connections
from anubis.service.fleet_cache import Snapshot
from anubis.service.metrics import Gauges
from tests.edges import prometheus_server
from tests.edges.prometheus_server import free_port
from tests.patience import LIMIT_S, eventually

ROOT = Path(__file__).parents[2]
RULES = ROOT / "configs" / "prometheus" / "anubis.rules.yaml"
PLAYED = Path(__file__).with_name("anubis.rules.test.yaml")
DASHBOARD = json.loads((ROOT / "configs" / "grafana" / "anubis.json").read_text())
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
TARGETS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]
MAY_BE_EMPTY = {  # where there is nothing, and no zero to be shown for it
    "campaigns that are not over",  # of one that is there the next test would hear
    "nodes were last seen",  # these have no owner
    "the oldest suspect waits",
}
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not there")
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus here")


def test_rules_and_dashboard_ask_for_figures_that_the_service_has():
    empty = Snapshot(at=0.0, clusters={}, campaigns=(), decisions=())
    gauges = Gauges(lambda: empty)
    gauges.watch(Connections())
    text = gauges.text().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    ends = {"histogram": "_bucket"}
    names = {name + ends.get(kind, "") for name, kind in kinds.items()}
    exprs = [rule["expr"] for rule in ALERTS] + [expr for _, expr in TARGETS]
    asked_for = set(re.findall(r"\banubis_[a-z_]+", " ".join(exprs)))
    assert len(asked_for) >= 9
    assert asked_for <= names


@needs_promtool
def test_prometheus_itself_takes_the_rules_and_they_fire_when_they_should(tmp_path):
    shutil.copy(RULES, tmp_path)
    shutil.copy(PLAYED, tmp_path)
    for words in (("check", "rules", RULES.name), ("test", "rules", PLAYED.name)):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_played_once_when_all_is_well_and_once_when_nothing_is():
    well, _, wrong = yaml.safe_load(PLAYED.read_text())["tests"]
    names = {rule["alert"] for rule in ALERTS}
    assert {played["alertname"] for played in well["alert_rule_test"]} == names
    (fired,) = wrong["promql_expr_test"]
    assert set(re.findall(r'alertname="(\w+)"', str(fired["exp_samples"]))) == names


def test_each_alert_has_one_sentence_for_the_fact_and_one_for_the_remedy():
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_panels_neither_overlap_nor_leave_the_screen():
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


# --- a real Prometheus --------------------------------------------------------------------


def fetch(url: str, body: bytes | None = None) -> dict:
    kind = {"Content-Type": "application/json"} if body else {}
    with urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=LIMIT_S) as answer:
        return json.load(answer)


@pytest.fixture
def service(near):
    """`anubis serve` on a simulated fleet with a bad node, and a gate that was answered."""
    suite, cluster = near.suite(near.flow()), near.fleet(nodes="n[1-8]", slow_share=0.125)
    near.ask("accept", "--cluster", cluster, "--suite", suite)
    near.ask("keep", "--cluster", cluster)
    url = f"http://127.0.0.1:{free_port()}"
    serving = near.start("serve", "--port", url.rpartition(":")[2], "--suite", suite)
    try:
        assert eventually(lambda: has_nodes(url, 8))
        yield url
    finally:
        serving.terminate()
        serving.communicate()


def has_nodes(url: str, count: int) -> bool:
    with suppress(OSError):  # it does not listen yet
        return fetch(f"{url}/v1/nodes")["total"] == count
    return False


@pytest.fixture
def prometheus(tmp_path, service):
    scrape = {"job_name": "anubis", "static_configs": [{"targets": [service[7:]]}]}
    settings = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [scrape],
    }
    with prometheus_server.running(tmp_path, settings) as url:
        assert eventually(lambda: answers(url, 'up{job="anubis"} == 1'))
        yield url


def answers(url: str, expr: str) -> list:
    query = urllib.parse.urlencode({"query": expr})
    return fetch(f"{url}/api/v1/query?{query}")["data"]["result"]


@needs_prometheus
@pytest.mark.long
def test_every_panel_shows_figures_of_a_real_service(service, prometheus):
    gate = json.dumps({"nodes": ["n[1-8]"], "duration_s": 3600}).encode()

    def empty() -> set[str]:
        fetch(f"{service}/v1/gate", gate)  # counters rise from one scrape to the next
        return {title for title, expr in TARGETS if not answers(prometheus, filled(expr))}

    assert eventually(lambda: empty() <= MAY_BE_EMPTY), empty()
    shown = {sample["metric"]["judgement"]: sample["value"][1] for sample in nodes(prometheus)}
    assert (shown["healthy"], shown["defective"]) == ("7", "1")
    groups = fetch(f"{prometheus}/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in ALERTS}
    assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]


def nodes(url: str) -> list:
    (expr,) = [e for title, e in TARGETS if title == "nodes by what a gate would make of them"]
    return answers(url, filled(expr))


def filled(expr: str) -> str:
    """A query with what Grafana puts in place of its variables."""
    return expr.replace("$cluster", ".*").replace("$__rate_interval", "10s")
