"""Tests of the keeper whose process dies, stalls or fails: each is resumed once, or has the reason
why not. The tests are real processes on this machine."""

from __future__ import annotations

import socket
import time

import pytest

from anubis.core.errors import CampaignTakenError, ExecutorError, Stopped
from anubis.core.history.events import NodeAdded
from anubis.core.keep.commands import Stage
from anubis.core.keep.life import State
from anubis.core.records import CampaignKind
from anubis.operations import campaigns, decided_tests
from anubis.operations.caller import Caller
from anubis.operations.campaigns import resume_campaign
from anubis.operations.keep import keep
from anubis.operations.keeping import keeping_of
from anubis.operations.requests import KeepRequest
from anubis.operations.tell import Telling, tell
from anubis.store.campaigns import Campaigns
from anubis.store.database import own_name
from anubis.store.history import History
from anubis.store.holds import LASTS_S
from tests.edges.desk import SPIN
from tests.patience import LIMIT_S, eventually

KEEPING = {"summary": "tests are run", "test": "act", "pause_s": 0, "tested_at_once": 1.0}
RUNS = 6


class Bench:
    """This machine as a cluster of one node; its test runs a program six times."""

    def __init__(self, desk, waits_at=0):
        """`waits_at`: the run that goes on until it is let go; 0: none."""
        self.desk = desk
        self.suite = desk.suite(desk.spin(waits_at))
        self.cluster = str(desk.write("bench.yaml", {"executor": "local", "name": "bench"}))
        self.keeping = str(desk.write("keeping.yaml", {**KEEPING, "suite": self.suite}))
        self.node = socket.gethostname()
        self.ahead_s = 0.0
        tell(Telling(event=NodeAdded(nodes=(self.node,)), cluster=self.cluster))

    @property
    def caller(self):
        return Caller(clock=lambda: time.time() + self.ahead_s)

    def start(self, *words):
        """A keeper in a process of its own."""
        return self.desk.start("keep", "--cluster", self.cluster, "--keeping", self.keeping, *words)

    def keep(self, service=""):
        asked = KeepRequest(
            cluster=self.cluster,
            keeping=self.keeping,
            benchmarks=(self.desk.programs,),
            service=service,
        )
        request = keeping_of(asked)
        return keep(request, self.caller).lives[self.node].state

    def campaigns(self):
        with History.open(str(self.desk.history)) as history:
            return history.campaigns.newest(9)

    def test(self):
        with History.open(str(self.desk.history)) as history:
            actions = history.cluster("bench").keeping.newest_actions()
        (test,) = [action for action in actions if action.command.kind == "prove"]
        return test

    def was_sent_long_ago(self):
        test = self.test()
        with History.open(str(self.desk.history)) as history:
            history.cluster("bench").keeping.follow(
                test, Stage.SENT, test.changed_at - 10 * LASTS_S
            )

    def holders(self):
        with History.open(str(self.desk.history)) as history:
            return [
                hold.holder for hold in history.cluster("bench").holds.current(self.caller.clock())
            ]

    def state(self):
        with History.open(str(self.desk.history)) as history:
            (life,) = history.cluster("bench").keeping.lives()
        return life.state


def killed_at_its_third_run(desk):
    bench = Bench(desk, waits_at=3)
    driver = bench.start()
    assert eventually(lambda: desk.began() == 3), driver.communicate()
    driver.kill()
    driver.communicate()
    desk.gate.touch()
    return bench


@pytest.mark.long
def test_a_test_whose_driver_was_killed_resumes_after_its_hold_and_runs_once(near):
    bench = killed_at_its_third_run(near)
    bench.was_sent_long_ago()
    assert bench.keep() is State.TESTING  # what the driver started may still run there
    assert near.began() == 3
    bench.ahead_s = LASTS_S
    assert bench.keep() is State.IN_SERVICE
    assert near.began() == RUNS + 1  # with the one that was cut short
    (campaign,), test = bench.campaigns(), bench.test()
    assert (test.stage, test.campaign, bench.holders()) == (Stage.DONE, campaign.id, [])


@pytest.mark.long
def test_a_turn_waits_for_no_test_and_the_test_takes_the_turn_with_its_answer(near):
    bench = Bench(near, waits_at=3)
    for _ in range(2):  # the second turn finds the test at work
        turn = bench.start("--apart")
        assert "testing" in turn.communicate(timeout=LIMIT_S)[0]
        assert eventually(lambda: near.began() == 3)
    near.gate.touch()
    assert eventually(lambda: bench.state() is State.IN_SERVICE)
    assert near.began() == RUNS
    assert (len(bench.campaigns()), bench.test().stage) == (1, Stage.DONE)
    assert eventually(lambda: not bench.holders())


@pytest.mark.long
def test_a_test_that_cannot_resume_has_its_reason_and_its_node_is_free(near):
    bench = killed_at_its_third_run(near)
    near.program("spin.py", SPIN.replace('"version": "1"', '"version": "2"', 1))
    bench.ahead_s = LASTS_S
    policy = {**KEEPING, "suite": bench.suite, "pause_s": 900}
    near.write("keeping.yaml", policy)
    assert bench.keep() is State.NEW
    test = bench.test()
    assert test.stage is Stage.FAILED
    assert "no longer the one this campaign began with" in test.note


def test_a_test_whose_driver_stalls_is_resumed_by_no_other(near, monkeypatch):
    bench = Bench(near)
    carry_out = decided_tests.carried_out_tests

    def stand_still(*words, **how):
        monkeypatch.setattr(decided_tests, "carried_out_tests", carry_out)
        bench.ahead_s = LASTS_S
        assert bench.keep() is State.TESTING  # the other
        return carry_out(*words, **how)

    monkeypatch.setattr(decided_tests, "carried_out_tests", stand_still)
    assert bench.keep() is State.IN_SERVICE
    assert near.began() == RUNS
    assert len(bench.campaigns()) == 1
    assert (bench.test().stage, bench.holders()) == (Stage.DONE, [])


def test_a_test_that_failed_halfway_resumes(near, monkeypatch):
    bench = Bench(near)
    carry_out = campaigns.carry_out

    def fail(campaign, executor, **how):
        monkeypatch.setattr(campaigns, "carry_out", carry_out)
        raise ExecutorError("most nodes were lost within a minute")

    monkeypatch.setattr(campaigns, "carry_out", fail)
    assert bench.keep() is State.IN_SERVICE
    (campaign,) = bench.campaigns()
    assert campaign.finished_at
    assert bench.test().stage is Stage.DONE


def test_a_campaign_and_the_hold_of_its_nodes_begin_together_or_not_at_all(near, monkeypatch):
    bench, begin = Bench(near), Campaigns.begin
    seen = []

    def look_beside(self, campaign):
        begin(self, campaign)
        seen.append((bench.holders(), bench.campaigns()))

    monkeypatch.setattr(Campaigns, "begin", look_beside)
    assert bench.keep() is State.IN_SERVICE
    assert seen == [([], [])]  # a process that dies here leaves neither


def test_a_service_has_no_turn_taken_once_another_one_acts(near):
    bench = Bench(near)
    with History.open(str(near.history)) as history:
        lock, keeping = history.acting_lock(), history.cluster("bench").keeping
        assert lock.has()
        with pytest.raises(Stopped, match=f"^{own_name()} acts now, and takes the turns that gone"):
            bench.keep(service="gone")
        assert (near.began(), keeping.last_turn()) == (0, None)
        bench.keep(service=own_name())
        assert (near.began(), keeping.last_turn().by) == (RUNS, own_name())
        lock.give_back()
        bench.keep(service="gone")  # no service acts: it may end its own test
        assert keeping.last_turn().by == "gone"


@pytest.mark.long
def test_resuming_a_campaign_of_another_driver_touches_no_node(near, monkeypatch):
    bench = killed_at_its_third_run(near)
    (campaign,) = bench.campaigns()
    monkeypatch.setattr(campaigns, "executor_of", lambda *_, **__: pytest.fail("a way was opened"))
    with (
        History.open(str(near.history)) as history,
        history.campaigns.claim(campaign.id),
        pytest.raises(CampaignTakenError, match="is being driven by process"),
    ):
        resume_campaign(CampaignKind.ACCEPT, campaign.id, bench.caller)
