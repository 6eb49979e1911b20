"""The nodes of a cluster, as their orchestrator and the history see them."""

from __future__ import annotations

from collections.abc import Sequence

from anubis.config import configs
from anubis.core.errors import ConfigError, UsageError
from anubis.core.history.maintenance import Windows, open_windows
from anubis.core.history.status import jobs_on_nodes
from anubis.core.keep.keeper_events import FleetSeen, SeenJob
from anubis.core.records import Judgement
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import THIS_MACHINE, name_in_history, refusal_of, time_in
from anubis.operations.keeper_news import objections_in
from anubis.operations.owners import orchestrator_of, windows_seen
from anubis.operations.selector import read_past
from anubis.reach.orchestrators.orchestrator import orchestrator_kinds
from anubis.report.maintenance import sentence
from anubis.report.nodes import NodeView
from anubis.store.history import ClusterHistory, History
from anubis.text.hostlist import shorten


def nodes(
    names: Sequence[str] | None = None, *, cluster: str | None = None, caller: Caller = NO_CALLER
) -> list[NodeView]:
    """These nodes, or all that the orchestrator has; without one, all that the history knows."""
    with caller.history() as history:
        part, described = _part(history, cluster)
        time = time_in(part, caller)
        if time.doubt:
            caller.remark(time.doubt)
        orchestrator = orchestrator_of(described) if described else None
        seen = orchestrator.observe() if orchestrator else None
        in_history = part.node_names.all()
        past = read_past(part, time.now).doubting(time.doubt)
        past = past.add_objections(objections_in(part, time))
        last = {validation.node: validation for validation in part.experience.validations()}
        holds = {hold.node: hold for hold in part.holds.current(time.now)}
        jobs = jobs_on_nodes(part.jobs.open_jobs(), time.now)
    shown = names or (list(seen.nodes) if seen else in_history)
    if not shown and orchestrator is None:
        caller.remark(
            f"no orchestrator shows nodes of cluster {part.cluster}, and its history knows none:"
            f" name one in its file (`orchestrator: {' | '.join(orchestrator_kinds())}`), or begin"
            " with anubis accept"
        )
    if seen and seen.why_empty:
        caller.remark(f"the orchestrator shows no node: {seen.why_empty}")
    there = {*in_history}.union(seen.nodes if seen else ())
    if strangers := [name for name in shown if name not in there]:
        raise UsageError(
            f'cluster "{part.cluster}" has no node "{shorten(strangers)}", and its history knows'
            " none of that name"
        )
    maintained = _maintained(past.windows, seen, time.now)
    return [
        NodeView(
            node=name,
            cluster=part.cluster,
            seen=seen.nodes.get(name) if seen else None,
            jobs=_jobs_on(name, seen),
            reported_jobs=() if seen and name in seen.nodes else jobs.get(name, ()),
            hold=holds.get(name),
            last=last.get(name),
            judgement=(Judgement.UNKNOWN if name in maintained else past.standing.judgement(name)),
            unfit=past.standing.unfit.get(name, ""),
            maintenance=maintained.get(name, ""),
            owes=past.standing.owing_reason(name),
            unproven=past.standing.unproven_reason(name),
            doubt=past.standing.doubt_reason(name),
        )
        for name in shown
    ]


def _part(history: History, name: str | None) -> tuple[ClusterHistory, configs.Cluster | None]:
    """The cluster's history, and its file, if it has one. Nothing is entered."""
    names = history.clusters.names()
    name = name or (history.only().cluster if names else THIS_MACHINE)
    try:
        described = configs.cluster(name)
    except ConfigError as error:
        if name not in names:
            raise refusal_of(name, names, error) from None
        return history.cluster(name), None
    return history.cluster(name_in_history(name, described)), described


def _maintained(reported: Windows, seen: FleetSeen | None, at: float) -> dict[str, str]:
    """Nodes with an open maintenance, as reported or as the orchestrator shows it, and the sentence
    on it."""
    shown = windows_seen(seen) if seen else {}
    windows = {
        node: (*reported.get(node, ()), *shown.get(node, ()))
        for node in reported.keys() | shown.keys()
    }
    return {node: sentence(window, at) for node, window in open_windows(windows, at).items()}


def _jobs_on(node: str, seen: FleetSeen | None) -> dict[str, SeenJob]:
    if seen is None or node not in seen.nodes:
        return {}
    return {id: seen.jobs[id] for id in seen.nodes[node].jobs if id in seen.jobs}
