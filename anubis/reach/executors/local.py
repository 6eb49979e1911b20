"""Executor of steps on this machine: one guardian process for each, and a selector to wait for
them.

It keeps no thread and no state on disk. A driver that dies, even by SIGKILL, closes the guardians'
stdin by dying, and they end what they guard.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from anubis.core.campaign.state_machine import CampaignEvent, KeptWaiting, Kill, Launch, Started
from anubis.core.errors import ExecutorError
from anubis.core.records import Node
from anubis.reach.executors import guardian
from anubis.reach.executors.executor import SteadyClock
from anubis.reach.executors.forked_python import ForkedPython
from anubis.reach.executors.machine import Machine, describe, free_port
from anubis.reach.executors.programs import (
    Parse,
    ProgramOutcome,
    event_of,
    failed_event,
    order,
    outcome_in,
    processes_on_each,
)
from anubis.reach.executors.start_settings import Program, Rendezvous, StartSettings

LOOPBACK = "127.0.0.1"  # a group of one node meets no other node
LOOK_EVERY_S = 1.0  # the caller may want to stop
GRANT_EVERY_S = 5.0  # a campaign allows more than that for silence
CLOSE_PATIENCE_S = guardian.KILL_PATIENCE_S + 2  # the guardian kills first
# the guardian from Python's cache: a script is compiled anew at each start
COMPILED = """
import sys
from _frozen_importlib_external import SourceFileLoader
exec(SourceFileLoader("__main__", sys.argv[1]).get_code("__main__"))
"""


def this_machine(sku: str = "") -> Node:
    """Return this machine as a node; its hardware's own name unless a sku is handed in."""
    machine = described_here()
    return Node(name=machine.hostname, sku=sku or machine.sku, address=LOOPBACK, gpus=machine.gpus)


def described_here() -> Machine:
    try:
        return describe(LOOPBACK, os.environ)
    except RuntimeError as error:
        raise ExecutorError(f"this machine cannot be measured: {error}") from error


class LocalLaunch:
    """A guardian at work on one launch, and what it has reported so far."""

    def __init__(
        self, launch: Launch, process: subprocess.Popen[bytes], watched: guardian.Watched
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.launch = launch
        self.process = process
        self.watched = watched
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.report = bytearray()
        self.waited_s = 0.0  # as told

    def end(self) -> None:
        self.stdin.close()

    def outcome(self) -> ProgramOutcome:
        self.end()
        self.stdout.close()
        try:
            self.process.wait(timeout=CLOSE_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.end_by_force()
        return outcome_in(self.report)

    def end_by_force(self) -> None:
        guardian.end_with_front(self.process.pid)
        self.process.wait()


class LocalExecutor:
    def __init__(
        self,
        node: Node,
        programs: Mapping[tuple[str, str], Program],
        parse: Parse,
        settings: StartSettings | None = None,
    ) -> None:
        self._settings = settings or StartSettings()
        self._node = node
        self._programs = programs
        self._parse = parse
        self._machine = described_here()
        self._clock = SteadyClock()
        self._running: dict[tuple[str, int], LocalLaunch] = {}
        self._selector = selectors.DefaultSelector()
        self._events: list[CampaignEvent] = []
        self._forked = ForkedPython()

    def nodes(self) -> tuple[Node, ...]:
        return (self._node,)

    def absent(self) -> dict[str, str]:
        return {}

    def now(self) -> float:
        return self._clock.now()

    def launch(self, launch: Launch) -> None:
        step, attempt = launch.step, launch.attempt
        program = self._programs[step.workload.benchmark, step.workload.version]
        meets = program.spec.launcher == "torchrun"
        rendezvous = self._pair_test() if meets else None
        program_order = order(
            program, launch.parameters, step.timeout_s, self._machine, rendezvous, self._settings
        )
        program_order["longest_s"] = guardian.MOST_TIMES_LIMIT * step.timeout_s
        program_order = self._forked.lend(program_order, guardian.remove_secrets(os.environ))
        file = str(Path(guardian.__file__).resolve())
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", COMPILED, file],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as error:
            reason = f"no guardian could be started for {program.spec.name}: {error}"
            self._events.append(failed_event(launch, self.now(), reason, infrastructure=True))
            return
        running = LocalLaunch(launch, process, guardian.Watched(process.pid, program_order))
        with suppress(BrokenPipeError):  # it died already: its silence is reported like any other
            running.stdin.write(json.dumps(program_order).encode() + b"\n")
        self._running[step.id, attempt] = running
        self._selector.register(running.stdout, selectors.EVENT_READ, running)
        self._events.append(Started(step_id=step.id, attempt=attempt, at=self.now()))

    def _pair_test(self) -> Rendezvous:
        return Rendezvous(
            address=LOOPBACK,
            port=free_port(LOOPBACK, self._settings.ports),
            processes=processes_on_each([self._machine]),
        )

    def kill(self, kill: Kill) -> None:
        running = self._running.get((kill.step_id, kill.attempt))
        if running is not None:
            running.end()

    def wait(self, until: float) -> list[CampaignEvent]:
        while not self._events and (left := until - self.now()) > 0:
            self._read(left)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        for running in self._running.values():
            running.end()
        deadline = self.now() + CLOSE_PATIENCE_S
        while self._running and (left := deadline - self.now()) > 0:
            self._read(left)
        for running in self._running.values():
            running.end_by_force()
        self._forked.end()

    def _read(self, patience_s: float) -> None:
        if not self._running:
            time.sleep(patience_s)
            return
        for key, _ in self._selector.select(min(patience_s, LOOK_EVERY_S)):
            running: LocalLaunch = key.data
            data = running.stdout.read(1 << 20)
            running.report += data
            if not data:
                self._settle(running)
        for running in [*self._running.values()]:
            if not running.watched.is_due():
                running.report[:] = running.watched.end()
                self._settle(running)
            elif running.watched.waited_s > running.waited_s + GRANT_EVERY_S:
                self._grant(running)

    def _grant(self, running: LocalLaunch) -> None:
        step, attempt = running.launch.step, running.launch.attempt
        running.waited_s = running.watched.waited_s
        self._events.append(
            KeptWaiting(step_id=step.id, attempt=attempt, at=self.now(), waited_s=running.waited_s)
        )

    def _settle(self, running: LocalLaunch) -> None:
        step = running.launch.step
        self._selector.unregister(running.stdout)
        del self._running[step.id, running.launch.attempt]
        spec = self._programs[step.workload.benchmark, step.workload.version].spec
        event = event_of(running.outcome(), running.launch, spec, self.now(), self._parse)
        self._events.append(event)
