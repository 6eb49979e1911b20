"""Cures for a job, from light to heavy, and their budgets.

The four levels are DLRover's; the policy says which is right when. A cure that did not help is not
repeated for ever: the same trouble on the same node within a day raises the level by one, and a job
has a budget for each level. No node is replaced because a program is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from anubis.core.amounts import DAY_S
from anubis.core.diagnose.facts import FactKind
from anubis.core.watch.likelihood import FAULTS

FEWEST_REPLACED = 2  # at once, however small the job is: both of two broken hosts must go


class CureLevel(IntEnum):
    NONE = -1  # its state is unknown: look again
    LEAVE = 0  # it runs: test its nodes when they are free
    RETRY = 1
    RESTART = 2  # its processes, on the same nodes
    REPLACE = 3  # nodes
    FAIL = 4  # the job: only its owner can repair it


WORDS: Mapping[CureLevel, str] = {
    CureLevel.NONE: "none: look again",
    CureLevel.LEAVE: "leave the job running",
    CureLevel.RETRY: "try again",
    CureLevel.RESTART: "restart the processes",
    CureLevel.REPLACE: "replace the node",
    CureLevel.FAIL: "fail the job, and inform its owner",
}


# weight of the suspicion that comes with a cure: a retry hardly suspects the node
WEIGHTS: Mapping[CureLevel, float] = {
    CureLevel.NONE: 0.0,
    CureLevel.LEAVE: 0.5,
    CureLevel.RETRY: 0.1,
    CureLevel.RESTART: 0.3,
    CureLevel.REPLACE: 1.0,
    CureLevel.FAIL: 1.0,
}


@dataclass(frozen=True, kw_only=True)
class PastDiagnosis:
    """An earlier diagnosis: the nodes it named and the cure it advised."""

    job: str
    at: float
    level: int
    code: str  # of the cause
    nodes: tuple[str, ...] = ()
    headline: str = ""

    @property
    def is_explained(self) -> bool:
        """Return whether it blames a node, or the job itself."""
        return bool(self.nodes) or self.level == CureLevel.FAIL

    @property
    def is_unexplained(self) -> bool:
        """Return whether it found trouble and knows no culprit."""
        is_trouble = self.level in (CureLevel.RETRY, CureLevel.REPLACE) or (
            self.level == CureLevel.LEAVE and bool(self.code)
        )
        return is_trouble and not self.is_explained


def _levels() -> dict[str, int]:
    return {
        FactKind.CRITICAL_ERROR: 3,
        FactKind.UNREACHABLE: 3,
        FactKind.APPLICATION_ERROR: 2,
        FactKind.OUT_OF_MEMORY: 2,
        FactKind.DIED: 2,
        FactKind.GONE: 2,
        FactKind.STOPPED: 2,
        FactKind.ABSENT: 2,
        FactKind.ELSEWHERE: 2,
        FactKind.UNFINISHED: 2,
        FactKind.MISSING: 1,
        FactKind.COMMON_PART: 3,
        FactKind.LIKELY_PART: 1,
        FactKind.SILENT: 3,
        FactKind.DISTRIBUTED_ERROR: 3,
        FactKind.SLOW_COMPUTE: 0,
        FactKind.SLOW_NETWORK: 0,
        FactKind.UNLIKE_PEERS: 0,
        FactKind.OUTLIER: 0,
        FactKind.SETTINGS_DIFFER: 3,
        FactKind.NETWORK_FAULT: 3,
        FactKind.STANDSTILL: 1,
        FactKind.SLOWED: 0,
        FactKind.MAY_BE_SLOW: 0,
        FactKind.SAME_ERROR: 4,
        FactKind.MISMATCH: 4,
        FactKind.BAD_LOSS: 4,
    }


@dataclass(frozen=True, kw_only=True)
class CurePolicy:
    levels: Mapping[str, int] = field(default_factory=_levels)
    """The level for each kind of fact, from 0 (leave it running) to 4 (fail the job)."""
    codes: Mapping[str, int] = field(default_factory=dict)
    """The same for single codes such as xid-94. They go before kinds."""
    repeat_s: float = DAY_S
    """The same code on the same node within so long asks for one level more."""
    retries: int = 2
    """Number of times that a job is tried again (level 1)."""
    restarts: int = 3
    """Number of times that its processes are restarted (level 2)."""
    most_of_job: float = 0.05
    """The largest share of a job's nodes that may be replaced at once; two always may be."""

    def __post_init__(self) -> None:
        for name, level in (*self.levels.items(), *self.codes.items()):
            if level not in set(CureLevel) - {CureLevel.NONE}:
                raise ValueError(f"{name} has level {level}, expected one from 0 to 4")
        if unknown := sorted(self.levels.keys() - set(FactKind)):
            raise ValueError(f'levels has "{unknown[0]}", expected one of {", ".join(FactKind)}')
        if self.retries < 0 or self.restarts < 0:
            raise ValueError("retries and restarts must not be below 0")
        if not 0 <= self.most_of_job <= 1:
            raise ValueError(f"most_of_job is {self.most_of_job:g}, expected a share from 0 to 1")

    def level_of(self, kind: FactKind, code: str) -> CureLevel:
        default = _levels()[kind]
        return CureLevel(self.codes.get(code, self.levels.get(kind, default)))

    def replaced_at_once(self, nodes: int, *, is_either: bool = False) -> int:
        """The most nodes of a job with so many nodes that may be replaced at once. `is_either`:
        some of the named nodes are sound."""
        return max(1 if is_either else FEWEST_REPLACED, int(self.most_of_job * nodes))


@dataclass(frozen=True, kw_only=True)
class Advice:
    level: CureLevel
    why: str = ""  # reason for a level other than that of the facts alone


def escalate(
    level: CureLevel,
    *,
    job: str,
    nodes: Sequence[str],
    code: str,
    past: Iterable[PastDiagnosis],
    at: float,
    policy: CurePolicy,
) -> Advice:
    """Raise the level by one above a cure that did not help. Only a program's own error fails a job
    at once; its history fails a job if its restarts are spent and no node can be replaced."""
    if level is CureLevel.FAIL:
        return Advice(level=level)
    lately = [cure for cure in past if 0 <= at - cure.at <= policy.repeat_s]
    again = [cure.level for cure in lately if cure.code == code and {*cure.nodes} & {*nodes}]
    why = ""
    if again and level < CureLevel.REPLACE:
        level = _next_level(CureLevel(max(*again, level)), named=bool(nodes))
        why = f"the same happened on {'it' if len(nodes) == 1 else 'them'} within a day"
    spent = [cure.level for cure in lately if cure.job == job]
    if level is CureLevel.RETRY and spent.count(CureLevel.RETRY) >= policy.retries:
        level, why = CureLevel.RESTART, f"it was tried again {policy.retries} times"
    if level is CureLevel.RESTART and spent.count(CureLevel.RESTART) >= policy.restarts:
        level = _next_level(CureLevel.RESTART, named=bool(nodes))
        why = f"its processes were restarted {policy.restarts} times"
    return Advice(level=level, why=why)


def _next_level(level: CureLevel, *, named: bool) -> CureLevel:
    """The next heavier cure. A slow node is replaced when it is slow a second time, because there
    is nothing to retry."""
    if level in (CureLevel.LEAVE, CureLevel.RESTART):
        return CureLevel.REPLACE if named else CureLevel.FAIL
    return CureLevel(min(level + 1, CureLevel.REPLACE))


@dataclass(frozen=True, kw_only=True)
class DiagnosisPolicy(CurePolicy):
    """A site's policy for diagnoses: also where jobs leave their traces."""

    summary: str = ""
    """What it is for, in one line."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths of the traces of a job: for the name of an option of `anubis diagnose`, such as logs or
    dumps, a path in which {job} is the job's id. The command line goes before it."""
    telemetry: str = "default"
    """The file under configs/telemetry/ with the addresses of the nodes' agents. If it has `agents`
    with a `token_file`, those on the nodes of a running job are asked to look at its ranks."""
    classes: str = "default"
    """What lines of logs mean: a table under configs/classes/."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """What each kind of fault is called in this site's incidents, as in configs/watching/."""
    topology: str = ""
    """The fabric between its nodes: a file, or an example under configs/topologies/. Default: that
    of the last campaign that measured it, if the history is asked."""
    silent_s: float = 600.0
    """A running job is stalled, and is diagnosed, if its logs (of {job}) are silent for so long,
    or for twice as long after an earlier silence that ended. 0: silence is no sign of a stall."""
    zone: str = "UTC"
    """The time zone of log lines that name none, such as Europe/Berlin. A zone that a line names is
    believed."""
    ranks_per_node: int = 8
    """How many processes of a job run on each node."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := sorted(self.categories.keys() - FAULTS.keys()):
            kinds = ", ".join(FAULTS)
            raise ValueError(f'categories has "{unknown[0]}", expected kinds of faults: {kinds}')
        if not 0 <= self.silent_s < math.inf:
            raise ValueError(f"silent_s is {self.silent_s:g}, expected seconds from 0")
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node is {self.ranks_per_node}, expected 1 or more")

    def place_of(self, trace: str, job: str) -> str:
        """Path of a job's trace. Empty: the site does not name one, or the path needs the id of a
        job and there is none."""
        place = self.places.get(trace, "")
        return "" if "{job}" in place and not job else place.replace("{job}", job)
