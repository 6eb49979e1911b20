"""`anubis history import`: measurements of other tools as campaigns, and records of what
happened to nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.remarks import say
from anubis.cli.terminal import Terminal
from anubis.core.errors import UsageError

if TYPE_CHECKING:
    from anubis.operations.import_ import ImportedResults
    from anubis.readers.incidents.incident_intake import Intake
    from anubis.store.imports import Import

app = typer.Typer(
    name="import",
    help="Take over what another tool measured, or what happened to nodes.",
    no_args_is_help=True,
)


def _map_option(keys: str, example: str) -> typer.models.OptionInfo:
    """Option that maps the columns of a table to these keys."""
    option: typer.models.OptionInfo = typer.Option(
        "--map",
        metavar="KEY=COLUMN",
        help=f"Which column has what, or several in one text: node=host, {example}. Keys: {keys}; "
        "a column with the name of its key needs no --map. May be repeated.",
    )
    return option


TableFile = Annotated[Path, typer.Argument(metavar="FILE", help="A table with a heading.")]
SampleColumns = Annotated[
    list[str] | None,
    _map_option("node, device, metric, value, unit, direction, sku, time", "device='gpu:{slot}'"),
]
AttributeColumns = Annotated[
    list[str] | None, _map_option("node, rack, cage, sku, installed", "cage='{rack}/{cage}'")
]
Sku = Annotated[
    str,
    typer.Option(
        "--sku", help="The hardware kind of the nodes: only results of one kind are compared."
    ),
]


@app.command(
    help="Import a table of measurements, gzipped or not, as a finished campaign. Each line has a "
    "sample (node, device, metric, value, unit, direction, sku, time), or one for each metric."
)
def csv(
    file: TableFile,
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            "-s",
            metavar="NAME",
            help="The name of these measurements. Files of one name are learned from and judged "
            "together.",
        ),
    ],
    columns: SampleColumns = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME=DIRECTION[,UNIT]",
            help="A metric to take, and whether higher, lower or either is better: "
            "step_ms=lower,ms. Without a column metric, each is a column of its own. Default: all "
            "that the column metric names. May be repeated.",
        ),
    ] = None,
    sku: Annotated[
        str,
        typer.Option("--sku", help="The hardware kind of the nodes, if no column has it."),
    ] = "",
    policy: options.Policy = "default",
    skip_wrong: Annotated[
        bool,
        typer.Option(
            "--skip-wrong-lines",
            help="Import the other lines. A node with a wrong line is unknown. Default: one "
            "wrong line stops the import.",
        ),
    ] = False,
    cluster: options.ClusterTold = None,
    json: options.Json = False,
) -> None:
    mapping = anubis.TableMapping.of(columns or (), metrics or (), sku=sku.strip())
    imported = anubis.import_csv(
        file,
        mapping,
        suite=suite,
        policy=policy,
        skip_wrong=skip_wrong,
        cluster=cluster,
        caller=Terminal(),
    )
    campaign, plan = imported.campaign, imported.campaign.plan
    say(
        f"campaign {campaign.id}: nodes {len(plan.nodes):,} of cluster {campaign.cluster}, "
        f"metrics {len(plan.specs[0].metrics):,}, values {imported.values:,}"
    )
    _name(imported, as_json=json)


@app.command(help="Import SuperBench's results-summary.jsonl as a finished campaign.")
def superbench(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A results-summary.jsonl.")],
    sku: Sku,
    policy: options.Policy = "default",
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules",
            metavar="FILE",
            help="Also judge by this SuperBench rule file. Nothing in it is executed.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE", help="The baseline.json that the rules compare with."
        ),
    ] = None,
    cluster: options.ClusterTold = None,
    json: options.Json = False,
) -> None:
    from anubis.cli import showing
    from anubis.report.view import CampaignView

    imported = anubis.import_superbench(
        file,
        sku=sku,
        policy=policy,
        rules=rules,
        baseline=baseline,
        cluster=cluster,
        caller=Terminal(),
    )
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
        showing.campaign(view, as_json=json)
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
def superbench_baseline(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A baseline.json.")],
    sku: Sku,
    units: Annotated[
        int,
        typer.Option(
            "--units", metavar="N", help="How many units the means are of; the file does not say."
        ),
    ],
    policy: options.Policy = "default",
    out: options.Out = Path("criteria"),
) -> None:
    from anubis.config import criteria_files
    from anubis.text.wording import names

    imported = anubis.import_superbench_baseline(file, sku=sku, units=units, policy=policy)
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
def incidents(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table or a list of events.")],
    mapping: Annotated[
        str,
        typer.Option(
            "--mapping",
            help="What each column means: a name under configs/incidents/, or a file. "
            "plain: node, category, start, end.",
        ),
    ] = "plain",
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="All nodes that were watched, known or not; incidents of others are left out. "
            "Default: those in the file that the cluster has; if it has none so far, all in the "
            "file, plus as many as the mapping says.",
        ),
    ] = None,
    cluster: options.ClusterTold = None,
    json: options.Json = False,
) -> None:
    imported = anubis.import_incidents(
        file,
        mapping=mapping,
        nodes=amounts.nodes(nodes or None),
        cluster=cluster,
        caller=Terminal(),
    )
    _show_intake(file, imported.intake, imported.kept, as_json=json)
    say(f"to take this back: anubis history forget --import {imported.kept.key}")


@app.command(
    help="Import a table of nodes, CSV or JSON: rack, cage, sku and when each was installed. "
    "It may be gzipped. Risk models use them if that makes their forecasts better."
)
def nodes(
    file: TableFile,
    columns: AttributeColumns = None,
    times: Annotated[
        list[str] | None,
        typer.Option(
            "--time",
            metavar="FORMAT",
            help="How times of installation are written: iso, a pattern like %d.%m.%Y, or seconds, "
            "days and so on since 1970. May be repeated. Default: iso.",
        ),
    ] = None,
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="The time zone of times that name none.")
    ] = "UTC",
    cluster: options.ClusterTold = None,
    json: options.Json = False,
) -> None:
    from anubis.text.wording import names, quantity

    try:
        mapping = anubis.NodeMapping.of(columns or (), times or (), zone)
    except ValueError as error:
        raise UsageError(f"--time or --zone: {error}") from None
    imported = anubis.import_nodes(file, mapping, cluster=cluster, caller=Terminal())
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
            f"{file.name}: {quantity(len(intake.attributes), 'node')} of cluster {added.cluster}:"
            f" {kept.new:,} new, {kept.completed:,} changed, {kept.known:,} known before"
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


def _show_intake(file: Path, intake: Intake, added: Import, *, as_json: bool) -> None:
    from anubis.report import imports
    from anubis.text.wording import moment, quantity

    if as_json:
        answer.write_lines([imports.incidents_line(intake, added)])
        return
    since, until = imports.span(intake)
    hit = len({incident.node for incident in intake.incidents})
    kept = added.kept
    print(
        f"{file.name}: {quantity(len(intake.incidents), 'incident')} in"
        f" {quantity(intake.records, 'record')}: "
        f"{kept.new:,} new, {kept.completed:,} completed by their end, {kept.known:,} known before"
    )
    print(
        f"on {hit:,} of {quantity(len(intake.watches), 'node')} of cluster {added.cluster},"
        f" watched {moment(since)} to {moment(until)}"
    )
    categories = imports.categories(intake).items()
    print(", ".join(f"{category} {count:,}" for category, count in categories))
