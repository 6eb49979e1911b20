"""Sums of distances over all pairs of nodes, and the LSTM over many windows, compiled by numba on
first use and cached on disk. Importing numba takes half a second, so this module is imported only
for large jobs."""

from __future__ import annotations

import numba
import numpy as np

SAMPLES = 8  # of a window; shorter ones are filled up with zeros


@numba.njit(cache=True, fastmath=True)
def root_sums(columns, sums):  # type: ignore[no-untyped-def] # numba infers the types
    """Write each node's sum of Euclidean distances to all others to `sums`. `columns`: 8 samples x
    nodes. Unrolled, so that the processor compares sixteen nodes at once."""
    nodes = columns.shape[1]
    a, b, c, d, e, f, g, h = (
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        columns[4],
        columns[5],
        columns[6],
        columns[7],
    )
    for i in range(nodes):
        ai, bi, ci, di, ei, fi, gi, hi = a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]
        total = np.float32(0)
        for j in range(nodes):
            p, q, r, s = a[j] - ai, b[j] - bi, c[j] - ci, d[j] - di
            t, u, v, w = e[j] - ei, f[j] - fi, g[j] - gi, h[j] - hi
            total += np.sqrt(p * p + q * q + r * r + s * s + t * t + u * u + v * v + w * w)
        sums[i] = total


@numba.njit(cache=True, fastmath=True, error_model="numpy", inline="always")
def _tanh(value):  # type: ignore[no-untyped-def]
    """Hyperbolic tangent, exact to the last digit but one of single precision, by a quotient of
    polynomials (Eigen's), because the library's function cannot be vectorised."""
    end = np.float32(7.9053111)
    value = end if value > end else value
    value = -end if value < -end else value
    square = value * value
    above = np.float32(-2.76076847742355e-16)
    above = above * square + np.float32(2.00018790482477e-13)
    above = above * square + np.float32(-8.60467152213735e-11)
    above = above * square + np.float32(5.12229709037114e-08)
    above = above * square + np.float32(1.48572235717979e-05)
    above = above * square + np.float32(6.37261928875436e-04)
    above = above * square + np.float32(4.89352455891786e-03)
    below = np.float32(1.19825839466702e-06)
    below = below * square + np.float32(1.18534705686654e-04)
    below = below * square + np.float32(2.26843463243900e-03)
    below = below * square + np.float32(4.89352518554385e-03)
    return value * above / below


@numba.njit(cache=True, fastmath=True, error_model="numpy", inline="always")
def _sigmoid(value):  # type: ignore[no-untyped-def]
    half, full = np.float32(0.5), np.float32(1)
    return half * (full + _tanh(half * value))


@numba.njit(cache=True, fastmath=True, error_model="numpy")
def lstm(steps, inputs, hidden, bias, outputs):  # type: ignore[no-untyped-def]
    """Compute `Lstm.run` for steps of one feature. Gates of all windows stay in the cache, and
    sixteen are computed at once. `steps`: samples x windows."""
    samples, windows = steps.shape
    half = hidden.shape[1]
    cell = np.zeros((half, windows), dtype=np.float32)
    gates = np.empty((4, windows), dtype=np.float32)
    for way in range(2):
        cell[:] = np.float32(0)
        for number in range(samples):
            at = number if way == 0 else samples - 1 - number
            before = at - 1 if way == 0 else at + 1
            line = steps[at]
            for unit in range(half):
                for gate in range(4):
                    row, sums = gate * half + unit, gates[gate]
                    weight, start = inputs[way, row], bias[way, row]
                    for window in range(windows):
                        sums[window] = start + weight * line[window]
                    if number:
                        for peer in range(half):
                            from_peer, share = (
                                outputs[before, way * half + peer],
                                hidden[way, peer, row],
                            )
                            for window in range(windows):
                                sums[window] += share * from_peer[window]
                enter, keep, change, leave = gates[0], gates[1], gates[2], gates[3]
                held, output = cell[unit], outputs[at, way * half + unit]
                for window in range(windows):
                    fresh = _sigmoid(enter[window]) * _tanh(change[window])
                    held[window] = _sigmoid(keep[window]) * held[window] + fresh
                for window in range(windows):
                    output[window] = _sigmoid(leave[window]) * _tanh(held[window])
