"""A record and its row: the columns, the way into them and the way back, stated once.

All three follow from the fields of the record. If a field has another form in its row, the table
says how: by another name, another SQL type, or a `Form`. Nothing here knows a record of Anubis.
"""

from __future__ import annotations

import types
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from hashlib import sha256
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar, cast, get_args, get_type_hints

import sqlalchemy as sa

from anubis.core.text import make_storable
from anubis.store import codec
from anubis.store.checksums import Checksum, Damage, fits_long

R = TypeVar("R")
Row = dict[str, Any]  # of a table, by the names of its columns
RowValues = Sequence[Any]  # of a row, in the order of its columns
SqlType = sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]]

PLAIN: Mapping[Any, SqlType] = {str: sa.Text, float: sa.Double, int: sa.Integer, bool: sa.Boolean}
UNPACKABLE = (zlib.error, ValueError, TypeError, AttributeError)  # what damaged bytes lead to
metadata = sa.MetaData()
CHECKED_BY = "checked_by"  # where a table with checksums names its `RecordTable`


class Prose(sa.TypeDecorator[str]):
    """A sentence that may quote what a program printed: bytes that are no text are replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else make_storable(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedTable:
    """Values that many rows have in common, kept once and named by the digest of their text."""

    table: sa.Table
    key: Callable[[Any], Hashable] = codec.identity  # what tells two values apart
    text: Callable[[Any], str]  # of a key
    store: Callable[[str], Any] = codec.identity  # the cell for a text
    text_in: Callable[[Any], str] = codec.identity  # a cell
    load: Callable[[str], Any]  # from the text back to the value

    def check(self, digest: str, cell: Any) -> Any:
        """Return the value in a cell; Damage if it does not match its digest."""
        try:
            text = self.text_in(cell)
            unchanged = digest_of(text) == digest
        except UNPACKABLE:
            unchanged = False
        if not unchanged:
            raise Damage(f'a shared value, "{digest}" of {self.table.name}, is damaged')
        return self.load(text)

    @property
    def cell(self) -> sa.Column[Any]:
        return self.table.columns[1]  # beside the digest


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


Share = Callable[[SharedTable, Any], str]  # the digest of a value that will be on disk by then


# --- forms ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of one value in a row."""

    columns: tuple[sa.Column[Any], ...]
    write: Callable[[Any, Share], RowValues]  # a cell for each column
    # Given the place of its first cell: the way from a row to the value. One is made for each
    # query, so that the rows of one answer may share values.
    reader: Callable[[int], Callable[[RowValues], Any]]
    selected: tuple[sa.Column[Any], ...] = ()  # instead of the columns: from other tables
    joins: tuple[tuple[sa.Column[Any], sa.Table], ...] = ()

    @property
    def sources(self) -> tuple[sa.Column[Any], ...]:
        return self.selected or self.columns


def plain_form(column: sa.Column[Any]) -> Form:
    """Return the form of a value that is kept as it is."""
    return Form(columns=(column,), write=lambda value, _: (value,), reader=itemgetter)


def converted_form(
    column: sa.Column[Any], write: Callable[[Any], Any], read: Callable[[Any], Any]
) -> Form:
    def reader(place: int) -> Callable[[RowValues], Any]:
        return lambda row: read(row[place])

    return Form(columns=(column,), write=lambda value, _: (write(value),), reader=reader)


def packed_form(name: str) -> Form:
    """Return the form of samples as bytes; NULL if there are none."""

    def reader(place: int) -> Callable[[RowValues], Any]:
        return lambda row: row[place] and codec.unpack(row[place], row[place + 1])

    return Form(
        columns=(sa.Column("packing", sa.String(4)), sa.Column(name, sa.LargeBinary)),
        write=lambda samples, _: (None, None) if samples is None else codec.pack(samples),
        reader=reader,
    )


def shared_form(column: sa.Column[Any], shared_table: SharedTable) -> Form:
    """Return the form of a value that is kept in a table of its own; NULL for None."""

    def reader(place: int) -> Callable[[RowValues], Any]:
        values: dict[str | None, Any] = {None: None}

        def read(row: RowValues) -> Any:
            digest = row[place]
            if digest not in values:
                values[digest] = shared_table.check(digest, row[place + 1])
            return values[digest]

        return read

    return Form(
        columns=(column,),
        write=lambda value, share: (None if value is None else share(shared_table, value),),
        reader=reader,
        selected=(column, shared_table.cell),
        joins=((column, shared_table.table),),
    )


def repeated_form(form: Form) -> Form:
    """Return the form of a value that many rows of one answer repeat: it is made once."""

    def reader(place: int) -> Callable[[RowValues], Any]:
        read, end = cache(form.reader(0)), place + len(form.sources)
        return lambda row: read(row[place:end])

    return replace(form, reader=reader)


Exceptional = str | SqlType | Form  # another name, another SQL type, or a form


def side_by_side(
    record: type[Any],
    *,
    keys: Sequence[str] = (),
    together: Mapping[tuple[str, ...], Form] | None = None,
    **exceptions: Exceptional,
) -> Form:
    """Return the form of a record with its fields in columns of one row.

    `keys` are the fields of the primary key; a form may hold several fields `together`.
    """
    hints = get_type_hints(record)
    parts = dict(together or {})
    grouped = {name for names in parts for name in names}
    for name in (field.name for field in fields(record) if field.name not in grouped):
        exception = exceptions.pop(name, name)
        parts[name,] = (
            exception
            if isinstance(exception, Form)
            else _derive(name, hints[name], exception, name in keys)
        )
    if exceptions:
        raise TypeError(f'{record.__name__} has no field "{min(exceptions)}"')
    return _compose(record, parts)


def _derive(name: str, hint: Any, exception: str | SqlType, primary_key: bool) -> Form:
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next(kind for kind in kinds if kind is not types.NoneType)
    renamed = isinstance(exception, str)
    column: sa.Column[Any] = sa.Column(
        exception if renamed else name,
        cast(SqlType, PLAIN.get(kind, sa.Text) if renamed else exception),
        primary_key=primary_key,
        nullable=types.NoneType in kinds,
    )
    if kind in PLAIN:
        return plain_form(column)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return converted_form(
            column,
            lambda value: None if value is None else value.value,
            lambda cell: None if cell is None else kind(cell),
        )
    return converted_form(column, codec.dump, lambda text: codec.load(hint, text))


def _compose(record: type[Any], parts: Mapping[tuple[str, ...], Form]) -> Form:
    forms = tuple(parts.values())
    getters = [(attrgetter(*names), form.write) for names, form in parts.items()]

    def write(value: Any, share: Share) -> RowValues:
        return [cell for get, cells in getters for cell in cells(get(value), share)]

    def reader(place: int) -> Callable[[RowValues], Any]:
        places = accumulate((len(form.sources) for form in forms), initial=place)
        readers = [
            (names, form.reader(first))
            for (names, form), first in zip(parts.items(), places, strict=False)
        ]
        single = [(names[0], read) for names, read in readers if len(names) == 1]
        several = [(names, read) for names, read in readers if len(names) > 1]

        def read_record(row: RowValues) -> Any:
            values = {name: read(row) for name, read in single}
            for names, read in several:
                values.update(zip(names, read(row), strict=True))
            return record(**values)

        return read_record

    return Form(
        columns=tuple(column for form in forms for column in form.columns),
        write=write,
        reader=reader,
        selected=tuple(source for form in forms for source in form.sources),
        joins=tuple(join for form in forms for join in form.joins),
    )


# --- tables --------------------------------------------------------------------------------


def _nothing_shared(shared: SharedTable, value: Any) -> str:
    raise TypeError(f'the table "{shared.table.name}" needs rows that are written with `Sharing`')


class RecordTable(Generic[R]):
    """A table whose rows are records of one kind, with columns beside them that are not theirs."""

    def __init__(
        self,
        name: str,
        record: type[R],
        *beside: sa.schema.SchemaItem,
        form: Form | None = None,
        checked: bool = False,
        long: Sequence[str] = (),  # columns that a list of many rows does without
        unchecked: Sequence[str] = (),
        checksum: type[Checksum] = Checksum,
        **fields: Any,  # as `side_by_side` takes them
    ) -> None:
        self._form = form or side_by_side(record, **fields)
        self._names = tuple(column.name for column in self._form.columns)
        self.table = sa.Table(name, metadata, *self._form.columns, *beside)
        self.c = self.table.c
        self._sources = self._form.sources
        self.checksum: Checksum | None = None
        if checked:
            self._check(checksum, long, unchecked)
            self.table.info[CHECKED_BY] = self
        self._places = {column: place for place, column in enumerate(self._sources)}

    def _check(
        self, checksum: type[Checksum], long: Sequence[str], unchecked: Sequence[str]
    ) -> None:
        """Keep a checksum of all cells beside them, except a key that is not known beforehand."""
        kept = [column for column in self.c if column is not self.table.autoincrement_column]
        short = [column for column in kept if column.name not in {*long, *unchecked}]
        self.checksum = checksum(short, [self.c[name] for name in long])
        self.table.append_column(self.checksum.column)
        beside = [column for column in kept if column not in {*self._sources}]
        self._sources = (*self._sources, *beside, self.checksum.column)

    def row(self, record: R, share: Share = _nothing_shared, /, **beside: Any) -> Row:
        row = dict(zip(self._names, self._form.write(record, share), strict=True)) | beside
        return self.stamp(row)

    def stamp(self, row: Row) -> Row:
        """Return the row with its checksum, if this table has one."""
        return row | {"checksum": self.checksum.compute(row)} if self.checksum else row

    def check_rows(self, rows: Iterable[sa.RowMapping]) -> Iterator[sa.RowMapping]:
        """Yield rows of the table itself, by the names of its columns; a damaged row raises."""
        for row in rows:
            if self.checksum and not self.checksum.fits(
                row["checksum"],
                [row[column.name] for column in self.checksum.short],
                [row[column.name] for column in self.checksum.long],
            ):
                raise Damage(f"a row of {self.table.name} is damaged")
            yield row

    def revise(
        self, connection: sa.Connection, chosen: sa.ColumnElement[bool], **changes: Any
    ) -> int:
        """Change cells, and checksums with them, and return how many rows."""
        rows = connection.execute(sa.select(self.table).where(chosen)).mappings().all()
        keys, names = list(self.table.primary_key), [*changes, "checksum"]
        revised = [
            {f"was_{key.name}": row[key.name] for key in keys}
            | {f"is_{name}": self._revise_row(row, changes)[name] for name in names}
            for row in self.check_rows(rows)
        ]
        if revised:
            same = [key == sa.bindparam(f"was_{key.name}") for key in keys]
            values: Row = {name: sa.bindparam(f"is_{name}") for name in names}
            connection.execute(sa.update(self.table).where(*same).values(values), revised)
        return len(rows)

    def redate(
        self,
        connection: sa.Connection,
        chosen: sa.ColumnElement[bool],
        date: Callable[[float], float],
        *names: str,
    ) -> tuple[list[Row], list[Row]]:
        """Date these columns anew, and checksums with them; return the rows as they were and as
        they are, without long cells. `date`: keeps the order."""
        assert self.checksum is not None
        keys, short = list(self.table.primary_key), self.checksum.short
        query = sa.select(*{*keys, *short}, self.checksum.column).where(chosen)
        were, rows = list[Row](), list[Row]()
        for mapping in connection.execute(query).mappings():
            was: Row = dict(mapping)
            if not self.checksum.fits_short(was["checksum"], [was[c.name] for c in short]):
                raise Damage(f"a row of {self.table.name} is damaged")
            times = {name: was[name] and date(was[name]) for name in names}
            if any(times[name] != was[name] for name in names):
                were.append(was)
                rows.append(self.checksum.renew({**was, **times}))
        pairs = sorted(zip(were, rows, strict=True), key=lambda pair: pair[0][names[0]])
        if any(row[names[0]] > was[names[0]] for was, row in pairs):
            pairs.reverse()  # so that no two have the same key meanwhile
        values: Row = {name: sa.bindparam(f"is_{name}") for name in (*names, "checksum")}
        same = [key == sa.bindparam(f"was_{key.name}") for key in keys]
        changes = [
            {f"was_{key.name}": was[key.name] for key in keys}
            | {f"is_{name}": row[name] for name in values}
            for was, row in pairs
        ]
        if changes:
            connection.execute(sa.update(self.table).where(*same).values(values), changes)
        return were, rows

    def _revise_row(self, row: sa.RowMapping, changes: Row) -> Row:
        return self.stamp({**row, **changes})

    def select(self) -> sa.Select[Any]:
        query = sa.select(*self._sources).select_from(self.table)
        for column, table in self._form.joins:
            query = query.join(table, column == table.c.digest, isouter=True)
        return query

    def place(self, column: sa.Column[Any]) -> int:
        """Return the place of a column in the rows of `select`."""
        return self._places[column]

    def reader(self) -> Callable[[RowValues], R]:
        """Return a reader of the rows of one answer, whatever else they have at their end."""
        read: Callable[[RowValues], R] = self._form.reader(0)
        if self.checksum is None:
            return read
        fits_short = self.checksum.fits_short
        short = itemgetter(*map(self.place, self.checksum.short))
        long = tuple(map(self.place, self.checksum.long))
        checksum = self.place(self.checksum.column)

        def read_checked(row: RowValues) -> R:
            cells = tuple(row)
            if not fits_short(cells[checksum], short(cells)):
                raise Damage(f"a row of {self.table.name} is damaged")
            if not fits_long(cells[checksum], [cells[place] for place in long]):
                raise Damage(f"a row of {self.table.name} is damaged", only_long=True)
            return read(cells)

        return read_checked

    def is_short_sound(self, row: RowValues) -> bool:
        """Return whether the short cells are as they were written."""
        assert self.checksum is not None
        short = [row[self.place(column)] for column in self.checksum.short]
        return self.checksum.fits_short(row[self.place(self.checksum.column)], short)

    def records(self, connection: sa.Connection, query: sa.Select[Any]) -> Iterator[R]:
        """Return the records of a query that began with `select`."""
        return map(self.reader(), connection.execute(query))
