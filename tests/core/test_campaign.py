"""The state machine against a world that loses, repeats, delays and reorders everything."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from fleets import SPECS, entry, small_fabric, small_plan
from hypothesis import event, given, settings
from hypothesis import strategies as st

from anubis.core.campaign.planning import estimate, follow_ups, replacement_steps, steps
from anubis.core.campaign.state_machine import (
    INATTENTIVE_S,
    CampaignMachine,
    Failed,
    Finish,
    Halt,
    Judge,
    Judged,
    KeptWaiting,
    Kill,
    Launch,
    Measured,
    NodeLost,
    Opening,
    Record,
    Started,
    TimedOut,
    TimePassed,
    replay,
)
from anubis.core.fabric import Cable
from anubis.core.judge.unanswered import judge_unmeasured
from anubis.core.network.pairing import PairTest, hops_between, joined_nics
from anubis.core.records import Ended, Judgement, Readings, Result, Series
from anubis.store import event_log
from anubis.store.codec import document, restore

RESULT = Result(series=Readings.pack([Series(metric="rate", device="cpu", samples=np.ones(1))]))
SILENCE_S = 30.0


class World:
    """Carries out commands, keeps the books of the rules, and returns the outcomes that a test
    decides."""

    def __init__(self, plan, **options):
        self.plan = plan
        self.machine = CampaignMachine(plan, silence_s=SILENCE_S, **options)
        self.now = 0.0
        self.running: dict[tuple[str, int], Launch] = {}
        self.records = []
        self.launched = []
        self.gone: set[str] = set()  # told to be lost or defective
        self.judging = None
        self.finished = False
        self.halted = ""
        self.heard = []  # events, and the commands that answered each of them
        self.opened = self.machine.start(self.now)
        self.obey(self.opened)

    def obey(self, commands):
        for command in commands:
            match command:
                case Launch(step=step, attempt=attempt):
                    assert not self.gone & set(step.participants), "a node that is out is used"
                    for other in self.running.values():
                        if set(other.step.participants) & set(step.participants):
                            assert not step.exclusive, "two programs beside an exclusive one"
                            assert not other.step.exclusive, "two programs beside an exclusive one"
                    assert self.judging is None, "launched before the phase was judged"
                    assert step.phase == self.machine.phase
                    self.running[step.id, attempt] = command
                    self.launched.append(command)
                case Kill(step_id=step_id, attempt=attempt):
                    self.running.pop((step_id, attempt), None)
                case Record(execution=execution):
                    self.records.append(execution)
                    self.running.pop((execution.step.id, execution.attempt), None)
                case Judge(phase=phase):
                    assert not self.running, "judged while programs run"
                    self.judging = phase
                case Finish():
                    self.finished = True
                case Halt(reason=reason):
                    self.finished, self.halted = True, reason
                    self.running.clear()

    def look_until(self, at):
        """Nothing happens, and the driver looks all the time."""
        while self.now < at and not self.finished and self.judging is None:
            self.now = min(at, self.now + INATTENTIVE_S)
            self.tell(TimePassed(at=self.now))

    def tell(self, event):
        if isinstance(event, NodeLost):
            self.gone.add(event.node)
        commands = self.machine.handle(event)
        self.heard.append((event, commands))
        self.obey(commands)

    def judge(self, defective=(), more=()):
        phase, self.judging = self.judging, None
        if not more:
            self.gone |= set(defective)
        self.tell(Judged(phase=phase, defective=frozenset(defective), more=tuple(more)))

    def measure(self, launch):
        self.tell(
            Measured(step_id=launch.step.id, attempt=launch.attempt, at=self.now, result=RESULT)
        )

    def final(self):
        return [record for record in self.records if record.final]


def run_well(world: World) -> World:
    """Everything is measured and no node is defective."""
    while not world.finished:
        if world.judging is not None:
            world.judge()
        else:
            world.measure(next(iter(world.running.values())))
    return world


EVERYTHING = [entry(name, repeats=2) for name in SPECS]


def test_a_campaign_without_trouble_measures_every_planned_step_once():
    world = run_well(World(small_plan(5, EVERYTHING), retries=1))
    planned = [
        step.id
        for phase in range(len(world.plan.phases))
        for step in steps(world.plan, phase, {node.name for node in world.plan.nodes})
    ]
    assert sorted(record.step.id for record in world.records) == sorted(planned)
    assert {record.ended for record in world.records} == {Ended.MEASURED}


def test_single_nodes_come_before_groups_and_on_every_node_micro_before_end_to_end():
    world = run_well(World(small_plan(4, list(reversed(EVERYTHING))), retries=0))
    for node in ("n0", "n1", "n2", "n3"):
        steps_there = [run.step for run in world.launched if node in run.step.participants]
        order = [step.workload.benchmark for step in steps_there]
        first = {name: order.index(name) for name in SPECS}
        last = {name: len(order) - 1 - order[::-1].index(name) for name in SPECS}
        assert max(last["compute"], last["probe"]) < first["train"]
        assert max(last["collective"], last["pair"]) < first["train_together"]
    sizes = [len(launch.step.participants) for launch in world.launched]
    assert sizes.index(2) > max(place for place, size in enumerate(sizes) if size == 1)


def until_judged(world: World) -> World:
    while world.judging is None:
        world.measure(next(iter(world.running.values())))
    return world


LEVELS = [entry("compute"), entry("train"), entry("collective"), entry("train_together")]


def where_run(world: World, node: str) -> list[str]:
    """The benchmarks in which the node took part."""
    return [
        launch.step.workload.benchmark
        for launch in world.launched
        if node in launch.step.participants
    ]


def test_a_defective_node_runs_all_single_node_benchmarks_and_no_group():
    world = until_judged(World(small_plan(4, LEVELS), retries=0))
    assert where_run(world, "n2") == ["compute", "train"]
    world.judge(defective={"n2"})
    run_well(world)
    assert where_run(world, "n2") == ["compute", "train"]
    assert where_run(world, "n1") == ["compute", "train", "collective", "train_together"]


def test_a_node_found_defective_among_others_still_trains_with_them():
    world = until_judged(World(small_plan(4, LEVELS), retries=0))
    world.judge()
    until_judged(world)
    assert where_run(world, "n2") == ["compute", "train", "collective", "train_together"]


def test_a_policy_that_stops_early_spares_a_defective_node_the_end_to_end_benchmarks():
    world = until_judged(World(small_plan(4, LEVELS, stop_early=True), retries=0))
    assert where_run(world, "n2") == ["compute"]
    world.judge(defective={"n2"})
    run_well(world)
    assert where_run(world, "n2") == ["compute"]
    assert where_run(world, "n1") == ["compute", "train", "collective", "train_together"]


def test_a_campaign_that_was_planned_with_four_gates_is_resumed_with_four():
    """As every campaign was before: its plan is kept with it."""
    plan = small_plan(3, LEVELS, stop_early=True)
    first = until_judged(World(plan, retries=0))
    first.judge(defective={"n2"})
    first.measure(next(iter(first.running.values())))

    kept = restore(type(plan), document(plan))
    resumed = World(kept, retries=0, history=first.records)
    assert resumed.judging == 0
    resumed.judge(defective={"n2"})
    run_well(resumed)
    assert where_run(resumed, "n2") == []
    settled = Counter(record.step.id for record in first.records + resumed.records)
    assert set(settled.values()) == {1}


def test_programs_that_are_not_exclusive_overlap_on_a_node_and_exclusive_ones_wait():
    world = World(small_plan(1, [entry("probe"), entry("glance"), entry("compute")]), retries=0)
    assert [launch.step.workload.benchmark for launch in world.running.values()] == [
        "probe",
        "glance",
    ]
    for launch in list(world.running.values()):
        world.measure(launch)
    assert [launch.step.workload.benchmark for launch in world.running.values()] == ["compute"]


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_no_more_nodes_work_at_once_than_allowed(bound):
    world = World(small_plan(7, [entry("compute", repeats=3)]), retries=0, parallel_nodes=bound)
    while not world.finished:
        busy = {name for launch in world.running.values() for name in launch.step.participants}
        assert len(busy) <= bound
        if world.judging is not None:
            world.judge()
        else:
            assert len(busy) == bound or world.machine.done >= 21 - bound
            world.measure(next(iter(world.running.values())))


def test_pairs_keep_to_the_bound_as_well():
    world = World(small_plan(6, [entry("pair")]), retries=0, parallel_nodes=3)
    while not world.finished:
        assert sum(len(launch.step.participants) for launch in world.running.values()) <= 3
        if world.judging is not None:
            world.judge()
        else:
            world.measure(next(iter(world.running.values())))
    assert len(world.final()) == 15


def test_a_second_word_of_a_lost_node_and_a_word_of_a_stranger_change_nothing():
    world = World(small_plan(3, [entry("compute"), entry("train")]), retries=0)
    world.tell(NodeLost(node="n1", at=1.0, reason="silent"))
    world.tell(NodeLost(node="n1", at=2.0, reason="again"))
    world.tell(NodeLost(node="stranger", at=2.0, reason="who?"))
    assert world.machine.excluded == {"n1": "silent"}


def test_a_group_larger_than_the_bound_still_runs():
    world = World(small_plan(4, [entry("collective")]), retries=0, parallel_nodes=2)
    assert len(run_well(world).final()) == 1


def test_a_defective_node_is_left_out_of_later_steps_and_the_group_goes_on_without_it():
    world = World(small_plan(4, [entry("compute"), entry("collective")]), retries=0)
    for launch in list(world.running.values()):
        world.measure(launch)
    world.judge(defective={"n2"})
    (launch,) = world.running.values()
    assert launch.step.participants == ("n0", "n1", "n3")


def test_a_lost_node_ends_its_group_and_the_others_meet_again_without_it():
    world = World(small_plan(4, [entry("collective")]), retries=0)
    world.tell(NodeLost(node="n1", at=1.0, reason="silent"))
    assert [(r.ended, r.lost, r.reason) for r in world.records] == [(Ended.LOST, ("n1",), "silent")]
    (launch,) = world.running.values()
    assert launch.step.participants == ("n0", "n2", "n3")
    assert run_well(world).machine.excluded == {"n1": "silent"}


def test_infrastructure_failures_are_tried_again_as_often_as_allowed_and_results_never():
    world = World(small_plan(1, [entry("compute")]), retries=2)
    following = {1: (2, 3), 2: (3, 3), 3: None}  # try 2 of 3, try 3 of 3
    for attempt in (1, 2, 3):
        ((step_id, running_attempt),) = world.running
        assert running_attempt == attempt
        world.tell(
            Failed(step_id=step_id, attempt=attempt, at=1.0, reason="port", infrastructure=True)
        )
        assert world.machine.next_try(step_id, attempt) == following[attempt]
    assert [(r.attempt, r.final) for r in world.records] == [(1, False), (2, False), (3, True)]
    assert {record.ended for record in world.records} == {Ended.NOT_RUN}
    world = World(small_plan(1, [entry("compute")]), retries=2)
    ((step_id, _),) = world.running
    world.tell(Failed(step_id=step_id, attempt=1, at=1.0, reason="SIGSEGV"))
    assert [(r.attempt, r.final, r.ended) for r in world.records] == [(1, True, Ended.FAILED)]


def test_a_step_that_never_reports_is_given_up_with_its_node():
    world = World(small_plan(2, [entry("compute", timeout_s=10.0, repeats=2)]), retries=0)
    silent = next(iter(world.running.values()))
    for _ in range(2):
        world.measure([*world.running.values()][1])
    world.look_until(10.0 + SILENCE_S - 0.1)
    assert not world.machine.excluded
    world.look_until(10.0 + SILENCE_S)
    assert list(world.machine.excluded) == [silent.step.participants[0]]
    ended = Counter(record.ended for record in world.records)
    assert ended == {Ended.MEASURED: 2, Ended.LOST: 1, Ended.SKIPPED: 1}


def test_a_step_gets_the_time_in_which_others_kept_it_from_a_processor():
    world = World(small_plan(1, [entry("compute", timeout_s=10.0)]), retries=0)
    ((step_id, attempt),) = world.running
    world.look_until(5.0 + SILENCE_S)
    for waited_s in (50.0, 20.0):  # what is known already takes nothing back
        about = {"step_id": step_id, "attempt": attempt, "at": world.now}
        world.tell(KeptWaiting(**about, waited_s=waited_s))
    world.look_until(55.0 + SILENCE_S)
    assert not world.machine.excluded
    world.look_until(60.0 + SILENCE_S)
    assert [*world.machine.excluded] == ["n0"]


def test_a_resumed_campaign_repeats_lost_steps_and_no_settled_ones():
    plan = small_plan(3, [entry("compute"), entry("train")])
    world = World(plan, retries=0)
    world.measure(next(iter(world.running.values())))
    world.tell(NodeLost(node="n2", at=1.0, reason="silent"))
    resumed = run_well(World(plan, retries=0, history=world.records))
    attempts = {
        launch.step.participants: launch.attempt
        for launch in resumed.launched
        if launch.step.workload.benchmark == "compute"
    }
    assert attempts == {("n1",): 1, ("n2",): 2}
    settled = Counter(
        r.step.id for r in world.records + resumed.records if r.ended is Ended.MEASURED
    )
    assert set(settled.values()) == {1}
    assert len(settled) == 6


def test_a_node_that_is_absent_takes_no_part():
    world = World(small_plan(3, [entry("compute")]), retries=0, absent={"n0": "cannot be reached"})
    assert {launch.step.participants[0] for launch in world.launched} == {"n1", "n2"}


# --- no answer: the node or the driver? ----------------------------------------------------


def test_a_driver_that_was_suspended_past_every_limit_loses_no_node():
    """And what it finds when it looks again counts."""
    world = World(small_plan(50, [entry("compute", timeout_s=10.0)]), retries=0)
    world.look_until(9.0)
    world.now += 10.0 + SILENCE_S + 5.0
    world.measure(next(iter(world.running.values())))
    world.tell(TimePassed(at=world.now))
    assert world.machine.unwatched_s == 10.0 + SILENCE_S + 5.0
    for launch in list(world.running.values()):
        world.measure(launch)
    assert not world.machine.excluded
    assert {record.ended for record in world.records} == {Ended.MEASURED}


def test_after_a_gap_at_the_very_end_of_its_patience_a_driver_has_all_of_it_again():
    world = World(small_plan(2, [entry("compute", timeout_s=100.0)]), retries=0)
    world.measure(next(iter(world.running.values())))
    world.look_until(100.0 + SILENCE_S - 1.0)
    world.now += 45.0
    world.tell(TimePassed(at=world.now))
    world.look_until(world.now + SILENCE_S - 1.0)
    assert not world.machine.excluded


def test_after_a_gap_a_node_that_stays_silent_is_given_up_later_by_the_gap():
    world = World(small_plan(2, [entry("compute", timeout_s=100.0)]), retries=0)
    world.measure(next(iter(world.running.values())))
    world.look_until(50.0)
    world.now += 1000.0 - INATTENTIVE_S
    world.look_until(1100.0 + SILENCE_S - 0.1)
    assert not world.machine.excluded
    world.look_until(1100.0 + SILENCE_S)
    assert list(world.machine.excluded) == ["n1"]


def test_a_gap_while_nothing_runs_is_none():
    world = until_judged(World(small_plan(2, [entry("compute")]), retries=0))
    world.now += 1000.0  # judging takes its time
    world.judge()
    assert world.machine.unwatched_s == 0.0


@pytest.mark.parametrize(
    ("nodes", "silent", "halts"),
    [(1, 1, False), (2, 1, False), (2, 2, True), (3, 2, True), (8, 4, False), (8, 5, True)],
)
def test_when_most_nodes_fall_silent_at_once_the_fault_is_ours(nodes, silent, halts):
    world = World(small_plan(nodes, [entry("compute")]), retries=0)
    for i in range(silent):
        world.now += 50.0 / silent
        world.tell(NodeLost(node=f"n{i}", at=world.now, reason="its agent is silent"))
    assert bool(world.halted) == halts
    if halts:
        assert world.halted.startswith(f"{silent} of {nodes} nodes fell silent: until shown other")
        assert '"its agent is silent"' in world.halted


def test_nodes_lost_one_by_one_stay_lost_and_the_campaign_halts_once_none_is_left():
    world = World(small_plan(4, [entry("compute", timeout_s=1000.0)]), retries=0)
    for i in range(3):
        world.look_until(200.0 * (i + 1))
        assert not world.halted
        world.tell(NodeLost(node=f"n{i}", at=world.now, reason="crashed"))
    world.look_until(900.0)
    assert not world.halted
    world.tell(NodeLost(node="n3", at=world.now, reason="crashed"))
    assert world.halted.startswith("4 of 4 nodes fell silent")


def test_an_executor_that_says_nothing_any_more_costs_no_node():
    world = World(small_plan(5, [entry("compute", timeout_s=10.0)]), retries=0)
    world.measure(next(iter(world.running.values())))
    world.look_until(1000.0)
    assert world.halted.startswith("4 of 5 nodes fell silent")
    assert "no word of compute 30 s past its limit" in world.halted


def test_all_nodes_of_a_silent_group_are_lost_because_its_program_may_still_run():
    world = World(small_plan(6, [entry("pair", timeout_s=10.0)]), retries=0)
    (silent, *others) = world.running.values()
    for launch in others:
        world.measure(launch)
    while silent.step.id in {launch.step.id for launch in world.running.values()}:
        for launch in [*world.running.values()]:
            if launch.step.id != silent.step.id:
                world.measure(launch)
        world.look_until(world.now + 1.0)
    assert world.machine.excluded.keys() == {*silent.step.participants}
    (ended,) = [record for record in world.records if record.step.id == silent.step.id]
    assert (ended.ended, {*ended.lost}) == (Ended.LOST, {*silent.step.participants})
    launched = len(world.launched)
    run_well(world)
    later = [launch.step.participants for launch in world.launched[launched:]]
    assert not {name for names in later for name in names} & {*silent.step.participants}


def test_when_a_group_of_most_nodes_falls_silent_the_fault_is_ours():
    world = World(small_plan(6, [entry("collective", timeout_s=10.0)]), retries=0)
    world.look_until(1000.0)
    assert world.halted.startswith("6 of 6 nodes fell silent: until shown other")


# --- scans ---------------------------------------------------------------------------------


def pairs_of(launches):
    return {frozenset(launch.step.participants) for launch in launches}


def test_the_partner_of_a_lost_node_is_paired_with_another_node_as_far_away():
    fabric = small_fabric(8, per_leaf=4)
    plan = small_plan(8, [entry("pair", groups="quick")], fabric)
    world = World(plan, retries=0)
    (partner,) = next(pair for pair in pairs_of(world.running.values()) if "n0" in pair) - {"n0"}
    world.tell(NodeLost(node="n0", at=1.0, reason="silent"))
    run_well(world)
    measured = [r.step.participants for r in world.records if r.ended is Ended.MEASURED]
    for node in {f"n{i}" for i in range(1, 8)}:
        assert {hops_between(fabric, PairTest(*pair)) for pair in measured if node in pair} == {
            2,
            4,
        }, node
    assert all("n0" not in pair for pair in measured)
    for step in (each for each in steps(plan, 0, set(fabric.nodes)) if "n0" in each.participants):
        others = {
            hops_between(fabric, PairTest(*each.participants))
            for each in replacement_steps(plan, step, {"n0"})
        }
        assert others == {hops_between(fabric, PairTest(*step.participants))}
    assert partner in {name for pair in measured for name in pair}


def test_a_node_that_is_not_there_is_planned_around_and_the_other_pairs_stay_as_they_were():
    plan = small_plan(8, [entry("pair", groups="quick")], small_fabric(8, per_leaf=4))
    all_nodes = {frozenset(s.participants) for s in steps(plan, 0, {f"n{i}" for i in range(8)})}
    rest = {frozenset(s.participants) for s in steps(plan, 0, {f"n{i}" for i in range(1, 8)})}
    assert rest >= {pair for pair in all_nodes if "n0" not in pair}
    assert {name for pair in rest for name in pair} == {f"n{i}" for i in range(1, 8)}


def crossed_by(fabric, step):
    met = [(a.switch, b.switch) for a, b in joined_nics(fabric, PairTest(*step.participants))]
    return {leaf for ends in met if ends[0] != ends[1] for leaf in ends}


@pytest.mark.parametrize(("spines", "times", "bound"), [(1, 1, 1), (3, 1, 1), (1, 2, 2), (1, 9, 4)])
def test_no_more_pairs_cross_a_leaf_at_once_than_have_their_cables_to_themselves(
    spines, times, bound
):
    fabric = small_fabric(16, per_leaf=4, spines=spines)
    cables = (Cable(gbit_s=400.0 * times),)
    fabric = replace(fabric, links=tuple(replace(link, cables=cables) for link in fabric.links))
    plan = small_plan(16, [entry("pair", groups="quick")], fabric)
    world = World(plan, retries=0)
    most = Counter()
    while not world.finished:
        most |= Counter(
            leaf for run in world.running.values() for leaf in crossed_by(fabric, run.step)
        )
        if world.judging is not None:
            world.judge()
        else:
            world.measure(next(iter(world.running.values())))
    assert max(most.values()) == bound
    assert len(world.final()) == len(list(steps(plan, 0, set(fabric.nodes))))


@pytest.mark.parametrize(("answers", "asked"), [(False, 3), (True, 11)])
def test_a_node_that_answers_none_of_three_good_partners_is_asked_no_more_in_its_phase(
    answers, asked
):
    """If it answered one of them, the others may be at fault, and all are asked."""
    plan = small_plan(12, [entry("pair", groups="pairs")], small_fabric(12, spines=4))
    world = World(plan, retries=0)
    while not world.finished:
        if world.judging is not None:
            again = list(follow_ups(plan, 0, 0, 1, [("n0", "n5"), ("n3", "n5")]))
            world.judge(more=again if world.machine.turn == 0 else ())
            continue
        launch = max(world.running.values(), key=lambda run: "n0" not in run.step.participants)
        is_first = not any("n0" in run.step.participants for run in world.records)
        if "n0" not in launch.step.participants or (answers and is_first):
            world.measure(launch)
        else:
            world.tell(TimedOut(step_id=launch.step.id, attempt=1, at=world.now, reason="hangs"))
    first = [run for run in world.final() if run.step.turn == 0]
    own = Counter(run.ended for run in first if "n0" in run.step.participants)
    assert own[Ended.TIMED_OUT] + own[Ended.MEASURED] == asked
    assert own[Ended.SKIPPED] == 11 - asked
    assert not any(run.lost for run in first)
    assert sum(run.ended is Ended.MEASURED for run in first) == 55 + answers
    assert len(world.final()) - len(first) == 1 + answers


@pytest.mark.parametrize(
    ("spines", "non_blocking"), [(1, False), (3, False), (4, False), (1, True)]
)
def test_the_estimate_counts_that_pairs_wait_for_their_cables(spines, non_blocking):
    fabric = small_fabric(16, per_leaf=4, spines=spines)
    plan = small_plan(16, [entry("pair", groups="quick")], fabric)
    plan = replace(plan, non_blocking=non_blocking)
    world, turns = World(plan, retries=0), 0
    while world.judging is None:
        turns += 1
        for run in list(world.running.values()):
            world.measure(run)
    assert estimate(plan, 0, None).duration_s == 10 * turns
    rounds = Counter(node for run in world.final() for node in run.step.participants)
    assert (turns == max(rounds.values())) == non_blocking


def test_follow_up_steps_run_in_the_same_phase_and_survive_a_resume():
    entries = [entry("pair", groups="quick"), entry("train_together")]
    plan = small_plan(4, entries, small_fabric(4), stop_early=True)
    first = World(plan, retries=0)
    while first.judging is None:
        first.measure(next(iter(first.running.values())))
    asked = list(follow_ups(plan, 0, 0, 1, [("n0", "n3"), ("n1", "n2")]))
    first.judge(more=asked)
    assert first.machine.phase == 0
    first.measure(next(iter(first.running.values())))

    resumed = World(plan, retries=0, history=first.records)
    assert resumed.judging == 0
    assert not resumed.running
    resumed.judge(more=asked)
    assert pairs_of(resumed.running.values()) == {frozenset({"n1", "n2"})}
    run_well(resumed)
    assert [launch.step.turn for launch in resumed.launched] == [1, 0]


def test_a_follow_up_with_a_lost_node_is_not_begun_and_alone_it_ends_the_phase():
    plan = small_plan(4, [entry("pair", groups="quick")], small_fabric(4))
    world = World(plan, retries=0)
    world.tell(NodeLost(node="n0", at=1.0, reason="silent"))
    while world.judging is None:
        world.measure(next(iter(world.running.values())))
    world.judge(more=follow_ups(plan, 0, 0, 1, [("n0", "n3")]))
    assert not world.running
    assert world.finished, "nobody asks for the same for ever"


# --- saboteurs -----------------------------------------------------------------------------

suites = st.lists(
    st.builds(
        entry,
        st.sampled_from(sorted(SPECS)),
        repeats=st.integers(1, 2),
        groups=st.sampled_from(["all", "pairs", "quick", "covering"]),
        rounds=st.sampled_from([None, 1, 2]),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.long
@given(
    data=st.data(),
    count=st.integers(2, 6),
    suite=suites,
    retries=st.integers(0, 2),
    parallel_nodes=st.sampled_from([None, 1, 2, 3]),
)
@settings(max_examples=50)
def test_a_campaign_ends_and_keeps_its_rules_under_any_faults(
    data, count, suite, retries, parallel_nodes
):
    plan = small_plan(count, suite, small_fabric(count))
    world = World(plan, retries=retries, parallel_nodes=parallel_nodes)
    let_much_go_wrong(data, world)
    # from here on the world is silent but for the clock and the judge: it must end by itself
    for _ in range(1000):
        if world.finished:
            break
        if world.judging is not None:
            world.judge()
        else:
            deadline = world.machine.next_deadline()
            assert deadline is not None, "nothing runs, nothing is judged, and it has not ended"
            world.look_until(max(world.now, deadline))
    assert world.finished
    assert not world.running
    counted = Counter(record.step.id for record in world.final())
    assert set(counted.values()) <= {1}, "a step was settled twice"
    assert world.halted or {launch.step.id for launch in world.launched} <= counted.keys()
    tried = Counter(launch.step.id for launch in world.launched)
    assert all(tries <= retries + 1 for tries in tried.values())
    assert all(record.ended is Ended.MEASURED or record.reason for record in world.records)


@given(count=st.integers(2, 5), suite=suites, seed=st.integers(0, 1 << 30))
@settings(max_examples=25)
def test_pauses_of_the_driver_at_any_time_and_of_any_length_lose_no_node(count, suite, seed):
    """Programs end within their limits; their results arrive when the driver looks, or soon
    after."""
    chance = random.Random(seed)
    world = World(small_plan(count, suite, small_fabric(count)), retries=0)
    ends: dict[tuple[str, int], float] = {}
    while not world.finished:
        if world.judging is not None:
            world.judge()
            continue
        for key, launch in world.running.items():
            ends.setdefault(key, world.now + launch.step.timeout_s * chance.random())
        world.now += chance.choice([INATTENTIVE_S, INATTENTIVE_S, 45.0, 100.0, 1e5])
        ended = [run for key, run in world.running.items() if ends[key] <= world.now]
        if late := chance.random() < 0.5:
            world.tell(TimePassed(at=world.now))
            world.now += INATTENTIVE_S
        for launch in ended:
            world.measure(launch)
        world.tell(TimePassed(at=world.now))
        event("late news" if late else "news at once")
    assert not world.halted
    assert not world.machine.excluded
    assert {record.ended for record in world.records} == {Ended.MEASURED}


@pytest.mark.long
@given(data=st.data(), count=st.integers(2, 7), suite=suites)
@settings(max_examples=30)
def test_most_nodes_silent_at_once_end_a_campaign_that_resumed_measures_all(data, count, suite):
    plan = small_plan(count, suite, small_fabric(count))
    world = World(plan, retries=0)
    for _ in range(data.draw(st.integers(0, 10))):
        if world.judging is not None:
            world.judge()
        elif world.running:
            world.measure(next(iter(world.running.values())))
    if world.judging is not None:
        world.judge()
    if world.finished:
        return
    size = st.integers(count // 2 + 1, count)
    names = data.draw(st.permutations([f"n{i}" for i in range(count)]))[: data.draw(size)]
    for name in names:
        world.now += data.draw(st.sampled_from([0.0, 1.0, 5.0]))
        if world.judging is None:
            world.tell(NodeLost(node=name, at=world.now, reason="silent"))
    assert world.halted or world.judging is not None
    if world.judging is not None:  # the losses fell together with the end of a phase
        return
    resumed = run_well(World(plan, retries=0, history=world.records))
    assert not resumed.halted
    measured = Counter(
        r.step.id for r in world.records + resumed.records if r.ended is Ended.MEASURED
    )
    planned = [s.id for p in range(len(plan.phases)) for s in steps(plan, p, {*names_of(plan)})]
    assert {measured[id_] for id_ in planned} == {1}


def names_of(plan) -> list[str]:
    return [node.name for node in plan.nodes]


@pytest.mark.long
@given(data=st.data(), count=st.integers(2, 5), suite=suites, retries=st.integers(0, 2))
@settings(max_examples=35)
def test_a_machine_replayed_from_its_record_gives_the_same_commands(data, count, suite, retries):
    plan = small_plan(count, suite, small_fabric(count))
    world = World(plan, retries=retries, parallel_nodes=3, absent={"n1": "cannot be reached"})
    let_much_go_wrong(data, world)
    opening = Opening(
        campaign="c",
        at=0.0,
        plan=plan,
        retries=retries,
        parallel_nodes=3,
        absent={"n1": "cannot be reached"},
        history=(),
    )
    lines = [event_log.line(told) for told in (opening, *(event for event, _ in world.heard))]
    first, *events = [event_log.parse(text, "here") for text in lines]
    again = [document(commands) for _, commands in replay(first, events)]
    assert again == [document(world.opened), *(document(answer) for _, answer in world.heard)]


def let_much_go_wrong(data, world: World) -> None:
    told = []  # events of the past, to be repeated at the worst moment
    for _ in range(data.draw(st.integers(0, 60))):
        if world.finished:
            break
        world.now += data.draw(st.sampled_from([0.0, 0.1, 5.0]))
        world.tell(sabotage(data, world, told))
        if world.judging is not None and data.draw(st.booleans()):
            names = st.sampled_from([node.name for node in world.plan.nodes])
            pair = tuple(data.draw(st.lists(names, min_size=2, max_size=2, unique=True)))
            machine = world.machine
            after = follow_ups(world.plan, machine.phase, 0, machine.turn + 1, [pair])
            more = after if data.draw(st.booleans()) else ()
            world.judge(data.draw(st.sets(names, max_size=2)), more)


def sabotage(data, world: World, told: list):
    """Right, wrong, late, repeated or invented news."""
    launches = st.sampled_from(world.launched or [None])
    launch = data.draw(launches)
    kinds = [
        "measured",
        "failed",
        "timed out",
        "started",
        "waited",
        "lost",
        "again",
        "tick",
        "judged",
        "nonsense",
    ]
    kind = data.draw(st.sampled_from(kinds))
    event(kind)
    about = {"at": world.now - data.draw(st.sampled_from([0.0, 100.0]))}
    if launch:
        about |= {"step_id": launch.step.id, "attempt": launch.attempt}
    match kind if launch else "tick":
        case "measured":
            made = Measured(**about, result=RESULT)
        case "failed":
            made = Failed(**about, reason="broken", infrastructure=data.draw(st.booleans()))
        case "timed out":
            made = TimedOut(**about, reason="too slow")
        case "started":
            made = Started(**about)
        case "waited":
            made = KeptWaiting(**about, waited_s=20.0)
        case "lost":
            node = data.draw(st.sampled_from([*(n.name for n in world.plan.nodes), "stranger"]))
            made = NodeLost(node=node, at=world.now, reason="silent")
        case "again" if told:
            return data.draw(st.sampled_from(told))
        case "judged":
            made = Judged(phase=world.machine.phase - 1, defective=frozenset({"n0"}))
        case "nonsense":
            made = Measured(step_id="no/such/step", attempt=7, at=world.now, result=RESULT)
        case _:
            made = TimePassed(at=world.now)
    told.append(made)
    return made


def test_a_node_on_which_a_process_outlived_sigkill_takes_no_further_part_and_is_unknown():
    world = World(small_plan(2, [entry("compute"), entry("probe")]), retries=1)
    launch = next(run for run in world.running.values() if run.step.participants == ("n0",))
    stuck = Measured(
        step_id=launch.step.id,
        attempt=1,
        at=1.0,
        result=RESULT,
        reason="pid 7 outlived SIGKILL",
        lost=("n0",),
    )
    world.tell(stuck)
    assert world.machine.excluded == {"n0": "pid 7 outlived SIGKILL"}
    ends = {r.step.workload.benchmark: r for r in world.records if "n0" in r.step.participants}
    assert (ends["compute"].ended, ends["compute"].lost) == (Ended.MEASURED, ("n0",))
    assert ends["probe"].ended is Ended.SKIPPED
    (lost,) = judge_unmeasured(world.records, world.plan, {})
    assert (lost.code, lost.judgement) == ("NODE-LOST", Judgement.UNKNOWN)
    assert lost.reason == "pid 7 outlived SIGKILL"
    assert restore(Measured, document(stuck)).lost == ("n0",)
