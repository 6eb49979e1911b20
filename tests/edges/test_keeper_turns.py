"""Turns of the keeper: one at a time, each event processed once, each action sent once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.amounts import DAY_S
from anubis.core.errors import StoreUnreachableError
from anubis.core.history.events import Debt, EventRecord, FleetUpgraded
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import Cordon, LifeAction, Mode, Notify, Release, Stage
from anubis.core.keep.keeper_events import Waited
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.records import ClusterIdentity
from anubis.operations.keep_actions import MOST_ORDERS, _batches_of_orders
from anubis.store import database
from anubis.store.history import History
from anubis.store.keeping import LastTurn
from tests.patience import eventually

POLICY = KeepingPolicy(test=Mode.ACT, tested_at_once=1.0)
NODES = [f"n{i}" for i in range(8)]
DRIVERS = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("server").new_database()
    return str(tmp_path / "history.sqlite")


def upgrade(node):
    event = FleetUpgraded(nodes=(node,))
    return EventRecord(id=f"upgrade of {node}", at=1.0, event=event)


def tell_all(url):
    with History.open(url) as history:
        return sum(history.cluster("prod").event_records.add(upgrade(node)) for node in NODES)


def take_turn(url):
    with History.open(url) as history, history.cluster("prod").keeping.turn("me") as turn:
        keeper, news = turn.keeper(POLICY), turn.news()
        for event_record in news.event_records:
            turn.keep(keeper.handle(event_record), 2.0)
        turn.keep(keeper.handle(Waited(at=2.0)), 2.0)
        turn.end(keeper, news, 2.0)
        return len(news.event_records)


def begin_turn(keeping):
    with keeping.turn("me") as turn:
        keeper = turn.keeper(POLICY)
        turn.keep(keeper.handle(upgrade("n1")), 2.0)
        turn.end(keeper, turn.news(), 2.0)
        raise RuntimeError("the keeper died")


def send_all(url):
    with History.open(url) as history:
        keeping = history.cluster("prod").keeping
        kept = [action for action in keeping.open_actions() if action.stage is Stage.KEPT]
        return sum(keeping.take(action, 3.0) for action in kept)


def take_up(url, action):
    with History.open(url) as history:
        return history.cluster("prod").keeping.take(action, 200.0, action.campaign)


def by_several(deed, url):
    with ThreadPoolExecutor(DRIVERS) as drivers:
        return list(drivers.map(deed, [url] * DRIVERS))


def test_concurrent_turns_hear_each_event_once_and_send_each_action_once(url):
    with History.open(url) as history:
        history.clusters.enter(ClusterIdentity(name="prod"), 0.0, NODES)
    assert sum(by_several(tell_all, url)) == len(NODES)
    assert sum(by_several(take_turn, url)) == len(NODES)
    with History.open(url) as history:
        (action,) = history.cluster("prod").keeping.open_actions()
    assert sorted(action.command.owed) == NODES
    (owed,) = action.command.owed["n0"]
    assert owed.debt is Debt.UPGRADE
    assert sum(by_several(send_all, url)) == 1
    with History.open(url) as history:
        (action,) = history.cluster("prod").keeping.open_actions()
    assert action.stage is Stage.SENT
    assert sum(by_several(partial(take_up, action=action), url)) == 1  # its driver died


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((Cordon, Release)), st.floats(0, 9)))
)
def test_orders_go_many_at_once_and_the_last_order_about_a_node_goes_last(orders):
    actions = [kept(id, *order) for id, order in enumerate(orders)]  # a retried one keeps its id
    batches = list(_batches_of_orders(actions))
    assert all(action.command.node == node for batch in batches for node, action in batch.items())
    for node in "abc":
        sent = [batch[node].id for batch in batches if node in batch]
        given_at = {id: at for id, (of, _, at) in enumerate(orders) if of == node}
        assert sent == sorted(given_at, key=given_at.get)
    many = [kept(id, f"n{id}", Cordon) for id in range(2 * MOST_ORDERS + 1)]
    assert [len(batch) for batch in _batches_of_orders(many)] == [MOST_ORDERS, MOST_ORDERS, 1]


def kept(id, node, kind, changed_at=1.0):
    command = (
        Cordon(mode=Mode.ACT, node=node, code="SLOW", reason="slow")
        if kind is Cordon
        else Release(mode=Mode.ACT, node=node, reason="well")
    )
    return LifeAction(id=id, at=1.0, command=command, stage=Stage.KEPT, changed_at=changed_at)


def test_a_failed_action_is_retried_for_a_day_and_then_asked_for_anew(tmp_path):
    order = Release(mode=Mode.ACT, node="n1", reason="well")

    def ask(at):
        with keeping.turn("me") as turn:
            turn.keep([order], at)
        return [(action.id, action.stage) for action in keeping.newest_actions()]

    with History.open(str(tmp_path / "history.sqlite")) as history:
        keeping = history.cluster("prod").keeping
        ((first, _),) = ask(1.0)
        (action,) = keeping.open_actions()
        keeping.follow(action, Stage.FAILED, 2.0)
        assert ask(DAY_S) == [(first, Stage.KEPT)]
        (action,) = keeping.open_actions()
        keeping.follow(action, Stage.FAILED, DAY_S)
        assert ask(2 * DAY_S) == [(first + 1, Stage.KEPT), (first, Stage.FAILED)]


def test_the_process_of_the_last_turn_is_recorded(url):
    with History.open(url) as history:
        keeping = history.cluster("prod").keeping
        assert keeping.last_turn() is None
        take_turn(url)
        assert keeping.last_turn() == LastTurn(at=2.0, by="me")


def test_a_process_that_stops_in_a_turn_blocks_others_only_for_a_while(server, monkeypatch):
    monkeypatch.setattr(database, "STOOD_STILL", "300ms")
    monkeypatch.setattr(database, "SHOWS_LIFE_S", 1e6)  # a stopped process shows none
    monkeypatch.setattr(database, "FOR_EACH_CONNECTION", ("SET lock_timeout = '100ms'",))
    url = server.new_database()
    with History.open(url) as still, History.open(url) as other:
        first, second = still.cluster("prod").keeping, other.cluster("prod").keeping
        with pytest.raises(StoreUnreachableError, match="nothing was changed"):
            stand_still(first, second)
        assert second.last_turn() == LastTurn(at=2.0, by="other")


def test_a_turn_may_compute_for_longer_than_a_process_may_stall(server, monkeypatch):
    monkeypatch.setattr(database, "SHOWS_LIFE_S", 0.01)
    for still_s in (3, 9, 20):  # a busy machine may stop us for some seconds
        monkeypatch.setattr(database, "STOOD_STILL", f"{still_s}s")
        with suppress(StoreUnreachableError), History.open(server.new_database()) as history:
            keeping = history.cluster("prod").keeping
            with keeping.turn("me") as turn:
                keeper = turn.keeper(POLICY)
                time.sleep(still_s + 1)
                turn.end(keeper, turn.news(), 2.0)
            assert keeping.last_turn() == LastTurn(at=2.0, by="me")
            return
    pytest.fail("each turn was ended")


def stand_still(keeping, other):
    with keeping.turn("still") as turn:
        with pytest.raises(StoreUnreachableError, match="another process has been writing"):
            other.turn("other").__enter__()
        assert eventually(lambda: took_turn(other))
        turn.end(turn.keeper(POLICY), turn.news(), 3.0)


def took_turn(keeping):
    with suppress(StoreUnreachableError), keeping.turn("other") as turn:
        turn.end(turn.keeper(POLICY), turn.news(), 2.0)
        return True


def test_a_breaker_stays_open_from_one_turn_to_the_next(url):
    with History.open(url) as history:
        keeping = history.cluster("prod").keeping
        with keeping.turn("me") as turn:
            keeper = turn.keeper(POLICY)
            keeper.breakers["fleet"] = Breaker(is_open=True, accepted=3)
            turn.end(keeper, turn.news(), 2.0)
        with keeping.turn("me") as turn:
            assert turn.keeper(POLICY).breakers == {"fleet": Breaker(is_open=True, accepted=3)}
        assert keeping.breakers() == {"fleet": Breaker(is_open=True, accepted=3)}


def test_a_person_gets_the_same_message_once_a_day(url):
    with History.open(url) as history:
        keeping = history.cluster("prod").keeping
        for hour in (0, 1, 23, 25):
            with keeping.turn("me") as turn:
                turn.keep([Notify(subject="n1", sentence="no benchmark runs")], hour * 3600.0)
                turn.keep([Notify(subject="n1", sentence=f"tried {hour}")], hour * 3600.0)
        told = [action.at / 3600 for action in keeping.newest_actions()]
    assert sorted(told) == [0, 0, 1, 23, 25, 25]


def test_a_turn_that_dies_leaves_everything_as_it_was(url):
    with History.open(url) as history:
        keeping = history.cluster("prod").keeping
        history.cluster("prod").event_records.add(upgrade("n1"))
        with pytest.raises(RuntimeError, match="died"):
            begin_turn(keeping)
        assert len(keeping.news().event_records) == 1
        assert keeping.lives() == []
        assert keeping.open_actions() == []
    assert take_turn(url) == 1
