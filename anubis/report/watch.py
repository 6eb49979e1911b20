"""A look at a running job: the first line says what matters, then the evidence and how sure it is.

The nodes that it names are suspected, and nothing more: a test says whether a node is bad.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from anubis.core.keep.suspicions import HitRate
from anubis.core.watch.findings import (
    Anomaly,
    AnomalyKind,
    Deviation,
    Look,
    LookAnswer,
    LookConclusion,
    Sign,
    Suspicion,
    conclude,
)
from anubis.core.watch.telemetry import Telemetry, WatchedMetric
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.text.wording import kinds, quantity, short_node_list, time_span

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


ANOMALIES = 8  # that a terminal lists
LEAST_PEERS = 4  # nodes of a group that is compared by itself
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SCALED = ("B", "B/s", "packets/s")
FIGURE_AND_UNIT = re.compile(r"(\d) (%|[kMGT]?(?:B/s|B|packets/s)|W|C|MHz)(?!\w)")
RULES = {
    Sign.CONTRAST: "left its peers by more than is usual in this job",
    Sign.UNLIKE_PEERS: "denoised windows lie apart from those of its peers",
    Sign.OUTLIER: "beyond mean + 2 deviations of its peers for ten minutes",
    Sign.VANISHED: "reports no more, while its peers do",
}


@dataclass(frozen=True, kw_only=True)
class LookView:
    look: Look
    telemetry: Telemetry
    continuity_s: float
    cluster: str = ""
    remarks: tuple[str, ...] = ()  # on the telemetry
    rates: Mapping[str, HitRate] = field(default_factory=dict)  # by suspect: what came of earlier
    learned_from: str = ""  # what the watch model learned from, in a sentence

    @cached_property
    def conclusion(self) -> LookConclusion:
        return conclude(self.look, self.telemetry, continuity_s=self.continuity_s)

    @cached_property
    def metrics(self) -> Mapping[str, WatchedMetric]:
        return {metric.name: metric for metric in self.telemetry.metrics}

    @property
    def job(self) -> str:
        return f"job {self.look.job}" if self.look.job else "this job"


# --- sentences -----------------------------------------------------------------------------


def headline(view: LookView) -> str:
    look, conclusion = view.look, view.conclusion
    minutes = time_span(look.end - look.start)
    judged = _count_of(len(look.judged), len(look.judged) + len(look.unjudged), "metric")
    if conclusion.answer is LookAnswer.NO_NODE:
        return (
            f"{view.job}: nothing unlike its peers in {minutes} on {judged} of "
            f"{quantity(len(look.nodes), 'node')}"
        )
    if conclusion.answer is LookAnswer.UNKNOWN and conclusion.unseen:
        seen = len(look.nodes) - len(conclusion.unseen)
        return (
            f"{view.job}: cannot say of {short_node_list(conclusion.unseen)}, which reported"
            f" nothing; nothing unlike its peers in {minutes} on {judged} of the other "
            f"{quantity(seen, 'node')}"
        )
    if conclusion.answer is LookAnswer.UNKNOWN:
        return f"{view.job}: cannot say: {conclusion.why}"
    if len(look.suspicions) == 1:
        return f"{view.job}: {_describe_suspicion(view, look.suspicions[0])}; no other node"
    suspects = [suspicion.node for suspicion in look.suspicions]
    first = min(suspicion.since for suspicion in look.suspicions)
    return (
        f"{view.job}: {len(suspects)} of {len(look.nodes):,} nodes are unlike their peers, the "
        f"first since {clock(first)}: {short_node_list(suspects)}"
    )


def _describe_suspicion(view: LookView, suspicion: Suspicion) -> str:
    first = suspicion.deviations[0]
    peers = len(peers_of(view, suspicion.node))
    since = clock(suspicion.since)
    if first.sign is Sign.VANISHED:
        return (
            f"{suspicion.node} reports no {first.metric} since {since}, while its "
            f"{peers:,} peers do"
        )
    value, of_peers = _amounts(view, first)
    return (
        f"{suspicion.node} is unlike its {peers:,} peers since {since} "
        f"({first.metric} {value}, peers {of_peers})"
    )


def peers_of(view: LookView, node: str) -> list[str]:
    """List the nodes with which a node is compared: those of its group if they are enough to
    tell."""
    nodes, groups = view.telemetry.nodes, view.telemetry.groups
    labels = dict(zip(nodes, groups or [""] * len(nodes), strict=True))
    group = [name for name in nodes if labels[name] == labels[node]]
    peers = group if len(group) >= LEAST_PEERS else nodes
    return [name for name in peers if name != node]


def mix_sentence(suspicion: Suspicion) -> str:
    """Return how often each kind of fault shows like this; empty if none is likely."""
    listed = kinds(suspicion.mix)
    return listed and (
        f"usual causes: {listed} (kinds of faults by a published table of one "
        "company's jobs: a hint where to look, no finding)"
    )


def confidence_sentence(view: LookView, suspicion: Suspicion) -> str:
    rate = view.rates.get(suspicion.node, HitRate())
    total = rate.hits + rate.misses
    if not total:
        return (
            f"how sure: {suspicion.confidence:.0%}, by no experience: no suspicion of this kind "
            "has been tested at this site yet"
        )
    return (
        f"how sure: {suspicion.confidence:.0%}, as tests confirmed {rate.hits:,} of {total:,} "
        "suspicions of this kind at this site"
    )


def next_steps(view: LookView) -> list[str]:
    """List commands that turn a suspicion into a verdict."""
    if not view.look.suspicions:
        return []
    nodes = short_node_list([suspicion.node for suspicion in view.look.suspicions])
    cluster = f" --cluster {view.cluster}" if view.cluster else ""
    kind = next(iter(view.look.suspicions[0].mix), "")
    category = f" --category {kind}" if kind else ""
    return [
        f"anubis validate '{nodes}'{cluster}",
        f"anubis tell suspicion-raised '{nodes}'{category} --source watch{cluster}",
    ]


def unjudged_reasons(view: LookView) -> Iterator[str]:
    """Yield each reason with the metrics that were not judged because of it."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in view.look.unjudged.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"{', '.join(names)}: {reason}"


def odd(anomaly: Anomaly) -> str:
    subject = f"{anomaly.node}: " if anomaly.node else ""
    return f"{clock(anomaly.since)}  {subject}{anomaly.sentence}"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


def amount(value: float, unit: str) -> str:
    """Format three digits with the unit; a dash if nothing was reported."""
    return _scaled_amount(value, unit, _scale([abs(value)], unit))


def amounts(value: float, beside: float, unit: str) -> tuple[str, str]:
    """Format two amounts that are compared, both in the same unit."""
    sizes = sorted(abs(size) for size in (value, beside) if math.isfinite(size) and size)
    scale = _scale(sizes, unit)
    return _scaled_amount(value, unit, scale), _scaled_amount(beside, unit, scale)


def _scale(sizes: Sequence[float], unit: str) -> tuple[float, str]:
    """Return the prefix in which the largest has three digits, or six if the smallest would be
    nearly nothing in it."""
    fitting = [scale for scale in PREFIXES if unit in SCALED and sizes and sizes[-1] >= scale[0]]
    ladder = [*fitting, (1.0, "")]
    return ladder[1] if fitting and sizes[0] < 0.1 * ladder[0][0] else ladder[0]


def _scaled_amount(value: float, unit: str, scale: tuple[float, str]) -> str:
    if not math.isfinite(value):
        return "-"
    size, prefix = scale
    scaled = value / size
    digits = 0 if abs(scaled) >= 100 or scaled == round(scaled) else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{digits}f} {prefix}{unit}"


def _amounts(view: LookView, deviation: Deviation) -> tuple[str, str]:
    """Return the value of a node, and that of its peers."""
    metric = view.metrics.get(deviation.metric)
    return amounts(deviation.value, deviation.peers, metric.unit if metric else "")


def _count_of(some: int, total: int, noun: str) -> str:
    return quantity(some, noun) if some == total else f"{some:,} of {total:,} {noun}s"


# --- on a terminal -------------------------------------------------------------------------


def show(view: LookView, console: Console) -> None:
    for line in _wrap(headline(view), console):
        console.print(line, markup=False, style="bold" if view.look.suspicions else "")
    for suspicion in view.look.suspicions:
        console.print()
        minutes = time_span(view.look.end - suspicion.since)
        console.print(f"{suspicion.node}, for {minutes} now", markup=False, style="bold")
        console.print(deviation_table(view, suspicion))
        console.print("apart: as a share of the metric's range", style="dim", highlight=False)
        for sentence in (mix_sentence(suspicion), confidence_sentence(view, suspicion)):
            _print(console, sentence)
    _print_list(
        console, "odd, and no suspicion:", [odd(anomaly) for anomaly in view.look.anomalies]
    )
    if view.look.judged:  # else it is the first line
        _print_list(console, "not judged:", list(unjudged_reasons(view)))
    _print_list(console, "about the telemetry:", list(view.remarks))
    if steps := next_steps(view):
        console.print("\nwhat next: only a test says whether the node is bad")
        for step, about in zip(steps, ("test it now", "or let the keeper do it"), strict=True):
            console.print(f"  {about}:", markup=False)
            console.print(f"    {step}", markup=False, soft_wrap=True)


def deviation_table(view: LookView, suspicion: Suspicion) -> Table:
    figures = ("node", "peers", "apart", "since")
    metrics = [deviation.metric for deviation in suspicion.deviations]
    rows = table("metric", figures=figures, gap=2, names=metrics)
    for deviation in suspicion.deviations:
        add_row(rows, deviation.metric, *deviation_cells(view, deviation))
    return rows


def deviation_cells(view: LookView, deviation: Deviation) -> list[str]:
    """Return value, peers, distance as a share of the range, and begin of a deviation."""
    apart = f"{deviation.effect:.0%}" if deviation.sign is not Sign.VANISHED else "silent"
    return [
        *_amounts(view, deviation),
        apart,
        clock(deviation.since),
    ]


def _print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    console.print(f"\n{title}", markup=False)
    for line in lines[:ANOMALIES]:
        _print(console, line, indent="  ")
    if len(lines) > ANOMALIES:
        console.print(f"  and {len(lines) - ANOMALIES:,} more: --json and --html have all")


def _print(console: Console, sentence: str, indent: str = "") -> None:
    for line in _wrap(sentence, console, indent):
        console.print(line, markup=False, highlight=False)


def unbroken(sentence: str) -> str:
    """Put spaces that do not end a line between figures and their units."""
    return FIGURE_AND_UNIT.sub("\\1\u00a0\\2", sentence)


def _wrap(sentence: str, console: Console, indent: str = "") -> list[str]:
    """Wrap a sentence; a figure and its unit stay on one line."""
    lines = textwrap.wrap(
        unbroken(sentence),
        min(79, console.width),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


# --- for programs --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DeviationFields:
    sign: Sign
    """The rule that showed that the node is unlike its peers."""
    metric: str
    unit: str
    family: str
    """What it measures: cpu, gpu, pfc, throughput, disk or memory."""
    since: float
    until: float
    value: float | None
    """The node's median since then; null: it reported nothing."""
    peers: float | None
    """The median of its peers."""
    effect: float
    """How far apart they are, as a share of the metric's range."""
    score: float
    threshold: float
    """The threshold that `score` had to exceed; 0 if no score named the node."""


@dataclass(frozen=True, kw_only=True)
class SuspicionLine:
    cluster: str
    job: str
    node: str
    since: float
    """When it left its peers, in seconds since 1970."""
    confidence: float
    """The share of earlier suspicions of this source that were right at this site; 0.5 if there
    were none."""
    hits: int
    """Earlier suspicions that a test confirmed."""
    misses: int
    """Earlier suspicions that a test refuted."""
    mix: Mapping[str, float]
    """How likely each category of faults is, by a published table."""
    deviations: Sequence[DeviationFields]
    """The one that named it first."""


@dataclass(frozen=True, kw_only=True)
class AnomalyLine:
    cluster: str
    job: str
    node: str | None
    """null: the whole job."""
    kind: AnomalyKind
    metric: str | None
    since: float
    until: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class LookLine:
    cluster: str
    job: str
    answer: LookAnswer
    """The exit code follows it: 1 if a node is named, 0 if none is, 2 if unknown."""
    headline: str
    """The first line of the terminal."""
    nodes: int
    suspects: Sequence[str]
    unseen: Sequence[str]
    """Nodes that reported nothing of what was judged."""
    start: float
    end: float
    judged: Sequence[str]
    """Metrics, in the order in which they were asked."""
    unjudged: Mapping[str, str]
    """Metrics, and why not."""
    remarks: Sequence[str]
    """Remarks on the telemetry."""


def lines(view: LookView) -> Iterator[str]:
    """Yield a line for each suspicion and each anomaly, then the look."""
    for suspicion in view.look.suspicions:
        yield json_line("suspicion", _suspicion_fields(view, suspicion))
    for anomaly in view.look.anomalies:
        yield json_line("anomaly", _anomaly_fields(view, anomaly))
    yield json_line("look", _look_fields(view))


def _suspicion_fields(view: LookView, suspicion: Suspicion) -> SuspicionLine:
    rate = view.rates.get(suspicion.node, HitRate())
    return SuspicionLine(
        cluster=view.cluster,
        job=view.look.job,
        node=suspicion.node,
        since=suspicion.since,
        confidence=suspicion.confidence,
        hits=rate.hits,
        misses=rate.misses,
        mix=suspicion.mix,
        deviations=[_deviation_fields(view, deviation) for deviation in suspicion.deviations],
    )


def _deviation_fields(view: LookView, deviation: Deviation) -> DeviationFields:
    metric = view.metrics.get(deviation.metric)
    return DeviationFields(
        sign=deviation.sign,
        metric=deviation.metric,
        unit=metric.unit if metric else "",
        family=deviation.family,
        since=deviation.since,
        until=deviation.until,
        value=deviation.value,
        peers=deviation.peers,
        effect=deviation.effect,
        score=deviation.score,
        threshold=deviation.threshold,
    )


def _anomaly_fields(view: LookView, anomaly: Anomaly) -> AnomalyLine:
    return AnomalyLine(
        cluster=view.cluster,
        job=view.look.job,
        node=anomaly.node or None,
        kind=anomaly.kind,
        metric=anomaly.metric or None,
        since=anomaly.since,
        until=anomaly.until,
        sentence=anomaly.sentence,
    )


def _look_fields(view: LookView) -> LookLine:
    look = view.look
    return LookLine(
        cluster=view.cluster,
        job=look.job,
        answer=view.conclusion.answer,
        headline=headline(view),
        nodes=len(look.nodes),
        suspects=[suspicion.node for suspicion in look.suspicions],
        unseen=view.conclusion.unseen,
        start=look.start,
        end=look.end,
        judged=look.judged,
        unjudged=look.unjudged,
        remarks=view.remarks,
    )
