"""The page of a look: for each suspect its picture against its peers: the band in which most of
them are, and the moment it left. It needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Flags, Floats, Floats32
from anubis.core.watch.findings import LookAnswer, Sign, Suspicion
from anubis.core.watch.telemetry import WatchedMetric
from anubis.report.page import page
from anubis.report.svg import (
    Axis,
    Chart,
    Element,
    Points,
    add,
    number,
    serialize,
    title,
    whole_steps,
)
from anubis.report.watch import (
    RULES,
    LookView,
    amount,
    amounts,
    clock,
    confidence_sentence,
    deviation_cells,
    headline,
    mix_sentence,
    next_steps,
    odd,
    peers_of,
    unbroken,
    unjudged_reasons,
)

DOTS = 300  # points of a line at most
BAND = (5.0, 95.0)  # percentiles of the peers
# between two ticks: round numbers of seconds, minutes and hours
STEPS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, HOUR_S, 4 * HOUR_S)
TICKS = 6  # more times of day overlap on a card
WIDE, CARD = (960.0, 320.0), (480.0, 240.0)  # pixels: a picture alone, and one of two side by side


@dataclass(frozen=True, kw_only=True)
class NodePicture:
    metric: str
    about: str
    svg: str
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class _Course:
    """A metric over time: the band and the middle of the peers, and the line of one node."""

    times: Floats
    low: Floats
    middle: Floats
    high: Floats
    node: Floats | None


def pictures_of_node(view: LookView, suspicion: Suspicion) -> list[NodePicture]:
    """Draw the metric that named the node, then others in which it left its peers, then all
    others."""
    deviating = list(dict.fromkeys(deviation.metric for deviation in suspicion.deviations))
    reported = [name for name in view.metrics if name not in deviating and _is_reported(view, name)]
    return [
        _picture(view, name, suspicion, wide=place == 0)
        for place, name in enumerate([*deviating, *reported])
        if name in view.metrics
    ]


def pictures_of_job(view: LookView) -> list[NodePicture]:
    """Draw metrics of all nodes together, for a job in which none stands apart."""
    return [_picture(view, name, None) for name in view.metrics if _is_reported(view, name)]


def _is_reported(view: LookView, metric: str) -> bool:
    return bool(np.isfinite(view.telemetry.series(metric)).any())


def _picture(
    view: LookView, name: str, suspicion: Suspicion | None, *, wide: bool = False
) -> NodePicture:
    course = _course(view, name, suspicion.node if suspicion else None)
    chart = _chart(view.metrics[name], course, WIDE if wide else CARD)
    subject = f"{suspicion.node} against its peers" if suspicion else "all nodes"
    canvas = chart.frame(f"{name} of {subject} over time")
    _mark_window(view, chart, canvas)
    _draw_band(chart, canvas, course)
    for stretch in _stretches(course.times, course.middle):
        chart.line(canvas, stretch, "middle")
    if course.node is not None and suspicion:
        for stretch in _stretches(course.times, course.node):
            title(chart.line(canvas, stretch, "suspect"), suspicion.node)
        _mark_moment(view, chart, canvas, name, suspicion)
    return NodePicture(
        metric=name,
        about=_describe_picture(view, name, suspicion),
        svg=serialize(canvas),
        wide=wide,
    )


def _describe_picture(view: LookView, name: str, suspicion: Suspicion | None) -> str:
    unit = view.metrics[name].unit
    for deviation in suspicion.deviations if suspicion else ():
        if deviation.metric == name and deviation.sign is Sign.VANISHED:
            return f"reports nothing since {clock(deviation.since)}"
        if deviation.metric == name:
            value, peers = amounts(deviation.value, deviation.peers, unit)
            return f"{value}, peers {peers}, since {clock(deviation.since)}"
    return "like its peers" if suspicion else ""


# --- numbers -------------------------------------------------------------------------------


def _course(view: LookView, name: str, node: str | None) -> _Course:
    """Return a metric over time; suspects do not count as peers in a picture."""
    telemetry, values = view.telemetry, view.telemetry.series(name)
    suspects = {suspicion.node for suspicion in view.look.suspicions}
    peers = peers_of(view, node) if node else list(telemetry.nodes)
    rows = [row for row, peer in enumerate(telemetry.nodes) if peer in set(peers) - suspects]
    low, middle, high = _percentiles(_thin(values[rows]))
    return _Course(
        times=_thin(telemetry.times[None, :].astype(np.float64))[0],
        low=low,
        middle=middle,
        high=high,
        node=_thin(values[[telemetry.nodes.index(node)]])[0] if node else None,
    )


def _thin(values: Floats | Floats32) -> Floats:
    """Reduce rows to at most so many points: means of adjacent values that are known."""
    step = -(-values.shape[1] // DOTS)
    points = -(-values.shape[1] // step)
    padded = np.full((len(values), points * step), np.nan)
    padded[:, : values.shape[1]] = values
    blocks = padded.reshape(len(values), points, step)
    finite = np.isfinite(blocks)
    counts = finite.sum(axis=2)
    sums = np.where(finite, blocks, 0).sum(axis=2)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _percentiles(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the lower bound, the median and the upper bound of each column; NaN if nothing was
    reported."""
    bounds = np.full((3, values.shape[1]), np.nan)
    seen: Flags = np.asarray(np.isfinite(values).any(axis=0))
    if seen.any():
        bounds[:, seen] = np.nanpercentile(values[:, seen], (BAND[0], 50.0, BAND[1]), axis=0)
    return bounds[0], bounds[1], bounds[2]


# --- drawing -------------------------------------------------------------------------------


def _chart(metric: WatchedMetric, course: _Course, size: tuple[float, float]) -> Chart:
    width, height = size
    begin, end = float(course.times[0]), float(course.times[-1])
    return Chart(
        width=width,
        height=height,
        across=Axis(
            title="time (UTC)",
            begin=begin,
            end=max(end, begin + 1),
            spelled=_minute,
            marks=tuple(_marks(begin, end)),
        ),
        up=_up(metric, course),
    )


def _up(metric: WatchedMetric, course: _Course) -> Axis:
    """Return the axis of a metric, from zero if the metric begins there: noise that fills the
    picture says nothing."""
    lines = [course.low, course.high, *([course.node] if course.node is not None else [])]
    values = np.concatenate([line[np.isfinite(line)] for line in lines])
    top = float(values.max(initial=0.0))
    bottom = float(values.min(initial=0.0)) if metric.low is None else metric.low
    end = whole_steps(top - bottom) if top > bottom else 1.0
    if metric.high is not None and metric.low is not None:
        end = min(end, metric.high - metric.low)
    return Axis(
        title=metric.unit,
        begin=bottom,
        end=bottom + end,
        spelled=lambda value: amount(value, metric.unit).removesuffix(metric.unit).strip(),
    )


def _marks(begin: float, end: float) -> Iterator[float]:
    step = next((step for step in STEPS_S if (end - begin) / step <= TICKS), STEPS_S[-1])
    at = -(-begin // step) * step
    while at <= end:
        yield at
        at += step


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M" if at % 60 == 0 else "%H:%M:%S")


def _draw_band(chart: Chart, canvas: Element, course: _Course) -> None:
    for low, high in zip(
        _stretches(course.times, course.low), _stretches(course.times, course.high), strict=True
    ):
        corners = [*high, *reversed(low)]
        places = " ".join(f"{number(chart.x(x))},{number(chart.y(y))}" for x, y in corners)
        add(canvas, "polygon", class_="band", points=places)


def _mark_window(view: LookView, chart: Chart, canvas: Element) -> None:
    """Shade the time before the window that this look judged; a recording may go further back."""
    if view.look.start > chart.across.begin:
        _area(chart, canvas, chart.across.begin, view.look.start, "before")


def _mark_moment(
    view: LookView, chart: Chart, canvas: Element, name: str, suspicion: Suspicion
) -> None:
    """Mark the time since which the node is apart from its peers in this metric."""
    for deviation in suspicion.deviations:
        if deviation.metric == name:
            at = max(deviation.since, chart.across.begin)
            _area(chart, canvas, at, min(deviation.until, chart.across.end), "apart")
            ends = [(at, chart.up.begin), (at, chart.up.end)]
            chart.line(canvas, ends, "moment")


def _area(chart: Chart, canvas: Element, begin: float, end: float, kind: str) -> None:
    top, bottom = chart.y(chart.up.end), chart.y(chart.up.begin)
    add(
        canvas,
        "rect",
        class_=kind,
        x=chart.x(begin),
        y=top,
        width=max(0.0, chart.x(end) - chart.x(begin)),
        height=bottom - top,
    )


def _stretches(times: Floats, values: Floats) -> list[Points]:
    """Split a line at its gaps: nothing is drawn if nothing is known."""
    finite = np.isfinite(values)
    ends = np.flatnonzero(np.diff(np.concatenate(([0], finite.astype(np.int8), [0]))))
    stretches: list[Points] = []
    for first, last in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
        pairs: Sequence[tuple[float, float]] = list(
            zip(times[first:last].tolist(), values[first:last].tolist(), strict=True)
        )
        stretches.append(pairs)
    return stretches


PICTURED = 6  # suspects; of more only the table


@dataclass(frozen=True, kw_only=True)
class SuspectSection:
    node: str
    since: str
    peers: int
    rule: str
    rows: list[list[str]]
    sentences: list[str]
    pictures: list[NodePicture]


@dataclass(frozen=True, kw_only=True)
class LookSection:
    job: str
    cluster: str
    headline: str
    answer: LookAnswer
    span: str
    nodes: int
    judged: Sequence[str]
    suspects: list[SuspectSection]
    begins_late: bool  # the pictures show more than was judged
    pictures: list[NodePicture]  # of the job, if no node differs
    anomalies: list[str]
    unjudged: list[str]
    remarks: Sequence[str]
    steps: list[str]
    learned_from: str


def render(views: Sequence[LookView]) -> str:
    sections = [_section(view) for view in views]
    return page(
        "watch",
        looks=sections,
        title=unbroken(sections[0].headline) if len(sections) == 1 else "Looks",
    )


def _section(view: LookView) -> LookSection:
    look = view.look
    return LookSection(
        job=look.job,
        cluster=view.cluster,
        headline=headline(view),
        answer=view.conclusion.answer,
        span=f"{clock(look.start)} to {clock(look.end)}",
        nodes=len(look.nodes),
        judged=look.judged,
        suspects=[
            _suspect(view, suspicion, place) for place, suspicion in enumerate(look.suspicions)
        ],
        begins_late=look.start > view.telemetry.start,
        pictures=[] if look.suspicions else pictures_of_job(view),
        anomalies=[odd(anomaly) for anomaly in look.anomalies],
        unjudged=list(unjudged_reasons(view)),
        remarks=view.remarks,
        steps=next_steps(view),
        learned_from=view.learned_from,
    )


def _suspect(view: LookView, suspicion: Suspicion, place: int) -> SuspectSection:
    return SuspectSection(
        node=suspicion.node,
        since=clock(suspicion.since),
        peers=len(peers_of(view, suspicion.node)),
        rule=RULES[suspicion.deviations[0].sign],
        rows=[
            [deviation.metric, *deviation_cells(view, deviation)]
            for deviation in suspicion.deviations
        ],
        sentences=[
            sentence
            for sentence in (mix_sentence(suspicion), confidence_sentence(view, suspicion))
            if sentence
        ],
        pictures=pictures_of_node(view, suspicion) if place < PICTURED else [],
    )
