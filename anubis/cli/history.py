"""`anubis history`: what happened to nodes, what was decided, what each benchmark has found, and
how to undo a wrong import."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.answer import check_page, write_page
from anubis.cli.streams import say
from anubis.cli.terminal import Terminal
from anubis.core.errors import UsageError

app = typer.Typer(
    name="history",
    help="Show what happened, was decided and was done. Import records, and undo imports.",
    no_args_is_help=True,
)

Last = Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many.")]


@app.command(help="Incidents, repairs, validations, events, decisions and holds in order of time.")
def show(
    nodes: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES", help="Node list: node[01-16], a comma list, or @file. Default: all."
        ),
    ] = None,
    last: Last = 50,
    cluster: options.ClusterShown = None,
    json: options.Json = False,
) -> None:
    from anubis.report import history

    happened = anubis.timeline(amounts.nodes(nodes), last, cluster=cluster)
    if not happened and nodes:
        raise UsageError(f"the history knows nothing of {nodes}")
    if not happened:
        say("the history knows nothing yet")
    if json:
        answer.write_lines(map(history.line, happened))
    elif happened:
        history.show(happened, answer.screen())


@app.command(help="The last decisions of gate and sweep, newest first.")
def decisions(
    last: Last = 5,
    cluster: options.ClusterShown = None,
    why: options.Why = False,
    json: options.Json = False,
) -> None:
    from anubis.report import decision
    from anubis.text.wording import moment

    decided = anubis.decisions(last, cluster=cluster)
    if not decided:
        say("no decisions yet: anubis gate and anubis sweep make them")
    for made in decided:
        if json:
            print(decision.line(made))
        elif why:
            answer.write_paragraph(f"{moment(made.at)}  {decision.paragraph(made)}")
            print()
        else:
            head, risk, *_ = decision.brief(made)
            event = decision.event_of(made)
            answer.write_brief((f"{moment(made.at)}  {event}: {head}", f"  {risk}"))


@app.command(
    name="standing",
    help="Each node as a gate sees it: its last verdict, and which of its passes count.",
)
def list_standings(
    nodes: Annotated[
        str | None,
        typer.Argument(
            metavar="NODES", help="Node list: node[01-16], a comma list, or @file. Default: all."
        ),
    ] = None,
    cluster: options.ClusterShown = None,
    json: options.Json = False,
) -> None:
    from anubis.report import fleet

    glances = anubis.standings(amounts.nodes(nodes), cluster=cluster)
    if not glances and nodes:
        raise UsageError(f"the history knows nothing of {nodes}")
    if not glances:
        say("the history has no nodes yet: begin with anubis accept")
    if json:
        answer.write_lines(map(fleet.node_line, glances))
    elif glances:
        fleet.show_nodes(glances, answer.screen())


@app.command(help="The last campaigns, newest first: their result, or how far they are.")
def campaigns(
    last: Last = 20, cluster: options.ClusterShown = None, json: options.Json = False
) -> None:
    from anubis.report import fleet

    glances = anubis.campaigns_at_a_glance(last, cluster=cluster)
    if not glances:
        say("no campaign yet: begin with anubis accept")
    if json:
        answer.write_lines(map(fleet.campaign_line, glances))
    elif glances:
        fleet.show_campaigns(glances, answer.screen())


@app.command(help="The clusters that the history knows, one a line.")
def clusters() -> None:
    answer.write_lines(anubis.clusters())


@app.command(help="Give a cluster another name, with all that is known of its nodes.")
def rename(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="Its name now: anubis history clusters.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Letters, digits, dots and dashes.")],
) -> None:
    anubis.rename_cluster(old, new)
    print(f"cluster {old} is called {new} from now on")


@app.command(
    name="forget-cluster",
    help="Remove a cluster that was made by mistake, with all reports about its nodes.",
)
def forget_cluster(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name: anubis history clusters.")],
    with_campaigns: Annotated[
        bool,
        typer.Option(
            "--with-campaigns",
            help="Also remove campaigns that were run or imported there, with their verdicts. "
            "Default: if there are campaigns, nothing is removed.",
        ),
    ] = False,
) -> None:
    from anubis.text.wording import quantity

    gone = anubis.forget_cluster(name, with_campaigns=with_campaigns)
    parts = (
        quantity(gone.campaigns, "campaign"),
        quantity(gone.incidents, "incident"),
        quantity(gone.events, "event"),
        quantity(gone.decisions, "decision"),
    )
    print(f"cluster {name} is forgotten, and with it {', '.join(parts)}")


@app.command(
    help="What each benchmark has found, and how well it repeats. Coverage is its share of all "
    "known defects, by which the Selector chooses."
)
def benchmarks(
    cluster: options.ClusterShown = None, json: options.Json = False, html: options.HtmlToo = None
) -> None:
    from anubis.report import track_records

    check_page(html)
    records = anubis.track_records(cluster=cluster)
    if not records:
        say("nothing was measured yet: begin with anubis accept")
    if json:
        answer.write_lines(track_records.json_lines(records))
    elif records:
        track_records.show(records, answer.screen())
    if html:
        write_page(track_records.render(records), html)


@app.command(
    help="Whether the history is still what was written into it. Checks the database, the "
    "checksum of every row, and whether rows are gone, and changes nothing."
)
def check(json: options.Json = False) -> None:
    from anubis.report import history

    soundness = anubis.check_history(Terminal(as_json=json))
    damages = soundness.damages
    if json:
        for sentence in damages:
            answer.write_json("damage", history.DamageLine(sentence=sentence))
        line = history.HistoryLine(
            sound=not damages,
            campaigns=soundness.campaigns,
            rows=soundness.rows,
            damages=len(damages),
        )
        answer.write_json("history", line)
    else:
        answer.write_lines(history.soundness_lines(soundness))
    sys.exit(2 if damages else 0)


@app.command(help="Imported files of incidents, of nodes and of measurements, newest first.")
def imports(json: options.Json = False) -> None:
    from anubis.report import history

    imported = anubis.imports()
    if not imported:
        say("nothing was imported yet: see anubis history import --help")
    if json:
        answer.write_lines(map(history.import_line, imported))
    elif imported:
        history.show_imports(imported, answer.screen())


@app.command(
    help="Undo an import. Incidents that it was the first to report are removed. If another file "
    "reported one as well, it comes back when that file is imported again. Attributes of nodes "
    "that it reported are removed, and earlier ones count again. An import of measurements is "
    "removed with its campaign."
)
def forget(
    import_: Annotated[
        int,
        typer.Option(
            "--import", metavar="N", help="Its number, as anubis history imports lists it."
        ),
    ],
    json: options.Json = False,
) -> None:
    from anubis.text.wording import quantity

    gone = anubis.forget_import(import_)
    if json:
        from anubis.report import history

        answer.write_json("forgotten", history.ImportNumber(import_=import_), gone)
        return
    parts = (
        quantity(gone.incidents, "incident") if gone.incidents else "",
        quantity(gone.watches, "watch", "watches") if gone.watches else "",
        f"the attributes of {quantity(gone.nodes, 'node')}" if gone.nodes else "",
        f"campaign {gone.campaign}" if gone.campaign else "",
    )
    print(f"import {import_} is forgotten, and with it: {', '.join(filter(None, parts)) or '-'}")
    if gone.reopened:
        incidents = quantity(gone.reopened, "incident")
        print(f"{incidents} of other imports open again: the end came from this import")
    if gone.campaign:
        say("criteria that were learned from it stay: learn them again without it")
