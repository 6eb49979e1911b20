"""Pool several campaigns into one: all days of a node become one unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from anubis.core.errors import CriteriaError
from anubis.core.judge.units import latest_executions
from anubis.core.records import (
    BenchmarkSpec,
    Campaign,
    Ended,
    Execution,
    MetricSpec,
    Phase,
    Plan,
    Workload,
)

# The node is still to be tried; a crash or a hang is a result.
UNTRIED = {Ended.NOT_RUN, Ended.LOST, Ended.SKIPPED}


@dataclass(frozen=True, kw_only=True)
class CampaignEvidence:
    """The evidence by which a campaign is judged."""

    campaign: Campaign
    executions: Sequence[Execution]
    lost: Mapping[str, str] = field(default_factory=dict)  # nodes, and why
    # nodes whose sku changed: measurements under an earlier sku are left out
    changed: tuple[str, ...] = ()


def join(parts: Sequence[CampaignEvidence]) -> CampaignEvidence:
    """Join campaigns, given in the order in which they began. Kind, policy and criteria are those
    of the last one."""
    if len(parts) == 1:
        return parts[0]
    nodes = [node for part in parts for node in part.campaign.plan.nodes]
    skus = {node.name: node.sku for node in nodes}  # the latest of each
    executions = _executions(parts, skus)
    last = parts[-1].campaign
    return CampaignEvidence(
        campaign=replace(
            last,
            id=", ".join(part.campaign.id for part in parts),
            plan=_plan([part.campaign.plan for part in parts], executions),
            created_at=min(part.campaign.created_at for part in parts),
        ),
        executions=executions,
        lost=_lost_nodes(parts),
        changed=tuple(dict.fromkeys(n.name for n in nodes if n.sku != skus[n.name])),
    )


def _executions(parts: Sequence[CampaignEvidence], skus: Mapping[str, str]) -> list[Execution]:
    """The last try of each step. A step that was not tried is left out if a later campaign tried
    it."""
    kept: list[list[Execution]] = []
    tried_later: set[tuple[Workload, tuple[str, ...]]] = set()
    measured_later: set[str] = set()
    for part in reversed(parts):
        plan = part.campaign.plan
        settled = [
            run
            for run in latest_executions(part.executions)
            if all(plan.sku(node) == skus[node] for node in run.step.participants)
        ]
        kept.append(
            [
                _make_unique(run, part.campaign, measured_later)
                for run in settled
                if run.ended not in UNTRIED or _place(run) not in tried_later
            ]
        )
        tried_later |= {_place(run) for run in settled if run.ended not in UNTRIED}
        measured = (run.step.participants for run in settled if run.ended is Ended.MEASURED)
        measured_later |= set(chain.from_iterable(measured))
    return list(chain.from_iterable(reversed(kept)))


def _place(run: Execution) -> tuple[Workload, tuple[str, ...]]:
    return run.step.workload, run.step.participants


def _make_unique(run: Execution, campaign: Campaign, measured_later: Set[str]) -> Execution:
    """The execution with a step id that is unique among campaigns, which use the same ids. A node
    that was measured later is no longer lost."""
    lost = tuple(node for node in run.lost if node not in measured_later)
    return replace(run, step=replace(run.step, id=f"{run.step.id}@{campaign.id}"), lost=lost)


def _lost_nodes(parts: Iterable[CampaignEvidence]) -> dict[str, str]:
    lost: dict[str, str] = {}
    for part in parts:
        for run in part.executions:
            if run.ended is Ended.MEASURED:
                for node in run.step.participants:
                    lost.pop(node, None)
        lost |= part.lost
    return lost


# --- plans ---------------------------------------------------------------------------------


def _plan(plans: Sequence[Plan], executions: Iterable[Execution]) -> Plan:
    newest_first = plans[::-1]
    fabric = next((plan for plan in newest_first if plan.fabric), plans[-1])
    return replace(
        plans[-1],
        nodes=tuple({node.name: node for plan in plans for node in plan.nodes}.values()),
        phases=_phases(newest_first, executions),
        specs=_specs(plans),
        left_out=tuple(dict.fromkeys(chain.from_iterable(plan.left_out for plan in plans))),
        fabric=fabric.fabric,
        counters=fabric.counters,
        wiring=next((plan.wiring for plan in newest_first if plan.wiring), ()),
    )


def _phases(newest_first: Sequence[Plan], executions: Iterable[Execution]) -> tuple[Phase, ...]:
    """The phases of all plans. Each workload is as in the newest plan, and is planned as often as
    it was measured."""
    measured = Counter(_place(run) for run in executions if run.ended is Ended.MEASURED)
    runs: dict[Workload, int] = {}
    for (workload, _), times in measured.items():
        runs[workload] = max(times, runs.get(workload, 1))
    planned: set[Workload] = set()
    phases: dict[str, Phase] = {}
    for plan in newest_first:
        for phase in plan.phases:
            new = tuple(e for e in phase.entries if e.workload not in planned)
            crosses = plan.fabric is not None and phase.crosses_fabric
            before = phases.get(phase.name, replace(phase, entries=(), crosses_fabric=crosses))
            phases[phase.name] = replace(before, entries=before.entries + new)
            planned |= {entry.workload for entry in new}
    return tuple(
        replace(
            phase,
            entries=tuple(
                replace(e, repeats=runs.get(e.workload, e.repeats)) for e in phase.entries
            ),
        )
        for phase in phases.values()
    )


def _specs(plans: Iterable[Plan]) -> tuple[BenchmarkSpec, ...]:
    specs: dict[tuple[str, str], BenchmarkSpec] = {}
    for spec in chain.from_iterable(plan.specs for plan in plans):
        before = specs.get((spec.name, spec.version), spec)
        specs[spec.name, spec.version] = replace(spec, metrics=_metrics(before, spec))
    return tuple(specs.values())


def _metrics(before: BenchmarkSpec, now: BenchmarkSpec) -> tuple[MetricSpec, ...]:
    metrics = {metric.name: metric for metric in before.metrics}
    for metric in now.metrics:
        earlier = metrics.get(metric.name, metric)
        if (earlier.unit, earlier.direction) != (metric.unit, metric.direction):
            raise CriteriaError(
                f"{now.name}@{now.version} {metric.name} was {earlier.meaning} and became "
                f"{metric.meaning} without a new version: take the later campaigns only"
            )
        metrics[metric.name] = metric
    return tuple(metrics.values())
