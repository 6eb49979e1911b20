from itertools import combinations

import pytest

from anubis.core.pairing import round_robin


@pytest.mark.parametrize("n", [*range(12), 33, 64])
def test_every_pair_meets_exactly_once_in_rounds_of_disjoint_pairs(n):
    nodes = [f"n{i}" for i in range(n)]
    rounds = list(round_robin(nodes))
    assert len(rounds) == (0 if n < 2 else n - 1 if n % 2 == 0 else n)
    for matches in rounds:
        busy = [name for pair in matches for name in pair]
        assert len(busy) == len(set(busy)) == n - n % 2
    met = [frozenset(pair) for matches in rounds for pair in matches]
    assert len(met) == len(set(met))
    assert set(met) == {frozenset(pair) for pair in combinations(nodes, 2)}
