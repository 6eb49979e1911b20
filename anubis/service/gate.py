"""Answer gates in a separate process: with ten thousand nodes in the history one gate computes for
a second, and no other request must wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context, parent_process

from anubis.core.select.decision import Decision
from anubis.operations.gate import gate
from anubis.operations.requests import GateRequest, Terms
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
    result = gate(request, question.terms, requester, is_kept=False)
    return GateReply(
        line=json_line("gate", gate_fields(result)),
        answer=result.answer,
        decision=result.decision,
        needs_tests=bool(result.missing_tests),
    )


@cache
def open_history(url: str) -> OpenHistory:
    return OpenHistory.open(url)


def make_executor() -> Executor:
    """Make a pool of one process, spawned and not forked: a fork would copy the locks of the
    service's threads."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_service)


def _end_with_service() -> None:
    """End this process when the service ends, in any way; ignore Ctrl-C at its terminal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait_for_its_end, daemon=True).start()


def _wait_for_its_end() -> None:
    if service := parent_process():
        service.join()
    os.kill(os.getpid(), signal.SIGKILL)


class Gates:
    def __init__(self, *, in_process: bool = False, patience_s: float = PATIENCE_S) -> None:
        self._executor: Executor = ThreadPoolExecutor(1) if in_process else make_executor()
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
            self._executor = make_executor()
            raise Refused(503, "the process that answers gates had ended: ask again") from None
