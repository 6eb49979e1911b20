"""Run a program alone on this machine: does it keep the contract, and what is outside the limits of
a policy? And find the fewest warm-up and measured steps of a program that still repeat, and write a
suite with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anubis.config import catalog, configs
from anubis.core.errors import (
    ConfigError,
    ContractError,
    OutputError,
    UsageError,
    did_you_mean,
    named_by_request,
)
from anubis.core.judge.limits import sentences_outside
from anubis.core.judge.tuning import Tuned
from anubis.core.judge.tuning import tune as search
from anubis.core.judge.units import Units, latest_executions, units
from anubis.core.records import BenchmarkSpec, Campaign, CriterionKey, ParameterValue, Result, Suite
from anubis.core.text import escape_line
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.history import finished_campaign
from anubis.operations.requests import TuneRequest
from anubis.operations.yaml_edits import retune, snippet
from anubis.reach.executors.guardian import add_library, remove_secrets
from anubis.reach.executors.programs import NOT_APPLICABLE
from anubis.reach.executors.start_settings import Program
from anubis.text import places
from anubis.text.files import put_in_place

SMOKE = ("--smoke",)
LIMIT_S = 600  # a small form takes seconds; loading torch on a cold disk, minutes
LAST_WORDS = 200  # characters


@dataclass(frozen=True, kw_only=True)
class ProgramCheck:
    """A program that keeps the contract."""

    spec: BenchmarkSpec
    result: Result
    unmeasured: tuple[str, ...]  # metrics that it declares and did not measure here


def check_program(file: Path, arguments: Sequence[str] = SMOKE) -> ProgramCheck:
    """Check that a program keeps the contract; an error names the field, or what else breaks it."""
    file = file.absolute()
    with named_by_request():
        spec = catalog.describe(file)
        program = Program(file=file, spec=spec, library=places.shipped_folder("benchmarks"))
        result = _measure(program, arguments)
    measured = {series.metric.partition(":")[0] for series in result.series}
    unmeasured = tuple(m.name for m in program.spec.metrics if m.name not in measured)
    return ProgramCheck(spec=program.spec, result=result, unmeasured=unmeasured)


def outside_limits(
    name: str,
    policy: str = "default",
    arguments: Sequence[str] = (),
    *,
    benchmarks: Sequence[Path] = (),
) -> tuple[str, ...]:
    """Run a benchmark here, alone, and return a sentence for each device that is outside a limit of
    the policy or gave no answer. Nothing is kept, and no verdict is changed."""
    limits = configs.policy(policy).limits
    programs = catalog.load(catalog.folders(benchmarks), required={name})
    program = catalog.find(name, programs)
    result = _measure(program, arguments)
    silent = tuple(f"{device}: {why}" for device, why in result.unanswered.items())
    return (*silent, *sentences_outside(result, program.spec, limits))


def _measure(program: Program, arguments: Sequence[str]) -> Result:
    command = f'"{program.file}" {" ".join(arguments)}'.strip()
    try:
        run = subprocess.run(
            [*program.argv(sys.executable), *arguments],
            env=add_library(remove_secrets(os.environ), str(program.library or "")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ContractError(f"{command}: no answer within {LIMIT_S} s") from None
    except OSError as error:
        raise ContractError(f"{command}: could not be run: {error.strerror}") from None
    words = escape_line(" ".join(run.stderr.splitlines()[-1:]))[:LAST_WORDS]
    if not run.stdout.strip():
        raise ContractError(
            f"{command}: exited with {run.returncode} and wrote no document to stdout"
            + (f"; last words on stderr: {words}" if words else "")
        )
    try:
        result = catalog.parse_result(run.stdout, program.spec)
    except ContractError as error:
        raise ContractError(f"{command}: {error}") from None
    for (metric, device), number in result.cut_short.items():
        raise ContractError(
            f"{command}: {metric} of {device} has fewer samples than {number}, which were ordered"
        )
    expected = NOT_APPLICABLE if result.not_applicable else 0
    if run.returncode != expected:
        document = '"not_applicable" has a reason' if expected else "something was measured"
        raise ContractError(
            f"{command}: exited with {run.returncode}, expected {expected}, as {document}"
        )
    return result


STEPS = ("steps", "samples")  # names of the parameter in programs; the first declared one is used
WARMUP = "warmup"


@dataclass(frozen=True)
class TuningRow:
    """The result for one workload on one sku, and the parameters for a suite."""

    key: CriterionKey
    series: int
    tuned: Tuned
    settings: dict[str, ParameterValue]
    unsettable: str  # why a suite cannot set it; "" if it can


@dataclass(frozen=True, kw_only=True)
class Tuning:
    campaign: Campaign
    rows: tuple[TuningRow, ...]


def tune(request: TuneRequest, caller: Caller = NO_CALLER) -> Tuning:
    """Tune from the samples of a campaign, by default the latest, measured with many steps."""
    with caller.history() as history:
        source = finished_campaign(history, request.campaign)
        measured = units(latest_executions(history.executions.read(source.id)), source.plan)
    rows = [_row(alike, source) for alike in _step_series(measured, request.benchmark, source)]
    return Tuning(campaign=source, rows=tuple(rows))


def _step_series(measured: Iterable[Units], benchmark: str, campaign: Campaign) -> list[Units]:
    """The comparable units of each workload and sku, by the metric with the most samples."""
    names = {entry.workload.benchmark for phase in campaign.plan.phases for entry in phase.entries}
    if benchmark not in names:
        hint = did_you_mean(benchmark, names)
        raise UsageError(f'campaign {campaign.id} did not run "{benchmark}"; {hint}')
    series = [
        alike
        for alike in measured
        if alike.key.workload.benchmark == benchmark and alike.metric.judged_by == "fleet"
    ]
    if not series:
        raise UsageError(f'campaign {campaign.id} measured nothing of "{benchmark}"')
    if any(campaign.plan.spec(alike.key.workload).scope != "node" for alike in series):
        raise UsageError(
            f'"{benchmark}" is run by several nodes together; only a benchmark that each node runs '
            "by itself can be tuned"
        )
    longest: dict[tuple[object, ...], Units] = {}
    for alike in series:
        kind = (alike.key.sku, alike.key.workload, alike.key.device_kind)
        if kind not in longest or _samples(alike) > _samples(longest[kind]):
            longest[kind] = alike
    return list(longest.values())


def _samples(alike: Units) -> int:
    return max(repeat.size for repeat in alike.repeats)


def _row(alike: Units, campaign: Campaign) -> TuningRow:
    key, metric, series = alike.key, alike.metric, alike.repeats
    tuned = search(series, key=key, metric=metric, policy=campaign.policy)
    spec = campaign.plan.spec(key.workload)
    declared = {parameter.name for parameter in spec.parameters}
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


# --- the suite that asks for it --------------------------------------------------------------


def write_suite(tuning: Tuning, path: Path, suite: str | None = None) -> None:
    """Write the suite, but only if the entry is certain and nothing else in the suite changes."""
    row, campaign = _settable(tuning), tuning.campaign
    source = _source(path, suite, campaign)
    before = configs.suite(str(source.absolute()))
    position = _position(before, row, str(source), campaign)
    old = before.benchmarks[position]
    entry = replace(old, parameters={**old.parameters, **row.settings})
    expected = (*before.benchmarks[:position], entry, *before.benchmarks[position + 1 :])
    draft = path.with_name(f".{path.name}.{os.getpid()}.yaml")
    try:
        text = retune(source.read_text(encoding="utf-8"), position, row.settings)
        draft.write_text(text, encoding="utf-8")
        if not _reads_as(draft, replace(before, benchmarks=expected)):
            raise OutputError(
                f'the entry cannot be changed in the text of "{source}"; put this into it: '
                + snippet(entry.parameters)
            )
        put_in_place(draft, path)
    except OSError as error:
        raise OutputError(f'cannot write the suite "{path}": {error.strerror}') from None
    finally:
        draft.unlink(missing_ok=True)


def _settable(tuning: Tuning) -> TuningRow:
    if len(tuning.rows) != 1:
        raise UsageError(
            f"campaign {tuning.campaign.id} has {len(tuning.rows)} workloads or skus of this "
            "benchmark, each with parameters of its own; a suite is written from a campaign with "
            "one"
        )
    (row,) = tuning.rows
    if row.tuned.refusal:
        raise OutputError(f"nothing to write: {row.tuned.refusal}")
    if row.unsettable:
        raise OutputError(f"nothing was written: {row.unsettable}")
    return row


def _source(path: Path, suite: str | None, campaign: Campaign) -> Path:
    """The suite to begin with."""
    if suite and path.exists() and path.resolve() != configs.find("suites", suite).resolve():
        raise UsageError(f'"{path}" exists; name another file, or leave out --suite to change it')
    own = str(path.absolute()) if path.exists() else campaign.plan.suite
    return configs.find("suites", suite or own)


def _reads_as(draft: Path, expected: Suite) -> bool:
    try:
        return configs.suite(str(draft.absolute())).benchmarks == expected.benchmarks
    except ConfigError:
        return False


def _position(suite: Suite, row: TuningRow, source: str, campaign: Campaign) -> int:
    """Position of the entry that runs this workload, apart from the tuned parameters."""
    spec = campaign.plan.spec(row.key.workload)
    defaults = {parameter.name: parameter.default for parameter in spec.parameters}
    expected = {**row.key.workload.arguments, **row.settings}
    positions = [
        i
        for i, entry in enumerate(suite.benchmarks)
        if entry.benchmark == spec.name
        and {**defaults, **entry.parameters, **row.settings} == expected
    ]
    if len(positions) != 1:
        raise UsageError(
            f'"{source}" has {len(positions)} entries of {spec.name} with the parameters of '
            f"campaign {campaign.id} ({row.key.workload.parameters}), expected one"
        )
    return positions[0]
