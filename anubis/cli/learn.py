"""`anubis learn`: criteria from what a campaign measured, into files to commit and review."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.records import Campaign

HELP = "Learn criteria from a campaign that was measured before."


def learn(
    campaign: options.Campaign = None,
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
    import dataclasses

    from anubis import config, criteria_files, places
    from anubis.cli import showing
    from anubis.cli.past import finished
    from anubis.core.errors import CriteriaError
    from anubis.store.history import History
    from anubis.validator import judge

    with History.open(places.history_url()) as history:
        found = finished(history, campaign)
        executions = history.executions(found.id)
    chosen = config.policy(policy) if policy else found.policy
    fresh = dataclasses.replace(found, criteria=(), policy=chosen)
    _, criteria = judge(fresh, executions, {}, _learned_at(found))
    if not criteria:
        raise CriteriaError(f"campaign {found.id} measured nothing to learn from")
    for each in criteria:
        path = out / criteria_files.file_name(each)
        criteria_files.write(each, path)
        refused = sum(bool(criterion.refusal) for criterion in each.criteria)
        showing.say(f"{path}: {len(each.criteria)} criteria, {refused} of them refused")
        for criterion in each.criteria:
            if criterion.refusal:
                metric = f"{criterion.key.workload} {criterion.key.metric}"
                showing.say(f"  {metric}: {criterion.refusal}")


def _learned_at(campaign: Campaign) -> float:
    """What accept has learned already is dated as it was, so that the files are the same bytes."""
    if campaign.verb == "accept" and campaign.criteria:
        return datetime.fromisoformat(campaign.criteria[0].provenance.created_at).timestamp()
    return campaign.finished_at or campaign.created_at
