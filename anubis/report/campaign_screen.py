"""A campaign on one screen: the headline, the nodes worst first, then the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anubis.core.records import Judgement, NodeVerdict, PartVerdict
from anubis.lab.simulation.reckoning import Reckoning
from anubis.report import coverage
from anubis.report.metric_rows import MetricRow, benchmark_labels, metric_rows
from anubis.report.screen_tables import add_row, table
from anubis.report.view import GLYPH, CampaignView, describe_kind, kinds_by_sku, kinds_sentence
from anubis.text.wording import figure, names, share, short_node_list, time_span

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SHOWN_WHOLE = 16  # fleets up to this size are shown whole
GROUPED = 5  # so many nodes that are not healthy are grouped by what is wrong with them
LISTED = 40  # nodes not healthy that are shown of a larger one
METRICS = 200  # metrics that are shown, those with most defects first

STYLE = {
    Judgement.HEALTHY: "green",
    Judgement.DEFECTIVE: "bold red",
    Judgement.UNKNOWN: "yellow",
    Judgement.NOT_APPLICABLE: "dim",
}


def render(view: CampaignView, console: Console) -> None:
    rows = metric_rows(view)
    console.print(_headline(view))
    _print_kinds(view, console)
    console.print()
    if view.network and (crossed := view.network.coverage):
        console.print(f"pairs crossed {coverage.sentence(crossed)}", highlight=False)
        if missing := coverage.missing(view.network.uncrossed):
            console.print(missing, highlight=False)
        console.print()
    if parts := view.assessment.parts:
        console.print(_part_table(parts[:LISTED]))
        if len(parts) > LISTED:
            console.print(f"  and {len(parts) - LISTED:,} more causes", highlight=False)
        console.print()
    _print_causes(view, console)
    _print_nodes(view, console)
    _print_instructions(view, console)
    if rows:
        console.print()
        _print_metrics(rows, console)
    if view.reckoning:
        console.print()
        _print_reckoning(view.reckoning, console)


def _headline(view: CampaignView) -> Text:
    from rich.text import Text

    campaign = view.campaign
    text = Text(view.headline, style="bold")
    for judgement in (Judgement.DEFECTIVE, Judgement.UNKNOWN):
        if view.assessment.named(judgement):
            text.highlight_regex(rf"[\d,]+ {judgement.value}", STYLE[judgement])
        if view.assessment.parts_named(judgement):
            text.highlight_regex(rf"{judgement.value}: [^·]+", STYLE[judgement])
    campaign_line = (
        f"\n{campaign.kind} {campaign.plan.suite} on cluster {campaign.cluster},"
        f" campaign {campaign.id}"
    )
    return text.append(f"{campaign_line}, {time_span(view.duration_s)}", style="not bold dim")


def _print_kinds(view: CampaignView, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for sku, of_sku in kinds_by_sku(view.kinds):
        console.print()
        console.print(Text(kinds_sentence(sku, of_sku)))
        for kind in of_sku:
            console.print(Padding(Text(describe_kind(kind)), (0, 0, 0, 2)))


def _print_nodes(view: CampaignView, console: Console) -> None:
    nodes = view.nodes_worst_first()
    listed = nodes
    if len(nodes) > SHOWN_WHOLE:
        listed = [node for node in nodes if node.judgement is not Judgement.HEALTHY][:LISTED]
    if listed:
        console.print(_node_table(listed))
    healthy = sum(node.judgement is Judgement.HEALTHY for node in nodes[len(listed) :])
    unlisted = len(nodes) - len(listed) - healthy
    if unlisted:
        console.print(f"  and {unlisted:,} more that are not healthy", highlight=False)
    if healthy:
        console.print(f"  {healthy:,} healthy nodes are not listed", highlight=False)


def _print_causes(view: CampaignView, console: Console) -> None:
    """Print how many nodes have the same fault, if some do."""
    causes = view.causes
    bad = sum(len(group.nodes) for group in causes)
    if bad < GROUPED or len(causes) == bad:
        return
    rows = table("nodes")
    rows.add_column("what is wrong with them", overflow="fold", ratio=3)
    rows.add_column("which", overflow="fold", ratio=2)
    for group in causes[:LISTED]:
        text = f"{GLYPH[group.judgement]} {group.cause}"
        add_row(rows, f"{len(group.nodes):,}", text, short_node_list(group.nodes))
    console.print(rows)
    console.print()


def _part_table(parts: Sequence[PartVerdict]) -> Table:
    """Return a table of parts at fault between the nodes, each with its worst flows."""
    from rich.text import Text

    rows = table()
    rows.add_column("network", no_wrap=True)
    rows.add_column("what is at fault, and its worst flows", overflow="fold", ratio=1)
    for part in parts:
        evidence = Text("".join(f"\n  {line}" for line in part.evidence), style="dim")
        verdict, why = _verdict_and_why(part)
        add_row(rows, verdict, why + evidence)
    return rows


def _node_table(nodes: list[NodeVerdict]) -> Table:
    rows = table()
    rows.add_column("node", overflow="fold", max_width=26)
    rows.add_column("verdict", no_wrap=True)
    rows.add_column("why", overflow="fold", ratio=1)
    for node in nodes:
        add_row(rows, node.node, *_verdict_and_why(node))
    return rows


def _print_instructions(view: CampaignView, console: Console) -> None:
    from rich.text import Text

    if instructions := view.instructions:
        console.print()
        rows = table()
        rows.add_column("what to do", overflow="fold", ratio=3)
        rows.add_column("about", overflow="fold", ratio=2)
        for instruction in instructions:
            add_row(rows, Text(instruction.action), short_node_list(instruction.subjects))
        console.print(rows)


def _verdict_and_why(verdict: NodeVerdict | PartVerdict) -> tuple[Text, Text]:
    from rich.text import Text

    judgement = verdict.judgement
    code = "" if judgement is Judgement.HEALTHY else f"{verdict.code}: "
    why = Text.assemble((code, "dim"), verdict.reason)
    return Text(f"{GLYPH[judgement]} {judgement.value}", style=STYLE[judgement]), why


def _print_metrics(rows: list[MetricRow], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    listed = rows[:METRICS]  # those with defects come first
    figures = ("median", "repeat", "alpha", "defective")
    lines = table("benchmark, metric", "unit", figures=figures, gap=2)  # to fit into 80 columns
    notes: dict[str, int] = {}
    for benchmark, metrics in _rows_by_benchmark(listed).items():
        add_row(lines, benchmark)
        for row in metrics:
            mark = f" ({notes.setdefault(row.note, len(notes) + 1)})" if row.note else ""
            add_row(lines, f"  {row.key.metric}{mark}", *_numbers(row))
    console.print(lines)
    if len(rows) > len(listed):
        unlisted = rows[len(listed) :]
        bad = sum(row.defective > 0 for row in unlisted)
        refused = sum(bool(row.refusal) for row in unlisted)
        console.print(
            f"  and {len(unlisted):,} more ({bad:,} with defects, {refused:,} not judged): "
            "--html has all",
            highlight=False,
        )
    if any(row.limit for row in listed):
        console.print(
            "  ≤, ≥, =: a limit set by the policy, whatever the fleet measures", style="dim"
        )
    console.print(
        "  median: of healthy units; repeat: how alike these are, 1 means equal", style="dim"
    )
    for note, number in notes.items():
        console.print(Padding(Text(f"({number}) {note}"), (0, 0, 0, 2)))


def _print_reckoning(reckoning: Reckoning, console: Console) -> None:
    console.print(f"This fleet is simulated. {reckoning.headline}", style="bold", highlight=False)
    if reckoning.planted:
        rows = table("planted on", "trouble", "")
        for planted in reckoning.planted[:LISTED]:
            add_row(rows, planted.subject, planted.trouble, planted.detected)
        console.print(rows)
    if len(reckoning.planted) > LISTED:
        console.print(f"  and {len(reckoning.planted) - LISTED:,} more", highlight=False)
    if blamed := reckoning.wrongly_blamed:
        console.print(f"  blamed though sound: {names(blamed)}", markup=False, highlight=False)


def _rows_by_benchmark(rows: list[MetricRow]) -> dict[str, list[MetricRow]]:
    called = benchmark_labels([row.key for row in rows])
    grouped: dict[str, list[MetricRow]] = {}
    for row in rows:
        grouped.setdefault(called[row.key], []).append(row)
    return grouped


def _numbers(row: MetricRow) -> Iterator[str | Text]:
    from rich.text import Text

    yield row.unit
    yield figure(row.median_of_healthy)
    yield share(row.criterion.repeatability if row.criterion else None)
    yield _bar(row)
    style = STYLE[Judgement.DEFECTIVE] if row.defective else ""
    yield Text(f"{row.defective:,}/{row.judged:,}", style=style)


def _bar(row: MetricRow) -> str:
    """Format what a unit must clear: alpha, or a limit that does not depend on other units."""
    if row.limit:
        return row.limit.symbols
    return share(row.criterion.alpha if row.criterion else None)
