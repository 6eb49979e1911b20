"""Campaigns by their verbs, each with only the arguments it needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from anubis.core.records import Arrangement, CampaignKind
from anubis.operations.caller import Caller
from anubis.operations.campaigns import CampaignResult, WallClock, run_campaign
from anubis.operations.preparing import CampaignRequest, NetworkRequest


def accept(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    suite: str = "quick",
    policy: str = "default",
    benchmarks: Sequence[Path] = (),
    caller: Caller | None = None,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> CampaignResult:
    """Runs a suite, learns criteria from this run, and judges by them. Default: all nodes."""
    request = CampaignRequest(
        kind=CampaignKind.ACCEPT,
        nodes=None if nodes is None else tuple(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks),
    )
    return run_campaign(request, caller, history_url=history_url, clock=clock)


def validate(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    suite: str = "quick",
    policy: str = "default",
    criteria: Path | None = None,
    benchmarks: Sequence[Path] = (),
    caller: Caller | None = None,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> CampaignResult:
    """Run a suite, and judge by these criteria, or by those that were accepted for the suite."""
    request = CampaignRequest(
        kind=CampaignKind.VALIDATE,
        nodes=None if nodes is None else tuple(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=tuple(benchmarks),
    )
    return run_campaign(request, caller, history_url=history_url, clock=clock)


def scan(
    nodes: Sequence[str] | None = None,
    *,
    cluster: str = "local",
    topology: str | None = None,
    hcas: Path | None = None,
    counter_files: Sequence[Path] = (),
    over_s: float | None = None,
    groups: Arrangement = "quick",
    suite: str | None = None,
    policy: str = "default",
    criteria: Path | None = None,
    benchmarks: Sequence[Path] = (),
    caller: Caller | None = None,
    history_url: str | None = None,
    clock: WallClock = time.time,
) -> CampaignResult:
    """Measure pairs of nodes across the fabric, and name the part at fault."""
    request = CampaignRequest(
        kind=CampaignKind.SCAN,
        nodes=None if nodes is None else tuple(nodes),
        cluster=cluster,
        suite=suite,
        policy=policy,
        criteria=criteria,
        benchmarks=tuple(benchmarks),
        network=NetworkRequest(
            topology=topology,
            hcas=hcas,
            counters=tuple(counter_files),
            over_s=over_s,
            groups=groups,
        ),
    )
    return run_campaign(request, caller, history_url=history_url, clock=clock)
