"""Plan what a campaign is asked for, or refuse it: the pure step from a request, with everything
that its files say, to a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain

from anubis.core.campaign import planning
from anubis.core.errors import ConfigError, NothingLearnedError, UsageError, did_you_mean
from anubis.core.fabric import Fabric, Part, place, single_switch
from anubis.core.network import wiring
from anubis.core.records import (
    BY_PAIRS,
    MNNVL,
    PARTS,
    Arrangement,
    BenchmarkSpec,
    CampaignKind,
    Counters,
    CriteriaSet,
    Criterion,
    Judgement,
    Node,
    PartVerdict,
    Plan,
    Policy,
    Suite,
    Workload,
    strip_distance,
)

MET_AT_LEAST = 2  # nodes, before anything crosses the network


@dataclass(frozen=True, kw_only=True)
class RequestedCampaign:
    """What is asked of a campaign, with what the files say that the request names."""

    kind: CampaignKind
    suite: Suite
    then: Suite | None = None  # for pairs across the fabric, after the suite
    specs: Mapping[str, BenchmarkSpec]
    policy: Policy
    criteria: tuple[CriteriaSet, ...] = ()
    tests: Mapping[str, Collection[str]] | None = None  # as in a request
    partners: Sequence[str] = ()
    surveyed: Fabric | None = None  # the topology; None if there is none
    crosses_fabric: bool = False
    why_not_crossed: str = ""
    counters: Counters = Counters()
    non_blocking: bool = False  # the fabric is said not to block, and to spray packets
    compares_numbers: bool = False  # of GPUs, so that no group needs to meet


def plan_requested(requested: RequestedCampaign, nodes: Sequence[Node]) -> Plan:
    """Plan for these nodes, checked against the policy and the criteria."""
    fabric, then = fabric_between(requested, nodes), requested.then
    reason = _no_fabric_reason(requested, nodes, fabric)
    if reason:
        fabric = then = None
    policy, specs = requested.policy, requested.specs
    plan = planning.plan(
        requested.suite, nodes, specs, fabric, then=then, stop_early=policy.stop_early
    )
    if requested.tests is not None:
        plan = planning.narrow(plan, requested.tests, requested.partners)
    plan = replace(
        plan,
        counters=requested.counters,
        non_blocking=requested.non_blocking,
        wiring=_cabling_verdicts(requested.surveyed, plan),
        left_out=(*plan.left_out, *([reason] if reason else [])),
    )
    if requested.kind.names_parts and fabric:
        _refuse_no_pairs(plan, fabric)
    if requested.kind.narrows and not requested.compares_numbers:
        _refuse_no_groups(plan, requested.suite)
    _refuse_unknown_limits(policy, specs)
    _refuse_unknown_alphas(policy, specs)
    _refuse_unknown_settings(policy, specs)
    _refuse_useless(requested.criteria, plan)
    return plan


# --- the network ---------------------------------------------------------------------------


def arrange_pairs(suite: Suite, groups: Arrangement) -> Suite:
    entries = (
        entry if entry.groups == "batches" else replace(entry, groups=groups)
        for entry in suite.benchmarks
    )
    return replace(suite, benchmarks=tuple(entries))


def fabric_between(requested: RequestedCampaign, nodes: Sequence[Node]) -> Fabric | None:
    """Fabric that pairs of these nodes cross, with the nodes under the names they have here."""
    if not requested.crosses_fabric:
        return None
    names = [node.name for node in nodes]
    surveyed = requested.surveyed
    fabric = place(surveyed, names).fabric if surveyed else single_switch(names)
    if _goes_by_nvlink(requested.suite, fabric):
        return fabric.nvlink
    if requested.non_blocking:  # and then tables do not say which way packets take
        return replace(fabric, sprays=True, routes=None)
    return fabric


def _goes_by_nvlink(suite: Suite, fabric: Fabric) -> bool:
    """True if the pairs of a suite measure over NVLink; refused if only some do, or if the topology
    has no NVLink domain."""
    ways = {entry.goes_by_nvlink for entry in suite.benchmarks if entry.groups in BY_PAIRS}
    if True not in ways:
        return False
    if False in ways:
        raise UsageError(
            f'suite "{suite.name}" measures pairs over NVLink and over the network: make two suites'
            f" of it, as the one sets {MNNVL}=1 and the other does not"
        )
    if not fabric.domains:
        raise UsageError(
            f'suite "{suite.name}" measures over NVLink, and the topology has no NVLink domain: '
            "pdsh -w NODES nvidia-smi -q | grep -E 'CliqueId|ClusterUUID' >> FILE adds them to it"
        )
    return True


def _cabling_verdicts(surveyed: Fabric | None, plan: Plan) -> tuple[PartVerdict, ...]:
    """Verdicts on anomalies of the nodes' cabling; a plan's fabric already names the nodes that the
    topology lacks."""
    if surveyed is None:
        return ()
    names = [node.name for node in plan.nodes]
    placement = place(surveyed, names)
    unplaced = () if plan.fabric else placement.unplaced
    odd = wiring.audit(placement.fabric)
    return (*wiring.verdicts_about(odd, frozenset(names)), *map(_unplaced_verdict, unplaced))


def _unplaced_verdict(node: str) -> PartVerdict:
    return PartVerdict(
        parts=(Part("node", node),),
        subject=f"cables of {node}",
        judgement=Judgement.UNKNOWN,
        code="NOT-PLACED",
        reason="this node is missing from the topology",
    )


def _no_fabric_reason(
    requested: RequestedCampaign, nodes: Sequence[Node], fabric: Fabric | None
) -> str:
    """Reason why an acceptance of several nodes measures no network between them; empty if it
    does."""
    if not requested.kind.is_signed or len(nodes) < MET_AT_LEAST:
        return ""
    unmeasured = "the fabric between the nodes is not measured"
    if not requested.crosses_fabric:
        return f"{unmeasured}: {requested.why_not_crossed}"
    in_fabric = {node.name for node in nodes}.intersection(fabric.nodes if fabric else ())
    if len(in_fabric) < MET_AT_LEAST:
        has = "1 node" if in_fabric else "0 nodes"
        return f"{unmeasured}: of these nodes the topology has {has}"
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
            "until such a benchmark no longer fails; configs/suites/locate.yaml is an example"
        )
    if not plan.reproducing:
        raise UsageError("locate needs at least two nodes, to compare them")


# --- criteria and limits -------------------------------------------------------------------


def missing_criteria_sentence(subject: str, suite: str) -> str:
    """A sentence that says how to learn criteria for what has none."""
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
            f"{missing_criteria_sentence(subject, plan.suite)} (there are some for {present})"
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
    by_metric: defaultdict[tuple[str, Workload, str], list[Criterion]] = defaultdict(list)
    for criterion in chain.from_iterable(criteria_set.criteria for criteria_set in criteria):
        key = criterion.key
        if key.sku in skus and key.workload in planned:
            by_metric[key.sku, key.workload, key.metric].append(criterion)
    refused = [  # the metric's, of each kind of device
        criterion
        for of_metric in by_metric.values()
        if all(c.refusal and c.nodes == 1 for c in of_metric)
        for criterion in of_metric
    ]
    if refused:
        key, more = refused[0].key, len(refused) - 1
        raise NothingLearnedError(
            f"criteria learned from this one node cannot be trusted for {key.workload.benchmark} "
            f"{key.metric} ({refused[0].refusal})"
            + (f", nor for {more} more of its metrics" if more else "")
            + f": learn again with anubis accept --suite {plan.suite}, from 3 or more nodes of its "
            "kind, or with a policy of wider limits, such as --policy shared-machine"
        )


def _concerns(criteria: CriteriaSet, skus: Sequence[str]) -> bool:
    """True if the criteria are of one of these kinds of nodes, or of pairs or groups of them."""
    group = strip_distance(criteria.sku)
    kinds = {group, criteria.nodes_sku, *group.split("+")}
    return any(sku in kinds for sku in skus)


def _refuse_unknown_limits(policy: Policy, specs: Mapping[str, BenchmarkSpec]) -> None:
    """Refuse a limit for a metric that no program measures: it would silently have no effect."""
    for limit in policy.limits:
        spec = specs.get(limit.benchmark)
        if spec and spec.metric(limit.metric) is None:
            hint = did_you_mean(limit.metric, [metric.name for metric in spec.metrics])
            where = f" (limits {limit.table})" if limit.table else ""
            raise ConfigError(
                f'the policy has a limit for "{limit.metric}"{where}, which {limit.benchmark} '
                f"does not measure; {hint}"
            )


def _refuse_unknown_settings(policy: Policy, specs: Mapping[str, BenchmarkSpec]) -> None:
    """Refuse an expectation of a setting that no program reports."""
    names = [setting.name for spec in specs.values() for setting in spec.settings]
    for rule in policy.expectations if names else ():
        if not any(fnmatchcase(name, rule.setting) for name in names):
            raise ConfigError(
                f'the policy expects a value of the setting "{rule.setting}", which no program '
                f"reports; {did_you_mean(rule.setting, names)}"
            )


def _refuse_unknown_alphas(policy: Policy, specs: Mapping[str, BenchmarkSpec]) -> None:
    """Refuse an alpha that fits no metric."""
    metrics = [(spec.name, metric.name) for spec in specs.values() for metric in spec.metrics]
    for rule in policy.alphas:
        family = replace(rule, metric=rule.metric.partition(":")[0])
        if not any(family.fits(*metric) for metric in metrics):
            name = f"{rule.benchmark} {rule.metric}"
            hint = did_you_mean(name, [" ".join(metric) for metric in metrics])
            raise ConfigError(f'the policy has an alpha for "{name}", which fits no metric; {hint}')
