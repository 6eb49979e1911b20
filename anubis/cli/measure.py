"""`anubis accept`, `validate`, `scan` and `locate`: measure nodes, or the network between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import options
from anubis.core.errors import UsageError


def accept(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="The topology, as for scan. The cabling of the nodes is then judged as well, "
            "and after the suite, pairs of nodes cross every link that they can.",
        ),
    ] = None,
    hcas: options.Hcas = None,
    counters: options.Counters = None,
    over: options.Over = None,
    no_fabric: Annotated[
        bool,
        typer.Option(
            "--no-fabric", help="With a topology: judge the cabling only, measure no link."
        ),
    ] = False,
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    """Accept a new cluster: run, learn criteria from this run, judge, report."""
    from anubis.cli import campaigns, showing

    request = campaigns.request(
        "accept", nodes, cluster=cluster, suite=suite, policy=policy, benchmarks=benchmarks
    )
    request = replace(
        request,
        topology=topology,
        hcas=hcas,
        counters=counters or (),
        over_s=over,
        with_fabric=not no_fabric,
    )
    forms = showing.AnswerForms(json=json, nagios=nagios, html=html, junit=junit)
    campaigns.carry_out(request, dry_run=dry_run, resume=resume, campaign=campaign, forms=forms)


def validate(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    """Validate nodes: run, and judge by criteria learned earlier."""
    from anubis.cli import campaigns, showing

    request = campaigns.request(
        "validate", nodes, cluster=cluster, suite=suite, policy=policy, benchmarks=benchmarks
    )
    request = replace(request, criteria=criteria)
    forms = showing.AnswerForms(json=json, nagios=nagios, html=html, junit=junit)
    campaigns.carry_out(request, dry_run=dry_run, resume=resume, campaign=campaign, forms=forms)


def scan(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    topology: options.Topology = None,
    hcas: options.Hcas = None,
    counters: options.Counters = None,
    over: options.Over = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every pair of nodes, in n - 1 rounds.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Each node once at every distance (the default).")
    ] = False,
    cover: Annotated[
        bool,
        typer.Option(
            "--cover",
            help="Like --quick, then more rounds until every link that pairs can cross is "
            "crossed, surely or with a chance of 95 %; across rails if needed.",
        ),
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="A suite of programs for pairs: a name under configs/suites/, or a file. "
            "Default: scan-rdma if the topology has InfiniBand adapters, else scan.",
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
        ),
    ] = None,
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    """Scan the network: pairs of nodes at every distance, and the part at fault by name."""
    from anubis.cli import campaigns, showing

    ways = {"full": full, "quick": quick, "cover": cover}
    chosen = [f"--{way}" for way, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other: give one of them")
    request = campaigns.request(
        "scan", nodes, cluster=cluster, suite=suite, policy=policy, benchmarks=benchmarks
    )
    request = replace(
        request,
        criteria=criteria,
        topology=topology,
        hcas=hcas,
        counters=counters or (),
        over_s=over,
        groups="pairs" if full else "covering" if cover else "quick",
    )
    forms = showing.AnswerForms(json=json, nagios=nagios, html=html, junit=junit)
    campaigns.carry_out(request, dry_run=dry_run, resume=resume, campaign=campaign, forms=forms)


def locate(
    nodes: options.Nodes = None,
    cluster: options.Cluster = "local",
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="The topology, as for scan: nodes are divided by pods and leaves. Without one, "
            "they are halved in their order.",
        ),
    ] = None,
    hcas: options.Hcas = None,
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            "-s",
            help="A suite with programs for groups that fit the job, with `groups: parts`: a name "
            "under configs/suites/, or a file.",
        ),
    ] = "locate",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    html: options.Html = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    campaign: options.Unfinished = None,
) -> None:
    """Locate why a job fails or is slow: test pods, leaves and halves until one part is left."""
    from anubis.cli import campaigns, showing

    request = campaigns.request(
        "locate", nodes, cluster=cluster, suite=suite, policy=policy, benchmarks=benchmarks
    )
    request = replace(request, criteria=criteria, topology=topology, hcas=hcas)
    forms = showing.AnswerForms(json=json, nagios=nagios, html=html, junit=junit)
    campaigns.carry_out(request, dry_run=dry_run, resume=resume, campaign=campaign, forms=forms)
