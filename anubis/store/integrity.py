"""The check that a history is still what was written: the database itself, every row with a
checksum, every shared value, and that no row is gone. It changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from anubis.core.errors import StoreError
from anubis.core.text import escape
from anubis.store.assessments import OF_CAMPAIGN, VERDICTS
from anubis.store.campaigns import CAMPAIGNS, SHORT, refuse_gone
from anubis.store.checksums import Damage
from anubis.store.database import Database
from anubis.store.decisions import DECISIONS
from anubis.store.event_records import EVENT_RECORDS
from anubis.store.executions import EXECUTIONS, describe_damage
from anubis.store.holds import HOLDS
from anubis.store.keeping import ACTIONS, KEEPERS, KEPT_BY, LIVES
from anubis.store.measured_nodes import refuse_other_rows
from anubis.store.node_events import ATTRIBUTES, INCIDENTS, JOBS, REPAIRS, WATCHES
from anubis.store.row_counts import ROW_COUNTS, refuse_changed
from anubis.store.row_mapping import UNPACKABLE, RecordTable, SharedTable
from anubis.store.shared_values import ENVIRONMENTS, LAYOUTS, PARTICIPANTS, ROSTERS

OF_NODES: tuple[RecordTable[Any], ...] = (
    *(INCIDENTS, REPAIRS, WATCHES, JOBS),
    *(EVENT_RECORDS, ATTRIBUTES, DECISIONS, HOLDS),
    *(LIVES, ACTIONS, KEEPERS, KEPT_BY),
)
SHARED: tuple[SharedTable, ...] = (PARTICIPANTS, ENVIRONMENTS, LAYOUTS, ROSTERS)
AT_ONCE = 1000  # rows in memory


@dataclass(frozen=True, kw_only=True)
class Soundness:
    """What was checked, and a sentence for each thing that is damaged."""

    campaigns: int
    rows: int
    damages: tuple[str, ...]


class Examination:
    """The examination of one database, once."""

    def __init__(self, database: Database, tell: Callable[[str], None]) -> None:
        self._database = database
        self._tell = tell
        self._rows = 0
        self._campaigns: dict[int, sa.Row[Any]] = {}
        self._there = Counter[tuple[int, str]]()  # rows by campaign and table

    def examine(self) -> Soundness:
        damages = [
            *self._guard("the file", self._file),
            *self._guard("campaigns", self._all_campaigns),
        ]
        for shared in SHARED:
            damages += self._guard(shared.table.name, partial(self._examine_shared, shared))
        for kind in OF_CAMPAIGN:
            damages += self._guard(kind.table.name, partial(self._records, kind))
        for kind in OF_NODES:
            damages += self._guard(kind.table.name, partial(self._examine_nodes, kind))
        damages += self._guard("row_counts", self._row_counts)
        damages += self._find_gone()
        damages += self._guard("what campaigns measured", self._examine_measured)
        return Soundness(
            campaigns=len(self._campaigns),
            rows=self._rows,
            damages=tuple(map(escape, dict.fromkeys(damages))),
        )

    def _guard(self, thing: str, examine: Callable[[], Iterator[str]]) -> Iterator[str]:
        self._tell(f"looking at {thing}, {self._rows:,} rows so far")
        try:
            yield from examine()
        except StoreError as error:
            yield f"{thing} cannot be read to the end: {error}"

    def _file(self) -> Iterator[str]:
        if self._database.dialect != "sqlite":
            return  # a server keeps its pages and its foreign keys by itself
        with self._database.reading() as connection:
            for (line,) in connection.exec_driver_sql("PRAGMA integrity_check"):
                if line != "ok":
                    yield f"the file: {line}"
            for table, _, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
                yield f"a row of {table} names one of {parent} that is not there"

    def _all_campaigns(self) -> Iterator[str]:
        with self._database.reading() as connection:
            for row in connection.execute(sa.select(*SHORT)):
                self._campaigns[row.key] = row
            yield from self._each(connection, CAMPAIGNS, lambda row: f'campaign "{row.id}"')

    def _records(self, kind: RecordTable[Any]) -> Iterator[str]:
        def name(row: sa.Row[Any]) -> str:
            campaign = self._campaigns.get(row.campaign)
            return f'a row of {kind.table.name} of campaign "{campaign.id if campaign else "?"}"'

        with self._database.reading() as connection:
            yield from self._each(connection, kind, name)

    def _examine_nodes(self, kind: RecordTable[Any]) -> Iterator[str]:
        def name(row: sa.Row[Any]) -> str:
            return f'a row of {kind.table.name} of cluster "{row.cluster}"'

        with self._database.reading() as connection:
            yield from self._each(connection, kind, name)

    def _row_counts(self) -> Iterator[str]:
        kinds = {kind.table.name: kind for kind in OF_NODES}
        with self._database.reading() as connection:
            for count in list(ROW_COUNTS.records(connection, ROW_COUNTS.select())):
                try:
                    refuse_changed(connection, count.cluster, kinds[count.name])
                except Damage as damage:
                    yield str(damage)
                except KeyError:
                    yield f'there is no table "{count.name}", whose rows are counted'

    def _each(
        self, connection: sa.Connection, kind: RecordTable[Any], name: Callable[[sa.Row[Any]], str]
    ) -> Iterator[str]:
        read = kind.reader()
        rows = connection.execution_options(yield_per=AT_ONCE).execute(kind.select())
        for row in rows:
            self._rows += 1
            if kind in OF_CAMPAIGN:
                self._there[row.campaign, kind.table.name] += 1
            try:
                read(row)
            except (Damage, *UNPACKABLE) as damage:
                if kind is EXECUTIONS and row.campaign in self._campaigns:
                    yield describe_damage(self._campaigns[row.campaign].id, row, damage)
                else:
                    yield f"{name(row)} is damaged"

    def _examine_shared(self, shared: SharedTable) -> Iterator[str]:
        with self._database.reading() as connection:
            rows = connection.execution_options(yield_per=AT_ONCE).execute(sa.select(shared.table))
            for digest, cell in rows:
                self._rows += 1
                try:
                    shared.check(digest, cell)
                except (Damage, *UNPACKABLE):
                    yield f'value "{digest}" of {shared.table.name} is damaged'

    def _examine_measured(self) -> Iterator[str]:
        for campaign in self._campaigns.values():
            try:
                with self._database.reading() as connection:
                    refuse_other_rows(connection, VERDICTS, campaign)
            except (Damage, *UNPACKABLE) as damage:
                yield str(damage)

    def _find_gone(self) -> Iterator[str]:
        for key, campaign in self._campaigns.items():
            for kind in OF_CAMPAIGN:
                try:
                    refuse_gone(campaign, kind.table.name, self._there[key, kind.table.name])
                except (Damage, *UNPACKABLE) as damage:
                    yield str(damage)
        for key, table in self._there:
            if key not in self._campaigns:
                yield f"rows of {table} belong to a campaign that is gone"
