"""Samples of every awkward kind, for Hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

values = st.one_of(
    st.floats(0.5, 2.0),
    st.sampled_from([1.0, 1.5, 2.0]),  # ties, within a sample and between samples
    st.floats(1e-3, 1e3),
)
samples = st.lists(values, min_size=1, max_size=9).map(sorted)
fleets = st.one_of(
    st.lists(samples, min_size=1, max_size=12),
    st.integers(1, 6).flatmap(  # all of one length, as a benchmark gives them
        lambda m: st.lists(st.lists(values, min_size=m, max_size=m).map(sorted), max_size=12)
    ),
).filter(bool)
tails = st.sampled_from([0.0, 0.01, 0.05, 0.3, 1.0])


def arrays(fleet: list[list[float]]) -> list[np.ndarray]:
    return [np.array(sample) for sample in fleet]
