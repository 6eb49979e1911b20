"""Tests that a keeper begins: of nodes that owe a proof, and of the nodes of a job with unexplained
trouble together, which is a search."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anubis.core.amounts import DAY_S
from anubis.core.history.events import Debt
from anubis.core.keep.breaker import FLEET, OF_JOB
from anubis.core.keep.commands import Mode, Notify, Prove
from anubis.core.keep.keeper_events import Concluded
from anubis.core.keep.keeping_policy import KeepingPolicy, allowed_count
from anubis.core.keep.life import Life, OpenTest, Owed, Proof
from anubis.core.keep.lives import Lives
from anubis.core.records import Judgement

SEARCHED_S = DAY_S  # after a job, for the fault behind its trouble
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
        of proof, and one of nodes that come from a repair, which takes longer."""
        waiting = [life for life in self._lives.values() if self._may_be_tested(life, at)]
        waiting.sort(key=lambda life: (_urgency(life), life.node))
        there = self._lives.count(FLEET).among
        under_test = sum(life.trial is not None for life in self._lives.values())
        places = allowed_count(self._policy.tested_at_once, there) - under_test
        groups: defaultdict[tuple[tuple[Proof, str], bool], list[Life]] = defaultdict(list)
        for life in waiting[: max(0, places)]:
            groups[life.needs, life.follows_repair].append(life)
        return [
            self._test(needs, {life.node: life.owed_alone for life in lives}, self._policy.test, at)
            for (needs, _), lives in groups.items()
        ]

    def end_late_searches(self, at: float) -> Iterator[Notify]:
        """End the searches that could not begin within a day, with a report for each job."""
        late: defaultdict[str, list[str]] = defaultdict(list)
        for life in self._lives.values():
            for owed in life.owed:
                is_searched = life.trial is not None and life.trial.job == owed.about
                is_late = owed.debt is Debt.UNEXPLAINED and owed.at < at - SEARCHED_S
                if is_late and not is_searched:
                    late[owed.about].append(life.node)
        for job, nodes in sorted(late.items()):
            for node in nodes:
                self._lives.change(node, Life.drop_search, job)
            more = f" and {len(nodes) - 1} more of its nodes" if len(nodes) > 1 else ""
            sentence = (
                "nothing explained its trouble, and no search for the cause began within a day on"
                f" {min(nodes)}{more}: in use, out of service, searched lately, or not approved"
            )
            yield Notify(subject=f"{OF_JOB} {job}", sentence=sentence)

    def begin_search(self, at: float) -> Iterator[Prove]:
        """Begin the search that may begin now; the job that waits longest comes first. A job with
        too many nodes is searched in parts."""
        policy = self._policy.locate
        if policy is None or self._searched_job():
            return
        groups: defaultdict[str, dict[str, tuple[Owed, ...]]] = defaultdict(dict)
        for life in self._lives.values():
            for owed in life.owed:
                if owed.debt is Debt.UNEXPLAINED and _may_be_searched(life):
                    groups[owed.about][life.node] = (owed,)
        for job, group in sorted(groups.items(), key=_longest_wait):
            for part in _even_parts(sorted(group), policy.nodes):
                lives = [self._lives[node] for node in part]
                is_new = any(at - life.searched_at >= policy.again_s for life in lives)
                if len(lives) > 1 and is_new and self._are_free(lives, at):
                    owed_by = {node: group[node] for node in part}
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
        self, needs: tuple[Proof, str], owed: Mapping[str, tuple[Owed, ...]], mode: Mode, at: float
    ) -> Prove:
        proof, about = needs
        id = f"{proof.value} {about} {next(iter(owed))}@{at:.0f}"
        test = Prove(mode=mode, id=id, proof=proof, about=about, owed=owed)
        if test.mode is Mode.ACT:
            self.begin(test, at)
        return test


def outcome_of_search(job: str, campaign: str, verdicts: Mapping[str, Concluded]) -> Notify:
    """Report of what the search among the nodes of a job found."""
    bad = {n: v for n, v in verdicts.items() if v.judgement is Judgement.DEFECTIVE}
    unknown = {n: v for n, v in verdicts.items() if v.judgement is Judgement.UNKNOWN}
    among = f"of {len(verdicts)} nodes"
    if bad:
        first = min(bad)
        more = f", and {len(bad) - 1} more {among}" if len(bad) > 1 else ""
        answer = f"{first} ({bad[first].code}: {bad[first].reason}){more}"
    elif unknown:
        first = min(unknown)
        answer = f"no answer for {len(unknown)} {among}, such as {first}: {unknown[first].reason}"
    else:
        answer = f"no fault shows on any {among}; the report shows the network between them"
    sentence = f"the search for the cause of its trouble, campaign {campaign}: {answer}"
    return Notify(subject=f"{OF_JOB} {job}", sentence=sentence)


def _even_parts(nodes: Sequence[str], limit: int) -> list[Sequence[str]]:
    """Nodes in the fewest parts of at most so many."""
    size = math.ceil(len(nodes) / math.ceil(len(nodes) / limit))
    return [nodes[begin : begin + size] for begin in range(0, len(nodes), size)]


def _urgency(life: Life) -> int:
    return min(URGENCY.index(owed.debt) for owed in life.owed_alone)


def _may_be_searched(life: Life) -> bool:
    """Return whether a search needs the node: without a known fault, and ours to measure."""
    return life.is_there and not life.must_be_out and not life.is_cordoned_by_others


def _longest_wait(group: tuple[str, Mapping[str, tuple[Owed, ...]]]) -> tuple[float, str]:
    job, owed_by = group
    return min(owed.at for owed_here in owed_by.values() for owed in owed_here), job
