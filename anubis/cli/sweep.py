"""`anubis sweep`: test the idle nodes most at risk, within a budget of node-hours."""

from __future__ import annotations

from typing import Annotated

import typer

from anubis.cli import options

HELP = "Test the idle nodes that are most at risk, within a budget."


def sweep(
    nodes: options.Nodes = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="AMOUNT",
            help="Node-hours in total (8nh), or time per node (30m).",
        ),
    ] = "1nh",
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    json: options.Json = False,
) -> None:
    import sys

    from anubis.cli import amounts
    from anubis.cli.showing import EXIT_CODES
    from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
    from anubis.operations.deciding import Terms
    from anubis.operations.sweeping import SweepRequest
    from anubis.operations.sweeping import sweep as answer

    request = SweepRequest(
        nodes=amounts.nodes(nodes),
        terms=Terms(
            suite=suite,
            policy=policy,
            benchmarks=tuple(benchmarks or ()),
            budget=amounts.budget(budget),
        ),
        cluster=cluster,
        criteria=criteria,
    )
    turn_termination_into_interrupt()
    result = answer(request, Terminal(as_json=json))
    sys.exit(EXIT_CODES[result.judgement])
