"""The part of the fabric that slow pairs of nodes have in common.

If no single node explains the slow pairs, a link or switch that they share does. Pairs at the usual
pace clear what they cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anubis.core.diagnose.evidence import Collector
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.pair_paces import NodePair, pair_paces
from anubis.core.diagnose.root_cause import FEWEST, FIRST, SURE, part_subject
from anubis.core.diagnose.transfers import BETA
from anubis.core.fabric import Fabric, rail_nics_on
from anubis.core.network.crossing import Flow
from anubis.core.network.localization import Cause, locate, sentence
from anubis.core.network.posterior import FaultPrior, Observation

MODEL = FaultPrior(limit=1 - 1 / BETA, noise=0.1)  # a pair's pace is the median of many
ENDS = ("node", "nic")  # parts that ranks and hosts show by themselves


def _shared_parts(hearing: Hearing) -> Iterator[JobFact]:
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
        infer=_shared_parts,
    )
    for collector, pairs in (
        (Collector.TRANSFERS, "transfers"),
        (Collector.CONNECTIONS, "connections"),
    )
)
