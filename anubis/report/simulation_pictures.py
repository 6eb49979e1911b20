"""Pictures of a simulation: where the time of the nodes goes under each policy, and what a higher
p0 costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.lab.study.trials import SeedMean, Study, Trial, utilization_over_time
from anubis.report.svg import (
    Axis,
    Chart,
    Element,
    Points,
    add,
    round_down,
    round_up,
    serialize,
    title,
    whole_steps,
)

BINS = 90  # of the curves over time
BAR = 0.62  # of a row
SPENT = {
    "work": "work",
    "stalled_h": "stalled",
    "validation_h": "validation",
    "repair_h": "repair",
    "idle_h": "idle",
    "spare_h": "spare",
}
WIDE = Chart(
    width=960,
    height=330,
    across=Axis(title="", end=1.0, spelled="{:g}".format),
    up=Axis(title="at work", end=1.0, spelled="{:.0%}".format),
)
CARD = replace(WIDE, width=480, height=300)

Figures = Mapping[str, SeedMean]


@dataclass(frozen=True, kw_only=True)
class Picture:
    name: str
    about: str
    svg: str
    key: Sequence[tuple[str, str]] = ()  # how a line or a bar looks, and what it stands for
    wide: bool = False


def pictures(study: Study, tried: Sequence[float]) -> list[Picture]:
    """Return three pictures for every study, and the others if several p0 were tried."""
    estimates: dict[str, Figures]
    estimates = {p: study.estimates(study.trial(p)) for p in study.scenario.policies}
    drawn = [_utilization_picture(study), _time_picture(study, estimates), _mtbi_picture(estimates)]
    if len(tried) > 1:
        by_p0 = {p0: study.estimates(study.trial("selector", p0=p0)) for p0 in tried}
        drawn += [_work_by_p0(by_p0, estimates), _validation_by_p0(by_p0)]
    return drawn


def _utilization_picture(study: Study) -> Picture:
    days = (np.arange(BINS) + 0.5) * study.scenario.days / BINS
    chart = replace(WIDE, across=replace(WIDE.across, title="days", end=study.scenario.days))
    canvas = chart.frame("share of nodes at work over the days, a curve for each policy")
    for policy in study.scenario.policies:
        level = _mean_over_time(study, study.trial(policy))
        chart.line(canvas, list(zip(days.tolist(), level, strict=True)), f"curve {_look(policy)}")
    return Picture(
        name="Work over time",
        about="share of all nodes",
        svg=serialize(canvas),
        key=[(_look(policy), policy) for policy in study.scenario.policies],
        wide=True,
    )


def _mean_over_time(study: Study, trial: Trial) -> list[float]:
    """Mean utilization over the seeds."""
    curves = [utilization_over_time(run.outcome, BINS) for run in study.results(trial)]
    means: list[float] = np.mean(curves, axis=0).tolist()
    return means


def _time_picture(study: Study, estimates: Mapping[str, Figures]) -> Picture:
    chart = replace(CARD, across=replace(CARD.across, spelled="{:.0%}".format), up=_rows(estimates))
    canvas = chart.frame("shares of node time of each policy")
    spent = {name: words for name, words in SPENT.items() if is_spent(study, name)}
    for row, (policy, figures) in zip(chart.up.ticks, estimates.items(), strict=True):
        shares = {
            name: figures[name].mean / study.scenario.span_h for name in spent if name != "work"
        }
        shares = {"work": figures["utilization"].mean, **shares}
        before = 0.0
        for name, share in shares.items():
            bar = add(
                canvas,
                "rect",
                class_=f"spent {name}",
                x=chart.x(before),
                y=chart.y(row + BAR / 2),
                width=chart.x(before + share) - chart.x(before),
                height=chart.y(row - BAR / 2) - chart.y(row + BAR / 2),
            )
            title(bar, f"{policy}: {share:.1%} {SPENT[name]}")
            before += share
    return Picture(
        name="Node time",
        about="by what it was spent on",
        svg=serialize(canvas),
        key=[(f"spent {name}", words) for name, words in spent.items()],
    )


def is_spent(study: Study, name: str) -> bool:
    """Return whether nodes can spend time so: none stands still if each fault is known at once."""
    return name != "stalled_h" or study.scenario.response is not None


def _mtbi_picture(estimates: Mapping[str, Figures]) -> Picture:
    """Draw the mean time between incidents; a policy without an incident has none."""
    measured = {p: f["mtbi_h"] for p, f in estimates.items() if math.isfinite(f["mtbi_h"].mean)}
    means = [mtbi.mean for mtbi in measured.values()] or [1.0]
    begin, end = round_down(min(means) / 1.5), round_up(max(means) * 1.5)
    across = Axis(title="hours", begin=begin, end=end, spelled="{:,.6g}".format, logarithmic=True)
    chart = replace(CARD, across=across, up=_rows(measured))
    canvas = chart.frame("mean time between incidents of each policy")
    for row, (policy, mtbi) in zip(chart.up.ticks, measured.items(), strict=True):
        if math.isfinite(mtbi.margin):
            chart.line(
                canvas, [(max(begin, mtbi.low), row), (min(end, mtbi.high), row)], "interval"
            )
        chart.dot(canvas, (mtbi.mean, row), _look(policy))
        words = f"{mtbi.mean:,.1f} h"
        add(canvas, "text", words, x=chart.x(mtbi.mean), y=chart.y(row) - 13, class_="value")
    return Picture(
        name="Mean time between incidents",
        about="hours in service, a logarithmic axis",
        svg=serialize(canvas),
    )


def _work_by_p0(by_p0: Mapping[float, Figures], estimates: Mapping[str, Figures]) -> Picture:
    work = {p0: figures["utilization"] for p0, figures in by_p0.items()}
    levels = {
        p: estimates[p]["utilization"].mean for p in ("absence", "full set") if p in estimates
    }
    heights = [*levels.values(), *_ends(work.values())]
    low, high = min(heights), max(heights)
    room = (high - low) * 0.08 or 0.01
    up = Axis(
        title="at work",
        begin=max(0.0, low - room),
        end=min(1.0, high + room),
        spelled=lambda share: f"{100 * share:.4g}%",
    )
    chart = replace(CARD, across=_p0s(by_p0), up=up)
    canvas = chart.frame("work of the Selector by p0, and of two other policies")
    for policy, level in levels.items():
        ends = [(chart.across.begin, level), (chart.across.end, level)]
        chart.line(canvas, ends, f"curve {_look(policy)}")
    for p0, share in work.items():
        if math.isfinite(share.margin) and share.is_known:
            chart.line(canvas, [(p0, share.low), (p0, share.high)], "interval")
    _draw_dotted_line(chart, canvas, [(p0, share.mean) for p0, share in work.items()])
    return Picture(
        name="Work",
        about="by the risk that is accepted before a benchmark runs",
        svg=serialize(canvas),
        key=[(_look(policy), policy) for policy in ("selector", *levels)],
    )


def _validation_by_p0(by_p0: Mapping[float, Figures]) -> Picture:
    hours = [(p0, figures["validation_h"].mean) for p0, figures in by_p0.items()]
    end = whole_steps(max(spent for _, spent in hours) or 1.0)
    up = Axis(title="hours per node", end=end, spelled="{:.4g}".format)
    chart = replace(CARD, across=_p0s(by_p0), up=up)
    canvas = chart.frame("validation hours of the Selector by p0")
    _draw_dotted_line(chart, canvas, hours)
    return Picture(
        name="Validation",
        about="by the risk that is accepted before a benchmark runs",
        svg=serialize(canvas),
    )


def _draw_dotted_line(chart: Chart, canvas: Element, points: Points) -> None:
    chart.line(canvas, points, f"curve {_look('selector')}")
    for point in points:
        chart.dot(canvas, point, _look("selector"))


def _p0s(by_p0: Mapping[float, Figures]) -> Axis:
    low, high = min(by_p0), max(by_p0)
    return Axis(
        title="p0",
        begin=low,
        end=high,
        spelled="{:g}".format,
        logarithmic=low > 0,
        marks=tuple(by_p0) if len(by_p0) <= 8 else (),
    )


def _ends(values: Iterable[SeedMean]) -> Iterator[float]:
    for value in values:
        yield from (value.low, value.high) if math.isfinite(value.margin) else (value.mean,)


def _rows(named: Mapping[str, object]) -> Axis:
    """Return an axis with a row for each name, the first at the top."""
    places = [len(named) - 0.5 - i for i in range(len(named))]
    name_at = dict(zip(places, named, strict=True))
    return Axis(title="", end=max(1, len(named)), marks=places, spelled=name_at.__getitem__)


def _look(policy: str) -> str:
    return f"policy {policy.replace(' ', '-')}"
