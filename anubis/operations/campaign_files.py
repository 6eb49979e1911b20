"""Read the files that a request for a campaign names, and refuse bad ones before anything is
started.

A request becomes everything that a campaign is made of. Nothing runs here, and no node is
contacted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.config import catalog, configs, criteria_files
from anubis.core.campaign.requested_plan import (
    RequestedCampaign,
    arrange_pairs,
    fabric_between,
    missing_criteria_sentence,
    plan_requested,
)
from anubis.core.errors import NothingLearnedError, TopologyError, UsageError, named_by_request
from anubis.core.fabric import Fabric, place
from anubis.core.network.sharing import rails_share_no_cable
from anubis.core.records import BenchmarkSpec, Counters, CriteriaSet, Node, Plan, Policy, Suite
from anubis.operations.caller import Caller
from anubis.operations.requests import CampaignRequest, LocateRequest, ScanRequest
from anubis.operations.topology import count_errors, routes_known, survey
from anubis.readers.topology.draft import Survey
from anubis.text import places
from anubis.text.hostlist import shorten
from anubis.text.reading import read

if TYPE_CHECKING:
    from anubis.lab.simulation.simulated_fleet import SimulatedFleet

SUITE_OF_SDC = "locate-sdc"


@dataclass(frozen=True, kw_only=True)
class _Origin:
    folders: tuple[str, ...]  # with programs
    by: str = ""  # who began it
    is_by_itself: bool = False  # no criteria were known: it is judged by its own measurements


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
    def specs(self) -> list[BenchmarkSpec]:
        """Programs that may run; a suite may name one that does not exist."""
        specs = self.programs.specs
        return [specs[name] for name in sorted(self.benchmarks) if name in specs]

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
            non_blocking=isinstance(request, ScanRequest) and request.non_blocking,
            compares_numbers=isinstance(request, LocateRequest) and request.sdc,
        )

    def chosen_nodes(self, nodes: Sequence[Node]) -> list[Node]:
        named = None if self.request.nodes is None else frozenset(self.request.nodes)
        return [node for node in nodes if named is None or node.name in named]

    def refuse_unknown_to_topology(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        if self.surveyed and not place(self.surveyed, names).nodes:
            is_example = str(self.request.topology) == "example"
            raise UsageError(
                f"the topology knows none of {shorten(names)}: it has "
                f"{shorten(self.surveyed.nodes) or 'no nodes'}"
                + "; --cluster example has these, simulated"
                * is_example
            )

    def simulated_fabric(self) -> Fabric | None:
        """Network of a simulated fleet; real ones have their own."""
        cluster = self.setting.cluster
        if not isinstance(cluster, configs.SimulatedCluster) or not self.request.crosses_fabric:
            return None
        from anubis.lab.simulation.simulated_fleet import members

        all_nodes = members(cluster.fleet)
        nodes = self.chosen_nodes(all_nodes) or all_nodes  # strangers are refused later
        self.refuse_unknown_to_topology(nodes)
        return fabric_between(self.requested, nodes)


def _suite_of_pairs(fabric: Fabric) -> str:
    if not fabric.has_rdma_adapters:
        return "scan"
    several = len(fabric.rails) > 1
    return "scan-rails" if several and rails_share_no_cable(fabric) else "scan-rdma"


def read_request(request: CampaignRequest, caller: Caller) -> Brief:
    """Read every file that the request names, from the cluster's to the criteria."""
    cluster = configs.cluster(request.cluster)
    if isinstance(request, LocateRequest) and request.sdc:  # no node needs to meet another
        own = SUITE_OF_SDC if request.suite == LocateRequest.suite else request.suite
        request = replace(request, suite=own)
    # an acceptance measures the fabric only if it is asked to
    elif isinstance(request, ScanRequest | LocateRequest) and request.topology is None:
        request = replace(request, topology=cluster.topology or None)
    survey, counters = read_fabric(request, cluster, caller)
    pairs = _suite_of_pairs(survey.fabric) if survey else "scan"
    kind, tests = request.kind, request.tests
    crosses_after = request.crosses_fabric and kind.is_signed

    suite = configs.suite(request.suite or (pairs if kind.names_parts else "quick"))
    suite = suite.leave_out(repaired=request.repaired)
    then = configs.suite(pairs) if crosses_after else None
    policy = configs.policy(request.policy)
    folders = (places.shipped_folder("benchmarks"), *request.benchmarks)
    folders = tuple(folder.expanduser().resolve() for folder in folders)
    programs = catalog.load(folders)
    criteria: tuple[CriteriaSet, ...] = ()
    if request.criteria:
        with named_by_request():
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
        setting=Setting(
            cluster=cluster,
            folders=tuple(map(str, folders)),
            by=caller.name(),
            is_by_itself=not criteria,
        ),
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


# --- the fabric that is crossed --------------------------------------------------------------

# remarks on a topology that are about cables and names, and how many of them are shown
OF_CABLES = frozenset(
    {
        "one-sided",
        "contradiction",
        "two-neighbours",
        "same-description",
        "same-device",
        "same-name",
        "twice",
        "node-twice",
    }
)
REMARKS_SHOWN = 4  # remarks on the cabling; the report has all
ON_ONE_SWITCH = "until then all nodes count as being on one switch"


def read_fabric(
    request: CampaignRequest, cluster: configs.Cluster, caller: Caller
) -> tuple[Survey | None, Counters]:
    """Topology of the nodes, and the errors that the ports of their fabric counted before."""
    surveyed = _survey(request, cluster, caller)
    if surveyed is None:
        return None, Counters()
    if fleet := _fleet_on(request.topology, cluster):
        from anubis.lab.simulation.simulated_network import number_ports

        surveyed = replace(surveyed, fabric=number_ports(surveyed.fabric))
    _remark_on(surveyed, request, caller)
    if not request.crosses_fabric:
        return surveyed, Counters()
    if fleet and not request.counters:
        from anubis.lab.simulation.reckoning import counters_of

        return surveyed, counters_of(fleet, surveyed.fabric, request.nodes)
    counted, remarks = count_errors(request.topology, request.counters, request.over_s, caller)
    for remark in remarks:
        caller.remark(str(remark))
    return surveyed, counted


def _fleet_on(topology: str | None, cluster: configs.Cluster) -> SimulatedFleet | None:
    """The simulated fleet that has this topology; None for real nodes, whatever their topology."""
    if isinstance(cluster, configs.SimulatedCluster) and topology == cluster.topology:
        return cluster.fleet
    return None


def _survey(request: CampaignRequest, cluster: configs.Cluster, caller: Caller) -> Survey | None:
    """Read the topology; None if none was named and the fabric does not answer."""
    if request.topology is None:
        if not request.crosses_fabric:
            return None
        if isinstance(cluster, configs.SimulatedCluster):
            caller.remark(f"the cluster's file names no topology; {ON_ONE_SWITCH}")
            return None
    try:
        return survey(request.topology, request.hcas)
    except TopologyError as error:
        if request.topology is not None:
            raise
        caller.remark(f"{error}; {ON_ONE_SWITCH}")
        return None


def _remark_on(surveyed: Survey, request: CampaignRequest, caller: Caller) -> None:
    """Remark what is odd about the cables, and which routes are known."""
    cabling = [finding for finding in surveyed.findings if finding.kind in OF_CABLES]
    for finding in cabling[:REMARKS_SHOWN]:
        caller.remark(f"topology: {finding}")
    if len(surveyed.findings) > len(cabling[:REMARKS_SHOWN]):
        caller.remark(
            f"{len(surveyed.findings):,} remarks on the topology: anubis scan --draw lists them"
        )
    # wall clock: shown to a person, decides nothing
    routes = routes_known(surveyed.fabric, time.time())
    if routes and request.crosses_fabric:
        caller.remark(f"routes: {routes}")
