"""Assess silence: a node whose series ended is suspect, and one that never reported is an
anomaly. If most nodes are silent together, the cause is the monitoring, not the nodes. So it is if
the job works on: the ranks of a job wait for a node that is lost. Nor is a node lost whose GPUs
report, though its host does not.

Whether a job works shows in tensor cores and the network only: GPUs are busy while ranks wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.arrays import Flags, Floats, Floats32, Ints
from anubis.core.watch.findings import Anomaly, AnomalyKind, Deviation, Sign
from anubis.core.watch.medians import medians
from anubis.core.watch.telemetry import Side, Telemetry
from anubis.core.watch.watch_settings import WatchSettings, windows_in


@dataclass(frozen=True, kw_only=True)
class Presence:
    """Reports of one metric. Points of time count only while most nodes report."""

    reported: bool  # whether most nodes ever reported at once
    silent: Ints  # rows that never reported
    vanished: Ints  # rows whose series ended long enough ago, while most continued
    last: Ints  # of each row: the last point it reported, -1: none
    newest: int  # the last point at which most nodes reported
    holes: tuple[tuple[int, int], ...]  # first and last points at which most nodes were silent
    gaps: tuple[tuple[int, int, int], ...]  # row silent for a while, first and last point


def presence(values: Floats32, *, long: int, least: int) -> Presence:
    """Presence of a metric's series. `long`: points for which a series must be gone; `least`:
    points that it must have had before."""
    there = np.isfinite(values)
    nodes, points = there.shape
    going_on = there.sum(axis=0) * 2 > nodes
    if not going_on.any():
        none = np.zeros(0, dtype=np.int64)
        return Presence(
            reported=False,
            silent=none,
            vanished=none,
            last=np.full(nodes, -1),
            newest=-1,
            holes=(),
            gaps=(),
        )
    ever = there.any(axis=1)
    last = np.where(ever, points - 1 - np.argmax(there[:, ::-1], axis=1), -1)
    so_far = np.concatenate(([0], np.cumsum(going_on)))
    missed = so_far[-1] - so_far[last + 1]
    vanished = ever & (missed >= long) & (there.sum(axis=1) >= least)
    return Presence(
        reported=True,
        silent=np.flatnonzero(~ever),
        vanished=np.flatnonzero(vanished),
        last=last,
        newest=int(np.flatnonzero(going_on)[-1]),
        holes=tuple(stretches(~going_on)),
        gaps=tuple(_gaps(there, going_on, last, long)),
    )


def _gaps(there: Flags, going_on: Flags, last: Ints, long: int) -> list[tuple[int, int, int]]:
    """Long silences that ended: row, first and last point."""
    rows = np.flatnonzero((going_on & ~there).sum(axis=1) >= long)
    return [
        (int(row), first, end)
        for row in rows
        for first, end in stretches(~there[row, : last[row] + 1])
        if going_on[first : end + 1].sum() >= long
    ]


def stretches(flags: Flags) -> list[tuple[int, int]]:
    """First and last point of each stretch that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


MOST_SHOWN = 3  # metrics that a remark names
STUCK_S = 120.0  # in which no metric of a node changed, though it works
STUCK_TIMES = 4  # and so many times as long as of most nodes
FEWEST_STUCK = 3  # metrics that are not zero: what a device that stopped reports is


def drop_repeated(telemetry: Telemetry) -> Telemetry:
    """Return the telemetry without values that a node's exporter only repeats: no metric of the
    node changed for long, and several that are not zero did before or after."""
    if telemetry.points < 2 or not telemetry.nodes:
        return telemetry
    still = np.ones((len(telemetry.nodes), telemetry.points - 1), dtype=bool)
    for of_metric in telemetry.values:
        change = np.diff(of_metric)
        still &= ~((change < 0) | (change > 0))  # an unknown value shows no change
    runs = [stretches(of_node) for of_node in still]
    longest = [max((last - first + 1 for first, last in of_node), default=0) for of_node in runs]
    least = max(STUCK_S / telemetry.step_s, STUCK_TIMES * float(np.median(longest)))
    values = telemetry.values
    for row, of_node in enumerate(runs):
        of_row = telemetry.values[:, row]
        for first, last in of_node if longest[row] >= least else ():
            kept, later = of_row[:, first : first + 1], of_row[:, first + 1 : last + 2]
            differs = np.isfinite(of_row) & (of_row != kept)
            is_repeated = (later == kept).mean(axis=1) > REPORTING  # and not missing
            is_stuck = is_repeated & (kept[:, 0] != 0) & differs.any(axis=1)
            if last - first + 1 >= least and is_stuck.sum() >= FEWEST_STUCK:
                values = values.copy() if values is telemetry.values else values
                values[:, row, first + 1 : last + 2] = np.nan
    return replace(telemetry, values=values)


@dataclass(frozen=True, kw_only=True)
class Silences:
    vanished: Mapping[int, tuple[Deviation, ...]]  # by row, the first to fall silent first
    anomalies: tuple[Anomaly, ...]
    unreported: Mapping[str, str]  # metric → why no node can be compared by it


def silences(telemetry: Telemetry, settings: WatchSettings, *, ended: bool) -> Silences:
    long = windows_in(_vanishing_s(settings, ended), telemetry.step_s)
    presences = [presence(values, long=long, least=settings.window) for values in telemetry.values]
    deaf = _deaf_hosts(telemetry, presences)
    vanished: defaultdict[int, list[Deviation]] = defaultdict(list)
    anomalies: list[Anomaly] = []
    for metric, seen in enumerate(presences):
        if len(seen.vanished) > settings.limit(len(telemetry.nodes)):
            anomalies.append(_joint_anomaly(telemetry, metric, seen))
        else:
            for row in seen.vanished.tolist():
                if why := _unheard_reason(telemetry, int(seen.last[row]), deaf.get(row), long):
                    anomalies.append(_unheard_anomaly(telemetry, metric, seen, row, why))
                else:
                    vanished[row].append(_vanished_deviation(telemetry, metric, seen, row))
        anomalies += _node_anomalies(telemetry, metric, seen)
    first = sorted(vanished, key=lambda row: (min(d.since for d in vanished[row]), row))
    return Silences(
        vanished={row: tuple(sorted(vanished[row], key=lambda d: d.since)) for row in first},
        anomalies=(*_job_anomalies(telemetry, presences, settings), *_join_metrics(anomalies)),
        unreported={
            telemetry.metrics[metric].name: "not reported by most nodes at any time"
            for metric, seen in enumerate(presences)
            if not seen.reported
        },
    )


def _unheard_reason(telemetry: Telemetry, last: int, deaf: int | None, long: int) -> str:
    """Reason why a series that ended shows no lost node; empty: it may."""
    if deaf is not None and abs(last - deaf) <= AT_ONCE:
        return "and its GPUs do: look at its monitoring"
    if works_on(telemetry, last, long):
        return "and the job works on: look at its monitoring, and at the node if none waits for it"
    return ""


def _join_metrics(anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    """Yield the anomalies, as one those that say the same of several metrics of a node."""
    alike: defaultdict[Anomaly, list[str]] = defaultdict(list)
    for anomaly in anomalies:
        sentence = anomaly.sentence.replace(f" {anomaly.metric}", " {}", 1)
        alike[replace(anomaly, metric="", sentence=sentence)].append(anomaly.metric)
    for anomaly, metrics in alike.items():
        more = f", and {len(metrics) - MOST_SHOWN} more" if len(metrics) > MOST_SHOWN else ""
        names = f"{', '.join(metrics[:MOST_SHOWN])}{more}"
        metric = metrics[0] if len(metrics) == 1 else ""
        yield replace(anomaly, metric=metric, sentence=anomaly.sentence.format(names))


def _deaf_hosts(telemetry: Telemetry, presences: Sequence[Presence]) -> Mapping[int, int]:
    """Rows of nodes whose GPUs report on after the series of the host ended, and the last point of
    these. The exporter of such a node ended: what its NICs did is then unknown, too."""
    gpus = [place for place, metric in enumerate(telemetry.metrics) if metric.family == "gpu"]
    deaf = {}
    for metric, seen in zip(telemetry.metrics, presences, strict=True):
        for row in seen.vanished.tolist() if metric.family in HOST else ():
            last = int(seen.last[row])
            later = np.isfinite(telemetry.values[gpus, row, last + 1 : seen.newest + 1])
            if (later.mean(axis=1) > REPORTING).any():
                deaf[row] = last
    return deaf


def _vanishing_s(settings: WatchSettings, ended: bool) -> float:
    if ended and settings.continuity_ended_s is not None:
        return min(settings.vanished_s, settings.continuity_ended_s)
    return settings.vanished_s


def _vanished_deviation(telemetry: Telemetry, metric: int, seen: Presence, row: int) -> Deviation:
    last = int(seen.last[row])
    after = telemetry.values[metric, :, last + 1 : seen.newest + 1]
    return Deviation(
        sign=Sign.VANISHED,
        metric=telemetry.metrics[metric].name,
        family=telemetry.metrics[metric].family,
        since=float(telemetry.times[last]),
        until=float(telemetry.times[seen.newest]),
        side=Side.EITHER,
        value=np.nan,
        peers=float(np.median(after[np.isfinite(after)])),
        effect=1.0,
    )


def _joint_anomaly(telemetry: Telemetry, metric: int, seen: Presence) -> Anomaly:
    name, since = (
        telemetry.metrics[metric].name,
        float(telemetry.times[seen.last[seen.vanished]].min()),
    )
    return Anomaly(
        node="",
        kind=AnomalyKind.GAPS,
        metric=name,
        since=since,
        until=float(telemetry.times[seen.newest]),
        sentence=f"{len(seen.vanished)} of {len(telemetry.nodes)} nodes no longer report {name}: "
        "too many to be their own fault, look at the monitoring",
    )


def _unheard_anomaly(
    telemetry: Telemetry, metric: int, seen: Presence, row: int, why: str
) -> Anomaly:
    name, last = telemetry.metrics[metric].name, int(seen.last[row])
    return Anomaly(
        node=telemetry.nodes[row],
        kind=AnomalyKind.GAPS,
        metric=name,
        since=float(telemetry.times[last]),
        until=float(telemetry.times[seen.newest]),
        sentence=f"has not reported {name} for {_seconds(telemetry, last + 1, seen.newest):.0f} s"
        f", {why}",
    )


def _node_anomalies(telemetry: Telemetry, metric: int, seen: Presence) -> list[Anomaly]:
    name = telemetry.metrics[metric].name
    silent = [
        Anomaly(
            node=telemetry.nodes[row],
            kind=AnomalyKind.SILENT,
            metric=name,
            since=telemetry.start,
            until=telemetry.end,
            sentence=f"never reported {name}",
        )
        for row in seen.silent.tolist()
    ]
    gaps = [
        Anomaly(
            node=telemetry.nodes[row],
            kind=AnomalyKind.GAPS,
            metric=name,
            since=float(telemetry.times[first]),
            until=float(telemetry.times[last]),
            sentence=f"did not report {name} for {_seconds(telemetry, first, last):.0f} s",
        )
        for row, first, last in seen.gaps
    ]
    return silent + gaps


def _job_anomalies(
    telemetry: Telemetry, presences: Sequence[Presence], settings: WatchSettings
) -> list[Anomaly]:
    """Remarks on stretches without reports, one for each, with all metrics that it affects."""
    holes: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for metric, seen in zip(telemetry.metrics, presences, strict=True):
        for hole in seen.holes:
            if _seconds(telemetry, *hole) > settings.gap_s:
                holes[hole].append(metric.name)
    return [_hole(telemetry, first, last, names) for (first, last), names in sorted(holes.items())]


def _hole(telemetry: Telemetry, first: int, last: int, names: Sequence[str]) -> Anomaly:
    subject = "anything" if len(names) == len(telemetry.metrics) else ", ".join(names)
    seconds = _seconds(telemetry, first, last)
    return Anomaly(
        node="",
        kind=AnomalyKind.GAPS,
        metric=names[0] if len(names) == 1 else "",
        since=float(telemetry.times[first]),
        until=float(telemetry.times[last]),
        sentence=f"most nodes did not report {subject} for {seconds:.0f} s",
    )


def _seconds(telemetry: Telemetry, first: int, last: int) -> float:
    return telemetry.step_s * (last - first + 1)


# --- when a job stopped ----------------------------------------------------------------------

LIVELY = 75  # percentile of a metric that counts as its level at work
IDLE = 0.5  # of that level: less in every metric of activity is no work
HOST = {"cpu", "memory", "disk"}  # families that a node has as long as it runs
AT_ONCE = 2  # points within which the series of one exporter end
ACTIVITY = {"cpu", "gpu", "throughput"}  # families


def cut_at_stop(telemetry: Telemetry) -> Telemetry:
    """Telemetry up to the last point at which the job worked. While other nodes wait for a dead
    one, their GPUs are busy; so without GPUs waiting and stopping look the same."""
    activity = [
        row
        for row, metric in enumerate(telemetry.metrics)
        if metric.fault is Side.LOW and metric.family in ACTIVITY
    ]
    if not any(telemetry.metrics[row].family == "gpu" for row in activity):
        return telemetry
    works = [_lively(medians(telemetry.values[row])) for row in activity]
    points = np.flatnonzero(np.any(works, axis=0))
    if not len(points):
        return telemetry
    return replace(telemetry, values=telemetry.values[:, :, : points[-1] + 1])


def works_on(telemetry: Telemetry, since: int, long: int) -> bool:
    """Return whether the job works on after a point: half of `long` later, when ranks that wait
    for another have used up what they had. Without a metric that shows work, False."""
    levels = [medians(values) for values in _values_of_work(telemetry)]
    works = np.any([_lively(level) for level in levels], axis=0) if levels else np.zeros(0)
    before, after = works[: since + 1], works[since + 1 + long // 2 :]
    if not after.size:
        return False
    share = max(after.mean(), after[: 2 * long].mean())  # another fault may stop it later
    return bool(share >= IDLE * before.mean() > 0)


def costs(deviations: Iterable[Deviation], telemetry: Telemetry, since: int) -> bool:
    """Return whether a processor that does more since a point costs work: of its node, which
    deviates in this way elsewhere, or of the job. If no metric shows work, it may."""
    lowered = any(deviation.value < (1 - LESS) * deviation.peers for deviation in deviations)
    return lowered or works_less(telemetry, since) is not False


def works_less(telemetry: Telemetry, since: int) -> bool | None:
    """Return whether the job does less work in the minutes since a point than before it, by most of
    the metrics that show work. None: no metric does."""
    size = max(1, round(SMOOTH_S / telemetry.step_s))
    until = since + size * round(SOON_S / SMOOTH_S)
    ratios = [
        after / before
        for values in _values_of_work(telemetry)
        if (before := _working_level(values[:, :since], size))
        and (after := _working_level(values[:, since:until], size)) is not None
    ]
    return sorted(ratios)[len(ratios) // 2] < 1 - SLOWER if ratios else None


def _working_level(values: Floats32, size: int) -> float | None:
    """Mean of all nodes over so many points while they work: a job computes and sends in turns, and
    pauses. None: nothing is known."""
    nodes, points = values.shape
    begin = points % size if points >= size else 0
    cut = values[:, begin:].astype(np.float64).reshape(nodes, -1, min(size, max(1, points)))
    is_known = np.isfinite(cut)
    counts = is_known.sum(axis=(0, 2))
    sums = np.where(is_known, cut, 0).sum(axis=(0, 2))
    if not counts.any():
        return None
    return float(np.percentile(sums[counts > 0] / counts[counts > 0], LIVELY))


def _lively(levels: Floats) -> Flags:
    finite = levels[np.isfinite(levels)]
    usual = float(np.percentile(finite, LIVELY)) if finite.size else 0.0
    return np.asarray((levels >= IDLE * usual) & (usual > 0))


WORK = ("gpu_tensor", "gpu_fp", "nvlink_throughput", "throughput", "tcp_throughput")
AT_WORK = 95  # percentile of a metric that counts as its level at work
NOTHING = 0.05  # of that level: less is no work
INTERRUPTED = 0.05  # share of the time for which something may move
SMOOTH_S = 40.0  # longer than most steps of a job
SOON_S = 240.0  # a processor that is taken away costs work at once, not minutes later
LESS = 0.05  # share of its peers' work that a node must lose
SLOWER = 0.1  # share of its work that a job must lose to be slower: its pace changes by less alone
REPORTING = 0.5  # share of the nodes, or of the time, that must report


def standing_still(telemetry: Telemetry, limit_s: float) -> float | None:
    """Begin of a standstill that lasts until the end, for `limit_s` or longer, after earlier
    work."""
    idle = _idle(telemetry)
    needed = int(np.ceil(limit_s / telemetry.step_s))
    if limit_s <= 0 or idle is None or len(idle) <= needed:
        return None
    moves = np.cumsum(~idle[::-1])[::-1]  # points with movement, from each point to the end
    is_still = moves <= INTERRUPTED * np.arange(len(idle), 0, -1)
    first = int(np.argmax(is_still))
    if not is_still[first] or first == 0:
        return None
    near = np.flatnonzero(~idle[first : first + 2 * int(moves[first]) + 1])
    first += int(near[-1]) + 1 if near.size else 0  # after the last movement before it
    return float(telemetry.times[first]) if len(idle) - first >= needed else None


def _idle(telemetry: Telemetry) -> Flags | None:
    """Flags of the points at which nothing moves; None if no metric shows work."""
    idle = list(_idle_flags(map(_highest_values, _values_of_work(telemetry))))
    return np.all(idle, axis=0) if idle else None


def _values_of_work(telemetry: Telemetry) -> list[Floats32]:
    return [telemetry.series(metric.name) for metric in telemetry.metrics if metric.name in WORK]


def _highest_values(values: Floats32) -> Floats32:
    """Highest value of any node at each point; NaN if most are unknown."""
    if not values.size:
        return np.full(values.shape[1], np.nan, dtype=np.float32)
    is_known = np.mean(np.isfinite(values), axis=0) >= REPORTING
    return np.asarray(np.where(is_known, np.fmax.reduce(values, axis=0), np.nan), dtype=np.float32)


def _idle_flags(levels: Iterable[Floats32]) -> Iterable[Flags]:
    for level in levels:
        finite = level[np.isfinite(level)]
        usual = float(np.percentile(finite, AT_WORK)) if finite.size else 0.0
        if usual > 0:
            yield np.asarray(level < NOTHING * usual)
