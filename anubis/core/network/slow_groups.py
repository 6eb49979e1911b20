"""Search the slow groups of a benchmark, which run side by side, for the nodes that make them slow.

All groups are searched in the same rounds. A group in which nothing is found meets again: only what
is slow each time is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.network.group_search import NOTHING, REPEATS, SMALLEST, Core, Search, Tests
from anubis.core.network.group_search import together as run_together
from anubis.core.network.pairing import Group
from anubis.core.network.search_progress import SearchProgress, unanswered


def look_into_groups(
    planned: Mapping[Group, bool | None], results: Mapping[Group, bool | None]
) -> SearchProgress:
    """The progress of a search in planned groups, each given with True if it is slow."""
    search = Search()
    for group, is_slow in planned.items():
        if is_slow is not None:
            search.add_known(group, failed=is_slow)
    job = _SlowGroups(search)
    slow = [group for group, is_slow in planned.items() if is_slow and len(group) >= SMALLEST]
    rounds = search.carry_out(run_together([job.look_into(group) for group in slow]))
    further = unanswered(rounds, results)
    return SearchProgress(
        groups=further.groups,
        nodes=tuple(search.named),
        links=tuple(search.links),
        paths=tuple(job.paths),
    )


@dataclass
class _SlowGroups:
    search: Search
    paths: list[Group] = field(default_factory=list)

    def look_into(self, group: Group) -> Tests:
        for _ in range(REPEATS):
            findings = yield from self.search.narrow(group)
            if findings or not self.search.named.keys().isdisjoint(group):
                return findings
            (again,) = yield [Core(group)]
            if not again:
                return NOTHING
        self.paths.append(group)
        return NOTHING
