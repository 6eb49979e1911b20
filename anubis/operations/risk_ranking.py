"""Rank nodes by their risk of an incident soon, with its causes and its basis: a model, or, if none
can be used, the base rate of all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.status import Instants, Times
from anubis.models.risk import trained
from anubis.models.risk.contributions import carriers
from anubis.models.risk.trained import Trained
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import time_in
from anubis.operations.decide import Repertoire, read_repertoire
from anubis.operations.requests import Terms
from anubis.operations.selector import LOOKED_BACK_S, Past, base_rate, read_past
from anubis.report.risk_ranking import NodeAtRisk, RiskGlance
from anubis.store.history import ClusterHistory
from anubis.text import places

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
