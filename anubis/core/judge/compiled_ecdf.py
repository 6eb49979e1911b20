"""The loops of `ecdf` over all samples of a fleet, compiled by numba on first use.

The result is cached on disk. Loading numba takes half a second, so this module is imported only
if a fleet is large enough.
"""

from __future__ import annotations

import numba
import numpy as np

AS_VECTORS = {"reassoc", "contract", "nsz", "nnan"}  # sums in any order; no number is missing


@numba.njit(cache=True)
def _distance(a, b, tail, worse):  # type: ignore[no-untyped-def] # numba infers the types
    """`ecdf.distance` (or `shortfall` of a from b) of two sorted arrays, by merging them."""
    i = j = 0
    f_a = f_b = total = 0.0
    x = 0.0
    while i < a.size or j < b.size:
        next_x = a[i] if j >= b.size or (i < a.size and a[i] <= b[j]) else b[j]
        gap = f_a - f_b
        if gap < 0.0:
            gap = 0.0 if worse else -gap
        if gap > 0.0:
            total += gap / max(f_a, f_b, tail) * (next_x - x)
        x = next_x
        while i < a.size and a[i] == x:
            i += 1
        while j < b.size and b[j] == x:
            j += 1
        f_a = i / a.size
        f_b = j / b.size
    return total / x


@numba.njit(cache=True)
def distances_to(values, starts, reference, tail, worse, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = _distance(values[starts[i] : starts[i + 1]], reference, tail, worse)


@numba.njit(cache=True)
def typical_losses(values, starts, reference, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        sample = values[starts[i] : starts[i + 1]]
        ratios = np.empty(sample.size)
        for j in range(sample.size):
            rank = (j + 0.5) / sample.size * reference.size - 0.5
            rank = min(max(rank, 0.0), reference.size - 1.0)
            below = int(rank)
            above = min(below + 1, reference.size - 1)
            expected = reference[below] + (rank - below) * (reference[above] - reference[below])
            ratios[j] = sample[j] / expected
        ratios.sort()
        cut = sample.size // 4
        out[i] = 1.0 - ratios[cut : sample.size - cut].mean()


@numba.njit(cache=True, fastmath=AS_VECTORS)
def add_pairs(owner, x, low, high, values, starts, tail, counted, sums):  # type: ignore[no-untyped-def]
    """Add d(A, B) for each two of [low, high), whose maxima grow: the integral by parts, so that
    each climb changes it by x times what the pair pays less from there on.

    A sample on level b pays |k - b| / max(k, b, tail) to one on level k. The inverse of each
    max(b, tail) is kept, so nothing is divided in the inner loop, and compilers make vectors of it.
    """
    n, of_others = high - low, sums[low:high]
    level = np.zeros(n)  # F of each sample at x
    inverse = np.full(n, 1.0 / tail if tail > 0.0 else 0.0)
    step = np.zeros(n, dtype=np.int64)
    weight, one_by_maximum, lengths = np.zeros(n), np.empty(n), np.empty(n)
    for t in range(n):
        weight[t] = 1.0 if counted[low + t] else 0.0
        one_by_maximum[t] = 1.0 / values[starts[low + t + 1] - 1]
        lengths[t] = starts[low + t + 1] - starts[low + t]
    for p in range(x.size):
        s = owner[p] - low
        step[s] += 1
        old, new = level[s], step[s] / lengths[s]
        by_old, by_new = inverse[s], 1.0 / max(new, tail)
        at_both, per_level, climbed = old * by_old - new * by_new, by_old - by_new, new - old
        scale, to_others = one_by_maximum[s], weight[s] * x[p]
        own = 0.0
        for t in range(n):
            b = level[t]
            if b <= old:
                less = at_both - b * per_level
            elif b >= new:
                less = climbed * inverse[t]
            else:
                less = (b - old) * inverse[t] - (new - b) * by_new
            less *= min(scale, one_by_maximum[t])
            own += less * weight[t]
            of_others[t] += less * to_others
        to_itself = (at_both - old * per_level) * scale
        of_others[s] += (own - to_itself * weight[s]) * x[p] - to_itself * to_others
        level[s], inverse[s] = new, by_new


@numba.njit(cache=True)
def _climb(tree, root, old, new, mass, weight, x):  # type: ignore[no-untyped-def]
    """Move a weight from one level to another at x, in all sums that contain it.

    A left child is below its reader, a right child above.
    """
    left = tree.shape[0] // 4 + old
    reached = left - old + new
    while left != reached:
        a, b = left & 1, reached & 1
        _add(tree, root + left, -weight * mass[a, old, 0], -weight * mass[a, old, 1], x)
        _add(tree, root + reached, weight * mass[b, new, 0], weight * mass[b, new, 1], x)
        left >>= 1
        reached >>= 1
    while left > 1:  # from here on the old and the new level have the same sums
        a = left & 1
        plain, scaled = mass[a, new, 0] - mass[a, old, 0], mass[a, new, 1] - mass[a, old, 1]
        _add(tree, root + left, weight * plain, weight * scaled, x)
        left >>= 1


@numba.njit(cache=True)
def _add(tree, node, plain, scaled, x):  # type: ignore[no-untyped-def]
    tree[node, 0] += plain
    tree[node, 1] += scaled
    tree[node, 2] += plain * x
    tree[node, 3] += scaled * x


@numba.njit(cache=True)
def _bill(tree, root, level, price, x):  # type: ignore[no-untyped-def]
    """The amount that a sample pays up to x if it was on this level from the start."""
    node = tree.shape[0] // 4 + level
    total = 0.0
    while node > 1:
        beside = node ^ 1
        side, at = beside & 1, root + beside
        total += price[side, level, 0] * (tree[at, 0] * x - tree[at, 2])
        total += price[side, level, 1] * (tree[at, 1] * x - tree[at, 3])
        node >>= 1
    return total


@numba.njit(cache=True)
def _climb_table(table, half, old, new, costs, weight, x):  # type: ignore[no-untyped-def]
    """The same in a table of what each level pays, and of that times x."""
    for level in range(costs.shape[1]):
        more = weight * (costs[new, level] - costs[old, level])
        table[2 * half, level] += more
        table[2 * half + 1, level] += more * x


@numba.njit(cache=True)
def _bill_of_table(table, half, level, x):  # type: ignore[no-untyped-def]
    return table[2 * half, level] * x - table[2 * half + 1, level]


@numba.njit(cache=True)
def _add_between_halves(owner, x, low, mid, high, values, starts, ladder, counted, sums):  # type: ignore[no-untyped-def]
    """Add d(A, B) for every A of [low, mid) and B of [mid, high), whose maximum is the scale.

    For each level that a sample was on, it pays the bill when it leaves less the bill when it
    arrived.
    """
    rungs, first_rung, costs, mass, price = ladder
    few, leaves = costs.size > 0, _leaves(mass.shape[1])
    # the lower half's, then the upper's, over its maxima
    tree = np.zeros((4 * leaves, 4))
    table = np.zeros((4, costs.shape[0]))
    level = np.zeros(high - low, dtype=np.int64)
    step = np.zeros(high - low, dtype=np.int64)
    weight = np.zeros(high - low)
    paid = np.zeros(high - low)
    for s in range(low, high):
        if counted[s]:
            weight[s - low] = 1.0 if s < mid else 1.0 / values[starts[s + 1] - 1]
    lower, upper = weight[: mid - low].sum(), weight[mid - low :].sum()
    node = leaves  # all begin on level 0, the lower side of each sum that contains it
    while node > 1:
        tree[node, 0] = lower
        tree[2 * leaves + node, 0] = upper
        node >>= 1
    for k in range(costs.shape[0]):
        table[0, k] = lower * costs[0, k]
        table[2, k] = upper * costs[0, k]
    for p in range(x.size):
        s = owner[p] - low
        old, new = level[s], rungs[first_rung[owner[p]] + step[s]]
        own = 0 if owner[p] < mid else 1
        if few:
            paid[s] += _bill_of_table(table, 1 - own, old, x[p])
            paid[s] -= _bill_of_table(table, 1 - own, new, x[p])
            if weight[s] > 0.0:
                _climb_table(table, own, old, new, costs, weight[s], x[p])
        else:
            opposite = 2 * leaves * (1 - own)
            paid[s] += _bill(tree, opposite, old, price, x[p])
            paid[s] -= _bill(tree, opposite, new, price, x[p])
            if weight[s] > 0.0:
                _climb(tree, 2 * leaves * own, old, new, mass, weight[s], x[p])
        level[s] = new
        step[s] += 1
    highest = mass.shape[1] - 1  # every sample is there now
    for s in range(low, high):
        end = x[-1] if s < mid else values[starts[s + 1] - 1]  # it pays nothing more from there on
        half = 1 if s < mid else 0
        if few:
            paid[s - low] += _bill_of_table(table, half, highest, end)
        else:
            paid[s - low] += _bill(tree, 2 * leaves * half, highest, price, end)
        sums[s] += paid[s - low] if s < mid else paid[s - low] / end


@numba.njit(cache=True)
def _leaves(levels):  # type: ignore[no-untyped-def]
    """The first power of two that has room for all levels."""
    leaves = 1
    while leaves < levels:
        leaves *= 2
    return leaves


@numba.njit(cache=True)
def divide(owner, x, values, starts, tail, counted, ladder, few, sums):  # type: ignore[no-untyped-def]
    """Halve [0, N) again and again; breakpoints stay in order of x within each half."""
    spare_owner, spare_x = np.empty_like(owner), np.empty_like(x)
    stack = [(0, sums.size, 0, x.size)]
    while len(stack) > 0:
        low, high, first, last = stack.pop()
        if not counted[low:high].any():
            continue
        if high - low <= few:
            add_pairs(
                owner[first:last], x[first:last], low, high, values, starts, tail, counted, sums
            )
            continue
        mid = (low + high) // 2
        _add_between_halves(
            owner[first:last], x[first:last], low, mid, high, values, starts, ladder, counted, sums
        )
        kept = first
        moved = 0
        for p in range(first, last):
            if owner[p] < mid:
                owner[kept], x[kept] = owner[p], x[p]
                kept += 1
            else:
                spare_owner[moved], spare_x[moved] = owner[p], x[p]
                moved += 1
        owner[kept:last] = spare_owner[:moved]
        x[kept:last] = spare_x[:moved]
        stack.append((low, mid, first, kept))
        stack.append((mid, high, kept, last))
