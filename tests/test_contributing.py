"""CONTRIBUTING.md names files, classes and options that there are."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
import typer

import anubis
from anubis.cli import diagnose, main
from anubis.config import configs
from anubis.core.errors import ConfigError
from anubis.core.keep.messages import KeeperMessage, Topic
from anubis.operations.caller import NO_CALLER
from anubis.operations.diagnose import DiagnosisRequest
from anubis.operations.notify import deliver
from anubis.operations.owners import orchestrator_of, owner_name
from anubis.reach import notifiers, orchestrators
from anubis.reach.notifiers.notifier import notifier_kinds
from anubis.reach.orchestrators.orchestrator import (
    job_of_this_process,
    orchestrator_kinds,
)
from anubis.readers import jobs
from anubis.readers.jobs.trace_reader import trace_readers
from anubis.store.history import History

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:\.venv/bin/python )?(?:\./)?(?:[a-z_]+/)+[\w.-]*)(?: [^`]*)?`")


def test_every_path_it_names_is_there():
    paths = set(PATH.findall(TEXT)) | set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert len(paths) > 25
    assert not {path for path in paths if not (ROOT / path.split()[-1]).exists()}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("class ExecutorError", "anubis/core/errors.py"),
        ("CLUSTERS", "anubis/config/configs.py"),
        ("class Draft", "anubis/readers/topology/draft.py"),
        ("class Survey", "anubis/readers/topology/draft.py"),
        ("class PolicyKeys", "anubis/core/records.py"),
        ("class Collector", "anubis/core/diagnose/evidence.py"),
        ("class JobEvidence", "anubis/core/diagnose/evidence.py"),
        ("TRACE", "anubis/readers/jobs/xpu_timer.py"),
        ("class OrchestratorSettings", "anubis/reach/orchestrators/orchestrator.py"),
        ("ORCHESTRATOR", "anubis/reach/orchestrators/hosts.py"),
        ("def run_command", "anubis/reach/orchestrators/site_commands.py"),
        ("class OrchestratorError", "anubis/core/errors.py"),
        ("KeptEvent", "anubis/core/history/events.py"),
        ("def _note", "anubis/core/keep/keeper.py"),
        ("class NotifierSettings", "anubis/reach/notifiers/notifier.py"),
        ("NOTIFIER", "anubis/reach/notifiers/webhook.py"),
        ("class NotifyError", "anubis/core/errors.py"),
        ("RULES", "anubis/core/diagnose/hang.py"),
        ("def near", "tests/edges/conftest.py"),
        ("def desk", "tests/edges/conftest.py"),
    ],
)
def test_every_name_it_uses_is_there(name, file):
    assert name.split()[-1] in TEXT
    assert name in (ROOT / file).read_text()


def test_every_option_it_gives_a_script_is_one():
    options = re.findall(r"\./(scripts/[a-z]+) (--[a-z]+)", TEXT)
    assert options
    assert all(option in (ROOT / script).read_text() for script, option in options)


def test_a_test_on_real_data_names_a_twin_that_always_runs():
    tests = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/*/test_*.py"))
    twins = set(re.findall(r'\bmark\.twin\(\s*"(\w+)"', tests))
    assert len(twins) > 10
    for twin in twins:
        before, _ = tests.split(f"\ndef {twin}(")
        decorators = takewhile(lambda line: line[:1] in ("@", " ", ")"), before.split("\n")[::-1])
        assert "twin" not in "".join(decorators), twin


COLLECTOR = """
from anubis.core.diagnose.evidence import Collector, JobEvidence, ProcessState, Pulse
from anubis.readers.jobs.trace_reader import TraceReader


def read_roll_call(path, context):
    gone = [int(line) for line in path.read_text().split()]
    states = tuple(ProcessState(rank=rank, pulse=Pulse.STOPPED) for rank in gone)
    collectors = frozenset({Collector.PROCESSES})
    return JobEvidence(collectors=collectors, processes=states)


TRACE = TraceReader(
    place="roll-call",
    words="a roll call",
    help="Ranks that did not answer.",
    brings=(Collector.PROCESSES,),
    order=20,
    read=read_roll_call,
)
"""


@pytest.fixture
def another_collector(tmp_path, monkeypatch):
    """A file beside the shipped ones, as CONTRIBUTING has it, and nothing else."""
    (tmp_path / "roll_call.py").write_text(COLLECTOR)
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    derived = (trace_readers, diagnose.trace_options)
    for kept in derived:
        kept.cache_clear()
    yield
    monkeypatch.undo()
    for kept in derived:
        kept.cache_clear()


def test_a_collector_is_one_file(another_collector, tmp_path, monkeypatch):
    verb = main.command().commands["diagnose"]
    options = {option.opts[0]: option for option in verb.get_params(typer.Context(verb))}
    assert options["--roll-call"].help == "Ranks that did not answer."

    (tmp_path / "absent").write_text("2")
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"places: {{roll-call: '{tmp_path}/{{job}}'}}")
    request = DiagnosisRequest(job="absent", nodes=("n0", "n1"), ranks_per_node=2)
    told = anubis.diagnose_job(replace(request, policy=str(policy)))
    named = anubis.diagnose_job(replace(request, places={"roll-call": tmp_path / "absent"}))
    for view in (told, named):
        assert [(whom.rank, whom.node) for whom in view.diagnosis.culprits] == [(2, "n1")]

    (tmp_path / "empty").write_text("")
    silent = anubis.diagnose_job(replace(request, places={"dumps": tmp_path}))
    assert "--roll-call" in silent.diagnosis.gaps["processes"]


NOTIFIER = '''
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anubis.reach.notifiers.notifier import NotifierSettings


@dataclass(frozen=True, kw_only=True)
class BookSettings(NotifierSettings):
    """A line in a file for each message."""

    notifier: Literal["book"]
    file: str
    """The file."""

    def check(self):
        pass

    def send(self, message, cluster):
        with Path(self.file).open("a") as book:
            book.write(f"{message.sentence}\\n")


NOTIFIER = BookSettings
'''


def test_a_notifier_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "book.py").write_text(NOTIFIER)
    settings, book = tmp_path / "ours.yaml", tmp_path / "lines"
    settings.write_text(f"{{notifier: book, file: {book}, topics: [drain, ticket]}}")
    message = KeeperMessage(key="1", at=0.0, topic=Topic.DRAIN, subject="n1", sentence="n1 is out")
    with monkeypatch.context() as patch:
        patch.setattr(notifiers, "__path__", [*notifiers.__path__, str(tmp_path)])
        notifier_kinds.cache_clear()
        ours = configs.notifier(str(settings))
    notifier_kinds.cache_clear()
    with History.open(str(tmp_path / "history.sqlite")) as history:
        part = history.cluster("mine")
        part.messages.post([message, replace(message, key="2", topic=Topic.SUSPECT)])
        for _ in range(2):
            deliver(part, ours, NO_CALLER)
    assert book.read_text() == "n1 is out\n"
    with pytest.raises(ConfigError, match="webhook"):
        configs.notifier(str(settings))


ORCHESTRATOR = '''
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anubis.core.keep.keeper_events import FleetSeen, SeenNode
from anubis.reach.orchestrators.orchestrator import UNKNOWN_SKUS
from anubis.reach.orchestrators.orchestrator import OrchestratorKind, OrchestratorSettings


@dataclass(frozen=True, kw_only=True)
class BoardSettings(OrchestratorSettings):
    """A board: a file for each node, with the reason why it is out."""

    kind: Literal["board"]
    folder: str
    """The board."""


class BoardOrchestrator:
    def __init__(self, settings, skus=UNKNOWN_SKUS):
        self.folder, self.skus = Path(settings.folder), skus

    def observe(self):
        files = sorted(self.folder.iterdir())
        nodes = {f.name: SeenNode(sku=self.skus.find(f.name), cordon=f.read_text()) for f in files}
        return FleetSeen(at=0.0, nodes=nodes)

    def cordon(self, reasons):
        for node, reason in reasons.items():
            (self.folder / node).write_text(reason)
        return {}

    def release(self, nodes):
        return self.cordon(dict.fromkeys(nodes, ""))

    def requeue(self, jobs):
        return dict.fromkeys(jobs, "a board has no queue")


ORCHESTRATOR = OrchestratorKind(
    settings=BoardSettings, open=BoardOrchestrator, title="the board", job_variable="BOARD_JOB"
)
'''


def test_an_orchestrator_is_one_file_and_its_settings(tmp_path, monkeypatch):
    (tmp_path / "board.py").write_text(ORCHESTRATOR)
    board, cluster = tmp_path / "board", tmp_path / "ours.yaml"
    board.mkdir()
    (board / "n1").write_text("")
    owner = f"{{kind: board, folder: {board}}}"
    cluster.write_text(f"{{executor: ray, nodes: n1, sku: h100, orchestrator: {owner}}}")
    with monkeypatch.context() as patch:
        patch.setattr(orchestrators, "__path__", [*orchestrators.__path__, str(tmp_path)])
        patch.setenv("BOARD_JOB", "17")
        orchestrator_kinds.cache_clear()
        described = configs.cluster(str(cluster))
        ours = orchestrator_of(described)
        assert owner_name(described) == "the board"
        assert job_of_this_process() == "17"
    orchestrator_kinds.cache_clear()
    ours.cordon({"n1": "anubis[GEMM.SLOW]: slow"})
    (seen,) = ours.observe().nodes.values()
    assert (seen.sku, seen.is_cordoned_by_anubis) == ("h100", True)
    with pytest.raises(ConfigError, match="hosts, kubernetes, slurm"):
        configs.cluster(str(cluster))
