"""Imports what another tool measured, or what happened to nodes, into the history."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from anubis import __version__, config
from anubis.core.errors import UsageError
from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    CriteriaSet,
    Execution,
    Plan,
    Policy,
)
from anubis.incidents import intake, records
from anubis.incidents.intake import Intake, Note
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.campaigns import new_name
from anubis.report.wording import names
from anubis.store.imports import Import
from anubis.superbench import baseline as means
from anubis.superbench.adoption import adopt
from anubis.superbench.results import NodeResults, read_baseline, read_results
from anubis.superbench.rules import apply_rules, read_rules
from anubis.validator import judge


@dataclass(frozen=True, kw_only=True)
class ImportedResults:
    campaign: Campaign  # finished as it comes in, and in the history
    values: int
    by_rules: Assessment | None  # where rules were given


@dataclass(frozen=True, kw_only=True)
class ImportedBaseline:
    criteria: CriteriaSet
    left_out: tuple[str, ...]  # metrics without a positive mean or a known direction


@dataclass(frozen=True, kw_only=True)
class ImportedIncidents:
    intake: Intake
    kept: Import
    strangers: tuple[str, ...]  # nodes that a history which knew others did not know


def import_superbench(
    file: Path,
    *,
    sku: str,
    policy: str = "default",
    rules: Path | None = None,
    baseline: Path | None = None,
    caller: Caller = NOBODY,
) -> ImportedResults:
    """A results-summary.jsonl as a finished campaign, judged by what it teaches itself."""
    if not sku.strip():
        raise UsageError("--sku is empty: name the kind of these nodes, such as a100-sxm-8x")
    if baseline and not rules:
        raise UsageError("--baseline is what --rules compare with: give --rules as well")
    chosen = config.policy(policy)
    rows = read_results(file)
    by_rules = _by_rules(rows, rules, baseline, caller) if rules else None
    plan, executions = adopt(rows, sku.strip())
    campaign = _keep(plan, executions, chosen, caller)
    values = sum(len(execution.result.series) for execution in executions)
    return ImportedResults(campaign=campaign, values=values, by_rules=by_rules)


def import_superbench_baseline(
    file: Path, *, sku: str, units: int, policy: str = "default", caller: Caller = NOBODY
) -> ImportedBaseline:
    """A baseline.json as criteria: means of so many units, without their spread."""
    if not sku.strip():
        raise UsageError("--sku is empty: name the kind of nodes that the means are from")
    criteria, left_out = means.criteria(
        read_baseline(file),
        sku=sku.strip(),
        units=units,
        policy=config.policy(policy),
        anubis=__version__,
        created_at=datetime.fromtimestamp(caller.clock(), UTC).isoformat(timespec="seconds"),
    )
    return ImportedBaseline(criteria=criteria, left_out=tuple(left_out))


def import_incidents(
    file: Path,
    *,
    mapping: str = "plain",
    nodes: Collection[str] | None = None,
    caller: Caller = NOBODY,
) -> ImportedIncidents:
    """A table or a list of events; `nodes` are all that were watched."""
    chosen = config.incident_mapping(mapping)
    now = caller.clock()
    taken = intake.take_in(records.read(file), chosen, f'"{file}"', now, nodes)
    _tell(taken, caller)
    if not taken.incidents:
        raise UsageError(f'"{file}" has no usable incident: nothing was imported')
    with caller.history() as history:
        before = {watch.node for watch in history.watches.all()}
        kept = history.imports.add(str(file.absolute()), now, taken.incidents, taken.watches)
    hit = {incident.node for incident in taken.incidents}
    strangers = tuple(sorted(hit - before)) if before else ()
    return ImportedIncidents(intake=taken, kept=kept, strangers=strangers)


def _by_rules(
    rows: tuple[NodeResults, ...], rules: Path, baseline: Path | None, caller: Caller
) -> Assessment:
    compared_with = read_baseline(baseline) if baseline else {}
    assessment, idle = apply_rules(read_rules(rules), rows, compared_with)
    for name in idle:
        caller.remark(f'rule "{name}" finds no metric in the results: nothing was judged by it')
    return assessment


def _keep(plan: Plan, executions: Sequence[Execution], policy: Policy, caller: Caller) -> Campaign:
    now = caller.clock()
    campaign = Campaign(
        id=new_name(CampaignKind.IMPORT, now),
        kind=CampaignKind.IMPORT,
        plan=plan,
        policy=policy,
        executor="superbench",
        created_at=now,
    )
    assessment, criteria = judge(campaign, executions, {}, now)
    with caller.history() as history:
        history.campaigns.begin(campaign)
        history.executions.record(campaign.id, executions)
        history.assessments.conclude(campaign.id, assessment, criteria, finished_at=now)
    return dataclasses.replace(campaign, criteria=criteria, finished_at=now)


def _tell(taken: Intake, caller: Caller) -> None:
    for note in taken.left_out:
        caller.remark(f"left out: {_sentence(note)}")
    for note in taken.remarks:
        caller.remark(f"taken: {_sentence(note)}")


def _sentence(note: Note) -> str:
    count = "1 record" if len(note.where) == 1 else f"{len(note.where):,} records"
    return f"{count} ({names(note.where, limit=3)}): {note.text}"
