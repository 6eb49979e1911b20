"""The command line: its verbs in order, and the sentence for every error that a user can act on,
also for what this machine refuses to any program: rights, disk, memory, open files.

Heavy packages load inside the verbs that need them.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from anubis import __version__
from anubis.cli import bench, criteria, examples, history, import_, risk, token
from anubis.cli.agent import agent
from anubis.cli.demo import demo
from anubis.cli.diagnose import DiagnoseCommand, diagnose
from anubis.cli.doctor import doctor
from anubis.cli.gate import gate
from anubis.cli.keep import TellCommand, actions, keep, tell
from anubis.cli.measure import accept, locate, scan, validate
from anubis.cli.nodes import nodes
from anubis.cli.report import report
from anubis.cli.schema import schema
from anubis.cli.serve import serve
from anubis.cli.streams import HELP, check_answer, open_outlets, say
from anubis.cli.sweep import sweep
from anubis.cli.verb import Family, Leaf, Verbs
from anubis.cli.watch import watch
from anubis.core.errors import INTERRUPTED, MISUSED, AnubisError

app = typer.Typer(
    name="anubis",
    cls=Verbs,
    help="Keeps GPU clusters fit for work: measures nodes, learns what is normal, names what is "
    "not.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": sorted(HELP)},
    epilog="Exit codes: 0 all healthy, 1 at least one node defective, 2 no verdict, "
    "64 wrong usage, 130 interrupted.",
)
PANELS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Test": (accept, validate, scan, locate),
    "Decide": (gate, sweep, risk.app),
    "Keep": (keep, tell),
    "Look": (nodes, report, watch, diagnose, history.app, serve),
    "Set up": (demo, doctor, criteria.app, bench.app, token.app),
}
COMMANDS = {diagnose: DiagnoseCommand, tell: TellCommand}
# started by a service manager, or read once: in the reference, and not among the first words
UNLISTED = (agent, schema)
FAMILIES = (criteria.app, bench.app, risk.app, history.app, import_.app, token.app)


def _finish(family: typer.Typer, path: str = "") -> None:
    """Give the verbs of a family their examples, and what all of them have in common."""
    examples.add_to_help(family.registered_commands, path)
    for command in family.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Leaf


history.app.command()(actions)
for family in FAMILIES:
    family.info.cls = Family
    _finish(family, "history import" if family is import_.app else str(family.info.name))
history.app.add_typer(import_.app)
for panel, entries in PANELS.items():
    for entry in entries:
        if isinstance(entry, typer.Typer):
            app.add_typer(entry, rich_help_panel=panel)
        else:
            app.command(cls=COMMANDS.get(entry), rich_help_panel=panel)(entry)
for verb in UNLISTED:
    app.command(hidden=True)(verb)
_finish(app)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", "-V", help="Print the version."),
) -> None:
    if version:
        print(f"anubis {__version__}")
        raise typer.Exit


# Python collects garbage after this many new objects; its default is 700. A gate makes 220,000 that
# live to its end; to scan them twice took a tenth of its time.
UNCOLLECTED = 1_000_000
PRIVATE = 0o077  # history, criteria and pages describe a site: no new file is readable by others


def main() -> None:
    gc.set_threshold(UNCOLLECTED)
    os.umask(os.umask(PRIVATE) | PRIVATE)
    open_outlets()
    try:
        sys.exit(run())
    finally:
        gc.freeze()  # no last garbage collection: it took a fifth of a gate


@cache
def command() -> Any:
    """The command of all verbs, built once for callers that run several in one process."""
    return get_command(app)


def run() -> int:
    """Run the command line: one line for every error that a user can act on; a traceback is our
    bug, and no verdict."""
    try:
        try:
            code = command()(prog_name="anubis", standalone_mode=False)
        finally:
            check_answer()
    except AnubisError as error:
        return fail(str(error), error.exit_code)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's usage errors; it keeps their class private
            return fail(usage_sentence(error), MISUSED)
        if sentence := machine_sentence(error):
            return fail(sentence, 2)
        traceback.print_exc()
        return fail("this is a bug in Anubis, and no verdict; please report the lines above", 2)
    # typer makes the same code of a KeyboardInterrupt
    return fail("interrupted", INTERRUPTED) if code == INTERRUPTED else code or 0


def fail(reason: str, code: int) -> int:
    if "--nagios" in sys.argv:
        from anubis.cli import nagios

        return nagios.fail(reason)
    if reason:
        say(f"anubis: error: {' '.join(reason.split())}")
    return code


REFUSED = re.compile(r"Invalid value for '(.+)': Input should be (?:a valid (\w+).*|(.+))")


def usage_sentence(error: Any) -> str:
    """Typer's error in our words; empty if Typer has just printed the help."""
    message = error.format_message().strip().removesuffix(".")
    if not message:
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "anubis"
    takes_nodes = context and any(parameter.name == "nodes" for parameter in context.command.params)
    if takes_nodes and "extra argument" in message:
        message += ": several nodes are one word, with commas between them"
    if refused := REFUSED.fullmatch(message):
        option, kind, limits = refused.groups()
        number = "a whole number" if kind == "integer" else "a number"
        message = f"{option}: expected {number}{f' {limits}' if limits else ''}"
    return f"{message[0].lower()}{message[1:]} (see {path} --help)"


NOT_YOURS = "this user may not look there; name another place, or ask its owner"
FULL = "free some space there, then run it again"
FAILING = "the disk or its server fails: see dmesg"
FILES = "allow more open files (ulimit -n), then run it again"
MEMORY = "free some memory, or allow this user more of it (ulimit -v), then run it again"
ADVICE = {
    errno.EACCES: NOT_YOURS,
    errno.EPERM: NOT_YOURS,
    errno.EROFS: "nothing can be written there: name another place",
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.ENOTDIR: "correct the path: a part of it is a file",
    errno.ENAMETOOLONG: "name it shorter",
    errno.ELOOP: "correct the links there, which lead in a circle",
    errno.EIO: FAILING,
    errno.ESTALE: FAILING,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.ENOMEM: MEMORY,
    errno.EAGAIN: "this user may start no more processes: see ulimit -u",
}


def machine_sentence(error: Exception) -> str:
    """Return the sentence, or nothing for an error of another kind, which is a bug of ours."""
    if isinstance(error, MemoryError):
        return f"out of memory: {MEMORY}"
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOENT and not error.filename:
        return _sentence_for_a_lost_folder(str(error.strerror))
    if not (advice := ADVICE.get(error.errno or 0)):
        return ""
    where = f'"{error.filename}": ' if error.filename else ""
    return f"{where}{str(error.strerror).lower()}: {advice}"


def _sentence_for_a_lost_folder(reason: str) -> str:
    if "temporary" in reason:
        return f"{reason}: free some space there, or name another folder in TMPDIR"
    with suppress(FileNotFoundError):
        Path.cwd()
        return ""
    return "the folder in which this was started is gone: change to another (cd)"
