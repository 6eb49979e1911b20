"""The reports of hosts on each other at a crash, as the search for its cause sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from anubis.core.diagnose.critical import crash_window
from anubis.core.diagnose.evidence import Gravity, JobEvidence, WorkingPair
from anubis.core.diagnose.facts import JobFact, Whom
from anubis.core.fabric import Fabric, Part

# factor on the odds of a part that a scan or its own kernel calls bad: of twenty such parts one
# has nothing to do with the crash (assumed)
KNOWN_BAD = 20.0
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
        reporter, peer = _node(evidence, fact.whom), _node(evidence, fact.peer or Whom())
        if reporter and peer and reporter != peer:
            device = fact.whom.device
            reports.append(Report(reporter=reporter, peer=peer, device=device, at=fact.at))
    spoke: dict[str, float | None] = {}
    window = crash_window(evidence)
    for event in filter(window.has, evidence.log):
        node = event.node or ("" if event.rank is None else evidence.ranks.node_of(event.rank))
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
        hints={**dict.fromkeys(_nodes_without_link(errors), KNOWN_BAD), **evidence.hints},
    )


def _nodes_without_link(errors: Sequence[JobFact]) -> Iterator[Part]:
    """Nodes whose own kernel reports that a link of theirs failed."""
    for fact in errors:
        if fact.whom.node and fact.whom.device and fact.peer is None:
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


def _node(evidence: JobEvidence, whom: Whom) -> str:
    if whom.node or whom.rank is None:
        return whom.node
    return evidence.ranks.node_of(whom.rank)
