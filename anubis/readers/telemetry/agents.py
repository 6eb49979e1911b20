"""The agents on nodes, asked side by side, each within its deadline; the lines of JSON that they
serve and record, a heading with its columns, then rows; and the telemetry of a job from them.

A node that does not answer is reported as silent: nothing is known of it, and nothing is zero.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from anubis.core.arrays import Floats
from anubis.core.errors import FetchError, TelemetryError, UsageError
from anubis.core.text import escape_line
from anubis.core.watch.alignment import SampledSeries, align, grid_over, step_of
from anubis.readers.telemetry.config import ORDER, AgentSettings, TelemetrySettings
from anubis.readers.telemetry.pulled import PulledTelemetry, nodes_in_words, silences
from anubis.text import files
from anubis.text.fetching import HttpQuestion, fetch
from anubis.text.files import json_value
from anubis.text.hostlist import is_name

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


T = TypeVar("T")
AT_ONCE = 32  # agents, each by a thread
MOST_BYTES = 8 << 20  # of one answer: 20 minutes of all metrics are half a MiB
MOST_SAID = 200  # bytes of a reason


class AgentClient:
    def __init__(self, place: AgentSettings) -> None:
        self._place = place

    def ask_all(
        self,
        nodes: Iterable[str],
        path: str,
        read: Callable[[bytes], T],
        bodies: Mapping[str, bytes] | None = None,
        *,
        at_once: int = AT_ONCE,
        until: float = math.inf,
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Return what was read of the answers, and why there is none of the other nodes. `bodies`:
        by node, what is sent. `until`: no node is asked later, by the monotonic clock."""
        headers = self._headers()
        answers, reasons = {}, {}

        def ask(node: str) -> T:
            if time.monotonic() >= until:
                raise TelemetryError("there was no time left to ask it")
            return self._ask(node, path, read, headers, (bodies or {}).get(node))

        with ThreadPoolExecutor(at_once) as pool:
            pending = {node: pool.submit(ask, node) for node in nodes}
            for node, future in pending.items():
                try:
                    answers[node] = future.result()
                except (FetchError, TelemetryError) as cause:
                    reasons[node] = str(cause)
        return answers, reasons

    def _ask(
        self,
        node: str,
        path: str,
        read: Callable[[bytes], T],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> T:
        if not is_name(node):
            raise UsageError(f'"{node}" is not a node name')
        answer = fetch(
            HttpQuestion(
                url=f"http://{node}:{self._place.port}{path}",
                deadline_s=self._place.deadline_s,
                body=body,
                headers=headers,
                most_bytes=MOST_BYTES,
            )
        )
        if answer.status == 401:
            raise TelemetryError("it wants another token")
        if answer.status not in (200, 202):
            reason = escape_line(answer.body[:MOST_SAID].decode(errors="replace").strip())
            raise TelemetryError(f"it answered {answer.status}{reason and f': {reason}'}")
        return read(answer.body)

    def _headers(self) -> dict[str, str]:
        if not self._place.token_file:
            return {}
        named = f'token_file "{self._place.token_file}"'
        token = files.read_text(Path(self._place.token_file), TelemetryError, named, 1 << 16)
        return {"Authorization": f"Bearer {token.strip()}"}


CLOCKS_APART_S = 15.0  # a newest sample is a few seconds old


class Agents:
    def __init__(
        self,
        settings: TelemetrySettings,
        names: Sequence[str] = ORDER,
        where: AgentSettings | None = None,
    ) -> None:
        """Prepare the agents; `where`: instead of what the settings say."""
        self._settings, self._names = settings, tuple(names)
        self._metrics = settings.watched_metrics(names)
        self._place = where or settings.agents or AgentSettings()

    def pull(self, nodes: Sequence[str], until: float, last_s: float) -> PulledTelemetry:
        rows, reasons = self._collect(nodes, until - last_s)
        if not rows:
            reason, times = Counter(reasons.values()).most_common(1)[0]
            raise TelemetryError(
                f"none of the {len(nodes):,} agents reported anything, {times:,} of them for this"
                f" reason: {reason}; each node needs one at port {self._place.port}"
            )
        samples = _samples(rows, nodes, self._names)
        step = step_of([series for series in samples.values() if len(series.times)])
        grid = grid_over(until - last_s, until, step if step > 0 else 1.0)
        telemetry = align(samples, self._metrics, nodes, grid)
        remarks = [
            *_describe_silent(reasons, nodes),
            *_clocks(rows, nodes, until),
            *_absent(rows, self._names),
            *(text for text in silences(telemetry, self._settings) if "at all" not in text),
        ]
        return PulledTelemetry(telemetry=telemetry, remarks=tuple(remarks))

    def _collect(
        self, nodes: Sequence[str], since: float
    ) -> tuple[dict[str, AgentRows], dict[str, str]]:
        """Return the rows of the nodes that answered, and why the others did not."""
        client = AgentClient(self._place)
        return client.ask_all(nodes, f"/samples?since={since:.3f}", _rows_of)


def _rows_of(body: bytes) -> AgentRows:
    return agent_rows(body.splitlines(keepends=True), "its answer")[-1]


def _samples(
    rows: Mapping[str, AgentRows], nodes: Sequence[str], names: Sequence[str]
) -> dict[str, SampledSeries]:
    """Return the series of each metric. All metrics share their times, so their places on the grid
    are found once."""
    parts = [(place, rows[node]) for place, node in enumerate(nodes) if node in rows]
    of_node = np.concatenate([np.full(len(part.times), place) for place, part in parts])
    times = np.concatenate([part.times for _, part in parts])
    return {
        name: SampledSeries(
            rows=of_node,
            times=times,
            values=np.concatenate([part.column(name) for _, part in parts]),
        )
        for name in names
    }


def _describe_silent(reasons: Mapping[str, str], nodes: Sequence[str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        by_reason.setdefault(reason, []).append(node)
    return [
        f"the agents of {nodes_in_words(some, nodes)} reported nothing: {reason}"
        for reason, some in by_reason.items()
    ]


def _clocks(rows: Mapping[str, AgentRows], nodes: Sequence[str], until: float) -> list[str]:
    apart = [
        node
        for node, part in rows.items()
        if not len(part.times) or abs(until - part.times[-1]) > CLOCKS_APART_S
    ]
    if not apart:
        return []
    late = f"the last samples of {nodes_in_words(apart, nodes)} are more than {CLOCKS_APART_S:g} s"
    return [f"{late} off: a clock is wrong, or an agent has stopped"]


def _absent(rows: Mapping[str, AgentRows], names: Sequence[str]) -> list[str]:
    """List why no node reports a metric, as one of them says."""
    reported = {name for part in rows.values() for name in part.names}
    reasons = {
        name: f"{name} cannot be read, as {node} says: {' '.join(reason.split())[:160]}"
        for node, part in rows.items()
        for name, reason in part.absent.items()
        if name in names and name not in reported
    }
    return list(reasons.values())
