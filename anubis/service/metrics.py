"""Metrics for Prometheus, with names and units by its conventions. docs/service.md lists them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anubis import __version__
from anubis.core.keep.life import State, suspect_since
from anubis.core.keep.lives import wanted_here
from anubis.core.records import Judgement
from anubis.report.keep import is_open
from anubis.service.connections import Connections
from anubis.service.fleet_cache import Snapshot

BY = ["cluster"]
# buckets: what is in memory takes milliseconds, a page of a large fleet seconds
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Gauges:
    def __init__(
        self, read: Callable[[], Snapshot], turns_every_s: Mapping[str, float] | None = None
    ) -> None:
        """`turns_every_s`: the interval of the keeper's turns, by cluster."""
        disable_created_metrics()  # type: ignore[no-untyped-call] # it has no types
        registry = self._registry = CollectorRegistry()
        build = Gauge("anubis_build_info", "The version", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.acting = Gauge(
            "anubis_acting", "1: this service does the periodic work", registry=registry
        )
        self._requests = Counter(
            "anubis_http_requests", "Requests", ["method", "route", "status"], registry=registry
        )
        self._request_s = Histogram(
            "anubis_http_request_duration_seconds",
            "How long requests took",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self._gates = Counter(
            "anubis_gate_answers", "Gates by their answer", ["answer"], registry=registry
        )
        self._pods = Counter(
            "anubis_pod_gate_reviews",
            "Pods that Kubernetes asked about, by whether a gate was added",
            ["outcome"],
            registry=registry,
        )
        self._gate_s = Histogram(
            "anubis_gate_duration_seconds",
            "How long gates took",
            buckets=SECONDS,
            registry=registry,
        )
        registry.register(_OfHistory(read, turns_every_s or {}))

    def watch(self, connections: Connections[Any]) -> None:
        """Export the state of the connections at each scrape."""
        self._registry.register(_OfConnections(connections))

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        known_method = method if method in ("GET", "HEAD", "POST", "DELETE") else "other"
        self._requests.labels(known_method, route, str(status)).inc()
        if not route.endswith("/stream"):
            self._request_s.labels(route).observe(seconds)

    def observe_gate(self, answer: str, seconds: float) -> None:
        self._gates.labels(answer).inc()
        self._gate_s.observe(seconds)

    def observe_pod(self, outcome: str) -> None:
        self._pods.labels(outcome).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _OfConnections(Collector):
    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        every, strangers = self._connections, self._connections.strangers
        held = GaugeMetricFamily("anubis_connections", "Connections that are open", labels=["of"])
        held.add_metric(["strangers"], strangers)
        held.add_metric(["others"], len(every) - strangers)
        yield held
        refused = CounterMetricFamily(
            "anubis_connections_refused",
            "Connections that were not let in, or that had to make room for others",
            labels=["how"],
        )
        refused.add_metric(["turned-away"], every.turned_away)
        refused.add_metric(["made-room"], every.given_up)
        yield refused


class _OfHistory(Collector):
    """Figures of the history, made at each scrape."""

    def __init__(self, read: Callable[[], Snapshot], turns_every_s: Mapping[str, float]) -> None:
        self._read = read
        self._turns_every_s = turns_every_s
        self._counted: tuple[Snapshot | None, tuple[GaugeMetricFamily, ...]] = (None, ())

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Describe nothing, so that registration does not read the history."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Figures of the snapshot, counted once for each snapshot."""
        snapshot = self._read()
        if self._counted[0] is not snapshot:
            turns = _turns(snapshot, self._turns_every_s)
            self._counted = snapshot, (*_figures(snapshot), *turns)
        yield from self._counted[1]


def _figures(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    yield _nodes(snapshot)
    yield _verdicts(snapshot)
    yield _held_nodes(snapshot)
    yield _states(snapshot)
    yield _actions(snapshot)
    yield _oldest_actions(snapshot)
    yield _failed_actions(snapshot)
    yield from _breakers(snapshot)
    yield _doubts(snapshot)
    yield _suspects(snapshot)
    yield _spares(snapshot)
    yield from _periodic_tasks(snapshot)
    yield from _diagnoses(snapshot)
    yield from _looks(snapshot)
    yield _drifts(snapshot)
    yield _unfinished_campaigns(snapshot)
    yield _executions(snapshot)
    yield _tokens(snapshot)
    read_at = GaugeMetricFamily(
        "anubis_history_read_timestamp_seconds", "When the history was read for these figures"
    )
    read_at.add_metric([], snapshot.at)
    yield read_at


def _nodes(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_nodes", "Nodes by what a gate would make of them", labels=["cluster", "judgement"]
    )
    for cluster, glance in snapshot.clusters.items():
        judged = Tally(node.judgement for node in glance.nodes)
        for judgement in (Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN):
            family.add_metric([cluster, judgement.value], judged[judgement])
    return family


def _verdicts(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_node_verdicts",
        "Nodes by the last verdict on them",
        labels=["cluster", "judgement", "code"],
    )
    for cluster, glance in snapshot.clusters.items():
        last = Tally((n.last.judgement.value, n.last.code) for n in glance.nodes if n.last)
        for (judgement, code), number in sorted(last.items()):
            family.add_metric([cluster, judgement, code], number)
    return family


def _held_nodes(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_nodes_held", "Nodes that are measured now", labels=["cluster"]
    )
    for cluster, glance in snapshot.clusters.items():
        family.add_metric([cluster], sum(node.hold is not None for node in glance.nodes))
    return family


def _states(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_node_states",
        "Nodes by the state that the keeper gives them",
        labels=["cluster", "state"],
    )
    for cluster, glance in snapshot.clusters.items():
        states = Tally(life.state for life in glance.kept.lives.values())
        for state in State:
            family.add_metric([cluster, state.value], states[state])
    return family


def _actions(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_open_actions",
        "What the keeper proposes or has sent",
        labels=["cluster", "action", "stage"],
    )
    for cluster, glance in snapshot.clusters.items():
        actions = Tally((a.command.kind, a.stage.value) for a in glance.kept.actions if is_open(a))
        for (action, stage), number in sorted(actions.items()):
            family.add_metric([cluster, action, stage], number)
    return family


def _turns(snapshot: Snapshot, every_s: Mapping[str, float]) -> Iterator[GaugeMetricFamily]:
    """Families of the keeper's turns. A cluster that should be kept and never was has 1970 as its
    last turn."""
    interval = GaugeMetricFamily(
        "anubis_keeper_turn_interval_seconds",
        "How often this service has the keeper of a cluster take its turn",
        labels=BY,
    )
    turned = GaugeMetricFamily(
        "anubis_keeper_last_turn_timestamp_seconds",
        "When the keeper of a cluster took its last turn; 0: never, and it should",
        labels=BY,
    )
    seen = GaugeMetricFamily(
        "anubis_keeper_fleet_seen_timestamp_seconds",
        "When the owner of the nodes last showed them to the keeper",
        labels=BY,
    )
    for cluster, seconds in every_s.items():
        interval.add_metric([cluster], seconds)
    last = {cluster: glance.kept.last_turn for cluster, glance in snapshot.clusters.items()}
    for cluster in {**last, **every_s}:
        if turn := last.get(cluster):
            turned.add_metric([cluster], turn.at)
            if turn.seen_at is not None:
                seen.add_metric([cluster], turn.seen_at)
        elif cluster in every_s:
            turned.add_metric([cluster], 0.0)
    yield from (interval, turned, seen)


def _oldest_actions(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_keeper_oldest_action_timestamp_seconds",
        "When the oldest of the open actions was asked for first",
        labels=["cluster", "action", "stage"],
    )
    for cluster, glance in snapshot.clusters.items():
        oldest: dict[tuple[str, str], float] = {}
        for action in filter(is_open, glance.kept.actions):
            key = (action.command.kind, action.stage.value)
            oldest[key] = min(action.at, oldest.get(key, action.at))
        for key, at in sorted(oldest.items()):
            family.add_metric([cluster, *key], at)
    return family


def _doubts(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_clock_doubted",
        "1: the wall clock cannot be right, and nothing is concluded from age",
        labels=["cluster"],
    )
    for cluster, glance in snapshot.clusters.items():
        family.add_metric([cluster], bool(glance.kept.doubt))
    return family


def _failed_actions(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_keeper_failed_actions",
        "Actions of the keeper that failed within the last hour and were not done since",
        labels=["cluster", "action"],
    )
    for cluster, upkeep in snapshot.upkeep.items():
        failed = Tally(action.command.kind for action in upkeep.failed)
        for action, number in sorted(failed.items()):
            family.add_metric([cluster, action], number)
    return family


def _breakers(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    opened = GaugeMetricFamily(
        "anubis_breakers_open",
        "Scopes whose breaker is open: no more nodes are taken out until a person closes it",
        labels=BY,
    )
    accepted = GaugeMetricFamily(
        "anubis_breaker_accepted_nodes",
        "Nodes that a person accepted to be out when the breaker was closed, beyond the share",
        labels=["cluster", "scope"],
    )
    for cluster, glance in snapshot.clusters.items():
        breakers = glance.kept.breakers
        opened.add_metric([cluster], sum(breaker.is_open for breaker in breakers.values()))
        for scope, breaker in breakers.items():
            if breaker.accepted:
                accepted.add_metric([cluster, scope], breaker.accepted)
    yield from (opened, accepted)


def _suspects(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_keeper_oldest_suspect_timestamp_seconds",
        "Since when the node has something to prove that has waited longest for its test",
        labels=BY,
    )
    for cluster, glance in snapshot.clusters.items():
        if since := [*filter(isfinite, map(suspect_since, glance.kept.lives.values()))]:
            family.add_metric([cluster], min(since))
    return family


def _spares(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_keeper_spares",
        "Spares of a sku: those that are wanted, and those that are ready",
        labels=["cluster", "sku", "which"],
    )
    for cluster, glance in snapshot.clusters.items():
        lives = glance.kept.lives.values()
        ready = Tally(life.sku for life in lives if life.state is State.SPARE)
        goals = snapshot.upkeep[cluster].spares if cluster in snapshot.upkeep else {}
        goals = wanted_here(goals, {life.sku for life in lives}) if lives else {}
        for sku in sorted({*ready, *goals}):
            family.add_metric([cluster, sku, "wanted"], goals.get(sku, 0))
            family.add_metric([cluster, sku, "ready"], ready[sku])
    return family


def _diagnoses(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    waiting = GaugeMetricFamily(
        "anubis_diagnoses_waiting",
        "Jobs that ended lately or make no progress, and are to be diagnosed",
        labels=BY,
    )
    oldest = GaugeMetricFamily(
        "anubis_diagnosis_oldest_waiting_timestamp_seconds",
        "Since when the job waits that has waited longest to be diagnosed",
        labels=BY,
    )
    for cluster, upkeep in snapshot.upkeep.items():
        waiting.add_metric([cluster], len(upkeep.undiagnosed))
        if upkeep.undiagnosed:
            oldest.add_metric([cluster], min(upkeep.undiagnosed))
    yield from (waiting, oldest)


def _periodic_tasks(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    family = GaugeMetricFamily(
        "anubis_periodic_task_last_success_timestamp_seconds",
        "When periodic work last ended without failing: sweep, criteria, risk",
        labels=["cluster", "task"],
    )
    for cluster, glance in snapshot.clusters.items():
        for task, at in sorted(glance.periodic_tasks.items()):
            family.add_metric([cluster, task.value], at)
    yield family
    overdue = GaugeMetricFamily(
        "anubis_periodic_task_overdue_since_timestamp_seconds",
        "Since when periodic work is overdue; no figure if none is",
        labels=["cluster", "task"],
    )
    for cluster, upkeep in snapshot.upkeep.items():
        for task, at in sorted(upkeep.overdue.items()):
            overdue.add_metric([cluster, task.value], at)
    yield overdue


def _looks(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """Families of the looks at running jobs."""
    jobs = GaugeMetricFamily("anubis_watched_jobs", "Running jobs that were looked at", labels=BY)
    failed = GaugeMetricFamily(
        "anubis_watch_failures", "Watched jobs whose last look could see nothing", labels=BY
    )
    suspects = GaugeMetricFamily(
        "anubis_watch_suspects", "Nodes that the last looks made suspect", labels=BY
    )
    oldest = GaugeMetricFamily(
        "anubis_watch_oldest_look_timestamp_seconds",
        "When the running job with the oldest look was looked at",
        labels=BY,
    )
    for cluster, glance in snapshot.clusters.items():
        running = [look for look in glance.looks if not look.job_ended]
        if glance.looks:
            jobs.add_metric([cluster], len(running))
            failed.add_metric([cluster], sum(bool(look.trouble) for look in running))
            suspects.add_metric([cluster], sum(look.suspects for look in running))
        if running:
            oldest.add_metric([cluster], min(look.at for look in running))
    yield from (jobs, failed, suspects, oldest)


def _drifts(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_limit_share",
        "Share of its limit that the last test of a metric used, 1 at the limit: of the middle"
        " unit, and of the unit that a twentieth of all is further off than",
        labels=["cluster", "benchmark", "metric", "unit"],
    )
    for cluster, drifts in snapshot.drifts.items():
        for drift in drifts:
            labels = cluster, drift.benchmark, drift.metric
            family.add_metric([*labels, "middle"], drift.last.middle)
            family.add_metric([*labels, "far"], drift.last.far)
    return family


def _tokens(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_token_expires_timestamp_seconds",
        "When a token ends; one that does not end by itself is left out",
        labels=["token"],
    )
    for token in snapshot.tokens:
        if token.expires_at is not None:
            family.add_metric([token.name], token.expires_at)
    return family


def _unfinished_campaigns(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_campaigns_unfinished",
        "Of the latest campaigns, those that are not over",
        labels=["cluster", "kind"],
    )
    open_campaigns = Tally(
        (campaign.cluster, campaign.kind)
        for campaign in snapshot.campaigns
        if campaign.finished_at is None
    )
    for (cluster, kind), number in sorted(open_campaigns.items()):
        family.add_metric([cluster, kind], number)
    return family


def _executions(snapshot: Snapshot) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "anubis_campaign_executions",
        "Executions of the latest campaigns, by how they ended",
        labels=["cluster", "ended"],
    )
    ended = Tally[tuple[str, str]]()
    for campaign in snapshot.campaigns:
        for how, number in campaign.executions.items():
            ended[campaign.cluster, how] += number
    for labels, number in sorted(ended.items()):
        family.add_metric(labels, number)
    return family
