"""`anubis sweep`: which idle nodes are worth a test, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

import anubis
from anubis.cli import amounts, answer, gate, options
from anubis.cli.terminal import Answerer, turn_termination_into_interrupt
from anubis.cli.verb import Without, verb
from anubis.operations.requests import Terms

if TYPE_CHECKING:
    from anubis.report.sweep import SweepResult


@verb
def sweep(
    *,
    nodes: options.Nodes = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget", metavar="AMOUNT", help="Node-hours in total (8nh), or time per node (30m)."
        ),
    ] = "1nh",
    terms: Annotated[Terms, Without(("job", "budget", "together", "partners"))],
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    """Test the idle nodes that are most at risk, within a budget."""
    terms = replace(terms, budget=amounts.budget(budget))
    turn_termination_into_interrupt()
    answerer = SweepAnswerer(as_json=json, why=why)
    with answerer.leaving():
        anubis.sweep(amounts.nodes(nodes), terms, answerer)


class SweepAnswerer(Answerer):
    def __init__(self, *, as_json: bool, why: bool) -> None:
        super().__init__(as_json=as_json)
        self._why = why

    def swept(self, result: SweepResult) -> None:
        self._show(result)
        self.set_exit_code(answer.EXIT_CODES[result.judgement])

    def _show(self, result: SweepResult) -> None:
        from anubis.cli import campaign_answer

        if result.campaign:
            campaign_answer.campaign(result.campaign.view, as_json=self.as_json)
        if self.as_json:
            return
        if result.campaign is None:
            gate.show_decision(result.decision, as_json=False, why=self._why)
        elif self._why:
            gate.show_reasons(result.decision)
        if result.owing:
            gate.show_owing(result.owing)
