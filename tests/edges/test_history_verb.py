"""`anubis history`: the events of nodes, past decisions, and the withdrawal of an import."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime

import pytest

from anubis.cli import answer
from anubis.core.history.status import Incident, Repair
from anubis.store.history import History
from tests.edges.desk import FLOW

MAPPING = {
    "records": "intervals",
    "node": "host",
    "category": "cause",
    "start": "from",
    "end": "to",
}
DAY = "host,cause,from,to\nn1,fan,2026-03-01 10:00,2026-03-01 12:30\nn9,gpu,2026-03-02,\n"


def import_file(desk, name, text, *more):
    mapping, file = desk.write("site.yaml", MAPPING), desk.write(name, text)
    done = desk.run("history", "import", "incidents", str(file), "--mapping", str(mapping), *more)
    assert done.code == 0, done.err
    return done


@pytest.fixture
def lived(near):
    """A desk with a simulated fleet of eight that was accepted after some incidents, and a gate."""
    import_file(near, "day.csv", DAY)
    with History.open(str(near.history)) as history:
        history.only().repairs.add(
            [Repair(node="n1", start=1.775e9, end=1.776e9, action="new fan")]
        )
    suite, fleet = near.suite(near.flow(repeats=1)), near.fleet()
    assert near.ask("accept", "--cluster", fleet, "--suite", suite).code == 0
    near.where = ("--cluster", fleet, "--suite", suite)
    assert near.ask("gate", "n[1-2]", "--duration", "24h", *near.where).code == 0
    return near


def test_the_timeline_of_a_node_lists_its_events_with_the_latest_last(lived):
    lines = lived.run("history", "show", "n1", "--json").lines
    assert [line["type"] for line in lines] == ["incident", "repair", "validation", "decision"]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    incident, repair, validation, decision = lines
    assert (incident["category"], incident["end"] - incident["start"]) == ("fan", 2.5 * 3600)
    assert repair["action"] == "new fan"
    assert (validation["judgement"], validation["benchmarks"]) == ("healthy", ["flow"])
    assert (decision["nodes"], decision["action"]) == (["n1", "n2"], "skip")
    table = lived.run("history", "show", "n1").out
    for words in ("fan, until 2026-03-01 12:30 UTC", "new fan, until", "2 nodes", "healthy"):
        assert words in table
    of_others = [line["type"] for line in lived.run("history", "show", "n3", "--json").lines]
    assert of_others == ["validation"]


def test_only_the_last_are_shown_and_of_strangers_nothing(lived):
    everything = lived.run("history", "show", "--json").lines
    assert len(everything) == 2 + 1 + 8 + 1
    assert lived.run("history", "show", "--last", "3", "--json").lines == everything[-3:]
    done = lived.run("history", "show", "m[1-3]")
    assert (done.code, done.out) == (64, "")
    assert done.err == "anubis: error: the history knows nothing of m[1-3]\n"


def test_decisions_are_shown_with_their_reasons_the_latest_first(lived):
    words = ("--event", "node-added", "--suite", lived.where[-1])
    assert lived.ask("gate", "--plan", "n4", *words).code == 0
    assert "n4 added: run flow on n4" in lived.run("history", "decisions", "--last", "1").out
    said = lived.run("history", "decisions", "--why").out
    assert said.index("n4 added: a defect is presumed") < said.index("a job of 24 h on n1")
    (last,) = lived.run("history", "decisions", "--last", "1", "--json").lines
    assert (last["event"], last["nodes"], last["tests"][0]["benchmark"]) == (
        "node-added",
        ["n4"],
        "flow",
    )


def test_table_records_and_page_agree_on_the_findings_of_each_benchmark(near):
    near.program(
        "other.sh",
        FLOW.replace('"name": "flow"', '"name": "other"').replace(
            '"benchmark": "flow"', '"benchmark": "other"'
        ),
    )
    suite = near.suite(near.flow(), near.flow(benchmark="other"))
    fleet = near.fleet(nodes="n[01-16]", slow_share=0.25)
    accepted = near.ask("accept", "--cluster", fleet, "--suite", suite, "--json")
    assert len(accepted.summary["defective"]) == 4
    page = near.home / "page.html"
    found = near.run("history", "benchmarks", "--json", "--html", str(page)).lines
    assert sorted(node for line in found for node in line["nodes"]) == sorted(
        accepted.summary["defective"]
    )
    assert all(line["alone"] == line["nodes"] for line in found)
    assert sum(line["coverage"] for line in found) == pytest.approx(1)
    assert all(line["lowest"] <= line["repeatability"] <= 1 for line in found)
    table = near.run("history", "benchmarks").out
    for line in found:
        row = [line["benchmark"], str(len(line["nodes"])), str(len(line["alone"]))]
        row += [f"{line['coverage']:.1%}", str(line["tried"])]
        assert re.search(rf"^{' +'.join(row)} ", table, re.MULTILINE)
        cells = re.findall(rf">{row[0]}</th>(.*)</tr>", page.read_text())
        assert re.findall(r">([^<>]+)</td>", cells[0])[:4] == row[1:]


def test_an_import_is_listed_and_taken_back_by_its_number(near):
    assert (
        "to take this back: anubis history forget --import 1"
        in import_file(near, "day.csv", DAY).err
    )
    import_file(near, "wrong.csv", DAY.replace("n1", "typo"), "--nodes", "typo,n9")
    listed = near.run("history", "imports", "--json").lines
    assert [(one["import"], one["new"], one["known"]) for one in listed] == [(2, 1, 1), (1, 2, 0)]
    assert str(near.folder / "wrong.csv") == listed[0]["file"]
    assert "day.csv" in "".join(near.run("history", "imports").out.split())
    done = near.run("history", "forget", "--import", "2")
    assert done.out == "import 2 is forgotten, and with it: 1 incident, 1 watch\n"
    with History.open(str(near.history)) as history:
        assert {one.node for one in history.only().incidents.all()} == {"n1", "n9"}
        assert {one.node for one in history.only().watches.all()} == {"n1", "n9"}
    again = near.run("history", "forget", "--import", "2")
    assert (again.code, again.out) == (64, "")
    assert again.err.endswith("import 2 is not in the history; known: 1\n")


def test_an_end_known_only_from_a_forgotten_import_is_open_again(near):
    import_file(near, "day.csv", DAY)
    import_file(near, "next.csv", "host,cause,from,to\nn9,gpu,2026-03-02,2026-03-03\n")
    done = near.run("history", "forget", "--import", "2")
    assert "1 incident of other imports open again: the end came from this import\n" in done.out


def test_a_decision_is_broken_between_words_on_a_terminal_only(monkeypatch, capsys):
    sentence = " ".join(["no-go"] * 40)
    answer.write_paragraph(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    answer.write_paragraph(sentence)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == sentence


def test_a_terminal_shows_six_lines_of_an_answer_and_a_pipe_all(monkeypatch, capsys):
    reasons = [f"reason {number}, " + "in words " * 12 for number in range(4)]
    answer.write_brief(["go", *reasons])
    assert capsys.readouterr().out.splitlines() == ["go", *reasons]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    answer.write_brief(["go", *reasons])
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("go", "more with --why", 6)
    assert max(map(len, lines)) <= 80
    answer.write_brief(["go", "in words"])
    assert capsys.readouterr().out == "go\nin words\n"


def test_a_forgotten_import_has_no_influence_on_decisions(lived):
    import_file(lived, "wrong.csv", f"host,cause,from,to\nn1,psu,{datetime.now(UTC)},\n")
    words = ("gate", "--plan", "n1", "--event", "tick", "--suite", lived.where[-1], "--json")
    assert lived.ask(*words).lines[0]["nodes"] == []
    assert lived.run("history", "forget", "--import", "2").code == 0
    again = lived.ask(*words).lines[0]
    assert (again["nodes"], again["p"] < 1) == (["n1"], True)


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        ("show", "the history knows nothing yet"),
        ("benchmarks", "nothing was measured yet: begin with anubis accept"),
        ("decisions", "no decisions yet: anubis gate and anubis sweep make them"),
        ("imports", "nothing was imported yet: see anubis history import --help"),
    ],
)
def test_an_empty_list_is_no_error(near, verb, sentence, form):
    done = near.run("history", verb, *form)
    assert (done.code, done.out, done.err) == (0, "", f"{sentence}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "n1"], "the history knows nothing of n1"),
        (["forget"], "missing option '--import'"),
        (["forget", "--import", "1"], "import 1 is not in the history; known: there is none"),
        (["show", "n[1", "--json"], "brackets do not match"),
        (["decisions", "--last", "0"], "--last"),
    ],
)
def test_an_empty_history_is_stated_in_one_line(near, words, told):
    done = near.run("history", *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (64, "", 1)
    assert told in done.err


def test_incidents_without_an_import_are_no_import(near):
    with History.open(str(near.history)) as history:
        history.only().incidents.add([Incident(node="n1", category="x", start=1.0)])
        assert history.imports.newest() == []


def test_nodes_are_listed_with_the_judgement_of_a_gate(lived):
    lines = {line["node"]: line for line in lived.run("history", "standing", "--json").lines}
    assert len(lines) == 9
    n1, n9 = lines["n1"], lines["n9"]
    assert (n1["judgement"], n1["why"], list(n1["passed"])) == ("healthy", "", ["flow"])
    assert (n1["last_verdict"], n1["holder"]) == ("healthy", None)
    assert (n9["judgement"], n9["why"]) == ("defective", 'its incident "gpu" is not over')
    assert (n9["last_verdict"], n9["passed"]) == (None, {})
    table = lived.run("history", "standing", "n[1,9]").out
    for words in ("✓ healthy", "passed flow", "✗ defective", "2 nodes: 1 healthy, 1 defective"):
        assert words in table
    assert lived.run("history", "standing", "m1").err == (
        "anubis: error: the history knows nothing of m1\n"
    )


def test_campaigns_are_listed_with_how_far_they_are(lived):
    (line,) = lived.run("history", "campaigns", "--json").lines
    assert (line["kind"], line["nodes"], line["judgement"]) == ("accept", 8, "healthy")
    assert line["executions"] == {"measured": 8}
    assert "✓ healthy" in lived.run("history", "campaigns", "--last", "1").out


def test_every_reader_sees_a_reported_event_at_once(fleet):
    soon = datetime.fromtimestamp(time.time() + 3600, UTC).strftime("%Y-%m-%dT%H:%M")
    fleet.run("tell", "incident-reported", "n1", "--category", "gpu", "--later")
    fleet.run("tell", "maintenance", "n2", "--until", soon, "--later")
    fleet.write("open.csv", "node,category,start,end\nn3,gpu,2026-03-01T10:00,\n")
    fleet.run("history", "import", "incidents", "open.csv")
    listed = {line["node"]: line for line in fleet.run("nodes", "--json").lines}
    assert listed["n1"]["standing"] == "to be proven"
    assert listed["n1"]["unproven"].startswith('incident "gpu" was reported')
    standings = {line["node"]: line for line in fleet.run("history", "standing", "--json").lines}
    assert standings["n1"]["why"] == listed["n1"]["unproven"]
    judged = {node: line["judgement"] for node, line in listed.items()}
    assert judged == {node: line["judgement"] for node, line in standings.items()}
    assert [judged[f"n{i}"] for i in (1, 2, 3, 4)] == ["unknown", "unknown", "defective", "healthy"]
    refused = fleet.run("gate", "n3", "--duration", "24h", "--no-tests", "--cluster", "fleet.yaml")
    assert (refused.code, "of the incidents" in refused.out) == (1, False)
    decided = fleet.run("history", "decisions", "--last", "1")
    assert 'on n3: no-go, whatever the risk: n3: its incident "gpu" is not over' in decided.out
    (decision,) = fleet.run("history", "decisions", "--last", "1", "--json").lines
    assert (decision["nodes"], decision["down"]) == ([], ["n3"])


def test_a_verb_that_lists_exits_with_0_for_any_content(fleet):
    """The verbs that judge say by their exit code what they judged."""
    fleet.write("open.csv", "node,category,start,end\nn3,gpu,2026-03-01T10:00,\n")
    fleet.run("history", "import", "incidents", "open.csv")
    for words in ("nodes", "history standing", "tell repair-begun n3 --later", "history actions"):
        assert fleet.run(*words.split()).code == 0, words
    assert fleet.run("gate", "n3", "--duration", "1h", "--no-tests").code == 1
