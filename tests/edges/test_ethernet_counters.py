"""Port counters of Ethernet: ethtool of many hosts, tables of ports, and their use in a scan."""

from __future__ import annotations

import re

import pytest

from anubis.core.errors import TopologyError
from anubis.core.records import Count
from anubis.readers.topology import fabric_sources
from anubis.readers.topology.infiniband_counters import compare
from tests.edges.fabric_text import ibnetdiscover_of
from tests.edges.test_routes import TREE

# As `pdsh -w n[1-2] 'for d in eth0 eth1; do echo $d; ethtool -S $d; done'` prints mlx5's counters.
PDSH = """\
n1: eth0
n1: NIC statistics:
n1:      rx_packets: 830216
n1:      rx_symbol_err_phy: 0
n1:      rx_crc_errors_phy: 12
n1:      rx_corrected_bits_phy: 4711
n1:      rx_prio3_pause: 0
n1: eth1
n1: NIC statistics:
n1:      rx_crc_errors_phy: 0
n2: eth0
n2: NIC statistics:
n2:      rx_crc_errors_phy: 0
"""


def read(near, text):
    return fabric_sources.load_counters(near.write("counters.txt", text))


def crc(name, value):
    return Count(guid="", name=name, port="1", counter="rx_crc_errors_phy", value=value)


def test_ethtool_of_many_hosts_is_read_without_load_counters(near):
    found = read(near, PDSH)
    assert found.findings == ()
    assert [count.value for count in found.counts] == [0, 12, 4711, 0, 0, 0]
    assert crc("n1 eth0", 12) in found.counts
    assert {crc("n1 eth1", 0), crc("n2 eth0", 0)} <= set(found.counts)
    assert found.shows_zeros  # so a port that is not listed was not asked


def test_a_host_without_a_prefix_is_read_from_before_its_device(near):
    text = PDSH.replace("n1: eth0", "n1: n1 eth0").replace("n1: ", "").partition("eth1")[0]
    assert crc("n1 eth0", 12) in read(near, text).counts


def test_ethtool_output_without_a_host_is_refused_with_the_way_out(near):
    with pytest.raises(TopologyError, match='"node001 eth0"'):
        read(near, "NIC statistics:\n     rx_crc_errors_phy: 12\n")


def test_rises_are_known_for_ports_that_are_in_both_readings(near):
    before, after = read(near, PDSH), read(near, PDSH.replace("phy: 12", "phy: 40"))
    rose, *still = compare(before, after, 60).counts
    assert rose == crc("n1 eth0", 28)
    assert {count.value for count in still} == {0}
    assert {crc("n1 eth1", 0), crc("n2 eth0", 0)} <= set(still)
    fewer = read(near, PDSH.partition("n1: eth1")[0].replace("phy: 0", "phy: 7"))
    rose, *still = compare(fewer, after, 60).counts
    assert rose == crc("n1 eth0", 28)
    assert {count.name for count in still} == {"n1 eth0"}


def test_a_counter_of_thousands_of_digits_is_named_and_the_others_count(near):
    endless = "9" * 5000
    found = read(near, f"name,port,counter,value\nleaf1,1,fec,{endless}\nleaf1,2,fec,7\n")
    assert [count.value for count in found.counts] == [7]
    assert [finding.kind for finding in found.findings] == ["unreadable"]
    assert read(near, PDSH.replace("phy: 12", f"phy: {endless}")).findings


def test_a_table_is_read_by_its_header_and_a_wrong_line_is_named(near):
    found = read(
        near, "port,name,counter,value\nEthernet4,leaf1,pfc_rx,9\nEthernet8,leaf1,fec,many\n"
    )
    (count,) = found.counts
    assert (count.name, count.port, count.counter, count.value) == (
        "leaf1",
        "Ethernet4",
        "pfc_rx",
        9,
    )
    (odd,) = found.findings
    assert (odd.kind, odd.line) == ("unreadable", 3)


@pytest.mark.long
def test_an_error_counter_names_the_uplink_that_flows_alone_cannot(near):
    cluster = near.fleet(nodes="node[00001-00012]", faults=["lossy uplink"], seed=3)
    topology = str(near.write("fabric.txt", ibnetdiscover_of(TREE)))
    words = ("scan", "--cluster", cluster, "--topology", topology, "--full", "--json")
    (part,) = [line for line in near.run(*words).lines if line["type"] == "part"]
    assert len(part["parts"]) == 3
    leaf, port = re.search(r"(leaf-0-\d)\[(\d+),", part["evidence"][0]).groups()
    ports = [f"leaf-0-{n},{p},symbol_error,0" for n in range(3) for p in range(5, 11)]
    ports.remove(f"{leaf},{port},symbol_error,0")
    table = "\n".join(["name,port,counter,value", *ports, f"{leaf},{port},symbol_error,90000"])
    told = near.run(*words, "--counters", str(near.write("ports.csv", table)))
    (part,) = [line for line in told.lines if line["type"] == "part"]
    assert re.fullmatch(rf"link {leaf}\[{port},\d+\] - spine-0-\d\[\d+,\d+\]", part["subject"])
    assert any("symbol_error 90000" in line for line in part["evidence"])
