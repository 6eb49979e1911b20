"""Campaigns for a notebook, each with no more arguments than it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anubis.core.records import Arrangement, CampaignKind
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.campaign_files import CampaignRequest
from anubis.operations.campaigns import run_campaign
from anubis.report.view import CampaignResult


def accept(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    topology: str | None = None,
    hcas: Path | None = None,
    counters: Sequence[Path] = (),
    over_s: float | None = None,
    with_fabric: bool = True,
    suite: str = "quick",
    policy: str = "default",
    benchmarks: Sequence[Path] = (),
    caller: Caller = NOBODY,
) -> CampaignResult:
    """Run a suite, learn criteria from this run, and judge by them; without nodes, on the whole
    cluster. `benchmarks` are folders with more programs. With a topology, also judge the cabling
    and, unless it is left out, the fabric: pairs cross every link that they can."""
    request = CampaignRequest(
        kind=CampaignKind.ACCEPT,
        nodes=nodes,
        cluster=cluster,
        topology=topology,
        hcas=hcas,
        counters=counters,
        over_s=over_s,
        with_fabric=with_fabric,
        suite=suite,
        policy=policy,
        benchmarks=benchmarks,
    )
    return run_campaign(request, caller)


def validate(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    suite: str = "quick",
    policy: str = "default",
    criteria: Path | None = None,
    benchmarks: Sequence[Path] = (),
    caller: Caller = NOBODY,
) -> CampaignResult:
    """Run a suite and judge by these criteria, or by those that were accepted for the suite."""
    request = CampaignRequest(
        kind=CampaignKind.VALIDATE,
        nodes=nodes,
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=benchmarks,
    )
    return run_campaign(request, caller)


def locate(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    topology: str | None = None,
    hcas: Path | None = None,
    suite: str = "locate",
    policy: str = "default",
    criteria: Path | None = None,
    benchmarks: Sequence[Path] = (),
    caller: Caller = NOBODY,
) -> CampaignResult:
    """Find the part at fault among the nodes of a job that failed or was slow: divide them by pods,
    leaves and halves until that part is left. `caller.handed_back` receives the others."""
    request = CampaignRequest(
        kind=CampaignKind.LOCATE,
        nodes=nodes,
        cluster=cluster,
        topology=topology,
        hcas=hcas,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=benchmarks,
    )
    return run_campaign(request, caller)


def scan(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    topology: str | None = None,
    hcas: Path | None = None,
    counters: Sequence[Path] = (),
    over_s: float | None = None,
    groups: Arrangement = "quick",
    suite: str | None = None,
    policy: str = "default",
    criteria: Path | None = None,
    benchmarks: Sequence[Path] = (),
    caller: Caller = NOBODY,
) -> CampaignResult:
    """Measure pairs of nodes across the fabric, and name the part at fault."""
    request = CampaignRequest(
        kind=CampaignKind.SCAN,
        nodes=nodes,
        cluster=cluster,
        topology=topology,
        hcas=hcas,
        counters=counters,
        over_s=over_s,
        groups=groups,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=benchmarks,
    )
    return run_campaign(request, caller)
