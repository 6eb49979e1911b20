"""Learning a criterion from a fleet's samples, and judging a sample by it.

Learning is Algorithm 2 of the ANUBIS paper with the medoid as centre: find the sample most like
all others, set aside what has similarity <= alpha to it, look again, until nothing changes.
Learning is two-sided (what is unusual), judging one-sided (what is worse): a faster node is no
defect. A criterion that cannot be trusted says so in `refusal`, and judging by it answers unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.ecdf import goodness
from anubis.core.errors import CriteriaError
from anubis.core.records import (
    Criterion,
    CriterionKey,
    Judgement,
    MetricSpec,
    Policy,
    Samples,
)

MOST_VALUES = 256  # longer samples are condensed to this many quantiles before they are compared
MOST_ROUNDS = 100


@dataclass(frozen=True)
class Healthy:
    """What learning settled on: who was kept, who is the centre, how alike the kept are."""

    kept: tuple[int, ...]
    medoid: int
    repeatability: float
    refusal: str


def learn(
    samples: Sequence[Samples],
    *,
    key: CriterionKey,
    metric: MetricSpec,
    nodes: int,
    policy: Policy,
) -> Criterion:
    """The criterion of one key from the samples of comparable units, in their measured unit."""
    if not samples:
        raise CriteriaError(f"nothing to learn {key.workload} {key.metric} from: no samples")
    comparable = [condense(goodness(sample, metric.direction)) for sample in samples]
    healthy = settle(comparable, alpha=policy.alpha, tail=policy.tail)
    refusal = healthy.refusal
    if len(samples) < policy.min_units:
        refusal = f"learned from {len(samples)} of the {policy.min_units} units it takes"
    reference = comparable[healthy.medoid]
    return Criterion(
        key=key,
        unit=metric.unit,
        direction=metric.direction,
        reference=goodness(reference, metric.direction)
        if metric.direction == "lower"
        else reference,
        alpha=policy.alpha,
        tail=policy.tail,
        units=len(samples),
        healthy=len(healthy.kept),
        nodes=nodes,
        repeatability=healthy.repeatability,
        refusal=refusal,
    )


def settle(samples: Sequence[Samples], *, alpha: float, tail: float) -> Healthy:
    """Algorithm 2 on samples in goodness: the kept ones, their medoid and repeatability."""
    from anubis.core import medoid

    fleet = medoid.Bundle(samples)
    kept = np.arange(len(fleet))
    seen = {kept.tobytes()}
    refusal = ""
    for _ in range(MOST_ROUNDS):
        sums = medoid.distance_sums(fleet.subset(kept), tail)
        nearest = np.flatnonzero(sums <= sums.min() * (1 + 1e-9) + 1e-12)
        centre = int(kept[nearest[0]])  # of equals the first, whatever the rounding
        similarity = 1 - medoid.distances_to(fleet, samples[centre], tail, worse=False)
        again = np.flatnonzero(similarity > alpha)
        if np.array_equal(again, kept):
            break
        if again.tobytes() in seen:
            refusal = "learning went round in a circle: no set of alike units is stable"
            break
        seen.add(again.tobytes())
        kept = again
    else:
        refusal = f"learning did not settle in {MOST_ROUNDS} rounds"
    if 2 * kept.size <= len(fleet):  # no majority: say how alike all of them are
        sums = medoid.distance_sums(fleet, tail)
    pairs = sums.size * (sums.size - 1)
    repeatability = 1 - max(0.0, float(sums.sum())) / pairs if pairs else 1.0
    return Healthy(
        kept=tuple(int(i) for i in kept),
        medoid=centre,
        repeatability=repeatability,
        refusal=refusal or _doubt(kept.size, len(fleet), repeatability, alpha),
    )


def _doubt(kept: int, offered: int, repeatability: float, alpha: float) -> str:
    if 2 * kept <= offered:
        return (
            f"only {kept} of {offered} units are alike (similarity above {alpha:g}): "
            "no majority says what is normal"
        )
    if repeatability < alpha:
        return f"not repeatable enough: units agree to {repeatability:.3f}, alpha is {alpha:g}"
    return ""


def judge(samples: Sequence[Samples], criterion: Criterion) -> list[tuple[Judgement, float]]:
    """Each sample's judgement and its one-sided similarity to the reference."""
    from anubis.core import medoid

    reference = goodness(criterion.reference, criterion.direction)
    fleet = medoid.Bundle([condense(goodness(sample, criterion.direction)) for sample in samples])
    similarity = 1 - medoid.distances_to(fleet, reference, criterion.tail, worse=True)
    return [(_judgement(float(value), criterion), float(value)) for value in similarity]


def _judgement(similarity: float, criterion: Criterion) -> Judgement:
    if criterion.refusal:
        return Judgement.UNKNOWN
    return Judgement.HEALTHY if similarity > criterion.alpha else Judgement.DEFECTIVE


def condense(sample: Samples) -> Samples:
    """At most MOST_VALUES values: the mid-points of equal shares of the sorted sample."""
    if sample.size <= MOST_VALUES:
        return sample
    position = (np.arange(MOST_VALUES) + 0.5) / MOST_VALUES * sample.size - 0.5
    condensed: Samples = np.interp(position, np.arange(sample.size), sample)
    return condensed
