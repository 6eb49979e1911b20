"""Node lists as operators write them: `node[001-016]`, `a[1-2]n[01-04]`, comma lists, `@file`; and
the same host by the names that other programs have for it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, product
from pathlib import Path

from anubis.core.errors import HostlistError
from anubis.text.files import read_text

MOST_CHARACTERS = 120  # of a list within a sentence
HERE = Path()
LONGEST_NAME = 253  # as in DNS
MOST_DIGITS = 40  # of a range
MOST_NODES = 1_000_000  # a slip like node[1-99999999] must not eat the memory

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,40})(\D*)")


def expand(text: str) -> list[str]:
    """All names of a node list, in the order written; a repeated name is an error."""
    names = list(_expand(text))
    if not names:
        raise HostlistError(f'node list "{_cut(text)}" names no node: give names like node[01-16]')
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise HostlistError(f'node list names "{name}" twice: name every node once')
        seen.add(name)
    return names


def labels(lists: Mapping[str, str]) -> dict[str, str]:
    """The label of each node, from the node list of each label."""
    label_of: dict[str, str] = {}
    for label, text in lists.items():
        for name in expand(text):
            if label_of.setdefault(name, label) != label:
                both = f'"{label_of[name]}" and "{label}"'
                raise HostlistError(f'node "{name}" is listed for {both}: list it once')
    return label_of


def is_name(text: str) -> bool:
    """True if the text is a node name; a leading dash would make it an option to ssh and others."""
    return bool(_NAME.fullmatch(text)) and not text.startswith("-")


def drop_port(name: str) -> str:
    host, colon, port = name.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else name


class HostNames:
    """Names of hosts, to find the one that another program means: it may write a port behind it, a
    domain or none, and capital letters. Two domains are two hosts."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = set(names)
        self._alike = defaultdict[str, set[str]](set)
        for name in names:
            self._alike[_short_name(name)].add(name)

    def find(self, reported: str) -> str | None:
        """Return the name; None if no host or several may be meant."""
        host = drop_port(reported)
        if host in self._names:
            return host
        alike = self._alike.get(_short_name(host), ())
        fitting = [name for name in alike if _is_same(name.casefold(), host.casefold())]
        return fitting[0] if len(fitting) == 1 else None

    def several_of_one(self) -> list[list[str]]:
        """The names by which one host may be meant: they differ in capital letters, or one of them
        has no domain."""
        groups = (sorted(alike) for alike in self._alike.values() if len(alike) > 1)
        return [
            names
            for names in groups
            if any(_is_same(a.casefold(), b.casefold()) for a, b in combinations(names, 2))
        ]


def _short_name(name: str) -> str:
    short = name.partition(".")[0].casefold()
    return name.casefold() if short.isdecimal() else short  # of an address


def _is_same(name: str, reported: str) -> bool:
    return name == reported or "." not in name or "." not in reported


def read(argument: str, folder: Path = HERE) -> list[str]:
    """Expand a node list; `@file` names a file of lists, one per line, # begins a comment."""
    if not argument.startswith("@"):
        return expand(argument)
    path = folder / argument[1:]
    lines = read_text(path, HostlistError, f'node file "{path}"').splitlines()
    kept = [line.partition("#")[0].strip() for line in lines]
    text = ",".join(line for line in kept if line)
    if not text:
        raise HostlistError(f'node file "{path}" names no node: one name or range per line')
    return expand(text)


def compress(names: Sequence[str]) -> str:
    """A short node list, for scontrol and for people, with ranges for consecutive numbers."""
    return ",".join(_run_text(run) for run in _runs(names))


def shorten(names: Sequence[str]) -> str:
    """A node list that fits into a sentence, however many nodes there are."""
    return _cut(compress(names))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


@dataclass
class _Run:
    """Consecutive names that differ only in their last number, padded to the same width."""

    prefix: str
    suffix: str
    width: int
    numbers: list[int]

    def fits(self, prefix: str, digits: str, suffix: str) -> bool:
        padded = f"{int(digits):0{self.width}}"
        return (self.prefix, padded, self.suffix) == (prefix, digits, suffix)


def _runs(names: Sequence[str]) -> Iterator[_Run]:
    run: _Run | None = None
    for name in names:
        match = _LAST_NUMBER.fullmatch(name)
        prefix, digits, suffix = match.groups() if match else (name, "", "")
        if run and run.numbers and digits and run.fits(prefix, digits, suffix):
            run.numbers.append(int(digits))
            continue
        if run:
            yield run
        run = _Run(prefix, suffix, len(digits), [int(digits)] if digits else [])
    if run:
        yield run


def _run_text(run: _Run) -> str:
    ranges = ",".join(_ranges(run.numbers, run.width))
    if len(run.numbers) > 1:
        ranges = f"[{ranges}]"
    return run.prefix + ranges + run.suffix


def _ranges(numbers: Sequence[int], width: int) -> Iterator[str]:
    """`1-3` for numbers that follow each other."""
    for _, stretch in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        row = [f"{number:0{width}}" for _, number in stretch]
        yield row[0] if len(row) == 1 else f"{row[0]}-{row[-1]}"


def _expand(text: str) -> Iterator[str]:
    count = 0
    for word in _words(text):
        if word.startswith("-"):
            raise HostlistError(
                f'node list "{_cut(text)}": "{_cut(word)}" begins with a dash, as an option does'
            )
        choices, size = [], 1
        for piece in _pieces(word, text):
            choices.append(_choices(piece, text))
            size *= choices[-1].size
            if count + size > MOST_NODES:
                raise HostlistError(
                    f'node list "{_cut(text)}" names more than {MOST_NODES:,} nodes'
                )
        count += size
        yield from ("".join(parts) for parts in product(*(part.names() for part in choices)))


def _words(text: str) -> Iterator[str]:
    """Split at commas and white space outside brackets."""
    depth, word = 0, ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth == 0 and (char == "," or char.isspace()):
            if word:
                yield word
            word = ""
        else:
            word += char
    if word:
        yield word


def _pieces(word: str, text: str) -> list[str]:
    pieces = [match.group(0) for match in _PIECE.finditer(word)]
    if "".join(pieces) != word:
        raise HostlistError(f'node list "{_cut(text)}": brackets do not match in "{_cut(word)}"')
    return pieces


@dataclass(frozen=True)
class _Choices:
    """The texts possible at one place of a name, expanded only if all names are few enough."""

    word: str = ""
    ranges: tuple[tuple[range, int], ...] = ()  # numbers, and how many digits they have

    @property
    def size(self) -> int:
        return sum(len(numbers) for numbers, _ in self.ranges) or 1

    def names(self) -> list[str]:
        if not self.ranges:
            return [self.word]
        return [f"{number:0{width}}" for numbers, width in self.ranges for number in numbers]


def _choices(piece: str, text: str) -> _Choices:
    if not piece.startswith("["):
        if not _NAME.fullmatch(piece) or len(piece) > LONGEST_NAME:
            raise HostlistError(f'node list "{_cut(text)}": "{_cut(piece)}" is not a node name')
        return _Choices(piece)
    ranges: list[tuple[range, int]] = []
    size = 0
    for part in piece[1:-1].split(","):
        if size > MOST_NODES:
            raise HostlistError(f'node list "{_cut(text)}" names more than {MOST_NODES:,} nodes')
        match = _RANGE.fullmatch(part.strip()) if len(part) <= MOST_DIGITS else None
        if not match:
            raise HostlistError(
                f'node list "{_cut(text)}": "{_cut(part)}" is not a number or range like 01-16'
            )
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise HostlistError(f'node list "{_cut(text)}": range "{_cut(part)}" runs backwards')
        if int(high) - int(low) >= MOST_NODES:
            raise HostlistError(f'node list "{_cut(text)}" names more than {MOST_NODES:,} nodes')
        ranges.append((range(int(low), int(high) + 1), len(low)))
        size += len(ranges[-1][0])
    return _Choices(ranges=tuple(ranges))
