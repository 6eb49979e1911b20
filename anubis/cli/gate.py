"""`anubis gate`: are these nodes good for a job of that length? By history, or by a chosen test."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anubis.cli.selecting import Found
    from anubis.selector import Past

HELP = "Say whether nodes are good for a job: by history, or by the tests worth their time."
LINKS_NAMED = 3  # bad links that a sentence names


def gate(
    nodes: options.NodesNamed,
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="Of the job: 90m, 24h, 2d.")
    ],
    on_unknown: Annotated[
        str,
        typer.Option(
            "--on-unknown",
            metavar="pass|fail",
            help="Whether a node may pass that a test could not judge.",
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
    from anubis.cli import amounts, selecting
    from anubis.core.choosing.decision import JobAllocated

    lenient = selecting.one_of("--on-unknown", on_unknown, ("pass", "fail")) == "pass"
    request = selecting.Request(
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
        budget=amounts.budget(budget),
        together=together,
        json=json,
    )
    order = request.order(nodes, cluster, criteria)
    job = JobAllocated(
        nodes=selecting.named(nodes), duration_s=amounts.duration_s(duration, "--duration")
    )
    answer = selecting.decide(request, lambda past, history: job)
    unfit = {node: why for node in job.nodes if (why := answer.past.unfit.get(node))}
    found = _known(answer.past, job.nodes, unfit)
    may_run = not unfit and not found.links
    if may_run:
        tested = selecting.carry_out(answer.decision, order)
        found = selecting.Found(judged={**found.judged, **tested.judged}, links=tested.links)
    short = budget is not None and answer.decision.remaining > answer.decision.p0
    if short:
        found = selecting.doubted(found)
    _tell(found, unfit, ran=may_run, short=short, as_json=json, lenient=lenient)
    selecting.leave(found, unknown_passes=lenient)


def _known(past: Past, nodes: tuple[str, ...], unfit: Mapping[str, str]) -> Found:
    """By the history alone."""
    from anubis.cli.selecting import Found
    from anubis.core.records import Judgement

    passed = {
        node: Judgement.HEALTHY if past.passed.get(node) else Judgement.UNKNOWN for node in nodes
    }
    links = {
        each.nodes: f"{each.benchmark} was defective in campaign {each.campaign}"
        for each in past.links_among(nodes)
    }
    return Found(judged=passed | dict.fromkeys(unfit, Judgement.DEFECTIVE), links=links)


def _tell(
    found: Found,
    unfit: Mapping[str, str],
    *,
    ran: bool,
    short: bool,
    as_json: bool,
    lenient: bool,
) -> None:
    import json

    from anubis.core.records import Judgement

    defective = found.those(Judgement.DEFECTIVE)
    known = {*defective, *found.those(Judgement.HEALTHY)}
    unknown = [node for node in found.judged if node not in known]
    bad = bool(defective or found.links)
    answer = "no-go" if bad else "unknown" if unknown and not lenient else "go"
    if as_json:
        document = {
            "type": "gate",
            "answer": answer,
            "defective": defective,
            "links": [{"nodes": nodes, "reason": why} for nodes, why in found.links.items()],
            "unknown": unknown,
            "unfit": unfit,
            "budget_short": short,
        }
        print(json.dumps(document, ensure_ascii=False))
        return
    from anubis.hostlist import compress
    from anubis.report.wording import names

    if answer == "no-go" and not ran:
        answer = "no-go, and nothing was run"
    told = [f"{node}: {why}" for node, why in unfit.items()]
    if here := [node for node in defective if node not in unfit]:
        told.append(f"defective: {compress(here)}")
    for nodes, why in islice(found.links.items(), LINKS_NAMED):
        told.append(f"bad between {names(sorted(nodes))}: {why}")
    if len(found.links) > LINKS_NAMED:
        told.append(f"bad between {len(found.links) - LINKS_NAMED:,} more groups")
    if unknown:
        why = "the budget leaves too much untested" if short else "not known to be healthy"
        told.append(f"{why}: {compress(unknown)}")
    print(f"{answer}: {'; '.join(told) or compress(list(found.judged))}")
