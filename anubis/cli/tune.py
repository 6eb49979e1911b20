"""`anubis tune`: how few warm-up and measured steps of a benchmark still repeat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anubis.core.judging.tuning import Tuned
    from anubis.core.judging.units import Units
    from anubis.core.records import Campaign, CriterionKey, ParameterValue, Suite

HELP = "Find the fewest warm-up and measured steps of a benchmark that still repeat."
STEPS = ("steps", "samples")  # what programs call the number of them; the first that is declared
WARMUP = "warmup"


@dataclass(frozen=True)
class TuningRow:
    """What was found for one workload on one sku, and how a suite would ask for it."""

    key: CriterionKey
    series: int
    tuned: Tuned
    settings: dict[str, ParameterValue]
    unsettable: str  # why a suite cannot ask for it; "" when it can


def tune(
    benchmark: Annotated[str, typer.Argument(help="The benchmark's name.")],
    campaign: options.Campaign = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            "-s",
            help="The suite that --write begins from. Default: FILE, or the campaign's own.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the suite there, with the parameters found.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    import sys

    from anubis import places
    from anubis.cli import showing
    from anubis.core.judging.units import latest, units
    from anubis.operations.past import finished
    from anubis.store.history import History

    with History.open(places.history_url()) as history:
        found = finished(history, campaign)
        measured = units(latest(history.executions(found.id)), found.plan)
    rows = [_row(alike, found) for alike in _step_series(measured, benchmark, found)]
    if json:
        _print_json(rows)
    else:
        _print_table(rows)
    for row in rows:
        if row.unsettable and not row.tuned.refusal:
            showing.say(f"{row.key.workload}: {row.unsettable}")
    if write:
        _write(write, suite, rows, found)
        showing.say(f"suite: {write}")
    sys.exit(2 if any(row.tuned.refusal for row in rows) else 0)


def _step_series(measured: Iterable[Units], benchmark: str, campaign: Campaign) -> list[Units]:
    """The comparable units of each workload and sku, by the metric with the most samples."""
    from anubis.core.errors import UsageError, did_you_mean

    names = {entry.workload.benchmark for phase in campaign.plan.phases for entry in phase.entries}
    if benchmark not in names:
        hint = did_you_mean(benchmark, names)
        raise UsageError(f'campaign {campaign.id} did not run "{benchmark}"; {hint}')
    found = [
        alike
        for alike in measured
        if alike.key.workload.benchmark == benchmark and alike.metric.judged_by == "fleet"
    ]
    if not found:
        raise UsageError(f'campaign {campaign.id} measured nothing of "{benchmark}"')
    if any(campaign.plan.spec(alike.key.workload).scope != "node" for alike in found):
        raise UsageError(
            f'"{benchmark}" is run by several nodes together; only what each node runs by itself, '
            "step by step, can be tuned"
        )
    most: dict[tuple[object, ...], Units] = {}
    for alike in found:
        kind = (alike.key.sku, alike.key.workload, alike.key.device_kind)
        if kind not in most or _samples(alike) > _samples(most[kind]):
            most[kind] = alike
    return list(most.values())


def _samples(alike: Units) -> int:
    return max(repeat.size for repeat in alike.repeats)


def _row(alike: Units, campaign: Campaign) -> TuningRow:
    from anubis.core.judging.tuning import tune as search

    key, metric, series = alike.key, alike.metric, alike.repeats
    tuned = search(series, key=key, metric=metric, policy=campaign.policy)
    spec = campaign.plan.spec(key.workload)
    declared = {each.name for each in spec.parameters}
    name = next((name for name in STEPS if name in declared), "")
    settings: dict[str, ParameterValue] = {name: tuned.steps} if name else {}
    unsettable = ""
    if not name:
        unsettable = f'the number of steps cannot be set: it declares neither "{STEPS[0]}" nor '
        unsettable += f'"{STEPS[1]}"'
    if WARMUP in declared:
        dropped = int(key.workload.arguments[WARMUP])  # before the first step in the series
        settings[WARMUP] = dropped + tuned.warmup
    elif tuned.warmup:
        unsettable = f'the warm-up of {tuned.warmup} cannot be set: it declares no "{WARMUP}"'
    return TuningRow(key, len(series), tuned, settings, unsettable)


def _print_json(rows: Iterable[TuningRow]) -> None:
    from dataclasses import asdict
    from json import dumps

    for row in rows:
        key = row.key
        print(
            dumps(
                {
                    "type": "tuning",
                    "benchmark": key.workload.benchmark,
                    "version": key.workload.version,
                    "measured_with": key.workload.arguments,
                    "metric": key.metric,
                    "sku": key.sku,
                    "device": key.device_kind,
                    "series": row.series,
                    **asdict(row.tuned),
                    "parameters": {} if row.tuned.refusal else row.settings,
                    "unsettable": row.unsettable,
                }
            )
        )


def _print_table(rows: Iterable[TuningRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("benchmark", overflow="fold")
    for heading in ("steps", "period", "warm-up + steps", "repeatability", "saved"):
        table.add_column(heading, justify="right", no_wrap=True)
    console = Console(highlight=False)
    notes = []
    for row in rows:
        key, tuned = row.key, row.tuned
        name = f"{key.workload} {key.metric}"
        if tuned.refusal:
            now = _shown(tuned.fixed_repeatability)
            table.add_row(name, str(tuned.fixed_steps), "-", "-", now, "-")
            notes.append(f"{name} on {key.sku}: {tuned.refusal}")
        else:
            table.add_row(
                name,
                str(tuned.fixed_steps),
                str(tuned.period) if tuned.period > 1 else "-",
                f"{tuned.warmup} + {tuned.steps}",
                f"{_shown(tuned.fixed_repeatability)} → {_shown(tuned.repeatability)}",
                f"{tuned.time_saved:.0%}",
            )
    console.print(table)
    for note in notes:
        console.print(f"\n{note}", markup=False)


def _shown(repeatability: float | None) -> str:
    return "-" if repeatability is None else f"{repeatability:.3f}"


def _write(path: Path, suite: str | None, rows: Sequence[TuningRow], campaign: Campaign) -> None:
    """Only if it is certain which entry is meant and that nothing else of the suite changes."""
    import os
    from dataclasses import replace

    from anubis import config
    from anubis.cli.suite_text import retuned, snippet
    from anubis.core.errors import ConfigError, UsageError

    if len(rows) != 1:
        raise UsageError(
            f"campaign {campaign.id} has {len(rows)} workloads or skus of this benchmark, each "
            "with parameters of its own; a suite is written from a campaign with one"
        )
    (row,) = rows
    if row.tuned.refusal:
        raise UsageError(f"nothing to write: {row.tuned.refusal}")
    if row.unsettable:
        raise UsageError(f"nothing was written: {row.unsettable}")
    if suite and path.exists() and path.resolve() != config.find("suites", suite).resolve():
        raise UsageError(f'"{path}" exists; name another file, or leave out --suite to change it')
    own = str(path.absolute()) if path.exists() else campaign.plan.suite
    source = config.find("suites", suite or own)
    before = config.suite(str(source.absolute()))
    position = _position(before, row, str(source), campaign)
    old = before.benchmarks[position]
    entry = replace(old, parameters={**old.parameters, **row.settings})
    wanted = (*before.benchmarks[:position], entry, *before.benchmarks[position + 1 :])
    draft = path.with_name(f".{path.name}.{os.getpid()}.yaml")
    try:
        text = retuned(source.read_text(encoding="utf-8"), position, row.settings)
        draft.write_text(text, encoding="utf-8")
        try:
            changed = config.suite(str(draft.absolute())).benchmarks == wanted
        except ConfigError:
            changed = False
        if not changed:
            raise UsageError(
                f'the entry cannot be changed in the text of "{source}"; put this into it: '
                + snippet(entry.parameters)
            )
        draft.replace(path)
    except OSError as error:
        raise UsageError(f'cannot write the suite "{path}": {error.strerror}') from None
    finally:
        draft.unlink(missing_ok=True)


def _position(suite: Suite, row: TuningRow, source: str, campaign: Campaign) -> int:
    """The entry that runs this workload but for the parameters that were tuned."""
    from anubis.core.errors import UsageError

    spec = campaign.plan.spec(row.key.workload)
    defaults = {each.name: each.default for each in spec.parameters}
    asked = {**row.key.workload.arguments, **row.settings}
    found = [
        i
        for i, entry in enumerate(suite.benchmarks)
        if entry.benchmark == spec.name
        and {**defaults, **entry.parameters, **row.settings} == asked
    ]
    if len(found) != 1:
        raise UsageError(
            f'"{source}" has {len(found)} entries of {spec.name} with the parameters of campaign '
            f"{campaign.id} ({row.key.workload.parameters}), expected one"
        )
    return found[0]
