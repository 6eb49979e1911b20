"""Scores of forecasts against what happened: four questions, four numbers.

Accuracy is Table 3 of the ANUBIS paper, which a constant can win; so there are also the concordance
(are nodes in the right order?), the Brier score (are the chances right?) and the calibration (do
they spread as they should?). Higher is better, except for the Brier score.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.history.status import Times
from anubis.models.risk.forecast import HORIZON_H, Forecast, kaplan_meier, life_table, steps
from anubis.models.risk.score_summary import Accuracy, RiskGroup

WATCHED = 0.05  # share of the uptimes: with fewer left, scores mean nothing
GROUPS = 10  # of a calibration plot
LARGEST_LOG = 50.0  # while solving for a slope: its exponential is still finite


def accuracy(expected_h: Times, duration_h: Times, observed: Flags) -> Accuracy:
    p = _whole_hours(expected_h)
    t = np.where(observed, _whole_hours(duration_h), HORIZON_H)
    away, larger = np.abs(p - t), np.maximum(np.maximum(p, t), 1.0)
    relative = 1 - away / larger
    return Accuracy(
        relative=float(relative.mean()),
        over_horizon=float((1 - away / HORIZON_H).mean()),
        on_observed=float(relative[observed].mean()) if observed.any() else None,
    )


def concordance(hazard: Floats, column: Ints, duration_h: Times, observed: Flags) -> float | None:
    """Share of pairs in which the node with the first incident had the higher risk at that time.

    `hazard` has a row for each node; `column` is the index of the node's own end in it. Ties count
    half. (Antolini, Boracchi and Biganzoli, 2005, with the ties of random survival forests.) None
    if no two uptimes can be compared.
    """
    order = np.argsort(duration_h, kind="stable")
    by_time = np.ascontiguousarray(hazard[order].T)
    right, compared = _compiled()(by_time, column[order], duration_h[order], observed[order])
    return right / compared if compared else None


@cache
def _compiled() -> Callable[..., tuple[float, float]]:
    import numba  # a quarter of a second, for all that loads the models

    compiled: Callable[..., tuple[float, float]] = numba.njit(cache=True)(_concordant)
    return compiled


def _concordant(hazard, column, duration_h, observed):  # type: ignore[no-untyped-def] # numba infers
    """Weighted numbers of right and of compared pairs. Uptimes are sorted by duration: an incident
    is compared with those after it."""
    right, compared, count = 0.0, 0.0, duration_h.size
    for i in np.flatnonzero(observed):
        row = hazard[column[i]]
        own = row[i]
        begin, end = np.searchsorted(duration_h, duration_h[i]), i + 1
        while end < count and duration_h[end] == duration_h[i]:
            end += 1
        below = level = 0
        for j in range(end, count):
            below += own > row[j]
            level += own == row[j]
        right += below + 0.5 * level
        compared += count - end
        for j in range(begin, end):
            if j != i and observed[j]:  # ended together: the pair is visited from both sides
                right += 1.0 if own == row[j] else 0.5
                compared += 1.0
            elif j != i:  # outlasted: the pair is visited once, for both sides
                right += 2.0 if own > row[j] else 1.0 if own == row[j] else 0.0
                compared += 2.0
    return right, compared


def brier(alive: Floats, hours: Times, duration_h: Times, observed: Flags) -> Times:
    """Mean squared error of the chance to be without incident, at each of the hours.

    Weights of similar uptimes with longer watches make up for censored uptimes (Graf and others,
    1999); the weights are divided by their sum.
    """
    watched = life_table(duration_h, ~observed)
    share = kaplan_meier(watched)
    at_hours = steps(share, watched.hours, hours, 1.0)
    censored_before = np.searchsorted(watched.hours, duration_h, side="left")
    before_end = np.concatenate(([1.0], share))[censored_before]
    ended = (duration_h[:, None] <= hours) & observed[:, None]
    lasting = duration_h[:, None] > hours
    with np.errstate(divide="ignore"):
        weights = np.where(ended, 1 / before_end[:, None], np.where(lasting, 1 / at_hours, 0.0))
    errors = np.where(ended, alive**2, (1 - alive) ** 2)
    return np.average(errors, axis=0, weights=weights)


def integrated_brier(alive: Floats, hours: Times, duration_h: Times, observed: Flags) -> float:
    """Mean of the Brier score over the hours, by the trapezoid rule."""
    scores = brier(alive, hours, duration_h, observed)
    return float(np.trapezoid(scores, hours) / (hours[-1] - hours[0]))


def watched_hours(hours: Times, duration_h: Times, observed: Flags) -> Times:
    """Hours until which enough uptimes were not censored."""
    watched = life_table(duration_h, ~observed)
    share = steps(kaplan_meier(watched), watched.hours, hours, 1.0)
    kept: Times = hours[(share >= WATCHED) & (hours <= duration_h.max())]
    return kept


def calibration_slope(
    forecast: Forecast, duration_h: Times, observed: Flags, hours: float
) -> float | None:
    """Calibration slope: 1 if risks spread as they should, below 1 if they are exaggerated.

    With H_i at the uptime's end and the risk r_i = log H_i(hours), the incidents are Poisson with
    the mean exp(a + b r_i + log H_i(end) - r_i); b is the slope (Crowson, Atkinson and Therneau,
    2016). None if all nodes have the same risk.
    """
    happened = (observed & (duration_h <= hours)).astype(float)
    expected = forecast.hazard_each(np.minimum(duration_h, hours))
    at_hours = forecast.hazard_at(np.array([hours]))[:, 0]
    usable = (expected > 0) & (at_hours > 0)
    risk = np.log(at_hours[usable])
    if not happened[usable].any() or np.ptp(risk) < 1e-9:
        return None
    return _slope(risk, np.log(expected[usable]) - risk, happened[usable])


def _slope(risk: Times, offset: Times, happened: Times) -> float | None:
    """Slope by Newton's method; None if the few incidents fit no slope, or any."""
    centre = risk.mean()
    design = np.column_stack([np.ones_like(risk), risk - centre])
    estimate = np.array([centre, 1.0])
    for _ in range(50):
        mean = np.exp(np.minimum(design @ estimate + offset, LARGEST_LOG))
        information = (design * mean[:, None]).T @ design
        if np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, design.T @ (happened - mean))
        estimate = estimate + step
        if np.abs(step).max() < 1e-9:
            return float(estimate[1])
    return None


def calibration_groups(
    forecast: Forecast, duration_h: Times, observed: Flags, hours: float
) -> tuple[RiskGroup, ...]:
    """Data of a calibration plot: tenths by risk, each corrected for censoring."""
    chance = forecast.chances_within(np.array([hours]))[:, 0]
    parts = np.array_split(np.argsort(chance, kind="stable"), GROUPS)
    return tuple(
        RiskGroup(
            uptimes=part.size,
            predicted=float(chance[part].mean()),
            found=_share_with_incident(duration_h[part], observed[part], hours),
        )
        for part in parts
        if part.size
    )


def _share_with_incident(duration_h: Times, observed: Flags, hours: float) -> float:
    table = life_table(duration_h, observed)
    return 1 - float(steps(kaplan_meier(table), table.hours, np.array([hours]), 1.0)[0])


def _whole_hours(hours: Times) -> Times:
    return np.minimum(np.ceil(hours), HORIZON_H)
