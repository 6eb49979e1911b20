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
    from anubis.cli import amounts, campaigns
    from anubis.core.records import CampaignKind
    from anubis.operations.preparing import CampaignRequest

    request = CampaignRequest(
        kind=CampaignKind.ACCEPT,
        nodes=amounts.nodes(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
    )
    campaigns.answer(
        request, dry_run=dry_run, resume=resume, campaign=campaign, html=html, as_json=json
    )
