"""`anubis criteria learn`: criteria from what campaigns measured, into files to commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anubis
from anubis.cli import options
from anubis.cli.remarks import say
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import LearnRequest

if TYPE_CHECKING:
    from anubis.core.records import CriteriaSet

METRICS_NAMED = 3  # metrics that are named beside a reason


@verb
def learn(request: LearnRequest, out: options.Out = Path("criteria")) -> None:
    """Learn criteria from past measurements, of one campaign or of several."""
    from anubis.config import criteria_files
    from anubis.text.wording import names

    learned = anubis.learn(request, Terminal())
    for criteria, path in zip(learned, criteria_files.write_learned(learned, out), strict=True):
        refused = sum(bool(criterion.refusal) for criterion in criteria.criteria)
        say(f"{path}: {len(criteria.criteria)} criteria, {refused} of them refused")
        for sentence, metrics in _refusals(criteria).items():
            say(f"  {names(metrics, METRICS_NAMED)}: {sentence}")


def _refusals(criteria: CriteriaSet) -> dict[str, list[str]]:
    """Metrics by their refusal: if a fleet is too small, all have one reason."""
    refusals: dict[str, list[str]] = {}
    for criterion in criteria.criteria:
        if criterion.refusal:
            metric = f"{criterion.key.workload} {criterion.key.metric}"
            refusals.setdefault(criterion.refusal, []).append(metric)
    return refusals
