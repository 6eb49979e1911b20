"""Telemetry in files, read and written: CSV, Parquet and OpenMetrics text, packed or not.

Tables are long (time,node,metric,value) or wide (time,node and a column for each metric). Times are
seconds or milliseconds since 1970, or ISO 8601 (UTC if no zone is named).
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Ints
from anubis.core.errors import TelemetryError, UsageError, did_you_mean
from anubis.core.watch.alignment import (
    Grid,
    SampledSeries,
    align,
    gap_of,
    grid_over,
    rates,
    step_of,
)
from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.agents import agent_rows
from anubis.readers.telemetry.config import TelemetrySettings
from anubis.readers.telemetry.pulled import MOST_CELLS, PulledTelemetry, silences
from anubis.text import files
from anubis.text.hostlist import drop_port
from anubis.text.tables import Table, own_column, parse_table

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 8 << 30  # of a recording
MOST_ROWS = 400_000_000  # as columns they fill some GB of memory
MOST_LINES = 20_000_000  # of OpenMetrics text, which is read line by line
MOST_NODES = 100_000  # more than any job has
SAMPLED = 1 << 16  # bytes that tell the form of a file
LONGEST_STEP_S = 600.0  # between samples; a watch compares minutes
MILLISECONDS_FROM = 1e11  # a time beyond this is no number of seconds before the year 5000
LONG = ("time", "node", "metric", "value")
PARQUET = b"PAR1"
NODE_LABELS = ("node", "instance", "Hostname", "host", "nodename")


@dataclass
class _Table:
    """The content of a file, before anything is put on a grid."""

    nodes: tuple[str, ...]
    samples: dict[str, SampledSeries]
    remarks: list[str] = field(default_factory=list)


def read_recording(
    path: Path, settings: TelemetrySettings, names: Sequence[str], *, nodes: Sequence[str] = ()
) -> PulledTelemetry:
    """Read telemetry. `names` are the metrics asked for. `nodes`: only these, in this order."""
    metrics = settings.watched_metrics(names)
    table = _read(path, settings, names)
    table = _only(table, nodes, path) if nodes else table
    grid = _grid(table, path, len(metrics))
    telemetry = align(table.samples, metrics, table.nodes, grid)
    return PulledTelemetry(
        telemetry=telemetry, remarks=(*table.remarks, *silences(telemetry, settings))
    )


def write_recording(telemetry: Telemetry, path: Path) -> None:
    """Write a wide table: Parquet, or CSV by its suffix, packed if that ends in .gz."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    rows = len(telemetry.nodes) * telemetry.points
    node_of = np.repeat(np.arange(len(telemetry.nodes), dtype=np.int32), telemetry.points)
    columns: dict[str, Any] = {
        "time": pa.array(np.tile(telemetry.times, len(telemetry.nodes))),
        "node": pa.DictionaryArray.from_arrays(node_of, list(telemetry.nodes)),
    }
    for metric, values in zip(telemetry.metrics, telemetry.values, strict=True):
        columns[metric.name] = pa.array(values.reshape(rows), from_pandas=True)
    table = pa.table(columns)
    with files.whole_file(path, TelemetryError, "the recording") as file:
        if not path.name.endswith((".csv", ".csv.gz")):
            parquet.write_table(table, file, compression="zstd", use_dictionary=["node", "time"])
            return
        table = table.set_column(1, "node", table["node"].cast(pa.string()))
        with _packed(file) if path.name.endswith(".gz") else nullcontext(file) as text:
            csv.write_csv(table, text)


def _packed(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=file, compresslevel=5, mtime=0))


# --- which kind of file ----------------------------------------------------------------------


def _read(path: Path, settings: TelemetrySettings, names: Sequence[str]) -> _Table:
    where = f'"{path}"'
    with files.refuse_unreadable(where, TelemetryError):
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(4)
            if size > MOST_BYTES:
                raise TelemetryError(
                    f"{where} is larger than {MOST_BYTES >> 30} GiB, the most that is read:"
                    " split it"
                )
            if start == PARQUET:
                return _parquet(path, names, where)
            with _text(file, where) as text:
                first = _first_line(text, where)
                if first.startswith('{"agent"') or (not first and path.suffix == ".jsonl"):
                    return _agent(text, names, where)
                if _is_openmetrics(first, path):
                    return _openmetrics(text, settings, names, where)
                with suppress(_UnplacedError):
                    return _csv(text, names, where)
            with _text(file, where) as text:
                return _csv(text, names, where, fast=False)


@contextmanager
def _text(file: IO[bytes], where: str) -> Iterator[io.BufferedReader]:
    """Yield the text unpacked, as UTF-8, never more than a file of its size can honestly hold."""
    file.seek(0)
    with files.open_unpacked(file, where, TelemetryError, 1 << 20) as text:
        if files.encoding_of(text.peek(SAMPLED)[:SAMPLED]).startswith("utf-8"):
            yield text
            return
        data = text.read(files.MOST_BYTES + 1)
        if len(data) > files.MOST_BYTES:
            raise TelemetryError(f"{where} is too large to be read as UTF-16: save it as UTF-8")
        yield io.BufferedReader(cast(Any, io.BytesIO(files.decode(data).encode())), 1 << 20)


def _first_line(text: io.BufferedReader, where: str) -> str:
    sample = text.peek(SAMPLED)[:SAMPLED].removeprefix(codecs.BOM_UTF8)
    try:
        return sample.lstrip().partition(b"\n")[0].decode().strip()
    except UnicodeDecodeError:
        raise TelemetryError(
            f"{where} is neither Parquet nor text: expected CSV, Parquet or OpenMetrics"
        ) from None


def _is_openmetrics(first: str, path: Path) -> bool:
    suffixes = (".prom", ".om", ".openmetrics", ".prom.gz", ".om.gz", ".openmetrics.gz")
    return first.startswith("#") or "{" in first or path.name.endswith(suffixes)


# --- tables ----------------------------------------------------------------------------------


class _UnplacedError(Exception):
    """Something is wrong, and only a slower reading says in which line."""


def _csv(text: io.BufferedReader, names: Sequence[str], where: str, *, fast: bool = True) -> _Table:
    import pyarrow as pa
    from pyarrow import compute, csv

    sample = text.peek(SAMPLED)[:SAMPLED].decode("utf-8-sig", errors="replace")
    beginning = parse_table(sample, where, TelemetryError)  # Arrow reads the rest, at its speed
    header, skipped = _own_names(beginning.heading), beginning.line
    columns = _columns(header, names, where)
    types = {
        column: pa.dictionary(pa.int32(), pa.string())
        if column in ("node", "metric")
        else pa.float64()
        if column != "time"
        else None
        for column in columns.used
    }
    first_row = next(iter(beginning), [])
    place = header.index("time")
    kind = _kind_of_time(first_row[place] if place < len(first_row) else "")
    is_padded = kind != pa.float64() and _is_padded(sample, beginning)
    types["time"] = pa.string() if is_padded else kind  # Arrow's dates have no space beside them
    convert = csv.ConvertOptions(
        column_types=types,
        include_columns=list(columns.used),
        null_values=["", "NaN", "nan", "null", "None", "NULL"],
        strings_can_be_null=True,
    )
    try:
        table = csv.read_csv(
            text,
            read_options=csv.ReadOptions(
                block_size=4 << 20, column_names=header, skip_rows=skipped, use_threads=fast
            ),
            parse_options=csv.ParseOptions(delimiter=beginning.separator),
            convert_options=convert,
        )
        if is_padded:
            times = compute.utf8_trim_whitespace(table["time"]).cast(kind)
            table = table.set_column(table.column_names.index("time"), "time", times)
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as cause:
        if fast:
            raise _UnplacedError from None
        raise TelemetryError(f"{where}: {_csv_sentence(str(cause))}") from None
    return _from_arrow(table, columns, where)


def _is_padded(sample: str, table: Table) -> bool:
    """Decide by the row that was read last if spaces stand beside the separators."""
    line = sample.split("\n")[table.line - 1]
    return bool(re.search(rf" {re.escape(table.separator)}|{re.escape(table.separator)} ", line))


def _own_names(heading: Sequence[str]) -> list[str]:
    """Return the heading with the columns that every table has in Anubis' own spelling."""
    spelled = {own_column(heading, name): name for name in LONG}
    return [spelled.get(name, name) for name in heading]


def _kind_of_time(cell: str) -> Any:
    import pyarrow as pa

    try:
        float(cell)
    except ValueError:
        zoned = re.search(r"(Z|[+-]\d\d:?\d\d)\s*$", cell)
        return pa.timestamp("ms", tz="UTC") if zoned else pa.timestamp("ms")
    return pa.float64()


def _csv_sentence(finding: str) -> str:
    """Return Arrow's words without its own names for things; it counts rows, the heading too."""
    row = re.search(r"Row #(\d+)", finding)
    line = f"line {row[1]}: " if row else ""
    if wrong := re.search(r"Expected (\d+) columns, got (\d+)", finding):
        return f"{line}expected {wrong[1]} columns, found {wrong[2]}"
    if wrong := re.search(r"conversion error to (\w+).*invalid value '(.*?)'", finding, re.S):
        kind = "a time" if wrong[1].startswith("timestamp") else "a number"
        return f'{line}expected {kind}, found "{" ".join(wrong[2].split())[:40]}"'
    if "straddling" in finding:
        return "a line is longer than 4 MiB: is it a table?"
    if "UTF8" in finding:
        return f"{line}it is not UTF-8 text; save it as UTF-8"
    return line + " ".join(finding.split())[:200]


def _parquet(path: Path, names: Sequence[str], where: str) -> _Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = _columns(list(parquet.read_schema(path).names), names, where)
        texts = [name for name in columns.used if name in ("node", "metric")]
        file = parquet.ParquetFile(path, read_dictionary=texts, memory_map=True)
        if file.metadata.num_rows > MOST_ROWS:
            raise TelemetryError(
                f"{where} has {file.metadata.num_rows:,} rows, expected at most {MOST_ROWS:,}:"
                " split it"
            )
        table = file.read(columns=list(columns.used))
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as cause:
        raise TelemetryError(
            f"cannot read {where} as Parquet: {' '.join(str(cause).split())[:200]}"
        ) from None
    return _from_arrow(table, columns, where)


@dataclass(frozen=True)
class _Columns:
    used: tuple[str, ...]
    metrics: tuple[str, ...]  # of a wide table; none: it is a long one
    remarks: tuple[str, ...]


def _columns(header: Sequence[str], names: Sequence[str], where: str) -> _Columns:
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise TelemetryError(f'{where} has two columns "{repeated[0]}": rename one')
    for name in ("time", "node"):
        if name not in header:
            raise TelemetryError(
                f'{where} has no column "{name}"; expected time,node,metric,value, or time,node and'
                f" a column for each metric; {_hint(name, header)}"
            )
    if "metric" in header and "value" in header:
        return _Columns(LONG, (), ())
    metrics = tuple(name for name in header if name in names)
    if not metrics:
        raise TelemetryError(
            f'{where} has no column of a metric that is asked for, such as "{names[0]}":'
            f" {_hint(names[0], header)}"
        )
    return _Columns(("time", "node", *metrics), metrics, ())


def _hint(name: str, header: Sequence[str]) -> str:
    return did_you_mean(name, [text[:40] for text in header[:20]])


def _from_arrow(table: pa.Table, columns: _Columns, where: str) -> _Table:
    remarks = list(columns.remarks)
    nodes, rows = _labels(table["node"], where, "node")
    times = _seconds(table["time"], where)
    if lost := int(np.count_nonzero((rows < 0) | ~np.isfinite(times))):
        remarks.append(f"{lost:,} of {len(rows):,} rows name no node or no time, and are left out")
    if columns.metrics:
        samples = {
            name: SampledSeries(rows=rows, times=times, values=_numbers(table[name], where, name))
            for name in columns.metrics
        }
        return _Table(nodes=nodes, samples=samples, remarks=remarks)
    metrics, kinds = _labels(table["metric"], where, "metric")
    values = _numbers(table["value"], where, "value")
    samples = {}
    for kind, name in enumerate(metrics):
        of_metric = np.flatnonzero(kinds == kind)
        samples[name] = SampledSeries(
            rows=rows[of_metric], times=times[of_metric], values=values[of_metric]
        )
    return _Table(nodes=nodes, samples=samples, remarks=remarks)


def _labels(column: Any, where: str, name: str) -> tuple[tuple[str, ...], Ints]:
    """Return the different texts of a column, and which of them each row has; -1: none."""
    import pyarrow as pa

    try:
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        array = column.unify_dictionaries().combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = (
                pa.concat_arrays(array.chunks)
                if array.num_chunks
                else pa.array([], type=column.type)
            )
        spelled = [str(text).strip() for text in array.dictionary.to_pylist()]
        places = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    except (pa.ArrowException, AttributeError, ValueError) as cause:
        raise TelemetryError(f'{where}: the column "{name}" holds no texts: {cause}') from None
    texts = tuple(dict.fromkeys(spelled))
    if texts != tuple(spelled):  # a space before or after is no other name
        place_of = {text: place for place, text in enumerate(texts)}
        places = np.array([*map(place_of.__getitem__, spelled), -1], dtype=np.int64)[places]
    if len(texts) > MOST_NODES:
        raise TelemetryError(
            f'{where}: {len(texts):,} different texts in the column "{name}", expected at most'
            f" {MOST_NODES:,}"
        )
    return texts, places


def _numbers(column: Any, where: str, name: str) -> Floats:
    import pyarrow as pa

    try:
        if not pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
        return cast(Floats, column.to_numpy())
    except (pa.ArrowException, ValueError) as cause:
        raise TelemetryError(
            f'{where}: the column "{name}" holds no numbers: {" ".join(str(cause).split())[:100]}'
        ) from None


def _seconds(column: Any, where: str) -> Floats:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        milliseconds = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
        column = milliseconds.cast(pa.int64()).cast(pa.float64(), safe=False)
        return cast(Floats, column.to_numpy() / 1e3)
    times = np.asarray(_numbers(column, where, "time"), dtype=np.float64)
    return _plausible(times)


def _plausible(times: Floats) -> Floats:
    """Return times in seconds; NaN if nothing can have been sampled then."""
    finite = times[np.isfinite(times)]
    if len(finite) and float(np.median(finite)) > MILLISECONDS_FROM:
        times = times / 1e3
    with np.errstate(invalid="ignore"):
        return np.where((times >= 0) & (times < MILLISECONDS_FROM), times, np.nan)


# --- what an agent recorded ------------------------------------------------------------------


def _agent(text: io.BufferedReader, names: Sequence[str], where: str) -> _Table:
    """Read an agent's recording. Files of several nodes may be joined: each part names its node."""
    parts = agent_rows(text, where)
    nodes = tuple(dict.fromkeys(part.node for part in parts))
    rows = np.concatenate([np.full(len(part.times), nodes.index(part.node)) for part in parts])
    times = _plausible(np.concatenate([part.times for part in parts]))
    samples = {
        name: SampledSeries(
            rows=rows, times=times, values=np.concatenate([part.column(name) for part in parts])
        )
        for name in names
        if any(name in part.names for part in parts)
    }
    return _Table(nodes=nodes, samples=samples)


# --- OpenMetrics -----------------------------------------------------------------------------

_LINE = re.compile(
    r"([a-zA-Z_:][\w:]*)?(?:\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?\s+(\S+)\s+(\S+)(?:\s+#.*)?\s*"
)
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")


@dataclass
class _Series:
    rows: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def samples(self) -> SampledSeries:
        return SampledSeries(
            rows=np.array(self.rows, dtype=np.int64),
            times=_plausible(np.array(self.times, dtype=np.float64)),
            values=np.array(self.values, dtype=np.float64),
        )


def _openmetrics(
    text: io.BufferedReader, settings: TelemetrySettings, names: Collection[str], where: str
) -> _Table:
    """Read OpenMetrics text that uses Anubis' names: only a Prometheus turns the names of exporters
    into metrics."""
    labels = tuple(dict.fromkeys((settings.node_label, *NODE_LABELS)))
    row_of: dict[str, int] = {}
    place_of: dict[str, tuple[_Series, int] | None] = {}  # of what stands before the value
    series: dict[str, _Series] = {}
    counters: set[str] = set()
    strangers: set[str] = set()
    for number, raw in enumerate(text, 1):
        if number > MOST_LINES:
            raise TelemetryError(
                f"{where} has more than {MOST_LINES:,} lines: write it as Parquet or CSV"
            )
        line = _decode(raw, where, number)
        if not line or line.startswith("#"):
            kind = line.split()
            if kind[1:2] == ["TYPE"] and kind[3:4] == ["counter"]:
                counters.add(kind[2].removesuffix("_total"))
            continue
        matched = _LINE.fullmatch(line)
        if not matched:
            raise TelemetryError(
                f"{where}, line {number}: expected a series, its value and its time, found"
                f' "{line[:60]}"'
            )
        key = line[: matched.start(3)]
        if key not in place_of:
            name, node = _series_of(matched, labels)
            name = name.removesuffix("_total")
            if name not in names:
                strangers.add(name[:60])
                place_of[key] = None
            elif not node:
                raise TelemetryError(
                    f'{where}, line {number}: no label names the node, expected "{labels[0]}" or'
                    f" one of {', '.join(labels[1:])}"
                )
            else:
                row = row_of.setdefault(node, len(row_of))
                place_of[key] = series.setdefault(name, _Series()), row
        place = place_of[key]
        if place is not None:
            value, time = _number(matched[3], where, number), _number(matched[4], where, number)
            place[0].rows.append(place[1])
            place[0].times.append(time)
            place[0].values.append(value)
    samples = {name: collected.samples() for name, collected in series.items()}
    for name in counters & set(samples):
        samples[name] = rates(samples[name], gap_of(step_of([samples[name]])))
    remarks = []
    if strangers and not samples:
        raise TelemetryError(
            f'{where} has no series of a metric that is asked for, but "{min(strangers)}"; names of'
            " exporters are turned into metrics by a Prometheus only"
        )
    if strangers:
        remarks.append(f"{len(strangers):,} other series are left out, as {min(strangers)}")
    return _Table(nodes=tuple(row_of), samples=samples, remarks=remarks)


def _decode(raw: bytes, where: str, number: int) -> str:
    try:
        return raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise TelemetryError(f"{where}, line {number}: it is not UTF-8 text") from None


def _series_of(matched: re.Match[str], labels: Sequence[str]) -> tuple[str, str]:
    values = dict(_LABEL.findall(matched[2] or ""))
    node = next((values[label] for label in labels if values.get(label)), "")
    return matched[1] or values.get("__name__", ""), drop_port(node)


def _number(text: str, where: str, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise TelemetryError(
            f'{where}, line {number}: expected a number, found "{text[:40]}"'
        ) from None


# --- from what was told to a grid ------------------------------------------------------------


def _only(table: _Table, nodes: Sequence[str], path: Path) -> _Table:
    place = {node: row for row, node in enumerate(nodes)}
    if not set(nodes) & set(table.nodes):
        raise UsageError(
            f'"{path}" has no node "{nodes[0]}"; {did_you_mean(nodes[0], table.nodes[:1000])}'
        )
    rows = np.array([*(place.get(node, -1) for node in table.nodes), -1], dtype=np.int64)
    made: dict[int, Ints] = {}  # metrics of a wide table share their rows

    def rename(samples: SampledSeries) -> SampledSeries:
        if id(samples.rows) not in made:
            made[id(samples.rows)] = rows[samples.rows]
        return SampledSeries(
            rows=made[id(samples.rows)], times=samples.times, values=samples.values
        )

    return _Table(
        nodes=tuple(nodes),
        samples={name: rename(samples) for name, samples in table.samples.items()},
        remarks=table.remarks,
    )


def _grid(table: _Table, path: Path, metrics: int) -> Grid:
    spans = [
        _span(samples) for samples in {id(s.times): s for s in table.samples.values()}.values()
    ]
    start = min((first for first, _ in spans), default=math.inf)
    end = max((last for _, last in spans), default=-math.inf)
    if not start <= end:
        raise TelemetryError(f'"{path}" holds no samples')
    step = step_of(list({id(s.times): s for s in table.samples.values()}.values()))
    if not step > 0:
        raise TelemetryError(
            f'"{path}" holds one sample of a node at most, expected a series of them'
        )
    if step > LONGEST_STEP_S:
        raise TelemetryError(
            f'"{path}" has a sample of a node every {step:,.0f} s, expected one in'
            f" {LONGEST_STEP_S:g} s or less: is a time wrong?"
        )
    if (end - start) / step * len(table.nodes) * metrics > MOST_CELLS:
        raise TelemetryError(
            f'"{path}" spans {(end - start) / HOUR_S:,.1f} h of {len(table.nodes):,} nodes every'
            f" {step:g} s, which is too much at once: leave out its beginning, or look for"
            f" a wrong time in it"
        )
    return grid_over(start, end, step)


def _span(samples: SampledSeries) -> tuple[float, float]:
    times = samples.times[np.isfinite(samples.times) & (samples.rows >= 0)]
    return (float(times.min()), float(times.max())) if len(times) else (math.inf, -math.inf)
