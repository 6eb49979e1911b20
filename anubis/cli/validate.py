"""`anubis validate`: run a suite and judge by criteria that exist."""

from __future__ import annotations

from anubis.cli import options

HELP = "Validate nodes: run, and judge by criteria learned before."


def validate(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    from anubis.cli import running
    from anubis.core.records import CampaignKind

    order = running.Order(
        kind=CampaignKind.VALIDATE,
        nodes=nodes,
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=tuple(benchmarks or ()),
        html=html,
        json=json,
    )
    if dry_run:
        running.show_plan(order, resume=resume)
    else:
        running.run(order, resume=resume, campaign=campaign)
