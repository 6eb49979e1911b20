"""Tests that a keeper begins: of nodes that owe a proof, and of the nodes of a job with unexplained
trouble together, which is a search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from anubis.core.history.events import Debt
from anubis.core.keep.breaker import FLEET
from anubis.core.keep.commands import Mode, Prove
from anubis.core.keep.keeping_policy import KeepingPolicy, allowed_count
from anubis.core.keep.life import Life, OpenTest, Owed, Proof
from anubis.core.keep.lives import Lives

URGENCY = (
    *(Debt.REPAIR, Debt.RESERVE, Debt.SUSPICION, Debt.INCIDENT, Debt.ANSWER, Debt.UPGRADE),
    *(Debt.NEW, Debt.FAILURE, Debt.DOUBT, Debt.WORK),
)


class Proofs:
    """Tests of a fleet, on nodes without work."""

    def __init__(
        self, lives: Lives, policy: KeepingPolicy, awaits_command: Callable[[Life, float], bool]
    ) -> None:
        """`awaits_command`: whether a node is repaired before it is tested, at a time."""
        self._lives = lives
        self._policy = policy
        self._awaits_command = awaits_command

    def begin(self, test: Prove, at: float) -> None:
        """Mark the test's nodes as under test until it is answered."""
        job = test.about if test.proof is Proof.TOGETHER else ""
        for node in test.owed:
            self._lives.set(node, trial=OpenTest(id=test.id, at=at, job=job), tried_at=at)

    def begin_due(self, at: float) -> list[Prove]:
        """Begin the tests that may begin now, the most urgent nodes first: one test for each kind
        of proof."""
        waiting = [life for life in self._lives.values() if self._may_be_tested(life, at)]
        waiting.sort(key=lambda life: (_urgency(life), life.node))
        there = self._lives.count(FLEET).among
        under_test = sum(life.trial is not None for life in self._lives.values())
        places = allowed_count(self._policy.tested_at_once, there) - under_test
        groups: defaultdict[tuple[Proof, str], list[Life]] = defaultdict(list)
        for life in waiting[: max(0, places)]:
            groups[life.needs].append(life)
        return [
            self._test(needs, {life.node: life.owed_alone for life in lives}, self._policy.test, at)
            for needs, lives in groups.items()
        ]

    def begin_search(self, at: float) -> Iterator[Prove]:
        """Begin the search that may begin now; the job that waits longest comes first."""
        policy = self._policy.locate
        if policy is None or self._searched_job():
            return
        groups: defaultdict[str, dict[str, tuple[Owed, ...]]] = defaultdict(dict)
        for life in self._lives.values():
            for owed in life.owed:
                if owed.debt is Debt.UNEXPLAINED and _may_be_searched(life):
                    groups[owed.about][life.node] = (owed,)
        for job, group in sorted(groups.items(), key=_longest_wait):
            lives = [self._lives[node] for node in sorted(group)]
            is_new = any(at - life.searched_at >= policy.again_s for life in lives)
            if 2 <= len(lives) <= policy.nodes and is_new and self._are_free(lives, at):
                owed_by = {life.node: group[life.node] for life in lives}
                yield self._test((Proof.TOGETHER, job), owed_by, policy.mode, at)
                return

    def reason_against_search(self, search: Prove, at: float) -> str:
        """Return why a search that was proposed must not begin now; empty: it may."""
        if job := self._searched_job():
            return f"a search among the nodes of job {job} runs: one at a time"
        lives = [self._lives[node] for node in search.owed]
        if all(map(_may_be_searched, lives)) and self._are_free(lives, at):
            return ""
        return "not all of its nodes are free and in service"

    def _searched_job(self) -> str:
        """The job among whose nodes a search runs; empty: none."""
        trials = (life.trial for life in self._lives.values() if life.trial)
        return next((trial.job for trial in trials if trial.job), "")

    def _are_free(self, lives: Iterable[Life], at: float) -> bool:
        return all(
            life.is_idle and life.node not in self._lives.unreachable and self._has_rested(life, at)
            for life in lives
        )

    def _may_be_tested(self, life: Life, at: float) -> bool:
        is_free = life.is_idle and life.node not in self._lives.unreachable
        is_ours = life.is_there and not life.is_cordoned_by_others
        is_asked_for = bool(life.owed_alone) and not life.is_in_repair and not life.incidents
        is_due = is_asked_for and self._has_rested(life, at) and not life.awaits_repair
        return is_free and is_ours and is_due and not self._awaits_command(life, at)

    def _has_rested(self, life: Life, at: float) -> bool:
        return at - life.tried_at >= self._policy.pause_after(life.tried + life.refused)

    def _test(
        self,
        needs: tuple[Proof, str],
        owed: Mapping[str, tuple[Owed, ...]],
        mode: Mode,
        at: float,
    ) -> Prove:
        proof, about = needs
        id = f"{proof.value} {about} {next(iter(owed))}@{at:.0f}"
        test = Prove(mode=mode, id=id, proof=proof, about=about, owed=owed)
        if test.mode is Mode.ACT:
            self.begin(test, at)
        return test


def _urgency(life: Life) -> int:
    return min(URGENCY.index(owed.debt) for owed in life.owed_alone)


def _may_be_searched(life: Life) -> bool:
    """Return whether a search needs the node: without a known fault, and ours to measure."""
    return life.is_there and not life.must_be_out and not life.is_cordoned_by_others


def _longest_wait(group: tuple[str, Mapping[str, tuple[Owed, ...]]]) -> tuple[float, str]:
    job, owed_by = group
    return min(owed.at for owed_here in owed_by.values() for owed in owed_here), job
