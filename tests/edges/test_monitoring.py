"""Answers for programs: monitoring plugins and viewers of test results."""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

import pytest

LINE = re.compile(r"^[A-Z]+ (OK|WARNING|CRITICAL|UNKNOWN): [^|\n]+( \| (?P<figures>[^|\n]+))?\n$")
FIGURE = re.compile(r"^[a-z0-9_]+=\d+(\.\d+)?(e-\d+)?;\d*(\.\d+)?;\d*;0;\d*$")


@pytest.fixture
def fleet(near):
    """Two of eight lack a GPU, one is lost."""
    suite = near.suite(near.flow())
    words = (
        "--suite",
        suite,
        "--cluster",
        near.fleet(slow_share=0.25, slow_by=0.2, lost_share=0.1),
    )
    near.words = words
    assert near.ask("accept", *words, "--junit", "accept.xml").code == 1
    return near


def figures(done):
    line = LINE.match(done.out)
    assert line, done.out
    behind = line["figures"].split()
    assert all(map(FIGURE.match, behind)), behind
    return {name: float(rest.split(";")[0]) for name, _, rest in (f.partition("=") for f in behind)}


def counts(near):
    summary = near.run("report", "--json").summary
    return {name: len(summary[name]) for name in ("healthy", "defective", "unknown")}


def test_monitoring_gets_a_line_with_the_figures_of_the_summary(fleet):
    done = fleet.run("report", "--nagios")
    assert (done.code, done.out[:16]) == (2, "ACCEPT CRITICAL:")
    told = figures(done)
    assert {name: told[name] for name in ("healthy", "defective", "unknown")} == counts(fleet)
    assert counts(fleet)["defective"] == 2


@pytest.mark.parametrize(
    "words", [("report",), ("report", "--no-such"), ("gate", "n1", "--duration", "long")]
)
def test_an_error_is_unknown_to_monitoring_and_nothing_critical(near, words):
    done = near.run(*words, "--nagios")
    assert done.code == 3
    assert done.out.startswith("ANUBIS UNKNOWN: ")
    assert LINE.match(done.out)


def test_a_gate_gives_monitoring_its_answer_and_warns_of_unproven_nodes(fleet):
    summary = fleet.run("report", "--json").summary
    answers = {}
    for judgement in ("healthy", "defective", "unknown"):
        node = summary[judgement][0]
        words = ("--duration", "1h", "--on-unknown", "pass", *fleet.words)
        answers[judgement] = fleet.ask("gate", node, *words, "--nagios", "--junit", "gate.xml").code
        (case,) = [c for c in cases(fleet, "gate.xml") if c.get("classname") == "gate.gate"]
        assert [outcome.tag for outcome in case] == (
            ["failure"] if judgement == "defective" else []
        )
    assert answers["healthy"] == 0
    assert answers["defective"] == 2


def test_two_answers_at_once_are_refused_before_anything_runs(near):
    done = near.run("report", "--json", "--nagios")
    assert done.code == 3
    assert "exclude each other" in done.out
    done = near.run("gate", "n1", "--duration", "1h", "--junit", "no/such.xml")
    assert (done.code, "--junit" in done.err) == (64, True)


def cases(near, name):
    return xml.fromstring((near.folder / name).read_text()).findall("./testsuite/testcase")


OUTCOME = {
    "healthy": [],
    "defective": ["failure"],
    "unknown": ["error"],
    "not-applicable": ["skipped"],
}


def test_a_junit_file_has_a_case_for_each_node_and_benchmark_and_counts_as_the_summary_does(fleet):
    assert fleet.run("report", "--junit", "again.xml").code == 1
    assert (fleet.folder / "again.xml").read_text() == (fleet.folder / "accept.xml").read_text()
    root = xml.fromstring((fleet.folder / "accept.xml").read_text())
    worst: dict[str, str] = {}
    for line in fleet.run("report", "--json").verdicts:  # the worst first
        worst.setdefault(line["node"], line["verdict"])
    found = {c.get("name"): [outcome.tag for outcome in c] for c in cases(fleet, "accept.xml")}
    assert found == {node: OUTCOME[verdict] for node, verdict in worst.items()}
    for element in (root, *root):
        inside = element.findall(".//testcase")
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            bad = [case for case in inside if case.find(tag) is not None]
            assert int(element.get(attribute)) == len(bad)
        assert int(element.get("tests")) == len(inside)
    failure = root.find(".//failure")
    assert failure.get("type") == "FLOW.SPEED"
    assert failure.get("message").startswith("FLOW.SPEED: speed")
