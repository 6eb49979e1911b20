"""`anubis select`: which tests an event is worth. Nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.choosing.decision import FleetEvent

HELP = "Decide which tests an event is worth, and say why; run nothing."
EVENTS = ("node-added", "fleet-upgraded", "job-allocated", "incident-reported", "tick")

CRITERIA: tuple[Literal["learned", "refused"], ...] = ("learned", "refused")


def select(
    nodes: options.NodesNamed,
    event: Annotated[
        str, typer.Option("--event", metavar="EVENT", help=f"What happened: {', '.join(EVENTS)}.")
    ],
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            metavar="TIME",
            help="How long the job on these nodes runs: 90m, 24h, 2d.",
            show_default=False,
        ),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option(
            "--category",
            metavar="WORD",
            help="The category of the reported incident.",
            show_default=False,
        ),
    ] = None,
    criteria: Annotated[
        str,
        typer.Option(
            "--criteria",
            metavar="learned|refused",
            help="Whether the criteria could be learned again after the upgrade.",
        ),
    ] = "learned",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    benchmarks: options.Benchmarks = None,
    budget: options.TestBudget = None,
    together: options.Together = False,
    json: options.Json = False,
) -> None:
    from anubis.cli import amounts
    from anubis.cli.showing import decision
    from anubis.operations.deciding import Terms
    from anubis.operations.deciding import select as answer

    terms = Terms(
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
        budget=amounts.budget(budget),
        together=together,
    )
    happening = _event(event, amounts.named(nodes), duration, category, criteria)
    decision(answer(happening, terms), as_json=json)


def _event(
    kind: str, nodes: tuple[str, ...], duration: str | None, category: str | None, criteria: str
) -> FleetEvent:
    from anubis.cli import amounts
    from anubis.core.choosing import decision
    from anubis.core.errors import UsageError, did_you_mean

    match kind:
        case "node-added":
            return decision.NodeAdded(nodes=nodes)
        case "fleet-upgraded":
            became = amounts.one_of("--criteria", criteria, CRITERIA)
            return decision.FleetUpgraded(nodes=nodes, criteria=became)
        case "job-allocated":
            if duration is None:
                raise UsageError("a job-allocated needs the job's --duration, such as 24h")
            seconds = amounts.duration_s(duration, "--duration")
            return decision.JobAllocated(nodes=nodes, duration_s=seconds)
        case "incident-reported":
            if not category:
                raise UsageError("an incident-reported needs the incident's --category")
            return decision.IncidentReported(nodes=nodes, category=category)
        case "tick":
            return decision.Tick(nodes=nodes)
    raise UsageError(f'--event "{kind}" is not known; {did_you_mean(kind, EVENTS)}')
