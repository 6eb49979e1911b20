"""Answer gates in a separate process: with ten thousand nodes in the history one gate computes for
a second, and no other request must wait for it. A gate may also start tests, in processes of their
own, and a pod asks for all pods of its gang.

What one token names counts for that token alone: another one can neither put a bad node into its
gang nor have the gang forgotten.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from anubis.core.errors import UsageError
from anubis.core.select.decision import Decision
from anubis.operations.gate import gate
from anubis.operations.names import new_name
from anubis.operations.requests import GateRequest, Terms
from anubis.operations.verb_processes import begin
from anubis.report.gate import gate_fields
from anubis.report.json import json_line
from anubis.service.problems import Refused
from anubis.service.requester import OpenHistory, Requester

PATIENCE_S = 25.0  # of the requester; the service gives up every answer after 30 s


@dataclass(frozen=True, kw_only=True)
class GateQuestion:
    history_url: str
    token: str
    request: GateRequest
    terms: Terms
    file: str = ""
    """The cluster's file, if the service was given one: the terms have only the name."""


@dataclass(frozen=True, kw_only=True)
class GateReply:
    line: str  # the document
    answer: str
    decision: Decision  # not kept so far
    needs_tests: bool


def reply(question: GateQuestion) -> GateReply:
    """Answer from the history alone. Nothing is written: the service has one writer, and a second
    one would wait long until the first is idle."""
    requester = Requester(open_history(question.history_url), question.token, ())
    request = replace(question.request, may_test=False)
    result = gate(request, question.terms, requester, is_kept=False, file=question.file)
    return GateReply(
        line=json_line("gate", gate_fields(result)),
        answer=result.answer,
        decision=result.decision,
        needs_tests=bool(result.missing_tests),
    )


@cache
def open_history(url: str) -> OpenHistory:
    return OpenHistory.open(url)


class OneProcess(ProcessPoolExecutor):
    """A process that computes answers. It is spawned and not forked: a fork would copy the locks of
    the service's threads."""

    def __init__(self) -> None:
        context = get_context("spawn")
        end, self._own_end = context.Pipe(duplex=False)
        super().__init__(1, mp_context=context, initializer=_end_with_service, initargs=(end,))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the process at once: nobody waits for what it computes."""
        self._own_end.close()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _end_with_service(end: Connection) -> None:
    """End this process when the service stops or ends in any way; ignore Ctrl-C at its terminal.
    `end`: of a pipe, whose other end the service has."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait_for_its_end, args=(end,), daemon=True).start()


def _wait_for_its_end(end: Connection) -> None:
    end.poll(None)
    os.kill(os.getpid(), signal.SIGKILL)


class Gates:
    def __init__(self, *, in_process: bool = False, patience_s: float = PATIENCE_S) -> None:
        self._executor: Executor = ThreadPoolExecutor(1) if in_process else OneProcess()
        self._patience_s = patience_s

    def stop(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: GateQuestion) -> GateReply:
        """Compute a gate. One whose requester has stopped waiting is dropped: it would delay
        others."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience_s):
                return await loop.run_in_executor(self._executor, reply, question)
        except TimeoutError:
            raise Refused(503, "too many gates are asked for: ask again later") from None
        except BrokenProcessPool:
            self._executor = OneProcess()
            raise Refused(503, "the process that answers gates had ended: ask again") from None


MOST_AT_ONCE = 8  # each loads numpy and the history


class StartedTests:
    """The processes that this service started and that have not ended."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def start(self, words: Sequence[str], history_url: str, now: float) -> None:
        with self._lock:
            self._running = [process for process in self._running if process.poll() is None]
            if len(self._running) >= MOST_AT_ONCE:
                raise UsageError(
                    f"{MOST_AT_ONCE} gates of this service run tests now: wait until one ends"
                )
            self._running.append(begin(words, history_url, new_name(words[0], now)))


REMEMBERED_S = 600.0  # pods of a gang ask within minutes
MOST_GANGS, MOST_NODES = 10_000, 10_000  # more than a cluster starts within minutes


class Gang(NamedTuple):
    cluster: str
    token: str  # by its name
    name: str  # empty: no gang


class Gangs:
    """Gangs of pods, in memory: after a restart of the service, the pods are judged one by one."""

    def __init__(self) -> None:
        self._asked: OrderedDict[Gang, dict[str, float]] = OrderedDict()

    def together(self, gang: Gang, nodes: Sequence[str], at: float) -> tuple[str, ...]:
        """The nodes, and those that asked for the same gang before them."""
        members = self._asked.get(gang, {})
        lately = (name for name, asked_at in members.items() if at - asked_at < REMEMBERED_S)
        return tuple(dict.fromkeys((*nodes, *lately)))

    def note(self, gang: Gang, nodes: Sequence[str], at: float, *, is_stopped: bool) -> None:
        """Remember who asked. A gang that was stopped is forgotten: its pods begin anew, maybe
        elsewhere."""
        if is_stopped or not gang.name:
            self._asked.pop(gang, None)
            return
        members = self._asked.setdefault(gang, {})
        members.update(dict.fromkeys(nodes, at))
        self._asked.move_to_end(gang)
        if len(members) > MOST_NODES:
            members.clear()
        if len(self._asked) > MOST_GANGS:
            self._asked.popitem(last=False)
