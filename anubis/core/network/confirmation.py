"""Choose one more round of pairs, to separate the causes of slow pairs from their alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from anubis.core.fabric import NO_PATH, Fabric, RailNic, RailNics
from anubis.core.network.crossing import Flow, Parts
from anubis.core.network.localization import drop_wrong_routes, healthy_nodes
from anubis.core.network.posterior import (
    DIGITS,
    HALF,
    KEPT,
    Case,
    FaultPrior,
    Observation,
    Problem,
)

SETTLED = 1e-3  # chance of choosing wrongly below which no more pairs are needed
WORTH = 5e-3  # share of the remaining doubt: a pair that removes less is not measured
FALSE = 1e-2  # chance that a confirming flow contradicts the truth
LEAST_DOUBT = 1e-2  # about every cause, so that each suspect meets a good partner once
MOST_HYPOTHESES = 24  # for a case
MOST_PAIRS = 48  # for one cause
NEAR, FAR = 32, 48  # good nodes on each leaf of the suspects, and at each distance from it
LEAVES = 8  # the number of leaves from which far nodes are taken
MAYBE = 0.1  # chance of a fault that comes and goes, from which its suspects meet two partners
PARTNERS = 6  # for each node at each distance


def confirmation(
    fabric: Fabric,
    observations: Sequence[Observation],
    model: FaultPrior | None = None,
    *,
    again: bool = False,
) -> tuple[RailNics, ...]:
    """Choose a round of pairs that separates causes from their alternatives. They are disjoint on
    each rail, unless a NIC may come and go.

    At least one node of each pair is known to be good, and no two NICs have met before. Pairs
    across rails are for shortfalls seen across rails. The round runs undisturbed, so the first
    round excuses no pair: a pair that may have shared a cable is followed up like any other.
    `again`: only causes that are still in doubt, not every suspect once more.

    The pairs are those for which hypotheses predict different outcomes. They lower the
    Bhattacharyya bound on the chance of a wrong choice, the sum of sqrt(P(i) P(j)) prod(BC) over
    all pairs of hypotheses i and j, where BC is the sum of sqrt(P(outcome | i) P(outcome | j)). One
    of several parallel links can be crossed on purpose only if routes are known.
    """
    model = model or FaultPrior()
    observations = drop_wrong_routes(fabric, observations, model)
    flows = [observation.flow for observation in observations]
    shortfall = np.array([observation.shortfall for observation in observations], dtype=np.float64)
    problem = Problem(Parts(fabric), flows, shortfall, model, excuses=again)
    routed = any(flow.via for flow in flows)
    met = {frozenset((flow.source, flow.target)) for flow in flows}
    partners = _Partners(fabric, healthy_nodes(observations, model), met, routed)
    contests = []
    for case in problem.cases():
        for column in case.chosen or [None]:
            rows = case.rows if column is None else case.rows[case.explained_rows(column)]
            about = [flows[row] for row in rows.tolist()]
            hypotheses = _hypotheses(problem, case, column, 0.0 if again else LEAST_DOUBT)
            contests.append(_Contest(problem, hypotheses, partners.pairs(about), partners))
    return _choose_pairs(contests)


Suspect = tuple[int, float]  # a column, and the share of tests in which it shows
Hypotheses = dict[frozenset[Suspect], float]  # weight of each


def _hypotheses(problem: Problem, case: Case, column: int | None, least_doubt: float) -> Hypotheses:
    """The hypotheses about a cause: this cause with the others, without it, or with another in its
    place; or, without a cause, any single one.

    Columns that could not be separated so far are listed one by one: other pairs may separate them.
    """
    classes = case.classes.tolist()
    rates = [1.0 if problem.steady[number] else HALF for number in classes]
    members = [
        [(column, rate) for column in problem.classes[number].tolist()]
        for number, rate in zip(classes, rates, strict=True)
    ]
    rest = [
        members[chosen][int(np.argmax(problem.shares[classes[chosen]]))]
        for chosen in case.chosen
        if chosen != column
    ]
    rivals: list[tuple[int | None, float]]
    if column is None:
        rivals = [(None, 1.0), *enumerate(np.exp(case.evidence.gains([])).tolist())]
    else:
        rivals = [(None, max(case.chance(column), least_doubt)), (column, 1.0)]
        rivals += enumerate(case.rivals(column).tolist())
    hypotheses: Hypotheses = {}
    rivals = [(position, round(weight, DIGITS)) for position, weight in rivals]
    for position, weight in sorted(rivals, key=lambda rival: -rival[1])[:MOST_HYPOTHESES]:
        if weight > KEPT:
            if position is None:
                hypotheses[frozenset(rest)] = weight
                continue
            shares = problem.shares[classes[position]].tolist()
            for suspect, share in zip(members[position], shares, strict=True):
                hypotheses[frozenset([*rest, suspect])] = weight * share
    return hypotheses


class _Partners:
    """The nodes that may meet: on each rail, the good nodes of each leaf."""

    def __init__(
        self, fabric: Fabric, good: set[str], met: set[frozenset[RailNic]], routed: bool
    ) -> None:
        self.fabric, self.good, self.met, self.routed = fabric, good, met, routed
        self.turn = 0
        self.under: dict[tuple[str, str], list[str]] = {}
        for nic in fabric.nics:
            if nic.node in good:
                self.under.setdefault((nic.rail, nic.switch), []).append(nic.node)
        self.leaves: dict[str, dict[str, None]] = {}
        for nic in fabric.nics:
            if nic.node:
                self.leaves.setdefault(nic.rail, {})[nic.switch] = None

    def pairs(self, flows: Sequence[Flow]) -> Iterator[RailNics]:
        """Yield pairs of suspects with good partners near and far, and of their good neighbours
        with the same partners."""
        self.turn += 1
        rail_nics = dict.fromkeys(
            rail_nic for flow in flows for rail_nic in (flow.source, flow.target)
        )
        ends = dict.fromkeys(rail_nic.node for rail_nic in rail_nics)
        measured = dict.fromkeys(rail_nic.rail for rail_nic in rail_nics)
        for rail in measured:
            yield from self._pairs_between(list(ends), rail, rail, beside=True)
        across = dict.fromkeys((flow.source.rail, flow.target.rail) for flow in flows)
        for near, far in across:
            if near != far:
                yield from self._pairs_between(list(ends), near, far, beside=True)
        suspects = [node for node in ends if node not in self.good]
        for rail in [rail for rail in self.fabric.rails if rail not in measured][:2]:
            yield from self._pairs_between(suspects, rail, rail, beside=False)

    def _pairs_between(
        self, nodes: Sequence[str], rail: str, far_rail: str, *, beside: bool
    ) -> Iterator[RailNics]:
        """Yield pairs of the doubtful ones of these nodes, and of good nodes beside them, with
        partners."""
        leaves: dict[str, list[str]] = {}
        for node in nodes:
            nic = self.fabric.nic(node, rail)
            if nic:
                leaves.setdefault(nic.switch, []).append(node)
        for leaf, here in leaves.items():
            near = self.under.get((rail, leaf), [])[:NEAR]
            doubtful = [node for node in here if node not in self.good]
            far = self._far_nodes(far_rail, leaf)
            for partners in [near, *far] if rail == far_rail else far:
                some = near if beside and partners is not near else []
                for place, a in enumerate([*doubtful, *some]):
                    for b in _rotate(partners, place * PARTNERS)[:PARTNERS]:
                        rail_nics = RailNic(a, rail), RailNic(b, far_rail)
                        if a != b and frozenset(rail_nics) not in self.met:
                            yield rail_nics

    def _far_nodes(self, rail: str, leaf: str) -> list[list[str]]:
        """Some good nodes at each distance, from other leaves each time."""
        fabric = self.fabric
        steps = fabric.leaf_steps[fabric.leaf_number[leaf]]
        by_distance: dict[int, list[list[str]]] = {}
        for far_leaf in _rotate(list(self.leaves[rail]), self.turn * PARTNERS):
            under = self.under.get((rail, far_leaf), [])
            distance = int(steps[fabric.leaf_number[far_leaf]])
            if far_leaf != leaf and under and distance != NO_PATH:
                by_distance.setdefault(distance, []).append(_rotate(under, self.turn))
        return [
            [node for nodes in zip_longest(*lists[:LEAVES]) for node in nodes if node][:FAR]
            for lists in by_distance.values()
        ]

    def kind(self, ends: RailNics) -> object:
        """A key that is equal for pairs that cross the same suspects: of a good node only its leaf
        counts."""
        if self.routed:
            return ends
        nics = [self.fabric.nic(*rail_nic) for rail_nic in ends]
        return tuple(
            (nic.switch, nic.rail, nic.node if nic.node not in self.good else "")
            for nic in nics
            if nic
        )

    def flows(self, ends: RailNics) -> tuple[Flow, Flow]:
        a, b = ends
        nic_a, nic_b = self.fabric.nic(*a), self.fabric.nic(*b)
        if not self.routed or nic_a is None or nic_b is None:
            return Flow(a, b), Flow(b, a)
        there, back = self.fabric.route(nic_a, nic_b), self.fabric.route(nic_b, nic_a)
        return Flow(a, b, there), Flow(b, a, back)


def _rotate(names: list[str], start: int) -> list[str]:
    start = start % len(names) if names else 0
    return names[start:] + names[:start]


class _Contest:
    """The hypotheses of one case, and how alike each pair's outcomes are under any two of them."""

    def __init__(
        self,
        problem: Problem,
        hypotheses: Hypotheses,
        pairs: Iterable[RailNics],
        partners: _Partners,
    ) -> None:
        self.picked = 0
        fitful = sum(
            weight
            for hypothesis, weight in hypotheses.items()
            if any(rate < 1 for _, rate in hypothesis)
        )
        self.may_come_and_go = fitful > MAYBE * sum(hypotheses.values())
        alike: dict[object, list[RailNics]] = {}
        for pair in pairs:
            alike.setdefault(partners.kind(pair), []).append(pair)
        self.alike = list(alike.values())
        suspects = sorted({suspect for hypothesis in hypotheses for suspect in hypothesis})
        columns = np.unique([column for column, _ in suspects]).astype(np.int64)
        flows = [flow for pair, *_ in self.alike for flow in partners.flows(pair)]
        crossed = problem.parts.crossings(flows, columns)
        missed = np.ones((len(flows), len(columns)))
        place = np.searchsorted(columns, crossed.column)
        missed[crossed.row, place] -= crossed.chance
        of_column = np.searchsorted(columns, [column for column, _ in suspects]).astype(int)
        rate = np.array([rate for _, rate in suspects])
        missed = 1 - rate * (1 - missed[:, of_column])
        place_of = {suspect: place for place, suspect in enumerate(suspects)}
        every = [[place_of[suspect] for suspect in hypothesis] for hypothesis in hypotheses]
        hit = 1 - np.array([missed[:, hypothesis].prod(axis=1) for hypothesis in every])
        bad = np.round(FALSE + (1 - 2 * FALSE) * hit, 9)
        bad, outcome = np.unique(bad, axis=0, return_inverse=True)
        weight = np.bincount(outcome.reshape(-1), list(hypotheses.values()))
        weight = weight / weight.sum()
        self.doubt = np.sqrt(np.outer(weight, weight))
        np.fill_diagonal(self.doubt, 0)
        good, ill = np.sqrt(1 - bad.T), np.sqrt(bad.T)
        ways = [(good, good), (good, ill), (ill, good), (ill, ill)]  # forth and back
        self.amplitudes = np.array([forth[0::2] * back[1::2] for forth, back in ways])

    def pick(self, busy: set[RailNic]) -> RailNics | None:
        """The pair of free nodes that leaves the least doubt; None if no pair helps.

        The sum over hypotheses of their doubt times their likeness under a pair is, for each of its
        four outcomes, a product of matrices, so no likeness is computed separately.
        """
        doubt = float(self.doubt.sum())
        if doubt < SETTLED or not self.alike or self.picked == MOST_PAIRS:
            return None
        left = ((self.amplitudes @ self.doubt) * self.amplitudes).sum(axis=(0, 2))
        left = np.round(left / doubt, DIGITS)
        for kind in np.argsort(left, kind="stable").tolist():
            if left[kind] > 1 - WORTH:
                return None
            free = (ends for ends in self.alike[int(kind)] if busy.isdisjoint(ends))
            if ends := next(free, None):
                self.alike[int(kind)].remove(ends)
                outcomes = self.amplitudes[:, kind]
                self.doubt = self.doubt * (outcomes.T @ outcomes)
                self.picked += 1
                return ends
        return None


def _choose_pairs(contests: Sequence[_Contest]) -> tuple[RailNics, ...]:
    """Choose one pair for each case in turn, so that partners are shared out. A NIC that may come
    and go meets one more if doubt remains, as it shows in some tests only."""
    chosen: list[RailNics] = []
    fitful = [contest for contest in contests if contest.may_come_and_go]
    for some in (contests, fitful):
        busy: set[RailNic] = set()
        open_ = list(some)
        while open_:
            going = []
            for contest in open_:
                if ends := contest.pick(busy):
                    busy.update(ends)
                    chosen.append(ends)
                    going.append(contest)
            open_ = going
    return tuple(sorted(chosen, key=lambda ends: (ends[0].rail, ends[1].rail)))
