"""Lines of logs of any size, and when they were written: bounded, whatever is in the files.

A line is cut at `LONGEST` letters, a file is read from `MOST_BYTES` before its end. Bytes that are
no text are replaced. Nothing here knows what lines mean.
"""

from __future__ import annotations

import calendar
import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, cast

from anubis.core.amounts import DAY_S
from anubis.core.errors import EvidenceError
from anubis.text.files import GZIPPED

LONGEST = 4096  # letters of a line that are kept
MOST_BYTES = 1 << 30  # of a file, from its end; of a gzipped one, unpacked
CHUNK = 1 << 20  # bytes
MOST_FILES = 50_000  # logs, several for each machine
REPLACED = "\ufffd"  # stands for bytes that are no text
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NO_LOGS = {  # what lies beside logs
    *(".json", ".jsonl", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".npz", ".npy", ".csv"),
    *(".png", ".html", ".yaml", ".yml", ".py", ".safetensors", ".sqlite", ".db", ".trace"),
}


def log_files(path: Path) -> list[Path]:
    """Return the file, or all that may be logs in a folder and those below it, in the order of
    names."""
    if not path.exists():
        raise EvidenceError(f'there is no file or folder "{path}"')
    if path.is_file():
        return [path]
    files: list[Path] = []
    for file in _files_below(path):
        files.append(file)
        if len(files) > MOST_FILES:
            raise EvidenceError(f'"{path}" has more than {MOST_FILES} files: name fewer')
    if not files:
        raise EvidenceError(f'"{path}" has no logs')
    return sorted(files)


def last_written(path: Path, enough: float) -> float | None:
    """Return the time of the last write to any log there, or the first that is later than `enough`.
    None: there is no log, or it cannot be read."""
    newest: float | None = None
    try:
        for file in islice([path] if path.is_file() else _files_below(path), MOST_FILES):
            at = file.stat().st_mtime
            newest = at if newest is None else max(newest, at)
            if newest > enough:
                break
    except OSError:
        return None
    return newest


def _files_below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.suffix not in NO_LOGS and not file.name.startswith(".") and file.is_file():
            yield file


def read_lines(
    path: Path, *, longest: int = LONGEST, most_bytes: int | None = None
) -> Iterator[str]:
    """Yield lines without their ends. A carriage return ends one as well: progress bars use it. A
    packed file that was cut off ends with its last whole line. `most_bytes`: from the end of a file
    that is not packed."""
    try:
        with path.open("rb") as file:
            head = file.read(2)
            if head == GZIPPED:
                file.seek(0)
                with gzip.open(file) as unpacked:
                    yield from split_lines(cast(IO[bytes], unpacked), longest)
                return
            start = max(0, file.seek(0, 2) - (most_bytes or MOST_BYTES))
            file.seek(start - start % 2)
            yield from split_lines(file, longest, encoding=UTF_16.get(head, ""), is_cut=start > 0)
    except (OSError, ValueError, EOFError, zlib.error) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise EvidenceError(f'cannot read "{path}": {reason}') from None


def split_lines(
    file: IO[bytes], longest: int = LONGEST, *, encoding: str = "", is_cut: bool = False
) -> Iterator[str]:
    """Yield lines. `is_cut`: the first one lacks its beginning, which says whose it is, and is left
    out."""
    rest, total, recoded = b"", 0, None
    while total < MOST_BYTES:
        try:
            chunk = file.read1(CHUNK) if isinstance(file, gzip.GzipFile) else file.read(CHUNK)
        except EOFError:
            if total:
                return  # a packed file was cut off here, and so was its last line
            raise
        if not chunk:
            break
        if not total and (encoding := encoding or UTF_16.get(chunk[:2], "")):
            recoded = codecs.getincrementaldecoder(encoding)("replace")
        total += len(chunk)
        if recoded:
            chunk = recoded.decode(chunk).encode(errors="replace")
        *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        yield from (_text(line, longest) for line in lines[is_cut:])
        is_cut = is_cut and not lines
        rest = rest[:longest]
    if rest and not is_cut:
        yield _text(rest, longest)


def _text(line: bytes, longest: int) -> str:
    text = line[:longest].decode(errors="replace")
    text = text.replace("\0", "").removeprefix("\ufeff")
    return COLOURS.sub("", text) if "\x1b" in text else text


def written_at(path: Path) -> float:
    """Return when the file was last changed, which gives the year of lines that leave it out."""
    try:
        return path.stat().st_mtime
    except OSError as cause:
        raise EvidenceError(f'cannot read "{path}": {cause.strerror}') from None


# --- when a line was written ---------------------------------------------------------------

# of containers: `kubectl logs --timestamps`, and their files under /var/log/pods
CONTAINER = re.compile(
    r"^(\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)):?"
    r" (?!\S{1,253} [\w./-]{1,120}\[\d+\]: )(?:std(?:out|err) [FP] )?(.*)$"  # no line of a journal
)
# of horovodrun and mpirun
HOROVOD = re.compile(r"^(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})(\[(?:\d+,)?\d+\]<std.*)$")
# of `ts` before what torchrun writes before a line
LABELLED = re.compile(
    r"^\[?(\w{3} [ \d]\d [\d:]{8}(?:\.\d{1,9})?|\d{4}-\d\d-\d\d[T ][\d:]{8}(?:[.,]\d{1,9})?Z?)\]?"
    r" (\[[a-z_]{2,20}\d{1,6}\]:.*)$"
)
DOCKER = '{"log":'
ISO = re.compile(
    r"(?P<day>\d{4}[-/]\d\d[-/]\d\d|(?<!\d)20\d{6})[Tt _]"
    r"(?P<time>\d\d:\d\d:\d\d|\d{6}(?=[Z.,+]))(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>(?: ?(?:[Zz]|UTC|[+-]\d\d:?\d\d)|[+-]\d\d)(?![\d:.\w-]))?"
)
GLOG = re.compile(
    r"\b[IWEF](?P<year>20\d\d(?=\d{4} ))?(?P<month>\d{1,2})(?P<day>\d\d)"
    r" (?P<time>\d\d:\d\d:\d\d)(?P<part>\.\d+)?"
)
VLLM = re.compile(
    r"\b[A-Z]{4,8} (?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?P<part>\.\d+)?"
)
CTIME = re.compile(
    r"\w{3} (?P<month>\w{3}) +(?P<day>\d+) (?P<time>\d\d:\d\d:\d\d)(?P<zone> [A-Z]{3,4})?"
    r" (?P<year>\d{4})"
)
NUMERIC = re.compile(
    r"(?<!\d)(?P<first>\d\d)(?P<mark>[/.])(?P<second>\d\d)(?P=mark)(?P<year>\d{4}|\d\d)"
    r" (?P<time>\d\d:\d\d:\d\d)"
)
# in JSON, and as UCX and `ts=` of Go's loggers write it
SINCE_1970 = re.compile(
    r'(?:[{,] ?"(?:ts|time|timestamp|created)" ?: ?"?|^\[?(?=\d{10}\.\d{3,9}\b)|\bts=)'
    r"(\d{10})(\d{9}|\d{6}|\d{3}|\.\d{1,9})?\b"
)
SYSLOG = re.compile(
    r"^(?P<month>\w{3}) +(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d)(?P<part>\.\d{1,9})?\b"
)
MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
HEAD = 100  # letters in which a line says when it was written


def time_of(line: str, about: float, zone: tzinfo = UTC) -> float | None:
    """Return seconds since 1970. A time without a zone is one of `zone`; one without a year is the
    last before a day after `about`."""
    head = line[:HEAD]
    try:
        if match := ISO.search(head):
            return _iso(match, zone)
        if match := CTIME.search(head):
            own_zone = UTC if match["zone"] in (" UTC", " GMT") else zone
            return _moment(int(match["year"]), MONTHS[match["month"]], match, own_zone)
        if match := GLOG.search(head):
            month = int(match["month"])
            if match["year"]:
                return _moment(int(match["year"]), month, match, zone)
            return _recent(month, match, about, zone)
        if match := VLLM.search(head):
            return _recent(int(match["month"]), match, about, zone)
        if match := SYSLOG.search(head):
            return _recent(MONTHS[match["month"]], match, about, zone)
        if match := NUMERIC.search(head):
            return _numeric(match, about, zone)
        if match := SINCE_1970.search(line):
            return int(match[1]) + float(f".{(match[2] or '0').removeprefix('.')}")
    except (ValueError, KeyError, OverflowError):
        return None
    return None


def _iso(match: re.Match[str], zone: tzinfo) -> float:
    day, clock, part, named = match.group("day", "time", "part", "zone")
    seconds = _seconds(day, clock, (named or "").strip().upper(), zone)
    return seconds + float(f"0.{part}") if part else seconds


@lru_cache(maxsize=1024)  # all ranks write in the same seconds
def _seconds(day: str, clock: str, named: str, zone: tzinfo) -> float:
    offset = "+00:00" if named in ("Z", "UTC") else named
    moment = datetime.fromisoformat(f"{day.replace('/', '-')}T{clock}{offset}")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _numeric(match: re.Match[str], about: float, zone: tzinfo) -> float | None:
    """Return the last moment before a day after `about` that it may be: between slashes some write
    the month first, some the day, and Spark a year of two digits. Before a dot it is the day."""
    first, second, third = (int(match[name]) for name in ("first", "second", "year"))
    orders = [(third % 100, second, first)]
    if match["mark"] == "/":
        orders.append((third % 100, first, second))
        orders += [(first, second, third)] if third < 100 else []
    moments = [
        _moment(2000 + year, month, match, zone, day=day)
        for year, month, day in orders
        if 1 <= month <= 12 and 1 <= day <= calendar.monthrange(2000 + year, month)[1]
    ]
    past = [moment for moment in moments if moment <= about + DAY_S]
    return max(past, default=moments[0] if moments else None)


def _recent(month: int, match: re.Match[str], about: float, zone: tzinfo) -> float:
    year = datetime.fromtimestamp(about, zone).year
    moments: Iterable[float] = (_moment(when, month, match, zone) for when in (year + 1, year))
    past = next((moment for moment in moments if moment <= about + DAY_S), None)
    return _moment(year - 1, month, match, zone) if past is None else past


def _moment(
    year: int, month: int, match: re.Match[str], zone: tzinfo, day: int | None = None
) -> float:
    hours, minutes, seconds = map(int, match["time"].split(":"))
    day = int(match["day"]) if day is None else day
    moment = datetime(year, month, day, hours, minutes, seconds, tzinfo=zone).timestamp()
    return moment + float(match.groupdict().get("part") or 0)


def split_stamp(line: str) -> tuple[str, str]:
    """Split a line of a container's log into the time that the container's engine, or horovodrun,
    wrote before it, or beside it, and its text. Other lines have no such time."""
    if line.startswith("20") and (match := CONTAINER.match(line)):
        return match[1], match[2]
    if "]<std" in line[:40] and (match := HOROVOD.match(line)):
        return match[1], match[2]
    if "]:" in line[:60] and (match := LABELLED.match(line)):
        return match[1], match[2]
    if line.startswith(DOCKER):
        try:
            record = json.loads(line)
            return str(record.get("time", "")), str(record["log"]).rstrip("\r\n")
        except (ValueError, KeyError, AttributeError, RecursionError):
            pass
    return "", line


# --- whose log a file is -------------------------------------------------------------------


def node_of_file(file: Path, root: Path, nodes: Iterable[str]) -> str:
    """Return the node after which the file or a folder above it is named; empty if there is
    none."""
    parts = file.relative_to(root).parts if file != root else (file.name,)
    for part in reversed(parts):
        best = max(
            (node for node in nodes if re.search(rf"(?<![\w]){re.escape(node)}(?![\w-]*\d)", part)),
            key=len,
            default="",
        )
        if best:
            return best
    return ""
