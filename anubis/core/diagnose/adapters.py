"""Find adapters to test first, if a job is in trouble, by their error counters that rose meanwhile.

Counters of a link are about the adapter's own link. Counters of transport are about the whole way
to others, and a sound node counts what a bad one loses: they point to a node only if it counts
nearly all of a job's. No counter proves a fault, so nothing is blamed for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from anubis.core.diagnose.evidence import AdapterRise, Collector
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom

BREAKS = ("link_downed", "link_error_recovery")  # one is one too many
OF_LINK = (
    *BREAKS,
    *("symbol_error", "local_link_integrity_errors", "port_rcv_errors"),
)
OF_WAY = (
    *("local_ack_timeout_err", "out_of_sequence", "packet_seq_err"),
    *("req_transport_retries_exceeded", "rnr_nak_retry_err", "roce_slow_restart"),
)
COUNTERS = (*OF_LINK, *OF_WAY)
FEWEST = 10  # of the others: bits flip now and then on sound links
NEARLY_ALL = 0.8  # of the rises of a job
FEWEST_NODES = 3  # two see the same of each other
LINK_CHANCE, WAY_CHANCE = 0.5, 0.3  # that the adapter, its cable or its port is the reason
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
    on_way = [rise for rise in rises if rise.counter in OF_WAY]
    of_node = _group_rises(on_way, whole_nodes=True)
    total = sum(rise.rise for rise in on_way)
    nodes = set(hearing.evidence.ranks.nodes.values())
    for (node, _), own in of_node.items():
        count = sum(rise.rise for rise in own)
        if len(nodes) >= FEWEST_NODES and count >= max(FEWEST, NEARLY_ALL * total):
            worst = max(own, key=lambda rise: rise.rise).device
            yield _fact(node, worst, own, WAY_CHANCE)


def _is_link_bad(rise: AdapterRise) -> bool:
    return rise.counter in BREAKS or (rise.counter in OF_LINK and rise.rise >= FEWEST)


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
