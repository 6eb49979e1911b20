"""What `accept` and `validate` share: from options to a campaign, carried out and reported."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

from anubis import catalog, config, criteria_files, hostlist, places
from anubis.cli import showing
from anubis.cli.progress import Progress
from anubis.core import planning
from anubis.core.errors import CriteriaError, UsageError, did_you_mean
from anubis.core.records import (
    Campaign,
    CriteriaSet,
    Plan,
    canonical,
)
from anubis.executors.base import Executor
from anubis.reading import read
from anubis.report.view import CampaignView
from anubis.store.history import History
from anubis.validator import carry_out


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command line asks for."""

    verb: Literal["accept", "validate"]
    nodes: str | None
    cluster: str
    suite: str
    policy: str
    benchmarks: tuple[Path, ...]
    criteria: Path | None = None
    html: Path | None = None
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a campaign runs; kept with it, so that it can be resumed without being told again."""

    cluster: config.Cluster
    folders: tuple[str, ...]


def show_plan(order: Order) -> None:
    """The plan with its time and node-hours. Nodes are looked up, nothing runs on them."""
    setting = _setting(order)
    programs = _catalog(setting)
    with _executor(setting.cluster, programs, order.nodes) as executor:
        plan = _plan(order, executor, programs)
    showing.plan(plan, _parallel(setting.cluster), as_json=order.json)


def run(order: Order, *, resume: bool, campaign: str | None) -> NoReturn:
    """Carry out a new campaign, or an old one to its end; exits with the verdict's code."""
    _turn_termination_into_interrupt()
    with History.open(places.history_url()) as history:
        if resume:
            chosen = history.campaign(_unfinished(history, order.verb, campaign))
            setting = _read_setting(chosen.setting)
        elif campaign:
            raise UsageError("--campaign names the campaign to go on with: give --resume as well")
        else:
            chosen, setting = None, _setting(order)
        programs = _catalog(setting)
        criteria = _criteria(order) if chosen is None and order.verb == "validate" else ()
        nodes = ",".join(node.name for node in chosen.plan.nodes) if chosen else order.nodes
        with _executor(setting.cluster, programs, nodes, missing_is_fine=resume) as executor:
            if chosen is None:
                plan = _plan(order, executor, programs)
                _refuse_useless(criteria, plan)
                chosen = _new_campaign(order, plan, setting, criteria, executor.now())
                history.begin(chosen)
            else:
                _refuse_changed(chosen.plan, programs)
            view = _carry_out(chosen, executor, history, _parallel(setting.cluster))
    if order.verb == "accept":
        _write_criteria(view)
    html = order.html or places.home() / "reports" / f"{chosen.id}.html"
    showing.campaign(view, as_json=order.json, html=html)
    sys.exit(showing.exit_code(view.assessment))


def _carry_out(
    campaign: Campaign, executor: Executor, history: History, parallel_nodes: int | None
) -> CampaignView:
    with history.claim(campaign.id):
        past = history.executions(campaign.id)
        progress = Progress(campaign, parallel_nodes)
        try:
            with progress:
                outcome = carry_out(
                    campaign,
                    executor,
                    keep=lambda batch: history.record(campaign.id, batch),
                    observe=progress.observe,
                    history=past,
                    parallel_nodes=parallel_nodes,
                )
        except KeyboardInterrupt:
            raise UsageError(
                f"interrupted; everything measured so far is kept, go on with: "
                f"anubis {campaign.verb} --resume --campaign {campaign.id}"
            ) from None
        history.conclude(
            campaign.id, outcome.assessment, outcome.criteria, finished_at=outcome.finished_at
        )
    return CampaignView(
        campaign=dataclasses.replace(
            campaign, finished_at=outcome.finished_at, criteria=outcome.criteria
        ),
        executions=outcome.executions,
        assessment=outcome.assessment,
        criteria=outcome.criteria,
    )


# --- from options to records ---------------------------------------------------------------


def _setting(order: Order) -> Setting:
    folders = (places.shipped("benchmarks"), *order.benchmarks)
    return Setting(
        cluster=config.cluster(order.cluster),
        folders=tuple(str(folder.expanduser().resolve()) for folder in folders),
    )


def _read_setting(text: str) -> Setting:
    return read(json.loads(text), Setting, "the campaign's setting", UsageError)


def _catalog(setting: Setting) -> catalog.Catalog:
    return catalog.load(Path(folder) for folder in setting.folders)


def _plan(order: Order, executor: Executor, programs: catalog.Catalog) -> Plan:
    wanted = set(hostlist.read(order.nodes)) if order.nodes else None
    nodes = [node for node in executor.nodes() if wanted is None or node.name in wanted]
    return planning.plan(config.suite(order.suite), nodes, programs.specs)


def _new_campaign(
    order: Order,
    plan: Plan,
    setting: Setting,
    criteria: tuple[CriteriaSet, ...],
    now: float,
) -> Campaign:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return Campaign(
        id=f"{order.verb}-{stamp}-{secrets.token_hex(2)}",
        verb=order.verb,
        plan=plan,
        policy=config.policy(order.policy),
        executor=setting.cluster.executor,
        setting=canonical(dataclasses.asdict(setting)),
        criteria=criteria,
        created_at=now,
    )


def _unfinished(history: History, verb: str, campaign: str | None) -> str:
    if campaign:
        row = history.campaign(campaign)
        if row.verb != verb:
            raise UsageError(f'campaign "{campaign}" is a {row.verb}: anubis {row.verb} --resume')
        if row.finished_at is not None:
            raise UsageError(f'campaign "{campaign}" is finished: anubis report shows it')
        return campaign
    for latest in history.campaigns(limit=100):
        if latest.verb == verb and latest.finished_at is None:
            return latest.id
    raise UsageError(f"no {verb} was cut short: there is nothing to resume")


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
    if order.criteria:
        return criteria_files.load(order.criteria.expanduser())
    folder = _criteria_folder() / config.find("suites", order.suite).stem
    if not folder.is_dir():
        raise CriteriaError(
            f'no criteria for suite "{order.suite}" yet: learn them with '
            f"anubis accept --suite {order.suite}, or give --criteria PATH"
        )
    return criteria_files.load(folder)


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


# --- executors -----------------------------------------------------------------------------


def _parallel(cluster: config.Cluster) -> int | None:
    return None if isinstance(cluster, config.LocalCluster) else cluster.parallel_nodes


@contextmanager
def _executor(
    cluster: config.Cluster,
    programs: catalog.Catalog,
    nodes: str | None,
    *,
    missing_is_fine: bool = False,
) -> Iterator[Executor]:
    wanted = hostlist.read(nodes) if nodes else []
    executor = _open(cluster, programs, wanted)
    try:
        present = {node.name for node in executor.nodes()}
        for name in wanted:
            if name not in present and not missing_is_fine:
                raise UsageError(
                    f'node "{name}" is not in the cluster; {did_you_mean(name, present)}'
                )
        yield executor
    finally:
        executor.close()


def _open(cluster: config.Cluster, programs: catalog.Catalog, wanted: Sequence[str]) -> Executor:
    match cluster:
        case config.LocalCluster():
            from anubis.executors.local import LocalExecutor, this_machine

            return LocalExecutor(this_machine(cluster.sku), programs.programs, catalog.parse_result)
        case config.RayCluster():
            from anubis.executors.ray_cluster import RayExecutor

            return RayExecutor(
                cluster.address or os.environ.get("RAY_ADDRESS") or None,
                programs.programs,
                catalog.parse_result,
                names=wanted or (hostlist.read(cluster.nodes) if cluster.nodes else ()),
                sku=cluster.sku,
            )
        case config.SimulatedCluster():
            from anubis.executors.simulated import SimulatedExecutor

            return SimulatedExecutor(cluster.fleet, programs.specs)


def _turn_termination_into_interrupt() -> None:
    """SIGTERM from a scheduler ends a campaign as Ctrl-C does: nothing is left running."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
