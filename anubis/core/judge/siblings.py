"""Siblings: the units of one node, such as its GPUs. They share the node's good or bad luck, so
they count as one witness of how nodes differ, and each shows best what is wrong with another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.records import Samples

FEWEST = 3  # units of a node; two that differ do not show which one is odd


def number_nodes(participants: Sequence[tuple[str, ...]]) -> Ints | None:
    """The number of the node of each unit, from 0 on; None if no node has several units, or if
    units are groups of nodes."""
    numbers: dict[tuple[str, ...], int] = {}
    owners = [numbers.setdefault(names, len(numbers)) for names in participants]
    if len(numbers) == len(owners) or any(len(names) > 1 for names in numbers):
        return None
    return np.array(owners)


def medians_of_nodes(losses: Samples, owners: Ints) -> Samples:
    """The median loss of the units of each node."""
    order, firsts, sizes = _sorted_by_node(losses, owners)
    low, high = (losses[order[firsts + middle]] for middle in ((sizes - 1) // 2, sizes // 2))
    medians: Samples = (low + high) / 2
    return medians


def lags(losses: Samples, owners: Ints) -> Samples:
    """The share by which each unit is worse than the median of its siblings; 0 for units with too
    few of them."""
    order, firsts, sizes = _sorted_by_node(losses, owners)
    first, rest = firsts[owners], np.maximum(1, sizes[owners] - 1)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    rank -= first
    last = sizes[owners] - 1
    low, high = (
        losses[order[first + np.minimum(last, middle + (middle >= rank))]]
        for middle in ((rest - 1) // 2, rest // 2)
    )
    relative = 1 - (1 - losses) / (1 - (low + high) / 2)
    lag: Samples = np.where(have_siblings(owners), relative, 0.0)
    return lag


def have_siblings(owners: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Flags of the units whose node has enough of them to compare with each other."""
    return np.bincount(owners)[owners] >= FEWEST


def _sorted_by_node(losses: Samples, owners: Ints) -> tuple[Ints, Ints, Ints]:
    """The order of the units by node and loss, the first place of each node, and its size."""
    sizes = np.bincount(owners)
    return np.lexsort((losses, owners)), np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes
