"""The idle nodes most at risk, tested within a budget."""

from __future__ import annotations

from collections.abc import Sequence

from anubis import config
from anubis.core.errors import ConfigError, UsageError
from anubis.core.past.events import Tick
from anubis.core.past.maintenance import open_windows
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import THIS_MACHINE, resolve, time_in
from anubis.operations.deciding import (
    USUAL,
    Terms,
    busy_nodes,
    decide,
    past_of,
    read_repertoire,
)
from anubis.operations.results import SweepResult
from anubis.operations.sparing import others_work, without
from anubis.operations.testing import carried_out_tests
from anubis.selector import Past
from anubis.store.history import ClusterHistory


def sweep(
    nodes: Sequence[str] | None = None,
    terms: Terms = USUAL,
    caller: Caller = NOBODY,
    *,
    name: str = "",
) -> SweepResult:
    """The idle nodes most at risk, tested within a budget: of these, or of all in the history.
    `name`: of the campaign."""
    with caller.history() as history:
        part = resolve(history, terms.cluster, caller, nodes or ())
        time = time_in(part, caller)
        if time.doubt:
            caller.remark(time.doubt)
        repertoire = read_repertoire(terms)
        past = past_of(part, time.now, repertoire).doubting(time.doubt)
        work = others_work(_described(terms.cluster), past.windows, time.now)
        idle = Tick(nodes=tuple(without(_idle(nodes, past, part, time.now), work, caller)))
        decision = decide(idle, terms, repertoire, past, part, time.now)
    caller.decided(decision)
    with carried_out_tests(decision, terms, caller, name) as campaign:
        result = SweepResult(decision=decision, campaign=campaign)
        caller.swept(result)
    return result


def _described(cluster: str | None) -> config.Cluster | None:
    """Its file; None where it is only a name in the history, and nothing can be run there."""
    try:
        return config.cluster(cluster or THIS_MACHINE)
    except ConfigError:
        return None


def _idle(nodes: Sequence[str] | None, past: Past, history: ClusterHistory, at: float) -> list[str]:
    """Without the nodes that the history has at work, held, out of service or under maintenance."""
    candidates = past.logbook.nodes if nodes is None else nodes
    if not candidates:
        raise UsageError(
            f'the history has no nodes of cluster "{history.cluster}" yet: name them, or begin with'
            " anubis accept"
        )
    out = busy_nodes(history, at) | past.standing.unfit.keys()
    out |= open_windows(past.windows, at).keys()
    return [node for node in candidates if node not in out]
