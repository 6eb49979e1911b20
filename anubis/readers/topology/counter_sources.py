"""The counters of ports in a file of any known kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anubis.core.errors import TopologyError
from anubis.readers.topology import infiniband_counters
from anubis.readers.topology.ethernet_counters import (
    is_ethtool,
    is_table,
    parse_counters,
    parse_ethtool,
)
from anubis.readers.topology.gnmi_counters import is_gnmi, parse_gnmi
from anubis.readers.topology.infiniband_counters import CounterReading
from anubis.readers.topology.snmp_counters import is_snmp, parse_snmp
from anubis.readers.topology.tool import decode, locate
from anubis.text.files import read_bytes

KINDS = (  # each lists its zeros; a table is the last guess but one
    (is_ethtool, parse_ethtool),
    (is_gnmi, parse_gnmi),
    (is_snmp, parse_snmp),
    (is_table, parse_counters),
)


def load(path: Path) -> CounterReading:
    text, findings = decode(read_bytes(path, TopologyError))
    reading = _parse_any(text, f'"{path}"')
    return replace(reading, findings=(*findings, *reading.findings))


def _parse_any(text: str, where: str) -> CounterReading:
    parse = next((parse for is_of, parse in KINDS if is_of(text)), None)
    if parse is None:
        return infiniband_counters.parse(text, where)
    counts, findings = parse(text, where)
    return CounterReading(
        counts=tuple(counts),
        unread=frozenset(),
        is_whole=True,
        shows_zeros=True,
        findings=tuple(locate(findings, where)),
    )
