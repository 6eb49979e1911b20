"""Test the idle nodes most at risk, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anubis.core.errors import UsageError
from anubis.core.history.events import Tick
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import tell_debts
from anubis.operations.busy_nodes import drop_busy, others_work
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import cluster_file, find, time_in
from anubis.operations.decide import (
    USUAL,
    add,
    busy_nodes,
    keep,
    owed_after,
    past_of,
    read_repertoire,
    refuse_nodes,
    weigh,
)
from anubis.operations.decided_tests import carried_out_tests
from anubis.operations.requests import Terms
from anubis.operations.selector import Past
from anubis.report.sweep import SweepResult
from anubis.store.history import ClusterHistory


def sweep(
    nodes: Sequence[str] | None = None,
    terms: Terms = USUAL,
    caller: Caller = NOBODY,
    *,
    name: str = "",
) -> SweepResult:
    """Test the idle nodes most at risk, within a budget: among these, or among all in the history.
    `name`: of the campaign."""
    repertoire = read_repertoire(terms)
    with caller.history() as history:
        part, cluster = find(history, terms.cluster, caller, nodes or ())
        refuse_nodes(part, Tick(nodes=tuple(nodes or ())), terms, may_test=True)
        time = time_in(part, caller)
        if time.doubt:
            caller.remark(time.doubt)
        past = past_of(part, time.now, repertoire).doubting(time.doubt)
        past = past.add_objections(part.objections())
        jobs = part.jobs.open_jobs()
        work = others_work(cluster_file(part, terms.cluster), past.windows, time.now, jobs)
        idle = Tick(nodes=tuple(drop_busy(_idle_nodes(nodes, past, part, time.now), work, caller)))
        weighed = weigh(idle, terms, repertoire, past, part, time.now)
        decision = replace(weighed, cluster=part.cluster)
        if not decision.tests:
            keep(decision, cluster, history, caller)
    caller.decided(decision)
    beside = partial(add, decision)
    with carried_out_tests(decision, terms, caller, name, beside=beside) as campaign:
        owes = past.standing.owes
        if campaign and owes:
            owes = owed_after(campaign, decision, repertoire, caller)
        result = SweepResult(
            decision=decision, campaign=campaign, owing=tell_debts(idle.nodes, owes)
        )
        caller.swept(result)
    return result


def _idle_nodes(
    nodes: Sequence[str] | None, past: Past, history: ClusterHistory, at: float
) -> list[str]:
    """Nodes without those that the history has at work, held, out of service or under maintenance,
    and without those that are away or kept from jobs by a person."""
    candidates = past.logbook.nodes if nodes is None else nodes
    if not candidates:
        raise UsageError(
            f'the history has no nodes of cluster "{history.cluster}" yet: name them, or begin with'
            " anubis accept"
        )
    history.holds.settle(at)
    out = busy_nodes(history, at) | past.standing.unfit.keys()
    out |= open_windows(past.windows, at).keys() | history.keeping.left_alone()
    return [node for node in candidates if node not in out]
