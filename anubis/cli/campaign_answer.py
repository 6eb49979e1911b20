"""Write a verb's answer to stdout, as tables or JSON Lines, and its HTML report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from anubis.cli import answer, nagios
from anubis.cli.answer import write_junit, write_page
from anubis.cli.options import AnswerForms
from anubis.core.campaign.planning import Estimate
from anubis.core.fabric import Fabric
from anubis.core.network.coverage import Coverage
from anubis.core.network.pairing import Purpose
from anubis.core.network.sharing import shares_between_pods
from anubis.core.records import Judgement, Plan, PlannedEntry
from anubis.operations.campaigns import PlannedCampaign
from anubis.reach.executors.programs import spell
from anubis.report import campaign_page as html_report
from anubis.report import campaign_screen, jsonl
from anubis.report import coverage as coverage_report
from anubis.report.jsonl import phase_fields
from anubis.report.view import CampaignView
from anubis.text.wording import quantity, short_node_list, time_span

if TYPE_CHECKING:
    from rich.table import Table

MOST_LINKS = 8  # named in a list
PAIR_TESTS = {
    "pairs": ", pairs",
    "batches": ", groups side by side",
    "quick": ", quick",
    "covering": ", quick and covering",
    "parts": ", parts",
    "across": ", pairs across parts",
}


def campaign(view: CampaignView, *, as_json: bool) -> None:
    if as_json:
        answer.write_lines(jsonl.lines(view))
    else:
        from anubis.cli.screen import Screen

        console = Screen(highlight=True)
        campaign_screen.render(view, console)
        for note in _notes(view):
            console.print(f"\n{note}", markup=False, highlight=False)


def answer_with(view: CampaignView, forms: AnswerForms) -> NoReturn:
    """Write a past campaign as the whole answer, and exit with its judgement."""
    try:
        if not forms.nagios:
            campaign(view, as_json=forms.json)
    finally:  # the files are written even if nobody reads stdout any more
        write_files(view, forms)
    sys.exit(exit_code(view, forms))


def write_files(view: CampaignView, forms: AnswerForms) -> None:
    if forms.html:
        write_html(view, forms.html)
    if forms.junit:
        from anubis.report import junit

        write_junit(view.campaign.plan.suite, junit.suites_of(view), forms.junit)


def exit_code(view: CampaignView, forms: AnswerForms) -> int:
    """Exit code of a campaign; for monitoring also write its line."""
    assessment = view.assessment
    if forms.nagios:
        bad = assessment.named(Judgement.DEFECTIVE)
        named = f", defective: {short_node_list(bad)}" if bad else ""
        text = f"{view.headline.replace(' · ', ', ')}{named} (campaign {view.campaign.id})"
        kind, figures = str(view.campaign.kind), nagios.counts(assessment)
        return nagios.tell(kind, assessment.judgement, text, figures)
    return answer.EXIT_CODES[assessment.judgement]


def write_html(view: CampaignView, path: Path) -> None:
    write_page(html_report.render(view), path)


def plan(campaign: PlannedCampaign, *, as_json: bool) -> None:
    """Write what would run, with its time and node-hours, phase by phase."""
    planned, costs = campaign.plan, campaign.costs
    if as_json:
        for phase, cost in zip(planned.phases, costs, strict=True):
            answer.write_json("phase", phase_fields(phase, cost))
        return
    console = answer.screen()
    nodes = quantity(len(planned.nodes), "node")
    total_s = time_span(sum(cost.duration_s for cost in costs))
    hours = sum(cost.node_hours for cost in costs)
    console.print(f"suite {planned.suite} on {nodes}: about {total_s}, {hours:,.2f} node-hours\n")
    console.print(_phase_table(planned, costs))
    if planned.left_out:
        console.print()
    for sentence in planned.left_out:
        console.print(f"left out: {sentence}", markup=False)


def _phase_table(planned: Plan, costs: Sequence[Estimate]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase, benchmark", no_wrap=True)
    table.add_column("parameters", overflow="fold")
    for heading in ("repeats", "steps", "time", "node-hours"):
        table.add_column(heading, justify="right", no_wrap=True)
    for phase, cost in zip(planned.phases, costs, strict=True):
        totals = (f"{cost.steps:,}", time_span(cost.duration_s), f"{cost.node_hours:,.2f}")
        table.add_row(phase.name, "", "", *totals, style="bold")
        for entry in phase.entries:
            pair_test = PAIR_TESTS.get(entry.groups, "") if entry.scope != "node" else ""
            label = f"  {entry.workload}{pair_test}"
            table.add_row(
                label, _chosen_parameters(planned, entry).replace(",", ", "), str(entry.repeats)
            )
    return table


PURPOSES: dict[Purpose, str] = {
    "rails": "more, as rails are cabled differently",
    "normal": "more, as too few show what is normal",
    "cover": "more to cross every link",
}
REASONS = {
    "switches": "switches that no pair crosses",
    "left out": "links that these pairs leave out",
    "across rails": "links that only pairs across rails would cross (--cover)",
    "out of reach": "links that no path between these nodes uses",
    "seldom": "links crossed seldom",
    "missing": "uplinks that these switches lack and their sisters have",
}


def show_coverage(planned: PlannedCampaign, coverage: Coverage, *, as_json: bool) -> None:
    """Write which parts of the fabric the planned pairs cross, and which stay untested."""
    fabric, links = coverage.fabric, len(coverage.fabric.links)
    line = coverage_report.coverage_fields(coverage, planned.why_untested)
    if as_json:
        answer.write_json("coverage", line)
        return
    untested = coverage_report.untested_parts(coverage, planned.why_untested)
    rounds = quantity(coverage.rounds["distance"], "round")
    counts = [f"{quantity(coverage.pairs['distance'], 'pair')} in {rounds}"] + [
        f"{coverage.pairs[purpose]:,} {reason}"
        for purpose, reason in PURPOSES.items()
        if coverage.pairs.get(purpose)
    ]
    print(f"\nmeasured: {', '.join(counts)}")
    for phase, cost in zip(planned.plan.phases, planned.costs, strict=True):
        if phase.crosses_fabric and any(entry.scope != "node" for entry in phase.entries):
            print(
                f"turns: {_turns(planned.plan, fabric, cost)}{_alone_again(planned.plan, fabric)}"
            )
    print(
        f"crossed: {line.nics:,} NICs, "
        f"{line.switches:,} of {len(fabric.switches):,} switches, "
        f"{line.links:,} of {links:,} links between switches almost surely (95 % or more)"
    )
    if links:
        print(f"by tiers: {coverage_report.sentence(coverage)}")
    for label, parts in untested.items():
        if parts:
            reason = REASONS[label]
            more = f" and {len(parts) - MOST_LINKS:,} more" if len(parts) > MOST_LINKS else ""
            print(f"  {reason}: {', '.join(parts[:MOST_LINKS])}{more}")


def _turns(plan: Plan, fabric: Fabric, cost: Estimate) -> str:
    """Number of turns in which pairs run, and the bottleneck that needs so many."""
    bottleneck = cost.bottleneck
    if plan.non_blocking:
        return f"{cost.turns:,}, the least: pairs wait for no cable, as the fabric should not block"
    if bottleneck is None:
        least = f", at least {cost.fewest_turns:,}" if cost.fewest_turns else ""
        return f"{cost.turns:,}{least}, as pairs that may take the same cable wait for each other"
    cables = f"which of its {bottleneck.cables} cables each takes"
    why = f", as {cables} is unknown" if bottleneck.cables > 1 else " by its only cable"
    return (
        f"{cost.turns:,}, at least {bottleneck.fewest_turns:,}: {bottleneck.pairs:,} pairs cross "
        f"{fabric.name(bottleneck.leaf)}, {bottleneck.at_once} at a time{why}"
    )


def _alone_again(plan: Plan, fabric: Fabric) -> str:
    """A clause on the time that pairs may take beyond the plan on a healthy fabric: 17 minutes
    instead of 14, of 128 nodes in four pods. Between two tiers it was nothing."""
    if plan.non_blocking or not shares_between_pods(fabric):
        return ""
    return "; up to half as long again for pairs that shared a cable by chance and repeat alone"


def _chosen_parameters(planned: Plan, entry: PlannedEntry) -> str:
    """Parameters that differ from the program's own defaults."""
    defaults = {
        parameter.name: parameter.default for parameter in planned.spec(entry.workload).parameters
    }
    arguments = entry.workload.arguments.items()
    return " ".join(f"{name}={spell(v)}" for name, v in arguments if v != defaults.get(name))


def _notes(view: CampaignView) -> list[str]:
    """Notes that a reader needs to read the table rightly."""
    notes = [f"left out: {sentence}" for sentence in view.campaign.plan.left_out]
    if view.caveat:
        notes.append(f"{view.caveat}.")
    return notes
