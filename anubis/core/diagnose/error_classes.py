"""The table of error classes, which gives lines of logs their meaning, and the search in it.

A table is data with sources, so that a site can change it. This module neither reads files nor
draws conclusions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Literal

from anubis.core.diagnose.evidence import Gravity

PART = 5  # letters of a mark: rare in lines that have no mark
ZEROS = str.maketrans("123456789", "000000000")
LONGEST = 2000  # characters of a line that patterns are matched against
PARTS = frozenset({"peer", "device", "rank"})  # names of groups that a pattern may have
OF_XID = r"NVRM: Xid \((PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}"
# many lines begin with the name of a process, which its user chooses: at most 15 letters, so what
# a driver begins is recognised by more than that
OF_PROCESS = re.compile(r".{1,15}\[\d+\]")


@dataclass(frozen=True, kw_only=True)
class ErrorClass:
    """A kind of line: how it is recognised, and what it allows to be thought."""

    code: str
    """Its name, as facts and policies have it."""
    log: Literal["kernel", "training"] = "kernel"
    """The log that has such lines."""
    xid: int | None = None
    """The number of an XID of NVIDIA's driver. `mark` is then not needed."""
    mark: str = ""
    """Letters that the line contains, capitals as they are."""
    pattern: str = ""
    """A regular expression that it matches too. Its groups peer, device and rank are reported."""
    gravity: Literal["critical", "distributed", "application", "mismatch", "memory", "loss", "note"]
    """Critical: broken hardware, here. Distributed: between two. Application: the program or the
    hardware, a repeat tells. Mismatch: ranks called different collectives, no rank is blamed.
    Memory: too little of it. Loss: not a number. Note: no cause."""
    means: str
    """The meaning in a few words."""
    source: str
    """The document or person that says so."""
    alone: Literal["proof", "suspicion", "remark"] | None = None
    """The weight of such a line of the kernel by itself, as the agent of its node reports it.
    Proof takes the node out until it passes a test, a suspicion has it tested. Without it, a
    critical line is a suspicion, if it is of an XID or has `begins`."""
    begins: str = ""
    """A regular expression for how the driver begins such a line, past the 15 letters of a
    process's name. Later in a line are names of programs and files, which users choose."""
    level: int | None = None
    """The lightest cure that helps: 1 try again, 2 restart the process, 3 replace the node, 4 fail
    the job. Without it, that of its kind of fact."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.code):
            raise ValueError(f'code is "{self.code}", expected letters, digits and -')
        if (self.xid is None) == (not self.mark):
            raise ValueError(f'"{self.code}" needs either a "mark" or a "xid"')
        if self.alone in ("proof", "suspicion") and self.xid is None and not self.begins:
            raise ValueError(f'"{self.code}" is a {self.alone} alone, and needs "begins"')
        try:
            groups = re.compile(self.pattern).groupindex
            re.compile(self.begins)
        except (re.error, OverflowError, RecursionError) as cause:
            raise ValueError(
                f'the pattern of "{self.code}" is no regular expression: {cause}'
            ) from None
        if unknown := sorted(groups.keys() - PARTS):
            raise ValueError(
                f'the pattern of "{self.code}" has a group "{unknown[0]}", expected peer, device'
                " or rank"
            )
        if self.level not in (None, 1, 2, 3, 4):
            raise ValueError(f'"{self.code}" has level {self.level}, expected 1 to 4')

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @property
    def ignores_digits(self) -> bool:
        """Return whether the pattern takes all digits alike."""
        return not re.search(r"\d|\(\?P=|\\N", self.pattern)

    def weigh_alone(self, line: str) -> Literal["proof", "suspicion", "remark"]:
        """Return the weight of a line of this class without a diagnosis. A line that its driver
        did not begin is a remark at most, because users can write parts of it."""
        begins = self.begins if self.xid is None else OF_XID
        if not begins or OF_PROCESS.match(line) or not re.match(begins, line):
            return "remark"
        return self.alone or ("suspicion" if self.gravity == "critical" else "remark")


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """A line's class, and what the pattern of the class extracted from the line."""

    kind: ErrorClass
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def gravity(self) -> Gravity:
        return Gravity(self.kind.gravity)


@dataclass(frozen=True, kw_only=True)
class ErrorClasses:
    summary: str = ""
    """What the table is, in one line."""
    based_on: str = ""
    """The table that this one changes. Without it, this table says everything."""
    classes: tuple[ErrorClass, ...]
    """Rows. Of several that match a line the first counts; with `based_on`, rows of the same code
    are replaced, and new ones come first."""

    def __post_init__(self) -> None:
        codes = [row.code for row in self.classes]
        if twice := [code for code in codes if codes.count(code) > 1]:
            raise ValueError(f'"classes" has "{twice[0]}" twice')

    @property
    def levels(self) -> dict[str, int]:
        """Cure levels of the classes that set their own."""
        return {row.code: row.level for row in self.classes if row.level is not None}

    def merge_into(self, basis: Iterable[ErrorClass]) -> ErrorClasses:
        """Merge this table into `basis`: replace rows of the same code, put new rows first."""
        own = {row.code: row for row in self.classes}
        kept = [own.pop(row.code, row) for row in basis]
        return ErrorClasses(summary=self.summary, classes=(*own.values(), *kept))

    def match_kernel(self, line: str) -> Recognised | None:
        return _first(self._rows_by_mark["kernel"], line)

    def match_training(self, line: str) -> Recognised | None:
        return _first(self._rows_by_mark["training"], line)

    def training_rows(self, folded: str) -> tuple[ErrorClass, ...]:
        """Return the rows that a line may match which becomes `folded` if each of its digits is
        replaced by a zero."""
        near = []
        for part, rows in self._rows_by_part.items():
            if part in folded:
                near += [entry for entry in rows if entry[1] in folded]
        return tuple(
            row
            for _, _, row in sorted(near, key=itemgetter(0))
            if not row.ignores_digits or row.regex.search(folded[:LONGEST])
        )

    def match_xid(self, number: int, text: str) -> Recognised:
        """Class of an XID. A number without a row is new, and only a note."""
        for row in self._rows_by_xid.get(number, ()):
            if match := row.regex.search(text[:LONGEST]):
                return Recognised(kind=row, parts=_parts(match))
        return Recognised(
            kind=ErrorClass(
                code=f"xid-{number}",
                xid=number,
                gravity="note",
                means="an XID that is not in the table of classes",
                source="none",
            )
        )

    @cached_property
    def _rows_by_xid(self) -> dict[int, list[ErrorClass]]:
        rows: dict[int, list[ErrorClass]] = {}
        for row in self.classes:
            if row.xid is not None:
                rows.setdefault(row.xid, []).append(row)
        return rows

    @cached_property
    def _rows_by_part(self) -> dict[str, list[tuple[int, str, ErrorClass]]]:
        """Training rows by a part that many marks have in common: few searches find all marks."""
        left = [
            (place, row.mark.translate(ZEROS), row)
            for place, row in enumerate(self.classes)
            if row.mark and row.log == "training"
        ]
        grouped: dict[str, list[tuple[int, str, ErrorClass]]] = {}
        while left:
            counts = Counter(part for _, mark, _ in left for part in _parts_of_mark(mark))
            part = max(counts, key=lambda part: (counts[part], part))
            grouped[part] = [entry for entry in left if part in entry[1]]
            left = [entry for entry in left if part not in entry[1]]
        return grouped

    @cached_property
    def _rows_by_mark(self) -> dict[str, dict[str, list[tuple[int, ErrorClass]]]]:
        """Rows of each log by their mark, with their positions in the table."""
        marked: dict[str, dict[str, list[tuple[int, ErrorClass]]]] = {"kernel": {}, "training": {}}
        for place, row in enumerate(self.classes):
            if row.mark:
                marked[row.log].setdefault(row.mark, []).append((place, row))
        return marked


def _first(marked: Mapping[str, list[tuple[int, ErrorClass]]], line: str) -> Recognised | None:
    """The first row of the table that matches. Nearly all lines contain no mark, so the search for
    marks keeps millions of lines cheap."""
    candidates = [entry for mark, rows in marked.items() if mark in line for entry in rows]
    ordered = sorted(candidates, key=lambda entry: entry[0])
    return match_rows((row for _, row in ordered), line)


def _parts_of_mark(mark: str) -> set[str]:
    return {mark[start : start + PART] for start in range(max(1, len(mark) - PART + 1))}


def match_rows(rows: Iterable[ErrorClass], line: str) -> Recognised | None:
    for row in rows:
        if row.mark in line and (match := row.regex.search(line[:LONGEST])):
            return Recognised(kind=row, parts=_parts(match))
    return None


def _parts(match: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in match.groupdict().items() if text}
