"""Properties and places of nodes, and the incident rates of the others in their rack, cage or sku.

A group is described by one number: how much more often its nodes have incidents than all nodes.
With hundreds of racks, a column for each would make a model memorise racks. Incidents of the node
itself do not count, because it has columns of its own; nor do later ones.

    rate = (incidents of the others + PRIOR) / (incidents they would have as all nodes do + PRIOR)

1 means as often as all, and stands for unknown: a new rack, or a rack that was not reported.
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
PRIOR = 10.0  # incidents: a group with fewer expected ones counts mostly as average


@dataclass(frozen=True, kw_only=True)
class NodeAttributes:
    """Attributes of a node. An empty text or None: not reported."""

    node: str
    installed: float | None = None
    rack: str = ""
    cage: str = ""
    sku: str = ""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Numbers of incidents of groups of nodes, and the times for which they were watched."""

    incidents: Track  # a row of numbers is a group
    begun: Track  # watches, each at its beginning
    ended: Track  # and at its end

    @classmethod
    def from_groups(cls, group: Rows, groups: int, incidents: Track, watches: Track) -> Self:
        """Tally of the groups. `group`: of each node; a negative one is none."""

        def group_track(track: Track, at: Times) -> Track:
            of_row = np.repeat(group, np.diff(track.bounds))
            kept = (of_row >= 0) & np.isfinite(at)
            return Track.from_rows(of_row[kept], at[kept], at[kept], groups)

        return cls(
            incidents=group_track(incidents, incidents.start),
            begun=group_track(watches, watches.start),
            ended=group_track(watches, watches.end),
        )

    def incident_counts(self, group: Rows, at: Times) -> Times:
        return self.incidents.count_begun(group, at).astype(np.float64)

    def watched_s(self, group: Rows, at: Times) -> Times:
        return _passed_s(self.begun, group, at) - _passed_s(self.ended, group, at)


def _passed_s(track: Track, group: Rows, at: Times) -> Times:
    """Sum of the seconds since each earlier instant of the group."""
    sums = np.concatenate(([0.0], np.cumsum(track.start)))
    count, first = track.count_begun(group, at), track.bounds[group]
    passed_s: Times = count * at - (sums[first + count] - sums[first])
    return passed_s


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Other nodes of the same rack, or the same cage, or the same sku."""

    group: Rows  # of each node; -1: not reported
    own: Tally
    all_nodes: Tally  # all nodes with a known group

    @classmethod
    def from_groups(
        cls, names: Mapping[int, str], nodes: int, incidents: Track, watches: Track
    ) -> Self:
        """Peers by group. `names`: name of the group by number of the node."""
        number = {name: place for place, name in enumerate(sorted({*names.values()}))}
        group = np.full(nodes, -1, dtype=np.int64)
        for node, name in names.items():
            group[node] = number[name]
        one_group = np.minimum(group, 0)
        return cls(
            group=group,
            own=Tally.from_groups(group, len(number), incidents, watches),
            all_nodes=Tally.from_groups(one_group, 1, incidents, watches),
        )

    def is_alone(self, node: Rows, watched: int) -> Flags:
        """Flags of the nodes with no other watched node in their group. `watched`: number of nodes
        ever watched, which come first."""
        sizes = np.bincount(self.group[:watched] + 1, minlength=int(self.group.max(initial=0)) + 2)
        size = sizes[self.group[node] + 1] - (node < watched)
        alone: Flags = (self.group[node] < 0) | (size == 0)
        return alone

    def rate(self, node: Rows, at: Times, struck: Times, watched_s: Times) -> Times:
        """Rates of the nodes' groups. `struck` and `watched_s`: the nodes' own incidents and
        watched time."""
        rate = np.ones(len(node))
        has_group = self.group[node] >= 0
        group, at = self.group[node][has_group], at[has_group]
        struck, watched_s = struck[has_group], watched_s[has_group]
        anywhere = np.zeros_like(group)
        all_s = self.all_nodes.watched_s(anywhere, at) - watched_s
        all_struck = self.all_nodes.incident_counts(anywhere, at) - struck
        per_s = np.divide(all_struck, all_s, out=np.zeros_like(all_struck), where=all_s > 0)
        expected = per_s * np.maximum(self.own.watched_s(group, at) - watched_s, 0.0)
        rate[has_group] = (self.own.incident_counts(group, at) - struck + PRIOR) / (
            expected + PRIOR
        )
        return rate
