"""`anubis history`: what happened to nodes, what was decided, and taking a wrong import back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from anubis.report.history import Happening

app = typer.Typer(
    help="What happened to nodes and what was decided; and taking a wrong import back.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MOST_DECISIONS = 10_000  # that a time line looks at: the latest
Last = Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many.")]


@app.command(help="Incidents, repairs, validations and decisions in the order of time.")
def show(
    nodes: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES",
            help="Node list: node[01-16], a comma list, or @file. Default: all.",
            show_default=False,
        ),
    ] = None,
    last: Last = 50,
    json: options.Json = False,
) -> None:
    from anubis import hostlist
    from anubis.core.errors import UsageError
    from anubis.report import history as told

    asked = None if nodes is None else hostlist.read(nodes)
    found = told.timeline(_happenings(), asked, last)
    if not found:
        raise UsageError(f"the history knows nothing{f' of {nodes}' if nodes else ' yet'}")
    if json:
        for one in found:
            print(told.line(one))
        return
    from rich.console import Console

    told.show(found, Console(highlight=False))


def _happenings() -> list[Happening]:
    from anubis import places
    from anubis.report import history as told
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        return [
            *map(told.of_incident, history.incidents()),
            *map(told.of_repair, history.repairs()),
            *map(told.of_validation, history.validations()),
            *map(told.of_decision, history.decisions(MOST_DECISIONS)),
        ]


@app.command(help="The last decisions of gate, sweep and select with their reasons, newest first.")
def decisions(last: Last = 5, json: options.Json = False) -> None:
    from anubis import places
    from anubis.cli import showing
    from anubis.core.errors import UsageError
    from anubis.report import decision as told
    from anubis.report.wording import moment
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        found = history.decisions(last)
    if not found:
        raise UsageError("nothing was decided yet: anubis gate, sweep and select decide")
    for one in found:
        if json:
            print(told.line(one))
        else:
            showing.paragraph(f"{moment(one.at)}  {told.paragraph(one)}")
            print()


@app.command(help="Files of incidents that were imported, newest first.")
def imports(json: options.Json = False) -> None:
    from anubis import places
    from anubis.core.errors import UsageError
    from anubis.report import history as told
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        found = history.imports()
    if not found:
        raise UsageError(
            "no incidents were imported yet: anubis import incidents FILE imports them"
        )
    if json:
        for one in found:
            print(told.import_line(one))
        return
    from rich.console import Console

    told.show_imports(found, Console(highlight=False))


@app.command(
    help="Take an import of incidents back: what it was the first to tell goes. "
    "What another file told as well comes back by importing that one again."
)
def forget(
    import_: Annotated[
        int,
        typer.Option(
            "--import", metavar="N", help="Its number; anubis history imports lists them."
        ),
    ],
    json: options.Json = False,
) -> None:
    import dataclasses
    from json import dumps

    from anubis import places
    from anubis.report.wording import counted
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        gone = history.forget_import(import_)
    if json:
        print(dumps({"type": "forgotten", "import": import_, **dataclasses.asdict(gone)}))
        return
    print(
        f"import {import_} is forgotten: {counted(gone.incidents, 'incident')} and"
        f" {counted(gone.watches, 'watch', 'watches')} with it"
    )
    if gone.reopened:
        whose = counted(gone.reopened, "incident")
        print(f"{whose} of other imports whose end it told: no end is known again")
