"""Port counters of switches by gNMI, as `gnmic` prints them: its JSON, or its events.

Both forms name the switch (`source`). The paths are those of OpenConfig and of vendors alike, with
the port as a key, or SONiC's `COUNTERS/Ethernet0/...`. Telegraf's JSON has the same form as events.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.core.network.counters import PORT_DOWN
from anubis.core.records import Count
from anubis.readers.topology.ethernet_counters import TELLING, unreadable
from anubis.text.files import json_value

SOURCES = ("source", "target", "hostname", "agent_host")  # the tag that names the switch
STATES = {"oper-status", "oper-state", "oper_status"}  # of a port, as it is
WISHES = {"admin-status", "admin-state", "admin_status"}  # as it should be
DOWN, OFF = {"DOWN", "LOWER_LAYER_DOWN"}, {"DOWN", "DISABLE"}

_DOCUMENT = re.compile(r"\n(?=[\[{])")  # each begins at the left margin
_OF_GNMI = re.compile(r'"(?:updates|values|fields)"\s*:')
_TAG = re.compile(r"(?:.*[/_:])?(?:interface|port)[-_](?:name|interface-id|id)|interface-id|ifName")
_PORT = re.compile(r"(?:interface|port)\[(?:name|interface-id|port-id|id)=([^\]]*)\]")
_KEYS = re.compile(r"\[[^\]]*\]")
_OF_SONIC = re.compile(r"(Ethernet\d+(?:/\d+)*)(?::\d+)?")  # a port, or one of its queues
_WHOLE = re.compile(r"\d{1,20}")
_DOOR = re.compile(r":\d{1,5}$")  # of the switch's server


def is_gnmi(text: str) -> bool:
    return text.lstrip()[:1] in ("[", "{") and bool(_OF_GNMI.search(text))


@dataclass(frozen=True)
class _Leaf:
    """A value at the end of a path of some switch."""

    switch: str
    port: str
    path: str  # whole and with all tags, so that queues and priorities of a port differ
    name: str  # its last element, without its module
    value: Any
    at: float


def parse_gnmi(text: str, where: str) -> tuple[list[Count], list[Remark]]:
    """Return the newest counters of each port, those of its queues and priorities added up."""
    findings: list[Remark] = []
    newest: dict[tuple[str, str, str], _Leaf] = {}
    for message in _messages(text, findings):
        for leaf in _leaves(message):
            key = leaf.switch, leaf.port, leaf.path
            if key not in newest or newest[key].at <= leaf.at:
                newest[key] = leaf
    counts = [*_counts(newest.values()), *_down_ports(newest.values())]
    if not counts:
        raise TopologyError(
            f"{where}: no counter has a switch and a port: expected the output of gnmic, with"
            ' "source" and paths such as interfaces/interface[name=Ethernet1]/state/counters'
        )
    return counts, findings


def _messages(text: str, findings: list[Remark]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of all documents, one behind the other."""
    line = 1
    for piece in _DOCUMENT.split(text):
        if piece.strip():
            try:
                document = json_value(piece)
            except ValueError:
                findings.append(unreadable(piece, line))
            else:
                listed = document if isinstance(document, list) else [document]
                yield from (message for message in listed if isinstance(message, dict))
        line += piece.count("\n") + 1


def _leaves(message: Mapping[str, Any]) -> Iterator[_Leaf]:
    tags = message.get("tags")
    about = tags if isinstance(tags, dict) else message
    named = next((about[key] for key in SOURCES if isinstance(about.get(key), str)), "")
    switch = _DOOR.sub("", named)
    stamp = message.get("timestamp")
    at = float(stamp) if isinstance(stamp, int | float) else 0.0
    updates = _tagged(message, about) if isinstance(tags, dict) else _pathed(message)
    for path, port, value in updates if switch else ():
        rest = str(sorted(tags.items(), key=str)) if isinstance(tags, dict) else ""
        for way, of_port, end in _walk(value, path, port):
            name = _KEYS.sub("", way).rpartition("/")[2].rpartition(":")[2]
            if of_port:
                yield _Leaf(switch, of_port, way + rest, name, end, at)


def _tagged(message: Mapping[str, Any], tags: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, the port and the value of each update of an event."""
    port = next((value for tag, value in tags.items() if _TAG.fullmatch(tag)), tags.get("name"))
    for form in ("values", "fields"):
        values = message.get(form)
        for path, value in values.items() if isinstance(values, dict) else ():
            yield path, str(port or ""), value


def _pathed(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, no port and the value of each update of a message in the first form."""
    updates, prefix = message.get("updates"), message.get("prefix") or ""
    for update in updates if isinstance(updates, list) else ():
        if isinstance(update, dict) and isinstance(update.get("values"), dict):
            path = f"{prefix}/{update.get('Path') or update.get('path') or ''}"
            for below, value in update["values"].items():
                last, end = (_KEYS.sub("", way).rpartition("/")[2] for way in (below, path))
                yield (path if last == end else f"{path}/{last}"), "", value


def _walk(value: Any, path: str, port: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, the port and the value of each leaf below a value."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _walk(below, f"{path}/{key}", port)
    elif isinstance(value, list):
        for entry in value:
            yield from _walk(entry, path + _entry_key(entry), port)
    else:
        yield path, _port_in(path) or port, value


def _entry_key(entry: Any) -> str:
    """The key of an entry of a list, as paths write it."""
    for key in ("name", "interface-id", "port-id", "id"):
        if isinstance(entry, dict) and isinstance(entry.get(key), str | int):
            return f"[{key}={entry[key]}]"
    return ""


def _port_in(path: str) -> str:
    """The port in a path: the key of a list of interfaces, or SONiC's name of it."""
    if keyed := _PORT.search(path):
        return keyed.group(1)
    steps = _KEYS.sub("", path).split("/")
    if not any(step.startswith(("COUNTERS", "SAI_")) for step in steps):
        return ""
    named = (_OF_SONIC.fullmatch(step) for step in steps)
    return next((match.group(1) for match in named if match), "")


def _counts(leaves: Collection[_Leaf]) -> Iterator[Count]:
    totals: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for leaf in leaves:
        count = _whole(leaf.value)
        if count is not None and TELLING.search(leaf.name):
            totals[leaf.switch, leaf.port, leaf.name] += count
    for (switch, port, counter), value in totals.items():
        yield Count(guid="", name=switch, port=port, counter=counter, value=value)


def _whole(value: Any) -> int | None:
    """A number that a counter can show; JSON has large ones as text."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    is_count = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_count and value >= 0 and float(value).is_integer() else None


def _down_ports(leaves: Collection[_Leaf]) -> Iterator[Count]:
    """Yield a count for each port whose state is known: 1 if it should be up, and is not."""
    off = {
        (leaf.switch, leaf.port)
        for leaf in leaves
        if leaf.name in WISHES and str(leaf.value).upper() in OFF
    }
    for leaf in leaves:
        if leaf.name in STATES and "subinterface" not in leaf.path:
            place = leaf.switch, leaf.port
            is_down = str(leaf.value).upper() in DOWN and place not in off
            switch, port = place
            yield Count(guid="", name=switch, port=port, counter=PORT_DOWN, value=int(is_down))
