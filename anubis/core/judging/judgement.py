"""From the units of a campaign to its assessment: by limits and criteria, a verdict on each unit,
part and node.

The unit that is judged is the finest one measured: a device of a node, or a group. A node is
defective if any of its devices is. What was not measured is unknown; what cannot run here is not
applicable; neither ever becomes healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from anubis.core.judging.criteria import similarities
from anubis.core.judging.faulty_paths import faulty_paths
from anubis.core.judging.groups import judge_members
from anubis.core.judging.kinds import by_kind, by_likeness, kinds_of
from anubis.core.judging.limits import by_metric, limit_of, outside, sentence
from anubis.core.judging.roll_up import roll_up
from anubis.core.judging.twice import SharedCables, judge_by_both_times
from anubis.core.judging.units import Units
from anubis.core.judging.unmeasured import judge_unmeasured
from anubis.core.judging.verdicts import (
    EXCUSED,
    WITHIN,
    code_of,
    judge_shortfall,
    ruling_on,
    verdict_on,
    why_no_criterion,
)
from anubis.core.network.attribution import blamed_nodes, node_verdicts, part_verdicts
from anubis.core.network.traffic import observe_traffic, undisturbed_meetings
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    CriteriaSet,
    Criterion,
    Execution,
    Judgement,
    Limit,
    Plan,
    Ruling,
    Verdict,
    by_key,
)


def assess(
    measured: Iterable[Units],
    executions: Collection[Execution],
    plan: Plan,
    criteria: Iterable[CriteriaSet],
    lost: Mapping[str, str],
    *,
    limits: Iterable[Limit] = (),
    learned_here: bool = False,
) -> Assessment:
    """All verdicts on what was run, and the verdict on each node.

    A limit comes first; what is within it is then compared with the fleet, unless its metric is a
    fact that only limits judge. `learned_here` says that the criteria come from these very
    measurements. `lost` gives the reason for each lost node, even if no step was lost with it.
    """
    measured = list(measured)
    shared = SharedCables.of(plan.fabric, measured) if plan.fabric else None
    alone: list[Verdict] = []
    rulings: list[Ruling] = []
    for ruled, verdicts in _judge_each_key(
        measured, plan, tuple(criteria), limits, learned_here, shared
    ):
        rulings += ruled
        alone += verdicts
    alone += judge_unmeasured(executions, plan, lost)
    if plan.fabric:
        undisturbed = undisturbed_meetings(executions)
        traffic = observe_traffic(plan.fabric, alone, rulings, undisturbed)
        parts = (*plan.wiring, *part_verdicts(plan.fabric, traffic, plan.counters))
        attributed = list(node_verdicts(plan, plan.fabric, traffic, parts))
    else:
        parts = plan.wiring
        attributed = list(judge_members([*alone, *_group_verdicts(rulings)]))
        attributed += blamed_nodes(parts)
    nodes = roll_up(plan, alone, rulings, attributed)
    alone += [verdict for verdict in attributed if verdict.judgement is Judgement.DEFECTIVE]
    alone.sort(
        key=lambda verdict: (WORST_FIRST.index(verdict.judgement), verdict.similarity or 0.0)
    )
    return Assessment(
        alone=tuple(alone),
        rulings=tuple(rulings),
        nodes=nodes,
        parts=parts if plan.fabric else (*parts, *faulty_paths(alone, nodes)),
    )


def _judge_each_key(
    measured: Iterable[Units],
    plan: Plan,
    criteria: Sequence[CriteriaSet],
    limits: Iterable[Limit],
    learned_here: bool,
    shared: SharedCables | None,
) -> Iterator[tuple[list[Ruling], Iterable[Verdict]]]:
    """Of comparable units at a time: rulings on many, and verdicts of their own on the others."""
    criterion_of, bounds, kinds = by_key(criteria), by_metric(limits), kinds_of(criteria)
    for alike in by_likeness(by_kind(measured, kinds), kinds, criterion_of):
        limit = limit_of(alike.key, bounds)
        if limit:
            alike, defective = _apply_limit(alike, limit)
            yield [], defective
        if alike.metric.judged_by == "limit":
            if limit and len(alike):
                yield [ruling_on(alike, Judgement.HEALTHY, "OK", WITHIN)], []
            continue
        if not len(alike):
            continue
        criterion = criterion_of.get(alike.key)
        if criterion is None:
            reason = why_no_criterion(alike.key, criterion_of)
            yield [ruling_on(alike, Judgement.UNKNOWN, "NO-CRITERION", reason)], []
        elif criterion.refusal:
            yield [_refused(alike, criterion)], []
        else:
            against_itself = learned_here and criterion.from_repeats
            runs = plan.runs(alike.key.workload)
            yield _judge(alike, criterion, against_itself, runs, shared)


def _refused(alike: Units, criterion: Criterion) -> Ruling:
    return ruling_on(
        alike,
        Judgement.UNKNOWN,
        "CRITERION-REFUSED",
        f"no trusted criterion: {criterion.refusal}",
        similarities(alike.samples, criterion),
        criterion.alpha,
    )


def _apply_limit(alike: Units, limit: Limit) -> tuple[Units, list[Verdict]]:
    """The units within the limit, and a verdict on each of the others."""
    excess = outside(alike, limit)
    if not excess.size:
        return alike, []
    within = np.delete(np.arange(len(alike)), excess)
    return alike.subset(within), [
        verdict_on(unit, Judgement.DEFECTIVE, code_of(unit.key), sentence(unit, limit))
        for unit in (alike[int(i)] for i in excess)
    ]


def _judge(
    alike: Units,
    criterion: Criterion,
    against_itself: bool,
    planned_runs: int,
    shared: SharedCables | None,
) -> tuple[list[Ruling], Iterable[Verdict]]:
    """Rulings for the healthy units, and a verdict of its own for each of the others."""
    similarity = similarities(alike.samples, criterion)
    doubts, excused = judge_by_both_times(alike, criterion, planned_runs, similarity, shared)
    passed = similarity > criterion.alpha
    whom = "the one node that taught them" if criterion.from_repeats else "the fleet"
    whom = "its own repeats" if against_itself else whom
    reasons = {f"as {whom}": passed & ~excused, f"as {whom}{EXCUSED}": passed & excused}
    healthy = [
        ruling_on(
            alike,
            Judgement.HEALTHY,
            "OK",
            reason,
            similarity,
            criterion.alpha,
            np.flatnonzero(chosen),
        )
        for reason, chosen in reasons.items()
        if chosen.any()
    ]
    if against_itself:
        doubts = dict.fromkeys(range(len(alike)), "its own repeats disagree")
    fallen_short = (
        judge_shortfall(alike[i], criterion, float(similarity[i]), doubts.get(i, ""))
        for i in np.flatnonzero(~passed).tolist()
    )
    return healthy, fallen_short


def _group_verdicts(rulings: Iterable[Ruling]) -> Iterable[Verdict]:
    return (v for ruling in rulings if len(ruling.participants[0]) > 1 for v in ruling)
