"""Test the idle nodes most at risk, within a budget; as a periodic task, no more at once than the
keeping policy says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anubis.core.errors import CampaignTakenError, ConfigError, UsageError
from anubis.core.history.events import Tick
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import tell_debts
from anubis.core.keep.commands import Mode
from anubis.core.keep.keeping_policy import SweepTask, allowed_count
from anubis.core.keep.life import Life, State
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.records import Judgement, NodeVerdict
from anubis.core.select.selection import Budget
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import cluster_file, find, time_in
from anubis.operations.decide import (
    USUAL,
    add,
    busy_nodes,
    keep,
    read_repertoire,
    refuse_nodes,
)
from anubis.operations.decided_tests import carried_out_tests
from anubis.operations.keeper_news import time_after, weighing_by_now
from anubis.operations.names import new_name
from anubis.operations.owners import drop_busy, others_work
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.requests import Terms
from anubis.operations.selector import Past
from anubis.report.sweep import SweepResult
from anubis.store.history import ClusterHistory
from anubis.store.holds import holder_of
from anubis.text.hostlist import shorten
from anubis.text.wording import quantity


def sweep(
    nodes: Sequence[str] | None = None,
    terms: Terms = USUAL,
    caller: Caller = NO_CALLER,
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
        weighing = weighing_by_now(part, time, repertoire)
        past = weighing.past
        jobs = part.jobs.open_jobs()
        work = others_work(cluster_file(part, terms.cluster), past.windows, time.now, jobs)
        idle = Tick(nodes=tuple(drop_busy(_idle_nodes(nodes, past, part, time.now), work, caller)))
        decision = weighing.decide(idle)
        if not decision.tests:
            keep(decision, cluster, history, caller)
    caller.decided(decision)
    beside = partial(add, decision)
    with carried_out_tests(decision, terms, caller, name, beside=beside) as campaign:
        owes = past.standing.owes
        if campaign:
            with caller.history() as history:
                part = history.cluster(decision.cluster)
                time = time_after(campaign.view.campaign, part, caller)
                past = weighing_by_now(part, time, repertoire, {*idle.nodes}).past
            owes = past.standing.owes
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
    candidates = history.node_names.all() if nodes is None else nodes
    if not candidates:
        raise UsageError(
            f'the history has no nodes of cluster "{history.cluster}" yet: name them, or begin with'
            " anubis accept"
        )
    history.holds.settle(at)
    out = busy_nodes(history, at) | past.standing.unfit.keys()
    out |= open_windows(past.windows, at).keys() | history.keeping.left_alone()
    return [node for node in candidates if node not in out]


MAY_BE_TESTED = (State.IN_SERVICE, State.SPARE)  # the keeper tests the others


def sweep_idle_nodes(task: PeriodicTaskRun) -> PeriodicTaskRecord | None:
    """Sweep, or go on with an interrupted sweep. None: the driver of its campaign died, and its
    programs may still run."""
    schedule = task.policy.sweep
    if schedule is None:
        raise ConfigError("the policy of keeping states no sweep any more")
    if schedule.mode is Mode.PROPOSE and task.agreed is None:
        return task.end_proposed(f"test the idle nodes most at risk, {_cost(schedule)}")
    campaign = task.history.campaigns.find(task.record.campaign) if task.record.campaign else None
    if campaign is None:
        return _begin(task, schedule)
    if campaign.finished_at is None:
        if _is_held(task, campaign.id):
            return None
        from anubis.operations.campaigns import resume_campaign

        try:
            resume_campaign(campaign.kind, campaign.id, task.caller)
        except CampaignTakenError:
            return None
    return _swept(task, campaign.id)


def _begin(task: PeriodicTaskRun, schedule: SweepTask) -> PeriodicTaskRecord:
    lives = [life for life in task.part.keeping.lives() if life.is_there]
    free = [life.node for life in lives if _is_free(life)]
    under_test = sum(life.trial is not None for life in lives)
    limit = allowed_count(task.policy.tested_at_once, len(lives)) - under_test
    if not free or limit <= 0:
        return task.end_unchanged(f"none of {quantity(len(lives), 'node')} is free to be tested")
    name = task.record.campaign or new_name("validate", time_in(task.part, task.caller).now)
    task.note(campaign=name)
    result = sweep(free, _terms(task, schedule, limit), task.caller, name=name)
    if result.campaign is None:
        looked_at = f"{len(free)} of {quantity(len(lives), 'node')}"
        owing = (
            f"; {quantity(len(result.owing), 'node')} still owe an answer" if result.owing else ""
        )
        return task.end_unchanged(
            f"no test is worth its time now, on {looked_at}{owing}", campaign=""
        )
    return _swept(task, name)


def _is_free(life: Life) -> bool:
    return life.state in MAY_BE_TESTED and life.is_idle and not life.cordon


def _terms(task: PeriodicTaskRun, schedule: SweepTask, limit: int) -> Terms:
    return Terms(
        suite=task.policy.suite,
        policy=task.policy.selection,
        benchmarks=task.keeping.benchmarks,
        budget=replace(Budget.from_text(schedule.budget), nodes=limit),
        cluster=task.keeping.cluster,
    )


def _cost(schedule: SweepTask) -> str:
    budget = schedule.budget
    return f"for {budget} at most" if budget.endswith("nh") else f"for {budget} on each at most"


def _is_held(task: PeriodicTaskRun, campaign: str) -> bool:
    holds = task.part.holds.current(time_in(task.part, task.caller).now)
    return any(hold.holder == holder_of(campaign) for hold in holds)


def _swept(task: PeriodicTaskRun, campaign: str) -> PeriodicTaskRecord:
    verdicts = task.history.assessments.node_verdicts(campaign)
    nodes = sum(life.is_there for life in task.part.keeping.lives())
    sentence = f"{len(verdicts)} of {quantity(nodes, 'node')} tested: {_findings(verdicts)}"
    return task.end_done(sentence, campaign=campaign)


def _findings(verdicts: Sequence[NodeVerdict]) -> str:
    parts = []
    for judgement in (Judgement.DEFECTIVE, Judgement.UNKNOWN):
        if nodes := [verdict.node for verdict in verdicts if verdict.judgement is judgement]:
            parts.append(f"{len(nodes)} {judgement} ({shorten(nodes)})")
    return ", ".join(parts) or "all healthy"
