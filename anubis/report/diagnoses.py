"""Past diagnoses of jobs, with the results of tests of their suspects: as sentences, as JSON Lines
and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from anubis.core.diagnose.cures import WORDS, CureLevel, PastDiagnosis
from anubis.core.keep.commands import Outcome
from anubis.core.keep.suspicions import HitRate
from anubis.report import watch_rounds
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.service_pages import path_of
from anubis.text.wording import quantity, short_node_list

OPEN = "open"  # no test has told yet
CLAIMS: Mapping[str, str] = {
    Outcome.CONFIRMED: "a test confirmed it of",
    Outcome.REFUTED: "a test cleared",
    Outcome.GIVEN_UP: "no test could judge",
    OPEN: "not tested yet:",
}


@dataclass(frozen=True, kw_only=True)
class DiagnosedJob:
    cluster: str
    past: PastDiagnosis
    outcomes: Mapping[str, str] = field(default_factory=dict)  # of its suspects: confirmed …
    is_kept: bool = False  # all that spoke for it

    @property
    def href(self) -> str:
        places = (self.cluster, f"{self.past.at:.3f}", self.past.job)
        return "/diagnoses/" + "/".join(quote(place, safe="") for place in places)

    @property
    def tested(self) -> str:
        """Results of the tests of its suspects; empty if it has none."""
        parts = []
        for outcome, words in CLAIMS.items():
            if nodes := [node for node, of_node in self.outcomes.items() if of_node == outcome]:
                parts.append(f"{words} {short_node_list(nodes)}")
        return "; ".join(parts)

    @property
    def says_something(self) -> bool:
        return self.is_kept or bool(self.past.code)

    @property
    def state(self) -> str:
        """Name of the judgement whose colour the page uses for this job."""
        if self.past.nodes or self.past.code:
            return "defective"
        return "unknown"

    @property
    def cure(self) -> str:
        return WORDS[CureLevel(self.past.level)]


@dataclass(frozen=True, kw_only=True)
class DiagnosedCluster:
    cluster: str
    jobs: Sequence[DiagnosedJob]  # that something is to be said of, the newest first
    others: int  # in which nothing was seen
    rates: Mapping[str, HitRate]  # of its suspicions, by category

    @property
    def sentences_on_rates(self) -> list[str]:
        return list(watch_rounds.sentences_on_rates(self.rates, "diagnosis"))


def diagnoses_page(clusters: Sequence[DiagnosedCluster], as_of: float) -> str:
    listed = [cluster for cluster in clusters if cluster.jobs or cluster.others]
    outcomes = [
        outcome for cluster in listed for job in cluster.jobs for outcome in job.outcomes.values()
    ]
    return page(
        "service_diagnoses",
        here="/diagnoses",
        as_of=as_of,
        clusters=listed,
        diagnosed=sum(len(cluster.jobs) for cluster in listed),
        right=outcomes.count(Outcome.CONFIRMED),
        wrong=outcomes.count(Outcome.REFUTED),
        path_of=path_of,
    )


def sentence(named: Sequence[PastDiagnosis]) -> str:
    """Return the number of jobs that have a suspect, and the last headline."""
    return (
        f"diagnosis: {quantity(len(named), 'job')} with a suspect, the last: {named[-1].headline}"
    )


def sentences(diagnosed: Iterable[DiagnosedJob]) -> Iterator[str]:
    """Yield a sentence for each job that has something to say."""
    for job in diagnosed:
        if job.says_something:
            tested = f"; {job.tested}" if job.tested else ""
            yield f"diagnosis: {job.past.headline} ({job.cure}){tested}"


@dataclass(frozen=True, kw_only=True)
class DiagnosedLine:
    cluster: str
    job: str
    at: float
    """When the job ended, or when it stalled."""
    headline: str
    code: str
    """The code of the cause; empty: nothing is wrong, or the cause is unknown."""
    level: int | None
    """The level of the cure: 0 leave, 1 retry, 2 restart, 3 replace, 4 fail. Null: unknown, as the
    state of the job is."""
    nodes: Sequence[str]
    """Nodes that are suspected."""
    outcomes: Mapping[str, str]
    """What tests of these came to: confirmed, refuted, given-up; open where none has told yet."""


def diagnosed_line(job: DiagnosedJob) -> str:
    past = job.past
    fields = DiagnosedLine(
        cluster=job.cluster,
        job=past.job,
        at=past.at,
        headline=past.headline,
        code=past.code,
        level=None if past.level == CureLevel.NONE else past.level,
        nodes=past.nodes,
        outcomes=job.outcomes,
    )
    return json_line("diagnosed", fields)
