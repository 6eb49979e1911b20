"""Match the models of measured devices, such as GPUs, with those that criteria know.

A device is compared with devices of its model: the model is part of the kind of device, and so of
the key of a criterion. Criteria may be older than that, and a run may not say what it measured on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from anubis.core.judge.units import (
    Units,
    join_units,
    name_kind,
    plain_kind,
    split_model,
)
from anubis.core.records import CriteriaSet, CriterionKey, Workload

_OfKind = tuple[str, Workload, str]  # sku, program and kind of device, without its model


def match_models(measured: Sequence[Units], criteria: Iterable[CriteriaSet]) -> list[Units]:
    """The units with the kinds of device that criteria have for them. If criteria name no model,
    they are of the model of most devices. If they name one, and none was reported, it is that
    one."""
    by_kind = _models_of_criteria(criteria)
    present: defaultdict[_OfKind, Counter[str]] = defaultdict(Counter)
    for alike in measured:
        kind, model = split_model(alike.key.device_kind)
        present[alike.key.sku, alike.key.workload, kind][model] += len(alike)
    by_key: defaultdict[CriterionKey, list[Units]] = defaultdict(list)
    for alike in measured:
        key = alike.key
        kind, model = split_model(key.device_kind)
        place = key.sku, key.workload, kind
        learned, there = by_kind.get(place, set()), present[place]
        if learned == {""} and 2 * there[model] > there.total():
            key = replace(key, device_kind=kind)
        elif len(learned) == 1 and there.keys() == {""}:
            key = replace(key, device_kind=name_kind(kind, min(learned)))
        by_key[key].append(alike if key == alike.key else replace(alike, key=key))
    return [parts[0] if len(parts) == 1 else join_units(parts) for parts in by_key.values()]


def _models_of_criteria(criteria: Iterable[CriteriaSet]) -> dict[_OfKind, set[str]]:
    by_kind: defaultdict[_OfKind, set[str]] = defaultdict(set)
    for of_sku in criteria:
        for key in (criterion.key for criterion in of_sku.criteria):
            model = split_model(key.device_kind)[1]
            by_kind[of_sku.nodes_sku, key.workload, plain_kind(key.device_kind)].add(model)
    return by_kind


def drop_model(key: CriterionKey) -> CriterionKey:
    """The key that criteria have which name no model."""
    return replace(key, device_kind=split_model(key.device_kind)[0])


def adopt_models(
    before: Iterable[CriteriaSet], after: Iterable[CriteriaSet]
) -> tuple[CriteriaSet, ...]:
    """The earlier criteria with the models that the later ones have, if they name none: each that
    has become the criterion of one model."""
    later = {criterion.key for of_sku in after for criterion in of_sku.criteria}
    named: defaultdict[CriterionKey, list[CriterionKey]] = defaultdict(list)
    for key in later:
        named[drop_model(key)].append(key)
    return tuple(
        replace(
            of_sku,
            criteria=tuple(
                replace(c, key=named[c.key][0]) if len(named.get(c.key, ())) == 1 else c
                for c in of_sku.criteria
            ),
        )
        for of_sku in before
    )
