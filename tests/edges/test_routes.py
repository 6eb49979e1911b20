"""Forwarding tables: as tools print them, as a live fabric has them, and their uses."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import permutations

import pytest

from anubis.core.errors import TopologyError
from anubis.core.routes import Routes
from anubis.readers.topology import fabric_sources, forwarding
from anubis.store.codec import dump, load
from tests.core.made_fabrics import FatTree
from tests.edges.fabric_text import (
    dump_fts_n_of,
    dump_fts_of,
    ibnetdiscover_of,
    opensm_fdbs_of,
    opensm_lfts_of,
    routed_fabric,
)
from tests.edges.ibsim import Simulator
from tests.edges.test_counters import show_live

TREE = routed_fabric(FatTree(nodes=12, nodes_per_leaf=4, spines=3, cables=2))
PODS = routed_fabric(
    FatTree(nodes=16, nodes_per_leaf=4, leaves_per_pod=2, spines=2, cores=2, cables=2)
)

# What ibtracert of infiniband-diags 44 says of two HCAs of a simulated fabric.
TRACED = """\
From ca {0x0000000000100000} portnum 1 lid 1-1 "node00001 mlx5_0"
[1] -> switch port {0x0000000000200000}[1] lid 13-13 "leaf-0-0"
[7] -> switch port {0x0000000000200004}[1] lid 17-17 "spine-0-1"
[3] -> switch port {0x0000000000200001}[7] lid 14-14 "leaf-0-1"
[1] -> ca port {0x0000000000100004}[1] lid 5-5 "node00005 mlx5_0"
To ca {0x0000000000100004} portnum 1 lid 5-5 "node00005 mlx5_0"
"""


def routes_of(fabric):
    """Every node's way to every other, by names of switches."""
    ways = {}
    for a, b in permutations(fabric.nodes, 2):
        via = fabric.route(fabric.nic(a, "0"), fabric.nic(b, "0"))
        ways[a, b] = [fabric.name(switch) for switch in via]
    return ways


@pytest.mark.parametrize("fabric", [TREE, PODS], ids=["two tiers", "three tiers"])
@pytest.mark.parametrize(
    "tables_of",
    [dump_fts_of, dump_fts_n_of, opensm_lfts_of, opensm_fdbs_of],
    ids=["dump_fts", "dump_fts -n", "opensm-lfts.dump", "opensm.fdbs"],
)
def test_tables_behind_the_topology_give_every_route(tmp_path, fabric, tables_of):
    file = tmp_path / "fabric.txt"
    file.write_text(ibnetdiscover_of(fabric) + tables_of(fabric))
    read = fabric_sources.load(file)
    assert read.findings == ()
    assert read.fabric.routes.source == f'"{file}"'
    assert all(routes_of(read.fabric).values())
    assert routes_of(read.fabric) == routes_of(fabric)


def test_guids_keep_routes_of_tables_with_outdated_lids(tmp_path):
    turned = [TREE.nics[-1].lid, *(nic.lid for nic in TREE.nics[:-1])]
    nics = (replace(nic, lid=lid) for nic, lid in zip(TREE.nics, turned, strict=True))
    old = replace(TREE, nics=tuple(nics))
    file = tmp_path / "fabric.txt"
    file.write_text(ibnetdiscover_of(TREE) + dump_fts_of(old))
    assert routes_of(fabric_sources.load(file).fabric) == routes_of(TREE)


def test_a_traced_path_gives_one_route():
    traced = forwarding.parse(TRACED, TREE, "it", None)
    fabric = replace(TREE, routes=traced)
    known = {pair: way for pair, way in routes_of(fabric).items() if way}
    assert known["node00001", "node00005"] == ["leaf-0-0", "spine-0-1", "leaf-0-1"]
    assert {target for _, target in known} == {"node00005"}


def test_routes_are_kept_with_a_plan():
    assert load(Routes, dump(TREE.routes)) == TREE.routes


def test_tables_older_than_the_cables_give_no_route_and_a_finding(tmp_path):
    moved = routed_fabric(FatTree(nodes=12, nodes_per_leaf=4, spines=4, cables=1))
    file = tmp_path / "fabric.txt"
    file.write_text(ibnetdiscover_of(TREE) + dump_fts_of(moved))
    read = fabric_sources.load(file)
    (astray,) = read.findings
    assert astray.kind == "astray"
    assert "do not arrive" in astray.sentence


def test_tables_without_a_topology_are_refused_with_the_way_to_keep_both(tmp_path):
    file = tmp_path / "tables.txt"
    file.write_text(dump_fts_of(TREE))
    with pytest.raises(TopologyError, match="dump_fts >> FILE"):
        fabric_sources.load(file)


def test_tables_of_another_fabric_are_a_finding(tmp_path):
    file = tmp_path / "fabric.txt"
    file.write_text(ibnetdiscover_of(TREE) + dump_fts_of(TREE).replace("guid 0x", "guid 0xff"))
    read = fabric_sources.load(file)
    assert read.fabric.routes is None
    assert [finding.kind for finding in read.findings] == ["no-routes"]


# --- what they are good for ------------------------------------------------------------------


def test_the_drawing_names_the_source_and_age_of_its_routes(near, tmp_path):
    file = tmp_path / "fabric.txt"
    file.write_text(ibnetdiscover_of(TREE) + dump_fts_of(TREE))
    two_days_ago = file.stat().st_mtime - 2 * 86400
    os.utime(file, (two_days_ago, two_days_ago))
    shown = near.run("scan", "--draw", "--topology", str(file)).out
    (line,) = [line for line in shown.splitlines() if line.startswith("routes: ")]
    assert re.fullmatch(r'routes: those of 6 switches, from ".*" of 20.* UTC, 48 h ago', line)
    file.write_text(ibnetdiscover_of(TREE))
    assert "dump_fts >> FILE" in near.run("scan", "--draw", "--topology", str(file)).out


def test_the_drawing_of_ethernet_states_that_hashes_of_switches_are_unknown(near):
    racks = "racks:\n- {nodes: 'n[1-4]', leaves: l1}\n- {nodes: 'n[5-8]', leaves: l2}\n"
    links = "links:\n- {below: 'l[1-2]', above: 's[1-2]'}\n"
    file = near.write("racks.yaml", racks + links)
    assert "(ECMP)" in near.run("scan", "--draw", "--topology", str(file)).out


@pytest.mark.long
def test_with_tables_a_scan_names_one_lossy_uplink_with_the_ports_at_both_ends(near):
    cluster = near.fleet(nodes="node[00001-00012]", faults=["lossy uplink"], seed=3)
    subjects = []
    for tables in ("", dump_fts_of(TREE)):
        topology = near.write("fabric.txt", ibnetdiscover_of(TREE) + tables)
        words = ("--suite", "scan", "--full", "--json")
        done = near.run("scan", "--cluster", cluster, "--topology", str(topology), *words)
        (part,) = [line for line in done.lines if line["type"] == "part"]
        assert part["verdict"] == "defective"
        subjects.append((part["subject"], part["evidence"]))
    (of_class, ranked), (alone, evidence) = subjects
    assert of_class.startswith("one of 3 links of leaf-0-")
    assert re.match(r"\d+% link leaf-0-\d\[\d+,\d+\] - spine-0-\d\[\d+,\d+\]$", ranked[0])
    assert re.fullmatch(r"link leaf-0-\d\[\d+,\d+\] - spine-0-\d\[\d+,\d+\]", alone)
    assert re.search(r"4 hops: leaf-0-\d, spine-0-\d, leaf-0-\d$", evidence[0])


# --- live ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_live_fabric_is_shown_with_the_routes_that_ibtracert_follows(near, tmp_path):
    tools = ("dump_fts", "ibtracert")
    with Simulator(
        FatTree(nodes=12, nodes_per_leaf=4, spines=3).fabric(), tmp_path, tools
    ) as fabric:
        fabric.manage()
        shown = show_live(near, fabric.path)
        assert re.search(
            r'^routes: those of 6 switches, from "dump_fts" of', shown.out, re.MULTILINE
        )
        found = fabric_sources.parse(fabric.run("ibnetdiscover").stdout, "it").fabric
        tables = fabric.run("dump_fts").stdout
        found = replace(found, routes=forwarding.parse(tables, found, "it", None))
        for a, b in (("node00001", "node00005"), ("node00012", "node00002")):
            lids = [str(found.nic(name, "0").lid) for name in (a, b)]
            traced = fabric.run("ibtracert", *lids).stdout
            passed = re.findall(r'-> switch port .* "(.*)"', traced)
            assert routes_of(found)[a, b] == passed
