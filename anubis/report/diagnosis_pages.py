"""Diagnoses of jobs: the page of one, with its ten lines and the evidence behind them; and past
ones, with the results of tests of their suspects, as sentences, as JSON Lines and as a page. No
page needs a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict
from urllib.parse import quote

from anubis.core.diagnose.cures import WORDS, CureLevel, PastDiagnosis
from anubis.core.diagnose.evidence import Advance, Call, Gravity, JobEvidence
from anubis.core.diagnose.facts import Whom
from anubis.core.keep.commands import Outcome
from anubis.core.keep.suspicions import HitRate
from anubis.report import watch_rounds
from anubis.report.diagnose import DiagnosisView, clock, headline, subject_name, ten_lines
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.rank_groups import rank_groups
from anubis.report.service_pages import path_of
from anubis.report.svg import Element, add, cut, picture, serialize, title
from anubis.text.wording import quantity, short_node_list

FACTS = 200  # that the page lists


class PageFacts(TypedDict):
    """The content of a page: plain texts, fit to be kept as JSON."""

    title: str
    answer: str
    job: str
    lines: Sequence[tuple[str, str]]
    time_line: str
    waiting: str
    facts: Sequence[Sequence[str]]
    more_facts: int
    doing: Sequence[Mapping[str, Any]]
    more_doing: int
    gaps: Sequence[str]
    unmet: Sequence[str]


def diagnosis_page(view: DiagnosisView) -> str:
    return shown_again(facts_of(view))


def shown_again(facts: Mapping[str, Any], tested: str = "", rooms: str = "") -> str:
    """Render a page from its kept facts; what an earlier release did not keep is left out.
    `tested`: results of tests of its suspects; `rooms`: links to the other pages."""
    nothing = dict.fromkeys(PageFacts.__annotations__, "")
    lines = [*facts["lines"], *([("was it right", tested)] if tested else [])]
    return page("diagnosis", **{**nothing, **facts, "lines": lines, "rooms": rooms})


def facts_of(view: DiagnosisView) -> PageFacts:
    diagnosis = view.diagnosis
    doing, more_doing = rank_groups(view.evidence)
    return {
        "title": headline(view),
        "answer": diagnosis.answer.value,
        "job": diagnosis.job,
        "lines": [(label, sentence) for label, sentence in ten_lines(view) if label != "not seen"],
        "time_line": time_line(view.evidence, diagnosis.culprits),
        "waiting": waiting_grid(view.evidence, diagnosis.culprits),
        "facts": [
            [
                fact.kind.value,
                subject_name(fact.whom),
                fact.evidence,
                f"{fact.confidence:.0%}",
                clock(fact.at) if fact.at is not None else "-",
            ]
            for fact in diagnosis.facts[:FACTS]
        ],
        "more_facts": max(0, len(diagnosis.facts) - FACTS),
        "doing": [asdict(group) for group in doing],
        "more_doing": more_doing,
        "gaps": sorted(set(diagnosis.gaps.values())),
        "unmet": [f"{name}: lacks {', '.join(lacked)}" for name, lacked in diagnosis.unmet.items()],
    }


# --- its pictures ----------------------------------------------------------------------------

ROWS = 40  # of ranks or nodes; the culprits first
NUMBER = 4  # columns that the number of a rank takes
COLUMNS = 128  # ranks of a grid
GROUPS = 24  # communicators of a grid
# pixels; names of 34 letters fit at the left
LEFT, RIGHT, TOP, ROW, CELL = 270.0, 20.0, 6.0, 20.0, 9.0
LETTERS = 34  # of a name beside a row
WIDE = 940.0  # pixels: the text column of a page
SPAN_S = 600.0  # before the end of what is known


@dataclass(frozen=True, kw_only=True)
class _Mark:
    at: float
    kind: str  # a class of the style sheet
    text: str


# --- a line of time for each rank ----------------------------------------------------------


def time_line(evidence: JobEvidence, culprits: Sequence[Whom]) -> str:
    """Draw what ranks did over time; empty if nothing has a time."""
    rows = _rows(evidence, culprits)
    if not rows:
        return ""
    end = max(mark.at for marks in rows.values() for mark in marks)
    begin = max(end - SPAN_S, min(mark.at for marks in rows.values() for mark in marks))
    width_s = max(1.0, end - begin)
    canvas = picture(
        WIDE, TOP + ROW * len(rows) + 24, "time-line", "what ranks reported, over time"
    )
    for place, (name, marks) in enumerate(rows.items()):
        y = TOP + ROW * place + ROW / 2
        add(canvas, "text", class_="row", x=LEFT - 10, y=y + 4, text_anchor="end").text = cut(
            name, LETTERS
        )
        add(canvas, "line", class_="rule", x1=LEFT, x2=WIDE - RIGHT, y1=y, y2=y)
        for mark in marks:
            if mark.at >= begin:
                x = LEFT + (WIDE - LEFT - RIGHT) * (mark.at - begin) / width_s
                title(add(canvas, "circle", class_=mark.kind, cx=x, cy=y, r=5), mark.text)
    _ends(canvas, width_s, TOP + ROW * len(rows) + 16)
    return serialize(canvas)


def _ends(canvas: Element, width_s: float, y: float) -> None:
    for x, anchor, text in (
        (LEFT, "start", f"{width_s:.0f} s before"),
        (WIDE - RIGHT, "end", "the last that is known"),
    ):
        add(canvas, "text", class_="row", x=x, y=y, text_anchor=anchor).text = text


def _rows(evidence: JobEvidence, culprits: Sequence[Whom]) -> Mapping[str, list[_Mark]]:
    marks: dict[str, list[_Mark]] = {}
    for event in evidence.log:
        if event.at is not None:
            name = _name(event.rank, event.node)
            marks.setdefault(name, []).append(
                _Mark(at=event.at, kind=event.gravity.value, text=event.text)
            )
    for call in _last_calls(evidence):
        if call.launched is not None:
            text = f"launched {call.operation} {call.sequence} of {call.communicator}"
            marks.setdefault(_name(call.rank, ""), []).append(
                _Mark(at=call.launched, kind="launch", text=text)
            )
    for end in evidence.exits:
        if end.at is not None:
            how = f"signal {end.signal}" if end.signal else f"code {end.code}"
            marks.setdefault(_name(end.rank, ""), []).append(
                _Mark(at=end.at, kind=Gravity.CRITICAL.value, text=f"ended with {how}")
            )
    named = {_name(whom.rank, whom.node) for whom in culprits}
    order = sorted(marks, key=lambda name: (name not in named, _natural(name)))
    return {name: sorted(marks[name], key=lambda mark: mark.at) for name in order[:ROWS]}


def _last_calls(evidence: JobEvidence) -> Iterable[Call]:
    """Yield the last calls of each rank; earlier ones do not explain why it stopped."""
    by_rank: dict[int, list[Call]] = {}
    for call in evidence.calls:
        by_rank.setdefault(call.rank, []).append(call)
    for calls in by_rank.values():
        yield from sorted(calls, key=lambda call: call.launched or 0.0)[-20:]


def _name(rank: int | None, node: str) -> str:
    return node if rank is None else f"rank {rank}"


def _natural(name: str) -> tuple[str, int]:
    digits = "".join(letter for letter in name if letter.isdigit())
    return name.rstrip("0123456789"), int(digits[:12] or 0)


# --- which ranks wait for which -------------------------------------------------------------------


def waiting_grid(evidence: JobEvidence, culprits: Sequence[Whom]) -> str:
    """Draw a row for each communicator in which a rank waits, and a column for each of its
    ranks."""
    groups = _groups(evidence.advances)[:GROUPS]
    named = {whom.rank for whom in culprits if whom.rank is not None}
    ranks = _columns(groups, named)
    if not groups or not ranks:
        return ""
    width = LEFT + CELL * len(ranks) + RIGHT
    canvas = picture(width, TOP + ROW * len(groups) + 24, "waiting", "which ranks wait for which")
    for row, advances in enumerate(groups):
        y = TOP + ROW * row
        label = cut(advances[0].communicator, LETTERS)
        add(canvas, "text", class_="row", x=LEFT - 10, y=y + 14, text_anchor="end").text = label
        furthest = max(advance.enqueued for advance in advances)
        for advance in advances:
            if advance.rank not in ranks:
                continue
            cell = add(
                canvas,
                "rect",
                class_=_state(advance, furthest),
                x=LEFT + CELL * ranks.index(advance.rank),
                y=y + 2,
                width=CELL - 1,
                height=ROW - 4,
            )
            title(cell, f"rank {advance.rank}: {_words(advance, furthest)}")
    y = TOP + ROW * len(groups) + 16
    add(canvas, "text", class_="row", x=LEFT - 10, y=y, text_anchor="end").text = "rank"
    for place in _numbered(ranks, named):
        x = LEFT + CELL * place
        add(canvas, "text", class_="row", x=x, y=y).text = str(ranks[place])
    return serialize(canvas)


def _numbered(ranks: Sequence[int], named: set[int]) -> Iterator[int]:
    """Yield the columns whose rank stands below: eight, and those that are named, if there is room
    for their numbers."""
    step = max(1, len(ranks) // 8)
    width, free = min(NUMBER, step), 0
    for place, rank in enumerate(ranks):
        has_room = not named & {*ranks[place + 1 : place + width]}
        if place >= free and (rank in named or (place % step == 0 and has_room)):
            yield place
            free = place + width


def _groups(advances: Iterable[Advance]) -> list[list[Advance]]:
    """Return communicators in which a rank waits; those that miss a rank come first."""
    by_communicator: dict[str, list[Advance]] = {}
    for advance in advances:
        by_communicator.setdefault(advance.communicator, []).append(advance)
    stuck = [group for group in by_communicator.values() if any(map(_waits, group))]
    return sorted(stuck, key=lambda group: (not _lacks_somebody(group), -sum(map(_waits, group))))


def _lacks_somebody(group: Sequence[Advance]) -> bool:
    return len({advance.enqueued for advance in group}) > 1


def _waits(advance: Advance) -> bool:
    return advance.completed < advance.enqueued


def _columns(groups: Sequence[Sequence[Advance]], culprits: set[int]) -> list[int]:
    ranks = sorted({advance.rank for group in groups for advance in group})
    if len(ranks) <= COLUMNS:
        return ranks
    spared = [rank for rank in ranks if rank not in culprits][: COLUMNS - len(culprits)]
    return sorted({*culprits, *spared})


def _state(advance: Advance, furthest: int) -> str:
    if advance.enqueued < furthest:
        return "absent"
    return "waits" if _waits(advance) else "done"


def _words(advance: Advance, furthest: int) -> str:
    did = f"launched {advance.enqueued}, finished {advance.completed}"
    return f"{did}, others launched {furthest}" if advance.enqueued < furthest else did


OPEN = "open"  # no test has decided yet
CLAIMS: Mapping[str, str] = {
    Outcome.CONFIRMED: "a test confirmed it on",
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


def diagnoses_page(clusters: Sequence[DiagnosedCluster], as_of: float, simulated: str = "") -> str:
    listed = [cluster for cluster in clusters if cluster.jobs or cluster.others]
    outcomes = [
        outcome for cluster in listed for job in cluster.jobs for outcome in job.outcomes.values()
    ]
    return page(
        "service_diagnoses",
        here="/diagnoses",
        as_of=as_of,
        simulated=simulated,
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
