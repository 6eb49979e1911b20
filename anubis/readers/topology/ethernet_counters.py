"""Port counters of Ethernet: `ethtool -S` of many hosts, or a table of switches' and hosts' ports.

Each line of ethtool may begin with its host, as pdsh, clush and ansible print it, and a line with
the device comes before its counters:

    pdsh -w node[001-100] 'for d in eth0 eth1; do echo $d; ethtool -S $d; done' > FILE

A table has the columns name (of the switch, or host and device), port, counter, value.
"""

from __future__ import annotations

import re

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.core.records import Count
from anubis.text.tables import own_column, parse_table

COLUMNS = ("name", "port", "counter", "value")
# What programs count of errors, corrections (FEC) and congestion (PFC, ECN); the rest is load.
TELLING = re.compile(
    r"(?<!no_)err|crc|fcs|symbol|discard|drop|link_down|carrier.transitions|fec|correct|pause|pfc"
    r"|ecn|cnp|out_of_sequence",
    re.IGNORECASE,
)

_OF_ETHTOOL = re.compile(r"^(?:[\w.-]+: )?NIC statistics:\s*$", re.MULTILINE)
_HOST = re.compile(r"([\w.-]+): (.*)")
_COUNTER = re.compile(r"\s+([\w\[\]. -]+?): (\d{1,20})\s*")
_VALUE = re.compile(r"\d{1,20}")
_DEVICE = re.compile(r"(?:([\w.-]+)\s+)?([\w.-]+)\s*")


def is_ethtool(text: str) -> bool:
    return bool(_OF_ETHTOOL.search(text))


def is_table(text: str) -> bool:
    try:
        heading = parse_table(text, "the counters", TopologyError).heading
    except TopologyError:
        return False
    return all(own_column(heading, name) for name in COLUMNS)


def parse_ethtool(text: str, where: str) -> tuple[list[Count], list[Remark]]:
    counts, findings = [], []
    host = device = ""
    for line, row in enumerate(text.split("\n"), start=1):
        prefixed = _HOST.fullmatch(row)
        rest = prefixed.group(2) if prefixed else row
        if prefixed and prefixed.group(1) != host:
            host, device = prefixed.group(1), ""
        if not rest.strip() or rest.strip() == "NIC statistics:":
            continue
        if counter := _COUNTER.fullmatch(rest):
            if host and device and TELLING.search(counter.group(1)):
                counts.append(_count(f"{host} {device}", "1", *counter.groups()))
        elif heading := _DEVICE.fullmatch(rest):
            host, device = heading.group(1) or host, heading.group(2)
        else:
            findings.append(unreadable(row, line))
    if not counts:
        raise TopologyError(
            f"{where}: no counter has a host and a device: put lines with host and device before"
            ' those of ethtool, "node001 eth0"'
        )
    return counts, findings


def parse_counters(text: str, where: str) -> tuple[list[Count], list[Remark]]:
    counts, findings = [], []
    table = parse_table(text, where, TopologyError)
    for row in table:
        cells = [table.cell(row, column) for column in COLUMNS]
        if all(cells) and _VALUE.fullmatch(cells[3]):
            counts.append(_count(*cells))
        else:
            findings.append(unreadable(table.separator.join(row), table.line))
    return counts, findings


def _count(name: str, port: str, counter: str, value: str) -> Count:
    return Count(guid="", name=name, port=port, counter=counter.strip(), value=int(value))


def unreadable(row: str, line: int) -> Remark:
    sentence = f'cannot be read, left out: "{row.strip()[:60]}"'
    return Remark(kind="unreadable", sentence=sentence, line=line)
