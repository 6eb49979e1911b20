"""Port counters of Ethernet: `ethtool -S` of many hosts, or a table of switches' and hosts' ports.

Each line of ethtool may begin with its host, as pdsh, clush and ansible print it, and a line with
the device comes before its counters:

    pdsh -w node[001-100] 'for d in eth0 eth1; do echo $d; ethtool -S $d; done' > FILE

A table has the columns name (of the switch, or host and device), port, counter, value.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.core.records import Count

COLUMNS = ("name", "port", "counter", "value")
# What ethtool counts of errors, corrections (FEC) and congestion (PFC, ECN); the rest is load.
TELLING = re.compile(
    r"err|crc|fcs|symbol|discard|drop|link_down|fec|correct|pause|pfc|ecn|cnp|out_of_sequence",
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
    return set(COLUMNS) <= set(_words(text.partition("\n")[0]))


def parse_ethtool(text: str) -> tuple[list[Count], list[Remark]]:
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
            findings.append(_unreadable(row, line))
    if not counts:
        raise TopologyError(
            "no counter has a host and a device: put lines with host and device before those of "
            'ethtool, "node001 eth0"'
        )
    return counts, findings


def parse_table(text: str) -> tuple[list[Count], list[Remark]]:
    counts, findings = [], []
    place = [_words(text.partition("\n")[0]).index(column) for column in COLUMNS]
    for line, row in enumerate(_rows(text), start=2):
        cells = [row[number].strip() if number < len(row) else "" for number in place]
        if all(cells) and _VALUE.fullmatch(cells[3]):
            counts.append(_count(*cells))
        elif any(cells):
            findings.append(_unreadable(",".join(row), line))
    return counts, findings


def _rows(text: str) -> Iterator[list[str]]:
    return csv.reader(text.split("\n")[1:])


def _words(header: str) -> list[str]:
    return [word.strip().casefold() for word in header.split(",")]


def _count(name: str, port: str, counter: str, value: str) -> Count:
    return Count(guid="", name=name, port=port, counter=counter.strip(), value=int(value))


def _unreadable(row: str, line: int) -> Remark:
    sentence = f'cannot be read, left out: "{row.strip()[:60]}"'
    return Remark(kind="unreadable", sentence=sentence, line=line)
