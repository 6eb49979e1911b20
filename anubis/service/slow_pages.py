"""Overviews that take long to compute, for the few pages that show them. They are computed on
demand in a separate process, kept for a while, and have their time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import wraps
from typing import Any

from anubis.operations.diagnose_due import last_diagnoses
from anubis.operations.fleet import simulated_clusters
from anubis.operations.history import drift_at_a_glance
from anubis.operations.links import links_at_a_glance
from anubis.operations.risk import risk_at_a_glance
from anubis.operations.tickets import out_of_work
from anubis.operations.watch_rounds import last_looks
from anubis.report import diagnosis_pages, drift, links, risk_page, tickets, watch_rounds
from anubis.report.page import simulated_note
from anubis.service.gate import OneProcess, open_history
from anubis.service.problems import Refused
from anubis.service.requester import Requester
from anubis.service.service_settings import ServiceSettings

KEPT_S = 5.0  # and at least nine times as long as it took
SPARED = 9.0  # times as long as it took: a tenth of a processor at most
PATIENCE_S = 20.0  # then the last one is shown, however old


@dataclass(frozen=True, kw_only=True)
class Question:
    history_url: str
    settings: ServiceSettings

    @property
    def requester(self) -> Requester:
        return Requester(open_history(self.history_url), "", ())

    @property
    def simulated(self) -> str:
        return simulated_note(simulated_clusters(self.requester))


ClusterLine = tuple[str, str]  # a document, after the name of its cluster


@dataclass(frozen=True, kw_only=True)
class Overview:
    at: float
    page: str
    documents: Mapping[str, Sequence[ClusterLine]]  # by their type

    def lines_of(self, kind: str, cluster: str | None) -> list[str]:
        """Lines of one cluster, or of all."""
        return [line for name, line in self.documents[kind] if cluster in (None, name)]


Inquiry = Callable[[Question], Overview]
# a page, what it shows beside the time and the remark on simulated fleets, and documents by type
Answered = tuple[Callable[[Any, float, str], str], Any, Mapping[str, Sequence[ClusterLine]]]


def answers(find: Callable[[ServiceSettings, Requester], Answered]) -> Inquiry:
    """Make an inquiry of a function that finds what its page and documents show."""

    @wraps(find)
    def ask(question: Question) -> Overview:
        requester = question.requester
        at = requester.clock()
        page, shown, documents = find(question.settings, requester)
        return Overview(at=at, page=page(shown, at, question.simulated), documents=documents)

    return ask


@answers
def tickets_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    clusters = out_of_work(settings.policy, requester)
    every = [ticket for cluster in clusters for ticket in (*cluster.tickets, *cluster.closed)]
    buffers = [buffer for cluster in clusters for buffer in cluster.buffers]
    documents = {
        "ticket": [(ticket.cluster, tickets.ticket_line(ticket)) for ticket in every],
        "spares": [(buffer.cluster, tickets.spares_line(buffer)) for buffer in buffers],
    }
    return tickets.tickets_page, clusters, documents


@answers
def risk_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    glances = risk_at_a_glance(settings.suite, settings.policy, settings.benchmarks, requester)
    nodes = [
        (glance.cluster, risk_page.node_line(glance, node))
        for glance in glances
        for node in glance.nodes
    ]
    return risk_page.risk_page, glances, {"node-risk": nodes}


@answers
def fabric_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    clusters = links_at_a_glance(requester)
    networks = [(c.cluster, links.network_line(c)) for c in clusters]
    return links.fabric_page, clusters, {"fabric": networks}


@answers
def drift_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    return drift.drift_page, drift_at_a_glance(requester), {}


@answers
def looks_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    clusters = last_looks(requester)
    looks = [
        (cluster.cluster, watch_rounds.watch_line(cluster.cluster, job.kept))
        for cluster in clusters
        for job in cluster.jobs
    ]
    return watch_rounds.looks_page, clusters, {"watch": looks}


@answers
def diagnoses_overview(settings: ServiceSettings, requester: Requester) -> Answered:
    clusters = last_diagnoses(requester)
    jobs = [(c.cluster, diagnosis_pages.diagnosed_line(job)) for c in clusters for job in c.jobs]
    return diagnosis_pages.diagnoses_page, clusters, {"diagnosed": jobs}


@dataclass(frozen=True, kw_only=True)
class _Kept:
    overview: Overview
    until: float  # by the monotonic clock


class Overviews:
    """Overviews by inquiry. Simultaneous readers of one wait for the same answer."""

    def __init__(self, question: Question, *, in_process: bool = False) -> None:
        self._question = question
        self._in_process = in_process
        self._executor: Executor | None = None
        self._kept: dict[Inquiry, _Kept] = {}
        self._running: dict[Inquiry, asyncio.Task[Overview]] = {}

    def start(self) -> None:
        """Start the process early, and let it load its packages, programs and templates by a first
        answer, which nobody waits for: that takes longer than most answers."""
        self._get_executor().submit(risk_overview, self._question)

    def _get_executor(self) -> Executor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1) if self._in_process else OneProcess()
        return self._executor

    def stop(self) -> None:
        if self._executor:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def read(self, ask: Inquiry) -> Overview:
        kept = self._kept.get(ask)
        if kept and time.monotonic() < kept.until:
            return kept.overview
        task = self._running.get(ask)
        if task is None or task.done():
            task = self._running[ask] = asyncio.create_task(self._renew(ask))
        try:
            return await asyncio.wait_for(asyncio.shield(task), PATIENCE_S)
        except TimeoutError:
            if kept:
                return kept.overview
            raise Refused(503, "this takes longer than usual: ask again in a minute") from None

    async def _renew(self, ask: Inquiry) -> Overview:
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            overview = await loop.run_in_executor(self._get_executor(), ask, self._question)
        except BrokenProcessPool:
            self._executor = None
            raise Refused(503, "the process that finds this out had ended: ask again") from None
        now = time.monotonic()
        until = now + max(KEPT_S, SPARED * (now - began))
        self._kept[ask] = _Kept(overview=overview, until=until)
        return overview
