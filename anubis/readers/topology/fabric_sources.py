"""The sources of a fabric, and of the counters of its ports: a file of any known kind, or the
fabric itself."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anubis.core.errors import TopologyError, named_by_request
from anubis.core.fabric import Fabric, Remark
from anubis.readers.topology import (
    forwarding,
    ibnetdiscover,
    infiniband_counters,
    kubernetes,
    lldp,
    nvlink,
    slurm,
    table,
    tool,
    written,
)
from anubis.readers.topology.draft import Draft, Survey
from anubis.readers.topology.ethernet_counters import (
    is_ethtool,
    is_table,
    parse_counters,
    parse_ethtool,
)
from anubis.readers.topology.gnmi_counters import is_gnmi, parse_gnmi
from anubis.readers.topology.ibnetdiscover import Owner
from anubis.readers.topology.infiniband_counters import CounterReading
from anubis.readers.topology.snmp_counters import is_snmp, parse_snmp
from anubis.readers.topology.tool import decode, locate
from anubis.text.files import json_value, parse_yaml, read_bytes

LIVE = ("ibnetdiscover",)
FOLLOWED = 64  # NICs between which routes are followed, to see whether they arrive

_OF_IBNETDISCOVER = re.compile(r'^\s*(Switch|Ca|Rt)\s+\d+\s+"|^(switch|ca)guid=', re.MULTILINE)
_OF_JSON = re.compile(r'\s*(\{\s*["}]|\[)')
_OF_SLURM = re.compile(r"^\s*(SwitchName|Switch|BlockName)\s*=", re.MULTILINE | re.IGNORECASE)
_OF_ONE_NODE = re.compile(r"^(\x1b\[\d*m|\s)*GPU0\s+X\s", re.MULTILINE)
_OF_YAML = re.compile(
    r"^(racks|links|rails|domains|items|apiVersion)\s*:|^-\s+topology\s*:", re.MULTILINE
)


def load(path: Path, mapping: Path | None = None) -> Survey:
    """Return the fabric in a file of any known kind, or in a folder of lldpctl's output for each
    host."""
    if path.is_dir():
        return _load_folder(path)
    text, findings = decode(read_bytes(path, TopologyError))
    text, answers = nvlink.split(text)
    text, tables = forwarding.split(text)
    if tables.strip() and not text.strip():
        raise TopologyError(
            f'"{path}" holds forwarding tables alone: put them behind the topology, '
            "ibnetdiscover > FILE; dump_fts >> FILE"
        )
    source, as_of = f'"{path}"', path.stat().st_mtime
    domains, odd = nvlink.parse(answers)
    if domains and not text.strip():
        survey = nvlink.add_domains(Draft().survey(), domains, [*findings, *odd])
        return _add_source(source, as_of, survey)
    survey = nvlink.add_domains(_load_text(findings, text, source, mapping), domains, odd)
    return _add_routes(_add_source(source, as_of, survey), tables, source, as_of)


def live(mapping: Path | None = None, command: Sequence[str] = LIVE) -> Survey:
    """Return the InfiniBand fabric of this machine, as it is now, with its forwarding tables."""
    answer = tool.ask(command, "--topology")
    if answer.code:
        raise answer.refusal(command, "--topology")
    text, findings = decode(answer.out)
    lines = [line for line in answer.err.split("\n") if line.strip()]
    findings += [Remark(kind="said", sentence=line) for line in lines]
    survey = _load_text(findings, text, f'what "{command[0]}" says', mapping)
    tables, odd = _live_tables()
    survey = replace(survey, findings=(*survey.findings, *odd))
    now = time.time()  # wall clock: dates a file, and decides nothing
    return _add_routes(
        _add_source("ibnetdiscover", now, survey), tables, f'"{forwarding.LIVE[0]}"', now
    )


def _add_source(source: str, as_of: float, survey: Survey) -> Survey:
    return replace(survey, fabric=replace(survey.fabric, source=source, as_of=as_of))


def _live_tables() -> tuple[str, list[Remark]]:
    """Return the forwarding tables; a fabric that shows its cables and not its tables is scanned
    without them."""
    try:
        answer = tool.ask(forwarding.LIVE, "--topology")
        if answer.code:
            raise answer.refusal(forwarding.LIVE, "--topology")
    except TopologyError as error:
        return "", [Remark(kind="no-routes", sentence=str(error))]
    text, findings = decode(answer.out)
    return forwarding.split(text)[1], findings


def _add_routes(survey: Survey, tables: str, source: str, as_of: float) -> Survey:
    if not tables.strip():
        return survey
    fabric = survey.fabric
    routes = forwarding.parse(tables, fabric, source, as_of)
    findings = list(survey.findings)
    if routes is None:
        sentence = f"in {source}: no forwarding table is about a switch and a NIC of this fabric"
        findings.append(Remark(kind="no-routes", sentence=sentence))
    else:
        fabric = replace(fabric, routes=routes)
        findings += _astray(fabric)
    return replace(survey, fabric=fabric, findings=tuple(findings))


def _astray(fabric: Fabric) -> list[Remark]:
    """Follow some routes and remark on those that lead nowhere: tables may be older than the
    cables."""
    nics = [nic for nic in fabric.nics if nic.node]
    chosen = nics[:: max(1, len(nics) // FOLLOWED)]
    ways = [(a, b) for a in chosen for b in chosen if a is not b and fabric.hops(a, b)]
    lost = sum(not fabric.route(a, b) for a, b in ways)
    if not lost:
        return []
    sentence = f"{lost:,} of {len(ways):,} routes that were followed do not arrive: "
    sentence += "tables are missing, or older than the cables; there any way counts as possible"
    return [Remark(kind="astray", sentence=sentence)]


def parse(text: str, where: str, owners: Mapping[str, Owner] | None = None) -> Survey:
    """Parse a text; its kind is guessed, and a table is the last guess."""
    if not text.strip():
        raise TopologyError(f"{where} is empty: expected the description of a fabric")
    if _OF_IBNETDISCOVER.search(text):
        return ibnetdiscover.parse(text, owners)
    if _OF_JSON.match(text):
        return _parse_json(text, where)
    if _OF_YAML.search(text):
        return _parse_yaml(parse_yaml(text, where, TopologyError), where)
    if _OF_SLURM.search(text):
        return slurm.parse_conf(text)
    if _OF_ONE_NODE.search(text):
        raise TopologyError(
            f"{where} shows the inside of one node (nvidia-smi topo -m), and no switch between "
            "nodes: anubis bench run node_config reads it"
        )
    survey = table.parse(text)
    unreadable = sum(finding.kind == "unreadable" for finding in survey.findings)
    if not survey.fabric.nics or len(survey.fabric.nics) < unreadable:
        raise _refusal(where)
    return survey


def _refusal(where: str) -> TopologyError:
    return TopologyError(
        f"{where}: no fabric could be read from it; known are ibnetdiscover's output, YAML "
        "like configs/topologies/example.yaml, tables of host and switch, lldpctl -f json, "
        "Slurm's topology.conf and topology.yaml, kubectl get nodes -o json, and nvidia-smi -q "
        "of each host, as pdsh writes it"
    )


def _load_text(findings: list[Remark], text: str, where: str, mapping: Path | None) -> Survey:
    owners = None
    if mapping:
        with named_by_request():
            owners, odd = _load_owners(mapping)
        findings = [*findings, *odd]
    survey = parse(text, where, owners)
    return replace(survey, findings=(*findings, *survey.findings))


def _load_owners(mapping: Path) -> tuple[Mapping[str, Owner], tuple[Remark, ...]]:
    text, odd = decode(read_bytes(mapping, TopologyError))
    owners, more = ibnetdiscover.parse_mapping(text)
    if not owners:
        raise TopologyError(
            f'"{mapping}" names no GUID of a host: expected lines such as "node1'
            ' 0x1070fd0300a1b2c3", or what ibstat -p prints below the name of each host'
        )
    return owners, tuple(locate((*odd, *more), f'"{mapping}"'))


def _parse_json(text: str, where: str) -> Survey:
    try:
        document = json_value(text)
    except ValueError as error:
        return _parse_json_lines(text, where, error)
    if isinstance(document, dict) and ("items" in document or "metadata" in document):
        return kubernetes.parse(document, where)
    if isinstance(document, dict) and not {"racks", "domains"} & document.keys():
        return lldp.parse(text, where)
    return _parse_yaml(document, where)


def _parse_json_lines(text: str, where: str, error: ValueError) -> Survey:
    """Parse one document per line; if that fails too, report that the single document is broken."""
    try:
        return lldp.parse(text, where)
    except TopologyError:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"line {error.lineno}: {error.msg.lower()}; was it cut off?"
        raise TopologyError(f"{where} is not valid JSON: {reason}") from None


def _parse_yaml(document: object, where: str) -> Survey:
    if isinstance(document, list):
        tables = [entry for entry in document if isinstance(entry, dict)]
        if tables and not any("topology" in entry for entry in tables):
            raise _refusal(where)
        return slurm.parse_yaml(document, where)
    if isinstance(document, dict) and ("items" in document or "metadata" in document):
        return kubernetes.parse(document, where)
    return written.parse(document, where)


def _load_folder(folder: Path) -> Survey:
    """Read one file for each host, named after it: node001.json."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise TopologyError(
            f'"{folder}" has no file <host>.json with the output of lldpctl -f json'
        )
    lines, findings = [], []
    for file in files:
        text, odd = decode(read_bytes(file, TopologyError))
        findings += locate(odd, file.name)
        try:
            lines.append(json.dumps({"host": file.stem, **json_value(text)}))
        except (ValueError, TypeError):
            sentence = f"{file.name} is no JSON document: left out"
            findings.append(Remark(kind="unreadable", sentence=sentence))
    survey = lldp.parse("\n".join(lines), f'"{folder}"')
    oldest = min(file.stat().st_mtime for file in files)
    return _add_source(
        f'"{folder}"', oldest, replace(survey, findings=(*findings, *survey.findings))
    )


KINDS = (  # each lists its zeros; a table is the last guess but one
    (is_ethtool, parse_ethtool),
    (is_gnmi, parse_gnmi),
    (is_snmp, parse_snmp),
    (is_table, parse_counters),
)


def load_counters(path: Path) -> CounterReading:
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
