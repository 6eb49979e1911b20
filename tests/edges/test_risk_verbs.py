"""`anubis risk` from the command line: learn from a history, compare, and predict."""

import re
import time

import numpy as np
import pytest

from anubis.core.history.status import Incident, Watch
from anubis.models.risk.risk_learning import uptimes_of
from anubis.models.risk.splits import TESTED
from anubis.store.history import History
from tests.edges.desk import NO_VERDICT

DAY_S = 86_400.0
NODES = [f"node{number:02}" for number in range(12)]
BAD = "node03"  # an incident every ten days; the others have one in half a year


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    begun = time.time() - 200 * DAY_S
    rng = np.random.default_rng(0)
    bad = [
        Incident(node=BAD, category="gpu", start=begun + day * DAY_S, end=begun + (day + 1) * DAY_S)
        for day in range(10, 200, 10)
    ]
    rest = [
        Incident(node=node, category="link", start=at, end=at + 3600)
        for node in NODES
        if node != BAD and (at := begun + rng.uniform(0, 199) * DAY_S)
    ]
    with History.open(f"sqlite:///{folder / 'history.sqlite'}") as history:
        history.only().incidents.add([*bad, *rest])
        history.only().watches.add([Watch(node=node, since=begun) for node in NODES])
    return folder


@pytest.fixture
def anubis(entry, monkeypatch):
    def anubis(home, *words, verb="risk"):
        monkeypatch.setenv("ANUBIS_HOME", str(home))
        return entry(verb, *words)

    return anubis


def test_a_model_is_learned_and_names_the_node_most_at_risk(anubis, home):
    learned = anubis(home, "train", "--kind", "cox")
    assert learned.code == 0, learned.err
    assert learned.out == f"cox {home / 'risk' / 'unnamed.npz'}\n"
    shown = anubis(home, "show", "node[00-11],new1", "--json")
    assert shown.code == 0, shown.err
    lines = shown.lines
    chance = {line["node"]: line["within"][-1]["p"] for line in lines}
    assert max(chance, key=chance.get) == BAD
    assert all(chance[node] < chance[BAD] / 3 for node in NODES if node != BAD)
    curve = lines[0]["curve"]
    assert curve["p"] == sorted(curve["p"])
    assert "new1: forecast as if just added" in shown.err
    status = {line["node"]: line["status"] for line in lines}[BAD]
    assert status["total_up_h"] / 24 == pytest.approx(200 - 19, abs=0.1)  # 19 days of repair
    assert status["since_incident_h:gpu"] / 24 == pytest.approx(10, abs=0.1)


def test_the_selector_asks_the_model_that_was_trained(anubis, home):
    words = (f"{BAD},node05", "--event", "tick", "--json")
    without = "no model of risk is trained"
    model = home / "risk" / "unnamed.npz"
    model.unlink(missing_ok=True)
    assert without in anubis(home, *words, verb="select").out
    assert anubis(home, "train", "--kind", "cox").code == 0
    asked = anubis(home, *words, verb="select")
    assert asked.code == 0, asked.err
    assert without not in asked.out


def test_an_evaluation_names_its_choice_and_predicts_named_nodes_from_the_others(
    anubis, home, tmp_path
):
    page = tmp_path / "risk.html"
    words = ("--seeds", "2", "--ask", f"{BAD},node04", "--json", "--html", str(page))
    found = anubis(home, "evaluate", *words)
    assert found.code == 0, found.err
    lines = found.lines
    assert {line["split"] for line in lines if line["type"] == "score"} >= {"random", "node"}
    assert lines[-1]["type"] == "choice"
    assert lines[-1]["reason"]
    asked = {line["model"]: line for line in lines if line.get("split") == "fleet"}
    assert asked["cox"]["incidents"] > asked["cox"]["uptimes"] / 2  # the bad node's
    with History.open(f"sqlite:///{home / 'history.sqlite'}") as history:
        nodes = uptimes_of(history.only().experience.logbook(), time.time()).statuses.nodes
    others = sum(node not in {BAD, "node04"} for node in nodes)
    assert asked["cox"]["uptimes"] == len(nodes) - others
    rest = {line["model"]: line for line in lines if line.get("split") == "random"}
    assert rest["cox"]["uptimes"] == pytest.approx(TESTED * others, abs=1)
    assert all(f'id="{kind}"' in page.read_text() for kind in ("fleet", "node", "time"))


def test_the_curve_of_a_node_is_drawn_on_a_page(anubis, home, tmp_path):
    model, page = tmp_path / "risk.npz", tmp_path / "node.html"
    assert anubis(home, "train", "--kind", "cox", "--risk-model", str(model)).code == 0
    shown = anubis(home, "show", BAD, "--risk-model", str(model), "--html", str(page))
    assert shown.code == 0, shown.err
    assert f"<title>{BAD}</title>" in page.read_text()
    assert ">gpu 240." in page.read_text()


def test_risk_shows_the_covariates_of_each_node(anubis, home, tmp_path):
    model = str(tmp_path / "risk.npz")
    assert anubis(home, "train", "--kind", "cox", "--risk-model", model).code == 0
    shown = anubis(home, "show", f"{BAD},new1", "--risk-model", model).out
    assert re.search(rf"{BAD} +gpu 240\.\d +216\.\d +4,344 +19$", shown, re.MULTILINE)
    assert re.search(r"new1 +- +0 +0 +0$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "--kind", "cox-tim"], 'unknown risk model "cox-tim"; did you mean "cox-time"?'),
        (["show", "node01", "--risk-model", "gone.npz"], "there is no risk model"),
        (["evaluate", "--html", "."], '--html "." is a folder: name a file in it'),
        (
            ["evaluate", "--ask", "node03,n99"],
            "no history of 1 of the nodes to test on: n99",
        ),
        (["evaluate", "--ask", "node[00-11]"], "name fewer, none is left to train on"),
    ],
)
def test_impossible_requests_of_risk_are_one_line(anubis, home, words, complaint):
    found = anubis(home, *words)
    assert found.code in NO_VERDICT
    assert complaint in found.err
    assert len(found.err.splitlines()) == 1


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_fleet_without_incidents_trains_no_model_with_one_line(anubis, tmp_path, verb):
    with History.open(f"sqlite:///{tmp_path / 'history.sqlite'}") as history:
        history.only().watches.add(
            [Watch(node=node, since=time.time() - 200 * DAY_S) for node in NODES]
        )
    found = anubis(tmp_path, verb)
    assert found.code == 2
    assert "uptimes ended in an incident, expected at least 1" in found.err
    assert len(found.err.splitlines()) == 1
    assert not found.out


def test_a_single_incident_leaves_the_base_rate_and_a_reason_that_can_be_read(anubis, tmp_path):
    at = time.time() - 150 * DAY_S
    with History.open(f"sqlite:///{tmp_path / 'history.sqlite'}") as history:
        history.only().incidents.add([Incident(node=BAD, category="gpu", start=at, end=at + DAY_S)])
        history.only().watches.add([Watch(node=node, since=at - 50 * DAY_S) for node in NODES])
    found = anubis(tmp_path, "train")
    assert found.code == 0
    assert found.out.startswith("exponential ")
    assert "the models cannot be compared, so all nodes get the base rate" in found.err
    assert max(map(len, found.err.splitlines())) < 300


def test_risk_without_a_history_states_the_first_step(anubis, tmp_path):
    found = anubis(tmp_path, "train")
    assert found.code == 2
    assert "import incidents first" in found.err
