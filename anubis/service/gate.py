"""Gates, in a process of their own: with ten thousand nodes in the history one computes for a
second, and nobody else shall wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process

from anubis.core.select.decision import Decision
from anubis.operations.decide import Terms
from anubis.operations.gate import gate
from anubis.operations.gate_answer import fields
from anubis.service.problems import Refused
from anubis.service.requester import Asker, OpenHistory
from anubis.text.wording import json_line

PATIENCE_S = 25.0  # of whoever asks; the service gives every answer up after 30 s


@dataclass(frozen=True, kw_only=True)
class GateQuestion:
    history_url: str
    token: str
    nodes: tuple[str, ...]
    duration_s: float
    terms: Terms
    unknown_passes: bool


@dataclass(frozen=True, kw_only=True)
class GateReply:
    line: str  # the document
    answer: str
    decision: Decision  # nobody has kept it so far
    needs_tests: bool


def reply(question: GateQuestion) -> GateReply:
    """From the history alone. Nothing is written: the service has one writer, and another one would
    wait long for a moment at which that one is idle."""
    result = gate(
        question.nodes,
        question.duration_s,
        question.terms,
        unknown_passes=question.unknown_passes,
        may_test=False,
        is_kept=False,
        caller=Asker(opened(question.history_url), question.token, ()),
    )
    return GateReply(
        line=json_line("gate", fields(result)),
        answer=result.answer,
        decision=result.decision,
        needs_tests=bool(result.missing_tests),
    )


@cache
def opened(url: str) -> OpenHistory:
    return OpenHistory.open(url)


def beside() -> Executor:
    """Begun anew, not forked: threads of the service would leave their locks behind."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_service)


def _end_with_service() -> None:
    """However that ends; Ctrl-C at its terminal is not for this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait_for_its_end, daemon=True).start()


def _wait_for_its_end() -> None:
    if service := parent_process():
        service.join()
    os.kill(os.getpid(), signal.SIGKILL)


class Gates:
    def __init__(self, *, in_process: bool = False, patience_s: float = PATIENCE_S) -> None:
        self._executor: Executor = ThreadPoolExecutor(1) if in_process else beside()
        self._patience_s = patience_s

    def stop(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: GateQuestion) -> GateReply:
        """A gate that nobody waits for any more is not computed: it would keep others waiting."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience_s):
                return await loop.run_in_executor(self._executor, reply, question)
        except TimeoutError:
            raise Refused(503, "too many gates are asked for: ask again later") from None
        except BrokenProcessPool:
            self._executor = beside()
            raise Refused(503, "the process that answers gates had ended: ask again") from None
