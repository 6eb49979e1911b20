"""`anubis gate`: are these nodes good for a job of that length? By history, or by a chosen test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anubis.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anubis.core.records import Judgement

HELP = "Say whether nodes are good for a job: by history, or by the tests worth their time."


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
    from anubis.core.decision import JobAllocated
    from anubis.core.records import Judgement

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
    short = budget is not None and answer.decision.remaining > answer.decision.p0
    judged = {
        node: Judgement.HEALTHY if answer.past.passed.get(node) and not short else Judgement.UNKNOWN
        for node in job.nodes
    }
    if unfit:
        judged |= dict.fromkeys(unfit, Judgement.DEFECTIVE)
    else:
        judged |= selecting.carry_out(answer.decision, order)
    _tell(judged, unfit, as_json=json, lenient=lenient)
    selecting.leave(judged, unknown_passes=lenient)


def _tell(
    judged: Mapping[str, Judgement], unfit: Mapping[str, str], *, as_json: bool, lenient: bool
) -> None:
    import json

    from anubis import hostlist
    from anubis.core.records import Judgement

    defective = [node for node, found in judged.items() if found is Judgement.DEFECTIVE]
    good = (Judgement.HEALTHY, Judgement.DEFECTIVE)
    unknown = [node for node, found in judged.items() if found not in good]
    answer = "no-go" if defective else "unknown" if unknown and not lenient else "go"
    if as_json:
        document = {
            "type": "gate",
            "answer": answer,
            "defective": defective,
            "unknown": unknown,
            "unfit": unfit,
        }
        print(json.dumps(document, ensure_ascii=False))
        return
    told = [f"{node}: {why}" for node, why in unfit.items()]
    for what, nodes in (("defective", defective), ("not known to be healthy", unknown)):
        if nodes := [node for node in nodes if node not in unfit]:
            told.append(f"{what}: {hostlist.compress(nodes)}")
    print(f"{answer}: {'; '.join(told) or hostlist.compress(list(judged))}")
