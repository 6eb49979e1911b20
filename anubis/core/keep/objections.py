"""Objections of a keeper to nodes, for the others that decide about them: a gate, a sweep and a
page never contradict the keeper about a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anubis.core.history.events import Debt
from anubis.core.keep.life import AFTER_JOBS, Life, Owed

DEBTS = {  # in words, with what they are about
    Debt.NEW: "new here",
    Debt.UPGRADE: "upgraded",
    Debt.DOUBT: "none of its passes counts",
    Debt.INCIDENT: "incident {}",
    Debt.ANSWER: "its last test gave no answer",
    Debt.SUSPICION: "suspicion {}",
    Debt.REPAIR: "repaired",
    Debt.RESERVE: "chosen as a spare",
    Debt.WORK: "a job ended there",
    Debt.FAILURE: "a job failed there",
    Debt.UNEXPLAINED: "with the other nodes of job {}",
}


@dataclass(frozen=True, kw_only=True)
class Objections:
    out: Mapping[str, str] = field(default_factory=dict)  # node that must be out → why
    unproven: Mapping[str, str] = field(default_factory=dict)  # node that is absent, or has
    # something to prove → why
    retired: frozenset[str] = frozenset()  # of those that must be out: no verdict brings them back
    cleared: Mapping[str, float] = field(default_factory=dict)  # node without objections →
    # time of the last verdict on it

    def objection_to(self, node: str) -> str | None:
        """Reason why the node must be out, or what it has to prove; None: no objection."""
        return self.out.get(node, self.unproven.get(node))


def objections(lives: Iterable[Life], suite: str) -> Objections:
    """Objections to nodes by their lives. `suite`: whose tests the keeper asks for as proof."""
    lives = list(lives)
    return Objections(
        out={life.node: _reason(life) for life in lives if _is_denied(life)},
        unproven={life.node: _asked_proof(life, suite) for life in lives if _is_unproven(life)},
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
    return not life.present or bool(_signs(life))


def _signs(life: Life) -> list[Owed]:
    """Debts that may stand for a defect."""
    return [owed for owed in life.owed if owed.debt not in AFTER_JOBS]


def _asked_proof(life: Life, suite: str) -> str:
    if not (signs := _signs(life)):
        return "it was removed, or not there when its keeper last looked"
    return f"its keeper has yet to test it by suite {suite}: {name_debts(signs)}"


def name_debts(owed: Iterable[Owed]) -> str:
    """Words for what a node has to prove, each once."""
    words = (DEBTS[entry.debt].format(entry.about or "unknown") for entry in owed)
    return ", ".join(dict.fromkeys(words))
