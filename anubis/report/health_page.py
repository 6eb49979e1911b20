"""The page of a fleet over time: its verdicts day by day, and its incidents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anubis.core.amounts import DAY_H
from anubis.core.history.fleet_days import FleetDay, IncidentCategory, TimeBefore
from anubis.report.page import page
from anubis.report.svg import add, picture, serialize, title
from anubis.text.wording import moment, quantity

DAYS = 30  # a month
WIDE, HIGH, BELOW = 960.0, 190.0, 22.0  # of the picture, and of the dates below it
GAP = 0.16  # of a day


@dataclass(frozen=True, kw_only=True)
class ClusterOverTime:
    name: str
    days: Sequence[FleetDay]
    categories: Sequence[IncidentCategory]
    before: Sequence[TimeBefore]

    @property
    def was_tested(self) -> bool:
        return any(map(tests, self.days))


def health_page(clusters: Sequence[ClusterOverTime], as_of: float) -> str:
    return page(
        "service_over_time",
        here="/over-time",
        as_of=as_of,
        clusters=clusters,
        drawing=days_picture,
        date=date,
        hours=hours,
        course=course,
        shown=DAYS,
    )


def course(cluster: ClusterOverTime) -> str:
    """Return what the fleet came to, in a sentence or two."""
    tested = [day for day in cluster.days if tests(day)]
    if not tested:
        return f"No node was tested in the last {len(cluster.days)} days."
    first, last = tested[0], tested[-1]
    now = f"{last.healthy:,} of {quantity(tests(last), 'tested node')} healthy"
    before = f", {first.healthy:,} of {tests(first):,} on {date(first.begin)}"
    lost_h = sum(row.lost_h for row in cluster.categories)
    incidents = sum(row.incidents for row in cluster.categories)
    cost = f" {quantity(incidents, 'incident')} took {lost_h:,.0f} node-hours." if incidents else ""
    return f"{now}{before if first is not last else ''}.{cost}"


def tests(day: FleetDay) -> int:
    """Number of nodes that tests had shown anything of."""
    return day.healthy + day.defective + day.unknown


def days_picture(days: Sequence[FleetDay]) -> str:
    """Draw a column for each day: the nodes that are not healthy at its foot, so that one of a
    thousand is seen as well as one of ten."""
    largest = max(map(tests, days), default=0) or 1
    label = f"what tests had shown of the nodes, on each of the last {len(days)} days"
    canvas = picture(WIDE, HIGH + BELOW, "chart days", label)
    step = WIDE / max(1, len(days))
    for place, day in enumerate(days):
        counts = {"defective": day.defective, "unknown": day.unknown, "healthy": day.healthy}
        column = add(canvas, "g")
        words = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
        title(column, f"{date(day.begin)}: {words}")
        foot = HIGH
        for kind, number in counts.items():
            height = max(3.0, (HIGH - 6) * number / largest) if number else 0.0
            foot -= height
            add(
                column,
                "rect",
                class_=kind,
                x=(place + GAP / 2) * step,
                y=max(0.0, foot),
                width=(1 - GAP) * step,
                height=height,
            )
    for place in (0, len(days) // 2, len(days) - 1) if days else ():
        middle = min(max((place + 0.5) * step, 40), WIDE - 40)
        add(canvas, "text", date(days[place].begin), x=middle, y=HIGH + BELOW / 2)
    return serialize(canvas)


def date(at: float) -> str:
    return moment(at).partition(" ")[0]


def hours(amount: float | None) -> str:
    if amount is None:
        return "-"
    return f"{amount:,.1f} h" if amount < 2 * DAY_H else f"{amount / DAY_H:,.1f} days"
