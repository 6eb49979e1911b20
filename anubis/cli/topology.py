"""`anubis topology`: the fabric as Anubis understands it, before anything is scheduled on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import answer, options

if TYPE_CHECKING:
    from anubis.operations.surveying import InspectedFabric

app = typer.Typer(
    help="The switches, and which node hangs on which.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def group() -> None:
    """Keeps `show` a word of its own."""


@app.command(help="Draw the fabric; say what is odd in it and which nodes are missing.")
def show(
    topology: options.Topology = None,
    hcas: options.Hcas = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="The nodes to find in it: node[01-16], a comma list, or @file.",
        ),
    ] = None,
    counters: options.Counters = None,
    over: options.Over = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    from anubis import hostlist
    from anubis.cli import showing
    from anubis.cli.terminal import Terminal
    from anubis.operations.surveying import inspect_fabric
    from anubis.report.topology import json_lines, text

    inspected = inspect_fabric(
        topology,
        hcas=hcas,
        nodes=hostlist.read(nodes) if nodes else (),
        counter_files=counters or (),
        over_s=over,
        caller=Terminal(),
    )
    shown = json_lines if json else text
    answer.write_lines(shown(inspected.inspection, inspected.remarks, inspected.placement))
    if html:
        _write_page(inspected, html)
    showing.leave(inspected.judgement)


def _write_page(inspected: InspectedFabric, path: Path) -> None:
    from anubis.cli import showing
    from anubis.report.network import network_page
    from anubis.report.view import NetworkView

    view = NetworkView(
        fabric=inspected.inspection.fabric,
        counters=inspected.inspection.counters,
        shortfall={},
        nodes=inspected.placement.nodes if inspected.placement else (),
        unplaced=inspected.placement.unplaced if inspected.placement else (),
    )
    showing.write_page(network_page(view, title="Topology", findings=inspected.remarks), path)
