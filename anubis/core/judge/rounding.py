"""Find the step in which values were recorded, and how much of a difference it may be.

Two values that are one step apart may come from quantities that hardly differ, or that differ by
two steps. So a difference of one step is no evidence. Values that all units but a few have exactly
are no matter of rounding: something is counted, or set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.judge.calibration import LEAST_SPREAD
from anubis.core.records import Samples

FINEST = 0.002  # of the middle value: finer steps change no verdict
SAME = 1e-6  # of the middle value: values that differ by less are equal
FEW = 1 / 32  # of units, or one unit: if no more have another value, nothing was rounded
QUICK = 16  # values that show most fine steps
OF_TWO = math.sqrt(6)  # a step, in standard deviations of the difference of two rounded values
OF_ADJACENT = 1 / 4  # of a step squared: the variance of two adjacent values may be so large
MIDDLE_HALF = 2 * math.pi * 0.674  # a step is so many radians for the upper quartile


@dataclass(frozen=True)
class Rounding:
    """The least standard deviation that the losses of units have because values were rounded."""

    of_mean: float = LEAST_SPREAD
    of_typical: float = LEAST_SPREAD
    of_steps: float = 0.0  # half a step of rounding, relative to the middle value


NONE = Rounding()


def find_rounding(samples: Sequence[Samples] | Samples) -> Rounding:
    """The scatter by rounding. It averages out in a run that scatters by more than a step, and not
    in one whose values are on two adjacent steps.

    The mean of rounded values is off by a wave in the true value. A normal scatter of w steps makes
    its first harmonic exp(-2 pi² w²) times as high (Widrow 1961). The middle half of the values is
    spread nearly evenly up to 0.674 w, and makes it at most 1 / (2 pi 0.674 w) times as high.
    """
    if isinstance(samples, np.ndarray):
        firsts = samples[:, 0]
    else:
        firsts = np.array([sample[0] for sample in samples])
    middle = float(np.median(firsts))
    for values in (firsts[:QUICK], firsts):  # most metrics have none: a quick look
        if np.ptp(values) and not middle * FINEST < step_of(values, middle):
            return NONE
    step = step_of(np.concatenate(samples), middle)
    means = np.array([np.mean(sample) for sample in samples])
    if not (middle * FINEST < step and varies(means)):
        return NONE
    variance = float(np.median([np.var(sample) for sample in samples])) / step**2
    scatter = math.sqrt(max(0.0, variance - OF_ADJACENT))
    largest = step / middle / OF_TWO
    return Rounding(
        of_mean=max(LEAST_SPREAD, largest * math.exp(-2 * (math.pi * scatter) ** 2)),
        of_typical=max(LEAST_SPREAD, largest / max(1.0, MIDDLE_HALF * scatter)),
        of_steps=step / middle / 2,
    )


def allow_chance(rounding: Rounding, samples: Sequence[Samples] | Samples) -> Rounding:
    """The scatter of counts of events, which come by chance: the typical one of a run scatters at
    least as much as the mean, though the middle of few whole numbers often is the same."""
    means = np.array([np.mean(sample) for sample in samples])
    errors = [np.var(sample, ddof=1) / len(sample) for sample in samples if len(sample) > 1]
    if not errors:
        return rounding
    of_run = math.sqrt(float(np.mean(errors))) / float(np.median(means))
    return replace(rounding, of_typical=max(rounding.of_typical, of_run))


def are_fixed(samples: Sequence[Samples] | Samples) -> bool:
    """True if nearly all units have one value in all their samples, as a number of parts; a count
    of events varies."""
    changing = sum(bool(np.ptp(sample)) for sample in samples)
    return changing <= max(1.0, FEW * len(samples))


def step_of(values: Samples, middle: float) -> float:
    """The largest step of which all values are multiples apart; 0 if it is too fine to matter."""
    ordered = np.unique(values)
    step, same = 0.0, SAME * middle
    for gap in np.diff(ordered):
        while gap > same:
            step, gap = gap, step % gap if step else 0.0
            if step - gap < same:
                gap = 0.0
        if 0 < step < FINEST * middle:
            return 0.0
    return step


def varies(values: Samples) -> bool:
    """True if more than a few of these values differ from the one that most have."""
    commonest = int(np.unique(values, return_counts=True)[1].max())
    return values.size - commonest > max(1.0, FEW * values.size)
