"""The page of a diagnosis: the ten lines, and the evidence behind them. It needs no script."""

from __future__ import annotations

from anubis.report.diagnosis import DiagnosisView, clock, headline, named, ten_lines
from anubis.report.diagnosis_pictures import time_line, waiting_grid
from anubis.report.page import page

FACTS = 200  # that the page lists


def render(view: DiagnosisView) -> str:
    diagnosis = view.diagnosis
    return page(
        "diagnosis",
        title=headline(view),
        answer=diagnosis.answer.value,
        job=diagnosis.job,
        lines=[(label, sentence) for label, sentence in ten_lines(view) if label != "not seen"],
        time_line=time_line(view.evidence, diagnosis.culprits),
        waiting=waiting_grid(view.evidence, diagnosis.culprits),
        facts=[
            [
                fact.kind.value,
                named(fact.whom),
                fact.evidence,
                f"{fact.confidence:.0%}",
                clock(fact.at) if fact.at is not None else "-",
            ]
            for fact in diagnosis.facts[:FACTS]
        ],
        more_facts=max(0, len(diagnosis.facts) - FACTS),
        stacks=[(stack.rank, stack.frames[-12:]) for stack in view.evidence.stacks[:8]],
        gaps=sorted(set(diagnosis.gaps.values())),
        unmet=[f"{name}: lacks {', '.join(lacked)}" for name, lacked in diagnosis.unmet.items()],
    )
