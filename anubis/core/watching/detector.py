"""One look at a running job: which of its nodes left their peers, and did not come back.

Minder's rule (NSDI '25): metric by metric the windows of all nodes are denoised and compared; the
node that lies far from the others for minutes on end is named by the first metric that fires.
What is ours: thresholds by the number of nodes, a least effect, peer groups, several faulty
nodes, series that vanish, and what tells a fault from a jitter and from a role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.watching.comparisons import AnswersForMetrics, Comparison
from anubis.core.watching.departures import Departure, departure
from anubis.core.watching.findings import Deviation, Look, Oddity, OddityKind, Sign, Suspicion
from anubis.core.watching.scaling import span_of
from anubis.core.watching.search import Run, runs
from anubis.core.watching.settings import WatchSettings
from anubis.core.watching.silences import silences
from anubis.core.watching.telemetry import Telemetry

CONCATENATED = "concatenated"  # under this name a model keeps the threshold of all metrics as one
BEYOND_PEERS = 3.0  # times as far as its peers are from their median is no chance


def look(
    telemetry: Telemetry,
    model: AnswersForMetrics,
    settings: WatchSettings,
    *,
    job: str = "",
    ended: bool = False,
    baseline: Telemetry | None = None,
) -> Look:
    """`ended`: the job has failed, so something did happen. `baseline`: what its nodes reported
    when it began; a node that was with its peers then is no role, however long it is apart."""
    unjudged: dict[str, str] = {}
    silence = silences(telemetry, settings, ended=ended)
    looking = _Looking(
        telemetry=telemetry,
        settings=settings,
        needed=settings.needed(telemetry.step_s, ended=ended),
        groups=_peer_groups(telemetry, settings, unjudged),
        comparisons=_comparisons(telemetry, model, settings, silence.unreported, unjudged),
        baseline=baseline,
    )
    looking.name_vanished(silence.vanished)
    looking.name_unlike()
    return Look(
        job=job,
        nodes=telemetry.nodes,
        start=telemetry.last(settings.pull_s).start,
        end=telemetry.end,
        suspicions=tuple(looking.suspicions.values()),
        oddities=tuple(
            oddity
            for oddity in (*silence.oddities, *looking.oddities.values())
            if oddity.node not in looking.suspicions
        ),
        judged=tuple(comparison.name for comparison in looking.comparisons if looking.groups),
        unjudged=unjudged,
    )


def _peer_groups(
    telemetry: Telemetry, settings: WatchSettings, unjudged: dict[str, str]
) -> tuple[Ints, ...]:
    """The rows of each group. Groups that are too small are compared together: among them a role
    shows as a node that was always apart, and a fault as one that left."""
    labels = np.array(telemetry.groups or [""] * len(telemetry.nodes))
    groups = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    large = [rows for rows in groups if len(rows) >= settings.least_nodes]
    small = [rows for rows in groups if len(rows) < settings.least_nodes]
    rest = np.sort(np.concatenate(small)) if small else np.zeros(0, dtype=np.int64)
    together = len(rest) >= settings.least_nodes
    for rows in small:
        unjudged[_name_of_group(telemetry, rows)] = _too_small(len(rows), settings, together)
    return (*large, rest) if together else tuple(large)


def _name_of_group(telemetry: Telemetry, rows: Ints) -> str:
    return f"group {telemetry.groups[rows[0]]}" if telemetry.groups else "all metrics"


def _too_small(nodes: int, settings: WatchSettings, together: bool) -> str:
    reason = (
        f"{nodes} node{'s' * (nodes != 1)}, of which none can be told to be unlike the others: "
        f"at least {settings.least_nodes} are needed"
    )
    return f"{reason}; compared with other groups that are too small" if together else reason


def _comparisons(
    telemetry: Telemetry,
    model: AnswersForMetrics,
    settings: WatchSettings,
    unreported: Mapping[str, str],
    unjudged: dict[str, str],
) -> tuple[Comparison, ...]:
    """In the order of the model; what cannot be compared is told with the reason."""
    first = telemetry.points - telemetry.last(settings.pull_s).points
    names = [metric.name for metric in telemetry.metrics]
    spans = tuple(map(span_of, telemetry.metrics, telemetry.values))
    usable = []
    for name in model.order:
        if reason := _why_not(name, names, model, settings, unreported):
            unjudged[name] = reason
        else:
            usable.append(names.index(name))

    def compare(name: str, *metrics: int) -> Comparison:
        floor = telemetry.metrics[metrics[0]].floor / (spans[metrics[0]].width or 1)
        least_effect = max(settings.min_effect, floor if len(metrics) == 1 else 0.0)
        return Comparison(
            name=name,
            metrics=metrics,
            telemetry=telemetry,
            spans=spans,
            denoisers=tuple(
                model.denoisers[names[metric]] if settings.denoised else None for metric in metrics
            ),
            threshold=model.thresholds[name],
            least_effect=least_effect if settings.min_effect else 0.0,
            settings=settings,
            first=first,
        )

    if settings.concatenated:
        if CONCATENATED not in model.thresholds:
            unjudged[CONCATENATED] = "the watch model has no threshold for it"
            return ()
        return (compare(CONCATENATED, *usable),) if usable else ()
    return tuple(compare(names[metric], metric) for metric in usable)


def _why_not(
    name: str,
    names: list[str],
    model: AnswersForMetrics,
    settings: WatchSettings,
    unreported: Mapping[str, str],
) -> str:
    if name not in names:
        return "not in the telemetry"
    if settings.denoised and name not in model.denoisers:
        return "the watch model was not trained for it"
    if not settings.concatenated and name not in model.thresholds:
        return "the watch model has no threshold for it"
    return unreported.get(name, "")


@dataclass(frozen=True)
class _Fired:
    comparison: Comparison
    group: int
    peers: Ints
    run: Run
    metric: int
    departure: Departure


@dataclass(kw_only=True)
class _Looking:
    telemetry: Telemetry
    settings: WatchSettings
    needed: int  # windows
    groups: tuple[Ints, ...]
    comparisons: tuple[Comparison, ...]
    baseline: Telemetry | None
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    oddities: dict[tuple[int, OddityKind, str], Oddity] = field(default_factory=dict)
    suspected: set[int] = field(default_factory=set)  # rows
    roles: dict[str, set[int]] = field(default_factory=dict)  # of comparisons: rows

    def name_vanished(self, vanished: Mapping[int, tuple[Deviation, ...]]) -> None:
        for row, deviations in vanished.items():
            self._suspect(row, deviations)

    def name_unlike(self) -> None:
        while self._may_suspect() and (fired := self._first_that_fires()):
            self._suspect(fired.run.row, (self._deviation(fired), *self._others(fired)))

    def _may_suspect(self) -> bool:
        return len(self.suspected) < self.settings.limit(len(self.telemetry.nodes))

    def _suspect(self, row: int, deviations: tuple[Deviation, ...]) -> None:
        if self._may_suspect():
            node = self.telemetry.nodes[row]
            self.suspected.add(row)
            self.suspicions[node] = Suspicion(
                node=node, since=deviations[0].since, deviations=deviations
            )

    def _first_that_fires(self) -> _Fired | None:
        for comparison in self.comparisons:
            for group in range(len(self.groups)):
                if fired := self._fires(comparison, group):
                    return fired
        return None

    def _fires(self, comparison: Comparison, group: int) -> _Fired | None:
        """The newest run of a node that left its peers for good."""
        roles = self.roles.setdefault(comparison.name, set())
        peers = self._without(self.groups[group], self.suspected | roles)
        probe = _remembered(lambda window: comparison.stand_out(group, peers, window))
        least = self.settings.remarkable(self.telemetry.step_s) if self.settings.returns else None
        least = min(self.needed, least or self.needed)
        for run in runs(probe, comparison.windows, least, self.needed):
            metric, left = self._departure(comparison, peers, run)
            if self.settings.returns and left.always:
                roles.add(run.row)
                self._remark(run.row, OddityKind.ALWAYS_APART, metric, left)
                return self._fires(comparison, group)
            if self.settings.returns and left.returned:
                self._remark(run.row, OddityKind.UNSTEADY, metric, left)
            elif len(run) >= self.needed:
                return _Fired(comparison, group, peers, run, metric, left)
        return None

    def _without(self, rows: Ints, left_out: set[int]) -> Ints:
        kept: Ints = rows[~np.isin(rows, sorted(left_out))]
        return kept

    def _departure(self, comparison: Comparison, peers: Ints, run: Run) -> tuple[int, Departure]:
        """By its values in the metric in which it is farthest from them."""
        first = comparison.first + run.first
        last = comparison.first + run.last + self.settings.window - 1
        departures = {
            metric: left
            for metric in comparison.metrics
            if (left := self._left(metric, peers, run.row, first, last))
        }
        farthest = max(
            departures,
            key=lambda metric: departures[metric].distance / (comparison.spans[metric].width or 1),
        )
        return farthest, departures[farthest]

    def _left(self, metric: int, peers: Ints, row: int, first: int, last: int) -> Departure | None:
        values = self.telemetry.values[metric]
        others = peers[peers != row]
        return departure(
            values[row].astype(np.float64),
            _medians(values[others]),
            first,
            last,
            self.settings.window,
            met_before=self._met_before(metric, row, others),
        )

    def _met_before(self, metric: int, row: int, others: Ints) -> Floats:
        """How far it was from its peers when the job began."""
        name = self.telemetry.metrics[metric].name
        before = self.baseline
        if before is None or name not in [known.name for known in before.metrics]:
            return np.zeros(0)
        nodes = [self.telemetry.nodes[other] for other in others]
        rows = [before.nodes.index(node) for node in nodes if node in before.nodes]
        if self.telemetry.nodes[row] not in before.nodes or not rows:
            return np.zeros(0)
        own = before.of(name)[before.nodes.index(self.telemetry.nodes[row])]
        return np.asarray(np.abs(own.astype(np.float64) - _medians(before.of(name)[rows])))

    def _remark(self, row: int, kind: OddityKind, metric: int, left: Departure) -> None:
        name = self.telemetry.metrics[metric].name
        since, until = self.telemetry.times[left.since], self.telemetry.times[left.until]
        lasted = until - since
        sentence = {
            OddityKind.UNSTEADY: f"left its peers in {name} for {lasted:.0f} s and came back",
            OddityKind.ALWAYS_APART: f"differs in {name} since telemetry began: a role, or older",
        }[kind]
        self.oddities.setdefault(
            (row, kind, name),
            Oddity(
                node=self.telemetry.nodes[row],
                kind=kind,
                metric=name,
                since=float(since),
                until=float(until),
                sentence=sentence,
            ),
        )

    def _deviation(self, fired: _Fired) -> Deviation:
        score, threshold = fired.comparison.score(
            fired.group, fired.peers, fired.run.last, fired.run.row
        )
        return self._told(fired.metric, fired.departure, score, threshold)

    def _told(
        self, metric: int, left: Departure, score: float = 0.0, threshold: float = 0.0
    ) -> Deviation:
        watched = self.telemetry.metrics[metric]
        width = span_of(watched, self.telemetry.values[metric]).width
        return Deviation(
            sign=Sign.UNLIKE_PEERS,
            metric=watched.name,
            family=watched.family,
            since=float(self.telemetry.times[left.since]),
            until=float(self.telemetry.times[left.until]),
            side=left.side,
            value=left.value,
            peers=left.peers,
            effect=left.distance / width if width > 0 else 0.0,
            score=score,
            threshold=threshold,
        )

    def _others(self, fired: _Fired) -> list[Deviation]:
        """In which other metrics it left its peers meanwhile."""
        first = fired.departure.since
        last = fired.comparison.first + fired.run.last + self.settings.window - 1
        deviations = []
        for metric in range(len(self.telemetry.metrics)):
            if metric != fired.metric:
                left = self._left(metric, fired.peers, fired.run.row, first, last)
                if left and self._is_apart(metric, fired, left, first, last):
                    deviations.append(self._told(metric, left))
        return deviations

    def _is_apart(self, metric: int, fired: _Fired, left: Departure, first: int, last: int) -> bool:
        watched = self.telemetry.metrics[metric]
        values = self.telemetry.values[metric]
        width = span_of(watched, values).width
        if left.returned or left.always or not width > 0:
            return False
        if left.distance < max(self.settings.min_effect * width, watched.floor):
            return False
        others = values[fired.peers[fired.peers != fired.run.row], first : last + 1]
        gaps = np.abs(others - _medians(others))
        usual = _medians(_means(gaps)[:, None])
        return bool(left.distance >= BEYOND_PEERS * usual[0])


def _remembered(probe: Callable[[int], frozenset[int]]) -> Callable[[int], frozenset[int]]:
    answers: dict[int, frozenset[int]] = {}

    def answer(window: int) -> frozenset[int]:
        if window not in answers:
            answers[window] = probe(window)
        return answers[window]

    return answer


def _medians(values: Floats | Floats32) -> Floats:
    """Of each column; NaN where nobody reported."""
    ordered = np.sort(values, axis=0).astype(np.float64)  # NaN comes last
    count = np.isfinite(ordered).sum(axis=0)
    columns = np.arange(ordered.shape[1])
    low = ordered[np.maximum(count - 1, 0) // 2, columns]
    high = ordered[np.minimum(count // 2, len(ordered) - 1), columns]
    return np.where(count > 0, (low + high) / 2, np.nan)


def _means(values: Floats) -> Floats:
    """Of each row, of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    return np.where(
        count > 0, np.where(known, values, 0).sum(axis=1) / np.maximum(count, 1), np.nan
    )
