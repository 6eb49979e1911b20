"""From verdicts on units to one verdict per node: the worst counts, in one sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from anubis.core.judge.unanswered import unanswered_benchmarks
from anubis.core.judge.verdicts import EXCUSED, WITHIN
from anubis.core.records import BatchVerdict, Execution, Judgement, NodeVerdict, Plan, Verdict


def roll_up(
    plan: Plan,
    alone: Iterable[Verdict],
    batch_verdicts: Iterable[BatchVerdict],
    attributed: Iterable[Verdict],
    executions: Iterable[Execution],
) -> tuple[NodeVerdict, ...]:
    """The worst verdict of each node, with the benchmarks that it left unanswered. A good group
    counts for all its nodes. Partners that no test needed are left out."""
    own: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in (v for v in (*attributed, *alone) if len(v.participants) == 1):
        own[verdict.participants[0]].append(verdict)
    passed: Counter[str] = Counter()
    how: dict[str, None] = {}
    for batch_verdict in batch_verdicts:
        if batch_verdict.judgement is Judgement.HEALTHY:
            passed.update(chain.from_iterable(batch_verdict.participants))
            how[batch_verdict.reason.removesuffix(EXCUSED)] = None
        elif len(batch_verdict.participants[0]) == 1:
            for verdict in batch_verdict:
                own[verdict.participants[0]].append(verdict)
    tested = {name for p in plan.phases for e in p.entries for name in e.nodes or ()}
    partners = set(plan.partners) - tested
    unmet = {name for name in partners if not own[name] and not passed[name]}
    verdicts = [
        _node_verdict(node.name, own[node.name], passed[node.name], tuple(how))
        for node in plan.nodes
        if node.name not in unmet
    ]
    owed = unanswered_benchmarks(plan, verdicts, own, executions)
    return tuple(
        replace(verdict, owes=owed[verdict.node]) if verdict.node in owed else verdict
        for verdict in verdicts
    )


def _node_verdict(
    node: str, own: Sequence[Verdict], passed: int, how: Sequence[str]
) -> NodeVerdict:
    counted = {judgement: [v for v in own if v.judgement is judgement] for judgement in Judgement}
    if counted[Judgement.DEFECTIVE]:
        worst = counted[Judgement.DEFECTIVE]
    elif counted[Judgement.UNKNOWN]:
        worst = counted[Judgement.UNKNOWN]
    elif passed:
        counted_metrics = f"all {passed} metrics are" if passed > 1 else "1 metric is"
        good = " or ".join(sorted(how)).replace(
            WITHIN, "within their limits" if passed > 1 else WITHIN
        )
        return NodeVerdict(
            node=node, judgement=Judgement.HEALTHY, code="OK", reason=f"{counted_metrics} {good}"
        )
    elif counted[Judgement.NOT_APPLICABLE]:
        worst = counted[Judgement.NOT_APPLICABLE]
    else:
        return NodeVerdict(
            node=node,
            judgement=Judgement.UNKNOWN,
            code="NOT-MEASURED",
            reason="nothing was measured on this node",
        )
    first = min(worst, key=lambda verdict: verdict.similarity or 0.0)
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    prefix = f"{first.benchmark}: " if first.benchmark else ""
    return NodeVerdict(
        node=node,
        judgement=first.judgement,
        code=first.code,
        reason=f"{prefix}{first.reason}{more}",
    )
