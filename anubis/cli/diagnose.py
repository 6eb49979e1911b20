"""`anubis diagnose`: why a job hangs, failed or is slow, which node did it, and the lightest
cure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

import anubis
from anubis.cli import answer, options
from anubis.cli.answer import check_page, write_page
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.cli.verb import Leaf, ListedBefore, verb
from anubis.core.errors import UsageError
from anubis.operations.requests import DiagnosisRequest

if TYPE_CHECKING:
    from anubis.core.diagnose.diagnostician import Diagnosis
    from anubis.report.diagnose import DiagnosisView

TRACES = "anubis.traces"  # key of the paths that the options name, by their names


class DiagnoseCommand(Leaf):
    """The verb with an option for each kind of trace; only this verb loads their readers."""

    def get_params(self, ctx: Any) -> list[Any]:
        job, *options = super().get_params(ctx)
        return [job, *trace_options(), *options]


@cache
def trace_options() -> list[Any]:
    from anubis.readers.jobs.trace_reader import trace_readers

    def ask(**_: Path | None) -> None: ...

    kinds = {
        reader.place.replace("-", "_"): Annotated[
            Path | None,
            typer.Option(
                f"--{reader.place}",
                metavar="PATH",
                help=reader.help,
                callback=_keep_place,
                expose_value=False,
            ),
        ]
        for reader in trace_readers().values()
    }
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in kinds.items()
    ]
    ask.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # typer reads both
    ask.__annotations__ = kinds
    app = typer.Typer(add_completion=False)
    app.command()(ask)
    options: list[Any] = get_command(app).params
    return options


def _keep_place(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> None:
    if path:
        context.meta.setdefault(TRACES, {})[option.opts[0].removeprefix("--")] = path


@verb
def diagnose(
    context: typer.Context,
    request: DiagnosisRequest,
    pid: Annotated[
        int | None,
        typer.Option(
            "--pid",
            min=1,
            metavar="PID",
            help="Instead of --live: a process on this machine that is a rank, or started the "
            "ranks. Without the hook, they are examined from outside only.",
        ),
        ListedBefore("cluster"),
    ] = None,
    live_to: Annotated[
        Path | None,
        typer.Option(
            "--live-to",
            metavar="FOLDER",
            help="Only write the answers of this machine's ranks there, as MACHINE.look, or to "
            "the standard output (-). For a job on several machines, --live FOLDER then diagnoses "
            "from all of them.",
        ),
        ListedBefore("cluster"),
    ] = None,
    hook: Annotated[
        Path | None,
        typer.Option(
            "--hook",
            metavar="FOLDER",
            help="Only print what a job's environment needs, so that --live FOLDER can ask it.",
        ),
    ] = None,
    tell: Annotated[
        bool,
        typer.Option("--tell", help="Report suspects to the keeper, which has the nodes tested."),
    ] = False,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    """Say why a job hangs, failed or is slow: culprit, cause, how sure, the lightest cure.

    It reads all traces that are there, and names those that are missing. Exit code 0: the job
    moves, and nothing wrong was seen. 1: a node, a rank or the job itself is named. 2: nothing can
    be named, or nothing shows that the job moves.
    """
    turn_termination_into_interrupt()
    check_page(html)
    if hook:
        _print_hook(hook)
        return
    places: dict[str, Path] = context.meta.get(TRACES, {})
    if pid and "live" in places:
        raise UsageError("--pid and --live exclude each other: give one of them")
    if pid:
        places["live"] = Path("/proc", str(pid))
    if live_to:
        _keep_look(places.get("live"), live_to)
        return
    request = replace(request, places=places)
    caller = Terminal(as_json=json)
    news: tuple[str, ...] = ()
    if tell:
        view, news = anubis.diagnose_and_tell(request, caller)
    else:
        view = anubis.diagnose_job(request, caller)
    if html:
        from anubis.report.diagnosis_pages import diagnosis_page

        write_page(diagnosis_page(view), html)
    _show(view, as_json=json)
    if tell:
        _say_who_was_told(view, news, caller)
    sys.exit(exit_code(view.diagnosis))


def exit_code(diagnosis: Diagnosis) -> int:
    return {"nothing": 0, "named": 1, "unknown": 2}[diagnosis.answer.value]


def _print_hook(folder: Path) -> None:
    """Print the variables for the shell that starts the job."""
    import shlex

    from anubis.readers.jobs.live import FOLDER_VARIABLE, add_hook

    place = folder.absolute()
    path = shlex.quote(add_hook({}, place)["PYTHONPATH"])
    print(f"export PYTHONPATH={path}${{PYTHONPATH:+:$PYTHONPATH}}")
    print(f"export {FOLDER_VARIABLE}={shlex.quote(str(place))}")


def _keep_look(live: Path | None, folder: Path) -> None:
    if live is None:
        raise UsageError("--live-to needs --live or --pid")
    if str(folder) == "-":
        from anubis.operations.diagnose import look_here

        sys.stdout.buffer.write(look_here(live, Terminal()))
    else:
        print(anubis.keep_look(live, folder, Terminal()))


def _show(view: DiagnosisView, *, as_json: bool) -> None:
    from anubis.report import diagnose as report

    if as_json:
        answer.write_lines(report.lines(view))
    else:
        report.show(view, answer.screen())


def _say_who_was_told(view: DiagnosisView, news: Sequence[str], caller: Terminal) -> None:
    from anubis.text.wording import short_node_list

    if news:
        caller.remark(f"reported to the keeper: {short_node_list(news)}")
    if earlier := [node for node in view.diagnosis.nodes if node not in news]:
        caller.remark(f"the keeper knows of {short_node_list(earlier)} already")
