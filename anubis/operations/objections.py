"""What the keeper of a cluster holds against its nodes, as far as it has heard all of them."""

from __future__ import annotations

from collections.abc import Collection

from anubis.core.keep.objections import Objections, objections
from anubis.store.history import ClusterHistory


def objections_in(part: ClusterHistory, nodes: Collection[str] | None = None) -> Objections:
    """Against these nodes, or all. What was concluded of a node since the last turn is left to
    whoever asks: its keeper may not take turns any more."""
    lives = part.keeping.lives() if nodes is None else part.keeping.lives_of(nodes)
    held = objections(lives)
    if not (held.out or held.unproven):
        return held
    unheard = part.keeping.unheard_campaigns()
    if not unheard:
        return held
    concluded = part.experience.validations()
    return held.exclude({v.node for v in concluded if v.campaign in unheard})
