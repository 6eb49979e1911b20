"""A history that another program than Anubis has changed is refused, and judges no node."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from anubis.core.errors import BusyNodesError, StoreError
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import EventRecord, KeptEvent, NodeAdded
from anubis.core.history.status import Incident, Job, Repair, Watch
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import LifeAction, Mode
from anubis.core.keep.keeper_events import Waited
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import State
from anubis.core.records import (
    Assessment,
    BatchVerdict,
    Campaign,
    CampaignKind,
    ClusterIdentity,
    Ended,
    Execution,
    Judgement,
    Node,
    NodeVerdict,
    Plan,
    Policy,
    Readings,
    Result,
    Series,
    Step,
    Workload,
)
from anubis.store.campaigns import CHECKSUM
from anubis.store.checksums import ColumnChecksum, fits_long
from anubis.store.history import History
from anubis.store.holds import LASTS_S
from anubis.store.keeping import News
from anubis.store.node_events import INCIDENTS, begin_watches

ROOT = Path(__file__).parents[2]


def measured(node: str, numbers: np.ndarray) -> Execution:
    step = Step(
        id=f"gemm/{node}",
        workload=Workload.make("gemm", "1", {}),
        participants=(node,),
        phase=0,
        repeat=0,
        timeout_s=60.0,
        exclusive=True,
    )
    series = Readings.pack([Series(metric="tflops", device="cuda:0", samples=numbers)])
    return Execution(
        step=step, attempt=1, ended=Ended.MEASURED, final=True, result=Result(series=series)
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes were measured and judged."""
    file = tmp_path_factory.mktemp("sound") / "history.db"
    nodes = ("n1", "n2")
    campaign = Campaign(
        id="c1",
        kind=CampaignKind.ACCEPT,
        plan=Plan(
            suite="q", nodes=tuple(Node(name=n, sku="x") for n in nodes), phases=(), specs=()
        ),
        policy=Policy(),
        executor="local",
        created_at=1.0,
    )
    batch_verdict = BatchVerdict(
        benchmark="gemm",
        parameters="{}",
        metric="tflops",
        judgement=Judgement.HEALTHY,
        code="OK",
        reason="",
        alpha=0.95,
        participants=tuple((node,) for node in nodes),
        devices=("cuda:0", "cuda:0"),
        similarities=np.array([0.99, 0.98]),
    )
    verdicts = tuple(
        NodeVerdict(node=node, judgement=Judgement.HEALTHY, code="OK", reason="") for node in nodes
    )
    with History.open(str(file)) as history:
        history.campaigns.begin(campaign)
        history.executions.record("c1", [measured(node, np.array([1.0, 2.0])) for node in nodes])
        assessment = Assessment(alone=(), batch_verdicts=(batch_verdict,), nodes=verdicts)
        history.assessments.conclude("c1", assessment, (), finished_at=2.0)
    assert [beside.name for beside in file.parent.iterdir()] == [file.name]
    return file


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged: made anew, each took ten times as long."""
    return shutil.copy(sound, tmp_path / "history.db")


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as raw, raw:
        for statement in statements:
            assert raw.execute(statement).rowcount > 0


def read_all(file: Path) -> None:
    with History.open(str(file)) as history:
        history.campaigns.get(history.campaigns.latest(finished=True) or "")
        history.executions.read("c1")
        history.assessments.find("c1")
        history.only().experience.happenings()


def checked(near, file: Path, *words: str):
    near.home.mkdir(exist_ok=True)
    near.history.write_bytes(file.read_bytes())
    return near.run("history", "check", *words)


def test_a_check_says_first_whether_the_history_is_as_it_was_written(near, file):
    done = checked(near, file)
    assert (done.code, done.err) == (0, "")
    assert done.out == "the history is as it was written: 1 campaign, 15 rows\n"


def test_a_check_lists_everything_that_is_damaged_and_ends_with_2(near, file):
    change(
        file,
        "UPDATE executions SET samples = x'0000000000000840'||substr(samples, 9) WHERE number = 1",
        "DELETE FROM executions WHERE number = 2",
        "UPDATE node_verdicts SET node = 'n3' WHERE node = 'n2'",
        "UPDATE layouts SET document = replace(document, 'tflops', 'tflopz')",
        "DELETE FROM rosters",
    )
    done = checked(near, file)
    first, *damages = done.out.splitlines()
    assert done.code == 2
    assert first == f"the history is damaged in {len(damages)} places: restore a backup of it"
    for thing in (
        "a row of batch_verdicts names one of rosters that is not there",
        "of layouts is damaged",
        'campaign "c1": the samples of gemm on n1 (tflopz) are damaged',
        'a row of node_verdicts of campaign "c1" is damaged',
        'campaign "c1" is damaged: 1 rows of executions are there, expected 2',
    ):
        assert any(thing in damage for damage in damages), thing
    answer = checked(near, file, "--json")
    assert [line["type"] for line in answer.lines] == ["damage"] * len(damages) + ["history"]
    assert (answer.code, answer.summary["sound"], answer.summary["campaigns"]) == (2, False, 1)


def test_samples_that_were_changed_are_refused_with_the_campaign_the_node_and_the_metric(file):
    read_all(file)
    flip = "substr(samples, 1, 6) || x'00' || substr(samples, 8)"
    change(file, f"UPDATE executions SET samples = CAST({flip} AS BLOB) WHERE step = 'gemm/n2'")
    sentence = (
        rf'history "{file}": campaign "c1": the samples of gemm on n2 \(tflops\) are damaged;'
        " nothing is judged by that: restore a backup"
    )
    with pytest.raises(StoreError, match=sentence):
        read_all(file)


@pytest.mark.parametrize(
    ("statement", "thing"),
    [
        ("UPDATE executions SET ended = 'skipped' WHERE number = 1", "execution 1"),
        ("UPDATE executions SET duration_s = 3.5 WHERE number = 2", "execution 2"),
        ("UPDATE executions SET checksum = 0 WHERE number = 2", "execution 2"),
        ("DELETE FROM executions WHERE number = 2", "1 rows of executions are there, expected 2"),
        ("UPDATE node_verdicts SET node = 'n3' WHERE node = 'n2'", 'verdict of campaign "c1"'),
        ("DELETE FROM node_verdicts WHERE node = 'n1'", 'verdict of campaign "c1"'),
        ("UPDATE batch_verdicts SET similarities = x'00'", 'verdict of campaign "c1"'),
        ("UPDATE rosters SET document = x'00'", 'verdict of campaign "c1"'),
        ("UPDATE layouts SET document = replace(document, 'tflops', 'tflopz')", "execution 1"),
        ("DELETE FROM participants", "execution 1"),
        ("UPDATE executions SET participants = 0 WHERE number = 1", "execution 1"),
        ("UPDATE environments SET document = '{\"x\":1}'", "execution 1"),
        ("UPDATE campaigns SET finished_at = NULL", 'campaign "c1"'),
        ("UPDATE campaigns SET judgement = NULL", 'campaign "c1"'),
        ("UPDATE campaigns SET policy = replace(policy, '0.95', '0.15')", 'campaign "c1"'),
        ("UPDATE campaigns SET id = 'c2'", 'campaign "c2"'),
    ],
)
def test_a_changed_cell_behind_a_verdict_is_refused(file, statement, thing):
    change(file, statement)
    with pytest.raises(StoreError, match=thing) as error:
        read_all(file)
    assert "restore a backup" in str(error.value)


def test_the_latest_campaign_does_not_give_way_to_an_older_one_because_its_row_is_gone(file):
    change(
        file,
        "INSERT INTO demands (campaign, position, benchmark, version, parameters, stronger_with,"
        " checksum) VALUES (2, 0, 'gemm', '1', '{}', '[]', 0)",
    )
    with History.open(str(file)) as history, pytest.raises(StoreError, match="campaign is gone"):
        history.campaigns.latest(finished=True)


def test_a_campaign_stays_readable_when_its_cluster_gets_another_name(file):
    with History.open(str(file)) as history:
        history.clusters.rename("unnamed", "prod")
        assert history.campaigns.get("c1").cluster == "prod"
        history.clusters.enter(ClusterIdentity(name="other"), 1.0)
    change(file, "UPDATE campaigns SET cluster = 'prob'")
    with pytest.raises(StoreError, match='campaign "c1" is damaged'):
        read_all(file)


def test_numbers_that_a_database_keeps_otherwise_do_not_look_damaged(file):
    odd = measured("n1", np.array([1.0]))
    runs = [
        replace(odd, attempt=2, duration_s=-0.0),
        replace(odd, attempt=3, duration_s=7),
        replace(odd, attempt=4, reason="killed by \udcff"),
    ]
    with History.open(str(file)) as history:
        history.campaigns.begin(replace(history.campaigns.get("c1"), id="c2", finished_at=None))
        history.executions.record("c2", runs)
        assert [run.duration_s for run in history.executions.read("c2")] == [0, 7, 0]


def test_a_row_without_its_checksum_is_damaged():
    row = {"id": "c1", "created_at": 1, "nodes": 2, "plan": "{}", "policy": "{}"}
    cells = [row.get(column.name) for column in CHECKSUM.short]
    assert CHECKSUM.fits_short(CHECKSUM.compute(row), cells)
    assert not CHECKSUM.fits_short(None, cells)
    assert fits_long(CHECKSUM.compute(row), ["{}", "{}"])
    assert not fits_long(None, ["{}", "{}"])


def test_a_checksum_is_the_same_in_all_versions():
    """It is kept for years: a change needs a migration."""
    row = {"id": "c1", "created_at": 1, "nodes": 2, "plan": "{}", "policy": "{}"}
    short = b"c1\x1fNone\x1fNone\x1fNone\x1f1.0\x1fNone\x1fNone\x1f2\x1fNone\x1fNone"
    assert CHECKSUM.compute(row) == (crc32(short) & 0x7FFFFFFF) << 32 | crc32(b"{}{}")


# --- what happened to nodes ----------------------------------------------------------------


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes with a record of every kind, written by a client that waits for n1."""
    file = tmp_path_factory.mktemp("eventful") / "history.db"
    with History.open(str(file)) as history:
        history.clusters.enter(ClusterIdentity(name="c"), 1.0)
        part, nodes = history.cluster("c"), ("n1", "n2")
        day = [Incident(node=node, category="gpu", start=1.0, end=2.0) for node in nodes]
        history.imports.add("day.csv", 1.0, "c", day, [Watch(node=n, since=0.5) for n in nodes])
        history.imports.add_attributes(
            "r.csv", 1.0, "c", [NodeAttributes(node=n, rack="r") for n in nodes]
        )
        part.repairs.add(Repair(node=node, start=2.0, end=3.0) for node in nodes)
        part.jobs.add(Job(id=f"j-{node}", nodes=(node,), start=1.0) for node in nodes)
        for node in nodes:
            part.event_records.add(
                EventRecord(id=f"e-{node}", at=1.0, event=NodeAdded(nodes=(node,)))
            )
    assert [beside.name for beside in file.parent.iterdir()] == [file.name]
    return file


@pytest.fixture
def lived(eventful: Path, tmp_path: Path) -> Path:
    return shutil.copy(eventful, tmp_path / "history.db")


def read_of_nodes(file: Path) -> None:
    with History.open(str(file)) as history:
        read_part(history)


def read_part(history: History) -> None:
    history.cluster("c").experience.happenings()
    history.cluster("c").jobs.all()


TOLD = ("incidents", "watches", "attributes", "repairs", "jobs", "event_records")


@pytest.mark.parametrize("table", TOLD)
def test_a_changed_missing_or_doubled_row_of_the_past_is_refused(lived, table):
    read_of_nodes(lived)
    good = lived.read_bytes()
    column = {"jobs": "started_at", "event_records": "at", "watches": "since", "attributes": "rack"}
    cells = column.get(table, "started_at")
    key = {"jobs": "id", "event_records": "id"}.get(table, "node")
    first = f"(SELECT min({key}) FROM {table})"
    with closing(sqlite3.connect(lived)) as raw:
        names = [name for _, name, *_ in raw.execute(f"PRAGMA table_info({table})")]
    others = ", ".join(f"'x' || {name}" if name == key else name for name in names)
    for statement, sentence in (
        (
            f"UPDATE {table} SET {cells} = 0.25 WHERE {key} = {first}",
            f"a row of {table} is damaged",
        ),
        (f"DELETE FROM {table} WHERE {key} = {first}", "1 rows are there, expected 2"),
        (f"UPDATE {table} SET checksum = 0 WHERE {key} = {first}", "2 rows are there"),
        (f"UPDATE {table} SET cluster = 'd' WHERE {key} = {first}", "1 rows are there, expected 2"),
        (f"INSERT INTO {table} SELECT {others} FROM {table} LIMIT 1", "3 rows are there"),
    ):
        change(lived, statement)
        with pytest.raises(StoreError, match=sentence) as error:
            read_of_nodes(lived)
        assert "restore a backup" in str(error.value)
        with History.open(str(lived)) as history:
            assert history.examine().damages
        lived.write_bytes(good)


def test_new_rows_do_not_hide_a_missing_one(lived):
    change(lived, "DELETE FROM incidents WHERE node = 'n1'", "DELETE FROM event_records")
    with History.open(str(lived)) as history:
        part = history.cluster("c")
        part.incidents.add([Incident(node="n3", category="gpu", start=1.0)])
        with pytest.raises(StoreError, match="2 rows are there, expected 3"):
            part.incidents.all()
        part.event_records.add(EventRecord(id="e", at=1.0, event=NodeAdded(nodes=("n1",))))
        with pytest.raises(StoreError, match="1 rows are there, expected 3"):
            part.event_records.all()


def test_a_tally_follows_the_rows_that_changed_and_no_row_is_counted_for_it(tmp_path):
    rng, statements = random.Random(7), []
    with History.open(str(tmp_path / "history.db")) as history:
        part = history.cluster("c")
        event.listen(
            history._database.engine,
            "before_cursor_execute",
            lambda connection, cursor, statement, *_: statements.append(statement),
        )
        for at in range(1, 40):
            nodes = [f"n{rng.randrange(5)}" for _ in range(rng.randrange(4))]
            end = rng.choice((None, at + 1.0))
            start = float(rng.randrange(1, at + 1))
            part.incidents.add(
                Incident(node=n, category="gpu", start=start, end=end) for n in nodes
            )
            part.jobs.add(Job(id=node, nodes=(node,), start=1.0, end=end) for node in nodes)
            part.repairs.add(Repair(node=node, start=start, end=end) for node in nodes)
            part.watches.add(Watch(node=node, since=start, until=end) for node in nodes)
            part.watches.end(nodes[:1], float(at))
            with history._database.writing() as connection:
                begin_watches(connection, "c", nodes, float(at))
            assert not any("count(" in statement for statement in statements)
            read_part(history)
            statements.clear()


def test_a_cluster_of_another_name_and_an_import_that_is_taken_back_look_whole(lived):
    with History.open(str(lived)) as history:
        history.clusters.rename("c", "c2")
        history.clusters.rename("c2", "c")
        assert history.examine().damages == ()
        history.cluster("c").watches.end(["n1"], 5.0)
        history.cluster("c").incidents.add([Incident(node="n9", category="gpu", start=1.0)])
        ended = [Incident(node="n9", category="gpu", start=1.0, end=2.0)]
        number = history.imports.add("late.csv", 1.0, "c", ended, []).key
        assert history.imports.forget(number).reopened == 1
        history.imports.forget(1)
        assert history.examine().damages == ()
    read_of_nodes(lived)


def test_a_damaged_hold_keeps_its_node_for_two_minutes_and_not_for_ever(lived):
    with History.open(str(lived)) as history:
        holds, now = history.cluster("c").holds, 1000.0
        first = holds.hold(["n1"], "campaign 1", lambda: now)
        first.__enter__()
        change(lived, "UPDATE holds SET until = 9e9")
        assert [(hold.node, hold.until) for hold in holds.current(now)] == [("n1", now + LASTS_S)]
        damaged = r"held by somebody \(its row in the history is damaged\) since"
        with pytest.raises(BusyNodesError, match=damaged):
            holds.hold(["n1"], "campaign 2", lambda: now).__enter__()
        assert history.examine().damages == ()
        now += LASTS_S
        with holds.hold(["n1"], "campaign 2", lambda: now):
            assert [hold.holder for hold in holds.current(now)] == ["campaign 2"]


# --- what the keeper knows -------------------------------------------------------------------


@pytest.fixture
def kept(lived: Path) -> Path:
    """The keeper has taken a turn: n1 is in service, n2 is to be tested."""
    take_turn(lived, NodeAdded(nodes=("n2",)))
    return lived


def take_turn(file: Path, *events: KeptEvent) -> list[LifeAction]:
    at = 1000.0
    with History.open(str(file)) as history:
        keeping = history.cluster("c").keeping
        with keeping.turn("me") as turn:
            keeper = turn.keeper(KeepingPolicy(test=Mode.ACT))
            keeper.lives.change("n1", lambda life: life)
            for event in events:
                turn.keep(keeper.handle(EventRecord(id="e", at=at, event=event)), at)
            turn.keep(keeper.handle(Waited(at=at)), at)
            turn.end(keeper, News(event_records=(), conclusions=()), at)
        return keeping.newest_actions()


def test_a_node_with_a_damaged_life_has_to_prove_itself_and_a_person_is_notified(kept):
    change(kept, "UPDATE lives SET document = replace(document, 'n1', 'n2') WHERE node = 'n1'")
    with History.open(str(kept)) as history:
        assert history.examine().damages == ('a row of lives of cluster "c" is damaged',)
        lives = {life.node: life for life in history.cluster("c").keeping.lives()}
    assert lives["n1"].state is State.SUSPECT
    (event_record,) = [a.command for a in take_turn(kept) if a.command.kind == "notify"]
    assert event_record.subject == "n1"
    assert "damaged in the history" in event_record.sentence
    with History.open(str(kept)) as history:
        assert history.examine().damages == ()


@pytest.mark.parametrize("table", ["lives", "watches", "attributes"])
def test_a_name_that_is_no_text_ends_each_verb_in_one_sentence(near, kept, table):
    change(kept, f"UPDATE {table} SET node = X'ff00' WHERE node = 'n1'")
    near.home.mkdir(exist_ok=True)
    near.history.write_bytes(kept.read_bytes())
    verbs = [["nodes"], ["history", "standing"], *([["keep"]] if table == "lives" else [])]
    for words in verbs:
        done = near.run(*words, "--cluster", "c")
        assert (done.code, done.out) == (2, "")
        assert "is damaged; nothing is judged by that: restore a backup" in done.err, words


def test_an_action_that_is_damaged_is_not_carried_out_and_asked_for_again(kept):
    (test,) = [action for action in take_turn(kept) if action.command.kind == "prove"]
    change(kept, "UPDATE actions SET document = replace(document, 'n2', 'n1')")
    with History.open(str(kept)) as history:
        keeping = history.cluster("c").keeping
        assert {*history.examine().damages} == {'a row of actions of cluster "c" is damaged'}
        assert keeping.open_actions() == []
        with pytest.raises(StoreError, match="damaged"), keeping.driving(test.id):
            pass


def test_with_damaged_breakers_no_node_is_taken_out_until_a_person_allows_it(kept):
    change(kept, "UPDATE keepers SET breakers = replace(breakers, '{}', '{ }')")
    with History.open(str(kept)) as history:
        keeping = history.cluster("c").keeping
        assert keeping.breakers() == {"fleet": Breaker(is_open=True)}
        with keeping.turn("me") as turn:
            assert turn.keeper(KeepingPolicy()).breakers["fleet"].is_open


# --- going on without what is damaged ------------------------------------------------------

OPTION = "--without-damaged"
SAMPLES = "substr(samples, 1, 6) || x'00' || substr(samples, 8)"
SPOIL_SAMPLES = f"UPDATE executions SET samples = CAST({SAMPLES} AS BLOB) WHERE step = '{{}}'"


@pytest.fixture
def accepted(near):
    """Eight nodes by two programs, three times each."""
    programs = [{"benchmark": name, "repeats": 3} for name in ("gemm", "memory_bandwidth")]
    near.code = near.run("accept", "--cluster", near.fleet(), "--suite", near.suite(*programs)).code
    assert near.code == 0
    return near


def unknown(done) -> dict[str, set[str]]:
    """Nodes with the programs that say nothing of them."""
    nodes: dict[str, set[str]] = {}
    for line in done.verdicts:
        if line["verdict"] == "unknown":
            assert line["code"] == "DAMAGED"
            nodes.setdefault(line["node"], set()).add(line["benchmark"])
    return nodes


@pytest.mark.parametrize(
    "statement",
    [
        SPOIL_SAMPLES.format("0.0.1/gemm/n3"),
        "UPDATE executions SET ended = 'skipped' WHERE step = '0.0.1/gemm/n3'",
    ],
)
def test_damaged_rows_are_left_out_on_request_and_their_nodes_are_unknown(accepted, statement):
    change(accepted.history, statement)
    for verb in ("report", "judge", "learn"):
        refused = accepted.run(verb)
        assert (refused.code, refused.out) == (2, "")
        assert "restore a backup" in refused.err
        assert "or leave it out with --without-damaged" in refused.err
    for verb in ("report", "judge"):
        done = accepted.run(verb, "--without-damaged", "--json")
        assert done.code == 2, done.err
        assert done.summary["headline"].startswith("1 damaged execution left out · 7 healthy")
        assert (unknown(done), done.summary["unknown"]) == ({"n3": {"gemm"}}, ["n3"])
        assert "of gemm on n3" in done.err
        first, *rest = accepted.run(verb, "--without-damaged").out.splitlines()
        assert "1 damaged execution left out" in first
        assert any("n3" in line and "DAMAGED: gemm: what it measured" in line for line in rest)
    learned = accepted.run("criteria", "learn", "--without-damaged", "--out", "learned")
    assert learned.code == 0
    assert "1 damaged execution left out" in learned.err
    assert [*(accepted.folder / "learned").rglob("*.json")]


def test_without_damage_the_option_changes_nothing(accepted):
    for verb in ("report", "judge"):
        plain, leaving_out = (accepted.run(verb, "--json", *more) for more in ((), (OPTION,)))
        assert (plain.code, plain.out) == (leaving_out.code, leaving_out.out) == (0, plain.out)


def test_a_damaged_row_of_unclear_ownership_is_not_left_out(accepted):
    of_n4 = "(SELECT participants FROM executions WHERE step = '0.0.1/gemm/n4')"
    for cell in (f"participants = {of_n4}", "step = '0.0.7/gemm/n3'", "parameters = '{}'"):
        statement = f"UPDATE executions SET {cell} WHERE step = '0.0.1/gemm/n3'"
        good = accepted.history.read_bytes()
        change(accepted.history, statement)
        done = accepted.run("report", OPTION)
        assert (done.code, done.out) == (2, ""), cell
        assert "it cannot be left out, as the row may be of another node" in done.err
        accepted.history.write_bytes(good)
    change(accepted.history, "DELETE FROM executions WHERE step = '0.0.1/gemm/n3'")
    done = accepted.run("report", OPTION)
    assert (done.code, done.out) == (2, "")
    assert "47 rows of executions are there, expected 48" in done.err


def test_a_bad_node_stays_bad_without_the_damaged_rows(near):
    suite = near.suite({"benchmark": "gemm"}, {"benchmark": "memory_bandwidth"})
    done = near.run("accept", "--cluster", near.fleet(slow_share=0.2), "--suite", suite, "--json")
    bad = done.summary["defective"]
    programs = {v["benchmark"] for v in done.verdicts if v["verdict"] == "defective"}
    assert bad
    assert programs
    for program in programs:
        place = {"gemm": 0, "memory_bandwidth": 1}[program]
        for node in bad:
            change(near.history, SPOIL_SAMPLES.format(f"0.{place}.0/{program}/{node}"))
    shown = near.run("report", OPTION, "--json")
    assert (shown.code, shown.summary["defective"]) == (1, bad)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=5),
            st.sampled_from(["gpu", "network", ""]),
            st.floats(allow_nan=False),
            st.none() | st.floats(allow_nan=False),
        ),
        max_size=6,
    ),
    st.integers(0, 5),
    st.integers(0, 3),
)
@example([("None", "7.25", 0.0, None)], 0, 0)
@example([("None", "7.25", 0.0, None)], 0, 1)
def test_a_sum_of_columns_is_the_sum_of_each_row_and_shows_the_cell_that_changed(rows, row, cell):
    checksum = INCIDENTS.checksum
    assert isinstance(checksum, ColumnChecksum)
    names = [column.name for column in checksum.short]
    sums = [checksum.compute(dict(zip(names, cells, strict=True))) for cells in rows]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    assert checksum.fit(sums, columns)
    assert checksum.fit([None] * len(rows), columns) is (not rows)
    assert all(checksum.fits(kept, cells, ()) for kept, cells in zip(sums, rows, strict=True))
    if row < len(rows):
        for other in ("x", None, 7.25, b"x"):
            if rows[row][cell] == other:
                continue
            changed = [list(column) for column in columns]
            changed[cell][row] = other
            assert not checksum.fit(sums, changed)
            assert not checksum.fits(sums[row], [column[row] for column in changed], ())


def test_a_sum_of_columns_is_the_same_in_all_versions():
    row = {"node": "n1", "category": "gpu", "started_at": 1.5, "ended_at": None}
    half, none = 0x3FF8000000000000, 0x7FF8000000000000
    numbers = (crc32(b"n1"), crc32(b"gpu"), half, none)
    factors = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
    total = sum(n * f for n, f in zip(numbers, factors, strict=True)) % 2**64
    assert INCIDENTS.checksum.compute(row) == total // 2**33 * 2**32
