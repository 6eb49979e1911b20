"""Repeat bad pairs before a part is blamed, and weigh what they say the second time.

Traffic of other jobs slows pairs as a bad cable does, but comes and goes. A pair that measures
again takes the same cables, if its connection hashes alike, so a fault shows again. How often that
happens by chance is learned from the pairs that were bad once and good again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod

from anubis.core.fabric import Fabric, Part, RailNics
from anubis.core.network.crossing import Flow, links_that_may_be_crossed, may_cross
from anubis.core.network.localization import Cause
from anubis.core.network.pairing import PairTest, joined_nics
from anubis.core.network.traffic import LIMIT, Traffic

MOST_AT_LEAF = 4  # pairs to repeat in one turn, of those that meet one leaf on a rail
BY_CHANCE = 0.002  # a part is blamed only if chance would be seen again less often than this
MOST_BESIDE = 4  # pairs that came good, for each that did not, across a part that is blamed
FEWEST_GONE = 2  # pairs that came good and show a link that comes and goes; for a node one less,
# as all of its flows cross it, and few of them a certain link
# If a node came and went, the same pairs are slow each time by at least this chance. Below it the
# node is less than 90 % sure, if one such cause of 30 is a path that no topology shows.
LEAST_CHANCE_OF_NO_CHANGE = 0.3
USUAL, WEIGHT = 0.05, 1.0  # share of pairs that are slow now and then, before any was measured

FlowShortfalls = Mapping[RailNics, float]


@dataclass(frozen=True, kw_only=True)
class CauseDoubt:
    """The reason why a cause is no defect yet."""

    code: str  # CAME-AND-WENT, NOT-REPEATED or CONGESTED
    reason: str


def is_repeated(turns: Sequence[int]) -> bool:
    return len(turns) > 1


class Repetition:
    """The pairs of some traffic that are bad, and those that were bad once and good again."""

    def __init__(self, fabric: Fabric, traffic: Traffic) -> None:
        self.fabric, self.turns = fabric, traffic.turns
        shortfalls = traffic.shortfalls()
        worst = {pair_test: self._shortfall(pair_test, shortfalls) for pair_test in self.turns}
        self.bad = {pair_test: short for pair_test, short in worst.items() if short > LIMIT}
        repeated = (pair_test for pair_test, turns in self.turns.items() if is_repeated(turns))
        self.gone = [pair_test for pair_test in repeated if pair_test not in self.bad]
        self._gone_flows: dict[frozenset[str], list[Flow]] = {}
        for observation in traffic.observations:
            if observation.flow.gone:
                self._gone_flows.setdefault(_nodes(observation.flow), []).append(observation.flow)

    def pairs_to_repeat(self, proven: Collection[Part]) -> Iterator[PairTest]:
        """Yield bad pairs that chance may have slowed each time, and that no proven fault explains,
        the worst first; at each leaf a few, so that a slow leaf does not repeat all of its pairs.
        """
        met: Counter[str] = Counter()
        for pair_test in sorted(self.bad, key=lambda pair_test: (-self.bad[pair_test], pair_test)):
            repeats = len(self.turns[pair_test]) - 1
            leaves = {nic.switch for nics in joined_nics(self.fabric, pair_test) for nic in nics}
            by_chance = MOST_BESIDE * self._chance_of_each(repeats)
            doubtful = by_chance >= BY_CHANCE and not self._may_cross(pair_test, proven)
            if doubtful and all(met[leaf] < MOST_AT_LEAF for leaf in leaves):
                met.update(leaves)
                yield pair_test

    def doubt(self, cause: Cause, larger: Iterable[Cause] = ()) -> CauseDoubt | None:
        """The doubt about a cause that was not seen again, or not more often than chance would be.
        None if there is no doubt, or if it is unknown when pairs were measured. `larger`: the
        causes that explain more flows.

        Other jobs load a cable for a turn, and so all pairs on it. So turns are counted for a part
        between nodes, and pairs for a node or NIC, whose partners are elsewhere. If they load all
        cables of a leaf for a turn, pairs of each node below it come and go. So turns are counted
        for a node that comes and goes, too.
        """
        if not self.turns:
            return None
        flows = [observation.flow for observation in cause.bad]
        first = min((flow.turns[0] for flow in flows if flow.turns), default=0)
        is_end = all(part.kind in ("node", "nic") for part in cause.parts)
        hidden = set() if is_end else set(chain.from_iterable(map(_bad_flows, larger)))
        if hidden.issuperset(flows):
            reason = "a larger fault hides whether it was there both times"
            return CauseDoubt(code="NOT-REPEATED", reason=reason)
        bad = {_nodes(flow) for flow in flows if not flow.gone and flow not in hidden}
        hiding = {_nodes(flow) for flow in hidden} - bad
        later = [
            pair_test
            for pair_test, turns in self.turns.items()
            if turns[-1] > first
            and (is_end or is_repeated(turns))
            and frozenset(pair_test.pair) not in hiding
            and self._may_cross(pair_test, cause.parts)
        ]
        if not later:
            return CauseDoubt(code="NOT-REPEATED", reason="no pair across it was measured again")
        again = [pair_test for pair_test in later if frozenset(pair_test.pair) in bad]
        if is_end:
            elsewhere = [pair_test for pair_test in self.gone if pair_test not in later]
            chance = _chance_of(len(again), len(later), self._chance(elsewhere))
            if not cause.steady:
                times = {turn for pair_test in again for turn in self.turns[pair_test]} - {first}
                chance = max(chance, self._share_gone_beside(cause, later) ** len(times))
        else:
            chance = self._chance_of_a_cable(again, len(later))
        if chance < BY_CHANCE:
            may_change = is_end and not cause.steady
            if may_change and self._chance_of_no_change(cause, again) < LEAST_CHANCE_OF_NO_CHANGE:
                reason = "the same pairs are slow each time, as on a path that no topology shows"
                return CauseDoubt(code="CANNOT-TELL-APART", reason=reason)
            beside = self._gone_across_a_rival(cause, [f for f in flows if _nodes(f) in bad])
            if beside + is_end < max(FEWEST_GONE, len(bad)):
                return None
            reason = "a link that comes and goes explains this and pairs that came good"
            return CauseDoubt(code="CAME-AND-WENT", reason=reason)
        seen = (
            f"{len(again)} of {len(later)} pairs across it fell short" if again else "it was gone"
        )
        return CauseDoubt(code="CAME-AND-WENT", reason=f"when measured again, {seen}")

    def _chance_of_no_change(self, cause: Cause, again: Iterable[PairTest]) -> float:
        """The chance that a part which comes and goes shows each time in the pairs in which it did
        once; 1 if it did not."""
        if any(may_cross(self.fabric, f, cause.parts) for f in chain(*self._gone_flows.values())):
            return 1.0
        share = len(cause.bad) / (len(cause.bad) + cause.good)
        return prod(share ** (len(self.turns[pair_test]) - 1) for pair_test in again)

    def _gone_across_a_rival(self, cause: Cause, flows: Iterable[Flow]) -> int:
        """The most pairs that came good beside a cause, and may have crossed one link that all of
        these bad flows may have crossed as well."""
        rivals = set.intersection(*(links_that_may_be_crossed(self.fabric, flow) for flow in flows))
        crossed = Counter[Part]()
        for gone in self._gone_flows.values() if rivals else ():
            if not any(may_cross(self.fabric, flow, cause.parts) for flow in gone):
                links = (links_that_may_be_crossed(self.fabric, flow) for flow in gone)
                crossed.update(rivals.intersection(chain.from_iterable(links)))
        return max(crossed.values(), default=0)

    def _chance_of_a_cable(self, again: Sequence[PairTest], tests: int) -> float:
        """The chance that so many pairs were slow each time because other jobs load the same cable
        each time. If one cable slows so many, the pairs cross as many cables as that number goes
        into theirs."""
        repeats = sorted(len(self.turns[pair_test]) - 1 for pair_test in again)
        return min(
            (
                tests / (len(repeats) - place) * self._chance_of_each(times)
                for place, times in enumerate(repeats)
            ),
            default=1.0,
        )

    def _chance_of_each(self, times: int) -> float:
        """The chance of a pair to be slow in each of so many undisturbed tests, for reasons that
        come and go: by the share of all pairs, some of which disturbed each other, or by those that
        were measured undisturbed, whichever is less. These are few, so their share is uncertain."""
        bad, good = 0.5, 0.5
        for pair_test, turns in self.turns.items():
            if pair_test not in self.bad:
                undisturbed = sum(turn > 0 for turn in turns)
                was_bad = max(0, undisturbed - 1) if pair_test in self.gone else 0
                bad, good = bad + was_bad, good + undisturbed - was_bad
        of_undisturbed = 1.0
        for number in range(times):
            of_undisturbed *= (bad + number) / (bad + good + number)
        return min(self._chance(self.gone) ** times, of_undisturbed)

    def _chance(self, gone: Iterable[PairTest]) -> float:
        """The chance of a pair to be slow on a rail, for reasons that come and go."""
        count = sum(map(self._rails_gone, gone))
        return (count + USUAL * WEIGHT) / (self._rails_measured + WEIGHT)

    def _share_gone_beside(self, cause: Cause, own: Collection[PairTest]) -> float:
        """The share of the other pairs across the leaves of a node or NIC that were slow on them
        and good again."""
        places = {(part.name, part.other) for part in cause.parts}
        leaves = {
            nic.switch
            for nic in self.fabric.nics
            if (nic.node, "") in places or (nic.node, nic.rail) in places
        }
        beside = [
            frozenset((a.rail_nic, b.rail_nic))
            for pair_test in self.turns
            if pair_test not in own
            for a, b in joined_nics(self.fabric, pair_test)
            if a.switch != b.switch and not leaves.isdisjoint((a.switch, b.switch))
        ]
        flows = chain.from_iterable(self._gone_flows.values())
        gone = {frozenset((flow.source, flow.target)) for flow in flows}
        return sum(ends in gone for ends in beside) / (len(beside) + WEIGHT)

    @cached_property
    def _rails_measured(self) -> int:
        return sum(1 for pair_test in self.turns for _ in joined_nics(self.fabric, pair_test))

    def _rails_gone(self, pair_test: PairTest) -> int:
        flows = self._gone_flows.get(frozenset(pair_test.pair), ())
        return max(1, len({flow.source.rail for flow in flows}))

    def _shortfall(self, pair_test: PairTest, shortfalls: FlowShortfalls) -> float:
        """The worst shortfall of a pair, both ways and on all rails; 0 if nothing was observed."""
        ends = ((a.rail_nic, b.rail_nic) for a, b in joined_nics(self.fabric, pair_test))
        ways = (way for a, b in ends for way in ((a, b), (b, a)))
        return max((shortfalls.get(way, 0.0) for way in ways), default=0.0)

    def _may_cross(self, pair_test: PairTest, parts: Collection[Part]) -> bool:
        fabric = self.fabric
        flows: Iterable[Flow] = (
            Flow(a.rail_nic, b.rail_nic, (*fabric.route(a, b), *fabric.route(b, a)))
            for a, b in joined_nics(fabric, pair_test)
        )
        if pair_test not in self.bad:  # the rails on which it was bad once, if they are known
            flows = self._gone_flows.get(frozenset(pair_test.pair), flows)
        return any(may_cross(fabric, flow, parts) for flow in flows)


def _bad_flows(cause: Cause) -> set[Flow]:
    return {observation.flow for observation in cause.bad}


def _nodes(flow: Flow) -> frozenset[str]:
    return frozenset((flow.source.node, flow.target.node))


def _chance_of(least: int, tests: int, rate: float) -> float:
    """The chance that at least so many of these tests are bad, each at this rate."""
    from scipy.special import bdtrc

    return float(bdtrc(least - 1, tests, rate)) if least else 1.0
