"""The ring of a job, the agents on its nodes, and the places of running jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.errors import TelemetryError, UsageError
from anubis.core.keep.keeper_events import FleetSeen, SeenJob
from anubis.core.watch.telemetry import Telemetry
from anubis.operations.owners import nodes_of, running_jobs
from anubis.readers.telemetry.agents import Agents
from anubis.readers.telemetry.config import AgentSettings, shipped_settings
from anubis.readers.telemetry.pulled import PulledTelemetry, TelemetryRing
from anubis.readers.telemetry.recorded import read_recording
from tests.edges.prometheus_server import free_port
from tests.patience import LIMIT_S, eventually

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests/telemetry/agent.jsonl"
SETTINGS = shipped_settings()
START = 1_700_000_000.0


# --- the ring --------------------------------------------------------------------------------


def day(points=4000, nodes=3):
    random = np.random.default_rng(7)
    return Telemetry(
        metrics=SETTINGS.watched_metrics(["gpu_duty", "cpu_use"]),
        nodes=tuple(f"n{n}" for n in range(nodes)),
        start=START,
        step_s=1.0,
        values=random.random((2, nodes, points)).astype(np.float32),
    )


class Played:
    """A source that has all of it, save what is late: the newest 30 s are half there."""

    def __init__(self, telemetry):
        self.telemetry, self.pulls = telemetry, []

    def pull(self, nodes, until, last_s):
        self.pulls.append(last_s)
        whole = self.telemetry.only(nodes)
        first, last = (round(t - whole.start) for t in (until - last_s, until))
        first = max(0, first)
        values = whole.values[:, :, first : last + 1].copy()
        values[:, :, -30::2] = np.nan
        return PulledTelemetry(telemetry=replace(whole, start=whole.start + first, values=values))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=6), st.integers(60, 1200))
def test_a_ring_gives_the_data_of_its_source_with_late_values_corrected(pauses, last_s):
    source = Played(day(12_000))
    ring, until = TelemetryRing(source, 1200.0), START + 1300
    for pause in pauses:
        until += pause
        pulled = ring.pull(source.telemetry.nodes, until, last_s).telemetry
        direct = source.telemetry.values[:, :, round(until - START) - last_s :][..., : last_s + 1]
        assert pulled.end == until
        np.testing.assert_array_equal(pulled.values[..., :-30], direct[..., :-30])
        known = ~np.isnan(pulled.values)
        np.testing.assert_array_equal(pulled.values[known], direct[known])


def test_a_ring_requests_only_new_data_and_one_minute_more():
    source = Played(day())
    ring = TelemetryRing(source, 1200.0)
    for look in range(3):
        ring.pull(source.telemetry.nodes, START + 1300 + 480 * look, 900)
    assert source.pulls == [1200, 540, 540]


def test_a_ring_begins_anew_for_other_nodes_and_after_a_long_silence():
    source = Played(day())
    ring = TelemetryRing(source, 1200.0)
    ring.pull(["n0", "n1"], START + 1300, 900)
    pulled = ring.pull(["n0", "n2"], START + 1400, 900).telemetry
    np.testing.assert_array_equal(
        pulled.values[1, 1][:-30], source.telemetry.values[1, 2, 500:1401][:-30]
    )
    ring.pull(["n0", "n2"], START + 3500, 900)
    assert source.pulls == [1200, 1200, 1200]


# --- agents ----------------------------------------------------------------------------------


@contextmanager
def serving(answer):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_words):
            pass

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def agents(port, names=("cpu_use", "gpu_duty"), **how):
    return Agents(SETTINGS, names, AgentSettings(port=port, **how))


def test_the_recorded_example_is_read_from_an_agent_and_from_its_file():
    recorded = read_recording(EXAMPLE, SETTINGS, ["gpu_duty", "gpu_duty:worst", "pfc_tx"])
    assert recorded.telemetry.nodes == ("node017",)
    first, last = (recorded.telemetry.series("gpu_duty:worst")[0][place] for place in (0, -1))
    assert first == 90
    assert np.isnan(last)  # GPU 5 fell off the bus
    end = recorded.telemetry.end
    with serving(lambda _: (200, EXAMPLE.read_bytes())) as port:
        pulled = agents(port, ["gpu_duty", "pfc_tx"]).pull(["localhost"], end, 60)
    span = recorded.telemetry.points
    np.testing.assert_array_equal(
        pulled.telemetry.series("gpu_duty")[0][-span:], recorded.telemetry.series("gpu_duty")[0]
    )
    assert "pfc_tx cannot be read, as localhost says: eth0: its driver" in " ".join(pulled.remarks)


def test_a_node_that_does_not_answer_is_silent_and_not_zero():
    with serving(lambda _: (200, EXAMPLE.read_bytes())) as port:
        end = read_recording(EXAMPLE, SETTINGS, ["cpu_use"]).telemetry.end
        pulled = agents(port).pull(["localhost", "no-such-host"], end, 5)
    assert np.isnan(pulled.telemetry.series("cpu_use")[1]).all()
    assert not np.isnan(pulled.telemetry.series("cpu_use")[0]).all()
    assert pulled.remarks[0].startswith(
        'the agents of 1 of 2 nodes ("no-such-host") reported nothing:'
    )


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (200, b"", "no heading of an agent"),
        (200, b"<html>\n", "expected JSON"),
        (200, b'{"agent": 2, "node": "n"}\n', "an agent of form 2, expected 1"),
        (200, b'{"agent": 1, "node": "n"}\n', "lacks the node or the metrics"),
        (200, b'{"agent": 1, "node": "n", "metrics": ["a"]}\n[1, "x"]\n', "do not fit the heading"),
        (200, b'{"agent": 1, "node": "n", "metrics": []}\n[1, 2]\n', "do not fit the heading"),
        (200, b"[1,2]\n", "expected a heading"),
        (200, b"[" * 5000 + b"\n", "expected JSON"),
        (401, b"", "it wants another token"),
        (500, b"", "it answered 500"),
    ],
)
def test_nonsense_from_agents_is_reported_in_one_sentence(status, body, sentence):
    with (
        serving(lambda _: (status, body)) as port,
        pytest.raises(TelemetryError, match=sentence) as raised,
    ):
        agents(port).pull(["localhost", "127.0.0.1"], START, 60)
    assert str(raised.value).startswith("none of the 2 agents reported anything, 2 of them")


def test_an_agent_that_hangs_is_given_up_at_its_deadline():
    given_up = Event()

    def hang(_handler):
        given_up.wait(LIMIT_S)
        return 200, b""

    with serving(hang) as port:
        with pytest.raises(TelemetryError, match=r"no answer within 0\.2 s"):
            agents(port, deadline_s=0.2).pull(["localhost"], START, 60)
        given_up.set()


def test_a_real_agent_is_read_with_its_token(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    port, program = free_port(), ROOT / "benchmarks/telemetry"
    words = [sys.executable, program, "--listen", f"127.0.0.1:{port}", "--token-file"]
    process = subprocess.Popen([*map(str, words), str(tmp_path / "token")], env=dict(os.environ))
    source = agents(port, ["cpu_use", "memory_use"], token_file=str(tmp_path / "token"))

    def with_two_samples():
        with suppress(TelemetryError):
            pulled = source.pull(["127.0.0.1"], time.time(), 60)
            if np.count_nonzero(~np.isnan(pulled.telemetry.series("cpu_use"))) >= 2:
                return pulled
        return None

    try:
        pulled = eventually(with_two_samples)
        assert pulled
        assert 0 <= np.nanmin(pulled.telemetry.values) <= np.nanmax(pulled.telemetry.values) <= 100
        with pytest.raises(TelemetryError, match="it wants another token"):
            agents(port).pull(["127.0.0.1"], time.time(), 60)
    finally:
        process.terminate()
        process.wait(LIMIT_S)


# --- jobs and their nodes ----------------------------------------------------------------------


class Owner:
    def observe(self):
        jobs = {
            "17": SeenJob(owner="ann", nodes=("n1", "n2", "n3", "n4"), started_at=5.0),
            "18": SeenJob(owner="", nodes=("n5",)),
        }
        return FleetSeen(at=9.0, nodes={}, jobs=jobs)


def test_an_orchestrator_lists_running_jobs_and_their_nodes():
    large, small = running_jobs(Owner())
    assert (large.id, small.id) == ("17", "18")
    assert (large.owner, large.started_at) == ("ann", 5.0)
    assert nodes_of("17", Owner()) == ("n1", "n2", "n3", "n4")
    with pytest.raises(UsageError, match='no job "71" runs; known: 17, 18'):
        nodes_of("71", Owner())


def test_without_an_orchestrator_the_nodes_of_a_job_have_to_be_named():
    assert running_jobs(None) == ()
    with pytest.raises(UsageError, match="name them with --nodes"):
        nodes_of("17", None)
