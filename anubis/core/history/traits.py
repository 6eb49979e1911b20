"""What nodes are by themselves and where they stand; and how the others of their rack, cage or sku
have fared so far.

A group tells by one number how much more often its nodes have incidents than all: with hundreds of
racks, a column for each would learn every rack by heart. What happened to the node itself does not
count, it has columns of its own; nor does anything that came later.

    rate = (incidents of the others + PRIOR) / (incidents they would have as all nodes do + PRIOR)

1 is as often as all, and what nobody knows: of a new rack, or where no rack is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np

from anubis.core.arrays import Flags
from anubis.core.history.status import Times
from anubis.core.history.tracks import Rows, Track

Grouping = Literal["rack", "cage", "sku"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
PRIOR = 10.0  # incidents: a group of which less is known is mostly taken for usual


@dataclass(frozen=True, kw_only=True)
class NodeTraits:
    """An empty text or None: nobody told."""

    node: str
    installed: float | None = None
    rack: str = ""
    cage: str = ""
    sku: str = ""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many incidents groups of nodes had, and for how long they were watched."""

    incidents: Track  # a row of numbers is a group
    begun: Track  # watches, each at its beginning
    ended: Track  # and at its end

    @classmethod
    def of(cls, group: Rows, groups: int, incidents: Track, watches: Track) -> Self:
        """`group` of each node; a negative one belongs to none."""

        def by_group(track: Track, at: Times) -> Track:
            of_row = np.repeat(group, np.diff(track.bounds))
            kept = (of_row >= 0) & np.isfinite(at)
            return Track.of(of_row[kept], at[kept], at[kept], groups)

        return cls(
            incidents=by_group(incidents, incidents.start),
            begun=by_group(watches, watches.start),
            ended=by_group(watches, watches.end),
        )

    def struck(self, group: Rows, at: Times) -> Times:
        return self.incidents.begun(group, at).astype(np.float64)

    def watched_s(self, group: Rows, at: Times) -> Times:
        return _passed_s(self.begun, group, at) - _passed_s(self.ended, group, at)


def _passed_s(track: Track, group: Rows, at: Times) -> Times:
    """The seconds since each of the group's instants before, added up."""
    sums = np.concatenate(([0.0], np.cumsum(track.start)))
    count, first = track.begun(group, at), track.bounds[group]
    passed_s: Times = count * at - (sums[first + count] - sums[first])
    return passed_s


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The nodes of each rack, or of each cage, or of each sku."""

    group: Rows  # of each node; -1 where nobody told
    own: Tally
    everybody: Tally  # of whom a group was told

    @classmethod
    def of(cls, names: Mapping[int, str], nodes: int, incidents: Track, watches: Track) -> Self:
        """`names` of the groups, by the number of the node."""
        number = {name: place for place, name in enumerate(sorted({*names.values()}))}
        group = np.full(nodes, -1, dtype=np.int64)
        for node, name in names.items():
            group[node] = number[name]
        one_group = np.minimum(group, 0)
        return cls(
            group=group,
            own=Tally.of(group, len(number), incidents, watches),
            everybody=Tally.of(one_group, 1, incidents, watches),
        )

    def is_alone(self, node: Rows, watched: int) -> Flags:
        """Of these nodes: the first so many of all were ever watched."""
        sizes = np.bincount(self.group[:watched] + 1, minlength=int(self.group.max(initial=0)) + 2)
        size = sizes[self.group[node] + 1] - (node < watched)
        alone: Flags = (self.group[node] < 0) | (size == 0)
        return alone

    def rate(self, node: Rows, at: Times, struck: Times, watched_s: Times) -> Times:
        """Of nodes that were struck so often themselves, and watched for so long."""
        rate = np.ones(len(node))
        has_group = self.group[node] >= 0
        group, at = self.group[node][has_group], at[has_group]
        struck, watched_s = struck[has_group], watched_s[has_group]
        anywhere = np.zeros_like(group)
        all_s = self.everybody.watched_s(anywhere, at) - watched_s
        all_struck = self.everybody.struck(anywhere, at) - struck
        per_s = np.divide(all_struck, all_s, out=np.zeros_like(all_struck), where=all_s > 0)
        expected = per_s * np.maximum(self.own.watched_s(group, at) - watched_s, 0.0)
        rate[has_group] = (self.own.struck(group, at) - struck + PRIOR) / (expected + PRIOR)
        return rate
