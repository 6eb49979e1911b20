"""Collectives that do not fit together: the program is wrong, and no rank is to blame.

Ranks of one communicator must call the same operations in the same order, most of them with the
same number of elements of the same type. Ranks that wait for each other in a circle called their
operations in different orders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anubis.core.diagnose.critical import crash_window
from anubis.core.diagnose.evidence import Call, CallState, Collector, Gravity
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.hang import SHOWN, call_name, rank_list
from anubis.core.diagnose.waiting import Waiting

EVEN = frozenset(
    [
        "allreduce",
        "allreducecoalesced",
        "broadcast",
        "reduce",
        "allgatherbase",
        "allgatherintotensor",
        "reducescatterbase",
        "reducescattertensor",
        "barrier",
    ]
)  # operations whose input has the same size on each rank
RING_CONFIDENCE = 0.7  # the circle is seen; that no rank in it is only late is not


def _mismatches(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    open_at = _open_collectives(evidence.calls)
    for (communicator, sequence), calls in open_at.items():
        operation = call_name(calls[0].operation, communicator, sequence)
        for code, sides in (
            ("order", _sides(calls, _plain)),
            ("size", _sides(calls, _elements)),
            ("type", _sides(calls, _types)),
        ):
            if len(sides) > 1:
                yield _fact(code, f"ranks differ in {operation}: {_describe_sides(sides)}")
                return  # later differences follow from this one


def _open_collectives(calls: Iterable[Call]) -> Mapping[tuple[str, int], list[Call]]:
    """Collectives that several ranks launched and not all finished, in the order of first
    launch."""
    met: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        if not call.point_to_point:
            met.setdefault((call.communicator, call.sequence), []).append(call)
    still = {
        key: group
        for key, group in met.items()
        if len({call.rank for call in group}) > 1
        and any(call.state is not CallState.FINISHED for call in group)
    }
    return dict(sorted(still.items(), key=lambda item: (_first(item[1]), item[0])))


def _first(calls: Sequence[Call]) -> float:
    return min((call.launched for call in calls if call.launched is not None), default=math.inf)


Variants = dict[str, list[int]]  # what was called → ranks that called it


def _sides(calls: Iterable[Call], view: object) -> Variants:
    sides: Variants = {}
    for call in calls:
        if label := view(call):  # type: ignore[operator]
            sides.setdefault(label, []).append(call.rank)
    return sides


def _plain(call: Call) -> str:
    """Name of the operation without decoration: `nccl:_all_gather_base` and `ALLGATHER_BASE` are
    one."""
    return re.sub(r"[^a-z]", "", call.operation.rpartition(":")[2].lower())


def _elements(call: Call) -> str:
    if _plain(call) not in EVEN or not call.sizes:
        return ""
    return f"{sum(math.prod(size) for size in call.sizes)} elements"


def _types(call: Call) -> str:
    return " ".join(sorted(set(call.dtypes))) if _plain(call) in EVEN else ""


def _describe_sides(sides: Variants) -> str:
    few = sorted(sides.items(), key=lambda side: (len(side[1]), side[1]))
    return ", ".join(f"{label} on {rank_list(ranks)}" for label, ranks in few[:SHOWN])


def _circles(hearing: Hearing) -> Iterator[JobFact]:
    evidence = hearing.evidence
    waiting = Waiting(evidence.advances, evidence.calls)
    if waiting.roots:
        return
    for ring in waiting.rings:
        places = {rank: next(iter(waiting.waits[rank]), None) for rank in ring}
        if len({(wait.communicator, wait.sequence) for wait in places.values() if wait}) > 1:
            places_text = ", ".join(
                f"rank {rank} in {call_name(wait.operation, wait.communicator, wait.sequence)}"
                for rank, wait in list(places.items())[:SHOWN]
                if wait
            )
            fact = f"{len(ring)} ranks wait for each other in a circle: {places_text}"
            yield _fact("circle", fact, RING_CONFIDENCE)


def _logged_mismatches(hearing: Hearing) -> Iterator[JobFact]:
    """Mismatches in the training log. The rank that logged one only received what did not fit, so
    the fact does not blame it."""
    window = crash_window(hearing.evidence)
    for event in hearing.evidence.log:
        if event.gravity is Gravity.MISMATCH and window.has(event):
            speaker = "a rank" if event.rank is None else f"rank {event.rank}"
            yield _fact(event.code, f"{speaker}: {event.text}")


def _fact(code: str, sentence: str, confidence: float = 0.95) -> JobFact:
    return JobFact(
        kind=FactKind.MISMATCH,
        whom=Whom(),
        evidence=sentence,
        confidence=confidence,
        code=code,
    )


RULES = (
    InferenceRule(
        name="ranks whose collectives do not match, by the training log",
        needs=frozenset({Collector.TRAINING_LOG}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_logged_mismatches,
    ),
    InferenceRule(
        name="ranks whose collectives do not match",
        needs=frozenset({Collector.CALLS}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_mismatches,
    ),
    InferenceRule(
        name="ranks that wait for each other in a circle",
        needs=frozenset({Collector.CALLS, Collector.PROGRESS}),
        gives=frozenset({FactKind.MISMATCH}),
        infer=_circles,
    ),
)
