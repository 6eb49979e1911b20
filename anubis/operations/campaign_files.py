"""Read the files that a request for a campaign names, and refuse bad ones before anything is
started.

A request becomes everything that a campaign is made of. Nothing runs here, and no node is
contacted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anubis.config import catalog, configs, criteria_files
from anubis.core.campaign.requested import (
    RequestedCampaign,
    arrange_pairs,
    fabric_between,
    missing_criteria_sentence,
    plan_requested,
)
from anubis.core.errors import NothingLearnedError, UsageError
from anubis.core.fabric import Fabric, place
from anubis.core.records import Counters, CriteriaSet, Node, Plan, Policy, Suite
from anubis.operations.caller import Caller
from anubis.operations.campaign_fabric import read_fabric
from anubis.operations.requests import CampaignRequest, LocateRequest, ScanRequest
from anubis.text import places
from anubis.text.hostlist import shorten
from anubis.text.reading import read


@dataclass(frozen=True, kw_only=True)
class _Origin:
    folders: tuple[str, ...]  # with programs
    by: str = ""  # who began it


@dataclass(frozen=True, kw_only=True)
class Setting(_Origin):
    """Where a campaign runs; kept with it, so that it can be resumed without naming it again."""

    cluster: configs.Cluster

    @property
    def parallel_nodes(self) -> int | None:
        cluster = self.cluster
        return None if isinstance(cluster, configs.LocalCluster) else cluster.parallel_nodes

    def programs(self) -> catalog.Catalog:
        return catalog.load(Path(folder) for folder in self.folders)


@dataclass(frozen=True, kw_only=True)
class Brief:
    """A request, with everything that it names."""

    request: CampaignRequest
    setting: Setting
    programs: catalog.Catalog
    suite: Suite
    policy: Policy
    criteria: tuple[CriteriaSet, ...]
    then: Suite | None = None  # for pairs across the fabric, after the suite
    surveyed: Fabric | None = None
    counters: Counters = Counters()

    @property
    def benchmarks(self) -> set[str]:
        further = self.then.benchmarks if self.then else ()
        return {entry.benchmark for entry in (*self.suite.benchmarks, *further)}

    @property
    def requested(self) -> RequestedCampaign:
        request = self.request
        return RequestedCampaign(
            kind=request.kind,
            suite=self.suite,
            then=self.then,
            specs=self.programs.specs,
            policy=self.policy,
            criteria=self.criteria,
            tests=request.tests,
            partners=request.partners,
            surveyed=self.surveyed,
            crosses_fabric=request.crosses_fabric,
            why_not_crossed=(
                "--no-fabric was given" if request.topology else "--topology FILE adds it"
            ),
            counters=self.counters,
        )

    def chosen_nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes that were requested."""
        named = None if self.request.nodes is None else frozenset(self.request.nodes)
        return [node for node in nodes if named is None or node.name in named]

    def refuse_unknown_to_topology(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        if self.surveyed and not place(self.surveyed, names).nodes:
            raise UsageError(
                f"the topology knows none of {shorten(names)}: it has "
                f"{shorten(self.surveyed.nodes) or 'no nodes'}"
            )

    def simulated_fabric(self) -> Fabric | None:
        """Network of a simulated fleet; real ones have their own."""
        cluster = self.setting.cluster
        if not isinstance(cluster, configs.SimulatedCluster) or not self.request.crosses_fabric:
            return None
        from anubis.lab.simulation.simulated_fleet import members

        everybody = members(cluster.fleet)
        nodes = self.chosen_nodes(everybody) or everybody  # strangers are refused later
        self.refuse_unknown_to_topology(nodes)
        return fabric_between(self.requested, nodes)


def read_request(request: CampaignRequest, caller: Caller) -> Brief:
    """Read every file that the request names, from the cluster's to the criteria."""
    cluster = configs.cluster(request.cluster)
    # an acceptance measures the fabric only if it is asked to
    if isinstance(request, ScanRequest | LocateRequest) and request.topology is None:
        request = replace(request, topology=cluster.topology or None)
    survey, counters = read_fabric(request, cluster, caller)
    pairs = "scan-rdma" if survey and survey.fabric.has_rdma_adapters else "scan"
    kind, tests = request.kind, request.tests
    crosses_after = request.crosses_fabric and kind.is_signed

    suite = configs.suite(request.suite or (pairs if kind.names_parts else "quick"))
    then = configs.suite(pairs) if crosses_after else None
    policy = configs.policy(request.policy)
    folders = (places.shipped_folder("benchmarks"), *request.benchmarks)
    folders = tuple(folder.expanduser().resolve() for folder in folders)
    programs = catalog.load(folders)
    criteria: tuple[CriteriaSet, ...] = ()
    if request.criteria:
        criteria = criteria_files.load(request.criteria.expanduser(), suite.name)
    elif kind.needs_criteria:
        criteria = criteria_files.read_in_use(suite.name)

    if kind.needs_criteria and not criteria:
        subject = f'suite "{suite.name}"'
        raise NothingLearnedError(missing_criteria_sentence(subject, request.suite or suite.name))
    if kind.names_parts:
        suite = arrange_pairs(suite, request.groups)
    elif tests is not None:
        kept = tuple(entry for entry in suite.benchmarks if entry.benchmark in tests)
        suite = replace(suite, benchmarks=kept)
    return Brief(
        request=request,
        setting=Setting(cluster=cluster, folders=tuple(map(str, folders)), by=caller.name()),
        programs=programs,
        suite=suite,
        policy=policy,
        criteria=criteria,
        then=arrange_pairs(then, "covering") if then else None,
        surveyed=survey.fabric if survey else None,
        counters=counters,
    )


def make_plan(brief: Brief, nodes: Sequence[Node]) -> Plan:
    """Plan for those of these nodes that were requested."""
    chosen = brief.chosen_nodes(nodes)
    brief.refuse_unknown_to_topology(chosen)
    return plan_requested(brief.requested, chosen)


def read_setting(text: str) -> Setting:
    """Read the setting that a campaign kept."""
    document, where = json.loads(text), "the campaign's setting"
    cluster = configs.read_cluster(document.pop("cluster"), where)
    origin = read(document, _Origin, where, UsageError)
    return Setting(cluster=cluster, **vars(origin))
