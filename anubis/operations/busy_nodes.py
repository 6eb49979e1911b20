"""Leave nodes alone on which others work. An orchestrator is asked before anything is started;
without one, the reported jobs count. Foreign processes that Ray and NVML show are found later, on
the way to the nodes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anubis.config import configs
from anubis.core.errors import BusyNodesError, OrchestratorError
from anubis.core.history.maintenance import Windows, open_windows
from anubis.core.history.status import Job, jobs_on_nodes
from anubis.core.keep.keeper_events import FleetSeen, SeenJob
from anubis.core.records import Node
from anubis.core.text import escape_line
from anubis.operations.caller import Caller
from anubis.operations.campaign_files import Brief
from anubis.operations.owners import orchestrator_of, owner_name, windows_seen
from anubis.reach.orchestrators.orchestrator import job_of_this_process
from anubis.report.maintenance import sentence
from anubis.text import hostlist
from anubis.text.hostlist import shorten
from anubis.text.wording import moment, quantity


@dataclass(frozen=True, kw_only=True)
class OthersWork:
    """Work of others on nodes, as the orchestrator shows it or, without one, as it was reported.
    Our own jobs do not count."""

    seen: FleetSeen | None = None  # None: only Anubis uses these nodes
    own_job: str = ""
    owner: str = ""  # the orchestrator's name, such as slurm
    told_jobs: Mapping[str, Sequence[Job]] = field(default_factory=dict)  # by node
    maintained: Mapping[str, str] = field(default_factory=dict)  # by node: until when, and why

    def reason_to_spare(self, node: str) -> str:
        """Reason to leave a node alone; empty if no work is there."""
        maintenance = self.maintained.get(node) or self.maintained.get(node.partition(".")[0], "")
        if self.seen is None:
            foreign_jobs = (job for job in self.told_jobs.get(node, ()) if job.id != self.own_job)
            why = next(map(_job_told, foreign_jobs), "")
            return f"it is {maintenance}" if maintenance else why
        shown = self.seen.nodes.get(node) or self.seen.nodes.get(node.partition(".")[0])
        if shown is None:
            return "its orchestrator does not show it, so whether a job runs there is unknown"
        foreign = [job for job in shown.jobs if job != self.own_job]
        if foreign:
            return _job(foreign[0], self.seen.jobs)
        is_ours = self.own_job in shown.jobs
        return f"it is {maintenance}" if maintenance and not is_ours else ""

    def reason_to_skip(self, node: str) -> str:
        """Reason not to take a node that was not named, although no work is there; empty to take
        it."""
        shown = self.seen.nodes.get(node) if self.seen else None
        if shown is None:
            return ""
        if node in self.maintained and self.own_job not in shown.jobs:
            return f"it is {self.maintained[node]}"
        if not shown.is_up:
            return f"{self.owner} shows it as {shown.state}" + (
                f" ({shown.meaning})" if shown.meaning not in ("", shown.state) else ""
            )
        if shown.cordon and not shown.is_cordoned_by_anubis:
            return f"it is kept from jobs: {escape_line(shown.cordon)}"
        return "" if shown.is_free else f"it is {shown.meaning}"

    def reasons_to_spare(self, nodes: Iterable[str]) -> dict[str, str]:
        return {node: why for node in nodes if (why := self.reason_to_spare(node))}


def others_work(
    cluster: configs.Cluster | None,
    windows: Windows,
    at: float,
    jobs: Iterable[Job] = (),
    own_job: str = "",
) -> OthersWork:
    """Read whose work is on the nodes. `windows`: of maintenance; `jobs`: those without a reported
    end, both from the history. `own_job`: the job that the nodes are for; empty: the job in
    which this process runs."""
    owner = owner_name(cluster) if cluster else ""
    orchestrator = orchestrator_of(cluster) if cluster else None
    try:
        seen = orchestrator.observe() if orchestrator else None
    except OrchestratorError as error:
        raise OrchestratorError(
            f"nothing was started, because the jobs on the nodes are unknown: {error}"
        ) from None
    maintained = open_windows(windows, at) | (open_windows(windows_seen(seen), at) if seen else {})
    return OthersWork(
        seen=seen,
        own_job=own_job or job_of_this_process(),
        owner=owner,
        told_jobs={} if seen else jobs_on_nodes(jobs, at),
        maintained={node: sentence(window, at) for node, window in maintained.items()},
    )


def told_work(jobs: Iterable[Job], at: float, own_job: str = "") -> OthersWork:
    """Work that was reported, and nothing else; arguments as above."""
    return OthersWork(told_jobs=jobs_on_nodes(jobs, at), own_job=own_job or job_of_this_process())


def spare_busy(brief: Brief, work: OthersWork, caller: Caller) -> Brief:
    """The same request without nodes on which others work. A named node is never left out silently:
    then nothing is started, unless the request says otherwise."""
    request, cluster = brief.request, brief.setting.cluster
    if request.nodes is None:
        of_file = cluster.nodes if isinstance(cluster, configs.RayCluster) else ""
        if not of_file and is_brought_up(cluster) and work.seen:
            return _change_request(brief, nodes=drop_busy(shown_nodes(work, caller), work, caller))
        listed = hostlist.expand(of_file) if of_file else []
        free = drop_busy(listed, work, caller)
        return brief if len(free) == len(listed) else _change_request(brief, nodes=free)
    partners = [node for node in request.nodes if node in request.partners]
    tested = [node for node in request.nodes if node not in request.partners]
    if request.leaves_out_busy:
        lost = set(tested).difference(drop_busy(tested, work, caller))
    else:
        refuse_named(work, tested)
        lost = set()
    lost |= set(partners).difference(drop_busy(partners, work, caller))
    if not lost:
        return brief
    return _change_request(
        brief,
        nodes=[node for node in request.nodes if node not in lost],
        partners=[node for node in request.partners if node not in lost],
    )


def is_brought_up(cluster: configs.Cluster) -> bool:
    """True if Ray is brought up on named nodes, so that they have to be named."""
    return isinstance(cluster, configs.RayCluster) and cluster.way is not None


def shown_nodes(work: OthersWork, caller: Caller) -> list[str]:
    """Usable nodes of the orchestrator, if none were named; remarks say why the others are left
    out."""
    names = list(work.seen.nodes) if work.seen else []
    away = {name: why for name in names if (why := work.reason_to_skip(name))}
    for why, left_out in _group_by_reason(away).items():
        caller.remark(f"{shorten(left_out)} left out: {why}")
    chosen = [name for name in names if name not in away]
    if not chosen:
        raise OrchestratorError(
            f"{work.owner} shows {quantity(len(names), 'node')}, and none that can be tested: name"
            " the nodes, or write `nodes:` into the cluster's file"
        )
    caller.remark(f"{quantity(len(chosen), 'node')}, as {work.owner} shows them")
    return chosen


def free_nodes(
    brief: Brief, nodes: Sequence[Node], work: OthersWork, caller: Caller
) -> Sequence[Node]:
    """Free nodes among those of the executor, if none were named."""
    if brief.request.nodes is not None:
        return nodes
    free = frozenset(drop_busy([node.name for node in nodes], work, caller))
    return [node for node in nodes if node.name in free]


def refuse_named(work: OthersWork, nodes: Sequence[str]) -> None:
    for why, busy in _group_by_reason(work.reasons_to_spare(nodes)).items():
        raise BusyNodesError(
            f'node "{shorten(busy)}" is left alone: {why}; wait until that ends, or name other'
            " nodes"
        )


def drop_busy(nodes: Sequence[str], work: OthersWork, caller: Caller) -> list[str]:
    """Nodes without other work; remarks say why the others are left out."""
    busy = work.reasons_to_spare(nodes)
    for why, left_out in _group_by_reason(busy).items():
        caller.remark(f"{shorten(left_out)} left out: {why}")
    free = [node for node in nodes if node not in busy]
    if busy and not free:
        raise BusyNodesError("every one of these nodes is left alone: wait until that ends")
    return free


def _change_request(brief: Brief, **changes: object) -> Brief:
    return replace(brief, request=replace(brief.request, **changes))  # type: ignore[arg-type] # its own


def _group_by_reason(why: Mapping[str, str]) -> dict[str, list[str]]:
    nodes = defaultdict[str, list[str]](list)
    for node, reason in why.items():
        nodes[reason].append(node)
    return nodes


def _job_told(job: Job) -> str:
    return (
        f"job {job.id} runs there since {moment(job.start)}, as was reported (if it is over:"
        f" anubis tell job-ended --job {shlex.quote(job.id)})"
    )


def _job(id: str, jobs: Mapping[str, SeenJob]) -> str:
    job = jobs.get(id)
    if job is None or not job.owner:
        return "its orchestrator does not show the owner of the job there"
    since = f" since {moment(job.started_at)}" if job.started_at else ""
    return f"job {id} of {job.owner} runs there{since}"
