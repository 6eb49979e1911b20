"""The scene of a crash: its minutes, the sure signs of broken hardware in them, which outweigh all
other facts, and the reports of hosts on each other, as the search for its cause sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from anubis.core.diagnose.evidence import Collector, Gravity, JobEvidence, LogEvent, WorkingPair
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.fabric import Fabric, Part
from anubis.core.network.hints import hints, join_hints
from anubis.core.records import Counters

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


def node_of(evidence: JobEvidence, source: LogEvent | Whom) -> str:
    """Node of an event or a fact, or that of its rank. Empty: unknown."""
    if source.node or source.rank is None:
        return source.node
    return evidence.ranks.node_of(source.rank)


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


# factor on the odds of a part that a scan or its own kernel calls bad: of twenty such parts one
# has nothing to do with the crash (assumed)
KNOWN_BAD = 20.0
COUNTED = 100.0  # largest factor of counters: what a crash breaks off counts errors, too
SKEW_S = 1.0  # between clocks of hosts, and within a second of a log


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A host's report that something went wrong with another host."""

    reporter: str
    peer: str
    device: str = ""  # the NIC that they used
    at: float | None = None


@dataclass(frozen=True, kw_only=True)
class CrashScene:
    """All inputs of the search for the cause of a crash."""

    hosts: tuple[str, ...]  # of the job
    reports: tuple[Report, ...]
    spoke: Mapping[str, float | None] = field(default_factory=dict)
    # host that reported any error → time of its first one, if known
    unread: frozenset[str] = frozenset()  # hosts whose logs are not available: they are not silent
    working: tuple[WorkingPair, ...] = ()
    paces: Mapping[frozenset[str], float] = field(default_factory=dict)
    # pair of hosts → how many times as long as usual its data took before the crash
    fabric: Fabric | None = None
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # without a fabric: "leaf", "rack" or the like → host → its name
    hints: Mapping[Part, float] = field(default_factory=dict)  # factors on the prior odds of parts

    @cached_property
    def first_words(self) -> dict[str, float | None]:
        """Time of the first report of each host that reported anything; None: unknown."""
        first: dict[str, float | None] = dict(self.spoke)
        for report in self.reports:
            earlier = first.get(report.reporter)
            dates = [at for at in (earlier, report.at) if at is not None]
            first[report.reporter] = min(dates, default=None)
        return first

    def forget_times(self, host: str) -> CrashScene:
        """The same, as if this host's clock could not be read."""
        reports = (replace(r, at=None) if r.reporter == host else r for r in self.reports)
        spoke = {name: None if name == host else at for name, at in self.spoke.items()}
        return replace(self, reports=tuple(reports), spoke=spoke)

    @cached_property
    def pairs(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset((report.reporter, report.peer)) for report in self.reports)


def scene_of(evidence: JobEvidence, errors: Sequence[JobFact]) -> CrashScene:
    """Scene of the crash, with errors between ranks as reports between nodes. A node with any
    logged error is not silent."""
    reports = []
    for fact in errors:
        reporter, peer = node_of(evidence, fact.whom), node_of(evidence, fact.peer or Whom())
        if reporter and peer and reporter != peer:
            device = fact.whom.device
            reports.append(Report(reporter=reporter, peer=peer, device=device, at=fact.at))
    spoke: dict[str, float | None] = {}
    window = crash_window(evidence)
    for event in filter(window.has, evidence.log):
        node = node_of(evidence, event)
        if node and event.gravity is not Gravity.NOTE:
            earlier = spoke.setdefault(node, event.at)
            timed = earlier is not None and event.at is not None
            spoke[node] = min(earlier, event.at) if timed else None  # type: ignore[type-var]
    return CrashScene(
        hosts=tuple(dict.fromkeys(evidence.ranks.nodes.values())),
        reports=tuple(reports),
        spoke=spoke,
        unread=evidence.unread,
        working=(*evidence.working, *_surviving_pairs(evidence, errors)),
        fabric=evidence.fabric,
        groups=evidence.groups,
        hints=join_hints(evidence.hints, dict.fromkeys(_nodes_without_link(errors), KNOWN_BAD)),
    )


def counter_hints(fabric: Fabric, counted: Counters) -> dict[Part, float]:
    """Factors on the odds of parts by the counters of their ports after a crash. If all NICs of a
    host count errors, or all links of a switch, it is likelier to be at fault itself: what loses
    its power takes all of them down."""
    factors = {part: min(factor, COUNTED) for part, factor in hints(fabric, counted).items()}
    ends: dict[Part, list[Part]] = {}
    for part in factors:
        if part.kind == "nic":
            ends.setdefault(Part("node", part.name), []).append(part)
        elif part.kind == "link":
            for switch in (part.name, part.other):
                ends.setdefault(Part("switch", switch), []).append(part)
    failing = {
        end: max(factors[part] for part in parts)
        for end, parts in ends.items()
        if len(parts) > 1 and all(factors[part] > 1 for part in parts)
    }
    explained = chain.from_iterable(ends[end] for end in failing)
    return factors | dict.fromkeys(explained, 1.0) | failing


def _nodes_without_link(errors: Sequence[JobFact]) -> Iterator[Part]:
    """Nodes that report a failed link of their own, by their kernel or by NCCL."""
    for fact in errors:
        if fact.whom.node and fact.peer is None:
            yield Part("node", fact.whom.node)


def _surviving_pairs(evidence: JobEvidence, errors: Sequence[JobFact]) -> Iterator[WorkingPair]:
    """Pairs between which data still arrived after the first error. Earlier arrivals prove
    nothing."""
    began = min((fact.at for fact in errors if fact.at is not None), default=math.inf)
    ends = {
        frozenset((evidence.ranks.node_of(call.rank), evidence.ranks.node_of(call.peer)))
        for call in evidence.calls
        if call.peer is not None and call.finished is not None and call.finished > began + SKEW_S
    }
    for a, b in sorted(sorted(pair) for pair in ends if len(pair) == 2 and "" not in pair):
        yield WorkingPair(a=a, b=b)
