"""The idle nodes most at risk, tested within a budget."""

from __future__ import annotations

from collections.abc import Sequence

from anubis.core.errors import UsageError
from anubis.core.past.events import Tick
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import resolve
from anubis.operations.deciding import (
    USUAL,
    Terms,
    busy_nodes,
    decide,
    past_of,
    read_repertoire,
)
from anubis.operations.results import SweepResult
from anubis.operations.testing import carried_out_tests
from anubis.selector import Past
from anubis.store.history import ClusterHistory


def sweep(
    nodes: Sequence[str] | None = None, terms: Terms = USUAL, caller: Caller = NOBODY
) -> SweepResult:
    """The idle nodes most at risk, tested within a budget: of these, or of all in the history."""
    at = caller.clock()
    with caller.history() as history:
        part = resolve(history, terms.cluster, caller, nodes or ())
        repertoire = read_repertoire(terms)
        past = past_of(part, at, repertoire)
        decision = decide(_idle(nodes, past, part, at), terms, repertoire, past, part, at)
    caller.decided(decision)
    with carried_out_tests(decision, terms, caller) as campaign:
        result = SweepResult(decision=decision, campaign=campaign)
        caller.swept(result)
    return result


def _idle(nodes: Sequence[str] | None, past: Past, history: ClusterHistory, at: float) -> Tick:
    """Without the nodes that are at work, held, or out of service."""
    candidates = past.logbook.nodes if nodes is None else nodes
    if not candidates:
        raise UsageError(
            f'the history has no nodes of cluster "{history.cluster}" yet: name them, or begin with'
            " anubis accept"
        )
    out = busy_nodes(history, at) | past.standing.unfit.keys()
    return Tick(nodes=tuple(node for node in candidates if node not in out))
