"""Error counters of a fabric: what ibqueryerrors really says, and a simulated fabric asked live."""

from __future__ import annotations

import re

import pytest

from anubis.config import configs
from anubis.core.errors import AnubisError, TopologyError
from anubis.core.fabric import Part
from anubis.core.network.counters import exceeded_limit
from anubis.core.network.inspection import Inspection
from anubis.core.records import Count
from anubis.operations.topology import count_errors
from anubis.readers.topology import fabric_sources, infiniband_counters
from anubis.readers.topology.infiniband_counters import compare, parse
from tests.core.made_fabrics import FatTree
from tests.edges.desk import Desk, Done
from tests.edges.ibsim import Simulator
from tests.edges.test_topology import EXCERPT, under

pytestmark = pytest.mark.long

# Cut from what `ibqueryerrors -r --data` of infiniband-diags 44 says of a simulated fabric.
SAID = """\
Errors for "node00100 mlx5_0"
   GUID 0x1000c7 port 1: [SymbolErrorCounter == 65535] [PortXmitData == 3600 (14.062KB)] [PortRcvData == 3672 (14.344KB)] [PortXmitPkts == 50 (50.000)] [PortRcvPkts == 51 (51.000)]
       Link info:    437   1[  ] ==( 4X           2.5 Gbps Active/  LinkUp)==>  0x0000000000200006     19    4[  ] "leaf-0-6" (Could be 12X Could be 10.0 Gbps)
Errors for 0x200005 "leaf-0-5"
   GUID 0x200005 port ALL: [SymbolErrorCounter == 1523] [LinkDownedCounter == 3] [PortXmitDiscards == 51] [PortXmitData == 3456 (13.500KB)] [PortRcvData == 3456 (13.500KB)] [PortXmitPkts == 48 (48.000)] [PortRcvPkts == 48 (48.000)]
   GUID 0x200005 port 7: [SymbolErrorCounter == 1523] [PortXmitData == 3240 (12.656KB)] [PortRcvData == 3240 (12.656KB)] [PortXmitPkts == 45 (45.000)] [PortRcvPkts == 45 (45.000)]
       Link info:     15   7[  ] ==( 4X           2.5 Gbps Active/  LinkUp)==>  0x00000000001000ad    385    1[  ] "node00087 mlx5_0" (Could be 12X Could be 10.0 Gbps)
   GUID 0x200005 port 18: [LinkDownedCounter == 3] [VL15Dropped == 2] [PortXmitWait == 812] [PortXmitData == 288 (1.125KB)] [PortRcvData == 288 (1.125KB)] [PortXmitPkts == 4 (4.000)] [PortRcvPkts == 4 (4.000)]
       Link info:     15  18[  ] ==(                Down/ Polling)==>             [  ] "" ( )

## Summary: 552 nodes checked, 2 bad nodes found
##          2048 ports checked, 3 ports have errors beyond threshold
## Thresholds: 
## Suppressed:
"""  # noqa: E501, W291
# What it adds on stderr of ports that do not answer.
FAILED = """\
ibwarn: [9400] mad_rpc: _do_madrpc failed; dport (Lid 15)
ibwarn: [9400] print_errors: IB_GSI_PORT_COUNTERS query failed on leaf-0-7, Lid 15 port 18
ibwarn: [9400] mad_rpc: _do_madrpc failed; dport (Lid 15)
ibwarn: [9400] print_errors: IB_GSI_PORT_COUNTERS query failed on leaf-0-7, Lid 15 port 19
"""
SOME_FAILED = SAID.replace("## Suppressed:", "##          2 PMA query failures\n## Suppressed:")
CLEAN = SAID[SAID.index("## Summary") :]


def test_a_recorded_answer_is_read_counter_by_counter_in_the_kernels_words():
    leaf = {"guid": "200005", "name": "leaf-0-5"}
    found = parse(SAID, "it")
    assert found.counts == (
        Count(
            guid="1000c7", name="node00100 mlx5_0", port="1", counter="symbol_error", value=65535
        ),
        Count(**leaf, port="7", counter="symbol_error", value=1523),
        Count(**leaf, port="18", counter="link_downed", value=3),
        Count(**leaf, port="18", counter="VL15_dropped", value=2),
    )  # neither the sum of a switch, nor load and congestion
    assert found.is_whole
    assert found.findings == ()


def test_a_fabric_without_errors_is_a_reading_and_nothing_at_all_is_none():
    assert parse(CLEAN, "it").counts == ()
    for text, words in (
        ("", "is empty"),
        ("Query SA failed: Connection timed out\n", "holds no counters"),
        ("# Port counters: Lid 15 port 7 (CapMask: 0x1300)\nPortSelect:....7\n", "by LID"),
    ):
        with pytest.raises(TopologyError, match=words):
            parse(text, "it")


@pytest.mark.parametrize("kept", range(1, SAID.count("\n")))
def test_an_answer_cut_off_after_any_line_is_reported_as_cut_off_or_empty(kept):
    text = "".join(SAID.splitlines(keepends=True)[:kept])
    try:
        found = parse(text, "it")
    except TopologyError:
        assert kept == 1
        return
    is_cut_off = "## Summary" not in text
    assert [finding.kind for finding in found.findings] == ["cut-off"] * is_cut_off
    assert found.is_whole != is_cut_off


def test_ports_that_did_not_answer_are_unknown():
    (named,) = parse(f"{SOME_FAILED}\n{FAILED}", "it").findings
    assert named.sentence == "in it: 2 ports of leaf-0-7 did not answer: errors unknown"
    (unnamed,) = parse(SOME_FAILED, "it").findings  # where only stdout was recorded
    assert "2 queries failed" in unnamed.sentence


def test_a_port_without_an_earlier_reading_has_no_rise():
    later = parse(SAID.replace("leaf-0-5", "leaf-0-7"), "it")
    rises = compare(parse(f"{CLEAN}\n{FAILED}", "it"), later, 60)
    assert [(each.name, each.port) for each in rises.counts] == [
        ("node00100 mlx5_0", "1"), ("leaf-0-7", "7"),
    ]  # fmt: skip
    for half in (SAID[: SAID.index("## Summary")], SOME_FAILED):
        with pytest.raises(TopologyError, match="incomplete"):
            compare(parse(half, "it"), later, 60)


def test_a_line_that_cannot_be_read_is_named():
    (odd,) = parse(f"hello\n{SAID}", "it").findings
    assert (odd.kind, odd.line) == ("unreadable", 1)


def test_the_shipped_limits_judge_switches_ports_as_those_of_nodes():
    """Over an hour 120 symbol errors are allowed, over ten seconds 100; a lost link never is."""
    limits = configs.limits("node_health") + configs.limits("switch_ports")
    one = {"guid": "1", "name": "s", "port": "1"}
    for counter, value, over_s, is_fatal in (
        ("symbol_error", 121, 3600, True), ("symbol_error", 120, 3600, False),
        ("symbol_error", 101, 10, True), ("symbol_error", 100, 10, False),
        ("link_downed", 1, 3600, True), ("local_link_integrity_errors", 1, 3600, True),
        ("excessive_buffer_overrun_errors", 1, 3600, True), ("port_rcv_errors", 9, 1, False),
    ):  # fmt: skip
        judged = infiniband_counters.Counters(
            counts=(Count(**one, counter=counter, value=value),), over_s=over_s, limits=limits
        )
        assert bool(exceeded_limit(judged, judged.counts[0])) == is_fatal, counter


# --- the verb ----------------------------------------------------------------------------------

LEAF = """\
Errors for 0x2c5eab0300b87b40 "MF0;A09-P1-IBLEAF-04-04:MQM9701/U1"
   GUID 0x2c5eab0300b87b40 port ALL: [LinkDownedCounter == {}] [PortXmitDiscards == 4]
   GUID 0x2c5eab0300b87b40 port 36: [LinkDownedCounter == {}] [PortXmitDiscards == 4]
"""


def show(near: Desk, *words: str) -> Done:
    file = near.write("fabric", EXCERPT)
    return near.run("scan", "--draw", "--topology", str(file), *words)


def test_one_reading_is_reported_and_a_rise_between_two_is_judged(near):
    before = str(near.write("before", f"{LEAF.format(7, 7)}\n{CLEAN}"))
    after = str(near.write("after", f"{LEAF.format(8, 8)}\n{CLEAN}"))
    told = show(near, "--counters", before)
    assert told.code == 0
    assert "link_downed 7 at A09-P1-IBLEAF-04-04 port 36 to A10-P1-IBSPINE-02" in told.out
    judged = show(near, "--counters", before, "--counters", after, "--over", "3600", "--json")
    assert judged.code == 1
    (counted,) = [line for line in judged.lines if line["type"] == "counter"]
    assert (counted["value"], counted["fatal"], counted["over_s"]) == (1, True, 3600)
    assert counted["link"] == ["S-2c5eab0300b87b40", "S-2c5eab0300c26280"]
    assert show(near, "--counters", after, "--over", "3600").code == 1  # since they were cleared


@pytest.mark.parametrize(
    ("topology", "files", "over_s", "error"),
    [
        ("it", ["clean", "clean"], None, "with --over SECONDS between them"),
        ("it", ["clean"] * 3, 60, "3 files of counters"),
        ("it", [], 60, "give --counters FILE as well"),
        (None, ["gone"], None, 'gone": No such file'),
        (None, ["."], None, "it is a folder"),
        (None, ["fabric"], None, 'fabric" holds no counters of ports'),
    ],
)
def test_counters_that_cannot_be_meant_are_refused(topology, files, over_s, error, tmp_path):
    (tmp_path / "clean").write_text(CLEAN)
    (tmp_path / "fabric").write_text(EXCERPT)
    with pytest.raises(AnubisError, match=error):
        count_errors(topology, [tmp_path / file for file in files], over_s)


# --- the fabric itself -------------------------------------------------------------------------

WHOLE = FatTree(nodes=512, nodes_per_leaf=16, leaves_per_pod=32, spines=8, cables=2)
RAISED = {  # place, counter, value; leaf-0-9 has its uplinks at ports 17 to 32
    ("leaf-0-6", 7): ("SymbolErrorCounter", "symbol_error", 1523),
    ("node00100 mlx5_0", 1): ("PortRcvErrors", "port_rcv_errors", 77),
    **{
        ("leaf-0-9", port): ("LinkDownedCounter", "link_downed", port - 16)
        for port in range(17, 26)
    },
}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    with Simulator(WHOLE.fabric(), tmp_path_factory.mktemp("ibsim")) as simulator:
        simulator.manage()
        yield simulator


def test_the_topology_is_read_live_by_the_real_tool(fabric):
    """512 HCAs on 32 leaves under 8 spines with two cables each."""
    whole = WHOLE.fabric()
    found = fabric_sources.live(command=(str(fabric.programs / "ibnetdiscover"),)).fabric
    assert len(found.nodes) == 512
    assert {leaf: set(names) for leaf, names in under(found).items()} == {
        leaf: set(names) for leaf, names in under(whole).items()
    }
    assert found.pairs_by_hops() == whole.pairs_by_hops()
    assert not Inspection(fabric=found).findings


def test_counters_that_rise_between_two_live_readings_are_judged(fabric, monkeypatch):
    """Among them nine of the 16 uplinks of one leaf, which all of its tier have."""
    monkeypatch.setenv("PATH", fabric.path)

    def meanwhile(_: float) -> None:
        fabric.tell(
            *(
                f'PerformanceSet "{name}"[{port}] PortCounters.{told}={value}'
                for (name, port), (told, _, value) in RAISED.items()
            )
        )

    rises, odd = count_errors(None, (), 60, wait=meanwhile)
    assert odd == ()
    found = [
        str(each)
        for each in Inspection(fabric=fabric_sources.live().fabric, counters=rises).findings
    ]
    assert found[0].startswith("leaf-0-9 has 16 of the 16 uplinks that 32 of 32")
    assert "9 of its uplinks count fatal errors (degraded" in found[0]
    assert found[1].startswith(
        "symbol_error rose by 1523 in 60 s at leaf-0-6 port 7 to node00103 mlx5_0: fatal, limit "
    )
    assert found[-1] == "port_rcv_errors rose by 77 in 60 s at NIC mlx5_0 of node00100"
    assert len(found) == 1 + len(RAISED)


def test_a_leaf_that_lost_nine_of_16_uplinks_is_shown_as_degraded(fabric, near):
    """And what the ports have counted so far, as a fact that is not judged."""
    fabric.tell('PerformanceSet "leaf-0-8"[2] PortCounters.SymbolErrorCounter=7')
    fabric.tell(*(f'Unlink "leaf-0-5"[{port}]' for port in range(17, 26)))
    fabric.settle()
    now = show_live(near, fabric.path, "--json")
    assert now.code == 1
    (short,) = [line for line in now.lines if line["type"] == "shortage"]
    assert (short["has"], short["usual"], short["alike"], short["sisters"]) == (7, 16, 31, 32)
    assert sum(gap["cables"] for gap in short["gaps"]) == now.summary["missing_uplinks"] == 9
    assert now.summary["degraded"] == [short["switch"]]
    counted = [line for line in now.lines if line["type"] == "counter"]
    assert ("leaf-0-8", "2", "symbol_error", 7, False) in {
        tuple(line[key] for key in ("name", "port", "counter", "value", "fatal"))
        for line in counted
    }
    assert not any(line["fatal"] for line in counted)
    fabric.tell('ReLink "leaf-0-5"')
    fabric.settle()


def test_a_scan_reports_lost_uplinks_and_errors_beside_its_verdict(fabric, near, tmp_path):
    """The real tools write what they read; the pairs are measured on a simulated fleet there."""
    nodes = [nic.node for nic in WHOLE.fabric().nics][:64]
    fleet = near.fleet(nodes=",".join(nodes), faults=["slow node"], seed=4)
    fabric.tell(*(f'Unlink "leaf-0-1"[{port}]' for port in range(17, 26)))
    fabric.settle()
    files = tmp_path / "fabric.txt", tmp_path / "counters.txt"
    files[0].write_text(fabric.run("ibnetdiscover").stdout)
    words = ["scan", "--cluster", fleet, "--json", "--topology", str(files[0])]
    gaps = near.run(*words, "--dry-run").lines[-1]["missing_uplinks"]
    assert [gap.split(" - ")[0] for gap in gaps] == ["leaf-0-1"] * 5
    assert "leaf-0-1 - spine-0-4 (1 cable)" in gaps
    (part,) = parts_of(near.run(*words))
    slow = part["parts"][0]["name"]
    place = nodes.index(slow)
    leaf, port = f"leaf-0-{place // 16}", place % 16 + 1
    fabric.tell(f'PerformanceSet "{leaf}"[{port}] PortCounters.SymbolErrorCounter=1523')
    files[1].write_text(fabric.run(*infiniband_counters.LIVE).stdout)
    (part,) = parts_of(near.run(*words, "--counters", str(files[1])))
    assert part["parts"][0]["name"] == slow
    (counted,) = [line for line in part["evidence"] if "symbol_error" in line]
    assert f"1523 at {leaf} port {port}" in counted
    fabric.tell('ReLink "leaf-0-1"')
    fabric.settle()


def parts_of(done: Done) -> list[dict]:
    assert done.code == 1, done.err
    return [line for line in done.lines if line["type"] == "part"]


def test_live_counters_are_those_of_perfquery_and_become_evidence(fabric):
    """Of one port each, by another of the real tools."""
    fabric.tell('PerformanceSet "leaf-0-11"[3] PortCounters.SymbolErrorCounter=42')
    survey = fabric_sources.live(command=(str(fabric.programs / "ibnetdiscover"),))
    reading = infiniband_counters.live(command=(str(fabric.programs / "ibqueryerrors"),))
    (mine,) = [each for each in reading.counts if each.name == "leaf-0-11"]
    said = fabric.run("perfquery", "-G", f"0x{mine.guid}", mine.port).stdout
    shown = {
        infiniband_counters.kernels_name(a): b
        for a, b in re.findall(r"^(\w+):\.+(\d+)$", said, re.M)
    }
    assert shown["symbol_error"] == str(mine.value) == "42"
    read = infiniband_counters.Counters(counts=reading.counts)
    inspection = Inspection(fabric=survey.fabric, counters=read)
    assert inspection.sentences_about(Part("node", "node00179")) == (
        "symbol_error 42 at leaf-0-11 port 3 to node00179 mlx5_0",
    )


def test_without_a_subnet_manager_the_topology_is_shown_and_the_counters_are_not_known(
    near, tmp_path
):
    small = FatTree(nodes=4, nodes_per_leaf=2, leaves_per_pod=2, spines=2).fabric()
    with Simulator(small, tmp_path) as simulator:
        done = show_live(near, simulator.path, "--json")
    assert done.code == 0
    (unknown,) = [line for line in done.lines if line.get("kind") == "no-counters"]
    assert '"ibqueryerrors" ended with code' in unknown["sentence"]
    assert done.summary["nodes"] == 4


def show_live(near: Desk, path: str, *words: str) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        return near.run("scan", "--draw", *words)


def test_without_the_tool_the_counters_cannot_be_asked_for():
    with pytest.raises(TopologyError, match="give --counters FILE"):
        infiniband_counters.live(command=("no-such-ibqueryerrors",))
