"""The snapshot that readers see: all nodes, the latest campaigns and decisions. It is read at once
and kept for some seconds, so that fifty readers cost no more than one, and has its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from anubis.core.errors import AnubisError
from anubis.core.history.drift import Drift
from anubis.core.select.decision import Decision
from anubis.operations.caller import Caller
from anubis.operations.clusters import time_in
from anubis.operations.fleet import (
    ClusterGlance,
    Upkeep,
    campaigns_at_a_glance,
    glance_at,
    upkeep_of,
)
from anubis.operations.history import decisions, drift_of_cluster
from anubis.report.fleet import CampaignGlance, NodeGlance, node_line
from anubis.service.requester import LOG
from anubis.store.history import ClusterHistory
from anubis.store.tokens import Token

RENEWED_S = 2.0  # after the last renewal, and at least nine times as long as that took
SPARED = 9.0  # times as long as it took: a tenth of a processor at most
CAMPAIGNS_SHOWN = 200  # rows of a page that are read at a glance
DECISIONS_SHOWN = 100  # each has several lines


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    at: float
    clusters: Mapping[str, ClusterGlance]
    campaigns: tuple[CampaignGlance, ...]  # the newest first
    decisions: tuple[Decision, ...]
    tokens: tuple[Token, ...] = ()  # except those taken back
    upkeep: Mapping[str, Upkeep] = field(default_factory=dict)  # by cluster
    drifts: Mapping[str, Sequence[Drift]] = field(default_factory=dict)  # by cluster
    lines: dict[tuple[str, str], str] = field(default_factory=dict)  # of nodes, made on demand
    pages: dict[str, str] = field(default_factory=dict)  # made on demand

    @property
    def nodes(self) -> Iterator[NodeGlance]:
        return chain.from_iterable(glance.nodes for glance in self.clusters.values())

    def node(self, cluster: str, name: str) -> NodeGlance | None:
        glance = self.clusters.get(cluster)
        return glance.by_name.get(name) if glance else None

    def line_of(self, glance: NodeGlance) -> str:
        key = glance.cluster, glance.node
        if key not in self.lines:
            self.lines[key] = node_line(glance)
        return self.lines[key]


def _tests_so_far(glance: ClusterGlance) -> tuple[int, float]:
    """Return how many results of tests are known, and the time of the last."""
    results = glance.happened.validations
    return len(results), results[-1].at if results else 0.0


class Board:
    """The latest snapshot. A reader never waits for the next one, unless there is none yet."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._snapshot: Snapshot | None = None
        self._asked_for = threading.Event()
        self._first = threading.Lock()
        self._ends = threading.Event()
        self.trouble = ""  # why it could not be renewed
        self._thread = threading.Thread(target=self._keep, name="board", daemon=True)

    def start(self) -> None:
        """Begin to read, so that the first reader need not wait for ten thousand nodes."""
        self._asked_for.set()
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._asked_for.set()
        self._thread.join(timeout=5)

    def read(self) -> Snapshot:
        snapshot = self._snapshot
        if snapshot is None:
            with self._first:
                return self._snapshot or self._renew()
        # wall clock: a jump only renews the board
        if abs(time.time() - snapshot.at) > RENEWED_S:
            self._asked_for.set()
        return snapshot

    @property
    def latest(self) -> Snapshot | None:
        """The latest snapshot; None before the first reader."""
        return self.read() if self._snapshot else None

    def forget(self) -> None:
        """Renew the snapshot soon, because an event was just reported."""
        self._asked_for.set()

    def _renew(self) -> Snapshot:
        """Read only what has changed since the last snapshot. Readers see that one until this one
        is complete."""
        caller, before = self._caller, self._snapshot
        earlier = before.clusters if before else {}
        with caller.history() as history:
            now = caller.clock()  # wall clock: when it was read, decides nothing
            clusters = {
                part.cluster: glance_at(part, time_in(part, caller), earlier.get(part.cluster))
                for part in history.every()
            }
            upkeep = {part.cluster: upkeep_of(part, now) for part in history.every()}
            drifts = {
                part.cluster: self._drifts_of(part, before, clusters) for part in history.every()
            }
            kept = [token for token in history.tokens.all() if token.revoked_at is None]
        rows = before.campaigns if before else ()
        campaigns = campaigns_at_a_glance(CAMPAIGNS_SHOWN, before=rows, caller=caller)
        self._snapshot = Snapshot(
            at=now,
            clusters=clusters,
            campaigns=tuple(campaigns),
            decisions=tuple(decisions(DECISIONS_SHOWN, caller=caller)),
            tokens=tuple(kept),
            upkeep=upkeep,
            drifts=drifts,
        )
        return self._snapshot

    def _drifts_of(
        self, part: ClusterHistory, before: Snapshot | None, now: Mapping[str, ClusterGlance]
    ) -> Sequence[Drift]:
        """Return the drift of a cluster, read again when a test ended. It is a figure for monitors:
        if it cannot be read, all else is shown without it."""
        name = part.cluster
        earlier = before.clusters.get(name) if before else None
        if before and earlier and _tests_so_far(earlier) == _tests_so_far(now[name]):
            return before.drifts[name]
        try:
            return drift_of_cluster(part, self._caller).drifts
        except AnubisError as error:
            LOG.warning("the drift of %s was not read: %s", name, error)
            return ()

    def _keep(self) -> None:
        while not self._ends.is_set():
            self._asked_for.wait()
            self._asked_for.clear()
            if self._ends.is_set():
                return
            began = time.monotonic()
            try:
                with self._first:  # a first reader waits for this one instead of reading again
                    self._renew()
                self.trouble = ""
            except AnubisError as error:
                self.trouble = str(error)
                LOG.warning("what readers see was not renewed: %s", error)
            except Exception:  # a bug must not end the renewals of a service that runs for months
                self.trouble = "a bug in Anubis: see the log"
                LOG.exception("what readers see was not renewed")
            self._ends.wait(max(RENEWED_S, SPARED * (time.monotonic() - began)))
