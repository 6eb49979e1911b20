"""`anubis nodes`: the nodes of a cluster as they are now."""

from __future__ import annotations

import time

from anubis.cli import options


def nodes(
    nodes: options.Nodes = None, cluster: options.ClusterAsked = None, json: options.Json = False
) -> None:
    """Show each node as its orchestrator and the history see it.

    Its state and jobs, what keeps it from jobs and why, which campaign measures it, and the last
    verdict."""
    import anubis
    from anubis.cli import amounts, answer
    from anubis.cli.terminal import Terminal
    from anubis.report import nodes as report

    views = anubis.nodes(amounts.nodes(nodes), cluster=cluster, caller=Terminal(as_json=json))
    if json:
        answer.write_lines(report.lines(views))
        return
    answer.write_paragraph(report.headline(views, views[0].cluster if views else cluster or ""))
    if views:
        print()
        # wall clock: shown to a person, decides nothing
        report.show(views, time.time(), answer.screen())
