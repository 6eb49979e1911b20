"""Use cases without a command line: a caller gets remarks and a value, and nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from anubis.cli.terminal import Terminal
from anubis.core.errors import Stopped, UsageError
from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.history import recall, timeline
from anubis.operations.import_ import import_incidents
from anubis.operations.requests import (
    FabricRequest,
    IncidentImport,
    RiskRequest,
    SimulateRequest,
    TrainRiskRequest,
)
from anubis.operations.risk import foresee, train_risk
from anubis.operations.simulate import simulate
from anubis.operations.topology import inspect_fabric
from tests.edges.test_simulate import SCENARIO

DAY_S = 86_400
BEGAN = "2026-01-01T00:00:00Z"
NOW = 1_769_904_000.0  # 31 days later
TABLE = f"""node,category,start,end
n1,gpu,2026-01-05T00:00:00Z,2026-01-05T06:00:00Z
n1,gpu,2026-01-15T00:00:00Z,2026-01-15T06:00:00Z
n2,network,2026-01-20T00:00:00Z,2026-01-20T01:00:00Z
n3,gpu,{BEGAN},never
"""


class Listener(Caller):
    def __init__(self, url: str | None = None) -> None:
        super().__init__(history_url=url, clock=lambda: NOW)
        self.remarks: list[str] = []
        self.doings: list[str] = []

    def remark(self, sentence: str) -> None:
        self.remarks.append(sentence)

    def doing(self, sentence: str) -> None:
        self.doings.append(sentence)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"


@pytest.fixture
def table(tmp_path) -> Path:
    file = tmp_path / "incidents.csv"
    file.write_text(TABLE)
    return file


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd, tmp_path, monkeypatch):
    """Check that nothing is printed. The history at home stays untouched: each use case has
    another."""
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path / "home"))
    yield
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "home").exists()


def test_incidents_are_imported_as_of_a_time_and_omissions_are_remarked(table, url):
    listener = Listener(url)
    taken = import_incidents(IncidentImport(table, nodes=["n1", "n2"]), listener)
    assert (len(taken.intake.incidents), taken.kept.kept.new, taken.strangers) == (3, 3, ())
    assert any(sentence.startswith("left out: 1 record") for sentence in listener.remarks)
    told = timeline(caller=Listener(url))
    assert [(event.nodes, event.kind) for event in told] == [
        (("n1",), "incident"),
        (("n1",), "incident"),
        (("n2",), "incident"),
    ]
    assert timeline(["n2"], caller=Listener(url)) == told[2:]


def test_a_risk_that_is_learned_is_foreseen_as_of_a_time(table, url, tmp_path):
    import_incidents(IncidentImport(table, nodes=["n1", "n2", "n4"]), Listener(url))
    file, listener = tmp_path / "risk.npz", Listener(url)
    learned = train_risk(TrainRiskRequest(model="exponential", file=file), Listener(url))
    assert (learned.model.name, learned.file) == ("exponential", file)
    risks = foresee(RiskRequest(["n1", "n4", "new"], file=file), listener)
    often, never, new = risks.forecast.chances_within([720.0])[:, 0]
    assert 0 < often == never == new < 1  # this model does not look at the nodes
    assert listener.remarks == [
        "the history has no new: forecast as if just added",
        "not watched any more, and up times count until that ended: n1, n4",
    ]


def test_a_past_that_is_not_there_is_one_sentence(url):
    with pytest.raises(UsageError, match="no campaign has finished yet"):
        recall(caller=Listener(url))


@pytest.fixture
def scenario(tmp_path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO)
    return str(file)


def test_every_run_of_a_simulation_is_announced_and_made(scenario):
    listener = Listener()
    study = simulate(SimulateRequest(scenario, seeds=1), listener)
    trials = study.trials()
    assert listener.doings[0].startswith(f"run 1 of {len(trials)}: ")
    assert len(listener.doings) == len(trials)


def test_a_simulation_stops_between_two_runs_when_its_caller_wants_it(scenario):
    class Impatient(Listener):
        def wants_stop(self) -> bool:
            return len(self.doings) == 2

    listener = Impatient()
    with pytest.raises(Stopped, match="stopped after 2 of"):
        simulate(SimulateRequest(scenario, seeds=1), listener)
    assert len(listener.doings) == 2


@pytest.mark.parametrize(
    ("nodes", "judgement"),
    [((), Judgement.HEALTHY), (("nobody-has-this-name",), Judgement.UNKNOWN)],
)
def test_a_fabric_without_some_of_the_nodes_is_not_vouched_for(nodes, judgement):
    assert inspect_fabric(FabricRequest(topology="example", nodes=nodes)).judgement is judgement


def test_in_a_pipe_long_work_reports_its_progress_every_half_minute(monkeypatch, capfd):
    clock = iter([0.0, 10.0, 31.0, 31.0, 45.0, 62.0, 62.0])
    monkeypatch.setattr("anubis.cli.terminal.time.monotonic", lambda: next(clock))
    terminal = Terminal()
    for run in range(4):
        terminal.doing(f"run {run}")
    assert capfd.readouterr().err == "run 1\nrun 3\n"
