"""Port counters of switches by SNMP, as `snmpwalk` or `snmpbulkwalk` prints them.

A switch is named by the walk's prefix (`leaf1: `, as pdsh prints it), by a line before its walk, or
by its sysName. Its ports have the names of ifName, so that is needed beside the counters:

    for s in leaf1 leaf2; do echo $s; snmpbulkwalk -v2c -c public $s .1.3.6.1.2.1; done > FILE
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass, field

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.core.network.counters import PORT_DOWN
from anubis.core.records import Count
from anubis.readers.topology.ethernet_counters import TELLING, unreadable

COLUMNS = {  # of SNMPv2-MIB, IF-MIB, EtherLike-MIB and CISCO-PFC-EXT-MIB, which SONiC has too
    "1.3.6.1.2.1.1.1": "sysDescr",
    "1.3.6.1.2.1.1.5": "sysName",
    "1.3.6.1.2.1.2.2.1.2": "ifDescr",
    "1.3.6.1.2.1.2.2.1.3": "ifType",
    "1.3.6.1.2.1.2.2.1.7": "ifAdminStatus",
    "1.3.6.1.2.1.2.2.1.8": "ifOperStatus",
    "1.3.6.1.2.1.2.2.1.13": "ifInDiscards",
    "1.3.6.1.2.1.2.2.1.14": "ifInErrors",
    "1.3.6.1.2.1.2.2.1.19": "ifOutDiscards",
    "1.3.6.1.2.1.2.2.1.20": "ifOutErrors",
    "1.3.6.1.2.1.31.1.1.1.1": "ifName",
    "1.3.6.1.2.1.10.7.2.1.2": "dot3StatsAlignmentErrors",
    "1.3.6.1.2.1.10.7.2.1.3": "dot3StatsFCSErrors",
    "1.3.6.1.2.1.10.7.2.1.10": "dot3StatsInternalMacTransmitErrors",
    "1.3.6.1.2.1.10.7.2.1.11": "dot3StatsCarrierSenseErrors",
    "1.3.6.1.2.1.10.7.2.1.16": "dot3StatsInternalMacReceiveErrors",
    "1.3.6.1.2.1.10.7.2.1.18": "dot3StatsSymbolErrors",
    "1.3.6.1.2.1.10.7.10.1.3": "dot3InPauseFrames",
    "1.3.6.1.2.1.10.7.10.1.4": "dot3OutPauseFrames",
    "1.3.6.1.2.1.10.7.10.1.5": "dot3HCInPauseFrames",
    "1.3.6.1.2.1.10.7.10.1.6": "dot3HCOutPauseFrames",
    "1.3.6.1.2.1.10.7.11.1.1": "dot3HCStatsAlignmentErrors",
    "1.3.6.1.2.1.10.7.11.1.2": "dot3HCStatsFCSErrors",
    "1.3.6.1.2.1.10.7.11.1.3": "dot3HCStatsInternalMacTransmitErrors",
    "1.3.6.1.2.1.10.7.11.1.5": "dot3HCStatsInternalMacReceiveErrors",
    "1.3.6.1.2.1.10.7.11.1.6": "dot3HCStatsSymbolErrors",
    "1.3.6.1.4.1.9.9.813.1.1.1.1": "cpfcIfRequests",
    "1.3.6.1.4.1.9.9.813.1.1.1.2": "cpfcIfIndications",
    "1.3.6.1.4.1.9.9.813.1.2.1.2": "cpfcIfPriorityRequests",
    "1.3.6.1.4.1.9.9.813.1.2.1.3": "cpfcIfPriorityIndications",
}
ROOTS = {  # as programs abbreviate the beginning of a number
    "SNMPv2-SMI::mib-2.": "1.3.6.1.2.1.",
    "SNMPv2-SMI::transmission.": "1.3.6.1.2.1.10.",
    "SNMPv2-SMI::enterprises.": "1.3.6.1.4.1.",
    "mib-2.": "1.3.6.1.2.1.",
    "enterprises.": "1.3.6.1.4.1.",
    "iso.": "1.",
}
OF_PORTS = re.compile(r"(?:if|dot3|cpfc|ieee8021Pfc|ieee8021PFC)[A-Z]\w*")
CABLED_TYPES = {"6", "117", "199"}  # Ethernet, its older gigabit type, InfiniBand
DOWN = {"2", "7"}  # down, lowerLayerDown
CARRIES = "1"  # up: meant to carry

_LINE = re.compile(
    r"(?:([\w.-]+): )?([A-Za-z0-9_:.-]*[A-Za-z0-9])((?:\.\d+)+|\[\d+\](?:\[\d+\])*)"
    r"(?: = | )(?:[A-Za-z][\w-]*: )?(.*)"
)
_NUMERIC = re.compile(r"\.?(\d+(?:\.\d+)+)")
_NAMED = re.compile(r"(?:.*[.:])?([A-Za-z][A-Za-z0-9]*)\.(\d+(?:\.\d+)*)")
_WHOLE = re.compile(r"(\d{1,20})(?: .*)?")
_STATUS = re.compile(r"(?:[A-Za-z]+\()?(\d{1,4})\)?|([A-Za-z]+)")
_WORDS = {"up": "1", "down": "2", "lowerLayerDown": "7", "ethernetCsmacd": "6"}
_HEADING = re.compile(r"(?:=+ *)?([\w.-]+):?(?: *=+)?")
_SILENT = re.compile(r"(?:.*: )?Timeout: No Response from (?:\w+:)?([\w.-]+)")
_OF_SNMP = re.compile(
    r"^(?:[\w.-]{1,255}: )?(?:(?:[\w-]{1,80}::|\.[\w.-]{1,200}\.)?(?:if[A-Z]\w{1,80}|dot3\w{1,80}"
    r"|sysName|sysDescr)|\.?(?:1|iso)\.3\.6\.1\.[\d.]{1,200}"
    r"|(?:SNMPv2-SMI::)?(?:mib-2|enterprises)[\d.]{1,200})(?:\.\d{1,10}|\[\d{1,10}\])* (?:= )?\S",
    re.MULTILINE,
)
LONGEST = 2000  # of a line that is read: an object with its value is far shorter


def is_snmp(text: str) -> bool:
    return bool(_OF_SNMP.search(text))


@dataclass
class _Switch:
    """What one switch answered, by column, port (its ifIndex) and the rest of the index."""

    name: str
    line: int
    cells: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    contradicts: bool = False  # a cell has two values: these are several switches

    def note(self, column: str, port: int, rest: str, value: str) -> None:
        cells = self.cells.setdefault(column, {}).setdefault(port, {})
        self.contradicts |= cells.setdefault(rest, value) != value

    def cell(self, column: str, port: int) -> str:
        return self.cells.get(column, {}).get(port, {}).get("", "")


def parse_snmp(text: str, where: str) -> tuple[list[Count], list[Remark]]:
    """Return the counters of ports, and remarks on what is odd. Anything else in a walk is left
    aside."""
    switches, findings = _switches(text)
    counts: list[Count] = []
    for switch in switches.values():
        if switch.contradicts:
            sentence = f'several switches are called "{switch.name}": left out; put a line with'
            findings.append(_remark("same-name", f"{sentence} its name before each", switch.line))
            continue
        ports, odd = _counts(switch)
        counts += ports
        findings += odd
    if not counts:
        raise TopologyError(
            f"{where}: no counter has a switch and a port: walk ifName with ifTable, and put a "
            'line with the name of the switch before it, "leaf1"'
        )
    return counts, findings


def _switches(text: str) -> tuple[dict[str, _Switch], list[Remark]]:
    switches: dict[str, _Switch] = {}
    findings: list[Remark] = []
    heading, current, may_head = "", "", True
    for number, row in enumerate(text.split("\n"), start=1):
        row = row.rstrip() if len(row) <= LONGEST else ""
        if silent := _SILENT.fullmatch(row):
            sentence = f"{silent.group(1).rstrip('.')} did not answer: errors unknown"
            findings.append(_remark("unread", sentence, number))
        elif cell := _cell(row):
            prefix, column, index, value = cell
            if column == "sysName" and not (prefix or heading):
                current = _text(value)
            name = prefix or current
            goes_on = column == "sysDescr" or (value[:1] == '"' and value[-1:] != '"')
            may_head = not goes_on  # a text of several lines is no heading
            if name and OF_PORTS.fullmatch(column):
                switch = switches.setdefault(name, _Switch(name, number))
                port, _, rest = index.partition(".")
                switch.note(column, int(port), rest, value)
        elif may_head and (named := _HEADING.fullmatch(row)):
            heading = current = named.group(1)
    return switches, findings


def _cell(row: str) -> tuple[str, str, str, str] | None:
    """The prefix, column, index and value of a line; the column is empty if it is no known one."""
    line = _LINE.fullmatch(row)
    if not line:
        return None
    prefix, object_, index, value = line.groups()
    indices = index.replace("][", ".").strip(".[]")
    cell = f"{object_}.{indices}"
    for root, numbers in ROOTS.items():
        if cell.startswith(root):
            cell = numbers + cell.removeprefix(root)
    if numeric := _NUMERIC.fullmatch(cell):
        return prefix or "", *_numbered(numeric.group(1)), value
    named = _NAMED.fullmatch(cell)
    column, indices = named.groups() if named else ("", "0")
    is_known = column in COLUMNS.values() or OF_PORTS.fullmatch(column)
    return prefix or "", column if is_known else "", indices, value


def _numbered(oid: str) -> tuple[str, str]:
    """The column and the index of a numeric OID."""
    parts = oid.split(".")
    for length in range(len(parts) - 1, 6, -1):
        if column := COLUMNS.get(".".join(parts[:length])):
            return column, ".".join(parts[length:])
    return "", "0"


def _counts(switch: _Switch) -> tuple[list[Count], list[Remark]]:
    names = _port_names(switch)
    counts, findings = [], []
    for column, ports in switch.cells.items():
        if not TELLING.search(column):
            continue
        for port, cells in ports.items():
            values = [_WHOLE.fullmatch(value) for value in cells.values()]
            if any(not value for value in values):
                if not any("No Such" in value for value in cells.values()):
                    row = f"{column}.{port} = {next(iter(cells.values()))}"
                    findings.append(unreadable(row, switch.line))
            elif port in names:
                total = sum(int(value.group(1)) for value in values if value)
                counts.append(_count(switch.name, names[port], column, total))
    return [*counts, *_down_ports(switch, names)], findings


def _port_names(switch: _Switch) -> dict[int, str]:
    """The name of each port that may have a cable: by ifName, else ifDescr, else its number."""
    every = dict.fromkeys(port for ports in switch.cells.values() for port in ports if port)
    names = {
        port: _text(switch.cell("ifName", port) or switch.cell("ifDescr", port)) or str(port)
        for port in every
        if _status(switch.cell("ifType", port) or "6") in CABLED_TYPES
    }
    times = Tally(names.values())
    return {port: name for port, name in names.items() if times[name] == 1}


def _down_ports(switch: _Switch, names: dict[int, str]) -> Iterator[Count]:
    """Yield a count for each port whose state is known: 1 if it should be up, and is not."""
    for port in switch.cells.get("ifOperStatus", ()):
        if port in names:
            meant = _status(switch.cell("ifAdminStatus", port) or CARRIES) == CARRIES
            is_down = meant and _status(switch.cell("ifOperStatus", port)) in DOWN
            yield _count(switch.name, names[port], PORT_DOWN, int(is_down))


def _status(value: str) -> str:
    """The number of a state: of `down(2)`, `2` and `down`."""
    state = _STATUS.fullmatch(value)
    return "" if not state else state.group(1) or _WORDS.get(state.group(2), "")


def _text(value: str) -> str:
    return value.strip().strip('"').strip()


def _count(name: str, port: str, counter: str, value: int) -> Count:
    return Count(guid="", name=name, port=port, counter=counter, value=value)


def _remark(kind: str, sentence: str, line: int) -> Remark:
    return Remark(kind=kind, sentence=sentence, line=line)
