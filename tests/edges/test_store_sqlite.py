"""The history as a file: real full and read-only disks, and files that are no history."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import CacheStats

from anubis.core.errors import StoreError
from anubis.core.records import (
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Node,
    Plan,
    Policy,
    Readings,
    Result,
    Series,
    Step,
    Workload,
)
from anubis.store import row_mapping
from anubis.store.campaigns import CAMPAIGNS
from anubis.store.database import Database
from anubis.store.history import History
from tests.edges.stamps import stamp
from tests.patience import LIMIT_S

NOISE = np.random.default_rng(1).random(2000)


def begun(history: History) -> History:
    plan = Plan(suite="quick", nodes=(Node(name="n1", sku="x"),), phases=(), specs=())
    history.campaigns.begin(
        Campaign(
            id="c1",
            kind=CampaignKind.ACCEPT,
            plan=plan,
            policy=Policy(),
            executor="local",
            created_at=1.0,
        )
    )
    return history


def execution(number: int) -> Execution:
    return Execution(
        step=Step(
            id=f"step-{number}",
            workload=Workload.make("gemm", "1", {}),
            participants=("n1",),
            phase=0,
            repeat=0,
            timeout_s=60.0,
            exclusive=True,
        ),
        attempt=1,
        ended=Ended.MEASURED,
        final=True,
        result=Result(series=Readings.pack([Series(metric="tflops", device="cpu", samples=NOISE)])),
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if (done := subprocess.run(mount, check=False, capture_output=True, text=True)).returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def record_until_refused(history: History) -> tuple[int, str]:
    for number in range(1000):
        try:
            history.executions.record("c1", [execution(number)])
        except StoreError as error:
            return number, str(error)
    raise AssertionError("the disk took 16 MB into 2 MB")


def test_a_full_disk_is_one_clear_error_and_harms_nothing(small_disk: Path) -> None:
    file = small_disk / "history.db"
    with begun(History.open(str(file))) as history:
        kept, error = record_until_refused(history)
        assert kept > 10
        assert str(file) in error
        assert "free some space" in error
        assert len(history.executions.read("c1")) == kept
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with History.open(str(file)) as history:
        again = history.executions.read("c1")
        assert [one.step.id for one in again] == [f"step-{number}" for number in range(kept)]
        assert all(
            next(iter(one.result.series)).samples.tobytes() == NOISE.tobytes() for one in again
        )


def test_a_disk_that_has_space_again_takes_the_refused_batch(small_disk: Path) -> None:
    with begun(History.open(str(small_disk / "history.db"))) as history:
        kept, _ = record_until_refused(history)
        subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
        history.executions.record("c1", [execution(kept)])
        assert len(history.executions.read("c1")) == kept + 1


def test_a_claim_needs_no_space_on_the_disk(small_disk: Path) -> None:
    with begun(History.open(str(small_disk / "history.db"))) as history:
        record_until_refused(history)
        with history.campaigns.claim("c1"):
            pass


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("buy milk\n" * 200)
    with pytest.raises(
        StoreError, match=r'notes\.txt": file is not a database; expected an SQLite'
    ):
        History.open(f"sqlite:///{file}")
    assert file.read_text() == "buy milk\n" * 200


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file; the folder must exist"):
        History.open(str(tmp_path))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"history\.db.*Not a directory"):
        History.open(str(tmp_path / "file" / "folder" / "history.db"))


def test_absent_folders_are_made_and_odd_names_are_no_url(tmp_path: Path) -> None:
    file = tmp_path / "a new" / "folder?x=1#%20" / "history.db"
    begun(History.open(str(file))).close()
    assert file.read_bytes().startswith(b"SQLite format 3\0")
    with History.open(str(file)) as history:
        assert history.campaigns.latest() == "c1"


@pytest.mark.parametrize(
    "url", ["mysql://host/fleet", "sqlite://", "sqlite:///:memory:", "://", "nonsense://"]
)
def test_a_url_that_names_no_history_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match='expected a file, "sqlite:///FILE" or "postgresql://'):
        History.open(url)


def test_a_writer_waits_for_another_and_then_sees_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    with (
        begun(History.open(str(file))) as history,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
        ThreadPoolExecutor() as thread,
    ):
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE campaigns SET suite = 'renamed'")
        stamp(other, CAMPAIGNS)
        recorded = thread.submit(history.executions.record, "c1", [execution(0)])
        time.sleep(0.3)  # enough to meet the lock; too little would only make the test weaker
        other.execute("COMMIT")
        recorded.result(timeout=LIMIT_S)
        assert len(history.executions.read("c1")) == 1
        assert history.campaigns.newest(1)[0].suite == "renamed"


def test_a_commit_survives_the_loss_of_power(tmp_path: Path) -> None:
    database = Database.open(str(tmp_path / "history.db"))
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    database.close()


def test_a_history_whose_beginning_is_interrupted_stays_empty(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    when = (row_mapping.metadata.tables["verdicts"], "after_create", interrupted)
    sa.event.listen(*when)
    try:
        with pytest.raises(KeyboardInterrupt):
            History.open(str(file))
    finally:
        sa.event.remove(*when)
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    History.open(str(file)).close()


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "question",
    [
        """SELECT samples, document FROM executions JOIN layouts ON digest = layout
           WHERE benchmark = 'gemm' AND version = '1' AND started_at > 5""",
        "SELECT code FROM node_verdicts WHERE node = 'n1'",
        "SELECT ended_at FROM incidents WHERE node = 'n1'",
        """SELECT nodes, benchmark FROM executions JOIN participants ON digest = participants
           WHERE campaign = 1 AND ended = 'measured'""",
    ],
)
def test_questions_across_campaigns_find_their_way_by_an_index(
    tmp_path: Path, question: str
) -> None:
    file = tmp_path / "history.db"
    History.open(str(file)).close()
    with closing(sqlite3.connect(file)) as raw:
        steps = [row[-1] for row in raw.execute(f"EXPLAIN QUERY PLAN {question}")]
    assert steps
    assert all("USING" in step and "INDEX" in step for step in steps), steps


def test_statements_are_not_compiled_again_for_another_file(tmp_path: Path) -> None:
    def asked(file: Path) -> list[str]:
        """The statements that were compiled for it."""
        compiled: list[str] = []

        def note(_a: object, _b: object, text: str, _d: object, context: Any, _e: object) -> None:
            if context.compiled is not None and context.cache_hit is not CacheStats.CACHE_HIT:
                compiled.append(text)

        database = Database.open(str(file))
        sa.event.listen(database.engine, "before_cursor_execute", note)
        history = begun(History(database))
        history.executions.record("c1", [execution(1)])
        assert [kept.step.id for kept in history.executions.read("c1")] == ["step-1"]
        history.close()
        return compiled

    asked(tmp_path / "one.sqlite")
    assert asked(tmp_path / "two.sqlite") == []
