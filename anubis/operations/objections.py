"""What a cluster's keeper holds against its nodes, as far as it knows of all verdicts."""

from __future__ import annotations

from collections.abc import Collection

from anubis.core.keep.objections import Objections, objections
from anubis.store.history import ClusterHistory


def objections_in(part: ClusterHistory, nodes: Collection[str] | None = None) -> Objections:
    """Objections against these nodes, or all. For a node with a verdict since the last turn there
    is none: the keeper may have stopped, so the requester judges by the verdict."""
    lives = part.keeping.lives() if nodes is None else part.keeping.lives_of(nodes)
    held = objections(lives)
    if not (held.out or held.unproven):
        return held
    unheard = part.keeping.unheard_campaigns()
    if not unheard:
        return held
    concluded = part.experience.validations()
    return held.exclude({v.node for v in concluded if v.campaign in unheard})
