"""What all studies share: a small form of each, and one way to say what this machine lacks.

A study prints figures, or attacks what should hold: `.venv/bin/python scripts/studies/NAME`. With
`--smoke` it does so on a tiny input within seconds, which shows that all of it still runs and
nothing else; tests/studies/test_studies.py does that with each. Importing this module lets a study
import what the tests have.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, ParamSpec

P = ParamSpec("P")

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"  # real data, which is beside few checkouts
SMOKE = "--smoke" in sys.argv[1:]
# for verbs, programs and services; as torchrun names the interpreter of its ranks
PYTHON = os.environ.get("PYTHON_EXEC", sys.executable)
KUBERNETES = (
    Path(os.environ.get("ANUBIS_CACHE") or Path.home() / ".cache/anubis-kubernetes") / "bin"
)
PLACES = (  # of programs that may not be on PATH
    "/usr/sbin",
    "/sbin",
    str(KUBERNETES),  # what scripts/build-apiserver makes
    *map(str, Path("/usr/lib/postgresql").glob("*/bin")),
)
LACKING = 69  # the exit code if the machine lacks something: EX_UNAVAILABLE of sysexits.h

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def new_parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options of a study, whose docstring is given. From then on SIGTERM
    ends the study as an error does: it ends its processes and removes its temporary folders."""
    signal.signal(signal.SIGTERM, _end)
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--smoke", action="store_true", help="a tiny input: does all of it run?")
    return made


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def require(*things: str) -> None:
    """End the study with one sentence if this machine lacks one of the things.

    They are programs, "root" or "network namespaces".
    """
    missing = [thing for thing in things if not has(thing)]
    if missing:
        name = Path(sys.argv[0]).name
        print(f"{name}: this machine lacks {', '.join(missing)}", file=sys.stderr)
        sys.exit(LACKING)


def has(thing: str) -> bool:
    """Return whether this machine has a program, "root" or "network namespaces"."""
    if thing == "root":
        return os.geteuid() == 0
    if thing == "network namespaces":
        tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
        return tried.returncode == 0
    return (
        shutil.which(thing, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES])) is not None
    )


class Report:
    """What was expected and what came, line by line."""

    def __init__(self) -> None:
        self.failures = 0

    def line(self, fact: str, is_so: bool, detail: object = "") -> None:
        self.failures += not is_so
        shown = f": {detail}" if detail != "" else ""
        print(f"{'ok  ' if is_so else 'NOT '} {fact}{shown}", flush=True)

    def end(self) -> int:
        """Print the sum; return the exit code."""
        wrong = f"{self.failures} not as they should be"
        print(wrong if self.failures else "all as it should be")
        return int(self.failures > 0)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def seconds(runs: int, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> float:
    """The median time of some calls."""
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        call(*args, **kwargs)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
