"""Descriptions of fabrics as they come: real ones, awkward ones, broken ones; and the drawing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.cli.streams import IN_ASCII
from anubis.core.errors import TopologyError
from anubis.core.fabric import plain_name
from anubis.core.network.coverage import coverage, covering_rounds
from anubis.core.network.inspection import Inspection
from anubis.core.network.pairing import quick_rounds
from anubis.core.network.wiring import audit
from anubis.core.records import Judgement
from anubis.readers.topology import fabric_sources, ibnetdiscover
from anubis.readers.topology.draft import Draft
from anubis.readers.topology.fabric_sources import load, parse
from anubis.readers.topology.tool import ask, decode
from anubis.report.topology import text
from tests.core.made_fabrics import FatTree

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def described(real):
    return lambda name: real(f"topology/{name}")


def kinds(findings) -> Counter[str]:
    return Counter(finding.kind for finding in findings)


def under(fabric) -> dict[str, list[str]]:
    """The nodes of each leaf, by the leaf's name."""
    return {
        fabric.name(leaf): sorted(nic.node for nic in nics) for leaf, nics in fabric.nics_on.items()
    }


# --- ibnetdiscover ---------------------------------------------------------------------------

# Cut from a real two-tier fabric (NVIDIA/topograph, Apache-2.0): two leaves, one spine.
EXCERPT = """\
#
# Topology file: generated on Wed Aug  6 16:11:23 2025
#
vendid=0x2c9
devid=0xd2f2
sysimgguid=0x2c5eab0300b87b40
switchguid=0x2c5eab0300b87b40(2c5eab0300b87b40)
Switch	65 "S-2c5eab0300b87b40"		# "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" enhanced port 0 lid 73 lmc 0
[1]	"H-e09d7303007a4bd8"[1](e09d7303007a4bd8) 		# "a08-p1-dgx-04-c01 mlx5_5" lid 647 4xNDR
[2]	"H-e09d730300859298"[1](e09d730300859298) 		# "a08-p1-dgx-04-c02 mlx5_5" lid 641 4xNDR
[35]	"S-2c5eab0300c26280"[32]		# "MF0;A10-P1-IBSPINE-02:MQM9701/U1" lid 236 4xNDR
[36]	"S-2c5eab0300c26280"[31]		# "MF0;A10-P1-IBSPINE-02:MQM9701/U1" lid 236 4xNDR
[65]	"H-2c5eab0300b87b50"[1](2c5eab0300b87b50) 		# "Mellanox Technologies Aggregation Node" lid 193 4xNDR

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x2c5eab0300b87bc0
switchguid=0x2c5eab0300b87bc0(2c5eab0300b87bc0)
Switch	65 "S-2c5eab0300b87bc0"		# "MF0;A09-P1-IBLEAF-04-02:MQM9701/U1" enhanced port 0 lid 159 lmc 0
[1]	"H-e09d730300857d78"[1](e09d730300857d78) 		# "a06-p1-dgx-02-c01 HCA-6" lid 522 4xNDR
[6]	"H-e09d730300858d88"[1](e09d730300858d88) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 515 4xNDR
[35]	"S-2c5eab0300c26280"[15]		# "MF0;A10-P1-IBSPINE-02:MQM9701/U1" lid 236 4xNDR
[36]	"S-2c5eab0300c26280"[16]		# "MF0;A10-P1-IBSPINE-02:MQM9701/U1" lid 236 4xNDR

vendid=0x2c9
switchguid=0x2c5eab0300c26280(2c5eab0300c26280)
Switch	65 "S-2c5eab0300c26280"		# "MF0;A10-P1-IBSPINE-02:MQM9701/U1" enhanced port 0 lid 236 lmc 0
[15]	"S-2c5eab0300b87bc0"[35]		# "MF0;A09-P1-IBLEAF-04-02:MQM9701/U1" lid 159 4xNDR
[16]	"S-2c5eab0300b87bc0"[36]		# "MF0;A09-P1-IBLEAF-04-02:MQM9701/U1" lid 159 4xNDR
[31]	"S-2c5eab0300b87b40"[36]		# "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" lid 73 4xNDR
[32]	"S-2c5eab0300b87b40"[35]		# "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" lid 73 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xe09d7303007a4bd8
caguid=0xe09d7303007a4bd8
Ca	1 "H-e09d7303007a4bd8"		# "a08-p1-dgx-04-c01 mlx5_5"
[1](e09d7303007a4bd8) 	"S-2c5eab0300b87b40"[1]		# lid 647 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" lid 73 4xNDR

caguid=0xe09d730300859298
Ca	1 "H-e09d730300859298"		# "a08-p1-dgx-04-c02 mlx5_5"
[1](e09d730300859298) 	"S-2c5eab0300b87b40"[2]		# lid 641 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" lid 73 4xNDR

caguid=0x2c5eab0300b87b50
Ca	1 "H-2c5eab0300b87b50"		# "Mellanox Technologies Aggregation Node"
[1](2c5eab0300b87b50) 	"S-2c5eab0300b87b40"[65]		# lid 193 lmc 0 "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1" lid 73 4xNDR

caguid=0xe09d730300857d78
Ca	1 "H-e09d730300857d78"		# "a06-p1-dgx-02-c01 HCA-6"
[1](e09d730300857d78) 	"S-2c5eab0300b87bc0"[1]		# lid 522 lmc 0 "MF0;A09-P1-IBLEAF-04-02:MQM9701/U1" lid 159 4xNDR

caguid=0xe09d730300858d88
Ca	1 "H-e09d730300858d88"		# "MT4129 ConnectX7   Mellanox Technologies"
[1](e09d730300858d88) 	"S-2c5eab0300b87bc0"[6]		# lid 515 lmc 0 "MF0;A09-P1-IBLEAF-04-02:MQM9701/U1" lid 159 4xNDR
"""  # noqa: E501
WITHOUT_A_HOST = "e09d730300858d88"


def test_an_excerpt_of_a_real_fabric_is_read_port_by_port():
    found = parse(EXCERPT, "it")
    fabric = found.fabric
    assert under(fabric) == {
        "A09-P1-IBLEAF-04-04": ["a08-p1-dgx-04-c01", "a08-p1-dgx-04-c02"],
        "A09-P1-IBLEAF-04-02": ["", "a06-p1-dgx-02-c01"],
    }
    assert fabric.rails == ("5",)  # mlx5_5 here and HCA-6 there are the same rail
    assert fabric.pairs_by_hops() == {2: 4, 4: 8}
    ports = {(cable.port_a, cable.port_b) for link in fabric.links for cable in link.cables}
    assert ports == {("35", "32"), ("36", "31"), ("35", "15"), ("36", "16")}
    assert {cable.gbit_s for link in fabric.links for cable in link.cables} == {400.0}
    assert {nic.gbit_s for nic in fabric.nics} == {400.0}
    assert kinds(found.findings) == {"aggregation": 1, "no-host": 1}
    (unnamed,) = [finding for finding in found.findings if finding.kind == "no-host"]
    assert unnamed.line == EXCERPT[: EXCERPT.index(WITHOUT_A_HOST)].count("\n") + 1


@pytest.mark.parametrize(
    "line",
    [
        "a06-p1-dgx-02-c06 0xe09d730300858d88 mlx5_5",
        "e09d:7303:0085:8d88,a06-p1-dgx-02-c06,mlx5_5",
        "VM_hostname a06-p1-dgx-02-c06\ne09d730300858d88",
    ],
)
def test_a_mapping_gives_the_node_of_an_hca(line):
    owners, findings = ibnetdiscover.parse_mapping(line)
    assert findings == []
    found = parse(EXCERPT, "it", owners)
    assert "a06-p1-dgx-02-c06" in found.fabric.nodes
    assert kinds(found.findings) == {"aggregation": 1}


def test_a_mapping_reports_uncabled_hcas_and_nodes_named_twice():
    owners, findings = ibnetdiscover.parse_mapping("n1 0xff08c4321664e96\nn2 0ff08c4321664e96\n")
    assert [(finding.kind, finding.line) for finding in findings] == [("mapping", 2)]
    found = parse(EXCERPT, "it", owners)
    (missing,) = [finding for finding in found.findings if finding.kind == "not-cabled"]
    assert "n1" in missing.sentence


TWO_PORTS = """\
Switch 8 "S-000000000000000a" # "leaf" base port 0 lid 1 lmc 0
[1] "H-00000000000000c1"[1](5442b1000049c2) # "n1 mlx5_0" lid 4 4xHDR
[2] "H-00000000000000c1"[2](5442b1000049c3) # "n1 mlx5_0" lid 5 4xHDR
[3] "H-00000000000000d1"[2](5442b1000049d3) # "n2 mlx5_0" lid 6 4xHDR
"""


def test_a_port_guid_maps_as_well_as_the_guid_of_the_hca():
    for port_of_m1 in ("5442b1000049c2", "5442b1000049c3"):
        owners, _ = ibnetdiscover.parse_mapping(f"m1 {port_of_m1} mlx5_0\nm2 5442b1000049d3 mlx5_0")
        assert parse(TWO_PORTS, "it", owners).fabric.nodes == ("m1", "m2")


@pytest.mark.twin("test_a_port_guid_maps_as_well_as_the_guid_of_the_hca")
def test_a_port_guid_of_old_hardware_maps_as_well(described):
    dual = described("ibtopotool-1.topo").read_text()
    owners, _ = ibnetdiscover.parse_mapping("n1 8f10403960559 mlx4_0\nn2 5442b100004901 mlx4_0")
    assert parse(dual, "it", owners).fabric.nodes == ("n1", "n2")


def test_the_ports_of_one_hca_stay_apart():
    fabric = parse(TWO_PORTS, "it").fabric
    assert [(nic.node, nic.device, nic.rail) for nic in fabric.nics] == [
        ("n1", "mlx5_0", "0"),
        ("n1", "mlx5_0/2", "0/2"),
        ("n2", "mlx5_0", "0"),  # its only cabled port, whatever its number
    ]
    assert [nic.guid[-2:] for nic in fabric.nics] == ["c2", "c3", "d3"]  # of the ports
    (together,) = quick_rounds(fabric, fabric.nodes)
    assert list(map(set, together.pairs)) == [{"n1", "n2"}]


def changed(old: str, new: str, count: int = -1) -> str:
    assert old in EXCERPT
    return EXCERPT.replace(old, new, count)


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (EXCERPT[: EXCERPT.index("[31]")], "cut-off"),
        (EXCERPT[: EXCERPT.index('"S-2c5eab0300b87bc0"[36]') + 9], "unreadable"),
        (changed("a08-p1-dgx-04-c02 mlx5_5", "a08-p1-dgx-04-c01 mlx5_5"), "same-description"),
        (changed("a08-p1-dgx-04-c02 mlx5_5", "localhost mlx5_5"), "no-host"),
        (changed("a08-p1-dgx-04-c02 mlx5_5", ""), "no-host"),
        (changed("a08-p1-dgx-04-c02 mlx5_5", "one two three"), "no-host"),
        (changed("IBLEAF-04-02", "IBLEAF-04-04"), "same-name"),
        (
            changed('[16]	"S-2c5eab0300b87bc0"[36]', '[17]	"S-2c5eab0300b87bc0"[37]'),
            "one-sided",
        ),
        (
            changed('[15]	"S-2c5eab0300b87bc0"[35]', '[15]	"S-2c5eab0300b87bc0"[36]'),
            "contradiction",
        ),
        (changed('[36]	"S-2c5eab0300c26280"[31]', '[36]	"S-2c5eab0300b87b40"[35]'), "loop"),
        (changed('Ca	1 "H-e09d730300857d78"', 'Rt	1 "H-e09d730300857d78"'), "router"),
        (EXCERPT + EXCERPT, "twice"),
        (changed("switchguid=", "ibwarn: timeout\nswitchguid=", 1), "unreadable"),
    ],
)
def test_odd_lines_are_findings_and_the_rest_is_known(broken, kind):
    found = parse(broken, "it")
    assert kinds(found.findings)[kind] >= 1
    assert "a08-p1-dgx-04-c01" in found.fabric.nodes or kind == "same-description"
    for finding in found.findings:
        assert "\n" not in finding.sentence
        assert len(finding.sentence) < 200
    list(text(Inspection(fabric=found.fabric), found.findings))


@pytest.mark.parametrize("end", range(0, len(EXCERPT), 97))
def test_a_file_cut_off_anywhere_is_read_as_far_as_it_goes(end):
    try:
        found = parse(EXCERPT[:end], "it")
    except TopologyError:
        return
    known = parse(EXCERPT, "it").fabric
    assert set(found.fabric.nodes) <= set(known.nodes)
    assert len(found.fabric.switches) <= len(known.switches)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_read_alike(end, tmp_path):
    file = tmp_path / "fabric"
    file.write_bytes(EXCERPT.replace("\n", end).encode())
    assert load(file) == parse(EXCERPT, "it")


@pytest.mark.twin("test_an_excerpt_of_a_real_fabric_is_read_port_by_port")
def test_the_real_fabric_has_the_switches_hcas_and_distances_it_is_known_to_have(described):
    found = load(described("topograph-example.out"))
    fabric = found.fabric
    assert len(fabric.switches) == 40
    assert len(fabric.leaves) == 31
    assert len(fabric.nics) == 542
    per_node = Counter(nic.node for nic in fabric.nics if nic.node)
    assert Counter(per_node.values())[4] == 109
    assert fabric.pairs_by_hops() == {2: 8_954, 4: 284_268}
    assert Counter(fabric.tier.values()) == {1: 31, 2: 9}
    assert "unreadable" not in kinds(found.findings)


@pytest.mark.twin("test_exchanged_cables_are_named_with_both_ends_and_those_of_a_node_beside")
def test_the_exchanged_cables_of_the_real_fabric_are_named_and_its_missing_leaf(described):
    """Seen by eye: HCA-5 and HCA-6 of one node, and ten nodes whose leaf of rail 4 did not answer.

    A manager and another machine with two NICs hang on leaves of other rails, and are meant to.
    """
    exchanged, missing = audit(load(described("topograph-example.out")).fabric)
    assert exchanged.judgement is Judgement.DEFECTIVE
    assert exchanged.reason == (
        "b08-p1-dgx-08-c01: HCA-5 on B09-P1-IBLEAF-04-08[1], HCA-6 on B09-P1-IBLEAF-03-08[1]: "
        "exchanged, 13 nodes beside it have them the other way round"
    )
    assert (missing.subject, missing.judgement) == ("rail 4 of 10 nodes", Judgement.UNKNOWN)
    assert {part.name[:12] for part in missing.parts} == {"a05-p1-dgx-0"}


@pytest.mark.twin("test_fabrics_as_they_should_be_have_nothing_odd")
@pytest.mark.parametrize(
    "name",
    [
        *(f"ibtopotool-{number}.topo" for number in (1, 2, 3, 4)),
        "ib_traffic_topo_aware_ibnetdiscover.txt",
        "lingjun-topo.csv",
    ],
)
def test_audits_of_other_real_fabrics_report_no_wrong_cable(described, name):
    assert audit(load(described(name)).fabric) == ()


@pytest.mark.twin("test_each_distance_has_one_round_with_as_many_pairs_as_there_can_be")
def test_a_quick_scan_of_the_real_fabric_leaves_out_only_nodes_without_a_partner(described):
    fabric = load(described("topograph-example.out")).fabric
    rounds = quick_rounds(fabric, fabric.nodes)
    assert {each.hops for each in rounds} == {2, 4}
    for each in rounds:
        for rail in each.rails:
            leaves = Counter(nic.switch for nic in fabric.nics if nic.node and nic.rail == rail)
            total = sum(leaves.values())
            if each.hops == 2:
                assert len(each.pairs) == sum(count // 2 for count in leaves.values())
            else:
                assert len(each.pairs) == min(total // 2, total - max(leaves.values()))
    more = list(covering_rounds(fabric, fabric.nodes, rounds))
    found = coverage(fabric, [*rounds, *more])
    assert not found.untested_links
    assert not found.unsure_links
    assert not found.untested_switches


@pytest.mark.twin("test_each_distance_has_one_round_with_as_many_pairs_as_there_can_be")
def test_the_pairs_of_another_tool_are_reached_and_bettered(described, real):
    """Five pairs at 2, four at 4 and four at 6 hops there; at 4 hops there can be five."""
    owners, _ = ibnetdiscover.parse_mapping(
        described("ib_traffic_topo_aware_ibstat.txt").read_text()
    )
    found = parse(described("ib_traffic_topo_aware_ibnetdiscover.txt").read_text(), "it", owners)
    hosts = described("ib_traffic_topo_aware_hostfile").read_text().split()
    theirs = [
        [[hosts[int(i)] for i in pair.split(",")] for pair in line.split(";")]
        for line in described("ib_traffic_topo_aware_expected_config").read_text().split()
    ]
    patterns = real("superbench/logs/mpi_pattern.txt").read_text()
    recorded = patterns.split("pattern_type: topo-aware\n")[1]
    assert [";".join(map(",".join, pairs)) for pairs in theirs] == recorded.split()
    (rail,) = found.fabric.rails
    nics = {host: found.fabric.nic(host, rail) for host in hosts}
    for hops, pairs in zip((2, 4, 6), theirs, strict=True):
        assert {found.fabric.hops(nics[a], nics[b]) for a, b in pairs} == {hops}
    ours = quick_rounds(found.fabric, hosts)
    assert [len(pairs) for pairs in theirs] == [5, 4, 4]
    assert [(each.hops, len(each.pairs)) for each in ours] == [(2, 5), (4, 5), (6, 4)]
    assert {frozenset(pair) for pair in ours[0].pairs} == {frozenset(pair) for pair in theirs[0]}


@pytest.mark.twin("test_the_ports_of_one_hca_stay_apart")
@pytest.mark.parametrize(
    ("name", "switches", "nics", "pairs"),
    [
        ("ibtopotool-1.topo", 2, 5, {2: 8, 3: 12}),
        ("ibtopotool-2.topo", 1, 2, {2: 2}),
        ("ibtopotool-3.topo", 2, 6, {2: 14, 3: 16}),
        ("ibtopotool-4.topo", 1, 1, {}),
    ],
)
def test_small_fabrics_of_old_hardware(described, name, switches, nics, pairs):
    fabric = load(described(name)).fabric
    assert (len(fabric.switches), len(fabric.nics)) == (switches, nics)
    assert fabric.pairs_by_hops() == pairs


# --- written by hand, tables -----------------------------------------------------------------


def test_the_example_is_two_pods_of_which_one_is_rail_optimised():
    found = load(ROOT / "configs" / "topologies" / "example.yaml")
    assert found.findings == ()
    fabric = found.fabric
    assert len(fabric.nodes) == 64
    assert fabric.rails == ("0", "1", "4", "5")
    assert len({fabric.nic("node01", rail).switch for rail in fabric.rails}) == 4
    assert len({fabric.nic("node33", rail).switch for rail in fabric.rails}) == 1
    assert fabric.hops(fabric.nic("node01", "0"), fabric.nic("node02", "0")) == 2
    assert fabric.hops(fabric.nic("node01", "0"), fabric.nic("node02", "1")) == 4
    assert fabric.hops(fabric.nic("node01", "0"), fabric.nic("node64", "0")) == 6


YAML = """\
racks:
  - {nodes: "n[1-2]", leaves: l1}
  - {nodes: "n[3-4]", leaves: l2}
links:
  - {below: "l[1-2]", above: s1, cables: 2}
"""


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("n[3-4]", "n[2-3]", "node-twice"),
        ('"l[1-2]"', '"l[1-3]"', "unknown-switch"),
        ('"l[1-2]"', "l1", "no-uplink"),
        ("above: s1", "above: l2", "loop"),
    ],
)
def test_a_slip_in_a_written_fabric_is_named(old, new, kind):
    assert parse(YAML, "it").findings == ()
    found = parse(YAML.replace(old, new), "it")
    assert set(kinds(found.findings)) == {kind}
    assert {"n1", "n2"} <= set(found.fabric.nodes)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cables", "cabels", 'did you mean "cables"'),
        ("cables: 2", "cables: 0", "at least 1"),
        ("cables: 2", "cables: 999999999", "1,999,999,998 cables, expected at most 1,000,000"),
        ("cables: 2", "gbit_s: 0", "gbit_s is 0, expected more than 0"),
        ("links:", "gbit_s: -4\nlinks:", "gbit_s is -4, expected more than 0"),
        ("n[1-2]", "n[1-", "brackets"),
        ("leaves: l1", "leaves: 'l[1-2]'", "one leaf for all"),
        ("racks:", "racks: [", "not valid YAML"),
        ('nodes: "n[1-2]", ', "", '"nodes" is missing'),
    ],
)
def test_a_written_fabric_that_cannot_be_meant_is_refused_in_one_sentence(old, new, words):
    with pytest.raises(TopologyError, match=words):
        parse(YAML.replace(old, new), "it")


@pytest.mark.parametrize(
    "table",
    [
        "host,switch\nn1,l1\nn2,l1\nn3,l2\n",
        "n1,l1\nn2,l1\nn3,l2\n",
        "Switch;Node\nl1;n1\nl1;n2\nl2;n3\n",
        "n1\tl1\nn2\tl1\nn3\tl2\n",
        "# by hand\nn1 l1\nn2  l1\n\nn3 l2 # new\n",
        '"host","switch"\r\n"n1","l1"\r\n"n2","l1"\r\n"n3","l2"\r\n',
    ],
)
def test_a_table_of_host_and_switch(table, tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(table.encode())
    found = load(file)
    assert under(found.fabric) == {"l1": ["n1", "n2"], "l2": ["n3"]}
    assert found.findings == ()


def test_the_columns_of_upper_tiers_make_links():
    fabric = parse("core,spine,leaf,host\nc,s1,l1,a\nc,s1,l2,b\nc,s2,l3,d\n", "it").fabric
    assert fabric.tier == {"l1": 1, "s1": 2, "c": 3, "l2": 1, "l3": 1, "s2": 2}
    assert fabric.pairs_by_hops() == {4: 2, 6: 4}


def test_a_column_names_the_nics_of_a_host_or_else_they_are_numbered():
    apart = parse("host,switch,nic\nn1,l1,eth0\nn1,l2,eth1\nn2,l1,eth0\nn2,l2,eth1\n", "it")
    assert apart.fabric.rails == ("eth0", "eth1")
    numbered = parse("n1,l1\nn1,l2\nn2,l1\nn2,l2\n", "it")
    assert numbered.fabric.rails == ("nic1", "nic2")
    assert kinds(numbered.findings) == {"numbered": 1}


def test_an_odd_line_of_a_table_is_named_and_the_others_count():
    found = parse("host,switch,mood\nn1,l1,good\nn2\nn3,,bad\nn1,l1,good\n", "it")
    assert [(finding.kind, finding.line) for finding in found.findings] == [
        ("column", 1),
        ("numbered", 0),
        ("unreadable", 3),
        ("unreadable", 4),
    ]
    assert found.fabric.nodes == ("n1",)


@pytest.mark.twin("test_a_table_of_host_and_switch")
def test_a_real_table_of_an_ethernet_fabric(described):
    found = load(described("lingjun-topo.csv"))
    rows = described("lingjun-topo.csv").read_text().split()[1:]
    size = Counter(row.split(",")[3] for row in rows)
    fabric = found.fabric
    assert len(fabric.nodes) == 847
    assert len(fabric.leaves) == 48
    assert fabric.pairs_by_hops()[2] == sum(count * (count - 1) for count in size.values())
    assert found.findings == ()


# --- LLDP ------------------------------------------------------------------------------------


def neighbour(name: str, port: str, *enabled: str, known: bool = True) -> dict[str, object]:
    """A neighbour as lldpctl -f json writes it (1.0.16)."""
    about = {
        "id": {"type": "mac", "value": "00:00:00:00:00:02"},
        "capability": [
            {"type": kind, "enabled": kind in enabled}
            for kind in ("Bridge", "Router", "Wlan", "Station")
        ],
    }
    return {
        "via": "LLDP",
        "rid": "1",
        "age": "0 day, 00:00:10",
        "chassis": {name: about} if known else {**about, "id": {"type": "mac", "value": name}},
        "port": {"id": {"type": "ifname", "value": port}, "ttl": "120"},
    }


def host(**interfaces: dict[str, object]) -> dict[str, object]:
    """A host: one interface is a table, several are a list of tables."""
    tables = [{name: seen} for name, seen in interfaces.items()]
    return {"lldp": {"interface": tables[0] if len(tables) == 1 else tables}}


def test_lldp_of_hosts_and_switches_gives_one_fabric():
    gathered = {
        "n1": host(
            eth0=neighbour("tor1", "Ethernet1", "Bridge", "Router"),
            eth1=neighbour("tor2", "Ethernet1", "Bridge"),
        ),
        "n2": host(eth0=neighbour("tor1", "Ethernet2", "Bridge")),
        "tor1": host(
            Ethernet1=neighbour("n1", "eth0", "Station"),
            Ethernet31=neighbour("spine1", "Ethernet7", "Bridge"),
            Ethernet32=neighbour("spine1", "Ethernet8", "Bridge"),
        ),
        "spine1": host(Ethernet7=neighbour("tor1", "Ethernet31", "Bridge")),
    }
    found = parse(json.dumps(gathered), "it")
    fabric = found.fabric
    assert under(fabric) == {"tor1": ["n1", "n2"], "tor2": ["n1"]}
    assert fabric.rails == ("eth0", "eth1")
    (link,) = fabric.links
    ports = {(cable.port_a, cable.port_b) for cable in link.cables}
    assert (link.a, link.b, ports) == (
        "spine1",
        "tor1",
        {("Ethernet7", "Ethernet31"), ("Ethernet8", "Ethernet32")},
    )
    lines = "\n".join(json.dumps({"host": name, **seen}) for name, seen in gathered.items())
    assert parse(lines, "it") == found
    assert [str(finding) for finding in found.findings] == [
        "n2[eth0] is cabled to tor1[Ethernet2], which does not list it",
        "tor1[Ethernet32] is cabled to spine1[Ethernet8], which does not list it",
    ]


def test_a_port_that_sees_another_neighbour_than_is_seen_from_there_is_a_contradiction():
    gathered = {
        "n1": host(eth0=neighbour("tor1", "Ethernet1", "Bridge")),
        "n2": host(eth0=neighbour("tor1", "Ethernet2", "Bridge")),
        "n3": host(eth0=neighbour("tor1", "Ethernet3", "Bridge")),
        "tor1": host(
            Ethernet1=neighbour("n1.example.com", "eth0", "Station"),
            Ethernet2=neighbour("n3", "eth0", "Station"),
            Ethernet3=neighbour("02:00:00:00:00:03", "eth0", "Station"),  # an unknown name
        ),
    }
    (finding,) = parse(json.dumps(gathered), "it").findings
    assert finding.kind == "contradiction"
    assert finding.sentence == "n2[eth0] is cabled to tor1[Ethernet2], which names n3"


def test_odd_records_of_lldp_are_findings():
    lines = [
        {"host": "n1", **host(eth0=neighbour("tor1", "1", "Bridge"))},
        {"host": "n2", **host(eth0=neighbour("docker-host", "1", "Station", "Router"))},
        {"host": "n3", "lldp": {}},
        {"host": "n4", "lldp": 7},
        {"host": "n5", **host(eth0={"via": "LLDP"})},
        {
            "host": "n6",
            "lldp": {
                "interface": [
                    {"eth0": neighbour("tor1", "6", "Bridge")},
                    {"eth0": neighbour("tor2", "6", "Bridge")},
                ]
            },
        },
        {"host": "n7", **host(eth0=neighbour("52:54:00:00:00:01", "9", "Bridge", known=False))},
    ]
    text_ = "\n".join([*map(json.dumps, lines), "{cut off"])
    found = parse(text_, "it")
    assert kinds(found.findings) == {
        "no-switch": 1,
        "no-neighbour": 1,
        "unreadable": 3,
        "two-neighbours": 1,
    }
    assert under(found.fabric) == {"tor1": ["n1", "n6"], "52:54:00:00:00:01": ["n7"]}


CABLES = [
    *(
        (f"gpu{leaf}{node}", f"eth{rail}", f"leaf{leaf}", f"swp{2 * node + rail + 1}")
        for leaf in range(2)
        for node in range(2)
        for rail in range(2)
    ),
    *((f"leaf{leaf}", f"swp{9 + leaf}", "spine", f"swp{leaf + 1}") for leaf in range(2)),
]
OUT_OF_BAND = [(name, "mgmt0", "oob", f"Gi0/{name}") for name in ("leaf0", "leaf1", "spine")]
OF_HOSTS = [(f"gpu{leaf}0", "eno1", "oob", f"Gi0/gpu{leaf}") for leaf in range(2)]


def write_lldp(cables, *, called=str, chassis=str, described=None, anonymous=(), silent=()) -> str:
    """Write what both ends of cables see. `called`: a machine by its neighbours, `chassis`: by
    itself. `described`: a port whose id is an address. `anonymous`: a machine and the neighbour
    that sees no name of it. `silent`: the beginnings of names of machines without capabilities."""
    seen: dict[str, dict[str, object]] = {}
    for a, port_a, b, port_b in [*cables, *((b, pb, a, pa) for a, pa, b, pb in cables)]:
        kind = "Station" if b.startswith("gpu") else "Bridge"
        by_address = {"id": {"type": "mac", "value": f"{b}:{port_b}"}, "descr": described}
        plain = {"id": {"type": "ifname", "value": port_b}}
        about = {
            "id": {"type": "mac", "value": f"02:{b}"},
            **({} if b.startswith(silent) else {"capability": {"type": kind, "enabled": True}}),
        }
        speed = "1000BaseTFD" if "oob" in (a, b) else "400GbaseDR4"
        seen.setdefault(chassis(a), {})[port_a] = {
            "chassis": about if (b, a) in anonymous else {called(b): about},
            "port": (by_address if described else plain) | {"auto-negotiation": {"current": speed}},
        }
    return json.dumps({name: host(**ports) for name, ports in seen.items() if name != "oob"})


def with_domain(name: str) -> str:
    return f"{name}.dc1.example.com"


@pytest.mark.parametrize(
    "odd",
    [
        {"called": with_domain},
        {"chassis": with_domain},
        {"called": str.upper},
        {"described": "swp1"},
        {"anonymous": [("leaf0", "gpu00"), ("leaf0", "gpu01")]},
        {"anonymous": [(b, a) for a, _, b, _ in CABLES] + [("leaf0", "spine")]},
        {"silent": "gpu"},
        {"silent": ("leaf", "spine")},
        {"cables": CABLES + OUT_OF_BAND},
        {"cables": CABLES + OUT_OF_BAND + OF_HOSTS},
        {"cables": CABLES + OF_HOSTS},
    ],
    ids=lambda odd: str(next(iter(odd))) if len(odd) == 1 else None,
)
def test_names_capabilities_descriptions_and_management_do_not_change_the_fabric(odd):
    """The fabric of the same cables, whatever its machines and ports are called."""
    found = parse(write_lldp(**{"cables": CABLES, **odd}), "it")
    fabric = found.fabric
    names = {switch.id: plain_name(switch.name) for switch in fabric.switches}
    nics = {(plain_name(nic.node), nic.device, names[nic.switch], nic.port) for nic in fabric.nics}
    links = {
        frozenset(((names[link.a], cable.port_a), (names[link.b], cable.port_b)))
        for link in fabric.links
        for cable in link.cables
    }
    assert nics == {cable for cable in CABLES if cable[0].startswith("gpu")}
    assert links == {
        frozenset(((a, port_a), (b, port_b)))
        for a, port_a, b, port_b in CABLES
        if a.startswith("leaf")
    }
    assert kinds(found.findings) == ({"management": 1} if "cables" in odd else {})
    assert {nic.gbit_s for nic in fabric.nics} == {400.0}


def test_two_machines_that_differ_by_their_domain_stay_two():
    text_ = write_lldp([*CABLES, ("gpu00.dc2", "eth0", "leaf0", "swp7")])
    assert "gpu00.dc2" in parse(text_, "it").fabric.nodes


def test_a_folder_with_a_file_per_host(tmp_path):
    for name in ("n1", "n2"):
        seen = host(eth0=neighbour("tor1", name, "Bridge"))
        (tmp_path / f"{name}.json").write_text(json.dumps(seen))
    (tmp_path / "n3.json").write_text("{")
    found = load(tmp_path)
    assert found.fabric.nodes == ("n1", "n2")
    assert kinds(found.findings) == {"unreadable": 1}


def test_lldp_of_an_unnamed_host_is_refused():
    with pytest.raises(TopologyError, match="which it does not name"):
        parse(json.dumps(host(eth0=neighbour("tor1", "1", "Bridge"))), "it")


# --- Slurm and Kubernetes --------------------------------------------------------------------

CONF = """\
# a tree of Slurm's own manual's kind
SwitchName=s0 Nodes=tux[0-5]
switchname=s1 nodes=tux[6-11] LinkSpeed=100
SwitchName=s2 Nodes=tux[12-17]
SwitchName=s3 Switches=s[0-1]
SwitchName=s4 \\
    Switches=s[2-3] Nodes=login1   # a node on an upper tier
"""


def test_slurms_tree():
    found = parse(CONF, "it")
    fabric = found.fabric
    assert found.findings == ()
    assert fabric.is_outline
    assert under(fabric)["s0"] == [f"tux{i}" for i in range(6)]
    assert fabric.tier == {"s0": 1, "s1": 1, "s2": 1, "s3": 2, "s4": 3}

    def hops(a: str, b: str) -> int | None:
        return fabric.hops(fabric.nic(a, ""), fabric.nic(b, ""))

    assert hops("tux0", "tux1") == 2
    assert hops("tux0", "tux6") == 4
    assert hops("tux0", "tux12") == 5  # s0 - s3 - s4 - s2
    assert hops("tux0", "login1") == 4  # s0 - s3 - s4


@pytest.mark.parametrize(
    ("added", "kind", "line"),
    [
        ("SwitchName=s5 Switches=s[7-9]", "unknown-switch", 8),
        ("SwitchName=s5 Nodes=tux3", "node-twice", 8),
        ("SwitchName=s5 Nodes=tux[3-", "unreadable", 8),
        ("SwitchName=s5 Node=tux99", "unknown-key", 8),
        ("SwitchName=s0 Nodes=tux99", "twice", 8),
        ("Include other.conf", "unreadable", 8),
        ("SwitchName=s0 Switches=s4", "circle", 0),
    ],
)
def test_an_odd_line_of_slurms_topology_is_named_with_its_number(added, kind, line):
    found = parse(f"{CONF}{added}\n", "it")
    assert (kind, line) in {(finding.kind, finding.line) for finding in found.findings}
    assert "tux0" in found.fabric.nodes


def test_a_slip_repeated_in_slurms_file_is_reported_once():
    lines = [f"SwitchName=l{n} Node=n{n} Nodes=m{n}" for n in range(50)]
    found = parse("\n".join([*lines, "SwitchName=s Switches=l[0-49]"]), "it")
    (slip,) = found.findings
    assert (slip.kind, slip.line) == ("unknown-key", 1)


def test_slurms_blocks_are_leaves_with_unknown_links_above():
    found = parse("BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n", "it")
    assert kinds(found.findings) == {"blocks": 1}
    assert found.fabric.pairs_by_hops() == {2: 24, 4: 32}


TREE = """\
- topology: other
  flat: true
- topology: main
  cluster_default: true
  tree:
    switches:
      - {switch: s0, nodes: "tux[0-5]"}
      - {switch: s1, nodes: "tux[6-11]"}
      - {switch: s2, nodes: "tux[12-17]"}
      - {switch: s3, children: "s[0-1]"}
      - {switch: s4, children: "s[2-3]", nodes: login1}
"""


def test_slurms_yaml_says_the_same_as_its_tree():
    found = parse(TREE, "it")
    assert found.fabric == parse(CONF, "it").fabric
    assert kinds(found.findings) == {"others": 1}
    with pytest.raises(TopologyError, match="names no switches"):
        parse("- topology: a\n  flat: true\n", "it")


def labelled(**labels: dict[str, str]) -> str:
    items = [{"metadata": {"name": name, "labels": own}} for name, own in labels.items()]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_labels_of_kubernetes_nodes():
    base = "network.topology.nvidia.com"
    found = parse(
        labelled(
            a={f"{base}/leaf": "l1", f"{base}/spine": "s1", f"{base}/core": "c"},
            b={f"{base}/leaf": "l1", f"{base}/spine": "s1", f"{base}/core": "c"},
            c={f"{base}/leaf": "l2", f"{base}/spine": "s2", f"{base}/core": "c"},
            d={"kubernetes.io/hostname": "d"},
        ),
        "it",
    )
    assert found.fabric.is_outline
    assert under(found.fabric) == {"l1": ["a", "b"], "l2": ["c"]}
    assert found.fabric.pairs_by_hops() == {2: 2, 6: 4}
    assert kinds(found.findings) == {"no-label": 1}


def test_a_cloud_that_counts_layers_from_above_and_a_node_on_an_upper_one():
    layer = "topology.k8s.aws/network-node-layer-"
    found = parse(
        labelled(
            a={f"{layer}1": "nn-1", f"{layer}2": "nn-2", f"{layer}3": "nn-3", f"{layer}4": "nn-4"},
            b={f"{layer}1": "nn-1", f"{layer}2": "nn-2", f"{layer}3": "nn-3"},
        ),
        "it",
    )
    assert under(found.fabric) == {"nn-4": ["a"], "nn-3": ["b"]}
    assert found.fabric.pairs_by_hops() == {3: 2}


def test_one_word_at_two_tiers_is_two_switches():
    base = "network.topology.nvidia.com"
    found = parse(labelled(a={f"{base}/leaf": "x", f"{base}/spine": "x"}), "it")
    assert {switch.id for switch in found.fabric.switches} == {"x (leaf)", "x (spine)"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("hello to the world of tables\n", "no fabric could be read"),
        ("| a | b |\n|---|---|\n", "no fabric could be read"),
        ("{ SW Ports:65 SystemGUID:b8599f03 } { CA Ports:01 } PHY=4x", "no fabric could be read"),
        ('[{"source_guid": "b8599f03", "destination_port": "1"}]', "no fabric could be read"),
        ("MQM9700 l1\n P1 -4x-> HCA_1 n1 P1\n P2 -4x-> HCA_1 n2 P1\n", "no fabric could be read"),
        ("\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n", "inside of one node"),
        ("[]", "holds no topology"),
        ("[1, 2", "not valid JSON: line 1: .*cut off"),
        ("[" * 100_000, "not valid JSON: .*too deep"),
        ('{"items": [' + "\n" + '{"metadata"', "not valid JSON: line 2: .*cut off"),
        ('{"items": [{"metadata": {"name": "a"}}]}', "no node has a label of a switch"),
        ('{"items": 7}', "expected what kubectl"),
        ('{"racks": 7}', '"racks": expected a list'),
    ],
)
def test_a_document_without_a_fabric_is_refused_in_one_sentence(document, words):
    with pytest.raises(TopologyError, match=words) as caught:
        parse(document, '"it"')
    assert "\n" not in str(caught.value)


OF_EACH_KIND = {
    "ibnetdiscover": EXCERPT,
    "yaml": YAML,
    "table": "host,switch\nn1,l1\nn2,l1\nn3,l2\n",
    "lldp": json.dumps(
        {f"n{i}": host(eth0=neighbour("tor1", f"e{i}", "Bridge")) for i in range(2)}, indent=1
    ),
    "slurm": CONF,
    "slurm's yaml": TREE,
    "kubernetes": labelled(
        a={"network.topology.nvidia.com/leaf": "l1"}, b={"network.topology.nvidia.com/leaf": "l2"}
    ).replace("},", "},\n"),
}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_cut_off_after_any_line_a_file_is_read_so_far_or_refused_in_one_sentence(kind):
    text_ = OF_EACH_KIND[kind]
    whole = set(parse(text_, "it").fabric.nodes)
    lines = text_.splitlines(keepends=True)
    for end in range(len(lines)):
        try:
            found = parse("".join(lines[:end]), "it")
        except TopologyError as error:
            sentences = [str(error)]
        else:
            assert set(found.fabric.nodes) <= whole
            sentences = list(text(Inspection(fabric=found.fabric), found.findings))
        assert not any("\n" in sentence for sentence in sentences)


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_every_kind_reads_alike_in_every_encoding_of_unicode(kind, tmp_path):
    file = tmp_path / "fabric"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        file.write_bytes(OF_EACH_KIND[kind].encode(encoding))
        assert load(file) == parse(OF_EACH_KIND[kind], "it"), encoding


def test_a_name_in_another_encoding_is_named_with_its_line_and_the_others_count(tmp_path):
    file = tmp_path / "fabric"
    file.write_bytes("host,switch\nn1,l1\nn\xf6rd,l1\n".encode("latin-1"))
    found = load(file)
    assert {finding.line for finding in found.findings} == {3}
    assert "encoding" in kinds(found.findings)
    assert "n1" in found.fabric.nodes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", "is empty"),
        ("zeros", "is empty"),
        ("binary", "no fabric could be read"),
        ("folder", "no file <host>.json"),
        ("loop", "cannot read .*symbolic links"),
        ("empty/below", "cannot read .*Not a directory"),
    ],
)
def test_a_file_that_is_no_text_is_refused_in_one_sentence(name, words, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "zeros").write_bytes(bytes(1000))
    (tmp_path / "binary").write_bytes(Path(sys.executable).read_bytes()[:20_000])
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(TopologyError, match=words) as caught:
        load(tmp_path / name)
    assert "\n" not in str(caught.value)


PIECES = st.sampled_from(
    [
        *EXCERPT.split("\n"),
        *CONF.split("\n"),
        *YAML.split("\n"),
        "host,switch",
        "n1,l1",
        '{"host": "n1", "lldp": {"interface": {"eth0": {"chassis": 7}}}}',
        '{"host": 7, "lldp": {"interface": [7]}}',
        "- topology: x",
        "items:",
    ]
)
WORDS = """lldp interface chassis id value capability port host items metadata name labels
    racks links topology tree switches nodes"""
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(WORDS.split()),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=40).map("\n".join),
        JSON.map(json.dumps),
        st.lists(JSON.map(json.dumps), max_size=3).map("\n".join),
        st.dictionaries(st.text(max_size=3), JSON, max_size=3).map(json.dumps),
    )
)
def test_no_content_of_a_file_breaks_the_readers(content):
    try:
        found = parse(content, "it")
    except TopologyError:
        return
    list(text(Inspection(fabric=found.fabric), found.findings))
    quick_rounds(found.fabric, found.fabric.nodes)


@given(st.binary(max_size=200))
def test_nothing_that_bytes_may_be_breaks_the_decoder(content):
    decode(content)


# --- the verb --------------------------------------------------------------------------------


def test_a_small_fabric_is_drawn_node_by_node(near):
    file = near.write("fabric.yaml", YAML)
    done = near.run("scan", "--draw", "--topology", str(file))
    assert done.code == 0
    assert done.out.split("\n\n")[1].split("\n") == [
        "1 switch s1: 4 nodes below",
        "├─ l1: 2 nodes (n[1-2]), 2 uplinks",
        "└─ l2: 2 nodes (n[3-4]), 2 uplinks",
    ]
    assert "2       4\n4       8\n" in done.out


@pytest.mark.long
def test_four_thousand_nodes_fit_on_a_screen():
    fabric = FatTree(nodes=4000, rails=8, spines=8).fabric()
    lines = list(text(Inspection(fabric=fabric), ()))
    assert len(lines) < 40
    assert max(map(len, lines)) < 120
    assert lines[0] == "no defect in the cabling; nothing was measured"
    assert lines[1] == "1,080 switches in 3 tiers, 32,000 NICs of 4,000 nodes on 8 rails"
    assert "│  ├─ 16 x leaf-0-[0-15]: 32 nodes each" in "\n".join(lines)
    assert {sign for line in lines for sign in line if not sign.isascii()} <= set(IN_ASCII)


@pytest.mark.twin("test_four_thousand_nodes_fit_on_a_screen")
def test_the_real_fabric_fits_on_a_screen_with_its_findings(described):
    found = load(described("topograph-example.out"))
    lines = list(text(Inspection(fabric=found.fabric), found.findings))
    assert len(lines) < 40
    assert lines[0].startswith("defective: too few uplinks at 12 switches, wrongly cabled: NICs")
    assert any("rail 5" in line and line.startswith("└─ 8 x") for line in lines)
    assert sum("names no host" in line for line in lines) == 3
    assert any("and 69 more like these" in line for line in lines)


def test_nodes_that_the_fabric_does_not_know_are_named_and_the_answer_is_no_success(near):
    file = near.write("fabric.yaml", YAML)
    done = near.run("scan", "--draw", "--topology", str(file), "n[2-6]")
    assert done.code == 2
    assert done.out.startswith("unknown: n[5-6] not in the fabric\n")
    assert "in the fabric and not asked for: n1" in done.out
    assert near.run("scan", "--draw", "--topology", str(file), "n[1-4]").code == 0


EXCHANGED = """\
rails: [mlx5_0, mlx5_1]
racks:
  - {nodes: "n[1-3]", leaves: "l[1-2]"}
  - {nodes: n4, leaves: "l2,l1"}
links: [{below: "l[1-2]", above: s1}]
"""


def test_exchanged_cables_are_a_defect_in_every_verb_with_a_topology(near):
    file = str(near.write("fabric.yaml", EXCHANGED))
    cluster = near.fleet(nodes="n[1-4]")
    sentence = "n4: mlx5_0 on l2, mlx5_1 on l1: exchanged, 3 nodes beside it"
    page = near.folder / "it.html"
    shown = near.run("scan", "--draw", "--topology", file, "--html", str(page))
    assert (shown.code, sentence in shown.out) == (1, True)
    first = "defective: wrongly cabled: NICs mlx5_0 and mlx5_1 of n4"
    assert shown.out.splitlines()[0] == first
    assert f"<h1>{first}</h1>" in page.read_text()
    summary = near.run("scan", "--draw", "--topology", file, "--json").summary
    assert (summary["judgement"], summary["headline"]) == ("defective", first)
    for verb in ("accept", "scan"):
        done = near.run(verb, "--topology", file, "--cluster", cluster, "--json")
        parts = [line for line in done.lines if line["type"] == "part"]
        (part,) = [part for part in parts if part["verdict"] == "defective"]
        assert part["code"] == "WIRING.EXCHANGED", verb
        assert part["reason"].startswith(sentence)
        assert (done.code, done.summary["defective"]) == (1, ["n4"]), verb


def test_json_has_every_switch_link_nic_and_finding(near):
    file = near.write("fabric.yaml", YAML.replace("n[3-4]", "n[2-3]"))
    done = near.run("scan", "--draw", "--topology", str(file), "--json", "n[1-4]")
    assert Counter(line["type"] for line in done.lines) == {
        "switch": 3, "link": 2, "nic": 3, "finding": 1, "topology": 1,
    }  # fmt: skip
    assert done.summary["ordered_pairs"] == {"2": 2, "4": 4}
    assert done.summary["unplaced"] == ["n4"]
    assert done.summary["source"] == f'"{file}"'
    assert done.summary["as_of"] == pytest.approx(file.stat().st_mtime)


def test_a_planned_scan_names_the_uplinks_that_are_not_there_to_be_crossed(near):
    fabric = """\
racks: [{nodes: "n[1-2]", leaves: l1}, {nodes: "n[3-4]", leaves: l2}, {nodes: "n[5-6]", leaves: l3}]
links: [{below: "l[1-2]", above: "s[1-2]"}, {below: l3, above: s1}]
"""
    file = str(near.write("fabric.yaml", fabric))
    cluster = near.fleet(nodes="n[1-6]")
    planned = near.run("scan", "--dry-run", "--topology", file, "--cluster", cluster)
    assert "lack and their sisters have: l3 - s2 (1 cable)" in planned.out


def test_a_file_that_is_not_there_and_one_that_is_no_fabric_are_one_line(near):
    for name, words in (("gone.yaml", "there is no file"), ("exmaple", 'did you mean "example"')):
        done = near.run("scan", "--draw", "--topology", name)
        assert done.code == 64
        assert words in done.err
        assert done.err.count("\n") == 1


# --- the fabric itself -----------------------------------------------------------------------


def test_a_tool_that_crashes_is_asked_once_more_and_then_said_to_have_crashed(tmp_path):
    for crashes in (1, 2):
        asked = tmp_path / f"asked-{crashes}"
        script = f"echo >> {asked}; test $(wc -l < {asked}) -gt {crashes} || kill -SEGV $$; echo ok"
        output = ask(("sh", "-c", script), "--topology")
        assert output.out == (b"ok\n" if crashes == 1 else b"")
    assert '"sh" was killed by SIGSEGV' in str(output.refusal(("sh",), "--topology"))


def test_without_the_tool_the_fabric_cannot_be_asked():
    with pytest.raises(TopologyError, match="install infiniband-diags"):
        fabric_sources.live(command=("no-such-ibnetdiscover",))
    with pytest.raises(TopologyError, match="ended with code 1: broken; run it as root"):
        fabric_sources.live(command=("sh", "-c", "echo broken >&2; exit 1"))


def test_a_node_may_have_more_nics_of_one_name_than_numbers_expected():
    draft = Draft()
    for _ in range(1100):
        draft.nic(node="n1", device="mlx5_0", switch="leaf1")
    draft.nic(node="n1", device="0/2000", switch="leaf1")
    survey = draft.survey()
    assert len({nic.rail for nic in survey.fabric.nics}) == 1101
