"""Hosts that no scheduler has, by commands of their operator."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from anubis.core.errors import OrchestratorError
from anubis.core.keep.keeper_events import FleetSeen, SeenJob, SeenNode
from anubis.core.keep.reasons import is_ours
from anubis.reach.orchestrators.orchestrator import (
    UNKNOWN_SKUS,
    NodeSkus,
    OrchestratorKind,
    OrchestratorSettings,
    Refusals,
    check_positive,
    order_each,
)
from anubis.reach.orchestrators.site_commands import run_command
from anubis.text import hostlist

UNSEEN = "unseen"  # a job that may run on a node that does not answer


SHELLS_ELSEWHERE = ("ssh", "pdsh", "clush", "sh", "bash")  # what they get is read by a shell


@dataclass(frozen=True, kw_only=True)
class HostsSettings(OrchestratorSettings):
    """Hosts that neither Slurm nor Kubernetes has, by commands of your own.

    Each command is a list of words, run here and never through a shell; `{node}` in a word stands
    for the node, `{reason}` for the reason of a cordon.
    """

    kind: Literal["hosts"]
    nodes: str
    """The nodes of the fleet: a node list, or @file, beside this file."""
    jobs: tuple[str, ...]
    """Prints the jobs of a node, one a line: its id, and then, if known, whose it is."""
    job_ids: Literal["host", "fleet"] = "host"
    """Whether each node has ids of its own, as processes have (host), or an id that several nodes
    print is one job on all of them (fleet). Only such jobs can be watched."""
    cordoned: tuple[str, ...] = ()
    """Prints the reason why a node is kept from jobs, or nothing. Default: Anubis only looks for
    jobs, and takes no node out."""
    cordon: tuple[str, ...] = ()
    """Keeps further jobs from a node. The reason also comes on its standard input, which is the
    way for commands that a shell reads, such as those of ssh."""
    release: tuple[str, ...] = ()
    """Takes that back."""
    deadline_s: float = 10.0
    """How long one command may take for one node."""
    at_once: int = 32
    """How many nodes are asked at once."""

    def __post_init__(self) -> None:
        check_positive("deadline_s", self.deadline_s)
        check_positive("at_once", self.at_once)
        hostlist.expand(self.nodes)
        orders = {name: getattr(self, name) for name in ("cordoned", "cordon", "release")}
        if missing := [name for name, words in orders.items() if not words]:
            if len(missing) < len(orders):
                raise ValueError(f'"{missing[0]}" is missing: give all of {", ".join(orders)}')
            orders = {}
        for name, words in {"jobs": self.jobs, **orders}.items():
            _check_words(name, words)


def _check_words(name: str, words: tuple[str, ...]) -> None:
    if not any("{node}" in word for word in words):
        raise ValueError(f'"{name}" has no word with {{node}}, so it would say the same of all')
    program = words[0].rpartition("/")[2]
    if program in SHELLS_ELSEWHERE and any("{reason}" in word for word in words):
        raise ValueError(
            f'"{name}" hands the reason to {program}, where a shell would read it: take it from the'
            " standard input instead"
        )


@dataclass(frozen=True, kw_only=True)
class HostSeen:
    """The commands' report on one host, or why there is none."""

    jobs: Mapping[str, str]  # whose each is, by id
    reason: str = ""
    trouble: str = ""


class HostsOrchestrator:
    def __init__(
        self,
        settings: HostsSettings,
        skus: NodeSkus = UNKNOWN_SKUS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._names = hostlist.expand(settings.nodes)
        self._skus = skus
        self._clock = clock

    def observe(self) -> FleetSeen:
        """Run the commands for all hosts. A host that does not answer is not up, and its jobs are
        unknown. If none answers, the commands are at fault."""
        at = self._clock()
        with ThreadPoolExecutor(self._settings.at_once) as pool:
            hosts = dict(zip(self._names, pool.map(self._look_at, self._names), strict=True))
        troubles = [host.trouble for host in hosts.values() if host.trouble]
        if len(troubles) == len(hosts):
            raise OrchestratorError(f"none of {len(hosts)} hosts answers: {troubles[0]}")
        nodes_of = defaultdict[str, list[str]](list)
        owners: dict[str, str] = {}
        for node, host in hosts.items():
            for id, owner in host.jobs.items():
                nodes_of[self._job(node, id)].append(node)
                owners.setdefault(self._job(node, id), owner)
        return FleetSeen(
            at=at,
            nodes={n: self._seen_node(n, host) for n, host in hosts.items()},
            jobs={
                job: SeenJob(owner=owners[job], nodes=tuple(nodes))
                for job, nodes in nodes_of.items()
            },
        )

    def _job(self, node: str, id: str) -> str:
        """Return the id of a job; an id that stands for a host without an answer is that host's
        alone."""
        is_everywhere_the_same = self._settings.job_ids == "fleet" and id != UNSEEN
        return id if is_everywhere_the_same else f"{node}/{id}"

    def cordon(self, reasons: Mapping[str, str]) -> Refusals:
        at_once = self._settings.at_once
        return order_each(lambda node: self._cordon(node, reasons[node]), reasons, at_once)

    def release(self, nodes: Collection[str]) -> Refusals:
        return order_each(self._release, nodes, self._settings.at_once)

    def requeue(self, jobs: Mapping[str, Collection[str]]) -> Refusals:
        return dict.fromkeys(jobs, "hosts without a scheduler have no queue")

    def _cordon(self, node: str, reason: str) -> None:
        before = self._reason_on(node)
        if before == reason:
            return
        _refuse_others_reason(node, before)
        self._run(self._settings.cordon, node, reason)
        after = self._reason_on(node)
        if after != reason:
            raise OrchestratorError(f'"{node}" was cordoned with "{reason}", and shows "{after}"')

    def _release(self, node: str) -> None:
        before = self._reason_on(node)
        _refuse_others_reason(node, before)
        if before:
            self._run(self._settings.release, node)

    def _seen_node(self, node: str, host: HostSeen) -> SeenNode:
        return SeenNode(
            sku=self._skus.find(node),
            state="no answer" if host.trouble else "cordoned" if host.reason else "up",
            is_up=not host.trouble,
            jobs=tuple(self._job(node, id) for id in host.jobs),
            cordon=host.reason,
        )

    def _look_at(self, node: str) -> HostSeen:
        try:
            jobs = parse_jobs_of_host(self._run(self._settings.jobs, node))
            reason = self._reason_on(node) if self._settings.cordoned else ""
        except OrchestratorError as error:
            return HostSeen(jobs={UNSEEN: ""}, trouble=str(error))
        return HostSeen(jobs=jobs, reason=reason)

    def _reason_on(self, node: str) -> str:
        if node not in self._names:
            raise OrchestratorError(f'there is no host "{node}" in "{self._settings.nodes}"')
        return self._run(self._settings.cordoned, node).strip()

    def _run(self, command: Sequence[str], node: str, reason: str = "") -> str:
        if not command:
            raise OrchestratorError("there are no commands that take hosts out: Anubis only looks")
        words = [word.replace("{node}", node).replace("{reason}", reason) for word in command]
        return run_command(words, self._settings.deadline_s, stdin=reason)


def parse_jobs_of_host(text: str) -> dict[str, str]:
    """Parse a line for each job: its id, and its owner if that is known."""
    rows = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return {id: owner[0].strip() if owner else "somebody" for id, *owner in rows}


def _refuse_others_reason(node: str, reason: str) -> None:
    if reason and not is_ours(reason):
        raise OrchestratorError(
            f'"{node}" is kept from jobs with the reason "{reason}": anubis leaves it as it is'
        )


ORCHESTRATOR = OrchestratorKind(
    settings=HostsSettings, open=HostsOrchestrator, title="its orchestrator"
)
