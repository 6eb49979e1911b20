"""The last looks at the running jobs of a cluster: in summaries, and as a page of what they saw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from anubis.core.keep.suspicions import HitRate
from anubis.core.watch.findings import Sign
from anubis.core.watch.rounds import KeptLook
from anubis.report import watch_rounds
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.service_pages import path_of
from anubis.report.watch import RULES, amount
from anubis.text.wording import quantity, time_span

TROUBLES_NAMED = 3  # jobs: one line each in a turn's summary


def sentences(looks: tuple[KeptLook, ...], now: float) -> Iterator[str]:
    """Yield a summary of the running jobs, then the reason for each that could not be examined."""
    running = [look for look in looks if not look.job_ended]
    if not running:
        yield "watch: no running job was looked at yet"
        return
    suspects = sum(look.suspects for look in running)
    newest = max(look.at for look in running)
    yield (
        f"watch: {quantity(len(running), 'running job')}, last look"
        f" {time_span(max(0.0, now - newest))} ago, {quantity(suspects, 'suspected node')}"
    )
    for look in [look for look in running if look.trouble][:TROUBLES_NAMED]:
        yield f"watch: job {look.job} could not be examined: {look.trouble}"


@dataclass(frozen=True, kw_only=True)
class WatchLine:
    cluster: str
    job: str
    at: float
    """When it was looked at last, in seconds since the epoch."""
    nodes: int
    suspects: int
    """Nodes that the look made suspect, whether or not they were before."""
    anomalies: int
    """What was worth a remark, and is no suspicion."""
    job_ended: bool
    """True if the job ended: it is not looked at again."""
    trouble: str
    """Why nothing could be seen; empty: it could."""


def watch_line(cluster: str, look: KeptLook) -> str:
    fields = WatchLine(
        cluster=cluster,
        job=look.job,
        at=look.at,
        nodes=look.nodes,
        suspects=look.suspects,
        anomalies=look.anomalies,
        job_ended=look.job_ended,
        trouble=look.trouble,
    )
    return json_line("watch", fields)


def sentences_on_rates(rates: Mapping[str, HitRate], source: str = "watch") -> Iterator[str]:
    """Yield how often suspicions of the watch, or of another source, were right at this site."""
    for category, rate in rates.items():
        yield (
            f"{source}: of its suspicions of {category}, tests confirmed {rate.hits} and refuted"
            f" {rate.misses}; the next is {rate.confidence():.0%} likely to be right"
        )


KINDS_NAMED = 2  # of a fault: fit into a cell
ANOMALIES_SHOWN = 5  # of a job


@dataclass(frozen=True, kw_only=True)
class JobLooked:
    """The last look at a job, and the lines of the last look that saw anything."""

    cluster: str
    kept: KeptLook
    lines: Sequence[str] = ()

    @cached_property
    def documents(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def answer(self) -> Mapping[str, Any] | None:
        """The `look` line of the last look that saw anything; None if there is none yet."""
        return next((line for line in self.documents if line["type"] == "look"), None)

    @property
    def suspicions(self) -> list[Mapping[str, Any]]:
        return [line for line in self.documents if line["type"] == "suspicion"]

    @property
    def anomalies(self) -> list[str]:
        lines = [line for line in self.documents if line["type"] == "anomaly"]
        sentences = [f"{line['node'] or 'all nodes'}: {line['sentence']}" for line in lines]
        more = len(sentences) - ANOMALIES_SHOWN
        return [*sentences[:ANOMALIES_SHOWN], *([f"and {more:,} more"] if more > 0 else [])]

    @property
    def unjudged(self) -> list[str]:
        """Reasons why metrics were not judged, each with its metrics."""
        by_reason: dict[str, list[str]] = {}
        for metric, reason in (self.answer or {"unjudged": {}})["unjudged"].items():
            by_reason.setdefault(reason, []).append(metric)
        return [f"{', '.join(metrics)}: {reason}" for reason, metrics in by_reason.items()]

    @property
    def href(self) -> str:
        return f"/looks/{quote(self.cluster, safe='')}/{quote(self.kept.job, safe='')}"

    @property
    def state(self) -> str:
        """Name of the judgement whose colour the page uses for this job."""
        if self.kept.trouble or self.answer is None:
            return "unknown"
        return {"named": "defective", "nobody": "healthy"}.get(self.answer["answer"], "unknown")


@dataclass(frozen=True, kw_only=True)
class WatchedCluster:
    cluster: str
    at: float
    jobs: Sequence[JobLooked]

    @property
    def sentence(self) -> str:
        return next(watch_rounds.sentences(tuple(job.kept for job in self.jobs), self.at))

    @property
    def suspicions(self) -> list[tuple[JobLooked, Mapping[str, Any]]]:
        return [(job, suspicion) for job in self.jobs for suspicion in job.suspicions]

    @property
    def asides(self) -> list[JobLooked]:
        return [job for job in self.jobs if job.unjudged or job.anomalies]


def looks_page(clusters: Sequence[WatchedCluster], as_of: float, simulated: str = "") -> str:
    watched = [cluster for cluster in clusters if cluster.jobs]
    kept = [job.kept for cluster in watched for job in cluster.jobs if not job.kept.job_ended]
    return page(
        "service_looks",
        here="/looks",
        as_of=as_of,
        simulated=simulated,
        clusters=watched,
        running=len(kept),
        suspects=sum(look.suspects for look in kept),
        unseen=sum(bool(look.trouble) for look in kept),
        evidence=evidence,
        hint=hint,
        sure=sure,
        path_of=path_of,
    )


def evidence(suspicion: Mapping[str, Any]) -> list[str]:
    """List values of the node and of its peers, for each metric in which it left them."""
    return [
        f"{line['metric']} {_value(line, 'value')}, peers {_value(line, 'peers')} "
        f"({RULES[Sign(line['sign'])]})"
        for line in suspicion["deviations"]
    ]


def _value(deviation: Mapping[str, Any], name: str) -> str:
    value = deviation[name]
    return "nothing reported" if value is None else amount(value, deviation["unit"])


def hint(suspicion: Mapping[str, Any]) -> str:
    mix = suspicion["mix"]
    likeliest = sorted(mix, key=mix.__getitem__, reverse=True)[:KINDS_NAMED]
    return ", ".join(f"{kind} {mix[kind]:.0%}" for kind in likeliest) or "-"


def sure(suspicion: Mapping[str, Any]) -> str:
    total = suspicion["hits"] + suspicion["misses"]
    tests = f"{suspicion['hits']:,} of {quantity(total, 'test')} agreed" if total else "no test yet"
    return f"{suspicion['confidence']:.0%}, {tests}"
