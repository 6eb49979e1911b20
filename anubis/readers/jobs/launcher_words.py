"""What launchers write into a log: labels before each line, and words about the ends of processes.

`mpirun --tag-output`, horovodrun and Determined label with the rank, pdsh, milabench and syslog
with the node, Ray with the process, vLLM and SGLang with both, `kubectl logs --prefix` with the
pod, `docker compose logs` with the container, and programs with `Rank 5:`. `srun -l` and `mpiexec
-l` write the number of a task: tasks are ranks, or launchers, one on each node.

The first process that Slurm or a launcher of MPI saw end is marked. What ends after the job was
cancelled, or after the launcher began to end it, ended for that reason: it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from anubis.core.diagnose.evidence import Exit, RankMap

SRUN = re.compile(
    r"srun: error: (\S+): tasks? ([\d,-]{1,60}): (Killed|Terminated|Segmentation fault|Bus error|"
    r"Aborted|Out Of Memory|Exited with exit code (\d+))"
)
SIGNALS = {
    "Killed": 9,
    "Terminated": 15,
    "Segmentation fault": 11,
    "Bus error": 7,
    "Aborted": 6,
    "Out Of Memory": 9,  # by the kernel
}
CANCELLED = re.compile(
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT |"
    r"srun: (?:Job step aborted|Terminating StepId|forcing job termination|interrupt)"
)
NODE_FAILURE = re.compile(
    r"(?:srun|salloc): error: Node failure on ([\w.-]+)"
    r"|^\s*Remote daemon: \[\[\d+,\d+\],\d+\] on node ([\w.-]+)"  # Open MPI has lost it
    r"|node with node id: \w+ and address: ([\w.:-]+) and node name: .{1,200} marked dead"  # Ray
)
NOTICED = re.compile(
    r"noticed that process rank (\d{1,6}) with PID \d+ on node ([\w.-]+) exited on signal (\d{1,2})"
)
ABORTED = re.compile(r"MPI_ABORT was invoked on rank (\d{1,6}) in communicator MPI_COMM_WORLD")
PROCESS = re.compile(r"^\s*Process name: \[\[\d+,\d+\],\s?(\d{1,6})\]")
CODE = re.compile(r"^\s*Exit code: +(\d{1,3})\b")
MARKS = (
    *("srun", "slurmstepd", "noticed that", "MPI_ABORT", "Process name", "Exit code"),
    *("Remote daemon", "marked dead"),
)
MOST_TASKS = 4096  # of one line


@dataclass(kw_only=True)
class LauncherWords:
    """The ends of tasks and the failed nodes that one file reports."""

    ranks: RankMap
    exits: list[Exit] = field(default_factory=list)
    lost_nodes: dict[str, float | None] = field(default_factory=dict)  # by the scheduler → when
    _is_ending: bool = False
    _process: int | None = None  # whose exit code follows

    def hear(self, text: str, at: float | None) -> None:
        if match := NODE_FAILURE.search(text):
            self.lost_nodes.setdefault(match[1] or match[2] or match[3], at)
        if CANCELLED.search(text):
            self._is_ending = True
        elif not self._is_ending:
            ends = [replace(end, at=at) for end in self._ends(text)]
            self.exits += [replace(end, is_first=self._is_first(ends)) for end in ends]

    def clear(self) -> None:
        self.exits.clear()
        self._is_ending = False

    def _is_first(self, ends: list[Exit]) -> bool:
        return len(ends) == 1 and not self.exits

    def _ends(self, text: str) -> Iterator[Exit]:
        if match := SRUN.search(text):
            yield from self._srun(match)
        elif match := NOTICED.search(text):
            if self.is_on(int(match[1]), match[2]):
                yield Exit(rank=int(match[1]), signal=int(match[3]))
        elif match := ABORTED.search(text):
            yield Exit(rank=int(match[1]), code=1)
        elif match := PROCESS.match(text):
            self._process = int(match[1])
        elif self._process is not None and (match := CODE.match(text)):
            yield exit_of(self._process, int(match[1]), None)
            self._process = None

    def _srun(self, match: re.Match[str]) -> Iterator[Exit]:
        for rank in _tasks(match[2]):
            if not self.is_on(rank, match[1]):
                continue  # a task that is no rank
            if match[4]:
                yield exit_of(rank, int(match[4]), None)
            else:
                yield Exit(rank=rank, signal=SIGNALS[match[3]])

    def is_on(self, rank: int, host: str) -> bool:
        return not self.ranks.nodes or self.ranks.node_of(rank) == self.ranks.node_named(host)


def _tasks(text: str) -> Iterator[int]:
    """Yield the numbers of Slurm's list of tasks: 0-2,7."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from islice(range(int(first), int(last or first) + 1), MOST_TASKS)


def exit_of(rank: int, code: int, at: float | None) -> Exit:
    """Return the exit of a rank: -9 is a signal to torchrun, 137 to a shell, and 247 is -9 as a
    byte."""
    if code < 0:
        return Exit(rank=rank, signal=-code, at=at)
    if 128 < code < 128 + 65:
        return Exit(rank=rank, code=code, signal=code - 128, at=at)
    if 256 - 32 < code < 256:
        return Exit(rank=rank, code=code, signal=256 - code, at=at)
    return Exit(rank=rank, code=code, at=at)


LABEL = re.compile(
    r"^(?: {0,5}(?=\d+:)|\[(?=\d+\](?: |$))"
    r"|(?P<word>\[?rank(?:[ =]|: )(?=\d+(?:\]:?|:)(?: |$))))(\d{1,6})\]?:? ?",
    re.IGNORECASE,
)
CONTAINER = re.compile(r"^([A-Za-z0-9][\w.-]{0,120}) {1,60}\| ?")
MPI = re.compile(r"^\[(?:(?:\d+|[\w.@-]{1,120}),)?(\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?")
PDSH = re.compile(r"^([A-Za-z][\w.-]{0,120}): ")
WORKER = re.compile(  # of Ray and vLLM, with the beginning that vLLM writes into each line
    r"^\((?P<name>\w{1,80}?)(?:[_ ]TP(?P<tensor>\d{1,6})(?:_EP\d+)?)?(?: rank=(?P<rank>\d{1,6}))?"
    r" pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)\s]{1,64}))?\) ?"
)
LEVELS = ("ERROR ", "WARNING ", "INFO ", "DEBUG ", "CRITICAL ")
STAGED = re.compile(r"[DP]P\d")
VLLM = re.compile(
    r"^(?P<stamp>(?:ERROR|WARNING|INFO|DEBUG|CRITICAL) \d\d-\d\d [\d:]{8}(?:\.\d{1,9})?)"
    r" \[?[\w./]{1,80}:\d+\] ?"
)
SGLANG = re.compile(
    r"^\[(?P<stamp>20\d\d-\d\d-\d\d [\d:]{8})(?: DP\d+)?(?P<stage> PP\d+)? TP(?P<rank>\d{1,6})"
    r"(?: [A-Z]+\d+)*\] ?"
)
DETERMINED = re.compile(
    r"^<\w+> +\[(?P<stamp>[\d: T-]{19})\] \w+ \[rank=(?P<rank>\d{1,6})\] \|\| ?"
)
MILABENCH = re.compile(r"^(?P<bench>[\w-]{1,120})\.(?P<place>[\w.-]{1,253}) \[std(?:out|err)\] ?")
SYSLOG = re.compile(
    r"^(?P<stamp>(?:[A-Z][a-z]{2} [ \d]\d |\d{4}-\d\d-\d\dT)[\d:]{8}(?:\.\d{1,9})?"
    r"(?:[+-]\d\d:?\d\d)?) (?P<host>[\w.-]{1,253}) [\w./-]{1,120}(?:\[\d+\])?: ?"
)
POD = re.compile(r"^\[pod/([\w.-]{1,253})/([\w.-]{1,63})\] ?")
REPEATED = "x across cluster]"  # Ray: other processes wrote the same
INNER = re.compile(r"^\[[a-z_]{2,20}\d{1,6}\]")  # a launcher says which of its processes speaks
HEAD = 2000  # lines that show which it is
LABELLED = 0.9  # of them
SLURMS = ("srun:", "slurmstepd:")  # words of Slurm itself: it calls the start of a task a step
FEWEST = 4  # lines, if the number of ranks is unknown


@dataclass(frozen=True, kw_only=True)
class LineLabel:
    """The writer of a line, as far as its label says."""

    rank: int | None = None
    node: str = ""
    process: str = ""  # address and number; else pod and container, or container
    stamp: str = ""  # when it was written, if the label says so
    is_of_block: bool = False  # lines that follow it belong to it, and have no label


@dataclass(frozen=True, kw_only=True)
class TaskLabels:
    """The meaning of the labels in a file. Without nodes and ranks a number says nothing."""

    are_ranks: bool = False
    are_containers: bool = False
    nodes: tuple[str, ...] = ()  # of tasks that are launchers

    def split(self, line: str, ranks: RankMap) -> tuple[LineLabel, str]:
        match = (CONTAINER if self.are_containers else LABEL).match(line)
        if match is None:
            return NO_LABEL, line
        text = line[match.end() :]
        if self.are_containers:
            node = ranks.node_named(match[1])
            return LineLabel(node=node, process="" if node else match[1]), text
        task = int(match[2])
        if self.are_ranks:
            return LineLabel(rank=task), text
        return LineLabel(node=self.nodes[task] if task < len(self.nodes) else ""), text


NO_LABEL = LineLabel()


def split_line(line: str, tasks: TaskLabels | None, ranks: RankMap) -> tuple[LineLabel, str]:
    """Split a line into its label and its text. A name counts only if it is a node of the job."""
    if line.startswith(("[", "(", "<")) and (parts := _own_label(line, ranks)):
        return parts
    if (match := PDSH.match(line)) and (node := ranks.node_named(match[1])):
        return LineLabel(node=node), line[match.end() :]
    if " [std" in line[:400] and (match := MILABENCH.match(line)):
        node = ranks.node_named(match["place"].removesuffix(".nolog"))
        return LineLabel(node=node, process="" if node else match["place"]), line[match.end() :]
    is_dated = line[3:4] == " " or line[10:11] == "T"
    if is_dated and (match := SYSLOG.match(line)) and (node := ranks.node_named(match["host"])):
        return LineLabel(node=node, stamp=match["stamp"]), line[match.end() :]
    if line.startswith(LEVELS) and (match := VLLM.match(line)):
        return LineLabel(stamp=match["stamp"]), line[match.end() :]
    return tasks.split(line, ranks) if tasks else (NO_LABEL, line)


def _own_label(line: str, ranks: RankMap) -> tuple[LineLabel, str] | None:
    """Split off a label in brackets that names the writer by itself."""
    if line[0] == "(":
        return _worker_label(line)
    if "]<std" in line[:160] and (match := MPI.match(line)):
        return LineLabel(rank=int(match[1])), line[match.end() :]
    if " TP" in line[:40] and (match := SGLANG.match(line)):
        rank, stage = int(match["rank"]), match["stage"]
        label = LineLabel(
            rank=None if stage else rank,
            process=f":{stage} {rank}" if stage else "",
            stamp=match["stamp"],
            is_of_block=True,
        )
        return label, line[match.end() :]
    if line[0] == "<" and (match := DETERMINED.match(line)):
        return LineLabel(rank=int(match["rank"]), stamp=match["stamp"]), line[match.end() :]
    if line.startswith("[pod/") and (match := POD.match(line)):
        node = ranks.node_named(match[1])
        process = "" if node else f"{match[1]}:{match[2]}"
        return LineLabel(node=node, process=process), line[match.end() :]
    return None


def _worker_label(line: str) -> tuple[LineLabel, str] | None:
    """Split off the label of a worker of Ray or vLLM. Of several pipelines or copies of a model the
    number within one of them is no rank."""
    if (match := WORKER.match(line)) is None:
        return None
    rank = match["rank"] or (None if STAGED.search(match["name"]) else match["tensor"])
    text = line[match.end() :]
    inner = VLLM.match(text)
    label = LineLabel(
        rank=None if rank is None else int(rank),
        process=f"{match['ip'] or ''}:{match['pid']}",
        stamp=inner["stamp"] if inner else "",
    )
    return label, text[inner.end() :] if inner else text


def task_labels(head: Iterable[str], ranks: RankMap) -> TaskLabels | None:
    """Infer labels from the first lines of a file; None if they are not labelled."""
    lines = [line for line in head if line.strip() and not line.startswith(SLURMS)]
    if lines and sum(map(bool, map(CONTAINER.match, lines))) >= LABELLED * len(lines):
        return TaskLabels(are_containers=True)
    matches = [match for match in map(LABEL.match, lines) if match]
    if not matches or len(matches) < LABELLED * len(lines):
        return None
    if all(match["word"] for match in matches):
        return TaskLabels(are_ranks=True)
    tasks = [int(match[2]) for match in matches]
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
