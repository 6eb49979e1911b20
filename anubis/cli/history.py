"""`anubis history`: what happened to nodes, what was decided, and taking a wrong import back."""

from __future__ import annotations

from typing import Annotated

import typer

from anubis.cli import answer, options

app = typer.Typer(
    help="What happened to nodes and what was decided; and taking a wrong import back.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Last = Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many.")]


@app.command(help="Incidents, repairs, validations and decisions in order of time.")
def show(
    nodes: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES", help="Node list: node[01-16], a comma list, or @file. Default: all."
        ),
    ] = None,
    last: Last = 50,
    json: options.Json = False,
) -> None:
    from anubis import hostlist
    from anubis.core.errors import UsageError
    from anubis.operations.past import timeline
    from anubis.report import history as told

    happened = timeline(None if nodes is None else hostlist.read(nodes), last)
    if not happened:
        raise UsageError(f"the history knows nothing{f' of {nodes}' if nodes else ' yet'}")
    if json:
        answer.write_lines(map(told.line, happened))
    else:
        told.show(happened, answer.screen())


@app.command(help="The last decisions of gate, sweep and select with their reasons, newest first.")
def decisions(last: Last = 5, json: options.Json = False) -> None:
    from anubis.cli import showing
    from anubis.core.errors import UsageError
    from anubis.operations import past
    from anubis.report import decision as told
    from anubis.report.wording import moment

    decided = past.decisions(last)
    if not decided:
        raise UsageError("no decisions yet: anubis gate, sweep and select make them")
    for decision in decided:
        if json:
            print(told.line(decision))
        else:
            showing.paragraph(f"{moment(decision.at)}  {told.paragraph(decision)}")
            print()


@app.command(help="Imported files of incidents, newest first.")
def imports(json: options.Json = False) -> None:
    from anubis.core.errors import UsageError
    from anubis.operations import past
    from anubis.report import history as told

    imported = past.imports()
    if not imported:
        raise UsageError(
            "no incidents were imported yet: anubis import incidents FILE imports them"
        )
    if json:
        answer.write_lines(map(told.import_line, imported))
    else:
        told.show_imports(imported, answer.screen())


@app.command(
    help="Undo an import of incidents: what it was the first to report is removed. "
    "What another file reported as well comes back when that file is imported again."
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

    from anubis.operations.past import forget_import
    from anubis.report.wording import counted

    gone = forget_import(import_)
    if json:
        answer.write_json({"type": "forgotten", "import": import_, **dataclasses.asdict(gone)})
        return
    print(
        f"import {import_} is forgotten: {counted(gone.incidents, 'incident')} and"
        f" {counted(gone.watches, 'watch', 'watches')} with it"
    )
    if gone.reopened:
        whose = counted(gone.reopened, "incident")
        print(f"{whose} of other imports whose end it told: no end is known again")
