"""`anubis import`: what other tools measured, as campaigns that can be learned from and judged;
and what happened to nodes, told by whoever keeps count of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.records import Campaign
    from anubis.incidents.intake import Intake
    from anubis.store.imports import Import

app = typer.Typer(
    help="Take over what another tool measured, or what happened to nodes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Sku = Annotated[
    str,
    typer.Option("--sku", help="The kind of these nodes: only results of one kind are compared."),
]


@app.command(help="Keep a results-summary.jsonl of SuperBench as a finished campaign.")
def superbench(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A results-summary.jsonl.")],
    sku: Sku,
    policy: options.Policy = "default",
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules",
            metavar="FILE",
            help="Judge by this rule file of SuperBench as well. Nothing in it is executed.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="The baseline.json that the rules compare with.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    import dataclasses
    import sys

    from anubis.cli import showing
    from anubis.cli.terminal import Terminal
    from anubis.operations.importing import import_superbench
    from anubis.report.view import CampaignView

    imported = import_superbench(
        file, sku=sku, policy=policy, rules=rules, baseline=baseline, caller=Terminal()
    )
    campaign, plan = imported.campaign, imported.campaign.plan
    showing.say(
        f"campaign {campaign.id}: nodes {len(plan.nodes):,}, benchmarks {len(plan.specs):,}, "
        f"values {imported.values:,}"
    )
    for sentence in plan.left_out:
        showing.say(f"left out: {sentence}")
    if imported.by_rules:
        unplanned = dataclasses.replace(plan, left_out=())  # it has just been said
        view = CampaignView(
            campaign=dataclasses.replace(campaign, plan=unplanned),
            executions=(),
            assessment=imported.by_rules,
            criteria=(),
        )
        showing.campaign(view, as_json=json)
        sys.exit(showing.exit_code(view))
    _name(campaign, as_json=json)


def _name(campaign: Campaign, *, as_json: bool) -> None:
    """stdout has what a script needs to go on: the campaign's name."""
    import json

    from anubis.cli import showing

    line = {"type": "campaign", "campaign": campaign.id, "nodes": len(campaign.plan.nodes)}
    print(json.dumps(line) if as_json else campaign.id)
    showing.say(
        f"see it with anubis report --campaign {campaign.id}, "
        f"learn from it with anubis learn --campaign {campaign.id}"
    )


@app.command(
    "superbench-baseline", help="Make criteria of a baseline.json of SuperBench: means, no spread."
)
def superbench_baseline(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A baseline.json.")],
    sku: Sku,
    units: Annotated[
        int,
        typer.Option(
            "--units", metavar="N", help="How many units it is the mean of; the file does not say."
        ),
    ],
    policy: options.Policy = "default",
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write <sku>.json into.")
    ] = Path("criteria"),
) -> None:
    from anubis import criteria_files
    from anubis.cli import showing
    from anubis.operations.importing import import_superbench_baseline
    from anubis.report.wording import names

    imported = import_superbench_baseline(file, sku=sku, units=units, policy=policy)
    path = out / criteria_files.file_name(imported.criteria)
    criteria_files.write(imported.criteria, path)
    showing.say(f"{path}: {len(imported.criteria.criteria)} criteria")
    if imported.left_out:
        left_out = names(imported.left_out)
        showing.say(f"left out, no positive mean or no known direction: {left_out}")
    showing.say(
        "means have no spread, so nobody knows how far healthy nodes stray from them: a metric "
        "that varies more than the policy allows gives false alarms; results teach better criteria"
    )


@app.command(help="Keep the incidents of a CSV or JSON file, also a gzipped one, in the history.")
def incidents(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table or a list of events.")],
    mapping: Annotated[
        str,
        typer.Option(
            "--mapping",
            "-m",
            help="Which column says what: a name under configs/incidents/, or a file. "
            "plain: node, category, start, end.",
        ),
    ] = "plain",
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="All nodes that were watched; incidents of others are left out. "
            "Default: those in the file, and as many more as its mapping says.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    from anubis import hostlist
    from anubis.cli import showing
    from anubis.cli.terminal import Terminal
    from anubis.operations.importing import import_incidents
    from anubis.report.wording import names

    imported = import_incidents(
        file,
        mapping=mapping,
        nodes=hostlist.read(nodes) if nodes else None,
        caller=Terminal(),
    )
    _show_intake(file, imported.intake, imported.kept, as_json=json)
    if imported.strangers:
        showing.say(f"nodes that nothing was known of before: {names(imported.strangers)}")
    showing.say(f"to take this back: anubis history forget --import {imported.kept.key}")


def _show_intake(file: Path, found: Intake, added: Import, *, as_json: bool) -> None:
    import dataclasses
    import json
    from collections import Counter

    from anubis.report.wording import counted, moment

    categories = Counter(one.category for one in found.incidents).most_common()
    since = min(watch.since for watch in found.watches)
    until = max(watch.until for watch in found.watches if watch.until)
    hit = len({one.node for one in found.incidents})
    if as_json:
        facts = {
            "type": "incidents",
            "records": found.records,
            "incidents": len(found.incidents),
            "import": added.key,
            **dataclasses.asdict(added.kept),
            "nodes": hit,
            "watched": len(found.watches),
            "since": since,
            "until": until,
            "categories": dict(categories),
            "left_out": {note.text: len(note.where) for note in found.left_out},
            "taken": {note.text: len(note.where) for note in found.remarks},
        }
        print(json.dumps(facts, ensure_ascii=False))
        return
    kept = added.kept
    print(
        f"{file.name}: {counted(len(found.incidents), 'incident')} in"
        f" {counted(found.records, 'record')}: "
        f"{kept.new:,} new, {kept.completed:,} completed by their end, {kept.known:,} known before"
    )
    print(
        f"on {hit:,} of {counted(len(found.watches), 'node')},"
        f" watched {moment(since)} to {moment(until)}"
    )
    print(", ".join(f"{category} {many:,}" for category, many in categories))
