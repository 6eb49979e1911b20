"""From the executions of a campaign to verdicts: units of judgement, criteria, and the roll-up.

The unit that is judged is the finest one measured: a device of a node, or a group. A node is
defective when one of its parts is. What was not measured is unknown; what cannot run here is not
applicable; neither ever becomes healthy.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anubis.core.criteria import judge, learn
from anubis.core.errors import CriteriaError
from anubis.core.localization import best_group_of_each_node, blame
from anubis.core.records import (
    Assessment,
    CriteriaSet,
    Criterion,
    CriterionKey,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    NodeVerdict,
    Plan,
    Policy,
    Provenance,
    Samples,
    Verdict,
)

CODES = {
    Ended.FAILED: "NOT-MEASURED",
    Ended.TIMED_OUT: "TIMED-OUT",
    Ended.LOST: "NODE-LOST",
}
ASPECTS: dict[str, Callable[[CriterionKey], str]] = {  # of a key; the first to differ is named
    "version": lambda key: key.workload.version,
    "sku": lambda key: key.sku,
    "parameters": lambda key: key.workload.parameters,
    "device": lambda key: key.device_kind,
    "metric": lambda key: key.metric,
}
WORST_FIRST = (
    Judgement.DEFECTIVE,
    Judgement.UNKNOWN,
    Judgement.NOT_APPLICABLE,
    Judgement.HEALTHY,
)


@dataclass(slots=True)
class Unit:
    """Everything measured of one metric on one device of one node, or on one group."""

    key: CriterionKey
    participants: tuple[str, ...]
    device: str
    metric: MetricSpec
    repeats: list[Samples] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        return self.repeats[0] if len(self.repeats) == 1 else np.concatenate(self.repeats)


def latest(executions: Iterable[Execution]) -> list[Execution]:
    """The last execution of each step, in the order of steps and not of arrival.

    What was lost once and measured later is measured; and the same results give the same
    criteria, byte for byte, whichever node was first.
    """
    last = {execution.step.id: execution for execution in executions}
    return [last[step_id] for step_id in sorted(last)]


def units(executions: Iterable[Execution], plan: Plan) -> list[Unit]:
    """The units of judgement, in the order in which they were first measured."""
    found: dict[tuple[CriterionKey, tuple[str, ...], str], Unit] = {}
    keys: dict[tuple[object, ...], tuple[CriterionKey, MetricSpec]] = {}
    for execution in executions:
        if execution.ended is not Ended.MEASURED:
            continue
        step = execution.step
        sku = _sku(step.participants, plan)
        for series in execution.result.series:
            kind = series.device.partition(":")[0]
            short = (sku, step.workload, series.metric, kind)
            if short not in keys:
                metric = plan.spec(step.workload).metric(series.metric)
                if metric is None:
                    raise CriteriaError(f"{step.workload} does not declare {series.metric}")
                keys[short] = (
                    CriterionKey(
                        sku=sku, workload=step.workload, metric=series.metric, device_kind=kind
                    ),
                    metric,
                )
            key, metric = keys[short]
            unit = found.get((key, step.participants, series.device))
            if unit is None:
                unit = Unit(key, step.participants, series.device, metric)
                found[key, step.participants, series.device] = unit
            unit.repeats.append(series.samples)
    return list(found.values())


def _sku(participants: tuple[str, ...], plan: Plan) -> str:
    if len(participants) == 1:
        return plan.sku(participants[0])
    return "+".join(sorted({plan.sku(name) for name in participants}))


# --- learning ------------------------------------------------------------------------------


def learn_criteria(
    measured: Iterable[Unit],
    policy: Policy,
    *,
    suite: str,
    anubis: str,
    created_at: str,
    known: Iterable[CriteriaSet] = (),
) -> tuple[CriteriaSet, ...]:
    """One set of criteria per SKU, from all units measured; those already `known` are kept."""
    learned = {criterion.key: criterion for each in known for criterion in each.criteria}
    by_key: defaultdict[CriterionKey, list[Unit]] = defaultdict(list)
    for unit in measured:
        by_key[unit.key].append(unit)
    by_sku: defaultdict[str, list[Criterion]] = defaultdict(list)
    digests: defaultdict[str, list[bytes]] = defaultdict(list)
    for key, alike in by_key.items():
        by_sku[key.sku].append(learned.get(key) or _learn(key, alike, policy))
        digests[key.sku].append(_digest(alike))
    return tuple(
        CriteriaSet(
            sku=sku,
            criteria=tuple(sorted(by_sku[sku], key=_order)),
            provenance=Provenance(
                suite=suite,
                anubis=anubis,
                digest=hashlib.sha256(b"".join(sorted(digests[sku]))).hexdigest()[:16],
                created_at=created_at,
            ),
        )
        for sku in sorted(by_sku)
    )


def _learn(key: CriterionKey, alike: Sequence[Unit], policy: Policy) -> Criterion:
    nodes = {name for unit in alike for name in unit.participants}
    alone = len({unit.participants for unit in alike}) == 1
    from_repeats = alone and len(alike) < policy.min_units
    votes = None
    if from_repeats:
        samples = [repeat for unit in alike for repeat in unit.repeats]
    else:
        samples = [unit.samples for unit in alike]
        if any(len(unit.participants) > 1 for unit in alike):
            votes = _votes(alike)
    return learn(
        samples,
        key=key,
        metric=alike[0].metric,
        nodes=len(nodes),
        policy=policy,
        votes=votes,
        from_repeats=from_repeats,
    )


def _votes(groups: Sequence[Unit]) -> list[int]:
    """Each node votes for its best group; a group may speak for several nodes, or for none."""
    sign = 1 if groups[0].metric.direction == "higher" else -1
    rates = {unit.participants: sign * float(np.median(unit.samples)) for unit in groups}
    position = {unit.participants: i for i, unit in enumerate(groups)}
    return [position[group] for group in best_group_of_each_node(rates)]


def _digest(alike: Sequence[Unit]) -> bytes:
    """Of what was measured, whatever order it arrived in."""
    parts = sorted(
        hashlib.sha256(
            repr((unit.key, unit.participants, unit.device)).encode() + unit.samples.tobytes()
        ).digest()
        for unit in alike
    )
    return hashlib.sha256(b"".join(parts)).digest()


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
    measured: Iterable[Unit],
    executions: Iterable[Execution],
    plan: Plan,
    criteria: Iterable[CriteriaSet],
    lost: Mapping[str, str],
    *,
    learned_here: bool = False,
) -> Assessment:
    """All verdicts of what was run, worst first, and each node's roll-up.

    `learned_here` says that the criteria come from these very measurements. `lost` are the nodes
    that were lost, each with the reason, even if no step was lost with them.
    """
    known = {criterion.key: criterion for each in criteria for criterion in each.criteria}
    by_key: defaultdict[CriterionKey, list[Unit]] = defaultdict(list)
    for unit in measured:
        by_key[unit.key].append(unit)
    verdicts: list[Verdict] = []
    for key, alike in by_key.items():
        if key in known:
            verdicts += _judged(alike, known[key], learned_here)
        else:
            reason = _no_criterion(key, known)
            verdicts += [
                _verdict(unit, Judgement.UNKNOWN, "NO-CRITERION", reason) for unit in alike
            ]
    verdicts += _unmeasured(executions, dict(lost))
    attributed = list(_attributed(verdicts))
    nodes = _roll_up(plan, verdicts, attributed)
    verdicts += [v for v in attributed if v.judgement is Judgement.DEFECTIVE]
    verdicts.sort(key=lambda v: (WORST_FIRST.index(v.judgement), v.similarity or 0.0))
    return Assessment(verdicts=tuple(verdicts), nodes=nodes)


def _judged(alike: Sequence[Unit], criterion: Criterion, learned_here: bool) -> Iterable[Verdict]:
    against_itself = learned_here and criterion.from_repeats
    outcomes = judge([unit.samples for unit in alike], criterion)
    for unit, (judgement, similarity) in zip(alike, outcomes, strict=True):
        if judgement is Judgement.UNKNOWN:
            code, reason = "CRITERION-REFUSED", f"no trusted criterion: {criterion.refusal}"
        elif judgement is Judgement.DEFECTIVE and against_itself:
            judgement, code = Judgement.UNKNOWN, "UNSTABLE"
            reason = f"its own repeats disagree: {_shortcoming(unit, criterion, similarity)}"
        elif judgement is Judgement.DEFECTIVE:
            code, reason = _code(unit), _shortcoming(unit, criterion, similarity)
        else:
            whom = "its own repeats" if against_itself else "the fleet"
            code, reason = "OK", f"as {whom}: similarity {similarity:.3f}"
        yield _verdict(unit, judgement, code, reason, similarity, criterion.alpha)


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


def _code(unit: Unit) -> str:
    """One stable code per (benchmark, metric), for machines that act on it."""
    return f"{unit.key.workload.benchmark}.{unit.key.metric}".upper().replace(":", ".")


def _shortcoming(unit: Unit, criterion: Criterion, similarity: float) -> str:
    """The sentence a person acts on: how far off, in the metric's own unit."""
    measured, normal = float(np.median(unit.samples)), float(np.median(criterion.reference))
    change = abs(measured / normal - 1)
    word = "below" if measured < normal else "above"
    amount = f"{change:.0%} {word} normal" if change >= 0.005 else "slow in its tail"
    measure = "" if criterion.unit == "1" else f" {criterion.unit}"
    return (
        f"{unit.key.metric} on {unit.device} {amount}: median {measured:.4g}{measure}, "
        f"normal {normal:.4g} (similarity {similarity:.3f}, limit {criterion.alpha:g})"
    )


def _no_criterion(key: CriterionKey, known: Iterable[CriterionKey]) -> str:
    """Why nothing is comparable: the nearest criterion there is, and in what it differs."""
    nearest = [k for k in known if k.workload.benchmark == key.workload.benchmark]
    if not nearest:
        return f"the criteria do not cover {key.workload.benchmark}"
    for what, of in ASPECTS.items():
        alike = [k for k in nearest if of(k) == of(key)]
        if not alike:
            found = '", "'.join(sorted({of(k) for k in nearest}))
            return f'the criteria are for {what} "{found}", this is "{of(key)}"'
        nearest = alike
    raise AssertionError(f"{key} is known")


def _unmeasured(executions: Iterable[Execution], lost: dict[str, str]) -> Iterable[Verdict]:
    """Verdicts about what left no samples: one per lost node, one per step otherwise."""
    for execution in executions:
        step, ended = execution.step, execution.ended
        for name in execution.lost:
            lost.setdefault(name, execution.reason)
        if not execution.final or ended in (Ended.MEASURED, Ended.LOST, Ended.SKIPPED):
            continue
        absent = ended is Ended.NOT_APPLICABLE
        yield Verdict(
            participants=step.participants,
            benchmark=step.workload.benchmark,
            parameters=step.workload.parameters,
            judgement=Judgement.NOT_APPLICABLE if absent else Judgement.UNKNOWN,
            code="NOT-APPLICABLE" if absent else CODES[ended],
            reason=execution.reason,
        )
    for name in sorted(lost):
        yield Verdict(
            participants=(name,),
            benchmark="",
            judgement=Judgement.UNKNOWN,
            code="NODE-LOST",
            reason=lost[name],
        )


# --- nodes ---------------------------------------------------------------------------------


def _attributed(verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
    """What the groups of one (benchmark, metric) say of each single node in them."""
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
        members = dict.fromkeys(name for verdict in groups for name in verdict.participants)
        for name in members:
            mine = [verdict for verdict in groups if name in verdict.participants]
            mine.sort(key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            if name in blamed:
                yield replace(mine[0], participants=(name,), reason=_evidence(name, mine))
            elif (benchmark, name) in good:
                continue  # a good group proves the node; a bad one then speaks of a link
            elif mine[0].judgement is Judgement.DEFECTIVE:
                yield replace(
                    mine[0],
                    participants=(name,),
                    judgement=Judgement.UNKNOWN,
                    code="CANNOT-TELL-APART",
                    reason=f"in a slow group of {benchmark} with others that no good group clears",
                )
            else:
                yield replace(mine[0], participants=(name,))


def _evidence(name: str, mine: Sequence[Verdict]) -> str:
    partners = [p for v in mine for p in v.participants if p != name]
    shown = ", ".join(sorted(dict.fromkeys(partners))[:4])
    return f"slow with every partner ({shown}), each of which does well elsewhere: {mine[0].reason}"


def _roll_up(
    plan: Plan, verdicts: Iterable[Verdict], attributed: Iterable[Verdict]
) -> tuple[NodeVerdict, ...]:
    """Each node by the worst that is said of it alone; good groups count for all their nodes."""
    said: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in attributed:
        said[verdict.participants[0]].append(verdict)
    for verdict in verdicts:
        if len(verdict.participants) == 1 or verdict.judgement is Judgement.HEALTHY:
            for name in verdict.participants:
                said[name].append(verdict)
    return tuple(_node_verdict(node.name, said[node.name]) for node in plan.nodes)


def _node_verdict(node: str, said: Sequence[Verdict]) -> NodeVerdict:
    if not said:
        return NodeVerdict(
            node=node,
            judgement=Judgement.UNKNOWN,
            code="NOT-MEASURED",
            reason="nothing was measured on it",
        )
    counted = {judgement: [v for v in said if v.judgement is judgement] for judgement in Judgement}
    if counted[Judgement.DEFECTIVE]:
        worst = counted[Judgement.DEFECTIVE]
    elif counted[Judgement.UNKNOWN]:
        worst = counted[Judgement.UNKNOWN]
    elif counted[Judgement.HEALTHY]:
        n = len(counted[Judgement.HEALTHY])
        return NodeVerdict(
            node=node,
            judgement=Judgement.HEALTHY,
            code="OK",
            reason=f"{'all ' if n > 1 else ''}{n} metric{'s are' if n > 1 else ' is'} "
            + said[-1].reason.partition(":")[0],
        )
    else:
        worst = counted[Judgement.NOT_APPLICABLE]
    first = min(worst, key=lambda verdict: verdict.similarity or 0.0)
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    what = f"{first.benchmark}: " if first.benchmark else ""
    return NodeVerdict(
        node=node,
        judgement=first.judgement,
        code=first.code,
        reason=f"{what}{first.reason}{more}",
    )
