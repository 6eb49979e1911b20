"""Find places of a node, such as `cuda:0` and `cuda:7`, whose devices measure something else than
their siblings on most nodes.

GPUs at the end of a chassis are warmer, and those of the other processor are further from the
memory. What most nodes show is how they are built, and no defect of each of them. The devices of
such places are compared with each other, as a kind of device that names them (`cuda:0+cuda:7`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from anubis.core.fabric import natural_key
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.units import Units, kind_of_device, name_kind, split_model
from anubis.core.records import CriteriaSet, CriterionKey, Policy

FEWEST_NODES = 3  # two that differ from a third are no majority of any fleet
MOST = 0.75  # of the nodes show the difference
OF_LOSS = 0.5  # of what alpha allows: a smaller difference changes no verdict by itself
SURE = 6.0  # standard errors of the median of a place
JOINED = "+"

LikePlaces = tuple[str, ...]  # the devices of one kind, in natural order


def split_by_place(
    measured: Iterable[Units], criteria: Iterable[CriteriaSet], policy: Policy | None = None
) -> list[Units]:
    """Split units by the places that criteria know and, of metrics without criteria, by those that
    this policy tells apart."""
    apart = _places_of_criteria(criteria)
    return [
        part
        for alike in measured
        for part in _parts(
            alike, apart[alike.key] if alike.key in apart else _find_by(policy, alike)
        )
    ]


def _places_of_criteria(criteria: Iterable[CriteriaSet]) -> dict[CriterionKey, list[LikePlaces]]:
    """The places of the criteria of each key. Nodes that no kind lists have the places of every
    kind under their sku."""
    by_key: defaultdict[CriterionKey, set[LikePlaces]] = defaultdict(set)
    for of_sku in criteria:
        for key in (criterion.key for criterion in of_sku.criteria):
            places_named, model = split_model(key.device_kind)
            kind = kind_of_device(places_named)
            for sku in {key.sku, of_sku.nodes_sku} if key.sku == of_sku.sku else {key.sku}:
                places = by_key[replace(key, sku=sku, device_kind=name_kind(kind, model))]
                if places_named != kind:
                    places.add(tuple(places_named.split(JOINED)))
    return {key: sorted(places) for key, places in by_key.items()}


def _find_by(policy: Policy | None, alike: Units) -> list[LikePlaces]:
    if policy is None or not policy.calibrated or alike.metric.judged_by == "limit":
        return []
    return find_places(alike, policy.alpha_of(alike.key.workload.benchmark, alike.key.metric))


def _parts(alike: Units, apart: Sequence[LikePlaces]) -> Iterator[Units]:
    kind_of = {device: JOINED.join(places) for places in apart for device in places}
    if kind_of.keys().isdisjoint(alike.devices):
        yield alike
        return
    plain, model = split_model(alike.key.device_kind)
    kinds = np.array([name_kind(kind_of.get(d, plain), model) for d in alike.devices])
    for kind in dict.fromkeys(kinds.tolist()):
        part = alike.subset(np.flatnonzero(kinds == kind))
        yield replace(part, key=replace(alike.key, device_kind=kind))


def find_places(alike: Units, alpha: float) -> list[LikePlaces]:
    """The places that differ from the rest, alike ones together. The rest is the largest group; of
    equal ones the better."""
    devices = sorted(set(alike.devices), key=natural_key)
    owners = number_nodes(alike.participants) if len(devices) > 1 else None
    if owners is None or owners.max() + 1 < FEWEST_NODES:
        return []
    place_of = {device: place for place, device in enumerate(devices)}
    levels = np.full((int(owners.max()) + 1, len(devices)), np.nan)
    levels[owners, [place_of[device] for device in alike.devices]] = np.log(alike.medians)
    having = np.sum(~np.isnan(levels), axis=0)
    places = np.flatnonzero((having >= FEWEST_NODES) & (2 * having > len(levels)))
    levels = levels[:, places]
    levels = levels[np.any(~np.isnan(levels), axis=1)]
    if places.size < 2:
        return []
    levels -= np.nanmedian(levels, axis=1, keepdims=True)
    typical = np.nanmedian(levels, axis=0)
    around = float(np.median(np.nanstd(levels, axis=0, ddof=1)))  # the middle of each node
    scatter = around * np.sqrt(places.size / (places.size - 1))
    least = max(OF_LOSS * (1 - alpha), SURE * scatter / np.sqrt(having[places].min()))
    order = np.argsort(typical, kind="stable")
    cuts = [
        cut
        for cut in range(1, places.size)
        if (gap := typical[order[cut]] - typical[order[cut - 1]]) > least
        and _is_common(levels[:, order[:cut]], levels[:, order[cut:]], gap / 2)
    ]
    groups = np.split(places[order], cuts)
    if alike.metric.direction != "lower":
        groups.reverse()
    usual = max(groups, key=len)  # the first, if several are as large
    return [
        tuple(devices[place] for place in sorted(group)) for group in groups if group is not usual
    ]


def _is_common(low: np.ndarray, high: np.ndarray, difference: float) -> bool:
    """True if most of the nodes that have both show so large a difference."""
    both = np.any(~np.isnan(low), axis=1) & np.any(~np.isnan(high), axis=1)
    apart = np.nanmedian(high[both], axis=1) - np.nanmedian(low[both], axis=1)
    return bool(np.mean(apart >= difference) >= MOST)


def place_remark(key: CriterionKey) -> str:
    """The remark on a kind of device that is some places of a node; "" of any other."""
    places = split_model(key.device_kind)[0].split(JOINED)
    plain = kind_of_device(places[0])
    if places == [plain]:
        return ""
    return (
        f"{', '.join(places)} differ from the other devices of most nodes, so they are compared"
        " with the same places of other nodes"
    )
