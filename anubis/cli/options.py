"""The options of the command line that ask for nothing: how an answer is wanted, what is resumed.

Also those that several verbs share and no request has yet; each is declared once with its help.
"""

# no postponed annotations: `verb` reads them
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from anubis.cli.answer import check_page
from anubis.core.errors import UsageError

Nodes = Annotated[
    str | None,
    typer.Argument(
        metavar="NODES",
        help="Node list: node[01-16], a comma list, or @file. Default: all of the cluster.",
    ),
]
ClusterAsked = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        help="A name under configs/clusters/, or a file. Default: the only cluster that the "
        "history knows, or this machine.",
    ),
]
ClusterVisited = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        help="A name under configs/clusters/, or a file, with `start:`. Each node is asked what it "
        "lacks before Ray is started there.",
    ),
]
ClusterShown = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        metavar="NAME",
        help="A cluster by its name in the history, or by its file. Default: all of them.",
    ),
]
Policy = Annotated[
    str, typer.Option("--policy", "-p", help="A name under configs/policies/, or a file.")
]
WithoutDamaged = Annotated[
    bool,
    typer.Option(
        "--without-damaged",
        help="Leave out executions that are damaged in the history: what they measured is unknown.",
    ),
]
Benchmarks = Annotated[
    list[Path] | None,
    typer.Option(
        "--benchmarks", metavar="DIR", help="Another folder of benchmark programs. May be repeated."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan with its time and node-hours, and run nothing."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON Lines on stdout instead of tables.")]
Why = Annotated[bool, typer.Option("--why", help="All reasons and tables, instead of a few lines.")]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="The file for the HTML report. Default: reports/ in $ANUBIS_HOME.",
    ),
]
JUnit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Also write a JUnit file: a suite for each benchmark, a case for each node. Defective "
        "is a failure, unknown an error, not applicable skipped.",
    ),
]
Nagios = Annotated[
    bool,
    typer.Option(
        "--nagios",
        help="One line with figures, and exit codes for monitoring: 0 OK, 1 warning, 2 critical, "
        "3 unknown.",
    ),
]
HtmlToo = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write an HTML report to this file."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue an interrupted campaign, with its own nodes, suite and policy."
    ),
]
Unfinished = Annotated[
    str | None,
    typer.Option(
        "--campaign",
        metavar="ID",
        help="The campaign to resume. Default: the latest interrupted one.",
    ),
]
Campaign = Annotated[
    str | None,
    typer.Option("--campaign", metavar="ID", help="The campaign. Default: the latest one."),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="The folder to write <sku>.json into.")
]


@dataclass(frozen=True, kw_only=True)
class AnswerForms:
    """Forms in which a campaign is wanted: a table, JSON Lines or a line for monitoring on stdout,
    and files."""

    html: Html = None
    junit: JUnit = None
    nagios: Nagios = False
    json: Json = False

    def check(self) -> None:
        """Refuse forms that exclude each other and unwritable files, before minutes of work."""
        if self.json and self.nagios:
            raise UsageError("--json and --nagios exclude each other: give one of them")
        check_page(self.html)
        check_page(self.junit, "--junit")


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Whether a campaign is begun, only planned, or resumed."""

    dry_run: DryRun = False
    resume: Resume = False
    campaign: Unfinished = None

    def check(self) -> None:
        if self.dry_run and self.resume:
            raise UsageError("--dry-run shows the plan of a new campaign: leave out --resume")
        if self.campaign and not self.resume and not self.dry_run:
            raise UsageError("--campaign names the campaign to resume: give --resume as well")
