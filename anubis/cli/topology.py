"""`anubis topology`: the fabric as Anubis understands it, before anything is scheduled on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.fabric import Placement, Remark
    from anubis.core.network.inspection import Inspection
    from anubis.core.records import Counters
    from anubis.topology.counters import CounterReading
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
    counters: options.Counters = None,
    over: options.Over = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    import sys

    from anubis import hostlist
    from anubis.core.fabric import place
    from anubis.core.network.inspection import Inspection
    from anubis.report.topology import json_lines, text

    found = survey(topology, hcas)
    counted, odd = count_errors(topology, counters or (), over)
    placement = place(found.fabric, hostlist.read(nodes)) if nodes else None
    fabric = placement.fabric if placement else found.fabric
    findings = (*found.findings, *odd)
    inspection = Inspection(fabric=fabric, counters=counted)
    for line in (json_lines if json else text)(inspection, findings, placement):
        print(line)
    if html:
        _write_page(inspection, findings, placement, html)
    if inspection.has_defects:
        sys.exit(1)
    sys.exit(0 if fabric.nodes and not (placement and placement.unplaced) else 2)


def _write_page(
    inspection: Inspection, findings: Sequence[Remark], placement: Placement | None, path: Path
) -> None:
    from anubis.cli import showing
    from anubis.report.network import network_page
    from anubis.report.view import NetworkView

    view = NetworkView(
        fabric=inspection.fabric,
        counters=inspection.counters,
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


def count_errors(
    topology: str | None,
    files: Sequence[Path],
    over_s: float | None,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[Counters, tuple[Remark, ...]]:
    """What the ports count, from files or from the fabric itself; and what is odd in the answer.

    Where the fabric told its topology and will not tell its counters, that is a finding.
    """
    from anubis import config
    from anubis.core.errors import TopologyError, UsageError
    from anubis.core.fabric import Remark
    from anubis.core.records import Counters
    from anubis.topology import counters

    if len(files) > 2 or (len(files) == 2 and over_s is None):
        raise UsageError(
            f"{len(files)} files of counters: expected one reading, or an earlier and a later one "
            "with --over SECONDS between them"
        )
    if not files and topology is not None:
        if over_s is not None:
            raise UsageError("--over without counters: give --counters FILE as well")
        return Counters(counts=()), ()
    try:
        readings = [counters.load(file) for file in files] or _ask_for_counters(over_s, wait)
        limits = config.limits("node_health") + config.limits("switch_ports")
        found = Counters(counts=readings[-1].counts, limits=limits)
        if over_s is not None:
            before = readings[0] if len(readings) > 1 else counters.NONE
            found = counters.compared(before, readings[-1], over_s, limits)
    except TopologyError as error:
        if files:
            raise
        return Counters(counts=()), (Remark(kind="no-counters", sentence=str(error)),)
    return found, tuple(finding for reading in readings for finding in reading.findings)


def _ask_for_counters(over_s: float | None, wait: Callable[[float], None]) -> list[CounterReading]:
    """Once; or twice, so long apart."""
    import sys

    from anubis.topology import counters

    first = counters.live()
    if over_s is None:
        return [first]
    print(f"reading the counters again in {over_s:g} s", file=sys.stderr)
    wait(over_s)
    return [first, counters.live()]
