"""An InfiniBand fabric as `ibnetdiscover` prints it, and the hosts of its HCAs.

An HCA is identified by its GUID. Its host is in its description, "node001 mlx5_0", if the host has
set it; otherwise a mapping may name it, or else the host is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from anubis.core.fabric import Remark
from anubis.readers.topology.draft import Draft, Survey

LANE_GBIT_S = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
IGNORED = re.compile(
    r"\s*(#.*|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=.*|(Non-)?Chassis\b.*|Hostname:.*)?"
)
BEGIN = re.compile(r'\s*(Switch|Ca|Rt)\s+\d+\s+"(\w-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?.*')
PORT = re.compile(
    r"\s*\[(\d{1,5})\](?:\[ext \d+\])?\s*(?:\(([0-9a-fA-F]+)\))?\s*"
    r'"(\w-[0-9a-fA-F]+)"\[(\d{1,5})\](?:\[ext \d+\])?\s*(?:\(([0-9a-fA-F]+)\))?\s*(?:#(.*))?'
)
DESCRIPTION = re.compile(r'"([^"]*)"')
SPEED = re.compile(r"\b(\d{1,5})x([A-Z]+\d*)\b")
LID = re.compile(r"\blid (\d{1,5})\b")
DEVICE = r"HCA-\d+|(?:mlx\d+|bnxt_re|irdma|hfi1|qib|qedr|efa|rdmap|rocep|ib|ens|enp|eth)\w*"
OF_A_HOST = re.compile(rf"(\S+?)(?:\s+({DEVICE})(?:\s.*)?)?")
UNSET = re.compile(r"localhost\b.*|\(none\).*|MT\d+\b.*|Connect-?X.*|.*Mellanox Technologies.*|")
AGGREGATION = "Aggregation Node"  # SHARP: the switch itself, as an HCA
CHASSIS = re.compile(r"MF0;([^:]+):[^/]+(?:/(?!U\d+$)(\w+))?(?:/U\d+)?")


@dataclass(frozen=True)
class Owner:
    host: str
    device: str = ""  # "" where only the host is known


@dataclass
class _Block:
    kind: str
    description: str
    line: int


@dataclass(frozen=True)
class _End:
    """The far end of a port, from a line in the block of the near end."""

    id: str
    port: str
    guid: str  # the port GUID of the end that is not a switch
    description: str
    gbit_s: float | None
    line: int
    lid: int  # of the end that is not a switch


Ports = dict[tuple[str, str], _End]


def parse(text: str, owners: Mapping[str, Owner] | None = None) -> Survey:
    """Parse the output; `owners` by node GUID or port GUID, in hexadecimal without leading
    zeros."""
    draft = Draft()
    blocks, ports = _read(text, draft)
    _name_those_without_block(blocks, ports, draft)
    _add_switches(blocks, draft)
    _report_one_sided(blocks, ports, draft)
    _add_cables(blocks, ports, draft)
    _add_hcas(blocks, ports, owners or {}, draft)
    return draft.survey()


def guid_of(text: str) -> str:
    """Return one spelling for 0x0002c903…, 0002:c903:…, H-0002c903…"""
    return re.sub(r"^(0x|[HS]-)|:", "", text).lower().lstrip("0")


def switch_name(description: str) -> str:
    """Return the switch's plain name, without the chassis parts: MF0;leaf-4:MQM9701/U1 is
    leaf-4."""
    chassis = CHASSIS.fullmatch(description)
    parts = [part for part in chassis.groups() if part] if chassis else []
    return "/".join(parts) or description


def _read(text: str, draft: Draft) -> tuple[dict[str, _Block], Ports]:
    blocks: dict[str, _Block] = {}
    ports: Ports = {}
    here = ""
    for line, row in enumerate(text.split("\n"), start=1):
        if IGNORED.fullmatch(row):
            continue
        if begin := BEGIN.fullmatch(row):
            kind, here, description = begin.groups()
            if here in blocks:
                draft.find("twice", f"{here} is described again", line)
            blocks[here] = _Block(kind, description or "", line)
        elif (port := PORT.fullmatch(row)) and here:
            number, own_guid, far_id, far, far_guid, comment = port.groups()
            described = DESCRIPTION.search(comment or "")
            lids = LID.findall(comment or "")  # of a Ca its own, then the switch's
            ports[here, number] = _End(
                id=far_id,
                port=far,
                guid=guid_of(own_guid or far_guid or ""),
                description=described.group(1) if described else "",
                gbit_s=_speed(comment or ""),
                line=line,
                lid=int(lids[0]) if lids else 0,
            )
        else:
            draft.find("unreadable", f'cannot be read, left out: "{row.strip()[:60]}"', line)
    return blocks, ports


def _speed(comment: str) -> float | None:
    words = SPEED.findall(comment)
    if not words or words[-1][1] not in LANE_GBIT_S:
        return None
    lanes, name = words[-1]
    return float(lanes) * LANE_GBIT_S[name]


def _name_those_without_block(blocks: dict[str, _Block], ports: Ports, draft: Draft) -> None:
    """Add blocks that are missing because the file ends too early; they are known only from the
    ends of cables."""
    missing: dict[str, _End] = {}
    for end in ports.values():
        if end.id not in blocks:
            missing.setdefault(end.id, end)
    kinds = {"S": "Switch", "H": "Ca", "R": "Rt"}
    for id, end in missing.items():
        blocks[id] = _Block(kinds.get(id[0], "Ca"), end.description, 0)
    if missing:
        some = ", ".join(sorted(missing)[:3])
        draft.find(
            "cut-off",
            f"cabled but not described: {len(missing)} ({some}); "
            "the output was cut off, or they did not answer",
        )


def _add_switches(blocks: Mapping[str, _Block], draft: Draft) -> None:
    for id, block in blocks.items():
        if block.kind == "Switch":
            draft.switch(id, switch_name(block.description), guid_of(id))


def _report_one_sided(blocks: Mapping[str, _Block], ports: Ports, draft: Draft) -> None:
    def name(id: str, port: str) -> str:
        description = switch_name(blocks[id].description)
        return f"{id if UNSET.fullmatch(description) else description}[{port}]"

    for (id, port), end in ports.items():
        back = ports.get((end.id, end.port))
        sentence = f"{name(id, port)} is cabled to {name(end.id, end.port)}, which"
        if back is None and blocks[end.id].line:
            draft.find("one-sided", f"{sentence} does not list it", end.line)
        elif back and (back.id, back.port) != (id, port):
            draft.find("contradiction", f"{sentence} names {name(back.id, back.port)}", end.line)


def _add_cables(blocks: Mapping[str, _Block], ports: Ports, draft: Draft) -> None:
    added: set[tuple[str, str]] = set()
    for (id, port), end in ports.items():
        far = (end.id, end.port)
        if blocks[id].kind != "Switch" or blocks[end.id].kind != "Switch" or (id, port) in added:
            continue
        added |= {(id, port), far}
        speed = _slower(end, ports.get(far))
        draft.cable(id, end.id, ports=(port, end.port), gbit_s=speed, line=end.line)


def _slower(end: _End, back: _End | None) -> float | None:
    speeds = [side.gbit_s for side in (end, back) if side and side.gbit_s is not None]
    return min(speeds, default=None)


@dataclass(frozen=True)
class _Cabling:
    """An HCA's port and the switch's port it is cabled to."""

    id: str
    port: str
    switch: str
    switch_port: str
    guid: str
    gbit_s: float | None
    line: int
    lid: int


def _add_hcas(
    blocks: Mapping[str, _Block], ports: Ports, owners: Mapping[str, Owner], draft: Draft
) -> None:
    rail_nics = _rail_nics(blocks, ports, draft)
    guids: dict[str, list[str]] = {}
    for rail_nic in rail_nics:
        guids.setdefault(rail_nic.id, [guid_of(rail_nic.id)]).append(rail_nic.guid)
    named = {id: _owner(guids[id], blocks[id], owners) for id in guids}
    _drop_shared_names(named, rail_nics, draft)
    _report_unowned(named, rail_nics, blocks, draft)
    cabled = Counter(rail_nic.id for rail_nic in rail_nics)
    first: dict[str, str] = {}
    for rail_nic in sorted(rail_nics, key=lambda rail_nic: int(rail_nic.port)):
        first.setdefault(rail_nic.id, rail_nic.port)
    for rail_nic in rail_nics:
        owner = named[rail_nic.id]
        further = rail_nic.port != first[rail_nic.id]
        device = owner.device if owner else ""
        draft.nic(
            node=owner.host if owner else "",
            device=f"{device}/{rail_nic.port}" if further else device,
            switch=rail_nic.switch,
            id=rail_nic.id if cabled[rail_nic.id] == 1 else f"{rail_nic.id}[{rail_nic.port}]",
            port=rail_nic.switch_port,
            gbit_s=rail_nic.gbit_s,
            guid=rail_nic.guid or guid_of(rail_nic.id),
            lid=rail_nic.lid,
            line=rail_nic.line,
        )
    present = {guid_of(rail_nic.id) for rail_nic in rail_nics} | {
        rail_nic.guid for rail_nic in rail_nics
    }
    for guid in owners.keys() - present:
        sentence = f"the HCA {guid} of {owners[guid].host} is in the mapping and not in the fabric"
        draft.find("not-cabled", sentence)


def _rail_nics(blocks: Mapping[str, _Block], ports: Ports, draft: Draft) -> list[_Cabling]:
    """Return every HCA port once, whichever end names it; those that belong to no host are left
    out."""
    rail_nic_of: dict[tuple[str, str], _Cabling] = {}
    aggregation = 0
    for (id, port), end in ports.items():
        hca = end.id if blocks[id].kind == "Switch" else id
        if blocks[hca].kind == "Switch":
            continue
        if hca == id and blocks[end.id].kind != "Switch":
            draft.find("no-switch", f"{id} is cabled to {end.id} without a switch", end.line)
            continue
        near = _Cabling(id, port, end.id, end.port, end.guid, end.gbit_s, end.line, end.lid)
        if hca != id:
            near = _Cabling(end.id, end.port, id, port, end.guid, end.gbit_s, end.line, end.lid)
        key = (near.id, near.port)
        if key in rail_nic_of:
            continue
        if blocks[hca].kind == "Rt":
            draft.find("router", f"the router {hca} is no host: left out", end.line)
        elif AGGREGATION in blocks[hca].description:
            aggregation += 1
        else:
            rail_nic_of[key] = near
            continue
        rail_nic_of[key] = _Cabling("", "", "", "", "", None, 0, 0)
    if aggregation:
        draft.find("aggregation", f"SHARP aggregation nodes, no hosts: {aggregation} left out")
    return [rail_nic for rail_nic in rail_nic_of.values() if rail_nic.id]


def _owner(guids: list[str], block: _Block, owners: Mapping[str, Owner]) -> Owner | None:
    """Return the host of an HCA: the mapping decides it; the description may still give the
    device."""
    described = None
    if not UNSET.fullmatch(block.description) and (
        match := OF_A_HOST.fullmatch(block.description.strip())
    ):
        described = Owner(match.group(1), match.group(2) or "")
    unset = re.fullmatch(rf"localhost\s+({DEVICE})", block.description)
    mapped = next((owners[guid] for guid in guids if guid in owners), None)
    if mapped is None or mapped.device:
        return mapped or described
    device = described.device if described else unset.group(1) if unset else ""
    return Owner(mapped.host, device)


def _drop_shared_names(
    named: dict[str, Owner | None], rail_nics: list[_Cabling], draft: Draft
) -> None:
    """Drop names that two HCAs have: they belong to two hosts that cannot be told apart."""
    holders: dict[Owner, list[str]] = {}
    for id, owner in named.items():
        if owner:
            holders.setdefault(owner, []).append(id)
    lines = {rail_nic.id: rail_nic.line for rail_nic in rail_nics}
    for owner, ids in holders.items():
        if len(ids) > 1 and owner.device:
            sentence = f'{len(ids)} HCAs are called "{owner.host} {owner.device}" '
            sentence += f"({', '.join(ids[:3])}): their hosts are unknown"
            draft.find("same-description", sentence, lines[ids[1]])
            named.update(dict.fromkeys(ids))


def _report_unowned(
    named: Mapping[str, Owner | None],
    rail_nics: list[_Cabling],
    blocks: Mapping[str, _Block],
    draft: Draft,
) -> None:
    for rail_nic in rail_nics:
        if named[rail_nic.id] is None:
            described = blocks[rail_nic.id].description
            if UNSET.fullmatch(described) or not OF_A_HOST.fullmatch(described.strip()):
                sentence = f'the description of {rail_nic.id}, "{described}", names no host'
                draft.find("no-host", f"{sentence}: give a mapping", rail_nic.line)


# --- host to HCA -----------------------------------------------------------------------------

GUID = re.compile(r"(0x)?[0-9a-fA-F]{12,16}|([0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}")


def parse_mapping(text: str) -> tuple[dict[str, Owner], list[Remark]]:
    """Parse lines of `host guid [device]` in any order, or a line with a host above those of its
    GUIDs.

    So the collected output of `ibstat -p`, host by host, is a mapping too.
    """
    owners: dict[str, Owner] = {}
    findings = []
    host = ""
    for line, row in enumerate(text.split("\n"), start=1):
        words = row.partition("#")[0].replace(",", " ").replace(";", " ").split()
        guids = [word for word in words if GUID.fullmatch(word)]
        further = [word for word in words if not GUID.fullmatch(word)]
        devices = [word for word in further if re.fullmatch(DEVICE, word)]
        names = [word for word in further if word not in devices]
        if not words or not guids:
            host = names[-1] if names else host
            continue
        host = names[-1] if names else host
        if not host:
            sentence = f'"{row.strip()[:60]}" names no host'
            findings.append(Remark(kind="mapping", sentence=sentence, line=line))
        for guid in guids if host else ():
            owner = Owner(host, devices[0] if len(devices) == 1 else "")
            before = owners.setdefault(guid_of(guid), owner)
            if before.host != host:
                sentence = f"{guid} is given to {before.host} and to {host}: the first is taken"
                findings.append(Remark(kind="mapping", sentence=sentence, line=line))
    return owners, findings
