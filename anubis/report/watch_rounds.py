"""Summaries of the last looks at the running jobs of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anubis.core.keep.suspicions import HitRate
from anubis.core.watch.rounds import KeptLook
from anubis.report.json import json_line
from anubis.text.wording import quantity, time_span

TROUBLES_NAMED = 3  # jobs: one line each in a turn's summary


def sentences(looks: tuple[KeptLook, ...], now: float) -> Iterator[str]:
    """Yield a summary of the running jobs, then the reason for each that could not be looked at."""
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
        yield f"watch: job {look.job} could not be looked at: {look.trouble}"


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
            f" {rate.misses}; the next is believed to {rate.confidence():.0%}"
        )
