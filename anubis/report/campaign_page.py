"""A campaign as one HTML file that needs nothing else: no network, no files beside it.

All text is escaped, because node names and reasons come from machines that may be sick. Only the
list of verdicts needs a script.

Of a distribution's curve the smallest and the largest sample are always kept, because defects live
in the tails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.equality import versions
from anubis.core.judge.units import latest_executions
from anubis.core.records import WORST_FIRST, Ended, Execution, Judgement, NodeVerdict, Samples
from anubis.core.text import escape
from anubis.report.metric_rows import MetricRow, benchmark_labels, metric_rows
from anubis.report.network_page import network_section
from anubis.report.page import NO_HARDWARE, page
from anubis.report.svg import Axis, Chart, Element, Points, add, serialize, title
from anubis.report.view import (
    GLYPH,
    PARTS_NAMED,
    CampaignView,
    describe_kind,
    kinds_by_sku,
    kinds_sentence,
)
from anubis.text import hostlist
from anubis.text.wording import share

POINTS = 32  # of a curve
REFERENCE_POINTS = 96  # finer than others: a metric has only three such curves
CURVES = {Judgement.HEALTHY: 24, Judgement.UNKNOWN: 12, Judgement.DEFECTIVE: 10}  # at most
WIDTH, HEIGHT = 500.0, 290.0  # pixels: two pictures fit side by side on a page
ROOM = 0.03  # at both ends: a curve on the frame itself is easily overlooked


@dataclass(frozen=True, kw_only=True)
class Distributions:
    row: MetricRow
    drawn: dict[Judgement, Ints]  # units, by their verdict

    @property
    def left_out(self) -> list[tuple[Judgement, int, int]]:
        """Judgements with units that are not drawn: how many are drawn, and how many there are."""
        counts = (
            (judgement, len(units), self.row.having(judgement).size)
            for judgement, units in self.drawn.items()
        )
        return [(judgement, drawn, total) for judgement, drawn, total in counts if drawn < total]

    @property
    def named(self) -> list[str]:
        """Names of the defective units, the worst first."""
        measured = self.row.measured
        several = len(set(measured.devices)) > 1
        return [
            ", ".join(measured.participants[i]) + f" {measured.devices[i]}" * several
            for i in self.drawn[Judgement.DEFECTIVE].tolist()
        ]


def distributions_of(row: MetricRow) -> Distributions:
    """Choose units to draw: the worst of the defective; of the others the slowest, the fastest and
    an even choice between."""
    drawn = {
        judgement: _spread(row, row.having(judgement), limit) for judgement, limit in CURVES.items()
    }
    defective = row.having(Judgement.DEFECTIVE)
    worst = np.argsort(row.similarities[defective], kind="stable")
    drawn[Judgement.DEFECTIVE] = defective[worst[: CURVES[Judgement.DEFECTIVE]]]
    return Distributions(row=row, drawn=drawn)


def picture_of(distributions: Distributions, label: str) -> str:
    row = distributions.row
    curves = {
        judgement: [_curve(row, i) for i in units.tolist()]
        for judgement, units in distributions.drawn.items()
    }
    bands = list(_bands(row))
    chart = _chart(row, [*bands, *(curve for alike in curves.values() for curve in alike)])
    canvas = chart.frame(label)
    for judgement in (Judgement.HEALTHY, Judgement.UNKNOWN):
        if curves[judgement]:
            chart.stairs(canvas, curves[judgement], f"curve {judgement.value}")
    if bands:
        edge, limit, reference = bands
        chart.stairs(canvas, [[*edge, *reversed(limit)]], "tolerated")
        chart.stairs(canvas, [reference], "curve reference")
    for curve, name in zip(curves[Judgement.DEFECTIVE], distributions.named, strict=True):
        title(chart.stairs(canvas, [curve], "curve defective"), name)
    _label(canvas, chart, curves[Judgement.DEFECTIVE], distributions.named)
    return serialize(canvas)


def steps(samples: Samples, points: int = POINTS) -> Points:
    """Return the empirical distribution: up at each kept sample, evenly by rank, ends included."""
    count = len(samples)
    kept = range(count) if count <= points else _ranks(count, points)
    curve, level = [(float(samples[0]), 0.0)], 0.0
    for rank in kept:
        curve.append((float(samples[rank]), level))
        level = (rank + 1) / count
        curve.append((float(samples[rank]), level))
    return curve


def _curve(row: MetricRow, unit: int) -> Points:
    return steps(np.sort(row.measured[unit].samples))


def _bands(row: MetricRow) -> Iterator[Points]:
    """Yield the reference and both edges of what is tolerated; nothing if there is no criterion."""
    criterion = row.criterion
    if criterion is None or not len(criterion.reference) or not criterion.alpha:
        return
    better, worse = {
        "higher": (1.0, criterion.alpha),
        "lower": (1.0, 1 / criterion.alpha),
        "either": (1 / criterion.alpha, criterion.alpha),
    }[row.direction]
    for scale in (better, worse, 1.0):
        yield steps(criterion.reference * scale, REFERENCE_POINTS)


def _chart(row: MetricRow, curves: Sequence[Points]) -> Chart:
    values = np.array([x for curve in curves for x, _ in curve] or [0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    room = (high - low) * ROOM or abs(high) * ROOM or 1.0
    better = "any change is worse" if row.direction == "either" else f"{row.direction} is better"
    across = Axis(
        title=f"{row.unit} ({better})", begin=low - room, end=high + room, spelled="{:,.6g}".format
    )
    up = Axis(title="samples at or below", end=1.0, spelled="{:.0%}".format)
    return Chart(width=WIDTH, height=HEIGHT, across=across, up=up)


def _label(canvas: Element, chart: Chart, curves: Sequence[Points], names: Sequence[str]) -> None:
    """Write names on their curves, each at its own height, on the side that has room."""
    for place, (curve, name) in enumerate(zip(curves, names, strict=True)):
        height = 0.9 - 0.8 * (place + 0.5) / len(curves)
        at = chart.x(next(x for x, level in curve if level >= height))
        left = at > WIDTH / 2
        kind = "named worst before" if left else "named worst"
        add(canvas, "text", name, class_=kind, x=at + (-6 if left else 6), y=chart.y(height))


def _spread(row: MetricRow, chosen: Ints, limit: int) -> Ints:
    if chosen.size <= limit:
        return chosen
    ordered = chosen[np.argsort(row.medians[chosen], kind="stable")]
    return ordered[_ranks(chosen.size, limit)]


def _ranks(count: int, points: int) -> list[int]:
    return [round(i * (count - 1) / (points - 1)) for i in range(points)]


LISTED = 10_000  # verdicts that travel in the page, the worst first; a browser copes with these
LARGE_TILES = 40  # fleets up to this size get tiles large enough for a name
NODES_LISTED = 200  # nodes not healthy that are listed one by one
FACT_VALUES = 4  # of a fact with more values than this only their number is shown


def render(view: CampaignView) -> str:
    rows = metric_rows(view)
    plots = [distributions_of(row) for row in rows if not row.is_fact]
    nodes = view.nodes_worst_first()
    return page(
        "report",
        view=view,
        campaign=view.campaign,
        simulated=NO_HARDWARE if view.campaign.is_in_memory else "",
        glyph=GLYPH,
        worst_first=WORST_FIRST,
        kinds=kinds_by_sku(view.kinds),
        kind_sentence=kinds_sentence,
        describe_kind=describe_kind,
        fleet=_fleet(view),
        few=LARGE_TILES,
        parts_named=PARTS_NAMED,
        not_healthy=[node for node in nodes if node.judgement is not Judgement.HEALTHY],
        nodes_listed=NODES_LISTED,
        rows=rows,
        labels=benchmark_labels([row.key for row in rows]),
        plots=plots,
        picture_of=picture_of,
        verdicts=_verdicts(view),
        network=network_section(view.network) if view.network else "",
        software=versions(view.executions, view.campaign.plan),
        healthy=hostlist.compress(view.assessment.named(Judgement.HEALTHY)),
        omissions=omissions(view.executions),
        facts=facts(view.executions),
        fact_values=FACT_VALUES,
    )


def _fleet(view: CampaignView) -> list[tuple[str, list[NodeVerdict]]]:
    """Group nodes by sku, in the order of the plan: neighbours in a rack stay neighbours here."""
    verdicts = {node.node: node for node in view.assessment.nodes}
    nodes = [node for node in view.campaign.plan.nodes if node.name in verdicts]
    nodes.sort(key=lambda node: node.sku)
    return [
        (sku, [verdicts[node.name] for node in group])
        for sku, group in groupby(nodes, key=lambda node: node.sku)
    ]


def _verdicts(view: CampaignView) -> dict[str, Any]:
    """Encode verdicts as rows of numbers into one list of words: a fleet repeats itself a lot."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(escape(text), len(words))

    rows = []
    for v in islice(view.assessment.verdicts(), LISTED):
        where = map(word, (", ".join(v.participants), v.benchmark, v.metric, v.device))
        why = map(word, (v.code, v.reason, share(v.similarity)))
        rows.append([*where, WORST_FIRST.index(v.judgement), *why])
    return {
        "words": list(words),
        "rows": rows,
        "judgements": [[j.value, GLYPH[j]] for j in WORST_FIRST],
        "total": len(view.assessment),
    }


# --- the circumstances of a campaign ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Omission:
    """Executions of one benchmark that left no samples, all for the same reason."""

    benchmark: str
    ended: Ended
    reason: str
    nodes: tuple[str, ...]
    executions: int


def omissions(executions: tuple[Execution, ...]) -> list[Omission]:
    """List what was not measured, most frequent first. A retried step counts by its last
    attempt."""
    alike: defaultdict[tuple[str, Ended, str], list[tuple[str, ...]]] = defaultdict(list)
    for execution in latest_executions(executions):
        if execution.ended is not Ended.MEASURED:
            reason = execution.reason or execution.result.not_applicable
            key = str(execution.step.workload), execution.ended, reason
            # a lost node takes the step down; its partners are not the ones to name
            alike[key].append(execution.lost or execution.step.participants)
    return [
        Omission(
            benchmark=benchmark,
            ended=ended,
            reason=reason,
            nodes=tuple(dict.fromkeys(chain.from_iterable(nodes))),
            executions=len(nodes),
        )
        for (benchmark, ended, reason), nodes in sorted(
            alike.items(), key=lambda item: -len(item[1])
        )
    ]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A fact that the programs reported: its values with their nodes, the most common first."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


def facts(executions: tuple[Execution, ...]) -> list[Fact]:
    reported: defaultdict[str, defaultdict[str, dict[str, None]]]
    reported = defaultdict(lambda: defaultdict(dict))
    for execution in executions:
        for name, value in _flat(execution.result.environment):
            # the program that writes the document runs on the first participant
            reported[name][value][execution.step.participants[0]] = None
    return [
        Fact(
            name=name,
            values=tuple(
                (value, tuple(nodes))
                for value, nodes in sorted(values.items(), key=lambda item: -len(item[1]))
            ),
        )
        for name, values in sorted(reported.items())
        if any(value not in nodes for value, nodes in values.items())  # not just its own name
    ]


def _flat(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}.")
        elif isinstance(inner, (list, tuple)):
            yield prefix + name, ", ".join(str(part) for part in inner)
        elif inner is not None:
            yield prefix + name, str(inner)
