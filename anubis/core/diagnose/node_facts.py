"""Facts about a node that its ranks do not report: it does not answer, its telemetry is unlike that
of its peers, or its settings are unlike what the site's policy expects, or else unlike those of
most of its sku, by its last report.

Most settings explain no failure, so they count only if nothing else explains it. Settings that
affect how ranks reach each other are likelier causes than the rest. If many of a job's nodes share
the other value, somebody set up the job's nodes like that, and no node is to blame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from anubis.core.amounts import HOUR_S
from anubis.core.diagnose.evidence import Collector, OddSetting
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
    also = f", and {more} more metrics" if more > 1 else ", and 1 more metric" if more else ""
    if first.sign is Sign.VANISHED:
        return f"{suspicion.node} reports no {first.metric} any more{also}"
    return (
        f"{suspicion.node}'s {first.metric} is {first.value:.4g}, that of its peers"
        f" {first.peers:.4g}{also}"
    )


SEVERAL = 0.25  # of a job's nodes: if more share the other value, no node is odd
NAMED = 3  # most nodes that a sentence lists
LIKELY, UNLIKELY = 0.6, 0.3  # confidence that a setting causes a job's trouble
# what all ranks of a job must share, and what affects their traffic
BETWEEN_RANKS = frozenset(
    (
        *("driver", "driver_kind", "cuda_of_driver", "nccl", "nccl_of_system", "cuda_runtime"),
        *("torch", "ofed", "peer_memory", "firmware", "model", "adapters", "nics", "slot", "mtu"),
        *("pfc", "ecn", "roce_mode", "roce_tos", "traffic_class", "link_layer", "acs", "iommu"),
        *("max_read_request", "nearest_adapter", "ulimit", "mounts", "mig_mode", "compute_mode"),
    )
)


def _odd_settings(hearing: Hearing) -> Iterator[JobFact]:
    alike: defaultdict[tuple[str, str], list[OddSetting]] = defaultdict(list)
    for odd in hearing.evidence.settings:
        alike[odd.setting, odd.device].append(odd)
    nodes = len(set(hearing.evidence.ranks.nodes.values()))
    for (setting, _), all_odd in alike.items():
        if len(all_odd) > max(1, SEVERAL * nodes):
            yield _job_fact(setting, all_odd, nodes)
        else:
            yield from (_node_fact(odd, hearing.evidence.at) for odd in all_odd)


def _node_fact(odd: OddSetting, now: float) -> JobFact:
    hours = max(0.0, now - odd.at) / HOUR_S
    return JobFact(
        kind=FactKind.SETTINGS_DIFFER,
        whom=Whom(node=odd.node),
        evidence=f"{odd.sentence} (reported {hours:.0f} h ago)",
        confidence=_confidence(odd.setting),
        code=_code(odd.setting, odd.device),
    )


def _job_fact(setting: str, all_odd: Sequence[OddSetting], nodes: int) -> JobFact:
    named = ", ".join(odd.node for odd in all_odd[:NAMED])
    more = f" and {len(all_odd) - NAMED} more" if len(all_odd) > NAMED else ""
    return JobFact(
        kind=FactKind.SETTINGS_DIFFER,
        whom=Whom(),
        evidence=f"{len(all_odd)} of {nodes} nodes of the job ({named}{more}) have another "
        f"{setting} than they should: {all_odd[0].sentence}",
        confidence=_confidence(setting),
        code=_code(setting, all_odd[0].device),
    )


def _confidence(setting: str) -> float:
    return LIKELY if setting in BETWEEN_RANKS else UNLIKELY


def _code(setting: str, device: str) -> str:
    """Code of the fact, one for each device: a node may differ in several devices."""
    return f"setting-{setting}" + (f" {device}" if device != "node" else "")


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
SETTINGS_RULES = (
    InferenceRule(
        name="settings",
        needs=frozenset({Collector.SETTINGS}),
        gives=frozenset({FactKind.SETTINGS_DIFFER}),
        infer=_odd_settings,
    ),
)
