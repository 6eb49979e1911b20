"""Counters of Ethernet switches by SNMP and gNMI: the same ports and values from any vendor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from anubis.core.errors import TopologyError
from anubis.core.fabric import Fabric, Part
from anubis.core.network.counters import PORT_DOWN, place_counts
from anubis.core.network.hints import MOST, congested_links, hints
from anubis.core.records import Count
from anubis.readers.topology import fabric_sources, lldp
from anubis.readers.topology.infiniband_counters import CounterReading, compare
from tests.edges.test_topology import host, neighbour

# As net-snmp 5.9 prints it, from a switch that runs SONiC; below with -On, -Oq and pdsh's prefix.
WALK = """\
SNMPv2-MIB::sysDescr.0 = STRING: SONiC Software Version: SONiC.202311
HwSku: some-sku
leaf1
SNMPv2-MIB::sysName.0 = STRING: leaf1.example.com
IF-MIB::ifDescr.1 = STRING: etp1
IF-MIB::ifDescr.5 = STRING: etp2
IF-MIB::ifType.1 = INTEGER: ethernetCsmacd(6)
IF-MIB::ifType.5 = INTEGER: ethernetCsmacd(6)
IF-MIB::ifType.10000 = INTEGER: softwareLoopback(24)
IF-MIB::ifOperStatus.1 = INTEGER: up(1)
IF-MIB::ifOperStatus.5 = INTEGER: down(2)
IF-MIB::ifInDiscards.1 = Counter32: 0
IF-MIB::ifInErrors.1 = Counter32: 1523
IF-MIB::ifInErrors.5 = Counter32: 0
IF-MIB::ifInErrors.10000 = Counter32: 9
IF-MIB::ifName.1 = STRING: Ethernet0
IF-MIB::ifName.5 = STRING: Ethernet4
IF-MIB::ifHCInOctets.1 = Counter64: 8713442317
IF-MIB::ifHCInOctets.5 = No Such Instance currently exists at this OID
CISCO-PFC-EXT-MIB::cpfcIfPriorityIndications.1.3 = Counter32: 40
CISCO-PFC-EXT-MIB::cpfcIfPriorityIndications.1.4 = Counter32: 2
"""
NUMBERS = {
    "SNMPv2-MIB::sysDescr": ".1.3.6.1.2.1.1.1",
    "SNMPv2-MIB::sysName": ".1.3.6.1.2.1.1.5",
    "IF-MIB::ifDescr": ".1.3.6.1.2.1.2.2.1.2",
    "IF-MIB::ifType": ".1.3.6.1.2.1.2.2.1.3",
    "IF-MIB::ifOperStatus": "iso.3.6.1.2.1.2.2.1.8",
    "IF-MIB::ifInDiscards": "SNMPv2-SMI::mib-2.2.2.1.13",
    "IF-MIB::ifInErrors": ".1.3.6.1.2.1.2.2.1.14",
    "IF-MIB::ifName": ".1.3.6.1.2.1.31.1.1.1.1",
    "IF-MIB::ifHCInOctets": ".1.3.6.1.2.1.31.1.1.1.6",
    "CISCO-PFC-EXT-MIB::cpfcIfPriorityIndications": ".1.3.6.1.4.1.9.9.813.1.2.1.3",
}


def by_number(text: str) -> str:
    for name, number in NUMBERS.items():
        text = text.replace(f"{name}.", f"{number}.")
    return text.replace("down(2)", "2").replace("ethernetCsmacd(6)", "6")


def briefly(text: str) -> str:
    """Write it as -Oqs does: no module, no type."""
    rows = [row.partition("::")[2] or row for row in text.splitlines()]
    for kind in ("STRING: ", "INTEGER: ", "Counter32: ", "Counter64: "):
        rows = [row.replace(f" = {kind}", " ") for row in rows]
    return "\n".join(rows)


@pytest.mark.parametrize(
    "written",
    [
        str,
        by_number,
        briefly,
        lambda text: "".join(f"leaf1.example.com: {row}\n" for row in text.splitlines()),
        lambda text: f"leaf1.example.com\n{text.replace('::sysName.0', '::sysContact.0')}",
        lambda text: text.replace(".1.3 =", "[1][3] =").replace(".1.4 =", "[1][4] ="),
    ],
    ids=["named", "numbers", "brief", "prefixed", "headed", "brackets"],
)
def test_a_walk_is_read_in_any_notation_of_its_objects(near, written: Callable[[str], str]):
    found = fabric_sources.load_counters(near.write("walk.txt", written(WALK)))
    assert found.findings == ()
    counts = {(count.name, count.port, count.counter): count.value for count in found.counts}
    assert counts == {
        ("leaf1.example.com", "Ethernet0", "ifInDiscards"): 0,
        ("leaf1.example.com", "Ethernet0", "ifInErrors"): 1523,
        ("leaf1.example.com", "Ethernet4", "ifInErrors"): 0,
        ("leaf1.example.com", "Ethernet0", "cpfcIfPriorityIndications"): 42,
        ("leaf1.example.com", "Ethernet0", PORT_DOWN): 0,
        ("leaf1.example.com", "Ethernet4", PORT_DOWN): 1,
    }


def test_two_switches_of_one_name_are_never_added_up(near):
    walk = WALK + WALK.replace("1523", "7") + "leaf9\n" + WALK.replace("::sysName", "::sysContact")
    found = fabric_sources.load_counters(near.write("walk.txt", walk))
    assert [finding.kind for finding in found.findings] == ["same-name"]
    assert {count.name for count in found.counts} == {"leaf9"}
    with pytest.raises(TopologyError, match="line with the name of the switch"):
        fabric_sources.load_counters(near.write("walk.txt", WALK.replace("sysName", "sysContact")))


def test_a_switch_that_does_not_answer_is_named(near):
    text = f"{WALK}Timeout: No Response from leaf2.\n"
    (silent,) = fabric_sources.load_counters(near.write("walk.txt", text)).findings
    assert silent.sentence.endswith("leaf2 did not answer: errors unknown")


# As gnmic 0.37 prints it: of get, of subscribe --format event, and what SONiC answers.
GET = [
    {
        "source": "leaf1:57400",
        "time": "1970-01-01T00:00:00Z",
        "updates": [
            {
                "Path": "interfaces/interface[name=Ethernet1/1]/state",
                "values": {
                    "interfaces/interface/state": {
                        "openconfig-interfaces:admin-status": "UP",
                        "openconfig-interfaces:oper-status": "DOWN",
                        "openconfig-interfaces:counters": {
                            "carrier-transitions": "3",
                            "in-errors": "1523",
                            "in-octets": "10041381967",
                        },
                    }
                },
            }
        ],
    }
]
EVENTS = [
    {
        "name": "counters",
        "timestamp": stamp,
        "tags": {"source": "leaf1", "interface_name": "Ethernet1/1", "subscription-name": "c"},
        "values": {f"/interfaces/interface/state/counters/{counter}": value},
    }
    for stamp, counter, value in ((2, "in-errors", 1523), (1, "in-errors", 9), (1, "in-pkts", 7))
] + [
    {
        "name": "queues",
        "timestamp": 1,
        "tags": {"source": "leaf1", "interface_interface-id": "Ethernet1/1", "queue_name": queue},
        "values": {"/qos/interfaces/interface/output/queues/queue/state/dropped-pkts": "4"},
    }
    for queue in ("UC3", "UC4")
]
SONIC = {
    "source": "leaf1",
    "timestamp": 1,
    "prefix": "",
    "updates": [
        {
            "Path": "COUNTERS/Ethernet*",
            "values": {
                "COUNTERS/Ethernet*": {
                    "Ethernet0": {
                        "SAI_PORT_STAT_IF_IN_ERRORS": "1523",
                        "SAI_PORT_STAT_ETHER_STATS_RX_NO_ERRORS": "99",
                        "SAI_PORT_STAT_PFC_3_RX_PKTS": "42",
                    },
                    "Ethernet0:3": {"SAI_QUEUE_STAT_DROPPED_PACKETS": "5"},
                    "Ethernet0:4": {"SAI_QUEUE_STAT_DROPPED_PACKETS": "1"},
                }
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("text", "port", "expected"),
    [
        (
            json.dumps(GET, indent=2),
            "Ethernet1/1",
            {"carrier-transitions": 3, "in-errors": 1523, PORT_DOWN: 1},
        ),
        (json.dumps(EVENTS), "Ethernet1/1", {"in-errors": 1523, "dropped-pkts": 8}),
        (
            "\n".join(json.dumps([event], indent=1) for event in EVENTS),
            "Ethernet1/1",
            {"in-errors": 1523, "dropped-pkts": 8},
        ),
        (
            json.dumps(SONIC),
            "Ethernet0",
            {
                "SAI_PORT_STAT_IF_IN_ERRORS": 1523,
                "SAI_PORT_STAT_PFC_3_RX_PKTS": 42,
                "SAI_QUEUE_STAT_DROPPED_PACKETS": 6,
            },
        ),
    ],
    ids=["get", "events", "one by one", "SONiC"],
)
def test_gnmi_is_read_in_each_form_with_the_newest_value_of_each_port(near, text, port, expected):
    found = fabric_sources.load_counters(near.write("gnmi.json", text))
    assert found.findings == ()
    assert {(count.name, count.port) for count in found.counts} == {("leaf1", port)}
    assert {count.counter: count.value for count in found.counts} == expected


def test_gnmi_without_a_source_or_cut_off_is_refused_or_named(near):
    with pytest.raises(TopologyError, match="expected the output of gnmic"):
        fabric_sources.load_counters(
            near.write("gnmi.json", json.dumps(GET).replace("source", "sauce"))
        )
    lines = "\n".join(map(json.dumps, EVENTS))
    cut = fabric_sources.load_counters(near.write("gnmi.json", lines[:-30]))
    assert [finding.kind for finding in cut.findings] == ["unreadable"]
    assert [count.value for count in cut.counts if count.counter == "in-errors"] == [1523]


@pytest.mark.parametrize("text", [WALK, json.dumps(GET, indent=2), json.dumps(SONIC, indent=1)])
def test_a_text_that_is_cut_anywhere_is_read_in_part_or_refused(near, text):
    whole = fabric_sources.load_counters(near.write("whole.txt", text)).counts
    known = {(count.name, count.counter) for count in whole}
    for kept in range(1, len(text), 61):
        try:
            found = fabric_sources.load_counters(near.write("cut.txt", text[:kept]))
        except TopologyError:
            continue
        assert {(count.name, count.counter) for count in found.counts} <= known


# --- ports that others know by another name -----------------------------------------------------


def seen_as(kind: str, leaf: str, number: int) -> dict[str, object]:
    """A leaf's port as its neighbours see it: by its name, or by an alias, a number or an address
    and a description."""
    form = neighbour(leaf, f"Ethernet{4 * number}", "Bridge")
    value, type_, described = {
        "name": (f"Ethernet{4 * number}", "ifname", ""),
        "alias": (f"etp{number + 1}", "local", ""),
        "alias and name": (f"etp{number + 1}", "local", f"Ethernet{4 * number}"),
        "address": (f"02:00:00:00:00:{number:02x}", "mac", f"Ethernet{4 * number}"),
    }[kind]
    form["port"] = {"id": {"type": type_, "value": value}, "descr": described}
    (about,) = form["chassis"].values()  # type: ignore[attr-defined]
    about["mgmt-ip"] = [f"10.0.0.{leaf[-1]}", f"fd00::{leaf[-1]}"]
    return form


def gathered(kind: str) -> Fabric:
    """Two leaves with four hosts and two cables to each of two spines; all switches report."""
    documents: dict[str, dict[str, dict[str, object]]] = {}
    for leaf in ("leaf1", "leaf2"):
        own = documents.setdefault(leaf, {})
        for number in range(4):
            name = f"{leaf}n{number}"
            documents[name] = {"eth0": seen_as(kind, leaf, number)}
            own[f"Ethernet{4 * number}"] = neighbour(name, "eth0", "Station")
        for number in range(4, 8):
            spine, port = f"spine{number % 2}", f"Ethernet{number // 2 + 8 * int(leaf[-1])}"
            own[f"Ethernet{4 * number}"] = neighbour(spine, port, "Bridge")
            documents.setdefault(spine, {})[port] = seen_as(kind, leaf, number)
    return lldp.parse(json.dumps({n: host(**d) for n, d in documents.items()}), "it").fabric


@pytest.mark.parametrize("kind", ["name", "alias", "alias and name", "address"])
def test_each_counter_is_placed_at_its_cable_under_any_name_of_its_port(kind):
    fabric = gathered(kind)
    assert sum(len(link.cables) for link in fabric.links) == 8
    for leaf in ("leaf1", "leaf2"):
        for number in range(8):
            port = f"Eth{4 * number}" if number % 3 else f"Ethernet{4 * number}"
            called = (f"{leaf}.example", leaf, f"10.0.0.{leaf[-1]}", f"fd00::{leaf[-1]}")[
                number % 4
            ]
            count = Count(guid="", name=called, port=port, counter="c", value=1)
            ((placed,), _) = place_counts([count], fabric)
            if number < 4:
                assert placed.nic
                assert placed.nic.node == f"{leaf}n{number}"
            else:
                assert placed.link
                assert {placed.link.a, placed.link.b} == {leaf, f"spine{number % 2}"}


def test_an_alias_is_never_taken_for_the_port_of_its_number():
    """SONiC's etp4 is Ethernet12, not Ethernet4."""
    fabric = gathered("name")
    alias = Count(guid="", name="leaf1", port="etp4", counter="c", value=1)
    ((placed,), _) = place_counts([alias], fabric)
    assert placed.nic is None
    other = Count(guid="", name="leaf1.b", port="Ethernet4", counter="c", value=1)
    assert place_counts([other], fabric)[0]  # the fabric's names have no domain


@pytest.mark.parametrize("counter", ["SAI_PORT_STAT_PFC_3_RX_PKTS", "out-discards", "ifInDiscards"])
def test_only_a_rise_of_pauses_without_errors_excuses_a_link(near, counter):
    """Two readings of a table of all ports, in which one port counts."""
    fabric = gathered("name")
    links = {f"Ethernet{4 * n}": Part("link", "leaf1", f"spine{n % 2}") for n in range(4, 8)}
    ports = [f"{leaf},Ethernet{4 * n}" for leaf in ("leaf1", "leaf2") for n in range(8)]

    def read(**values: int) -> CounterReading:
        rows = [
            f"{at},{name},{values.get(name, 0) if at == port else 0}"
            for at in ports
            for name in (counter, "crc")
        ]
        return fabric_sources.load_counters(
            near.write("t.csv", "\n".join(["name,port,counter,value", *rows]))
        )

    for place, link in links.items():
        port = f"leaf1,{place}"
        before, paused = read(**{counter: 5}), read(**{counter: 10**6})
        rises = compare(before, paused, 60.0)
        assert congested_links(fabric, rises) == {link}
        factors = hints(fabric, rises)
        assert factors[link] == MOST["paused"] * min(factors.values())
        for nothing in (
            replace(rises, over_s=None),
            compare(before, read(**{counter: 10**6, "crc": 10**5}), 60.0),
            compare(before, read(**{counter: 14}), 60.0),
        ):
            assert not congested_links(fabric, nothing)
        erring = compare(before, read(**{counter: 5, "crc": 10**5}), 60.0)
        factors = hints(fabric, erring)
        assert max(factors, key=lambda part: factors[part]) == link
        assert factors[link] > 5
