"""A cluster is kept by one policy, for turns by any process."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from anubis.cli import keep as verbs
from anubis.config import configs
from anubis.core.errors import ConfigError, StoreError, UsageError
from anubis.core.history.events import RepairBegun
from anubis.core.keep.commands import Mode
from anubis.core.keep.keeping_policy import CriteriaTask, KeepingPolicy, RiskTask, SweepTask
from anubis.operations.caller import Caller
from anubis.operations.keep import approve, keep
from anubis.operations.keeping import (
    ChosenPolicy,
    choose_policy,
    keeper_of,
    keeping_of,
    kept_policy,
)
from anubis.operations.requests import KeepRequest
from anubis.operations.tell import Telling, tell
from anubis.store.history import History
from anubis.store.keeping import KeptBy

OURS = KeepingPolicy(test=Mode.ACT, out_of_fleet=0.3, tries=7)
SERVICE = "anubis process 1 on elsewhere"
EVERY_KEY = KeepingPolicy(
    summary="all of it",
    cordon=Mode.ACT,
    spares={"h100": 2},
    watch="default",
    sweep=SweepTask(every="1d", budget="8nh", mode=Mode.ACT),
    criteria=CriteriaTask(every="7d"),
    risk=RiskTask(every="7d"),
)


class Site(Caller):
    """A cluster that the history knows by name, without a file, and the remarks to its caller."""

    def __init__(self, folder):
        self.remarks = []
        self.now = time.time() - 600  # verbs have the clock of this machine
        self.folder = folder
        super().__init__(history_url=str(folder / "history.sqlite"), clock=self.later)
        tell(Telling(event=RepairBegun(nodes=("n1",)), cluster=self.describe()), self)

    def later(self):
        self.now += 1
        return self.now

    def remark(self, sentence):
        self.remarks.append(sentence)

    def describe(self, keeping=""):
        """Its file."""
        file = self.folder / "prod.yaml"
        file.write_text("executor: simulated\nfleet: {nodes: 'n[1-20]'}\n" + keeping)
        return str(file)

    def policy(self, name="ours", policy="{test: act, out_of_fleet: 0.3, tries: 7}"):
        file = self.folder / f"{name}.yaml"
        file.write_text(policy)
        return str(file)

    def keeping(self, stated=None, cluster="prod", service=""):
        return keeping_of(KeepRequest(cluster=cluster, keeping=stated, service=service), self)

    def keep(self, *words, **more):
        return keep(self.keeping(*words, **more), self)

    @property
    def kept(self):
        with History.open(self.history_url) as history:
            return history.cluster("prod").keeping.kept_by()

    @contextmanager
    def serving(self, lock="acting"):
        """Another process acts."""
        path = f"{self.history_url}.{lock}.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.pwrite(handle, SERVICE.encode(), 0)
        yield
        os.close(handle)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    return Site(tmp_path)


def test_a_turn_without_a_named_policy_takes_the_recorded_one(site):
    assert site.keeping().policy == KeepingPolicy(summary=configs.keeping("default").summary)
    site.keep(site.policy())
    assert (site.kept.name, site.kept.policy) == (site.policy(), OURS)
    Path(site.policy()).unlink()
    assert site.keeping().policy == OURS  # by its content: the file may be on another machine
    site.keep()
    assert site.kept.policy == OURS
    (proposal, *_) = keep(site.keeping(), site).actions
    with suppress(UsageError):  # whether it can be done is another question
        approve(site.keeping(), [proposal.id], site)
    assert site.kept.policy == OURS


def test_the_file_of_a_cluster_names_its_policy_beside_itself(site):
    site.policy()
    file = site.describe("keeping: ours.yaml\n")
    assert site.keeping(cluster=file).policy == OURS
    with pytest.raises(UsageError, match="and --keeping default is another"):
        site.keeping("default", cluster=file)
    assert site.keeping(site.policy("same"), cluster=file).policy == OURS  # says the same
    site.describe("keeping: nowhere.yaml\n")
    with pytest.raises(ConfigError, match="there is no file"):
        site.keeping(cluster=file)


def test_while_a_service_acts_no_other_policy_is_taken_for_its_cluster(site):
    site.keep(site.policy(), service=SERVICE)
    assert site.kept.said_by == SERVICE
    begun_before = site.keeping("default")  # and meanwhile the service came
    other = site.policy("other", "{tries: 2}")
    for lock in ("acting", "keeper-prod"):
        with site.serving(lock):
            assert keeper_of("prod", site) == SERVICE
            with pytest.raises(UsageError, match=f"and {SERVICE} acts by it: no turn is taken by"):
                site.keeping(other)
            with pytest.raises(UsageError, match=f"and {SERVICE} acts by it: no turn is taken by"):
                keep(begun_before, site)
            assert site.keep().lives  # by theirs
            assert site.kept == replace(site.kept, policy=OURS, said_by=SERVICE)
            file = site.describe(f"keeping: {other}\n")
            site.remarks.clear()
            assert site.keeping(cluster=file).policy == OURS
            assert "which counts until" in site.remarks[0]
        assert keeper_of("prod", site) == ""


def test_another_policy_is_recorded_with_a_remark_once_no_service_acts(site):
    site.keep(site.policy(), service=SERVICE)
    site.remarks.clear()
    site.keep(site.policy("other", "{tries: 2}"))
    assert site.kept.policy == KeepingPolicy(tries=2)
    assert f"from now on; before it was {site.policy()}" in site.remarks[0]
    site.remarks.clear()
    site.keep()
    assert not site.remarks


def test_tell_takes_a_turn_only_if_no_service_does(site, capsys, monkeypatch):
    monkeypatch.setenv("ANUBIS_HISTORY", site.history_url)
    monkeypatch.setattr(verbs, "turn_termination_into_interrupt", lambda: None)
    site.keep(site.policy(), service=SERVICE)

    def turn():
        with History.open(site.history_url) as history:
            return history.cluster("prod").keeping.last_turn().at

    before = turn()
    with site.serving():
        verbs.tell(event="repair-begun", nodes="n1", cluster="prod")
    said = capsys.readouterr()
    assert "kept: repair-begun" in said.out
    assert f"{SERVICE} keeps cluster prod, and takes its next turn by itself" in said.err
    assert turn() == before
    verbs.tell(event="repair-begun", nodes="n1", cluster="prod")
    assert turn() > before
    assert site.kept.policy == OURS


def test_a_policy_that_cannot_be_read_any_more_has_to_be_named(site):
    site.keep(site.policy())
    with (
        History.open(site.history_url) as history,
        history.cluster("prod").keeping.turn("x") as turn,
    ):
        turn._connection.exec_driver_sql("UPDATE kept_by SET policy = '{\"tries\": 8}'")
    with pytest.raises(StoreError, match="damaged"):
        site.keeping()
    site.keep(site.policy())
    assert site.kept.policy == OURS


def test_a_policy_is_kept_with_all_its_keys(site):
    with History.open(site.history_url) as history:
        part = history.cluster("prod")
        with part.keeping.turn("x") as turn:
            turn.keep_by(KeptBy(name="all", policy=EVERY_KEY, said_by="x", since=1.0))
        assert kept_policy(part) == EVERY_KEY


def test_the_policy_of_the_acting_service_prevails():
    named = {"ours": OURS, "other": KeepingPolicy(tries=2)}
    for stated in (None, *named):
        for before in (None, *named):
            for acting in ("", SERVICE):
                for by_file in (False, True):
                    wanted = stated and ChosenPolicy(name=stated, policy=named[stated])
                    kept = before and KeptBy(
                        name=before, policy=named[before], said_by=SERVICE, since=0.0
                    )
                    try:
                        chosen, remark = choose_policy(
                            wanted, kept, acting, by_file=by_file, cluster="prod"
                        )
                    except UsageError:
                        assert acting
                        assert not by_file
                        assert None not in (stated, before)
                        assert stated != before
                        continue
                    if before and (acting or not stated):
                        assert chosen.policy == named[before]
                    else:
                        assert chosen.name == (stated or "default")
                    assert bool(remark) is bool(stated and before and stated != before)
