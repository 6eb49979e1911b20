"""`anubis doctor`: what this node can run, what is missing, and how to get it."""

from __future__ import annotations

import sys
from dataclasses import asdict

import anubis
from anubis.cli import answer, options


def doctor(benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    """What this node can run, what is missing and how to get it."""
    checks = anubis.examine(benchmarks or ())
    if json:
        for check in checks:
            answer.write_json(asdict(check))
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
        answer.screen().print(table)
    sys.exit(2 if any(check.state == "bad" for check in checks) else 0)
