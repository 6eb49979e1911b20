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
    release: Callable[[Sequence[str]], None] = lambda nodes: None,
) -> CampaignOutcome:
    """Run a campaign to its end, or on from its history.

    `keep` returns when its executions are safe; only then is anything else done. `witness` gets
    every event before the machine does. `wants_stop` is asked at least every second: what still
    runs is then left to the executor's end. `resumed`: most nodes may be away, because the person
    who resumes has looked why. `release` gets nodes on which nothing more will run.
    """
    executions = list(history)
    present = {node.name for node in executor.nodes()}
    nodes = [node.name for node in campaign.plan.nodes]
    lost = {name: "not in the cluster" for name in nodes if name not in present}
    lost |= {name: why for name, why in executor.absent().items() if name in nodes}
    fit = len(nodes) - len(lost)
    if not fit or (are_most(len(lost), fit) and not resumed):
        raise ExecutorError(no_blame_reason("cannot be reached", list(lost.values()), fit))
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
    verdict: tuple[Assessment, tuple[CriteriaSet, ...]] | None = None
    let_go = set[str]()

    def tell(event: CampaignEvent) -> list[Command]:
        witness(event)
        return machine.handle(event)

    def obey(commands: list[Command]) -> None:
        nonlocal verdict, let_go
        while commands:
            results = [command.execution for command in commands if isinstance(command, Record)]
            if results:
                keep(results)
                executions.extend(results)
            answers: list[Command] = []
            for command in commands:
                match command:
                    case Launch():
                        executor.launch(command)
                    case Kill():
                        executor.kill(command)
                    case Judge(phase=phase, turn=turn):
                        learned = verdict[1] if verdict else ()
                        final = [
                            e for e in executions if (e.step.phase, e.step.turn) <= (phase, turn)
                        ]
                        verdict = judge(
                            campaign, final, lost, executor.now(), learned, before=before
                        )
                        defective = frozenset(verdict[0].named(Judgement.DEFECTIVE))
                        more = following_steps(
                            campaign.plan,
                            phase,
                            turn,
                            verdict[0],
                            turns=turns_of_pair_tests(campaign.plan, final),
                            confirm=campaign.policy.confirm,
                            gone=let_go,
                        )
                        spare = nodes_handed_back(campaign.plan, phase, verdict[0]) - let_go
                        let_go |= spare
                        if spare:
                            release(sorted(spare, key=natural_key))
                        answers += tell(
                            Judged(phase=phase, defective=defective, more=more, handed_back=spare)
                        )
                    case Halt(reason=reason):
                        raise ExecutorError(reason)
                    case Record() | Finish():
                        pass
            commands = answers

    witness(opening)
    obey(machine.start(opening.at))
    observe(machine, ())
    while not machine.finished:
        if wants_stop():
            raise Stopped("stopped on request")
        longest = executor.now() + LONGEST_WAIT_S
        deadline = machine.next_deadline()
        events = executor.wait(longest if deadline is None else min(deadline, longest))
        events.append(TimePassed(at=executor.now()))
        lost.update((event.node, event.reason) for event in events if isinstance(event, NodeLost))
        obey([command for event in events for command in tell(event)])
        observe(machine, events)
    assessment, criteria = verdict or judge(
        campaign, executions, lost, executor.now(), before=before
    )
    return CampaignOutcome(tuple(executions), assessment, criteria, executor.now())


def judge(
    campaign: Campaign,
    executions: Sequence[Execution],
    lost: Mapping[str, str],
    at: float,
    learned: Sequence[CriteriaSet] = (),
    *,
    before: Precedents = NOTHING_BEFORE,
) -> tuple[Assessment, tuple[CriteriaSet, ...]]:
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
