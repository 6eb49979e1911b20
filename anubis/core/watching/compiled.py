"""Sums of distances over all pairs of nodes, compiled by numba on first use and cached on disk.
To load numba takes half a second: this module is imported where a job is large enough.
"""

from __future__ import annotations

import numba
import numpy as np

SAMPLES = 8  # of a window; shorter ones are filled up with zeros


@numba.njit(cache=True, fastmath=True)
def root_sums(columns, sums):  # type: ignore[no-untyped-def] # numba infers the types
    """Of each node the sum of Euclidean distances to all others; `columns`: 8 samples x nodes.
    Written out, so that the processor compares sixteen nodes at once."""
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
