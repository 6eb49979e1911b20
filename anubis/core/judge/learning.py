"""Learn criteria from the units that a campaign measured: a set for each kind of node."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

import numpy as np

from anubis.core.arrays import Ints
from anubis.core.judge.combined import SHARE, combine, is_combined
from anubis.core.judge.criteria import learn
from anubis.core.judge.device_models import drop_model, match_models
from anubis.core.judge.device_places import split_by_place
from anubis.core.judge.earlier_scatter import earlier_criteria
from anubis.core.judge.equality import Versions
from anubis.core.judge.group_verdicts import cast_votes
from anubis.core.judge.node_kinds import find_kinds, is_of_no_kind, kinds_of, split_by_kind
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.two_levels import Learned, find_two_levels
from anubis.core.judge.units import Units
from anubis.core.records import (
    CriteriaSet,
    Criterion,
    CriterionKey,
    Policy,
    Provenance,
    Workload,
    criteria_by_key,
    strip_distance,
)

FAST = 0.9  # quantile of what pairs reach
STALLED = 20.0  # times worse than fast pairs at any distance: nothing gets through


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
    earlier: Iterable[CriteriaSet] = (),
) -> tuple[CriteriaSet, ...]:
    """Learn one set of criteria per SKU, or per kind if a SKU has several, from all measured units.
    Criteria that are already `learned` are kept.

    Metrics that only limits judge are left out. `versions` are kept, by SKU. Learning starts from
    the criteria in `start`. `earlier` ones, from other measurements, tell how healthy nodes
    scatter.
    """
    learned, measured = tuple(learned), tuple(measured)
    kinds = kinds_of(learned)
    kinds += find_kinds(measured, policy, {kind.sku for kind in kinds})
    kind_of = {kind.label: kind for kind in kinds}
    measured = split_by_kind(match_models(measured, learned), kinds)
    if policy.calibrated:
        measured += _combine_new(measured, learned)
    measured = split_by_place(measured, learned, policy)
    together = _units_together(measured)
    before, scattered = criteria_by_key(start), earlier_criteria(earlier)
    criterion_of = criteria_by_key(learned)
    by_sku: defaultdict[str, list[Criterion]] = defaultdict(list)
    digests: defaultdict[str, list[bytes]] = defaultdict(list)
    orders: dict[tuple[object, object], tuple[Ints, bytes]] = {}
    fastest: dict[CriterionKey, float] = {}
    own: list[Learned] = []
    for alike in measured:
        if alike.metric.judged_by == "limit" or is_of_no_kind(alike, kinds):
            continue
        _note_fastest(alike, fastest)
        sku = alike.key.sku
        key = alike.key
        old = drop_model(key)
        criterion = criterion_of.get(key) or _learn(
            alike,
            policy,
            before.get(key) or before.get(old),
            together[key],
            scattered.get(key, ()) or scattered.get(old, ()),
        )
        if is_combined(key):  # it adds defects, and no doubt
            if not (criterion.refusal or criterion.from_repeats):
                by_sku[sku].append(replace(criterion, doubt_alpha=None))
            continue
        by_sku[sku].append(criterion)
        own.append((alike, criterion))
        parts = alike.participants, alike.devices
        if parts not in orders:  # many metrics share their units
            orders[parts] = _order_of(alike)
        digests[sku].append(_digest(alike, *orders[parts]))
    two_levels = dict(find_two_levels(own, policy))
    return tuple(
        CriteriaSet(
            sku=sku,
            criteria=tuple(
                sorted((_refuse(c, fastest, two_levels) for c in by_sku[sku]), key=sort_key)
            ),
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


def _combine_new(measured: Iterable[Units], learned: Iterable[CriteriaSet]) -> list[Units]:
    """The scores of all metrics together, but those of programs that have criteria without one."""
    keys = criteria_by_key(learned).keys()
    programs = {(key.sku, key.workload) for key in keys}
    scores = (combined.scores for combined in combine(measured))
    return [
        units
        for units in scores
        if units.key in keys or (units.key.sku, units.key.workload) not in programs
    ]


def _units_together(measured: Iterable[Units]) -> Mapping[CriterionKey, float]:
    """The number of units of each key by whose share of the rate one node, or one group, is judged.
    On average each program has so many. The score of all metrics has a share of its own."""
    on_each: defaultdict[tuple[str, Workload, bool], float] = defaultdict(float)
    measured = [alike for alike in measured if alike.metric.judged_by == "fleet"]
    for alike in measured:
        key, units = alike.key, len(alike) / len(set(alike.participants))
        on_each[key.sku, key.workload, is_combined(key)] += units
    together = {}
    for key in (alike.key for alike in measured):
        program = key.sku, key.workload, is_combined(key)
        has_score = (key.sku, key.workload, True) in on_each
        share = (SHARE if is_combined(key) else 1 - SHARE) if has_score else 1.0
        together[key] = on_each[program] / share
    return together


def _learn(
    alike: Units,
    policy: Policy,
    start: Criterion | None,
    together: float,
    earlier: Sequence[Criterion],
) -> Criterion:
    alone = len(set(alike.participants)) == 1
    from_repeats = alone and len(alike) < policy.min_units
    grouped = not from_repeats and max(map(len, alike.participants)) > 1
    key = alike.key
    policy = policy.metric_policy(key.workload.benchmark, key.metric)
    return learn(
        alike.repeats if from_repeats else alike.samples,
        key=key,
        metric=alike.metric,
        nodes=len(set(chain.from_iterable(alike.participants))),
        policy=policy,
        votes=_votes(alike) if grouped else None,
        owners=None if alone else number_nodes(alike.participants),
        from_repeats=from_repeats,
        start=start,
        together=together,
        earlier=earlier,
    )


def _drop_distance(key: CriterionKey) -> CriterionKey:
    return replace(key, sku=strip_distance(key.sku))


def _note_fastest(pairs: Units, fastest: dict[CriterionKey, float]) -> None:
    """Record the rate of the fast pairs, at the distance at which it is best."""
    key = _drop_distance(pairs.key)
    if key == pairs.key:
        return
    lower = pairs.metric.direction == "lower"
    fast = float(np.quantile(pairs.medians, 1 - FAST if lower else FAST))
    fastest[key] = (min if lower else max)(fastest.get(key, fast), fast)


def _refuse(
    criterion: Criterion,
    fastest: Mapping[CriterionKey, float],
    two_levels: Mapping[CriterionKey, str],
) -> Criterion:
    reason = two_levels.get(criterion.key)
    return _refuse_stalled(replace(criterion, refusal=reason) if reason else criterion, fastest)


def _refuse_stalled(criterion: Criterion, fastest: Mapping[CriterionKey, float]) -> Criterion:
    """The criterion, refused if most pairs at its distance get next to nothing through, which is
    not normal."""
    fast = fastest.get(_drop_distance(criterion.key))
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
    """A vote of each node for one of its best groups; a group may have several votes or none."""
    sign = -1 if groups.metric.direction == "lower" else 1
    return cast_votes(groups.participants, (sign * groups.medians).tolist())


def _order_of(alike: Units) -> tuple[Ints, bytes]:
    """The order of the units by name, and a digest of the names in that order."""
    names = list(zip(alike.participants, alike.devices, strict=True))
    order = sorted(range(len(names)), key=names.__getitem__)
    digest = hashlib.sha256(repr([names[i] for i in order]).encode()).digest()
    return np.array(order), digest


def _digest(alike: Units, order: Ints, names: bytes) -> bytes:
    """A digest of the measurements, independent of the order of arrival."""
    samples = alike.samples
    if isinstance(samples, np.ndarray):
        sizes, values = [samples.shape[1]], samples[order].tobytes()
    else:
        sizes = [samples[i].size for i in order]
        values = b"".join(samples[i].tobytes() for i in order)
    return hashlib.sha256(repr((alike.key, sizes)).encode() + names + values).digest()


def sort_key(criterion: Criterion) -> tuple[str, ...]:
    workload = criterion.key.workload
    return (
        workload.benchmark,
        workload.version,
        workload.parameters,
        criterion.key.metric,
        criterion.key.device_kind,
    )
