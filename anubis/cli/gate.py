"""`anubis gate`: are these nodes good for a job? By history, or by chosen tests."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anubis.operations.gating import GateResult

HELP = "Say whether nodes are good for a job: by history, or by the tests worth their time."
LINKS_NAMED = 3  # bad links that a sentence names


def gate(
    nodes: options.NodesNamed,
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="How long the job runs: 90m, 24h, 2d.")
    ],
    on_unknown: Annotated[
        str,
        typer.Option(
            "--on-unknown",
            metavar="pass|fail",
            help="Whether a node passes that no test could judge.",
        ),
    ] = "fail",
    cluster: options.Cluster = "local",
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    criteria: options.Criteria = None,
    benchmarks: options.Benchmarks = None,
    budget: options.TestBudget = None,
    together: options.Together = False,
    json: options.Json = False,
) -> None:
    import sys

    from anubis.cli import amounts
    from anubis.cli.showing import EXIT_CODES
    from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
    from anubis.operations.deciding import Terms
    from anubis.operations.gating import GateRequest
    from anubis.operations.gating import gate as answer

    request = GateRequest(
        nodes=amounts.named(nodes),
        duration_s=amounts.duration_s(duration, "--duration"),
        unknown_passes=amounts.one_of("--on-unknown", on_unknown, ("pass", "fail")) == "pass",
        terms=Terms(
            suite=suite,
            policy=policy,
            benchmarks=tuple(benchmarks or ()),
            budget=amounts.budget(budget),
            together=together,
        ),
        cluster=cluster,
        criteria=criteria,
    )
    turn_termination_into_interrupt()
    result = answer(request, Terminal(as_json=json))
    print(_document(result) if json else _sentence(result))
    sys.exit(EXIT_CODES[result.judgement])


def _document(result: GateResult) -> str:
    import json

    from anubis.core.records import Judgement

    document = {
        "type": "gate",
        "answer": result.answer,
        "defective": result.named(Judgement.DEFECTIVE),
        "links": [{"nodes": nodes, "reason": why} for nodes, why in result.links.items()],
        "unknown": result.unknown,
        "unfit": result.unfit,
        "budget_short": result.budget_short,
    }
    return json.dumps(document, ensure_ascii=False)


def _sentence(result: GateResult) -> str:
    from anubis.hostlist import compress

    answer: str = result.answer
    if answer == "no-go" and not result.is_tested:
        answer = "no-go, and nothing was run"
    return f"{answer}: {'; '.join(_reasons(result)) or compress(list(result.judged))}"


def _reasons(result: GateResult) -> Iterator[str]:
    from anubis.core.records import Judgement
    from anubis.hostlist import compress
    from anubis.report.wording import names

    yield from (f"{node}: {why}" for node, why in result.unfit.items())
    defective = [node for node in result.named(Judgement.DEFECTIVE) if node not in result.unfit]
    if defective:
        yield f"defective: {compress(defective)}"
    for nodes, why in islice(result.links.items(), LINKS_NAMED):
        yield f"bad between {names(sorted(nodes))}: {why}"
    if len(result.links) > LINKS_NAMED:
        yield f"bad between {len(result.links) - LINKS_NAMED:,} more groups"
    if result.unknown:
        short = "the budget leaves too much untested"
        yield f"{short if result.budget_short else 'not known to be healthy'}: " + compress(
            result.unknown
        )
