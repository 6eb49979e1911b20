"""Values in the kernel's files. An absent value is "" or None, never 0."""

from __future__ import annotations

import re
from pathlib import Path


def text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    try:
        return int(text(path).split()[0], 0)
    except (ValueError, IndexError):
        return None


def parse_list(text: str) -> frozenset[int]:
    """Parse a set as the kernel writes it: 0-3,8."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def unescape(path: str) -> str:
    r"""Return a mount's name; the kernel writes a space in it as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
