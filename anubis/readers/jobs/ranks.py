"""The node of each rank: from a table, or from the nodes of a job in the order of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anubis.core.diagnose.evidence import RankMap
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.trace_reader import MOST_RANKS
from anubis.text.tables import Table, open_table, parse_table

COLUMNS = ("rank", "node", "stage", "address")


def number_ranks(nodes: Sequence[str], per_node: int) -> RankMap:
    """Number ranks as launchers do: the first so many are the first node's."""
    ranks = (node for node in nodes for _ in range(per_node))
    return RankMap(nodes=dict(enumerate(ranks)), addresses={node: node for node in nodes})


def read_ranks(path: Path) -> RankMap:
    """Read a table with a heading: rank and node and, if they are known, stage and address."""
    with open_table(path, EvidenceError) as table:
        return _ranks(table)


def parse_ranks(text: str, where: str) -> RankMap:
    return _ranks(parse_table(text, where, EvidenceError))


def _ranks(table: Table) -> RankMap:
    table.require(*COLUMNS[:2], columns=COLUMNS)
    nodes: dict[int, str] = {}
    stages: dict[int, int] = {}
    addresses: dict[str, str] = {}
    for row in table:
        rank, node = table.whole(row, "rank", MOST_RANKS), table.name(row, "node")
        if nodes.setdefault(rank, node) != node:
            raise EvidenceError(f"{table.at}: rank {rank} is on {nodes[rank]} and on {node}")
        if table.cell(row, "stage"):
            stages[rank] = table.whole(row, "stage", MOST_RANKS)
        addresses[node] = node
        if address := table.cell(row, "address"):
            addresses[address] = node
    if not nodes:
        raise EvidenceError(f"{table.where}: no ranks")
    return RankMap(nodes=nodes, stages=stages, addresses=addresses)
