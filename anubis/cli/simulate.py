"""`anubis simulate`: does validation pay on such a cluster, and which policy pays most?"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.simulation.scenario import Jobs
    from anubis.simulation.study import Study
    from anubis.simulation.traces import Job

HELP = "Let policies of validation compete on a simulated cluster: work, incidents, hours spent."


def simulate(
    scenario: Annotated[
        str,
        typer.Argument(metavar="SCENARIO", help="A name under configs/simulations/, or file."),
    ] = "example",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Recorded jobs instead of the scenario's: SWF, or a table; .gz is unpacked.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="How often each policy runs.", show_default=False),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    from anubis import config
    from anubis.cli.showing import write_page
    from anubis.report import simulation
    from anubis.simulation.study import Study

    wanted = config.simulation(scenario)
    if trace is not None:
        wanted = replace(wanted, jobs=replace(wanted.jobs, trace=str(trace)))
    if seeds is not None:
        wanted = replace(wanted, seeds=seeds)
    study = Study(wanted, _recorded(wanted.jobs))
    _run(study)
    name = Path(scenario).stem
    if html:
        write_page(simulation.render(name, study), html)
    for line in (simulation.json_lines if json else simulation.text)(name, study):
        print(line)


def _recorded(wanted: Jobs) -> tuple[Job, ...]:
    """The jobs of the scenario's trace; what of it is no job is told on stderr."""
    from anubis.cli.showing import say
    from anubis.simulation import traces

    if not wanted.trace:
        return ()
    found = traces.read(Path(wanted.trace), wanted.devices_per_node, wanted.whole_nodes_only)
    say(f"{wanted.trace}: {len(found.jobs):,} jobs, {found.node_hours:,.0f} node-hours")
    for sentence in traces.told(found):
        say(f"  {sentence}")
    return found.jobs


def _run(study: Study) -> None:
    """Every run once; on a terminal with a line that says how many are left."""
    trials = study.trials()
    for done, trial in enumerate(trials):
        if sys.stderr.isatty():
            left = f"run {done + 1} of {len(trials)}: {trial.policy}, seed {trial.seed}"
            print(f"\r\033[K{left}", end="", file=sys.stderr, flush=True)
        study.result(trial)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
