"""The lives of a fleet. What is counted of them is kept current with each change, so that thousands
are taken out at the cost of looking at each once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Concatenate, ParamSpec

from anubis.core.lifecycle.breaker import ScopeCount, scopes
from anubis.core.lifecycle.life import Life, State
from anubis.core.lifecycle.reasons import UNPROVEN

P = ParamSpec("P")


class Lives(Mapping[str, Life]):
    """By node. A life is only ever changed from what it is now: nobody can write back one that was
    read before something else changed it."""

    def __init__(self, lives: Iterable[Life] = ()) -> None:
        self._by_node: dict[str, Life] = {}
        self._among: Counter[str] = Counter()  # by scope, as are the next two
        self._out: Counter[str] = Counter()
        self._new: Counter[str] = Counter()
        self._under_test: defaultdict[str, set[str]] = defaultdict(set)  # by test
        self._ready: defaultdict[str, set[str]] = defaultdict(set)  # spares, by sku
        for life in lives:
            self._by_node[life.node] = life
            self._count(life, 1)

    def __getitem__(self, node: str) -> Life:
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

    def values(self) -> ValuesView[Life]:
        """Those of a mapping look each up again."""
        return self._by_node.values()

    def items(self) -> ItemsView[str, Life]:
        return self._by_node.items()

    def change(
        self, node: str, how: Callable[Concatenate[Life, P], Life], *of: P.args, **by: P.kwargs
    ) -> Life:
        """`how`: is given the life as it is now. A node that is not known begins one."""
        before = self._by_node.get(node)
        life = how(before or Life(node=node), *of, **by)
        if life is not before:
            if before is not None:
                self._count(before, -1)
            self._by_node[node] = life
            self._count(life, 1)
        return life

    def count(self, scope: str) -> ScopeCount:
        return ScopeCount(among=self._among[scope], out=self._out[scope], new=self._new[scope])

    def under_test(self, test: str) -> frozenset[str]:
        return frozenset(self._under_test.get(test, ()))

    def ready_spares(self, sku: str) -> frozenset[str]:
        """Proven, and kept from jobs until they are needed."""
        return frozenset(self._ready.get(sku, ()))

    def _count(self, life: Life, by: int) -> None:
        if life.is_there:
            for scope in scopes(life):
                self._among[scope] += by
                self._out[scope] += by * life.is_taken_out
                self._new[scope] += by * (life.out_code == UNPROVEN)
        if life.trial is not None:
            _enter(self._under_test[life.trial.id], life.node, by)
        if life.state is State.SPARE and life.cordon and life.cordoned_by_anubis:
            _enter(self._ready[life.sku], life.node, by)


def _enter(nodes: set[str], node: str, by: int) -> None:
    if by > 0:
        nodes.add(node)
    else:
        nodes.discard(node)
