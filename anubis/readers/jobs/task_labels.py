"""Labels of `srun -l`, which writes the number of a task before each line: which tasks are ranks,
and which are launchers, one on each node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anubis.core.diagnose.evidence import RankMap

LABEL = re.compile(r"^ {0,5}(\d{1,6}): ?")
INNER = re.compile(r"^\[[a-z_]{2,20}\d{1,6}\]")  # a launcher says which of its processes speaks
HEAD = 2000  # lines that show which it is
LABELLED = 0.9  # of them
OTHERS = ("srun:", "slurmstepd:")  # words of Slurm itself
FEWEST = 4  # lines, where nobody knows how many ranks there are


@dataclass(frozen=True, kw_only=True)
class TaskLabels:
    """The meaning of the labels in a file. Without nodes and ranks a label says nothing."""

    are_ranks: bool
    nodes: tuple[str, ...] = ()  # of tasks that are launchers

    def split(self, line: str) -> tuple[int | None, str, str]:
        """Split a line into its rank or else its node, as far as that is known, and its text."""
        match = LABEL.match(line)
        if match is None:
            return None, "", line
        task, text = int(match[1]), line[match.end() :]
        if self.are_ranks:
            return task, "", text
        return None, self.nodes[task] if task < len(self.nodes) else "", text


def task_labels(head: Iterable[str], ranks: RankMap) -> TaskLabels | None:
    """Infer labels from the first lines of a file; None if they are not labelled."""
    lines = [line for line in head if line.strip() and not line.startswith(OTHERS)]
    matches = [match for match in map(LABEL.match, lines) if match]
    if not matches or len(matches) < LABELLED * len(lines):
        return None
    tasks = [int(match[1]) for match in matches]
    if not ranks.nodes:
        repeated = len(tasks) >= FEWEST and 2 * len(set(tasks)) <= len(tasks)
        return TaskLabels(are_ranks=True) if repeated else None
    if max(tasks) > max(ranks.nodes):
        return None
    nodes = tuple(dict.fromkeys(ranks.nodes[rank] for rank in sorted(ranks.nodes)))
    if max(tasks) >= len(nodes) or len(nodes) == len(ranks.nodes):
        return TaskLabels(are_ranks=True)
    return TaskLabels(are_ranks=False, nodes=nodes if _have_inner(matches) else ())


def _have_inner(matches: Sequence[re.Match[str]]) -> bool:
    return any(INNER.match(match.string[match.end() :]) for match in matches)
