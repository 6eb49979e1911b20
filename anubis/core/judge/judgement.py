"""Assess a campaign: a verdict on each unit, part and node, by limits and criteria.

The judged unit is the finest one measured: a device of a node, or a group. A node is defective if
any of its devices is. A benchmark that was not measured is unknown, and one that cannot run here is
not applicable; neither ever becomes healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.calibration import FEWEST, SMALL
from anubis.core.judge.combined import combine, is_combined, judge_combined
from anubis.core.judge.criteria import (
    are_too_good,
    doubtful,
    median_of_siblings,
    shortfalls,
    similarities,
    to_similarity,
)
from anubis.core.judge.device_models import match_models
from anubis.core.judge.device_places import split_by_place
from anubis.core.judge.ecdf import goodness
from anubis.core.judge.equality import NodeSettings, judge_settings, settings_of
from anubis.core.judge.faulty_paths import faulty_paths, unmeasured_paths
from anubis.core.judge.foreign_load import CODE as FOREIGN_LOAD
from anubis.core.judge.foreign_load import ForeignLoad, give_back, judge_under_load
from anubis.core.judge.group_verdicts import judge_members, searches
from anubis.core.judge.limits import (
    ANSWERS,
    find_excess,
    limit_of,
    limits_by_metric,
    positions_outside,
)
from anubis.core.judge.missing_values import judge_missing
from anubis.core.judge.node_kinds import assign_by_likeness, kinds_of, split_by_kind
from anubis.core.judge.pair_verdicts import Crossed
from anubis.core.judge.rounding import NONE, find_rounding
from anubis.core.judge.second_measurements import SharedCables, find_suspects, judge_by_both_times
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.unanswered import LOST, judge_silent_rails, judge_unmeasured, judge_unusable
from anubis.core.judge.units import Units, partition, split_model
from anubis.core.judge.verdicts import (
    EXCUSED,
    UNDISTURBED,
    WITHIN,
    batch_verdict_on,
    code_of,
    difference_of_meaning,
    judge_shortfall,
    missing_criterion_reason,
    roll_up,
    verdict_on,
)
from anubis.core.judge.wrong_numbers import (
    NO_SCREENS,
    Screens,
    judge_wrong_numbers,
    name_wrong_bits,
)
from anubis.core.network.attribution import blamed_nodes
from anubis.core.records import (
    TOO_COARSE,
    TOO_FEW_NODES,
    TOO_GOOD,
    WORST_FIRST,
    Assessment,
    BatchVerdict,
    CriteriaSet,
    Criterion,
    Execution,
    Expectation,
    Judgement,
    Limit,
    PartVerdict,
    Plan,
    Samples,
    Verdict,
    Workload,
    criteria_by_key,
)

DISBELIEVED = "too good to be right"


@dataclass(frozen=True)
class Neighbours:
    """Other causes of slow units: pairs on the same cables, and programs on the same node."""

    cables: SharedCables | None
    load: ForeignLoad


@dataclass(frozen=True)
class _KeyVerdicts:
    """The verdicts on comparable units."""

    batch: Sequence[BatchVerdict] = ()
    single: Iterable[Verdict] = ()
    to_confirm: Set[tuple[str, Workload]] = frozenset()


def assess(
    measured: Iterable[Units],
    executions: Collection[Execution],
    plan: Plan,
    criteria: Iterable[CriteriaSet],
    lost: Mapping[str, str],
    *,
    limits: Iterable[Limit] = (),
    expectations: Sequence[Expectation] = (),
    before: Iterable[NodeSettings] = (),
    screens_before: Screens = NO_SCREENS,
    taught_here: Collection[Workload] = (),
    validates: bool = True,
) -> Assessment:
    """All verdicts of a campaign: on units, parts and nodes.

    A limit is applied first. Units within it are then compared with the fleet, unless only limits
    judge their metric. The criteria of `taught_here` come from these very measurements. `lost`
    gives the reason for each lost node, even if no step was lost with it. `before` has the last
    settings that other nodes reported, `screens_before` what earlier screens found. `validates`:
    its programs were ordered here, so a run has all that its program measures.
    """
    criteria, executions = tuple(criteria), list(executions)
    measured = match_models(list(measured), criteria)
    neighbours = Neighbours(_shared_cables(plan, measured), ForeignLoad.from_executions(executions))
    # first, because the GPU or place says more than each of its wrong numbers
    wrong = judge_wrong_numbers(executions)
    of_units = _judge_units(measured, plan, criteria, limits, taught_here, neighbours, wrong)
    batch, of_settings = judge_settings(settings_of(executions, plan), expectations, before)
    alone = [
        *name_wrong_bits([*wrong, *of_units.single], executions, screens_before),
        *of_settings,
        *judge_unmeasured(executions, plan, lost),
        *judge_silent_rails(executions, plan),
        *(judge_missing(executions, plan, criteria) if validates else ()),
        *judge_unusable(executions, plan),
    ]
    attributed = _attribute(alone, [*of_units.batch, *batch], plan, executions, lost)
    return replace(attributed, to_confirm=frozenset(of_units.to_confirm))


def _judge_units(
    measured: Sequence[Units],
    plan: Plan,
    criteria: Sequence[CriteriaSet],
    limits: Iterable[Limit],
    taught_here: Collection[Workload],
    neighbours: Neighbours,
    wrong: Sequence[Verdict],
) -> _KeyVerdicts:
    """The verdicts on all units, by each metric and by all metrics of a program together. `wrong`:
    what was judged before."""
    batch: list[BatchVerdict] = []
    alone: list[Verdict] = []
    to_confirm: set[tuple[str, Workload]] = set()
    for verdicts in _judge_each_key(measured, plan, criteria, limits, taught_here, neighbours):
        batch += verdicts.batch
        alone += verdicts.single
        to_confirm |= verdicts.to_confirm
    combined = list(_judge_together(measured, plan, criteria, neighbours))
    to_confirm |= {(v.participants[0], program) for v, program in combined if program}
    together = _verdicts_that_add((verdict for verdict, _ in combined), [*wrong, *alone])
    return _KeyVerdicts(list(_leave_out(together, batch)), [*alone, *together], to_confirm)


def _attribute(
    alone: list[Verdict],
    batch_verdicts: Sequence[BatchVerdict],
    plan: Plan,
    executions: Sequence[Execution],
    lost: Mapping[str, str],
) -> Assessment:
    """Attribute the verdicts on units to nodes, and to the parts between them."""
    in_suite = [v for v in (*alone, *_group_verdicts(batch_verdicts)) if not plan.crosses(v)]
    crossed = (
        Crossed.from_verdicts(plan, plan.fabric, alone, batch_verdicts, executions)
        if plan.fabric
        else None
    )
    searched = tuple(searches(plan, in_suite, crossed.causes if crossed else (), lost))
    searching = {(w.benchmark, w.parameters) for w in plan.reproducing | plan.in_groups}
    of_pairs = [v for v in in_suite if (v.benchmark, v.parameters) not in searching]
    members = [*judge_members(of_pairs), *chain.from_iterable(s.nodes() for s in searched)]
    passed_over: Iterable[Verdict] = ()
    unmeasured: Iterable[PartVerdict] = ()
    if crossed:
        attributed = [*crossed.nodes, *crossed.weigh(members, in_suite)]
        if not all(phase.crosses_fabric for phase in plan.phases):
            unmeasured = crossed.judge_unmeasured(executions)
            passed_over = crossed.judge_passed_over(
                {v.participants[0] for v in alone if v.code == LOST}
            )
    else:
        attributed = [*members, *blamed_nodes(plan.wiring)]
    nodes = roll_up(plan, [*alone, *passed_over], batch_verdicts, attributed, executions)
    alone = [*alone, *(v for v in attributed if v.judgement is Judgement.DEFECTIVE)]
    alone.sort(key=lambda v: (WORST_FIRST.index(v.judgement), v.similarity or 0.0))
    unsettled = [
        v for v in alone if not plan.crosses(v) and not any(s.settles(v) for s in searched)
    ]
    paths = (
        *faulty_paths(unsettled, nodes),
        *chain.from_iterable(search.parts() for search in searched),
    )
    return Assessment(
        alone=tuple(alone),
        batch_verdicts=tuple(batch_verdicts),
        nodes=nodes,
        parts=(
            *plan.wiring,
            *unmeasured,
            *(crossed.settle(paths) if crossed else paths),
            *unmeasured_paths(in_suite, nodes),
        ),
    )


def _shared_cables(plan: Plan, measured: Iterable[Units]) -> SharedCables | None:
    if plan.fabric is None:
        return None
    return SharedCables.from_units(plan.fabric, partition(measured, plan.crossing)[0])


def _judge_each_key(
    measured: Iterable[Units],
    plan: Plan,
    criteria: Sequence[CriteriaSet],
    limits: Iterable[Limit],
    taught_here: Collection[Workload],
    neighbours: Neighbours,
) -> Iterator[_KeyVerdicts]:
    """Yield, for comparable units at a time, batch verdicts and single verdicts."""
    criterion_of, bounds, kinds = (
        criteria_by_key(criteria),
        limits_by_metric(limits),
        kinds_of(criteria),
    )
    parted = split_by_place(split_by_kind(measured, kinds), criteria)
    for alike in assign_by_likeness(parted, kinds, criterion_of):
        limit = limit_of(alike.key.workload.benchmark, alike.key.metric, bounds)
        if limit:
            alike, defective = _apply_limit(alike, limit)
            yield _KeyVerdicts(single=defective)
        if alike.metric.judged_by == "limit":
            if limit and len(alike):
                yield _KeyVerdicts([batch_verdict_on(alike, Judgement.HEALTHY, "OK", WITHIN)])
            continue
        if not len(alike):
            continue
        criterion = criterion_of.get(alike.key)
        if criterion is None and limit and alike.key.metric.partition(":")[0] == ANSWERS:
            yield _KeyVerdicts([batch_verdict_on(alike, Judgement.HEALTHY, "OK", WITHIN)])
        elif criterion is None:
            reason = missing_criterion_reason(alike.key, criterion_of)
            unknown = batch_verdict_on(alike, Judgement.UNKNOWN, "NO-CRITERION", reason)
            yield _KeyVerdicts([unknown])
        elif reason := difference_of_meaning(criterion, alike.metric):
            unknown = batch_verdict_on(alike, Judgement.UNKNOWN, "NO-CRITERION", reason)
            yield _KeyVerdicts([unknown])
        elif criterion.refusal and not _compares_itself(alike, plan):
            yield _KeyVerdicts([_refused_batch_verdict(alike, criterion)])
        else:
            against_itself = criterion.from_repeats and alike.key.workload in taught_here
            runs = plan.runs(alike.key.workload)
            if criterion.refusal:
                criterion = replace(criterion, reference=_best_group(alike))
            yield _judge(alike, criterion, against_itself, runs, neighbours)


def _judge_together(
    measured: Iterable[Units], plan: Plan, criteria: Sequence[CriteriaSet], neighbours: Neighbours
) -> Iterator[tuple[Verdict, Workload | None]]:
    """Yield verdicts on units that fall short in all metrics of a program together, even with the
    time given back that other programs may have cost; and the program if one more measurement may
    tell them from chance."""
    criterion_of = criteria_by_key(criteria)
    if not any(map(is_combined, criterion_of)):
        return
    at_best = (
        alike if (shares := neighbours.load.shares(alike)) is None else give_back(alike, shares)
        for alike in split_by_kind(measured, kinds_of(criteria))
    )
    for combined in combine(at_best):
        for scores in split_by_place([combined.scores], criteria):
            criterion = criterion_of.get(scores.key)
            if criterion:
                metrics = split_by_place(combined.metrics, criteria)
                parts = [(alike, criterion_of.get(alike.key)) for alike in metrics]
                program = scores.key.workload
                runs = plan.runs(program)
                for verdict, is_in_doubt in judge_combined(scores, criterion, runs, parts):
                    yield verdict, program if is_in_doubt else None


def _verdicts_that_add(together: Iterable[Verdict], alone: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts on all metrics together on units that no metric by itself shows to be as bad."""
    shown = {(v.participants, v.benchmark, v.parameters, v.device, v.judgement) for v in alone}
    return [
        v
        for v in together
        if (v.participants, v.benchmark, v.parameters, v.device, v.judgement) not in shown
    ]


def _leave_out(
    together: Iterable[Verdict], batch_verdicts: Iterable[BatchVerdict]
) -> Iterator[BatchVerdict]:
    """Yield batch verdicts without the healthy units that all metrics together call by the same
    metric: a unit has one verdict on each."""
    named = {(v.participants, v.device, v.benchmark, v.parameters, v.metric) for v in together}
    metrics = {name[2:] for name in named}
    for batch in batch_verdicts:
        metric = batch.benchmark, batch.parameters, batch.metric
        if batch.judgement is not Judgement.HEALTHY or metric not in metrics:
            yield batch
            continue
        units = zip(batch.participants, batch.devices, strict=True)
        kept = np.array([(*unit, *metric) not in named for unit in units])
        if kept.any():
            yield replace(
                batch,
                participants=tuple(compress(batch.participants, kept)),
                devices=tuple(compress(batch.devices, kept)),
                similarities=None if batch.similarities is None else batch.similarities[kept],
            )


def _compares_itself(alike: Units, plan: Plan) -> bool:
    """True if a search made these groups. They differ in few nodes, so they need no majority: a
    blamed node is bad again with others, which are good elsewhere. A node in all of them would slow
    all alike, and be called good."""
    in_all = set(alike.participants[0]).intersection(*alike.participants)
    return alike.key.workload in plan.reproducing and len(alike) > 1 and not in_all


def _best_group(alike: Units) -> Samples:
    """The samples of the best group, or of 16 the second best: most groups of a search may have a
    part that is at fault, and are no norm."""
    direction = alike.metric.direction
    good = [goodness(unit.samples, direction) for unit in alike]
    good.sort(key=lambda samples: float(np.mean(samples)), reverse=True)
    return goodness(good[len(good) // 16], direction)  # its own inverse


def _refused_batch_verdict(alike: Units, criterion: Criterion) -> BatchVerdict:
    kind = alike.key.device_kind
    of_model = f" on {kind}" if split_model(kind)[1] else ""
    return batch_verdict_on(
        alike,
        Judgement.UNKNOWN,
        "CRITERION-REFUSED",
        f"no trusted criterion for {alike.key.metric}{of_model}: {criterion.refusal}",
        similarities(alike.samples, criterion),
        criterion.alpha,
    )


def _apply_limit(alike: Units, limit: Limit) -> tuple[Units, list[Verdict]]:
    """The units within the limit, and a verdict on each of the others."""
    excess = positions_outside(alike, limit)
    if not excess.size:
        return alike, []
    within = np.delete(np.arange(len(alike)), excess)
    benchmark, measure = alike.key.workload.benchmark, alike.metric.unit
    return alike.subset(within), [
        verdict_on(
            unit,
            Judgement.DEFECTIVE,
            code_of(unit.key),
            find_excess(benchmark, unit.series, measure, limit),
        )
        for unit in (alike[int(i)] for i in excess)
    ]


def _judge(
    alike: Units,
    criterion: Criterion,
    against_itself: bool,
    planned_runs: int,
    neighbours: Neighbours,
) -> _KeyVerdicts:
    """Batch verdicts on the healthy units, and a verdict on each of the others."""
    owners = number_nodes(alike.participants)
    short = shortfalls(alike.samples, criterion, owners)
    similarity = to_similarity(short.shortfall(criterion), criterion)
    measured_again = judge_by_both_times(
        alike, criterion, planned_runs, similarity, neighbours.cables
    )
    doubts, excused = measured_again.reasons, measured_again.excused
    under_load = judge_under_load(
        alike, criterion, planned_runs, similarity, doubts, neighbours.load.shares(alike)
    )
    is_within = similarity > criterion.alpha
    too_good = is_within & are_too_good(alike.samples, criterion)
    passed = is_within & ~too_good
    few = np.zeros(len(alike), dtype=bool)
    if criterion.doubt_alpha is not None:
        strict, strictly = doubtful(alike.samples, criterion, owners)
        few = passed & (strictly <= strict.alpha)
    if against_itself:
        normal = "its own repeats"
    elif criterion.from_repeats:
        normal = "those of the one node that its criterion comes from"
    else:
        normal = "the fleet's"
    suspect = measured_again.to_repeat | find_suspects(alike, criterion, planned_runs, short)
    reasons = {
        f"like {normal}": passed & ~excused & ~under_load.excused & ~few,
        f"like {normal}{EXCUSED}": passed & excused & ~few,
        f"like {normal}{UNDISTURBED}": passed & under_load.excused & ~few,
    }
    healthy = [
        batch_verdict_on(
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
    cannot_say, code = _doubt_of(alike, criterion) if few.any() else ("", "")
    unsure = [
        judge_shortfall(alike[i], strict, float(strictly[i]), cannot_say, code_of_doubt=code)
        for i in np.flatnonzero(few).tolist()
    ]
    fallen_short = (
        judge_shortfall(
            alike[i],
            criterion,
            float(similarity[i]),
            doubts.get(i) or under_load.doubts.get(i, ""),
            _normal_of_siblings(alike, i, owners, criterion),
            "UNSTABLE" if i in doubts else FOREIGN_LOAD,
        )
        for i in np.flatnonzero(~is_within).tolist()
    )
    unbelievable = (
        judge_shortfall(alike[i], criterion, 1.0, DISBELIEVED, code_of_doubt=TOO_GOOD)
        for i in np.flatnonzero(too_good).tolist()
    )
    return _KeyVerdicts(
        healthy,
        chain(fallen_short, unsure, unbelievable),
        to_confirm={
            (alike.participants[i][0], alike.key.workload) for i in np.flatnonzero(suspect)
        },
    )


def _doubt_of(alike: Units, criterion: Criterion) -> tuple[str, str]:
    """The reason why a loss beyond alpha may be no defect, and its code."""
    are_rounded = find_rounding(alike.samples) is not NONE
    if criterion.nodes < (FEWEST if are_rounded else SMALL):
        few = f"{criterion.nodes} nodes are too few to say whether this is a defect"
        return few, TOO_FEW_NODES
    return "values are recorded in steps too coarse to say whether this is a defect", TOO_COARSE


def _normal_of_siblings(
    alike: Units, i: int, owners: Ints | None, criterion: Criterion
) -> float | None:
    """The usual median of the siblings of a unit, if it falls short of them only."""
    if owners is None:
        return None
    of_node = np.flatnonzero(owners == owners[i]).tolist()
    samples = [alike[k].samples for k in of_node]
    return median_of_siblings(samples, of_node.index(i), criterion)


def _group_verdicts(batch_verdicts: Iterable[BatchVerdict]) -> Iterable[Verdict]:
    return (
        v
        for batch_verdict in batch_verdicts
        if len(batch_verdict.participants[0]) > 1
        for v in batch_verdict
    )


def mark_unfinished(assessment: Assessment) -> Assessment:
    """The assessment of a campaign that was cut short: its healthy nodes become unknown, because a
    test that did not run might show a defect."""
    nodes = tuple(
        replace(
            node,
            judgement=Judgement.UNKNOWN,
            code="NOT-FINISHED",
            reason=f"not all was measured; so far {node.reason}",
        )
        if node.judgement is Judgement.HEALTHY
        else node
        for node in assessment.nodes
    )
    return replace(assessment, nodes=nodes)
