"""Criteria, and the changes between two sets of them, as tables and as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from typing_extensions import TypedDict

from anubis.core.judge.calibration import FEWEST
from anubis.core.judge.comparison import CriterionChange, Move, NodeChange, Value, VerdictChange
from anubis.core.records import (
    CriteriaSet,
    Criterion,
    CriterionKey,
    Judgement,
    MetricAlpha,
    ParameterValue,
)
from anubis.report.json import json_line
from anubis.report.metric_rows import benchmark_labels, reservation
from anubis.report.screen_tables import add_row, table
from anubis.text.hostlist import shorten
from anubis.text.wording import figure, quantity, share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


LISTED = 40  # changed nodes or verdicts that are listed on a terminal; --json has all
SHARES = (
    *("alpha", "proposed_alpha", "typical_alpha", "siblings_alpha", "doubt_alpha", "tail"),
    *("shows", "stalls", "repeatability"),
)
HEALTHY = ("units", "healthy")  # one row of a table


# --- one set -------------------------------------------------------------------------------


def least_repeatable_first(criteria: Sequence[Criterion]) -> list[Criterion]:
    """Sort criteria; those without a repeatability come first."""
    return sorted(criteria, key=lambda c: -1.0 if c.repeatability is None else c.repeatability)


def alpha_source(criterion: Criterion) -> Literal["own", "policy"]:
    """Say which alpha the criterion judges by: the policy's, or the metric's own."""
    return "own" if criterion.alpha == criterion.proposed_alpha else "policy"


def show(criteria: CriteriaSet, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    ordered = least_repeatable_first(criteria.criteria)
    provenance = criteria.provenance
    versions = "".join(f", {name} {text}" for name, text in provenance.versions.items())
    refused = sum(bool(criterion.refusal) for criterion in ordered)
    kind = criteria.node_kind
    head = f"{criteria.sku}, suite {provenance.suite}: {_criteria(len(ordered))}"
    console.print(Text(f"{head}, {refused} of them refused", style="bold"))
    console.print(
        Text(
            f"learned {provenance.created_at} by anubis {provenance.anubis}, "
            f"digest {provenance.digest}{versions}\n",
            style="dim",
        )
    )
    if kind:
        members = f"{quantity(len(kind.nodes), 'node')}, {shorten(kind.nodes)}"
        console.print(Text(f"one of several kinds under sku {kind.sku}: {members}\n"))
    figures = ("repeat", "alpha", "proposed", "shows", "set aside")
    rows = table("benchmark, metric", "unit", figures=figures, gap=2)  # to fit into 80 columns
    called = benchmark_labels([criterion.key for criterion in ordered])
    notes: dict[str, int] = {}
    for criterion in ordered:
        mark, note = "", reservation(criterion)
        if criterion.refusal:
            note = f"not used for judging: {criterion.refusal}"
        if note:
            mark = f" ({notes.setdefault(note, len(notes) + 1)})"
        proposed = criterion.proposed_alpha
        too_loose = proposed is not None and proposed < criterion.alpha
        aside = criterion.units - criterion.healthy
        add_row(
            rows,
            f"{called[criterion.key]} {criterion.key.metric}{mark}",
            criterion.unit,
            share(criterion.repeatability),
            f"{share(criterion.alpha)}{' own' if alpha_source(criterion) == 'own' else ''}",
            Text(share(proposed), style="yellow" if too_loose else ""),
            _visible(criterion),
            f"{aside:,}/{criterion.units:,}",
        )
    console.print(rows)
    for sentence in _legend(ordered):
        console.print(Padding(Text(sentence, style="dim"), (0, 0, 0, 2)))
    for note, number in notes.items():
        console.print(Padding(Text(f"({number}) {note}"), (0, 0, 0, 2)))


def _visible(criterion: Criterion) -> str:
    """Format the smallest loss of all samples that shows, or the smallest share of stalls that
    shows."""
    if criterion.shows is None:
        return "-"
    stalls = criterion.stalls
    return (
        f"{criterion.shows:.1%}" if stalls is None else f"{100 * criterion.shows:.1f}/{stalls:.0%}"
    )


def _legend(criteria: Sequence[Criterion]) -> Iterator[str]:
    yield "repeat: how alike the healthy units are, 1 means equal; least repeatable first"
    yield "alpha: the limit in use, the policy's unless it is the metric's own; proposed: its own"
    yield (
        "shows: on nine nodes of ten is found a loss of all samples that large / that many samples "
        "that are half as good"
    )
    yield "set aside: units that learning left out because they differ, slower or faster"
    if any(c.units < FEWEST for c in criteria):
        yield (
            f"fewer than {FEWEST} units do not show how much healthy ones differ: there, a loss"
            " between alpha and the wider limit is unknown"
        )
    moderated = [c for c in criteria if c.earlier]
    if moderated:
        campaigns = quantity(max(c.earlier for c in moderated), "earlier campaign")
        metrics = quantity(len(moderated), "metric")
        yield f"the limits of {metrics} rest on up to {campaigns} as well"
    loose = [c for c in criteria if c.proposed_alpha is not None and c.proposed_alpha < c.alpha]
    if loose:
        yield (
            f"{quantity(len(loose), 'metric')} with a proposal below the applied limit: there, "
            "healthy units will be called defective more often than the policy's rate"
        )


@dataclass(frozen=True, kw_only=True)
class KeyFields:
    sku: str
    benchmark: str
    version: str
    parameters: Mapping[str, ParameterValue]
    metric: str
    device_kind: str


class SlowShareFields(TypedDict):
    times: float
    share: float


@dataclass(frozen=True, kw_only=True)
class CriterionLine:
    suite: str
    unit: str
    direction: Literal["higher", "lower", "either"]
    median: float
    """The median of the reference."""
    repeatability: float | None
    alpha: float
    proposed_alpha: float | None
    """The metric's own."""
    alpha_applied: Literal["own", "policy"]
    shows: float | None
    """The smallest loss of all samples that shows on nine nodes of ten."""
    stalls: float | None
    """The smallest share of samples half as good that shows on nine nodes of ten."""
    repeats_to_alpha: int | None
    """How many times as much would have to be measured for `alpha` to carry; 0: in vain."""
    tail: float | None
    typical_alpha: float | None
    siblings_alpha: float | None
    """The limit of a unit beside the others of its node; null: they are not compared."""
    doubt_alpha: float | None
    """Learned from fewer than 20 nodes: what is not above it, and within the limits, is unknown."""
    slow_steps: Sequence[SlowShareFields]
    """The usual share of steps that take so many times as long as usual or longer."""
    units: int
    healthy: int
    set_aside: int
    nodes: int
    earlier: int
    """Campaigns before, whose scatter its limits rest on too."""
    from_repeats: bool
    """Learned from the repeats of one machine."""
    refusal: str | None
    """Why it is not used."""


def show_lines(criteria: CriteriaSet) -> Iterator[str]:
    for criterion in least_repeatable_first(criteria.criteria):
        yield json_line(
            "criterion", _key(criterion.key), _fields(criterion, criteria.provenance.suite)
        )


def _fields(criterion: Criterion, suite: str) -> CriterionLine:
    return CriterionLine(
        suite=suite,
        unit=criterion.unit,
        direction=criterion.direction,
        median=float(np.median(criterion.reference)),
        repeatability=criterion.repeatability,
        alpha=criterion.alpha,
        proposed_alpha=criterion.proposed_alpha,
        alpha_applied=alpha_source(criterion),
        shows=criterion.shows,
        repeats_to_alpha=criterion.repeats,
        stalls=criterion.stalls,
        tail=criterion.tail,
        typical_alpha=criterion.typical_alpha,
        siblings_alpha=criterion.siblings_alpha,
        doubt_alpha=criterion.doubt_alpha,
        slow_steps=[
            {"times": share.times, "share": share.share}
            for share in (criterion.slow_steps.shares if criterion.slow_steps else ())
        ],
        units=criterion.units,
        healthy=criterion.healthy,
        set_aside=criterion.units - criterion.healthy,
        nodes=criterion.nodes,
        earlier=criterion.earlier,
        from_repeats=criterion.from_repeats,
        refusal=criterion.refusal or None,
    )


# --- two sets ------------------------------------------------------------------------------


def show_changes(changes: Sequence[CriterionChange], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not changes:
        console.print("nothing changed")
        return
    console.print(Text(f"{_criteria(len(changes))} changed\n", style="bold"))
    rows = table("benchmark, metric", figures=("A", "B", "change"))
    called = benchmark_labels([change.key for change in changes])
    notes: dict[str, int] = {}
    for change in changes:
        add_row(rows, f"{called[change.key]} {change.key.metric}")
        for aspect, *figures in _rows(change, notes):
            add_row(rows, f"  {aspect}", *figures)
    console.print(rows)
    for note, number in notes.items():
        console.print(Padding(Text(f"({number}) {note}"), (0, 0, 0, 2)))


def _rows(change: CriterionChange, notes: dict[str, int]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the table rows of a change; `notes` numbers sentences that fit in no column of
    figures."""
    old, new = change.before, change.after
    if old is None or new is None:
        yield change.kind, _median(old), _median(new), ""
        return
    if change.alike is not None:
        sizes = f"{old.reference.size:,} values", f"{new.reference.size:,} values"
        yield "reference", *sizes, f"{share(change.alike)} alike"
    for move in change.moves:
        if move.aspect == "refusal":
            yield "refused", _note_number(old.refusal, notes), _note_number(new.refusal, notes), ""
        elif move.aspect not in HEALTHY:
            before, after = spell(move.aspect, move.before), spell(move.aspect, move.after)
            yield move.aspect.replace("_", " "), before, after, _difference(move)
    if any(move.aspect in HEALTHY for move in change.moves):
        before, after = (
            f"{criterion.healthy:,} of {criterion.units:,}" for criterion in (old, new)
        )
        yield "healthy units", before, after, ""


def _note_number(sentence: str, notes: dict[str, int]) -> str:
    return f"({notes.setdefault(sentence, len(notes) + 1)})" if sentence else "no"


def _median(criterion: Criterion | None) -> str:
    if criterion is None:
        return "-"
    return f"{figure(float(np.median(criterion.reference)))} {criterion.unit}"


def spell(field: str, value: Value) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field in SHARES:
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else figure(value)


def _difference(move: Move) -> str:
    before, after = move.before, move.after
    if move.aspect == "median" and isinstance(before, float) and isinstance(after, float):
        return f"{after / before - 1:+.2%}"
    if isinstance(before, bool) or isinstance(after, bool):
        return ""
    if isinstance(before, int | float) and isinstance(after, int | float):
        return f"{after - before:+.4g}"
    return ""


def show_verdict_changes(
    campaign: str, nodes: Sequence[NodeChange], verdicts: Sequence[VerdictChange], console: Console
) -> None:
    from rich.text import Text

    head = f"\ncampaign {campaign}: the verdicts of {quantity(len(nodes), 'node')}"
    console.print(Text(f"{head} and {quantity(len(verdicts), 'part')} change", style="bold"))
    if nodes:
        rows = table("node", "by A", "by B", "why, by B")
        for change in nodes[:LISTED]:
            before, after = change.before.judgement, change.after
            add_row(rows, after.node, before.value, after.judgement.value, after.reason)
        _print_up_to(rows, len(nodes), console)
    if verdicts:
        rows = table("part", "by A", "by B", "benchmark, metric")
        for part in verdicts[:LISTED]:
            verdict = part.after
            name = f"{'+'.join(verdict.participants)} {verdict.device}"
            metric = f"{verdict.benchmark} {verdict.metric}"
            add_row(rows, name, part.before.judgement.value, verdict.judgement.value, metric)
        _print_up_to(rows, len(verdicts), console)


def _print_up_to(rows: Table, total: int, console: Console) -> None:
    console.print()
    console.print(rows)
    if total > LISTED:
        console.print(f"  and {total - LISTED:,} more: --json has all", highlight=False)


@dataclass(frozen=True, kw_only=True)
class CriterionChangeLine:
    change: str
    moved: Mapping[str, Sequence[str | float | None]]
    """What moved, from what to what."""
    reference_similarity: float | None
    """null: the references are the same."""


@dataclass(frozen=True, kw_only=True)
class NodeChangeLine:
    node: str
    before: Judgement
    after: Judgement
    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class VerdictChangeLine:
    participants: Sequence[str]
    device: str | None
    benchmark: str
    metric: str | None
    before: Judgement
    after: Judgement
    reason: str


@dataclass(frozen=True, kw_only=True)
class ChangesLine:
    criteria_moved: int
    campaign: str | None
    """The campaign whose verdicts were compared."""
    nodes_changed: int
    verdicts_changed: int


def change_lines(
    changes: Sequence[CriterionChange],
    nodes: Sequence[NodeChange],
    verdicts: Sequence[VerdictChange],
    campaign: str | None,
) -> Iterator[str]:
    for change in changes:
        yield json_line("criterion-change", _key(change.key), _criterion_change(change))
    for node in nodes:
        yield json_line("node-change", _node_change(node))
    for part in verdicts:
        yield json_line("verdict-change", _verdict_change(part))
    counts = ChangesLine(
        criteria_moved=len(changes),
        campaign=campaign,
        nodes_changed=len(nodes),
        verdicts_changed=len(verdicts),
    )
    yield json_line("changes", counts)


def _criterion_change(change: CriterionChange) -> CriterionChangeLine:
    return CriterionChangeLine(
        change=change.kind,
        moved={move.aspect: [move.before, move.after] for move in change.moves},
        reference_similarity=change.alike,
    )


def _node_change(change: NodeChange) -> NodeChangeLine:
    return NodeChangeLine(
        node=change.after.node,
        before=change.before.judgement,
        after=change.after.judgement,
        code=change.after.code,
        reason=change.after.reason,
    )


def _verdict_change(change: VerdictChange) -> VerdictChangeLine:
    verdict = change.after
    return VerdictChangeLine(
        participants=verdict.participants,
        device=verdict.device or None,
        benchmark=verdict.benchmark,
        metric=verdict.metric or None,
        before=change.before.judgement,
        after=verdict.judgement,
        reason=verdict.reason,
    )


def adoption_lines(rules: Iterable[MetricAlpha]) -> Iterator[str]:
    for rule in rules:
        yield json_line("adoption", rule)


# --- both ----------------------------------------------------------------------------------


def _key(key: CriterionKey) -> KeyFields:
    return KeyFields(
        sku=key.sku,
        benchmark=key.workload.benchmark,
        version=key.workload.version,
        parameters=key.workload.arguments,
        metric=key.metric,
        device_kind=key.device_kind,
    )


def _criteria(number: int) -> str:
    return quantity(number, "criterion", "criteria")
