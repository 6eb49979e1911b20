"""The Validator: gives events to core.campaign and carries out its commands.

Core makes every decision. This module has only the loop: wait, keep, launch, judge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from anubis import __version__
from anubis.core.campaign.follow_ups import following_steps, nodes_handed_back
from anubis.core.campaign.state_machine import (
    CampaignEvent,
    CampaignMachine,
    Command,
    Finish,
    Halt,
    Judge,
    Judged,
    Kill,
    Launch,
    NodeLost,
    Opening,
    Record,
    TimePassed,
    Witness,
    are_most,
    no_blame_reason,
)
from anubis.core.errors import ExecutorError, Stopped
from anubis.core.fabric import natural_key
from anubis.core.judge.equality import versions
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import Units, latest_executions, partition, relevant_units, units
from anubis.core.network.traffic import turns_of_pair_tests
from anubis.core.records import (
    Assessment,
    Campaign,
    CriteriaSet,
    Execution,
    Judgement,
    Workload,
    new_criteria,
)
from anubis.operations.precedents import NOTHING_BEFORE, Precedents
from anubis.reach.executors.executor import Executor

LONGEST_WAIT_S = 1.0  # so that progress moves and an interrupt is noticed

Keep = Callable[[Sequence[Execution]], None]
Observe = Callable[[CampaignMachine, Sequence[CampaignEvent]], None]
HandBack = Callable[[Sequence[str]], None]
AssessmentWithCriteria = tuple[Assessment, tuple[CriteriaSet, ...]]


@dataclass(frozen=True)
class CampaignOutcome:
    executions: tuple[Execution, ...]
    assessment: Assessment
    criteria: tuple[CriteriaSet, ...]
    finished_at: float


def carry_out(
    campaign: Campaign,
    executor: Executor,
    *,
    keep: Keep,
    observe: Observe,
    wants_stop: Callable[[], bool] = lambda: False,
    history: Sequence[Execution] = (),
    parallel_nodes: int | None = None,
    resumed: bool = False,
    witness: Witness = lambda event: None,
    before: Precedents = NOTHING_BEFORE,
    release: HandBack = lambda nodes: None,
) -> CampaignOutcome:
    """Run a campaign to its end, or on from its history.

    `keep` returns when its executions are safe; only then is anything else done. `witness` gets
    every event before the machine does. `wants_stop` is asked at least every second: what still
    runs is then left to the executor's end. `resumed`: most nodes may be away, because the person
    who resumes has looked why. `release` gets nodes on which nothing more will run.
    """
    lost = _absent_nodes(campaign, executor, resumed)
    opening = Opening(
        campaign=campaign.id,
        at=executor.now(),
        plan=campaign.plan,
        retries=campaign.policy.retries,
        parallel_nodes=parallel_nodes,
        absent=dict(lost),
        history=tuple(history),
    )
    machine = opening.machine()
    run = _Run(campaign, executor, machine, keep, witness, release, before, [*history], lost)
    witness(opening)
    run.obey(machine.start(opening.at))
    observe(machine, ())
    while not machine.finished:
        if wants_stop():
            raise Stopped("stopped on request")
        events = run.wait()
        run.obey([command for event in events for command in run.tell(event)])
        observe(machine, events)
    assessment, criteria = run.verdict or run.judge(run.executions)
    return CampaignOutcome(tuple(run.executions), assessment, criteria, executor.now())


def _absent_nodes(campaign: Campaign, executor: Executor, resumed: bool) -> dict[str, str]:
    """Reasons why nodes of the plan cannot be measured. If most cannot, nothing is begun."""
    present = {node.name for node in executor.nodes()}
    nodes = [node.name for node in campaign.plan.nodes]
    lost = {name: "not in the cluster" for name in nodes if name not in present}
    lost |= {name: why for name, why in executor.absent().items() if name in nodes}
    fit = len(nodes) - len(lost)
    if not fit or (are_most(len(lost), fit) and not resumed):
        raise ExecutorError(no_blame_reason("cannot be reached", list(lost.values()), fit))
    return lost


@dataclass
class _Run:
    """A campaign while it runs, with what is known so far."""

    campaign: Campaign
    executor: Executor
    machine: CampaignMachine
    keep: Keep
    witness: Witness
    release: HandBack
    before: Precedents
    executions: list[Execution]
    lost: dict[str, str]
    verdict: AssessmentWithCriteria | None = None
    let_go: frozenset[str] = frozenset()  # nodes on which nothing more will run

    def wait(self) -> list[CampaignEvent]:
        """Events of at most a second, or until the next deadline."""
        longest = self.executor.now() + LONGEST_WAIT_S
        deadline = self.machine.next_deadline()
        events = self.executor.wait(longest if deadline is None else min(deadline, longest))
        self.lost |= {event.node: event.reason for event in events if isinstance(event, NodeLost)}
        return [*events, TimePassed(at=self.executor.now())]

    def tell(self, event: CampaignEvent) -> list[Command]:
        """Commands that follow from an event."""
        self.witness(event)
        return self.machine.handle(event)

    def obey(self, commands: Sequence[Command]) -> None:
        """Carry out commands, and those that follow from them. Results are kept first."""
        while commands:
            results = [command.execution for command in commands if isinstance(command, Record)]
            if results:
                self.keep(results)
                self.executions += results
            commands = [more for command in commands for more in self._carry_out(command)]

    def _carry_out(self, command: Command) -> list[Command]:
        match command:
            case Launch():
                self.executor.launch(command)
            case Kill():
                self.executor.kill(command)
            case Judge(phase=phase, turn=turn):
                return self.tell(self._judge_phase(phase, turn))
            case Halt(reason=reason):
                raise ExecutorError(reason)
            case Record() | Finish():
                pass
        return []

    def _judge_phase(self, phase: int, turn: int) -> Judged:
        """Judge all that has ended so far. Nodes on which nothing more will run are released."""
        plan = self.campaign.plan
        final = [e for e in self.executions if (e.step.phase, e.step.turn) <= (phase, turn)]
        assessment, _ = self.verdict = self.judge(final)
        more = following_steps(
            plan,
            phase,
            turn,
            assessment,
            turns=turns_of_pair_tests(plan, final),
            confirm=self.campaign.policy.confirm,
            gone=self.let_go,
        )
        spare = nodes_handed_back(plan, phase, assessment) - self.let_go
        if spare:
            self.let_go |= spare
            self.release(sorted(spare, key=natural_key))
        defective = frozenset(assessment.named(Judgement.DEFECTIVE))
        return Judged(phase=phase, defective=defective, more=more, handed_back=spare)

    def judge(self, executions: Sequence[Execution]) -> AssessmentWithCriteria:
        learned = self.verdict[1] if self.verdict else ()
        now = self.executor.now()
        return judge(self.campaign, executions, self.lost, now, learned, before=self.before)


def judge(
    campaign: Campaign,
    executions: Sequence[Execution],
    lost: Mapping[str, str],
    at: float,
    learned: Sequence[CriteriaSet] = (),
    *,
    before: Precedents = NOTHING_BEFORE,
) -> AssessmentWithCriteria:
    """Judge by the campaign's criteria or, in an acceptance, by those learned from itself.
    Workloads that only follow from results, as pairs across the parts of a failing job, may never
    have been measured before: if no trusted criterion covers them, their criteria are learned from
    the campaign in any case.

    Results that followed from earlier results teach nothing, because they are about suspects only,
    unless nothing else measures the same. `learned`: the criteria of an earlier judgement, which
    are kept.
    """
    plan, criteria = campaign.plan, campaign.criteria
    settled = latest_executions(executions)
    measured = units(settled, plan)
    taught_here = plan.across if criteria else plan.workloads
    if taught_here:
        learned = learned[len(criteria) :]  # the others were given
        own = _learn(campaign, settled, measured, at, learned, taught_here, before.criteria)
        criteria += new_criteria(criteria, own)
    assessment = assess(
        measured,
        settled,
        plan,
        criteria,
        lost,
        limits=campaign.policy.limits,
        expectations=campaign.policy.expectations,
        before=before.settings,
        screens_before=before.screens,
        taught_here=taught_here,
        validates=campaign.kind.validates,
    )
    return assessment, criteria


def _learn(
    campaign: Campaign,
    settled: Sequence[Execution],
    measured: Sequence[Units],
    at: float,
    learned: Sequence[CriteriaSet],
    workloads: Collection[Workload],
    earlier: Sequence[CriteriaSet],
) -> tuple[CriteriaSet, ...]:
    """Learn criteria of these workloads: first of the suite, then of what judges only its own
    fabric."""
    plan = campaign.plan
    planned = [
        execution
        for execution in settled
        if not execution.step.turn or execution.step.workload in plan.across | plan.reproducing
    ]
    sources = units(planned, plan) if len(planned) < len(settled) else measured
    sources = relevant_units(sources, workloads, ())
    return tuple(
        criteria
        for part in partition(sources, plan.teaching)
        for criteria in learn_criteria(
            part,
            campaign.policy,
            suite=plan.suite,
            anubis=__version__,
            created_at=datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
            versions=versions(settled, plan),
            learned=learned,
            earlier=earlier,
        )
    )
