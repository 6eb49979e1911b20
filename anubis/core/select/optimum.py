"""Find the cheapest choice of tests by integer programming; the greedy one is compared with it.

With x = 1 for each run and z = 1 for each kind of defect that no run finds, it minimises Σ cost x
subject to Σ open z <= p0 / p and z >= 1 - Σ x over the benchmarks that find the kind. Runs that a
node owes have x = 1, as far as the budget allows them.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from anubis.core.arrays import Floats
from anubis.core.select.selection import PLACES, Choice, Menu, choose

SLACK = 1e-9  # for shares that add up to at most 1
# The first limits count steps, so that the choice is the same on every machine that has time for
# them. The last one counts seconds, for machines that have not.
MOST_COLUMNS = 20_000  # of a programme; in a larger one the first step alone takes seconds
MOST_WORK = 400_000  # columns x nodes of the search tree
EXACT_COLUMNS = 2_000  # in a larger programme a choice within NEAR of the cheapest suffices
NEAR = 1e-3  # as a share of its cost: the last thousandth takes most of the time
LONGEST_S = 2.0  # of a step, three of which a choice takes at most


def optimum(menu: Menu, *, p0: float, worth: float = 0.0, greedy: Choice | None = None) -> Choice:
    """The cheapest choice that reaches p0 or, if none does, the cheapest that covers the most.

    `greedy` is the greedy choice, if it was made already. Tests whose drop per node-second is below
    `worth` are left out. The greedy choice is taken if the programme is too large, or if the search
    has to end before it finds a better one.
    """
    p, greedy = menu.exposure.p, greedy or choose(menu, p0=p0, worth=worth)
    if not menu.leaves_more_than(p0):
        return greedy
    programme = _Programme(menu)
    if programme.columns > MOST_COLUMNS:
        return greedy
    run = programme.cheapest_runs(p0 / p)
    if run is None:
        run = programme.cheapest_runs(programme.least_left() + SLACK)
    chosen = () if run is None else np.flatnonzero(run[: programme.runs] > 0.5)
    among = {divmod(int(i), len(menu.durations_s)) for i in chosen}
    cheapest = choose(menu, p0=p0, worth=worth, among=among)
    return min(cheapest, greedy, key=lambda choice: _badness(choice, p0))


def _badness(choice: Choice, p0: float) -> tuple[float, float]:
    """The risk above p0, to the solver's precision, then the cost: the smaller, the better."""
    return max(0.0, round(choice.remaining - p0, PLACES)), choice.node_seconds


def _owed_runs(menu: Menu) -> list[tuple[int, int]]:
    """The (group, benchmark) that are owed and fit into the budget."""
    if not menu.musts:
        return []
    group_of = {nodes: group for group, nodes in enumerate(menu.groups)}
    names = menu.detection.benchmarks
    picks = choose(menu, p0=1.0).picks  # with a risk of 1 accepted, only these are taken
    return [(group_of[pick.nodes], names.index(pick.benchmark)) for pick in picks]


class _Programme:
    """The integer programme. Its columns are x of each (group, benchmark), z of each (group, kind)
    and, if the number of nodes is limited, t of each group, which is 1 if the group runs anything.
    """

    def __init__(self, menu: Menu) -> None:
        groups, (kinds, benchmarks) = len(menu.groups), menu.finders.shape
        durations_s = np.asarray(menu.durations_s, dtype=np.float64)
        self.runs, self.gaps = groups * benchmarks, groups * kinds
        self.costs_s = np.tile(menu.costs_s, groups)
        self.tested = groups if np.isfinite(menu.budget.nodes) else 0
        self.columns = self.runs + self.gaps + self.tested
        self.open = menu.open.ravel()
        self.least = np.zeros(self.columns)
        self.least[[group * benchmarks + benchmark for group, benchmark in _owed_runs(menu)]] = 1.0
        identity = sparse.eye_array(groups)
        finders = sparse.csr_array(menu.finders.astype(np.float64))
        covers = sparse.hstack([sparse.kron(identity, finders), sparse.eye_array(self.gaps)])
        tested = sparse.csr_array((self.gaps, self.tested))
        self.rules = [LinearConstraint(sparse.hstack([covers, tested]), lb=1.0)]
        if np.isfinite(menu.budget.node_seconds):
            self._limit(self.costs_s[None, :], menu.budget.node_seconds)
        if np.isfinite(menu.budget.seconds):
            self._limit(sparse.kron(identity, durations_s[None, :]), menu.budget.seconds)
        if self.tested:
            each_run = sparse.kron(identity, np.ones((benchmarks, 1)))
            runs = [sparse.eye_array(self.runs), sparse.csr_array((self.runs, self.gaps))]
            self.rules.append(LinearConstraint(sparse.hstack([*runs, -each_run]), ub=0.0))
            sizes = np.zeros(self.columns)
            sizes[self.runs + self.gaps :] = len(menu.groups[0])
            self.rules.append(LinearConstraint(sizes[None, :], ub=menu.budget.nodes))

    def _limit(self, rows: sparse.sparray | Floats, limit: float) -> None:
        none = sparse.csr_array((rows.shape[0], self.gaps + self.tested))
        self.rules.append(LinearConstraint(sparse.hstack([rows, none]), ub=limit))

    def cheapest_runs(self, left: float) -> Floats | None:
        """The cheapest runs that leave at most this much; None if no runs do."""
        row = sparse.csr_array(self._open_shares()[None, :])
        costs = np.concatenate([self.costs_s, np.zeros(self.gaps + self.tested)])
        return self._solve(costs, [LinearConstraint(row, ub=left)])

    def least_left(self) -> float:
        best = self._solve(self._open_shares(), [])
        return 1.0 if best is None else float(self._open_shares() @ best)

    def _open_shares(self) -> Floats:
        return np.concatenate([np.zeros(self.runs), self.open, np.zeros(self.tested)])

    def _solve(self, objective: Floats, more: list[LinearConstraint]) -> Floats | None:
        solved = milp(
            objective,
            integrality=np.repeat([1, 0, 1], [self.runs, self.gaps, self.tested]),
            bounds=Bounds(self.least, 1.0),
            constraints=[*self.rules, *more],
            options={
                "mip_rel_gap": 0.0 if self.columns <= EXACT_COLUMNS else NEAR,
                "node_limit": max(1, MOST_WORK // self.columns),
                "time_limit": LONGEST_S,
            },
        )
        return None if solved.x is None else np.asarray(solved.x)
