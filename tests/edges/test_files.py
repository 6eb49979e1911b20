"""Files from outside: each limit is a sentence, and none costs memory or minutes."""

from __future__ import annotations

import gzip
import io
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest

from anubis.core.errors import HostlistError, OutputError, RiskError, StoreError, UsageError
from anubis.models.risk import risk_files as risk_files
from anubis.readers.topology import slurm
from anubis.store.claims import acting_lock
from anubis.store.database import Database
from anubis.text import hostlist
from anubis.text.files import (
    DEEPEST,
    MOST_RATIO,
    json_value,
    parse_yaml,
    read_bytes,
    read_text,
    whole_file,
    write_whole,
)
from anubis.text.tables import open_table

ROOT = Path(__file__).parents[2]
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{next_}: &{next_} [{','.join([f'*{name}'] * 9)}]\n"
    for name, next_ in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BOMB, "it stands for more than 2,000,000 values"),
        (BOMB.replace("[", "{<<: [").replace("]", "]}"), "values|expected a mapping"),
        ("a: &a [*a]", "nest too deep"),
        ("[" * 500 + "]" * 500, "nest too deep"),
        (f"a: {'9' * 5000}", "a number has 5,000 digits"),
        ("a: 2026-99-99", "month must be in"),
        ("? [a, b]\n: c", "a key is a list or a table"),
        ("a: 1\n" * (2 << 20), "larger than 8 MiB of YAML"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
    ids=["aliases", "merges", "in itself", "depth", "digits", "no date", "key", "size", "code"],
)
def test_yaml_that_would_take_all_memory_or_run_code_is_refused(text: str, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        parse_yaml(text, "it", UsageError)


def test_aliases_and_merges_within_reason_are_read():
    text = "base: &b {a: 1}\nlist: [*b, *b]\nmore: {<<: *b, c: 2}"
    document = {"base": {"a": 1}, "list": [{"a": 1}, {"a": 1}], "more": {"a": 1, "c": 2}}
    assert parse_yaml(text, "it", UsageError) == document


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nest too deep"),
        ("[" * 100_000, "nest too deep"),
        ("9" * 5000, "a number has 5,000 digits"),
        (r'{"a\ud800": 1}', "half a character"),
    ],
)
def test_json_has_limits_too(text: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        json_value(text)


def test_json_at_its_limits_is_read():
    deepest = "[" * DEEPEST + "]" * DEEPEST
    assert json_value(deepest) is not None
    assert json_value(r'"\ud83d\ude00"') == "\U0001f600"
    many = "[" + ",".join(['{"a": "[[[[\\"{{"}'] * 500) + "]"
    assert len(json_value(many)) == 500


def test_a_small_archive_does_not_become_a_large_text(tmp_path: Path):
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(UsageError, match=f"more than 256 MiB or {MOST_RATIO} times its size"):
        read_bytes(bomb, UsageError)
    refused = pytest.raises(UsageError, match=rf"{MOST_RATIO} times its size|a line of more than")
    with refused, open_table(bomb, UsageError) as table:
        list(table)


def test_archives_of_several_members_are_read_whole_and_cut_ones_refused(tmp_path: Path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert read_text(path, UsageError) == "one\ntwo\n"
    path.write_bytes(gzip.compress(b"one\n" * 1000)[:-5])
    with pytest.raises(UsageError, match="not a complete gzip file"):
        read_text(path, UsageError)


def test_a_file_larger_than_its_limit_is_refused(tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2000)
    with pytest.raises(UsageError, match="larger than"):
        read_bytes(path, UsageError, limit=1999)
    assert len(read_bytes(path, UsageError, limit=2000)) == 2000


def test_a_model_takes_no_more_memory_than_its_file(tmp_path: Path):
    packed, promising = tmp_path / "packed.npz", tmp_path / "promising.npz"
    np.savez_compressed(packed, head=np.zeros(1 << 20, dtype=np.uint8))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 30,)}
    )
    with zipfile.ZipFile(promising, "w") as archive:
        archive.writestr("head.npy", head.getvalue())
    for path in (packed, promising):
        with pytest.raises(RiskError, match="not a complete model file"):
            risk_files.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "n[1-999999][1-999999][1-999999]",
        "n[" + ",".join(["1-999999"] * 1000) + "]",
        "n[1-" + "9" * 30,
    ],
)
def test_a_node_list_of_a_line_does_not_fill_the_memory(text: str):
    with pytest.raises(HostlistError):
        hostlist.expand(text)


def test_a_number_of_5000_digits_in_a_node_list_is_a_sentence():
    with pytest.raises(HostlistError, match="is not a number or range"):
        hostlist.expand(f"n[1-{'9' * 5000}]")


def test_a_topology_of_one_long_word_is_read_as_fast_as_any():
    """A pattern that tries each beginning of the word would take minutes."""
    before = signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, 20.0)  # of the processor, for a thousandth of it
    try:
        survey = slurm.parse_conf("SwitchName" * 50_000)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert [finding.kind for finding in survey.findings] == ["unreadable", "empty"]


def _give_up(*_: object) -> None:
    raise TimeoutError("20 s of processor time for half a megabyte")


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_writer_leaves_the_earlier_file_and_no_other(tmp_path: Path, trouble):
    file = tmp_path / "page.html"
    file.write_text("earlier")
    file.chmod(0o644)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        _write_half(file, trouble)
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("earlier", [file])
    write_whole(file, b"later", OutputError, "it")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("later", 0o644)
    like_any, new = tmp_path / "any", tmp_path / "new"
    like_any.touch()
    write_whole(new, b"first", OutputError, "it")
    assert new.stat().st_mode == like_any.stat().st_mode, "others may read what is new as well"


def _write_half(file: Path, trouble: BaseException) -> None:
    with whole_file(file, OutputError, "it") as new:
        new.write(b"half of it")
        raise trouble


def test_a_link_planted_beside_a_file_is_not_followed(tmp_path: Path):
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("mine")
    (tmp_path / ".file.new").symlink_to(victim)
    write_whole(file, b"kept", UsageError, "it")
    assert (file.read_bytes(), victim.read_text()) == (b"kept", "mine")
    database = Database.open(str(tmp_path / "history.sqlite"))
    (tmp_path / "history.sqlite.acting.lock").symlink_to(victim)
    with pytest.raises(StoreError, match="Too many levels of symbolic links"):
        acting_lock(database).has()
    database.close()
    assert victim.read_text() == "mine"
