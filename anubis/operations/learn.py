"""Learn criteria from what campaigns measured before.

As a periodic task, learn them again from recent measurements and propose them. Those in use change
only if a person agrees, and only if they are still the ones that were compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from anubis import __version__
from anubis.config import configs, criteria_files
from anubis.core.amounts import seconds_of
from anubis.core.errors import ConfigError, CriteriaError, UsageError, named_by_request
from anubis.core.judge.comparison import Renewal, criterion_changes, renewal
from anubis.core.judge.earlier_scatter import learned_before
from anubis.core.judge.equality import Versions, versions
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.pooling import CampaignEvidence
from anubis.core.judge.units import Units, latest_executions, relevant_units, units
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.records import Campaign, CriteriaSet, Workload
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.decide import read_repertoire
from anubis.operations.history import (
    MOST_CAMPAIGNS,
    IntactExecutions,
    campaigns_since,
    finished_campaign,
    join_evidence,
    read_intact,
)
from anubis.operations.names import new_name
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.precedents import taught_before
from anubis.operations.requests import LearnRequest, Terms
from anubis.text import hostlist, places
from anubis.text.wording import moment, quantity


def learn(request: LearnRequest, caller: Caller = NO_CALLER) -> tuple[CriteriaSet, ...]:
    """Learn a set of criteria for each sku. With `since`, pool all finished campaigns of the same
    cluster and suite that began from then on until this one. Damaged records are refused, or left
    out."""
    excluded = frozenset(request.exclude)
    with caller.history() as history:
        last = finished_campaign(history, request.campaign)
        pooled = campaigns_since(history, last, request.since)
        _refuse_strangers(excluded, pooled)
        intact = read_intact(history, pooled, caller, without_damaged=request.without_damaged)
        taught = taught_before(history, pooled[0].created_at)
    measured, present = _collect_units(intact, pooled, request.workloads, excluded, caller)
    suite, names = last.plan.suite, ", ".join(source.id for source in pooled)
    if len(pooled) > 1:
        caller.remark(f"learning from {len(pooled)} campaigns of suite {suite}: {names}")
    if not measured:
        suffix = " without the excluded nodes" if excluded else ""
        raise CriteriaError(f"campaign {names} measured nothing to learn from{suffix}")
    start = request.start_sets
    if request.start:
        with named_by_request():
            start = criteria_files.load(request.start.expanduser(), suite)
    own = [of_sku for source in pooled for of_sku in source.criteria]
    return learn_criteria(
        measured,
        configs.policy(request.policy) if request.policy else last.policy,
        suite=suite,
        anubis=__version__,
        created_at=datetime.fromtimestamp(_learned_at(last), UTC).isoformat(timespec="seconds"),
        versions=present,
        start=start,
        earlier=(*learned_before(start, pooled[0].created_at, own), *taught),
    )


def learned_here() -> tuple[CriteriaSet, ...]:
    """Criteria of every suite that was accepted here: one folder each."""
    folder = places.criteria()
    if not criteria_files.suites(folder):
        raise CriteriaError(
            f'no criteria in "{folder}" yet: learn them with anubis accept, or name a file'
        )
    return criteria_files.load(folder)


def _refuse_strangers(excluded: frozenset[str], pooled: Sequence[Campaign]) -> None:
    """Refuse misspelt names, which would let the excluded node into the criteria."""
    present = {node.name: None for campaign in pooled for node in campaign.plan.nodes}
    strangers = sorted(excluded - present.keys())
    if strangers:
        raise UsageError(
            f'--exclude: node "{hostlist.shorten(strangers)}" is in none of the campaigns to learn '
            f"from; their nodes are {hostlist.shorten(list(present))}"
        )


def _collect_units(
    intact: IntactExecutions,
    pooled: Sequence[Campaign],
    workloads: Collection[Workload] | None,
    excluded: frozenset[str],
    caller: Caller,
) -> tuple[list[Units], Mapping[str, Versions]]:
    """Units of all campaigns, and the versions that the last one found."""
    parts = [
        CampaignEvidence(
            campaign=source, executions=latest_executions(intact.executions_of(source))
        )
        for source in pooled
    ]
    plan = pooled[-1].plan
    evidence = join_evidence(parts, caller)
    measured = units(evidence.executions, evidence.campaign.plan)
    taught = plan.teaching if workloads is None else workloads
    return relevant_units(measured, taught, excluded), versions(parts[-1].executions, plan)


def _learned_at(campaign: Campaign) -> float:
    """Time of the criteria. Those that accept has already learned keep theirs, so that the files
    stay identical."""
    if campaign.kind.learns and campaign.criteria:
        return datetime.fromisoformat(campaign.criteria[0].provenance.created_at).timestamp()
    return campaign.finished_at or campaign.created_at


BEFORE, AFTER = "before", "after"  # folders of a proposal


def renew_criteria(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    if task.agreed is not None:
        return _take(task, Path(task.agreed.proposal))
    schedule = task.policy.criteria
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for criteria any more")
    suite = configs.suite(task.policy.suite).name
    since = task.record.began - seconds_of(schedule.look_back)
    latest = _latest_campaign(task, suite, since)
    if latest is None:
        return task.end_unchanged(f"suite {suite} has measured nothing since {moment(since)}")
    in_use = criteria_files.read_in_use(suite)
    if not in_use:
        return task.end_unchanged(
            f"there are no criteria of suite {suite} to renew: learn them with anubis accept"
        )
    renewed = renewal(in_use, _learn_again(task, latest, in_use, since))
    if not renewed.changes:
        return task.end_unchanged(
            f"none of {_criteria_count(renewed)} of suite {suite} moved{_unmeasured_note(renewed)}"
        )
    folder = places.proposals(task.part.cluster) / new_name("criteria", task.record.began)
    _write(renewed.before, folder / BEFORE)
    _write(renewed.after, folder / AFTER)
    return task.end_proposed(
        f"change {len(renewed.changes)} of {_criteria_count(renewed)} of suite {suite}"
        f"{_unmeasured_note(renewed)}; anubis criteria diff {folder / BEFORE} {folder / AFTER}"
        " shows how",
        proposal=str(folder),
    )


def _latest_campaign(task: PeriodicTaskRun, suite: str, since: float) -> str | None:
    rows = task.history.campaigns.newest(limit=MOST_CAMPAIGNS)
    ended = (
        row.id
        for row in rows
        if (row.cluster, row.suite) == (task.part.cluster, suite)
        and row.kind.validates
        and row.finished_at is not None
        and row.created_at >= since
    )
    return next(ended, None)


def _learn_again(
    task: PeriodicTaskRun, latest: str, in_use: tuple[CriteriaSet, ...], since: float
) -> tuple[CriteriaSet, ...]:
    policy = task.policy
    terms = Terms(suite=policy.suite, benchmarks=task.keeping.benchmarks)
    request = LearnRequest(
        latest,
        since=datetime.fromtimestamp(since, UTC),
        start_sets=in_use,
        policy=policy.selection,
        workloads=read_repertoire(terms).workloads,
    )
    return learn(request, task.caller)


def _criteria_count(renewed: Renewal) -> str:
    return quantity(sum(len(of_sku.criteria) for of_sku in renewed.after), "criterion", "criteria")


def _unmeasured_note(renewed: Renewal) -> str:
    if not renewed.unmeasured:
        return ""
    return f"; too little was measured lately for {renewed.unmeasured} of them"


def _write(sets: tuple[CriteriaSet, ...], folder: Path) -> None:
    for of_sku in sets:
        criteria_files.write(of_sku, folder / criteria_files.place(of_sku))


def _take(task: PeriodicTaskRun, folder: Path) -> PeriodicTaskRecord:
    if not folder.is_dir():
        raise CriteriaError(
            f'there is no proposal "{folder}" on this machine: approve it on the machine that'
            " made it"
        )
    before, after = (criteria_files.load(folder / name) for name in (BEFORE, AFTER))
    suites = {of_sku.provenance.suite for of_sku in before}
    skus = {of_sku.sku for of_sku in before}
    in_use = [
        of_sku
        for suite in suites
        for of_sku in criteria_files.read_in_use(suite)
        if of_sku.sku in skus
    ]
    if criterion_changes(before, in_use):
        raise CriteriaError(
            "the criteria in use changed after this proposal was made: nothing is changed, and the"
            " next proposal starts from the criteria in use"
        )
    files = criteria_files.write_learned(after, places.criteria())
    return task.end_done(
        f"{quantity(len(files), 'file')} of criteria changed: the old ones are in {folder / BEFORE}"
    )
