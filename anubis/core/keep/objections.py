"""What a keeper holds against nodes, for whoever else decides about them: so that a gate, a sweep
and a page never say of a node what its keeper denies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from anubis.core.keep.life import AFTER_JOBS, Life


@dataclass(frozen=True, kw_only=True)
class Objections:
    out: Mapping[str, str] = field(default_factory=dict)  # nodes that must be out, and why
    unproven: frozenset[str] = frozenset()  # that are away, or have something to prove
    cleared: Mapping[str, float] = field(default_factory=dict)  # nodes against which it holds
    # nothing, and when it last heard a verdict on them

    def except_of(self, nodes: Collection[str]) -> Objections:
        """Without nodes of which something is known that the keeper has not heard yet."""
        return Objections(
            out={node: why for node, why in self.out.items() if node not in nodes},
            unproven=self.unproven.difference(nodes),
            cleared=self.cleared,
        )

    def against(self, node: str) -> str | None:
        """Why it must be out; empty: it has something to prove; None: nothing."""
        return self.out.get(node, "" if node in self.unproven else None)


def objections(lives: Iterable[Life]) -> Objections:
    lives = list(lives)
    return Objections(
        out={life.node: _why(life) for life in lives if _is_denied(life)},
        unproven=frozenset(life.node for life in lives if _is_unproven(life)),
        cleared={
            life.node: life.judged_at
            for life in lives
            if not (_is_denied(life) or _is_unproven(life))
        },
    )


def _is_denied(life: Life) -> bool:
    """A test may still clear what only owes a proof after an incident."""
    return life.retired or life.is_broken or bool(life.incidents)


def _why(life: Life) -> str:
    return "it is retired" if life.retired else life.why_out[1]


def _is_unproven(life: Life) -> bool:
    return not life.present or any(owed.debt not in AFTER_JOBS for owed in life.owed)
