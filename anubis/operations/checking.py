"""Whether a program of one's own keeps the contract: what it says of itself, what it measures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis import catalog, places
from anubis.core.errors import ContractError
from anubis.core.records import BenchmarkSpec, Result
from anubis.core.text import one_line
from anubis.executors.guardian import with_library, without_secrets
from anubis.executors.programs import NOT_APPLICABLE
from anubis.executors.starting import Program

SMOKE = ("--smoke",)
LIMIT_S = 600
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
    """Raises with a sentence that names the field, or whatever else breaks the contract."""
    file = file.absolute()
    spec = catalog.describe(file)
    command = f'"{file}" {" ".join(arguments)}'
    argv = [*Program(file=file, spec=spec).argv(sys.executable), *arguments]
    library = str(places.shipped("benchmarks").absolute())
    try:
        run = subprocess.run(
            argv,
            env=with_library(without_secrets(os.environ), library),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise ContractError(f"{command}: no answer within {limit_s:g} s") from None
    words = one_line(" ".join(run.stderr.splitlines()[-1:]))[:LAST_WORDS]
    if not run.stdout.strip():
        raise ContractError(
            f"{command}: exited with {run.returncode} and wrote no document to stdout"
            + (f"; last words on stderr: {words}" if words else "")
        )
    try:
        result = catalog.parse_result(run.stdout, spec)
    except ContractError as error:
        raise ContractError(f"{command}: {error}") from None
    expected = NOT_APPLICABLE if result.not_applicable else 0
    if run.returncode != expected:
        document = '"not_applicable" has a reason' if expected else "something was measured"
        raise ContractError(
            f"{command}: exited with {run.returncode}, expected {expected}, as {document}"
        )
    measured = {series.metric.partition(":")[0] for series in result.series}
    unmeasured = tuple(m.name for m in spec.metrics if m.name not in measured)
    return ProgramCheck(spec=spec, result=result, unmeasured=unmeasured)
