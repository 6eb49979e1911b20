"""The status of one node at one instant, and its uptime, by going through everything it met."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Incident, Repair, Validation, Watch

HOUR_S = 3600.0


def end_of(one: Incident | Repair) -> float:
    return math.inf if one.end is None else one.end


@dataclass
class NaiveLogbook:
    incidents: Sequence[Incident] = ()
    watches: Sequence[Watch] = ()
    validations: Sequence[Validation] = ()
    repairs: Sequence[Repair] = ()
    attributes: Sequence[NodeAttributes] = ()

    def spans(self, node: str) -> list[tuple[float, float]]:
        known = [one.start for one in (*self.incidents, *self.repairs) if one.node == node]
        known += [one.at for one in self.validations if one.node == node]
        spans = sorted(
            (one.since, math.inf if one.until is None else one.until)
            for one in self.watches
            if one.node == node
        )
        if not spans:
            return [(min(known), math.inf)] if known else []
        spans[0] = (min([spans[0][0], *known]), spans[0][1])
        return spans

    def watched(self, node: str, at: float) -> bool:
        return any(since <= at < until for since, until in self.spans(node))

    def watched_s(self, node: str, at: float) -> float:
        """The length of the union of the watches up to then, cut at all their edges."""
        spans = [(since, min(until, at)) for since, until in self.spans(node) if since < at]
        edges = sorted({edge for span in spans for edge in span})
        return sum(
            high - low
            for low, high in itertools.pairwise(edges)
            if any(since <= low and high <= until for since, until in spans)
        )

    def down(self, node: str, at: float) -> bool:
        return any(
            one.node == node and one.start <= at < end_of(one)
            for one in (*self.incidents, *self.repairs)
        )

    def value(self, name: str, node: str, at: float) -> float:
        what, _, category = name.partition(":")
        mine = sorted(
            one.start
            for one in self.incidents
            if one.node == node and one.start < at and category in ("", one.category)
        )
        if what == "incidents":
            return len(mine)
        if what == "age_h":
            since = [one.installed for one in self.attributes if one.node == node]
            if since and since[0] is not None and since[0] <= at:
                return (at - since[0]) / HOUR_S
            began = [since for since, _ in self.spans(node) if since <= at]
            return (at - min(began)) / HOUR_S if began else 0.0
        if what.endswith("_rate"):
            return self.rate(what.removesuffix("_rate"), node, at)
        if what == "mtbi_h":
            return self.watched_s(node, mine[-1] if mine else at) / max(1, len(mine)) / HOUR_S
        if what == "since_incident_h":
            since_h = (at - mine[-1] if mine else self.watched_s(node, at)) / HOUR_S
            return min(since_h, 2400) if category else since_h
        if what == "validated_h":
            seen = [one.at for one in self.validations if one.node == node and one.at < at]
            return (at - max(seen) if seen else self.watched_s(node, at)) / HOUR_S
        if what == "total_up_h":
            return self.total_up_s(node, at) / HOUR_S
        assert what == "up_h"
        outs = [o for o in (*self.incidents, *self.repairs) if o.node == node and o.start < at]
        if any(end_of(one) > at for one in outs):
            return 0.0
        since = [since for since, _ in merged(self.spans(node)) if since <= at]
        came_up = [*map(end_of, outs), *since]
        known = [min(at, until) for since, until in merged(self.spans(node)) if since <= at]
        until = max(known, default=at)
        return max(0.0, until - max(came_up)) / HOUR_S if came_up else 0.0

    def rate(self, attribute: str, node: str, at: float) -> float:
        """Incidents of the others in its group, beside what the others of all groups would have."""
        group_of = {
            one.node: getattr(one, attribute) for one in self.attributes if getattr(one, attribute)
        }
        if node not in group_of:
            return 1.0
        all_nodes = [other for other in group_of if other != node]
        peers = [other for other in all_nodes if group_of[other] == group_of[node]]

        def so_far(nodes: list[str]) -> tuple[int, float]:
            incidents = [i for i in self.incidents if i.node in nodes and i.start < at]
            return len(incidents), sum(self.watched_s(other, at) for other in nodes)

        (struck, watched_s), (all_struck, all_watched_s) = so_far(peers), so_far(all_nodes)
        expected = all_struck / all_watched_s * watched_s if all_watched_s else 0.0
        return (struck + 10) / (expected + 10)

    def total_up_s(self, node: str, at: float) -> float:
        """Seconds up, summed between any two moments at which something begins or ends."""
        outs = [one for one in (*self.incidents, *self.repairs) if one.node == node]
        spans = [*self.spans(node), *((one.start, end_of(one)) for one in outs)]
        edges = sorted({at, *(edge for span in spans for edge in span if edge < at)})
        return sum(
            high - low
            for low, high in itertools.pairwise(edges)
            if self.watched(node, (low + high) / 2) and not self.down(node, (low + high) / 2)
        )

    def spell(self, node: str, at: float, until: float) -> tuple[float, bool] | None:
        """None if there is no row."""
        if not self.watched(node, at) or self.down(node, at) or at >= until:
            return None
        end = next(high for low, high in merged(self.spans(node)) if low <= at < high)
        repairs = [one.start for one in self.repairs if one.node == node and one.start >= at]
        cut = min([end, *repairs])
        starts = [one.start for one in self.incidents if one.node == node and one.start >= at]
        following = min(starts, default=math.inf)
        observed = following < until and following <= cut
        duration_s = (following if observed else min(cut, until)) - at
        return (duration_s / HOUR_S, observed) if duration_s else None


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Joined until nothing can be joined any more."""
    for one in spans:
        for other in spans:
            if one is not other and one[0] <= other[0] <= one[1]:
                rest = [span for span in spans if span is not one and span is not other]
                return merged([*rest, (one[0], max(one[1], other[1]))])
    return spans
