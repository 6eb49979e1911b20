"""A table with a line for each NIC: host, switch, and more columns if a header names them."""

from __future__ import annotations

import re
from collections import Counter

from anubis.readers.topology.draft import Draft, Survey
from anubis.text.tables import separator_of, split_line

COLUMNS = {  # what the words of a header mean; the upper tiers from the bottom up
    "host": ("host", "hostname", "node", "nodename", "node_name", "server", "ip", "address"),
    "switch": ("switch", "leaf", "tor", "asw", "leaf_switch", "leafswitch", "switch_name"),
    "device": ("nic", "device", "hca", "interface", "rail", "ifname", "netdev"),
    "port": ("port", "switch_port", "switchport", "port_id"),
    "tier 2": ("spine", "psw", "agg", "aggregation", "pod"),
    "tier 3": ("core", "dsw", "superspine", "super_spine"),
}
NAME = re.compile(r"\w[\w.:/-]*")
MEANING = {word: column for column, words in COLUMNS.items() for word in words}


def parse(text: str) -> Survey:
    draft = Draft()
    rows = _rows(text)
    header = _header(rows[0][1]) if rows else {}
    if header:
        for word in [word for word in rows[0][1] if _word(word) not in MEANING]:
            draft.find("column", f'the column "{word}" is not known: left out', rows[0][0])
        rows = rows[1:]
    columns = header or {"host": 0, "switch": 1, "device": 2}
    times = Counter(
        (row[columns["host"]], _cell(row, columns, "device"))
        for _, row in rows
        if len(row) > columns["host"]
    )
    _say_if_numbered(draft, times, columns)
    met: Counter[str] = Counter()
    links: set[tuple[str, str]] = set()
    for line, row in rows:
        host, switch = _cell(row, columns, "host"), _cell(row, columns, "switch")
        listed = header or len(row) in (2, 3)
        if not (listed and NAME.fullmatch(host) and NAME.fullmatch(switch)):
            draft.find("unreadable", f'names no host and switch: "{",".join(row)[:60]}"', line)
            continue
        device = _cell(row, columns, "device")
        if not device and times[host, ""] > 1:
            met[host] += 1
            device = f"nic{met[host]}"
        draft.nic(
            node=host, device=device, switch=switch, port=_cell(row, columns, "port"), line=line
        )
        above = [_cell(row, columns, tier) for tier in ("tier 2", "tier 3")]
        for low, high in zip([switch, *above], above, strict=False):
            if low and high and (low, high) not in links:
                links.add((low, high))
                draft.uplink(low, high, line=line)
    return draft.survey()


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """Return the cells of each line that is not empty, with its number."""
    lines = [line.partition("#")[0] for line in text.split("\n")]
    sample = next((line for line in lines if line.strip()), "")
    separator = separator_of(sample)
    numbered = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            cells = split_line(line, separator) if separator else line.split()
            numbered.append((number, cells))
    return numbered


def _header(row: list[str]) -> dict[str, int]:
    """Return the position of each column; empty if the first line is not a header."""
    columns: dict[str, int] = {}
    for position, word in enumerate(row):
        if _word(word) in MEANING:
            columns.setdefault(MEANING[_word(word)], position)
    return columns if "host" in columns and "switch" in columns else {}


def _word(cell: str) -> str:
    return cell.casefold().replace(" ", "_").replace("-", "_")


def _cell(row: list[str], columns: dict[str, int], name: str) -> str:
    position = columns.get(name, len(row))
    return row[position] if position < len(row) else ""


def _say_if_numbered(
    draft: Draft, times: Counter[tuple[str, str]], columns: dict[str, int]
) -> None:
    several = [host for (host, device), count in times.items() if count > 1 and not device]
    if several:
        draft.find(
            "numbered",
            f"hosts with several lines that name no NIC: {len(several)} ({several[0]}); "
            "their NICs are numbered as they come",
        )
