"""Pages of drift: how near each metric came to its limit, test by test; of a cluster or of one
node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.history.drift import Drift
from anubis.report.page import page
from anubis.report.svg import Element, add, number, picture, serialize, title
from anubis.text.wording import moment

SHOWN_DAYS = 30  # a month
WIDE, HIGH, EDGE = 220.0, 40.0, 4.0  # of a drawing, and around its lines
TOP = 1.25  # shares of the limit that are drawn


@dataclass(frozen=True, kw_only=True)
class ClusterDrift:
    cluster: str
    node: str = ""  # empty: all nodes
    since: float
    drifts: Sequence[Drift]

    @property
    def moving(self) -> list[Drift]:
        return [drift for drift in self.drifts if not drift.is_still]

    @property
    def still(self) -> list[str]:
        """Metrics that used nothing of their limits."""
        return [called(drift) for drift in self.drifts if drift.is_still]

    @property
    def begin(self) -> float:
        """Time of the first test, or as much as pages show before now."""
        return min((drift.points[0].at for drift in self.drifts), default=self.since)


def drift_page(clusters: Sequence[ClusterDrift], as_of: float, simulated: str = "") -> str:
    return page(
        "service_drift",
        here="/over-time",
        as_of=as_of,
        simulated=simulated,
        clusters=clusters,
        node=clusters[0].node if clusters else "",
        compared=sum(len(cluster.drifts) for cluster in clusters),
        beyond=sum(drift.last.far >= 1 for cluster in clusters for drift in cluster.drifts),
        days=SHOWN_DAYS,
        called=called,
        drawing=drawing,
        percent=percent,
        change=change,
    )


def called(drift: Drift) -> str:
    return f"{drift.benchmark} {drift.metric}"


def drawing(drift: Drift, begin: float, end: float) -> str:
    """Draw the median and the 95th percentile of each test over time, below the line
    of the limit."""
    shares = ", ".join(
        f"{percent(point.middle)} and {percent(point.far)}" for point in drift.points
    )
    canvas = picture(WIDE, HIGH, "chart drift", f"{called(drift)}, test by test: {shares}")
    limit = _height(1.0)
    add(canvas, "line", class_="limit", x1=0.0, x2=WIDE, y1=limit, y2=limit)
    places = [_place(point.at, begin, end) for point in drift.points]
    _draw(canvas, "far", places, [point.far for point in drift.points])
    _draw(canvas, "middle", places, [point.middle for point in drift.points])
    for x, point in zip(places, drift.points, strict=True):
        dot = add(canvas, "circle", class_="dot", r=2.5, cx=x, cy=_height(point.middle))
        title(dot, f"{moment(point.at)}: {percent(point.middle)} of its limit, {point.units} units")
    return serialize(canvas)


def _draw(canvas: Element, kind: str, places: Sequence[float], shares: Sequence[float]) -> None:
    pairs = zip(places, map(_height, shares), strict=True)
    points = " ".join(f"{number(x)},{number(y)}" for x, y in pairs)
    add(canvas, "polyline", class_=kind, points=points)


def _place(at: float, begin: float, end: float) -> float:
    return EDGE + (WIDE - 2 * EDGE) * (at - begin) / max(end - begin, 1.0)


def _height(share: float) -> float:
    return HIGH - EDGE - (HIGH - 2 * EDGE) * min(max(share, 0.0), TOP) / TOP


def percent(share: float) -> str:
    return f"{share:.0%}"


def change(drift: Drift) -> str:
    """The change in words; `-` after one test."""
    return "-" if drift.change is None else f"{drift.change:+.0%}"
