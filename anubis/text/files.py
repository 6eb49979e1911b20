"""Read, unpack, decode and parse files from outside, all within limits.

A limit that is passed raises an error of one sentence. What a document means is its reader's task.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, cast

from anubis.core.errors import AnubisError

MOST_BYTES = 256 << 20  # of a file, unpacked
MOST_YAML = 8 << 20  # characters; it takes seconds and a hundred times its size to read
UNPACKED_FREELY = 16 << 20  # bytes, which do no harm at any ratio
MOST_RATIO = 150  # of unpacked to packed size; text reaches 20, and zeros 1,000
LONGEST_LINE = 16 << 20  # bytes
DEEPEST = 100  # levels; parsers recurse, and Python stops them at 1,000
MOST_DIGITS = 40  # of a number in YAML; a longer one is a slip
MOST_WHOLE = 1000  # digits of a number in JSON; a longer one spoils only its own node's result
MOST_VALUES = 2_000_000  # of a YAML document, with its aliases written out
EXPLAINED_BYTES = 1 << 20  # Python's YAML parser explains better, and takes a minute for 16 MiB
GZIPPED = b"\x1f\x8b"
SAMPLED = 4000  # bytes that tell an encoding
CHUNK = 1 << 16  # bytes
_MARKS = (  # the longer ones first: UTF-32's begins like UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

ErrorType = type[AnubisError]
FromPairs = Callable[[list[tuple[str, Any]]], Any]


def read_bytes(path: Path, error: ErrorType, named: str = "", limit: int = MOST_BYTES) -> bytes:
    """Contents of the file, unpacked if it is gzipped. Errors call the file `named`."""
    where = named or f'"{path}"'
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as cause:
        raise error(f"cannot read {where}: {_reason_unreadable(cause)}") from None
    if len(data) > limit:
        raise error(f"{where} is larger than {limit >> 20} MiB, the most that is read: split it")
    return unpack(data, where, error, limit) if data.startswith(GZIPPED) else data


def unpack(data: bytes, where: str, error: ErrorType, limit: int = MOST_BYTES) -> bytes:
    parts: list[bytes] = []
    total = 0
    rest = data
    while rest.startswith(GZIPPED):  # one member after the other
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, limit + 1 - total)
        except zlib.error:
            raise error(f"cannot read {where}: it is not a complete gzip file") from None
        total += len(part)
        if total > limit or (total > UNPACKED_FREELY and total > MOST_RATIO * len(data)):
            raise error(
                f"{where} unpacks to more than {limit >> 20} MiB or {MOST_RATIO} times its size,"
                " the most that is read: unpack it, and look at it"
            )
        if not member.eof:
            raise error(f"cannot read {where}: it is not a complete gzip file")
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


class Bounded(io.RawIOBase):
    """A stream that refuses endless lines and suspicious compression ratios."""

    def __init__(self, source: Any, packed: IO[bytes], where: str, error: ErrorType) -> None:
        self._source, self._packed = source, packed
        self._where, self._error = where, error
        self._unpacked = self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        self._unpacked += len(data)
        end = data.rfind(b"\n")
        self._line = len(data) - end if end >= 0 else self._line + len(data)
        if self._line > LONGEST_LINE:
            raise self._error(
                f"{self._where} has a line of more than {LONGEST_LINE >> 20} MiB: is it a table?"
            )
        if self._unpacked > max(UNPACKED_FREELY, MOST_RATIO * self._packed.tell()):
            raise self._error(
                f"{self._where} unpacks to more than {MOST_RATIO} times its size: unpack it, and"
                " look at it"
            )
        return len(data)


def open_unpacked(
    file: IO[bytes], where: str, error: ErrorType, chunk: int = CHUNK
) -> io.BufferedReader:
    """Open the contents of an open file as a stream within limits, unpacked if it is gzipped."""
    begins = file.read(len(GZIPPED))
    file.seek(0)
    source: Any = gzip.GzipFile(fileobj=file) if begins == GZIPPED else file
    return io.BufferedReader(cast(Any, Bounded(source, file, where, error)), chunk)


def _reason_unreadable(cause: OSError | ValueError) -> str:
    if isinstance(cause, IsADirectoryError):
        return "it is a folder: name a file in it"
    if isinstance(cause, PermissionError):
        return "this user may not read it: ask its owner, or copy it"
    without_number = "it is not a complete gzip file" if isinstance(cause, OSError) else str(cause)
    return getattr(cause, "strerror", None) or without_number


@contextmanager
def refuse_unreadable(where: str, error: ErrorType) -> Iterator[None]:
    """Make one sentence of whatever cannot be read or unpacked while the block runs."""
    try:
        yield
    except OSError as cause:
        raise error(f"cannot read {where}: {_reason_unreadable(cause)}") from None
    except (EOFError, zlib.error):
        raise error(f"cannot read {where}: it is not a complete gzip file") from None


def encoding_of(data: bytes) -> str:
    """Return the encoding by its mark, or by the first bytes: UTF-16 of mostly plain characters has
    a zero in every other one."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    sample = data[:SAMPLED]
    for encoding, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(sample) > 3 and zeros.count(0) > len(zeros) * 0.9:
            return encoding
    return "utf-8"


def decode(data: bytes) -> str:
    """Return the text with plain line ends, in whatever encoding an editor or another machine
    wrote it; what cannot be read in it becomes a replacement mark."""
    text = data.decode(encoding_of(data), errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def read_text(path: Path, error: ErrorType, named: str = "", limit: int = MOST_BYTES) -> str:
    """Contents of a UTF-8 file, with or without a byte order mark."""
    where = named or f'"{path}"'
    try:
        return read_bytes(path, error, where, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"cannot read {where}: it is not UTF-8 text; save it as UTF-8") from None


def write_whole(path: Path, data: bytes, error: ErrorType, named: str) -> None:
    with whole_file(path, error, named) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path, error: ErrorType, named: str) -> Iterator[IO[bytes]]:
    """Write the whole file or nothing: a full disk or Ctrl-C must not cut off the existing one. The
    draft has a name of its own: of two writers the later one wins, and no planted link is
    followed."""
    draft = path.with_name(f".anubis-{token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:  # with the rights that this user's new files have
            yield file
        put_in_place(draft, path)
    except OSError as cause:
        raise error(f'cannot write {named} "{path}": {cause.strerror or cause}') from None
    finally:
        with suppress(OSError):
            draft.unlink()


def put_in_place(draft: Path, path: Path) -> None:
    """Replace a file by its draft. Whoever could read the file can read the new one too."""
    with suppress(FileNotFoundError):
        draft.chmod(stat.S_IMODE(path.stat().st_mode))
    draft.replace(path)


# --- JSON ----------------------------------------------------------------------------------


def json_value(text: str, pairs: FromPairs | None = None) -> Any:
    """Parse as `json.loads` does; raise ValueError if a number or the depth passes its limit."""
    try:
        value = json.loads(text, parse_int=_whole, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if text.count("[") + text.count("{") > DEEPEST and _is_too_deep(value):
        raise ValueError(TOO_DEEP)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text contains half a character, which cannot be stored") from None
    return value


TOO_DEEP = f"lists or tables nest too deep, expected at most {DEEPEST} levels"


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    depth = 0
    while level and depth < DEEPEST:
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [part for parts in inner for part in parts if isinstance(part, (dict, list))]
        depth += 1
    return bool(level)


def _whole(digits: str) -> int:
    if len(digits) > MOST_WHOLE:
        raise ValueError(f"a number has {len(digits):,} digits, expected at most {MOST_WHOLE:,}")
    return int(digits)


# --- YAML ----------------------------------------------------------------------------------


def parse_yaml(text: str, where: str, error: ErrorType) -> object:
    """Parse a YAML text; nothing in it is ever executed."""
    import yaml

    if len(text) > MOST_YAML:
        raise error(
            f"{where} is larger than {MOST_YAML >> 20} MiB of YAML, the most that is read: write"
            " it as JSON or as a table"
        )
    try:
        if len(text) < EXPLAINED_BYTES:
            with suppress(yaml.YAMLError):
                return _compose(text, "CSafeLoader")
            return _compose(text, "SafeLoader")
        return _compose(text, "CSafeLoader")
    except yaml.YAMLError as cause:
        raise error(f"{where} is not valid YAML: {_yaml_problem(cause)}") from None
    except RecursionError:
        raise error(f"{where} is not valid YAML: {TOO_DEEP}") from None
    except (ValueError, OverflowError) as cause:  # a date that does not exist, a sum of digits
        raise error(f"{where} is not valid YAML: {cause}") from None


def _compose(text: str, loader_name: str) -> object:
    """Parse after measuring: a few lines with aliases can expand to gigabytes."""
    import yaml

    loader = _unique_key_loader(getattr(yaml, loader_name, yaml.SafeLoader))(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {}, set(), 0)
        document: object = loader.construct_document(node)
        return document
    finally:
        loader.dispose()


def _measure(node: Any, values_of: dict[int, int], above: set[int], depth: int) -> int:
    """Count the values that a node expands to, with its aliases written out."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        if len(node.value) > MOST_DIGITS and node.tag.endswith((":int", ":float")):
            raise _refusal(node, f"a number has {len(node.value):,} digits")
        return 1
    if id(node) in above or depth > DEEPEST:
        raise _refusal(node, TOO_DEEP)
    if id(node) not in values_of:
        above.add(id(node))
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            if any(not isinstance(key, yaml.ScalarNode) for key, _ in parts):
                raise _refusal(node, "a key is a list or a table, expected a text")
            parts = [value for _, value in parts]
        values = sum(_measure(part, values_of, above, depth + 1) for part in parts)
        above.discard(id(node))
        if values > MOST_VALUES:
            raise _refusal(node, f"it stands for more than {MOST_VALUES:,} values")
        values_of[id(node)] = values + 1
    return values_of[id(node)]


def _refusal(node: Any, reason: str) -> Exception:
    import yaml

    refusal: Exception = yaml.constructor.ConstructorError(None, None, reason, node.start_mark)
    return refusal


def _unique_key_loader(safe: Any) -> type[Any]:
    """Make a safe loader that refuses a repeated key; YAML itself silently keeps the last value."""

    class Loader(safe):  # type: ignore[misc] # one of two classes
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise _refusal(key, f'the key "{key.value}" is written twice')
                seen.add(key.value)
            table: dict[Any, Any] = super().construct_mapping(node, deep)
            return table

    return Loader


def _yaml_problem(cause: Any) -> str:
    """The line and the problem that yaml found, without the source lines that yaml adds."""
    mark = getattr(cause, "problem_mark", None)
    if mark is None:
        return " ".join(str(cause).split())
    tab = "; indent by spaces, not tabs" if r"'\t'" in cause.problem else ""
    return f"line {mark.line + 1}: {cause.problem}{tab}"
