"""Splits uptimes for training and testing: at random, by node, or by time.

Rows drawn at random leave the same node on both sides, which flatters a model that remembers nodes;
the other two are what a model must do in production: other nodes, and later times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags
from anubis.core.errors import RiskError
from anubis.core.history.status import Uptimes

DrawnSplit = Literal["random", "node", "time"]
SplitKind = DrawnSplit | Literal["fleet"]  # trained on named nodes, tested on other named nodes
DECIDING: tuple[DrawnSplit, ...] = ("node", "time")
KINDS: tuple[DrawnSplit, ...] = (*DECIDING, "random")
TESTED = 0.2  # of the rows, or of the nodes, each of which is then tested once in five
EARLIEST = 0.5  # share of the statuses before the first one tested by time
COMPARED = 60_000  # uptimes: models compared on as many take three minutes, and a third more than
# the 46,000 on which published failures of 1,024 nodes tell the models apart


def split(
    uptimes: Uptimes, kind: DrawnSplit, seeds: Sequence[int]
) -> Iterator[tuple[Uptimes, Uptimes]]:
    """Uptimes to train on and uptimes to test on, for each seed.

    By node, each node is tested once; by time, each status of the later half; so no lucky draw
    decides.
    """
    nodes = np.asarray(uptimes.statuses.nodes)
    names = np.random.default_rng(seeds[0]).permutation(np.unique(nodes))
    folds = max(len(seeds), round(1 / TESTED))
    edges = np.quantile(uptimes.statuses.at, np.linspace(EARLIEST, 1, len(seeds) + 1))
    edges[-1] = np.inf
    for position, seed in enumerate(seeds):
        if kind == "time":
            begin, end = edges[position : position + 2].tolist()
            past, following = split_at(uptimes, begin)
            yield past, take(following, following.statuses.at < end)
        elif kind == "node":
            yield separate(uptimes, np.isin(nodes, names[position::folds]))
        else:
            drawn = np.random.default_rng(seed).permutation(len(uptimes))
            yield separate(uptimes, drawn < TESTED * len(uptimes))


def draw_nodes(uptimes: Uptimes, rows: int = COMPARED) -> Uptimes:
    """Uptimes of as many nodes, drawn at random, as have about so many rows; all, if there are no
    more. Nodes chosen by their incidents would differ more than nodes do."""
    if len(uptimes) <= rows:
        return uptimes
    names, node = np.unique(np.asarray(uptimes.statuses.nodes), return_inverse=True)
    drawn = np.random.default_rng(0).permutation(names.size)
    return take(uptimes, drawn[node] < names.size * rows / len(uptimes))


def separate(uptimes: Uptimes, tested: Flags) -> tuple[Uptimes, Uptimes]:
    return take(uptimes, ~tested), take(uptimes, tested)


def split_by_name(uptimes: Uptimes, nodes: Sequence[str]) -> tuple[Uptimes, Uptimes]:
    """Uptimes of all other nodes to train on, and of these nodes to test on."""
    tested = np.isin(np.asarray(uptimes.statuses.nodes), nodes)
    if missing := sorted(set(nodes) - set(uptimes.statuses.nodes)):
        raise RiskError(
            f"no history of {len(missing)} of the nodes to test on: {', '.join(missing[:8])}"
        )
    if tested.all():
        raise RiskError("all nodes are to be tested: name fewer, none is left to train on")
    return separate(uptimes, tested)


def split_at(uptimes: Uptimes, now: float) -> tuple[Uptimes, Uptimes]:
    """Uptimes as known at an instant, without later incidents, and the uptimes since."""
    before = uptimes.statuses.at < now
    past = take(uptimes, before)
    watched_h = (now - past.statuses.at) / HOUR_S
    return (
        replace(
            past,
            duration_h=np.minimum(past.duration_h, watched_h),
            observed=past.observed & (past.duration_h <= watched_h),
        ),
        take(uptimes, ~before),
    )


def take(uptimes: Uptimes, rows: Flags) -> Uptimes:
    chosen = np.flatnonzero(rows)
    statuses = uptimes.statuses
    return Uptimes(
        statuses=replace(
            statuses,
            nodes=tuple(statuses.nodes[i] for i in chosen),
            at=statuses.at[chosen],
            values=statuses.values[chosen],
        ),
        duration_h=uptimes.duration_h[chosen],
        observed=uptimes.observed[chosen],
    )
