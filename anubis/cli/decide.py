"""`anubis gate`, `select` and `sweep`: which tests are worth their time, and what came of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.page_files import check_page
from anubis.cli.terminal import Answerer, Terminal, turn_termination_into_interrupt
from anubis.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from anubis.core.history.events import FleetEvent
    from anubis.report.sweep import SweepResult

EVENTS = ("node-added", "fleet-upgraded", "job-allocated", "incident-reported", "tick")
CRITERIA: tuple[Literal["learned", "refused"], ...] = ("learned", "refused")


def gate(
    nodes: options.NodesNamed,
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="How long the job runs: 90m, 24h, 2d.")
    ],
    on_unknown: Annotated[
        str,
        typer.Option(
            "--on-unknown",
            metavar="pass|fail",
            help="Whether a node that no test could judge passes.",
        ),
    ] = "fail",
    no_tests: Annotated[
        bool,
        typer.Option(
            "--no-tests",
            help="Answer from the history alone; unknown if tests would have to run first.",
        ),
    ] = False,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            metavar="NAME",
            help="The job that the nodes are for: if it was reported to run there, they are "
            "tested all the same. [default: $SLURM_JOB_ID]",
        ),
    ] = "",
    cluster: options.ClusterAsked = None,
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    budget: options.TestBudget = None,
    together: options.Together = False,
    partners: options.Partners = None,
    junit: options.JUnit = None,
    nagios: options.Nagios = False,
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    """Say whether nodes are good for a job: by history, or by the tests worth their time."""
    from anubis.cli import gate_answer

    if json and nagios:
        raise UsageError("--json and --nagios exclude each other: give one of them")
    check_page(junit, "--junit")
    seconds = amounts.duration_s(duration, "--duration")
    passes = amounts.choose_word("--on-unknown", on_unknown, ("pass", "fail")) == "pass"
    terms = _terms(suite, policy, benchmarks, budget)
    terms = replace(
        terms,
        together=together,
        partners=amounts.nodes(partners) or (),
        cluster=cluster,
        criteria=criteria,
        job=job,
    )
    turn_termination_into_interrupt()
    answerer = gate_answer.GateAnswerer(as_json=json, nagios=nagios, junit=junit, why=why)
    with answerer.leaving():
        anubis.gate(
            amounts.node_names(nodes),
            seconds,
            terms,
            unknown_passes=passes,
            may_test=not no_tests,
            caller=answerer,
        )


def select(
    nodes: options.NodesNamed,
    event: Annotated[
        str, typer.Option("--event", metavar="EVENT", help=f"What happened: {', '.join(EVENTS)}.")
    ],
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration", metavar="TIME", help="How long the job on these nodes runs: 90m, 24h, 2d."
        ),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option("--category", metavar="WORD", help="The category of the reported incident."),
    ] = None,
    criteria: Annotated[
        str,
        typer.Option(
            "--criteria",
            metavar="learned|refused",
            help="Whether the criteria could be learned again after the upgrade.",
        ),
    ] = "learned",
    cluster: options.ClusterAsked = None,
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    benchmarks: options.Benchmarks = None,
    budget: options.TestBudget = None,
    together: options.Together = False,
    partners: options.Partners = None,
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    """Decide which tests an event is worth, and say why; run nothing.

    That nodes were added or upgraded, or had an incident, is kept: until they pass a test, a defect
    is presumed on them.
    """
    from anubis.cli import decision

    happened = _event(event, amounts.node_names(nodes), duration, category, criteria)
    terms = replace(
        _terms(suite, policy, benchmarks, budget),
        together=together,
        partners=amounts.nodes(partners) or (),
        cluster=cluster,
    )
    decision.show(anubis.select(happened, terms, Terminal()), as_json=json, why=why)


def _event(
    kind: str, nodes: tuple[str, ...], duration: str | None, category: str | None, criteria: str
) -> FleetEvent:
    from anubis.core.history import events

    match kind:
        case "node-added":
            return events.NodeAdded(nodes=nodes)
        case "fleet-upgraded":
            became = amounts.choose_word("--criteria", criteria, CRITERIA)
            return events.FleetUpgraded(nodes=nodes, criteria=became)
        case "job-allocated":
            if duration is None:
                raise UsageError("a job-allocated needs the job's --duration, such as 24h")
            seconds = amounts.duration_s(duration, "--duration")
            return events.JobAllocated(nodes=nodes, duration_s=seconds)
        case "incident-reported":
            if not category:
                raise UsageError("an incident-reported needs the incident's --category")
            return events.IncidentReported(nodes=nodes, category=category)
        case "tick":
            return events.Tick(nodes=nodes)
    raise UsageError(f'--event "{kind}" is not known; {did_you_mean(kind, EVENTS)}')


def sweep(
    nodes: options.Nodes = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget", metavar="AMOUNT", help="Node-hours in total (8nh), or time per node (30m)."
        ),
    ] = "1nh",
    cluster: options.ClusterAsked = None,
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    """Test the idle nodes that are most at risk, within a budget."""
    terms = _terms(suite, policy, benchmarks, budget)
    turn_termination_into_interrupt()
    answerer = SweepAnswerer(as_json=json, why=why)
    with answerer.leaving():
        anubis.sweep(
            amounts.nodes(nodes), replace(terms, cluster=cluster, criteria=criteria), answerer
        )


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


def _terms(
    suite: str, policy: str, benchmarks: list[Path] | None, budget: str | None
) -> anubis.Terms:
    return anubis.Terms(
        suite=suite,
        policy=policy,
        benchmarks=benchmarks or (),
        budget=amounts.budget(budget),
    )
