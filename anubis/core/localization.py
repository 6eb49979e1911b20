"""From pairs that fall short to the parts at fault, and to the pairs that would settle the rest.

The smallest set of causes is the most probable one. A flow is hit by a cause with chance
q = detection x share, where share is what part of the flows on its way crosses the cause; several
causes miss it independently (noisy-OR). What an observation says is one number, its odds: how much
more likely its shortfall is of a flow that was hit than of one that was not.

    log posterior(S) = sum of log prior odds over S
                     + sum over observations of log(1 + (1 - prod(1 - q)) (odds - 1))

Observations with odds up to 1 speak against causes, and there each cause has to answer for itself:
log(1 - q (1 - odds)). So they can be summed in advance, and only those that speak for some cause
tie causes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

import numpy as np
import numpy.typing as npt

from anubis.core.crossing import WAYS, Crossings, Flow, Kind, Part, Parts, Way
from anubis.core.pairing import Pair, Round
from anubis.core.topology import NO_PATH, Fabric, Nic, Numbers, Shares

Group = tuple[str, ...]
Table = npt.NDArray[np.float64]
Route = Callable[[Nic, Nic], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Observation:
    """By what share a flow fell short of its like; 0 or less is as good as they are or better."""

    flow: Flow
    shortfall: float


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is believed before anything is measured."""

    limit: float = 0.05  # a flow that falls short by more is bad
    noise: float = 0.0  # standard deviation of the shortfall of healthy flows; 0: bad is bad
    false_alarm: float = 1e-3  # a flow that nothing was wrong with, and yet far too slow
    detection: float = 0.98  # a flow that crosses a faulty part suffers
    odds: float = 20.0  # alternatives less probable than a cause by no more than this are named
    prior: Mapping[Kind, float] = field(
        default_factory=lambda: {
            "node": 3e-3,
            "nic": 1e-3,
            "link": 1e-3,
            "uplinks": 3e-4,
            "switch": 3e-4,
        }
    )


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A fault, and the parts that explain it as well as each other; one part if it is known."""

    parts: tuple[Part, ...]  # the most probable first
    way: Way
    confidence: float  # that it is one of them, rather than another part or chance
    shortfall: float  # of the bad flows through it, in the middle
    bad: tuple[Observation, ...]  # that cross it and speak for it
    good: int  # flows that cross it and are good


@dataclass(frozen=True, kw_only=True)
class Located:
    causes: tuple[Cause, ...]
    unexplained: tuple[Observation, ...]  # bad, and more probably by chance than by any cause


def observe(fabric: Fabric, measured: Iterable[tuple[Flow, float]]) -> list[Observation]:
    """Rates against what flows of as many hops on the same rail usually reach."""
    rates = list(measured)
    kinds: dict[tuple[int | None, str], list[float]] = {}
    where = [(hops_of(fabric, flow), flow.rail) for flow, _ in rates]
    for kind, (_, rate) in zip(where, rates, strict=True):
        kinds.setdefault(kind, []).append(rate)
    usual = {kind: usual_rate(np.array(found)) for kind, found in kinds.items()}
    return [
        Observation(flow, 1 - rate / usual[kind] if usual[kind] > 0 else 0.0)
        for kind, (flow, rate) in zip(where, rates, strict=True)
    ]


def usual_rate(rates: Shares, window: float = 0.05) -> float:
    """The middle of the fast ones: a slow leaf may slow more than half of all pairs.

    From the 90th percentile on, the median of all within 5 % of the last answer.
    """
    here, before = float(np.quantile(rates, 0.9)), np.inf
    for _ in range(50):
        if here == before:
            break
        here, before = float(np.median(rates[np.abs(rates - here) <= window * here])), here
    return here


def noise_of(observations: Sequence[Observation]) -> float:
    """The standard deviation of healthy flows, from those that are faster than usual."""
    found = np.array([-each.shortfall for each in observations if each.shortfall < 0])
    return float(1.4826 * np.median(found)) if len(found) else 0.0


def hops_of(fabric: Fabric, flow: Flow) -> int | None:
    a, b = fabric.nic(flow.source, flow.rail), fabric.nic(flow.target, flow.rail)
    return fabric.hops(a, b) if a and b else None


def odds(shortfall: Shares, model: Model) -> Shares:
    """How much more likely each shortfall is of a flow that was hit than of one that was not.

    Hit, it falls short by anything between the limit and 1 alike; not hit, by chance as noise has
    it, and with a false alarm's chance as if it were hit. A good flow never speaks for a cause.
    """
    from scipy.special import ndtr

    noise = max(model.noise, 1e-3)
    x = np.maximum(np.asarray(shortfall, dtype=np.float64), 0.0)
    hit = (ndtr((x - model.limit) / noise) - ndtr((x - 1) / noise)) / (1 - model.limit)
    missed = np.exp(-0.5 * (x / noise) ** 2) / (noise * np.sqrt(2 * np.pi))
    if model.noise == 0:
        hit, missed = (x > model.limit) * 1.0, (x <= model.limit) * 1.0
    alike = (1 - model.false_alarm) * missed + model.false_alarm * hit
    found = np.divide(hit, alike, out=np.full_like(x, 1 / model.false_alarm), where=alike > 0)
    return np.where(x > model.limit, found, np.minimum(found, 1.0))


def locate(
    fabric: Fabric, observations: Sequence[Observation], model: Model | None = None
) -> Located:
    """The most probable set of causes; the parts that nobody can tell apart count as one."""
    model = model or Model()
    problem = _Problem(Parts(fabric), observations, model)
    causes = [cause for case in problem.cases() for cause in problem.causes(case)]
    explained = {id(each) for cause in causes for each in cause.bad}
    return Located(
        causes=tuple(sorted(causes, key=lambda cause: (-len(cause.bad), cause.parts))),
        unexplained=tuple(
            each
            for each in observations
            if each.shortfall > model.limit and id(each) not in explained
        ),
    )


def healthy(observations: Sequence[Observation], model: Model | None = None) -> set[str]:
    """The nodes that took part and none of whose flows speaks for a fault."""
    against = odds(np.array([each.shortfall for each in observations]), model or Model()) <= 1
    nodes, suspects = set(), set()
    for each, good in zip(observations, against.tolist(), strict=True):
        both = {each.flow.source, each.flow.target}
        nodes |= both
        if not good:
            suspects |= both
    return nodes - suspects


# --- the posterior ---------------------------------------------------------------------------

KEPT = 1e-3  # a column whose own odds against chance are less is in no probable set
MOST_COLUMNS = 14  # of a case that is solved by looking at every set
MOST_CELLS = 4_000_000  # sets x observations


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Observations and columns that hang together, and what was made of them."""

    rows: Numbers  # that speak for a cause, as numbers of observations
    classes: Numbers
    q: Table  # rows x classes
    odds: Shares  # of each row
    weight: Shares  # of each class: its prior, and all that speaks against it
    chosen: tuple[int, ...]  # columns of q
    rivals: Table  # chosen x classes: how probable in its place, over how probable it is
    chance: Shares  # chosen: the same of nothing in its place
    sets: tuple[npt.NDArray[np.bool_], Shares] | None  # all there are, with their posterior

    def alternatives(self, place: int, least: float) -> list[int]:
        """The class chosen at this place and all that explain about as well, best first."""
        beside = [
            column
            for column in np.argsort(-self.rivals[place], kind="stable").tolist()
            if column not in self.chosen and self.rivals[place, column] >= least
        ]
        return [self.chosen[place], *beside]

    def confidence(self, place: int, named: Sequence[int]) -> float:
        if self.sets is not None:
            members, posterior = self.sets
            return float(posterior[members[:, list(named)].any(axis=1)].sum())
        others = np.delete(self.rivals[place], [c for c in self.chosen if c not in named])
        return float(self.rivals[place, list(named)].sum() / (others.sum() + self.chance[place]))


class _Problem:
    def __init__(self, parts: Parts, observations: Sequence[Observation], model: Model) -> None:
        self.parts, self.observations, self.model = parts, observations, model
        self.shortfall = np.array([each.shortfall for each in observations], dtype=np.float64)
        self.odds = odds(self.shortfall, model)
        speaking = np.flatnonzero(self.odds > 1)
        flows = [each.flow for each in observations]
        self.crossed, self.classes = parts.classes(flows, speaking)
        self.q = model.detection * self.crossed.chance
        count = len(self.classes)
        of_row = self.odds[self.crossed.row]
        each = np.log1p(self.q * (of_row - 1))
        against = of_row <= 1
        column = self.crossed.column
        prior = np.array([self._prior(columns) for columns in self.classes])
        self.weight = np.log(prior / (1 - prior))
        self.weight += np.bincount(column[against], each[against], minlength=count)
        alone = self.weight + np.bincount(column[~against], each[~against], minlength=count)
        self.kept = alone > np.log(KEPT)

    def _prior(self, columns: Numbers) -> float:
        """A part's prior is shared by the ways in which it may be at fault."""
        kinds: tuple[Kind, ...] = ("node", "nic", "link", "switch", "uplinks")
        prior = np.array([self.model.prior[kind] for kind in kinds])
        found = prior[self.parts.kinds(columns)]
        return min(float(np.sum(np.where(self.parts.ways(columns), found / 3, found))), 0.5)

    def cases(self) -> Iterator[_Case]:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        entry = self.kept[self.crossed.column] & (self.odds[self.crossed.row] > 1)
        row, column, q = self.crossed.row[entry], self.crossed.column[entry], self.q[entry]
        rows, row = np.unique(row, return_inverse=True)
        columns, column = np.unique(column, return_inverse=True)
        size = len(rows) + len(columns)
        graph = csr_array((np.ones(len(row)), (row, column + len(rows))), shape=(size, size))
        count, part = connected_components(graph, directed=False)
        for number in range(count):
            mine = part[row] == number
            here, at = np.unique(row[mine], return_inverse=True)
            those, to = np.unique(column[mine], return_inverse=True)
            table = np.zeros((len(here), len(those)))
            table[at, to] = q[mine]
            yield _solved(
                rows[here],
                columns[those],
                table,
                self.odds[rows[here]],
                self.weight[columns[those]],
            )

    def causes(self, case: _Case) -> Iterator[Cause]:
        for place, column in enumerate(case.chosen):
            named = case.alternatives(place, 1 / self.model.odds)
            columns = [c for k in named for c in self.classes[case.classes[k]].tolist()]
            parts = tuple(dict.fromkeys(self.parts.part(c) for c in columns))
            ways = [c % 3 for c in columns if self.parts.part(c) == parts[0]]
            mine = self.crossed.column == case.classes[column]
            crossing = self.crossed.row[mine]
            others = [k for k in case.chosen if k != column]
            most = dict(zip(case.rows.tolist(), case.q[:, others].max(axis=1, initial=0.0), strict=True))
            bad = [
                self.observations[row]
                for row, q in zip(crossing.tolist(), self.q[mine].tolist(), strict=True)
                if self.shortfall[row] > self.model.limit and q >= most.get(row, 0.5)
            ]
            yield Cause(
                parts=parts,
                way=WAYS[ways[0]],
                confidence=case.confidence(place, named),
                shortfall=median(each.shortfall for each in bad),
                bad=tuple(bad),
                good=int(np.sum(self.shortfall[crossing] <= self.model.limit)),
            )


def _solved(
    rows: Numbers, classes: Numbers, q: Table, odds_: Shares, weight: Shares
) -> _Case:
    count = len(classes)
    exact = count <= MOST_COLUMNS and len(rows) << count <= MOST_CELLS
    sets = None
    if exact:
        members, score = _all_sets(q, odds_, weight)
        chosen = np.flatnonzero(members[np.argmax(score)]).tolist()
        posterior = np.exp(score - score.max())
        sets = members, posterior / posterior.sum()
        rivals, chance = _rivals_among(sets, chosen)
    else:
        chosen = _search(q, odds_, weight)
        rivals, chance = _rivals_by_exchange(q, odds_, weight, chosen)
    return _Case(
        rows=rows,
        classes=classes,
        q=q,
        odds=odds_,
        weight=weight,
        chosen=tuple(chosen),
        rivals=rivals,
        chance=chance,
        sets=sets,
    )


def _all_sets(
    q: Table, odds_: Shares, weight: Shares
) -> tuple[npt.NDArray[np.bool_], Shares]:
    """Every set of columns, with its score; the empty one has 0."""
    missed, score = np.ones((1, len(odds_))), np.zeros(1)
    for column in range(len(weight)):
        missed = np.concatenate([missed, missed * (1 - q[:, column])])
        score = np.concatenate([score, score + weight[column]])
    score += np.log(odds_ - missed * (odds_ - 1)).sum(axis=1)
    numbers = np.arange(len(score))[:, None] >> np.arange(len(weight))
    return (numbers & 1).astype(bool), score


def _rivals_among(
    sets: tuple[npt.NDArray[np.bool_], Shares], chosen: Sequence[int]
) -> tuple[Table, Shares]:
    """How probable the sets with another in place of one are, over those with that one."""
    members, posterior = sets
    rivals = np.zeros((len(chosen), members.shape[1]))
    chance = np.zeros(len(chosen))
    for place, column in enumerate(chosen):
        having = float(posterior[members[:, column]].sum())
        without = posterior * ~members[:, column]
        rivals[place] = without @ members / having
        rivals[place, column] = 1
        chance[place] = without.sum() / having
    return rivals, chance


def _gains(missed: Shares, q: Table, odds_: Shares, weight: Shares) -> Shares:
    """What adding each column would add to the score, if `missed` is what the others leave."""
    left = missed * (odds_ - 1)
    after = odds_[:, None] - left[:, None] * (1 - q)
    return np.asarray(weight + np.log(after / (odds_ - left)[:, None]).sum(axis=0))


def _missed(q: Table, columns: Sequence[int]) -> Shares:
    return np.asarray(np.prod(1 - q[:, list(columns)], axis=1))


def _score(q: Table, odds_: Shares, weight: Shares, columns: Sequence[int]) -> float:
    left = _missed(q, columns) * (odds_ - 1)
    return float(weight[list(columns)].sum() + np.log(odds_ - left).sum())


def _search(q: Table, odds_: Shares, weight: Shares) -> list[int]:
    """Add the best; then let any other in, and drop whom it makes superfluous, while that helps."""
    best: list[int] = []
    while True:
        gains = _gains(_missed(q, best), q, odds_, weight)
        gains[best] = -np.inf
        if gains.max(initial=-np.inf) <= 0:
            break
        best.append(int(np.argmax(gains)))
    score = _score(q, odds_, weight, best)
    improving = True
    while improving:
        improving = False
        for column in range(len(weight)):
            if column in best:
                continue
            other = _trimmed(q, odds_, weight, [*best, column])
            value = _score(q, odds_, weight, other)
            if value > score + 1e-9:
                best, score, improving = other, value, True
    return sorted(best)


def _trimmed(q: Table, odds_: Shares, weight: Shares, columns: Sequence[int]) -> list[int]:
    """Without those, the worst first, that are better left out; never the last one."""
    kept = list(columns)
    while len(kept) > 1:
        worth = [
            _score(q, odds_, weight, kept) - _score(q, odds_, weight, [c for c in kept if c != k])
            for k in kept[:-1]
        ]
        if min(worth) > 0:
            break
        kept.pop(int(np.argmin(worth)))
    return kept


def _rivals_by_exchange(
    q: Table, odds_: Shares, weight: Shares, chosen: Sequence[int]
) -> tuple[Table, Shares]:
    rivals, chance = np.zeros((len(chosen), len(weight))), np.zeros(len(chosen))
    for place, column in enumerate(chosen):
        gains = _gains(_missed(q, [c for c in chosen if c != column]), q, odds_, weight)
        rivals[place] = np.exp(np.minimum(gains - gains[column], 0))
        chance[place] = np.exp(min(-gains[column], 0))
    return rivals, chance


# --- one more round --------------------------------------------------------------------------

SETTLED = 1e-3  # a chance of choosing wrongly that needs no more pairs
LEAST_DOUBT = 1e-2  # in every cause, so that each suspect meets a good partner once
MOST_HYPOTHESES = 24  # of a case
NEAR, FAR = 32, 48  # good nodes on each leaf of the suspects, and at each distance from it
PARTNERS = 6  # of each node at each distance


def confirmation(
    fabric: Fabric,
    observations: Sequence[Observation],
    model: Model | None = None,
    *,
    route: Route | None = None,
    most: int = 48,
) -> dict[str, Round]:
    """Per rail one round of disjoint pairs that would tell the causes from their alternatives.

    In each pair one at least is known to be good. Which pairs, follows from what each hypothesis
    says of them: those that bring down the Bhattacharyya bound on the chance of choosing wrongly,
    the sum of sqrt(P(i) P(j)) prod(BC) over all two hypotheses i and j, where BC is the sum of
    sqrt(P(outcome | i) P(outcome | j)). `most` bounds the pairs for one case. Only with a route
    can pairs be chosen that cross one link rather than its like.
    """
    model = model or Model()
    problem = _Problem(Parts(fabric), observations, model)
    seats = _Seats(fabric, healthy(observations, model), route)
    asked = [_asked(problem, case, seats) for case in problem.cases()]
    columns = np.unique([c for each in asked for columns, _ in each.hypotheses for c in columns])
    flows = [flow for each in asked for pair in each.pairs for flow in seats.flows(*pair)]
    crossed = problem.parts.crossings(flows, columns.astype(np.int64))
    contests, begin = [], 0
    for each in asked:
        end = begin + 2 * len(each.pairs)
        low, high = (crossed.row >= begin), (crossed.row < end)
        contests.append(_Contest(each, crossed, low & high, begin, model.detection))
        begin = end
    return _chosen(contests, most)


@dataclass(frozen=True)
class _Asked:
    """What might be so, with its probability up to a factor, and the pairs that might tell."""

    hypotheses: list[tuple[frozenset[int], float]]  # of columns
    pairs: list[tuple[str, str, str]]


def _asked(problem: _Problem, case: _Case, seats: _Seats) -> _Asked:
    sets: list[tuple[list[int], float]] = [(list(case.chosen), 1.0)]
    for place, column in enumerate(case.chosen):
        rest = [c for c in case.chosen if c != column]
        sets.append((rest, max(float(case.chance[place]), LEAST_DOUBT)))
        for other, rival in enumerate(case.rivals[place].tolist()):
            if other not in case.chosen and rival > KEPT:
                sets.append(([other, *rest], rival))
    if not case.chosen:
        alone = np.exp(_gains(np.ones(len(case.rows)), case.q, case.odds, case.weight))
        sets += [([other], value) for other, value in enumerate(alone.tolist()) if value > KEPT]
    sets = sorted(sets, key=lambda each: -each[1])[:MOST_HYPOTHESES]
    hypotheses: list[tuple[frozenset[int], float]] = []
    for members, weight in sets:
        each = [problem.classes[case.classes[k]].tolist() for k in members]
        first, rest = each[:1], [columns[0] for columns in each[1:]]
        for column in first[0] if first else [None]:
            found = frozenset(rest if column is None else [column, *rest])
            hypotheses.append((found, weight / len(first[0] if first else [None])))
    flows = [problem.observations[row].flow for row in case.rows]
    return _Asked(hypotheses, list(seats.pairs(flows)))


class _Seats:
    """Who may meet whom: on each rail, the good nodes of each leaf."""

    def __init__(self, fabric: Fabric, good: set[str], route: Route | None) -> None:
        self.fabric, self.good, self.route = fabric, good, route
        self.turn = 0
        self.under: dict[tuple[str, str], list[str]] = {}
        for nic in fabric.nics:
            if nic.node in good:
                self.under.setdefault((nic.rail, nic.switch), []).append(nic.node)
        self.leaves: dict[str, dict[str, None]] = {}
        for nic in fabric.nics:
            if nic.node:
                self.leaves.setdefault(nic.rail, {})[nic.switch] = None

    def pairs(self, flows: Sequence[Flow]) -> Iterator[tuple[str, str, str]]:
        """Suspects with good partners near and far, and good neighbours of theirs with the same."""
        self.turn += 1
        ends = dict.fromkeys(node for flow in flows for node in (flow.source, flow.target))
        suspects = [node for node in ends if node not in self.good]
        measured = dict.fromkeys(flow.rail for flow in flows)
        others = [rail for rail in self.fabric.rails if rail not in measured][:2]
        for rail in [*measured, *others]:
            leaves: dict[str, list[str]] = {}
            for node in suspects if rail in others else ends:
                nic = self.fabric.nic(node, rail)
                if nic:
                    leaves.setdefault(nic.switch, []).append(node)
            for leaf, here in leaves.items():
                near = self.under.get((rail, leaf), [])[:NEAR]
                doubtful = [node for node in here if node not in self.good]
                others_near = near if rail in measured else []
                for others_far in [near, *self._far(rail, leaf)]:
                    some = [] if others_far is near else others_near
                    for place, a in enumerate([*doubtful, *some]):
                        for b in _turned(others_far, place * PARTNERS)[:PARTNERS]:
                            yield a, b, rail

    def _far(self, rail: str, leaf: str) -> list[list[str]]:
        """Some good nodes at each distance, of other leaves each time."""
        fabric = self.fabric
        steps = fabric.leaf_steps[fabric.leaf_number[leaf]]
        found: dict[int, list[list[str]]] = {}
        for other in _turned(list(self.leaves[rail]), self.turn * PARTNERS):
            under = self.under.get((rail, other), [])
            distance = int(steps[fabric.leaf_number[other]])
            if other != leaf and under and distance != NO_PATH:
                found.setdefault(distance, []).append(_turned(under, self.turn))
        return [
            [node for nodes in zip_longest(*lists[:FAR]) for node in nodes if node][:FAR]
            for lists in found.values()
        ]

    def flows(self, a: str, b: str, rail: str) -> tuple[Flow, Flow]:
        one, other = self.fabric.nic(a, rail), self.fabric.nic(b, rail)
        if self.route is None or one is None or other is None:
            return Flow(a, b, rail), Flow(b, a, rail)
        there, back = self.route(one, other), self.route(other, one)
        return Flow(a, b, rail, there), Flow(b, a, rail, back)


def _turned(names: list[str], start: int) -> list[str]:
    start = start % len(names) if names else 0
    return names[start:] + names[:start]


class _Contest:
    """The hypotheses of one case, and what every pair would say of each two of them."""

    def __init__(
        self,
        asked: _Asked,
        crossed: Crossings,
        mine: npt.NDArray[np.bool_],
        begin: int,
        detection: float,
    ) -> None:
        self.pairs = asked.pairs
        self.picked = 0
        columns = sorted({c for found, _ in asked.hypotheses for c in found})
        place = {column: number for number, column in enumerate(columns)}
        hit = np.zeros((2 * len(self.pairs), len(columns)))
        own = mine & np.isin(crossed.column, columns)
        at = [place[c] for c in crossed.column[own].tolist()]
        hit[crossed.row[own] - begin, at] = detection * crossed.chance[own]
        bad = np.stack(
            [1 - np.prod(1 - hit[:, [place[c] for c in found]], axis=1) for found, _ in asked.hypotheses]
        )
        bad = np.round(0.01 + 0.98 * bad, 9)
        bad, where = np.unique(bad, axis=0, return_inverse=True)
        weight = np.bincount(where.reshape(-1), [weight for _, weight in asked.hypotheses])
        weight = weight / weight.sum()
        self.doubt = np.sqrt(np.outer(weight, weight))
        np.fill_diagonal(self.doubt, 0)
        good, ill = np.sqrt(1 - bad.T), np.sqrt(bad.T)
        alike = good[:, :, None] * good[:, None, :] + ill[:, :, None] * ill[:, None, :]
        self.alike = alike[0::2] * alike[1::2]  # both directions of each pair

    def best(self, busy: set[tuple[str, str]]) -> int | None:
        """The pair of free nodes that leaves the least doubt, if it is worth its time."""
        doubt = float(self.doubt.sum())
        if doubt < SETTLED or not self.pairs:
            return None
        left = np.einsum("tij,ij->t", self.alike, self.doubt)
        for pair in np.argsort(left, kind="stable").tolist():
            if left[pair] > 0.99 * doubt:
                return None
            a, b, rail = self.pairs[pair]
            if (a, rail) not in busy and (b, rail) not in busy:
                return int(pair)
        return None

    def pick(self, pair: int) -> tuple[str, str, str]:
        self.doubt = self.doubt * self.alike[pair]
        self.picked += 1
        return self.pairs[pair]


def _chosen(contests: Sequence[_Contest], most: int) -> dict[str, Round]:
    """One pair for each case in turn, so that partners are shared out."""
    busy: set[tuple[str, str]] = set()
    rounds: dict[str, list[Pair]] = {}
    open_ = list(contests)
    while open_:
        going = []
        for contest in open_:
            pair = contest.best(busy) if contest.picked < most else None
            if pair is not None:
                a, b, rail = contest.pick(pair)
                busy |= {(a, rail), (b, rail)}
                rounds.setdefault(rail, []).append((a, b))
                going.append(contest)
        open_ = going
    return {rail: tuple(pairs) for rail, pairs in sorted(rounds.items())}


# --- without a topology -----------------------------------------------------------------------


def blame(groups: Mapping[Group, bool]) -> dict[str, tuple[Group, ...]]:
    """The nodes whose every group is bad while their partners did well elsewhere.

    `groups` says of each group whether it is bad; the answer gives each blamed node its bad
    groups as evidence. A node in any good group is cleared. In a bad group of cleared nodes it is
    their link that is bad, and in a bad group with several suspects nobody can tell which: neither
    blames a node here.
    """
    cleared = {node for group, bad in groups.items() if not bad for node in group}
    blamed: dict[str, list[Group]] = {}
    for group, bad in groups.items():
        suspects = [node for node in group if node not in cleared]
        if bad and len(suspects) == 1:
            blamed.setdefault(suspects[0], []).append(group)
    return {node: tuple(evidence) for node, evidence in blamed.items()}


def best_group_of_each_node(groups: Mapping[Group, float]) -> list[Group]:
    """Each node's fastest group, once each: what the nodes can do when their partner is good.

    A slow node drags all its groups down, so in a small fleet half of all pairs may be bad while
    most nodes are well. Learning from these keeps the vote with the nodes.
    """
    best: dict[str, Group] = {}
    for group, rate in groups.items():
        for node in group:
            if node not in best or rate > groups[best[node]]:
                best[node] = group
    return list(best.values())
