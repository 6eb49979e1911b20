"""`anubis learn`: criteria from what campaigns measured, into files to commit and review."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.judging.units import Units
    from anubis.core.records import Campaign, CriteriaSet
    from anubis.store.history import History

HELP = "Learn criteria from what was measured before, in one campaign or in many."
METRICS_NAMED = 3  # metrics that are named beside a reason
MOST_CAMPAIGNS = 1_000_000  # more than a fleet has in its life


def learn(
    campaign: options.Campaign = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE",
            help="Pool the campaign with all finished ones of its suite that began before it, on "
            "DATE (2026-11-01 or 2026-11-01T08:00, UTC) or later. What a device, or a group of "
            "nodes, measured in all of them is one unit; the last try of each step counts, and "
            "workloads that the campaign itself does not run are left out.",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            "--exclude",
            metavar="NODES",
            help="Learn nothing from these nodes, nor from groups with them: node[01-16], a comma "
            "list, or @file. Each must be in a campaign that is learned from.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Set out from these criteria, of before the last days: a file, or a folder.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="A name under configs/policies/, or a file. Default: the campaign's own.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write <sku>.json into.")
    ] = Path("criteria"),
) -> None:
    from anubis import __version__, config, criteria_files, hostlist, places
    from anubis.cli import showing
    from anubis.core.errors import CriteriaError
    from anubis.core.judging.judgement import learn_criteria
    from anubis.operations.past import finished
    from anubis.store.history import History

    begun_since = None if since is None else _instant(since)
    excluded = frozenset() if exclude is None else frozenset(hostlist.read(exclude))
    with History.open(places.history_url()) as history:
        found = finished(history, campaign)
        pooled = [found] if begun_since is None else _pooled(history, found, begun_since)
        _refuse_strangers(excluded, pooled)
        measured = _measured(history, pooled, found, excluded)
    named = ", ".join(each.id for each in pooled)
    if len(pooled) > 1:
        showing.say(f"learning from {len(pooled)} campaigns of suite {found.plan.suite}: {named}")
    if not measured:
        rest = " without the excluded nodes" if excluded else ""
        raise CriteriaError(f"campaign {named} measured nothing to learn from{rest}")
    learned = learn_criteria(
        measured,
        config.policy(policy) if policy else found.policy,
        suite=found.plan.suite,
        anubis=__version__,
        created_at=datetime.fromtimestamp(_learned_at(found), UTC).isoformat(timespec="seconds"),
        start=criteria_files.load(start.expanduser()) if start else (),
    )
    for each in learned:
        path = out / criteria_files.file_name(each)
        criteria_files.write(each, path)
        refused = sum(bool(criterion.refusal) for criterion in each.criteria)
        showing.say(f"{path}: {len(each.criteria)} criteria, {refused} of them refused")
        for sentence, metrics in _refusals(each).items():
            more = (
                f" and {len(metrics) - METRICS_NAMED:,} more"
                if len(metrics) > METRICS_NAMED
                else ""
            )
            showing.say(f"  {', '.join(metrics[:METRICS_NAMED])}{more}: {sentence}")


def _refusals(criteria: CriteriaSet) -> dict[str, list[str]]:
    """The metrics by what is said of them: a fleet that is too small has one reason for all."""
    found: dict[str, list[str]] = {}
    for criterion in criteria.criteria:
        if criterion.refusal:
            metric = f"{criterion.key.workload} {criterion.key.metric}"
            found.setdefault(criterion.refusal, []).append(metric)
    return found


def _instant(text: str) -> float:
    from anubis.core.errors import UsageError

    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f'--since "{text}" is no date: expected one like 2026-11-01 or 2026-11-01T08:00'
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _pooled(history: History, last: Campaign, since: float) -> list[Campaign]:
    """The campaigns to learn from, the oldest first; `last` is always the last of them."""
    from anubis.core.errors import UsageError
    from anubis.report.wording import moment

    if last.created_at < since:
        raise UsageError(
            f"no campaign to pool: {last.id} began {moment(last.created_at)}, "
            f"which is before --since {moment(since)}"
        )
    newest_first = history.campaigns(limit=MOST_CAMPAIGNS)
    begun_no_later = newest_first[[row.id for row in newest_first].index(last.id) :]
    return [
        history.campaign(row.id)
        for row in reversed(begun_no_later)
        if row.suite == last.plan.suite and row.finished_at is not None and row.created_at >= since
    ]


def _refuse_strangers(excluded: frozenset[str], pooled: list[Campaign]) -> None:
    """A slip in a name would let the very node into the criteria that is to stay out."""
    from anubis.cli.running import shortened
    from anubis.core.errors import UsageError

    known = {node.name: None for each in pooled for node in each.plan.nodes}
    strangers = sorted(excluded - known.keys())
    if strangers:
        raise UsageError(
            f'--exclude: node "{shortened(strangers)}" is in no campaign that is learned from; '
            f"their nodes are {shortened(list(known))}"
        )


def _measured(
    history: History, pooled: list[Campaign], last: Campaign, excluded: frozenset[str]
) -> list[Units]:
    from anubis.core.judging.units import latest, pool, relevant, units

    workloads = {entry.workload for phase in last.plan.phases for entry in phase.entries}
    return pool(
        relevant(units(latest(history.executions(each.id)), each.plan), workloads, excluded)
        for each in pooled
    )


def _learned_at(campaign: Campaign) -> float:
    """What accept has learned already is dated as it was, so that the files are the same bytes."""
    if campaign.kind.learns and campaign.criteria:
        return datetime.fromisoformat(campaign.criteria[0].provenance.created_at).timestamp()
    return campaign.finished_at or campaign.created_at
