"""`anubis scan`: pairs of nodes across the fabric, and which node, rail or link is at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import options

HELP = "Scan the network: pairs of nodes at every distance, and the part at fault by name."


def scan(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    topology: options.Topology = None,
    hcas: options.Hcas = None,
    counters: options.Counters = None,
    over: options.Over = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Every pair of nodes, in n - 1 rounds."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Each node once at every distance (the default)."),
    ] = False,
    cover: Annotated[
        bool,
        typer.Option(
            "--cover",
            help="Like --quick, then more rounds until every uplink is almost surely crossed.",
        ),
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="A suite of programs for pairs: a name under configs/suites/, or a file. "
            "Default: scan-rdma where the topology has InfiniBand adapters, else scan.",
            show_default=False,
        ),
    ] = None,
    policy: options.Policy = "default",
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria",
            metavar="PATH",
            help="Criteria of an earlier scan. Default: learn them from the fast pairs of this "
            "one.",
            show_default=False,
        ),
    ] = None,
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    from anubis.cli import amounts, campaigns
    from anubis.core.errors import UsageError
    from anubis.core.records import CampaignKind
    from anubis.operations.preparing import CampaignRequest, NetworkRequest

    chosen = [name for name, is_set in _ways(full, quick, cover).items() if is_set]
    if len(chosen) > 1:
        raise UsageError(f"--{' and --'.join(chosen)} exclude each other: give one of them")
    request = CampaignRequest(
        kind=CampaignKind.SCAN,
        nodes=amounts.nodes(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=tuple(benchmarks or ()),
        network=NetworkRequest(
            topology=topology,
            hcas=hcas,
            counters=tuple(counters or ()),
            over_s=over,
            groups="pairs" if full else "covering" if cover else "quick",
        ),
    )
    campaigns.answer(
        request, dry_run=dry_run, resume=resume, campaign=campaign, html=html, as_json=json
    )


def _ways(full: bool, quick: bool, cover: bool) -> dict[str, bool]:
    return {"full": full, "quick": quick, "cover": cover}
