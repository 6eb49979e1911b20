"""Maximum matching: as many disjoint pairs as possible, if groups decide which members may meet.

Members of one group never meet here. A group is the nodes under one leaf, and two groups may meet
if they are at the distance in question. In a tree of switches that graph is complete multipartite
(each may meet all outside its own part), and it is enough to put the members in a row part by
part. For any other graph, a maximum flow finds all but a few pairs, and Edmonds' blossoms find the
rest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Adjacency = npt.NDArray[np.bool_]
Pairs = list[tuple[str, str]]
PairCounts = Counter[tuple[int, int]]  # the number of pairs between groups i < j


def maximum_pairs(groups: Sequence[Sequence[str]], adjacent: Adjacency) -> Pairs:
    """A maximum matching; `adjacent` is symmetric, and true for two groups that may meet."""
    pairs: Pairs = []
    for classes in _components(adjacent):
        members = [[name for group in alike for name in groups[group]] for alike in classes]
        first = [alike[0] for alike in classes]
        meets = adjacent[np.ix_(first, first)]
        if np.count_nonzero(~meets) == len(classes):  # each may meet all but itself
            pairs += pairs_across(members)
        else:
            counts = general_matching([len(alike) for alike in members], meets)
            waiting = [iter(alike) for alike in members]
            for (i, j), count in sorted(counts.items()):
                pairs += [(next(waiting[i]), next(waiting[j])) for _ in range(count)]
    return pairs


def pairs_across(parts: Sequence[Sequence[str]]) -> Pairs:
    """A maximum of pairs, each with members of two parts.

    Put the parts in a row. Two members further apart than the length of the longest part belong to
    different parts. Half the row is that far apart, unless one part outnumbers the rest.
    """
    row = [name for part in parts for name in part]
    apart = max((len(row) + 1) // 2, *map(len, parts), 0)
    return list(zip(row, row[apart:], strict=False))


def _components(adjacent: Adjacency) -> Iterator[list[list[int]]]:
    """Yield groups that can reach each other, in classes that may meet exactly the same groups."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, parts = connected_components(csr_array(adjacent), directed=False)
    rows = np.packbits(adjacent, axis=1)
    classes_of: dict[int, dict[bytes, list[int]]] = {}
    for group, part in enumerate(parts):
        classes_of.setdefault(int(part), {}).setdefault(rows[group].tobytes(), []).append(group)
    for classes in classes_of.values():
        if len(classes) > 1:  # else no two of them may meet
            yield list(classes.values())


def general_matching(sizes: Sequence[int], adjacent: Adjacency) -> PairCounts:
    """The number of pairs between any two groups in a maximum matching, for any graph of groups.

    The flow gives half-integral numbers of pairs; rounded down and filled up they lack at most one
    pair for each odd circle of groups.
    """
    counts = _rounded_flow(sizes, adjacent)
    left = _count_unmatched(sizes, counts)
    for i, j in zip(*np.nonzero(adjacent), strict=True):
        more = min(left[i], left[j])
        if more > 0:
            _change(counts, left, int(i), int(j), more)
    return augment(sizes, adjacent, counts)


def augment(sizes: Sequence[int], adjacent: Adjacency, counts: PairCounts) -> PairCounts:
    """Extend any matching to a maximum one, by one augmenting path after the other.

    A shortest path uses no kind of pair twice in one direction, because else it could be cut short
    there. So a search needs only two pairs of each kind, and two unmatched members of each group.
    """
    counts = Counter(counts)
    beside = [np.flatnonzero(row).tolist() for row in adjacent]
    left = _count_unmatched(sizes, counts)
    for group in range(len(left)):
        while left[group]:
            path = _augmenting_path(group, counts, left, beside)
            if path is None:
                break  # there will be none later either
            for position in range(0, len(path), 2):
                _change(counts, left, path[position], path[position + 1], 1)
            for position in range(1, len(path) - 1, 2):
                _change(counts, left, path[position], path[position + 1], -1)
    return +counts


def _count_unmatched(sizes: Sequence[int], counts: PairCounts) -> list[int]:
    """The number of members of each group without a partner."""
    left = list(sizes)
    for (i, j), count in counts.items():
        left[i] -= count
        left[j] -= count
    return left


def _change(counts: PairCounts, left: list[int], i: int, j: int, by: int) -> None:
    counts[min(i, j), max(i, j)] += by
    left[i] -= by
    left[j] -= by


def _rounded_flow(sizes: Sequence[int], adjacent: Adjacency) -> PairCounts:
    """Half the maximum flow from all groups to a copy of them, rounded down."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    groups = len(sizes)
    source, sink = 2 * groups, 2 * groups + 1
    i, j = np.nonzero(adjacent)
    capacity = np.asarray(sizes, dtype=np.int32)
    numbers = np.arange(groups)
    network = csr_array(
        (
            np.concatenate([np.minimum(capacity[i], capacity[j]), capacity, capacity]),
            (
                np.concatenate([i, np.full(groups, source), numbers + groups]),
                np.concatenate([j + groups, numbers, np.full(groups, sink)]),
            ),
        ),
        shape=(2 * groups + 2, 2 * groups + 2),
    )
    flow = maximum_flow(network, source, sink).flow[:groups, groups : 2 * groups]
    both = (flow + flow.T).tocoo()
    return Counter(
        {
            (int(a), int(b)): int(twice) // 2
            for a, b, twice in zip(*both.coords, both.data, strict=True)
            if a < b and twice > 1
        }
    )


def _augmenting_path(
    group: int, counts: PairCounts, left: Sequence[int], beside: Sequence[Sequence[int]]
) -> list[int] | None:
    """The groups along an augmenting path from an unmatched member of `group`."""
    of: list[int] = []  # each member's group
    mate: list[int] = []
    for (i, j), count in counts.items():
        for _ in range(min(count, 2)):
            of += [i, j]
            mate += [len(mate) + 1, len(mate)]
    root = -1
    for i, unmatched in enumerate(left):
        for _ in range(min(unmatched, 2)):
            root = len(of) if i == group else root
            of.append(i)
            mate.append(-1)
    members: list[list[int]] = [[] for _ in beside]
    for member, i in enumerate(of):
        members[i].append(member)
    near = [[member for j in beside[i] for member in members[j]] for i in range(len(beside))]
    path = _Blossoms(mate, [near[i] for i in of]).path_from(root)
    return path and [of[member] for member in path]


class _Blossoms:
    """Edmonds' search for an augmenting path: breadth first, odd circles shrunk to their base."""

    def __init__(self, mate: Sequence[int], near: Sequence[Sequence[int]]) -> None:
        self.mate = mate
        self.near = near
        self.base = list(range(len(mate)))
        self.before = [-1] * len(mate)
        self.outer = [False] * len(mate)

    def path_from(self, root: int) -> list[int] | None:
        self.outer[root] = True
        queue = deque([root])
        while queue:
            here = queue.popleft()
            for there in self.near[here]:
                if self.base[here] == self.base[there] or self.mate[here] == there:
                    continue
                if self.outer[there]:
                    queue.extend(self._shrink(here, there, root))
                elif self.before[there] == -1:
                    self.before[there] = here
                    if self.mate[there] == -1:
                        return self._path_back(there)
                    self.outer[self.mate[there]] = True
                    queue.append(self.mate[there])
        return None

    def _path_back(self, end: int) -> list[int]:
        path = []
        while end != -1:
            path += [end, self.before[end]]
            end = self.mate[self.before[end]]
        return path

    def _shrink(self, a: int, b: int, root: int) -> list[int]:
        """Give the circle that a and b close one base; return the members new to the queue."""
        base = self._pair_test(a, b, root)
        circle: set[int] = set()
        self._mark(a, b, base, circle)
        self._mark(b, a, base, circle)
        new = []
        for member, its_base in enumerate(self.base):
            if its_base in circle:
                self.base[member] = base
                if not self.outer[member]:
                    self.outer[member] = True
                    new.append(member)
        return new

    def _pair_test(self, a: int, b: int, root: int) -> int:
        """The first common base of the paths from a and from b to the root."""
        passed = set()
        while True:
            a = self.base[a]
            passed.add(a)
            if a == self.base[root]:
                break
            a = self.before[self.mate[a]]
        while self.base[b] not in passed:
            b = self.before[self.mate[self.base[b]]]
        return self.base[b]

    def _mark(self, here: int, child: int, base: int, circle: set[int]) -> None:
        while self.base[here] != base:
            circle |= {self.base[here], self.base[self.mate[here]]}
            self.before[here] = child
            child = self.mate[here]
            here = self.before[child]
