"""Narrow a job that fails as a whole down to the part of it that still fails: pods, leaves, halves.

Groups that share a cable spoil each other's answer, so nodes are divided as the fabric divides
them: the groups of one round cross no common cable. If a group fails and each of its parts is well,
the fault is between the parts, comes and goes, or takes many nodes. `reproduce` runs nothing and
keeps no state: what is tested next follows from the results so far.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, cycle, islice
from math import ceil, log2

from anubis.core.fabric import Fabric
from anubis.core.network.group_search import (
    CONTROLS,
    MOST_DECIDING,
    NO_RESULTS,
    NOTHING,
    REPEATS,
    SMALLEST,
    Across,
    Core,
    GroupRound,
    NamedBetween,
    NextTest,
    Search,
    SearchProgress,
    Tests,
    together,
    unanswered,
)
from anubis.core.network.pairing import Group, PairTest, round_robin

TO_MAKE_SURE = 2  # two rounds: each suspect with other partners, and the rest together
MOST_ACROSS = 48  # pairs
MOST_INSIDE = 2  # of a part
THIRD, MOST_PARTS = 3, 8  # parts, at least and at most; every two of n meet in n - 1 rounds
MOST_WINDOWS = 4  # groups of one size in which all nodes of a part are compared with other parts
MOST_FAILING = 2  # pairs of parts; more failing pairs have a common cause
PHI = 0.618034  # steps of this share of a circle cover it soon
Results = Generator[list[NextTest], list[bool], list[bool]]
Meetings = Generator[list[NextTest], list[bool], "list[tuple[Division, Division]]"]
LEVELS = ("leaf", "pod")  # from below; higher levels are pods of pods
DOMAIN = "NVLink domain"
Places = Mapping[str, object]  # of each node; those of one place are together


@dataclass(frozen=True, kw_only=True)
class Division:
    """Nodes that reach each other without the switches that join them to others."""

    kind: str  # NVLink domain, leaf, pod, or the whole
    nodes: Group
    parts: tuple[Division, ...] = ()

    def levels(self) -> dict[str, list[Group]]:
        """The groups of each kind, the largest ones first."""
        levels: dict[str, list[Group]] = {}
        below = list(self.parts)
        while below:
            for part in below:
                levels.setdefault(part.kind, []).append(part.nodes)
            below = [smaller for part in below for smaller in part.parts]
        return levels

    def leaves(self) -> Iterator[Division]:
        """Yield the smallest divisions."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


# --- which nodes meet ------------------------------------------------------------------------


def divide(nodes: Sequence[str], fabric: Fabric | None = None) -> Division:
    """Divide nodes by the rest of the fabric without its uppermost switches, then without the next
    ones, and so on down to leaves. Nodes on several rails belong together if they share all their
    leaves. NVLink domains are a level of their own: below the leaves, or above them if no leaf has
    nodes of two."""
    all_nodes = Division(kind="whole", nodes=tuple(nodes))
    if fabric is None:
        return all_nodes
    highest = max(fabric.tier.values(), default=0)
    levels = [
        (LEVELS[min(tier, len(LEVELS)) - 1], _places_below(fabric, tier, nodes))
        for tier in range(highest - 1, 0, -1)
    ]
    domains = {node: fabric.domain_of[node].name for node in nodes if node in fabric.domain_of}
    if domains:
        leaf = levels[-1][1] if levels else {}
        above = bool(levels) and _is_finer(leaf, domains)
        levels.insert(len(levels) - above, (DOMAIN, domains))
    return _split(all_nodes, levels)


def _places_below(fabric: Fabric, tier: int, nodes: Sequence[str]) -> Places:
    """The place of each node in the fabric up to this tier: equal if they are joined there."""
    below = _numbers_below(fabric, tier)
    rail_nics = {node: [fabric.nic(node, rail) for rail in fabric.rails] for node in nodes}
    return {
        node: frozenset(below[nic.switch] for nic in nics if nic and nic.switch in below)
        for node, nics in rail_nics.items()
    }


def _is_finer(places: Places, larger: Places) -> bool:
    """True if these places divide the larger ones: none of them has nodes of two."""
    parts = {(place, larger.get(node)) for node, place in places.items()}
    return len(parts) == len(set(places.values())) > len(set(larger.values()))


def _split(division: Division, levels: Sequence[tuple[str, Places]]) -> Division:
    if not levels:
        return division
    (kind, places), *lower = levels
    by_place: dict[object, list[str]] = {}
    for node in division.nodes:
        by_place.setdefault(places.get(node), []).append(node)
    if len(by_place) == 1:
        return _split(division, lower)
    parts = tuple(
        _split(Division(kind=kind, nodes=group), lower)
        for group in _large_groups(list(by_place.values()))
    )
    return Division(kind=division.kind, nodes=division.nodes, parts=parts if len(parts) > 1 else ())


def _large_groups(groups: Sequence[Sequence[str]]) -> Iterator[Group]:
    """Yield groups of nodes. Nodes that are alone on a switch form a group together; a single such
    node joins the first group."""
    single = [group[0] for group in groups if len(group) < SMALLEST]
    large = [tuple(group) for group in groups if len(group) >= SMALLEST]
    if len(single) >= SMALLEST or not large:
        yield from (*large, tuple(single))
    else:
        yield from ((*large[0], *single), *large[1:])


def _numbers_below(fabric: Fabric, tier: int) -> dict[str, int]:
    """A number for each switch up to this tier, equal for switches that are joined there."""
    inside = {switch for switch, height in fabric.tier.items() if height <= tier}
    joined: dict[str, int] = {}
    for number, start in enumerate(sorted(inside)):
        waiting = [] if start in joined else [start]
        while waiting:
            switch = waiting.pop()
            if switch not in joined:
                joined[switch] = number
                ends = ({link.a, link.b} - {switch} for link in fabric.links_of[switch])
                waiting += [end for pair in ends for end in pair if end in inside]
    return joined


def first_groups(all_nodes: Division) -> tuple[Group, ...]:
    return tuple(part.nodes for part in all_nodes.parts) or (all_nodes.nodes,)


# --- what to ask next ------------------------------------------------------------------------


def reproduce(
    all_nodes: Division,
    results: Mapping[Group, bool | None],
    named_between: NamedBetween,
    *,
    by_comparison: bool = False,
    brief_results: Mapping[Group, bool | None] = NO_RESULTS,
) -> SearchProgress:
    """The progress of a search for the part of a job that fails. `by_comparison`: a group fails
    only by being slower than others of its size. `brief_results`: by the shortest program alone;
    parts that are well meet by it, as only the network between them is new."""
    leaves = tuple(leaf.nodes for leaf in all_nodes.leaves()) if all_nodes.parts else ()
    domains = all_nodes.levels().get(DOMAIN, []) if by_comparison else []
    search = Search(leaves=leaves, by_comparison=by_comparison, domains=domains)
    job = _Job(search)
    rounds = search.carry_out(job.look_into(all_nodes, is_whole=True))
    return job.progress(unanswered(rounds, results, named_between, brief_results))


@dataclass
class _Job:
    """The divisions of a job that fails, from the whole down to leaves."""

    search: Search
    size: tuple[int, int] | None = None
    paths: list[Group] = field(default_factory=list)
    fails_everywhere: bool = False
    named_between: bool = False
    partners: frozenset[str] = frozenset()
    tested: dict[Group, bool] = field(default_factory=dict)  # parts, the last time
    met: dict[tuple[Division, Division], tuple[Group, Group]] = field(default_factory=dict)

    def progress(self, further: GroupRound) -> SearchProgress:
        search = self.search
        return SearchProgress(
            groups=further.groups,
            brief=further.brief,
            across=further.across,
            handed_back=frozenset(search.released),
            nodes=tuple(search.named),
            links=tuple(search.links),
            paths=tuple(self.paths),
            size=self.size,
            named_between=self.named_between,
            fails_everywhere=self.fails_everywhere,
        )

    def look_into(self, division: Division, *, is_whole: bool = False) -> Tests:
        """Test the parts of a division that fails, or of the whole, which is said to fail; then the
        parts of those that fail. If all are well, the fault is between them, or comes and goes."""
        if not division.parts:
            if is_whole:
                (failed,) = yield [Core(division.nodes)]
                if not failed:
                    return NOTHING
            return (yield from self.search.narrow(division.nodes))
        parts = division.parts
        fails = not is_whole  # it failed each time that it was tested
        for attempt in range(REPEATS):
            results = yield from self._test_once(parts) if not attempt else self._test(parts)
            bad = [part for part, is_bad in zip(parts, results, strict=True) if is_bad]
            if bad:
                if is_whole and len(bad) == len(parts) and (yield from self._fails_by_size(bad)):
                    return NOTHING
                self._release([part for part in parts if part not in bad])
                findings = yield from together([self.look_into(part) for part in bad])
                if findings or self.named_between or len(bad) < len(parts):
                    return findings
            elif not attempt:
                findings = yield from self._search_between(division, is_whole=is_whole)
                if findings or self.named_between or self.size or not self._has_failed():
                    return findings
            else:
                (again,) = yield [Core(division.nodes)]
                fails = fails and again
        if fails:
            self.paths.append(division.nodes)
        return NOTHING

    def _test(self, parts: Sequence[Division]) -> Results:
        results = yield [Core(part.nodes) for part in parts]
        size = self._common_size(parts)
        turns = range(_windows(parts, size))
        for turn in turns:
            cores = [
                (number, Core(_window(part.nodes, turn, size), size))
                for number, part in enumerate(parts)
                if not results[number] and turn in _own_turns(turns, len(part.nodes), size)
            ]
            failed = yield [core for _, core in cores]
            for (number, _), is_bad in zip(cores, failed, strict=True):
                results[number] |= is_bad
        self.tested.update(zip((part.nodes for part in parts), results, strict=True))
        return results

    def _common_size(self, parts: Sequence[Division]) -> int:
        """The number of nodes in which these parts are compared; 0 if they are as they are, because
        all are equally large or groups fail without comparison."""
        return common_size(parts) if self.search.by_comparison and not self.search.domains else 0

    def _test_once(self, parts: Sequence[Division]) -> Results:
        """The results of these parts; what was tested before is not tested again."""
        if all(part.nodes in self.tested for part in parts):
            return [self.tested[part.nodes] for part in parts]
        return (yield from self._test(parts))

    def _has_failed(self) -> bool:
        return any(trial.failed for trial in self.search.trials)

    def _release(self, good: Sequence[Division]) -> None:
        """Let the nodes of good parts go, beside one that fails; one leaf stays as partners, or a
        few NVLink domains, as groups are compared within them."""
        if good and not self.partners:
            leaves = chain.from_iterable(part.leaves() for part in good)
            kept = islice(leaves, CONTROLS if self.search.domains else 1)
            self.partners = frozenset().union(*(leaf.nodes for leaf in kept))
        for part in good:
            self.search.released.update(set(part.nodes) - self.partners)

    # --- between parts that are well ---------------------------------------------------------

    def _search_between(self, division: Division, *, is_whole: bool) -> Tests:
        """Look between parts. Of the whole, every two parts meet first, which takes less time than
        pairs; a part that is known to fail is measured by pairs first."""
        if not is_whole:
            yield from self._look_by_pairs(division)
            return NOTHING if self.named_between else (yield from self._look_by_groups(division))
        bad = yield from self._meet_two_by_two(division)
        findings = yield from self._cross(bad, division)
        if findings:
            return findings
        fails = not bad and (yield from self._fails_as_a_whole(division))
        yield from self._look_by_pairs(division)
        if self.named_between:
            return NOTHING
        if bad:
            return (yield from self._look_into_common(bad))
        if fails:
            (again,) = yield [Core(division.nodes)]
            if again:
                good = [trial.nodes for trial in self.search.trials if not trial.failed]
                self.size = (max(map(len, good)), len(division.nodes))
        return NOTHING

    def _look_by_pairs(self, division: Division) -> Generator[list[NextTest], list[bool], None]:
        (self.named_between,) = yield [Across(tuple(part.nodes for part in division.parts))]

    def _look_by_groups(self, division: Division) -> Tests:
        bad = yield from self._meet_two_by_two(division)
        findings = yield from self._cross(bad, division)
        return findings or (yield from self.search.narrow(division.nodes))

    def _fails_as_a_whole(self, division: Division) -> Generator[list[NextTest], list[bool], bool]:
        """Test all nodes together. If no group has failed at all, only the nodes of pairs stay."""
        (fails,) = yield [Core(division.nodes, brief=not self._has_failed())]
        if not self._has_failed():
            pair_tests = pair_tests_between([part.nodes for part in division.parts])
            needed = chain.from_iterable(pair_test.pair for pair_test in pair_tests)
            self.search.released.update(set(division.nodes).difference(needed))
        return fails

    def _meet_two_by_two(self, division: Division) -> Meetings:
        """Test every two parts together, and return those that fail. They have one size, so that a
        slow group stands out. If all of a round fail, it is whatever joins the parts."""
        bad = list[tuple[Division, Division]]()
        if not THIRD <= len(division.parts) <= MOST_PARTS:
            return bad
        size = self._common_size(division.parts)
        for number, met in enumerate(rounds_of_parts(division.parts)):
            for a, b in met:
                self.met[a, b] = _window(a.nodes, number, size), _window(b.nodes, number, size)
            brief = not self._has_failed()
            failed = yield [
                Core(tuple(chain(*self.met[two])), 2 * size, brief=brief) for two in met
            ]
            bad += [two for two, is_bad in zip(met, failed, strict=True) if is_bad]
            if not number and len(met) > 1 and len(bad) == len(met):
                break
        return bad

    def _cross(self, bad: Sequence[tuple[Division, Division]], division: Division) -> Tests:
        """Look for two nodes that fail only together, if few groups fail and some parts do not."""
        findings = NOTHING
        is_common = len(bad) > MOST_FAILING or set(chain.from_iterable(bad)) == {*division.parts}
        for a, b in (self.met[two] for two in (() if is_common else bad)):
            findings += yield from self.search.cross(a, b, len(a) + len(b))
        return findings

    def _look_into_common(self, bad: Sequence[tuple[Division, Division]]) -> Tests:
        """Look again into the part that is in all failing groups: it may fail at times."""
        common = [part for part in bad[0] if all(part in two for two in bad)]
        for _ in range(REPEATS):
            failed = yield [Core(part.nodes) for part in common]
            for part, is_bad in zip(common, failed, strict=True):
                if is_bad:
                    return (yield from self.look_into(part))
        return NOTHING

    # --- groups that fail by their size ------------------------------------------------------

    def _fails_by_size(
        self, parts: Sequence[Division]
    ) -> Generator[list[NextTest], list[bool], bool]:
        """True if all parts fail, and either none of their parts, or all down to the leaves: then
        the number of nodes decides, or the programs or settings are wrong."""
        below = [smaller for part in parts for smaller in part.parts] or list(parts)
        blocks = [part.nodes for part in below]
        if below != list(parts):
            failed = yield from self._test(below)
            if not any(failed):
                blocks = [part.nodes for part in parts]
            elif not all(failed):
                return False
        if len(blocks) <= SMALLEST:
            return False
        least = min(len(trial.group) for trial in self.search.trials if trial.failed)
        good = [len(trial.group) for trial in self.search.trials if not trial.failed]
        lowest = max([size for size in good if size < least], default=1)
        sizes = list[int]()
        while least // 2 ** (len(sizes) + 1) > lowest:
            sizes.append(least // 2 ** (len(sizes) + 1))
        answers = yield [Core(nodes[:size]) for nodes, size in zip(cycle(blocks), sizes)]
        bad = [size for size, is_bad in zip(sizes, answers, strict=True) if is_bad] or [least]
        well = [size for size, is_bad in zip(sizes, answers, strict=True) if not is_bad]
        well += [lowest] * (lowest >= SMALLEST)
        if not well:
            self.fails_everywhere = True
            return True
        if max(well) > min(bad):
            return False
        again = yield [Core(blocks[-1][: max(well)]), Core(blocks[-2][: min(bad)])]
        if again == [False, True]:
            self.size = (max(well), min(bad))
        return self.size is not None


def common_size(parts: Sequence[Division]) -> int:
    """The size of the smallest of several parts, so that slow groups of all stand out; 0 if they
    are equally large. Far smaller ones are filled up instead."""
    sizes = [len(part.nodes) for part in parts]
    smallest, largest = min(sizes), max(sizes)
    return max(smallest, ceil(largest / MOST_WINDOWS)) if smallest < largest else 0


def _windows(parts: Sequence[Division], size: int) -> int:
    return ceil(max(len(part.nodes) for part in parts) / size) if size else 0


def _own_turns(turns: range, nodes: int, size: int) -> range:
    """The turns in which a part of so many nodes is tested: far smaller ones in the last one, in
    which good nodes fill them up."""
    return turns[: ceil(nodes / size)] if nodes >= size else turns[-1:]


def _window(nodes: Group, turn: int, size: int) -> Group:
    """The nodes of a part that are tested in a turn; all of them if no size is given."""
    if not size or len(nodes) <= size:
        return nodes
    begin = min(turn % ceil(len(nodes) / size) * size, len(nodes) - size)
    return nodes[begin : begin + size]


def rounds_of_parts(parts: Sequence[Division]) -> Iterator[list[tuple[Division, Division]]]:
    """Every two parts, in rounds in which each part is once."""
    names = [str(place) for place in range(len(parts))]
    for pairs in round_robin(names):
        yield [(parts[int(a)], parts[int(b)]) for a, b in map(sorted, pairs)]


def pair_tests_across(parts: Sequence[Group]) -> Iterator[PairTest]:
    """Yield pairs of nodes of different parts, equally many between any two parts, spread over
    both. They are few, because pairs that share no cable with others mostly run one after another.
    """
    between = list(combinations(parts, 2))
    for turn in range(max(1, MOST_ACROSS // max(len(between), 1))):
        for a, b in between:
            if turn < min(len(a), len(b)):
                share = turn * PHI % 1
                yield PairTest(a[int(share * len(a))], b[int((share + PHI / 2) % 1 * len(b))])


def pair_tests_between(parts: Sequence[Group]) -> dict[PairTest, None]:
    """Pairs across parts, and a few inside of them, each once."""
    across = dict.fromkeys(pair_tests_across(parts))
    return across | dict.fromkeys(pair_tests_inside(parts, across))


def pair_tests_inside(parts: Sequence[Group], across: Iterable[PairTest]) -> Iterator[PairTest]:
    """Yield, for a few nodes that meet others across the parts, a pair with a neighbour. If the
    nodes are well there, the path out is bad, and not each of them. Neighbours are mostly on one
    leaf."""
    crossing = {node for pair_test in across for node in pair_test.pair}
    for part in parts:
        firsts = sorted({min(place, len(part) - 2) for place in range(0, len(part), 2)})
        neighbours = (PairTest(part[first], part[first + 1]) for first in firsts)
        met = (pair_test for pair_test in neighbours if not crossing.isdisjoint(pair_test.pair))
        yield from islice(met, MOST_INSIDE)


# --- the largest effort ----------------------------------------------------------------------


def most_rounds(all_nodes: Division) -> int:
    """The largest number of rounds of groups, if one node or one pair of parts is at fault."""
    deepest, division = 1, all_nodes
    while division.parts:
        deepest += _windows(division.parts, common_size(division.parts))
        division = max(division.parts, key=lambda part: len(part.nodes))
        deepest += bool(division.parts)
    return deepest + ceil(log2(max(len(division.nodes), SMALLEST))) + TO_MAKE_SURE


def rounds_of_two_parts(all_nodes: Division) -> int:
    """The number of rounds in which every two parts meet; 0 if there are too few or too many."""
    if not THIRD <= len(all_nodes.parts) <= MOST_PARTS:
        return 0
    return sum(1 for _ in rounds_of_parts(all_nodes.parts))


def most_rounds_together(all_nodes: Division) -> int:
    """The largest number of rounds of groups, if every two parts meet and two nodes of two parts
    fail only together."""
    meet = rounds_of_two_parts(all_nodes)
    largest = max((len(part.nodes) for part in all_nodes.parts), default=1)
    return meet and meet + 2 * ceil(log2(largest)) + MOST_DECIDING
