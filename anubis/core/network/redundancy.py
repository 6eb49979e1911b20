"""Compare the uplinks of a switch with those of its sisters, and decide if it is degraded.

The plan of the fabric is unknown. So the uplinks that most switches of a tier have are taken as
intended, and the answer gives the number of these switches. The redundant capacity is what the
uplinks carry beyond all traffic from below. A switch is degraded if it lost more than half of it
(the ANUBIS paper, section 2.2); without redundant capacity, at the first loss. If a speed is
unknown, a switch is degraded if fewer than half of its uplinks are in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from anubis.core.fabric import Cable, Fabric, main_rails

FEWEST_SISTERS = 3  # switches on the same rails; fewer are compared with their tier
NAMED = 3  # upper switches that a sentence names

PlacedCable = tuple[str, str, Cable]  # both switches and the cable; a link is slow to compare


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingCables:
    """Cables that a switch lacks and its sisters have, to the same upper switch."""

    lower: str
    upper: str  # "" if unknown
    cables: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """What the uplinks of a switch carry, in Gbit/s."""

    usual: float  # of the uplinks that its sisters have
    left: float  # of the uplinks in order
    below: float  # of its NICs and of links from lower switches

    @property
    def lost(self) -> float:
        return self.usual - self.left

    @property
    def redundant(self) -> float:
        return max(self.usual - self.below, 0.0)

    @property
    def is_degraded(self) -> bool:
        return self.lost > self.redundant / 2


@dataclass(frozen=True, kw_only=True)
class Shortage:
    switch: str
    has: int  # uplinks, cable by cable
    usual: int
    alike: int  # sisters that have the usual number
    sisters: int  # all sisters, the switch included
    kind: str  # the kind of switches that are sisters, in words
    gaps: tuple[MissingCables, ...]
    failing: int  # its uplinks that count fatal errors
    capacity: Capacity | None  # None: a speed is unknown

    @property
    def lacks(self) -> int:
        return max(self.usual - self.has, 0)

    @property
    def is_degraded(self) -> bool:
        if self.capacity:
            return self.capacity.is_degraded
        return 2 * (self.has - self.failing) < self.usual


def shortages(fabric: Fabric, failing: Collection[PlacedCable] = ()) -> tuple[Shortage, ...]:
    """The switches that have fewer uplinks than usual, or are degraded.

    `failing` are the cables that count fatal errors.
    """
    bad = frozenset(failing)
    return tuple(
        shortage for shortage in _compare(fabric, bad) if shortage.lacks > 0 or shortage.is_degraded
    )


@dataclass(frozen=True, kw_only=True)
class _Sisters:
    switches: tuple[str, ...]
    kind: str


def _compare(fabric: Fabric, bad: frozenset[PlacedCable]) -> Iterator[Shortage]:
    count = {
        switch.id: sum(len(link.cables) for link in fabric.uplinks(switch.id))
        for switch in fabric.switches
    }
    carried = {switch.id: _uplink_speed(fabric, switch.id) for switch in fabric.switches}
    for switch, candidates in _sisters(fabric).items():
        for sisters in candidates:
            usual, alike = Counter(count[sister] for sister in sisters.switches).most_common(1)[0]
            if 2 * alike > len(sisters.switches):
                complete = [sister for sister in sisters.switches if count[sister] == usual]
                yield Shortage(
                    switch=switch,
                    has=count[switch],
                    usual=usual,
                    alike=alike,
                    sisters=len(sisters.switches),
                    kind=sisters.kind,
                    gaps=tuple(_gaps(fabric, switch, complete)) if count[switch] < usual else (),
                    failing=len(bad.intersection(_cables(fabric, switch))),
                    capacity=_capacity(
                        Counter(carried[sister] for sister in complete).most_common(1)[0][0],
                        _uplink_speed(fabric, switch, bad),
                        _speed_from_below(fabric, switch),
                    ),
                )
                break


def _capacity(usual: float | None, left: float | None, below: float | None) -> Capacity | None:
    if usual is None or left is None or below is None:
        return None
    return Capacity(usual=usual, left=left, below=below)


def _uplink_speed(
    fabric: Fabric, switch: str, bad: frozenset[PlacedCable] = frozenset()
) -> float | None:
    """The capacity of the uplinks that are not bad."""
    return _sum([placed[2].gbit_s for placed in _cables(fabric, switch) if placed not in bad])


def _speed_from_below(fabric: Fabric, switch: str) -> float | None:
    nics = [nic.gbit_s for nic in fabric.nics_on.get(switch, ())]
    links = (link for link in fabric.links_of[switch] if fabric.is_uplink(link))
    down = [cable.gbit_s for link in links if fabric.upper(link) == switch for cable in link.cables]
    return _sum([*nics, *down])


def _sum(speeds: Sequence[float | None]) -> float | None:
    """The sum of the speeds; None if any of them is unknown."""
    stated = [speed for speed in speeds if speed is not None]
    return sum(stated) if len(stated) == len(speeds) else None


def _cables(fabric: Fabric, switch: str) -> Iterator[PlacedCable]:
    for link in fabric.uplinks(switch):
        yield from ((link.a, link.b, cable) for cable in link.cables)


def _sisters(fabric: Fabric) -> dict[str, list[_Sisters]]:
    """The candidates for the sisters of each switch: the switches of its tier on the same rails, if
    there are enough, and its whole tier."""
    on_rails: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    of_tier: dict[int, list[str]] = {}
    for switch in fabric.switches:
        tier, rails = fabric.tier[switch.id], main_rails(fabric.nics_on.get(switch.id, ()))
        on_rails.setdefault((tier, rails), []).append(switch.id)
        of_tier.setdefault(tier, []).append(switch.id)
    candidates: dict[str, list[_Sisters]] = {switch.id: [] for switch in fabric.switches}
    for (tier, rails), switches in on_rails.items():
        tiers = f"switches of tier {tier}"
        groups = [_Sisters(switches=tuple(of_tier[tier]), kind=tiers)]
        if FEWEST_SISTERS <= len(switches) < len(of_tier[tier]) and rails:
            several = "rails" if len(rails) > 1 else "rail"
            kind = f"{tiers} on {several} {', '.join(rails)}"
            groups.insert(0, _Sisters(switches=tuple(switches), kind=kind))
        for switch_id in switches:
            candidates[switch_id] = groups
    return candidates


def _gaps(fabric: Fabric, switch: str, complete: Sequence[str]) -> Iterator[MissingCables]:
    """Yield the missing cables to upper switches that its complete sisters in the same pod have.

    Leaves of a pod share upper switches. The pod of a switch with no uplink left is unknown, unless
    there is only one.
    """
    cables_up, of_sisters = (
        _cables_up(fabric, switch),
        [_cables_up(fabric, sister) for sister in complete],
    )
    pod = [cables for cables in of_sisters if cables.keys() & cables_up.keys()]
    if not cables_up and set.intersection(*map(set, of_sisters)):
        pod = of_sisters
    if not pod:
        yield MissingCables(
            lower=switch, upper="", cables=sum(of_sisters[0].values()) - sum(cables_up.values())
        )
    for upper in dict.fromkeys(name for cables in pod for name in cables):
        (usual, _), *_ = Counter(cables.get(upper, 0) for cables in pod).most_common(1)
        if cables_up.get(upper, 0) < usual:
            yield MissingCables(lower=switch, upper=upper, cables=usual - cables_up.get(upper, 0))


def _cables_up(fabric: Fabric, switch: str) -> dict[str, int]:
    """The number of cables to each upper switch."""
    return {fabric.upper(link): len(link.cables) for link in fabric.uplinks(switch)}


def sentence(fabric: Fabric, shortage: Shortage) -> str:
    text = (
        f"{fabric.name(shortage.switch)} has {shortage.has} of the {shortage.usual} uplinks "
        f"that {shortage.alike} of {shortage.sisters} {shortage.kind} have"
    )
    if any(gap.upper for gap in shortage.gaps):
        text += f", missing: {_list_gaps(fabric, shortage.gaps)}"
    if shortage.failing:
        text += f"; {shortage.failing} of its uplinks count fatal errors"
    return f"{text} (degraded: {_damage(shortage)})" if shortage.is_degraded else text


def _damage(shortage: Shortage) -> str:
    capacity = shortage.capacity
    if capacity is None:
        return "fewer than half are in order"
    lost = f"{capacity.lost:,g} of {capacity.usual:,g} Gbit/s are gone"
    if not capacity.redundant:
        return f"{lost}, and none were redundant, as {capacity.below:,g} come from below"
    return f"{lost}, more than half of the {capacity.redundant:,g} that were redundant"


def gap_name(fabric: Fabric, gap: MissingCables) -> str:
    """The name of a gap: `leaf-1 - spine-1 (2 cables)`."""
    upper = fabric.name(gap.upper) if gap.upper else "an unknown switch"
    cables = "cable" if gap.cables == 1 else "cables"
    return f"{fabric.name(gap.lower)} - {upper} ({gap.cables} {cables})"


def _list_gaps(fabric: Fabric, gaps: Sequence[MissingCables]) -> str:
    """The gaps in words: `2 to spine-1, 1 to spine-2`."""
    listed = [f"{gap.cables} to {fabric.name(gap.upper)}" for gap in gaps[:NAMED]]
    rest = sum(gap.cables for gap in gaps[NAMED:])
    return ", ".join(listed) + (f" and {rest} more" if rest else "")
