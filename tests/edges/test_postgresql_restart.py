"""A campaign whose PostgreSQL is restarted in the middle: real processes, a real server."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter

import pytest

from anubis.store.history import History
from tests.edges import desk as desks
from tests.edges.desk import Desk
from tests.edges.postgresql import Server, ask
from tests.patience import eventually

pytestmark = pytest.mark.long

REPEATS = 3
IMPATIENT = """import sys
from anubis.store import claims, holds, database_errors
database_errors.PATIENCE_S = 0.5
claims.LASTS_S = holds.LASTS_S = 5.0
from anubis.cli.main import main
main()
"""


class Stretch:
    """Runs of a program that wait at one of them until it is let go."""

    def __init__(self, desk: Desk, name: str, waits_at: int) -> None:
        self.folder = desk.folder / name
        self.folder.mkdir()
        self.log = self.folder / "log"
        parameters = {"log": str(self.log), "waits_at": waits_at}
        self.entry = {"benchmark": "spin", "parameters": parameters, "repeats": REPEATS}

    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def let_go(self) -> None:
        (self.folder / "gate").touch()


@pytest.fixture
def url(near: Desk, server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    url = server.new_database()
    near.environment["ANUBIS_HISTORY"] = url
    monkeypatch.setenv("ANUBIS_HISTORY", url)
    return url


def claims(url: str) -> int:
    return int(ask(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))


def holds(url: str) -> int:
    return int(ask(url, "SELECT count(*) FROM holds"))


def kept(url: str) -> Counter[str]:
    """Number of times that each step was recorded as measured."""
    with History.open(url) as history:
        assert history.examine().damages == ()
        (campaign,) = history.campaigns.newest(limit=2)
        runs = history.executions.read(campaign.id)
    assert {run.ended for run in runs} == {"measured"}
    return Counter(run.step.id for run in runs)


def test_a_restart_of_the_server_costs_a_campaign_nothing(near, url, server):
    before, after = Stretch(near, "before", waits_at=2), Stretch(near, "after", waits_at=2)
    words = ("--suite", near.suite(before.entry, after.entry))
    driver = near.start("accept", "--json", *words)
    assert eventually(lambda: before.runs() == 2), driver.communicate()
    server.stop()
    before.let_go()
    assert any("trying again for 90 s, what runs goes on" in line for line in driver.stderr)
    server.start()
    assert eventually(lambda: after.runs() == 2), driver.communicate()
    assert (claims(url), holds(url)) == (1, 1)
    second = near.ask("accept", "--resume")
    assert (second.code, second.out) == (2, "")
    assert f"being driven by anubis process {driver.pid}" in second.err
    beside = near.ask("accept", *words)
    assert (beside.code, beside.out) == (2, "")
    assert re.search(rf'held by campaign "accept-.*" \(process {driver.pid} on', beside.err)
    after.let_go()
    out, err = driver.communicate()
    answer = desks.Done(driver.returncode, out, err)
    assert (answer.code, len(answer.summary["healthy"])) == (0, 1), err
    assert (before.runs(), after.runs()) == (REPEATS, REPEATS)
    assert sorted(kept(url).values()) == [1] * 2 * REPEATS
    assert (claims(url), holds(url)) == (0, 0)


def test_a_server_that_stays_away_ends_a_campaign_with_how_to_go_on(near, url, server, monkeypatch):
    stretch = Stretch(near, "stretch", waits_at=2)
    monkeypatch.setattr(desks, "ANUBIS", (sys.executable, "-c", IMPATIENT))
    driver = Desk.start(near, "accept", "--suite", near.suite(stretch.entry))
    assert eventually(lambda: stretch.runs() == 2), driver.communicate()
    server.stop()
    stretch.let_go()
    out, err = driver.communicate()
    server.start()
    assert (driver.returncode, out) == (2, "")
    begins, repeats, last = [line for line in err.splitlines() if "postgresql" in line]
    assert "a new history begins" in begins
    assert "trying again for" in repeats
    go_on = re.search(
        r"that has lasted 0 s; its nodes are held until 20\S+ \S+ UTC at most, then"
        r" go on with: anubis accept --resume --campaign (accept-\S+)$",
        last,
    )
    assert go_on, err
    assert (claims(url), sum(kept(url).values())) == (0, 1)
    resume = ("accept", "--resume", "--json", "--campaign", go_on[1])
    early = near.ask(*resume)
    assert early.code == 0 or "unknown before 20" in early.err
    time.sleep(max(0.0, float(ask(url, "SELECT max(until) FROM holds") or 0.0) - time.time()))
    done = near.ask(*resume) if early.code else early
    assert (done.code, len(done.summary["healthy"])) == (0, 1), done.err
    assert stretch.runs() == REPEATS + 1  # what could not be kept was measured again
    assert sorted(kept(url).values()) == [1] * REPEATS
