"""What follows a fault under a running job: how long it goes on, and how its node is found.

Each rate is declared here once, with its source and its reason: measured on a page of docs/results,
published by others, or assumed. Nothing here knows of a clock or an order of events.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anubis.core.amounts import HOUR_S

FaultCourse = Literal["stops", "hangs", "slow"]  # what becomes of the job
Origin = Literal["measured", "published", "assumed"]


@dataclass(frozen=True, kw_only=True)
class Rate:
    value: float
    tried: tuple[float, ...]  # other values, to see what depends on it
    about: str
    origin: Origin
    source: str  # a page under docs/results, or a publication; empty if it is assumed
    says: str = ""  # the words of that page
    reason: str


RATES: Mapping[str, Rate] = {
    "timeout_h": Rate(
        value=1 / 6,
        tried=(0.05, 0.5),
        about="hours until a job that hangs is ended by its own time-out",
        origin="published",
        source="loop.md",
        says="10 for NCCL",
        reason="the default of PyTorch for NCCL; with gloo it is half an hour",
    ),
    "notices_h": Rate(
        value=8.0,
        tried=(1.0, 48.0),
        about="mean hours until a person notices that a job is slow",
        origin="assumed",
        source="",
        reason="a shift; nothing in a slow job calls a person",
    ),
    "search_h": Rate(
        value=0.5,
        tried=(0.1, 2.0, 8.0),
        about="mean hours in which a person finds the node, while the job waits",
        origin="published",
        source="Minder, NSDI '25",
        reason="half an hour and more on average, days at worst: the least is taken",
    ),
    "restart_h": Rate(
        value=0.1,
        tried=(0.5,),
        about="hours from a job's new start to its first step",
        origin="assumed",
        source="",
        reason="loading a checkpoint and joining takes minutes; the same for every policy",
    ),
    "watch_names": Rate(
        value=0.913,
        tried=(0.0, 0.5),
        about="share of the faults under a job whose node the watch names",
        origin="measured",
        source="watch.md",
        says="| Anubis, as shipped | 1.000 | 0.913 |",
        reason="300 made jobs of 4 to 1,536 nodes; what it names wrongly counts as not named",
    ),
    "watch_h": Rate(
        value=6.3 / 60,
        tried=(0.5,),
        about="hours until the watch names it",
        origin="measured",
        source="watch.md",
        says="named 6.3 minutes after it begins (median)",
        reason="the same jobs",
    ),
    "watch_alarms": Rate(
        value=0.93e-3,
        tried=(1e-1,),
        about="sound nodes that the watch suspects, in an hour of a job",
        origin="measured",
        source="watch.md",
        says="| 3,218 | 71,831 | 0 | 0.93 |",
        reason="no alarm in 3,218 hours of jobs: the limit of 95 % is taken, not 0",
    ),
    "stall_h": Rate(
        value=39 / HOUR_S,
        tried=(0.17,),
        about="hours until a diagnosis is asked about a job that hangs",
        origin="measured",
        source="loop-runs.md",
        says="| 24 November 2026 | 754 s | 57 s, 150 s | 39 s |",
        reason="one job; all of it real but the GPUs",
    ),
    "diagnosis_names": Rate(
        value=99 / 102,
        tried=(0.0,),
        about="share of the faults whose node, or program, a diagnosis names",
        origin="measured",
        source="diagnose-live.md",
        says="99 of 102 named rightly",
        reason="51 kinds of real jobs of four ranks; more ranks were not tried",
    ),
    "diagnosis_h": Rate(
        value=97.4 / HOUR_S,
        tried=(0.25,),
        about="hours that a diagnosis takes",
        origin="measured",
        source="diagnose-live.md",
        says="the longest took 97.4 s:",
        reason="the longest of 102; the median of most kinds is below 30 s",
    ),
    "locate_names": Rate(
        value=11 / 12,
        tried=(0.0,),
        about="share of the faults whose node a search by groups names",
        origin="measured",
        source="locate.md",
        says="| one node, at times | slow | 8 to 33 | - | 0 to 106 | 13 to 51 | 67 to 879 |",
        reason="11 of 12 that come and go, all that stay",
    ),
    "locate_h": Rate(
        value=112 / 1024,
        tried=(1.0,),
        about="hours that a search by groups takes of each node of the job",
        origin="measured",
        source="locate.md",
        says="| one node | hangs | 8 | 9 | 0 | 24 | 112 |",
        reason="112 node-hours of 1,024 nodes",
    ),
    "test_alarms": Rate(
        value=0.0011,
        tried=(0.007, 0.03),
        about="share of the sound nodes that a test calls defective",
        origin="measured",
        source="power.md",
        reason="the mean of the rows as it was on 24 November; it is 0.04 % by now",
    ),
}


def rate(name: str) -> float:
    """Field of `Response` with the value that is declared above."""
    made: float = field(default=RATES[name].value)
    return made


@dataclass(frozen=True, kw_only=True)
class Response:
    """How faults under jobs become known. The defaults were measured, published or assumed:
    docs/results/savings.md names the source of each."""

    timeout_h: float = rate("timeout_h")
    """Hours until a job that hangs is ended by its own time-out."""
    notices_h: float = rate("notices_h")
    """Mean hours until a person notices that a job is slow."""
    search_h: float = rate("search_h")
    """Mean hours in which a person finds the node, while the job waits."""
    restart_h: float = rate("restart_h")
    """Hours from a job's new start to its first step."""
    watch_names: float = rate("watch_names")
    """Share of the faults whose node the watch names."""
    watch_h: float = rate("watch_h")
    """Hours until the watch names it."""
    watch_alarms: float = rate("watch_alarms")
    """Sound nodes that the watch suspects, in an hour of a job. Each is tested when that ends."""
    stall_h: float = rate("stall_h")
    """Hours until a diagnosis is asked about a job that hangs."""
    diagnosis_names: float = rate("diagnosis_names")
    """Share of the faults whose node, or program, a diagnosis names."""
    diagnosis_h: float = rate("diagnosis_h")
    """Hours that a diagnosis takes."""
    locate_names: float = rate("locate_names")
    """Share of the faults whose node a search by groups names."""
    locate_h: float = rate("locate_h")
    """Hours that a search by groups takes of each node of the job."""
    test_alarms: float = rate("test_alarms")
    """Share of the sound nodes that a test calls defective."""
    program_mtbi_h: float | None = None
    """Node-hours of work between two jobs that hang by their own program. Without it, none does."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f'"{name}" is {value:g}, expected 0 or more')
            if name.endswith(("names", "test_alarms")) and value > 1:
                raise ValueError(f'"{name}" is {value:g}, expected a share from 0 to 1')
        if self.test_alarms == 1:
            raise ValueError('"test_alarms" is 1, by which no node would ever pass')
        if self.program_mtbi_h == 0:
            raise ValueError('"program_mtbi_h" is 0, expected hours above 0')


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a policy has beside its tests before jobs."""

    watches: bool = False
    diagnoses: bool = False
    locates: bool = False
    proves: bool = False  # a repaired node passes all benchmarks before a job can get it


@dataclass(frozen=True)
class Luck:
    """What chance decides about one fault; all uniform."""

    watch: float
    diagnosis: float
    locate: float
    notice: float
    search: float


@dataclass(frozen=True, kw_only=True)
class FaultAnswer:
    """What comes of one fault."""

    until_h: float  # how long it goes on before anybody acts
    is_named: bool  # else the nodes are tested, and then searched
    search_h: float  # of that search, if tests find nothing


@dataclass(frozen=True, kw_only=True)
class FaultCare:
    """How a cluster meets faults under its jobs."""

    rates: Response
    means: Means = Means()
    courses: Sequence[tuple[FaultCourse, float]]  # of each category, with the pace of a slow job
    seed: int = 0


def respond(
    course: FaultCourse, rates: Response, means: Means, luck: Luck, *, by_program: bool = False
) -> FaultAnswer:
    """Answer one fault. `by_program`: no node is at fault, and only a diagnosis can say so."""
    unaided_h = _unaided_h(course, rates, luck)
    named_h = [*_named_after_h(course, unaided_h, rates, means, luck, by_program)]
    if named_h:
        return FaultAnswer(until_h=min(named_h), is_named=True, search_h=0.0)
    is_asked = means.diagnoses and course == "hangs"
    known_h = min(unaided_h, rates.stall_h + rates.diagnosis_h) if is_asked else unaided_h
    return FaultAnswer(until_h=known_h, is_named=False, search_h=_search_h(rates, means, luck))


def _unaided_h(course: FaultCourse, rates: Response, luck: Luck) -> float:
    """Hours until the fault is known without any help."""
    by_course = {
        "stops": 0.0,
        "hangs": rates.timeout_h,
        "slow": rates.notices_h * -math.log1p(-luck.notice),
    }
    return by_course[course]


def _named_after_h(
    course: FaultCourse,
    unaided_h: float,
    rates: Response,
    means: Means,
    luck: Luck,
    by_program: bool,
) -> Iterator[float]:
    """Hours after which each means names the fault; none if it does not."""
    if means.watches and not by_program and luck.watch < rates.watch_names:
        yield rates.watch_h
    if means.diagnoses and luck.diagnosis < rates.diagnosis_names:
        asked_h = min(rates.stall_h, unaided_h) if course == "hangs" else unaided_h
        yield asked_h + rates.diagnosis_h


def _search_h(rates: Response, means: Means, luck: Luck) -> float:
    by_person_h = rates.search_h * -math.log1p(-luck.search)
    if not means.locates:
        return by_person_h
    return rates.locate_h + (0.0 if luck.locate < rates.locate_names else by_person_h)
