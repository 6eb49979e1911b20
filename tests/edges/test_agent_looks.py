"""Agents that look at a job, over real HTTP: what is believed of their answers, and whom they
name."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from telemetry.page import AgentServer

import anubis
from anubis.core.history.events import EventRecord, JobAllocated, JobStalled
from anubis.operations.caller import Caller
from anubis.operations.clusters import resolve
from anubis.operations.diagnose import DiagnosisRequest
from anubis.operations.tell import note
from anubis.readers.jobs import agent_looks
from anubis.readers.jobs.agent_looks import AgentLooks, ask_agents
from anubis.readers.jobs.live import LiveLook
from anubis.readers.telemetry.agents import AgentClient
from anubis.readers.telemetry.config import AgentSettings
from anubis.report import diagnose as report
from tests.diagnosis.test_live import machine

TOKEN = "a token of the site"
NODES = tuple(f"127.0.2.{number}" for number in range(1, 5))  # each an address, and a host's name
GOES_ON = (202, "application/json", '{"looks": 1}\n')
HUGE = gzip.compress(bytes(200 << 20), compresslevel=1)

Answer = tuple[int, str, str | bytes]


class FakeLooks:
    """An agent whose look ends at the second question."""

    def __init__(self, content: bytes | None) -> None:
        self._content, self._asked = content, 0

    def answer(self, verb: str, name: str) -> Answer:
        if name != "4711":
            return 404, "text/plain", f"no process and no folder of job {name} here\n"
        self._asked += 1
        if verb == "POST" or self._asked < 3 or self._content is None:
            return GOES_ON
        return 200, "application/gzip", self._content


def look(*ranks: int, late: int = 6, **more: object) -> LiveLook:
    """Two ranks of eight on a node. All but one wait, since long."""
    seen = machine("some-pod", *ranks, late=late, quiet_s=30.0)
    answers = (
        replace(answer, rank=replace(answer.rank, world=8, here=2)) for answer in seen.answers
    )
    known: dict[str, object] = {"answers": tuple(answers), "at": time.time(), "hangs": True, **more}
    return replace(seen, **known)  # type: ignore[arg-type]


def packed(look: LiveLook) -> bytes:
    return gzip.compress(json.dumps(asdict(look)).encode())


def same_as_third() -> bytes:
    return packed(look(4, 5))


def truths() -> dict[str, bytes | None]:
    return {node: packed(look(2 * n, 2 * n + 1)) for n, node in enumerate(NODES)}


@contextmanager
def agents(contents: Mapping[str, bytes | None], folder: Path) -> Iterator[AgentSettings]:
    """Agents at one port. `None`: a look that does not end."""
    (folder / "token").write_text(TOKEN)
    servers, port = [], 0
    for node, content in contents.items():
        server = AgentServer(
            (node, port), tuple, lambda _: iter(()), TOKEN, looks=FakeLooks(content)
        )
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
    try:
        yield AgentSettings(port=port, token_file=str(folder / "token"))
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def asked(contents: Mapping[str, bytes | None], folder: Path, deadline_s: float = 60) -> AgentLooks:
    with agents(contents, folder) as settings:
        client = AgentClient(settings)
        return ask_agents("4711", NODES, client, deadline_s=deadline_s, every_s=0.02)


def test_ranks_are_on_the_node_whose_agent_reports_them(tmp_path: Path):
    seen = asked(truths(), tmp_path)
    assert seen.silent == {}
    hosts = {
        answer.rank.rank: answer.rank.host
        for look in seen.looks.values()
        for answer in look.answers
    }
    assert hosts == {rank: NODES[rank // 2] for rank in range(8)}


def test_an_agent_that_is_not_there_or_does_not_end_is_missing(tmp_path: Path):
    contents = truths() | {NODES[1]: None}
    del contents[NODES[3]]
    seen = asked(contents, tmp_path, deadline_s=0.6)
    assert seen.silent == {
        NODES[1]: "its look did not end within 0.6 s",
        NODES[3]: "Connection refused",
    }
    assert seen.looks.keys() == {NODES[0], NODES[2]}


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (same_as_third, "reports ranks that 127.0.2.3 reports, too"),
        (lambda: packed(look(*range(8))), "reports ranks that 127.0.2.1 reports, too"),
        (lambda: packed(look(2, 3, at=1e9)), "its clock is off"),
        (lambda: packed(look(2, 3, at=2e9)), "its clock is off"),
        (lambda: packed(look(2, 2)), "ranks that cannot be"),
        (lambda: packed(look(2, -1)), "ranks that cannot be"),
        (lambda: packed(look()), "ranks that cannot be"),
        (lambda: HUGE, "unpacks to more than"),
        (lambda: gzip.compress(b"[" + b"[]," * 2_000_000 + b"[]]"), "too many parts"),
        (lambda: gzip.compress(b'{"at": 1}'), 'the key "answers" is missing'),
        (lambda: b"\x1f\x8b no gzip", "it is not a complete gzip"),
        (lambda: b"<html>", "cannot be read"),
        (lambda: bytes(9 << 20), "larger than 8 MiB"),
    ],
)
def test_a_look_that_cannot_be_is_missing_with_the_reason(
    lie: Callable[[], bytes], why: str, tmp_path: Path
):
    seen = asked(truths() | {NODES[1]: lie()}, tmp_path)
    assert why in seen.silent[NODES[1]]
    disputed = {NODES[2]} if lie is same_as_third else set()  # of two, neither is believed
    assert seen.looks.keys() == set(NODES) - {NODES[1]} - disputed


def test_all_looks_together_have_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agent_looks, "MOST_TOGETHER", 3 * len(packed(look(0, 1))))
    assert len(asked(truths(), tmp_path).looks) in (2, 3)


# --- from the question to the answer ---------------------------------------------------------


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    monkeypatch.setattr(agent_looks, "EVERY_S", 0.02)
    monkeypatch.setattr(ask_agents, "__kwdefaults__", {"deadline_s": 60.0, "every_s": 0.02})
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db")
    with caller.history() as history:
        resolve(history, None, caller).watches.begin(NODES, time.time() - 86_400)
    return caller


@contextmanager
def site(contents: Mapping[str, bytes | None], home: Path) -> Iterator[None]:
    with agents(contents, home) as settings:
        file = home / "configs" / "telemetry" / "default.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        stated = {"port": settings.port, "token_file": settings.token_file}
        file.write_text(yaml.safe_dump({"based_on": "default", "agents": stated}))
        yield


def test_agents_name_the_rank_that_all_wait_for_and_its_node(caller: Caller, tmp_path: Path):
    with site(truths(), tmp_path):
        view = anubis.diagnose_job(DiagnosisRequest(job="4711", nodes=NODES), caller)
    assert [(whom.node, whom.rank) for whom in view.diagnosis.culprits] == [(NODES[3], 6)]
    assert dict(report.ten_lines(view))["asked"] == "all 4 nodes answered"


def test_ranks_of_a_missing_node_are_not_named(caller: Caller, tmp_path: Path):
    contents = truths()
    del contents[NODES[3]]
    with site(contents, tmp_path):
        view = anubis.diagnose_job(DiagnosisRequest(job="4711", nodes=NODES), caller)
    assert view.diagnosis.culprits == ()
    assert report.headline(view).startswith("job 4711 hangs, and no culprit")
    said = "3 of 4 nodes answered; not 127.0.2.4: Connection refused"
    assert dict(report.ten_lines(view))["asked"] == said


def test_a_reported_stall_is_diagnosed_by_the_keeper_with_the_agents(
    caller: Caller, tmp_path: Path
):
    with caller.history() as history:
        begins = JobAllocated(nodes=NODES, duration_s=3600.0, job="4711")
        note(
            [EventRecord(id="b", at=time.time() - 60, event=begins)], resolve(history, None, caller)
        )
    keeping = anubis.keeping_of(anubis.KeepRequest(), caller)
    changed = replace(keeping.policy, diagnose="default")
    keeping = replace(keeping, chosen=replace(keeping.chosen, policy=changed))
    anubis.tell(anubis.Telling(event=JobStalled(nodes=(), job="4711")), caller)
    with site(truths(), tmp_path):
        (made,) = anubis.diagnose_due(keeping, caller)
    assert made.past.headline == f"job 4711 hangs: rank 6 on {NODES[3]}"
    assert made.past.nodes == (NODES[3],)
