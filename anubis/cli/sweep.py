"""`anubis sweep`: test the idle nodes most at risk, within a budget of node-hours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.choosing.decision import Tick
    from anubis.selector import Past
    from anubis.store.history import History

HELP = "Test the idle nodes that are most at risk, within a budget."


def sweep(
    nodes: options.Nodes = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="AMOUNT",
            help="Node-hours in all, 8nh, or a time on each node, 30m.",
        ),
    ] = "1nh",
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    json: options.Json = False,
) -> None:
    from anubis.cli import amounts, selecting

    request = selecting.Request(
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
        budget=amounts.budget(budget),
        together=False,
        json=json,
    )
    order = request.order(nodes, cluster, criteria)
    answer = selecting.decide(request, lambda past, history: _idle(nodes, past, history))
    selecting.leave(selecting.carry_out(answer.decision, order), unknown_passes=False)


def _idle(nodes: str | None, past: Past, history: History) -> Tick:
    """Those named, else all that the history knows; without those at work or out of service."""
    from anubis.cli import selecting
    from anubis.core.choosing.decision import Tick
    from anubis.core.errors import UsageError

    asked = past.logbook.nodes if nodes is None else selecting.named(nodes)
    if not asked:
        raise UsageError("the history knows no node yet: name them, or begin with anubis accept")
    busy = {node for job in history.jobs() if job.end is None for node in job.nodes}
    return Tick(nodes=tuple(node for node in asked if node not in busy | past.unfit.keys()))
