"""`anubis scan` as an operator meets it: on a fleet in memory, and on hosts below real switches."""

from __future__ import annotations

import json
import re

import pytest

from tests.edges.desk import Desk, Done

RACKS = """
racks:
  - {nodes: "n[1-4]", leaves: leaf1}
  - {nodes: "n[5-8]", leaves: leaf2}
  - {nodes: "n[9-12]", leaves: leaf3}
gbit_s: 100
links:
  - {below: "leaf[1-3]", above: "spine[1-2]"}
"""


def scan(desk: Desk, *words: str, racks: str = RACKS, nodes: str = "n[1-12]", **fleet) -> Done:
    topology = str(desk.write("racks.yaml", racks))
    cluster = desk.fleet(nodes=nodes, **fleet)
    return desk.run("scan", "--cluster", cluster, "--topology", topology, *words)


@pytest.mark.parametrize(
    ("faults", "code", "defective", "unknown"),
    [
        ([], 0, 0, 0),
        (["slow node"], 1, 1, 0),
        (["lossy uplink"], 1, 0, 0),
        (["slow leaf"], 1, 0, 4),  # what hangs on it has shown nothing of itself
    ],
)
def test_a_defect_in_the_network_is_one_though_no_node_is_to_blame(
    near, faults, code, defective, unknown
):
    done = scan(near, "--full", "--json", faults=faults)
    assert done.code == code
    parts = [line for line in done.lines if line["type"] == "part"]
    assert len(parts) == len(faults)
    assert (len(done.summary["defective"]), len(done.summary["unknown"])) == (defective, unknown)
    behind = [v["reason"] for v in done.verdicts if v["code"] == "NO-GOOD-PAIR"]
    assert all("at fault is switch leaf" in reason for reason in behind)


def test_the_shipped_cluster_in_memory_is_scanned_on_its_own_fabric_and_its_bad_uplink_is_named(
    near,
):
    done = near.run("scan", "--cluster", "simulated", "--json")
    (part,), (planted,), (reckoning,) = (
        [line for line in done.lines if line["type"] == kind]
        for kind in ("part", "planted", "reckoning")
    )
    assert (part["subject"], part["code"]) == (planted["subject"], "NETWORK.LINK")
    assert any("symbol_error" in line for line in part["evidence"])
    assert (reckoning["missed"], reckoning["wrongly_blamed"]) == (0, [])
    assert "ibnetdiscover" not in done.err


def test_a_file_beside_the_cluster_file_describes_its_cabling(near):
    near.write("racks.yaml", RACKS)
    cluster = near.write(
        "mine.yaml",
        "executor: simulated\ntopology: racks.yaml\n"
        'fleet: {nodes: "n[1-12]", slow_share: 0, faults: [slow leaf]}\n',
    )
    done = near.run("scan", "--cluster", str(cluster), "--json")
    (part,) = [line for line in done.lines if line["type"] == "part"]
    assert part["parts"][0]["kind"] == "switch"


def test_a_scan_names_the_part_with_its_evidence_and_a_report_repeats_it(near):
    done = scan(near, "--json", faults=["bad cable"])
    (part,) = [line for line in done.lines if line["type"] == "part"]
    (named,) = part["parts"]
    assert named["kind"] == "node"
    assert done.summary["defective"] == [named["name"]]
    assert part["confidence"] > 0.9
    assert all(named["name"] in line and "hops: leaf" in line for line in part["evidence"])
    again = near.run("report", "--json")
    assert (again.code, again.out) == (done.code, done.out)
    table = near.run("report")
    assert f"node {named['name']} or its NIC" in table.out
    assert max(len(line) for line in table.out.splitlines()) <= 80


def test_no_gate_lets_a_job_cross_a_link_that_a_scan_found_defective_until_one_clears_it(near):
    def gate(nodes, *words):
        done = near.run("gate", nodes, "--duration", "24h", "--cluster", cluster, "--json", *words)
        return done.code, done.summary["answer"], done.summary["parts"]

    found = scan(near, "--full", "--json", faults=["lossy uplink"])
    (part,) = [line for line in found.lines if line["type"] == "part"]
    cluster = near.fleet(nodes="n[1-12]")
    assert near.run("accept", "--cluster", cluster, "--suite", "quick").code == 0
    leaf = re.findall(r"leaf(\d)", part["subject"])
    below = f"n[{4 * int(leaf[0]) - 3}-{4 * int(leaf[0])}]"
    assert gate(below) == (0, "go", {})
    code, answer, parts = gate("n[1-12]")
    assert (code, answer, list(parts)) == (1, "no-go", [part["subject"]])
    lenient = near.write("p.yaml", {"summary": "any part", "selection": {"defective_parts": "go"}})
    assert gate("n[1-12]", "--policy", str(lenient)) == (0, "go", parts)

    assert scan(near, below).code == 0  # around it
    assert gate("n[1-12]") == (1, "no-go", parts)
    assert scan(near, "--full").code == 0
    assert gate("n[1-12]") == (0, "go", {})


def test_a_dead_leaf_is_the_first_thing_that_table_json_page_and_exit_code_say(near):
    page = near.folder / "scan.html"
    done = scan(near, "--full", "--json", "--html", str(page), faults=["dead leaf"])
    (leaf,) = (line for line in done.lines if line["type"] == "part")
    assert leaf["parts"][0]["kind"] == "switch"
    assert done.code == 1
    assert done.summary["judgement"] == "defective"
    assert done.summary["defective_parts"] == [leaf["subject"]]
    table = near.run("report")
    assert table.out.split("\n\n")[0].strip().startswith(f"defective: {leaf['subject']} · nodes: ")
    told = page.read_text()
    assert f"<title>defective: {leaf['subject']} · nodes: " in told
    head, below = (
        re.sub(r"<[^>]*>|\s+", " ", part) for part in told.split("<h1", 1)[1].split("</h1>")
    )
    assert head.split()[1:] == ["✗", *leaf["subject"].split(), "defective"]
    assert below.split()[0] == "nodes:"


def test_a_second_scan_is_judged_by_criteria_of_the_first(near):
    page = near.folder / "first.html"
    first = scan(near, "--json", "--html", str(page))
    caveat = first.summary["caveat"]
    assert (first.code, "do not show a loss that half of them share" in caveat) == (0, True)
    assert caveat[1:] in page.read_text()
    assert caveat in " ".join(near.run("report").out.split())
    criteria = near.home / "criteria" / "scan"
    assert sorted(json.loads(file.read_text())["sku"] for file in criteria.iterdir()) == [
        "simulated at 2 hops",
        "simulated at 4 hops",
    ]
    done = scan(near, "--criteria", str(criteria), "--json", faults=["slow node"])
    assert (len(done.summary["defective"]), done.summary["caveat"]) == (1, "")


def test_a_dry_run_lists_crossed_and_uncrossed_links(near):
    quick, full = (
        json_lines(scan(near, way, "--dry-run", "--json")) for way in ("--quick", "--full")
    )
    assert full[0]["steps"] == 66
    assert quick[0]["steps"] < 40
    for lines in (quick, full):
        coverage = lines[-1]
        assert coverage["type"] == "coverage"
        assert (coverage["nics"], coverage["switches"]) == (12, 5)
        assert coverage["links"] + len(coverage["seldom_crossed_links"]) == 6
    assert quick[0]["turns"] >= max(quick[-1]["rounds"].values())
    assert "turns: " in scan(near, "--full", "--dry-run").out
    alone = RACKS + "  - {below: leaf9, above: spine1}\n"
    text = scan(near, "--dry-run", racks=alone).out
    assert "switches that no pair crosses: leaf9" in text
    assert re.search(r"turns: \d+, at least \d+: \d+ pairs cross leaf\d, 1 at a time", text)
    assert "links that no path between these nodes uses: leaf9 - spine1" in text
    assert "by tiers: " in text
    tall = RACKS + "  - {below: spine1, above: core1}\n"
    again = "; up to half as long again for pairs that shared a cable by chance"
    assert (again in text, again in scan(near, "--dry-run", racks=tall).out) == (False, True)


def json_lines(done: Done) -> list[dict]:
    assert done.code == 0, done.err
    return done.lines


def test_a_node_that_the_topology_does_not_know_costs_the_scan_its_success_and_nothing_else(near):
    done = scan(near, "--json", nodes="n[1-13]")
    assert done.code == 2
    assert done.summary["unknown"] == ["n13"]
    assert len(done.summary["healthy"]) == 12


def test_without_a_topology_all_nodes_count_as_on_one_switch_with_a_remark(near):
    done = near.run("scan", "--cluster", near.fleet(faults=["slow node"]), "--json")
    assert len(done.summary["defective"]) == 1
    assert "on one switch" in done.err
    assert "ibnetdiscover" not in done.err  # no fabric of this machine is asked for a simulated one


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--full", "--quick"], "--full and --quick exclude each other"),
        (["x1,x2"], '"x[1-2]" is not in the cluster'),
        (["n1"], 'suite "scan" needs 2 nodes or more, and has only 1'),
        (["--suite", "quick"], "node_health, which measures single nodes"),
        (["--topology", "/nowhere.yaml"], 'there is no file "/nowhere.yaml"'),
        (["--resume"], "there is nothing to resume: no scan was interrupted"),
        (["--resume", "--dry-run"], "leave out --resume"),
    ],
)
def test_an_impossible_scan_is_one_sentence(near, words, sentence):
    done = scan(near, *words)
    assert done.code == 64
    assert done.out == ""
    assert sentence in done.err.splitlines()[-1]


def test_a_topology_of_other_nodes_is_refused(near):
    done = scan(near, nodes="gpu[1-4]")
    assert (done.code, done.out) == (64, "")
    assert "the topology knows none of gpu[1-4]: it has n[1-12]" in done.err


def test_the_example_topology_with_other_nodes_points_to_its_cluster(near):
    done = near.run("scan", "--cluster", "simulated", "--topology", "example")
    assert done.code == 64
    assert "--cluster example has these" in done.err
    done = near.run("scan", "--cluster", "example", "--dry-run")
    assert (done.code, "64 nodes" in done.out) == (0, True)
