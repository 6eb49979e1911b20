"""Forecast incidents: learn a model from the history, compare models, use one, and rank nodes
by their risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Instants, Statuses, Times
from anubis.models.risk import evaluation, risk_files, risk_learning, trained
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.contributions import carriers
from anubis.models.risk.covariates import drop_covariates, worth_learning
from anubis.models.risk.evaluation import Evaluation
from anubis.models.risk.forecast import Forecast
from anubis.models.risk.risk_files import ModelProvenance
from anubis.models.risk.risk_model import RiskModel, forecast
from anubis.models.risk.splits import split_by_name
from anubis.models.risk.trained import Trained
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import look_up, time_in
from anubis.operations.decide import Repertoire, read_repertoire
from anubis.operations.requests import EvaluateRiskRequest, RiskRequest, Terms, TrainRiskRequest
from anubis.operations.selector import LOOKED_BACK_S, Past, base_rate, read_past
from anubis.report.risk_ranking import NodeAtRisk, RiskGlance
from anubis.store.history import ClusterHistory
from anubis.text import places
from anubis.text.wording import names


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


@dataclass(frozen=True, kw_only=True)
class NodeRisks:
    cluster: str
    statuses: Statuses  # of the nodes as they are now
    forecast: Forecast  # a row for each of them
    model: str
    choice: str  # why this model
    attributes: tuple[NodeAttributes, ...]  # of the same nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.statuses.nodes


def train_risk(request: TrainRiskRequest, caller: Caller = NOBODY) -> LearnedRisk:
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


def evaluate_risk(request: EvaluateRiskRequest, caller: Caller = NOBODY) -> ComparedRisk:
    """Compare the models; nodes in `ask` are kept out of training."""
    cluster, logbook, at = _logbook(request.cluster, caller)
    _tell_of_gaps(logbook, caller)
    uptimes, tell = risk_learning.uptimes_of(logbook, at), caller.doing
    learned, tested = split_by_name(uptimes, list(request.ask)) if request.ask else (uptimes, None)
    learned, attributes = worth_learning(learned, tell)
    compared = evaluation.evaluate(learned, seeds=range(request.seeds), tell=tell)
    if tested is not None:
        left_out = set(tested.statuses.covariates) - set(learned.statuses.covariates)
        tested = drop_covariates(tested, left_out)
        compared += evaluation.evaluate_elsewhere(
            learned, tested, seeds=range(request.seeds), tell=tell
        )
    choice, _ = risk_learning.choose(compared, learned, 0, tell)
    choice = replace(choice, attributes=attributes)
    return ComparedRisk(cluster=cluster, evaluation=compared, choice=choice)


def foresee(request: RiskRequest, caller: Caller = NOBODY) -> NodeRisks:
    """Forecast of the trained model for these nodes as they are now."""
    cluster, logbook, at = _logbook(request.cluster, caller)
    nodes = request.nodes
    model, provenance = risk_files.load(_model_file(request.file, cluster))
    if strangers := sorted(set(nodes) - set(logbook.nodes)):
        caller.remark(f"the history has no {names(strangers)}: forecast as if just added")
    if unforeseen := logbook.uncovered_categories(model.covariates):
        caller.remark(f"the model has no {names(unforeseen)}: counted only in the totals")
    for grouping, alone in logbook.strangers_in_group(nodes, model.covariates).items():
        caller.remark(
            f"no other node of the {grouping} of {names(alone)} is known: the usual rate counts"
        )
    statuses = logbook.statuses(Instants.now(list(nodes), at), model.covariates)
    return NodeRisks(
        cluster=cluster,
        statuses=statuses,
        forecast=forecast(model, statuses),
        model=model.name,
        choice=provenance.choice,
        attributes=tuple(map(logbook.attributes, nodes)),
    )


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
    caller: Caller = NOBODY,
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
    base = base_rate(past.logbook, now)
    risk = model or base
    statuses = past.logbook.statuses(Instants.now(nodes, now), risk.covariates)
    owing = np.array([node in past.standing.owes for node in nodes], dtype=bool)
    chances = np.where(owing, 1.0, risk.chances_within(statuses, horizon_h))
    first = np.argsort(-chances, kind="stable")[:EXPLAINED].tolist() if model else []
    within = partial(risk.chances_within, hours=horizon_h)
    looks = model is not None and model.model.looks
    explained = carriers(within, statuses, first) if looks else [[] for _ in first]
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
        middle=float(np.median(chances)) if nodes else 0.0,
        half=_half(chances),
        model=model.model.name if model else "",
        is_assumed=model is None and not base.seen,
        looks=looks,
        trained_at=model.origin.trained_at if model else None,
        origin=model.origin if model else None,
        trouble=trouble,
    )


def _model(cluster: str) -> tuple[Trained | None, str]:
    """The trained model, or the reason why it cannot be used."""
    file = places.risk_file(cluster)
    if not file.is_file():
        return None, ""
    try:
        return trained.load(file), ""
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
