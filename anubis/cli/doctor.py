"""`anubis doctor`: what this node can run, what is missing, and how to get it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import anubis
from anubis.cli import answer, options

if TYPE_CHECKING:
    from anubis.operations.examining import Check


def doctor(benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    """What this node can run, what is missing and how to get it."""
    checks = anubis.examine(benchmarks or ())
    if json:
        for check in checks:
            answer.write_json("check", asdict(check))
    else:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in checks:
            mark = {"good": "[green]✓", "missing": "[yellow]-", "bad": "[bold red]✗"}[check.state]
            advice = f"\n[dim]{check.advice}[/dim]" if check.advice else ""
            table.add_row(mark, check.what, f"{check.found}{advice}")
        print(_first_line(checks))
        answer.screen().print(table)
    sys.exit(2 if any(check.state == "bad" for check in checks) else 0)


def _first_line(checks: Sequence[Check]) -> str:
    benchmarks = [check for check in checks if check.what.startswith("benchmark ")]
    able = sum(check.state == "good" for check in benchmarks)
    broken = [check.what for check in checks if check.state == "bad"]
    trouble = f"mend first: {', '.join(broken)}" if broken else "nothing is broken"
    return f"this node can run {able} of {len(benchmarks)} benchmarks; {trouble}"
