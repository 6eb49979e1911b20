"""`anubis doctor`: what this node can run, or what nodes lack before Ray is started there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import anubis
from anubis.cli import answer, options
from anubis.cli.terminal import Terminal
from anubis.core.errors import UsageError
from anubis.text import hostlist
from anubis.text.wording import quantity, short_node_list

if TYPE_CHECKING:
    from anubis.operations.doctor import Check
    from anubis.operations.doctor_nodes import NodeCheck


def doctor(
    nodes: options.Nodes = None,
    cluster: options.ClusterVisited = None,
    benchmarks: options.Benchmarks = None,
    json: options.Json = False,
) -> None:
    """Check what this node can run, what is missing and how to get it.

    With --cluster: what each node lacks before Ray is started there, and how to mend it.
    """
    if cluster is not None:
        if benchmarks:
            raise UsageError("--benchmarks examines programs on this node: leave --cluster out")
        _examine_nodes(nodes, cluster, json)
    if nodes:
        raise UsageError("nodes need --cluster, whose file says how they are reached")
    checks = anubis.examine(benchmarks or ())
    if json:
        from anubis.report.documents import CheckLine

        for check in checks:
            answer.write_json("check", CheckLine(**vars(check)))
    else:
        print(_first_line(checks))
        _show((check.state, check.what, _text(check.found, check.advice, "\n")) for check in checks)
    sys.exit(2 if any(check.state == "bad" for check in checks) else 0)


def _examine_nodes(nodes: str | None, cluster: str, json: bool) -> NoReturn:
    checks = anubis.examine_nodes(cluster, hostlist.read(nodes) if nodes else None, Terminal())
    if json:
        from anubis.report.documents import LackFields, NodeCheckLine

        for check in checks:
            line = NodeCheckLine(
                node=check.node,
                state="good" if check.is_ready else "bad",
                found=check.found,
                lacks=[LackFields(**vars(lack)) for lack in check.lacks],
            )
            answer.write_json("node-check", line)
    else:
        print(_first_line_of_nodes(checks))
        _show(map(_row, sorted(checks, key=lambda check: check.is_ready)))
    sys.exit(0 if all(check.is_ready for check in checks) else 2)


def _show(rows: Iterable[tuple[str, str, str]]) -> None:
    """Write rows of state, name, and what was found."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for state, name, text in rows:
        mark = {"good": "[green]✓", "missing": "[yellow]-", "bad": "[bold red]✗"}[state]
        table.add_row(mark, name, text)
    answer.screen().print(table)


def _text(words: str, advice: str, between: str) -> str:
    from rich.markup import escape

    return f"{escape(words)}{between}[dim]{escape(advice)}[/dim]" if advice else escape(words)


def _row(check: NodeCheck) -> tuple[str, str, str]:
    if check.is_ready:
        return "good", check.node, _text(check.found, "", "")
    lacks = (_text(f"{lack.what}: {lack.found}", lack.advice, ": ") for lack in check.lacks)
    return "bad", check.node, "; ".join(lacks)


def _first_line_of_nodes(checks: Sequence[NodeCheck]) -> str:
    lacking = [check.node for check in checks if not check.is_ready]
    trouble = f"mend first: {short_node_list(lacking)}" if lacking else "nothing is missing"
    return (
        f"{len(checks) - len(lacking)} of {quantity(len(checks), 'node')} can be tested; {trouble}"
    )


def _first_line(checks: Sequence[Check]) -> str:
    benchmarks = [check for check in checks if check.what.startswith("benchmark ")]
    able = sum(check.state == "good" for check in benchmarks)
    broken = [check.what for check in checks if check.state == "bad"]
    trouble = f"mend first: {', '.join(broken)}" if broken else "nothing is broken"
    return f"this node can run {able} of {len(benchmarks)} benchmarks; {trouble}"
