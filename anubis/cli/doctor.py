"""`anubis doctor`: what this node can run, what is missing, and how to get it."""

from __future__ import annotations

from anubis.cli import options

HELP = "What this node can run, what is missing and how to get it."


def doctor(benchmarks: options.Benchmarks = None, json: options.Json = False) -> None:
    import sys
    from dataclasses import asdict
    from json import dumps

    from anubis import catalog
    from anubis.cli.checkup import examine

    findings = list(examine(catalog.load(catalog.folders(benchmarks or ()))))
    if json:
        for finding in findings:
            print(dumps(asdict(finding)))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            mark = {"good": "[green]✓", "missing": "[yellow]-", "bad": "[bold red]✗"}[finding.state]
            advice = f"\n[dim]{finding.advice}[/dim]" if finding.advice else ""
            table.add_row(mark, finding.what, f"{finding.found}{advice}")
        Console(highlight=False).print(table)
    sys.exit(2 if any(finding.state == "bad" for finding in findings) else 0)
