"""Find who owns the nodes of a cluster, whose work is on them, and which are under maintenance, as
reported and as their orchestrators show it; and leave nodes alone on which others work.

An orchestrator is asked before anything is started; without one, the reported jobs count. Foreign
processes that Ray and NVML show are found later, on the way to the nodes.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anubis.config import configs
from anubis.core.errors import BusyNodesError, OrchestratorError, UsageError, did_you_mean
from anubis.core.history.events import EventRecord, MaintenanceEnded, MaintenancePlanned
from anubis.core.history.maintenance import Window, Windows, open_windows, reported_windows
from anubis.core.history.status import Job, jobs_on_nodes
from anubis.core.keep.keeper_events import FleetSeen, SeenJob, SeenWindow
from anubis.core.records import Node
from anubis.core.text import escape_line
from anubis.operations.caller import Caller
from anubis.operations.campaign_files import Brief
from anubis.reach.orchestrators.orchestrator import (
    NodeSkus,
    Orchestrator,
    job_of_this_process,
    orchestrator_kinds,
)
from anubis.report.maintenance import sentence
from anubis.store.history import ClusterHistory
from anubis.text import hostlist
from anubis.text.hostlist import shorten
from anubis.text.wording import moment, quantity


def owner_name(cluster: configs.Cluster) -> str:
    """Name of the orchestrator that owns the nodes, for a sentence; empty if only Anubis uses
    them."""
    if isinstance(cluster, configs.SimulatedCluster) or cluster.orchestrator is None:
        return ""
    return orchestrator_kinds()[cluster.orchestrator.kind].title


def orchestrator_of(cluster: configs.Cluster) -> Orchestrator | None:
    """Orchestrator of a cluster; None if only Anubis uses its nodes."""
    if isinstance(cluster, configs.SimulatedCluster):
        return None
    by_node = hostlist.labels(cluster.skus) if isinstance(cluster, configs.RayCluster) else {}
    skus = NodeSkus(by_node=by_node, otherwise=cluster.sku)
    settings = cluster.orchestrator
    return orchestrator_kinds()[settings.kind].open(settings, skus) if settings else None


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    id: str
    nodes: tuple[str, ...]
    owner: str = ""  # empty: the orchestrator does not show it
    started_at: float | None = None


def running_jobs(orchestrator: Orchestrator | None) -> tuple[RunningJob, ...]:
    """Running jobs; none without an orchestrator: then nodes are named by `--nodes`."""
    if orchestrator is None:
        return ()
    return tuple(
        RunningJob(id=id, nodes=seen.nodes, owner=seen.owner, started_at=seen.started_at)
        for id, seen in sorted(orchestrator.observe().jobs.items())
    )


def nodes_of(job: str, orchestrator: Orchestrator | None) -> tuple[str, ...]:
    if orchestrator is None:
        raise UsageError(
            f'no source says which nodes job "{job}" has: name them with --nodes, or give the'
            " cluster's file an orchestrator"
        )
    by_id = {running.id: running.nodes for running in running_jobs(orchestrator)}
    if job not in by_id:
        raise UsageError(f'no job "{job}" runs; {did_you_mean(job, by_id)}')
    return by_id[job]


SHOWN = "orchestrator"  # the source of windows that an orchestrator shows


def windows_known(part: ClusterHistory) -> Windows:
    """Windows of maintenance in the history, by node."""
    return reported_windows(part.event_records.apart_from_jobs())


def windows_seen(seen: FleetSeen) -> Windows:
    """Windows that an orchestrator shows, by node."""
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    for name, shown in seen.windows.items():
        window = Window(
            name=name, begin=shown.begin, end=shown.end, reason=shown.reason, source=SHOWN
        )
        for node in shown.nodes:
            windows[node].append(window)
    return {node: tuple(shown) for node, shown in windows.items()}


def news_of_windows(seen: FleetSeen, windows: Windows) -> list[EventRecord]:
    """Event records of windows that an orchestrator shows differently from the history: new or
    changed ones, and those that their owner took back."""
    by_name: defaultdict[str, dict[str, Window]] = defaultdict(dict)  # by name, of nodes
    for node, of_node in windows.items():
        for window in of_node:
            if window.source == SHOWN and seen.at < window.end:
                by_name[window.name][node] = window
    event_records = []
    for name, shown in seen.windows.items():
        if shown.end <= seen.at or not shown.begin < shown.end:
            continue
        before = by_name.pop(name, {})
        if not _is_known(shown, before, seen.at):
            planned = MaintenancePlanned(
                nodes=shown.nodes,
                begin=shown.begin,
                end=shown.end,
                name=name,
                reason=shown.reason,
                source=SHOWN,
            )
            event_records.append(_event_record(f"maintenance {name}", seen.at, planned))
    for name, before in by_name.items():
        ended = MaintenanceEnded(nodes=tuple(before), name=name)
        event_records.append(_event_record(f"maintenance {name} ended", seen.at, ended))
    return event_records


def _is_known(shown: SeenWindow, before: dict[str, Window], at: float) -> bool:
    """True if the history has the window. One whose beginning is unknown begins anew with each
    look."""
    return before.keys() == set(shown.nodes) and all(
        window.end == shown.end
        and (window.begin == shown.begin or max(window.begin, shown.begin) <= at)
        for window in before.values()
    )


def _event_record(id: str, at: float, event: MaintenancePlanned | MaintenanceEnded) -> EventRecord:
    return EventRecord(id=f"{id} @{at:.3f}", at=at, event=event)


@dataclass(frozen=True, kw_only=True)
class OthersWork:
    """Work of others on nodes, as the orchestrator shows it or, without one, as it was reported.
    Our own jobs do not count."""

    seen: FleetSeen | None = None  # None: only Anubis uses these nodes
    own_job: str = ""
    owner: str = ""  # the orchestrator's name, such as slurm
    reported_jobs: Mapping[str, Sequence[Job]] = field(default_factory=dict)  # by node
    maintained: Mapping[str, str] = field(default_factory=dict)  # by node: until when, and why
    retired: Collection[str] = frozenset()  # measured only if a person names them

    def reason_to_spare(self, node: str) -> str:
        """Reason to leave a node alone; empty if no work is there."""
        maintenance = self.maintained.get(node) or self.maintained.get(node.partition(".")[0], "")
        if self.seen is None:
            foreign_jobs = (
                job for job in self.reported_jobs.get(node, ()) if job.id != self.own_job
            )
            why = next(map(_job_reason, foreign_jobs), "")
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
        reported_jobs={} if seen else jobs_on_nodes(jobs, at),
        maintained={node: sentence(window, at) for node, window in maintained.items()},
    )


def reported_work(jobs: Iterable[Job], at: float, own_job: str = "") -> OthersWork:
    """Work that was reported, and nothing else; arguments as above."""
    return OthersWork(
        reported_jobs=jobs_on_nodes(jobs, at), own_job=own_job or job_of_this_process()
    )


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
    if not request.leaves_out_busy:
        refuse_unseen(request.nodes, cluster, work)
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


def refuse_unseen(names: Sequence[str], cluster: configs.Cluster, work: OthersWork) -> None:
    """Refuse names of no node of the owner, if only the owner can start anything there."""
    if not (isinstance(cluster, configs.RayCluster) and cluster.way and work.seen):
        return
    owner, shown = cluster.orchestrator, work.seen.nodes
    strangers = [name for name in names if not {name, name.partition(".")[0]} & shown.keys()]
    if strangers and owner and cluster.way.by == owner.kind:
        there = f"it has {shorten(list(shown))}" if shown else work.seen.why_empty or "it has none"
        raise UsageError(f'{work.owner} has no node "{shorten(strangers)}": {there}')


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
        if work.seen and work.seen.why_empty:
            raise OrchestratorError(f"{work.owner} shows no node: {work.seen.why_empty}")
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
    retired = dict.fromkeys(set(nodes).intersection(work.retired), "it is retired")
    busy = work.reasons_to_spare(nodes) | retired
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


def _job_reason(job: Job) -> str:
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
