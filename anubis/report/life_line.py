"""The life of a node drawn along time: lanes for reported events, repairs, actions of the keeper,
incidents and tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.report.chart import Axis, Chart
from anubis.report.history import Happening
from anubis.report.svg import Element, add, serialize, title
from anubis.text.wording import moment

LANES = ("event", "repair", "action", "incident", "validation")  # from the bottom
CALLED = ("told", "repairs", "keeper", "incidents", "tests")
# between two ticks: round numbers of hours, days and weeks
STEPS_S = (HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 14 * DAY_S, 30 * DAY_S, 90 * DAY_S, 365 * DAY_S)
MOST_TICKS = 8  # more dates overlap on a screen of 420 pixels
SHORTEST_S = HOUR_S  # that is drawn: a life of a minute is no line
THICK, THIN = 12.0, 3.0  # pixels: how high a bar is, and how wide it is at least


def life_line(life: Sequence[Happening], now: float) -> str:
    """Draw the life of a node; empty if there is nothing to draw. What is not over goes on until
    now."""
    drawn = [happening for happening in life if happening.kind in LANES and happening.at <= now]
    if not drawn:
        return ""
    begin = min(min(happening.at for happening in drawn), now - SHORTEST_S)
    chart = _chart(begin, now)
    tests = sum(happening.kind == "validation" for happening in drawn)
    canvas = chart.frame(f"{len(drawn)} things that happened since {moment(begin)}, {tests} tests")
    for happening in drawn:
        _draw(happening, chart, canvas, now)
    return serialize(canvas)


def _chart(begin: float, end: float) -> Chart:
    step = next((step for step in STEPS_S if (end - begin) / step <= MOST_TICKS), STEPS_S[-1])
    first = begin - begin % step + step
    ticks = [first + step * place for place in range(int((end - first) // step) + 1)]
    form = "%Y-%m-%d" if step >= DAY_S else "%m-%d %H:%M"
    return Chart(
        width=960,
        height=220,
        across=Axis(
            title="UTC",
            begin=begin,
            end=end,
            spelled=lambda at: datetime.fromtimestamp(at, UTC).strftime(form),
            marks=ticks or [end],
        ),
        up=Axis(
            title="",
            begin=-0.6,
            end=len(LANES) - 0.4,
            spelled=lambda lane: CALLED[int(lane)],
            marks=range(len(LANES)),
        ),
    )


def _draw(happening: Happening, chart: Chart, canvas: Element, now: float) -> None:
    lane = LANES.index(happening.kind)
    if happening.kind == "validation":
        mark = chart.dot(canvas, (happening.at, lane), f"lane {happening.judgement}")
    else:
        mark = _bar(happening, lane, chart, canvas, now)
    title(mark, f"{moment(happening.at)}: {happening.summary}")


def _bar(happening: Happening, lane: int, chart: Chart, canvas: Element, now: float) -> Element:
    left = chart.x(happening.at)
    right = chart.x(now if happening.end is None else min(now, happening.end))
    return add(
        canvas,
        "rect",
        class_=f"lane {happening.kind}",
        x=left,
        y=chart.y(lane) - THICK / 2,
        width=max(THIN, right - left),
        height=THICK,
    )
