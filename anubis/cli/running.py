"""What `accept` and `validate` share: from options to a campaign, carried out and reported."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from anubis import catalog, config, criteria_files, hostlist, places
from anubis.cli import showing
from anubis.cli.progress import Progress
from anubis.core.campaign import planning
from anubis.core.errors import (
    AnubisError,
    CriteriaError,
    TopologyError,
    UsageError,
    did_you_mean,
)
from anubis.core.fabric import Fabric, one_switch, place
from anubis.core.records import (
    Arrangement,
    Campaign,
    CampaignKind,
    Counters,
    CriteriaSet,
    Node,
    Plan,
    Policy,
    Suite,
    canonical,
)
from anubis.executors.base import Executor
from anubis.hostlist import shortened
from anubis.operations.past import how_to_go_on
from anubis.reading import read
from anubis.report.view import CampaignView
from anubis.store import event_log
from anubis.store.history import History
from anubis.validator import carry_out

if TYPE_CHECKING:
    from anubis.topology.draft import Survey


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command line asks for."""

    kind: CampaignKind
    nodes: str | None
    cluster: str
    suite: str | None  # None: the one that suits the network
    policy: str
    benchmarks: tuple[Path, ...]
    criteria: Path | None = None
    html: Path | None = None
    json: bool = False
    chosen: frozenset[str] | None = None  # of the suite's benchmarks; None: all of them
    network: Network | None = None


@dataclass(frozen=True, kw_only=True)
class Network:
    """What a scan is told of the fabric, and which pairs it is to measure."""

    topology: str | None
    hcas: Path | None
    counters: tuple[Path, ...]
    over_s: float | None
    groups: Arrangement


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a campaign runs; kept with it, so that it can be resumed without being told again."""

    cluster: config.Cluster
    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Brief:
    """The files that an order names: read, and refused, before anything is started."""

    setting: Setting
    suite: Suite
    policy: Policy
    criteria: tuple[CriteriaSet, ...]
    survey: Survey | None = None
    counters: Counters = Counters()

    @property
    def benchmarks(self) -> set[str]:
        return {entry.benchmark for entry in self.suite.benchmarks}


def show_plan(order: Order, *, resume: bool) -> None:
    """The plan with its time and node-hours. Nodes are looked up, nothing runs on them."""
    if resume:
        raise UsageError("--dry-run shows the plan of a new campaign: leave out --resume")
    brief = _brief(order)
    programs = _catalog(brief.setting)
    with _executor(brief.setting.cluster, programs, brief.benchmarks, order.nodes) as executor:
        plan = _plan(order, brief, executor, programs)
    showing.plan(plan, _parallel(brief.setting.cluster), as_json=order.json)
    if plan.fabric:
        showing.crossed(plan, plan.fabric, as_json=order.json)


def run(order: Order, *, resume: bool, campaign: str | None) -> NoReturn:
    """Carry out a new campaign, or an old one to its end; exits with the verdict's code."""
    turn_termination_into_interrupt()
    if campaign and not resume:
        raise UsageError("--campaign names the campaign to go on with: give --resume as well")
    showing.check_page(order.html)
    view = _go_on(order.kind, campaign) if resume else carry_out_new(order)
    try:
        showing.campaign(view, as_json=order.json)
    finally:  # whoever stopped reading, or a disk that is full, must not cost the other files
        if not order.kind.needs_criteria and order.criteria is None:
            _write_criteria(view)
        _write_report(view, order.html)
    sys.exit(showing.exit_code(view))


def carry_out_new(order: Order) -> CampaignView:
    brief = _brief(order)
    programs = _catalog(brief.setting)
    cluster = brief.setting.cluster
    with (
        History.open(places.history_url()) as history,
        _executor(
            cluster, programs, brief.benchmarks, order.nodes, fabric=_simulated(order, brief)
        ) as executor,
    ):
        plan = _plan(order, brief, executor, programs)
        campaign = _new_campaign(order, brief, plan, executor.now())
        history.begin(campaign)
        return _carry_out(campaign, executor, history, _parallel(cluster))


def _go_on(kind: CampaignKind, name: str | None) -> CampaignView:
    with History.open(places.history_url()) as history:
        campaign = _unfinished(history, kind, name)
        setting = _read_setting(campaign.setting)
        programs = _catalog(setting)
        _refuse_changed(campaign.plan, programs)
        used = {spec.name for spec in campaign.plan.specs}
        nodes = ",".join(node.name for node in campaign.plan.nodes)
        with _executor(
            setting.cluster,
            programs,
            used,
            nodes,
            missing_is_fine=True,
            fabric=campaign.plan.fabric,
        ) as executor:
            return _carry_out(campaign, executor, history, _parallel(setting.cluster))


def _carry_out(
    campaign: Campaign, executor: Executor, history: History, parallel_nodes: int | None
) -> CampaignView:
    with (
        _saying_how_to_go_on(campaign),
        history.claim(campaign.id),
        event_log.recording(places.events(), campaign.id) as witness,
    ):
        past = history.executions(campaign.id)
        with Progress(campaign, parallel_nodes) as progress:
            outcome = carry_out(
                campaign,
                executor,
                keep=lambda batch: history.record(campaign.id, batch),
                observe=progress.observe,
                history=past,
                parallel_nodes=parallel_nodes,
                witness=witness,
            )
        began_at, ended_at = _dates(campaign, outcome.finished_at, executor)
        history.conclude(
            campaign.id,
            outcome.assessment,
            outcome.criteria,
            finished_at=ended_at,
            created_at=began_at,
        )
    return CampaignView(
        campaign=dataclasses.replace(
            campaign, created_at=began_at, finished_at=ended_at, criteria=outcome.criteria
        ),
        executions=outcome.executions,
        assessment=outcome.assessment,
        criteria=outcome.criteria,
    )


def _dates(campaign: Campaign, finished_at: float, executor: Executor) -> tuple[float, float]:
    """When it began and ended. One in memory, on a clock of its own, is over now: a gate finds it
    recent, and what happens to a node next comes after it."""
    behind_s = time.time() - executor.now() if campaign.executor == "simulated" else 0.0
    return campaign.created_at + behind_s, finished_at + behind_s


@contextmanager
def _saying_how_to_go_on(campaign: Campaign) -> Iterator[None]:
    """Whatever ends the driver early, what was measured is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise UsageError(
            f"interrupted; what was measured is kept; {how_to_go_on(campaign)}"
        ) from None
    except AnubisError as error:
        raise type(error)(f"{error}; {how_to_go_on(campaign)}") from error


# --- from options to records ---------------------------------------------------------------


def _brief(order: Order) -> Brief:
    if order.nodes is not None:
        hostlist.read(order.nodes)
    folders = (places.shipped("benchmarks"), *order.benchmarks)
    setting = Setting(
        cluster=config.cluster(order.cluster),
        folders=tuple(str(folder.expanduser().resolve()) for folder in folders),
    )
    survey = _survey(order.network) if order.network else None
    return Brief(
        setting=setting,
        suite=_suite(order, survey),
        policy=config.policy(order.policy),
        criteria=_criteria(order),
        survey=survey,
        counters=_counters(order.network) if survey and order.network else Counters(),
    )


def _counters(network: Network) -> Counters:
    """What the ports of the fabric counted before the scan."""
    from anubis.operations.surveying import count_errors

    counters, findings = count_errors(network.topology, network.counters, network.over_s)
    for finding in findings:
        showing.say(str(finding))
    return counters


def _survey(network: Network) -> Survey | None:
    """What the topology says; None where none was given, and the fabric does not answer."""
    from anubis.operations.surveying import survey

    try:
        found = survey(network.topology, network.hcas)
    except TopologyError as error:
        if network.topology is not None:
            raise
        showing.say(f"{error}; until then all nodes count as being on one switch")
        return None
    if found.findings:
        showing.say(
            f"{len(found.findings):,} remarks on the topology: anubis topology show tells them"
        )
    return found


def _suite(order: Order, survey: Survey | None) -> Suite:
    """The one that was named; for a scan with the arrangement that was asked for."""
    if order.network is None:
        return _restricted(config.suite(order.suite or "quick"), order.chosen)
    rdma = survey is not None and any(_is_hca(nic.device) for nic in survey.fabric.nics)
    suite = config.suite(order.suite or ("scan-rdma" if rdma else "scan"))
    entries = (replace(entry, groups=order.network.groups) for entry in suite.benchmarks)
    return replace(suite, benchmarks=tuple(entries))


def _is_hca(device: str) -> bool:
    return device.startswith(("mlx", "HCA"))


def _restricted(suite: Suite, chosen: frozenset[str] | None) -> Suite:
    if chosen is None:
        return suite
    kept = tuple(entry for entry in suite.benchmarks if entry.benchmark in chosen)
    return replace(suite, benchmarks=kept)


def _read_setting(text: str) -> Setting:
    return read(json.loads(text), Setting, "the campaign's setting", UsageError)


def _catalog(setting: Setting) -> catalog.Catalog:
    return catalog.load(Path(folder) for folder in setting.folders)


def _plan(order: Order, brief: Brief, executor: Executor, programs: catalog.Catalog) -> Plan:
    wanted = None if order.nodes is None else set(hostlist.read(order.nodes))
    nodes = [node for node in executor.nodes() if wanted is None or node.name in wanted]
    fabric = _fabric(brief.survey, nodes) if order.network else None
    plan = planning.plan(brief.suite, nodes, programs.specs, fabric)
    plan = replace(plan, counters=brief.counters)
    if fabric:
        _refuse_no_pairs(plan, fabric)
    _refuse_unknown_limits(brief.policy, programs)
    _refuse_useless(brief.criteria, plan)
    return plan


def _fabric(survey: Survey | None, nodes: Sequence[Node]) -> Fabric:
    """The fabric with the nodes under the names they have here."""
    names = [node.name for node in nodes]
    if survey is None:
        return one_switch(names)
    placement = place(survey.fabric, names)
    if not placement.nodes:
        raise UsageError(
            f"the topology knows none of {shortened(names)}: it has "
            f"{shortened(survey.fabric.nodes) or 'no nodes'}"
        )
    return placement.fabric


def _simulated(order: Order, brief: Brief) -> Fabric | None:
    """The network that a fleet in memory is to have; real ones have their own."""
    cluster = brief.setting.cluster
    if order.network is None or not isinstance(cluster, config.SimulatedCluster):
        return None
    from anubis.simulation.fleet import members

    return _fabric(brief.survey, members(cluster.fleet))


def _refuse_no_pairs(plan: Plan, fabric: Fabric) -> None:
    strangers = [e.workload for p in plan.phases for e in p.entries if e.scope == "node"]
    if strangers:
        raise UsageError(
            f'suite "{plan.suite}" has {strangers[0].benchmark}, which measures single nodes: '
            "a scan takes programs for pairs and groups"
        )
    if len(planning.placed(plan, fabric)) < 2:
        raise UsageError("a scan takes two nodes of the topology at least")


def _new_campaign(order: Order, brief: Brief, plan: Plan, now: float) -> Campaign:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return Campaign(
        id=f"{order.kind}-{stamp}-{secrets.token_hex(2)}",
        kind=order.kind,
        plan=plan,
        policy=brief.policy,
        executor=brief.setting.cluster.executor,
        setting=canonical(dataclasses.asdict(brief.setting)),
        criteria=brief.criteria,
        created_at=now,
    )


def _unfinished(history: History, kind: CampaignKind, campaign: str | None) -> Campaign:
    if campaign:
        row = history.campaign(campaign)
        if row.kind is not kind:
            raise UsageError(f'campaign "{campaign}" is another verb\'s; {how_to_go_on(row)}')
        if row.finished_at is not None:
            raise UsageError(
                f'campaign "{campaign}" is finished: anubis report --campaign {campaign} shows it'
            )
        return row
    for latest in history.campaigns(limit=100):
        if latest.kind is kind and latest.finished_at is None:
            return history.campaign(latest.id)
    raise UsageError(f"there is nothing to resume: no {kind} was cut short")


def _refuse_changed(plan: Plan, programs: catalog.Catalog) -> None:
    """A campaign is finished with the programs it was begun with, or not at all."""
    for spec in plan.specs:
        if programs.specs.get(spec.name) != spec:
            raise UsageError(
                f'benchmark "{spec.name}" is no longer the one this campaign began with; '
                "begin a new campaign"
            )


# --- criteria ------------------------------------------------------------------------------


def _criteria_folder() -> Path:
    return places.home() / "criteria"


def _criteria(order: Order) -> tuple[CriteriaSet, ...]:
    """What the campaign is to judge by; none for one that learns its own."""
    if order.criteria:
        return criteria_files.load(order.criteria.expanduser())
    if not order.kind.needs_criteria or order.suite is None:
        return ()
    folder = _criteria_folder() / config.find("suites", order.suite).stem
    if not folder.is_dir():
        raise CriteriaError(
            f'no criteria for suite "{order.suite}" yet: learn them with '
            f"anubis accept --suite {order.suite}, or give --criteria PATH"
        )
    return criteria_files.load(folder)


def _refuse_unknown_limits(policy: Policy, programs: catalog.Catalog) -> None:
    """A limit for a metric that nobody measures would hold nobody to anything, without a word."""
    for limit in policy.limits:
        spec = programs.specs.get(limit.benchmark)
        if spec and spec.metric(limit.metric) is None:
            hint = did_you_mean(limit.metric, [metric.name for metric in spec.metrics])
            where = f" (limits {limit.table})" if limit.table else ""
            raise UsageError(
                f'the policy has a limit for "{limit.metric}"{where}, which {limit.benchmark} '
                f"does not measure; {hint}"
            )


def _refuse_useless(criteria: tuple[CriteriaSet, ...], plan: Plan) -> None:
    """Better no run than one whose every verdict is unknown."""
    if not criteria:
        return
    known = {criterion.key.workload for each in criteria for criterion in each.criteria}
    planned = {entry.workload for phase in plan.phases for entry in phase.entries}
    if known & planned:
        return
    versions = {str(workload) for workload in known}
    wanted = {str(workload) for workload in planned}
    hint = (
        "the same benchmarks with other parameters"
        if versions & wanted
        else f"they are for {', '.join(sorted(versions)) or 'nothing'}"
    )
    raise CriteriaError(
        f"the criteria cover nothing of suite {plan.suite} ({', '.join(sorted(wanted))}): {hint}; "
        f"learn them again with anubis accept --suite {plan.suite}"
    )


def _write_criteria(view: CampaignView) -> None:
    for each in view.criteria:
        path = _criteria_folder() / view.campaign.plan.suite / criteria_files.file_name(each)
        criteria_files.write(each, path)
        showing.say(f"criteria of {each.sku} for suite {view.campaign.plan.suite}: {path}")


def _write_report(view: CampaignView, asked_for: Path | None) -> None:
    """One that nobody asked for by name must not cost the verdict its exit code."""
    if asked_for:
        showing.write_html(view, asked_for)
        return
    try:
        showing.write_html(view, places.home() / "reports" / f"{view.campaign.id}.html")
    except UsageError as error:
        showing.say(f"{error}; anubis report --html FILE writes it elsewhere")


# --- executors -----------------------------------------------------------------------------


def _parallel(cluster: config.Cluster) -> int | None:
    return None if isinstance(cluster, config.LocalCluster) else cluster.parallel_nodes


@contextmanager
def _executor(
    cluster: config.Cluster,
    programs: catalog.Catalog,
    used: Collection[str],
    nodes: str | None,
    *,
    missing_is_fine: bool = False,
    fabric: Fabric | None = None,
) -> Iterator[Executor]:
    wanted = [] if nodes is None else hostlist.read(nodes)
    executor = _open(cluster, programs, used, wanted, fabric)
    try:
        present = [node.name for node in executor.nodes()]
        absent = [name for name in wanted if name not in set(present)]
        if absent and not missing_is_fine:
            raise UsageError(
                f'node "{shortened(absent)}" is not in the cluster, which has {shortened(present)}'
            )
        yield executor
    finally:
        executor.close()


def _open(
    cluster: config.Cluster,
    programs: catalog.Catalog,
    used: Collection[str],
    wanted: Sequence[str],
    fabric: Fabric | None,
) -> Executor:
    match cluster:
        case config.LocalCluster():
            from anubis.executors.local import LocalExecutor, this_machine

            return LocalExecutor(this_machine(cluster.sku), programs.programs, catalog.parse_result)
        case config.RayCluster():
            from anubis.executors.ray_cluster import RayExecutor

            address = cluster.address or os.environ.get("RAY_ADDRESS") or None
            if address is None:
                showing.say(
                    "no address is given, nor RAY_ADDRESS: Ray is started on this machine alone"
                )
            return RayExecutor(
                address,
                programs.programs,
                catalog.parse_result,
                names=wanted or (hostlist.read(cluster.nodes) if cluster.nodes else ()),
                sku=cluster.sku,
            )
        case config.SimulatedCluster():
            from anubis.executors.simulated import SimulatedExecutor

            # trouble is planted where the campaign looks
            specs = {name: spec for name, spec in programs.specs.items() if name in used}
            return SimulatedExecutor(cluster.fleet, specs, fabric)


def turn_termination_into_interrupt() -> None:
    """SIGTERM from a scheduler ends a campaign as Ctrl-C does: nothing is left running."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
