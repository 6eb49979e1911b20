"""One look at a running job: finds the nodes that left their peers and did not return.

First each node is measured by the job's own past (`contrast.py`), which no model of another site
can mislead. Then Minder's rule (NSDI '25) adds what it finds: metric by metric the windows of all
nodes are denoised and compared; a node that is far from the others for minutes is named by the
first metric that fires. Added here: thresholds by the number of nodes, a least effect, peer groups,
several faulty nodes, series that vanish, and a distinction of faults from jitters and roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.watch.contrast import BUSIER, ENTIRE, TIMES, Contrast, contrasts, restless_rows
from anubis.core.watch.deviations import Departure, Deviations
from anubis.core.watch.distances import AnswersForMetrics, Comparison, unjudged_reason
from anubis.core.watch.findings import Anomaly, AnomalyKind, Deviation, Look, Sign, Suspicion
from anubis.core.watch.silences import costs, cut_at_stop, drop_repeated, silences
from anubis.core.watch.telemetry import Side, Span, Telemetry, span_of
from anubis.core.watch.watch_settings import WatchSettings
from anubis.core.watch.window_search import Run, runs

ROUNDING = 1e-9  # 0.29 * 100 is a little less than 29
GPU_WORK = {"gpu_duty", "gpu_graphics", "gpu_tensor", "gpu_sm", "gpu_fp"}  # more is no fault
OFTEN = 0.5  # of a node's time apart: what others were apart for that long is usual in a job
CONCATENATED = "concatenated"  # the model's name for the threshold of all metrics as one


def look(
    telemetry: Telemetry,
    model: AnswersForMetrics,
    settings: WatchSettings,
    *,
    job: str = "",
    ended: bool = False,
) -> Look:
    """Look at a job: suspicions and anomalies. `ended`: the job has failed, so something did
    happen."""
    pulled = telemetry.last(settings.pull_s)
    telemetry = drop_repeated(telemetry)
    telemetry = cut_at_stop(telemetry) if ended and settings.continuity_ended_s else telemetry
    unjudged: dict[str, str] = {}
    spans = tuple(map(span_of, telemetry.metrics, telemetry.values))
    silence = silences(telemetry, settings, ended=ended)
    looking = _Looking(
        telemetry=telemetry,
        settings=settings,
        needed=settings.windows_needed(telemetry.step_s, ended=ended),
        groups=_peer_groups(telemetry, settings, unjudged),
        comparisons=_comparisons(telemetry, spans, model, settings, silence.unreported, unjudged),
        evidence=Deviations(telemetry=telemetry, spans=spans, settings=settings),
    )
    looking.name_vanished(silence.vanished)
    looking.name_contrasting()
    looking.name_unlike()
    looking.remark_unsteady()
    return Look(
        job=job,
        nodes=telemetry.nodes,
        start=pulled.start,
        end=pulled.end,
        suspicions=tuple(looking.suspicions.values()),
        anomalies=tuple(
            anomaly
            for anomaly in (*silence.anomalies, *looking.anomalies.values())
            if anomaly.node not in looking.suspicions
        ),
        judged=tuple(comparison.name for comparison in looking.comparisons if looking.groups),
        unjudged=unjudged,
    )


def _peer_groups(
    telemetry: Telemetry, settings: WatchSettings, unjudged: dict[str, str]
) -> tuple[Ints, ...]:
    """Rows of each group. Groups that are too small are compared together: in such a group a node
    with another role was always apart, and a faulty one departed."""
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
        f"{nodes} node{'s' * (nodes != 1)}, too few to find one unlike the others: at least"
        f" {settings.least_nodes} are needed"
    )
    return f"{reason}; compared with other groups that are too small" if together else reason


def _comparisons(
    telemetry: Telemetry,
    spans: tuple[Span, ...],
    model: AnswersForMetrics,
    settings: WatchSettings,
    unreported: Mapping[str, str],
    unjudged: dict[str, str],
) -> tuple[Comparison, ...]:
    """Comparisons in the order of the model. Metrics without one are added to `unjudged` with the
    reason."""
    first = telemetry.points - telemetry.last(settings.pull_s).points
    names = [metric.name for metric in telemetry.metrics]
    usable = []
    for name in model.order:
        if reason := unjudged_reason(name, telemetry, model, settings, unreported):
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


@dataclass(frozen=True)
class _Left:
    """A run of windows that a node stands out of, and its departure from its peers."""

    run: Run
    comparison: Comparison
    group: int
    peers: Ints
    metric: int
    departure: Departure

    @property
    def last(self) -> int:
        """Last point of the run in the telemetry."""
        return self.comparison.first + self.run.last + self.comparison.settings.window - 1


@dataclass(frozen=True)
class _Contrasting:
    """A contrast in a metric among peers, and the departure from them."""

    metric: int
    peers: Ints
    contrast: Contrast
    departure: Departure


@dataclass(kw_only=True)
class _Looking:
    telemetry: Telemetry
    settings: WatchSettings
    needed: int  # windows
    groups: tuple[Ints, ...]
    comparisons: tuple[Comparison, ...]
    evidence: Deviations
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    anomalies: dict[tuple[int, AnomalyKind, str], Anomaly] = field(default_factory=dict)
    suspected: set[int] = field(default_factory=set)  # rows
    roles: dict[str, set[int]] = field(default_factory=dict)  # name of a comparison → rows

    def name_vanished(self, vanished: Mapping[int, tuple[Deviation, ...]]) -> None:
        for row, deviations in vanished.items():
            if self._may_suspect():
                self._suspect(row, (*deviations, *self._other_deviations(row, deviations)))

    def _other_deviations(self, row: int, vanished: tuple[Deviation, ...]) -> list[Deviation]:
        """Metrics in which a node whose series ended still reports, and left its peers."""
        all_nodes = np.arange(len(self.telemetry.nodes))
        group = next((rows for rows in self.groups if row in rows), all_nodes)
        first, last = (
            round((at - self.telemetry.start) / self.telemetry.step_s)
            for at in (vanished[0].since, vanished[0].until)
        )
        peers = _exclude(group, self.suspected)
        return self.evidence.elsewhere(None, peers, row, first, last)

    def name_contrasting(self) -> None:
        """Suspect nodes by the job's own past. Those that are apart as faults are come first, and
        among them those that short blocks show, because these give the second."""
        candidates = list(self._contrasting()) if self.settings.contrast else []
        candidates.sort(
            key=lambda candidate: (
                not candidate.contrast.as_faults_do,
                candidate.contrast.smoothed,
                -candidate.contrast.score,
            )
        )
        for candidate in candidates:
            row, metric, left = candidate.contrast.row, candidate.metric, candidate.departure
            is_long = (candidate.contrast.last + 1 - candidate.contrast.first) >= self._needed_now()
            if row in self.suspected or not is_long or self._is_usual(left.since, left.until):
                continue
            if self._may_suspect():
                names_it = self.evidence.deviation(
                    metric, left, candidate.contrast.score, TIMES, sign=Sign.CONTRAST
                )
                elsewhere = self.evidence.elsewhere(
                    metric, candidate.peers, row, left.since, candidate.contrast.last
                )
                if candidate.contrast.as_faults_do or costs(elsewhere, self.telemetry, left.since):
                    self._suspect(row, (names_it, *elsewhere))

    def _contrasting(self) -> Iterator[_Contrasting]:
        """Contrasts that are in the judged time, of nodes that left their peers for good."""
        judged = {
            row: comparison.first for comparison in self.comparisons for row in comparison.metrics
        }
        for metric, first in judged.items():
            for group in self.groups:
                peers = _exclude(group, self.suspected)
                for contrast in self._contrasts(metric, peers):
                    run = (contrast.row, contrast.first, contrast.last, contrast.smoothed)
                    left = self.evidence.departure(metric, peers, *run)
                    gone = left and not (left.returned or left.always)
                    if left and gone and contrast.last >= first:
                        yield _Contrasting(metric, peers, contrast, left)

    def _contrasts(self, metric: int, peers: Ints) -> list[Contrast]:
        return contrasts(
            self.telemetry.values[metric],
            self.telemetry.metrics[metric],
            self.evidence.spans[metric],
            peers,
            needed_s=self.needed * self.telemetry.step_s,
            step_s=self.telemetry.step_s,
            limit=self.settings.limit(len(peers)),
        )

    def name_unlike(self) -> None:
        """Suspect nodes one by one: without those already named, others stand out more."""
        while self._may_suspect() and (left := self._first_that_fires()):
            score, threshold = left.comparison.score(
                left.group, left.peers, left.run.last, left.run.row
            )
            names_it = self.evidence.deviation(left.metric, left.departure, score, threshold)
            elsewhere = self.evidence.elsewhere(
                left.metric, left.peers, left.run.row, left.departure.since, left.last
            )
            self._suspect(left.run.row, (names_it, *elsewhere))

    def remark_unsteady(self) -> None:
        """Remark on nodes that are not suspected and left their peers for a while."""
        if not self.settings.returns:
            return
        for comparison in self.comparisons:
            for group in range(len(self.groups)):
                for left in self._leavers(comparison, group, comparison.windows):
                    if left.departure.returned:
                        self._remark(AnomalyKind.UNSTEADY, left)

    def _may_suspect(self) -> bool:
        return len(self.suspected) < self.settings.limit(len(self.telemetry.nodes))

    def _suspect(self, row: int, deviations: tuple[Deviation, ...]) -> None:
        node = self.telemetry.nodes[row]
        self.suspected.add(row)
        self.suspicions[node] = Suspicion(
            node=node, since=deviations[0].since, deviations=deviations
        )

    def _first_that_fires(self) -> _Left | None:
        for comparison in self.comparisons:
            for group in range(len(self.groups)):
                for left in self._leavers(comparison, group, self._needed_now()):
                    returned = self.settings.returns and left.departure.returned
                    needed = self._needed_now()
                    is_long = len(left.run) >= needed and left.departure.points >= ENTIRE * needed
                    if is_long and not returned and self._may_be_fault(left):
                        return left
        return None

    def _may_be_fault(self, left: _Left) -> bool:
        """Return whether a departure is not usual in the job, and not only more work, or the same
        work at other moments."""
        watched, since = self.telemetry.metrics[left.metric], left.departure.since
        if not self.settings.contrast:
            return True
        if left.departure.side is Side.EITHER and watched.fault is not Side.EITHER:
            return False
        if left.departure.side is Side.HIGH and watched.name in GPU_WORK:
            return False
        if left.departure.side is Side.HIGH and watched.family in BUSIER:
            beside = (left.metric, left.peers, left.run.row, since, left.last)
            if not costs(self.evidence.elsewhere(*beside), self.telemetry, since):
                return False
        return not self._is_usual(since, left.departure.until)

    def _is_usual(self, first: int, last: int) -> bool:
        """Return whether more nodes than one look may suspect, and one that jitters, were apart by
        themselves for half as long: nodes of this job do not do the same at the same time."""
        long_s = OFTEN * max(self.needed, last + 1 - first) * self.telemetry.step_s
        metrics = {metric for comparison in self.comparisons for metric in comparison.metrics}
        rows = restless_rows(
            self.telemetry, self.evidence.spans, sorted(metrics), self.groups, long_s
        )
        return len(rows) > self.settings.limit(len(self.telemetry.nodes)) + 1

    def _needed_now(self) -> int:
        """Windows that make a suspicion. Once a node is named, the end of a job is explained: then
        no other is named by less than in a job that runs."""
        if self.suspected:
            return self.settings.windows_needed(self.telemetry.step_s)
        return self.needed

    def _leavers(self, comparison: Comparison, group: int, enough: int) -> Iterator[_Left]:
        """Departures, newest first. Nodes that were always apart have a role: all found at once are
        left out of the metric, and then the others are compared again."""
        roles = self.roles.setdefault(comparison.name, set())
        while True:
            so_far = len(roles)
            peers = _exclude(self.groups[group], self.suspected | roles)
            for left in self._departures(comparison, group, peers, enough):
                if self.settings.returns and left.departure.always:
                    roles.add(left.run.row)
                    self._remark(AnomalyKind.ALWAYS_APART, left)
                elif len(roles) == so_far:
                    yield left
            if len(roles) == so_far:
                return

    def _departures(
        self, comparison: Comparison, group: int, peers: Ints, enough: int
    ) -> Iterator[_Left]:
        probe = comparison.probe(group, peers)
        patience = int(self.settings.patience * self.needed + ROUNDING)
        for run in runs(probe, comparison.windows, self._least(), enough, patience):
            first = comparison.first + run.first
            last = comparison.first + run.last + self.settings.window - 1
            departures = {
                metric: departure
                for metric in comparison.metrics
                if (departure := self.evidence.departure(metric, peers, run.row, first, last))
            }
            metric = max(departures, key=lambda name: self.evidence.share(name, departures[name]))
            yield _Left(run, comparison, group, peers, metric, departures[metric])

    def _least(self) -> int:
        remarkable = self.settings.windows_remarkable(self.telemetry.step_s)
        return min(self.needed, remarkable) if self.settings.returns else self.needed

    def _remark(self, kind: AnomalyKind, left: _Left) -> None:
        name = self.telemetry.metrics[left.metric].name
        since = float(self.telemetry.times[left.departure.since])
        until = float(self.telemetry.times[left.departure.until])
        sentence = {
            AnomalyKind.UNSTEADY: f"left its peers in {name} for {until - since:.0f} s, "
            "then came back",
            AnomalyKind.ALWAYS_APART: f"differs in {name} since telemetry began: "
            "a role of its own, or an older fault",
        }[kind]
        self.anomalies.setdefault(
            (left.run.row, kind, name),
            Anomaly(
                node=self.telemetry.nodes[left.run.row],
                kind=kind,
                metric=name,
                since=since,
                until=until,
                sentence=sentence,
            ),
        )


def _exclude(rows: Ints, left_out: set[int]) -> Ints:
    kept: Ints = rows[~np.isin(rows, sorted(left_out))]
    return kept
