"""Import into the history what another tool measured, or what happened to nodes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from anubis import __version__
from anubis.config import configs
from anubis.core.errors import UsageError
from anubis.core.history.status import Incident, Watch
from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    CriteriaSet,
    Execution,
    Plan,
    Policy,
)
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import (
    enter,
    find_for_import,
    find_own_names,
    has_nodes,
    no_such_node,
    now_in,
    strangers_among,
)
from anubis.operations.names import new_name
from anubis.operations.precedents import Precedents, taught_before
from anubis.operations.requests import (
    BaselineImport,
    CsvImport,
    IncidentImport,
    NodeImport,
    SuperbenchImport,
)
from anubis.operations.validator import judge
from anubis.readers.incidents import incident_intake, named_cells
from anubis.readers.incidents.incident_intake import Intake, Note
from anubis.readers.incidents.node_attributes import NodeIntake, NodeMapping, take_in_nodes
from anubis.readers.superbench.adoption import adopt, means_as_criteria
from anubis.readers.superbench.results import NodeResults, read_baseline, read_results
from anubis.readers.superbench.rules import apply_rules, read_rules
from anubis.readers.tables import intake as foreign
from anubis.readers.tables.adoption import adopt as adopt_table
from anubis.readers.tables.intake import ForeignTable, TableMapping
from anubis.store.codec import dump
from anubis.store.history import ClusterHistory, History
from anubis.store.imports import Import
from anubis.text import hostlist
from anubis.text.wording import names, quantity

R = TypeVar("R", Incident, Watch)


@dataclass(frozen=True, kw_only=True)
class ImportedResults:
    campaign: Campaign  # finished, and in the history only once, however often it is imported
    kept: Import
    values: int
    by_rules: Assessment | None = None  # if rules were given


@dataclass(frozen=True, kw_only=True)
class ImportedBaseline:
    criteria: CriteriaSet
    left_out: tuple[str, ...]  # metrics without a positive mean or a known direction


@dataclass(frozen=True, kw_only=True)
class ImportedIncidents:
    intake: Intake
    kept: Import
    strangers: tuple[str, ...]  # nodes that the cluster does not have; theirs were ignored


@dataclass(frozen=True, kw_only=True)
class ImportedNodes:
    intake: NodeIntake
    kept: Import
    untold: tuple[str, ...]  # nodes that the history knows and the table does not name


def import_csv(request: CsvImport, caller: Caller = NO_CALLER) -> ImportedResults:
    """Import a table of measurements as a finished campaign, judged by criteria learned from
    itself.

    With one wrong line nothing is imported, unless wrong lines are to be skipped: their nodes are
    then unknown.
    """
    if not hostlist.is_name(request.suite):
        raise UsageError(
            f'--suite is "{request.suite}", expected a name for these measurements, such as sgemm:'
            " letters, digits, dots, dashes, underscores"
        )
    mapping = TableMapping.parse(request.columns, request.metrics, sku=request.sku.strip())
    chosen = configs.policy(request.policy)
    now = now_in(request.cluster, caller)
    table = foreign.read(request.file, mapping, now, skip_wrong=request.skip_wrong)
    _tell_of_lines(table, caller)
    if table.wrong and not request.skip_wrong:
        raise UsageError(
            f'"{request.file}" has wrong lines: nothing was imported; correct them, or import the'
            " others with --skip-wrong-lines"
        )
    plan, executions = adopt_table(table, request.suite)
    campaign, kept = _keep(request, plan, executions, chosen, caller, _span(table))
    return ImportedResults(campaign=campaign, kept=kept, values=table.samples.size)


def import_superbench(request: SuperbenchImport, caller: Caller = NO_CALLER) -> ImportedResults:
    """Import a results-summary.jsonl as a finished campaign, judged by criteria learned from
    itself."""
    if not request.sku.strip():
        raise UsageError("--sku is empty: name the kind of these nodes, such as a100-sxm-8x")
    if request.baseline and not request.rules:
        raise UsageError("--baseline is what --rules compare with: give --rules as well")
    chosen = configs.policy(request.policy)
    rows = read_results(request.file)
    by_rules = None
    if request.rules:
        by_rules = _assess_by_rules(rows, request.rules, request.baseline, caller)
    plan, executions = adopt(rows, request.sku.strip())
    campaign, kept = _keep(request, plan, executions, chosen, caller)
    values = sum(len(execution.result.series) for execution in executions)
    return ImportedResults(campaign=campaign, kept=kept, values=values, by_rules=by_rules)


def import_superbench_baseline(
    request: BaselineImport, caller: Caller = NO_CALLER
) -> ImportedBaseline:
    """Read a baseline.json as criteria: means of so many units, without their spread."""
    if not request.sku.strip():
        raise UsageError("--sku is empty: name the kind of nodes that the means are from")
    criteria, left_out = means_as_criteria(
        read_baseline(request.file),
        sku=request.sku.strip(),
        units=request.units,
        policy=configs.policy(request.policy),
        anubis=__version__,
        # wall clock: criteria are of no cluster
        created_at=datetime.fromtimestamp(caller.clock(), UTC).isoformat(timespec="seconds"),
    )
    return ImportedBaseline(criteria=criteria, left_out=tuple(left_out))


def import_incidents(request: IncidentImport, caller: Caller = NO_CALLER) -> ImportedIncidents:
    """Import a table or a list of events; `nodes` are all that were watched. Without these, a
    cluster that has nodes gets no others by it: incidents of unknown nodes are ignored. A table in
    which no node failed tells how long each was watched."""
    chosen = configs.incident_mapping(request.mapping)
    file, cluster, nodes = request.file, request.cluster, request.nodes
    table, now = named_cells.read(file), now_in(cluster, caller)
    taken = incident_intake.take_in(table, chosen, f'"{file}"', now, nodes)
    _tell(taken, caller)
    if not (taken.incidents or any(map(_is_long, taken.watches))):
        raise UsageError(
            f'"{file}" has no usable incident, and does not say how long a node was watched:'
            " nothing was imported"
        )
    with caller.history(begins=True) as history:
        part, new = find_for_import(history, cluster, caller)
        strangers: tuple[str, ...] = ()
        if nodes is None and has_nodes(part, cluster):
            taken, strangers = _drop_strangers(taken, part, cluster, caller)
        part = enter(history, new, caller) if new else part
        kept = history.imports.add(
            str(file.absolute()), now, part.cluster, taken.incidents, taken.watches
        )
    return ImportedIncidents(intake=taken, kept=kept, strangers=strangers)


def report_incidents(
    text: str,
    source: str,
    *,
    mapping: str = "plain",
    cluster: str | None = None,
    caller: Caller = NO_CALLER,
) -> ImportedIncidents:
    """Keep incidents that a monitor reports as they happen: records in JSON, as in a file. They do
    not say how long nodes were watched. Reports on nodes that the cluster does not have are
    ignored."""
    chosen, now = configs.incident_mapping(mapping), now_in(cluster, caller)
    taken = incident_intake.take_in(
        named_cells.parse(text, source), chosen, source, now, is_news=True
    )
    _tell(taken, caller)
    if not taken.incidents:
        left_out = "; ".join(map(_sentence, taken.left_out))
        raise UsageError(f"no usable incident in {source}: {left_out or 'it has no record'}")
    with caller.history(begins=True) as history:
        part, new = find_for_import(history, cluster, caller)
        taken, strangers = _drop_strangers(taken, part, cluster, caller)
        if new:
            enter(history, new, caller)
        kept = history.imports.add(source, now, part.cluster, taken.incidents, (), is_news=True)
    return ImportedIncidents(intake=taken, kept=kept, strangers=strangers)


def _drop_strangers(
    taken: Intake, part: ClusterHistory, cluster: str | None, caller: Caller
) -> tuple[Intake, tuple[str, ...]]:
    """Return what is about nodes of the cluster, and the other nodes with incidents, or without one
    if no node has any: a remark names them. If there are no others, all is refused."""
    watched = [watch.node for watch in taken.watches]
    hit = list(dict.fromkeys(incident.node for incident in taken.incidents)) or watched
    away = {*strangers_among(part, list(dict.fromkeys([*hit, *watched])), cluster)}
    own = find_own_names(part, sorted(away), cluster, caller)
    away -= own.keys()
    strangers = tuple(node for node in hit if node in away)
    if len(strangers) == len(hit):
        raise UsageError(no_such_node(strangers, part, cluster))
    if strangers:
        caller.remark(
            f'ignored: {names(strangers)}, not in cluster "{part.cluster}" (report a new one with'
            " node-added)"
        )
    kept = dataclasses.replace(
        taken,
        incidents=_name_as_cluster(taken.incidents, own, away),
        watches=_name_as_cluster(taken.watches, own, away),
    )
    return kept, strangers


def _name_as_cluster(
    taken: Iterable[R], own: Mapping[str, str], away: Collection[str]
) -> tuple[R, ...]:
    """Return records of the cluster's nodes by their own names; several names may be one node's."""
    named = (
        dataclasses.replace(record, node=own.get(record.node, record.node))
        for record in taken
        if record.node not in away
    )
    return tuple(dict.fromkeys(named))


def _is_long(watch: Watch) -> bool:
    return watch.until is None or watch.until > watch.since


def import_nodes(request: NodeImport, caller: Caller = NO_CALLER) -> ImportedNodes:
    """Import where nodes are and what they are: rack, cage, sku, time of installation."""
    try:
        mapping = NodeMapping.parse(request.columns, request.times, request.zone)
    except ValueError as error:
        raise UsageError(f"--time or --zone: {error}") from None
    file, cluster = request.file, request.cluster
    table, now = named_cells.read(file), now_in(cluster, caller)
    taken = take_in_nodes(table, mapping, f'"{file}"', now)
    _tell(taken, caller)
    if not taken.attributes:
        raise UsageError(f'"{file}" names no usable node: nothing was imported')
    with caller.history(begins=True) as history:
        part = _enter_cluster(history, cluster, caller)
        watched = {watch.node for watch in part.watches.all()}
        kept = history.imports.add_attributes(
            str(file.absolute()), now, part.cluster, taken.attributes
        )
    untold = tuple(sorted(watched - {attributes.node for attributes in taken.attributes}))
    return ImportedNodes(intake=taken, kept=kept, untold=untold)


def _enter_cluster(history: History, cluster: str | None, caller: Caller) -> ClusterHistory:
    """Find a cluster and enter it into the history."""
    part, new = find_for_import(history, cluster, caller)
    return enter(history, new, caller) if new else part


def _assess_by_rules(
    rows: tuple[NodeResults, ...], rules: Path, baseline: Path | None, caller: Caller
) -> Assessment:
    """Assess results by a SuperBench rule file."""
    compared_with = read_baseline(baseline) if baseline else {}
    assessment, idle = apply_rules(read_rules(rules), rows, compared_with)
    for name in idle:
        caller.remark(f'rule "{name}" finds no metric in the results: nothing was judged by it')
    return assessment


def _keep(
    request: CsvImport | SuperbenchImport,
    plan: Plan,
    executions: Sequence[Execution],
    policy: Policy,
    caller: Caller,
    span: tuple[float, float] | None = None,
) -> tuple[Campaign, Import]:
    """Keep an imported campaign. `span`: when it was measured, by default now. Results that are in
    the history already, under any file name, are not kept again."""
    now = now_in(request.cluster, caller)
    _tell_of_alike_names(plan, caller)
    since, until = span or (now, now)
    campaign = Campaign(
        id=new_name(CampaignKind.IMPORT, now),
        kind=CampaignKind.IMPORT,
        plan=plan,
        policy=policy,
        executor=plan.specs[0].version,
        setting=_digest(plan, executions),
        created_at=since,
    )
    with caller.history(begins=True) as history:
        part = _enter_cluster(history, request.cluster, caller)
        campaign = dataclasses.replace(campaign, cluster=part.cluster)
        before = history.campaigns.finished_in(campaign.setting, campaign.cluster)
        if before:
            caller.remark(f"the same was imported before: nothing is kept twice, see {before}")
            return history.campaigns.get(before), history.imports.find_campaign(before)
        earlier = Precedents(criteria=taught_before(history, since))
        assessment, criteria = judge(campaign, executions, {}, now, before=earlier)
        history.campaigns.begin(campaign)
        history.executions.record(campaign.id, executions)
        history.assessments.conclude(campaign.id, assessment, criteria, finished_at=until)
        kept = history.imports.add_campaign(
            str(request.file.absolute()), now, campaign.cluster, campaign.id
        )
    return dataclasses.replace(campaign, criteria=criteria, finished_at=until), kept


def _tell_of_alike_names(plan: Plan, caller: Caller) -> None:
    several = hostlist.HostNames([node.name for node in plan.nodes]).several_of_one()
    if several:
        rest = len(several) - 1
        more = f", and so may the names of {quantity(rest, 'other')}" if rest else ""
        caller.remark(
            f"{names(several[0])} may be one node{more}: each name is judged as a node of its own,"
            " so write one name for each node"
        )


def _digest(plan: Plan, executions: Sequence[Execution]) -> str:
    """Digest of what was measured, on which nodes, and its meaning."""
    sha = hashlib.sha256(dump(plan).encode())
    for execution in executions:
        series = execution.result.series
        outcome = (execution.step.id, execution.ended, execution.reason, series.layout.series)
        models = execution.result.models
        sha.update(repr((*outcome, models) if models else outcome).encode())
        sha.update(series.values.tobytes())
    return sha.hexdigest()[:32]


def _span(table: ForeignTable) -> tuple[float, float] | None:
    spans = table.spans.values()
    return (min(since for since, _ in spans), max(until for _, until in spans)) if spans else None


def _tell_of_lines(table: ForeignTable, caller: Caller) -> None:
    for wrong in table.wrong:
        caller.remark(str(wrong))
    if table.passed_over:
        caller.remark(f"not imported, because no --metric names it: {names(table.passed_over)}")


def _tell(taken: Intake | NodeIntake, caller: Caller) -> None:
    for note in taken.left_out:
        caller.remark(f"left out: {_sentence(note)}")
    for note in taken.remarks:
        caller.remark(f"taken: {_sentence(note)}")


def _sentence(note: Note) -> str:
    count = "1 record" if len(note.where) == 1 else f"{len(note.where):,} records"
    return f"{count} ({names(note.where, limit=3)}): {note.text}"
