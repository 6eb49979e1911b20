"""`anubis gate`: are nodes good for a job? The answer as a sentence, as JSON, as JUnit and for
monitoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli import nagios as monitoring
from anubis.cli.answer import check_page, write_junit
from anubis.cli.terminal import Answerer, Terminal, turn_termination_into_interrupt
from anubis.cli.verb import verb
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.records import Judgement
from anubis.operations.requests import GateRequest, Terms
from anubis.text.wording import short_node_list

if TYPE_CHECKING:
    from anubis.core.history.events import FleetEvent
    from anubis.core.select.decision import Decision
    from anubis.report.gate import GateResult
    from anubis.report.junit import JUnitSuite
    from anubis.report.view import CampaignView

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
            help=f"With --plan, what happened: {', '.join(EVENTS)}. It is kept that nodes "
            "were added or upgraded or had an incident. They are presumed defective until they "
            "pass a test.",
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
        happened = _event(event, request.nodes, request.duration_s, category, upgrade)
        show_decision(anubis.select(happened, terms, Terminal()), as_json=json, why=why)
        return
    if event != JOB:
        raise UsageError("--event needs --plan: without it a gate is for a job")
    if json and nagios:
        raise UsageError("--json and --nagios exclude each other: give one of them")
    check_page(junit, "--junit")
    turn_termination_into_interrupt()
    answerer = GateAnswerer(as_json=json, nagios=nagios, junit=junit, why=why)
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
                raise UsageError("--event job-allocated needs the job's --duration, such as 24h")
            return events.JobAllocated(nodes=nodes, duration_s=duration_s)
        case "incident-reported":
            if not category:
                raise UsageError("--event incident-reported needs the incident's --category")
            return events.IncidentReported(nodes=nodes, category=category)
        case "tick":
            return events.Tick(nodes=nodes)
    raise UsageError(f'--event "{kind}" is not known; {did_you_mean(kind, EVENTS)}')


class GateAnswerer(Answerer):
    def __init__(self, *, as_json: bool, nagios: bool, junit: Path | None, why: bool) -> None:
        super().__init__(as_json=as_json)
        self._nagios = nagios
        self._junit = junit
        self._why = why

    def gated(self, result: GateResult) -> None:
        if self._junit:
            write_junit("gate", suites(result), self._junit)
        if self._nagios:
            self.set_exit_code(tell_monitoring(result))
        else:
            show(result, as_json=self.as_json, why=self._why)
            self.set_exit_code(answer.EXIT_CODES[result.judgement])


def show(result: GateResult, *, as_json: bool, why: bool) -> None:
    from anubis.report.decision import brief
    from anubis.report.gate import gate_fields, sentence
    from anubis.text.wording import short_node_list

    view = result.campaign.view if result.campaign else None
    if as_json:
        if view:
            from anubis.cli import campaign_answer

            campaign_answer.campaign(view, as_json=True)
        answer.write_json("gate", gate_fields(result))
        return
    _, *reasons = brief(result.decision)
    todo = (
        [f"do: {i.action} ({short_node_list(i.subjects)})" for i in view.instructions]
        if view
        else []
    )
    answer.write_brief([sentence(result), *todo, *([] if why else reasons)])
    if why:
        show_reasons(result.decision, view)


def suites(result: GateResult) -> list[JUnitSuite]:
    """JUnit suites: the gate's answer for each node and link, then what the tests found."""
    from anubis.report import junit
    from anubis.report.gate import sentence

    nodes = [
        junit.JUnitCase(
            name=node,
            judgement=_let_pass(judged, passes=result.unknown_passes),
            code="GATE",
            details=[result.unfit.get(node) or result.doubts.get(node) or sentence(result)],
        )
        for node, judged in result.judged.items()
    ]
    links = [
        junit.JUnitCase(
            name=",".join(together), judgement=Judgement.DEFECTIVE, code="GATE", details=[why]
        )
        for together, why in result.links.items()
    ]
    parts = [
        junit.JUnitCase(name=part, judgement=Judgement.DEFECTIVE, code="GATE", details=[why])
        for part, why in result.barring_parts.items()
    ]
    gate = junit.JUnitSuite(name="gate", cases=[*nodes, *links, *parts])
    return [gate, *(junit.suites_of(result.campaign.view) if result.campaign else ())]


def _let_pass(judged: Judgement, *, passes: bool) -> Judgement:
    return Judgement.HEALTHY if passes and judged is Judgement.UNKNOWN else judged


def tell_monitoring(result: GateResult) -> int:
    """Write one line for monitoring. A go at more risk than is accepted, or with unproven nodes, is
    a warning."""
    from anubis.report.gate import sentence

    decided, nodes = result.decision, len(result.judged)
    figures = {
        "risk": f"{decided.remaining:.4g};{decided.p0:.4g};;0;1",
        "defective": f"{len(result.named(Judgement.DEFECTIVE))};;0;0;{nodes}",
        "unknown": f"{len(result.unknown)};;;0;{nodes}",
        "bad_links": f"{len(result.links) + len(result.barring_parts)};;0;0;",
    }
    warns = bool(result.unknown) or not decided.is_bearable
    return monitoring.tell("gate", result.judgement, sentence(result), figures, warns=warns)


def show_decision(decision: Decision, *, as_json: bool, why: bool) -> None:
    """Write a decision to stdout: at a glance, or with all its reasons."""
    from anubis.report import decision as reports

    if as_json:
        print(reports.line(decision))
    elif why:
        print(next(reports.brief(decision)))
        show_reasons(decision)
    else:
        answer.write_brief(reports.brief(decision))


def show_owing(owing: Mapping[str, str]) -> None:
    """Write which nodes no test of this suite and budget can answer for."""
    node, why = next(iter(owing.items()))
    more = f"; also {short_node_list([*owing][1:])}" if len(owing) > 1 else ""
    answer.write_paragraph(f"unknown still: {node}: {why}{more}")


def show_reasons(decision: Decision, view: CampaignView | None = None) -> None:
    """Write a decision's reasons, and what its campaign measured if there was one."""
    from anubis.report import decision as reports

    print()
    answer.write_paragraph(reports.paragraph(decision))
    if view:
        from anubis.cli import campaign_answer

        print()
        campaign_answer.campaign(view, as_json=False)
