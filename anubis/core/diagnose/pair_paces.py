"""How slowly data move between two nodes of a job, beside its other pairs.

Pairs are those of messages and of groups of two ranks (transfers.py), and connections.
"""

from __future__ import annotations

from collections.abc import Iterator

from anubis.core.diagnose.evidence import JobEvidence
from anubis.core.diagnose.host_connections import Wires
from anubis.core.diagnose.transfers import alike_transfers, typical_times, usual_time

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
