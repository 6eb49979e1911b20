"""Records of nodes, arranged so that the status of any node at any instant is a look-up.

Records that start at or after an instant do not change the status at it. Of records that are not
over by then only the begin is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Self

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags
from anubis.core.history.attributes import GROUPINGS, Grouping, NodeAttributes, Peers
from anubis.core.history.status import (
    Incident,
    Instants,
    Repair,
    Statuses,
    Times,
    Uptimes,
    Validation,
    Watch,
)
from anubis.core.history.tracks import (
    IncidentColumns,
    Rows,
    Track,
    ends,
    extreme,
    row_numbers,
    track_order,
)

TOTALS = ("up_h", "total_up_h", "since_incident_h", "incidents", "mtbi_h")
VALIDATED = "validated_h"
LONG_AGO_H = 2400.0  # an earlier incident of a category gives a model no information
AGE = "age_h"
RATES: Mapping[str, Grouping] = {f"{grouping}_rate": grouping for grouping in GROUPINGS}
OF_ATTRIBUTES = (AGE, *RATES)
ENOUGH = 0.95  # of the nodes: those left out may be those that never failed, which leaks the future
BY_CATEGORY = ("since_incident_h", "incidents", "mtbi_h")  # `incidents:network`: for one category


@dataclass(frozen=True, kw_only=True)
class Logbook:
    """Records of nodes in columns. Build it with `of`. An unknown node has the status of a new
    node."""

    nodes: tuple[str, ...]
    categories: tuple[str, ...]
    _number: Mapping[str, int]
    _watches: Track
    _watched_before: Times  # for each watch, seconds of the node's earlier watches
    _incidents: Mapping[str, Track]  # by category; "" has all of them
    _validations: Track
    _repairs: Track
    _downs: Track  # incidents and repairs
    _back: Times  # for each of these, the end of it and all the node's earlier ones
    _attributes: Mapping[str, NodeAttributes]

    @classmethod
    def from_records(
        cls,
        incidents: Iterable[Incident],
        watches: Iterable[Watch] = (),
        validations: Iterable[Validation] = (),
        repairs: Iterable[Repair] = (),
        attributes: Iterable[NodeAttributes] = (),
    ) -> Self:
        """Logbook of these records. Overlapping watches are merged. A node's first watch begins no
        later than its first record; a node without a watch is watched from its first record on."""
        of_node = {record.node: record for record in attributes}
        incidents = IncidentColumns.from_incidents(incidents)
        validations, repairs = tuple(validations), tuple(repairs)
        columns = {
            "incidents": (incidents.node, incidents.start, incidents.end),
            "repairs": _columns([(record.node, record.start) for record in repairs], ends(repairs)),
            "validations": _columns([(record.node, record.at) for record in validations]),
        }
        watched = _merge_watches(watches, _first_seen(columns.values()))
        nodes = tuple(sorted(watched))
        number = {node: place for place, node in enumerate(nodes)}
        # then a number for unknown nodes, and numbers of nodes with attributes only
        places = len(nodes) + 1
        for stranger in sorted(of_node.keys() - number.keys()):
            number[stranger] = places
            places += 1
        spans = [(node, since) for node in nodes for since, _ in watched[node]]
        until = np.array([until for node in nodes for _, until in watched[node]])
        columns["watches"] = _columns(spans, until)
        rows = {
            kind: (row_numbers(names, number), start, end)
            for kind, (names, start, end) in columns.items()
        }

        def track(node: Rows, start: Times, end: Times) -> Track:
            return Track.from_rows(node, start, end, places)

        categories = tuple(sorted(set(incidents.category)))
        category = row_numbers(incidents.category, {c: place for place, c in enumerate(categories)})
        node, start, end = rows["incidents"]
        order = track_order(node, start, end)
        node, start, end, category = node[order], start[order], end[order], category[order]
        in_category = {name: category == place for place, name in enumerate(categories)}
        pairs = zip((node, start, end), rows["repairs"], strict=True)
        all_incidents = Track.from_sorted_rows(node, start, end, places)
        downs = track(*(np.concatenate(pair) for pair in pairs)) if repairs else all_incidents
        return cls(
            nodes=nodes,
            categories=categories,
            _number=number,
            _watches=track(*rows["watches"]),
            _watched_before=np.array([s for node in nodes for s in _earlier_s(watched[node])]),
            _incidents={
                "": all_incidents,
                **{
                    name: Track.from_sorted_rows(node[chosen], start[chosen], end[chosen], places)
                    for name, chosen in in_category.items()
                },
            },
            _validations=track(*rows["validations"]),
            _repairs=track(*rows["repairs"]),
            _downs=downs,
            _back=_running_maximum(downs),
            _attributes=of_node,
        )

    # --- questions -------------------------------------------------------------------------

    def covariates(self) -> tuple[str, ...]:
        """Columns for which this logbook has data. A model keeps the columns that it was trained
        with. For a model that must not know what came after some instant, build a logbook of what
        was known then."""
        validated = (VALIDATED,) if len(self._validations.start) else ()
        single = (
            f"{quantity}:{category}" for category in self.categories for quantity in BY_CATEGORY
        )
        return (*TOTALS, *validated, *filter(self._is_reported, OF_ATTRIBUTES), *single)

    def attributes(self, node: str) -> NodeAttributes:
        return self._attributes.get(node) or NodeAttributes(node=node)

    def strangers_in_group(
        self, nodes: Sequence[str], covariates: Iterable[str]
    ) -> dict[Grouping, list[str]]:
        """Nodes whose rack, cage or sku is unknown: it was not reported, or no other node of it was
        ever watched. A model treats their group as average."""
        row = self._rows(nodes)
        return {
            grouping: [node for node, alone in zip(nodes, is_alone, strict=True) if alone]
            for grouping in (RATES[name] for name in covariates if name in RATES)
            if (is_alone := self._peers[grouping].is_alone(row, len(self.nodes))).any()
        }

    def sparse_attributes(self) -> dict[str, int]:
        """Attributes that are no covariates because too few nodes have them, with the number of
        nodes."""
        names = {AGE: "installed", **RATES}
        return {
            name: len(values)
            for covariate, name in names.items()
            if (values := self._reported_values(covariate))
            and len(values) < ENOUGH * len(self.nodes)
        }

    def _is_reported(self, covariate: str) -> bool:
        """Return whether enough nodes report the attribute. A group that all nodes share says
        nothing."""
        values = self._reported_values(covariate)
        differs = covariate == AGE or len({*values}) > 1
        return bool(values) and differs and len(values) >= ENOUGH * len(self.nodes)

    def _reported_values(self, covariate: str) -> list[float | str]:
        name = RATES.get(covariate, "installed")
        attributes = (self._attributes[node] for node in self.nodes if node in self._attributes)
        return [
            value for record in attributes if (value := getattr(record, name)) not in (None, "")
        ]

    def uncovered_categories(self, covariates: Iterable[str]) -> tuple[str, ...]:
        """Categories without a column of their own among these: they count in the totals only."""
        covered = {name.partition(":")[2] for name in covariates}
        return tuple(category for category in self.categories if category not in covered)

    def are_watched(self, instants: Instants) -> Flags:
        node, at = self._rows(instants.nodes), instants.at
        count = self._watches.count_begun(node, _just_after(at))
        return at < self._watches.pick(self._watches.end, node, count - 1, -np.inf)

    def are_down(self, instants: Instants) -> Flags:
        """Flags of the instants at which an incident or a repair of the node was under way."""
        node, at = self._rows(instants.nodes), instants.at
        count = self._downs.count_begun(node, _just_after(at))
        return at < self._downs.pick(self._back, node, count - 1, -np.inf)

    def statuses(self, instants: Instants, covariates: Sequence[str] | None = None) -> Statuses:
        """Statuses at these instants, in hours and counts:

        up_h              since the node last returned or was added, as long as it was watched; 0
                          while it is down
        total_up_h        time for which it was watched and not down, since its first watch
        since_incident_h  since the last incident began; of a category, LONG_AGO_H at most: else it
                          equals the age of most nodes, which makes later forecasts worse
        incidents         number that have begun
        mtbi_h            mean time between incidents while watched: from one begin to the
                          next, and from the node's first watch to the first of them
        validated_h       since the last validation
        age_h             since the node was installed; since its first watch, if that is
                          unknown or later: then an earlier node had that name
        rack_rate         incidents of the other nodes of its rack, relative to all nodes;
                          cage_rate and sku_rate likewise (core/history/attributes.py)

        If there was none so far, since_incident_h, mtbi_h and validated_h are the hours for
        which the node was watched: it went at least that long without one.
        """
        names = self.covariates() if covariates is None else tuple(covariates)
        node = self._rows(instants.nodes)
        columns = [self._column(name, node, instants.at) for name in names]
        values = np.column_stack(columns) if columns else np.empty((len(instants), 0))
        return Statuses(covariates=names, nodes=instants.nodes, at=instants.at, values=values)

    # --- the training table ----------------------------------------------------------------

    def returns(self) -> Instants:
        """Instants at which nodes came into service: as they were added, and after each incident or
        repair.

        The up time at these instants is 0, so add snapshots for a model that is used in the middle
        of an uptime. Stretches that overlap or touch are merged. For a stretch of no length the
        instant is the first one after it, because a status does not include what begins at its own
        instant.
        """
        node = self._node_of(self._downs)
        last = np.ones(len(node), dtype=bool)
        last[:-1] = (node[1:] != node[:-1]) | (self._downs.start[1:] > self._back[:-1])
        last &= np.isfinite(self._back)
        sudden = self._downs.start == self._back
        back = np.where(sudden, _just_after(self._back), self._back)
        return self._instants(
            np.concatenate([node[last], self._node_of(self._watches)]),
            np.concatenate([back[last], self._watches.start]),
        )

    def snapshots(self, every_h: float, until: float, rng: np.random.Generator) -> Instants:
        """Regular instants over all watches; each watch begins at a random instant of its own, so
        that nodes are not sampled in step. Long uptimes get more samples than short ones."""
        step = every_h * HOUR_S
        first = self._watches.start + rng.uniform(0, step, len(self._watches.start))
        end = np.minimum(self._watches.end, until)
        counts = np.maximum(np.ceil((end - first) / step), 0).astype(np.int64)
        turn = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._instants(
            np.repeat(self._node_of(self._watches), counts), np.repeat(first, counts) + turn * step
        )

    def uptimes(
        self, instants: Instants, until: float, covariates: Sequence[str] | None = None
    ) -> Uptimes:
        """Status of nodes in service, and how long each continued without an incident.

        As known at `until`. An uptime that a repair, the end of the watch or `until` cuts short
        counts as not observed; a node that is down or not watched has no row.
        """
        node, at = self._rows(instants.nodes), instants.at
        watch = self._watches.count_begun(node, _just_after(at)) - 1
        ends = self._watches.pick(self._watches.end, node, watch, -np.inf)
        cut = np.minimum(ends, self._next(self._repairs, node, at))
        incident = self._next(self._incidents[""], node, at)
        observed = (incident < until) & (incident <= cut)
        duration_s = np.where(observed, incident, np.minimum(cut, until)) - at
        kept = self.are_watched(instants) & ~self.are_down(instants) & (duration_s > 0)
        rows = Instants(nodes=tuple(compress(instants.nodes, kept)), at=at[kept])
        return Uptimes(
            statuses=self.statuses(rows, covariates),
            duration_h=duration_s[kept] / HOUR_S,
            observed=observed[kept],
        )

    # --- the columns -----------------------------------------------------------------------

    def _column(self, name: str, node: Rows, at: Times) -> Times:
        quantity, colon, category = name.partition(":")
        if bool(colon) == bool(category) and (not colon or quantity in BY_CATEGORY):
            incidents = self._category_track(category)
            match quantity:
                case "up_h":
                    return self._up(node, at)
                case "total_up_h":
                    return self._total_up(node, at)
                case "since_incident_h":
                    since_h = self._hours_since_last(incidents, node, at)
                    return np.minimum(since_h, LONG_AGO_H) if category else since_h
                case "incidents":
                    return incidents.count_begun(node, at).astype(np.float64)
                case "mtbi_h":
                    return self._mean_time(incidents, node, at)
                case "validated_h":
                    return self._hours_since_last(self._validations, node, at)
                case "age_h":
                    return self._age(node, at)
                case _ if name in RATES:
                    return self._peers[RATES[name]].rate(
                        node,
                        at,
                        incidents.count_begun(node, at).astype(np.float64),
                        self._watched_s(node, at),
                    )
        valid = ", ".join(
            [
                *TOTALS,
                VALIDATED,
                *OF_ATTRIBUTES,
                *(f"{quantity}:CATEGORY" for quantity in BY_CATEGORY),
            ]
        )
        raise ValueError(f'no status has the covariate "{name}"; known: {valid}')

    def _up(self, node: Rows, at: Times) -> Times:
        downs = self._downs.count_begun(node, at)
        back = self._downs.pick(self._back, node, downs - 1, -np.inf)
        watches = self._watches.count_begun(node, _just_after(at))
        added = self._watches.pick(self._watches.start, node, watches - 1, -np.inf)
        ended = self._watches.pick(self._watches.end, node, watches - 1, np.inf)
        since, until = np.maximum(back, added), np.minimum(at, ended)
        return np.where(np.isneginf(since), 0.0, np.maximum(until - since, 0.0)) / HOUR_S

    def _total_up(self, node: Rows, at: Times) -> Times:
        down = self._downs.count_begun(node, at) - 1
        back = self._downs.pick(self._back, node, down, -np.inf)
        since_s = np.maximum(self._watched_s(node, at) - self._watched_s(node, back), 0.0)
        return (self._downs.pick(self._up_before, node, down, 0.0) + since_s) / HOUR_S

    @cached_property
    def _up_before(self) -> Times:
        """Seconds for which the node had been up when each of its downs began."""
        downs, node = self._downs, self._node_of(self._downs)
        first = downs.bounds[node]
        back_s = np.roll(self._watched_s(node, self._back), 1)
        back_s[first] = 0.0
        up_s = np.maximum(self._watched_s(node, downs.start) - back_s, 0.0)
        passed_s: Times = np.cumsum(up_s)
        return passed_s - (passed_s - up_s)[first]

    def _age(self, node: Rows, at: Times) -> Times:
        first = self._watches.pick(self._watches.start, node, np.zeros_like(node), np.inf)
        installed = self._install_times[node]
        since = np.where(installed <= at, installed, np.minimum(first, at))
        return (at - since) / HOUR_S

    @cached_property
    def _install_times(self) -> Times:
        """Time of installation by number of the node; NaN if unknown."""
        installed = np.full(len(self._watches.bounds) - 1, np.nan)
        for node, attributes in self._attributes.items():
            if attributes.installed is not None:
                installed[self._number[node]] = attributes.installed
        return installed

    @cached_property
    def _peers(self) -> dict[Grouping, Peers]:
        incidents, watches = self._incidents[""], self._watches
        return {
            grouping: Peers.from_groups(
                {
                    self._number[node]: name
                    for node, attributes in self._attributes.items()
                    if (name := getattr(attributes, grouping))
                },
                len(watches.bounds) - 1,
                incidents,
                watches,
            )
            for grouping in GROUPINGS
        }

    def _hours_since_last(self, track: Track, node: Rows, at: Times) -> Times:
        last = track.pick(track.start, node, track.count_begun(node, at) - 1, np.nan)
        return np.where(np.isnan(last), self._watched_s(node, at), at - last) / HOUR_S

    def _mean_time(self, track: Track, node: Rows, at: Times) -> Times:
        count = track.count_begun(node, at)
        last = track.pick(track.start, node, count - 1, np.nan)
        to = np.where(np.isnan(last), at, last)
        return self._watched_s(node, to) / np.maximum(count, 1) / HOUR_S

    def _watched_s(self, node: Rows, at: Times) -> Times:
        """Seconds for which the node had been watched by then."""
        watch = self._watches.count_begun(node, at) - 1
        start = self._watches.pick(self._watches.start, node, watch, np.inf)
        end = self._watches.pick(self._watches.end, node, watch, np.inf)
        before = self._watches.pick(self._watched_before, node, watch, 0.0)
        return before + np.maximum(np.minimum(at, end) - start, 0.0)

    # --- rows ------------------------------------------------------------------------------

    def _category_track(self, category: str) -> Track:
        """Track of the incidents of a category; an empty one for an unknown category."""
        if category in self._incidents:
            return self._incidents[category]
        no_nodes, never = np.empty(0, dtype=np.int64), np.empty(0)
        return Track.from_rows(no_nodes, never, never, len(self._watches.bounds) - 1)

    def _rows(self, nodes: Sequence[str]) -> Rows:
        unknown = len(self.nodes)
        return np.array([self._number.get(node, unknown) for node in nodes], dtype=np.int64)

    def _instants(self, node: Rows, at: Times) -> Instants:
        """Instants in the order of nodes and time, without duplicates."""
        order = np.lexsort((at, node))
        node, at = node[order], at[order]
        new = np.ones(len(node), dtype=bool)
        new[1:] = (node[1:] != node[:-1]) | (at[1:] != at[:-1])
        return Instants(nodes=tuple(self.nodes[place] for place in node[new]), at=at[new])

    def _node_of(self, track: Track) -> Rows:
        return np.repeat(np.arange(len(track.bounds) - 1), np.diff(track.bounds))

    def _next(self, track: Track, node: Rows, at: Times) -> Times:
        """Begin of the next stretch, at the instant itself or later."""
        return track.pick(track.start, node, track.count_begun(node, at), np.inf)


def _just_after(at: Times) -> Times:
    later: Times = np.nextafter(at, np.inf)
    return later


def _end(end: float | None) -> float:
    return np.inf if end is None else end


Columns = tuple[Sequence[str], Times, Times]  # nodes, starts, ends
Spans = list[tuple[float, float]]


def _columns(begun: Sequence[tuple[str, float]], end: Times | None = None) -> Columns:
    """Columns of stretches; without ends, of instants."""
    start = np.array([at for _, at in begun], dtype=np.float64)
    return [node for node, _ in begun], start, start if end is None else end


def _first_seen(columns: Iterable[Columns]) -> dict[str, float]:
    """Time of the first record of each node."""
    first: dict[str, float] = {}
    for nodes, start, _ in columns:
        for node, at in extreme(np.minimum, nodes, start).items():
            first[node] = min(at, first.get(node, at))
    return first


def _merge_watches(watches: Iterable[Watch], first: Mapping[str, float]) -> dict[str, Spans]:
    """Stretches in which each node was watched, in order and disjoint."""
    declared = defaultdict[str, Spans](list)
    for watch in watches:
        declared[watch.node].append((watch.since, _end(watch.until)))
    watched: dict[str, Spans] = {node: [(at, np.inf)] for node, at in first.items()}
    for node, spans in declared.items():
        apart: Spans = []
        for since, until in sorted(spans):
            if apart and since <= apart[-1][1]:
                apart[-1] = (apart[-1][0], max(until, apart[-1][1]))
            else:
                apart.append((since, until))
        since, until = apart[0]
        watched[node] = [(min(since, first.get(node, since)), until), *apart[1:]]
    return watched


def _earlier_s(spans: Spans) -> list[float]:
    """Seconds watched before each of the stretches."""
    passed, seconds = 0.0, []
    for since, until in spans:
        seconds.append(passed)
        passed += until - since
    return seconds


def _running_maximum(track: Track) -> Times:
    """Latest end among each stretch and the earlier ones of its node."""
    latest = track.end.copy()
    for node in np.flatnonzero(np.diff(track.bounds) > 1):
        rows = slice(track.bounds[node], track.bounds[node + 1])
        latest[rows] = np.maximum.accumulate(track.end[rows])
    return latest
