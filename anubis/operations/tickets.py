"""List a kept cluster's nodes out of service, what each waits for, and the spares that are ready
instead, as the keeper's last turn left them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from anubis.config import configs
from anubis.core.errors import ConfigError, StoreError
from anubis.core.history.events import Debt
from anubis.core.judge.limits import remedy_of
from anubis.core.keep.commands import CloseTicket, LifeAction, OpenTicket, Stage
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import Life, State
from anubis.core.keep.lives import next_in_line, reserve_of, wanted_here
from anubis.core.records import Policy
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import time_in
from anubis.operations.decide import past_of, read_repertoire
from anubis.operations.keeping import kept_policy
from anubis.operations.requests import Terms
from anubis.operations.selector import risks
from anubis.report.tickets import OutOfWork, Spare, SpareBuffer, Ticket, next_awaited
from anubis.store.history import ClusterHistory, History

MOST_ACTIONS = 2000  # the newest on tickets that are read
CLOSED = 50  # tickets that are shown
NO_SKUS = "no orchestrator shows which hardware its nodes have, so none of them becomes a spare"
FIRST = 20  # of the next spares


def out_of_work(policy: str = "default", caller: Caller = NO_CALLER) -> list[OutOfWork]:
    """Tickets and spares of each cluster. A remedy is that of the policy by which the node was
    judged, else of the keeper's, else of `policy`."""
    with caller.history() as history:
        return [
            _out_of_work(history, part, policy, time_in(part, caller).now)
            for part in history.every()
        ]


def _out_of_work(history: History, part: ClusterHistory, policy: str, now: float) -> OutOfWork:
    lives, keeping = part.keeping.lives(), kept_policy(part)
    tickets, closed = _tickets(part, lives)
    tickets = list(_add_remedies(history, tickets, [*_policies(keeping.selection, policy)]))
    return OutOfWork(
        cluster=part.cluster,
        nodes=len(lives),
        tickets=tuple(_add_devices(history, tickets)),
        closed=closed[:CLOSED],
        buffers=tuple(_buffers(part, lives, keeping, now)),
        by_others=tuple(life.node for life in lives if life.is_cordoned_by_others),
    )


# --- tickets ---------------------------------------------------------------------------------

Opened = Mapping[str, tuple[LifeAction, OpenTicket]]  # by ticket


def _tickets(
    part: ClusterHistory, lives: Sequence[Life]
) -> tuple[list[Ticket], tuple[Ticket, ...]]:
    """The open tickets, the oldest first, and the closed ones, the newest first."""
    actions = part.keeping.ticket_actions(MOST_ACTIONS)
    opened = {
        action.command.ticket: (action, action.command)
        for action in actions
        if isinstance(action.command, OpenTicket)
    }
    tickets = [_open_ticket(part.cluster, life, opened) for life in lives if life.is_out_of_service]
    tickets.sort(key=lambda ticket: (ticket.opened_at or 0.0, ticket.node))
    still_open = {ticket.ticket for ticket in tickets}
    by_node = {life.node: life for life in lives}
    closed = [
        _closed_ticket(part.cluster, action, action.command, opened, by_node)
        for action in actions
        if isinstance(action.command, CloseTicket) and action.command.ticket not in still_open
    ]
    return tickets, tuple(closed)


def _open_ticket(cluster: str, life: Life, opened: Opened) -> Ticket:
    defect = life.defect
    action, order = opened.get(life.ticket, (None, None))
    code, why = life.out_reason if life.must_be_out else (life.out_code, "")
    if order and not defect:
        code, why = order.code, order.reason
    return Ticket(
        cluster=cluster,
        node=life.node,
        ticket=life.ticket,
        state=life.state.value,
        code=code,
        reason=why,
        campaign=defect.campaign if defect else order.campaign if order else "",
        opened_at=action.at if action else defect.at if defect else _begin_of(life),
        is_proposed=action is not None and action.stage is Stage.PROPOSED,
        awaits=next_awaited(life),
    )


def _begin_of(life: Life) -> float | None:
    """Begin of a repair that was reported without a defect, or of an incident."""
    if not life.is_broken:
        owed = [owed.at for owed in life.owed if owed.debt is Debt.INCIDENT]
        return min([*(incident.at for incident in life.incidents), *owed], default=None)
    begun = max(life.repair_begun_at, life.repair_done_at)
    return begun if math.isfinite(begun) else None


def _closed_ticket(
    cluster: str, action: LifeAction, order: CloseTicket, opened: Opened, lives: Mapping[str, Life]
) -> Ticket:
    before, opening = opened.get(order.ticket, (None, None))
    life = lives.get(order.node)
    return Ticket(
        cluster=cluster,
        node=order.node,
        ticket=order.ticket,
        state=life.state.value if life else "",
        code=opening.code if opening else "",
        reason=opening.reason if opening else "",
        campaign=opening.campaign if opening else "",
        opened_at=before.at if before else None,
        is_proposed=action.stage is Stage.PROPOSED,
        awaits=None,
        closed_at=action.at,
        closed_by=order.campaign,
    )


def _add_remedies(
    history: History, tickets: Iterable[Ticket], policies: Sequence[Policy]
) -> Iterator[Ticket]:
    """Tickets with what to do; each campaign is read once."""
    judged_by: dict[str, list[Policy]] = {"": []}
    for ticket in tickets:
        if ticket.campaign not in judged_by:
            judged_by[ticket.campaign] = _judged_by(history, ticket.campaign)
        remedies = (
            remedy_of(ticket.code, policy) for policy in (*judged_by[ticket.campaign], *policies)
        )
        remedy = next(filter(None, remedies), None)
        yield (
            replace(ticket, remedy=remedy.action, vendor_asks=remedy.evidence) if remedy else ticket
        )


def _judged_by(history: History, campaign: str) -> list[Policy]:
    """The campaign's policy; none if the campaign was taken back, or is damaged: its own page says
    so."""
    try:
        return [history.campaigns.get(campaign).policy]
    except StoreError:
        return []


def _policies(*names: str) -> Iterator[Policy]:
    """Policies of this machine's files; the keeper's may be another machine's."""
    for name in names:
        with suppress(ConfigError):
            yield configs.policy(name)


def _add_devices(history: History, tickets: Iterable[Ticket]) -> Iterator[Ticket]:
    """Tickets with their defective devices; each campaign is read once."""
    found_by: dict[str, Mapping[str, Sequence[str]]] = {"": {}}
    for ticket in tickets:
        campaign = ticket.campaign
        if campaign not in found_by:
            found_by[campaign] = _devices(history, campaign)
        yield replace(ticket, devices=tuple(found_by[campaign].get(ticket.node, ())))


def _devices(history: History, campaign: str) -> Mapping[str, Sequence[str]]:
    """Defective devices by node; empty if the campaign was taken back, or is damaged: its own page
    says so."""
    try:
        return history.assessments.defective_devices(campaign)
    except StoreError:
        return {}


# --- spares ----------------------------------------------------------------------------------


def _buffers(
    part: ClusterHistory, lives: Sequence[Life], keeping: KeepingPolicy, now: float
) -> Iterator[SpareBuffer]:
    """Spares of each sku for which the policy wants some, or has some."""
    here = {life.sku for life in lives}
    goals = wanted_here(keeping.spares, here) if lives else {}
    skus = goals.keys() | {life.sku for life in lives if life.is_reserve}
    risk = _risk(part, keeping, lives, now) if skus else {}
    for sku in sorted(skus):
        reserve = reserve_of(sku, lives)
        ready = [life for life in reserve if life.state is State.SPARE]
        free = next_in_line(sku, lives, risk)
        yield SpareBuffer(
            cluster=part.cluster,
            sku=sku,
            target=goals.get(sku, 0),
            ready=tuple(_spare(life, life.proven_at) for life in ready),
            unproven=tuple(_spare(life, _chosen_at(life)) for life in reserve if life not in ready),
            next=tuple(life.node for life in free[:FIRST]),
            free=len(free),
            note="" if any(here) else NO_SKUS,
        )


def _risk(
    part: ClusterHistory, keeping: KeepingPolicy, lives: Sequence[Life], now: float
) -> Mapping[str, float]:
    """Risks by which the keeper ranks the next spares."""
    terms = Terms(suite=keeping.suite, policy=keeping.selection)
    repertoire = read_repertoire(terms)
    past = past_of(part, now, repertoire)
    return risks(past, [life.node for life in lives], now, repertoire.policy)


def _spare(life: Life, since: float) -> Spare:
    return Spare(node=life.node, since=since, is_kept_from_jobs=bool(life.cordon))


def _chosen_at(life: Life) -> float:
    return max((owed.at for owed in life.owed if owed.debt is Debt.RESERVE), default=life.sent_at)
