"""What a schedule of pairs crosses in the fabric, and what it leaves untested.

Shortest paths share what a pair sends evenly, and nobody says which cable one connection takes.
So a link is not crossed or uncrossed but crossed with a chance: 1 where there is no other way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.fabric import Fabric, Link, Nic, Shares
from anubis.core.network.pairing import HopRound, quick_rounds
from anubis.core.network.redundancy import MissingCables, shortages

ASSURED = 0.95


@dataclass(frozen=True, kw_only=True)
class Coverage:
    fabric: Fabric
    link_chance: Shares  # that any given cable of each link was crossed, as `fabric.links`
    switch_chance: Shares
    nics: frozenset[str]  # the ids of those that took part

    def uplinks(self, least: float, below: float = np.inf) -> tuple[Link, ...]:
        """The uplinks that were crossed with a chance in this range: (0, tiny) is not at all."""
        return tuple(
            link
            for link, chance in zip(self.fabric.links, self.link_chance, strict=True)
            if least <= chance < below and self.fabric.is_uplink(link)
        )

    @property
    def untested_uplinks(self) -> tuple[Link, ...]:
        """On no path of any pair."""
        return self.uplinks(0, np.nextafter(0, 1))

    @property
    def unsure_uplinks(self) -> tuple[Link, ...]:
        """On a path, and yet so seldom that a cable may well have carried nothing."""
        return self.uplinks(np.nextafter(0, 1), ASSURED)

    @property
    def missing_uplinks(self) -> tuple[MissingCables, ...]:
        """Not there at all, and yet sister switches have them: no schedule can cross them."""
        return tuple(gap for each in shortages(self.fabric) for gap in each.gaps)

    @property
    def untested_switches(self) -> tuple[str, ...]:
        return tuple(
            switch.id
            for switch, chance in zip(self.fabric.switches, self.switch_chance, strict=True)
            if chance == 0
        )


def coverage(fabric: Fabric, rounds: Iterable[HopRound]) -> Coverage:
    """Of all rounds together, both directions of each pair, one connection each way."""
    sent: Counter[tuple[str, str]] = Counter()
    nics: set[str] = set()
    for a, b in _meetings(fabric, rounds):
        sent[a.switch, b.switch] += 1
        sent[b.switch, a.switch] += 1
        nics |= {a.id, b.id}
    links, switches = _missed(fabric, sent)
    return Coverage(
        fabric=fabric,
        link_chance=-np.expm1(links),
        switch_chance=-np.expm1(switches),
        nics=frozenset(nics),
    )


def joined(one: Coverage, other: Coverage) -> Coverage:
    """What two schedules cross between them."""
    return Coverage(
        fabric=one.fabric,
        link_chance=1 - (1 - one.link_chance) * (1 - other.link_chance),
        switch_chance=1 - (1 - one.switch_chance) * (1 - other.switch_chance),
        nics=one.nics | other.nics,
    )


def _meetings(fabric: Fabric, rounds: Iterable[HopRound]) -> Iterator[tuple[Nic, Nic]]:
    for each in rounds:
        for rail in each.rails:
            for one, other in each.pairs:
                a, b = fabric.nic(one, rail), fabric.nic(other, rail)
                if a is None or b is None:
                    raise ValueError(f"{one} and {other} do not both have a NIC on rail {rail}")
                yield a, b


def _missed(fabric: Fabric, sent: Counter[tuple[str, str]]) -> tuple[Shares, Shares]:
    """Logarithms of the chance that nothing crossed, per cable of each link and per switch."""
    cables = np.array([len(link.cables) for link in fabric.links], dtype=np.float64)
    times = np.array(list(sent.values()), dtype=np.float64)
    links, switches = np.zeros(len(fabric.links)), np.zeros(len(fabric.switches))
    for part in fabric.spread(list(sent)):
        each = _log_of_rest(part.link_share / cables[part.link])
        links += np.bincount(part.link, times[part.link_pair] * each, minlength=len(links))
        each = _log_of_rest(part.switch_share)
        switches += np.bincount(part.switch, times[part.switch_pair] * each, len(switches))
    return links, switches


def _log_of_rest(share: Shares) -> Shares:
    with np.errstate(divide="ignore"):  # a share of 1 leaves nothing: minus infinity
        return np.log1p(-np.where(share > 1 - 1e-9, 1.0, share))


def covering_rounds(
    fabric: Fabric,
    nodes: Sequence[str],
    rounds: Sequence[HopRound],
    *,
    assured: float = ASSURED,
    most: int = 32,
    seed: int = 0,
) -> Iterator[HopRound]:
    """More rounds, with other partners, until each uplink in reach is crossed almost surely.

    Out of each shuffled quick scan comes the distance that gains most. The end is reached when
    nothing gains any more, or after `most` distances; ask `coverage` what it came to.
    """
    uplinks = np.array([fabric.is_uplink(link) for link in fabric.links], dtype=bool)

    def surely(crossed: Coverage) -> float:
        return float(np.sum(np.minimum(crossed.link_chance[uplinks], assured)))

    done = coverage(fabric, rounds)
    for turn in range(most):
        if not np.any(done.link_chance[uplinks] < assured):
            return
        shuffled = quick_rounds(fabric, nodes, seed + turn)
        choices = [
            [each for each in shuffled if each.hops == hops]
            for hops in sorted({each.hops for each in shuffled} - {2})
        ]
        after = [joined(done, coverage(fabric, more)) for more in choices]
        best = max(range(len(choices)), key=lambda i: surely(after[i]), default=None)
        if best is None or surely(after[best]) <= surely(done):
            return
        done = after[best]
        yield from choices[best]
