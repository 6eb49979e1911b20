"""`anubis topology`: the fabric as Anubis understands it, before anything is scheduled on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.topology import Fabric, Finding, Placement
    from anubis.topology.draft import Survey

app = typer.Typer(
    help="The switches, and which node hangs on which.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def group() -> None:
    """Keeps `show` a word of its own."""


@app.command(help="Draw the fabric, say what is odd in it and which nodes it does not know.")
def show(
    topology: options.Topology = None,
    hcas: options.Hcas = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="The fleet to find in it: node[01-16], a comma list, or @file.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    import sys

    from anubis import hostlist
    from anubis.core.topology import place
    from anubis.report.topology import json_lines, text

    found = survey(topology, hcas)
    placement = place(found.fabric, hostlist.read(nodes)) if nodes else None
    fabric = placement.fabric if placement else found.fabric
    for line in (json_lines if json else text)(fabric, found.findings, placement):
        print(line)
    if html:
        _write_page(fabric, found.findings, placement, html)
    sys.exit(0 if fabric.nodes and not (placement and placement.unplaced) else 2)


def _write_page(
    fabric: Fabric, findings: Sequence[Finding], placement: Placement | None, path: Path
) -> None:
    from anubis.cli import showing
    from anubis.report.network import network_page
    from anubis.report.view import NetworkView

    view = NetworkView(
        fabric=fabric,
        shortfall={},
        nodes=placement.nodes if placement else (),
        unplaced=placement.unplaced if placement else (),
    )
    showing.write_page(network_page(view, title="Topology", findings=findings), path)


def survey(topology: str | None, hcas: Path | None) -> Survey:
    """The file, one of the shipped or the user's own examples, or else the fabric itself."""
    from anubis import config
    from anubis.topology import sources

    if topology is None:
        return sources.live(hcas)
    path = Path(topology)
    return sources.load(path if path.exists() else config.find("topologies", topology), hcas)
