"""`anubis import`: what other tools measured, as campaigns that can be learned from and judged;
and what happened to nodes, told by whoever keeps count of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.records import Assessment, Campaign, Execution, Plan, Policy
    from anubis.incidents.intake import Intake, Note
    from anubis.store.happenings import Import
    from anubis.superbench.results import NodeResults

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

    from anubis import config
    from anubis.cli import showing
    from anubis.core.errors import UsageError
    from anubis.superbench.adoption import adopt
    from anubis.superbench.results import read_results

    if not sku.strip():
        raise UsageError("--sku is empty: name the kind of these nodes, as a100-sxm-8x")
    if baseline and not rules:
        raise UsageError("--baseline is what --rules compare with: give --rules as well")
    chosen = config.policy(policy)
    rows = read_results(file)
    judged = _by_rules(rows, rules, baseline) if rules else None
    plan, executions = adopt(rows, sku.strip())
    campaign = _keep(plan, executions, chosen)
    values = sum(len(execution.result.series) for execution in executions)
    showing.say(
        f"campaign {campaign.id}: nodes {len(plan.nodes):,}, benchmarks {len(plan.specs):,}, "
        f"values {values:,}"
    )
    for sentence in plan.left_out:
        showing.say(f"left out: {sentence}")
    if judged:
        from anubis.report.view import CampaignView

        unplanned = dataclasses.replace(plan, left_out=())  # it has just been said
        view = CampaignView(
            campaign=dataclasses.replace(campaign, plan=unplanned),
            executions=(),
            assessment=judged,
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


def _by_rules(rows: tuple[NodeResults, ...], rules: Path, baseline: Path | None) -> Assessment:
    from anubis.cli import showing
    from anubis.superbench.results import read_baseline
    from anubis.superbench.rules import apply_rules, read_rules

    means = read_baseline(baseline) if baseline else {}
    assessment, idle = apply_rules(read_rules(rules), rows, means)
    for name in idle:
        showing.say(f'rule "{name}" finds no metric in the results: nothing was judged by it')
    return assessment


def _keep(plan: Plan, executions: list[Execution], policy: Policy) -> Campaign:
    """Finished as it comes in, and judged by what it teaches itself, as an acceptance is."""
    import dataclasses
    import secrets
    from datetime import UTC, datetime

    from anubis import places
    from anubis.core.records import Campaign, CampaignKind
    from anubis.store.history import History
    from anubis.validator import judge

    now = datetime.now(UTC)
    campaign = Campaign(
        id=f"import-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        kind=CampaignKind.IMPORT,
        plan=plan,
        policy=policy,
        executor="superbench",
        created_at=now.timestamp(),
    )
    assessment, criteria = judge(campaign, executions, {}, campaign.created_at)
    with History.open(places.history_url()) as history:
        history.begin(campaign)
        history.record(campaign.id, executions)
        history.conclude(campaign.id, assessment, criteria, finished_at=campaign.created_at)
    return dataclasses.replace(campaign, criteria=criteria, finished_at=campaign.created_at)


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
    from datetime import UTC, datetime

    from anubis import __version__, config, criteria_files
    from anubis.cli import showing
    from anubis.core.errors import UsageError
    from anubis.report.wording import names
    from anubis.superbench import baseline
    from anubis.superbench.results import read_baseline

    if not sku.strip():
        raise UsageError("--sku is empty: name the kind of the nodes it is the mean of")
    found, left_out = baseline.criteria(
        read_baseline(file),
        sku=sku.strip(),
        units=units,
        policy=config.policy(policy),
        anubis=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    path = out / criteria_files.file_name(found)
    criteria_files.write(found, path)
    showing.say(f"{path}: {len(found.criteria)} criteria")
    if left_out:
        showing.say(f"left out, no positive mean or no known direction: {names(left_out)}")
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
    import time

    from anubis import config, hostlist, places
    from anubis.cli import showing
    from anubis.core.errors import UsageError
    from anubis.incidents import intake, records
    from anubis.report.wording import names
    from anubis.store.history import History

    chosen = config.incident_mapping(mapping)
    listed = hostlist.read(nodes) if nodes else None
    found = intake.take_in(records.read(file), chosen, f'"{file}"', time.time(), listed)
    for note in found.left_out:
        showing.say(f"left out: {_told(note)}")
    for note in found.remarks:
        showing.say(f"taken: {_told(note)}")
    if not found.incidents:
        raise UsageError(f'"{file}" has no incident that can be taken: nothing was kept')
    with History.open(places.history_url()) as history:
        before = {watch.node for watch in history.watches()}
        added = history.add_import(
            str(file.absolute()), time.time(), found.incidents, found.watches
        )
    _show_intake(file, found, added, as_json=json)
    strangers = sorted({one.node for one in found.incidents} - before)
    if before and strangers:
        showing.say(f"nodes that nothing was known of before: {names(strangers)}")
    showing.say(f"to take this back: anubis history forget --import {added.key}")


def _told(note: Note) -> str:
    from anubis.report.wording import names

    many = "1 record" if len(note.where) == 1 else f"{len(note.where):,} records"
    return f"{many} ({names(note.where, limit=3)}): {note.what}"


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
            "left_out": {note.what: len(note.where) for note in found.left_out},
            "taken": {note.what: len(note.where) for note in found.remarks},
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
