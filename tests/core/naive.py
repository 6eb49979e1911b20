"""The definitions of docs/design/mathematics.md, written plainly: the judge of the fast code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def distribution(sample: Sequence[float], x: float) -> float:
    return sum(value <= x for value in sample) / len(sample)


def integral(a: Sequence[float], b: Sequence[float], tail: float, one_sided: bool) -> float:
    points = [0.0, *sorted({*a, *b})]
    total = 0.0
    for left, right in pairwise(points):
        f_a, f_b = distribution(a, left), distribution(b, left)
        gap = max(0.0, f_a - f_b) if one_sided else abs(f_a - f_b)
        if gap:
            total += gap / max(f_a, f_b, tail) * (right - left)
    return total / points[-1]


def distance(a: Sequence[float], b: Sequence[float], tail: float = 0.0) -> float:
    return integral(a, b, tail, one_sided=False)


def shortfall(observed: Sequence[float], reference: Sequence[float], tail: float = 0.0) -> float:
    return integral(observed, reference, tail, one_sided=True)


def typical_loss(observed: Sequence[float], reference: Sequence[float]) -> float:
    """Typical loss of samples of one size, or of any size and one that is constant."""
    expected = sorted(reference)
    if len(observed) != len(expected):
        expected = [min(expected)] * len(observed)
    ratios = sorted(a / b for a, b in zip(sorted(observed), expected, strict=True))
    cut = len(ratios) // 4
    middle = ratios[cut : len(ratios) - cut]
    return 1 - sum(middle) / len(middle)


def distance_sums(
    samples: Sequence[Sequence[float]], tail: float, among: Sequence[bool] | None = None
) -> list[float]:
    counted = [True] * len(samples) if among is None else among
    return [
        sum(distance(a, b, tail) for j, b in enumerate(samples) if j != i and counted[j])
        for i, a in enumerate(samples)
    ]


def settle(
    samples: Sequence[Sequence[float]],
    alpha: float,
    tail: float,
    start: Sequence[float] | None = None,
) -> list[int]:
    """Algorithm 2: the indices that are kept."""
    kept = list(range(len(samples)))
    if start is not None:
        like = [i for i, s in enumerate(samples) if 1 - distance(s, start, tail) > alpha]
        kept = like if 2 * len(like) > len(samples) else kept
    for _ in range(50):
        sums = distance_sums([samples[i] for i in kept], tail)
        best = min(sums) * (1 + 1e-9) + 1e-12  # of equals the first
        medoid = samples[next(i for i, total in zip(kept, sums, strict=True) if total <= best)]
        again = [i for i, s in enumerate(samples) if 1 - distance(s, medoid, tail) > alpha]
        if again == kept:
            break
        kept = again
    return kept
