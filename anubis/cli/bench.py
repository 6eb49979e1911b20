"""`anubis bench`: the benchmark programs: list them, ask one, run one."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from textwrap import fill
from typing import Annotated

import typer

from anubis.cli import answer, options
from anubis.core.errors import CatalogError

app = typer.Typer(
    name="bench", help="The benchmark programs: list, describe, run.", no_args_is_help=True
)

NEEDS_AT = 52  # the column of a line of the list

Name = Annotated[str, typer.Argument(help="The benchmark's name.")]


@app.command("list", help="All benchmarks with level, scope, needs and typical duration.")
def show_all(benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    from anubis import catalog

    specs = catalog.load(catalog.folders(benchmarks or ())).specs.values()
    if json:
        for spec in specs:
            answer.write_json(asdict(spec))
        return
    from rich.text import Text

    screen = answer.screen()

    def write(words: str, indent: int, style: str = "") -> None:
        screen.print(Text(fill(words, screen.width, subsequent_indent=" " * indent), style=style))

    write(_line("benchmark", "level", "scope", "typical", "needs"), NEEDS_AT, "bold")
    for spec in specs:
        parts = [name for name in ("gpu", "hca") if getattr(spec.needs, name)]
        needs = [*spec.needs.tools, *parts]
        if spec.needs.min_nodes > 1:
            needs.append(f"{spec.needs.min_nodes} nodes")
        elif spec.needs.min_devices > 1:
            needs.append(f"{spec.needs.min_devices} devices")
        name, typical = f"{spec.name}@{spec.version}", f"{spec.duration_s:g} s"
        write(_line(name, spec.level, spec.scope, typical, ", ".join(needs) or "-"), NEEDS_AT)
        write(f"  {spec.summary}", 2, "dim")


def _line(name: str, level: str, scope: str, typical: str, needs: str) -> str:
    return f"{name:<26} {level:<10} {scope:<5} {typical:>7}  {needs}"


@app.command(help="The description of a benchmark.")
def describe(name: Name, benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    from anubis import catalog

    spec = catalog.find(name, catalog.load(catalog.folders(benchmarks or ()))).spec
    if json:
        answer.write_json(asdict(spec))
        return
    from rich.table import Table

    console = answer.screen()
    console.print(f"[bold]{spec.name}@{spec.version}[/bold]  {spec.level}, scope {spec.scope}")
    console.print(spec.summary, markup=False)
    console.print(f"stresses: {spec.stresses}", markup=False)
    console.print(f"reveals:  {spec.reveals}\n", markup=False)
    table = Table("metric", "unit", "better", "what", "ceiling", box=None, pad_edge=False)
    for metric in spec.metrics:
        table.add_row(metric.name, metric.unit, metric.direction, metric.summary, metric.ceiling)
    console.print(table)
    if spec.parameters:
        table = Table("parameter", "type", "default", "what", box=None, pad_edge=False)
        for parameter in spec.parameters:
            default = str(parameter.default)
            table.add_row(f"--{parameter.name}", parameter.type, default, parameter.summary)
        console.print()
        console.print(table)


@app.command(
    help="Run one benchmark here, and print its document. Parameters: --name=value.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def run(context: typer.Context, name: Name, benchmarks: options.Benchmarks = None) -> None:
    from anubis import catalog

    program = catalog.find(name, catalog.load(catalog.folders(benchmarks or ())))
    argv = [*program.argv(sys.executable), *context.args]
    sys.stdout.flush()
    try:
        os.execv(argv[0], argv)  # from here on its signals and its exit code are its own
    except OSError as error:
        raise CatalogError(f'"{program.file}" could not be run: {error.strerror}') from None
