"""Slurm, by its own commands: nodes, jobs and reservations, drains and the reasons for them.

Their tables are read, not their JSON, whose shape changes with Slurm's version and which many
builds lack. Times are asked for as seconds since 1970, states with all their flags.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Literal

from anubis.core.errors import HostlistError, OrchestratorError
from anubis.core.keep.keeper_events import FleetSeen, SeenJob, SeenNode, SeenWindow
from anubis.core.keep.reasons import is_ours
from anubis.reach.executors.start_settings import RayStart, StartWay
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
from anubis.reach.orchestrators.slurm_states import SlurmState, read_state
from anubis.text import hostlist

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
TEST_JOB = "anubis-test"  # the name of jobs in which nodes are tested, which are no work of users
# Slurm gives the whole node to this job, so no other job is there
SRUN = (
    *("--exclusive", "--nodes=1", "--ntasks=1", "--mem=0", "--cpu-bind=none"),
    *(f"--job-name={TEST_JOB}", "--immediate=60"),
)
SILENT = "Not responding"  # the reason that slurmctld gives a node after SlurmdTimeout
UNLISTED = "maintenance"  # the window of nodes that show one, and whose reservation is hidden
FIELD = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")  # of a reservation, or of a job
JOB_ID = re.compile(r"\d{1,10}([_+]\d{1,10})?")
ON_NODES = ("RUNNING", "SUSPENDED")  # states of jobs that hold nodes
PUT_BACK_LOOKS_S = 0.5  # while the processes of a job end
AT_ONCE = 8  # jobs that are put back; each may wait for its processes


@dataclass(frozen=True, kw_only=True)
class SlurmSettings(OrchestratorSettings):
    """Slurm, by its own commands: `sinfo`, `squeue` and `scontrol`."""

    kind: Literal["slurm"]
    partition: str = ""
    """The partition that these nodes are in, or several with commas between them. Default: all."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Kinds of hardware by Slurm's features: a feature, and the sku of the nodes that have it. What
    the cluster's own `skus` say comes first."""
    deadline_s: float = 10.0
    """How long a command of Slurm may take."""

    def __post_init__(self) -> None:
        check_positive("deadline_s", self.deadline_s)


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """A node as sinfo shows it."""

    name: str
    state: str  # as `idle+drain`
    features: frozenset[str] = frozenset()
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None

    @property
    def shows(self) -> SlurmState:
        return read_state(self.state)

    @property
    def is_drained(self) -> bool:
        return "drain" in self.shows.words

    @property
    def cordon(self) -> str:
        """Reason why it is kept from jobs; without a reason, what Slurm shows of it. Nothing keeps
        a node from jobs that Slurm itself calls down because it does not answer."""
        is_only_silent = self.reason == SILENT and not self.is_drained
        if not self.shows.keeps_jobs_off or is_only_silent:
            return ""
        return self.reason or f"{self.shows.means}; slurm has no reason for it"


class SlurmOrchestrator:
    def __init__(
        self,
        settings: SlurmSettings,
        skus: NodeSkus = UNKNOWN_SKUS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._skus = skus
        self._clock = clock

    def observe(self) -> FleetSeen:
        """Slurm answers for jobs and for nodes apart. A job that began in between is on nodes that
        are at work without a job, so jobs are asked for again before one is taken for hidden."""
        at = self._clock()
        jobs, tested = self._jobs()
        partition = self._settings.partition
        nodes = self._nodes(f"--partition={partition}" if partition else "--all")
        if _unseen_work(nodes, jobs, tested):
            later, tested_later = self._jobs()
            jobs, tested = {**jobs, **later}, tested | tested_later
        windows = parse_windows(self._ask("scontrol", "--all", "--oneliner", "show", "reservation"))
        seen = fleet_seen(at, nodes, jobs, self._sku_of, tested, windows)
        if nodes or not partition:
            return seen
        return replace(seen, why_empty=f'none is in partition "{partition}": sinfo shows them all')

    def _jobs(self) -> tuple[dict[str, SeenJob], frozenset[str]]:
        shown = self._ask("squeue", "--noheader", "--all", f"--format={OF_JOBS}")
        return parse_jobs(shown, name_of(os.geteuid()))

    def cordon(self, reasons: Mapping[str, str]) -> Refusals:
        """Drain nodes, those with the same reason by one command."""
        changeable, refused = self._find_changeable(reasons)
        by_reason = defaultdict[str, list[str]](list)
        for node, before in changeable.items():
            if not _is_drained_for(reasons[node], before):
                by_reason[reasons[node]].append(node)
        for reason, nodes in by_reason.items():
            refused |= self._update(nodes, "state=drain", f"reason={reason}")
        drained = [node for nodes in by_reason.values() for node in nodes if node not in refused]
        after = self._look_at(drained)
        for node in drained:
            shown = after.get(node)
            if shown is None or not _is_drained_for(reasons[node], shown):
                seen = f'{shown.state} with "{shown.reason}"' if shown else "no such node"
                refused[node] = (
                    f'slurm was asked to drain "{node}" with "{reasons[node]}", and shows {seen}'
                )
        return refused

    def release(self, nodes: Collection[str]) -> Refusals:
        """Take back drains. A node that is down stays down: unlike `resume`, `undrain` takes back
        a drain only."""
        changeable, refused = self._find_changeable(nodes)
        kept = [node for node, before in changeable.items() if before.shows.keeps_jobs_off]
        return refused | self._update(kept, "state=undrain")

    def requeue(self, jobs: Mapping[str, Collection[str]]) -> Refusals:
        return order_each(lambda job: self._requeue(job, jobs[job]), jobs, AT_ONCE)

    def _requeue(self, job: str, nodes: Collection[str]) -> None:
        """Put a job back. Slurm changes the nodes of waiting jobs only; one that was put back waits
        for its processes to end, and some time more before it begins."""
        shown = self._look_at_job(job)
        if not {*_expand_any(shown.get("NodeList", ""))} & {*nodes}:
            return
        self._run("scontrol", "requeue", job)
        ends = time.monotonic() + self._settings.deadline_s
        while True:
            shown = self._look_at_job(job)
            excluded = sorted({*_expand_any(shown.get("ExcNodeList", "")), *nodes})
            try:
                self._run("scontrol", "update", f"jobid={job}", f"ExcNodeList={','.join(excluded)}")
            except OrchestratorError as error:
                if time.monotonic() > ends:
                    raise OrchestratorError(
                        f"job {job} was put back into the queue, but may begin on"
                        f" {', '.join(sorted(nodes))} once they are released: {error}"
                    ) from None
                time.sleep(PUT_BACK_LOOKS_S)
            else:
                return

    def _look_at_job(self, job: str) -> dict[str, str]:
        if not JOB_ID.fullmatch(job):
            raise OrchestratorError(f'"{job}" is no id of a job of slurm')
        shown = self._run("scontrol", "--oneliner", "show", "job", job)
        fields = {name: _blank_unknown(text) for name, text in FIELD.findall(shown)}
        return fields if fields.get("JobState") in ON_NODES else fields | {"NodeList": ""}

    def _find_changeable(self, nodes: Iterable[str]) -> tuple[dict[str, SlurmNode], dict[str, str]]:
        """Return the nodes that Anubis may change, as Slurm shows them, and why not the others."""
        names = list(nodes)
        shown = self._look_at(names)
        refused = {node: f'slurm has no node "{node}"' for node in names if node not in shown}
        refused |= {node: why for node, seen in shown.items() if (why := _refusal_of(seen))}
        return {node: shown[node] for node in names if node not in refused}, refused

    def _update(self, nodes: Sequence[str], *changes: str) -> dict[str, str]:
        """Change all of these nodes by one command. If Slurm refuses it, each node gets a command
        of its own, so that one refusal does not stop the others."""
        if not nodes:
            return {}
        try:
            self._run("scontrol", "update", f"nodename={','.join(nodes)}", *changes)
        except OrchestratorError as error:
            if len(nodes) == 1:
                return {nodes[0]: str(error)}
            return {n: why for node in nodes for n, why in self._update([node], *changes).items()}
        return {}

    def _look_at(self, nodes: Sequence[str]) -> dict[str, SlurmNode]:
        """Return those of the nodes that Slurm has."""
        if not nodes:
            return {}
        return {node.name: node for node in self._nodes("--all", f"--nodes={','.join(nodes)}")}

    def _nodes(self, *options: str) -> list[SlurmNode]:
        columns = ",".join(f"{name}:{width}" for name, width in COLUMNS.items())
        shown = self._ask("sinfo", "--noheader", "--Node", *options, f"--Format={columns}")
        return parse_nodes(shown)

    def _ask(self, *words: str) -> str:
        try:
            return self._run(*words)
        except OrchestratorError as error:
            raise OrchestratorError(
                f"{error}; until {words[0]} answers on this machine, slurm cannot be asked: install"
                f" or mend slurm's commands and their slurm.conf here, or work where {words[0]}"
                " answers"
            ) from None

    def _run(self, *words: str) -> str:
        return run_command(words, self._settings.deadline_s, IN_SECONDS)

    def _sku_of(self, node: SlurmNode) -> str:
        by_feature = (
            sku for feature, sku in self._settings.features.items() if feature in node.features
        )
        return self._skus.find(node.name, next(by_feature, ""))


def _is_drained_for(reason: str, node: SlurmNode) -> bool:
    return node.is_drained and node.reason == reason


def _refusal_of(node: SlurmNode) -> str:
    """Return why Anubis leaves a node alone; empty if it may change it."""
    if node.shows.is_in_maintenance:
        return f'slurm shows "{node.name}" as {node.state}: anubis leaves a maintenance alone'
    if (node.shows.keeps_jobs_off or node.reason) and not is_ours(node.reason):
        whose = f" by {node.reason_by}" if node.reason_by else ""
        return (
            f'slurm shows "{node.name}" as {node.state}{whose} with the reason "{node.reason}":'
            " anubis leaves it as it is"
        )
    return ""


# --- what the commands print ---------------------------------------------------------------


def parse_nodes(text: str) -> list[SlurmNode]:
    """Parse nodes; one in several partitions has a line for each."""
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
    for name in _expand(row["NodeList"]):
        yield SlurmNode(
            name=name,
            state=row["StateComplete"].lower(),
            features=frozenset(row["Features"].split(",")),
            reason=_blank_unknown(row["Reason"]),
            reason_by=_blank_unknown(row["User"]),
            reason_at=_seconds(row["Timestamp"]),
        )


def parse_jobs(text: str, us: str) -> tuple[dict[str, SeenJob], frozenset[str]]:
    """Return the jobs that are on nodes, whatever they do there, and the nodes where we, the user
    `us`, test in a job of our own, which is no work of users."""
    jobs = {}
    tested = set[str]()
    for line in text.splitlines():
        id, *fields = line.split("|", 6)
        if len(fields) != 6:
            raise OrchestratorError(f'squeue printed "{line[:80]}", expected {OF_JOBS}')
        state, start, end, nodes, user, name = fields
        if state == "PENDING" or not nodes:
            continue
        if (user.strip(), name.strip()) == (us, TEST_JOB):
            tested.update(_expand(nodes))
            continue
        jobs[id] = SeenJob(
            owner=user.strip(),
            nodes=tuple(_expand(nodes)),
            started_at=_seconds(start),
            ends_by=_seconds(end) or inf,
            has_begun=state != "CONFIGURING",
        )
    return jobs, frozenset(tested)


def parse_windows(text: str) -> dict[str, SeenWindow]:
    """Return the reservations that are for maintenance."""
    windows = {}
    for line in text.splitlines():
        row: dict[str, str] = {}
        for name, value in FIELD.findall(line):
            row.setdefault(name, value)
        if "MAINT" not in row.get("Flags", "").upper().split(","):
            continue
        name, begin, nodes = (row.get(key, "") for key in ("ReservationName", "StartTime", "Nodes"))
        start = _seconds(begin)
        if not name or start is None:
            raise OrchestratorError(
                f'scontrol printed the reservation "{line.strip()[:80]}", expected its name and its'
                " start in seconds"
            )
        end = _seconds(row.get("EndTime", ""))
        if _blank_unknown(nodes) and (end is None or end > start):
            windows[f"reservation {name}"] = SeenWindow(
                nodes=tuple(_expand(nodes)),
                begin=start,
                end=inf if end is None else end,
                reason=f"slurm's reservation {name}",
            )
    return windows


def name_of(user: int) -> str:
    """Return the name of a user as Slurm shows it."""
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
    windows: Mapping[str, SeenWindow] = MappingProxyType({}),
) -> FleetSeen:
    """Return the fleet. A node may be at work although its jobs are not shown to us, unless we are
    at work there."""
    on_node = defaultdict[str, list[str]](list)
    for id, job in jobs.items():
        for name in job.nodes:
            on_node[name].append(id)
    unseen = {
        f"unseen-{name}": SeenJob(owner="", nodes=(name,))
        for name in _unseen_work(nodes, jobs, tested)
    }
    for id, job in unseen.items():
        on_node[job.nodes[0]].append(id)
    return FleetSeen(
        at=at,
        nodes={
            node.name: _seen_node(node, sku_of(node), tuple(on_node[node.name])) for node in nodes
        },
        jobs={**jobs, **unseen},
        windows=_windows_of(at, nodes, windows),
    )


def _unseen_work(
    nodes: Iterable[SlurmNode], jobs: Mapping[str, SeenJob], tested: frozenset[str]
) -> list[str]:
    """The nodes that are at work without a job that is shown."""
    explained = tested.union(*(job.nodes for job in jobs.values()))
    return [node.name for node in nodes if node.shows.is_at_work and node.name not in explained]


def _seen_node(node: SlurmNode, sku: str, jobs: tuple[str, ...]) -> SeenNode:
    shows, cordon = node.shows, node.cordon
    return SeenNode(
        sku=sku,
        state=node.state,
        meaning=shows.means,
        is_up=shows.is_up,
        is_free=shows.is_free,
        jobs=jobs,
        cordon=cordon,
        cordoned_by=node.reason_by if cordon else "",
        cordoned_at=node.reason_at if cordon else None,
    )


def _windows_of(
    at: float, nodes: Sequence[SlurmNode], windows: Mapping[str, SeenWindow]
) -> dict[str, SeenWindow]:
    """Return the windows of these nodes, also if Slurm does not show us the reservation."""
    names = {node.name for node in nodes}
    of_nodes = {
        name: replace(window, nodes=kept)
        for name, window in windows.items()
        if (kept := tuple(node for node in window.nodes if node in names))
    }
    now = {n for w in of_nodes.values() if w.begin <= at < w.end for n in w.nodes}
    unlisted = [n.name for n in nodes if n.shows.is_in_maintenance and n.name not in now]
    if unlisted:
        of_nodes[UNLISTED] = SeenWindow(
            nodes=tuple(unlisted), begin=at, reason="slurm shows the node under maintenance"
        )
    return of_nodes


def _expand(nodes: str) -> list[str]:
    try:
        return hostlist.expand(nodes)
    except HostlistError as error:
        raise OrchestratorError(f"slurm's {error}") from None


def _expand_any(nodes: str) -> list[str]:
    return _expand(nodes) if nodes else []


def _blank_unknown(text: str) -> str:
    return "" if text.lower() in ("none", "unknown", "(null)", "n/a") else text


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isdigit() else None


def nodes_without_jobs() -> frozenset[str]:
    """Return nodes that Slurm starts no job on although they are sound to reach: drained, without a
    job, and not in a maintenance."""
    seen = SlurmOrchestrator(SlurmSettings(kind="slurm")).observe()
    return frozenset(name for name, node in seen.nodes.items() if is_drained(node))


def is_drained(node: SeenNode) -> bool:
    """True if a node is drained, has no job, and is not in a maintenance."""
    shown = read_state(node.state)
    is_free = node.is_up and not node.jobs and not shown.is_in_maintenance
    return is_free and "drain" in shown.words


def srun_argv(start: RayStart, node: str, command: Sequence[str]) -> list[str]:
    return ["srun", *SRUN, *start.options, f"--nodelist={node}", *command]


def _trial(start: RayStart, node: str, command: Sequence[str]) -> list[str]:
    return ["srun", "--exclusive", *start.options, f"--nodelist={node}", *command]


ORCHESTRATOR = OrchestratorKind(
    settings=SlurmSettings, open=SlurmOrchestrator, title="slurm", job_variable="SLURM_JOB_ID"
)
START = StartWay(
    too_busy=re.compile(
        "Socket timed out|Communication connection failure|Unable to contact slurm controller"
    ),
    argv=srun_argv,
    trial=_trial,
    limits={
        "memlock": "LimitMEMLOCK=infinity for slurmd, PropagateResourceLimitsExcept=MEMLOCK",
        "nofile": "LimitNOFILE=65536 for slurmd",
    },
    advice={
        "Requested nodes are busy": "wait until the job that is there has ended",
        "Required node not available": "Slurm starts no job there: `drained_by: [ssh]` reaches"
        " drained nodes",
    },
    # Slurm calls a drained node busy in the end, and says at the start that it is drained
    telling=re.compile(r"^srun: Required node not available .*", re.M),
    idle=re.compile(r"^srun: .*(Terminating|aborted)"),
    job_variables=re.compile(r"SLURM_(?!CONF$)"),
    refused_nodes=nodes_without_jobs,
)
