"""`anubis learn`: criteria from what a campaign measured, into files to commit and review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import options

HELP = "Learn criteria from a campaign that was measured before."


def learn(
    campaign: options.Campaign = None,
    policy: options.Policy = "default",
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write <sku>.json into.")
    ] = Path("criteria"),
) -> None:
    import dataclasses

    from anubis import config, criteria_files, places
    from anubis.cli import showing
    from anubis.cli.past import chosen
    from anubis.core.errors import CriteriaError
    from anubis.store.history import History
    from anubis.validator import judge

    with History.open(places.history_url()) as history:
        found = history.campaign(chosen(history, campaign))
        executions = history.executions(found.id)
    fresh = dataclasses.replace(found, criteria=(), policy=config.policy(policy))
    last = max((e.started_at or 0.0) + e.duration_s for e in executions) if executions else 0.0
    _, criteria = judge(fresh, executions, {}, last)
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
