"""Keep what the agents of nodes report of kernel logs: proof as an incident, which takes a node
out, and signs as suspicions. What a line means is in the table of classes, and nowhere else.

A line that is reported twice counts once. While a suspicion of the same kind is open, no other is
raised. A link that goes down while a node starts is no sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from anubis.config import configs
from anubis.core.diagnose.error_classes import ErrorClasses, Recognised
from anubis.core.diagnose.evidence import Gravity
from anubis.core.errors import AnubisError
from anubis.core.history.events import IncidentReported, KeptEvent, SuspicionRaised
from anubis.core.text import escape_line
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import find, find_own_names, now_in, strangers_among
from anubis.operations.tell import Receipt, Telling, tell_all
from anubis.readers.jobs.kernel_logs import recognise
from anubis.store.history import ClusterHistory

SOURCE = "kernel-log"  # of its events
STARTS_S = 600.0  # in which drivers take links down and up
LONGEST_SHOWN = 300  # letters of a line
LONGEST_WORD = 200  # letters: of a name or an id
MOST_LINES = 1000  # an agent sends 100


@dataclass(frozen=True, kw_only=True)
class ReportedLine:
    """A line of the kernel's log, or what NVML said."""

    id: str
    """Unique since the node was started."""
    at: float
    """When it was written, in seconds since 1970, by the node's clock."""
    up_s: float
    """Seconds since the node was started."""
    text: str


@dataclass(frozen=True, kw_only=True)
class LineReport:
    """Lines of one node."""

    node: str
    boot: str
    """The id of the node's start: lines of another start are other lines."""
    sent_at: float
    """When it was sent, by the same clock as the lines."""
    lines: tuple[ReportedLine, ...]
    cluster: str | None = None
    """The name in the history; null: the only one that there is."""

    def __post_init__(self) -> None:
        words = [self.node, self.boot, *(line.id for line in self.lines)]
        if wrong := [w for w in words if not (w.isprintable() and 0 < len(w) <= LONGEST_WORD)]:
            raise ValueError(f"{wrong[0][:40]!a}: expected one line of 1 to {LONGEST_WORD} letters")
        if len(self.lines) > MOST_LINES:
            raise ValueError(f"{len(self.lines)} lines, expected {MOST_LINES} at most")


@dataclass(frozen=True, kw_only=True)
class TakenLines:
    """What became of reported lines."""

    cluster: str
    incidents: int = 0
    suspicions: int = 0
    remarks: int = 0  # lines from which nothing follows


def take_lines(report: LineReport, caller: Caller = NO_CALLER) -> TakenLines:
    """Keep the events that a node's lines show."""
    classes, now = configs.error_classes(), now_in(report.cluster, caller)
    with caller.history() as history, history.together():
        part, _ = find(history, report.cluster, caller, (report.node,))
        strangers = strangers_among(part, (report.node,), report.cluster)
        own = find_own_names(part, strangers, report.cluster, caller)
        report = replace(report, node=own.get(report.node, report.node))
        suspected = _suspected(part, report.node, now)
        tellings = [
            Telling(event=event, id=id, at=at, cluster=report.cluster)
            for id, event, at in _events(report, classes, suspected, now)
        ]
        answers = tell_all(tellings, history, caller)
        for answer in answers:
            if isinstance(answer, AnubisError):
                raise answer
    new = [
        telling.event
        for telling, answer in zip(tellings, answers, strict=True)
        if isinstance(answer, Receipt) and answer.is_new
    ]
    incidents = sum(isinstance(event, IncidentReported) for event in new)
    return TakenLines(
        cluster=part.cluster,
        incidents=incidents,
        suspicions=len(new) - incidents,
        remarks=len(report.lines) - len(tellings),
    )


def _suspected(part: ClusterHistory, node: str, at: float) -> set[str]:
    """Return the kinds of lines for which the node is suspected already."""
    return {
        entry.category
        for entry in part.keeping.suspicions()
        if (entry.source, entry.node) == (SOURCE, node) and entry.is_open(at)
    }


def _events(
    report: LineReport, classes: ErrorClasses, suspected: set[str], now: float
) -> Iterator[tuple[str, KeptEvent, float]]:
    """Yield the events among the lines, with ids and times: lines are as old as their node says, by
    whatever clock."""
    for line in report.lines:
        recognised, _ = recognise(line.text, classes)
        weight = recognised.kind.weigh_alone(line.text) if recognised else "remark"
        if recognised is None or weight == "remark":
            continue
        kind, shown = recognised.kind, escape_line(line.text)[:LONGEST_SHOWN]
        at = now - max(0.0, report.sent_at - line.at)
        id, nodes = f"{SOURCE} {report.node} {report.boot} {line.id}", (report.node,)
        if weight == "proof":
            event = IncidentReported(nodes=nodes, category=kind.code, source=SOURCE, reason=shown)
            yield id, event, at
        elif kind.code not in suspected and not _is_of_start(recognised, line):
            suspected.add(kind.code)
            why = f"{kind.means}: {shown}"
            yield (
                id,
                SuspicionRaised(nodes=nodes, category=kind.code, source=SOURCE, reason=why),
                at,
            )


def _is_of_start(recognised: Recognised, line: ReportedLine) -> bool:
    return recognised.gravity is Gravity.DISTRIBUTED and line.up_s < STARTS_S
