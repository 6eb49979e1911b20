"""Find the step in which values were recorded, and how much of a difference it may be.

Two values that are one step apart may come from quantities that hardly differ, or that differ by
two steps. So a difference of one step is no evidence. Values that all units but a few have exactly
are no matter of rounding: something is counted, or set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anubis.core.judge.calibration import LEAST_SPREAD
from anubis.core.records import Samples

FINEST = 0.002  # of the middle value: finer steps change no verdict
SAME = 1e-6  # of the middle value: values that differ by less are equal
FEW = 1 / 32  # of units, or one unit: if no more have another value, nothing was rounded
FEWEST_STEPS = 8  # of a run; a shorter one is judged by single steps too
SMOOTH = 0.25  # of a step: runs that scatter more show in their mean what is between two steps
OF_TWO = math.sqrt(6)  # a step, in standard deviations of the difference of two rounded values


def least_scatter(samples: Sequence[Samples] | Samples) -> float:
    """The standard deviation that rounding gives the relative difference of two units."""
    if isinstance(samples, np.ndarray):
        firsts = samples[:, 0]
    else:
        firsts = np.array([sample[0] for sample in samples])
    middle = float(np.median(firsts))
    if not middle * FINEST < step_of(firsts, middle):  # most metrics have none: a quick look
        return LEAST_SPREAD
    step = step_of(np.concatenate(samples), middle)
    means = np.array([np.mean(sample) for sample in samples])
    scatter = np.median([np.std(sample) for sample in samples])
    smooth = scatter > SMOOTH * step and min(map(len, samples)) >= FEWEST_STEPS
    if smooth or not (middle * FINEST < step and varies(means)):
        return LEAST_SPREAD
    return step / middle / OF_TWO


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
