"""Slurm, by its own commands.

Their tables are read, not their JSON, whose shape changes with Slurm's version and which many
builds lack. Times are asked for as seconds since 1970, states with all their flags.
"""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from anubis import hostlist
from anubis.core.errors import HostlistError, OrchestratorError
from anubis.core.lifecycle.events import FleetSeen, SeenJob, SeenNode
from anubis.core.lifecycle.reasons import is_ours
from anubis.executors.starting import SLURM_JOB
from anubis.orchestrators.base import SKUS_UNTOLD, NodeSkus
from anubis.orchestrators.commands import run_command
from anubis.orchestrators.settings import SlurmSettings

# columns of sinfo and how wide; the reason is the last, for it may be longer and hold anything
COLUMNS = {
    "NodeList": 256,
    "StateComplete": 128,
    "Features": 512,
    "Timestamp": 24,
    "User": 64,
    "Reason": 512,
}
OF_JOBS = "%A|%T|%S|%e|%N|%u|%j"  # id, state, start, end at the latest, nodes, user, name
IN_SECONDS = {"SLURM_TIME_FORMAT": "%s"}
# somebody's decision, or Slurm's about a node that answers badly; a node of which nothing was heard
# yet, since slurmctld was started, is kept from jobs by nobody
KEEPS_JOBS_OFF = frozenset(
    {"down", "drain", "drained", "draining", "error", "fail", "failing", "inval", "invalid"}
    | {"invalid_reg", "maint"}
)
NOT_UP = frozenset(
    {"down", "error", "future", "not_responding", "powered_down", "powering_down", "powering_up"}
    | {"reboot_issued", "unknown"}
)
AT_WORK = frozenset({"allocated", "mixed", "completing"})


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """As sinfo shows it."""

    name: str
    state: str  # as `idle+drain`
    features: frozenset[str] = frozenset()
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(self.state.split("+"))

    @property
    def keeps_jobs_off(self) -> bool:
        return bool(self.flags & KEEPS_JOBS_OFF)


class SlurmOrchestrator:
    def __init__(
        self,
        settings: SlurmSettings,
        skus: NodeSkus = SKUS_UNTOLD,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._skus = skus
        self._clock = clock

    def observe(self) -> FleetSeen:
        at = self._clock()
        shown = self._run("squeue", "--noheader", "--all", f"--format={OF_JOBS}")
        jobs, tested = parse_jobs(shown, name_of(os.geteuid()))
        partition = self._settings.partition
        nodes = self._nodes(f"--partition={partition}" if partition else "--all")
        return fleet_seen(at, nodes, jobs, self._sku_of, tested)

    def cordon(self, node: str, reason: str) -> None:
        before = self._look_at(node)
        _refuse_others_reason(before)
        if "drain" in before.flags and before.reason == reason:
            return
        self._run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
        after = self._look_at(node)
        if "drain" not in after.flags or after.reason != reason:
            raise OrchestratorError(
                f'slurm was told to drain "{node}" with "{reason}", and shows {after.state}'
                f' with "{after.reason}"'
            )

    def release(self, node: str) -> None:
        """A node that is down stays down: unlike `resume`, `undrain` takes back a drain only."""
        before = self._look_at(node)
        _refuse_others_reason(before)
        if before.keeps_jobs_off:
            self._run("scontrol", "update", f"nodename={node}", "state=undrain")

    def _look_at(self, node: str) -> SlurmNode:
        shown = self._nodes("--all", f"--nodes={node}")
        if len(shown) != 1:
            raise OrchestratorError(f'slurm has no node "{node}"')
        return shown[0]

    def _nodes(self, *options: str) -> list[SlurmNode]:
        columns = ",".join(f"{name}:{width}" for name, width in COLUMNS.items())
        shown = self._run("sinfo", "--noheader", "--Node", *options, f"--Format={columns}")
        return parse_nodes(shown)

    def _run(self, *words: str) -> str:
        return run_command(words, self._settings.deadline_s, IN_SECONDS)

    def _sku_of(self, node: SlurmNode) -> str:
        by_feature = (
            sku for feature, sku in self._settings.features.items() if feature in node.features
        )
        return self._skus.of(node.name, next(by_feature, ""))


def _refuse_others_reason(node: SlurmNode) -> None:
    if (node.keeps_jobs_off or node.reason) and not is_ours(node.reason):
        whose = f" by {node.reason_by}" if node.reason_by else ""
        raise OrchestratorError(
            f'slurm shows "{node.name}" as {node.state}{whose} with the reason "{node.reason}":'
            " anubis leaves it as it is"
        )


# --- what the commands print ---------------------------------------------------------------


def parse_nodes(text: str) -> list[SlurmNode]:
    """A node in several partitions has a line for each."""
    nodes: dict[str, SlurmNode] = {}
    for line in text.splitlines():
        for node in _nodes_in(line):
            nodes[node.name] = node
    return list(nodes.values())


def _nodes_in(line: str) -> Iterator[SlurmNode]:
    row, begins = dict[str, str](), 0
    for name, width in COLUMNS.items():
        row[name] = line[begins : begins + width].strip()
        begins += width
    if not row["StateComplete"]:
        raise OrchestratorError(f'sinfo printed "{line.strip()[:80]}", expected a node and a state')
    for name in _expanded(row["NodeList"]):
        yield SlurmNode(
            name=name,
            state=row["StateComplete"].lower(),
            features=frozenset(row["Features"].split(",")),
            reason=_or_nothing(row["Reason"]),
            reason_by=_or_nothing(row["User"]),
            reason_at=_seconds(row["Timestamp"]),
        )


def parse_jobs(text: str, us: str) -> tuple[dict[str, SeenJob], frozenset[str]]:
    """Those that are on nodes, with whatever they are doing there; and the nodes where we, the user
    `us`, test in a job of our own, which is nobody's work."""
    jobs = {}
    tested = set[str]()
    for line in text.splitlines():
        id, *fields = line.split("|", 6)
        if len(fields) != 6:
            raise OrchestratorError(f'squeue printed "{line[:80]}", expected {OF_JOBS}')
        state, start, end, nodes, user, name = fields
        if state == "PENDING" or not nodes:
            continue
        if (user.strip(), name.strip()) == (us, SLURM_JOB):
            tested.update(_expanded(nodes))
            continue
        jobs[id] = SeenJob(
            owner=user.strip(),
            nodes=tuple(_expanded(nodes)),
            started_at=_seconds(start),
            ends_by=_seconds(end) or inf,
        )
    return jobs, frozenset(tested)


def name_of(user: int) -> str:
    """As Slurm shows it."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def fleet_seen(
    at: float,
    nodes: list[SlurmNode],
    jobs: Mapping[str, SeenJob],
    sku_of: Callable[[SlurmNode], str],
    tested: frozenset[str] = frozenset(),
) -> FleetSeen:
    """A node is at work also where nobody shows us its jobs, unless we are at work there."""
    on_node = defaultdict[str, list[str]](list)
    for id, job in jobs.items():
        for name in job.nodes:
            on_node[name].append(id)
    unseen = {
        f"unseen-{node.name}": SeenJob(owner="", nodes=(node.name,))
        for node in nodes
        if node.flags & AT_WORK and not on_node[node.name] and node.name not in tested
    }
    for id, job in unseen.items():
        on_node[job.nodes[0]].append(id)
    seen = {
        node.name: SeenNode(
            sku=sku_of(node),
            state=node.state,
            is_up=not node.flags & NOT_UP,
            jobs=tuple(on_node[node.name]),
            cordon=(node.reason or node.state) if node.keeps_jobs_off else "",
            cordoned_by=node.reason_by if node.keeps_jobs_off else "",
            cordoned_at=node.reason_at if node.keeps_jobs_off else None,
        )
        for node in nodes
    }
    return FleetSeen(at=at, nodes=seen, jobs={**jobs, **unseen})


def _expanded(nodes: str) -> list[str]:
    try:
        return hostlist.expand(nodes)
    except HostlistError as error:
        raise OrchestratorError(f"slurm's {error}") from None


def _or_nothing(text: str) -> str:
    return "" if text.lower() in ("none", "unknown", "(null)", "n/a") else text


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isdigit() else None
