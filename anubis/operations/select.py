"""Decide by the history which tests an event is worth."""

from __future__ import annotations

from anubis.core.history.events import EventRecord, FleetEvent, KeptEvent
from anubis.core.select.decision import Decision
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import find, time_in
from anubis.operations.decide import USUAL, keep, read_repertoire, refuse_nodes
from anubis.operations.keeper_news import weighing_by_now
from anubis.operations.names import new_name
from anubis.operations.requests import Terms
from anubis.operations.tell import note


def select(event: FleetEvent, terms: Terms = USUAL, caller: Caller = NO_CALLER) -> Decision:
    """Decide which tests an event is worth. Nothing runs, and no node is contacted. If nodes were
    added or upgraded or had an incident, that is kept: later decisions presume a defect on them
    until they pass."""
    repertoire = read_repertoire(terms)
    with caller.history() as history:
        part, cluster = find(history, terms.cluster, caller, event.nodes)
        refuse_nodes(part, event, terms, may_test=True)
        time = time_in(part, caller)
        at = time.now
        with history.together():
            if isinstance(event, KeptEvent) and event.presumes:
                note([EventRecord(id=new_name(event.kind, at), at=at, event=event)], part)
            decision = weighing_by_now(part, time, repertoire).decide(event)
            keep(decision, cluster, history, caller)
        return decision
