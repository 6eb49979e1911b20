"""Which uplinks a switch lacks against its sisters, and which switch is degraded for it.

Nobody says how a fabric was meant to be. So what most switches of one tier have is taken for it,
and the answer says how many they are. One with fewer than half of its redundant uplinks left is
degraded (the ANUBIS paper, section 2.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from anubis.core.fabric import Cable, Fabric, Link, main_rails

FEWEST_SISTERS = 3  # switches on the same rails; fewer are compared with their whole tier
NAMED = 3  # upper switches that a sentence names

CableEnd = tuple[Link, Cable]


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingCables:
    """Cables that are not there, and yet the switch's sisters have them to the same upper one."""

    lower: str
    upper: str  # "" where nobody can tell
    cables: int


@dataclass(frozen=True, kw_only=True)
class Shortage:
    switch: str
    has: int  # uplinks, cable by cable
    usual: int
    alike: int  # sisters that have as many as is usual
    sisters: int  # of so many, itself among them
    kind: str  # what makes them sisters, in words
    gaps: tuple[MissingCables, ...]
    failing: int  # that it has, and that count fatal errors

    @property
    def lacks(self) -> int:
        return max(self.usual - self.has, 0)

    @property
    def is_degraded(self) -> bool:
        return 2 * (self.has - self.failing) < self.usual


def shortages(fabric: Fabric, failing: Collection[CableEnd] = ()) -> tuple[Shortage, ...]:
    """Of all switches that have fewer uplinks than is usual, or fewer than half in order.

    `failing` are the cables that count fatal errors.
    """
    bad = frozenset(failing)
    return tuple(each for each in _compared(fabric, bad) if each.lacks > 0 or each.is_degraded)


@dataclass(frozen=True, kw_only=True)
class _Sisters:
    switches: tuple[str, ...]
    kind: str


def _compared(fabric: Fabric, bad: frozenset[CableEnd]) -> Iterator[Shortage]:
    count = {
        switch.id: sum(len(link.cables) for link in fabric.uplinks(switch.id))
        for switch in fabric.switches
    }
    for switch, candidates in _sisters(fabric).items():
        for sisters in candidates:
            usual, alike = Counter(count[each] for each in sisters.switches).most_common(1)[0]
            if 2 * alike > len(sisters.switches):
                whole = [each for each in sisters.switches if count[each] == usual]
                yield Shortage(
                    switch=switch,
                    has=count[switch],
                    usual=usual,
                    alike=alike,
                    sisters=len(sisters.switches),
                    kind=sisters.kind,
                    gaps=tuple(_gaps(fabric, switch, whole)) if count[switch] < usual else (),
                    failing=len(bad.intersection(_cables(fabric, switch))),
                )
                break


def _cables(fabric: Fabric, switch: str) -> Iterator[CableEnd]:
    for link in fabric.uplinks(switch):
        yield from ((link, cable) for cable in link.cables)


def _sisters(fabric: Fabric) -> dict[str, list[_Sisters]]:
    """Of each switch: those of its tier on the same rails, if they are not few, and its tier."""
    on_rails: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    of_tier: dict[int, list[str]] = {}
    for switch in fabric.switches:
        tier, rails = fabric.tier[switch.id], main_rails(fabric.nics_on.get(switch.id, ()))
        on_rails.setdefault((tier, rails), []).append(switch.id)
        of_tier.setdefault(tier, []).append(switch.id)
    found: dict[str, list[_Sisters]] = {switch.id: [] for switch in fabric.switches}
    for (tier, rails), switches in on_rails.items():
        tiers = f"switches of tier {tier}"
        groups = [_Sisters(switches=tuple(of_tier[tier]), kind=tiers)]
        if FEWEST_SISTERS <= len(switches) < len(of_tier[tier]) and rails:
            several = "rails" if len(rails) > 1 else "rail"
            kind = f"{tiers} on {several} {', '.join(rails)}"
            groups.insert(0, _Sisters(switches=tuple(switches), kind=kind))
        for switch_id in switches:
            found[switch_id] = groups
    return found


def _gaps(fabric: Fabric, switch: str, whole: Sequence[str]) -> Iterator[MissingCables]:
    """What its sisters without a shortage have of those that share an upper switch with it: the
    leaves of its pod. One that has no uplink left is of no known pod, unless there is only one.
    """
    mine, others = _above(fabric, switch), [_above(fabric, each) for each in whole]
    pod = [cables for cables in others if cables.keys() & mine.keys()]
    if not mine and set.intersection(*map(set, others)):
        pod = others
    if not pod:
        yield MissingCables(
            lower=switch, upper="", cables=sum(others[0].values()) - sum(mine.values())
        )
    for upper in dict.fromkeys(name for cables in pod for name in cables):
        (usual, _), *_ = Counter(cables.get(upper, 0) for cables in pod).most_common(1)
        if mine.get(upper, 0) < usual:
            yield MissingCables(lower=switch, upper=upper, cables=usual - mine.get(upper, 0))


def _above(fabric: Fabric, switch: str) -> dict[str, int]:
    """How many cables go up to which switch."""
    return {fabric.upper(link): len(link.cables) for link in fabric.uplinks(switch)}


def sentence(fabric: Fabric, found: Shortage) -> str:
    told = (
        f"{fabric.name(found.switch)} has {found.has} of the {found.usual} uplinks "
        f"that {found.alike} of {found.sisters} {found.kind} have"
    )
    if any(gap.upper for gap in found.gaps):
        told += f", missing: {_listed(fabric, found.gaps)}"
    if found.failing:
        told += f"; {found.failing} of those it has count fatal errors"
    return told + (" (degraded: fewer than half are well)" if found.is_degraded else "")


def gap_name(fabric: Fabric, gap: MissingCables) -> str:
    """leaf-1 - spine-1 (2 cables)"""
    upper = fabric.name(gap.upper) if gap.upper else "nobody knows where"
    cables = "cable" if gap.cables == 1 else "cables"
    return f"{fabric.name(gap.lower)} - {upper} ({gap.cables} {cables})"


def _listed(fabric: Fabric, gaps: Sequence[MissingCables]) -> str:
    """2 to spine-1, 1 to spine-2"""
    told = [f"{gap.cables} to {fabric.name(gap.upper)}" for gap in gaps[:NAMED]]
    rest = sum(gap.cables for gap in gaps[NAMED:])
    return ", ".join(told) + (f" and {rest} more" if rest else "")
