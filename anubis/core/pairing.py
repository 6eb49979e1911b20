"""Who meets whom, in which round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def round_robin(nodes: Sequence[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """The circle method: every pair exactly once, in rounds of disjoint pairs.

    n - 1 rounds for even n; for odd n, n rounds in each of which one node rests.
    """
    seats: list[str | None] = [*nodes] if len(nodes) % 2 == 0 else [*nodes, None]
    n = len(seats)
    if len(nodes) < 2:
        return
    for turn in range(n - 1):
        circle = [seats[0], *(seats[1 + (i - turn) % (n - 1)] for i in range(n - 1))]
        yield tuple(
            (a, b)
            for a, b in zip(circle[: n // 2], reversed(circle[n // 2 :]), strict=True)
            if a is not None and b is not None
        )
