"""Finds the part of the fabric that pairs of nodes have in common between which data take long: a
link or switch that no single node explains.

Pairs are those of messages and of groups of two ranks (transfers.py), and connections (wires.py);
those at the usual pace clear what they cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.root_cause import FEWEST, FIRST, SURE, part_subject
from anubis.core.diagnose.transfers import BETA, alike_transfers, typical_times, usual_time
from anubis.core.diagnose.wires import Wires
from anubis.core.fabric import Fabric, rail_nics_on
from anubis.core.network.crossing import Flow
from anubis.core.network.localization import Cause, locate, sentence
from anubis.core.network.posterior import FaultPrior, Observation

MODEL = FaultPrior(limit=1 - 1 / BETA, noise=0.1)  # a pair's pace is the median of many
ENDS = ("node", "nic")  # parts that ranks and hosts show by themselves

NodePair = frozenset[str]


def pair_paces(evidence: JobEvidence) -> dict[NodePair, float]:
    """Factors by which data take longer than usual between two nodes, at most."""
    paces: dict[NodePair, float] = {}
    for pair, times in (*_transfer_paces(evidence), *_wire_paces(evidence)):
        paces[pair] = max(times, paces.get(pair, 0.0))
    return paces


def _transfer_paces(evidence: JobEvidence) -> Iterator[tuple[NodePair, float]]:
    for (_, ranks, nodes), times in alike_transfers(evidence).items():
        if ranks != 2 or nodes != 2 or not (typical := typical_times(times)):
            continue
        usual_s = usual_time(typical.values())
        for group, took_s in typical.items():
            pair = frozenset(evidence.ranks.node_of(rank) for rank in group)
            if usual_s > 0 and "" not in pair:
                yield pair, took_s / usual_s


def _wire_paces(evidence: JobEvidence) -> Iterator[tuple[NodePair, float]]:
    paces = Wires(evidence).paces
    if not paces:
        return
    usual_s = usual_time([pace.byte_s for pace in paces.values()])
    for pair, pace in paces.items():
        yield frozenset(host.node for host in pair), pace.byte_s / usual_s


def _infer(hearing: Hearing) -> Iterator[JobFact]:
    fabric = hearing.evidence.fabric
    if fabric is None:
        return
    observations = list(_observations(fabric, pair_paces(hearing.evidence)))
    if sum(seen.shortfall > MODEL.limit for seen in observations) < FEWEST:
        return
    for cause in locate(fabric, observations, MODEL).causes:
        if len(cause.bad) >= FEWEST and cause.parts[0].kind not in ENDS:
            yield from _facts(fabric, cause)


def _observations(fabric: Fabric, paces: Mapping[NodePair, float]) -> Iterator[Observation]:
    """Pairs whose rail is known, because they have one only in common."""
    for pair, times in paces.items():
        a, b = sorted(pair)
        rails = [rail for rail in fabric.rails if fabric.nic(a, rail) and fabric.nic(b, rail)]
        if len(rails) == 1:
            flow = Flow(*rail_nics_on(a, b, rails[0]), mutual=True)
            yield Observation(flow, max(0.0, 1 - 1 / times))


def _facts(fabric: Fabric, cause: Cause) -> Iterator[JobFact]:
    """A part that is sure is at fault. If it is not, the job is slow, and the likeliest parts are
    tested first."""
    is_sure = len(cause.parts) == 1 and cause.confidence >= SURE
    evidence = f"data take long across {sentence(fabric, cause)}"
    if not is_sure:
        yield JobFact(
            kind=FactKind.SLOWED,
            whom=Whom(),
            evidence=evidence,
            confidence=cause.confidence,
            code="slow-path",
        )
    for part, chance in list(zip(cause.parts, cause.chances, strict=True))[:FIRST]:
        yield JobFact(
            kind=FactKind.SLOW_NETWORK if is_sure else FactKind.LIKELY_PART,
            whom=part_subject(fabric, part),
            evidence=evidence,
            confidence=cause.confidence * chance,
            code="slow-path",
        )


RULES = tuple(
    InferenceRule(
        name=f"part of the fabric that slow {pairs} share",
        needs=frozenset({collector}),
        gives=frozenset({FactKind.SLOW_NETWORK, FactKind.SLOWED, FactKind.LIKELY_PART}),
        infer=_infer,
    )
    for collector, pairs in (
        (Collector.TRANSFERS, "transfers"),
        (Collector.CONNECTIONS, "connections"),
    )
)
