"""A small training job on the hosts of a test bed, and what can go wrong with it at one host.

with Bed(4, "--no-ray", "--proc") as bed, TrainingJob(bed) as job:
    with job.stopped("node3"):
        ...
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from urllib.request import ProxyHandler, build_opener

from anubis.readers.telemetry.agents import Agents
from anubis.readers.telemetry.config import AgentSettings, shipped_settings
from anubis.readers.telemetry.pulled import PulledTelemetry
from tests.edges.bed import REPOSITORY, Bed
from tests.patience import LIMIT_S

PROGRAM = Path(__file__).with_name("training_job.py")
AGENT = REPOSITORY / "benchmarks" / "telemetry"
PORT, AGENT_PORT = 29500, 9841
METRICS = ("send_queue", "cpu_use", "memory_use", "tcp_throughput")
START_LIMIT_S = 90.0
CORES = os.cpu_count() or 1
TENTH = f"{max(0.01, round(0.1 / CORES, 2)):g}"  # of one core, as a share of all
SLOW_LINK = "50mbit"


class TrainingJob:
    """A process a host. A fault lasts as long as the block runs; a killed process stays gone."""

    def __init__(self, bed: Bed, *options: str) -> None:
        self.nodes = bed.nodes
        self._bed = bed
        self._options = options
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> TrainingJob:
        try:
            for rank, node in enumerate(self.nodes):
                self._processes[node] = self._start(rank, node)
            self._await()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _start(self, rank: int, node: str) -> subprocess.Popen[str]:
        master = f"{self._bed.address_of(self.nodes[0])}:{PORT}"
        pair_test = ["--rank", str(rank), "--ranks", str(len(self.nodes)), "--master", master]
        settings = ["env", "GLOO_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1"]
        program = [sys.executable, str(PROGRAM), *pair_test, *self._options]
        return self._bed.start(node, [*settings, *program])

    def _await(self) -> None:
        """Wait until all train. A process that hangs is ended, and its output so far is shown."""
        late = threading.Timer(START_LIMIT_S, self._kill)
        late.start()
        try:
            for node, process in self._processes.items():
                assert process.stdout is not None
                assert process.stderr is not None
                if process.stdout.readline() != "training\n":
                    self._kill()
                    reason = process.stderr.read()[-2000:]
                    raise AssertionError(f"the job does not train on {node}: {reason}")
        finally:
            late.cancel()

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()  # also one that stands still

    def _end(self) -> None:
        self._kill()
        for process in self._processes.values():
            process.communicate(timeout=LIMIT_S)

    def running(self) -> tuple[str, ...]:
        return tuple(node for node, process in self._processes.items() if process.poll() is None)

    # --- what can go wrong with a host ---

    @contextmanager
    def stopped(self, node: str) -> Iterator[None]:
        self._processes[node].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes[node].send_signal(signal.SIGCONT)

    @contextmanager
    def killed(self, node: str) -> Iterator[None]:
        self._processes[node].kill()
        yield

    def starved(self, node: str) -> AbstractContextManager[None]:
        return self._bed.fault(("slow-cpu", node, TENTH), ("slow-cpu", node, "1"))

    def slow_link(self, node: str) -> AbstractContextManager[None]:
        return self._bed.fault(("slow-link", node, SLOW_LINK), ("mend", node))

    @property
    def faults(self) -> Mapping[str, Callable[[str], AbstractContextManager[None]]]:
        return {
            "stopped": self.stopped,
            "starved": self.starved,
            "slow link": self.slow_link,
            "killed": self.killed,
        }


@contextmanager
def agents(bed: Bed) -> Iterator[Callable[[str], dict[str, float]]]:
    """The agent of each host, which reads that host's own files; gives its last report."""
    started = [_agent(bed, node) for node in bed.nodes]
    try:
        yield lambda node: _latest(bed, node)
    finally:
        for agent in started:
            agent.terminate()
        for agent in started:
            agent.communicate(timeout=LIMIT_S)


def _agent(bed: Bed, node: str) -> subprocess.Popen[str]:
    own = f"ANUBIS_HOST_ROOT={Path(tempfile.gettempdir(), f'testbed-{bed.name}', node)}"
    place = f"{bed.address_of(node)}:{AGENT_PORT}"
    return bed.start(node, ["env", own, sys.executable, str(AGENT), "--listen", place])


def _latest(bed: Bed, node: str) -> dict[str, float]:
    """Nothing before it answers."""
    names, rows = told(bed, node, time.time() - 5)
    values = dict(zip(names, rows[-1][1:], strict=False)) if rows else {}
    return {name: value for name, value in values.items() if value is not None}


def told(bed: Bed, node: str, since: float) -> tuple[list[str], list[list[float | None]]]:
    """The metrics of a host's agent and its samples since then, each behind its time. Asked on the
    host itself, so a slow link does not matter. Nothing if no agent answers."""
    address = f"http://{bed.address_of(node)}:{AGENT_PORT}/samples?since={since:.3f}"
    try:
        with bed.network_of(node), build_opener(ProxyHandler({})).open(address, timeout=5) as page:
            heading, *rows = page.read().decode().splitlines()
    except OSError:
        return [], []
    return json.loads(heading)["metrics"], [json.loads(row) for row in rows]


class AgentsOfBed:
    """The product's path to agents, from the operator's place; nothing from before this was made,
    when another job ran."""

    def __init__(self, bed: Bed) -> None:
        self._bed, self._began = bed, time.time()
        place = AgentSettings(port=AGENT_PORT)
        self._agents = Agents(shipped_settings(), METRICS, place)

    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        addresses = [self._bed.address_of(node) for node in nodes]
        with self._bed.network_of("driver"):
            pulled = self._agents.pull(addresses, until, min(last_s, until - self._began))
        return replace(pulled, telemetry=replace(pulled.telemetry, nodes=tuple(nodes)))
