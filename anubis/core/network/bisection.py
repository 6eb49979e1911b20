"""Narrow a slow group down to its slow nodes, or to two nodes that are slow only together.

`bisect` is a generator: it yields the groups to test at the same time, receives a flag for each bad
one, and returns a `Narrowed`. It runs nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

Group = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SearchBudget:
    tests: int = 200
    minutes: float = 60.0
    minutes_per_test: float = 0.5  # tests of one round run at the same time


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    nodes: tuple[str, ...]  # bad with good partners, twice
    links: tuple[tuple[str, str], ...]  # good apart and bad together: the fault is between them
    doubtful: tuple[str, ...]  # bad once, and good with other partners
    unresolved: tuple[Group, ...]  # bad, but the budget or the good nodes ran out
    good: tuple[str, ...]
    tests: int
    rounds: int
    minutes: float
    results: tuple[tuple[Group, bool], ...]  # every tested group, and whether it was bad


@dataclass(frozen=True)
class _Suspects:
    """Nodes that are bad together with good ones."""

    nodes: Group

    def tests(self) -> list[Group]:
        return list(_halves(self.nodes))

    def learn(self, bad: Sequence[bool]) -> list[_Lead]:
        left, right = _halves(self.nodes)
        if not any(bad):
            return [_Cross(left, right)]
        return [_Suspects(half) for half, slow in zip((left, right), bad, strict=True) if slow]


@dataclass(frozen=True)
class _Cross:
    """Two halves, good alone and bad together: the fault is between two of their nodes."""

    left: Group
    right: Group
    crosswise: bool = False  # the opposite quarters were tested, and are good

    def tests(self) -> list[Group]:
        return [(*a, *b) for a, b in self._quarters()]

    def learn(self, bad: Sequence[bool]) -> list[_Lead]:
        slow = [q for q, is_bad in zip(self._quarters(), bad, strict=True) if is_bad]
        if slow:
            return [_Cross(a, b) for a, b in slow]
        if not self.crosswise and max(len(self.left), len(self.right)) > 1:
            return [_Cross(self.left, self.right, crosswise=True)]
        return []  # the fault did not show again

    def _quarters(self) -> list[tuple[Group, Group]]:
        a, b = _halves(self.left), _halves(self.right)
        pairs = zip(a, reversed(b) if self.crosswise else b, strict=True)
        return [(left, right) for left, right in pairs if left and right]


_Lead = _Suspects | _Cross


def bisect(
    group: Sequence[str], good: Sequence[str] = (), budget: SearchBudget | None = None
) -> Generator[tuple[Group, ...], Sequence[bool], Narrowed]:
    """Test both halves of a bad group at once, each filled up with good nodes to the group's size.

    Without the filling, a half would be measured at another size, and could not be compared. Good
    nodes come from the caller, and from every group that turns out good. At the end each slow node
    is tested with other good nodes, and all remaining nodes together.
    """
    search = _Search(tuple(group), dict.fromkeys(good), budget or SearchBudget())
    while search.open or search.may_confirm():
        tests = search.next_round()
        if not tests:
            break
        search.learn((yield tuple(tests)))
    return search.result()


class _Search:
    def __init__(self, group: Group, good: dict[str, None], budget: SearchBudget) -> None:
        self.group, self.good, self.budget = group, good, budget
        self.open: list[_Lead] = [_Suspects(group)] if len(group) > 1 else []
        self.running: list[tuple[_Lead, int]] = []
        self.confirming: list[str] = []
        self.slow: list[str] = []  # slow nodes, not yet tested twice
        self.confirmed: list[str] = []
        self.doubtful: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.lost: list[_Lead] = []
        self.rest_tested: list[Group] = []
        self.round: list[Group] = []
        self.results: list[tuple[Group, bool]] = []
        self.rounds = 0

    # --- what to test ----------------------------------------------------------------------

    def may_confirm(self) -> bool:
        return bool(self.slow) or self._rest() is not None

    def _tests_left(self) -> int:
        if (self.rounds + 1) * self.budget.minutes_per_test > self.budget.minutes + 1e-9:
            return 0
        return self.budget.tests - len(self.results)

    def _rest(self) -> Group | None:
        """All remaining nodes, if they have not been tested together yet."""
        held = {node for lead in self.lost for node in _nodes(lead)}
        held |= {*self.confirmed, *self.doubtful, *self.slow}
        held |= {node for link in self.links for node in link}
        rest = tuple(node for node in self.group if node not in held)
        tested = rest in self.rest_tested or len(rest) < 2 or len(rest) == len(self.group)
        return None if tested else rest

    def next_round(self) -> list[Group]:
        self.running, self.confirming, self.round = [], [], []
        if self.open:
            self._narrow()
        else:
            self._confirm()
        return self.round

    def _narrow(self) -> None:
        left, pool = self._tests_left(), self._pool()
        cores: list[Group] = []
        waiting: list[_Lead] = []
        partners = len(pool)
        for lead in self.open:
            tests = lead.tests()
            alone = sum(len(core) == 1 for core in tests)
            if len(cores) + len(tests) <= left and alone <= partners:
                self.running.append((lead, len(tests)))
                cores += tests
                partners -= alone
            else:
                waiting.append(lead)
        if cores:
            self.open = waiting
            self.round = self._fill(cores, pool)
        else:
            self.lost, self.open = [*self.lost, *waiting], []
            self._confirm()

    def _confirm(self) -> None:
        pool, left = self._pool(), self._tests_left()
        turned = pool[len(pool) // 2 :] + pool[: len(pool) // 2]  # so that partners are new
        slow = self.slow[: min(left, len(pool))]
        rest = self._rest()
        if slow:
            self.confirming = slow
            self.round = self._fill([(node,) for node in slow], turned)
        elif rest is not None and left:
            self.rest_tested.append(rest)
            self.running = [(_Suspects(rest), 0)]
            self.round = [rest]

    def _pool(self) -> list[str]:
        """The good nodes that no test uses; the nodes of a cross stay out of other tests."""
        busy = {node for lead in self.open for node in _nodes(lead)}
        busy |= {node for link in self.links for node in link}
        return [node for node in self.good if node not in busy]

    def _fill(self, cores: list[Group], pool: list[str]) -> list[Group]:
        """Fill up the groups: single nodes first get one partner each; the other partners are
        shared out."""
        want = [len(self.group) - len(core) for core in cores]
        filling: list[list[str]] = [[] for _ in cores]
        waiting = [node for node in pool if all(node not in core for core in cores)]
        while waiting and any(len(f) < w for f, w in zip(filling, want, strict=True)):
            size = [len(core) + len(f) for core, f in zip(cores, filling, strict=True)]
            filling[size.index(min(size))].append(waiting.pop())
        return [(*core, *more) for core, more in zip(cores, filling, strict=True)]

    # --- results ---------------------------------------------------------------------------

    def learn(self, bad: Sequence[bool]) -> None:
        if len(bad) != len(self.round):
            raise ValueError(f"{len(bad)} results for {len(self.round)} tests")
        self.rounds += 1
        self.results += zip(self.round, bad, strict=True)
        for group, slow in zip(self.round, bad, strict=True):
            if not slow:
                self.good.update(dict.fromkeys(group))
        if self.confirming:
            for node, slow in zip(self.confirming, bad, strict=True):
                self.slow.remove(node)
                (self.confirmed if slow else self.doubtful).append(node)
            return
        begin = 0
        for lead, count in self.running:
            if count == 0:  # all the rest together
                new: list[_Lead] = [lead] if bad[0] else []
            else:
                new = lead.learn(bad[begin : begin + count])
            begin += count
            for lead in new:
                self._place(lead)

    def _place(self, lead: _Lead) -> None:
        if isinstance(lead, _Suspects) and len(lead.nodes) == 1:
            self.good.pop(lead.nodes[0], None)
            self.slow.append(lead.nodes[0])
        elif isinstance(lead, _Cross) and len(lead.left) == len(lead.right) == 1 and self.rounds:
            self._pair(lead)
        else:
            self.open.append(lead)

    def _pair(self, lead: _Cross) -> None:
        """Record two good nodes that are bad together."""
        pair = (lead.left[0], lead.right[0])
        if pair not in self.links:
            self.links.append(pair)

    def result(self) -> Narrowed:
        open_ = [_nodes(lead) for lead in [*self.lost, *self.open]]
        bad = {*self.confirmed, *self.doubtful, *self.slow}
        return Narrowed(
            nodes=tuple(self.confirmed),
            links=tuple(self.links),
            doubtful=tuple(self.doubtful),
            unresolved=(*open_, *((node,) for node in self.slow)),
            good=tuple(node for node in self.good if node not in bad),
            tests=len(self.results),
            rounds=self.rounds,
            minutes=self.rounds * self.budget.minutes_per_test,
            results=tuple(self.results),
        )


def _halves(nodes: Group) -> tuple[Group, Group]:
    middle = (len(nodes) + 1) // 2
    return nodes[:middle], nodes[middle:]


def _nodes(lead: _Lead) -> Group:
    return lead.nodes if isinstance(lead, _Suspects) else (*lead.left, *lead.right)
