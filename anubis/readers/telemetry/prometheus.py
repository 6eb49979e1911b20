"""The telemetry of a job from a Prometheus, or from what answers like one.

The grid has the step of the slowest scrape. A value may be two scrapes old and a rate is taken over
four, because one scrape may fail; core.watch.alignment does the rest. A metric whose answer is
incomplete is left out: a gap of ours must not look like a fault of a node.
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from anubis.core.arrays import Floats32
from anubis.core.errors import FetchError, TelemetryError, UsageError
from anubis.core.watch.alignment import Grid, grid_over, resample, round_step
from anubis.core.watch.telemetry import WORST, Telemetry
from anubis.readers.telemetry.config import (
    ORDER,
    MetricSettings,
    PrometheusSettings,
    TelemetrySettings,
)
from anubis.readers.telemetry.prometheus_answers import SampleMatrix, matrix, node_series, scalar
from anubis.readers.telemetry.pulled import PulledTelemetry, nodes_in_words, silences
from anubis.text import files
from anubis.text.fetching import (
    HttpAnswer,
    HttpQuestion,
    TimeoutPassedError,
    UnreachableError,
    fetch,
)

MOST_POINTS = 11_000  # that Prometheus gives of one series
MOST_SAMPLES = 250_000  # in one answer: 8 MB, and 0.1 s to read
NODES_LOOKED_AT = 20  # to find out how often they are scraped
PROBE_S = 120.0  # eight scrapes at the usual step
USUAL_STEP_S = 15.0  # of Prometheus' example configuration
CLOCKS_APART_S = 15.0  # one usual step
PATIENT_TIMEOUTS = 2  # after which nothing more is asked
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*\{[^{}]*\$nodes[^{}]*\})\[\$(?:recent|rate)\]")
_NAME = re.compile(r"[\w.:-]+")


class RefusedError(TelemetryError):
    """The server answers, but refuses this request."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One request: a metric of some nodes, over some of the time."""

    name: str
    expression: str
    label: str
    nodes: tuple[str, ...]
    rows: slice  # of these nodes, among all
    grid: Grid
    first: int  # point of the whole grid


@dataclass
class _Collected:
    """The values so far: parts are put in their places as they arrive, because their text is ten
    times as large."""

    values: dict[str, Floats32]  # by metric, nodes x points
    failures: dict[str, str] = field(default_factory=dict)  # by metric
    twice: dict[str, set[str]] = field(default_factory=dict)  # nodes with several series
    timeouts: int = 0


class Prometheus:
    def __init__(
        self,
        settings: TelemetrySettings,
        names: Sequence[str] = ORDER,
        where: PrometheusSettings | None = None,
    ) -> None:
        """Prepare a source; `where`: instead of what the settings say."""
        place = where or settings.prometheus
        if place is None:
            raise UsageError(
                "no Prometheus is configured: give its address, or"
                ' "prometheus: {url: ...}" in a file of configs/telemetry/'
            )
        self._settings, self._names, self._place = settings, tuple(names), place
        self._metrics = settings.watched_metrics(names)
        self._trust = _trust(place)

    @property
    def name(self) -> str:
        return f"the Prometheus at {self._place.url}"

    def now(self) -> float:
        """Return the time by the server's own clock."""
        return self._ask_number("time()", None)

    def step(self, nodes: Sequence[str], end: float, span_s: float) -> float:
        """Return the step of the slowest scrape; NaN if no node reports anything."""
        some = nodes[:: max(1, len(nodes) // NODES_LOOKED_AT)]
        steps = [self._step_of(name, some, end, span_s) for name in self._names]
        return round_step(max(steps)) if (steps := [s for s in steps if s > 0]) else math.nan

    def pull(
        self, nodes: Sequence[str], until: float, last_s: float, *, step_s: float | None = None
    ) -> PulledTelemetry:
        """Return what these nodes reported in so many seconds before; never later than its clock
        says."""
        _check(nodes)
        now = self.now()
        end = min(until, now)
        step = step_s or self.step(nodes, end, last_s)
        grid = grid_over(end - last_s, end, step if step > 0 else USUAL_STEP_S)
        shape = len(nodes), grid.points
        collected = _Collected(
            values={name: np.full(shape, np.nan, dtype=np.float32) for name in self._names}
        )
        self._collect(list(self._parts(nodes, grid)), collected)
        telemetry = self._make_telemetry(nodes, grid, collected)
        remarks = [f"{name} is left out: {why}" for name, why in collected.failures.items()]
        remarks += _repetition_remarks(collected, self._names, nodes)
        if until - now > CLOCKS_APART_S:
            remarks.append(f"the clock of {self.name} is {until - now:,.0f} s behind ours")
        remarks += [
            remark
            for remark in silences(telemetry, self._settings)
            if not any(remark.startswith(f"no node reports {name}") for name in collected.failures)
        ]
        return PulledTelemetry(telemetry=telemetry, remarks=tuple(remarks))

    def _make_telemetry(self, nodes: Sequence[str], grid: Grid, collected: _Collected) -> Telemetry:
        """Return the telemetry; an error if nothing is known: that must not pass for a look."""
        for name in collected.failures:
            collected.values[name][:] = np.nan
        if len(collected.failures) == len(self._names):
            raise TelemetryError(f"{self.name}: {next(iter(collected.failures.values()))}")
        if all(np.isnan(values).all() for values in collected.values.values()):
            raise TelemetryError(
                f"{self.name} knows none of the {len(nodes):,} nodes, such as"
                f' "{nodes[0]}": is "{self._settings.node_label}" the label that names them?'
            )
        return Telemetry(
            metrics=self._metrics,
            nodes=tuple(nodes),
            start=grid.start,
            step_s=grid.step_s,
            values=np.stack([collected.values.pop(name) for name in self._names]),
        )

    # --- what is asked ---------------------------------------------------------------------

    def _parts(self, nodes: Sequence[str], grid: Grid) -> Iterator[_Part]:
        for first in range(0, grid.points, MOST_POINTS):
            piece = Grid(
                start=grid.start + first * grid.step_s,
                step_s=grid.step_s,
                points=min(MOST_POINTS, grid.points - first),
            )
            at_once = max(1, MOST_SAMPLES // max(1, piece.points))
            slices = math.ceil(len(nodes) / at_once)
            for name in self._names:
                metric = self._settings.settings_of(name)
                label = metric.node_label or self._settings.node_label
                for number in range(slices):
                    some = nodes[number::slices]
                    yield _Part(
                        name=name,
                        expression=_fill_query(metric, name, label, some, grid.step_s),
                        label=label,
                        nodes=tuple(some),
                        rows=slice(number, None, slices),
                        grid=piece,
                        first=first,
                    )

    def _step_of(self, name: str, nodes: Sequence[str], end: float, span_s: float) -> float:
        """Return the step of a metric, from the most samples that any of its series has in two
        minutes, because a gap is no slower scrape."""
        metric = self._settings.settings_of(name)
        label = metric.node_label or self._settings.node_label
        selector = _SELECTOR.search(metric.query)
        if not selector:
            return math.nan
        series = selector[1].replace("$nodes", _matcher(label, nodes))
        probe = f"{PROBE_S:.0f}s"
        span = max(PROBE_S, span_s - PROBE_S)
        try:
            count = self._ask_number(
                f"max(max_over_time(count_over_time({series}[{probe}])[{span:.0f}s:{probe}]))", end
            )
        except RefusedError:
            return math.nan  # its values are read later, with the reason
        return PROBE_S / count if count > 0 else math.nan

    def _collect(self, parts: Sequence[_Part], collected: _Collected) -> None:
        with ThreadPoolExecutor(self._place.at_once) as pool:
            pending = [(part.name, pool.submit(self._place_in, collected, part)) for part in parts]
            for name, future in pending:
                try:
                    future.result()
                except UnreachableError as cause:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise TelemetryError(f"{self.name} cannot be reached: {cause}") from None
                except (FetchError, TelemetryError) as cause:
                    collected.failures.setdefault(name, str(cause))

    def _place_in(self, collected: _Collected, part: _Part) -> None:
        answer = self._range(part, collected)
        if answer.warnings:
            raise TelemetryError(f"the answer is not whole: {answer.warnings[0]}")
        series, twice = node_series(answer, part.nodes)
        if twice:
            collected.twice.setdefault(part.name, set()).update(twice)
        points = slice(part.first, part.first + part.grid.points)
        collected.values[part.name][part.rows, points] = resample(
            series, len(part.nodes), part.grid
        )

    def _range(self, part: _Part, collected: _Collected) -> SampleMatrix:
        if part.name in collected.failures:
            raise TelemetryError(collected.failures[part.name])
        if collected.timeouts >= PATIENT_TIMEOUTS:
            raise TelemetryError(f"not asked, after {PATIENT_TIMEOUTS} questions without an answer")
        form = {
            "query": part.expression,
            "start": f"{part.grid.start:.3f}",
            "end": f"{part.grid.end:.3f}",
            "step": f"{part.grid.step_s:g}",
        }
        try:
            return matrix(self._post("query_range", form), part.label)
        except TimeoutPassedError:
            collected.timeouts += 1
            raise

    def _ask_number(self, expression: str, at: float | None) -> float:
        form = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        answer = None
        try:
            answer = self._post("query", form)
            return scalar(answer)
        except UnreachableError as cause:
            raise TelemetryError(f"{self.name} cannot be reached: {cause}") from None
        except (FetchError, TelemetryError) as cause:
            kind = RefusedError if answer else TelemetryError
            raise kind(f"{self.name}: {cause}") from None

    def _post(self, kind: str, form: dict[str, str]) -> HttpAnswer:
        """Send a request. `partial_response`: a server in front of several Prometheus shall refuse
        rather than leave some of them out."""
        limits = {"timeout": _duration(self._place.deadline_s), "partial_response": "false"}
        return fetch(
            HttpQuestion(
                url=f"{self._place.url.rstrip('/')}/api/v1/{kind}",
                deadline_s=self._place.deadline_s,
                body=urlencode({**form, **limits}).encode(),
                headers={
                    **self._place.headers,
                    **_authorization(self._place),
                    "Content-Type": "application/x-www-form-urlencoded",
                    "Accept": "application/json",
                },
                trust=self._trust,
            )
        )


def _check(nodes: Sequence[str]) -> None:
    if not nodes:
        raise UsageError("no nodes to ask for: name those of the job")
    for node in nodes:
        if not _NAME.fullmatch(node):
            raise UsageError(f'"{node}" is not a node name')


def _fill_query(
    metric: MetricSettings, name: str, label: str, nodes: Sequence[str], step_s: float
) -> str:
    aggregate = metric.aggregate_of_worst if name.endswith(f":{WORST}") else "avg"
    values = {
        "$nodes": _matcher(label, nodes),
        "$by": label,
        "$of": aggregate,
        "$recent": _duration(2 * step_s),
        "$rate": _duration(4 * step_s),
    }
    return re.sub(r"\$\w+", lambda place: values[place[0]], metric.query)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _matcher(label: str, nodes: Sequence[str]) -> str:
    """Match whole names, with or without a domain and a port."""
    names = "|".join(node.replace(".", "[.]") for node in nodes)
    return f'{label}=~"(?:{names})(?:[.][^:]*)?(?::[0-9]+)?"'


def _repetition_remarks(
    collected: _Collected, names: Sequence[str], nodes: Sequence[str]
) -> Iterator[str]:
    for name in names:
        if name in collected.failures or name not in collected.twice:
            continue
        yield (
            f"{nodes_in_words(sorted(collected.twice[name]), nodes)} have {name} from several"
            " series; of each the one with most samples counts"
        )


def _trust(place: PrometheusSettings) -> ssl.SSLContext | None:
    if not place.url.startswith("https"):
        return None
    try:
        return ssl.create_default_context(cafile=place.ca_file or None)
    except (OSError, ssl.SSLError) as cause:
        reason = cause.strerror or "it holds no certificates"
        raise TelemetryError(f'cannot read ca_file "{place.ca_file}": {reason}') from None


def _authorization(place: PrometheusSettings) -> dict[str, str]:
    if not place.token_file:
        return {}
    named = f'token_file "{place.token_file}"'
    token = files.read_text(Path(place.token_file), TelemetryError, named, 1 << 16).strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise TelemetryError(f"{named} holds no token: expected one line")
    return {"Authorization": f"Bearer {token}"}
