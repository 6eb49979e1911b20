"""Labels that launchers write before each line.

`mpirun --tag-output` writes the rank, pdsh the node, Ray the process. `srun -l` writes the number
of a task: tasks are ranks, or launchers, one on each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anubis.core.diagnose.evidence import RankMap

LABEL = re.compile(r"^ {0,5}(\d{1,6}): ?")
MPI = re.compile(r"^\[(?:\d+|[\w.@-]{1,120}),(\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?")
PDSH = re.compile(r"^([A-Za-z][\w.-]{0,120}): ")
RAY = re.compile(r"^\(\w{1,80} pid=(\d+)(?:, ip=([^)\s]{1,64}))?\) ?")
REPEATED = "x across cluster]"  # Ray: other processes wrote the same
INNER = re.compile(r"^\[[a-z_]{2,20}\d{1,6}\]")  # a launcher says which of its processes speaks
HEAD = 2000  # lines that show which it is
LABELLED = 0.9  # of them
OTHERS = ("srun:", "slurmstepd:")  # words of Slurm itself
FEWEST = 4  # lines, if the number of ranks is unknown


@dataclass(frozen=True, kw_only=True)
class LineLabel:
    """The writer of a line, as far as its label says."""

    rank: int | None = None
    node: str = ""
    process: str = ""  # of Ray: address and number


@dataclass(frozen=True, kw_only=True)
class TaskLabels:
    """The meaning of the labels in a file. Without nodes and ranks a label says nothing."""

    are_ranks: bool
    nodes: tuple[str, ...] = ()  # of tasks that are launchers

    def split(self, line: str) -> tuple[LineLabel, str]:
        match = LABEL.match(line)
        if match is None:
            return NO_LABEL, line
        task, text = int(match[1]), line[match.end() :]
        if self.are_ranks:
            return LineLabel(rank=task), text
        return LineLabel(node=self.nodes[task] if task < len(self.nodes) else ""), text


NO_LABEL = LineLabel()


def split_line(line: str, tasks: TaskLabels | None, ranks: RankMap) -> tuple[LineLabel, str]:
    """Split a line into its label and its text. A name counts only if it is a node of the job."""
    if line.startswith("[") and (match := MPI.match(line)):
        return LineLabel(rank=int(match[1])), line[match.end() :]
    if line.startswith("(") and (match := RAY.match(line)):
        return LineLabel(process=f"{match[2] or ''}:{match[1]}"), line[match.end() :]
    if (match := PDSH.match(line)) and (node := ranks.node_named(match[1])):
        return LineLabel(node=node), line[match.end() :]
    return tasks.split(line) if tasks else (NO_LABEL, line)


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
