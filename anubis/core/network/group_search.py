"""Search for the part of a job that fails, by groups whose answers may be wrong now and then.

A search is a generator: it yields the groups to test at the same time, receives for each True if
it failed, and returns a `Found`. It runs nothing itself. Faults come and go, and groups fail by
chance, so no answer is final: each node has a probability, and what is likely is tested next.

The exact posterior over all sets of parts has no closed form. So suspects are searched as if one of
them were at fault, for which the posterior is exact. If both halves of them fail, each half is a
search of its own. The next two groups are the halves of the suspects by probability: with one
culprit among n that always fails, no search takes fewer than log2(n) rounds of two groups, and this
one takes that many, rounded up, and one more round to be sure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from math import ceil, log2, prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from anubis.core.network.pairing import Group, Pair

BY_CHANCE = 0.05  # of groups fail, although nothing is wrong with them
ALWAYS, AT_TIMES = 0.98, 0.5  # the chance that a group fails in which a node of this kind is
RATES = {ALWAYS: 0.8, AT_TIMES: 0.2}  # with the share of such nodes
AT_FAULT = 0.5  # the chance that one of the suspects is, before any test
TOGETHER = 0.25  # that two of them fail only together, compared with one that fails by itself
SURE, SURE_OF_LINK = 0.99, 0.9999  # a node is named, or two that fail only together
GIVEN_UP = 0.9  # the chance that no part is at fault, at which a search ends
LITTLE = 0.1  # of the most likely suspect's chance: less likely ones are not tested
MOST_ALONE = 8  # nodes of a leaf that are each tested alone, whatever it takes
SMALLEST = 2  # the least number of nodes that can meet
FEWEST = 4  # nodes of a leaf, so that there are halves of several
RULED_OUT = 1e-5  # the chance of a suspect that needs no further test
MOST_DECIDING = 18  # rounds, between two nodes and the path from one to the other (with 16, 2 of
# 5,452 pairs of nodes that fail only together were not named)
THIRD_OF = 3  # of a domain's nodes one in so many, each with a group of its own that fails
CONTROLS = 3  # good groups at least beside slow ones
REPEATS = 3  # times the rounds that a fault takes which always shows


class Core(NamedTuple):
    """Suspects to test, filled up with good nodes to a size; 0: as they are."""

    nodes: Group
    size: int = 0
    not_with: Group = ()  # good nodes that may have made it fail before
    brief: bool = False  # its shortest program is enough


class Across(NamedTuple):
    """Parts that are well, but not all together: pairs across them are to name what is between."""

    parts: tuple[Group, ...]


class GroupRound(NamedTuple):
    """What runs at the same time: groups, or else pairs across parts."""

    groups: tuple[Group, ...] = ()
    across: tuple[tuple[Group, ...], ...] = ()
    brief: bool = False  # the shortest program is enough


class GroupTest(NamedTuple):
    """A group that met, in its order and as a set."""

    nodes: Group
    group: frozenset[str]
    failed: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """The parts that a search names."""

    nodes: Group = ()
    links: tuple[Pair, ...] = ()  # nodes that fail only together

    def __add__(self, more: Found) -> Found:
        return Found(nodes=(*self.nodes, *more.nodes), links=(*self.links, *more.links))

    def __bool__(self) -> bool:
        return bool(self.nodes or self.links)


NOTHING = Found()
NextTest = Core | Across
Tests = Generator[list[NextTest], list[bool], Found]
Posterior = Mapping[Group, float]  # by suspects that fail: one, two together, or none at all


def posterior(
    suspects: Iterable[Group], trials: Iterable[GroupTest], *, among: int = 0
) -> dict[Group, float]:
    """The chance of each suspect (a node, or two nodes that fail only together) to be the only one
    at fault, and of `()`: that groups failed by chance. A suspect fails always or at times. It is
    one `among` so many nodes."""
    suspects = list(suspects)
    counts: dict[Group, tuple[int, int]] = dict.fromkeys(suspects, (0, 0))
    failed_in_all = passed_in_all = 0
    for _, group, failed in trials:
        failed_in_all, passed_in_all = failed_in_all + failed, passed_in_all + (not failed)
        for suspect in suspects:
            if group.issuperset(suspect):
                bad, good = counts[suspect]
                counts[suspect] = bad + failed, good + (not failed)
    weights: dict[Group, float] = {
        (): (1 - AT_FAULT) * _chance_of_none(failed_in_all, passed_in_all)
    }
    all_priors = max(among, sum(_prior(suspect, among) for suspect in suspects))
    for suspect, (bad, good) in counts.items():
        rest = _chance_of_none(failed_in_all - bad, passed_in_all - good)
        met = sum(share * _likelihood(rate, bad, good) for rate, share in RATES.items())
        weights[suspect] = AT_FAULT * _prior(suspect, among) / all_priors * rest * met
    total = sum(weights.values())
    return {suspect: weight / total for suspect, weight in weights.items()}


def _prior(suspect: Group, among: int) -> float:
    return 1.0 if len(suspect) < 2 else 2 * TOGETHER / (among - 1)


def _chance_of_none(failed: int, passed: int) -> float:
    return prod((BY_CHANCE,) * failed) * prod((1 - BY_CHANCE,) * passed)


def _likelihood(rate: float, failed: int, passed: int) -> float:
    fails = _fails_at(rate)
    return prod((fails,) * failed) * prod((1 - fails,) * passed)


def _fails_at(rate: float) -> float:
    """The chance that a group fails with something in it that fails at this rate."""
    return 1 - (1 - BY_CHANCE) * (1 - rate)


def together(searches: Sequence[Tests]) -> Tests:
    """Run searches in the same rounds, and add up what they name."""
    findings, running = NOTHING, list[tuple[Tests, list[NextTest]]]()
    for search in searches:
        findings = _advance(search, None, running, findings)
    while running:
        answers = yield [core for _, cores in running for core in cores]
        waiting_searches, running = running, []
        for search, cores in waiting_searches:
            own, answers = answers[: len(cores)], answers[len(cores) :]
            findings = _advance(search, own, running, findings)
    return findings


def _advance(
    search: Tests,
    answers: list[bool] | None,
    running: list[tuple[Tests, list[NextTest]]],
    findings: Found,
) -> Found:
    try:
        cores = next(search) if answers is None else search.send(answers)
    except StopIteration as end:
        more: Found = end.value
        return findings + more
    running.append((search, cores))
    return findings


@dataclass
class Search:
    """What is known: tests, good nodes, what was named, and the suspects of each search."""

    good: dict[str, None] = field(default_factory=dict)
    trials: list[GroupTest] = field(default_factory=list)
    named: dict[str, None] = field(default_factory=dict)
    links: list[Pair] = field(default_factory=list)
    released: set[str] = field(default_factory=set)  # nodes that went back
    leaves: Sequence[Group] = ()
    by_comparison: bool = False  # a group is only slower than others of its size
    domains: Sequence[Group] = ()  # of NVLink: a group in several is slow without a fault
    rounds: int = 0
    _live: dict[int, frozenset[str]] = field(default_factory=dict)  # suspects, by search
    _orders: set[Group] = field(default_factory=set)

    def add_known(self, group: Group, *, failed: bool) -> None:
        """Begin with a group that met before the search."""
        self._orders.add(group)
        self._add_trial(group, failed)

    # --- rounds ------------------------------------------------------------------------------

    def carry_out(self, tests: Tests) -> Generator[GroupRound, Sequence[bool | None], Found]:
        """Yield the rounds of these tests, and receive a flag for each group that failed, or each
        set of parts between which pairs named something; None if it is unknown. Single nodes wait
        for a later round if there are fewer partners than nodes."""
        answers: list[bool] | None = None
        while True:
            try:
                inquiries = next(tests) if answers is None else tests.send(answers)
            except StopIteration as end:
                findings: Found = end.value
                return findings
            cores = [inquiry for inquiry in inquiries if isinstance(inquiry, Core)]
            across = [inquiry.parts for inquiry in inquiries if isinstance(inquiry, Across)]
            results = list[bool]()
            while len(results) < len(cores):
                groups = self._fill(self._first_to_run(cores[len(results) :]))
                tested = tuple(group for group in groups if len(group) >= SMALLEST)
                tested += self._control_groups(tested)
                brief = all(core.brief for core in cores)
                failed = (yield GroupRound(groups=tested, brief=brief)) if tested else ()
                self._learn(tested, failed)
                bad = {group for group, is_bad in zip(tested, failed, strict=True) if is_bad}
                results += [group in bad for group in groups]
            named = (yield GroupRound(across=tuple(across))) if across else ()
            by_kind = {Core: iter(results), Across: iter(map(bool, named))}
            answers = [next(by_kind[type(inquiry)]) for inquiry in inquiries]

    def _first_to_run(self, cores: Sequence[Core]) -> Sequence[Core]:
        """The first cores, as many as share no node and leave each single node a partner. If groups
        are compared, all of them keep their size."""
        needed, busy = 0, set[str]()
        for number, core in enumerate(cores):
            busy.update(core.nodes)
            missing = max(0, core.size - len(core.nodes))
            single = int(len(core.nodes) < SMALLEST)
            needed += missing if self.by_comparison and not self.domains else single
            nodes = sum(len(core.nodes) for core in cores[: number + 1])
            if number and (len(self._pool(busy)) < needed or len(busy) < nodes):
                return cores[:number]
        return cores

    def _fill(self, cores: Sequence[Core]) -> tuple[Group, ...]:
        """Fill up the groups of a round with good nodes, to the largest common size that these
        allow. A group that is repeated meets in another order, so that each test has a name of its
        own. A group without a partner stays alone, and is not tested."""
        pool = self._pool(
            {node for core in cores for node in core.nodes},
            any_good=any(len(core.nodes) < SMALLEST for core in cores),
        )
        pool = np.random.default_rng(self.rounds).permutation(pool).tolist()  # partners change
        common = max((core.size for core in cores), default=0)
        while common > SMALLEST and self._lack_partners(cores, common, pool):
            common -= 1
        filled = []
        for core in cores:
            near = self._near(core.nodes, pool)
            able = [node for node in near if node not in core.not_with] or near
            partners = able[: max(0, min(core.size, common) - len(core.nodes))]
            pool = [node for node in pool if node not in partners]
            filled.append(self._reorder((*core.nodes, *partners)))
        return tuple(filled)

    # --- NVLink domains: slow groups are compared within them ----------------------------------

    def _domain(self, nodes: Iterable[str]) -> Group:
        """The domain that has all of these nodes; () if none has, or if groups only fail."""
        own = set(nodes)
        domains = self.domains if self.by_comparison else ()
        return next((domain for domain in domains if own.issubset(domain)), ())

    def _near(self, nodes: Group, pool: Sequence[str]) -> list[str]:
        """The partners of the same domain; all, if it does not matter."""
        domain = frozenset(self._domain(nodes))
        return [node for node in pool if not domain or node in domain]

    def _lack_partners(self, cores: Sequence[Core], common: int, pool: Sequence[str]) -> bool:
        """True if there are too few partners to fill these groups up to a common size."""
        by_domain: dict[Group, list[Core]] = {}
        for core in cores:
            by_domain.setdefault(self._domain(core.nodes), []).append(core)
        return any(
            _missing(own, common) > len(self._near(domain, pool) if domain else pool)
            for domain, own in by_domain.items()
        )

    def _control_groups(self, tested: Sequence[Group]) -> tuple[Group, ...]:
        """Good groups of the same sizes, each in a domain without suspects: a domain by itself has
        no other groups that show what is normal. They are more than those under test: if a whole
        domain is slow, most groups of a size would be, and slow would be normal."""
        sizes = Counter(len(group) for group in tested if self._domain(group))
        pool = self._pool({node for group in tested for node in group}) if sizes else []
        pool = np.random.default_rng(self.rounds).permutation(pool).tolist()
        controls = list[Group]()
        counts = {size: max(CONTROLS, count + 1) for size, count in sizes.items()}
        for size in Counter(counts).elements():
            free = [self._near(domain, pool) for domain in self.domains]
            group = self._reorder(tuple(max(free, key=len)[:size]))
            if len(group) == size:
                controls.append(group)
                pool = [node for node in pool if node not in group]
        return tuple(controls)

    def _is_new_size(self, size: int) -> bool:
        """True if groups are compared, and no good group of this size shows what is normal."""
        suspected = frozenset[str]().union(*self._live.values())
        same_size = (trial for trial in self.trials if len(trial.group) == size)
        return self.by_comparison and all(
            not trial.failed and bool(trial.group & suspected) for trial in same_size
        )

    def _pool(self, busy: Collection[str], *, any_good: bool = False) -> list[str]:
        """The good nodes that may fill up groups, without suspects of other searches. If none is
        left, and `any_good` is enough, these suspects too."""
        apart = self.released.union(busy, self.named, *self.links)
        able = [node for node in self.good if node not in apart]
        suspected = frozenset().union(*self._live.values())
        return [node for node in able if node not in suspected] or (able if any_good else [])

    def _reorder(self, group: Group) -> Group:
        """The group in an order that is new; empty if there is none, as the same test again would
        be taken for another one."""
        orders = (way[k:] + way[:k] for way in (group, group[::-1]) for k in range(len(group)))
        new = next((order for order in orders if order not in self._orders), ())
        self._orders.add(new)
        return new

    def _learn(self, groups: Sequence[Group], failed: Sequence[bool | None]) -> None:
        """Keep the results, but not that of a group that no other of its size shows to be good."""
        self.rounds += 1
        suspected = frozenset[str]().union(*self._live.values())
        shown = {len(group) for group in groups if suspected.isdisjoint(group)}
        shown |= {len(group) for group, is_bad in zip(groups, failed, strict=True) if is_bad}
        for group, is_bad in zip(groups, failed, strict=True):
            size = len(group)
            if is_bad is None or (size not in shown and self._is_new_size(size)):
                continue
            self._add_trial(group, is_bad)

    def _add_trial(self, group: Group, failed: bool) -> None:
        self.trials.append(GroupTest(group, frozenset(group), failed))
        if not failed:
            self.good.update(dict.fromkeys(group))

    def _evidence(self, suspects: Iterable[str], search: int) -> list[GroupTest]:
        """The trials with any of the suspects. A failed one counts only if no named part and no
        suspect of another search explains it."""
        own = frozenset(suspects) - self.named.keys()
        running = (nodes for number, nodes in self._live.items() if number != search)
        explained = set(self.named).union(*running) - own
        return [
            trial
            for trial in self.trials
            if trial.group & own
            and not (trial.failed and (trial.group & explained or self._has_link(trial.group)))
        ]

    def _has_link(self, group: frozenset[str]) -> bool:
        return any(group.issuperset(link) for link in self.links)

    # --- suspects ----------------------------------------------------------------------------

    def narrow(self, group: Group, size: int = 0) -> Tests:
        """Find the nodes of a failing group that fail beside good ones, or only together. Halves
        are filled up to its size, so that they can be compared with it. Once something is found,
        the rest is tested together."""
        size = size or len(group)
        findings = yield from self._suspect(group, size)
        news = findings
        while news:
            named = {*self.named, *chain.from_iterable(self.links)}
            left = tuple(node for node in group if node not in named)
            if not 1 < len(left) < len(group):
                break
            (failed,) = yield [Core(left, size)]
            news = (yield from self._suspect(left, size)) if failed else NOTHING
            findings += news
        return findings

    def _suspect(self, suspects: Group, size: int) -> Tests:
        """Begin to look into suspects, so that other searches know of it at once."""
        number = max(self._live, default=0) + 1
        self._live[number] = frozenset(suspects)
        return self._look_into(suspects, size, number)

    def _look_into(self, suspects: Group, size: int, number: int) -> Tests:
        findings = yield from self._halve(suspects, size, number)
        del self._live[number]
        return findings

    def _halve(self, suspects: Group, size: int, number: int) -> Tests:
        crossed = set[Group]()
        for _ in range(REPEATS * (ceil(log2(max(len(suspects), 2))) + 1)):
            own = self._evidence(suspects, number)
            failing = chain.from_iterable(trial.nodes for trial in own if trial.failed)
            met = dict.fromkeys(n for n in chain(suspects, failing) if n not in self.named)
            if not met:
                break  # others have named them all
            chances = posterior([(node,) for node in met], self._evidence(met, number))
            likely = max(met, key=lambda node: chances[node,])
            if self._fails_with_its_leaf(likely):
                leaf = next(leaf for leaf in self.leaves if likely in leaf)
                self.named.update(dict.fromkeys(leaf))
                return Found(nodes=leaf)
            if chances[likely,] >= SURE:
                self.named[likely] = None
                return Found(nodes=(likely,))
            if chances[()] >= GIVEN_UP:
                break
            live = tuple(n for n in met if chances[n,] > LITTLE * chances[likely,])
            self._live[number] = frozenset(live)
            if len(live) == 1:
                pool = self._pool(live)
                if not pool:
                    break
                pool.sort(key=lambda node: -chances.get((node,), 0.0))
                possible = [n for n in pool[: len(pool) // 2] if chances.get((n,), 0.0) > RULED_OUT]
                before = len(self.trials)
                yield [Core(live, size, tuple(possible))]
                if len(self.trials) == before:
                    break
                continue
            left, right = _halves(live, chances)
            if self._are_quarters(suspects) and left == suspects[: len(left)]:
                left, right = live[:1], live[1:]
            if min(len(left), len(right)) == 1 and not self._pool(live):
                break
            before = len(self.trials)
            first, second = yield [Core(left, size), Core(right, size)]
            if len(self.trials) == before:
                break  # groups that cannot be compared teach nothing
            if first and second:
                self._live[number] = frozenset()
                findings = yield from together(
                    [self._suspect(half, size) for half in (left, right)]
                )
                if findings:
                    return findings
            elif not first and not second and live not in crossed:
                crossed.add(live)
                findings = yield from self._cross(left, right, size, number, len(met))
                if findings:
                    return findings
        return NOTHING

    def _fails_with_its_leaf(self, node: str) -> bool:
        """True if each part of its leaf fails beside good nodes of other leaves: each
        quarter, and each node by itself, or of a large leaf several of them."""
        leaf = frozenset(next((leaf for leaf in self.leaves if node in leaf), ()))
        if self._domain(leaf):
            return self._fails_apart(leaf)
        mixed = [t for t in self.trials if t.group & leaf and t.group - leaf]
        parts = [trial.group & leaf for trial in mixed if trial.failed]
        small = [nodes for nodes in parts if len(nodes) <= max(1, len(leaf) // 4)]
        singles = frozenset[str]().union(*(nodes for nodes in parts if len(nodes) == 1))
        return (
            len(leaf) >= FEWEST
            and all(trial.failed for trial in mixed)
            and frozenset[str]().union(*small) == leaf
            and len(singles) >= (FEWEST if self._is_large(leaf) else len(leaf))
        )

    def _fails_apart(self, leaf: frozenset[str]) -> bool:
        """True if no group within an NVLink domain is good, and so many of them have no node in
        common that all nodes of the domain must share the cause."""
        own = sorted((t for t in self.trials if t.group <= leaf), key=lambda t: len(t.group))
        met = set[str]()
        disjoint = 0
        for trial in own:
            if met.isdisjoint(trial.group):
                met |= trial.group
                disjoint += 1
        needed = max(FEWEST, len(leaf) // THIRD_OF)
        return all(trial.failed for trial in own) and disjoint >= needed

    def _is_large(self, leaf: Collection[str]) -> bool:
        """True if groups of a leaf keep its size, so that each of its nodes takes a round."""
        return self.by_comparison and len(leaf) > MOST_ALONE

    def _are_quarters(self, suspects: Group) -> bool:
        """True if the suspects are a quarter of a large leaf, and failed."""
        leaf = next((leaf for leaf in self.leaves if set(suspects) <= set(leaf)), ())
        return self._is_large(leaf) and len(suspects) <= len(leaf) // 4

    # --- nodes that fail only together -----------------------------------------------------------

    def cross(self, left: Group, right: Group, size: int) -> Tests:
        """Find two nodes that fail only together, one of each side."""
        number = max(self._live, default=0) + 1
        self._live[number] = frozenset((*left, *right))
        return self._look_across(left, right, size, number)

    def _look_across(self, left: Group, right: Group, size: int, number: int) -> Tests:
        among = len(left) + len(right)
        findings = yield from self._cross(left, right, size, number, among)
        del self._live[number]
        return findings

    def _cross(self, left: Group, right: Group, size: int, number: int, among: int) -> Tests:
        """Follow the quarters that fail. If several do, more than two nodes are concerned."""
        while len(left) > 1 or len(right) > 1:
            a, b = _middle(left), _middle(right)
            bad = list[tuple[Group, Group]]()
            for far in (b, b[::-1]):
                quarters = [(x, y) for x, y in zip(a, far, strict=True) if x and y]
                failed = yield [Core((*x, *y), size) for x, y in quarters]
                bad = [quarter for quarter, fails in zip(quarters, failed, strict=True) if fails]
                if bad:
                    break
            if len(bad) != 1:
                return NOTHING
            ((left, right),) = bad
            self._live[number] = frozenset((*left, *right))
        return (yield from self._decide(left[0], right[0], size, number, among))

    def _decide(self, a: str, b: str, size: int, number: int, among: int) -> Tests:
        """Decide if two nodes fail only together, or one of them by itself at times."""
        for _ in range(MOST_DECIDING):
            trials = self._evidence((a, b), number)
            chances = posterior([(a,), (b,), (a, b)], trials, among=among)
            likely = max(chances, key=chances.__getitem__)
            sure = SURE_OF_LINK if len(likely) > 1 else SURE
            if chances[likely] >= sure or chances[()] >= GIVEN_UP:
                return self._name(likely)
            ways: list[list[Group]] = [[(a, b)], [(a,), (b,)] if self._pool((a, b)) else []]
            tests = max(ways, key=lambda groups: _expected_bits(chances, groups))
            yield [Core(nodes, size) for nodes in tests]
        return NOTHING

    def _name(self, part: Group) -> Found:
        if len(part) == 2:
            a, b = part
            self.links.append((a, b))
            return Found(links=((a, b),))
        self.named.update(dict.fromkeys(part))
        return Found(nodes=part)


def _missing(cores: Sequence[Core], common: int) -> int:
    """The number of good nodes that fill these groups up to a common size."""
    return sum(max(0, min(core.size, common) - len(core.nodes)) for core in cores)


def _halves(live: Group, chances: Posterior) -> tuple[Group, Group]:
    """The suspects in two parts, as equally likely as their order allows."""
    sums = list(accumulate(chances[node,] for node in live))
    place = min(range(1, len(live)), key=lambda k: (round(abs(2 * sums[k - 1] - sums[-1]), 9), -k))
    return live[:place], live[place:]


def _expected_bits(chances: Posterior, groups: Sequence[Group]) -> float:
    """The information that these tests are expected to bring on which part is at fault."""
    return sum(_bits_of(chances, group) for group in groups)


def _bits_of(chances: Posterior, group: Group) -> float:
    usual = sum(share * _fails_at(rate) for rate, share in RATES.items())
    met = {part: bool(part) and set(group).issuperset(part) for part in chances}
    rates = {part: usual if is_met else BY_CHANCE for part, is_met in met.items()}
    fails = sum(chances[part] * rate for part, rate in rates.items())
    return _entropy(fails) - sum(chances[part] * _entropy(rate) for part, rate in rates.items())


def _entropy(chance: float) -> float:
    return -sum(p * log2(p) for p in (chance, 1 - chance) if p > 0)


def _middle(nodes: Group) -> tuple[Group, Group]:
    middle = (len(nodes) + 1) // 2
    return nodes[:middle], nodes[middle:]


Rounds = Generator[GroupRound, Sequence[bool | None], Found]
NamedBetween = Callable[[Sequence[Group]], bool | None]
OVER = GroupRound()
NO_RESULTS: Mapping[Group, bool | None] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class SearchProgress:
    """What is to be tested next, and what was found so far; nothing to test: the search is over."""

    groups: tuple[Group, ...] = ()
    brief: bool = False  # the shortest program of these groups is enough
    across: tuple[tuple[Group, ...], ...] = ()  # parts that are well, but not all together
    handed_back: frozenset[str] = frozenset()  # nodes that are no longer needed
    nodes: Group = ()  # at fault
    links: tuple[Pair, ...] = ()  # nodes that fail only together
    paths: tuple[Group, ...] = ()  # groups that fail each time, and no part of them does
    size: tuple[int, int] | None = None  # groups of so many nodes are well, of so many they fail
    named_between: bool = False  # pairs across parts named something
    fails_everywhere: bool = False  # no group is well: the cause is not the nodes

    @property
    def is_over(self) -> bool:
        return not self.groups and not self.across


def unanswered(
    rounds: Rounds,
    results: Mapping[Group, bool | None],
    named_between: NamedBetween = lambda parts: False,
    brief_results: Mapping[Group, bool | None] = NO_RESULTS,
) -> GroupRound:
    """Carry out a search as far as results are known, and return what the next round still needs.
    It begins anew after each round, so nothing is kept between rounds.

    `results`: for each group True if it failed, None if that cannot be judged. `named_between`:
    True if pairs across parts named something, None if they have not ended. `brief_results`: of
    groups of which the shortest program has ended.
    """
    answers: list[bool | None] | None = None
    while True:
        try:
            groups, across, brief = next(rounds) if answers is None else rounds.send(answers)
        except StopIteration:
            return OVER
        answered = brief_results if brief and brief_results else results
        missing = tuple(group for group in groups if group not in answered)
        if missing:
            return GroupRound(groups=missing, brief=brief)
        answers = [answered[group] for group in groups] or [named_between(p) for p in across]
        if across and None in answers:
            return GroupRound(across=across)
