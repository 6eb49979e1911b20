"""Learn criteria from what campaigns measured before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from anubis import __version__
from anubis.config import configs, criteria_files
from anubis.core.errors import CriteriaError, UsageError
from anubis.core.judge.earlier import learned_before
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.pooling import CampaignEvidence
from anubis.core.judge.software import Versions, versions
from anubis.core.judge.units import Units, latest_executions, relevant_units, units
from anubis.core.records import Campaign, CriteriaSet, Workload
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.history import campaigns_since, finished_campaign, join_evidence
from anubis.operations.measurements import IntactExecutions, read_intact
from anubis.operations.precedents import taught_before
from anubis.operations.requests import LearnRequest
from anubis.text import hostlist, places


def learn(request: LearnRequest, caller: Caller = NOBODY) -> tuple[CriteriaSet, ...]:
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
            f'--exclude: node "{hostlist.shorten(strangers)}" is in no campaign that is learned '
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
