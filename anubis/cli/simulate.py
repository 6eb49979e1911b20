"""`anubis simulate`: does validation pay on such a cluster, and which policy pays most?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.risk.model import RiskModel
    from anubis.study.scenario import Jobs, Scenario
    from anubis.study.sources import Source
    from anubis.study.traces import TracedJob
    from anubis.study.trials import Study

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
    incidents: Annotated[
        str | None,
        typer.Option(
            "--incidents",
            metavar="rates|model|history",
            help="At the scenario's rates, drawn from a risk model, or the history's replayed.",
            show_default=False,
        ),
    ] = None,
    risk: Annotated[
        str | None,
        typer.Option(
            "--risk",
            metavar="truth|NAME|best",
            help="What the Selector knows: the truth, or a risk model learned from the past.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="To draw incidents from. Default: risk.npz in $ANUBIS_HOME.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    from anubis import config
    from anubis.cli.selecting import one_of
    from anubis.cli.showing import check_page, write_page
    from anubis.core.errors import UsageError
    from anubis.report import simulation
    from anubis.study.scenario import SOURCES
    from anubis.study.trials import Study

    check_page(html)
    wanted = config.simulation(scenario)
    if trace is not None:
        wanted = replace(wanted, jobs=replace(wanted.jobs, trace=str(trace)))
    if seeds is not None:
        wanted = replace(wanted, seeds=seeds)
    if incidents is not None or model is not None:
        chosen = one_of("--incidents", incidents or "model", SOURCES)
        if model is not None and chosen != "model":
            raise UsageError(f"--model draws incidents, and --incidents {chosen} has others")
        wanted = replace(wanted, incidents=chosen)
    if risk is not None:
        wanted = replace(wanted, risk=risk)
    jobs = _recorded(wanted.jobs)
    source = _source(wanted, model)
    study = Study(source.scenario, jobs, source, _learned(source))
    _run(study)
    name = Path(scenario).stem
    for line in (simulation.json_lines if json else simulation.text)(name, study):
        print(line)
    if html:
        write_page(simulation.render(name, study), html)


def _recorded(wanted: Jobs) -> tuple[TracedJob, ...]:
    """The jobs of the scenario's trace; what of it is no job is told on stderr."""
    from anubis.cli.showing import say
    from anubis.study import traces

    if not wanted.trace:
        return ()
    found = traces.read(Path(wanted.trace), wanted.devices_per_node, wanted.whole_nodes_only)
    say(f"{wanted.trace}: {len(found.jobs):,} jobs, {found.node_hours:,.0f} node-hours")
    for sentence in traces.told(found):
        say(f"  {sentence}")
    return found.jobs


def _source(wanted: Scenario, model: Path | None) -> Source:
    """Where the incidents come from; its scenario has the nodes that they happen to."""
    from anubis import places
    from anubis.cli.showing import say
    from anubis.report.wording import names
    from anubis.study.sources import DrawnIncidents, Rates, Recorded

    if wanted.incidents == "rates":
        return Rates(wanted)
    if wanted.incidents == "model":
        from anubis.risk import files

        fitted, origin = files.load(model or places.risk_file())
        say(f"incidents are drawn from {fitted.name}: {origin.choice}")
        return DrawnIncidents(wanted, fitted)
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        incidents, watches = history.incidents(), history.watches()
    source = Recorded.of(wanted, incidents, watches)
    say(f"replayed: {len(incidents):,} incidents on {source.scenario.nodes:,} nodes")
    if strangers := {one.category for one in incidents} - {one.name for one in wanted.categories}:
        say(f"the scenario has no causes for {names(sorted(strangers))}: no benchmark finds them")
    return source


def _learned(source: Source) -> RiskModel | None:
    """What the Selector asks; none where it is told the truth."""
    from anubis.cli.showing import passing, say
    from anubis.risk import learning

    name = source.scenario.risk
    if name == "truth":
        return None
    past = source.past()
    spells = learning.spells_of(past.logbook, past.until)
    model, origin = learning.train(spells, 0, None if name == "best" else name, passing)
    passing("")
    say(f"the Selector asks {model.name}, learned from {origin.spells:,} spells of the past")
    return model


def _run(study: Study) -> None:
    """Every run once; on a terminal with a line that says how many are left."""
    from anubis.cli.showing import passing

    trials = study.trials()
    for done, trial in enumerate(trials):
        passing(f"run {done + 1} of {len(trials)}: {trial.policy}, seed {trial.seed}")
        study.result(trial)
    passing("")
