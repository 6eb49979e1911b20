"""Run a program alone on this machine: does it keep the contract, and what is outside the limits of
a policy?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.config import catalog, configs
from anubis.core.errors import ContractError
from anubis.core.judge.limits import sentences_outside
from anubis.core.records import BenchmarkSpec, Result
from anubis.core.text import escape_line
from anubis.reach.executors.guardian import add_library, remove_secrets
from anubis.reach.executors.programs import NOT_APPLICABLE, missing_answers
from anubis.reach.executors.start_settings import Program
from anubis.text import places

SMOKE = ("--smoke",)
LIMIT_S = 600  # a small form takes seconds; loading torch on a cold disk, minutes
LAST_WORDS = 200  # characters


@dataclass(frozen=True, kw_only=True)
class ProgramCheck:
    """A program that keeps the contract."""

    spec: BenchmarkSpec
    result: Result
    unmeasured: tuple[str, ...]  # metrics that it declares and did not measure here


def check_program(
    file: Path, arguments: Sequence[str] = SMOKE, *, limit_s: float = LIMIT_S
) -> ProgramCheck:
    """Check that a program keeps the contract; an error names the field, or what else breaks it."""
    file = file.absolute()
    program = Program(
        file=file, spec=catalog.describe(file), library=places.shipped_folder("benchmarks")
    )
    result = _measure(program, arguments, limit_s)
    measured = {series.metric.partition(":")[0] for series in result.series}
    unmeasured = tuple(m.name for m in program.spec.metrics if m.name not in measured)
    return ProgramCheck(spec=program.spec, result=result, unmeasured=unmeasured)


def outside_limits(
    name: str,
    policy: str = "default",
    arguments: Sequence[str] = (),
    *,
    benchmarks: Sequence[Path] = (),
    limit_s: float = LIMIT_S,
) -> tuple[str, ...]:
    """Run a benchmark here, alone, and return a sentence for each device that is outside a limit of
    the policy or gave no answer. Nothing is kept, and no verdict is changed."""
    limits = configs.policy(policy).limits
    programs = catalog.load(catalog.folders(benchmarks), required={name})
    program = catalog.find(name, programs)
    result = _measure(program, arguments, limit_s)
    silent = missing_answers(result)
    return (*silent, *sentences_outside(result, program.spec, limits))


def _measure(program: Program, arguments: Sequence[str], limit_s: float) -> Result:
    command = f'"{program.file}" {" ".join(arguments)}'.strip()
    try:
        run = subprocess.run(
            [*program.argv(sys.executable), *arguments],
            env=add_library(remove_secrets(os.environ), str(program.library or "")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise ContractError(f"{command}: no answer within {limit_s:g} s") from None
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
    expected = NOT_APPLICABLE if result.not_applicable else 0
    if run.returncode != expected:
        document = '"not_applicable" has a reason' if expected else "something was measured"
        raise ContractError(
            f"{command}: exited with {run.returncode}, expected {expected}, as {document}"
        )
    return result
