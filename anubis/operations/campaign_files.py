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
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.config import catalog, configs, criteria_files
from anubis.core.campaign import planning
from anubis.core.errors import (
    ConfigError,
    NothingLearnedError,
    TopologyError,
    UsageError,
    did_you_mean,
)
from anubis.core.fabric import Fabric, Part, Placement, place, single_switch
from anubis.core.judge.units import strip_distance
from anubis.core.network import wiring
from anubis.core.records import (
    PARTS,
    Arrangement,
    Counters,
    CriteriaSet,
    Judgement,
    Node,
    PartVerdict,
    Plan,
    Policy,
    Suite,
)
from anubis.operations.caller import Caller
from anubis.operations.requests import CampaignRequest, LocateRequest, ScanRequest
from anubis.operations.topology import count_errors, routes_known, survey
from anubis.readers.topology.draft import Survey
from anubis.text import hostlist, places
from anubis.text.hostlist import shorten
from anubis.text.reading import read
from anubis.text.wording import quantity

if TYPE_CHECKING:
    from anubis.lab.simulation.simulated_fleet import SimulatedFleet

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
TOLD = 4
ON_ONE_SWITCH = "until then all nodes count as being on one switch"
MET_AT_LEAST = 2  # nodes, before anything crosses the network


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a campaign runs; kept with it, so that it can be resumed without naming it again."""

    cluster: configs.Cluster
    folders: tuple[str, ...]
    by: str = ""  # who began it

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
    suite: Suite
    policy: Policy
    criteria: tuple[CriteriaSet, ...]
    then: Suite | None = None  # for pairs across the fabric, after the suite
    survey: Survey | None = None
    counters: Counters = Counters()

    @property
    def benchmarks(self) -> set[str]:
        further = self.then.benchmarks if self.then else ()
        return {entry.benchmark for entry in (*self.suite.benchmarks, *further)}

    def chosen_nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Nodes that were requested."""
        named = None if self.request.nodes is None else frozenset(self.request.nodes)
        return [node for node in nodes if named is None or node.name in named]

    def fabric(self, nodes: Sequence[Node]) -> Fabric | None:
        """Fabric that pairs of these nodes cross, with the nodes under the names they have here."""
        if not self.request.crosses_fabric:
            return None
        names = [node.name for node in nodes]
        return _place(self.survey, names).fabric if self.survey else single_switch(names)

    def cabling_verdicts(self, plan: Plan) -> tuple[PartVerdict, ...]:
        """Verdicts on anomalies of the nodes' cabling; a plan's fabric already names the nodes that
        the topology lacks."""
        if self.survey is None:
            return ()
        names = [node.name for node in plan.nodes]
        placement = _place(self.survey, names)
        unplaced = () if plan.fabric else placement.unplaced
        odd = wiring.audit(placement.fabric)
        return (*wiring.verdicts_about(odd, frozenset(names)), *map(_unplaced_verdict, unplaced))

    def simulated_fabric(self) -> Fabric | None:
        """Network of a simulated fleet; real ones have their own."""
        cluster = self.setting.cluster
        if not isinstance(cluster, configs.SimulatedCluster) or not self.request.crosses_fabric:
            return None
        from anubis.lab.simulation.simulated_fleet import members

        everybody = members(cluster.fleet)
        return self.fabric(self.chosen_nodes(everybody) or everybody)  # strangers are refused later


def read_request(request: CampaignRequest, caller: Caller) -> Brief:
    folders = (places.shipped_folder("benchmarks"), *request.benchmarks)
    setting = Setting(
        cluster=configs.cluster(request.cluster),
        folders=tuple(str(folder.expanduser().resolve()) for folder in folders),
        by=caller.name(),
    )
    request = _add_own_topology(request, setting.cluster)
    surveyed = _survey(request, setting, caller)
    suite = _suite(request, surveyed)
    beside = request.crosses_fabric and request.kind.is_signed
    return Brief(
        request=request,
        setting=setting,
        suite=suite,
        policy=configs.policy(request.policy),
        criteria=_criteria(request, suite.name),
        then=_pair_suite(None, "covering", surveyed) if beside else None,
        survey=surveyed,
        counters=(
            _counters(request, setting, surveyed, caller)
            if surveyed and request.crosses_fabric
            else Counters()
        ),
    )


def read_setting(text: str) -> Setting:
    return read(json.loads(text), Setting, "the campaign's setting", UsageError)


def make_plan(brief: Brief, nodes: Sequence[Node], programs: catalog.Catalog) -> Plan:
    """Plan for the requested nodes, checked against the policy and the criteria."""
    chosen = brief.chosen_nodes(nodes)
    fabric, then, reason = brief.fabric(chosen), brief.then, _no_fabric_reason(brief, chosen)
    if reason:
        fabric = then = None
    plan = planning.plan(
        brief.suite, chosen, programs.specs, fabric, then=then, stop_early=brief.policy.stop_early
    )
    request = brief.request
    if request.tests is not None:
        plan = planning.narrow(plan, request.tests, request.partners)
    plan = replace(
        plan,
        counters=brief.counters,
        wiring=brief.cabling_verdicts(plan),
        left_out=(*plan.left_out, *([reason] if reason else [])),
    )
    if request.kind.names_parts and fabric:
        _refuse_no_pairs(plan, fabric)
    if request.kind.narrows:
        _refuse_no_groups(plan, brief.suite)
    _refuse_unknown_limits(brief.policy, programs)
    _refuse_unknown_alphas(brief.policy, programs)
    _refuse_unknown_settings(brief.policy, programs)
    _refuse_useless(brief.criteria, plan)
    return plan


# --- the network ---------------------------------------------------------------------------


def _add_own_topology(request: CampaignRequest, cluster: configs.Cluster) -> CampaignRequest:
    """Request with the topology that the cluster's file names, if none is asked for. An acceptance
    measures the fabric only if it is asked to."""
    if isinstance(request, ScanRequest | LocateRequest) and request.topology is None:
        return replace(request, topology=cluster.topology or None)
    return request


def _survey(request: CampaignRequest, setting: Setting, caller: Caller) -> Survey | None:
    """Read the topology; None if none was named and the fabric does not answer."""
    if request.topology is None:
        if not request.crosses_fabric:
            return None
        if isinstance(setting.cluster, configs.SimulatedCluster):
            caller.remark(f"the cluster's file names no topology; {ON_ONE_SWITCH}")
            return None
    try:
        surveyed = survey(request.topology, request.hcas)
    except TopologyError as error:
        if request.topology is not None:
            raise
        caller.remark(f"{error}; {ON_ONE_SWITCH}")
        return None
    cluster = setting.cluster
    if isinstance(cluster, configs.SimulatedCluster) and request.topology == cluster.topology:
        from anubis.lab.simulation.simulated_fabric import (
            number_ports,  # its switches number their ports
        )

        surveyed = replace(surveyed, fabric=number_ports(surveyed.fabric))
    cabling = [finding for finding in surveyed.findings if finding.kind in OF_CABLES]
    for finding in cabling[:TOLD]:
        caller.remark(f"topology: {finding}")
    if len(surveyed.findings) > len(cabling[:TOLD]):
        caller.remark(
            f"{len(surveyed.findings):,} remarks on the topology: anubis topology show lists them"
        )
    # wall clock: shown to a person, decides nothing
    routes = routes_known(surveyed.fabric, time.time())
    if routes and request.crosses_fabric:
        caller.remark(f"routes: {routes}")
    return surveyed


def _place(surveyed: Survey, names: Sequence[str]) -> Placement:
    placement = place(surveyed.fabric, names)
    if not placement.nodes:
        raise UsageError(
            f"the topology knows none of {shorten(names)}: it has "
            f"{shorten(surveyed.fabric.nodes) or 'no nodes'}"
        )
    return placement


def _unplaced_verdict(node: str) -> PartVerdict:
    return PartVerdict(
        parts=(Part("node", node),),
        subject=f"cables of {node}",
        judgement=Judgement.UNKNOWN,
        code="NOT-PLACED",
        reason="this node is missing from the topology",
    )


def _counters(
    request: CampaignRequest, setting: Setting, surveyed: Survey, caller: Caller
) -> Counters:
    """Errors that the ports of the fabric counted before the scan."""
    cluster = setting.cluster
    if (
        isinstance(cluster, configs.SimulatedCluster)
        and request.topology == cluster.topology
        and not request.counters
    ):
        return _simulated_counters(request, cluster.fleet, surveyed)
    counted, remarks = count_errors(request.topology, request.counters, request.over_s, caller)
    for remark in remarks:
        caller.remark(str(remark))
    return counted


def _simulated_counters(
    request: CampaignRequest, fleet: SimulatedFleet, surveyed: Survey
) -> Counters:
    from anubis.lab.simulation.reckoning import network_of
    from anubis.lab.simulation.simulated_network import count_errors as count_simulated_errors

    names = request.nodes or hostlist.expand(fleet.nodes)
    placement = place(surveyed.fabric, names)
    if not placement.nodes:  # strangers are refused later
        return Counters()
    return count_simulated_errors(network_of(fleet, placement.fabric, names))


def _no_fabric_reason(brief: Brief, nodes: Sequence[Node]) -> str:
    """Reason why an acceptance of several nodes measures no network between them; empty if it
    does."""
    request = brief.request
    if not request.kind.is_signed or len(nodes) < MET_AT_LEAST:
        return ""
    unmeasured = "the fabric between the nodes is not measured"
    if not request.crosses_fabric:
        why = "--no-fabric was given" if request.topology else "--topology FILE adds it"
        return f"{unmeasured}: {why}"
    fabric = brief.fabric(nodes)
    in_fabric = {node.name for node in nodes}.intersection(fabric.nodes if fabric else ())
    if len(in_fabric) < MET_AT_LEAST:
        return f"{unmeasured}: of these nodes the topology has {quantity(len(in_fabric), 'node')}"
    return ""


def _refuse_no_pairs(plan: Plan, fabric: Fabric) -> None:
    strangers = [e.workload for p in plan.phases for e in p.entries if e.scope == "node"]
    if strangers:
        raise UsageError(
            f'suite "{plan.suite}" has {strangers[0].benchmark}, which measures single nodes: '
            "a scan takes programs for pairs and groups"
        )
    if len(planning.placed_nodes(plan, fabric)) < MET_AT_LEAST:
        raise UsageError("a scan needs at least two nodes of the topology")


def _refuse_no_groups(plan: Plan, suite: Suite) -> None:
    if not any(entry.groups == PARTS for entry in suite.benchmarks):
        raise UsageError(
            f'suite "{suite.name}" has no benchmark with "groups: parts": locate divides the nodes '
            "until one of these fails no more; configs/suites/locate.yaml shows how"
        )
    if not plan.reproducing:
        raise UsageError("locate needs at least two nodes, to compare some with the others")


# --- the suite -----------------------------------------------------------------------------


def _suite(request: CampaignRequest, surveyed: Survey | None) -> Suite:
    """The named suite; for a scan, with the requested arrangement of pairs."""
    if request.kind.names_parts:
        return _pair_suite(request.suite, request.groups, surveyed)
    suite, chosen = configs.suite(request.suite or "quick"), request.tests
    if chosen is None:
        return suite
    kept = tuple(entry for entry in suite.benchmarks if entry.benchmark in chosen)
    return replace(suite, benchmarks=kept)


def _pair_suite(named: str | None, groups: Arrangement, surveyed: Survey | None) -> Suite:
    """The named suite, or the one that suits the network, with its pairs arranged so."""
    devices = [nic.device for nic in surveyed.fabric.nics] if surveyed else []
    rdma = any(device.startswith(("mlx", "HCA")) for device in devices)
    suite = configs.suite(named or ("scan-rdma" if rdma else "scan"))
    entries = (
        entry if entry.groups == "batches" else replace(entry, groups=groups)
        for entry in suite.benchmarks
    )
    return replace(suite, benchmarks=tuple(entries))


# --- criteria and limits -------------------------------------------------------------------


def _criteria(request: CampaignRequest, suite: str) -> tuple[CriteriaSet, ...]:
    """The criteria to judge by; none for a campaign that learns its own."""
    if request.criteria:
        return criteria_files.load(request.criteria.expanduser(), suite)
    if not request.kind.needs_criteria:
        return ()
    in_use = criteria_in_use(suite)
    if not in_use:
        raise NothingLearnedError(_nothing_learned(f'suite "{suite}"', request.suite or suite))
    return in_use


def criteria_in_use(suite: str) -> tuple[CriteriaSet, ...]:
    """Criteria used unless others are named: for each sku the first found among those learned here,
    those in the working folder, and those shipped."""
    of_sku: dict[str, CriteriaSet] = {}
    for folder in (places.criteria(), Path("criteria"), places.shipped_folder("criteria")):
        if suite in criteria_files.suites(folder):
            for criteria in criteria_files.load(folder, suite):
                of_sku.setdefault(criteria.sku, criteria)
    return tuple(of_sku.values())


def _nothing_learned(subject: str, suite: str) -> str:
    return (
        f"no criteria for {subject} yet: learn them with anubis accept --suite {suite}, "
        "or give --criteria PATH"
    )


def _refuse_useless(criteria: tuple[CriteriaSet, ...], plan: Plan) -> None:
    """Refuse a run in which every verdict would be unknown."""
    if not criteria:
        return
    skus = sorted({node.sku for node in plan.nodes})
    if not any(_concerns(criteria_set, skus) for criteria_set in criteria):
        present = ", ".join(sorted(criteria_set.sku for criteria_set in criteria))
        subject = f'sku "{", ".join(skus)}" in suite "{plan.suite}"'
        raise NothingLearnedError(
            f"{_nothing_learned(subject, plan.suite)} (there are some for {present})"
        )
    _refuse_untrusted(criteria, plan, skus)
    learned = {c.key.workload for criteria_set in criteria for c in criteria_set.criteria}
    planned = plan.workloads
    if learned & planned:
        return
    learned_names = {str(workload) for workload in learned}
    planned_names = {str(workload) for workload in planned}
    hint = (
        "the same benchmarks with other parameters"
        if learned_names & planned_names
        else f"they are for {', '.join(sorted(learned_names)) or 'nothing'}"
    )
    raise NothingLearnedError(
        f"the criteria cover nothing of suite {plan.suite} "
        f"({', '.join(sorted(planned_names))}): {hint}; "
        f"learn them again with anubis accept --suite {plan.suite}"
    )


def _refuse_untrusted(criteria: tuple[CriteriaSet, ...], plan: Plan, skus: Sequence[str]) -> None:
    """Refuse criteria that one machine learned from itself and that cannot be trusted: learning
    again is better than a run that cannot end healthy. Criteria learned from a fleet stay, whatever
    they lack."""
    planned = plan.workloads
    refused = [
        criterion
        for criteria_set in criteria
        for criterion in criteria_set.criteria
        if criterion.refusal
        and criterion.nodes == 1
        and criterion.key.sku in skus
        and criterion.key.workload in planned
    ]
    if refused:
        raise NothingLearnedError(
            f"criteria learned from this one node cannot be trusted for {len(refused)} metrics "
            f"({refused[0].key.workload.benchmark} {refused[0].key.metric}: {refused[0].refusal}): "
            f"learn again with anubis accept --suite {plan.suite}, from 3 or more nodes of its "
            "kind, or with a policy of wider limits, such as --policy shared-machine"
        )


def _concerns(criteria: CriteriaSet, skus: Sequence[str]) -> bool:
    """True if the criteria are of one of these kinds of nodes, or of pairs or groups of them."""
    group = strip_distance(criteria.sku)
    kinds = {group, criteria.nodes_sku, *group.split("+")}
    return any(sku in kinds for sku in skus)


def _refuse_unknown_limits(policy: Policy, programs: catalog.Catalog) -> None:
    """Refuse a limit for a metric that no program measures: it would silently have no effect."""
    for limit in policy.limits:
        spec = programs.specs.get(limit.benchmark)
        if spec and spec.metric(limit.metric) is None:
            hint = did_you_mean(limit.metric, [metric.name for metric in spec.metrics])
            where = f" (limits {limit.table})" if limit.table else ""
            raise ConfigError(
                f'the policy has a limit for "{limit.metric}"{where}, which {limit.benchmark} '
                f"does not measure; {hint}"
            )


def _refuse_unknown_settings(policy: Policy, programs: catalog.Catalog) -> None:
    """Refuse an expectation of a setting that no program reports."""
    names = [setting.name for spec in programs.specs.values() for setting in spec.settings]
    for rule in policy.expectations if names else ():
        if not any(fnmatchcase(name, rule.setting) for name in names):
            raise ConfigError(
                f'the policy expects something of the setting "{rule.setting}", which no program '
                f"reports; {did_you_mean(rule.setting, names)}"
            )


def _refuse_unknown_alphas(policy: Policy, programs: catalog.Catalog) -> None:
    """Refuse an alpha that fits no metric."""
    metrics = [
        (spec.name, metric.name) for spec in programs.specs.values() for metric in spec.metrics
    ]
    for rule in policy.alphas:
        family = replace(rule, metric=rule.metric.partition(":")[0])
        if not any(family.fits(*metric) for metric in metrics):
            name = f"{rule.benchmark} {rule.metric}"
            hint = did_you_mean(name, [" ".join(metric) for metric in metrics])
            raise ConfigError(f'the policy has an alpha for "{name}", which fits no metric; {hint}')
