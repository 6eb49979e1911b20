"""The page of a diagnosis: the ten lines and the evidence behind them. It needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from anubis.report.diagnose import DiagnosisView, clock, headline, subject_name, ten_lines
from anubis.report.diagnosis_pictures import time_line, waiting_grid
from anubis.report.page import page

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
    stacks: Sequence[tuple[int, Sequence[str]]]
    gaps: Sequence[str]
    unmet: Sequence[str]


def render(view: DiagnosisView) -> str:
    return shown_again(facts_of(view))


def shown_again(facts: Mapping[str, Any], tested: str = "", rooms: str = "") -> str:
    """Render a page from its kept facts; what an earlier release did not keep is left out.
    `tested`: results of tests of its suspects; `rooms`: links to the other pages."""
    nothing = dict.fromkeys(PageFacts.__annotations__, "")
    lines = [*facts["lines"], *([("was it right", tested)] if tested else [])]
    return page("diagnosis", **{**nothing, **facts, "lines": lines, "rooms": rooms})


def facts_of(view: DiagnosisView) -> PageFacts:
    diagnosis = view.diagnosis
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
        "stacks": [(stack.rank, stack.frames[-12:]) for stack in view.evidence.stacks[:8]],
        "gaps": sorted(set(diagnosis.gaps.values())),
        "unmet": [f"{name}: lacks {', '.join(lacked)}" for name, lacked in diagnosis.unmet.items()],
    }
