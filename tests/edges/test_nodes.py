"""Nodes in lists, and their attributes: from tables to the history, to models and to decisions."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anubis.core.errors import UsageError
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import EventRecord, MaintenancePlanned, NodeAdded
from anubis.core.history.maintenance import open_windows
from anubis.core.history.status import Incident, Instants, Watch
from anubis.core.records import ClusterIdentity
from anubis.models.risk import risk_files
from anubis.operations import nodes as list_of_nodes
from anubis.operations.caller import Caller
from anubis.operations.selector import bad_groups
from anubis.readers.incidents import named_cells
from anubis.readers.incidents.node_attributes import NodeIntake, NodeMapping, take_in_nodes
from anubis.report.screen_tables import add_row, table
from anubis.store.history import History

NOW = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
DAY_S = 86_400.0


def read(text: str, *columns: str, **more: str) -> NodeIntake:
    return take_in_nodes(
        named_cells.parse(text, "it"), NodeMapping.parse(columns, **more), "it", NOW
    )


# --- tables --------------------------------------------------------------------------------


def test_a_table_of_nodes_gives_rack_cage_sku_and_date_of_each():
    installed = datetime(2024, 3, 30, tzinfo=UTC).timestamp()
    n1 = NodeAttributes(node="n1", rack="r1", cage="r1/c2", sku="h100", installed=installed)
    n2 = NodeAttributes(node="n2", rack="r1")
    named = "node,rack,cage,sku,installed\nn1,r1,r1/c2,h100,2024-03-30\nn2,r1,,,\n"
    assert read(named).attributes == (n1, n2)
    other = "host;Rack;Slot;type;since\nn2;r1;;;\nn1;r1;c2;h100;30.03.2024"
    words = ("node=host", "rack=Rack", "cage={Rack}/{Slot}", "sku=type", "installed=since")
    assert read(other, *words, times=["%d.%m.%Y"]).attributes == (n1, n2)


def test_bad_lines_of_a_table_of_nodes_are_left_out_and_listed():
    table = (
        "node,rack,installed\nn1,r1,soon\nn2,r2,2030-01-01\n,r3,\n$(reboot),r4,\n"
        "n1,r5,2024-01-01\nn2,r2,\n"
    )
    taken = read(table)
    assert [(told.node, told.rack) for told in taken.attributes] == [("n1", "r5"), ("n2", "r2")]
    assert {note.text: note.where for note in taken.left_out} == {
        "no node is named": ("line 4",),
        'the name is not a node name: "$(reboot)"': ("line 5",),
    }
    assert {note.text: note.where for note in taken.remarks} == {
        "the time of installation cannot be read and is left out": ("line 2",),
        "the time of installation is in the future and is left out": ("line 3",),
        "the node is listed twice and otherwise: the last line counts": ("line 6",),
    }


@pytest.mark.parametrize(
    ("table", "columns", "complaint"),
    [
        ("host,rack\nn1,r1", [], "no column node: say which one it is, --map node=COLUMN"),
        ("node,Shelf\nn1,r1", [], "expected a column rack, cage, sku or installed"),
        (
            "node,Rack\nn1,r1",
            ["rack=rac"],
            'column "rac", which the mapping names as "rack"; known: Rack, no',
        ),
        ("node,rack\nn1,r1", ["rak=rack"], '--map: unknown key "rak"; did you mean "rack"?'),
    ],
)
def test_a_table_that_cannot_be_used_is_one_clear_error(table, columns, complaint):
    with pytest.raises(UsageError) as error:
        read(table, *columns)
    assert complaint in str(error.value)


# --- the history ---------------------------------------------------------------------------


def attributes(history: History) -> dict[str, NodeAttributes]:
    return {told.node: told for told in history.only().experience.happenings().attributes}


def test_the_latest_import_counts_and_its_empty_cells_keep_earlier_values(tmp_path: Path):
    first = [NodeAttributes(node="n1", rack="r1", sku="h100"), NodeAttributes(node="n2", rack="r1")]
    moved = [NodeAttributes(node="n1", rack="r2"), NodeAttributes(node="n2", rack="r1")]
    with History.open(str(tmp_path / "history")) as history:
        history.imports.add_attributes("a", 1.0, "unnamed", first)
        kept = history.imports.add_attributes("b", 2.0, "unnamed", moved).kept
        assert (kept.new, kept.completed, kept.known) == (0, 1, 1)
        assert attributes(history)["n1"] == NodeAttributes(node="n1", rack="r2", sku="h100")
        assert history.imports.forget(2).nodes == 1
        assert attributes(history) == {told.node: told for told in first}


# --- from a table to a decision ------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Four racks of six nodes; in one of them every node fails once in three weeks."""
    monkeypatch.setenv("ANUBIS_HOME", str(tmp_path))
    begun, rng = time.time() - 400 * DAY_S, np.random.default_rng(0)
    incidents = [
        Incident(node=f"r{rack}n{number}", category="x", start=at, end=at + 3600)
        for rack in range(4)
        for number in range(6)
        for at in begun + rng.uniform(0, 399, rng.poisson(20 if rack == 2 else 1)) * DAY_S
    ]
    nodes = [f"r{rack}n{number}" for rack in range(4) for number in range(6)]
    with History.open(str(tmp_path / "history.sqlite")) as history:
        history.only().incidents.add(incidents)
        history.only().watches.add(Watch(node=node, since=begun) for node in nodes)
    table = tmp_path / "nodes.csv"
    table.write_text("node,rack\n" + "".join(f"{node},{node[:2]}\n" for node in [*nodes, "r2n9"]))
    return tmp_path


def test_a_new_node_of_a_bad_rack_is_at_risk_with_that_reason(entry, home):
    assert entry("risk", "train", "--model", "cox").code == 0
    before = (home / "risk" / "unnamed.npz").read_bytes()
    done = entry("history", "import", "nodes", str(home / "nodes.csv"))
    assert done.out == (
        "nodes.csv: 25 nodes of cluster unnamed: 25 new, 0 changed, 0 known before\n"
        "rack of 25 (4 different)\n"
    )
    assert "to take this back: anubis history forget --import 1" in done.err
    # a model of before is read, and goes by what it learned
    assert entry("risk", "show", "r2n9").code == 0
    assert (home / "risk" / "unnamed.npz").read_bytes() == before

    assert entry("risk", "train", "--model", "cox").code == 0
    model, _ = risk_files.load(home / "risk" / "unnamed.npz")
    assert "rack_rate" in model.covariates
    shown = entry("risk", "show", "r2n9,r0n0,else", "--json")
    risk = {line["node"]: line for line in map(json.loads, shown.out.splitlines())}
    assert risk["r2n9"]["within"][2]["p"] > 2 * risk["r0n0"]["within"][2]["p"]
    assert risk["r2n9"]["attributes"] == {"rack": "r2"}
    assert risk["r2n9"]["status"]["rack_rate"] > 2
    assert risk["else"]["status"]["rack_rate"] == 1
    assert "no other node of the rack of else is known: the usual rate counts" in shown.err
    assert "rack r2 (" in entry("risk", "show", "r2n9").out

    with History.open(str(home / "history.sqlite")) as history:
        logbook = history.only().experience.logbook()
    now = Instants.now(["r2n9", "r0n0"], time.time())
    (reason,) = bad_groups(logbook, logbook.statuses(now, model.covariates)).items()
    assert reason[0] == "r2n9"
    assert re.fullmatch(r"rack r2 has [2-9]\.\d times the incidents of all", reason[1])


def test_an_attribute_that_many_nodes_lack_is_not_learned_from_and_the_remedy_is_stated(
    entry, home
):
    table = home / "nodes.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:15]))
    assert (
        "in the history and not in the file: r2n2"
        in entry("history", "import", "nodes", str(table)).err
    )
    trained = entry("risk", "train", "--model", "cox")
    assert "rack is known of 14 of 24 nodes: no model learns from it" in trained.err
    model, _ = risk_files.load(home / "risk" / "unnamed.npz")
    assert "rack_rate" not in model.covariates


def test_a_narrow_terminal_folds_no_short_name_of_a_node():
    rows = table("node", "verdict", "why", names=["node0001"])
    add_row(rows, "node0001", "healthy, 2026-11-30", "under maintenance until 2026-12-02: firmware")
    console = Console(width=30, file=io.StringIO())
    console.print(rows)
    assert "node0001" in console.file.getvalue()


def test_a_list_of_nodes_reads_the_windows_of_all_once(tmp_path, monkeypatch):
    read = []

    def counted(windows, at):
        read.append(at)
        return open_windows(windows, at)

    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    nodes = tuple(f"n{number}" for number in range(20))
    planned = MaintenancePlanned(nodes=("n7",), begin=NOW - 60, end=NOW + DAY_S, reason="firmware")
    with History.open(url) as history:
        history.clusters.enter(ClusterIdentity(name="c", is_chosen=True), NOW - 100)
        history.cluster("c").event_records.add_all(
            [
                EventRecord(id="added", at=NOW - 90, event=NodeAdded(nodes=nodes)),
                EventRecord(id="planned", at=NOW - 80, event=planned),
            ]
        )
    monkeypatch.setattr(list_of_nodes, "open_windows", counted)
    views = list_of_nodes.nodes(cluster="c", caller=Caller(history_url=url, clock=lambda: NOW))
    maintained = {view.node: view.maintenance for view in views if view.maintenance}
    assert maintained == {"n7": "under maintenance until 2026-11-02 00:00 UTC: firmware"}
    assert len(views) == 20
    assert len(read) == 1
