"""`anubis accept --topology` as an operator meets it: nodes and the network on one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.edges.desk import Desk, Done
from tests.edges.test_scan import RACKS

PODS = """
rails: [mlx5_0, mlx5_1]
gbit_s: 400
racks:
  - {nodes: "n[1-6]", leaves: "leaf-a[1-2]"}
  - {nodes: "n[7-12]", leaves: "leaf-b[1-2]"}
links:
  - {below: "leaf-a[1-2],leaf-b[1-2]", above: "spine[1-2]"}
"""
ELSEWHERE = RACKS.replace("n[1-4]", "n1,x[2-4]").replace("n[5-", "x[5-").replace("n[9-", "x[9-")
SUITE = (
    {"benchmark": "gemm", "repeats": 1},
    {"benchmark": "collective", "groups": "pairs", "rounds": 2, "repeats": 1},
)


def accept(desk: Desk, *words: str, racks: str | None = RACKS, **fleet) -> Done:
    topology = ("--topology", str(desk.write("racks.yaml", racks))) if racks else ()
    cluster = desk.fleet(**{"nodes": "n[1-12]", **fleet})
    suite = desk.suite(*SUITE)
    return desk.run("accept", "--cluster", cluster, "--suite", suite, *topology, *words)


def parts(done: Done) -> list[dict]:
    return [line for line in done.lines if line["type"] == "part"]


def criteria(desk: Desk) -> dict[str, str]:
    """Criteria by file; when each was learned is left out."""
    files = sorted((desk.home / "criteria").rglob("*.json"))
    return {file.name: re.sub(r'"created_at": "[^"]*"', "", file.read_text()) for file in files}


@pytest.mark.long
def test_a_bad_uplink_is_in_the_first_line_of_table_json_and_page_beside_healthy_nodes(near):
    page = near.folder / "accept.html"
    done = accept(near, "--json", "--html", str(page), faults=["lossy uplink"])
    (part,) = [line for line in parts(done) if line["verdict"] == "defective"]
    assert (done.code, part["code"]) == (1, "NETWORK.LINK")
    assert done.summary["defective_parts"] == [part["subject"]]
    assert done.summary["defective"] == []
    slow = [v["reason"] for v in done.verdicts if v["verdict"] == "unknown"]
    assert all("its path crosses" in reason and "at fault" in reason for reason in slow)
    (planted,) = [line for line in done.lines if line["type"] == "planted"]
    assert planted["detected"] == "found"
    table = near.run("report")
    head = f"defective: {part['subject']} · nodes: {len(done.summary['healthy'])} healthy"
    assert " ".join(table.out.split()).startswith(head)
    assert table.code == 1
    told = page.read_text()
    assert f"<title>{head}" in told
    assert "1 part of the network must be repaired" in told
    assert "Pairs crossed 6 of 6 links" in told


@pytest.mark.long
def test_a_sound_network_has_no_defective_part_and_changes_no_learned_criteria(near):
    done = accept(near, "--json")
    assert done.code == 0
    assert not parts(done)
    with_fabric = criteria(near)
    assert list(with_fabric) == ["simulated.json"]
    near.history.unlink()  # or the first campaign would be evidence for the second
    assert accept(near, "--json", racks=None).code == 0
    assert criteria(near) == with_fabric
    cluster, suite = desk_files(near)
    assert near.run("validate", "--cluster", cluster, "--suite", suite).code == 0


def desk_files(desk: Desk) -> tuple[str, str]:
    return str(desk.folder / "fleet.yaml"), str(desk.folder / "tiny.yaml")


@pytest.mark.long
def test_a_campaign_is_judged_the_same_again_by_its_own_criteria_and_by_those_of_its_suite(near):
    done = accept(near, "--json", faults=["slow leaf"])
    assert done.code == 1
    for words in ((), ("--criteria", str(near.home / "criteria"))):
        again = near.run("criteria", "judge", "--json", *words)
        assert again.summary["headline"] == done.summary["headline"]


@pytest.mark.parametrize(
    ("words", "racks", "why"),
    [
        ((), None, "--topology FILE adds it"),
        (("--no-fabric",), RACKS, "--no-fabric was given"),
        ((), ELSEWHERE, "of these nodes the topology has 1 node"),
    ],
)
def test_an_unmeasured_fabric_is_stated_on_screen_page_and_dry_run(near, words, racks, why):
    sentence = f"the fabric between the nodes is not measured: {why}"
    page = near.folder / "accept.html"
    done = accept(near, *words, "--html", str(page), racks=racks)
    assert f"left out: {sentence}" in " ".join(done.out.split())
    assert sentence in page.read_text()
    assert "; the fabric between the nodes was not measured." in page.read_text()
    dry = accept(near, *words, "--dry-run", racks=racks)
    assert sentence in " ".join(dry.out.split())
    assert "fabric  " not in dry.out


def test_a_dry_run_shows_the_rounds_across_the_fabric_and_their_minutes(near):
    done = accept(near, "--dry-run", "--json", racks=PODS)
    phases = {line["phase"]: line for line in done.lines if line["type"] == "phase"}
    assert list(phases) == ["single-node", "multi-node", "fabric"]
    assert phases["fabric"]["turns"] >= 1
    assert phases["fabric"]["duration_s"] > 0
    (coverage,) = [line for line in done.lines if line["type"] == "coverage"]
    assert coverage["tiers"] == [{"from": 1, "to": 2, "crossed": 8, "links": 8}]
    text = accept(near, "--dry-run", racks=PODS).out
    assert len(re.findall("^turns: ", text, re.M)) == 1
    assert "pair_rdma@" in text  # the topology has InfiniBand adapters


def test_links_that_no_pair_crosses_are_counted_with_the_reason(near):
    alone = RACKS + "  - {below: leaf9, above: spine1}\n"
    page = near.folder / "accept.html"
    done = accept(near, "--html", str(page), racks=alone)
    sentence = "1 link not crossed: 1 on no path between these nodes"
    assert sentence in " ".join(done.out.split())
    assert sentence in page.read_text()
    lines = near.run("report", "--json").lines
    (crossed,) = [line for line in lines if line["type"] == "crossed"]
    assert crossed["uncrossed"] == {"out of reach": 1}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--counters", "x"), "accept measures no fabric"),
        (("--no-fabric", "--counters", "x"), "accept measures no fabric"),
    ],
)
def test_counters_need_a_fabric_that_is_measured(near, words, sentence):
    racks = RACKS if "--no-fabric" in words else None
    done = accept(near, *words, racks=racks)
    assert done.code == 64
    assert sentence in done.err
    assert not Path(near.home / "history.sqlite").exists()
