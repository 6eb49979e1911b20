"""The lines of JSON that an agent on a node serves and records: a heading with its columns, then
rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from anubis.core.arrays import Floats
from anubis.core.errors import TelemetryError
from anubis.text.files import json_value

FORM = 1  # raised when lines of older agents can no longer be read


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentRows:
    node: str
    names: tuple[str, ...]
    times: Floats
    values: Floats  # rows x names
    absent: dict[str, str] = field(default_factory=dict)  # metrics that it cannot read, and why

    def column(self, name: str) -> Floats:
        if name in self.names:
            return self.values[:, self.names.index(name)]
        return np.full(len(self.times), np.nan)


def agent_rows(lines: Iterable[bytes], where: str) -> list[AgentRows]:
    """Return the rows of each heading. A last line that ends in the middle is still being
    written."""
    parts: list[AgentRows] = []
    heading: dict[str, object] | None = None
    rows: list[list[float | None]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        document = _document(line, f"{where}, line {number}")
        if document is None:
            break
        if isinstance(document, dict):
            if heading is not None:
                parts.append(_part(heading, rows, where))
            heading, rows = document, []
        elif isinstance(document, list) and heading is not None:
            rows.append(document)
        else:
            raise TelemetryError(f"{where}, line {number}: expected a heading, then rows")
    if heading is None:
        raise TelemetryError(
            f"{where} has no heading of an agent: does another program answer there?"
        )
    return [*parts, _part(heading, rows, where)]


def _document(line: bytes, where: str) -> object | None:
    try:
        document: object = json_value(line.decode())
        return document
    except ValueError:
        if not line.endswith(b"\n"):
            return None
        raise TelemetryError(f"{where}: expected JSON, found {line[:40]!r}") from None


def _part(heading: dict[str, object], rows: list[list[float | None]], where: str) -> AgentRows:
    names, absent, node = heading.get("metrics"), heading.get("absent") or {}, heading.get("node")
    if heading.get("agent") != FORM:
        raise TelemetryError(
            f"{where}: an agent of form {heading.get('agent')!r}, expected {FORM}: use the same"
            " version on both sides"
        )
    if not (isinstance(names, list) and isinstance(node, str) and isinstance(absent, dict)):
        raise TelemetryError(f"{where}: its heading lacks the node or the metrics")
    width = 1 + len(names)
    try:
        if any(len(row) > width for row in rows):
            raise ValueError("a row is longer than its heading")
        numbers = np.array(
            [row + [None] * (width - len(row)) for row in rows], dtype=np.float64
        ).reshape(-1, width)
    except (TypeError, ValueError, OverflowError):
        raise TelemetryError(f"{where}: rows that do not fit the heading") from None
    return AgentRows(
        node=node,
        names=tuple(map(str, names)),
        times=numbers[:, 0],
        values=numbers[:, 1:],
        absent={str(name): str(reason) for name, reason in absent.items()},
    )
