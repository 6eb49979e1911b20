"""`anubis risk`: how likely each node's next incident is, and how far that can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.core.past.logbook import Logbook
    from anubis.core.past.status import Spells

app = typer.Typer(
    help="How likely each node's next incident is, learned from the history.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Where the trained model lies. Default: risk.npz in $ANUBIS_HOME.",
        show_default=False,
    ),
]
HOURS = (24.0, 168.0, 720.0)  # a day, a week, a month


@app.command(help="Learn a risk model from the history: the one that wins by node and by time.")
def train(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="This model, without comparing it with others.",
            show_default=False,
        ),
    ] = None,
    file: ModelFile = None,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn in training.")] = 0,
) -> None:
    from anubis.cli import showing
    from anubis.risk import files, learning

    spells = _spells()
    learned, origin = learning.train(spells, seed, model, showing.passing)
    showing.passing("")
    path = _model_file(file)
    files.save(learned, origin, path)
    showing.say(
        f"learned from {origin.spells:,} spells of which {origin.incidents:,} ended in an incident"
    )
    showing.say(origin.choice)
    print(f"{learned.name} {path}")


@app.command(help="Compare the risk models on nodes and times that they were not trained on.")
def evaluate(
    seeds: Annotated[int, typer.Option("--seeds", min=2, help="How many splits of each kind.")] = 5,
    ask: Annotated[
        str | None,
        typer.Option(
            "--ask",
            metavar="NODES",
            help="Keep these nodes out of all else; ask about them what the others teach.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    from anubis import hostlist
    from anubis.cli.showing import check_page, passing, write_page
    from anubis.report import risk as tables
    from anubis.report import risk_page
    from anubis.risk import evaluation
    from anubis.risk.splits import named

    check_page(html)
    spells = _spells()
    if ask is None:
        found = evaluation.evaluate(spells, seeds=range(seeds), tell=passing)
    else:
        learned, asked = named(spells, hostlist.read(ask))
        found = evaluation.evaluate(learned, seeds=range(seeds), tell=passing)
        found += evaluation.elsewhere(learned, asked, seeds=range(seeds), tell=passing)
    passing("")
    choice = evaluation.best(found)
    if html:
        write_page(risk_page.evaluation_page(found, choice), html)
    if json:
        for line in tables.evaluation_lines(found, choice):
            print(line)
        return
    from rich.console import Console

    tables.show_evaluation(found, choice, Console(highlight=False))


@app.command(help="How likely an incident is on each node within a day, a week and a month.")
def show(
    nodes: Annotated[
        str,
        typer.Argument(metavar="NODES", help="Node list: node[01-16], a comma list, or @file."),
    ],
    file: ModelFile = None,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    import time

    from anubis import hostlist
    from anubis.cli import showing
    from anubis.core.past.status import Instants
    from anubis.report import risk as tables
    from anubis.report import risk_page
    from anubis.report.wording import names
    from anubis.risk import files
    from anubis.risk.model import forecast

    model, origin = files.load(_model_file(file))
    asked = hostlist.read(nodes)
    logbook = _logbook()
    strangers = sorted(set(asked) - set(logbook.nodes))
    if strangers:
        showing.say(f"nothing is known of {names(strangers)}: taken for just added")
    if unforeseen := logbook.unforeseen(model.covariates):
        showing.say(f"not known when it was trained, counted in the totals: {names(unforeseen)}")
    statuses = logbook.statuses(Instants.now(asked, time.time()), model.covariates)
    found = forecast(model, statuses)
    if html:
        page = risk_page.nodes_page(asked, found, HOURS, model.name, origin.choice)
        showing.write_page(page, html)
    if json:
        for line in tables.node_lines(asked, found, HOURS, model.name):
            print(line)
        return
    from rich.console import Console

    tables.show_nodes(asked, found, HOURS, Console(highlight=False))
    showing.say(f"{model.name}: {origin.choice}")


def _spells() -> Spells:
    import time

    from anubis.risk.learning import spells_of

    return spells_of(_logbook(), time.time())


def _logbook() -> Logbook:
    from anubis import places
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        return history.logbook()


def _model_file(chosen: Path | None) -> Path:
    from anubis import places

    return chosen.expanduser() if chosen else places.risk_file()
