"""`anubis validate`: run a suite and judge by criteria that exist."""

from __future__ import annotations

from anubis.cli import options

HELP = "Validate nodes: run, and judge by criteria learned earlier."


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
    from anubis.cli import amounts, campaigns
    from anubis.core.records import CampaignKind
    from anubis.operations.preparing import CampaignRequest

    request = CampaignRequest(
        kind=CampaignKind.VALIDATE,
        nodes=amounts.nodes(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=tuple(benchmarks or ()),
    )
    campaigns.answer(
        request, dry_run=dry_run, resume=resume, campaign=campaign, html=html, as_json=json
    )
