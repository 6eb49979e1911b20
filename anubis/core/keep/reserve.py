"""The hot buffer of a sku: its nodes, and the next candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from anubis.core.keep.life import Life, State


def wanted_here(goals: Mapping[str, int], skus: Collection[str]) -> dict[str, int]:
    """Goals for the skus that are present. If the sku of no node is known, all goals: the shortfall
    is then reported."""
    nobody_says = not any(skus)
    return {sku: count for sku, count in goals.items() if nobody_says or sku in skus}


def reserve_of(sku: str, lives: Iterable[Life]) -> list[Life]:
    """Spares, and nodes that must be proven before they are spares."""
    return [life for life in lives if life.sku == sku and life.is_there and life.is_reserve]


def next_in_line(sku: str, lives: Iterable[Life], risk: Mapping[str, float]) -> list[Life]:
    """Idle healthy nodes, the least at risk first."""
    free = [life for life in lives if life.sku == sku and _may_be_reserve(life)]
    return sorted(free, key=lambda life: (risk.get(life.node, 0.0), life.node))


def _may_be_reserve(life: Life) -> bool:
    return life.state is State.IN_SERVICE and life.is_idle and not life.cordon
