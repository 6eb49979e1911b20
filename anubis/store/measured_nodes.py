"""Sums over rows of a campaign that SQL puts together, without a look at their checksums: which
benchmarks measured which nodes, and in which of them single nodes were defective. The campaign
keeps each sum from its conclusion on; rows that give another sum are refused."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import sqlalchemy as sa

from anubis.core.records import Ended, Judgement, canonical
from anubis.store.checksums import Damage
from anubis.store.database import PER_QUESTION
from anubis.store.executions import EXECUTIONS
from anubis.store.row_mapping import RecordTable
from anubis.store.shared_values import PARTICIPANTS

BenchmarkNames = tuple[str, ...]  # of benchmarks, in order
ByNode = Mapping[str, BenchmarkNames]

executions, participants = EXECUTIONS.table, PARTICIPANTS.table


@dataclass(frozen=True)
class MeasuredNodes:
    """What measured each node of one campaign, and what does not apply to it."""

    by: ByNode
    inapplicable: ByNode

    @property
    def sum(self) -> int:
        return _sum([sorted(self.by.items()), sorted(self.inapplicable.items())])


def measured_nodes(connection: sa.Connection, keys: Sequence[int]) -> dict[int, MeasuredNodes]:
    """Return what measured the nodes, by the key of the campaign."""
    by, inapplicable = (
        _benchmarks_by_node(connection, keys, ended)
        for ended in (Ended.MEASURED, Ended.NOT_APPLICABLE)
    )
    return {key: MeasuredNodes(by[key], inapplicable[key]) for key in keys}


def _benchmarks_by_node(
    connection: sa.Connection, keys: Sequence[int], ended: Ended
) -> defaultdict[int, dict[str, BenchmarkNames]]:
    measured: defaultdict[int, dict[str, BenchmarkNames]] = defaultdict(dict)
    nodes_of = cache(PARTICIPANTS.check)
    in_order = cache(_sort_names)  # most nodes of a campaign were measured by the same ones
    for start in range(0, len(keys), PER_QUESTION):
        for key, digest, nodes, listed in connection.execute(
            _ended_in(keys[start : start + PER_QUESTION], ended)
        ):
            if not isinstance(listed, str):
                raise Damage("a row of executions is damaged")
            of_campaign = measured[key]
            for node in nodes_of(digest, nodes):
                before = of_campaign.get(node)
                own = in_order(listed)
                of_campaign[node] = own if before is None else _join(before, own)
    return measured


def _ended_in(keys: Sequence[int], ended: Ended) -> sa.Select[Any]:
    """Return a query for campaign, participants, and names of benchmarks with commas between
    them."""
    together = (
        sa.select(
            executions.c.campaign,
            executions.c.participants,
            sa.func.aggregate_strings(executions.c.benchmark, ",").label("names"),
        )
        .where(executions.c.campaign.in_(keys), executions.c.ended == ended.value)
        .group_by(executions.c.campaign, executions.c.participants)
        .subquery()
    )
    return sa.select(
        together.c.campaign, participants.c.digest, participants.c.nodes, together.c.names
    ).join(participants, participants.c.digest == together.c.participants)


@cache
def _join(some: BenchmarkNames, more: BenchmarkNames) -> BenchmarkNames:
    return tuple(sorted({*some, *more}))


def _sort_names(listed: str) -> BenchmarkNames:
    """Return listed names sorted, each once: a benchmark that was repeated is listed twice."""
    return tuple(sorted(set(listed.split(","))))


def failed_alone(
    connection: sa.Connection, verdicts: RecordTable[Any], chosen: sa.ColumnElement[bool]
) -> dict[int, set[tuple[str, str]]]:
    """Return pairs of a single node and a benchmark in which it was defective, by the key of the
    campaign."""
    table, failed = verdicts.table, defaultdict[int, set[tuple[str, str]]](set)
    nodes_of = cache(PARTICIPANTS.check)
    query = (
        sa.select(table.c.campaign, participants.c.digest, participants.c.nodes, table.c.benchmark)
        .join(participants, participants.c.digest == table.c.participants)
        .where(chosen, table.c.judgement == Judgement.DEFECTIVE.value)
        .distinct()
    )
    for key, digest, nodes, benchmark in connection.execute(query):
        match nodes_of(digest, nodes):
            case (node,):
                failed[key].add((node, str(benchmark)))
    return failed


def sum_of_failed(failed: Iterable[tuple[str, str]]) -> int:
    return _sum(sorted(failed))


def _sum(document: Any) -> int:
    return crc32(canonical(document).encode(errors="surrogatepass"))


def refuse_other(campaign: sa.Row[Any], thing: str, there: int) -> None:
    """Raise Damage if a sum is not what it was when the campaign was concluded."""
    if campaign.counts is not None and json.loads(campaign.counts)[thing] != there:
        raise Damage(f'campaign "{campaign.id}" is damaged: {SAID[thing]}')


def refuse_other_rows(
    connection: sa.Connection, verdicts: RecordTable[Any], campaign: sa.Row[Any]
) -> None:
    key = campaign.key
    refuse_other(campaign, MEASURED, measured_nodes(connection, [key])[key].sum)
    failed = failed_alone(connection, verdicts, verdicts.c.campaign == key)
    refuse_other(campaign, FAILED, sum_of_failed(failed.get(key, set())))


MEASURED, FAILED = "measured", "failed"
SAID = {
    MEASURED: "its rows of executions no longer say which benchmarks measured which nodes",
    FAILED: "its rows of verdicts no longer say in which benchmarks nodes were defective",
}
