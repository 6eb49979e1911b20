"""How far a search got: what it needs next, and what it found. A search is repeated from its
beginning after each round, as far as results are known, so nothing is kept between rounds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from anubis.core.network.group_search import Found, GroupRound
from anubis.core.network.pairing import Group, Pair

Rounds = Generator[GroupRound, Sequence[bool | None], Found]
NamedBetween = Callable[[Sequence[Group]], bool | None]
OVER = GroupRound()


@dataclass(frozen=True, kw_only=True)
class SearchProgress:
    """What is to be tested next, and what was found so far; nothing to test: the search is over."""

    groups: tuple[Group, ...] = ()
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
) -> GroupRound:
    """Carry out a search as far as results are known, and return what the next round still needs.
    `results`: for each group True if it failed, None if that cannot be judged. `named_between`:
    True if pairs across parts named something, None if they have not ended."""
    answers: list[bool | None] | None = None
    while True:
        try:
            groups, across = next(rounds) if answers is None else rounds.send(answers)
        except StopIteration:
            return OVER
        missing = tuple(group for group in groups if group not in results)
        if missing:
            return GroupRound(groups=missing)
        answers = [results[group] for group in groups] or [named_between(p) for p in across]
        if across and None in answers:
            return GroupRound(across=across)
