"""Objections of a keeper to nodes, for the others that decide about them: a gate, a sweep and a
page never contradict the keeper about a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anubis.core.keep.life import AFTER_JOBS, Life


@dataclass(frozen=True, kw_only=True)
class Objections:
    out: Mapping[str, str] = field(default_factory=dict)  # node that must be out → why
    unproven: frozenset[str] = frozenset()  # absent, or with something to prove
    retired: frozenset[str] = frozenset()  # of those that must be out: no verdict brings them back
    cleared: Mapping[str, float] = field(default_factory=dict)  # node without objections →
    # time of the last verdict on it

    def objection_to(self, node: str) -> str | None:
        """Reason why the node must be out; empty: it has something to prove; None: no objection."""
        return self.out.get(node, "" if node in self.unproven else None)


def objections(lives: Iterable[Life]) -> Objections:
    lives = list(lives)
    return Objections(
        out={life.node: _reason(life) for life in lives if _is_denied(life)},
        unproven=frozenset(life.node for life in lives if _is_unproven(life)),
        retired=frozenset(life.node for life in lives if life.retired),
        cleared={
            life.node: life.judged_at
            for life in lives
            if not (_is_denied(life) or _is_unproven(life))
        },
    )


def _is_denied(life: Life) -> bool:
    """Return whether a keeper denies the node. A node that only owes a proof after an incident is
    not denied: a test may clear it."""
    return life.retired or life.is_broken or bool(life.incidents)


def _reason(life: Life) -> str:
    return "it is retired" if life.retired else life.out_reason[1]


def _is_unproven(life: Life) -> bool:
    return not life.present or any(owed.debt not in AFTER_JOBS for owed in life.owed)
