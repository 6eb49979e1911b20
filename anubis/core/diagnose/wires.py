"""Connections between hosts that pass nothing, or on which bytes wait. A host that is an end of all
of them is cut off, or has a slow link. The kernel shows it before anything times out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from anubis.core.diagnose.chain import Hearing, InferenceRule
from anubis.core.diagnose.evidence import Collector, Connection, JobEvidence
from anubis.core.diagnose.facts import FactKind, JobFact, Whom

RESENT = 4  # tries without an answer: at the shortest intervals they take 3 s
FEWEST_SAMPLES = 12  # of fewer, a share may be off by a seventh by chance
SENDING = 0.4  # share of the samples in which bytes wait on a slow wire
TIMES = 2.0  # and so many times as often as between other hosts
CUT_CONFIDENCE = 0.95  # the kernel's own count, which only a cut or a dead peer raises
SLOW_CONFIDENCE = 0.8  # bytes also wait for a peer that is starved of its processor

HostPair = frozenset[Whom]


@dataclass(frozen=True)
class Wires:
    """Connections by the two hosts at their ends."""

    evidence: JobEvidence

    @cached_property
    def _hosts(self) -> Mapping[str, Whom]:
        """Hosts by the address of their ranks: a node, or a rank if its node is unknown."""
        return {
            connection.own: self._rank_host(connection.rank)
            for connection in self.evidence.connections
        }

    def _rank_host(self, rank: int) -> Whom:
        node = self.evidence.ranks.node_of(rank)
        return Whom(node=node) if node else Whom(rank=rank)

    def _peer(self, connection: Connection) -> Whom:
        if connection.peer_rank is not None:
            return self._rank_host(connection.peer_rank)
        address = connection.peer
        name = self.evidence.ranks.node_named(address)
        return Whom(node=name) if name else self._hosts.get(address, Whom(node=address))

    @cached_property
    def connections(self) -> Mapping[HostPair, tuple[Connection, ...]]:
        pairs: dict[HostPair, tuple[Connection, ...]] = {}
        for connection in self.evidence.connections:
            pair = frozenset((self._rank_host(connection.rank), self._peer(connection)))
            if len(pair) == 2:
                pairs[pair] = (*pairs.get(pair, ()), connection)
        return pairs

    def busy_shares(self, pair: HostPair) -> Mapping[Whom, float]:
        """Share of the time in which bytes that an end sends wait, by its busiest rank. Only ends
        with records of their own are included."""
        shares: dict[Whom, float] = {}
        for connection in self.connections[pair]:
            sender = self._rank_host(connection.rank)
            shares[sender] = max(shares.get(sender, 0.0), _share(connection))
        return shares

    def select(self, holds: Callable[[Connection], bool]) -> dict[HostPair, tuple[Connection, ...]]:
        kept = {pair: tuple(filter(holds, wires)) for pair, wires in self.connections.items()}
        return {pair: wires for pair, wires in kept.items() if wires}


def _share(connection: Connection) -> float:
    few = connection.samples < FEWEST_SAMPLES
    return 0.0 if few else connection.sending / connection.samples


def _name(host: Whom) -> str:
    return host.node or f"rank {host.rank}"


def _order(host: Whom) -> tuple[str, int]:
    return host.node, host.rank or 0


def _ends_of(pair: HostPair) -> tuple[Whom, Whom]:
    first, second = sorted(pair, key=_order)
    return first, second


def _cut_off(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    dead = Wires(evidence).select(lambda connection: connection.resent >= RESENT)
    times = [connection.resent for wires in dead.values() for connection in wires]
    in_vain = f"the same bytes were sent again {min(times)} times and more" if times else ""
    shared = frozenset[Whom].intersection(*dead) if dead else frozenset()
    if len(dead) >= 2 and shared:
        (host,) = shared
        yield JobFact(
            kind=FactKind.UNREACHABLE,
            whom=host,
            evidence=f"nothing passes between {_name(host)} and {len(dead)} hosts: {in_vain}",
            confidence=CUT_CONFIDENCE,
            code="no-acknowledgement",
        )
        return
    for pair in sorted(dead, key=lambda pair: list(map(_order, _ends_of(pair)))):
        first, second = _ends_of(pair)
        yield JobFact(
            kind=FactKind.DISTRIBUTED_ERROR,
            whom=first,
            peer=second,
            evidence=f"nothing passes between {_name(first)} and {_name(second)}: {in_vain}",
            confidence=CUT_CONFIDENCE,
            code="no-acknowledgement",
        )


def _slow_link(hearing: Hearing) -> Iterator[JobFact]:
    """Slow links: hosts that all pairs with waiting bytes have in common; for a single pair either
    end. A slow wire delays data and acknowledgements, so both ways count; in a ring of sound hosts
    bytes wait in one direction."""
    wires = Wires(hearing.evidence)
    dead = wires.select(lambda connection: connection.resent >= RESENT)  # not slow, but cut
    pairs = wires.connections.keys() - dead.keys()
    shares = {pair: fmean(wires.busy_shares(pair).values()) for pair in pairs}
    waiting = {pair: share for pair, share in shares.items() if share >= SENDING}
    least = min(waiting.values(), default=0.0)
    beside = max((share for pair, share in shares.items() if pair not in waiting), default=None)
    if not waiting or beside is None or least < TIMES * beside:
        return
    ends = frozenset[Whom].intersection(*waiting)
    for host in sorted(ends, key=_order):
        yield JobFact(
            kind=FactKind.SLOW_NETWORK,
            whom=host,
            evidence=(
                f"bytes between {_name(host)} and {_counted_hosts(len(waiting))} wait on the wire"
                f" {least:.0%} of the time and more, between hosts beside it at most {beside:.0%}"
            ),
            confidence=SLOW_CONFIDENCE / len(ends),
            code="bytes-wait",
        )


def _counted_hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


RULES = (
    InferenceRule(
        name="ranks between which no data passes",
        needs=frozenset({Collector.CONNECTIONS}),
        gives=frozenset({FactKind.UNREACHABLE, FactKind.DISTRIBUTED_ERROR}),
        infer=_cut_off,
    ),
    InferenceRule(
        name="ranks whose link is slow",
        needs=frozenset({Collector.CONNECTIONS}),
        gives=frozenset({FactKind.SLOW_NETWORK}),
        infer=_slow_link,
    ),
)
