"""Facts about a node that reports nothing itself: it does not answer, or its telemetry is unlike
that of its peers."""

from __future__ import annotations

from collections.abc import Iterable

from anubis.core.diagnose.evidence import Collector
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.watch.findings import Sign, Suspicion


def _unreachable_nodes(hearing: Hearing) -> Iterable[JobFact]:
    evidence = hearing.evidence
    for node, since in evidence.unreachable.items():
        side = "before" if since < evidence.at else "after"
        apart = f"{abs(evidence.at - since):.0f} s {side} the job was in trouble"
        yield JobFact(
            kind=FactKind.UNREACHABLE,
            whom=Whom(node=node),
            evidence=f"{node} answers no other node, since {apart}",
            at=since,
            code="unreachable",
        )


def _deviating_nodes(hearing: Hearing) -> Iterable[JobFact]:
    for suspicion in hearing.evidence.look.suspicions if hearing.evidence.look else ():
        first = suspicion.deviations[0]
        kind = FactKind.OUTLIER if first.sign is Sign.OUTLIER else FactKind.UNLIKE_PEERS
        yield JobFact(
            kind=kind,
            whom=Whom(node=suspicion.node),
            evidence=_sentence(suspicion),
            confidence=suspicion.confidence,
            at=suspicion.since,
            code=first.metric,
        )


def _sentence(suspicion: Suspicion) -> str:
    first = suspicion.deviations[0]
    more = len(suspicion.deviations) - 1
    also = f", and {more} metrics more" if more > 1 else ", and 1 metric more" if more else ""
    if first.sign is Sign.VANISHED:
        return f"{suspicion.node} reports no {first.metric} any more{also}"
    return (
        f"{suspicion.node}'s {first.metric} is {first.value:.4g}, that of its peers"
        f" {first.peers:.4g}{also}"
    )


RULES = (
    InferenceRule(
        name="nodes that answer no other",
        needs=frozenset({Collector.REACH}),
        gives=frozenset({FactKind.UNREACHABLE}),
        infer=_unreachable_nodes,
    ),
    InferenceRule(
        name="nodes unlike their peers",
        needs=frozenset({Collector.TELEMETRY}),
        gives=frozenset({FactKind.UNLIKE_PEERS, FactKind.OUTLIER}),
        infer=_deviating_nodes,
    ),
)
