"""Answers of a Prometheus, parsed: nothing is asked here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anubis.core.arrays import Floats, Ints
from anubis.core.errors import TelemetryError
from anubis.core.watch.alignment import SampledSeries
from anubis.text.fetching import HttpAnswer
from anubis.text.files import json_value
from anubis.text.hostlist import HostNames

_VALUES, _END = b',"values":[[', b"]]"
_MISSHAPEN = (ValueError, TypeError, LookupError, AttributeError)
_TEXT = 200  # characters of what somebody else says


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleMatrix:
    """Series with the name that their label gives them, each with its samples."""

    names: tuple[str, ...]
    counts: Ints
    times: Floats
    values: Floats
    warnings: tuple[str, ...] = ()  # the answer is not whole


def matrix(answer: HttpAnswer, label: str) -> SampleMatrix:
    """Parse the answer to a range query. It may have ten million samples, so numbers are not made
    one by one."""
    refuse(answer)
    try:
        return _fast(answer.body, label)
    except (*_MISSHAPEN, DeprecationWarning):  # numpy's for text that is no list of numbers
        return _slow(answer.body, label)


def _fast(body: bytes, label: str) -> SampleMatrix:
    """Split the text at its seams, which are surely between values: inside of a JSON text a quote
    has a backslash."""
    head, *parts = body.split(_VALUES)
    texts, rest = [], [head]
    for part in parts:
        text, end, tail = part.partition(_END)
        if not end:
            raise ValueError("no end")
        texts.append(text)
        rest.append(tail)
    document = _document(b"".join(rest))
    series = document["data"]["result"]
    if len(series) != len(texts):
        raise ValueError("series without values")
    counts = np.array([text.count(b"],[") + 1 for text in texts], dtype=np.int64)
    plain = b"],[".join(texts).translate(None, b'["').replace(b"]", b"")
    numbers = np.fromstring(plain.decode("ascii"), sep=",") if texts else np.zeros(0)
    if len(numbers) != 2 * int(counts.sum()):
        raise ValueError("pairs expected")
    return SampleMatrix(
        names=tuple(_name(entry, label) for entry in series),
        counts=counts,
        times=numbers[0::2],
        values=numbers[1::2],
        warnings=_warnings(document),
    )


def _slow(body: bytes, label: str) -> SampleMatrix:
    try:
        document = _document(body)
        series = [(_name(entry, label), entry["values"]) for entry in document["data"]["result"]]
        pairs = [(float(time), float(value)) for _, values in series for time, value in values]
    except _MISSHAPEN:
        raise TelemetryError(f"it answered with no matrix of samples: {_excerpt(body)}") from None
    numbers = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return SampleMatrix(
        names=tuple(name for name, _ in series),
        counts=np.array([len(values) for _, values in series], dtype=np.int64),
        times=numbers[:, 0],
        values=numbers[:, 1],
        warnings=_warnings(document),
    )


def scalar(answer: HttpAnswer) -> float:
    """Return the one number of an instant query; NaN if it has none."""
    refuse(answer)
    try:
        data = _document(answer.body)["data"]
        result = data["result"]
        if data["resultType"] == "scalar":
            return float(result[1])
        return float(result[0]["value"][1]) if result else math.nan
    except _MISSHAPEN:
        raise TelemetryError(f"it answered with no number: {_excerpt(answer.body)}") from None


def refuse(answer: HttpAnswer) -> None:
    """Raise an error unless the answer is a success, in Prometheus' own words if it has any."""
    if answer.status == 200:
        return
    try:
        document = json_value(answer.body.decode())
        words = f"{document['error']}"
    except _MISSHAPEN:
        words = _excerpt(answer.body) if answer.body else "without a word"
    reason = " ".join(words.split())[:_TEXT]
    if answer.status in (401, 403):
        raise TelemetryError(f"it needs the right token ({answer.status})")
    if 300 <= answer.status < 400:
        raise TelemetryError(f'it sends us on to "{answer.location[:_TEXT]}": name that address')
    if answer.status == 404:
        raise TelemetryError("there is no /api/v1 at this address (404): is a path missing in it?")
    raise TelemetryError(f"it answered {answer.status}: {reason}")


def _document(body: bytes) -> Any:
    document = json_value(body.decode())
    if document["status"] != "success":
        raise ValueError(document["status"])
    return document


def _name(entry: Any, label: str) -> str:
    return str(entry["metric"].get(label, ""))


def _warnings(document: Any) -> tuple[str, ...]:
    """Return the warnings of a server that asks others; remarks on the query itself say nothing of
    missing data."""
    texts = [" ".join(str(text).split())[:_TEXT] for text in document.get("warnings") or []]
    return tuple(text for text in texts if not text.startswith("PromQL "))


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:2000].decode(errors="replace").split())
    return json.dumps(text[:80], ensure_ascii=False)


# --- from labels to nodes --------------------------------------------------------------------


def node_series(answer: SampleMatrix, nodes: Sequence[str]) -> tuple[SampledSeries, set[str]]:
    """Return a series for each node, the one with most samples, and the nodes that have several."""
    row_of: dict[str | None, int] = {node: row for row, node in enumerate(nodes)}
    hosts = HostNames(nodes)
    rows = np.array([row_of.get(hosts.find(name), -1) for name in answer.names], dtype=np.int64)
    twice: set[str] = set()
    best: dict[int, int] = {}
    for place, row in enumerate(rows.tolist()):
        if row >= 0 and row in best:
            twice.add(nodes[row])
        if row >= 0 and (row not in best or answer.counts[place] > answer.counts[best[row]]):
            best[row] = place
    for place in set(range(len(rows))) - set(best.values()):
        rows[place] = -1
    series = SampledSeries(
        rows=np.repeat(rows, answer.counts), times=answer.times, values=answer.values
    )
    return series, twice
