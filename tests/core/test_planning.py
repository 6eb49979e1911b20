from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from fleets import SPECS, entry, nodes, small_plan, spec

from anubis.core.campaign.planning import estimate, narrow, plan, replacement_steps, steps
from anubis.core.errors import ConfigError, UsageError
from anubis.core.records import Node, ParameterSpec, Suite


def every_step(planned, phase=0):
    return list(steps(planned, phase, {node.name for node in planned.nodes}))


def test_parameters_are_completed_with_the_defaults_so_that_workloads_are_comparable():
    said = small_plan(1, [entry("compute", parameters={"size": 64})])
    unsaid = small_plan(1, [entry("compute")])
    assert said.phases[0].entries[0].workload == unsaid.phases[0].entries[0].workload
    assert unsaid.phases[0].entries[0].workload.arguments == {"size": 64}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sise": 1}, 'unknown parameter "sise"; did you mean "size"'),
        ({"size": "big"}, 'of type int, found str "big"'),
        ({"size": True}, "of type int, found bool"),
        ({"size": 1.5}, "of type int, found float"),
    ],
)
def test_parameters_a_benchmark_does_not_have_are_refused_before_anything_runs(parameters, words):
    with pytest.raises(ConfigError, match=words):
        small_plan(1, [entry("compute", parameters=parameters)])


def test_a_benchmark_that_is_not_there_is_named_with_the_nearest_one():
    with pytest.raises(ConfigError, match='"compote", which does not exist; did you mean "com'):
        small_plan(1, [entry("compote")])


def test_no_nodes_and_the_same_node_twice_are_refused():
    suite = Suite(name="s", summary="", benchmarks=(entry("compute"),))
    with pytest.raises(UsageError, match="empty"):
        plan(suite, [], SPECS)
    with pytest.raises(UsageError, match='"n0" is named twice'):
        plan(suite, [*nodes(2), *nodes(1)], SPECS)


def test_a_benchmark_that_needs_more_nodes_is_left_out_and_listed():
    planned = small_plan(1, [entry("compute"), entry("pair")])
    assert [phase.name for phase in planned.phases] == ["single-node"]
    assert planned.left_out == ("pair needs 2 nodes, there are 1",)
    with pytest.raises(UsageError, match="needs 2 nodes or more, and has only 1"):
        small_plan(1, [entry("pair")])


def test_steps_have_names_of_their_own_even_for_the_same_benchmark_twice():
    planned = small_plan(
        6,
        [entry("compute", repeats=3), entry("compute", parameters={"size": 1}), entry("probe")],
    )
    ids = [step.id for step in every_step(planned)]
    assert len(ids) == len(set(ids)) == 6 * (3 + 1 + 1)


def test_pairs_meet_in_rounds_and_all_meet_at_once():
    planned = small_plan(4, [entry("collective", groups="pairs"), entry("collective")])
    groups = [step.participants for step in every_step(planned)]
    assert sorted(sorted(group) for group in groups[:-1]) == sorted(
        sorted(pair) for pair in combinations(["n0", "n1", "n2", "n3"], 2)
    )
    assert groups[-1] == ("n0", "n1", "n2", "n3")
    one_round = small_plan(4, [entry("collective", groups="pairs", rounds=1)])
    assert len(every_step(one_round)) == 2


def test_each_benchmark_tests_its_own_nodes_and_pairs_are_made_with_partners_that_meet_too():
    whole = small_plan(6, [entry("compute"), entry("collective", groups="pairs", rounds=1)])
    tests = {"compute": {"n0", "n1"}, "collective": {"n0"}}
    planned = narrow(whole, tests, ["n4", "n5"])
    assert [step.participants for step in every_step(planned)] == [("n0",), ("n1",)]
    pairs = [("n0", "n4"), ("n0", "n5"), ("n4", "n5")]
    assert [step.participants for step in every_step(planned, 1)] == pairs
    assert estimate(planned, 1, None).steps == 3
    unfit = list(steps(planned, 1, {"n0", "n1", "n4"}))
    assert [step.participants for step in unfit] == [("n0", "n4")]
    among = narrow(whole, {"collective": {"n0", "n4"}}, ["n4", "n5", "n3"])
    met = [frozenset(step.participants) for step in every_step(among)]
    assert len(met) == len(set(met))
    assert all(sum(node in pair for pair in met) >= 2 for node in ("n0", "n4"))


def test_narrowing_a_plan_pairs_with_proven_nodes_of_the_same_kind_and_lists_others():
    whole = small_plan(4, [entry("collective"), entry("collective", groups="pairs")])
    planned = narrow(whole, {"collective": {"n0"}}, ["n1", "n2"])
    assert [len(step.participants) for step in every_step(planned)] == [2, 2, 2]
    other = replace(whole, nodes=(replace(whole.nodes[0], sku="other"), *whole.nodes[1:]))
    told = narrow(other, {"collective": {"n0", "n3"}}, ["n1", "n2"])
    assert told.left_out == ("collective on n0: no proven node of its kind",)
    assert "n0" not in {name for step in every_step(told) for name in step.participants}


def test_one_node_alone_is_a_group_for_a_benchmark_that_bears_it():
    assert [s.participants for s in every_step(small_plan(1, [entry("collective")]))] == [("n0",)]


def test_the_estimate_of_a_plan_is_a_sum_by_hand():
    planned = small_plan(4, [entry("compute", repeats=2), entry("probe", duration_s=5.0)])
    cost = estimate(planned, 0, None)
    assert cost.steps == 12
    assert cost.duration_s == 2 * 10 + 5  # each node does its own, all at once
    assert cost.node_hours == pytest.approx(4 * 25 / 3600)
    assert estimate(planned, 0, 2).duration_s == 4 * 25 / 2


@pytest.mark.parametrize(("count", "rounds"), [(6, None), (7, None), (8, 3)])
def test_all_pairs_are_added_up_as_if_they_were_counted(count, rounds):
    planned = small_plan(count, [entry("pair", rounds=rounds, repeats=2)])
    cost, counted = estimate(planned, 0, None), every_step(planned)
    assert cost.steps == len(counted)
    assert cost.node_hours == pytest.approx(2 * 10 * len(counted) / 3600)
    turns = count - 1 + count % 2 if rounds is None else rounds
    assert cost.duration_s == 2 * 10 * turns


def test_a_large_group_goes_on_without_its_lost_node_and_a_pair_does_not():
    (group,) = every_step(small_plan(4, [entry("collective")]))
    (smaller,) = replacement_steps(small_plan(4, [entry("collective")]), group, {"n1"})
    assert smaller.participants == ("n0", "n2", "n3")
    assert smaller.id != group.id
    all_nodes = small_plan(4, [entry("pair")])
    pair = every_step(all_nodes)[0]
    assert not list(replacement_steps(all_nodes, pair, {pair.participants[0]}))


def test_a_step_without_a_stated_limit_gets_a_generous_one_and_a_stated_one_is_kept():
    planned = small_plan(1, [entry("compute"), entry("glance"), entry("probe", timeout_s=7.0)])
    limits = {step.workload.benchmark: step.timeout_s for step in every_step(planned)}
    assert limits == {"compute": 60.0, "glance": 60.0, "probe": 7.0}
    assert small_plan(1, [entry("compute", duration_s=100.0)]).phases[0].entries[0].timeout_s == 600


@pytest.mark.parametrize(("gpus", "times"), [((8, 7), 8), ((0, 0), 1)])
def test_gpus_one_after_the_other_take_the_time_of_one_as_often_as_the_most_a_node_has(gpus, times):
    way = ParameterSpec(name="gpus", type="str", default="at_once")
    fleet = [Node(name=f"n{i}", sku="h100", gpus=count) for i, count in enumerate(gpus)]
    for parameters, factor in (({}, 1), ({"gpus": "in_turn"}, times)):
        stated = entry("each", parameters=parameters, duration_s=20.0, timeout_s=90.0)
        suite = Suite(name="s", summary="", benchmarks=(stated,))
        planned = plan(suite, fleet, {"each": spec("each", parameters=(way,))})
        assert {step.timeout_s for step in every_step(planned)} == {90.0 * factor}
        assert estimate(planned, 0, None).duration_s == 20.0 * factor
