"""`anubis accept`: run a suite, learn criteria from this very run, judge by them, report."""

from __future__ import annotations

from anubis.cli import options

HELP = "Accept a new cluster: run, learn criteria from this run, judge, report."


def accept(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
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
        kind=CampaignKind.ACCEPT,
        nodes=nodes,
        cluster=cluster,
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
        html=html,
        json=json,
    )
    if dry_run:
        running.show_plan(order, resume=resume)
    else:
        running.run(order, resume=resume, campaign=campaign)
