"""The nodes of a cluster as they are now: a table, and JSON Lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anubis.core.history.status import Job, Validation
from anubis.core.keep.keeper_events import SeenJob, SeenNode
from anubis.core.records import Judgement
from anubis.core.text import escape_line
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.store.holds import Hold
from anubis.text.wording import moment, quantity, time_span

if TYPE_CHECKING:
    from rich.console import Console


STANDINGS = (  # in the headline and in the table, in this order
    "under maintenance",
    "drained by anubis",
    "kept from jobs by others",
    "down",
    "out of service by the history",
    "owing an answer",
    "to be proven",
    "at work",
    "being measured",
    "kept for others",
    "free",
)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The known facts of one node, as of now."""

    node: str
    cluster: str
    seen: SeenNode | None = None  # by the orchestrator; None: there is none, or it lacks the node
    jobs: Mapping[str, SeenJob]  # as the orchestrator shows them
    reported_jobs: Sequence[Job] = ()  # if no orchestrator shows the node
    hold: Hold | None = None
    last: Validation | None = None  # the last verdict on it
    judgement: Judgement = Judgement.UNKNOWN  # as a gate has it that runs nothing
    unfit: str = ""  # why the history has it out of service
    maintenance: str = ""  # until when, and why
    owes: str = ""  # what it left unanswered, and since when
    unproven: str = ""  # reports about it that it has to disprove
    doubt: str = ""  # why none of its passes counts, if a clock is or was wrong


def headline(views: Sequence[NodeView], cluster: str) -> str:
    counts = Counter(map(standing, views))
    parts = [f"{counts[word]:,} {word}" for word in STANDINGS if counts[word]]
    place = f" of cluster {cluster}" if cluster else ""
    return f"{quantity(len(views), 'node')}{place}: {', '.join(parts) or 'none known'}"


def standing(view: NodeView) -> str:
    """Return the first of these descriptions that is true of the node."""
    seen = view.seen
    if view.maintenance:
        return "under maintenance"
    if seen and seen.cordon and seen.is_up:
        return "drained by anubis" if seen.is_cordoned_by_anubis else "kept from jobs by others"
    if seen and not seen.is_up:
        return "down"
    if view.unfit:
        return "out of service by the history"
    if view.owes:
        return "owing an answer"
    if view.jobs or view.reported_jobs:
        return "at work"
    if view.unproven:
        return "to be proven"
    if view.hold:
        return "being measured"
    return "free" if seen is None or seen.is_free else "kept for others"


def show(views: Sequence[NodeView], now: float, console: Console) -> None:
    """Print a row for each node; first those that need a person, as the headline counts them.
    Columns in which nothing is known of any node are left out."""
    ordered = sorted(views, key=lambda view: STANDINGS.index(standing(view)))
    columns = {
        "node": [view.node for view in ordered],
        "state": [view.seen.state if view.seen else "-" for view in ordered],
        "work": [_work(view, now) for view in ordered],
        "last verdict": [_verdict(view) for view in ordered],
        "why it is out or unknown": [_reason_out(view) for view in ordered],
    }
    shown = {heading: cells for heading, cells in columns.items() if {*cells} - {"-"}}
    rows = table(*shown, gap=2, names=columns["node"])
    for cells in zip(*shown.values(), strict=True):
        add_row(rows, *cells)
    console.print(rows)


@dataclass(frozen=True, kw_only=True)
class JobShown:
    id: str
    owner: str
    """Empty: its orchestrator does not show the owner, or the job was reported."""
    since: float | None


@dataclass(frozen=True, kw_only=True)
class NodeLine:
    node: str
    cluster: str
    standing: str
    """Its count in the first line of the terminal."""
    sku: str
    state: str | None
    """The state in the orchestrator's own words. null: it has none, or the orchestrator does not
    know the node."""
    is_up: bool | None
    jobs: Sequence[JobShown]
    reason: str
    """Why it is kept from jobs; empty: it is not."""
    reason_by: str
    reason_at: float | None
    by_anubis: bool
    """Whether Anubis keeps it from jobs."""
    held_by: str
    """The campaign that measures there now."""
    held_since: float | None
    verdict: Judgement | None
    """The last one. null: there is none."""
    code: str
    verdict_at: float | None
    campaign: str
    judgement: Judgement
    """The answer of a gate that runs no tests."""
    unfit: str
    """Why the history has it out of service; empty: it has not."""
    maintenance: str
    """The end and the reason of its maintenance; empty: it is under none."""
    owes: str
    """The benchmarks that it left unanswered, and since when; empty: none."""
    unproven: str
    """What was reported of it (an incident, an upgrade) since it last passed anything; empty:
    nothing."""
    doubt: str
    """Why its passes do not count, if a clock is or was wrong; empty: they do, or it has none."""


def lines(views: Sequence[NodeView]) -> Iterator[str]:
    for view in views:
        yield json_line("node", fields(view))


def fields(view: NodeView) -> NodeLine:
    seen, hold, last = view.seen, view.hold, view.last
    return NodeLine(
        node=view.node,
        cluster=view.cluster,
        standing=standing(view),
        sku=seen.sku if seen else "",
        state=seen.state if seen else None,
        is_up=seen.is_up if seen else None,
        jobs=list(_jobs(view)),
        reason=seen.cordon if seen else "",
        reason_by=seen.cordoned_by if seen else "",
        reason_at=seen.cordoned_at if seen else None,
        by_anubis=bool(seen and seen.is_cordoned_by_anubis),
        held_by=hold.holder if hold else "",
        held_since=hold.since if hold else None,
        verdict=last.judgement if last else None,
        code=last.code if last else "",
        verdict_at=last.at if last else None,
        campaign=last.campaign if last else "",
        judgement=view.judgement,
        unfit=view.unfit,
        maintenance=view.maintenance,
        owes=view.owes,
        unproven=view.unproven,
        doubt=view.doubt,
    )


def _jobs(view: NodeView) -> Iterator[JobShown]:
    for id, job in view.jobs.items():
        yield JobShown(id=id, owner=job.owner, since=job.started_at)
    for reported in view.reported_jobs:
        yield JobShown(id=reported.id, owner="", since=reported.start)


def _work(view: NodeView, now: float) -> str:
    """Describe who has the node, and for how long."""
    work = [_job(id, job, now) for id, job in view.jobs.items()]
    work += [f"job {job.id}, {time_span(max(0.0, now - job.start))}" for job in view.reported_jobs]
    return "; ".join([*work, *([view.hold.holder] if view.hold else [])]) or "-"


def _job(id: str, job: SeenJob, now: float) -> str:
    if not job.owner:
        return "owner unknown"
    since = f", {time_span(max(0.0, now - job.started_at))}" if job.started_at else ""
    return f"job {id} of {job.owner}{since}"


def _verdict(view: NodeView) -> str:
    """Name the last judgement and its time. If it keeps the node out, the reason has its code."""
    return f"{view.last.judgement}, {moment(view.last.at)}" if view.last else "-"


def _reason_out(view: NodeView) -> str:
    seen = view.seen
    if view.maintenance:
        return view.maintenance
    if seen is None or not seen.cordon:
        why = view.unfit or view.owes or view.doubt or view.unproven
        return why or (seen.meaning if seen else "") or "-"
    whose = f" ({seen.cordoned_by})" if seen.cordoned_by else ""
    return f"{escape_line(seen.cordon)}{whose}"
