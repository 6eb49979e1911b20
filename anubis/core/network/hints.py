"""Hints from port counters before any traffic: the factor by which each part is likelier faulty.

Hardly any counter has a limit that holds everywhere, and healthy fleets differ in their counts. So
a part is compared with all others. The chance of a healthy part to count as much is the share of
parts that do; the chance of a faulty one is SHOWN. For the same reason, a part that was read and
shows no error is less likely to be at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from anubis.core.fabric import Fabric, Part, Shares
from anubis.core.network.counters import PortCount, place_counts
from anubis.core.network.crossing import link_part, nic_part
from anubis.core.network.posterior import FaultPrior
from anubis.core.records import Counters

Symptom = Literal["errors", "corrected", "paused"]
MOST: Mapping[Symptom, float] = {  # the largest factor of a symptom
    "errors": 10_000.0,
    "corrected": 100.0,  # normal, up to a point
    "paused": 3.0,  # congestion: its cause may be far away
}
SHOWN = 0.8  # share of faulty cables and ports that count errors
MANY = 64  # counts, among which one makes no difference
WIDEST = 14.0  # e to this power is a million
LEAST_SPREAD, LEAST_CHANCE = 1.5, 1e-9  # of the counts of healthy parts
ALL_PORTS = "ALL"
EVENTS = frozenset({"link_downed", "link_error_recovery"})  # once is as telling as it is rare
SUSPECTED = 5.0  # factor of a part that came and went in several campaigns (assumed)
LEAST_PAUSED_PER_S = 1.0  # pauses, marks or drops: fewer slow nothing by a measurable share

_PAUSED = re.compile(  # and what switches drop although nothing is wrong with it (RFC 2863)
    r"pause|pfc|ecn|cnp|xmit_wait|(in|out)[-_]?discards|queue|dropped[-_]p|wred", re.IGNORECASE
)
_CORRECTED = re.compile(r"(?<!un)(?<!un_)(?<!not_)correct(ed|able)", re.IGNORECASE)


def add_hints(
    model: FaultPrior, fabric: Fabric, counters: Counters, suspected: Iterable[Part] = ()
) -> FaultPrior:
    """The prior with the hints of the port counters, and with parts that are suspected."""
    return replace(
        model, hints=join_hints(hints(fabric, counters), dict.fromkeys(suspected, SUSPECTED))
    )


def join_hints(*hints_of: Mapping[Part, float]) -> dict[Part, float]:
    """Factors of independent hints together."""
    joined: dict[Part, float] = {}
    for factors in hints_of:
        for part, factor in factors.items():
            joined[part] = joined.get(part, 1.0) * factor
    return joined


def hints(fabric: Fabric, counters: Counters) -> dict[Part, float]:
    """Factors on the prior odds of links and NICs; parts that were not read have none."""
    values, judged = _values(fabric, counters)
    if not values:
        return {}
    errors, *milder = (_factors(values, symptom) for symptom in MOST)
    clean = (1 - SHOWN) / max(1 - len(errors) / (len(values) + 1), 1 - SHOWN)
    return {
        part: errors.get(part, clean if part in judged else 1.0)
        * max(1.0, *(factors.get(part, 1.0) for factors in milder))
        for part in values
    }


def congested_links(fabric: Fabric, counters: Counters) -> frozenset[Part]:
    """The links whose pauses, marks and drops rose far more than those of others, and whose errors
    did not: traffic slows the flows across them as a fault would. None if the time of the rises is
    unknown."""
    if counters.over_s is None:
        return frozenset()
    values, _ = _values(fabric, counters)
    errors, paused = _factors(values, "errors"), _factors(values, "paused")
    return frozenset(
        part
        for part, factor in paused.items()
        if part.kind == "link"
        and part not in errors
        and factor >= MOST["paused"]
        and _most(values[part], "paused") >= LEAST_PAUSED_PER_S * counters.over_s
    )


def parts_of_known_load(fabric: Fabric, counters: Counters) -> frozenset[Part]:
    """The parts that traffic of others would show in: the rise of their counters is known. And
    those that count errors, which traffic does not explain."""
    values, judged = _values(fabric, counters)
    erring = _factors(values, "errors") if values else {}
    risen = judged if counters.over_s is not None else set()
    return frozenset({*risen, *(part for part, factor in erring.items() if factor > 1)})


def _values(fabric: Fabric, counters: Counters) -> tuple[dict[Part, dict[str, int]], set[Part]]:
    """Return the counts of each part, the larger of its ends; and the parts of which all errors are
    known."""
    judged = set(_fully_read_parts(fabric, counters))
    values: dict[Part, dict[str, int]] = {part: {} for part in judged}
    for port_count in place_counts(counters.counts, fabric)[0]:
        part, count = _part_of(fabric, port_count), port_count.count
        if part:
            of_part = values.setdefault(part, {})
            judged |= {part} if symptom_of(count.counter) == "errors" else set()
            of_part[count.counter] = max(of_part.get(count.counter, 0), count.value)
    return values, judged


def _most(counts: Mapping[str, int], symptom: Symptom) -> int:
    return max((n for counter, n in counts.items() if symptom_of(counter) == symptom), default=0)


def symptom_of(counter: str) -> Symptom:
    if _PAUSED.search(counter):
        return "paused"
    return "corrected" if _CORRECTED.search(counter) else "errors"


def _factors(values: Mapping[Part, Mapping[str, int]], symptom: Symptom) -> dict[Part, float]:
    """The factor by which a faulty part is likelier to show as much, for each part with this
    symptom.

    Of several counters the strongest counts, divided by their number: many say no more than one.
    """
    factors: dict[Part, float] = {}
    counters = {c for of in values.values() for c in of if symptom_of(c) == symptom}
    for counter in sorted(counters):
        shown = {part: of[counter] for part, of in values.items() if of.get(counter)}
        if shown:
            rarity = SHOWN * len(values) / len(shown)
            ratios = _ratios(np.log(list(shown.values())))
            ratios = rarity * (np.maximum(ratios, 1.0) if counter in EVENTS else ratios)
            for part, ratio in zip(shown, ratios.tolist(), strict=True):
                factors[part] = max(factors.get(part, 0.0), ratio / len(counters))
    return {part: min(factor, MOST[symptom]) for part, factor in factors.items()}


def _ratios(logs: Shares) -> Shares:
    """The factor by which each count is more likely for a faulty part than for a healthy one.

    Healthy parts count as the rest do, log-normally. A fault that slows traffic counts much: its
    density grows with the logarithm, from 1 to e^WIDEST. A count below the usual one is treated as
    the usual one.
    """
    if len(logs) == 1:
        return np.ones(1)
    if len(logs) > MANY:
        return _ratio(logs, logs)
    return np.array([_ratio(log, np.delete(logs, place)) for place, log in enumerate(logs)])


def _ratio(log: Shares, rest: Shares) -> Shares:
    middle = np.median(rest)
    spread = max(1.4826 * float(np.median(np.abs(rest - middle))), LEAST_SPREAD)
    off = np.maximum(log - middle, 0.0) / spread
    healthy = np.exp(-0.5 * off * off) / (spread * np.sqrt(2 * np.pi))
    faulty = 2 * np.clip(log, 1.0, WIDEST) / WIDEST**2
    return np.asarray(faulty / np.maximum(healthy, LEAST_CHANCE))


def _part_of(fabric: Fabric, port_count: PortCount) -> Part | None:
    if port_count.link:
        return link_part(port_count.link)
    nic = port_count.nic
    return nic_part(fabric, nic.node, nic.rail) if nic and nic.node else None


def _fully_read_parts(fabric: Fabric, counters: Counters) -> Iterator[Part]:
    """Yield the links and NICs whose ports were all read; ports without a count then have no
    errors. What a network counts says nothing about NVLinks."""
    if not counters.is_whole or fabric.is_nvlink:
        return
    unread = set(counters.unread)

    def is_answered(switch: str, *ports: str) -> bool:
        name = fabric.name(switch)
        return not any((name, port) in unread for port in (*ports, ALL_PORTS))

    for link in fabric.links:
        if all(
            is_answered(link.a, c.port_a) and is_answered(link.b, c.port_b) for c in link.cables
        ):
            yield link_part(link)
    for nic in fabric.nics:
        if nic.node and is_answered(nic.switch, nic.port):
            yield nic_part(fabric, nic.node, nic.rail)
