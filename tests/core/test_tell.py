"""The words of a person about an event become its fields, or are refused by one sentence."""

from __future__ import annotations

import pytest

from anubis.core.errors import UsageError
from anubis.core.history.events import (
    JobAllocated,
    JobEnded,
    MaintenancePlanned,
    OperatorSaid,
    Order,
    RepairDone,
    SuspicionRaised,
)
from anubis.operations.requests import TellRequest
from anubis.operations.tell import event_of, event_words

NOW, NODES = 1000.0, ("n1",)


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (TellRequest("job-ended", job="7"), JobEnded(nodes=(), job="7")),
        (
            TellRequest("job-allocated", NODES, job="7", duration_s=60.0),
            JobAllocated(nodes=NODES, job="7", duration_s=60.0),
        ),
        (TellRequest("repair-done", NODES, reason="fan"), RepairDone(nodes=NODES, action="fan")),
        (
            TellRequest("suspicion-raised", NODES, category="gpu", source="me", confidence=0.0),
            SuspicionRaised(nodes=NODES, category="gpu", source="me", confidence=0.0),
        ),
        (
            TellRequest("maintenance", NODES, end=2000.0),
            MaintenancePlanned(nodes=NODES, begin=NOW, end=2000.0),
        ),
        (TellRequest("retire", NODES), OperatorSaid(nodes=NODES, order=Order.RETIRE)),
    ],
)
def test_each_option_is_the_field_that_it_names(asked, event):
    assert event_of(asked, NOW) == event


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (TellRequest("job-allocated", NODES, duration_s=60.0), "job-allocated needs --job"),
        (TellRequest("job-allocated", NODES, job="7"), "job-allocated needs --duration"),
        (TellRequest("incident-reported", NODES), "incident-reported needs --category"),
        (TellRequest("node-added"), "node-added: name the nodes after the event"),
        (TellRequest("retire", NODES, job="7"), "retire has no --job: only job-allocated"),
        (TellRequest("node-added", NODES, mix={}), "only suspicion-raised has it"),
        (TellRequest("close-breaker"), "anubis keep --close"),
        (TellRequest("node-aded", NODES), 'did you mean "node-added"?'),
        (TellRequest("suspicion-raised", NODES, category="gpu", mix={"gpu": -1.0}), "shares"),
    ],
)
def test_a_field_that_does_not_belong_to_an_event_is_refused_in_one_sentence(asked, wrong):
    with pytest.raises(UsageError) as refused:
        event_of(asked, NOW)
    assert wrong in str(refused.value)


def test_every_word_that_is_offered_is_known():
    for word in event_words():
        with pytest.raises(UsageError, match=r"name the nodes|needs --"):
            event_of(TellRequest(word), NOW)
