"""Sure signs of broken hardware in the minutes around the crash. They outweigh all other facts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from anubis.core.diagnose.evidence import Collector, Gravity, JobEvidence, LogEvent
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom

AROUND_S = 300.0  # of the crash, before and after
WAITED_S = 1800.0  # gloo's time-out, the longest that is usual
UNTIMED = 0.5  # confidence in what may be weeks old
OURS = frozenset({9, 11, 7, 4, 8})  # signals that a launcher does not send to end a job


@dataclass(frozen=True)
class CrashWindow:
    start: float
    end: float

    def has(self, event: LogEvent) -> bool:
        """Return whether an event may be in the window. One of unknown time counts as inside,
        unless it is known to be older."""
        if event.at is None:
            return event.by is None or event.by >= self.start
        return self.start <= event.at <= self.end


def crash_window(evidence: JobEvidence) -> CrashWindow:
    """The last signs of trouble, with five minutes on each side. A time-out counts from the moment
    when its wait began. Without a dated sign: the moment of the question, and as long before it as
    time-outs wait."""
    signs = [
        (event.at, event.lasted_s)
        for event in evidence.log
        if event.collector is Collector.TRAINING_LOG
        and event.gravity is not Gravity.NOTE
        and event.at is not None
    ]
    signs += [(ended.at, 0.0) for ended in evidence.exits if ended.at is not None]
    if not signs:
        return CrashWindow(evidence.at - WAITED_S - AROUND_S, evidence.at + AROUND_S)
    last = max(at for at, _ in signs)
    start = min(at - lasted_s for at, lasted_s in signs if at >= last - AROUND_S)
    end = max(last, evidence.at) if evidence.alive or evidence.stall else last
    return CrashWindow(start - AROUND_S, end + AROUND_S)


def node_of(evidence: JobEvidence, event: LogEvent) -> str:
    if event.node or event.rank is None:
        return event.node
    return evidence.ranks.node_of(event.rank)


def sort_by_time(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Events by time, the earliest first; undated ones last, in the order of the log."""
    return sorted(events, key=lambda event: math.inf if event.at is None else event.at)


def _critical(hearing: Hearing) -> Iterable[JobFact]:
    """The earliest dated critical event of each device and code, as a fact."""
    evidence = hearing.evidence
    window = crash_window(evidence)
    seen = set()
    for event in sort_by_time(evidence.log):
        node = node_of(evidence, event)
        key = node, event.device, event.code
        is_sign = event.gravity is Gravity.CRITICAL and window.has(event)
        if not is_sign or not node or key in seen:
            continue
        seen.add(key)
        undated = "" if event.at is not None else " (the log does not say when)"
        yield JobFact(
            kind=FactKind.CRITICAL_ERROR,
            whom=Whom(node=node, device=event.device),
            evidence=f"{node}{undated}: {event.text}",
            confidence=UNTIMED if event.at is None else 1.0,
            code=event.code,
            at=event.at,
        )


RULES = tuple(
    InferenceRule(
        name=f"broken hardware, by the {collector.value.replace('-', ' ')}",
        needs=frozenset({collector}),
        gives=frozenset({FactKind.CRITICAL_ERROR}),
        infer=_critical,
    )
    for collector in (Collector.KERNEL_LOG, Collector.TRAINING_LOG)
)
