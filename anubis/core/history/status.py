"""Status of nodes at an instant, and how long each then went without an incident.

All times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

import numpy as np
import numpy.typing as npt

from anubis.core.amounts import DAY_S
from anubis.core.arrays import Flags, Floats
from anubis.core.records import Judgement

Times = npt.NDArray[np.float64]
OVERDUE_S = DAY_S  # so long after its planned end a job without a reported end counts as over
LONGEST_JOB_S = 30 * DAY_S  # if its planned duration is unknown

# --- what happens to a node ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A stretch in which something was wrong with a node. The start is the identity of an
    incident, so it stays even if a clock that was ahead dated it later than the end: then the
    incident was short, and at its end."""

    node: str
    category: str
    start: float
    end: float | None = None  # None: not over yet

    def __post_init__(self) -> None:
        _check_times(f"the incident of {self.node}", self.start, self.end)
        if not self.category:
            raise ValueError(f"the incident of {self.node} has no category")

    def covers(self, at: float) -> bool:
        return self.start <= at and (self.end is None or at <= self.end)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A stretch in which a node was out of service without an incident of its own."""

    node: str
    start: float
    end: float | None = None  # None: still out
    action: str = ""

    def __post_init__(self) -> None:
        _check_stretch(f"the repair of {self.node}", self.start, self.end)


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A stretch in which a node belonged to the fleet, so that its incidents would be known."""

    node: str
    since: float
    until: float | None = None  # None: it still does

    def __post_init__(self) -> None:
        _check_stretch(f"the watch of {self.node}", self.since, self.until)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Verdict of a campaign on a node."""

    node: str
    at: float
    judgement: Judgement
    code: str = ""
    benchmarks: tuple[str, ...] = ()  # those that measured the node, sorted by name
    campaign: str = ""
    inapplicable: tuple[str, ...] = ()  # those that reported that they do not apply to it
    owes: tuple[str, ...] = ()  # those that it was asked and did not answer
    began: float | None = None  # its campaign; None: at the same time
    proves: bool = True  # its passes prove the node; those of a scan do not

    @property
    def since(self) -> float:
        """Time from which on it measured: it says nothing of what happened later."""
        return self.at if self.began is None else min(self.began, self.at)

    @property
    def outcome(self) -> str:
        """The judgement, with the code if there is more to say than healthy."""
        is_said = self.judgement is Judgement.HEALTHY or not self.code
        return self.judgement.value if is_said else f"{self.judgement.value} ({self.code})"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work on several nodes at once."""

    id: str
    nodes: tuple[str, ...]
    start: float
    end: float | None = None  # None: it still runs
    planned_s: float | None = None  # None: unknown

    def __post_init__(self) -> None:
        _check_stretch(f'job "{self.id}"', self.start, self.end)

    def is_running(self, at: float) -> bool:
        """Return whether it runs: until its reported end, or until a day after its planned end, so
        that a job without a reported end does not keep its nodes from tests for ever. Such a job
        has begun even if its start lies ahead: a clock was wrong."""
        planned_s = LONGEST_JOB_S if self.planned_s is None else self.planned_s
        if self.end is None:
            return at < self.start + planned_s + OVERDUE_S
        return self.start <= at < self.end


def jobs_on_nodes(jobs: Iterable[Job], at: float) -> dict[str, list[Job]]:
    """Running jobs of each node, the earliest first."""
    running = sorted((job for job in jobs if job.is_running(at)), key=attrgetter("start", "id"))
    on_node = defaultdict[str, list[Job]](list)
    for job in running:
        for node in job.nodes:
            on_node[node].append(job)
    return dict(on_node)


def _check_times(whose: str, start: float, end: float | None) -> None:
    if not math.isfinite(start) or not (end is None or math.isfinite(end)):
        raise ValueError(f"{whose} begins at {start} and ends at {end}, expected finite times")


def _check_stretch(whose: str, start: float, end: float | None) -> None:
    _check_times(whose, start, end)
    if end is not None and end < start:
        raise ValueError(f"{whose} ends before it starts")


def defects_as_incidents(
    validations: Iterable[Validation],
    repairs: Iterable[Repair] = (),
    reported: Iterable[Incident] = (),
) -> list[Incident]:
    """Defects that validations found, as incidents named after the benchmark that found them, and
    reported incidents, which have no reported end.

    The node is out of service until a later validation calls it healthy or a repair ends.
    """
    ends = [(repair.node, repair.end) for repair in repairs if repair.end is not None]
    news = [(node, end, "") for node, end in ends]
    news += [(incident.node, incident.start, incident.category) for incident in reported]
    for validation in validations:
        if validation.judgement is Judgement.DEFECTIVE:
            news.append((validation.node, validation.at, validation.code.partition(".")[0].lower()))
        elif validation.judgement is Judgement.HEALTHY:
            news.append((validation.node, validation.at, ""))
    ever_out = {node for node, _, category in news if category}  # few: most nodes have no event
    news = sorted((entry for entry in news if entry[0] in ever_out), key=itemgetter(1))
    incidents, out = [], dict[str, tuple[float, str]]()
    for node, at, category in news:
        if category:
            out.setdefault(node, (at, category))
        elif node in out:
            start, cause = out.pop(node)
            incidents.append(Incident(node=node, category=cause, start=start, end=at))
    still = (Incident(node=node, category=c, start=start) for node, (start, c) in out.items())
    return [*incidents, *still]


# --- what follows for a risk model ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Instants:
    """Nodes and instants to look at, row by row."""

    nodes: tuple[str, ...]
    at: Times

    def __post_init__(self) -> None:
        if self.at.shape != (len(self.nodes),):
            raise ValueError(f"{self.at.shape} instants for {len(self.nodes)} nodes")

    def __len__(self) -> int:
        return len(self.nodes)

    def __add__(self, more: Instants) -> Instants:
        return Instants(nodes=self.nodes + more.nodes, at=np.concatenate([self.at, more.at]))

    @classmethod
    def now(cls, nodes: Sequence[str], at: float) -> Instants:
        return cls(nodes=tuple(nodes), at=np.full(len(nodes), at))


@dataclass(frozen=True, kw_only=True)
class Statuses:
    """Statuses: a row for each node and instant, a column for each covariate; all finite."""

    covariates: tuple[str, ...]
    nodes: tuple[str, ...]  # of the rows; a node may have several
    at: Times
    values: Floats

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.nodes), len(self.covariates)):
            raise ValueError(f"{self.values.shape} values for {len(self.nodes)} statuses")

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, kw_only=True)
class Uptimes:
    """Time that each node went well after a status: the training data of a risk model."""

    statuses: Statuses
    duration_h: Times  # until the next incident, or until the watch ended
    observed: Flags  # whether an incident ended it

    def __len__(self) -> int:
        return len(self.duration_h)
