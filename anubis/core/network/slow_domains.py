"""Find NVLink domains whose pairs are all slow, as each pair crosses their switches.

A missing switch takes a ninth of the rate of every pair. If pairs scatter widely, only some of them
are bad, and their nodes could be blamed for each. But of several pairs without a common node, a
node is in one only. So if far more such pairs fall short in a domain than elsewhere, the domain is
the cause, and its nodes are judged without that shortfall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.fabric import Fabric
from anubis.core.network.posterior import FaultPrior, Observation

FEWEST = 4  # short pairs without a common node: nodes that would all be bad by themselves
BY_CHANCE = 1e-3  # the chance that any domain has so many short pairs


@dataclass(frozen=True, kw_only=True)
class SlowDomain:
    name: str
    shortfall: float  # of a usual pair
    observations: tuple[Observation, ...]  # of its pairs


def slow_domains(
    fabric: Fabric, observations: Sequence[Observation], model: FaultPrior
) -> list[SlowDomain]:
    """The domains with bad pairs of which far more pairs fall short than of the others."""
    of_domain: dict[str, list[Observation]] = {}
    for seen in observations:
        domain = fabric.domain_of.get(seen.flow.source.node)
        if fabric.is_nvlink and domain and not seen.flow.gone:
            of_domain.setdefault(domain.name, []).append(seen)
    counts = {name: _count_pairs(own, model.limit) for name, own in of_domain.items()}
    slow = [
        name
        for name, own in of_domain.items()
        if any(seen.shortfall > model.limit for seen in own) and _stands_out(name, counts)
    ]
    if 2 * len(slow) >= len(of_domain):
        return []  # most domains are so, and nothing shows what is normal
    return [
        SlowDomain(
            name=name,
            shortfall=_usual_shortfall(of_domain[name], observations, model),
            observations=tuple(of_domain[name]),
        )
        for name in slow
    ]


def _count_pairs(own: Iterable[Observation], limit: float) -> tuple[int, int]:
    """The number of pairs without a common node that fall short by the limit or more, and the
    largest number of any such pairs. The shortfall of a good pair is the limit at most."""
    nodes, short = set[str](), set[str]()
    for seen in sorted(own, key=lambda seen: -seen.shortfall):
        ends = {seen.flow.source.node, seen.flow.target.node}
        nodes |= ends
        if seen.shortfall >= limit and short.isdisjoint(ends):
            short |= ends
    return len(short) // 2, len(nodes) // 2


def _stands_out(name: str, counts: Mapping[str, tuple[int, int]]) -> bool:
    """True if the share of short pairs elsewhere does not explain those of this domain."""
    from scipy.special import bdtrc

    pairs, possible = counts[name]
    elsewhere = [count for domain, count in counts.items() if domain != name]
    shares = [short / every for short, every in elsewhere]
    usual = float(np.median(shares)) if shares else 1.0
    share = max(usual, 1 / (1 + sum(every for _, every in elsewhere)))
    return pairs >= FEWEST and bool(bdtrc(pairs - 1, possible, share) < BY_CHANCE / len(counts))


def _usual_shortfall(
    own: Sequence[Observation], every: Sequence[Observation], model: FaultPrior
) -> float:
    """The shortfall of a usual pair, by the share of flows that are bad: how far good ones fall
    short is not known."""
    from scipy.special import ndtri

    least = least_bad(every, model.limit)
    share = np.mean([seen.shortfall > model.limit for seen in own])
    if 2 * share > 1:
        return float(np.median([seen.shortfall for seen in own]))
    return max(0.0, float(least + model.noise * ndtri(share)))


def least_bad(every: Iterable[Observation], limit: float) -> float:
    """The least shortfall of a bad flow: by the limit, or by a looser one that was learned."""
    return min((seen.shortfall for seen in every if seen.shortfall > limit), default=limit)


def set_off(
    observations: Sequence[Observation], slow: Iterable[SlowDomain], model: FaultPrior
) -> list[Observation]:
    """The observations without what slow domains take of their pairs. What is left is bad only if
    it would be bad elsewhere."""
    takes = {id(seen): domain.shortfall for domain in slow for seen in domain.observations}
    least = least_bad(observations, model.limit)
    return list(_set_off(observations, takes, least, model.limit))


def _set_off(
    observations: Iterable[Observation], takes: dict[int, float], least: float, limit: float
) -> Iterator[Observation]:
    for seen in observations:
        taken = takes.get(id(seen), 0.0)
        if not taken:
            yield seen
            continue
        left = 1 - (1 - seen.shortfall) / (1 - taken)
        yield replace(seen, shortfall=left if left >= least else float(np.clip(left, 0.0, limit)))
