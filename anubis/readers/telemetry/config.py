"""Settings of telemetry, from configs/telemetry/*.yaml: what is watched and where it comes from.

A metric's facts are declared there once; a site's file has what differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from anubis.core.errors import ConfigError, UsageError, did_you_mean
from anubis.core.watch.telemetry import WORST, Side, WatchedMetric
from anubis.text import places
from anubis.text.reading import load_yaml, read

DEFAULT = "default"
PAPER = (  # the seven that Minder looks at, by its description
    *("pfc_tx", "cpu_use", "gpu_duty", "gpu_power", "gpu_graphics", "gpu_tensor"),
    "nvlink_throughput",
)
# that are asked for by default: faults that move none of those seven move these
ORDER = (*PAPER, "throughput", "memory_use", "gpu_memory", "disk_use", "send_queue")
PLACES = {"nodes", "by", "of", "recent", "rate"}  # in a query, each behind a $
_PLACE = re.compile(r"\$(\w*)")


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """A metric, and how a Prometheus is asked for it."""

    metric: str
    """Its name."""
    about: str = ""
    """What it is, in one line."""
    unit: str
    """The unit of its values."""
    low: float | None = None
    """Its lower bound. Default: the least value of any node of the job."""
    high: float | None = None
    """Its upper bound. Default: the largest value of any node of the job."""
    fault: Literal["low", "high", "either"]
    """The side of its peers on which a faulty node is expected."""
    family: str = ""
    """What it measures: cpu, gpu, pfc, throughput, disk or memory."""
    floor: float = 0.0
    """A difference below this is nothing."""
    query: str
    """A query in PromQL with a series for each node; `$nodes`, `$by`, `$of`, `$recent` and `$rate`
    are filled in."""
    node_label: str = ""
    """The label that names the node. Default: that of the whole file."""
    worst: Literal["", "min", "max"] = ""
    """The worst of several devices. Default: `max` if a fault shows as a high value, else `min`."""
    needs: str = ""
    """What has to run on the nodes; named if no node reports the metric."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.metric):
            raise ValueError(f'"{self.metric}" is no name, expected letters, digits and _')
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f'"low" is {self.low:g}, expected less than "high", {self.high:g}')
        for place in _PLACE.findall(self.query):
            if place not in PLACES:
                hint = did_you_mean(place, PLACES)
                raise ValueError(f'the query of "{self.metric}" has "${place}"; {hint}')
        if "$nodes" not in self.query:
            raise ValueError(
                f'the query of "{self.metric}" has no "$nodes" in the braces of a series: it'
                " would ask for the whole site"
            )

    def facts(self, *, worst: bool = False) -> WatchedMetric:
        return WatchedMetric(
            name=f"{self.metric}:{WORST}" if worst else self.metric,
            unit=self.unit,
            low=self.low,
            high=self.high,
            fault=Side(self.fault),
            family=self.family,
            floor=self.floor,
        )

    @property
    def aggregate_of_worst(self) -> str:
        return self.worst or ("max" if self.fault == "high" else "min")


@dataclass(frozen=True, kw_only=True)
class PrometheusSettings:
    """The address of a Prometheus, or of what answers like one."""

    url: str
    """Its address, up to what comes before `/api/v1`."""
    token_file: str = ""
    """A file with the token that it wants; read again for each look."""
    ca_file: str = ""
    """The authorities that its certificate is checked by. Without it, this system's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each question."""
    deadline_s: float = 20.0
    """How long one question may take. Seconds."""
    at_once: int = 4
    """How many are asked at a time."""

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/\s]", self.url):
            raise ValueError(f'"url" is "{self.url}", expected one like "http://prometheus:9090"')
        if not (0 < self.deadline_s <= 600 and 1 <= self.at_once <= 32):
            raise ValueError("expected a deadline_s of at most 600, and at_once from 1 to 32")
        if bad := [
            name for name, text in self.headers.items() if re.search(r"[\r\n]", name + text)
        ]:
            raise ValueError(f'the header "{bad[0]}" has more than one line')


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The addresses of the agents of nodes without exporters."""

    port: int = 9841
    """The port of each agent."""
    deadline_s: float = 5.0
    """How long one may take. Seconds."""
    token_file: str = ""
    """A file with the token that they want."""


@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    summary: str = ""
    """What the file is, in one line."""
    based_on: str = ""
    """The file that this one changes. Without it, this file says everything."""
    node_label: str = "instance"
    """The label that names the node; a port behind the name is cut off."""
    prometheus: PrometheusSettings | None = None
    """The address of a Prometheus."""
    agents: AgentSettings | None = None
    """The agents of nodes without exporters."""
    metrics: tuple[MetricSettings, ...]
    """What is watched. With `based_on`, entries need only what differs."""

    def __post_init__(self) -> None:
        names = [settings.metric for settings in self.metrics]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'"metrics" has "{name}" twice')

    def settings_of(self, name: str) -> MetricSettings:
        base, _, qualifier = name.partition(":")
        by_name = {settings.metric: settings for settings in self.metrics}
        if base not in by_name or qualifier not in ("", WORST):
            raise UsageError(f'no metric "{name}"; {did_you_mean(base, by_name)}')
        settings = by_name[base]
        if qualifier and "$of" not in settings.query:
            raise UsageError(
                f'"{base}" is one value for a node, so there is no "{name}": ask for "{base}"'
            )
        return settings

    def watched_metrics(self, names: Sequence[str] = ORDER) -> tuple[WatchedMetric, ...]:
        """Return the facts of metrics; `gpu_duty:worst` is the worst GPU of a node."""
        return tuple(
            self.settings_of(name).facts(worst=name.endswith(f":{WORST}")) for name in names
        )


def telemetry_settings(path: Path) -> TelemetrySettings:
    where = f'"{path}"'
    return read(_read_document(path, ()), TelemetrySettings, where, ConfigError)


def shipped_settings() -> TelemetrySettings:
    return telemetry_settings(places.shipped_folder("configs") / "telemetry" / f"{DEFAULT}.yaml")


def _read_document(path: Path, above: tuple[Path, ...]) -> dict[str, object]:
    """Return the document of a file, with all that it is based on."""
    document = load_yaml(path, ConfigError)
    name = document.get("based_on")
    if not name:
        return document
    if not isinstance(name, str):
        raise ConfigError(f'"{path}": "based_on" is {name!r}, expected the name of a file')
    basis = _basis(name, path)
    if basis.resolve() in (path.resolve(), *above):
        raise ConfigError(f'"{path}" is based on itself, through "{name}"')
    return _merge(_read_document(basis, (path.resolve(), *above)), document, f'"{path}"')


def _basis(name: str, path: Path) -> Path:
    shipped = places.shipped_folder("configs") / "telemetry"
    for folder in (path.parent, places.home() / "configs" / "telemetry", shipped):
        candidate = folder / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        if candidate.is_file() and candidate.resolve() != path.resolve():
            return candidate
    names = [file.stem for file in shipped.glob("*.yaml")]
    raise ConfigError(f'"{path}": there is no "{name}" to be based on; {did_you_mean(name, names)}')


def _merge(
    basis: Mapping[str, object], changes: Mapping[str, object], where: str
) -> dict[str, object]:
    entries = {str(entry.get("metric")): entry for entry in _entries(basis, where)}
    for entry in _entries(changes, where):
        name = str(entry.get("metric"))
        if name not in entries and not {"unit", "fault", "query"} <= set(entry):
            raise ConfigError(
                f'{where}: no metric "{name}" to change; {did_you_mean(name, entries)} A new'
                " one needs unit, fault and query"
            )
        entries[name] = {**entries.get(name, {}), **entry}
    return {**basis, **changes, "metrics": list(entries.values())}


def _entries(document: Mapping[str, object], where: str) -> list[dict[str, Any]]:
    entries = document.get("metrics") or []
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        return cast(list[dict[str, Any]], entries)
    raise ConfigError(f'{where}: "metrics": expected a list of tables, each with "metric: NAME"')
