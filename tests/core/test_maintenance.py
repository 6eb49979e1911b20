"""Maintenance windows: the last report holds, in any order of arrival."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anubis.core.history.events import EventRecord, MaintenanceEnded, MaintenancePlanned
from anubis.core.history.maintenance import open_windows, reported_windows
from anubis.core.keep.keeper_events import FleetSeen, SeenWindow
from anubis.operations.owners import SHOWN, news_of_windows

NODES = ("n1", "n2", "n3")
some_nodes = st.lists(st.sampled_from(NODES), min_size=1, unique=True).map(tuple)
times = st.integers(0, 20).map(float)
names = st.sampled_from(["", "a", "b"])


def planned(begin, end, *nodes, name="", source="operator"):
    return MaintenancePlanned(
        nodes=nodes or NODES[:1], begin=begin, end=end, name=name, source=source
    )


@st.composite
def told(draw):
    """Event records in the order of time."""
    event_records = []
    for place in range(draw(st.integers(0, 6))):
        nodes, name = draw(some_nodes), draw(names)
        if draw(st.booleans()):
            begin = draw(times)
            event = planned(begin, begin + 1 + draw(times), *nodes, name=name)
        else:
            event = MaintenanceEnded(nodes=nodes, name=name)
        event_records.append(EventRecord(id=f"{place}", at=float(place), event=event))
    return event_records


def is_open(event_records, node, at):
    """Naively: which windows opened and closed, one event record after the other."""
    windows = {}
    for event_record in event_records:
        event = event_record.event
        if isinstance(event, MaintenancePlanned):
            name = event.name or event_record.id
            windows = {key: span for key, span in windows.items() if key[0] != name}
            windows |= {(name, n): (event.begin, event.end) for n in event.nodes}
            continue
        for name, n in list(windows):
            if n in event.nodes and event.name in ("", name):
                begin, end = windows[name, n]
                windows[name, n] = (begin, min(end, event_record.at))
    return any(begin <= at < end for (_, n), (begin, end) in windows.items() if n == node)


def end_of_all(at):
    return EventRecord(id=f"{at}", at=at, event=MaintenanceEnded(nodes=("n1",)))


@example(
    [EventRecord(id="0", at=3.0, event=planned(0.0, 9.0, "n1")), *map(end_of_all, (4.0, 5.0))],
    4.5,
    random.Random(0),
)
@given(told(), times, st.randoms())
def test_the_last_reported_window_holds_in_any_order_of_arrival(
    event_records, at, order: random.Random
):
    shuffled = list(event_records)
    order.shuffle(shuffled)
    there = open_windows(reported_windows(shuffled), at)
    assert set(there) == {node for node in NODES if is_open(event_records, node, at)}


@pytest.mark.parametrize(
    ("begin", "end"), [(5.0, 4.0), (5.0, 5.0), (5.0, math.nan), (math.nan, 5.0), (-math.inf, 5.0)]
)
def test_a_window_that_cannot_be_is_refused(begin, end):
    with pytest.raises(ValueError, match="a maintenance that"):
        planned(begin, end)


def test_the_open_window_that_ends_last_is_shown():
    event_records = [
        EventRecord(id="1", at=0.0, event=planned(0.0, 10.0)),
        EventRecord(id="2", at=0.0, event=planned(5.0, 30.0)),
        EventRecord(id="3", at=0.0, event=planned(50.0, 60.0)),
    ]
    windows = reported_windows(event_records)
    assert [open_windows(windows, at)["n1"].end for at in (4.0, 9.0)] == [10.0, 30.0]
    assert open_windows(windows, 31.0) == {}
    assert open_windows(windows, 31.0, until=55.0)["n1"].begin == 50.0


# --- as an orchestrator shows them --------------------------------------------------------

looks = st.dictionaries(
    st.sampled_from(["reservation a", "maintenance"]),
    st.builds(
        lambda nodes, begin, lasts: SeenWindow(nodes=nodes, begin=begin, end=begin + lasts),
        some_nodes,
        times,
        st.sampled_from([1.0, 5.0, 30.0, math.inf]),
    ),
)


@given(st.lists(looks, max_size=6))
def test_the_history_records_each_window_of_an_orchestrator_once(seen):
    event_records = []
    for place, windows in enumerate(seen):
        look = FleetSeen(at=3.0 * place, nodes={}, windows=windows)
        event_records += news_of_windows(look, reported_windows(event_records))
        known = reported_windows(event_records)
        assert not news_of_windows(look, known)
        assert set(open_windows(known, look.at)) == {
            node
            for window in windows.values()
            if window.begin <= look.at < window.end
            for node in window.nodes
        }
    assert {n.event.source for n in event_records if isinstance(n.event, MaintenancePlanned)} <= {
        SHOWN
    }


def test_a_window_that_the_orchestrator_still_shows_reopens_after_a_person_ended_it():
    window = SeenWindow(nodes=("n1",), begin=0.0, end=100.0)
    look = FleetSeen(at=10.0, nodes={}, windows={"reservation a": window})
    event_records = news_of_windows(look, {})
    event_records.append(EventRecord(id="e", at=11.0, event=MaintenanceEnded(nodes=("n1",))))
    assert not open_windows(reported_windows(event_records), 12.0)
    later = FleetSeen(at=20.0, nodes={}, windows={"reservation a": window})
    event_records += news_of_windows(later, reported_windows(event_records))
    assert set(open_windows(reported_windows(event_records), 20.0)) == {"n1"}
