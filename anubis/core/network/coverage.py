"""What a schedule of pairs crosses in the fabric, and what it leaves untested.

Shortest paths share a pair's traffic evenly, and which cable a connection takes is unknown.
So a link is crossed with a chance, not simply crossed or not: 1 where there is no other way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np

from anubis.core.fabric import Fabric, Link, Shares
from anubis.core.network.pairing import HopRound, Purpose, joined_nics, quick_rounds
from anubis.core.network.redundancy import MissingCables, shortages

ASSURED = 0.95
MOST_DISTANCES = 32


@dataclass(frozen=True, kw_only=True)
class Coverage:
    fabric: Fabric
    link_chance: Shares  # that any given cable of each link was crossed, as `fabric.links`
    switch_chance: Shares
    nics: frozenset[str]  # ids of the NICs that took part
    pairs: Mapping[Purpose, int]  # how many there are of each purpose
    rounds: Mapping[Purpose, int]

    def links(self, least: float, below: float = np.inf) -> tuple[Link, ...]:
        """The links between switches whose chance of being crossed is in this range."""
        return tuple(
            link
            for link, chance in zip(self.fabric.links, self.link_chance, strict=True)
            if least <= chance < below
        )

    @property
    def untested_links(self) -> tuple[Link, ...]:
        """On no path of any pair."""
        return self.links(0, np.nextafter(0, 1))

    @property
    def unsure_links(self) -> tuple[Link, ...]:
        """On a path, but used so rarely that a cable may have carried nothing."""
        return self.links(np.nextafter(0, 1), ASSURED)

    @property
    def missing_uplinks(self) -> tuple[MissingCables, ...]:
        """Not there, although sister switches have them: no schedule can cross them."""
        return tuple(gap for shortage in shortages(self.fabric) for gap in shortage.gaps)

    @property
    def untested_switches(self) -> tuple[str, ...]:
        return tuple(
            switch.id
            for switch, chance in zip(self.fabric.switches, self.switch_chance, strict=True)
            if chance == 0
        )


def coverage(fabric: Fabric, rounds: Iterable[HopRound], everybody: Sequence[str] = ()) -> Coverage:
    """All rounds together, with one connection in each direction and on each rail of each pair;
    and every pair of `everybody`, which may be millions, leaf by leaf."""
    sent: Counter[tuple[str, str]] = Counter()
    nics: set[str] = set()
    pairs: Counter[Purpose] = Counter()
    turns: Counter[Purpose] = Counter()
    for hop_round in rounds:
        pairs[hop_round.purpose] += len(hop_round.pairs)
        turns[hop_round.purpose] += 1
        met = (joined_nics(fabric, meeting) for meeting in hop_round.meetings)
        for a, b in chain.from_iterable(met):
            sent[a.switch, b.switch] += 1
            sent[b.switch, a.switch] += 1
            nics |= {a.id, b.id}
    for rail in fabric.rails if everybody else ():
        on = [nic for name in everybody if (nic := fabric.nic(name, rail))]
        below = Counter(nic.switch for nic in on)
        for near, far in product(below, below):
            if near != far or below[near] > 1:
                sent[near, far] += below[near] * below[far]
        nics |= {nic.id for nic in on}
    turns["distance"] += max(0, len(everybody) - 1 + len(everybody) % 2)
    pairs["distance"] += len(everybody) * (len(everybody) - 1) // 2
    links, switches = _missed(fabric, sent)
    return Coverage(
        fabric=fabric,
        link_chance=-np.expm1(links),
        switch_chance=-np.expm1(switches),
        nics=frozenset(nics),
        pairs=pairs,
        rounds=turns,
    )


def joined(first: Coverage, second: Coverage) -> Coverage:
    """What two schedules cross between them."""
    return Coverage(
        fabric=first.fabric,
        link_chance=1 - (1 - first.link_chance) * (1 - second.link_chance),
        switch_chance=1 - (1 - first.switch_chance) * (1 - second.switch_chance),
        nics=first.nics | second.nics,
        pairs=Counter(first.pairs) + Counter(second.pairs),
        rounds=Counter(first.rounds) + Counter(second.rounds),
    )


def _missed(fabric: Fabric, sent: Counter[tuple[str, str]]) -> tuple[Shares, Shares]:
    """Logarithms of the chance that nothing crossed, per cable of each link and per switch."""
    cables = np.array([len(link.cables) for link in fabric.links], dtype=np.float64)
    times = np.array(list(sent.values()), dtype=np.float64)
    links, switches = np.zeros(len(fabric.links)), np.zeros(len(fabric.switches))
    for part in fabric.spread(list(sent)):
        log_missed = _log_of_rest(part.link_share / cables[part.link])
        links += np.bincount(part.link, times[part.link_pair] * log_missed, minlength=len(links))
        log_missed = _log_of_rest(part.switch_share)
        switches += np.bincount(part.switch, times[part.switch_pair] * log_missed, len(switches))
    return links, switches


def _log_of_rest(share: Shares) -> Shares:
    with np.errstate(divide="ignore"):  # a share of 1 leaves nothing: minus infinity
        return np.log1p(-np.where(share > 1 - 1e-9, 1.0, share))


def covering_rounds(
    fabric: Fabric, nodes: Sequence[str], rounds: Sequence[HopRound]
) -> Iterator[HopRound]:
    """More rounds, with other partners, until each link in reach is crossed almost surely.

    Of each shuffled quick scan the distance that adds most is taken. It ends when nothing adds any
    more, or after MOST_DISTANCES; `coverage` tells how far it got.
    """

    def surely(candidate: Coverage) -> float:
        return float(np.sum(np.minimum(candidate.link_chance, ASSURED)))

    crossed = coverage(fabric, rounds)
    for turn in range(MOST_DISTANCES):
        if not np.any(crossed.link_chance < ASSURED):
            return
        shuffled = quick_rounds(fabric, nodes, seed=turn)
        choices = [
            [hop_round for hop_round in shuffled if hop_round.hops == hops]
            for hops in sorted({hop_round.hops for hop_round in shuffled} - {2})
        ]
        after = [joined(crossed, coverage(fabric, more)) for more in choices]
        best = max(range(len(choices)), key=lambda i: surely(after[i]), default=None)
        if best is None or surely(after[best]) <= surely(crossed):
            return
        crossed = after[best]
        yield from (replace(hop_round, purpose="cover") for hop_round in choices[best])
