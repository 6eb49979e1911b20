"""Steps that follow from the results of a phase, before it is over.

They depend only on the plan and the verdicts so far, so a resumed campaign gets the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import chain

from anubis.core.campaign.planning import follow_ups, parts_positions
from anubis.core.fabric import natural_key
from anubis.core.network.confirmation import confirmation
from anubis.core.network.hints import add_hints
from anubis.core.network.job_search import (
    are_named,
    group_programs,
    search_progress,
    searched_workloads,
    slow_group_progress,
)
from anubis.core.network.pairing import Group, PairTest, pair_test_at
from anubis.core.network.rails import Rails
from anubis.core.network.repetition import Repetition, is_repeated
from anubis.core.network.reproduction import pair_tests_across, pair_tests_inside
from anubis.core.network.sharing import shares_between_pods
from anubis.core.network.traffic import (
    NO_PAIR_TURNS,
    SHARING_TURNS,
    UNSTABLE,
    PairTurns,
    keep_crossing,
    observe_traffic,
    rails_of,
)
from anubis.core.network.unexplained import UNEXPLAINED
from anubis.core.records import (
    FAILED_ONCE,
    IN_GROUPS,
    PARTS,
    Assessment,
    Judgement,
    Plan,
    Step,
    Workload,
)

SECOND_TRIES = 1  # turns: what fails in two tries on one node fails there
THIRD_TRIES = 2  # if runs come and go, two bad ones of a node may be chance
FEW_NODES = 20  # of one kind; of more, those that fell short show how runs differ
CONTROLS = 7  # good nodes of few: half of their runs may be bad, and all are good in one of 128
CONFIRMING_TURNS = 3  # rounds, each with other partners; after them only groups are searched


def following_steps(
    plan: Plan,
    phase: int,
    turn: int,
    assessment: Assessment,
    *,
    turns: PairTurns = NO_PAIR_TURNS,
    confirm: bool = True,
    gone: Set[str] = frozenset(),
) -> tuple[Step, ...]:
    """The next steps of a phase: second tries of programs that failed on single nodes, second
    measurements of nodes and pairs that fell short, pairs that separate suspects from good nodes,
    and smaller groups of those that fell short. As groups load the network, they wait until no pair
    is in doubt. A search for the part of a job that fails has an order of its own. Nodes that are
    `gone` were handed back and meet no others."""
    tries = _second_tries(plan, phase, turn, assessment)
    if parts_positions(plan, phase):
        return (*tries, *_reproducing_steps(plan, phase, turn, assessment, turns, gone))
    again: list[Step] = []
    if confirm:
        again += _measurements_again(plan, phase, turn, assessment)
        again += _pairs_again(plan, phase, turn, assessment)
    meet_by_chance = not plan.non_blocking and plan.fabric and shares_between_pods(plan.fabric)
    rounds = turn - bool(meet_by_chance)
    between = tuple(_confirming_steps(plan, phase, turn, assessment, turns, rounds))
    steps = (*tries, *again, *(between or _slow_group_steps(plan, phase, turn, assessment)))
    # what failed once and fell short as well is asked for by several
    return tuple({step.id: step for step in steps}.values())


def _second_tries(plan: Plan, phase: int, turn: int, assessment: Assessment) -> Iterator[Step]:
    """Yield a step for each program that failed once on a node and runs on most others."""
    if turn >= SECOND_TRIES:
        return
    for position, entry in enumerate(plan.phases[phase].entries):
        measured_by = entry.workload.benchmark, entry.workload.parameters
        suspects = [
            verdict.participants
            for verdict in assessment.alone
            if verdict.code == FAILED_ONCE
            and (verdict.benchmark, verdict.parameters) == measured_by
        ]
        tries = follow_ups(plan, phase, position, turn + 1, suspects)
        yield from (step for step in tries if step.repeat == 0)


def _measurements_again(
    plan: Plan, phase: int, turn: int, assessment: Assessment
) -> Iterator[Step]:
    """Yield the programs by which single nodes fell short, again on these nodes and on good ones.
    If good ones fall short now as well, something else changed, or runs differ more than nodes.
    If chance explains two bad measurements, a third one follows."""
    if turn >= THIRD_TRIES:
        return
    for position, entry in enumerate(plan.phases[phase].entries):
        if entry.scope == "node":
            suspects = _nodes_to_confirm(assessment, entry.workload, in_doubt=turn > 0)
            skus = sorted({plan.sku(node) for node in suspects})
            controls = (_controls(plan, sku, entry.workload, assessment) for sku in skus)
            nodes = [*suspects, *chain.from_iterable(controls)]
            yield from follow_ups(plan, phase, position, turn + 1, [(node,) for node in nodes])


def _pairs_again(plan: Plan, phase: int, turn: int, assessment: Assessment) -> Iterator[Step]:
    """Yield the pairs that were slow without a node to blame, again, if no topology is known: other
    work may have slowed them. With a topology they are chosen by what they cross."""
    if plan.fabric or turn >= SECOND_TRIES:
        return
    paths = {
        frozenset(verdict.nodes)
        for verdict in assessment.parts
        if verdict.judgement is Judgement.DEFECTIVE and not verdict.parts
    }
    for position, entry in enumerate(plan.phases[phase].entries):
        if entry.scope == "pair":
            slow = dict.fromkeys(
                verdict.participants
                for verdict in assessment.alone
                if verdict.judgement is Judgement.DEFECTIVE
                and verdict.benchmark == entry.workload.benchmark
                and verdict.parameters == entry.workload.parameters
                and frozenset(verdict.participants) in paths
            )
            yield from follow_ups(plan, phase, position, turn + 1, tuple(slow))


def _nodes_to_confirm(assessment: Assessment, workload: Workload, *, in_doubt: bool) -> list[str]:
    """The nodes that did worse than others, or are suspects. A node outside a limit is not among
    them: it is defective at once. With `in_doubt`, only if two measurements left any unknown."""
    measured_by = workload.benchmark, workload.parameters
    of_program = [
        verdict
        for verdict in assessment.alone
        if len(verdict.participants) == 1 and (verdict.benchmark, verdict.parameters) == measured_by
    ]
    compared = {
        verdict.participants[0]
        for verdict in of_program
        if verdict.judgement is Judgement.DEFECTIVE and verdict.similarity is not None
    }
    suspects = {node for node, program in assessment.to_confirm if program == workload}
    if in_doubt:
        suspects &= {v.participants[0] for v in of_program if v.code == UNSTABLE}
        if not suspects:
            return []
    return sorted(compared | suspects, key=natural_key)


def _controls(plan: Plan, sku: str, workload: Workload, assessment: Assessment) -> Iterator[str]:
    """Yield the good node of this sku whose worst metric is most like the fleet's. Of few nodes
    several, which show whether nodes differ or runs."""
    well = set(assessment.named(Judgement.HEALTHY))
    worst: dict[str, float] = {}
    for batch_verdict in assessment.batch_verdicts:
        compared = (
            batch_verdict.judgement is Judgement.HEALTHY and batch_verdict.similarities is not None
        )
        if compared and (batch_verdict.benchmark, batch_verdict.parameters) == (
            workload.benchmark,
            workload.parameters,
        ):
            for verdict in batch_verdict:
                node = verdict.participants[0]
                if node in well and plan.sku(node) == sku and verdict.similarity is not None:
                    worst[node] = min(worst.get(node, 1.0), verdict.similarity)
    good = sorted(sorted(worst, key=natural_key), key=worst.__getitem__, reverse=True)
    are_few = sum(node.sku == sku for node in plan.nodes) < FEW_NODES
    yield from good[: CONTROLS if are_few else 1]


def _confirming_steps(
    plan: Plan,
    phase: int,
    turn: int,
    assessment: Assessment,
    turns: PairTurns,
    rounds: int,
    limit: int = CONFIRMING_TURNS,
) -> Iterator[Step]:
    """Yield one more round of pairs, in which suspects meet nodes known to be good, and bad pairs
    measure again, undisturbed: a few at each leaf, and all that no part explains. If some remain in
    doubt, further rounds follow, up to a limit. If pairs may have met by chance, as across pods,
    those that are bad again decide first which others are needed: that round is -1."""
    if plan.fabric and rounds < limit:
        assessment = keep_crossing(plan, assessment)
        seen = observe_traffic(plan.fabric, assessment.alone, assessment.batch_verdicts, turns)
        model = add_hints(seen.model, plan.fabric, plan.counters, plan.suspected)
        chosen = confirmation(plan.fabric, seen.observations, model, again=rounds > 0)
        rails = rails_of(plan.fabric, assessment.alone, assessment.batch_verdicts)
        unexplained = (
            pair_test
            for pair_test in _unexplained_pairs(assessment, rails)
            if not is_repeated(turns.get(pair_test, ()))
        )
        proven = [
            part
            for verdict in assessment.parts
            if verdict.judgement is Judgement.DEFECTIVE
            for part in verdict.parts
        ]
        repeated = [*Repetition(plan.fabric, seen).pairs_to_repeat(proven), *unexplained]
        # two that shared a cable fell short alike, so that they are neighbours: keep them apart
        pairs = dict.fromkeys((*repeated[::2], *repeated[1::2]))
        if rounds >= 0 or not pairs:
            pairs |= dict.fromkeys(pair_test_at(plan.fabric, rail_nics) for rail_nics in chosen)
        for position, entry in enumerate(plan.phases[phase].entries):
            if entry.scope == "pair" or entry.groups not in (*IN_GROUPS, PARTS):
                can_cross = plan.spec(entry.workload).crosses_rails
                able = [pair_test for pair_test in pairs if can_cross or not pair_test.shift]
                yield from follow_ups(plan, phase, position, turn + 1, able)


def _unexplained_pairs(assessment: Assessment, rails: Rails) -> Iterator[PairTest]:
    """Yield the unexplained pairs, each with its nodes in the order in which it was measured."""
    unexplained = {
        frozenset(verdict.nodes) for verdict in assessment.parts if verdict.code == UNEXPLAINED
    }
    for verdict in assessment.alone:
        pair_test = rails.pair_test(verdict.participants, verdict.device)
        if pair_test and frozenset(pair_test.pair) in unexplained:
            yield pair_test


# --- the part of a job that fails -------------------------------------------------------------


def nodes_handed_back(plan: Plan, phase: int, assessment: Assessment) -> frozenset[str]:
    """The nodes that a search for the part of a job that fails no longer needs, because they are
    well."""
    if not parts_positions(plan, phase):
        return frozenset()
    return search_progress(
        plan, assessment.verdicts(), assessment.parts, assessment.lost
    ).handed_back


def _reproducing_steps(
    plan: Plan, phase: int, turn: int, assessment: Assessment, turns: PairTurns, gone: Set[str]
) -> Iterator[Step]:
    """Yield the next groups of a search for the part of a job that fails, or pairs across parts."""
    pairs: dict[Sequence[Group], tuple[Step, ...]] = {}

    def named_between(parts: Sequence[Group]) -> bool | None:
        steps = tuple(_steps_across(plan, phase, turn, assessment, turns, parts, gone))
        pairs[parts] = steps
        return None if steps else are_named(plan, assessment.parts)

    verdicts = tuple(assessment.verdicts())
    further = search_progress(plan, verdicts, assessment.parts, assessment.lost, named_between)
    programs = group_programs(verdicts, searched_workloads(plan))
    waiting = dict.fromkeys(further.groups)
    for position in parts_positions(plan, phase):
        workload = plan.phases[phase].entries[position].workload
        measured_by = workload.benchmark, workload.parameters
        able = [group for group in waiting if measured_by not in programs.get(group, ())]
        yield from follow_ups(plan, phase, position, turn + 1, able)
        waiting = dict.fromkeys(group for group in waiting if group not in able)
    steps = chain.from_iterable(pairs[parts] for parts in further.across)
    yield from {step.id: step for step in steps}.values()


def _steps_across(
    plan: Plan,
    phase: int,
    turn: int,
    assessment: Assessment,
    turns: PairTurns,
    parts: Sequence[Group],
    gone: Set[str],
) -> Iterator[Step]:
    """Yield pairs across parts and a few inside them, or those that confirm what they show."""
    able = (test for test in pair_tests_across(parts) if gone.isdisjoint(test.pair))
    across = dict.fromkeys(able)
    if not plan.fabric or not across:
        return
    if not turns.keys().isdisjoint(across):
        repeats = SHARING_TURNS - 1  # of pairs that may share cables
        rounds = max(numbers[-1] for numbers in turns.values()) - repeats
        limit = CONFIRMING_TURNS - repeats
        yield from _confirming_steps(plan, phase, turn, assessment, turns, rounds, limit)
        return
    pair_tests = across | dict.fromkeys(pair_tests_inside(parts, across))
    for position, entry in enumerate(plan.phases[phase].entries):
        if entry.groups == "across":
            yield from follow_ups(plan, phase, position, turn + 1, pair_tests)


def _slow_group_steps(plan: Plan, phase: int, turn: int, assessment: Assessment) -> Iterator[Step]:
    """Yield the next tests of every search for the cause of a slow group, until all are over."""
    verdicts = assessment.verdicts()
    for position, entry in enumerate(plan.phases[phase].entries):
        if entry.workload in plan.in_groups:
            progress = slow_group_progress(plan, entry, verdicts, assessment.lost)
            yield from follow_ups(plan, phase, position, turn + 1, progress.groups)
