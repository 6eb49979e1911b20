"""`anubis bench`: the benchmark programs: list, ask, run, check and tune them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.answer import write_file
from anubis.cli.streams import say
from anubis.cli.verb import verb
from anubis.core.errors import CatalogError, UsageError, did_you_mean
from anubis.operations.requests import TuneRequest

if TYPE_CHECKING:
    from anubis.core.records import BenchmarkSpec, Result
    from anubis.operations.bench import TuningRow
    from anubis.reach.executors.start_settings import Program
    from anubis.report.documents import TuningLine


app = typer.Typer(
    name="bench",
    help="List, describe, run and tune benchmark programs. Begin a new one.",
    no_args_is_help=True,
)

NEEDS_AT = 52  # the column of a line of the list

Name = Annotated[str, typer.Argument(help="The benchmark's name.")]


@app.command("list", help="All benchmarks with level, scope, needs and typical duration.")
def show_all(benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    from anubis.config import catalog

    usable, broken = catalog.load_what_works(catalog.folders(benchmarks or ()))
    specs = usable.specs.values()
    if json:
        for spec in specs:
            answer.write_json("benchmark", spec)
    else:
        _show_list(specs)
    if broken:
        for error in broken[1:]:
            say(f"anubis: error: {error}")
        raise broken[0]


def _show_list(specs: Iterable[BenchmarkSpec]) -> None:
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
    from anubis.config import catalog

    spec = catalog.find(name, catalog.load(catalog.folders(benchmarks or ()))).spec
    if json:
        answer.write_json("benchmark", spec)
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
    if spec.settings:
        table = Table("setting, as text", "what", box=None, pad_edge=False)
        for setting in spec.settings:
            table.add_row(setting.name, setting.summary)
        console.print()
        console.print(table)
    if spec.parameters:
        table = Table("parameter", "type", "default", "what", box=None, pad_edge=False)
        for parameter in spec.parameters:
            default = str(parameter.default)
            table.add_row(f"--{parameter.name}", parameter.type, default, parameter.summary)
        console.print()
        console.print(table)


@app.command(
    help="Run one benchmark here: a table on a terminal, else the document that it writes. "
    "Parameters: --name=value. With --limits: a sentence for each device outside a limit or "
    "without an answer, and exit code 1 if there is one.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def run(
    context: typer.Context,
    name: Name,
    benchmarks: options.Benchmarks = None,
    limits: Annotated[
        str | None,
        typer.Option("--limits", metavar="POLICY", help="Say only what is outside its limits."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The document, on a terminal too.")] = False,
) -> None:
    from anubis.config import catalog
    from anubis.reach.executors.guardian import add_library, remove_secrets

    if limits is not None:
        if json:
            raise UsageError("--limits and --json exclude each other: give one of them")
        _judge_alone(name, limits, context.args, benchmarks or ())
    program = catalog.find(name, catalog.load(catalog.folders(benchmarks or ())))
    _check_words(context.args, program.spec)
    argv = [*program.argv(sys.executable), *context.args]
    environment = add_library(remove_secrets(os.environ), str(program.library or ""))
    sys.stdout.flush()
    try:
        if sys.stdout.isatty() and not json:
            _run_and_show(program, argv, environment)
        else:  # from here on its signals and its exit code are its own
            os.execve(argv[0], argv, environment)
    except OSError as error:
        raise CatalogError(f'"{program.file}" could not be run: {error.strerror}') from None


def _check_words(words: Sequence[str], spec: BenchmarkSpec) -> None:
    """Refuse what no parameter of the program is called."""
    allowed = {f"--{parameter.name}" for parameter in spec.parameters}
    allowed |= {"--describe", "--help", "-h", "--smoke"}
    before = ""
    for word in words:
        is_value = before in allowed and not word.startswith("--")
        if not is_value and word.partition("=")[0] not in allowed:
            raise UsageError(
                f'benchmark "{spec.name}" has no parameter "{word}", expected --name=value;'
                f" {did_you_mean(word.partition('=')[0], allowed)}"
            )
        before = word


def _judge_alone(
    name: str, policy: str, arguments: Sequence[str], benchmarks: Sequence[Path]
) -> NoReturn:
    import anubis
    from anubis.core.records import Judgement

    outside = anubis.outside_limits(name, policy, arguments, benchmarks=benchmarks)
    for sentence in outside:
        print(sentence)
    answer.leave(Judgement.DEFECTIVE if outside else Judgement.HEALTHY)


def _run_and_show(program: Program, argv: list[str], environment: Mapping[str, str]) -> NoReturn:
    from anubis.config import catalog

    program_run = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True)
    if program_run.stdout.strip():
        _show_result(catalog.parse_result(program_run.stdout, program.spec), program.spec)
    sys.exit(program_run.returncode)


def _show_result(result: Result, spec: BenchmarkSpec) -> None:
    import numpy as np

    from anubis.report.screen_tables import add_row, table
    from anubis.text.wording import figure

    if result.not_applicable:
        print(f"not applicable here: {result.not_applicable}")
        return
    units = {metric.name: metric.unit for metric in spec.metrics}
    rows = table("metric", "device", "unit", figures=("median", "least", "most", "samples"))
    for series in result.series:
        samples = series.samples
        numbers = (float(np.median(samples)), float(samples.min()), float(samples.max()))
        unit = units[series.metric.partition(":")[0]]
        add_row(rows, series.metric, series.device, unit, *map(figure, numbers), str(samples.size))
    answer.screen().print(rows)


@app.command(
    help="Check that a program of your own keeps the contract. It describes itself, and measures "
    "with --smoke, or with the parameters given here.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The program, in any language.")],
) -> None:
    import anubis
    from anubis.operations.bench import SMOKE
    from anubis.text.wording import names, quantity

    checked = anubis.check_program(file, context.args or SMOKE)
    spec, result = checked.spec, checked.result
    samples = sum(series.samples.size for series in result.series)
    measured = f"{quantity(len(result.series), 'series', 'series')}, {quantity(samples, 'sample')}"
    if result.not_applicable:
        measured = f"not applicable here: {result.not_applicable}"
    print(f"{spec.name}@{spec.version} keeps the contract: {measured}")
    if checked.unmeasured and not result.not_applicable:
        say(f"declared, and not measured here: {names(checked.unmeasured)}")


@app.command(help="Write a small benchmark that works, in Python or shell, to begin with.")
def new(
    name: Annotated[str, typer.Argument(help="Its name: letters, digits and underscores.")],
    folder: Annotated[
        Path,
        typer.Option(
            "--benchmarks", metavar="DIR", help="The folder of programs to write it into."
        ),
    ] = Path("my-benchmarks"),
    shell: Annotated[
        bool, typer.Option("--shell", help="In shell, which any other language can follow.")
    ] = False,
) -> None:
    from anubis.text import places

    if not name.isidentifier():
        raise UsageError(f'"{name}" is no name for a program: use letters, digits and underscores')
    template = places.shipped_folder("benchmarks") / ("_template.sh" if shell else "_template.py")
    file = folder / f"{name}{template.suffix}"
    if file.exists():
        raise UsageError(f'"{file}" exists already: choose another name')
    write_file(template.read_text(encoding="utf-8").replace("NAME", name), file, "benchmark")
    if shell:
        file.chmod(file.stat().st_mode | 0o100)
    print(f"{file}: change what it measures, then: anubis bench run {name} --benchmarks {folder}")


@app.command()
@verb
def tune(
    request: TuneRequest,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="The suite that --write starts from. Default: FILE, or the campaign's own.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the suite with the tuned parameters to this file.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Find the fewest warm-up and measured steps of a benchmark that still repeat."""
    tuned = anubis.tune(request)
    if json:
        for row in tuned.rows:
            answer.write_json("tuning", row.tuned, _fields(row))
    else:
        _print_table(tuned.rows)
    for row in tuned.rows:
        if row.unsettable and not row.tuned.refusal:
            say(f"{row.key.workload}: {row.unsettable}")
    if write:
        anubis.write_suite(tuned, write, suite)
        say(f"suite: {write}")
    sys.exit(2 if any(row.tuned.refusal for row in tuned.rows) else 0)


def _fields(row: TuningRow) -> TuningLine:
    from anubis.report.documents import TuningLine

    key = row.key
    return TuningLine(
        benchmark=key.workload.benchmark,
        version=key.workload.version,
        measured_with=key.workload.arguments,
        metric=key.metric,
        sku=key.sku,
        device=key.device_kind,
        series=row.series,
        parameters={} if row.tuned.refusal else row.settings,
        unsettable=row.unsettable,
    )


def _print_table(rows: Iterable[TuningRow]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("benchmark", overflow="fold")
    for heading in ("steps", "period", "warm-up + steps", "repeatability", "saved"):
        table.add_column(heading, justify="right", no_wrap=True)
    console = answer.screen()
    notes = []
    for row in rows:
        key, tuned = row.key, row.tuned
        name = f"{key.workload} {key.metric}"
        if tuned.refusal:
            now = _format(tuned.fixed_repeatability)
            table.add_row(name, str(tuned.fixed_steps), "-", "-", now, "-")
            notes.append(f"{name} on {key.sku}: {tuned.refusal}")
        else:
            table.add_row(
                name,
                str(tuned.fixed_steps),
                str(tuned.period) if tuned.period > 1 else "-",
                f"{tuned.warmup} + {tuned.steps}",
                f"{_format(tuned.fixed_repeatability)} → {_format(tuned.repeatability)}",
                f"{tuned.time_saved:.0%}",
            )
    console.print(table)
    for note in notes:
        console.print(f"\n{note}", markup=False)


def _format(repeatability: float | None) -> str:
    return "-" if repeatability is None else f"{repeatability:.3f}"
