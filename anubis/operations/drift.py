"""How near the metrics of each cluster came to their limits in the tests of the last weeks."""

from __future__ import annotations

from anubis.core.amounts import DAY_S
from anubis.core.history.drift import drifts
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import look_up, time_in
from anubis.report.drift import SHOWN_DAYS, ClusterDrift
from anubis.store.history import ClusterHistory


def drift_at_a_glance(caller: Caller = NOBODY) -> list[ClusterDrift]:
    """Drift of all nodes together, by cluster."""
    with caller.history() as history:
        return [drift_of_cluster(part, caller) for part in history.every()]


def drift_of_node(cluster: str, node: str, caller: Caller = NOBODY) -> ClusterDrift:
    with caller.history() as history:
        return drift_of_cluster(look_up(history, cluster), caller, node)


def drift_of_cluster(part: ClusterHistory, caller: Caller, node: str = "") -> ClusterDrift:
    """Drift of one cluster: of one node, or of all together."""
    since = time_in(part, caller).now - SHOWN_DAYS * DAY_S
    of_metrics = drifts(part.experience.limit_shares(since, node))
    return ClusterDrift(cluster=part.cluster, node=node, since=since, drifts=of_metrics)
