"""Nodes that are out of service, what each waits for, and the spares for them: as JSON Lines and as
a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anubis.core.history.events import Debt
from anubis.core.keep.life import Life, Proof, State
from anubis.report.json import json_line
from anubis.report.keep import PROOFS
from anubis.report.page import page
from anubis.report.service_pages import path_of
from anubis.text.wording import moment, names, quantity

LISTED = 200  # tickets
NAMED = 3  # nodes in a sentence
NEXT_NAMED = 5  # that a table names


class Awaited(StrEnum):
    JOBS = "jobs"
    REPAIR = "repair"
    END_OF_REPAIR = "end-of-repair"
    PROOF = "proof"
    END_OF_INCIDENT = "end-of-incident"
    TEST = "test"
    VERDICT = "verdict"
    ANSWER = "answer"
    END_OF_MAINTENANCE = "end-of-maintenance"


OWED = {
    Awaited.JOBS: "the end of its jobs, a repair, and the proof of it",
    Awaited.REPAIR: "a repair, and the proof of it",
    Awaited.END_OF_REPAIR: "the end of its repair, and the proof of it",
    Awaited.PROOF: f"the proof of its repair: {PROOFS[Proof.FULL]}",
    Awaited.END_OF_INCIDENT: "the end of its incident, and a test that it passes since",
    Awaited.TEST: "a test that it passes since its incident",
    Awaited.VERDICT: "the verdict of the test that runs now",
    Awaited.END_OF_MAINTENANCE: "the end of its maintenance",
    Awaited.ANSWER: "an answer: its orchestrator does not show it",
}


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A node that is out or to be taken out, or was."""

    cluster: str
    node: str
    ticket: str  # empty: none was opened
    state: str  # of the node now
    code: str
    reason: str
    campaign: str  # that found it
    opened_at: float | None
    is_proposed: bool
    awaits: Awaited | None  # None: it is closed
    devices: tuple[str, ...] = ()  # that fell short
    remedy: str = ""
    vendor_asks: str = ""
    closed_at: float | None = None
    closed_by: str = ""  # the campaign that proved the repair


@dataclass(frozen=True, kw_only=True)
class Spare:
    node: str
    since: float  # proven by a test that began then, or chosen then
    is_kept_from_jobs: bool


@dataclass(frozen=True, kw_only=True)
class SpareBuffer:
    """The spares of one sku."""

    cluster: str
    sku: str
    target: int
    ready: tuple[Spare, ...]
    unproven: tuple[Spare, ...]
    next: tuple[str, ...]  # of those that are free, the first
    free: int
    note: str = ""  # why there can be none

    @property
    def lacks(self) -> int:
        return max(0, self.target - len(self.ready))


@dataclass(frozen=True, kw_only=True)
class OutOfWork:
    """The nodes of a cluster that are out of service, and its spares."""

    cluster: str
    nodes: int  # that the keeper knows
    tickets: tuple[Ticket, ...]  # open, the oldest first
    closed: tuple[Ticket, ...]  # the newest first
    buffers: tuple[SpareBuffer, ...]
    by_others: tuple[str, ...]  # nodes that a person keeps from jobs


def next_awaited(life: Life) -> Awaited:
    """Return what must happen before a node that is out serves again."""
    match life.state:
        case State.TESTING:
            return Awaited.VERDICT
        case State.MAINTENANCE:
            return Awaited.END_OF_MAINTENANCE
        case State.LOST:
            return Awaited.ANSWER
        case State.REPAIRING:
            return Awaited.END_OF_REPAIR
        case _ if not life.is_broken and not life.ticket:
            return Awaited.END_OF_INCIDENT if life.incidents else Awaited.TEST
        case State.DRAINING if life.jobs:
            return Awaited.JOBS
    return Awaited.PROOF if life.owes(Debt.REPAIR) else Awaited.REPAIR


@dataclass(frozen=True, kw_only=True)
class TicketLine:
    """A node that is out of service or to be taken out, or was."""

    cluster: str
    node: str
    ticket: str
    """Empty: not opened yet."""
    state: str
    """The state of the node now, as the keeper sees it."""
    code: str
    reason: str
    campaign: str
    """The campaign that found it."""
    devices: Sequence[str]
    """Devices that fell short by themselves."""
    opened_at: float | None
    proposed: bool
    """Whether a person still has to have it opened."""
    action: str | None
    """What to do, if the policy says so."""
    awaits: str | None
    """What has to come first: jobs (to end), repair, end-of-repair, proof, end-of-incident, test
    (that it passes since its incident), verdict (of a test that runs) or answer (of the node).
    null: it is closed."""
    closed_at: float | None
    closed_by: str
    """The campaign that proved the repair."""


@dataclass(frozen=True, kw_only=True)
class SpareFields:
    node: str
    since: float
    """When the test began that proved it, or when it was chosen."""
    kept_from_jobs: bool


@dataclass(frozen=True, kw_only=True)
class SparesLine:
    cluster: str
    sku: str
    target: int
    """How many the policy wants ready."""
    ready: Sequence[SpareFields]
    unproven: Sequence[SpareFields]
    next: Sequence[str]
    """The nodes that come next, the least at risk first."""
    free: int
    """How many nodes could become spares."""
    note: str
    """Why none can; empty: they can."""


# --- as JSON Lines ---------------------------------------------------------------------------


def ticket_line(ticket: Ticket) -> str:
    fields = TicketLine(
        cluster=ticket.cluster,
        node=ticket.node,
        ticket=ticket.ticket,
        state=ticket.state,
        code=ticket.code,
        reason=ticket.reason,
        campaign=ticket.campaign,
        devices=ticket.devices,
        opened_at=ticket.opened_at,
        proposed=ticket.is_proposed,
        action=ticket.remedy or None,
        awaits=ticket.awaits,
        closed_at=ticket.closed_at,
        closed_by=ticket.closed_by,
    )
    return json_line("ticket", fields)


def spares_line(buffer: SpareBuffer) -> str:
    fields = SparesLine(
        cluster=buffer.cluster,
        sku=buffer.sku,
        target=buffer.target,
        ready=[_spare_fields(spare) for spare in buffer.ready],
        unproven=[_spare_fields(spare) for spare in buffer.unproven],
        next=buffer.next,
        free=buffer.free,
        note=buffer.note,
    )
    return json_line("spares", fields)


def _spare_fields(spare: Spare) -> SpareFields:
    return SpareFields(node=spare.node, since=spare.since, kept_from_jobs=spare.is_kept_from_jobs)


# --- the page --------------------------------------------------------------------------------


def tickets_page(clusters: Sequence[OutOfWork], as_of: float, simulated: str = "") -> str:
    tickets = [ticket for cluster in clusters for ticket in cluster.tickets]
    draining = sum(ticket.state == State.DRAINING for ticket in tickets)
    buffers = [buffer for cluster in clusters for buffer in cluster.buffers]
    ready = sum(min(len(buffer.ready), buffer.target) for buffer in buffers)
    return page(
        "service_tickets",
        here="/tickets",
        as_of=as_of,
        simulated=simulated,
        clusters=clusters,
        out=len(tickets) - draining,
        draining=draining,
        ready=ready,
        target=sum(buffer.target for buffer in buffers),
        to_do=list(to_do(tickets, buffers)),
        spare_note=spare_note,
        unkept=[cluster.cluster for cluster in clusters if not cluster.nodes],
        listed=LISTED,
        next_named=NEXT_NAMED,
        owed=OWED,
        path_of=path_of,
    )


def to_do(tickets: Sequence[Ticket], buffers: Iterable[SpareBuffer]) -> Iterator[str]:
    """Yield what a person has to do, the most urgent first."""
    if broken := [ticket.node for ticket in tickets if ticket.awaits is Awaited.REPAIR]:
        yield f"Repair {names(broken, NAMED)}, then report it: anubis tell repair-done NODE."
    if repaired := [ticket.node for ticket in tickets if ticket.awaits is Awaited.PROOF]:
        yield f"{names(repaired, NAMED)}: repaired, and not proven yet."
    for buffer in buffers:
        if buffer.lacks:
            yield _lack(buffer)


def _lack(buffer: SpareBuffer) -> str:
    head = f"{buffer.sku or 'sku unknown'} lacks {quantity(buffer.lacks, 'spare')}"
    if buffer.note:
        return f"{head}: {buffer.note}."
    if buffer.unproven:
        return f"{head}: {names([s.node for s in buffer.unproven], NAMED)} to be proven."
    if buffer.next:
        return f"{head}: {buffer.next[0]} comes next."
    return f"{head}, and no node is free to become one: add nodes, or repair some."


def spare_note(spare: Spare) -> str:
    since = f"since {moment(spare.since)}"
    return since if spare.is_kept_from_jobs else f"{since}, and not kept from jobs yet"
