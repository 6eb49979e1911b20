"""Connections between hosts that pass nothing, or pass it slowly.

A host that is an end of all bad connections is cut off, or has a slow link. The kernel shows it
before anything times out. How slowly is a rate, bytes a second while bytes were on their way: a
link of a third of the others' rate stands out also if its job works most of the time. If little is
sent, or the kernel counts no rates, as of ranks in a network of their own, the share of the time in
which bytes waited has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean

from anubis.core.diagnose.evidence import Collector, Connection, JobEvidence
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom

RESENT = 4  # tries without an answer: at the shortest intervals they take 3 s
FEWEST_SAMPLES = 12  # of fewer, a share may be off by a seventh by chance
SENDING = 0.4  # share of the samples in which bytes wait on a slow wire
TIMES = 2.0  # and so many times as often, or as slowly, as between other hosts
LEAST_COST = 0.05  # of the time: the least that slow rates cost
LEAST_RATE = 2 << 20  # bytes a second: of fewer, delayed acknowledgements decide on the time
CUT_CONFIDENCE = 0.95  # the kernel's own count, which only a cut or a dead peer raises
SLOW_CONFIDENCE = 0.8  # bytes also wait for a peer that is starved of its processor

HostPair = frozenset[Whom]


@dataclass(frozen=True)
class _Pace:
    """How slowly a connection moved bytes, and how many."""

    byte_s: float  # seconds a byte, while bytes were on their way
    bytes_a_second: float  # of all time

    def cost(self, usual_s: float) -> float:
        """Share of the time that bytes take beyond `usual_s` each."""
        return (self.byte_s - usual_s) * self.bytes_a_second


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

    @cached_property
    def paces(self) -> Mapping[HostPair, _Pace]:
        """Pace of each pair of hosts that are not cut off from each other."""
        dead = self.select(lambda connection: connection.resent >= RESENT)
        pairs = self.connections.keys() - dead.keys()
        return {pair: pace for pair in pairs if (pace := self._pace(pair)) is not None}

    def _pace(self, pair: HostPair) -> _Pace | None:
        """Return the pace of the slowest connection of a pair that moved much; None if the kernel
        counted none."""
        counted = [
            _Pace(1 / wire.rate, wire.moved_bytes / wire.seen_s)
            for wire in self.connections[pair]
            if wire.rate is not None and wire.moved_bytes >= LEAST_RATE * wire.seen_s > 0
        ]
        return max(counted, key=lambda pace: pace.byte_s, default=None)

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
    """Slow links: hosts that all slow pairs have in common; for a single pair either end."""
    wires = Wires(hearing.evidence)
    dead = wires.select(lambda connection: connection.resent >= RESENT)  # not slow, but cut
    pairs = wires.connections.keys() - dead.keys()
    slow, sentence = _slow_rates(wires.paces) if len(wires.paces) > 1 else _waiting(wires, pairs)
    ends = frozenset[Whom].intersection(*slow) if slow else frozenset()
    for host in sorted(ends, key=_order):
        yield JobFact(
            kind=FactKind.SLOW_NETWORK,
            whom=host,
            evidence=f"bytes between {_name(host)} and {_counted_hosts(len(slow))} {sentence}",
            confidence=SLOW_CONFIDENCE / len(ends),
            code="bytes-wait",
        )


def _slow_rates(paces: Mapping[HostPair, _Pace]) -> tuple[set[HostPair], str]:
    """Pairs between which bytes pass at less than half the rate of all others, divided where rates
    differ most, if that costs the job much."""
    order = sorted(paces, key=lambda pair: paces[pair].byte_s)
    gaps = [paces[after].byte_s / paces[before].byte_s for before, after in pairwise(order)]
    place = max(range(len(gaps)), key=gaps.__getitem__)
    slow, usual = order[place + 1 :], paces[order[place]].byte_s
    if gaps[place] < TIMES or min(paces[pair].cost(usual) for pair in slow) < LEAST_COST:
        return set(), ""
    fastest = 1 / min(paces[pair].byte_s for pair in slow)
    return set(slow), (
        f"pass at {_rate(fastest)} at most while they are on their way, between hosts beside it at"
        f" {_rate(1 / usual)} and more"
    )


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:.3g} MB/s"


def _waiting(wires: Wires, pairs: Collection[HostPair]) -> tuple[set[HostPair], str]:
    """Pairs between which bytes wait. A slow wire delays data and acknowledgements, so both ways
    count; in a ring of sound hosts bytes wait in one direction."""
    shares = {pair: fmean(wires.busy_shares(pair).values()) for pair in pairs}
    waiting = {pair: share for pair, share in shares.items() if share >= SENDING}
    least = min(waiting.values(), default=0.0)
    beside = max((share for pair, share in shares.items() if pair not in waiting), default=None)
    if not waiting or beside is None or least < TIMES * beside:
        return set(), ""
    return set(waiting), (
        f"wait on the wire {least:.0%} of the time and more, between hosts beside it at most"
        f" {beside:.0%}"
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
