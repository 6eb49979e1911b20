"""`anubis simulate`: does validation pay on such a cluster, and which policy pays most?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.pages import check_page, write_page
from anubis.cli.remarks import show_status
from anubis.cli.terminal import Terminal


def simulate(
    scenario: Annotated[
        str,
        typer.Argument(metavar="SCENARIO", help="A name under configs/simulations/, or a file."),
    ] = "example",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Recorded jobs instead of the scenario's: SWF, or a table; .gz is unpacked.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="How often each policy runs.")
    ] = None,
    incidents: Annotated[
        str | None,
        typer.Option(
            "--incidents",
            metavar="rates|model|history",
            help="Where incidents come from: the scenario's rates, a risk model, or the recorded "
            "history.",
        ),
    ] = None,
    risk: Annotated[
        str | None,
        typer.Option(
            "--risk",
            metavar="truth|NAME|best",
            help="What the Selector knows: the truth, or a risk model learned from the past.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="The risk model to draw incidents from. Default: risk/CLUSTER.npz in "
            "$ANUBIS_HOME.",
        ),
    ] = None,
    cluster: options.ClusterKnown = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    """Compare validation policies on a simulated cluster: work, incidents, hours spent."""
    from anubis.report import simulate as simulation

    check_page(html)
    study = anubis.simulate(
        scenario,
        trace=trace,
        seeds=seeds,
        incidents=incidents,
        risk=risk,
        model=model,
        cluster=cluster,
        caller=Terminal(),
    )
    show_status("")
    name = Path(scenario).stem
    answer.write_lines((simulation.json_lines if json else simulation.text)(name, study))
    if html:
        write_page(simulation.render(name, study), html)
