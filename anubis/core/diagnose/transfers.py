"""Find ranks at whose ends data take long, by transfers that are alike, and jobs whose transfers
became slow as a whole.

A collective moves data only when the last of its ranks has come, so the shortest time in it is the
time of the transfer: a rank that works slowly makes the others wait, and does not change it. Within
a group a slow wire slows all alike. So groups are compared with groups that do the same, and those
that are slow meet in the ranks at fault. A rank of a group that is fast is cleared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from statistics import median

from anubis.core.diagnose.evidence import Call, Collector, JobEvidence, Transfer
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.hang import rank_list, rank_subject
from anubis.core.diagnose.slow import DEVIATION, MEDIAN_ERROR, NOISE

BETA = 1.5  # as in Aegis: times as long as transfers that are alike
FEWEST = 3  # transfers of a group, with a median that one odd transfer cannot move
LEAST_EFFECT = 0.05  # of the time: the least that slow transfers cost
BETA_CONFIDENCE = 0.75  # the wire has two ends
SLOWED_CONFIDENCE = 0.8  # other jobs may share the network
EARLY, LATE = 0.4, 0.2  # shares of a group's transfers, at their beginning and end
FEWEST_PARTED = 20  # transfers of a group, of which such shares are compared
STEADY = 0.9  # share of the earlier transfers that were as fast

RankGroup = frozenset[int]  # ranks
Alike = tuple[str, int, int]  # what is moved, among how many ranks on how many nodes
GroupTransfers = Mapping[RankGroup, Sequence[Transfer]]


def alike_transfers(evidence: JobEvidence) -> Mapping[Alike, GroupTransfers]:
    """Transfers that are alike, by the group of their ranks, in the order of time."""
    classes: dict[Alike, dict[RankGroup, list[Transfer]]] = {}
    for transfer in sorted(evidence.transfers, key=lambda transfer: transfer.at):
        nodes = {evidence.ranks.node_of(rank) or rank for rank in transfer.ranks}
        alike = transfer.what, len(transfer.ranks), len(nodes)
        classes.setdefault(alike, {}).setdefault(transfer.ranks, []).append(transfer)
    return {
        alike: {group: times for group, times in groups.items() if len(times) >= FEWEST}
        for alike, groups in classes.items()
    }


def typical_times(times: GroupTransfers) -> dict[RankGroup, float]:
    return {group: median(moved.took_s for moved in times[group]) for group in times}


def usual_time(seconds: Collection[float]) -> float:
    """Lower median: of two the shorter, as no wire is too fast."""
    return sorted(seconds)[(len(seconds) - 1) // 2]


def _slow_groups(times: GroupTransfers) -> dict[RankGroup, float]:
    """Groups that take longer than is usual, by the lower median, and how many times as long. If
    more than half do, what is usual is not known."""
    typical = typical_times(times)
    usual_s = usual_time(typical.values()) if typical else 0.0
    noise = _noise(times, typical)
    slow = {
        group: took_s / usual_s
        for group, took_s in typical.items()
        if took_s > BETA * usual_s > 0
        and math.log(took_s / usual_s)
        >= NOISE * MEDIAN_ERROR * noise / math.sqrt(len(times[group]))
        and _cost(times[group], usual_s) >= LEAST_EFFECT
    }
    return slow if 2 * len(slow) <= len(typical) else {}


def _noise(times: GroupTransfers, typical: Mapping[RankGroup, float]) -> float:
    """Spread of the times of transfers within their groups, as a logarithm."""
    ratios = (
        abs(math.log(moved.took_s / typical[group]))
        for group, transfers in times.items()
        for moved in transfers
        if moved.took_s > 0 and typical[group] > 0
    )
    spreads = list(ratios)
    return DEVIATION * median(spreads) if spreads else 0.0


def _cost(transfers: Sequence[Transfer], usual_s: float) -> float:
    """Share of the time that transfers take beyond what is usual."""
    length_s = transfers[-1].at - transfers[0].at
    excess_s = sum(max(0.0, transfer.took_s - usual_s) for transfer in transfers[1:])
    return excess_s / length_s if length_s > 0 else 0.0


def _slow_network(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    for (operation, *_), times in alike_transfers(evidence).items():
        slow = _slow_groups(times)
        ends = _common_ends(slow, times)
        if len(ends) == 1:
            yield _slow_end(evidence, ends[0], operation, slow, len(times))
        elif slow:
            yield from _slow_somewhere(evidence, ends, operation, slow, len(times))


def _common_ends(slow: Mapping[RankGroup, float], times: GroupTransfers) -> list[int]:
    """Ranks of all slow groups, and of no other group."""
    if not slow:
        return []
    sound = frozenset[int]().union(*(times.keys() - slow.keys()))
    return sorted(frozenset.intersection(*slow) - sound)


def _slow_end(
    evidence: JobEvidence, rank: int, operation: str, slow: Mapping[RankGroup, float], groups: int
) -> JobFact:
    return JobFact(
        kind=FactKind.SLOW_NETWORK,
        whom=rank_subject(evidence, rank),
        evidence=f"{_sentence(operation, slow, groups)}; rank {rank} is in each of them",
        confidence=BETA_CONFIDENCE,
        code="beta",
    )


def _slow_somewhere(
    evidence: JobEvidence,
    ends: Sequence[int],
    operation: str,
    slow: Mapping[RankGroup, float],
    groups: int,
) -> Iterator[JobFact]:
    """A job that is slow for one of several ranks, or for none that all slow groups share: these
    are to be tested, and none is to blame."""
    ranks = ends or sorted(frozenset[int]().union(*slow))
    sentence = f"{_sentence(operation, slow, groups)}: {rank_list(ranks)}"
    yield JobFact(
        kind=FactKind.SLOWED,
        whom=Whom(),
        evidence=sentence,
        confidence=BETA_CONFIDENCE,
        code="beta",
    )
    for rank in ranks:
        yield JobFact(
            kind=FactKind.LIKELY_PART,
            whom=rank_subject(evidence, rank),
            evidence=sentence,
            confidence=BETA_CONFIDENCE / len(ranks),
            code="beta",
        )


def _sentence(operation: str, slow: Mapping[RankGroup, float], groups: int) -> str:
    return (
        f"{operation} takes {min(slow.values()):.1f} times as long and more in {len(slow)} of"
        f" {groups} groups of ranks that do the same"
    )


# --- a job against itself ------------------------------------------------------------------------


def _became_slow(hearing: Hearing) -> Iterator[JobFact]:
    """Transfers that take longer than they did, in most groups: no rank stands out."""
    evidence = hearing.evidence
    ratios: list[float] = []
    since: list[float] = []
    for times in alike_transfers(evidence).values():
        for moved in times.values():
            if len(moved) >= FEWEST_PARTED:
                ratios.append(_growth(moved))
                since.append(moved[-int(LATE * len(moved))].at)
    if ratios and (ratio := median(ratios)) >= BETA:
        yield JobFact(
            kind=FactKind.SLOWED,
            whom=Whom(),
            evidence=f"the same data take {ratio:.1f} times as long to exchange as before",
            confidence=SLOWED_CONFIDENCE,
            code="own-transfers",
            at=min(since),
        )


def _growth(moved: Sequence[Transfer]) -> float:
    """Return how many times as long the late transfers take as nearly all early ones; 0 if it
    costs too little."""
    times = [transfer.took_s for transfer in moved]
    early = sorted(times[: int(EARLY * len(times))])
    before_s = early[int(STEADY * len(early))]
    late = moved[-int(LATE * len(times)) :]
    if before_s <= 0 or _cost(late, before_s) < LEAST_EFFECT:
        return 0.0
    return median(transfer.took_s for transfer in late) / before_s


RULES = (
    InferenceRule(
        name="ranks that communicate slowly",
        needs=frozenset({Collector.TRANSFERS}),
        gives=frozenset({FactKind.SLOW_NETWORK, FactKind.SLOWED, FactKind.LIKELY_PART}),
        infer=_slow_network,
    ),
    InferenceRule(
        name="a job whose transfers became slow",
        needs=frozenset({Collector.TRANSFERS}),
        gives=frozenset({FactKind.SLOWED}),
        infer=_became_slow,
    ),
)


# --- transfers out of recorded calls -------------------------------------------------------------


def recorded_transfers(calls: Iterable[Call]) -> Iterator[Transfer]:
    """Yield the transfers of calls whose times all of their ranks recorded."""
    timed = [call for call in calls if call.took_s is not None]
    yield from _messages(call for call in timed if call.point_to_point)
    met: dict[tuple[str, int], list[Call]] = {}
    for call in timed:
        if not call.point_to_point:
            met.setdefault((call.communicator, call.sequence), []).append(call)
    for together in met.values():
        ranks = frozenset(call.rank for call in together)
        if 1 < len(ranks) == len(together) and ranks == frozenset(together[0].members):
            yield _transfer(ranks, together[0].operation, together)


def _messages(calls: Iterable[Call]) -> Iterator[Transfer]:
    """Yield messages that both ends recorded: the last ones of a pair, from the last backwards."""
    ways: dict[tuple[str, int, int], list[list[Call]]] = {}
    for call in sorted(calls, key=lambda call: call.sequence):
        if call.peer is None or call.peer == call.rank:
            continue
        is_sent = "send" in call.operation
        ends = (call.rank, call.peer) if is_sent else (call.peer, call.rank)
        ways.setdefault((call.communicator, *ends), [[], []])[is_sent].append(call)
    for (_, a, b), (received, sent) in ways.items():
        for both in zip(reversed(received), reversed(sent), strict=False):
            yield _transfer(frozenset((a, b)), "a message", both)


def _transfer(ranks: RankGroup, operation: str, together: Sequence[Call]) -> Transfer:
    elements = sum(map(prod, together[0].sizes))
    return Transfer(
        ranks=ranks,
        what=f"{operation} of {elements:,} elements",
        took_s=min(call.took_s or 0.0 for call in together),
        at=max(call.launched or 0.0 for call in together),
    )
