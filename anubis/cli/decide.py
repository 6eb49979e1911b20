"""`anubis gate` and `sweep`: which tests are worth their time, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.page_files import check_page
from anubis.cli.terminal import Answerer, Terminal, turn_termination_into_interrupt
from anubis.cli.verb import Without, verb
from anubis.core.errors import UsageError, did_you_mean
from anubis.operations.requests import GateRequest, Terms

if TYPE_CHECKING:
    from anubis.core.history.events import FleetEvent
    from anubis.report.sweep import SweepResult

JOB = "job-allocated"
EVENTS = ("node-added", "fleet-upgraded", JOB, "incident-reported", "tick")
CRITERIA: tuple[Literal["learned", "refused"], ...] = ("learned", "refused")


@verb
def gate(
    request: GateRequest,
    terms: Terms,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Only decide which tests are worth their time, and run nothing."
        ),
    ] = False,
    event: Annotated[
        str,
        typer.Option(
            "--event",
            metavar="EVENT",
            help=f"With --plan, what happened: {', '.join(EVENTS)}. That nodes were added or "
            "upgraded, or had an incident, is kept: until they pass a test, a defect is presumed "
            "on them.",
        ),
    ] = JOB,
    category: Annotated[
        str | None,
        typer.Option("--category", metavar="WORD", help="The category of the reported incident."),
    ] = None,
    upgrade: Annotated[
        str,
        typer.Option(
            "--upgrade",
            metavar="learned|refused",
            help="Whether the criteria could be learned again after the upgrade.",
        ),
    ] = "learned",
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    """Say whether nodes are good for a job: by history, or by the tests worth their time."""
    if plan:
        if junit or nagios:
            raise UsageError("--plan runs no test: leave --junit and --nagios out")
        from anubis.cli import decision

        happened = _event(event, request.nodes, request.duration_s, category, upgrade)
        decision.show(anubis.select(happened, terms, Terminal()), as_json=json, why=why)
        return
    from anubis.cli import gate_answer

    if event != JOB:
        raise UsageError("a gate is for a job: --event goes with --plan")
    if not request.duration_s:
        raise UsageError("a gate needs the job's --duration, such as 24h")
    if json and nagios:
        raise UsageError("--json and --nagios exclude each other: give one of them")
    check_page(junit, "--junit")
    turn_termination_into_interrupt()
    answerer = gate_answer.GateAnswerer(as_json=json, nagios=nagios, junit=junit, why=why)
    with answerer.leaving():
        anubis.gate(request, terms, answerer)


def _event(
    kind: str, named: Sequence[str], duration_s: float, category: str | None, upgrade: str
) -> FleetEvent:
    from anubis.core.history import events

    nodes = tuple(named)
    match kind:
        case "node-added":
            return events.NodeAdded(nodes=nodes)
        case "fleet-upgraded":
            became = amounts.choose_word("--upgrade", upgrade, CRITERIA)
            return events.FleetUpgraded(nodes=nodes, criteria=became)
        case "job-allocated":
            if not duration_s:
                raise UsageError("a job-allocated needs the job's --duration, such as 24h")
            return events.JobAllocated(nodes=nodes, duration_s=duration_s)
        case "incident-reported":
            if not category:
                raise UsageError("an incident-reported needs the incident's --category")
            return events.IncidentReported(nodes=nodes, category=category)
        case "tick":
            return events.Tick(nodes=nodes)
    raise UsageError(f'--event "{kind}" is not known; {did_you_mean(kind, EVENTS)}')


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
        from anubis.cli import decision, showing

        if result.campaign:
            showing.campaign(result.campaign.view, as_json=self.as_json)
        if self.as_json:
            return
        if result.campaign is None:
            decision.show(result.decision, as_json=False, why=self._why)
        elif self._why:
            decision.show_reasons(result.decision)
        if result.owing:
            decision.show_owing(result.owing)
