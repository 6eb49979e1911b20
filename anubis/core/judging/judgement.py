"""From the units of a campaign to verdicts: criteria, judgement, and the verdict on each node.

The unit that is judged is the finest one measured: a device of a node, or a group. A node is
defective if any of its devices is. What was not measured is unknown; what cannot run here is not
applicable; neither ever becomes healthy.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

import numpy as np

from anubis.core.arrays import Flags, Ints
from anubis.core.judging.conclusion import faulty_paths
from anubis.core.judging.criteria import learn, similarities
from anubis.core.judging.groups import blame, cast_votes, slow_together
from anubis.core.judging.kinds import by_kind, by_likeness, find_kinds, is_of_no_kind, kinds_of
from anubis.core.judging.limits import by_metric, limit_of, outside, sentence
from anubis.core.judging.software import Versions
from anubis.core.judging.units import Unit, Units, without_distance
from anubis.core.judging.unmeasured import judge_unmeasured
from anubis.core.network.attribution import blamed_nodes, node_verdicts, part_verdicts
from anubis.core.network.sharing import LEAST_LOST, CableUse
from anubis.core.network.traffic import observe_traffic
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    CriteriaSet,
    Criterion,
    CriterionKey,
    Execution,
    Judgement,
    Limit,
    NodeVerdict,
    Plan,
    Policy,
    Provenance,
    Ruling,
    Samples,
    Verdict,
    Workload,
    by_key,
)

WITHIN = "within its limit"
EXCUSED = " when measured again; before, it may have shared a cable with another pair"
FAST = 0.9  # quantile of what pairs reach
STALLED = 20.0  # times worse than fast pairs at any distance: nothing arrives there
GOOD = 2 / 3  # of the limit: what was once no further off than that was good that time
ASPECTS: dict[str, Callable[[CriterionKey], str]] = {  # of a key; the first to differ is named
    "version": lambda key: key.workload.version,
    "sku": lambda key: key.sku,
    "parameters": lambda key: key.workload.parameters,
    "device": lambda key: key.device_kind,
    "metric": lambda key: key.metric,
}


# --- learning ------------------------------------------------------------------------------


def learn_criteria(
    measured: Iterable[Units],
    policy: Policy,
    *,
    suite: str,
    anubis: str,
    created_at: str,
    versions: Mapping[str, Versions] = MappingProxyType({}),
    learned: Iterable[CriteriaSet] = (),
    start: Iterable[CriteriaSet] = (),
) -> tuple[CriteriaSet, ...]:
    """One set of criteria per SKU, or per kind of nodes where one SKU has several, from all units
    measured; those already `learned` are kept.

    Metrics that only limits judge are left out. `versions` are kept, by SKU. Learning starts from
    the earlier criteria in `start`.
    """
    learned, measured = tuple(learned), tuple(measured)
    kinds = kinds_of(learned)
    kinds += find_kinds(measured, policy, {kind.sku for kind in kinds})
    kind_of = {kind.label: kind for kind in kinds}
    measured = list(by_kind(measured, kinds))
    together = _judged_together(measured)
    before = by_key(start)
    criterion_of = by_key(learned)
    by_sku: defaultdict[str, list[Criterion]] = defaultdict(list)
    digests: defaultdict[str, list[bytes]] = defaultdict(list)
    orders: dict[tuple[object, object], tuple[Ints, bytes]] = {}
    fastest: dict[CriterionKey, float] = {}
    for alike in measured:
        if alike.metric.judged_by == "limit" or is_of_no_kind(alike, kinds):
            continue
        _note_fastest(alike, fastest)
        sku = alike.key.sku
        criterion = criterion_of.get(alike.key) or _learn(
            alike, policy, before.get(alike.key), together[sku, alike.key.workload]
        )
        by_sku[sku].append(criterion)
        parts = alike.participants, alike.devices
        if parts not in orders:  # many metrics were measured on the same parts
            orders[parts] = _order_of(alike)
        digests[sku].append(_digest(alike, *orders[parts]))
    return tuple(
        CriteriaSet(
            sku=sku,
            criteria=tuple(sorted((_unless_stalled(c, fastest) for c in by_sku[sku]), key=_order)),
            provenance=Provenance(
                suite=suite,
                anubis=anubis,
                digest=hashlib.sha256(b"".join(sorted(digests[sku]))).hexdigest()[:16],
                created_at=created_at,
                versions=versions.get(kind_of[sku].sku if sku in kind_of else sku, {}),
            ),
            node_kind=kind_of.get(sku),
        )
        for sku in sorted(by_sku)
    )


def _judged_together(measured: Iterable[Units]) -> Mapping[tuple[str, Workload], float]:
    """How many units of each program judge one node, or one group, on average."""
    together: defaultdict[tuple[str, Workload], float] = defaultdict(float)
    for alike in measured:
        if alike.metric.judged_by == "fleet":
            on_each = len(alike) / len(set(alike.participants))
            together[alike.key.sku, alike.key.workload] += on_each
    return together


def _learn(alike: Units, policy: Policy, start: Criterion | None, together: float) -> Criterion:
    alone = len(set(alike.participants)) == 1
    from_repeats = alone and len(alike) < policy.min_units
    grouped = not from_repeats and max(map(len, alike.participants)) > 1
    key = alike.key
    policy = policy.for_metric(key.workload.benchmark, key.metric)
    return learn(
        alike.repeats if from_repeats else alike.samples,
        key=key,
        metric=alike.metric,
        nodes=len(set(chain.from_iterable(alike.participants))),
        policy=policy,
        votes=_votes(alike) if grouped else None,
        from_repeats=from_repeats,
        start=start,
        together=together,
    )


def _at_any_distance(key: CriterionKey) -> CriterionKey:
    return replace(key, sku=without_distance(key.sku))


def _note_fastest(pairs: Units, fastest: dict[CriterionKey, float]) -> None:
    """What the fast pairs reach, at whatever distance that is most."""
    key = _at_any_distance(pairs.key)
    if key == pairs.key:
        return
    lower = pairs.metric.direction == "lower"
    fast = float(np.quantile(pairs.medians, 1 - FAST if lower else FAST))
    fastest[key] = (min if lower else max)(fastest.get(key, fast), fast)


def _unless_stalled(criterion: Criterion, fastest: Mapping[CriterionKey, float]) -> Criterion:
    """Where most pairs at a distance get nothing through, that is not what is normal there."""
    fast = fastest.get(_at_any_distance(criterion.key))
    if fast is None:
        return criterion
    median = float(np.median(criterion.reference))
    worse = {"higher": fast / median, "lower": median / fast, "either": 1.0}
    if worse[criterion.direction] < STALLED:
        return criterion
    return replace(
        criterion,
        refusal=f"what most pairs reach here, {median:,.4g} {criterion.unit}, is "
        f"{worse[criterion.direction]:,.0f} times worse than what fast pairs reach, {fast:,.4g}",
    )


def _votes(groups: Units) -> list[int]:
    """Each node votes for one of its best groups; a group may speak for several nodes or none."""
    sign = -1 if groups.metric.direction == "lower" else 1
    return cast_votes(groups.participants, (sign * groups.medians).tolist())


def _order_of(alike: Units) -> tuple[Ints, bytes]:
    """The units by name, and a digest of the names in that order."""
    names = list(zip(alike.participants, alike.devices, strict=True))
    order = sorted(range(len(names)), key=names.__getitem__)
    digest = hashlib.sha256(repr([names[i] for i in order]).encode()).digest()
    return np.array(order), digest


def _digest(alike: Units, order: Ints, names: bytes) -> bytes:
    """A digest of what was measured, independent of the order of arrival."""
    samples = alike.samples
    if isinstance(samples, np.ndarray):
        sizes, values = [samples.shape[1]], samples[order].tobytes()
    else:
        sizes = [samples[i].size for i in order]
        values = b"".join(samples[i].tobytes() for i in order)
    return hashlib.sha256(repr((alike.key, sizes)).encode() + names + values).digest()


def _order(criterion: Criterion) -> tuple[str, ...]:
    workload = criterion.key.workload
    return (
        workload.benchmark,
        workload.version,
        workload.parameters,
        criterion.key.metric,
        criterion.key.device_kind,
    )


# --- judging -------------------------------------------------------------------------------


def assess(
    measured: Iterable[Units],
    executions: Iterable[Execution],
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
    criteria = tuple(criteria)
    criterion_of = by_key(criteria)
    bounds = by_metric(limits)
    use = CableUse(plan.fabric) if plan.fabric else None
    alone: list[Verdict] = []
    rulings: list[Ruling] = []
    kinds = kinds_of(criteria)
    for alike in by_likeness(by_kind(measured, kinds), kinds, criterion_of):
        limit = limit_of(alike.key, bounds)
        if limit:
            alike, defective = _apply_limit(alike, limit)
            alone += defective
        if alike.metric.judged_by == "limit":
            if limit and len(alike):
                rulings.append(_ruling(alike, Judgement.HEALTHY, "OK", WITHIN))
            continue
        if not len(alike):
            continue
        criterion = criterion_of.get(alike.key)
        if criterion is None:
            reason = _no_criterion(alike.key, criterion_of)
            rulings.append(_ruling(alike, Judgement.UNKNOWN, "NO-CRITERION", reason))
        elif criterion.refusal:
            reason = f"no trusted criterion: {criterion.refusal}"
            ruling = _ruling(
                alike,
                Judgement.UNKNOWN,
                "CRITERION-REFUSED",
                reason,
                similarities(alike.samples, criterion),
                criterion.alpha,
            )
            rulings.append(ruling)
        else:
            against_itself = learned_here and criterion.from_repeats
            runs = plan.runs(alike.key.workload)
            healthy, fallen_short = _judge(alike, criterion, against_itself, runs, use)
            rulings += healthy
            alone += fallen_short
    alone += judge_unmeasured(executions, plan, lost)
    if plan.fabric:
        traffic = observe_traffic(plan.fabric, alone, rulings)
        parts = (*plan.wiring, *part_verdicts(plan.fabric, traffic, plan.counters))
        attributed = list(node_verdicts(plan, plan.fabric, traffic, parts))
    else:
        parts = plan.wiring
        attributed = list(_judge_members([*alone, *_group_verdicts(rulings)]))
        attributed += blamed_nodes(parts)
    nodes = _roll_up(plan, alone, rulings, attributed)
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


def _apply_limit(alike: Units, limit: Limit) -> tuple[Units, list[Verdict]]:
    """The units within the limit, and a verdict on each of the others."""
    excess = outside(alike, limit)
    if not excess.size:
        return alike, []
    within = np.delete(np.arange(len(alike)), excess)
    return alike.subset(within), [
        _verdict(unit, Judgement.DEFECTIVE, _code(unit.key), sentence(unit, limit))
        for unit in (alike[int(i)] for i in excess)
    ]


def _judge(
    alike: Units,
    criterion: Criterion,
    against_itself: bool,
    planned_runs: int,
    use: CableUse | None,
) -> tuple[list[Ruling], Iterable[Verdict]]:
    """Rulings for the healthy units, and a verdict of its own for each of the others."""
    similarity = similarities(alike.samples, criterion)
    doubts, excused = _judge_by_both_times(alike, criterion, planned_runs, similarity, use)
    passed = similarity > criterion.alpha
    whom = "the one node that taught them" if criterion.from_repeats else "the fleet"
    whom = "its own repeats" if against_itself else whom
    reasons = {f"as {whom}": passed & ~excused, f"as {whom}{EXCUSED}": passed & excused}
    healthy = [
        _ruling(
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
        _fallen_short(alike[i], criterion, float(similarity[i]), doubts.get(i, ""))
        for i in np.flatnonzero(~passed).tolist()
    )
    return healthy, fallen_short


def _may_share(use: CableUse | None, participants: Sequence[str]) -> bool:
    """Whether a pair may have been slow because another one took the same cable."""
    match participants:
        case (first, second) if use is not None:
            return use.is_shared_by_chance((first, second))
    return False


def _judge_by_both_times(
    alike: Units,
    criterion: Criterion,
    planned_runs: int,
    similarity: Samples,
    use: CableUse | None,
) -> tuple[dict[int, str], Flags]:
    """What was measured again counts by the mean of both distances, which is put in its place.

    Why some that fall short by it are in doubt: bad one time and good the other, or no worse again
    than the healthy nodes that were measured beside it. And which are excused: a pair that was good
    once counts by that, where it may have shared a cable the other time.
    """
    again = np.flatnonzero(np.diff(alike.firsts) > planned_runs).tolist()
    times = {i: _similarity_of_each_time(alike[i], criterion, planned_runs) for i in again}
    limit = 1 - criterion.alpha
    alone = [i for i in again if len(alike.participants[i]) == 1]
    controls = [i for i in alone if 1 - times[i][0] <= GOOD * limit]
    upset = [i for i in controls if 1 - times[i][1] >= limit]
    doubts, excused = {}, np.zeros(len(alike), dtype=bool)
    for i, (first, second) in times.items():
        similarity[i] = (first + second) / 2
        if 1 - min(first, second) > LEAST_LOST and _may_share(use, alike.participants[i]):
            best = _best_of_all_times(alike[i], criterion, planned_runs)
            excused[i] = best > criterion.alpha
        if excused[i]:
            similarity[i] = best
        elif 1 - second <= GOOD * limit:
            doubts[i] = "good when it was measured again"
        elif 1 - first <= GOOD * limit:
            doubts[i] = "good when it was measured first"
        elif upset and len(upset) == len(controls):
            beside = ", ".join(alike.participants[upset[0]])
            doubts[i] = f"when it was measured again, {beside} fell short too"
    return doubts, excused


def _similarity_of_each_time(
    unit: Unit, criterion: Criterion, planned_runs: int
) -> tuple[float, float]:
    """As planned, and measured again because it fell short."""
    planned, again = unit.repeats[:planned_runs], unit.repeats[planned_runs:]
    samples = [np.concatenate(planned), np.concatenate(again)]
    first, second = similarities(samples, criterion).tolist()
    return first, second


def _best_of_all_times(unit: Unit, criterion: Criterion, planned_runs: int) -> float:
    """A pair that shared a cable may do so again."""
    times = [
        np.concatenate(unit.repeats[begin : begin + planned_runs])
        for begin in range(0, len(unit.repeats), planned_runs)
    ]
    return float(similarities(times, criterion).max())


def _fallen_short(unit: Unit, criterion: Criterion, similarity: float, doubt: str) -> Verdict:
    reason = _shortcoming(unit, criterion, similarity)
    judgement, code = Judgement.DEFECTIVE, _code(unit.key)
    if doubt:
        judgement, code = Judgement.UNKNOWN, "UNSTABLE"
        reason = f"{doubt}: {reason}"
    return _verdict(unit, judgement, code, reason, similarity, criterion.alpha)


def _verdict(
    unit: Unit,
    judgement: Judgement,
    code: str,
    reason: str,
    similarity: float | None = None,
    alpha: float | None = None,
) -> Verdict:
    return Verdict(
        participants=unit.participants,
        benchmark=unit.key.workload.benchmark,
        parameters=unit.key.workload.parameters,
        metric=unit.key.metric,
        device=unit.device,
        judgement=judgement,
        code=code,
        reason=reason,
        similarity=similarity,
        alpha=alpha,
    )


def _ruling(
    alike: Units,
    judgement: Judgement,
    code: str,
    reason: str,
    similarities: Samples | None = None,
    alpha: float | None = None,
    chosen: Ints | None = None,
) -> Ruling:
    participants, devices = alike.participants, alike.devices
    if chosen is not None and chosen.size < len(alike):
        participants = tuple(participants[i] for i in chosen)
        devices = tuple(devices[i] for i in chosen)
        similarities = None if similarities is None else similarities[chosen]
    return Ruling(
        benchmark=alike.key.workload.benchmark,
        parameters=alike.key.workload.parameters,
        metric=alike.key.metric,
        judgement=judgement,
        code=code,
        reason=reason,
        alpha=alpha,
        participants=participants,
        devices=devices,
        similarities=similarities,
    )


def _code(key: CriterionKey) -> str:
    """One stable code per (benchmark, metric), for machines that act on it."""
    return f"{key.workload.benchmark}.{key.metric}".upper().replace(":", ".")


def _shortcoming(unit: Unit, criterion: Criterion, similarity: float) -> str:
    """The sentence an operator acts on: how far off, in the metric's own unit."""
    measured, normal = float(np.median(unit.samples)), float(np.median(criterion.reference))
    change = abs(measured / normal - 1)
    word = "below" if measured < normal else "above"
    amount = f"{change:.0%} {word} normal" if change >= 0.005 else "slow in its tail"
    measure = "" if criterion.unit == "1" else f" {criterion.unit}"
    return (
        f"{unit.key.metric} on {unit.device} {amount}: median {measured:.4g}{measure}, "
        f"normal {normal:.4g} (similarity {similarity:.3f}, limit {criterion.alpha:g})"
    )


def _no_criterion(key: CriterionKey, keys: Iterable[CriterionKey]) -> str:
    """Why no criterion applies: the nearest one, and how it differs."""
    nearest = [k for k in keys if k.workload.benchmark == key.workload.benchmark]
    if not nearest:
        return f"the criteria do not cover {key.workload.benchmark}"
    for aspect, of in ASPECTS.items():
        alike = [k for k in nearest if of(k) == of(key)]
        if not alike:
            covered = '", "'.join(sorted({of(k) for k in nearest}))
            return f'the criteria are for {aspect} "{covered}", this is "{of(key)}"'
        nearest = alike
    raise AssertionError(f"{key} is known")


# --- nodes ---------------------------------------------------------------------------------


def _group_verdicts(rulings: Iterable[Ruling]) -> Iterable[Verdict]:
    return (v for ruling in rulings if len(ruling.participants[0]) > 1 for v in ruling)


def _judge_members(verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
    """Verdicts on single nodes from the groups of each benchmark and metric."""
    by_metric: defaultdict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    good: set[tuple[str, str]] = set()
    for verdict in verdicts:
        if len(verdict.participants) > 1:
            by_metric[verdict.benchmark, verdict.parameters, verdict.metric].append(verdict)
            if verdict.judgement is Judgement.HEALTHY:
                good.update((verdict.benchmark, name) for name in verdict.participants)
    for (benchmark, _, _), groups in by_metric.items():
        bad = {
            verdict.participants: verdict.judgement is Judgement.DEFECTIVE
            for verdict in groups
            if verdict.judgement in (Judgement.DEFECTIVE, Judgement.HEALTHY)
        }
        blamed = blame(bad)
        between = slow_together(bad)
        if between:
            worst = min(groups, key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            reason = f"slow only together, good in {_count_good(bad)} other groups: {worst.reason}"
            yield replace(worst, participants=between, reason=reason)
        members = dict.fromkeys(name for verdict in groups for name in verdict.participants)
        for name in members:
            own = [verdict for verdict in groups if name in verdict.participants]
            own.sort(key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            if name in blamed:
                yield replace(own[0], participants=(name,), reason=_evidence(name, own))
            elif (benchmark, name) in good:
                continue  # a good group proves the node; a bad one then speaks of a link
            elif own[0].judgement is Judgement.DEFECTIVE:
                yield replace(
                    own[0],
                    participants=(name,),
                    judgement=Judgement.UNKNOWN,
                    code="CANNOT-TELL-APART",
                    reason=f"in a slow group of {benchmark} with others that no good group clears",
                )
            else:
                yield replace(own[0], participants=(name,))


def _count_good(groups: Mapping[tuple[str, ...], bool]) -> int:
    return sum(not bad for bad in groups.values())


def _evidence(name: str, own: Sequence[Verdict]) -> str:
    partners = [p for v in own for p in v.participants if p != name]
    shown = ", ".join(sorted(dict.fromkeys(partners))[:4])
    return f"slow with every partner ({shown}), each of which does well elsewhere: {own[0].reason}"


def _roll_up(
    plan: Plan, alone: Iterable[Verdict], rulings: Iterable[Ruling], attributed: Iterable[Verdict]
) -> tuple[NodeVerdict, ...]:
    """Each node by its worst own verdict; a good group counts for all its nodes. A partner that
    nobody had to meet was not asked about."""
    own: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in (v for v in (*attributed, *alone) if len(v.participants) == 1):
        own[verdict.participants[0]].append(verdict)
    passed: Counter[str] = Counter()
    how: dict[str, None] = {}
    for ruling in rulings:
        if ruling.judgement is Judgement.HEALTHY:
            passed.update(chain.from_iterable(ruling.participants))
            how[ruling.reason.removesuffix(EXCUSED)] = None
        elif len(ruling.participants[0]) == 1:
            for verdict in ruling:
                own[verdict.participants[0]].append(verdict)
    tested = {name for p in plan.phases for e in p.entries for name in e.nodes or ()}
    partners = set(plan.partners) - tested
    unmet = {name for name in partners if not own[name] and not passed[name]}
    return tuple(
        _node_verdict(node.name, own[node.name], passed[node.name], tuple(how))
        for node in plan.nodes
        if node.name not in unmet
    )


def _node_verdict(
    node: str, own: Sequence[Verdict], passed: int, how: Sequence[str]
) -> NodeVerdict:
    counted = {judgement: [v for v in own if v.judgement is judgement] for judgement in Judgement}
    if counted[Judgement.DEFECTIVE]:
        worst = counted[Judgement.DEFECTIVE]
    elif counted[Judgement.UNKNOWN]:
        worst = counted[Judgement.UNKNOWN]
    elif passed:
        counted_metrics = f"all {passed} metrics are" if passed > 1 else "1 metric is"
        good = " or ".join(sorted(how)).replace(
            WITHIN, "within their limits" if passed > 1 else WITHIN
        )
        return NodeVerdict(
            node=node, judgement=Judgement.HEALTHY, code="OK", reason=f"{counted_metrics} {good}"
        )
    elif counted[Judgement.NOT_APPLICABLE]:
        worst = counted[Judgement.NOT_APPLICABLE]
    else:
        return NodeVerdict(
            node=node,
            judgement=Judgement.UNKNOWN,
            code="NOT-MEASURED",
            reason="nothing was measured on this node",
        )
    first = min(worst, key=lambda verdict: verdict.similarity or 0.0)
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    prefix = f"{first.benchmark}: " if first.benchmark else ""
    return NodeVerdict(
        node=node,
        judgement=first.judgement,
        code=first.code,
        reason=f"{prefix}{first.reason}{more}",
    )
