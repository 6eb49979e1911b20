"""Forecast incidents: learn a model from the history, compare models, use one, and rank nodes by
their risk.

As a periodic task, train the model again on the history, and use it, or propose it, only if it is
better than the one in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from anubis.config import configs
from anubis.core.errors import ConfigError, RiskError, named_by_request
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Instants, Times, Uptimes
from anubis.core.keep.commands import Mode
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.models.risk import evaluation, risk_files, risk_learning
from anubis.models.risk.choice import ModelChoice, judge_successor
from anubis.models.risk.covariates import Carrier, carriers, drop_covariates, worth_learning
from anubis.models.risk.evaluation import Evaluation
from anubis.models.risk.forecast import HOURS, Forecast
from anubis.models.risk.risk_files import ModelProvenance, Trained
from anubis.models.risk.risk_model import RiskModel, forecast
from anubis.models.risk.splits import draw_nodes, split_by_name
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import look_up, time_in
from anubis.operations.decide import Repertoire, read_repertoire
from anubis.operations.names import new_name
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.requests import EvaluateRiskRequest, RiskRequest, Terms, TrainRiskRequest
from anubis.operations.selector import (
    LOOKED_BACK_S,
    Past,
    assess_risk,
    base_rate,
    instants_of_risk,
    read_past,
    silence_remark,
)
from anubis.report.risk import SHOWN_H, NodeRisks
from anubis.report.risk_page import NodeAtRisk, RiskGlance
from anubis.store.history import ClusterHistory
from anubis.text import places
from anubis.text.wording import moment, names


@dataclass(frozen=True, kw_only=True)
class LearnedRisk:
    cluster: str
    model: RiskModel
    provenance: ModelProvenance
    file: Path


@dataclass(frozen=True, kw_only=True)
class ComparedRisk:
    cluster: str
    evaluation: Evaluation
    choice: ModelChoice


def train_risk(request: TrainRiskRequest, caller: Caller = NO_CALLER) -> LearnedRisk:
    """Train the model of that name, or the one that wins by node and by time, and write its
    file."""
    cluster, logbook, at = _logbook(request.cluster, caller)
    _tell_of_gaps(logbook, caller)
    uptimes = risk_learning.uptimes_of(logbook, at)
    trained, provenance = risk_learning.train(uptimes, request.seed, request.model, caller.doing)
    provenance = replace(provenance, trained_at=at)
    path = _model_file(request.file, cluster)
    risk_files.save(trained, provenance, path)
    return LearnedRisk(cluster=cluster, model=trained, provenance=provenance, file=path)


def evaluate_risk(request: EvaluateRiskRequest, caller: Caller = NO_CALLER) -> ComparedRisk:
    """Compare the models; nodes in `ask` are kept out of training."""
    cluster, logbook, at = _logbook(request.cluster, caller)
    _tell_of_gaps(logbook, caller)
    uptimes, tell = risk_learning.uptimes_of(logbook, at), caller.doing
    learned, tested = split_by_name(uptimes, list(request.ask)) if request.ask else (uptimes, None)
    drawn, attributes = worth_learning(draw_nodes(learned), tell)
    for sentence in risk_learning.drawn_remark(learned, drawn):
        caller.remark(sentence)
    left_out = set(learned.statuses.covariates) - set(drawn.statuses.covariates)
    compared = evaluation.evaluate(drawn, seeds=range(request.seeds), tell=tell)
    if tested is not None:
        tested = drop_covariates(tested, left_out)
        compared += evaluation.evaluate_elsewhere(
            drawn, tested, seeds=range(request.seeds), tell=tell
        )
    choice, _ = risk_learning.choose(compared, drop_covariates(learned, left_out), 0, tell)
    choice = replace(choice, attributes=attributes)
    return ComparedRisk(cluster=cluster, evaluation=compared, choice=choice)


def foresee(request: RiskRequest, caller: Caller = NO_CALLER) -> NodeRisks:
    """Forecast of the trained model for these nodes as they are now. A silence that is not taken
    for health lowers no risk, as in a decision by the default policy."""
    policy, nodes = configs.policy("default").selection, request.nodes
    with caller.history() as history:
        part = look_up(history, request.cluster)
        at = time_in(part, caller).now
        past = read_past(part, at)
    with named_by_request(request.file is not None):
        model, provenance = risk_files.load(_model_file(request.file, part.cluster))
    for sentence in _remarks(past.logbook, model, nodes, at):
        caller.remark(sentence)
    if silence := silence_remark(past, at, policy):
        caller.remark(silence)
    views = [
        past.logbook.statuses(Instants.now(nodes, instant), model.covariates)
        for instant in instants_of_risk(past, at, policy)
    ]
    hours = np.union1d(HOURS, SHOWN_H)  # exactly these, so that a gate says the same
    hazards = [forecast(model, view, hours).hazard for view in views]
    return NodeRisks(
        cluster=part.cluster,
        statuses=views[0],
        forecast=Forecast(hours=hours, hazard=np.maximum.reduce(hazards)),
        model=model.name,
        choice=provenance.choice,
        attributes=tuple(map(past.logbook.attributes, nodes)),
    )


def _remarks(logbook: Logbook, model: RiskModel, nodes: Sequence[str], at: float) -> Iterator[str]:
    """Yield sentences on what the history or the model does not know of these nodes."""
    strangers = sorted(set(nodes) - set(logbook.nodes))
    if strangers:
        yield f"the history has no {names(strangers)}: forecast as if just added"
    if unforeseen := logbook.uncovered_categories(model.covariates):
        yield f"the model has no {names(unforeseen)}: counted only in the totals"
    for grouping, alone in logbook.strangers_in_group(nodes, model.covariates).items():
        yield f"no other node of the {grouping} of {names(alone)} is known: the usual rate counts"
    is_watched = logbook.are_watched(Instants.now(nodes, at)).tolist()
    unwatched = {node for node, watched in zip(nodes, is_watched, strict=True) if not watched}
    if ended := sorted(unwatched.difference(strangers)):
        yield f"not watched any more, and up times count until that ended: {names(ended)}"


def _tell_of_gaps(logbook: Logbook, caller: Caller) -> None:
    for attribute, count in logbook.sparse_attributes().items():
        caller.remark(
            f"{attribute} is known of {count:,} of {len(logbook.nodes):,} nodes: no model learns"
            " from it, because the others may be those that never failed. Report it by anubis"
            " history import nodes"
        )


def _logbook(cluster: str | None, caller: Caller) -> tuple[str, Logbook, float]:
    """Name, logbook and time of the named cluster or the only one."""
    with caller.history() as history:
        part = look_up(history, cluster)
        return part.cluster, part.experience.logbook(), time_in(part, caller).now


def _model_file(chosen: Path | None, cluster: str) -> Path:
    return chosen.expanduser() if chosen else places.risk_file(cluster)


EXPLAINED = 100  # nodes, those most at risk


def risk_at_a_glance(
    suite: str = "quick",
    policy: str = "default",
    benchmarks: Sequence[Path] = (),
    caller: Caller = NO_CALLER,
) -> list[RiskGlance]:
    """Risks of each cluster, within the horizon of the policy."""
    repertoire = read_repertoire(Terms(suite=suite, policy=policy, benchmarks=benchmarks))
    with caller.history() as history:
        return [_glance(part, repertoire, time_in(part, caller).now) for part in history.every()]


def _glance(part: ClusterHistory, repertoire: Repertoire, now: float) -> RiskGlance:
    model, trouble = _model(part.cluster)
    past = read_past(part, now, model, repertoire.demands)
    horizon_h = repertoire.policy.horizon_h
    nodes = _fleet_nodes(part, past, now)
    prospect = assess_risk(past, nodes, now, horizon_h, repertoire.policy)
    statuses = prospect.statuses
    owing = np.array([node in past.standing.owes for node in nodes], dtype=bool)
    chances = np.where(owing, 1.0, prospect.chances)
    first = np.argsort(-chances, kind="stable")[:EXPLAINED].tolist() if model else []
    explained: list[list[Carrier]] = [[] for _ in first]
    if model and model.model.looks:
        explained = carriers(partial(model.chances_within, hours=horizon_h), statuses, first)
    return RiskGlance(
        cluster=part.cluster,
        horizon_h=horizon_h,
        nodes=tuple(
            NodeAtRisk(
                node=statuses.nodes[row],
                chance=float(chances[row]),
                judgement=past.standing.judgement(statuses.nodes[row]),
                carriers=tuple(carried_by),
                status=dict(zip(statuses.covariates, statuses.values[row].tolist(), strict=True)),
                attributes=past.logbook.attributes(statuses.nodes[row]),
            )
            for row, carried_by in zip(first, explained, strict=True)
        ),
        total=len(nodes),
        expected=float(chances.sum()),
        middle=float(np.median(prospect.chances)) if nodes else 0.0,
        half=_half(chances),
        model=model.model.name if model else "",
        is_assumed=model is None and not base_rate(past.logbook, now).seen,
        looks=model is not None and model.model.looks,
        trained_at=model.origin.trained_at if model else None,
        origin=model.origin if model else None,
        trouble=trouble,
        unanswered=int(owing.sum()),
    )


def _model(cluster: str) -> tuple[Trained | None, str]:
    """The trained model, or the reason why it cannot be used."""
    file = places.risk_file(cluster)
    if not file.is_file():
        return None, ""
    try:
        return risk_files.load_trained(file), ""
    except RiskError as error:
        return None, str(error)


def _fleet_nodes(part: ClusterHistory, past: Past, now: float) -> list[str]:
    """Nodes of the fleet; all known nodes if no report says which belong to it."""
    happened = part.experience.happenings(now - LOOKED_BACK_S)  # as the past was read by
    watched = {w.node for w in happened.watches if w.until is None or w.until > now}
    return [node for node in past.logbook.nodes if node in watched] or list(past.logbook.nodes)


def _half(chances: Times) -> int:
    """Number of nodes, the likeliest first, that carry half of the expected incidents."""
    carried = np.cumsum(np.sort(chances)[::-1])
    return int(np.searchsorted(carried, carried[-1] / 2)) + 1 if carried.size else 0


def renew_risk(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    if task.agreed is not None:
        return _take(task, Path(task.agreed.proposal))
    schedule = task.policy.risk
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for the model of risk any more")
    logbook = task.part.experience.logbook()
    now = task.record.began

    def view(covariates: tuple[str, ...] | None) -> Uptimes:
        return risk_learning.uptimes_of(logbook, now, covariates)

    def learn(uptimes: Uptimes) -> tuple[RiskModel, ModelProvenance]:
        return risk_learning.train(uptimes, 0, tell=task.caller.doing)

    in_use = _model_in_use(task)
    try:
        if in_use is None:
            why = "no model was in use"
        else:
            used, trained_at = in_use
            verdict = judge_successor(view, used, trained_at, now, lambda past: learn(past)[0])
            if verdict.because:
                return task.end_unchanged(f"{used.name} of {moment(trained_at)} stays: {verdict}")
            why = f"better than {used.name} of {moment(trained_at)}: {verdict}"
        model, origin = learn(view(None))
    except RiskError as error:
        return task.end_unchanged(f"too little is known to train a model: {error}")
    if in_use is None and not model.looks:
        return task.end_unchanged(f"no model is worth using: {origin.choice}")
    origin = replace(origin, trained_at=now)
    if schedule.mode is Mode.ACT:
        _put_in_use(task, model, origin)
        return task.end_done(f"{model.name} is in use: {why}")
    proposal = places.proposals(task.part.cluster) / f"{new_name('risk', now)}.npz"
    risk_files.save(model, origin, proposal)
    return task.end_proposed(f"use {model.name}: {why}", proposal=str(proposal))


def _model_in_use(task: PeriodicTaskRun) -> tuple[RiskModel, float] | None:
    """The model in use, and the time up to which it learned; None if there is no model."""
    file = places.risk_file(task.part.cluster)
    if not file.is_file():
        return None
    model, origin = risk_files.load(file)
    return model, file.stat().st_mtime if origin.trained_at is None else origin.trained_at


def _put_in_use(task: PeriodicTaskRun, model: RiskModel, origin: ModelProvenance) -> None:
    risk_files.save(model, origin, places.risk_file(task.part.cluster))


def _take(task: PeriodicTaskRun, proposal: Path) -> PeriodicTaskRecord:
    if not proposal.is_file():
        raise RiskError(
            f'there is no proposal "{proposal}" on this machine: approve it on the machine that'
            " made it"
        )
    model, origin = risk_files.load(proposal)
    in_use = _model_in_use(task)
    if in_use and in_use[1] > (origin.trained_at or 0.0):
        raise RiskError(
            f"the model in use, of {moment(in_use[1])}, is newer than the one that was proposed:"
            " nothing is changed"
        )
    _put_in_use(task, model, origin)
    return task.end_done(f"{model.name} is in use: a person agreed")
