"""The node of each rank: from a table, or from the nodes of a job in the order of their ranks."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from anubis.core.diagnose.evidence import RankMap
from anubis.core.errors import EvidenceError
from anubis.text.files import read_text

COLUMNS = ("rank", "node", "stage", "address")
MOST_RANKS = 1_000_000


def number_ranks(nodes: Sequence[str], per_node: int) -> RankMap:
    """Number ranks as launchers do: the first so many are the first node's."""
    ranks = (node for node in nodes for _ in range(per_node))
    return RankMap(nodes=dict(enumerate(ranks)), addresses={node: node for node in nodes})


def read_ranks(path: Path) -> RankMap:
    """Read a CSV file with a header: rank and node and, if they are known, stage and address."""
    return parse_ranks(read_text(path, EvidenceError), f'"{path}"')


def parse_ranks(text: str, where: str) -> RankMap:
    rows = csv.DictReader(text.splitlines(), restval="", skipinitialspace=True)
    if missing := [name for name in COLUMNS[:2] if name not in (rows.fieldnames or ())]:
        raise EvidenceError(
            f'{where}: the first line has no "{missing[0]}", expected columns such as '
            f"{','.join(COLUMNS)}"
        )
    nodes: dict[int, str] = {}
    stages: dict[int, int] = {}
    addresses: dict[str, str] = {}
    for row in rows:
        line = f"{where}, line {rows.line_num}"
        rank, node = _number(row["rank"], "rank", line), row["node"].strip()
        if not node:
            raise EvidenceError(f"{line}: rank {rank} has no node")
        if nodes.setdefault(rank, node) != node:
            raise EvidenceError(f"{line}: rank {rank} is on {nodes[rank]} and on {node}")
        if row.get("stage"):
            stages[rank] = _number(row["stage"], "stage", line)
        addresses[node] = node
        if address := (row.get("address") or "").strip():
            addresses[address] = node
    if not nodes:
        raise EvidenceError(f"{where}: no ranks")
    return RankMap(nodes=nodes, stages=stages, addresses=addresses)


def _number(cell: str, name: str, line: str) -> int:
    text = cell.strip()
    if not (text.isascii() and text.isdigit() and int(text[:9]) < MOST_RANKS and len(text) < 9):
        raise EvidenceError(f'{line}: {name} is "{text[:40]}", expected a number from 0')
    return int(text)
