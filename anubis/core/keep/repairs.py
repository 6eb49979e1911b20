"""Repairs by commands of the site: which node gets which command of its remedy now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter

from anubis.core.amounts import DAY_S
from anubis.core.keep.breaker import FLEET
from anubis.core.keep.commands import LifeCommand, Mode, Notify, TryRepair
from anubis.core.keep.keeper_events import RepairRan
from anubis.core.keep.keeping_policy import KeepingPolicy, allowed_count
from anubis.core.keep.life import Attempt, Life
from anubis.core.keep.lives import Lives
from anubis.core.records import Remedy

COUNTED_S = 7 * DAY_S  # in which the repairs of a node are counted


class Repairs:
    """Repairs of a fleet. Each command of a remedy is tried once, in order, on an empty node."""

    def __init__(
        self, lives: Lives, policy: KeepingPolicy, remedy_of: Callable[[str], Remedy | None]
    ) -> None:
        """`remedy_of` a code."""
        self._lives = lives
        self._policy = policy
        self._remedy_of = remedy_of

    def begin_due(self, at: float) -> Iterator[TryRepair]:
        """Begin the repairs that may begin now, one at a time for each node."""
        if self._policy.repair is None:
            return
        places = self._policy.repaired_at_once - self._count_running()
        waiting = (life for life in self._lives.values() if self._may_be_repaired(life, at))
        for life in sorted(waiting, key=attrgetter("node")):
            repair = self._next_repair(life, at)
            if repair is None or (repair.mode is Mode.ACT and places <= 0):
                continue
            if repair.mode is Mode.ACT:
                places -= 1
                self.begin(repair, at)
            yield repair

    def begin(self, repair: TryRepair, at: float) -> None:
        attempt = Attempt(words=repair.words, at=at)
        recent = self._lives[repair.node].attempts_since(at - COUNTED_S)
        self._lives.set(repair.node, repair=attempt, attempts=(*recent, attempt))

    def end(self, life: Life, event: RepairRan) -> tuple[Life, list[LifeCommand]]:
        begun = life.repair
        if begun is None or begun.words != event.words or event.at < begun.at:
            return life, []  # it was given up before it ended
        if not event.has_begun:
            return life.undo_attempt(event.words), []
        life = replace(life, repair=None)
        if not event.trouble:
            return life, []
        failed = Notify(subject=life.node, sentence=f"its repair failed: {event.trouble}")
        return life, [failed, *self.report_vain(life, event.at)]

    def report_vain(self, life: Life, at: float) -> list[Notify]:
        """A report if commands were tried, the node still has a defect, and no more are tried."""
        tried = life.attempts_since(at - COUNTED_S)
        if not tried or not (life.awaits_repair or life.is_lost) or self._next_repair(life, at):
            return []
        words = "1 command" if len(tried) == 1 else f"{len(tried)} commands"
        sentence = f"{words} did not repair it ({life.cause}): it waits for a person"
        return [Notify(subject=life.node, sentence=sentence)]

    def is_due_before_test(self, life: Life, at: float) -> bool:
        """Return whether a command comes before the next test. Its node may not be out yet."""
        acts = self._policy.repair is Mode.ACT
        return acts and life.is_taken_out and self._next_repair(life, at) is not None

    def reason_against(self, repair: TryRepair, at: float) -> str:
        """Return why a command that was proposed or kept earlier must not run now; empty: it would
        be asked for now as well."""
        before = self._lives[repair.node]
        life = before.undo_attempt(repair.words)
        count = self._count_running() - (before.repair is not None and life.repair is None)
        next_repair = self._next_repair(life, at)
        if not (life.is_there or life.is_lost):
            return f"the node is {life.state}"
        if life.jobs:
            return f"job {min(life.jobs)} runs there"
        if life.trial:
            return "a test of the node runs"
        if life.node in (self._lives.held if life.is_lost else self._lives.unreachable):
            return "the node is measured by others, or does not answer"
        if not self._may_be_repaired(life, at):
            return (
                "too many nodes are lost, or this one is not to be touched"
                if life.is_lost
                else "the node is not kept empty by Anubis any more"
            )
        if next_repair is None:
            return "no command is to be run for the node any more"
        if replace(next_repair, mode=repair.mode) != repair:
            return f"another command is to be run now, for {next_repair.code}"
        if count >= self._policy.repaired_at_once:
            return f"{count} nodes are being repaired, as many as the policy allows at once"
        return ""

    def _may_be_repaired(self, life: Life, at: float) -> bool:
        return self.is_long_lost(life, at) if life.is_lost else self._is_kept_empty(life)

    def _is_kept_empty(self, life: Life) -> bool:
        """Return whether the node is out, empty, and kept from jobs by Anubis."""
        is_empty = life.is_there and life.is_idle and life.node not in self._lives.unreachable
        is_ours = life.has_been_cordoned and life.cordoned_by_anubis
        return is_empty and is_ours and life.is_taken_out and life.is_out_as(life.out_code)

    def is_long_lost(self, life: Life, at: float) -> bool:
        """Return whether the node has been lost for so long that it has to prove itself anyhow,
        and so few are lost that the fault must be theirs, and not that of a network or of the
        orchestrator."""
        away_s = at - max(life.present_at, life.repair_done_at)
        is_free = life.is_idle and life.node not in self._lives.held
        is_ours = is_free and not life.is_cordoned_by_others
        return is_ours and away_s > self._policy.away_s and self._are_few_lost()

    def _are_few_lost(self) -> bool:
        there = self._lives.count(FLEET).among
        lost = self._lives.count_lost()
        return there > 0 and lost <= allowed_count(self._policy.out_of_fleet, there + lost)

    def _next_repair(self, life: Life, at: float) -> TryRepair | None:
        """The next command of the remedy; None if there is none, or no more may be run."""
        mode, remedy = self._policy.repair, self._remedy_of(life.cause) if life.cause else None
        recent = life.attempts_since(at - COUNTED_S)
        if mode is None or remedy is None or len(recent) >= self._policy.repairs:
            return None
        tried = {attempt.words for attempt in recent}
        untried = (words for words in remedy.commands_for(life.node) if words not in tried)
        if (words := next(untried, None)) is None:
            return None
        limit_s = remedy.limit_s
        return TryRepair(mode=mode, node=life.node, code=life.cause, words=words, limit_s=limit_s)

    def _count_running(self) -> int:
        return sum(life.repair is not None for life in self._lives.values())
