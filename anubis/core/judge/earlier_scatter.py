"""What earlier campaigns of the same workload showed of a scatter, as a prior for today's.

Campaigns may differ more than their degrees of freedom explain. The amount by which they differ
shows how well an earlier one predicts the next: an inverse gamma distribution is fitted to their
variances (Smyth 2004, section 6.2). Few campaigns do not show this well, so all together count no
more than two fleets of eight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np

from anubis.core.judge.calibration import LEAST_SPREAD, Prior, Priors
from anubis.core.records import CriteriaSet, Criterion, CriterionKey, KnownScatter, Samples

MOST_DEGREES = 16.0  # twice as many would make the limit of 8 nodes 5 % stricter
BY_CHANCE = 0.05  # a chance of differing so much, below which campaigns are not alike


def learned_before(
    sets: Iterable[CriteriaSet], began: float, own: Iterable[CriteriaSet] = ()
) -> tuple[CriteriaSet, ...]:
    """The sets that were learned before a campaign began, and from other measurements than its
    `own` sets, so that these are not evidence twice. The clock of a simulated fleet tells no
    time."""
    measured = {of_sku.provenance.digest for of_sku in own}
    return tuple(
        of_sku
        for of_sku in sets
        if datetime.fromisoformat(of_sku.provenance.created_at).timestamp() < began
        and of_sku.provenance.digest not in measured
    )


def earlier_criteria(sets: Iterable[CriteriaSet]) -> Mapping[CriterionKey, list[Criterion]]:
    """The criteria of each key that tell how healthy nodes scatter, once for each campaign."""
    unique = {(of_sku.sku, of_sku.provenance.digest): of_sku for of_sku in sets}
    by_key = defaultdict[CriterionKey, list[Criterion]](list)
    for of_sku in unique.values():
        for criterion in of_sku.criteria:
            if criterion.scatter and not (criterion.from_repeats or criterion.refusal):
                by_key[criterion.key].append(criterion)
    return by_key


def fit_priors(earlier: Sequence[Criterion]) -> Priors:
    return Priors(
        mean=fit_prior([c.scatter for c in earlier if c.scatter]),
        typical=fit_prior([c.typical_scatter for c in earlier if c.typical_scatter]),
    )


def fit_prior(scatters: Sequence[KnownScatter]) -> Prior | None:
    """The prior by the moments of the logarithms of these variances, if they differ more than by
    chance; else all are pooled. None if there are none."""
    if not scatters:
        return None
    variances = np.array([max(LEAST_SPREAD, scatter.spread) ** 2 for scatter in scatters])
    degrees = np.array([scatter.degrees for scatter in scatters])
    variance, worth = float(variances @ degrees / degrees.sum()), float(degrees.sum())
    if variances.size > 1:
        variance, worth = _fit(variances, degrees / 2) or (variance, worth)
    return Prior(spread=math.sqrt(variance), degrees=min(MOST_DEGREES, worth))


def _fit(variances: Samples, halves: Samples) -> tuple[float, float] | None:
    """The middle of an inverse gamma distribution of these variances, with their halved degrees,
    and its degrees; None if chance explains how they differ."""
    from scipy.special import chdtrc, polygamma, psi

    logs = np.log(variances) - psi(halves) + np.log(halves)
    by_chance, differ = float(polygamma(1, halves).mean()), float(logs.var(ddof=1))
    if chdtrc(logs.size - 1, (logs.size - 1) * differ / by_chance) > BY_CHANCE:
        return None
    half = inverse_trigamma(differ - by_chance)
    return math.exp(float(logs.mean() + psi(half)) - math.log(half)), 2 * half


def inverse_trigamma(value: float) -> float:
    """The number whose trigamma function has this value: Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if -step / y < 1e-8:
            break
    return y
