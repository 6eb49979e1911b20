"""Choose the benchmarks that are worth their time: the paper's Algorithm 1 over known defects.

p is the probability of an incident on any node, C the share of the expected incidents whose defect
is found beforehand. While p (1 - C) > p0, add the benchmark with the largest drop per second.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from anubis.core.amounts import HOUR_S, NODE_HOURS, read_amount, seconds_of
from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.history.defects import UNKNOWN, Defect

NEVER = math.inf  # the age of a test that never ran
FORGOTTEN = 20  # half-lives after which a passed test counts as nothing: a millionth is left
TINY = np.finfo(np.float64).tiny  # seconds of a test that takes none, as a divisor
PLACES = 6  # decimals of a risk: the solver of the cheapest choice keeps its rules to a millionth


# --- risk ----------------------------------------------------------------------------------


def joint_probability(probabilities: npt.ArrayLike) -> float:
    """The probability of an incident on any node, 1 - Π (1 - pₙ). Exact to the last bits, however
    small the probabilities are."""
    p = np.asarray(probabilities, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a probability is not between 0 and 1")
    with np.errstate(divide="ignore"):  # log 0, if an incident is certain
        return float(-np.expm1(np.log1p(-p).sum())) + 0.0


def break_even(suite_s: float, loss_s: float) -> float:
    """The p0 of a job: the risk at which an incident is expected to cost as much as the whole
    suite.

    Below it, not even a suite that found everything would save more node time than it takes.
    """
    return min(1.0, suite_s / loss_s) if loss_s > 0 else 1.0


def expected_loss_s(duration_s: float) -> float:
    """The expected loss of an incident in a job that has to start over, if all moments are equally
    likely."""
    return duration_s / 2


# --- benchmarks and the defects that they find ---------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Detection:
    """The benchmarks that find each kind of defect; a kind is defined by the benchmarks that found
    it."""

    benchmarks: tuple[str, ...]
    finders: Flags  # kinds x benchmarks
    categories: tuple[str, ...]  # in the history
    shares: Floats  # categories, and then all of them together, x kinds; each row adds up to 1
    defects: Mapping[str, int]  # the number of known defects of each category
    known: int  # the number of all known defects

    @cached_property
    def overall(self) -> Floats:
        """The share of each kind over all categories."""
        last: Floats = self.shares[-1]
        return last

    def kind_shares(self, mix: Mapping[str, float]) -> Floats:
        """The share of each kind for a node with this mix of categories of incidents."""
        total = sum(mix.values())
        if not total > 0:
            return self.overall
        row = {category: i for i, category in enumerate(self.categories)}
        weights = np.zeros(len(self.shares))
        for category, weight in mix.items():
            weights[row.get(category, -1)] += weight / total
        return weights @ self.shares

    @cached_property
    def kinds_of(self) -> tuple[Ints, ...]:
        """The kinds that each benchmark finds."""
        return tuple(np.flatnonzero(column) for column in self.finders.T)


def learn_detection(
    defects: Collection[Defect],
    benchmarks: Sequence[str],
    *,
    elsewhere: Sequence[str] = (),
    prior: float,
    category_prior: float,
) -> Detection:
    """Learn the detection from the defects of the history, smoothed twice. `elsewhere` are
    benchmarks that cannot be chosen here, whose passes still count.

    Each benchmark may find something that no other does: `prior` of a defect if it was tried on all
    known defects, and the same share of all defects if it was never tried. Each category is filled
    up with `category_prior` defects that are distributed like those of all categories.
    """
    position = {name: i for i, name in enumerate((*benchmarks, *elsewhere))}
    rows: dict[frozenset[int], int] = {frozenset({i}): i for i in range(len(benchmarks))}
    counts: Counter[tuple[str, int]] = Counter()
    tried: Counter[str] = Counter()
    for defect in defects:
        kind = frozenset(position[name] for name in defect.found_by if name in position)
        counts[defect.category, rows.setdefault(kind, len(rows))] += 1
        tried.update(defect.found_by | defect.tried)
    finders = np.zeros((len(rows), len(position)), dtype=bool)
    for members, row in rows.items():
        finders[row, list(members)] = True

    overall = np.zeros(len(rows))
    for i, name in enumerate(benchmarks):
        overall[i] = prior * (len(defects) + 1) / (tried[name] + 1)
    for (_, row), count in counts.items():
        overall[row] += count
    total = overall.sum()
    overall = overall / total if total else overall

    sizes = Counter(defect.category for defect in defects if defect.category != UNKNOWN)
    categories = tuple(sorted(sizes))
    shares = np.vstack([*(category_prior * overall for _ in categories), overall])
    row_of = {category: i for i, category in enumerate(categories)}
    for (category, row), count in counts.items():
        if category in row_of:
            shares[row_of[category], row] += count
    for category, i in row_of.items():
        shares[i] /= sizes[category] + category_prior
    return Detection(
        benchmarks=tuple(position),
        finders=finders,
        categories=categories,
        shares=shares,
        defects=dict(sizes),
        known=len(defects),
    )


def freshness(age_s: npt.ArrayLike, half_life_s: float) -> Floats:
    """The share of its coverage that a test still has at this age: 2^(-age / half-life).

    A defect since then was not seen, and with time there will be more.
    """
    age = np.maximum(np.asarray(age_s, dtype=np.float64), 0.0)
    if not half_life_s > 0:
        return np.zeros_like(age)
    half_lives = age / half_life_s
    return np.where(half_lives < FORGOTTEN, np.exp2(-half_lives), 0.0)


# --- exposure ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposure:
    """The probability of an incident on each node, and the kinds of defects that no test covers."""

    probabilities: Floats  # of the nodes
    uncovered: Floats  # nodes x kinds: shares of the node's incidents; a row adds up to at most 1

    @cached_property
    def p(self) -> float:
        return joint_probability(self.probabilities)

    @cached_property
    def open(self) -> Floats:
        """The open shares of all expected incidents, nodes x kinds. The rest to 1 is covered."""
        total = self.probabilities.sum()
        if not total > 0:
            return np.zeros_like(self.uncovered)
        return np.asarray((self.probabilities / total)[:, None] * self.uncovered)


def expose(
    detection: Detection,
    probabilities: npt.ArrayLike,
    *,
    mixes: Sequence[Mapping[str, float]] | None = None,
    fresh: Floats | None = None,
) -> Exposure:
    """The exposure of nodes. `mixes`: frequencies of categories, for each node; `fresh`: nodes x
    benchmarks, from 0 to 1.

    Of the benchmarks that find a kind, the one passed last counts.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if mixes is None:
        uncovered = np.tile(detection.overall, (len(p), 1))
    else:
        distinct = {tuple(mix.items()): mix for mix in mixes}  # many nodes have the same mix
        rows_of = {key: detection.kind_shares(mix) for key, mix in distinct.items()}
        rows = [rows_of[tuple(mix.items())] for mix in mixes]
        uncovered = np.array(rows).reshape(len(p), len(detection.finders))
    if fresh is not None:
        covered = np.zeros_like(uncovered)
        for benchmark in np.flatnonzero(fresh.any(axis=0)):
            finds = fresh[:, [benchmark]] * detection.finders[:, benchmark]
            np.maximum(covered, finds, out=covered)
        uncovered *= 1 - covered
    return Exposure(probabilities=p, uncovered=uncovered)


# --- choice --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Budget:
    seconds: float = math.inf  # for tests on any one node
    node_seconds: float = math.inf  # on all nodes together
    nodes: float = math.inf  # the number of nodes that run anything

    def __post_init__(self) -> None:
        for name in ("seconds", "node_seconds", "nodes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected 0 or more")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a budget: 30m on each node, or 8nh of all."""
        number, unit = read_amount(text)
        if number and unit == NODE_HOURS:
            return cls(node_seconds=number * HOUR_S)
        if seconds := seconds_of(text):
            return cls(seconds=seconds)
        raise ValueError(
            f'"{text}", expected node-hours such as 8nh, or a time on each node such as 30m'
        )


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One benchmark on some nodes, and its value after the earlier picks."""

    benchmark: str
    nodes: tuple[int, ...]  # rows of the exposure
    drop: float  # of p (1 - C)
    duration_s: float
    busy: int = 1  # busy nodes while one of them is tested

    @property
    def cost_s(self) -> float:
        return self.duration_s * self.busy * len(self.nodes)  # node-seconds


@dataclass(frozen=True, kw_only=True)
class Choice:
    picks: tuple[Pick, ...]  # the most valuable per second first
    p: float
    covered_before: float  # C of recent measurements
    coverage: float  # C of these and the picks
    missed: float  # the chance of an incident that no pick foresees, each node by itself
    left: Floats = field(compare=False, repr=False)  # nodes x kinds, of all expected incidents

    @property
    def remaining(self) -> float:
        return self.p * (1 - self.coverage)

    @property
    def node_seconds(self) -> float:
        return sum(pick.cost_s for pick in self.picks)

    @property
    def longest_s(self) -> float:
        """The longest time of tests on any one node."""
        busy: defaultdict[int, float] = defaultdict(float)
        for pick in self.picks:
            for node in pick.nodes:
                busy[node] += pick.duration_s
        return max(busy.values(), default=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Menu:
    """The possible choices: each benchmark, for each group of nodes that run the same tests."""

    exposure: Exposure
    detection: Detection
    durations_s: Sequence[float]  # on one node; later benchmarks cannot be chosen
    busy: Sequence[int] = ()  # busy nodes while one is tested: more than 1 with partners
    together: bool = True  # one subset for all nodes; otherwise each node gets its own
    budget: Budget = Budget()
    owed: Flags | None = None  # nodes x benchmarks that must run there in any case

    @cached_property
    def musts(self) -> tuple[tuple[int, int], ...]:
        """The groups and benchmarks that some node in the group owes."""
        if self.owed is None or not self.owed.any():
            return ()
        owed = np.array([self.owed[list(group)].any(axis=0) for group in self.groups])
        return tuple((int(group), int(benchmark)) for group, benchmark in np.argwhere(owed))

    @cached_property
    def finders(self) -> Flags:
        """The kinds x benchmarks that can be chosen."""
        offered: Flags = self.detection.finders[:, : len(self.durations_s)]
        return offered

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        nodes = range(len(self.exposure.probabilities))
        if self.together:
            return (tuple(nodes),) if nodes else ()
        return tuple((node,) for node in nodes)

    @cached_property
    def open(self) -> Floats:
        """The shares of all expected incidents, groups x kinds."""
        open_ = self.exposure.open
        return open_.sum(axis=0, keepdims=True) if self.together and len(open_) else open_

    def leaves_more_than(self, p0: float) -> bool:
        """True if less risk than now is wanted, and enough of it is open for a solver to tell."""
        p = self.exposure.p
        return bool(p > p0 and p * self.open.sum() > 10**-PLACES)

    @cached_property
    def costs_s(self) -> Floats:
        """The node-seconds of each benchmark on a group; all groups have one size."""
        size = len(self.groups[0]) if self.groups else 0
        durations_s = np.asarray(self.durations_s, dtype=np.float64) * size
        return durations_s * self.busy if self.busy else durations_s


def choose(
    menu: Menu, *, p0: float, worth: float = 0.0, among: Collection[tuple[int, int]] | None = None
) -> Choice:
    """Choose tests by Algorithm 1. Tests that are owed are taken first, as far as the budget
    allows; then none is taken whose drop per node-second is below `worth`.

    The runs of one group do not affect another. A heap has the best test of each group, so the best
    of all is on top, and only its group has to search again. At equal rates the larger drop is
    first, then the earlier node, then the earlier benchmark. `among` limits the choice to some
    (group, benchmark).
    """
    p, kinds_of, open_ = menu.exposure.p, menu.detection.kinds_of, menu.open.copy()
    order = np.argsort(-menu.costs_s, kind="stable")  # at equal rates, the larger drop first
    finds, costs_s = 1.0 * menu.finders[:, order], np.maximum(menu.costs_s[order], TINY)
    offered = _offer(menu, among)[:, order]

    def find_best(group: int) -> tuple[float, float, int, int]:
        gains = open_[group] @ finds * offered[group]
        rates = gains / costs_s
        first = rates.argmax()
        return -rates.item(first), -gains.item(first), group, order.item(first)

    left, total_s = _share(float(open_.sum())), 0.0
    busy_s = [0.0] * len(menu.groups)
    taken: list[tuple[int, int, float]] = []
    tested = set[int]()

    def take(group: int, benchmark: int, gain: float) -> None:
        """Take the test, unless it exceeds the budget."""
        nonlocal left, total_s
        ends_s = busy_s[group] + menu.durations_s[benchmark]
        spent_s = total_s + menu.costs_s.item(benchmark)
        if len(menu.groups[group]) * (len(tested) + (group not in tested)) > menu.budget.nodes:
            offered[group] = False
            return
        if not (_fits(ends_s, menu.budget.seconds) and _fits(spent_s, menu.budget.node_seconds)):
            offered[group, order == benchmark] = False
            return
        tested.add(group)
        taken.append((group, benchmark, p * gain))
        open_[group][kinds_of[benchmark]] = 0.0
        left -= gain
        busy_s[group], total_s = ends_s, spent_s

    for group, benchmark in menu.musts:
        take(group, benchmark, float(open_[group][kinds_of[benchmark]].sum()))
    groups = np.flatnonzero(offered.any(axis=1)) if p * left > p0 else ()
    heap = [find_best(int(group)) for group in groups]
    heapq.heapify(heap)
    while heap and p * left > p0:
        minus_rate, minus_gain, group, benchmark = heap[0]
        if not minus_gain < 0 or p * -minus_rate < worth:
            break
        take(group, benchmark, -minus_gain)
        heapq.heapreplace(heap, find_best(group))
    return _choice(menu, taken, np.where(open_ > 0, menu.exposure.open, 0.0))


def _offer(menu: Menu, among: Collection[tuple[int, int]] | None) -> Flags:
    """The groups x benchmarks that may be chosen."""
    offered = np.full((len(menu.groups), len(menu.durations_s)), among is None)
    for group, benchmark in among or ():
        offered[group, benchmark] = True
    return offered


def _fits(seconds: float, limit: float) -> bool:
    return seconds <= limit * (1 + 1e-9)  # three times 0.1 fits into 0.3


def _choice(menu: Menu, taken: Iterable[tuple[int, int, float]], left: Floats) -> Choice:
    exposure, benchmarks = menu.exposure, menu.detection.benchmarks
    of_each_node = left.sum(axis=1) * exposure.probabilities.sum()
    return Choice(
        picks=tuple(
            Pick(
                benchmark=benchmarks[benchmark],
                nodes=menu.groups[group],
                drop=drop,
                duration_s=menu.durations_s[benchmark],
                busy=menu.busy[benchmark] if menu.busy else 1,
            )
            for group, benchmark, drop in taken
        ),
        p=exposure.p,
        covered_before=_share(1 - float(exposure.open.sum())),
        coverage=_share(1 - float(left.sum())),
        missed=joint_probability(np.clip(of_each_node, 0.0, 1.0)),
        left=left,
    )


def _share(number: float) -> float:
    return min(1.0, max(0.0, number))
