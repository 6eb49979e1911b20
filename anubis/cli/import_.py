"""`anubis history import`: measurements of other tools as campaigns, and records of what
happened to nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.streams import say
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import (
    BaselineImport,
    CsvImport,
    IncidentImport,
    NodeImport,
    SuperbenchImport,
)

if TYPE_CHECKING:
    from anubis.operations.import_ import ImportedResults

app = typer.Typer(
    name="import",
    help="Take over what another tool measured, or what happened to nodes.",
    no_args_is_help=True,
)


@app.command(
    help="Import a table of measurements, gzipped or not, as a finished campaign. Each line has a "
    "sample (node, device, metric, value, unit, direction, sku, time), or one for each metric."
)
@verb
def csv(request: CsvImport, json: options.Json = False) -> None:
    imported = anubis.import_csv(request, Terminal())
    campaign, plan = imported.campaign, imported.campaign.plan
    say(
        f"campaign {campaign.id}: nodes {len(plan.nodes):,} of cluster {campaign.cluster}, "
        f"metrics {len(plan.specs[0].metrics):,}, values {imported.values:,}"
    )
    _name(imported, as_json=json)


@app.command(help="Import SuperBench's results-summary.jsonl as a finished campaign.")
@verb
def superbench(request: SuperbenchImport, json: options.Json = False) -> None:
    from anubis.cli import campaign_answer
    from anubis.report.view import CampaignView

    imported = anubis.import_superbench(request, Terminal())
    campaign, plan = imported.campaign, imported.campaign.plan
    say(
        f"campaign {campaign.id}: nodes {len(plan.nodes):,} of cluster {campaign.cluster}, "
        f"benchmarks {len(plan.specs):,}, values {imported.values:,}"
    )
    for sentence in plan.left_out:
        say(f"left out: {sentence}")
    if imported.by_rules:
        unplanned = dataclasses.replace(plan, left_out=())  # it has just been said
        view = CampaignView(
            campaign=dataclasses.replace(campaign, plan=unplanned),
            executions=(),
            assessment=imported.by_rules,
            criteria=(),
        )
        campaign_answer.campaign(view, as_json=json)
        answer.leave(view.assessment.judgement)
    _name(imported, as_json=json)


def _name(imported: ImportedResults, *, as_json: bool) -> None:
    """Print the campaign's name, which is what a script needs to go on."""
    campaign = imported.campaign
    if as_json:
        from anubis.report.history import ImportNumber
        from anubis.report.imports import CampaignLine

        line = CampaignLine(
            campaign=campaign.id, cluster=campaign.cluster, nodes=len(campaign.plan.nodes)
        )
        answer.write_json("campaign", ImportNumber(import_=imported.kept.key), line)
    else:
        print(campaign.id)
    say(
        f"see it with anubis report --campaign {campaign.id}, "
        f"learn from it with anubis criteria learn --campaign {campaign.id}"
    )
    say(f"to take this back: anubis history forget --import {imported.kept.key}")


@app.command(
    "superbench-baseline",
    help="Make criteria from SuperBench's baseline.json. Its means have no spread.",
)
@verb
def superbench_baseline(request: BaselineImport, out: options.Out = Path("criteria")) -> None:
    from anubis.config import criteria_files
    from anubis.text.wording import names

    imported = anubis.import_superbench_baseline(request)
    path = out / criteria_files.place(imported.criteria)
    criteria_files.write(imported.criteria, path)
    say(f"{path}: {len(imported.criteria.criteria)} criteria")
    if imported.left_out:
        left_out = names(imported.left_out)
        say(f"left out, no positive mean or no known direction: {left_out}")
    say(
        "means have no spread, so how far healthy nodes vary around them is unknown: a metric "
        "that varies more than the policy allows gives false alarms; learn from results instead"
    )


@app.command(help="Import the incidents of a CSV or JSON file, gzipped or not, into the history.")
@verb
def incidents(request: IncidentImport, json: options.Json = False) -> None:
    from anubis.report import imports

    imported = anubis.import_incidents(request, Terminal())
    intake, added = imported.intake, imported.kept
    if json:
        answer.write_lines([imports.incidents_line(intake, added)])
    else:
        answer.write_lines(imports.incident_sentences(request.file.name, intake, added))
    say(f"to take this back: anubis history forget --import {imported.kept.key}")


@app.command(
    help="Import a table of nodes, CSV or JSON: rack, cage, sku and when each was installed. "
    "It may be gzipped. Risk models use them if that makes their forecasts better."
)
@verb
def nodes(request: NodeImport, json: options.Json = False) -> None:
    from anubis.text.wording import names, quantity

    imported = anubis.import_nodes(request, Terminal())
    intake, added = imported.intake, imported.kept
    values_of = {
        key: [value for attributes in intake.attributes if (value := getattr(attributes, key))]
        for key in ("rack", "cage", "sku", "installed")
    }
    if json:
        from anubis.report import imports

        counts = {key: len(values) for key, values in values_of.items()}
        answer.write_lines([imports.nodes_line(intake, added, counts, imported.untold)])
    else:
        kept = added.kept
        print(
            f"{request.file.name}: {quantity(len(intake.attributes), 'node')} of cluster"
            f" {added.cluster}: {kept.new:,} new, {kept.completed:,} changed,"
            f" {kept.known:,} known before"
        )
        print(
            ", ".join(
                f"{key} of {len(values):,} ({len({*values}):,} different)"
                for key, values in values_of.items()
                if values
            )
        )
    if imported.untold:
        say(
            f"in the history and not in the file: {names(imported.untold)}; models learn only"
            f" from attributes that nearly all nodes have"
        )
    say(f"to take this back: anubis history forget --import {added.key}")
