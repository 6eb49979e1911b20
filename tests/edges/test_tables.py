"""Every reader of tables takes a table as spreadsheets, databases and other machines write it."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from anubis.core.errors import AnubisError, EvidenceError
from anubis.lab.study import traces
from anubis.readers.incidents import named_cells
from anubis.readers.jobs.kineto import read_step_table
from anubis.readers.jobs.ranks import read_ranks
from anubis.readers.tables import intake
from anubis.readers.tables.intake import TableMapping
from anubis.readers.telemetry.config import shipped_settings
from anubis.readers.telemetry.recorded import read_recording
from anubis.readers.topology import fabric_sources
from anubis.text.tables import open_table, parse_number, parse_table

Lines = list[list[str]]
STARTED = 1_700_000_000.0


def measurements(path: Path) -> object:
    table = intake.read(path, TableMapping(sku="x"), STARTED)
    return table.series, list(table.samples), table.metrics, table.spans


def telemetry(path: Path) -> object:
    told = read_recording(path, shipped_settings(), ["gpu_duty", "gpu_memory"]).telemetry
    return told.nodes, repr(told.values.tolist())


def fabric(path: Path) -> object:
    links = fabric_sources.load(path).fabric.nics
    return sorted((nic.node, nic.device, nic.switch) for nic in links)


READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "measurements": (
        measurements,
        (
            "node device metric value direction unit\nn1 gpu:0 step 1.5 lower ms\n"
            "n1 gpu:1 step 2.5 lower ms\nn2 gpu:0 step 1.6 lower ms"
        ),
    ),
    "incidents": (
        lambda path: [list(record.cells.values()) for record in named_cells.read(path).rows],
        "node cause from to\nn1 gpu 2026-01-01 2026-01-02\nn2 nic 2026-01-03 2026-01-04",
    ),
    "ranks": (read_ranks, "rank node stage address\n0 n1 0 10.0.0.1\n1 n2 1 10.0.0.2"),
    "steps": (
        read_step_table,
        (
            "rank step stage optype start_ts duration\n0 1 0 compute 1 2\n0 1 0 all_reduce 3 1\n"
            "1 1 0 compute 1 1.5\n1 1 0 all_reduce 2.5 1.5"
        ),
    ),
    "jobs": (
        lambda path: traces.read(path, 8),
        "timestamp duration num_gpus\n2017-10-09T08:00:00 7200 16\n2017-10-09T07:00:00 3600 1",
    ),
    "counters": (
        lambda path: fabric_sources.load_counters(path).counts,
        "name port counter value\nleaf1 3 rx_crc_errors 4\nn1-eth0 1 link_downed 2",
    ),
    "fabric": (fabric, "host switch nic\nn1 leaf1 mlx0\nn2 leaf1 mlx0\nn3 leaf2 mlx0"),
    "telemetry": (
        telemetry,
        (
            "time node metric value\n100 n1 gpu_duty 5\n101 n1 gpu_duty 6\n100 n2 gpu_duty 7\n"
            "101 n2 gpu_duty 8"
        ),
    ),
    "telemetry, wide": (
        telemetry,
        "time node gpu_duty gpu_memory\n2026-01-01T00:00:01Z n1 5 1\n2026-01-01T00:00:02Z n1 6 2",
    ),
}


def written(separator: str = ",", end: str = "\n") -> Callable[[Lines], str]:
    return lambda lines: end.join(map(separator.join, lines)) + end


def with_heading(change: Callable[[str], str]) -> Callable[[Lines], str]:
    return lambda lines: written()([[change(name) for name in lines[0]], *lines[1:]])


def quoted(lines: Lines) -> str:
    return written()([[f'"{cell}"' for cell in line] for line in lines])


MANNERS: dict[str, Callable[[Lines], str | bytes]] = {
    "semicolons": written(";"),
    "tabs": written("\t"),
    "bars": written(" | "),
    "spaces after commas": written(", "),
    "spaces before commas": written(" ,"),
    "quotes": quoted,
    "line ends of DOS": written(end="\r\n"),
    "no line end at last": lambda lines: written()(lines).rstrip("\n"),
    "empty lines": lambda lines: "\n  \n" + written()(lines).replace("\n", "\n\n"),
    "rows of separators only": lambda lines: written()([*lines, [""] * len(lines[0])]),
    "a heading in capitals": with_heading(
        lambda name: name if name.startswith("gpu") else name.upper()
    ),
    "columns in another order": lambda lines: written()([line[::-1] for line in lines]),
    "a mark of UTF-8": lambda lines: written()(lines).encode("utf-8-sig"),
    "UTF-16": lambda lines: written()(lines).encode("utf-16"),
    "UTF-16 without a mark": lambda lines: written()(lines).encode("utf-16-le"),
    "gzip": lambda lines: gzip.compress(written()(lines).encode()),
    "gzip of UTF-16 with tabs": lambda lines: gzip.compress(written("\t")(lines).encode("utf-16")),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("manner", MANNERS)
def test_every_reader_takes_every_manner_of_writing_a_table(reader, manner, tmp_path):
    read, text = READERS[reader]
    lines = [line.split() for line in text.splitlines()]
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    plain.write_text(written()(lines))
    made = MANNERS[manner](lines)
    other.write_bytes(made if isinstance(made, bytes) else made.encode())
    expected, found = read(plain), read(other)
    if reader == "incidents":  # its columns are named by a mapping, in any order
        expected, found = ([sorted(row) for row in rows] for rows in (expected, found))
    assert found == expected


BROKEN = {
    "a quote that is left open": lambda lines: written()(lines) + '"' + "x" * 200_000,
    "a cut archive": lambda lines: gzip.compress(written()(lines).encode())[:-9],
    "nothing": lambda lines: "",
    "no heading": lambda lines: written()([["1", "2"], ["3", "4"]]),
    "a heading in Latin-1": lambda lines: with_heading("ä{}".format)(lines).encode("latin-1"),
    "a column twice": lambda lines: written()([[*line, line[1]] for line in lines]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_table_is_a_sentence_or_a_remark_for_every_reader(reader, damage, tmp_path):
    read, text = READERS[reader]
    path = tmp_path / "broken.csv"
    made = BROKEN[damage]([line.split() for line in text.splitlines()])
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    sentence = ""
    try:
        read(path)
    except AnubisError as error:
        sentence = str(error)
    assert sentence.count(str(path)) == bool(sentence)
    assert "\n" not in sentence
    assert "\ufffd" not in sentence


def test_a_wrong_cell_is_reported_with_file_line_column_found_and_expected(tmp_path):
    path = tmp_path / "steps.tsv"
    path.write_text("\nrank\tduration\n\n3\tlong\n")
    with pytest.raises(EvidenceError) as error, open_table(path, EvidenceError) as table:
        [table.seconds(row, "duration") for row in table]
    assert str(error.value) == f'"{path}", line 4: duration is "long", expected seconds'


def test_a_line_break_in_quotes_stays_and_the_lines_after_it_keep_their_numbers():
    table = parse_table('a,b\n1,"x\ny"\n2,z\n', "it", EvidenceError)
    assert [(table.line, row) for row in table] == [(3, ["1", "x\ny"]), (4, ["2", "z"])]


def test_a_table_longer_than_its_limit_is_refused_at_the_first_line_beyond():
    table = parse_table("a\n1\n2\n", "it", EvidenceError, most_lines=2)
    with pytest.raises(EvidenceError, match="it, line 3: at most 2 lines are read: split the file"):
        list(table)


@pytest.mark.parametrize("text", ["1_00", "\u0661\u0660\u0660", "1e999", "0x64", "1,5", "nan", ""])
def test_a_number_of_a_table_is_written_in_plain_digits(text):
    assert math.isnan(parse_number(text))
    assert parse_number(" -1.5e2 ") == -150.0
