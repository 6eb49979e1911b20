"""Distances between empirical distributions: the one primitive of learning and judging.

    F_S(x)     = share of S that is <= x
    d(A, B)    = 1/X  integral from 0 to X of |F_A - F_B| / max(F_A, F_B, tail)      X = max(A u B)
    d1(obs, r) = the same of max(0, F_obs - F_r): only what is worse
    typical    = 1 - mean of the middle half of the ratios of values at the same rank

Samples are in *goodness*: sorted, positive, finite, larger is better. `goodness` converts them.
`tail` is the share of a sample below which a slow tail counts in proportion and above which it
counts in full; 0 is the formula of the ANUBIS paper. For single values d is 1 - smaller/larger.

This module is the definition, in numpy; core/judge/medoid.py computes sums of it at fleet size.
"""

from __future__ import annotations

import numpy as np

from anubis.core.errors import CriteriaError
from anubis.core.records import Direction, Samples


def goodness(samples: Samples, direction: Direction) -> Samples:
    """Sort samples so that larger is better: reciprocals if lower is better. A matrix is converted
    row by row.

    Reciprocals, and not "max with min replaced", because a node that is 100 x slower on 5 % of its
    steps would otherwise keep a similarity of 0.95.
    """
    if samples.size == 0:
        raise CriteriaError("no samples: expected at least one number")
    ordered = np.sort(samples, axis=-1)
    lowest, highest = ordered[..., 0].min(), ordered[..., -1].max()
    if not (lowest > 0 and highest < np.inf):  # NaN sorts last and is not below infinity
        offender = lowest if not lowest > 0 else highest
        raise CriteriaError(f'samples must be positive and finite, found "{offender}"')
    return 1.0 / ordered[..., ::-1] if direction == "lower" else ordered


def distance(a: Samples, b: Samples, tail: float = 0.0) -> float:
    """The difference between two samples, from 0 to 1; symmetric."""
    x, f_a, f_b = _levels(a, b)
    return _mean_gap(x, np.abs(f_a - f_b), f_a, f_b, tail)


def shortfall(observed: Samples, reference: Samples, tail: float = 0.0) -> float:
    """The amount by which `observed` is worse than `reference`, from 0 to 1; better counts as
    equal."""
    x, f_observed, f_reference = _levels(observed, reference)
    gap = np.maximum(0.0, f_observed - f_reference)
    return _mean_gap(x, gap, f_observed, f_reference, tail)


def typical_loss(observed: Samples, reference: Samples) -> float:
    """The share by which the steps of `observed` are usually slower; negative if they are faster.

    It is the mean of the middle half of the ratios of values at the same rank. Rare steps, warm-up
    and the shares of several modes do not show in it.
    """
    ranks = (np.arange(observed.size) + 0.5) / observed.size * reference.size - 0.5
    ratios = np.sort(observed / np.interp(ranks, np.arange(reference.size), reference))
    cut = ratios.size // 4
    return 1 - float(ratios[cut : ratios.size - cut].mean())


def _levels(a: Samples, b: Samples) -> tuple[Samples, Samples, Samples]:
    """All values in order, and both distribution functions from each value to the next."""
    x = np.sort(np.concatenate((a, b)))
    f_a = np.searchsorted(a, x, side="right") / a.size
    f_b = np.searchsorted(b, x, side="right") / b.size
    return x, f_a, f_b


def _mean_gap(x: Samples, gap: Samples, f_a: Samples, f_b: Samples, tail: float) -> float:
    scale = np.maximum(np.maximum(f_a, f_b), tail)  # never 0: x starts at the smallest value
    return float(np.dot(gap[:-1] / scale[:-1], np.diff(x)) / x[-1])
