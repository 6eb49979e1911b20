"""The command line: one verb, one file. Heavy packages load inside the verbs that need them."""

from __future__ import annotations

import os
import sys

import typer

from anubis import __version__
from anubis.cli import accept, bench, doctor, judge, learn, report, validate
from anubis.core.errors import AnubisError

app = typer.Typer(
    name="anubis",
    help="Keeps GPU clusters fit for work: measures nodes, learns what normal is, names the bad.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all healthy, 1 at least one node defective, 2 no verdict.",
)
app.command(help=accept.HELP)(accept.accept)
app.command(help=validate.HELP)(validate.validate)
app.command(help=learn.HELP)(learn.learn)
app.command(help=judge.HELP)(judge.judge)
app.command(help=report.HELP)(report.report)
app.add_typer(bench.app, name="bench")
app.command(help=doctor.HELP)(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        print(f"anubis {__version__}")
        raise typer.Exit


def main() -> None:
    """Every error a user can act on is one line and its exit code; a traceback is our bug."""
    try:
        app()
    except AnubisError as error:
        print(f"anubis: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(2)
    except BrokenPipeError:  # `anubis ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
