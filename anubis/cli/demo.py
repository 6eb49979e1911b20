"""`anubis demo`: play every verb once on a simulated cluster, and leave its pages to look at."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli.streams import say, show_status
from anubis.text import places
from anubis.text.wording import quantity

if TYPE_CHECKING:
    from anubis.operations.demo import DemoStep

WIDEST = 100  # columns; wider lines are hard to read
INDENT = "    "


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="The folder to make for it. Default: demo/ in $ANUBIS_HOME. An earlier demo there "
            "is removed.",
        ),
    ] = None,
) -> None:
    """Play every verb once on a simulated cluster with planted faults, within two minutes.

    It has a history of its own: yours is not touched. Exit code 0: each verb found what was
    planted.
    """
    from anubis.operations.demo import STEPS, environment, prepare_demo

    home = (folder or places.home() / "demo").expanduser().resolve()
    began = time.monotonic()
    prepare_demo(home)
    print(f"Nothing here is real: 256 nodes in memory, with planted faults. Files: {home}")
    print("Exit codes: 0 good, 1 something is bad, 2 cannot say.")
    around = environment(os.environ, home) | {"COLUMNS": str(_width())}
    unexpected = [
        f"{number}"
        for number, step in enumerate(STEPS, start=1)
        if not _play(step, f"{number}/{len(STEPS)}", home, around)
    ]
    where = shlex.quote(str(home))
    print(f"\nPlayed in {time.monotonic() - began:.0f} s. What to do now:")
    print(f"{INDENT}look around  ANUBIS_HOME={where} anubis serve   # http://127.0.0.1:8750/")
    print(f"{INDENT}go on        export ANUBIS_HOME={where}   # then any command above")
    print(f"{INDENT}remove it    rm -r {where}", flush=True)
    if unexpected:
        say(f"anubis: error: not as expected: step {', '.join(unexpected)}; see above")
        sys.exit(2)


def _play(step: DemoStep, count: str, home: Path, around: dict[str, str]) -> bool:
    """Run one command and show how its answer begins. Return whether it answered as expected."""
    print(f"\n{count}  {step.title}\n{INDENT}$ anubis {step.command}", flush=True)
    began = time.monotonic()
    show_status(f"{INDENT}…")
    completed = subprocess.run(
        [sys.executable, "-m", "anubis", *step.words],
        cwd=home,
        env=around,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    show_status("")
    for line in _first_lines(step, completed.stdout.splitlines()):
        print(f"{INDENT}{line}".rstrip())
    is_expected = completed.returncode == step.exit_code
    if not is_expected:
        for line in completed.stderr.splitlines():
            print(f"{INDENT}{line}")
    print(
        f"{INDENT}({time.monotonic() - began:.1f} s, exit code {completed.returncode})", flush=True
    )
    return is_expected


def _first_lines(step: DemoStep, lines: Sequence[str]) -> list[str]:
    begin = next((n for n, line in enumerate(lines) if line.startswith(step.since)), 0)
    shown = list(lines[begin : begin + step.shown])
    left = len(lines) - begin - len(shown)
    return [*shown, f"… and {quantity(left, 'more line')}"] if left > 0 else shown


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST) - len(INDENT)
