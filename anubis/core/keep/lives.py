"""The lives of a fleet, with counts; and the hot buffer of a sku: its nodes, and the next
candidates.

Before a count only lives that changed are counted again, so that thousands of events cost no more
than one look at each life.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

from anubis.core.keep.breaker import ScopeCount, scopes
from anubis.core.keep.life import Life, State
from anubis.core.keep.reasons import HELD

P = ParamSpec("P")


class Lives(Mapping[str, Life]):
    """Lives by node. A life is only changed from its present value, so that a stale copy never
    overwrites a newer one."""

    def __init__(self, lives: Iterable[Life] = ()) -> None:
        self._by_node: dict[str, Life] = {}
        self._among: Counter[str] = Counter()  # by scope, as are the next two
        self._out: Counter[str] = Counter()
        self._new: Counter[str] = Counter()
        self._lost = 0
        self._under_test: defaultdict[str, set[str]] = defaultdict(set)  # by test
        self._ready: defaultdict[str, set[str]] = defaultdict(set)  # spares, by sku
        self._vacant: defaultdict[str, set[str]] = defaultdict(set)  # nodes that await one, by sku
        self._uncounted: dict[str, Life | None] = {}  # changed node → its life at the last count
        self.unreachable: frozenset[str] = frozenset()  # they cannot be measured now
        self.held: frozenset[str] = frozenset()  # those of them on which others measure
        for life in lives:
            self._by_node[life.node] = life
            self._uncounted[life.node] = None

    def __getitem__(self, node: str) -> Life:
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

    def values(self) -> ValuesView[Life]:
        """Lives, without the lookup by key that `Mapping.values` would do."""
        return self._by_node.values()

    def items(self) -> ItemsView[str, Life]:
        return self._by_node.items()

    def change(
        self, node: str, how: Callable[Concatenate[Life, P], Life], *of: P.args, **by: P.kwargs
    ) -> Life:
        """Change a node's life by `how`, which receives the present life. An unknown node gets a
        new one."""
        before = self._by_node.get(node)
        life = how(before or Life(node=node), *of, **by)
        if life is not before:
            self._by_node[node] = life
            self._uncounted.setdefault(node, before)
        return life

    def set(self, node: str, **facts: Any) -> None:
        self.change(node, lambda life: replace(life, **facts))

    def count(self, scope: str) -> ScopeCount:
        self._recount()
        return ScopeCount(among=self._among[scope], out=self._out[scope], new=self._new[scope])

    def count_lost(self) -> int:
        self._recount()
        return self._lost

    def nodes_under_test(self, test: str) -> frozenset[str]:
        self._recount()
        return frozenset(self._under_test.get(test, ()))

    def next_swaps(self) -> list[tuple[str, str]]:
        """Nodes that await a spare, each with a ready spare of its sku. The node that has been out
        longest comes first."""
        self._recount()
        return [
            swap
            for sku in sorted(self._vacant.keys() & self._ready.keys())
            for swap in zip(
                sorted(self._vacant[sku], key=lambda node: (self[node].vacated_at, node)),
                sorted(self._ready[sku]),
                strict=False,
            )
        ]

    def _recount(self) -> None:
        for node, before in self._uncounted.items():
            if before is not None:
                self._count(before, -1)
            self._count(self._by_node[node], 1)
        self._uncounted.clear()

    def _count(self, life: Life, by: int) -> None:
        if life.is_there:
            is_out = life.is_taken_out
            for scope in scopes(life):
                self._among[scope] += by
                if is_out:
                    self._out[scope] += by
        if life.out_code in HELD and (life.is_there or life.is_lost):
            for scope in scopes(life):
                self._new[scope] += by
        if life.is_lost:
            self._lost += by
        if life.trial is not None:
            _enter(self._under_test[life.trial.id], life.node, by)
        if life.is_reserve and life.is_ready:
            _enter(self._ready[life.sku], life.node, by)
        if life.awaits_spare:
            _enter(self._vacant[life.sku], life.node, by)


def _enter(nodes: set[str], node: str, by: int) -> None:
    if by > 0:
        nodes.add(node)
    else:
        nodes.discard(node)


def wanted_here(goals: Mapping[str, int], skus: Collection[str]) -> dict[str, int]:
    """Goals for the skus that are present. If the sku of no node is known, all goals: the shortfall
    is then reported."""
    are_unknown = not any(skus)
    return {sku: count for sku, count in goals.items() if are_unknown or sku in skus}


def reserve_of(sku: str, lives: Iterable[Life]) -> list[Life]:
    """Spares, and nodes that must be proven before they are spares."""
    return [life for life in lives if life.sku == sku and life.is_there and life.is_reserve]


def next_in_line(sku: str, lives: Iterable[Life], risk: Mapping[str, float]) -> list[Life]:
    """Idle healthy nodes, the least at risk first."""
    free = [life for life in lives if life.sku == sku and _may_be_reserve(life)]
    return sorted(free, key=lambda life: (risk.get(life.node, 0.0), life.node))


def _may_be_reserve(life: Life) -> bool:
    return life.state is State.IN_SERVICE and life.is_idle and not life.cordon
