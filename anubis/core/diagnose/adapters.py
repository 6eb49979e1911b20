"""Find adapters to test first, if a job is in trouble, by their error counters that rose meanwhile.

Counters of a link are about the adapter's own link. Counters of transport are about the whole way
to others, and a sound node counts what a bad one loses: they point to a node only if it counts
nearly all of a job's. So do marks of congestion, which the receiver counts, and which a sound
network makes as well. No counter proves a fault, so nothing is blamed for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from anubis.core.diagnose.evidence import AdapterRise, Collector
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.network.hints import EVENTS

OF_LINK = (*sorted(EVENTS), *("symbol_error", "local_link_integrity_errors", "port_rcv_errors"))
OF_WAY = (
    *("local_ack_timeout_err", "out_of_sequence", "packet_seq_err"),
    *("req_transport_retries_exceeded", "rnr_nak_retry_err", "roce_slow_restart"),
)
OF_CONGESTION = ("np_ecn_marked_roce_packets", "np_cnp_sent")
COUNTERS = (*OF_LINK, *OF_WAY, *OF_CONGESTION)
FEWEST = 10  # of the others: bits flip now and then on sound links
FEWEST_MARKS = 1000  # of congestion, which lasts: a look takes seconds
NEARLY_ALL = 0.8  # of the rises of a job
FEWEST_NODES = 3  # two see the same of each other
LINK_CHANCE = 0.5  # that the adapter, its cable or its port is the reason
WAY_CHANCE, CONGESTION_CHANCE = 0.3, 0.1  # likewise, of those that many share
TROUBLE = frozenset(
    {
        *(FactKind.ABSENT, FactKind.UNFINISHED, FactKind.STANDSTILL, FactKind.DISTRIBUTED_ERROR),
        *(FactKind.SLOWED, FactKind.MAY_BE_SLOW, FactKind.SLOW_NETWORK),
    }
)


def _adapters_with_errors(hearing: Hearing) -> Iterator[JobFact]:
    if not hearing.evidence.stall and not hearing.facts_of(*TROUBLE):
        return
    rises = hearing.evidence.adapters
    links = _group_rises(rise for rise in rises if _is_link_bad(rise))
    for (node, device), own in links.items():
        yield _fact(node, device, own, LINK_CHANCE / len(links))
    if len(set(hearing.evidence.ranks.nodes.values())) < FEWEST_NODES:
        return
    for counters, fewest, chance in (
        (OF_WAY, FEWEST, WAY_CHANCE),
        (OF_CONGESTION, FEWEST_MARKS, CONGESTION_CHANCE),
    ):
        counted = [rise for rise in rises if rise.counter in counters]
        total = sum(rise.rise for rise in counted)
        for (node, _), own in _group_rises(counted, whole_nodes=True).items():
            count = sum(rise.rise for rise in own)
            if count >= max(fewest, NEARLY_ALL * total):
                worst = max(own, key=lambda rise: rise.rise).device
                yield _fact(node, worst, own, chance)


def _is_link_bad(rise: AdapterRise) -> bool:
    return rise.counter in EVENTS or (rise.counter in OF_LINK and rise.rise >= FEWEST)


def _group_rises(
    rises: Iterable[AdapterRise], *, whole_nodes: bool = False
) -> dict[tuple[str, str], list[AdapterRise]]:
    grouped: defaultdict[tuple[str, str], list[AdapterRise]] = defaultdict(list)
    for rise in rises:
        grouped[rise.node, "" if whole_nodes else rise.device].append(rise)
    return dict(grouped)


def _fact(node: str, device: str, rises: list[AdapterRise], chance: float) -> JobFact:
    worst = max(rises, key=lambda rise: rise.rise)
    counts = ", ".join(f"{rise.counter} by {rise.rise:,} ({rise.device})" for rise in rises[:3])
    return JobFact(
        kind=FactKind.LIKELY_PART,
        whom=Whom(node=node, device=device),
        evidence=f"error counters of {node} rose within {worst.seen_s:.0f} s: {counts}",
        confidence=chance,
        code=f"counter-{worst.counter.replace('_', '-')}",
    )


RULES = (
    InferenceRule(
        name="adapters whose error counters rise",
        needs=frozenset({Collector.PROCESSES}),
        gives=frozenset({FactKind.LIKELY_PART}),
        hears=TROUBLE,
        infer=_adapters_with_errors,
    ),
)
